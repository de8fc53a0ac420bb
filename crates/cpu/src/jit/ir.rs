//! The vector IR: straight-line programs over lanes in SSA form, which the encoders turn into the
//! body of a loop. The IR does not know registers or a machine's vector width.
//!
//! Every instruction is one IEEE or integer operation in each lane independently, so a program
//! computes the same bits on every machine that runs it. Masks are values too, with one boolean per
//! lane.

mod builder;

use super::cycle::Cycle;
use super::scalar::Scalar;

pub(super) use builder::Builder;

/// The type of a value's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// 32 bits: a float or an integer, depending on the instruction that uses the value.
    Word,
    /// 64 bits: a float or an integer, like `Word`.
    Wide,
    /// A boolean.
    Mask,
}

/// The format of elements in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// Four bytes, loaded unchanged.
    Word,
    /// Eight bytes, loaded unchanged.
    Wide,
    /// One byte (`Byte`) or two (`Short`), widened to a 32-bit integer.
    Byte {
        signed: bool,
    },
    Short {
        signed: bool,
    },
    /// IEEE half precision, widened to f32.
    Half,
    /// bfloat16, the upper half of an f32, widened to f32.
    BFloat16,
    /// A byte 0 or 1; a mask.
    Bool,
}

impl Element {
    /// The size of one element in bytes.
    pub fn size(self) -> usize {
        match self {
            Element::Wide => 8,
            Element::Word => 4,
            Element::Half | Element::BFloat16 | Element::Short { .. } => 2,
            Element::Bool | Element::Byte { .. } => 1,
        }
    }

    /// The type of the lanes that a load of this format defines.
    pub fn lane(self) -> Lane {
        match self {
            Element::Bool => Lane::Mask,
            Element::Wide => Lane::Wide,
            _ => Lane::Word,
        }
    }
}

/// The number type of a lane, which conversions need.
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
    /// The lanes that hold numbers of this type.
    pub fn lane(self) -> Lane {
        match self {
            Number::F32 | Number::I32 | Number::U32 => Lane::Word,
            Number::F64 | Number::I64 | Number::U64 => Lane::Wide,
        }
    }
}

/// Operations on two 32-bit values, or on two 64-bit values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    AddF,
    SubF,
    MulF,
    DivF,
    /// `a < b ? a : b`, and `a > b ? a : b`.
    MinF,
    MaxF,
    /// minimumNumber and maximumNumber of IEEE 754-2019: -0 is less than +0; if one operand is a
    /// NaN and the other a number, the result is the number.
    MinNumberF,
    MaxNumberF,
    /// The first operand times two to the power of the second, an integral float, rounded once.
    ScaleF,
    AddI,
    SubI,
    MulI,
    And,
    Or,
    Xor,
    /// Shifts; a shift by the number of bits or more shifts all bits out.
    Left,
    Right,
    RightSigned,
    /// For 64-bit lanes: the product of the lower 32 bits, unsigned.
    MulLow,
}

impl Binary {
    /// Whether operands may be exchanged. (The payload of a NaN, which is unspecified, may then
    /// differ.)
    pub fn commutes(self) -> bool {
        use Binary::*;
        matches!(self, AddF | MulF | AddI | MulI | MulLow | And | Or | Xor)
    }

    /// The result for constant operands.
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
            Binary::MinNumberF => float(f32::min, f64::min),
            Binary::MaxNumberF => float(f32::max, f64::max),
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

/// Operations on one 32-bit or 64-bit value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Sqrt,
    /// Rounds to an integral float: to nearest even, down, up, toward zero.
    Round(Rounding),
    /// Shifts by a constant: left, logical right, arithmetic right.
    Left(u8),
    Right(u8),
    RightSigned(u8),
    /// For 32-bit lanes: rounds an f32 to half precision, to nearest even, and converts it back.
    RoundHalf,
}

