//! Ops that read an operand at indices along a cut axis: each processor reads what it has, and the
//! results are added.

use super::Partitioner;
use super::decide::Decision;
use super::each::Each;
use super::local::LocalOp;
use crate::ownership::parts;
use crate::propagate::Step;
use girih_ir::ops::masked::{MaskRule, masked_axis};
use girih_ir::sharding::P;
use girih_ir::{DType, GraphBuilder, NodeId, Op, Result, TensorSpec};
use std::sync::Arc;

impl Partitioner<'_> {
    /// How an op is computed if the axis along which it reads its first operand is cut, so that the
    /// result is partial; `None` if gathering the operand moves fewer bytes.
    pub(super) fn masked(
        &mut self,
        op: &Op,
        rule: MaskRule,
        (operands, result): (&[&TensorSpec], &TensorSpec),
        Step { operands: wanted, result: found, reduced }: Step,
    ) -> Result<Option<Decision>> {
        if reduced.is_empty() || result.dtype == DType::Bool {
            return Ok(None);
        }
        let axis = masked_axis(op);
        let bytes = |spec: &P, tensor: &TensorSpec, without: Option<usize>| {
            let dims = (0..spec.dims.len()).filter(|dim| Some(*dim) != without);
            let cuts: usize = dims.map(|dim| parts(self.mesh, spec.axes_of(dim))).product();
            tensor.size_bytes() / cuts
        };
        // An all-reduce of the result, or an all-gather of the operand.
        if bytes(&found, result, None).saturating_mul(2)
            > bytes(&wanted[0], operands[0], Some(axis))
        {
            return Ok(None);
        }
        let size = operands[0].shape.hints()[axis];
        let mut forms = Vec::with_capacity(self.mesh.len());
        let rects = wanted.iter().zip(operands);
        let rects: Vec<_> =
            rects.map(|(spec, tensor)| self.rectangles(spec, tensor)).collect::<Result<_>>()?;
        let results = self.rectangles(&found, result)?;
        for (at, result) in results.iter().enumerate() {
            let extents: Vec<_> = rects.iter().map(|rects| rects[at].extent.clone()).collect();
            forms.push((extents, rects[0][at].start[axis], result.extent.clone()));
        }
        let ops = Each::collect(forms.into_iter()).map(|(extents, start, extent)| {
            let mut b = GraphBuilder::default();
            let input = |(extent, of): (&crate::Extent, &&TensorSpec)| {
                b.input(TensorSpec::new(&extent[..], of.dtype))
            };
            let inputs: Vec<NodeId> = extents.iter().zip(operands).map(input).collect();
            let part = *start..start + extents[0][axis];
            let own = TensorSpec::new(&extent[..], result.dtype);
            let output = rule(&mut b, op, &inputs, part, size, &own).ok()?;
            let fits = *b.spec(output) == own;
            fits.then(|| LocalOp::Program(Arc::new(b.finish([output]))))
        });
        Ok(ops.map(|ops| Decision::reducing(wanted, found, ops)))
    }
}
