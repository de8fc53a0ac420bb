//! Source lines of recorded ops, interned to 32 bits so that a node can carry one.
//!
//! Rust callers are found by `#[track_caller]`; front ends in other languages set the line of
//! their user with [`enter`] before they record, and say with [`set_resolver`] how their lines
//! read.

use girih_runtime::env;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location as Caller;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

/// An interned source line; the default is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location(u32);

/// Marks lines that a front end numbers itself.
const EXTERNAL: u32 = 1 << 31;

static CALLERS: Mutex<Vec<&'static Caller<'static>>> = Mutex::new(Vec::new());
static RESOLVER: OnceLock<Resolver> = OnceLock::new();

/// From a front end's number to file and line.
pub type Resolver = fn(u32) -> Option<(String, u32)>;

thread_local! {
    static ENTERED: Cell<Location> = const { Cell::new(Location(0)) };
    /// Interned callers, by address.
    static INTERNED: RefCell<FxHashMap<usize, Location>> = RefCell::default();
}

/// Says how the numbers of [`Location::external`] read as file and line. The first call counts.
pub fn set_resolver(resolver: Resolver) {
    let _ = RESOLVER.set(resolver);
}

impl Location {
    /// True for a known line.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// A line that the front end's resolver knows by this number.
    pub fn external(number: u32) -> Location {
        Location(EXTERNAL | number)
    }

    fn intern(caller: &'static Caller<'static>) -> Location {
        let mut callers = CALLERS.lock().unwrap_or_else(PoisonError::into_inner);
        let known = callers.iter().position(|c| *c == caller);
        let index = known.unwrap_or_else(|| {
            callers.push(caller);
            callers.len() - 1
        });
        Location(index as u32 + 1)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = if self.0 & EXTERNAL != 0 {
            RESOLVER.get().and_then(|resolve| resolve(self.0 & !EXTERNAL))
        } else {
            let callers = CALLERS.lock().unwrap_or_else(PoisonError::into_inner);
            let index = (self.0 as usize).checked_sub(1);
            index.and_then(|i| callers.get(i)).map(|c| (c.file().to_string(), c.line()))
        };
        match line {
            Some((file, line)) => write!(f, "{file}:{line}"),
            None => f.write_str("an unknown line"),
        }
    }
}

/// Whether ops keep the line that recorded them; 0 until the environment has been asked.
static ENABLED: AtomicU8 = AtomicU8::new(0);

/// Whether ops keep the line that recorded them: so they do, unless `GIRIH_SOURCE_LINES` says
/// otherwise or [`set_enabled`] has.
#[inline]
pub fn enabled() -> bool {
    match ENABLED.load(Relaxed) {
        0 => {
            // A value that says neither keeps lines: an error's place is no place for another.
            let on = env::flag(&["GIRIH_SOURCE_LINES"]).ok().flatten().unwrap_or(true);
            set_enabled(on);
            on
        }
        on => on == 2,
    }
}

/// Has ops keep the line that recorded them, for errors, or not.
pub fn set_enabled(on: bool) {
    ENABLED.store(if on { 2 } else { 1 }, Relaxed);
}

/// Sets the line that ops recorded on this thread are attributed to, until set again; the default
/// location gives attribution back to Rust callers.
pub fn enter(location: Location) {
    ENTERED.set(location);
}

/// The line a front end has entered, if any.
pub(crate) fn entered() -> Location {
    ENTERED.get()
}

/// The line to attribute an op to: the entered one, else the Rust caller's.
#[track_caller]
pub(crate) fn here() -> Location {
    if !enabled() {
        return Location::default();
    }
    let entered = entered();
    if entered.is_known() {
        return entered;
    }
    let caller = Caller::caller();
    let address = std::ptr::from_ref(caller) as usize;
    INTERNED.with_borrow_mut(|interned| {
        *interned.entry(address).or_insert_with(|| Location::intern(caller))
    })
}
