//! Embeddings: lookups of table rows by index, single or reduced over bags.

use super::{Update, where_};
use crate::{Error, Result, Side, Tensor, keepdims};
use girih_ir::{DType, Shape};

/// Options of an embedding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingOptions {
    /// A row that receives no gradient; a negative index counts from the end.
    pub padding_idx: Option<i64>,
    /// The maximum norm; rows with a larger norm are scaled down to the maximum norm.
    pub max_norm: Option<f64>,
    /// The order of the norm of `max_norm`.
    pub norm_type: f64,
    /// Whether the gradient of a row is divided by the number of its lookups.
    pub scale_grad_by_freq: bool,
}

impl Default for EmbeddingOptions {
    fn default() -> Self {
        EmbeddingOptions {
            padding_idx: None,
            max_norm: None,
            norm_type: 2.0,
            scale_grad_by_freq: false,
        }
    }
}

impl EmbeddingOptions {
    /// The index of the padding row, counted from the start.
    fn padding(&self, op: &'static str, rows: usize) -> Result<Option<i64>> {
        let Some(given) = self.padding_idx else { return Ok(None) };
        let rows = rows as i64;
        if !(-rows..rows).contains(&given) {
            return Err(Error::InvalidArgument(format!(
                "{op}: padding_idx {given} is no row of a table of {rows}"
            )));
        }
        Ok(Some(given.rem_euclid(rows)))
    }
}

/// The reduction of the rows of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BagMode {
    /// The sum.
    Sum,
    /// The mean; zeros for an empty bag.
    Mean,
    /// The maximum of each feature; zeros for an empty bag.
    Max,
}

/// The assignment of indices to bags.
#[derive(Clone, Copy)]
pub enum Bags<'a> {
    /// Each row of the indices is a bag.
    Rows,
    /// A bag ends at the next offset or at the end of the indices; with `true` the last offset is
    /// the end of the last bag.
    Offsets(&'a Tensor, bool),
}

fn no_table(op: &'static str, shape: Shape) -> Error {
    let reason = "expected a table [rows, features]".into();
    girih_ir::Error::InvalidShape { op, shape, reason }.into()
}

