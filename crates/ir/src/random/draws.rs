//! Draws whose number of attempts differs from element to element. Each element has a generator of
//! its own: its word is the key of blocks at the counters `(attempt mod 2^32, attempt >> 32, 4, 0)`,
//! so that a draw depends on word and parameters alone, and only the elements whose attempt is
//! rejected make another one. The ops pass words and f64 as their bits.
//!
//! Executors call these functions, whose elementary functions are not those of a machine, so that every
//! device and every machine draws the same numbers.

use super::halves;
use crate::{OpCode, special};
use std::f64::consts::{LN_2, LOG2_E, SQRT_2, TAU};

/// The third counter word: see [`super::word`].
const STREAM: u32 = 4;

/// The draw of an op of this module, as bits, from the bits of word and parameters; `None` for
/// other ops.
pub fn draw(code: OpCode, operands: &[u64]) -> Option<u64> {
    let (&word, parameters) = operands.split_first()?;
    let [a, b] = [0, 1].map(|i| parameters.get(i).copied().unwrap_or_default());
    let mut out = [0];
    match code {
        OpCode::GammaDraw => fill::<Gamma>(&mut out, &[word], &[a], &[b]),
        OpCode::LogGammaDraw => fill::<LogGamma>(&mut out, &[word], &[a], &[b]),
        OpCode::PoissonDraw => fill::<Poisson>(&mut out, &[word], &[a], &[b]),
        OpCode::BinomialDraw => fill::<Binomial>(&mut out, &[word], &[a], &[b]),
        _ => return None,
    }
    Some(out[0])
}

/// A distribution with its parameters.
pub trait Law {
    /// The number of parameters.
    const PARAMETERS: usize;
    /// The law of two parameters; with one parameter, the second is not read.
    fn new(parameters: [f64; 2]) -> Self;
    /// A draw.
    fn draw(&self, words: &mut Words) -> f64;
}

/// The number of elements whose first blocks are computed at a time, in vector registers.
const GROUP: usize = 16;

/// Draws for the elements of `words`; operands and results are bits. For a law of one parameter,
/// `b` is not read.
#[inline(always)]
pub fn fill<L: Law>(out: &mut [u64], words: &[u64], a: &[u64], b: &[u64]) {
    let mut known: Option<([u64; 2], L)> = None;
    for start in (0..out.len()).step_by(GROUP) {
        let len = GROUP.min(out.len() - start);
        let mut keys = [0; GROUP];
        keys[..len].copy_from_slice(&words[start..][..len]);
        let first = halves(&keys, &[0; GROUP], STREAM);
        for i in 0..len {
            let at = start + i;
            let second = if L::PARAMETERS > 1 { b[at] } else { 0 };
            let parameters = [a[at], second];
            // Most draws have the parameters of the one before.
            if known.as_ref().is_none_or(|(of, _)| *of != parameters) {
                known = Some((parameters, L::new(parameters.map(f64::from_bits))));
            }
            let Some((_, law)) = &known else { unreachable!("it is set above") };
            let mut words = Words { key: keys[i], used: 0, block: [first[0][i], first[1][i]] };
            out[at] = law.draw(&mut words).to_bits();
        }
    }
}

/// The random words of one element, in order.
pub struct Words {
    key: u64,
    used: u64,
    /// The block of the next word.
    block: [u64; 2],
}

impl Words {
    #[inline(always)]
    fn next(&mut self) -> u64 {
        if self.used != 0 && self.used.is_multiple_of(2) {
            self.advance();
        }
        let word = self.block[(self.used % 2) as usize];
        self.used += 1;
        word
    }

    /// Few attempts are second ones, so that they are not worth a place in the loop.
    #[inline(never)]
    fn advance(&mut self) {
        let [[first], [second]] = halves(&[self.key], &[self.used / 2], STREAM);
        self.block = [first, second];
    }

    /// A number in the open interval from 0 to 1.
    #[inline(always)]
    fn open(&mut self) -> f64 {
        ((self.next() >> 12) as f64 + 0.5) * (1.0 / 4_503_599_627_370_496.0)
    }

