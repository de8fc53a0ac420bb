//! Register allocation: one pass over the straight-line program, which evicts the value with the
//! furthest next use (Belady 1966).
//!
//! Instructions take constants from memory, unless unused registers can hold them. Loop-invariant
//! values are set up before the loop.

use super::ir::{Inst, KernelProgram, Lane, Value};
use smallvec::SmallVec;

/// The registers that are available.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    /// Vector registers for values, from 0 on.
    pub vectors: u8,
    /// Mask registers for values; empty if masks are vectors.
    pub masks: std::ops::Range<u8>,
    /// The maximum number of registers for loop-invariant values; the other loop-invariant values
    /// are spilled.
    pub invariants: usize,
    /// The number of carries of a cycle that have registers of their own; the others have slots.
    pub carries: u8,
}

/// The location of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Location {
    /// In a register: vector or mask, as the value requires.
    Reg(u8),
    /// In the stack frame, at that offset in vectors.
    Slot(u16),
    /// In the constant pool.
    Constant(u16),
    /// The accumulator of this part of the iteration, which is not among the registers for values.
    Accumulator,
    /// The register of the lanes to be combined with the accumulator.
    Other,
    /// The register of a carry of a cycle for this part of the iteration, which is not among the
    /// registers for values.
    Carry(u8),
}

/// A register to be saved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Reg {
    Vector(u8),
    Mask(u8),
}

/// One step of the allocated program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// An instruction of the program with its operands' locations and its result's register.
    Inst { at: u32, out: u8, operands: [Location; 3] },
    /// Spills a register.
    Spill { reg: Reg, slot: u16 },
    /// Reloads a value.
    Reload { reg: Reg, slot: u16 },
    /// Loads a constant into a register.
    Constant { reg: u8, number: u16 },
}

/// A program after register allocation.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Allocated {
    /// The steps before the loop.
    pub setup: Vec<Step>,
    /// The steps of each iteration.
    pub body: Vec<Step>,
    /// The steps of each combination of lanes after the loop.
    pub combine: Vec<Step>,
    /// The constant pool.
    pub constants: Vec<(Lane, u64)>,
    /// The size of the stack frame in vectors.
    pub slots: u16,
    /// The location of each carry of a cycle: a register or a slot.
    pub carries: Vec<Location>,
}

/// No register.
const NONE: u8 = u8::MAX;

impl Registers {
    /// The registers that remain beside the accumulators.
    pub fn without(&self, accumulators: u8) -> Registers {
        Registers { vectors: self.vectors - accumulators, ..self.clone() }
    }
}

/// Allocates registers; `None` if there are too few registers for the values that need a register.
pub(super) fn allocate(program: &KernelProgram, registers: &Registers) -> Option<Allocated> {
    let constants = Constants::of(program);
    let mut first = Allocator::new(program, registers, &constants, 0);
    first.run()?;
    let free = registers.vectors as usize - first.most_used;
    if first.out.slots > 0 || free == 0 || constants.words.is_empty() {
        return Some(first.finish(&constants));
    }
    // Registers that are never used hold the most frequent constants.
    let pinned = free.min(constants.words.len());
    let mut second = Allocator::new(program, registers, &constants, pinned);
    second.run()?;
    Some(second.finish(&constants))
}

/// The distinct constants of a program, the most frequent first.
struct Constants {
    words: Vec<(Lane, u64)>,
    /// The number of each value's constant.
    of: Vec<Option<u16>>,
}

impl Constants {
    fn of(program: &KernelProgram) -> Constants {
        let mut uses = vec![0u32; program.insts.len()];
        program.insts.iter().flat_map(Inst::uses).for_each(|v| uses[v.0 as usize] += 1);
        let mut found: Vec<(u32, usize, (Lane, u64))> = Vec::new();
        for (i, inst) in program.insts.iter().enumerate() {
            if let Inst::Const(lane, bits) = *inst {
                found.push((uses[i], i, (lane, bits)));
            }
        }
        found.sort_by_key(|&(uses, i, _)| (std::cmp::Reverse(uses), i));
        let mut of = vec![None; program.insts.len()];
        for (number, &(_, i, _)) in found.iter().enumerate() {
            of[i] = u16::try_from(number).ok();
        }
        Constants { words: found.into_iter().map(|f| f.2).collect(), of }
    }
}

#[derive(Clone, Copy)]
struct Assignment {
    reg: u8,
    slot: Option<u16>,
}

struct Allocator<'a> {
    program: &'a KernelProgram,
    registers: &'a Registers,
    constants: &'a Constants,
    /// The number of constants that have registers, from `pins` on.
    pinned: usize,
    pins: u8,
    assignments: Vec<Assignment>,
    /// The positions of each value's uses, the next use last.
    uses: Vec<SmallVec<[u32; 4]>>,
    /// The value in each register.
    vectors: Vec<Option<Value>>,
    masks: Vec<Option<Value>>,
    most_used: usize,
    out: Allocated,
}

