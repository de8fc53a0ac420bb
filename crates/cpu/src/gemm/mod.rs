//! GEMM in generated micro-kernels, for f32, halves and integers of up to 32 bits, on machines with
//! AVX2 or AVX-512.
//!
//! The columns of B are divided into panels. Several panels form a slab, which is packed into the
//! L2 cache and used by all row tiles. If a chunk has few row tiles, the first tile reads B in
//! memory and packs it for the others. Weights that many runs share stay packed (`prepacked`). A is
//! packed once for all chunks, or read in memory if there are few columns. The rows, the columns
//! and K of an operand may each have any number of strided dimensions, so a convolution is a GEMM
//! over windows of the image: the windows are packed directly from the image (there is no im2col
//! matrix), or read through an indirection if A has few rows (`indirect`). A fused operand
//! (prologue) is computed block by block as it is packed (`prologue`).
//!
//! Halves are widened to f32 when they are read, accumulated in f32 and rounded once. (The bfloat16
//! dot-product instructions would flush subnormals and round twice per pair, and on Sapphire Rapids
//! they have half the throughput of these multiply-adds.) Each element is one chain of
//! multiply-adds for any blocking, so neither the number of threads nor the position of the element
//! changes its bits. With split-K (`split_k`), each element has one chain per part; a dot product
//! (`dots`) has one chain per lane. Integers are accumulated modulo 2^32 for every operand and
//! result dtype. GEMMs of bfloat16 with many rows, and all but the smallest of bytes, run on AMX
//! (`amx_vnni`) if the machine has it, which is several times as fast. Without AMX, GEMMs of bytes
//! run on VNNI if there is VNNI.

mod amx_vnni;
mod blocking;
mod chunk;
#[cfg(test)]
mod describe;
mod dots;
mod indirect;
mod integers;
mod microkernels;
mod operand;
mod pack;
mod pairs;
mod prepacked;
mod prologue;
mod rowwise;
mod split_k;
#[cfg(test)]
mod tests;

use crate::kernel::{Line, SharedBindings, with_memory};
use crate::pool::Pool;
use crate::prepacked::PrepackedStore;
use amx_vnni::AmxVnniGemm;
use blocking::Blocking;
use dots::DotGemm;
use girih_kernel::{Access, Bindings, Core, ExecError, Kernel, Prepared, Scratch};
use indirect::IndirectB;
use microkernels::{Function, Microkernels, Stored, microkernels, reads_in_place};
use operand::{CMatrix, CTile, Operand};
use pack::{PackBlock, pack};
use prepacked::PrepackedB;
use prologue::{MAX_A_BLOCK_ELEMENTS, MAX_B_BLOCK_ELEMENTS, OperandBlock, Prologue};
pub(crate) use rowwise::RowwiseGemm;
use smallvec::SmallVec;
use split_k::split_k_parts;
use std::cell::Cell;
use std::ops::Range;

/// The most elements of A for which all of A is packed before any chunk runs.
const MAX_WHOLE_A_ELEMENTS: usize = 1 << 22;
/// Elements of A from which on several threads pack it.
const MIN_PARALLEL_PACK_ELEMENTS: usize = 1 << 17;
/// The most columns for which a row-major A is read in memory: packing it would take as long as
/// using it.
const MAX_IN_PLACE_A_COLUMNS: usize = 256;
/// Rows of a tile whose elements may map to the same set of the L1 cache: most of its ways.
const MAX_ALIASED_ROWS: usize = 8;
/// Bytes between addresses that map to the same set of the L1 cache.
const L1_SET_STRIDE: usize = 4096;
/// The cost of packing an element of B, in multiplications.
const PACK_COST: usize = 24;
/// Multiplications of a task: small GEMMs of a batch are run by the same task.
const TASK_MULTIPLICATIONS: usize = 1 << 19;
/// Row tiles of a chunk from which on a slab is packed before any tile runs. With fewer, the first
/// tile reads B in memory and packs it for the others, which prefetch the next rows meanwhile.
const MIN_PACK_AHEAD_TILES: usize = 16;
/// The most K of a block (kc) if B is read in memory: a panel's rows should stay in the L2 cache,
/// in which rows that are a page apart map to few sets.
const MAX_IN_PLACE_B_KC: usize = 256;
/// Elements of a GEMM's result that are computed before the epilogue reads them.
const EPILOGUE_ELEMENTS: usize = 1 << 12;
/// The prefetch distance in rows of B.
const PREFETCH_ROWS: isize = 10;

