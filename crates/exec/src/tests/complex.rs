//! Complex numbers: every op on pairs of special values, conversions, sums, products and GEMMs,
//! against the reference evaluator's arithmetic.

use super::*;
use girih_ir::{Attrs, Class, Op, TensorSpec, scalar};
use num_complex::Complex;

const DTYPES: [DType; 2] = [DType::C64, DType::C128];

fn specials(dtype: DType) -> Vec<Element> {
    let parts = [0.0, -0.0, 1.0, -1.5, 3.25, -0.1, 700.0, 1e-30, f64::INFINITY, f64::NAN];
    let number = |re, im| Element::from_complex(dtype, Complex::new(re, im));
    parts.iter().flat_map(|&re| parts.iter().map(move |&im| number(re, im))).collect()
}

fn buffer(m: &mut Memory, dtype: DType, values: &[Element]) -> BufferId {
    let id = m.blank(dtype, values.len());
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|v| match dtype {
            DType::C64 => [v.bits.to_le_bytes(), v.imag_bits().to_le_bytes()]
                .iter()
                .flat_map(|b| b[..4].to_vec())
                .collect::<Vec<u8>>(),
            DType::C128 => [v.bits.to_le_bytes(), v.imag_bits().to_le_bytes()].concat(),
            d => v.bits.to_le_bytes()[..d.size()].to_vec(),
        })
        .collect();
    for (word, bytes) in m.words[id.0 as usize].iter_mut().zip(bytes.chunks(8)) {
        let mut whole = word.to_le_bytes();
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    id
}

/// One op over operands of equal length.
#[track_caller]
fn check(op: Op, operands: &[(DType, Vec<Element>)]) {
    let n = operands[0].1.len();
    let spec = |dtype| TensorSpec::new([n], dtype);
    let specs: Vec<TensorSpec> = operands.iter().map(|o| spec(o.0)).collect();
    let Ok(out) = op.infer(&specs.iter().collect::<Vec<_>>()) else { return };
    let (mut m, mut body, mut accesses) = (Memory::new(), Block::default(), vec![]);
    let mut args = vec![];
    for (dtype, values) in operands {
        let id = buffer(&mut m, *dtype, values);
        accesses.push(dense(id, *dtype, &[n]));
        args.push(body.push(Inst::Load(AccessId(accesses.len() as u32 - 1))));
    }
    let value = body.push(super::op(op.code, &args, out.dtype));
    let result = m.blank(out.dtype, n);
    let kernel = Kernel {
        name: format!("{op:?} {}", operands[0].0),
        extents: SmallVec::from_slice(&[n]),
        parallel: 1,
        accesses,
        core: Core::Map,
        body,
        stores: vec![Store { access: dense(result, out.dtype, &[n]), value }],
    };
    let got = m.run_everywhere(&kernel);
    for i in 0..n {
        let args: Vec<Element> = operands.iter().map(|o| o.1[i]).collect();
        let (g, w) = (got.element(result, i), scalar::apply(&op, out.dtype, &args));
        assert!(same(g, w), "{op:?} of {args:?}: {g:?}, expected {w:?}");
    }
}

fn elementwise(arity: usize) -> impl Iterator<Item = OpCode> {
    let wanted = move |c: &OpCode| {
        let def = c.def();
        def.class == Class::Elementwise && def.arity == (arity, arity) && *c != OpCode::Cast
    };
    OpCode::ALL.iter().copied().filter(wanted)
}

