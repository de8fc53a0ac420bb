//! Indirect convolution (without im2col): all tiles read the windows of the image in memory, vector
//! by vector through an indirection. It is used if A has so few rows that packing the windows would
//! take longer.

use super::blocking::Blocking;
use super::chunk::KBlock;
use super::microkernels::{
    Function, INDIRECT_PREFETCH_ROWS, Indirection, LANES, MAX_INDIRECT_VECTORS, Microkernel,
    MicrokernelCall, Stored, max_indirect_vectors,
};
use super::{Gemm, PACK_COST};
use crate::dims::Dims;
use std::ops::Range;

/// The cost of loading a vector from two addresses instead of one, in multiplications.
const SPLIT_COST: usize = 2;

/// The micro-kernels of panels with the same number of columns and the same split vectors. `split`
/// has bit `v` set if vector `v` is split, that is, its lanes are in two runs.
struct PanelKind {
    columns: usize,
    split: u8,
    /// For tall and for other tiles.
    functions: [Option<Function<MicrokernelCall>>; 2],
}

/// A B that is read through an indirection.
pub(super) struct IndirectB {
    /// Bytes from a column's first element to its element at each index of K; the last one is
    /// repeated for the prefetch beyond the end.
    offsets: Vec<isize>,
    kinds: Vec<PanelKind>,
}

/// The addresses of a panel's vectors in one entry of the batch.
pub(super) struct PanelAddresses {
    panel: usize,
    kind: usize,
    indirect: Indirection,
}

/// The number of some columns that are in contiguous runs of `run` columns, and a mask of the vectors
/// that begin in one run and end in the next. `None` if a vector spans three runs.
fn split(columns: &Range<usize>, run: usize) -> Option<(usize, u8)> {
    let mut bits = 0;
    for (v, first) in columns.clone().step_by(LANES).enumerate() {
        let beyond = first % run + LANES.min(columns.end - first);
        (beyond <= 2 * run).then_some(())?;
        bits |= ((beyond > run) as u8) << v;
    }
    Some((columns.len(), bits))
}

/// True if the columns are contiguous runs, at ascending addresses that do not overlap.
fn ascending(dims: &Dims) -> bool {
    let (run, step) = (dims.inner_extent() as isize, dims.inner_stride());
    step == 1 && dims.outer_strides().all(|step| step >= run)
}

impl IndirectB {
    /// `None` if packing the columns is faster, or code cannot be generated.
    pub fn new(gemm: &Gemm) -> Option<IndirectB> {
        let (rhs, blocking) = (&gemm.rhs, &gemm.blocking);
        let [_, prologue] = &gemm.prologues;
        let packed =
            gemm.in_place_b_kernels.is_none() && gemm.a_in_place.is_none() && prologue.is_none();
        let fits = rhs.stored == Stored::F32 && blocking.nr_vectors <= max_indirect_vectors();
        if !packed || !fits || rhs.k_dims.stride().is_some() || !ascending(&rhs.outer) {
            return None;
        }
        let run = rhs.outer.inner_extent();
        // The splits of panels repeat with a period of at most `run` panels.
        let mut kinds: Vec<(usize, u8)> = vec![];
        let (mut vectors, mut splits) = (0, 0);
        for panel in (0..blocking.n_panels.min(run)).chain([blocking.n_panels - 1]) {
            let kind = split(&gemm.panel_columns(&(panel..panel + 1)), run)?;
            (vectors, splits) =
                (vectors + kind.0.div_ceil(LANES), splits + kind.1.count_ones() as usize);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if SPLIT_COST * splits * blocking.max_chunk_tiles() > PACK_COST * vectors {
            return None;
        }
        let mut offsets = vec![0; gemm.k];
        rhs.k_dims.fill(0, &mut offsets);
        offsets.resize(gemm.k + INDIRECT_PREFETCH_ROWS, offsets[gemm.k - 1]);
        offsets.iter_mut().for_each(|offset| *offset *= rhs.stored.size() as isize);
        let kinds =
            kinds.into_iter().map(|kind| PanelKind::new(blocking, kind)).collect::<Option<_>>()?;
        Some(IndirectB { offsets, kinds })
    }

    /// Runs the micro-kernel of a tile of a panel.
    ///
    /// # Safety
    /// As [`Gemm::run_slab`]; the call is complete except for the address of the columns.
    pub unsafe fn tile(
        &self,
        gemm: &Gemm,
        block: &KBlock<'_>,
        panel: usize,
        tall: bool,
        mut call: MicrokernelCall,
    ) {
        let addresses = block.addresses.take().filter(|addresses| addresses.panel == panel);
        let addresses = addresses.unwrap_or_else(|| self.addresses(gemm, block.b_start, panel));
        let offsets = addresses.indirect.offsets.wrapping_add(block.k_range.start);
        let indirect = Indirection { offsets, ..addresses.indirect };
        call.b = (&raw const indirect).cast();
        let function = self.kinds[addresses.kind].functions[tall as usize].as_ref();
        // SAFETY: the vectors are the panel's columns; the caller's promise.
        unsafe { function.expect("every size has its function").call(&call) };
        block.addresses.set(Some(addresses));
    }

    /// The addresses of a panel's vectors in the entry of the batch that begins at `start`.
    fn addresses(&self, gemm: &Gemm, start: *const u8, panel: usize) -> PanelAddresses {
        let (outer, columns) = (&gemm.rhs.outer, gemm.panel_columns(&(panel..panel + 1)));
        let of_panel = split(&columns, outer.inner_extent());
        let kind = self.kinds.iter().position(|k| Some((k.columns, k.split)) == of_panel);
        let none = [std::ptr::null(); MAX_INDIRECT_VECTORS];
        let mut indirect = Indirection {
            offsets: self.offsets.as_ptr(),
            rest: none,
            first: none,
            first_lanes: [0; MAX_INDIRECT_VECTORS],
        };
        for (v, first) in columns.clone().step_by(LANES).enumerate() {
            outer.runs(first, LANES.min(columns.end - first), |lane, element, _| {
                let at = start.cast::<f32>().wrapping_offset(element - lane as isize).cast();
                if lane > 0 {
                    (indirect.first[v], indirect.first_lanes[v]) = (indirect.rest[v], lane);
                }
                indirect.rest[v] = at;
            });
        }
        let kind = kind.expect("there are functions for all panels");
        PanelAddresses { panel, kind, indirect }
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
            let kernel = Microkernel {
                mr: rows,
                vectors: columns.div_ceil(LANES),
                tail: (columns - 1) % LANES + 1,
                stored: Stored::F32,
                b_in_place: false,
                packs_b: false,
                a_in_place: false,
                indirect: Some(split),
            };
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
