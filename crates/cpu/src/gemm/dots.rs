//! GEMM of a few rows by a column-major B, such as the weights of linear layers, or by a few columns.
//! It computes dot products along K without packing B.

use super::drive::run_chunks;
use super::memory::{A_BLOCK, CHUNK};
use super::microkernels::{DotCall, DotMicrokernel, Function, LANES, Stored, dot_columns};
use super::operand::CTile;
use super::pack::{add_lanes, by_stored, element, size};
use super::panels::Offsets;
use super::plan::has_contiguous_columns;
use super::problem::{CBlock, Problem};
use super::prologue::OperandBlock;
use crate::kernel::{SharedBindings, with_memory};
use crate::pool::Pool;
use girih_exec::{Bindings, ExecError, Prepared, Scratch};
use smallvec::SmallVec;

/// The number of multiplications that a chunk should have.
const CHUNK_MULTIPLICATIONS: usize = 1 << 18;

/// The number of columns that are copied at a time, a multiple of the columns of each call: the elements
/// of a row that share a cache line.
const COPIED: usize = LANES;

/// The micro-kernels and chunks of a GEMM by dot products.
pub(super) struct DotGemm {
    pub problem: Problem,
    /// The number of columns of a call of `full`; `rest` computes the remaining columns.
    columns: usize,
    full: Option<Function<DotCall>>,
    rest: Option<Function<DotCall>>,
    /// The number of columns of a chunk, a multiple of the columns of a call.
    chunk: usize,
    chunks: usize,
    /// Whether the columns of B are copied, because they are not contiguous in memory.
    copies: bool,
}

impl DotGemm {
    /// Returns `None` if code cannot be generated. Column-major B, K and the number of rows must
    /// satisfy [`is_for_dots()`](super::plan::is_for_dots).
    pub fn new(problem: Problem) -> Option<DotGemm> {
        let (m, n, k) = (problem.m, problem.n, problem.k);
        let columns = dot_columns(m);
        let in_memory = problem.b.prologue().is_none();
        let copies = in_memory && !has_contiguous_columns(&problem);
        // Copied columns are padded to whole lanes; AVX2 cannot load a part of a vector of halves.
        let tail = if copies { 0 } else { k % LANES };
        let stored = problem.b.in_memory().stored;
        let of = |columns: usize| DotMicrokernel { rows: m, columns, tail, stored }.compile();
        let full = if n >= columns { Some(of(columns)?) } else { None };
        let rest = if n % columns > 0 { Some(of(n % columns)?) } else { None };
        let wanted_chunks = (m * n * k / CHUNK_MULTIPLICATIONS).clamp(1, 32);
        let wanted_chunks = if wanted_chunks > 1 { wanted_chunks.next_multiple_of(2) } else { 1 };
        let chunk = n.div_ceil(wanted_chunks).next_multiple_of(columns);
        let chunks = n.div_ceil(chunk);
        Some(DotGemm { problem, columns, full, rest, chunk, chunks, copies })
    }

