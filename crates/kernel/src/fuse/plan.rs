//! The fusion plan: the values that are in memory, and the kernels to build.
//!
//! Nodes are visited consumers first. Each consumer adds its requirements to its operands (a
//! [`Demand`]). When a node is visited, its demand is complete: the node either joins the kernels
//! that consume it, or gets memory and a kernel of its own. A third case is a value that the first
//! kernel to need it computes and stores for the others.
//!
//! Kernels run by ascending root, and a kernel needs only nodes that precede its root. So there are
//! no cycles, and the first consumer is the kernel with the smallest root.

mod library;
mod rematerialise;

use super::cost::{self, RecomputeCost};
use super::{FusionOptions, LowerError, Lowering, Refusal, Refusals, Refused, operand};
use crate::Target;
use crate::ir::KernelProgram;
use girih_ir::{Attrs, Class, Graph, Node, NodeId, OpCode};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The part of its root that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupRole {
    /// The root's value.
    Value,
    /// An operand of a concat or pad, stored into a part of the root.
    Part {
        /// The position of the operand.
        operand: usize,
        /// The index along the axis at which a concat's operand starts.
        start: usize,
    },
    /// The padding value at every element of the root.
    Fill,
    /// A scatter's updates, added into the root.
    Scatter,
    /// The results of a library routine, a branch or a loop. The root is the first of them in the
    /// graph.
    Library,
}

/// A kernel to be built.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The node whose memory the kernel writes.
    pub root: NodeId,
    /// The part of the root that the kernel computes.
    pub role: GroupRole,
    /// The reduction or GEMM of the kernel.
    pub core: Option<NodeId>,
    /// Further nodes that the kernel stores.
    pub stores: SmallVec<[NodeId; 1]>,
    /// The number of nodes that the kernel computes.
    nodes: u32,
}

impl Group {
    /// A kernel of one node.
    pub fn new(root: NodeId, role: GroupRole, core: Option<NodeId>) -> Group {
        Group { root, role, core, stores: SmallVec::new(), nodes: 1 }
    }
}

/// The set of kernels that compute a value inline, in the detail that the plan needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum FusedInto {
    #[default]
    None,
    One(u32),
    Two(u32, u32),
    Many,
}

impl FusedInto {
    fn add(&mut self, kernel: u32) {
        *self = match *self {
            FusedInto::None => FusedInto::One(kernel),
            FusedInto::One(a) if a != kernel => FusedInto::Two(a, kernel),
            FusedInto::Two(a, b) if a != kernel && b != kernel => FusedInto::Many,
            same => same,
        };
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        let (a, b) = match self {
            FusedInto::One(a) => (Some(a), None),
            FusedInto::Two(a, b) => (Some(a), Some(b)),
            FusedInto::None | FusedInto::Many => (None, None),
        };
        a.into_iter().chain(b)
    }
}

/// The first kernel, in execution order, of the kernels that consume a value, inline or from
/// memory. Kernels are planned in reverse, so it is the kernel with the largest number.
#[derive(Clone, Copy, Debug)]
struct First {
    kernel: u32,
    /// Whether the kernel needs each element once, in order, in its body.
    in_order: bool,
}

/// The combined requirements of a node's consumers.
#[derive(Clone, Copy, Debug, Default)]
struct Demand {
    /// The kernels that compute the value inline.
    fused_into: FusedInto,
    /// Whether any consumer needs the value.
    wanted: bool,
    /// Whether a consumer reads the value from memory.
    memory: bool,
    /// Whether a consumer needs the value dense and in order, so that a view does not suffice.
    dense: bool,
    /// Whether the value is an output of the graph.
    output: bool,
    /// Whether a kernel does not need the value at each point once and in order.
    scattered: bool,
    /// Whether a reduction's prologue needs the value.
    prologue: bool,
    /// Whether anything else than a reduction's prologue needs the value.
    body: bool,
    /// The largest number of points at which one kernel needs the value.
    points: usize,
    /// The first kernel that consumes the value.
    first: Option<First>,
}

impl Demand {
    /// The demand of a kernel on the value that its body ends with.
    fn of_root(kernel: u32, points: usize) -> Demand {
        let (fused_into, first) = (FusedInto::One(kernel), Some(First { kernel, in_order: true }));
        Demand { fused_into, wanted: true, body: true, points, first, ..Demand::default() }
    }

    /// The demand of a kernel that reads memory.
    fn memory(kernel: u32) -> Demand {
        let first = Some(First { kernel, in_order: false });
        Demand { wanted: true, memory: true, first, ..Demand::default() }
    }

