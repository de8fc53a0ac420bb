//! Random tensors. The generator hands each leaf its place in a counter-based sequence when it is
//! recorded: the same seed gives the same numbers in recording order, whatever is evaluated first,
//! and a leaf evaluated twice gives the same numbers.

use crate::node::State;
use crate::{Error, Result, Tensor};
use girih_ir::{DType, OpCode, Shape, TensorSpec};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

struct Generator {
    key: u64,
    offset: u64,
}

static GENERATOR: Mutex<Option<Generator>> = Mutex::new(None);

/// Starts the generator anew: what is recorded from here on is the same for the same seed. A
/// process that does not call this starts from a seed of the operating system's.
pub fn manual_seed(seed: u64) {
    let generator = Generator { key: seed, offset: 0 };
    *GENERATOR.lock().unwrap_or_else(PoisonError::into_inner) = Some(generator);
}

pub(crate) fn leaf(op: &'static str, code: OpCode, shape: Shape, dtype: DType) -> Result<Tensor> {
    shape.check(op, dtype)?;
    // A function traced for many sizes draws anew whenever its program runs.
    let (key, offset) = place(code, dtype, shape.hints().iter().product());
    Ok(Tensor::with_state(code.into(), &TensorSpec { shape, dtype }, State::Random { key, offset }))
}

/// The place in the sequence where the next draws begin.
pub(crate) fn position() -> (u64, u64) {
    place(OpCode::RandomBits, DType::I64, 0)
}

/// The place in the sequence of the next draws, so many.
pub(crate) fn place(code: OpCode, dtype: DType, count: usize) -> (u64, u64) {
    let blocks = girih_kernel::philox::blocks(code, dtype, count);
    let mut generator = GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
    let generator = generator
        .get_or_insert_with(|| Generator { key: RandomState::new().hash_one(0), offset: 0 });
    let (key, offset) = (generator.key, generator.offset);
    generator.offset = offset.wrapping_add(blocks);
    (key, offset)
}

fn floating(op: &'static str, dtype: DType) -> Result<()> {
    let expected = "a floating-point dtype";
    match dtype.is_float() {
        true => Ok(()),
        false => Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into()),
    }
}

impl Tensor {
    /// Uniform draws in `[0, 1)`.
    pub fn rand(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        floating("rand", dtype)?;
        leaf("rand", OpCode::RandomUniform, shape.into(), dtype)
    }

    /// Standard normal draws.
    pub fn randn(shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        floating("randn", dtype)?;
        leaf("randn", OpCode::RandomNormal, shape.into(), dtype)
    }

    /// Uniform integers in `[low, high)`. The bias of reducing 64 random bits is below
    /// `(high - low) / 2^63`.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `low < high` and both fit the integer dtype.
    #[track_caller]
    pub fn randint(low: i64, high: i64, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        let Some((min, max)) = dtype.int_range().filter(|_| dtype.is_int()) else {
            let expected = "an integer dtype";
            return Err(girih_ir::Error::DTypeUnsupported { op: "randint", dtype, expected }.into());
        };
        if low >= high || i128::from(low) < min || i128::from(high) - 1 > max {
            return Err(Error::InvalidArgument(format!(
                "randint: no {dtype} lies in [{low}, {high}); low must be less than high and both \
                 must fit the dtype"
            )));
        }
        let Some(span) = high.checked_sub(low) else {
            return Err(Error::InvalidArgument(format!(
                "randint: [{low}, {high}) holds more than 2^63 integers; draw a narrower range"
            )));
        };
        let bits = leaf("randint", OpCode::RandomBits, shape.into(), DType::I64)?;
        bits.remainder(span)?.add(low)?.astype(dtype)
    }

    /// A random permutation of `0..n`, as i64, drawn when this is called.
    pub fn randperm(n: usize) -> Result<Tensor> {
        let bits: Vec<i64> =
            leaf("randperm", OpCode::RandomBits, Shape::from([n]), DType::I64)?.to_vec()?;
        let mut order: Vec<i64> = (0..n as i64).collect();
        // Ties between 64-bit draws are broken by position; they do not occur in practice.
        order.sort_by_key(|&i| bits[i as usize]);
        Tensor::from_slice(&order, [n])
    }
}
