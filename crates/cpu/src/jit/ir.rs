//! The vector IR: straight-line programs over lanes, in single-assignment form, that the encoders
//! turn into the body of a loop. It knows neither registers nor a machine's vector width.
//!
//! Every instruction computes what one IEEE or integer operation does, in each lane by itself, so a
//! program gives the same bits on every machine that runs it. Masks are values too: one truth per
//! lane.

use super::scalar::Scalar;
use girih_kernel::Isa;
use std::cell::RefCell;

/// What a lane of a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// 32 bits: a float or an integer, as its users say.
    Word,
    /// 64 bits, likewise.
    Wide,
    /// A truth.
    Mask,
}

/// How elements lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// Four bytes, a word as it is.
    Word,
    /// Eight bytes, a wide one as it is.
    Wide,
    /// One or two bytes; a word holds the integer.
    Byte {
        signed: bool,
    },
    Short {
        signed: bool,
    },
    /// IEEE half precision; a word holds the f32.
    Half,
    /// The upper half of an f32.
    Brain,
    /// A byte 0 or 1; a mask.
    Bool,
}

impl Element {
    /// Bytes of one.
    pub fn size(self) -> usize {
        match self {
            Element::Wide => 8,
            Element::Word => 4,
            Element::Half | Element::Brain | Element::Short { .. } => 2,
            Element::Bool | Element::Byte { .. } => 1,
        }
    }

    /// What a value loaded from it holds.
    pub fn lane(self) -> Lane {
        match self {
            Element::Bool => Lane::Mask,
            Element::Wide => Lane::Wide,
            _ => Lane::Word,
        }
    }
}

/// What a lane's bits stand for, where a conversion has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Number {
    F32,
    I32,
    U32,
    F64,
    I64,
    U64,
}

impl Number {
    /// The lanes that hold it.
    pub fn lane(self) -> Lane {
        match self {
            Number::F32 | Number::I32 | Number::U32 => Lane::Word,
            Number::F64 | Number::I64 | Number::U64 => Lane::Wide,
        }
    }
}

/// Operations on two words, or two wide ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    AddF,
    SubF,
    MulF,
    DivF,
    /// `a < b ? a : b`, and `a > b ? a : b`.
    MinF,
    MaxF,
    /// The smaller and the larger number, -0 being less than +0; of a NaN and a number, the number.
    LeastF,
    GreatestF,
    /// The first times two to the integral second, rounded once.
    ScaleF,
    AddI,
    SubI,
    MulI,
    And,
    Or,
    Xor,
    /// Shifts; by more than there are bits, all go out.
    Left,
    Right,
    RightSigned,
    /// Of wide ones: the product of the lower 32 bits, without signs.
    MulLow,
}

impl Binary {
    /// True if operands may be exchanged. (Of two NaNs another may then stay: their payloads are
    /// nobody's business.)
    pub fn commutes(self) -> bool {
        use Binary::*;
        matches!(self, AddF | MulF | AddI | MulI | MulLow | And | Or | Xor)
    }

    /// The result on constants of a lane.
    fn fold(self, lane: Lane, a: u64, b: u64) -> u64 {
        let wide = lane == Lane::Wide;
        let float = |single: fn(f32, f32) -> f32, double: fn(f64, f64) -> f64| match wide {
            true => double(f64::from_bits(a), f64::from_bits(b)).to_bits(),
            false => single(f32::from_bits(a as u32), f32::from_bits(b as u32)).to_bits() as u64,
        };
        let bits = if wide { 64 } else { 32 };
        let signed = if wide { a as i64 } else { a as u32 as i32 as i64 };
        let shift = |to: u64| if b < bits { to } else { 0 };
        let result = match self {
            Binary::AddF => float(|a, b| a + b, |a, b| a + b),
            Binary::SubF => float(|a, b| a - b, |a, b| a - b),
            Binary::MulF => float(|a, b| a * b, |a, b| a * b),
            Binary::DivF => float(|a, b| a / b, |a, b| a / b),
            Binary::MinF => {
                float(|a, b| if a < b { a } else { b }, |a, b| if a < b { a } else { b })
            }
            Binary::MaxF => {
                float(|a, b| if a > b { a } else { b }, |a, b| if a > b { a } else { b })
            }
            Binary::LeastF => float(f32::min, f64::min),
            Binary::GreatestF => float(f32::max, f64::max),
            Binary::ScaleF => float(|a, b| a * b.exp2(), |a, b| a * b.exp2()),
            Binary::AddI => a.wrapping_add(b),
            Binary::SubI => a.wrapping_sub(b),
            Binary::MulI => a.wrapping_mul(b),
            Binary::MulLow => (a & 0xffff_ffff).wrapping_mul(b & 0xffff_ffff),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::Left => shift(a.wrapping_shl(b as u32)),
            Binary::Right => shift(a.wrapping_shr(b as u32)),
            Binary::RightSigned => (signed >> b.min(bits - 1)) as u64,
        };
        if wide { result } else { result & 0xffff_ffff }
    }
}

