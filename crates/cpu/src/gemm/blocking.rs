//! The blocking of a GEMM: tiles that fit the registers, blocks that fit the caches, and chunks,
//! which are the tasks of the threads. The blocking is determined by the sizes; the number of
//! chunks also depends on the number of processors. No blocking changes a result.

use super::microkernels::{LANES, avx512_enabled, max_mr, max_nr_vectors};
use girih_exec::tuning::machine;
use girih_sync::OnceLock;
use std::ops::Range;

/// The number of multiplications that a chunk should have: about ten microseconds.
const CHUNK_MULTIPLICATIONS: usize = 1 << 20;
/// The maximum number of chunks per processor into which a GEMM is divided for parallelism. Each
/// chunk packs its columns, and reads all of A for each slab.
const MAX_CHUNKS_PER_PROCESSOR: usize = 4;
/// The maximum K of a block (kc) on AVX-512. It is small enough that panels and a tile's part of A
/// stay in the L2 cache, and large enough that most results are written once.
const MAX_KC_AVX512: usize = 2048;
/// The maximum K of a block (kc) on AVX2. A panel of 16 columns takes an L1 cache of 32 KB, and is
/// partly read from the L2 cache. With a kc of 256, panels stayed in the L1 cache, but the end of
/// each tile (its results, the end of its loop, and the next call) took 5 % of the time.
const MAX_KC_AVX2: usize = 512;
/// The number of elements of a slab (kc by nc) on AVX-512, which stays in the L2 cache while all
/// row tiles use the slab.
const SLAB_ELEMENTS_AVX512: usize = 1 << 17;
/// The minimum number of rows (mr) of a tile that has all columns. A wider panel leaves registers
/// for so few rows that B is read too often: in attention on AVX2, tiles of 1 by 64 took half of
/// the time.
const MIN_ONE_PANEL_ROWS: usize = 6;
/// The maximum number of rows of a chunk (mc).
const MAX_MC: usize = 1024;
/// The maximum number of columns of a chunk, which packs the columns slab by slab.
const MAX_CHUNK_COLUMNS: usize = 1024;

/// The blocking of a GEMM.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Blocking {
    /// Split-K: the number of parts of K that are accumulated independently, and the K of each
    /// part; the last part may have fewer. The other fields describe one part.
    pub split_k: usize,
    pub part_k: usize,
    /// Row tiles: the first `taller` tiles have `mr + 1` rows, the other tiles `mr` rows.
    pub m_tiles: usize,
    pub mr: usize,
    pub taller: usize,
    /// The number of vectors of a panel (nr / 16); the last panel may have fewer.
    pub nr_vectors: usize,
    pub n_panels: usize,
    /// K of a block; the last block may have fewer.
    pub kc: usize,
    /// The number of panels of a slab (nc / nr); the last slab of a chunk may have fewer.
    pub slab_panels: usize,
    /// The number of chunks along the rows and along the columns, with nearly equal numbers of
    /// tiles and panels.
    pub m_chunks: usize,
    pub n_chunks: usize,
}

/// The number of processors of the machine, at least two.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let count = || std::thread::available_parallelism().map_or(1, |n| n.get());
    (*PROCESSORS.get_or_init(count)).max(2)
}

/// The maximum number of chunks for parallelism.
fn max_chunks() -> usize {
    MAX_CHUNKS_PER_PROCESSOR * processors()
}

/// The number of chunks, rounded up to an even number so that two, four, ... threads have equal
/// work, but at most `wanted_chunks`.
pub(super) fn even_chunks(chunks: usize, wanted_chunks: usize) -> usize {
    if chunks > 1 { chunks.next_multiple_of(2).min(wanted_chunks) } else { 1 }
}

/// The number of chunks that a GEMM of that many multiplications should be divided into.
pub(super) fn wanted_chunks(multiplications: usize) -> usize {
    (multiplications / CHUNK_MULTIPLICATIONS).min(max_chunks())
}

/// The maximum K of a block (kc).
fn max_kc() -> usize {
    if avx512_enabled() { MAX_KC_AVX512 } else { MAX_KC_AVX2 }
}

