//! Code of users, such as callbacks and the destructors of their objects: it may wait for anything,
//! fork the process, and call the library again. So it must not run in a section.

use crate::section::note_put_off;
use crate::{OnceLock, in_section};
use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;

thread_local! {
    /// The values that this thread drops at the end of its section.
    static PUT_OFF: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// A value whose destructor may run code of users. If it is dropped in a section, the value is
/// destroyed by the same thread at the end of the section, when the thread holds no lock.
pub struct Foreign<T: 'static>(ManuallyDrop<T>);

impl<T> Foreign<T> {
    /// Wraps a value.
    pub const fn new(value: T) -> Foreign<T> {
        Foreign(ManuallyDrop::new(value))
    }
}

impl<T> From<T> for Foreign<T> {
    fn from(value: T) -> Foreign<T> {
        Foreign::new(value)
    }
}

impl<T: Clone> Clone for Foreign<T> {
    fn clone(&self) -> Foreign<T> {
        Foreign::new((*self.0).clone())
    }
}

impl<T> Deref for Foreign<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: fmt::Debug> fmt::Debug for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T> Drop for Foreign<T> {
    fn drop(&mut self) {
        // SAFETY: the value is taken once, and never used again.
        let value = unsafe { ManuallyDrop::take(&mut self.0) };
        if !in_section() {
            return drop(value);
        }
        let mut value = Some(value);
        // A thread that is ending has no list any more, and enters no sections that last.
        let _ = PUT_OFF.try_with(|list| {
            list.borrow_mut().extend(value.take().map(|value| Box::new(value) as Box<dyn Any>));
            note_put_off();
        });
    }
}

/// Drops the values that were put off. Called at the end of a section.
#[cold]
pub(crate) fn drop_all_put_off() {
    // A destructor may enter sections and put off further values, so hold no borrow.
    while let Ok(Some(value)) = PUT_OFF.try_with(|list| list.borrow_mut().pop()) {
        drop(value);
    }
}

/// Checks, in debug builds, that code of users may run now: that this thread is in no section. Call
/// it before each call of such code, and before waiting for the interpreter.
#[inline]
#[track_caller]
pub fn assert_allowed() {
    debug_assert!(!in_section(), "code of users runs while this thread holds a lock");
}

/// A function that returns whether the calling thread has a lock, such as Python's interpreter
/// lock, for which code of users on other threads may wait.
pub type InterpreterProbe = fn() -> bool;

static INTERPRETER: OnceLock<InterpreterProbe> = OnceLock::new();

/// Sets the function by which debug builds check that no thread waits for a condition while it has
/// the interpreter. Only the first call has an effect.
pub fn set_interpreter_probe(probe: InterpreterProbe) {
    let _ = INTERPRETER.set(probe);
}

/// Checks, in debug builds, that this thread does not have the interpreter. Call it before waiting
/// for work of other threads.
#[inline]
#[track_caller]
pub fn assert_without_interpreter() {
    if cfg!(debug_assertions)
        && let Some(has_interpreter) = INTERPRETER.get()
    {
        assert!(!has_interpreter(), "a thread waits for another one and has the interpreter");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Mutex, Section};
    use std::sync::mpsc::{Sender, channel};

    /// Reports whether its destructor runs in a section.
    struct Probe(Sender<bool>);

    impl Drop for Probe {
        fn drop(&mut self) {
            self.0.send(in_section()).unwrap();
        }
    }

    #[test]
    fn destructors_of_users_run_after_the_section_in_which_the_value_was_dropped() {
        let (sender, dropped) = channel();
        let value = || Foreign::new(Probe(sender.clone()));
        drop(value());
        assert_eq!(dropped.try_recv(), Ok(false), "without a section, at once");
        let table = Mutex::new(vec![value(), value()]);
        let outer = Section::enter();
        table.lock().unwrap().clear();
        assert!(dropped.try_recv().is_err(), "not in the section");
        drop(outer);
        assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false, false]);
        table.lock().unwrap().push(value());
        table.lock().unwrap().clear();
        assert_eq!(dropped.try_recv(), Ok(false));
    }

    #[test]
    fn a_destructor_may_drop_further_values_in_sections() {
        struct Chain(Mutex<Option<Foreign<Box<dyn Any>>>>, Sender<bool>);
        impl Drop for Chain {
            fn drop(&mut self) {
                *self.0.lock().unwrap() = None;
                self.1.send(in_section()).unwrap();
            }
        }
        let (sender, dropped) = channel();
        let inner: Box<dyn Any> = Box::new(Probe(sender.clone()));
        let value = Foreign::new(Chain(Mutex::new(Some(Foreign::new(inner))), sender));
        let section = Section::enter();
        drop(value);
        drop(section);
        assert_eq!(dropped.try_iter().collect::<Vec<_>>(), [false, false]);
    }

    #[test]
    #[cfg(debug_assertions)]
    fn debug_builds_find_code_of_users_in_a_section() {
        assert_allowed();
        let section = Section::enter();
        assert!(std::panic::catch_unwind(assert_allowed).is_err());
        drop(section);
        assert_allowed();
    }
}