/// Operations on one word, or wide one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Sqrt,
    /// To an integral float: to nearest even, down, up, toward zero.
    Round(Rounding),
    /// Shifts by a constant: left, right filling with zeros, right filling with the sign.
    Left(u8),
    Right(u8),
    RightSigned(u8),
    /// Of a word: to half precision and back, to nearest even.
    RoundHalf,
}

/// Directions of rounding, with the numbers x86 has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rounding {
    Nearest = 0,
    Down = 1,
    Up = 2,
    Zero = 3,
}

/// Comparisons of two words, or two wide ones, that give a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Compare {
    /// Of floats; false if either is NaN.
    EqF,
    LtF,
    LeF,
    /// Either is NaN.
    Unordered,
    EqI,
    /// Of signed integers.
    LtI,
    LeI,
    GtI,
    /// Of unsigned integers.
    LtU,
    LeU,
}

/// Operations on two masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Logic {
    And,
    Or,
    Xor,
}

/// A value: the instruction that defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Value(pub u32);

/// Where elements begin: so many bytes behind the pointer of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub pointer: u16,
    pub bytes: i32,
}

/// One instruction. Lanes are those of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inst {
    /// The same bits in all lanes.
    Const(Lane, u64),
    /// Consecutive elements.
    Load(At, Element),
    /// Every so many-th element, at least every second one: words or wide ones.
    LoadEvery(At, Element, u8),
    /// One element in all lanes.
    Splat(At, Element),
    Binary(Binary, Lane, Value, Value),
    Unary(Unary, Lane, Value),
    /// The product of two floats plus a third, rounded once.
    Fma(Lane, Value, Value, Value),
    /// From one kind of number to another: integers keep their low bits, integers become the
    /// nearest float, floats the nearest float or the integer toward zero. Where that integer is
    /// none of its kind, the result is whatever the machine gives.
    Convert(Number, Number, Value),
    Compare(Compare, Lane, Value, Value),
    Logic(Logic, Value, Value),
    Not(Value),
    /// `mask ? then : other`.
    Select {
        lane: Lane,
        mask: Value,
        then: Value,
        other: Value,
    },
    /// `value`, but where the mask is set the function of `of`.
    Repair {
        function: Scalar,
        lane: Lane,
        mask: Value,
        value: Value,
        of: Value,
    },
    /// Writes consecutive elements from the pointer of that number on. Defines nothing.
    Store(u16, Element, Value),
    /// What the program's fold has in these lanes so far.
    Accumulator(Lane),
    /// What it has from here on. Defines nothing. The first one ends the loop.
    Accumulate(Value),
    /// After the loop: what other lanes have, to be combined with these.
    Other(Lane),
}

impl Inst {
    /// The values it uses.
    pub fn uses(&self) -> impl Iterator<Item = Value> {
        let (a, b, c) = match *self {
            Inst::Const(..)
            | Inst::Load(..)
            | Inst::LoadEvery(..)
            | Inst::Splat(..)
            | Inst::Accumulator(_)
            | Inst::Other(_) => (None, None, None),
            Inst::Binary(_, _, a, b) | Inst::Compare(_, _, a, b) | Inst::Logic(_, a, b) => {
                (Some(a), Some(b), None)
            }
            Inst::Unary(_, _, a) | Inst::Convert(_, _, a) | Inst::Not(a) => (Some(a), None, None),
            Inst::Store(_, _, a) | Inst::Accumulate(a) => (Some(a), None, None),
            Inst::Select { mask, then, other, .. } => (Some(mask), Some(then), Some(other)),
            Inst::Fma(_, a, b, c) => (Some(a), Some(b), Some(c)),
            Inst::Repair { mask, value, of, .. } => (Some(mask), Some(value), Some(of)),
        };
        [a, b, c].into_iter().flatten()
    }

    /// The same instruction on other values.
    fn renamed(self, at: impl Fn(Value) -> Value) -> Inst {
        match self {
            Inst::Binary(op, lane, a, b) => Inst::Binary(op, lane, at(a), at(b)),
            Inst::Unary(op, lane, a) => Inst::Unary(op, lane, at(a)),
            Inst::Fma(lane, a, b, c) => Inst::Fma(lane, at(a), at(b), at(c)),
            Inst::Convert(from, to, a) => Inst::Convert(from, to, at(a)),
            Inst::Compare(op, lane, a, b) => Inst::Compare(op, lane, at(a), at(b)),
            Inst::Logic(op, a, b) => Inst::Logic(op, at(a), at(b)),
            Inst::Not(a) => Inst::Not(at(a)),
            Inst::Select { lane, mask, then, other } => {
                Inst::Select { lane, mask: at(mask), then: at(then), other: at(other) }
            }
            Inst::Repair { function, lane, mask, value, of } => {
                Inst::Repair { function, lane, mask: at(mask), value: at(value), of: at(of) }
            }
            Inst::Store(pointer, element, a) => Inst::Store(pointer, element, at(a)),
            Inst::Accumulate(a) => Inst::Accumulate(at(a)),
            leaf @ (Inst::Const(..)
            | Inst::Load(..)
            | Inst::LoadEvery(..)
            | Inst::Splat(..)
            | Inst::Accumulator(_)
            | Inst::Other(_)) => leaf,
        }
    }

