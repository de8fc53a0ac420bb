//! Random tensors.
//!
//! The process's generator assigns to each leaf a position in a counter-based sequence when the
//! leaf is recorded. The same seed therefore gives the same numbers in recording order, whatever
//! the order of evaluation, and evaluating a leaf twice gives the same numbers. A key ([`key`],
//! [`split`], [`fold_in`]) is a tensor that alone determines its draws, so that it may be an
//! argument of compiled functions and of loops.
//!
//! ```
//! use girih::random::{self, Draws};
//!
//! let keys = random::split(&random::key(7)?, 2)?;
//! let key = keys.index(&[girih::Index::At(0)])?;
//! let x = random::normal(&Draws::new().shape([1000]).key(&key), 5.0, 2.0)?;
//! assert!((x.mean_all()?.item::<f32>()? - 5.0).abs() < 0.3);
//! # Ok::<(), girih::Error>(())
//! ```

mod continuous;
mod discrete;
mod key;
mod order;

pub use continuous::{
    beta, cauchy, dirichlet, exponential, gamma, gumbel, laplace, logistic, normal,
    truncated_normal, uniform,
};
pub(crate) use discrete::events;
pub use discrete::{bernoulli, binomial, categorical, multinomial, poisson, rademacher};
pub use key::{Draws, bits, fold_in, key, split};
pub use order::{
    Replacement, choice, permutation, permuted, permuted_lines, randint, randint_between,
};

use crate::{Result, Tensor};
use girih_ir::{DType, OpCode, Shape, TensorSpec};
use girih_record::{State, trace};
use girih_sync::Mutex;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::sync::PoisonError;

struct Generator {
    key: u64,
    offset: u64,
}

static GENERATOR: Mutex<Option<Generator>> = Mutex::new(None);

/// Restarts the generator: draws recorded from now on are the same for the same seed. A process
/// that does not call this function starts from a seed of the operating system.
pub fn manual_seed(seed: u64) {
    let generator = Generator { key: seed, offset: 0 };
    *GENERATOR.lock().unwrap_or_else(PoisonError::into_inner) = Some(generator);
    trace::seeded();
}

pub(crate) fn leaf(op: &'static str, code: OpCode, shape: Shape, dtype: DType) -> Result<Tensor> {
    shape.check(op, dtype)?;
    let (key, offset) = next(code, dtype, &shape);
    Ok(Tensor::with_state(code.into(), &TensorSpec { shape, dtype }, State::Random { key, offset }))
}

/// The position of the next draws in the sequence.
pub(crate) fn position() -> (u64, u64) {
    trace::position().unwrap_or_else(|| take(0))
}

thread_local! {
    /// The blocks that the draws of [`looking_ahead`] have passed by.
    static PASSED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `f`, whose draws have the positions of the next draws and do not use them up.
pub(crate) fn looking_ahead<T>(f: impl FnOnce() -> T) -> T {
    struct Back(Option<u64>);
    impl Drop for Back {
        fn drop(&mut self) {
            PASSED.set(self.0);
        }
    }
    let _back = Back(PASSED.replace(Some(0)));
    f()
}

/// Takes the position of the next draws, in the sequence or relative to the function being traced.
pub(crate) fn next(code: OpCode, dtype: DType, shape: &Shape) -> (u64, u64) {
    trace::draw(code, dtype, shape)
        .unwrap_or_else(|| take(blocks(code, dtype, shape.hints().iter().product())))
}

/// The number of blocks of the sequence that `count` draws consume.
pub(crate) fn blocks(code: OpCode, dtype: DType, count: usize) -> u64 {
    girih_exec::philox::blocks(code, dtype, count)
}

/// Consumes `blocks` blocks of the sequence; returns the position of the first.
pub(crate) fn take(blocks: u64) -> (u64, u64) {
    if let Some(passed) = PASSED.take() {
        let (key, offset) = take(0);
        PASSED.set(Some(passed.wrapping_add(blocks)));
        return (key, offset.wrapping_add(passed));
    }
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

    /// Uniform integers in `[low, high)`: see [`randint`].
    #[track_caller]
    pub fn randint(
        low: impl Into<i128>,
        high: impl Into<i128>,
        shape: impl Into<Shape>,
        dtype: DType,
    ) -> Result<Tensor> {
        randint(&Draws::new().shape(shape).dtype(dtype), low, high)
    }

    /// A random permutation of `0..n`, as i64.
    #[track_caller]
    pub fn randperm(n: usize) -> Result<Tensor> {
        permutation(&Draws::new(), n)
    }
}
