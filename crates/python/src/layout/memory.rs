//! The memory of processing elements (PEs), and plans of it, from Python.

use super::planner::layouts_of;
use super::{pe, raised};
use crate::errors::IntoPy;
use crate::interpreter::detach;
use crate::program::PyProgram;
use crate::scalars;
use girih::layout::{LayoutConstraints, MemoryBudget, MemoryPlan, Pe, plan_memory};
use pyo3::prelude::*;

/// The division of a PE's memory, in bytes; what is left is for data.
#[pyclass(name = "MemoryBudget", module = "girih.layout", frozen, eq)]
#[derive(PartialEq)]
pub struct PyMemoryBudget(pub MemoryBudget);

/// A region of memory: offset, size and name.
type Region = (usize, usize, String);

#[pymethods]
impl PyMemoryBudget {
    #[new]
    #[pyo3(signature = (total=48 * 1024, code=8 * 1024, stack=4 * 1024, routing=0))]
    fn new(
        #[pyo3(from_py_with = scalars::whole)] total: usize,
        #[pyo3(from_py_with = scalars::whole)] code: usize,
        #[pyo3(from_py_with = scalars::whole)] stack: usize,
        #[pyo3(from_py_with = scalars::whole)] routing: usize,
    ) -> PyMemoryBudget {
        PyMemoryBudget(MemoryBudget { total, code, stack, routing })
    }

    /// The whole memory. Returns: int.
    #[getter]
    fn total(&self) -> usize {
        self.0.total
    }

    /// The program. Returns: int.
    #[getter]
    fn code(&self) -> usize {
        self.0.code
    }

    /// The stack of the tasks. Returns: int.
    #[getter]
    fn stack(&self) -> usize {
        self.0.stack
    }

    /// The tables of the router. Returns: int.
    #[getter]
    fn routing(&self) -> usize {
        self.0.routing
    }

    /// The bytes for data. Returns: int.
    #[getter]
    fn data(&self) -> PyResult<usize> {
        self.0.data().map_err(raised)
    }

    /// The data memory as two equal buffers for a stream, and scratch memory of a size: offset, size
    /// and name of each. Returns: list[tuple[int, int, str]].
    fn double_buffer(
        &self,
        #[pyo3(from_py_with = scalars::whole)] scratch: usize,
    ) -> PyResult<Vec<Region>> {
        let stream = self.0.double_buffer(scratch).map_err(raised)?;
        let regions = stream.buffers.into_iter().chain([stream.scratch]);
        Ok(regions.map(|region| (region.offset, region.size, region.name)).collect())
    }

    fn __hash__(&self) -> usize {
        self.0.total ^ self.0.code.rotate_left(16) ^ self.0.stack.rotate_left(32) ^ self.0.routing
    }

    fn __repr__(&self) -> String {
        let MemoryBudget { total, code, stack, routing } = self.0;
        format!("MemoryBudget(total={total}, code={code}, stack={stack}, routing={routing})")
    }

    fn __getnewargs__(&self) -> (usize, usize, usize, usize) {
        (self.0.total, self.0.code, self.0.stack, self.0.routing)
    }
}

/// Where the PEs have the tiles of a program's values, all at the same offsets.
#[pyclass(name = "MemoryPlan", module = "girih.layout", frozen)]
pub struct PyMemoryPlan(pub MemoryPlan);

#[pymethods]
impl PyMemoryPlan {
    /// The bytes for data of each PE. Returns: int.
    #[getter]
    fn available(&self) -> usize {
        self.0.available
    }

    /// The rows and columns of PEs that have tiles. Returns: tuple[int, int].
    #[getter]
    fn mesh(&self) -> (usize, usize) {
        self.0.mesh()
    }

    /// The bytes that the fullest PE uses. Returns: int.
    #[getter]
    fn max_pe_memory_used(&self) -> usize {
        self.0.max_pe_memory_used()
    }

    /// The bytes that all PEs use. Returns: int.
    #[getter]
    fn total_memory_used(&self, py: Python<'_>) -> usize {
        detach(py, || self.0.total_memory_used())
    }

    /// The part of the PEs' data memory that is used. Returns: float.
    #[getter]
    fn average_utilization(&self, py: Python<'_>) -> f64 {
        detach(py, || self.0.average_utilization())
    }

    /// The bytes that the fullest PE would use if no region were used again. Returns: int.
    #[getter]
    fn without_reuse(&self) -> usize {
        self.0.without_reuse()
    }

    /// The values and their copies, with layout, first and last node of their lives, and region as
    /// large as the largest tile. Returns: list[dict[str, Any]].
    #[getter]
    fn placements<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, pyo3::types::PyDict>>> {
        let shown = |placement: &girih::layout::Placement| {
            let found = pyo3::types::PyDict::new(py);
            found.set_item("value", placement.value.index())?;
            let layout = placement.layout.clone().map(super::PyLayout);
            found.set_item("layout", layout)?;
            found.set_item("live", placement.live)?;
            found.set_item("offset", placement.region.offset)?;
            found.set_item("size", placement.region.size)?;
            found.set_item("name", &placement.region.name)?;
            found.set_item("reuses", placement.reuses.map(|value| value.index()))?;
            Ok(found)
        };
        self.0.placements.iter().map(shown).collect()
    }

    /// The regions of a PE's tiles: offset, size and name. Returns: list[tuple[int, int, str]].
    #[pyo3(signature = (pe_coord=Pe::default()))]
    fn regions(&self, #[pyo3(from_py_with = pe)] pe_coord: Pe) -> Vec<Region> {
        let regions = self.0.pe(pe_coord).regions.into_iter();
        regions.map(|region| (region.offset, region.size, region.name)).collect()
    }

    /// The bytes that a PE has left. Returns: int.
    #[pyo3(signature = (pe_coord=Pe::default()))]
    fn free_bytes(&self, #[pyo3(from_py_with = pe)] pe_coord: Pe) -> usize {
        self.0.pe(pe_coord).free_bytes()
    }

    fn __repr__(&self) -> String {
        let (rows, cols) = self.0.mesh();
        let (used, available) = (self.0.max_pe_memory_used(), self.0.available);
        format!("<MemoryPlan: {used} of {available} B on {rows} x {cols} PEs>")
    }
}

/// The budget of an argument.
pub fn budget_of(budget: Option<Bound<'_, PyMemoryBudget>>) -> MemoryBudget {
    budget.map(|budget| budget.get().0).unwrap_or_default()
}

/// Places the values of a program under layouts. Returns: MemoryPlan.
#[pyfunction]
#[pyo3(signature = (graph, layouts, budget=None))]
fn layout_plan_memory(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyProgram>,
    layouts: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = scalars::maybe_object)] budget: Option<Bound<'_, PyMemoryBudget>>,
) -> PyResult<PyMemoryPlan> {
    let budget = budget_of(budget);
    let program = graph.get().program().clone();
    // What is allowed here is what the budget says.
    let max_memory_per_pe = budget.data().map_err(raised)?;
    let limits = LayoutConstraints { max_memory_per_pe, ..LayoutConstraints::default() };
    let layouts = layouts_of(layouts, &program, limits)?;
    let graph = program.example().py()?;
    let plan = detach(py, || plan_memory(&graph, &layouts, &budget));
    plan.map(PyMemoryPlan).map_err(raised)
}

/// Adds this file's classes and function.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyMemoryBudget>()?;
    m.add_class::<PyMemoryPlan>()?;
    m.add_function(wrap_pyfunction!(layout_plan_memory, m)?)
}
