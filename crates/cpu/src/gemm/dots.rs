//! GEMM of a few rows by a column-major B, such as the weights of linear layers, or by a few columns.
//! It computes dot products along K without packing B.
//!
//! Each element is the sum of 16 chains, one per index of K modulo 16. If K is long and there are few
//! elements, K is divided into parts, whose sums are added as a tree: several threads share the work, and
//! rounding errors stay small.

use super::drive::run_chunks;
use super::memory::{A_BLOCK, CHUNK, PARTIAL_RESULTS, SharedMemory};
use super::microkernels::{
    DotCall, DotMicrokernel, Function, LANES, Stored, dot_columns, reads_in_place,
};
use super::operand::CTile;
use super::pack::{RowMajorB, add_chains, add_lanes, by_stored, element, size};
use super::panels::Offsets;
use super::plan::has_contiguous_columns;
use super::problem::{CBlock, Problem};
use super::prologue::OperandBlock;
use super::split_k::add_parts;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// The number of multiplications that a chunk should have.
const CHUNK_MULTIPLICATIONS: usize = 1 << 18;
/// The maximum number of chunks, parts of K included.
const MAX_CHUNKS: usize = 32;
/// The minimum K of a part: two parts of fewer bytes may share pages.
const MIN_PART_K: usize = 1 << 11;

/// The number of columns that are copied at a time, a multiple of the columns of each call: the elements
/// of a row that share a cache line.
const COPIED: usize = LANES;
/// The range of the number of columns of a row of B that are multiplied at a time: long enough for the
/// hardware prefetcher, and their 16 chains stay in the L2 cache.
const SUMMED: Range<usize> = 256..2048;
/// The number of columns that are as much work as a part of K.
const PART_COLUMNS: usize = 64;
/// The number of elements whose chains are added at a time.
const ADDED: usize = 64;

/// The micro-kernels of a number of indices of K modulo 16.
struct Functions {
    /// The micro-kernel of a group of columns, and that of the columns that are left.
    full: Option<Function<DotCall>>,
    rest: Option<Function<DotCall>>,
}

/// The way in which the columns of B are read.
#[derive(Clone, Copy, PartialEq)]
enum Columns {
    /// They are contiguous in memory, or a prologue computes them so.
    Contiguous,
    /// They are copied.
    Copied,
    /// The rows of B are contiguous floats: the chains of many columns are accumulated row by row.
    ByRows,
}

/// The micro-kernels and chunks of a GEMM by dot products.
pub(super) struct DotGemm {
    pub problem: Problem,
    /// The number of columns of a group.
    group: usize,
    /// The micro-kernels of the last part of K, and of other parts if they differ.
    last: Functions,
    others: Option<Functions>,
    /// The number of columns of a chunk, a multiple of the columns of a group.
    chunk: usize,
    chunks: usize,
    /// The number of indices of K of a part, a multiple of 16 unless there is one part.
    part: usize,
    parts: usize,
    columns: Columns,
}

/// A part of K and a range of columns of one entry of the batch.
struct DotChunk {
    batch: usize,
    k: Range<usize>,
    columns: Range<usize>,
}

/// Memory for a chunk.
#[derive(Clone, Copy)]
struct Memory {
    packed_a: *mut f32,
    chains: *mut f32,
    /// Columns of B that are copied or computed.
    columns: *mut u8,
}

