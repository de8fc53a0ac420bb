//! Girih's portable executor: runs kernels of `girih-kernel` on the host, block by block, on any
//! processor. Tests compare generated code with it.
//!
//! A [`Prepared`] kernel holds every decision: which loop runs each instruction on the machine's
//! instruction set, which loads are read in place, where values are stored, how the space is
//! divided into chunks. Running it executes these decisions over blocks of [`BLOCK`] points that
//! stay in the L1 cache.
//!
//! A kernel runs in phases of independent chunks; all chunks of a phase are run before the next
//! phase starts. Phases and chunks depend only on the kernel, never on the number of threads, and
//! no result depends on the instruction set: the bits are the same everywhere (except for payload
//! and sign of NaNs).
//!
//! Dtypes: halves are f32 within a block and rounded after every instruction; a bool is a byte 0 or
//! 1; integers wrap; a complex number is its real part followed by its imaginary part.

mod cast;
mod chain;
mod checked;
mod code;
mod complex;
mod control;
mod copy;
mod custom;
mod cycle;
mod draws;
mod fold;
mod fused;
mod gemm;
mod isa;
mod library;
mod lower;
mod map;
pub mod math;
mod ops;
pub mod philox;
mod points;
mod program;
mod reduce;
mod routine;
mod rows;
mod scatter;
mod short;
mod single_call;
mod stop;
mod stream;
pub mod tuning;
mod walk;

pub use chain::{Chain, ChainFold, ChainOp, Compiled, CompiledGemm, Compiler, Def};
pub use checked::Bounds;
pub use control::{Driver, Hooks, Ran, StridedIterations};
pub use custom::{KernelOp, KernelVjp};
pub use cycle::{
    CYCLE_FAILED, CYCLE_LANES, CYCLE_STATE, CompiledCycle, CycleCarry, CycleChain, CycleDef,
    CycleMemory, CycleStore, FusedCycle,
};
pub use gemm::BodyPart;
pub use isa::Isa;
pub use points::{Lines, Points};
pub use program::run_program;
pub use stop::{Stopped, stoppable};

use crate::tuning::tuning;
use girih_kernel::place::copied;
use girih_kernel::target::ReductionOrder;
use girih_kernel::{BufferId, Core, Kernel};
use girih_linalg::{Alone, Team};
use short::Short;
use thiserror::Error;

/// The order in which the loops reduce.
pub const REDUCTION: ReductionOrder = ReductionOrder { block: 512, lanes: 32 };

/// The number of points per block, which is also the number of elements in a block of a reduction.
pub const BLOCK: usize = REDUCTION.block;

/// The size of the largest element, in bytes.
const MAX_SIZE: usize = 16;

/// The time that one chunk should take, in picoseconds.
fn chunk_ps() -> usize {
    tuning().chunk_ns * 1000
}

/// The reason why a kernel stopped. Its outputs are then unspecified.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExecError {
    /// An index is out of bounds for its axis.
    #[error("index {index} is out of bounds for an axis of size {size}")]
    IndexOutOfBounds {
        /// The index before wrapping.
        index: i128,
        /// The size of the axis.
        size: usize,
    },
    /// A label is not the number of a class.
    #[error("class label {label} is not in 0..{classes}")]
    LabelOutOfRange {
        /// The label.
        label: i128,
        /// The number of classes.
        classes: usize,
    },
    /// A linear algebra routine cannot process a matrix.
    #[error("{op}: {reason}")]
    Linalg {
        /// The op.
        op: &'static str,
        /// The reason, with the position of the matrix in the batch.
        reason: String,
    },
    /// A custom op failed.
    #[error("{0}")]
    Host(girih_ir::ops::host::HostFailure),
    /// In checked mode, a kernel was about to access bytes that are not in its buffer: a defect of
    /// the compiler or the executor, not of the program.
    #[error(
        "bytes {} to {} of buffer b{buffer} are outside of its bounds {} to {} (a defect in Girih)",
        bytes.start, bytes.end, bounds.start, bounds.end
    )]
    OutsideOfBuffer {
        /// The number of the buffer in the kernel's program.
        buffer: usize,
        /// The bytes that the access covers.
        bytes: std::ops::Range<isize>,
        /// The bytes that it may access.
        bounds: Bounds,
    },
    /// In checked mode, a kernel has overwritten a byte outside of its buffer, or of an operand: a
    /// defect of the compiler or the executor.
    #[error("byte {byte} of {memory} of {bytes} bytes was overwritten (a defect in Girih)")]
    Overwritten {
        /// The overwritten memory.
        memory: String,
        /// The byte, counted from the memory's start.
        byte: isize,
        /// The size of the memory in bytes.
        bytes: usize,
    },
    /// The run was cancelled.
    #[error("the run was stopped")]
    Stopped,
    /// A kernel panicked: a defect of the executor, not of the program.
    #[error("a kernel panicked (a defect in Girih): {0}")]
    Panicked(String),
}

