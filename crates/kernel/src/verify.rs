//! The verifier of programs. It checks, for each kernel and across kernels:
//!
//! * V1 no extent is zero, and there are at least as many dimensions as parallel ones;
//! * V2 operands of an instruction are defined before it in its block; `Core` occurs only in bodies
//!   of reductions and GEMMs;
//! * V3 operand dtypes are equal (except for the condition of `where`), indices are integers,
//!   results have the dtype that the op's rule gives, `Iota` and `Random` strides fit the block;
//! * V4 accesses name a buffer, have its dtype, have one stride per dimension of their block, and
//!   stay inside the buffer, including the reach of a gathered or scattered index;
//! * V5 a GEMM has M, N and K dimensions, `lhs` does not move along N, and `rhs` does not move
//!   along M;
//! * V6 a store has its buffer's dtype, writes no element twice, and no two stores of a kernel
//!   write one buffer; a scatter has one store, and points that differ along its independent
//!   dimensions write different elements, for any indices;
//! * V7 arguments are never written, and no kernel reads a buffer that it writes;
//! * V8 a computed buffer is written completely before it is read or returned, and not later: by
//!   one kernel that writes every element (others may overwrite some), or by several kernels none
//!   of which writes an element of another;
//! * V9 a routine runs over one batch dimension and has no body; its items fill their buffers and
//!   have the dtypes and sizes that the op's rule gives;
//! * V10 a branch or loop is one point without a body; its programs are well-formed, its operands,
//!   carries and results have the sizes that the programs expect, its workspace is large enough,
//!   and it reads no buffer that it writes;
//! * V11 a kernel over rows has parts and no body; its parts are maps, reductions and GEMMs with
//!   equally many points in each row, which access only their row of buffers that any part writes;
//! * V12 something provides the memory that a kernel touches: the caller that of arguments, the
//!   program that of buffers which its kernels write, a kernel over rows that of its locals. A local
//!   is a computed buffer that a part writes and a later part reads. No other kernel, whatever its
//!   core, touches it, and it is not a result of the program.

mod control;
mod rows;
#[cfg(test)]
mod tests;
mod types;
mod writes;

pub(crate) use rows::{Split, along_rows, keeps_to_rows, reads_by_row, split, write_disjointly};
use writes::Flow;

use crate::ir::{
    Access, AccessId, Block, BufferId, Core, GemmDims, Inst, Item, Kernel, KernelProgram, ReduceOp,
    Routine, Store, Val,
};
use girih_ir::{Class, DType, TensorSpec};
use smallvec::SmallVec;
use std::ops::Range;

/// A rule that a program violates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: {reason}")]
pub struct IllFormed {
    /// The number of the kernel; `None` if the whole program violates a rule.
    pub number: Option<usize>,
    /// Number and name of the kernel, or "program".
    pub kernel: String,
    /// The violated rule, with the offending part.
    pub reason: String,
}

type Check = Result<(), String>;

fn require(ok: bool, reason: impl FnOnce() -> String) -> Check {
    if ok { Ok(()) } else { Err(reason()) }
}

/// Checks all rules of this module.
///
/// Errors: [`IllFormed`], for the first kernel that violates a rule.
pub fn verify(program: &KernelProgram) -> Result<(), IllFormed> {
    let whole = |reason| IllFormed { number: None, kernel: "program".into(), reason };
    check_sizes(program).map_err(whole)?;
    let mut flow = Flow::new(program);
    for (number, kernel) in program.kernels.iter().enumerate() {
        let checked = known(program, kernel)
            .and_then(|()| check_kernel(program, kernel))
            .and_then(|()| flow.kernel(kernel));
        checked.map_err(|reason| IllFormed {
            number: Some(number),
            kernel: format!("kernel {number} {}", kernel.name),
            reason,
        })?;
    }
    for &output in &program.outputs {
        let exists = (output.0 as usize) < program.buffers.len();
        let checked =
            require(exists, || format!("V4: the program has no buffer {output}, which it returns"));
        checked.and_then(|()| flow.readable(output)).map_err(whole)?;
    }
    Ok(())
}

/// Fails for a buffer whose size in bytes overflows.
fn check_sizes(program: &KernelProgram) -> Check {
    for (i, buffer) in program.buffers.iter().enumerate() {
        let bytes = buffer.numel.checked_mul(buffer.dtype.size());
        let fits = bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok());
        require(fits, || {
            format!("V4: b{i} of {} elements is larger than any memory", buffer.numel)
        })?;
    }
    Ok(())
}

