//! The vector IR: straight-line programs over lanes, in single-assignment form, that the encoders
//! turn into the body of a loop. It knows neither registers nor a machine's vector width.
//!
//! Every instruction computes what one IEEE or integer operation does, in each lane by itself, so a
//! program gives the same bits on every machine that runs it. Masks are values too: one truth per
//! lane.

use std::cell::RefCell;

/// What a lane of a value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lane {
    /// 32 bits: a float or an integer, as its users say.
    Word,
    /// A truth.
    Mask,
}

/// How elements lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Element {
    /// Four bytes, a word as it is.
    Word,
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
            Element::Word => 4,
            Element::Half | Element::Brain => 2,
            Element::Bool => 1,
        }
    }

    /// What a value loaded from it holds.
    pub fn lane(self) -> Lane {
        if self == Element::Bool { Lane::Mask } else { Lane::Word }
    }
}

/// Operations on two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Binary {
    AddF,
    SubF,
    MulF,
    DivF,
    AddI,
    SubI,
    MulI,
    And,
    Or,
    Xor,
}

impl Binary {
    /// True if operands may be exchanged. (Of two NaNs another may then stay: their payloads are
    /// nobody's business.)
    pub fn commutes(self) -> bool {
        !matches!(self, Binary::SubF | Binary::DivF | Binary::SubI)
    }

    /// The result on constants.
    fn fold(self, a: u32, b: u32) -> u32 {
        let float = |f: fn(f32, f32) -> f32| f(f32::from_bits(a), f32::from_bits(b)).to_bits();
        match self {
            Binary::AddF => float(|a, b| a + b),
            Binary::SubF => float(|a, b| a - b),
            Binary::MulF => float(|a, b| a * b),
            Binary::DivF => float(|a, b| a / b),
            Binary::AddI => a.wrapping_add(b),
            Binary::SubI => a.wrapping_sub(b),
            Binary::MulI => a.wrapping_mul(b),
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
        }
    }
}

/// Operations on one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Unary {
    Sqrt,
    /// To an integral float: to nearest even, down, up, toward zero.
    Round(Rounding),
    /// A signed integer to the nearest float.
    ToFloat,
    /// Shifts by a constant: left, right filling with zeros, right filling with the sign.
    Left(u8),
    Right(u8),
    RightSigned(u8),
    /// To half precision and back, to nearest even.
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

/// Comparisons of two words that give a mask.
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

/// One instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Inst {
    /// The same word in all lanes.
    Const(u32),
    /// Consecutive elements from the pointer of that number on.
    Load(u16, Element),
    /// The one element at the pointer of that number, in all lanes.
    Splat(u16, Element),
    Binary(Binary, Value, Value),
    Unary(Unary, Value),
    Compare(Compare, Value, Value),
    Logic(Logic, Value, Value),
    Not(Value),
    /// `mask ? then : other` on words.
    Select {
        mask: Value,
        then: Value,
        other: Value,
    },
    /// Writes consecutive elements from the pointer of that number on. Defines nothing.
    Store(u16, Element, Value),
}

impl Inst {
    /// The values it uses.
    pub fn uses(&self) -> impl Iterator<Item = Value> {
        let (a, b, c) = match *self {
            Inst::Const(_) | Inst::Load(..) | Inst::Splat(..) => (None, None, None),
            Inst::Binary(_, a, b) | Inst::Compare(_, a, b) | Inst::Logic(_, a, b) => {
                (Some(a), Some(b), None)
            }
            Inst::Unary(_, a) | Inst::Not(a) | Inst::Store(_, _, a) => (Some(a), None, None),
            Inst::Select { mask, then, other } => (Some(mask), Some(then), Some(other)),
        };
        [a, b, c].into_iter().flatten()
    }

