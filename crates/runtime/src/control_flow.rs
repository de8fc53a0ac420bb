//! Control flow by the host, for devices without loops or branches of their own. A back end that
//! wraps the device's back end: its plans have branches and loops as steps, and these steps call
//! the plans of the straight-line graphs between them.
//!
//! A graph is cut into *stages*. The segment of a stage has all ops that depend only on control ops
//! of earlier stages; the control ops of a stage run after its segment. The wrapped back end lowers
//! segments and regions without control ops; this back end lowers regions with control ops. One
//! block of temporaries of the outermost plan holds all values that pass between segments.

use crate::plan::{Callee, OutputSource, OutputSpec, PlannedBuffer};
use crate::symbolic::OptimizedGraph;
use crate::{
    ArgumentSpec, Backend, CompileOptions, CompileReport, Error, ExecutionPlan, HostStep, Listing,
    MovingPart, Operation, Placement, Result, Step, allocator,
};
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::{DType, Graph, GraphBuilder, Node, NodeId};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

mod memory;
mod stages;
use memory::Temporaries;
use stages::{Group, StageRole, Stages, group_time, role, segment_time};

/// The maximum number of branches of one op, because a step numbers branches by a byte.
const MAX_BRANCHES: usize = 256;

/// A back end whose plans execute branches and loops on the host.
pub struct HostControlFlow {
    inside: Arc<dyn Backend>,
}

impl HostControlFlow {
    /// Wraps `inside`, which only lowers graphs without control ops.
    pub fn new(inside: Arc<dyn Backend>) -> HostControlFlow {
        HostControlFlow { inside }
    }

    /// The plan of a region or segment, to which the passes have already been applied, with its facts.
    fn straight(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        let arguments: Vec<usize> = (0..graph.arguments().count()).collect();
        let mut plan = self.lower(graph, graph, &arguments, options)?;
        plan.facts = plan.find_facts().map_err(Error::Compile)?;
        Ok(plan)
    }
}

impl Backend for HostControlFlow {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan> {
        Ok(self.compile_listed(graph, options)?.0)
    }

    fn compile_listed(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Listing)> {
        let start = std::time::Instant::now();
        let OptimizedGraph { graph: optimized, live_arguments } =
            self.inside.optimize(graph, options)?;
        let optimize = start.elapsed();
        let mut plan = self.lower(graph, &optimized, &live_arguments, options)?;
        plan.times.optimize = optimize;
        let listing = Listing::of_plan(&optimized, &plan);
        Ok((plan, listing))
    }

    fn explain(
        &self,
        graph: &Graph,
        options: CompileOptions,
        addresses: &[Option<usize>],
    ) -> Result<CompileReport> {
        let OptimizedGraph { graph: optimized, live_arguments } =
            self.inside.optimize(graph, options)?;
        if !has_control(&optimized) {
            return self.inside.explain(graph, options, addresses);
        }
        let (plan, listing) = self.compile_listed(graph, options)?;
        Ok(CompileReport { live_arguments, ..CompileReport::of_plan(graph, plan, listing) })
    }

    fn optimize(&self, graph: &Graph, options: CompileOptions) -> Result<OptimizedGraph> {
        self.inside.optimize(graph, options)
    }

    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        if !has_control(optimized) {
            return self.inside.lower(original, optimized, live_arguments, options);
        }
        let stages = Stages::of(optimized);
        Assembly::new(self, options, original, optimized, live_arguments, &stages).plan()
    }

    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        self.inside.restore(bytes)
    }

    fn forget(&self) {
        self.inside.forget();
    }

    fn fingerprint(&self) -> String {
        format!("host control flow, {}", self.inside.fingerprint())
    }
}

/// Whether a graph has branches or loops.
fn has_control(graph: &Graph) -> bool {
    graph.nodes().any(|(_, node)| node.op.as_control().is_some())
}

/// A plan under construction.
struct Assembly<'a> {
    backend: &'a HostControlFlow,
    options: CompileOptions,
    graph: &'a Graph,
    stages: &'a Stages,
    plan: ExecutionPlan,
    temporaries: Temporaries,
    /// For each node, the buffer that holds its value.
    buffers: Vec<Option<usize>>,
    /// For each node, the plan's argument that is its scalar or random key.
    words: Vec<Option<usize>>,
    /// The time at which the steps under construction run.
    time: usize,
}

