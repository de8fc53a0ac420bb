//! Elementwise methods, dtype promotion, and scalar operands.
//!
//! Tensor operands are converted to the dtype of [`DType::promote`]. Scalars are weakly typed: they
//! take the tensor's dtype unless their kind is wider (a float with integers gives f32, an integer
//! with bool gives i64, a complex number with reals the complex dtype of their precision), and the
//! dtype must be able to represent them. Division and functions of real numbers convert integers to
//! f32. Scalar arguments of a program, and sizes, are weakly typed like numbers.

use super::default_int;
use crate::{Result, Tensor, precision};
use girih_ir::{Attrs, DType, Dim, Literal, Op, OpCode, Shape};
use num_complex::Complex64;
use std::borrow::Cow;
use std::f64::consts::PI;

/// An operand: a tensor, or a weakly typed scalar.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i128),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex64),
    /// A real number whose value is known at run time: an f64 tensor of rank 0 that is weakly typed
    /// like [`Operand::Float`].
    Weak(&'a Tensor),
    /// A size, possibly symbolic, that is weakly typed like [`Operand::Int`].
    Size(Dim),
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

operand_from!(
    bool => Bool, i32 => Int, i64 => Int, u32 => Int, u64 => Int, f32 => Float, f64 => Float,
    Complex64 => Complex
);

impl From<usize> for Operand<'_> {
    fn from(value: usize) -> Self {
        Operand::Int(value as i128)
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Operand::Tensor(tensor)
    }
}

impl<'a> Operand<'a> {
    /// The common dtype of the operand and a tensor of dtype `other`.
    fn meet(self, other: DType) -> Result<DType> {
        Ok(match self {
            Operand::Tensor(t) => return Ok(t.dtype().promote(other)?),
            Operand::Bool(_) => other,
            Operand::Int(_) | Operand::Size(_) if other == DType::Bool => default_int(),
            Operand::Int(_) | Operand::Size(_) => other,
            Operand::Float(_) | Operand::Weak(_) => other.to_float(),
            Operand::Complex(_) => other.complex(),
        })
    }

    /// The dtype of a scalar without a tensor operand.
    fn own_dtype(self) -> DType {
        match self {
            Operand::Tensor(t) => t.dtype(),
            Operand::Bool(_) => DType::Bool,
            Operand::Int(_) | Operand::Size(_) => default_int(),
            Operand::Float(_) | Operand::Weak(_) => DType::F32,
            Operand::Complex(_) => DType::C64,
        }
    }

    /// Converts the operand to a tensor of dtype `dtype`; scalars become constants of shape `[]`.
    #[track_caller]
    fn into_tensor(self, dtype: DType) -> Result<Cow<'a, Tensor>> {
        let literal = match self {
            Operand::Tensor(t) if t.dtype() == dtype => return Ok(Cow::Borrowed(t)),
            Operand::Tensor(t) => return Ok(Cow::Owned(t.astype(dtype)?)),
            Operand::Bool(v) => Literal::from_i64(dtype, v as i64),
            Operand::Int(v) => int_literal(v, dtype)?,
            Operand::Float(v) => Literal::from_f64(dtype, v),
            Operand::Complex(v) => return complex_scalar(v, dtype).map(Cow::Owned),
            Operand::Weak(t) => return Ok(Cow::Owned(t.astype(dtype)?)),
            Operand::Size(size) => match size.known() {
                Some(size) => int_literal(size as i128, dtype)?,
                None => return Tensor::of_size(size).astype(dtype).map(Cow::Owned),
            },
        };
        Ok(Cow::Owned(Tensor::constant(literal, Shape::scalar())))
    }

    /// Converts a scalar to a tensor of shape `[]`.
    ///
    /// Errors: for a number that the dtype cannot represent.
    #[track_caller]
    pub(crate) fn constant(self, dtype: DType) -> Result<Tensor> {
        self.into_tensor(dtype).map(Cow::into_owned)
    }
}

/// Converts a scalar to a tensor of shape `[]`, of the given dtype or the scalar's default dtype.
///
/// Errors: for an integer that the dtype cannot represent.
#[track_caller]
pub fn number(value: Operand<'_>, dtype: Option<DType>) -> Result<Tensor> {
    value.constant(dtype.unwrap_or(value.own_dtype()))
}

