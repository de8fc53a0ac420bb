//! Right operands that all tiles read where they lie, vector by vector: windows of an image, where so
//! few rows are multiplied with them that packing them would take longer.

use super::chunk::Block;
use super::shape::Cut;
use super::{PACKING, Product};
use crate::dims::Dims;
use crate::jit::strewn::{AHEAD, Strewn, VECTORS};
use crate::jit::tile::{Function, LANES, Stored, Tile, TileCall};
use std::ops::Range;

/// Multiplications that take as long as loading a vector from two places instead of one.
const SPLIT: usize = 2;

/// The functions of panels that differ neither in vectors nor in where these are split.
struct Kind {
    vectors: usize,
    split: u8,
    /// For tall and for other tiles.
    functions: [Option<Function<TileCall>>; 2],
}

/// A right operand that is read so.
pub(super) struct Columns {
    /// Bytes from a column's first element to that of each shared index, and the last for some more.
    rows: Vec<isize>,
    kinds: Vec<Kind>,
}

/// Where a panel's vectors lie in one entry of the batch.
pub(super) struct Places {
    panel: usize,
    kind: usize,
    strewn: Strewn,
}

/// The vectors of some columns that lie in runs of so many, and which of them begin in one run and
/// end in the next; none if a run is shorter than a vector.
fn split(columns: &Range<usize>, run: usize) -> Option<(usize, u8)> {
    let mut bits = 0;
    for (v, first) in columns.clone().step_by(LANES).enumerate() {
        let beyond = first % run + LANES.min(columns.end - first);
        (beyond <= 2 * run).then_some(())?;
        bits |= ((beyond > run) as u8) << v;
    }
    Some((columns.len().div_ceil(LANES), bits))
}

/// True if indices lie in runs of consecutive elements, each behind the one before.
fn ascending(dims: &Dims) -> bool {
    let (run, step) = (dims.inner_extent() as isize, dims.inner_step());
    step == 1 && dims.outer_steps().all(|step| step >= run)
}

impl Columns {
    /// `None` if the columns are better packed, or code cannot be generated.
    pub fn new(product: &Product) -> Option<Columns> {
        let (rhs, cut) = (&product.rhs, &product.cut);
        let [_, made] = &product.made;
        let packed = product.direct.is_none() && product.apart.is_none() && made.is_none();
        let fits = rhs.stored == Stored::F32 && cut.vectors <= VECTORS;
        if !packed || !fits || rhs.shared.step().is_some() || !ascending(&rhs.outer) {
            return None;
        }
        let run = rhs.outer.inner_extent();
        // Where panels are split comes again after so many.
        let mut kinds: Vec<(usize, u8)> = vec![];
        let (mut vectors, mut splits) = (0, 0);
        for panel in (0..cut.panels.min(run)).chain([cut.panels - 1]) {
            let kind = split(&product.columns_of(&(panel..panel + 1)), run)?;
            (vectors, splits) = (vectors + kind.0, splits + kind.1.count_ones() as usize);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if SPLIT * splits * cut.chunk_tiles() > PACKING * vectors {
            return None;
        }
        let mut rows = vec![0; product.k];
        rhs.shared.fill(0, &mut rows);
        rows.resize(product.k + AHEAD, rows[product.k - 1]);
        rows.iter_mut().for_each(|row| *row *= rhs.stored.size() as isize);
        let kinds = kinds.into_iter().map(|kind| Kind::new(cut, kind)).collect::<Option<_>>()?;
        Some(Columns { rows, kinds })
    }

    /// A tile of a panel.
    ///
    /// # Safety
    /// As [`Product::slab`]; the call says all but where the columns are.
    pub unsafe fn tile(
        &self,
        product: &Product,
        block: &Block<'_>,
        panel: usize,
        tall: bool,
        mut call: TileCall,
    ) {
        let places = block.places.take().filter(|places| places.panel == panel);
        let places = places.unwrap_or_else(|| self.places(product, block.start, panel));
        let rows = places.strewn.rows.wrapping_add(block.shared.start);
        let strewn = Strewn { rows, ..places.strewn };
        call.b = (&raw const strewn).cast();
        let function = self.kinds[places.kind].functions[tall as usize].as_ref();
        // SAFETY: the vectors are the panel's columns; the caller's promise.
        unsafe { function.expect("every size has its function").call(&call) };
        block.places.set(Some(places));
    }

    /// Where the vectors of a panel lie in the entry of the batch that starts there.
    fn places(&self, product: &Product, start: *const u8, panel: usize) -> Places {
        let (outer, columns) = (&product.rhs.outer, product.columns_of(&(panel..panel + 1)));
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

    /// All functions.
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
