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
