//! Values that are initialised on first use, within a section. Otherwise the child of a fork could
//! wait forever for another thread to finish the initialisation.

use crate::Section;
use std::ops::Deref;

/// As [`std::sync::OnceLock`]. The initialiser must obey the rule of sections.
#[derive(Debug)]
pub struct OnceLock<T>(std::sync::OnceLock<T>);

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> OnceLock<T> {
    /// An uninitialised cell.
    pub const fn new() -> OnceLock<T> {
        OnceLock(std::sync::OnceLock::new())
    }

    /// The value, if it is initialised.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.0.get()
    }

    /// Sets the value; returns it as an error if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _section = Section::enter();
        self.0.set(value)
    }

    /// The value; initialises it with `make` on first use.
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

/// As [`std::sync::LazyLock`], initialised by a function pointer.
pub struct LazyLock<T> {
    value: OnceLock<T>,
    make: fn() -> T,
}

impl<T> LazyLock<T> {
    /// A value that `make` initialises on first use.
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
