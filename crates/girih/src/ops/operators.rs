//! Operators: `&a + &b * 2.0`. An operator returns a tensor, not a `Result`, so that formulas stay
//! readable. If an op cannot be recorded (shapes or dtypes that do not fit), the operator returns a
//! tensor that carries the error. Further operators propagate the error, and the next function that
//! takes the tensor and returns a `Result` returns the error with the line of the operator.
//! [`Tensor::check`] returns it immediately.
//!
//! Other array libraries panic (ndarray, burn, mlx-rs) or return a `Result` from operators
//! (candle), which cannot be an operand of another operator or of generic code
//! (`T: Add<Output = T>`). A value that represents an error until it is read corresponds to NaN in
//! floating-point arithmetic. Unlike NaN, the error cannot go unnoticed, because it never becomes a
//! number.

use super::elementwise::{Operand, binary};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, OpCode, Shape, TensorSpec};
use num_complex::Complex64;
use std::panic::Location;

/// The result of an operator: the tensor, or one that carries the error, with the spec that the
/// user probably expects.
#[track_caller]
fn settled(result: Result<Tensor>, spec: impl FnOnce() -> TensorSpec) -> Tensor {
    // Not a closure, because `Location::caller` must return the caller of the operator.
    let error = match result {
        Ok(tensor) => return tensor,
        // Keep a propagated error, which has the line of the operator that failed.
        Err(error @ Error::Operator { .. }) => error,
        Err(source) => {
            let at = Location::caller().to_string();
            Error::Operator { source: Box::new(source), at }
        }
    };
    Tensor::failed(&spec(), error)
}

/// The larger size of each axis, as if the shapes were broadcastable.
fn larger(a: Shape, b: Shape) -> Shape {
    let rank = a.rank().max(b.rank());
    let at = |s: &Shape, i: usize| (i + s.rank()).checked_sub(rank).map_or(1.into(), |i| s.dim(i));
    let larger = |i: usize| {
        let (a, b) = (at(&a, i), at(&b, i));
        if a.hint() >= b.hint() { a } else { b }
    };
    Shape::of_dims((0..rank).map(larger))
}

#[track_caller]
fn operator(code: OpCode, a: Operand<'_>, b: Operand<'_>) -> Tensor {
    let spec = || match (a, b) {
        (Operand::Tensor(a), Operand::Tensor(b)) => {
            let dtype = a.dtype().promote(b.dtype()).unwrap_or(a.dtype());
            TensorSpec { shape: larger(a.shape(), b.shape()), dtype }
        }
        (Operand::Tensor(t), _) | (_, Operand::Tensor(t)) => t.spec(),
        _ => TensorSpec::scalar(DType::F32),
    };
    settled(binary(code, a, b), spec)
}

macro_rules! operators {
    ($($trait:ident $method:ident $assign:ident $assign_method:ident $code:ident,)*) => {
        $(impl<'a, T: Into<Operand<'a>>> std::ops::$trait<T> for &Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                operator(OpCode::$code, Operand::Tensor(self), other.into())
            }
        }

        impl<'a, T: Into<Operand<'a>>> std::ops::$trait<T> for Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: T) -> Tensor {
                operator(OpCode::$code, Operand::Tensor(&self), other.into())
            }
        }

        impl std::ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                operator(OpCode::$code, Operand::Tensor(self), Operand::Tensor(&other))
            }
        }

        impl std::ops::$trait<Tensor> for Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                operator(OpCode::$code, Operand::Tensor(&self), Operand::Tensor(&other))
            }
        }

        /// Replaces this handle; other handles of the tensor are unchanged.
        impl<'a, T: Into<Operand<'a>>> std::ops::$assign<T> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, other: T) {
                *self = operator(OpCode::$code, Operand::Tensor(self), other.into());
            }
        }

        /// Replaces this handle; other handles of the tensor are unchanged.
        impl std::ops::$assign<Tensor> for Tensor {
            #[track_caller]
            fn $assign_method(&mut self, other: Tensor) {
                *self = operator(OpCode::$code, Operand::Tensor(self), Operand::Tensor(&other));
            }
        }

        numbers! { $trait $method $code bool i64 f64 Complex64 })*
    };
}

/// Operators with a number on the left. Only one integer type and one float type have them, so that
/// literals need no suffix.
macro_rules! numbers {
    ($trait:ident $method:ident $code:ident $($number:ty)*) => {
        $(impl std::ops::$trait<&Tensor> for $number {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor {
                operator(OpCode::$code, self.into(), Operand::Tensor(other))
            }
        }

        impl std::ops::$trait<Tensor> for $number {
            type Output = Tensor;

            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor {
                operator(OpCode::$code, self.into(), Operand::Tensor(&other))
            }
        })*
    };
}

operators! {
    Add add AddAssign add_assign Add,
    Sub sub SubAssign sub_assign Sub,
    Mul mul MulAssign mul_assign Mul,
    Div div DivAssign div_assign Div,
    Rem rem RemAssign rem_assign Remainder,
    Shl shl ShlAssign shl_assign ShiftLeft,
    Shr shr ShrAssign shr_assign ShiftRight,
    BitAnd bitand BitAndAssign bitand_assign And,
    BitOr bitor BitOrAssign bitor_assign Or,
    BitXor bitxor BitXorAssign bitxor_assign Xor,
}

macro_rules! unary {
    ($($trait:ident $method:ident $name:ident,)*) => {
        $(impl std::ops::$trait for &Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self) -> Tensor {
                settled(Tensor::$name(self), || self.spec())
            }
        }

        impl std::ops::$trait for Tensor {
            type Output = Tensor;

            #[track_caller]
            fn $method(self) -> Tensor {
                settled(Tensor::$name(&self), || self.spec())
            }
        })*
    };
}

unary! {
    Neg neg neg,
    Not not bitwise_not,
}
