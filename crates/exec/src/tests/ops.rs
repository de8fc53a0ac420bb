//! Every elementwise op on every dtype it takes, over special values and their pairs.

use super::*;
use girih_ir::{Attrs, Class, Op, TensorSpec};

/// Values at the limits of a dtype of real numbers, and values between them.
pub(super) fn specials(dtype: DType) -> Vec<Literal> {
    match dtype {
        DType::Bool => vec![Literal::from_i64(dtype, 0), Literal::from_i64(dtype, 1)],
        d if d.is_float() => [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            -2.5,
            3.0,
            -3.0,
            0.1,
            7.25,
            -7.25,
            1e-3,
            100.0,
            -100.0,
            1e5,
            3e6,
            -3e6,
            1e30,
            -1e30,
            6e-8,
            -6e-8,
            1e-40,
            -1e-44,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            255.5,
            65504.0,
            2147483648.0,
            -9.3e18,
            1.0009765625,
            0.999,
        ]
        .map(|x| Literal::from_f64(d, x))
        .to_vec(),
        d => {
            let (lo, hi) = d.int_range().expect("an integer");
            [lo, lo + 1, -7, -2, -1, 0, 1, 2, 3, 7, 33, 100, hi - 1, hi]
                .map(|i| Literal::from_int(d, i))
                .to_vec()
        }
    }
}

fn accepts(code: OpCode, attrs: Attrs, dtypes: &[DType]) -> Option<DType> {
    let specs: Vec<TensorSpec> =
        dtypes.iter().map(|&dtype| TensorSpec { shape: [2].into(), dtype }).collect();
    Op::new(code, attrs).infer(&specs.iter().collect::<Vec<_>>()).ok().map(|s| s.dtype)
}

/// Runs one op over operands of equal length, repeated past a block's end so that vector bodies
/// and tails see all values.
fn check(code: OpCode, operands: Vec<(DType, Vec<Literal>)>, out: DType) {
    let n = operands[0].1.len();
    let long = |v: &Vec<Literal>| v.iter().copied().cycle().take((n + 7).max(600)).collect();
    let operands: Vec<(DType, Vec<Literal>)> =
        operands.iter().map(|(d, v)| (*d, long(v))).collect();
    let mut memory = Memory::new();
    let kernel = map_of(&mut memory, code, &operands, out);
    memory.check(&kernel, 0.0);
}

#[test]
fn every_unary_op_on_every_dtype() {
    let unary = OpCode::ALL
        .iter()
        .filter(|c| c.def().class == Class::Elementwise && c.def().arity == (1, 1));
    for &code in unary.filter(|&&c| c != OpCode::Cast) {
        for dtype in reals() {
            if let Some(out) = accepts(code, Attrs::None, &[dtype]) {
                check(code, vec![(dtype, specials(dtype))], out);
            }
        }
    }
}

#[test]
fn every_binary_op_on_every_pair_of_specials() {
    let binary = OpCode::ALL
        .iter()
        .filter(|c| c.def().class == Class::Elementwise && c.def().arity == (2, 2))
        .filter(|&&c| c != OpCode::Complex);
    for &code in binary {
        for dtype in reals() {
            let Some(out) = accepts(code, Attrs::None, &[dtype, dtype]) else { continue };
            let (mut a, mut b) = (vec![], vec![]);
            for x in specials(dtype) {
                for y in specials(dtype) {
                    // The interpreter's power is a loop, so keep its exponents small.
                    if code == OpCode::Pow && !dtype.is_float() && y.as_int() > 100 {
                        continue;
                    }
                    a.push(x);
                    b.push(y);
                }
            }
            check(code, vec![(dtype, a), (dtype, b)], out);
        }
    }
}

#[test]
fn casts_between_all_dtypes() {
    for from in reals() {
        for to in reals() {
            check(OpCode::Cast, vec![(from, specials(from))], to);
        }
    }
}

#[test]
fn where_on_every_dtype() {
    for dtype in reals() {
        let a = specials(dtype);
        let b: Vec<Literal> = a.iter().rev().copied().collect();
        let c = numbers(DType::Bool, a.len(), 3);
        check(OpCode::Where, vec![(DType::Bool, c), (dtype, a), (dtype, b)], dtype);
    }
}