impl DotGemm {
    /// Returns `None` if code cannot be generated. Column-major B, K and the number of rows must
    /// satisfy [`is_for_dots()`](super::plan::is_for_dots).
    pub fn new(problem: Problem) -> Option<DotGemm> {
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let group = dot_columns(m);
        let columns = columns(&problem);
        let stored = problem.b.in_memory().stored;
        // AVX2 cannot load a part of a vector of halves that a prologue computes.
        if columns == Columns::Contiguous && !reads_in_place(stored, k) {
            return None;
        }
        // Copied columns are padded to whole lanes; AVX2 cannot load a part of a vector of halves.
        let tail = if columns == Columns::Copied { 0 } else { k % LANES };
        let functions = |tail: usize| {
            let of = |columns| DotMicrokernel { rows: m, columns, tail, stored }.compile();
            let full = if n >= group { Some(of(group)?) } else { None };
            let rest = if n % group > 0 { Some(of(n % group)?) } else { None };
            Some(Functions { full, rest })
        };
        let wanted = (m.saturating_mul(n).saturating_mul(k) / CHUNK_MULTIPLICATIONS)
            .clamp(1, MAX_CHUNKS)
            .next_power_of_two();
        let chunk = match columns {
            Columns::ByRows => {
                (n / 4).next_multiple_of(SUMMED.start).clamp(SUMMED.start, SUMMED.end)
            }
            _ => n.div_ceil(wanted).next_multiple_of(group),
        };
        let chunks = n.div_ceil(chunk);
        // By the sizes only: the parts of K change the order of the sums.
        let parts = match problem.batches {
            1 => (wanted / n.div_ceil(PART_COLUMNS)).min(k / MIN_PART_K).max(1),
            _ => 1,
        };
        let part = if parts > 1 { k.div_ceil(parts).next_multiple_of(LANES) } else { k };
        let parts = k.div_ceil(part);
        let others = if parts > 1 && tail > 0 { Some(functions(0)?) } else { None };
        let last = functions(tail)?;
        Some(DotGemm { problem, group, last, others, chunk, chunks, part, parts, columns })
    }

