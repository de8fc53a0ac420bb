/* A position on an axis; a negative index counts from its end. */
static inline int64_t wrap_index(int64_t index, int64_t size)
{
    const int64_t at = index < 0 ? index + size : index;
    if (at < 0 || at >= size) {
        fprintf(stderr, "index %lld is out of bounds for an axis of size %lld\n",
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