/// An integer as a literal of `dtype`, which must be able to represent it.
pub(crate) fn int_literal(value: i128, dtype: DType) -> Result<Literal> {
    match dtype.int_range() {
        Some((min, max)) if !(min..=max).contains(&value) => {
            Err(girih_ir::Error::ScalarOutOfRange {
                value: value.to_string(),
                dtype,
                hint: "convert the tensor to a wider dtype first",
            }
            .into())
        }
        _ => Ok(Literal::from_int(dtype, value)),
    }
}

/// Converts an operand to a tensor of the dtype of the tensor that it is stored in, as `astype`
/// does: reals are truncated to integers.
///
/// Errors: for an integer, or the integer part of a real number, that the dtype cannot represent.
#[track_caller]
pub(crate) fn value_in(value: Operand<'_>, dtype: DType) -> Result<Tensor> {
    if let (Operand::Float(v), true) = (value, dtype.is_int()) {
        let (whole, bound) = (v.trunc(), 2f64.powi(64));
        if !(-bound..bound).contains(&whole) {
            let (value, hint) = (v.to_string(), "only finite numbers in its range become integers");
            return Err(girih_ir::Error::ScalarOutOfRange { value, dtype, hint }.into());
        }
        return Ok(Tensor::constant(int_literal(whole as i128, dtype)?, Shape::scalar()));
    }
    value.into_tensor(dtype).map(Cow::into_owned)
}

/// The order of the kinds of numbers, for "same kind" casting.
fn kind(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        d if d.is_int() => 1 + d.is_signed() as u8,
        d if d.is_float() => 3,
        _ => 4,
    }
}

/// Fails unless the result of an op on a tensor of `dtype` and the value can be stored in `dtype`
/// again, as an in-place update requires (NumPy's "same kind" casting).
pub fn kept_dtype(
    op: &'static str,
    code: Option<OpCode>,
    dtype: DType,
    value: Operand<'_>,
) -> Result<()> {
    let logical =
        matches!(code, Some(OpCode::And | OpCode::Or | OpCode::Xor | OpCode::Add | OpCode::Mul));
    let extremum = matches!(code, Some(OpCode::Minimum | OpCode::Maximum));
    let met = value.meet(dtype)?;
    let result = match code {
        Some(OpCode::Div) => met.to_float(),
        _ if met == DType::Bool && !logical && !extremum => default_int(),
        _ => met,
    };
    // A wider tensor of the same kind is allowed.
    if kind(result) <= kind(dtype) {
        return Ok(());
    }
    let expected = "a dtype that holds the result; convert the tensor with astype first";
    Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into())
}

/// A complex number as a tensor of shape `[]`; a single constant if it is real.
#[track_caller]
fn complex_scalar(value: Complex64, dtype: DType) -> Result<Tensor> {
    if !dtype.is_complex() {
        let (value, hint) = (value.to_string(), "a complex number needs complex64 or complex128");
        return Err(girih_ir::Error::ScalarOutOfRange { value, dtype, hint }.into());
    }
    let constant = |dtype, v| Tensor::constant(Literal::from_f64(dtype, v), Shape::scalar());
    if value.im.to_bits() == 0 {
        return Ok(constant(dtype, value.re));
    }
    let (re, im) = (constant(dtype.real(), value.re), constant(dtype.real(), value.im));
    Tensor::record(OpCode::Complex.into(), &[&re, &im])
}

/// The common dtype of two operands.
pub(super) fn common_dtype(a: Operand<'_>, b: Operand<'_>) -> Result<DType> {
    match (a, b) {
        (Operand::Tensor(t), other) | (other, Operand::Tensor(t)) => other.meet(t.dtype()),
        (a, b) => b.meet(a.own_dtype()),
    }
}

