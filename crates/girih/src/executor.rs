//! Executors: how programs are run, and what running them took.

use crate::devices::Device;
use crate::pass::{self, Pass};
use crate::{CompileOptions, Context, Element, Error, Graph, Result, Stats, Tensor};
use crate::{eval, host};
use girih_sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// How an executor runs programs.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// Compiled programs are kept, in memory and on disk. Without, each run compiles.
    pub use_cache: bool,
    /// Stages and kernels are timed; see [`Executor::profile`].
    pub profile: bool,
    /// Where programs run: the name of a device.
    pub device: String,
    /// A run that takes longer fails with [`girih_runtime::Error::Timeout`]; infinite for none.
    pub timeout_seconds: f64,
    /// Passes of the user's, run in this order before all others: see [`crate::pass::graph_pass`].
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

/// Runs programs as its configuration says, with a program cache of its own. A counted handle.
///
/// All executors of a device share its memory and its queue: what one computes another may read.
#[derive(Clone)]
pub struct Executor(Arc<Inner>);

struct Inner {
    device: Device,
    config: ExecutorConfig,
    limit: Option<Duration>,
    runtime: Arc<girih_runtime::Executor>,
    profile: Mutex<Option<Profile>>,
    /// Where the device's memory is short, hosts' garbage is collected; None for executors of users.
    _collector: Option<girih_runtime::CollectorRegistration>,
}

/// Where the time of an evaluation went. Times are summed over its programs, of which there is one
/// unless another thread's results had to be waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Cutting out what is needed.
    pub extraction: Duration,
    /// Graph passes. Nothing for a program that was cached, as the next.
    pub optimization: Duration,
    /// Fusion into kernels.
    pub codegen: Duration,
    /// Making kernels ready to run; finding the program, if it was cached.
    pub compile: Duration,
    /// Binding arguments to memory and allocating results. Part of `execution`.
    pub transfer: Duration,
    /// Running the kernels, arguments' transfer included.
    pub execution: Duration,
    /// Making the results the tensors' values.
    pub store: Duration,
    /// Name and time of each kernel, in the order they ran. Only when profiling.
    pub kernels: Vec<(String, Duration)>,
}

impl Profile {
    /// The six stages in their order.
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

/// What [`Executor::execute`] came to.
#[derive(Clone, Debug, Default)]
pub struct ExecutionResult {
    /// Whether all outputs are there.
    pub success: bool,
    /// What went wrong; empty on success.
    pub error_message: String,
    /// What went wrong, for programs.
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
    /// for a time limit that is none.
    pub fn new(config: ExecutorConfig) -> Result<Executor> {
        let device = Device::named(&config.device)?;
        let seconds = config.timeout_seconds;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(Error::InvalidArgument(format!(
                "timeout_seconds: expected a positive number, infinite for no limit, got {seconds}"
            )));
        }
        // What does not fit a duration is longer than any run.
        let limit = Duration::try_from_secs_f64(seconds).ok();
        let runtime = Arc::new(device.executor()?.0.runtime.sibling(config.use_cache));
        let user = girih_opt::register(config.passes.clone());
        runtime.set_options(CompileOptions { user, ..runtime.options() });
        let profile = Mutex::default();
        Ok(Executor(Arc::new(Inner { device, config, limit, runtime, profile, _collector: None })))
    }

    /// The executor of contexts that have none of their own for a device.
    pub(crate) fn of_device(
        device: Device,
        name: &str,
        runtime: girih_runtime::Executor,
    ) -> Result<Executor, girih_runtime::Error> {
        let config = ExecutorConfig { device: name.to_string(), ..ExecutorConfig::default() };
        let limit = Some(Duration::from_secs_f64(config.timeout_seconds));
        // Read where an error cannot be told.
        girih_runtime::env::flag(&["GIRIH_SOURCE_LINES"])?;
        let runtime = Arc::new(runtime);
        let collector = runtime.device().allocator().add_collector(Box::new(|_| host::collect()));
        let (profile, _collector) = (Mutex::default(), Some(collector));
        Ok(Executor(Arc::new(Inner { device, config, limit, runtime, profile, _collector })))
    }

    /// The device that it runs programs on.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// How it runs programs.
    pub fn config(&self) -> &ExecutorConfig {
        &self.0.config
    }

    pub(crate) fn runtime(&self) -> &Arc<girih_runtime::Executor> {
        &self.0.runtime
    }

    pub(crate) fn limit(&self) -> Option<Duration> {
        self.0.limit
    }

    /// Computes nodes of a recording graph, all in one run: shared work is done once.
    ///
    /// `outputs` are numbers of the graph's nodes ([`Tensor::id`]). Never fails: what went wrong is
    /// in the result, and the tensors stay lazy and may be evaluated again.
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
                error_message: format!("Execution failed: {error}"),
                error: Some(error),
                ..result
            },
        }
    }

    /// Computes one node of a recording graph and gives its elements, row-major.
    ///
    /// Errors: [`Error::ElementType`] if it holds another type; as [`crate::eval`].
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

    /// Compiles what computes nodes of a recording graph, without running it; all that has no
    /// value yet and no user if `outputs` is empty. True if there was something to compile: it was
    /// not in the cache.
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

    /// Forgets compiled programs; those running are not disturbed.
    pub fn clear_cache(&self) {
        self.0.runtime.clear_cache();
    }

    /// Counts of what this executor has compiled and run.
    pub fn cache_stats(&self) -> Stats {
        Stats::of(&self.0.runtime)
    }

    /// Stops every run of this executor that is under way or queued, from any thread. The tensors
    /// stay lazy; what is evaluated later is not concerned.
    pub fn cancel_all(&self) {
        self.0.runtime.cancel_all();
    }

    /// Where the time of the last evaluation went; None unless profiling.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_profile(&self, profile: Profile) {
        *self.0.profile.lock().unwrap_or_else(PoisonError::into_inner) = Some(profile);
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Executor").field(self.config()).finish()
    }
}

/// Nodes of a graph by their numbers.
fn tensors(graph: &Graph, ids: &[u32]) -> Result<BTreeMap<u32, Tensor>> {
    let live = graph.live();
    let find = |&id: &u32| {
        let found = live.iter().find(|t| t.id() == id);
        let tensor = found.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "graph {} has no live node {id}; it has recorded {} and holds {}",
                graph.id(),
                graph.num_nodes(),
                live.len()
            ))
        })?;
        Ok((id, tensor.clone()))
    };
    ids.iter().map(find).collect()
}

/// What a graph has recorded, not computed, and not used itself.
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