#[test]
fn every_op_agrees_with_the_reference_on_special_values() {
    for dtype in DTYPES {
        let values = specials(dtype);
        for code in elementwise(1) {
            check(code.into(), &[(dtype, values.clone())]);
        }
        let (mut a, mut b) = (vec![], vec![]);
        for x in &values {
            for y in &values {
                a.push(*x);
                b.push(*y);
            }
        }
        for code in elementwise(2) {
            check(code.into(), &[(dtype, a.clone()), (dtype, b.clone())]);
        }
        let parts = |f: fn(Complex<f64>) -> f64| {
            let part = |z: &Element| Literal::from_f64(dtype.real(), f(z.complex())).into();
            (dtype.real(), values.iter().map(part).collect::<Vec<Element>>())
        };
        check(OpCode::Complex.into(), &[parts(|z| z.re), parts(|z| z.im)]);
        let condition = numbers(DType::Bool, a.len(), 3).into_iter().map(Element::from).collect();
        check(OpCode::Where.into(), &[(DType::Bool, condition), (dtype, a), (dtype, b)]);
    }
}

#[test]
fn casts_to_complex_dtypes_and_between_them() {
    for to in DType::ALL {
        let op = Op::new(OpCode::Cast, Attrs::DType(to));
        for from in DTYPES {
            check(op.clone(), &[(from, specials(from))]);
        }
        if to.is_complex() {
            for from in reals() {
                let values = numbers(from, 600, 5).into_iter().map(Element::from).collect();
                check(op.clone(), &[(from, values)]);
            }
        }
    }
}

fn numbers_of(dtype: DType, n: usize, seed: u64) -> Vec<Element> {
    let (re, im) = (numbers(DType::F64, n, seed), numbers(DType::F64, n, seed + 1));
    let number = |(re, im): (&Literal, &Literal)| {
        Element::from_complex(dtype, Complex::new(re.as_f64(), im.as_f64()))
    };
    re.iter().zip(&im).map(number).collect()
}

#[track_caller]
fn close(found: Element, expected: Complex<f64>, dtype: DType) {
    let tolerance = if dtype == DType::C64 { 1e-4 } else { 1e-11 };
    let off = (found.complex() - expected).norm();
    assert!(off <= tolerance * expected.norm().max(1.0), "{found:?}, expected {expected}");
}

/// `[points | reduced]`, reduced along either axis of memory.
#[test]
fn sums_and_products_of_any_size_and_order() {
    for dtype in DTYPES {
        for (op, points, reduced) in [
            (ReduceOp::Sum, 1, 1),
            (ReduceOp::Sum, 3, 33),
            (ReduceOp::Sum, 70, 1100),
            (ReduceOp::Sum, 1, 300_000),
            (ReduceOp::Prod, 2, 5),
            (ReduceOp::Prod, 66, 9),
        ] {
            for strides in [[reduced as isize, 1], [1, points as isize]] {
                let values = numbers_of(dtype, points * reduced, 7);
                let mut m = Memory::new();
                let x = buffer(&mut m, dtype, &values);
                let mut prologue = Block::default();
                let value = prologue.push(Inst::Load(AccessId(0)));
                let mut body = Block::default();
                let total = body.push(Inst::Core { dtype });
                let out = m.blank(dtype, points);
                let strides = SmallVec::from_slice(&strides);
                let kernel = Kernel {
                    name: format!("{op} {dtype} {points} {reduced}"),
                    extents: SmallVec::from_slice(&[points, reduced]),
                    parallel: 1,
                    accesses: vec![Access {
                        buffer: x,
                        dtype,
                        offset: 0,
                        strides: strides.clone(),
                    }],
                    core: Core::Reduce { prologue, value, op, stores: vec![] },
                    body,
                    stores: vec![Store { access: dense(out, dtype, &[points]), value: total }],
                };
                let got = m.run_everywhere(&kernel);
                for p in 0..points {
                    let at = |r: usize| p as isize * strides[0] + r as isize * strides[1];
                    let all = (0..reduced).map(|r| values[at(r) as usize].complex());
                    let want = if op == ReduceOp::Sum { all.sum() } else { all.product() };
                    close(got.element(out, p), want, dtype);
                }
            }
        }
    }
}

