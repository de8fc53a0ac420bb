//! Batching (`vmap`): writes a graph again for operands that have one more axis in front.
//!
//! A value either is the same for the whole batch, and is computed once, or has the batch axis
//! first. How an op takes it follows from its definition ([`Batching`]) and from its attributes
//! ([`Attrs::with_leading_axis`](girih_ir::Attrs)); ops that index by values, convolutions and
//! control flow have rules here. The batch size may be symbolic, so that one program serves all.

mod collective;
mod convolution;
mod host;
mod index;
mod regions;
mod rules;

pub(crate) use rules::batched_rules;

use crate::control::Calls;
use crate::forward::{DEAD, Transformed, copy_leaf};
use crate::{Error, Result};
use girih_ir::ops::host::HostBatching;
use girih_ir::ops::{Batching, Class};
use girih_ir::{Dim, Graph, GraphBuilder, Node, NodeId, Op, OpCode, Shape};
use std::collections::HashMap;
use std::sync::Arc;

/// The axis that a batch adds.
#[derive(Clone, Copy, Debug)]
pub struct BatchAxis<'a> {
    /// The number of members, which may be symbolic.
    pub size: Dim,
    /// The name by which collectives refer to the axis, if it has one.
    pub name: Option<&'a str>,
}

impl From<Dim> for BatchAxis<'_> {
    fn from(size: Dim) -> Self {
        BatchAxis { size, name: None }
    }
}

/// The graph on a batch: the arguments marked get one more axis in front, of that size, and so do
/// the outputs that depend on them, which the marks beside the graph name.
///
/// The new graph's outputs are those of `graph` in order. Nothing is added to its arguments.
/// Collectives over the axis' name are replaced by ops along the axis; their operand for the index
/// must be an argument that is marked, or follow from one.
///
/// Errors: [`Error::ArgumentCount`] for fewer or more marks than arguments; [`Error::Graph`] where a
/// batched op would be too large or of too high a rank.
///
/// Cost: linear in the nodes.
pub fn vmap<'a>(
    graph: &Graph,
    marks: &[bool],
    axis: impl Into<BatchAxis<'a>>,
) -> Result<(Transformed, Vec<bool>)> {
    let axis = axis.into();
    let arguments: Vec<NodeId> = graph.arguments().collect();
    if arguments.len() != marks.len() {
        let (expected, found) = (arguments.len(), marks.len());
        return Err(Error::ArgumentCount { expected, found });
    }
    let mut b = GraphBuilder::default();
    let mut values = Vec::with_capacity(arguments.len());
    for (&id, &batched) in arguments.iter().zip(marks) {
        let node = graph.node(id);
        let id = match batched {
            true => {
                let mut spec = node.spec.clone();
                spec.shape = with_batch(axis.size, &spec.shape);
                b.leaf(node.op.clone(), spec)
            }
            false => copy_leaf(&mut b, graph, id),
        };
        values.push(Value { id, batched });
    }
    let mut batch = Batch::new(&mut b, graph, axis);
    batch.run(&values)?;
    let values = batch.values;
    let outputs: Vec<Value> = graph.outputs().iter().map(|o| values[o.index()]).collect();
    let graph = b.finish(outputs.iter().map(|v| v.id));
    let map = values.iter().map(|v| v.id).collect();
    let batched = outputs.iter().map(|v| v.batched).collect();
    Ok((Transformed { graph, map, added: Vec::new() }, batched))
}

/// A value: one for the batch, or with the batch axis in front.
#[derive(Clone, Copy, Debug)]
struct Value {
    id: NodeId,
    batched: bool,
}

/// A shape with the batch axis in front.
pub(crate) fn with_batch(size: Dim, shape: &Shape) -> Shape {
    std::iter::once(size).chain(shape.dims()).collect()
}

/// Writing one graph again.
struct Batch<'a> {
    b: &'a mut GraphBuilder,
    graph: &'a Graph,
    axis: BatchAxis<'a>,
    calls: Calls,
    /// By node.
    values: Vec<Value>,
    /// Branches and loops that have been batched, by their first result.
    done: HashMap<NodeId, regions::Batched>,
    /// Results of ops of users that were batched by rules of their own, by call and operands.
    ruled: HashMap<(String, Vec<NodeId>), Vec<Value>>,
}

