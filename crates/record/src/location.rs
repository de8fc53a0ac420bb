//! The locations where ops were recorded: the source line, and the named scope around it, such as
//! the path of a layer in a model. A location is interned to 32 bits so that each node can store
//! it.
//!
//! The locations of Rust callers come from `#[track_caller]`. Front ends in other languages set the
//! line of their user with [`enter`] before they record. [`named_scope`] enters a scope.
//!
//! A program may create lines and scopes while it runs, so not all are kept: `Table` says which.

use girih_runtime::env;
use girih_sync::{Foreign, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::panic::Location as Caller;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};
use std::sync::{Arc, PoisonError, Weak};

/// An interned source line; the default is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location(u32);

/// A line of a front end.
pub trait SourceLine: Send + Sync {
    /// File and line.
    fn resolve(&self) -> Option<(String, u32)>;
}

#[derive(Clone)]
enum Line {
    Rust(&'static Caller<'static>),
    External(Foreign<Arc<dyn SourceLine>>),
}

/// Identifies a line, as long as the table has the line: an address, and an offset behind it.
type LineKey = (usize, u32);

/// The interned locations. A location that is interned once and never again is kept until
/// [`MAX_YOUNG`] later ones exist, and then its line is unknown; one that is interned again, as the
/// lines of a loop are, is kept longer. Threads may cache locations, until [`epoch`] changes.
#[derive(Default)]
struct Table {
    /// The number of the last location. Numbers are not used again, as long as 32 bits last.
    last: u32,
    entries: FxHashMap<u32, Entry>,
    numbers: FxHashMap<(LineKey, u64), u32>,
    /// The numbers of locations that have not been interned again, and of the others, by age.
    young: VecDeque<u32>,
    old: VecDeque<u32>,
}

struct Entry {
    key: LineKey,
    line: Line,
    scope: Scope,
    /// Whether the location was interned again.
    again: bool,
}

/// The maximum numbers of locations, about 1 MB and 16 MB.
const MAX_YOUNG: usize = 1 << 12;
const MAX_OLD: usize = 1 << 16;
/// The number of young locations that age at a time.
const BATCH: usize = 1 << 10;
/// The maximum number of locations that a thread caches.
const MAX_CACHED: usize = 1 << 13;
/// The maximum depth of nested scopes; deeper ones are merged into their parents.
const MAX_DEPTH: usize = 1 << 10;

static LOCATIONS: Mutex<Option<Table>> = Mutex::new(None);
/// The number of times that locations were removed.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// A number that changes when locations are removed. A cache of locations must then be emptied, or
/// it would give nodes locations whose lines are unknown.
#[inline]
pub fn epoch() -> u64 {
    EPOCH.load(Acquire)
}

impl Table {
    /// Adds a location; returns its number. Removed entries are moved to `removed`.
    fn add(&mut self, entry: Entry, removed: &mut Vec<Entry>) -> u32 {
        self.last = self.last.wrapping_add(1);
        while self.last == 0 || self.entries.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.numbers.insert((entry.key, entry.scope.number()), self.last);
        self.entries.insert(self.last, entry);
        self.young.push_back(self.last);
        if self.young.len() > MAX_YOUNG {
            self.age(removed);
        }
        self.last
    }

    /// Removes the oldest young locations, or makes them old.
    fn age(&mut self, removed: &mut Vec<Entry>) {
        for number in self.young.drain(..BATCH) {
            match self.entries.get(&number).is_some_and(|entry| entry.again) {
                true => self.old.push_back(number),
                false => removed.extend(self.entries.remove(&number)),
            }
        }
        for number in self.old.drain(..self.old.len().saturating_sub(MAX_OLD)) {
            removed.extend(self.entries.remove(&number));
        }
        for entry in removed.iter() {
            self.numbers.remove(&(entry.key, entry.scope.number()));
        }
        EPOCH.fetch_add(1, Release);
    }
}

fn lock_locations() -> MutexGuard<'static, Option<Table>> {
    LOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interned Rust callers of a thread, by address and scope, and the epoch of the cache.
