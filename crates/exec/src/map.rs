//! Kernels whose dimensions are all parallel.

use super::code::{Code, Frame};
use super::lower::{Dim, Lower, Order};
use super::single_call::SingleCall;
use super::stop::Pace;
use super::{
    BLOCK, Bindings, ExecError, PrepareOptions, Ran, Scratch, StridedIterations, chunk_points,
};
use girih_kernel::{Access, Inst, Kernel};
use smallvec::{SmallVec, smallvec};

/// A prepared map.
pub(super) struct PreparedMap {
    /// One part; or whole tiles and the remainders beside them; or, for several maps, the parts of
    /// each map.
    parts: SmallVec<[MapPart; 1]>,
}

/// The parallel dimensions in the order of the kernel.
pub(super) fn parallel_order(kernel: &Kernel) -> Order {
    kernel.extents[..kernel.parallel].iter().enumerate().map(Dim::whole).collect()
}

/// The number of lines of a tile, and the maximum number of elements of a line: a tile's operands
/// stay in the L2 cache, and lines are long enough for a function call to pay.
const LINES: usize = 64;
const LINE: usize = 512;
/// The blocks of a tile that is not computed as a whole: 16 lines of 32 elements.
const BLOCK_SIDES: (usize, usize) = (16, BLOCK / 16);

/// Two dimensions to be tiled, and the length of a tile's lines, which run along the last
/// dimension.
struct Tiles {
    other: usize,
    line: usize,
}

impl Tiles {
    /// The tiles, if the kernel reads or writes across the rows: an operand has unit stride along
    /// another dimension than the last. Tiling keeps the operand's cache lines in the cache.
    fn of(kernel: &Kernel) -> Option<Tiles> {
        let last = kernel.extents.len().checked_sub(1)?;
        let accesses = || kernel.accesses.iter().chain(kernel.stores.iter().map(|s| &s.access));
        let across = |a: &Access| {
            let unit = |d: &usize| a.strides[*d].unsigned_abs() == 1 && kernel.extents[*d] >= LINES;
            let far = a.strides[last].unsigned_abs() >= BLOCK_SIDES.0;
            if far { (0..last).rev().find(unit) } else { None }
        };
        let other = accesses().find_map(across)?;
        let extent = kernel.extents[last];
        // Lines of equal length, rounded to blocks.
        let line = extent / extent.div_ceil(LINE);
        (extent >= LINES).then_some(Tiles { other, line: line - line % BLOCK_SIDES.1 })
    }

    /// The kernel of whole tiles, and the kernels of the remainders.
    fn cut(&self, kernel: &Kernel) -> (Kernel, Vec<Kernel>) {
        let (mut whole, mut rest) = (kernel.clone(), vec![]);
        let last = kernel.extents.len() - 1;
        for (dim, side) in [(last, self.line), (self.other, LINES)] {
            let at = whole.extents[dim] - whole.extents[dim] % side;
            rest.extend(split_off(&mut whole, dim, at));
        }
        (whole, rest)
    }

    /// The order of tiles. Each tile continues the previous one along the other dimension, on the
    /// same pages of the operand that is read across. `inside` is the order within a tile.
    fn order(&self, kernel: &Kernel, inside: impl IntoIterator<Item = Dim>) -> Order {
        let last = kernel.extents.len() - 1;
        let mut order = parallel_order(kernel);
        order.retain(|d| d.of != self.other && d.of != last);
        order.push(Dim { of: last, extent: kernel.extents[last] / self.line, step: self.line });
        order.push(Dim { of: self.other, extent: kernel.extents[self.other] / LINES, step: LINES });
        order.extend(inside);
        order
    }

    /// The order with tiles computed line by line.
    fn by_lines(&self, kernel: &Kernel) -> Order {
        let last = kernel.extents.len() - 1;
        let part = |of: usize, extent: usize| Dim { of, extent, step: 1 };
        self.order(kernel, [part(self.other, LINES), part(last, self.line)])
    }

    /// The order with tiles computed block by block.
    fn by_blocks(&self, kernel: &Kernel) -> Order {
        let last = kernel.extents.len() - 1;
        let part = |of: usize, extent: usize, step: usize| Dim { of, extent, step };
        let (down, across) = BLOCK_SIDES;
        let blocks = [part(self.other, LINES / down, down), part(last, self.line / across, across)];
        let within = [part(self.other, down, 1), part(last, across, 1)];
        self.order(kernel, blocks.into_iter().chain(within))
    }

    /// The code for whole tiles: all points of a tile per call, if functions do everything;
    /// otherwise block by block.
    fn code(&self, kernel: &Kernel, options: PrepareOptions<'_>) -> Code {
        let order = self.by_lines(kernel);
        let mut lower = Lower::new(kernel, &kernel.body, &order, options);
        lower.tile = LINES * self.line;
        let code = lower.finish(&kernel.stores, &[]);
        if code.block >= LINES * self.line {
            return code;
        }
        let order = self.by_blocks(kernel);
        Lower::new(kernel, &kernel.body, &order, options).finish(&kernel.stores, &[])
    }
}

