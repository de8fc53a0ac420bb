//! Values: the data of tensors in device memory. The memory of a value is private to this module, so
//! that its other users need not change when a value has memory on several devices.

use crate::handle::Span;
use crate::{Buffer, Device, DeviceHandle, DeviceId, Result};
use std::sync::Arc;

/// A tensor's data: dense, row-major, from `offset` bytes into a shared buffer.
#[derive(Clone, Debug)]
pub struct Value {
    /// The memory.
    buffer: Arc<Buffer>,
    /// Bytes before the first element.
    offset: usize,
}

impl Value {
    /// The value at the start of a buffer.
    pub fn new(buffer: Buffer) -> Value {
        Value::at(Arc::new(buffer), 0)
    }

    /// The value that begins `offset` bytes into a shared buffer.
    #[inline]
    pub fn at(buffer: Arc<Buffer>, offset: usize) -> Value {
        Value { buffer, offset }
    }

    /// The value that begins `bytes` after this one, in the same memory.
    pub fn skip(&self, bytes: usize) -> Value {
        Value::at(self.buffer.clone(), self.offset.saturating_add(bytes))
    }

    /// The memory that holds the value, for work that keeps it alive.
    #[inline]
    pub(crate) fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Bytes of the buffer before the first element.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the value is in a block of the device's pool. False for memory of another owner, who
    /// may write it.
    pub fn is_pooled(&self) -> bool {
        self.buffer.is_pooled()
    }

    /// The device whose memory holds the value.
    #[inline]
    pub fn device(&self) -> DeviceId {
        self.buffer.handle().device()
    }

    /// Bytes from the first element to the end of the buffer.
    pub fn size_bytes(&self) -> usize {
        self.buffer.size_bytes().saturating_sub(self.offset)
    }

    /// The handle of the first element.
    pub fn handle(&self) -> DeviceHandle {
        self.buffer.handle().offset(self.offset)
    }

    /// Whether the value is a whole block of the pool with `size` bytes and this is the only
    /// reference to the block.
    pub(crate) fn is_alone(&self, size: usize) -> bool {
        self.offset == 0 && self.buffer.is_alone(size)
    }

    /// Fails unless the buffer holds `size` bytes from the first element on. Front ends that pass
    /// their own values are trusted for the offset, but not for the length.
    pub(crate) fn check_size(&self, size: usize, device: &dyn Device) -> Result<()> {
        self.buffer.check_size(self.offset.saturating_add(size), device)
    }

    /// The device address of the first element.
    ///
    /// Errors: [`crate::Error::InvalidHandle`] unless `size` bytes from there belong to the value.
    pub fn address(&self, size: usize, device: &dyn Device) -> Result<u64> {
        self.buffer.span(self.offset, size, device)?.address(size, device)
    }

    /// The first `size` bytes, for a caller that keeps the buffer alive.
    ///
    /// Errors: as [`Value::address`].
    pub(crate) fn span(&self, size: usize, device: &dyn Device) -> Result<Span> {
        self.buffer.span(self.offset, size, device)
    }
}
