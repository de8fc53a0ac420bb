//! The executor: evaluates a closed graph with its arguments by the program cache, the device's
//! back end, and a stream.

use crate::arguments::check_arguments;
use crate::call::{Values, next_generation};
use crate::control::Cancellations;
use crate::defaults::DefaultStreams;
use crate::difference::{Lookup, nearest};
use crate::family::Families;
use crate::handle::invalid;
use crate::layout::Strides;
use crate::plan::{OutputSource, PlannedBuffer, Source};
use crate::symbolic::Executables;
use crate::{
    ArgumentBlock, Backend, Buffer, CacheStats, CachedPlan, CompileOptions, Completion, Device,
    DeviceHandle, DeviceId, DiskCache, ExecutionPlan, HostMemoryPool, LoadedPlan, Placement,
    ProgramCache, Result, RunControl, Scheduler, Stream, Value,
};
use girih_ir::{Graph, TensorSpec};
use girih_sync::{Counter, Mutex, OnceLock, Striped};
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// One argument of a run.
#[derive(Clone, Debug)]
pub enum Argument {
    /// Data, with its spec for checking.
    Tensor(Value, TensorSpec),
    /// Data in the memory of a larger tensor, from the value's start on, with spec and strides for
    /// checking.
    Strided(Value, TensorSpec, Strides),
    /// Data that the caller has already checked against the plan's spec.
    Checked(Value),
    /// As `Checked`, and donated: the caller does not need the data after the run, so results may
    /// alias it.
    Donated(Value),
    /// The bits of a scalar of the dtype in the graph.
    Scalar(u64),
    /// A random leaf's key and offset.
    RandomKey {
        /// The generator's key.
        key: u64,
        /// The offset of the leaf in the generator's sequence.
        offset: u64,
    },
}

impl Argument {
    /// The data, if the argument is a tensor.
    #[inline]
    pub fn value(&self) -> Option<&Value> {
        match self {
            Argument::Tensor(value, _)
            | Argument::Strided(value, ..)
            | Argument::Checked(value)
            | Argument::Donated(value) => Some(value),
            Argument::Scalar(_) | Argument::RandomKey { .. } => None,
        }
    }
}

/// Memory for a run to use instead of new blocks.
#[derive(Default)]
pub(crate) struct Reused {
    /// For each output, its memory; `None` for a new block.
    pub targets: Vec<Option<Value>>,
    /// The block of temporaries, of the size that the plan needs.
    pub temporaries: Option<Arc<Buffer>>,
}

/// Counts of an executor's work so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The number of compiled graphs, each one run of the passes.
    pub compiles: u64,
    /// The number of times that a graph with symbolic sizes was bound to new sizes, which does not
    /// run the passes.
    pub bindings: u64,
    /// The number of plans run.
    pub runs: u64,
    /// The number of kernels launched.
    pub launches: u64,
    /// The time of compiling, binding to sizes, and restoring from disk, on all threads. It
    /// includes no part of a run.
    pub compile_time: Duration,
}

/// Runs closed graphs on one device, with a default stream per thread and one program cache.
pub struct PlanExecutor {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) backend: Arc<dyn Backend>,
    streams: Arc<DefaultStreams>,
    /// The stream for copies that should not wait for the other streams' work.
    pub(crate) copies: OnceLock<Stream>,
    /// Staging buffers for copies to the device.
    pub(crate) staging: OnceLock<HostMemoryPool>,
    pub(crate) cache: ProgramCache,
    /// Whether plans are cached; if not, each evaluation compiles.
    pub(crate) use_cache: bool,
    pub(crate) disk: Option<Arc<DiskCache>>,
    pub(crate) families: Mutex<Families>,
    /// The same options are stored in each stripe.
    options: Striped<Mutex<CompileOptions>>,
    cancellations: Cancellations,
    pub(crate) compiles: AtomicU64,
    pub(crate) bindings: AtomicU64,
    /// Nanoseconds of [`Counters::compile_time`].
    compile_ns: AtomicU64,
    pub(crate) executables: Mutex<Executables>,
    pub(crate) runs: Counter,
    /// The number of launches in excess of one per run, modulo 2^64.
    pub(crate) other_launches: Counter,
    /// Cache hits on plans that the callers have kept.
    pub(crate) recalled: Counter,
    /// Changes whenever a lookup might no longer return a plan found before.
    pub(crate) generation: AtomicU64,
}

