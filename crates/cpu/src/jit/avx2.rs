//! Loops for x86-64 with AVX2, F16C and BMI: of 8 lanes, or of 4 if any value has 64 bits; words
//! then take half of a register.
//!
//! Masks are vectors of all ones or zeros, as wide as the widest values. The last, partial iteration
//! runs on copies in the stack frame, so nothing beyond the elements given is touched. The code
//! calls nothing but for single lanes, and leaves the control registers as they are.

use super::allocate::{Allocated, Place, Reg, Registers, Step};
use super::asm::{Assembler, Bits, Condition, Gpr, Label, Map, Mem, Prefix, Source, VectorOp};
use super::ir::{Binary, Compare, Element, Inst, Lane, Logic, Number, Program, Unary};

/// Registers for values.
pub(super) const REGISTERS: Registers = Registers { vectors: 15, masks: 0..0, invariants: 5 };
/// The encoder's own vector register.
const SCRATCH: u8 = 15;

const INDEX: Gpr = Gpr(0);
/// Of elements left; in the last iteration, of all.
const COUNT: Gpr = Gpr(6);
const TABLE: Gpr = Gpr(7);
const RSP: Gpr = Gpr(4);
const RBP: Gpr = Gpr(5);
/// For a moment each.
const COUNTER: Gpr = Gpr(1);
const DATA: Gpr = Gpr(10);
const BUFFER: Gpr = Gpr(11);
/// Registers for pointers; those from `rbx` on are the caller's.
const POINTERS: [Gpr; 8] = [Gpr(2), Gpr(8), Gpr(9), Gpr(3), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
const CALLER_SAVED: usize = 3;
/// Bytes of a register.
const VECTOR: i32 = 32;

/// An instruction on 256 bits.
const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B256 }
}

/// As `op` on 128 bits.
const fn short(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B128 }
}

const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const STORE_64: VectorOp = short(Map::M0F, Prefix::P66, 0xd6);
const STORE_32: VectorOp = short(Map::M0F, Prefix::P66, 0x7e);
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
const TO_HALF: VectorOp = op(Map::M0F3A, Prefix::P66, 0x1d);
const SPLAT_64: VectorOp = op(Map::M0F38, Prefix::P66, 0x19);
const SPLAT_32: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
const SPLAT_16: VectorOp = op(Map::M0F38, Prefix::P66, 0x79);
const SPLAT_8: VectorOp = op(Map::M0F38, Prefix::P66, 0x78);
const UPPER_HALF: VectorOp = op(Map::M0F3A, Prefix::P66, 0x39);
const SHUFFLE: VectorOp = short(Map::M0F, Prefix::None, 0xc6);
const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
const EQUAL: VectorOp = op(Map::M0F, Prefix::P66, 0x76);
const GREATER_BYTES: VectorOp = op(Map::M0F, Prefix::P66, 0x64);
const SIGN_EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x25);
const ZERO_EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x35);
const PACK_SIGNED_32: VectorOp = short(Map::M0F, Prefix::P66, 0x6b);
const PACK_UNSIGNED_32: VectorOp = short(Map::M0F38, Prefix::P66, 0x2b);
const PACK_SIGNED_16: VectorOp = short(Map::M0F, Prefix::P66, 0x63);
const PACK_UNSIGNED_16: VectorOp = short(Map::M0F, Prefix::P66, 0x67);
const ABS_8: VectorOp = short(Map::M0F38, Prefix::P66, 0x1c);

/// From bytes or halves of words to words.
const fn widen(bytes: usize, signed: bool) -> VectorOp {
    op(Map::M0F38, Prefix::P66, (if signed { 0x20 } else { 0x30 }) | (bytes as u8 * 2 - 1))
}

