//! Batching rules of gathers and scatters by index. If the indices are batched, the batch axis and
//! the indexed axis are merged, so that index `i` of member `m` becomes `i + m * size`.

use super::{Batch, Value, stretched};
use crate::Result;
use girih_ir::ops::{Attrs, ScatterMode};
use girih_ir::{DType, Dim, Literal, Node, NodeId, Op, OpCode, Shape, TensorSpec};

impl Batch<'_> {
    pub(super) fn indexing(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        match node.op.code {
            OpCode::Take => self.take(node, operands[0], operands[1]),
            OpCode::ScatterAdd => self.scatter_add(node, operands[0], operands[1]),
            OpCode::Scatter => self.scatter(node, operands),
            code => unreachable!("{} says it has a rule for batches", code.def().name),
        }
    }

    fn take(&mut self, node: &Node, x: Value, indices: Value) -> Result<NodeId> {
        let Attrs::Axis(axis) = node.op.attrs else { unreachable!("take carries an axis") };
        let axis = axis as usize;
        if !indices.batched {
            return self.emit(node, &[x.id, indices.id]);
        }
        let k = self.b.shape(indices.id).rank() - 1;
        if !x.batched {
            let y = self.b.emit(node.op.clone(), &[x.id, indices.id])?;
            return self.batch_to_front(y, axis);
        }
        let size = self.b.shape(x.id).dim(axis + 1);
        let flat = self.joined(x.id, axis)?;
        let indices = self.offset(indices.id, size)?;
        let y = self.b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[flat, indices])?;
        // After the batch axis come the indices' axes, then the axes before the indexed one, then
        // the remaining axes. Exchange the first two of these groups.
        let rank = self.b.shape(y).rank();
        let order = (0..1).chain(1 + k..1 + k + axis).chain(1..1 + k).chain(1 + k + axis..rank);
        Ok(self.b.permute(y, &order.collect::<Vec<_>>())?)
    }

    /// Moves the axis `at` to the front.
    pub(super) fn batch_to_front(&mut self, y: NodeId, at: usize) -> Result<NodeId> {
        let rank = self.b.shape(y).rank();
        let order: Vec<usize> =
            std::iter::once(at).chain((0..rank).filter(|&axis| axis != at)).collect();
        Ok(self.b.permute(y, &order)?)
    }

    /// Merges batch and indexed axis: `[batch, before…, size, behind…]` to
    /// `[batch * size, before…, behind…]`.
    fn joined(&mut self, x: NodeId, axis: usize) -> Result<NodeId> {
        let shape = self.b.shape(x).clone();
        let order: Vec<usize> =
            [0, axis + 1].into_iter().chain(1..axis + 1).chain(axis + 2..shape.rank()).collect();
        let x = self.b.permute(x, &order)?;
        let dims = std::iter::once(shape.dim(0) * shape.dim(axis + 1));
        let rest = order[2..].iter().map(|&axis| shape.dim(axis));
        Ok(self.b.reshape(x, dims.chain(rest).collect::<Shape>())?)
    }

    /// The inverse of [`Batch::joined`], with result shape `shape`.
    fn parted(&mut self, x: NodeId, axis: usize, shape: &Shape) -> Result<NodeId> {
        let before = shape.dims().skip(1).take(axis);
        let behind = shape.dims().skip(axis + 2);
        let dims = [shape.dim(0), shape.dim(axis + 1)].into_iter().chain(before).chain(behind);
        let x = self.b.reshape(x, dims.collect::<Shape>())?;
        let order: Vec<usize> = std::iter::once(0)
            .chain(2..axis + 2)
            .chain(std::iter::once(1))
            .chain(axis + 2..shape.rank())
            .collect();
        Ok(self.b.permute(x, &order)?)
    }

    /// Converts indices into an axis of size `size` to indices into the axis merged with the batch.
    fn offset(&mut self, indices: NodeId, size: Dim) -> Result<NodeId> {
        let rank = self.b.shape(indices).rank();
        // Also check the bounds, since an index out of bounds would address another member.
        let wrap = Op::new(OpCode::WrapIndex, Attrs::Size(size.get()));
        let indices = self.b.emit(wrap, &[indices])?;
        let ones = std::iter::repeat_n(Dim::from(1), rank - 1);
        let shape: Shape = std::iter::once(self.axis.size).chain(ones).collect();
        let member = self.b.iota(shape, DType::I64, 0);
        let size = self.b.scalar(DType::I64, size.get() as f64);
        let start = self.b.mul(member, size)?;
        Ok(self.b.add(indices, start)?)
    }

    fn scatter_add(&mut self, node: &Node, indices: Value, updates: Value) -> Result<NodeId> {
        let Attrs::Scatter { axis, .. } = node.op.attrs else {
            unreachable!("scatter_add carries an axis")
        };
        let updates = stretched(self.b, updates, self.axis.size)?;
        if !indices.batched {
            return self.emit(node, &[indices.id, updates]);
        }
        let spec = TensorSpec {
            shape: super::with_batch(self.axis.size, &node.spec.shape),
            dtype: node.spec.dtype,
        };
        let zeros = self.b.constant(Literal::from_i64(spec.dtype, 0), spec.shape);
        self.into(axis as usize, ScatterMode::Add, zeros, indices.id, updates)
    }

    fn scatter(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let Attrs::ScatterInto { axis, mode } = node.op.attrs else {
            unreachable!("scatter carries an axis")
        };
        let x = stretched(self.b, operands[0], self.axis.size)?;
        let updates = stretched(self.b, operands[2], self.axis.size)?;
        match operands[1].batched {
            false => self.emit(node, &[x, operands[1].id, updates]),
            true => self.into(axis as usize, mode, x, operands[1].id, updates),
        }
    }

    /// A scatter with batched indices.
    fn into(
        &mut self,
        axis: usize,
        mode: ScatterMode,
        x: NodeId,
        indices: NodeId,
        updates: NodeId,
    ) -> Result<NodeId> {
        let shape = self.b.shape(x).clone();
        let k = self.b.shape(indices).rank() - 1;
        let flat = self.joined(x, axis)?;
        let indices = self.offset(indices, shape.dim(axis + 1))?;
        let rank = self.b.shape(updates).rank();
        let order = (0..1)
            .chain(1 + axis..1 + axis + k)
            .chain(1..1 + axis)
            .chain(1 + axis + k..rank)
            .collect::<Vec<_>>();
        let updates = self.b.permute(updates, &order)?;
        let attrs = Attrs::ScatterInto { axis: 0, mode };
        let y = self.b.emit(Op::new(OpCode::Scatter, attrs), &[flat, indices, updates])?;
        self.parted(y, axis, &shape)
    }
}
