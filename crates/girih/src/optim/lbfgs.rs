//! L-BFGS: quasi-Newton steps with an inverse Hessian estimated from the last gradients.

use super::Optimizer;
use super::rule::{check, computed_in};
use crate::{DType, Error, Result, Tensor, bounded_while_loop, concat, eval, where_};

/// The maximum number of halvings in a line search.
const MOST_HALVINGS: usize = 20;

/// Quasi-Newton steps, for gradients without noise: full batches, physics, curve fitting.
///
/// Each step moves by the learning rate along `-H g`, where `H` is the inverse Hessian estimated
/// from the last steps and differences of gradients. The first step is at most as long as the rate.
/// All parameters together are one vector.
///
/// Source: Nocedal and Wright 2006, algorithm 7.5, in the form of one iteration of PyTorch's
/// optimiser without a line search.
#[derive(Clone)]
pub struct Lbfgs {
    /// The step size, not negative.
    pub learning_rate: f64,
    /// No step is made if no element of the gradient is larger than this number.
    pub tolerance_grad: f64,
    /// No step is made if the slope along the direction is above the negative of this number.
    pub tolerance_change: f64,
    /// Whether to maximise instead of minimise.
    pub maximize: bool,
    /// The number of stored pairs of step and gradient difference.
    history_size: usize,
    parameters: usize,
    state: Vec<Tensor>,
}

/// A function of the parameters.
type Function<'a> = dyn Fn(&[Tensor]) -> Result<Tensor> + 'a;

/// The tensors of the state.
struct Kept {
    count: Tensor,
    /// The number of steps that moved.
    pairs: Tensor,
    steps: Tensor,
    differences: Tensor,
    curvatures: Tensor,
    scale: Tensor,
    direction: Tensor,
    rate: Tensor,
    gradient: Tensor,
}

impl Kept {
    fn of(state: &[Tensor]) -> Kept {
        let [count, pairs, steps, differences, curvatures, scale, direction, rate, gradient] =
            state
        else {
            unreachable!("init has made nine tensors")
        };
        let [count, pairs, steps] = [count, pairs, steps].map(Tensor::clone);
        let [differences, curvatures, scale] = [differences, curvatures, scale].map(Tensor::clone);
        let [direction, rate, gradient] = [direction, rate, gradient].map(Tensor::clone);
        Kept { count, pairs, steps, differences, curvatures, scale, direction, rate, gradient }
    }

    fn into_state(self) -> Vec<Tensor> {
        vec![
            self.count,
            self.pairs,
            self.steps,
            self.differences,
            self.curvatures,
            self.scale,
            self.direction,
            self.rate,
            self.gradient,
        ]
    }
}

impl Lbfgs {
    /// The optimiser with this learning rate, usually 1, and 100 stored pairs.
    pub fn new(learning_rate: f64) -> Lbfgs {
        Lbfgs {
            learning_rate,
            tolerance_grad: 1e-7,
            tolerance_change: 1e-9,
            maximize: false,
            history_size: 100,
            parameters: 0,
            state: Vec::new(),
        }
    }

    /// No step is made if no element of the gradient is larger than this number.
    #[must_use]
    pub fn tolerance_grad(self, tolerance_grad: f64) -> Lbfgs {
        Lbfgs { tolerance_grad, ..self }
    }

    /// No step is made if the slope along the direction is above the negative of this number.
    #[must_use]
    pub fn tolerance_change(self, tolerance_change: f64) -> Lbfgs {
        Lbfgs { tolerance_change, ..self }
    }

    /// The number of stored pairs of step and gradient difference. Forgets the pairs so far.
    #[must_use]
    pub fn history_size(self, history_size: usize) -> Lbfgs {
        Lbfgs { history_size, state: Vec::new(), ..self }
    }

    /// Whether to maximise instead of minimise.
    #[must_use]
    pub fn maximize(self, maximize: bool) -> Lbfgs {
        Lbfgs { maximize, ..self }
    }

    /// One step as [`Optimizer::update`], whose length is halved until the function `fun` of the
    /// parameters decreases enough (Armijo's rule), at most 20 times.
    ///
    /// Errors: as [`Optimizer::update`]; those of `fun`.
    pub fn search(
        &mut self,
        parameters: &[Tensor],
        gradients: &[Tensor],
        fun: impl Fn(&[Tensor]) -> Result<Tensor>,
    ) -> Result<Vec<Tensor>> {
        self.moved(parameters, gradients, Some(&fun))
    }

