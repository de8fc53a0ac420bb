//! Executors of the engine, which run programs according to a configuration, with tensors for nodes.

use crate::{Element, Error, Graph, Result, Stats, Tensor};
use girih_record::context::Context;
use girih_record::executor::DeviceExecutor;
pub use girih_record::executor::{ExecutorConfig, Profile};
use girih_record::{Device, Node, eval};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An executor runs programs according to its configuration, and has its own program cache. The
/// value is a reference-counted handle.
///
/// All executors of a device share its memory and its queue, so that an executor can read the
/// results of another executor.
#[derive(Clone)]
pub struct Executor(DeviceExecutor);

impl From<DeviceExecutor> for Executor {
    fn from(executor: DeviceExecutor) -> Executor {
        Executor(executor)
    }
}

impl From<Executor> for DeviceExecutor {
    fn from(executor: Executor) -> DeviceExecutor {
        executor.0
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Executor").field(self.config()).finish()
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
        DeviceExecutor::new(config).map(Executor)
    }

    /// The device on which the executor runs programs.
    pub fn device(&self) -> Device {
        self.0.device()
    }

    /// The executor's configuration.
    pub fn config(&self) -> &ExecutorConfig {
        self.0.config()
    }

    pub(crate) fn engine(&self) -> &DeviceExecutor {
        &self.0
    }

    /// Computes nodes of a recording graph, all in one run, so that shared work is done once.
    ///
    /// `outputs` are numbers of the graph's nodes ([`Tensor::id`]). Does not return an error: the
    /// result contains it. The tensors then stay lazy and may be evaluated again.
    pub fn execute(&self, graph: &Graph, outputs: &[u32]) -> ExecutionResult {
        let mut profile = Profile::default();
        let outcome = tensors(graph, outputs).and_then(|tensors| {
            self.check_devices(tensors.values())?;
            let nodes: Vec<_> = tensors.values().map(Tensor::node).collect();
            eval::eval_on(&self.0, &nodes, Some(&mut profile))?;
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
        eval::eval_on(&self.0, &[tensor.node()], None)?;
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
        let targets: Vec<_> = tensors.iter().map(Tensor::node).collect();
        self.check_devices(&tensors)?;
        let cut = eval::cut_out(&self.0, &targets, true)?;
        let runtime = self.0.runtime();
        let misses = || runtime.num_compiles();
        let before = misses();
        let options = Context::current().options(runtime);
        runtime.plan(&cut.graph, options)?;
        Ok(misses() > before)
    }

    /// Fails for a tensor that is committed to another device.
    fn check_devices<'a>(&self, tensors: impl IntoIterator<Item = &'a Tensor>) -> Result<()> {
        let elsewhere = |t: &&Tensor| {
            let place = t.node().place();
            !place.is_floating() && (place.is_sharded() || t.device() != self.device())
        };
        match tensors.into_iter().find(elsewhere) {
            None => Ok(()),
            Some(t) => Err(Error::InvalidArgument(format!(
                "the executor runs programs on {}, and node {} is on {}; move the tensor with \
                 to_device, or use an executor of its device",
                self.device(),
                t.id(),
                t.sharding().map_or_else(|| t.device().to_string(), ToString::to_string)
            ))),
        }
    }

    /// Clears the cache of compiled programs; running programs are not affected.
    pub fn clear_cache(&self) {
        self.0.clear_cache();
    }

    /// Counts of programs that this executor has compiled and run.
    pub fn cache_stats(&self) -> Stats {
        self.0.cache_stats()
    }

    /// Cancels every running or queued run of this executor. May be called from any thread. The
    /// tensors stay lazy; later evaluations are not affected.
    pub fn cancel_all(&self) {
        self.0.cancel_all();
    }

    /// The profile of the last evaluation; `None` unless profiling is on.
    pub fn profile(&self) -> Option<Profile> {
        self.0.profile()
    }
}

/// The live nodes of a graph with these numbers.
fn tensors(graph: &Graph, ids: &[u32]) -> Result<BTreeMap<u32, Tensor>> {
    Ok(ids.iter().copied().zip(graph.tensors(ids)?).collect())
}

/// The lazy nodes of a graph that no lazy node uses.
fn sinks(graph: &Graph) -> Vec<Tensor> {
    let unrealized = graph.unrealized();
    let mut used: Vec<*const Node> = Vec::new();
    for tensor in &unrealized {
        tensor.node().state().for_each_input(|input| used.push(Arc::as_ptr(input)));
    }
    used.sort_unstable();
    let is_sink = |t: &Tensor| used.binary_search(&Arc::as_ptr(t.node())).is_err();
    unrealized.into_iter().filter(is_sink).collect()
}