    /// What the value it defines holds; none for what defines nothing.
    pub fn lane(&self) -> Option<Lane> {
        match *self {
            Inst::Compare(..) | Inst::Logic(..) | Inst::Not(_) => Some(Lane::Mask),
            Inst::Load(_, element) | Inst::LoadEvery(_, element, _) | Inst::Splat(_, element) => {
                Some(element.lane())
            }
            Inst::Const(lane, _)
            | Inst::Accumulator(lane)
            | Inst::Other(lane)
            | Inst::Binary(_, lane, ..)
            | Inst::Unary(_, lane, _)
            | Inst::Fma(lane, ..) => Some(lane),
            Inst::Convert(_, to, _) => Some(to.lane()),
            Inst::Select { lane, .. } | Inst::Repair { lane, .. } => Some(lane),
            Inst::Store(..) | Inst::Accumulate(_) => None,
        }
    }
}

/// A loop body, and what is the same in all its iterations.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Program {
    /// In order; operands precede their users.
    pub insts: Vec<Inst>,
    /// Pointers it takes.
    pub pointers: u16,
    /// What becomes of its accumulator.
    pub fold: Option<Fold>,
}

/// An accumulator, of [`ChainFold::LANES`](girih_kernel::exec::ChainFold::LANES) lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fold {
    /// Where what they are combined to goes after the loop.
    pub pointer: u16,
    pub lane: Lane,
    /// What each starts with.
    pub identity: u64,
}

impl Program {
    /// Instructions of the loop; the others come after it.
    pub fn looped(&self) -> usize {
        let last = self.insts.iter().position(|inst| matches!(inst, Inst::Accumulate(_)));
        last.map_or(self.insts.len(), |last| last + 1)
    }

    /// About how many instructions an iteration takes.
    pub fn work(&self) -> usize {
        let of = |inst: &Inst| match inst {
            Inst::LoadEvery(_, _, step) if *step > 2 => 8,
            _ => 1,
        };
        self.insts[..self.looped()].iter().map(of).sum()
    }

    /// True if any value is wide.
    pub fn is_wide(&self) -> bool {
        self.insts.iter().any(|inst| inst.lane() == Some(Lane::Wide))
    }
}

/// Writes programs for a level: equal instructions are written once, constants are computed.
pub(super) struct Builder {
    state: RefCell<State>,
    isa: Isa,
}

#[derive(Default)]
struct State {
    program: Program,
    known: rustc_hash::FxHashMap<Inst, Value>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new(super::function::level())
    }
}

impl Builder {
    /// An empty program for that level.
    pub fn new(isa: Isa) -> Builder {
        Builder { state: RefCell::default(), isa }
    }

    /// True if what AVX2 has no instruction for is to be written in others.
    pub fn narrow(&self) -> bool {
        self.isa < Isa::Avx512
    }

    /// Appends an instruction, unless the same is there.
    pub fn push(&self, inst: Inst) -> Value {
        let mut state = self.state.borrow_mut();
        if let Some(&value) = state.known.get(&inst) {
            return value;
        }
        let value = Value(state.program.insts.len() as u32);
        state.program.insts.push(inst);
        // Memory may change between two loads; within a body nothing does so before the stores.
        state.known.insert(inst, value);
        value
    }

    /// A constant word.
    pub fn word(&self, bits: u32) -> Value {
        self.constant(Lane::Word, bits as u64)
    }

    /// A constant of a lane.
    pub fn constant(&self, lane: Lane, bits: u64) -> Value {
        self.push(Inst::Const(lane, bits))
    }

    /// What a value's lanes hold.
    pub fn lane(&self, value: Value) -> Lane {
        self.inst(value).lane().expect("stores define nothing")
    }

    /// The instruction that defines a value.
    pub fn inst(&self, value: Value) -> Inst {
        self.state.borrow().program.insts[value.0 as usize]
    }

    /// A new pointer.
    pub fn pointer(&self) -> u16 {
        let mut state = self.state.borrow_mut();
        state.program.pointers += 1;
        state.program.pointers - 1
    }

