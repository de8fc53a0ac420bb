//! The kernel IR: programs, kernels, and the straight-line bodies they run at each point of their
//! iteration space.
//!
//! A kernel iterates over `extents`. Its leading `parallel` dimensions are independent of each
//! other; the other dimensions are reduced by the kernel's [`Core`]. At each parallel point the
//! core yields one value (none for [`Core::Map`]), the `body` (epilogue) computes results from that
//! value and further operands, and the stores write the results. A value at a point depends on
//! nothing but that point, so kernels may be split along parallel dimensions.

use crate::control::{Control, Feed, Splat};
use girih_ir::ops::ScatterMode;
use girih_ir::{DType, Literal, Op, OpCode};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

/// A buffer of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BufferId(pub u32);

/// The source of a buffer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum BufferKind {
    /// The program's argument with that position among the graph's arguments. Read-only.
    Argument(usize),
    /// Written by a kernel of the program before any kernel reads it.
    Computed,
}

/// A dense, row-major buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffer {
    /// The dtype of the elements.
    pub dtype: DType,
    /// The number of elements.
    pub numel: usize,
    /// The source of the buffer's memory.
    pub kind: BufferKind,
}

impl Buffer {
    /// The size of the buffer in bytes.
    pub fn size_bytes(&self) -> usize {
        self.numel * self.dtype.size()
    }
}

/// A lowered graph: kernels in execution order over numbered buffers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelProgram {
    /// All buffers.
    pub buffers: Vec<Buffer>,
    /// Kernels, in an order that respects their data dependencies. A later kernel may overwrite
    /// part of the result of an earlier one (a pad: first the fill value, then the operand).
    pub kernels: Vec<Kernel>,
    /// The buffer of each graph output. Outputs may share a buffer (a value and its reshape) and
    /// may be an argument's buffer (a reshape of an argument).
    pub outputs: Vec<BufferId>,
}

/// A value within a block: the instruction that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Val(pub u32);

/// An entry of a kernel's access table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccessId(pub u32);

/// A strided walk through a buffer: element `offset + sum(strides[d] * i[d])` over the dimensions
/// of the iteration space. Strides may be zero (broadcast) or negative (flip). Every element it
/// reaches lies inside the buffer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// The buffer.
    pub buffer: BufferId,
    /// The dtype of the elements.
    pub dtype: DType,
    /// The element at the origin.
    pub offset: isize,
    /// The number of elements moved per step of each dimension. Loads of a reduction's prologue and
    /// operands of a GEMM have one stride per dimension of `extents`; all other accesses have one
    /// stride per parallel dimension.
    pub strides: SmallVec<[isize; 6]>,
}

/// The way in which a reduction combines elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ReduceOp {
    /// Sum, identity 0. Halves accumulate in f32 and are rounded once.
    Sum,
    /// Product, identity 1. Halves accumulate in f32 and are rounded once.
    Prod,
    /// Maximum; NaN if any element is NaN.
    Max,
    /// Minimum; NaN if any element is NaN.
    Min,
    /// Disjunction of bool, identity false.
    Any,
    /// Conjunction of bool, identity true.
    All,
    /// Index (i64, row-major over the reduced dimensions) of the first maximum; a NaN counts as
    /// maximal.
    ArgMax,
    /// Index (i64, row-major over the reduced dimensions) of the first minimum; a NaN counts as
    /// minimal.
    ArgMin,
}

