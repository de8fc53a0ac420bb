//! What the host keeps of arguments' contents from one run to the next: packed weights.

use crate::HostDevice;
use girih_runtime::{Buffer, Device, Form, FormKey};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Of the device's memory, the part that forms may take: one in so many bytes.
const SHARE: usize = 8;

/// Who keeps other forms of arguments' contents.
pub(crate) trait Keep {
    /// The form of that key of a buffer, of so many bytes, which `make` writes when it is time; false
    /// if it could not.
    fn form(
        &self,
        buffer: usize,
        key: &FormKey,
        bytes: usize,
        make: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<Kept>;
}

/// A form that is kept, and where its memory is.
pub(crate) struct Kept {
    /// Keeps it alive.
    #[allow(dead_code, reason = "held for its drop")]
    pub form: Arc<dyn Any + Send + Sync>,
    pub start: *const u8,
}

/// Bytes of all forms of a device's buffers.
#[derive(Clone, Default)]
pub(crate) struct KeptBytes(Arc<AtomicUsize>);

/// A form's part of them.
struct Counted {
    all: KeptBytes,
    bytes: usize,
}

impl KeptBytes {
    /// Counts so many more, if that leaves no more than `most`.
    fn count(&self, bytes: usize, most: usize) -> Option<Box<dyn Send + Sync>> {
        let more = |all: usize| all.checked_add(bytes).filter(|all| *all <= most);
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
pub(crate) struct Weights<'a> {
    pub device: &'a HostDevice,
    pub weights: &'a [(usize, Arc<Buffer>)],
}

impl Keep for Weights<'_> {
    fn form(
        &self,
        buffer: usize,
        key: &FormKey,
        bytes: usize,
        make: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<Kept> {
        let (_, memory) = self.weights.iter().find(|(of, _)| *of == buffer)?;
        let address = |form: &Form| self.device.resolve(form.buffer.handle(), bytes).ok();
        let form = memory.form(key, || {
            let most = self.device.properties().memory_bytes / SHARE;
            let share = self.device.kept_bytes().count(bytes, most)?;
            let buffer = self.device.allocator().allocate(bytes).ok()?;
            let form = Form { buffer, share };
            make(address(&form)? as *mut u8).then_some(form)
        })?;
        Some(Kept { start: address(&form)? as *const u8, form })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_take_no_more_than_their_share() {
        let all = KeptBytes::default();
        let first = all.count(60, 100);
        assert!(
            first.is_some() && all.count(50, 100).is_none() && all.count(usize::MAX, 100).is_none()
        );
        drop(first);
        assert!(all.count(100, 100).is_some());
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
