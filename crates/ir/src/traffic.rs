//! The work of a kernel or a program: bytes moved and operations.

/// The number of bytes and operations of one run of a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The number of bytes read from buffers; each element counts once, however often it is used.
    pub bytes_read: u64,
    /// The number of bytes written to buffers.
    pub bytes_written: u64,
    /// The number of arithmetic operations: one per elementwise op and element (none for casts,
    /// comparisons and selects), one per reduced element, two per multiply-add of a GEMM.
    pub flops: u64,
}

impl std::ops::Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
            flops: self.flops.saturating_add(other.flops),
        }
    }
}
