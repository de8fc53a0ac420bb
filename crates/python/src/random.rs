//! Random numbers for `girih.random`.

use crate::args::{Axes, IntArg, OperandArg, ShapeArg, TensorArg, WideIntArg};
use crate::arrange::counts;
use crate::devices::{DeviceArg, placed};
use crate::dtype::DTypeArg;
use crate::errors::{IntoPy, invalid};
use crate::functions::{Out, out};
use crate::location;
use crate::protocols::is_array;
use crate::scalars;
use crate::tensor::PyTensor;
use girih::random::{self, Draws, Replacement};
use girih::{Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyInt;

/// Reads the arguments that all distributions have.
fn draws(
    op: &'static str,
    shape: Option<ShapeArg>,
    dtype: Option<DTypeArg>,
    key: Option<TensorArg>,
) -> PyResult<Draws> {
    let mut draws = Draws::new();
    if let Some(shape) = shape {
        draws = draws.shape(shape.shape(op)?);
    }
    if let Some(dtype) = dtype {
        draws = draws.dtype(dtype.0);
    }
    Ok(match key {
        Some(key) => draws.key(&key.0),
        None => draws,
    })
}

/// Defines distributions with scalar parameters.
macro_rules! distributions {
    ($($name:ident $function:ident($($parameter:ident),*) $doc:literal;)*) => {
        $(#[doc = $doc]
        #[pyfunction]
        #[pyo3(signature = ($($parameter,)* shape, dtype, key, device))]
        #[allow(clippy::too_many_arguments)]
        fn $name(
            py: Python<'_>,
            $($parameter: OperandArg,)*
            shape: Option<ShapeArg>,
            dtype: Option<DTypeArg>,
            key: Option<TensorArg>,
            device: Option<DeviceArg>,
        ) -> Out {
            let _called = location::enter!(py);
            let draws = draws(stringify!($function), shape, dtype, key)?;
            placed(device, || out(random::$function(&draws $(, $parameter.operand())*)))
        })*
    };
}

distributions! {
    random_uniform uniform(low, high) "Uniform draws.";
    random_normal normal(loc, scale) "Normal draws.";
    random_laplace laplace(loc, scale) "Laplace draws.";
    random_gumbel gumbel(loc, scale) "Gumbel draws.";
    random_logistic logistic(loc, scale) "Logistic draws.";
    random_cauchy cauchy(loc, scale) "Cauchy draws.";
    random_exponential exponential(scale) "Exponential draws.";
    random_truncated_normal truncated_normal(lower, upper, loc, scale) "Truncated normal draws.";
    random_gamma gamma(a, scale) "Gamma draws.";
    random_beta beta(a, b) "Beta draws.";
    random_bernoulli bernoulli(p) "Bernoulli draws.";
    random_poisson poisson(lam) "Poisson draws.";
    random_binomial binomial(n, p) "Binomial draws.";
    random_rademacher rademacher() "Rademacher draws: -1 or 1.";
    random_bits bits() "Random bits.";
}

/// Vectors that sum to one.
#[pyfunction]
#[pyo3(signature = (alpha, shape, dtype, key, device))]
fn random_dirichlet(
    py: Python<'_>,
    alpha: TensorArg,
    shape: Option<ShapeArg>,
    dtype: Option<DTypeArg>,
    key: Option<TensorArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let draws = draws("dirichlet", shape, dtype, key)?;
    placed(device, || out(random::dirichlet(&draws, &alpha.0)))
}

/// Indices with the probabilities that the softmax of logits gives.
#[pyfunction]
#[pyo3(signature = (logits, axis, shape, dtype, key, device))]
fn random_categorical(
    py: Python<'_>,
    logits: TensorArg,
    axis: IntArg,
    shape: Option<ShapeArg>,
    dtype: Option<DTypeArg>,
    key: Option<TensorArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let draws = draws("categorical", shape, dtype, key)?;
    placed(device, || out(random::categorical(&draws, &logits.0, axis.0)))
}

/// Counts by category.
#[pyfunction]
#[pyo3(signature = (n, p, shape, dtype, key, device))]
fn random_multinomial(
    py: Python<'_>,
    n: OperandArg,
    p: TensorArg,
    shape: Option<ShapeArg>,
    dtype: Option<DTypeArg>,
    key: Option<TensorArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    let draws = draws("multinomial", shape, dtype, key)?;
    placed(device, || out(random::multinomial(&draws, n.operand(), &p.0)))
}

/// Integers in a range.
#[pyfunction]
#[pyo3(signature = (low, high, shape, dtype, key, device))]
fn random_randint(
    py: Python<'_>,
    low: &Bound<'_, PyAny>,
    high: Option<&Bound<'_, PyAny>>,
    shape: Option<ShapeArg>,
    dtype: Option<DTypeArg>,
    key: Option<TensorArg>,
    device: Option<DeviceArg>,
) -> Out {
    let _called = location::enter!(py);
    // Numbers of NumPy are arrays, too.
    let is_tensor = |bound: &Bound<'_, PyAny>| {
        let axes = |bound: &Bound<'_, PyAny>| bound.getattr("shape")?.len();
        bound.is_instance_of::<PyTensor>() || is_array(bound) && axes(bound).is_ok_and(|n| n > 0)
    };
    if is_tensor(low) || high.is_some_and(is_tensor) {
        let draws = draws("randint", shape, dtype, key)?;
        let low = low.extract::<TensorArg>()?.0;
        let (low, high) = match high {
            Some(high) => (low, high.extract::<TensorArg>()?.0),
            None => (Tensor::zeros([], low.dtype()).py()?, low),
        };
        return placed(device, || out(random::randint_between(&draws, &low, &high)));
    }
    let low = low.extract::<WideIntArg>()?.0;
    let high = high.map(|high| high.extract::<WideIntArg>()).transpose()?;
    let (low, high) = high.map_or((0, low), |high| (low, high.0));
    let draws = draws("randint", shape, dtype, key)?;
    placed(device, || out(random::randint(&draws, low, high)))
}

