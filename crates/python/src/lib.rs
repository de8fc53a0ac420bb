//! The Python extension module `girih._girih`: converts arguments, releases the interpreter lock
//! while the library compiles and runs, and turns its errors into Python's. No logic lives here.

mod args;
mod creation;
mod data;
mod dlpack;
mod dtype;
mod errors;
mod functions;
mod indexing;
mod lazy;
mod location;
mod tensor;
mod transform;

use pyo3::prelude::*;

/// Fills the module.
#[pymodule]
fn _girih(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<tensor::PyTensor>()?;
    m.add_class::<dtype::PyDType>()?;
    dtype::register(m)?;
    functions::register(m)?;
    creation::register(m)?;
    data::register(m)?;
    dlpack::register(m)?;
    lazy::register(m)?;
    transform::register(m)?;
    location::register();
    Ok(())
}
