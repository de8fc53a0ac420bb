//! Executors, which run programs according to a configuration, and profile them.

use crate::devices::Device;
use crate::pass::{self, Pass};
use crate::{CompileOptions, Context, Element, Error, Graph, Result, Stats, Tensor};
use crate::{eval, host};
use girih_sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The configuration of an executor.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// Whether compiled programs are cached, in memory and on disk. Without the cache, each run
    /// compiles.
    pub use_cache: bool,
    /// Whether stages and kernels are timed; see [`Executor::profile`].
    pub profile: bool,
    /// The name of the device that runs the programs.
    pub device: String,
    /// The time limit of a run, after which it fails with [`girih_runtime::Error::Timeout`];
    /// infinite for no limit.
    pub timeout_seconds: f64,
    /// The user's passes, which run in this order before all other passes: see
    /// [`crate::pass::graph_pass`].
    pub passes: Vec<Arc<dyn Pass>>,
}

impl PartialEq for ExecutorConfig {
    fn eq(&self, other: &ExecutorConfig) -> bool {
        let fields = |c: &ExecutorConfig| (c.use_cache, c.profile, c.device.clone());
        fields(self) == fields(other)
            && self.timeout_seconds == other.timeout_seconds
            && self.passes.len() == other.passes.len()
            && self.passes.iter().zip(&other.passes).all(|(a, b)| pass::is_same(a, b))
    }
}

impl fmt::Debug for ExecutorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let passes: Vec<&str> = self.passes.iter().map(|pass| pass.name()).collect();
        f.debug_struct("ExecutorConfig")
            .field("use_cache", &self.use_cache)
            .field("profile", &self.profile)
            .field("device", &self.device)
            .field("timeout_seconds", &self.timeout_seconds)
            .field("passes", &passes)
            .finish()
    }
}

impl Default for ExecutorConfig {
    fn default() -> Self {
        let device = Device::of_process().name().to_string();
        let (timeout_seconds, passes) = (300.0, Vec::new());
        ExecutorConfig { use_cache: true, profile: false, device, timeout_seconds, passes }
    }
}

/// An executor runs programs according to its configuration, and has its own program cache. The
/// value is a reference-counted handle.
///
/// All executors of a device share its memory and its queue, so that an executor can read the
/// results of another executor.
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    device: Device,
    config: ExecutorConfig,
    limit: Option<Duration>,
    runtime: Arc<girih_runtime::PlanExecutor>,
    profile: Mutex<Option<Profile>>,
    /// Collects the host language's garbage when device memory is short; `None` for executors of
    /// users.
    _collector: Option<girih_runtime::CollectorRegistration>,
}

/// The times of the stages of an evaluation. Times are summed over its programs: there is one
/// program, unless the evaluation waited for results of another thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Cutting the graph out of the recording.
    pub extraction: Duration,
    /// Graph passes. Zero for a cached program, as is `codegen`.
    pub optimization: Duration,
    /// Fusion into kernels.
    pub codegen: Duration,
    /// Preparing kernels for execution, or the cache lookup of a cached program.
    pub compile: Duration,
    /// Binding arguments to memory and allocating results. Part of `execution`.
    pub transfer: Duration,
    /// Running the kernels, including `transfer`.
    pub execution: Duration,
    /// Storing the results in the tensors.
    pub store: Duration,
    /// Name and time of each kernel, in execution order. Empty unless profiling is on.
    pub kernels: Vec<(String, Duration)>,
}

impl Profile {
    /// The names and times of the six stages, in order.
    pub fn stages(&self) -> [(&'static str, Duration); 6] {
        [
            ("extraction", self.extraction),
            ("optimization", self.optimization),
            ("codegen", self.codegen),
            ("compile", self.compile),
            ("execution", self.execution),
            ("store", self.store),
        ]
    }
}

/// The result of [`Executor::execute`].
#[derive(Clone, Debug, Default)]
pub struct ExecutionResult {
    /// Whether all outputs were computed.
    pub success: bool,
    /// The error message; empty on success.
    pub error_message: String,
    /// The error; `None` on success.
    pub error: Option<Error>,
    /// Time for passes, code generation and compilation.
    pub compile_time_ms: f64,
    /// Time for binding arguments and allocating results.
    pub transfer_time_ms: f64,
    /// Time for running kernels.
    pub compute_time_ms: f64,
    /// The outputs by their number in the graph; empty on failure.
    pub outputs: BTreeMap<u32, Tensor>,
}

impl Executor {
    /// An executor with a program cache of its own.
    ///
    /// Errors: [`Error::UnknownDevice`], [`Error::DeviceUnavailable`]; [`Error::InvalidArgument`]
    /// for a time limit that is not positive.
    pub fn new(config: ExecutorConfig) -> Result<Executor> {
        let device = Device::named(&config.device)?;
        let seconds = config.timeout_seconds;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(Error::InvalidArgument(format!(
                "timeout_seconds: expected a positive number, infinite for no limit, got {seconds}"
            )));
        }
        // A limit that does not fit a `Duration` is longer than any run.
        let limit = Duration::try_from_secs_f64(seconds).ok();
        let runtime = Arc::new(device.executor()?.0.runtime.sibling(config.use_cache));
        let user = girih_opt::register(config.passes.clone());
        runtime.set_options(CompileOptions { user, ..runtime.options() });
        let profile = Mutex::default();
        Ok(Executor(Arc::new(Inner { device, config, limit, runtime, profile, _collector: None })))
    }