    /// A standard normal number, by the inverse of the distribution function.
    #[inline(always)]
    fn normal(&mut self) -> f64 {
        special::erfinv(2.0 * self.open() - 1.0) * SQRT_2
    }
}

/// Gamma draws of a shape; NaN unless the shape is positive. G. Marsaglia and W. W. Tsang, "A simple
/// method for generating gamma variables", ACM Transactions on Mathematical Software 26, 2000.
pub struct Gamma {
    shape: f64,
    d: f64,
    c: f64,
}

impl Gamma {
    /// A draw as a factor, and the logarithm of another factor, which may be very small.
    #[inline(always)]
    fn parts(&self, words: &mut Words) -> (f64, f64) {
        let Gamma { shape, d, c } = *self;
        let v = loop {
            let (x, u) = (words.normal(), words.open());
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let (v, square) = (root * root * root, x * x);
            if u < 1.0 - 0.0331 * square * square || log(u) < 0.5 * square + d * (1.0 - v + log(v))
            {
                break v;
            }
        };
        // For a shape below one, multiply a draw for the shape plus one by a power of a uniform draw.
        let boost = if shape < 1.0 { log(words.open()) / shape } else { 0.0 };
        (d * v, boost)
    }
}

impl Law for Gamma {
    const PARAMETERS: usize = 1;

    fn new([shape, _]: [f64; 2]) -> Gamma {
        let valid = shape > 0.0 && shape < f64::INFINITY;
        let more = if shape < 1.0 { shape + 1.0 } else { shape };
        let d = if valid { more - 1.0 / 3.0 } else { 1.0 };
        let shape = if valid { shape } else { f64::NAN };
        Gamma { shape, d, c: 1.0 / (9.0 * d).sqrt() }
    }

    #[inline(always)]
    fn draw(&self, words: &mut Words) -> f64 {
        let (factor, boost) = self.parts(words);
        match self.shape {
            shape if shape.is_nan() => shape,
            shape if shape < 1.0 => factor * exp(boost),
            _ => factor,
        }
    }
}

/// Logarithms of the draws of [`Gamma`], which do not underflow for small shapes.
pub struct LogGamma(Gamma);

impl Law for LogGamma {
    const PARAMETERS: usize = 1;

    fn new(parameters: [f64; 2]) -> LogGamma {
        LogGamma(Gamma::new(parameters))
    }

    #[inline(always)]
    fn draw(&self, words: &mut Words) -> f64 {
        let (factor, boost) = self.0.parts(words);
        if self.0.shape.is_nan() { self.0.shape } else { log(factor) + boost }
    }
}

/// Counts of which the first numbers are likely: their probabilities are subtracted from a uniform
/// draw, one after the other.
fn sequential(start: f64, ratio: impl Fn(f64) -> f64, words: &mut Words) -> f64 {
    /// `1 / k`, because a division is the slowest part of a step.
    const INVERSES: [f64; 128] = {
        let mut inverses = [1.0; 128];
        let mut k = 1;
        while k < 128 {
            inverses[k] = 1.0 / k as f64;
            k += 1;
        }
        inverses
    };
    /// A probability that ends the search. At first, no probability is as small.
    const NEGLIGIBLE: f64 = 1e-18;
    let (mut rest, mut probability, mut k) = (words.open(), start, 0);
    while rest > probability && probability > NEGLIGIBLE && k < 127 {
        rest -= probability;
        k += 1;
        probability *= ratio(k as f64) * INVERSES[k];
    }
    // The last count had no probability left, for example because it is beyond the number of trials.
    if k > 0 && probability <= NEGLIGIBLE { k as f64 - 1.0 } else { k as f64 }
}

/// The constants of the transformed rejection for large means, computed from the parameters of the
/// distribution: W. Hörmann, "The transformed rejection method for generating Poisson random
/// variables", Insurance: Mathematics and Economics 12, 1993, and "The generation of binomial random
/// variates", Journal of Statistical Computation and Simulation 46, 1993.
struct Hat {
    a: f64,
    b: f64,
    centre: f64,
    scale: f64,
    sure: f64,
    /// How near to the ends a uniform draw allows a quick rejection; 0 for never.
    thin: f64,
}

