//! Graph passes written in Python.

use crate::interpreter::{Held, try_attach};
use crate::program::PyProgram;
use crate::scalars;
use girih::pass::{self, Pass};
use girih::{Error, Program};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// A pass: a function from program to program that evaluations run before all other passes.
#[pyclass(name = "GraphPass", module = "girih._girih", frozen, subclass)]
pub struct PyPass(pub Arc<dyn Pass>);

#[pymethods]
impl PyPass {
    #[new]
    fn new(function: Py<PyAny>, #[pyo3(from_py_with = scalars::own_text)] name: String) -> PyPass {
        let function = Held::new(function);
        let run = move |program: &Program| {
            let given = PyProgram(Mutex::new(program.clone()));
            let outcome = try_attach(|py| called(py, &function, given));
            let outcome = outcome.unwrap_or_else(|| Err("the Python interpreter has ended".into()));
            outcome.map_err(Error::InvalidArgument)
        };
        PyPass(pass::graph_pass(name, run))
    }

    /// The name of the pass in errors and explanations. Returns: str.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }
}

/// The program that the function returns; a message if the function fails.
fn called(
    py: Python<'_>,
    function: &Py<PyAny>,
    given: PyProgram,
) -> Result<Option<Program>, String> {
    let text = |error: PyErr| error.to_string();
    let found = Py::new(py, given).and_then(|given| function.call1(py, (given,))).map_err(text)?;
    let found = found.bind(py);
    if found.is_none() {
        return Ok(None);
    }
    match found.cast::<PyProgram>() {
        Ok(program) => Ok(Some(program.get().program().clone())),
        Err(_) => {
            let class = found.get_type().name().map_err(text)?;
            Err(format!(
                "it gives a {class}; expected a Program (such as program.rewrite(...)) or None"
            ))
        }
    }
}

/// Adds this file's class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyPass>()
}
