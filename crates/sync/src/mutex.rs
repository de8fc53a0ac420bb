//! A mutex that is held within a section.

use crate::Section;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

/// As [`std::sync::Mutex`], but free in the child of a fork.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    /// The guarded value.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex; blocks while another thread holds it.
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

    /// Locks the mutex if no thread holds it.
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

    /// Replaces the guarded value and returns the old one, for the caller to drop without the lock.
    pub fn replace(&self, value: T) -> T
    where
        T: Sized,
    {
        let mut guard = self.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *guard, value)
    }

    /// Takes the guarded value and leaves the default; see [`Mutex::replace`].
    pub fn take(&self) -> T
    where
        T: Sized + Default,
    {
        self.replace(T::default())
    }

    /// The guarded value, without locking, since the borrow is exclusive.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Keeps a [`Mutex`] locked while it lives.
pub struct MutexGuard<'a, T: ?Sized> {
    // Fields drop in this order: the section ends after the lock is released.
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
