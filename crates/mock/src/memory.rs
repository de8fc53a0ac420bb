//! The mock's memory: mappings of the process, at device addresses that differ from host addresses,
//! so that using an address on the wrong side is detected.

use girih_runtime::{Allocator, Buffer, DeviceId, PhysicalMemory, Place, reserve_regions};
use girih_sync::{Mutex, MutexGuard};
use memmap2::MmapOptions;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, PoisonError};

/// Region `i` has the device address `(i + 1) << REGION_SHIFT`.
const REGION_SHIFT: u32 = 40;
/// The first device address of the driver's mappings, and the minimum gap between two mappings.
const FIRST_MAPPING: u64 = 1 << 50;
const GUARD: u64 = 1 << 20;

/// The map from device addresses to host memory.
pub(crate) enum Memory {
    Regions(Vec<Arc<Mapping>>),
    /// Each block is a separate mapping.
    Physical(Driver),
}

/// Host memory that backs device memory, as memory of the device that computes.
pub(crate) struct Mapping(Buffer);

impl Mapping {
    /// Reserves memory of the host's device; the system commits pages when they are first accessed.
    fn new(host: DeviceId, size: usize) -> io::Result<Arc<Mapping>> {
        let memory = MmapOptions::new().len(size.max(1)).no_reserve_swap().map_anon()?;
        Ok(Arc::new(Mapping(Buffer::owned(host, memory))))
    }
}

/// Bytes of a mapping, which live as long as this.
pub(crate) struct Part {
    mapping: Arc<Mapping>,
    offset: usize,
    size: usize,
}

impl Part {
    fn new(mapping: &Arc<Mapping>, offset: u64, size: usize) -> Option<Part> {
        let offset = usize::try_from(offset).ok()?;
        offset.checked_add(size).filter(|&end| end <= mapping.0.size_bytes())?;
        Some(Part { mapping: mapping.clone(), offset, size })
    }

    /// The bytes as memory of the device that computes.
    pub fn place(&self) -> Place<'_> {
        // SAFETY: only the mock's work uses the mapping, at the places that the mock was given and the
        // addresses that the runtime bound: their users are ordered by who gave them.
        #[allow(unsafe_code, reason = "the mapping backs the mock's memory")]
        let whole = unsafe { self.mapping.0.place() };
        whole.part(self.offset, self.size).expect("checked when it was made")
    }
}

/// A driver that maps and unmaps blocks; a reference-counted handle.
#[derive(Clone)]
pub(crate) struct Driver {
    host: DeviceId,
    mappings: Arc<Mutex<Mappings>>,
}

#[derive(Default)]
struct Mappings {
    /// The mappings by device address.
    blocks: BTreeMap<u64, Arc<Mapping>>,
    /// The size of the address space used so far; addresses are not reused.
    used: u64,
}

impl Driver {
    fn lock(&self) -> MutexGuard<'_, Mappings> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PhysicalMemory for Driver {
    fn map(&self, size: usize) -> Option<u64> {
        let mapping = Mapping::new(self.host, size).ok()?;
        let mut mappings = self.lock();
        let address = FIRST_MAPPING + mappings.used;
        mappings.used += (size as u64).next_multiple_of(GUARD) + GUARD;
        mappings.blocks.insert(address, mapping);
        Some(address)
    }

    fn unmap(&self, address: u64, _: usize) {
        let unmapped = self.lock().blocks.remove(&address);
        // Unmap without holding the lock, because unmapping is slow.
        drop(unmapped);
    }
}

impl Memory {
    /// Reserves regions of these sizes in memory of the host's device, with an allocator.
    ///
    /// Errors: the system's, if a region cannot be reserved.
    pub fn regions(
        host: DeviceId,
        name: &str,
        sizes: &[usize],
    ) -> io::Result<(Arc<Allocator>, Memory)> {
        let regions = sizes.iter().map(|&size| Mapping::new(host, size));
        let regions = regions.collect::<io::Result<_>>()?;
        let allocator = Allocator::new(DeviceId::unique(), name, sizes);
        allocator.place_regions(&bases(sizes.len()));
        Ok((allocator, Memory::Regions(regions)))
    }

    /// Reserves the default regions, or smaller ones that the system provides; `None` if it provides
    /// none.
    pub fn largest(host: DeviceId, name: &str) -> Option<(Arc<Allocator>, Memory)> {
        let reserved = reserve_regions(|size| Mapping::new(host, size).ok());
        let (regions, sizes): (Vec<_>, Vec<usize>) = reserved.into_iter().unzip();
        let allocator = Allocator::new(DeviceId::unique(), name, &sizes);
        allocator.place_regions(&bases(sizes.len()));
        (!sizes.is_empty()).then_some((allocator, Memory::Regions(regions)))
    }

    /// Physical memory with at most `capacity` bytes, with an allocator.
    pub fn physical(host: DeviceId, name: &str, capacity: usize) -> (Arc<Allocator>, Memory) {
        let driver = Driver { host, mappings: Arc::default() };
        let id = DeviceId::unique();
        let allocator = Allocator::physical(id, name, capacity, Box::new(driver.clone()));
        (allocator, Memory::Physical(driver))
    }

