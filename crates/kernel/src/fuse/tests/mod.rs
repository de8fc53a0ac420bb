//! Tests of lowering: what becomes one kernel, what is refused and why, and that no fusion changes
//! a result.

mod eval;
mod random;

use super::*;
use girih_ir::{DType, GraphBuilder, TensorSpec};

#[test]
fn relu_of_a_sum_is_one_kernel() {
    let mut b = GraphBuilder::default();
    let spec = TensorSpec::new([2, 3], DType::F32);
    let (x, y) = (b.input(spec.clone()), b.input(spec));
    let s = b.add(x, y).unwrap();
    let z = b.scalar_like(s, 0.0);
    let r = b.maximum(s, z).unwrap();
    let p = lower(&b.finish([r]), FusionOptions::ALL).unwrap();
    println!("{p}");
    assert_eq!(p.kernels.len(), 1);
    assert_eq!(p.kernels[0].name, "fused_add_relu");
}
