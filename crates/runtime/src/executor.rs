//! The executor: from a closed graph and its arguments to values, through the program cache, the
//! device's back end, and a stream.

use crate::difference::{Lookup, nearest};
use crate::error::panic_message;
use crate::plan::Source;
use crate::{
    ArgumentBlock, ArgumentSpec, CacheStats, Completion, Device, Error, ExecutionPlan, Placement,
    ProgramCache, Result, Scheduler, Stream, Value,
};
use girih_ir::{Graph, TensorSpec};
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What compilation may do. Part of the program cache's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompileOptions {
    /// Graph passes, as the back end's pass manager encodes them; all ones means all on.
    pub passes: u32,
    /// Kinds of fusion, as the back end encodes them; all ones means all on.
    pub fusion: u32,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions { passes: u32::MAX, fusion: u32::MAX }
    }
}

/// Turns closed graphs into plans for one device.
pub trait Backend: Send + Sync {
    /// Optimises, lowers and compiles. The plan takes the graph's arguments in their order.
    ///
    /// Errors: [`Error::Compile`] or [`Error::Graph`].
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan>;
}

/// One argument of a run.
#[derive(Clone, Debug)]
pub enum Argument {
    /// Data, and its spec for checking.
    Tensor(Value, TensorSpec),
    /// Bits of a scalar of the dtype the graph says.
    Scalar(u64),
    /// A random leaf's key and offset.
    RandomKey {
        /// The generator's key.
        key: u64,
        /// Where in the generator's sequence the leaf begins.
        offset: u64,
    },
}

/// What an executor has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Plans compiled.
    pub compiles: u64,
    /// Plans run.
    pub runs: u64,
    /// Kernels launched.
    pub launches: u64,
}

/// Runs closed graphs on one device: one stream, one program cache.
pub struct Executor {
    device: Arc<dyn Device>,
    backend: Box<dyn Backend>,
    stream: Stream,
    cache: Mutex<ProgramCache>,
    options: Mutex<CompileOptions>,
    compiles: AtomicU64,
    runs: AtomicU64,
    launches: AtomicU64,
}