impl<'a> Batch<'a> {
    fn new(b: &'a mut GraphBuilder, graph: &'a Graph, axis: BatchAxis<'a>) -> Batch<'a> {
        let values = vec![Value { id: DEAD, batched: false }; graph.len()];
        Batch {
            b,
            graph,
            axis,
            calls: Calls::of(graph),
            values,
            done: HashMap::new(),
            ruled: HashMap::new(),
        }
    }

    fn run(&mut self, arguments: &[Value]) -> Result<()> {
        let (mut arguments, live) = (arguments.iter(), self.graph.live());
        for (id, node) in self.graph.nodes() {
            if !live[id.index()] && node.op.class() != Class::Leaf {
                continue;
            }
            self.b.record_as(self.graph, id);
            self.values[id.index()] = match node.op.class() {
                _ if node.op.takes_argument() => *arguments.next().expect("all are given"),
                Class::Leaf => Value { id: copy_leaf(self.b, self.graph, id), batched: false },
                Class::Control => self.control(id, node)?,
                _ => self.op(node)?,
            };
        }
        Ok(())
    }

    fn operands(&self, node: &Node) -> Vec<Value> {
        node.inputs.iter().map(|i| self.values[i.index()]).collect()
    }

    fn op(&mut self, node: &Node) -> Result<Value> {
        let operands = self.operands(node);
        if let Some(value) = self.collective(node, &operands)? {
            return Ok(value);
        }
        if operands.iter().all(|v| !v.batched) {
            let inputs = operands.iter().map(|v| v.id).collect();
            let node = Node { op: node.op.clone(), inputs, spec: node.spec.clone() };
            return Ok(Value { id: self.b.append(node), batched: false });
        }
        if let Some(value) = self.by_own_rule(node, &operands)? {
            return Ok(value);
        }
        let id = match node.op.def().batching() {
            Batching::Broadcast if node.op.code == OpCode::Matmul => {
                self.matmul(node, &operands)?
            }
            Batching::Broadcast => self.broadcast(node, &operands)?,
            Batching::Leading => self.leading(node, &operands)?,
            Batching::First if operands[1..].iter().all(|v| !v.batched) => {
                let mut inputs = vec![stretched(self.b, operands[0], self.axis.size)?];
                inputs.extend(operands[1..].iter().map(|v| v.id));
                self.emit(node, &inputs)?
            }
            Batching::First => self.decomposed(node, &operands)?,
            Batching::Rule => self.rule(node, &operands)?,
        };
        Ok(Value { id, batched: true })
    }

    fn rule(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        match node.op.code {
            OpCode::Conv | OpCode::ConvTranspose => self.convolution(node, operands),
            OpCode::Attention => {
                // A mask broadcasts to the scores, which follow from the others alone.
                let mut operands = operands.to_vec();
                operands[0] =
                    Value { id: stretched(self.b, operands[0], self.axis.size)?, batched: true };
                self.broadcast(node, &operands)
            }
            OpCode::Custom => self.hosted(node, operands),
            _ => self.indexing(node, operands),
        }
    }

    /// A call of a host op, as it takes a batch.
    fn hosted(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let Some((result, call)) = node.op.as_host() else {
            return Err(girih_ir::Error::InvalidArgument {
                op: node.op.name(),
                reason: "has no call".into(),
            }
            .into());
        };
        let rule = call.batching();
        let marks = operands.iter().map(|v| v.batched).collect();
        let inputs: Vec<NodeId> = match rule {
            HostBatching::None | HostBatching::Rule => {
                let reason = format!(
                    "'{}' has no batching rule; give it a vmap_method or a rule (def_vmap), or map over it with scan",
                    call.op().name()
                );
                return Err(girih_ir::Error::InvalidArgument { op: "custom", reason }.into());
            }
            HostBatching::Sequential => operands.iter().map(|v| v.id).collect(),
            HostBatching::ExpandDims => {
                let one = Dim::from(1);
                let with_one =
                    |v: &Value| stretched(self.b, *v, if v.batched { self.axis.size } else { one });
                operands.iter().map(with_one).collect::<Result<_>>()?
            }
            HostBatching::BroadcastAll => {
                let whole = |v: &Value| stretched(self.b, *v, self.axis.size);
                operands.iter().map(whole).collect::<Result<_>>()?
            }
        };
        // The results of one call are told by it, and one kernel computes them.
        let batched = Arc::new(call.batched(self.axis.size, marks));
        Ok(self.b.emit(Op::host(batched, result), &inputs)?)
    }

    /// The op on operands that have the batch axis.
    fn emit(&mut self, node: &Node, inputs: &[NodeId]) -> Result<NodeId> {
        let attrs = node.op.attrs.with_leading_axis(self.axis.size);
        Ok(self.b.emit(Op::new(node.op.code, attrs), inputs)?)
    }

    fn broadcast(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let rank = node.spec.shape.rank();
        let align = |v: &Value| if v.batched { aligned(self.b, v.id, rank) } else { Ok(v.id) };
        let inputs: Vec<NodeId> = operands.iter().map(align).collect::<Result<_>>()?;
        self.emit(node, &inputs)
    }

    fn leading(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let inputs: Result<Vec<NodeId>> =
            operands.iter().map(|&v| stretched(self.b, v, self.axis.size)).collect();
        self.emit(node, &inputs?)
    }

    /// One product of all rows, or columns, for a batch of matrices and one matrix: a product for each
    /// member would read that matrix as often, and have few rows.
    fn matmul(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let [a, m] = *operands else { unreachable!("a product has two operands") };
        if a.batched == m.batched || node.spec.shape.rank() != 2 {
            return self.broadcast(node, operands);
        }
        let (rows, columns) = (node.spec.shape.dim(0), node.spec.shape.dim(1));
        let b = &mut *self.b;
        if a.batched {
            let shared = b.shape(a.id).dim(2);
            let all = b.reshape(a.id, Shape::of_dims([self.axis.size * rows, shared]))?;
            let product = b.matmul(all, m.id)?;
            return Ok(b.reshape(product, Shape::of_dims([self.axis.size, rows, columns]))?);
        }
        let shared = b.shape(m.id).dim(1);
        let front = b.permute(m.id, &[1, 0, 2])?;
        let all = b.reshape(front, Shape::of_dims([shared, self.axis.size * columns]))?;
        let product = b.matmul(a.id, all)?;
        let apart = b.reshape(product, Shape::of_dims([rows, self.axis.size, columns]))?;
        Ok(b.permute(apart, &[1, 0, 2])?)
    }

    /// A composite by its definition.
    fn decomposed(&mut self, node: &Node, operands: &[Value]) -> Result<NodeId> {
        let mut r = GraphBuilder::default();
        let inputs: Vec<NodeId> =
            node.inputs.iter().map(|&i| r.input(self.graph.spec(i).clone())).collect();
        let result = r.decompose(&node.op, &inputs)?;
        let definition = r.finish([result]);
        let given = on_batch(self.b, &definition, operands, self.axis)?;
        stretched(self.b, given[0], self.axis.size)
    }
}

/// Writes a graph on a batch of some of its arguments and gives its outputs.
fn on_batch(
    b: &mut GraphBuilder,
    graph: &Graph,
    arguments: &[Value],
    axis: BatchAxis<'_>,
) -> Result<Vec<Value>> {
    let mut batch = Batch::new(b, graph, axis);
    batch.run(arguments)?;
    Ok(graph.outputs().iter().map(|o| batch.values[o.index()]).collect())
}

/// The value with a batch axis: that of a value that has none is stretched.
fn stretched(b: &mut GraphBuilder, value: Value, size: Dim) -> Result<NodeId> {
    if value.batched {
        return Ok(value.id);
    }
    let shape = with_batch(size, b.shape(value.id));
    Ok(b.broadcast_to(value.id, shape)?)
}

/// A batched value with axes of size one behind the batch axis, up to that rank without it.
fn aligned(b: &mut GraphBuilder, id: NodeId, rank: usize) -> Result<NodeId> {
    let shape = b.shape(id);
    let missing = (rank + 1).saturating_sub(shape.rank());
    let ones = std::iter::repeat_n(Dim::from(1), missing);
    let wanted: Shape = shape.dims().take(1).chain(ones).chain(shape.dims().skip(1)).collect();
    Ok(b.reshape(id, wanted)?)
}
