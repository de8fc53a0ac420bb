//! Elementwise methods, dtype promotion and scalars.
//!
//! Tensors meet in [`DType::promote`]'s dtype. Scalars are weak: they take the tensor's dtype unless
//! they are of a wider kind (a float meeting integers gives f32, an integer meeting bool gives
//! i64), and must fit it. Division and functions of real numbers turn integers into f32.

use super::default_int;
use crate::{Error, Result, Tensor};
use girih_ir::{Attrs, DType, Literal, Op, OpCode, Shape};
use std::borrow::Cow;

/// An operand: a tensor, or a scalar that adapts to the other operand.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
}

macro_rules! operand_from {
    ($($ty:ty => $variant:ident),*) => {
        $(impl From<$ty> for Operand<'_> {
            fn from(value: $ty) -> Self {
                Operand::$variant(value.into())
            }
        })*
    };
}

operand_from!(bool => Bool, i32 => Int, i64 => Int, u32 => Int, f32 => Float, f64 => Float);

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Operand::Tensor(tensor)
    }
}

impl<'a> Operand<'a> {
    /// The dtype in which the operand meets a tensor of `other`.
    fn meet(self, other: DType) -> DType {
        match self {
            Operand::Tensor(t) => t.dtype().promote(other),
            Operand::Bool(_) => other,
            Operand::Int(_) if other == DType::Bool => default_int(),
            Operand::Int(_) => other,
            Operand::Float(_) => other.to_float(),
        }
    }

    /// The dtype of a scalar on its own.
    fn own_dtype(self) -> DType {
        match self {
            Operand::Tensor(t) => t.dtype(),
            Operand::Bool(_) => DType::Bool,
            Operand::Int(_) => default_int(),
            Operand::Float(_) => DType::F32,
        }
    }

    /// As a tensor of that dtype; scalars become constants of shape `[]`.
    #[track_caller]
    fn into_tensor(self, dtype: DType) -> Result<Cow<'a, Tensor>> {
        let literal = match self {
            Operand::Tensor(t) if t.dtype() == dtype => return Ok(Cow::Borrowed(t)),
            Operand::Tensor(t) => return Ok(Cow::Owned(t.astype(dtype)?)),
            Operand::Bool(v) => Literal::from_i64(dtype, v as i64),
            Operand::Int(v) => int_literal(v, dtype)?,
            Operand::Float(v) => Literal::from_f64(dtype, v),
        };
        Ok(Cow::Owned(Tensor::constant(literal, Shape::scalar())))
    }
}

/// An integer as a scalar of a dtype that must hold it.
pub(crate) fn int_literal(value: i64, dtype: DType) -> Result<Literal> {
    match dtype.int_range() {
        Some((min, max)) if !(min..=max).contains(&value) => {
            Err(girih_ir::Error::ScalarOutOfRange {
                value: value.to_string(),
                dtype,
                hint: "convert the tensor to a wider dtype first",
            }
            .into())
        }
        _ => Ok(Literal::from_i64(dtype, value)),
    }
}

/// The dtype two operands meet in.
fn common_dtype(a: Operand<'_>, b: Operand<'_>) -> DType {
    match (a, b) {
        (Operand::Tensor(t), other) | (other, Operand::Tensor(t)) => other.meet(t.dtype()),
        (a, b) => b.meet(a.own_dtype()),
    }
}

/// Records a binary op on operands of any kind: the methods' common path, for front ends.
#[track_caller]
pub fn binary(code: OpCode, a: Operand<'_>, b: Operand<'_>) -> Result<Tensor> {
    let mut dtype = common_dtype(a, b);
    match code {
        OpCode::Div | OpCode::Atan2 => dtype = dtype.to_float(),
        // Arithmetic on truth values counts.
        OpCode::Add
        | OpCode::Mul
        | OpCode::Sub
        | OpCode::Pow
        | OpCode::FloorDivide
        | OpCode::Remainder
            if dtype == DType::Bool =>
        {
            dtype = default_int();
        }
        _ => {}
    }
    // An exponent says what is computed (a square, a root), so it is part of the program.
    let scalar_exponent = code == OpCode::Pow && !matches!(b, Operand::Tensor(_));
    let (a, mut b) = (a.into_tensor(dtype)?, b.into_tensor(dtype)?);
    if scalar_exponent {
        b = Cow::Owned(b.into_owned().into_literal());
    }
    Tensor::record(code.into(), &[&a, &b])
}

