//! Programs for tests over all ops: a scalar function of each sample's result, and its gradient by
//! central differences.

use girih_ir::ops::control::CallRules;
use girih_ir::ops::{Derivative, Sample};
use girih_ir::{Array, AxisSet, DType, Element, Graph, GraphBuilder, Literal, NodeId, OpCode};
use girih_reference::evaluate;
use num_complex::Complex64;

/// Samples of all ops that have a reverse-mode derivative.
pub fn samples() -> impl Iterator<Item = Sample> {
    OpCode::ALL.iter().filter(|c| has_reverse(**c)).flat_map(|c| c.samples())
}

/// True for ops that reverse mode differentiates; unbounded loops have forward mode only.
pub fn has_reverse(code: OpCode) -> bool {
    let none = matches!(code.def().derivative, Derivative::Zero(_) | Derivative::Refused(_));
    !none && code != OpCode::WhileLoop
}

/// True for samples that forward mode differentiates, which excludes calls with only a VJP rule.
pub fn has_forward(sample: &Sample) -> bool {
    let rules = sample.op.as_control().map(|(_, control)| control.call_rules());
    !matches!(rules, Some(CallRules::Vjp { .. })) || sample.op.code != OpCode::Call
}

/// A graph whose output is a scalar with a different weight for each element of the sample's
/// result, so that no two gradients cancel.
pub fn program(sample: &Sample) -> (Graph, Vec<NodeId>) {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = sample.inputs.iter().map(|a| b.input(a.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).unwrap();
    let y = in_reals(&mut b, y);
    let y = b.cast(y, DType::F64).unwrap();
    let count = b.spec(y).numel();
    let rank = b.shape(y).rank();
    let index = b.iota([count], DType::F64, 0);
    let index = b.reshape(index, b.shape(y).clone()).unwrap();
    let step = b.scalar(DType::F64, 0.37);
    let weight = b.mul(index, step).unwrap();
    let weight = b.cos(weight).unwrap();
    let product = b.mul(y, weight).unwrap();
    let sum = b.sum(product, AxisSet::all(rank), false).unwrap();
    let wrt = inputs.into_iter().filter(|&i| b.dtype(i).is_inexact()).collect();
    (b.finish([sum]), wrt)
}

/// Real numbers that depend on both parts of complex numbers.
pub fn in_reals(b: &mut GraphBuilder, y: NodeId) -> NodeId {
    if !b.dtype(y).is_complex() {
        return y;
    }
    let (re, im) = (b.real(y).unwrap(), b.imag(y).unwrap());
    b.sub(re, im).unwrap()
}

#[allow(dead_code, reason = "not every test file compares with differences")]
/// The gradient of a scalar program by central differences.
pub fn numeric(graph: &Graph, arguments: &[Array], which: usize) -> Vec<Complex64> {
    let complex = arguments[which].spec().dtype.is_complex();
    let at = |i: usize, delta: Complex64| {
        let mut moved = arguments.to_vec();
        let x = moved[which].get(i).complex() + delta;
        match complex {
            true => moved[which].set(i, Element::from_complex(DType::C128, x)),
            false => moved[which].set(i, Literal::from_f64(DType::F64, x.re)),
        }
        evaluate(graph, &moved).unwrap()[0].to_f64()[0]
    };
    let h = 1e-5;
    let along = |i: usize, way: Complex64| (at(i, way * h) - at(i, -way * h)) / (2.0 * h);
    let one = |i: usize| {
        let imag = if complex { along(i, Complex64::I) } else { 0.0 };
        Complex64::new(along(i, Complex64::ONE), -imag)
    };
    (0..arguments[which].spec().numel()).map(one).collect()
}
