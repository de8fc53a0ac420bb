//! Device handles, which are opaque locations in a device's memory, and the map from handles to
//! addresses.

use crate::{Device, Error, Result};
use std::fmt;
use std::marker::PhantomData;
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(u32);

impl PoolId {
    /// The pool of memory that no allocator manages.
    pub(crate) const NONE: PoolId = PoolId(0);

    pub(crate) fn unique() -> PoolId {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        PoolId(NEXT.fetch_add(1, Relaxed))
    }
}

/// A location in a device's memory: a physical address, or a region that the device reserved and an
/// offset into the region. The handle has the ids of its device and its pool, so that a device can
/// reject handles of other devices and pools. Handles have no sizes. Only buffers have handles, and
/// only a [`Place`] gives access to memory, so a program cannot make one for other memory:
///
/// ```compile_fail,E0624
/// use girih_runtime::{DeviceHandle, DeviceId};
/// DeviceHandle::physical(DeviceId::HOST, 0x1000);
/// ```
///
/// ```compile_fail,E0624
/// fn beyond(block: &girih_runtime::Buffer) -> girih_runtime::DeviceHandle {
///     block.handle().offset(1 << 20)
/// }
/// ```
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
    pub(crate) fn physical(device: DeviceId, address: u64) -> Self {
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

    /// The handle `bytes` bytes further on, for callers that know that it is inside the same block;
    /// [`crate::Buffer::at`] checks it.
    pub(crate) fn offset(self, bytes: usize) -> Self {
        DeviceHandle { offset: self.offset.wrapping_add(bytes as u64), ..self }
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

/// Bytes of a block that the owner of the span keeps alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub handle: DeviceHandle,
    pub size: usize,
}

impl Span {
    /// The place of these bytes while `self` is borrowed, which lives in what keeps them alive.
    pub fn place(&self) -> Place<'_> {
        self.with_owner(self)
    }

    /// The `size` bytes from byte `offset` on; `None` unless all of them are in this span.
    pub fn part(self, offset: usize, size: usize) -> Option<Span> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.size);
        inside.then_some(Span { handle: self.handle.offset(offset), size })
    }

    /// As [`Place::address`].
    pub fn address(self, size: usize, device: &dyn Device) -> Result<u64> {
        let Span { handle, size: most } = self;
        let found = if size <= most { device.allocator().resolve(handle, size) } else { None };
        found.ok_or_else(|| invalid(device, handle, size))
    }

    /// The place of these bytes while their owner is borrowed.
    pub fn with_owner<T: ?Sized>(self, _: &T) -> Place<'_> {
        Place { span: self, owner: PhantomData, thread: PhantomData }
    }
}

/// Bytes of a live block of device memory that a device may read or write now. A device gets places
/// from the queues, which order the uses of a block; who calls a device without a queue vouches for
/// the order ([`crate::Buffer::place`]). A place is inside of a block, and does not outlive the
/// block:
///
/// ```compile_fail,E0505
/// fn late(block: girih_runtime::Buffer, device: &dyn girih_runtime::Device) {
///     let place = unsafe { block.place() };
///     drop(block);
///     device.copy_to_device(None, &[0], place).unwrap();
/// }
/// ```
///
/// A place stays on its thread, so that two threads cannot use the bytes at once:
///
/// ```compile_fail,E0277
/// fn twice(place: girih_runtime::Place<'_>, device: &dyn girih_runtime::Device) {
///     std::thread::scope(|scope| {
///         scope.spawn(|| device.copy_to_device(None, &[0], place));
///         device.copy_to_device(None, &[1], place).unwrap();
///     });
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    span: Span,
    owner: PhantomData<&'a ()>,
    thread: PhantomData<*const ()>,
}

impl<'a> Place<'a> {
    /// The handle of the first byte.
    pub fn handle(self) -> DeviceHandle {
        self.span.handle
    }

    /// The number of bytes.
    pub fn size_bytes(self) -> usize {
        self.span.size
    }

    /// The `size` bytes from byte `offset` on; `None` unless all of them are in this place.
    pub fn part(self, offset: usize, size: usize) -> Option<Place<'a>> {
        self.span.part(offset, size).map(|span| Place { span, ..self })
    }

    /// As [`Place::part`], with the error for a device of that name.
    pub(crate) fn inside(
        self,
        offset: usize,
        size: usize,
        device: impl FnOnce() -> String,
    ) -> Result<Place<'a>> {
        self.part(offset, size).ok_or_else(|| {
            let handle = self.span.handle.offset(offset).to_string();
            Error::InvalidHandle { device: device(), handle, size }
        })
    }

    /// The device's address of the first `size` bytes.
    ///
    /// Errors: [`Error::InvalidHandle`] if the place has fewer bytes, or belongs to another device.
    pub fn address(self, size: usize, device: &dyn Device) -> Result<u64> {
        self.span.address(size, device)
    }
}

/// The error for bytes at a handle that are no memory of the device.
#[cold]
pub(crate) fn invalid(device: &dyn Device, handle: DeviceHandle, size: usize) -> Error {
    let device = device.properties().name.clone();
    Error::InvalidHandle { device, handle: handle.to_string(), size }
}