/// The addresses and values that a kernel runs on.
///
/// # Safety contract
/// The caller who runs a kernel with bindings promises: `buffers[id]` of every buffer that the
/// kernel names is valid for the buffer's elements and aligned to their dtype; while the kernel
/// runs, nobody else writes a buffer that it reads or uses a buffer that it writes; two buffers
/// overlap only if they start at the same address, and the kernel then reads each element only at
/// the point that overwrites it. `workspace` is valid for [`Prepared::workspace_bytes`] and aligned
/// to 64.
#[derive(Clone, Copy, Debug)]
pub struct Bindings<'a> {
    /// The start of each buffer, by [`BufferId`]. Buffers that the kernel does not name are not
    /// used.
    pub buffers: &'a [*mut u8],
    /// The value of each program argument that is a run-time scalar (first word: the bits of its
    /// [`girih_ir::Literal`]) or a random key (`[key, offset]`), by argument number.
    pub arguments: &'a [[u64; 2]],
    /// Memory for partial results, which all chunks of a run share.
    pub workspace: *mut u8,
    /// In checked mode, the bounds of each buffer: each access is compared with them before it
    /// happens.
    pub bounds: Option<&'a [Bounds]>,
}

/// 64 bytes, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// A thread's scratch memory. It grows to the size that its kernels need and is reused.
#[derive(Default)]
pub struct Scratch {
    lines: Vec<Line>,
    regs: Vec<*mut u8>,
    /// Memory for the locals of kernels over rows, whose parts use the other memory.
    locals: Vec<Line>,
}

impl Scratch {
    /// Scratch memory without an allocation yet.
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// Takes at least that much memory, which the caller gives back.
    fn take_locals(&mut self, bytes: usize) -> Vec<Line> {
        let mut locals = std::mem::take(&mut self.locals);
        let lines = bytes.div_ceil(64);
        if locals.len() < lines {
            locals.resize(lines, Line([0; 64]));
        }
        locals
    }

    fn give_locals(&mut self, locals: Vec<Line>) {
        self.locals = locals;
    }

    /// Reserves at least that much memory (aligned to 64) and that many registers; returns their
    /// addresses.
    fn reserve(&mut self, bytes: usize, regs: usize) -> (*mut u8, *mut *mut u8) {
        let lines = bytes.div_ceil(64);
        if self.lines.len() < lines {
            self.lines.resize(lines, Line([0; 64]));
        }
        if self.regs.len() < regs {
            self.regs.resize(regs, std::ptr::null_mut());
        }
        (self.lines.as_mut_ptr() as *mut u8, self.regs.as_mut_ptr())
    }
}

/// The options with which a kernel is prepared.
#[derive(Clone, Copy)]
struct PrepareOptions<'a> {
    /// The loops' instruction set.
    isa: Isa,
    /// The code generator; `None` in the portable executor.
    compiler: Option<&'a dyn Compiler>,
    /// Whether large results are not read soon, so that non-temporal stores are better.
    streams: bool,
    /// Whether the kernel runs often, as in the body of a loop, so that functions pay even for a
    /// single point.
    often: bool,
}

