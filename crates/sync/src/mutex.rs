//! The standard library's mutex, held within a section.

use crate::Section;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// As [`std::sync::Mutex`], and free in the child of a fork.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// What it guards.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until nobody holds it.
    #[inline]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let section = Section::enter();
        match self.0.lock() {
            Ok(guard) => Ok(MutexGuard { guard, mutex: self, _section: section }),
            Err(poisoned) => {
                let guard = poisoned.into_inner();
                Err(PoisonError::new(MutexGuard { guard, mutex: self, _section: section }))
            }
        }
    }

    /// Holds it if nobody does.
    #[inline]
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let section = Section::enter();
        match self.0.try_lock() {
            Ok(guard) => Ok(MutexGuard { guard, mutex: self, _section: section }),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                let guard = poisoned.into_inner();
                let guard = MutexGuard { guard, mutex: self, _section: section };
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
        }
    }

    /// What it guards, which nobody else can reach.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Holds a [`Mutex`] while it lives.
pub struct MutexGuard<'a, T: ?Sized> {
    // Dropped in this order: the section ends when the lock is free.
    guard: std::sync::MutexGuard<'a, T>,
    pub(crate) mutex: &'a Mutex<T>,
    _section: Section,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