impl Tensor {
    /// Rows of this table, `[rows, features]`, at integer indices: `[…] -> […, features]`.
    ///
    /// `max_norm` scales the looked-up rows; the gradient ignores the scaling.
    ///
    /// Errors: a shape error for a table of another rank; [`Error::InvalidArgument`] for a padding
    /// index out of range; an index error when the result is computed.
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor, options: &EmbeddingOptions) -> Result<Tensor> {
        let (op, shape) = ("embedding", self.shape());
        if shape.rank() != 2 {
            return Err(no_table(op, shape));
        }
        let padding = options.padding(op, shape[0])?;
        let mut rows = self.take(indices, 0)?;
        if let Some(limit) = options.max_norm {
            rows = rows.limited(limit, options.norm_type)?;
        }
        if options.scale_grad_by_freq {
            // Count in f32: half floats do not hold all counts.
            let (flat, dtype) = (indices.reshape(-1)?, self.dtype().widened());
            let ones = Tensor::ones(flat.shape(), dtype)?;
            let counts = Tensor::zeros([shape[0]], dtype)?.scatter(&flat, &ones, 0, Update::Add)?;
            let share = counts.take(indices, 0)?.reciprocal()?.unsqueeze(-1)?;
            let share = share.astype(self.dtype())?;
            let fixed = rows.stop_gradient()?;
            rows = fixed.add(&rows.sub(&fixed)?.mul(&share)?)?;
        }
        if let Some(padding) = padding {
            let wrapped = indices.counted_from_front(shape[0])?;
            rows = where_(&wrapped.eq(padding)?.unsqueeze(-1)?, &rows.stop_gradient()?, &rows)?;
        }
        Ok(rows)
    }

    /// Scales rows down to a maximum norm; the gradient passes through unchanged.
    fn limited(&self, limit: f64, p: f64) -> Result<Tensor> {
        let fixed = self.stop_gradient()?;
        let norm = fixed.astype(fixed.dtype().widened())?.vector_norm(p, -1, true)?;
        let scale = norm.add(1e-7)?.reciprocal()?.mul(limit)?.astype(self.dtype())?;
        let scaled = where_(&norm.gt(limit)?, &fixed.mul(&scale)?, &fixed)?;
        scaled.add(&self.sub(&fixed)?)
    }

    /// Rows of this table, `[rows, features]`, reduced over bags: `[bags, features]`. `weights`,
    /// one per index, scale the rows of sums.
    ///
    /// Shapes: indices `[bags, n]`, or one axis with the offsets of its bags.
    ///
    /// Errors: a shape error for operands that do not fit; [`Error::InvalidArgument`] for weights
    /// with a mode other than [`BagMode::Sum`].
    #[track_caller]
    pub fn embedding_bag(
        &self,
        indices: &Tensor,
        bags: Bags<'_>,
        mode: BagMode,
        weights: Option<&Tensor>,
        options: &EmbeddingOptions,
    ) -> Result<Tensor> {
        let (op, shape, by) = ("embedding_bag", self.shape(), indices.shape());
        if shape.rank() != 2 {
            return Err(no_table(op, shape));
        }
        let wanted = if matches!(bags, Bags::Rows) { 2 } else { 1 };
        if by.rank() != wanted {
            let reason = format!(
                "indices with {wanted} axes are expected: [bags, n] without offsets, [n] with"
            );
            return Err(girih_ir::Error::InvalidShape { op, shape: by, reason }.into());
        }
        if weights.is_some_and(|w| w.shape() != by) || weights.is_some() && mode != BagMode::Sum {
            return Err(Error::InvalidArgument(format!(
                "{op}: per_sample_weights are for the mode 'sum' and have the indices' shape {by}"
            )));
        }
        let padding = options.padding(op, shape[0])?;
        let mut rows = self.embedding(indices, options)?;
        if let Some(weights) = weights {
            rows = rows.mul(&weights.astype(rows.dtype())?.unsqueeze(-1)?)?;
        }
        let counted = match padding {
            None => Tensor::ones(by.clone(), DType::Bool)?,
            Some(padding) => {
                let rows = shape[0] as i64;
                where_(&indices.lt(0)?, &indices.add(rows)?, indices)?.ne(padding)?
            }
        };
        match bags {
            Bags::Rows => rows.bag(&counted, mode),
            Bags::Offsets(offsets, last) => rows.bag_by(&counted, mode, offsets, last),
        }
    }

    /// Reduces rows `[bags, n, features]` over their second axis.
    fn bag(&self, counted: &Tensor, mode: BagMode) -> Result<Tensor> {
        let dtype = self.dtype();
        let rows = self.astype(dtype.widened())?;
        let kept = counted.unsqueeze(-1)?;
        let count = counted.astype(rows.dtype())?.sum(keepdims(1))?;
        if mode == BagMode::Max {
            if self.shape()[1] == 0 {
                let shape = self.shape();
                return Tensor::zeros([shape[0], shape[2]], dtype);
            }
            let largest = where_(&kept, &rows, f64::NEG_INFINITY)?.max(1)?;
            return where_(&count.eq(0.0)?, 0.0, &largest)?.astype(dtype);
        }
        let sum = where_(&kept, &rows, 0.0)?.sum(1)?;
        match mode {
            BagMode::Mean => sum.div(&count.maximum(1.0)?)?.astype(dtype),
            _ => sum.astype(dtype),
        }
    }

    /// Reduces rows `[n, features]` over the bags with these offsets.
    fn bag_by(
        &self,
        counted: &Tensor,
        mode: BagMode,
        offsets: &Tensor,
        last: bool,
    ) -> Result<Tensor> {
        let (op, shape) = ("embedding_bag", offsets.shape());
        let bags = shape.numel().checked_sub(usize::from(last));
        let Some(bags) = bags.filter(|_| shape.rank() == 1 && offsets.dtype().is_int()) else {
            let reason = "offsets are integers on one axis, with the end as the last one if \
                          include_last_offset is set"
                .into();
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        };
        let n = self.shape()[0];
        let dtype = self.dtype();
        let rows = self.astype(dtype.widened())?;
        let starts = offsets.astype(DType::I64)?.narrow(0, 0, bags)?;
        // A position belongs to the last bag that starts at or before it.
        let place = Tensor::iota([n], 0, DType::I64)?;
        let bag = super::searchsorted(&starts, &place, Side::Right, None)?.sub(1)?.maximum(0)?;
        let spread = |value: f64, rows: &Tensor, update| {
            let size = rows.shape().with_dim(0, bags);
            Tensor::full(value, size, rows.dtype())?.scatter(&bag, rows, 0, update)
        };
        let counts = spread(0.0, &counted.astype(rows.dtype())?, Update::Add)?.unsqueeze(-1)?;
        let kept = counted.unsqueeze(-1)?;
        if mode == BagMode::Max {
            let lowest = where_(&kept, &rows, f64::NEG_INFINITY)?;
            let largest = spread(f64::NEG_INFINITY, &lowest, Update::Max)?;
            return where_(&counts.eq(0.0)?, 0.0, &largest)?.astype(dtype);
        }
        let sum = spread(0.0, &where_(&kept, &rows, 0.0)?, Update::Add)?;
        match mode {
            BagMode::Mean => sum.div(&counts.maximum(1.0)?)?.astype(dtype),
            _ => sum.astype(dtype),
        }
    }
}
