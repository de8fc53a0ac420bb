//! The common part of optimisers: the loop over parameters, their state, and numbers that differ
//! from step to step.

use super::Optimizer;
use crate::{Error, Result, Tensor, eval, where_};
use girih_ir::DType;

/// The state of an optimiser: the number of steps, numbers that belong to no parameter, and the
/// slots of all parameters, slot by slot.
#[derive(Clone, Default)]
pub struct State {
    /// The number of parameters, once there is state for them.
    parameters: Option<usize>,
    /// How many of the tensors belong to no parameter; they are the first ones.
    fixed: usize,
    tensors: Vec<Tensor>,
}

impl State {
    /// A slot of all parameters, in their order; nothing before the first step.
    pub(super) fn slot(&self, slot: usize) -> &[Tensor] {
        let known = self.parameters.unwrap_or(0);
        let first = self.fixed + slot * known;
        self.tensors.get(first..first + known).unwrap_or_default()
    }
}

/// Numbers of one step that all parameters share, f64 tensors of rank 0.
pub type Scalars = Vec<Tensor>;

/// How an optimiser moves one parameter. Each rule is an [`Optimizer`].
pub trait Rule {
    /// The optimiser's state.
    fn kept(&self) -> &State;

    /// The optimiser's state.
    fn kept_mut(&mut self) -> &mut State;

    /// The step size, and whether to maximise instead of minimise.
    fn direction(&self) -> (f64, bool);

    /// The name of the optimiser, and the setting that is out of range with the range, if there is
    /// one.
    fn invalid(&self) -> (&'static str, Option<String>);

    /// The number of tensors that the rule keeps per parameter.
    fn slots(&self) -> usize;

    /// The value of a slot of a parameter before the first step; `dtype` is that of the computation.
    ///
    /// Errors: those of recording it.
    fn initial(&self, slot: usize, parameter: &Tensor, dtype: DType) -> Result<Tensor> {
        let _ = slot;
        Tensor::zeros(parameter.shape(), dtype)
    }

    /// Numbers that belong to no parameter, before the first step.
    ///
    /// Errors: those of recording them.
    fn globals(&self) -> Result<Vec<Tensor>> {
        Ok(Vec::new())
    }

    /// The numbers of a step after `count` steps with the learning rate `rate`, and the new globals.
    /// All are f64: in f32, `1 - 0.999` has only 3 digits.
    ///
    /// Errors: those of recording them.
    fn scalars(
        &self,
        count: &Tensor,
        rate: &Tensor,
        globals: &[Tensor],
    ) -> Result<(Scalars, Vec<Tensor>)>;

    /// The new parameter and its new slots. `scalars` are in the dtype of the parameter, in which
    /// the gradient and the slots are too.
    ///
    /// Errors: those of recording them.
    fn moved(
        &self,
        parameter: &Tensor,
        gradient: &Tensor,
        slots: &[&Tensor],
        scalars: &[Tensor],
    ) -> Result<Vec<Tensor>>;
}

/// The dtype in which a parameter is updated: half floats in f32.
pub(super) fn computed_in(parameter: &Tensor) -> Result<DType> {
    match parameter.dtype() {
        DType::F16 | DType::BF16 => Ok(DType::F32),
        dtype @ (DType::F32 | DType::F64) => Ok(dtype),
        dtype => {
            let (op, expected) = ("optim", "a float dtype, since parameters are trained");
            Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into())
        }
    }
}

/// Fails unless there is one gradient per parameter, of its shape.
pub(super) fn check(parameters: &[Tensor], gradients: &[Tensor], known: usize) -> Result<()> {
    let (p, g) = (parameters.len(), gradients.len());
    if p != g || p != known {
        return Err(Error::InvalidArgument(format!(
            "the optimizer was made for {known} parameters (see init), got {p} and {g} gradients"
        )));
    }
    for (i, (p, g)) in parameters.iter().zip(gradients).enumerate() {
        if p.shape() != g.shape() {
            return Err(Error::InvalidArgument(format!(
                "parameter {i} has shape {}, its gradient {}",
                p.shape(),
                g.shape()
            )));
        }
    }
    Ok(())
}

/// The numbers of a step by dtype, each cast once.
struct Cast {
    double: Scalars,
    single: Option<Scalars>,
}

impl Cast {
    fn of(&mut self, dtype: DType) -> Result<&[Tensor]> {
        if dtype == DType::F64 {
            return Ok(&self.double);
        }
        if self.single.is_none() {
            let single = self.double.iter().map(|scalar| scalar.astype(dtype));
            self.single = Some(single.collect::<Result<_>>()?);
        }
        Ok(self.single.as_deref().unwrap_or_default())
    }
}