/// Fails for a kernel that names a buffer that does not exist.
fn known(program: &KernelProgram, kernel: &Kernel) -> Check {
    let exists = |id: &BufferId| (id.0 as usize) < program.buffers.len();
    let unknown = kernel.reads().chain(kernel.writes()).find(|id| !exists(id));
    match (unknown, &kernel.core) {
        (Some(id), _) => Err(format!("V4: the program has no buffer {id}")),
        (None, Core::Rows(rows)) => {
            let local = rows.locals.iter().find(|l| !exists(&l.buffer));
            require(local.is_none(), || "V4: the program has no buffer for a local".into())?;
            rows.parts.iter().try_for_each(|part| known(program, part))
        }
        (None, _) => Ok(()),
    }
}

fn check_kernel(program: &KernelProgram, kernel: &Kernel) -> Check {
    require(kernel.extents.iter().all(|&e| e > 0), || "V1: an extent is zero".into())?;
    let points = kernel.extents.iter().try_fold(1_isize, |n, &e| n.checked_mul(e.try_into().ok()?));
    require(points.is_some(), || "V1: the space has more points than 64 bits can count".into())?;
    require(kernel.parallel <= kernel.extents.len(), || {
        "V1: more dimensions are parallel than there are".into()
    })?;
    if let Core::Library(routine) = &kernel.core {
        return check_routine(program, kernel, routine);
    }
    if let Core::Control(control) = &kernel.core {
        return control::check(program, kernel, control);
    }
    if let Core::Rows(rows) = &kernel.core {
        return rows::check(program, kernel, rows);
    }
    let all = kernel.extents.len();
    let at = |access: &Access, dims| check_access(program, kernel, access, dims, None);
    match &kernel.core {
        Core::Map => {
            require(kernel.parallel == all, || "V1: a map must not reduce a dimension".into())?
        }
        Core::Reduce { prologue, value, op, stores } => {
            check_block(program, kernel, prologue, all, None)?;
            check_stores(program, kernel, stores, prologue, all)?;
            check_reduce(kernel, prologue, *value, *op)?;
        }
        Core::Gemm { lhs, rhs, dtype, .. } => {
            at(lhs, all)?;
            at(rhs, all)?;
            let fits = |from: DType| {
                let extended = from.is_int() && dtype.is_int() && from.size() < dtype.size();
                from == *dtype || extended
            };
            require(fits(lhs.dtype) && fits(rhs.dtype), || {
                format!("V5: {lhs} and {rhs} cannot be operands of a GEMM of {dtype}")
            })?;
            let full = |d: &GemmDims| {
                [&d.rows, &d.columns, &d.contracted].into_iter().all(|range| !range.is_empty())
            };
            let Some(dims) = kernel.gemm_dims().filter(full) else {
                return Err(
                    "V5: the space of a GEMM must be [batch.., rows.., columns.. | contracted..]"
                        .into(),
                );
            };
            let fixed = |a: &Access, dims: Range<usize>| a.strides[dims].iter().all(|&s| s == 0);
            let fixed = fixed(lhs, dims.columns) && fixed(rhs, dims.rows);
            require(fixed, || {
                format!("V5: {lhs} (A) must not move along columns, nor {rhs} (B) along rows")
            })?;
            types::gemm(*dtype)?;
        }
        Core::Scatter { mode, index, size, independent, .. } => {
            require(kernel.parallel == all, || "V1: a scatter must not reduce a dimension".into())?;
            at(index, all)?;
            require(index.dtype.is_int(), || {
                "V3: the index of a scatter must be an integer".into()
            })?;
            require(kernel.stores.len() == 1, || {
                "V6: a scatter must have exactly one store".into()
            })?;
            require(*size > 0, || "V4: a scatter must index an axis that has elements".into())?;
            let dims = independent.iter().all(|&d| d < all);
            require(dims, || {
                format!("V1: the independent dimensions {independent:?} must be below {all}")
            })?;
            types::scatter(*mode, kernel.stores[0].access.dtype)?;
        }
        Core::Library(_) | Core::Control(_) | Core::Rows(_) => unreachable!("checked above"),
    }
    let core = match &kernel.core {
        Core::Reduce { op: ReduceOp::ArgMax | ReduceOp::ArgMin, .. } => Some(DType::I64),
        Core::Reduce { prologue, value, .. } => Some(kernel.dtype(prologue, *value)),
        Core::Gemm { dtype, .. } => Some(*dtype),
        _ => None,
    };
    check_block(program, kernel, &kernel.body, kernel.parallel, Some(core))?;
    check_stores(program, kernel, &kernel.stores, &kernel.body, kernel.parallel)
}