/// Writes the loop as a function `(table of pointers, number of elements)`; none if there are more
/// pointers than registers.
pub(super) fn emit(program: &Program, allocated: &Allocated) -> Option<Vec<u8>> {
    let mut bases = vec![None; program.pointers as usize];
    let mut streams = vec![];
    let mut free = POINTERS.iter();
    for inst in &program.insts {
        let (pointer, element, stored) = match *inst {
            Inst::Load(pointer, element) => (pointer, element, false),
            Inst::Store(pointer, element, _) => (pointer, element, true),
            _ => continue,
        };
        let base = &mut bases[pointer as usize];
        if base.is_none() {
            let reg = *free.next()?;
            *base = Some(reg);
            streams.push(Stream { pointer, reg, element, stored });
        }
    }
    let wide = program.is_wide();
    let (words, lanes) = if wide { (Bits::B128, 4) } else { (Bits::B256, 8) };
    let constants = &allocated.constants;
    let (asm, calls) = (Assembler::default(), vec![]);
    let buffers = VECTOR * allocated.slots as i32;
    let mut emitter = Emitter { asm, program, bases, streams, wide, words, lanes, buffers, calls };
    emitter.function(allocated);
    let bytes = |&(lane, bits): &(Lane, u64)| match lane {
        Lane::Wide => bits.to_le_bytes().repeat(4),
        _ => (bits as u32).to_le_bytes().repeat(8),
    };
    let constants: Vec<Vec<u8>> = constants.iter().map(bytes).collect();
    Some(emitter.asm.finish(&constants))
}

/// Elements that are loaded or stored.
#[derive(Clone, Copy)]
struct Stream {
    pointer: u16,
    reg: Gpr,
    element: Element,
    stored: bool,
}

/// A call out of the loop, for some lanes of a value.
struct Call {
    at: Label,
    back: Label,
    address: usize,
    out: u8,
    of: u8,
}

struct Emitter<'a> {
    asm: Assembler,
    program: &'a Program,
    /// By pointer: the register that holds it.
    bases: Vec<Option<Gpr>>,
    streams: Vec<Stream>,
    /// Any value has 64 bits, and so have masks.
    wide: bool,
    /// How much of a register words take.
    words: Bits,
    /// Elements per iteration.
    lanes: i32,
    /// Where in the frame the copies of the last iteration are.
    buffers: i32,
    /// Calls to be written after the function.
    calls: Vec<Call>,
}