    /// The micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<DotCall>> {
        let all = std::iter::once(&self.last).chain(&self.others);
        all.flat_map(|functions| functions.full.iter().chain(&functions.rest))
    }

    /// The approximate time on one core in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        self.problem.cost_ns(self.problem.k, self.problem.m)
    }

    /// Runs the GEMM and the epilogue of its kernel.
    ///
    /// # Safety
    /// As [`GeneratedGemm::run`](super::GeneratedGemm::run).
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let Problem { m, n, .. } = self.problem;
        let bytes = if self.parts > 1 { self.parts * m * n * 4 } else { 0 };
        with_memory(&PARTIAL_RESULTS, bytes, |results| {
            let results = SharedMemory(results as *mut f32);
            // SAFETY: the caller's promise; there is room for the results of all parts.
            unsafe {
                self.run_all_chunks(prepared, bindings, pool, results)?;
                match self.parts {
                    1 => Ok(()),
                    parts => add_parts(&self.problem, parts, results, prepared, bindings, pool),
                }
            }
        })
    }

    /// Runs all chunks. The results of several parts of K go to `results`, and the epilogue is not run.
    ///
    /// # Safety
    /// As [`DotGemm::run`]; `results` has room for the results of all parts if there are several.
    unsafe fn run_all_chunks(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        results: SharedMemory,
    ) -> Result<(), ExecError> {
        let Problem { m, n, k, batches, .. } = self.problem;
        let work = m.saturating_mul(n).saturating_mul(self.part);
        let thread_bindings = SharedBindings(*bindings);
        let all = (batches * self.parts, self.chunks);
        let results = &results;
        run_chunks(pool, all, (work, self.cost_ns()), |of, chunk, scratch| {
            let (batch, part) = (of / self.parts, of % self.parts);
            let to = results.get().wrapping_add(part * m * n);
            let part = part * self.part..((part + 1) * self.part).min(k);
            let columns = chunk * self.chunk..((chunk + 1) * self.chunk).min(n);
            let to = to.wrapping_add(columns.start);
            let partial = (self.parts > 1).then_some(CTile { start: to, ldc: n as isize });
            let chunk = DotChunk { batch, k: part, columns };
            // SAFETY: the caller's promise; each chunk runs once.
            unsafe { self.run_chunk(&chunk, partial, prepared, thread_bindings.get(), scratch) }
        })
    }

    /// Runs one chunk of an entry of the batch; its result goes to `partial`, or else the kernel's
    /// epilogue runs on the result.
    ///
    /// # Safety
    /// As [`DotGemm::run`]; no other thread runs this chunk.
    unsafe fn run_chunk(
        &self,
        chunk: &DotChunk,
        partial: Option<CTile>,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let problem = &self.problem;
        let (rows, columns) = (0..problem.m, chunk.columns.clone());
        let c_block = CBlock { batch: chunk.batch, rows, columns };
        let sizes = self.sizes(chunk);
        let bytes = sizes.iter().sum::<usize>() * 4;
        with_memory(&CHUNK, bytes, |memory| {
            let packed_a = memory as *mut f32;
            let chains = packed_a.wrapping_add(sizes[0]);
            let tile = chains.wrapping_add(sizes[1]);
            let columns = tile.wrapping_add(sizes[2]) as *mut u8;
            let memory = Memory { packed_a, chains, columns };
            let in_memory = partial.or_else(|| problem.c_tile(&c_block, bindings));
            let ldc = chunk.columns.len() as isize;
            let c = in_memory.unwrap_or(CTile { start: tile, ldc });
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                let a = self.a(chunk, memory.packed_a, bindings, scratch);
                match self.columns {
                    Columns::ByRows => self.sum_rows(chunk, a, memory.chains, c, bindings),
                    _ => self.multiply(chunk, a, &memory, c, bindings, scratch),
                }
                match in_memory {
                    Some(_) => Ok(()),
                    None => problem.run_epilogue(prepared, &c_block, c, bindings, scratch),
                }
            }
        })
    }

    /// The sizes of the memory of a chunk, in elements of 32 bits: packed A, chains, the result and the
    /// columns that are copied or computed.
    fn sizes(&self, chunk: &DotChunk) -> [usize; 4] {
        let (problem, m) = (&self.problem, self.problem.m);
        let (k, n) = (chunk.k.len().next_multiple_of(LANES), chunk.columns.len());
        let chains = match self.columns {
            Columns::ByRows => n,
            _ => m * self.at_once(),
        };
        let columns = match self.columns {
            Columns::Copied => COPIED.min(n) * self.copied_bytes(chunk),
            _ => problem.b.block_bytes(self.group, chunk.k.len()),
        };
        let sizes = [k * m, chains * LANES, m * n, columns.div_ceil(4)];
        sizes.map(|n| n.next_multiple_of(LANES))
    }

    /// The size in bytes of a column that is copied.
    fn copied_bytes(&self, chunk: &DotChunk) -> usize {
        chunk.k.len().next_multiple_of(LANES) * self.problem.b.in_memory().stored.size()
    }

    /// The number of columns whose chains are computed before they are added.
    fn at_once(&self) -> usize {
        match self.columns {
            Columns::Copied => COPIED,
            _ if self.problem.b.prologue().is_some() => self.group,
            _ => (ADDED / (self.problem.m * self.group)).max(1) * self.group,
        }
    }

    /// Multiplies the columns of a chunk by the packed A into `c`.
    ///
    /// # Safety
    /// As [`DotGemm::run_chunk`].
    unsafe fn multiply(
        &self,
        chunk: &DotChunk,
        a: *const f32,
        memory: &Memory,
        c: CTile,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) {
        let (problem, end) = (&self.problem, chunk.columns.end);
        let (b, k) = (problem.b.packed_from(), chunk.k.len());
        let last = self.others.as_ref().filter(|_| chunk.k.end < problem.k);
        let functions = last.unwrap_or(&self.last);
        let (ldb, k) = match self.columns {
            Columns::Copied => (self.copied_bytes(chunk) as isize, k.next_multiple_of(LANES)),
            _ => {
                let stride = b.outer.stride().expect("a condition of dot products");
                (stride * b.stored.size() as isize, k)
            }
        };
        for j in chunk.columns.clone().step_by(self.at_once()) {
            let columns = j..(j + self.at_once()).min(end);
            let block = OperandBlock {
                batch: chunk.batch,
                outer: columns.clone(),
                k_range: chunk.k.clone(),
            };
            // SAFETY: the caller's promise.
            unsafe {
                let (to, extents) = (memory.columns, &problem.batch);
                let start = problem.b.start(&block, extents, to, bindings, scratch);
                let b = match self.columns {
                    Columns::Copied => {
                        self.copy_columns(start, &block, memory.columns, ldb as usize);
                        memory.columns.cast_const()
                    }
                    _ => {
                        let along_k = (chunk.k.start * b.stored.size()) as isize;
                        start.wrapping_offset(j as isize * ldb + along_k)
                    }
                };
                let call = DotCall { a, b, ldb, out: memory.chains, k, groups: 0 };
                self.call(functions, call, columns.len());
                self.finish(memory.chains, columns.len(), j - chunk.columns.start, c);
            }
        }
    }

    /// Computes the chains of `columns` columns, group by group.
    ///
    /// # Safety
    /// As [`DotGemm::run_chunk`]; the call is of these columns.
    unsafe fn call(&self, functions: &Functions, call: DotCall, columns: usize) {
        let (groups, rest) = (columns / self.group, columns % self.group);
        let expected = "every width has its function";
        // SAFETY: the caller's promise.
        unsafe {
            if groups > 0 {
                let function = functions.full.as_ref().expect(expected);
                function.call(&DotCall { groups, ..call });
            }
            if rest > 0 {
                let done = groups * self.group;
                let b = call.b.wrapping_offset(done as isize * call.ldb);
                let out = call.out.wrapping_add(done * self.problem.m * LANES);
                let function = functions.rest.as_ref().expect(expected);
                function.call(&DotCall { b, out, groups: 1, ..call });
            }
        }
    }

    /// Adds the chains of `width` columns, of which the first is `column` of `c`.
    ///
    /// # Safety
    /// `chains` holds the chains, group by group; the elements of `c` are valid.
    unsafe fn finish(&self, chains: *const f32, width: usize, column: usize, c: CTile) {
        let (m, integers) = (self.problem.m, self.problem.b.in_memory().stored.is_integer());
        let mut sums = [0f32; ADDED];
        // The chains of several groups of a single row are consecutive.
        let group = if m == 1 { ADDED } else { self.group };
        for first in (0..width).step_by(group) {
            let columns = group.min(width - first);
            let sums = &mut sums[..m * columns];
            // SAFETY: the caller's promise.
            unsafe {
                add_lanes(chains.wrapping_add(first * m * LANES), sums, integers);
                for (i, row) in sums.chunks_exact(columns).enumerate() {
                    let to = i as isize * c.ldc + (column + first) as isize;
                    c.start.offset(to).copy_from_nonoverlapping(row.as_ptr(), columns);
                }
            }
        }
    }

    /// Accumulates the chains of the columns of a chunk row by row of B into `c`.
    ///
    /// # Safety
    /// As [`DotGemm::run_chunk`]; `chains` has room for 16 chains of the columns.
    unsafe fn sum_rows(
        &self,
        chunk: &DotChunk,
        a: *const f32,
        chains: *mut f32,
        c: CTile,
        bindings: &Bindings<'_>,
    ) {
        let b = self.problem.b.in_memory();
        let ldb = b.row_major_ldb().expect("a condition of this way");
        let start = b.start(bindings, &self.problem.batch, chunk.batch);
        let start = start.wrapping_offset(chunk.k.start as isize * ldb);
        let start = start.wrapping_add(4 * chunk.columns.start);
        let sizes = (chunk.k.len(), chunk.columns.len());
        // SAFETY: the caller's promise.
        unsafe { add_chains(a, (start, ldb), sizes, chains, c.start) };
    }

    /// Copies at most [`COPIED`] columns of B, whose K is that of the block, to `to`, `step` bytes apart, padded with zeros.
    ///
    /// # Safety
    /// B begins at `start`; `to` has room for the columns.
    unsafe fn copy_columns(
        &self,
        start: *const u8,
        block: &OperandBlock,
        to: *mut u8,
        step: usize,
    ) {
        let b = self.problem.b.in_memory();
        let mut offsets = Offsets::new();
        offsets.resize(block.k_range.len(), 0);
        b.k_dims.fill(block.k_range.start, &mut offsets);
        let firsts: SmallVec<[isize; COPIED]> =
            block.outer.clone().map(|j| b.outer.at(j)).collect();
        // SAFETY: the caller's promise.
        unsafe {
            match b.stored.size() {
                1 => copy_lines::<u8>(start, &firsts, &offsets, to, step),
                2 => copy_lines::<u16>(start, &firsts, &offsets, to, step),
                _ => copy_lines::<u32>(start, &firsts, &offsets, to, step),
            }
        }
    }

    /// A as `[k / 16][rows][16]`, padded with zeros: packed to `to`, or in memory if it is so there.
    ///
    /// # Safety
    /// As [`DotGemm::run_chunk`]; `to` has room for A.
    unsafe fn a(
        &self,
        chunk: &DotChunk,
        to: *mut f32,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const f32 {
        let (a, m, extents) = (&self.problem.a, self.problem.m, &self.problem.batch);
        let (k, k_range) = (chunk.k.len(), chunk.k.clone());
        if let Some(prologue) = a.prologue() {
            with_memory(&A_BLOCK, prologue.bytes(m, k), |memory| {
                let rows = OperandBlock { batch: chunk.batch, outer: 0..m, k_range };
                // SAFETY: the caller's promise; the block has room for the rows.
                unsafe {
                    let start = prologue.fill(&rows, extents, memory, bindings, scratch);
                    pack_rows(&self.problem, start, &chunk.k, to);
                }
            });
            return to;
        }
        let matrix = a.in_memory();
        let start = matrix.start(bindings, extents, chunk.batch);
        // The micro-kernels read whole vectors of A.
        let whole = self.columns == Columns::ByRows || k.is_multiple_of(LANES);
        let packed = matrix.stored == Stored::F32 && matrix.k_dims.stride() == Some(1) && whole;
        if m == 1 && packed {
            return start.cast::<f32>().wrapping_add(chunk.k.start);
        }
        // SAFETY: the caller's promise.
        unsafe { pack_rows(&self.problem, start, &chunk.k, to) };
        to
    }
}

