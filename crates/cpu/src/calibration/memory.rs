//! Measures memory: the latency of a load that misses the caches, and the bandwidth of one thread
//! for loads, for stores, and for non-temporal stores.
//!
//! Touching a buffer that is larger than all caches would take many milliseconds. So the buffer is
//! small, and `clflushopt` evicts its lines from all caches before each measurement.

use girih_exec::tuning::Memory;

/// The memory of this machine; `None` on processors for which this module cannot measure.
pub(super) fn measure() -> Option<Memory> {
    #[cfg(target_arch = "x86_64")]
    return Some(x86::measure());
    #[cfg(not(target_arch = "x86_64"))]
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Memory;
    use raw_cpuid::CpuId;
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_clflush, _mm_mfence, _mm_setzero_si128, _mm_stream_si128,
    };
    use std::time::Instant;

    /// The size of a cache line in bytes.
    const LINE: usize = 64;
    /// The number of lines of the buffer: 256 KB, which one thread reads in about 20 us.
    const LINES: usize = 4096;
    /// The number of lines whose latency is measured, one after another.
    const HOPS: usize = 256;
    /// The number of times that each duration is measured. The fastest is used, since other load
    /// only adds time.
    const ROUNDS: usize = 4;

    /// A line is eight words.
    #[derive(Clone, Copy)]
    #[repr(align(64))]
    struct Line([u64; LINE / 8]);

    /// The time in nanoseconds of the fastest of [`ROUNDS`] runs on lines that are in no cache.
    fn fastest(lines: &mut [Line], run: impl Fn(&mut [Line])) -> u64 {
        let time = |_| {
            flush(lines);
            let start = Instant::now();
            run(lines);
            start.elapsed().as_nanos() as u64
        };
        (0..ROUNDS).map(time).min().unwrap_or(1).max(1)
    }

    pub(super) fn measure() -> Memory {
        // Each line holds the number of the next line: a linear congruential generator that visits
        // all lines, in steps that no hardware prefetcher follows.
        let line = |i: usize| Line([((1229 * i + 911) % LINES) as u64; LINE / 8]);
        let mut lines: Vec<Line> = (0..LINES).map(line).collect();
        let megabytes_per_second =
            |ns: u64| (1000 * size_of::<[Line; LINES]>() as u64 / ns) as usize;
        let latency = fastest(&mut lines, |lines| {
            let hop = |at: u64, _| lines[at as usize].0[0];
            std::hint::black_box((0..HOPS).fold(0, hop));
        });
        let read = fastest(&mut lines, |lines| {
            std::hint::black_box(lines.iter().fold(0, |sum, line| sum ^ line.0[0]));
        });
        let written = fastest(&mut lines, |lines| {
            std::hint::black_box(&mut *lines).fill(Line([1; LINE / 8]));
            flush(lines);
        });
        let streamed = fastest(&mut lines, |lines| {
            stream(lines);
            flush(lines);
        });
        Memory {
            latency_ns: (latency as usize / HOPS).max(1),
            read_mbps: megabytes_per_second(read).max(1),
            write_mbps: megabytes_per_second(written).max(1),
            stream_mbps: megabytes_per_second(streamed).max(1),
        }
    }

    /// Writes lines back to memory and evicts them from all caches. After stores, the time of this
    /// function includes writing back, which a store to a cache postpones.
    fn flush(lines: &[Line]) {
        let optimised = has_clflushopt();
        for line in lines {
            let at: *const u8 = std::ptr::from_ref(line).cast();
            match optimised {
                // SAFETY: the processor has the instruction, and the line is valid.
                true => unsafe { asm!("clflushopt [{}]", in(reg) at, options(nostack)) },
                // SAFETY: SSE2 is part of x86-64, and the line is valid.
                false => unsafe { _mm_clflush(at) },
            }
        }
        // SAFETY: SSE2 is part of x86-64.
        unsafe { _mm_mfence() };
    }

    /// Whether the processor has `clflushopt`. It is as fast as memory, unlike `clflush`, which
    /// Intel's processors execute one after another.
    fn has_clflushopt() -> bool {
        let features = CpuId::new().get_extended_feature_info();
        features.is_some_and(|features| features.has_clflushopt())
    }

    /// Overwrites lines by non-temporal stores.
    fn stream(lines: &mut [Line]) {
        for line in lines {
            let to = std::ptr::from_mut(line).cast::<__m128i>();
            // SAFETY: SSE2 is part of x86-64; a line has 64 aligned bytes. The fence orders the
            // stores before later accesses.
            unsafe { (0..4).for_each(|i| _mm_stream_si128(to.add(i), _mm_setzero_si128())) };
        }
        // SAFETY: as above.
        unsafe { _mm_mfence() };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn measured_memory_rates_are_plausible() {
        let Some(memory) = super::measure() else { return };
        // Wide bounds: the machine may have any other load.
        assert!((2..1_000_000).contains(&memory.latency_ns), "{memory:?}");
        for mbps in [memory.read_mbps, memory.write_mbps, memory.stream_mbps] {
            assert!((1..10_000_000).contains(&mbps), "{memory:?}");
        }
    }
}
