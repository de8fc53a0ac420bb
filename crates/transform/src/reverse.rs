//! Reverse-mode derivatives: walks a closed graph backwards from its outputs, asks each op's VJP
//! rule for the cotangents of its operands, and sums the cotangents that reach a node on several
//! paths. Cotangents of half floats are summed in f32 and rounded once.
//!
//! The graph is extended, never rewritten: every node keeps its id, and the derivative's ops are
//! appended. A composite that is differentiated through its decomposition remains, and the
//! decomposition is appended. Once both are decomposed, CSE merges them.
//!
//! Laws, each with a test. There is no recursion. Rules are asked only for ops on a path from the
//! `wrt` nodes to the outputs, and only for operands on such a path. The arguments of the graph do
//! not change. The gradient of an input that an output does not depend on is zero.

use crate::control::{self, Call, Calls};
use crate::padded_slices::{self, PaddedSlice};
use crate::rules::{self, Mode};
use crate::{Error, Result, hosted};
use girih_ir::ops::{Derivative, Vjp};
use girih_ir::{Graph, GraphBuilder, Literal, NodeId};
use smallvec::SmallVec;

/// Appends the gradients of a scalar `output` with respect to the nodes `wrt`.
///
/// Returns the extended graph: the nodes of `graph` with their ids, then the derivative's nodes.
/// The outputs are those of `graph`, then one gradient for each entry of `wrt`, with that node's
/// shape and dtype. A node that is named twice in `wrt` gets its whole gradient twice. Interior
/// nodes are allowed. `seed` is a node of the graph that replaces 1 as the output's cotangent.
///
/// Errors: [`Error::OutputNotScalar`], [`Error::OutputNotFloat`], [`Error::WrtNotFloat`],
/// [`Error::CotangentMismatch`] for the seed, [`Error::UnknownNode`].
///
/// Cost: linear in the nodes.
pub fn gradients(
    graph: &Graph,
    output: NodeId,
    wrt: &[NodeId],
    seed: Option<NodeId>,
) -> Result<Graph> {
    check_known(graph, [output])?;
    let spec = graph.spec(output).clone();
    if spec.shape.rank() != 0 {
        return Err(Error::OutputNotScalar { shape: spec.shape });
    }
    if !spec.dtype.is_float() {
        return Err(Error::OutputNotFloat { dtype: spec.dtype });
    }
    match seed {
        Some(seed) => vjp(graph, &[output], &[seed], wrt),
        None => {
            let mut b = GraphBuilder::from_graph(graph.clone());
            let one = b.constant(Literal::from_i64(spec.dtype, 1), spec.shape);
            vjp(&b.finish(graph.outputs().iter().copied()), &[output], &[one], wrt)
        }
    }
}

/// Appends the vector-Jacobian products of `outputs` with the nodes `cotangents`. For each node in
/// `wrt`, the product is the sum over the outputs of the cotangent times the derivative. Each
/// cotangent has its output's spec, and each product its node's spec. The result has the layout of
/// [`gradients`]. Integer outputs are skipped together with their cotangents, since they have no
/// gradient.
///
/// Errors: [`Error::CotangentCount`], [`Error::CotangentMismatch`], [`Error::WrtNotFloat`],
/// [`Error::UnknownNode`].
pub fn vjp(
    graph: &Graph,
    outputs: &[NodeId],
    cotangents: &[NodeId],
    wrt: &[NodeId],
) -> Result<Graph> {
    if outputs.len() != cotangents.len() {
        let (outputs, cotangents) = (outputs.len(), cotangents.len());
        return Err(Error::CotangentCount { outputs, cotangents });
    }
    check_known(graph, outputs.iter().chain(cotangents).copied())?;
    check_wrt(graph, wrt)?;
    for (&output, &ct) in outputs.iter().zip(cotangents) {
        let (expected, found) = (graph.spec(output), graph.spec(ct));
        if !expected.equals(found) {
            let (expected, found) = (expected.clone(), found.clone());
            return Err(Error::CotangentMismatch { output, expected, found });
        }
    }
    let graph = rules::settle(graph, outputs, wrt, Mode::Reverse)?;
    let mut graph = self::cotangents(&graph, outputs, cotangents, wrt)?;
    rules::plain(&mut graph);
    Ok(graph)
}

/// As [`vjp`], for validated nodes.
pub(crate) fn cotangents(
    graph: &Graph,
    outputs: &[NodeId],
    cotangents: &[NodeId],
    wrt: &[NodeId],
) -> Result<Graph> {
    let mut reverse = Reverse::new(graph, wrt);
    for (&output, &ct) in outputs.iter().zip(cotangents) {
        reverse.add_cotangent(output, ct)?;
    }
    reverse.walk(graph.len())?;
    let mut found = Vec::with_capacity(wrt.len());
    for &id in wrt {
        let cotangent = reverse.cotangent(id)?;
        found.push(cotangent.unwrap_or_else(|| reverse.b.zeros_like(id)));
    }
    Ok(reverse.b.finish(graph.outputs().iter().copied().chain(found)))
}

