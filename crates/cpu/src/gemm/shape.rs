//! The blocking of a GEMM: tiles that fit the registers, blocks that fit the caches, and chunks,
//! the tasks of the threads. The blocking follows from sizes, the number of chunks also from the
//! number of processors. No blocking changes a result.

use crate::jit::tile::LANES;
use girih_sync::OnceLock;

/// Multiplications that a chunk should have: about ten microseconds.
const CHUNK: usize = 1 << 20;
/// The most chunks per processor that a GEMM is divided into for parallelism: each chunk packs its
/// columns, and reads all of A for each slab.
const CHUNKS: usize = 4;
/// kc: the most K of a block. It is small enough that panels and a tile's part of A stay in the L2
/// cache, and large enough that most results are written once.
const BLOCK: usize = 2048;
/// Elements of a slab, which stays in the L2 cache while all row tiles use it.
const SLAB: usize = 1 << 17;
/// The most vectors of a panel that has all columns: wider panels leave registers for so few rows
/// that B is read too often.
const ONE_PANEL: usize = 4;
/// The most rows of a chunk (mc).
const ROWS: usize = 1024;
/// The most columns of a chunk (nc).
const COLUMNS: usize = 1024;

/// The blocking of a GEMM.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// Split-K: the number of parts of K that are accumulated independently, and the K of each
    /// part; the last part may have fewer. The other fields describe one part.
    pub parts: usize,
    pub depth: usize,
    /// Row tiles: the first `taller` tiles have `rows + 1` rows, the others `rows`.
    pub tiles: usize,
    pub rows: usize,
    pub taller: usize,
    /// Vectors of a panel; the last panel may have fewer.
    pub vectors: usize,
    pub panels: usize,
    /// K of a block (kc); the last block may have fewer.
    pub block: usize,
    /// Panels of a slab; the last slab of a chunk may have fewer.
    pub slab: usize,
    /// Chunks along the rows and along the columns, with nearly equal numbers of tiles and panels.
    pub down: usize,
    pub across: usize,
}

/// The number of processors of the machine, at least two.
fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let count = || std::thread::available_parallelism().map_or(1, |n| n.get());
    (*PROCESSORS.get_or_init(count)).max(2)
}

/// The most chunks that parallelism asks for.
fn most_chunks() -> usize {
    CHUNKS * processors()
}

/// The number of chunks for so many pieces, made even so that two, four, ... threads have equal
/// work.
fn even(chunks: usize, pieces: usize) -> usize {
    if chunks > 1 { chunks.next_multiple_of(2).min(pieces) } else { 1 }
}

/// The most rows (mr) of a tile of so many vectors.
fn most_rows(vectors: usize) -> usize {
    [16, 14, 9, 6, 5, 4, 3, 2][vectors.clamp(1, 8) - 1]
}

/// The most vectors (nr / 16) of a panel for tiles of so many rows.
fn most_vectors(rows: usize) -> usize {
    match rows {
        1 | 2 => 8,
        3 => 7,
        4 => 6,
        5 => 5,
        6 => 4,
        7..=9 | 15 | 16 => 3,
        _ => 2,
    }
}

impl Cut {
    /// The blocking of an `m` by `k` matrix times a `k` by `n` matrix.
    pub fn new(m: usize, n: usize, k: usize) -> Cut {
        let wanted = n.div_ceil(LANES);
        let panels = wanted.div_ceil(most_vectors(m));
        let vectors = wanted.div_ceil(panels);
        let panels = wanted.div_ceil(vectors);
        let tiles = m.div_ceil(most_rows(vectors));
        let (rows, taller) = (m / tiles, m % tiles);
        let block = k.div_ceil(k.div_ceil(BLOCK));
        let work = m.saturating_mul(n).saturating_mul(k);
        // Each chunk packs its own columns, so do not cut rows to get more chunks.
        let (long, wide) = (m.div_ceil(ROWS).min(tiles), n.div_ceil(COLUMNS));
        let pieces = (work / CHUNK).min(most_chunks()).max(wide * long);
        let across = even(pieces.div_ceil(long), panels);
        // Few columns and many rows: cut the rows after all.
        let down = if pieces / across > long { even(pieces / across, tiles) } else { long };
        let slab = (SLAB / (block * vectors * LANES)).clamp(1, panels.div_ceil(across));
        Cut { parts: 1, depth: k, tiles, rows, taller, vectors, panels, block, slab, down, across }
    }