/// Rounding modes, with their encodings on x86.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Rounding {
    Nearest = 0,
    Down = 1,
    Up = 2,
    Zero = 3,
}

/// Comparisons whose result is a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Compare {
    /// Comparisons of floats; false if either operand is NaN.
    EqF,
    LtF,
    LeF,
    /// True if either operand is NaN.
    Unordered,
    EqI,
    /// Comparisons of signed integers.
    LtI,
    LeI,
    GtI,
    /// Comparisons of unsigned integers.
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

/// The address of elements: `bytes` after the pointer with the number `pointer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub pointer: u16,
    pub bytes: i32,
}

/// One instruction. Its lane type is that of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inst {
    /// The same bits in all lanes.
    Const(Lane, u64),
    /// Loads consecutive elements.
    Load(At, Element),
    /// Loads elements with a stride of at least two: words or 64-bit elements.
    LoadEvery(At, Element, u8),
    /// Loads one element into all lanes.
    Splat(At, Element),
    Binary(Binary, Lane, Value, Value),
    Unary(Unary, Lane, Value),
    /// The product of two floats plus a third, rounded once (fused multiply-add).
    Fma(Lane, Value, Value, Value),
    /// Converts numbers: integers are truncated to their low bits or extended; integers become the
    /// nearest float; floats become the nearest float, or an integer by rounding toward zero. If
    /// that integer is out of range, the result depends on the machine.
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
    /// `value`, except that lanes in the mask are replaced by the function of `of`.
    Repair {
        function: Scalar,
        lane: Lane,
        mask: Value,
        value: Value,
        of: Value,
    },
    /// Stores consecutive elements from the pointer with that number on. Defines no value.
    Store(u16, Element, Value),
    /// The current value of the program's accumulator.
    Accumulator(Lane),
    /// Sets the accumulator. Defines no value. The first one ends the loop.
    Accumulate(Value),
    /// After the loop: lanes of the accumulator that are to be combined with the others.
    Other(Lane),
    /// In a cycle: one element into all lanes, in each step.
    Broadcast(At, Element),
    /// In a cycle: the value of the carry with that number at the start of the step.
    Carry(u16, Lane),
    /// In a cycle: sets a carry for the next step. Defines no value. Follows everything that reads
    /// carries.
    SetCarry(u16, Value),
    /// In a cycle: ends it, before the step has any effect, if the mask has no lane. Defines no
    /// value.
    Leave(Value),
    /// In a cycle: stores the first lane. Defines no value.
    StoreFirst(u16, Element, Value),
    /// In a cycle: the element at an index of the memory with that number, in all lanes. Fails if
    /// the index is out of bounds.
    Gather(u16, Element, Value),
    /// In a cycle: stores a value at an index, the first operand, of the memory with that number.
    /// Defines no value. Fails as a gather does.
    Put(u16, Element, Value, Value),
}

impl Inst {
    /// The operands.
    pub fn uses(&self) -> impl Iterator<Item = Value> {
        let (a, b, c) = match *self {
            Inst::Const(..)
            | Inst::Load(..)
            | Inst::LoadEvery(..)
            | Inst::Splat(..)
            | Inst::Accumulator(_)
            | Inst::Other(_)
            | Inst::Broadcast(..)
            | Inst::Carry(..) => (None, None, None),
            Inst::Binary(_, _, a, b) | Inst::Compare(_, _, a, b) | Inst::Logic(_, a, b) => {
                (Some(a), Some(b), None)
            }
            Inst::Unary(_, _, a) | Inst::Convert(_, _, a) | Inst::Not(a) => (Some(a), None, None),
            Inst::Store(_, _, a)
            | Inst::Accumulate(a)
            | Inst::SetCarry(_, a)
            | Inst::Leave(a)
            | Inst::StoreFirst(_, _, a)
            | Inst::Gather(_, _, a) => (Some(a), None, None),
            Inst::Put(_, _, a, b) => (Some(a), Some(b), None),
            Inst::Select { mask, then, other, .. } => (Some(mask), Some(then), Some(other)),
            Inst::Fma(_, a, b, c) => (Some(a), Some(b), Some(c)),
            Inst::Repair { mask, value, of, .. } => (Some(mask), Some(value), Some(of)),
        };
        [a, b, c].into_iter().flatten()
    }

