//! Buffers, which own blocks of device memory.

use crate::allocator::Block;
use crate::handle::{Span, invalid};
use crate::prepacked::{PrepackKey, Prepacked, PrepackedForms};
use crate::{Device, DeviceHandle, DeviceId, Place, Result};
use girih_sync::Foreign;
use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

enum Owner {
    Pool(Block),
    /// Keeps memory alive that does not belong to the pool.
    Foreign(#[allow(dead_code, reason = "held for its drop")] Foreign<Box<dyn Any + Send + Sync>>),
}

/// A block of device memory, which returns to its pool when dropped. Queued work holds the buffers
/// that it uses, so a dropped buffer is reused only after the queued work is done. A block has one
/// owner, so a double free does not compile:
///
/// ```compile_fail,E0382
/// fn freed_twice(block: girih_runtime::Buffer) {
///     drop(block);
///     drop(block);
/// }
/// ```
pub struct Buffer {
    handle: DeviceHandle,
    size_bytes: usize,
    owner: Owner,
    /// Prepacked forms of the contents. Only for memory of the pool, because the contents of
    /// foreign memory may change.
    prepacked: PrepackedForms,
}

impl Buffer {
    /// A block of a pool, with at least `size_bytes` bytes.
    pub(crate) fn of_pool(handle: DeviceHandle, size_bytes: usize, block: Block) -> Buffer {
        Buffer {
            handle,
            size_bytes,
            owner: Owner::Pool(block),
            prepacked: PrepackedForms::default(),
        }
    }

    /// Host memory of another owner, read in place without a copy, as memory of the device with that
    /// id. The owner is dropped with the buffer, and must not change the bytes until then.
    pub fn shared(
        device: DeviceId,
        owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
        bytes: Range<usize>,
    ) -> Buffer {
        // The bytes are valid while the owner is borrowed; nobody borrows it mutably or moves it
        // while the buffer has a reference.
        let memory = &(*owner).as_ref()[bytes];
        let (start, size) = (memory.as_ptr() as u64, memory.len());
        Buffer::foreign(DeviceHandle::physical(device, start), size, Box::new(owner))
    }

    /// Host memory that the buffer owns alone and the device may write, as memory of the device
    /// with that id.
    pub fn owned(device: DeviceId, memory: impl AsMut<[u8]> + Send + Sync + 'static) -> Buffer {
        // Boxed, because memory inside of the value would move with it.
        let mut owner = Box::new(memory);
        let memory = (*owner).as_mut();
        let (start, size) = (memory.as_mut_ptr() as u64, memory.len());
        Buffer::foreign(DeviceHandle::physical(device, start), size, owner)
    }

    fn foreign(
        handle: DeviceHandle,
        size_bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Buffer {
        let (owner, prepacked) = (Owner::Foreign(owner.into()), PrepackedForms::default());
        Buffer { handle, size_bytes, owner, prepacked }
    }

    /// The handle of the block's first byte.
    pub fn handle(&self) -> DeviceHandle {
        self.handle
    }

    /// The bytes of the block, for a device that is called directly. Streams and queues order the
    /// uses of a block, and need no place.
    ///
    /// # Safety
    /// As long as the place or a copy of it is used, no queued work and no other thread writes the
    /// bytes; and if the place is written to, none reads them.
    #[allow(unsafe_code, reason = "the block may be shared, and nobody orders its users here")]
    pub unsafe fn place(&self) -> Place<'_> {
        self.whole().with_owner(self)
    }

    /// The bytes of the block, for work that keeps the buffer alive and is ordered by a queue.
    pub(crate) fn whole(&self) -> Span {
        Span { handle: self.handle, size: self.size_bytes }
    }

    /// The `size` bytes that begin at byte `offset` of the block, as [`Buffer::whole`].
    ///
    /// Errors: [`crate::Error::InvalidHandle`] unless all these bytes belong to the block.
    pub(crate) fn span(&self, offset: usize, size: usize, device: &dyn Device) -> Result<Span> {
        let part = self.whole().part(offset, size);
        part.ok_or_else(|| invalid(device, self.handle.offset(offset), size))
    }

    /// The device address of the first `size` bytes.
    ///
    /// Errors: [`crate::Error::InvalidHandle`] unless the block has them and is the device's.
    pub fn address(&self, size: usize, device: &dyn Device) -> Result<u64> {
        self.whole().address(size, device)
    }

    /// Whether the buffer is a block of the device's pool. False for memory of another owner, who
    /// may write it.
    pub(crate) fn is_pooled(&self) -> bool {
        matches!(self.owner, Owner::Pool(_))
    }

    /// Whether the buffer is a whole block of the pool with `size` bytes and this is the only
    /// reference to it.
    pub(crate) fn is_alone(self: &Arc<Buffer>, size: usize) -> bool {
        self.is_pooled() && self.size_bytes == size && Arc::strong_count(self) == 1
    }

    /// The number of usable bytes.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// A prepacked form of the contents. `make` computes it once the contents have been read often
    /// enough. `None` for memory of another owner, because that owner may change it.
    pub fn prepacked(
        &self,
        key: &PrepackKey,
        make: impl FnOnce() -> Option<Prepacked>,
    ) -> Option<Arc<Prepacked>> {
        match self.owner {
            Owner::Pool(_) => self.prepacked.get(key, make),
            Owner::Foreign(_) => None,
        }
    }

    /// Drops the prepacked forms, because the contents are about to change.
    pub(crate) fn drop_prepacked(&self) {
        self.prepacked.clear();
    }

    /// Fails unless the buffer has at least `size` bytes.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        if size <= self.size_bytes { Ok(()) } else { Err(invalid(device, self.handle, size)) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Pool(block) = &self.owner {
            block.free(self.handle, self.size_bytes);
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}, {} bytes)", self.handle, self.size_bytes)
    }
}