fn check_routine(program: &KernelProgram, kernel: &Kernel, routine: &Routine) -> Check {
    let form = kernel.extents.len() == 1 && kernel.parallel == 1;
    require(form, || "V9: the space of a routine must be one batch dimension".into())?;
    let bare = kernel.body.insts.is_empty() && kernel.stores.is_empty();
    require(bare && kernel.accesses.is_empty(), || "V9: a routine must not have a body".into())?;
    require(routine.op.class() == Class::Library, || {
        format!("V9: {} is not the op of a library routine", routine.op.name())
    })?;
    for item in routine.operands.iter().chain(routine.results.iter().flatten()) {
        let buffer = program.buffers.get(item.buffer.0 as usize);
        let Some(buffer) = buffer else {
            return Err(format!("V4: the program has no buffer {}", item.buffer));
        };
        require(buffer.dtype == item.dtype, || {
            format!("V4: {item} is not of dtype {}, as its buffer", buffer.dtype.short())
        })?;
        let sizes = item.dims.iter().try_fold(kernel.extents[0], |n, &d| n.checked_mul(d));
        require(sizes == Some(buffer.numel), || {
            format!("V9: the items {item} do not fill their buffer of {} elements", buffer.numel)
        })?;
    }
    let batched = |item: &Item| TensorSpec::new(&item.dims[..], item.dtype);
    let specs: SmallVec<[TensorSpec; 3]> = routine.operands.iter().map(batched).collect();
    let refs: SmallVec<[&TensorSpec; 3]> = specs.iter().collect();
    // A host op without results that are needed still runs.
    let host = routine.op.as_host().is_some();
    require(host || routine.results.iter().any(Option::is_some), || {
        "V9: a routine must give a result".into()
    })?;
    require(!host || kernel.points() == 1, || "V9: a host op must run once".into())?;
    for (number, item) in routine.results.iter().enumerate() {
        let Some(item) = item else { continue };
        let spec = routine.op.with_result(number as u8).infer(&refs);
        let spec = spec.map_err(|e| format!("V9: {e}"))?;
        require(spec == batched(item), || {
            format!("V9: result {number} must be {spec}, but is {item}")
        })?;
        let own = kernel.reads().all(|b| b != item.buffer);
        require(own, || format!("V7: {} is both read and written", item.buffer))?;
        let once = kernel.writes().filter(|b| *b == item.buffer).count() == 1;
        require(once, || format!("V6: {} is stored twice", item.buffer))?;
    }
    Ok(())
}

fn check_reduce(kernel: &Kernel, prologue: &Block, value: Val, op: ReduceOp) -> Check {
    require((value.0 as usize) < prologue.insts.len(), || {
        format!("V2: the reduced value {value} is not defined")
    })?;
    let bool_only = matches!(op, ReduceOp::Any | ReduceOp::All);
    let dtype = kernel.dtype(prologue, value);
    require(!bool_only || dtype == DType::Bool, || {
        format!("V3: reduce {op} needs bools, got {}", dtype.short())
    })?;
    require(kernel.parallel < kernel.extents.len(), || {
        "V1: a reduction must reduce a dimension".into()
    })?;
    types::reduction(op, dtype)
}

/// The smallest and largest element that an access reaches; `None` if they overflow 64 bits.
fn reach(access: &Access, extents: &[usize]) -> Option<(isize, isize)> {
    span(access.offset, access.strides.iter().copied().zip(extents.iter().copied()))
}

/// The smallest and largest sum of an offset and steps along dimensions of these strides and sizes.
fn span(offset: isize, dims: impl Iterator<Item = (isize, usize)>) -> Option<(isize, isize)> {
    let (mut low, mut high) = (offset, offset);
    for (stride, extent) in dims {
        let far = stride.checked_mul(isize::try_from(extent).ok()?.checked_sub(1)?)?;
        low = low.checked_add(far.min(0))?;
        high = high.checked_add(far.max(0))?;
    }
    Some((low, high))
}

/// `index` is the stride and size of an axis that an index value addresses.
fn check_access(
    program: &KernelProgram,
    kernel: &Kernel,
    access: &Access,
    dims: usize,
    index: Option<(isize, usize)>,
) -> Check {
    let buffer = program.buffers.get(access.buffer.0 as usize);
    let Some(buffer) = buffer else {
        return Err(format!("V4: the program has no buffer {}", access.buffer));
    };
    require(buffer.dtype == access.dtype, || {
        format!("V4: {access} is not of dtype {}, as its buffer", buffer.dtype.short())
    })?;
    let rank = access.strides.len();
    require(rank == dims, || format!("V4: {access} has {rank} strides for {dims} dimensions"))?;
    if index.is_some_and(|(_, size)| size == 0) {
        // Every index is out of bounds, so nothing is ever read.
        return Ok(());
    }
    let dims = access.strides.iter().copied().zip(kernel.extents.iter().copied());
    let Some((low, high)) = span(access.offset, dims.chain(index)) else {
        return Err(format!("V4: the elements of {access} have numbers of more than 64 bits"));
    };
    let inside = low >= 0 && high < buffer.numel as isize;
    require(inside, || format!("V4: {access} reaches {low}..={high} of {} elements", buffer.numel))
}

