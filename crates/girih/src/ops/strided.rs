//! Strided views in the style of PyTorch: elements of the flattened tensor, addressed by strides.
//! They do not refer to the tensor's memory: the elements are gathered, and the derivative of the
//! gather adds overlapping elements.

use super::index::Update;
use crate::{Error, Result, Tensor};
use girih_ir::{DType, Shape};

impl Tensor {
    /// The elements at `offset + i0 * strides[0] + i1 * strides[1] + ...` of the flattened tensor,
    /// for all indices of a tensor of shape `size`. Elements may occur more than once, and a negative
    /// stride runs backwards.
    ///
    /// Errors: [`Error::InvalidArgument`] unless there is one stride per size, and for a position
    /// before the first element or beyond the last.
    #[track_caller]
    pub fn as_strided(&self, size: &[usize], strides: &[i64], offset: usize) -> Result<Tensor> {
        let indices = self.strided("as_strided", size, strides, offset)?;
        self.reshape(-1)?.take(&indices, 0)
    }

    /// The tensor with the elements of [`Tensor::as_strided`] replaced by those of `source`. If
    /// several elements replace the same element, the last of these in row-major order wins.
    ///
    /// Errors: as [`Tensor::as_strided`]; a shape error unless the source has the shape `size`.
    #[track_caller]
    pub fn as_strided_scatter(
        &self,
        source: &Tensor,
        size: &[usize],
        strides: &[i64],
        offset: usize,
    ) -> Result<Tensor> {
        let indices = self.strided("as_strided_scatter", size, strides, offset)?;
        let source = source.astype(self.dtype())?;
        let flat = self.reshape(-1)?;
        flat.scatter(&indices, &source, 0, Update::Set)?.reshape(self.shape())
    }

    /// The positions in the flattened tensor, in row-major order.
    fn strided(&self, op: &str, size: &[usize], strides: &[i64], offset: usize) -> Result<Tensor> {
        let invalid = |reason: String| Error::InvalidArgument(format!("{op}: {reason}"));
        if size.len() != strides.len() {
            return Err(invalid(format!(
                "{} strides are given for {} sizes; give one for each axis",
                strides.len(),
                size.len()
            )));
        }
        let shape = Shape::from(size);
        shape.check("as_strided", DType::I64)?;
        let count = self.shape().numel();
        if !shape.has_no_elements() {
            let (mut first, mut last) = (offset as i128, offset as i128);
            for (&size, &stride) in size.iter().zip(strides) {
                let reach = (size as i128 - 1).saturating_mul(stride.into());
                let end = if reach < 0 { &mut first } else { &mut last };
                *end = end.saturating_add(reach);
            }
            if first < 0 || last >= count as i128 {
                let reached = if first < 0 { first } else { last };
                return Err(invalid(format!(
                    "sizes {size:?} with strides {strides:?} from {offset} reach element {reached}, \
                     but the tensor has {count}"
                )));
            }
        }
        let mut indices = Tensor::full(offset as i64, shape.clone(), DType::I64)?;
        for (axis, (&size, &stride)) in size.iter().zip(strides).enumerate() {
            if size > 1 && stride != 0 {
                let along = Tensor::iota(shape.clone(), axis, DType::I64)?;
                indices = indices.add(&along.mul(stride)?)?;
            }
        }
        Ok(indices)
    }
}
