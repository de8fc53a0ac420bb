//! Kernels over rows: several maps, reductions and GEMMs run on a few rows at a time, while
//! intermediate rows are in the cache.

use super::chain::CompiledGemm;
use super::code::Code;
use super::gemm::PreparedGemm;
use super::points::Points;
use super::reduce::PreparedReduce;
use super::short::Short;
use super::stream::gcd;
use super::{
    Bindings, Bounds, ExecError, PrepareOptions, Prepared, PreparedCore, Scratch, chunk_points,
};
use crate::tuning::tuning;
use girih_ir::DType;
use girih_kernel::place;
use girih_kernel::{Buffer, BufferId, BufferKind, Core, Kernel, KernelProgram, RowwiseCore};
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// The number of rows of A in a group of rows, if GEMMs are among the parts: they read the same B
/// for each row.
const GEMM_LINES: Range<usize> = 16..128;
/// The maximum number of chunks of a kernel with GEMMs, which reuse packed B within a chunk.
const MAX_GEMM_CHUNKS: usize = 16;

enum RowPart {
    Map(Points),
    Reduce(Box<PreparedReduce>),
    /// A prepared matmul, and a faster implementation of its GEMM.
    Gemm(Box<Prepared>, Option<GemmPart>),
}

/// A GEMM that uses a part of the memory for locals.
struct GemmPart {
    run: Box<dyn CompiledGemm>,
    offset: usize,
    lines: Lines,
}

/// The rows of A that belong to a row of the kernel.
#[derive(Clone, Copy)]
struct Lines {
    per_row: usize,
    /// The number of rows of A in one entry of the batch.
    entry: usize,
}

impl Lines {
    /// The lines of a GEMM in a kernel over `rows` rows.
    fn of(part: &Kernel, rows: usize) -> Option<Lines> {
        let dims = part.gemm_dims()?;
        let entry = part.size(&dims.rows);
        Some(Lines { per_row: part.size(&dims.batch) * entry / rows, entry })
    }

    /// The numbers of rows of A that the GEMM is run on, for groups with these numbers of rows.
    fn lengths(self, groups: &[usize]) -> SmallVec<[usize; 2]> {
        groups.iter().map(|rows| (rows * self.per_row).min(self.entry)).collect()
    }

    /// The rows of A that belong to some rows of the kernel, split by entries of the batch.
    fn by_entry(self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (mut at, end) = (rows.start * self.per_row, rows.end * self.per_row);
        std::iter::from_fn(move || {
            let part_of_entry = at..end.min((at / self.entry + 1) * self.entry);
            at = part_of_entry.end;
            (!part_of_entry.is_empty()).then_some(part_of_entry)
        })
    }
}

/// A buffer that holds only the rows being computed.
struct Local {
    buffer: usize,
    row_bytes: usize,
    /// The offset in the memory for locals.
    offset: usize,
}

/// Consecutive groups of rows.
struct Groups {
    /// The number of rows of a group.
    rows: usize,
    /// Groups do not cross multiples of this number of rows, so that no group crosses from an entry
    /// of a GEMM's batch into the next entry.
    entry: usize,
    /// The number of groups per `entry` rows, and the total number of groups.
    per_entry: usize,
    count: usize,
}

/// A prepared kernel over rows.
pub(super) struct PreparedRows {
    /// The parts, each with its number of points per row.
    parts: Vec<(RowPart, usize)>,
    locals: Vec<Local>,
    local_bytes: usize,
    groups: Groups,
    /// The number of groups of a chunk.
    chunk: usize,
    cost_ps: usize,
}

impl Groups {
    fn new(parts: &[Kernel], rows: usize) -> Groups {
        let gemms = || parts.iter().filter_map(|p| Lines::of(p, rows));
        let within = gemms().filter(|l| l.per_row < l.entry).map(|l| l.entry / l.per_row);
        let entry = within.reduce(gcd).unwrap_or(rows);
        let most_lines = gemms().map(|l| l.per_row).max();
        let any = most_lines.is_some();
        let elements = |p: &Kernel| match any {
            true => p.points() / rows,
            false => (p.points() / rows).saturating_mul(p.reduced()),
        };
        let widest = parts.iter().map(elements).max().unwrap_or(1).max(1);
        let most = match most_lines {
            Some(lines) => {
                let few = |n: usize| (n / lines).max(1);
                let fitting = tuning().row_gemm_elements / widest;
                fitting.clamp(few(GEMM_LINES.start), few(GEMM_LINES.end))
            }
            None => tuning().row_elements / widest,
        };
        let most = most.clamp(1, entry);
        // The groups of an entry have nearly equal lengths.
        let each = if any { entry.div_ceil(entry.div_ceil(most)) } else { most };
        let per_entry = entry.div_ceil(each);
        Groups { rows: each, entry, per_entry, count: rows / entry * per_entry }
    }

