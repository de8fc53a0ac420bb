//! Pooling and unpooling.

use crate::args::{SizesArg, TensorArg};
use crate::errors::raise;
use crate::functions::{Out, Pair, out, pair};
use crate::location;
use crate::scalars;
use crate::windows::{PaddingArg, exactly};
use girih::PoolOptions;
use pyo3::prelude::*;

/// The options of a pooling with windows of `n` axes.
fn options(
    op: &str,
    n: usize,
    size: &SizesArg,
    stride: Option<&SizesArg>,
    padding: &PaddingArg,
) -> PyResult<PoolOptions> {
    Ok(PoolOptions {
        stride: stride.map(|s| s.at_least(1, op, "stride")).transpose()?,
        padding: padding.get(op)?,
        ..PoolOptions::new(exactly(op, "kernel_size", size, n)?)
    })
}

/// The options of a max pooling, whose windows may be dilated.
#[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
fn dilated(
    op: &str,
    n: usize,
    size: &SizesArg,
    stride: Option<&SizesArg>,
    padding: &PaddingArg,
    dilation: &SizesArg,
    ceil_mode: bool,
) -> PyResult<PoolOptions> {
    let dilation = dilation.at_least(1, op, "dilation")?;
    Ok(PoolOptions { dilation, ceil_mode, ..options(op, n, size, stride, padding)? })
}

