//! Distributions of real numbers. Location-scale distributions transform parameterless draws, so
//! that gradients flow to their parameters. Distributions by rejection sampling are differentiated
//! implicitly: M. Figurnov, S. Mohamed and A. Mnih, "Implicit Reparameterization Gradients", 2018.

use super::key::{Call, Draws, fold_in};
use crate::ops::value_in;
use crate::{Operand, Result, Tensor, custom_jvp, where_};
use girih_ir::{DType, OpCode, Shape};
use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

/// Uniform draws in `[low, high)`, also if `high - low` overflows; `low` if both are equal.
/// Gradients flow to the bounds.
///
/// Errors: a dtype error for a dtype that is not floating-point or a tensor that is not a key; a
/// shape error for parameters that do not broadcast to the shape. This holds for all functions of
/// this module.
#[track_caller]
pub fn uniform<'a>(
    draws: &Draws,
    low: impl Into<Operand<'a>>,
    high: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let (low, high) = (low.into(), high.into());
    let call = Call::real("uniform", draws, &[low, high])?;
    let unit = call.unit(0)?;
    if let (Operand::Float(0.0), Operand::Float(1.0)) = (low, high) {
        return Ok(unit);
    }
    let [low, high] = call.parameters.as_slice() else { unreachable!("two parameters") };
    // A range whose width overflows is halved, which is exact.
    let half = |x: &Tensor| x.mul(0.5);
    let wide = high.sub(low)?.isinf()?;
    let (least, most) = (where_(&wide, &half(low)?, low)?, where_(&wide, &half(high)?, high)?);
    let scaled = unit.astype(call.wide)?.mul(&most.sub(&least)?)?.add(&least)?;
    let drawn = call.done(&where_(&wide, &scaled.mul(2.0)?, &scaled)?)?;
    // Rounding may give the upper bound, whose neighbour is then the draw.
    let (low, high) = (low.astype(call.dtype)?, high.astype(call.dtype)?);
    let rounded = drawn.ge(&high)?.bitwise_and(&low.lt(&high)?)?;
    let excess = drawn.sub(&high.nextafter(&low)?)?.stop_gradient()?;
    drawn.sub(&where_(&rounded, &excess, 0.0)?)
}

