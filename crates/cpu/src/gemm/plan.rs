//! The variants of a generated GEMM, and the choice of one. [`crate::strategy`] chooses which GEMMs
//! are generated.
//!
//! [`plan()`] takes the first variant of this table whose condition holds. A function of this file
//! states each condition, with the measurements behind its constants. A plan is complete when it is
//! built.
//!
//! | variant | condition |
//! | --- | --- |
//! | [`Variant::Dots`] | [`is_for_row()`]: a matrix times a vector, as a transposed row times a matrix |
//! | [`Variant::Small`] | [`is_for_small()`]: a batch of small matrices |
//! | [`Variant::AmxVnni`] | [`engine()`]: bfloat16 or bytes on a machine with AMX, or with AVX-512 BF16 or VNNI |
//! | [`Variant::Transposed`] | [`transposed_tiles()`]: windows of images (convolution) |
//! | [`Variant::Dots`] | [`is_for_copied_dots()`]: a few rows times a few columns; [`is_for_dots()`]: a few rows times a column-major B |
//! | [`Variant::Blocked`], [`ReadB::Pairs`] | [`is_for_pairs()`]: short integers, some rows |
//! | [`Variant::Blocked`], [`ReadB::PackedByFirstTile`] | [`is_packed_by_first_tile()`]: a row-major B, few rows |
//! | [`Variant::Blocked`], [`ReadB::Indirect`] | [`read_indirectly()`]: windows of an image (convolution), few rows |
//! | [`Variant::Blocked`], [`ReadB::PackedAhead`] | others, also convolutions: packing follows all strides |
//!
//! A blocked GEMM of few rows also divides K among threads ([`split_k_parts()`]), and reads A in
//! memory or packs it ([`ReadA`]). B that is an argument of several runs is read prepacked
//! (`prepacked`).

use super::amx_vnni::{AmxVnniGemm, Engine};
use super::blocking::Blocking;
use super::dots::DotGemm;
use super::indirect::{IndirectB, IndirectPanels};
use super::microkernels::{
    IndirectTiles, LANES, MICROTILE, Multiply, SourceOfA, Stored, TILE_ROWS, TileKernels,
    TileOperands, enabled, indirect_tiles, max_indirect_vectors, reads_in_place,
};
use super::operand::Operand;
use super::problem::Problem;
use super::prologue::Prologue;
use super::small::{SmallGemm, is_for_small};
use super::transposed::TransposedGemm;

/// The cost of packing an element of B, in multiplications.
pub(super) const PACK_COST: usize = 24;

/// A variant of a generated GEMM, with all data that it needs.
#[allow(clippy::large_enum_variant, reason = "a kernel has one, which is in a box")]
pub(super) enum Variant {
    /// Several small matrices of a batch at a time.
    Small(SmallGemm),
    /// AMX, or AVX-512 BF16 or VNNI.
    AmxVnni(AmxVnniGemm),
    /// The transposed GEMM of a convolution, whose windows are not packed.
    Transposed(TransposedGemm),
    /// Dot products along K, without packing B.
    Dots(DotGemm),
    /// Tiles of C in registers, panels and blocks of the operands in the caches (Goto, BLIS).
    Blocked(BlockedGemm),
}

/// A blocked GEMM: the loops of `drive` and `chunk` around the micro-kernels.
pub(super) struct BlockedGemm {
    pub problem: Problem,
    /// K in the units of the blocking: elements, or pairs.
    pub k: usize,
    pub blocking: Blocking,
    pub a: ReadA,
    pub b: ReadB,
}

/// The way in which the micro-kernels of a blocked GEMM read A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReadA {
    /// In memory, with that many bytes between rows.
    InPlace { lda: isize },
    /// All of A is packed before any chunk runs.
    PackedWhole,
    /// Each chunk packs its rows, block by block of K.
    PackedByChunk,
}

/// The way in which the micro-kernels of a blocked GEMM read B.
pub(super) enum ReadB {
    /// A chunk packs a slab of panels before any tile uses it.
    PackedAhead(TileKernels),
    /// As [`ReadB::PackedAhead`], and both operands are packed as pairs of 16-bit integers that are
    /// consecutive along K ([`Stored::Pair`]). One instruction (`vpmaddwd`) multiplies and adds a
    /// pair.
    Pairs(TileKernels),
    /// The first tile of a chunk reads B in memory and packs it for the others.
    PackedByFirstTile {
        first: TileKernels,
        others: TileKernels,
        /// The number of bytes between the rows of B.
        ldb: isize,
    },
    /// All tiles read B in memory, through an indirection.
    Indirect(IndirectB),
}

