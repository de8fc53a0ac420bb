//! The part of the encoders that does not depend on the instruction set: the function around a
//! program's loop, and the instructions that differ only in VEX or EVEX encoding.

mod encoder;
mod fold;

use super::allocate::{Allocated, Location, Reg, Registers, Step};
use super::arithmetic::Shift;
use super::asm::{Assembler, Bits, Condition, Gpr, Label, Map, Mem, Prefix, Source, VectorOp};
use super::cycle::CycleState;
use super::ir::{At, Element, Inst, KernelProgram, Lane};
use super::scalar::Scalar;
use girih_exec::ChainFold;
use smallvec::SmallVec;
use std::ops::Range;

pub(super) use encoder::Encoder;

/// The index of the iteration's first element; before the loop, temporarily the pointer of a splat.
pub(super) const INDEX: Gpr = Gpr(0);
/// The number of elements: all elements, or the elements that are left.
pub(super) const COUNT: Gpr = Gpr(6);
/// The table of pointers.
pub(super) const TABLE: Gpr = Gpr(7);
/// The number of rows, and the table of the steps from row to row; both only at the entry.
pub(super) const ROWS: Gpr = Gpr(2);
const STEPS: Gpr = Gpr(1);
pub(super) const RSP: Gpr = Gpr(4);
pub(super) const RBP: Gpr = Gpr(5);

/// The arguments, in the order in which they are saved on the stack.
pub(super) const SAVED_ARGUMENTS: [Gpr; 4] = [COUNT, TABLE, ROWS, STEPS];

/// An instruction on 256 bits; [`Emitter::on`] and similar functions set the actual width.
pub(super) const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B256 }
}

/// Like `op`, on 128 bits.
pub(super) const fn short(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { bits: Bits::B128, ..op(map, prefix, opcode) }
}

pub(super) const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
pub(super) const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
pub(super) const STORE_64: VectorOp = VectorOp { wide: true, ..short(Map::M0F, Prefix::P66, 0xd6) };
pub(super) const STORE_32: VectorOp = short(Map::M0F, Prefix::P66, 0x7e);
pub(super) const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
pub(super) const TO_HALF: VectorOp = op(Map::M0F3A, Prefix::P66, 0x1d);
pub(super) const SPLAT_8: VectorOp = op(Map::M0F38, Prefix::P66, 0x78);
const SPLAT_16: VectorOp = op(Map::M0F38, Prefix::P66, 0x79);
const SPLAT_32: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// Bit W has different meanings in its VEX and EVEX forms.
pub(super) const SPLAT_64: VectorOp = op(Map::M0F38, Prefix::P66, 0x19);

/// Widens bytes or 16-bit values to 32 bits.
pub(super) const fn widen(bytes: usize, signed: bool) -> VectorOp {
    op(Map::M0F38, Prefix::P66, (if signed { 0x20 } else { 0x30 }) | (bytes as u8 * 2 - 1))
}

/// A call out of the loop, for some lanes of a value.
pub(super) struct Call {
    at: Label,
    back: Label,
    address: usize,
    mask: u8,
    out: u8,
    of: u8,
}

/// Emits a program's loop; `M` is the state of an instruction set.
pub(super) struct Emitter<'a, M> {
    pub asm: Assembler,
    pub program: &'a KernelProgram,
    /// The register of each pointer.
    pub bases: Vec<Option<Gpr>>,
    /// Pointers of strided loads: the register, and the bytes between elements. These registers are
    /// advanced each iteration.
    pub going: SmallVec<[(Gpr, i32); 2]>,
    pub constants: &'a [(Lane, u64)],
    /// The part of a register that 32-bit lanes use.
    pub words: Bits,
    /// The number of elements per iteration, or per part of an iteration.
    pub lanes: i32,
    /// The accumulator of the part of an iteration that is being emitted.
    pub accumulator: u8,
    /// After the loop: the register of the lanes that are combined with the accumulator.
    other: u8,
    /// The calls that are emitted after the function.
    calls: Vec<Call>,
    /// The carries of a cycle.
    pub cycle: CycleState<'a>,
    /// The state of the instruction set.
    pub machine: M,
}

/// The number of elements per iteration of a program with registers of `bytes` bytes, or per part
/// of an iteration.
fn lanes(program: &KernelProgram, bytes: i32) -> i32 {
    bytes / if program.is_wide() { 8 } else { 4 }
}

/// The size of a register in bytes.
pub(super) const fn bytes(bits: Bits) -> i32 {
    16 << bits as i32
}

