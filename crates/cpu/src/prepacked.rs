//! Prepacked weights: packed forms of arguments that the host stores from one run to the next.

use crate::HostDevice;
use girih_runtime::{Buffer, Device, PrepackKey, Prepacked};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The fraction of the device's memory that prepacked weights may take: one in so many bytes.
const MEMORY_FRACTION: usize = 8;

/// A store of prepacked weights.
pub(crate) trait PrepackedStore {
    /// The prepacked weights with that key of a buffer, of so many bytes. If the store decides to
    /// create it, `pack` writes it, and returns false on failure.
    fn get_or_pack(
        &self,
        buffer: usize,
        key: &PrepackKey,
        bytes: usize,
        pack: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights>;
}

/// Prepacked weights, and their address.
pub(crate) struct PrepackedWeights {
    /// Keeps the weights alive.
    #[allow(dead_code, reason = "held for its drop")]
    pub packed: Arc<dyn Any + Send + Sync>,
    pub start: *const u8,
}

/// The bytes of all prepacked forms of a device's buffers.
#[derive(Clone, Default)]
pub(crate) struct PrepackedBytes(Arc<AtomicUsize>);

/// The bytes of one prepacked form.
struct Counted {
    all: PrepackedBytes,
    bytes: usize,
}

impl PrepackedBytes {
    /// Adds bytes to the count, unless it would exceed `max`.
    fn count(&self, bytes: usize, max: usize) -> Option<Box<dyn Send + Sync>> {
        let more = |all: usize| all.checked_add(bytes).filter(|all| *all <= max);
        self.0.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Box::new(Counted { all: self.clone(), bytes }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// The weights of a launch.
pub(crate) struct LaunchWeights<'a> {
    pub device: &'a HostDevice,
    pub weights: &'a [(usize, Arc<Buffer>)],
}

impl PrepackedStore for LaunchWeights<'_> {
    fn get_or_pack(
        &self,
        buffer: usize,
        key: &PrepackKey,
        bytes: usize,
        pack: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights> {
        let (_, memory) = self.weights.iter().find(|(of, _)| *of == buffer)?;
        let address = |packed: &Prepacked| self.device.resolve(packed.buffer.handle(), bytes).ok();
        let packed = memory.prepacked(key, || {
            let max = self.device.properties().memory_bytes / MEMORY_FRACTION;
            let accounting = self.device.prepacked_bytes().count(bytes, max)?;
            let buffer = self.device.allocator().allocate(bytes).ok()?;
            let packed = Prepacked { buffer, accounting };
            pack(address(&packed)? as *mut u8).then_some(packed)
        })?;
        Some(PrepackedWeights { start: address(&packed)? as *const u8, packed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepacked_weights_take_no_more_than_their_part() {
        let all = PrepackedBytes::default();
        let first = all.count(60, 100);
        assert!(
            first.is_some() && all.count(50, 100).is_none() && all.count(usize::MAX, 100).is_none()
        );
        drop(first);
        assert!(all.count(100, 100).is_some());
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
