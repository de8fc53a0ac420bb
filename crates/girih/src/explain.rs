//! Explanations: human-readable descriptions of everything that happens to a graph between
//! recording and execution.
//!
//! An explanation contains the recorded graph and the graph after each pass; the kernels with their
//! ops, memory traffic, cost and source lines; the fusions that were refused, with reasons; the
//! slow kernels, by estimate; the operations; the memory plan; and whether the program is cached, or
//! how it differs from the cached programs. Explaining neither runs anything nor changes the cache.

mod json;
mod text;

use crate::eval::{cut_out, executor, executor_of};
use crate::{Result, Tensor};
use girih_cpu::{Anatomy, Bottleneck, LoadedKernel};
use girih_ir::{Graph, NodeId};
use girih_kernel::{Kernel, Program, Refused, Traffic};
use girih_runtime::{Argument, CompileOptions, Device, DeviceId, Lookup, Placement, Step};
use smallvec::SmallVec;

/// The explanation of a graph. `Display` prints all of it, except the graphs between the first and
/// the last pass.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The graph as recorded.
    pub graph: Graph,
    /// The line that recorded each node, `file:line`, if known.
    pub lines: Vec<Option<String>>,
    /// The input graph, and the graph after each pass that changed it.
    pub stages: Vec<StageInfo>,
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
    pub bottlenecks: Vec<BottleneckInfo>,
    /// The operations in the order of submission to the stream.
    pub operations: Vec<OperationInfo>,
    /// The memory plan.
    pub memory: MemoryPlan,
    /// Whether the program is cached.
    pub cache: Lookup,
    /// Whether the text and the JSON (`assembly`) contain the kernels' machine code. Initially
    /// false.
    pub asm: bool,
    /// The kernels, as a program of the kernel IR.
    program: Program,
}

impl Explanation {
    /// The kernels as a translation unit of C11, with a function for each kernel and a function
    /// `program` that calls them. Library routines and the functions of custom ops are `extern`.
    pub fn to_c(&self) -> String {
        girih_kernel::c::print(&self.program)
    }
}

/// The graph after a pass.
#[derive(Clone, Debug)]
pub struct StageInfo {
    /// The pass; `"input"` for the input graph.
    pub pass: String,
    /// The round of the fixed-point iteration, from 0.
    pub iteration: usize,
    /// The number of nodes of the graph.
    pub num_nodes: usize,
    /// The graph, as text.
    pub text: String,
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
}