    /// The default executor of a device, for contexts without an executor.
    pub(crate) fn of_device(
        device: Device,
        name: &str,
        runtime: girih_runtime::PlanExecutor,
    ) -> Result<Executor, girih_runtime::Error> {
        let config = ExecutorConfig { device: name.to_string(), ..ExecutorConfig::default() };
        let limit = Some(Duration::from_secs_f64(config.timeout_seconds));
        // Check the variable here, since its users cannot report an error.
        girih_runtime::env::flag(&["GIRIH_SOURCE_LINES"])?;
        let runtime = Arc::new(runtime);
        let collector = runtime.device().allocator().add_collector(Box::new(|_| host::collect()));
        let (profile, _collector) = (Mutex::default(), Some(collector));
        Ok(Executor(Arc::new(Inner { device, config, limit, runtime, profile, _collector })))
    }

    /// The device on which the executor runs programs.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The executor's configuration.
    pub fn config(&self) -> &ExecutorConfig {
        &self.0.config
    }

    pub(crate) fn runtime(&self) -> &Arc<girih_runtime::PlanExecutor> {
        &self.0.runtime
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        self.0.limit
    }

    /// Computes nodes of a recording graph, all in one run, so that shared work is done once.
    ///
    /// `outputs` are numbers of the graph's nodes ([`Tensor::id`]). Does not return an error: the
    /// result contains it. The tensors then stay lazy and may be evaluated again.
    pub fn execute(&self, graph: &Graph, outputs: &[u32]) -> ExecutionResult {
        let mut profile = Profile::default();
        let outcome = tensors(graph, outputs).and_then(|tensors| {
            self.check_devices(tensors.values())?;
            eval::eval_on(self, tensors.values(), Some(&mut profile))?;
            Ok(tensors)
        });
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let result = ExecutionResult {
            compile_time_ms: ms(profile.optimization + profile.codegen + profile.compile),
            transfer_time_ms: ms(profile.transfer),
            compute_time_ms: ms(profile.execution.saturating_sub(profile.transfer)),
            ..ExecutionResult::default()
        };
        match outcome {
            Ok(outputs) => ExecutionResult { success: true, outputs, ..result },
            Err(error) => ExecutionResult {
                error_message: match &error {
                    Error::Evaluation { .. } => error.to_string(),
                    other => format!("Execution failed: {other}"),
                },
                error: Some(error),
                ..result
            },
        }
    }

    /// Computes one node of a recording graph and returns its elements, row-major.
    ///
    /// Errors: [`Error::ElementType`] if the node has another dtype; as [`crate::eval`].
    pub fn execute_single<T: Element>(&self, graph: &Graph, output: u32) -> Result<Vec<T>> {
        let tensors = tensors(graph, &[output])?;
        let tensor = &tensors[&output];
        if tensor.dtype() != T::DTYPE {
            return Err(Error::ElementType { expected: T::DTYPE, found: tensor.dtype() });
        }
        self.check_devices([tensor])?;
        eval::eval_on(self, [tensor], None)?;
        tensor.to_vec()
    }

    /// Compiles the program that computes nodes of a recording graph, without running it. If
    /// `outputs` is empty, the nodes are all those without a value and without users. Returns
    /// whether something was compiled, that is, was not in the cache.
    pub fn compile_only(&self, graph: &Graph, outputs: &[u32]) -> Result<bool> {
        let tensors: Vec<Tensor> = match outputs {
            [] => sinks(graph),
            ids => tensors(graph, ids)?.into_values().collect(),
        };
        let targets: Vec<&Tensor> = tensors.iter().collect();
        self.check_devices(&tensors)?;
        let cut = eval::cut_out(self, &targets, true)?;
        let misses = || self.0.runtime.num_compiles();
        let before = misses();
        let options = Context::current().options(&self.0.runtime);
        self.0.runtime.plan(&cut.graph, options)?;
        Ok(misses() > before)
    }

    /// Fails for a tensor that is committed to another device.
    fn check_devices<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let elsewhere =
            |t: &&Tensor| !t.node().place().is_floating() && t.device() != self.device();
        match tensors.into_iter().find(elsewhere) {
            None => Ok(()),
            Some(t) => Err(Error::InvalidArgument(format!(
                "the executor runs programs on {}, and node {} is on {}; move the tensor with \
                 to_device, or use an executor of its device",
                self.device(),
                t.id(),
                t.device()
            ))),
        }
    }

    /// Clears the cache of compiled programs; running programs are not affected.
    pub fn clear_cache(&self) {
        self.0.runtime.clear_cache();
    }

    /// Counts of programs that this executor has compiled and run.
    pub fn cache_stats(&self) -> Stats {
        Stats::of(&self.0.runtime)
    }

    /// Cancels every running or queued run of this executor. May be called from any thread. The
    /// tensors stay lazy; later evaluations are not affected.
    pub fn cancel_all(&self) {
        self.0.runtime.cancel_all();
    }

    /// The profile of the last evaluation; `None` unless profiling is on.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_profile(&self, profile: Profile) {
        drop(self.0.profile.replace(Some(profile)));
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Executor").field(self.config()).finish()
    }
}

/// The live nodes of a graph with these numbers.
fn tensors(graph: &Graph, ids: &[u32]) -> Result<BTreeMap<u32, Tensor>> {
    Ok(ids.iter().copied().zip(graph.tensors(ids)?).collect())
}

/// The lazy nodes of a graph that no lazy node uses.
fn sinks(graph: &Graph) -> Vec<Tensor> {
    let unrealized = graph.unrealized();
    let mut used: Vec<*const crate::node::Node> = Vec::new();
    for tensor in &unrealized {
        tensor.node().state().for_each_input(|input| used.push(Arc::as_ptr(input)));
    }
    used.sort_unstable();
    let is_sink = |t: &Tensor| used.binary_search(&Arc::as_ptr(t.node())).is_err();
    unrealized.into_iter().filter(is_sink).collect()
}
