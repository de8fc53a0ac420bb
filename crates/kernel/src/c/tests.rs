//! The exact C text of small programs. `girih-exec` tests that the C of many programs runs.

use super::*;

#[track_caller]
fn check(text: &str, expected: &str) {
    let program = Program::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let printed = print(&program);
    assert!(printed.starts_with(HEAD) && printed.contains("#include <math.h>\n"), "{printed}");
    let code = printed.split_once("#include <string.h>\n").expect("the last header").1;
    assert_eq!(code.trim(), expected.trim(), "\n{code}");
}

#[test]
fn a_reduction_is_a_loop_in_a_loop() {
    check(
        "b0 = argument 0: f32[6]
         b1 = f32[2]
         fused_mul_reduce_sum over [2 | 3]
           prologue:
             v0 = load b0[3*i0 + i1]
             v1 = mul(v0, v0): f32
           reduce sum v1
           v0 = core: f32
           v1 = argument 4: f32
           v2 = exp(v0): f32
           v3 = maximum(v2, v1): f32
           b1[i0] = v3
         outputs: [b1]",
        "
/* NaN if either is NaN; 0 is larger than -0. */
static inline float maximum_f32(float a, float b)
{
    if (isnan(a) || isnan(b))
        return a + b;
    return a > b || (a == b && signbit(b)) ? a : b;
}

/* fused_mul_reduce_sum over [2 | 3] */
void fused_mul_reduce_sum_0(const float *restrict b0, float *restrict b1, const float a4)
{
    for (int64_t i0 = 0; i0 < 2; i0++) {
        float sum = 0;
        for (int64_t i1 = 0; i1 < 3; i1++) {
            const float v0 = b0[3*i0 + i1];
            const float v1 = v0 * v0;
            sum += v1;
        }
        const float v0 = sum;
        const float v1 = a4;
        const float v2 = expf(v0);
        const float v3 = maximum_f32(v2, v1);
        b1[i0] = v3;
    }
}

void program(const float *restrict b0, float *restrict b1, const float a4)
{
    fused_mul_reduce_sum_0(b0, b1, a4);
}
",
    );
}

#[test]
fn a_gemm_of_integers_wraps_and_extends_its_operands() {
    check(
        "b0 = argument 0: i8[8]
         b1 = argument 1: u8[12]
         b2 = i32[6]
         matmul over [2, 3 | 4]
           matmul b0[4*i0 + i2] by b1[4*i1 + i2] in i32
           v0 = core: i32
           b2[3*i0 + i1] = v0
         outputs: [b2]",
        "
/* matmul over [2, 3 | 4] */
void matmul_0(const int8_t *restrict b0, const uint8_t *restrict b1, int32_t *restrict b2)
{
    for (int64_t i0 = 0; i0 < 2; i0++) {
        for (int64_t i1 = 0; i1 < 3; i1++) {
            int32_t sum = 0;
            for (int64_t i2 = 0; i2 < 4; i2++) {
                const int32_t a = b0[4*i0 + i2];
                const int32_t b = b1[4*i1 + i2];
                const int32_t ab = (uint32_t)a * b;
                sum = (uint32_t)sum + ab;
            }
            const int32_t v0 = sum;
            b2[3*i0 + i1] = v0;
        }
    }
}

void program(const int8_t *restrict b0, const uint8_t *restrict b1, int32_t *restrict b2)
{
    matmul_0(b0, b1, b2);
}
",
    );
}

