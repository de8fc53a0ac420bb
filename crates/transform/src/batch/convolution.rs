//! Batching rules of convolutions. Batched images become more images, batched kernels become more
//! output channels, and if both are batched, they become more groups. The numbers of channels and
//! groups are constants of a program, so for a symbolic batch size batched kernels are multiplied
//! with windows instead.

use super::{Batch, Value, aligned, stretched};
use crate::Result;
use girih_ir::ops::Attrs;
use girih_ir::ops::conv::Conv;
use girih_ir::{Node, NodeId, Op, OpCode, Shape};
use std::sync::Arc;

impl Batch<'_> {
    pub(super) fn convolution(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let (x, w) = (operands[0], operands[1]);
        if operands[1..].iter().all(|v| !v.batched) {
            return self.of_images(node, operands);
        }
        if self.axis.size.known().is_none() {
            return self.decomposed(node, operands);
        }
        let Attrs::Conv(conv) = &node.op.attrs else { unreachable!("the shape rule checks it") };
        let y = match (w.batched, x.batched || node.op.code == OpCode::ConvTranspose) {
            (false, _) => self.of_one_kernel(node, x, w)?,
            (true, false) => self.of_kernels(node, conv, x, w)?,
            (true, true) => self.in_groups(node, conv, x, w)?,
        };
        match operands.get(2) {
            Some(&bias) => self.with_bias(node, y, bias),
            None => Ok(y),
        }
    }

    /// The convolution without its bias.
    fn of_one_kernel(&mut self, node: &Node, x: Value, w: Value) -> Result<NodeId> {
        if x.batched {
            return self.of_images(node, &[x, w]);
        }
        let y = self.b.emit(node.op.clone(), &[x.id, w.id])?;
        stretched(self.b, Value { id: y, batched: false }, self.axis.size)
    }

    fn of_images(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let (x, size) = (operands[0].id, self.axis.size);
        let shape = self.b.shape(x).clone();
        let joined = std::iter::once(shape.dim(0) * shape.dim(1)).chain(shape.dims().skip(2));
        let x = self.b.reshape(x, joined.collect::<Shape>())?;
        let inputs: Vec<NodeId> =
            std::iter::once(x).chain(operands[1..].iter().map(|v| v.id)).collect();
        let y = self.b.emit(node.op.clone(), &inputs)?;
        let apart = [size, shape.dim(1)].into_iter().chain(node.spec.shape.dims().skip(1));
        Ok(self.b.reshape(y, apart.collect::<Shape>())?)
    }

    /// Concatenates the output channels of the kernels within each group.
    fn of_kernels(&mut self, node: &Node, conv: &Conv, x: Value, w: Value) -> Result<NodeId> {
        let (size, groups) = (self.axis.size, conv.groups);
        let ws = self.b.shape(w.id).clone();
        let out = ws.dim(1).floor_div(groups);
        let axes = [size, groups.into(), out].into_iter().chain(ws.dims().skip(2));
        let w = self.b.reshape(w.id, axes.collect::<Shape>())?;
        let order: Vec<usize> = [1, 0, 2].into_iter().chain(3..ws.rank() + 1).collect();
        let w = self.b.permute(w, &order)?;
        let axes = std::iter::once(size * ws.dim(1)).chain(ws.dims().skip(2));
        let w = self.b.reshape(w, axes.collect::<Shape>())?;
        let y = self.b.emit(node.op.clone(), &[x.id, w])?;
        let ys = self.b.shape(y).clone();
        let axes = [ys.dim(0), groups.into(), size, out].into_iter().chain(ys.dims().skip(2));
        let y = self.b.reshape(y, axes.collect::<Shape>())?;
        let order: Vec<usize> = [2, 0, 1, 3].into_iter().chain(4..ys.rank() + 2).collect();
        let y = self.b.permute(y, &order)?;
        let axes = std::iter::once(size).chain(node.spec.shape.dims());
        Ok(self.b.reshape(y, axes.collect::<Shape>())?)
    }

    /// Turns each member's images and kernel into groups of their own.
    fn in_groups(&mut self, node: &Node, conv: &Conv, x: Value, w: Value) -> Result<NodeId> {
        let size = self.axis.size;
        let x = stretched(self.b, x, size)?;
        let xs = self.b.shape(x).clone();
        let order: Vec<usize> = [1, 0].into_iter().chain(2..xs.rank()).collect();
        let x = self.b.permute(x, &order)?;
        let axes = [xs.dim(1), size * xs.dim(2)].into_iter().chain(xs.dims().skip(3));
        let x = self.b.reshape(x, axes.collect::<Shape>())?;
        let ws = self.b.shape(w.id).clone();
        let axes = std::iter::once(size * ws.dim(1)).chain(ws.dims().skip(2));
        let w = self.b.reshape(w.id, axes.collect::<Shape>())?;
        let groups = conv.groups * size.get();
        let conv = Attrs::Conv(Arc::new(Conv { dims: conv.dims.clone(), groups }));
        let y = self.b.emit(Op::new(node.op.code, conv), &[x, w])?;
        let own = &node.spec.shape;
        let axes = [own.dim(0), size].into_iter().chain(own.dims().skip(1));
        let y = self.b.reshape(y, axes.collect::<Shape>())?;
        Ok(self.b.permute(y, &order_of(own.rank() + 1))?)
    }

    fn with_bias(&mut self, node: &Node, y: NodeId, bias: Value) -> Result<NodeId> {
        let spatial = node.spec.shape.rank() - 2;
        let shape = self.b.shape(bias.id).clone();
        let ones = std::iter::repeat_n(1usize.into(), spatial);
        let column = self.b.reshape(bias.id, shape.dims().chain(ones).collect::<Shape>())?;
        let column = match bias.batched {
            true => aligned(self.b, column, spatial + 2)?,
            false => column,
        };
        Ok(self.b.add(y, column)?)
    }
}

/// The permutation that exchanges the first two axes.
fn order_of(rank: usize) -> Vec<usize> {
    [1, 0].into_iter().chain(2..rank).collect()
}