/// The plan of a problem. `None` if code cannot be generated for this machine, or if a fused
/// operand cannot be computed in the order in which the variant packs it.
pub(super) fn plan(problem: Problem) -> Option<Variant> {
    if is_for_row(&problem) {
        let computable = [&problem.a, &problem.b].into_iter().all(|x| along_k(x) != Some(false));
        let of = || DotGemm::new(problem.transposed_column());
        return computable.then(of)?.map(Variant::Dots);
    }
    if enabled() && problem.k < MIN_DOT_K && is_for_small(&problem) {
        return Some(Variant::Small(SmallGemm::new(problem)));
    }
    let Problem { m, n, k, .. } = problem;
    if along_k(&problem.a) == Some(false) {
        return None;
    }
    if let Some(engine) = engine(&problem) {
        // The variant packs its columns of B with all of K; `PackedAlongK` of the target has these
        // operands, for which fusion makes no other prologues.
        let computable = along_k(&problem.b) != Some(false);
        return computable.then(|| AmxVnniGemm::new(problem, engine))?.map(Variant::AmxVnni);
    }
    if let Some(tiles) = transposed_tiles(&problem) {
        return TransposedGemm::new(problem, tiles).map(Variant::Transposed);
    }
    if is_for_copied_dots(&problem) {
        let computable = along_k(&problem.b) != Some(false);
        return computable.then(|| DotGemm::new(problem))?.map(Variant::Dots);
    }
    let blocking = Blocking::with_split_k(m, n, k, split_k_parts(&problem));
    let by_first_tile = is_packed_by_first_tile(&problem, &blocking);
    if !by_first_tile && is_for_dots(&problem) {
        return DotGemm::new(problem).map(Variant::Dots);
    }
    if is_for_pairs(&problem) {
        return BlockedGemm::of_pairs(problem).map(Variant::Blocked);
    }
    let plan = match by_first_tile {
        true => BlockedGemm::packed_by_first_tile(problem, blocking),
        false => BlockedGemm::packed_ahead_or_indirect(problem, blocking),
    };
    plan.map(Variant::Blocked)
}

/// Whether the lines of a fused operand run along K; `None` for other operands.
fn along_k(operand: &Operand) -> Option<bool> {
    operand.prologue().map(Prologue::along_k)
}

/// The engine that multiplies bfloat16 or bytes of these sizes faster than multiply-adds of f32 or
/// of 32-bit integers, if the machine has it. A is row-major, and B row-major or column-major.
pub(super) fn engine(problem: &Problem) -> Option<Engine> {
    /// The minimum number of bytes of K for which AMX pays.
    const MIN_K_BYTES: usize = 128;
    let (a, b) = (problem.a.in_memory(), problem.b.in_memory());
    let multiply = Multiply::of(a.stored, b.stored)?;
    let engine = match multiply {
        _ if multiply.available() => Engine::Amx,
        _ if multiply.available_without_amx() => Engine::Vnni,
        _ => return None,
    };
    let regular_a = a.k_dims.stride() == Some(1) && a.outer.stride().is_some();
    let regular_b = match (b.k_dims.stride(), b.outer.stride()) {
        (Some(k), Some(outer)) => k == 1 || outer == 1,
        _ => false,
    };
    let (m, n, k_bytes) = (problem.m, problem.n, problem.k * a.stored.size());
    let pays = match multiply {
        Multiply::BF16 => {
            m >= TILE_ROWS && n >= MICROTILE && (MIN_K_BYTES..128 * MIN_K_BYTES).contains(&k_bytes)
        }
        Multiply::Bytes(..) => n >= TILE_ROWS && 2 * k_bytes >= MIN_K_BYTES,
    };
    (regular_a && regular_b && pays).then_some(engine)
}

