//! Other forms of a buffer's contents, which a device makes of contents that it reads again and
//! again: packed weights of matrix products.

use crate::Buffer;
use girih_sync::Mutex;
use std::sync::{Arc, PoisonError};

/// What tells one form from another: whatever the device needs to know of it.
pub type FormKey = [usize; 6];

/// Reads of contents from which on a form of them is made: what is read less often is replaced
/// before that pays.
const READS: u32 = 3;

/// The forms that go with a buffer, and end with it.
#[derive(Default)]
pub(crate) struct Forms(Mutex<Vec<Entry>>);

struct Entry {
    key: FormKey,
    /// Reads so far, up to [`READS`].
    reads: u32,
    form: Option<Arc<Form>>,
}

/// A form of a buffer's contents, with what keeps count of such memory.
pub struct Form {
    /// Its memory.
    pub buffer: Buffer,
    /// Dropped with it.
    pub share: Box<dyn Send + Sync>,
}

impl Forms {
    /// The form of that key, made when it has been asked for often enough; `None` before, and where
    /// `make` makes none.
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

    /// Forgets all forms, as the contents change.
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
