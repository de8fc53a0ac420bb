//! Cycles: loops whose steps are elementwise ops on scalars, or on vectors of one length. A code
//! generator ([`super::Compiler`]) compiles all of such a loop to one function, which keeps the
//! carries in registers. Since no element of a vector depends on another one, the function runs all
//! steps for a few elements, then all steps for the next ones. Scalars are computed beside all
//! elements.
//!
//! The function computes the same bits as the kernels of the loop's programs.

mod build;

use super::chain::Def;
use super::{Bindings, ExecError};
use girih_ir::DType;
use girih_kernel::BufferId;
use girih_kernel::control::{Feed, Splat};
use smallvec::SmallVec;

/// A value of a cycle; its number is its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CycleDef {
    /// The value of a carry at the start of the step.
    Carry {
        /// The number of the carry.
        number: u16,
        /// The dtype of the carry.
        dtype: DType,
    },
    /// Elements in memory.
    Input {
        /// The dtype of the elements.
        dtype: DType,
        /// Whether there is a single element, which all points take.
        scalar: bool,
        /// The number of bytes from the elements of one step to those of the next step; 0 if all
        /// steps take the same ones.
        advance: i32,
    },
    /// A constant, or an op on earlier values.
    Value(Def),
    /// The element at an index of a memory. A negative index counts from the end; an index out of
    /// bounds ends the cycle with an error.
    Gather {
        /// The number of the memory.
        memory: u16,
        /// The index: a scalar of i64.
        index: u16,
        /// The dtype of the element.
        dtype: DType,
    },
    /// Replaces the element at an index of a memory. It is no value for others.
    Put {
        /// The number of the memory.
        memory: u16,
        /// The index: a scalar of i64.
        index: u16,
        /// The new element: a scalar.
        value: u16,
        /// The dtype of the element.
        dtype: DType,
    },
}

impl CycleDef {
    /// The value's dtype.
    pub fn dtype(&self) -> DType {
        match self {
            CycleDef::Carry { dtype, .. }
            | CycleDef::Input { dtype, .. }
            | CycleDef::Gather { dtype, .. }
            | CycleDef::Put { dtype, .. } => *dtype,
            CycleDef::Value(def) => def.dtype(),
        }
    }
}

/// A carry of a cycle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CycleCarry {
    /// The dtype of the elements.
    pub dtype: DType,
    /// Whether the carry has a single element.
    pub scalar: bool,
    /// The value at the end of the step.
    pub next: u16,
}

impl CycleCarry {
    /// The size of an element in the state: elements of less than 32 bits are extended to 32 bits.
    pub fn element_bytes(&self) -> usize {
        self.dtype.size().max(4)
    }
}

/// A value that each step stores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CycleStore {
    /// The value.
    pub value: u16,
    /// Whether a single element is stored.
    pub scalar: bool,
    /// The number of bytes from the elements of one step to those of the next step.
    pub advance: i32,
}

/// A memory whose elements are read and written at computed indices, in cycles of scalars.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CycleMemory {
    /// The number of elements.
    pub size: usize,
    /// The number of bytes from the elements of one step to those of the next step; 0 if all steps
    /// have the same ones.
    pub advance: i32,
}

/// The steps of a cycle. The pointers of its function are those of the inputs, in the order of
/// their definitions, of the state of each carry, of the memories, of two words for an index out of
/// bounds and the number of its memory, and of the stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CycleChain {
    /// The values.
    pub defs: Vec<CycleDef>,
    /// The condition on which another step is run, and the number of values that it takes, which
    /// are the first ones; `None` if the number of steps is known.
    pub condition: Option<(u16, usize)>,
    /// The carries.
    pub carries: Vec<CycleCarry>,
    /// The memories.
    pub memories: Vec<CycleMemory>,
    /// The stores.
    pub stores: Vec<CycleStore>,
    /// The number of elements of the vectors; 1 if there are only scalars.
    pub points: usize,
}

/// The maximum number of elements that a function handles at a time. The state of a carry has a
/// multiple of that number of elements, and a scalar is repeated that many times.
pub const CYCLE_LANES: usize = 16;

/// The size in bytes of the state of a scalar. A second one follows: the function reads the first
/// and writes the second, because all vectors start from the same scalars.
pub const CYCLE_STATE: usize = CYCLE_LANES * 8;

