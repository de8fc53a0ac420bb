//! Compares every op's forward-mode derivative with central finite differences in f64 and with its
//! reverse-mode derivative.

use crate::support::{has_forward, numeric, program, samples};
use girih_ir::ops::host::{CustomOp, HostBatching, HostCall, HostFailure, HostView, HostViewMut};
use girih_ir::ops::{Cotangents, Op, Vjp};
use girih_ir::{Array, DType, Element, Graph, GraphBuilder, Literal, NodeId, OpCode, TensorSpec};
use girih_reference::evaluate;
use girih_transform::{gradients, jvp};
use num_complex::Complex64;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Distinct tangents of a spec's elements.
fn tangent(spec: &TensorSpec, seed: usize) -> Array {
    let values: Vec<f64> =
        (0..spec.numel()).map(|i| 0.4 + ((i * 7 + seed * 3) % 11) as f64 / 9.0).collect();
    let mut array = Array::from_f64(spec.shape.clone(), spec.dtype, &values);
    if spec.dtype.is_complex() {
        for (i, value) in values.iter().enumerate() {
            let z = Complex64::new(*value, 0.3 - value);
            array.set(i, Element::from_complex(spec.dtype, z));
        }
    }
    array
}

/// The tangent of a scalar program along tangents of `wrt`, and these tangents.
fn forward(graph: &Graph, wrt: &[NodeId], arguments: &[Array]) -> (f64, Vec<Array>) {
    let along = jvp(graph, wrt).unwrap();
    along.graph.verify().unwrap();
    let tangents: Vec<Array> =
        wrt.iter().enumerate().map(|(i, &id)| tangent(graph.spec(id), i)).collect();
    let all = [arguments, &tangents].concat();
    let values = evaluate(&along.graph, &all).unwrap();
    let plain = evaluate(graph, arguments).unwrap();
    assert_eq!(format!("{:?}", values[0]), format!("{:?}", plain[0]), "the value");
    (values[1].to_f64()[0], tangents)
}

/// The derivative along tangents from a gradient: the real part of the sum of products.
fn paired(gradient: impl IntoIterator<Item = Complex64>, tangent: &Array) -> f64 {
    gradient.into_iter().zip(tangent.elements()).map(|(g, t)| (g * t.complex()).re).sum()
}

#[test]
fn derivatives_along_tangents_are_those_of_finite_differences() {
    for sample in samples().chain(OpCode::WhileLoop.samples()).filter(has_forward) {
        let (graph, wrt) = program(&sample);
        let (found, tangents) = forward(&graph, &wrt, &sample.inputs);
        let positions: Vec<NodeId> = graph.arguments().collect();
        let which = |id| positions.iter().position(|p| p == id).unwrap();
        let sums = wrt.iter().zip(&tangents);
        let expected: f64 =
            sums.map(|(id, t)| paired(numeric(&graph, &sample.inputs, which(id)), t)).sum();
        let close = (found - expected).abs() <= 2e-6 * (1.0 + expected.abs());
        assert!(close, "{:?}: {found}, expected {expected}", sample.op);
    }
}

#[test]
fn forward_and_reverse_mode_are_each_others_transposes() {
    for sample in samples().filter(has_forward) {
        let (graph, wrt) = program(&sample);
        let (found, tangents) = forward(&graph, &wrt, &sample.inputs);
        let reverse = gradients(&graph, graph.outputs()[0], &wrt, None).unwrap();
        let values = evaluate(&reverse, &sample.inputs).unwrap();
        let pairs = values[1..].iter().zip(&tangents);
        let expected: f64 = pairs.map(|(g, t)| paired(g.elements().map(|g| g.complex()), t)).sum();
        let close = (found - expected).abs() <= 1e-9 * (1.0 + expected.abs());
        assert!(close, "{:?}: {found}, reverse mode gives {expected}", sample.op);
    }
}

