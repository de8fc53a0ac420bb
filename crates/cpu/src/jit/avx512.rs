//! Loops of 16 lanes for x86-64 with AVX-512 F, DQ, BW and VL, and BMI2.
//!
//! The function walks whole vectors, then does the rest under a mask. It touches no memory beyond
//! the elements it is given, calls nothing, and leaves the control registers as they are.

use super::allocate::{Allocated, Place, Step};
use super::asm::{Assembler, Condition, Evex, Gpr, Map, Masking, Mem, Prefix, Source};
use super::ir::{Binary, Compare, Element, Inst, Logic, Program, Unary};

/// Elements per iteration.
const LANES: i32 = 16;
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

const fn op(map: Map, prefix: Prefix, opcode: u8) -> Evex {
    Evex { map, prefix, opcode }
}

const LOAD: Evex = op(Map::M0F, Prefix::None, 0x10);
const STORE: Evex = op(Map::M0F, Prefix::None, 0x11);
const FROM_HALF: Evex = op(Map::M0F38, Prefix::P66, 0x13);
const TO_HALF: Evex = op(Map::M0F3A, Prefix::P66, 0x1d);
const WIDEN_16: Evex = op(Map::M0F38, Prefix::P66, 0x33);
const WIDEN_8: Evex = op(Map::M0F38, Prefix::P66, 0x31);
const NARROW_16: Evex = op(Map::M0F38, Prefix::PF3, 0x33);
const NARROW_8: Evex = op(Map::M0F38, Prefix::PF3, 0x31);
const SPLAT_32: Evex = op(Map::M0F38, Prefix::P66, 0x18);
const SPLAT_16: Evex = op(Map::M0F38, Prefix::P66, 0x79);
const SPLAT_8: Evex = op(Map::M0F38, Prefix::P66, 0x78);
const TEST: Evex = op(Map::M0F38, Prefix::P66, 0x27);
const MASK_TO_WORDS: Evex = op(Map::M0F38, Prefix::PF3, 0x38);
const BLEND: Evex = op(Map::M0F38, Prefix::P66, 0x65);
const SHIFT: Evex = op(Map::M0F, Prefix::P66, 0x72);

/// Writes the loop as a function `(table of pointers, number of elements)`; none if there are more
/// pointers than registers.
pub(super) fn emit(program: &Program, allocated: &Allocated) -> Option<Vec<u8>> {
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
    let saved: Vec<Gpr> = POINTERS[CALLER_SAVED..]
        .iter()
        .copied()
        .filter(|reg| bases.contains(&Some(*reg)))
        .collect();
    let mut emitter = Emitter { asm: Assembler::default(), program, bases, mask: 0 };
    emitter.function(allocated, &saved);
    Some(emitter.asm.finish(&allocated.constants))
}

