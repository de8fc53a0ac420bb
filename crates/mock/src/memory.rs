//! The mock's memory: mappings of the process, at device addresses that differ from host addresses,
//! so that using an address on the wrong side is detected.

use girih_runtime::{AddressMap, Allocator, DeviceHandle, DeviceId, PhysicalMemory};
use girih_sync::{Mutex, MutexGuard};
use memmap2::{MmapMut, MmapOptions};
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
    Regions {
        addresses: AddressMap,
        regions: Vec<Mapping>,
    },
    /// Each block is a separate mapping.
    Physical {
        addresses: AddressMap,
        driver: Driver,
    },
}

/// Host memory that backs device memory.
pub(crate) struct Mapping {
    /// The host address.
    host: u64,
    size: usize,
    #[allow(dead_code, reason = "holds the memory that `host` is the address of")]
    memory: MmapMut,
}

impl Mapping {
    /// Reserves memory; the system commits pages when they are first accessed.
    fn new(size: usize) -> io::Result<Mapping> {
        let mut memory = MmapOptions::new().len(size.max(1)).no_reserve_swap().map_anon()?;
        Ok(Mapping { host: memory.as_mut_ptr() as u64, size, memory })
    }

    fn at(&self, offset: u64, size: usize) -> Option<u64> {
        let end = usize::try_from(offset).ok()?.checked_add(size)?;
        (end <= self.size).then_some(self.host + offset)
    }
}

/// A driver that maps and unmaps blocks; a reference-counted handle.
#[derive(Clone, Default)]
pub(crate) struct Driver(Arc<Mutex<Mappings>>);

#[derive(Default)]
struct Mappings {
    /// The mappings by device address.
    blocks: BTreeMap<u64, Mapping>,
    /// The size of the address space used so far; addresses are not reused.
    used: u64,
}

impl Driver {
    fn lock(&self) -> MutexGuard<'_, Mappings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PhysicalMemory for Driver {
    fn map(&self, size: usize) -> Option<u64> {
        let mapping = Mapping::new(size).ok()?;
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
    /// Reserves regions of these sizes, with an allocator.
    ///
    /// Errors: the system's, if a region cannot be reserved.
    pub fn regions(
        id: DeviceId,
        name: &str,
        sizes: &[usize],
    ) -> io::Result<(Arc<Allocator>, Memory)> {
        let regions = sizes.iter().map(|&size| Mapping::new(size)).collect::<io::Result<_>>()?;
        let allocator = Allocator::new(id, name, sizes);
        let addresses = allocator.map_at(&bases(sizes.len()));
        Ok((allocator, Memory::Regions { addresses, regions }))
    }

    /// Physical memory with at most `capacity` bytes, with an allocator.
    pub fn physical(id: DeviceId, name: &str, capacity: usize) -> (Arc<Allocator>, Memory) {
        let driver = Driver::default();
        let allocator = Allocator::physical(id, name, capacity, Box::new(driver.clone()));
        let addresses = allocator.map_at(&[]);
        (allocator, Memory::Physical { addresses, driver })
    }

    /// The device address of a handle; `None` unless `size` bytes there belong to the device.
    pub fn resolve(&self, handle: DeviceHandle, size: usize) -> Option<u64> {
        let addresses = match self {
            Memory::Regions { addresses, .. } | Memory::Physical { addresses, .. } => addresses,
        };
        let address = addresses.resolve(handle, size)?;
        self.host(address, size).map(|_| address)
    }

    /// The device address of a handle given as two words.
    pub fn of_words(&self, words: [u64; 2]) -> Option<u64> {
        match words {
            [address, 0] => Some(address),
            [offset, region] => Some((region << REGION_SHIFT) + offset),
        }
    }

    /// The host address of a device address; `None` unless `size` bytes there belong to the device.
    /// Address 0 is valid for 0 bytes of physical memory.
    pub fn host(&self, address: u64, size: usize) -> Option<u64> {
        match self {
            Memory::Regions { regions, .. } => {
                let index = (address >> REGION_SHIFT).checked_sub(1)?;
                let region = regions.get(usize::try_from(index).ok()?)?;
                region.at(address & ((1 << REGION_SHIFT) - 1), size)
            }
            Memory::Physical { driver, .. } => {
                let mappings = driver.lock();
                match mappings.blocks.range(..=address).next_back() {
                    Some((start, mapping)) => mapping.at(address - start, size),
                    None => (address == 0 && size == 0).then_some(0),
                }
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
        let id = DeviceId::unique();
        let (allocator, memory) = Memory::regions(id, "mock", &DEFAULT_REGIONS).unwrap();
        assert_eq!(allocator.stats().capacity, 103_079_215_104);
        let block = allocator.allocate(1 << 30).unwrap();
        let address = memory.resolve(block.handle(), 1 << 30).unwrap();
        assert_eq!(address, 1 << REGION_SHIFT);
        assert!(memory.host(address, 1).is_some_and(|host| host != address));
        assert_eq!(memory.host(address, (12 << 30) + 1), None, "beyond the region");
        assert_eq!(memory.host(9 << REGION_SHIFT, 1), None, "no such region");
        assert_eq!(memory.host(77, 0), None, "a host address");
        assert_eq!(memory.of_words(block.handle().words()), Some(address));
    }

    #[test]
    fn blocks_of_physical_memory_are_mapped_separately() {
        let id = DeviceId::unique();
        let (allocator, memory) = Memory::physical(id, "mock", 1 << 20);
        let [a, b] = [300, 400].map(|size| allocator.allocate(size).unwrap());
        let [at_a, at_b] = [&a, &b].map(|x| memory.resolve(x.handle(), x.size_bytes()).unwrap());
        assert!(at_b >= at_a + GUARD);
        assert_eq!(memory.host(at_a, 385), None, "beyond the block");
        assert_eq!(memory.of_words(a.handle().words()), Some(at_a));
        drop(a);
        assert_eq!(memory.host(at_a, 1), None, "unmapped");
        assert!(memory.host(at_b, 400).is_some());
        let nothing = allocator.allocate(0).unwrap();
        assert!(memory.resolve(nothing.handle(), 0).is_some());
    }
}
