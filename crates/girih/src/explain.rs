//! Explanations: human-readable descriptions of everything that happens to a graph between
//! recording and execution.
//!
//! An explanation contains the recorded graph and the graph after each pass; the kernels with their
//! ops, memory traffic, cost and source lines; the fusions that were refused, with reasons; the
//! slow kernels, by estimate; the operations; the memory plan; and whether the program is cached, or
//! how it differs from the cached programs. Explaining neither runs anything nor changes the cache.

mod json;
mod text;

use crate::sharding::Collective;
use crate::{Result, Tensor};
use girih_ir::{Graph, NodeId, Traffic};
use girih_record::eval::{cut_out, executor, executor_of};
use girih_runtime::report::{KernelReport, MemoryPlan, ProgramText, RefusedFusion, Stage};
use girih_runtime::{Argument, Bottleneck, CompileOptions, Device, DeviceId, Lookup, Step};
use smallvec::SmallVec;
use std::sync::Arc;

/// The explanation of a graph. `Display` prints all of it, except the graphs between the first and
/// the last pass.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The graph as recorded.
    pub graph: Graph,
    /// The line that recorded each node, `file:line`, if known.
    pub lines: Vec<Option<String>>,
    /// The input graph, and the graph after each pass that changed it.
    pub stages: Vec<Stage>,
    /// The number of rounds over the passes; the last round changed nothing.
    pub iterations: usize,
    /// The graph after the passes. Kernels and refusals refer to its nodes.
    pub optimized: Graph,
    /// Arguments of the recorded graph that the program does not read.
    pub unused_arguments: Vec<usize>,
    /// The kernels in order of execution.
    pub kernels: Vec<KernelInfo>,
    /// The refused fusions.
    pub refusals: Vec<RefusalInfo>,
    /// The causes that take at least a tenth of the program's time on the host, by estimate; the
    /// worst cause first.
    pub bottlenecks: Vec<Bottleneck>,
    /// The operations in the order of submission to the stream.
    pub operations: Vec<OperationInfo>,
    /// The memory plan.
    pub memory: MemoryPlan,
    /// Whether the program is cached.
    pub cache: Lookup,
    /// Whether the text and the JSON (`assembly`) contain the kernels' machine code. Initially
    /// false.
    pub asm: bool,
    /// The kernels, as text.
    program: Arc<dyn ProgramText>,
}

