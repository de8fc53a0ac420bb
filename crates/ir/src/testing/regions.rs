//! Regions of branches and loops for tests.

use crate::ops::control::Control;
use crate::{DType, Graph, GraphBuilder, NodeId, Result, TensorSpec};
use std::sync::Arc;

/// The region with operands of these specs whose results are those of `record`.
///
/// Panics: if `record` fails.
pub fn region(
    specs: &[TensorSpec],
    record: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> Result<Vec<NodeId>>,
) -> Graph {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = specs.iter().map(|s| b.input(s.clone())).collect();
    let outputs = record(&mut b, &inputs).expect("a test's region is well-formed");
    b.finish(outputs)
}

/// A scan over `f64[2]` with a carry `c`, a slice `x` and a constant `k`: `(c * k, y = c + x)`.
pub fn scanned(length: usize, reverse: bool) -> Arc<Control> {
    let specs = [0; 3].map(|_| TensorSpec::new([2], DType::F64));
    let body = region(&specs, |b, x| Ok(vec![b.mul(x[0], x[2])?, b.add(x[0], x[1])?]));
    let control =
        Control { carries: 1, slices: 1, length: length.into(), reverse, ..Control::default() };
    Arc::new(control.with_regions(vec![body]))
}