impl Hat {
    /// The first accepted count up to `most`; `log_density` is the logarithm of a count's density.
    #[inline(always)]
    fn draw(&self, most: f64, log_density: impl Fn(f64) -> f64, words: &mut Words) -> f64 {
        let Hat { a, b, centre, scale, sure, thin } = *self;
        loop {
            let (u, v) = (words.open() - 0.5, words.open());
            let us = 0.5 - u.abs();
            let k = ((2.0 * a / us + b) * u + centre).floor();
            if us >= 0.07 && v <= sure {
                return k;
            }
            if k < 0.0 || k > most || (us < thin && v > us) {
                continue;
            }
            if log(v * scale / (a / (us * us) + b)) <= log_density(k) {
                return k;
            }
        }
    }
}

/// Poisson draws of a mean; -1 for a negative mean and NaN. Routine PTRS for large means.
pub struct Poisson {
    mean: f64,
    /// The probability of 0, or the logarithm of a large mean.
    start: f64,
    hat: Hat,
}

/// The least mean that is drawn by rejection.
const LARGE: f64 = 10.0;
/// The mean and the number of trials below which counts are exact.
const MOST: f64 = 1e18;

impl Law for Poisson {
    const PARAMETERS: usize = 1;

    fn new([mean, _]: [f64; 2]) -> Poisson {
        let mean = if (0.0..MOST).contains(&mean) { mean } else { -1.0 };
        let b = 0.931 + 2.53 * mean.max(LARGE).sqrt();
        let hat = Hat {
            a: 0.02483 * b - 0.059,
            b,
            centre: mean + 0.43,
            scale: 1.1239 + 1.1328 / (b - 3.4),
            sure: 0.9277 - 3.6224 / (b - 2.0),
            thin: 0.013,
        };
        let start = if mean < LARGE { libm::exp(-mean) } else { libm::log(mean) };
        Poisson { mean, start, hat }
    }

    #[inline(always)]
    fn draw(&self, words: &mut Words) -> f64 {
        let (mean, start) = (self.mean, self.start);
        match mean {
            mean if mean < 0.0 => -1.0,
            mean if mean < LARGE => sequential(start, |_| mean, words),
            _ => {
                let log_density = |k: f64| k * start - mean - log_factorial(k);
                self.hat.draw(f64::INFINITY, log_density, words)
            }
        }
    }
}

/// Numbers of successes in a number of trials of a probability; -1 unless the number is whole and
/// not negative, and the probability within 0 and 1. Routine BTRS for large means.
pub struct Binomial {
    /// The number of trials; -1 for invalid parameters.
    trials: f64,
    /// The probability of the rarer outcome.
    rare: f64,
    /// Whether this is failure.
    flipped: bool,
    odds: f64,
    /// The probability of 0, or the logarithm of the odds.
    start: f64,
    mode: f64,
    /// The logarithm of the density at the mode, without its constant factor.
    at_mode: f64,
    hat: Hat,
}

impl Binomial {
    fn is_large(&self) -> bool {
        self.trials * self.rare >= LARGE
    }

    /// The logarithm of the number of orders of `k` successes and of failures.
    fn orders(&self, k: f64) -> f64 {
        log_factorial(k) + log_factorial(self.trials - k)
    }
}

impl Law for Binomial {
    const PARAMETERS: usize = 2;

