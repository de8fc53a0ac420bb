//! The device under test, and helpers to run graphs on it.

use girih_ir::{Array, DType, Graph, TensorSpec};
use girih_reference::evaluate;
use girih_runtime::{
    Argument, ArgumentBlock, Backend, Buffer, CompileOptions, Completion, Device, Error, Place,
    PlanExecutor, Result, RunControl, Scheduler, Stream, Value, Values,
};
use std::sync::Arc;
use std::time::Duration;

/// A kind of device to test.
pub struct Subject {
    backend: Arc<dyn Backend>,
    device: Box<dyn Fn() -> Arc<dyn Device> + Send + Sync>,
    computes: bool,
}

impl Subject {
    /// Devices that `device` creates, and the back end that compiles for them.
    pub fn new<D: Device + 'static>(
        backend: impl Backend + 'static,
        device: impl Fn() -> Arc<D> + Send + Sync + 'static,
    ) -> Subject {
        Subject::with_backend(Arc::new(backend), device)
    }

    /// As [`Subject::new`], with a shared back end.
    pub fn with_backend<D: Device + 'static>(
        backend: Arc<dyn Backend>,
        device: impl Fn() -> Arc<D> + Send + Sync + 'static,
    ) -> Subject {
        let device = Box::new(move || device() as Arc<dyn Device>);
        Subject { backend, device, computes: true }
    }

    /// Marks devices that store no bytes and compute nothing: their results are not compared.
    pub fn without_results(self) -> Subject {
        Subject { computes: false, ..self }
    }

    /// Whether results are compared.
    pub fn computes(&self) -> bool {
        self.computes
    }

    /// A new device.
    pub fn device(&self) -> Arc<dyn Device> {
        (self.device)()
    }

    /// A new device, and an executor on it.
    pub fn rig(&self) -> Rig {
        self.rig_on(self.device())
    }

    /// An executor on a device of [`Subject::device`], or on a wrapper of such a device.
    pub fn rig_on(&self, device: Arc<dyn Device>) -> Rig {
        let executor = PlanExecutor::new(device.clone(), self.backend.clone(), None);
        Rig { executor: Arc::new(executor), device, computes: self.computes }
    }
}

/// A device under test with an executor.
pub struct Rig {
    /// The executor.
    pub executor: Arc<PlanExecutor>,
    /// The device.
    pub device: Arc<dyn Device>,
    computes: bool,
}

/// A run that is bound and not started.
pub struct Bound {
    /// The arguments of the run's launches.
    pub block: Arc<ArgumentBlock>,
    /// The results of the run.
    pub values: Values,
}

impl Rig {
    /// The executor's scheduler.
    pub fn scheduler(&self) -> Arc<Scheduler> {
        self.executor.stream().queue().scheduler().clone()
    }

    /// Copies an array to device memory.
    pub fn upload(&self, array: &Array) -> Result<Value> {
        self.executor.upload(&array.to_bytes())
    }

    /// Reads a value as an array.
    pub fn download(&self, value: &Value, spec: &TensorSpec) -> Result<Array> {
        let bytes = self.executor.download(value, spec.size_bytes())?;
        Ok(Array::from_bytes(spec.clone(), &bytes))
    }

    /// Copies arrays to device memory, as arguments.
    pub fn arguments(&self, arrays: &[Array]) -> Result<Vec<Argument>> {
        let argument = |x: &Array| Ok(Argument::Tensor(self.upload(x)?, x.spec().clone()));
        arrays.iter().map(argument).collect()
    }

    /// Compiles a graph, runs it on the executor's stream and reads its results.
    pub fn run(&self, graph: &Graph, arguments: &[Array]) -> Result<Vec<Array>> {
        let bound = self.bind(graph, arguments, None)?;
        let plan = self.executor.plan(graph, CompileOptions::default())?;
        let (stream, after) = (self.executor.stream(), Default::default());
        let completion = Completion::pending();
        self.executor.start(stream, &plan.plan, &bound.block, after, completion, true)?;
        self.results(graph, &bound.values)
    }

