//! The report of a back end about a compilation, for users to read: the stages of the graph, the
//! kernels with their work and machine code, the refused fusions, the slow kernels, and the memory
//! plan. A report does not depend on the form of a back end's kernels.

use crate::{ExecutionPlan, Placement};
use girih_ir::{Graph, NodeId, Traffic};
use std::fmt;
use std::sync::Arc;

/// The result of a compilation as texts.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The graph after the passes.
    pub optimized: Graph,
    /// The kernels.
    pub program: Arc<dyn ProgramText>,
}

/// A program of kernels that prints itself.
pub trait ProgramText: fmt::Debug + Send + Sync {
    /// The kernels and their buffers, as text.
    fn text(&self) -> String;

    /// The kernels as a translation unit of C11; `None` for kernels that cannot be written in C.
    fn to_c(&self) -> Option<String>;
}

/// The operations of a plan, for back ends that show no kernels.
#[derive(Debug)]
struct PlanText(String);

impl ProgramText for PlanText {
    fn text(&self) -> String {
        self.0.clone()
    }

    fn to_c(&self) -> Option<String> {
        None
    }
}

impl Listing {
    /// The listing of a back end that only has a plan: the graph as given, and the plan.
    pub fn of_plan(graph: &Graph, plan: &ExecutionPlan) -> Listing {
        Listing { optimized: graph.clone(), program: Arc::new(PlanText(plan.to_string())) }
    }
}

/// A compilation, stage by stage.
pub struct CompileReport {
    /// The plan.
    pub plan: ExecutionPlan,
    /// The optimised graph and the kernels. If `stages` is not empty, [`Graph::origin`] gives the
    /// node of the given graph from which a node of the optimised graph was derived.
    pub listing: Listing,
    /// The graph as given, and the graph after each pass that changed it; empty if the back end
    /// runs no passes.
    pub stages: Vec<Stage>,
    /// The number of rounds over the passes.
    pub iterations: usize,
    /// The arguments of the given graph that the program needs, ascending.
    pub live_arguments: Vec<usize>,
    /// The kernels in order of execution.
    pub kernels: Vec<KernelReport>,
    /// The refused fusions.
    pub refusals: Vec<RefusedFusion>,
    /// Reasons why kernels are slow, by estimate; the worst first.
    pub bottlenecks: Vec<Bottleneck>,
    /// The memory plan.
    pub memory: MemoryPlan,
}

impl CompileReport {
    /// The report of a back end that only has a plan: each launch of the plan, or of a plan that it
    /// calls, counts as a kernel.
    pub fn of_plan(graph: &Graph, plan: ExecutionPlan, listing: Listing) -> CompileReport {
        let mut kernels = Vec::new();
        launches(&plan, &mut kernels);
        CompileReport {
            kernels,
            live_arguments: (0..graph.arguments().count()).collect(),
            stages: Vec::new(),
            iterations: 0,
            refusals: Vec::new(),
            bottlenecks: Vec::new(),
            memory: MemoryPlan::of_plan(&plan),
            listing,
            plan,
        }
    }
}

/// Appends the operations of a plan and of the plans that it calls that launch a program.
fn launches(plan: &ExecutionPlan, kernels: &mut Vec<KernelReport>) {
    for operation in plan.operations.iter().filter(|operation| operation.compute.is_some()) {
        kernels.push(KernelReport { name: operation.name.clone(), ..KernelReport::default() });
    }
    plan.callees.iter().for_each(|callee| launches(&callee.plan, kernels));
}