    /// The rows of a group.
    fn get(&self, group: usize) -> Range<usize> {
        let (entry, i) = (group / self.per_entry, group % self.per_entry);
        let at = |i: usize| entry * self.entry + (i * self.rows).min(self.entry);
        at(i)..at(i + 1)
    }

    /// The numbers of rows that groups have.
    fn lengths(&self) -> SmallVec<[usize; 2]> {
        let rest = self.entry % self.rows;
        [self.rows, rest].into_iter().filter(|&rows| rows > 0).collect()
    }

    /// The number of groups in a chunk.
    fn chunk(&self, cost_ps: usize, gemms: bool) -> usize {
        if gemms {
            return (self.count / MAX_GEMM_CHUNKS).clamp(1, self.per_entry);
        }
        let rows = self.count / self.per_entry * self.entry;
        chunk_points(rows, cost_ps / rows, self.rows).div_ceil(self.rows)
    }
}

impl PreparedRows {
    pub fn new(
        kernel: &Kernel,
        definition: &RowwiseCore,
        options: PrepareOptions<'_>,
    ) -> PreparedRows {
        let rows = kernel.points();
        let groups = Groups::new(&definition.parts, rows);
        let (locals, mut local_bytes) = place_locals(definition, groups.rows);
        let parts = definition.parts.iter().flat_map(|part| {
            // Results that other parts read or write should stay in the cache.
            let others = || definition.parts.iter().filter(|p| !std::ptr::eq(*p, part));
            let named = |b| others().flat_map(|p| p.reads().chain(p.writes())).any(|id| id == b);
            let streams = !part.stores.iter().any(|s| named(s.access.buffer));
            let options = PrepareOptions { streams, ..options };
            let mut made = RowPart::new(part, rows, &groups.lengths(), options);
            for (part, _) in &mut made {
                if let RowPart::Gemm(_, Some(gemm)) = part {
                    gemm.offset = local_bytes;
                    local_bytes += gemm.run.packed_bytes().next_multiple_of(64);
                }
            }
            made
        });
        let parts: Vec<_> = parts.collect();
        let costs = parts.iter().map(|(part, per_row)| part.cost_ps(per_row * rows));
        let cost_ps = costs.fold(0, usize::saturating_add);
        let gemms = parts.iter().any(|p| matches!(p.0, RowPart::Gemm(..)));
        let chunk = groups.chunk(cost_ps, gemms);
        PreparedRows { parts, locals, local_bytes, groups, chunk, cost_ps }
    }

    /// The codes of all parts.
    pub fn codes(&self) -> Vec<&Code> {
        let mut codes = Vec::new();
        for (part, _) in &self.parts {
            match part {
                RowPart::Map(map) => codes.push(map.code()),
                RowPart::Reduce(reduce) => codes.extend(reduce.codes()),
                RowPart::Gemm(kernel, _) => codes.push(portable(kernel).code()),
            }
        }
        codes
    }

    /// The GEMMs that are not run by the executor's loops.
    pub fn gemms(&self) -> impl Iterator<Item = &dyn CompiledGemm> {
        self.parts.iter().filter_map(|(part, _)| match part {
            RowPart::Gemm(_, Some(gemm)) => Some(&*gemm.run),
            _ => None,
        })
    }

    pub fn chunks(&self) -> usize {
        self.groups.count.div_ceil(self.chunk)
    }

    pub fn cost_ps(&self) -> usize {
        self.cost_ps
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        // Taken while in use, so that the parts' own use of scratch memory does not move it.
        let mut locals = scratch.take_locals(self.local_bytes);
        let memory = locals.as_mut_ptr() as *mut u8;
        // SAFETY: the caller's promise; the memory is for this.
        let done = unsafe { self.run_groups(chunk, memory, bindings, scratch) };
        scratch.give_locals(locals);
        done
    }

    /// # Safety
    /// As [`PreparedRows::run_chunk`]; the memory is valid for the locals and not used otherwise.
    unsafe fn run_groups(
        &self,
        chunk: usize,
        memory: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let groups = chunk * self.chunk..((chunk + 1) * self.chunk).min(self.groups.count);
        let mut table: SmallVec<[*mut u8; 32]> = SmallVec::from_slice(bindings.buffers);
        let mut bounds: Option<SmallVec<[Bounds; 32]>> = bindings.bounds.map(SmallVec::from_slice);
        let first_group = groups.start;
        for group in groups {
            let rows = self.groups.get(group);
            let first = group == first_group;
            for local in &self.locals {
                // The address at which row 0 would be if the first of these rows is at the local's
                // start.
                let start = memory.wrapping_add(local.offset);
                table[local.buffer] = start.wrapping_sub(rows.start * local.row_bytes);
                if let Some(bounds) = &mut bounds {
                    let at = |row: usize| (row * local.row_bytes) as isize;
                    bounds[local.buffer] = Bounds { start: at(rows.start), end: at(rows.end) };
                }
            }
            let bindings = Bindings { buffers: &table, bounds: bounds.as_deref(), ..*bindings };
            // SAFETY: the caller's promise; the locals have room for the group's rows, and the
            // parts access no other rows.
            unsafe { self.run_group(rows, (memory, first), &bindings, scratch)? };
        }
        Ok(())
    }

