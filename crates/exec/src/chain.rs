//! Chains: sequences of loops over a block that a code generator compiles to one loop.
//!
//! A prepared block is a list of steps. Elementwise steps record what they compute ([`ChainOp`]),
//! so a code generator ([`Compiler`]) can take as many consecutive ones as possible (a [`Chain`])
//! and return one function that holds intermediate values in registers. The function computes the
//! same bits.

use super::cast::{cast, load_half, round_half, round_half_down, store_half};
use super::cycle::{CompiledCycle, CycleChain};
use super::isa::{BlockFn, Isa};
use super::ops::{cost_ps, op};
use super::{Bindings, ExecError, Prepared, Scratch};
use girih_ir::{DType, OpCode};
use girih_kernel::{Kernel, ReduceOp};
use smallvec::SmallVec;
use std::ops::Range;

/// The operation of one loop. Halves in memory have their own dtype; in computations they are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainOp {
    /// An elementwise op (not `Cast`) on operands of that dtype (for `Where`, that of the
    /// branches). Results of halves are not rounded; `Bitcast` takes halves as in memory.
    Op(OpCode, DType),
    /// A conversion from a dtype to the compute type of another dtype. A cast from f32 or an
    /// integer to a half returns f32, rounded to odd where necessary.
    Cast(DType, DType),
    /// Rounds f32 to the nearest value of a half dtype; the result is f32.
    Round(DType),
    /// Rounds f32 in `[0, 1)` down to a value of a half dtype; the result is f32.
    RoundDown(DType),
    /// Converts a half in memory to f32.
    LoadHalf(DType),
    /// Converts an f32 that is a value of a half dtype to a half in memory.
    StoreHalf(DType),
}

impl ChainOp {
    /// The loop; `None` if the op does not take that dtype.
    pub(crate) fn run(self, isa: Isa) -> Option<BlockFn> {
        Some(match self {
            ChainOp::Op(code, dtype) => op(code, dtype, isa)?,
            ChainOp::Cast(from, to) => cast(from, to, isa),
            ChainOp::Round(dtype) => round_half(dtype, isa),
            ChainOp::RoundDown(dtype) => round_half_down(dtype, isa),
            ChainOp::LoadHalf(dtype) => load_half(dtype, isa),
            ChainOp::StoreHalf(dtype) => store_half(dtype, isa),
        })
    }

    /// The approximate time of one element in picoseconds.
    pub(crate) fn cost_ps(self) -> usize {
        match self {
            ChainOp::Op(code, dtype) => cost_ps(code, dtype),
            ChainOp::Cast(..) | ChainOp::Round(_) | ChainOp::RoundDown(_) => 60,
            ChainOp::LoadHalf(_) | ChainOp::StoreHalf(_) => 40,
        }
    }
}

/// A value of a chain; its number is its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// Elements in memory. A half dtype is a half in memory, which only `LoadHalf` takes.
    Input {
        /// The format of the elements.
        dtype: DType,
        /// The stride in elements from each point to the next: 1; 0 if all points have the first
        /// element; or more, for elements of four or eight bytes.
        step: u8,
        /// For an input without an address of its own: the input begins that many bytes after
        /// another input, which is an earlier value of the same dtype and step that has an address.
        beside: Option<(u16, i32)>,
    },
    /// The same number at every point, as the bits of its compute type.
    Constant {
        /// The compute type.
        dtype: DType,
        /// The bits, in the low bytes.
        bits: u64,
    },
    /// An op on earlier values.
    Op {
        /// The operation.
        op: ChainOp,
        /// The operands.
        args: SmallVec<[u16; 3]>,
        /// The result's dtype: a half only for `StoreHalf`.
        dtype: DType,
    },
}

impl Def {
    /// The value's dtype.
    pub fn dtype(&self) -> DType {
        match self {
            Def::Input { dtype, .. } | Def::Constant { dtype, .. } | Def::Op { dtype, .. } => {
                *dtype
            }
        }
    }
}

/// A straight-line program over points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The values.
    pub defs: Vec<Def>,
    /// Values that are written to consecutive elements; each is the result of an op.
    pub outputs: Vec<u16>,
    /// A reduction over all points.
    pub fold: Option<ChainFold>,
    /// The outputs are parts of buffers larger than the caches, so non-temporal stores are better.
    pub streamed: bool,
}

