//! The registry of ops, for tests of the package.

use girih::ir::OpCode;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The ops of the registry, for tests. Each is a dict: name, category, sentence, maximum number of
/// operands, whether gradients flow, and the function to call (or the reason why there is none).
/// Returns: list[dict[str, Any]].
#[pyfunction]
fn _registry(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let entry = |code: &OpCode| {
        let (def, entry) = (code.def(), PyDict::new(py));
        entry.set_item("name", def.name)?;
        entry.set_item("category", def.category().name())?;
        entry.set_item("doc", def.doc)?;
        entry.set_item("operands", def.arity.1)?;
        use girih::ir::ops::Derivative::{Refused, Zero};
        let none = matches!(def.derivative, Zero(_) | Refused(_));
        entry.set_item("differentiable", !none)?;
        entry.set_item("python", code.python().ok())?;
        entry.set_item("reason", code.python().err())?;
        Ok(entry)
    };
    OpCode::ALL.iter().map(entry).collect()
}

/// Adds this file's function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_registry, m)?)
}
