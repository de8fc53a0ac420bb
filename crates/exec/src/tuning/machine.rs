//! The cache sizes of the machine's cores, the latencies between its threads, and its memory.

/// The machine that kernels run on: cache sizes, thread latencies and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The size of a core's L1 data cache, in bytes.
    pub l1_bytes: usize,
    /// The size of a core's L2 cache, in bytes.
    pub l2_bytes: usize,
    /// The size of the L3 cache, which cores share, in bytes; the size of the L2 cache if there is
    /// no L3 cache.
    pub l3_bytes: usize,
    /// The time from the call that wakes a parked thread to the thread's first instruction, in
    /// nanoseconds.
    pub wake_ns: usize,
    /// The time from a store to its arrival at a thread that spins, in nanoseconds.
    pub handover_ns: usize,
    /// The memory behind the caches.
    pub memory: Memory,
}

/// Latency and bandwidth of memory, as one thread sees it. 1 MB/s is a byte per microsecond.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The latency of a load that misses all caches, in nanoseconds.
    pub latency_ns: usize,
    /// The bandwidth of loads of consecutive addresses, in MB/s.
    pub read_mbps: usize,
    /// The bandwidth of stores to consecutive addresses, in MB/s. Such a store loads a cache line,
    /// changes the line and writes it back.
    pub write_mbps: usize,
    /// The bandwidth of non-temporal stores to consecutive addresses, in MB/s.
    pub stream_mbps: usize,
}

impl Memory {
    /// Whether non-temporal stores are about as fast as stores through the caches, or faster: false
    /// if they are slower by more than the noise of the measurement.
    pub fn streams(&self) -> bool {
        4 * self.stream_mbps >= 3 * self.write_mbps
    }
}

/// Typical values of a server, for a machine whose caches cannot be read or that was not measured.
impl Default for Machine {
    fn default() -> Machine {
        Machine {
            l1_bytes: 32 << 10,
            l2_bytes: 1 << 20,
            l3_bytes: 16 << 20,
            wake_ns: 50_000,
            handover_ns: 100,
            memory: Memory {
                latency_ns: 100,
                read_mbps: 12_000,
                write_mbps: 6_000,
                stream_mbps: 8_000,
            },
        }
    }
}

impl Machine {
    /// The cache sizes of this machine, with the measurements of [`Machine::default`].
    pub fn read() -> Machine {
        let mut machine = Machine::default();
        let sizes = Some(from_processor()).filter(|s| s[0] > 0).unwrap_or_else(from_system);
        let [l1, l2, l3] = sizes;
        if l1 > 0 && l2 > 0 {
            machine.l1_bytes = l1;
            machine.l2_bytes = l2.max(l1);
            machine.l3_bytes = l3.max(l2);
        }
        machine
    }
}

/// Data and unified caches by level, from CPUID (Intel leaf 4, AMD leaf 0x8000001D); zeros if it
/// does not report them.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn from_processor() -> [usize; 3] {
    use raw_cpuid::{CacheType, CpuId};
    let mut sizes = [0; 3];
    for cache in CpuId::new().get_cache_parameters().into_iter().flatten() {
        let data = matches!(cache.cache_type(), CacheType::Data | CacheType::Unified);
        let ways = cache.associativity() * cache.physical_line_partitions();
        let size = ways * cache.coherency_line_size() * cache.sets();
        keep(&mut sizes, cache.level().into(), if data { size } else { 0 });
    }
    sizes
}

/// Cache sizes of zero, because Miri has no CPUID.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn from_processor() -> [usize; 3] {
    [0; 3]
}

/// The same sizes as reported by Linux; zeros if Linux does not report them.
fn from_system() -> [usize; 3] {
    let mut sizes = [0; 3];
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).ok();
        let (Some(kind), Some(level), Some(size)) = (read("type"), read("level"), read("size"))
        else {
            break;
        };
        let level = level.trim().parse().unwrap_or(0);
        if kind.trim() != "Instruction" {
            keep(&mut sizes, level, kilobytes(&size));
        }
    }
    sizes
}

/// The bytes of a size such as `48K`; zero if it is invalid.
fn kilobytes(text: &str) -> usize {
    let digits = text.trim().strip_suffix('K').and_then(|digits| digits.parse::<usize>().ok());
    digits.and_then(|kilobytes| kilobytes.checked_mul(1 << 10)).unwrap_or(0)
}

/// Records a cache of that level; levels beyond the third count as the third level.
fn keep(sizes: &mut [usize; 3], level: usize, bytes: usize) {
    if let Some(size) = level.checked_sub(1).map(|i| &mut sizes[i.min(2)]) {
        *size = bytes.max(*size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_grow_with_the_level() {
        let machine = Machine::read();
        assert!(machine.l1_bytes >= 4 << 10, "{machine:?}");
        assert!(machine.l1_bytes <= machine.l2_bytes, "{machine:?}");
        assert!(machine.l2_bytes <= machine.l3_bytes, "{machine:?}");
        let (processor, system) = (from_processor(), from_system());
        for level in 0..2 {
            if processor[level] > 0 && system[level] > 0 {
                assert_eq!(processor[level], system[level], "{processor:?} {system:?}");
            }
        }
    }

    #[test]
    fn invalid_sizes_count_as_unknown() {
        assert_eq!(kilobytes("48K\n"), 48 << 10);
        for text in ["", "K", "48", "-1K", "99999999999999999999K"] {
            assert_eq!(kilobytes(text), 0, "{text}");
        }
        let mut sizes = [0; 3];
        keep(&mut sizes, 0, 7);
        keep(&mut sizes, 4, 9);
        assert_eq!(sizes, [0, 0, 9]);
    }
}
