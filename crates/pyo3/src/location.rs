//! The user's source line of recorded ops, and the function that the user called.
//!
//! Finding a line number costs more than recording an op. A call site is therefore recorded as a
//! code object and a bytecode offset, and resolved to a line only when an error shows it. Frames of
//! this package are skipped: a layer's op belongs to the user's line that called the layer.

use crate::interpreter::{Held, Once, attach, intern, try_attach};
use girih_record::location::{self, Location, Scope, SourceLine, epoch};
use girih_sync::Mutex;
use pyo3::ffi;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock, PoisonError};

/// A call site: a bytecode offset in a code object.
struct CallSite {
    code: Held<Py<PyAny>>,
    offset: u32,
}

impl SourceLine for CallSite {
    fn resolve(&self) -> Option<(String, u32)> {
        try_attach(|py| {
            let code = self.code.bind(py);
            let file = code.getattr("co_filename").ok()?.extract().ok()?;
            for line in code.call_method0("co_lines").ok()?.try_iter().ok()? {
                let (start, end, line): (u32, u32, Option<u32>) = line.ok()?.extract().ok()?;
                if (start..end).contains(&self.offset) {
                    return Some((file, line?));
                }
            }
            None
        })
        .flatten()
    }
}

/// The code objects and call sites that a thread has met, by the addresses of the code objects. An
/// address is valid as long as its object is alive, so the cache keeps its objects alive.
#[derive(Default)]
struct Cache {
    /// The epoch of the locations.
    epoch: u64,
    /// Each code object, and whether it belongs to this package.
    codes: FxHashMap<usize, (Held<Py<PyAny>>, bool)>,
    /// Locations by code, offset and number of the scope.
    sites: FxHashMap<(usize, u32, u64), Location>,
    /// The call sites that were found last.
    recent: [Option<Recent>; RECENT],
}

/// The maximum number of code objects, and of call sites, that each thread caches.
const MAX_CODES: usize = 1 << 11;
const MAX_SITES: usize = 1 << 13;

/// A recently found call site.
#[derive(Clone, Copy)]
struct Recent {
    code: usize,
    offset: u32,
    scope: u64,
    location: Location,
}

/// The number of recent call sites that each thread caches.
const RECENT: usize = 16;

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
    /// The path of a function inside of the extension function that Python has called and that has
    /// entered.
    static CALLED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Attributes the ops that this thread records next to the calling Python line, and to the context
/// of the running task.
pub fn enter(py: Python<'_>) {
    crate::contexts::sync(py);
    let line = if location::enabled() { current(py) } else { None };
    location::enter(line.unwrap_or_default());
}

/// As [`enter`](fn@enter), for a function whose name errors show: until the guard is dropped, errors name the
/// function around this line, whichever ops and helpers it uses.
#[macro_export]
macro_rules! enter_here {
    ($py:expr) => {{
        fn here() {}
        $crate::location::enter_named($py, ::core::any::type_name_of_val(&here))
    }};
}

pub use crate::enter_here as enter;

/// A guard that ends the effect of [`enter!`] when it is dropped.
#[must_use]
pub struct Called(Option<&'static str>);

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.set(self.0);
    }
}

/// The function to which [`enter!`] expands.
pub fn enter_named(py: Python<'_>, path: &'static str) -> Called {
    enter(py);
    Called(CALLED.replace(Some(path)))
}

/// As [`enter!`], for an operator or another special method: errors show the name of the op, unless
/// a function of this package uses the operator.
pub fn enter_operator(py: Python<'_>) -> Called {
    enter_named(py, "__operator__::here")
}

