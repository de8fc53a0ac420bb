//! Decimal digits of floating-point numbers: the shortest representation that identifies a number
//! of its dtype, and the format of a column of numbers. The formats are NumPy's.

use super::PrintOptions;
use girih_ir::{DType, Literal};

/// The shortest decimal digits that parse back to `value`, which must be finite and not negative,
/// and the decimal exponent of the first digit.
fn shortest(value: f64, dtype: DType) -> (String, i32) {
    let text = match dtype {
        DType::F64 => format!("{value:e}"),
        DType::F32 => format!("{:e}", value as f32),
        _ => {
            let bits = Literal::from_f64(dtype, value).bits;
            let same = |text: &String| {
                text.parse().is_ok_and(|v: f64| Literal::from_f64(dtype, v).bits == bits)
            };
            let texts = (0..9).map(|digits| format!("{value:.digits$e}"));
            texts.into_iter().find(same).unwrap_or_else(|| format!("{value:e}"))
        }
    };
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    (mantissa.replace('.', ""), exponent.parse().unwrap_or(0))
}

/// The number without an exponent: at most `precision` digits after the point, no trailing zeros.
fn positional(value: f64, dtype: DType, precision: usize) -> (String, String) {
    let (digits, exponent) = shortest(value, dtype);
    let behind = (digits.len() as i32 - 1 - exponent).max(0) as usize;
    let text = if behind > precision {
        format!("{value:.precision$}")
    } else {
        let digits = format!("{digits:0<0$}", (exponent + 1).max(0) as usize);
        let lead = "0".repeat((-exponent).max(0) as usize);
        let all = format!("{lead}{digits}");
        let point = (exponent.max(0) + 1) as usize;
        format!("{}.{}", &all[..point], &all[point..])
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    (whole.into(), fraction.trim_end_matches('0').into())
}

/// The number with an exponent: one digit, at most `precision` digits after the point without
/// trailing zeros, and the exponent.
fn scientific(value: f64, dtype: DType, precision: usize) -> (String, String, i32) {
    let (mut digits, mut exponent) = shortest(value, dtype);
    if digits.len() > precision + 1 {
        let text = format!("{value:.precision$e}");
        let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
        (digits, exponent) = (mantissa.replace('.', ""), power.parse().unwrap_or(0));
    }
    let (first, rest) = digits.split_at(1);
    (first.into(), rest.trim_end_matches('0').into(), exponent)
}

fn power(exponent: i32, width: usize) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:0>width$}", exponent.unsigned_abs())
}

/// The magnitude from which the numbers of a column are written with an exponent, since not all
/// digits of a larger whole number are exact. For f64 the limit is lower, to keep columns short.
fn known(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e8,
        DType::F32 => 1e6,
        _ => 1e3,
    }
}

/// A single number as Python writes it. With `bare`, a whole number has no `.0`.
pub fn number(value: f64, dtype: DType, bare: bool) -> String {
    let sign = if value.is_sign_negative() && !value.is_nan() { "-" } else { "" };
    let size = value.abs();
    if !size.is_finite() {
        return format!("{sign}{}", if size.is_nan() { "nan" } else { "inf" });
    }
    let large = if dtype == DType::F64 { 1e16 } else { known(dtype) };
    if size != 0.0 && !(1e-4..large).contains(&size) {
        let (first, rest, exponent) = scientific(size, dtype, usize::MAX - 1);
        let point = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{point}{rest}{}", power(exponent, 2));
    }
    let (whole, fraction) = positional(size, dtype, usize::MAX);
    match (fraction.is_empty(), bare) {
        (true, true) => format!("{sign}{whole}"),
        (true, false) => format!("{sign}{whole}.0"),
        _ => format!("{sign}{whole}.{fraction}"),
    }
}

/// The text of a single part of a complex number.
pub fn part(value: f64, dtype: DType) -> String {
    number(value, dtype, true)
}

/// The format of a column of numbers.
pub struct Format {
    dtype: DType,
    /// The minimum number of digits of the exponent; `None` for numbers without an exponent.
    exponent: Option<usize>,
    precision: usize,
    /// The numbers of characters before and after the point.
    left: usize,
    right: usize,
    /// Whether positive numbers have a sign.
    signed: bool,
}

impl Format {
    /// The common format of all values.
    pub fn of(values: &[f64], dtype: DType, signed: bool, options: &PrintOptions) -> Format {
        let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        let sizes = || finite.iter().filter(|v| **v != 0.0).map(|v| v.abs());
        let (low, high) =
            sizes().fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
        let wide = high > 0.0 && (low < 1e-4 || high / low > 1000.0);
        let precision = options.precision;
        let mut format = Format { dtype, exponent: None, precision, left: 0, right: 0, signed };
        let sign = |v: f64| (signed || v.is_sign_negative()) as usize;
        if high >= known(dtype) || (wide && !options.suppress) {
            let parts = || finite.iter().map(|&v| (v, scientific(v.abs(), dtype, precision)));
            let width = |exponent: i32| exponent.unsigned_abs().to_string().len().max(2);
            let exponent = parts().map(|(_, (.., e))| width(e)).max().unwrap_or(2);
            format.precision = parts().map(|(_, (_, rest, _))| rest.len()).max().unwrap_or(0);
            format.left = finite.iter().map(|&v| 1 + sign(v)).max().unwrap_or(0);
            format.right = format.precision + exponent + 2;
            format.exponent = Some(exponent);
        } else {
            for &v in &finite {
                let (whole, fraction) = positional(v.abs(), dtype, precision);
                format.left = format.left.max(whole.len() + sign(v));
                format.right = format.right.max(fraction.len());
            }
        }
        // NaN and infinities are right-aligned over the whole width.
        for &v in values.iter().filter(|v| !v.is_finite()) {
            let length = 3 + (signed || v == f64::NEG_INFINITY) as usize;
            format.left = format.left.max(length.saturating_sub(format.right + 1));
        }
        format
    }

    /// A number, padded to the column's width.
    pub fn text(&self, value: f64) -> String {
        let sign = match (value.is_sign_negative() && !value.is_nan(), self.signed) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        if !value.is_finite() {
            let text = format!("{sign}{}", if value.is_nan() { "nan" } else { "inf" });
            return format!("{text:>0$}", self.left + self.right + 1);
        }
        let (left, right) = (self.left, self.right);
        if let Some(width) = self.exponent {
            // Digits beyond the shortest representation are exact digits, not zeros.
            let text = format!("{:.1$e}", value.abs(), self.precision);
            let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let first = format!("{sign}{first}");
            return format!("{first:>left$}.{rest}{}", power(exponent.parse().unwrap_or(0), width));
        }
        let (whole, fraction) = positional(value.abs(), self.dtype, self.precision);
        let whole = format!("{sign}{whole}");
        format!("{whole:>left$}.{fraction:<right$}")
    }
}
