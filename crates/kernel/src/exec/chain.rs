//! Chains: runs of loops over a block that a code generator makes one loop.
//!
//! A block made ready is a list of steps. Those that combine elements point by point are known by
//! what they compute ([`ChainOp`]), so that whoever can generate code ([`Compiler`]) may be handed
//! as many of them as stand together ([`Chain`]) and give back one function that keeps what is
//! between them in registers. It computes the same bits.

use super::cast::{cast, load_half, round_half, round_half_down, store_half};
use super::isa::{BlockFn, Isa};
use super::ops::{cost_ps, op};
use super::{Bindings, ExecError, Prepared, Scratch};
use crate::ir::{Kernel, ReduceOp};
use girih_ir::{DType, OpCode};
use smallvec::SmallVec;
use std::ops::Range;

/// What one loop computes. Halves in memory have their dtype; computed with they are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChainOp {
    /// An elementwise op (not `Cast`) on operands of that dtype (of `Where`, the branches'). Halves
    /// are not rounded; of `Bitcast` they are as in memory.
    Op(OpCode, DType),
    /// From a dtype to another's compute type; from f32 and integers to a half, to f32 that is
    /// rounded to odd where it has to be.
    Cast(DType, DType),
    /// f32 to the nearest number of a half dtype, as f32.
    Round(DType),
    /// f32 in `[0, 1)` down to a number of a half dtype, as f32.
    RoundDown(DType),
    /// A half in memory to f32.
    LoadHalf(DType),
    /// An f32 that is a half's number to a half in memory.
    StoreHalf(DType),
}

impl ChainOp {
    /// The loop; `None` if the op takes no such dtype.
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

    /// Rough time of one element in picoseconds.
    pub(crate) fn cost_ps(self) -> usize {
        match self {
            ChainOp::Op(code, dtype) => cost_ps(code, dtype),
            ChainOp::Cast(..) | ChainOp::Round(_) | ChainOp::RoundDown(_) => 60,
            ChainOp::LoadHalf(_) | ChainOp::StoreHalf(_) => 40,
        }
    }
}

/// A value of a chain: its number is its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Def {
    /// Elements from memory on. A half dtype is a half in memory, which only `LoadHalf` takes.
    Input {
        /// How an element lies there.
        dtype: DType,
        /// Elements from one point's to the next one's: 1; 0, if all have the first; or more, of
        /// elements of four or eight bytes.
        step: u8,
        /// It has no address of its own: it begins so many bytes behind another input, an earlier value
        /// of the same dtype and step that has one.
        beside: Option<(u16, i32)>,
    },
    /// The same number at every point: the bits of its compute type.
    Constant {
        /// The compute type.
        dtype: DType,
        /// The bits, in the low bytes.
        bits: u64,
    },
    /// An op on values before it.
    Op {
        /// What is computed.
        op: ChainOp,
        /// Its operands.
        args: SmallVec<[u16; 3]>,
        /// The result's dtype: a half only of `StoreHalf`.
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
    /// Its values.
    pub defs: Vec<Def>,
    /// Values written to consecutive elements; each is an op's.
    pub outputs: Vec<u16>,
    /// What is combined over all points.
    pub fold: Option<ChainFold>,
    /// Outputs are parts of more than caches hold: they are better written past them.
    pub streamed: bool,
}

/// A value of a chain combined over the points of a run: point `i` goes to lane `i mod` [`LANES`], each
/// lane starting from the identity; then lanes are combined in halves, until there is one.
///
/// [`LANES`]: ChainFold::LANES
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChainFold {
    /// The value: of f32 or f64.
    pub value: u16,
    /// What combines a lane, its first operand, with a value or a later lane.
    pub op: OpCode,
    /// The bits of the identity.
    pub identity: u64,
}

impl ChainFold {
    /// The lanes of a fold.
    pub const LANES: usize = super::fold::LANES;

    /// That of a reduction on a compute type; its value is the chain's first.
    pub(crate) fn of(op: ReduceOp, dtype: DType) -> Option<ChainFold> {
        let (op, identity) = match op {
            ReduceOp::Sum => (OpCode::Add, 0.0),
            ReduceOp::Prod => (OpCode::Mul, 1.0),
            ReduceOp::Max => (OpCode::Maximum, f64::NEG_INFINITY),
            ReduceOp::Min => (OpCode::Minimum, f64::INFINITY),
            _ => return None,
        };
        let identity = match dtype {
            DType::F32 => (identity as f32).to_bits() as u64,
            DType::F64 => identity.to_bits(),
            _ => return None,
        };
        Some(ChainFold { value: 0, op, identity })
    }
}

/// Makes functions of chains.
pub trait Compiler: Sync {
    /// True if chains may have that op.
    fn knows(&self, op: ChainOp) -> bool;

    /// A function that runs the chain, for people of that name; `None` if the chain is too much
    /// for it.
    fn compile(&self, chain: &Chain, name: &str) -> Option<Box<dyn Compiled>>;

    /// The product of a matmul kernel, which is to be run on these numbers of rows at a time; `None`
    /// if the executor's loops are as good.
    fn product(&self, kernel: &Kernel, rows: &[usize]) -> Option<Box<dyn RowProduct>>;
}

/// A matrix product, row by row.
pub trait RowProduct: Send + Sync {
    /// Bytes of memory for what it keeps of an entry of the batch from one call to the next.
    fn kept_bytes(&self) -> usize;

    /// Runs product and body at some rows, counted through the batch, of one of its entries; as many
    /// as this was made for. `kernel` is the kernel that this was made from, made ready.
    ///
    /// Errors: as [`Prepared::run_body`].
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract for these rows; of the left operand and the
    /// results nothing but these rows is used. `kept` is valid for [`RowProduct::kept_bytes`] and
    /// aligned to 64; unless `first`, the call before with this memory was for the same entry, of
    /// which the right operand has not changed since.
    unsafe fn run(
        &self,
        kernel: &Prepared,
        rows: Range<usize>,
        kept: *mut u8,
        first: bool,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError>;

    /// The machine code, function by function, for people.
    fn code(&self) -> Vec<Vec<u8>>;
}

/// A chain as a function.
pub trait Compiled: Send + Sync {
    /// Runs the chain at `n` points.
    ///
    /// # Safety
    /// `pointers` holds the address of each input that has one in order, then of each output, then of the fold's
    /// result. An input is valid for reads of the points' `n` elements, an output for writes of `n`, the
    /// fold's result for one, all aligned to their dtypes. An output may start where an input of its
    /// size and of step 1 starts; otherwise outputs overlap nothing.
    unsafe fn run(&self, pointers: &[*mut u8], n: usize);

    /// Rough time of one element in picoseconds, memory aside.
    fn cost_ps(&self) -> usize;

    /// The machine code with its constants, for people.
    fn code(&self) -> &[u8];
}

/// For whom a kernel is made ready.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The loops' instruction set.
    pub isa: Isa,
    /// Who makes chains functions; nobody in the portable executor.
    pub compiler: Option<&'a dyn Compiler>,
    /// What the kernel stores is read by nobody soon, if it is large.
    pub streams: bool,
    /// It runs often, as in the body of a loop: functions pay for a single point too.
    pub often: bool,
}
