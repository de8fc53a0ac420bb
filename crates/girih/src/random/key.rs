//! Keys, and draws from keys or from the process's generator: random bits, and the uniform and
//! normal numbers from which the distributions are computed.

use crate::ops::value_in;
use crate::{Error, Operand, Result, Tensor, where_};
use girih_ir::{Attrs, DType, Op, OpCode, Shape};
use std::f64::consts::TAU;

/// The first counter for keys split from a key; smaller counters are for its draws.
const SPLIT: i128 = 1 << 63;
/// The counter of the key that data is folded into.
const FOLD: i128 = (1 << 64) - 1;

/// The shape, dtype and source of random draws.
///
/// The default shape is that of the parameters, the default dtype that of the function, and the
/// default source the process's generator, which [`crate::random::manual_seed`] seeds.
#[derive(Clone, Debug, Default)]
pub struct Draws {
    shape: Option<Shape>,
    dtype: Option<DType>,
    key: Option<Tensor>,
}

impl Draws {
    /// Draws with the default shape, dtype and source.
    pub fn new() -> Draws {
        Draws::default()
    }

    /// The draws with the shape `shape`.
    #[must_use]
    pub fn shape(self, shape: impl Into<Shape>) -> Draws {
        Draws { shape: Some(shape.into()), ..self }
    }

    /// The draws with the dtype `dtype`.
    #[must_use]
    pub fn dtype(self, dtype: DType) -> Draws {
        Draws { dtype: Some(dtype), ..self }
    }

    /// The draws from the key `key`.
    #[must_use]
    pub fn key(self, key: &Tensor) -> Draws {
        Draws { key: Some(key.clone()), ..self }
    }
}

impl Draws {
    /// The draws with a shape that `f` computes from the requested shape, if there is one.
    pub(super) fn reshaped(&self, f: impl FnOnce(&Shape) -> Result<Shape>) -> Result<Draws> {
        let shape = self.shape.as_ref().map(f).transpose()?;
        Ok(Draws { shape, ..self.clone() })
    }

    /// The requested dtype, or a default.
    pub(super) fn dtype_or(&self, default: DType) -> DType {
        self.dtype.unwrap_or(default)
    }
}

/// A key from a seed: a scalar of dtype u64. A key alone determines its draws, so use each key once
/// and create new keys with [`split`] or [`fold_in`].
///
/// Errors: for an integer that does not fit 64 bits; a dtype error for a tensor that does not hold
/// integers.
#[track_caller]
pub fn key<'a>(seed: impl Into<Operand<'a>>) -> Result<Tensor> {
    word_of("key", seed.into())
}

/// `count` keys along one axis, which share no draws with each other or with the key.
///
/// Errors: for a tensor that is not a key.
#[track_caller]
pub fn split(key: &Tensor, count: usize) -> Result<Tensor> {
    let key = checked("split", key)?;
    let shape = Shape::from([count]);
    shape.check("split", DType::U64)?;
    let counters = Tensor::iota(shape, 0, DType::U64)?.add(Operand::Int(SPLIT))?;
    word(&key, &counters)
}

/// A new key from a key and an integer, such as the number of a step or layer; for a tensor of
/// integers, a tensor of keys.
///
/// Errors: for a tensor that is not a key; a dtype error for data that is not an integer.
#[track_caller]
pub fn fold_in<'a>(key: &Tensor, data: impl Into<Operand<'a>>) -> Result<Tensor> {
    let key = checked("fold_in", key)?;
    let data = word_of("fold_in", data.into())?;
    word(&word(&key, &constant(FOLD)?)?, &data)
}

/// Integers whose bits are all uniformly random, u32 by default.
///
/// Errors: a dtype error for a dtype that is not an integer dtype; for a tensor that is not a key.
#[track_caller]
pub fn bits(draws: &Draws) -> Result<Tensor> {
    let dtype = draws.dtype.unwrap_or(DType::U32);
    if !dtype.is_int() {
        let (op, expected) = ("bits", "an integer dtype");
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
    }
    let bits = Call::new("bits", draws, DType::F32, &[])?.bits(0)?;
    // Use the highest bits, since casts between integers keep the lowest.
    let unused = 64 - 8 * dtype.size() as i64;
    if unused == 0 { bits.astype(dtype) } else { bits.shift_right(unused)?.astype(dtype) }
}

fn constant(word: i128) -> Result<Tensor> {
    Operand::Int(word).constant(DType::U64)
}

/// The random bits of a key at counters.
#[track_caller]
fn word(key: &Tensor, counters: &Tensor) -> Result<Tensor> {
    Tensor::record(OpCode::Philox.into(), &[key, counters])
}