/// Draws from a location-scale distribution, whose standard draws `standard` computes.
#[track_caller]
fn shifted(
    op: &'static str,
    draws: &Draws,
    [loc, scale]: [Operand<'_>; 2],
    standard: impl FnOnce(&Call) -> Result<Tensor>,
) -> Result<Tensor> {
    let call = Call::real(op, draws, &[loc, scale])?;
    let plain = |o: Operand<'_>, value: f64| matches!(o, Operand::Float(v) if v == value);
    let mut drawn = standard(&call)?;
    if !plain(scale, 1.0) {
        drawn = drawn.mul(&call.parameters[1])?;
    }
    if !plain(loc, 0.0) {
        drawn = drawn.add(&call.parameters[0])?;
    }
    call.done(&drawn)
}

macro_rules! of_location_and_scale {
    ($($(#[doc = $doc:literal])+ $name:ident $op:literal $call:ident => $standard:expr;)*) => {
        $($(#[doc = $doc])+
        #[track_caller]
        pub fn $name<'a>(
            draws: &Draws,
            loc: impl Into<Operand<'a>>,
            scale: impl Into<Operand<'a>>,
        ) -> Result<Tensor> {
            shifted($op, draws, [loc.into(), scale.into()], |$call| $standard)
        })*
    };
}

of_location_and_scale! {
    /// Draws from the Laplace distribution, `exp(-|x - loc| / scale) / (2 scale)`. Gradients flow
    /// to the parameters.
    laplace "laplace" call => {
        let (upper, distance) = call.distance_from_end(0)?;
        let below = distance.mul(2.0)?.log()?;
        where_(&upper, &below.neg()?, &below)
    };

    /// Draws from the Gumbel distribution (extreme value distribution of type I): the negative
    /// logarithm of exponential draws. Gradients flow to the parameters.
    gumbel "gumbel" call => call.exponential(0)?.log()?.neg();

    /// Draws from the logistic distribution. Gradients flow to the parameters.
    logistic "logistic" call => {
        let (upper, distance) = call.distance_from_end(0)?;
        let below = distance.log()?.sub(&distance.neg()?.log1p()?)?;
        where_(&upper, &below.neg()?, &below)
    };

    /// Draws from the Cauchy distribution, which has no mean. Gradients flow to the parameters.
    cauchy "cauchy" call => {
        let (upper, distance) = call.distance_from_end(0)?;
        let above = distance.mul(PI)?.tan()?.reciprocal()?;
        where_(&upper, &above, &above.neg()?)
    };
}

/// Normal draws with mean `loc` and standard deviation `scale`. Gradients flow to both. Of a complex
/// dtype, real and imaginary part are independent and each has half the variance.
///
/// Errors: as [`uniform`], but the dtype may be complex, and so may `loc`.
#[track_caller]
pub fn normal<'a>(
    draws: &Draws,
    loc: impl Into<Operand<'a>>,
    scale: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let (loc, scale) = (loc.into(), scale.into());
    let dtype = draws.dtype_or(match loc {
        Operand::Tensor(loc) => loc.dtype(),
        Operand::Complex(_) => DType::C64,
        _ => DType::F32,
    });
    if !dtype.is_complex() {
        return shifted("normal", draws, [loc, scale], |call| call.gaussian(0));
    }
    // The parts are draws along a last axis, for a shape to which the parameters broadcast.
    let loc = value_in(loc, dtype)?;
    let place = loc.real()?;
    let of_parts = draws.clone().dtype(dtype.real());
    let call = Call::real("normal", &of_parts, &[Operand::Tensor(&place), scale])?;
    let shape = Shape::of_dims(call.shape.dims().chain([2.into()]));
    let parts = call.of_shape(shape).gaussian(0)?.mul(FRAC_1_SQRT_2)?;
    let part = |at: usize| parts.narrow(-1, at, 1)?.squeeze(-1);
    let drawn = part(0)?.complex(&part(1)?)?.mul(&call.parameters[1])?.astype(dtype)?;
    drawn.add(&loc)
}

/// Exponential draws with mean `scale`. Gradients flow to `scale`.
#[track_caller]
pub fn exponential<'a>(draws: &Draws, scale: impl Into<Operand<'a>>) -> Result<Tensor> {
    shifted("exponential", draws, [0.0.into(), scale.into()], |call| call.exponential(0))
}

/// Normal draws truncated to `lower..upper` (in units of the result), where `loc` and `scale` are
/// the mean and standard deviation before truncation. The draws use the inverse of the distribution
/// function, and the bounds may be arbitrarily far from the mean. Gradients flow to the parameters.
#[track_caller]
pub fn truncated_normal<'a>(
    draws: &Draws,
    lower: impl Into<Operand<'a>>,
    upper: impl Into<Operand<'a>>,
    loc: impl Into<Operand<'a>>,
    scale: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let parameters = [lower.into(), upper.into(), loc.into(), scale.into()];
    let mut call = Call::real("truncated_normal", draws, &parameters)?;
    // Compute in f64: far from the mean the error function is close to -1 or 1.
    call.wide = DType::F64;
    let wide = call.parameters.iter().map(|p| p.astype(DType::F64));
    let wide = wide.collect::<Result<Vec<_>>>()?;
    let [lower, upper, loc, scale] = wide.as_slice() else { unreachable!("four parameters") };
    let standard = |x: &Tensor| x.sub(loc)?.div(scale);
    let (low, high) = (standard(lower)?, standard(upper)?);
    let (above, below) = (low.gt(FAR)?, high.lt(-FAR)?);
    let outside = above.bitwise_or(&below)?;
    let uniform = call.open(0)?;
    let share = |x: &Tensor, other: f64| where_(&outside, other, x)?.mul(FRAC_1_SQRT_2)?.erf();
    let (least, most) = (share(&low, -1.0)?, share(&high, 1.0)?);
    let between = uniform.mul(&most.sub(&least)?)?.add(&least)?;
    let central = between.erfinv()?.mul(SQRT_2)?.mul(scale)?.add(loc)?;
    // Beyond FAR deviations, compute the distance of a draw from the bound that is nearer to the
    // mean.
    let near = where_(&above, &low, &high.neg()?)?;
    let far = where_(&above, &high, &low.neg()?)?;
    let near = where_(&outside, &near, FAR)?;
    let width = where_(&outside, &far.sub(&near)?.minimum(40.0)?, 1.0)?;
    let distance = tail_distance(&uniform, &near, &width)?.mul(scale)?;
    let tail = where_(&above, &lower.add(&distance)?, &upper.sub(&distance)?)?;
    let drawn = where_(&outside, &tail, &central)?;
    call.done(&drawn.clip(lower, upper)?)
}

