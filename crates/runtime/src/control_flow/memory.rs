//! Memory planning for the block of temporaries of an assembled plan: pieces with disjoint
//! lifetimes share bytes.

use super::allocator::ALIGNMENT;
use crate::Placement;
use crate::plan::PlannedBuffer;

/// The pieces of the block and their buffers.
#[derive(Default)]
pub(super) struct Temporaries {
    pieces: Vec<Piece>,
}

struct Piece {
    size: usize,
    /// The lifetime: the first and the last time at which the piece is used.
    times: (usize, usize),
    /// Buffers, and their offsets in the piece.
    buffers: Vec<(usize, usize)>,
}

impl Temporaries {
    /// Adds a piece of that size whose lifetime includes both `times`.
    pub fn add(&mut self, size: usize, times: (usize, usize), buffers: &[(usize, usize)]) {
        self.pieces.push(Piece { size, times, buffers: buffers.to_vec() });
    }

    /// Assigns offsets to the pieces, largest first, each first-fit, and sets the placements of
    /// their buffers. Returns the size of the block in bytes.
    pub fn place(&self, buffers: &mut [PlannedBuffer]) -> usize {
        let mut order: Vec<&Piece> = self.pieces.iter().collect();
        order.sort_by_key(|piece| std::cmp::Reverse(piece.size));
        let mut placed: Vec<(usize, &Piece)> = Vec::new();
        let mut total = 0;
        for piece in order {
            let meets =
                |other: &Piece| other.times.0 <= piece.times.1 && piece.times.0 <= other.times.1;
            let mut taken: Vec<(usize, usize)> = placed
                .iter()
                .filter(|(_, other)| meets(other))
                .map(|(at, other)| (*at, at + other.size))
                .collect();
            taken.sort_unstable();
            let mut at = 0;
            for (start, end) in taken {
                if at + piece.size <= start {
                    break;
                }
                at = at.max(end.next_multiple_of(ALIGNMENT));
            }
            for &(buffer, offset) in &piece.buffers {
                buffers[buffer].placement = Placement::Temporary(at + offset);
            }
            total = total.max(at + piece.size);
            placed.push((at, piece));
        }
        total
    }
}