    fn new([n, p]: [f64; 2]) -> Binomial {
        let valid = n.floor() == n && (0.0..MOST).contains(&n) && (0.0..=1.0).contains(&p);
        let (n, p) = if valid { (n, p) } else { (-1.0, 0.0) };
        let (rare, flipped) = if p > 0.5 { (1.0 - p, true) } else { (p, false) };
        let odds = rare / (1.0 - rare);
        let deviation = (n * rare * (1.0 - rare)).max(0.0).sqrt();
        let b = 1.15 + 2.53 * deviation;
        let hat = Hat {
            a: -0.0873 + 0.0248 * b + 0.01 * rare,
            b,
            centre: n * rare + 0.5,
            scale: (2.83 + 5.1 / b) * deviation,
            sure: 0.92 - 4.2 / b,
            thin: 0.0,
        };
        let mode = ((n + 1.0) * rare).floor();
        let start = 0.0;
        let mut law = Binomial { trials: n, rare, flipped, odds, start, mode, at_mode: 0.0, hat };
        if law.is_large() {
            (law.start, law.at_mode) = (libm::log(odds), law.orders(mode));
        } else {
            law.start = libm::exp(n * libm::log1p(-rare));
        }
        law
    }

    #[inline(always)]
    fn draw(&self, words: &mut Words) -> f64 {
        let (n, odds, log_odds) = (self.trials, self.odds, self.start);
        if n < 0.0 {
            return -1.0;
        }
        let found = if self.is_large() {
            let log_density = |k: f64| self.at_mode - self.orders(k) + (k - self.mode) * log_odds;
            self.hat.draw(n, log_density, words)
        } else {
            sequential(self.start, |k| (n - k + 1.0) * odds, words)
        };
        if self.flipped { n - found } else { found }
    }
}

/// The logarithm of a normal number above 0, to a few units in the last place: fdlibm's polynomial (Sun
/// Microsystems, 1993) without its cases.
#[inline(always)]
fn log(x: f64) -> f64 {
    const ROOT_OF_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    const C: [f64; 7] = [
        6.666_666_666_666_735e-1,
        3.999_999_999_940_942e-1,
        2.857_142_874_366_239e-1,
        2.222_219_843_214_978_4e-1,
        1.818_357_216_161_805e-1,
        1.531_383_769_920_937_3e-1,
        1.479_819_860_511_658_6e-1,
    ];
    let shifted = x.to_bits().wrapping_sub(ROOT_OF_HALF);
    let exponent = ((shifted as i64) >> 52) as f64;
    let fraction = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff) + ROOT_OF_HALF) - 1.0;
    let s = fraction / (2.0 + fraction);
    exponent * LN_2 + s * (2.0 + s * s * polynomial(s * s, C))
}

/// The exponential of a number that is not positive.
#[inline(always)]
fn exp(x: f64) -> f64 {
    /// The reciprocals of the factorials from 2 on.
    const C: [f64; 12] = {
        let (mut c, mut i) = ([0.5; 12], 1);
        while i < 12 {
            c[i] = c[i - 1] / (i + 2) as f64;
            i += 1;
        }
        c
    };
    /// The upper part of the logarithm of two, whose multiples are exact, and the rest.
    const LN_2_PARTS: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];
    if x < -700.0 {
        return libm::exp(x);
    }
    let k = (x * LOG2_E).round_ties_even();
    let r = (x - k * LN_2_PARTS[0]) - k * LN_2_PARTS[1];
    let power = f64::from_bits(((k as i64 + 1023) as u64) << 52);
    power + power * (r + r * r * polynomial(r, C))
}

/// `c[0] + c[1] x + ...`.
#[inline(always)]
fn polynomial<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    let mut sum = 0.0;
    for i in (0..N).rev() {
        sum = sum * x + c[i];
    }
    sum
}

