//! Helpers for complex numbers. They are structs, because the multiplication of C's own complex
//! types treats infinities differently. Functions have f64 parts, as in `girih_ir::complex`.

use super::Helper;
use girih_ir::DType;

/// Functions of the C library's `<complex.h>`, without the prefix `c`.
const LIBRARY: [&str; 15] = [
    "exp", "log", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh",
];

pub(super) fn all() -> Vec<Helper> {
    let parts = [DType::C64, DType::C128];
    let fixed = |&(name, text): &(&str, &str)| Helper { name: name.into(), text: text.into() };
    let mut all: Vec<Helper> = TYPES.iter().map(fixed).collect();
    for (name, text) in ARITHMETIC {
        all.extend(parts.map(|dtype| Helper::of(dtype, name, text)));
    }
    all.extend(CONVERSIONS.iter().map(fixed));
    all.extend(LIBRARY.map(library));
    all.extend(FUNCTIONS.iter().map(fixed));
    all
}

fn library(function: &str) -> Helper {
    let name = format!("{function}_c128");
    let text = format!(
        "static inline complex128 {name}(complex128 z)
{{
    return from_complex(c{function}(to_complex(z)));
}}"
    );
    Helper { name, text }
}

const TYPES: [(&str, &str); 2] = [
    ("complex64", "typedef struct {\n    float re, im;\n} complex64;"),
    ("complex128", "typedef struct {\n    double re, im;\n} complex128;"),
];

