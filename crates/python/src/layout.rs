//! Layouts of tensors on the processing elements (PEs) of a wafer, from Python: what each PE has, and
//! the transfers from one layout to another. `girih.layout` shows them to users.

mod memory;
mod planner;

use crate::args::SizesArg;
use crate::dtype::DTypeArg;
use crate::errors::{exception, invalid};
use crate::interpreter::detach;
use crate::scalars;
use crate::sequences::{self, Listed, Pair};
use crate::sharding::PySharding;
use girih::layout::{self, LayoutError, MeshAxis, MeshLayout, Pe, Tile, TileTransfer, Transform};
use girih::sharding::MAX_PROCESSORS;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple, PyType};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The exception of an error of a layout.
pub fn raised(error: LayoutError) -> PyErr {
    let message = error.to_string();
    match error {
        LayoutError::Fit(_) => exception("OutOfMemoryError", message),
        LayoutError::Rank { .. } => exception("ShapeError", message),
        LayoutError::Outside { .. } => exception("IndexOutOfBoundsError", message),
        LayoutError::Text(_) => exception("FormatError", message),
        _ => invalid(message),
    }
}

/// A layout with few enough PEs for a function that looks at each.
fn made(layout: Result<MeshLayout, LayoutError>) -> PyResult<PyLayout> {
    let layout = layout.map_err(raised)?;
    let pes = layout.total_pes();
    match pes > MAX_PROCESSORS {
        false => Ok(PyLayout(layout)),
        true => Err(invalid(format!(
            "{layout} has {pes} PEs; a layout has {MAX_PROCESSORS} at most, use fewer"
        ))),
    }
}

/// A shape.
struct Sizes(Vec<usize>);

impl<'a, 'py> FromPyObject<'a, 'py> for Sizes {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let sizes = object.extract::<SizesArg>()?;
        sizes.at_least(0, "layout", "each size of a shape").map(Sizes)
    }
}

/// A PE as (row, column).
fn pe(object: &Bound<'_, PyAny>) -> PyResult<Pe> {
    let Pair(row, col) = object.extract::<Pair<Bound<'_, PyAny>>>()?;
    Ok(Pe { row: scalars::whole(&row)?, col: scalars::whole(&col)? })
}

/// A rectangle as (start, extent).
fn tile(object: &Bound<'_, PyAny>) -> PyResult<Tile> {
    let Pair(start, extent) = object.extract::<Pair<Sizes>>()?;
    Ok((start.0, extent.0))
}

/// The rectangles of all PEs, as a list in row-major order or a function of row and column.
fn tiles(object: &Bound<'_, PyAny>, rows: usize, cols: usize) -> PyResult<Vec<Tile>> {
    if !object.is_callable() || object.is_instance_of::<PyType>() {
        return sequences::read(object, sequences::MANY, |item| tile(&item));
    }
    let pes = rows.saturating_mul(cols);
    if pes > sequences::MANY {
        let most = sequences::MANY;
        return Err(invalid(format!(
            "custom: {pes} PEs need a table of at most {most}; use fewer"
        )));
    }
    (0..pes).map(|at| tile(&object.call1((at / cols, at % cols))?)).collect()
}

/// The layout with a table of rectangles. Returns: Layout.
#[pyfunction]
fn layout_custom(
    #[pyo3(from_py_with = scalars::whole)] rows: usize,
    #[pyo3(from_py_with = scalars::whole)] cols: usize,
    shape: Sizes,
    tiles: &Bound<'_, PyAny>,
) -> PyResult<PyLayout> {
    let tiles = self::tiles(tiles, rows, cols)?;
    made(MeshLayout::custom(rows, cols, &shape.0, tiles))
}

/// The distribution of a tensor over the processing elements (PEs) of a mesh with rows and columns,
/// which annotates a tensor: its value stays on its device. Text is read as str writes it; sizes that
/// are not divisible give the last PEs fewer elements, or none.
#[pyclass(name = "Layout", module = "girih.layout", frozen)]
pub struct PyLayout(pub MeshLayout);

#[pymethods]
impl PyLayout {
    #[new]
    fn new(#[pyo3(from_py_with = scalars::text)] text: &str) -> PyResult<PyLayout> {
        made(text.parse())
    }