/// `core` is given for bodies: the dtype of the core's value, if there is one.
fn check_block(
    program: &KernelProgram,
    kernel: &Kernel,
    block: &Block,
    dims: usize,
    core: Option<Option<DType>>,
) -> Check {
    let listed = |id: AccessId| {
        let access = kernel.accesses.get(id.0 as usize);
        access.ok_or_else(|| format!("V4: the kernel has no access {}", id.0))
    };
    for (i, inst) in block.insts.iter().enumerate() {
        let here = || format!("v{i}");
        let defined = |v: Val| {
            require((v.0 as usize) < i, || {
                format!("V2: {} uses {v}, which is not defined before it", here())
            })
        };
        match inst {
            Inst::Literal(_) | Inst::Scalar { .. } => {}
            Inst::Load(id) => check_access(program, kernel, listed(*id)?, dims, None)?,
            Inst::Gather { access, index, stride, size } => {
                defined(*index)?;
                let int = kernel.dtype(block, *index).is_int();
                require(int, || format!("V3: the index of {} must be an integer", here()))?;
                let along = Some((*stride, *size));
                check_access(program, kernel, listed(*access)?, dims, along)?;
            }
            Inst::Wrap { index, .. } => {
                defined(*index)?;
                let int = kernel.dtype(block, *index).is_int();
                require(int, || format!("V3: the index of {} must be an integer", here()))?;
            }
            Inst::Iota { offset, strides, .. } | Inst::Random { offset, strides, .. } => {
                require(strides.len() == dims, || {
                    format!("V3: {} must have a stride for each of {dims} dimensions", here())
                })?;
                let dims = strides.iter().copied().zip(kernel.extents.iter().copied());
                require(span(*offset, dims).is_some(), || {
                    format!("V3: the values of {} have more than 64 bits", here())
                })?;
                types::leaf(inst)?;
            }
            Inst::Core { dtype } => {
                let yields = core.flatten();
                require(yields == Some(*dtype), || match yields {
                    Some(other) => format!(
                        "V2: {} reads the core's value as {}, which is {}",
                        here(),
                        dtype.short(),
                        other.short()
                    ),
                    None => {
                        format!("V2: {} reads the core's value, of which there is none", here())
                    }
                })?;
            }
            Inst::Op { code, args, dtype } => {
                args.iter().try_for_each(|&a| defined(a))?;
                types::op(kernel, block, *code, args, *dtype)?;
            }
        }
    }
    Ok(())
}

/// Checks the stores of a block over `dims` dimensions.
fn check_stores(
    program: &KernelProgram,
    kernel: &Kernel,
    stores: &[Store],
    block: &Block,
    dims: usize,
) -> Check {
    for store in stores {
        let access = &store.access;
        let defined = (store.value.0 as usize) < block.insts.len();
        require(defined, || format!("V2: the stored value {} is not defined", store.value))?;
        let dtype = kernel.dtype(block, store.value);
        require(dtype == access.dtype, || {
            format!("V6: {access} cannot store a value of dtype {}", dtype.short())
        })?;
        let once = kernel.writes().filter(|b| *b == access.buffer).count() == 1;
        require(once, || format!("V6: {} is stored twice", access.buffer))?;
        let own = kernel.reads().all(|b| b != access.buffer);
        require(own, || format!("V7: {} is both read and written", access.buffer))?;
        match &kernel.core {
            Core::Scatter { zeroed, stride, size, independent, .. } => {
                check_access(program, kernel, access, dims, Some((*stride, *size)))?;
                let dims = access.strides.iter().copied().zip(kernel.extents.iter().copied());
                let last = span(access.offset, dims.chain([(*stride, *size)])).map(|s| s.1);
                let numel = program.buffers[access.buffer.0 as usize].numel;
                // Zeroing covers the elements from the first to the last one that the scatter may
                // write.
                let whole = last.is_some_and(|last| last as usize + 1 == numel);
                require(whole || !zeroed, || {
                    format!("V8: {access} is not set to zero as a whole")
                })?;
                let distinct =
                    writes::disjoint(access, &kernel.extents, independent, (*stride, *size));
                require(distinct, || format!("V6: {access} writes elements of several points"))?;
            }
            _ => {
                check_access(program, kernel, access, dims, None)?;
                let distinct = writes::injective(access, &kernel.extents[..dims]);
                require(distinct, || format!("V6: {access} writes elements twice"))?;
            }
        }
    }
    Ok(())
}