    fn checked(&self) -> Result<()> {
        let Lbfgs { learning_rate, tolerance_grad, tolerance_change, history_size, .. } = self;
        let negative = |value: &f64| value.is_nan() || *value < 0.0;
        let wrong = [
            (negative(learning_rate), "the learning rate must not be negative", learning_rate),
            (negative(tolerance_grad), "tolerance_grad must not be negative", tolerance_grad),
            (negative(tolerance_change), "tolerance_change must not be negative", tolerance_change),
            (*history_size == 0, "history_size must be at least 1", &0.0),
        ];
        match wrong.into_iter().find(|(is_wrong, ..)| *is_wrong) {
            Some((_, what, value)) => {
                Err(Error::InvalidArgument(format!("Lbfgs: {what}, got {value}")))
            }
            None => Ok(()),
        }
    }

    fn moved(
        &mut self,
        parameters: &[Tensor],
        gradients: &[Tensor],
        fun: Option<&Function<'_>>,
    ) -> Result<Vec<Tensor>> {
        self.checked()?;
        if self.state.is_empty() {
            self.init(parameters)?;
        }
        check(parameters, gradients, self.parameters)?;
        let old = Kept::of(&self.state);
        let dtype = common(parameters)?;
        let mut flat = flattened(gradients, dtype)?;
        if self.maximize {
            flat = flat.neg()?;
        }
        let first = old.pairs.eq(0)?;
        let mut new = curvature(&flat, &old, &first)?;
        new.direction = product(&flat, &new, self.history_size)?.neg()?;
        new.gradient = flat.clone();
        // The first step has no pairs, and the direction is the negative gradient.
        let shorter = (1.0 / flat.abs()?.sum_all()?).minimum(1.0)?;
        let rate = Tensor::new(self.learning_rate)?.astype(dtype)?;
        let mut length = rate.mul(&where_(&first, &shorter, 1.0)?)?;
        let slope = flat.mul(&new.direction)?.sum_all()?;
        let mut moving = slope.gt(-self.tolerance_change)?.logical_not()?;
        if flat.numel() > 0 {
            let largest = flat.abs()?.max_all()?;
            moving = moving.logical_and(&largest.gt(self.tolerance_grad)?)?;
        }
        if let Some(fun) = fun {
            let sign = if self.maximize { -1.0 } else { 1.0 };
            let value = |moved: &[Tensor]| fun(moved)?.astype(dtype)?.mul(sign);
            length = searched(parameters, &new.direction, &slope, &length, &value)?;
        }
        let step = where_(&moving, &length.mul(&new.direction)?, &flat.zeros_like()?)?;
        new.rate = length;
        let count = old.count.add(1)?;
        let kept = old.into_state().into_iter().zip(new.into_state());
        let kept = kept.map(|(old, new)| where_(&moving, &new, &old));
        let mut state = kept.collect::<Result<Vec<_>>>()?;
        state[0] = count;
        self.state = state;
        shifted(parameters, &step)
    }
}

impl Optimizer for Lbfgs {
    fn init(&mut self, parameters: &[Tensor]) -> Result<()> {
        self.checked()?;
        let (dtype, history) = (common(parameters)?, self.history_size);
        let size: usize = parameters.iter().map(Tensor::numel).sum();
        let mut state = vec![Tensor::new(0i64)?, Tensor::new(0i64)?];
        for _ in ["steps", "differences"] {
            state.push(Tensor::zeros([history, size], dtype)?);
        }
        state.push(Tensor::zeros([history], dtype)?);
        state.push(Tensor::zeros((), dtype)?);
        state.push(Tensor::zeros([size], dtype)?);
        state.push(Tensor::zeros((), dtype)?);
        state.push(Tensor::zeros([size], dtype)?);
        eval(parameters.iter().chain(&state))?;
        (self.parameters, self.state) = (parameters.len(), state);
        Ok(())
    }

    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        self.moved(parameters, gradients, None)
    }

    fn state(&self) -> &[Tensor] {
        &self.state
    }
}

/// The dtype of the vector of all parameters.
fn common(parameters: &[Tensor]) -> Result<DType> {
    let dtypes = parameters.iter().map(computed_in).collect::<Result<Vec<_>>>()?;
    let is_double = dtypes.contains(&DType::F64);
    Ok(if is_double { DType::F64 } else { DType::F32 })
}

