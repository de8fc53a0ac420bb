//! Fused operands (prologues): A or B is computed strip by strip as it is packed, in memory of the
//! thread.

use super::operand::{Side, along};
use crate::dims::Dims;
use crate::jit;
use girih_kernel::exec::{Lines, Points};
use girih_kernel::{Bindings, Kernel, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// The most elements of a strip of B, unless a single row of a chunk has more. The strip stays in
/// the L2 cache until it is packed.
pub(super) const STRIP: usize = 1 << 17;

/// The most elements of a strip of A, unless one tile of rows has more.
pub(super) const LEFT_STRIP: usize = 1 << 14;

/// A prologue and the order of the elements that it computes.
pub(super) struct Made {
    points: Points,
    /// The layout that the operand would have in memory; points of the map are numbered like it.
    place: Side,
    /// Lines of a strip run along K, not along rows or columns.
    along_shared: bool,
    /// Points between consecutive lines.
    step: usize,
    /// Rows or columns of the operand, and K.
    sizes: [usize; 2],
    /// Elements between consecutive lines of a strip.
    pitch: usize,
}

/// A range of rows or columns of an operand, and a range of K.
pub(super) struct Strip {
    pub batch: usize,
    pub outer: Range<usize>,
    pub shared: Range<usize>,
}

impl Made {
    /// The prologue of the operand at `place`, whose `sizes` are rows or columns, and K. `None`
    /// unless one of the maps computes the operand in lines. The maps are those of a
    /// [`Rows::product`].
    ///
    /// [`Rows::product`]: girih_kernel::Rows::product
    pub fn new(maps: &[Kernel], place: &Side, sizes: [usize; 2]) -> Option<Made> {
        let makes = |map: &&Kernel| map.stores[0].access.buffer.0 as usize == place.buffer;
        let map = maps.iter().find(makes)?;
        let (outer, shared) = (place.outer.step()?, place.shared.step()?);
        let along_shared = shared == 1 && (outer != 1 || sizes[1] >= sizes[0]);
        let (line, step) = if along_shared { (shared, outer) } else { (outer, shared) };
        let step = usize::try_from(step).ok().filter(|_| line == 1)?;
        let points = Points::compiled(map, &jit::Generator);
        Some(Made { points, place: place.clone(), along_shared, step, sizes, pitch: 0 })
    }

    /// The layout that the operand would have in memory.
    pub fn place(&self) -> &Side {
        &self.place
    }

    /// True if lines of strips run along K.
    pub fn along_shared(&self) -> bool {
        self.along_shared
    }

    /// Sets the elements between lines of a strip. Returns the layout of a strip as an operand that
    /// begins at the result of [`Made::fill`].
    pub fn in_strips(&mut self, pitch: usize) -> Side {
        self.pitch = pitch;
        let of = |size: usize, step: usize| Dims::new([(size, step as isize)].into_iter());
        let steps = if self.along_shared { [pitch, 1] } else { [1, pitch] };
        let [outer, shared] = [0, 1].map(|i| of(self.sizes[i], steps[i]));
        let batch = SmallVec::from_elem(0, self.place.batch.len());
        Side { outer, shared, batch, offset: 0, ..self.place.clone() }
    }

    /// Bytes of a strip of `outer` rows or columns and `shared` indices of K.
    pub fn bytes(&self, outer: usize, shared: usize) -> usize {
        let lines = if self.along_shared { outer } else { shared };
        lines * self.pitch * self.place.stored.size()
    }

    /// Computes a strip. Returns the address at which an operand of this layout would begin.
    ///
    /// # Safety
    /// The bindings are those of the GEMM; the strip lies in the operand, whose batch has these
    /// extents; `to` has room for the strip.
    pub unsafe fn fill(
        &self,
        strip: &Strip,
        extents: &[usize],
        to: *mut u8,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> *const u8 {
        let (place, size) = (&self.place, self.place.stored.size());
        let (lines, line) = match self.along_shared {
            true => (&strip.outer, &strip.shared),
            false => (&strip.shared, &strip.outer),
        };
        let first = place.offset
            + along(extents, &place.batch, strip.batch)
            + place.outer.at(strip.outer.start)
            + place.shared.at(strip.shared.start);
        let all = Lines {
            first: first as usize,
            points: line.len(),
            lines: lines.len(),
            step: self.step,
            to,
            pitch: self.pitch * size,
        };
        // SAFETY: the caller's promise.
        let done = unsafe { self.points.run_lines(&all, (place.buffer, size), bindings, scratch) };
        debug_assert!(done.is_ok(), "maps that may fail compute no operand");
        to.wrapping_sub((lines.start * self.pitch + line.start) * size)
    }

    /// The machine code of the prologue.
    pub fn code(&self) -> Vec<Vec<u8>> {
        self.points.machine_code()
    }
}
