//! The interpreter: evaluates a kernel point by point, in the order of the space.

use super::*;
use crate::copy::IndexedAxis;
use crate::philox::{self, RandomKey};
use half::{bf16, f16};

/// A scalar in its compute type.
#[derive(Clone, Copy, Debug)]
enum Scalar {
    Int(i128),
    Single(f32),
    Double(f64),
}
use Scalar::*;

fn load(l: Literal) -> Scalar {
    match l.dtype {
        DType::F64 => Double(f64::from_bits(l.bits)),
        d if d.is_float() => Single(l.as_f64() as f32),
        _ => Int(l.as_int()),
    }
}

fn store(s: Scalar, dtype: DType) -> Literal {
    let bits = |b: u64| Literal { dtype, bits: b };
    match (s, dtype) {
        (Int(i), d) if !d.is_float() && d != DType::Bool => Literal::from_int(d, i),
        (Int(i), DType::Bool) => bits((i != 0) as u64),
        (Single(x), DType::F16) => bits(f16::from_f32_const(x).to_bits() as u64),
        (Single(x), DType::BF16) => bits(bf16::from_f32(x).to_bits() as u64),
        (Single(x), DType::F32) => bits(x.to_bits() as u64),
        (Double(x), DType::F64) => bits(x.to_bits()),
        _ => panic!("{s:?} as {dtype}"),
    }
}

/// The value of an instruction at a position, with the core's value if there is one.
fn eval(
    k: &Kernel,
    block: &Block,
    m: &Memory,
    index: &[usize],
    core: Option<Literal>,
) -> Result<Vec<Literal>, ExecError> {
    let at = |offset: isize, strides: &[isize]| {
        offset + strides.iter().zip(index).map(|(s, &i)| s * i as isize).sum::<isize>()
    };
    let mut vals: Vec<Literal> = vec![];
    for inst in &block.insts {
        let value = match inst {
            Inst::Literal(l) => *l,
            Inst::Scalar { argument, dtype } => {
                Literal { dtype: *dtype, bits: m.arguments[*argument][0] }
            }
            Inst::Load(id) => {
                let a = k.access(*id);
                m.get(a.buffer, at(a.offset, &a.strides) as usize)
            }
            Inst::Gather { access, index, stride, size } => {
                let a = k.access(*access);
                let index = vals[index.0 as usize];
                let i = IndexedAxis::new(*size, index.dtype).wrap(index.as_i64())?;
                m.get(a.buffer, (at(a.offset, &a.strides) + i * stride) as usize)
            }
            Inst::Wrap { index, size, label } => {
                let checked = if *label { IndexedAxis::label } else { IndexedAxis::wrap };
                let index = vals[index.0 as usize];
                let i = checked(IndexedAxis::new(*size, index.dtype), index.as_i64())?;
                Literal::from_i64(DType::I64, i as i64)
            }
            Inst::Iota { offset, strides, dtype } => {
                Literal::from_i64(*dtype, at(*offset, strides) as i64)
            }
            Inst::Random { code, argument, offset, strides, dtype } => {
                let [key, start] = m.arguments[*argument];
                draw(*code, RandomKey { key, offset: start }, at(*offset, strides), *dtype)
            }
            Inst::Core { .. } => core.expect("a core"),
            Inst::Op { code, args, dtype } => {
                let args: Vec<Literal> = args.iter().map(|a| vals[a.0 as usize]).collect();
                apply(*code, &args, *dtype)
            }
        };
        vals.push(value);
    }
    Ok(vals)
}