impl PlanExecutor {
    /// An executor for a device and the back end that compiles for it. Plans in `disk` are not
    /// compiled again.
    pub fn new(
        device: Arc<dyn Device>,
        backend: Arc<dyn Backend>,
        disk: Option<Arc<DiskCache>>,
    ) -> PlanExecutor {
        let first = Arc::new(Stream::new(&Scheduler::new(device.clone())));
        PlanExecutor::with(device, backend, Arc::new(DefaultStreams::new(first)), disk, true)
    }

    /// An executor on the same device and streams, with its own counters and its own program cache,
    /// or without a cache. Each may read the other's results.
    pub fn sibling(&self, use_cache: bool) -> PlanExecutor {
        let disk = self.disk.clone().filter(|_| use_cache);
        let (device, backend) = (self.device.clone(), self.backend.clone());
        PlanExecutor::with(device, backend, self.streams.clone(), disk, use_cache)
    }

    fn with(
        device: Arc<dyn Device>,
        backend: Arc<dyn Backend>,
        streams: Arc<DefaultStreams>,
        disk: Option<Arc<DiskCache>>,
        use_cache: bool,
    ) -> PlanExecutor {
        PlanExecutor {
            device,
            backend,
            streams,
            copies: OnceLock::new(),
            staging: OnceLock::new(),
            cache: ProgramCache::new(ProgramCache::DEFAULT_CAPACITY),
            use_cache,
            disk,
            families: Mutex::default(),
            options: Striped::default(),
            cancellations: Cancellations::default(),
            compiles: AtomicU64::new(0),
            bindings: AtomicU64::new(0),
            compile_ns: AtomicU64::new(0),
            executables: Mutex::default(),
            runs: Counter::default(),
            other_launches: Counter::default(),
            recalled: Counter::default(),
            generation: AtomicU64::new(next_generation()),
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The device's first stream, number 0.
    pub fn stream(&self) -> &Arc<Stream> {
        self.streams.first()
    }

    /// The default stream of this thread: the device's first stream for the first thread that calls
    /// this, a new stream for each other thread.
    pub fn thread_stream(&self) -> Arc<Stream> {
        self.streams.of_thread()
    }

    /// Calls `f` with the default stream of this thread; see [`PlanExecutor::thread_stream`].
    pub fn with_thread_stream<T>(&self, f: impl FnOnce(&Stream) -> T) -> T {
        self.streams.with_thread(f)
    }

    /// The current options of compilation.
    pub fn options(&self) -> CompileOptions {
        *self.options.mine().lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the options of compilation; cached plans with other options stay valid for those
    /// options.
    pub fn set_options(&self, options: CompileOptions) {
        for each in self.options.iter() {
            *each.lock().unwrap_or_else(PoisonError::into_inner) = options;
        }
        self.generation.store(next_generation(), Ordering::Relaxed);
    }

    /// Whether a graph's program is cached, and if not, how it differs from the most similar cached
    /// program. Counts neither a hit nor a miss.
    pub fn lookup(&self, graph: &Graph, options: CompileOptions) -> Lookup {
        let key = self.key(graph, options);
        if self.cache.contains(&key) {
            return Lookup::Hit;
        }
        let plans = self.cache.plans();
        let sources: Vec<&Source> = plans.iter().filter_map(|p| p.source.as_deref()).collect();
        nearest(&sources, &Source { graph: graph.clone(), options })
    }

    /// The control of a run that begins now. [`PlanExecutor::cancel_all`] stops the run, and so
    /// does the time limit, if given.
    pub fn control(&self, limit: Option<std::time::Duration>, profile: bool) -> RunControl {
        self.cancellations.begin(limit, profile)
    }

    /// Stops every run of this executor that has begun or is queued. Their tensors stay lazy. Later
    /// runs are not affected.
    pub fn cancel_all(&self) {
        self.cancellations.cancel_all();
    }

    /// The cache on disk, if there is one.
    pub fn disk(&self) -> Option<&Arc<DiskCache>> {
        self.disk.as_ref()
    }

    /// Checks arguments against the plan, and allocates results and temporaries.
    ///
    /// Errors: [`crate::Error::ArgumentCount`], [`crate::Error::ArgumentMismatch`],
    /// [`crate::Error::OutOfMemory`].
    pub fn bind(
        &self,
        program: &CachedPlan,
        arguments: &[Argument],
        control: RunControl,
    ) -> Result<(Arc<ArgumentBlock>, Values)> {
        self.bind_reusing(program, arguments, control, Reused::default())
    }

    /// As [`PlanExecutor::bind`], but with existing memory for some results or the temporaries.
    pub(crate) fn bind_reusing(
        &self,
        program: &CachedPlan,
        arguments: &[Argument],
        control: RunControl,
        reused: Reused,
    ) -> Result<(Arc<ArgumentBlock>, Values)> {
        let Some(order) = &program.order else {
            return self.bind_plan(&program.plan, arguments, control, reused);
        };
        let pick = |&at: &u32| arguments.get(at as usize).cloned();
        let arguments: Vec<Argument> = order.arguments.iter().filter_map(pick).collect();
        let mut targets = vec![None; program.plan.outputs.len()];
        for (&at, target) in order.outputs.iter().zip(reused.targets) {
            targets[at as usize] = target;
        }
        let reused = Reused { targets, ..reused };
        let (block, values) = self.bind_plan(&program.plan, &arguments, control, reused)?;
        Ok((block, order.outputs.iter().map(|&at| values[at as usize].clone()).collect()))
    }

    /// Fails if the memory for the results and temporaries of a run is not free now; allocates
    /// nothing.
    ///
    /// Errors: [`crate::Error::OutOfMemory`] with the total number of bytes.
    pub fn check_memory(&self, plan: &ExecutionPlan) -> Result<()> {
        let sources = plan.outputs.iter().zip(&plan.facts.output_sources);
        let new = sources.filter(|(_, source)| matches!(source, OutputSource::New(_)));
        let sizes = new.map(|(output, _)| plan.buffers[output.buffer].size_bytes);
        self.device.allocator().check(sizes.fold(plan.temporary_bytes, usize::saturating_add))
    }

    fn bind_plan(
        &self,
        plan: &LoadedPlan,
        arguments: &[Argument],
        control: RunControl,
        reused: Reused,
    ) -> Result<(Arc<ArgumentBlock>, Values)> {
        let mut block = ArgumentBlock { control, ..ArgumentBlock::default() };
        let values = self.fill(plan, arguments, &mut block, reused)?;
        let given = arguments.iter().filter_map(Argument::value);
        block.buffers.extend(given.chain(&values).map(|value| value.buffer().clone()));
        Ok((Arc::new(block), values))
    }

    /// Binds a plan's buffers to memory; returns its results. The block owns the temporaries; the
    /// caller must keep all other memory alive until the run is done.
    pub(crate) fn fill(
        &self,
        plan: &LoadedPlan,
        arguments: &[Argument],
        block: &mut ArgumentBlock,
        mut reused: Reused,
    ) -> Result<Values> {
        check_arguments(plan, arguments)?;
        if arguments.iter().any(|a| a.value().is_none()) {
            block.words.extend(arguments.iter().map(|a| match a {
                Argument::Scalar(bits) => [*bits, 0],
                Argument::RandomKey { key, offset } => [*key, *offset],
                Argument::Tensor(..)
                | Argument::Strided(..)
                | Argument::Checked(_)
                | Argument::Donated(_) => [0, 0],
            }));
        }
        // A device is asked once, so that the addresses are those of this pool.
        let allocator = self.device.allocator();
        (block.plan, block.pool) = (plan.facts.number, allocator.pool_id());
        let resolve = |handle, size| {
            allocator.resolve(handle, size).ok_or_else(|| invalid(&*self.device, handle, size))
        };
        let temporaries = match (plan.temporary_bytes, reused.temporaries.take()) {
            (0, _) => None,
            (_, Some(block)) => Some(block),
            (bytes, None) => Some(Arc::new(allocator.allocate(bytes)?)),
        };
        block.addresses.resize(plan.buffers.len(), 0);
        for (buffer, address) in plan.buffers.iter().zip(&mut block.addresses) {
            let handle = match buffer.placement {
                Placement::Argument(i) => arguments[i].value().map(Value::handle),
                Placement::Temporary(at) => temporaries.as_ref().map(|t| t.handle().offset(at)),
                Placement::Output | Placement::Unused => None,
            };
            if let Some(handle) = handle {
                *address = resolve(handle, buffer.size_bytes)?;
            }
        }
        block.temporaries = temporaries;
        block.slots = plan.new_slots()?;
        for &buffer in &plan.weights {
            if let Placement::Argument(i) = plan.buffers[buffer].placement
                && let Argument::Tensor(value, _) | Argument::Checked(value) = &arguments[i]
            {
                block.weights.push((buffer, value.buffer().clone()));
            }
        }
        let mut values = Values::new();
        for (at, (output, source)) in
            plan.outputs.iter().zip(&plan.facts.output_sources).enumerate()
        {
            values.push(match *source {
                OutputSource::Argument(i) => match arguments[i].value() {
                    Some(value) => value.clone(),
                    None => unreachable!("validated plans place buffers in tensor arguments only"),
                },
                OutputSource::Output(earlier) => values[earlier].clone(),
                OutputSource::New(taken) => {
                    let size = plan.buffers[output.buffer].size_bytes;
                    let donated = taken.and_then(|argument| match &arguments[argument] {
                        Argument::Donated(value) if value.is_alone(size) => Some(value.clone()),
                        _ => None,
                    });
                    let target = reused.targets.get_mut(at).and_then(Option::take);
                    let value = match (donated, target) {
                        (_, Some(value)) => value,
                        (Some(value), None) => {
                            value.buffer().drop_prepacked();
                            value
                        }
                        (None, None) => Value::new(allocator.allocate(size)?),
                    };
                    block.addresses[output.buffer] = resolve(value.handle(), size)?;
                    value
                }
            });
        }
        if plan.facts.copies_handles {
            block.handles = handles(plan, arguments, block, &values);
        }
        Ok(values)
    }

    /// Starts a bound plan on a stream of this device; with `wait`, returns when the plan is done.
    /// The outcome is stored in `completion` in both cases.
    pub fn start(
        &self,
        stream: &Stream,
        plan: &LoadedPlan,
        block: &Arc<ArgumentBlock>,
        after: SmallVec<[Arc<Completion>; 2]>,
        completion: Arc<Completion>,
        wait: bool,
    ) -> Result<()> {
        self.count_run(plan);
        // A caller that waits only for its own run needs no control blocks.
        let idle = wait && after.is_empty();
        if let Some(outcome) = idle.then(|| stream.run_idle(plan, block)).flatten() {
            completion.finish(outcome.clone());
            return outcome;
        }
        stream.run(plan, block, after, completion, wait)
    }

    /// Drops all compiled plans.
    pub fn clear_cache(&self) {
        self.cache.clear();
        drop(self.families.take());
        drop(self.executables.take());
        self.backend.forget();
        self.generation.store(next_generation(), Ordering::Relaxed);
    }

    /// The statistics of the program cache.
    pub fn cache_stats(&self) -> CacheStats {
        let stats = self.cache.stats();
        CacheStats { hits: stats.hits + self.recalled.get(), ..stats }
    }

    /// The number of compiled graphs, which is faster to read than [`PlanExecutor::counters`].
    pub fn num_compiles(&self) -> u64 {
        self.compiles.load(Ordering::Relaxed)
    }

    /// Adds to [`Counters::compile_time`].
    pub(crate) fn count_compile_time(&self, time: Duration) {
        self.compile_ns.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        let runs = self.runs.get();
        Counters {
            compiles: self.num_compiles(),
            bindings: self.bindings.load(Ordering::Relaxed),
            runs,
            launches: runs.wrapping_add(self.other_launches.get()),
            compile_time: Duration::from_nanos(self.compile_ns.load(Ordering::Relaxed)),
        }
    }
}

/// The handle of each buffer of a run; the host's address 0 for unused buffers.
fn handles(
    plan: &ExecutionPlan,
    arguments: &[Argument],
    block: &ArgumentBlock,
    values: &Values,
) -> Vec<DeviceHandle> {
    let nowhere = DeviceHandle::physical(DeviceId::HOST, 0);
    let handle = |(at, buffer): (usize, &PlannedBuffer)| match buffer.placement {
        Placement::Argument(i) => arguments[i].value().map(Value::handle),
        Placement::Temporary(offset) => {
            block.temporaries.as_ref().map(|t| t.handle().offset(offset))
        }
        Placement::Output => {
            let position = plan.outputs.iter().position(|output| output.buffer == at);
            position.map(|position| values[position].handle())
        }
        Placement::Unused => None,
    };
    plan.buffers.iter().enumerate().map(|b| handle(b).unwrap_or(nowhere)).collect()
}
