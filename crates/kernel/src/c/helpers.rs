//! The helper functions of printed programs: types and operations that C does not have. A program
//! contains the helpers whose names occur in it.

mod complex;

use super::types::{memory, value};
use girih_ir::DType;

/// A definition in C.
struct Helper {
    name: String,
    text: String,
}

impl Helper {
    /// A definition, with placeholders replaced: `@T` is the C type of a value of the dtype, `@n`
    /// the short name of the dtype, and `@f` the suffix of its math functions.
    fn of(dtype: DType, name: &str, text: &str) -> Helper {
        let f = if dtype.real() == DType::F32 { "f" } else { "" };
        let fill =
            |s: &str| s.replace("@T", value(dtype)).replace("@n", dtype.short()).replace("@f", f);
        Helper { name: fill(name), text: fill(text) }
    }
}

const FLOATS: [DType; 2] = [DType::F32, DType::F64];
const HALVES: [DType; 2] = [DType::F16, DType::BF16];
const SIGNED: [DType; 4] = [DType::I8, DType::I16, DType::I32, DType::I64];
const UNSIGNED: [DType; 4] = [DType::U8, DType::U16, DType::U32, DType::U64];

/// The definitions of the helpers that occur in a text, ordered so that each helper is defined
/// before it is used.
pub(super) fn used_in(text: &str) -> String {
    let mut needed: Vec<String> = Vec::new();
    for helper in all().into_iter().rev() {
        let used = |user: &str| occurs(&helper.name, user);
        if used(text) || needed.iter().any(|user| used(user)) {
            needed.push(helper.text);
        }
    }
    needed.iter().rev().map(|text| format!("{}\n\n", text.trim())).collect()
}

/// Whether a text contains an identifier.
pub(super) fn occurs(name: &str, text: &str) -> bool {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + name.len()..]);
        !before.ends_with(part) && !after.starts_with(part)
    })
}

/// All helpers.
fn all() -> Vec<Helper> {
    let fixed = |&(name, text): &(&str, &str)| Helper { name: name.into(), text: text.into() };
    let each = |dtypes: &[DType], rows: &[(&str, &str)]| -> Vec<Helper> {
        let of =
            |&dtype: &DType| rows.iter().map(move |(name, text)| Helper::of(dtype, name, text));
        dtypes.iter().flat_map(of).collect()
    };
    let mut all: Vec<Helper> = BITS.iter().map(fixed).collect();
    all.extend(HALF_CONVERSIONS.iter().map(fixed));
    all.extend(each(&HALVES, &HALF_OPS));
    all.extend(
        SIGNED.iter().chain(&UNSIGNED).flat_map(|&to| FLOATS.map(|from| saturating(from, to))),
    );
    all.extend(each(&SIGNED, &SIGNED_OPS));
    all.extend(each(&UNSIGNED, &UNSIGNED_OPS));
    all.extend(each(&FLOATS, &FLOAT_OPS));
    all.extend(complex::all());
    all.extend(INDICES.iter().chain(&RANDOM).map(fixed));
    all.extend(EXTERNAL.map(|(name, count)| external(name, "double", count)));
    all.extend(DRAWS.map(|(name, count)| external(name, "uint64_t", count)));
    all
}

/// The conversion of a float to an integer type.
fn saturating(from: DType, to: DType) -> Helper {
    let bits = 8 * to.size() - to.is_signed() as usize;
    let t = memory(to);
    let limit = t.trim_end_matches("_t").to_uppercase();
    let (min, lowest) = match to.is_signed() {
        true => (format!("-0x1p{bits}"), format!("{limit}_MIN")),
        false => ("0".to_string(), "0".to_string()),
    };
    let name = format!("{}_to_{}", from.short(), to.short());
    let text = format!(
        "/* Truncates and saturates; 0 for NaN. */
static inline {t} {name}({} x)
{{
    if (isnan(x) || x <= {min})
        return isnan(x) ? 0 : {lowest};
    return x >= 0x1p{bits} ? {limit}_MAX : ({t})x;
}}",
        memory(from)
    );
    Helper { name, text }
}

