//! Searches whose results have a given size, so that they evaluate nothing and may be compiled:
//! further elements are left out, and a fill takes the place of missing ones.

use super::{Unique, Update};
use crate::ops::value_in;
use crate::{Error, Nans, Operand, Result, Tensor, where_};
use girih_ir::{DType, Shape};

impl Tensor {
    /// The positions of the first `size` nonzero elements in row-major order (i64), and -1 for
    /// missing ones.
    #[track_caller]
    fn first_nonzero(&self, size: usize) -> Result<Tensor> {
        let found = self.astype(DType::Bool)?.reshape(-1)?;
        let index = Tensor::iota(found.shape(), 0, DType::I64)?;
        found.by_rank(&found.astype(DType::I64)?.cumsum(0)?.sub(1)?, &index, size, -1)
    }

    /// `size` elements of this mask's `values`, each at its `rank`; `fill` where there is none.
    #[track_caller]
    fn by_rank<'a>(
        &self,
        rank: &Tensor,
        values: &Tensor,
        size: usize,
        fill: impl Into<Operand<'a>>,
    ) -> Result<Tensor> {
        // One more element receives everything that has no place.
        let at = where_(self, rank, size as i64)?.minimum(size as i64)?;
        let start = value_in(fill.into(), values.dtype())?.broadcast_to(Shape::from([size + 1]))?;
        start.scatter(&at, values, 0, Update::Set)?.narrow(0, 0, size)
    }

    /// The positions of the first `size` nonzero elements in row-major order (i64). `fill` takes the
    /// place of missing ones.
    #[track_caller]
    pub fn flatnonzero_of(&self, size: usize, fill: i64) -> Result<Tensor> {
        let flat = self.first_nonzero(size)?;
        where_(&flat.lt(0)?, fill, &flat)
    }

    /// The indices of the first `size` nonzero elements in row-major order: one tensor per axis
    /// (i64, one axis). `fill` takes the place of missing ones.
    ///
    /// Errors: a shape error for a scalar.
    #[track_caller]
    pub fn nonzero_of(&self, size: usize, fill: i64) -> Result<Vec<Tensor>> {
        let shape = self.shape();
        if shape.rank() == 0 {
            let (op, reason) = ("nonzero", "a scalar has no axes; reshape it to [1]".into());
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let flat = self.first_nonzero(size)?;
        let missing = flat.lt(0)?;
        let along = |(&stride, &size): (&isize, &usize)| {
            let (stride, size) = (stride.max(1) as i64, size.max(1) as i64);
            where_(&missing, fill, &flat.floor_divide(stride)?.remainder(size)?)
        };
        shape.strides().iter().zip(shape.iter()).map(along).collect()
    }

    /// The `size` smallest distinct elements and their origins, as [`Tensor::unique_along`] without an
    /// axis. Where there
    /// are fewer, values are `fill`, by default the smallest element, indices those of the smallest
    /// element, and counts 0. The inverse has the index of each element's value among all distinct
    /// elements.
    ///
    /// Errors: a dtype error for a fill that the dtype cannot represent, and for complex numbers;
    /// [`Error::InvalidArgument`] for a tensor without elements, unless there is a fill.
    #[track_caller]
    pub fn unique_of(&self, size: usize, fill: Option<Operand<'_>>, nans: Nans) -> Result<Unique> {
        let (dtype, shape) = (self.dtype(), self.shape());
        let fill = fill.map(|fill| value_in(fill, dtype)).transpose()?;
        let flat = self.reshape(-1)?;
        let count = flat.shape().dim(0);
        if count.equals(0) {
            let none = |size: usize| Tensor::zeros([size], DType::I64);
            let Some(fill) = fill.or((size == 0).then(|| Tensor::zeros([], dtype)).transpose()?)
            else {
                return Err(Error::InvalidArgument(format!(
                    "unique: {size} of no elements are asked for; give a fill_value"
                )));
            };
            let values = fill.broadcast_to(Shape::from([size]))?;
            let inverse = Tensor::zeros(shape, DType::I64)?;
            return Ok(Unique { values, indices: none(size)?, inverse, counts: none(size)? });
        }
        let plain = if dtype == DType::Bool { flat.astype(DType::U8)? } else { flat.clone() };
        let order = plain.argsort(0)?;
        let sorted = plain.take(&order, 0)?;
        // Each element after sorting begins a group unless it equals the one before it.
        let before = sorted.roll(&[1], Some(&[0]))?;
        let index = Tensor::iota(flat.shape(), 0, DType::I64)?;
        let mut differs = sorted.ne(&before)?;
        if nans == Nans::Equal && dtype.is_float() {
            let both = sorted.isnan()?.bitwise_and(&before.isnan()?)?;
            differs = differs.bitwise_and(&both.logical_not()?)?;
        }
        let begins = differs.bitwise_or(&index.eq(0)?)?;
        let group = begins.astype(DType::I64)?.cumsum(0)?.sub(1)?;
        let first = |x: &Tensor| x.narrow(0, 0, 1)?.squeeze(..);
        let fill = match fill {
            Some(fill) => fill,
            None => first(&sorted)?.astype(dtype)?,
        };
        let values = begins.by_rank(&group, &sorted.astype(dtype)?, size, &fill)?;
        let indices = begins.by_rank(&group, &order, size, &first(&order)?)?;
        let inverse = Tensor::zeros(flat.shape(), DType::I64)?;
        let inverse = inverse.scatter(&order, &group, 0, Update::Set)?.reshape(shape)?;
        let ones = Tensor::ones(flat.shape(), DType::I64)?;
        let counts = Tensor::zeros([size + 1], DType::I64)?;
        let counts = counts.scatter(&group.minimum(size as i64)?, &ones, 0, Update::Add)?;
        Ok(Unique { values, indices, inverse, counts: counts.narrow(0, 0, size)? })
    }
}
