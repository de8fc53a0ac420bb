//! Elementwise ops as C expressions. Operands are names, so no expression needs parentheses around
//! them.

use super::types::{bitcast, cast, memory, rounded, value};
use girih_ir::{DType, OpCode};

/// The expression of an op on values of the dtype `from` (for `where`, the dtype of the branches).
/// Halves are computed in f32 and rounded.
pub(super) fn op(code: OpCode, args: &[&str], from: DType, to: DType) -> String {
    let x = args[0];
    let y = args.get(1).copied().unwrap_or_default();
    match code {
        OpCode::Cast => cast(x, from, to),
        OpCode::Bitcast => bitcast(x, from, to),
        OpCode::Where => format!("{x} ? {y} : {}", args[2]),
        OpCode::Complex => format!("({}){{{x}, {y}}}", value(to)),
        OpCode::Philox => format!("philox_word({x}, {y})"),
        OpCode::GammaDraw | OpCode::LogGammaDraw | OpCode::PoissonDraw | OpCode::BinomialDraw => {
            format!("girih_{}({})", code.def().name, args.join(", "))
        }
        OpCode::Nextafter if from != from.widened() => {
            format!("nextafter_{}({x}, {y})", from.short())
        }
        _ if from.is_complex() => complex(code, x, y, from),
        _ => match comparison(code) {
            Some(sign) => format!("{x} {sign} {y}"),
            None if from.is_float() => rounded(to, float(code, x, y, from.widened())),
            None => integer(code, x, y, from),
        },
    }
}

fn comparison(code: OpCode) -> Option<&'static str> {
    Some(match code {
        OpCode::Eq => "==",
        OpCode::Ne => "!=",
        OpCode::Lt => "<",
        OpCode::Le => "<=",
        OpCode::Gt => ">",
        OpCode::Ge => ">=",
        _ => return None,
    })
}

/// The unsigned type in which integers of a dtype wrap.
fn unsigned(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "uint8_t",
        2 => "uint16_t",
        4 => "uint32_t",
        _ => "uint64_t",
    }
}

/// An op on bools or integers. The result is converted to the type of the value that it
/// initialises, which wraps.
fn integer(code: OpCode, x: &str, y: &str, dtype: DType) -> String {
    let (bits, signed) = (8 * dtype.size(), dtype.is_signed());
    let (u, n) = (unsigned(dtype), dtype.short());
    // Narrow operands are promoted to `int`, where only products of uint16_t overflow.
    let wide = match bits {
        32 | 64 if signed => format!("({u})"),
        16 if code == OpCode::Mul => "(uint32_t)".to_string(),
        _ => String::new(),
    };
    match code {
        OpCode::Add => format!("{wide}{x} + {y}"),
        OpCode::Sub => format!("{wide}{x} - {y}"),
        OpCode::Mul => format!("{wide}{x} * {y}"),
        OpCode::Neg if wide.is_empty() => format!("-{x}"),
        OpCode::Neg => format!("0u - {wide}{x}"),
        OpCode::Abs if signed && wide.is_empty() => format!("{x} < 0 ? -{x} : {x}"),
        OpCode::Abs if signed => format!("{x} < 0 ? 0u - {wide}{x} : {wide}{x}"),
        OpCode::Sign if signed => format!("({x} > 0) - ({x} < 0)"),
        OpCode::Sign => format!("{x} != 0"),
        OpCode::Abs | OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc => x.to_string(),
        OpCode::Not if dtype == DType::Bool => format!("!{x}"),
        OpCode::Not => format!("~{x}"),
        OpCode::FloorDivide if signed => format!("floor_divide_{n}({x}, {y})"),
        OpCode::Remainder if signed => format!("remainder_{n}({x}, {y})"),
        OpCode::Fmod if signed => format!("fmod_{n}({x}, {y})"),
        OpCode::FloorDivide => format!("{y} == 0 ? 0 : {x} / {y}"),
        OpCode::Remainder | OpCode::Fmod => format!("{y} == 0 ? 0 : {x} % {y}"),
        OpCode::Pow => format!("pow_{n}({x}, {y})"),
        OpCode::Maximum => format!("{x} > {y} ? {x} : {y}"),
        OpCode::Minimum => format!("{x} < {y} ? {x} : {y}"),
        OpCode::And => format!("{x} & {y}"),
        OpCode::Or => format!("{x} | {y}"),
        OpCode::Xor => format!("{x} ^ {y}"),
        // A negative shift amount acts as a large amount.
        OpCode::ShiftLeft => format!("({u}){y} < {bits} ? ({u}){x} << {y} : 0"),
        OpCode::ShiftRight if signed => format!("{x} >> (({u}){y} < {bits} ? {y} : {})", bits - 1),
        OpCode::ShiftRight => format!("{y} < {bits} ? {x} >> {y} : 0"),
        code => unreachable!("the verifier checked that {code:?} takes {dtype}"),
    }
}

