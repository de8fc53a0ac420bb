//! Files of programs and tensors, the representations of graphs, and the `girih` command.

use crate::args::{IntArg, TensorArg};
use crate::compiled::Failure;
use crate::errors::IntoPy;
use crate::interpreter::detach;
use crate::scalars;
use crate::sequences::Listed;
use crate::tensor::PyTensor;
use girih::io::{Float8, Format};
use girih::{NodeInfo, Program, Tensor, TensorSpec};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A graph with the values that it contains, which can be run on other inputs. Call it with one
/// tensor per input, or with inputs by name. The result is lazy: a dict if the outputs have names,
/// otherwise a tensor, or a tuple of several tensors. Symbolic sizes may differ between calls.
#[pyclass(name = "Program", module = "girih", frozen)]
pub struct PyProgram(pub(crate) Mutex<Program>);

impl PyProgram {
    pub(crate) fn program(&self) -> MutexGuard<'_, Program> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refs(tensors: &[TensorArg]) -> Vec<&Tensor> {
    tensors.iter().map(|t| &t.0).collect()
}

/// Name, shape and dtype of an input or output. Symbolic sizes are text.
fn described<'py>(
    py: Python<'py>,
    specs: Vec<(String, TensorSpec)>,
) -> PyResult<Bound<'py, PyList>> {
    let describe = |(name, spec): (String, TensorSpec)| {
        (name, sizes(py, &spec)?, spec.dtype.name()).into_pyobject(py)
    };
    PyList::new(py, specs.into_iter().map(describe).collect::<PyResult<Vec<_>>>()?)
}

/// A node of a program.
#[pyclass(name = "Node", module = "girih._girih", frozen)]
pub struct PyNode(pub(crate) NodeInfo);

#[pymethods]
impl PyNode {
    /// The number of the node in its program. Returns: int.
    #[getter]
    fn id(&self) -> usize {
        self.0.id
    }

    /// The name that the node was given; otherwise the name of its op with the node's number.
    /// Returns: str.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The name of the op. Returns: str.
    #[getter]
    fn op(&self) -> &str {
        self.0.op
    }

    /// The attributes of the op by name, as :func:`apply` takes them; attributes with the default
    /// value may be missing. Returns: dict[str, Any].
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attributes = PyDict::new(py);
        for (name, value) in &self.0.attributes {
            attributes.set_item(name, crate::apply::to_python(py, value)?)?;
        }
        Ok(attributes)
    }

    /// The hints on the node, by key. Returns: dict[str, str].
    #[getter]
    fn hints(&self) -> std::collections::BTreeMap<String, String> {
        self.0.hints.clone()
    }

    /// The kind of op, such as ``OP_ELEMENTWISE``. Returns: str.
    #[getter]
    fn category(&self) -> &str {
        self.0.category.name()
    }

    /// ``CONSTANT``, ``PARAMETER``, ``INPUT`` or ``INTERMEDIATE``. Returns: str.
    #[getter]
    fn kind(&self) -> &str {
        self.0.kind
    }

    /// The sizes; symbolic sizes are text. Returns: list[int | str].
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        sizes(py, &self.0.spec)
    }

    /// The dtype's name. Returns: str.
    #[getter]
    fn dtype(&self) -> &str {
        self.0.spec.dtype.name()
    }

    /// The position of the node among the results of its op; 0 for ops with one result.
    /// Returns: int.
    #[getter]
    fn output_index(&self) -> usize {
        self.0.output_index
    }

    /// The number of the first node that is a result of the same call: of the same op with the same
    /// attributes and operands. The node's own number for ops with one result. Returns: int.
    #[getter]
    fn call(&self) -> usize {
        self.0.call
    }

    /// The numbers of the operands. Returns: list[int].
    #[getter]
    fn inputs(&self) -> Vec<usize> {
        self.0.inputs.clone()
    }

    /// The numbers of the nodes that have this node as an operand, one entry for each operand.
    /// Returns: list[int].
    #[getter]
    fn users(&self) -> Vec<usize> {
        self.0.users.clone()
    }

    fn __repr__(&self) -> String {
        let NodeInfo { id, name, spec, inputs, .. } = &self.0;
        let operands: Vec<String> = inputs.iter().map(|i| format!("%{i}")).collect();
        format!("<Node %{id} {name}({}) -> {spec}>", operands.join(", "))
    }
}