macro_rules! poolings {
    ($($n:literal $max:ident $indices:ident $unpool:ident $avg:ident $lp:ident $adaptive_avg:ident
        $adaptive_max:ident $adaptive_indices:ident $axes:literal;)*) => {
        $(
        #[doc = concat!("Largest element of each window of the last ", $axes, "; NaN counts as largest, and padding is ignored. The stride is the size of the window by default.")]
        #[pyfunction]
        #[pyo3(signature = (
            x, kernel_size, stride=None, padding=PaddingArg::none(),
            dilation=SizesArg::one(1), ceil_mode=false
        ))]
        fn $max(
            py: Python<'_>,
            x: TensorArg,
            kernel_size: SizesArg,
            stride: Option<SizesArg>,
            padding: PaddingArg,
            dilation: SizesArg,
            #[pyo3(from_py_with = scalars::flag)] ceil_mode: bool,
        ) -> Out {
            let _called = location::enter!(py);
            let (op, stride) = (stringify!($max), stride.as_ref());
            let options = dilated(op, $n, &kernel_size, stride, &padding, &dilation, ceil_mode)?;
            out(x.0.max_pool(&options))
        }

        #[doc = concat!("``", stringify!($max), "`` with the index of each largest element among those of the last ", $axes, " in row-major order; of equal elements, the first. Returns: tuple[Tensor, Tensor].")]
        #[pyfunction]
        #[pyo3(signature = (
            x, kernel_size, stride=None, padding=PaddingArg::none(),
            dilation=SizesArg::one(1), ceil_mode=false
        ))]
        fn $indices(
            py: Python<'_>,
            x: TensorArg,
            kernel_size: SizesArg,
            stride: Option<SizesArg>,
            padding: PaddingArg,
            dilation: SizesArg,
            #[pyo3(from_py_with = scalars::flag)] ceil_mode: bool,
        ) -> Pair {
            let _called = location::enter!(py);
            let (op, stride) = (stringify!($max), stride.as_ref());
            let options = dilated(op, $n, &kernel_size, stride, &padding, &dilation, ceil_mode)?;
            pair(x.0.max_pool_with_indices(&options))
        }

        #[doc = concat!("Puts elements back at the positions that ``", stringify!($indices), "`` returned; other elements are zero. The last ", $axes, " get the sizes output_size, by default the sizes that a pooling without a remainder pools to the sizes of x.")]
        #[pyfunction]
        #[pyo3(signature = (
            x, indices, kernel_size, stride=None, padding=PaddingArg::none(), output_size=None
        ))]
        fn $unpool(
            py: Python<'_>,
            x: TensorArg,
            indices: TensorArg,
            kernel_size: SizesArg,
            stride: Option<SizesArg>,
            padding: PaddingArg,
            output_size: Option<SizesArg>,
        ) -> Out {
            let _called = location::enter!(py);
            let op = stringify!($unpool);
            let options = options(op, $n, &kernel_size, stride.as_ref(), &padding)?;
            let shape = x.0.shape();
            let sizes = match output_size {
                Some(sizes) => {
                    let sizes = sizes.at_least(0, op, "output_size")?;
                    sizes[sizes.len().saturating_sub($n)..].to_vec()
                }
                None => {
                    let spatial = &shape[shape.rank().saturating_sub($n)..];
                    girih::unpooled_sizes(spatial, &options).map_err(raise)?
                }
            };
            let sizes = if sizes.len() == 1 { vec![sizes[0]; $n] } else { sizes };
            out(x.0.max_unpool(&indices.0, &sizes))
        }

        #[doc = concat!("Mean of each window of the last ", $axes, "; padding counts by default, and divisor_override replaces the count as the divisor. The stride is the size of the window by default.")]
        #[pyfunction]
        #[pyo3(signature = (
            x, kernel_size, stride=None, padding=PaddingArg::none(), ceil_mode=false,
            count_include_pad=true, divisor_override=None
        ))]
        #[allow(clippy::too_many_arguments, reason = "the arguments Python users write")]
        fn $avg(
            py: Python<'_>,
            x: TensorArg,
            kernel_size: SizesArg,
            stride: Option<SizesArg>,
            padding: PaddingArg,
            #[pyo3(from_py_with = scalars::flag)] ceil_mode: bool,
            #[pyo3(from_py_with = scalars::flag)] count_include_pad: bool,
            #[pyo3(from_py_with = scalars::maybe_number)] divisor_override: Option<f64>,
        ) -> Out {
            let _called = location::enter!(py);
            let options = PoolOptions {
                ceil_mode,
                count_include_pad,
                divisor: divisor_override,
                ..options(stringify!($avg), $n, &kernel_size, stride.as_ref(), &padding)?
            };
            out(x.0.avg_pool(&options))
        }

        #[doc = concat!("``sum(|x|**norm_type)**(1/norm_type)`` over each window of the last ", $axes, ".")]
        #[pyfunction]
        #[pyo3(signature = (
            x, norm_type, kernel_size, stride=None, ceil_mode=false, padding=PaddingArg::none()
        ))]
        fn $lp(
            py: Python<'_>,
            x: TensorArg,
            #[pyo3(from_py_with = scalars::number)] norm_type: f64,
            kernel_size: SizesArg,
            stride: Option<SizesArg>,
            #[pyo3(from_py_with = scalars::flag)] ceil_mode: bool,
            padding: PaddingArg,
        ) -> Out {
            let _called = location::enter!(py);
            let options = PoolOptions {
                ceil_mode,
                ..options(stringify!($lp), $n, &kernel_size, stride.as_ref(), &padding)?
            };
            out(x.0.lp_pool(norm_type, &options))
        }

        #[doc = concat!("Means of windows of the last ", $axes, ", placed so that the result has the given sizes.")]
        #[pyfunction]
        fn $adaptive_avg(py: Python<'_>, x: TensorArg, output_size: SizesArg) -> Out {
            let _called = location::enter!(py);
            let sizes = exactly(stringify!($adaptive_avg), "output_size", &output_size, $n)?;
            out(x.0.adaptive_avg_pool(&sizes))
        }

        #[doc = concat!("Largest elements of windows of the last ", $axes, ", placed so that the result has the given sizes.")]
        #[pyfunction]
        fn $adaptive_max(py: Python<'_>, x: TensorArg, output_size: SizesArg) -> Out {
            let _called = location::enter!(py);
            let sizes = exactly(stringify!($adaptive_max), "output_size", &output_size, $n)?;
            out(x.0.adaptive_max_pool(&sizes))
        }

        #[doc = concat!("``", stringify!($adaptive_max), "`` with the index of each largest element among those of the last ", $axes, " in row-major order; of equal elements, the first. Returns: tuple[Tensor, Tensor].")]
        #[pyfunction]
        fn $adaptive_indices(py: Python<'_>, x: TensorArg, output_size: SizesArg) -> Pair {
            let _called = location::enter!(py);
            let sizes = exactly(stringify!($adaptive_max), "output_size", &output_size, $n)?;
            pair(x.0.adaptive_max_pool_with_indices(&sizes))
        }
        )*

        /// Adds this file's functions.
        pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
            $(m.add_function(wrap_pyfunction!($max, m)?)?;
            m.add_function(wrap_pyfunction!($indices, m)?)?;
            m.add_function(wrap_pyfunction!($unpool, m)?)?;
            m.add_function(wrap_pyfunction!($avg, m)?)?;
            m.add_function(wrap_pyfunction!($lp, m)?)?;
            m.add_function(wrap_pyfunction!($adaptive_avg, m)?)?;
            m.add_function(wrap_pyfunction!($adaptive_max, m)?)?;
            m.add_function(wrap_pyfunction!($adaptive_indices, m)?)?;)*
            Ok(())
        }
    };
}

poolings! {
    1 max_pool1d max_pool1d_with_indices max_unpool1d avg_pool1d lp_pool1d adaptive_avg_pool1d
        adaptive_max_pool1d adaptive_max_pool1d_with_indices "axis";
    2 max_pool2d max_pool2d_with_indices max_unpool2d avg_pool2d lp_pool2d adaptive_avg_pool2d
        adaptive_max_pool2d adaptive_max_pool2d_with_indices "two axes";
    3 max_pool3d max_pool3d_with_indices max_unpool3d avg_pool3d lp_pool3d adaptive_avg_pool3d
        adaptive_max_pool3d adaptive_max_pool3d_with_indices "three axes";
}