/// The addresses of a pool's regions in the device's address space.
#[derive(Clone, Debug)]
pub(crate) struct AddressMap {
    device: DeviceId,
    pool: PoolId,
    /// The base address and the size in bytes of each region.
    regions: Vec<(u64, usize)>,
}

impl AddressMap {
    pub fn new(device: DeviceId, pool: PoolId, regions: Vec<(u64, usize)>) -> AddressMap {
        AddressMap { device, pool, regions }
    }

    /// The device address of the `size` bytes at `handle`; `None` for a handle of another device or
    /// pool, an unknown region, or bytes beyond the region's end. Addresses are those of a driver,
    /// of memory that its owner keeps, or of bytes that were resolved before.
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
    use crate::testing::MockDevice;
    use crate::{Allocator, Buffer, Repeat, Runs};
    use std::collections::HashSet;
    use std::sync::Arc;

    #[test]
    fn regions_and_addresses_resolve_on_their_own_device_only() {
        let (a, b) = (DeviceId::unique(), DeviceId::unique());
        let [pool, other] = [a, a].map(|id| Allocator::new(id, "test", &[256, 256]));
        let block = pool.allocate(200).unwrap();
        assert_eq!(pool.resolve(block.handle(), 200), None, "no region has an address yet");
        pool.place_regions(&[0x1000, 0x9000]);
        other.place_regions(&[0x1000, 0x9000]);
        let blocks = [block, pool.allocate(200).unwrap()];
        assert_eq!(
            blocks.each_ref().map(|b| pool.resolve(b.handle(), 200)),
            [Some(0x1000), Some(0x9000)]
        );
        pool.place_regions(&[0, 0]);
        assert_eq!(pool.resolve(blocks[0].handle(), 1), Some(0x1000), "regions are placed once");
        let handle = blocks[1].handle();
        assert_eq!(pool.resolve(handle.offset(56), 200), Some(0x9038));
        assert_eq!(pool.resolve(handle.offset(57), 200), None, "beyond the region");
        assert_eq!(pool.resolve(handle.offset(usize::MAX), 200), None, "overflow");
        assert_eq!(other.resolve(handle, 1), None, "another pool");
        let stranger = Allocator::new(b, "test", &[256]);
        assert_eq!(pool.resolve(stranger.allocate(1).unwrap().handle(), 1), None, "another device");
        assert_eq!(pool.resolve(DeviceHandle::physical(a, 77), 1), Some(77));
        assert_eq!(pool.resolve(DeviceHandle::physical(b, 77), 1), None);
        // A device has handles of one kind: the address of another pool is refused, too.
        assert_eq!(pool.resolve(DeviceHandle::mapped(a, other.pool_id(), 0x1000), 1), None);
    }

    #[test]
    fn a_place_ends_with_its_block() {
        let device = MockDevice::new(std::time::Duration::ZERO);
        let [first, second] = [100, 100].map(|size| device.allocator().allocate(size).unwrap());
        device.copy_to_device(None, &[7; 100], second.whole().place()).unwrap();
        // Both blocks are in one region, so the end of the region does not stop the copy.
        let place = first.whole().with_owner(&first);
        assert_eq!(second.handle(), first.handle().offset(128));
        let refused = |result| assert!(matches!(result, Err(Error::InvalidHandle { .. })));
        refused(device.copy_to_device(None, &[1; 101], place));
        refused(device.copy_from_device(None, place, &mut [0; 129]));
        refused(device.copy_on_device(None, (place, second.whole().place()), &Runs::dense(101)));
        let far = Repeat { count: 2, source: 128, target: 1 };
        let runs = Runs { run: 1, repeats: [far].as_slice().into() };
        refused(device.copy_on_device(None, (place, second.whole().place()), &runs));
        assert!(place.part(100, 0).is_some() && place.part(100, 1).is_none());
        assert!(place.part(usize::MAX, 2).is_none() && place.part(1, usize::MAX).is_none());
        let part = place.part(40, 60).unwrap();
        assert_eq!((part.handle(), part.size_bytes()), (first.handle().offset(40), 60));
        refused(first.span(60, 41, &*device).map(drop));
        let other = MockDevice::new(std::time::Duration::ZERO);
        refused(other.copy_to_device(None, &[1], place));
        let mut found = [0; 100];
        device.copy_from_device(None, second.whole().place(), &mut found).unwrap();
        assert_eq!(found, [7; 100], "nobody else wrote to the block");
    }

    #[test]
    fn memory_of_an_owner_is_shared_within_its_bounds() {
        let owner: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(vec![1u8, 2, 3, 4]);
        let start = (*owner).as_ref().as_ptr() as u64;
        let shared = Buffer::shared(DeviceId::HOST, owner.clone(), 1..3);
        assert_eq!((shared.handle().words(), shared.size_bytes()), ([start + 1, 0], 2));
        assert!(!shared.is_pooled() && Arc::strong_count(&owner) == 2);
        drop(shared);
        assert_eq!(Arc::strong_count(&owner), 1);
        let owned = Buffer::owned(DeviceId::HOST, [5u8; 8]);
        assert_eq!((owned.size_bytes(), owned.handle().device()), (8, DeviceId::HOST));
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
