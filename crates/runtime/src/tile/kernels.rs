//! Launches of a sequence of tiled programs, each on whole tensors or tile by tile, as the sizes of
//! the tensors require.

use super::{TileArgument, TileOptions, TileResult, TiledProgram};
use crate::{Argument, Completion, Error, PlanExecutor, Result, Stream};
use girih_ir::TensorSpec;
use smallvec::SmallVec;
use std::sync::Arc;

/// The source of a program's argument in a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TileSource {
    /// The launch's tensor with this index.
    Input(usize),
    /// A result of an earlier program.
    Result {
        /// The index of the program.
        program: usize,
        /// The index of the result.
        output: usize,
    },
}

/// A sequence of tiled programs, with the sources of their arguments.
pub struct KernelPlan {
    steps: Vec<(TiledProgram, Vec<TileSource>)>,
}

/// The way in which a program of a sequence was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPath {
    /// One launch: the tensors have the sizes that the program was compiled for.
    Whole,
    /// [`PlanExecutor::launch_tiled`] with that number of tiles.
    Tiled(usize),
}

/// An enqueued sequence.
pub struct KernelRun {
    /// The results of the last program, valid once the completion has an outcome.
    pub results: Vec<TileResult>,
    /// The outcome of the whole sequence.
    pub completion: Arc<Completion>,
    /// The way in which each program was launched.
    pub paths: Vec<LaunchPath>,
}

impl KernelPlan {
    /// A sequence of programs whose arguments are tensors of the launch or results of earlier
    /// programs.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for a result that does not
    /// exist, or whose dtype or rank is not the argument's.
    pub fn new(steps: Vec<(TiledProgram, Vec<TileSource>)>) -> Result<KernelPlan> {
        let plan = KernelPlan { steps };
        for (number, (program, sources)) in plan.steps.iter().enumerate() {
            let expected: Vec<TensorSpec> = program.argument_specs().cloned().collect();
            if expected.len() != sources.len() {
                return Err(Error::ArgumentCount {
                    expected: expected.len(),
                    found: sources.len(),
                });
            }
            for (index, (expected, source)) in expected.iter().zip(sources).enumerate() {
                let &TileSource::Result { program, output } = source else { continue };
                let before = plan.steps.get(program).filter(|_| program < number);
                let found = before.and_then(|(program, _)| program.result_specs().nth(output));
                let fits = found.is_some_and(|found| {
                    found.dtype == expected.dtype && found.shape.rank() == expected.shape.rank()
                });
                if !fits {
                    let found = found.map_or_else(|| format!("{source:?}"), TensorSpec::to_string);
                    let expected = expected.to_string();
                    return Err(Error::ArgumentMismatch { index, expected, found });
                }
            }
        }
        Ok(plan)
    }

    /// Checks all programs. For each program, the specs of its results and whether it is launched
    /// whole.
    fn check(
        &self,
        inputs: &[TileArgument],
        options: TileOptions,
    ) -> Result<Vec<(Vec<TensorSpec>, bool)>> {
        let mut made: Vec<(Vec<TensorSpec>, bool)> = Vec::new();
        for (program, sources) in &self.steps {
            let mut specs: Vec<&TensorSpec> = Vec::new();
            for &source in sources {
                specs.push(match source {
                    TileSource::Result { program, output } => &made[program].0[output],
                    TileSource::Input(number) => match inputs.get(number) {
                        Some(input) => input.spec(),
                        None => {
                            let (expected, found) = (number + 1, inputs.len());
                            return Err(Error::ArgumentCount { expected, found });
                        }
                    },
                });
            }
            let tiling = program.tiling(&specs, options.remainder)?;
            let whole = tiling.loops.is_empty();
            made.push((tiling.results, whole));
        }
        Ok(made)
    }
}

impl PlanExecutor {
    /// Launches a sequence of programs on tensors and returns when all of them are enqueued. A
    /// program whose tensors have the sizes that it was compiled for is launched once, as by
    /// [`Stream::run`]; any other program is launched tile by tile. Only the results of the last
    /// program go to host memory, if `options` requests it.
    ///
    /// Errors: those of [`PlanExecutor::launch_tiled`] for any of the programs. Except for errors
    /// of memory, they are returned before anything is enqueued.
    pub fn launch_kernels(
        &self,
        stream: &Stream,
        plan: &KernelPlan,
        tensors: &[TileArgument],
        options: TileOptions,
    ) -> Result<KernelRun> {
        let checked = plan.check(tensors, options)?;
        let mut made: Vec<Vec<TileResult>> = Vec::new();
        let (mut paths, mut completion) = (Vec::new(), Completion::pending());
        completion.finish(Ok(()));
        let last = plan.steps.len().saturating_sub(1);
        for (number, ((program, sources), (_, whole))) in plan.steps.iter().zip(checked).enumerate()
        {
            let given = sources.iter().map(|&source| match source {
                TileSource::Input(number) => tensors[number].clone(),
                TileSource::Result { program, output } => made[program][output].as_argument(),
            });
            let given: Vec<TileArgument> = given.collect();
            let options = TileOptions { to_host: options.to_host && number == last, ..options };
            let on_device = given.iter().all(|g| matches!(g, TileArgument::Device(..)));
            let (results, done, path) = if whole && on_device && !options.to_host {
                let (results, done) = self.launch_whole(stream, program, &given)?;
                (results, done, LaunchPath::Whole)
            } else {
                // Host tensors of the tile's size are copied as one tile.
                let run = self.launch_tiled(stream, program, &given, options)?;
                let path = if whole { LaunchPath::Whole } else { LaunchPath::Tiled(run.tiles) };
                (run.results, run.completion, path)
            };
            completion = done;
            paths.push(path);
            made.push(results);
        }
        Ok(KernelRun { results: made.pop().unwrap_or_default(), completion, paths })
    }

    /// Launches a program on tensors of the sizes that it was compiled for.
    fn launch_whole(
        &self,
        stream: &Stream,
        program: &TiledProgram,
        given: &[TileArgument],
    ) -> Result<(Vec<TileResult>, Arc<Completion>)> {
        let argument = |given: &TileArgument| match given {
            TileArgument::Device(value, spec) => Argument::Tensor(value.clone(), spec.clone()),
            TileArgument::Host(..) => unreachable!("launched whole from device memory only"),
        };
        let arguments: Vec<Argument> = given.iter().map(argument).collect();
        let control = self.control(None, false);
        let (block, values) = self.bind(program.plan(), &arguments, control)?;
        let completion = Completion::pending();
        let plan = &program.plan().plan;
        self.start(stream, plan, &block, SmallVec::new(), completion.clone(), false)?;
        let specs = program.result_specs().cloned();
        let results = values.into_iter().zip(specs).map(|(v, spec)| TileResult::Device(v, spec));
        Ok((results.collect(), completion))
    }
}

impl TileResult {
    /// The result as an argument of another launch on the same stream.
    fn as_argument(&self) -> TileArgument {
        match self {
            TileResult::Device(value, spec) => TileArgument::Device(value.clone(), spec.clone()),
            TileResult::Host(..) => unreachable!("only the last program's results go to the host"),
        }
    }
}
