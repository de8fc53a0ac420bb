//! Rows of a table by index, one by one or in bags.

use super::{Update, where_};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, Shape};

/// What is special about an embedding's rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingOptions {
    /// A row that learns nothing; negative counts from the end.
    pub padding_idx: Option<i64>,
    /// Rows of a larger norm are scaled to this one.
    pub max_norm: Option<f64>,
    /// The norm of `max_norm`.
    pub norm_type: f64,
    /// Whether gradients are divided by how often their row was looked up.
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
    /// The padding's row, counted from the start.
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

/// How the rows of a bag become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean; zeros for none.
    Mean,
    /// The largest of each feature; zeros for none.
    Max,
}

/// Which indices are of one bag.
#[derive(Clone, Copy)]
pub enum Bags<'a> {
    /// Those of one row.
    Rows,
    /// Those from one offset up to the next, or to the end; with `true` the last offset is the end.
    Offsets(&'a Tensor, bool),
}

fn no_table(op: &'static str, shape: Shape) -> Error {
    let reason = "expected a table [rows, features]".into();
    girih_ir::Error::InvalidShape { op, shape, reason }.into()
}

impl Tensor {
    /// Rows of this table, `[rows, features]`, at integer indices: `[…] -> […, features]`.
    ///
    /// `max_norm` scales what is looked up; gradients are those of rows that had that norm.
    ///
    /// Errors: a shape error for other tables; [`Error::InvalidArgument`] for a padding that is no
    /// row; an index error when the result is computed.
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
            let flat = indices.reshape(&[-1])?.astype(DType::I64)?;
            let ones = Tensor::ones(flat.shape(), self.dtype())?;
            let counts =
                Tensor::zeros([shape[0]], self.dtype())?.scatter(&flat, &ones, 0, Update::Add)?;
            let share = counts.take(indices, 0)?.reciprocal()?.unsqueeze(-1)?;
            let fixed = rows.stop_gradient()?;
            rows = fixed.add(&rows.sub(&fixed)?.mul(&share)?)?;
        }
        if let Some(padding) = padding {
            let wrapped = where_(&indices.lt(0)?, &indices.add(shape[0] as i64)?, indices)?;
            rows = where_(&wrapped.eq(padding)?.unsqueeze(-1)?, &rows.stop_gradient()?, &rows)?;
        }
        Ok(rows)
    }

    /// Rows scaled down to a norm, for gradients as if they had had it before.
    fn limited(&self, limit: f64, p: f64) -> Result<Tensor> {
        let fixed = self.stop_gradient()?;
        let norm = fixed.astype(fixed.dtype().widened())?.vector_norm(p, -1, true)?;
        let scale = norm.add(1e-7)?.reciprocal()?.mul(limit)?.astype(self.dtype())?;
        let scaled = where_(&norm.gt(limit)?, &fixed.mul(&scale)?, &fixed)?;
        scaled.add(&self.sub(&fixed)?)
    }

    /// Rows of this table, `[rows, features]`, put together by bags: `[bags, features]`. `weights`,
    /// one per index, scale the rows of sums.
    ///
    /// Shapes: indices `[bags, n]`, or one axis and the offsets of bags in it.
    ///
    /// Errors: a shape error for operands that do not fit; [`Error::InvalidArgument`] for weights in
    /// another mode than [`BagMode::Sum`].
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

    /// Rows `[bags, n, features]` put together along their second axis.
    fn bag(&self, counted: &Tensor, mode: BagMode) -> Result<Tensor> {
        let dtype = self.dtype();
        let rows = self.astype(dtype.widened())?;
        let kept = counted.unsqueeze(-1)?;
        let count = counted.astype(rows.dtype())?.sum(Some(&[1]), true)?;
        if mode == BagMode::Max {
            if self.shape()[1] == 0 {
                let shape = self.shape();
                return Tensor::zeros([shape[0], shape[2]], dtype);
            }
            let largest = where_(&kept, &rows, f64::NEG_INFINITY)?.max(Some(&[1]), false)?;
            return where_(&count.eq(0.0)?, 0.0, &largest)?.astype(dtype);
        }
        let sum = where_(&kept, &rows, 0.0)?.sum(Some(&[1]), false)?;
        match mode {
            BagMode::Mean => sum.div(&count.maximum(1.0)?)?.astype(dtype),
            _ => sum.astype(dtype),
        }
    }

    /// Rows `[n, features]` put together by the offsets of their bags.
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
        // A place belongs to the last bag that starts there or before.
        let place = Tensor::iota([n], 0, DType::I64)?;
        let bag = super::searchsorted(&starts, &place, true, None)?.sub(1)?.maximum(0)?;
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
