//! Reductions: the accumulators before the loop, and their lanes after it.

use super::super::allocate::Step;
use super::super::asm::{Bits, Map, Mem, Prefix, Source, VectorOp};
use super::super::ir::{Fold, Lane};
use super::{Emitter, Encoder, INDEX, STORE_32, STORE_64, op, short};

impl<'a, M> Emitter<'a, M>
where
    Emitter<'a, M>: Encoder,
{
    /// Initialises the accumulators.
    pub(super) fn start_fold(&mut self) {
        const WORD: VectorOp = short(Map::M0F, Prefix::P66, 0x6e);
        let Some(Fold { lane, identity, .. }) = self.program.fold else { return };
        self.asm.set(INDEX, identity);
        let wide = lane == Lane::Wide;
        for reg in self.accumulators() {
            self.plain(VectorOp { wide, ..WORD }, reg, 0, Source::Reg(INDEX.0));
            self.splat_from(wide, reg, Source::Reg(reg));
        }
    }

    /// Combines the accumulators pairwise, then the halves of the last one, and stores the result.
    pub(super) fn finish_fold(&mut self, combine: &[Step]) {
        let Some(Fold { pointer, lane, .. }) = self.program.fold else { return };
        let first = self.accumulators().start;
        let mut count = self.accumulators().len() as u8;
        while count > 1 {
            count /= 2;
            (first..first + count).for_each(|reg| self.combine(reg, reg + count, combine));
        }
        let one = if lane == Lane::Wide { 8 } else { 4 };
        let mut bytes = one * self.lanes;
        while bytes > one {
            bytes /= 2;
            self.take_upper(first + 1, first, bytes);
            self.combine(first, first + 1, combine);
        }
        let base = self.bases[pointer as usize].expect("a fold has its base");
        let to = Source::Mem(Mem::Offset { base, displacement: 0 });
        self.plain(if lane == Lane::Wide { STORE_64 } else { STORE_32 }, first, 0, to);
    }

    /// Combines the lanes of two registers into the first.
    fn combine(&mut self, accumulator: u8, other: u8, steps: &[Step]) {
        (self.accumulator, self.other) = (accumulator, other);
        self.steps(steps);
    }

    /// Moves the upper of two halves of `bytes` bytes to the lower half.
    fn take_upper(&mut self, to: u8, from: u8, bytes: i32) {
        const HALF_OF_64: VectorOp =
            VectorOp { wide: true, bits: Bits::B512, ..op(Map::M0F3A, Prefix::P66, 0x1b) };
        const HALF_OF_32: VectorOp = op(Map::M0F3A, Prefix::P66, 0x19);
        const PERMUTE: VectorOp = short(Map::M0F3A, Prefix::P66, 0x04);
        match bytes {
            32 => self.vector(HALF_OF_64, from, 0, Source::Reg(to), Some(1)),
            16 => self.vector(HALF_OF_32, from, 0, Source::Reg(to), Some(1)),
            8 => self.vector(PERMUTE, to, 0, Source::Reg(from), Some(0b1110)),
            _ => self.vector(PERMUTE, to, 0, Source::Reg(from), Some(0b01)),
        }
    }
}
