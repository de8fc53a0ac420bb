//! Dtypes in C: types of memory and of values, literals, loads, stores and conversions. A half is
//! `uint16_t` in memory, and a value of a half dtype is a `float`. A bool is `bool`, and a complex
//! number is a struct of its parts.

use girih_ir::{DType, Literal};

/// The C type of an element in memory.
pub fn memory(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 => "uint8_t",
        DType::U16 | DType::F16 | DType::BF16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
        DType::F32 => "float",
        DType::F64 => "double",
        DType::C64 => "complex64",
        DType::C128 => "complex128",
    }
}

/// The type of a value.
pub(super) fn value(dtype: DType) -> &'static str {
    memory(dtype.widened())
}

/// Whether values of the dtype are computed in f32.
pub(super) fn is_half(dtype: DType) -> bool {
    dtype.widened() != dtype
}

/// The value of an element in memory.
pub(super) fn load(dtype: DType, place: String) -> String {
    match is_half(dtype) {
        true => format!("{}_to_f32({place})", dtype.short()),
        false => place,
    }
}

/// A value in the form in which it is stored in memory.
pub(super) fn store(dtype: DType, value: String) -> String {
    match is_half(dtype) {
        true => format!("f32_to_{}({value})", dtype.short()),
        false => value,
    }
}

/// A float that an operation on `dtype` computed, rounded if the dtype is a half.
pub(super) fn rounded(dtype: DType, value: String) -> String {
    match is_half(dtype) {
        true => format!("round_{}({value})", dtype.short()),
        false => value,
    }
}

/// A literal as a value.
pub(super) fn literal(literal: Literal) -> String {
    let suffix = match literal.dtype.real().widened() {
        DType::F32 => "f",
        _ => "",
    };
    let real = match literal.as_f64() {
        x if x.is_nan() => "NAN".to_string(),
        x if x.is_infinite() => format!("{}INFINITY", if x < 0.0 { "-" } else { "" }),
        // The shortest text that is parsed as this number in the number's own type.
        x if suffix == "f" => format!("{:?}f", x as f32),
        x => format!("{x:?}"),
    };
    match literal.dtype {
        DType::Bool => if literal.bits != 0 { "true" } else { "false" }.to_string(),
        DType::I64 if literal.as_i64() == i64::MIN => "INT64_MIN".to_string(),
        DType::U32 | DType::U64 => format!("{}u", literal.as_int()),
        dtype if dtype.is_int() => literal.as_int().to_string(),
        dtype if dtype.is_complex() => format!("({}){{{real}, 0.0{suffix}}}", memory(dtype)),
        _ => real,
    }
}

/// A literal in the form in which it is stored in memory.
pub(super) fn literal_in_memory(constant: Literal) -> String {
    match is_half(constant.dtype) {
        true => format!("{:#06x}", constant.bits),
        false => literal(constant),
    }
}

/// A value converted to another dtype. Floats truncate to integers and saturate, integers wrap, and
/// a half is rounded once.
pub(super) fn cast(x: &str, from: DType, to: DType) -> String {
    let (source, target) = (from.widened(), to.widened());
    if from == to {
        return x.to_string();
    }
    if to == DType::Bool {
        return match from.is_complex() {
            true => format!("({x}.re != 0 || {x}.im != 0)"),
            false => format!("{x} != 0"),
        };
    }
    match (from.is_complex(), to.is_complex()) {
        (true, _) if to == DType::C128 => return format!("widen_c64({x})"),
        (true, _) => return format!("narrow_c64({x})"),
        (false, true) => {
            let real = cast(x, from, to.real());
            return format!("({}){{{real}, 0}}", memory(to));
        }
        (false, false) => {}
    }
    if is_half(to) {
        return rounded(to, single(x, from));
    }
    match source.is_float() && target.is_int() {
        true => format!("{}_to_{}({x})", source.short(), to.short()),
        false if source == target => x.to_string(),
        false => format!("({}){x}", value(to)),
    }
}

/// A real number as a float; rounding the float to a half has the same result as rounding the
/// number itself.
fn single(x: &str, from: DType) -> String {
    match from.size() {
        _ if from.widened() == DType::F32 => x.to_string(),
        1 | 2 => format!("(float){x}"),
        _ if from == DType::F64 => format!("f64_to_f32_odd({x})"),
        _ => format!("f64_to_f32_odd((double){x})"),
    }
}

/// The bits of a value as another dtype of its size.
pub(super) fn bitcast(x: &str, from: DType, to: DType) -> String {
    if from == to {
        return x.to_string();
    }
    let bits = match from {
        DType::F32 | DType::F64 => format!("bits_of_{}({x})", from.short()),
        _ => store(from, x.to_string()),
    };
    match to {
        DType::F32 | DType::F64 => format!("{}_of_bits({bits})", to.short()),
        _ if is_half(to) => load(to, bits),
        _ => format!("({}){bits}", memory(to)),
    }
}
