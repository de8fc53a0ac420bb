//! Builds programs of the vector IR.

use super::super::cycle::Cycle;
use super::*;
use girih_exec::Isa;
use std::cell::RefCell;

/// Builds a program for an instruction set level. Equal instructions are merged, and operations on
/// constants are folded.
pub(in crate::jit) struct Builder {
    state: RefCell<State>,
    isa: Isa,
}

#[derive(Default)]
struct State {
    program: KernelProgram,
    known: rustc_hash::FxHashMap<Inst, Value>,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new(super::super::function::level())
    }
}

impl Builder {
    /// An empty program for that level.
    pub fn new(isa: Isa) -> Builder {
        Builder { state: RefCell::default(), isa }
    }

    /// Whether operations that AVX2 lacks are expanded into other operations.
    pub fn narrow(&self) -> bool {
        self.isa < Isa::Avx512
    }

    /// Appends an instruction, unless an equal one exists.
    pub fn push(&self, inst: Inst) -> Value {
        let mut state = self.state.borrow_mut();
        if let Some(&value) = state.known.get(&inst) {
            return value;
        }
        let value = Value(state.program.insts.len() as u32);
        state.program.insts.push(inst);
        // Merging equal loads is valid because a body has no stores between its loads.
        state.known.insert(inst, value);
        value
    }

    /// A constant 32-bit lane.
    pub fn word(&self, bits: u32) -> Value {
        self.constant(Lane::Word, bits as u64)
    }

    /// A constant of a lane type.
    pub fn constant(&self, lane: Lane, bits: u64) -> Value {
        self.push(Inst::Const(lane, bits))
    }

    /// A value's lane type.
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

    /// Reduces a value over all iterations, lane by lane, and then over the lanes.
    pub fn fold(
        &self,
        value: Value,
        identity: u64,
        combine: impl Fn(Value, Value) -> Option<Value>,
    ) -> Option<()> {
        let lane = self.lane(value);
        let accumulator = || self.push(Inst::Accumulator(lane));
        self.push(Inst::Accumulate(combine(accumulator(), value)?));
        // Values of the loop are not available after it, except constants.
        let constant = |inst: &Inst, _: &mut Value| matches!(inst, Inst::Const(..));
        self.state.borrow_mut().known.retain(constant);
        let other = self.push(Inst::Other(lane));
        self.push(Inst::Accumulate(combine(accumulator(), other)?));
        let pointer = self.pointer();
        self.state.borrow_mut().program.fold = Some(Fold { pointer, lane, identity });
        Some(())
    }

    /// Makes the program a cycle.
    pub fn cycle(&self, cycle: Cycle) {
        self.state.borrow_mut().program.cycle = Some(cycle);
    }

    /// The bits of a constant; `None` for other values.
    pub fn known(&self, value: Value) -> Option<u64> {
        match self.inst(value) {
            Inst::Const(_, bits) => Some(bits),
            _ => None,
        }
    }

    /// A binary operation; folded if both operands are constants.
    pub fn binary(&self, op: Binary, a: Value, b: Value) -> Value {
        let lane = self.lane(a);
        debug_assert_eq!(lane, self.lane(b), "{op:?}");
        match (self.known(a), self.known(b)) {
            (Some(a), Some(b)) => self.constant(lane, op.fold(lane, a, b)),
            // Put the constant second, since encoders can take the second operand from memory.
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

    /// An operation on two masks.
    pub fn logic(&self, op: Logic, a: Value, b: Value) -> Value {
        self.push(Inst::Logic(op, a, b))
    }

    /// The complement of a mask.
    pub fn not(&self, a: Value) -> Value {
        self.push(Inst::Not(a))
    }

    /// A product of floats plus a third, rounded once.
    pub fn fma(&self, a: Value, b: Value, c: Value) -> Value {
        self.push(Inst::Fma(self.lane(a), a, b, c))
    }

    /// A lane-wise select.
    pub fn select(&self, mask: Value, then: Value, other: Value) -> Value {
        let lane = self.lane(then);
        debug_assert_eq!(lane, self.lane(other));
        if then == other {
            return then;
        }
        // Selecting the smaller or larger of the compared values is a single instruction.
        if let Inst::Compare(Compare::LtF, _, a, b) = self.inst(mask) {
            match (then, other) {
                _ if (then, other) == (a, b) => return self.binary(Binary::MinF, a, b),
                _ if (then, other) == (b, a) => return self.binary(Binary::MaxF, b, a),
                _ => {}
            }
        }
        self.push(Inst::Select { lane, mask, then, other })
    }

    /// The program, without dead instructions.
    pub fn finish(self) -> KernelProgram {
        let program = self.state.into_inner().program;
        let mut live = vec![false; program.insts.len()];
        for (i, inst) in program.insts.iter().enumerate().rev() {
            live[i] |= inst.lane().is_none() || matches!(inst, Inst::Gather(..));
            if live[i] {
                inst.uses().for_each(|v| live[v.0 as usize] = true);
            }
        }
        let mut renamed = vec![Value(0); program.insts.len()];
        let KernelProgram { pointers, fold, cycle, .. } = program;
        let mut out = KernelProgram { insts: Vec::new(), pointers, fold, cycle };
        for (i, inst) in program.insts.into_iter().enumerate().filter(|(i, _)| live[*i]) {
            renamed[i] = Value(out.insts.len() as u32);
            let inst = inst.renamed(|v| renamed[v.0 as usize]);
            out.insts.push(inst);
        }
        out
    }
}
