//! The planner of a program's layouts, from Python.

use super::memory::{PyMemoryBudget, PyMemoryPlan, budget_of};
use super::{PyLayout, Sizes, item, layout_of, raised};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, exception};
use crate::interpreter::detach;
use crate::program::{PyProgram, node_id};
use crate::scalars::{self, described};
use crate::sequences;
use crate::sharding::PyP;
use girih::Program;
use girih::ir::NodeId;
use girih::layout::{self, FabricCost, GraphLayouts, LayoutConstraints, LayoutPlanner, MeshLayout};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use std::collections::BTreeMap;

/// The layouts that each value may have.
type Allowed = BTreeMap<NodeId, Vec<MeshLayout>>;

/// A value of a program: its name, or its number.
fn value(object: &Bound<'_, PyAny>, program: &Program) -> PyResult<NodeId> {
    match object.is_instance_of::<PyString>() {
        true => program.node_named(scalars::text(object)?).py(),
        false => node_id(program, scalars::whole(object)?),
    }
}

/// The layouts of values, by name or number: one, or several of which one is chosen.
fn allowed(object: Option<&Bound<'_, PyAny>>, program: &Program) -> PyResult<Allowed> {
    let Some(object) = object else { return Ok(Allowed::new()) };
    let Ok(given) = object.cast::<PyDict>() else {
        let found = described(object);
        let message = format!("layouts: a dict from values to layouts is expected, got {found}");
        return Err(exception("DTypeError", message));
    };
    let mut allowed = Allowed::new();
    for (key, layouts) in given {
        let one = layouts.is_instance_of::<PyString>() || layouts.is_instance_of::<PyLayout>();
        let layouts = match one {
            true => vec![layout_of(&layouts)?],
            false => sequences::read(&layouts, sequences::MANY, |item| layout_of(&item))?,
        };
        allowed.insert(value(&key, program)?, layouts);
    }
    Ok(allowed)
}

/// The layouts of all values: those of a plan, a dict from each value to its layout, or one layout
/// for all values.
pub fn layouts_of(
    object: &Bound<'_, PyAny>,
    program: &Program,
    constraints: LayoutConstraints,
) -> PyResult<GraphLayouts> {
    if let Ok(plan) = object.cast::<PyGraphLayouts>() {
        return Ok(plan.get().0.clone());
    }
    let one = object.is_instance_of::<PyString>() || object.is_instance_of::<PyLayout>();
    let graph = program.example().py()?;
    let layouts: BTreeMap<NodeId, MeshLayout> = match one {
        true => layout::for_all(&graph, &layout_of(object)?),
        false => {
            let of = |(id, mut layouts): (NodeId, Vec<MeshLayout>)| Some((id, layouts.pop()?));
            allowed(Some(object), program)?.into_iter().filter_map(of).collect()
        }
    };
    let planner = LayoutPlanner { constraints };
    detach(object.py(), || planner.insert_transforms(&graph, layouts)).map_err(raised)
}

/// Chooses the layouts of a program's values so that the least bytes move, within the limits of a
/// wafer.
#[pyclass(name = "LayoutPlanner", module = "girih.layout", frozen)]
pub struct PyLayoutPlanner(LayoutPlanner);

