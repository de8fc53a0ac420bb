//! The specs of all values of a graph: propagation forward from the arguments, and backward from
//! outputs and users, to a fixed point.
//!
//! Forward, an op's operands decide. Backward, users decide two things. Partial values that one of
//! them needs combined are combined for all of them, and as early as that moves no more: a sum of
//! partial and other values whose total is needed anyway is computed on combined values. And a
//! value is computed in the parts that its users need, if they agree and that takes only slices of
//! its operands: so constants, draws and what is computed from them follow demand. Likewise open
//! dimensions of arguments take the axes that their users agree on.
//!
//! A value with a spec in the graph's side table has it for all its users, who decide nothing then.
//!
//! A backward decision is made once and never taken back, so there is an end.

use super::Partitioner;
use super::each::Each;
use super::local::LocalOp;
use super::windows::Window;
use crate::propagate::{Call, Operand, Step, backward, step, step_in_parts};
use girih_ir::ops::masked::masked_axis;
use girih_ir::sharding::{DeviceMesh, DimSpec, P};
use girih_ir::{Attrs, Class, Factors, Graph, Node, NodeId, Op, OpCode, Result, TensorSpec};

/// How a node is computed.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    /// The specs that its operands must have.
    pub wanted: Vec<P>,
    /// The elements of each operand that each processor needs, if not those of its spec.
    pub windows: Option<Vec<Window>>,
    /// The spec of its result.
    pub found: P,
    /// The op of each processor; `None` for the op itself on whole operands, and for leaves.
    pub ops: Option<Each<LocalOp>>,
    /// The spec that the graph's side table gives the value, in which users get it.
    pub fixed: Option<P>,
    /// True if users see partial values combined.
    combined: bool,
    /// True if the op itself makes partial values.
    reduces: bool,
}

/// What the users of a value want.
#[derive(Clone, Debug, Default)]
struct Wants {
    /// At least one of them needs partial values combined.
    combined: bool,
    /// The axes of each dimension, and whether all users want the same.
    cut: Option<(P, bool)>,
}

impl Wants {
    fn add(&mut self, want: &P, found: &P) {
        self.combined |= found.partial.keys().any(|axis| !want.partial.contains_key(axis));
        let want = without_partial(want);
        match &mut self.cut {
            None => self.cut = Some((want, true)),
            Some((known, agree)) => *agree &= *known == want,
        }
    }

    /// The cut that all users want.
    fn agreed(&self) -> Option<&P> {
        self.cut.as_ref().filter(|(_, agree)| *agree).map(|(cut, _)| cut)
    }
}

/// The axes that cut each dimension, up to the last one that is cut.
fn without_partial(spec: &P) -> P {
    let mut dims: Vec<DimSpec> =
        spec.dims.iter().map(|dim| DimSpec::new(dim.axes.iter().cloned())).collect();
    while dims.last().is_some_and(|dim| dim.axes.is_empty()) {
        dims.pop();
    }
    P { dims, ..P::default() }
}

/// The spec with the further axes of another one in open dimensions, where they are free.
pub(super) fn opened(mesh: &DeviceMesh, spec: &P, other: &P) -> P {
    let mut spec = spec.clone();
    for dim in 0..spec.dims.len() {
        let (own, axes) = (&spec.dims[dim], other.axes_of(dim));
        if !own.is_open || own.axes.len() == axes.len() || !axes.starts_with(&own.axes) {
            continue;
        }
        let mut longer = spec.clone();
        longer.dims[dim].axes = axes.to_vec();
        if longer.check_axes(mesh).is_ok() {
            spec = longer;
        }
    }
    spec
}

/// True if each processor has its part under `to` within its part under `from`.
fn refines(to: &P, from: &P) -> bool {
    let mut dims = from.dims.iter().enumerate();
    to.partial.is_empty()
        && from.partial.is_empty()
        && dims.all(|(dim, from)| to.axes_of(dim).starts_with(&from.axes))
}