/// The sizes as Python objects; symbolic sizes are text.
fn sizes<'py>(py: Python<'py>, spec: &TensorSpec) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let size = |dim: girih::Dim| match dim.known() {
        Some(size) => Ok(size.into_pyobject(py)?.into_any()),
        None => Ok(dim.to_string().into_pyobject(py)?.into_any()),
    };
    spec.shape.dims().map(size).collect()
}

#[pymethods]
impl PyProgram {
    /// Names, shapes and dtypes of the inputs; symbolic sizes are text.
    /// Returns: list[tuple[str, list[int | str], str]].
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let inputs = self.program().inputs();
        described(py, inputs.into_iter().map(|input| (input.name, input.spec)).collect())
    }

    /// Names, shapes and dtypes of the outputs, in the form of `inputs`.
    /// Returns: list[tuple[str, list[int | str], str]].
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let outputs = self.program().outputs();
        described(py, outputs)
    }

    /// The conditions on symbolic sizes under which the program is valid. Returns: list[str].
    #[getter]
    fn guards(&self) -> Vec<String> {
        self.program().graph().guards().iter().map(ToString::to_string).collect()
    }

    /// The values of the parameters in the program, by name. Returns: dict[str, Tensor].
    #[getter]
    fn parameters(&self) -> std::collections::BTreeMap<String, PyTensor> {
        let parameters = self.program().parameters().into_iter();
        parameters.map(|(name, tensor)| (name, PyTensor(tensor))).collect()
    }

    /// The nodes of the graph; operands come before their users. Returns: list[Node].
    #[getter]
    fn nodes(&self) -> Vec<PyNode> {
        self.program().nodes().into_iter().map(PyNode).collect()
    }

    /// The node with this number. Returns: Node.
    fn node(&self, #[pyo3(from_py_with = scalars::whole)] node: i64) -> PyResult<PyNode> {
        let program = self.program();
        let id = node_id(&program, node)?;
        Ok(PyNode(program.node(id.index()).expect("the number has been checked")))
    }

    /// The value that the program holds for the node with this number, of a constant or of a tensor
    /// that it refers to; None for nodes that a call computes. Returns: Tensor | None.
    fn value(
        &self,
        #[pyo3(from_py_with = scalars::whole)] node: i64,
    ) -> PyResult<Option<PyTensor>> {
        let program = self.program();
        let id = node_id(&program, node)?;
        Ok(program.value(id.index()).map(PyTensor))
    }

    /// The part of the program that computes the nodes with these numbers, as a separate program.
    /// Returns: Program.
    fn subgraph(&self, nodes: Listed<IntArg>) -> PyResult<PyProgram> {
        let program = self.program();
        let ids = nodes.iter().map(|node| node_id(&program, node.0).map(|id| id.index()));
        let part = program.subgraph(&ids.collect::<PyResult<Vec<_>>>()?).py()?;
        Ok(PyProgram(Mutex::new(part)))
    }

    /// The number of nodes of the graph. Returns: int.
    #[getter]
    fn num_nodes(&self) -> usize {
        self.program().graph().len()
    }

    /// The number of nodes that are not leaves. Returns: int.
    #[getter]
    fn num_ops(&self) -> usize {
        self.program().graph().num_ops()
    }

    /// The graph as text, without values. Returns: str.
    #[getter]
    fn text(&self) -> String {
        self.program().to_text()
    }

    /// The graph in Graphviz's DOT format. Returns: str.
    fn to_dot(&self) -> String {
        self.program().to_dot()
    }

    /// The graph as an SVG picture. Returns: str.
    fn to_svg(&self) -> String {
        self.program().to_svg()
    }

    /// The graph as an HTML page that can be panned, zoomed and searched. Returns: str.
    #[pyo3(signature = (title="graph"))]
    fn to_html(&self, #[pyo3(from_py_with = scalars::text)] title: &str) -> String {
        self.program().to_html(title)
    }

    /// The program with replaced nodes. ``rule(node, *operands)`` is called for each node that the
    /// outputs need, with the operands after their own replacement; it returns the replacement, or
    /// None to keep the node. Inputs, parameters and random leaves are kept. Returns: Program.
    fn rewrite(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::function)] rule: Bound<'_, PyAny>,
    ) -> PyResult<PyProgram> {
        crate::location::enter(py);
        let program = self.program().clone();
        let rewritten = program.rewrite(|node, operands| -> Result<_, Failure> {
            let mut arguments = vec![Py::new(py, PyNode(node.clone()))?.into_any()];
            for operand in operands {
                arguments.push(Py::new(py, PyTensor(operand.clone()))?.into_any());
            }
            let found = rule.call1(PyTuple::new(py, arguments)?)?;
            Ok((!found.is_none()).then(|| found.extract::<TensorArg>()).transpose()?.map(|t| t.0))
        });
        match rewritten {
            Ok(program) => Ok(PyProgram(Mutex::new(program))),
            Err(Failure(error)) => Err(error),
        }
    }

    /// The program with a broadcast_to node, of category OP_BROADCAST, for each implicit broadcast
    /// of an operand. Returns: Program.
    fn explicit_broadcasts(&self, py: Python<'_>) -> PyResult<PyProgram> {
        crate::location::enter(py);
        let program = self.program().clone();
        wrapped(program.explicit_broadcasts())
    }

    /// Makes the node with this number an additional output, unless it is an output already, and
    /// returns its position among the outputs. Calls then return its value too. Returns: int.
    fn mark_output(&self, #[pyo3(from_py_with = scalars::whole)] node: i64) -> PyResult<usize> {
        let mut program = self.program();
        let id = node_id(&program, node)?;
        program.graph_mut().mark_output(id).map_err(girih::Error::from).py()
    }

    /// Sets the name of the node with this number. Returns: None.
    fn set_name(
        &self,
        #[pyo3(from_py_with = scalars::whole)] node: i64,
        #[pyo3(from_py_with = scalars::text)] name: &str,
    ) -> PyResult<()> {
        self.set_hint(node, "name", name)
    }

    /// Sets a hint on the node with this number. Hints never change a value; they are stored in
    /// files and text, and recorded by calls of the program. The compiler reads ``fuse``: with the
    /// value ``no``, the op is computed in separate kernels, not fused with its operands or its
    /// users. The hint ``layout`` is a layout that the node's value can have, such as ``Grid(2,
    /// 2)``. Returns: None.
    fn set_hint(
        &self,
        #[pyo3(from_py_with = scalars::whole)] node: i64,
        #[pyo3(from_py_with = scalars::text)] key: &str,
        #[pyo3(from_py_with = scalars::text)] value: &str,
    ) -> PyResult<()> {
        let mut program = self.program();
        let id = node_id(&program, node)?;
        program.set_hint(id, key, value).py()
    }

    /// The hints on the node with this number. Returns: dict[str, str].
    fn hints(
        &self,
        #[pyo3(from_py_with = scalars::whole)] node: i64,
    ) -> PyResult<std::collections::BTreeMap<String, String>> {
        let program = self.program();
        Ok(program.graph().hints(node_id(&program, node)?).clone())
    }

    /// The contents of a PFGB file of the program. Returns: bytes.
    fn serialize<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let program = self.program().clone();
        let bytes = detach(py, || program.to_bytes()).py()?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes the program in the format that the suffix selects: .pfgb includes the values; .txt,
    /// .dot, .svg and .html do not. Returns: None.
    fn save(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = scalars::path)] path: PathBuf,
    ) -> PyResult<()> {
        let program = self.program().clone();
        detach(py, || program.save(&path)).py()
    }

    #[pyo3(signature = (*values, **named))]
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        values: Listed<TensorArg>,
        named: Option<std::collections::BTreeMap<String, TensorArg>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::location::enter(py);
        let program = self.program().clone();
        let mut given: Vec<&Tensor> = values.iter().map(|a| &a.0).collect();
        let mut named = named.unwrap_or_default();
        // Named arguments follow positional arguments, in the program's order.
        let wanted = program.inputs();
        let found: Vec<_> =
            wanted.iter().skip(given.len()).filter_map(|i| named.remove(&i.name)).collect();
        if let Some(name) = named.keys().next() {
            let names: Vec<&str> = wanted.iter().map(|i| i.name.as_str()).collect();
            return Err(crate::errors::invalid(format!(
                "the program has no further input '{name}'; its inputs are {}",
                names.join(", ")
            )));
        }
        given.extend(found.iter().map(|a| &a.0));
        let mut outputs = program.call(&given).py()?;
        let names = program.graph().output_names();
        if !names.is_empty() {
            let named = PyDict::new(py);
            for (name, tensor) in names.iter().zip(outputs) {
                named.set_item(name, Py::new(py, PyTensor(tensor))?)?;
            }
            return Ok(named.into_any());
        }
        match outputs.len() {
            1 => Ok(Bound::new(py, PyTensor(outputs.swap_remove(0)))?.into_any()),
            _ => {
                let outputs = outputs.into_iter().map(|t| Py::new(py, PyTensor(t)));
                let outputs = outputs.collect::<PyResult<Vec<_>>>()?;
                Ok(PyTuple::new(py, outputs)?.into_any())
            }
        }
    }

    /// The program as the text of a function: ``fn(%a1: f32[4,8]) -> f32[4] { ... }``.
    /// Returns: str.
    fn __str__(&self) -> String {
        self.program().to_function_text()
    }

    fn __repr__(&self) -> String {
        let program = self.program();
        let list = |specs: Vec<(String, girih::TensorSpec)>| -> String {
            let items: Vec<String> = specs.iter().map(|(n, s)| format!("{n}: {s}")).collect();
            items.join(", ")
        };
        let inputs = program.inputs().into_iter().map(|i| (i.name, i.spec)).collect();
        format!("Program({}) -> ({})", list(inputs), list(program.outputs()))
    }
}

