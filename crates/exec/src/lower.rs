//! Lowers a block of the kernel IR to [`Code`]: chooses loops, inserts the conversions of halves,
//! hoists loop-invariant values, places registers.

mod halves;

use super::cast::{compute, is_half};
use super::chain::{ChainFold, ChainOp};
use super::code::{Code, Direct, NONE, Reg, RegisterPlace, Source, Step, Write};
use super::copy::{Indexed, IndexedAxis};
use super::fused::{FoldOf, Fuse};
use super::stream::Stream;
use super::walk::Walk;
use super::{BLOCK, PrepareOptions};
use crate::philox::{self, RandomFn};
use crate::tuning::tuning;
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{Access, Block, Inst, Kernel, ReduceOp, Store, Val};
use halves::Raw;

/// A dimension, or a part of one, of the order in which a code walks its space.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dim {
    /// The index into the kernel's extents.
    pub of: usize,
    /// The number of steps.
    pub extent: usize,
    /// The number of points of the kernel's dimension per step.
    pub step: usize,
}

impl Dim {
    /// A whole dimension of the kernel.
    pub fn whole((of, &extent): (usize, &usize)) -> Dim {
        Dim { of, extent, step: 1 }
    }
}

/// The order in which a code walks its dimensions.
pub(crate) type Order = Vec<Dim>;

/// The walk of a strided operand in an order.
pub(crate) fn walk(order: &Order, offset: isize, strides: &[isize]) -> Walk {
    let stride = |d: &Dim| strides.get(d.of).copied().unwrap_or(0) * d.step as isize;
    Walk::new(offset, order.iter().map(|d| (d.extent, stride(d))))
}

/// The properties of a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register {
    /// The dtype of its elements: a half if they are as in memory; otherwise the compute type.
    pub dtype: DType,
    /// Whether the value is loop-invariant: the same at all points.
    pub invariant: bool,
    /// The bits of each element, if they are known.
    pub constant: Option<u64>,
}

/// Lowers blocks of one kernel.
pub(crate) struct Lower<'a> {
    kernel: &'a Kernel,
    order: &'a Order,
    options: PrepareOptions<'a>,
    /// The maximum number of points per call, if functions and reads across the rows do everything.
    pub tile: usize,
    regs: Vec<Register>,
    places: Vec<Option<RegisterPlace>>,
    steps: Vec<Step>,
    directs: Vec<Direct>,
    reads: Vec<u32>,
    core: Reg,
    cost: usize,
    /// The register of each value of the block.
    vals: Vec<Reg>,
    /// The 16 bits of values that are only moved.
    raws: Vec<Option<Raw<'a>>>,
}

