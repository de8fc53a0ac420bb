//! Reuse of intermediates: if a reduction in a kernel over rows computes an expensive value that a
//! later part computes too, such as the exponentials of a softmax, the reduction stores the value.
//! It becomes a local of the kernel, like the buffers by which the parts pass each other rows.

use super::Lowering;
use super::build::Built;
use crate::Target;
use crate::dead::operands;
use crate::ir::{
    Access, AccessId, Block, Buffer, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram,
    Local, RowwiseCore, Store, Val,
};
use girih_ir::{DType, Literal, OpCode};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The identity of a value across kernels: equal keys at equal points are equal values. Operands
/// are the numbers of their keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ValueKey {
    Load(Access),
    Op(OpCode, DType, SmallVec<[u32; 3]>),
    Literal(Literal),
    Scalar(usize, DType),
    Iota(isize, SmallVec<[isize; 6]>, DType),
    /// A unique key, for values that are not compared.
    Only(usize),
}

/// Numbers the keys.
#[derive(Default)]
struct ValueKeys(FxHashMap<ValueKey, u32>);

impl ValueKeys {
    /// The key number of each value of a block.
    fn number(&mut self, kernel: &Kernel, block: &Block) -> Vec<u32> {
        let mut numbers: Vec<u32> = Vec::with_capacity(block.insts.len());
        for inst in &block.insts {
            let key = match inst {
                Inst::Load(id) => ValueKey::Load(kernel.access(*id).clone()),
                Inst::Op { code, args, dtype } => ValueKey::Op(
                    *code,
                    *dtype,
                    args.iter().map(|a| numbers[a.0 as usize]).collect(),
                ),
                Inst::Literal(literal) => ValueKey::Literal(*literal),
                Inst::Scalar { argument, dtype } => ValueKey::Scalar(*argument, *dtype),
                Inst::Iota { offset, strides, dtype } => {
                    ValueKey::Iota(*offset, strides.clone(), *dtype)
                }
                _ => ValueKey::Only(self.0.len()),
            };
            let next = self.0.len() as u32;
            numbers.push(*self.0.entry(key).or_insert(next));
        }
        numbers
    }
}

/// Stores values in the kernels over rows that later parts of the kernels would compute too.
pub(super) fn share(lowering: Lowering<'_>, built: &mut Built) {
    let program = &mut built.program;
    let mut kernels = std::mem::take(&mut program.kernels);
    for kernel in &mut kernels {
        let rows = kernel.points();
        let Core::Rows(core) = &mut kernel.core else { continue };
        let before = program.buffers.len();
        if share_in(lowering.target, program, &mut core.parts) {
            core.locals = locals(program, rows, core, before);
        }
    }
    program.kernels = kernels;
}

/// Stores the values that later parts would compute too; false if there are none.
fn share_in(target: &Target, program: &mut KernelProgram, parts: &mut [Kernel]) -> bool {
    let mut shared = false;
    for first in 0..parts.len() {
        for second in first + 1..parts.len() {
            let (head, tail) = parts.split_at_mut(second);
            shared |= reuse(target, program, &mut head[first], &mut tail[0]);
        }
    }
    shared
}

/// The locals of a kernel whose parts share values: those that it had, unless no part reads them any
/// more, and the buffers of the values, which are those from number `before` on.
fn locals(program: &KernelProgram, rows: usize, core: &RowwiseCore, before: usize) -> Vec<Local> {
    let read: Vec<BufferId> = core.parts.iter().flat_map(Kernel::reads).collect();
    let passes_rows = |id: BufferId| {
        let local = core.locals.iter().any(|local| local.buffer == id);
        (local || id.0 as usize >= before) && read.contains(&id)
    };
    let mut locals: Vec<Local> = Vec::new();
    for buffer in core.parts.iter().flat_map(Kernel::writes) {
        if passes_rows(buffer) && locals.iter().all(|local| local.buffer != buffer) {
            let row_bytes = program.buffers[buffer.0 as usize].size_bytes() / rows;
            locals.push(Local { buffer, row_bytes });
        }
    }
    locals
}

/// Replaces the expensive values of a map that a reduction over the same space computes too; false
/// if there are none.
fn reuse(
    target: &Target,
    program: &mut KernelProgram,
    reduction: &mut Kernel,
    map: &mut Kernel,
) -> bool {
    let same = reduction.extents == map.extents && map.core == Core::Map;
    let Core::Reduce { prologue, .. } = &reduction.core else { return false };
    if !same {
        return false;
    }
    let mut keys = ValueKeys::default();
    let known = keys.number(reduction, prologue);
    let found = keys.number(map, &map.body);
    let twin = |v: usize| known.iter().position(|k| *k == found[v]);
    let heavy = expensive(target, &map.body);
    let outermost = |v: usize| {
        let users = map.body.insts.iter().enumerate().filter(|(_, i)| uses(i, v));
        users.map(|(u, _)| u).any(|u| twin(u).is_none())
            || map.stores.iter().any(|s| s.value.0 as usize == v)
    };
    let common: Vec<(usize, usize)> = (0..found.len())
        .filter(|&v| heavy[v] && matches!(map.body.insts[v], Inst::Op { .. }) && outermost(v))
        .filter_map(|v| Some((v, twin(v)?)))
        .collect();
    for &(value, twin) in &common {
        let access = stored_value(program, reduction, Val(twin as u32));
        map.accesses.push(access);
        map.body.insts[value] = Inst::Load(AccessId(map.accesses.len() as u32 - 1));
    }
    map.sweep();
    !common.is_empty()
}

/// For each value, whether it depends on an expensive op.
fn expensive(target: &Target, block: &Block) -> Vec<bool> {
    let mut heavy: Vec<bool> = Vec::with_capacity(block.insts.len());
    for inst in &block.insts {
        heavy.push(match inst {
            Inst::Op { code, args, .. } => {
                target.is_expensive(*code) || args.iter().any(|a| heavy[a.0 as usize])
            }
            _ => false,
        });
    }
    heavy
}

fn uses(inst: &Inst, value: usize) -> bool {
    operands(inst).iter().any(|a| a.0 as usize == value)
}

/// The store of a value of a reduction's prologue; adds a buffer if there is no store.
fn stored_value(program: &mut KernelProgram, reduction: &mut Kernel, value: Val) -> Access {
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(1, reduction.extents.len());
    for d in (1..strides.len()).rev() {
        strides[d - 1] = strides[d] * reduction.extents[d] as isize;
    }
    let numel = reduction.extents.iter().product();
    let Core::Reduce { prologue, stores, .. } = &reduction.core else {
        unreachable!("the caller matched the core")
    };
    if let Some(store) = stores.iter().find(|s| s.value == value) {
        return store.access.clone();
    }
    let dtype = reduction.dtype(prologue, value);
    program.buffers.push(Buffer { dtype, numel, kind: BufferKind::Computed });
    let buffer = BufferId(program.buffers.len() as u32 - 1);
    let access = Access { buffer, dtype, offset: 0, strides };
    if let Core::Reduce { stores, .. } = &mut reduction.core {
        stores.push(Store { access: access.clone(), value });
    }
    access
}
