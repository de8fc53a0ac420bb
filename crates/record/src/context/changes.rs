//! The differences between a scope and the scope around it, for front ends whose scopes do not end
//! in the reverse order of entering: a scope is taken out from below others by applying their
//! changes again.

use super::Frame;
use crate::axes::BoundAxis;
use crate::device::Device;
use crate::error::Result;
use crate::executor::DeviceExecutor;
use crate::graph::RecordingGraph;
use crate::stream::Stream;
use girih_ir::DType;
use girih_runtime::CompileOptions;
use girih_runtime::mesh::MeshMode;

/// The changes that a scope makes; `None` keeps the setting of the scope around it.
#[derive(Clone, Default)]
pub struct FrameChanges {
    /// The graph in which ops are recorded.
    pub graph: Option<RecordingGraph>,
    /// The executor, whose device becomes the current one.
    pub executor: Option<DeviceExecutor>,
    /// The current device.
    pub device: Option<Device>,
    /// The current stream.
    pub stream: Option<Stream>,
    /// Eager mode.
    pub eager: Option<bool>,
    /// Shape verification.
    pub verify_shapes: Option<bool>,
    /// Whether NaNs in results are errors.
    pub debug_nans: Option<bool>,
    /// Whether the tape records nodes.
    pub grad: Option<bool>,
    /// Whether operands on a mesh may be resharded for an op.
    pub implicit_reshards: Option<bool>,
    /// In which order the devices of a mesh run.
    pub mesh_mode: Option<MeshMode>,
    /// The compile options.
    pub options: Option<CompileOptions>,
    /// The name of the scope.
    pub name: Option<String>,
    /// A named batch axis.
    pub axis: Option<BoundAxis>,
    /// The half dtype of autocast; `Some(None)` switches autocast off.
    pub autocast: Option<Option<DType>>,
}

impl FrameChanges {
    /// The frame with the changes.
    ///
    /// Errors: as [`Frame::with_autocast`].
    pub fn apply(&self, mut frame: Frame) -> Result<Frame> {
        if let Some(graph) = &self.graph {
            frame = frame.with_graph(graph.clone());
        }
        if let Some(executor) = &self.executor {
            frame = frame.with_executor(executor.clone());
        }
        if let Some(device) = self.device {
            frame = frame.with_device(Some(device));
        }
        if let Some(stream) = &self.stream {
            frame = frame.with_stream(stream.clone());
        }
        if let Some(on) = self.eager {
            frame = frame.with_eager(on);
        }
        if let Some(on) = self.verify_shapes {
            frame = frame.with_verify_shapes(on);
        }
        if let Some(on) = self.debug_nans {
            frame = frame.with_debug_nans(on);
        }
        if let Some(on) = self.grad {
            frame = frame.with_grad(on);
        }
        if let Some(allowed) = self.implicit_reshards {
            frame = frame.with_implicit_reshards(allowed);
        }
        if let Some(mode) = self.mesh_mode {
            frame = frame.with_mesh_mode(mode);
        }
        if let Some(options) = self.options {
            frame = frame.with_options(options);
        }
        if let Some(name) = &self.name {
            frame = frame.with_named_scope(name);
        }
        if let Some(axis) = &self.axis {
            frame = frame.with_axis(axis.clone());
        }
        match self.autocast {
            Some(half) => frame.with_autocast(half),
            None => Ok(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::location::Scope;

    #[test]
    fn a_scope_below_another_is_taken_out_by_applying_the_changes_again() {
        let base = Context::current().frame();
        let (graph, half) = (RecordingGraph::new(), Some(Some(DType::BF16)));
        let outer =
            FrameChanges { graph: Some(graph.clone()), grad: Some(false), ..Default::default() };
        let inner =
            FrameChanges { name: Some("layer".into()), autocast: half, ..Default::default() };
        let both = inner.apply(outer.apply(base.clone()).unwrap()).unwrap();
        let state = || {
            let context = Context::current();
            let path = Scope::current().path().map(str::to_string);
            (context.graph() == graph, context.grad(), context.autocast(), path)
        };
        let named = Some("layer".to_string());
        let within = Context::current().within(both, state);
        assert_eq!(within, (true, false, Some(DType::BF16), named.clone()));
        let alone = Context::current().within(inner.apply(base).unwrap(), state);
        assert_eq!(alone, (false, true, Some(DType::BF16), named));
    }

    #[test]
    fn autocast_to_a_dtype_that_is_not_half_is_an_error() {
        let changes = FrameChanges { autocast: Some(Some(DType::F64)), ..Default::default() };
        assert!(changes.apply(Context::current().frame()).is_err());
    }
}
