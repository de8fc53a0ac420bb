//! Memory planning for the block of temporaries of an assembled plan: allocations with disjoint
//! lifetimes share bytes.

use super::allocator::ALIGNMENT;
use crate::Placement;
use crate::plan::PlannedBuffer;

/// The allocations of the block and their buffers.
#[derive(Default)]
pub(super) struct Temporaries {
    allocations: Vec<Allocation>,
}

struct Allocation {
    size: usize,
    /// The lifetime: the first and the last time at which the allocation is used.
    times: (usize, usize),
    /// Buffers, and their offsets in the allocation.
    buffers: Vec<(usize, usize)>,
}

impl Temporaries {
    /// Adds an allocation of that size whose lifetime includes both `times`.
    pub fn add(&mut self, size: usize, times: (usize, usize), buffers: &[(usize, usize)]) {
        self.allocations.push(Allocation { size, times, buffers: buffers.to_vec() });
    }

    /// Assigns offsets to the allocations, largest first, each first-fit, and sets the placements
    /// of their buffers. Returns the size of the block in bytes.
    pub fn place(&self, buffers: &mut [PlannedBuffer]) -> usize {
        let mut order: Vec<&Allocation> = self.allocations.iter().collect();
        order.sort_by_key(|allocation| std::cmp::Reverse(allocation.size));
        let mut placed: Vec<(usize, &Allocation)> = Vec::new();
        let mut total = 0;
        for allocation in order {
            let meets = |other: &Allocation| {
                other.times.0 <= allocation.times.1 && allocation.times.0 <= other.times.1
            };
            let mut taken: Vec<(usize, usize)> = placed
                .iter()
                .filter(|(_, other)| meets(other))
                .map(|(at, other)| (*at, at + other.size))
                .collect();
            taken.sort_unstable();
            let mut at = 0;
            for (start, end) in taken {
                if at + allocation.size <= start {
                    break;
                }
                at = at.max(end.next_multiple_of(ALIGNMENT));
            }
            for &(buffer, offset) in &allocation.buffers {
                buffers[buffer].placement = Placement::Temporary(at + offset);
            }
            total = total.max(at + allocation.size);
            placed.push((at, allocation));
        }
        total
    }
}