/// The tiles of a transposed GEMM, if B has windows of images that are better read in memory as the
/// rows of the tiles: packing A costs little.
fn transposed_tiles(problem: &Problem) -> Option<IndirectTiles> {
    /// The range of K: with a smaller K, transposing the result costs as much as computing it, and a
    /// larger K needs a large table of offsets.
    const K: std::ops::RangeInclusive<usize> = 16..=1 << 16;
    /// The minimum number of positions of windows: with fewer positions, packing A costs too much.
    const MIN_POSITIONS: usize = 32;
    /// The maximum number of elements of A.
    const MAX_A_ELEMENTS: usize = 1 << 22;
    let (Operand::Memory(a), Operand::Memory(b)) = (&problem.a, &problem.b) else { return None };
    let tiles = indirect_tiles()?;
    // Elements along K share cache lines, as the taps of a window do.
    let windows = b.k_dims.stride().is_none();
    let floats = b.stored == Stored::F32 && !a.stored.is_integer();
    let registers = problem.m.div_ceil(tiles.lanes);
    // At most a fifth of the columns of tiles may be padding.
    let few_padded = 5 * problem.m >= 4 * registers * tiles.lanes;
    let filled = few_padded && registers >= tiles.min_row_registers;
    let pays = K.contains(&problem.k)
        && problem.n.saturating_mul(problem.batches) >= MIN_POSITIONS
        && problem.m.saturating_mul(problem.k) <= MAX_A_ELEMENTS;
    (windows && floats && problem.has_one_a() && filled && pays).then_some(tiles)
}

/// The number of parts of K that a blocked GEMM accumulates independently (split-K): a power of
/// two.
fn split_k_parts(problem: &Problem) -> usize {
    /// The maximum number of rows: with more rows, arithmetic takes longer than reading the
    /// weights.
    const MAX_M: usize = 32;
    /// The minimum number of bytes of weights of a part.
    const MIN_PART_BYTES: usize = 1 << 18;
    /// The minimum K of a part.
    const MIN_PART_K: usize = 128;
    /// The maximum number of parts.
    const MAX_PARTS: usize = 4;
    let (b, n, k) = (problem.b.in_memory(), problem.n, problem.k);
    if problem.batches > 1 || problem.m > MAX_M || n < LANES || b.row_major_ldb().is_none() {
        return 1;
    }
    let bytes = n.saturating_mul(k).saturating_mul(b.stored.size());
    let worth = (bytes / MIN_PART_BYTES).min(k / MIN_PART_K).clamp(1, MAX_PARTS);
    1 << worth.ilog2()
}

/// Whether the first tile of a chunk packs B for the other tiles while it computes: B is row-major,
/// and a chunk has few row tiles. With more row tiles, packing a slab before any tile runs costs
/// less per tile.
fn is_packed_by_first_tile(problem: &Problem, blocking: &Blocking) -> bool {
    /// The number of row tiles of a chunk from which on a slab is packed before any tile runs. With
    /// fewer row tiles, the other tiles prefetch the next rows of B meanwhile.
    const MIN_PACK_AHEAD_TILES: usize = 16;
    let (b, n) = (problem.b.in_memory(), problem.n);
    let readable = b.row_major_ldb().is_some() && n > 1 && reads_in_place(b.stored, n);
    let row_major = readable && along_k(&problem.b) != Some(true);
    row_major && blocking.max_chunk_tiles() < MIN_PACK_AHEAD_TILES
}

/// The indirection to a B that consists of windows of an image, if reading the windows in memory
/// costs less than packing them: A has few rows.
fn read_indirectly(problem: &Problem, blocking: &Blocking) -> Option<IndirectB> {
    /// The cost of loading a vector from two addresses instead of one, in multiplications.
    const SPLIT_COST: usize = 2;
    let Operand::Memory(b) = &problem.b else { return None };
    let readable = b.stored == Stored::F32 && blocking.nr_vectors <= max_indirect_vectors();
    if !readable || b.k_dims.stride().is_some() {
        return None;
    }
    let panels = IndirectPanels::new(&b.outer, problem.n, blocking)?;
    let cost = SPLIT_COST * panels.split_vectors * blocking.max_chunk_tiles();
    let pays = cost <= PACK_COST * panels.vectors;
    pays.then(|| IndirectB::new(b, problem.k, blocking, panels))?
}

/// The maximum number of rows of a GEMM by dot products; with more rows, packing pays.
const MAX_DOT_ROWS: usize = 6;
/// The minimum K of a GEMM by dot products; with a smaller K, the horizontal sums cost more than
/// packing.
const MIN_DOT_K: usize = 64;

