//! Bottlenecks: why kernels take longer than reads of consecutive elements, generated code, packed
//! weights and all threads would let them, by an estimate from the kernels and the measured
//! machine. Nothing is run.

use crate::kernel::LoadedKernel;
use crate::memory::PageTable;
use girih_exec::tuning::Machine;
use girih_kernel::{Access, Block, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram, Val};
use girih_runtime::Bottleneck;
use std::cell::LazyCell;

/// Bytes of a cache line.
const LINE: usize = 64;
/// The loads that a core can wait for at the same time (its line fill buffers).
const CONCURRENT_LOADS: usize = 10;
/// The time per instruction and element of loops that were compiled for any kernel: they store each
/// intermediate block in the L1 cache and load it again.
const UNFUSED_PS: usize = 100;
/// The time per result of a reduction that runs a loop for each result.
const RESULT_LOOP_NS: usize = 15;
/// The most elements of a result for which starting the loop is what takes time.
const SHORT: usize = 16;
/// Fewer elements than this take no time that matters.
const FEW_ELEMENTS: usize = 1 << 12;
/// Arguments smaller than this have few pages.
const MIN_HUGE_BYTES: usize = 4 << 20;
const PAGE: usize = 4 << 10;

/// A reason why a kernel is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// It uses one element of each cache line that it reads.
    StridedRead {
        /// The buffer that it reads.
        buffer: BufferId,
        /// The distance of its elements.
        stride_bytes: usize,
    },
    /// It reads single elements of a large buffer at computed positions.
    ScatteredRead {
        /// The buffer that it reads.
        buffer: BufferId,
    },
    /// It reduces few elements to each result and runs a loop for each.
    ShortReduction {
        /// The elements of a result.
        elements: usize,
    },
    /// A GEMM packs the same operand in each run, because the operand is computed in each run.
    Repacking {
        /// The operand.
        buffer: BufferId,
    },
    /// No code is generated for one of its ops, so precompiled loops run, one per op.
    NoGeneratedCode,
    /// It has a single chunk, so one thread runs it.
    OneThread,
    /// An argument is in pages of 4 KB, so that its reads miss the TLB.
    SmallPages {
        /// The argument's position among the graph's arguments.
        argument: usize,
    },
}

impl Cause {
    /// The cause in one word, for tools.
    fn code(self) -> &'static str {
        match self {
            Cause::StridedRead { .. } => "strided_read",
            Cause::ScatteredRead { .. } => "scattered_read",
            Cause::ShortReduction { .. } => "short_reduction",
            Cause::Repacking { .. } => "repacking",
            Cause::NoGeneratedCode => "no_generated_code",
            Cause::OneThread => "one_thread",
            Cause::SmallPages { .. } => "small_pages",
        }
    }

    /// The cause as a sentence, with what would help.
    fn sentence(self) -> String {
        let name = |buffer: BufferId| format!("b{}", buffer.0);
        match self {
            Cause::StridedRead { buffer, stride_bytes } => format!(
                "the elements of {} that it reads are {stride_bytes} bytes apart, so each takes a \
                 cache line; store that operand in the order of the result",
                name(buffer)
            ),
            Cause::ScatteredRead { buffer } => format!(
                "it reads single elements of {} at computed positions, most of which are not in \
                 the cache; gather whole rows, or sort the indices",
                name(buffer)
            ),
            Cause::ShortReduction { elements } => format!(
                "it reduces {elements} elements to each result, in a loop per result; fewer ops \
                 before the reduction, in real numbers and without gathers, let it unroll"
            ),
            Cause::Repacking { buffer } => format!(
                "the matrix product packs {} in each run, because {} is computed in each run; \
                 compute it once and pass it as an argument",
                name(buffer),
                name(buffer)
            ),
            Cause::NoGeneratedCode => "no code is generated for one of its ops, so each op runs \
                 in a loop of its own over blocks; compute with float32 where that suffices"
                .into(),
            Cause::OneThread => "its work cannot be divided between threads: a scatter to any \
                 position or a single row"
                .into(),
            Cause::SmallPages { argument } => format!(
                "argument {argument} is in memory with pages of 4 KB; a copy made by Girih, as by \
                 gr.asarray(x, copy=True), has huge pages"
            ),
        }
    }
}