/// The result of a cycle's function if an index was out of bounds.
pub const CYCLE_FAILED: usize = usize::MAX;

/// A compiled cycle.
pub trait CompiledCycle: Send + Sync {
    /// Runs at most `steps` steps, at least one, and returns the number of steps that are left
    /// because the condition was false. The carries are read from the state, and written to it;
    /// scalars are written to a second state after it ([`CYCLE_STATE`]). Returns [`CYCLE_FAILED`] if
    /// an index was out of bounds.
    ///
    /// # Safety
    /// `pointers` holds the addresses that [`CycleChain`] describes. For all of the steps, inputs
    /// are valid for reads and stores for writes, and they are aligned to their dtypes; the states
    /// of carries are valid for both, are aligned to 64, and overlap nothing.
    unsafe fn run(&self, pointers: &[*mut u8], steps: usize) -> usize;

    /// The approximate time of one step in picoseconds.
    fn step_ps(&self) -> usize;

    /// The machine code with its constants, for inspection.
    fn code(&self) -> &[u8];
}

/// The source of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Origin {
    /// A buffer, from that byte on.
    Buffer(BufferId, usize),
    /// A run-time scalar.
    Argument(usize),
}

/// The memory of a carry outside of the cycle.
struct Place {
    from: Feed,
    /// The buffer of the last value, if it is needed.
    to: Option<BufferId>,
    kind: Kind,
    dtype: DType,
    numel: usize,
}

/// How the steps change a carry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Not at all.
    Fixed,
    /// They compute it; it has a state.
    State,
    /// They replace single elements, in its result's buffer.
    Memory,
}

/// The elements of a memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Held {
    /// Elements that the loop only reads.
    Read(Origin),
    /// The elements of the carry with that number among the places.
    Carry(usize),
}

/// A loop that is ready to run as a cycle.
pub struct FusedCycle {
    function: Box<dyn CompiledCycle>,
    chain: CycleChain,
    /// The number of steps, if it is known.
    length: Option<usize>,
    /// The source of each input.
    origins: Vec<Origin>,
    places: Vec<Place>,
    /// The buffer of each store, and the byte at which the first step stores.
    targets: Vec<(BufferId, usize)>,
    /// The source of each memory.
    memories: Vec<Held>,
    /// The number of bytes by which each pointer advances from step to step.
    advances: Vec<isize>,
    /// The number of steps between two looks at the clock.
    pace: usize,
}

/// 64 bytes of a state.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

/// The time between two looks at the clock, in picoseconds: much longer than a look.
const PACE_PS: usize = 50_000_000;

impl FusedCycle {
    /// The approximate time of all steps, in nanoseconds; of one step if their number is unknown.
    pub fn cost_ns(&self) -> u64 {
        let steps = self.length.unwrap_or(1);
        (self.function.step_ps().saturating_mul(steps) / 1000) as u64
    }

    /// The machine code with its constants, for inspection.
    pub fn code(&self) -> &[u8] {
        self.function.code()
    }

    /// Runs the loop. `proceed` is called now and then; an error ends the loop.
    ///
    /// Errors: those of `proceed`.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract for the kernel that the cycle was made from.
    pub unsafe fn run(
        &self,
        bindings: &Bindings<'_>,
        proceed: &mut dyn FnMut() -> Result<(), ExecError>,
    ) -> Result<(), ExecError> {
        let mut state = State::new(self);
        let mut failure = [0u64; 2];
        // SAFETY: the caller's promise.
        unsafe {
            self.fill(&mut state, bindings);
            let mut pointers = self.pointers(&mut state, bindings, &mut failure);
            let mut left = self.length.unwrap_or(usize::MAX);
            while left > 0 {
                proceed()?;
                let steps = left.min(self.pace);
                let missed = self.function.run(&pointers, steps);
                if missed == CYCLE_FAILED {
                    let size = self.chain.memories[failure[1] as usize].size;
                    let index = i128::from(failure[0] as i64);
                    return Err(ExecError::IndexOutOfBounds { index, size });
                }
                self.renew(&mut state);
                if missed > 0 {
                    break;
                }
                for (pointer, advance) in pointers.iter_mut().zip(&self.advances) {
                    *pointer = pointer.wrapping_offset(advance.wrapping_mul(steps as isize));
                }
                if self.length.is_some() {
                    left -= steps;
                }
            }
            self.finish(&mut state, bindings);
        }
        Ok(())
    }

