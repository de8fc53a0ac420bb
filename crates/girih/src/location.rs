//! The locations where ops were recorded: the source line, and the named scope around it, such as
//! the path of a layer in a model. A location is interned to 32 bits so that each node can store
//! it.
//!
//! The locations of Rust callers come from `#[track_caller]`. Front ends in other languages set the
//! line of their user with [`enter`] before they record, and register a function with
//! [`set_resolver`] that converts their lines to text. [`named_scope`] enters a scope.

use girih_runtime::env;
use girih_sync::{Mutex, MutexGuard, OnceLock};
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location as Caller;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// An interned source line; the default is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Location(u32);

#[derive(Clone, Copy, PartialEq)]
enum Line {
    Rust(&'static Caller<'static>),
    /// A line by the number that a front end assigned.
    External(u32),
}

/// The maximum number of locations, about 20 MB; further lines are unknown. Only programs that
/// generate code at run time have so many.
const MAX_LOCATIONS: usize = 1 << 20;
/// The maximum number of scopes; further scopes are merged into their parents.
const MAX_SCOPES: usize = 1 << 16;

/// Location `n` is entry `n - 1`.
static LOCATIONS: Mutex<Vec<(Line, Scope)>> = Mutex::new(Vec::new());
/// The path of scope `n` is entry `n - 1`.
static SCOPES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static RESOLVER: OnceLock<Resolver> = OnceLock::new();

/// Converts a front end's number to file and line.
pub type Resolver = fn(u32) -> Option<(String, u32)>;

thread_local! {
    static ENTERED: Cell<Location> = const { Cell::new(Location(0)) };
    static SCOPE: Cell<Scope> = const { Cell::new(Scope(0)) };
    /// The interned callers, by address and scope.
    static INTERNED: RefCell<FxHashMap<(usize, Scope), Location>> = RefCell::default();
    /// The interned scopes, by parent scope and name.
    static NAMED: RefCell<FxHashMap<Scope, FxHashMap<String, Scope>>> = RefCell::default();
}

/// A named scope; the default is outside all named scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Scope(u32);

impl Scope {
    /// The thread's current scope.
    pub fn current() -> Scope {
        SCOPE.get()
    }

    /// The scope's number, for front ends to store.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The scope with a number from [`Scope::number`].
    pub fn from_number(number: u32) -> Scope {
        Scope(number)
    }

    /// Makes this scope the thread's current scope.
    pub fn set(self) {
        SCOPE.set(self);
    }

    /// The child scope named `name`.
    pub fn child(self, name: &str) -> Scope {
        NAMED.with_borrow_mut(|named| {
            let known = named.entry(self).or_default();
            if let Some(&scope) = known.get(name) {
                return scope;
            }
            let scope = self.intern(name);
            known.insert(name.to_string(), scope);
            scope
        })
    }

    fn intern(self, name: &str) -> Scope {
        let path = match self.path() {
            Some(outer) => format!("{outer}.{name}"),
            None => name.to_string(),
        };
        let mut scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = scopes.iter().position(|known| *known == path) {
            return Scope(index as u32 + 1);
        }
        if scopes.len() >= MAX_SCOPES {
            return self;
        }
        scopes.push(path);
        Scope(scopes.len() as u32)
    }

    /// The names from the outermost to the innermost scope, separated by dots.
    pub fn path(self) -> Option<String> {
        let scopes = SCOPES.lock().unwrap_or_else(PoisonError::into_inner);
        scopes.get((self.0 as usize).checked_sub(1)?).cloned()
    }
}

/// Runs `f` in a child scope of the thread's current scope. Nodes recorded in it carry the path of
/// their scopes into drawings, files and errors. Names do not affect any computation.
///
/// ```
/// use girih::{Tensor, location::named_scope};
///
/// let x = Tensor::from_slice(&[1.0f32, -1.0], [2])?;
/// let y = named_scope("net", || named_scope("relu", || x.relu()))?;
/// let program = girih::Program::capture(&[&y], &[&x])?;
/// assert!(program.to_text().contains("net.relu"));
/// # Ok::<(), girih::Error>(())
/// ```
pub fn named_scope<T>(name: &str, f: impl FnOnce() -> T) -> T {
    struct Leave(Scope);
    impl Drop for Leave {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    let outer = Scope::current();
    let _leave = Leave(outer);
    outer.child(name).set();
    f()
}

/// Sets the function that converts the numbers of [`Location::external`] to file and line. Only the
/// first call has an effect.
pub fn set_resolver(resolver: Resolver) {
    let _ = RESOLVER.set(resolver);
}

impl Location {
    /// Whether the line is known.
    pub fn is_known(self) -> bool {
        self.0 != 0
    }

    /// A location for a line that the front end's resolver knows by this number, in the thread's
    /// scope; unknown if there are too many. The front end must cache it, since each call adds a
    /// new location.
    pub fn external(number: u32) -> Location {
        Location::add(&mut locations(), Line::External(number), Scope::current())
    }

    /// The location's number; 0 is unknown.
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// The location with a number from [`Location::number`].
    pub(crate) fn from_number(number: u32) -> Location {
        Location(number)
    }

    fn intern(caller: &'static Caller<'static>, scope: Scope) -> Location {
        let mut all = locations();
        let entry = (Line::Rust(caller), scope);
        match all.iter().position(|known| *known == entry) {
            Some(index) => Location(index as u32 + 1),
            None => Location::add(&mut all, entry.0, scope),
        }
    }

    fn add(all: &mut Vec<(Line, Scope)>, line: Line, scope: Scope) -> Location {
        if all.len() >= MAX_LOCATIONS {
            return Location::default();
        }
        all.push((line, scope));
        Location(all.len() as u32)
    }

    fn entry(self) -> Option<(Line, Scope)> {
        locations().get((self.0 as usize).checked_sub(1)?).copied()
    }

    /// The named scope at the location.
    pub fn scope(self) -> Scope {
        self.entry().map_or(Scope::default(), |(_, scope)| scope)
    }
}

fn locations() -> MutexGuard<'static, Vec<(Line, Scope)>> {
    LOCATIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, scope) = self.entry().unzip();
        let line = match line {
            Some(Line::External(number)) => RESOLVER.get().and_then(|resolve| resolve(number)),
            Some(Line::Rust(caller)) => Some((caller.file().to_string(), caller.line())),
            None => None,
        };
        match line {
            Some((file, line)) => write!(f, "{file}:{line}")?,
            None => f.write_str("an unknown line")?,
        }
        match scope.and_then(Scope::path) {
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
pub(crate) fn entered() -> Location {
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
    let (address, scope) = (std::ptr::from_ref(caller) as usize, Scope::current());
    INTERNED.with_borrow_mut(|interned| {
        *interned.entry((address, scope)).or_insert_with(|| Location::intern(caller, scope))
    })
}