thread_local! {
    static CHUNK_MEMORY: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static PACKED_A: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static SPLIT_K_RESULTS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static PROLOGUE_BLOCK: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// A GEMM that is ready to run: blocking, operands and generated code.
pub(crate) struct Gemm {
    batch: SmallVec<[usize; 4]>,
    batches: usize,
    m: usize,
    n: usize,
    /// K, or the number of pairs along K.
    k: usize,
    /// True if both operands are packed as pairs of short integers along K ([`Stored::Pair`]).
    pairs: bool,
    lhs: Operand,
    rhs: Operand,
    /// The prologues that compute A and B (`[A, B]`), whose results are then read from blocks.
    prologues: [Option<Prologue>; 2],
    c_in_place: Option<CMatrix>,
    /// Bytes of an element as the epilogue reads it.
    core_bytes: usize,
    blocking: Blocking,
    /// Bytes between the rows of A, if it is read in memory.
    a_in_place: Option<isize>,
    /// Micro-kernels for packed panels.
    kernels: Microkernels,
    /// Micro-kernels that read B in memory, if the first tile of a chunk does.
    in_place_b_kernels: Option<Microkernels>,
    /// The indirection to B, if all tiles read B in memory.
    indirect: Option<IndirectB>,
    dots: Option<DotGemm>,
    amx_vnni: Option<AmxVnniGemm>,
}

/// The work of one task: a split-K part of one GEMM of the batch, its row tiles and its panels.
struct Chunk {
    batch: usize,
    part: usize,
    tiles: Range<usize>,
    panels: Range<usize>,
}

/// Where A is.
#[derive(Clone, Copy)]
enum OperandA {
    /// Packed from row `row` and index `k` of the K dimension on; each tile has `depth` indices.
    Packed { start: *const f32, row: usize, k: usize, depth: usize },
    /// In memory: its first row, and bytes between rows.
    InPlace { start: *const u8, lda: isize },
}

impl OperandA {
    /// The address of a tile of `rows` rows at the index `index` of K, and bytes between its rows.
    fn tile(&self, first: usize, rows: usize, index: usize) -> (*const f32, isize) {
        match *self {
            OperandA::Packed { start, row, k, depth } => {
                (start.wrapping_add((first - row) * depth + (index - k) * rows), 0)
            }
            OperandA::InPlace { start, lda } => {
                let row = start.wrapping_offset(first as isize * lda);
                (row.cast::<f32>().wrapping_add(index), lda)
            }
        }
    }
}

// SAFETY: the operand is complete before threads share the pointer, and is only read then.
unsafe impl Sync for OperandA {}

/// The operands that are packed before all chunks run.
#[derive(Clone, Copy)]
struct PackedOperands {
    a: Option<OperandA>,
    b: Option<PrepackedB>,
}

/// Memory that several threads write, each at different addresses.
#[derive(Clone, Copy)]
struct Memory(*mut f32);
// SAFETY: each chunk of the packing writes its own tiles; they are read after all of it.
unsafe impl Sync for Memory {}

impl Memory {
    fn get(&self) -> *mut f32 {
        self.0
    }
}

impl Gemm {
    /// A GEMM whose operands are in memory or computed by `maps` (prologues). `None` for dtypes and
    /// machines without generated micro-kernels, and for kernels of other forms.
    pub fn new(kernel: &Kernel, maps: &[Kernel]) -> Option<Gemm> {
        let Core::Gemm { lhs, rhs, .. } = &kernel.core else { return None };
        let one = kernel.size(&kernel.gemm_dims()?.batch) == 1;
        let blocking = |m, n, k, rhs: &Operand| {
            let split_k = if one { split_k_parts(m, n, k, rhs) } else { 1 };
            Blocking::with_split_k(m, n, k, split_k)
        };
        let mut gemm = Gemm::with_blocking(kernel, lhs, rhs, blocking)?;
        gemm.prologues = [(&gemm.lhs, gemm.m), (&gemm.rhs, gemm.n)]
            .map(|(side, outer)| Prologue::new(maps, side, [outer, gemm.k]));
        let [of_a, of_b] = &gemm.prologues;
        let along_k = |prologue: &Option<Prologue>| prologue.as_ref().map(Prologue::along_k);
        let found = of_a.iter().chain(of_b).count();
        if found < maps.len() || along_k(of_a) == Some(false) {
            return None;
        }
        let (rhs, blocking, n) = (&gemm.rhs, &gemm.blocking, gemm.n);
        let direct = rhs.outer.stride() == Some(1) && rhs.k_dims.stride().is_some() && n > 1;
        let direct = direct && along_k(of_b) != Some(true) && reads_in_place(rhs.stored, n);
        if direct && blocking.max_chunk_tiles() < MIN_PACK_AHEAD_TILES {
            gemm.in_place_b_kernels = Some(Microkernels::default());
            if blocking.max_chunk_tiles() > 1 {
                gemm.blocking = gemm.blocking.with_kc(MAX_IN_PLACE_B_KC);
            }
        }
        if gemm.in_place_b_kernels.is_none() && gemm.batches == 1 && gemm.prologues[1].is_none() {
            gemm.blocking = gemm.blocking.along_rows();
        }
        gemm.a_in_place = gemm.a_in_place_stride();
        gemm.indirect = IndirectB::new(&gemm);
        gemm.amx_vnni = AmxVnniGemm::new(&gemm);
        if gemm.amx_vnni.is_none() {
            gemm.dots = DotGemm::new(&gemm);
        }
        if gemm.worth_pairs() {
            gemm.multiply_pairs();
        }
        gemm.size_prologue_blocks()?;
        gemm.compile()?;
        Some(gemm)
    }

    /// Decides the sizes of the blocks of fused operands. `None` if the blocks would be too narrow.
    fn size_prologue_blocks(&mut self) -> Option<()> {
        let along_n = self.prologues[1].as_ref().is_some_and(|prologue| !prologue.along_k());
        if along_n && self.amx_vnni.is_some() {
            return None;
        }
        let columns = self.blocking.n_panels.div_ceil(self.blocking.n_chunks) * self.blocking.nr();
        if self.prologues[1].is_some() && self.amx_vnni.is_none() {
            self.blocking = self.blocking.with_kc((MAX_B_BLOCK_ELEMENTS / columns).max(1));
        }
        let whole = self.amx_vnni.is_some() || self.dots.is_some();
        let depth = if whole { self.k } else { self.blocking.kc };
        let a_ld = match &self.amx_vnni {
            Some(amx_vnni) => amx_vnni.prologue_ld(self),
            None if self.packs_whole_a() => self.k,
            None => depth,
        };
        if let Some(prologue) = &mut self.prologues[0] {
            self.lhs = prologue.in_blocks(a_ld);
        }
        if let Some(prologue) = &mut self.prologues[1] {
            self.rhs = prologue.in_blocks(if along_n { columns } else { depth });
        }
        Some(())
    }

    /// A GEMM that packs all columns; `blocking` gives its blocking by M, N, K and B.
    fn with_blocking(
        kernel: &Kernel,
        lhs: &Access,
        rhs: &Access,
        blocking: impl FnOnce(usize, usize, usize, &Operand) -> Blocking,
    ) -> Option<Gemm> {
        let dims = kernel.gemm_dims()?;
        let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
        let lhs = Operand::new(kernel, lhs, &dims.rows)?;
        let rhs = Operand::new(kernel, rhs, &dims.columns)?;
        let c_in_place = CMatrix::new(kernel, &dims);
        let blocking = blocking(m, n, k, &rhs);
        let core_bytes = integers::core_bytes(kernel)?;
        let batch = SmallVec::from_slice(&kernel.extents[dims.batch]);
        let batches = batch.iter().product();
        let (direct, indirect, dots, amx_vnni, a_in_place) = (None, None, None, None, None);
        let prologues = [None, None];
        Some(Gemm {
            batch,
            batches,
            m,
            n,
            k,
            pairs: false,
            lhs,
            rhs,
            prologues,
            c_in_place,
            core_bytes,
            blocking,
            a_in_place,
            kernels: Microkernels::default(),
            in_place_b_kernels: direct,
            indirect,
            dots,
            amx_vnni,
        })
    }

    /// Generates the micro-kernels.
    fn compile(&mut self) -> Option<()> {
        // Other strategies do not read packed panels.
        if self.indirect.is_some() || self.dots.is_some() || self.amx_vnni.is_some() {
            return Some(());
        }
        let a_in_place = self.a_in_place.is_some();
        self.kernels = microkernels(&self.blocking, self.n, self.packed(), false, a_in_place)?;
        if self.in_place_b_kernels.is_some() {
            self.in_place_b_kernels =
                Some(microkernels(&self.blocking, self.n, self.rhs.stored, true, a_in_place)?);
        }
        Some(())
    }

    /// Bytes between the rows of A, if reading A in memory is faster than packing it.
    fn a_in_place_stride(&self) -> Option<isize> {
        let lhs = &self.lhs;
        let columns = if self.shares_a() { self.n * self.batches } else { self.n };
        let plain = self.prologues[0].is_none() && lhs.stored == Stored::F32;
        if !plain || lhs.k_dims.stride() != Some(1) || columns > MAX_IN_PLACE_A_COLUMNS {
            return None;
        }
        let lda = 4 * lhs.outer.stride()?;
        let rows_per_set =
            L1_SET_STRIDE >> lda.trailing_zeros().min(L1_SET_STRIDE.trailing_zeros());
        let aliased = self.blocking.tile_rows(0).div_ceil(rows_per_set);
        (aliased <= MAX_ALIASED_ROWS).then_some(lda)
    }

    /// True if a slab is packed before any tile of the chunk runs.
    fn packs_b_ahead(&self) -> bool {
        self.in_place_b_kernels.is_none() && self.indirect.is_none()
    }

    /// True if all GEMMs of the batch have the same A.
    fn shares_a(&self) -> bool {
        let lhs = self.prologues[0].as_ref().map_or(&self.lhs, Prologue::layout);
        lhs.batch.iter().zip(&self.batch).all(|(s, e)| *s == 0 || *e == 1)
    }

    /// The machine code of the micro-kernels and prologues.
    pub fn code(&self) -> Vec<Vec<u8>> {
        let tiles =
            self.in_place_b_kernels.iter().chain([&self.kernels]).flatten().flatten().flatten();
        let tiles = tiles.chain(self.indirect.iter().flat_map(IndirectB::functions));
        let dots = self.dots.iter().flat_map(DotGemm::functions);
        let amx_vnni = self.amx_vnni.iter().flat_map(AmxVnniGemm::functions);
        let rest = dots.map(Function::bytes).chain(amx_vnni.map(Function::bytes));
        let tiles = tiles.map(Function::bytes).chain(rest).map(<[u8]>::to_vec);
        tiles.chain(self.prologues.iter().flatten().flat_map(Prologue::code)).collect()
    }

    /// Runs the GEMM and the epilogue of its kernel. `store` may hold B prepacked.
    ///
    /// # Safety
    /// `prepared` is of the same kernel; the bindings fulfil their contract except for the
    /// workspace.
    pub unsafe fn run(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        if let Some(amx_vnni) = &self.amx_vnni {
            // SAFETY: the caller's promise.
            return unsafe { amx_vnni.run(self, prepared, bindings, pool) };
        }
        // SAFETY: the caller's promise.
        let prepacked = store.and_then(|store| unsafe { self.prepacked_b(store, bindings, pool) });
        let b = prepacked.as_ref().map(|prepacked| PrepackedB(prepacked.start as *const f32));
        let whole = self.packs_whole_a();
        let bytes = if whole { self.m * self.k * 4 } else { 0 };
        with_memory(&PACKED_A, bytes, |memory| {
            let memory = Memory(memory as *mut f32);
            let a = OperandA::Packed { start: memory.0, row: 0, k: 0, depth: self.k };
            // SAFETY: the caller's promise; the memory has room for all tiles.
            unsafe {
                if whole {
                    self.pack_whole_a(memory, bindings, pool)?;
                }
                let packed = PackedOperands { a: whole.then_some(a), b };
                if self.blocking.split_k == 1 {
                    let nowhere = Memory(std::ptr::null_mut());
                    return self.run_chunks(prepared, bindings, pool, packed, nowhere);
                }
                with_memory(
                    &SPLIT_K_RESULTS,
                    self.blocking.split_k * self.m * self.n * 4,
                    |partial_results| {
                        let partial_results = Memory(partial_results as *mut f32);
                        self.run_chunks(prepared, bindings, pool, packed, partial_results)?;
                        self.reduce_split_k(partial_results, prepared, bindings, pool)
                    },
                )
            }
        })
    }

    /// True if A is packed before all chunks run.
    fn packs_whole_a(&self) -> bool {
        let packed = self.a_in_place.is_none() && self.dots.is_none();
        packed && self.shares_a() && self.m * self.k <= MAX_WHOLE_A_ELEMENTS
    }

    /// Rough time on one core in nanoseconds: the larger of arithmetic with packing, and reading B.
    fn cost_ns(&self) -> u64 {
        let elements = self.n.saturating_mul(self.k).saturating_mul(self.batches);
        let reading = elements.saturating_mul(self.rhs.stored.size()) / 25;
        (elements.saturating_mul(self.element_work()) / 80).max(reading) as u64
    }

    /// Multiplications per element of B, including the cost of packing the element.
    fn element_work(&self) -> usize {
        let packed = self.packs_b_ahead() && self.dots.is_none() && self.amx_vnni.is_none();
        self.m + if packed { PACK_COST } else { 0 }
    }

    /// # Safety
    /// As [`Gemm::run`]; `memory` has room for the left operand.
    unsafe fn pack_whole_a(
        &self,
        memory: Memory,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let elements = self.m * self.k;
        let tasks =
            if elements < MIN_PARALLEL_PACK_ELEMENTS { 1 } else { self.blocking.m_tiles.min(16) };
        let each = self.blocking.m_tiles.div_ceil(tasks);
        let thread_bindings = SharedBindings(*bindings);
        let cost_ns = elements as u64 / 4;
        pool.run(self.blocking.m_tiles.div_ceil(each), cost_ns, &|i, scratch| {
            let tiles = i * each..((i + 1) * each).min(self.blocking.m_tiles);
            let first = self.blocking.tile_start(tiles.start);
            let to = memory.get().wrapping_add(first * self.k);
            // SAFETY: the caller's promise; the pieces have different tiles.
            unsafe {
                self.fill_a(thread_bindings.get(), (0, first), tiles, 0..self.k, to, scratch)
            };
            Ok(())
        })
    }

    /// Packs consecutive tiles of A, or computes A first if it has a prologue. `(batch, first)` are
    /// the entry of the batch and the row at which the first tile begins.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `to` has room for them.
    unsafe fn fill_a(
        &self,
        bindings: &Bindings<'_>,
        (batch, first): (usize, usize),
        tiles: Range<usize>,
        k_range: Range<usize>,
        to: *mut f32,
        scratch: &mut Scratch,
    ) {
        let Some(prologue) = &self.prologues[0] else {
            let start = self.lhs.start(bindings, &self.batch, batch);
            // SAFETY: the caller's promise.
            return unsafe { self.pack_a(start, first, tiles, k_range, to) };
        };
        let above = self.blocking.tile_start(tiles.start);
        let of_tile = self.blocking.tile_rows(0) * k_range.len();
        let at_once = (MAX_A_BLOCK_ELEMENTS / of_tile).clamp(1, tiles.len());
        let rows = at_once * self.blocking.tile_rows(0);
        with_memory(&PROLOGUE_BLOCK, prologue.bytes(rows, k_range.len()), |memory| {
            for start in tiles.clone().step_by(at_once) {
                let some = start..(start + at_once).min(tiles.end);
                let [row, end] = [some.start, some.end]
                    .map(|tile| first + self.blocking.tile_start(tile) - above);
                let block = OperandBlock { batch, outer: row..end, k_range: k_range.clone() };
                let to = to.wrapping_add((row - first) * k_range.len());
                // SAFETY: the caller's promise; the block has room for the tiles' rows.
                unsafe {
                    let start = prologue.fill(&block, &self.batch, memory, bindings, scratch);
                    self.pack_a(start, row, some, k_range.clone(), to);
                }
            }
        });
    }

    /// The address at which B would begin if all of B had the layout of the given part: B in
    /// memory, or a block that is computed first.
    ///
    /// # Safety
    /// As [`Prologue::fill`].
    unsafe fn b_start(
        &self,
        block: &OperandBlock,
        memory: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const u8 {
        match &self.prologues[1] {
            None => self.rhs.start(bindings, &self.batch, block.batch),
            // SAFETY: the caller's promise.
            Some(prologue) => unsafe {
                prologue.fill(block, &self.batch, memory, bindings, scratch)
            },
        }
    }

    /// Packs tiles of an A that begins at `start`; the first tile begins at row `first`.
    ///
    /// # Safety
    /// As [`Gemm::fill_a`].
    unsafe fn pack_a(
        &self,
        start: *const u8,
        first: usize,
        tiles: Range<usize>,
        k_range: Range<usize>,
        mut to: *mut f32,
    ) {
        let above = self.blocking.tile_start(tiles.start);
        let elements = self.k_elements(&k_range);
        let mut offsets: SmallVec<[isize; 2048]> = SmallVec::from_elem(0, elements.len());
        self.lhs.k_dims.fill(elements.start, &mut offsets);
        for tile in tiles {
            let (row, rows) =
                (first + self.blocking.tile_start(tile) - above, self.blocking.tile_rows(tile));
            let block = PackBlock {
                start,
                stored: self.lhs.stored,
                outer: &self.lhs.outer,
                indices: row..row + rows,
                k_offsets: &offsets,
                along_k: self.lhs.along_k(),
                pairs: self.pairs,
            };
            // SAFETY: the caller's promise.
            unsafe { pack(&block, to, rows) };
            to = to.wrapping_add(rows * k_range.len());
        }
    }

    /// Runs all chunks. With split-K, the partial results go to `split_k` and the epilogue is not
    /// run.
    ///
    /// # Safety
    /// As [`Gemm::run`]; `split_k` has room for all parts.
    unsafe fn run_chunks(
        &self,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
        packed: PackedOperands,
        partial_results: Memory,
    ) -> Result<(), ExecError> {
        let (m_chunks, n_chunks) = match &self.dots {
            Some(dots) => (1, dots.chunks()),
            None => (self.blocking.m_chunks, self.blocking.n_chunks),
        };
        let chunks = self.batches * self.blocking.split_k * m_chunks * n_chunks;
        let work = self.element_work().saturating_mul(self.n).saturating_mul(self.blocking.part_k);
        let at_once = (TASK_MULTIPLICATIONS * m_chunks * n_chunks / work.max(1)).clamp(1, chunks);
        let cost_ns = self.cost_ns();
        let thread_bindings = SharedBindings(*bindings);
        let packed = &packed;
        let job = |first: usize, scratch: &mut Scratch| {
            for i in first * at_once..((first + 1) * at_once).min(chunks) {
                let (of, rest) = (i / (m_chunks * n_chunks), i % (m_chunks * n_chunks));
                let (batch, part) = (of / self.blocking.split_k, of % self.blocking.split_k);
                let range = |i: usize, of: usize, all: usize| i * all / of..(i + 1) * all / of;
                // SAFETY: the caller's promise; chunks do not overlap.
                unsafe {
                    if let Some(dots) = &self.dots {
                        dots.run(self, batch, rest, prepared, thread_bindings.get(), scratch)?;
                        continue;
                    }
                    let tiles = range(rest / n_chunks, m_chunks, self.blocking.m_tiles);
                    let panels = range(rest % n_chunks, n_chunks, self.blocking.n_panels);
                    let chunk = Chunk { batch, part, tiles, panels };
                    self.run_chunk(
                        prepared,
                        &chunk,
                        thread_bindings.get(),
                        *packed,
                        partial_results,
                        scratch,
                    )?;
                }
            }
            Ok(())
        };
        let job: &crate::pool::Job<'_> = &|i, s| job(i, s);
        pool.run(chunks.div_ceil(at_once), cost_ns, job)
    }
}