    /// The carries that have a state, in the order of their numbers.
    fn changing(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| place.kind == Kind::State)
    }

    /// The addresses for the first step.
    ///
    /// # Safety
    /// As [`FusedCycle::run`].
    unsafe fn pointers(
        &self,
        state: &mut State,
        bindings: &Bindings<'_>,
        failure: &mut [u64; 2],
    ) -> SmallVec<[*mut u8; 16]> {
        let buffer = |id: &BufferId| bindings.buffers[id.0 as usize];
        let origin = |origin: &Origin| match origin {
            Origin::Buffer(id, byte) => buffer(id).wrapping_add(*byte),
            Origin::Argument(a) => bindings.arguments[*a].as_ptr() as *mut u8,
        };
        let mut pointers: SmallVec<[*mut u8; 16]> = self.origins.iter().map(origin).collect();
        pointers.extend((0..self.chain.carries.len()).map(|c| state.carry(c)));
        pointers.extend(self.memories.iter().map(|held| match held {
            Held::Read(from) => origin(from),
            Held::Carry(place) => self.memory(*place, state, bindings),
        }));
        pointers.push(failure.as_mut_ptr().cast());
        pointers.extend(self.targets.iter().map(|(id, byte)| buffer(id).wrapping_add(*byte)));
        pointers
    }

    /// The address of a carry that stays in memory, by its number among the places.
    fn memory(&self, place: usize, state: &mut State, bindings: &Bindings<'_>) -> *mut u8 {
        match self.places[place].to {
            Some(to) => bindings.buffers[to.0 as usize],
            None => state.scratch[place].as_mut_ptr().cast(),
        }
    }

    /// Sets the state to the first values of the carries.
    ///
    /// # Safety
    /// As [`FusedCycle::run`].
    unsafe fn fill(&self, state: &mut State, bindings: &Bindings<'_>) {
        for (at, place) in self.places.iter().enumerate() {
            if place.kind == Kind::Memory {
                let to = self.memory(at, state, bindings);
                // SAFETY: the result, or the scratch memory, is as large as the operand.
                unsafe { place.copy(place.value(bindings), place.dtype.size(), to) };
            }
        }
        for (number, (place, carry)) in self.changing().zip(&self.chain.carries).enumerate() {
            let (at, size) = (state.carry(number), carry.element_bytes());
            let (of, count) = match carry.scalar {
                true => (1, CYCLE_LANES),
                false => (place.numel, place.numel.next_multiple_of(CYCLE_LANES)),
            };
            let value = place.value(bindings);
            for i in 0..count {
                // The elements that fill the last vector are copies of the last one.
                let element = i.min(of - 1) * place.dtype.size();
                // SAFETY: the operand has `of` elements, and the state has `count`.
                unsafe {
                    let bits = match value {
                        Value::Bits(bits) => bits,
                        Value::Memory(from) => read(from.add(element), place.dtype),
                    };
                    write(at.add(i * size), bits, size);
                }
            }
        }
    }

    /// Makes the scalars that the function wrote those that it reads next.
    fn renew(&self, state: &mut State) {
        let scalars = self.chain.carries.iter().enumerate().filter(|(_, carry)| carry.scalar);
        for (number, _) in scalars {
            let first = state.starts[number];
            let lines = CYCLE_STATE / size_of::<Line>();
            state.lines.copy_within(first + lines..first + 2 * lines, first);
        }
    }

    /// Copies the carries to their results.
    ///
    /// # Safety
    /// As [`FusedCycle::run`].
    unsafe fn finish(&self, state: &mut State, bindings: &Bindings<'_>) {
        let mut number = 0;
        for place in &self.places {
            let (from, step) = match place.kind {
                Kind::Memory => continue,
                Kind::Fixed => (place.value(bindings), place.dtype.size()),
                Kind::State => {
                    let element = self.chain.carries[number].element_bytes();
                    number += 1;
                    (Value::Memory(state.carry(number - 1)), element)
                }
            };
            let Some(to) = place.to else { continue };
            // SAFETY: the result and its source have `numel` elements.
            unsafe { place.copy(from, step, bindings.buffers[to.0 as usize]) };
        }
    }
}