/// The integers below an integer, or slices of a tensor, in random order.
#[pyfunction]
#[pyo3(signature = (x, axis, independent, key))]
fn random_permutation(
    x: &Bound<'_, PyAny>,
    axis: IntArg,
    #[pyo3(from_py_with = scalars::flag)] independent: bool,
    key: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(x.py());
    let draws = draws("permutation", None, None, key)?;
    if x.is_instance_of::<PyInt>() {
        let count = counts("permutation", &[crate::args::integer(x)?])?[0];
        return out(random::permutation(&draws, count));
    }
    let x = x.extract::<TensorArg>()?.0;
    out(match independent {
        true => random::permuted_lines(&draws, &x, axis.0),
        false => random::permuted(&draws, &x, axis.0),
    })
}

/// Slices chosen at random.
#[pyfunction]
#[pyo3(signature = (a, shape, replace, p, axis, key))]
fn random_choice(
    a: &Bound<'_, PyAny>,
    shape: Option<ShapeArg>,
    #[pyo3(from_py_with = scalars::flag)] replace: bool,
    p: Option<TensorArg>,
    axis: Axes,
    key: Option<TensorArg>,
) -> Out {
    let _called = location::enter!(a.py());
    let draws = draws("choice", shape, None, key)?;
    let p = p.map(|p| p.0);
    let replacement = if replace { Replacement::With } else { Replacement::Without };
    if a.is_instance_of::<PyInt>() {
        let count = counts("choice", &[crate::args::integer(a)?])?[0];
        return out(random::choice(&draws, count, replacement, p.as_ref()));
    }
    let (a, axis) = (a.extract::<TensorArg>()?.0, axis.single("choice")?.unwrap_or(0));
    let shape = a.shape();
    if shape.rank() == 0 {
        return Err(invalid("choice: an int, or a tensor with an axis, is expected"));
    }
    let at = girih::ir::shape::normalize_axis("choice", axis, shape.rank()).py()?;
    let chosen = random::choice(&draws, shape[at], replacement, p.as_ref()).py()?;
    out(a.take(&chosen, axis))
}

/// Creates a key from a seed.
#[pyfunction]
fn random_key(py: Python<'_>, seed: OperandArg) -> Out {
    let _called = location::enter!(py);
    out(random::key(seed.operand()))
}

/// Creates new keys from a key.
#[pyfunction]
fn random_split(py: Python<'_>, key: TensorArg, shape: ShapeArg) -> Out {
    let _called = location::enter!(py);
    let shape: Shape = shape.shape("split")?;
    let keys = random::split(&key.0, shape.numel()).py()?;
    out(Tensor::reshape(&keys, shape))
}

/// Creates a new key from a key and data.
#[pyfunction]
fn random_fold_in(py: Python<'_>, key: TensorArg, data: OperandArg) -> Out {
    let _called = location::enter!(py);
    out(random::fold_in(&key.0, data.operand()))
}

/// Adds this file's functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident)*) => { $(m.add_function(wrap_pyfunction!($name, m)?)?;)* };
    }
    add! {
        random_uniform random_normal random_laplace random_gumbel random_logistic random_cauchy
        random_exponential random_truncated_normal random_gamma random_beta random_dirichlet
        random_bernoulli random_rademacher random_poisson random_binomial random_bits
        random_categorical random_multinomial random_randint random_permutation random_choice
        random_key random_split random_fold_in
    }
    Ok(())
}
