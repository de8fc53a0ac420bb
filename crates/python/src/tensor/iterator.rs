//! Iteration over a tensor.

use super::PyTensor;
use crate::errors::IntoPy;
use crate::location;
use girih::Tensor;
use pyo3::prelude::*;

/// Iterates over the slices along the first axis; each slice is recorded when it is requested.
#[pyclass(module = "girih")]
pub struct TensorIterator {
    pub(super) tensor: Tensor,
    pub(super) next: usize,
    pub(super) len: usize,
}

#[pymethods]
impl TensorIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<PyTensor>> {
        if self.next == self.len {
            return Ok(None);
        }
        let _called = location::enter!(py);
        let row = self.tensor.index(&[girih::Index::At(self.next as i64)]).py()?;
        self.next += 1;
        Ok(Some(PyTensor(row)))
    }

    /// The number of remaining slices. Returns: int.
    fn __length_hint__(&self) -> usize {
        self.len - self.next
    }
}