#[derive(Default)]
struct Callers {
    epoch: u64,
    known: FxHashMap<(usize, u64), Location>,
}

thread_local! {
    static ENTERED: Cell<Location> = const { Cell::new(Location(0)) };
    static SCOPE: RefCell<Scope> = const { RefCell::new(Scope(None)) };
    /// The number of `SCOPE`, which is cheaper to read.
    static SCOPE_NUMBER: Cell<u64> = const { Cell::new(0) };
    static CALLERS: RefCell<Callers> = RefCell::default();
}

/// A named scope; the default is outside all named scopes. A reference-counted handle.
#[derive(Clone, Default)]
pub struct Scope(Option<Arc<Named>>);

struct Named {
    /// A number that no other scope of the process has, from 1.
    number: u64,
    path: String,
    /// The position of the scope's own name in `path`.
    name: usize,
    depth: usize,
    outer: Scope,
    inner: Mutex<Inner>,
}

/// The existing scopes in a scope, by name.
type Inner = Option<FxHashMap<Box<str>, Weak<Named>>>;

/// The existing scopes that are in no other scope.
static OUTERMOST: Mutex<Inner> = Mutex::new(None);

impl Scope {
    /// The thread's current scope.
    pub fn current() -> Scope {
        SCOPE.with_borrow(Scope::clone)
    }

    /// The number of the thread's current scope.
    #[inline]
    pub fn current_number() -> u64 {
        SCOPE_NUMBER.get()
    }

    /// A number that no other existing scope has.
    pub fn number(&self) -> u64 {
        self.0.as_ref().map_or(0, |named| named.number)
    }

    /// Makes this scope the thread's current scope.
    pub fn set(self) {
        SCOPE_NUMBER.set(self.number());
        let left = SCOPE.replace(self);
        drop(left);
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        let inner = self.0.as_ref().map_or(&OUTERMOST, |named| &named.inner);
        inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The child scope named `name`.
    pub fn child(&self, name: &str) -> Scope {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let depth = self.0.as_ref().map_or(0, |named| named.depth) + 1;
        if depth > MAX_DEPTH {
            return self.clone();
        }
        let mut inner = self.inner();
        let known = inner.get_or_insert_default();
        if let Some(found) = known.get(name).and_then(Weak::upgrade) {
            drop(inner);
            return Scope(Some(found));
        }
        let path = match &self.0 {
            Some(outer) => format!("{}.{name}", outer.path),
            None => name.to_string(),
        };
        let named = Arc::new(Named {
            number: NEXT.fetch_add(1, Relaxed),
            name: path.len() - name.len(),
            path,
            depth,
            outer: self.clone(),
            inner: Mutex::new(None),
        });
        known.insert(name.into(), Arc::downgrade(&named));
        Scope(Some(named))
    }

    /// The names from the outermost to the innermost scope, separated by dots.
    pub fn path(&self) -> Option<&str> {
        self.0.as_ref().map(|named| &*named.path)
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({:?})", self.path())
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let mut inner = self.outer.inner();
        let Some(known) = inner.as_mut() else { return };
        let name = &self.path[self.name..];
        // Another thread may have made the scope again meanwhile.
        if known.get(name).is_some_and(|named| named.strong_count() == 0) {
            known.remove(name);
        }
    }
}

/// Runs `f` in a child scope of the thread's current scope. Nodes recorded in it carry the path of
/// their scopes into drawings, files and errors. Names do not affect any computation.
pub fn named_scope<T>(name: &str, f: impl FnOnce() -> T) -> T {
    struct Leave(Scope);
    impl Drop for Leave {
        fn drop(&mut self) {
            std::mem::take(&mut self.0).set();
        }
    }
    let leave = Leave(Scope::current());
    leave.0.child(name).set();
    f()
}

impl Location {
    /// Whether the line was known when the op was recorded.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// A location for a line of a front end, in the thread's scope. The key identifies the line as
    /// long as the result of `line` exists, which is called if there is no location for the key.
    pub fn external(key: (usize, u32), line: impl FnOnce() -> Arc<dyn SourceLine>) -> Location {
        Location::intern(key, || Line::External(line().into()))
    }

