//! The memory of a processing element (PE), and the part of the memory that is left for data.

use super::MemoryRegion;
use crate::{LayoutError, Result};
use std::fmt;

/// The division of a PE's private memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// The whole memory.
    pub total: usize,
    /// The program.
    pub code: usize,
    /// The stack of the tasks.
    pub stack: usize,
    /// The tables of the router.
    pub routing: usize,
}

impl Default for MemoryBudget {
    /// 48 KB of a WSE-2's PE, with 8 KB for code and 4 KB for the stack.
    fn default() -> MemoryBudget {
        MemoryBudget { total: 48 * 1024, code: 8 * 1024, stack: 4 * 1024, routing: 0 }
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryBudget { total, code, stack, routing } = self;
        write!(f, "{total} B - {code} B code - {stack} B stack - {routing} B routing")
    }
}

/// Two buffers of one size, one of which is filled while the other one is read, and scratch memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubleBuffer {
    /// The buffers.
    pub buffers: [MemoryRegion; 2],
    /// The scratch memory.
    pub scratch: MemoryRegion,
}

impl DoubleBuffer {
    /// The number of times that a buffer is filled to stream a number of bytes.
    pub fn steps(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.buffers[0].size)
    }

    /// The bytes of all three regions.
    pub fn peak(&self) -> usize {
        self.scratch.offset + self.scratch.size
    }
}

impl MemoryBudget {
    /// The bytes for data.
    ///
    /// Errors: [`LayoutError::Fit`] if nothing is left.
    pub fn data(&self) -> Result<usize> {
        let reserved = [self.code, self.stack, self.routing];
        let left = reserved.iter().try_fold(self.total, |left, &size| left.checked_sub(size));
        left.filter(|&left| left > 0).ok_or_else(|| {
            LayoutError::Fit(format!("{self} leaves no memory for data; reserve less"))
        })
    }

    /// The data memory as two equal buffers for a stream and scratch memory of a size:
    /// `[a][b][scratch]`.
    ///
    /// Errors: [`LayoutError::Fit`] if there is no room for buffers of a wavelet.
    pub fn double_buffer(&self, scratch: usize) -> Result<DoubleBuffer> {
        let data = self.data()?;
        let size = data.saturating_sub(scratch) / 2 / 4 * 4;
        if size == 0 {
            return Err(LayoutError::Fit(format!(
                "{scratch} B of scratch memory leave no room for two buffers in {data} B ({self}); \
                 use less of it"
            )));
        }
        let region = |name: &str, offset, size| MemoryRegion { offset, size, name: name.into() };
        let buffers = [region("a", 0, size), region("b", size, size)];
        Ok(DoubleBuffer { buffers, scratch: region("scratch", 2 * size, scratch) })
    }
}