const ARITHMETIC: [(&str, &str); 2] = [
    (
        "mul_@n",
        "static inline @T mul_@n(@T a, @T b)
{
    return (@T){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}",
    ),
    (
        "prod_@n",
        "/* A multiplication by 1 changes no infinity and no sign of a zero. */
static inline @T prod_@n(@T a, @T b)
{
    if (a.re == 1 && a.im == 0 && !signbit(a.im))
        return b;
    if (b.re == 1 && b.im == 0 && !signbit(b.im))
        return a;
    return mul_@n(a, b);
}",
    ),
];

const CONVERSIONS: [(&str, &str); 4] = [
    (
        "widen_c64",
        "static inline complex128 widen_c64(complex64 z)
{
    return (complex128){z.re, z.im};
}",
    ),
    (
        "narrow_c64",
        "static inline complex64 narrow_c64(complex128 z)
{
    return (complex64){(float)z.re, (float)z.im};
}",
    ),
    (
        "to_complex",
        "/* The parts of a number of C's type are in memory as those of the struct. */
static inline double _Complex to_complex(complex128 z)
{
    double _Complex c;
    memcpy(&c, &z, sizeof c);
    return c;
}",
    ),
    (
        "from_complex",
        "static inline complex128 from_complex(double _Complex c)
{
    complex128 z;
    memcpy(&z, &c, sizeof z);
    return z;
}",
    ),
];

const FUNCTIONS: [(&str, &str); 9] = [
    (
        "div_c128",
        "/* R. L. Smith's method (CACM 5, 1962), which scales by the larger part of the divisor. */
static inline complex128 div_c128(complex128 a, complex128 b)
{
    if (b.re == 0 && b.im == 0)
        return (complex128){a.re / fabs(b.re), a.im / fabs(b.re)};
    if (fabs(b.re) >= fabs(b.im)) {
        const double ratio = b.im / b.re, scale = 1.0 / (b.re + b.im * ratio);
        return (complex128){(a.re + a.im * ratio) * scale, (a.im - a.re * ratio) * scale};
    }
    const double ratio = b.re / b.im, scale = 1.0 / (b.im + b.re * ratio);
    return (complex128){(a.re * ratio + a.im) * scale, (a.im * ratio - a.re) * scale};
}",
    ),
    (
        "sign_c128",
        "/* z / |z|; 0 for 0. */
static inline complex128 sign_c128(complex128 z)
{
    if (z.re == 0 && z.im == 0)
        return (complex128){0, 0};
    if (isinf(z.re) && !isinf(z.im))
        return (complex128){copysign(1, z.re), 0};
    if (isinf(z.im) && !isinf(z.re))
        return (complex128){0, copysign(1, z.im)};
    const double largest = fmax(fabs(z.re), fabs(z.im));
    const double scale = largest > 1e300 ? 0x1p-4 : largest < 1e-290 ? 0x1p300 : 1;
    const complex128 s = {z.re * scale, z.im * scale};
    const double r = hypot(s.re, s.im);
    return (complex128){s.re / r, s.im / r};
}",
    ),
    (
        "expm1_c128",
        "/* exp(x) cos(y) - 1 is expm1(x) cos(y) - 2 sin(y / 2)^2, which is accurate near 0. */
static inline complex128 expm1_c128(complex128 z)
{
    if (z.im == 0)
        return (complex128){expm1(z.re) + 0.0, z.im};
    if (!isfinite(z.re) || !isfinite(z.im) || z.re > 709) {
        const complex128 e = exp_c128(z);
        return (complex128){e.re - 1, e.im};
    }
    const double half = sin(0.5 * z.im);
    return (complex128){expm1(z.re) * cos(z.im) - 2 * half * half, exp(z.re) * sin(z.im)};
}",
    ),
    (
        "exp2_c128",
        "static inline complex128 exp2_c128(complex128 z)
{
    const double ln2 = 0.6931471805599453;
    if (z.im == 0)
        return (complex128){exp2(z.re), z.im};
    return exp_c128((complex128){z.re * ln2, z.im * ln2});
}",
    ),
    (
        "log1p_c128",
        "/* Near 0, |1 + z|^2 - 1 is 2x + x^2 + y^2, with the rounding errors of the squares. */
static inline complex128 log1p_c128(complex128 z)
{
    const double x = z.re, y = z.im, angle = atan2(y, 1 + x);
    if (fabs(x) >= 0.5 || fabs(y) >= 0.5 || isnan(x) || isnan(y))
        return (complex128){log_c128((complex128){1 + x, y}).re, angle};
    const double xx = x * x, yy = y * y, xe = fma(x, x, -xx), ye = fma(y, y, -yy);
    const double sum = 2 * x + yy, back = sum - 2 * x;
    const double rest = (2 * x - (sum - back)) + (yy - back);
    const double norm = xx == 0 && yy == 0 ? 2 * x : sum + (xx + (rest + (xe + ye)));
    return (complex128){0.5 * log1p(norm), angle};
}",
    ),
    (
        "log2_c128",
        "static inline complex128 log2_c128(complex128 z)
{
    const complex128 l = log_c128(z);
    return (complex128){l.re / 0.6931471805599453, l.im / 0.6931471805599453};
}",
    ),
    (
        "log10_c128",
        "static inline complex128 log10_c128(complex128 z)
{
    const complex128 l = log_c128(z);
    return (complex128){l.re / 2.302585092994046, l.im / 2.302585092994046};
}",
    ),
    (
        "rsqrt_c128",
        "static inline complex128 rsqrt_c128(complex128 z)
{
    return div_c128((complex128){1, 0}, sqrt_c128(z));
}",
    ),
    (
        "pow_c128",
        "/* Small integer powers are repeated multiplications. */
static inline complex128 pow_c128(complex128 z, complex128 w)
{
    if (w.re == 0 && w.im == 0)
        return (complex128){1, 0};
    if (z.re == 0 && z.im == 0)
        return w.re > 0 ? (complex128){0, 0} : (complex128){NAN, NAN};
    if (w.im == 0 && fabs(w.re) < 100 && w.re == trunc(w.re)) {
        complex128 square = z, power = {1, 0};
        for (int n = abs((int)w.re); n > 0; n /= 2, square = mul_c128(square, square))
            if (n % 2 != 0)
                power = prod_c128(power, square);
        return w.re < 0 ? div_c128((complex128){1, 0}, power) : power;
    }
    const complex128 l = log_c128(z);
    return exp_c128((complex128){w.re * l.re - w.im * l.im, w.re * l.im + w.im * l.re});
}",
    ),
];
