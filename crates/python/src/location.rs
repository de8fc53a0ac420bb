//! The user's source line for recorded ops.
//!
//! Finding a line number costs more than recording an op, so a call site is noted as a code object
//! and a bytecode offset, and turned into a line only when an error shows it. Frames of this
//! package are skipped: a layer's op belongs to the user's line that called the layer.

use girih::location::{Location, Scope, set_resolver};
use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

/// Code objects seen, and the call sites in them.
#[derive(Default)]
struct Sites {
    codes: Vec<Py<PyAny>>,
    /// Per call site: code and bytecode offset.
    sites: Vec<(u32, u32)>,
    ids: FxHashMap<(u32, u32), u32>,
    by_address: FxHashMap<usize, u32>,
}

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

#[derive(Clone, Copy)]
struct Code {
    id: u32,
    /// Belongs to this package.
    internal: bool,
}

#[derive(Default)]
struct Cache {
    codes: FxHashMap<usize, Code>,
    sites: FxHashMap<(u32, u32, Scope), Location>,
}

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// Lets the library ask for lines.
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

/// Attributes what is recorded next on this thread to the calling Python line, and to the running
/// task's context.
pub fn enter(py: Python<'_>) {
    crate::contexts::sync(py);
    let line = if girih::location::enabled() { current(py) } else { None };
    girih::location::enter(line.unwrap_or_default());
}

fn current(py: Python<'_>) -> Option<Location> {
    // SAFETY: the thread is attached; the frame is borrowed from the interpreter and null only
    // where no Python code runs.
    let frame = unsafe {
        let frame = ffi::PyEval_GetFrame();
        Bound::from_borrowed_ptr_or_opt(py, frame.cast())?
    };
    CACHE.with_borrow_mut(|cache| {
        let mut frame = frame;
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
                let offset: u32 = frame.getattr(intern!(py, "f_lasti")).ok()?.extract().ok()?;
                let site = (known.id, offset, Scope::current());
                let note = || note_site((known.id, offset));
                return Some(*cache.sites.entry(site).or_insert_with(note));
            }
            frame = frame.getattr(intern!(py, "f_back")).ok().filter(|f| !f.is_none())?;
        }
    })
}

fn code_of<'py>(frame: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    // SAFETY: `frame` is a frame object, and the call gives a new reference to its code.
    unsafe {
        let code = ffi::PyFrame_GetCode(frame.as_ptr().cast());
        Bound::from_owned_ptr(frame.py(), code.cast())
    }
}

/// Keeps the code object, so that its address stays its own.
fn note_code(code: &Bound<'_, PyAny>) -> Option<Code> {
    let file: String = code.getattr("co_filename").ok()?.extract().ok()?;
    let package = code.py().import("girih").ok()?.getattr("__path__").ok()?;
    let folder: String = package.get_item(0).ok()?.extract().ok()?;
    let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
    let sites = sites.get_or_insert_default();
    let next = sites.codes.len() as u32;
    let id = *sites.by_address.entry(code.as_ptr() as usize).or_insert(next);
    if id == next {
        sites.codes.push(code.clone().unbind());
    }
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
    Location::external(id)
}