    /// The demand of a library routine on its operands.
    fn dense(kernel: u32) -> Demand {
        Demand { dense: true, ..Demand::memory(kernel) }
    }

    /// The same demand, but out of order.
    fn scattered(mut self) -> Demand {
        self.scattered = true;
        if let Some(first) = &mut self.first {
            first.in_order = false;
        }
        self
    }

    fn merge(&mut self, other: Demand) {
        match other.fused_into {
            FusedInto::Many => self.fused_into = FusedInto::Many,
            fused_into => fused_into.iter().for_each(|h| self.fused_into.add(h)),
        }
        self.wanted |= other.wanted;
        self.memory |= other.memory;
        self.dense |= other.dense;
        self.output |= other.output;
        self.scattered |= other.scattered;
        self.prologue |= other.prologue;
        self.body |= other.body;
        self.points = self.points.max(other.points);
        self.first = match (self.first, other.first) {
            (Some(a), Some(b)) if a.kernel == b.kernel => {
                Some(First { kernel: a.kernel, in_order: a.in_order && b.in_order })
            }
            (Some(a), Some(b)) => Some(if a.kernel > b.kernel { a } else { b }),
            (a, b) => a.or(b),
        };
    }
}

/// The finished plan.
pub(super) struct Plan {
    /// The fusions that are allowed.
    pub options: FusionOptions,
    /// Kernels, by descending root.
    pub groups: Vec<Group>,
    /// The nodes that have memory of their own. A reshape never has: it shares the memory of its
    /// operand.
    pub memory: Vec<bool>,
    /// The root of the kernel that stores a node's value although the kernel computes another
    /// value. Kernels of later roots load the stored value.
    pub stored: Vec<Option<NodeId>>,
    /// The programs of branches and loops, by the root of their kernel.
    pub programs: FxHashMap<NodeId, Vec<KernelProgram>>,
    /// The recorded refusals, if they are recorded.
    pub refusals: Refusals,
}

impl Plan {
    /// Plans a graph.
    ///
    /// Errors: [`LowerError::Composite`], if the outputs depend on one; [`LowerError::Unsupported`].
    pub fn new(lowering: Lowering<'_>, refusals: Refusals) -> Result<Plan, LowerError> {
        let Lowering { graph, options, target } = lowering;
        if let Some((node, lacking)) = target.lacking(graph) {
            let op = graph.node(node).op.name();
            return Err(LowerError::Unsupported { node, op, lacking });
        }
        let uses = live_uses(graph);
        let mut recompute_costs: Vec<RecomputeCost> = Vec::with_capacity(graph.len());
        for id in graph.ids() {
            let recompute = cost::recompute(graph, target, id, &uses, &recompute_costs);
            recompute_costs.push(recompute);
        }
        let demands = vec![Demand::default(); graph.len()];
        let memory = vec![false; graph.len()];
        let stored = vec![None; graph.len()];
        let programs = FxHashMap::default();
        let plan = Plan { options, groups: Vec::new(), memory, stored, programs, refusals };
        let leaders = library::leaders(graph);
        let mut planner =
            Planner { graph, target, recompute_costs, demands, plan, leaders, results: vec![] };
        for output in graph.outputs() {
            let demand = Demand { wanted: true, output: true, ..Demand::default() };
            planner.demands[output.index()].merge(demand);
        }
        for (id, node) in graph.nodes().rev() {
            planner.visit(id, node)?;
        }
        Ok(planner.plan)
    }

    /// Records a refusal.
    pub fn refuse(&mut self, node: NodeId, reason: Refusal) {
        if let Some(refusals) = &mut self.refusals {
            refusals.push(Refused { node, reason, consumer: None });
        }
    }
}

struct Planner<'g> {
    graph: &'g Graph,
    target: &'g Target,
    recompute_costs: Vec<RecomputeCost>,
    demands: Vec<Demand>,
    plan: Plan,
    /// For each result of a library routine, the first result of the same call.
    leaders: FxHashMap<NodeId, NodeId>,
    /// Demanded results whose leaders have not been visited.
    results: Vec<NodeId>,
}

