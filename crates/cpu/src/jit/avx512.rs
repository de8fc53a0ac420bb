//! Loops for x86-64 with AVX-512 F, DQ, BW and VL, and BMI2: of 16 lanes, or of 8 if any value has
//! 64 bits; words then take half of a register.
//!
//! The function walks whole vectors, then does the rest under a mask. It touches no memory beyond
//! the elements it is given, calls nothing, and leaves the control registers as they are.

use super::allocate::{Allocated, Place, Reg, Registers, Step};
use super::asm::{
    Assembler, Bits, Condition, Gpr, Label, Map, Masking, Mem, Prefix, Source, VectorOp,
};
use super::ir::{Binary, Compare, Element, Fold, Inst, Lane, Logic, Number, Program, Unary};
use girih_kernel::exec::ChainFold;
use std::ops::Range;

/// Registers for values. Of masks, 0 means none and 1 is the loop's.
const REGISTERS: Registers = Registers { vectors: 31, masks: 2..8, invariants: 12 };
/// The encoder's own vector register.
const SCRATCH: u8 = 31;
/// The mask of the last, partial iteration.
const TAIL: u8 = 1;

const INDEX: Gpr = Gpr(0);
const COUNT: Gpr = Gpr(6);
const TABLE: Gpr = Gpr(7);
const RSP: Gpr = Gpr(4);
const RBP: Gpr = Gpr(5);
/// Registers for pointers; those from `rbx` on are the caller's.
const POINTERS: [Gpr; 11] =
    [Gpr(2), Gpr(1), Gpr(8), Gpr(9), Gpr(10), Gpr(11), Gpr(3), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
const CALLER_SAVED: usize = 6;

/// An instruction on 512 bits, with W 0.
const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}

const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const LOAD_WIDE: VectorOp = VectorOp { wide: true, ..op(Map::M0F, Prefix::P66, 0x10) };
const STORE_WIDE: VectorOp = VectorOp { wide: true, ..op(Map::M0F, Prefix::P66, 0x11) };
const STREAM: VectorOp = op(Map::M0F, Prefix::None, 0x2b);
const STREAM_WIDE: VectorOp = VectorOp { wide: true, ..op(Map::M0F, Prefix::P66, 0x2b) };
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
const TO_HALF: VectorOp = op(Map::M0F3A, Prefix::P66, 0x1d);
const NARROW_16: VectorOp = op(Map::M0F38, Prefix::PF3, 0x33);
const NARROW_8: VectorOp = op(Map::M0F38, Prefix::PF3, 0x31);
const SPLAT_64: VectorOp = VectorOp { wide: true, ..op(Map::M0F38, Prefix::P66, 0x19) };
const SPLAT_32: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
const SPLAT_16: VectorOp = op(Map::M0F38, Prefix::P66, 0x79);
const FROM_GENERAL: VectorOp = op(Map::M0F38, Prefix::P66, 0x7c);
const SPLAT_8: VectorOp = op(Map::M0F38, Prefix::P66, 0x78);
const TEST: VectorOp = op(Map::M0F38, Prefix::P66, 0x27);
const MASK_TO_WORDS: VectorOp = op(Map::M0F38, Prefix::PF3, 0x38);
const BLEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x65);

/// From bytes or halves of words to words.
const fn widen(bytes: usize, signed: bool) -> VectorOp {
    op(Map::M0F38, Prefix::P66, (if signed { 0x20 } else { 0x30 }) | (bytes as u8 * 2 - 1))
}

/// The registers for a program's values: accumulators have the last ones.
pub(super) fn registers(program: &Program) -> Registers {
    REGISTERS.without(accumulators(program))
}

/// Elements per iteration, or part of it.
fn lanes(program: &Program) -> i32 {
    if program.is_wide() { 8 } else { 16 }
}

/// The registers of a program's fold. An iteration has a part for each.
fn accumulators(program: &Program) -> u8 {
    program.fold.map_or(0, |_| (ChainFold::LANES as i32 / lanes(program)) as u8)
}

