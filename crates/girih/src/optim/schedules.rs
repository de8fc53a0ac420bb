//! Learning rates as functions of the step count, with the names and definitions of Python's
//! `girih.optim.schedules`.
//!
//! ```
//! use girih::optim::{Sgd, schedules};
//!
//! let schedule = schedules::warmup_cosine(0.1, 10, 100, 0.0, 0.0)?;
//! let mut optimizer = Sgd::new(0.0).momentum(0.9);
//! for step in 0..100 {
//!     optimizer.learning_rate = schedule.rate(step);
//!     // optimizer.step(&model, &loss, &gradients)?: the rate is an argument of the program.
//! }
//! # Ok::<(), girih::Error>(())
//! ```

use crate::{Error, Result};
use std::f64::consts::PI;
use std::fmt;
use std::sync::Arc;

/// A learning rate as a function of the step count, 0 at the first step.
#[derive(Clone)]
pub struct Schedule(Arc<dyn Fn(f64) -> f64 + Send + Sync>);

impl Schedule {
    /// The schedule that a function of the step count gives.
    pub fn new(rate: impl Fn(f64) -> f64 + Send + Sync + 'static) -> Schedule {
        Schedule(Arc::new(rate))
    }

    /// The rate of a step.
    pub fn rate(&self, step: u64) -> f64 {
        (self.0)(step as f64)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule").field("first", &self.rate(0)).finish_non_exhaustive()
    }
}

fn check(ok: bool, message: impl FnOnce() -> String) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::InvalidArgument(message())) }
}

fn positive(function: &str, name: &str, value: u64) -> Result<f64> {
    check(value > 0, || format!("{function}: {name} must be above 0, got {value}"))?;
    Ok(value as f64)
}

/// The completed fraction of the steps, from 0 to 1.
fn share(count: f64, steps: f64) -> f64 {
    (count / steps).clamp(0.0, 1.0)
}

/// A constant rate.
pub fn constant(value: f64) -> Schedule {
    Schedule::new(move |_| value)
}

/// Changes linearly from one rate to another, then stays constant.
///
/// Errors: `steps` is 0.
pub fn linear(init_value: f64, end_value: f64, steps: u64) -> Result<Schedule> {
    polynomial_decay(init_value, end_value, steps, 1.0)
}

/// Changes from one rate to another by a power of the remaining fraction of the steps.
///
/// Errors: `steps` is 0.
pub fn polynomial_decay(
    init_value: f64,
    end_value: f64,
    steps: u64,
    power: f64,
) -> Result<Schedule> {
    let over = positive("polynomial_decay", "steps", steps)?;
    Ok(Schedule::new(move |count| {
        end_value + (init_value - end_value) * (1.0 - share(count, over)).powf(power)
    }))
}

/// Multiplies the rate by `decay_rate` every `steps` steps, continuously; it is `end_value` at least.
///
/// Errors: `steps` is 0, or `decay_rate` is not above 0.
pub fn exponential_decay(
    init_value: f64,
    decay_rate: f64,
    steps: u64,
    end_value: f64,
) -> Result<Schedule> {
    let over = positive("exponential_decay", "steps", steps)?;
    decays("exponential_decay", decay_rate)?;
    Ok(Schedule::new(move |count| (init_value * decay_rate.powf(count / over)).max(end_value)))
}

/// Multiplies the rate by `decay_rate` after each `steps` steps.
///
/// Errors: `steps` is 0, or `decay_rate` is not above 0.
pub fn step_decay(init_value: f64, decay_rate: f64, steps: u64) -> Result<Schedule> {
    let over = positive("step_decay", "steps", steps)?;
    decays("step_decay", decay_rate)?;
    Ok(Schedule::new(move |count| (init_value * decay_rate.powf((count / over).floor())).max(0.0)))
}

fn decays(function: &str, decay_rate: f64) -> Result<()> {
    let message = || format!("{function}: decay_rate must be above 0, got {decay_rate}");
    check(decay_rate > 0.0, message)
}

/// Multiplies the rate by a factor at each of the given steps.
pub fn piecewise_constant(
    init_value: f64,
    scales: impl IntoIterator<Item = (u64, f64)>,
) -> Schedule {
    let mut scales: Vec<(u64, f64)> = scales.into_iter().collect();
    scales.sort_by_key(|&(step, _)| step);
    Schedule::new(move |count| {
        let passed = scales.iter().filter(|&&(step, _)| count >= step as f64);
        passed.fold(init_value, |value, (_, factor)| value * factor)
    })
}

/// Changes from one rate to another along half a cosine wave: Loshchilov and Hutter 2017.
///
/// Errors: `steps` is 0.
pub fn cosine_decay(init_value: f64, steps: u64, end_value: f64) -> Result<Schedule> {
    let over = positive("cosine_decay", "steps", steps)?;
    let span = init_value - end_value;
    Ok(Schedule::new(move |count| end_value + 0.5 * span * (1.0 + (PI * share(count, over)).cos())))
}