/// An argument of a callee.
#[derive(Clone, Copy)]
enum Given {
    /// The value in the plan's buffer with this index.
    Buffer(usize),
    /// The plan's scalar or random key with this argument index.
    Word(usize),
}

impl<'a> Assembly<'a> {
    fn new(
        backend: &'a HostControlFlow,
        options: CompileOptions,
        original: &Graph,
        graph: &'a Graph,
        live_arguments: &[usize],
        stages: &'a Stages,
    ) -> Assembly<'a> {
        let arguments = ArgumentSpec::of_graph(original);
        let plan = ExecutionPlan { arguments, ..ExecutionPlan::default() };
        let none = || vec![None; graph.len()];
        let (buffers, words, temporaries) = (none(), none(), Temporaries::default());
        let mut assembly = Assembly {
            backend,
            options,
            graph,
            stages,
            plan,
            temporaries,
            buffers,
            words,
            time: 0,
        };
        for (id, &argument) in graph.arguments().zip(live_arguments) {
            if role(graph.node(id)) == StageRole::Argument {
                let placement = Placement::Argument(argument);
                let size = graph.spec(id).size_bytes();
                assembly.buffers[id.index()] = Some(assembly.buffer(placement, size));
            } else {
                assembly.words[id.index()] = Some(argument);
            }
        }
        assembly
    }

    fn plan(mut self) -> Result<ExecutionPlan> {
        for stage in 0..self.stages.count {
            self.time = segment_time(stage);
            self.segment(stage)?;
            self.time = group_time(stage);
            for group in self.stages.groups.iter().filter(|group| group.stage == stage) {
                let name = self.graph.node(group.results[0]).op.name().to_string();
                let steps = self.control(group)?;
                self.plan.operations.push(Operation::steps(name, steps));
            }
        }
        let output = |id: &NodeId| OutputSpec {
            spec: self.graph.spec(*id).clone(),
            buffer: self.buffers[id.index()].expect("every output was computed"),
        };
        self.plan.outputs = self.graph.outputs().iter().map(output).collect();
        self.plan.temporary_bytes = self.temporaries.place(&mut self.plan.buffers);
        Ok(self.plan)
    }

    fn buffer(&mut self, placement: Placement, size_bytes: usize) -> usize {
        self.plan.buffers.push(PlannedBuffer { placement, size_bytes });
        self.plan.buffers.len() - 1
    }

    /// A temporary buffer that is live from now until the time `last`.
    fn temporary(&mut self, size: usize, last: usize) -> usize {
        let buffer = self.buffer(Placement::Temporary(0), size);
        self.temporaries.add(size, (self.time, last), &[(buffer, 0)]);
        buffer
    }

    fn slot(&mut self, bytes: usize) -> usize {
        self.plan.slots.push(bytes);
        self.plan.slots.len() - 1
    }

    /// Allocates the buffer for the value of a node.
    fn value(&mut self, id: NodeId) -> usize {
        let size = self.graph.spec(id).size_bytes();
        let buffer = match self.graph.outputs().contains(&id) {
            true => self.buffer(Placement::Output, size),
            false => self.temporary(size, self.stages.last_use[id.index()].max(self.time)),
        };
        self.buffers[id.index()] = Some(buffer);
        buffer
    }

    /// Adds the operation that computes a stage's values for control ops, later stages and the
    /// caller.
    fn segment(&mut self, stage: usize) -> Result<()> {
        let graph = self.graph;
        let (mut needed, mut results) = (vec![false; graph.len()], Vec::new());
        for &id in &self.stages.in_memory {
            // The first segment that can do so puts a leaf into memory.
            if self.stages.stage[id.index()] == stage && self.buffers[id.index()].is_none() {
                needed[id.index()] = true;
                results.push(id);
            }
        }
        if results.is_empty() {
            return Ok(());
        }
        for (id, node) in graph.nodes().rev() {
            let computed =
                role(node) == StageRole::Segment && self.stages.stage[id.index()] == stage;
            if needed[id.index()] && computed {
                node.inputs.iter().for_each(|i| needed[i.index()] = true);
            }
        }
        let mut b = GraphBuilder::default();
        let (mut map, mut given) = (vec![None; graph.len()], Vec::new());
        for (id, node) in graph.nodes().filter(|(id, _)| needed[id.index()]) {
            let here = self.stages.stage[id.index()] == stage;
            map[id.index()] = Some(match role(node) {
                role if role == StageRole::Copied || (role == StageRole::Segment && here) => {
                    let inputs = node.inputs.iter();
                    let inputs = inputs.map(|i| map[i.index()].expect("inputs come first"));
                    given.extend(self.words[id.index()].map(Given::Word));
                    b.append(Node { inputs: inputs.collect(), ..node.clone() })
                }
                _ => {
                    let buffer = self.buffers[id.index()].expect("earlier stages are computed");
                    given.push(Given::Buffer(buffer));
                    b.input(node.spec.clone())
                }
            });
        }
        let outputs = results.iter().map(|id| map[id.index()].expect("results are needed"));
        let segment = b.finish(outputs.collect::<Vec<_>>());
        let targets: Vec<usize> = results.iter().map(|&id| self.value(id)).collect();
        let plan = self.backend.straight(&segment, self.options)?;
        let steps = self.call(plan, &given, &targets)?;
        self.plan.operations.push(Operation::steps("segment", steps));
        Ok(())
    }

    /// The steps that run a plan with the arguments `given` and leave its results in `targets`. A
    /// target may be an argument's buffer if the plan may write the result over the argument.
    fn call(
        &mut self,
        plan: ExecutionPlan,
        given: &[Given],
        targets: &[usize],
    ) -> Result<Vec<Step>> {
        self.plan.times.codegen += plan.times.codegen;
        self.plan.times.compile += plan.times.compile;
        self.plan.cost_ns = self.plan.cost_ns.saturating_add(plan.cost_ns);
        let argument = |at: usize| match given[at] {
            Given::Buffer(buffer) => Some(buffer),
            Given::Word(_) => None,
        };
        let mut buffers: Vec<Option<usize>> = Vec::with_capacity(plan.buffers.len());
        let mut temporaries = Vec::new();
        for buffer in &plan.buffers {
            buffers.push(match buffer.placement {
                Placement::Argument(at) => argument(at),
                Placement::Temporary(at) => {
                    let placed = self.buffer(Placement::Temporary(at), buffer.size_bytes);
                    temporaries.push((placed, at));
                    Some(placed)
                }
                Placement::Output | Placement::Unused => None,
            });
        }
        self.temporaries.add(plan.temporary_bytes, (self.time, self.time), &temporaries);
        let mut steps = Vec::new();
        if !plan.operations.is_empty() {
            steps.push(Step::Call(self.plan.callees.len()));
        }
        let sources = plan.outputs.iter().zip(&plan.facts.output_sources);
        for ((output, source), &target) in sources.zip(targets) {
            let from = match *source {
                OutputSource::New(_) => {
                    buffers[output.buffer] = Some(target);
                    continue;
                }
                OutputSource::Output(earlier) => targets[earlier],
                OutputSource::Argument(at) => argument(at).expect("results are tensors"),
            };
            steps.extend(copy(from, target, output.spec.size_bytes()));
        }
        let word = |given: &Given| match given {
            Given::Word(at) => Some(*at),
            Given::Buffer(_) => None,
        };
        let words = given.iter().map(word).collect();
        if !plan.operations.is_empty() {
            self.plan.callees.push(Callee { plan, buffers: buffers.into(), words });
        }
        Ok(steps)
    }

    /// The steps of a control op.
    fn control(&mut self, group: &Group) -> Result<Vec<Step>> {
        let graph = self.graph;
        let node = graph.node(group.results[0]);
        let (_, control) = node.op.as_control().expect("groups are of control ops");
        let value = |id: &NodeId| self.buffers[id.index()].expect("operands are in memory");
        let operands: Vec<usize> = node.inputs.iter().map(value).collect();
        let mut results = vec![None; control.num_results(node.op.code)];
        for &id in &group.results {
            let (number, _) = graph.node(id).op.as_control().expect("groups are of control ops");
            results[number] = Some(self.value(id));
        }
        let flow = Flow { control, operands, results };
        match node.op.code.control().expect("groups are of control ops") {
            ControlOp::Cond => self.branch(&flow, graph.spec(node.inputs[0]).dtype),
            ControlOp::Call => {
                let (operands, targets) = (flow.operands.clone(), self.targets(&flow));
                self.region(control.body(), &operands, &targets)
            }
            ControlOp::WhileLoop => self.while_loop(&flow),
            ControlOp::Scan => self.scan(&flow),
        }
    }

    /// A buffer for each output of the op's body: the result's buffer, or a temporary for an unused
    /// value.
    fn targets(&mut self, flow: &Flow<'_>) -> Vec<usize> {
        let sizes = sizes(flow.control.body());
        sizes.into_iter().enumerate().map(|(i, size)| self.target(flow, i, size)).collect()
    }

    /// The buffer of a result, or a temporary if nothing needs the result.
    fn target(&mut self, flow: &Flow<'_>, result: usize, size: usize) -> usize {
        let needed = flow.results.get(result).copied().flatten();
        needed.unwrap_or_else(|| self.temporary(size, self.time))
    }

    /// The steps that run a region once.
    fn region(
        &mut self,
        region: &Graph,
        operands: &[usize],
        targets: &[usize],
    ) -> Result<Vec<Step>> {
        let plan = self.backend.straight(region, self.options)?;
        let given: Vec<Given> = operands.iter().copied().map(Given::Buffer).collect();
        self.call(plan, &given, targets)
    }

    fn branch(&mut self, flow: &Flow<'_>, dtype: DType) -> Result<Vec<Step>> {
        let count = flow.control.regions.len();
        if count > MAX_BRANCHES {
            return Err(Error::Compile(format!(
                "a choice between {count} branches; the host chooses between {MAX_BRANCHES} at most"
            )));
        }
        let targets = self.targets(flow);
        let mut branches = Vec::with_capacity(count);
        for region in flow.control.regions.iter() {
            branches.push(self.region(region, &flow.operands[1..], &targets)?.into_boxed_slice());
        }
        let (index, slot) = (self.slot(dtype.size()), self.slot(1));
        let last = count - 1;
        let choose = HostStep::new("choose a branch", move |slots| {
            let number =
                integer(&slots[index].lock().unwrap_or_else(PoisonError::into_inner), dtype);
            let mut chosen = slots[slot].lock().unwrap_or_else(PoisonError::into_inner);
            chosen[0] = number.clamp(0, last as i128) as u8;
            Ok(())
        });
        Ok(vec![
            Step::CopyFromDevice { buffer: flow.operands[0], slot: index },
            Step::Host(choose),
            Step::Branch { slot, branches: branches.into() },
        ])
    }

    /// The buffers of a loop's carries, and the steps that copy the operands there.
    fn carries(&mut self, flow: &Flow<'_>, count: usize) -> (Vec<usize>, Vec<Step>) {
        let sizes = sizes(flow.control.body());
        let (mut states, mut steps) = (Vec::with_capacity(count), Vec::new());
        for (i, &size) in sizes.iter().enumerate().take(count) {
            let state = self.target(flow, i, size);
            steps.extend(copy(flow.operands[i], state, size));
            states.push(state);
        }
        (states, steps)
    }

    fn while_loop(&mut self, flow: &Flow<'_>) -> Result<Vec<Step>> {
        let [condition, body] = &flow.control.regions[..] else {
            return Err(Error::Compile(
                "a while loop must have two regions, a condition and a body".into(),
            ));
        };
        let carries = body.outputs().len();
        let (states, mut steps) = self.carries(flow, carries);
        let taken: Vec<usize> = states.iter().chain(&flow.operands[carries..]).copied().collect();
        let predicate = self.temporary(1, self.time);
        let slot = self.slot(1);
        let mut before = self.region(condition, &taken, &[predicate])?;
        before.push(Step::CopyFromDevice { buffer: predicate, slot });
        let body = self.iteration(body, &taken, &states, &[])?.into();
        steps.push(Step::Loop { condition: before.into(), slot, body });
        Ok(steps)
    }

    /// The steps of an iteration, which reads the carries from `states` and writes them back.
    fn iteration(
        &mut self,
        body: &Graph,
        taken: &[usize],
        states: &[usize],
        others: &[usize],
    ) -> Result<Vec<Step>> {
        let plan = self.backend.straight(body, self.options)?;
        let sources = &plan.facts.output_sources;
        let passed = |i: usize| sources.contains(&OutputSource::Argument(i));
        let sizes = sizes(body);
        let (mut targets, mut back) = (Vec::new(), Vec::new());
        for (i, &state) in states.iter().enumerate() {
            let in_place = match sources[i] {
                // The body may overwrite the carry in place.
                OutputSource::New(Some(argument)) => argument == i && !passed(i),
                OutputSource::Argument(argument) => argument == i,
                _ => false,
            };
            targets.push(match in_place {
                true => state,
                false => {
                    let next = self.temporary(sizes[i], self.time);
                    back.extend(copy(next, state, sizes[i]));
                    next
                }
            });
        }
        targets.extend(others);
        let given: Vec<Given> = taken.iter().copied().map(Given::Buffer).collect();
        let mut steps = self.call(plan, &given, &targets)?;
        steps.extend(back);
        Ok(steps)
    }

    fn scan(&mut self, flow: &Flow<'_>) -> Result<Vec<Step>> {
        let (control, body) = (flow.control, flow.control.body());
        let (carries, slices) = (control.carries as usize, control.slices as usize);
        let times = control.length.get();
        let (states, mut steps) = self.carries(flow, carries);
        // Slice `t` of an array that has a slice for each iteration.
        let part = |buffer: usize, bytes: usize| MovingPart {
            buffer,
            start: if control.reverse { times.saturating_sub(1) * bytes } else { 0 },
            step: if control.reverse { -(bytes as isize) } else { bytes as isize },
        };
        let (mut taken, mut iteration) = (states.clone(), Vec::new());
        let inputs = body.arguments().map(|id| body.spec(id).size_bytes());
        let sliced = flow.operands.iter().copied().zip(inputs).skip(carries).take(slices);
        for (operand, bytes) in sliced {
            let taken_part = self.temporary(bytes, self.time);
            let (source, target) = (part(operand, bytes), MovingPart::fixed(taken_part));
            iteration.push(Step::CopyPart { source, target, bytes });
            taken.push(taken_part);
        }
        taken.extend(&flow.operands[carries + slices..]);
        let (given, sizes) = (body.outputs().len(), sizes(body));
        // A history has the carry's value before each iteration.
        for (carry, &state) in states.iter().enumerate() {
            if let Some(history) = flow.results.get(given + carry).copied().flatten() {
                let (bytes, source) = (sizes[carry], MovingPart::fixed(state));
                iteration.push(Step::CopyPart { source, target: part(history, bytes), bytes });
            }
        }
        let others: Vec<usize> =
            sizes[carries..].iter().map(|&size| self.temporary(size, self.time)).collect();
        iteration.extend(self.iteration(body, &taken, &states, &others)?);
        for (at, &other) in (carries..).zip(&others) {
            if let Some(stacked) = flow.results[at] {
                let (bytes, source) = (sizes[at], MovingPart::fixed(other));
                iteration.push(Step::CopyPart { source, target: part(stacked, bytes), bytes });
            }
        }
        steps.push(Step::Repeat { times, body: iteration.into() });
        Ok(steps)
    }
}

/// A control op with the buffers of its operands and of its results that are used.
struct Flow<'a> {
    control: &'a Control,
    operands: Vec<usize>,
    results: Vec<Option<usize>>,
}

/// The size in bytes of each output of a graph.
fn sizes(graph: &Graph) -> Vec<usize> {
    graph.outputs().iter().map(|&id| graph.spec(id).size_bytes()).collect()
}

/// A step that copies a whole buffer; `None` if source and target are the same.
fn copy(from: usize, to: usize, bytes: usize) -> Option<Step> {
    (from != to).then(|| Step::CopyOnDevice {
        source: (from, 0),
        target: (to, 0),
        run: bytes,
        repeats: SmallVec::new(),
    })
}

/// The value of a bool or an integer of any size, little-endian.
fn integer(bytes: &[u8], dtype: DType) -> i128 {
    let negative = dtype.is_signed() && bytes.last().is_some_and(|byte| byte >> 7 == 1);
    let mut wide = if negative { [0xff; 16] } else { [0; 16] };
    wide[..bytes.len()].copy_from_slice(bytes);
    i128::from_le_bytes(wide)
}

#[cfg(test)]
mod tests;