/// The number of deviations from which the tail of a normal distribution is computed by its
/// logarithm.
const FAR: f64 = 5.0;

/// The distances from `near` of standard normal draws within `near..near + width`, for `near` of at
/// least [`FAR`]. Newton's method on the logarithm of the tail's mass, starting from the solution
/// for the density `z exp(-z^2 / 2)`, which differs by at most `1 / near^2`.
#[track_caller]
fn tail_distance(uniform: &Tensor, near: &Tensor, width: &Tensor) -> Result<Tensor> {
    let start = mills_ratio(near)?;
    // The logarithm of the ratio of the tail's mass beyond a distance to the mass beyond `near`.
    let mass = |distance: &Tensor, ratio: &Tensor| {
        let exponent = distance.mul(&distance.mul(0.5)?.add(near)?)?;
        ratio.div(&start)?.log()?.sub(&exponent)
    };
    let rest = mass(width, &mills_ratio(&near.add(width)?)?)?.expm1()?;
    let wanted = uniform.mul(&rest)?.log1p()?;
    let root = near.mul(near)?.sub(&wanted.mul(2.0)?)?.sqrt()?;
    let mut distance = wanted.mul(-2.0)?.div(&near.add(&root)?)?;
    for _ in 0..3 {
        let ratio = mills_ratio(&near.add(&distance)?)?;
        let error = mass(&distance, &ratio)?.sub(&wanted)?;
        distance = distance.add(&error.mul(&ratio)?)?.maximum(0.0)?;
    }
    Ok(distance)
}

/// The Mills ratio for `x` of at least [`FAR`]: the mass of the standard normal distribution beyond
/// `x` divided by its density at `x`. Laplace's continued fraction.
#[track_caller]
fn mills_ratio(x: &Tensor) -> Result<Tensor> {
    let mut fraction = x.clone();
    for numerator in (1..=12).rev() {
        fraction = fraction.reciprocal()?.mul(numerator as f64)?.add(x)?;
    }
    fraction.reciprocal()
}

/// Gamma draws of shape `a` and scale `scale`; NaN unless `a` is positive. Gradients flow to both.
#[track_caller]
pub fn gamma<'a>(
    draws: &Draws,
    a: impl Into<Operand<'a>>,
    scale: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let call = Call::real("gamma", draws, &[a.into(), scale.into()])?;
    let a = &call.parameters[0];
    // The logarithm, of the same draws, is computed only for the slope.
    let call = call.with_key(call.own_key()?);
    let draws = |code| call.drawn(code, &[&a.stop_gradient()?])?.astype(call.wide);
    let (standard, log) = (draws(OpCode::GammaDraw)?, draws(OpCode::LogGammaDraw)?);
    let slope = |a: &Tensor, drawn: &Tensor, log: &Tensor| {
        log_gamma_slope(a, log)?.astype(drawn.dtype())?.mul(drawn)
    };
    let standard = moving_with(a, &standard, &log, slope)?;
    call.done(&standard.mul(&call.parameters[1])?)
}