/// True for arguments that are held somewhere. Any part of another leaf is at hand everywhere: a
/// constant, a draw, an iota.
pub(super) fn is_tensor_argument(op: &Op) -> bool {
    matches!(op.code, OpCode::Input | OpCode::Parameter)
}

impl Decision {
    fn new(wanted: Vec<P>, found: P, ops: Option<Each<LocalOp>>, reduces: bool) -> Decision {
        Decision { wanted, windows: None, found, ops, fixed: None, combined: false, reduces }
    }

    /// With partial values that the op itself makes.
    pub fn reducing(wanted: Vec<P>, found: P, ops: Each<LocalOp>) -> Decision {
        Decision::new(wanted, found, Some(ops), true)
    }

    /// On windows of the operands.
    pub fn on_windows(
        wanted: Vec<P>,
        windows: Vec<Window>,
        found: P,
        ops: Each<LocalOp>,
    ) -> Decision {
        let windows = Some(windows);
        Decision { windows, ..Decision::new(wanted, found, Some(ops), false) }
    }

    /// The spec that users see.
    pub fn shown(&self) -> P {
        match &self.fixed {
            Some(fixed) => fixed.clone(),
            None if self.combined => P { partial: Default::default(), ..self.found.clone() },
            None => self.found.clone(),
        }
    }
}

impl Partitioner<'_> {
    /// The spec that an op sets, whatever its operand has. A spec for a mesh with other axes sets none.
    pub(super) fn constraint<'a>(&self, op: &'a Op, result: &TensorSpec) -> Option<&'a P> {
        let Attrs::Sharding(sharding) = &op.attrs else { return None };
        let fits = sharding.spec().check(self.mesh, result.shape.rank());
        fits.is_ok().then(|| sharding.spec())
    }

    /// How an op is computed on operands of these specs, towards a wanted result if one is given.
    pub(super) fn decision(
        &mut self,
        op: &Op,
        result: &TensorSpec,
        operands: &[(&P, &TensorSpec)],
        towards: Option<&P>,
    ) -> Result<Decision> {
        if let Some(spec) = self.constraint(op, result) {
            return Ok(Decision::new(vec![spec.clone()], spec.clone(), None, false));
        }
        let tensors: Vec<&TensorSpec> = operands.iter().map(|(_, tensor)| *tensor).collect();
        let whole = vec![P::default(); operands.len()];
        let whole = Decision::new(whole, P::default(), None, false);
        let Ok(factors) = op.factors(&tensors, result) else {
            return match towards {
                Some(_) => Ok(whole),
                None => Ok(self.in_regions(op, operands, result)?.unwrap_or(whole)),
            };
        };
        let specs = operands.iter().map(|&(spec, tensor)| Operand { tensor, spec });
        let specs: Vec<Operand<'_>> = specs.collect();
        let mesh = self.mesh;
        let call = |factors| Call { factors, operands: &specs, result, mesh, op: Some(op) };
        let Step { operands: wanted, result: found, reduced } = match towards {
            Some(wanted) => backward(&call(&factors), wanted)?,
            None => step(&call(&factors))?,
        };
        let gathers = match towards {
            Some(towards) => without_partial(&found) != without_partial(towards),
            None => operands.iter().zip(&wanted).any(|((from, _), to)| self.gathers(from, to)),
        };
        if gathers
            && let Some(decision) = self.without_gather(op, &factors, &specs, result, towards)?
        {
            return Ok(decision);
        }
        let ops = self.local_ops(op, &wanted, &tensors, (&found, result))?;
        let reduces = !reduced.is_empty();
        Ok(ops.map_or(whole, |ops| Decision::new(wanted, found, Some(ops), reduces)))
    }

    /// As `decision`, by a rule for an op that takes the cut axis as a whole.
    fn without_gather(
        &mut self,
        op: &Op,
        factors: &Factors,
        operands: &[Operand<'_>],
        result: &TensorSpec,
        towards: Option<&P>,
    ) -> Result<Option<Decision>> {
        let tensors: Vec<&TensorSpec> = operands.iter().map(|operand| operand.tensor).collect();
        let (mesh, tensors) = (self.mesh, (&tensors[..], result));
        let call = |factors| Call { factors, operands, result, mesh, op: Some(op) };
        if let Some(rule) = op.def().part {
            // Operands that are combined are cut alike; others, such as kernels, are not cut along.
            let alike = if op.class() == Class::Combine { operands.len() } else { 1 };
            let step = step_in_parts(&call(&factors.joined(alike)), towards)?;
            return self.windowed(op, rule, tensors, step);
        }
        if let (Some(rule), None) = (op.def().masked, towards) {
            let step = step(&call(&factors.summed(masked_axis(op))))?;
            return self.masked(op, rule, tensors, step);
        }
        Ok(None)
    }

    /// How each live node is computed, for arguments of these specs and outputs with the specs that
    /// are wanted.
    pub(super) fn decisions(
        &mut self,
        graph: &Graph,
        arguments: &[P],
        outputs: &[Option<P>],
    ) -> Result<Vec<Option<Decision>>> {
        let n = graph.len();
        let mut deciding = Deciding {
            partitioner: self,
            graph,
            outputs,
            live: graph.live(),
            decisions: vec![None; n],
            changed: vec![true; n],
            towards: vec![None; n],
        };
        deciding.leaves(arguments)?;
        loop {
            deciding.forward()?;
            if !deciding.backward()? {
                return Ok(deciding.decisions);
            }
        }
    }
}