    /// The micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<DotCall>> {
        self.full.iter().chain(&self.rest)
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
        let Problem { m, n, k, batches, .. } = self.problem;
        let work = m.saturating_mul(n).saturating_mul(k);
        let thread_bindings = SharedBindings(*bindings);
        let all = (batches, self.chunks);
        run_chunks(pool, all, (work, self.cost_ns()), |batch, chunk, scratch| {
            // SAFETY: the caller's promise; each chunk runs once.
            unsafe { self.run_chunk(batch, chunk, prepared, thread_bindings.get(), scratch) }
        })
    }

    /// Runs one chunk of an entry of the batch, and the kernel's epilogue on it.
    ///
    /// # Safety
    /// As [`DotGemm::run`]; no other thread runs this chunk.
    unsafe fn run_chunk(
        &self,
        batch: usize,
        chunk: usize,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let problem = &self.problem;
        let (m, k, extents) = (problem.m, problem.k, &problem.batch);
        let columns = chunk * self.chunk..((chunk + 1) * self.chunk).min(problem.n);
        let c_block = CBlock { batch, rows: 0..m, columns: columns.clone() };
        let column = k.next_multiple_of(LANES) * problem.b.in_memory().stored.size();
        let computed = match self.copies {
            true => COPIED.min(columns.len()) * column,
            false => problem.b.block_bytes(self.columns, k),
        };
        let computed = computed.div_ceil(4);
        let packed_a = k.div_ceil(LANES) * LANES * m;
        let sizes = [packed_a, m * self.columns * LANES, m * columns.len(), computed];
        let sizes = sizes.map(|n| n.next_multiple_of(LANES));
        let bytes = sizes.iter().sum::<usize>() * 4;
        with_memory(&CHUNK, bytes, |memory| {
            let packed_a = memory as *mut f32;
            let chains = packed_a.wrapping_add(sizes[0]);
            let tile = chains.wrapping_add(sizes[1]);
            let computed = tile.wrapping_add(sizes[2]) as *mut u8;
            let in_memory = problem.c_tile(&c_block, bindings);
            let c = in_memory.unwrap_or(CTile { start: tile, ldc: columns.len() as isize });
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                self.pack_a(batch, packed_a, bindings, scratch);
                let b = problem.b.packed_from();
                let step = match self.copies {
                    true => column as isize,
                    false => {
                        let stride = b.outer.stride().expect("a condition of dot products");
                        stride * b.stored.size() as isize
                    }
                };
                for j in columns.clone().step_by(self.columns) {
                    let width = self.columns.min(columns.end - j);
                    let function = if width == self.columns { &self.full } else { &self.rest };
                    let columns_of_call =
                        OperandBlock { batch, outer: j..j + width, k_range: 0..k };
                    let start =
                        problem.b.start(&columns_of_call, extents, computed, bindings, scratch);
                    let b = match self.copies {
                        true => {
                            let first = (j - columns.start) % COPIED;
                            if first == 0 {
                                let copied = j..(j + COPIED).min(columns.end);
                                self.copy_columns(start, copied, computed, column);
                            }
                            computed.wrapping_add(first * column).cast_const()
                        }
                        false => start.wrapping_offset(j as isize * step),
                    };
                    let k = if self.copies { k.next_multiple_of(LANES) } else { k };
                    let call = DotCall { a: packed_a, b, ldb: step, out: chains, k };
                    function.as_ref().expect("every width has its function").call(&call);
                    self.finish(chains, width, j - columns.start, c);
                }
                match in_memory {
                    Some(_) => Ok(()),
                    None => problem.run_epilogue(prepared, &c_block, c, bindings, scratch),
                }
            }
        })
    }

    /// Copies at most [`COPIED`] columns of B to `to`, `step` bytes apart, padded with zeros.
    ///
    /// # Safety
    /// B begins at `start`; `to` has room for the columns.
    unsafe fn copy_columns(
        &self,
        start: *const u8,
        columns: std::ops::Range<usize>,
        to: *mut u8,
        step: usize,
    ) {
        let (b, k) = (self.problem.b.in_memory(), self.problem.k);
        let mut offsets = Offsets::new();
        offsets.resize(k, 0);
        b.k_dims.fill(0, &mut offsets);
        let firsts: SmallVec<[isize; COPIED]> = columns.map(|j| b.outer.at(j)).collect();
        // SAFETY: the caller's promise.
        unsafe {
            match b.stored.size() {
                1 => copy_lines::<u8>(start, &firsts, &offsets, to, step),
                2 => copy_lines::<u16>(start, &firsts, &offsets, to, step),
                _ => copy_lines::<u32>(start, &firsts, &offsets, to, step),
            }
        }
    }

    /// Adds the 16 partial sums of each element of `width` columns.
    ///
    /// # Safety
    /// `chains` holds the partial sums; the elements of `c` are valid.
    unsafe fn finish(&self, chains: *const f32, width: usize, column: usize, c: CTile) {
        let mut sums = [0f32; 32];
        let sums = &mut sums[..self.problem.m * width];
        // SAFETY: the caller's promise.
        unsafe {
            add_lanes(chains, sums, self.problem.b.in_memory().stored.is_integer());
            for (i, row) in sums.chunks_exact(width).enumerate() {
                let to = c.start.offset(i as isize * c.ldc + column as isize);
                to.copy_from_nonoverlapping(row.as_ptr(), width);
            }
        }
    }

    /// Packs A as `[k / 16][rows][16]`.
    ///
    /// # Safety
    /// As [`DotGemm::run`]; `to` has room for A.
    unsafe fn pack_a(
        &self,
        batch: usize,
        to: *mut f32,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) {
        let (a, m, k) = (&self.problem.a, self.problem.m, self.problem.k);
        let extents = &self.problem.batch;
        let Some(prologue) = a.prologue() else {
            let start = a.in_memory().start(bindings, extents, batch);
            // SAFETY: the caller's promise.
            return unsafe { pack_rows(&self.problem, start, to) };
        };
        with_memory(&A_BLOCK, prologue.bytes(m, k), |memory| {
            let rows = OperandBlock { batch, outer: 0..m, k_range: 0..k };
            // SAFETY: the caller's promise; the block has room for the rows.
            unsafe {
                let start = prologue.fill(&rows, extents, memory, bindings, scratch);
                pack_rows(&self.problem, start, to);
            }
        });
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

/// Packs the rows of an A that begins at `start`, as [`DotGemm::pack_a`].
///
/// # Safety
/// As [`DotGemm::pack_a`].
unsafe fn pack_rows(problem: &Problem, start: *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { by_stored!(problem.a.in_memory().stored, pack_rows_as(problem, start, to)) }
}

/// # Safety
/// As [`pack_rows`].
unsafe fn pack_rows_as<const S: u8>(problem: &Problem, start: *const u8, to: *mut f32) {
    let (a, m, k) = (problem.a.packed_from(), problem.m, problem.k);
    let mut offsets = Offsets::new();
    offsets.resize(k, 0);
    a.k_dims.fill(0, &mut offsets);
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