impl<'g> Planner<'g> {
    fn lowering(&self) -> Lowering<'g> {
        Lowering { graph: self.graph, options: self.plan.options, target: self.target }
    }

    fn visit(&mut self, id: NodeId, node: &Node) -> Result<(), LowerError> {
        let demand = self.demands[id.index()];
        if matches!(node.op.code, OpCode::Input | OpCode::Parameter) {
            self.plan.memory[id.index()] = true;
        }
        if self.leaders.contains_key(&id) {
            return self.library(id, node, demand);
        }
        if !demand.wanted || self.plan.memory[id.index()] {
            return Ok(());
        }
        match node.op.class() {
            Class::Composite => {
                return Err(LowerError::Composite { node: id, op: node.op.name() });
            }
            // A reshape is its operand with another shape, so it passes its demand on.
            Class::Reshape => self.demands[node.inputs[0].index()].merge(demand),
            // Nothing is computed, so the operands are not needed.
            _ if node.spec.numel() == 0 => self.plan.memory[id.index()] = true,
            Class::Leaf => self.leaf(id, node, demand),
            Class::View => self.view(id, node, demand),
            Class::Reduction | Class::Contraction => self.core(id, node, demand),
            Class::Combine => self.combine(id, node, demand),
            Class::Index if is_scatter(node) => self.scatter(id, node, demand),
            Class::Elementwise | Class::Index => self.elementwise(id, node, demand),
            Class::Library | Class::Control => {
                unreachable!("live results that have elements have leaders")
            }
        }
        Ok(())
    }

    /// Gives a node memory and adds its kernel.
    fn root(&mut self, id: NodeId, role: GroupRole) -> u32 {
        self.plan.memory[id.index()] = true;
        self.plan.groups.push(Group::new(id, role, None));
        self.plan.groups.len() as u32 - 1
    }

    fn refuse(&mut self, id: NodeId, demand: Demand, reason: Refusal) {
        // An output without consumers is not a missed fusion.
        if demand.fused_into != FusedInto::None || demand.memory {
            self.plan.refuse(id, reason);
        }
    }

    fn leaf(&mut self, id: NodeId, node: &Node, demand: Demand) {
        let verdict = if demand.memory || demand.output {
            Err(Refusal::Memory)
        } else if node.op.is_random() {
            self.joins(id, node, demand)
        } else {
            Ok(())
        };
        if let Err(reason) = verdict
            && self.becomes_extra_output(id, node, demand, reason).is_none()
        {
            self.refuse(id, demand, reason);
            self.root(id, GroupRole::Value);
        }
    }

    /// The kernel that computes and stores a value which other kernels load because not all of them
    /// can compute it inline: the first kernel that needs the value, if that kernel needs it in
    /// order. No other kernel needs the value earlier.
    fn becomes_extra_output(
        &mut self,
        id: NodeId,
        node: &Node,
        demand: Demand,
        reason: Refusal,
    ) -> Option<u32> {
        let first = demand.first.filter(|f| f.in_order)?;
        let elementwise = !matches!(node.op.class(), Class::Reduction | Class::Contraction);
        let group = &self.plan.groups[first.kernel as usize];
        let pays = !self.recompute_costs[id.index()].epilogue || group.core.is_none();
        let fixed = matches!(reason, Refusal::Disabled | Refusal::KernelSize | Refusal::CoreTaken);
        let off = elementwise && !self.plan.options.elementwise;
        if !pays || fixed || off || group.nodes >= self.target.max_nodes {
            return None;
        }
        self.plan.stored[id.index()] = Some(group.root);
        let group = &mut self.plan.groups[first.kernel as usize];
        group.nodes += 1;
        group.stores.push(id);
        Some(first.kernel)
    }

    fn view(&mut self, id: NodeId, node: &Node, demand: Demand) {
        let operand = node.inputs[0].index();
        if demand.output || demand.dense || !self.plan.options.views {
            let reason = match () {
                _ if demand.output => Refusal::Output,
                _ if demand.dense => Refusal::Memory,
                _ => Refusal::Disabled,
            };
            self.refuse(id, demand, reason);
            let kernel = self.root(id, GroupRole::Value);
            let asked = Demand::of_root(kernel, node.spec.numel());
            return self.demands[operand].merge(asked.scattered());
        }
        self.demands[operand].merge(demand.scattered());
    }

    /// Decides whether the kernels that consume a value compute it.
    fn joins(&self, id: NodeId, node: &Node, demand: Demand) -> Result<(), Refusal> {
        let options = self.plan.options;
        if demand.memory {
            return Err(Refusal::Memory);
        }
        if demand.output && (demand.scattered || !matches!(demand.fused_into, FusedInto::One(_))) {
            return Err(Refusal::Output);
        }
        if (demand.prologue && !options.reduction_prologue) || (demand.body && !options.elementwise)
        {
            return Err(Refusal::Disabled);
        }
        let groups = &self.plan.groups;
        if demand.fused_into.iter().any(|h| groups[h as usize].nodes >= self.target.max_nodes) {
            return Err(Refusal::KernelSize);
        }
        if demand.points > node.spec.numel() && self.target.is_expensive(node.op.code) {
            return Err(Refusal::Broadcast);
        }
        let recompute = self.recompute_costs[id.index()];
        let alone = matches!(demand.fused_into, FusedInto::None | FusedInto::One(_));
        if recompute.epilogue && (demand.scattered || !alone) {
            return Err(if alone { Refusal::Space } else { Refusal::Shared });
        }
        let reduction = |h: u32| {
            let core = groups[h as usize].core;
            core.is_some_and(|c| self.graph.node(c).op.class() == Class::Reduction)
        };
        let limits = &self.target.recompute;
        let (cost, loads) = match demand.fused_into {
            FusedInto::None | FusedInto::One(_) => return Ok(()),
            FusedInto::Two(a, b) if demand.prologue && reduction(a) != reduction(b) => {
                (limits.max_cost_in_reduction, limits.max_loads)
            }
            FusedInto::Two(..) => (limits.max_cost, limits.max_loads),
            FusedInto::Many => (limits.max_cost, limits.max_loads_of_many),
        };
        let cheap = recompute.cost <= cost
            && recompute.loads <= loads
            && recompute.depth <= limits.max_depth;
        if cheap || self.is_cheaper_to_rematerialise(id, node, demand) {
            Ok(())
        } else {
            Err(Refusal::Shared)
        }
    }

    fn elementwise(&mut self, id: NodeId, node: &Node, demand: Demand) {
        let asked = match self.joins(id, node, demand) {
            Ok(()) if demand.fused_into != FusedInto::None => {
                demand.fused_into.iter().for_each(|h| self.plan.groups[h as usize].nodes += 1);
                if let (true, FusedInto::One(kernel)) = (demand.output, demand.fused_into) {
                    self.plan.groups[kernel as usize].stores.push(id);
                }
                Demand { output: false, ..demand }
            }
            verdict => {
                let reason = verdict.err().unwrap_or(Refusal::Output);
                let kernel =
                    self.becomes_extra_output(id, node, demand, reason).unwrap_or_else(|| {
                        self.refuse(id, demand, reason);
                        self.root(id, GroupRole::Value)
                    });
                Demand::of_root(kernel, node.spec.numel())
            }
        };
        let numel = node.spec.numel();
        for (i, &input) in node.inputs.iter().enumerate() {
            if is_gather(node) && i == 0 {
                let kernel = asked.first.map_or(0, |f| f.kernel);
                self.demands[input.index()].merge(Demand::memory(kernel));
                continue;
            }
            // An operand with as many elements is broadcast at most along axes of size one, so the
            // order is the same.
            let in_order = !is_gather(node) && self.graph.spec(input).numel() == numel;
            let points = asked.points.max(numel);
            let asked = Demand { points, ..asked };
            self.demands[input.index()].merge(if in_order { asked } else { asked.scattered() });
        }
    }

    /// Decides whether a reduction or GEMM is computed by the kernel of its consumers.
    fn becomes_core(&self, node: &Node, demand: Demand) -> Result<u32, Refusal> {
        let options = self.plan.options;
        let on = match node.op.class() {
            Class::Reduction => options.reduction_epilogue,
            _ => options.matmul_epilogue,
        };
        let Some(First { kernel, in_order }) = demand.first else { return Err(Refusal::Output) };
        let group = &self.plan.groups[kernel as usize];
        match () {
            _ if demand.fused_into == FusedInto::None => Err(Refusal::Memory),
            _ if !on => Err(Refusal::Disabled),
            _ if !in_order => Err(Refusal::Space),
            _ if group.core.is_some() => Err(Refusal::CoreTaken),
            _ if group.nodes >= self.target.max_nodes => Err(Refusal::KernelSize),
            _ => Ok(kernel),
        }
    }

    fn core(&mut self, id: NodeId, node: &Node, demand: Demand) {
        let empty = is_empty_reduction(self.graph, node);
        let kernel = match self.becomes_core(node, demand) {
            Ok(kernel) if !empty => {
                // Other kernels load the value, which the first kernel to need it stores.
                let alone = demand.fused_into == FusedInto::One(kernel) && !demand.scattered;
                if demand.output || demand.memory || !alone {
                    let group = &mut self.plan.groups[kernel as usize];
                    group.stores.push(id);
                    self.plan.stored[id.index()] = Some(group.root);
                }
                kernel
            }
            // The identity of a reduction over no elements is a constant.
            _ if empty && !demand.memory && !demand.output => return,
            verdict => {
                if let Err(reason) = verdict {
                    self.refuse(id, demand, reason);
                }
                self.root(id, GroupRole::Value)
            }
        };
        if empty {
            return;
        }
        let group = &mut self.plan.groups[kernel as usize];
        group.core = Some(id);
        group.nodes += 1;
        if node.op.class() == Class::Contraction {
            for &input in &node.inputs {
                let source = operand::source(self.graph, input, self.plan.options);
                self.demands[source.index()].merge(Demand::memory(kernel));
            }
            return;
        }
        let points = self.graph.spec(node.inputs[0]).numel();
        let asked = Demand { prologue: true, body: false, ..Demand::of_root(kernel, points) };
        self.demands[node.inputs[0].index()].merge(asked.scattered());
    }

    fn combine(&mut self, id: NodeId, node: &Node, demand: Demand) {
        self.refuse(id, demand, Refusal::Parts);
        let along = |input: NodeId| match node.op.attrs {
            Attrs::Axis(axis) => self.graph.spec(input).shape[axis as usize],
            _ => 0,
        };
        let mut start: usize = node.inputs.iter().map(|&i| along(i)).sum();
        // Kernels are built in reverse, so the last one runs first.
        for (operand, &input) in node.inputs.iter().enumerate().rev() {
            let numel = self.graph.spec(input).numel();
            start -= along(input);
            if numel > 0 {
                let kernel = self.root(id, GroupRole::Part { operand, start });
                self.demands[input.index()].merge(Demand::of_root(kernel, numel));
            }
        }
        let full = self.graph.spec(node.inputs[0]).numel() == node.spec.numel();
        if node.op.code == OpCode::Pad && !full {
            self.root(id, GroupRole::Fill);
        }
    }

    fn scatter(&mut self, id: NodeId, node: &Node, demand: Demand) {
        self.refuse(id, demand, Refusal::Parts);
        let Scattered { onto, indices, updates } = scattered(node);
        let numel = self.graph.spec(updates).numel();
        // Kernels are built in reverse: the tensor scattered into is stored before the updates are.
        if numel > 0 || onto.is_none() {
            let kernel = self.root(id, GroupRole::Scatter);
            if numel > 0 {
                self.demands[indices.index()].merge(Demand::memory(kernel));
                let asked = Demand::of_root(kernel, numel);
                self.demands[updates.index()].merge(asked.scattered());
            }
        }
        if let Some(onto) = onto {
            let kernel = self.root(id, GroupRole::Part { operand: 0, start: 0 });
            self.demands[onto.index()].merge(Demand::of_root(kernel, node.spec.numel()));
        }
    }
}