const BITS: [(&str, &str); 4] = [
    (
        "bits_of_f32",
        "static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}",
    ),
    (
        "f32_of_bits",
        "static inline float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}",
    ),
    (
        "bits_of_f64",
        "static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}",
    ),
    (
        "f64_of_bits",
        "static inline double f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}",
    ),
];

const HALF_CONVERSIONS: [(&str, &str); 5] = [
    (
        "f16_to_f32",
        "/* The exponent is rebiased by a multiplication, which also normalises subnormals. */
static inline float f16_to_f32(uint16_t h)
{
    const uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    const uint32_t finite = bits_of_f32(f32_of_bits(magnitude) * 0x1p112f);
    const uint32_t bits = magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite;
    return f32_of_bits(bits | (uint32_t)(h & 0x8000) << 16);
}",
    ),
    (
        "f32_to_f16",
        "/* Rounds to nearest even. Adding 1/2 aligns the mantissa of subnormal results. */
static inline uint16_t f32_to_f16(float x)
{
    const uint32_t bits = bits_of_f32(x), a = bits & 0x7fffffff;
    uint32_t h = (a + 0xc8000fff + (a >> 13 & 1)) >> 13;
    if (a < 0x38800000)
        h = bits_of_f32(f32_of_bits(a) + 0.5f) - 0x3f000000;
    if (a >= 0x47800000)
        h = a > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(h | (bits >> 16 & 0x8000));
}",
    ),
    (
        "bf16_to_f32",
        "static inline float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}",
    ),
    (
        "f32_to_bf16",
        "/* Rounds to nearest even. */
static inline uint16_t f32_to_bf16(float x)
{
    const uint32_t bits = bits_of_f32(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}",
    ),
    (
        "f64_to_f32_odd",
        "/* Rounds to odd, so that rounding the result to a half is the same as rounding x once. */
static inline float f64_to_f32_odd(double x)
{
    const float near = (float)x;
    if (isnan(x) || (double)near == x)
        return near;
    return f32_of_bits((bits_of_f32(near) - (fabs((double)near) > fabs(x))) | 1);
}",
    ),
];

const HALF_OPS: [(&str, &str); 3] = [
    (
        "round_@n",
        "static inline float round_@n(float x)
{
    return @n_to_f32(f32_to_@n(x));
}",
    ),
    (
        "round_down_@n",
        "/* Rounds a number that is not negative toward zero. */
static inline float round_down_@n(float x)
{
    const uint16_t near = f32_to_@n(x);
    return @n_to_f32(@n_to_f32(near) > x ? near - 1 : near);
}",
    ),
    (
        "nextafter_@n",
        "static inline float nextafter_@n(float a, float b)
{
    const uint16_t bits = f32_to_@n(a);
    if (isnan(a) || isnan(b))
        return a + b;
    if (a == b)
        return b;
    if (a == 0)
        return copysignf(@n_to_f32(1), b);
    return @n_to_f32((b > a) == (a > 0) ? bits + 1 : bits - 1);
}",
    ),
];

const SIGNED_OPS: [(&str, &str); 4] = [
    (
        "floor_divide_@n",
        "/* The quotient rounded down; 0 for the divisor 0. */
static inline @T floor_divide_@n(@T a, @T b)
{
    if (b == 0 || b == -1)
        return (@T)(0u - (uint64_t)a * (b != 0));
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}",
    ),
    (
        "remainder_@n",
        "/* The remainder of floor division; 0 for the divisor 0. */
static inline @T remainder_@n(@T a, @T b)
{
    const @T r = b == 0 || b == -1 ? 0 : a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}",
    ),
    (
        "fmod_@n",
        "/* The remainder of truncated division; 0 for the divisor 0. */
static inline @T fmod_@n(@T a, @T b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}",
    ),
    (
        "pow_@n",
        "/* Wraps. A negative exponent gives the inverse, truncated; 0 for the base 0. */
static inline @T pow_@n(@T a, @T b)
{
    uint64_t base = (uint64_t)a, power = 1;
    if (b < 0)
        return a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0;
    for (; b != 0; b /= 2) {
        power *= b % 2 != 0 ? base : 1;
        base *= base;
    }
    return (@T)power;
}",
    ),
];

const UNSIGNED_OPS: [(&str, &str); 1] = [(
    "pow_@n",
    "static inline @T pow_@n(@T a, @T b)
{
    uint64_t base = a, power = 1;
    for (; b != 0; b /= 2) {
        power *= b % 2 != 0 ? base : 1;
        base *= base;
    }
    return (@T)power;
}",
)];

const FLOAT_OPS: [(&str, &str); 5] = [
    (
        "sign_@n",
        "static inline @T sign_@n(@T x)
{
    return isnan(x) ? x : (@T)((x > 0) - (x < 0));
}",
    ),
    (
        "maximum_@n",
        "/* NaN if either is NaN; 0 is larger than -0. */
static inline @T maximum_@n(@T a, @T b)
{
    if (isnan(a) || isnan(b))
        return a + b;
    return a > b || (a == b && signbit(b)) ? a : b;
}",
    ),
    (
        "minimum_@n",
        "/* NaN if either is NaN; -0 is smaller than 0. */
static inline @T minimum_@n(@T a, @T b)
{
    if (isnan(a) || isnan(b))
        return a + b;
    return a < b || (a == b && signbit(a)) ? a : b;
}",
    ),
    (
        "floor_divide_@n",
        "/* The quotient rounded down, from the exact remainder. */
static inline @T floor_divide_@n(@T a, @T b)
{
    const @T r = fmod@f(a, b);
    @T q = (a - r) / b;
    if (b == 0)
        return a / b;
    if (r != 0 && (b < 0) != (r < 0))
        q -= 1;
    if (q == 0)
        return copysign@f(0, a / b);
    return q - floor@f(q) > 0.5@f ? floor@f(q) + 1 : floor@f(q);
}",
    ),
    (
        "remainder_@n",
        "/* The remainder of floor division, with the sign of the divisor. */
static inline @T remainder_@n(@T a, @T b)
{
    const @T r = fmod@f(a, b);
    if (r == 0)
        return copysign@f(0, b);
    return (b < 0) != (r < 0) ? r + b : r;
}",
    ),
];

const INDICES: [(&str, &str); 3] = [
    (
        "wrap_index",
        "/* A position on an axis; a negative index counts from its end. */
static inline int64_t wrap_index(int64_t index, int64_t size)
{
    const int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        fprintf(stderr, \"index %lld is out of bounds for an axis of size %lld\\n\",
                (long long)index, (long long)size);
        abort();
    }
    return at;
}",
    ),
    (
        "wrap_unsigned",
        "/* A position on an axis; an unsigned index does not count from its end. */
static inline int64_t wrap_unsigned(uint64_t index, uint64_t size)
{
    if (index >= size) {
        fprintf(stderr, \"index %llu is out of bounds for an axis of size %llu\\n\",
                (unsigned long long)index, (unsigned long long)size);
        abort();
    }
    return (int64_t)index;
}",
    ),
    (
        "check_label",
        "/* The number of a class. */
static inline int64_t check_label(int64_t label, int64_t classes)
{
    if (label < 0 || label >= classes) {
        fprintf(stderr, \"class label %lld is not in 0..%lld\\n\", (long long)label,
                (long long)classes);
        abort();
    }
    return label;
}",
    ),
];