/// Records a binary op on operands of any kind. The methods use this function, and so do front
/// ends.
#[track_caller]
pub fn binary(code: OpCode, a: Operand<'_>, b: Operand<'_>) -> Result<Tensor> {
    // Fast path: most operands are tensors of one dtype that need no conversion.
    if let (Operand::Tensor(a), Operand::Tensor(b)) = (a, b)
        && a.dtype() == b.dtype()
        && computed_in(code, a.dtype()) == a.dtype()
    {
        if code == OpCode::Logaddexp && a.dtype().is_complex() {
            return complex_logaddexp(a, b);
        }
        return Tensor::record(code.into(), &[a, b]);
    }
    let met = common_dtype(a, b)?;
    // As in NumPy, PyTorch and JAX, a sum of bools is their disjunction.
    let code = match code {
        OpCode::Add if met == DType::Bool => OpCode::Or,
        OpCode::Mul if met == DType::Bool => OpCode::And,
        code => code,
    };
    let dtype = computed_in(code, met);
    // The exponent determines the computation (a square, a root), so it is part of the program.
    let known =
        matches!(b, Operand::Bool(_) | Operand::Int(_) | Operand::Float(_) | Operand::Complex(_));
    let scalar_exponent = code == OpCode::Pow && known;
    let (a, mut b) = (a.into_tensor(dtype)?, b.into_tensor(dtype)?);
    if scalar_exponent {
        b = Cow::Owned(b.into_owned().into_literal());
    }
    if code == OpCode::Logaddexp && dtype.is_complex() {
        return complex_logaddexp(&a, &b);
    }
    Tensor::record(code.into(), &[&a, &b])
}

/// `log(exp(a) + exp(b))` of complex numbers, with an imaginary part in `[-pi, pi]`. The operand
/// with the larger real part is factored out, so that nothing overflows.
#[track_caller]
fn complex_logaddexp(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let first = a.real()?.ge(&b.real()?)?;
    let (larger, smaller) = (where_(&first, a, b)?, where_(&first, b, a)?);
    // Where the larger exponential is 0 or infinite, the difference may be one of infinities.
    let infinite = larger.real()?.isinf()?;
    let rest = where_(&infinite, 0.0, &smaller.sub(&larger)?)?.exp()?.log1p()?;
    principal(&where_(&infinite, &larger, &larger.add(&rest)?)?)
}

/// Complex numbers as logarithms: with an imaginary part in `[-pi, pi]`, and the same exponential.
#[track_caller]
pub(super) fn principal(x: &Tensor) -> Result<Tensor> {
    let angle = x.imag()?;
    let turns = angle.div(2.0 * PI)?.round()?.stop_gradient()?;
    x.real()?.complex(&angle.sub(&turns.mul(2.0 * PI)?)?)
}

/// Selects `a` where the condition is true, else `b`.
///
/// Errors: a dtype error for a condition that is not bool.
#[track_caller]
pub fn where_<'a, 'b>(
    condition: &Tensor,
    a: impl Into<Operand<'a>>,
    b: impl Into<Operand<'b>>,
) -> Result<Tensor> {
    let (a, b) = (a.into(), b.into());
    let dtype = common_dtype(a, b)?;
    let (a, b) = (a.into_tensor(dtype)?, b.into_tensor(dtype)?);
    Tensor::record(OpCode::Where.into(), &[condition, &a, &b])
}

/// Defines a unary method; the first token is the table's rule for the operand's dtype.
macro_rules! unary_method {
    (own $name:ident $code:ident $doc:literal) => {};
    (keep $name:ident $code:ident $doc:literal) => {
        #[doc = $doc]
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            Tensor::record(OpCode::$code.into(), &[self])
        }
    };
    (real $name:ident $code:ident $doc:literal) => {
        #[doc = $doc]
        ///
        /// Integers and bool become f32 first.
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            let x = self.float_for(OpCode::$code)?;
            Tensor::record(OpCode::$code.into(), &[&x])
        }
    };
    (whole $name:ident $code:ident $doc:literal) => {
        #[doc = $doc]
        ///
        /// Integers and bool are returned unchanged.
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            match self.dtype().is_inexact() {
                true => Tensor::record(OpCode::$code.into(), &[self]),
                false => Ok(self.clone()),
            }
        }
    };
    (test $name:ident $code:ident $doc:literal) => {
        #[doc = $doc]
        #[track_caller]
        pub fn $name(&self) -> Result<Tensor> {
            let finite = OpCode::$code == OpCode::IsFinite;
            match self.dtype() {
                d if d.is_float() => Tensor::record(OpCode::$code.into(), &[self]),
                d if d.is_complex() => {
                    // A complex number is finite if both parts are; it is infinite or NaN if a part
                    // is.
                    let (re, im) = (self.real()?.$name()?, self.imag()?.$name()?);
                    if finite { re.bitwise_and(&im) } else { re.bitwise_or(&im) }
                }
                _ => Tensor::full(finite, self.shape(), DType::Bool),
            }
        }
    };
}