/// Restricts a map to the points before `at` along a dimension, and returns the map of the other
/// points, if there are any.
fn split_off(kernel: &mut Kernel, dim: usize, at: usize) -> Option<Kernel> {
    let extent = kernel.extents[dim];
    if at == extent {
        return None;
    }
    let mut rest = kernel.clone();
    (kernel.extents[dim], rest.extents[dim]) = (at, extent - at);
    let advance = |offset: &mut isize, strides: &[isize]| {
        *offset += at as isize * strides.get(dim).copied().unwrap_or(0);
    };
    for access in rest.accesses.iter_mut().chain(rest.stores.iter_mut().map(|s| &mut s.access)) {
        advance(&mut access.offset, &access.strides);
    }
    for inst in &mut rest.body.insts {
        if let Inst::Iota { offset, strides, .. } | Inst::Random { offset, strides, .. } = inst {
            advance(offset, strides);
        }
    }
    Some(rest)
}

/// Points of a map that are computed in one order.
struct MapPart {
    code: Code,
    points: usize,
    chunk: usize,
    /// Set if the function of the whole part can be called without a frame.
    single: Option<SingleCall>,
}

impl MapPart {
    fn new(kernel: &Kernel, code: Code) -> MapPart {
        let points = kernel.points();
        let grain = if code.block == usize::MAX { BLOCK } else { code.block };
        let chunk = chunk_points(points, code.cost_ps, grain);
        let single = if points <= chunk { SingleCall::new(&code, points) } else { None };
        MapPart { code, points, chunk, single }
    }

    /// A part in the order of its dimensions.
    fn plain(kernel: &Kernel, options: PrepareOptions<'_>) -> MapPart {
        let order = parallel_order(kernel);
        let code = Lower::new(kernel, &kernel.body, &order, options).finish(&kernel.stores, &[]);
        MapPart::new(kernel, code)
    }

    fn chunks(&self) -> usize {
        self.points.div_ceil(self.chunk)
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let (start, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.points));
        let (slots, regs) = scratch.reserve(self.code.slot_bytes, self.code.places.len());
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the bindings.
        unsafe {
            let n = self.code.block.min(end - start);
            let frame = Frame::new(&self.code, slots, regs, bindings, n);
            run_points(&frame, self.code.block, start, end)
        }
    }
}

impl PreparedMap {
    pub fn new(kernel: &Kernel, options: PrepareOptions<'_>) -> PreparedMap {
        let Some(tiles) = Tiles::of(kernel) else {
            return PreparedMap { parts: smallvec![MapPart::plain(kernel, options)] };
        };
        let (whole, rest) = tiles.cut(kernel);
        let mut parts = smallvec![MapPart::new(&whole, tiles.code(&whole, options))];
        parts.extend(rest.iter().map(|part| MapPart::plain(part, options)));
        PreparedMap { parts }
    }

    /// Several maps that may run concurrently.
    pub fn of_all(kernels: &[Kernel], options: PrepareOptions<'_>) -> PreparedMap {
        PreparedMap {
            parts: kernels
                .iter()
                .flat_map(|kernel| PreparedMap::new(kernel, options).parts)
                .collect(),
        }
    }

    /// The codes of all parts.
    pub fn codes(&self) -> Vec<&Code> {
        self.parts.iter().map(|p| &p.code).collect()
    }

    pub fn chunks(&self) -> usize {
        self.parts.iter().map(MapPart::chunks).sum()
    }

    pub fn cost_ps(&self) -> usize {
        let costs = self.parts.iter().map(|p| p.points.saturating_mul(p.code.cost_ps));
        costs.fold(0, usize::saturating_add)
    }

    /// Runs the map if it is a single call of one function; returns whether it is.
    ///
    /// # Safety
    /// As [`super::Prepared::run`].
    #[inline]
    pub unsafe fn run_single_call(&self, bindings: &Bindings<'_>) -> bool {
        let [MapPart { code, single: Some(single), .. }] = &self.parts[..] else { return false };
        // SAFETY: the caller's promise; the part's own code.
        unsafe { single.run(code, bindings) };
        true
    }

    /// Checks the single call of one function, if the map is one.
    pub fn check_call(&self, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        let [MapPart { code, single: Some(single), .. }] = &self.parts[..] else { return Ok(()) };
        single.check(code, bindings)
    }

    /// # Safety
    /// As [`super::Prepared::run_strided`].
    pub unsafe fn run_strided(
        &self,
        strided: &mut StridedIterations<'_>,
        bindings: &Bindings<'_>,
        proceed: &mut dyn FnMut() -> Result<(), ExecError>,
    ) -> Ran {
        let [MapPart { code, single: Some(single), .. }] = &self.parts[..] else { return None };
        // SAFETY: the caller's promise; the part's own code.
        unsafe { single.run_strided(code, strided, bindings, proceed) }
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        mut chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        for part in &self.parts {
            if chunk < part.chunks() {
                // SAFETY: the caller's promise.
                return unsafe { part.run_chunk(chunk, bindings, scratch) };
            }
            chunk -= part.chunks();
        }
        unreachable!("the chunk is one of the map's")
    }
}

/// Runs a frame over `[start, end)` block by block.
///
/// # Safety
/// As [`Frame::run`] for these points; the frame was made for blocks of that size.
pub(super) unsafe fn run_points(
    frame: &Frame<'_>,
    block: usize,
    start: usize,
    end: usize,
) -> Result<(), ExecError> {
    let (mut p, pace) = (start, Pace::new());
    while p < end {
        let n = block.min(end - p);
        pace.step(n)?;
        // SAFETY: the caller's promise.
        unsafe { frame.run(p, n)? };
        p += n;
    }
    Ok(())
}