    /// `first` is true for the first group of a chunk, when no B is packed yet.
    ///
    /// # Safety
    /// As [`PreparedRows::run_chunk`], for these rows.
    unsafe fn run_group(
        &self,
        rows: Range<usize>,
        (memory, first): (*mut u8, bool),
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        for (part, per_row) in &self.parts {
            let points = rows.start * per_row..rows.end * per_row;
            // SAFETY: the caller's promise.
            unsafe {
                match part {
                    RowPart::Map(map) => map.run(points, bindings, scratch)?,
                    RowPart::Reduce(reduce) => reduce.run_points(points, bindings, scratch)?,
                    RowPart::Gemm(kernel, None) => {
                        portable(kernel).run_points(points, bindings, scratch)?;
                    }
                    RowPart::Gemm(kernel, Some(gemm)) => {
                        let (run, packed) = (&gemm.run, memory.add(gemm.offset));
                        portable(kernel).check(points, bindings)?;
                        for lines in gemm.lines.by_entry(rows.clone()) {
                            let first = first || lines.start % gemm.lines.entry == 0;
                            run.run(kernel, lines, packed, first, bindings, scratch)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

impl RowPart {
    /// Prepares a part of a kernel over `rows` rows, to be run on groups of these lengths, and
    /// returns it with its number of points per row. A short reduction with stores becomes two
    /// parts.
    fn new(
        part: &Kernel,
        rows: usize,
        groups: &[usize],
        options: PrepareOptions<'_>,
    ) -> SmallVec<[(RowPart, usize); 2]> {
        if let Some(Short { stored, results }) = Short::of(part) {
            let maps = stored.iter().chain([&results]);
            return maps
                .map(|map| (RowPart::Map(Points::new(map, options)), map.points() / rows))
                .collect();
        }
        let made = match &part.core {
            Core::Reduce { .. } => RowPart::Reduce(Box::new(PreparedReduce::new(part, options))),
            Core::Gemm { .. } => {
                let gemm = Lines::of(part, rows).and_then(|lines| {
                    let run = options.compiler?.rowwise_gemm(part, &lines.lengths(groups))?;
                    Some(GemmPart { run, offset: 0, lines })
                });
                RowPart::Gemm(Box::new(Prepared::with_options(part, options)), gemm)
            }
            _ => RowPart::Map(Points::new(part, options)),
        };
        smallvec![(made, part.points() / rows)]
    }

    fn cost_ps(&self, points: usize) -> usize {
        match self {
            RowPart::Map(map) => points.saturating_mul(map.code().cost_ps),
            RowPart::Reduce(reduce) => reduce.cost_ps(),
            RowPart::Gemm(kernel, _) => portable(kernel).cost_ps(),
        }
    }
}

/// The matmul of a prepared kernel.
fn portable(kernel: &Prepared) -> &PreparedGemm {
    let PreparedCore::Gemm(gemm) = &kernel.core else { unreachable!("made from a GEMM") };
    gemm
}

/// The placement of locals by liveness, for `rows` rows at a time, and the total number of bytes.
fn place_locals(definition: &RowwiseCore, rows: usize) -> (Vec<Local>, usize) {
    let most = definition.locals.iter().map(|l| l.buffer.0 as usize + 1).max().unwrap_or(0);
    let empty = Buffer { dtype: DType::U8, numel: 0, kind: BufferKind::Argument(0) };
    let named = definition.parts.iter().flat_map(|p| p.reads().chain(p.writes()));
    let most = named.map(|b| b.0 as usize + 1).fold(most, usize::max);
    let mut buffers = vec![empty; most];
    for local in &definition.locals {
        let numel = rows * local.row_bytes;
        buffers[local.buffer.0 as usize] =
            Buffer { dtype: DType::U8, numel, kind: BufferKind::Computed };
    }
    let program = KernelProgram { buffers, kernels: definition.parts.clone(), outputs: Vec::new() };
    let limits = place::PlacementLimits::INSIDE_KERNELS;
    let placed = place::place(&program, limits, |BufferId(_)| false);
    let local = |l: &girih_kernel::Local| Local {
        buffer: l.buffer.0 as usize,
        row_bytes: l.row_bytes,
        offset: placed.offsets[l.buffer.0 as usize].expect("some part writes each local"),
    };
    (definition.locals.iter().map(local).collect(), placed.bytes)
}
