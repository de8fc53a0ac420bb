//! The Python extension module `girih._girih`: converts arguments, and releases the global interpreter
//! lock while the library compiles and runs. What another front end in Python needs as well is in
//! `girih-pyo3`: errors, source lines, contexts, trees, the memory of other libraries.

mod apply;
mod args;
mod arrange;
mod arrays;
mod assign;
mod call;
mod collective;
mod compiled;
mod contexts;
mod contract;
mod control;
mod creation;
mod data;
mod devices;
mod dlpack;
mod dtype;
mod executor;
mod fft;
mod functions;
mod guards;
mod host;
mod imperative;
mod indexing;
mod layout;
mod lazy;
mod linalg;
mod losses;
mod networks;
mod normalization;
mod passes;
mod pooling;
mod program;
mod random;
mod registry;
mod scalars;
mod search;
mod sharding;
mod snapshot;
mod sorting;
mod statistics;
mod streams;
mod symbolic_float;
mod tapers;
mod tensor;
mod timeline;
mod transform;
mod vision;
mod windows;

// What all front ends in Python share is used as if it were of this crate.
use girih_pyo3::{errors, identity, interpreter, location, protocols, sequences, tensors, tree};
use pyo3::prelude::*;
use pyo3::types::PyList;

/// Names that only the package's own modules use. All other names are public as `girih.…`.
const INTERNAL: &[&str] = &[
    "At",
    "Body",
    "BoundAxis",
    "CompiledCall",
    "TimelineHandle",
    "Indexed",
    "Memory",
    "LinearMap",
    "Node",
    "GraphPass",
    "Recording",
    "RemovableHandle",
    "LinearMap",
    "Trace",
    "TracedFunction",
    "ExecutorHandle",
    "Guards",
    "Frame",
    "ScopeHandle",
    "_registry",
    "_restore",
    "async_eval_many",
    "autocast_dtype",
    "bool",
    "cache_stats",
    "capture",
    "clear_cache",
    "collective_exchange",
    "explain_on_mesh",
    "collective_gather",
    "collective_index",
    "collective_permute",
    "collective_reduce",
    "collective_scatter",
    "collective_shuffle",
    "collective_size",
    "command",
    "compile_only_many",
    "compile_program",
    "enter_scope",
    "has_named_axes",
    "has_source_lines",
    "is_eager",
    "is_grad_enabled",
    "is_tracing",
    "is_verifying_shapes",
    "is_debugging_nans",
    "set_debug_nans",
    "leave_scope",
    "compile_graph",
    "compile_options",
    "compile_options_switched",
    "create_graph",
    "current_graph",
    "eval_many",
    "explain_tensors",
    "finish",
    "graph_dot",
    "enter_named_scope",
    "graph_stats",
    "graph_text",
    "leave_named_scope",
    "load_tensors",
    "program_from_bytes",
    "program_from_file",
    "program_from_text",
    "record_barrier",
    "record_checkpoint",
    "record_cond",
    "record_call",
    "record_ruled",
    "record_scan",
    "record_while_loop",
    "reset_peak_memory",
    "warm_up",
    "check_device",
    "device_name",
    "devices",
    "memory_stats",
    "Snapshot",
    "tensors_of_bytes",
    "file_metadata",
    "metadata_of_bytes",
    "file_of_tensors",
    "scan_length",
    "host_call",
    "register_host",
    "KernelOp",
    "set_compile_options",
    "set_eager",
    "set_graph",
    "set_source_lines",
    "set_verify_shapes",
    "is_same",
    "is_spec",
    "reshard",
    "sharding_for",
    "is_traced",
    "kth_value",
    "rebind",
    "returned_number",
    "TreeDef",
    "stop_gradient",
    "take_roots",
    "trace_function",
    "WeakTensor",
    "weak",
    "write_file",
    "TensorIterator",
    "has_protocol",
    "items_of",
    "GraphLayouts",
    "Layout",
    "LayoutPlanner",
    "MemoryBudget",
    "MemoryPlan",
    "TileTransfer",
    "Transform",
];

/// `girih.nn.Module`, if `girih.nn` is imported.
fn layer_class(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let nn = py.import("girih")?.getattr("__dict__")?.get_item("nn").ok();
    nn.map(|nn| nn.getattr("Module")).transpose()
}

/// Fills the module.
#[pymodule]
fn _girih(m: &Bound<'_, PyModule>) -> PyResult<()> {
    interpreter::check_main(m.py())?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<tensor::PyTensor>()?;
    tensors::register(&m.py().get_type::<tensor::PyTensor>(), tensor::spec_of);
    location::register_layers(layer_class);
    m.add_class::<dtype::PyDType>()?;
    devices::register(m)?;
    dtype::register(m)?;
    program::register(m)?;
    apply::register(m)?;
    passes::register(m)?;
    protocols::register(m)?;
    functions::register(m)?;
    registry::register(m)?;
    snapshot::register(m)?;
    sorting::register(m)?;
    statistics::register(m)?;
    tapers::register(m)?;
    contract::register(m)?;
    losses::register(m)?;
    networks::register(m)?;
    normalization::register(m)?;
    pooling::register(m)?;
    vision::register(m)?;
    linalg::register(m)?;
    fft::register(m)?;
    creation::register(m)?;
    random::register(m)?;
    arrange::register(m)?;
    assign::register(m)?;
    search::register(m)?;
    sharding::register(m)?;
    layout::register(m)?;
    data::register(m)?;
    dlpack::register(m)?;
    lazy::register(m)?;
    transform::register(m)?;
    tree::register(m)?;
    collective::register(m)?;
    imperative::register(m)?;
    compiled::register(m)?;
    symbolic_float::register(m)?;
    call::register(m)?;
    guards::register(m)?;
    control::register(m)?;
    host::register(m)?;
    girih_pyo3::contexts::register(m)?;
    contexts::register(m)?;
    executor::register(m)?;
    streams::register(m)?;
    timeline::register(m)?;
    interpreter::register(m)?;
    let names = m.index()?;
    // The names with these prefixes are public in `girih.linalg`, `girih.fft`, `girih.layout`,
    // `girih.random` and `girih.tree`, under their own names.
    let elsewhere = |name: &Bound<'_, PyAny>| {
        let name = name.to_string();
        ["linalg_", "fft_", "layout_", "random_", "tree_"]
            .iter()
            .any(|module| name.starts_with(module))
    };
    let internal = |name: &Bound<'_, PyAny>| INTERNAL.iter().any(|n| name.eq(n).unwrap_or(false));
    let public = names.iter().filter(|name| !internal(name) && !elsewhere(name));
    m.setattr("__all__", PyList::new(m.py(), public)?)
}
