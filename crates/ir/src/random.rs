//! The counter-based random generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel
//! random numbers: as easy as 1, 2, 3", SC 2011). The op `philox` computes 64 bits from a key and a
//! counter.

/// One block: ten rounds on a counter and a key.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_blocks(counter.map(|word| [word]), key).map(|[word]| word)
}

/// `N` blocks of one key: `words[w][i]` is word `w` of the counter of block `i`, and so for the results.
/// The blocks are lanes of vectors, which is why their words are apart.
#[inline(always)]
pub fn philox_blocks<const N: usize>(mut words: [[u32; N]; 4], mut k: [u32; 2]) -> [[u32; N]; 4] {
    const M: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    const W: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
    for _ in 0..10 {
        let [c0, c1, c2, c3] = &mut words;
        for i in 0..N {
            let (a, b) = (M[0] as u64 * c0[i] as u64, M[1] as u64 * c2[i] as u64);
            c0[i] = (b >> 32) as u32 ^ c1[i] ^ k[0];
            c1[i] = b as u32;
            c2[i] = (a >> 32) as u32 ^ c3[i] ^ k[1];
            c3[i] = a as u32;
        }
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    words
}

/// The third counter word of values drawn from a key. The random leaves use 0, 1 and 2, so that a
/// key and a seed with equal bits share no block.
const STREAM: u32 = 3;

/// The 64 random bits of a key at a counter: the first two words of the block of the key
/// `(key mod 2^32, key >> 32)` at the counter `(counter mod 2^32, counter >> 32, 3, 0)`.
#[inline(always)]
pub fn word(key: u64, counter: u64) -> u64 {
    let counter = [counter as u32, (counter >> 32) as u32, STREAM, 0];
    let [low, high, ..] = philox(counter, [key as u32, (key >> 32) as u32]);
    (high as u64) << 32 | low as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_random123() {
        let max = u32::MAX;
        for (c, k, want) in [
            ([0; 4], [0; 2], [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]),
            ([max; 4], [max; 2], [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]),
            (
                [0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344],
                [0xa4093822, 0x299f31d0],
                [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1],
            ),
        ] {
            assert_eq!(philox(c, k), want);
        }
    }

    #[test]
    fn a_word_is_half_a_block_of_its_own_stream() {
        let (key, counter) = (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210);
        let block = philox([0x7654_3210, 0xfedc_ba98, 3, 0], [0x89ab_cdef, 0x0123_4567]);
        assert_eq!(word(key, counter), (block[1] as u64) << 32 | block[0] as u64);
    }

    #[test]
    fn neighbouring_counters_and_keys_share_no_bits() {
        for (i, j) in [(0, 1), (1, 2), (7, 8), (u64::MAX, 0)] {
            for (a, b) in [(word(5, i), word(5, j)), (word(i, 5), word(j, 5))] {
                assert!((16..48).contains(&(a ^ b).count_ones()), "{a:x} {b:x}");
            }
        }
    }
}
