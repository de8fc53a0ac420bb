//! Places the temporaries of a program in one block: each lives from the kernel that first writes
//! it to the last that reads it, and takes the lowest space free for that long (first fit in order
//! of birth).

use crate::ir::{BufferId, BufferKind, Program};
use std::collections::BTreeMap;

/// Alignment of what is placed, in bytes.
pub const ALIGNMENT: usize = 128;

/// Offsets of temporaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// By buffer; none for arguments, for what has a place of its own, and for what no kernel writes.
    pub offsets: Vec<Option<usize>>,
    /// Size of the block.
    pub bytes: usize,
}

/// Places the computed buffers of a program but for those that have a place of their own. Outputs
/// among them live to the end.
pub fn place(program: &Program, elsewhere: impl Fn(BufferId) -> bool) -> Placed {
    let count = program.buffers.len();
    let mut last_use = vec![None; count];
    for (at, kernel) in program.kernels.iter().enumerate() {
        kernel.reads().chain(kernel.writes()).for_each(|b| last_use[b.0 as usize] = Some(at));
    }
    let is_output = |b: BufferId| program.outputs.contains(&b);
    let mut offsets = vec![None; count];
    let mut space = Space::default();
    let mut dying: Vec<Vec<(usize, usize)>> = vec![Vec::new(); program.kernels.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        for id in kernel.writes() {
            let i = id.0 as usize;
            let computed = program.buffers[i].kind == BufferKind::Computed;
            let (true, Some(last)) = (computed && offsets[i].is_none(), last_use[i]) else {
                continue;
            };
            if elsewhere(id) {
                continue;
            }
            let size = program.buffers[i].size_bytes().next_multiple_of(ALIGNMENT);
            let offset = space.take(size);
            offsets[i] = Some(offset);
            if !is_output(id) {
                dying[last].push((offset, size));
            }
        }
        for (offset, size) in std::mem::take(&mut dying[at]) {
            space.give(offset, size);
        }
    }
    Placed { offsets, bytes: space.end }
}

/// Free intervals of a growing block.
#[derive(Default)]
struct Space {
    free: BTreeMap<usize, usize>,
    end: usize,
}

impl Space {
    fn take(&mut self, size: usize) -> usize {
        if let Some((&offset, &len)) = self.free.iter().find(|(_, len)| **len >= size) {
            self.free.remove(&offset);
            if len > size {
                self.free.insert(offset + size, len - size);
            }
            return offset;
        }
        // Grow from the last free interval, if it touches the end.
        let offset = match self.free.last_key_value() {
            Some((&offset, &len)) if offset + len == self.end => {
                self.free.remove(&offset);
                offset
            }
            _ => self.end,
        };
        self.end = offset + size;
        offset
    }

    fn give(&mut self, mut offset: usize, mut size: usize) {
        if size == 0 {
            return;
        }
        if let Some((&before, &len)) = self.free.range(..offset).next_back()
            && before + len == offset
        {
            self.free.remove(&before);
            (offset, size) = (before, size + len);
        }
        if let Some(len) = self.free.remove(&(offset + size)) {
            size += len;
        }
        self.free.insert(offset, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_reused_by_liveness_and_grows_at_the_end_only() {
        let mut space = Space::default();
        let (a, b) = (space.take(256), space.take(128));
        assert_eq!((a, b), (0, 256));
        space.give(a, 256);
        assert_eq!(space.take(128), 0);
        space.give(b, 128);
        assert_eq!(space.take(512), 128, "the free tail grows instead of a gap being left");
        assert_eq!(space.end, 640);
    }
}