/// The logarithm of a count's factorial, by Stirling's series.
#[inline(always)]
fn log_factorial(count: f64) -> f64 {
    const C: [f64; 4] = [1.0 / 12.0, -1.0 / 360.0, 1.0 / 1260.0, -1.0 / 1680.0];
    let (mut count, mut more) = (count, 1.0);
    while count < 16.0 {
        count += 1.0;
        more *= count;
    }
    let inverse = 1.0 / count;
    let series = inverse * polynomial(inverse * inverse, C);
    let most = (count + 0.5) * log(count) - count + (0.5 * log(TAU) + series);
    if more == 1.0 { most } else { most - log(more) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elementary_functions_are_nearly_exact() {
        for i in 1..2000 {
            let x = 0.37 * i as f64;
            for x in [x, 1e-9 * x, 1e9 * x, 1.0 + 1e-4 * x] {
                assert!(
                    (log(x) - libm::log(x)).abs() <= 4e-16 * libm::log(x).abs().max(0.5),
                    "{x}"
                );
            }
            let (found, wanted) = (exp(-x), libm::exp(-x));
            assert!((found - wanted).abs() <= 1e-15 * wanted, "{x}: {found} {wanted}");
        }
        assert_eq!((exp(0.0), exp(f64::NEG_INFINITY)), (1.0, 0.0));
        for k in (0..200).map(f64::from).chain([1e6, 1e12, 1e17]) {
            let (found, wanted) = (log_factorial(k), special::lgamma(k + 1.0));
            assert!(
                (found - wanted).abs() <= 4e-14 * wanted.abs().max(1.0),
                "{k}: {found} {wanted}"
            );
        }
    }

    #[test]
    fn a_draw_depends_on_its_own_operands_only() {
        let n = 100;
        let words: Vec<u64> = (0..n).map(|i| crate::random::word(3, i)).collect();
        let of = |cycle: &[f64]| {
            cycle.iter().cycle().take(n as usize).map(|x| x.to_bits()).collect::<Vec<_>>()
        };
        let a = of(&[0.3, 0.3, 7.0, 60.0, -1.0, f64::NAN, 1e4]);
        let b = of(&[0.2, 0.9, 0.5]);
        fn check<L: Law>(code: OpCode, words: &[u64], a: &[u64], b: &[u64]) {
            let mut out = vec![0; words.len()];
            fill::<L>(&mut out, words, a, b);
            for i in 0..words.len() {
                let one = draw(code, &[words[i], a[i], b[i]][..1 + L::PARAMETERS]);
                assert_eq!(one, Some(out[i]), "{code:?} {i}");
            }
        }
        check::<Gamma>(OpCode::GammaDraw, &words, &a, &b);
        check::<LogGamma>(OpCode::LogGammaDraw, &words, &a, &b);
        check::<Poisson>(OpCode::PoissonDraw, &words, &a, &b);
        check::<Binomial>(OpCode::BinomialDraw, &words, &of(&[40.0, 0.0, 7.0, 2.5, 1e6]), &b);
        assert_eq!(draw(OpCode::Philox, &[1, 2]), None);
    }

    #[test]
    fn draws_of_extreme_parameters_end() {
        let words: Vec<u64> = (0..64).map(|i| crate::random::word(9, i)).collect();
        let draws = |code, a: f64, b: f64| {
            let draw = |&word: &u64| draw(code, &[word, a.to_bits(), b.to_bits()]);
            words.iter().filter_map(draw).map(f64::from_bits).collect::<Vec<_>>()
        };
        for shape in [5e-324, 1e-300, 1e-9, 0.999, 1.0, 1e300] {
            let of = |code| draws(code, shape, 0.0);
            assert!(of(OpCode::GammaDraw).iter().all(|x| *x >= 0.0));
            assert!(of(OpCode::LogGammaDraw).iter().all(|x| *x < f64::INFINITY));
        }
        for mean in [0.0, 5e-324, 9.999, 10.0, 9.9e17] {
            let found = draws(OpCode::PoissonDraw, mean, 0.0);
            let off = 12.0 * mean.sqrt() + 12.0;
            assert!(found.iter().all(|k| k.fract() == 0.0 && (k - mean).abs() <= off), "{found:?}");
        }
        for (n, p) in [(9.9e17, 1e-18), (9.9e17, 0.5), (1.0, 0.5), (3.0, 1.0), (20.0, 0.5)] {
            let (found, mean) = (draws(OpCode::BinomialDraw, n, p), n * p);
            let off = 12.0 * (mean * (1.0 - p)).sqrt() + 12.0;
            assert!(found.iter().all(|k| (0.0..=n).contains(k) && (k - mean).abs() <= off));
        }
    }
}