fn draw(code: OpCode, key: RandomKey, at: isize, dtype: DType) -> Literal {
    let single = |x: f32| store(Single(x), dtype);
    match (code, dtype) {
        (OpCode::RandomUniform, DType::F64) => {
            let mut x = [0.0];
            philox::fill::<philox::UniformF64>(&mut x, key, at, 1);
            store(Double(x[0]), dtype)
        }
        (OpCode::RandomUniform, _) => {
            let mut x = [0.0];
            philox::fill::<philox::UniformF32>(&mut x, key, at, 1);
            let near = single(x[0]);
            if near.as_f64() > x[0] as f64 { Literal { bits: near.bits - 1, ..near } } else { near }
        }
        (OpCode::RandomNormal, _) => {
            let mut x = [0.0];
            philox::fill::<philox::NormalF32>(&mut x, key, at, 1);
            single(x[0])
        }
        _ => {
            let mut x = [0];
            philox::fill::<philox::Bits>(&mut x, key, at, 1);
            store(Int(i128::from(x[0])), dtype)
        }
    }
}

/// An op on scalars.
pub(crate) fn apply(code: OpCode, args: &[Literal], dtype: DType) -> Literal {
    if code == OpCode::Cast {
        return cast(args[0], dtype);
    }
    if code == OpCode::Where {
        return if args[0].bits != 0 { args[1] } else { args[2] };
    }
    if code == OpCode::Nextafter || girih_ir::random::draws::draw(code, &[0; 3]).is_some() {
        return girih_ir::scalar::apply(&code.into(), dtype, args).literal().unwrap();
    }
    let s: Vec<Scalar> = args.iter().map(|&a| load(a)).collect();
    let result = match (s[0], s.get(1)) {
        (Int(a), None) => Int(int_unary(code, a, args[0].dtype)),
        (Int(a), Some(&Int(b))) => Int(int_binary(code, a, b, dtype)),
        (Single(a), None) => match predicate(code, a as f64) {
            Some(p) => Int(p.into()),
            None => Single(single_unary(code, a)),
        },
        (Double(a), None) => match predicate(code, a) {
            Some(p) => Int(p.into()),
            None => Double(double_unary(code, a)),
        },
        (Single(a), Some(&Single(b))) => match compare(code, a as f64, b as f64) {
            Some(p) => Int(p.into()),
            None => Single(single_binary(code, a, b)),
        },
        (Double(a), Some(&Double(b))) => match compare(code, a, b) {
            Some(p) => Int(p.into()),
            None => Double(double_binary(code, a, b)),
        },
        _ => panic!("{code:?} of {args:?}"),
    };
    store(result, dtype)
}

fn cast(x: Literal, to: DType) -> Literal {
    match (load(x), to) {
        (Int(i), DType::F16) => store(Double(i as f64), DType::F64).cast_half(to),
        (Int(i), DType::BF16) => store(Double(i as f64), DType::F64).cast_half(to),
        (Double(_), DType::F16 | DType::BF16) => x.cast_half(to),
        (Double(v), DType::F32) => store(Single(v as f32), to),
        (Single(v), DType::F64) => store(Double(v as f64), to),
        (Single(v), d) if d.is_float() => store(Single(v), d),
        (Single(v), DType::Bool) => store(Int((v != 0.0) as i128), to),
        (Double(v), DType::Bool) => store(Int((v != 0.0) as i128), to),
        _ => x.cast(to),
    }
}

trait CastHalf {
    fn cast_half(self, to: DType) -> Literal;
}
impl CastHalf for Literal {
    /// f64 to a half in one rounding.
    fn cast_half(self, to: DType) -> Literal {
        let x = f64::from_bits(self.bits);
        let bits = match to {
            DType::F16 => f16::from_f64_const(x).to_bits(),
            _ => bf16::from_f64_const(x).to_bits(),
        };
        Literal { dtype: to, bits: bits as u64 }
    }
}

fn predicate(code: OpCode, a: f64) -> Option<bool> {
    Some(match code {
        OpCode::IsNan => a.is_nan(),
        OpCode::IsInf => a.is_infinite(),
        OpCode::IsFinite => a.is_finite(),
        OpCode::Signbit => a.is_sign_negative(),
        _ => return None,
    })
}

fn compare<T: PartialOrd>(code: OpCode, a: T, b: T) -> Option<bool> {
    Some(match code {
        OpCode::Eq => a == b,
        OpCode::Ne => a != b,
        OpCode::Lt => a < b,
        OpCode::Le => a <= b,
        OpCode::Gt => a > b,
        OpCode::Ge => a >= b,
        _ => return None,
    })
}