/// A carry's value outside of the cycle.
#[derive(Clone, Copy)]
enum Value {
    /// The same bits in all elements.
    Bits(u64),
    Memory(*const u8),
}

impl Place {
    /// The carry's first value.
    fn value(&self, bindings: &Bindings<'_>) -> Value {
        match self.from {
            Feed::Buffer(id) => Value::Memory(bindings.buffers[id.0 as usize]),
            Feed::Splat { value: Splat::Literal(literal), .. } => {
                Value::Bits(extended(literal.bits, self.dtype))
            }
            Feed::Splat { value: Splat::Scalar { argument, .. }, .. } => {
                Value::Bits(extended(bindings.arguments[argument][0], self.dtype))
            }
            Feed::Nothing => unreachable!("carries are in memory, or splats"),
        }
    }

    /// Copies a value of which elements are `step` bytes apart.
    ///
    /// # Safety
    /// Both are valid for the carry's elements, and do not overlap unless they are equal.
    unsafe fn copy(&self, from: Value, step: usize, to: *mut u8) {
        let size = self.dtype.size();
        if matches!(from, Value::Memory(from) if from == to.cast_const()) {
            return;
        }
        if let (Value::Memory(from), true) = (from, step == size) {
            // SAFETY: the caller's promise.
            return unsafe { to.copy_from_nonoverlapping(from, self.numel * size) };
        }
        for i in 0..self.numel {
            // SAFETY: the caller's promise.
            unsafe {
                let bits = match from {
                    Value::Bits(bits) => bits,
                    Value::Memory(from) => read(from.add(i * step), self.dtype),
                };
                write(to.add(i * size), bits, size);
            }
        }
    }
}

/// The states of a cycle's carries.
struct State {
    /// The elements of memories that are no results, by the number of their carry.
    scratch: Vec<Vec<u64>>,
    lines: SmallVec<[Line; 8]>,
    /// The line at which each carry begins.
    starts: SmallVec<[usize; 8]>,
}

impl State {
    fn new(cycle: &FusedCycle) -> State {
        let mut lines = 0;
        let mut starts = SmallVec::new();
        for (place, carry) in cycle.changing().zip(&cycle.chain.carries) {
            starts.push(lines);
            let bytes = match carry.scalar {
                true => 2 * CYCLE_STATE,
                false => place.numel.next_multiple_of(CYCLE_LANES) * carry.element_bytes(),
            };
            lines += bytes.div_ceil(size_of::<Line>());
        }
        let scratch = cycle.places.iter().map(|place| match (place.kind, place.to) {
            (Kind::Memory, None) => vec![0; (place.numel * place.dtype.size()).div_ceil(8)],
            _ => vec![],
        });
        let scratch = match cycle.memories.is_empty() {
            true => vec![],
            false => scratch.collect(),
        };
        State { scratch, lines: SmallVec::from_elem(Line([0; 64]), lines), starts }
    }

    fn carry(&mut self, number: usize) -> *mut u8 {
        self.lines.as_mut_ptr().wrapping_add(self.starts[number]).cast()
    }
}

/// The bits of an element, extended to 32 bits by its sign if it has fewer.
///
/// # Safety
/// The address is valid for an element of the dtype and aligned to it.
#[inline]
unsafe fn read(from: *const u8, dtype: DType) -> u64 {
    // SAFETY: the caller's promise.
    let bits = unsafe {
        match dtype.size() {
            1 => *from as u64,
            2 => *from.cast::<u16>() as u64,
            4 => *from.cast::<u32>() as u64,
            _ => *from.cast::<u64>(),
        }
    };
    extended(bits, dtype)
}

/// The low bits of a word as the state has them.
fn extended(bits: u64, dtype: DType) -> u64 {
    match dtype {
        DType::I8 => bits as i8 as u32 as u64,
        DType::I16 => bits as i16 as u32 as u64,
        _ if dtype.size() < 4 => bits & ((1 << (8 * dtype.size())) - 1),
        _ => bits,
    }
}

/// Writes the low bytes of a word.
///
/// # Safety
/// The address is valid for `bytes` bytes and aligned to them.
#[inline]
unsafe fn write(to: *mut u8, bits: u64, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            1 => *to = bits as u8,
            2 => *to.cast::<u16>() = bits as u16,
            4 => *to.cast::<u32>() = bits as u32,
            _ => *to.cast::<u64>() = bits,
        }
    }
}