fn flattened(tensors: &[Tensor], dtype: DType) -> Result<Tensor> {
    if tensors.is_empty() {
        return Tensor::zeros([0], dtype);
    }
    let flat = tensors.iter().map(|tensor| tensor.astype(dtype)?.reshape(-1));
    concat(&flat.collect::<Result<Vec<_>>>()?, 0)
}

/// The parameters after a step, which is one vector for all parameters.
fn shifted(parameters: &[Tensor], step: &Tensor) -> Result<Vec<Tensor>> {
    let mut at = 0;
    let shift = |p: &Tensor| {
        let (size, wide) = (p.numel(), computed_in(p)?);
        let part = step.narrow(0, at, size)?.reshape(p.shape())?.astype(wide)?;
        at += size;
        p.astype(wide)?.add(&part)?.astype(p.dtype())
    };
    parameters.iter().map(shift).collect()
}

/// The pairs, including the pair of the last step if it has positive curvature.
fn curvature(flat: &Tensor, old: &Kept, first: &Tensor) -> Result<Kept> {
    let difference = flat.sub(&old.gradient)?;
    let step = old.direction.mul(&old.rate)?;
    let along = difference.mul(&step)?.sum_all()?;
    let better = along.gt(1e-10)?.logical_and(&first.logical_not()?)?;
    let safe = where_(&better, &along, 1.0)?;
    let square = difference.mul(&difference)?.sum_all()?;
    let pushed = |old: &Tensor, value: &Tensor| {
        let rows = old.shape()[0];
        let later = old.narrow(0, 1, rows - 1)?;
        where_(&better, &concat(&[later, value.unsqueeze(0)?], 0)?, old)
    };
    let scale = where_(&better, &safe.div(&where_(&better, &square, 1.0)?)?, &old.scale)?;
    Ok(Kept {
        count: old.count.clone(),
        pairs: old.pairs.add(1)?,
        steps: pushed(&old.steps, &step)?,
        differences: pushed(&old.differences, &difference)?,
        curvatures: pushed(&old.curvatures, &(1.0 / safe))?,
        scale: where_(first, 1.0, &scale)?,
        direction: old.direction.clone(),
        rate: old.rate.clone(),
        gradient: old.gradient.clone(),
    })
}

/// The estimated inverse Hessian times the gradient (two-loop recursion); unused rows are zero.
fn product(flat: &Tensor, kept: &Kept, count: usize) -> Result<Tensor> {
    let row = |rows: &Tensor, i: usize| rows.narrow(0, i, 1)?.squeeze(0);
    let mut shares = Vec::with_capacity(count);
    let mut q = flat.clone();
    for i in (0..count).rev() {
        let along = row(&kept.steps, i)?.mul(&q)?.sum_all()?;
        let share = along.mul(&row(&kept.curvatures, i)?)?;
        q = q.sub(&share.mul(&row(&kept.differences, i)?)?)?;
        shares.push(share);
    }
    let mut r = kept.scale.mul(&q)?;
    for (i, share) in shares.iter().rev().enumerate() {
        let back = row(&kept.differences, i)?.mul(&r)?.sum_all()?;
        let back = back.mul(&row(&kept.curvatures, i)?)?;
        r = r.add(&share.sub(&back)?.mul(&row(&kept.steps, i)?)?)?;
    }
    Ok(r)
}

/// The step length, halved until the function decreases by a fraction of the slope.
fn searched(
    parameters: &[Tensor],
    direction: &Tensor,
    slope: &Tensor,
    length: &Tensor,
    value: &Function<'_>,
) -> Result<Tensor> {
    let start = value(parameters)?;
    let too_long = |length: &[Tensor]| {
        // A NaN does not count as a decrease.
        let new = value(&shifted(parameters, &length[0].mul(direction)?)?)?;
        let enough = start.add(&length[0].mul(1e-4)?.mul(slope)?)?;
        new.le(&enough)?.logical_not()
    };
    let halved = |length: &[Tensor]| Ok(vec![length[0].mul(0.5)?]);
    let found = bounded_while_loop(too_long, halved, std::slice::from_ref(length), MOST_HALVINGS)?;
    Ok(found[0].clone())
}