struct Deciding<'p, 'm, 'g> {
    partitioner: &'p mut Partitioner<'m>,
    graph: &'g Graph,
    outputs: &'g [Option<P>],
    live: Vec<bool>,
    decisions: Vec<Option<Decision>>,
    /// The values whose spec changed since their users were decided.
    changed: Vec<bool>,
    /// The spec that a value that nobody holds gets for its users.
    towards: Vec<Option<P>>,
}

impl Deciding<'_, '_, '_> {
    fn leaves(&mut self, arguments: &[P]) -> Result<()> {
        let mut given = arguments.iter();
        for (id, node) in self.graph.nodes().filter(|(_, node)| node.op.class() == Class::Leaf) {
            let argument = node.op.takes_argument().then(|| given.next()).flatten();
            let found = match argument.filter(|_| is_tensor_argument(&node.op)) {
                Some(spec) => {
                    spec.check(self.partitioner.mesh, node.spec.shape.rank())?;
                    spec.clone()
                }
                None => P::default(),
            };
            self.decisions[id.index()] = Some(Decision::new(vec![], found, None, false));
        }
        Ok(())
    }

    fn decided(&self, id: NodeId) -> &Decision {
        self.decisions[id.index()].as_ref().expect("operands are decided first")
    }

    /// Sets a decision. True if users see another spec.
    fn replace(&mut self, id: NodeId, mut decision: Decision) -> bool {
        let (mesh, fixed) = (self.partitioner.mesh, self.graph.partition(id));
        decision.fixed = fixed.map(|spec| opened(mesh, spec, &decision.found));
        let place = &mut self.decisions[id.index()];
        decision.combined = place.as_ref().is_some_and(|old| old.combined);
        let is_new = place.as_ref().is_none_or(|old| old.shown() != decision.shown());
        *place = Some(decision);
        is_new
    }

    fn decide(&mut self, node: &Node, towards: Option<&P>) -> Result<Decision> {
        let specs: Vec<P> = node.inputs.iter().map(|&i| self.decided(i).shown()).collect();
        let graph = self.graph;
        let operands = specs.iter().zip(node.inputs.iter().map(|&i| graph.spec(i)));
        let operands: Vec<(&P, &TensorSpec)> = operands.collect();
        self.partitioner.decision(&node.op, &node.spec, &operands, towards)
    }

    fn forward(&mut self) -> Result<()> {
        let graph = self.graph;
        for (id, node) in graph.nodes().filter(|(_, node)| node.op.class() != Class::Leaf) {
            let at = id.index();
            if !self.live[at] || !node.inputs.iter().any(|i| self.changed[i.index()]) {
                continue;
            }
            let decision = match self.towards[at].clone() {
                Some(towards) => self.decide(node, Some(&towards))?,
                None => self.decide(node, None)?,
            };
            self.changed[at] |= self.replace(id, decision);
        }
        self.changed.fill(false);
        Ok(())
    }

    /// Decides what users want. True if that changes a value.
    fn backward(&mut self) -> Result<bool> {
        let graph = self.graph;
        let mut wants = vec![Wants::default(); graph.len()];
        for (id, wanted) in graph.outputs().iter().zip(self.outputs) {
            let found = &self.decided(*id).found;
            let want = match wanted {
                Some(spec) => opened(self.partitioner.mesh, spec, found),
                None => without_partial(found),
            };
            wants[id.index()].add(&want, found);
        }
        let mut any = false;
        for (id, node) in graph.nodes().rev() {
            let at = id.index();
            if !self.live[at] {
                continue;
            }
            let mut want = std::mem::take(&mut wants[at]);
            let decision = self.decisions[at].as_mut().expect("live nodes are decided");
            if let Some(fixed) = &decision.fixed {
                want = Wants::default();
                want.add(fixed, &decision.found);
            }
            if want.combined && !decision.combined {
                (decision.combined, self.changed[at], any) = (true, true, true);
            }
            if decision.combined
                && let Some(operand) = self.combined_before(id)
            {
                wants[operand.index()].combined = true;
            }
            if let Some(cut) = want.agreed()
                && self.towards[at].is_none()
                && self.follows(id, node, cut)?
            {
                (self.towards[at], self.changed[at], any) = (Some(cut.clone()), true, true);
            }
            for (at, operand) in node.inputs.iter().enumerate() {
                let (want, found) = (&self.decided(id).wanted[at], &self.decided(*operand).found);
                wants[operand.index()].add(want, found);
            }
        }
        Ok(any)
    }

    /// The operand that is combined instead of a result: the only partial one, if it is not larger.
    fn combined_before(&self, id: NodeId) -> Option<NodeId> {
        let (node, decision) = (self.graph.node(id), self.decided(id));
        let partial = |i: &&NodeId| !self.decided(**i).shown().partial.is_empty();
        let mut operands = node.inputs.iter().filter(partial);
        let operand = *operands.next().filter(|_| !decision.reduces)?;
        let bytes = |id: NodeId| self.graph.spec(id).size_bytes();
        (operands.all(|other| *other == operand) && bytes(operand) <= bytes(id)).then_some(operand)
    }

    /// Computes a value in the parts that its users want, if that only needs slices of its operands.
    fn follows(&mut self, id: NodeId, node: &Node, cut: &P) -> Result<bool> {
        if node.op.class() == Class::Leaf {
            return Ok(self.opens(id, node, cut));
        }
        let found = &self.decided(id).found;
        if !refines(cut, found) || without_partial(found) == *cut {
            return Ok(false);
        }
        let decision = self.decide(node, Some(cut))?;
        let (found, wanted) = (&decision.found, node.inputs.iter().zip(&decision.wanted));
        let fits = found.partial.is_empty()
            && without_partial(found) == *cut
            && wanted.into_iter().all(|(i, to)| refines(to, &self.decided(*i).shown()));
        if fits {
            self.replace(id, decision);
        }
        Ok(fits)
    }

    /// Gives a leaf that nobody holds the cut that its users want, and an argument where its
    /// dimensions are open. True if that changes it.
    fn opens(&mut self, id: NodeId, node: &Node, cut: &P) -> bool {
        let mesh = self.partitioner.mesh;
        let decision = self.decisions[id.index()].as_mut().expect("leaves are decided first");
        let found = match is_tensor_argument(&node.op) {
            true => opened(mesh, &decision.found, cut),
            false => cut.clone(),
        };
        let is_new = found != decision.found;
        decision.found = found;
        is_new
    }
}