#[test]
fn parts_of_a_row_kernel_share_one_loop() {
    check(
        "b0 = argument 0: bf16[12]
         b1 = bf16[2]
         b2 = i64[2]
         \"shift & find\" over [2]
           local b1: 2 bytes a row
           reduce_max over [2 | 2, 3]
             prologue:
               v0 = load b0[6*i0 + 3*i1 + i2]
             reduce max v0
             v0 = core: bf16
             b1[i0] = v0
           argmax over [2 | 2, 3]
             prologue:
               v0 = load b0[6*i0 + 3*i1 + i2]
               v1 = load b1[i0]
               v2 = sub(v0, v1): bf16
             reduce argmax v2
             v0 = core: i64
             b2[i0] = v0
         outputs: [b2]",
        "
static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float bf16_to_f32(uint16_t h)
{
    return f32_of_bits((uint32_t)h << 16);
}

/* Rounds to nearest even. */
static inline uint16_t f32_to_bf16(float x)
{
    const uint32_t bits = bits_of_f32(x);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float round_bf16(float x)
{
    return bf16_to_f32(f32_to_bf16(x));
}

/* NaN if either is NaN; 0 is larger than -0. */
static inline float maximum_f32(float a, float b)
{
    if (isnan(a) || isnan(b))
        return a + b;
    return a > b || (a == b && signbit(b)) ? a : b;
}

/* \"shift & find\" over [2] */
void shift___find_0(const uint16_t *restrict b0, int64_t *restrict b2)
{
    uint16_t b1[1];
    for (int64_t row = 0; row < 2; row++) {
        /* reduce_max over [2 | 2, 3] */
        {
            float max = -INFINITY;
            for (int64_t i1 = 0; i1 < 2; i1++) {
                for (int64_t i2 = 0; i2 < 3; i2++) {
                    const float v0 = bf16_to_f32(b0[6*row + 3*i1 + i2]);
                    max = maximum_f32(max, v0);
                }
            }
            const float v0 = round_bf16(max);
            b1[0] = f32_to_bf16(v0);
        }
        /* argmax over [2 | 2, 3] */
        {
            int64_t argmax = -1;
            float best = 0;
            for (int64_t i1 = 0; i1 < 2; i1++) {
                for (int64_t i2 = 0; i2 < 3; i2++) {
                    const float v0 = bf16_to_f32(b0[6*row + 3*i1 + i2]);
                    const float v1 = bf16_to_f32(b1[0]);
                    const float v2 = round_bf16(v0 - v1);
                    if (argmax < 0 || v2 > best || (isnan(v2) && !isnan(best))) {
                        argmax = 3*i1 + i2;
                        best = v2;
                    }
                }
            }
            const int64_t v0 = argmax;
            b2[row] = v0;
        }
    }
}

void program(const uint16_t *restrict b0, int64_t *restrict b2)
{
    shift___find_0(b0, b2);
}
",
    );
}

const SPLIT: &str = "b0 = argument 0: f32[12]
b1 = f32[12]
b2 = f32[4]
fused_exp_reduce_sum over [4]
  local b1: 12 bytes a row
  exp over [2, 6]
    v0 = load b0[6*i0 + i1]
    v1 = exp(v0): f32
    b1[6*i0 + i1] = v1
  reduce_sum over [4 | 3]
    prologue:
      v0 = load b1[3*i0 + i1]
    reduce sum v0
    v0 = core: f32
    b2[i0] = v0
outputs: [b2]";

#[test]
fn rows_may_divide_a_dimension() {
    check(
        SPLIT,
        "
/* fused_exp_reduce_sum over [4] */
void fused_exp_reduce_sum_0(const float *restrict b0, float *restrict b2)
{
    float b1[3];
    for (int64_t row = 0; row < 4; row++) {
        /* exp over [2, 6] */
        {
            const int64_t i0 = row / 2;
            const int64_t first = row % 2 * 3;
            for (int64_t i1 = first; i1 < first + 3; i1++) {
                const float v0 = b0[6*i0 + i1];
                const float v1 = expf(v0);
                b1[(i1 - first)] = v1;
            }
        }
        /* reduce_sum over [4 | 3] */
        {
            float sum = 0;
            for (int64_t i1 = 0; i1 < 3; i1++) {
                const float v0 = b1[i1];
                sum += v0;
            }
            const float v0 = sum;
            b2[row] = v0;
        }
    }
}

void program(const float *restrict b0, float *restrict b2)
{
    fused_exp_reduce_sum_0(b0, b2);
}
",
    );
}

const SCATTER: &str = "b0 = argument 0: i64[3]
b1 = argument 1: f32[6]
b2 = f32[8]
b3 = f32[8]
b4 = i64[8]
scatter over [3, 2]
  scatter_add + 2*b0[i0] of 4, independent [1]
  v0 = load b1[2*i0 + i1]
  b2[i1] = v0
sort over [2]
  b3[4], b4[4] = sort(result=0, size=0)(b2[4])
outputs: [b3, b3, b0]";

#[test]
fn a_routine_is_an_external_function_and_repeated_results_are_copied() {
    check(
        SCATTER,
        "
/* A position on an axis; a negative index counts from its end. */
static inline int64_t wrap_index(int64_t index, int64_t size)
{
    const int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        fprintf(stderr, \"index %lld is out of bounds for an axis of size %lld\\n\",
                (long long)index, (long long)size);
        abort();
    }
    return at;
}

/* scatter over [3, 2] */
void scatter_0(const int64_t *restrict b0, const float *restrict b1, float *restrict b2)
{
    memset(b2, 0, 8 * sizeof(float));
    for (int64_t i0 = 0; i0 < 3; i0++) {
        for (int64_t i1 = 0; i1 < 2; i1++) {
            const float v0 = b1[2*i0 + i1];
            const int64_t at = i1 + 2*wrap_index(b0[i0], 4);
            const float old = b2[at];
            b2[at] = old + v0;
        }
    }
}

/* b3[4], b4[4] = sort(result=0, size=0)(b2[4]): not in the IR; to be linked. */
extern void girih_sort_1(const float *operand0, float *result0, int64_t *result1);

/* sort over [2] */
void sort_1(const float *restrict b2, float *restrict b3, int64_t *restrict b4)
{
    for (int64_t i0 = 0; i0 < 2; i0++) {
        girih_sort_1(b2 + 4*i0, b3 + 4*i0, b4 + 4*i0);
    }
}

void program(
    const int64_t *restrict b0,
    const float *restrict b1,
    float *restrict b3,
    float *restrict r1,
    int64_t *restrict r2)
{
    static float b2[8];
    static int64_t b4[8];
    scatter_0(b0, b1, b2);
    sort_1(b2, b3, b4);
    memcpy(r1, b3, 8 * sizeof(float));
    memcpy(r2, b0, 3 * sizeof(int64_t));
}
",
    );
}