/// Writes the loop as a function `(table of pointers, number of elements)`; none if there are more
/// pointers than registers.
///
/// `streams` writes whole vectors past the caches: outputs have to start with a line.
pub(super) fn emit(program: &Program, allocated: &Allocated, streams: bool) -> Option<Vec<u8>> {
    let mut bases = vec![None; program.pointers as usize];
    let mut free = POINTERS.iter();
    for inst in &program.insts {
        if let Inst::Load(pointer, _) | Inst::Store(pointer, ..) = *inst {
            let base = &mut bases[pointer as usize];
            if base.is_none() {
                *base = Some(*free.next()?);
            }
        }
    }
    if let Some(fold) = program.fold {
        bases[fold.pointer as usize] = Some(*free.next()?);
    }
    let saved: Vec<Gpr> = POINTERS[CALLER_SAVED..]
        .iter()
        .copied()
        .filter(|reg| bases.contains(&Some(*reg)))
        .collect();
    let lanes = lanes(program);
    let words = if lanes == 8 { Bits::B256 } else { Bits::B512 };
    let constants = &allocated.constants;
    let asm = Assembler::default();
    let mut emitter = Emitter {
        asm,
        program,
        bases,
        constants,
        words,
        lanes,
        streams,
        mask: 0,
        accumulator: 0,
        calls: vec![],
    };
    emitter.function(allocated, &saved);
    let bytes = |&(lane, bits): &(Lane, u64)| match lane {
        Lane::Wide => bits.to_le_bytes().to_vec(),
        _ => (bits as u32).to_le_bytes().to_vec(),
    };
    let constants: Vec<Vec<u8>> = constants.iter().map(bytes).collect();
    Some(emitter.asm.finish(&constants))
}

struct Emitter<'a> {
    asm: Assembler,
    program: &'a Program,
    /// By pointer: the register that holds it.
    bases: Vec<Option<Gpr>>,
    constants: &'a [(Lane, u64)],
    /// How much of a register words take.
    words: Bits,
    /// Elements per iteration.
    lanes: i32,
    /// Whole vectors are stored past the caches.
    streams: bool,
    /// The mask of memory accesses: none, or the tail's.
    mask: u8,
    /// The accumulator of the part of an iteration that is being written.
    accumulator: u8,
    /// Calls to be written after the function.
    calls: Vec<Call>,
}

/// A call out of the loop, for some lanes of a value.
struct Call {
    at: Label,
    back: Label,
    address: usize,
    mask: u8,
    out: u8,
    of: u8,
}