pub(crate) fn node_id(program: &Program, node: i64) -> PyResult<girih::ir::NodeId> {
    let count = program.graph().len();
    let id = u32::try_from(node).ok().filter(|&id| (id as usize) < count).map(girih::ir::NodeId);
    id.ok_or_else(|| {
        crate::errors::exception(
            "IndexOutOfBoundsError",
            format!("there is no node {node} in a graph of {count} nodes; they count from 0"),
        )
    })
}

fn wrapped(program: girih::Result<Program>) -> PyResult<PyProgram> {
    program.map(|program| PyProgram(Mutex::new(program))).py()
}

/// Captures the program that computes the outputs from the inputs. Names of inputs may be empty,
/// and the list of output names may be empty. The program contains the parameters that it needs,
/// under their names. Returns: Program.
#[pyfunction]
fn capture(
    py: Python<'_>,
    outputs: Listed<TensorArg>,
    inputs: Listed<TensorArg>,
    names: Listed<String>,
    output_names: Listed<String>,
    parameters: Listed<(String, TensorArg)>,
) -> PyResult<PyProgram> {
    let parameters: Vec<(String, Tensor)> =
        parameters.into_iter().map(|(name, tensor)| (name, tensor.0)).collect();
    let run = || Program::capture_with(&refs(&outputs), &refs(&inputs), &parameters);
    let mut program = detach(py, run).py()?;
    name(&mut program, names.0, output_names.0)?;
    Ok(PyProgram(Mutex::new(program)))
}

