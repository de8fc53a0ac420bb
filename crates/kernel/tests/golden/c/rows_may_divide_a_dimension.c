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
