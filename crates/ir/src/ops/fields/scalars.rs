//! Fields of one value: numbers, booleans, names, literals.

use super::{Bytes, Context, Expected, Field, FieldMut};
use crate::ops::collective::AxisName;
use crate::ops::{Real, ScatterMode};
use crate::{DType, Literal};
use std::fmt::Write;
use std::ops::{Deref, DerefMut};

macro_rules! integer_fields {
    ($($ty:ty as $wide:ty, $max:expr;)*) => {
        $(impl Field for $ty {
            fn print(&self, _: Context<'_>, out: &mut String) {
                let _ = write!(out, "{self}");
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as $wide).to_le_bytes());
            }
        }

        impl FieldMut for $ty {
            fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
                let parsed = text.parse();
                *self = parsed.map_err(|_| {
                    format!("an integer from {} to {}", <$ty>::MIN, <$ty>::MAX)
                })?;
                Ok(())
            }

            fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
                let wide = <$wide>::from_le_bytes(bytes.array()?);
                *self = wide.try_into().map_err(|_| format!("at most {}", <$ty>::MAX))?;
                Ok(())
            }

            fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
                *self = below($max) as $ty;
            }
        })*
    };
}

integer_fields! {
    u8 as u8, 4;
    u32 as u32, 5;
    usize as u64, 5;
    i64 as i64, 5;
}

impl Field for bool {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        !*self
    }
}

impl FieldMut for bool {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = text.parse().map_err(|_| "true or false".to_string())?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self = match bytes.array()? {
            [0] => false,
            [1] => true,
            [other] => return Err(format!("0 or 1, found {other}")),
        };
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = below(2) == 1;
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        *self = false;
        true
    }
}

impl Field for DType {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.short());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(crate::pfgb::dtype_code(*self));
    }
}

impl FieldMut for DType {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let names = || DType::ALL.map(DType::short).join(", ");
        *self = DType::parse(text).map_err(|_| format!("a dtype: one of {}", names()))?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let [code] = bytes.array()?;
        *self = crate::pfgb::dtype_of(code).ok_or(format!("a dtype's code, found {code}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = DType::ALL[below(DType::ALL.len())];
    }
}

impl Field for ScatterMode {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.name());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
}

impl FieldMut for ScatterMode {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let names = || ScatterMode::ALL.map(ScatterMode::name).join(", ");
        let found = ScatterMode::ALL.into_iter().find(|mode| mode.name() == text);
        *self = found.ok_or_else(|| format!("one of {}", names()))?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let [code] = bytes.array()?;
        let mode = ScatterMode::ALL.get(code as usize);
        *self = *mode.ok_or_else(|| format!("a mode from 0 to 4, found {code}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = ScatterMode::ALL[below(ScatterMode::ALL.len())];
    }
}

impl Field for AxisName {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.as_str());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (self.as_str().len() as u32).encode(out);
        out.extend_from_slice(self.as_str().as_bytes());
    }
}

impl FieldMut for AxisName {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = AxisName::new(text)?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let len = bytes.count(1)?;
        *self = AxisName::new(&crate::pfgb::utf8(bytes.take(len)?)?)?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let names = ["i", "batch", "x.y", "a-1"];
        *self = AxisName::new(names[below(names.len())]).expect("these are names");
    }
}

impl Field for Real {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let literal = Literal { dtype: DType::F64, bits: self.get().to_bits() };
        out.push_str(&literal.text());
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.get().to_bits().to_le_bytes());
    }
}

impl FieldMut for Real {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let bits = Literal::parse(DType::F64, text).ok_or("a number")?.bits;
        *self = f64::from_bits(bits).into();
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self = f64::from_bits(u64::from_le_bytes(bytes.array()?)).into();
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let values = [0.0, 1.0, 1e-5, 0.1, -0.0, f64::INFINITY, f64::NAN, -f64::NAN];
        *self = values[below(values.len())].into();
    }
}

/// The bits of a literal whose dtype the context gives.
pub(super) struct Bits<R> {
    pub bits: R,
    /// Whether the text form omits zero.
    pub zero_is_default: bool,
}

impl<R: Deref<Target = u64>> Field for Bits<R> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        match cx.dtype {
            Some(dtype) => out.push_str(&Literal { dtype, bits: *self.bits }.text()),
            None => drop(write!(out, "{:#x}", *self.bits)),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits.to_le_bytes());
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        self.zero_is_default && *self.bits == 0
    }
}

impl<R: DerefMut<Target = u64>> FieldMut for Bits<R> {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        let dtype = cx.dtype.ok_or("no value here")?;
        let literal = Literal::parse(dtype, text);
        *self.bits = literal.ok_or_else(|| format!("a value of dtype {}", dtype.short()))?.bits;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self.bits = u64::from_le_bytes(bytes.array()?);
        Ok(())
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let values = [0.0, 1.0, -1.0, 0.1, 1e30, -0.0, f64::INFINITY, f64::NAN];
        *self.bits = match (cx.dtype, below(values.len() + 1)) {
            (Some(dtype), n) if n < values.len() => Literal::from_f64(dtype, values[n]).bits,
            // A NaN with a payload.
            (Some(DType::F32), _) => 0xffc0_1234,
            _ => 0,
        };
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        if self.zero_is_default {
            *self.bits = 0;
        }
        self.zero_is_default
    }
}

/// One of two names.
pub(super) struct Choice<R> {
    pub value: R,
    pub names: [&'static str; 2],
}

impl<R: Deref<Target = bool>> Field for Choice<R> {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.names[*self.value as usize]);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.value.encode(out);
    }
}

impl<R: DerefMut<Target = bool>> FieldMut for Choice<R> {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let found = self.names.iter().position(|name| *name == text);
        *self.value = found.ok_or_else(|| self.names.join(" or "))? == 1;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.value.decode(bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        self.value.arbitrary(cx, below);
    }
}