/// The bottlenecks of a program's kernels, the worst first: the causes that take at least a tenth of
/// the estimated time of the program. `addresses` are those of the arguments' memory, where they are
/// known.
pub(crate) fn bottlenecks(
    program: &KernelProgram,
    loaded: &[&LoadedKernel],
    addresses: &[Option<usize>],
    threads: usize,
    machine: &Machine,
) -> Vec<Bottleneck> {
    let mut found = Search { machine, threads, at: 0, runs: 1, found: Vec::new() };
    for (at, (kernel, loaded)) in program.kernels.iter().zip(loaded).enumerate() {
        found.at = at;
        found.kernel(program, kernel, loaded);
    }
    found.small_pages(program, addresses);
    let mut found = found.found;
    let needed: u64 = loaded.iter().map(|kernel| kernel.cost_ns()).fold(0, u64::saturating_add);
    let lost: u64 = found.iter().map(|b| b.lost_ns).fold(0, u64::saturating_add);
    found.retain(|b| b.lost_ns.saturating_mul(10) >= needed.saturating_add(lost));
    found.sort_by_key(|b| std::cmp::Reverse(b.lost_ns));
    found
}

/// The causes found so far.
struct Search<'a> {
    machine: &'a Machine,
    threads: usize,
    /// The position of the kernel in the program.
    at: usize,
    /// How often the kernel runs.
    runs: usize,
    found: Vec<Bottleneck>,
}