/// Multiplying by the identity 1 is not exact: 1 times an infinity has a NaN part.
#[test]
fn a_product_over_a_single_element_is_the_element() {
    for dtype in DTYPES {
        for value in specials(dtype) {
            let mut m = Memory::new();
            let x = buffer(&mut m, dtype, &[value]);
            let (mut prologue, mut body) = (Block::default(), Block::default());
            let loaded = prologue.push(Inst::Load(AccessId(0)));
            let total = body.push(Inst::Core { dtype });
            let out = m.blank(dtype, 1);
            let kernel = Kernel {
                name: "product of one".into(),
                extents: SmallVec::from_slice(&[1]),
                parallel: 0,
                accesses: vec![dense(x, dtype, &[1])],
                core: Core::Reduce { prologue, value: loaded, op: ReduceOp::Prod, stores: vec![] },
                body,
                stores: vec![Store { access: dense(out, dtype, &[]), value: total }],
            };
            let got = m.run_everywhere(&kernel).element(out, 0);
            assert!(same(got, value), "{got:?}, expected {value:?}");
        }
    }
}

#[test]
fn gemms_and_scalars() {
    for dtype in DTYPES {
        let (rows, columns, k) = (5, 67, 9);
        let (a, b) = (numbers_of(dtype, rows * k, 1), numbers_of(dtype, k * columns, 2));
        let mut m = Memory::new();
        let (x, y) = (buffer(&mut m, dtype, &a), buffer(&mut m, dtype, &b));
        let out = m.blank(dtype, rows * columns);
        let part = Literal::from_f64(dtype.real(), 2.5);
        m.arguments = vec![[part.bits, 0]];
        let mut body = Block::default();
        let product = body.push(Inst::Core { dtype });
        let scalar = body.push(Inst::Scalar { argument: 0, dtype });
        let literal = body.push(Inst::Literal(Literal::from_f64(dtype, -2.0)));
        let scaled = body.push(super::op(OpCode::Mul, &[product, scalar], dtype));
        let value = body.push(super::op(OpCode::Mul, &[scaled, literal], dtype));
        let access = |buffer, strides: [usize; 3]| Access {
            buffer,
            dtype,
            offset: 0,
            strides: strides.map(|s| s as isize).into_iter().collect(),
        };
        let kernel = Kernel {
            name: "product".into(),
            extents: SmallVec::from_slice(&[rows, columns, k]),
            parallel: 2,
            accesses: vec![],
            core: Core::Gemm {
                lhs: access(x, [k, 0, 1]),
                rhs: access(y, [0, 1, columns]),
                dtype,
                rows: 1,
                columns: 1,
            },
            body,
            stores: vec![Store { access: dense(out, dtype, &[rows, columns]), value }],
        };
        let got = m.run_everywhere(&kernel);
        for i in 0..rows {
            for j in 0..columns {
                let terms =
                    (0..k).map(|k_| a[i * k + k_].complex() * b[k_ * columns + j].complex());
                let sum: Complex<f64> = terms.sum();
                close(got.element(out, i * columns + j), sum * -5.0, dtype);
            }
        }
    }
}

#[test]
fn the_definition_of_an_op_gives_its_cost() {
    use OpCode::*;
    let costs = |dtype, codes: &[OpCode]| -> Vec<usize> {
        codes.iter().map(|&code| crate::ops::cost_ps(code, dtype)).collect()
    };
    let functions = [
        Sign, Sqrt, Rsqrt, Exp, Expm1, Exp2, Log, Log1p, Log2, Log10, Sin, Cos, Tan, Asin, Acos,
        Atan, Sinh, Cosh, Tanh, Asinh, Acosh, Atanh,
    ];
    for (dtype, arithmetic, abs) in [(DType::C64, 160, 500), (DType::C128, 320, 4000)] {
        let few = [Neg, Conj, Real, Imag, Add, Sub, Mul, Eq, Ne, Where];
        assert_eq!(costs(dtype, &few), [arithmetic; 10]);
        assert_eq!(costs(dtype, &[Abs, Div, Pow]), [abs, 4000, 60_000]);
        assert_eq!(costs(dtype, &functions), [30_000; 22]);
    }
}