/// The message of an error, with the name of the function that the user called: the function or
/// layer of this package that called the extension, if there is one; otherwise the function of the
/// extension. Special methods keep the name of the op.
///
/// A message begins with the name of an op or helper and a colon, or has no such prefix.
pub fn of_called(message: String) -> String {
    let Some(path) = CALLED.get() else { return message };
    let name = path.rsplit("::").nth(1).unwrap_or(path).trim_end_matches('_');
    let around = attach(|py| package_function(py).ok().flatten());
    let name = match (around, name.starts_with("__")) {
        (Some(around), _) => around,
        (None, true) => return message,
        (None, false) => name.to_string(),
    };
    let is_name = |head: &str| {
        head.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && head.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let text = match message.split_once(": ") {
        Some((head, rest)) if is_name(head) => rest,
        _ => &message,
    };
    format!("{name}: {text}")
}

/// Finds a front end's class of layers; `None` while nothing has imported it.
pub type LayerClass = for<'py> fn(Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>>;

static LAYERS: Mutex<Vec<LayerClass>> = Mutex::new(Vec::new());

/// Registers a front end's class of layers, by whose names and paths errors name a call.
pub fn register_layers(class: LayerClass) {
    LAYERS.lock().unwrap_or_else(PoisonError::into_inner).push(class);
}

fn layer_classes(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyAny>>> {
    // The lock is not held while Python code runs.
    let known = LAYERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    known.into_iter().filter_map(|class| class(py).transpose()).collect()
}

fn is_layer(object: &Bound<'_, PyAny>, classes: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    for class in classes {
        if object.is_instance(class)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The running function of this package that the user's line has called: the innermost layer with
/// its path in the model, otherwise the outermost function.
fn package_function(py: Python<'_>) -> PyResult<Option<String>> {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter, and is null only
    // if no Python code runs.
    let innermost = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    let (mut frame, mut found) = (innermost, None);
    let layers = layer_classes(py)?;
    while let Some(running) = frame {
        let code = code_of(&running);
        if is_internal(&code) != Some(true) {
            break;
        }
        let name: String = match code.getattr(intern!(py, "co_qualname")) {
            Ok(name) => name.extract()?,
            Err(_) => code.getattr(intern!(py, "co_name"))?.extract()?,
        };
        if name.ends_with("__call__") && !layers.is_empty() {
            let of = running.getattr(intern!(py, "f_locals"))?.get_item("self")?;
            if is_layer(&of, &layers)? {
                let class: String = of.get_type().name()?.extract()?;
                return Ok(Some(match Scope::current().path() {
                    Some(path) if path != class => format!("{class} ({path})"),
                    _ => class,
                }));
            }
        }
        // Users see `grad.<locals>.wrapped` as `grad`, and `Adam.__init__` as `Adam`.
        let name = name.split(".<").next().unwrap_or(&name).split(".__").next().unwrap_or(&name);
        found = Some(name.to_string());
        frame = running.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none());
    }
    Ok(found)
}

/// The level of the user's line for a warning: 1 for the function that is running, one more for each
/// function of this package that it goes through.
pub fn user_level(py: Python<'_>) -> i32 {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter, and is null only
    // if no Python code runs.
    let innermost = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    let (mut frame, mut level) = (innermost, 1);
    while let Some(running) = frame.filter(|frame| is_internal(&code_of(frame)) == Some(true)) {
        level += 1;
        frame = running.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none());
    }
    level
}

fn current(py: Python<'_>) -> Option<Location> {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter, and is null only
    // if no Python code runs.
    let innermost = unsafe {
        let frame = ffi::PyEval_GetFrame();
        Bound::from_borrowed_ptr_or_opt(py, frame.cast())?
    };
    let mut frame = innermost.clone();
    loop {
        let code = code_of(&frame);
        let (address, scope) = (code.as_ptr() as usize, Scope::current_number());
        let offset = offset_in(&frame)?;
        if let Some(known) = known(address, offset, scope) {
            return Some(known);
        }
        if !is_internal(&code)? {
            // No cache is borrowed here: this may free objects, whose destructors run Python code.
            let location = Location::external((address, offset), || {
                Arc::new(CallSite { code: Held::new(code.clone().unbind()), offset })
            });
            remember(address, offset, scope, location, frame.is(&innermost));
            return Some(location);
        }
        frame = frame.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none())?;
    }
}