#[test]
fn second_derivatives_are_the_same_in_every_order_of_modes() {
    for sample in samples().filter(has_forward) {
        let (graph, wrt) = program(&sample);
        // Forward over forward, along the same tangents.
        let once = jvp(&graph, &wrt).unwrap();
        let mut inner = once.graph.clone();
        inner.set_outputs([once.graph.outputs()[1]]);
        let again: Vec<NodeId> = wrt.iter().map(|id| once.map[id.index()]).collect();
        let (twice, tangents) = {
            let along = jvp(&inner, &again).unwrap();
            let tangents: Vec<Array> =
                wrt.iter().enumerate().map(|(i, &id)| tangent(graph.spec(id), i)).collect();
            let all = [&sample.inputs[..], &tangents, &tangents].concat();
            (evaluate(&along.graph, &all).unwrap()[1].to_f64()[0], tangents)
        };
        // Forward over reverse.
        let reverse = gradients(&graph, graph.outputs()[0], &wrt, None).unwrap();
        let along = jvp(&reverse, &wrt).unwrap();
        let all = [&sample.inputs[..], &tangents].concat();
        let values = evaluate(&along.graph, &all).unwrap();
        let rows = values[reverse.outputs().len() + 1..].iter().zip(&tangents);
        let expected: f64 = rows.map(|(h, t)| paired(h.elements().map(|h| h.complex()), t)).sum();
        let close = (twice - expected).abs() <= 1e-7 * (1.0 + expected.abs());
        assert!(
            close || twice.is_nan() == expected.is_nan() && twice.is_nan(),
            "{:?}: {twice}, forward over reverse gives {expected}",
            sample.op
        );
    }
}

#[test]
fn a_loop_that_is_not_bounded_has_forward_mode_and_runs_once() {
    let sample = &OpCode::WhileLoop.samples()[0];
    let (graph, wrt) = program(sample);
    let along = jvp(&graph, &wrt).unwrap().graph;
    let loops = along.nodes().filter(|(_, n)| n.op.code == OpCode::WhileLoop);
    let controls: Vec<_> = loops.map(|(_, n)| n.op.as_control().unwrap().1.clone()).collect();
    assert!(controls.windows(2).all(|pair| pair[0] == pair[1]), "{along}");
    assert!(gradients(&graph, graph.outputs()[0], &wrt, None).is_err());
}

#[test]
fn an_output_that_does_not_vary_has_a_tangent_of_zeros() {
    let mut b = GraphBuilder::default();
    let (x, y) =
        (b.input(TensorSpec::new([2], DType::F32)), b.input(TensorSpec::scalar(DType::I64)));
    let two = b.constant(Literal::from_f64(DType::F32, 2.0), [2]);
    let z = b.mul(x, two).unwrap();
    let graph = b.finish([y, two, z, x]);
    let along = jvp(&graph, &[x]).unwrap();
    let f32s = |v: &[f64]| Array::from_f64([v.len()], DType::F32, v);
    let arguments = [f32s(&[1.0, 3.0]), Array::from_f64([], DType::I64, &[7.0]), f32s(&[5.0, 6.0])];
    let values = evaluate(&along.graph, &arguments).unwrap();
    let tangents: Vec<Vec<f64>> = values[4..].iter().map(Array::to_f64).collect();
    assert_eq!(tangents, [vec![0.0], vec![0.0, 0.0], vec![10.0, 12.0], vec![5.0, 6.0]]);
}

/// A sine that counts the calls of its VJP rule.
#[derive(Default)]
struct Counted(AtomicUsize);

impl CustomOp for Counted {
    fn name(&self) -> &str {
        "counted_sine"
    }

    fn infer(&self, operands: &[&TensorSpec]) -> girih_ir::Result<Vec<TensorSpec>> {
        Ok(vec![operands[0].clone()])
    }

    fn run(&self, _: &[HostView<'_>], _: &mut [HostViewMut<'_>]) -> Result<(), HostFailure> {
        Err(HostFailure::new("it is not run"))
    }

    fn vjp(&self, call: &mut Vjp<'_>) -> Option<girih_ir::Result<Cotangents>> {
        self.0.fetch_add(1, Relaxed);
        let slope = call.b.cos(call.inputs[0]);
        let found = slope.and_then(|slope| call.b.mul(call.ct, slope));
        Some(found.map(|ct| Cotangents::from_elem(Some(ct), 1)))
    }
}

#[test]
fn forward_rules_are_called_only_for_operands_with_a_tangent() {
    let op = Arc::new(Counted::default());
    let mut b = GraphBuilder::default();
    let spec = TensorSpec::new([3], DType::F64);
    let (x, y) = (b.input(spec.clone()), b.input(spec.clone()));
    let call = HostCall::new(op.clone(), vec![spec], HostBatching::Sequential, false);
    let counted = b.emit(Op::host(Arc::new(call), 0), &[y]).unwrap();
    let product = b.mul(x, counted).unwrap();
    let graph = b.finish([product]);
    for (wrt, asked) in [(vec![x], 0), (vec![], 0), (vec![y], 1), (vec![x, y], 1)] {
        op.0.store(0, Relaxed);
        jvp(&graph, &wrt).unwrap();
        assert_eq!(op.0.load(Relaxed), asked, "along {wrt:?}");
    }
}