impl Emitter<'_> {
    fn function(&mut self, allocated: &Allocated) {
        let used = |reg: &&Gpr| self.bases.contains(&Some(**reg));
        let saved: Vec<Gpr> = POINTERS[CALLER_SAVED..].iter().filter(used).copied().collect();
        saved.iter().for_each(|&reg| self.asm.push(reg));
        self.asm.push(RBP);
        self.asm.enter_frame(self.buffers + VECTOR * self.streams.len() as i32);
        for i in 0..self.streams.len() {
            let Stream { pointer, reg, .. } = self.streams[i];
            self.asm.load(reg, TABLE, 8 * pointer as i32);
        }
        self.steps(&allocated.setup);
        let (tail, main, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.zero(INDEX);
        self.asm.sub(COUNT, self.lanes);
        self.asm.jump_if(Condition::Below, tail);
        self.asm.align(32);
        self.asm.bind(main);
        self.steps(&allocated.body);
        self.asm.add(INDEX, self.lanes);
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::BelowOrEqual, main);
        self.asm.bind(tail);
        self.asm.add(COUNT, self.lanes);
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::Equal, done);
        self.tail(&allocated.body);
        self.asm.bind(done);
        self.asm.leave_frame();
        self.asm.pop(RBP);
        saved.iter().rev().for_each(|&reg| self.asm.pop(reg));
        self.asm.leave();
        for call in std::mem::take(&mut self.calls) {
            self.call(call);
        }
    }

    /// The last iteration: what it loads is copied to the frame, zeros behind it, and what it
    /// stores from there.
    fn tail(&mut self, body: &[Step]) {
        self.vex(XOR, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
        for i in 0..self.streams.len() {
            let Stream { reg, element, stored, .. } = self.streams[i];
            let at = self.buffers + VECTOR * i as i32;
            let bytes = element.size() as u8;
            let place = Source::Mem(Mem::Offset { base: RSP, displacement: at });
            self.vex(STORE, SCRATCH, 0, place);
            // Where the element of the index 0 would be.
            self.asm.copy(BUFFER, INDEX);
            self.asm.negate(BUFFER);
            self.asm.lea_indexed(BUFFER, RSP, BUFFER, bytes, at);
            if !stored {
                self.copy(reg, BUFFER, bytes);
            }
            self.asm.copy(reg, BUFFER);
        }
        self.steps(body);
        for i in 0..self.streams.len() {
            let Stream { pointer, reg, element, stored } = self.streams[i];
            if stored {
                self.asm.load(BUFFER, TABLE, 8 * pointer as i32);
                self.copy(reg, BUFFER, element.size() as u8);
            }
        }
    }

    /// Copies the elements from the index to the count.
    fn copy(&mut self, from: Gpr, to: Gpr, bytes: u8) {
        let next = self.asm.label();
        self.asm.copy(COUNTER, INDEX);
        self.asm.bind(next);
        self.asm.load_element(DATA, from, COUNTER, bytes);
        self.asm.store_element(DATA, to, COUNTER, bytes);
        self.asm.add(COUNTER, 1);
        self.asm.compare(COUNTER, COUNT);
        self.asm.jump_if(Condition::Below, next);
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Inst { at, out, operands } => {
                    let inst = self.program.insts[at as usize];
                    self.inst(inst, out, operands);
                }
                Step::Spill { reg: Reg::Vector(reg), slot } => {
                    self.vex(STORE, reg, 0, slot_of(slot));
                }
                Step::Reload { reg: Reg::Vector(reg), slot } => {
                    self.vex(LOAD, reg, 0, slot_of(slot));
                }
                Step::Spill { reg: Reg::Mask(_), .. } | Step::Reload { reg: Reg::Mask(_), .. } => {
                    unreachable!("masks are vectors")
                }
                Step::Constant { reg, number } => {
                    self.vex(LOAD, reg, 0, Source::Mem(Mem::Constant(number)));
                }
            }
        }
    }

    /// An instruction without immediate.
    fn vex(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.asm.vex(op, dst, a, b, None);
    }

    /// An instruction on words: on as much of the registers as they take.
    fn on_words(&self, op: VectorOp) -> VectorOp {
        VectorOp { bits: self.words, ..op }
    }

    /// An instruction on values of a lane.
    fn on(&self, lane: Lane, op: VectorOp) -> VectorOp {
        if lane == Lane::Wide { op } else { self.on_words(op) }
    }

    /// As [`Self::on`] an instruction on floats, whose implied prefix says their bits.
    fn on_floats(&self, lane: Lane, op: VectorOp) -> VectorOp {
        let prefix = if lane == Lane::Wide { Prefix::P66 } else { op.prefix };
        self.on(lane, VectorOp { prefix, ..op })
    }

    fn inst(&mut self, inst: Inst, out: u8, operands: [Place; 3]) {
        let reg = |k: usize| match operands[k] {
            Place::Reg(reg) => reg,
            place => unreachable!("operand {k} of {inst:?} is in {place:?}"),
        };
        let source = |k: usize| match operands[k] {
            Place::Reg(reg) => Source::Reg(reg),
            Place::Slot(slot) => slot_of(slot),
            Place::Constant(number) => Source::Mem(Mem::Constant(number)),
            Place::Accumulator => unreachable!("programs that fold are not written for AVX2"),
        };
        match inst {
            Inst::Const(..) => unreachable!("constants are operands"),
            Inst::Load(pointer, element) => self.load(pointer, element, out),
            Inst::Splat(pointer, element) => self.splat(pointer, element, out),
            Inst::Binary(op, lane, ..) => self.vex(self.binary(op, lane), out, reg(0), source(1)),
            Inst::Unary(op, lane, _) => self.unary(op, lane, out, reg(0)),
            Inst::Fma(lane, ..) => self.fma(lane, out, [reg(0), reg(1)], source(2)),
            Inst::Convert(from, to, _) => self.convert(from, to, out, reg(0)),
            Inst::Compare(op, lane, ..) => {
                let (op, predicate) = self.compare(op, lane);
                self.asm.vex(op, out, reg(0), source(1), predicate);
                if self.wide && lane == Lane::Word {
                    self.vex(SIGN_EXTEND, out, 0, Source::Reg(out));
                }
            }
            Inst::Logic(logic, ..) => {
                let opcode = match logic {
                    Logic::And => 0xdb,
                    Logic::Or => 0xeb,
                    Logic::Xor => 0xef,
                };
                self.vex(op(Map::M0F, Prefix::P66, opcode), out, reg(0), Source::Reg(reg(1)));
            }
            Inst::Not(_) => {
                self.vex(EQUAL, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
                self.vex(XOR, out, reg(0), Source::Reg(SCRATCH));
            }
            Inst::Select { lane, .. } => {
                let mut mask = reg(0);
                if self.wide && lane == Lane::Word {
                    self.lower_words(SCRATCH, mask);
                    mask = SCRATCH;
                }
                let opcode = if lane == Lane::Wide { 0x4b } else { 0x4a };
                let blend = self.on(lane, op(Map::M0F3A, Prefix::P66, opcode));
                self.asm.vex(blend, out, reg(2), source(1), Some(mask << 4));
            }
            Inst::Repair { function, lane, .. } => {
                let (at, back) = (self.asm.label(), self.asm.label());
                self.vex(LOAD, out, 0, Source::Reg(reg(1)));
                // movmsk of words or wide ones
                let prefix = if self.wide { Prefix::P66 } else { Prefix::None };
                self.vex(op(Map::M0F, prefix, 0x50), COUNTER.0, 0, Source::Reg(reg(0)));
                self.asm.test(COUNTER);
                self.asm.jump_if(Condition::NotEqual, at);
                self.asm.bind(back);
                let (address, of) = (function.address(lane), reg(2));
                self.calls.push(Call { at, back, address, out, of });
            }
            Inst::Store(pointer, element, _) => self.store(pointer, element, reg(0)),
            Inst::Accumulator(_) | Inst::Accumulate(_) => {
                unreachable!("programs that fold are not written for AVX2")
            }
        }
    }

    /// `out = a * b + c`; the instruction writes over one of its operands.
    fn fma(&mut self, lane: Lane, out: u8, [a, b]: [u8; 2], c: Source) {
        let wide = lane == Lane::Wide;
        let of = |opcode| VectorOp { wide, ..op(Map::M0F38, Prefix::P66, opcode) };
        let (times, plus) = (self.on(lane, of(0xa8)), self.on(lane, of(0xb8)));
        if matches!(c, Source::Reg(c) if c == out) {
            return self.vex(plus, out, a, Source::Reg(b));
        }
        let other = if out == b { a } else { b };
        if out != a && out != b {
            self.vex(LOAD, out, 0, Source::Reg(a));
        }
        self.vex(times, out, other, c);
    }

    /// The lower half of each 64-bit lane, as words in the lower half of the register.
    fn lower_words(&mut self, out: u8, a: u8) {
        self.asm.vex(UPPER_HALF, a, 0, Source::Reg(SCRATCH), Some(1));
        self.asm.vex(SHUFFLE, out, a, Source::Reg(SCRATCH), Some(0x88));
    }

    /// Saves all that a function may change, calls it on a register in memory, and takes all back.
    fn call(&mut self, call: Call) {
        const RDX: Gpr = Gpr(2);
        const RSI: Gpr = Gpr(6);
        const RDI: Gpr = Gpr(7);
        const CHANGED: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
        const OTHERS: i32 = 16 * VECTOR;
        let place =
            |reg: u8| Source::Mem(Mem::Offset { base: RSP, displacement: VECTOR * reg as i32 });
        let others = || CHANGED.iter().zip(0..).map(|(&reg, i)| (Gpr(reg), OTHERS + 8 * i));
        self.asm.bind(call.at);
        self.asm.push(RBP);
        self.asm.enter_frame(OTHERS + 128);
        others().for_each(|(reg, at)| self.asm.store(RSP, at, reg));
        (0..16).for_each(|reg| self.vex(STORE, reg, 0, place(reg)));
        self.asm.copy(RDX, COUNTER);
        self.asm.lea(RDI, RSP, VECTOR * call.out as i32);
        self.asm.lea(RSI, RSP, VECTOR * call.of as i32);
        self.asm.clear_upper();
        self.asm.call(call.address);
        (0..16).for_each(|reg| self.vex(LOAD, reg, 0, place(reg)));
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
        let from = self.element(pointer, element);
        let op = match element {
            Element::Wide => LOAD,
            Element::Word => self.on_words(LOAD),
            Element::Half => self.on_words(FROM_HALF),
            Element::Brain => self.on_words(widen(2, false)),
            Element::Short { signed } => self.on_words(widen(2, signed)),
            Element::Byte { signed } => self.on_words(widen(1, signed)),
            // To lanes as wide as masks: of bytes to 64 bits is next to that to 32.
            Element::Bool if self.wide => op(Map::M0F38, Prefix::P66, 0x32),
            Element::Bool => widen(1, false),
        };
        self.vex(op, out, 0, from);
        match element {
            Element::Brain => self.shift(Shift::Left, Lane::Word, out, out, 16),
            Element::Bool => {
                // 0 - 1 is all ones.
                self.vex(XOR, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
                let lane = if self.wide { Lane::Wide } else { Lane::Word };
                let minus = self.binary(Binary::SubI, lane);
                self.vex(minus, out, SCRATCH, Source::Reg(out));
            }
            _ => {}
        }
    }

    fn splat(&mut self, pointer: u16, element: Element, out: u8) {
        self.asm.load(DATA, TABLE, 8 * pointer as i32);
        let from = Source::Mem(Mem::Offset { base: DATA, displacement: 0 });
        match element {
            Element::Wide => self.vex(SPLAT_64, out, 0, from),
            Element::Word => self.vex(SPLAT_32, out, 0, from),
            Element::Half => {
                self.vex(SPLAT_16, out, 0, from);
                self.vex(FROM_HALF, out, 0, Source::Reg(out));
            }
            Element::Brain => {
                self.vex(SPLAT_16, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, 16);
            }
            Element::Short { signed } | Element::Byte { signed } => {
                let (splat, unused) =
                    if element.size() == 2 { (SPLAT_16, 16) } else { (SPLAT_8, 24) };
                self.vex(splat, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, unused);
                let back = if signed { Shift::RightSigned } else { Shift::Right };
                self.shift(back, Lane::Word, out, out, unused);
            }
            Element::Bool => {
                self.vex(SPLAT_8, out, 0, from);
                self.vex(XOR, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
                self.vex(GREATER_BYTES, out, out, Source::Reg(SCRATCH));
            }
        }
    }

    fn store(&mut self, pointer: u16, element: Element, value: u8) {
        let to = self.element(pointer, element);
        match element {
            Element::Wide => self.vex(STORE, value, 0, to),
            Element::Word => self.vex(self.on_words(STORE), value, 0, to),
            Element::Half => self.asm.vex(self.on_words(TO_HALF), value, 0, to, Some(0)),
            Element::Brain => {
                self.shift(Shift::Right, Lane::Word, SCRATCH, value, 16);
                self.pack_shorts(SCRATCH, false, to);
            }
            Element::Short { signed } => self.pack_shorts(value, signed, to),
            Element::Byte { signed } => {
                self.pack_bytes(value, signed);
                self.store_bytes(to);
            }
            Element::Bool => {
                let mut words = value;
                if self.wide {
                    self.lower_words(SCRATCH, value);
                    words = SCRATCH;
                }
                // Bytes 0 and -1.
                self.pack_bytes(words, true);
                self.vex(ABS_8, SCRATCH, 0, Source::Reg(SCRATCH));
                self.store_bytes(to);
            }
        }
    }

    /// Words that 16 bits hold, as such in the lower half of the scratch register.
    fn pack(&mut self, value: u8, pack: VectorOp) {
        if self.wide {
            self.vex(pack, SCRATCH, value, Source::Reg(value));
        } else if value == SCRATCH {
            // Both halves of the register pack their own words; then the right ones are taken.
            self.vex(VectorOp { bits: Bits::B256, ..pack }, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
            let permute = VectorOp { wide: true, ..op(Map::M0F3A, Prefix::P66, 0x00) };
            self.asm.vex(permute, SCRATCH, 0, Source::Reg(SCRATCH), Some(0x08));
        } else {
            self.asm.vex(UPPER_HALF, value, 0, Source::Reg(SCRATCH), Some(1));
            self.vex(pack, SCRATCH, value, Source::Reg(SCRATCH));
        }
    }

    fn pack_shorts(&mut self, value: u8, signed: bool, to: Source) {
        self.pack(value, if signed { PACK_SIGNED_32 } else { PACK_UNSIGNED_32 });
        let store = if self.wide { STORE_64 } else { VectorOp { bits: Bits::B128, ..STORE } };
        self.vex(store, SCRATCH, 0, to);
    }

    fn pack_bytes(&mut self, value: u8, signed: bool) {
        self.pack(value, PACK_SIGNED_32);
        let pack = if signed { PACK_SIGNED_16 } else { PACK_UNSIGNED_16 };
        self.vex(pack, SCRATCH, SCRATCH, Source::Reg(SCRATCH));
    }

    fn store_bytes(&mut self, to: Source) {
        self.vex(if self.wide { STORE_32 } else { STORE_64 }, SCRATCH, 0, to);
    }

    /// A shift by a constant.
    fn shift(&mut self, kind: Shift, lane: Lane, out: u8, a: u8, by: u8) {
        let opcode = if lane == Lane::Wide { 0x73 } else { 0x72 };
        let op = self.on(lane, op(Map::M0F, Prefix::P66, opcode));
        self.asm.vex(op, kind as u8, out, Source::Reg(a), Some(by));
    }

    fn unary(&mut self, unary: Unary, lane: Lane, out: u8, a: u8) {
        let from = Source::Reg(a);
        match unary {
            Unary::Sqrt => {
                self.vex(self.on_floats(lane, op(Map::M0F, Prefix::None, 0x51)), out, 0, from);
            }
            Unary::Round(to) => {
                // Bit 3: no exception for inexact results.
                let opcode = if lane == Lane::Wide { 0x09 } else { 0x08 };
                let round = self.on(lane, op(Map::M0F3A, Prefix::P66, opcode));
                self.asm.vex(round, out, 0, from, Some(8 | to as u8));
            }
            Unary::Left(by) => self.shift(Shift::Left, lane, out, a, by),
            Unary::Right(by) => self.shift(Shift::Right, lane, out, a, by),
            Unary::RightSigned(by) => self.shift(Shift::RightSigned, lane, out, a, by),
            Unary::RoundHalf => {
                let to = Source::Reg(SCRATCH);
                self.asm.vex(self.on_words(TO_HALF), a, 0, to, Some(0));
                self.vex(self.on_words(FROM_HALF), out, 0, to);
            }
        }
    }

    fn convert(&mut self, from: Number, to: Number, out: u8, a: u8) {
        use Number::*;
        let (prefix, opcode) = match (from, to) {
            (F32, F64) => (Prefix::None, 0x5a),
            (F64, F32) => (Prefix::P66, 0x5a),
            (I32, F32) => (Prefix::None, 0x5b),
            (F32, I32) => (Prefix::PF3, 0x5b),
            (I32, F64) => (Prefix::PF3, 0xe6),
            (F64, I32) => (Prefix::P66, 0xe6),
            (I32, I64 | U64) => return self.vex(SIGN_EXTEND, out, 0, Source::Reg(a)),
            (U32, I64 | U64) => return self.vex(ZERO_EXTEND, out, 0, Source::Reg(a)),
            (I64 | U64, I32 | U32) => return self.lower_words(out, a),
            _ => unreachable!("{from:?} to {to:?} is no instruction of AVX2"),
        };
        let wide = from.lane() == Lane::Wide || to.lane() == Lane::Wide;
        let convert = op(Map::M0F, prefix, opcode);
        self.vex(if wide { convert } else { self.on_words(convert) }, out, 0, Source::Reg(a));
    }

    fn binary(&self, binary: Binary, lane: Lane) -> VectorOp {
        let wide = lane == Lane::Wide;
        let float = |opcode| self.on_floats(lane, op(Map::M0F, Prefix::None, opcode));
        let integer = |word: u8, double: u8| {
            self.on(lane, op(Map::M0F, Prefix::P66, if wide { double } else { word }))
        };
        let other =
            |opcode| self.on(lane, VectorOp { wide, ..op(Map::M0F38, Prefix::P66, opcode) });
        match binary {
            Binary::AddF => float(0x58),
            Binary::SubF => float(0x5c),
            Binary::MulF => float(0x59),
            Binary::DivF => float(0x5e),
            Binary::LeastF | Binary::GreatestF => unreachable!("written in other instructions"),
            Binary::MinF => float(0x5d),
            Binary::MaxF => float(0x5f),
            Binary::ScaleF => unreachable!("AVX2 multiplies by powers of two"),
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
        }
    }

    /// The instruction and its predicate. Those of floats signal nothing for quiet NaNs.
    fn compare(&self, compare: Compare, lane: Lane) -> (VectorOp, Option<u8>) {
        let float = self.on_floats(lane, op(Map::M0F, Prefix::None, 0xc2));
        let (equal, greater) = match lane {
            Lane::Wide => (op(Map::M0F38, Prefix::P66, 0x29), op(Map::M0F38, Prefix::P66, 0x37)),
            _ => (EQUAL, op(Map::M0F, Prefix::P66, 0x66)),
        };
        match compare {
            Compare::EqF => (float, Some(0x00)),
            Compare::LtF => (float, Some(0x11)),
            Compare::LeF => (float, Some(0x12)),
            Compare::Unordered => (float, Some(0x03)),
            Compare::EqI => (self.on(lane, equal), None),
            Compare::GtI => (self.on(lane, greater), None),
            Compare::LtI | Compare::LeI | Compare::LtU | Compare::LeU => {
                unreachable!("{compare:?} is no instruction of AVX2")
            }
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
    Source::Mem(Mem::Offset { base: RSP, displacement: VECTOR * slot as i32 })
}