/// Whether a matrix of floats times a vector is computed as a row times the transposed matrix, by dot
/// products. They read the matrix in memory, while packing it takes several times as long as multiplying
/// it. The sums have the same order whatever the strides and for fused operands, so that a view and its
/// copy give the same bits.
fn is_for_row(problem: &Problem) -> bool {
    let floats = |operand: &Operand| !operand.in_memory().stored.is_integer();
    let large = problem.m >= LANES && problem.k >= MIN_DOT_K;
    problem.n == 1 && large && floats(&problem.a) && floats(&problem.b)
}

/// Whether dot products along K are faster than packing B: there are few rows, and the columns of B
/// are contiguous, such as the weights of linear layers.
pub(super) fn is_for_dots(problem: &Problem) -> bool {
    let readable = has_contiguous_columns(problem) && along_k(&problem.b) != Some(false);
    problem.m <= MAX_DOT_ROWS && problem.k >= MIN_DOT_K && readable
}

/// Whether a GEMM is computed by dot products whatever the strides of B, so that a view and its copy
/// give the same bits: few rows times few columns, such as the product of two vectors. Columns that
/// are not contiguous are copied, which costs as much as packing them.
fn is_for_copied_dots(problem: &Problem) -> bool {
    problem.m <= MAX_DOT_ROWS && problem.k >= MIN_DOT_K && problem.n < LANES
}

/// Whether the columns of B can be read in memory.
pub(super) fn has_contiguous_columns(problem: &Problem) -> bool {
    let b = problem.b.in_memory();
    let contiguous = b.k_dims.stride() == Some(1) && b.outer.stride().is_some();
    contiguous && reads_in_place(b.stored, problem.k)
}

/// Whether packing pairs of short integers is faster than widening them to 32 bits.
fn is_for_pairs(problem: &Problem) -> bool {
    /// The minimum number of rows for which packing B as pairs pays.
    const MIN_M: usize = 4;
    let short = |operand: &Operand| match operand {
        Operand::Memory(matrix) => matrix.stored.is_short(),
        Operand::Fused(_) => false,
    };
    short(&problem.a) && short(&problem.b) && problem.m >= MIN_M
}

impl ReadA {
    /// The way to read A in a GEMM with that K (elements or pairs) and this blocking.
    fn new(problem: &Problem, k: usize, blocking: &Blocking) -> ReadA {
        /// The maximum number of elements of A for which all of A is packed before any chunk runs.
        const MAX_WHOLE_ELEMENTS: usize = 1 << 22;
        match ReadA::in_place(problem, blocking) {
            Some(in_place) => in_place,
            None if problem.has_one_a() && problem.m * k <= MAX_WHOLE_ELEMENTS => {
                ReadA::PackedWhole
            }
            None => ReadA::PackedByChunk,
        }
    }

    /// [`ReadA::InPlace`], if reading A in memory is faster than packing it.
    pub fn in_place(problem: &Problem, blocking: &Blocking) -> Option<ReadA> {
        /// The maximum number of columns for which a row-major A is read in memory: packing A would
        /// take as long as using it.
        const MAX_COLUMNS: usize = 256;
        /// The maximum number of rows of a tile whose elements may map to the same set of the L1
        /// cache: most of the ways of the set.
        const MAX_ALIASED_ROWS: usize = 8;
        /// The number of bytes between addresses that map to the same set of the L1 cache.
        const L1_SET_STRIDE: usize = 4096;
        let Operand::Memory(a) = &problem.a else { return None };
        let columns = if problem.has_one_a() { problem.n * problem.batches } else { problem.n };
        if a.stored != Stored::F32 || a.k_dims.stride() != Some(1) || columns > MAX_COLUMNS {
            return None;
        }
        let lda = 4 * a.outer.stride()?;
        let rows_per_set =
            L1_SET_STRIDE >> lda.trailing_zeros().min(L1_SET_STRIDE.trailing_zeros());
        let aliased = blocking.tile_rows(0).div_ceil(rows_per_set);
        (aliased <= MAX_ALIASED_ROWS).then_some(ReadA::InPlace { lda })
    }

    /// Whether the micro-kernels read A in memory.
    pub fn is_in_place(self) -> bool {
        matches!(self, ReadA::InPlace { .. })
    }

    /// The source from which the micro-kernels read A.
    fn source(self) -> SourceOfA {
        match self {
            ReadA::InPlace { .. } => SourceOfA::InPlace,
            ReadA::PackedWhole | ReadA::PackedByChunk => SourceOfA::Packed,
        }
    }
}

