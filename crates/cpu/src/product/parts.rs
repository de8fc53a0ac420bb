//! Products of few rows with many weights, where reading the weights takes the time.
//!
//! The shared dimension is cut into parts, whose products are added at the end: then each thread
//! reads consecutive memory, the same of the same weights every time, and its own caches may hold
//! it. (Were only columns cut, a thread would have the same half of every page, which is half of the
//! places in its caches.)

use super::operand::{Side, Target};
use super::{Memory, Product};
use crate::jit::tile::LANES;
use crate::kernel::Shared;
use crate::pool::Pool;
use girih_kernel::{Bindings, ExecError, Prepared};

/// Rows beyond which the multiplications take longer than the weights.
const ROWS: usize = 32;
/// Bytes of weights that are worth a part.
const BYTES: usize = 1 << 18;
/// The fewest shared indices of a part.
const SHARED: usize = 128;
/// The most parts.
const PARTS: usize = 4;

/// The number of parts of a product of `m` rows: a power of two.
pub(super) fn parts(m: usize, n: usize, k: usize, rhs: &Side) -> usize {
    let rows_lie_together = rhs.outer.step() == Some(1) && rhs.shared.step().is_some();
    if m > ROWS || n < LANES || !rows_lie_together {
        return 1;
    }
    let worth = (n.saturating_mul(k).saturating_mul(rhs.stored.size()) / BYTES).min(k / SHARED);
    let worth = worth.clamp(1, PARTS);
    // Down to a power of two.
    1 << worth.ilog2()
}

/// The sum of two integers whose bits these are.
fn add_bits(a: f32, b: f32) -> f32 {
    f32::from_bits(a.to_bits().wrapping_add(b.to_bits()))
}

impl Product {
    /// Where a part's product goes.
    pub(super) fn part(&self, parts: *mut f32, part: usize, row: usize, column: usize) -> Target {
        let start = parts.wrapping_add((part * self.m + row) * self.n + column);
        Target { start, pitch: self.n as isize }
    }

    /// Adds the parts, pair by pair, and runs the body.
    ///
    /// # Safety
    /// As [`Product::run`]; `parts` holds all parts' products.
    pub(super) unsafe fn add_parts(
        &self,
        parts: Memory,
        prepared: &Prepared,
        bindings: &Bindings<'_>,
        pool: &Pool,
    ) -> Result<(), ExecError> {
        let shared = Shared(*bindings);
        let cost_ns = (self.cut.parts * self.m * self.n / 8) as u64;
        pool.run(self.m, cost_ns, &|row, scratch| {
            let bindings = shared.get();
            let line = |part: usize| self.part(parts.get(), part, row, 0);
            let mut gap = 1;
            while gap < self.cut.parts {
                for part in (0..self.cut.parts).step_by(2 * gap) {
                    // SAFETY: lines of two parts; each row is one call's.
                    let (to, from) = unsafe {
                        let (to, from) = (line(part).start, line(part + gap).start);
                        let to = std::slice::from_raw_parts_mut(to, self.n);
                        (to, std::slice::from_raw_parts(from, self.n))
                    };
                    let sums = to.iter_mut().zip(from);
                    match self.rhs.stored.is_integer() {
                        true => sums.for_each(|(to, from)| *to = add_bits(*to, *from)),
                        false => sums.for_each(|(to, from)| *to += from),
                    }
                }
                gap *= 2;
            }
            let sum = line(0);
            match &self.out {
                Some(out) => {
                    let to = out.target(bindings, &self.batch, 0, row, 0).start;
                    // SAFETY: the result's row, and that of the first part, which is not in it.
                    unsafe { to.copy_from_nonoverlapping(sum.start, self.n) };
                    Ok(())
                }
                // SAFETY: the caller's promise.
                None => unsafe {
                    self.body(prepared, (0, row..row + 1, 0..self.n), sum, bindings, scratch)
                },
            }
        })
    }
}