impl KernelInfo {
    /// The kernel's machine code as text, by function: instructions with the feature `asm`, else
    /// bytes.
    pub fn assembly(&self) -> Vec<String> {
        self.code.iter().map(|code| girih_cpu::disassemble(code)).collect()
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

/// An estimated cause of a slow kernel.
#[derive(Clone, Debug)]
pub struct BottleneckInfo {
    /// The kernel; for kernels in a loop, the loop.
    pub kernel: usize,
    /// The cause as a code of one word.
    pub code: &'static str,
    /// The cause as a sentence, with a suggested remedy.
    pub sentence: String,
    /// The time that the cause takes, in nanoseconds of one thread.
    pub lost_ns: u64,
}

/// An operation of the plan.
#[derive(Clone, Debug)]
pub struct OperationInfo {
    /// The operation's name.
    pub name: String,
    /// The primitives of the operation, in order: `copy to device (n bytes)`, `launch`.
    pub steps: Vec<String>,
}

/// The memory plan of a program.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    /// All buffers of the program.
    pub buffers: Vec<BufferInfo>,
    /// The total bytes of the arguments that are read.
    pub argument_bytes: usize,
    /// The total bytes of the results.
    pub output_bytes: usize,
    /// The bytes of the block that holds all temporaries.
    pub temporary_bytes: usize,
    /// The total bytes that the temporaries would need without reuse of memory.
    pub unshared_temporary_bytes: usize,
    /// The peak memory of a run in bytes: arguments, results and temporaries.
    pub peak_bytes: usize,
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct BufferInfo {
    /// The dtype and number of elements, such as `f32[1024]`.
    pub contents: String,
    /// The size in bytes.
    pub size_bytes: usize,
    /// The origin of the buffer's memory.
    pub placement: Placement,
    /// The first kernel that writes the buffer; `None` for arguments.
    pub written_by: Option<usize>,
    /// The last kernel that reads the buffer.
    pub last_read_by: Option<usize>,
    /// The earlier temporaries whose memory the buffer reuses.
    pub reuses: Vec<usize>,
}

/// Explains what the evaluation of some tensors would do.
///
/// Errors: as [`crate::compile_graph`].
pub fn explain<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<Explanation> {
    let targets: SmallVec<[&Tensor; 4]> = tensors.into_iter().collect();
    let executor = executor_of("explain", &targets)?;
    let cut = cut_out(&executor, &targets, true)?;
    let line = |node: &std::sync::Arc<crate::node::Node>| {
        Some(node.location()).filter(|l| l.is_known()).map(|l| l.to_string())
    };
    let lines = cut.nodes.iter().map(line).collect();
    let addresses = addresses(&**executor.runtime().device(), &cut.arguments);
    explained(executor.runtime(), (cut.graph, lines, addresses), crate::options()?)
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
    let anatomy = girih_cpu::anatomy(&graph, options)?;
    let arguments = graph.arguments().count();
    let context = Context { graph: &graph, optimized: &anatomy.optimized, lines: &lines };
    Ok(Explanation {
        stages: anatomy.stages.iter().map(stage).collect(),
        iterations: anatomy.iterations,
        unused_arguments: (0..arguments)
            .filter(|position| !anatomy.live_arguments.contains(position))
            .collect(),
        kernels: kernels(&anatomy, &context),
        refusals: anatomy.lowered.refusals.iter().map(|r| context.refusal(r)).collect(),
        bottlenecks: anatomy.bottlenecks(&addresses)?.into_iter().map(bottleneck).collect(),
        operations: operations(&anatomy),
        memory: memory(&anatomy),
        cache,
        asm: false,
        program: anatomy.lowered.program,
        optimized: anatomy.optimized,
        graph,
        lines,
    })
}

fn stage(stage: &girih_opt::Stage) -> StageInfo {
    let num_nodes = stage.text.lines().filter(|line| line.contains(" = ")).count();
    let (pass, iteration, text) = (stage.pass.clone(), stage.iteration, stage.text.clone());
    StageInfo { pass, iteration, num_nodes, text }
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

    fn refusal(&self, refused: &Refused) -> RefusalInfo {
        let name = |id: NodeId| format!("{id} {}", self.optimized.node(id).op.name());
        let user = refused.consumer.map_or("the result".to_string(), name);
        let sentence = refused.reason.sentence().replace("{value}", &name(refused.node));
        RefusalInfo {
            value: refused.node,
            user: refused.consumer,
            code: refused.reason.code(),
            sentence: sentence.replace("{user}", &user),
            line: self.op(refused.node).line,
        }
    }
}

fn bottleneck(found: Bottleneck) -> BottleneckInfo {
    let Bottleneck { kernel, cause, lost_ns } = found;
    BottleneckInfo { kernel, code: cause.code(), sentence: cause.sentence(), lost_ns }
}

fn kernels(anatomy: &Anatomy, context: &Context<'_>) -> Vec<KernelInfo> {
    let program = &anatomy.lowered.program;
    let info = |((kernel, nodes), loaded): ((&Kernel, &Vec<NodeId>), &LoadedKernel)| {
        let ops: Vec<OpInfo> = nodes.iter().map(|&node| context.op(node)).collect();
        let mut lines: Vec<String> = Vec::new();
        for line in ops.iter().filter_map(|op| op.line.as_ref()) {
            if !lines.contains(line) {
                lines.push(line.clone());
            }
        }
        KernelInfo {
            name: kernel.name.clone(),
            ops,
            traffic: kernel.traffic(&program.buffers),
            lines,
            text: kernel.to_string(),
            code: loaded.code(),
        }
    };
    program.kernels.iter().zip(&anatomy.lowered.nodes).zip(&anatomy.loaded).map(info).collect()
}

fn operations(anatomy: &Anatomy) -> Vec<OperationInfo> {
    let info = |op: &girih_runtime::Operation| OperationInfo {
        name: op.name.clone(),
        steps: op
            .steps
            .iter()
            .map(Step::to_string)
            .chain(op.compute.map(|_| "launch".into()))
            .collect(),
    };
    anatomy.plan.operations.iter().map(info).collect()
}

fn memory(anatomy: &Anatomy) -> MemoryPlan {
    let (program, plan) = (&anatomy.lowered.program, &anatomy.plan);
    let mut buffers: Vec<BufferInfo> = Vec::with_capacity(plan.buffers.len());
    for (i, (buffer, planned)) in program.buffers.iter().zip(&plan.buffers).enumerate() {
        let mut kernels = program.kernels.iter();
        let written_by = kernels.position(|k| k.writes().any(|b| b.0 as usize == i));
        let last_read_by =
            program.kernels.iter().rposition(|k| k.reads().any(|b| b.0 as usize == i));
        let (placement, size_bytes) = (planned.placement, planned.size_bytes);
        let reuses = match placement {
            Placement::Temporary(at) => {
                let shares = |b: &BufferInfo| match b.placement {
                    Placement::Temporary(other) => {
                        other < at + size_bytes && at < other + b.size_bytes
                    }
                    _ => false,
                };
                (0..i).filter(|&earlier| shares(&buffers[earlier])).collect()
            }
            _ => Vec::new(),
        };
        let contents = format!("{}[{}]", buffer.dtype.short(), buffer.numel);
        buffers.push(BufferInfo {
            contents,
            size_bytes,
            placement,
            written_by,
            last_read_by,
            reuses,
        });
    }
    let sum = |of: fn(Placement) -> bool| {
        buffers.iter().filter(|b| of(b.placement)).map(|b| b.size_bytes).sum::<usize>()
    };
    let argument_bytes = sum(|p| matches!(p, Placement::Argument(_)));
    let output_bytes = sum(|p| p == Placement::Output);
    MemoryPlan {
        argument_bytes,
        output_bytes,
        temporary_bytes: plan.temporary_bytes,
        unshared_temporary_bytes: sum(|p| matches!(p, Placement::Temporary(_))),
        peak_bytes: argument_bytes + output_bytes + plan.temporary_bytes,
        buffers,
    }
}
