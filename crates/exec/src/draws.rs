//! Words of keys, and draws by attempts, whose number differs from element to element: see
//! [`girih_ir::random`].

use super::isa::{BlockFn, Isa, Loop, select};
use super::ops::{slice, slice_mut};
use girih_ir::OpCode;
use girih_ir::random::draws::{Binomial, Gamma, Law, LogGamma, Poisson, fill};
use girih_ir::random::fill_words;
use std::marker::PhantomData;

struct Drawn<L>(PhantomData<L>);
impl<L: Law> Loop for Drawn<L> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, words: *const u8, a: *const u8, b: *const u8, n: usize) {
        // SAFETY: valid for `n` elements, aligned and not overlapping, by the contract of `run`.
        let (out, words, a) =
            unsafe { (slice_mut::<u64>(out, n), slice::<u64>(words, n), slice::<u64>(a, n)) };
        // SAFETY: as above; a law of one parameter has no third operand.
        let b = if L::PARAMETERS > 1 { unsafe { slice::<u64>(b, n) } } else { &[] };
        fill::<L>(out, words, a, b);
    }
}

struct Words;
impl Loop for Words {
    #[inline(always)]
    unsafe fn run(out: *mut u8, keys: *const u8, counters: *const u8, _: *const u8, n: usize) {
        // SAFETY: as in `Drawn`.
        let (out, keys, counters) =
            unsafe { (slice_mut::<u64>(out, n), slice::<u64>(keys, n), slice::<u64>(counters, n)) };
        fill_words(out, keys, counters);
    }
}

/// The loop of an op on words and bits; `None` for other ops.
pub(super) fn op(code: OpCode, isa: Isa) -> Option<BlockFn> {
    Some(match code {
        OpCode::Philox => select::<Words>(isa),
        OpCode::GammaDraw => select::<Drawn<Gamma>>(isa),
        OpCode::LogGammaDraw => select::<Drawn<LogGamma>>(isa),
        OpCode::PoissonDraw => select::<Drawn<Poisson>>(isa),
        OpCode::BinomialDraw => select::<Drawn<Binomial>>(isa),
        _ => return None,
    })
}
