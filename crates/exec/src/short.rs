//! Reductions over a few elements, as maps: the reduced dimensions are unrolled, so that loops run
//! over the results instead of over a few elements.
//!
//! The elements of a result are combined in the tree of [`fold`](super::fold): if there are no more
//! elements than lanes, element `i` is lane `i`, and the upper half of the lanes is combined into
//! the lower half repeatedly. Products of floats have one lane: their elements are combined in order.

use super::cast::{compute, is_half};
use super::fold::LANES;
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{Access, AccessId, Block, Core, Inst, Kernel, ReduceOp, Val};
use smallvec::SmallVec;

/// The minimum number of results for which a program of so many instructions pays.
const MIN_POINTS: usize = 16;

/// The maximum number of instructions for all elements' prologues and their combination.
const MAX_INSTS: usize = 320;

/// A reduction as a map that computes its results, and, if values of the prologue are stored, a map
/// that runs before it.
pub(super) struct Short {
    pub stored: Option<Kernel>,
    pub results: Kernel,
}

impl Short {
    /// `None` if the reduction has too many elements, or runs faster element by element.
    pub fn of(kernel: &Kernel) -> Option<Short> {
        let Core::Reduce { prologue, value, op, stores } = &kernel.core else { return None };
        let (reduced, dtype) = (kernel.reduced(), kernel.dtype(prologue, *value));
        if reduced > LANES || kernel.points() < MIN_POINTS || dtype.is_complex() {
            return None;
        }
        if stores.is_empty() {
            let results = unrolled(kernel, prologue, *value, *op)?;
            return Some(Short { stored: None, results });
        }
        // The first map computes the stored values element by element; the second map reads them.
        let store = stores.iter().find(|s| s.value == *value)?;
        let stored = Kernel {
            parallel: kernel.extents.len(),
            core: Core::Map,
            body: prologue.clone(),
            stores: stores.clone(),
            ..kernel.clone()
        };
        let mut reading = kernel.clone();
        reading.accesses.push(store.access.clone());
        let mut load = Block::default();
        let value = load.push(Inst::Load(AccessId(reading.accesses.len() as u32 - 1)));
        let results = unrolled(&reading, &load, value, *op)?;
        Some(Short { stored: Some(stored), results })
    }
}

fn unrolled(kernel: &Kernel, prologue: &Block, value: Val, op: ReduceOp) -> Option<Kernel> {
    let simple = |inst: &Inst| {
        !matches!(inst, Inst::Gather { .. } | Inst::Wrap { .. } | Inst::Random { .. })
    };
    let size = (prologue.insts.len() + 1).saturating_mul(kernel.reduced());
    if size > MAX_INSTS || !prologue.insts.iter().all(simple) {
        return None;
    }
    let mut unroll = Unroll::new(kernel, prologue, value);
    let result = match op {
        ReduceOp::ArgMax => unroll.best(OpCode::Gt, OpCode::Le),
        ReduceOp::ArgMin => unroll.best(OpCode::Lt, OpCode::Ge),
        ReduceOp::Sum => unroll.combined(OpCode::Add),
        ReduceOp::Prod => unroll.product(),
        ReduceOp::Max => unroll.combined(OpCode::Maximum),
        ReduceOp::Min => unroll.combined(OpCode::Minimum),
        ReduceOp::Any => unroll.combined(OpCode::Or),
        ReduceOp::All => unroll.combined(OpCode::And),
    };
    Some(unroll.finish(result))
}

/// A map under construction from a reduction.
struct Unroll<'a> {
    kernel: &'a Kernel,
    prologue: &'a Block,
    /// The value that is reduced.
    value: Val,
    /// The value's dtype, and the dtype in which the value is combined.
    dtype: DType,
    combined: DType,
    /// For each instruction of the prologue, whether its value differs from element to element; if
    /// not, its value once there is a value.
    moves: Vec<bool>,
    fixed: Vec<Option<Val>>,
    accesses: Vec<Access>,
    body: Block,
}

