//! Calls: synchronous runs of a plan that is found once and called many times. If nothing is queued
//! before the call, the plan runs on the calling thread. Such a run has its argument block on the
//! stack and needs no completion, so it allocates nothing but its results and temporaries.

use crate::executor::Reused;
use crate::{
    Argument, ArgumentBlock, CachedPlan, Completion, ExecutionPlan, PlanExecutor, Result, Stream,
    Value,
};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The results of a run.
pub type Values = SmallVec<[Value; 2]>;

/// The times of a call.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// The time to bind arguments and allocate results; included in `run`.
    pub bind: Duration,
    /// The total time.
    pub run: Duration,
    /// Name and time of each kernel, in launch order.
    pub kernels: Vec<(String, Duration)>,
}

/// The next generation number. Generations are unique in the process.
static GENERATIONS: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_generation() -> u64 {
    GENERATIONS.fetch_add(1, Relaxed)
}

impl PlanExecutor {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Whether this executor would still find the plan that it found in `generation`. If so, counts
    /// a cache hit.
    pub(crate) fn recall(&self, generation: u64) -> bool {
        let same = self.use_cache && generation == self.generation();
        if same {
            self.recalled.add(1);
        }
        same
    }

    /// Runs a plan on a stream of this device and waits for it: [`PlanExecutor::bind`] and
    /// [`PlanExecutor::start`] in one call.
    ///
    /// Errors: as `bind` and `start`, and the failure of the run.
    /// Cost: allocates the results and a block for the temporaries, and nothing else if the queue
    /// is empty.
    pub(crate) fn call(
        &self,
        stream: &Stream,
        program: &CachedPlan,
        arguments: &[Argument],
        limit: Option<Duration>,
    ) -> Result<Values> {
        let control = self.control(limit, false);
        if program.order.is_some() {
            let (block, values) = self.bind(program, arguments, control)?;
            let completion = Completion::pending();
            self.start(stream, &program.plan, &block, SmallVec::new(), completion, true)?;
            return Ok(values);
        }
        let plan = &program.plan;
        let mut block = ArgumentBlock { control, ..ArgumentBlock::default() };
        let values = self.fill(plan, arguments, &mut block, Reused::default())?;
        self.count_run(plan);
        match stream.run_idle(plan, &block) {
            Some(outcome) => outcome?,
            None => {
                // The queued run owns its memory, because the caller may stop waiting for it.
                let given = arguments.iter().filter_map(Argument::value);
                block.buffers.extend(given.chain(&values).map(|value| value.buffer().clone()));
                let completion = Completion::pending();
                stream.run(plan, &Arc::new(block), SmallVec::new(), completion, true)?;
            }
        }
        Ok(values)
    }

    /// As [`PlanExecutor::call`], with the times of binding, of the run, and of each kernel.
    pub(crate) fn call_timed(
        &self,
        stream: &Stream,
        program: &CachedPlan,
        arguments: &[Argument],
        limit: Option<Duration>,
    ) -> Result<(Values, Times)> {
        let start = Instant::now();
        let (block, values) = self.bind(program, arguments, self.control(limit, true))?;
        let bind = start.elapsed();
        self.start(stream, &program.plan, &block, SmallVec::new(), Completion::pending(), true)?;
        let times = Times { bind, run: start.elapsed(), kernels: block.control.take_times() };
        Ok((values, times))
    }

    pub(crate) fn count_run(&self, plan: &ExecutionPlan) {
        self.runs.add(1);
        let others = (plan.facts.num_launches as u64).wrapping_sub(1);
        if others != 0 {
            self.other_launches.add(others);
        }
    }
}