    /// Uploads arguments and binds them to the graph's plan, with a time limit for the run.
    pub fn bind(
        &self,
        graph: &Graph,
        arguments: &[Array],
        limit: Option<Duration>,
    ) -> Result<Bound> {
        let plan = self.executor.plan(graph, CompileOptions::default())?;
        let arguments = self.arguments(arguments)?;
        let control = self.executor.control(limit, false);
        let (block, values) = self.executor.bind(&plan, &arguments, control)?;
        Ok(Bound { block, values })
    }

    /// Starts a bound run of a graph on a stream.
    pub fn start(&self, stream: &Stream, graph: &Graph, bound: &Bound) -> Result<Arc<Completion>> {
        let plan = self.executor.plan(graph, CompileOptions::default())?;
        let completion = Completion::pending();
        let after = Default::default();
        let (block, done) = (&bound.block, completion.clone());
        self.executor.start(stream, &plan.plan, block, after, done, false)?;
        Ok(completion)
    }

    /// Reads the results of a graph.
    pub fn results(&self, graph: &Graph, values: &Values) -> Result<Vec<Array>> {
        let read = |(value, &id): (&Value, _)| self.download(value, graph.spec(id));
        values.iter().zip(graph.outputs()).map(read).collect()
    }

    /// Compares results with those of the reference evaluator.
    #[track_caller]
    pub fn compare(&self, what: &str, graph: &Graph, arguments: &[Array], found: &[Array]) {
        let expected = evaluate(graph, arguments).expect("the suite's programs have a meaning");
        assert_eq!(found.len(), expected.len(), "{what}: number of results");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.spec(), expected.spec(), "{what}");
            if self.computes {
                assert_close(what, found, expected);
            }
        }
    }

    /// Runs a graph and compares its results with those of the reference evaluator.
    #[track_caller]
    pub fn check(&self, what: &str, graph: &Graph, arguments: &[Array]) {
        let found = self.run(graph, arguments).unwrap_or_else(|e| panic!("{what}: {e}\n{graph}"));
        self.compare(what, graph, arguments, &found);
    }

    /// Bytes of device memory in use.
    pub fn in_use(&self) -> usize {
        self.device.allocator().stats().in_use
    }
}

/// A control that never stops a run.
pub fn no_control() -> RunControl {
    RunControl::default()
}

/// The bytes of a block of a rig, for calls of the device itself.
pub(crate) fn place(block: &Buffer) -> Place<'_> {
    // SAFETY: a check uses a block of its rig from one thread, and calls the device when the queues'
    // work on the block is done.
    unsafe { block.place() }
}

/// Fails unless an error is [`Error::InvalidHandle`].
#[track_caller]
pub(crate) fn assert_invalid<T>(what: &str, outcome: Result<T>) {
    let error = outcome.err();
    assert!(matches!(error, Some(Error::InvalidHandle { .. })), "{what}: {error:?}");
}

/// The relative and absolute tolerance of results: some units in the last place, because devices
/// may sum in another order than the reference.
fn slack(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-2,
        DType::BF16 => 1e-1,
        DType::F32 | DType::C64 => 1e-5,
        DType::F64 | DType::C128 => 1e-11,
        _ => 0.0,
    }
}

#[track_caller]
fn assert_close(what: &str, found: &Array, expected: &Array) {
    let slack = slack(found.spec().dtype);
    for (at, (f, e)) in found.elements().zip(expected.elements()).enumerate() {
        let nan = f.is_nan() && e.is_nan();
        let (f, e) = (f.complex(), e.complex());
        let close = nan || f == e || (f - e).norm() <= slack * (1.0 + e.norm());
        assert!(close, "{what}: element {at} is {f}, expected {e}");
    }
}
