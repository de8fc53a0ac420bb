//! Batching (`vmap`): rewrites a graph for operands with one more leading axis.
//!
//! A value is either unbatched, and computed once for the whole batch, or has the batch axis first.
//! The batching of an op follows from its definition ([`Batching`]) and from its attributes
//! ([`Attrs::with_leading_axis`](girih_ir::Attrs)). Ops that index by values, convolutions and
//! control flow have batching rules in this module. The batch size may be symbolic, so that one
//! program serves all sizes.

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

/// The axis that `vmap` adds.
#[derive(Clone, Copy, Debug)]
pub struct BatchAxis<'a> {
    /// The batch size, possibly symbolic.
    pub size: Dim,
    /// The name that collectives use for the axis, if it has one.
    pub name: Option<&'a str>,
}

impl From<Dim> for BatchAxis<'_> {
    fn from(size: Dim) -> Self {
        BatchAxis { size, name: None }
    }
}

/// Batches a graph: the marked arguments get a leading batch axis, and so do the outputs that
/// depend on them. The returned marks name these outputs.
///
/// The new graph's outputs are those of `graph` in order; it has no additional arguments.
/// Collectives over the axis's name become ops along the axis. Their index operand must be a marked
/// argument, or depend on a marked argument.
///
/// Errors: [`Error::ArgumentCount`] for a wrong number of marks; [`Error::Graph`] if a batched op
/// would be too large or its rank too high.
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

/// A value of the new graph: unbatched, or with the batch axis in front.
#[derive(Clone, Copy, Debug)]
struct Value {
    id: NodeId,
    batched: bool,
}

/// A shape with the batch axis in front.
pub(crate) fn with_batch(size: Dim, shape: &Shape) -> Shape {
    std::iter::once(size).chain(shape.dims()).collect()
}

/// The state of batching one graph.
struct Batch<'a> {
    b: &'a mut GraphBuilder,
    graph: &'a Graph,
    axis: BatchAxis<'a>,
    calls: Calls,
    /// For each node of the old graph, its value.
    values: Vec<Value>,
    /// Batched branches and loops, by their first result.
    done: HashMap<NodeId, regions::Batched>,
    /// Results of custom ops that were batched by their own rules, by call and operands.
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
                // The mask broadcasts to the scores, but the scores' shape follows from the other
                // operands, so broadcast the queries to the batch.
                let mut operands = operands.to_vec();
                operands[0] =
                    Value { id: stretched(self.b, operands[0], self.axis.size)?, batched: true };
                self.broadcast(node, &operands)
            }
            OpCode::Custom => self.hosted(node, operands),
            _ => self.indexing(node, operands),
        }
    }

    /// Batches a call of a custom op by the call's batching rule.
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
        // All results of one call get the same batched call, so that one kernel computes them.
        let batched = Arc::new(call.batched(self.axis.size, marks));
        Ok(self.b.emit(Op::host(batched, result), &inputs)?)
    }

    /// Emits the op for operands that all have the batch axis.
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

    /// Merges the batch into the rows, or columns, if only one operand of a matrix product is
    /// batched. A batch of products would read the unbatched matrix once for each member, and have
    /// few rows.
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

    /// Batches a composite by its decomposition.
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

/// Writes a graph with some arguments batched, and returns its outputs.
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

/// The value with a batch axis; an unbatched value is broadcast.
fn stretched(b: &mut GraphBuilder, value: Value, size: Dim) -> Result<NodeId> {
    if value.batched {
        return Ok(value.id);
    }
    let shape = with_batch(size, b.shape(value.id));
    Ok(b.broadcast_to(value.id, shape)?)
}

/// Inserts axes of size one after the batch axis of a batched value, up to rank `rank` without the
/// batch axis.
fn aligned(b: &mut GraphBuilder, id: NodeId, rank: usize) -> Result<NodeId> {
    let shape = b.shape(id);
    let missing = (rank + 1).saturating_sub(shape.rank());
    let ones = std::iter::repeat_n(Dim::from(1), missing);
    let wanted: Shape = shape.dims().take(1).chain(ones).chain(shape.dims().skip(1)).collect();
    Ok(b.reshape(id, wanted)?)
}
