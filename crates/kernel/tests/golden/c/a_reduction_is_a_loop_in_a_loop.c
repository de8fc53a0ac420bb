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
