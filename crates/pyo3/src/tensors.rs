//! The classes of tensors of the front ends, which this crate does not know otherwise: their
//! instances are leaves of trees, have a length that can be trusted, and are shown in messages
//! without their values.

use girih_ir::TensorSpec;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The maximum number of front ends in one process.
const MOST: usize = 4;

/// The spec of an object that is a front end's tensor; `None` for other objects.
pub type SpecOf = fn(&Bound<'_, PyAny>) -> Option<TensorSpec>;

/// The addresses of the classes, of which a reference is never given back; 0 after the last one.
static CLASSES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static SPECS: [OnceLock<SpecOf>; MOST] = [const { OnceLock::new() }; MOST];

/// Registers a front end's class of tensors. Called when the front end's module is made, with the
/// interpreter held.
///
/// Panics: at more than four classes.
pub fn register(class: &Bound<'_, PyType>, spec_of: SpecOf) {
    // A module that failed to be made is made again.
    if is_tensor_class(class) {
        return;
    }
    let free = SPECS.iter().position(|known| known.set(spec_of).is_ok());
    let free = free.expect("a process has few front ends");
    CLASSES[free].store(class.clone().into_ptr() as usize, Relaxed);
}

/// Whether an object is an instance of a registered class, and of no class that derives from it.
#[inline]
pub fn is_tensor(object: &Bound<'_, PyAny>) -> bool {
    let class = object.get_type_ptr() as usize;
    CLASSES.iter().any(|known| known.load(Relaxed) == class)
}

/// Whether a class is a registered one.
pub fn is_tensor_class(class: &Bound<'_, PyType>) -> bool {
    CLASSES.iter().any(|known| known.load(Relaxed) == class.as_ptr() as usize)
}

/// The spec of an object that is a tensor of some front end, also of a derived class.
pub fn spec_of(object: &Bound<'_, PyAny>) -> Option<TensorSpec> {
    SPECS.iter().filter_map(OnceLock::get).find_map(|spec_of| spec_of(object))
}
