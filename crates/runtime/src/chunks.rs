//! Counts of chunks, the parts of kernels that the threads of a device may run independently.

use girih_sync::Counter;
use std::cell::Cell;

/// How kernels were divided among threads; no clock is involved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCounts {
    /// The number of chunks, the parts of kernels that threads may run independently.
    pub chunks: u64,
    /// The number of chunks that ran on other threads than the one that launched the kernel.
    pub chunks_of_workers: u64,
}

impl ChunkCounts {
    /// No chunks.
    pub const NONE: ChunkCounts = ChunkCounts { chunks: 0, chunks_of_workers: 0 };
}

impl std::ops::Add for ChunkCounts {
    type Output = ChunkCounts;

    fn add(self, other: ChunkCounts) -> ChunkCounts {
        let ChunkCounts { chunks, chunks_of_workers } = other;
        ChunkCounts {
            chunks: self.chunks + chunks,
            chunks_of_workers: self.chunks_of_workers + chunks_of_workers,
        }
    }
}

impl std::ops::Sub for ChunkCounts {
    type Output = ChunkCounts;

    /// The chunks since earlier counts.
    fn sub(self, earlier: ChunkCounts) -> ChunkCounts {
        let ChunkCounts { chunks, chunks_of_workers } = earlier;
        ChunkCounts {
            chunks: self.chunks.saturating_sub(chunks),
            chunks_of_workers: self.chunks_of_workers.saturating_sub(chunks_of_workers),
        }
    }
}

thread_local! {
    /// The counts of the chunks of the kernels that this thread has launched.
    static OF_THREAD: Cell<ChunkCounts> = const { Cell::new(ChunkCounts::NONE) };
}

/// The chunks of all kernels of the process, and those of them that workers ran.
static CHUNKS: Counter = Counter::new();
static CHUNKS_OF_WORKERS: Counter = Counter::new();

impl ChunkCounts {
    /// The counts of all kernels of the process so far, on all devices.
    pub fn of_process() -> ChunkCounts {
        ChunkCounts { chunks: CHUNKS.get(), chunks_of_workers: CHUNKS_OF_WORKERS.get() }
    }

    /// The counts of the kernels that the calling thread has launched so far, on any device.
    pub fn of_thread() -> ChunkCounts {
        OF_THREAD.get()
    }

    /// Adds the chunks of a kernel that the calling thread has launched. A device that divides kernels
    /// calls it once for each, so that statistics and traces have the counts.
    pub fn record(self) {
        OF_THREAD.set(OF_THREAD.get() + self);
        CHUNKS.add(self.chunks);
        if self.chunks_of_workers > 0 {
            CHUNKS_OF_WORKERS.add(self.chunks_of_workers);
        }
    }
}