/// The way in which the columns of B are read.
fn columns(problem: &Problem) -> Columns {
    let b = problem.b.in_memory();
    if problem.b.prologue().is_some() || has_contiguous_columns(problem) {
        return Columns::Contiguous;
    }
    let rows = problem.m == 1 && problem.n >= LANES && b.row_major_ldb().is_some();
    let floats = [&problem.a, &problem.b].map(|operand| operand.in_memory().stored);
    match rows && !floats[0].is_integer() && floats[1] == Stored::F32 {
        true => Columns::ByRows,
        false => Columns::Copied,
    }
}

/// Copies lines, each at its offset in `firsts`, whose elements are at `offsets` from there. The lines of
/// `to` are `step` bytes apart, and padded with zeros. Elements with one offset are copied together,
/// because they may share a cache line.
///
/// # Safety
/// The elements are `T`s in memory that begins at `start`; `to` has room for the lines.
unsafe fn copy_lines<T: Copy>(
    start: *const u8,
    firsts: &[isize],
    offsets: &[isize],
    to: *mut u8,
    step: usize,
) {
    let (from, to, count) = (start as *const T, to as *mut T, offsets.len());
    let pitch = step / size_of::<T>();
    for (i, offset) in offsets.iter().enumerate() {
        for (line, first) in firsts.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *to.add(line * pitch + i) = from.offset(first + offset).read_unaligned() };
        }
    }
    for line in 0..firsts.len() {
        // SAFETY: a line has room for `step` bytes.
        unsafe { to.add(line * pitch + count).write_bytes(0, pitch - count) };
    }
}

