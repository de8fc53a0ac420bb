//! Builds closed graphs op by op, with each op's checks. Derivative rules, decompositions and
//! passes record ops through it.

use crate::ops::{Attrs, AxisSet, Class, OfSize, PadDim, SliceDim};
use crate::{
    DType, DecompositionTarget, Dim, Error, Graph, Literal, Node, NodeId, Op, OpCode, Result,
    Shape, TensorSpec,
};
use std::sync::Arc;

/// A graph under construction.
#[derive(Clone, Debug, Default)]
pub struct GraphBuilder {
    graph: Graph,
    /// The processor for which decompositions are recorded.
    pub(crate) target: DecompositionTarget,
}

macro_rules! methods {
    (
        unary { $($how:ident $unary:ident $ucode:ident $udef:path, $up:ident $udoc:literal;)* }
        binary { $($how2:ident $binary:ident $bcode:ident $bdef:path, $bp:ident $bdoc:literal;)* }
    ) => {
        /// The elementwise ops of [`elementwise_table`](crate::elementwise_table). Operands share
        /// one dtype.
        impl GraphBuilder {
            $(#[doc = $udoc]
            pub fn $unary(&mut self, x: NodeId) -> Result<NodeId> {
                self.op(OpCode::$ucode, &[x])
            })*
            $(#[doc = $bdoc]
            pub fn $binary(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
                self.op(OpCode::$bcode, &[a, b])
            })*
        }
    };
}

crate::elementwise_table! { methods }

impl GraphBuilder {
    /// Continues an existing graph.
    pub fn from_graph(graph: Graph) -> Self {
        GraphBuilder { graph, ..GraphBuilder::default() }
    }

    /// The graph so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub(crate) fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// Spec of a node.
    pub fn spec(&self, id: NodeId) -> &TensorSpec {
        self.graph.spec(id)
    }

    /// Shape of a node.
    pub fn shape(&self, id: NodeId) -> &Shape {
        &self.graph.spec(id).shape
    }

    /// Dtype of a node.
    pub fn dtype(&self, id: NodeId) -> DType {
        self.graph.spec(id).dtype
    }

    /// The finished graph with its outputs.
    pub fn finish(mut self, outputs: impl IntoIterator<Item = NodeId>) -> Graph {
        self.graph.set_outputs(outputs);
        self.graph
    }

    /// Records any op.
    pub fn emit(&mut self, op: Op, inputs: &[NodeId]) -> Result<NodeId> {
        self.graph.push(op, inputs)
    }

    /// Records an op without attributes.
    pub fn op(&mut self, code: OpCode, inputs: &[NodeId]) -> Result<NodeId> {
        self.emit(code.into(), inputs)
    }

    /// Records a closed graph's nodes with `arguments` in place of its arguments, in order, and
    /// returns the nodes of its outputs in this graph.
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of arguments; the ops' errors for
    /// arguments of other specs.
    pub fn inline(&mut self, graph: &Graph, arguments: &[NodeId]) -> Result<Vec<NodeId>> {
        let (given, wanted) = (arguments.len(), graph.arguments().count());
        if given != wanted {
            let reason = format!("takes {wanted} arguments, got {given}");
            return Err(Error::InvalidArgument { op: "inline", reason });
        }
        let mut arguments = arguments.iter();
        let mut map: Vec<NodeId> = Vec::with_capacity(graph.len());
        for (id, node) in graph.nodes() {
            self.record_as(graph, id);
            let inputs: Vec<NodeId> = node.inputs.iter().map(|i| map[i.index()]).collect();
            map.push(match node.op.class() {
                _ if node.op.takes_argument() => *arguments.next().expect("they are counted"),
                Class::Leaf => self.leaf(node.op.clone(), node.spec.clone()),
                _ => self.emit(node.op.clone(), &inputs)?,
            });
        }
        Ok(graph.outputs().iter().map(|o| map[o.index()]).collect())
    }

