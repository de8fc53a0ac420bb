//! Buffers: blocks of device memory with an owner, and the values that tensors have in them.

use crate::allocator::Block;
use crate::forms::{Form, FormKey, Forms};
use crate::{Device, DeviceHandle, Error, Result};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

enum Owner {
    Pool(Block),
    /// Keeps memory alive that the pool does not own.
    Foreign(#[allow(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>),
}

/// A block of device memory; returns to its pool when dropped. Queued work holds the buffers it
/// uses, so a buffer the user drops is reused only when that work is done. A block has one owner, so that
/// to free it twice does not compile:
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
    /// Of the pool's memory, whose contents nobody changes while somebody may read them.
    forms: Forms,
}

impl Buffer {
    /// Memory of a pool, of at least `size_bytes` bytes.
    pub(crate) fn of_pool(handle: DeviceHandle, size_bytes: usize, block: Block) -> Buffer {
        Buffer { handle, size_bytes, owner: Owner::Pool(block), forms: Forms::default() }
    }

    /// Memory of another owner, read in place. `owner` is dropped with the buffer and must keep
    /// the `size_bytes` bytes at `handle` valid and unchanged until then.
    pub fn foreign(
        handle: DeviceHandle,
        size_bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Buffer {
        Buffer { handle, size_bytes, owner: Owner::Foreign(owner), forms: Forms::default() }
    }

    /// Where the block begins.
    pub fn handle(&self) -> DeviceHandle {
        self.handle
    }

    /// The location `offset` bytes into the block, of `size` bytes.
    ///
    /// Errors: [`Error::InvalidHandle`] unless all the bytes are the block's.
    pub fn at(&self, offset: usize, size: usize, device: &dyn Device) -> Result<DeviceHandle> {
        self.check_size(offset.saturating_add(size), device)?;
        Ok(self.handle.offset(offset))
    }

    /// True for a block of the device's pool; false for memory of another owner, who might write it.
    pub fn is_pooled(&self) -> bool {
        matches!(self.owner, Owner::Pool(_))
    }

    /// Bytes that may be used.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Another form of the contents, which `make` makes of them when they have been read often
    /// enough. None for memory of another owner, who might change it after all.
    pub fn form(&self, key: &FormKey, make: impl FnOnce() -> Option<Form>) -> Option<Arc<Form>> {
        match self.owner {
            Owner::Pool(_) => self.forms.get(key, make),
            Owner::Foreign(_) => None,
        }
    }

    /// Forgets other forms: the contents will be others.
    pub(crate) fn forget_forms(&self) {
        self.forms.clear();
    }

    /// Fails unless `size` bytes from the start are the buffer's.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        if size <= self.size_bytes {
            return Ok(());
        }
        Err(Error::InvalidHandle {
            device: device.properties().name.clone(),
            handle: self.handle.to_string(),
            size,
        })
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

/// A tensor's data: dense, row-major, from `offset` bytes into a shared buffer.
#[derive(Clone, Debug)]
pub struct Value {
    /// The memory.
    pub buffer: Arc<Buffer>,
    /// Bytes before the first element.
    pub offset: usize,
}

impl Value {
    /// A value that begins where its buffer does.
    pub fn new(buffer: Buffer) -> Value {
        Value { buffer: Arc::new(buffer), offset: 0 }
    }

    /// Bytes from the first element to the end of the buffer.
    pub fn size_bytes(&self) -> usize {
        self.buffer.size_bytes.saturating_sub(self.offset)
    }

    /// Where the first element is.
    pub fn handle(&self) -> DeviceHandle {
        self.buffer.handle.offset(self.offset)
    }

    /// True if the value is all of a block of the pool, of that many bytes, and nobody else has it.
    pub(crate) fn is_alone(&self, size: usize) -> bool {
        let whole = self.offset == 0 && self.buffer.size_bytes == size;
        whole && matches!(self.buffer.owner, Owner::Pool(_)) && Arc::strong_count(&self.buffer) == 1
    }

    /// Fails unless the buffer holds `size` bytes from the first element on: values lent by front
    /// ends are taken at their word for where they are, not for how long.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        self.buffer.check_size(self.offset.saturating_add(size), device)
    }

    /// The device address of the first element.
    ///
    /// Errors: [`Error::InvalidHandle`] unless `size` bytes from there are the value's.
    pub fn address(&self, size: usize, device: &dyn Device) -> Result<u64> {
        self.check_size(size, device)?;
        device.resolve(self.handle(), size)
    }
}