/// An integer as 64 bits, in two's complement.
#[track_caller]
fn word_of(op: &'static str, value: Operand<'_>) -> Result<Tensor> {
    let dtype = match value {
        Operand::Int(v) if v < 0 => DType::I64,
        Operand::Int(_) | Operand::Bool(_) => DType::U64,
        Operand::Tensor(t) if !t.dtype().is_inexact() => t.dtype(),
        other => {
            let dtype = match other {
                Operand::Tensor(t) => t.dtype(),
                Operand::Complex(_) => DType::C64,
                _ => DType::F32,
            };
            let expected = "an integer, or a tensor of integers";
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
    };
    value_in(value, dtype)?.astype(DType::U64)
}

/// Checks that a tensor is a key.
fn checked(op: &'static str, key: &Tensor) -> Result<Tensor> {
    if key.dtype() != DType::U64 {
        let expected = "a key: a uint64 scalar made by random.key, split or fold_in";
        return Err(girih_ir::Error::DTypeUnsupported { op, dtype: key.dtype(), expected }.into());
    }
    if key.rank() != 0 {
        let reason = "one key is expected; take one of several by its index".into();
        return Err(girih_ir::Error::InvalidShape { op, shape: key.shape(), reason }.into());
    }
    Ok(key.clone())
}

/// One call of a distribution, with resolved [`Draws`] and parameters.
#[derive(Clone)]
pub(super) struct Call {
    /// The function's name, for errors.
    pub op: &'static str,
    /// The shape of the draws.
    pub shape: Shape,
    /// The dtype of the result.
    pub dtype: DType,
    /// The compute dtype.
    pub wide: DType,
    /// The parameters, in the compute dtype.
    pub parameters: Vec<Tensor>,
    key: Option<Tensor>,
}

impl Call {
    /// A call that computes in `least` or a wider dtype; the default result dtype is the compute
    /// dtype.
    #[track_caller]
    pub fn new(
        op: &'static str,
        draws: &Draws,
        least: DType,
        parameters: &[Operand<'_>],
    ) -> Result<Call> {
        let wide = parameters.iter().try_fold(least, |dtype, p| match p {
            Operand::Tensor(t) if t.dtype().is_complex() => {
                let (dtype, expected) = (t.dtype(), "real parameters");
                Err(Error::from(girih_ir::Error::DTypeUnsupported { op, dtype, expected }))
            }
            Operand::Tensor(t) if t.dtype() == DType::F64 => Ok(DType::F64),
            _ => Ok(dtype),
        })?;
        let parameters = parameters.iter().map(|p| p.constant(wide)).collect::<Result<Vec<_>>>()?;
        let key = draws.key.as_ref().map(|key| checked(op, key)).transpose()?;
        let shape = shape(op, draws.shape.as_ref(), parameters.iter().map(Tensor::shape))?;
        shape.check(op, wide)?;
        let dtype = draws.dtype.unwrap_or(wide);
        Ok(Call { op, shape, dtype, wide, parameters, key })
    }

    /// A call with a real result, of the requested dtype or else the parameters' dtype.
    #[track_caller]
    pub fn real(op: &'static str, draws: &Draws, parameters: &[Operand<'_>]) -> Result<Call> {
        let given = parameters.iter().filter_map(|p| match p {
            Operand::Tensor(t) if t.dtype().is_float() => Some(t.dtype()),
            _ => None,
        });
        let default = given.reduce(|a, b| a.promote(b).unwrap_or(DType::F64));
        let dtype = draws.dtype.or(default).unwrap_or(DType::F32);
        if !dtype.is_float() {
            let expected = "a real floating-point dtype";
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        let mut call = Call::new(op, draws, dtype.widened(), parameters)?;
        if call.wide != dtype.widened() {
            // The parameters are wider than the requested dtype.
            call.wide = dtype.widened();
            let narrowed = call.parameters.iter().map(|p| p.astype(call.wide));
            call.parameters = narrowed.collect::<Result<_>>()?;
        }
        Ok(Call { dtype, ..call })
    }

    /// The call with draws of another shape.
    pub fn of_shape(&self, shape: Shape) -> Call {
        Call { shape, ..self.clone() }
    }

    /// The call with a result of another dtype.
    pub fn of_dtype(&self, dtype: DType) -> Call {
        Call { dtype, ..self.clone() }
    }

    /// The call with another key.
    pub fn with_key(&self, key: Tensor) -> Call {
        Call { key: Some(key), ..self.clone() }
    }

    /// The call's key, or else a key drawn from the process's generator.
    #[track_caller]
    pub fn own_key(&self) -> Result<Tensor> {
        match &self.key {
            Some(key) => Ok(key.clone()),
            None => self.of_shape(Shape::scalar()).bits(0),
        }
    }

    /// The `number`-th of the call's independent draws: 64 bits per element.
    #[track_caller]
    pub fn bits(&self, number: i64) -> Result<Tensor> {
        let Some(key) = &self.key else {
            let drawn = super::leaf(self.op, OpCode::RandomBits, self.shape.clone(), DType::I64)?;
            return drawn.astype(DType::U64);
        };
        let key = match number {
            0 => key.clone(),
            n => word(key, &constant(SPLIT + i128::from(n))?)?,
        };
        let count = Shape::of_dims([self.shape.count()]);
        let counters = Tensor::iota(count, 0, DType::U64)?;
        word(&key, &counters)?.reshape(self.shape.clone())
    }

    /// Uniform draws in `[0, 1)`, in the result's dtype: multiples of half its epsilon.
    #[track_caller]
    pub fn unit(&self, number: i64) -> Result<Tensor> {
        if self.key.is_none() {
            return super::leaf(self.op, OpCode::RandomUniform, self.shape.clone(), self.dtype);
        }
        let digits = digits(self.dtype);
        let whole = self.bits(number)?.shift_right(64 - digits)?.astype(self.dtype)?;
        whole.mul(scale(digits))
    }

    /// Uniform draws in the open interval `(0, 1)` as the nearer end (true for 1) and the distance
    /// from it, in the compute dtype. A distance has the relative precision of the dtype down to
    /// `2^-65`, so that functions of it have both tails of their distribution: multiples of an
    /// epsilon have none beyond a probability of `2^-24` in f32.
    #[track_caller]
    pub fn distance_from_end(&self, number: i64) -> Result<(Tensor, Tensor)> {
        let bits = self.bits(number)?;
        let upper = bits.shift_right(63)?.astype(DType::Bool)?;
        let rest = bits.bitwise_and(&constant((1 << 63) - 1)?)?.astype(self.wide)?;
        Ok((upper, rest.add(0.5)?.mul(scale(64))?))
    }

    /// Exponential draws with mean 1, in the compute dtype.
    #[track_caller]
    pub fn exponential(&self, number: i64) -> Result<Tensor> {
        let (upper, distance) = self.distance_from_end(number)?;
        let near_zero = distance.neg()?.log1p()?;
        where_(&upper, &near_zero, &distance.log()?)?.neg()
    }

    /// Uniform draws in the open interval `(0, 1)`, in the compute dtype: multiples of its epsilon.
    /// For tails, use [`Call::distance_from_end`].
    #[track_caller]
    pub fn open(&self, number: i64) -> Result<Tensor> {
        let digits = digits(self.wide) - 1;
        let whole = self.bits(number)?.shift_right(64 - digits)?.astype(self.wide)?;
        whole.add(0.5)?.mul(scale(digits))
    }

    /// Standard normal draws in the compute dtype, by the Box-Muller transform with two words per
    /// draw.
    #[track_caller]
    pub fn gaussian(&self, number: i64) -> Result<Tensor> {
        if self.key.is_none() {
            return super::leaf(self.op, OpCode::RandomNormal, self.shape.clone(), self.wide);
        }
        let radius = self.bits(2 * number)?.shift_right(11)?.astype(DType::F64)?;
        let radius = radius.add(0.5)?.mul(scale(53))?.astype(self.wide)?;
        let digits = digits(self.wide);
        let turn = self.bits(2 * number + 1)?.shift_right(64 - digits)?.astype(self.wide)?;
        let angle = turn.mul(scale(digits) * TAU)?.cos()?;
        radius.log()?.mul(-2.0)?.sqrt()?.mul(&angle)
    }

    /// Draws of an op of [`girih_ir::random::draws`], in f64: each element has 64 bits of the call's
    /// key as a key of its own, and makes its own attempts.
    #[track_caller]
    pub fn drawn(&self, code: OpCode, parameters: &[&Tensor]) -> Result<Tensor> {
        let bits =
            |x: &Tensor, dtype| Tensor::record(Op::new(OpCode::Bitcast, Attrs::DType(dtype)), &[x]);
        let words = self.with_key(self.own_key()?).bits(0)?;
        let mut operands = vec![words];
        for parameter in parameters {
            operands.push(bits(&parameter.astype(DType::F64)?, DType::U64)?);
        }
        let drawn = Tensor::record(code.into(), &operands.iter().collect::<Vec<_>>())?;
        bits(&drawn, DType::F64)
    }

    /// Converts a result to the result's dtype.
    #[track_caller]
    pub fn done(&self, result: &Tensor) -> Result<Tensor> {
        result.astype(self.dtype)
    }
}

/// The requested shape, to which the parameters must broadcast, or else the parameters' broadcast
/// shape.
fn shape(
    op: &'static str,
    asked: Option<&Shape>,
    parameters: impl Iterator<Item = Shape>,
) -> Result<Shape> {
    let mut common = Shape::scalar();
    for shape in parameters {
        common = common.broadcast(&shape, op)?;
    }
    match asked {
        None => Ok(common),
        Some(asked) if common.broadcasts_to(asked) => Ok(asked.clone()),
        Some(asked) => {
            let reason = "the parameters do not broadcast to the shape that is asked for".into();
            let (lhs, rhs) = (common, asked.clone());
            Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
        }
    }
}

/// The number of bits of a float's significand.
fn digits(dtype: DType) -> i64 {
    match dtype {
        DType::F64 => 53,
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    }
}

/// The number `2^-digits`.
fn scale(digits: i64) -> f64 {
    0.5f64.powi(digits as i32)
}