enum PreparedCore {
    Map(Box<map::PreparedMap>),
    Reduce(Box<reduce::PreparedReduce>),
    Gemm(Box<gemm::PreparedGemm>),
    Scatter(Box<scatter::PreparedScatter>),
    Rows(Box<rows::PreparedRows>),
    Library(Box<routine::PreparedRoutine>),
    Control(Box<control::Portable>),
}

/// A kernel that is ready to run; see the module's description.
pub struct Prepared {
    core: PreparedCore,
    /// The number of chunks of each phase; 0 for a phase that does not exist.
    chunks: [usize; 2],
    /// If the kernel only copies elements to the same positions of another buffer: the source and
    /// the destination.
    copied: Option<(BufferId, BufferId)>,
}

impl Prepared {
    /// Prepares a verified kernel for the best instruction set of this machine.
    ///
    /// Panics: if the kernel is not well formed (an op on an unsupported dtype).
    pub fn new(kernel: &Kernel) -> Prepared {
        Prepared::with_isa(kernel, Isa::best())
    }

    /// Prepares a kernel for the given level, which must be among [`Isa::available`].
    pub fn with_isa(kernel: &Kernel, isa: Isa) -> Prepared {
        Prepared::with_options(
            kernel,
            PrepareOptions { isa, compiler: None, streams: true, often: false },
        )
    }

    /// Prepares a kernel for the best level, and generates functions for the loops that the
    /// compiler supports. `often` means that the kernel runs many times per run of the program, as
    /// in the body of a loop.
    pub fn compiled(kernel: &Kernel, compiler: &dyn Compiler, often: bool) -> Prepared {
        let compiler = Some(compiler);
        Prepared::with_options(
            kernel,
            PrepareOptions { isa: Isa::best(), compiler, streams: true, often },
        )
    }

    fn with_options(kernel: &Kernel, options: PrepareOptions<'_>) -> Prepared {
        let isa = options.isa;
        assert!(isa <= Isa::machine(), "{isa:?} is not available on this machine");
        let (core, chunks) = match &kernel.core {
            Core::Map => {
                let map = map::PreparedMap::new(kernel, options);
                let chunks = [map.chunks(), 0];
                (PreparedCore::Map(Box::new(map)), chunks)
            }
            Core::Reduce { .. } => match Short::of(kernel) {
                Some(Short { stored: None, results }) => {
                    let map = map::PreparedMap::new(&results, options);
                    let chunks = [map.chunks(), 0];
                    (PreparedCore::Map(Box::new(map)), chunks)
                }
                _ => {
                    let reduce = reduce::PreparedReduce::new(kernel, options);
                    let chunks = reduce.chunks();
                    (PreparedCore::Reduce(Box::new(reduce)), chunks)
                }
            },
            Core::Gemm { lhs, rhs, dtype, .. } => {
                let gemm = gemm::PreparedGemm::new(kernel, (lhs, rhs), *dtype, options);
                let chunks = [gemm.chunks(), 0];
                (PreparedCore::Gemm(Box::new(gemm)), chunks)
            }
            Core::Scatter { .. } => {
                let scatter = scatter::PreparedScatter::new(kernel, options);
                let chunks = scatter.chunks();
                (PreparedCore::Scatter(Box::new(scatter)), chunks)
            }
            Core::Rows(definition) if kernel.points() == 1 && definition.are_independent() => {
                let map = map::PreparedMap::of_all(&definition.parts, options);
                let chunks = [map.chunks(), 0];
                (PreparedCore::Map(Box::new(map)), chunks)
            }
            Core::Rows(definition) => {
                let rows = rows::PreparedRows::new(kernel, definition, options);
                let chunks = [rows.chunks(), 0];
                (PreparedCore::Rows(Box::new(rows)), chunks)
            }
            Core::Library(routine) => {
                let library = routine::PreparedRoutine::new(kernel, routine);
                let chunks = [library.chunks(), 0];
                (PreparedCore::Library(Box::new(library)), chunks)
            }
            Core::Control(control) => {
                (PreparedCore::Control(Box::new(control::Portable::new(control, isa))), [1, 0])
            }
        };
        Prepared { core, chunks, copied: copied(kernel) }
    }