/// Cosine decay with restarts; each cycle is `factor` times as long as the previous one.
///
/// Errors: `steps` is 0, or `factor` is below 1.
pub fn cosine_restarts(
    init_value: f64,
    steps: u64,
    factor: f64,
    end_value: f64,
) -> Result<Schedule> {
    let over = positive("cosine_restarts", "steps", steps)?;
    let message = || format!("cosine_restarts: factor must be at least 1, got {factor}");
    check(factor >= 1.0, message)?;
    Ok(Schedule::new(move |count| {
        let passed = count / over;
        let within = if factor == 1.0 {
            passed - passed.floor()
        } else {
            // Cycle k begins at (factor^k - 1) / (factor - 1) lengths of the first cycle. The
            // logarithm of an exact beginning may be just below an integer.
            let cycle = (passed * (factor - 1.0)).ln_1p() / factor.ln();
            let power = factor.powf((cycle + 1e-9).floor());
            (passed - (power - 1.0) / (factor - 1.0)) / power
        };
        end_value + 0.5 * (init_value - end_value) * (1.0 + (PI * within).cos())
    }))
}

/// Linear warm-up to the peak, then cosine decay. `steps` includes the warm-up.
///
/// Errors: `steps` is not above `warmup_steps`.
pub fn warmup_cosine(
    peak_value: f64,
    warmup_steps: u64,
    steps: u64,
    init_value: f64,
    end_value: f64,
) -> Result<Schedule> {
    check(warmup_steps < steps, || {
        format!("warmup_cosine: needs warmup_steps < steps, got {warmup_steps} and {steps}")
    })?;
    let down = cosine_decay(peak_value, steps - warmup_steps, end_value)?;
    if warmup_steps == 0 {
        return Ok(down);
    }
    join([linear(init_value, peak_value, warmup_steps)?, down], [warmup_steps])
}

/// One cycle of cosine increase, for the fraction `pct_start` of the steps, and decrease: Smith and
/// Topin 2018, in PyTorch's form. The initial rate is the peak divided by `div_factor`, the final
/// rate the initial one divided by `final_div_factor`; PyTorch's defaults are 0.3, 25 and 1e4.
///
/// Errors: `pct_start` leaves no step for the increase or the decrease.
pub fn one_cycle(
    peak_value: f64,
    steps: u64,
    pct_start: f64,
    div_factor: f64,
    final_div_factor: f64,
) -> Result<Schedule> {
    let total = positive("one_cycle", "steps", steps)?;
    let top = pct_start * total - 1.0;
    check(top > 0.0 && top < total - 1.0, || {
        format!(
            "one_cycle: of {steps} steps, pct_start={pct_start} leaves none on one side of the peak"
        )
    })?;
    let first = peak_value / div_factor;
    let last = first / final_div_factor;
    Ok(Schedule::new(move |at| {
        if at <= top {
            return peak_value + 0.5 * (first - peak_value) * (1.0 + (PI * share(at, top)).cos());
        }
        let down = ((at - top) / (total - 1.0 - top)).clamp(0.0, 1.0);
        last + 0.5 * (peak_value - last) * (1.0 + (PI * down).cos())
    }))
}

/// Linear warm-up, then decay by the inverse square root of the steps: Vaswani et al. 2017.
///
/// Errors: `warmup_steps` is 0.
pub fn inverse_sqrt(peak_value: f64, warmup_steps: u64) -> Result<Schedule> {
    let over = positive("inverse_sqrt", "warmup_steps", warmup_steps)?;
    Ok(Schedule::new(move |count| {
        let steps = count + 1.0;
        peak_value * (steps / over).min((over / steps).sqrt())
    }))
}

/// A sequence of schedules; each counts steps from its own beginning. `boundaries` are the steps at
/// which the second and the following schedules begin, ascending.
///
/// Errors: there is not one boundary less than there are schedules, or the boundaries do not ascend.
pub fn join(
    schedules: impl IntoIterator<Item = Schedule>,
    boundaries: impl IntoIterator<Item = u64>,
) -> Result<Schedule> {
    let schedules: Vec<Schedule> = schedules.into_iter().collect();
    let boundaries: Vec<u64> = boundaries.into_iter().collect();
    let (parts, starts) = (schedules.len(), boundaries.len());
    check(parts == starts + 1, || {
        format!("join: {parts} schedules have {} boundaries, got {starts}", parts.saturating_sub(1))
    })?;
    check(boundaries.is_sorted_by(|a, b| a < b), || {
        format!("join: boundaries must ascend, got {boundaries:?}")
    })?;
    Ok(Schedule::new(move |at| {
        let part = boundaries.partition_point(|&start| at >= start as f64);
        let start = part.checked_sub(1).map_or(0, |before| boundaries[before]);
        (schedules[part].0)(at - start as f64)
    }))
}