    /// A layout with the whole tensor on PE (0, 0). Returns: Layout.
    #[staticmethod]
    fn single_pe() -> PyLayout {
        PyLayout(MeshLayout::single_pe())
    }

    /// A layout that splits the first axis over PEs, one in each row. Returns: Layout.
    #[staticmethod]
    fn row_partition(#[pyo3(from_py_with = scalars::whole)] num_pes: usize) -> PyResult<PyLayout> {
        made(MeshLayout::row_partition(num_pes))
    }

    /// A layout that splits the second axis over PEs, one in each column. Returns: Layout.
    #[staticmethod]
    fn col_partition(#[pyo3(from_py_with = scalars::whole)] num_pes: usize) -> PyResult<PyLayout> {
        made(MeshLayout::col_partition(num_pes))
    }

    /// A layout that splits the first axis over rows and the second one over columns of PEs.
    /// Returns: Layout.
    #[staticmethod]
    fn grid(
        #[pyo3(from_py_with = scalars::whole)] rows: usize,
        #[pyo3(from_py_with = scalars::whole)] cols: usize,
    ) -> PyResult<PyLayout> {
        made(MeshLayout::grid(rows, cols))
    }

    /// Like grid, but in blocks that are assigned cyclically. Returns: Layout.
    #[staticmethod]
    fn block_cyclic(
        #[pyo3(from_py_with = scalars::whole)] rows: usize,
        #[pyo3(from_py_with = scalars::whole)] cols: usize,
        #[pyo3(from_py_with = scalars::whole)] block_rows: usize,
        #[pyo3(from_py_with = scalars::whole)] block_cols: usize,
    ) -> PyResult<PyLayout> {
        made(MeshLayout::block_cyclic(rows, cols, block_rows, block_cols))
    }

    /// A layout with the whole tensor on every PE. Returns: Layout.
    #[staticmethod]
    fn replicated(
        #[pyo3(from_py_with = scalars::whole)] rows: usize,
        #[pyo3(from_py_with = scalars::whole)] cols: usize,
    ) -> PyResult<PyLayout> {
        made(MeshLayout::replicated(rows, cols))
    }

    /// A layout for tensors of one shape, with a rectangle for each PE as (start, extent): a list in
    /// row-major order, or a function of row and column. Returns: Layout.
    #[staticmethod]
    fn custom(
        #[pyo3(from_py_with = scalars::whole)] rows: usize,
        #[pyo3(from_py_with = scalars::whole)] cols: usize,
        shape: Sizes,
        tiles: &Bound<'_, PyAny>,
    ) -> PyResult<PyLayout> {
        layout_custom(rows, cols, shape, tiles)
    }

    /// The layout with the fewest PEs of a WSE-2 on which a tensor fits, with tiles of at most
    /// 32,768 bytes. Returns: Layout.
    #[staticmethod]
    #[pyo3(signature = (shape, dtype=None))]
    fn auto(py: Python<'_>, shape: Sizes, dtype: Option<DTypeArg>) -> PyResult<PyLayout> {
        let item = item(dtype);
        detach(py, || MeshLayout::auto(&shape.0, item)).map(PyLayout).map_err(raised)
    }

