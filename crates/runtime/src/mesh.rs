//! Programs of meshes: the stages of a partitioned graph, each with a plan per processor, and the
//! exchanges between them.
//!
//! A program runs on the lanes of its mesh, one per processor. By default the calling thread runs the
//! plans in the mesh's order: the devices of one host share its processors, so that plans side by side
//! would only take turns on them. In the other modes a thread per lane runs them at once.

mod exchange;

pub use exchange::Exchanged;

use crate::{
    Argument, CachedPlan, CompileOptions, Completion, PlanExecutor, Result, RunControl, Stream,
    Value, Values,
};
use girih_dist::partition::{Partition, Source, Stage, ValueId};
use girih_ir::TensorSpec;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A processor of a mesh: the executor of its device, and the stream on which its plans run.
#[derive(Clone)]
pub struct Lane {
    /// The executor.
    pub executor: Arc<PlanExecutor>,
    /// The stream.
    pub stream: Arc<Stream>,
}

impl Lane {
    /// Runs a plan and waits for its results.
    fn run(
        &self,
        program: &CachedPlan,
        arguments: &[Argument],
        control: RunControl,
    ) -> Result<Values> {
        let (block, values) = self.executor.bind(program, arguments, control)?;
        let (after, done) = (SmallVec::new(), Completion::pending());
        self.executor.start(&self.stream, &program.plan, &block, after, done, true)?;
        Ok(values)
    }

    /// Whether a plan that the other lane's executor compiled also runs on this lane.
    fn shares_plans(&self, other: &Lane) -> bool {
        let (own, other) = (self.executor.device(), other.executor.device());
        let (own, other) = (own.properties(), other.properties());
        own.host_memory && other.host_memory && own.target == other.target
    }

    fn control(&self, limit: Option<Duration>) -> RunControl {
        self.executor.control(limit, false)
    }
}

/// In which order the lanes of a mesh run. The results have the same bits in each mode, since values are
/// combined in the order of the processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeshMode {
    /// One after the other, in the mesh's order.
    #[default]
    Sequential,
    /// All at once, with a thread for each.
    Concurrent,
    /// All at once, each after a random delay, to test programs. The delays follow from the seed.
    Chaos(u64),
}

/// The longest delay of [`MeshMode::Chaos`], in microseconds.
const LONGEST_DELAY: u64 = 200;

/// How a mesh program runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeshRun {
    /// The order of the lanes.
    pub mode: MeshMode,
    /// The time limit of each plan.
    pub limit: Option<Duration>,
}

