//! From a block of the kernel IR to a program of the vector IR.
//!
//! Floats of 32 bits and less, 32-bit integers and truths are known here; a block with anything
//! else is left to the portable executor. What each op computes is what that executor computes, to
//! the bit.

use super::ir::{Binary, Builder, Compare, Element, Inst, Logic, Program, Rounding, Unary, Value};
use super::trace::{F32, Word};
use girih_ir::{DType, OpCode};
use girih_kernel::exec::exact_on_halves;
use girih_kernel::math::{self, Float};
use girih_kernel::{AccessId, Block, Inst as Kernel, Kernel as Whole, Store, Val};

/// What a pointer of a program points to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pointer {
    /// Elements of an access.
    Access(AccessId),
    /// Elements of a store.
    Store(usize),
    /// A run-time scalar.
    Argument(usize),
}

/// A program and what its pointers point to.
pub(super) struct Lowered {
    pub program: Program,
    pub pointers: Vec<Pointer>,
}

/// How values of a dtype lie in memory, if they are known here.
pub(super) fn element(dtype: DType) -> Option<Element> {
    match dtype {
        DType::F32 | DType::I32 | DType::U32 => Some(Element::Word),
        DType::F16 => Some(Element::Half),
        DType::BF16 => Some(Element::Brain),
        DType::Bool => Some(Element::Bool),
        _ => None,
    }
}

/// The program of a block and its stores; `splat` says which accesses stay at one element.
pub(super) fn lower(
    kernel: &Whole,
    block: &Block,
    stores: &[Store],
    splat: impl Fn(AccessId) -> bool,
) -> Option<Lowered> {
    let mut lower = Lower {
        kernel,
        block,
        b: Builder::default(),
        vals: Vec::with_capacity(block.insts.len()),
        pointers: Vec::new(),
    };
    for inst in &block.insts {
        let value = lower.inst(inst, &splat)?;
        lower.vals.push(value);
    }
    for (i, store) in stores.iter().enumerate() {
        let pointer = lower.pointer(Pointer::Store(i));
        let value = lower.vals[store.value.0 as usize];
        lower.b.push(Inst::Store(pointer, element(store.access.dtype)?, value));
    }
    Some(Lowered { program: lower.b.finish(), pointers: lower.pointers })
}

struct Lower<'a> {
    kernel: &'a Whole,
    block: &'a Block,
    b: Builder,
    /// Value of each instruction of the block.
    vals: Vec<Value>,
    pointers: Vec<Pointer>,
}

