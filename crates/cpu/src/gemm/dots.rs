//! GEMM of a few rows by a column-major B, such as the weights of linear layers. It computes dot
//! products along K without packing B.

use super::microkernels::{
    DotCall, DotMicrokernel, Function, LANES, Stored, dot_columns, reads_in_place,
};
use super::pack::{add_lanes, by_stored, element, size};
use super::{CHUNK_MEMORY, CTile, Gemm, OperandBlock, PROLOGUE_BLOCK};
use crate::kernel::with_memory;
use girih_kernel::{Bindings, ExecError, Prepared, Scratch};
use smallvec::SmallVec;

/// The most rows; beyond them packing pays.
const MAX_M: usize = 6;
/// The least K; below it the horizontal sums cost more than packing.
const MIN_K: usize = 64;
/// Multiplications that a chunk should have.
const CHUNK_MULTIPLICATIONS: usize = 1 << 18;

/// The micro-kernels and chunks of a GEMM by dot products.
pub(super) struct DotGemm {
    /// Columns of a call of `full`; `rest` computes the remaining columns.
    columns: usize,
    full: Option<Function<DotCall>>,
    rest: Option<Function<DotCall>>,
    /// Columns of a chunk, a multiple of those of a call.
    chunk: usize,
    chunks: usize,
}

impl DotGemm {
    /// `None` if dot products do not apply or do not pay.
    pub fn new(gemm: &Gemm) -> Option<DotGemm> {
        let (rhs, n) = (&gemm.rhs, gemm.n);
        let fits = gemm.m <= MAX_M && gemm.k >= MIN_K && rhs.k_dims.stride() == Some(1);
        if !fits || rhs.outer.stride().is_none() || gemm.in_place_b_kernels.is_some() {
            return None;
        }
        if !reads_in_place(rhs.stored, gemm.k) {
            return None;
        }
        let columns = dot_columns(gemm.m);
        let (tail, stored) = (gemm.k % LANES, rhs.stored);
        let of = |columns: usize| DotMicrokernel { rows: gemm.m, columns, tail, stored }.compile();
        let full = if n >= columns { Some(of(columns)?) } else { None };
        let rest = if n % columns > 0 { Some(of(n % columns)?) } else { None };
        let wanted_chunks = (gemm.m * n * gemm.k / CHUNK_MULTIPLICATIONS).clamp(1, 32);
        let wanted_chunks = if wanted_chunks > 1 { wanted_chunks.next_multiple_of(2) } else { 1 };
        let chunk = n.div_ceil(wanted_chunks).next_multiple_of(columns);
        Some(DotGemm { columns, full, rest, chunk, chunks: n.div_ceil(chunk) })
    }

    /// Its micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<DotCall>> {
        self.full.iter().chain(&self.rest)
    }

    /// Chunks of one entry of the batch.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Runs one chunk of an entry of the batch, and the kernel's epilogue on it.
    ///
    /// # Safety
    /// As [`Gemm::run`]; no other thread runs this chunk.
    pub unsafe fn run(
        &self,
        gemm: &Gemm,
        batch: usize,
        chunk: usize,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (m, k) = (gemm.m, gemm.k);
        let columns = chunk * self.chunk..((chunk + 1) * self.chunk).min(gemm.n);
        let prologue = gemm.prologues[1].as_ref();
        let computed = prologue.map_or(0, |prologue| prologue.bytes(self.columns, k) / 4 + 1);
        let packed_a = k.div_ceil(LANES) * LANES * m;
        let sizes = [packed_a, m * self.columns * LANES, m * columns.len(), computed];
        let sizes = sizes.map(|n| n.next_multiple_of(LANES));
        let bytes = sizes.iter().sum::<usize>() * 4;
        with_memory(&CHUNK_MEMORY, bytes, |memory| {
            let packed_a = memory as *mut f32;
            let chains = packed_a.wrapping_add(sizes[0]);
            let tile = chains.wrapping_add(sizes[1]);
            let computed = tile.wrapping_add(sizes[2]) as *mut u8;
            let c = match &gemm.c_in_place {
                Some(matrix) => matrix.tile(bindings, &gemm.batch, batch, 0, columns.start),
                None => CTile { start: tile, ldc: columns.len() as isize },
            };
            // SAFETY: the caller's promise; the memory has room for all four.
            unsafe {
                self.pack_a(gemm, batch, packed_a, bindings, scratch);
                let step = gemm.rhs.outer.stride().expect("checked when the GEMM was compiled")
                    * gemm.rhs.stored.size() as isize;
                for j in columns.clone().step_by(self.columns) {
                    let width = self.columns.min(columns.end - j);
                    let function = if width == self.columns { &self.full } else { &self.rest };
                    let columns_of_call =
                        OperandBlock { batch, outer: j..j + width, k_range: 0..k };
                    let start = gemm.b_start(&columns_of_call, computed, bindings, scratch);
                    let b = start.wrapping_offset(j as isize * step);
                    let call = DotCall { a: packed_a, b, ldb: step, out: chains, k };
                    function.as_ref().expect("every width has its function").call(&call);
                    self.finish(gemm, chains, width, j - columns.start, c);
                }
                match gemm.c_in_place {
                    Some(_) => Ok(()),
                    None => {
                        gemm.run_epilogue(prepared, (batch, 0..m, columns), c, bindings, scratch)
                    }
                }
            }
        })
    }

    /// Adds the 16 partial sums of each element of `width` columns.
    ///
    /// # Safety
    /// `chains` holds the partial sums; the elements of `c` are valid.
    unsafe fn finish(
        &self,
        gemm: &Gemm,
        chains: *const f32,
        width: usize,
        column: usize,
        c: CTile,
    ) {
        let mut sums = [0f32; 32];
        let sums = &mut sums[..gemm.m * width];
        // SAFETY: the caller's promise.
        unsafe {
            add_lanes(chains, sums, gemm.rhs.stored.is_integer());
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
        gemm: &Gemm,
        batch: usize,
        to: *mut f32,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) {
        let (lhs, m, k) = (&gemm.lhs, gemm.m, gemm.k);
        let Some(prologue) = &gemm.prologues[0] else {
            let start = lhs.start(bindings, &gemm.batch, batch);
            // SAFETY: the caller's promise.
            return unsafe { pack_rows(gemm, start, to) };
        };
        with_memory(&PROLOGUE_BLOCK, prologue.bytes(m, k), |memory| {
            let rows = OperandBlock { batch, outer: 0..m, k_range: 0..k };
            // SAFETY: the caller's promise; the block has room for the rows.
            unsafe {
                let start = prologue.fill(&rows, &gemm.batch, memory, bindings, scratch);
                pack_rows(gemm, start, to);
            }
        });
    }
}

/// Packs the rows of an A that begins at `start`, as [`DotGemm::pack_a`].
///
/// # Safety
/// As [`DotGemm::pack_a`].
unsafe fn pack_rows(gemm: &Gemm, start: *const u8, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { by_stored!(gemm.lhs.stored, pack_rows_as(gemm, start, to)) }
}

/// # Safety
/// As [`pack_rows`].
unsafe fn pack_rows_as<const S: u8>(gemm: &Gemm, start: *const u8, to: *mut f32) {
    let (lhs, m, k) = (&gemm.lhs, gemm.m, gemm.k);
    let mut offsets: SmallVec<[isize; 2048]> = SmallVec::from_elem(0, k);
    lhs.k_dims.fill(0, &mut offsets);
    for row in 0..m {
        let first = lhs.outer.at(row);
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