    /// The layout with other axes of the mesh: for each axis of the tensor "row", "col", "both" or
    /// None. Returns: Layout.
    fn with_axes(&self, axes: Listed<Bound<'_, PyAny>>) -> PyResult<PyLayout> {
        let axis = |axis: &Bound<'_, PyAny>| {
            Ok(match scalars::maybe_text(axis)? {
                None => None,
                Some("row") => Some(MeshAxis::Row),
                Some("col") => Some(MeshAxis::Col),
                Some("both") => Some(MeshAxis::Both),
                Some(other) => {
                    return Err(invalid(format!(
                        "with_axes: an axis is 'row', 'col', 'both' or None, got {other:?}"
                    )));
                }
            })
        };
        let axes = axes.iter().map(axis).collect::<PyResult<Vec<_>>>()?;
        made(self.0.clone().with_axes(&axes))
    }

    /// The rows of PEs. Returns: int.
    #[getter]
    fn pe_rows(&self) -> usize {
        self.0.rows()
    }

    /// The columns of PEs. Returns: int.
    #[getter]
    fn pe_cols(&self) -> usize {
        self.0.cols()
    }

    /// The number of PEs. Returns: int.
    #[getter]
    fn total_pes(&self) -> usize {
        self.0.total_pes()
    }

    /// The shape of a PE's tile of a tensor of a shape. Returns: tuple[int, ...].
    #[pyo3(signature = (shape, pe_coord=Pe::default()))]
    fn tile_shape<'py>(
        &self,
        py: Python<'py>,
        shape: Sizes,
        #[pyo3(from_py_with = pe)] pe_coord: Pe,
    ) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.tile_shape(pe_coord, &shape.0).map_err(raised)?)
    }

    /// The rectangles of a tensor of a shape that a PE has, as (start, extent).
    /// Returns: list[tuple[tuple[int, ...], tuple[int, ...]]].
    #[pyo3(signature = (shape, pe_coord=Pe::default()))]
    fn rectangles<'py>(
        &self,
        py: Python<'py>,
        shape: Sizes,
        #[pyo3(from_py_with = pe)] pe_coord: Pe,
    ) -> PyResult<Vec<(Bound<'py, PyTuple>, Bound<'py, PyTuple>)>> {
        let rects = self.0.rectangles(pe_coord, &shape.0).map_err(raised)?;
        let pair = |rect: layout::TileRect| {
            Ok((PyTuple::new(py, rect.start)?, PyTuple::new(py, rect.extent)?))
        };
        rects.into_iter().map(pair).collect()
    }

    /// The bytes of the tiles of a tensor of a shape: of the smallest, the largest, their mean and
    /// their sum. Returns: dict[str, int | float].
    #[pyo3(signature = (shape, dtype=None))]
    fn memory_usage<'py>(
        &self,
        py: Python<'py>,
        shape: Sizes,
        dtype: Option<DTypeArg>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let item = item(dtype);
        let usage = detach(py, || layout::memory_usage_per_pe(&self.0, &shape.0, item));
        let usage = usage.map_err(raised)?;
        let found = PyDict::new(py);
        found.set_item("min", usage.min)?;
        found.set_item("max", usage.max)?;
        found.set_item("average", usage.average)?;
        found.set_item("total", usage.total)?;
        Ok(found)
    }

    /// Whether each PE has the same elements of a tensor of a shape under both layouts.
    /// Returns: bool.
    fn compatible_with(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::object)] other: Bound<'_, PyLayout>,
        shape: Sizes,
    ) -> PyResult<bool> {
        let other = &other.get().0;
        detach(py, || self.0.compatible_with(other, &shape.0)).map_err(raised)
    }

    /// The layout as a sharding of tensors of a rank over a mesh without devices, with axes row and
    /// col; None for blocks that are assigned cyclically and for a table.
    /// Returns: Sharding | None.
    fn sharding(
        &self,
        #[pyo3(from_py_with = scalars::whole)] rank: usize,
    ) -> PyResult<Option<PySharding>> {
        if rank > girih::ir::MAX_RANK {
            return Err(invalid(format!("sharding: there are no tensors of rank {rank}")));
        }
        Ok(self.0.ghost_sharding(rank).map_err(raised)?.map(PySharding))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyLayout>().is_ok_and(|other| self.0 == other.get().0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        match self.0.tiles() {
            None => format!("Layout('{}')", self.0),
            Some((shape, tiles)) => {
                let (rows, cols) = (self.0.rows(), self.0.cols());
                format!("Layout.custom({rows}, {cols}, {shape:?}, {tiles:?})")
            }
        }
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let Some((shape, tiles)) = self.0.tiles() else {
            let class: Bound<'py, PyType> = py.get_type::<PyLayout>();
            return (class, (self.0.to_string(),)).into_pyobject(py);
        };
        let restore = py.import("girih._girih")?.getattr("layout_custom")?;
        let arguments = (self.0.rows(), self.0.cols(), shape.to_vec(), tiles.to_vec());
        (restore, arguments).into_pyobject(py)
    }
}

/// The bytes of an element, of float32 by default.
fn item(dtype: Option<DTypeArg>) -> usize {
    dtype.map_or(4, |dtype| dtype.0.size())
}

/// Elements that a PE sends to a PE, or copies from its own tile.
#[pyclass(name = "TileTransfer", module = "girih.layout", frozen, eq)]
#[derive(PartialEq)]
pub struct PyTileTransfer(TileTransfer);