impl Emitter<'_> {
    fn function(&mut self, allocated: &Allocated, saved: &[Gpr]) {
        saved.iter().for_each(|&reg| self.asm.push(reg));
        let frame = allocated.slots > 0;
        if frame {
            self.asm.push(RBP);
            self.asm.enter_frame(64 * allocated.slots as i32);
        }
        for (i, base) in self.bases.iter().enumerate() {
            if let Some(base) = base {
                self.asm.load(*base, TABLE, 8 * i as i32);
            }
        }
        self.steps(&allocated.setup);
        self.start_fold();
        self.walk(&allocated.body);
        self.finish_fold();
        if self.streams {
            self.asm.store_fence();
        }
        if frame {
            self.asm.leave_frame();
            self.asm.pop(RBP);
        }
        saved.iter().rev().for_each(|&reg| self.asm.pop(reg));
        self.asm.leave();
        for call in std::mem::take(&mut self.calls) {
            self.call(call);
        }
    }

    /// The loop: iterations over whole vectors, then the rest under a mask.
    fn walk(&mut self, body: &[Step]) {
        let accumulators = self.accumulators();
        let parts = accumulators.len().max(1) as i32;
        let (tail, main, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.zero(INDEX);
        self.asm.sub(COUNT, parts * self.lanes);
        self.asm.jump_if(Condition::Below, tail);
        self.asm.align(32);
        self.asm.bind(main);
        self.mask = 0;
        for part in 0..parts {
            self.accumulator = accumulators.start + part as u8;
            self.steps(body);
            self.asm.add(INDEX, self.lanes);
        }
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::BelowOrEqual, main);
        self.asm.bind(tail);
        self.asm.add(COUNT, parts * self.lanes);
        self.asm.sub_reg(COUNT, INDEX);
        self.asm.jump_if(Condition::Equal, done);
        self.mask = TAIL;
        for part in 0..parts {
            self.accumulator = accumulators.start + part as u8;
            self.asm.low_bits(TAIL, COUNT, TABLE);
            self.steps(body);
            if part + 1 < parts {
                self.asm.add(INDEX, self.lanes);
                self.asm.sub(COUNT, self.lanes);
                self.asm.jump_if(Condition::BelowOrEqual, done);
            }
        }
        self.asm.bind(done);
    }

    /// The registers of the fold.
    fn accumulators(&self) -> Range<u8> {
        let end = REGISTERS.vectors;
        end - accumulators(self.program)..end
    }

    /// Gives accumulators their first value.
    fn start_fold(&mut self) {
        let Some(Fold { lane, identity, .. }) = self.program.fold else { return };
        self.asm.set(INDEX, identity);
        for reg in self.accumulators() {
            self.plain(self.on(lane, FROM_GENERAL), reg, 0, Source::Reg(INDEX.0));
        }
    }

    /// Stores accumulators.
    fn finish_fold(&mut self) {
        let Some(Fold { pointer, lane, .. }) = self.program.fold else { return };
        let bytes = if lane == Lane::Wide { 8 } else { 4 } * self.lanes;
        let op = if lane == Lane::Wide { STORE_WIDE } else { self.on_words(STORE) };
        let base = self.bases[pointer as usize].expect("a fold has its base");
        for (i, reg) in self.accumulators().enumerate() {
            let to = Mem::Offset { base, displacement: i as i32 * bytes };
            self.plain(op, reg, 0, Source::Mem(to));
        }
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Inst { at, out, operands } => {
                    let inst = self.program.insts[at as usize];
                    self.inst(inst, out, operands);
                }
                Step::Spill { reg: Reg::Vector(reg), slot } => {
                    self.plain(STORE, reg, 0, slot_of(slot));
                }
                Step::Reload { reg: Reg::Vector(reg), slot } => {
                    self.plain(LOAD, reg, 0, slot_of(slot));
                }
                Step::Spill { reg: Reg::Mask(mask), slot } => {
                    self.asm.mask_store(mask, RSP, 64 * slot as i32);
                }
                Step::Reload { reg: Reg::Mask(mask), slot } => {
                    self.asm.mask_load(mask, RSP, 64 * slot as i32);
                }
                Step::Constant { reg, number } => {
                    let splat = match self.constants[number as usize].0 {
                        Lane::Wide => SPLAT_64,
                        _ => SPLAT_32,
                    };
                    self.plain(splat, reg, 0, Source::Mem(Mem::Single(number)));
                }
            }
        }
    }

    /// An instruction on words: on as much of the registers as they take.
    fn on_words(&self, op: VectorOp) -> VectorOp {
        VectorOp { bits: self.words, ..op }
    }

    /// An instruction on values of a lane, given as the one on words.
    fn on(&self, lane: Lane, op: VectorOp) -> VectorOp {
        if lane == Lane::Wide { VectorOp { wide: true, ..op } } else { self.on_words(op) }
    }

    /// As [`Self::on`] an instruction on floats, whose implied prefix says their bits too.
    fn on_floats(&self, lane: Lane, op: VectorOp) -> VectorOp {
        let prefix = if lane == Lane::Wide { Prefix::P66 } else { op.prefix };
        self.on(lane, VectorOp { prefix, ..op })
    }

    /// An instruction without mask and immediate.
    fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.asm.evex(op, dst, a, b, Masking::default(), None);
    }

    fn inst(&mut self, inst: Inst, out: u8, operands: [Place; 3]) {
        let accumulator = self.accumulator;
        let reg = |k: usize| match operands[k] {
            Place::Reg(reg) => reg,
            Place::Accumulator => accumulator,
            place => unreachable!("operand {k} of {inst:?} is in {place:?}"),
        };
        let source = |k: usize| match operands[k] {
            Place::Reg(reg) => Source::Reg(reg),
            Place::Accumulator => Source::Reg(accumulator),
            Place::Slot(slot) => slot_of(slot),
            Place::Constant(number) => Source::Mem(Mem::Constant(number)),
        };
        match inst {
            Inst::Const(..) | Inst::Accumulator(_) => unreachable!("these are operands"),
            Inst::Accumulate(_) => {
                let masking = Masking { mask: self.mask, zero: false };
                let wide = self.program.fold.is_some_and(|f| f.lane == Lane::Wide);
                let copy = if wide { LOAD_WIDE } else { self.on_words(LOAD) };
                self.asm.evex(copy, accumulator, 0, Source::Reg(reg(0)), masking, None);
            }
            Inst::Load(pointer, element) => self.load(pointer, element, out),
            Inst::Splat(pointer, element) => self.splat(pointer, element, out),
            Inst::Binary(op, lane, ..) => {
                let (evex, imm) = self.binary(op, lane);
                self.asm.evex(evex, out, reg(0), source(1), Masking::default(), imm);
            }
            Inst::Unary(op, lane, _) => self.unary(op, lane, out, reg(0)),
            Inst::Fma(lane, ..) => self.fma(lane, out, [reg(0), reg(1)], source(2)),
            Inst::Convert(from, to, _) => self.convert(from, to, out, reg(0)),
            Inst::Compare(op, lane, ..) => {
                let (evex, predicate) = self.compare(op, lane);
                let b = source(1);
                self.asm.evex(evex, out, reg(0), b, Masking::default(), Some(predicate));
            }
            Inst::Logic(op, ..) => {
                let opcode = match op {
                    Logic::And => 0x41,
                    Logic::Or => 0x45,
                    Logic::Xor => 0x47,
                };
                self.asm.mask_op(opcode, out, reg(0), reg(1));
            }
            Inst::Not(_) => self.asm.mask_not(out, reg(0)),
            Inst::Select { lane, .. } => {
                let masking = Masking { mask: reg(0), zero: false };
                self.asm.evex(self.on(lane, BLEND), out, reg(2), source(1), masking, None);
            }
            Inst::Repair { function, lane, .. } => {
                self.plain(LOAD, out, 0, Source::Reg(reg(1)));
                let (at, back) = (self.asm.label(), self.asm.label());
                self.asm.mask_test(reg(0));
                self.asm.jump_if(Condition::NotEqual, at);
                self.asm.bind(back);
                let (address, mask, of) = (function.address(lane), reg(0), reg(2));
                self.calls.push(Call { at, back, address, mask, out, of });
            }
            Inst::Store(pointer, element, _) => self.store(pointer, element, reg(0)),
        }
    }

    /// `out = a * b + c`; the instruction writes over one of its operands.
    fn fma(&mut self, lane: Lane, out: u8, [a, b]: [u8; 2], c: Source) {
        const TIMES: VectorOp = op(Map::M0F38, Prefix::P66, 0xa8);
        const PLUS: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
        if matches!(c, Source::Reg(c) if c == out) {
            return self.plain(self.on(lane, PLUS), out, a, Source::Reg(b));
        }
        let other = if out == b { a } else { b };
        if out != a && out != b {
            self.plain(LOAD, out, 0, Source::Reg(a));
        }
        self.plain(self.on(lane, TIMES), out, other, c);
    }

    /// Saves all that a function may change, calls it on a register in memory, and takes all back.
    fn call(&mut self, call: Call) {
        const RDX: Gpr = Gpr(2);
        const RSI: Gpr = Gpr(6);
        const RDI: Gpr = Gpr(7);
        const CHANGED: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
        const MASKS: i32 = 32 * 64;
        const OTHERS: i32 = MASKS + 64;
        let vector = |reg: u8| Mem::Offset { base: RSP, displacement: 64 * reg as i32 };
        let others = || CHANGED.iter().zip(0..).map(|(&reg, i)| (Gpr(reg), OTHERS + 8 * i));
        self.asm.bind(call.at);
        self.asm.push(RBP);
        self.asm.enter_frame(OTHERS + 128);
        others().for_each(|(reg, at)| self.asm.store(RSP, at, reg));
        (1..8).for_each(|k| self.asm.mask_store(k, RSP, MASKS + 8 * k as i32));
        (0..32).for_each(|reg| self.plain(STORE, reg, 0, Source::Mem(vector(reg))));
        self.asm.lea(RDI, RSP, 64 * call.out as i32);
        self.asm.lea(RSI, RSP, 64 * call.of as i32);
        self.asm.mask_to(RDX, call.mask);
        self.asm.clear_upper();
        self.asm.call(call.address);
        (0..32).for_each(|reg| self.plain(LOAD, reg, 0, Source::Mem(vector(reg))));
        (1..8).for_each(|k| self.asm.mask_load(k, RSP, MASKS + 8 * k as i32));
        others().for_each(|(reg, at)| self.asm.load(reg, RSP, at));
        self.asm.leave_frame();
        self.asm.pop(RBP);
        self.asm.jump(call.back);
    }

    /// The elements at the loop's index.
    fn element(&self, pointer: u16, element: Element) -> Source {
        let base = self.bases[pointer as usize].expect("loads and stores have their base");
        Source::Mem(Mem::Indexed { base, index: INDEX, scale: element.size() as u8 })
    }

    fn load(&mut self, pointer: u16, element: Element, out: u8) {
        let masking = Masking { mask: self.mask, zero: self.mask != 0 };
        let (op, to) = match element {
            Element::Wide => (LOAD_WIDE, out),
            Element::Word => (self.on_words(LOAD), out),
            Element::Half => (self.on_words(FROM_HALF), out),
            Element::Brain => (self.on_words(widen(2, false)), out),
            Element::Short { signed } => (self.on_words(widen(2, signed)), out),
            Element::Byte { signed } => (self.on_words(widen(1, signed)), out),
            Element::Bool => (self.on_words(widen(1, false)), SCRATCH),
        };
        let from = self.element(pointer, element);
        self.asm.evex(op, to, 0, from, masking, None);
        match element {
            Element::Brain => self.shift(Shift::Left, Lane::Word, out, out, 16),
            Element::Bool => self.test_bytes(out),
            _ => {}
        }
    }

    /// The mask of words in the scratch register that are not 0.
    fn test_bytes(&mut self, out: u8) {
        self.plain(self.on_words(TEST), out, SCRATCH, Source::Reg(SCRATCH));
    }

    fn splat(&mut self, pointer: u16, element: Element, out: u8) {
        // The table's register is free for a while: it is loaded again from nowhere, so pointers of
        // splats go through the index's, which the loop clears.
        self.asm.load(INDEX, TABLE, 8 * pointer as i32);
        let from = Source::Mem(Mem::Offset { base: INDEX, displacement: 0 });
        match element {
            Element::Wide => self.plain(SPLAT_64, out, 0, from),
            Element::Word => self.plain(SPLAT_32, out, 0, from),
            Element::Half => {
                self.plain(SPLAT_16, out, 0, from);
                self.plain(FROM_HALF, out, 0, Source::Reg(out));
            }
            Element::Brain => {
                self.plain(SPLAT_16, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, 16);
            }
            Element::Short { signed } | Element::Byte { signed } => {
                let (splat, unused) =
                    if element.size() == 2 { (SPLAT_16, 16) } else { (SPLAT_8, 24) };
                self.plain(splat, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, unused);
                let back = if signed { Shift::RightSigned } else { Shift::Right };
                self.shift(back, Lane::Word, out, out, unused);
            }
            Element::Bool => {
                self.plain(SPLAT_8, SCRATCH, 0, from);
                self.test_bytes(out);
            }
        }
    }

    fn store(&mut self, pointer: u16, element: Element, value: u8) {
        let masking = Masking { mask: self.mask, zero: false };
        let to = self.element(pointer, element);
        let past = self.streams && self.mask == 0;
        let (op, from, imm) = match element {
            Element::Wide if past => (STREAM_WIDE, value, None),
            Element::Word if past => (self.on_words(STREAM), value, None),
            Element::Wide => (STORE_WIDE, value, None),
            Element::Word => (self.on_words(STORE), value, None),
            Element::Half => (self.on_words(TO_HALF), value, Some(0)),
            Element::Short { .. } => (self.on_words(NARROW_16), value, None),
            Element::Byte { .. } => (self.on_words(NARROW_8), value, None),
            Element::Brain => {
                self.shift(Shift::Right, Lane::Word, SCRATCH, value, 16);
                (self.on_words(NARROW_16), SCRATCH, None)
            }
            Element::Bool => {
                self.plain(MASK_TO_WORDS, SCRATCH, 0, Source::Reg(value));
                self.shift(Shift::Right, Lane::Word, SCRATCH, SCRATCH, 31);
                (self.on_words(NARROW_8), SCRATCH, None)
            }
        };
        self.asm.evex(op, from, 0, to, masking, imm);
    }

    /// A shift by a constant.
    fn shift(&mut self, kind: Shift, lane: Lane, out: u8, a: u8, by: u8) {
        let opcode = match (lane, kind) {
            (Lane::Wide, Shift::Left | Shift::Right) => 0x73,
            _ => 0x72,
        };
        let op = self.on(lane, op(Map::M0F, Prefix::P66, opcode));
        self.asm.evex(op, kind as u8, out, Source::Reg(a), Masking::default(), Some(by));
    }

    fn unary(&mut self, op: Unary, lane: Lane, out: u8, a: u8) {
        let from = Source::Reg(a);
        match op {
            Unary::Sqrt => {
                let sqrt = self.on_floats(lane, self::op(Map::M0F, Prefix::None, 0x51));
                self.plain(sqrt, out, 0, from);
            }
            Unary::Round(to) => {
                // Bit 3: no exception for inexact results.
                let opcode = if lane == Lane::Wide { 0x09 } else { 0x08 };
                let round = self.on(lane, self::op(Map::M0F3A, Prefix::P66, opcode));
                self.asm.evex(round, out, 0, from, Masking::default(), Some(8 | to as u8));
            }
            Unary::Left(by) => self.shift(Shift::Left, lane, out, a, by),
            Unary::Right(by) => self.shift(Shift::Right, lane, out, a, by),
            Unary::RightSigned(by) => self.shift(Shift::RightSigned, lane, out, a, by),
            Unary::RoundHalf => {
                let to = Source::Reg(SCRATCH);
                self.asm.evex(self.on_words(TO_HALF), a, 0, to, Masking::default(), Some(0));
                self.plain(self.on_words(FROM_HALF), out, 0, to);
            }
        }
    }

    fn convert(&mut self, from: Number, to: Number, out: u8, a: u8) {
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
        // The wider of both says how much of the registers is used, the source W.
        let wide = from.lane() == Lane::Wide;
        let bits = if wide || to.lane() == Lane::Wide { Bits::B512 } else { self.words };
        let op = VectorOp { map: Map::M0F, prefix, opcode, wide, bits };
        self.plain(op, out, 0, Source::Reg(a));
    }

    /// Integers to more or fewer bits.
    fn resize(&mut self, from: Number, to: Number, out: u8, a: u8) {
        match (from.lane(), to.lane()) {
            (Lane::Word, Lane::Wide) => {
                let opcode = if from == Number::I32 { 0x25 } else { 0x35 };
                self.plain(op(Map::M0F38, Prefix::P66, opcode), out, 0, Source::Reg(a));
            }
            (Lane::Wide, Lane::Word) => {
                self.plain(op(Map::M0F38, Prefix::PF3, 0x35), a, 0, Source::Reg(out));
            }
            _ => unreachable!("{from:?} and {to:?} have the same bits"),
        }
    }

    /// The instruction, and its immediate if it has one.
    fn binary(&self, binary: Binary, lane: Lane) -> (VectorOp, Option<u8>) {
        let wide = lane == Lane::Wide;
        let float = |opcode| self.on_floats(lane, op(Map::M0F, Prefix::None, opcode));
        let integer = |word: u8, double: u8| {
            self.on(lane, op(Map::M0F, Prefix::P66, if wide { double } else { word }))
        };
        let other = |opcode| self.on(lane, op(Map::M0F38, Prefix::P66, opcode));
        // The sign of the result is that of what is compared: bit 2.
        let range = |which: u8| (self.on(lane, op(Map::M0F3A, Prefix::P66, 0x50)), Some(4 | which));
        let plain = match binary {
            Binary::LeastF => return range(0),
            Binary::GreatestF => return range(1),
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

    /// The instruction and its predicate. Those of floats signal nothing for quiet NaNs.
    fn compare(&self, compare: Compare, lane: Lane) -> (VectorOp, u8) {
        let float = self.on_floats(lane, op(Map::M0F, Prefix::None, 0xc2));
        let signed = self.on(lane, op(Map::M0F3A, Prefix::P66, 0x1f));
        let unsigned = self.on(lane, op(Map::M0F3A, Prefix::P66, 0x1e));
        match compare {
            Compare::EqF => (float, 0x00),
            Compare::LtF => (float, 0x11),
            Compare::LeF => (float, 0x12),
            Compare::Unordered => (float, 0x03),
            Compare::EqI => (signed, 0),
            Compare::LtI => (signed, 1),
            Compare::LeI => (signed, 2),
            Compare::GtI => (signed, 6),
            Compare::LtU => (unsigned, 1),
            Compare::LeU => (unsigned, 2),
        }
    }
}

/// Shifts, with the extensions of their opcodes.
#[derive(Clone, Copy)]
enum Shift {
    Right = 2,
    RightSigned = 4,
    Left = 6,
}

fn slot_of(slot: u16) -> Source {
    Source::Mem(Mem::Offset { base: RSP, displacement: 64 * slot as i32 })
}
