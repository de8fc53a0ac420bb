//! Programs for many sizes: the passes run once on a graph with symbolic sizes, and the result is
//! *bound* to the sizes of each call. Binding replaces symbols by numbers, lowers the graph to
//! kernels and places buffers; it runs no pass. The bound plan is cached like any compiled plan.

use crate::cache::CachedPlan;
use crate::{CompileOptions, LoadedPlan, PlanExecutor, Result};
use girih_ir::Graph;
use girih_ir::dim::{Guard, Guards, Sizes};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// A graph after the passes, ready to be lowered.
pub struct OptimizedGraph {
    /// The graph.
    pub graph: Graph,
    /// The indices of the original graph's arguments that the graph still has, ascending.
    pub live_arguments: Vec<usize>,
}

/// How far a program is compiled for given sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanState {
    /// There is a plan for these sizes.
    Exact,
    /// The passes have run on the symbolic graph; kernels are lowered for these sizes.
    Symbolic,
    /// Nothing is known in memory: the program is compiled, or restored from disk.
    New,
}

/// A graph with symbolic sizes.
pub struct SymbolicGraph {
    graph: Graph,
    encoded: Vec<u8>,
}

impl SymbolicGraph {
    /// Wraps a graph with any sizes.
    pub fn new(graph: Graph) -> SymbolicGraph {
        let mut encoded = Vec::with_capacity(graph.len() * 40);
        graph.encode(&mut encoded);
        SymbolicGraph { graph, encoded }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }
}

/// The graph with symbols replaced by sizes; the graph itself if it has no symbols.
fn at<'a>(graph: &'a Graph, sizes: &Sizes) -> Result<Cow<'a, Graph>> {
    Ok(match graph.is_symbolic() {
        true => Cow::Owned(graph.bind(sizes)?),
        false => Cow::Borrowed(graph),
    })
}

/// The result of the passes on a symbolic graph, with the guards on sizes under which it is valid.
pub(crate) struct Executable {
    optimized: OptimizedGraph,
    guards: Vec<Guard>,
    /// The time of the passes.
    pass_time: Duration,
}

/// Executables by the key of their graph.
pub(crate) type Executables = FxHashMap<Box<[u8]>, Arc<Executable>>;

/// The maximum number of executables; the table is cleared when it is full.
const MAX_EXECUTABLES: usize = 256;

impl PlanExecutor {
    /// The plan of a symbolic graph at some sizes: from memory or disk, or from binding the result
    /// of the passes, or compiled. The sizes must satisfy every guard of the trace of the graph.
    ///
    /// Counts a compilation when the passes run, and a binding when their result is bound. If the
    /// sizes violate a guard of the passes, the graph is bound before the passes and compiled for
    /// these sizes alone.
    ///
    /// Errors: as [`crate::Backend::compile`]; [`crate::Error::Graph`] for sizes too large.
    pub fn plan_at(
        &self,
        program: &SymbolicGraph,
        sizes: &Sizes,
        options: CompileOptions,
    ) -> Result<CachedPlan> {
        let (key, exact) = self.keys_at(program, sizes, options);
        if self.use_cache
            && let Some(plan) = self.cache.get(&exact)
        {
            return Ok(plan);
        }
        let arguments = at(&program.graph, sizes)?;
        // The key on disk is the key of the graph at these sizes, so it does not depend on the
        // traced sizes.
        let disk = self.disk.as_ref().filter(|_| options.user == 0);
        let disk = disk.map(|disk| (disk, self.key(&arguments, options)));
        let stored =
            disk.as_ref().and_then(|(disk, key)| self.restore_from_disk(disk, key, &arguments));
        if let Some(plan) = stored {
            let plan = CachedPlan::from(LoadedPlan::of(plan));
            self.cache.count_disk_hit();
            self.cache.insert(exact.into_boxed_slice(), plan.clone());
            return Ok(plan);
        }
        let executable = self.executable(key, program, options)?;
        if !executable.guards.iter().all(|guard| guard.holds(sizes)) {
            return self.plan(&arguments, options);
        }
        let bound = at(&executable.optimized.graph, sizes)?;
        let live = &executable.optimized.live_arguments;
        let start = Instant::now();
        let mut plan = self.guarded(|| self.backend.lower(&arguments, &bound, live, options))?;
        self.bindings.fetch_add(1, Ordering::Relaxed);
        if let (Some((disk, key)), Some(artifact)) = (disk, plan.artifact.take()) {
            // Another process would have to run the passes, too.
            disk.store_later(&key, artifact, executable.pass_time + start.elapsed());
        }
        let plan = CachedPlan::from(LoadedPlan::of(plan));
        if self.use_cache {
            self.cache.insert(exact.into_boxed_slice(), plan.clone());
        }
        Ok(plan)
    }

    /// The keys of a symbolic graph: of its executable, and of its plan at these sizes.
    #[inline]
    fn keys_at(
        &self,
        program: &SymbolicGraph,
        sizes: &Sizes,
        options: CompileOptions,
    ) -> (Vec<u8>, Vec<u8>) {
        let key = self.key_of(&program.graph, program.encoded.clone(), options);
        let mut exact = key.clone();
        sizes.iter().for_each(|(_, size)| exact.extend_from_slice(&(*size as u64).to_le_bytes()));
        (key, exact)
    }

    /// How much [`PlanExecutor::plan_at`] would have to compile. The caches do not change.
    pub fn plan_state(
        &self,
        program: &SymbolicGraph,
        sizes: &Sizes,
        options: CompileOptions,
    ) -> PlanState {
        let (key, exact) = self.keys_at(program, sizes, options);
        if self.use_cache && self.cache.contains(&exact) {
            return PlanState::Exact;
        }
        let known = self.executables.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |known: &Arc<Executable>| known.guards.iter().all(|guard| guard.holds(sizes));
        match known.get(&*key).filter(|known| holds(known)) {
            Some(_) if !sizes.is_empty() => PlanState::Symbolic,
            _ => PlanState::New,
        }
    }

    /// The result of the passes on the graph, from memory or computed.
    fn executable(
        &self,
        key: Vec<u8>,
        program: &SymbolicGraph,
        options: CompileOptions,
    ) -> Result<Arc<Executable>> {
        let lock = || self.executables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&*key) {
            return Ok(found.clone());
        }
        self.cache.count_miss();
        let guards = Guards::new();
        let entered = guards.enter();
        let optimize = || self.unwinding(|| self.backend.optimize(&program.graph, options));
        let start = Instant::now();
        let optimized = self.compiling(optimize)?;
        let pass_time = start.elapsed();
        drop(entered);
        self.compiles.fetch_add(1, Ordering::Relaxed);
        let executable = Arc::new(Executable { optimized, guards: guards.collected(), pass_time });
        if self.use_cache {
            let mut executables = lock();
            let full = executables.len() >= MAX_EXECUTABLES;
            let old = full.then(|| std::mem::take(&mut *executables));
            let replaced = executables.insert(key.into_boxed_slice(), executable.clone());
            drop(executables);
            // Drop the graphs without the lock, because they may own objects of users.
            drop((old, replaced));
        }
        Ok(executable)
    }
}
