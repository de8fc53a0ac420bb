//! Explanations: everything that happens to a graph between recording and running, for people.
//!
//! The graph as recorded and after each pass; the kernels, what each computes, moves and costs, and
//! from which lines it comes; what was not fused and why; the operations; the plan of memory; and
//! whether the program is cached, or what makes it another than those that are. Explaining neither
//! runs anything nor changes the cache.

mod json;
mod text;

use crate::eval::{cut_out, executor, executor_of};
use crate::{Result, Tensor};
use girih_cpu::Anatomy;
use girih_ir::{Graph, NodeId};
use girih_kernel::{Refused, Traffic};
use girih_runtime::{CompileOptions, Lookup, Placement, Step};
use smallvec::SmallVec;

/// What happens to a graph. `Display` gives all of it as text, but for the graphs between the first
/// and the last.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The graph as recorded.
    pub graph: Graph,
    /// Where each of its nodes was recorded, `file:line`, if known.
    pub lines: Vec<Option<String>>,
    /// The graph as given and after each pass that changed it.
    pub stages: Vec<StageInfo>,
    /// Rounds over the passes, the last of which found nothing to do.
    pub iterations: usize,
    /// The graph after the passes. Kernels and refusals refer to its nodes.
    pub optimized: Graph,
    /// Arguments of the recorded graph that the program does not read.
    pub unused_arguments: Vec<usize>,
    /// In order of execution.
    pub kernels: Vec<KernelInfo>,
    /// What was not fused.
    pub refusals: Vec<RefusalInfo>,
    /// What is submitted to the stream, in order.
    pub operations: Vec<OperationInfo>,
    /// Where values live.
    pub memory: MemoryPlan,
    /// Whether the program is cached.
    pub cache: Lookup,
    /// Show the kernels' machine code, in the text and in JSON (`assembly`). Off at first.
    pub asm: bool,
}

/// The graph after a pass.
#[derive(Clone, Debug)]
pub struct StageInfo {
    /// The pass; `"input"` for the graph as given.
    pub pass: String,
    /// Round of the fixed point, from 0.
    pub iteration: usize,
    /// Nodes of the graph.
    pub num_nodes: usize,
    /// The graph, as text.
    pub text: String,
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct KernelInfo {
    /// What was fused.
    pub name: String,
    /// What it computes, in order; of a copy, the view that is copied.
    pub ops: Vec<OpInfo>,
    /// Bytes moved and operations.
    pub traffic: Traffic,
    /// The lines its ops were recorded at, each once.
    pub lines: Vec<String>,
    /// The kernel, as text.
    pub text: String,
    /// Machine code generated for it, function by function; none where loops compiled ahead run.
    pub code: Vec<Vec<u8>>,
}

impl KernelInfo {
    /// Its machine code as text, function by function: instructions if the feature `asm` is on, else
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
    /// Its op.
    pub op: &'static str,
    /// The recorded node it was made for, and that one's op.
    pub recorded: Option<(NodeId, &'static str)>,
    /// Where that was recorded.
    pub line: Option<String>,
}

/// A fusion that was not made.
#[derive(Clone, Debug)]
pub struct RefusalInfo {
    /// The value kept in memory, a node of the optimised graph.
    pub value: NodeId,
    /// The op that reads it from there.
    pub user: Option<NodeId>,
    /// The reason, in one word.
    pub code: &'static str,
    /// The reason, in a sentence that names both.
    pub sentence: String,
    /// Where the value was recorded.
    pub line: Option<String>,
}

/// An operation of the plan.
#[derive(Clone, Debug)]
pub struct OperationInfo {
    /// What it does.
    pub name: String,
    /// Its primitives, in order: `copy to device (n bytes)`, `launch`.
    pub steps: Vec<String>,
}

/// Where the values of a program live.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    /// All buffers of the kernels.
    pub buffers: Vec<BufferInfo>,
    /// Bytes of the arguments that are read.
    pub argument_bytes: usize,
    /// Bytes of the results.
    pub output_bytes: usize,
    /// Bytes of the block that holds the temporaries.
    pub temporary_bytes: usize,
    /// What the temporaries would take if none reused another's place.
    pub unshared_temporary_bytes: usize,
    /// Most bytes in use while the program runs: arguments, results and temporaries.
    pub peak_bytes: usize,
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct BufferInfo {
    /// What it holds, `f32[1024]`.
    pub contents: String,
    /// Its size.
    pub size_bytes: usize,
    /// Where its memory comes from.
    pub placement: Placement,
    /// The kernel that first writes it; none for arguments.
    pub written_by: Option<usize>,
    /// The last kernel that reads it.
    pub last_read_by: Option<usize>,
    /// Earlier temporaries whose place it takes over.
    pub reuses: Vec<usize>,
}

/// Explains what evaluating some tensors would do.
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
    explained(executor.runtime(), cut.graph, lines, crate::options()?)
}

/// Explains what compiling a closed graph does, under the options of now. Without lines: a graph
/// does not know where it was recorded.
///
/// Errors: [`crate::Error::Evaluation`] if it cannot be compiled.
pub fn explain_graph(graph: &Graph) -> Result<Explanation> {
    graph.verify()?;
    explained(&*executor()?, graph.clone(), vec![None; graph.len()], crate::options()?)
}

fn explained(
    executor: &girih_runtime::Executor,
    graph: Graph,
    lines: Vec<Option<String>>,
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
            .filter(|position| !anatomy.kept_arguments.contains(position))
            .collect(),
        kernels: kernels(&anatomy, &context),
        refusals: anatomy.lowered.refusals.iter().map(|r| context.refusal(r)).collect(),
        operations: operations(&anatomy),
        memory: memory(&anatomy),
        cache,
        asm: false,
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

/// What nodes of the optimised graph were before.
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

fn kernels(anatomy: &Anatomy, context: &Context<'_>) -> Vec<KernelInfo> {
    let program = &anatomy.lowered.program;
    let info = |(kernel, nodes): (&girih_kernel::Kernel, &Vec<NodeId>)| {
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
            code: girih_cpu::LoadedKernel::new(kernel).code(),
        }
    };
    program.kernels.iter().zip(&anatomy.lowered.nodes).map(info).collect()
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
