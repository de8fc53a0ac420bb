//! Values made when first needed, within a section: the child of a fork would wait for ever for
//! another thread to finish making one.

use crate::Section;
use std::ops::Deref;

/// As [`std::sync::OnceLock`]. What makes the value obeys the law of sections.
#[derive(Debug)]
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// Nothing yet.
    pub const fn new() -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::new())
    }

    /// The value, if it was made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Sets the value, unless there is one: then it comes back.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _section = Section::enter();
        self.0.set(value)
    }

    /// The value, made by `make` if need be.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.0.get() {
            Some(value) => value,
            None => {
                let _section = Section::enter();
                self.0.get_or_init(make)
            }
        }
    }
}

/// As [`std::sync::LazyLock`], made by a function.
pub struct LazyLock<T> {
    value: OnceLock<T>,
    make: fn() -> T,
}

impl<T> LazyLock<T> {
    /// To be made by that function.
    pub const fn new(make: fn() -> T) -> LazyLock<T> {
        LazyLock { value: OnceLock::new(), make }
    }
}

impl<T> Deref for LazyLock<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.get_or_init(self.make)
    }
}