#[pymethods]
impl PyTileTransfer {
    /// The PE that has the elements, as (row, column). Returns: tuple[int, int].
    #[getter]
    fn source(&self) -> (usize, usize) {
        (self.0.source.row, self.0.source.col)
    }

    /// The PE that needs them. Returns: tuple[int, int].
    #[getter]
    fn target(&self) -> (usize, usize) {
        (self.0.target.row, self.0.target.col)
    }

    /// The index of the first element in the tensor. Returns: tuple[int, ...].
    #[getter]
    fn start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.rect.start)
    }

    /// The number of elements along each axis. Returns: tuple[int, ...].
    #[getter]
    fn extent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.rect.extent)
    }

    /// The index of the first element in the source's tile. Returns: tuple[int, ...].
    #[getter]
    fn source_start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.source_start)
    }

    /// The index of the first element in the target's tile. Returns: tuple[int, ...].
    #[getter]
    fn target_start<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.target_start)
    }

    /// Whether no data moves between PEs. Returns: bool.
    #[getter]
    fn is_local(&self) -> bool {
        self.0.is_local()
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.0.source, self.0.target, &self.0.rect).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("<{} from {:?} to {:?}>", self.0.rect, self.source(), self.target())
    }
}

/// The transfers from one layout to another, and what they cost.
#[pyclass(name = "Transform", module = "girih.layout", frozen)]
pub struct PyTransform(Transform);

#[pymethods]
impl PyTransform {
    /// The kind of change, such as "RESHARD". Returns: str.
    #[getter]
    fn r#type(&self) -> String {
        self.0.kind.to_string()
    }

    /// The bytes that PEs get from others. Returns: int.
    #[getter]
    fn bytes_moved(&self) -> usize {
        self.0.cost.bytes_moved
    }

    /// The wavelets of 32 bits that PEs get from others. Returns: int.
    #[getter]
    fn wavelets(&self) -> usize {
        self.0.cost.wavelets
    }

    /// The wires that wavelets pass; a wire that several PEs' elements have in common counts once.
    /// Returns: int.
    #[getter]
    fn wavelet_hops(&self) -> usize {
        self.0.cost.wavelet_hops
    }

    /// The cycles that the transfers take at least. Returns: int.
    #[getter]
    fn critical_path(&self) -> usize {
        self.0.cost.critical_path
    }

    /// The pieces of the new tiles, with those that a PE has already. Returns: list[TileTransfer].
    #[getter]
    fn transfers(&self) -> Vec<PyTileTransfer> {
        self.0.transfers.iter().cloned().map(PyTileTransfer).collect()
    }

    fn __repr__(&self) -> String {
        let (kind, moved) = (self.0.kind, self.0.cost.bytes_moved);
        format!("<Transform {kind}: {moved} B in {} transfers>", self.0.transfers.len())
    }
}

/// The transfers from one layout to another. Returns: Transform.
#[pyfunction]
#[pyo3(signature = (src, dst, shape, dtype=None))]
fn layout_transform(
    py: Python<'_>,
    src: &Bound<'_, PyAny>,
    dst: &Bound<'_, PyAny>,
    shape: Sizes,
    dtype: Option<DTypeArg>,
) -> PyResult<PyTransform> {
    let (src, dst, item) = (layout_of(src)?, layout_of(dst)?, item(dtype));
    let found = detach(py, || layout::transform(&src, &dst, &shape.0, item));
    found.map(PyTransform).map_err(raised)
}

/// A layout argument: a Layout, or its text.
pub fn layout_of(object: &Bound<'_, PyAny>) -> PyResult<MeshLayout> {
    match object.is_instance_of::<PyString>() {
        true => Ok(made(scalars::text(object)?.parse())?.0),
        false => Ok(scalars::object::<PyLayout>(object)?.get().0.clone()),
    }
}

/// Adds this file's classes and functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyLayout>()?;
    m.add_class::<PyTransform>()?;
    m.add_class::<PyTileTransfer>()?;
    m.add_function(wrap_pyfunction!(layout_custom, m)?)?;
    m.add_function(wrap_pyfunction!(layout_transform, m)?)?;
    planner::register(m)?;
    memory::register(m)
}