impl<'a> Unroll<'a> {
    fn new(kernel: &'a Kernel, prologue: &'a Block, value: Val) -> Unroll<'a> {
        let dtype = kernel.dtype(prologue, value);
        let mut moves: Vec<bool> = Vec::with_capacity(prologue.insts.len());
        for inst in &prologue.insts {
            let strided = |strides: &[isize]| strides[kernel.parallel..].iter().any(|&s| s != 0);
            moves.push(match inst {
                Inst::Load(id) => strided(&kernel.access(*id).strides),
                Inst::Iota { strides, .. } => strided(strides),
                Inst::Op { args, .. } => args.iter().any(|a| moves[a.0 as usize]),
                _ => false,
            });
        }
        Unroll {
            kernel,
            prologue,
            value,
            dtype,
            combined: compute(dtype),
            fixed: vec![None; moves.len()],
            moves,
            accesses: vec![],
            body: Block::default(),
        }
    }

    fn op(&mut self, code: OpCode, args: &[Val], dtype: DType) -> Val {
        self.body.push(Inst::Op { code, args: SmallVec::from_slice(args), dtype })
    }

    /// The distance of an element of the reduced range from the first one, with these strides.
    fn distance(&self, strides: &[isize], element: usize) -> isize {
        let mut rest = element;
        let dims = (self.kernel.parallel..self.kernel.extents.len()).rev();
        dims.fold(0, |distance, d| {
            let at = rest % self.kernel.extents[d];
            rest /= self.kernel.extents[d];
            distance + strides[d] * at as isize
        })
    }

    /// An access of the prologue at an element of the reduced range.
    fn access(&mut self, access: &Access, element: usize) -> AccessId {
        let offset = access.offset + self.distance(&access.strides, element);
        let strides = access.strides[..self.kernel.parallel].into();
        self.push_access(Access { offset, strides, ..access.clone() })
    }

    fn push_access(&mut self, access: Access) -> AccessId {
        self.accesses.push(access);
        AccessId(self.accesses.len() as u32 - 1)
    }

    /// The value at an element of the reduced range, in the dtype in which it is combined.
    fn element(&mut self, element: usize) -> Val {
        let mut values: Vec<Val> = Vec::with_capacity(self.prologue.insts.len());
        for (i, inst) in self.prologue.insts.iter().enumerate() {
            if let Some(known) = self.fixed[i] {
                values.push(known);
                continue;
            }
            let inst = match inst {
                Inst::Load(id) => {
                    let access = self.kernel.access(*id);
                    Inst::Load(self.access(access, element))
                }
                Inst::Iota { offset, strides, dtype } => {
                    let offset = offset + self.distance(strides, element);
                    let strides = &strides[..self.kernel.parallel];
                    // These numbers are exact in every dtype.
                    match strides.iter().all(|&s| s == 0) && (0..128).contains(&offset) {
                        true => Inst::Literal(Literal::from_i64(*dtype, offset as i64)),
                        false => Inst::Iota { offset, strides: strides.into(), dtype: *dtype },
                    }
                }
                Inst::Op { code, args, dtype } => Inst::Op {
                    code: *code,
                    args: args.iter().map(|a| values[a.0 as usize]).collect(),
                    dtype: *dtype,
                },
                other => other.clone(),
            };
            let value = self.body.push(inst);
            values.push(value);
            if !self.moves[i] {
                self.fixed[i] = Some(value);
            }
        }
        let value = values[self.value.0 as usize];
        if is_half(self.dtype) { self.op(OpCode::Cast, &[value], self.combined) } else { value }
    }

    /// The combination of all elements.
    fn combined(&mut self, code: OpCode) -> Val {
        let total = self.lanes(code, 0, 1);
        if is_half(self.dtype) { self.op(OpCode::Cast, &[total], self.dtype) } else { total }
    }

    /// The product of all elements, in order.
    fn product(&mut self) -> Val {
        let mut total = self.element(0);
        for i in 1..self.kernel.reduced() {
            let factor = self.element(i);
            total = self.op(OpCode::Mul, &[total, factor], self.combined);
        }
        if is_half(self.dtype) { self.op(OpCode::Cast, &[total], self.dtype) } else { total }
    }

    /// The combination of every `step`-th lane from `first` on: of every second of these lanes with
    /// the other lanes.
    fn lanes(&mut self, code: OpCode, first: usize, step: usize) -> Val {
        if first + step < self.kernel.reduced() {
            let one = self.lanes(code, first, 2 * step);
            let other = self.lanes(code, first + step, 2 * step);
            return self.op(code, &[one, other], self.combined);
        }
        let value = self.element(first);
        // A lane starts from the identity, which changes a sum only if a lane is -0. It suffices to
        // start one lane from the identity: then a sum is 0 and not -0.
        if code == OpCode::Add && self.combined.is_float() && first == 0 {
            let zero = self.body.push(Inst::Literal(Literal::from_i64(self.combined, 0)));
            return self.op(code, &[zero, value], self.combined);
        }
        value
    }

    /// The index of the first element that is `better` than all earlier ones. A NaN is better than
    /// a number.
    fn best(&mut self, better: OpCode, not_better: OpCode) -> Val {
        let (mut best, mut index) = (self.element(0), self.index(0));
        for i in 1..self.kernel.reduced() {
            let (value, here) = (self.element(i), self.index(i));
            let takes = if self.combined.is_float() {
                let no = self.op(not_better, &[value, best], DType::Bool);
                let (yes, number) = (
                    self.op(OpCode::Not, &[no], DType::Bool),
                    self.op(OpCode::Eq, &[best, best], DType::Bool),
                );
                self.op(OpCode::And, &[yes, number], DType::Bool)
            } else {
                self.op(better, &[value, best], DType::Bool)
            };
            best = self.op(OpCode::Where, &[takes, value, best], self.combined);
            index = self.op(OpCode::Where, &[takes, here, index], DType::I64);
        }
        index
    }

    fn index(&mut self, i: usize) -> Val {
        self.body.push(Inst::Literal(Literal::from_i64(DType::I64, i as i64)))
    }

    /// The map with the body of the reduction, applied to its result.
    fn finish(mut self, result: Val) -> Kernel {
        let mut values: Vec<Val> = Vec::with_capacity(self.kernel.body.insts.len());
        for inst in &self.kernel.body.insts {
            let at = |v: &Val, values: &[Val]| values[v.0 as usize];
            let mut load = |id: &AccessId| {
                let access = self.kernel.access(*id).clone();
                self.accesses.push(access);
                AccessId(self.accesses.len() as u32 - 1)
            };
            let inst = match inst {
                Inst::Core { .. } => {
                    values.push(result);
                    continue;
                }
                Inst::Load(id) => Inst::Load(load(id)),
                Inst::Gather { access, index, stride, size } => Inst::Gather {
                    access: load(access),
                    index: at(index, &values),
                    stride: *stride,
                    size: *size,
                },
                Inst::Wrap { index, size, label } => {
                    Inst::Wrap { index: at(index, &values), size: *size, label: *label }
                }
                Inst::Op { code, args, dtype } => Inst::Op {
                    code: *code,
                    args: args.iter().map(|a| at(a, &values)).collect(),
                    dtype: *dtype,
                },
                other => other.clone(),
            };
            values.push(self.body.push(inst));
        }
        let mut stores = self.kernel.stores.clone();
        stores.iter_mut().for_each(|s| s.value = values[s.value.0 as usize]);
        let parallel = self.kernel.parallel;
        Kernel {
            name: self.kernel.name.clone(),
            extents: self.kernel.extents[..parallel].into(),
            parallel,
            accesses: self.accesses,
            core: Core::Map,
            body: self.body,
            stores,
        }
    }
}