/// A reduction of a chain's value over the points of a run. Point `i` is combined into lane `i mod`
/// [`LANES`], each lane starting from the identity; then the upper half of the lanes is combined
/// into the lower half until one lane is left.
///
/// [`LANES`]: ChainFold::LANES
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainFold {
    /// The value, of f32 or f64.
    pub value: u16,
    /// The op that combines a lane (its first operand) with a value or an upper lane.
    pub op: OpCode,
    /// The bits of the identity.
    pub identity: u64,
}

impl ChainFold {
    /// The lanes of a fold.
    pub const LANES: usize = super::fold::LANES;

    /// The fold of a reduction on a compute type; its value is the chain's first. `None` for
    /// products, which are folded in order instead of by lanes.
    pub(crate) fn of(op: ReduceOp, dtype: DType) -> Option<ChainFold> {
        let op = match op {
            ReduceOp::Sum => OpCode::Add,
            ReduceOp::Max => OpCode::Maximum,
            ReduceOp::Min => OpCode::Minimum,
            _ => return None,
        };
        let fold = || ChainFold { value: 0, op, identity: op.neutral(dtype).bits };
        matches!(dtype, DType::F32 | DType::F64).then(fold)
    }
}

/// A code generator for chains.
pub trait Compiler: Sync {
    /// Whether the compiler supports that op in chains.
    fn knows(&self, op: ChainOp) -> bool;

    /// Compiles a chain to a function, with a name for profilers; `None` if the chain exceeds the
    /// compiler's limits.
    fn compile(&self, chain: &Chain, name: &str) -> Option<Box<dyn Compiled>>;

    /// Compiles a cycle to a function, with a name for profilers; `None` if the cycle exceeds the
    /// compiler's limits.
    fn compile_cycle(&self, chain: &CycleChain, name: &str) -> Option<Box<dyn CompiledCycle>>;

    /// Compiles the GEMM of a matmul kernel, which will run on these numbers of rows at a time;
    /// `None` if the executor's loops are as fast.
    fn rowwise_gemm(&self, kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn CompiledGemm>>;
}

/// A GEMM that runs on some rows at a time.
pub trait CompiledGemm: Send + Sync {
    /// Bytes of memory that carry data about an entry of the batch (packed B) from call to call.
    fn packed_bytes(&self) -> usize;

    /// Runs the GEMM and the body on some rows of one entry of the batch. Rows are numbered through
    /// the whole batch, and their number is one of the numbers that the GEMM was compiled for.
    /// `kernel` is the prepared form of the kernel that the GEMM was compiled from.
    ///
    /// Errors: as [`Prepared::run_body`].
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract for these rows; of A and the results only these
    /// rows are accessed. `packed` is valid for [`CompiledGemm::packed_bytes`] and aligned to 64.
    /// Unless `first` is true, the previous call with this memory was for the same entry of the
    /// batch, and B has not changed since.
    unsafe fn run(
        &self,
        kernel: &Prepared,
        rows: Range<usize>,
        packed: *mut u8,
        first: bool,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError>;

    /// The machine code, one entry per function, for inspection.
    fn code(&self) -> Vec<Vec<u8>>;
}

/// A compiled chain.
pub trait Compiled: Send + Sync {
    /// Runs the chain at `n` points.
    ///
    /// # Safety
    /// `pointers` holds the address of each input that has one, in order, then of each output, then
    /// of the fold's result. An input is valid for reads at `n` points, an output for writes of `n`
    /// elements, the fold's result for one, and all are aligned to their dtypes. An output may
    /// start at the address of an input of the same size with step 1; otherwise outputs overlap
    /// nothing.
    unsafe fn run(&self, pointers: &[*mut u8], n: usize);

    /// Runs the chain at `n` points of each of some rows, one row after another. From row to row,
    /// each pointer advances by its step in bytes. The pointers are unspecified afterwards.
    ///
    /// # Safety
    /// As [`Compiled::run`] for each row.
    unsafe fn run_rows(&self, pointers: &mut [*mut u8], n: usize, rows: (usize, &[isize]));

    /// The approximate time of one element in picoseconds, without memory accesses.
    fn cost_ps(&self) -> usize;

    /// The machine code with its constants, for inspection.
    fn code(&self) -> &[u8];
}