impl<'a> Lower<'a> {
    /// Lowers all instructions of a block.
    pub fn new(
        kernel: &'a Kernel,
        block: &Block,
        order: &'a Order,
        options: PrepareOptions<'a>,
    ) -> Lower<'a> {
        let values = block.insts.len();
        let mut lower = Lower {
            kernel,
            order,
            options,
            tile: BLOCK,
            regs: Vec::with_capacity(values),
            places: Vec::with_capacity(values),
            steps: Vec::with_capacity(values),
            directs: vec![],
            reads: vec![],
            core: NONE,
            cost: 0,
            vals: Vec::with_capacity(values),
            raws: Vec::with_capacity(values),
        };
        for i in 0..values {
            let raw = lower.raw(block, Val(i as u32));
            lower.raws.push(raw);
            let reg = lower.inst(block, Val(i as u32));
            lower.vals.push(reg);
        }
        lower
    }

    /// The register of a value.
    pub fn val(&self, val: Val) -> Reg {
        self.vals[val.0 as usize]
    }

    fn reg(&mut self, dtype: DType, place: Option<RegisterPlace>, invariant: bool) -> Reg {
        assert!(self.regs.len() < NONE as usize, "a kernel has fewer than 65535 values");
        self.regs.push(Register { dtype, invariant, constant: None });
        self.places.push(place);
        self.regs.len() as Reg - 1
    }

    /// Appends a loop over registers, whose result has that dtype.
    fn call(&mut self, op: ChainOp, dtype: DType, args: &[Reg]) -> Reg {
        let Some(run) = op.run(self.options.isa) else {
            panic!("{op:?} reached the executor: the graph's rules forbid it")
        };
        let invariant = args.iter().all(|&a| self.regs[a as usize].invariant);
        let out = self.reg(dtype, None, invariant);
        let arg = |i: usize| args.get(i).copied().unwrap_or(NONE);
        self.steps.push(Step::Call { op, run, out, args: [arg(0), arg(1), arg(2)] });
        out
    }

    fn inst(&mut self, block: &Block, val: Val) -> Reg {
        match block.inst(val) {
            Inst::Literal(l) => self.literal(*l),
            Inst::Scalar { argument, dtype } => {
                let source = Source::Argument(*argument as u32);
                self.splat(source, *dtype)
            }
            Inst::Load(id) => {
                let kernel = self.kernel;
                self.load(kernel.access(*id))
            }
            Inst::Gather { access, index, stride, size } => {
                let index_dtype = self.kernel.dtype(block, *index);
                let access = self.kernel.access(*access);
                let axis = IndexedAxis::new(*size, index_dtype);
                let repeats = self.repeats(block, *index);
                let walk = walk(self.order, access.offset, &access.strides);
                let at = Indexed { walk, stride: *stride, axis, repeats };
                let index = self.convert(self.val(*index), index_dtype, DType::I64);
                self.gather(access, at, index)
            }
            Inst::Wrap { index, size, label } => {
                let from = self.kernel.dtype(block, *index);
                let index = self.convert(self.val(*index), from, DType::I64);
                self.cost += 600;
                // Not hoisted even if invariant, because it can fail.
                let out = self.reg(DType::I64, None, false);
                let axis = IndexedAxis::new(*size, from);
                self.steps.push(Step::Wrap { index, axis, label: *label, out });
                out
            }
            Inst::Iota { offset, strides, dtype } => {
                let walk = walk(self.order, *offset, strides);
                let positions = self.positions(walk);
                self.cost += 200;
                self.convert(positions, DType::I64, *dtype)
            }
            Inst::Random { code, argument, offset, strides, dtype } => {
                let walk = walk(self.order, *offset, strides);
                self.random(*code, *argument, walk, *dtype)
            }
            Inst::Core { dtype } => {
                let raw = self.reg(compute(*dtype), Some(RegisterPlace::Outside), false);
                self.core = raw;
                self.rounded(raw, *dtype)
            }
            Inst::Op { code, args, dtype } => {
                let from = self.kernel.dtype(block, args[args.len() - 1]);
                if *code == OpCode::Bitcast {
                    return self.bitcast(val, args[0], from, *dtype);
                }
                let args: Vec<Reg> = args.iter().map(|&a| self.val(a)).collect();
                self.op(*code, &args, from, *dtype)
            }
        }
    }

    fn op(&mut self, code: OpCode, args: &[Reg], from: DType, dtype: DType) -> Reg {
        if code == OpCode::Cast {
            return self.convert(args[0], from, dtype);
        }
        let out = self.call(ChainOp::Op(code, from), compute(dtype), args);
        if code.def().exact_on_halves { out } else { self.rounded(out, dtype) }
    }

    /// A register rounded to a half, if `dtype` is one.
    fn rounded(&mut self, reg: Reg, dtype: DType) -> Reg {
        if !is_half(dtype) {
            return reg;
        }
        self.call(ChainOp::Round(dtype), DType::F32, &[reg])
    }

    fn convert(&mut self, reg: Reg, from: DType, to: DType) -> Reg {
        if from == to || from.is_float() && compute(from) == DType::F32 && to == DType::F32 {
            return reg;
        }
        let part = to.real();
        if to.is_complex() && !from.is_complex() && compute(from) != part {
            let real = self.convert(reg, from, part);
            return self.convert(real, part, to);
        }
        if compute(from) == DType::F32 && is_half(to) {
            return self.rounded(reg, to);
        }
        let from = if to.is_complex() { compute(from) } else { from };
        let out = self.call(ChainOp::Cast(from, to), compute(to), &[reg]);
        self.rounded(out, to)
    }

    fn literal(&mut self, l: Literal) -> Reg {
        let bits = match l.dtype {
            DType::F16 | DType::BF16 => (l.as_f64() as f32).to_bits() as u64,
            _ => l.bits,
        };
        let reg = self.reg(compute(l.dtype), None, true);
        self.regs[reg as usize].constant = Some(bits);
        reg
    }

    fn splat(&mut self, source: Source, dtype: DType) -> Reg {
        let out = self.reg(dtype, None, true);
        self.steps.push(Step::Splat { source, size: dtype.size() as u8, out });
        self.loaded(out, dtype)
    }

    /// Converts a register of storage elements to compute elements.
    fn loaded(&mut self, reg: Reg, dtype: DType) -> Reg {
        if !is_half(dtype) {
            return reg;
        }
        self.call(ChainOp::LoadHalf(dtype), DType::F32, &[reg])
    }

    /// A load of an access.
    pub fn load(&mut self, access: &Access) -> Reg {
        let walk = walk(self.order, access.offset, &access.strides);
        let (buffer, size) = (access.buffer.0, access.dtype.size());
        self.reads.push(buffer);
        if walk.is_splat() {
            return self.splat(Source::Element(buffer, walk.offset), access.dtype);
        }
        self.cost += 10 * size;
        let raw = if walk.is_dense() {
            let reg = self.reg(access.dtype, Some(RegisterPlace::Outside), false);
            self.directs.push(Direct { reg, buffer, offset: walk.offset, size: size as u8 });
            reg
        } else {
            self.cost += 200;
            let out = self.reg(access.dtype, None, false);
            self.steps.push(Step::Read { buffer, walk, size: size as u8, out });
            out
        };
        self.loaded(raw, access.dtype)
    }

    fn positions(&mut self, walk: Walk) -> Reg {
        let out = self.reg(DType::I64, None, false);
        self.steps.push(Step::Positions { walk, out });
        out
    }

    /// The number of consecutive points, counted from each multiple of it, at which a value is the same.
    fn repeats(&self, block: &Block, val: Val) -> usize {
        let inner = |strides: &[isize]| -> usize {
            let same = |d: &&Dim| strides.get(d.of).is_none_or(|&stride| stride == 0);
            self.order.iter().rev().take_while(same).map(|d| d.extent).product()
        };
        let mut found: Vec<usize> = Vec::with_capacity(val.0 as usize + 1);
        for inst in &block.insts[..=val.0 as usize] {
            let of = |val: &Val| found[val.0 as usize];
            found.push(match inst {
                Inst::Literal(_) | Inst::Scalar { .. } => inner(&[]),
                Inst::Load(id) => inner(&self.kernel.access(*id).strides),
                Inst::Iota { strides, .. } => inner(strides),
                Inst::Wrap { index, .. } => of(index),
                Inst::Gather { access, index, .. } => {
                    of(index).min(inner(&self.kernel.access(*access).strides))
                }
                Inst::Op { args, .. } => args.iter().map(of).min().unwrap_or(1),
                Inst::Random { .. } | Inst::Core { .. } => 1,
            });
        }
        found[val.0 as usize]
    }

    fn gather(&mut self, access: &Access, at: Indexed, index: Reg) -> Reg {
        self.reads.push(access.buffer.0);
        self.cost += if at.repeats > 1 { 500 } else { 1500 };
        let out = self.reg(access.dtype, None, false);
        let (buffer, at, size) = (access.buffer.0, Box::new(at), access.dtype.size() as u8);
        self.steps.push(Step::Gather { buffer, at, index, size, out });
        self.loaded(out, access.dtype)
    }

    fn random(&mut self, code: OpCode, argument: usize, walk: Walk, dtype: DType) -> Reg {
        let (kind, isa) = ((code, compute(dtype)), self.options.isa);
        let draw: RandomFn = match kind {
            (OpCode::RandomUniform, DType::F32) => philox::select::<philox::UniformF32>(isa),
            (OpCode::RandomUniform, DType::F64) => philox::select::<philox::UniformF64>(isa),
            (OpCode::RandomNormal, DType::F32) => philox::select::<philox::NormalF32>(isa),
            (OpCode::RandomNormal, DType::F64) => philox::select::<philox::NormalF64>(isa),
            (OpCode::RandomBits, DType::I64) => philox::select::<philox::Bits>(isa),
            _ => panic!("no {} of {dtype}", code.def().name),
        };
        self.cost += 4000;
        let size = compute(dtype).size();
        let out = self.reg(compute(dtype), None, false);
        let argument = argument as u32;
        self.steps.push(Step::Random { draw, argument, walk, size: size as u8, out });
        match (code, is_half(dtype)) {
            (OpCode::RandomUniform, true) => {
                self.call(ChainOp::RoundDown(dtype), DType::F32, &[out])
            }
            _ => self.rounded(out, dtype),
        }
    }

    /// Like [`Lower::convert`] to i64, for the index of a scatter.
    pub fn as_i64(&mut self, reg: Reg, from: DType) -> Reg {
        self.convert(reg, from, DType::I64)
    }

    /// The element number of an access at each point, as i64.
    pub fn access_positions(&mut self, access: &Access) -> Reg {
        self.positions(walk(self.order, access.offset, &access.strides))
    }

    /// Adds the writes of a kernel's stores and finishes. Registers in `keep` are valid after the
    /// steps.
    pub fn finish(self, stores: &[Store], keep: &[Reg]) -> Code {
        self.finish_folding(stores, keep, None)
    }

    /// As [`Self::finish`], for rows over which a single register is folded: if a chain can compute
    /// the fold, the code has the register of the results; otherwise the register itself is valid
    /// after the steps.
    pub fn finish_fold(mut self, stores: &[Store], value: Reg, op: ReduceOp, row: usize) -> Code {
        let dtype = self.regs[value as usize].dtype;
        let fold = ChainFold::of(op, dtype).filter(|_| self.options.compiler.is_some());
        let fold =
            fold.map(|fold| FoldOf { fold, value, total: self.reg(dtype, None, false), row });
        self.finish_folding(stores, &[value], fold)
    }

    fn finish_folding(mut self, stores: &[Store], keep: &[Reg], fold: Option<FoldOf>) -> Code {
        let mut writes = vec![];
        for store in stores {
            let access = &store.access;
            let walk = walk(self.order, access.offset, &access.strides);
            let reg = self.stored(store);
            self.cost += 10 * access.dtype.size();
            let size = access.dtype.size() as u8;
            writes.push(Write { reg, buffer: access.buffer.0, walk, size, forward: false });
        }
        self.drop_unread(&writes, keep);
        // For a single point, everything is invariant; then only loads are hoisted.
        let one =
            self.options.often && self.options.compiler.is_some() && self.kernel.points() == 1;
        let of = |step: &Step| {
            let invariant = self.regs[step.out() as usize].invariant;
            invariant && (!one || matches!(step, Step::Splat { .. }))
        };
        let (setup, steps): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.steps).into_iter().partition(of);
        let (steps, total) = match self.options.compiler {
            Some(compiler) => {
                let (name, regs) = (&self.kernel.name, &self.regs);
                let mut fuse = Fuse::new(name, regs, &mut self.directs, &mut writes, keep, fold);
                let points = self.kernel.points();
                let streamed = tuning().streamed_bytes;
                let large = |s: &Store| points.saturating_mul(s.access.dtype.size()) >= streamed;
                fuse.streamed = self.options.streams && stores.iter().all(large);
                fuse.run(compiler, steps)
            }
            None => (steps, None),
        };
        let keep = if total.is_some() { &[] } else { keep };
        for step in setup.iter().chain(&steps) {
            self.cost += match step {
                Step::Call { op, .. } => op.cost_ps(),
                Step::Fused(fused) => fused.function.cost_ps(),
                _ => 0,
            };
        }
        self.forward(&mut writes, &steps, keep);
        let (consts, narrow) = self.constants(&setup, &steps, &writes, keep);
        let kept = total.as_ref().map_or(keep, std::slice::from_ref);
        let by_itself = |s: &Step| matches!(s, Step::Fused(_) | Step::Read { .. });
        let tile = narrow && keep.is_empty() && steps.iter().all(by_itself);
        let block = if tile { self.tile } else { BLOCK };
        let slot_bytes = self.place(&setup, &steps, &writes, kept, block);
        let place = |p: Option<RegisterPlace>| p.unwrap_or(RegisterPlace::Slot(0));
        let in_place = |stream: &Stream| match stream {
            Stream::Register { reg, size } => {
                *size == 0 || self.place_of(*reg) == Some(RegisterPlace::Outside)
            }
            Stream::Memory { .. } | Stream::Total { .. } => true,
        };
        let whole = |s: &Step| matches!(s, Step::Fused(f) if f.streams.iter().all(in_place));
        let whole = narrow && keep.is_empty() && writes.is_empty() && steps.iter().all(whole);
        Code {
            places: self.places.into_iter().map(place).collect(),
            consts,
            setup,
            steps,
            directs: self.directs,
            writes,
            reads: self.reads,
            core: self.core,
            total,
            block: if whole { usize::MAX } else { block },
            narrow,
            slot_bytes,
            cost_ps: self.cost,
        }
    }

    /// Marks the writes whose register can be computed directly into the destination: dense ones of
    /// a value that a loop computes. (The frame does not use this if the destination is also read.)
    fn forward(&self, writes: &mut [Write], steps: &[Step], keep: &[Reg]) {
        for i in 0..writes.len() {
            let reg = writes[i].reg;
            let computed = |s: &Step| !matches!(s, Step::Splat { .. }) && s.out() == reg;
            let taken = writes[..i].iter().any(|w| w.forward && w.reg == reg);
            let free = !taken && !keep.contains(&reg) && writes[i].walk.is_dense();
            writes[i].forward = free && steps.iter().any(computed);
        }
        // Stores of loads that are read in place come before other stores overwrite the loads'
        // memory.
        writes.sort_by_key(|w| !self.directs.iter().any(|d| d.reg == w.reg));
    }

    /// Gives constants memory: one element each, if nothing reads a block of invariant values;
    /// returns whether that is the case.
    fn constants(
        &mut self,
        setup: &[Step],
        steps: &[Step],
        writes: &[Write],
        keep: &[Reg],
    ) -> (Vec<u64>, bool) {
        let loops = steps.iter().filter(|s| !matches!(s, Step::Fused(_)));
        let blocks = loops.flat_map(Step::uses).chain(writes.iter().map(|w| w.reg));
        let mut blocks = blocks.chain(keep.iter().copied());
        let narrow = !blocks.any(|r| self.regs[r as usize].invariant);
        let points = if narrow { 1 } else { BLOCK };
        let mut used: Vec<Reg> = setup.iter().chain(steps).flat_map(Step::uses).collect();
        used.extend(writes.iter().map(|w| w.reg).chain(keep.iter().copied()));
        used.sort_unstable();
        used.dedup();
        let mut consts = vec![];
        for reg in used {
            let Register { dtype, constant: Some(bits), .. } = self.regs[reg as usize] else {
                continue;
            };
            let (start, size) = (consts.len(), dtype.size());
            match size {
                // The real part; the imaginary part is 0.
                16 => consts.extend([bits, 0].repeat(points)),
                _ => {
                    // Repeats the element 8, 4, 2 or 1 times in a word, by a product without
                    // carries.
                    let ones = [u64::MAX / 0xff, u64::MAX / 0xffff, u64::MAX / 0xffff_ffff, 1];
                    let word = bits.wrapping_mul(ones[size.trailing_zeros() as usize]);
                    consts.resize(start + (points * size).div_ceil(8), word);
                }
            }
            self.places[reg as usize] = Some(RegisterPlace::Const(start as u32));
        }
        (consts, narrow)
    }

    /// Gives every register without a place a slot of one block; slots of dead registers are
    /// reused.
    fn place(
        &mut self,
        setup: &[Step],
        steps: &[Step],
        writes: &[Write],
        keep: &[Reg],
        block: usize,
    ) -> usize {
        let mut last = vec![None; self.regs.len()];
        for (i, step) in steps.iter().enumerate() {
            step.outs().iter().chain(&step.uses()).for_each(|&r| last[r as usize] = Some(i));
        }
        for r in writes.iter().map(|w| w.reg).chain(keep.iter().copied()) {
            last[r as usize] = None;
        }
        let mut bytes = 0;
        let mut free: [Vec<u32>; 17] = Default::default();
        let mut fresh = |size: usize| {
            let at = bytes as u32;
            bytes += block * size;
            at
        };
        for out in setup.iter().map(Step::out) {
            let size = self.regs[out as usize].dtype.size();
            self.places[out as usize] = Some(RegisterPlace::Slot(fresh(size)));
        }
        for (i, step) in steps.iter().enumerate() {
            let (outs, mut done) = (step.outs(), step.uses());
            // Slots of results are taken before the operands' slots are freed, so they never
            // overlap.
            for &out in &outs {
                let size = self.regs[out as usize].dtype.size();
                let slot = free[size].pop().unwrap_or_else(|| fresh(size));
                self.places[out as usize] = Some(RegisterPlace::Slot(slot));
            }
            done.extend(outs);
            done.sort_unstable();
            done.dedup();
            for r in done.into_iter().filter(|&r| last[r as usize] == Some(i)) {
                let Register { dtype, invariant, .. } = self.regs[r as usize];
                if let (false, Some(RegisterPlace::Slot(at))) = (invariant, self.place_of(r)) {
                    free[dtype.size()].push(at);
                }
            }
        }
        bytes
    }

    fn place_of(&self, reg: Reg) -> Option<RegisterPlace> {
        self.places.get(reg as usize).copied().flatten()
    }
}
