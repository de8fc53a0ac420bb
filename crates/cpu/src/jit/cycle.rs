//! Functions of cycles: loops whose carries stay in registers. For some vectors at a time, the
//! function loads the carries from their states, runs the steps until they are done or the
//! condition is false, and stores the carries.

use super::allocate::{Allocated, Location, Registers, Step, allocate};
use super::asm::{Condition, Gpr, Label, Mem, Source, VectorOp};
use super::emitter::{
    COUNT, Emitter, Encoder, INDEX, LOAD, RBP, ROWS, SAVED_ARGUMENTS, STORE, STORE_32, STORE_64,
    TABLE,
};
use super::ir::{At, Binary, Builder, Compare, Element, Inst, KernelProgram, Lane, Value};
use super::lower::Lower;
use super::ops::element;
use super::symbols::{self, Symbol};
use super::{arena, avx2, function};
use girih_exec::{
    CYCLE_FAILED, CYCLE_LANES, CYCLE_STATE, CompiledCycle, CycleChain, CycleDef, Isa,
};
use girih_ir::DType;

/// The maximum number of vectors whose steps run at a time.
const MAX_PARTS: usize = 4;
/// The distance in bytes from the first state of a scalar carry to the last one.
const LAST: i32 = CYCLE_STATE as i32;
/// The approximate time of one instruction of a step in picoseconds, most of which wait for the
/// one before.
const INST_PS: usize = 700;

/// A cycle: the program is run for one vector until its steps end, then for the next vector.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cycle {
    /// The carries.
    pub carries: Vec<Carry>,
    /// The memories that are read and written at computed indices.
    pub memories: Vec<Memory>,
    /// The pointer to the place of an index out of bounds and the number of its memory.
    pub failure: u16,
    /// The number of bytes by which each pointer advances from step to step.
    pub advances: Vec<i32>,
    /// The number of elements of the vectors; 1 if there are none.
    pub points: usize,
    /// The number of vectors whose steps are run at a time, so that the processor need not wait for
    /// one operation after another.
    pub parts: u8,
}

/// A carry of a cycle, in words or 64-bit elements of memory (its state) before and after the steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Carry {
    /// The pointer to the state.
    pub pointer: u16,
    pub lane: Lane,
    /// Whether all vectors have the same state.
    pub scalar: bool,
}

/// A memory of a cycle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Memory {
    pub pointer: u16,
    /// The number of elements.
    pub size: usize,
}

/// A compiled cycle.
pub(super) struct CycleFunction {
    /// Declared before the code, so that a debugger forgets the name before the memory is freed.
    _symbol: Symbol,
    code: arena::Code,
    step_ps: usize,
}

impl CycleFunction {
    /// Compiles a cycle; `None` if it exceeds the encoder's limits, or if there is no memory for
    /// the code.
    pub fn new(chain: &CycleChain, name: &str) -> Option<CycleFunction> {
        if !function::enabled() {
            return None;
        }
        let mut program = lower(chain)?;
        let points = program.cycle.as_ref()?.points;
        let lanes = 32 / if program.is_wide() { 8 } else { 4 };
        let whole = points.is_multiple_of(lanes) || points == 1;
        if !whole && has_narrow_vectors(&program) {
            return None;
        }
        let vectors = points.div_ceil(lanes);
        // Carries of all parts have registers.
        let most = (avx2::CARRIES as usize / chain.carries.len().max(1)).min(MAX_PARTS);
        let at_a_time = (points / lanes).min(most).max(1);
        let code = (1..=at_a_time).rev().find_map(|parts| {
            program.cycle.as_mut()?.parts = parts as u8;
            compile(&program)
        })?;
        let step_ps = INST_PS * program.work() * vectors;
        let code = arena::install(&code)?;
        let _symbol = symbols::announce(&code, name);
        Some(CycleFunction { _symbol, code, step_ps })
    }
}

impl CompiledCycle for CycleFunction {
    unsafe fn run(&self, pointers: &[*mut u8], steps: usize) -> usize {
        // The second argument is that of other functions, the number of elements.
        type Run = unsafe extern "sysv64" fn(*const *mut u8, usize, usize) -> usize;
        debug_assert!(steps > 0);
        // SAFETY: the address is that of a function generated for this machine with this signature;
        // it follows the calling convention, and the code lives as long as `self`. Its loads and
        // stores are those of the cycle, for which the caller vouches.
        unsafe {
            let run: Run = std::mem::transmute(self.code.address());
            run(pointers.as_ptr(), 0, steps)
        }
    }