impl<'a, M> Emitter<'a, M>
where
    Emitter<'a, M>: Encoder,
{
    /// The size of a register in bytes.
    pub const VECTOR: i32 = bytes(Self::BITS);
    /// The encoder's scratch vector register.
    pub const SCRATCH: u8 = Self::REGISTERS.vectors;

    /// The registers for a program's values; accumulators and carries take the last ones.
    pub fn registers(program: &KernelProgram) -> Registers {
        match &program.cycle {
            Some(cycle) => Self::cycle_registers(cycle),
            None => Self::REGISTERS.without(Self::accumulators_of(program)),
        }
    }

    /// The number of accumulators of a program's reduction. An iteration has a part for each
    /// accumulator.
    fn accumulators_of(program: &KernelProgram) -> u8 {
        let each = lanes(program, Self::VECTOR);
        program.fold.map_or(0, |_| (ChainFold::LANES as i32 / each) as u8)
    }

    /// Returns `None` if there are more pointers than registers.
    pub fn new(program: &'a KernelProgram, allocated: &'a Allocated, machine: M) -> Option<Self> {
        let mut bases = vec![None; program.pointers as usize];
        // The last register counts the steps of a cycle.
        let pointers = Self::POINTERS.len() - program.cycle.is_some() as usize;
        let mut free = Self::POINTERS[..pointers].iter();
        let mut going = SmallVec::new();
        for inst in &program.insts {
            let memory = |number: u16| {
                let cycle = program.cycle.as_ref().expect("only cycles have memories");
                cycle.memories[number as usize].pointer
            };
            let (pointer, bytes) = match *inst {
                Inst::Gather(number, ..) | Inst::Put(number, ..) => (memory(number), None),
                Inst::Load(At { pointer, .. }, _)
                | Inst::Broadcast(At { pointer, .. }, _)
                | Inst::Store(pointer, ..)
                | Inst::StoreFirst(pointer, ..) => (pointer, None),
                Inst::LoadEvery(At { pointer, .. }, element, step) => {
                    (pointer, Some(element.size() as i32 * step as i32))
                }
                _ => continue,
            };
            let base = &mut bases[pointer as usize];
            if base.is_none() {
                let reg = *free.next()?;
                *base = Some(reg);
                going.extend(bytes.map(|bytes| (reg, bytes)));
            }
        }
        if let Some(fold) = program.fold {
            bases[fold.pointer as usize] = Some(*free.next()?);
        }
        let words = match (program.is_wide(), Self::BITS) {
            (false, bits) => bits,
            (true, Bits::B512) => Bits::B256,
            (true, _) => Bits::B128,
        };
        Some(Emitter {
            asm: Assembler::default(),
            program,
            bases,
            going,
            constants: &allocated.constants,
            words,
            lanes: lanes(program, Self::VECTOR),
            accumulator: 0,
            other: 0,
            calls: vec![],
            cycle: CycleState::new(allocated),
            machine,
        })
    }

    /// The loop as a function `(table of pointers, number of elements, number of rows, table of
    /// steps)`: it runs the loop once per row, and adds the steps to the pointers between two rows.
    pub fn function(mut self, allocated: &Allocated) -> Vec<u8> {
        if let Some(cycle) = &self.program.cycle {
            return self.cycle_function(cycle, allocated);
        }
        let used = |reg: &&Gpr| self.bases.contains(&Some(**reg));
        let saved: Vec<Gpr> =
            Self::POINTERS[Self::CALLER_SAVED..].iter().filter(used).copied().collect();
        saved.iter().for_each(|&reg| self.asm.push(reg));
        SAVED_ARGUMENTS.iter().for_each(|&reg| self.asm.push(reg));
        let frame = self.frame(allocated);
        if frame > 0 {
            self.asm.push(RBP);
            self.asm.enter_frame(frame);
        }
        self.start();
        // The setup is the same for all rows unless it reads elements of them.
        let reads = |inst: &Inst| matches!(inst, Inst::Splat(..));
        let once = !self.program.insts.iter().any(reads);
        if once {
            self.steps(&allocated.setup);
        }
        let (row, last) = (self.asm.label(), self.asm.label());
        self.asm.bind(row);
        for (i, base) in self.bases.iter().enumerate() {
            if let Some(base) = base {
                self.asm.load(*base, TABLE, 8 * i as i32);
            }
        }
        if !once {
            self.steps(&allocated.setup);
        }
        self.start_fold();
        self.walk(&allocated.body);
        self.finish_fold(&allocated.combine);
        self.next_row(row, last, frame > 0);
        self.asm.bind(last);
        self.finish();
        self.end_function(&saved, frame > 0)
    }

    /// Emits the end of the function, which restores registers and returns, and the code that follows
    /// it; returns all code.
    pub fn end_function(mut self, saved: &[Gpr], framed: bool) -> Vec<u8> {
        if framed {
            self.asm.leave_frame();
            self.asm.pop(RBP);
        }
        self.asm.add(RSP, 8 * SAVED_ARGUMENTS.len() as i32);
        saved.iter().rev().for_each(|&reg| self.asm.pop(reg));
        self.asm.leave();
        self.failures();
        for call in std::mem::take(&mut self.calls) {
            self.call(call);
        }
        let mut constants: Vec<Vec<u8>> = self.constants.iter().map(Self::constant).collect();
        constants.extend(self.constants());
        self.asm.finish(&constants)
    }

    /// The register and the distances by which saved arguments are addressed.
    pub fn saved(framed: bool) -> (Gpr, impl Fn(Gpr) -> i32) {
        let place = move |argument: Gpr| {
            let at = SAVED_ARGUMENTS.iter().rev().position(|&saved| saved == argument);
            8 * (at.expect("the argument is saved") + framed as usize) as i32
        };
        (if framed { RBP } else { RSP }, place)
    }

    /// Jumps to `last` after the last row. Otherwise advances the pointers in their table, restores
    /// the arguments, and jumps to `row`.
    fn next_row(&mut self, row: Label, last: Label, framed: bool) {
        let (base, place) = Self::saved(framed);
        self.asm.load(INDEX, base, place(ROWS));
        self.asm.sub(INDEX, 1);
        self.asm.jump_if(Condition::Equal, last);
        self.asm.store(base, place(ROWS), INDEX);
        self.asm.load(TABLE, base, place(TABLE));
        self.asm.load(COUNT, base, place(STEPS));
        for pointer in 0..self.program.pointers as i32 {
            self.asm.load(INDEX, COUNT, 8 * pointer);
            self.asm.add_to_memory(TABLE, 8 * pointer, INDEX);
        }
        self.asm.load(COUNT, base, place(COUNT));
        self.asm.jump(row);
    }

    /// A constant in the form that instructions take.
    fn constant(&(lane, bits): &(Lane, u64)) -> Vec<u8> {
        let single = match lane {
            Lane::Wide => bits.to_le_bytes().to_vec(),
            _ => (bits as u32).to_le_bytes().to_vec(),
        };
        if Self::WHOLE_CONSTANTS {
            single.repeat(Self::VECTOR as usize / single.len())
        } else {
            single
        }
    }

    /// Emits the loop: iterations over whole vectors, then the last, partial iteration.
    fn walk(&mut self, body: &[Step]) {
        let parts = self.parts();
        let (tail, main, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.zero(INDEX);
        self.asm.sub(COUNT, parts * self.lanes);
        self.asm.jump_if(Condition::Below, tail);
        self.asm.align(32);
        self.asm.bind(main);
        for part in 0..parts {
            self.part(part, body);
            self.go_on();
        }
        self.asm.compare(INDEX, COUNT);
        self.asm.jump_if(Condition::BelowOrEqual, main);
        self.asm.bind(tail);
        self.asm.add(COUNT, parts * self.lanes);
        self.rest(body, done);
        self.asm.bind(done);
    }

    /// Advances to the elements of the next part.
    pub fn go_on(&mut self) {
        self.asm.add(INDEX, self.lanes);
        for &(reg, bytes) in &self.going {
            self.asm.add(reg, bytes * self.lanes);
        }
    }

    /// The number of parts of an iteration; each has its own accumulator.
    pub fn parts(&self) -> i32 {
        self.accumulators().len().max(1) as i32
    }

    /// Emits a part of an iteration.
    pub fn part(&mut self, part: i32, body: &[Step]) {
        self.accumulator = self.accumulators().start + part as u8;
        self.steps(body);
    }

    /// The accumulators of the reduction.
    pub fn accumulators(&self) -> Range<u8> {
        Self::SCRATCH - Self::accumulators_of(self.program)..Self::SCRATCH
    }

    pub fn steps(&mut self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Inst { at, out, operands } => {
                    let inst = self.program.insts[at as usize];
                    self.inst(inst, out, operands);
                }
                Step::Spill { reg: Reg::Vector(reg), slot } => {
                    self.plain(self.whole(STORE), reg, 0, Self::slot(slot));
                }
                Step::Reload { reg: Reg::Vector(reg), slot } => {
                    self.plain(self.whole(LOAD), reg, 0, Self::slot(slot));
                }
                Step::Spill { reg: Reg::Mask(mask), slot } => {
                    self.keep_mask(mask, Self::VECTOR * slot as i32, true);
                }
                Step::Reload { reg: Reg::Mask(mask), slot } => {
                    self.keep_mask(mask, Self::VECTOR * slot as i32, false);
                }
                Step::Constant { reg, number } if Self::WHOLE_CONSTANTS => {
                    self.plain(LOAD, reg, 0, Source::Mem(Mem::Constant(number)));
                }
                Step::Constant { reg, number } => {
                    let wide = self.constants[number as usize].0 == Lane::Wide;
                    self.splat_from(wide, reg, Source::Mem(Mem::Single(number)));
                }
            }
        }
    }

    pub fn splat_from(&mut self, wide: bool, out: u8, from: Source) {
        let op = if wide { Self::SPLAT_WIDE } else { SPLAT_32 };
        self.plain(self.whole(op), out, 0, from);
    }

    /// The address of a slot of the stack frame.
    pub fn slot(slot: u16) -> Source {
        Source::Mem(Mem::Offset { base: RSP, displacement: Self::VECTOR * slot as i32 })
    }

    /// An instruction on a whole register.
    pub fn whole(&self, op: VectorOp) -> VectorOp {
        VectorOp { bits: Self::BITS, ..op }
    }

    /// An instruction on 32-bit lanes, on the part of the registers that these lanes use.
    pub fn on_words(&self, op: VectorOp) -> VectorOp {
        VectorOp { bits: self.words, ..op }
    }

    /// An instruction on values of a lane type; `op` is the instruction on 32-bit lanes.
    pub fn on(&self, lane: Lane, op: VectorOp) -> VectorOp {
        match lane {
            Lane::Wide => VectorOp { wide: true, ..self.whole(op) },
            _ => self.on_words(op),
        }
    }

    /// Like [`Self::on`], for an instruction on floats, whose implied prefix also determines the
    /// lane size.
    pub fn on_floats(&self, lane: Lane, op: VectorOp) -> VectorOp {
        let prefix = if lane == Lane::Wide { Prefix::P66 } else { op.prefix };
        self.on(lane, VectorOp { prefix, ..op })
    }

    /// An instruction without an immediate.
    pub fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.vector(op, dst, a, b, None);
    }

    /// The register of an operand.
    pub fn reg(&self, location: Location) -> u8 {
        match location {
            Location::Reg(reg) => reg,
            Location::Accumulator => self.accumulator,
            Location::Other => self.other,
            Location::Carry(number) => self.cycle.first + number,
            location => unreachable!("an operand that has to be in a register is in {location:?}"),
        }
    }

    /// An operand that may be in memory.
    pub fn source(&self, location: Location) -> Source {
        match location {
            Location::Slot(slot) => Self::slot(slot),
            Location::Constant(number) => Source::Mem(Mem::Constant(number)),
            location => Source::Reg(self.reg(location)),
        }
    }

    fn inst(&mut self, inst: Inst, out: u8, operands: [Location; 3]) {
        let [a, b, c] = operands;
        match inst {
            Inst::Const(..) | Inst::Accumulator(_) | Inst::Other(_) | Inst::Carry(..) => {
                unreachable!("these are operands")
            }
            Inst::Broadcast(at, element) => self.broadcast(at, element, out),
            Inst::Gather(memory, element, _) => self.gather(memory, element, self.reg(a), out),
            Inst::Put(memory, element, ..) => {
                self.put(memory, element, self.reg(a), self.reg(b));
            }
            Inst::SetCarry(number, _) => self.set_carry(number, self.reg(a)),
            Inst::Leave(_) => self.leave_cycle(self.reg(a)),
            Inst::StoreFirst(pointer, element, _) => {
                self.store_first(pointer, element, self.reg(a))
            }
            Inst::Accumulate(_) => {
                let fold = self.program.fold.expect("what is accumulated is folded");
                self.accumulate(fold.lane, self.reg(a));
            }
            Inst::Load(at, element) => self.load(at, element, out),
            Inst::LoadEvery(at, element, step) => self.load_every(at, element, step, out),
            Inst::Splat(at, element) => self.splat(at, element, out),
            Inst::Store(pointer, element, _) => self.store(pointer, element, self.reg(a)),
            Inst::Binary(op, lane, ..) => {
                let (op, imm) = self.binary(op, lane);
                self.vector(op, out, self.reg(a), self.source(b), imm);
            }
            Inst::Unary(op, lane, _) => self.unary(op, lane, out, self.reg(a)),
            Inst::Fma(lane, ..) => self.fma(lane, out, [self.reg(a), self.reg(b)], self.source(c)),
            Inst::Convert(from, to, _) => self.convert(from, to, out, self.reg(a)),
            Inst::Repair { function, lane, .. } => self.repair(function, lane, out, operands),
            Inst::Compare(..) | Inst::Logic(..) | Inst::Not(_) | Inst::Select { .. } => {
                self.own(inst, out, operands);
            }
        }
    }

    /// Emits a jump to a call if any lane must be repaired.
    fn repair(&mut self, function: Scalar, lane: Lane, out: u8, operands: [Location; 3]) {
        let [mask, value, of] = operands.map(|location| self.reg(location));
        self.plain(self.whole(LOAD), out, 0, Source::Reg(value));
        let (at, back) = (self.asm.label(), self.asm.label());
        self.test_mask(mask);
        self.asm.jump_if(Condition::NotEqual, at);
        self.asm.bind(back);
        self.calls.push(Call { at, back, address: function.address(lane), mask, out, of });
    }

    /// Saves all registers that a function may change, calls it on a register in memory, and
    /// restores them.
    fn call(&mut self, call: Call) {
        const RDX: Gpr = Gpr(2);
        const RSI: Gpr = Gpr(6);
        const RDI: Gpr = Gpr(7);
        const CHANGED: [u8; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
        let (vectors, end_of_masks) = (0..=Self::SCRATCH, Self::REGISTERS.masks.end);
        let at = |reg: u8| Self::VECTOR * reg as i32;
        let place = |reg: u8| Source::Mem(Mem::Offset { base: RSP, displacement: at(reg) });
        let masks = at(Self::SCRATCH + 1);
        let others = masks + 64;
        let others = || CHANGED.iter().zip(0..).map(move |(&reg, i)| (Gpr(reg), others + 8 * i));
        self.asm.bind(call.at);
        self.asm.push(RBP);
        self.asm.enter_frame(masks + 64 + 128);
        others().for_each(|(reg, at)| self.asm.store(RSP, at, reg));
        (1..end_of_masks).for_each(|k| self.keep_mask(k, masks + 8 * k as i32, true));
        vectors.clone().for_each(|reg| self.plain(self.whole(STORE), reg, 0, place(reg)));
        self.tested(RDX, call.mask);
        self.asm.lea(RDI, RSP, at(call.out));
        self.asm.lea(RSI, RSP, at(call.of));
        self.asm.clear_upper();
        self.asm.call(call.address);
        vectors.for_each(|reg| self.plain(self.whole(LOAD), reg, 0, place(reg)));
        (1..end_of_masks).for_each(|k| self.keep_mask(k, masks + 8 * k as i32, false));
        others().for_each(|(reg, at)| self.asm.load(reg, RSP, at));
        self.asm.leave_frame();
        self.asm.pop(RBP);
        self.asm.jump(call.back);
    }

    /// The register of a pointer.
    pub fn base(&self, pointer: u16) -> Gpr {
        self.bases[pointer as usize].expect("loads and stores have their base")
    }

    /// The elements at the loop's index.
    pub fn element(&self, at: At, element: Element) -> Source {
        Source::Mem(Mem::Indexed {
            base: self.base(at.pointer),
            index: INDEX,
            scale: element.size() as u8,
            displacement: at.bytes + self.cycle.ahead * element.size() as i32,
        })
    }

    fn splat(&mut self, at: At, element: Element, out: u8) {
        // This is before the loop, which clears the index.
        self.asm.load(INDEX, TABLE, 8 * at.pointer as i32);
        self.splat_element(Mem::Offset { base: INDEX, displacement: at.bytes }, element, out);
    }

    /// Loads one element into all lanes.
    pub fn splat_element(&mut self, from: Mem, element: Element, out: u8) {
        let from = Source::Mem(from);
        let bytes = self.whole(if element.size() == 1 { SPLAT_8 } else { SPLAT_16 });
        match element {
            Element::Wide | Element::Word => {
                self.splat_from(element == Element::Wide, out, from);
            }
            Element::Half => {
                self.plain(bytes, out, 0, from);
                self.plain(self.whole(FROM_HALF), out, 0, Source::Reg(out));
            }
            Element::BFloat16 => {
                self.plain(bytes, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, 16);
            }
            Element::Short { signed } | Element::Byte { signed } => {
                let unused = 32 - 8 * element.size() as u8;
                self.plain(bytes, out, 0, from);
                self.shift(Shift::Left, Lane::Word, out, out, unused);
                let back = if signed { Shift::RightSigned } else { Shift::Right };
                self.shift(back, Lane::Word, out, out, unused);
            }
            Element::Bool => {
                self.plain(bytes, Self::SCRATCH, 0, from);
                self.mask_of_bytes(out);
            }
        }
    }
}