impl Lower<'_> {
    fn pointer(&mut self, to: Pointer) -> u16 {
        if let Some(known) = self.pointers.iter().position(|p| *p == to) {
            return known as u16;
        }
        self.pointers.push(to);
        self.b.pointer()
    }

    fn inst(&mut self, inst: &Kernel, splat: &impl Fn(AccessId) -> bool) -> Option<Value> {
        match inst {
            Kernel::Literal(l) => match l.dtype {
                DType::Bool => Some(self.truth(l.bits != 0)),
                d if d.is_float() && d != DType::F64 => {
                    Some(self.b.word((l.as_f64() as f32).to_bits()))
                }
                DType::I32 | DType::U32 => Some(self.b.word(l.bits as u32)),
                _ => None,
            },
            Kernel::Scalar { argument, dtype } => {
                let pointer = self.pointer(Pointer::Argument(*argument));
                Some(self.b.push(Inst::Splat(pointer, element(*dtype)?)))
            }
            Kernel::Load(access) => {
                let element = element(self.kernel.access(*access).dtype)?;
                let pointer = self.pointer(Pointer::Access(*access));
                Some(self.b.push(match splat(*access) {
                    true => Inst::Splat(pointer, element),
                    false => Inst::Load(pointer, element),
                }))
            }
            Kernel::Op { code, args, dtype } => {
                let from = self.dtype(args[args.len() - 1]);
                let args: smallvec::SmallVec<[Value; 3]> =
                    args.iter().map(|a| self.vals[a.0 as usize]).collect();
                let value = self.op(*code, &args, from, *dtype)?;
                let rounds = *code != OpCode::Cast && !exact_on_halves(*code);
                Some(if rounds { self.rounded(value, *dtype) } else { value })
            }
            _ => None,
        }
    }

    fn dtype(&self, val: Val) -> DType {
        self.kernel.dtype(self.block, val)
    }

    fn truth(&self, value: bool) -> Value {
        let (zero, other) = (self.b.word(0), self.b.word(1 - value as u32));
        self.b.compare(Compare::EqI, zero, other)
    }

    /// A float rounded to a half, if `dtype` is one.
    fn rounded(&self, x: Value, dtype: DType) -> Value {
        let b = &self.b;
        match dtype {
            DType::F16 => b.unary(Unary::RoundHalf, x),
            DType::BF16 => {
                let upper = b.word(0xffff_0000);
                let odd = b.binary(Binary::And, b.unary(Unary::Right(16), x), b.word(1));
                let sum = b.binary(Binary::AddI, b.binary(Binary::AddI, x, b.word(0x7fff)), odd);
                let quiet = b.binary(Binary::Or, x, b.word(0x0040_0000));
                let nan = b.compare(Compare::Unordered, x, x);
                b.binary(Binary::And, b.select(nan, quiet, sum), upper)
            }
            _ => x,
        }
    }

    fn op(&self, code: OpCode, args: &[Value], from: DType, to: DType) -> Option<Value> {
        if code == OpCode::Cast {
            return self.cast(args[0], from, to);
        }
        if code == OpCode::Where {
            return Some(self.choose(args[0], args[1], args[2], from));
        }
        match from {
            DType::F32 | DType::F16 | DType::BF16 => match *args {
                [x] => self.float_unary(code, x),
                [a, b] => self.float_binary(code, a, b),
                _ => None,
            },
            DType::I32 | DType::U32 => match *args {
                [x] => self.int_unary(code, x, from),
                [a, b] => self.int_binary(code, a, b, from),
                _ => None,
            },
            DType::Bool => self.bool_op(code, args),
            _ => None,
        }
    }

    fn choose(&self, mask: Value, then: Value, other: Value, dtype: DType) -> Value {
        let b = &self.b;
        if dtype != DType::Bool {
            return b.select(mask, then, other);
        }
        let then = b.logic(Logic::And, mask, then);
        b.logic(Logic::Or, then, b.logic(Logic::And, b.not(mask), other))
    }

    fn bool_op(&self, code: OpCode, args: &[Value]) -> Option<Value> {
        let b = &self.b;
        Some(match (code, args) {
            (OpCode::Not, &[x]) => b.not(x),
            (OpCode::And, &[x, y]) => b.logic(Logic::And, x, y),
            (OpCode::Or, &[x, y]) => b.logic(Logic::Or, x, y),
            (OpCode::Xor | OpCode::Ne, &[x, y]) => b.logic(Logic::Xor, x, y),
            (OpCode::Eq, &[x, y]) => b.not(b.logic(Logic::Xor, x, y)),
            _ => return None,
        })
    }

    fn cast(&self, x: Value, from: DType, to: DType) -> Option<Value> {
        let b = &self.b;
        let single = |d: DType| d.is_float() && d != DType::F64;
        let word = |d: DType| matches!(d, DType::I32 | DType::U32);
        if from == to || word(from) && word(to) {
            return Some(x);
        }
        Some(match (from, to) {
            _ if single(from) && single(to) => self.rounded(x, to),
            (DType::Bool, _) if single(to) => b.select(x, b.word(1f32.to_bits()), b.word(0)),
            (DType::Bool, _) if word(to) => b.select(x, b.word(1), b.word(0)),
            (_, DType::Bool) if single(from) => b.not(b.compare(Compare::EqF, x, b.word(0))),
            (_, DType::Bool) if word(from) => b.not(b.compare(Compare::EqI, x, b.word(0))),
            (DType::I32, DType::F32) => b.unary(Unary::ToFloat, x),
            _ => return None,
        })
    }

    /// A function of the portable executor's, with this program's values.
    fn function<'a>(&'a self, x: Value, f: impl Fn(F32<'a>) -> F32<'a>) -> Value {
        f(F32(Word::Value(&self.b, x))).0.value(&self.b)
    }

    fn float_unary(&self, code: OpCode, x: Value) -> Option<Value> {
        let b = &self.b;
        let one = || b.word(1f32.to_bits());
        let magnitude = || b.binary(Binary::And, x, b.word(0x7fff_ffff));
        let infinity = || b.word(f32::INFINITY.to_bits());
        Some(match code {
            OpCode::Neg => self.function(x, |x| -x),
            OpCode::Abs => magnitude(),
            OpCode::Sign => {
                let (zero, minus) = (b.word(0), b.word((-1f32).to_bits()));
                let s = b.select(b.compare(Compare::LtF, x, zero), minus, zero);
                let s = b.select(b.compare(Compare::LtF, zero, x), one(), s);
                b.select(b.compare(Compare::Unordered, x, x), x, s)
            }
            OpCode::Floor => b.unary(Unary::Round(Rounding::Down), x),
            OpCode::Ceil => b.unary(Unary::Round(Rounding::Up), x),
            OpCode::Round => b.unary(Unary::Round(Rounding::Nearest), x),
            OpCode::Trunc => b.unary(Unary::Round(Rounding::Zero), x),
            OpCode::Sqrt => b.unary(Unary::Sqrt, x),
            OpCode::Rsqrt => b.binary(Binary::DivF, one(), b.unary(Unary::Sqrt, x)),
            OpCode::Exp => self.function(x, math::exp),
            OpCode::Log => self.function(x, math::log),
            OpCode::Tanh => self.function(x, math::tanh),
            OpCode::Erf => self.function(x, math::erf),
            OpCode::IsNan => b.compare(Compare::Unordered, x, x),
            OpCode::IsInf => b.compare(Compare::EqI, magnitude(), infinity()),
            OpCode::IsFinite => b.compare(Compare::LtI, magnitude(), infinity()),
            OpCode::Signbit => b.compare(Compare::LtI, x, b.word(0)),
            _ => return None,
        })
    }

    fn float_binary(&self, code: OpCode, x: Value, y: Value) -> Option<Value> {
        let b = &self.b;
        Some(match code {
            OpCode::Add => b.binary(Binary::AddF, x, y),
            OpCode::Sub => b.binary(Binary::SubF, x, y),
            OpCode::Mul => b.binary(Binary::MulF, x, y),
            OpCode::Div => b.binary(Binary::DivF, x, y),
            OpCode::Maximum => self.extremum(b.compare(Compare::LtF, y, x), Binary::And, x, y),
            OpCode::Minimum => self.extremum(b.compare(Compare::LtF, x, y), Binary::Or, x, y),
            OpCode::Copysign => {
                let sign = F32(Word::Value(b, y));
                self.function(x, |x| x.copysign(sign))
            }
            OpCode::Eq => b.compare(Compare::EqF, x, y),
            OpCode::Ne => b.not(b.compare(Compare::EqF, x, y)),
            OpCode::Lt => b.compare(Compare::LtF, x, y),
            OpCode::Le => b.compare(Compare::LeF, x, y),
            OpCode::Gt => b.compare(Compare::LtF, y, x),
            OpCode::Ge => b.compare(Compare::LeF, y, x),
            _ => return None,
        })
    }

    /// The larger or smaller float: NaN if either is; of zeros, by their bits, +0 or -0.
    fn extremum(&self, first: Value, of_equal: Binary, x: Value, y: Value) -> Value {
        let b = &self.b;
        let r = b.select(first, x, y);
        let equal = b.compare(Compare::EqF, x, y);
        let r = b.select(equal, b.binary(of_equal, x, y), r);
        let nan = b.compare(Compare::Unordered, x, y);
        b.select(nan, b.binary(Binary::AddF, x, y), r)
    }

    fn int_unary(&self, code: OpCode, x: Value, dtype: DType) -> Option<Value> {
        let b = &self.b;
        let zero = b.word(0);
        let negated = || b.binary(Binary::SubI, zero, x);
        Some(match (code, dtype) {
            (OpCode::Neg, _) => negated(),
            (OpCode::Not, _) => b.binary(Binary::Xor, x, b.word(u32::MAX)),
            (OpCode::Abs, DType::I32) => b.select(b.compare(Compare::LtI, x, zero), negated(), x),
            (OpCode::Abs, _) => x,
            (OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc, _) => x,
            _ => return None,
        })
    }

    fn int_binary(&self, code: OpCode, x: Value, y: Value, dtype: DType) -> Option<Value> {
        let b = &self.b;
        let (less, at_most) = match dtype {
            DType::I32 => (Compare::LtI, Compare::LeI),
            _ => (Compare::LtU, Compare::LeU),
        };
        Some(match code {
            OpCode::Add => b.binary(Binary::AddI, x, y),
            OpCode::Sub => b.binary(Binary::SubI, x, y),
            OpCode::Mul => b.binary(Binary::MulI, x, y),
            OpCode::And => b.binary(Binary::And, x, y),
            OpCode::Or => b.binary(Binary::Or, x, y),
            OpCode::Xor => b.binary(Binary::Xor, x, y),
            OpCode::Maximum => b.select(b.compare(less, y, x), x, y),
            OpCode::Minimum => b.select(b.compare(less, x, y), x, y),
            OpCode::Eq => b.compare(Compare::EqI, x, y),
            OpCode::Ne => b.not(b.compare(Compare::EqI, x, y)),
            OpCode::Lt => b.compare(less, x, y),
            OpCode::Le => b.compare(at_most, x, y),
            OpCode::Gt => b.compare(less, y, x),
            OpCode::Ge => b.compare(at_most, y, x),
            _ => return None,
        })
    }
}