/// Sets the names of inputs, except empty names, and the names of outputs, if there are any.
pub(crate) fn name(
    program: &mut Program,
    inputs: Vec<String>,
    outputs: Vec<String>,
) -> PyResult<()> {
    let ids: Vec<girih::ir::NodeId> = program.inputs().iter().map(|input| input.id).collect();
    for (id, name) in ids.into_iter().zip(inputs) {
        if !name.is_empty() {
            program.graph_mut().set_name(id, name);
        }
    }
    match outputs.is_empty() {
        true => Ok(()),
        false => {
            Ok(program.graph_mut().set_output_names(outputs).map_err(girih::Error::from).py()?)
        }
    }
}

/// Reads a program from the contents of a PFGB file. Returns: Program.
#[pyfunction]
fn program_from_bytes(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::bytes)] data: &[u8],
) -> PyResult<PyProgram> {
    let data = data.to_vec();
    wrapped(detach(py, || Program::from_bytes(&data)))
}

/// Parses a program from text. Returns: Program.
#[pyfunction]
fn program_from_text(#[pyo3(from_py_with = scalars::text)] text: &str) -> PyResult<PyProgram> {
    wrapped(Program::from_text(text))
}

/// Reads a program from a file. Returns: Program.
#[pyfunction]
fn program_from_file(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::path)] path: PathBuf,
) -> PyResult<PyProgram> {
    wrapped(detach(py, || Program::load(&path)))
}

/// The recorded graph of tensors, in DOT. Returns: str.
#[pyfunction]
fn graph_dot(tensors: Listed<TensorArg>) -> PyResult<String> {
    Ok(girih::ir::dot::to_dot(&girih::graph_of(refs(&tensors)).py()?))
}