/// Which outputs are floating-point or complex and depend on the marked arguments.
pub(crate) fn depends(graph: &Graph, marked: &[bool]) -> Vec<bool> {
    let wrt = graph.arguments().zip(marked).filter(|(_, m)| **m).map(|(id, _)| id);
    let reverse = Reverse::new(graph, &wrt.collect::<Vec<_>>());
    graph.outputs().iter().map(|o| reverse.active[o.index()]).collect()
}

/// For each node, whether the node is floating-point or complex and depends on `wrt`.
pub(crate) fn active_nodes(graph: &Graph, wrt: &[NodeId]) -> Vec<bool> {
    Reverse::new(graph, wrt).active
}

/// Fails unless all of `wrt` are floating-point or complex nodes of the graph.
pub(crate) fn check_wrt(graph: &Graph, wrt: &[NodeId]) -> Result<()> {
    check_known(graph, wrt.iter().copied())?;
    for (index, &id) in wrt.iter().enumerate() {
        let dtype = graph.spec(id).dtype;
        if !dtype.is_inexact() {
            return Err(Error::WrtNotFloat { index, dtype });
        }
    }
    Ok(())
}

fn check_known(graph: &Graph, nodes: impl IntoIterator<Item = NodeId>) -> Result<()> {
    match nodes.into_iter().find(|id| id.index() >= graph.len()) {
        None => Ok(()),
        Some(node) => Err(Error::UnknownNode { node, len: graph.len() }),
    }
}

/// The cotangents that have reached a node: padded slices, and the sum of all others, which is
/// wider than the node if several cotangents of half floats were added.
#[derive(Clone, Default)]
struct Cotangent {
    sum: Option<NodeId>,
    slices: Vec<PaddedSlice>,
}

/// The sum of two cotangents of one node, in f32 for half floats.
pub(crate) fn wide_sum(b: &mut GraphBuilder, x: NodeId, y: NodeId) -> Result<NodeId> {
    let (x, y) = (b.widen(x)?, b.widen(y)?);
    Ok(b.add(x, y)?)
}

/// The state of one walk.
struct Reverse {
    b: GraphBuilder,
    /// For each node, whether the node is floating-point or complex and depends on `wrt`.
    active: Vec<bool>,
    /// For each node, the cotangents that have reached it so far.
    cotangents: Vec<Cotangent>,
    /// The results of each branch and loop, which are differentiated together.
    calls: Calls,
}

impl Reverse {
    fn new(graph: &Graph, wrt: &[NodeId]) -> Reverse {
        let mut active = vec![false; graph.len()];
        wrt.iter().for_each(|id| active[id.index()] = true);
        let b = GraphBuilder::from_graph(graph.clone());
        let cotangents = vec![Cotangent::default(); graph.len()];
        let mut reverse = Reverse { b, active, cotangents, calls: Calls::of(graph) };
        reverse.activate(0);
        reverse
    }

    /// Marks the active nodes from `start` on: a node is active if an operand is.
    fn activate(&mut self, start: usize) {
        self.active.resize(self.b.graph().len(), false);
        self.cotangents.resize(self.b.graph().len(), Cotangent::default());
        for next in start..self.b.graph().len() {
            let node = self.b.graph().node(NodeId(next as u32));
            let blocked = matches!(node.op.def().derivative, Derivative::Zero(_));
            if !blocked && node.spec.dtype.is_inexact() {
                self.active[next] |= node.inputs.iter().any(|i| self.active[i.index()]);
            }
        }
    }

    fn add_cotangent(&mut self, id: NodeId, ct: NodeId) -> Result<()> {
        if !self.active[id.index()] {
            return Ok(());
        }
        let so_far = &mut self.cotangents[id.index()];
        if let Some(slice) = PaddedSlice::of(&self.b, ct) {
            so_far.slices.push(slice);
            return Ok(());
        }
        so_far.sum = Some(match so_far.sum {
            None => ct,
            Some(sum) => wide_sum(&mut self.b, sum, ct)?,
        });
        Ok(())
    }

    /// The sum of the cotangents that have reached a node so far.
    fn cotangent(&mut self, id: NodeId) -> Result<Option<NodeId>> {
        let so_far = &mut self.cotangents[id.index()];
        if let Some(slices) = padded_slices::sum(&mut self.b, &std::mem::take(&mut so_far.slices))?
        {
            so_far.sum = Some(match so_far.sum {
                None => slices,
                Some(sum) => wide_sum(&mut self.b, sum, slices)?,
            });
        }
        if let Some(sum) = so_far.sum {
            so_far.sum = Some(self.b.cast(sum, self.b.dtype(id))?);
        }
        Ok(so_far.sum)
    }

