//! Frames: all that a context is, as a value.

use super::{
    AUTOCAST_BF16, AUTOCAST_F16, EAGER, EAGER_VARIABLES, Graph, KNOWN, NANS, VERIFY,
    VERIFY_VARIABLES,
};
use crate::collective::BoundAxis;
use crate::devices::Device;
use crate::executor::Executor;
use crate::location::Scope as NamedScope;
use crate::{DType, Result, Stream};
use girih_runtime::{CompileOptions, env};

/// What a context is at a time: where ops are recorded, what runs them, and when.
#[derive(Clone)]
pub struct Frame {
    pub(super) graph: Graph,
    pub(super) device: Option<Device>,
    pub(super) executor: Option<Executor>,
    pub(super) stream: Option<Stream>,
    pub(super) eager: Option<bool>,
    pub(super) verify_shapes: Option<bool>,
    pub(super) debug_nans: Option<bool>,
    /// Whether the tape notes what is recorded.
    pub(super) grad: bool,
    pub(super) options: Option<CompileOptions>,
    /// The named scope that ops are recorded in.
    pub(super) scope: NamedScope,
    /// The half dtype that autocast computes products in.
    pub(super) autocast: Option<DType>,
    /// The batch axes that have names, the innermost last.
    pub(super) axes: Vec<BoundAxis>,
}

impl Frame {
    pub(super) fn new() -> Frame {
        Frame {
            graph: Graph::new(),
            device: None,
            executor: None,
            stream: None,
            eager: None,
            verify_shapes: None,
            debug_nans: None,
            grad: true,
            options: None,
            scope: NamedScope::default(),
            autocast: None,
            axes: Vec::new(),
        }
    }

    /// The same with another graph.
    pub fn with_graph(self, graph: Graph) -> Frame {
        Frame { graph, ..self }
    }

    /// The same with another current device; none for the executor's, or the process'.
    pub fn with_device(self, device: Option<Device>) -> Frame {
        Frame { device, ..self }
    }

    /// The same with another executor, whose device is the current one.
    pub fn with_executor(self, executor: Executor) -> Frame {
        Frame { executor: Some(executor), device: None, ..self }
    }

    /// The same with another current stream.
    pub fn with_stream(self, stream: Stream) -> Frame {
        Frame { stream: Some(stream), ..self }
    }

    /// The same with eager mode on or off.
    pub fn with_eager(self, on: bool) -> Frame {
        Frame { eager: Some(on), ..self }
    }

    /// The same with shape verification on or off.
    pub fn with_verify_shapes(self, on: bool) -> Frame {
        Frame { verify_shapes: Some(on), ..self }
    }

    /// The same in which results with a NaN are errors, or not.
    pub fn with_debug_nans(self, on: bool) -> Frame {
        Frame { debug_nans: Some(on), ..self }
    }

    /// The same, in which what is recorded of tensors that require gradients requires them too, or not:
    /// see [`crate::Tensor::backward`].
    pub fn with_grad(self, on: bool) -> Frame {
        Frame { grad: on, ..self }
    }

    /// The same in which products are computed in a half dtype and steep functions in float32, or all
    /// in the dtypes of their operands: see [`crate::autocast`].
    ///
    /// Errors: [`crate::Error::InvalidArgument`] for another dtype than f16 and bf16.
    pub fn with_autocast(self, half: Option<DType>) -> Result<Frame> {
        match half {
            None | Some(DType::F16 | DType::BF16) => Ok(Frame { autocast: half, ..self }),
            Some(other) => Err(crate::Error::InvalidArgument(format!(
                "autocast: the dtype is float16 or bfloat16, got {}",
                other.name()
            ))),
        }
    }

    /// The same with these passes and fusions, whatever the executor's are.
    pub fn with_options(self, options: CompileOptions) -> Frame {
        Frame { options: Some(options), ..self }
    }

    /// The same within the named scope of that name in its own.
    pub fn with_named_scope(self, name: &str) -> Frame {
        Frame { scope: self.scope.child(name), ..self }
    }

    /// The same within a function that is batched over a named axis.
    pub fn with_axis(mut self, axis: BoundAxis) -> Frame {
        self.axes.push(axis);
        self
    }

    /// The modes, from the environment where the frame does not say.
    pub(super) fn modes(&self) -> Result<u8> {
        let or_env = |chosen: Option<bool>, names: &[&'static str]| match chosen {
            Some(on) => Ok(on),
            None => Ok::<bool, crate::Error>(env::flag(names)?.unwrap_or(false)),
        };
        let eager = or_env(self.eager, &EAGER_VARIABLES)?;
        let verify = or_env(self.verify_shapes, &VERIFY_VARIABLES)?;
        let nans = or_env(self.debug_nans, &["GIRIH_DEBUG_NANS"])?;
        let bit = |on: bool, mode: u8| if on { mode } else { 0 };
        let half = match self.autocast {
            Some(DType::F16) => AUTOCAST_F16,
            Some(_) => AUTOCAST_BF16,
            None => 0,
        };
        Ok(KNOWN | half | bit(eager, EAGER) | bit(verify, VERIFY) | bit(nans, NANS))
    }
}