const RANDOM: [(&str, &str); 8] = [
    (
        "random_key",
        "/* A seed, and the number of blocks that were drawn from it. */
typedef struct {
    uint64_t key, offset;
} random_key;",
    ),
    (
        "philox",
        "/* A block of Philox 4x32-10. */
static inline void philox(uint64_t key, uint64_t counter, uint32_t stream, uint32_t words[4])
{
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = stream, c3 = 0;
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int i = 0; i < 10; i++) {
        const uint64_t a = (uint64_t)0xd2511f53 * c0, b = (uint64_t)0xcd9e8d57 * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9e3779b9;
        k1 += 0xbb67ae85;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}",
    ),
    (
        "philox_word",
        "/* The 64 random bits of a key at a counter. */
static inline uint64_t philox_word(uint64_t key, uint64_t counter)
{
    uint32_t w[4];
    philox(key, counter, 3, w);
    return (uint64_t)w[1] << 32 | w[0];
}",
    ),
    (
        "random_uniform_f32",
        "/* 24 bits as a fraction in [0, 1). */
static inline float random_uniform_f32(random_key key, uint64_t position)
{
    uint32_t w[4];
    philox(key.key, key.offset + position / 4, 0, w);
    return (float)(w[position % 4] >> 8) * 0x1p-24f;
}",
    ),
    (
        "random_uniform_f64",
        "/* 53 bits as a fraction in [0, 1). */
static inline double random_uniform_f64(random_key key, uint64_t position)
{
    uint32_t w[4];
    philox(key.key, key.offset + position / 2, 0, w);
    const uint32_t *half = w + 2 * (position % 2);
    return (double)((uint64_t)half[1] << 21 | half[0] >> 11) * 0x1p-53;
}",
    ),
    (
        "random_normal_f32",
        "/* After Box and Muller: two elements are the coordinates of a point. */
static inline float random_normal_f32(random_key key, uint64_t position)
{
    uint32_t w[4];
    philox(key.key, key.offset + position / 4, 1, w);
    const uint32_t *pair = w + position % 4 / 2 * 2;
    const float radius = sqrtf(-2.0f * logf((float)(pair[0] >> 8) * 0x1p-24f + 0x1p-24f));
    const double angle = 6.283185307179586 * ((double)(pair[1] >> 8) * 0x1p-24);
    return radius * (float)(position % 2 == 0 ? cos(angle) : sin(angle));
}",
    ),
    (
        "random_normal_f64",
        "/* After Box and Muller: two elements are the coordinates of a point. */
static inline double random_normal_f64(random_key key, uint64_t position)
{
    uint32_t w[4];
    philox(key.key, key.offset + position / 2, 1, w);
    const double u = (double)((uint64_t)w[1] << 21 | w[0] >> 11) * 0x1p-53;
    const double v = (double)((uint64_t)w[3] << 21 | w[2] >> 11) * 0x1p-53;
    const double radius = sqrt(-2.0 * log(u + 0x1p-53)), angle = 6.283185307179586 * v;
    return radius * (position % 2 == 0 ? cos(angle) : sin(angle));
}",
    ),
    (
        "random_bits",
        "static inline int64_t random_bits(random_key key, uint64_t position)
{
    uint32_t w[4];
    philox(key.key, key.offset + position / 2, 2, w);
    const uint32_t *half = w + 2 * (position % 2);
    return (int64_t)((uint64_t)half[1] << 32 | half[0]);
}",
    ),
];

/// Functions that the C library does not have, with their numbers of arguments.
const EXTERNAL: [(&str, usize); 8] = [
    ("erfinv", 1),
    ("digamma", 1),
    ("i0", 1),
    ("i1", 1),
    ("polygamma", 2),
    ("igamma", 2),
    ("igammac", 2),
    ("igamma_grad_a", 2),
];

/// Draws from bits and the bits of parameters, with their numbers of arguments.
const DRAWS: [(&str, usize); 4] =
    [("gamma_draw", 2), ("log_gamma_draw", 2), ("poisson_draw", 2), ("binomial_draw", 3)];

fn external(name: &str, value: &str, count: usize) -> Helper {
    let arguments: Vec<String> =
        ["x", "y", "z"][..count].iter().map(|name| format!("{value} {name}")).collect();
    let (name, arguments) = (format!("girih_{name}"), arguments.join(", "));
    let text =
        format!("/* Not in the C library; to be linked. */\nextern {value} {name}({arguments});");
    Helper { name, text }
}
