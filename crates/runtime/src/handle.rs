//! Device handles: opaque locations in a device's memory.

use std::fmt;

/// A location in a device's memory, produced by the allocator. Sizes are kept beside handles, not
/// in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceHandle(Location);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Location {
    Physical(u64),
    Region { id: u32, offset: u64 },
}

impl DeviceHandle {
    /// A location by its address: memory lent to the device by someone else.
    pub fn physical(address: u64) -> Self {
        DeviceHandle(Location::Physical(address))
    }

    /// A location inside a region the device reserved.
    pub(crate) fn region(id: u32, offset: u64) -> Self {
        DeviceHandle(Location::Region { id, offset })
    }

    /// The location `bytes` further on. The result must stay inside the same block; devices check
    /// that when they resolve it.
    pub fn offset(self, bytes: usize) -> Self {
        DeviceHandle(match self.0 {
            Location::Physical(address) => Location::Physical(address + bytes as u64),
            Location::Region { id, offset } => {
                Location::Region { id, offset: offset + bytes as u64 }
            }
        })
    }

    /// The device address of `size` bytes here, given base address and size of each region; `None`
    /// for an unknown region or bytes beyond its end. A physical address is its owner's word.
    pub fn resolve(self, regions: &[(u64, usize)], size: usize) -> Option<u64> {
        match self.0 {
            Location::Physical(address) => Some(address),
            Location::Region { id, offset } => {
                let &(base, region) = regions.get(id as usize)?;
                let end = offset.checked_add(size as u64)?;
                (end <= region as u64).then_some(base + offset)
            }
        }
    }

    pub(crate) fn region_offset(self) -> Option<(usize, usize)> {
        match self.0 {
            Location::Region { id, offset } => Some((id as usize, offset as usize)),
            Location::Physical(_) => None,
        }
    }
}

impl fmt::Display for DeviceHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Location::Physical(address) => write!(f, "address {address:#x}"),
            Location::Region { id, offset } => write!(f, "region {id} + {offset:#x}"),
        }
    }
}