/// The graph after a pass.
#[derive(Clone, Debug)]
pub struct Stage {
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
pub struct KernelReport {
    /// The kernel's name, made of its fused ops.
    pub name: String,
    /// The nodes of the optimised graph that the kernel computes, in order; for a copy, the view
    /// that is copied.
    pub nodes: Vec<NodeId>,
    /// The number of bytes moved and the number of operations.
    pub traffic: Traffic,
    /// The kernel, as text.
    pub text: String,
    /// The machine code generated for the kernel, by function; empty if precompiled loops run.
    pub code: Vec<Vec<u8>>,
    /// Writes machine code as text.
    pub disassemble: fn(&[u8]) -> String,
}

impl Default for KernelReport {
    fn default() -> KernelReport {
        KernelReport {
            name: String::new(),
            nodes: Vec::new(),
            traffic: Traffic::default(),
            text: String::new(),
            code: Vec::new(),
            disassemble: hexadecimal,
        }
    }
}

/// Machine code as lines of 16 bytes in hexadecimal, each after its offset.
pub fn hexadecimal(code: &[u8]) -> String {
    let line = |(i, bytes): (usize, &[u8])| {
        let bytes: String = bytes.iter().map(|b| format!(" {b:02x}")).collect();
        format!("{:>4x}{bytes}\n", 16 * i)
    };
    code.chunks(16).enumerate().map(line).collect()
}

/// A refused fusion.
#[derive(Clone, Debug)]
pub struct RefusedFusion {
    /// The value that the consumer's kernel does not compute, a node of the optimised graph.
    pub value: NodeId,
    /// The op that would have been fused with the value; `None` for a result of the graph.
    pub consumer: Option<NodeId>,
    /// The reason as a code of one word.
    pub code: &'static str,
    /// The reason as a sentence, with `{value}` and `{user}` in place of the names.
    pub sentence: &'static str,
}

/// An estimated cause of a slow kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bottleneck {
    /// The position of the kernel in the program; for kernels in a loop, that of the loop.
    pub kernel: usize,
    /// The cause as a code of one word.
    pub code: &'static str,
    /// The cause as a sentence, with a suggested remedy.
    pub sentence: String,
    /// The time that the cause takes, in nanoseconds of one thread.
    pub lost_ns: u64,
}

/// The memory plan of a program.
#[derive(Clone, Debug, Default)]
pub struct MemoryPlan {
    /// All buffers of the program.
    pub buffers: Vec<BufferReport>,
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

impl MemoryPlan {
    /// The plan with these buffers and a block of temporaries of that size.
    pub fn new(buffers: Vec<BufferReport>, temporary_bytes: usize) -> MemoryPlan {
        let sum = |of: fn(Placement) -> bool| {
            buffers.iter().filter(|b| of(b.placement)).map(|b| b.size_bytes).sum::<usize>()
        };
        let argument_bytes = sum(|p| matches!(p, Placement::Argument(_)));
        let output_bytes = sum(|p| p == Placement::Output);
        MemoryPlan {
            argument_bytes,
            output_bytes,
            temporary_bytes,
            unshared_temporary_bytes: sum(|p| matches!(p, Placement::Temporary(_))),
            peak_bytes: argument_bytes + output_bytes + temporary_bytes,
            buffers,
        }
    }

    /// The memory of a plan. What the operations read and write is not known.
    pub fn of_plan(plan: &ExecutionPlan) -> MemoryPlan {
        let mut buffers = Vec::with_capacity(plan.buffers.len());
        for planned in &plan.buffers {
            let buffer = BufferReport {
                contents: format!("u8[{}]", planned.size_bytes),
                size_bytes: planned.size_bytes,
                placement: planned.placement,
                written_by: None,
                last_read_by: None,
                reuses: BufferReport::sharing(&buffers, planned.placement, planned.size_bytes),
            };
            buffers.push(buffer);
        }
        MemoryPlan::new(buffers, plan.temporary_bytes)
    }
}

/// A buffer.
#[derive(Clone, Debug)]
pub struct BufferReport {
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

impl BufferReport {
    /// The positions of the buffers that share memory with a buffer of that place and size.
    pub fn sharing(
        earlier: &[BufferReport],
        placement: Placement,
        size_bytes: usize,
    ) -> Vec<usize> {
        let Placement::Temporary(at) = placement else { return Vec::new() };
        let shares = |b: &BufferReport| match b.placement {
            Placement::Temporary(other) => other < at + size_bytes && at < other + b.size_bytes,
            _ => false,
        };
        (0..earlier.len()).filter(|&i| shares(&earlier[i])).collect()
    }
}
