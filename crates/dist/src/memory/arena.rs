//! An arena without an end: free blocks are coalesced, and the first one that is large enough is
//! taken. Source: linear-scan register allocation (Poletto and Sarkar 1999), for blocks of any size.

/// Free memory.
#[derive(Clone, Debug)]
pub(super) struct Arena {
    /// The free blocks as start and end, ascending and not adjacent. The last one has no end.
    free: Vec<(usize, usize)>,
}

impl Arena {
    pub(super) fn new() -> Arena {
        Arena { free: vec![(0, usize::MAX)] }
    }

    /// The offset of a block.
    pub(super) fn allocate(&mut self, size: usize, align: usize) -> usize {
        if size == 0 {
            return 0;
        }
        let place = |&(start, end): &(usize, usize)| {
            let offset = start.checked_next_multiple_of(align)?;
            (offset.checked_add(size)? <= end).then_some(offset)
        };
        let found = self.free.iter().enumerate().find_map(|(at, block)| Some((at, place(block)?)));
        // A tile of half the address space or more: such a plan never fits, wherever it is placed.
        let Some((at, offset)) = found else { return usize::MAX - size };
        let (start, end) = self.free[at];
        let rest = [(start, offset), (offset + size, end)];
        self.free.splice(at..=at, rest.into_iter().filter(|(start, end)| start < end));
        offset
    }

    /// Gives a block back.
    pub(super) fn release(&mut self, offset: usize, size: usize) {
        if size == 0 {
            return;
        }
        let (mut start, mut end) = (offset, offset + size);
        let at = self.free.partition_point(|block| block.1 < start);
        let adjacent = self.free[at..].iter().take_while(|block| block.0 <= end).count();
        for block in &self.free[at..at + adjacent] {
            (start, end) = (start.min(block.0), end.max(block.1));
        }
        self.free.splice(at..at + adjacent, [(start, end)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_blocks_are_coalesced_and_the_first_that_is_large_enough_is_taken() {
        let mut arena = Arena::new();
        let blocks = [8, 16, 8, 24].map(|size| arena.allocate(size, 4));
        assert_eq!(blocks, [0, 8, 24, 32]);
        arena.release(0, 8);
        arena.release(24, 8);
        assert_eq!(arena.allocate(12, 4), 56, "neither is large enough");
        arena.release(8, 16);
        assert_eq!(arena.free[0], (0, 32));
        assert_eq!((arena.allocate(20, 4), arena.allocate(6, 8)), (0, 24));
        assert_eq!(arena.allocate(4, 4), 20);
        for (offset, size) in [(56, 12), (0, 20), (24, 6), (20, 4), (32, 24)] {
            arena.release(offset, size);
        }
        assert_eq!(arena.free, [(0, usize::MAX)], "all of it");
        assert_eq!((arena.allocate(0, 4), arena.allocate(4, 4)), (0, 0), "nothing needs no place");
    }
}