    /// The generated functions of the kernel's chains, in the order in which they run.
    pub fn functions(&self) -> Vec<&dyn Compiled> {
        let codes: Vec<&code::Code> = match &self.core {
            PreparedCore::Map(m) => m.codes(),
            PreparedCore::Reduce(r) => r.codes().to_vec(),
            PreparedCore::Gemm(m) => vec![m.code()],
            PreparedCore::Scatter(s) => vec![s.code()],
            PreparedCore::Rows(r) => r.codes(),
            PreparedCore::Library(_) | PreparedCore::Control(_) => vec![],
        };
        codes.into_iter().flat_map(code::Code::functions).collect()
    }

    /// The generated machine code of the kernel, one entry per function, including constants.
    pub fn code(&self) -> Vec<Vec<u8>> {
        let chains = self.functions().into_iter().map(|f| f.code().to_vec());
        let gemms: Vec<Vec<u8>> = match &self.core {
            PreparedCore::Rows(r) => r.gemms().flat_map(|p| p.code()).collect(),
            _ => Vec::new(),
        };
        chains.chain(gemms).collect()
    }

    /// The number of phases: one or two.
    #[inline]
    pub fn phases(&self) -> usize {
        1 + (self.chunks[1] > 0) as usize
    }

    /// The number of chunks of a phase.
    #[inline]
    pub fn chunks(&self, phase: usize) -> usize {
        self.chunks[phase]
    }

    /// Whether the kernel is a reduction that runs a loop for each of its results, rather than one
    /// loop over results.
    pub fn loops_per_result(&self) -> bool {
        matches!(self.core, PreparedCore::Reduce(_))
    }

    /// The size in bytes of the shared workspace that a run needs; often 0.
    pub fn workspace_bytes(&self) -> usize {
        match &self.core {
            PreparedCore::Reduce(r) => r.workspace_bytes(),
            PreparedCore::Control(c) => c.workspace_bytes(),
            _ => 0,
        }
    }

