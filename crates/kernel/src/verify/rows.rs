//! Rules V11 and V12: kernels over rows, and their locals.

use super::{Check, check_kernel, reach, require};
use crate::ir::{Access, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram, RowwiseCore};
use smallvec::SmallVec;
use std::cmp::Ordering;

pub(super) fn check(program: &KernelProgram, kernel: &Kernel, rows: &RowwiseCore) -> Check {
    let form = kernel.extents.len() == 1 && kernel.parallel == 1;
    let bare = kernel.body.insts.is_empty() && kernel.stores.is_empty();
    require(form && bare && kernel.accesses.is_empty(), || {
        "V11: a kernel over rows must have one parallel dimension and no body".into()
    })?;
    require(!rows.parts.is_empty(), || "V11: a kernel over rows must have a part".into())?;
    for part in &rows.parts {
        check_kernel(program, part).map_err(|e| format!("{}: {e}", part.name))?;
        let known = matches!(part.core, Core::Map | Core::Reduce { .. } | Core::Gemm { .. });
        require(known, || format!("V11: {} must be a map, a reduction or a GEMM", part.name))?;
    }
    let writes: Vec<BufferId> = rows.parts.iter().flat_map(Kernel::writes).collect();
    let written = |id: BufferId| writes.contains(&id);
    let shared = |id: BufferId| written(id) && !write_disjointly(program, rows.parts.iter(), id);
    let confined = rows.parts.iter().all(|p| keeps_to_rows(program, p, kernel.points(), shared));
    require(confined, || "V11: a part accesses another row than its own".into())?;
    for local in &rows.locals {
        let buffer = &program.buffers[local.buffer.0 as usize];
        let whole = local.row_bytes.checked_mul(kernel.points());
        require(whole == Some(buffer.size_bytes()), || {
            format!("V11: the rows of {} do not have {} bytes", local.buffer, local.row_bytes)
        })?;
        require(buffer.kind == BufferKind::Computed, || {
            format!("V12: the local {} is an argument", local.buffer)
        })?;
        let times = rows.locals.iter().filter(|other| other.buffer == local.buffer).count();
        require(times == 1, || format!("V12: {} is a local twice", local.buffer))?;
        check_passed(rows, local.buffer)?;
    }
    Ok(())
}

/// Fails unless a part writes a local and a later part reads it.
fn check_passed(rows: &RowwiseCore, local: BufferId) -> Check {
    let writes = |part: &Kernel| part.writes().any(|id| id == local);
    let reads = |part: &Kernel| part.reads().any(|id| id == local);
    let writer = rows.parts.iter().position(writes);
    require(writer.is_some(), || format!("V12: no part writes the local {local}"))?;
    let read = rows.parts[writer.map_or(0, |at| at + 1)..].iter().any(reads);
    require(read, || format!("V12: no part reads the local {local} after it is written"))
}

/// Whether the parts write disjoint parts of a buffer, as operands of a concatenation do, and no
/// part reads the buffer: then rows need not stay separate.
pub(crate) fn write_disjointly<'a>(
    program: &KernelProgram,
    parts: impl Iterator<Item = &'a Kernel> + Clone,
    id: BufferId,
) -> bool {
    let mut reached: SmallVec<[(isize, isize); 4]> = SmallVec::new();
    for part in parts.clone() {
        let stores = part.all_stores().filter(|s| s.access.buffer == id);
        for store in stores {
            let Some(span) = reach(&store.access, &part.extents) else { return false };
            reached.push(span);
        }
    }
    reached.sort_unstable();
    let whole = program.buffers[id.0 as usize].numel as isize;
    reached.iter().all(|(first, last)| last - first + 1 < whole)
        && reached.windows(2).all(|two| two[0].1 < two[1].0)
        && parts.flat_map(Kernel::reads).all(|read| read != id)
}

/// Whether a kernel can be a part of a kernel over `rows` rows: it has the same number of points
/// per row, and accesses only its own row of buffers that parts share.
pub(crate) fn keeps_to_rows(
    program: &KernelProgram,
    part: &Kernel,
    rows: usize,
    shared: impl Fn(BufferId) -> bool,
) -> bool {
    let Some(split) = split(part, rows) else { return false };
    let accesses = part.accesses.iter().chain(part.all_stores().map(|s| &s.access));
    let own = accesses.chain(part.operands()).filter(|a| shared(a.buffer)).all(|access| {
        let numel = program.buffers[access.buffer.0 as usize].numel;
        numel.is_multiple_of(rows) && stays(access, &part.extents, &split, numel / rows)
    });
    own && (rows == 1 || !gathers(part, |a| shared(a.buffer)))
}