/// Defines the methods of the elementwise table, and the compute dtypes of the binary ops.
macro_rules! methods {
    (
        unary { $($how:ident $unary:ident $ucode:ident $udef:path, $up:ident $udoc:literal;)* }
        binary { $($how2:ident $binary:ident $bcode:ident $bdef:path, $bp:ident $bdoc:literal;)* }
    ) => {
        impl Tensor {
            $(unary_method! { $how $unary $ucode $udoc })*

            $(#[doc = $bdoc]
            ///
            /// Operands broadcast, and are converted to a common dtype.
            #[track_caller]
            pub fn $binary<'a>(&self, other: impl Into<Operand<'a>>) -> Result<Tensor> {
                binary(OpCode::$bcode, Operand::Tensor(self), other.into())
            })*
        }

        /// The dtype in which a binary op computes, for operands with the common dtype `dtype`.
        fn computed_in(code: OpCode, dtype: DType) -> DType {
            let dtype = match code {
                $(OpCode::$bcode => computed_in!($how2 dtype),)*
                _ => dtype,
            };
            precision::computed_in(code, dtype)
        }
    };
}

macro_rules! computed_in {
    (keep $dtype:ident) => {
        $dtype
    };
    (real $dtype:ident) => {
        $dtype.to_float()
    };
    (part $dtype:ident) => {
        if $dtype == DType::F64 { $dtype } else { DType::F32 }
    };
    (count $dtype:ident) => {
        if $dtype == DType::Bool { default_int() } else { $dtype }
    };
}

girih_ir::elementwise_table! { methods }

impl Tensor {
    /// Converts the elements to another dtype; the same tensor if it has the dtype already.
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

    /// Each element rounded to the nearest integer, ties to even; for complex numbers, each part.
    /// Integers and bool are returned unchanged.
    #[track_caller]
    pub fn round(&self) -> Result<Tensor> {
        match self.dtype() {
            d if d.is_float() => Tensor::record(OpCode::Round.into(), &[self]),
            d if d.is_complex() => self.real()?.round()?.complex(&self.imag()?.round()?),
            _ => Ok(self.clone()),
        }
    }

    /// Each element rounded to `decimals` decimal places, ties to even. A negative number rounds to
    /// tens, hundreds and so on, integers too.
    #[track_caller]
    pub fn round_to(&self, decimals: i32) -> Result<Tensor> {
        let dtype = self.dtype();
        let power = 10f64.powi(decimals.saturating_abs());
        let scaled = |x: &Tensor| match decimals {
            0 => x.round(),
            1.. => x.mul(power)?.round()?.div(power),
            _ => x.div(power)?.round()?.mul(power),
        };
        match dtype {
            d if d.is_complex() => scaled(&self.real()?)?.complex(&scaled(&self.imag()?)?),
            d if d.is_float() => {
                let rounded = scaled(&self.astype(d.widened())?)?.astype(d)?;
                // An element whose scaling overflows, an infinity or a NaN is returned unchanged.
                where_(&rounded.isfinite()?, &rounded, self)
            }
            d if d.is_int() && decimals < 0 => scaled(&self.astype(DType::F64)?)?.astype(d),
            _ => Ok(self.clone()),
        }
    }

    /// The complex conjugate of each element; the same tensor if it is real.
    #[track_caller]
    pub fn conj(&self) -> Result<Tensor> {
        match self.dtype().is_complex() {
            true => Tensor::record(OpCode::Conj.into(), &[self]),
            false => Ok(self.clone()),
        }
    }

    /// The real part of each element; the same tensor if it is real.
    #[track_caller]
    pub fn real(&self) -> Result<Tensor> {
        match self.dtype().is_complex() {
            true => Tensor::record(OpCode::Real.into(), &[self]),
            false => Ok(self.clone()),
        }
    }