/// The number of uses of each node: as an operand of a live node, or as an output.
fn live_uses(graph: &Graph) -> Vec<u32> {
    let live = graph.live();
    let mut uses = vec![0; graph.len()];
    graph.outputs().iter().for_each(|o| uses[o.index()] += 1);
    for (_, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        node.inputs.iter().for_each(|i| uses[i.index()] += 1);
    }
    uses
}

/// The operands of a scatter.
pub(super) struct Scattered {
    /// The tensor that the updates are combined with; `None` for zeros.
    pub onto: Option<NodeId>,
    pub indices: NodeId,
    pub updates: NodeId,
}

/// The operands of an op for which [`is_scatter`] holds.
pub(super) fn scattered(node: &Node) -> Scattered {
    match *node.inputs.as_slice() {
        [indices, updates] => Scattered { onto: None, indices, updates },
        [onto, indices, updates] => Scattered { onto: Some(onto), indices, updates },
        _ => unreachable!("a scatter has two or three operands"),
    }
}

/// Whether the op writes at positions given by indices.
pub(super) fn is_scatter(node: &Node) -> bool {
    matches!(node.op.attrs, Attrs::Scatter { .. } | Attrs::ScatterInto { .. })
}

/// Whether the op reads at positions given by indices.
fn is_gather(node: &Node) -> bool {
    node.op.class() == Class::Index && node.inputs.len() == 2 && !is_scatter(node)
}

/// Whether the node is a reduction or GEMM that has results but combines no elements.
pub(super) fn is_empty_reduction(graph: &Graph, node: &Node) -> bool {
    node.spec.numel() > 0 && graph.spec(node.inputs[0]).numel() == 0
}
