//! Values for handles that are updated in place: `x += y`, and a parameter that an optimiser
//! updates. A tensor's value never changes; a front end gives its handle the value of these
//! functions, which have the dtype, the shape and the gradient of the value before.

use super::Operand;
use super::elementwise::{binary, kept_dtype};
use crate::{Context, Error, Result, Tensor};
use girih_ir::OpCode;

/// Fails if an in-place operator would change the shape.
fn same_shape(op: &'static str, old: &Tensor, new: &Tensor) -> Result<()> {
    if old.shape() == new.shape() {
        return Ok(());
    }
    let (lhs, rhs) = (old.shape(), new.shape());
    let reason = "an operator in place keeps the shape of its left side (first)".into();
    Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into())
}

impl Tensor {
    /// The value of `self op= other`: the operator's result, in the dtype of `self`.
    ///
    /// Errors: [`girih_ir::Error::DTypeUnsupported`] if the dtype of `self` cannot hold the result;
    /// [`girih_ir::Error::ShapeMismatch`] if the result has another shape.
    #[track_caller]
    pub fn in_place(&self, code: OpCode, other: Operand<'_>) -> Result<Tensor> {
        let op = code.def().name;
        kept_dtype(op, Some(code), self.dtype(), other)?;
        let new = binary(code, Operand::Tensor(self), other)?;
        same_shape(op, self, &new)?;
        new.astype(self.dtype())
    }

    /// The value of `self @= other`.
    ///
    /// Errors: as [`Tensor::in_place`], and those of [`Tensor::matmul`].
    #[track_caller]
    pub fn matmul_in_place(&self, other: &Tensor) -> Result<Tensor> {
        kept_dtype("matmul", Some(OpCode::Mul), self.dtype(), Operand::Tensor(other))?;
        let new = self.matmul(other)?;
        same_shape("matmul", self, &new)?;
        new.astype(self.dtype())
    }

    /// Prepares this tensor as the new value of a handle that holds `old`. If `old` is a variable (a
    /// leaf that requires a gradient), this tensor becomes the variable.
    ///
    /// Errors: [`Error::InvalidArgument`] for a variable while gradients are recorded, because its
    /// gradient is of the value that it has; those of [`Tensor::take_place_of`].
    pub fn prepare_to_replace(&self, old: &Tensor) -> Result<()> {
        if !old.requires_grad() || !old.is_leaf() {
            return Ok(());
        }
        if Context::current().grad() {
            return Err(Error::InvalidArgument(format!(
                "assignment: {} requires a gradient, which is of the value that it has; assign to it \
                 under gr.no_grad(), or assign to a copy (+x)",
                old.spec()
            )));
        }
        // A parameter that is updated in place remains a parameter.
        self.take_place_of(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, no_grad};

    fn ones(shape: impl Into<girih_ir::Shape>, dtype: DType) -> Tensor {
        Tensor::ones(shape, dtype).unwrap()
    }

    #[test]
    fn an_operator_in_place_keeps_dtype_and_shape() {
        let x = ones([2], DType::F16);
        let new = x.in_place(OpCode::Add, Operand::Tensor(&ones([2], DType::F64))).unwrap();
        assert_eq!(new.spec(), x.spec());
        let wide = x.in_place(OpCode::Add, Operand::Tensor(&ones([3, 2], DType::F16)));
        assert!(wide.unwrap_err().to_string().contains("keeps the shape of its left side"));
        let counts = ones([2], DType::I32);
        assert!(counts.in_place(OpCode::Div, Operand::Int(2)).is_err());
        let (a, b) = (ones([2, 2], DType::F32), ones([2, 2], DType::F64));
        assert_eq!(a.matmul_in_place(&b).unwrap().dtype(), DType::F32);
        assert!(a.matmul_in_place(&ones([2, 3], DType::F32)).is_err());
    }

    #[test]
    fn a_variable_is_replaced_without_gradients_only_and_stays_a_variable() {
        let x = ones([2], DType::F32);
        x.set_requires_grad(true).unwrap();
        let new = no_grad(|| x.add(1.0)).unwrap();
        let error = new.prepare_to_replace(&x).unwrap_err().to_string();
        assert!(error.contains("requires a gradient"), "{error}");
        assert!(!new.requires_grad());
        no_grad(|| new.prepare_to_replace(&x)).unwrap();
        assert!(new.requires_grad() && new.is_leaf());
        // Other values are replaced by anything.
        ones([3], DType::F32).prepare_to_replace(&ones([2], DType::F32)).unwrap();
    }
}
