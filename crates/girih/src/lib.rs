//! Girih: a lazy tensor compiler and runtime.
//!
//! A [`Tensor`] records ops instead of computing them. [`eval`] cuts out the needed graph,
//! optimises it as a whole, compiles it once per graph structure, and runs it.
//!
//! ```
//! use girih::Tensor;
//!
//! let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3])?;
//! let y = &x * 2.0 + 1.0; // recorded, not computed
//! assert!(y.is_lazy());
//! assert_eq!(y.to_vec::<f32>()?, [3.0, 5.0, 7.0]); // computed here
//! # Ok::<(), girih::Error>(())
//! ```
//!
//! The [`guide`] shows how to write programs: operators and errors, gradients, modules and
//! training, files, control flow, threads.
#![forbid(unsafe_code)]

mod apply;
mod array;
mod bound;
mod collective;
mod compile_graph;
mod compiled;
mod context;
mod control;
mod data;
mod display;
mod dynamic;
mod eval;
mod executor;
pub mod explain;
pub mod guide;
pub mod host;
pub mod io;
pub mod layout;
pub mod location;
pub mod losses;
pub mod nn;
mod ops;
pub mod optim;
mod options;
mod outside;
pub mod pass;
pub mod plot;
mod precision;
mod program;
pub mod random;
mod recent;
pub mod sharding;
mod statistics;
mod symbolic;
mod tensor;
mod tiled;
mod timeline;
mod traced;
mod transform;

pub use apply::{Attribute, apply};
pub use array::ArrayData;
pub use bound::BoundProgram;
pub use collective::{
    AxisNames, Members, all_gather, all_to_all, axis_index, axis_size, pmax, pmean, pmin, ppermute,
    pshuffle, psum, psum_scatter,
};
pub use compile_graph::{CompilationInfo, compile_graph, compile_unoptimized};
pub use compiled::{Compiled, compile};
pub use context::{
    Context, Frame, FrameChanges, Graph, ReuseScope, Scope, current_graph, swap_graph,
};
pub use control::{
    Body, DerivativeRules, Function, Recording, Saved, ScanOptions, bounded_while_loop, call,
    checkpoint, cond, custom_jvp, custom_vjp, fori_loop, optimization_barrier, scan, scan_length,
    scan_with, switch, while_loop,
};
pub use data::{Data, Element};
pub use display::{PrintOptions, print_options, set_print_options};
pub use dynamic::DynamicDim;
pub use eval::{async_eval, compile_only, eval, graph_of, graph_text};
pub use executor::{ExecutionResult, Executor, ExecutorConfig, Profile};
pub use explain::{Explanation, explain, explain_graph, explain_on_mesh};
pub use program::{Input, NodeInfo, Program};
// The lower layers, for front ends in other languages.
pub use girih_ir as ir;
pub use girih_runtime as runtime;
// The element types of complex tensors, and of complex operands.
pub use num_complex::{Complex32, Complex64};

pub use girih_record::axes::BoundAxis;
pub use girih_record::background::Compilation;
pub use girih_record::cpu::{
    CacheState, Calibration, cache_on_disk, calibration, instruction_set, num_threads,
    set_num_threads,
};
pub use girih_record::devices::{DeviceInfo, register_device, set_host_devices};
pub use girih_record::node::{NodeKind, TensorState};
pub use girih_record::placement::{devices, memory_stats, shares_host_memory, warm_up};
pub use girih_record::scopes::{DeviceScope, StreamScope};
pub use girih_record::stream::{Event, Stream, synchronize};
pub use girih_record::trace::is_active as is_tracing;
pub use girih_record::{Device, Error, Result};

pub use girih_ir::{DType, Dim, Literal, Shape, TensorSpec};
pub use girih_runtime::CompileOptions;
pub use girih_runtime::trace::{Span, SpanKind};
pub use girih_transform::{BatchAxis, Error as TransformError};
pub use ops::custom;
pub use ops::fft;
pub use ops::linalg;
pub use ops::{
    AttentionOptions, Axes, BagMode, Bags, Beyond, Bins, ContractionPath, ConvOptions, Corners,
    Covariance, Cumulative, EmbeddingOptions, GridOptions, Heights, Index, IndexRange, Indexing,
    Indices, Interpolation, Nans, Operand, Optimize, OutOfRange, Outside, PadMode, Padding,
    PathStep, PerAxis, PoolOptions, Powers, Quantile, ReducedAxes, Running, Sampling, Side, Size,
    Sizes, Taper, Tolerance, Unique, Update, Variables, allclose, array_equal, array_split, binary,
    broadcast_arrays, broadcast_shapes, column_stack, concat, corrcoef, cov, default_int, digitize,
    dstack, einsum, einsum_label, einsum_path, histogram2d, hstack, indices, interp, isclose,
    keepdims, meshgrid, number, polyfit, polyval, searchsorted, shape_of, sparse_meshgrid, split,
    split_at, split_equal, stack, tensordot_axes, trapezoid, unpooled_sizes, unstack, vander,
    vstack, where_,
};
pub use options::{options, options_with, options_without, pass_names, set_options};
pub use precision::autocast;
pub use recent::RecentlyUsed;
pub use statistics::{Stats, cache_stats, clear_cache, reset_peak_memory};
pub use symbolic::{SymbolicNumber, compare_sizes, size_operator};
pub use tensor::{Hook, Tensor, WeakTensor, name_arguments, no_grad, take_roots};
pub use tiled::CallPath;
pub use timeline::{SpanTotal, Timeline, span_device};
pub use traced::TracedProgram;
pub use transform::{
    Backward, Linear, Randomness, Trace, grad, hessian, hvp, jacfwd, jacrev, jvp, linear_transpose,
    linearize, value_and_grad, vjp, vmap, vmap_named,
};