impl BlockedGemm {
    /// A GEMM of pairs of short integers: the blocking counts pairs in place of elements of K.
    fn of_pairs(problem: Problem) -> Option<BlockedGemm> {
        let k = problem.k.div_ceil(2);
        let blocking = Blocking::new(problem.m, problem.n, k);
        let blocking = if problem.batches == 1 { blocking.along_rows() } else { blocking };
        let a = ReadA::new(&problem, k, &blocking);
        let operands =
            TileOperands { stored: Stored::Pair, b_in_place: false, a: SourceOfA::Packed };
        let kernels = TileKernels::new(&blocking, problem.n, operands)?;
        Some(BlockedGemm { problem, k, blocking, a, b: ReadB::Pairs(kernels) })
    }

    /// A GEMM whose B is packed by the first tile of a chunk, if the chunk has several tiles.
    fn packed_by_first_tile(problem: Problem, blocking: Blocking) -> Option<BlockedGemm> {
        /// The maximum K of a block (kc): a panel's rows should stay in the L2 cache, in which rows
        /// that are a page apart map to few sets.
        const MAX_KC: usize = 256;
        let alone = blocking.max_chunk_tiles() == 1;
        let blocking = if alone { blocking } else { blocking.with_kc(MAX_KC) };
        let a = ReadA::new(&problem, problem.k, &blocking);
        let (problem, blocking) = with_blocks_of_prologues(problem, blocking, a);
        let b = problem.b.packed_from();
        let ldb = b.row_major_ldb()?;
        let packed = b.stored.packed();
        let kernels = |stored, b_in_place| {
            let operands = TileOperands { stored, b_in_place, a: a.source() };
            TileKernels::new(&blocking, problem.n, operands)
        };
        let (others, first) = (kernels(packed, false)?, kernels(b.stored, true)?);
        let b = ReadB::PackedByFirstTile { first, others, ldb };
        Some(BlockedGemm { k: problem.k, problem, blocking, a, b })
    }

    /// A GEMM whose B is packed before the tiles of a chunk run, or windows that are not packed at
    /// all.
    fn packed_ahead_or_indirect(problem: Problem, blocking: Blocking) -> Option<BlockedGemm> {
        let in_memory = problem.b.prologue().is_none();
        let blocking = match in_memory && problem.batches == 1 {
            true => blocking.along_rows(),
            false => blocking,
        };
        let a = ReadA::new(&problem, problem.k, &blocking);
        let indirect = if a.is_in_place() { None } else { read_indirectly(&problem, &blocking) };
        let (problem, blocking) = with_blocks_of_prologues(problem, blocking, a);
        if let Some(indirect) = indirect {
            let b = ReadB::Indirect(indirect);
            return Some(BlockedGemm { k: problem.k, problem, blocking, a, b });
        }
        BlockedGemm::packed_ahead(problem, blocking, a)
    }

    /// A GEMM with this blocking whose B is packed before the tiles run.
    pub fn packed_ahead(problem: Problem, blocking: Blocking, a: ReadA) -> Option<BlockedGemm> {
        let stored = problem.b.packed_from().stored.packed();
        let operands = TileOperands { stored, b_in_place: false, a: a.source() };
        let kernels = TileKernels::new(&blocking, problem.n, operands)?;
        Some(BlockedGemm { k: problem.k, problem, blocking, a, b: ReadB::PackedAhead(kernels) })
    }
}

/// The problem with the blocks that its prologues compute at once, and the blocking for them.
fn with_blocks_of_prologues(problem: Problem, blocking: Blocking, a: ReadA) -> (Problem, Blocking) {
    /// The maximum number of elements of a block of B, unless a single row of a chunk has more. The
    /// block stays in the L2 cache until it is packed.
    const MAX_B_BLOCK_ELEMENTS: usize = 1 << 17;
    let columns = blocking.n_panels.div_ceil(blocking.n_chunks) * blocking.nr();
    let blocking = match problem.b {
        Operand::Fused(_) => blocking.with_kc((MAX_B_BLOCK_ELEMENTS / columns).max(1)),
        Operand::Memory(_) => blocking,
    };
    let a_ld = if a == ReadA::PackedWhole { problem.k } else { blocking.kc };
    let b_ld = if along_k(&problem.b) == Some(false) { columns } else { blocking.kc };
    (problem.with_a_ld(a_ld).with_b_ld(b_ld), blocking)
}
