//! Nodes for the tests of this crate.

use crate::eval::{executor, upload, value};
use crate::node::Node;
use crate::recorder::{record, record_constant, record_value};
use girih_ir::{DType, Literal, OpCode, Shape, TensorSpec};
use std::sync::Arc;

/// A vector of data.
pub fn data(elements: &[f32]) -> Arc<Node> {
    let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let spec = TensorSpec::new([elements.len()], DType::F32);
    record_value(OpCode::Input, &spec, upload(&bytes).unwrap())
}

/// A vector of equal elements.
pub fn constant(element: f64, size: usize) -> Arc<Node> {
    record_constant(Literal::from_f64(DType::F32, element), Shape::from([size]))
}

/// The result of an op without attributes.
pub fn op(code: OpCode, operands: &[&Arc<Node>]) -> Arc<Node> {
    record(code.into(), operands).unwrap()
}

/// The elements of a vector, which is computed if need be.
pub fn elements(node: &Arc<Node>) -> Vec<f32> {
    let value = value(node, "a test").unwrap();
    let bytes = executor().unwrap().download(&value, node.spec().size_bytes()).unwrap();
    let element = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap());
    bytes.into_vec().chunks_exact(4).map(element).collect()
}