    /// The imaginary part of each element; zeros if the tensor is real.
    #[track_caller]
    pub fn imag(&self) -> Result<Tensor> {
        match self.dtype().is_complex() {
            true => Tensor::record(OpCode::Imag.into(), &[self]),
            false => Tensor::zeros(self.shape(), self.dtype()),
        }
    }

    /// The angle of each element in the complex plane, in `[-pi, pi]`; for real numbers 0 or pi.
    ///
    /// Integers and bool become f32 first.
    #[track_caller]
    pub fn angle(&self) -> Result<Tensor> {
        let x = self.astype(self.dtype().to_float())?;
        match x.dtype().is_complex() {
            true => x.imag()?.atan2(&x.real()?),
            // Use `atan2` with a zero, so that NaN stays NaN.
            false => binary(OpCode::Atan2, Operand::Float(0.0), Operand::Tensor(&x)),
        }
    }

    /// True for elements that are zero (or false).
    #[track_caller]
    pub fn logical_not(&self) -> Result<Tensor> {
        self.astype(DType::Bool)?.bitwise_not()
    }

    /// True where both elements are nonzero.
    #[track_caller]
    pub fn logical_and(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.bitwise_and(&b)
    }

    /// True where at least one element is nonzero.
    #[track_caller]
    pub fn logical_or(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.bitwise_or(&b)
    }

    /// True where exactly one element is nonzero.
    #[track_caller]
    pub fn logical_xor(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.astype(DType::Bool)?, other.astype(DType::Bool)?);
        a.bitwise_xor(&b)
    }

    /// The square of each element.
    #[track_caller]
    pub fn square(&self) -> Result<Tensor> {
        self.mul(self)
    }

    /// The `p`-th root of non-negative numbers, with the derivative 0 at 0.
    #[track_caller]
    pub(super) fn safe_root(&self, p: f64) -> Result<Tensor> {
        let zero = self.eq(0.0)?;
        let safe = where_(&zero, 1.0, self)?;
        let root = if p == 2.0 { safe.sqrt()? } else { safe.pow(1.0 / p)? };
        where_(&zero, 0.0, &root)
    }

    /// The reciprocal of each element.
    #[track_caller]
    pub fn reciprocal(&self) -> Result<Tensor> {
        binary(OpCode::Div, Operand::Float(1.0), Operand::Tensor(self))
    }

    /// Each element limited to `[min, max]`. NaN stays NaN. [`Tensor::maximum`] and
    /// [`Tensor::minimum`] limit on one side.
    #[doc(alias = "clamp")]
    #[track_caller]
    pub fn clip<'a, 'b>(
        &self,
        min: impl Into<Operand<'a>>,
        max: impl Into<Operand<'b>>,
    ) -> Result<Tensor> {
        self.clip_to(Some(min.into()), Some(max.into()))
    }

    /// Like [`Tensor::clip`]; either bound or both may be omitted.
    #[track_caller]
    pub fn clip_to(&self, min: Option<Operand<'_>>, max: Option<Operand<'_>>) -> Result<Tensor> {
        let lower = |x: &Tensor, min| binary(OpCode::Maximum, Operand::Tensor(x), min);
        let upper = |x: &Tensor, max| binary(OpCode::Minimum, Operand::Tensor(x), max);
        match (min, max) {
            (Some(min), Some(max)) => upper(&lower(self, min)?, max),
            (Some(min), None) => lower(self, min),
            (None, Some(max)) => upper(self, max),
            (None, None) => Ok(self.clone()),
        }
    }

    /// The Gaussian error linear unit, `x * Phi(x)`, by erf.
    #[track_caller]
    pub fn gelu(&self) -> Result<Tensor> {
        self.gelu_by(false)
    }

    /// The Gaussian error linear unit by the tanh approximation of Hendrycks and Gimpel 2016.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Result<Tensor> {
        self.gelu_by(true)
    }

    #[track_caller]
    pub(crate) fn gelu_by(&self, tanh: bool) -> Result<Tensor> {
        let x = self.astype(self.dtype().to_float())?;
        Tensor::record(Op::new(OpCode::Gelu, Attrs::Approximate(tanh)), &[&x])
    }
}
