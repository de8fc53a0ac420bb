//! Other forms of a buffer's contents, which a device computes from contents that it reads often,
//! such as packed GEMM weights.

use crate::Buffer;
use girih_sync::Mutex;
use std::sync::{Arc, PoisonError};

/// The key of a form: the parameters of the transformation that the device used.
pub type FormKey = [usize; 6];

/// The number of reads after which a form is computed. Contents that are read less often are
/// replaced before the computation pays off.
const READS: u32 = 3;

/// The forms of a buffer, dropped with the buffer.
#[derive(Default)]
pub(crate) struct Forms(Mutex<Vec<Entry>>);

struct Entry {
    key: FormKey,
    /// The number of reads so far, up to [`READS`].
    reads: u32,
    form: Option<Arc<Form>>,
}

/// A form of a buffer's contents, with the accounting of its memory.
pub struct Form {
    /// The memory of the form.
    pub buffer: Buffer,
    /// The accounting of the memory; dropped with the form.
    pub share: Box<dyn Send + Sync>,
}

impl Forms {
    /// The form with that key. `make` computes it once it has been requested [`READS`] times;
    /// `None` before then, and if `make` returned `None`.
    pub fn get(&self, key: &FormKey, make: impl FnOnce() -> Option<Form>) -> Option<Arc<Form>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = entries.iter().position(|entry| entry.key == *key).unwrap_or_else(|| {
            entries.push(Entry { key: *key, reads: 0, form: None });
            entries.len() - 1
        });
        let entry = &mut entries[at];
        if entry.reads < READS {
            entry.reads += 1;
            if entry.reads == READS {
                entry.form = make().map(Arc::new);
            }
        }
        entry.form.clone()
    }

    /// Drops all forms, because the contents change.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Allocator;
    use std::cell::Cell;

    #[test]
    fn a_form_is_made_once_when_contents_are_read_again_and_again() {
        let allocator = Allocator::new(crate::DeviceId::HOST, "test", &[1 << 20]);
        let (forms, made) = (Forms::default(), Cell::new(0));
        let ask = |key: FormKey, room: usize| {
            let found = forms.get(&key, || {
                made.set(made.get() + 1);
                Some(Form { buffer: allocator.allocate(room).ok()?, share: Box::new(()) })
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