/// An op on f32 or f64.
fn float(code: OpCode, x: &str, y: &str, dtype: DType) -> String {
    let (single, n) = (dtype == DType::F32, dtype.short());
    let f = if single { "f" } else { "" };
    if let Some(name) = math_function(code) {
        return match y {
            "" => format!("{name}{f}({x})"),
            y => format!("{name}{f}({x}, {y})"),
        };
    }
    // Computed in f64 and rounded once.
    let narrow = if single { "(float)" } else { "" };
    match code {
        OpCode::Neg => format!("-{x}"),
        OpCode::Add => format!("{x} + {y}"),
        OpCode::Sub => format!("{x} - {y}"),
        OpCode::Mul => format!("{x} * {y}"),
        OpCode::Div => format!("{x} / {y}"),
        OpCode::Rsqrt => format!("1.0{f} / sqrt{f}({x})"),
        OpCode::IsNan => format!("isnan({x})"),
        OpCode::IsInf => format!("isinf({x})"),
        OpCode::IsFinite => format!("isfinite({x})"),
        OpCode::Signbit => format!("signbit({x})"),
        OpCode::Sign => format!("sign_{n}({x})"),
        OpCode::FloorDivide => format!("floor_divide_{n}({x}, {y})"),
        OpCode::Remainder => format!("remainder_{n}({x}, {y})"),
        OpCode::Maximum => format!("maximum_{n}({x}, {y})"),
        OpCode::Minimum => format!("minimum_{n}({x}, {y})"),
        OpCode::Erfc => format!("{narrow}erfc({x})"),
        OpCode::Lgamma => format!("{narrow}lgamma({x})"),
        code if y.is_empty() => format!("{narrow}girih_{}({x})", code.def().name),
        code => format!("{narrow}girih_{}({x}, {y})", code.def().name),
    }
}

/// The function of the C library for `double`; the function for `float` has the suffix `f`.
fn math_function(code: OpCode) -> Option<&'static str> {
    Some(match code {
        OpCode::Abs => "fabs",
        OpCode::Floor => "floor",
        OpCode::Ceil => "ceil",
        OpCode::Round => "nearbyint",
        OpCode::Trunc => "trunc",
        OpCode::Sqrt => "sqrt",
        OpCode::Exp => "exp",
        OpCode::Exp2 => "exp2",
        OpCode::Expm1 => "expm1",
        OpCode::Log => "log",
        OpCode::Log1p => "log1p",
        OpCode::Log2 => "log2",
        OpCode::Log10 => "log10",
        OpCode::Sin => "sin",
        OpCode::Cos => "cos",
        OpCode::Tan => "tan",
        OpCode::Asin => "asin",
        OpCode::Acos => "acos",
        OpCode::Atan => "atan",
        OpCode::Sinh => "sinh",
        OpCode::Cosh => "cosh",
        OpCode::Tanh => "tanh",
        OpCode::Asinh => "asinh",
        OpCode::Acosh => "acosh",
        OpCode::Atanh => "atanh",
        OpCode::Erf => "erf",
        OpCode::Fmod => "fmod",
        OpCode::Pow => "pow",
        OpCode::Atan2 => "atan2",
        OpCode::Hypot => "hypot",
        OpCode::Copysign => "copysign",
        OpCode::Nextafter => "nextafter",
        _ => return None,
    })
}

/// An op on complex numbers. Functions are computed with f64 parts.
fn complex(code: OpCode, x: &str, y: &str, dtype: DType) -> String {
    let (t, n) = (memory(dtype), dtype.short());
    match code {
        OpCode::Neg => format!("({t}){{-{x}.re, -{x}.im}}"),
        OpCode::Conj => format!("({t}){{{x}.re, -{x}.im}}"),
        OpCode::Real => format!("{x}.re"),
        OpCode::Imag => format!("{x}.im"),
        OpCode::Abs if dtype == DType::C64 => format!("hypotf({x}.re, {x}.im)"),
        OpCode::Abs => format!("hypot({x}.re, {x}.im)"),
        OpCode::Add => format!("({t}){{{x}.re + {y}.re, {x}.im + {y}.im}}"),
        OpCode::Sub => format!("({t}){{{x}.re - {y}.re, {x}.im - {y}.im}}"),
        OpCode::Mul => format!("mul_{n}({x}, {y})"),
        OpCode::Eq => format!("{x}.re == {y}.re && {x}.im == {y}.im"),
        OpCode::Ne => format!("{x}.re != {y}.re || {x}.im != {y}.im"),
        code => {
            let name = code.def().name;
            let wide = |z: &str| match dtype {
                DType::C64 => format!("widen_c64({z})"),
                _ => z.to_string(),
            };
            let call = match y {
                "" => format!("{name}_c128({})", wide(x)),
                y => format!("{name}_c128({}, {})", wide(x), wide(y)),
            };
            if dtype == DType::C64 { format!("narrow_c64({call})") } else { call }
        }
    }
}