/// The source of the value that a kernel's body starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Core {
    /// Nothing: all dimensions are parallel.
    Map,
    /// `value` of the prologue, combined over the reduced dimensions, of which there is at least
    /// one. Yields the prologue value's dtype, or i64 for the arg reductions. The order of
    /// combination depends only on the number of elements, which are taken in row-major order:
    /// neither their split into dimensions nor their strides may change a bit of the result.
    Reduce {
        /// The block that is computed at every point of the whole space.
        prologue: Block,
        /// The combined value.
        value: Val,
        /// The way in which the value is combined.
        op: ReduceOp,
        /// Values of the prologue that are stored, over the whole space.
        stores: Vec<Store>,
    },
    /// A GEMM. The space is `[batch…, M…, N… | K…]` with at least one dimension each of M, N and K.
    /// The strides of `lhs` (A) are zero along N, those of `rhs` (B) along M. Several dimensions
    /// count as one in row-major order. So a convolution is a GEMM whose columns are the windows of
    /// an image and whose K is the elements of a window, without storing the windows (no im2col).
    /// Halves are accumulated in f32.
    Gemm {
        /// A.
        lhs: Access,
        /// B.
        rhs: Access,
        /// The dtype of the computation and of the result. Integer operands may be narrower; they
        /// are extended when they are read.
        dtype: DType,
        /// The number of M dimensions.
        rows: usize,
        /// The number of N dimensions, which are the last parallel dimensions.
        columns: usize,
    },
    /// Combines the body's single result with the elements of a buffer at positions given by an
    /// integer operand, in row-major order of the space, so that the result does not depend on
    /// threads. The buffer is set to zero first, or an earlier kernel has written it. The kernel
    /// has exactly one store: its access gives the position without the index, and `index * stride`
    /// is added to it. All dimensions count as parallel in `extents`, but two points may write the
    /// same element unless they differ along a dimension in `independent`.
    Scatter {
        /// The way in which a result is combined with the element that it is written to.
        mode: ScatterMode,
        /// Whether the buffer is set to zero first.
        zeroed: bool,
        /// The index: an integer access; negative values count from the end.
        index: Access,
        /// The number of elements moved per unit of the index.
        stride: isize,
        /// The size of the indexed axis, for wrapping and bounds.
        size: usize,
        /// Dimensions along which the written elements are disjoint.
        independent: SmallVec<[usize; 6]>,
    },
    /// Maps, reductions and GEMMs that run a few rows at a time: each part on these rows, then the
    /// next part on the same rows. The space is one parallel dimension, the rows. There is no body,
    /// and the parts store their own results.
    Rows(Box<RowwiseCore>),
    /// A library routine on whole rows or matrices. The space is one parallel dimension, the
    /// batch; there is no body, and the routine stores its own results.
    Library(Box<Routine>),
    /// A branch or a loop over programs of its own. The space is one point; there is no body, and
    /// the programs store the results.
    Control(Box<Control>),
}

/// The dimensions of a GEMM's space, by role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmDims {
    /// The batch dimensions: there is one GEMM for each point.
    pub batch: Range<usize>,
    /// M: the dimensions along which `lhs` moves and `rhs` does not.
    pub rows: Range<usize>,
    /// N: the dimensions along which `rhs` moves and `lhs` does not.
    pub columns: Range<usize>,
    /// K: the dimensions that are summed over.
    pub contracted: Range<usize>,
}

/// The parts of a kernel over rows. The points of each part are the points of the first row, then
/// the points of the next row, and so on, with equally many points per row. A part reads results of
/// other parts only in its own row. So the rows of A of a GEMM may come from other parts, and its
/// result may go to other parts: the scores of an attention exist for a few queries at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowwiseCore {
    /// Maps, reductions and GEMMs, in order.
    pub parts: Vec<Kernel>,
    /// Buffers that only the parts use. They hold the rows that are being computed, and have no
    /// other memory.
    pub locals: Vec<Local>,
}

/// A buffer of a kernel over rows that exists row by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Local {
    /// The buffer.
    pub buffer: BufferId,
    /// The size of one row in bytes.
    pub row_bytes: usize,
}

impl RowwiseCore {
    /// If the parts are maps that compute operands of a GEMM (prologues), followed by that GEMM:
    /// the maps and the GEMM. Each map's result is a local in the order of the map's points, and
    /// only the GEMM reads it. Over a single row, the operands need not exist as a whole.
    pub fn prologues_and_gemm(&self) -> Option<(&[Kernel], &Kernel)> {
        let (gemm, maps) = self.parts.split_last()?;
        let Core::Gemm { lhs, rhs, .. } = &gemm.core else { return None };
        // Only the operands have no memory of their own.
        if gemm.writes().any(|id| self.is_local(id)) || self.locals.len() != maps.len() {
            return None;
        }
        let makes = |map: &Kernel| {
            let Some(id) = map.fills_in_order() else { return false };
            let operand = (lhs.buffer == id) != (rhs.buffer == id);
            operand && self.is_local(id) && gemm.accesses.iter().all(|a| a.buffer != id)
        };
        maps.iter().all(makes).then_some((maps, gemm))
    }