/// Whether a kernel over `rows` rows reads only the current row of a buffer, and the rows of the
/// buffer are as long as the rows of the kernel's points.
pub(crate) fn reads_by_row(kernel: &Kernel, buffer: BufferId, rows: usize) -> bool {
    let Some(split) = split(kernel, rows) else { return false };
    let row = kernel.points() * kernel.reduced() / rows;
    let mut accesses = kernel.accesses.iter().filter(|a| a.buffer == buffer);
    accesses.all(|a| stays(a, &kernel.extents, &split, row))
        && kernel.operands().all(|a| a.buffer != buffer)
        && !gathers(kernel, |a| a.buffer == buffer)
}

/// Whether no access of a kernel interleaves the elements of different rows, as an access along
/// columns does: its movement from row to row is either larger than its movement within a row, or
/// zero.
pub(crate) fn along_rows(kernel: &Kernel, rows: usize) -> bool {
    let Some(split) = split(kernel, rows) else { return false };
    let accesses = kernel.accesses.iter().chain(kernel.all_stores().map(|s| &s.access));
    accesses.into_iter().all(|access| {
        let (outside, inside) = cut(access, &kernel.extents, &split);
        let reach = |dims: &[(usize, isize)]| -> usize {
            dims.iter().map(|(extent, stride)| (extent - 1) * stride.unsigned_abs()).sum()
        };
        let moving = |(extent, stride): &&(usize, isize)| *extent > 1 && *stride != 0;
        outside.iter().filter(moving).all(|(_, stride)| stride.unsigned_abs() > reach(&inside))
    })
}

/// The division of a kernel's points into rows. The first `outer` steps of dimension `at` and the
/// dimensions before `at` count rows; the rest is within a row. Columns of a GEMM are never
/// divided.
pub(crate) struct Split {
    /// The dimension.
    pub at: usize,
    /// The number of its steps that count rows; 1 if it is within a row.
    pub outer: usize,
}

/// The division of a kernel's points into `rows` rows with equal numbers of points, if it exists.
pub(crate) fn split(kernel: &Kernel, rows: usize) -> Option<Split> {
    let mut product = 1;
    let end = kernel.gemm_dims().map_or(kernel.parallel, |dims| dims.columns.start);
    for at in 0..=end {
        if product == rows {
            return Some(Split { at, outer: 1 });
        }
        let extent = *kernel.extents[..end].get(at)?;
        if product * extent > rows {
            let outer = rows / product;
            let even = rows.is_multiple_of(product) && extent.is_multiple_of(outer);
            return even.then_some(Split { at, outer });
        }
        product *= extent;
    }
    None
}

/// Extents and strides.
type Dims = SmallVec<[(usize, isize); 6]>;

/// The dimensions of an access over rows, and those within a row; the divided dimension is in both.
fn cut(access: &Access, extents: &[usize], split: &Split) -> (Dims, Dims) {
    let (mut outside, mut inside) = (Dims::new(), Dims::new());
    for (d, (&stride, &extent)) in access.strides.iter().zip(extents).enumerate() {
        match d.cmp(&split.at) {
            Ordering::Less => outside.push((extent, stride)),
            Ordering::Equal => {
                let within = extent / split.outer;
                outside.push((split.outer, stride * within as isize));
                inside.push((within, stride));
            }
            Ordering::Greater => inside.push((extent, stride)),
        }
    }
    (outside, inside)
}

/// Whether an access stays, in each row, within `row` consecutive elements of its buffer, row after
/// row.
fn stays(access: &Access, extents: &[usize], split: &Split, row: usize) -> bool {
    let (outside, inside) = cut(access, extents, split);
    let mut step = row as isize;
    let in_order = outside.iter().rev().all(|&(extent, stride)| {
        let fits = extent == 1 || stride == step;
        step *= extent as isize;
        fits
    });
    let far = |(extent, stride): &(usize, isize)| (*extent as isize - 1) * stride;
    let low: isize = inside.iter().map(|d| far(d).min(0)).sum();
    let high: isize = inside.iter().map(|d| far(d).max(0)).sum();
    in_order && access.offset + low >= 0 && access.offset + high < row as isize
}

/// Whether a kernel gathers from one of these accesses.
fn gathers(kernel: &Kernel, from: impl Fn(&Access) -> bool) -> bool {
    let prologue = match &kernel.core {
        Core::Reduce { prologue, .. } => Some(prologue),
        _ => None,
    };
    let insts = prologue.into_iter().chain([&kernel.body]).flat_map(|b| &b.insts);
    let mut gathered = insts.filter_map(|inst| match inst {
        Inst::Gather { access, .. } => Some(kernel.access(*access)),
        _ => None,
    });
    gathered.any(from)
}