fn int_unary(code: OpCode, a: i128, dtype: DType) -> i128 {
    match code {
        OpCode::Neg => -a,
        OpCode::Abs => a.abs(),
        OpCode::Sign => a.signum(),
        OpCode::Not if dtype == DType::Bool => 1 - a,
        OpCode::Not => !a,
        OpCode::Floor | OpCode::Ceil | OpCode::Round | OpCode::Trunc => a,
        _ => panic!("{code:?}"),
    }
}

/// Wider than all dtypes, so wrapping on storing gives the narrow type's arithmetic.
fn int_binary(code: OpCode, a: i128, b: i128, dtype: DType) -> i128 {
    if let Some(p) = compare(code, a, b) {
        return p.into();
    }
    let bits = 8 * dtype.size() as i128;
    match code {
        OpCode::Add => a + b,
        OpCode::Sub => a - b,
        OpCode::Mul => a.wrapping_mul(b),
        OpCode::FloorDivide | OpCode::Remainder | OpCode::Fmod if b == 0 => 0,
        OpCode::Fmod => a % b,
        OpCode::FloorDivide if b > 0 => a.div_euclid(b),
        OpCode::FloorDivide => (-a).div_euclid(-b),
        OpCode::Remainder => ((a % b) + b) % b,
        OpCode::Pow if b < 0 => match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        },
        OpCode::Pow => (0..b).fold(1, |r, _| Literal::from_int(dtype, a.wrapping_mul(r)).as_int()),
        OpCode::Maximum => a.max(b),
        OpCode::Minimum => a.min(b),
        OpCode::And => a & b,
        OpCode::Or => a | b,
        OpCode::Xor => a ^ b,
        OpCode::Philox => girih_ir::random::word(a as u64, b as u64).into(),
        OpCode::ShiftLeft if b < 0 || b >= bits => 0,
        OpCode::ShiftLeft => (0..b).fold(a, |r, _| r * 2),
        OpCode::ShiftRight if b < 0 || b >= bits => -((a < 0) as i128),
        OpCode::ShiftRight => (0..b).fold(a, |r, _| r.div_euclid(2)),
        _ => panic!("{code:?}"),
    }
}

