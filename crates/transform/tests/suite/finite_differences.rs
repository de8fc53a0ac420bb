//! Compares every derivative of the op registry with central finite differences in f64.
//!
//! The samples are the registry's; the test fails for a differentiable op without samples. The
//! derivative with respect to a complex number is the derivative along its real part minus `i`
//! times the derivative along its imaginary part.

use crate::support::{has_reverse, in_reals, numeric, program, samples};
use girih_ir::{Array, AxisSet, DType, Graph, GraphBuilder, NodeId, OpCode};
use girih_reference::evaluate;
use girih_transform::{Error, gradients};

#[track_caller]
fn compare(what: &str, graph: &Graph, arguments: &[Array], wrt: &[NodeId]) {
    let grads = gradients(graph, graph.outputs()[0], wrt, None).unwrap();
    grads.verify().unwrap();
    let values = evaluate(&grads, arguments).unwrap();
    let positions: Vec<NodeId> = graph.arguments().collect();
    for (gradient, id) in values[graph.outputs().len()..].iter().zip(wrt) {
        let which = positions.iter().position(|p| p == id).unwrap();
        let expected = numeric(graph, arguments, which);
        for (g, e) in gradient.elements().zip(&expected) {
            let close = (g.complex() - e).norm() <= 1e-6 * (1.0 + e.norm());
            assert!(close, "{what}, operand {which}: {gradient:?}, expected {expected:?}");
        }
    }
}

#[test]
fn first_derivatives_of_every_op_agree() {
    for &code in OpCode::ALL {
        let rows = code.samples();
        if !has_reverse(code) {
            continue;
        }
        assert!(!rows.is_empty(), "{} is differentiable and has no sample", code.def().name);
        for sample in rows {
            let (graph, wrt) = program(&sample);
            compare(&format!("{:?}", sample.op), &graph, &sample.inputs, &wrt);
        }
    }
}

#[test]
fn second_derivatives_of_every_op_agree() {
    for sample in samples() {
        let (graph, wrt) = program(&sample);
        let grads = gradients(&graph, graph.outputs()[0], &wrt, None).unwrap();
        // A scalar function of all first derivatives, with weights.
        let mut b = GraphBuilder::from_graph(grads.clone());
        let mut total = b.scalar(DType::F64, 0.0);
        for (i, &g) in grads.outputs()[1..].iter().enumerate() {
            let weight = b.scalar(DType::F64, 1.0 + 0.3 * i as f64);
            let curved = b.sin(g).unwrap();
            let curved = in_reals(&mut b, curved);
            let weighted = b.mul(curved, weight).unwrap();
            let rank = b.shape(weighted).rank();
            let sum = b.sum(weighted, AxisSet::all(rank), false).unwrap();
            total = b.add(total, sum).unwrap();
        }
        let graph = b.finish([total]);
        compare(&format!("second derivative of {:?}", sample.op), &graph, &sample.inputs, &wrt);
    }
}

/// The gradient of the sum of an op's result, at given operands.
fn gradient_at(op: impl Into<girih_ir::Op>, inputs: &[Array]) -> Vec<Vec<f64>> {
    let mut b = GraphBuilder::default();
    let ids: Vec<NodeId> = inputs.iter().map(|a| b.input(a.spec().clone())).collect();
    let y = b.emit(op.into(), &ids).unwrap();
    let rank = b.shape(y).rank();
    let sum = b.sum(y, AxisSet::all(rank), false).unwrap();
    let wrt: Vec<NodeId> = ids.into_iter().filter(|&i| b.dtype(i).is_float()).collect();
    let graph = gradients(&b.finish([sum]), sum, &wrt, None).unwrap();
    evaluate(&graph, inputs).unwrap()[1..].iter().map(Array::to_f64).collect()
}

fn f64s(values: &[f64]) -> Array {
    Array::from_f64([values.len()], DType::F64, values)
}