    /// Visits the nodes before `end` in reverse order. When the decomposition of a composite is
    /// appended, its nodes are visited, also in reverse order, before the walk continues below the
    /// composite.
    fn walk(&mut self, end: usize) -> Result<()> {
        let (mut range, mut outer) = (0..end, Vec::new());
        loop {
            let Some(next) = range.next_back() else {
                match outer.pop() {
                    Some(rest) => range = rest,
                    None => return Ok(()),
                }
                continue;
            };
            let id = NodeId(next as u32);
            self.b.record_for(id);
            if let Derivative::Regions = self.b.graph().node(id).op.def().derivative {
                self.control(id)?;
                continue;
            }
            let Some(ct) = self.cotangent(id)? else { continue };
            if !self.b.graph().node(id).inputs.iter().any(|i| self.active[i.index()]) {
                continue;
            }
            match self.b.graph().node(id).op.def().derivative {
                Derivative::Zero(_) | Derivative::Regions => {}
                Derivative::Refused(reason) => {
                    return Err(control::refused(self.b.graph().node(id).op.name(), reason));
                }
                Derivative::Rule(rule) => self.apply(id, ct, rule)?,
                Derivative::Decompose => {
                    outer.push(std::mem::replace(&mut range, self.decompose(id, ct)?));
                }
            }
        }
    }

    fn apply(
        &mut self,
        id: NodeId,
        ct: NodeId,
        rule: fn(&mut Vjp<'_>) -> girih_ir::Result<girih_ir::ops::Cotangents>,
    ) -> Result<()> {
        let node = self.b.graph().node(id).clone();
        let wanted: SmallVec<[bool; 3]> =
            node.inputs.iter().map(|i| self.active[i.index()]).collect();
        let of_batch = hosted::cotangents(&mut self.b, &node, ct, &wanted, rule)?;
        let cotangents = match of_batch {
            Some(cotangents) => cotangents,
            None => rule(&mut Vjp {
                b: &mut self.b,
                op: node.op.clone(),
                inputs: &node.inputs,
                wanted: &wanted,
                output: id,
                ct,
            })?,
        };
        for (&input, ct) in node.inputs.iter().zip(cotangents) {
            let Some(ct) = ct else { continue };
            debug_assert!(
                self.b.spec(input).equals(self.b.spec(ct)),
                "the rule of {} gives a cotangent {} for an operand {}",
                node.op.name(),
                self.b.spec(ct),
                self.b.spec(input)
            );
            self.add_cotangent(input, ct)?;
        }
        Ok(())
    }

    /// Differentiates a branch or loop when the walk reaches its leader, the first of its results
    /// in the graph. Users of all results come later in the graph, so the cotangents are complete.
    fn control(&mut self, id: NodeId) -> Result<()> {
        let node = self.b.graph().node(id).clone();
        let mut cotangents: Vec<(usize, NodeId)> = Vec::new();
        for result in self.calls.results(id).to_vec() {
            let number = self.b.graph().node(result).op.as_control().map(|(number, _)| number);
            let (Some(number), Some(ct)) = (number, self.cotangent(result)?) else {
                continue;
            };
            match cotangents.iter_mut().find(|(n, _)| *n == number) {
                Some((_, sum)) => {
                    let wide = wide_sum(&mut self.b, *sum, ct)?;
                    *sum = self.b.cast(wide, self.b.dtype(result))?;
                }
                None => cotangents.push((number, ct)),
            }
        }
        let wanted: Vec<bool> = node.inputs.iter().map(|i| self.active[i.index()]).collect();
        if cotangents.is_empty() || !wanted.contains(&true) {
            return Ok(());
        }
        let call = Call { node, cotangents, wanted, results: self.calls.results(id).to_vec() };
        for (operand, ct) in control::vjp(&mut self.b, &call)? {
            self.add_cotangent(operand, ct)?;
        }
        Ok(())
    }

    /// Appends a composite's decomposition, gives it the composite's cotangent, and returns the
    /// range of its nodes.
    fn decompose(&mut self, id: NodeId, ct: NodeId) -> Result<std::ops::Range<usize>> {
        let node = self.b.graph().node(id).clone();
        let start = self.b.graph().len();
        let result = self.b.decompose(&node.op, &node.inputs)?;
        self.activate(start);
        let end = self.b.graph().len();
        self.add_cotangent(result, ct)?;
        Ok(start..end)
    }
}