impl MeshRun {
    /// The results of `f` for each lane's position; the first error if one fails, after all have ended.
    fn each<T: Send>(&self, lanes: usize, f: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
        let seed = match self.mode {
            MeshMode::Sequential => return (0..lanes).map(f).collect(),
            MeshMode::Concurrent => None,
            MeshMode::Chaos(seed) => Some(seed),
        };
        let run = |at: usize| {
            if let Some(seed) = seed {
                // Any odd constant spreads the seeds of neighbouring lanes.
                let word = (seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                std::thread::sleep(Duration::from_micros(word % LONGEST_DELAY));
            }
            f(at)
        };
        let ended = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..lanes).map(|at| scope.spawn(move || run(at))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        let outcome = |ended: std::thread::Result<Result<T>>| {
            ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        ended.into_iter().map(outcome).collect()
    }
}

/// An argument of a mesh program.
#[derive(Clone, Debug)]
pub enum MeshArgument {
    /// The part of each processor.
    Parts(Arc<[Value]>),
    /// A value of that many bytes on one device, which every processor gets whole.
    Whole(Value, usize),
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

/// A partitioned graph, compiled for the lanes of its mesh.
pub struct MeshProgram {
    stages: Vec<CompiledStage>,
    outputs: Vec<ValueId>,
    /// The partition.
    partition: Partition,
}

struct CompiledStage {
    /// The plan of each lane.
    plans: Vec<CachedPlan>,
    /// The exchange of each exchanged value.
    exchanges: Vec<Exchanged>,
    /// Values that nobody reads after the plans of this stage, and after its exchanges.
    dead: [Vec<ValueId>; 2],
}

/// The parts of the values that are alive, by processor.
type Parts = FxHashMap<ValueId, Arc<[Value]>>;

impl MeshProgram {
    /// Compiles the programs of a partition, for these lanes in the mesh's order. Equal programs for
    /// equal targets are compiled once.
    ///
    /// Errors: as [`PlanExecutor::plan`].
    ///
    /// Panics if the number of lanes is not that of the partition's processors.
    pub fn compile(
        partition: Partition,
        lanes: &[Lane],
        options: CompileOptions,
    ) -> Result<MeshProgram> {
        let outputs: Vec<ValueId> = partition.outputs.iter().map(|(value, _)| *value).collect();
        let mut specs: FxHashMap<ValueId, Vec<TensorSpec>> = FxHashMap::default();
        let mut stages = Vec::with_capacity(partition.stages.len());
        for (at, stage) in partition.stages.iter().enumerate() {
            assert_eq!(stage.programs.len(), lanes.len(), "a lane for each processor");
            let plans = plans(stage, lanes, options)?;
            for (i, &value) in stage.results.iter().enumerate() {
                let spec = |graph: &Arc<girih_ir::Graph>| graph.spec(graph.outputs()[i]).clone();
                specs.insert(value, stage.programs.iter().map(spec).collect());
            }
            let mut exchanges = Vec::with_capacity(stage.exchanges.len());
            for exchange in &stage.exchanges {
                let steps = exchange.lower()?;
                let made =
                    Exchanged::compile(&steps, &specs[&exchange.from], (lanes, lanes), options)?;
                specs.insert(exchange.to, made.specs().to_vec());
                exchanges.push(made);
            }
            stages.push(CompiledStage { plans, exchanges, dead: dead(&partition, &outputs, at) });
        }
        Ok(MeshProgram { stages, outputs, partition })
    }

    /// The partition that the program computes.
    pub fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Runs the program on the lanes that it was compiled for, and waits for its results: the parts of
    /// each output.
    ///
    /// Errors: those of binding and running a plan; [`crate::Error::OutOfMemory`].
    pub fn run(
        &self,
        lanes: &[Lane],
        arguments: &[MeshArgument],
        run: MeshRun,
    ) -> Result<Vec<Arc<[Value]>>> {
        let arguments = everywhere(lanes, arguments)?;
        let mut parts = Parts::default();
        for (stage, compiled) in self.partition.stages.iter().zip(&self.stages) {
            let results = compiled.run(stage, lanes, &arguments, &mut parts, run)?;
            for (i, &value) in stage.results.iter().enumerate() {
                parts.insert(value, results.iter().map(|of| of[i].clone()).collect());
            }
            drop(results);
            for (exchange, compiled) in stage.exchanges.iter().zip(&compiled.exchanges) {
                let moved = compiled.run(&parts[&exchange.from], lanes, lanes, run)?;
                parts.insert(exchange.to, moved);
            }
            compiled.dead[1].iter().for_each(|value| drop(parts.remove(value)));
        }
        Ok(self.outputs.iter().map(|value| parts[value].clone()).collect())
    }
}

impl CompiledStage {
    /// Runs the plans; returns the results of each lane.
    fn run(
        &self,
        stage: &Stage,
        lanes: &[Lane],
        arguments: &[Vec<Argument>],
        parts: &mut Parts,
        run: MeshRun,
    ) -> Result<Vec<Values>> {
        let given: Vec<Option<Arc<[Value]>>> = stage
            .arguments
            .iter()
            .map(|source| match source {
                Source::Argument(_) => None,
                Source::Value(value) => parts.get(value).cloned(),
            })
            .collect();
        self.dead[0].iter().for_each(|value| drop(parts.remove(value)));
        run.each(lanes.len(), |at| {
            let argument = |(source, given): (&Source, &Option<Arc<[Value]>>)| match (source, given)
            {
                (_, Some(parts)) => Argument::Checked(parts[at].clone()),
                (Source::Argument(i), None) => arguments[*i][at].clone(),
                (Source::Value(_), None) => unreachable!("a value is made before it is read"),
            };
            let arguments: SmallVec<[Argument; 8]> =
                stage.arguments.iter().zip(&given).map(argument).collect();
            lanes[at].run(&self.plans[at], &arguments, lanes[at].control(run.limit))
        })
    }
}

fn plans(stage: &Stage, lanes: &[Lane], options: CompileOptions) -> Result<Vec<CachedPlan>> {
    let mut plans: Vec<CachedPlan> = Vec::with_capacity(lanes.len());
    for (at, (graph, lane)) in stage.programs.iter().zip(lanes).enumerate() {
        let same = |&other: &usize| {
            Arc::ptr_eq(&stage.programs[other], graph) && lane.shares_plans(&lanes[other])
        };
        let plan = match (0..at).find(same) {
            Some(other) => plans[other].clone(),
            None => lane.executor.plan(graph, options)?,
        };
        plans.push(plan);
    }
    Ok(plans)
}

/// The values that are read for the last time by the plans of a stage, and those by its exchanges.
fn dead(partition: &Partition, outputs: &[ValueId], at: usize) -> [Vec<ValueId>; 2] {
    let read_later = |value: ValueId| {
        let later = &partition.stages[at + 1..];
        outputs.contains(&value)
            || later.iter().any(|stage| {
                stage.arguments.contains(&Source::Value(value))
                    || stage.exchanges.iter().any(|exchange| exchange.from == value)
            })
    };
    let stage = &partition.stages[at];
    let exchanged = |value: ValueId| stage.exchanges.iter().any(|e| e.from == value);
    let read = stage.arguments.iter().filter_map(|source| match source {
        Source::Value(value) => Some(*value),
        Source::Argument(_) => None,
    });
    let by_plans = read.filter(|&value| !read_later(value) && !exchanged(value)).collect();
    let made = stage.results.iter().copied().chain(stage.exchanges.iter().map(|e| e.from));
    [by_plans, made.filter(|&value| !read_later(value)).collect()]
}

/// The arguments of each lane: `[argument][lane]`.
fn everywhere(lanes: &[Lane], arguments: &[MeshArgument]) -> Result<Vec<Vec<Argument>>> {
    let of = |argument: &MeshArgument| -> Result<Vec<Argument>> {
        Ok(match argument {
            MeshArgument::Parts(parts) => parts.iter().cloned().map(Argument::Checked).collect(),
            MeshArgument::Scalar(bits) => vec![Argument::Scalar(*bits); lanes.len()],
            &MeshArgument::RandomKey { key, offset } => {
                vec![Argument::RandomKey { key, offset }; lanes.len()]
            }
            MeshArgument::Whole(value, size) => {
                let at = |lane: &Lane| exchange::fetched(value, *size, lanes, lane);
                let values = lanes.iter().map(at).collect::<Result<Vec<_>>>()?;
                values.into_iter().map(Argument::Checked).collect()
            }
        })
    };
    arguments.iter().map(of).collect()
}