struct Emitter<'a> {
    asm: Assembler,
    program: &'a Program,
    /// By pointer: the register that holds it.
    bases: Vec<Option<Gpr>>,
    /// The mask of memory accesses: none, or the tail's.
    mask: u8,
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
        let (tail, main, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.zero(INDEX);
        self.asm.sub(COUNT, LANES);
        self.asm.jump_if(Condition::Below, tail);
        self.asm.align(32);
        self.asm.bind(main);
        self.steps(&allocated.body);
        self.asm.add(INDEX, LANES);
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::BelowOrEqual, main);
        self.asm.bind(tail);
        self.asm.add(COUNT, LANES);
        self.asm.sub_reg(COUNT, INDEX);
        self.asm.jump_if(Condition::Equal, done);
        self.asm.low_bits(TAIL, COUNT, TABLE);
        self.mask = TAIL;
        self.steps(&allocated.body);
        self.asm.bind(done);
        if frame {
            self.asm.leave_frame();
            self.asm.pop(RBP);
        }
        saved.iter().rev().for_each(|&reg| self.asm.pop(reg));
        self.asm.leave();
    }

    fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Inst { at, out, operands } => {
                    let inst = self.program.insts[at as usize];
                    self.inst(inst, out, operands);
                }
                Step::Spill { reg, slot } => self.plain(STORE, reg, 0, slot_of(slot)),
                Step::Reload { reg, slot } => self.plain(LOAD, reg, 0, slot_of(slot)),
                Step::Constant { reg, number } => {
                    self.plain(SPLAT_32, reg, 0, Source::Mem(Mem::Single(number)));
                }
            }
        }
    }

    /// An instruction without mask and immediate.
    fn plain(&mut self, op: Evex, dst: u8, a: u8, b: Source) {
        self.asm.evex(op, dst, a, b, Masking::default(), None);
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
        };
        match inst {
            Inst::Const(_) => unreachable!("constants are operands"),
            Inst::Load(pointer, element) => self.load(pointer, element, out),
            Inst::Splat(pointer, element) => self.splat(pointer, element, out),
            Inst::Binary(op, ..) => self.plain(binary(op), out, reg(0), source(1)),
            Inst::Unary(op, _) => self.unary(op, out, reg(0)),
            Inst::Compare(op, ..) => {
                let (evex, predicate) = compare(op);
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
            Inst::Select { .. } => {
                let masking = Masking { mask: reg(0), zero: false };
                self.asm.evex(BLEND, out, reg(2), source(1), masking, None);
            }
            Inst::Store(pointer, element, _) => self.store(pointer, element, reg(0)),
        }
    }

    /// The elements at the loop's index.
    fn element(&self, pointer: u16, element: Element) -> Source {
        let base = self.bases[pointer as usize].expect("loads and stores have their base");
        Source::Mem(Mem::Indexed { base, index: INDEX, scale: element.size() as u8 })
    }

    fn load(&mut self, pointer: u16, element: Element, out: u8) {
        let masking = Masking { mask: self.mask, zero: self.mask != 0 };
        let (op, to) = match element {
            Element::Word => (LOAD, out),
            Element::Half => (FROM_HALF, out),
            Element::Brain => (WIDEN_16, out),
            Element::Bool => (WIDEN_8, SCRATCH),
        };
        let from = self.element(pointer, element);
        self.asm.evex(op, to, 0, from, masking, None);
        match element {
            Element::Brain => self.shift(6, out, out, 16),
            Element::Bool => self.plain(TEST, out, SCRATCH, Source::Reg(SCRATCH)),
            Element::Word | Element::Half => {}
        }
    }

    fn splat(&mut self, pointer: u16, element: Element, out: u8) {
        // The table's register is free for a while: it is loaded again from nowhere, so pointers of
        // splats go through the index's, which the loop clears.
        self.asm.load(INDEX, TABLE, 8 * pointer as i32);
        let from = Source::Mem(Mem::Offset { base: INDEX, displacement: 0 });
        match element {
            Element::Word => self.plain(SPLAT_32, out, 0, from),
            Element::Half => {
                self.plain(SPLAT_16, out, 0, from);
                self.plain(FROM_HALF, out, 0, Source::Reg(out));
            }
            Element::Brain => {
                self.plain(SPLAT_16, out, 0, from);
                self.shift(6, out, out, 16);
            }
            Element::Bool => {
                self.plain(SPLAT_8, SCRATCH, 0, from);
                self.plain(TEST, out, SCRATCH, Source::Reg(SCRATCH));
            }
        }
    }

    fn store(&mut self, pointer: u16, element: Element, value: u8) {
        let masking = Masking { mask: self.mask, zero: false };
        let to = self.element(pointer, element);
        match element {
            Element::Word => self.asm.evex(STORE, value, 0, to, masking, None),
            Element::Half => self.asm.evex(TO_HALF, value, 0, to, masking, Some(0)),
            Element::Brain => {
                self.shift(2, SCRATCH, value, 16);
                self.asm.evex(NARROW_16, SCRATCH, 0, to, masking, None);
            }
            Element::Bool => {
                self.plain(MASK_TO_WORDS, SCRATCH, 0, Source::Reg(value));
                self.shift(2, SCRATCH, SCRATCH, 31);
                self.asm.evex(NARROW_8, SCRATCH, 0, to, masking, None);
            }
        }
    }

    /// A shift by a constant: left 6, right 2, right with the sign 4.
    fn shift(&mut self, kind: u8, out: u8, a: u8, by: u8) {
        self.asm.evex(SHIFT, kind, out, Source::Reg(a), Masking::default(), Some(by));
    }

    fn unary(&mut self, op: Unary, out: u8, a: u8) {
        let from = Source::Reg(a);
        match op {
            Unary::Sqrt => self.plain(self::op(Map::M0F, Prefix::None, 0x51), out, 0, from),
            Unary::Round(to) => {
                // Bit 3: no exception for inexact results.
                let round = self::op(Map::M0F3A, Prefix::P66, 0x08);
                self.asm.evex(round, out, 0, from, Masking::default(), Some(8 | to as u8));
            }
            Unary::ToFloat => self.plain(self::op(Map::M0F, Prefix::None, 0x5b), out, 0, from),
            Unary::Left(by) => self.shift(6, out, a, by),
            Unary::Right(by) => self.shift(2, out, a, by),
            Unary::RightSigned(by) => self.shift(4, out, a, by),
            Unary::RoundHalf => {
                let to = Source::Reg(SCRATCH);
                self.asm.evex(TO_HALF, a, 0, to, Masking::default(), Some(0));
                self.plain(FROM_HALF, out, 0, to);
            }
        }
    }
}

fn slot_of(slot: u16) -> Source {
    Source::Mem(Mem::Offset { base: RSP, displacement: 64 * slot as i32 })
}

fn binary(binary: Binary) -> Evex {
    match binary {
        Binary::AddF => op(Map::M0F, Prefix::None, 0x58),
        Binary::SubF => op(Map::M0F, Prefix::None, 0x5c),
        Binary::MulF => op(Map::M0F, Prefix::None, 0x59),
        Binary::DivF => op(Map::M0F, Prefix::None, 0x5e),
        Binary::AddI => op(Map::M0F, Prefix::P66, 0xfe),
        Binary::SubI => op(Map::M0F, Prefix::P66, 0xfa),
        Binary::MulI => op(Map::M0F38, Prefix::P66, 0x40),
        Binary::And => op(Map::M0F, Prefix::P66, 0xdb),
        Binary::Or => op(Map::M0F, Prefix::P66, 0xeb),
        Binary::Xor => op(Map::M0F, Prefix::P66, 0xef),
    }
}

/// The instruction and its predicate. Those of floats signal nothing for quiet NaNs.
fn compare(compare: Compare) -> (Evex, u8) {
    let float = op(Map::M0F, Prefix::None, 0xc2);
    let signed = op(Map::M0F3A, Prefix::P66, 0x1f);
    let unsigned = op(Map::M0F3A, Prefix::P66, 0x1e);
    match compare {
        Compare::EqF => (float, 0x00),
        Compare::LtF => (float, 0x11),
        Compare::LeF => (float, 0x12),
        Compare::Unordered => (float, 0x03),
        Compare::EqI => (signed, 0),
        Compare::LtI => (signed, 1),
        Compare::LeI => (signed, 2),
        Compare::LtU => (unsigned, 1),
        Compare::LeU => (unsigned, 2),
    }
}
