//! Element types, their one promotion table, and typed scalars ([`Literal`]).

use crate::{Error, Result};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum DType {
    /// Truth value, one byte, 0 or 1.
    Bool,
    /// 8-bit unsigned integer.
    U8,
    /// 8-bit signed integer.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// IEEE 754 binary16; computed in f32, rounded after each op.
    F16,
    /// bfloat16; computed in f32, rounded after each op.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

use DType::*;

impl DType {
    /// All dtypes, narrowest kind first.
    pub const ALL: [DType; 10] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];

    /// Name as users write it, NumPy's.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }

    /// Short name, as graphs print it.
    pub fn short(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "u8",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
        }
    }

    /// The dtype of that long or short name.
    ///
    /// Errors: [`Error::UnknownDType`].
    pub fn parse(name: &str) -> Result<DType> {
        DType::ALL
            .into_iter()
            .find(|d| d.name() == name || d.short() == name)
            .ok_or_else(|| Error::UnknownDType { name: name.to_string() })
    }

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    /// True for f16, bf16, f32, f64.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// True for the integers, not for bool.
    pub fn is_int(self) -> bool {
        matches!(self, U8 | I8 | I16 | I32 | I64)
    }

    /// True for dtypes with negative values.
    pub fn is_signed(self) -> bool {
        self.is_float() || (self.is_int() && self != U8)
    }

    /// Smallest and largest value of an integer dtype (0 and 1 for bool).
    pub fn int_range(self) -> Option<(i64, i64)> {
        match self {
            Bool => Some((0, 1)),
            U8 => Some((0, u8::MAX as i64)),
            I8 => Some((i8::MIN as i64, i8::MAX as i64)),
            I16 => Some((i16::MIN as i64, i16::MAX as i64)),
            I32 => Some((i32::MIN as i64, i32::MAX as i64)),
            I64 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The dtype two tensors' elements meet in: bool < integers < floats; an integer never widens
    /// a float; two integers or two floats meet in the narrowest dtype that holds both.
    pub fn promote(self, other: DType) -> DType {
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        match (a, b) {
            (a, b) if a == b => a,
            (Bool, b) => b,
            (U8, I8) => I16,
            (F16, BF16) => F32,
            // Within a kind the order of the variants is the order of the values they hold, and
            // across kinds floats come last.
            (_, b) => b,
        }
    }

    /// The dtype of a floating-point result computed from this dtype: itself if it is one, f32
    /// for integers and bool.
    pub fn to_float(self) -> DType {
        if self.is_float() { self } else { F32 }
    }

    /// The dtype composites compute in: f32 for the half floats, whose sums overflow and whose
    /// intermediate roundings add up; itself otherwise.
    pub fn widened(self) -> DType {
        if matches!(self, F16 | BF16) { F32 } else { self }
    }

    /// The dtype sums and products are taken in: integers and bool accumulate in i64.
    pub fn accumulator(self) -> DType {
        if self.is_float() { self } else { I64 }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of all dtypes, for messages.
pub(crate) fn names() -> String {
    DType::ALL.map(DType::name).join(", ")
}

/// A scalar of a given dtype. `bits` is its little-endian memory, zero-extended to 64 bits, so two
/// literals are equal exactly when their bits are: -0.0 differs from 0.0 and a NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Literal {
    /// Element type.
    pub dtype: DType,
    /// Memory of the value, zero-extended.
    pub bits: u64,
}

impl Literal {
    /// From a float; integers truncate toward zero and saturate, bool is `value != 0`.
    pub fn from_f64(dtype: DType, value: f64) -> Literal {
        let bits = match dtype {
            Bool => (value != 0.0) as u64,
            U8 => value as u8 as u64,
            I8 => value as i8 as u8 as u64,
            I16 => value as i16 as u16 as u64,
            I32 => value as i32 as u32 as u64,
            I64 => value as i64 as u64,
            F16 => f16::from_f64(value).to_bits() as u64,
            BF16 => bf16::from_f64(value).to_bits() as u64,
            F32 => (value as f32).to_bits() as u64,
            F64 => value.to_bits(),
        };
        Literal { dtype, bits }
    }

    /// From an integer; narrower integers wrap, floats round to nearest, bool is `value != 0`.
    pub fn from_i64(dtype: DType, value: i64) -> Literal {
        let bits = match dtype {
            Bool => (value != 0) as u64,
            U8 | I8 => value as u8 as u64,
            I16 => value as u16 as u64,
            I32 => value as u32 as u64,
            I64 => value as u64,
            F16 | BF16 | F64 => return Literal::from_f64(dtype, value as f64),
            F32 => (value as f32).to_bits() as u64,
        };
        Literal { dtype, bits }
    }

    /// As a float, rounded to nearest where f64 cannot hold the integer.
    pub fn as_f64(self) -> f64 {
        match self.dtype {
            F16 => f16::from_bits(self.bits as u16).to_f64(),
            BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            F32 => f32::from_bits(self.bits as u32) as f64,
            F64 => f64::from_bits(self.bits),
            _ => self.as_i64() as f64,
        }
    }

    /// As an integer; floats truncate toward zero and saturate.
    pub fn as_i64(self) -> i64 {
        match self.dtype {
            Bool | U8 => self.bits as u8 as i64,
            I8 => self.bits as i8 as i64,
            I16 => self.bits as i16 as i64,
            I32 => self.bits as i32 as i64,
            I64 => self.bits as i64,
            _ => self.as_f64() as i64,
        }
    }

    /// Converted to another dtype, by the rules of [`Literal::from_f64`] and
    /// [`Literal::from_i64`].
    pub fn cast(self, dtype: DType) -> Literal {
        if self.dtype == dtype {
            self
        } else if self.dtype.is_float() {
            Literal::from_f64(dtype, self.as_f64())
        } else {
            Literal::from_i64(dtype, self.as_i64())
        }
    }

    /// True if the value is `v` (any zero for 0).
    pub fn is(self, v: f64) -> bool {
        self.as_f64() == v
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            Bool => write!(f, "{}", self.bits != 0),
            d if d.is_float() => write!(f, "{:?}", self.as_f64()),
            _ => write!(f, "{}", self.as_i64()),
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}:{}", self.dtype.short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_associative_up_to_float16_pairs_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert_eq!(a.promote(b).promote(a), a.promote(b), "{a} {b}");
            }
        }
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(U8.promote(I16), I16);
    }

    #[test]
    fn literals_round_trip_the_values_their_dtype_holds() {
        for d in DType::ALL {
            for v in [0.0, 1.0] {
                assert_eq!(Literal::from_f64(d, v).as_f64(), v, "{d}");
            }
        }
        assert_eq!(Literal::from_i64(I8, -3).as_i64(), -3);
        assert_eq!(Literal::from_f64(I32, -3.7).as_i64(), -3);
        assert_ne!(Literal::from_f64(F32, -0.0), Literal::from_f64(F32, 0.0));
        assert_eq!(Literal::from_f64(F32, f64::NAN), Literal::from_f64(F32, f64::NAN));
        assert_eq!(Literal::from_i64(F32, 16_777_217).as_f64(), 16_777_216.0);
    }

    #[test]
    fn unknown_names_are_errors_that_list_the_known_ones() {
        let err = DType::parse("float33").unwrap_err();
        assert!(err.to_string().contains("float33") && err.to_string().contains("bfloat16"));
        assert_eq!(DType::parse("f32"), Ok(F32));
    }
}