/// The cached location of a call site.
#[inline]
fn known(code: usize, offset: u32, scope: u64) -> Option<Location> {
    CACHE.with_borrow(|cache| {
        if cache.epoch != epoch() {
            return None;
        }
        let recent = cache.recent[slot(code, offset)]
            .filter(|site| (site.code, site.offset, site.scope) == (code, offset, scope));
        match recent {
            Some(site) => Some(site.location),
            None => cache.sites.get(&(code, offset, scope)).copied(),
        }
    })
}

/// Caches the location of a call site. The code is in the cache already; `innermost`: no frame of
/// this package is around the op.
fn remember(code: usize, offset: u32, scope: u64, location: Location, innermost: bool) {
    CACHE.with_borrow_mut(|cache| {
        // Otherwise another code object could have this address later.
        if cache.epoch != epoch() || !cache.codes.contains_key(&code) {
            return;
        }
        cache.sites.insert((code, offset, scope), location);
        if innermost {
            let site = Recent { code, offset, scope, location };
            cache.recent[slot(code, offset)] = Some(site);
        }
    });
}

fn slot(code: usize, offset: u32) -> usize {
    (code / 64 + offset as usize / 2) % RECENT
}

/// The offset of the instruction that a frame is running.
fn offset_in(frame: &Bound<'_, PyAny>) -> Option<u32> {
    if let Some(offset) = lasti() {
        // SAFETY: `frame` is a frame object.
        return u32::try_from(unsafe { offset(frame.as_ptr()) }).ok();
    }
    frame.getattr(intern!(frame.py(), "f_lasti")).ok()?.extract().ok()
}

type Lasti = unsafe extern "C" fn(*mut ffi::PyObject) -> std::ffi::c_int;

/// The interpreter's function that returns this offset, in Python 3.11 and later. It is looked up
/// by name, because Python 3.10 does not have it.
fn lasti() -> Option<Lasti> {
    #[cfg(unix)]
    {
        static FOUND: OnceLock<Option<Lasti>> = OnceLock::new();
        *FOUND.get_or_init(|| {
            // SAFETY: the name is a C string; a symbol with this name is CPython's function.
            unsafe {
                let found = libc::dlsym(libc::RTLD_DEFAULT, c"PyFrame_GetLasti".as_ptr());
                std::mem::transmute::<*mut libc::c_void, Option<Lasti>>(found)
            }
        })
    }
    #[cfg(not(unix))]
    None
}

fn code_of<'py>(frame: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    // SAFETY: `frame` is a frame object, and the call returns a new reference to its code.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame.as_ptr().cast());
        Bound::from_owned_ptr(frame.py(), code.cast())
    }
}

/// Whether code belongs to this package.
fn is_internal(code: &Bound<'_, PyAny>) -> Option<bool> {
    let address = code.as_ptr() as usize;
    let stale = CACHE.with_borrow_mut(|cache| {
        let full = cache.codes.len() >= MAX_CODES || cache.sites.len() >= MAX_SITES;
        let now = epoch();
        (full || cache.epoch != now)
            .then(|| std::mem::replace(cache, Cache { epoch: now, ..Cache::default() }))
    });
    // Freeing code may run Python code, which may record ops.
    drop(stale);
    if let Some(known) = CACHE.with_borrow(|cache| cache.codes.get(&address).map(|code| code.1)) {
        return Some(known);
    }
    let file: String = code.getattr(intern!(code.py(), "co_filename")).ok()?.extract().ok()?;
    let internal = file.starts_with(package_folder(code.py())?);
    let object = Held::new(code.clone().unbind());
    let replaced = CACHE.with_borrow_mut(|cache| cache.codes.insert(address, (object, internal)));
    drop(replaced);
    Some(internal)
}

/// The folder of this package.
fn package_folder(py: Python<'_>) -> Option<&str> {
    static FOLDER: Once<String> = Once::new();
    let find = || {
        let package = py.import("girih")?.getattr("__path__")?;
        package.get_item(0)?.extract::<String>()
    };
    FOLDER.get_or_try_init(py, find).ok().map(String::as_str)
}