#[pymethods]
impl PyLayoutPlanner {
    #[new]
    #[pyo3(signature = (
        *, max_memory_per_pe=32 * 1024, min_tile_elements=64, max_pe_rows=750, max_pe_cols=994,
        prefer_square_tiles=true
    ))]
    fn new(
        #[pyo3(from_py_with = scalars::whole)] max_memory_per_pe: usize,
        #[pyo3(from_py_with = scalars::whole)] min_tile_elements: usize,
        #[pyo3(from_py_with = scalars::whole)] max_pe_rows: usize,
        #[pyo3(from_py_with = scalars::whole)] max_pe_cols: usize,
        #[pyo3(from_py_with = scalars::flag)] prefer_square_tiles: bool,
    ) -> PyLayoutPlanner {
        let constraints = LayoutConstraints {
            max_memory_per_pe,
            min_tile_elements,
            max_pe_rows,
            max_pe_cols,
            prefer_square_tiles,
        };
        PyLayoutPlanner(LayoutPlanner { constraints })
    }

    /// The layout with the fewest PEs whose tiles fit. Returns: Layout.
    #[pyo3(signature = (shape, dtype=None))]
    fn auto(&self, py: Python<'_>, shape: Sizes, dtype: Option<DTypeArg>) -> PyResult<PyLayout> {
        let item = item(dtype);
        let found = detach(py, || self.0.constraints.auto(&shape.0, item));
        found.map(PyLayout).map_err(raised)
    }

    /// The fewest PEs that have the bytes of a tensor, if its sizes could be divided at will.
    /// Returns: int.
    #[pyo3(signature = (shape, dtype=None))]
    fn min_pes_required(&self, shape: Sizes, dtype: Option<DTypeArg>) -> usize {
        self.0.constraints.min_pes(&shape.0, item(dtype))
    }

    /// Fails if a layout is not on the fabric or its tiles do not fit. Returns: None.
    #[pyo3(signature = (layout, shape, dtype=None))]
    fn check(
        &self,
        layout: &Bound<'_, PyAny>,
        shape: Sizes,
        dtype: Option<DTypeArg>,
    ) -> PyResult<()> {
        self.0.constraints.check(&layout_of(layout)?, &shape.0, item(dtype)).map_err(raised)
    }

    /// The layouts of a program's values with the least communication, and the transforms between
    /// them. Returns: GraphLayouts.
    #[pyo3(signature = (graph, layouts=None))]
    fn plan(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyProgram>,
        layouts: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyGraphLayouts> {
        let program = graph.get().program().clone();
        let allowed = allowed(layouts.as_ref(), &program)?;
        let graph = program.example().py()?;
        let plan = detach(py, || self.0.plan(&graph, &allowed));
        plan.map(PyGraphLayouts).map_err(raised)
    }

    /// Layouts as plan chooses them, whose values fit in the memory of the PEs together, and where
    /// they are there. Returns: tuple[GraphLayouts, MemoryPlan].
    #[pyo3(signature = (graph, layouts=None, budget=None))]
    fn plan_within(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyProgram>,
        layouts: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = scalars::maybe_object)] budget: Option<Bound<'_, PyMemoryBudget>>,
    ) -> PyResult<(PyGraphLayouts, PyMemoryPlan)> {
        let program = graph.get().program().clone();
        let allowed = allowed(layouts.as_ref(), &program)?;
        let (graph, budget) = (program.example().py()?, budget_of(budget));
        let plan = detach(py, || self.0.plan_within(&graph, &allowed, &budget));
        let (layouts, memory) = plan.map_err(raised)?;
        Ok((PyGraphLayouts(layouts), PyMemoryPlan(memory)))
    }

    /// The transforms that a program needs under a given layout of each value.
    /// Returns: GraphLayouts.
    fn insert_transforms(
        &self,
        #[pyo3(from_py_with = scalars::object)] graph: Bound<'_, PyProgram>,
        layouts: &Bound<'_, PyAny>,
    ) -> PyResult<PyGraphLayouts> {
        let program = graph.get().program().clone();
        layouts_of(layouts, &program, self.0.constraints).map(PyGraphLayouts)
    }

    fn __repr__(&self) -> String {
        let LayoutConstraints {
            max_memory_per_pe,
            min_tile_elements,
            max_pe_rows,
            max_pe_cols,
            prefer_square_tiles,
        } = self.0.constraints;
        let square = if prefer_square_tiles { "True" } else { "False" };
        format!(
            "LayoutPlanner(max_memory_per_pe={max_memory_per_pe}, \
             min_tile_elements={min_tile_elements}, max_pe_rows={max_pe_rows}, \
             max_pe_cols={max_pe_cols}, prefer_square_tiles={square})"
        )
    }
}

/// The layouts of a program's values, and the transforms between them.
#[pyclass(name = "GraphLayouts", module = "girih.layout", frozen)]
pub struct PyGraphLayouts(pub GraphLayouts);

/// Sets the parts of a cost.
fn set_cost(found: &Bound<'_, PyDict>, cost: &FabricCost) -> PyResult<()> {
    found.set_item("bytes_moved", cost.bytes_moved)?;
    found.set_item("wavelets", cost.wavelets)?;
    found.set_item("wavelet_hops", cost.wavelet_hops)?;
    found.set_item("critical_path", cost.critical_path)
}

#[pymethods]
impl PyGraphLayouts {
    /// The layout of each value, by the number of its node. Returns: dict[int, Layout].
    #[getter]
    fn layouts(&self) -> BTreeMap<usize, PyLayout> {
        let layouts = self.0.layouts.iter();
        layouts.map(|(id, layout)| (id.index(), PyLayout(layout.clone()))).collect()
    }

    /// The values that ops take in another layout than their own, with the ops and the positions of
    /// their operands. Returns: list[dict[str, Any]].
    #[getter]
    fn operands<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let shown = |transform: &girih::layout::OperandTransform| {
            let found = PyDict::new(py);
            let users = transform.users.iter().map(|(user, at)| (user.index(), *at));
            found.set_item("value", transform.value.index())?;
            found.set_item("to", PyLayout(transform.to.clone()))?;
            found.set_item("type", transform.kind.to_string())?;
            found.set_item("users", users.collect::<Vec<_>>())?;
            set_cost(&found, &transform.cost)?;
            Ok(found)
        };
        self.0.operands.iter().map(shown).collect()
    }

    /// The results that ops compute in another way than their layouts: as partial values, or in
    /// other tiles, as a spec over axes row and col. Returns: list[dict[str, Any]].
    #[getter]
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let shown = |transform: &girih::layout::ResultTransform| {
            let found = PyDict::new(py);
            found.set_item("value", transform.value.index())?;
            found.set_item("spec", PyP(transform.spec.clone()))?;
            found.set_item("mesh", transform.mesh)?;
            let to = self.0.layouts.get(&transform.value).cloned().map(PyLayout);
            found.set_item("to", to)?;
            set_cost(&found, &transform.cost)?;
            Ok(found)
        };
        self.0.results.iter().map(shown).collect()
    }

    /// The number of transforms. Returns: int.
    #[getter]
    fn num_transforms(&self) -> usize {
        self.0.num_transforms()
    }

    /// The cost of all transforms, one after the other. Returns: dict[str, int].
    #[getter]
    fn cost<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        set_cost(&found, &self.0.cost())?;
        Ok(found)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let (values, transforms) = (self.0.layouts.len(), self.0.num_transforms());
        let moved = self.0.cost().bytes_moved;
        format!("<GraphLayouts of {values} values: {transforms} transforms, {moved} B>")
    }
}

/// Adds this file's classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLayoutPlanner>()?;
    m.add_class::<PyGraphLayouts>()
}