    /// The same instruction with renamed operands.
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
            Inst::SetCarry(number, a) => Inst::SetCarry(number, at(a)),
            Inst::Leave(a) => Inst::Leave(at(a)),
            Inst::StoreFirst(pointer, element, a) => Inst::StoreFirst(pointer, element, at(a)),
            Inst::Gather(memory, element, a) => Inst::Gather(memory, element, at(a)),
            Inst::Put(memory, element, a, b) => Inst::Put(memory, element, at(a), at(b)),
            leaf @ (Inst::Const(..)
            | Inst::Load(..)
            | Inst::LoadEvery(..)
            | Inst::Splat(..)
            | Inst::Accumulator(_)
            | Inst::Other(_)
            | Inst::Broadcast(..)
            | Inst::Carry(..)) => leaf,
        }
    }

    /// The lane type of the value that the instruction defines; `None` if it defines none.
    pub fn lane(&self) -> Option<Lane> {
        match *self {
            Inst::Compare(..) | Inst::Logic(..) | Inst::Not(_) => Some(Lane::Mask),
            Inst::Load(_, element)
            | Inst::LoadEvery(_, element, _)
            | Inst::Splat(_, element)
            | Inst::Broadcast(_, element)
            | Inst::Gather(_, element, _) => Some(element.lane()),
            Inst::Const(lane, _)
            | Inst::Carry(_, lane)
            | Inst::Accumulator(lane)
            | Inst::Other(lane)
            | Inst::Binary(_, lane, ..)
            | Inst::Unary(_, lane, _)
            | Inst::Fma(lane, ..) => Some(lane),
            Inst::Convert(_, to, _) => Some(to.lane()),
            Inst::Select { lane, .. } | Inst::Repair { lane, .. } => Some(lane),
            Inst::Store(..)
            | Inst::Accumulate(_)
            | Inst::SetCarry(..)
            | Inst::Leave(_)
            | Inst::StoreFirst(..)
            | Inst::Put(..) => None,
        }
    }
}

/// A loop body. It includes the loop-invariant instructions.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KernelProgram {
    /// The instructions in order; definitions precede their uses.
    pub insts: Vec<Inst>,
    /// The number of pointers that the program takes.
    pub pointers: u16,
    /// The reduction of the program, if it has one.
    pub fold: Option<Fold>,
    /// The steps of a cycle, if the program is one.
    pub cycle: Option<Cycle>,
}

/// The accumulator of a reduction, of [`ChainFold::LANES`](girih_exec::ChainFold::LANES)
/// lanes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fold {
    /// The pointer at which the reduced value is stored after the loop.
    pub pointer: u16,
    pub lane: Lane,
    /// The initial value of each lane.
    pub identity: u64,
}

impl KernelProgram {
    /// The number of instructions of the loop; the others come after it.
    pub fn looped(&self) -> usize {
        let last = self.insts.iter().position(|inst| matches!(inst, Inst::Accumulate(_)));
        last.map_or(self.insts.len(), |last| last + 1)
    }

    /// An approximate number of machine instructions per iteration.
    pub fn work(&self) -> usize {
        let of = |inst: &Inst| match inst {
            Inst::LoadEvery(_, _, step) if *step > 2 => 8,
            _ => 1,
        };
        self.insts[..self.looped()].iter().map(of).sum()
    }

    /// Whether any value has 64-bit lanes.
    pub fn is_wide(&self) -> bool {
        self.insts.iter().any(|inst| inst.lane() == Some(Lane::Wide))
    }
}
