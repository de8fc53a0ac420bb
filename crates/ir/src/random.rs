//! The counter-based random generator: Philox 4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel
//! random numbers: as easy as 1, 2, 3", SC 2011). The op `philox` computes 64 bits from a key and a
//! counter; the ops of [`draws`] have such bits as the key of each element.

pub mod draws;

/// One block: ten rounds on a counter and a key.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    philox_blocks(counter.map(|word| [word]), key).map(|[word]| word)
}

/// `N` blocks of one key: `words[w][i]` is word `w` of the counter of block `i`, and so for the results.
/// The blocks are lanes of vectors, which is why their words are apart.
#[inline(always)]
pub fn philox_blocks<const N: usize>(mut words: [[u32; N]; 4], mut k: [u32; 2]) -> [[u32; N]; 4] {
    for _ in 0..10 {
        round(&mut words, |_| k);
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    words
}

/// The increments of the two words of a key from one round to the next.
const W: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];

/// A round on the counters of `N` blocks, whose keys are `key`'s.
#[inline(always)]
fn round<const N: usize>(words: &mut [[u32; N]; 4], key: impl Fn(usize) -> [u32; 2]) {
    const M: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
    let [c0, c1, c2, c3] = words;
    for i in 0..N {
        let (a, b) = (M[0] as u64 * c0[i] as u64, M[1] as u64 * c2[i] as u64);
        let k = key(i);
        c0[i] = (b >> 32) as u32 ^ c1[i] ^ k[0];
        c1[i] = b as u32;
        c2[i] = (a >> 32) as u32 ^ c3[i] ^ k[1];
        c3[i] = a as u32;
    }
}

/// Blocks of `N` keys at a counter of each: the two halves of block `i` are entry `i` of the results.
/// Plain loops, which are vectorised without optimisation across functions.
#[inline(always)]
fn halves<const N: usize>(keys: &[u64; N], counters: &[u64; N], stream: u32) -> [[u64; N]; 2] {
    let mut words = [[0; N], [0; N], [stream; N], [0; N]];
    let (mut k0, mut k1) = ([0; N], [0; N]);
    for i in 0..N {
        (words[0][i], words[1][i]) = (counters[i] as u32, (counters[i] >> 32) as u32);
        (k0[i], k1[i]) = (keys[i] as u32, (keys[i] >> 32) as u32);
    }
    for _ in 0..10 {
        round(&mut words, |i| [k0[i], k1[i]]);
        for i in 0..N {
            (k0[i], k1[i]) = (k0[i].wrapping_add(W[0]), k1[i].wrapping_add(W[1]));
        }
    }
    let mut out = [[0; N]; 2];
    for i in 0..N {
        out[0][i] = (words[1][i] as u64) << 32 | words[0][i] as u64;
        out[1][i] = (words[3][i] as u64) << 32 | words[2][i] as u64;
    }
    out
}

/// The third counter word of values drawn from a key. The random leaves use 0, 1 and 2, and draws of
/// an element's own key 4, so that a key and a seed with equal bits share no block.
const STREAM: u32 = 3;

/// The 64 random bits of a key at a counter: the first two words of the block of the key
/// `(key mod 2^32, key >> 32)` at the counter `(counter mod 2^32, counter >> 32, 3, 0)`.
#[inline(always)]
pub fn word(key: u64, counter: u64) -> u64 {
    let [[word], _] = halves(&[key], &[counter], STREAM);
    word
}

/// The words of keys at counters, several at a time in vector registers.
#[inline(always)]
pub fn fill_words(out: &mut [u64], keys: &[u64], counters: &[u64]) {
    const GROUP: usize = 16;
    for start in (0..out.len()).step_by(GROUP) {
        let (len, mut group) = (GROUP.min(out.len() - start), [[0; GROUP]; 2]);
        group[0][..len].copy_from_slice(&keys[start..][..len]);
        group[1][..len].copy_from_slice(&counters[start..][..len]);
        let [words, _] = halves(&group[0], &group[1], STREAM);
        out[start..][..len].copy_from_slice(&words[..len]);
    }
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
    fn words_of_many_keys_are_those_of_each() {
        let keys: Vec<u64> = (0..37).map(|i| word(i, 5)).collect();
        let counters: Vec<u64> = (0..37).map(|i| u64::MAX - i).collect();
        let mut words = vec![0; 37];
        fill_words(&mut words, &keys, &counters);
        for ((&key, &counter), found) in keys.iter().zip(&counters).zip(words) {
            assert_eq!(found, word(key, counter));
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