/// The number of elements of a slab (kc by nc). On AVX2 a slab takes half of the L2 cache.
fn slab_elements() -> usize {
    match avx512_enabled() {
        true => SLAB_ELEMENTS_AVX512,
        false => (machine().l2_bytes / 8).clamp(1 << 14, 1 << 17),
    }
}

impl Blocking {
    /// The blocking of an `m` by `k` matrix times a `k` by `n` matrix.
    pub fn new(m: usize, n: usize, k: usize) -> Blocking {
        let wanted = n.div_ceil(LANES);
        let n_panels = wanted.div_ceil(max_nr_vectors(m));
        let nr_vectors = wanted.div_ceil(n_panels);
        let n_panels = wanted.div_ceil(nr_vectors);
        let m_tiles = m.div_ceil(max_mr(nr_vectors));
        let (mr, taller) = (m / m_tiles, m % m_tiles);
        let kc = k.div_ceil(k.div_ceil(max_kc()));
        let work = m.saturating_mul(n).saturating_mul(k);
        // Each chunk packs its own columns, so do not cut rows to get more chunks.
        let (long, wide) = (m.div_ceil(MAX_MC).min(m_tiles), n.div_ceil(MAX_CHUNK_COLUMNS));
        let wanted_chunks = wanted_chunks(work).max(wide * long);
        let n_chunks = even_chunks(wanted_chunks.div_ceil(long), n_panels);
        // Few columns and many rows: cut the rows after all.
        let m_chunks = if wanted_chunks / n_chunks > long {
            even_chunks(wanted_chunks / n_chunks, m_tiles)
        } else {
            long
        };
        let slab_panels =
            (slab_elements() / (kc * nr_vectors * LANES)).clamp(1, n_panels.div_ceil(n_chunks));
        Blocking {
            split_k: 1,
            part_k: k,
            m_tiles,
            mr,
            taller,
            nr_vectors,
            n_panels,
            kc,
            slab_panels,
            m_chunks,
            n_chunks,
        }
    }

    /// The blocking for split-K into `split_k`.
    pub fn with_split_k(m: usize, n: usize, k: usize, split_k: usize) -> Blocking {
        Blocking { split_k, ..Blocking::new(m, n, k.div_ceil(split_k)) }
    }

    /// The same blocking with a kc of at most `most`.
    pub fn with_kc(&self, most: usize) -> Blocking {
        let kc = self.part_k.div_ceil(self.part_k.div_ceil(most));
        let slab_panels =
            (slab_elements() / (kc * self.nr())).clamp(1, self.n_panels.div_ceil(self.n_chunks));
        Blocking { kc, slab_panels, ..self.clone() }
    }

    /// The same blocking with one chunk of rows per processor, if there are too few panels to give
    /// all processors equal work. Each chunk packs all columns: reading panels that another core
    /// has packed from the caches of that core would take as long.
    pub fn along_rows(&self) -> Blocking {
        let m_chunks = processors();
        if self.n_panels > max_chunks()
            || self.m_chunks * self.n_chunks == 1
            || self.m_tiles < 2 * m_chunks
        {
            return self.clone();
        }
        let m = self.tile_start(self.m_tiles);
        let m_tiles = self.m_tiles.next_multiple_of(m_chunks).min(m);
        let slab_panels = (slab_elements() / (self.kc * self.nr())).clamp(1, self.n_panels);
        let (mr, taller) = (m / m_tiles, m % m_tiles);
        Blocking { m_tiles, mr, taller, m_chunks, n_chunks: 1, slab_panels, ..self.clone() }
    }

    /// The blocking of `m` rows in one chunk, for kernels over rows.
    pub fn for_rows(m: usize, n: usize, k: usize) -> Blocking {
        let blocking = Blocking::new(m, n, k);
        let slab_panels =
            (slab_elements() / (blocking.kc * blocking.nr())).clamp(1, blocking.n_panels);
        Blocking { n_chunks: 1, slab_panels, ..blocking }.with_m(m)
    }

    /// The same blocking with all columns in one panel, if there are enough registers for it: then
    /// each element of A is read once.
    pub fn in_one_panel(&self, n: usize) -> Option<Blocking> {
        let nr_vectors = n.div_ceil(LANES);
        let blocking = Blocking { nr_vectors, n_panels: 1, slab_panels: 1, ..self.clone() };
        (max_mr(nr_vectors) >= MIN_ONE_PANEL_ROWS)
            .then(|| blocking.with_m(self.tile_start(self.m_tiles)))
    }

