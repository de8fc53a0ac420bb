//! Random kernels against the portable executor.

use super::{Maker, Walk, at_each_level, check, generated, known};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{Inst, Val};
use proptest::prelude::*;

/// A kernel of random ops on earlier values.
pub(super) fn random(choices: &[(u8, u8, u8, u8)], rows: usize, row: usize) -> Maker {
    let mut maker = Maker::new(rows, row);
    let walks = [Walk::Dense, Walk::Row, Walk::Column, Walk::Point, Walk::Dense, Walk::Even];
    let dtypes = [
        DType::F32,
        DType::I64,
        DType::Bool,
        DType::F16,
        DType::F64,
        DType::I32,
        DType::BF16,
        DType::U8,
        DType::I16,
        DType::U32,
    ];
    let known = known();
    for (i, &(op, a, b, c)) in choices.iter().enumerate() {
        let (code, operands, to) = &known[(op as usize * 7 + c as usize * 1792) % known.len()];
        let mut args = vec![];
        for (&d, pick) in operands.iter().zip([a, b, c]) {
            // The sign of a computed NaN is unspecified, and these ops would expose it.
            let shows_sign = matches!(code, OpCode::Copysign | OpCode::Signbit | OpCode::Bitcast);
            let loaded = |v: u32| matches!(maker.kernel.body.inst(Val(v)), Inst::Load(_));
            let found: Vec<u32> = (0..maker.dtypes.len() as u32)
                .filter(|&v| maker.dtypes[v as usize] == d && (!shows_sign || loaded(v)))
                .collect();
            let value = match found.get(pick as usize % (found.len() + 1)) {
                Some(&v) => Val(v),
                None if maker.buffers.len() < 6 => {
                    let walk = walks[(pick as usize + i) % 6];
                    maker.load(d, walk, pick as usize % 3)
                }
                None => match found.first() {
                    Some(&v) => Val(v),
                    None => {
                        let literal = Literal::from_i64(d, 1);
                        maker.push(Inst::Literal(literal), d)
                    }
                },
            };
            args.push(value);
        }
        maker.op(*code, &args, *to);
    }
    for d in dtypes {
        let last = (0..maker.dtypes.len()).rev().find(|&v| maker.dtypes[v] == d);
        if let (Some(v), true) = (last, maker.kernel.stores.len() < 3) {
            maker.store(Val(v as u32));
        }
    }
    maker
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn random_kernels_give_the_portable_executors_bits(
        choices in prop::collection::vec(any::<(u8, u8, u8, u8)>(), 1..40),
        rows in 1usize..4,
        row in prop::sample::select(vec![1usize, 16, 17, 31, 33, 48, 100]),
        seed in any::<u64>(),
    ) {
        let maker = random(&choices, rows, row);
        at_each_level(|| {
            if !generated(&maker.kernel).functions().is_empty() {
                check(&maker, seed);
            }
        });
    }
}

#[test]
fn most_random_kernels_are_generated() {
    at_each_level(|| {
        let choices = |s: usize| -> Vec<(u8, u8, u8, u8)> {
            (0..20)
                .map(|i| (s * 31 + i * 17, s + i, i * 5, s ^ i))
                .map(|(a, b, c, d)| (a as u8, b as u8, c as u8, d as u8))
                .collect()
        };
        let one = |s: &usize| generated(&random(&choices(*s), 2, 40).kernel).functions().len() == 1;
        assert!((0..100).filter(one).count() > 80);
    });
}