    /// What the value it defines holds; none for stores.
    pub fn lane(&self) -> Option<Lane> {
        match *self {
            Inst::Compare(..) | Inst::Logic(..) | Inst::Not(_) => Some(Lane::Mask),
            Inst::Load(_, element) | Inst::Splat(_, element) => Some(element.lane()),
            Inst::Const(_) | Inst::Binary(..) | Inst::Unary(..) | Inst::Select { .. } => {
                Some(Lane::Word)
            }
            Inst::Store(..) => None,
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
}

/// Writes programs: equal instructions are written once, constants are computed.
#[derive(Default)]
pub(super) struct Builder {
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    program: Program,
    known: rustc_hash::FxHashMap<Inst, Value>,
}

impl Builder {
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

    /// A constant.
    pub fn word(&self, bits: u32) -> Value {
        self.push(Inst::Const(bits))
    }

    /// A new pointer.
    pub fn pointer(&self) -> u16 {
        let mut state = self.state.borrow_mut();
        state.program.pointers += 1;
        state.program.pointers - 1
    }

    fn constant(&self, value: Value) -> Option<u32> {
        match self.state.borrow().program.insts[value.0 as usize] {
            Inst::Const(bits) => Some(bits),
            _ => None,
        }
    }

    /// A binary operation; of constants, the result.
    pub fn binary(&self, op: Binary, a: Value, b: Value) -> Value {
        match (self.constant(a), self.constant(b)) {
            (Some(a), Some(b)) => self.word(op.fold(a, b)),
            // The constant second: encoders take it from memory there.
            (Some(_), None) if op.commutes() => self.push(Inst::Binary(op, b, a)),
            _ => self.push(Inst::Binary(op, a, b)),
        }
    }

    /// A unary operation.
    pub fn unary(&self, op: Unary, a: Value) -> Value {
        self.push(Inst::Unary(op, a))
    }

    /// A comparison.
    pub fn compare(&self, op: Compare, a: Value, b: Value) -> Value {
        self.push(Inst::Compare(op, a, b))
    }

    /// A mask of two masks.
    pub fn logic(&self, op: Logic, a: Value, b: Value) -> Value {
        self.push(Inst::Logic(op, a, b))
    }

    /// The opposite mask.
    pub fn not(&self, a: Value) -> Value {
        self.push(Inst::Not(a))
    }

    /// A choice by lanes.
    pub fn select(&self, mask: Value, then: Value, other: Value) -> Value {
        if then == other { then } else { self.push(Inst::Select { mask, then, other }) }
    }

    /// The program, without what its stores do not need.
    pub fn finish(self) -> Program {
        let program = self.state.into_inner().program;
        let mut live = vec![false; program.insts.len()];
        for (i, inst) in program.insts.iter().enumerate().rev() {
            live[i] |= matches!(inst, Inst::Store(..));
            if live[i] {
                inst.uses().for_each(|v| live[v.0 as usize] = true);
            }
        }
        let mut renamed = vec![Value(0); program.insts.len()];
        let mut out = Program { insts: Vec::new(), pointers: program.pointers };
        for (i, inst) in program.insts.into_iter().enumerate().filter(|(i, _)| live[*i]) {
            renamed[i] = Value(out.insts.len() as u32);
            let at = |v: Value| renamed[v.0 as usize];
            out.insts.push(match inst {
                Inst::Binary(op, a, b) => Inst::Binary(op, at(a), at(b)),
                Inst::Unary(op, a) => Inst::Unary(op, at(a)),
                Inst::Compare(op, a, b) => Inst::Compare(op, at(a), at(b)),
                Inst::Logic(op, a, b) => Inst::Logic(op, at(a), at(b)),
                Inst::Not(a) => Inst::Not(at(a)),
                Inst::Select { mask, then, other } => {
                    Inst::Select { mask: at(mask), then: at(then), other: at(other) }
                }
                Inst::Store(pointer, element, a) => Inst::Store(pointer, element, at(a)),
                leaf => leaf,
            });
        }
        out
    }
}
