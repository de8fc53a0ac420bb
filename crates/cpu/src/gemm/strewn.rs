//! Indirect convolution (without im2col): all tiles read the windows of the image in memory, vector
//! by vector through an indirection. It is used if A has so few rows that packing the windows would
//! take longer.

use super::chunk::Block;
use super::shape::Cut;
use super::{Gemm, PACKING};
use crate::dims::Dims;
use crate::jit::strewn::{AHEAD, Strewn, VECTORS};
use crate::jit::tile::{Function, LANES, Stored, Tile, TileCall};
use std::ops::Range;

/// The cost of loading a vector from two addresses instead of one, in multiplications.
const SPLIT: usize = 2;

/// The micro-kernels of panels with the same number of vectors and the same split vectors. `split`
/// has bit `v` set if vector `v` is split, that is, its lanes are in two runs.
struct Kind {
    vectors: usize,
    split: u8,
    /// For tall and for other tiles.
    functions: [Option<Function<TileCall>>; 2],
}

/// A B that is read through an indirection.
pub(super) struct Columns {
    /// Bytes from a column's first element to its element at each index of K; the last one is
    /// repeated for the prefetch beyond the end.
    rows: Vec<isize>,
    kinds: Vec<Kind>,
}

/// The addresses of a panel's vectors in one entry of the batch.
pub(super) struct Places {
    panel: usize,
    kind: usize,
    strewn: Strewn,
}

/// The number of vectors of some columns that are in contiguous runs of `run` columns, and a mask
/// of the vectors that begin in one run and end in the next. `None` if a vector spans three runs.
fn split(columns: &Range<usize>, run: usize) -> Option<(usize, u8)> {
    let mut bits = 0;
    for (v, first) in columns.clone().step_by(LANES).enumerate() {
        let beyond = first % run + LANES.min(columns.end - first);
        (beyond <= 2 * run).then_some(())?;
        bits |= ((beyond > run) as u8) << v;
    }
    Some((columns.len().div_ceil(LANES), bits))
}

/// True if the columns are contiguous runs, at ascending addresses that do not overlap.
fn ascending(dims: &Dims) -> bool {
    let (run, step) = (dims.inner_extent() as isize, dims.inner_step());
    step == 1 && dims.outer_steps().all(|step| step >= run)
}

impl Columns {
    /// `None` if packing the columns is faster, or code cannot be generated.
    pub fn new(gemm: &Gemm) -> Option<Columns> {
        let (rhs, cut) = (&gemm.rhs, &gemm.cut);
        let [_, prologue] = &gemm.prologues;
        let packed = gemm.direct.is_none() && gemm.apart.is_none() && prologue.is_none();
        let fits = rhs.stored == Stored::F32 && cut.vectors <= VECTORS;
        if !packed || !fits || rhs.shared.step().is_some() || !ascending(&rhs.outer) {
            return None;
        }
        let run = rhs.outer.inner_extent();
        // The splits of panels repeat with a period of at most `run` panels.
        let mut kinds: Vec<(usize, u8)> = vec![];
        let (mut vectors, mut splits) = (0, 0);
        for panel in (0..cut.panels.min(run)).chain([cut.panels - 1]) {
            let kind = split(&gemm.columns_of(&(panel..panel + 1)), run)?;
            (vectors, splits) = (vectors + kind.0, splits + kind.1.count_ones() as usize);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if SPLIT * splits * cut.chunk_tiles() > PACKING * vectors {
            return None;
        }
        let mut rows = vec![0; gemm.k];
        rhs.shared.fill(0, &mut rows);
        rows.resize(gemm.k + AHEAD, rows[gemm.k - 1]);
        rows.iter_mut().for_each(|row| *row *= rhs.stored.size() as isize);
        let kinds = kinds.into_iter().map(|kind| Kind::new(cut, kind)).collect::<Option<_>>()?;
        Some(Columns { rows, kinds })
    }

    /// Runs the micro-kernel of a tile of a panel.
    ///
    /// # Safety
    /// As [`Gemm::slab`]; the call is complete except for the address of the columns.
    pub unsafe fn tile(
        &self,
        gemm: &Gemm,
        block: &Block<'_>,
        panel: usize,
        tall: bool,
        mut call: TileCall,
    ) {
        let places = block.places.take().filter(|places| places.panel == panel);
        let places = places.unwrap_or_else(|| self.places(gemm, block.start, panel));
        let rows = places.strewn.rows.wrapping_add(block.shared.start);
        let strewn = Strewn { rows, ..places.strewn };
        call.b = (&raw const strewn).cast();
        let function = self.kinds[places.kind].functions[tall as usize].as_ref();
        // SAFETY: the vectors are the panel's columns; the caller's promise.
        unsafe { function.expect("every size has its function").call(&call) };
        block.places.set(Some(places));
    }

    /// The addresses of a panel's vectors in the entry of the batch that begins at `start`.
    fn places(&self, gemm: &Gemm, start: *const u8, panel: usize) -> Places {
        let (outer, columns) = (&gemm.rhs.outer, gemm.columns_of(&(panel..panel + 1)));
        let of_panel = split(&columns, outer.inner_extent());
        let kind = self.kinds.iter().position(|k| Some((k.vectors, k.split)) == of_panel);
        let nowhere = [std::ptr::null(); VECTORS];
        let mut strewn = Strewn {
            rows: self.rows.as_ptr(),
            others: nowhere,
            first: nowhere,
            lanes: [0; VECTORS],
        };
        for (v, first) in columns.clone().step_by(LANES).enumerate() {
            outer.runs(first, LANES.min(columns.end - first), |lane, element, _| {
                let at = start.cast::<f32>().wrapping_offset(element - lane as isize).cast();
                if lane > 0 {
                    (strewn.first[v], strewn.lanes[v]) = (strewn.others[v], lane);
                }
                strewn.others[v] = at;
            });
        }
        let kind = kind.expect("there are functions for all panels");
        Places { panel, kind, strewn }
    }

    /// All micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<TileCall>> {
        self.kinds.iter().flat_map(|kind| kind.functions.iter().flatten())
    }
}

impl Kind {
    fn new(cut: &Cut, (vectors, split): (usize, u8)) -> Option<Kind> {
        let mut functions = [None, None];
        for (rows, function) in [cut.rows, cut.rows + 1].into_iter().zip(&mut functions) {
            let needed = rows == cut.rows || cut.taller > 0;
            let tile = Tile {
                rows,
                vectors,
                stored: Stored::F32,
                prefetch: false,
                keep: false,
                apart: false,
                strewn: Some(split),
            };
            if needed {
                *function = Some(tile.compile()?);
            }
        }
        Some(Kind { vectors, split, functions })
    }
}