macro_rules! float_ops {
    ($unary:ident $binary:ident $t:ident, $($code:ident $f:expr;)*) => {
        fn $unary(code: OpCode, a: $t) -> $t {
            match code {
                $(OpCode::$code => $f(a),)*
                OpCode::Neg => -a,
                OpCode::Abs => a.abs(),
                OpCode::Sign => if a.is_nan() { a } else if a == 0.0 { 0.0 } else { a.signum() },
                OpCode::Floor => a.floor(),
                OpCode::Ceil => a.ceil(),
                OpCode::Round => a.round_ties_even(),
                OpCode::Trunc => a.trunc(),
                OpCode::Sqrt => a.sqrt(),
                OpCode::Rsqrt => 1.0 / a.sqrt(),
                code => match girih_ir::special::unary(code) {
                    Some(f) => f(a as f64) as $t,
                    None => panic!("{code:?}"),
                },
            }
        }
        fn $binary(code: OpCode, a: $t, b: $t) -> $t {
            let nan = a.is_nan() || b.is_nan();
            let rem = || {
                let r = a % b;
                if r == 0.0 { (0.0 as $t).copysign(b) } else if (r < 0.0) != (b < 0.0) { r + b } else { r }
            };
            match code {
                OpCode::Add => a + b,
                OpCode::Sub => a - b,
                OpCode::Mul => a * b,
                OpCode::Div => a / b,
                OpCode::Remainder => rem(),
                OpCode::FloorDivide if b == 0.0 => a / b,
                OpCode::FloorDivide => {
                    // As NumPy computes it: exact remainder, then the corrected quotient.
                    let r = a % b;
                    let mut q = (a - r) / b;
                    if r != 0.0 && (r < 0.0) != (b < 0.0) { q -= 1.0 }
                    if q == 0.0 { return (0.0 as $t).copysign(a / b) }
                    let f = q.floor();
                    if q - f > 0.5 { f + 1.0 } else { f }
                }
                OpCode::Maximum if nan => $t::NAN,
                OpCode::Minimum if nan => $t::NAN,
                OpCode::Maximum if a == b => if a.is_sign_negative() { b } else { a },
                OpCode::Minimum if a == b => if a.is_sign_negative() { a } else { b },
                OpCode::Maximum => if a > b { a } else { b },
                OpCode::Minimum => if a < b { a } else { b },
                OpCode::Copysign => if b.is_sign_negative() { -a.abs() } else { a.abs() },
                OpCode::Hypot if a.is_infinite() || b.is_infinite() => $t::INFINITY,
                OpCode::Hypot => girih_ir::complex::hypot(a as f64, b as f64) as $t,
                OpCode::Fmod => a % b,
                OpCode::Pow => pow_atan::$t(a, b).0,
                OpCode::Atan2 => pow_atan::$t(a, b).1,
                code => match girih_ir::special::binary(code) {
                    Some(f) => f(a as f64, b as f64) as $t,
                    None => panic!("{code:?}"),
                },
            }
        }
    };
}
mod pow_atan {
    pub fn f32(a: f32, b: f32) -> (f32, f32) {
        (crate::math::pow(a, b), crate::math::atan2(a, b))
    }
    pub fn f64(a: f64, b: f64) -> (f64, f64) {
        (crate::math::wide::pow(a, b), crate::math::wide::atan2(a, b))
    }
}
use crate::math as m32;
use crate::math::wide as m64;
float_ops! { single_unary single_binary f32,
    Exp m32::exp; Exp2 m32::exp2; Expm1 m32::expm1; Log m32::log; Log1p m32::log1p;
    Log2 m32::log2; Log10 m32::log10; Sin m32::sin; Cos m32::cos; Tan m32::tan;
    Asin m32::asin; Acos m32::acos; Atan m32::atan; Sinh m32::sinh; Cosh m32::cosh;
    Tanh m32::tanh; Asinh m32::asinh; Acosh m32::acosh; Atanh m32::atanh; Erf m32::erf;
    Erfc m32::erfc;
}
float_ops! { double_unary double_binary f64,
    Exp m64::exp; Exp2 m64::exp2; Expm1 m64::expm1; Log m64::log; Log1p m64::log1p;
    Log2 m64::log2; Log10 m64::log10; Sin m64::sin; Cos m64::cos; Tan m64::tan;
    Asin m64::asin; Acos m64::acos; Atan m64::atan; Sinh m64::sinh; Cosh m64::cosh;
    Tanh m64::tanh; Asinh m64::asinh; Acosh m64::acosh; Atanh m64::atanh; Erf m64::erf;
    Erfc m64::erfc;
}

/// All multi-indices of a box, row-major.
fn points(extents: &[usize]) -> Vec<Vec<usize>> {
    extents.iter().fold(vec![vec![]], |all, &e| {
        all.iter().flat_map(|p| (0..e).map(move |i| [p.as_slice(), &[i]].concat())).collect()
    })
}

/// The core's value at a parallel point. Sums of floats are taken in f64.
fn core_value(k: &Kernel, m: &Memory, point: &[usize]) -> Result<Option<Literal>, ExecError> {
    let inner = points(&k.extents[k.parallel..]);
    let whole = |r: &Vec<usize>| [point, r.as_slice()].concat();
    match &k.core {
        Core::Map | Core::Scatter { .. } => Ok(None),
        Core::Library(_) | Core::Control(_) | Core::Rows(_) => {
            unreachable!("routines, rows and control are tested against the reference")
        }
        Core::Reduce { prologue, value, op, .. } => {
            let values: Result<Vec<Literal>, ExecError> = inner
                .iter()
                .map(|r| Ok(eval(k, prologue, m, &whole(r), None)?[value.0 as usize]))
                .collect();
            Ok(Some(reduce(*op, &values?)))
        }
        Core::Gemm { lhs, rhs, dtype, .. } => {
            let at = |a: &Access, i: &[usize]| {
                let e =
                    a.offset + a.strides.iter().zip(i).map(|(s, &i)| s * i as isize).sum::<isize>();
                m.get(a.buffer, e as usize).cast(*dtype)
            };
            let products: Vec<Literal> = inner
                .iter()
                .map(|r| {
                    let (a, b) = (at(lhs, &whole(r)), at(rhs, &whole(r)));
                    match dtype.is_float() {
                        true => Literal::from_f64(DType::F64, a.as_f64() * b.as_f64()),
                        false => apply(OpCode::Mul, &[a, b], *dtype),
                    }
                })
                .collect();
            Ok(Some(cast(reduce(ReduceOp::Sum, &products), *dtype)))
        }
    }
}