impl Executor {
    /// An executor for a device and the back end that compiles for it.
    pub fn new(device: Arc<dyn Device>, backend: Box<dyn Backend>) -> Executor {
        let stream = Stream::new(&Scheduler::new(device.clone()));
        Executor {
            device,
            backend,
            stream,
            cache: Mutex::new(ProgramCache::new(ProgramCache::DEFAULT_CAPACITY)),
            options: Mutex::default(),
            compiles: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            launches: AtomicU64::new(0),
        }
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The stream that plans run on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// What compilation may do from here on.
    pub fn options(&self) -> CompileOptions {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what compilation may do; cached plans of other options stay valid for those.
    pub fn set_options(&self, options: CompileOptions) {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// The plan of a graph under the given options: from the cache, or compiled and loaded.
    pub fn plan(&self, graph: &Graph, options: CompileOptions) -> Result<Arc<ExecutionPlan>> {
        let key = self.key(graph, options);
        if let Some(plan) = self.lock_cache().get(&key) {
            return Ok(plan);
        }
        // Compiled outside the lock: other threads' hits do not wait. Two threads may compile the
        // same graph at once; the second insertion replaces an equal plan.
        let compile = || self.backend.compile(graph, options);
        // A broken invariant in a pass must not take the caller's tensors with it.
        let mut plan = catch_unwind(AssertUnwindSafe(compile))
            .unwrap_or_else(|panic| Err(Error::Compile(panic_message(&*panic))))?;
        if let Err(defects) = plan.validate() {
            return Err(Error::Compile(defects.join("; ")));
        }
        let load = |binary| self.device.load(binary);
        plan.programs = plan.binaries.iter().map(load).collect::<Result<_>>()?;
        self.compiles.fetch_add(1, Ordering::Relaxed);
        plan.source = Some(Arc::new(Source { graph: graph.clone(), options }));
        let plan = Arc::new(plan);
        self.lock_cache().insert(key.into_boxed_slice(), plan.clone());
        Ok(plan)
    }

    /// What programs are found by.
    fn key(&self, graph: &Graph, options: CompileOptions) -> Vec<u8> {
        let mut key = Vec::with_capacity(graph.len() * 40 + 64);
        graph.encode(&mut key);
        key.extend_from_slice(&options.passes.to_le_bytes());
        key.extend_from_slice(&options.fusion.to_le_bytes());
        key.extend_from_slice(self.device.properties().target.as_bytes());
        key
    }

    /// Whether a graph's program is cached, and if not how it differs from the most similar one
    /// that is. Counts neither as a hit nor as a miss.
    pub fn lookup(&self, graph: &Graph, options: CompileOptions) -> Lookup {
        let key = self.key(graph, options);
        let plans = {
            let cache = self.lock_cache();
            if cache.peek(&key).is_some() {
                return Lookup::Hit;
            }
            cache.plans()
        };
        let sources: Vec<&Source> = plans.iter().filter_map(|p| p.source.as_deref()).collect();
        nearest(&sources, &Source { graph: graph.clone(), options })
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, ProgramCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks arguments against the plan, allocates results and temporaries.
    ///
    /// Errors: [`Error::ArgumentCount`], [`Error::ArgumentMismatch`], [`Error::OutOfMemory`].
    pub fn bind(
        &self,
        plan: &ExecutionPlan,
        arguments: &[Argument],
    ) -> Result<(Arc<ArgumentBlock>, SmallVec<[Value; 2]>)> {
        check_arguments(plan, arguments)?;
        let allocator = self.device.allocator();
        let mut block = ArgumentBlock::default();
        block.words.extend(arguments.iter().map(|a| match a {
            Argument::Tensor(..) => [0, 0],
            Argument::Scalar(bits) => [*bits, 0],
            Argument::RandomKey { key, offset } => [*key, *offset],
        }));
        let temporaries = match plan.temporary_bytes {
            0 => None,
            bytes => Some(Arc::new(allocator.allocate(bytes)?)),
        };
        let mut results: SmallVec<[Option<Value>; 8]> = SmallVec::new();
        for buffer in &plan.buffers {
            let mut result = None;
            let handle = match buffer.placement {
                Placement::Unused => None,
                Placement::Argument(i) => match &arguments[i] {
                    Argument::Tensor(value, _) => {
                        block.buffers.push(value.buffer.clone());
                        result = Some(value.clone());
                        Some(value.handle())
                    }
                    _ => unreachable!("validated plans place buffers in tensor arguments only"),
                },
                Placement::Temporary(at) => temporaries.as_ref().map(|t| t.handle().offset(at)),
                Placement::Output => {
                    let value = Value::new(allocator.allocate(buffer.size_bytes)?);
                    let handle = value.handle();
                    block.buffers.push(value.buffer.clone());
                    result = Some(value);
                    Some(handle)
                }
            };
            let address = match handle {
                Some(handle) => self.device.resolve(handle, buffer.size_bytes)?,
                None => 0,
            };
            block.addresses.push(address);
            results.push(result);
        }
        block.buffers.extend(temporaries);
        let outputs = plan.outputs.iter().map(|o| match &results[o.buffer] {
            Some(value) => Ok(value.clone()),
            None => Err(Error::Compile("an output was placed among the temporaries".into())),
        });
        let outputs = outputs.collect::<Result<_>>()?;
        Ok((Arc::new(block), outputs))
    }

    /// Starts a bound plan; with `wait`, returns when it is done. The outcome is in `completion`
    /// either way.
    pub fn start(
        &self,
        plan: &ExecutionPlan,
        block: &Arc<ArgumentBlock>,
        after: SmallVec<[Arc<Completion>; 2]>,
        completion: Arc<Completion>,
        wait: bool,
    ) -> Result<()> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.launches.fetch_add(plan.launches() as u64, Ordering::Relaxed);
        self.stream.run(plan, block, after, completion, wait)
    }

    /// Copies host bytes to a block of their own, through the stream.
    ///
    /// Errors: [`Error::OutOfMemory`].
    pub fn upload(&self, bytes: Box<[u8]>) -> Result<Value> {
        let value = Value::new(self.device.allocator().allocate(bytes.len())?);
        self.stream.upload(bytes, &value.buffer)?;
        Ok(value)
    }

    /// Copies the first `size` bytes of a value to the host, through the stream.
    pub fn download(&self, value: &Value, size: usize) -> Result<Box<[u8]>> {
        self.stream.download(value, size)
    }

    /// Forgets all compiled plans.
    pub fn clear_cache(&self) {
        self.lock_cache().clear();
    }

    /// Counts of the program cache.
    pub fn cache_stats(&self) -> CacheStats {
        self.lock_cache().stats()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        Counters {
            compiles: self.compiles.load(Ordering::Relaxed),
            runs: self.runs.load(Ordering::Relaxed),
            launches: self.launches.load(Ordering::Relaxed),
        }
    }
}

fn check_arguments(plan: &ExecutionPlan, arguments: &[Argument]) -> Result<()> {
    if plan.arguments.len() != arguments.len() {
        let (expected, found) = (plan.arguments.len(), arguments.len());
        return Err(Error::ArgumentCount { expected, found });
    }
    for (index, (expected, found)) in plan.arguments.iter().zip(arguments).enumerate() {
        match (expected, found) {
            (ArgumentSpec::Tensor(spec), Argument::Tensor(value, found)) => {
                let bytes = value.buffer.size_bytes().saturating_sub(value.offset);
                if spec != found || bytes < spec.size_bytes() {
                    return Err(Error::spec_mismatch(index, spec, found));
                }
            }
            (ArgumentSpec::Scalar(_), Argument::Scalar(_))
            | (ArgumentSpec::RandomKey, Argument::RandomKey { .. }) => {}
            (expected, found) => {
                let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
                return Err(Error::ArgumentMismatch { index, expected, found });
            }
        }
    }
    Ok(())
}