impl<R: Rule> Optimizer for R {
    fn init(&mut self, parameters: &[Tensor]) -> Result<()> {
        let mut tensors = vec![Tensor::new(0i64)?];
        tensors.extend(self.globals()?);
        let fixed = tensors.len();
        for slot in 0..self.slots() {
            for parameter in parameters {
                tensors.push(self.initial(slot, parameter, computed_in(parameter)?)?);
            }
        }
        eval(parameters.iter().chain(&tensors))?;
        *self.kept_mut() = State { parameters: Some(parameters.len()), fixed, tensors };
        Ok(())
    }

    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        let (rate, maximize) = self.direction();
        let (name, invalid) = self.invalid();
        let invalid = invalid.or((rate.is_nan() || rate < 0.0)
            .then(|| format!("the learning rate must not be negative, got {rate}")));
        if let Some(what) = invalid {
            return Err(Error::InvalidArgument(format!("{name}: {what}")));
        }
        let known = self.kept().parameters.unwrap_or(parameters.len());
        check(parameters, gradients, known)?;
        let slots = self.slots();
        let State { fixed, tensors, .. } = self.kept();
        if tensors.is_empty() || tensors.len() != fixed + slots * known {
            // The first step, or a setting such as the momentum has changed what is kept.
            self.init(parameters)?;
        }
        let State { fixed, tensors, .. } = self.kept();
        let (fixed, columns) = tensors.split_at(*fixed);
        let (count, rate) = (fixed[0].astype(DType::F64)?, Tensor::new(rate)?);
        let (scalars, globals) = self.scalars(&count, &rate, &fixed[1..])?;
        let mut scalars = Cast { double: scalars, single: None };
        let (mut updated, mut rows) = (Vec::with_capacity(known), Vec::with_capacity(known));
        for (i, (parameter, gradient)) in parameters.iter().zip(gradients).enumerate() {
            let dtype = computed_in(parameter)?;
            let mut gradient = gradient.astype(dtype)?;
            if maximize {
                gradient = gradient.neg()?;
            }
            let kept: Vec<&Tensor> = (0..slots).map(|slot| &columns[slot * known + i]).collect();
            let wide = parameter.astype(dtype)?;
            let mut new = self.moved(&wide, &gradient, &kept, scalars.of(dtype)?)?;
            updated.push(new.remove(0).astype(parameter.dtype())?);
            rows.push(new);
        }
        let mut tensors = vec![fixed[0].add(1)?];
        tensors.extend(globals);
        for slot in 0..slots {
            tensors.extend(rows.iter().map(|row| row[slot].clone()));
        }
        self.kept_mut().tensors = tensors;
        Ok(updated)
    }

    fn state(&self) -> &[Tensor] {
        &self.kept().tensors
    }
}

/// An optimiser's struct: its settings with their defaults, a method to set each, and what
/// [`Rule`] asks for that follows from them.
macro_rules! optimizer {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $ty:ty = $default:expr,)*
        }
        $($ok:expr => $what:literal,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            /// The step size, not negative.
            pub learning_rate: f64,
            $($(#[$field_doc])* pub $field: $ty,)*
            /// Whether to maximise instead of minimise.
            pub maximize: bool,
            state: $crate::optim::State,
        }

        impl $name {
            /// The optimiser with this learning rate and the defaults of the other settings.
            pub fn new(learning_rate: f64) -> $name {
                let state = $crate::optim::State::default();
                $name { learning_rate, $($field: $default,)* maximize: false, state }
            }

            $($(#[$field_doc])*
            #[must_use]
            pub fn $field(self, $field: $ty) -> $name {
                $name { $field, ..self }
            })*

            /// Whether to maximise instead of minimise.
            #[must_use]
            pub fn maximize(self, maximize: bool) -> $name {
                $name { maximize, ..self }
            }

            fn setting_out_of_range(&self) -> Option<String> {
                let $name { $($field,)* .. } = self;
                $(let in_range: bool = $ok;
                if !in_range {
                    return Some(format!($what));
                })*
                let _ = ($($field,)*);
                None
            }
        }
    };
}

/// The methods of [`Rule`] that are alike for all optimisers.
macro_rules! kept {
    ($name:ident) => {
        fn kept(&self) -> &State {
            &self.state
        }

        fn kept_mut(&mut self) -> &mut State {
            &mut self.state
        }

        fn direction(&self) -> (f64, bool) {
            (self.learning_rate, self.maximize)
        }

        fn invalid(&self) -> (&'static str, Option<String>) {
            (stringify!($name), self.setting_out_of_range())
        }
    };
}

pub(super) use {kept, optimizer};

/// Whether a decay is in `[0, 1)`.
pub(super) fn is_decay(value: f64) -> bool {
    (0.0..1.0).contains(&value)
}

/// The gradient with weight decay.
pub(super) fn decayed(p: &Tensor, g: &Tensor, weight_decay: f64) -> Result<Tensor> {
    match weight_decay {
        0.0 => Ok(g.clone()),
        decay => g.add(&p.mul(decay)?),
    }
}

/// `decay * mean + (1 - decay) * value`.
pub(super) fn mean(decay: f64, mean: &Tensor, value: &Tensor) -> Result<Tensor> {
    mean.mul(decay)?.add(&value.mul(1.0 - decay)?)
}

/// `numerator / (root + eps)`, and zero where the denominator is zero: without `eps`, an element
/// that has had no gradient so far would become NaN.
pub(super) fn ratio(numerator: &Tensor, root: &Tensor, eps: f64) -> Result<Tensor> {
    if eps > 0.0 {
        return numerator.div(&root.add(eps)?);
    }
    let at_rest = root.eq(0.0)?;
    where_(&at_rest, 0.0, &numerator.div(&where_(&at_rest, 1.0, root)?)?)
}