    fn step_ps(&self) -> usize {
        self.step_ps
    }

    fn code(&self) -> &[u8] {
        self.code.bytes()
    }
}

/// The code of a program; `None` if there are too few registers. It is AVX2's on every machine: most
/// cycles have scalars or a few elements, which wider registers would not compute faster.
fn compile(program: &KernelProgram) -> Option<Vec<u8>> {
    avx2::emit(program, &allocate(program, &avx2::registers(program))?)
}

/// Whether the program loads or stores vectors of elements of fewer than 32 bits.
fn has_narrow_vectors(program: &KernelProgram) -> bool {
    program.insts.iter().any(|inst| match inst {
        Inst::Load(_, element) | Inst::Store(_, element, _) => element.size() < 4,
        _ => false,
    })
}

/// The program of a cycle.
fn lower(chain: &CycleChain) -> Option<KernelProgram> {
    let mut lower = Lower { b: Builder::new(Isa::Avx2), ..Lower::default() };
    let mut advances = vec![];
    for def in &chain.defs {
        if let CycleDef::Input { advance, .. } = def {
            lower.b.pointer();
            advances.push(*advance);
        }
    }
    let carries = chain.carries.iter().map(|carry| {
        let lane = if carry.element_bytes() == 8 { Lane::Wide } else { Lane::Word };
        Carry { pointer: lower.b.pointer(), lane, scalar: carry.scalar }
    });
    let carries: Vec<Carry> = carries.collect();
    advances.resize(advances.len() + carries.len(), 0);
    let memories = chain.memories.iter().map(|memory| {
        advances.push(memory.advance);
        Memory { pointer: lower.b.pointer(), size: memory.size }
    });
    let memories: Vec<Memory> = memories.collect();
    let failure = lower.b.pointer();
    advances.push(0);
    let mut inputs = 0;
    for (number, def) in chain.defs.iter().enumerate() {
        leave_before(chain, &lower, number)?;
        let value = match def {
            CycleDef::Value(def) => lower.def(def)?,
            CycleDef::Carry { number, dtype } => carried(&lower.b, *number, *dtype, &carries)?,
            CycleDef::Gather { memory, index, dtype } => {
                let index = lower.values[*index as usize];
                lower.b.push(Inst::Gather(*memory, element(*dtype)?, index))
            }
            CycleDef::Put { memory, index, value, dtype } => {
                let index = lower.values[*index as usize];
                let (element, value) = lane(&lower.b, lower.values[*value as usize], *dtype)?;
                lower.b.push(Inst::Put(*memory, element, index, value))
            }
            CycleDef::Input { dtype, scalar, advance } => {
                let (at, element) = (At { pointer: inputs, bytes: 0 }, element(*dtype)?);
                inputs += 1;
                lower.b.push(match (scalar, advance) {
                    (true, 0) => Inst::Splat(at, element),
                    (true, _) => Inst::Broadcast(at, element),
                    (false, _) => Inst::Load(at, element),
                })
            }
        };
        lower.values.push(value);
    }
    leave_before(chain, &lower, chain.defs.len())?;
    for store in &chain.stores {
        let pointer = lower.b.pointer();
        advances.push(store.advance);
        let dtype = chain.defs[store.value as usize].dtype();
        let value = lower.values[store.value as usize];
        lower.b.push(match store.scalar {
            false => Inst::Store(pointer, element(dtype)?, value),
            true => {
                let (element, value) = lane(&lower.b, value, dtype)?;
                Inst::StoreFirst(pointer, element, value)
            }
        });
    }
    set_carries(chain, &lower);
    let (points, parts) = (chain.points, 1);
    lower.b.cycle(Cycle { carries, memories, failure, advances, points, parts });
    let mut program = lower.b.finish();
    let vectors = |inst: &Inst| matches!(inst, Inst::Load(..) | Inst::Store(..));
    if chain.carries.iter().all(|carry| carry.scalar) && !program.insts.iter().any(vectors) {
        program.cycle.as_mut()?.points = 1;
    }
    Some(program)
}

/// Ends the cycle if its condition, whose values are those before `number`, is false.
fn leave_before(chain: &CycleChain, lower: &Lower, number: usize) -> Option<()> {
    if let Some((condition, values)) = chain.condition
        && values == number
    {
        let condition = lower.values[condition as usize];
        if lower.b.lane(condition) != Lane::Mask {
            return None;
        }
        // Only comparisons leave no lane beyond the vector in a mask.
        let b = &lower.b;
        let condition = match b.inst(condition) {
            Inst::Compare(..) => condition,
            _ => b.compare(Compare::GtI, as_word(b, condition), b.word(0)),
        };
        b.push(Inst::Leave(condition));
    }
    Some(())
}

