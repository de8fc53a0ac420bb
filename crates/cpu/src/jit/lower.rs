//! Lowers a chain of the executor's loops to a program of the vector IR.
//!
//! Chains have only ops for which [`knows`] is true; the executor computes the others.

use super::ir::{At, Builder, Inst, KernelProgram, Value};
use super::ops::{Ops, element};
use girih_exec::{Chain, ChainFold, ChainOp, Def};
use girih_ir::{DType, OpCode};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::cell::RefCell;

/// Whether chains may have the op, that is, whether it can be lowered.
pub(super) fn knows(op: ChainOp) -> bool {
    thread_local! {
        static KNOWN: RefCell<FxHashMap<ChainOp, bool>> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|known| *known.entry(op).or_insert_with(|| alone(op).is_some()))
}

/// The program of a single op on operands from memory.
fn alone(op: ChainOp) -> Option<Value> {
    let lower = Lower::default();
    let load = |dtype| {
        let at = At { pointer: lower.b.pointer(), bytes: 0 };
        Some(lower.b.push(Inst::Load(at, element(dtype)?)))
    };
    let args: SmallVec<[Value; 3]> = match op {
        ChainOp::Op(OpCode::Where, dtype) => {
            [load(DType::Bool)?, load(dtype)?, load(dtype)?].into_iter().collect()
        }
        ChainOp::Op(code, dtype) => {
            (0..code.def().arity.0).map(|_| load(dtype)).collect::<Option<_>>()?
        }
        ChainOp::Cast(from, _) => [load(from)?].into_iter().collect(),
        ChainOp::LoadHalf(dtype) => [load(dtype)?].into_iter().collect(),
        _ => [load(DType::F32)?].into_iter().collect(),
    };
    lower.apply(op, &args)
}

/// The program of a chain: a pointer for each input, then for each output, then for the reduction.
pub(super) fn lower(chain: &Chain) -> Option<KernelProgram> {
    let mut lower = Lower::default();
    for def in &chain.defs {
        let value = lower.def(def)?;
        lower.values.push(value);
    }
    for &output in &chain.outputs {
        let pointer = lower.b.pointer();
        let element = element(chain.defs[output as usize].dtype())?;
        lower.b.push(Inst::Store(pointer, element, lower.values[output as usize]));
    }
    if let Some(ChainFold { value, op, identity }) = chain.fold {
        let dtype = chain.defs[value as usize].dtype();
        let value = lower.values[value as usize];
        lower.b.fold(value, identity, |a, b| lower.ops().op(op, &[a, b], dtype))?;
    }
    Some(lower.b.finish())
}

#[derive(Default)]
pub(super) struct Lower {
    pub b: Builder,
    /// The chain's values so far.
    pub values: Vec<Value>,
}

impl Lower {
    pub fn def(&self, def: &Def) -> Option<Value> {
        match def {
            Def::Input { dtype, step, beside } => {
                let element = element(*dtype)?;
                let at = match *beside {
                    Some((other, bytes)) => At { pointer: self.pointer(other), bytes },
                    None => At { pointer: self.b.pointer(), bytes: 0 },
                };
                Some(self.b.push(match *step {
                    0 => Inst::Splat(at, element),
                    1 => Inst::Load(at, element),
                    step => Inst::LoadEvery(at, element, step),
                }))
            }
            Def::Constant { dtype, bits } => self.ops().literal(*dtype, *bits),
            Def::Op { op, args, .. } => {
                let args: SmallVec<[Value; 3]> =
                    args.iter().map(|&a| self.values[a as usize]).collect();
                self.apply(*op, &args)
            }
        }
    }

    /// The pointer of an input that has one.
    fn pointer(&self, input: u16) -> u16 {
        match self.b.inst(self.values[input as usize]) {
            Inst::Splat(at, _) | Inst::Load(at, _) | Inst::LoadEvery(at, ..) => at.pointer,
            inst => unreachable!("{inst:?} is no input"),
        }
    }

    fn apply(&self, op: ChainOp, args: &[Value]) -> Option<Value> {
        match op {
            ChainOp::Op(code, dtype) => self.ops().op(code, args, dtype),
            ChainOp::Cast(from, to) => self.ops().cast(args[0], from, to),
            ChainOp::Round(dtype) => Some(self.ops().round(args[0], dtype)),
            ChainOp::RoundDown(dtype) => Some(self.ops().round_down(args[0], dtype)),
            // Loads and stores of halves convert.
            ChainOp::LoadHalf(dtype) | ChainOp::StoreHalf(dtype) => element(dtype).map(|_| args[0]),
        }
    }

    fn ops(&self) -> Ops<'_> {
        Ops { b: &self.b }
    }
}