fn reduce(op: ReduceOp, values: &[Literal]) -> Literal {
    let dtype = values[0].dtype;
    let fold = |code| {
        let first = values[0];
        values[1..].iter().fold(first, |a, &b| apply(code, &[a, b], dtype))
    };
    match op {
        ReduceOp::Sum if dtype.is_float() => {
            let sum: f64 = values.iter().map(|v| v.as_f64()).sum();
            cast(Literal::from_f64(DType::F64, sum + 0.0), dtype)
        }
        ReduceOp::Prod if dtype.is_float() => {
            let product: f64 = values.iter().map(|v| v.as_f64()).product();
            cast(Literal::from_f64(DType::F64, product), dtype)
        }
        ReduceOp::Sum => fold(OpCode::Add),
        ReduceOp::Prod => fold(OpCode::Mul),
        ReduceOp::Max => fold(OpCode::Maximum),
        ReduceOp::Min => fold(OpCode::Minimum),
        ReduceOp::Any => fold(OpCode::Or),
        ReduceOp::All => fold(OpCode::And),
        ReduceOp::ArgMax | ReduceOp::ArgMin => {
            let nan = |l: Literal| l.dtype.is_float() && l.as_f64().is_nan();
            let better = |a: Literal, b: Literal| match (nan(a), nan(b)) {
                (true, other) => !other,
                (false, true) => false,
                _ if op == ReduceOp::ArgMax => apply(OpCode::Gt, &[a, b], DType::Bool).bits == 1,
                _ => apply(OpCode::Lt, &[a, b], DType::Bool).bits == 1,
            };
            let best = (0..values.len())
                .reduce(|best, i| if better(values[i], values[best]) { i } else { best });
            Literal::from_i64(DType::I64, best.expect("a value") as i64)
        }
    }
}

/// Runs a kernel.
pub(super) fn interpret(k: &Kernel, m: &Memory) -> Result<Memory, ExecError> {
    let mut out = Memory { words: m.words.clone(), ..m.shallow() };
    if let Core::Scatter { zeroed: true, .. } = k.core {
        let id = k.stores[0].access.buffer;
        for i in 0..m.lens[id.0 as usize] {
            out.set(id, i, Literal::from_f64(k.stores[0].access.dtype, 0.0));
        }
    }
    for point in points(&k.extents[..k.parallel]) {
        let core = core_value(k, m, &point)?;
        let vals = eval(k, &k.body, m, &point, core)?;
        for s in &k.stores {
            let at = |a: &Access| {
                a.offset + a.strides.iter().zip(&point).map(|(s, &i)| s * i as isize).sum::<isize>()
            };
            let (mut at_store, mut value) = (at(&s.access), vals[s.value.0 as usize]);
            if let Core::Scatter { mode, index, stride, size, .. } = &k.core {
                let i = m.get(index.buffer, at(index) as usize).as_i64();
                at_store += IndexedAxis::new(*size, index.dtype).wrap(i)? * stride;
                let old = out.get(s.access.buffer, at_store as usize);
                if let Some(code) = mode.op() {
                    value = apply(code, &[old, value], s.access.dtype);
                }
            }
            out.set(s.access.buffer, at_store as usize, value);
        }
    }
    Ok(out)
}
