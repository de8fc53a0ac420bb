//! Device handles, which are opaque locations in a device's memory, and the map from handles to
//! addresses.

use std::fmt;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::Relaxed};

/// A device of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(u16);

impl DeviceId {
    /// The host processor, whose memory is the memory of the process.
    pub const HOST: DeviceId = DeviceId(0);

    /// A new id, unique in the process.
    pub fn unique() -> DeviceId {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        DeviceId(NEXT.fetch_add(1, Relaxed))
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}", self.0)
    }
}

/// A pool of device memory, which belongs to one allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(u32);

impl PoolId {
    /// The pool of memory that no allocator manages.
    const NONE: PoolId = PoolId(0);

    pub(crate) fn unique() -> PoolId {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        PoolId(NEXT.fetch_add(1, Relaxed))
    }
}

/// A location in a device's memory: a physical address, or a region that the device reserved and an
/// offset into the region. The handle has the ids of its device and its pool, so that a device can
/// reject handles of other devices and pools. Handles have no sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceHandle {
    device: DeviceId,
    /// [`PHYSICAL`] for a physical address.
    region: u16,
    pool: PoolId,
    /// The offset into the region in bytes, or the address.
    offset: u64,
}

const PHYSICAL: u16 = u16::MAX;

impl DeviceHandle {
    /// A location by its address on a device, for memory that no allocator of the device manages.
    /// The caller guarantees that the address is valid.
    pub fn physical(device: DeviceId, address: u64) -> Self {
        DeviceHandle { device, region: PHYSICAL, pool: PoolId::NONE, offset: address }
    }

    /// The handle of a block that a driver mapped at an address.
    pub(crate) fn mapped(device: DeviceId, pool: PoolId, address: u64) -> Self {
        DeviceHandle { device, region: PHYSICAL, pool, offset: address }
    }

    /// The handle of a block in a region. Allocators have fewer regions than a handle can number.
    pub(crate) fn region(device: DeviceId, pool: PoolId, id: usize, offset: usize) -> Self {
        debug_assert!(id < PHYSICAL as usize);
        DeviceHandle { device, region: id as u16, pool, offset: offset as u64 }
    }

    /// The device whose memory the handle refers to.
    pub fn device(self) -> DeviceId {
        self.device
    }

    /// The handle `bytes` bytes further on. The result must be inside the same block. Devices check
    /// this when they resolve the handle, and [`crate::Buffer::at`] checks immediately.
    pub fn offset(self, bytes: usize) -> Self {
        DeviceHandle { offset: self.offset + bytes as u64, ..self }
    }

    /// Region and offset; `None` for a physical address.
    pub(crate) fn region_offset(self) -> Option<(usize, usize)> {
        (self.region != PHYSICAL).then_some((self.region as usize, self.offset as usize))
    }

    /// The physical address; for a handle into a region, the offset.
    pub(crate) fn address(self) -> u64 {
        self.offset
    }

    /// The two words that a step writes for this handle: the physical address and 0; or the offset,
    /// and the region's index plus 1.
    pub fn words(self) -> [u64; 2] {
        match self.region {
            PHYSICAL => [self.offset, 0],
            region => [self.offset, u64::from(region) + 1],
        }
    }
}

impl fmt::Display for DeviceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeviceHandle { device, region, offset, .. } = self;
        match *region {
            PHYSICAL => write!(f, "{device}, address {offset:#x}"),
            region => write!(f, "{device}, region {region} + {offset:#x}"),
        }
    }
}

/// The addresses of a pool's regions in the device's address space.
#[derive(Clone, Debug)]
pub struct AddressMap {
    device: DeviceId,
    pool: PoolId,
    /// The base address and the size in bytes of each region.
    regions: Vec<(u64, usize)>,
}

impl AddressMap {
    pub(crate) fn new(device: DeviceId, pool: PoolId, regions: Vec<(u64, usize)>) -> AddressMap {
        AddressMap { device, pool, regions }
    }

    /// The device address of the `size` bytes at `handle`; `None` for a handle of another device or
    /// pool, an unknown region, or bytes beyond the region's end. Physical addresses are not
    /// checked.
    #[inline]
    pub fn resolve(&self, handle: DeviceHandle, size: usize) -> Option<u64> {
        if handle.device != self.device {
            return None;
        }
        let Some((id, offset)) = handle.region_offset() else {
            let known = handle.pool == PoolId::NONE || handle.pool == self.pool;
            return known.then_some(handle.offset);
        };
        let &(base, region) = self.regions.get(id).filter(|_| handle.pool == self.pool)?;
        let end = offset.checked_add(size)?;
        (end <= region).then_some(base + offset as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Allocator;
    use std::collections::HashSet;

    #[test]
    fn regions_and_addresses_resolve_on_their_own_device_only() {
        let (a, b) = (DeviceId::unique(), DeviceId::unique());
        let [pool, other] = [a, a].map(|id| Allocator::new(id, "test", &[256, 256]));
        let map = pool.map_at(&[0x1000, 0x9000]);
        let blocks = [pool.allocate(200).unwrap(), pool.allocate(200).unwrap()];
        assert_eq!(
            blocks.each_ref().map(|b| map.resolve(b.handle(), 200)),
            [Some(0x1000), Some(0x9000)]
        );
        let handle = blocks[1].handle();
        assert_eq!(map.resolve(handle.offset(56), 200), Some(0x9038));
        assert_eq!(map.resolve(handle.offset(57), 200), None, "beyond the region");
        assert_eq!(other.map_at(&[0, 0]).resolve(handle, 1), None, "another pool");
        let stranger = Allocator::new(b, "test", &[256]);
        assert_eq!(map.resolve(stranger.allocate(1).unwrap().handle(), 1), None, "another device");
        assert_eq!(map.resolve(DeviceHandle::physical(a, 77), 1), Some(77));
        assert_eq!(map.resolve(DeviceHandle::physical(b, 77), 1), None);
    }

    #[test]
    fn handles_compare_hash_and_print() {
        let (id, pool) = (DeviceId::unique(), PoolId::unique());
        let (low, high) =
            (DeviceHandle::region(id, pool, 0, 128), DeviceHandle::region(id, pool, 1, 0));
        assert!(low < high && low != high && low == low.offset(0));
        assert_eq!(HashSet::from([low, high, low]).len(), 2);
        assert_eq!(high.offset(0x80).to_string(), format!("{id}, region 1 + 0x80"));
        assert_eq!(DeviceHandle::physical(id, 16).to_string(), format!("{id}, address 0x10"));
        assert_eq!((high.words(), DeviceHandle::physical(id, 16).words()), ([0, 2], [16, 0]));
        assert_eq!(size_of::<DeviceHandle>(), 16);
    }
}