/// The value of a carry; a bool is 0 or 1 in its state.
fn carried(b: &Builder, number: u16, dtype: DType, carries: &[Carry]) -> Option<Value> {
    element(dtype)?;
    let carry = b.push(Inst::Carry(number, carries[number as usize].lane));
    Some(match dtype {
        DType::Bool => b.not(b.compare(Compare::EqI, carry, b.word(0))),
        _ => carry,
    })
}

/// The form in which the first lane of a value is stored: a bool as a byte.
fn lane(b: &Builder, value: Value, dtype: DType) -> Option<(Element, Value)> {
    Some(match dtype {
        DType::Bool => (Element::Byte { signed: false }, as_word(b, value)),
        _ => (element(dtype)?, value),
    })
}

/// A mask as 0 or 1.
fn as_word(b: &Builder, mask: Value) -> Value {
    b.select(mask, b.word(1), b.word(0))
}

/// Sets all carries, after everything that reads them.
fn set_carries(chain: &CycleChain, lower: &Lower) {
    let b = &lower.b;
    let next = |next: u16| {
        let value = lower.values[next as usize];
        match b.inst(value) {
            _ if b.lane(value) == Lane::Mask => as_word(b, value),
            // The carry may be set before it is read.
            Inst::Carry(_, lane) => b.push(Inst::Binary(Binary::Or, lane, value, value)),
            _ => value,
        }
    };
    let values: Vec<Value> = chain.carries.iter().map(|carry| next(carry.next)).collect();
    for (number, value) in values.into_iter().enumerate() {
        b.push(Inst::SetCarry(number as u16, value));
    }
}

/// The state of an emitter that emits a cycle.
pub(super) struct CycleState<'a> {
    carries: &'a [Location],
    /// The register of the first carry, for the part that is being emitted.
    pub first: u8,
    /// The number of elements from the index to the part that is being emitted.
    pub ahead: i32,
    /// The end of the steps, for the first part.
    end: Option<Label>,
    /// The end of the function, for failures.
    exit: Option<Label>,
    /// The failures: where they are handled, and the numbers of the memories.
    failures: Vec<(Label, u16)>,
    framed: bool,
}

