//! Compilation of a graph to a plan: looks in the caches first, then calls the back end.

use crate::cache::{CachedPlan, Order};
use crate::error::panic_message;
use crate::plan::{PlannedBuffer, Source};
use crate::trace::{self, SpanKind};
use crate::{
    ArgumentBlock, Binary, Buffer, CompileOptions, CompileReport, Completion, DiskCache, Error,
    ExecutionPlan, Listing, LoadedPlan, Operation, Placement, PlanExecutor, Result, Step,
};
use girih_ir::Graph;
use smallvec::SmallVec;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Fails for a binary that may access more bytes of a buffer than the plan provides.
fn check_accessed(plan: &ExecutionPlan, number: usize, accessed: &[usize]) -> Result<()> {
    let provided = |at: usize| match plan.buffers.get(at) {
        Some(buffer) if buffer.placement != Placement::Unused => buffer.size_bytes,
        _ => 0,
    };
    match (0..accessed.len()).find(|&at| provided(at) < accessed[at]) {
        None => Ok(()),
        Some(at) => Err(Error::Compile(format!(
            "program {number} accesses {} bytes of buffer {at}, and the plan provides {}",
            accessed[at],
            provided(at)
        ))),
    }
}

impl PlanExecutor {
    /// The cache key of a graph: the encoding of everything that determines its plan.
    pub(crate) fn key(&self, graph: &Graph, options: CompileOptions) -> Vec<u8> {
        let mut encoded = Vec::with_capacity(graph.len() * 40 + 64);
        graph.encode(&mut encoded);
        self.key_of(graph, encoded, options)
    }

    /// The cache key of a graph that is already encoded.
    pub(crate) fn key_of(
        &self,
        graph: &Graph,
        encoded: Vec<u8>,
        options: CompileOptions,
    ) -> Vec<u8> {
        let mut key = encoded;
        if options.user != 0 {
            // User passes may read any hint.
            graph.encode_hints(&mut key);
        }
        key.extend_from_slice(&options.passes.to_le_bytes());
        key.extend_from_slice(&options.fusion.to_le_bytes());
        key.extend_from_slice(&options.user.to_le_bytes());
        key.extend_from_slice(self.device.properties().target.as_bytes());
        key
    }

    /// The plan of a graph under the given options, if it is in memory, so that evaluating the
    /// graph does not compile. Counts a hit.
    pub fn cached_plan(&self, graph: &Graph, options: CompileOptions) -> Option<CachedPlan> {
        self.use_cache.then(|| self.cache.get(&self.key(graph, options)))?
    }

    /// The plan of a graph under the given options: from the caches, or compiled and loaded.
    ///
    /// Errors: as [`crate::Backend::compile`]; [`Error::Compile`] for an invalid plan; those of
    /// loading it.
    pub fn plan(&self, graph: &Graph, options: CompileOptions) -> Result<CachedPlan> {
        self.plan_by(graph, options, |graph| self.backend.compile(graph, options))
    }

