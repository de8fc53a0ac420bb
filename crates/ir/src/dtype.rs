//! Element types, their promotion table, and typed scalars ([`Literal`]).

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
    /// 16-bit unsigned integer.
    U16,
    /// 32-bit unsigned integer.
    U32,
    /// 64-bit unsigned integer.
    U64,
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
    /// Complex number of two f32: real part, then imaginary part.
    C64,
    /// Complex number of two f64: real part, then imaginary part.
    C128,
}

use DType::*;

/// The common dtype of two dtypes, by row and column in the order of [`DType::ALL`]. Bool is below
/// the integers, integers are below floats, and floats are below complex numbers. An integer never
/// widens a float. Two dtypes of one kind promote to the narrowest dtype that holds both. No
/// integer dtype holds both u64 and a signed integer, so this pair has no common dtype. A test
/// compares this table with the one in `docs/dtypes.md`.
#[rustfmt::skip]
static PROMOTION: [[Option<DType>; 15]; 15] = {
    const fn row(dtypes: [DType; 15]) -> [Option<DType>; 15] {
        let mut row = [None; 15];
        let mut i = 0;
        while i < 15 {
            row[i] = Some(dtypes[i]);
            i += 1;
        }
        row
    }
    /// A row without a common dtype in the columns `start..end`.
    const fn but(dtypes: [DType; 15], start: usize, end: usize) -> [Option<DType>; 15] {
        let mut row = row(dtypes);
        let mut i = start;
        while i < end {
            row[i] = None;
            i += 1;
        }
        row
    }
    [
        // bool u8   u16   u32   u64   i8    i16   i32   i64   f16   bf16  f32  f64  c64   c128
        row([Bool, U8,   U16,  U32,  U64,  I8,   I16,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128]),
        row([U8,   U8,   U16,  U32,  U64,  I16,  I16,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128]),
        row([U16,  U16,  U16,  U32,  U64,  I32,  I32,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128]),
        row([U32,  U32,  U32,  U32,  U64,  I64,  I64,  I64,  I64,  F16,  BF16, F32, F64, C64,  C128]),
        but([U64,  U64,  U64,  U64,  U64,  U64,  U64,  U64,  U64,  F16,  BF16, F32, F64, C64,  C128], 5, 9),
        but([I8,   I16,  I32,  I64,  I8,   I8,   I16,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128], 4, 5),
        but([I16,  I16,  I32,  I64,  I16,  I16,  I16,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128], 4, 5),
        but([I32,  I32,  I32,  I64,  I32,  I32,  I32,  I32,  I64,  F16,  BF16, F32, F64, C64,  C128], 4, 5),
        but([I64,  I64,  I64,  I64,  I64,  I64,  I64,  I64,  I64,  F16,  BF16, F32, F64, C64,  C128], 4, 5),
        row([F16,  F16,  F16,  F16,  F16,  F16,  F16,  F16,  F16,  F16,  F32,  F32, F64, C64,  C128]),
        row([BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, BF16, F32,  BF16, F32, F64, C64,  C128]),
        row([F32,  F32,  F32,  F32,  F32,  F32,  F32,  F32,  F32,  F32,  F32,  F32, F64, C64,  C128]),
        row([F64,  F64,  F64,  F64,  F64,  F64,  F64,  F64,  F64,  F64,  F64,  F64, F64, C128, C128]),
        row([C64,  C64,  C64,  C64,  C64,  C64,  C64,  C64,  C64,  C64,  C64,  C64, C128, C64, C128]),
        row([C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128, C128]),
    ]
};

impl DType {
    /// All dtypes, narrowest kind first.
    pub const ALL: [DType; 15] =
        [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64, C64, C128];

