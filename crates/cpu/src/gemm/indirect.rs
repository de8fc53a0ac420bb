//! Indirect convolution (without im2col): all tiles read the windows of the image in memory, vector
//! by vector through an indirection. It is used if A has so few rows that packing the windows would
//! take longer.

use super::blocking::Blocking;
use super::chunk::KBlock;
use super::microkernels::{
    Function, INDIRECT_PREFETCH_ROWS, Indirection, LANES, MAX_INDIRECT_VECTORS, Microkernel,
    MicrokernelCall,
};
use super::operand::Matrix;
use crate::dims::Dims;
use std::ops::Range;

/// The kinds of panels of a B that consists of windows of an image.
pub(super) struct IndirectPanels {
    /// The number of columns, and the split vectors as in [`PanelKind::split`].
    kinds: Vec<(usize, u8)>,
    /// The number of vectors of the panels of one period, and the number of these vectors that are
    /// split.
    pub vectors: usize,
    pub split_vectors: usize,
}

/// The micro-kernels of panels with the same number of columns and the same split vectors. `split`
/// has bit `v` set if vector `v` is split, that is, if its lanes are in two runs.
struct PanelKind {
    columns: usize,
    split: u8,
    /// The micro-kernels for tall tiles and for other tiles.
    functions: [Option<Function<MicrokernelCall>>; 2],
}

/// A B that is read through an indirection.
pub(super) struct IndirectB {
    /// The dimensions of the columns.
    outer: Dims,
    /// The number of bytes from a column's first element to its element at each index of K. The
    /// last number is repeated for the prefetch beyond the end.
    offsets: Vec<isize>,
    kinds: Vec<PanelKind>,
}

/// The addresses of a panel's vectors in one entry of the batch.
pub(super) struct PanelAddresses {
    first_column: usize,
    kind: usize,
    indirect: Indirection,
}

/// The number of columns in `columns`, which are in contiguous runs of `run` columns, and a mask of
/// the vectors that begin in one run and end in the next run. `None` if a vector spans three runs.
fn split(columns: &Range<usize>, run: usize) -> Option<(usize, u8)> {
    let mut bits = 0;
    for (v, first) in columns.clone().step_by(LANES).enumerate() {
        let beyond = first % run + LANES.min(columns.end - first);
        (beyond <= 2 * run).then_some(())?;
        bits |= ((beyond > run) as u8) << v;
    }
    Some((columns.len(), bits))
}

/// Whether the columns are contiguous runs, at ascending addresses that do not overlap.
fn ascending(dims: &Dims) -> bool {
    let (run, step) = (dims.inner_extent() as isize, dims.inner_stride());
    step == 1 && dims.outer_strides().all(|step| step >= run)
}

impl IndirectPanels {
    /// The panels of `n` columns with these dimensions. `None` if a vector spans three runs of
    /// contiguous columns, or the runs do not ascend.
    pub fn new(outer: &Dims, n: usize, blocking: &Blocking) -> Option<IndirectPanels> {
        if !ascending(outer) {
            return None;
        }
        let run = outer.inner_extent();
        let mut panels = IndirectPanels { kinds: vec![], vectors: 0, split_vectors: 0 };
        // The splits of panels repeat with a period of at most `run` panels.
        for panel in (0..blocking.n_panels.min(run)).chain([blocking.n_panels - 1]) {
            let kind = split(&blocking.columns(&(panel..panel + 1), n), run)?;
            panels.vectors += kind.0.div_ceil(LANES);
            panels.split_vectors += kind.1.count_ones() as usize;
            if !panels.kinds.contains(&kind) {
                panels.kinds.push(kind);
            }
        }
        Some(panels)
    }
}

impl IndirectB {
    /// The indirection for the windows `b` with K `k`. `None` if code cannot be generated, or if
    /// there are too few registers for the tiles of the blocking.
    pub fn new(
        b: &Matrix,
        k: usize,
        blocking: &Blocking,
        panels: IndirectPanels,
    ) -> Option<IndirectB> {
        let mut offsets = vec![0; k];
        b.k_dims.fill(0, &mut offsets);
        offsets.resize(k + INDIRECT_PREFETCH_ROWS, offsets[k - 1]);
        offsets.iter_mut().for_each(|offset| *offset *= b.stored.size() as isize);
        let kinds = panels.kinds.into_iter();
        let kinds = kinds.map(|kind| PanelKind::new(blocking, kind)).collect::<Option<_>>()?;
        Some(IndirectB { outer: b.outer.clone(), offsets, kinds })
    }

    /// Runs the micro-kernel of a tile of the panel of these columns. B begins at `start`.
    ///
    /// # Safety
    /// As [`BlockedGemm::run_slab`](super::plan::BlockedGemm::run_slab); the call is complete
    /// except for the address of the columns.
    pub unsafe fn run_tile(
        &self,
        block: &KBlock<'_>,
        start: *const u8,
        columns: Range<usize>,
        tall: bool,
        mut call: MicrokernelCall,
    ) {
        let of_panel = |addresses: &PanelAddresses| addresses.first_column == columns.start;
        let addresses = block.addresses.take().filter(of_panel);
        let addresses = addresses.unwrap_or_else(|| self.addresses(start, &columns));
        let offsets = addresses.indirect.offsets.wrapping_add(block.k_range.start);
        let indirect = Indirection { offsets, ..addresses.indirect };
        call.b = (&raw const indirect).cast();
        let function = self.kinds[addresses.kind].functions[tall as usize].as_ref();
        // SAFETY: the vectors are the panel's columns; the caller's promise.
        unsafe { function.expect("every size has its function").call(&call) };
        block.addresses.set(Some(addresses));
    }

    /// The addresses of the vectors of a panel in the entry of the batch that begins at `start`.
    fn addresses(&self, start: *const u8, columns: &Range<usize>) -> PanelAddresses {
        let of_panel = split(columns, self.outer.inner_extent());
        let kind = self.kinds.iter().position(|k| Some((k.columns, k.split)) == of_panel);
        let none = [std::ptr::null(); MAX_INDIRECT_VECTORS];
        let mut indirect = Indirection {
            offsets: self.offsets.as_ptr(),
            rest: none,
            first: none,
            first_lanes: [0; MAX_INDIRECT_VECTORS],
        };
        for (v, first) in columns.clone().step_by(LANES).enumerate() {
            self.outer.runs(first, LANES.min(columns.end - first), |lane, element, _| {
                let at = start.cast::<f32>().wrapping_offset(element - lane as isize).cast();
                if lane > 0 {
                    (indirect.first[v], indirect.first_lanes[v]) = (indirect.rest[v], lane);
                }
                indirect.rest[v] = at;
            });
        }
        let kind = kind.expect("there are functions for all panels");
        PanelAddresses { first_column: columns.start, kind, indirect }
    }

    /// All micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<MicrokernelCall>> {
        self.kinds.iter().flat_map(|kind| kind.functions.iter().flatten())
    }
}

impl PanelKind {
    fn new(blocking: &Blocking, (columns, split): (usize, u8)) -> Option<PanelKind> {
        let mut functions = [None, None];
        for (rows, function) in [blocking.mr, blocking.mr + 1].into_iter().zip(&mut functions) {
            let needed = rows == blocking.mr || blocking.taller > 0;
            let indirect = Some(split);
            let kernel = Microkernel { indirect, ..Microkernel::packed(rows, columns) };
            if needed && !kernel.fits() {
                return None;
            }
            if needed {
                *function = Some(kernel.compile()?);
            }
        }
        Some(PanelKind { columns, split, functions })
    }
}