    /// Records the nodes of another graph that `outputs` depend on, and returns the nodes of
    /// `outputs` in this graph. `map` holds, by node of the other graph, its replacement in this
    /// graph. A replaced node, and nodes that only it depends on, are not recorded.
    ///
    /// # Panics
    /// If `outputs` depend on an argument that `map` does not replace.
    pub fn copy_nodes(
        &mut self,
        graph: &Graph,
        mut map: Vec<Option<NodeId>>,
        outputs: &[NodeId],
    ) -> Vec<NodeId> {
        let mut needed = vec![false; graph.len()];
        outputs.iter().for_each(|o| needed[o.index()] = true);
        for (id, node) in graph.nodes().rev() {
            if needed[id.index()] && map[id.index()].is_none() {
                node.inputs.iter().for_each(|i| needed[i.index()] = true);
            }
        }
        for (id, node) in graph.nodes() {
            if needed[id.index()] && map[id.index()].is_none() {
                assert!(!node.op.takes_argument(), "{id:?} is an argument without a node here");
                let inputs = node.inputs.iter().map(|i| map[i.index()].expect("inputs come first"));
                let node = Node { inputs: inputs.collect(), ..node.clone() };
                self.record_as(graph, id);
                map[id.index()] = Some(self.append(node));
            }
        }
        outputs.iter().map(|o| map[o.index()].expect("outputs are needed")).collect()
    }

    /// Attributes the nodes recorded from now on to `origin`; see [`Graph::track_origins`].
    pub fn attribute(&mut self, origin: Option<NodeId>) {
        self.graph.attribute(origin);
    }

    /// Appends a node whose spec is already inferred.
    pub fn append(&mut self, node: Node) -> NodeId {
        self.graph.append(node)
    }

    /// Appends a leaf.
    pub fn leaf(&mut self, op: Op, spec: TensorSpec) -> NodeId {
        self.graph.leaf(op, spec)
    }

    /// A tensor that the caller supplies.
    pub fn input(&mut self, spec: TensorSpec) -> NodeId {
        self.leaf(OpCode::Input.into(), spec)
    }

    /// A splat constant.
    pub fn constant(&mut self, value: Literal, shape: impl Into<Shape>) -> NodeId {
        let spec = TensorSpec::new(shape, value.dtype);
        self.leaf(Op::new(OpCode::Constant, Attrs::Value(value.bits)), spec)
    }

    /// A scalar constant of the given dtype; elementwise ops broadcast it.
    pub fn scalar(&mut self, dtype: DType, value: f64) -> NodeId {
        self.constant(Literal::from_f64(dtype, value), Shape::scalar())
    }

    /// A scalar constant of `like`'s dtype.
    pub fn scalar_like(&mut self, like: NodeId, value: f64) -> NodeId {
        self.scalar(self.dtype(like), value)
    }

    /// A scalar constant computed from a symbolic size.
    pub fn scalar_of_size(&mut self, dtype: DType, of: OfSize) -> NodeId {
        match of.size.known() {
            Some(size) => self.scalar(dtype, of.value(size)),
            None => {
                let op = Op::new(OpCode::Constant, Attrs::OfSize(Arc::new(of)));
                self.leaf(op, TensorSpec::scalar(dtype))
            }
        }
    }

    /// Zeros of `like`'s spec.
    pub fn zeros_like(&mut self, like: NodeId) -> NodeId {
        let spec = self.spec(like).clone();
        self.constant(Literal::from_i64(spec.dtype, 0), spec.shape)
    }

    /// Records `real(x)`.
    pub fn real(&mut self, x: NodeId) -> Result<NodeId> {
        self.op(OpCode::Real, &[x])
    }

    /// Records `imag(x)`.
    pub fn imag(&mut self, x: NodeId) -> Result<NodeId> {
        self.op(OpCode::Imag, &[x])
    }

    /// Records `matmul(a, b)`.
    pub fn matmul(&mut self, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.op(OpCode::Matmul, &[a, b])
    }

    /// `where(cond, a, b)`.
    pub fn select(&mut self, cond: NodeId, a: NodeId, b: NodeId) -> Result<NodeId> {
        self.op(OpCode::Where, &[cond, a, b])
    }