/// Packs indices of K of the rows of an A that begins at `start`, as [`DotGemm::a`].
///
/// # Safety
/// As [`DotGemm::a`].
unsafe fn pack_rows(problem: &Problem, start: *const u8, k: &Range<usize>, to: *mut f32) {
    let (a, m) = (problem.a.packed_from(), problem.m);
    if let (Some(1), Some(row)) = (a.k_dims.stride(), a.outer.stride()) {
        let size = a.stored.size() as isize;
        let start = start.wrapping_offset(k.start as isize * size);
        let (stored, columns) = (a.stored, k.len());
        let (ldb, nr, pairs, prefetched) = (row * size, LANES, false, 0);
        let rows = RowMajorB { start, ldb, stored, rows: m, columns, nr, pairs, prefetched };
        // SAFETY: the caller's promise.
        return unsafe { rows.pack(to) };
    }
    // SAFETY: the caller's promise.
    unsafe { by_stored!(a.stored, pack_rows_as(problem, start, k, to)) }
}

/// # Safety
/// As [`pack_rows`].
unsafe fn pack_rows_as<const S: u8>(
    problem: &Problem,
    start: *const u8,
    k_range: &Range<usize>,
    to: *mut f32,
) {
    let (a, m, k) = (problem.a.packed_from(), problem.m, k_range.len());
    let mut offsets = Offsets::new();
    offsets.resize(k, 0);
    a.k_dims.fill(k_range.start, &mut offsets);
    for row in 0..m {
        let first = a.outer.at(row);
        for i in 0..k.next_multiple_of(LANES) {
            let offset = first + offsets.get(i).copied().unwrap_or(0);
            // SAFETY: an element of the operand; a place within its packed size.
            unsafe {
                let value = match i < k {
                    true => element::<S>(start.wrapping_offset(offset * size(S))),
                    false => 0.0,
                };
                *to.add((i / LANES * m + row) * LANES + i % LANES) = value;
            }
        }
    }
}
