//! Matrix products, softmax, layer normalisation and cross entropy.

use crate::{Result, Tensor, precision};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, DType, Dim, Op, OpCode, Real, Shape};

impl Tensor {
    /// Matrix product with NumPy's rules: vectors are rows or columns, leading axes broadcast.
    ///
    /// Errors: a shape error for scalars and for inner sizes that differ.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        let dtype = self.dtype().promote(other.dtype())?;
        let dtype = precision::computed_in(OpCode::Matmul, dtype);
        self.astype(dtype)?.product(&other.astype(dtype)?)
    }

    /// As [`Tensor::matmul`], but autocast does not apply.
    #[track_caller]
    pub(crate) fn product(&self, other: &Tensor) -> Result<Tensor> {
        // A product of bool matrices is a count, like a sum of bool.
        let dtype = match self.dtype().promote(other.dtype())? {
            DType::Bool => crate::default_int(),
            dtype => dtype,
        };
        let (a, b) = (self.astype(dtype)?, other.astype(dtype)?);
        let (a_shape, b_shape) = (a.shape(), b.shape());
        let scalar = a_shape.rank() == 0 || b_shape.rank() == 0;
        let (k_a, k_b) = match scalar {
            true => (0.into(), 1.into()),
            false => {
                (a_shape.dim(a_shape.rank() - 1), b_shape.dim(b_shape.rank().saturating_sub(2)))
            }
        };
        if !k_a.equals(k_b) {
            let reason = match scalar {
                true => "neither may be a scalar; use * for that".to_string(),
                false => format!("the inner sizes {k_a} and {k_b} must be equal"),
            };
            let (op, lhs, rhs) = ("matmul", a_shape, b_shape);
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let row = if a_shape.rank() == 1 { a.unsqueeze(0)? } else { a };
        let column = if b_shape.rank() == 1 { b.unsqueeze(1)? } else { b };
        let mut out = Tensor::record(OpCode::Matmul.into(), &[&row, &column])?;
        if b_shape.rank() == 1 {
            out = out.squeeze(-1)?;
        }
        if a_shape.rank() == 1 {
            let axis = if b_shape.rank() == 1 { -1 } else { -2 };
            out = out.squeeze(axis)?;
        }
        Ok(out)
    }

    #[track_caller]
    fn along(&self, code: OpCode, axis: i64) -> Result<Tensor> {
        let x = self.float_for(code)?;
        let axis = normalize_axis(code.def().name, axis, self.rank())?;
        Tensor::record(Op::new(code, Attrs::Axis(axis as u8)), &[&x])
    }

    /// Applies a function along the last axis to several axes together: they are merged to one last
    /// axis, and restored in the result.
    ///
    /// Errors: an axis error for an axis that the tensor does not have, or has twice; those of the
    /// function.
    #[track_caller]
    pub fn over_axes(
        &self,
        op: &'static str,
        axes: &[i64],
        f: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let shape = self.shape();
        let set = girih_ir::ops::reduce::axis_set(op, Some(axes), shape.rank())?;
        let kept: Vec<usize> = (0..shape.rank()).filter(|&axis| !set.contains(axis)).collect();
        let order: Vec<usize> = kept.iter().copied().chain(set.iter()).collect();
        let merged = set.iter().map(|axis| shape.dim(axis)).product::<Dim>();
        let rows = kept.iter().map(|&axis| shape.dim(axis)).chain([merged]);
        let moved = self.permute(order.iter().map(|&axis| axis as i64).collect::<Vec<_>>())?;
        let out = f(&moved.reshape(rows.collect::<Shape>())?)?.reshape(moved.shape())?;
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| back[from] = to as i64);
        out.permute(back)
    }

    /// Exponentials normalised to sum to one along an axis.
    #[track_caller]
    pub fn softmax(&self, axis: i64) -> Result<Tensor> {
        self.along(OpCode::Softmax, axis)
    }

    /// The logarithm of softmax, without underflow.
    #[track_caller]
    pub fn log_softmax(&self, axis: i64) -> Result<Tensor> {
        self.along(OpCode::LogSoftmax, axis)
    }

    /// Normalises over the last `ndims` axes, then scales by `weight` and shifts by `bias`, both of
    /// the normalised axes' shape.
    ///
    /// Errors: a shape error for a weight or bias of another shape.
    #[track_caller]
    pub fn layer_norm(
        &self,
        ndims: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        super::norm::check_eps("layer_norm", eps)?;
        let x = self.float_for(OpCode::LayerNorm)?;
        let ndims = u8::try_from(ndims).unwrap_or(u8::MAX);
        let op = Op::new(OpCode::LayerNorm, Attrs::Norm { ndims, eps: Real::from(eps) });
        match (weight, bias) {
            (None, None) => Tensor::record(op, &[&x]),
            (Some(w), None) => Tensor::record(op, &[&x, &w.astype(x.dtype())?]),
            (Some(w), Some(b)) => {
                Tensor::record(op, &[&x, &w.astype(x.dtype())?, &b.astype(x.dtype())?])
            }
            (None, Some(b)) => {
                let normalised = x.shape().part(x.rank().saturating_sub(ndims.into())..);
                let ones = Tensor::ones(normalised, x.dtype())?;
                Tensor::record(op, &[&x, &ones, &b.astype(x.dtype())?])
            }
        }
    }

    /// The negative log-likelihood of integer labels under the softmax of these logits, per row.
    /// The classes are on the last axis; the labels have the shape of the other axes.
    #[track_caller]
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        let logits = self.float_for(OpCode::CrossEntropy)?;
        Tensor::record(OpCode::CrossEntropy.into(), &[&logits, labels])
    }
}