impl<'a> CycleState<'a> {
    pub fn new(allocated: &'a Allocated) -> CycleState<'a> {
        CycleState {
            carries: &allocated.carries,
            first: 0,
            ahead: 0,
            end: None,
            exit: None,
            failures: vec![],
            framed: false,
        }
    }
}

impl<'a, M> Emitter<'a, M>
where
    Emitter<'a, M>: Encoder,
{
    /// The register that counts the steps.
    const LEFT: Gpr = Self::POINTERS[Self::POINTERS.len() - 1];

    /// The registers for the values and carries of a cycle. Carries of all parts have registers.
    pub fn cycle_registers(cycle: &Cycle) -> Registers {
        let all = cycle.carries.len() as u8;
        let carries = match cycle.parts {
            1 => all.min(Self::CARRIES),
            _ => all,
        };
        let vectors = Self::REGISTERS.vectors.saturating_sub(carries.saturating_mul(cycle.parts));
        Registers { vectors, carries, ..Self::REGISTERS }
    }

    /// The function `(table of pointers, unused, number of steps)`, which returns the number of steps
    /// that are left.
    pub fn cycle_function(mut self, cycle: &Cycle, allocated: &Allocated) -> Vec<u8> {
        let used = |reg: &&Gpr| **reg == Self::LEFT || self.bases.contains(&Some(**reg));
        let saved: Vec<Gpr> =
            Self::POINTERS[Self::CALLER_SAVED..].iter().filter(used).copied().collect();
        saved.iter().for_each(|&reg| self.asm.push(reg));
        SAVED_ARGUMENTS.iter().for_each(|&reg| self.asm.push(reg));
        let frame = self.frame(allocated);
        let framed = frame > 0;
        if framed {
            self.asm.push(RBP);
            self.asm.enter_frame(frame);
        }
        let exit = self.asm.label();
        (self.cycle.exit, self.cycle.framed) = (Some(exit), framed);
        self.steps(&allocated.setup);
        self.asm.zero(INDEX);
        match cycle.points > 1 {
            true => self.all_vectors(cycle, &allocated.body, framed),
            false => self.vectors(cycle, 1, &allocated.body, framed),
        }
        self.asm.bind(exit);
        self.asm.copy(INDEX, Self::LEFT);
        self.end_function(&saved, framed)
    }

    /// Emits the steps for as many vectors at a time as there are parts, then for single vectors,
    /// then for the elements that are left.
    fn all_vectors(&mut self, cycle: &Cycle, body: &[Step], framed: bool) {
        let lanes = self.lanes as usize;
        let mut done = 0;
        for parts in [cycle.parts, 1] {
            let step = parts as usize * lanes;
            let end = done + (cycle.points - done) / step * step;
            if end > done {
                let next = self.asm.label();
                self.asm.bind(next);
                self.vectors(cycle, parts, body, framed);
                self.asm.add(INDEX, step as i32);
                if end > done + step {
                    self.asm.set(COUNT, end as u64);
                    self.asm.compare(INDEX, COUNT);
                    self.asm.jump_if(Condition::Below, next);
                }
            }
            done = end;
        }
        if cycle.points > done {
            self.asm.set(COUNT, (cycle.points - done) as u64);
            self.start_partial();
            self.vectors(cycle, 1, body, framed);
            self.end_partial();
        }
    }

    /// Emits all steps for some vectors.
    fn vectors(&mut self, cycle: &Cycle, parts: u8, body: &[Step], framed: bool) {
        let (base, place) = Self::saved(framed);
        self.asm.load(TABLE, base, place(TABLE));
        self.carries(cycle, parts, false);
        for (i, base) in self.bases.iter().enumerate() {
            if let Some(base) = base {
                self.asm.load(*base, TABLE, 8 * i as i32);
            }
        }
        self.asm.load(Self::LEFT, base, place(ROWS));
        let (step, end) = (self.asm.label(), self.asm.label());
        self.asm.align(32);
        self.asm.bind(step);
        for part in 0..parts {
            self.set_part(cycle, part);
            self.cycle.end = (part == 0).then_some(end);
            self.steps(body);
        }
        self.set_part(cycle, 0);
        for i in 0..self.bases.len() {
            if let (Some(base), 1.. | ..=-1) = (self.bases[i], cycle.advances[i]) {
                self.asm.add(base, cycle.advances[i]);
            }
        }
        self.asm.sub(Self::LEFT, 1);
        self.asm.jump_if(Condition::NotEqual, step);
        self.asm.bind(end);
        // The counter is returned, and the other registers are free.
        self.asm.load(TABLE, base, place(TABLE));
        self.carries(cycle, parts, true);
    }

    /// Selects the registers and elements of a part.
    fn set_part(&mut self, cycle: &Cycle, part: u8) {
        let each = Self::cycle_registers(cycle).carries;
        let first = Self::SCRATCH - each * cycle.parts;
        self.cycle.first = first + each * part;
        self.cycle.ahead = part as i32 * self.lanes;
    }

    /// Loads the carries of some vectors from their states, or stores them.
    fn carries(&mut self, cycle: &Cycle, parts: u8, store: bool) {
        // Registers of pointers are loaded after the carries, and not needed after the steps.
        let state = Self::POINTERS[0];
        for part in 0..parts {
            self.set_part(cycle, part);
            for (number, carry) in cycle.carries.iter().enumerate() {
                self.asm.load(state, TABLE, 8 * carry.pointer as i32);
                let bytes = if carry.lane == Lane::Wide { 8 } else { 4 };
                let displacement = self.cycle.ahead * bytes;
                let memory = Source::Mem(match carry.scalar {
                    // The next vectors start from the same state, so the last one has its own place.
                    true => Mem::Offset { base: state, displacement: if store { LAST } else { 0 } },
                    false => {
                        Mem::Indexed { base: state, index: INDEX, scale: bytes as u8, displacement }
                    }
                });
                let reg = match self.cycle.carries[number] {
                    Location::Carry(at) => self.cycle.first + at,
                    _ => Self::SCRATCH,
                };
                let slot = match self.cycle.carries[number] {
                    Location::Slot(slot) => Some(Self::slot(slot)),
                    _ => None,
                };
                let load = self.on_floats(carry.lane, LOAD);
                let save = self.on_floats(carry.lane, STORE);
                if store {
                    if let Some(slot) = slot {
                        self.plain(self.whole(LOAD), reg, 0, slot);
                    }
                    self.plain(save, reg, 0, memory);
                } else {
                    self.plain(load, reg, 0, memory);
                    if let Some(slot) = slot {
                        self.plain(self.whole(STORE), reg, 0, slot);
                    }
                }
            }
        }
        self.set_part(cycle, 0);
    }

    /// Loads the element of a step into all lanes.
    pub fn broadcast(&mut self, at: At, element: Element, out: u8) {
        let from = Mem::Offset { base: self.base(at.pointer), displacement: at.bytes };
        self.splat_element(from, element, out);
    }

    /// Sets a carry to a register.
    pub fn set_carry(&mut self, number: u16, from: u8) {
        match self.cycle.carries[number as usize] {
            Location::Carry(at) => {
                let to = self.cycle.first + at;
                self.plain(self.whole(LOAD), to, 0, Source::Reg(from));
            }
            Location::Slot(slot) => self.plain(self.whole(STORE), from, 0, Self::slot(slot)),
            location => unreachable!("a carry in {location:?}"),
        }
    }

    /// Ends the steps if the mask has no lane. The condition is the same in all parts.
    pub fn leave_cycle(&mut self, mask: u8) {
        if let Some(end) = self.cycle.end {
            self.test_mask(mask);
            self.asm.jump_if(Condition::Equal, end);
        }
    }

    /// Sets the table's register to an index of a memory, counted from the front. The registers of
    /// the table and of the count are free during the steps.
    fn index(&mut self, memory: u16, index: u8) {
        const TO_GENERAL: VectorOp = VectorOp { wide: true, ..STORE_32 };
        let Some(cycle) = &self.program.cycle else { return };
        let (inside, fails) = (self.asm.label(), self.asm.label());
        self.plain(TO_GENERAL, index, 0, Source::Reg(TABLE.0));
        self.asm.set(COUNT, cycle.memories[memory as usize].size as u64);
        self.asm.compare(TABLE, COUNT);
        self.asm.jump_if(Condition::Below, inside);
        // Negative indices count from the end.
        self.asm.add_reg(TABLE, COUNT);
        self.asm.compare(TABLE, COUNT);
        self.asm.jump_if(Condition::NotBelow, fails);
        self.asm.bind(inside);
        self.cycle.failures.push((fails, memory));
    }

    /// The element that [`Self::index`] has found.
    fn indexed(&self, memory: u16, element: Element) -> Option<Mem> {
        let pointer = self.program.cycle.as_ref()?.memories[memory as usize].pointer;
        let (base, scale) = (self.base(pointer), element.size() as u8);
        Some(Mem::Indexed { base, index: TABLE, scale, displacement: 0 })
    }

    /// Loads the element at an index into all lanes.
    pub fn gather(&mut self, memory: u16, element: Element, index: u8, out: u8) {
        self.index(memory, index);
        if let Some(from) = self.indexed(memory, element) {
            self.splat_element(from, element, out);
        }
    }

    /// Stores the first lane at an index.
    pub fn put(&mut self, memory: u16, element: Element, index: u8, value: u8) {
        self.index(memory, index);
        if let Some(to) = self.indexed(memory, element) {
            self.store_lane(element, value, to);
        }
    }

    /// Emits what happens when an index is out of bounds: it is stored with the number of its
    /// memory, and all steps count as left.
    pub fn failures(&mut self) {
        let (Some(cycle), Some(exit)) = (&self.program.cycle, self.cycle.exit) else { return };
        let (base, place) = Self::saved(self.cycle.framed);
        for (label, memory) in std::mem::take(&mut self.cycle.failures) {
            self.asm.bind(label);
            self.asm.sub_reg(TABLE, COUNT);
            self.asm.load(COUNT, base, place(TABLE));
            self.asm.load(COUNT, COUNT, 8 * cycle.failure as i32);
            self.asm.store(COUNT, 0, TABLE);
            self.asm.set(TABLE, memory as u64);
            self.asm.store(COUNT, 8, TABLE);
            self.asm.set(Self::LEFT, CYCLE_FAILED as u64);
            self.asm.jump(exit);
        }
    }

    /// Stores the first lane.
    pub fn store_first(&mut self, pointer: u16, element: Element, value: u8) {
        let to = Mem::Offset { base: self.base(pointer), displacement: 0 };
        self.store_lane(element, value, to);
    }

    /// Stores the first lane at an address. The register of the count is free during the steps.
    fn store_lane(&mut self, element: Element, value: u8, to: Mem) {
        match element {
            Element::Wide => self.plain(STORE_64, value, 0, Source::Mem(to)),
            Element::Word => self.plain(STORE_32, value, 0, Source::Mem(to)),
            element => {
                self.plain(STORE_32, value, 0, Source::Reg(COUNT.0));
                self.asm.store_element(COUNT, to, element.size() as u8);
            }
        }
    }
}

const _: () = assert!(CYCLE_LANES * 4 >= 64, "a vector of words is no longer than a state");