    /// The same columns for `m` rows, in one chunk along the rows.
    pub fn with_m(&self, m: usize) -> Blocking {
        let m_tiles = m.div_ceil(max_mr(self.nr_vectors));
        Blocking { m_tiles, mr: m / m_tiles, taller: m % m_tiles, m_chunks: 1, ..self.clone() }
    }

    /// The first row of a tile.
    pub fn tile_start(&self, tile: usize) -> usize {
        tile * self.mr + tile.min(self.taller)
    }

    /// The number of rows of a tile.
    pub fn tile_rows(&self, tile: usize) -> usize {
        self.mr + (tile < self.taller) as usize
    }

    /// The columns of some panels, of `n` columns in all.
    pub fn columns(&self, panels: &Range<usize>, n: usize) -> Range<usize> {
        panels.start * self.nr()..(panels.end * self.nr()).min(n)
    }

    /// The rows of some tiles.
    pub fn rows(&self, tiles: &Range<usize>) -> Range<usize> {
        self.tile_start(tiles.start)..self.tile_start(tiles.end)
    }

    /// The number of columns of a packed panel: the panel's columns, padded to whole vectors.
    pub fn padded_columns(&self, panel: usize, n: usize) -> usize {
        self.columns(&(panel..panel + 1), n).len().next_multiple_of(LANES)
    }

    /// The number of columns of each panel except the last (nr).
    pub fn nr(&self) -> usize {
        self.nr_vectors * LANES
    }

    /// The number of row tiles that use one panel one after another, before they use the next
    /// panel. On AVX2, the part of A of these tiles takes a quarter of the L2 cache, since most of a
    /// panel of 16 columns stays in the L1 cache; panels of AVX-512 do not stay there.
    pub fn tiles_per_panel(&self) -> usize {
        if avx512_enabled() {
            return 1;
        }
        (machine().l2_bytes / (16 * self.kc * self.tile_rows(0))).max(1)
    }

    /// The maximum number of row tiles of a chunk.
    pub fn max_chunk_tiles(&self) -> usize {
        self.m_tiles.div_ceil(self.m_chunks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_and_panels_cover_all_rows_and_columns_and_fit_the_registers() {
        for m in (1..40).chain([100, 128, 1000, 1024, 5000]) {
            for n in (1..150).chain([1000, 1024, 3136, 50_000]) {
                for k in [1, 300, 5000] {
                    let blocking = Blocking::new(m, n, k);
                    assert_eq!(blocking.tile_start(blocking.m_tiles), m, "{blocking:?}");
                    assert!(
                        blocking.n_panels * blocking.nr() >= n
                            && (blocking.n_panels - 1) * blocking.nr() < n
                    );
                    let rows = blocking.tile_rows(0);
                    assert!(rows <= max_mr(blocking.nr_vectors), "{m} {n} {blocking:?}");
                    assert!(blocking.kc >= 1 && blocking.kc <= k);
                    assert!((1..=blocking.m_tiles).contains(&blocking.m_chunks));
                    assert!((1..=blocking.n_panels).contains(&blocking.n_chunks));
                    let rows = Blocking::for_rows(m, n, k);
                    let fewer = rows.with_m(m.div_ceil(3));
                    let chunks = |blocking: &Blocking| (blocking.m_chunks, blocking.n_chunks);
                    assert_eq!([chunks(&rows), chunks(&fewer)], [(1, 1); 2]);
                    let along = blocking.along_rows();
                    assert_eq!(along.tile_start(along.m_tiles), m, "{along:?}");
                    assert!((1..=along.m_tiles).contains(&along.m_chunks), "{along:?}");
                    assert!(along.tile_rows(0) <= blocking.tile_rows(0), "{along:?}");
                    assert_eq!(fewer.tile_start(fewer.m_tiles), m.div_ceil(3), "{fewer:?}");
                    assert!(fewer.tile_rows(0) <= max_mr(fewer.nr_vectors), "{fewer:?}");
                }
            }
        }
    }
}