#[test]
fn a_scan_has_two_arrays_for_each_carry() {
    check(
        "b0 = argument 0: f32[2]
         b1 = argument 1: f32[6]
         b2 = f32[2]
         b3 = u8[512]
         scan over []
           b2 = scan of 3 parts in reverse with 1 carries and 1 slices(b0, b1) in b3 {
             b0 = argument 0: f32[2]
             b1 = argument 1: f32[2]
             b2 = f32[2]
             add over [2]
               v0 = load b0[i0]
               v1 = load b1[i0]
               v2 = add(v0, v1): f32
               b2[i0] = v2
             outputs: [b2]
           }
         outputs: [b2]",
        "
/* add over [2] */
static void scan_0_body_add_0(
    const float *restrict b0,
    const float *restrict b1,
    float *restrict b2)
{
    for (int64_t i0 = 0; i0 < 2; i0++) {
        const float v0 = b0[i0];
        const float v1 = b1[i0];
        const float v2 = v0 + v1;
        b2[i0] = v2;
    }
}

static void scan_0_body(const float *restrict b0, const float *restrict b1, float *restrict b2)
{
    scan_0_body_add_0(b0, b1, b2);
}

/* scan over [] */
void scan_0(const float *restrict b0, const float *restrict b1, float *restrict b2)
{
    static float carry0[2][2];
    memcpy(carry0[0], b0, 2 * sizeof(float));
    for (int64_t t = 0; t < 3; t++) {
        const int64_t part = 2 - t;
        scan_0_body(carry0[t % 2], b1 + 2*part, carry0[(t + 1) % 2]);
    }
    memcpy(b2, carry0[1], 2 * sizeof(float));
}

void program(const float *restrict b0, const float *restrict b1, float *restrict b2)
{
    scan_0(b0, b1, b2);
}
",
    );
}

#[test]
fn the_example_of_the_documentation_is_what_is_printed() {
    let page = include_str!("../../../../docs/explain.md");
    let text = "b0 = argument 0: f32[25088]
b1 = argument 1: f32[7840]
b2 = f32[320]
b3 = f32[10]
fused_matmul_relu over [32, 10 | 784]
  matmul b0[784*i0 + i2] by b1[i1 + 10*i2]
  v0 = core: f32
  v1 = 0.0:f32
  v2 = maximum(v0, v1): f32
  b2[10*i0 + i1] = v2
reduce_sum over [10 | 32]
  prologue:
    v0 = load b2[i0 + 10*i1]
  reduce sum v0
  v0 = core: f32
  b3[i0] = v0
outputs: [b3, b2]";
    let printed = print(&Program::parse(text).unwrap());
    let kernels = &printed[printed.find("/* fused_matmul_relu").unwrap()..];
    assert!(page.contains(&format!("```c\n{}\n```", kernels.trim())), "{kernels}");
}

#[test]
fn names_and_comments_are_valid() {
    assert_eq!(identifier("fused_add"), "fused_add");
    assert_eq!(identifier("2 sums, */"), "kernel_2_sums____");
    assert_eq!(identifier(""), "kernel_");
    assert_eq!(comment(" a */ b"), "a * / b");
    assert!(helpers::occurs("exp_c128", "x = exp_c128(y)"));
    assert!(!helpers::occurs("exp_c128", "x = rexp_c128(y) + exp_c1280"));
}