    /// Whether the parts are maps without locals, none of which reads or writes a buffer that
    /// another part writes, so that they may run concurrently, as maps of their own.
    pub fn are_independent(&self) -> bool {
        if !self.locals.is_empty() {
            return false;
        }
        let mut writers = FxHashMap::default();
        for (at, part) in self.parts.iter().enumerate() {
            let mut shared = |id| writers.insert(id, at).is_some_and(|other| other != at);
            if !matches!(part.core, Core::Map) || part.writes().any(&mut shared) {
                return false;
            }
        }
        let own = |at: usize, id| writers.get(&id).is_none_or(|&writer| writer == at);
        self.parts.iter().enumerate().all(|(at, part)| part.reads().all(|id| own(at, id)))
    }

    fn is_local(&self, id: BufferId) -> bool {
        self.locals.iter().any(|l| l.buffer == id)
    }

    /// Buffers that the kernel reads from outside, repeats included.
    fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        let own: Vec<BufferId> = self.parts.iter().flat_map(Kernel::writes).collect();
        self.parts.iter().flat_map(Kernel::reads).filter(move |id| !own.contains(id))
    }

    /// Buffers that outlive the kernel, repeats included.
    fn writes(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.parts.iter().flat_map(Kernel::writes).filter(|id| !self.is_local(*id))
    }
}

/// A dense, row-major operand or result of a routine: the items of a batch, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Item {
    /// The buffer, which holds exactly the items of all batches.
    pub buffer: BufferId,
    /// The dtype of the elements.
    pub dtype: DType,
    /// The sizes of one item: a row or a matrix.
    pub dims: SmallVec<[usize; 2]>,
}

impl Item {
    /// The number of elements of one item.
    pub fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// Whether an item has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A call of a library routine for each item of a batch.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Routine {
    /// The op, of class library, with the number of its first result.
    pub op: Op,
    /// The operands.
    pub operands: SmallVec<[Item; 2]>,
    /// The results by number; `None` for results that are not needed.
    pub results: SmallVec<[Option<Item>; 3]>,
}

/// One instruction. Operands refer to earlier instructions of the same block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Inst {
    /// A constant.
    Literal(Literal),
    /// A run-time scalar: the program's argument with that position.
    Scalar {
        /// The position among the graph's arguments.
        argument: usize,
        /// The dtype of the scalar.
        dtype: DType,
    },
    /// A load from memory.
    Load(AccessId),
    /// A load at `access + index * stride`. A negative index counts from the end of an axis of
    /// `size` elements; an index out of bounds stops the program with an error.
    Gather {
        /// The position without the index.
        access: AccessId,
        /// The index, of an integer dtype.
        index: Val,
        /// The number of elements moved per unit of the index.
        stride: isize,
        /// The size of the indexed axis.
        size: usize,
    },
    /// The index as an i64, counted from the front of an axis of `size` elements; an index out of
    /// bounds stops the program with an error.
    Wrap {
        /// The index, of an integer dtype.
        index: Val,
        /// The size of the indexed axis.
        size: usize,
        /// Whether the index is a class label, which must not be negative.
        label: bool,
    },
    /// `offset + sum(strides[d] * i[d])` converted to `dtype`: iota read through a view.
    Iota {
        /// The value at the origin.
        offset: isize,
        /// The stride along each dimension of the space.
        strides: SmallVec<[isize; 6]>,
        /// The result's dtype.
        dtype: DType,
    },
    /// The random leaf's element at linear position `offset + sum(strides[d] * i[d])`, drawn with
    /// the key that is the program's argument with that position.
    Random {
        /// The leaf op: `RandomUniform`, `RandomNormal` or `RandomBits`.
        code: OpCode,
        /// The position among the graph's arguments.
        argument: usize,
        /// The position at the origin.
        offset: isize,
        /// The stride along each dimension of the space.
        strides: SmallVec<[isize; 6]>,
        /// The result's dtype.
        dtype: DType,
    },
    /// The core's value. Allowed only in the body, and not in a map.
    Core {
        /// The dtype of the core's value.
        dtype: DType,
    },
    /// An elementwise op on values of equal dtype (except for the condition of `Where`); `Cast` and
    /// `Bitcast` convert to `dtype`. Halves are computed in f32 and rounded after every
    /// instruction, so fusing ops changes no bit.
    Op {
        /// The op, of class elementwise.
        code: OpCode,
        /// Operands.
        args: SmallVec<[Val; 3]>,
        /// The result's dtype.
        dtype: DType,
    },
}