impl Explanation {
    /// The kernels as a translation unit of C11, with a function for each kernel and a function
    /// `program` that calls them. Library routines and the functions of custom ops are `extern`.
    /// `None` for programs of a device whose kernels are not those of the kernel IR.
    pub fn to_c(&self) -> Option<String> {
        self.program.to_c()
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct KernelInfo {
    /// The kernel's name, made of its fused ops.
    pub name: String,
    /// The ops that the kernel computes, in order; for a copy, the view that is copied.
    pub ops: Vec<OpInfo>,
    /// The number of bytes moved and the number of operations.
    pub traffic: Traffic,
    /// The lines that recorded the kernel's ops, without duplicates.
    pub lines: Vec<String>,
    /// The kernel, as text.
    pub text: String,
    /// The machine code generated for the kernel, by function; empty if precompiled loops run.
    pub code: Vec<Vec<u8>>,
    /// Writes the machine code as text.
    disassemble: fn(&[u8]) -> String,
}

impl KernelInfo {
    /// The kernel's machine code as text, by function: instructions with the feature `asm`, else
    /// bytes.
    pub fn assembly(&self) -> Vec<String> {
        self.code.iter().map(|code| (self.disassemble)(code)).collect()
    }
}

/// An op that a kernel computes.
#[derive(Clone, Debug)]
pub struct OpInfo {
    /// The node of the optimised graph.
    pub node: NodeId,
    /// The op of the node.
    pub op: &'static str,
    /// The recorded node from which the node was derived, and the op of the recorded node.
    pub recorded: Option<(NodeId, &'static str)>,
    /// The line of the recorded node.
    pub line: Option<String>,
}

/// A refused fusion.
#[derive(Clone, Debug)]
pub struct RefusalInfo {
    /// The value that the user's kernel does not compute, a node of the optimised graph.
    pub value: NodeId,
    /// The op that would have been fused with the value.
    pub user: Option<NodeId>,
    /// The reason as a code of one word.
    pub code: &'static str,
    /// The reason as a sentence that names the value and the user.
    pub sentence: String,
    /// The line that recorded the value.
    pub line: Option<String>,
}

/// An operation of the plan.
#[derive(Clone, Debug)]
pub struct OperationInfo {
    /// The operation's name.
    pub name: String,
    /// The primitives of the operation, in order: `copy to device (n bytes)`, `launch`.
    pub steps: Vec<String>,
}

/// Explains what the evaluation of some tensors would do.
///
/// Errors: as [`crate::compile_graph`].
pub fn explain<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Explanation> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let executor = executor_of("explain", &targets)?;
    let cut = cut_out(&executor, &targets, true)?;
    let line = |node: &std::sync::Arc<girih_record::node::Node>| {
        Some(node.location()).filter(|l| l.is_known()).map(|l| l.to_string())
    };
    let lines = cut.nodes.iter().map(line).collect();
    let addresses = addresses(&**executor.runtime().device(), &cut.arguments);
    explained(executor.runtime(), (cut.graph, lines, addresses), crate::options()?)
}

/// Explains what evaluating tensors on one mesh would do: for each stage what compiling the program of
/// the first processor does, and the collectives between the stages.
///
/// Errors: as [`crate::sharding::plan`]; [`crate::Error::Evaluation`] if a program cannot be compiled.
pub fn explain_on_mesh(tensors: &[&Tensor]) -> Result<(Vec<Explanation>, Vec<Collective>)> {
    let (partition, collectives) = crate::sharding::plan(tensors)?;
    let programs = partition.stages.iter().map(|stage| explain_graph(&stage.programs[0]));
    Ok((programs.collect::<Result<_>>()?, collectives))
}

/// Explains what the compilation of a closed graph does under the current options. The explanation
/// has no lines, since a graph does not contain them.
///
/// Errors: [`crate::Error::Record`] for an invalid graph; [`crate::Error::Evaluation`] if it cannot
/// be compiled.
pub fn explain_graph(graph: &Graph) -> Result<Explanation> {
    graph.verify()?;
    let lines = vec![None; graph.len()];
    explained(&*executor()?, (graph.clone(), lines, Vec::new()), crate::options()?)
}

/// The address of each argument's memory; `None` for scalars, and for devices other than the host.
fn addresses(device: &dyn Device, arguments: &[Argument]) -> Vec<Option<usize>> {
    let address = |argument: &Argument| {
        let value = argument.value().filter(|_| device.id() == DeviceId::HOST)?;
        Some(value.address(0, device).ok()? as usize)
    };
    arguments.iter().map(address).collect()
}

/// The explanation of a graph with the line that recorded each node, and the known addresses of its
/// arguments.
fn explained(
    executor: &girih_runtime::PlanExecutor,
    (graph, lines, addresses): (Graph, Vec<Option<String>>, Vec<Option<usize>>),
    options: CompileOptions,
) -> Result<Explanation> {
    let cache = executor.lookup(&graph, options);
    let report = executor.explain(&graph, options, &addresses)?;
    let arguments = graph.arguments().count();
    let optimized = report.listing.optimized;
    let context = Context { graph: &graph, optimized: &optimized, lines: &lines };
    Ok(Explanation {
        kernels: report.kernels.into_iter().map(|k| kernel(k, &context)).collect(),
        refusals: report.refusals.iter().map(|r| context.refusal(r)).collect(),
        stages: report.stages,
        iterations: report.iterations,
        unused_arguments: (0..arguments)
            .filter(|position| !report.live_arguments.contains(position))
            .collect(),
        bottlenecks: report.bottlenecks,
        operations: report.plan.operations.iter().map(operation).collect(),
        memory: report.memory,
        cache,
        asm: false,
        program: report.listing.program,
        optimized,
        graph,
        lines,
    })
}

/// Maps nodes of the optimised graph to recorded nodes.
struct Context<'a> {
    graph: &'a Graph,
    optimized: &'a Graph,
    lines: &'a [Option<String>],
}

impl Context<'_> {
    fn op(&self, node: NodeId) -> OpInfo {
        let recorded = self.optimized.origin(node);
        OpInfo {
            node,
            op: self.optimized.node(node).op.name(),
            recorded: recorded.map(|id| (id, self.graph.node(id).op.name())),
            line: recorded.and_then(|id| self.lines[id.index()].clone()),
        }
    }

    fn refusal(&self, refused: &RefusedFusion) -> RefusalInfo {
        let name = |id: NodeId| format!("{id} {}", self.optimized.node(id).op.name());
        let user = refused.consumer.map_or("the result".to_string(), name);
        let sentence = refused.sentence.replace("{value}", &name(refused.value));
        RefusalInfo {
            value: refused.value,
            user: refused.consumer,
            code: refused.code,
            sentence: sentence.replace("{user}", &user),
            line: self.op(refused.value).line,
        }
    }
}

fn kernel(report: KernelReport, context: &Context<'_>) -> KernelInfo {
    let ops: Vec<OpInfo> = report.nodes.iter().map(|&node| context.op(node)).collect();
    let mut lines: Vec<String> = Vec::new();
    for line in ops.iter().filter_map(|op| op.line.as_ref()) {
        if !lines.contains(line) {
            lines.push(line.clone());
        }
    }
    let KernelReport { name, traffic, text, code, disassemble, .. } = report;
    KernelInfo { name, ops, traffic, lines, text, code, disassemble }
}

fn operation(operation: &girih_runtime::Operation) -> OperationInfo {
    let steps = operation.steps.iter().map(Step::to_string);
    let launch = operation.compute.map(|_| "launch".into());
    OperationInfo { name: operation.name.clone(), steps: steps.chain(launch).collect() }
}
