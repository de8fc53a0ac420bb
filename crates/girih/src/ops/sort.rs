//! Sorting, searching, and the top `k` elements. NaN is larger than every number, and equal
//! elements keep their order.

use crate::{Error, Result, Tensor};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, DType, Op, OpCode};

impl Tensor {
    /// Applies a function of rows along an axis, by moving the axis to the end and back.
    #[track_caller]
    pub(crate) fn by_rows(
        &self,
        op: &'static str,
        axis: i64,
        f: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let rank = self.rank();
        let axis = normalize_axis(op, axis, rank)?;
        match axis + 1 == rank {
            true => f(self),
            false => f(&self.swapaxes(axis as i64, -1)?)?.swapaxes(axis as i64, -1),
        }
    }

    #[track_caller]
    fn sorted(&self, axis: i64, descending: bool, result: u8) -> Result<Tensor> {
        if self.dtype().is_complex() {
            return self.by_rows("sort", axis, |x| {
                let order = super::lexicographic::argsort(x, descending)?;
                if result == 0 { x.take_along_axis(&order, -1) } else { Ok(order) }
            });
        }
        let op = Op::new(OpCode::Sort, Attrs::routine(descending)).with_result(result);
        self.by_rows("sort", axis, |x| Tensor::record(op, &[x]))
    }

    /// The elements in ascending order along an axis; NaN is largest. The sort is stable. Complex
    /// numbers are ordered by the real part, then by the imaginary part.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn sort(&self, axis: i64) -> Result<Tensor> {
        self.sorted(axis, false, 0)
    }

    /// The elements in descending order along an axis; NaN is largest. The sort is stable.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn sort_descending(&self, axis: i64) -> Result<Tensor> {
        self.sorted(axis, true, 0)
    }

    /// The indices (i64) that sort along an axis in ascending order. The sort is stable.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn argsort(&self, axis: i64) -> Result<Tensor> {
        self.sorted(axis, false, 1)
    }

    /// The indices (i64) that sort along an axis in descending order. The sort is stable.
    ///
    /// Errors: an axis error for scalars.
    #[track_caller]
    pub fn argsort_descending(&self, axis: i64) -> Result<Tensor> {
        self.sorted(axis, true, 1)
    }

    /// The `k` largest elements along an axis, largest first, and their indices (i64). The first of
    /// equal elements comes first; NaN is largest.
    ///
    /// Errors: [`Error::InvalidArgument`] if the axis has fewer than `k` elements; an axis error.
    #[track_caller]
    pub fn topk(&self, k: usize, axis: i64) -> Result<(Tensor, Tensor)> {
        self.best(k, axis, true)
    }

    /// The `k` smallest elements along an axis, smallest first, and their indices (i64), as
    /// [`Tensor::topk`].
    ///
    /// Errors: as [`Tensor::topk`].
    #[track_caller]
    pub fn topk_smallest(&self, k: usize, axis: i64) -> Result<(Tensor, Tensor)> {
        self.best(k, axis, false)
    }

    /// The elements that an ascending sort of the last axis puts at places (i64 `[..., m]`), and their
    /// indices, without sorting. Places beyond the axis count as its ends.
    #[track_caller]
    pub(super) fn at_places(&self, places: &Tensor) -> Result<(Tensor, Tensor)> {
        let at = |result| {
            let op = Op::new(OpCode::OrderStatistics, Attrs::routine(false)).with_result(result);
            Tensor::record(op, &[self, places])
        };
        Ok((at(0)?, at(1)?))
    }

    /// The `k`-th smallest element along an axis, counted from 1, and its index (i64); the axis stays,
    /// with size one. NaN is largest; equal elements keep their order.
    ///
    /// Errors: [`Error::InvalidArgument`] if there is no such element; an axis error.
    #[track_caller]
    pub fn kthvalue(&self, k: usize, axis: i64) -> Result<(Tensor, Tensor)> {
        let at = normalize_axis("kthvalue", axis, self.rank())?;
        let (shape, size) = (self.shape(), self.shape().dim(at));
        if k == 0 || !size.at_least(k) {
            let reason = format!("kthvalue: k is from 1 to {size}, got {k}");
            return Err(Error::InvalidArgument(reason));
        }
        let place = k as i64 - 1;
        if self.dtype().is_complex() {
            let index = self.argsort(axis)?.narrow(axis, k - 1, 1)?;
            return Ok((self.take_along_axis(&index, axis)?, index));
        }
        let one = shape.with_dim(at, 1);
        let places = Tensor::full(place, one, DType::I64)?;
        let (x, places) = (self.swapaxes(axis, -1)?, places.swapaxes(axis, -1)?);
        let (value, index) = x.at_places(&places)?;
        Ok((value.swapaxes(axis, -1)?, index.swapaxes(axis, -1)?))
    }

    #[track_caller]
    fn best(&self, k: usize, axis: i64, largest: bool) -> Result<(Tensor, Tensor)> {
        let size = self.shape().dim(normalize_axis("topk", axis, self.rank())?);
        if !size.at_least(k) {
            return Err(Error::InvalidArgument(format!(
                "topk: {k} elements are requested along axis {axis}, which has {size}"
            )));
        }
        let size = u32::try_from(k).map_err(|_| {
            Error::InvalidArgument(format!("topk: at most {} elements, got {k}", u32::MAX))
        })?;
        let best = |result| {
            let op = Op::new(OpCode::TopK, Attrs::Library { result, flag: largest, size });
            self.by_rows("topk", axis, |x| Tensor::record(op, &[x]))
        };
        Ok((best(0)?, best(1)?))
    }
}

/// The side of equal elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Before them.
    Left,
    /// After them.
    Right,
}

/// The index (i64) for each value at which inserting it keeps the ascending vector `sorted` in
/// order: before or after equal elements. NaN is largest. With `sorter`,
/// `sorted` is first permuted by it.
///
/// Errors: a shape error unless `sorted` and `sorter` are vectors.
#[track_caller]
pub fn searchsorted(
    sorted: &Tensor,
    values: &Tensor,
    side: Side,
    sorter: Option<&Tensor>,
) -> Result<Tensor> {
    if sorted.rank() != 1 {
        let reason = "the sorted values must be a vector".to_string();
        let (op, shape) = ("searchsorted", sorted.shape());
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    }
    let dtype = sorted.dtype().promote(values.dtype())?;
    let mut sorted = sorted.astype(dtype)?;
    if let Some(sorter) = sorter {
        if sorter.shape() != sorted.shape() {
            let reason = "the sorter must have the sorted values' shape".to_string();
            let (op, lhs, rhs) = ("searchsorted", sorted.shape(), sorter.shape());
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        sorted = sorted.take(sorter, 0)?;
    }
    let shape: Vec<i64> = values.shape().iter().map(|&d| d as i64).collect();
    let flat = values.astype(dtype)?.reshape([values.numel() as i64])?;
    let op = Op::new(OpCode::SearchSorted, Attrs::routine(side == Side::Right));
    Tensor::record(op, &[&sorted, &flat])?.reshape(&shape)
}