    /// The location's number; 0 is unknown.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The location with a number from [`Location::number`].
    pub fn from_number(number: u32) -> Location {
        Location(number)
    }

    fn intern(key: LineKey, line: impl FnOnce() -> Line) -> Location {
        let known = |table: &mut Option<Table>| {
            let table = table.get_or_insert_default();
            let number = *table.numbers.get(&(key, Scope::current_number()))?;
            table.entries.get_mut(&number)?.again = true;
            Some(Location(number))
        };
        if let Some(known) = known(&mut lock_locations()) {
            return known;
        }
        let entry = Entry { key, line: line(), scope: Scope::current(), again: false };
        // Entries are dropped without the lock: they may own objects of a front end.
        let (mut removed, mut unused) = (Vec::new(), Some(entry));
        let mut table = lock_locations();
        let number = match known(&mut table) {
            Some(faster) => faster.0,
            None => {
                let Some(entry) = unused.take() else { return Location::default() };
                table.get_or_insert_default().add(entry, &mut removed)
            }
        };
        drop(table);
        drop((removed, unused));
        Location(number)
    }

    fn entry(self) -> Option<(Line, Scope)> {
        let table = lock_locations();
        let entry = table.as_ref()?.entries.get(&self.0)?;
        Some((entry.line.clone(), entry.scope.clone()))
    }

    /// The named scope at the location.
    pub fn scope(self) -> Scope {
        self.entry().map_or_else(Scope::default, |(_, scope)| scope)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, scope) = self.entry().unzip();
        let line = match line {
            Some(Line::External(line)) => line.resolve(),
            Some(Line::Rust(caller)) => Some((caller.file().to_string(), caller.line())),
            None => None,
        };
        match line {
            Some((file, line)) => write!(f, "{file}:{line}")?,
            None => f.write_str("an unknown line")?,
        }
        match scope.as_ref().and_then(Scope::path) {
            Some(path) => write!(f, " in {path}"),
            None => Ok(()),
        }
    }
}

/// Whether ops keep their lines: 1 for no, 2 for yes, 0 until the environment variable is read.
static ENABLED: AtomicU8 = AtomicU8::new(0);

/// Whether ops keep the line that recorded them. Ops keep their lines unless the environment
/// variable `GIRIH_SOURCE_LINES` or [`set_enabled`] switches this off.
#[inline]
pub fn enabled() -> bool {
    match ENABLED.load(Relaxed) {
        0 => {
            // An invalid value keeps lines: this function cannot report the error.
            let on = env::flag(&["GIRIH_SOURCE_LINES"]).ok().flatten().unwrap_or(true);
            set_enabled(on);
            on
        }
        on => on == 2,
    }
}

/// Switches on or off whether ops keep the line that recorded them, for errors.
pub fn set_enabled(on: bool) {
    ENABLED.store(if on { 2 } else { 1 }, Relaxed);
}

/// Sets the line that ops on this thread are attributed to, until it is set again; the default
/// location restores the attribution to Rust callers.
pub fn enter(location: Location) {
    ENTERED.set(location);
}

/// The line that a front end has entered, if any.
pub fn entered() -> Location {
    ENTERED.get()
}

/// The line that an op is attributed to: the entered line, else the Rust caller's.
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
    let (address, scope) = (std::ptr::from_ref(caller) as usize, Scope::current_number());
    let known = CALLERS.with_borrow_mut(|cache| {
        if cache.epoch != epoch() || cache.known.len() >= MAX_CACHED {
            cache.epoch = epoch();
            cache.known.clear();
        }
        cache.known.get(&(address, scope)).copied()
    });
    // Nothing is borrowed here: interning may free objects of a front end.
    known.unwrap_or_else(|| {
        let location = Location::intern((address, u32::MAX), || Line::Rust(caller));
        CALLERS.with_borrow_mut(|cache| cache.known.insert((address, scope), location));
        location
    })
}

#[cfg(test)]
mod tests;
