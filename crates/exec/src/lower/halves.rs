//! Bitcasts, and halves that ops only move: these are copied as 16-bit integers.

use super::{Lower, Reg};
use crate::cast::is_half;
use crate::chain::ChainOp;
use crate::code::{Step, Write};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{Access, Block, Inst, Store, Val};

/// The source of a half's 16 bits, for values that ops only move. The half is not converted to f32
/// and back, because that would quiet signalling NaNs.
#[derive(Clone, Copy)]
pub(super) enum Raw<'a> {
    /// In memory.
    Memory(&'a Access),
    /// The same bits at all points.
    Constant(u64),
    /// In a register of u16.
    Bits(Reg),
}

impl<'a> Lower<'a> {
    /// The source of a value's bits, if it is a half that is only moved, or a bitcast from or to
    /// another dtype of 16 bits.
    pub(super) fn raw(&mut self, block: &Block, val: Val) -> Option<Raw<'a>> {
        let kernel = self.kernel;
        match block.inst(val) {
            Inst::Load(id) => {
                Some(Raw::Memory(kernel.access(*id))).filter(|_| is_half(kernel.access(*id).dtype))
            }
            Inst::Literal(l) if is_half(l.dtype) => Some(Raw::Constant(l.bits)),
            Inst::Op { code: OpCode::Bitcast, args, dtype } => {
                let (arg, from) = (args[0], kernel.dtype(block, args[0]));
                if !is_half(from) && !is_half(*dtype) {
                    return None;
                }
                if let Some(raw) = self.raws[arg.0 as usize] {
                    return Some(raw);
                }
                if let Inst::Load(id) = block.inst(arg) {
                    return Some(Raw::Memory(kernel.access(*id)));
                }
                if !is_half(from) {
                    return Some(Raw::Bits(self.convert(self.val(arg), from, DType::U16)));
                }
                let half = self.call(ChainOp::StoreHalf(from), from, &[self.val(arg)]);
                let copy = ChainOp::Op(OpCode::Bitcast, from);
                Some(Raw::Bits(self.call(copy, DType::U16, &[half])))
            }
            _ => None,
        }
    }

    /// A register of u16 with these bits.
    fn bits(&mut self, raw: Raw<'a>) -> Reg {
        match raw {
            Raw::Memory(access) => self.load(&Access { dtype: DType::U16, ..access.clone() }),
            Raw::Constant(bits) => self.literal(Literal { dtype: DType::U16, bits }),
            Raw::Bits(reg) => reg,
        }
    }

    /// Bitcasts a value to another dtype of its size.
    pub(super) fn bitcast(&mut self, val: Val, arg: Val, from: DType, to: DType) -> Reg {
        let Some(raw) = self.raws[val.0 as usize] else {
            // An integer is converted to another of its size, and bool to an integer, by wrapping.
            return match from.is_float() || to.is_float() {
                true => self.call(ChainOp::Op(OpCode::Bitcast, from), to, &[self.val(arg)]),
                false => self.convert(self.val(arg), from, to),
            };
        };
        if let Raw::Memory(access) = raw {
            return self.load(&Access { dtype: to, ..access.clone() });
        }
        let bits = self.bits(raw);
        match is_half(to) {
            true => {
                let half = self.call(ChainOp::Op(OpCode::Bitcast, DType::U16), to, &[bits]);
                self.loaded(half, to)
            }
            false => self.convert(bits, DType::U16, to),
        }
    }

    /// The register that a store writes; a half is as in memory.
    pub(super) fn stored(&mut self, store: &Store) -> Reg {
        let dtype = store.access.dtype;
        match (is_half(dtype), self.raws[store.value.0 as usize]) {
            (false, _) => self.val(store.value),
            (true, Some(raw)) => self.bits(raw),
            (true, None) => self.call(ChainOp::StoreHalf(dtype), dtype, &[self.val(store.value)]),
        }
    }

    /// Drops conversions of halves if only the bits of the halves are read, and loads that only
    /// these conversions use.
    pub(super) fn drop_unread(&mut self, writes: &[Write], keep: &[Reg]) {
        let mut read = vec![false; self.regs.len()];
        writes
            .iter()
            .map(|w| w.reg)
            .chain(keep.iter().copied())
            .for_each(|r| read[r as usize] = true);
        let mut needed = |step: &Step| {
            let pure = match step {
                Step::Call { op, .. } => matches!(op, ChainOp::LoadHalf(_)),
                step => matches!(step, Step::Read { .. } | Step::Splat { .. }),
            };
            let needed = !pure || read[step.out() as usize];
            if needed {
                step.uses().iter().for_each(|&r| read[r as usize] = true);
            }
            needed
        };
        let mut steps: Vec<Step> = self.steps.drain(..).rev().filter(|s| needed(s)).collect();
        steps.reverse();
        self.steps = steps;
        self.directs.retain(|d| read[d.reg as usize]);
    }
}
