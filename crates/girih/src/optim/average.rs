//! Averages of parameters over training steps.

use super::rule::computed_in;
use crate::nn::Module;
use crate::{DType, Error, Result, Tensor, eval, where_};

/// An exponential moving average of parameters, which often generalises better than the last
/// parameters: `average = decay average + (1 - decay) parameters`. The first update copies the
/// parameters. Averages of half-precision parameters are stored in f32.
///
/// ```
/// use girih::Tensor;
/// use girih::optim::Ema;
///
/// let mut ema = Ema::new(0.5)?;
/// for value in [0.0f32, 1.0] {
///     ema.update(&[Tensor::new([value])?])?;
/// }
/// assert_eq!(ema.averages()[0].to_vec::<f32>()?, [0.5]);
/// # Ok::<(), girih::Error>(())
/// ```
#[derive(Clone)]
pub struct Ema {
    decay: f64,
    warmup: bool,
    /// The count of updates, and the averages; nothing before the first update.
    state: Vec<Tensor>,
}

impl Ema {
    /// An average of which each update keeps the fraction `decay`.
    ///
    /// Errors: [`Error::InvalidArgument`] if `decay` is not in `[0, 1]`.
    pub fn new(decay: f64) -> Result<Ema> {
        if !(0.0..=1.0).contains(&decay) {
            let message = format!("Ema: decay must be in [0, 1], got {decay}");
            return Err(Error::InvalidArgument(message));
        }
        Ok(Ema { decay, warmup: false, state: Vec::new() })
    }

    /// The decay of update `n` (from 0) is at most `(1 + n) / (10 + n)`, so that early parameters
    /// have little weight.
    #[must_use]
    pub fn warmup(self) -> Ema {
        Ema { warmup: true, ..self }
    }

    /// Adds parameters to the average, and evaluates both.
    ///
    /// Errors: [`Error::InvalidArgument`] unless there are as many parameters as before, of their
    /// shapes; a dtype error for a parameter that is not of floats; those of evaluation.
    pub fn update(&mut self, parameters: &[Tensor]) -> Result<()> {
        if self.state.is_empty() {
            self.state.push(Tensor::new(0i64)?);
            for p in parameters {
                self.state.push(Tensor::zeros(p.shape(), computed_in(p)?)?);
            }
        }
        self.check(parameters)?;
        let count = self.state[0].astype(DType::F64)?;
        let is_first = count.eq(0)?;
        let mut decay = count.mul(0.0)?.add(self.decay)?;
        if self.warmup {
            decay = decay.minimum(&count.add(1.0)?.div(&count.add(10.0)?)?)?;
        }
        let share = 1.0 - where_(&is_first, 0.0, &decay)?;
        let mut state = vec![self.state[0].add(1)?];
        for (average, p) in self.averages().iter().zip(parameters) {
            let (p, share) = (p.astype(average.dtype())?, share.astype(average.dtype())?);
            let moved = average.add(&p.sub(average)?.mul(&share)?)?;
            // The first update copies the bits, because a difference and a sum may round.
            state.push(where_(&is_first, &p, &moved)?);
        }
        eval(parameters.iter().chain(&state))?;
        self.state = state;
        Ok(())
    }

    /// The averages, in the order of the parameters; none before the first update.
    pub fn averages(&self) -> &[Tensor] {
        self.state.get(1..).unwrap_or_default()
    }

    /// Calls `f` while the model has the averages as its parameters.
    ///
    /// Errors: [`Error::InvalidArgument`] if nothing of this model is averaged yet; those of `f`.
    pub fn applied<T>(&self, model: &dyn Module, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let own = model.parameters();
        if self.state.is_empty() {
            let message = "Ema: nothing of this model is averaged yet; call update".into();
            return Err(Error::InvalidArgument(message));
        }
        self.check(&own)?;
        let averages = self.averages().iter().zip(&own).map(|(a, p)| a.astype(p.dtype()));
        model.set_parameters(&averages.collect::<Result<Vec<_>>>()?)?;
        let result = f();
        model.set_parameters(&own)?;
        result
    }

    fn check(&self, parameters: &[Tensor]) -> Result<()> {
        let shapes = |tensors: &[Tensor]| tensors.iter().map(Tensor::shape).collect::<Vec<_>>();
        let (known, found) = (shapes(self.averages()), shapes(parameters));
        if known == found {
            return Ok(());
        }
        let message = format!("Ema: the average is of parameters {known:?}, got {found:?}");
        Err(Error::InvalidArgument(message))
    }
}
