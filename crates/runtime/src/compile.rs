//! From graph to plan: the caches are asked first, then the back end.

use crate::cache::{CachedPlan, Order};
use crate::error::panic_message;
use crate::plan::Source;
use crate::trace::{self, SpanKind};
use crate::{
    ArgumentBlock, Binary, Buffer, CompileOptions, Completion, DiskCache, Error, ExecutionPlan,
    Executor, Operation, Result, Step,
};
use girih_ir::Graph;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Executor {
    /// The key of a graph under options: all that decides what its plan is.
    pub(crate) fn key(&self, graph: &Graph, options: CompileOptions) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(graph.len() * 40 + 64);
        graph.encode(&mut encoded);
        self.key_of(graph, encoded, options)
    }

    /// The key of a graph that has been encoded, under options.
    pub(crate) fn key_of(
        &self,
        graph: &Graph,
        encoded: Vec<u8>,
        options: CompileOptions,
    ) -> Vec<u8> {
        let mut key = encoded;
        if options.user != 0 {
            // Passes of users may read any hint.
            graph.encode_hints(&mut key);
        }
        key.extend_from_slice(&options.passes.to_le_bytes());
        key.extend_from_slice(&options.fusion.to_le_bytes());
        key.extend_from_slice(&options.user.to_le_bytes());
        key.extend_from_slice(self.device.properties().target.as_bytes());
        key
    }

    /// The plan of a graph under the given options, if it is in memory: then evaluating the graph
    /// compiles nothing. Counts a hit.
    pub fn cached_plan(&self, graph: &Graph, options: CompileOptions) -> Option<CachedPlan> {
        self.use_cache.then(|| self.cache.get(&self.key(graph, options)))?
    }

    /// The plan of a graph under the given options: from the caches, or compiled and loaded.
    pub fn plan(&self, graph: &Graph, options: CompileOptions) -> Result<CachedPlan> {
        self.plan_by(graph, options, |graph| self.backend.compile(graph, options))
    }

    /// Like [`Executor::plan`], by a compiler of the caller's, which must be the back end's or do
    /// the same.
    pub fn plan_by(
        &self,
        graph: &Graph,
        options: CompileOptions,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<CachedPlan> {
        if !self.use_cache {
            self.cache.count_miss();
            return Ok(Arc::new(self.compile(graph, compile)?).into());
        }
        let key = self.key(graph, options);
        let found = self.cache.get(&key);
        found.map_or_else(|| self.plan_missing(key, graph, options, compile), Ok)
    }

    /// The plan of a graph whose key is not in memory.
    pub(crate) fn plan_missing(
        &self,
        key: Vec<u8>,
        graph: &Graph,
        options: CompileOptions,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<CachedPlan> {
        if graph.outputs().len() < 2 {
            return Ok(self.load_or_compile(key, graph, options, compile)?.into());
        }
        // The same outputs in another order are the same program. Only looked for here, so that
        // hits need not pay for it.
        let canonical = graph.canonical();
        let canonical_key = self.key(&canonical.graph, options);
        if canonical_key == key {
            return Ok(self.load_or_compile(key, graph, options, compile)?.into());
        }
        let found = self.cache.get(&canonical_key);
        if let Some(program) = found {
            let order = match &program.order {
                None => Order { arguments: canonical.arguments, outputs: canonical.outputs },
                Some(order) => order.after(&canonical),
            };
            let program = CachedPlan::new(program.plan.clone(), Some(Arc::new(order)));
            self.cache.insert(key.into_boxed_slice(), program.clone());
            return Ok(program);
        }
        // What is compiled is the graph as it is asked for; the canonical one refers to its plan.
        let plan = self.load_or_compile(key, graph, options, compile)?;
        let order = Some(Arc::new(Order::of_canonical(&canonical)));
        let program = CachedPlan::new(plan.clone(), order);
        self.cache.insert(canonical_key.into_boxed_slice(), program);
        Ok(plan.into())
    }

    /// Makes the plan of a graph that is not in memory, and keeps it there.
    fn load_or_compile(
        &self,
        key: Vec<u8>,
        graph: &Graph,
        options: CompileOptions,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<Arc<ExecutionPlan>> {
        let source = Some(Arc::new(Source { graph: graph.clone(), options }));
        let disk = self.disk.as_ref().filter(|_| options.user == 0);
        if let Some(mut plan) = disk.and_then(|disk| self.restore_from_disk(disk, &key)) {
            plan.source = source;
            let plan = Arc::new(plan);
            self.cache.count_disk_hit();
            self.cache.insert(key.into_boxed_slice(), plan.clone());
            return Ok(plan);
        }
        self.cache.count_miss();
        // Compiled outside the lock: other threads' hits do not wait. Two threads may compile the
        // same graph at once; the second insertion replaces an equal plan.
        let mut plan = self.compile(graph, compile)?;
        if let (Some(disk), Some(artifact)) = (disk, plan.artifact.take()) {
            disk.store_later(&key, artifact);
        }
        plan.source = source;
        let plan = Arc::new(plan);
        self.cache.insert(key.into_boxed_slice(), plan.clone());
        Ok(plan)
    }

    pub(crate) fn restore_from_disk(&self, disk: &DiskCache, key: &[u8]) -> Option<ExecutionPlan> {
        let bytes = disk.load(key)?;
        let start = Instant::now();
        let restored = self.guarded(|| self.backend.restore(&bytes));
        match restored {
            Ok(mut plan) => {
                plan.times.compile = start.elapsed();
                Some(plan)
            }
            // Whole as written, and yet no plan: of no use to anybody.
            Err(_) => {
                disk.remove(key);
                None
            }
        }
    }

    pub(crate) fn compile(
        &self,
        graph: &Graph,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<ExecutionPlan> {
        let plan = self.guarded(|| compile(graph))?;
        self.compiles.fetch_add(1, Ordering::Relaxed);
        Ok(plan)
    }

    /// What `make` makes; an error if it panics.
    pub(crate) fn unwinding<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(make))
            .unwrap_or_else(|panic| Err(Error::Compile(panic_message(&*panic))))
    }

    /// Checks and loads what `make` makes. A broken invariant in a pass must not take the caller's
    /// tensors with it.
    pub(crate) fn guarded(
        &self,
        make: impl FnOnce() -> Result<ExecutionPlan>,
    ) -> Result<ExecutionPlan> {
        let name = || SpanKind::Compile.name().to_string();
        trace::span(SpanKind::Compile, &*self.device, None, 0, name, || self.checked(make))
    }

    fn checked(&self, make: impl FnOnce() -> Result<ExecutionPlan>) -> Result<ExecutionPlan> {
        let mut plan = self.unwinding(make)?;
        if let Err(defects) = plan.validate() {
            return Err(Error::Compile(defects.join("; ")));
        }
        let start = Instant::now();
        self.load_all(&mut plan)?;
        plan.times.compile += start.elapsed();
        Ok(plan)
    }

    /// Loads a valid plan and those that it calls, and finds their facts.
    fn load_all(&self, plan: &mut ExecutionPlan) -> Result<()> {
        plan.callees.iter_mut().try_for_each(|callee| self.load_all(&mut callee.plan))?;
        self.load(plan)?;
        plan.facts = plan.find_facts().map_err(Error::Compile)?;
        Ok(())
    }

    /// Brings the plan's programs to the device, each binary by an operation of its own that only
    /// copies. Where one fails, those before it are freed.
    fn load(&self, plan: &mut ExecutionPlan) -> Result<()> {
        let load = |binary: &Binary| {
            let image =
                self.device.image(binary).map(|bytes| self.load_image(bytes)).transpose()?;
            self.device.load(binary, image)
        };
        plan.programs = plan.binaries.iter().map(load).collect::<Result<_>>()?;
        let scheduler = self.stream().queue().scheduler();
        plan.init_packets.iter().try_for_each(|packet| scheduler.initialize_once(packet))
    }

    fn load_image(&self, bytes: Box<[u8]>) -> Result<Arc<Buffer>> {
        let image = Arc::new(self.device.allocator().allocate(bytes.len())?);
        let copy = Operation::steps("load", [Step::CopyToDevice { source: bytes, buffer: 0 }]);
        let address = self.device.resolve(image.handle(), image.size_bytes())?;
        let block = ArgumentBlock {
            addresses: SmallVec::from_iter([address]),
            buffers: SmallVec::from_iter([image.clone()]),
            ..ArgumentBlock::default()
        };
        let loader = ExecutionPlan { operations: vec![copy], ..ExecutionPlan::default() };
        let (block, completion) = (Arc::new(block), Completion::pending());
        self.stream().run(&loader, &block, SmallVec::new(), completion, true)?;
        Ok(image)
    }
}
