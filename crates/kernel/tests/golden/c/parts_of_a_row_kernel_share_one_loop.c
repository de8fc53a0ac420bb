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

/* "shift & find" over [2] */
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