/// `a` where the condition is true, else `b`.
///
/// Errors: the condition must be of dtype bool.
#[track_caller]
pub fn where_<'a, 'b>(
    condition: &Tensor,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'b>>,
) -> Result<Tensor> {
    let (a, b) = (a.into(), b.into());
    let dtype = common_dtype(a, b);
    let (a, b) = (a.into_tensor(dtype)?, b.into_tensor(dtype)?);
    Tensor::record(OpCode::Where.into(), &[condition, &a, &b])
}

macro_rules! real_functions {
    ($($name:ident $code:ident $doc:literal,)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// Integers and bool become f32 first.
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                let x = self.astype(self.dtype().to_float())?;
                Tensor::record(OpCode::$code.into(), &[&x])
            })*
        }
    };
}

real_functions! {
    exp Exp "The exponential of each element.",
    expm1 Expm1 "exp(x) - 1, accurate near zero.",
    exp2 Exp2 "Two to the power of each element.",
    log Log "The natural logarithm of each element.",
    log1p Log1p "log(1 + x), accurate near zero.",
    log2 Log2 "The base-2 logarithm of each element.",
    log10 Log10 "The base-10 logarithm of each element.",
    sqrt Sqrt "The square root of each element.",
    rsqrt Rsqrt "One over the square root of each element.",
    sin Sin "The sine of each element.",
    cos Cos "The cosine of each element.",
    tan Tan "The tangent of each element.",
    asin Asin "The inverse sine of each element.",
    acos Acos "The inverse cosine of each element.",
    atan Atan "The inverse tangent of each element.",
    sinh Sinh "The hyperbolic sine of each element.",
    cosh Cosh "The hyperbolic cosine of each element.",
    tanh Tanh "The hyperbolic tangent of each element.",
    asinh Asinh "The inverse hyperbolic sine of each element.",
    acosh Acosh "The inverse hyperbolic cosine of each element.",
    atanh Atanh "The inverse hyperbolic tangent of each element.",
    erf Erf "The error function of each element.",
    sigmoid Sigmoid "The logistic function of each element.",
    log_sigmoid LogSigmoid "The logarithm of the logistic function of each element.",
    silu Silu "Each element times its logistic function.",
    softplus Softplus "log(1 + exp(x)) of each element.",
}

macro_rules! unary_methods {
    ($($name:ident $code:ident $doc:literal,)*) => {
        impl Tensor {
            $(#[doc = $doc]
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                Tensor::record(OpCode::$code.into(), &[self])
            })*
        }
    };
}

unary_methods! {
    neg Neg "The negative of each element; wraps for unsigned integers.",
    sign Sign "-1, 0 or 1 by the sign of each element; NaN for NaN.",
    relu Relu "Each element, or zero where it is negative.",
    logical_or_bitwise_not Not "Logical not of bool, bitwise not of integers.",
    stop_gradient StopGradient "The same value, held constant by gradients.",
}

macro_rules! whole_number_functions {
    ($($name:ident $code:ident $doc:literal,)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// Integers and bool are returned unchanged.
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                match self.dtype().is_float() {
                    true => Tensor::record(OpCode::$code.into(), &[self]),
                    false => Ok(self.clone()),
                }
            })*
        }
    };
}

whole_number_functions! {
    floor Floor "Each element rounded down.",
    ceil Ceil "Each element rounded up.",
    round Round "Each element rounded to nearest, ties to even.",
    trunc Trunc "Each element rounded toward zero.",
}

macro_rules! classifications {
    ($($name:ident $code:ident $otherwise:literal $doc:literal,)*) => {
        impl Tensor {
            $(#[doc = $doc]
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                match self.dtype().is_float() {
                    true => Tensor::record(OpCode::$code.into(), &[self]),
                    false => Tensor::full($otherwise, self.shape(), DType::Bool),
                }
            })*
        }
    };
}

classifications! {
    isnan IsNan false "True where an element is NaN.",
    isinf IsInf false "True where an element is infinite.",
    isfinite IsFinite true "True where an element is neither NaN nor infinite.",
}

macro_rules! binary_methods {
    ($($name:ident $code:ident $doc:literal,)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// Operands broadcast, and meet in a common dtype.
            #[track_caller]
            pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
                binary(OpCode::$code, Operand::Tensor(self), other.into())
            })*
        }
    };
}

