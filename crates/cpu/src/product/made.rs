//! Operands that are computed as they are packed: strips of them, in memory of the thread's own.

use super::operand::{Side, along};
use crate::dims::Dims;
use crate::jit;
use girih_kernel::exec::{Lines, Points};
use girih_kernel::{Bindings, Kernel, Scratch};
use smallvec::SmallVec;
use std::ops::Range;

/// Elements of a strip of the right operand, at most, unless a few rows have more: it stays in the
/// second cache until it is packed.
pub(super) const STRIP: usize = 1 << 17;

/// The same of the left operand, unless the rows of a tile have more.
pub(super) const LEFT_STRIP: usize = 1 << 14;

/// What computes an operand, and how its elements follow one another.
pub(super) struct Made {
    points: Points,
    /// Where the operand would lie, were it in memory: its elements are numbered as the points.
    place: Side,
    /// Lines of a strip go along the shared dimension, not along rows or columns.
    along_shared: bool,
    /// Points from a line to the next one.
    step: usize,
    /// Rows or columns of the operand, and shared indices.
    sizes: [usize; 2],
    /// Elements from a line of a strip to the next one.
    pitch: usize,
}

/// Some rows or columns of an operand, and some of their shared indices.
pub(super) struct Strip {
    pub batch: usize,
    pub outer: Range<usize>,
    pub shared: Range<usize>,
}

impl Made {
    /// What computes the operand at that place, of so many rows or columns and shared indices, if one
    /// of the maps does, and lines of it can be computed; the maps are those of a [`Rows::product`].
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

    /// Where the operand would lie.
    pub fn place(&self) -> &Side {
        &self.place
    }

    /// True if lines of strips go along the shared dimension.
    pub fn along_shared(&self) -> bool {
        self.along_shared
    }

    /// Has strips with lines that far apart; says where elements of a strip lie, which is to begin at
    /// [`Made::fill`]'s result.
    pub fn in_strips(&mut self, pitch: usize) -> Side {
        self.pitch = pitch;
        let of = |size: usize, step: usize| Dims::new([(size, step as isize)].into_iter());
        let steps = if self.along_shared { [pitch, 1] } else { [1, pitch] };
        let [outer, shared] = [0, 1].map(|i| of(self.sizes[i], steps[i]));
        let batch = SmallVec::from_elem(0, self.place.batch.len());
        Side { outer, shared, batch, offset: 0, ..self.place.clone() }
    }

    /// Bytes of a strip of so many rows or columns and shared indices.
    pub fn bytes(&self, outer: usize, shared: usize) -> usize {
        let lines = if self.along_shared { outer } else { shared };
        lines * self.pitch * self.place.stored.size()
    }

    /// Computes a strip; says where the operand would begin if all of it lay like this.
    ///
    /// # Safety
    /// The bindings are the product's; the strip lies in the operand, whose batches have these
    /// extents, and there is room for it.
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

    /// Its machine code.
    pub fn code(&self) -> Vec<Vec<u8>> {
        self.points.machine_code()
    }
}
