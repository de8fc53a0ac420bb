//! Executors, which run programs according to a configuration, and profile them.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::host;
use crate::statistics::Stats;
use girih_opt::Pass;
use girih_runtime::{CompileOptions, PlanExecutor};
use girih_sync::Mutex;
use std::fmt;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The configuration of an executor.
#[derive(Clone)]
pub struct ExecutorConfig {
    /// Whether compiled programs are cached, in memory and on disk. Without the cache, each run
    /// compiles.
    pub use_cache: bool,
    /// Whether stages and kernels are timed; see [`DeviceExecutor::profile`].
    pub profile: bool,
    /// The name of the device that runs the programs.
    pub device: String,
    /// The time limit of a run, after which it fails with [`girih_runtime::Error::Timeout`];
    /// infinite for no limit.
    pub timeout_seconds: f64,
    /// The user's passes, which run in this order before all other passes.
    pub passes: Vec<Arc<dyn Pass>>,
}

impl PartialEq for ExecutorConfig {
    fn eq(&self, other: &ExecutorConfig) -> bool {
        let fields = |c: &ExecutorConfig| (c.use_cache, c.profile, c.device.clone());
        fields(self) == fields(other)
            && self.timeout_seconds == other.timeout_seconds
            && self.passes.len() == other.passes.len()
            && self.passes.iter().zip(&other.passes).all(|(a, b)| is_same_pass(a, b))
    }
}

/// Whether `a` and `b` are the same pass.
pub fn is_same_pass(a: &Arc<dyn Pass>, b: &Arc<dyn Pass>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
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

impl ExecutorConfig {
    /// The default configuration of the executors of the device named `device`.
    pub(crate) fn on(device: &str) -> ExecutorConfig {
        let (device, timeout_seconds) = (device.to_string(), 300.0);
        let passes = Vec::new();
        ExecutorConfig { use_cache: true, profile: false, device, timeout_seconds, passes }
    }
}

/// An executor runs programs according to its configuration, and has its own program cache. The
/// value is a reference-counted handle.
///
/// All executors of a device share its memory and its queue, so that an executor can read the
/// results of another executor.
#[derive(Clone)]
pub struct DeviceExecutor(Arc<Inner>);

struct Inner {
    device: Device,
    config: ExecutorConfig,
    limit: Option<Duration>,
    runtime: Arc<PlanExecutor>,
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

impl DeviceExecutor {
    /// An executor with a program cache of its own, beside the executor of its device.
    ///
    /// Errors: [`Error::InvalidArgument`] for a time limit that is not positive.
    pub(crate) fn beside(other: &DeviceExecutor, config: ExecutorConfig) -> Result<DeviceExecutor> {
        let seconds = config.timeout_seconds;
        if seconds.is_nan() || seconds <= 0.0 {
            return Err(Error::InvalidArgument(format!(
                "timeout_seconds: expected a positive number, infinite for no limit, got {seconds}"
            )));
        }
        // A limit that does not fit a `Duration` is longer than any run.
        let limit = Duration::try_from_secs_f64(seconds).ok();
        let runtime = Arc::new(other.0.runtime.sibling(config.use_cache));
        let user = girih_opt::register(config.passes.clone());
        runtime.set_options(CompileOptions { user, ..runtime.options() });
        let (device, profile) = (other.0.device, Mutex::default());
        let inner = Inner { device, config, limit, runtime, profile, _collector: None };
        Ok(DeviceExecutor(Arc::new(inner)))
    }

    /// The default executor of a device, for contexts without an executor.
    pub(crate) fn of_device(
        device: Device,
        name: &str,
        runtime: PlanExecutor,
    ) -> Result<DeviceExecutor, girih_runtime::Error> {
        let config = ExecutorConfig::on(name);
        let limit = Some(Duration::from_secs_f64(config.timeout_seconds));
        // Check the variable here, since its users cannot report an error.
        girih_runtime::env::flag(&["GIRIH_SOURCE_LINES"])?;
        let runtime = Arc::new(runtime);
        let collector = runtime.device().allocator().add_collector(Box::new(|_| host::collect()));
        let (profile, _collector) = (Mutex::default(), Some(collector));
        Ok(DeviceExecutor(Arc::new(Inner { device, config, limit, runtime, profile, _collector })))
    }

    /// The device on which the executor runs programs.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The executor's configuration.
    #[inline]
    pub fn config(&self) -> &ExecutorConfig {
        &self.0.config
    }

    /// The runtime's executor.
    #[inline]
    pub fn runtime(&self) -> &Arc<PlanExecutor> {
        &self.0.runtime
    }

    /// The time limit of a run, if any.
    #[inline]
    pub fn limit(&self) -> Option<Duration> {
        self.0.limit
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

    /// Sets the profile of the last evaluation.
    pub fn set_profile(&self, profile: Profile) {
        drop(self.0.profile.replace(Some(profile)));
    }
}

impl std::fmt::Debug for DeviceExecutor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DeviceExecutor").field(self.config()).finish()
    }
}
