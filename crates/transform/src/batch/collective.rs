//! Batching rules of collectives. A collective over this batch's axis becomes an op along the batch
//! axis. A collective over another axis is kept for the `vmap` over the axis of that name.

use super::{Batch, Value, stretched};
use crate::Result;
use girih_ir::ops::SliceDim;
use girih_ir::{AxisSet, Node, NodeId, OpCode, Shape};

impl Batch<'_> {
    /// Batches a collective; `None` for all other ops.
    pub(super) fn collective(&mut self, node: &Node, operands: &[Value]) -> Result<Option<Value>> {
        let Some(over) = node.op.named_axis() else { return Ok(None) };
        let [x, index] = *operands else { unreachable!("a collective has two operands") };
        if self.axis.name == Some(over.name.as_str()) {
            return self.along_the_batch(node.op.code, x).map(Some);
        }
        let index = self.one_of(index)?;
        let y = self.b.emit(node.op.clone(), &[x.id, index])?;
        let id = match (node.op.code, x.batched) {
            // The other axis's members come before the batch axis.
            (OpCode::AllGather, true) => self.batch_to_front(y, 1)?,
            _ => y,
        };
        Ok(Some(Value { id, batched: x.batched }))
    }

    /// The result is the same for all members, so it has no batch axis.
    fn along_the_batch(&mut self, code: OpCode, x: Value) -> Result<Value> {
        let all = stretched(self.b, x, self.axis.size)?;
        let id = match code {
            OpCode::AllReduce => self.b.sum(all, AxisSet::one(0), false)?,
            OpCode::AllGather => all,
            code => unreachable!("{} is no collective", code.def().name),
        };
        Ok(Value { id, batched: false })
    }

    /// The index along an axis other than the batch is the same for all members. It may
    /// nevertheless be batched, since a rule may have broadcast all of its operands.
    fn one_of(&mut self, index: Value) -> Result<NodeId> {
        if !index.batched {
            return Ok(index.id);
        }
        let first = SliceDim { start: 0, size: 1, step: 1 };
        let one = self.b.slice(index.id, vec![first])?;
        Ok(self.b.reshape(one, Shape::of_dims([]))?)
    }
}