    /// `x` converted to another dtype; `x` itself if it has this dtype.
    pub fn cast(&mut self, x: NodeId, dtype: DType) -> Result<NodeId> {
        match self.dtype(x) == dtype {
            true => Ok(x),
            false => self.emit(Op::new(OpCode::Cast, Attrs::DType(dtype)), &[x]),
        }
    }

    /// A reduction over axes.
    pub fn reduce(
        &mut self,
        code: OpCode,
        x: NodeId,
        axes: AxisSet,
        keepdims: bool,
    ) -> Result<NodeId> {
        self.emit(Op::new(code, Attrs::axes(axes, keepdims)), &[x])
    }

    /// Sum over axes.
    pub fn sum(&mut self, x: NodeId, axes: AxisSet, keepdims: bool) -> Result<NodeId> {
        self.reduce(OpCode::ReduceSum, x, axes, keepdims)
    }

    /// Maximum over axes.
    pub fn max(&mut self, x: NodeId, axes: AxisSet, keepdims: bool) -> Result<NodeId> {
        self.reduce(OpCode::ReduceMax, x, axes, keepdims)
    }

    /// Mean over axes.
    pub fn mean(&mut self, x: NodeId, axes: AxisSet, keepdims: bool) -> Result<NodeId> {
        self.reduce(OpCode::Mean, x, axes, keepdims)
    }