    /// The device address of a handle given as two words.
    pub fn of_words(&self, words: [u64; 2]) -> Option<u64> {
        match words {
            [address, 0] => Some(address),
            [offset, region] => Some((region << REGION_SHIFT) + offset),
        }
    }

    /// The `size` bytes at a device address; `None` unless they belong to the device. Physical memory
    /// has 0 bytes at address 0.
    pub fn part(&self, address: u64, size: usize) -> Option<Part> {
        match self {
            Memory::Regions(regions) => {
                let index = (address >> REGION_SHIFT).checked_sub(1)?;
                let region = regions.get(usize::try_from(index).ok()?)?;
                Part::new(region, address & ((1 << REGION_SHIFT) - 1), size)
            }
            Memory::Physical(driver) => {
                let mappings = driver.lock();
                let (start, mapping) = mappings.blocks.range(..=address).next_back()?;
                Part::new(mapping, address - start, size)
            }
        }
    }
}

/// The base address of each region.
pub(crate) fn bases(regions: usize) -> Vec<u64> {
    (1..=regions as u64).map(|region| region << REGION_SHIFT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_runtime::DEFAULT_REGIONS;

    #[test]
    fn regions_are_reserved_and_not_committed() {
        // 96 GB, more than most test machines have.
        let (allocator, memory) =
            Memory::regions(DeviceId::HOST, "mock", &DEFAULT_REGIONS).unwrap();
        assert_eq!(allocator.stats().capacity, 103_079_215_104);
        let block = allocator.allocate(1 << 30).unwrap();
        let address = allocator.resolve(block.handle(), 1 << 30).unwrap();
        assert_eq!(address, 1 << REGION_SHIFT);
        let host = memory.part(address, 1).unwrap();
        assert_eq!(host.place().handle().device(), DeviceId::HOST);
        assert_ne!(host.place().handle().words()[0], address);
        assert!(memory.part(address, (12 << 30) + 1).is_none(), "beyond the region");
        assert!(memory.part(9 << REGION_SHIFT, 1).is_none(), "no such region");
        assert!(memory.part(77, 0).is_none(), "a host address");
        assert_eq!(memory.of_words(block.handle().words()), Some(address));
    }

    /// Is set in a child of the test, whose addresses are limited.
    #[cfg(target_os = "linux")]
    const CHILD: &str = "TEST_OF_REGIONS";

    #[test]
    #[cfg(target_os = "linux")]
    fn smaller_regions_are_reserved_where_the_system_refuses_larger_ones() {
        const GB: usize = 1 << 30;
        if std::env::var(CHILD).is_ok() {
            let (allocator, _memory) = Memory::largest(DeviceId::HOST, "mock").unwrap();
            let sizes = allocator.region_stats().into_iter().map(|region| region.capacity / GB);
            println!("regions {:?}", sizes.collect::<Vec<_>>());
            return;
        }
        let name =
            "memory::tests::smaller_regions_are_reserved_where_the_system_refuses_larger_ones";
        let regions = |gigabytes: usize| {
            let limit = format!("ulimit -v {}; exec \"$0\" \"$@\"", gigabytes << 20);
            let mut child = std::process::Command::new("sh");
            child.args(["-c", &limit]).arg(std::env::current_exe().unwrap());
            let child =
                child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").output().unwrap();
            let text = String::from_utf8_lossy(&child.stdout).into_owned();
            // On one processor, the harness has printed the test's name on this line.
            text.lines().find_map(|line| line.split_once("regions ").map(|(_, it)| it.to_string()))
        };
        // Less than a gigabyte is the process's own.
        assert_eq!(regions(120).as_deref(), Some("[12, 12, 12, 12, 12, 12, 12, 12]"));
        assert_eq!(regions(62).as_deref(), Some("[12, 12, 12, 12, 12]"));
        assert_eq!(regions(58).as_deref(), Some("[12, 12, 12, 12, 8]"));
        assert_eq!(regions(26).as_deref(), Some("[12, 12]"));
        assert_eq!(regions(22).as_deref(), Some("[12, 8]"));
        assert_eq!(regions(6).as_deref(), Some("[4]"));
    }

    #[test]
    fn blocks_of_physical_memory_are_mapped_separately() {
        let (allocator, memory) = Memory::physical(DeviceId::HOST, "mock", 1 << 20);
        let [a, b] = [300, 400].map(|size| allocator.allocate(size).unwrap());
        let at = |x: &Buffer| allocator.resolve(x.handle(), x.size_bytes()).unwrap();
        let [at_a, at_b] = [&a, &b].map(at);
        assert!(at_b >= at_a + GUARD);
        assert!(memory.part(at_a, 385).is_none(), "beyond the block");
        assert_eq!(memory.of_words(a.handle().words()), Some(at_a));
        let part = memory.part(at_a, 300).unwrap();
        drop(a);
        assert_eq!(part.place().size_bytes(), 300, "work that has begun keeps its memory");
        assert!(memory.part(at_a, 1).is_none(), "unmapped");
        assert!(memory.part(at_b, 400).is_some());
        let nothing = allocator.allocate(0).unwrap();
        assert_eq!(at(&nothing), 0);
    }
}