/// Reads the tensors of a file, with their names. Returns: list[tuple[str, Tensor]].
#[pyfunction]
fn load_tensors(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::path)] path: PathBuf,
) -> PyResult<Vec<(String, PyTensor)>> {
    let tensors = detach(py, || girih::io::load(&path)).py()?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, PyTensor(tensor))).collect())
}

/// Reads the tensors of a file's contents. Returns: list[tuple[str, Tensor]].
#[pyfunction]
fn tensors_of_bytes(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::bytes)] data: &[u8],
) -> PyResult<Vec<(String, PyTensor)>> {
    let tensors = detach(py, || Format::of_bytes(data).tensors(data)).py()?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, PyTensor(tensor))).collect())
}

/// The texts by name beside the tensors of a file. Returns: list[tuple[str, str]].
#[pyfunction]
fn file_metadata(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::path)] path: PathBuf,
) -> PyResult<Vec<(String, String)>> {
    detach(py, || girih::io::metadata(&path)).py()
}

/// The texts by name beside the tensors of a file's contents. Returns: list[tuple[str, str]].
#[pyfunction]
fn metadata_of_bytes(
    #[pyo3(from_py_with = scalars::bytes)] data: &[u8],
) -> PyResult<Vec<(String, String)>> {
    match Format::of_bytes(data) {
        Format::Safetensors => girih::io::safetensors_metadata(data).py(),
        _ => Ok(Vec::new()),
    }
}

/// Tensors as the contents of a file with this name; with options: texts beside the tensors, whether
/// the contents are compressed, and which tensors are written as floats of 8 bits. Returns: bytes.
#[pyfunction]
fn file_of_tensors<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = scalars::path)] path: PathBuf,
    names: Listed<String>,
    tensors: Listed<TensorArg>,
    metadata: Listed<(String, String)>,
    #[pyo3(from_py_with = scalars::flag)] compressed: bool,
    float8: Listed<(String, String)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let short = |(name, format): (String, String)| match format.as_str() {
        "e4m3" => Ok((name, Float8::E4M3)),
        "e5m2" => Ok((name, Float8::E5M2)),
        _ => Err(crate::errors::invalid(format!(
            "float8: the formats are 'e4m3' and 'e5m2', got '{format}' for '{name}'"
        ))),
    };
    let float8: Vec<(String, Float8)> = float8.into_iter().map(short).collect::<PyResult<_>>()?;
    let tensors = refs(&tensors).into_iter().cloned();
    let named: Vec<(String, Tensor)> = names.into_iter().zip(tensors).collect();
    let format = Format::of(&path).py()?;
    let bytes = detach(py, || match format {
        Format::Npz if compressed => girih::io::to_npz_compressed(&named),
        Format::Safetensors => girih::io::to_safetensors_float8(&named, &metadata, &float8),
        format => format.bytes(&named),
    });
    Ok(PyBytes::new(py, &bytes.py()?))
}

/// Writes a file atomically. Returns: None.
#[pyfunction]
fn write_file(
    py: Python<'_>,
    #[pyo3(from_py_with = scalars::path)] path: PathBuf,
    #[pyo3(from_py_with = scalars::bytes)] data: &[u8],
) -> PyResult<()> {
    detach(py, || girih::io::write(&path, data)).py()
}

/// Runs the `girih` command; returns exit status, output and errors. Returns: tuple[int, str, str].
#[pyfunction]
fn command(py: Python<'_>, argv: Listed<OsString>) -> (u8, String, String) {
    detach(py, || {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = girih_cli::run(argv, &mut out, &mut err);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (status, text(out), text(err))
    })
}

/// Adds this file's functions and classes.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyProgram>()?;
    m.add_class::<PyNode>()?;
    m.add_function(wrap_pyfunction!(capture, m)?)?;
    m.add_function(wrap_pyfunction!(program_from_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(program_from_text, m)?)?;
    m.add_function(wrap_pyfunction!(program_from_file, m)?)?;
    m.add_function(wrap_pyfunction!(graph_dot, m)?)?;
    m.add_function(wrap_pyfunction!(load_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(tensors_of_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(file_metadata, m)?)?;
    m.add_function(wrap_pyfunction!(metadata_of_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(file_of_tensors, m)?)?;
    m.add_function(wrap_pyfunction!(write_file, m)?)?;
    m.add_function(wrap_pyfunction!(command, m)?)
}
