//! The distribution of one axis of a tensor over one axis of a mesh.

/// A contiguous range of an axis that a processor owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the first element in the tensor.
    pub start: usize,
    /// The index of the first element in the processor's tile.
    pub local: usize,
    /// The number of elements.
    pub len: usize,
}

/// The distribution of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Split {
    /// Every processor has the whole axis.
    Whole,
    /// One contiguous part per processor; all parts but the last ones have the maximum length.
    Block { parts: usize },
    /// Blocks of `block` elements, assigned to the processors cyclically (ScaLAPACK's
    /// distribution).
    Cyclic { parts: usize, block: usize },
}

/// The spans of processor `part` of `parts` on an axis of `size` elements, in blocks of `block`
/// elements assigned cyclically; with `None`, one contiguous part per processor.
pub fn spans(size: usize, parts: usize, block: Option<usize>, part: usize) -> Vec<Span> {
    match block {
        None => Split::Block { parts }.spans(size, part),
        Some(block) => Split::Cyclic { parts, block }.spans(size, part),
    }
}

impl Split {
    /// The length of the blocks; processor `p` has blocks `p`, `p + parts`, ...
    pub fn block(self, size: usize) -> usize {
        match self {
            Split::Whole => size.max(1),
            Split::Block { parts } => size.div_ceil(parts.max(1)).max(1),
            Split::Cyclic { block, .. } => block.max(1),
        }
    }

    /// The number of processors among which the blocks are divided.
    pub fn parts(self) -> usize {
        match self {
            Split::Whole => 1,
            Split::Block { parts } | Split::Cyclic { parts, .. } => parts.max(1),
        }
    }

    /// The processor that owns an element; `None` if all processors have the element.
    pub fn owner(self, size: usize, index: usize) -> Option<usize> {
        match self {
            Split::Whole => None,
            _ => Some(index / self.block(size) % self.parts()),
        }
    }

    /// The index of an element in its owner's tile.
    pub fn local(self, size: usize, index: usize) -> usize {
        let block = self.block(size);
        index / (block * self.parts()) * block + index % block
    }

    /// The number of elements of a processor: ScaLAPACK's `numroc`.
    pub fn len(self, size: usize, part: usize) -> usize {
        let (block, parts) = (self.block(size), self.parts());
        let part = if let Split::Whole = self { 0 } else { part };
        let (whole, rest) = (size / block, size % block);
        let own = whole / parts + usize::from(part < whole % parts);
        own * block + if part == whole % parts { rest } else { 0 }
    }

    /// The first element and the number of elements of a processor that has one contiguous part.
    pub fn range(self, size: usize, part: usize) -> (usize, usize) {
        (part.saturating_mul(self.block(size)).min(size), self.len(size, part))
    }

    pub fn spans(self, size: usize, part: usize) -> Vec<Span> {
        let (block, parts) = (self.block(size), self.parts());
        let part = if let Split::Whole = self { 0 } else { part };
        let starts = (part..).step_by(parts).map(|number| number.saturating_mul(block));
        let spans = starts.take_while(|&start| start < size).enumerate();
        let spans = spans.map(|(round, start)| Span {
            start,
            local: round * block,
            len: block.min(size - start),
        });
        spans.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_spans_are_equal_except_the_last() {
        let parts_of = |size, parts| -> Vec<(usize, usize)> {
            let spans = (0..parts).flat_map(|part| spans(size, parts, None, part));
            spans.map(|span| (span.start, span.len)).collect()
        };
        assert_eq!(parts_of(10, 4), [(0, 3), (3, 3), (6, 3), (9, 1)]);
        assert_eq!(parts_of(1024, 4), [(0, 256), (256, 256), (512, 256), (768, 256)]);
        assert_eq!(parts_of(2, 4), [(0, 1), (1, 1)], "processors beyond the data have none");
        assert_eq!(parts_of(0, 3), []);
    }

    #[test]
    fn cyclic_blocks_are_assigned_as_in_scalapack() {
        let split = Split::Cyclic { parts: 3, block: 2 };
        assert_eq!([0, 1, 2].map(|part| split.len(10, part)), [4, 4, 2]);
        let own: Vec<usize> =
            split.spans(10, 0).iter().flat_map(|s| s.start..s.start + s.len).collect();
        assert_eq!(own, [0, 1, 6, 7]);
        for (index, (owner, local)) in
            [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (0, 3)].into_iter().enumerate()
        {
            assert_eq!((split.owner(10, index), split.local(10, index)), (Some(owner), local));
        }
    }

    #[test]
    fn spans_owners_and_lengths_agree() {
        for size in 0..20 {
            for parts in 1..5 {
                let cyclic = (1..6).map(|block| Split::Cyclic { parts, block });
                for split in cyclic.chain([Split::Block { parts }]) {
                    let mut owners = vec![None; size];
                    for part in 0..parts {
                        let spans = split.spans(size, part);
                        let total: usize = spans.iter().map(|span| span.len).sum();
                        assert_eq!(total, split.len(size, part));
                        for at in spans.iter().flat_map(|s| (0..s.len).map(move |i| (*s, i))) {
                            let (span, i) = at;
                            assert_eq!(owners[span.start + i].replace(part), None);
                            assert_eq!(split.local(size, span.start + i), span.local + i);
                        }
                    }
                    for (index, owner) in owners.into_iter().enumerate() {
                        assert_eq!(split.owner(size, index), Some(owner.expect("somebody has it")));
                    }
                }
            }
        }
    }
}
