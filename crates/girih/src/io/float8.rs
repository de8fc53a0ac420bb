//! Floats of 8 bits in files. There is no dtype for them: they are read as float16, which has all of
//! their values, and written from any float that is near enough to one of them.

use crate::{Error, Result, Tensor};
use girih_ir::DType;

/// A float of 8 bits, as it is written to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float8 {
    /// 4 bits of exponent and 3 of fraction, without infinities: up to 448.
    E4M3,
    /// 5 bits of exponent and 2 of fraction: up to 57344.
    E5M2,
}

impl Float8 {
    /// The name of the dtype in `.safetensors`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Float8::E4M3 => "F8_E4M3",
            Float8::E5M2 => "F8_E5M2",
        }
    }

    /// The format with this name in `.safetensors`.
    pub(super) fn named(name: &str) -> Option<Float8> {
        [Float8::E4M3, Float8::E5M2].into_iter().find(|format| format.name() == name)
    }

    /// The float16 with the value of a byte.
    pub(super) fn to_f16(self, byte: u8) -> u16 {
        match self {
            Float8::E4M3 => from_e4m3(byte),
            // The upper half of the float16.
            Float8::E5M2 => u16::from(byte) << 8,
        }
    }

    /// The bits of the largest number.
    fn last(self) -> u8 {
        match self {
            Float8::E4M3 => 0x7e,
            Float8::E5M2 => 0x7b,
        }
    }

    /// The numbers that are not negative, in the order of their bits.
    fn numbers(self) -> Vec<f64> {
        let value = |byte: u8| {
            let bits = self.to_f16(byte).into();
            girih_ir::Literal { dtype: DType::F16, bits }.as_f64()
        };
        (0..=self.last()).map(value).collect()
    }

    /// The bytes of a tensor's elements, each rounded to the nearest number, ties to even.
    ///
    /// Errors: [`Error::InvalidArgument`] for a tensor of another kind than floats, and for an
    /// element that no number is near to; evaluation's.
    pub(super) fn bytes(self, name: &str, tensor: &Tensor) -> Result<Vec<u8>> {
        if !tensor.dtype().is_float() {
            return Err(Error::InvalidArgument(format!(
                "'{name}' is {}, and {} is for floats",
                tensor.spec(),
                self.name()
            )));
        }
        let numbers = self.numbers();
        let values: Vec<f64> = tensor.astype(DType::F64)?.to_vec()?;
        let byte = |value: &f64| {
            self.byte(&numbers, *value).ok_or_else(|| {
                Error::InvalidArgument(format!(
                    "'{name}' has the element {value}, and the largest {} is {}; scale it first, or \
                     clip it",
                    self.name(),
                    numbers[numbers.len() - 1]
                ))
            })
        };
        values.iter().map(byte).collect()
    }

    /// The byte of the nearest number; `None` for a value beyond the largest.
    fn byte(self, numbers: &[f64], value: f64) -> Option<u8> {
        let (sign, size) = (if value.is_sign_negative() { 0x80 } else { 0 }, value.abs());
        if value.is_nan() {
            return Some(sign | 0x7f);
        }
        if value.is_infinite() {
            return (self == Float8::E5M2).then_some(sign | 0x7c);
        }
        let above = numbers.partition_point(|&number| number < size);
        let last = numbers.len() - 1;
        let (low, high) = (
            numbers[above.saturating_sub(1)],
            match numbers.get(above) {
                Some(&number) => number,
                // The number that would follow the largest.
                None => 2.0 * numbers[last] - numbers[last - 1],
            },
        );
        let is_low = above > 0
            && match (size - low).total_cmp(&(high - size)) {
                std::cmp::Ordering::Equal => above % 2 == 1,
                order => order.is_lt(),
            };
        let at = if is_low { above - 1 } else { above };
        (at <= last).then_some(sign | at as u8)
    }
}

/// The float16 of an E4M3 without infinities ("fn").
fn from_e4m3(byte: u8) -> u16 {
    let (byte, sign) = (u16::from(byte & 0x7f), u16::from(byte & 0x80) << 8);
    let (exponent, digits) = (byte >> 3, byte & 7);
    sign | match (exponent, digits) {
        (15, 7) => 0x7e00,
        (0, 0) => 0,
        // Multiples of 2^-9, which are normal numbers of float16.
        (0, _) => {
            let top = 15 - digits.leading_zeros() as u16;
            (top + 6) << 10 | (digits << (10 - top)) & 0x3ff
        }
        _ => (exponent + 8) << 10 | digits << 7,
    }
}

#[cfg(test)]
mod tests {
    use super::Float8;

    /// The value of a float with `digits` bits behind the point and this bias of the exponent.
    fn value(byte: u8, digits: u32, bias: i32) -> f64 {
        let (exponent, rest) = ((byte & 0x7f) >> digits, byte & ((1 << digits) - 1));
        let part = f64::from(rest) / f64::from(1 << digits);
        let size = match exponent {
            0 => part * 2f64.powi(1 - bias),
            e => (1.0 + part) * 2f64.powi(i32::from(e) - bias),
        };
        if byte & 0x80 == 0 { size } else { -size }
    }

    #[test]
    fn floats_of_8_bits_are_read_exactly_and_written_back() {
        for byte in 0..=255u8 {
            let [e4m3, e5m2] = [Float8::E4M3, Float8::E5M2].map(|format| {
                let bits = format.to_f16(byte).into();
                let read = girih_ir::Literal { dtype: girih_ir::DType::F16, bits }.as_f64();
                if !read.is_nan() {
                    assert_eq!(format.byte(&format.numbers(), read), Some(byte), "{byte:#x}");
                }
                read
            });
            match byte & 0x7f {
                0x7f => assert!(e4m3.is_nan()),
                _ => assert_eq!(e4m3, value(byte, 3, 7), "{byte:#x}"),
            }
            match byte & 0x7f {
                0x7c => assert!(e5m2.is_infinite()),
                0x7d.. => assert!(e5m2.is_nan()),
                _ => assert_eq!(e5m2, value(byte, 2, 15), "{byte:#x}"),
            }
        }
    }

    #[test]
    fn numbers_between_two_floats_of_8_bits_are_rounded_to_even() {
        let byte = |format: Float8, value: f64| format.byte(&format.numbers(), value);
        let e4m3 = |value| byte(Float8::E4M3, value);
        assert_eq!([e4m3(1.0), e4m3(1.0625), e4m3(1.1875)], [Some(0x38), Some(0x38), Some(0x3a)]);
        assert_eq!([e4m3(-1.07), e4m3(2f64.powi(-10)), e4m3(1e-9)], [Some(0xb9), Some(0), Some(0)]);
        assert_eq!([e4m3(464.0), e4m3(464.1), e4m3(f64::INFINITY)], [Some(0x7e), None, None]);
        let e5m2 = |value| byte(Float8::E5M2, value);
        assert_eq!([e5m2(61439.0), e5m2(61440.0), e5m2(-0.0)], [Some(0x7b), None, Some(0x80)]);
        assert_eq!(e5m2(f64::NEG_INFINITY), Some(0xfc));
        assert!([e4m3(f64::NAN), e5m2(f64::NAN)].iter().all(|byte| *byte == Some(0x7f)));
    }
}
