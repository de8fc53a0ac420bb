//! Prepacked forms of a buffer's contents, which a device computes from contents that it reads
//! often: the weights of a GEMM in the layout of its micro-kernels.

use crate::Buffer;
use girih_sync::Mutex;
use std::sync::{Arc, PoisonError};

/// The key of a prepacked form: the parameters of the packing that the device used.
pub type PrepackKey = [usize; 6];

/// The number of reads after which contents are prepacked. Contents that are read less often are
/// replaced before the computation pays off.
const READS: u32 = 3;

/// The prepacked forms of a buffer, dropped with the buffer.
#[derive(Default)]
pub(crate) struct PrepackedForms(Mutex<Vec<Entry>>);

struct Entry {
    key: PrepackKey,
    /// The number of reads so far, up to [`READS`].
    reads: u32,
    prepacked: Option<Arc<Prepacked>>,
}

/// A prepacked form of a buffer's contents, with the accounting of its memory.
pub struct Prepacked {
    /// The memory of the form.
    pub buffer: Buffer,
    /// The accounting of the memory; dropped with the form.
    pub accounting: Box<dyn Send + Sync>,
}

impl PrepackedForms {
    /// The form with that key. `make` computes it once it has been requested [`READS`] times;
    /// `None` before then, and if `make` returned `None`.
    pub fn get(
        &self,
        key: &PrepackKey,
        make: impl FnOnce() -> Option<Prepacked>,
    ) -> Option<Arc<Prepacked>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
            entries.push(Entry { key: *key, reads: 0, prepacked: None });
            entries.len() - 1
        });
        let entry = &mut entries[at];
        if entry.reads < READS {
            entry.reads += 1;
            if entry.reads == READS {
                entry.prepacked = make().map(Arc::new);
            }
        }
        entry.prepacked.clone()
    }

    /// Drops all forms, because the contents change.
    pub fn clear(&self) {
        drop(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Allocator;
    use std::cell::Cell;

    #[test]
    fn contents_are_prepacked_once_when_they_are_read_repeatedly() {
        let allocator = Allocator::new(crate::DeviceId::HOST, "test", &[1 << 20]);
        let (forms, made) = (PrepackedForms::default(), Cell::new(0));
        let ask = |key: PrepackKey, room: usize| {
            let found = forms.get(&key, || {
                made.set(made.get() + 1);
                Some(Prepacked { buffer: allocator.allocate(room).ok()?, accounting: Box::new(()) })
            });
            found.is_some()
        };
        let (a, b) = ([0; 6], [1; 6]);
        assert_eq!(
            [ask(a, 256), ask(a, 256), ask(b, 256), ask(a, 256)],
            [false, false, false, true]
        );
        assert!(ask(a, 256) && !ask(b, 256));
        assert_eq!((made.get(), allocator.stats().in_use), (1, 256));
        assert!(!ask(b, 1 << 30), "there is no memory for it");
        assert!(!ask(b, 256), "and nobody tries again");
        assert_eq!(made.get(), 2);
        forms.clear();
        assert_eq!((ask(a, 256), allocator.stats().in_use), (false, 0));
    }
}
