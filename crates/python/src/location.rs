//! The user's source line of recorded ops, and the function that the user called.
//!
//! Finding a line number costs more than recording an op. A call site is therefore recorded as a
//! code object and a bytecode offset, and resolved to a line only when an error shows it. Frames of
//! this package are skipped: a layer's op belongs to the user's line that called the layer.

use girih::location::{Location, Scope, set_resolver};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::cell::{Cell, RefCell};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The known code objects, and the call sites in them.
#[derive(Default)]
struct Sites {
    codes: Vec<Py<PyAny>>,
    /// The code and bytecode offset of each call site.
    sites: Vec<(u32, u32)>,
    ids: FxHashMap<(u32, u32), u32>,
    /// The location of each call site in each scope, for all threads.
    locations: FxHashMap<(u32, Scope), Location>,
    by_address: FxHashMap<usize, u32>,
}

/// Maximum number of code objects that are kept. A process with more code objects creates code
/// while it runs; the lines of further code objects are unknown.
const MAX_CODES: usize = 1 << 16;

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Code {
    id: u32,
    /// Whether the code belongs to this package.
    internal: bool,
}

#[derive(Default)]
struct Cache {
    codes: FxHashMap<usize, Code>,
    sites: FxHashMap<(u32, u32, Scope), Location>,
}

/// A recently found call site.
#[derive(Clone, Copy)]
struct Recent {
    code: usize,
    offset: u32,
    scope: Scope,
    location: Location,
}

/// The number of recent call sites that each thread caches.
const RECENT: usize = 16;

thread_local! {
    static LATELY: RefCell<[Option<Recent>; RECENT]> = const { RefCell::new([None; RECENT]) };
    static CACHE: RefCell<Cache> = RefCell::default();
    /// The path of a function inside of the extension function that Python has called and that has
    /// entered.
    static CALLED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Registers the resolver of source lines in the library.
pub fn register() {
    set_resolver(resolve);
}

/// File and line of a call site.
fn resolve(site: u32) -> Option<(String, u32)> {
    Python::attach(|py| {
        let (code, offset) = {
            let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
            let sites = sites.as_ref()?;
            let &(code, offset) = sites.sites.get(site as usize)?;
            (sites.codes.get(code as usize)?.clone_ref(py), offset)
        };
        let code = code.bind(py);
        let file = code.getattr("co_filename").ok()?.extract().ok()?;
        for line in code.call_method0("co_lines").ok()?.try_iter().ok()? {
            let (start, end, line): (u32, u32, Option<u32>) = line.ok()?.extract().ok()?;
            if (start..end).contains(&offset) {
                return Some((file, line?));
            }
        }
        None
    })
}

/// Attributes the ops that this thread records next to the calling Python line, and to the context
/// of the running task.
pub fn enter(py: Python<'_>) {
    crate::contexts::sync(py);
    let line = if girih::location::enabled() { current(py) } else { None };
    girih::location::enter(line.unwrap_or_default());
}

/// As [`enter`], for a function whose name errors show: until the guard is dropped, errors name the
/// function around this line, whichever ops and helpers it uses.
macro_rules! enter_here {
    ($py:expr) => {{
        fn here() {}
        $crate::location::enter_named($py, ::core::any::type_name_of_val(&here))
    }};
}

pub(crate) use enter_here as enter;

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
    let around = Python::attach(|py| package_function(py).ok().flatten());
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

/// The running function of this package that the user's line has called: the innermost layer with
/// its path in the model, otherwise the outermost function.
fn package_function(py: Python<'_>) -> PyResult<Option<String>> {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter, and is null only
    // if no Python code runs.
    let innermost = unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyEval_GetFrame().cast()) };
    let (mut frame, mut found) = (innermost, None);
    let module = py.import("girih")?.getattr("__dict__")?.get_item("nn").ok();
    let module = module.map(|nn| nn.getattr("Module")).transpose()?;
    while let Some(running) = frame {
        let code = code_of(&running);
        if !note_code(&code).is_some_and(|code| code.internal) {
            break;
        }
        let name: String = match code.getattr(intern!(py, "co_qualname")) {
            Ok(name) => name.extract()?,
            Err(_) => code.getattr(intern!(py, "co_name"))?.extract()?,
        };
        if let (true, Some(module)) = (name.ends_with("__call__"), &module) {
            let of = running.getattr(intern!(py, "f_locals"))?.get_item("self")?;
            if of.is_instance(module)? {
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

fn current(py: Python<'_>) -> Option<Location> {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter, and is null only
    // if no Python code runs.
    let frame = unsafe {
        let frame = ffi::PyEval_GetFrame();
        Bound::from_borrowed_ptr_or_opt(py, frame.cast())?
    };
    if let Some(known) = lately(&frame) {
        return Some(known);
    }
    CACHE.with_borrow_mut(|cache| {
        let mut frame = frame;
        let innermost = frame.clone();
        loop {
            let code = code_of(&frame);
            let known = match cache.codes.get(&(code.as_ptr() as usize)) {
                Some(code) => *code,
                None => {
                    let known = note_code(&code)?;
                    cache.codes.insert(code.as_ptr() as usize, known);
                    known
                }
            };
            if !known.internal {
                let offset = offset_in(&frame)?;
                let site = (known.id, offset, Scope::current());
                let note = || note_site((known.id, offset));
                let location = *cache.sites.entry(site).or_insert_with(note);
                if frame.is(&innermost) {
                    remember(code.as_ptr() as usize, offset, location);
                }
                return Some(location);
            }
            frame = frame.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none())?;
        }
    })
}

/// The cached call site of this instruction, if it was found recently.
fn lately(frame: &Bound<'_, PyAny>) -> Option<Location> {
    let code = code_of(frame).as_ptr() as usize;
    let offset = offset_in(frame)?;
    let known = LATELY.with(|sites| sites.borrow()[slot(code, offset)])?;
    let same = (known.code, known.offset, known.scope) == (code, offset, Scope::current());
    same.then_some(known.location)
}

/// Stores a call site in user code; the code object is kept alive, so that no other object gets its
/// address.
fn remember(code: usize, offset: u32, location: Location) {
    let site = Recent { code, offset, scope: Scope::current(), location };
    LATELY.with_borrow_mut(|sites| sites[slot(code, offset)] = Some(site));
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

/// Keeps the code object alive, so that no other object gets its address.
fn note_code(code: &Bound<'_, PyAny>) -> Option<Code> {
    let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
    let package = code.py().import("girih").ok()?.getattr("__path__").ok()?;
    let folder: String = package.get_item(0).ok()?.extract().ok()?;
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_default();
    let (address, next) = (code.as_ptr() as usize, sites.codes.len());
    let id = match sites.by_address.get(&address) {
        Some(&id) => id,
        None if next >= MAX_CODES => return None,
        None => {
            sites.by_address.insert(address, next as u32);
            sites.codes.push(code.clone().unbind());
            next as u32
        }
    };
    Some(Code { id, internal: file.starts_with(&folder) })
}

fn note_site(site: (u32, u32)) -> Location {
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_default();
    let next = sites.sites.len() as u32;
    let id = *sites.ids.entry(site).or_insert(next);
    if id == next {
        sites.sites.push(site);
    }
    *sites.locations.entry((id, Scope::current())).or_insert_with(|| Location::external(id))
}
