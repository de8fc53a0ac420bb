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