/// A straight-line program in SSA form; instruction `i` defines `Val(i)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The instructions.
    pub insts: Vec<Inst>,
}

impl Block {
    /// Appends an instruction.
    pub fn push(&mut self, inst: Inst) -> Val {
        self.insts.push(inst);
        Val(self.insts.len() as u32 - 1)
    }

    /// The instruction that defines a value.
    pub fn inst(&self, val: Val) -> &Inst {
        &self.insts[val.0 as usize]
    }
}

/// A store of one of the body's values. Stores of one kernel never overlap, and each element is
/// written once (except by scatters).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// The address, over the parallel dimensions.
    pub access: Access,
    /// The value.
    pub value: Val,
}

/// One fused kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kernel {
    /// A name for users, made from the fused ops: `fused_add_relu`, `reduce_sum`,
    /// `fused_matmul_relu`.
    pub name: String,
    /// The sizes of the iteration space. No size is zero: empty results need no kernel, and
    /// reductions over no elements are lowered to maps of their identity. A kernel without
    /// dimensions has one point.
    pub extents: SmallVec<[usize; 6]>,
    /// The number of leading dimensions that are parallel; the core reduces the others.
    pub parallel: usize,
    /// The access table of `Load` and `Gather`, of the prologue and of the body.
    pub accesses: Vec<Access>,
    /// The core, which yields the value that the body starts from.
    pub core: Core,
    /// The block that is computed at each parallel point.
    pub body: Block,
    /// The stores of the results.
    pub stores: Vec<Store>,
}