    /// Makes the program combine a value over all iterations, lane by lane, and then the lanes.
    pub fn fold(
        &self,
        value: Value,
        identity: u64,
        combine: impl Fn(Value, Value) -> Option<Value>,
    ) -> Option<()> {
        let lane = self.lane(value);
        let accumulator = || self.push(Inst::Accumulator(lane));
        self.push(Inst::Accumulate(combine(accumulator(), value)?));
        // What the loop computed is not there after it.
        let constant = |inst: &Inst, _: &mut Value| matches!(inst, Inst::Const(..));
        self.state.borrow_mut().known.retain(constant);
        let other = self.push(Inst::Other(lane));
        self.push(Inst::Accumulate(combine(accumulator(), other)?));
        let pointer = self.pointer();
        self.state.borrow_mut().program.fold = Some(Fold { pointer, lane, identity });
        Some(())
    }

    /// The bits of a constant.
    pub fn known(&self, value: Value) -> Option<u64> {
        match self.inst(value) {
            Inst::Const(_, bits) => Some(bits),
            _ => None,
        }
    }

    /// A binary operation; of constants, the result.
    pub fn binary(&self, op: Binary, a: Value, b: Value) -> Value {
        let lane = self.lane(a);
        debug_assert_eq!(lane, self.lane(b), "{op:?}");
        match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => self.constant(lane, op.fold(lane, a, b)),
            // The constant second: encoders take it from memory there.
            (Some(_), None) if op.commutes() => self.binary(op, b, a),
            _ => {
                let legal = if self.narrow() { self.legal_binary(op, a, b) } else { None };
                legal.unwrap_or_else(|| self.push(Inst::Binary(op, lane, a, b)))
            }
        }
    }

    /// A unary operation.
    pub fn unary(&self, op: Unary, a: Value) -> Value {
        let legal = if self.narrow() { self.legal_unary(op, a) } else { None };
        legal.unwrap_or_else(|| self.push(Inst::Unary(op, self.lane(a), a)))
    }

    /// A conversion.
    pub fn convert(&self, from: Number, to: Number, a: Value) -> Value {
        debug_assert_eq!(from.lane(), self.lane(a));
        let legal = if self.narrow() { self.legal_convert(from, to, a) } else { None };
        legal.unwrap_or_else(|| self.push(Inst::Convert(from, to, a)))
    }

    /// A comparison.
    pub fn compare(&self, op: Compare, a: Value, b: Value) -> Value {
        debug_assert_eq!(self.lane(a), self.lane(b), "{op:?}");
        let legal = if self.narrow() { self.legal_compare(op, a, b) } else { None };
        legal.unwrap_or_else(|| self.push(Inst::Compare(op, self.lane(a), a, b)))
    }

    /// A mask of two masks.
    pub fn logic(&self, op: Logic, a: Value, b: Value) -> Value {
        self.push(Inst::Logic(op, a, b))
    }

    /// The opposite mask.
    pub fn not(&self, a: Value) -> Value {
        self.push(Inst::Not(a))
    }

    /// A product of floats plus a third, rounded once.
    pub fn fma(&self, a: Value, b: Value, c: Value) -> Value {
        self.push(Inst::Fma(self.lane(a), a, b, c))
    }

    /// A choice by lanes.
    pub fn select(&self, mask: Value, then: Value, other: Value) -> Value {
        let lane = self.lane(then);
        debug_assert_eq!(lane, self.lane(other));
        if then == other {
            return then;
        }
        // The smaller or larger of what was compared is one instruction.
        if let Inst::Compare(Compare::LtF, _, a, b) = self.inst(mask) {
            match (then, other) {
                _ if (then, other) == (a, b) => return self.binary(Binary::MinF, a, b),
                _ if (then, other) == (b, a) => return self.binary(Binary::MaxF, b, a),
                _ => {}
            }
        }
        self.push(Inst::Select { lane, mask, then, other })
    }

    /// The program, without what its stores do not need.
    pub fn finish(self) -> Program {
        let program = self.state.into_inner().program;
        let mut live = vec![false; program.insts.len()];
        for (i, inst) in program.insts.iter().enumerate().rev() {
            live[i] |= matches!(inst, Inst::Store(..) | Inst::Accumulate(_));
            if live[i] {
                inst.uses().for_each(|v| live[v.0 as usize] = true);
            }
        }
        let mut renamed = vec![Value(0); program.insts.len()];
        let Program { pointers, fold, .. } = program;
        let mut out = Program { insts: Vec::new(), pointers, fold };
        for (i, inst) in program.insts.into_iter().enumerate().filter(|(i, _)| live[*i]) {
            renamed[i] = Value(out.insts.len() as u32);
            let inst = inst.renamed(|v| renamed[v.0 as usize]);
            out.insts.push(inst);
        }
        out
    }
}