    /// The blocking for split-K into `parts`.
    pub fn in_parts(m: usize, n: usize, k: usize, parts: usize) -> Cut {
        Cut { parts, ..Cut::new(m, n, k.div_ceil(parts)) }
    }

    /// The same blocking with a kc of at most `most`.
    pub fn with_block(&self, most: usize) -> Cut {
        let block = self.depth.div_ceil(self.depth.div_ceil(most));
        let slab = (SLAB / (block * self.width())).clamp(1, self.panels.div_ceil(self.across));
        Cut { block, slab, ..self.clone() }
    }

    /// The same blocking with one chunk of rows per processor, if there are too few panels to give
    /// all processors equal work. Each chunk packs all columns: reading the panels that another
    /// core packed from the caches of that core takes as long.
    pub fn along_rows(&self) -> Cut {
        let down = processors();
        if self.panels > most_chunks() || self.down * self.across == 1 || self.tiles < 2 * down {
            return self.clone();
        }
        let m = self.row(self.tiles);
        let tiles = self.tiles.next_multiple_of(down).min(m);
        let slab = (SLAB / (self.block * self.width())).clamp(1, self.panels);
        let (rows, taller) = (m / tiles, m % tiles);
        Cut { tiles, rows, taller, down, across: 1, slab, ..self.clone() }
    }

    /// The blocking of `m` rows in one chunk, for kernels over rows.
    pub fn of_rows(m: usize, n: usize, k: usize) -> Cut {
        let cut = Cut::new(m, n, k);
        let slab = (SLAB / (cut.block * cut.width())).clamp(1, cut.panels);
        Cut { across: 1, slab, ..cut }.with_rows(m)
    }

    /// The same blocking with all columns in one panel, if the registers suffice for it: then each
    /// element of A is read once.
    pub fn in_one_panel(&self, n: usize) -> Option<Cut> {
        let vectors = n.div_ceil(LANES);
        let cut = Cut { vectors, panels: 1, slab: 1, ..self.clone() };
        (vectors <= ONE_PANEL).then(|| cut.with_rows(self.row(self.tiles)))
    }

    /// The same columns for `m` rows, in one chunk along the rows.
    pub fn with_rows(&self, m: usize) -> Cut {
        let tiles = m.div_ceil(most_rows(self.vectors));
        Cut { tiles, rows: m / tiles, taller: m % tiles, down: 1, ..self.clone() }
    }

    /// The first row of a tile.
    pub fn row(&self, tile: usize) -> usize {
        tile * self.rows + tile.min(self.taller)
    }

    /// Rows of a tile.
    pub fn rows_of(&self, tile: usize) -> usize {
        self.rows + (tile < self.taller) as usize
    }

    /// Columns of a panel except the last (nr).
    pub fn width(&self) -> usize {
        self.vectors * LANES
    }

    /// The most row tiles of a chunk.
    pub fn chunk_tiles(&self) -> usize {
        self.tiles.div_ceil(self.down)
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
                    let cut = Cut::new(m, n, k);
                    assert_eq!(cut.row(cut.tiles), m, "{cut:?}");
                    assert!(cut.panels * cut.width() >= n && (cut.panels - 1) * cut.width() < n);
                    let rows = cut.rows_of(0);
                    assert!(rows * cut.vectors + cut.vectors < 32, "{m} {n} {cut:?}");
                    assert!(cut.block >= 1 && cut.block <= k);
                    assert!((1..=cut.tiles).contains(&cut.down));
                    assert!((1..=cut.panels).contains(&cut.across));
                    let rows = Cut::of_rows(m, n, k);
                    let fewer = rows.with_rows(m.div_ceil(3));
                    let chunks = |cut: &Cut| (cut.down, cut.across);
                    assert_eq!([chunks(&rows), chunks(&fewer)], [(1, 1); 2]);
                    let along = cut.along_rows();
                    assert_eq!(along.row(along.tiles), m, "{along:?}");
                    assert!((1..=along.tiles).contains(&along.down), "{along:?}");
                    assert!(along.rows_of(0) <= cut.rows_of(0), "{along:?}");
                    assert_eq!(fewer.row(fewer.tiles), m.div_ceil(3), "{fewer:?}");
                    assert!(fewer.rows_of(0) * fewer.vectors + fewer.vectors < 32);
                }
            }
        }
    }
}