impl<'a> Allocator<'a> {
    fn new(
        program: &'a KernelProgram,
        registers: &'a Registers,
        constants: &'a Constants,
        pinned: usize,
    ) -> Allocator<'a> {
        let mut uses = vec![SmallVec::new(); program.insts.len()];
        for (i, inst) in program.insts.iter().enumerate().rev() {
            inst.uses().for_each(|v| uses[v.0 as usize].push(i as u32));
        }
        let pins = registers.vectors - pinned as u8;
        let mut allocator = Allocator {
            program,
            registers,
            constants,
            pinned,
            pins,
            assignments: vec![Assignment { reg: NONE, slot: None }; program.insts.len()],
            uses,
            vectors: vec![None; pins as usize],
            masks: vec![None; registers.masks.len()],
            most_used: 0,
            out: Allocated::default(),
        };
        for number in 0..pinned as u16 {
            let step = Step::Constant { reg: pins + number as u8, number };
            allocator.out.setup.push(step);
        }
        allocator
    }

    fn finish(self, constants: &Constants) -> Allocated {
        Allocated { constants: constants.words.clone(), ..self.out }
    }

    fn run(&mut self) -> Option<()> {
        self.carries();
        let mut invariants = 0;
        for (i, inst) in self.program.insts.iter().enumerate() {
            if matches!(inst, Inst::Splat(..)) {
                self.invariant(Value(i as u32), &mut invariants)?;
            }
        }
        let (mut end, looped) = (0, self.program.looped());
        for (i, inst) in self.program.insts.iter().enumerate() {
            match inst {
                Inst::Const(..)
                | Inst::Splat(..)
                | Inst::Accumulator(_)
                | Inst::Other(_)
                | Inst::Carry(..) => {}
                _ => self.inst(i, inst)?,
            }
            if i + 1 == looped {
                end = self.out.body.len();
            }
        }
        self.out.combine = self.out.body.split_off(end);
        Some(())
    }

    /// Gives each carry its place.
    fn carries(&mut self) {
        let Some(cycle) = &self.program.cycle else { return };
        for number in 0..cycle.carries.len() {
            let location = match number < self.registers.carries as usize {
                true => Location::Carry(number as u8),
                false => Location::Slot(self.new_slot()),
            };
            self.out.carries.push(location);
        }
        for (at, inst) in self.program.insts.iter().enumerate() {
            if let Inst::Carry(number, _) = *inst
                && let Location::Slot(slot) = self.out.carries[number as usize]
            {
                self.assignments[at] = Assignment { reg: NONE, slot: Some(slot) };
            }
        }
    }

    /// Sets up a loop-invariant value. Its last use is at the end of the loop.
    fn invariant(&mut self, value: Value, count: &mut usize) -> Option<()> {
        self.uses[value.0 as usize].insert(0, u32::MAX);
        let at = value.0;
        let operands = [Location::Reg(NONE); 3];
        let out = self.take(value, &[])?;
        self.out.setup.push(Step::Inst { at, out, operands });
        let vector = !self.in_mask(value);
        *count += vector as usize;
        if vector && *count > self.registers.invariants {
            let slot = self.new_slot();
            self.out.setup.push(Step::Spill { reg: Reg::Vector(out), slot });
            self.vectors[out as usize] = None;
            self.assignments[at as usize] = Assignment { reg: NONE, slot: Some(slot) };
        }
        Some(())
    }

    /// Whether the value is in a mask register.
    fn in_mask(&self, value: Value) -> bool {
        self.lane(value) == Lane::Mask && !self.masks.is_empty()
    }

    fn lane(&self, value: Value) -> Lane {
        self.program.insts[value.0 as usize].lane().expect("stores define nothing")
    }

    fn new_slot(&mut self) -> u16 {
        self.out.slots += 1;
        self.out.slots - 1
    }

    fn inst(&mut self, i: usize, inst: &Inst) -> Option<()> {
        let operands: SmallVec<[Value; 3]> = inst.uses().collect();
        // The last operand of these instructions may be in memory.
        let in_memory = match inst {
            Inst::Binary(..) | Inst::Compare(..) => Some(1),
            Inst::Select { .. } => Some(1),
            Inst::Fma(..) => Some(2),
            _ => None,
        };
        let mut locations = [Location::Reg(NONE); 3];
        let mut temporaries: SmallVec<[u8; 2]> = SmallVec::new();
        for (k, &value) in operands.iter().enumerate() {
            locations[k] = match self.location(value) {
                location @ (Location::Reg(_)
                | Location::Accumulator
                | Location::Other
                | Location::Carry(_)) => location,
                location if Some(k) == in_memory => location,
                Location::Slot(slot) => {
                    let reg = self.take(value, &operands)?;
                    let saved = self.register(value, reg);
                    self.out.body.push(Step::Reload { reg: saved, slot });
                    Location::Reg(reg)
                }
                Location::Constant(number) => {
                    let reg = self.free(false, &operands)?;
                    self.vectors[reg as usize] = Some(value);
                    temporaries.push(reg);
                    self.out.body.push(Step::Constant { reg, number });
                    Location::Reg(reg)
                }
            };
        }
        temporaries.iter().for_each(|&reg| self.vectors[reg as usize] = None);
        // The operands of a call are read after its result is written.
        let repairs = matches!(inst, Inst::Repair { .. });
        let early = if repairs { Some(self.take(Value(i as u32), &operands)?) } else { None };
        for &value in &operands {
            self.used(value, i as u32);
        }
        let out = match (early, inst.lane()) {
            (Some(out), _) => out,
            // The result's register must not evict operands that are still to be read.
            (None, Some(_)) => self.take(Value(i as u32), &operands)?,
            (None, None) => NONE,
        };
        self.out.body.push(Step::Inst { at: i as u32, out, operands: locations });
        if inst.lane().is_some() && self.uses[i].is_empty() {
            self.release(Value(i as u32));
        }
        Some(())
    }

    fn location(&self, value: Value) -> Location {
        match self.program.insts[value.0 as usize] {
            Inst::Accumulator(_) => return Location::Accumulator,
            Inst::Other(_) => return Location::Other,
            Inst::Carry(number, _) if number < self.registers.carries as u16 => {
                return Location::Carry(number as u8);
            }
            _ => {}
        }
        if let Some(number) = self.constants.of[value.0 as usize] {
            return match (number as usize) < self.pinned {
                true => Location::Reg(self.pins + number as u8),
                false => Location::Constant(number),
            };
        }
        match self.assignments[value.0 as usize] {
            Assignment { reg: NONE, slot: Some(slot) } => Location::Slot(slot),
            Assignment { reg, .. } => Location::Reg(reg),
        }
    }

    /// Records a use; frees the register after the last use.
    fn used(&mut self, value: Value, at: u32) {
        let uses = &mut self.uses[value.0 as usize];
        while uses.last() == Some(&at) {
            uses.pop();
        }
        if uses.is_empty() && self.constants.of[value.0 as usize].is_none() {
            self.release(value);
        }
    }

    fn release(&mut self, value: Value) {
        let reg = std::mem::replace(&mut self.assignments[value.0 as usize].reg, NONE);
        if reg != NONE {
            *self.holder(value, reg) = None;
        }
    }

    /// The value in the register `reg` of the kind that the value needs.
    fn holder(&mut self, value: Value, reg: u8) -> &mut Option<Value> {
        match self.register(value, reg) {
            Reg::Mask(reg) => &mut self.masks[(reg - self.registers.masks.start) as usize],
            Reg::Vector(reg) => &mut self.vectors[reg as usize],
        }
    }

    fn register(&self, value: Value, reg: u8) -> Reg {
        if self.in_mask(value) { Reg::Mask(reg) } else { Reg::Vector(reg) }
    }

    /// Allocates a register for a value.
    fn take(&mut self, value: Value, pinned: &[Value]) -> Option<u8> {
        let reg = self.free(self.in_mask(value), pinned)?;
        *self.holder(value, reg) = Some(value);
        self.assignments[value.0 as usize].reg = reg;
        Some(reg)
    }

    /// A free register, after an eviction if necessary; values in `pinned` are not evicted.
    fn free(&mut self, mask: bool, pinned: &[Value]) -> Option<u8> {
        let all = if mask { &self.masks } else { &self.vectors };
        let first = if mask { self.registers.masks.start } else { 0 };
        if let Some(free) = all.iter().position(Option::is_none) {
            if !mask {
                let used = all.iter().filter(|v| v.is_some()).count();
                self.most_used = self.most_used.max(used + 1).max(free + 1);
            }
            return Some(first + free as u8);
        }
        if !mask {
            self.most_used = self.vectors.len();
        }
        let next_use = |v: &Value| self.uses[v.0 as usize].last().copied().unwrap_or(u32::MAX);
        let evictable = |(reg, holder): (usize, &Option<Value>)| {
            let value = (*holder)?;
            let constant = self.constants.of[value.0 as usize].is_some();
            // The next iteration expects an invariant without a slot in the same register.
            let splat = matches!(self.program.insts[value.0 as usize], Inst::Splat(..));
            let fixed = splat && self.assignments[value.0 as usize].slot.is_none();
            (!constant && !fixed && !pinned.contains(&value)).then_some((
                next_use(&value),
                reg,
                value,
            ))
        };
        let (_, at, victim) = all.iter().enumerate().filter_map(evictable).max_by_key(|e| e.0)?;
        let reg = first + at as u8;
        let assignment = self.assignments[victim.0 as usize];
        if assignment.slot.is_none() {
            let slot = self.new_slot();
            self.out.body.push(Step::Spill { reg: self.register(victim, reg), slot });
            self.assignments[victim.0 as usize].slot = Some(slot);
        }
        self.assignments[victim.0 as usize].reg = NONE;
        *self.holder(victim, reg) = None;
        Some(reg)
    }
}