impl Search<'_> {
    fn add(&mut self, cause: Cause, lost_ns: usize) {
        let lost_ns = lost_ns.saturating_mul(self.runs) as u64;
        if lost_ns > 0 {
            self.found.push(Bottleneck {
                kernel: self.at,
                code: cause.code(),
                sentence: cause.sentence(),
                lost_ns,
            });
        }
    }

    fn kernel(&mut self, program: &KernelProgram, kernel: &Kernel, loaded: &LoadedKernel) {
        match &kernel.core {
            Core::Control(control) => {
                let runs = self.runs;
                self.runs = runs.saturating_mul(control.trips().unwrap_or(1));
                for (body, kernels) in control.programs.iter().zip(loaded.programs()) {
                    for (kernel, loaded) in body.kernels.iter().zip(kernels) {
                        self.kernel(body, kernel, loaded);
                    }
                }
                self.runs = runs;
            }
            Core::Rows(rows) => {
                for part in &rows.parts {
                    self.reads(program, part);
                }
                self.one_thread(loaded);
            }
            Core::Gemm { .. } => self.packing(program, loaded),
            Core::Map | Core::Reduce { .. } | Core::Scatter { .. } => {
                self.reads(program, kernel);
                self.short_reduction(kernel, loaded);
                self.no_generated_code(kernel, loaded);
                self.one_thread(loaded);
            }
            Core::Library(_) => {}
        }
    }

    /// Reads of single elements, by a constant distance or at computed positions.
    fn reads(&mut self, program: &KernelProgram, kernel: &Kernel) {
        let prologue = match &kernel.core {
            Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        for block in prologue.into_iter().chain([&kernel.body]) {
            for inst in &block.insts {
                match inst {
                    Inst::Load(access) => self.strided(kernel, kernel.access(*access)),
                    Inst::Gather { access, index, .. } => {
                        self.scattered(program, kernel, block, kernel.access(*access), *index);
                    }
                    _ => {}
                }
            }
        }
    }

    fn strided(&mut self, kernel: &Kernel, access: &Access) {
        let dims = access.strides.iter().zip(&kernel.extents).filter(|(_, extent)| **extent > 1);
        let moving = dims.filter(|(stride, _)| **stride != 0);
        let elements: usize = moving.clone().map(|(_, extent)| extent).product();
        let size = access.dtype.size();
        let Some(stride) = moving.map(|(stride, _)| stride.unsigned_abs() * size).min() else {
            return;
        };
        let (lines, needed) = (elements * stride.min(LINE), elements * size);
        if stride > size && lines > self.machine.l2_bytes {
            let lost_ns = (lines - needed) * 1000 / self.machine.memory.read_mbps.max(1);
            let cause = Cause::StridedRead { buffer: access.buffer, stride_bytes: stride };
            self.add(cause, lost_ns);
        }
    }

    fn scattered(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        block: &Block,
        access: &Access,
        index: Val,
    ) {
        let data = program.buffers[access.buffer.0 as usize].size_bytes();
        let last = access.strides.len().saturating_sub(1);
        if data <= self.machine.l2_bytes || !varies(kernel, block, index, last) {
            return;
        }
        let points: usize = kernel.extents[..access.strides.len()].iter().product();
        let lost_ns = points * self.machine.memory.latency_ns / CONCURRENT_LOADS;
        self.add(Cause::ScatteredRead { buffer: access.buffer }, lost_ns);
    }

    fn short_reduction(&mut self, kernel: &Kernel, loaded: &LoadedKernel) {
        let (elements, results) = (kernel.reduced(), kernel.points());
        if elements <= SHORT && results * elements >= FEW_ELEMENTS && loaded.loops_per_result() {
            self.add(Cause::ShortReduction { elements }, results * RESULT_LOOP_NS);
        }
    }

    fn packing(&mut self, program: &KernelProgram, loaded: &LoadedKernel) {
        let Some((buffer, packing_ns)) = loaded.packing() else { return };
        let computed = program.buffers[buffer].kind == BufferKind::Computed;
        if computed {
            let cause = Cause::Repacking { buffer: BufferId(buffer as u32) };
            self.add(cause, packing_ns as usize);
        }
    }

    fn no_generated_code(&mut self, kernel: &Kernel, loaded: &LoadedKernel) {
        let elements = kernel.points() * kernel.reduced();
        let ops = |block: &Block| {
            block.insts.iter().filter(|inst| matches!(inst, Inst::Op { .. })).count()
        };
        let prologue = match &kernel.core {
            Core::Reduce { prologue, .. } => ops(prologue),
            _ => 0,
        };
        let ops = ops(&kernel.body) + prologue;
        if cfg!(target_arch = "x86_64") && elements >= FEW_ELEMENTS && loaded.code().is_empty() {
            self.add(Cause::NoGeneratedCode, elements * ops * UNFUSED_PS / 1000);
        }
    }

    fn one_thread(&mut self, loaded: &LoadedKernel) {
        let cost = loaded.cost_ns() as usize;
        if self.threads > 1 && loaded.has_one_chunk() && cost > 4 * self.machine.wake_ns {
            self.add(Cause::OneThread, cost - cost / self.threads);
        }
    }

    /// Reading each page once takes at least the latency of its entry in the page table.
    fn small_pages(&mut self, program: &KernelProgram, addresses: &[Option<usize>]) {
        // The system takes milliseconds to list the pages, so read them once, and only if needed.
        let table = LazyCell::new(PageTable::read);
        for (id, buffer) in program.buffers.iter().enumerate() {
            let BufferKind::Argument(argument) = buffer.kind else { continue };
            let bytes = buffer.size_bytes();
            let Some(address) = addresses.get(argument).copied().flatten() else { continue };
            let reads = |k: &Kernel| k.reads().any(|of| of.0 as usize == id);
            let Some(kernel) = program.kernels.iter().position(reads) else { continue };
            if bytes >= MIN_HUGE_BYTES && table.has_small_pages(address, bytes) {
                let lost_ns = bytes / PAGE * self.machine.memory.latency_ns;
                (self.at, self.runs) = (kernel, 1);
                self.add(Cause::SmallPages { argument }, lost_ns);
            }
        }
    }
}

/// Whether a value differs between points that are next to each other along a dimension.
fn varies(kernel: &Kernel, block: &Block, val: Val, dim: usize) -> bool {
    let moves = |strides: &[isize]| strides.get(dim).is_some_and(|stride| *stride != 0);
    match block.inst(val) {
        Inst::Literal(_) | Inst::Scalar { .. } => false,
        Inst::Load(access) => moves(&kernel.access(*access).strides),
        Inst::Gather { access, index, .. } => {
            moves(&kernel.access(*access).strides) || varies(kernel, block, *index, dim)
        }
        Inst::Wrap { index, .. } => varies(kernel, block, *index, dim),
        Inst::Iota { strides, .. } | Inst::Random { strides, .. } => moves(strides),
        Inst::Core { .. } => true,
        Inst::Op { args, .. } => args.iter().any(|arg| varies(kernel, block, *arg, dim)),
    }
}