    /// Softmax along an axis.
    pub fn softmax(&mut self, x: NodeId, axis: u8) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Softmax, Attrs::Axis(axis)), &[x])
    }

    /// Logarithm of softmax along an axis.
    pub fn log_softmax(&mut self, x: NodeId, axis: u8) -> Result<NodeId> {
        self.emit(Op::new(OpCode::LogSoftmax, Attrs::Axis(axis)), &[x])
    }

    /// `x` cast to the accumulation dtype of composites: f32 for the half floats.
    pub fn widen(&mut self, x: NodeId) -> Result<NodeId> {
        self.cast(x, self.dtype(x).widened())
    }

    /// The same elements with another shape; `x` itself if it has this shape.
    pub fn reshape(&mut self, x: NodeId, shape: impl Into<Shape>) -> Result<NodeId> {
        let shape = shape.into();
        match *self.shape(x) == shape {
            true => Ok(x),
            false => self.emit(Op::new(OpCode::Reshape, Attrs::shape(shape)), &[x]),
        }
    }

    /// `x` broadcast to a shape; `x` itself if it has this shape.
    pub fn broadcast_to(&mut self, x: NodeId, shape: impl Into<Shape>) -> Result<NodeId> {
        let shape = shape.into();
        match *self.shape(x) == shape {
            true => Ok(x),
            false => self.emit(Op::new(OpCode::BroadcastTo, Attrs::shape(shape)), &[x]),
        }
    }

    /// Permutes the axes.
    pub fn permute(&mut self, x: NodeId, perm: &[usize]) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Permute, Attrs::perm(perm.iter().copied())), &[x])
    }

    /// Exchanges the last two axes.
    ///
    /// Errors: [`Error::InvalidShape`] below rank two.
    pub fn transpose(&mut self, x: NodeId) -> Result<NodeId> {
        let rank = self.shape(x).rank();
        if rank < 2 {
            return Err(Error::InvalidShape {
                op: "transpose",
                shape: self.shape(x).clone(),
                reason: "at least two axes are needed".into(),
            });
        }
        let mut perm: Vec<usize> = (0..rank).collect();
        perm.swap(rank - 2, rank - 1);
        self.permute(x, &perm)
    }

    /// A slice of each axis.
    pub fn slice(&mut self, x: NodeId, dims: Vec<SliceDim>) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Slice, Attrs::Slice(Arc::new(dims))), &[x])
    }

    /// Concatenates tensors along an axis.
    pub fn concat(&mut self, parts: &[NodeId], axis: u8) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Concat, Attrs::Axis(axis)), parts)
    }

    /// The class labels unchanged; a label outside `0..classes` is an error at run time.
    pub fn check_label(&mut self, labels: NodeId, classes: usize) -> Result<NodeId> {
        self.emit(Op::new(OpCode::CheckLabel, Attrs::Size(classes)), &[labels])
    }

    /// One element of `x` per index along an axis.
    pub fn take_along_axis(&mut self, x: NodeId, indices: NodeId, axis: u8) -> Result<NodeId> {
        self.emit(Op::new(OpCode::TakeAlongAxis, Attrs::Axis(axis)), &[x, indices])
    }

    /// Each element's index along an axis.
    pub fn iota(&mut self, shape: impl Into<Shape>, dtype: DType, axis: u8) -> NodeId {
        self.leaf(Op::new(OpCode::Iota, Attrs::Axis(axis)), TensorSpec::new(shape, dtype))
    }

    /// A slice of each axis with result shape `result`, which gives the symbolic sizes. The bounds
    /// in `dims` hold for the traced sizes.
    pub fn slice_of(&mut self, x: NodeId, dims: Vec<SliceDim>, result: &Shape) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Slice, Attrs::slice(dims, result)), &[x])
    }

    /// A slice of one axis and all of the other axes; `x` itself if the slice is the whole axis.
    pub fn slice_axis(
        &mut self,
        x: NodeId,
        axis: usize,
        start: impl Into<Dim>,
        size: impl Into<Dim>,
    ) -> Result<NodeId> {
        let (shape, size) = (self.shape(x), size.into());
        if shape.dim(axis) == size {
            return Ok(x);
        }
        let whole = |&size: &usize| SliceDim { start: 0, size, step: 1 };
        let mut dims: Vec<SliceDim> = shape.hints().iter().map(whole).collect();
        dims[axis] = SliceDim { start: start.into().get(), size: size.hint(), step: 1 };
        let result = shape.with_dim(axis, size);
        self.slice_of(x, dims, &result)
    }

    /// Pads around, and between, the elements.
    pub fn pad(&mut self, x: NodeId, dims: Vec<PadDim>, value: Literal) -> Result<NodeId> {
        self.emit(Op::new(OpCode::Pad, Attrs::Pad(Arc::new((dims, value.bits)))), &[x])
    }

    /// Sums `x` over the axes along which `shape` was broadcast to `x`'s shape.
    pub fn sum_to(&mut self, x: NodeId, shape: &Shape) -> Result<NodeId> {
        let from = self.shape(x).clone();
        if from == *shape {
            return Ok(x);
        }
        let lead = from.rank() - shape.rank();
        let one = Dim::from(1);
        let stretched = |&i: &usize| i < lead || (shape.dim(i - lead) == one && from.dim(i) != one);
        let axes: AxisSet = (0..from.rank()).filter(stretched).collect();
        let summed = self.sum(x, axes, false)?;
        self.reshape(summed, shape.clone())
    }

    /// Broadcasts the result of a reduction back over the reduced axes: the transpose of
    /// [`GraphBuilder::sum`] over `axes` of a tensor of `shape`.
    pub fn expand_reduced(&mut self, x: NodeId, axes: AxisSet, shape: &Shape) -> Result<NodeId> {
        let kept = self.reshape(x, shape.reduced(axes, true))?;
        self.broadcast_to(kept, shape.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_nodes_stops_at_mapped_nodes() {
        let mut b = GraphBuilder::default();
        let (x, y) =
            (b.input(TensorSpec::new([2], DType::F32)), b.input(TensorSpec::new([2], DType::F32)));
        let (sin, cos) = (b.op(OpCode::Sin, &[x]).unwrap(), b.op(OpCode::Cos, &[y]).unwrap());
        let (sum, _unused) = (b.add(sin, cos).unwrap(), b.neg(sin).unwrap());
        let graph = b.finish([]);
        let mut b = GraphBuilder::default();
        let mut map = vec![None; graph.len()];
        let [z, w] = [0; 2].map(|_| b.input(TensorSpec::new([2], DType::F32)));
        (map[sin.index()], map[y.index()]) = (Some(z), Some(w));
        let outputs = b.copy_nodes(&graph, map, &[sum, sin]);
        let copied = b.finish(outputs);
        copied.verify().unwrap();
        let names: Vec<_> = copied.nodes().map(|(_, node)| node.op.name()).collect();
        assert_eq!(names, ["input", "input", "cos", "add"], "sin and x are not needed");
        assert_eq!(copied.outputs()[1], z);
    }
}
