//! Arithmetic instructions that the instruction sets have in common.

use super::asm::{Map, Prefix, Source, VectorOp};
use super::emitter::{Emitter, Encoder, FROM_HALF, LOAD, TO_HALF, op};
use super::ir::{Binary, Lane, Number, Unary};

/// Shifts, with the extensions of their opcodes.
#[derive(Clone, Copy)]
pub(super) enum Shift {
    Right = 2,
    RightSigned = 4,
    Left = 6,
}

impl<'a, M> Emitter<'a, M>
where
    Emitter<'a, M>: Encoder,
{
    /// `out = a * b + c`; the instruction overwrites one of its operands.
    pub fn fma(&mut self, lane: Lane, out: u8, [a, b]: [u8; 2], c: Source) {
        const TIMES: VectorOp = op(Map::M0F38, Prefix::P66, 0xa8);
        const PLUS: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
        if matches!(c, Source::Reg(c) if c == out) {
            return self.plain(self.on(lane, PLUS), out, a, Source::Reg(b));
        }
        let other = if out == b { a } else { b };
        if out != a && out != b {
            self.plain(self.whole(LOAD), out, 0, Source::Reg(a));
        }
        self.plain(self.on(lane, TIMES), out, other, c);
    }

    /// A shift by a constant.
    pub fn shift(&mut self, kind: Shift, lane: Lane, out: u8, a: u8, by: u8) {
        let opcode = match (lane, kind) {
            (Lane::Wide, Shift::Left | Shift::Right) => 0x73,
            _ => 0x72,
        };
        let op = self.on(lane, op(Map::M0F, Prefix::P66, opcode));
        self.vector(op, kind as u8, out, Source::Reg(a), Some(by));
    }

    pub fn unary(&mut self, unary: Unary, lane: Lane, out: u8, a: u8) {
        let from = Source::Reg(a);
        match unary {
            Unary::Sqrt => {
                self.plain(self.on_floats(lane, op(Map::M0F, Prefix::None, 0x51)), out, 0, from);
            }
            Unary::Round(to) => {
                // Bit 3: no exception for inexact results.
                let opcode = if lane == Lane::Wide { 0x09 } else { 0x08 };
                let round = self.on(lane, op(Map::M0F3A, Prefix::P66, opcode));
                self.vector(round, out, 0, from, Some(8 | to as u8));
            }
            Unary::Left(by) => self.shift(Shift::Left, lane, out, a, by),
            Unary::Right(by) => self.shift(Shift::Right, lane, out, a, by),
            Unary::RightSigned(by) => self.shift(Shift::RightSigned, lane, out, a, by),
            Unary::RoundHalf => {
                let to = Source::Reg(Self::SCRATCH);
                self.vector(self.on_words(TO_HALF), a, 0, to, Some(0));
                self.plain(self.on_words(FROM_HALF), out, 0, to);
            }
        }
    }

    pub fn convert(&mut self, from: Number, to: Number, out: u8, a: u8) {
        use Number::*;
        let (prefix, opcode) = match (from, to) {
            (F32, F64) => (Prefix::None, 0x5a),
            (F64, F32) => (Prefix::P66, 0x5a),
            (I32, F32) | (I64, F32) => (Prefix::None, 0x5b),
            (U32, F32) | (U64, F32) => (Prefix::PF2, 0x7a),
            (I32, F64) | (I64, F64) => (Prefix::PF3, 0xe6),
            (U32, F64) | (U64, F64) => (Prefix::PF3, 0x7a),
            (F32, I32) => (Prefix::PF3, 0x5b),
            (F64, I32) => (Prefix::P66, 0xe6),
            (F32, U32) | (F64, U32) => (Prefix::None, 0x78),
            (F32, I64) | (F64, I64) => (Prefix::P66, 0x7a),
            (F32, U64) | (F64, U64) => (Prefix::P66, 0x78),
            _ => return self.resize(from, to, out, a),
        };
        // The wider type determines the vector width, the source type bit W.
        let wide = from.lane() == Lane::Wide;
        let bits = if wide || to.lane() == Lane::Wide { Self::BITS } else { self.words };
        let op = VectorOp { map: Map::M0F, prefix, opcode, wide, bits };
        self.plain(op, out, 0, Source::Reg(a));
    }

    /// Converts integers to integers with more or fewer bits.
    fn resize(&mut self, from: Number, to: Number, out: u8, a: u8) {
        match (from.lane(), to.lane()) {
            (Lane::Word, Lane::Wide) => {
                let opcode = if from == Number::I32 { 0x25 } else { 0x35 };
                let extend = self.whole(op(Map::M0F38, Prefix::P66, opcode));
                self.plain(extend, out, 0, Source::Reg(a));
            }
            (Lane::Wide, Lane::Word) => self.lower_words(out, a),
            _ => unreachable!("{from:?} and {to:?} have the same bits"),
        }
    }

    /// The instruction, and its immediate if it has one.
    pub fn binary(&self, binary: Binary, lane: Lane) -> (VectorOp, Option<u8>) {
        let wide = lane == Lane::Wide;
        let float = |opcode| self.on_floats(lane, op(Map::M0F, Prefix::None, opcode));
        let integer = |word: u8, double: u8| {
            self.on(lane, op(Map::M0F, Prefix::P66, if wide { double } else { word }))
        };
        let other = |opcode| self.on(lane, op(Map::M0F38, Prefix::P66, opcode));
        // Bit 2: the sign of the result is that of the compared value.
        let range = |which: u8| (self.on(lane, op(Map::M0F3A, Prefix::P66, 0x50)), Some(4 | which));
        let plain = match binary {
            Binary::MinNumberF => return range(0),
            Binary::MaxNumberF => return range(1),
            Binary::AddF => float(0x58),
            Binary::SubF => float(0x5c),
            Binary::MulF => float(0x59),
            Binary::DivF => float(0x5e),
            Binary::MinF => float(0x5d),
            Binary::MaxF => float(0x5f),
            Binary::ScaleF => other(0x2c),
            Binary::AddI => integer(0xfe, 0xd4),
            Binary::SubI => integer(0xfa, 0xfb),
            Binary::MulI => other(0x40),
            Binary::MulLow => integer(0xf4, 0xf4),
            Binary::And => integer(0xdb, 0xdb),
            Binary::Or => integer(0xeb, 0xeb),
            Binary::Xor => integer(0xef, 0xef),
            Binary::Left => other(0x47),
            Binary::Right => other(0x45),
            Binary::RightSigned => other(0x46),
        };
        (plain, None)
    }
}