    /// As [`PlanExecutor::plan`], with the optimised graph and the kernels for users to read.
    ///
    /// Errors: as [`PlanExecutor::plan`].
    pub fn listed_plan(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(CachedPlan, Listing)> {
        let mut listing = None;
        let plan = self.plan_by(graph, options, |graph| {
            let (plan, text) = self.backend.compile_listed(graph, options)?;
            listing = Some(text);
            Ok(plan)
        })?;
        // The cache keeps no listing.
        let again = || {
            let compiled = self.backend.compile_listed(graph, options);
            Ok(compiled?.1)
        };
        let listing = listing.map_or_else(|| self.unwinding(again), Ok)?;
        Ok((plan, listing))
    }

    /// Compiles a graph again and reports every stage; the caches do not change. `addresses` has
    /// the host address of each argument's memory where it is known.
    ///
    /// Errors: as [`crate::Backend::explain`].
    pub fn explain(
        &self,
        graph: &Graph,
        options: CompileOptions,
        addresses: &[Option<usize>],
    ) -> Result<CompileReport> {
        self.unwinding(|| self.backend.explain(graph, options, addresses))
    }

    /// Like [`PlanExecutor::plan`], but compiles with `compile`, which must be equivalent to the
    /// back end's `compile`.
    pub(crate) fn plan_by(
        &self,
        graph: &Graph,
        options: CompileOptions,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<CachedPlan> {
        if !self.use_cache {
            self.cache.count_miss();
            return Ok(LoadedPlan::of(self.compile(graph, compile)?).into());
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
        // Requests for the same outputs in another order share a plan. Look for that plan only
        // after a miss, so that hits do not pay for computing the canonical form.
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
        // Compile the graph with the requested order of outputs; the canonical graph's entry refers
        // to that plan.
        let plan = self.load_or_compile(key, graph, options, compile)?;
        let order = Some(Arc::new(Order::of_canonical(&canonical)));
        let program = CachedPlan::new(plan.clone(), order);
        self.cache.insert(canonical_key.into_boxed_slice(), program);
        Ok(plan.into())
    }

    /// Restores a plan from disk or compiles it, and caches it in memory.
    fn load_or_compile(
        &self,
        key: Vec<u8>,
        graph: &Graph,
        options: CompileOptions,
        compile: impl FnOnce(&Graph) -> Result<ExecutionPlan>,
    ) -> Result<LoadedPlan> {
        let source = Some(Arc::new(Source { graph: graph.clone(), options }));
        let disk = self.disk.as_ref().filter(|_| options.user == 0);
        if let Some(mut plan) = disk.and_then(|disk| self.restore_from_disk(disk, &key, graph)) {
            plan.source = source;
            let plan = LoadedPlan::of(plan);
            self.cache.count_disk_hit();
            self.cache.insert(key.into_boxed_slice(), plan.clone());
            return Ok(plan);
        }
        self.cache.count_miss();
        // Compile without holding a lock, so that hits of other threads do not wait. Two threads
        // may compile the same graph at the same time; the second insertion replaces an equal plan.
        let start = Instant::now();
        let mut plan = self.compile(graph, compile)?;
        if let (Some(disk), Some(artifact)) = (disk, plan.artifact.take()) {
            disk.store_later(&key, artifact, start.elapsed());
        }
        plan.source = source;
        let plan = LoadedPlan::of(plan);
        self.cache.insert(key.into_boxed_slice(), plan.clone());
        Ok(plan)
    }

    /// The plan of a graph from its artefact on disk. The back end has verified its kernels; that it
    /// is the plan of this graph is checked here.
    pub(crate) fn restore_from_disk(
        &self,
        disk: &DiskCache,
        key: &[u8],
        graph: &Graph,
    ) -> Option<ExecutionPlan> {
        let start = Instant::now();
        let bytes = disk.load(key)?;
        self.count_compile_time(start.elapsed());
        let restored = self.guarded(|| {
            let plan = self.backend.restore(&bytes)?;
            plan.check_graph(graph)?;
            Ok(plan)
        });
        match restored {
            Ok(mut plan) => {
                plan.times.compile = start.elapsed();
                Some(plan)
            }
            // The file is intact but has no plan of this graph, so no process can use it.
            Err(_) => {
                disk.remove(key);
                None
            }
        }
    }

    /// Validates and loads a plan that was not compiled from a graph.
    ///
    /// Errors: [`Error::Compile`] with every defect of an invalid plan; those of loading it.
    pub fn load_plan(&self, plan: ExecutionPlan) -> Result<CachedPlan> {
        Ok(LoadedPlan::of(self.guarded(|| Ok(plan))?).into())
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

    /// Calls `make` and turns a panic into an error.
    pub(crate) fn unwinding<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(make))
            .unwrap_or_else(|panic| Err(Error::Compile(panic_message(&*panic))))
    }

    /// Checks and loads the plan of `make`. A panic in a pass becomes an error, so that the
    /// caller's tensors survive.
    pub(crate) fn guarded(
        &self,
        make: impl FnOnce() -> Result<ExecutionPlan>,
    ) -> Result<ExecutionPlan> {
        self.compiling(|| self.checked(make))
    }

    /// Calls `work`, a part of a compilation: records its span and counts its time.
    pub(crate) fn compiling<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let name = || SpanKind::Compile.name().to_string();
        let result = trace::span(SpanKind::Compile, &*self.device, None, name, work);
        self.count_compile_time(start.elapsed());
        result
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

    /// Loads a valid plan and its callees, and computes their facts.
    fn load_all(&self, plan: &mut ExecutionPlan) -> Result<()> {
        plan.callees.iter_mut().try_for_each(|callee| self.load_all(&mut callee.plan))?;
        self.load(plan)?;
        plan.facts = plan.find_facts().map_err(Error::Compile)?;
        Ok(())
    }

    /// Loads the plan's programs on the device. Each image is copied by an operation of its own. If
    /// a load fails, the programs loaded before are freed.
    fn load(&self, plan: &mut ExecutionPlan) -> Result<()> {
        // Binaries of one program share the list of sizes.
        let mut checked: *const [usize] = &[];
        for (number, binary) in plan.binaries.iter().enumerate() {
            let Some(accessed) = self.device.accessed_bytes(binary) else { continue };
            if !std::ptr::eq(accessed, checked) {
                check_accessed(plan, number, accessed)?;
                checked = accessed;
            }
        }
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
        let allocator = self.device.allocator();
        let block = ArgumentBlock {
            pool: allocator.pool_id(),
            addresses: SmallVec::from_iter([image.address(image.size_bytes(), &*self.device)?]),
            buffers: SmallVec::from_iter([image.clone()]),
            ..ArgumentBlock::default()
        };
        let buffer = PlannedBuffer { placement: Placement::Output, size_bytes: image.size_bytes() };
        let loader = LoadedPlan::of(ExecutionPlan {
            operations: vec![copy],
            buffers: vec![buffer],
            ..ExecutionPlan::default()
        });
        let (block, completion) = (Arc::new(block), Completion::pending());
        self.stream().run(&loader, &block, SmallVec::new(), completion, true)?;
        Ok(image)
    }
}
