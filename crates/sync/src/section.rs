//! Sections: code during which no other thread can fork the process.

use crate::{barrier, fork};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use std::time::Duration;

/// The section depth of one thread. Each slot has its own cache line; slots are reused and never
/// freed.
#[repr(align(64))]
struct Slot {
    depth: AtomicU32,
    taken: AtomicBool,
    /// Whether the thread has put off dropping values to the end of its section.
    put_off: AtomicBool,
    next: AtomicPtr<Slot>,
}

/// All slots that were ever created.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// The number of threads that are forking. While it is nonzero, no other thread enters a section.
static CLOSED: AtomicUsize = AtomicUsize::new(0);

/// Releases the slot when its thread ends.
struct Own(Cell<Option<&'static Slot>>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.taken.store(false, Release);
        }
    }
}

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

/// The slot of this thread; `None` once the thread-local storage is destroyed.
fn own() -> Option<&'static Slot> {
    let slot = OWN.try_with(|own| match own.0.get() {
        Some(slot) => slot,
        None => {
            fork::watch();
            let slot = claim();
            own.0.set(Some(slot));
            slot
        }
    });
    slot.ok()
}

fn claim() -> &'static Slot {
    let mut at = SLOTS.load(Acquire);
    // SAFETY: slots are leaked.
    while let Some(slot) = unsafe { at.as_ref() } {
        if slot.depth.load(Relaxed) == 0
            && slot.taken.compare_exchange(false, true, AcqRel, Relaxed).is_ok()
        {
            return slot;
        }
        at = slot.next.load(Relaxed);
    }
    let slot: &'static Slot = Box::leak(Box::new(Slot {
        depth: AtomicU32::new(0),
        taken: AtomicBool::new(true),
        put_off: AtomicBool::new(false),
        next: AtomicPtr::default(),
    }));
    let mut first = SLOTS.load(Acquire);
    loop {
        slot.next.store(first, Relaxed);
        let new = ptr::from_ref(slot).cast_mut();
        match SLOTS.compare_exchange_weak(first, new, AcqRel, Acquire) {
            Ok(_) => return slot,
            Err(other) => first = other,
        }
    }
}

/// While this value lives, no other thread forks the process. Sections nest.
pub struct Section {
    slot: &'static Slot,
    /// Whether the slot is this section's alone, because the thread is ending and has none.
    alone: bool,
    /// Not `Send`, since a section belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl Section {
    /// Enters a section. Waits while another thread forks, unless this thread is already in a
    /// section.
    #[inline]
    pub fn enter() -> Section {
        let (slot, alone) = own().map_or_else(|| (claim(), true), |slot| (slot, false));
        if slot.depth.load(Relaxed) > 0 {
            slot.depth.store(slot.depth.load(Relaxed) + 1, Relaxed);
        } else {
            // Dekker's algorithm: both sides write before they read, so either the fork sees the
            // depth, or this thread sees the fork.
            barrier::store_light(&slot.depth, 1);
            if CLOSED.load(SeqCst) > 0 {
                wait(slot);
            }
        }
        Section { slot, alone, _thread: PhantomData }
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        let depth = self.slot.depth.load(Relaxed) - 1;
        self.slot.depth.store(depth, Release);
        if depth == 0 && self.slot.put_off.load(Relaxed) {
            self.slot.put_off.store(false, Relaxed);
            crate::foreign::drop_all_put_off();
        }
        if self.alone {
            self.slot.taken.store(false, Release);
        }
    }
}

/// Whether this thread is in a section and may only wait for other sections.
pub fn in_section() -> bool {
    own().is_some_and(|slot| slot.depth.load(Relaxed) > 0)
}

/// Makes the end of this thread's section drop the values that were put off.
pub(crate) fn note_put_off() {
    if let Some(slot) = own() {
        slot.put_off.store(true, Relaxed);
    }
}

/// Leaves the section until no fork is in progress.
#[cold]
fn wait(slot: &Slot) {
    loop {
        slot.depth.store(0, Release);
        let mut turns = 0;
        while CLOSED.load(Acquire) > 0 {
            pause(&mut turns);
        }
        barrier::store_light(&slot.depth, 1);
        if CLOSED.load(SeqCst) == 0 {
            return;
        }
    }
}

/// Yields to other threads, then sleeps.
fn pause(turns: &mut u32) {
    *turns += 1;
    match *turns {
        0..50 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

/// Waits until no other thread is in a section; no thread enters one until [`open`].
pub(crate) fn close() {
    let own = own().map_or(ptr::null(), ptr::from_ref);
    CLOSED.fetch_add(1, SeqCst);
    barrier::heavy();
    let mut at = SLOTS.load(SeqCst);
    // SAFETY: slots are leaked. A slot that is added later finds the sections closed.
    while let Some(slot) = unsafe { at.as_ref() } {
        let mut turns = 0;
        while !ptr::eq(slot, own) && slot.depth.load(SeqCst) > 0 {
            pause(&mut turns);
        }
        at = slot.next.load(Relaxed);
    }
}

/// Reopens the sections after the fork.
pub(crate) fn open() {
    CLOSED.fetch_sub(1, SeqCst);
}

/// Reopens the sections in the child of a fork, whose only thread is this one.
#[cfg(unix)]
pub(crate) fn open_in_child() {
    barrier::register();
    CLOSED.store(0, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots() -> usize {
        let mut at = SLOTS.load(Acquire);
        // SAFETY: slots are leaked.
        std::iter::from_fn(|| unsafe { at.as_ref() }.inspect(|slot| at = slot.next.load(Relaxed)))
            .count()
    }

    #[test]
    fn threads_that_enter_sections_while_they_end_leave_no_slots() {
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                let outer = Section::enter();
                drop((Section::enter(), outer));
            }
        }
        thread_local! {
            static FIRST: Late = const { Late };
        }
        for _ in 0..200 {
            // The storage that was used first is destroyed last.
            std::thread::spawn(|| FIRST.with(|_| drop(Section::enter()))).join().unwrap();
        }
        assert!(slots() < 100, "{}", slots());
    }
}