    /// Name that users write, equal to NumPy's.
    pub fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
            C64 => "complex64",
            C128 => "complex128",
        }
    }

    /// Short name that printed graphs use.
    pub fn short(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "u8",
            U16 => "u16",
            U32 => "u32",
            U64 => "u64",
            I8 => "i8",
            I16 => "i16",
            I32 => "i32",
            I64 => "i64",
            F16 => "f16",
            BF16 => "bf16",
            F32 => "f32",
            F64 => "f64",
            C64 => "c64",
            C128 => "c128",
        }
    }

    /// The dtype with this long or short name.
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
            U16 | I16 | F16 | BF16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 | C64 => 8,
            C128 => 16,
        }
    }

    /// True for f16, bf16, f32, f64.
    pub fn is_float(self) -> bool {
        matches!(self, F16 | BF16 | F32 | F64)
    }

    /// True for c64 and c128.
    pub fn is_complex(self) -> bool {
        matches!(self, C64 | C128)
    }

    /// True for floats and complex numbers: the dtypes of functions such as `exp` and of gradients.
    pub fn is_inexact(self) -> bool {
        self.is_float() || self.is_complex()
    }

    /// True for the integers, not for bool.
    pub fn is_int(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64 | I8 | I16 | I32 | I64)
    }

    /// True for the unsigned integers, not for bool.
    pub fn is_unsigned(self) -> bool {
        matches!(self, U8 | U16 | U32 | U64)
    }

    /// True for dtypes with negative values.
    pub fn is_signed(self) -> bool {
        self != Bool && !self.is_unsigned()
    }

    /// Smallest and largest value of an integer dtype (0 and 1 for bool).
    pub fn int_range(self) -> Option<(i128, i128)> {
        match self {
            Bool => Some((0, 1)),
            U8 => Some((0, u8::MAX.into())),
            U16 => Some((0, u16::MAX.into())),
            U32 => Some((0, u32::MAX.into())),
            U64 => Some((0, u64::MAX.into())),
            I8 => Some((i8::MIN.into(), i8::MAX.into())),
            I16 => Some((i16::MIN.into(), i16::MAX.into())),
            I32 => Some((i32::MIN.into(), i32::MAX.into())),
            I64 => Some((i64::MIN.into(), i64::MAX.into())),
            _ => None,
        }
    }

    /// The common dtype of two operands. Bool < integers < floats < complex; an integer never
    /// widens a float; two dtypes of one kind promote to the narrowest dtype that holds both.
    ///
    /// Errors: [`Error::NoCommonDType`] for u64 and a signed integer.
    pub fn promote(self, other: DType) -> Result<DType> {
        PROMOTION[self as usize][other as usize]
            .ok_or(Error::NoCommonDType { lhs: self, rhs: other })
    }

    /// The dtype of an inexact result computed from this dtype: itself if it is a float or complex
    /// dtype, f32 for integers and bool.
    pub fn to_float(self) -> DType {
        if self.is_inexact() { self } else { F32 }
    }

    /// The dtype of the real and imaginary part of a complex dtype; any other dtype is returned
    /// unchanged.
    pub fn real(self) -> DType {
        match self {
            C64 => F32,
            C128 => F64,
            other => other,
        }
    }

    /// The common dtype of this dtype and a complex number: c128 for f64 and c128, c64 for all
    /// others.
    pub fn complex(self) -> DType {
        if matches!(self, F64 | C128) { C128 } else { C64 }
    }

    /// The dtype in which composites compute: f32 for the half floats, because their sums overflow
    /// and their intermediate rounding errors add up; otherwise the dtype itself.
    pub fn widened(self) -> DType {
        if matches!(self, F16 | BF16) { F32 } else { self }
    }

    /// The accumulator dtype of sums and products: i64 for signed integers and bool, u64 for
    /// unsigned integers, otherwise the dtype itself.
    pub fn accumulator(self) -> DType {
        match self {
            dtype if dtype.is_inexact() => dtype,
            dtype if dtype.is_unsigned() => U64,
            _ => I64,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The names of all dtypes, for error messages.
pub(crate) fn names() -> String {
    DType::ALL.map(DType::name).join(", ")
}

/// A scalar with a dtype. `bits` is its little-endian memory, zero-extended to 64 bits. Two
/// literals are equal exactly when their bits are: -0.0 differs from 0.0, and a NaN equals itself.
///
/// A literal of a complex dtype is a real number: `bits` is its real part, and the imaginary part
/// is +0. The op `complex` builds other complex constants from two real constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Literal {
    /// Element type.
    pub dtype: DType,
    /// The value's memory (the real part of a complex number), zero-extended.
    pub bits: u64,
}

impl Literal {
    /// A literal from a float; integers truncate toward zero and saturate, bool is `value != 0`.
    pub fn from_f64(dtype: DType, value: f64) -> Literal {
        let bits = match dtype {
            Bool => (value != 0.0) as u64,
            U8 => value as u8 as u64,
            U16 => value as u16 as u64,
            U32 => value as u32 as u64,
            U64 => value as u64,
            I8 => value as i8 as u8 as u64,
            I16 => value as i16 as u16 as u64,
            I32 => value as i32 as u32 as u64,
            I64 => value as i64 as u64,
            F16 => f16::from_f64(value).to_bits() as u64,
            BF16 => bf16::from_f64(value).to_bits() as u64,
            F32 | C64 => (value as f32).to_bits() as u64,
            F64 | C128 => value.to_bits(),
        };
        Literal { dtype, bits }
    }

    /// A literal from an integer; narrower integers wrap, floats round to nearest, bool is
    /// `value != 0`.
    pub fn from_i64(dtype: DType, value: i64) -> Literal {
        Literal::from_int(dtype, value.into())
    }

    /// A literal from an integer of any width, by the rules of [`Literal::from_i64`].
    pub fn from_int(dtype: DType, value: i128) -> Literal {
        let bits = match dtype {
            Bool => (value != 0) as u64,
            U8 | I8 => value as u8 as u64,
            U16 | I16 => value as u16 as u64,
            U32 | I32 => value as u32 as u64,
            U64 | I64 => value as u64,
            F16 | BF16 | F64 | C128 => return Literal::from_f64(dtype, value as f64),
            F32 | C64 => (value as f32).to_bits() as u64,
        };
        Literal { dtype, bits }
    }

    /// The value as a float, rounded to nearest if f64 cannot represent the integer. The real part
    /// for a complex number.
    pub fn as_f64(self) -> f64 {
        match self.dtype {
            F16 => f16::from_bits(self.bits as u16).to_f64(),
            BF16 => bf16::from_bits(self.bits as u16).to_f64(),
            F32 | C64 => f32::from_bits(self.bits as u32) as f64,
            F64 | C128 => f64::from_bits(self.bits),
            _ => self.as_int() as f64,
        }
    }

    /// The value as an integer; u64 wraps, floats truncate toward zero and saturate.
    pub fn as_i64(self) -> i64 {
        match self.dtype.is_inexact() {
            true => self.as_f64() as i64,
            false => self.as_int() as i64,
        }
    }

    /// The value as an integer that holds every integer dtype's values; floats truncate toward
    /// zero.
    pub fn as_int(self) -> i128 {
        match self.dtype {
            Bool | U8 => (self.bits as u8).into(),
            U16 => (self.bits as u16).into(),
            U32 => (self.bits as u32).into(),
            U64 => self.bits.into(),
            I8 => (self.bits as i8).into(),
            I16 => (self.bits as i16).into(),
            I32 => (self.bits as i32).into(),
            I64 => (self.bits as i64).into(),
            _ => self.as_f64() as i128,
        }
    }

    /// Text that parses to the same bits: the displayed form if it does, otherwise the bits in
    /// hexadecimal.
    pub fn text(self) -> String {
        let shown = self.to_string();
        match Literal::parse(self.dtype, &shown) {
            Some(same) if same == self => shown,
            _ => format!("{:#x}", self.bits),
        }
    }

    /// Parses a value: `true`, a number, or the bits as `0x…`. `None` if the dtype cannot hold it.
    pub fn parse(dtype: DType, text: &str) -> Option<Literal> {
        let holds = |bits| Literal { dtype, bits };
        if let Some(hex) = text.strip_prefix("0x") {
            let bits = u64::from_str_radix(hex, 16).ok()?;
            let fits = dtype.size() >= 8 || bits >> (8 * dtype.size()) == 0;
            return (fits && (dtype != Bool || bits <= 1)).then(|| holds(bits));
        }
        if dtype == Bool {
            return text.parse::<bool>().ok().map(|value| holds(value.into()));
        }
        if !dtype.is_int() {
            return text.parse().ok().map(|value| Literal::from_f64(dtype, value));
        }
        let value: i128 = text.parse().ok()?;
        let literal = match i64::try_from(value) {
            Ok(value) => Literal::from_i64(dtype, value),
            Err(_) => holds(u64::try_from(value).ok()?),
        };
        (literal.as_int() == value).then_some(literal)
    }

    /// Converts to another dtype, by the rules of [`Literal::from_f64`] and [`Literal::from_int`].
    pub fn cast(self, dtype: DType) -> Literal {
        if self.dtype == dtype {
            self
        } else if self.dtype.is_inexact() {
            Literal::from_f64(dtype, self.as_f64())
        } else {
            Literal::from_int(dtype, self.as_int())
        }
    }

    /// True if the value is `v`; -0.0 and 0.0 are equal.
    pub fn is(self, v: f64) -> bool {
        self.as_f64() == v
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            Bool => write!(f, "{}", self.bits != 0),
            d if d.is_inexact() => write!(f, "{:?}", self.as_f64()),
            _ => write!(f, "{}", self.as_int()),
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
    fn promotion_is_commutative_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), Ok(a));
            for b in DType::ALL {
                let Ok(both) = a.promote(b) else {
                    assert!(a == U64 || b == U64, "{a} {b}");
                    assert!(b.promote(a).is_err(), "{a} {b}");
                    continue;
                };
                assert_eq!(b.promote(a), Ok(both));
                assert_eq!(both.promote(a), Ok(both), "{a} {b}");
            }
        }
        assert_eq!(U8.promote(I8), Ok(I16));
        assert_eq!(U32.promote(I8), Ok(I64));
        assert_eq!(I64.promote(F16), Ok(F16));
        assert_eq!(U64.promote(BF16), Ok(BF16));
        assert_eq!(F16.promote(BF16), Ok(F32));
        assert_eq!(F64.promote(C64), Ok(C128));
        assert_eq!(U64.promote(I8), Err(Error::NoCommonDType { lhs: U64, rhs: I8 }));
    }

    #[test]
    fn two_integers_meet_in_the_narrowest_that_holds_both() {
        let ints = || DType::ALL.into_iter().filter(|d| d.is_int());
        let holds = |wide: DType, d: DType| {
            let (a, b) = (wide.int_range().unwrap(), d.int_range().unwrap());
            a.0 <= b.0 && b.1 <= a.1
        };
        for a in ints() {
            for b in ints() {
                let fitting = ints().filter(|&d| holds(d, a) && holds(d, b));
                assert_eq!(a.promote(b).ok(), fitting.min_by_key(|d| d.size()), "{a} {b}");
            }
        }
    }

    /// The table in the documentation equals the promotion table.
    #[test]
    fn the_documented_promotions_are_the_table() {
        let text = include_str!("../../../docs/dtypes.md");
        let cells = |line: &str| -> Vec<String> {
            line.split('|').map(|c| c.trim_matches([' ', '*']).to_string()).collect()
        };
        let mut lines = text.lines().skip_while(|l| !l.contains("| bool | u8"));
        let header = cells(lines.next().expect("docs/dtypes.md has a table of promotions"));
        let rows: Vec<Vec<String>> =
            lines.skip(1).take_while(|l| l.starts_with('|')).map(cells).collect();
        assert_eq!(rows.len(), DType::ALL.len());
        for row in rows {
            for (column, cell) in header.iter().zip(&row).skip(2).filter(|(c, _)| !c.is_empty()) {
                let (a, b) = (DType::parse(&row[1]).unwrap(), DType::parse(column).unwrap());
                let expected = a.promote(b).map_or("—", DType::short);
                assert_eq!(cell, expected, "docs/dtypes.md: {a} and {b}");
            }
        }
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
        assert_eq!(Literal::from_int(U64, u64::MAX.into()).as_int(), u64::MAX.into());
        assert_eq!(Literal::from_int(U64, u64::MAX.into()).as_i64(), -1);
        assert_eq!(Literal::from_i64(U16, -1).as_i64(), 65535);
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