/// Logarithms of gamma draws, which do not underflow for small shapes.
#[track_caller]
fn log_gamma(call: &Call, a: &Tensor) -> Result<Tensor> {
    let log = call.drawn(OpCode::LogGammaDraw, &[&a.stop_gradient()?])?.astype(call.wide)?;
    let slope =
        |a: &Tensor, drawn: &Tensor, log: &Tensor| log_gamma_slope(a, log)?.astype(drawn.dtype());
    moving_with(a, &log, &log, slope)
}

/// The draws, with the derivative `slope(a, drawn, log)` by the shape `a`. The slope is computed
/// only where a derivative is taken.
#[track_caller]
fn moving_with(
    a: &Tensor,
    draws: &Tensor,
    log: &Tensor,
    slope: impl Fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
) -> Result<Tensor> {
    let a = a.broadcast_to(draws.shape())?;
    let rule = move |x: &[Tensor], t: &[Tensor]| {
        let [a, drawn, log] = x else { unreachable!("three operands") };
        let tangent = slope(a, drawn, log)?.mul(&t[0])?.add(&t[1])?;
        Ok((vec![drawn.clone()], vec![tangent]))
    };
    let drawn = |x: &[Tensor]| Ok(vec![x[1].clone()]);
    Ok(custom_jvp(drawn, rule, &[a, draws.clone(), log.clone()])?.swap_remove(0))
}

/// The derivative by `a` of the logarithm of a gamma draw whose place in the distribution stays:
/// `-dF/da / (z p(z))` for the distribution function `F` and the density `p`, in f64. For draws that
/// are nearly 0, `F(z)` is `z^a / Gamma(a + 1)`.
#[track_caller]
fn log_gamma_slope(a: &Tensor, log: &Tensor) -> Result<Tensor> {
    const TINY: f64 = -20.0;
    let (a, log) = (a.astype(DType::F64)?, log.astype(DType::F64)?);
    let tiny = log.lt(TINY)?;
    let safe = where_(&tiny, 0.0, &log)?;
    let z = safe.exp()?;
    let density = a.mul(&safe)?.sub(&z)?.sub(&a.lgamma()?)?.exp()?;
    let slope = a.igamma_grad_a(&z)?.neg()?.div(&density)?;
    let near_zero = a.add(1.0)?.digamma()?.sub(&log)?.div(&a)?;
    where_(&tiny, &near_zero, &slope)
}

/// Beta draws; NaN unless both parameters are positive. Gradients flow to both.
#[track_caller]
pub fn beta<'a>(
    draws: &Draws,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'a>>,
) -> Result<Tensor> {
    let call = Call::real("beta", draws, &[a.into(), b.into()])?;
    let key = call.own_key()?;
    let of = |number: i64, parameter: &Tensor| {
        log_gamma(&call.with_key(fold_in(&key, number)?), parameter)
    };
    let (x, y) = (of(0, &call.parameters[0])?, of(1, &call.parameters[1])?);
    call.done(&x.sub(&y)?.sigmoid()?)
}

/// Dirichlet draws: positive vectors that sum to one, along the last axis of `alpha`. The requested
/// shape is that of the other axes. Gradients flow to `alpha`.
///
/// Errors: a shape error for an `alpha` of rank 0.
#[track_caller]
pub fn dirichlet(draws: &Draws, alpha: &Tensor) -> Result<Tensor> {
    let op = "dirichlet";
    let call = batched(op, draws, alpha)?;
    let logs = log_gamma(&call, &call.parameters[0])?;
    call.done(&logs.softmax(-1)?)
}

/// A call of real draws with an additional last axis, that of the parameter.
#[track_caller]
fn batched(op: &'static str, draws: &Draws, parameter: &Tensor) -> Result<Call> {
    let shape = parameter.shape();
    let Some(last) = shape.dims().next_back() else {
        let reason = "at least one axis is expected".into();
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    };
    let draws = draws.reshaped(|outer| Ok(Shape::of_dims(outer.dims().chain([last]))))?;
    Call::real(op, &draws, &[Operand::Tensor(parameter)])
}