impl Kernel {
    /// The buffers that the kernel names, for renumbering.
    pub fn buffers_mut(&mut self) -> Box<dyn Iterator<Item = &mut BufferId> + '_> {
        let mut core: SmallVec<[&mut BufferId; 4]> = SmallVec::new();
        match &mut self.core {
            Core::Map => {}
            Core::Reduce { stores, .. } => {
                core.extend(stores.iter_mut().map(|s| &mut s.access.buffer));
            }
            Core::Gemm { lhs, rhs, .. } => core.extend([&mut lhs.buffer, &mut rhs.buffer]),
            Core::Scatter { index, .. } => core.push(&mut index.buffer),
            Core::Library(routine) => {
                let items = routine.results.iter_mut().flatten().chain(&mut routine.operands);
                core.extend(items.map(|i| &mut i.buffer));
            }
            Core::Control(control) => core.extend(control.buffers_mut()),
            Core::Rows(rows) => {
                let locals = rows.locals.iter_mut().map(|l| &mut l.buffer);
                let parts = rows.parts.iter_mut().flat_map(Kernel::buffers_mut);
                return Box::new(parts.chain(locals));
            }
        }
        let stores = self.stores.iter_mut().map(|s| &mut s.access.buffer);
        Box::new(stores.chain(self.accesses.iter_mut().map(|a| &mut a.buffer)).chain(core))
    }

    /// Renumbers the arguments of scalars and random leaves, including those of nested programs.
    pub(crate) fn renumber_scalars(&mut self, scalar: &dyn Fn(usize) -> usize) {
        let prologue = match &mut self.core {
            Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        for inst in prologue.into_iter().chain([&mut self.body]).flat_map(|b| &mut b.insts) {
            if let Inst::Scalar { argument, .. } | Inst::Random { argument, .. } = inst {
                *argument = scalar(*argument);
            }
        }
        if let Core::Rows(rows) = &mut self.core {
            rows.parts.iter_mut().for_each(|p| p.renumber_scalars(scalar));
        }
        let Core::Control(control) = &mut self.core else { return };
        for feed in &mut control.operands {
            if let Feed::Splat { value: Splat::Scalar { argument, .. }, .. } = feed {
                *argument = scalar(*argument);
            }
        }
        for kernel in control.programs.iter_mut().flat_map(|p| &mut p.kernels) {
            kernel.renumber_scalars(scalar);
        }
    }

    /// The number of parallel points.
    pub fn points(&self) -> usize {
        self.extents[..self.parallel].iter().product()
    }

    /// The number of elements combined per parallel point; 1 for maps.
    pub fn reduced(&self) -> usize {
        self.extents[self.parallel..].iter().product()
    }

    /// The number of points of some dimensions.
    pub fn size(&self, dims: &Range<usize>) -> usize {
        self.extents[dims.clone()].iter().product()
    }

    /// The dimensions of a GEMM; `None` for other cores.
    pub fn gemm_dims(&self) -> Option<GemmDims> {
        let Core::Gemm { rows, columns, .. } = self.core else { return None };
        let columns = self.parallel.checked_sub(columns)?..self.parallel;
        let rows = columns.start.checked_sub(rows)?..columns.start;
        let contracted = self.parallel..self.extents.len();
        Some(GemmDims { batch: 0..rows.start, rows, columns, contracted })
    }

    /// The buffer of a map whose only result has one element per point, in the order of the points,
    /// and which reads no index, so that it cannot fail.
    pub(crate) fn fills_in_order(&self) -> Option<BufferId> {
        let (Core::Map, [store]) = (&self.core, self.stores.as_slice()) else { return None };
        let mut next = 1;
        let in_order = (0..self.parallel).rev().all(|d| {
            let follows = self.extents[d] == 1 || store.access.strides[d] == next;
            next *= self.extents[d] as isize;
            follows
        });
        let looks_up = |inst: &Inst| matches!(inst, Inst::Gather { .. } | Inst::Wrap { .. });
        let sure = in_order && store.access.offset == 0 && !self.body.insts.iter().any(looks_up);
        sure.then_some(store.access.buffer)
    }

    /// An access of the table.
    pub fn access(&self, id: AccessId) -> &Access {
        &self.accesses[id.0 as usize]
    }

    /// The operands of a GEMM.
    pub(crate) fn operands(&self) -> impl Iterator<Item = &Access> {
        let (lhs, rhs) = match &self.core {
            Core::Gemm { lhs, rhs, .. } => (Some(lhs), Some(rhs)),
            _ => (None, None),
        };
        lhs.into_iter().chain(rhs)
    }

    /// All stores, including those of the prologue.
    pub(crate) fn all_stores(&self) -> impl Iterator<Item = &Store> {
        let prologue = match &self.core {
            Core::Reduce { stores, .. } => &stores[..],
            _ => &[],
        };
        prologue.iter().chain(&self.stores)
    }

    /// Buffers that the kernel reads, repeats included.
    pub fn reads(&self) -> impl Iterator<Item = BufferId> + use<> {
        let mut ids: SmallVec<[BufferId; 16]> = SmallVec::new();
        self.accesses.iter().for_each(|a| ids.push(a.buffer));
        match &self.core {
            Core::Rows(rows) => ids.extend(rows.reads()),
            Core::Map | Core::Reduce { .. } => {}
            Core::Gemm { lhs, rhs, .. } => ids.extend_from_slice(&[lhs.buffer, rhs.buffer]),
            Core::Scatter { index, .. } => ids.push(index.buffer),
            Core::Library(routine) => ids.extend(routine.operands.iter().map(|i| i.buffer)),
            Core::Control(control) => ids.extend(control.reads()),
        }
        ids.into_iter()
    }

    /// Buffers that the kernel writes, repeats included.
    pub fn writes(&self) -> impl Iterator<Item = BufferId> + use<> {
        let mut ids: SmallVec<[BufferId; 8]> = SmallVec::new();
        self.stores.iter().for_each(|s| ids.push(s.access.buffer));
        match &self.core {
            Core::Rows(rows) => ids.extend(rows.writes()),
            Core::Library(routine) => {
                ids.extend(routine.results.iter().flatten().map(|i| i.buffer))
            }
            Core::Control(control) => ids.extend(control.writes()),
            Core::Reduce { stores, .. } => ids.extend(stores.iter().map(|s| s.access.buffer)),
            _ => {}
        }
        ids.into_iter()
    }

    /// The dtype of a value of a block of this kernel.
    pub fn dtype(&self, block: &Block, val: Val) -> DType {
        match block.inst(val) {
            Inst::Literal(l) => l.dtype,
            Inst::Load(access) | Inst::Gather { access, .. } => self.access(*access).dtype,
            Inst::Wrap { .. } => DType::I64,
            Inst::Scalar { dtype, .. }
            | Inst::Iota { dtype, .. }
            | Inst::Random { dtype, .. }
            | Inst::Core { dtype }
            | Inst::Op { dtype, .. } => *dtype,
        }
    }
}
