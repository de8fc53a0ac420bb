//! Frames: the whole state of a context, as a value.

use super::{
    AUTOCAST_BF16, AUTOCAST_F16, EAGER, EAGER_VARIABLES, KNOWN, NANS, PLAIN, VERIFY,
    VERIFY_VARIABLES,
};
use crate::axes::BoundAxis;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::executor::DeviceExecutor;
use crate::graph::RecordingGraph;
use crate::location::Scope as NamedScope;
use crate::memory;
use crate::stream::Stream;
use girih_ir::DType;
use girih_runtime::mesh::MeshMode;
use girih_runtime::{CompileOptions, env};

/// The state of a context: where ops are recorded, which executor runs them, and in which modes.
#[derive(Clone)]
pub struct Frame {
    pub(super) graph: RecordingGraph,
    pub(super) device: Option<Device>,
    pub(super) executor: Option<DeviceExecutor>,
    pub(super) stream: Option<Stream>,
    pub(super) eager: Option<bool>,
    pub(super) verify_shapes: Option<bool>,
    pub(super) debug_nans: Option<bool>,
    /// Whether the tape records nodes.
    pub(super) grad: bool,
    /// Whether operands on a mesh may be resharded for an op.
    pub(super) implicit_reshards: bool,
    /// In which order the devices of a mesh run.
    pub(super) mesh_mode: MeshMode,
    pub(super) options: Option<CompileOptions>,
    /// The named scope in which ops are recorded.
    pub(super) scope: NamedScope,
    /// The half dtype that autocast computes products in.
    pub(super) autocast: Option<DType>,
    /// The named batch axes, the innermost last.
    pub(super) axes: Vec<BoundAxis>,
}

impl Frame {
    pub(super) fn new() -> Frame {
        memory::set_sweep(super::sweep);
        Frame {
            graph: RecordingGraph::new(),
            device: None,
            executor: None,
            stream: None,
            eager: None,
            verify_shapes: None,
            debug_nans: None,
            grad: true,
            implicit_reshards: true,
            mesh_mode: MeshMode::default(),
            options: None,
            scope: NamedScope::default(),
            autocast: None,
            axes: Vec::new(),
        }
    }

    /// The frame with another graph.
    pub fn with_graph(self, graph: impl Into<RecordingGraph>) -> Frame {
        Frame { graph: graph.into(), ..self }
    }

    /// The frame with another current device; `None` means the device of the executor or of the
    /// process.
    pub fn with_device(self, device: Option<Device>) -> Frame {
        Frame { device, ..self }
    }

    /// The frame with another executor, whose device becomes the current one.
    pub fn with_executor(self, executor: impl Into<DeviceExecutor>) -> Frame {
        Frame { executor: Some(executor.into()), device: None, ..self }
    }

    /// The frame with another current stream.
    pub fn with_stream(self, stream: Stream) -> Frame {
        Frame { stream: Some(stream), ..self }
    }

    /// The frame with eager mode on or off.
    pub fn with_eager(self, on: bool) -> Frame {
        Frame { eager: Some(on), ..self }
    }

    /// The frame with shape verification on or off.
    pub fn with_verify_shapes(self, on: bool) -> Frame {
        Frame { verify_shapes: Some(on), ..self }
    }

    /// The frame in which NaNs in results are errors, or are not.
    pub fn with_debug_nans(self, on: bool) -> Frame {
        Frame { debug_nans: Some(on), ..self }
    }

    /// The frame with gradients on or off: whether results of tensors that require gradients
    /// require gradients too.
    pub fn with_grad(self, on: bool) -> Frame {
        Frame { grad: on, ..self }
    }

    /// The frame in which operands on a mesh may be resharded for an op, or that is an error.
    pub fn with_implicit_reshards(self, allowed: bool) -> Frame {
        Frame { implicit_reshards: allowed, ..self }
    }

    /// The frame in which the devices of a mesh run in this order.
    pub fn with_mesh_mode(self, mesh_mode: MeshMode) -> Frame {
        Frame { mesh_mode, ..self }
    }

    /// The frame with autocast to a half dtype, in which products are computed in `half` and
    /// functions that need more precision in float32; `None` switches autocast off.
    ///
    /// Errors: [`Error::InvalidArgument`] for a dtype other than f16 and bf16.
    pub fn with_autocast(self, half: Option<DType>) -> Result<Frame> {
        match half {
            None | Some(DType::F16 | DType::BF16) => Ok(Frame { autocast: half, ..self }),
            Some(other) => Err(Error::InvalidArgument(format!(
                "autocast: the dtype is float16 or bfloat16, got {}",
                other.name()
            ))),
        }
    }

    /// The frame with these compile options instead of the executor's.
    pub fn with_options(self, options: CompileOptions) -> Frame {
        Frame { options: Some(options), ..self }
    }

    /// The frame in a named scope inside its current named scope.
    pub fn with_named_scope(self, name: &str) -> Frame {
        Frame { scope: self.scope.child(name), ..self }
    }

    /// The frame inside a function that is batched over a named axis.
    pub fn with_axis(mut self, axis: BoundAxis) -> Frame {
        self.axes.push(axis);
        self
    }

    /// The mode [`PLAIN`], if the frame is plain.
    pub(super) fn plain(&self) -> u8 {
        let Frame { device, executor, stream, options, .. } = self;
        let own = device.is_some() || executor.is_some() || stream.is_some() || options.is_some();
        if own { 0 } else { PLAIN }
    }

    /// The modes. Environment variables determine the modes that the frame does not set.
    pub(super) fn modes(&self) -> Result<u8> {
        let or_env = |chosen: Option<bool>, names: &[&'static str]| match chosen {
            Some(on) => Ok(on),
            None => Ok::<bool, Error>(env::flag(names)?.unwrap_or(false)),
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
        Ok(KNOWN | half | self.plain() | bit(eager, EAGER) | bit(verify, VERIFY) | bit(nans, NANS))
    }
}