binary_methods! {
    add Add "The sum.",
    sub Sub "The difference.",
    mul Mul "The product.",
    div Div "The quotient; f32 for integers.",
    floor_divide FloorDivide "The quotient rounded down; 0 for integer division by zero.",
    remainder Remainder "The remainder of floor division, signed as the divisor.",
    pow Pow "The power.",
    maximum Maximum "The larger of two, NaN if either is.",
    minimum Minimum "The smaller of two, NaN if either is.",
    atan2 Atan2 "The angle of the point (other, self).",
    logical_or_bitwise_and And "Logical and of bool, bitwise and of integers.",
    logical_or_bitwise_or Or "Logical or of bool, bitwise or of integers.",
    logical_or_bitwise_xor Xor "Exclusive or of bool, bitwise exclusive or of integers.",
    eq Eq "True where both are equal.",
    ne Ne "True where they differ.",
    lt Lt "True where this is less than the other.",
    le Le "True where this is at most the other.",
    gt Gt "True where this is greater than the other.",
    ge Ge "True where this is at least the other.",
}

impl Tensor {
    /// The elements in another dtype; the same tensor if it has it already.
    #[track_caller]
    pub fn astype(&self, dtype: DType) -> Result<Tensor> {
        match self.dtype() == dtype {
            true => Ok(self.clone()),
            false => Tensor::record(Op::new(OpCode::Cast, Attrs::DType(dtype)), &[self]),
        }
    }

    /// The absolute value of each element; bool is returned unchanged.
    #[track_caller]
    pub fn abs(&self) -> Result<Tensor> {
        match self.dtype() {
            DType::Bool => Ok(self.clone()),
            _ => Tensor::record(OpCode::Abs.into(), &[self]),
        }
    }

    /// True where an element is zero (or false).
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        self.astype(DType::Bool)?.logical_or_bitwise_not()
    }

    /// True where both are nonzero.
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.logical_or_bitwise_and(&b)
    }

    /// True where either is nonzero.
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.logical_or_bitwise_or(&b)
    }

    /// True where exactly one is nonzero.
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.logical_or_bitwise_xor(&b)
    }

    /// Each element times itself.
    #[track_caller]
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// One over each element.
    #[track_caller]
    pub fn reciprocal(&self) -> Result<Tensor> {
        binary(OpCode::Div, Operand::Float(1.0), Operand::Tensor(self))
    }

    /// Each element limited to `[min, max]`; either bound may be left out. NaN stays NaN.
    ///
    /// Errors: [`Error::InvalidArgument`] if both are left out.
    #[track_caller]
    pub fn clip(&self, min: Option<Operand<'_>>, max: Option<Operand<'_>>) -> Result<Tensor> {
        let lower = |x: &Tensor, min| binary(OpCode::Maximum, Operand::Tensor(x), min);
        let upper = |x: &Tensor, max| binary(OpCode::Minimum, Operand::Tensor(x), max);
        match (min, max) {
            (Some(min), Some(max)) => upper(&lower(self, min)?, max),
            (Some(min), None) => lower(self, min),
            (None, Some(max)) => upper(self, max),
            (None, None) => {
                Err(Error::InvalidArgument("clip: give at least one of min and max".into()))
            }
        }
    }

    /// The Gaussian error linear unit: `x * Phi(x)` by erf, or the tanh approximation of
    /// Hendrycks and Gimpel 2016.
    #[track_caller]
    pub fn gelu(&self, tanh: bool) -> Result<Tensor> {
        let x = self.astype(self.dtype().to_float())?;
        Tensor::record(Op::new(OpCode::Gelu, Attrs::Approximate(tanh)), &[&x])
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $name:ident,)*) => {
        $(impl<'a, T: Into<Operand<'a>>> std::ops::$trait<T> for &Tensor {
            type Output = Result<Tensor>;

            #[track_caller]
            fn $method(self, other: T) -> Result<Tensor> {
                self.$name(other)
            }
        })*
    };
}

operators! {
    Add add add,
    Sub sub sub,
    Mul mul mul,
    Div div div,
    Rem rem remainder,
    BitAnd bitand logical_or_bitwise_and,
    BitOr bitor logical_or_bitwise_or,
    BitXor bitxor logical_or_bitwise_xor,
}

impl std::ops::Neg for &Tensor {
    type Output = Result<Tensor>;

    #[track_caller]
    fn neg(self) -> Result<Tensor> {
        Tensor::neg(self)
    }
}
