//! The tensor methods, by family. Each method checks and converts its arguments (negative axes,
//! scalars, mixed dtypes) and records ops of the registry.

mod activation;
mod arguments;
mod arrange;
mod bitcast;
mod compare;
mod conv;
mod creation;
mod cumulative;
pub mod custom;
mod einsum;
mod elementwise;
mod embedding;
pub mod fft;
mod functional;
mod in_place;
mod index;
mod lexicographic;
pub mod linalg;
mod nan;
mod noise;
mod norm;
mod operators;
mod pool;
mod quantile;
mod reduce;
mod resample;
mod shape;
mod sort;
mod statistics;
mod strided;
mod taper;
mod vision;

pub use arguments::{Axes, ReducedAxes, Sizes, keepdims};
pub use arrange::{
    Indexing, PadMode, array_split, broadcast_arrays, column_stack, dstack, hstack, indices,
    meshgrid, sparse_meshgrid, split_equal, unstack, vstack,
};
pub use compare::{Nans, Tolerance, allclose, array_equal, isclose};
pub use conv::{ConvOptions, Padding, PerAxis};
pub use cumulative::{Cumulative, Running};
pub use einsum::{
    ContractionPath, Optimize, PathStep, einsum, einsum_label, einsum_path, tensordot_axes,
};
pub use elementwise::{Operand, binary, number, where_};
pub(crate) use elementwise::{kept_dtype, value_in};
pub use embedding::{BagMode, Bags, EmbeddingOptions};
pub(crate) use index::known;
pub use index::{
    Bins, Heights, Index, IndexRange, Indices, OutOfRange, Unique, Update, broadcast_shapes,
    histogram2d,
};
pub use norm::AttentionOptions;
pub use pool::{PoolOptions, unpooled_sizes};
pub use quantile::Quantile;
pub use resample::{Corners, Interpolation};
pub use shape::{Size, concat, shape_of, split, split_at, stack};
pub use sort::{Side, searchsorted};
pub use statistics::{
    Beyond, Covariance, Powers, Variables, corrcoef, cov, digitize, interp, polyfit, polyval,
    trapezoid, vander,
};
pub use taper::Taper;
pub use vision::{GridOptions, Outside, Sampling};

use girih_ir::DType;

/// The default integer dtype, of results and of integer scalars: i64, as in NumPy.
pub const fn default_int() -> DType {
    DType::I64
}