    /// The approximate time of the whole kernel on one core, in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        let ps = match &self.core {
            PreparedCore::Map(m) => m.cost_ps(),
            PreparedCore::Reduce(r) => r.cost_ps(),
            PreparedCore::Gemm(m) => m.cost_ps(),
            PreparedCore::Scatter(s) => s.cost_ps(),
            PreparedCore::Rows(r) => r.cost_ps(),
            PreparedCore::Library(l) => l.cost_ps(),
            PreparedCore::Control(c) => c.cost_ps(),
        };
        ps as u64 / 1000
    }

    /// Runs one chunk. Chunks of a phase may run on any threads in any order, each once. The team
    /// runs the parallel work within a chunk, on large matrices.
    ///
    /// Errors: [`ExecError::IndexOutOfBounds`], [`ExecError::LabelOutOfRange`],
    /// [`ExecError::Linalg`].
    /// Cost: no allocation once the scratch memory has grown to the kernel's needs, except in
    /// library routines.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract; `phase` and `chunk` are in range; all chunks of
    /// the phases before have been run with these bindings.
    pub unsafe fn run_chunk(
        &self,
        phase: usize,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
        team: &dyn Team,
    ) -> Result<(), ExecError> {
        debug_assert!(chunk < self.chunks[phase]);
        // SAFETY: the caller's promise.
        unsafe {
            match &self.core {
                PreparedCore::Map(m) => m.run_chunk(chunk, bindings, scratch),
                PreparedCore::Reduce(r) => r.run_chunk(phase, chunk, bindings, scratch),
                PreparedCore::Gemm(m) => m.run_chunk(chunk, bindings, scratch),
                PreparedCore::Scatter(s) => s.run_chunk(phase, chunk, bindings, scratch),
                PreparedCore::Rows(r) => r.run_chunk(chunk, bindings, scratch),
                PreparedCore::Library(l) => l.run_chunk(chunk, bindings, team),
                PreparedCore::Control(c) => c.run(bindings, scratch),
            }
        }
    }

    /// Runs the whole kernel if it is a single call of one function without scratch memory or
    /// threads. Otherwise returns false and has no effect.
    ///
    /// # Safety
    /// As [`Prepared::run`].
    #[inline]
    pub unsafe fn run_single_call(&self, bindings: &Bindings<'_>) -> bool {
        match &self.core {
            // SAFETY: the caller's promise.
            PreparedCore::Map(m) => unsafe { m.run_single_call(bindings) },
            _ => false,
        }
    }

    /// In checked mode, checks what no loop of this crate does: the call that
    /// [`Prepared::run_single_call`] makes, and GEMMs, which the caller may compute. The other forms
    /// in which a kernel runs check themselves.
    ///
    /// Errors: [`ExecError::OutsideOfBuffer`].
    pub fn check(&self, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        match &self.core {
            PreparedCore::Map(m) if bindings.is_checked() => m.check_call(bindings),
            PreparedCore::Gemm(gemm) if bindings.is_checked() => gemm.check_all(bindings),
            _ => Ok(()),
        }
    }

    /// Runs iterations of a loop whose whole body is this kernel, if each iteration is a single
    /// call of one function. Otherwise returns `None` and has no effect. `proceed` is called before
    /// each iteration, and its error ends the loop.
    ///
    /// # Safety
    /// As [`Prepared::run`] for each iteration, with the buffers at that iteration's addresses.
    pub unsafe fn run_strided(
        &self,
        strided: &mut StridedIterations<'_>,
        bindings: &Bindings<'_>,
        proceed: &mut dyn FnMut() -> Result<(), ExecError>,
    ) -> Ran {
        match &self.core {
            // SAFETY: the caller's promise.
            PreparedCore::Map(m) if self.copied.is_none() => unsafe {
                m.run_strided(strided, bindings, proceed)
            },
            _ => None,
        }
    }

    /// Whether the kernel would copy a buffer to itself (after buffer donation), so that it need
    /// not run.
    pub fn is_done(&self, bindings: &Bindings<'_>) -> bool {
        let place = |id: BufferId| bindings.buffers[id.0 as usize];
        self.copied.is_some_and(|(from, to)| place(from) == place(to))
    }

    /// Runs all phases on this thread.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract.
    pub unsafe fn run(
        &self,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        self.check(bindings)?;
        // SAFETY: the caller's promise.
        if self.is_done(bindings) || unsafe { self.run_single_call(bindings) } {
            return Ok(());
        }
        for phase in 0..self.phases() {
            for chunk in 0..self.chunks(phase) {
                // SAFETY: the caller's promise; phases and chunks in order.
                unsafe { self.run_chunk(phase, chunk, bindings, scratch, &Alone)? };
            }
        }
        Ok(())
    }

    /// For a matmul kernel whose GEMM the caller computes: runs only the body and its stores at
    /// some of the points (row-major over the parallel dimensions).
    ///
    /// # Safety
    /// The kernel's core is a matmul; the part's points lie in its space, and each of its rows in
    /// one row of the result; its sums are valid for reads, and no store overwrites them; the
    /// bindings fulfil [`Bindings`]' contract.
    pub unsafe fn run_body(
        &self,
        part: &BodyPart,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let PreparedCore::Gemm(m) = &self.core else {
            unreachable!("only a GEMM's body runs alone")
        };
        // SAFETY: the caller's promise.
        unsafe { m.run_body(part, bindings, scratch) }
    }

    /// Prefetches the memory that [`Prepared::run_body`] will access for a part, where prefetching
    /// is known to help. It does not prefetch the sums.
    pub fn prefetch_rows(&self, part: &BodyPart, bindings: &Bindings<'_>) {
        if let PreparedCore::Gemm(m) = &self.core {
            m.prefetch_rows(part, bindings);
        }
    }
}

/// The points per chunk for chunks of about [`chunk_ps`], given the cost of a point: a multiple of
/// `grain` unless a single chunk has all points.
fn chunk_points(points: usize, cost_ps: usize, grain: usize) -> usize {
    let target = (chunk_ps() / cost_ps.max(1)).clamp(1, 1 << 22);
    if points <= target + target / 2 { points } else { target.next_multiple_of(grain) }
}

#[cfg(test)]
mod tests;