#[test]
fn gradients_have_the_dtype_of_their_variable() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for mut sample in samples() {
            for x in sample.inputs.iter_mut().filter(|x| x.spec().dtype.is_float()) {
                *x = Array::from_f64(x.spec().shape.clone(), dtype, &x.to_f64());
            }
            if sample.infer().is_err() {
                // There are no complex half floats.
                continue;
            }
            let (graph, wrt) = program(&sample);
            let grads = gradients(&graph, graph.outputs()[0], &wrt, None).unwrap();
            grads.verify().unwrap();
            let values = evaluate(&grads, &sample.inputs).unwrap();
            for (gradient, &id) in values[1..].iter().zip(&wrt) {
                assert_eq!(gradient.spec(), graph.spec(id), "{:?}", sample.op);
                assert!(gradient.to_f64().iter().all(|g| g.is_finite()), "{:?}", sample.op);
            }
        }
    }
}

#[test]
fn conventions_hold_where_no_derivative_exists() {
    assert_eq!(gradient_at(OpCode::Relu, &[f64s(&[0.0, 1.0, -1.0])]), [[0.0, 1.0, 0.0]]);
    assert_eq!(gradient_at(OpCode::Abs, &[f64s(&[0.0, 2.0])]), [[0.0, 1.0]]);
    let tie = gradient_at(OpCode::Maximum, &[f64s(&[1.0, 3.0]), f64s(&[1.0, 2.0])]);
    assert_eq!(tie, [[0.5, 1.0], [0.5, 0.0]]);
    let max = girih_ir::Op::new(OpCode::ReduceMax, girih_ir::Attrs::axes(AxisSet::all(1), false));
    assert_eq!(gradient_at(max, &[f64s(&[2.0, 1.0, 2.0])]), [[0.5, 0.0, 0.5]]);
}

#[test]
fn powers_have_finite_gradients_at_zero() {
    let zero = f64s(&[0.0]);
    assert_eq!(gradient_at(OpCode::Pow, &[zero.clone(), f64s(&[2.0])]), [[0.0], [0.0]]);
    assert_eq!(gradient_at(OpCode::Pow, &[zero.clone(), f64s(&[1.0])]), [[1.0], [0.0]]);
    assert_eq!(gradient_at(OpCode::Pow, &[zero, f64s(&[0.0])])[0], [0.0]);
    // For a negative base, the derivative with respect to the exponent does not exist. It must not
    // be computed for a constant exponent.
    let mut b = GraphBuilder::default();
    let x = b.input(girih_ir::TensorSpec::scalar(DType::F64));
    let two = b.scalar(DType::F64, 2.0);
    let y = b.pow(x, two).unwrap();
    let graph = gradients(&b.finish([y]), y, &[x], None).unwrap();
    assert!(graph.nodes().all(|(_, n)| n.op.code != OpCode::Log), "{graph}");
}

#[test]
fn the_branch_not_taken_gets_exactly_zero() {
    let condition = Array::from_f64([2], DType::Bool, &[1.0, 0.0]);
    let x = f64s(&[4.0, 0.0]);
    let mut b = GraphBuilder::default();
    let (c, a) = (b.input(condition.spec().clone()), b.input(x.spec().clone()));
    let zero = b.scalar(DType::F64, 0.0);
    let y = b.select(c, a, zero).unwrap();
    let grads = {
        let sum = b.sum(y, AxisSet::all(1), false).unwrap();
        gradients(&b.finish([sum]), sum, &[a], None).unwrap()
    };
    assert_eq!(evaluate(&grads, &[condition, x]).unwrap()[1].to_f64(), [1.0, 0.0]);
}

#[test]
fn half_float_losses_do_not_overflow_on_the_way() {
    let x = Array::from_f64([4], DType::F16, &[60000.0, 60000.0, 60000.0, 60000.0]);
    let mut b = GraphBuilder::default();
    let id = b.input(x.spec().clone());
    let mean = b.mean(id, AxisSet::all(1), false).unwrap();
    let graph = gradients(&b.finish([mean]), mean, &[id], None).unwrap();
    let values = evaluate(&graph, &[x]).unwrap();
    assert_eq!(values[0].to_f64(), [60000.0]);
    assert_eq!(values[1].to_f64(), [0.25; 4]);
}

#[test]
fn a_non_scalar_output_is_refused() {
    let (graph, wrt) = program(&samples().next().unwrap());
    let error = gradients(&graph, wrt[0], &wrt, None).unwrap_err();
    assert!(matches!(error, Error::OutputNotScalar { .. }), "{error}");
}
