//! Compares the linearity of every op's definition with its values, and tests the check of
//! programs.

use crate::support::{program, samples};
use girih_ir::{Array, DType, GraphBuilder, NodeId, OpCode, TensorSpec};
use girih_reference::evaluate;
use girih_transform::check_linear;
use std::collections::BTreeMap;

/// Distinct nonzero numbers of either sign.
fn numbers(spec: &TensorSpec, seed: usize) -> Array {
    let number = |i: usize| ((i * 37 + seed * 29 + 11) % 97) as f64 / 13.0 - 3.53;
    let values: Vec<f64> = (0..spec.numel()).map(number).collect();
    Array::from_f64(spec.shape.clone(), spec.dtype, &values)
}

fn sum(a: &Array, b: &Array) -> Array {
    let values: Vec<f64> = a.to_f64().iter().zip(b.to_f64()).map(|(a, b)| a + b).collect();
    Array::from_f64(a.spec().shape.clone(), a.spec().dtype, &values)
}

/// True if `f(a + b) + f(0) = f(a) + f(b)` for the marked arguments and several `a` and `b`.
fn adds_up(f: impl Fn(&[Array]) -> Vec<f64>, arguments: &[Array], marked: &[bool]) -> bool {
    (0..3).all(|seed| {
        let with = |change: &dyn Fn(usize, &Array) -> Array| {
            let arguments = arguments.iter().enumerate();
            let arguments: Vec<Array> =
                arguments.map(|(i, x)| if marked[i] { change(i, x) } else { x.clone() }).collect();
            f(&arguments)
        };
        let a = |i: usize, x: &Array| numbers(x.spec(), 2 * i + 10 * seed);
        let b = |i: usize, x: &Array| numbers(x.spec(), 2 * i + 1 + 10 * seed);
        let zero = |x: &Array| {
            Array::from_f64(x.spec().shape.clone(), x.spec().dtype, &vec![0.0; x.spec().numel()])
        };
        let (fa, fb) = (with(&|i, x| a(i, x)), with(&|i, x| b(i, x)));
        let both = with(&|i, x| sum(&a(i, x), &b(i, x)));
        let none = with(&|_, x| zero(x));
        (0..fa.len()).all(|i| {
            let (left, right) = (both[i] + none[i], fa[i] + fb[i]);
            (left - right).abs() <= 1e-9 * (1.0 + fa[i].abs() + fb[i].abs() + both[i].abs())
        })
    })
}

#[test]
fn each_op_is_linear_exactly_in_its_declared_operands() {
    let (mut linear, mut unsaid) = (0, BTreeMap::new());
    for sample in samples() {
        let (graph, _) = program(&sample);
        let arguments: Vec<NodeId> = graph.arguments().collect();
        let real = |id: &NodeId| graph.spec(*id).dtype.is_float();
        // A matrix that is not positive definite has no Cholesky factor.
        let none = || vec![f64::NAN];
        let f = |x: &[Array]| evaluate(&graph, x).map_or_else(|_| none(), |y| y[0].to_f64());
        let floats: Vec<bool> = arguments.iter().map(real).collect();
        let alone = (0..floats.len()).filter(|&i| floats[i]);
        let alone = alone.map(|at| (0..floats.len()).map(|i| i == at).collect::<Vec<bool>>());
        for marked in alone.chain([floats.clone()]) {
            if !marked.contains(&true) || graph.spec(graph.outputs()[0]).numel() == 0 {
                continue;
            }
            let wrt: Vec<NodeId> =
                arguments.iter().zip(&marked).filter(|(_, m)| **m).map(|(id, _)| *id).collect();
            let said = check_linear(&graph, &wrt).is_ok();
            let found = adds_up(f, &sample.inputs, &marked);
            assert!(found || !said, "{:?} in {marked:?}", sample.op);
            linear += usize::from(said);
            // A sample may be additive by chance, such as the maximum of `x` and minus infinity.
            let shown =
                unsaid.entry(format!("{} in {marked:?}", sample.op.name())).or_insert(false);
            *shown |= said || !found;
        }
    }
    assert!(linear > 50, "{linear}");
    // The linearity of custom ops is unknown. The cofactors of the samples' 2x2 matrices are linear
    // in the matrix; those of larger matrices are not.
    let chance =
        |name: &String| name.starts_with("custom") || name.starts_with("cofactor_slopes in [true");
    let missing: Vec<_> =
        unsaid.into_iter().filter(|(name, shown)| !shown && !chance(name)).collect();
    assert!(missing.is_empty(), "linear, and the definition does not say so: {missing:?}");
}

#[test]
fn programs_are_linear_as_their_ops_are() {
    let spec = || TensorSpec::new([3], DType::F32);
    let check = |build: &dyn Fn(&mut GraphBuilder, NodeId, NodeId) -> NodeId| {
        let mut b = GraphBuilder::default();
        let (x, c) = (b.input(spec()), b.input(spec()));
        let y = build(&mut b, x, c);
        check_linear(&b.finish([y]), &[x]).map_err(|error| error.to_string())
    };
    let op = |b: &mut GraphBuilder, code, inputs: &[NodeId]| b.op(code, inputs).unwrap();
    assert_eq!(check(&|b, x, c| op(b, OpCode::Mul, &[x, c])), Ok(()));
    let product = check(&|b, x, c| {
        let y = op(b, OpCode::Add, &[x, c]);
        op(b, OpCode::Mul, &[y, x])
    });
    assert_eq!(product, Err("mul is not linear in operands 1 and 2 together".into()));
    let sine = check(&|b, x, _| op(b, OpCode::Sin, &[x]));
    assert_eq!(sine, Err("sin is not linear in operand 1".into()));
    let unneeded = check(&|b, x, c| {
        op(b, OpCode::Sin, &[x]);
        op(b, OpCode::Sub, &[c, x])
    });
    assert_eq!(unneeded, Ok(()), "an op whose result nobody needs does not count");
    let constant = check(&|b, x, c| {
        let y = op(b, OpCode::StopGradient, &[x]);
        op(b, OpCode::Mul, &[y, c])
    });
    assert_eq!(constant, Ok(()));
    let compared = check(&|b, x, c| {
        let less = op(b, OpCode::Lt, &[x, c]);
        op(b, OpCode::Where, &[less, x, c])
    });
    assert_eq!(compared, Err("lt is not linear in operand 1".into()));
}
