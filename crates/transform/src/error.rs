//! Errors of transforms: invalid requests, with what was found and what to do.

use girih_ir::{DType, NodeId, Shape, TensorSpec};

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a graph cannot be transformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The gradient of an output that is not a scalar.
    #[error(
        "grad: the output has shape {shape}; a gradient is of a scalar, so reduce the output \
         (sum, mean) or use vjp with a cotangent of that shape"
    )]
    OutputNotScalar {
        /// The output's shape.
        shape: Shape,
    },
    /// The gradient of an output whose dtype is not continuous.
    #[error(
        "grad: the output has dtype {dtype}; expected a floating-point dtype, so cast it first"
    )]
    OutputNotFloat {
        /// The output's dtype.
        dtype: DType,
    },
    /// The gradient with respect to a value whose dtype is not continuous.
    #[error(
        "grad: argument {index} to differentiate by has dtype {dtype}; expected a floating-point \
         dtype, so cast it first or leave it out of argnums"
    )]
    WrtNotFloat {
        /// Position in the list of values to differentiate with respect to.
        index: usize,
        /// The dtype of the value.
        dtype: DType,
    },
    /// A cotangent whose spec differs from its output's.
    #[error("vjp: the cotangent of output {output} is {found}; expected {expected}, as the output")]
    CotangentMismatch {
        /// The output.
        output: NodeId,
        /// The output's spec.
        expected: TensorSpec,
        /// The cotangent's spec.
        found: TensorSpec,
    },
    /// A number of cotangents that differs from the number of outputs.
    #[error("vjp: {cotangents} cotangents for {outputs} outputs; expected one for each output")]
    CotangentCount {
        /// The number of outputs.
        outputs: usize,
        /// The number of cotangents.
        cotangents: usize,
    },
    /// A number of marks that differs from the number of arguments.
    #[error("vmap: {found} marks for {expected} arguments; expected one for each argument")]
    ArgumentCount {
        /// The number of arguments of the graph.
        expected: usize,
        /// The number of marks.
        found: usize,
    },
    /// A node that is not in the graph.
    #[error("{node} is not in the graph, which has {len} nodes")]
    UnknownNode {
        /// The node as given.
        node: NodeId,
        /// The number of nodes of the graph.
        len: usize,
    },
    /// The derivative of an op that has no derivative.
    #[error("{reason}")]
    NoDerivative {
        /// Name of the op.
        op: &'static str,
        /// The reason, and the alternative to use.
        reason: &'static str,
    },
    /// The batching rule of a custom op failed.
    #[error("{0}")]
    Host(girih_ir::ops::host::HostFailure),
    /// A rule recorded an ill-formed op, or the result would be too large.
    #[error(transparent)]
    Graph(#[from] girih_ir::Error),
}
