//! Loops for x86-64 with AVX-512 F, DQ, BW and VL, and BMI2: of 16 lanes, or of 8 if any value has
//! 64-bit lanes; 32-bit lanes then use half of a register.
//!
//! The function processes whole vectors, then the rest under a mask. It touches no memory beyond
//! the given elements, calls only functions for single lanes, and does not change the control
//! registers.

use super::allocate::{Allocated, Location, Registers, Step};
use super::arithmetic::Shift;
use super::asm::{Bits, Condition, Gpr, Label, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::emitter::{
    COUNT, Emitter, Encoder, FROM_HALF, INDEX, LOAD, RSP, SPLAT_64, STORE, TABLE, TO_HALF, op,
    widen,
};
use super::ir::{At, Compare, Element, Inst, KernelProgram, Lane, Logic};
use smallvec::SmallVec;

/// The mask of the last, partial iteration.
const TAIL: u8 = 1;
/// In the last iteration, the elements to be loaded of the two vectors of a load with stride two.
/// Programs with such loads have no values in these masks.
const NEAR: u8 = 2;
const FAR: u8 = 3;
/// In the last iteration, the lanes from an element on, for strided elements that are loaded one by
/// one. Programs with such loads have no values in this mask.
const ONWARD: u8 = 4;

const STREAM: VectorOp = op(Map::M0F, Prefix::None, 0x2b);
const NARROW_16: VectorOp = op(Map::M0F38, Prefix::PF3, 0x33);
const NARROW_8: VectorOp = op(Map::M0F38, Prefix::PF3, 0x31);
const NARROW_WIDE: VectorOp = op(Map::M0F38, Prefix::PF3, 0x35);
const TEST: VectorOp = op(Map::M0F38, Prefix::P66, 0x27);
const MASK_TO_WORDS: VectorOp = op(Map::M0F38, Prefix::PF3, 0x38);
const PERMUTE_TWO: VectorOp = op(Map::M0F38, Prefix::P66, 0x7f);
const BLEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x65);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// The conjunction of masks.
const MASK_AND: u8 = 0x41;

/// Emits the loop as a function `(table of pointers, number of elements)`; `None` if there are more
/// pointers than registers.
///
/// `streams` selects non-temporal stores of whole vectors; outputs must then be aligned to cache
/// lines.
pub(super) fn emit(
    program: &KernelProgram,
    allocated: &Allocated,
    streams: bool,
) -> Option<Vec<u8>> {
    let machine = Avx512 { streams, mask: 0, orders: orders(program), steps: vec![] };
    let emitter = Emitter::new(program, allocated, machine)?;
    Some(emitter.function(allocated))
}

/// The registers for a program's values.
pub(super) fn registers(program: &KernelProgram) -> Registers {
    let registers = Emitter::<Avx512>::registers(program);
    let orders = orders(program);
    let far = |i: &Inst| matches!(i, Inst::LoadEvery(_, _, step) if *step > 2);
    let masks = match orders.is_empty() {
        _ if program.insts.iter().any(far) => ONWARD + 1..8,
        true => registers.masks.clone(),
        false => FAR + 1..8,
    };
    Registers { masks, ..registers.without(orders.len() as u8) }
}

/// A vector of a strided load. `begin` is the offset of the vector from the first element. `lanes`
/// selects, for each lane, an element of the vectors before (below the number of lanes) or of this
/// vector (from the number of lanes on).
#[derive(Debug, PartialEq)]
struct StridedVector {
    begin: usize,
    lanes: Vec<u64>,
}

/// The vectors that hold `lanes` elements with stride `step`. None reaches beyond the last element.
fn strided_vectors(step: usize, lanes: usize) -> Vec<StridedVector> {
    let mut vectors: Vec<StridedVector> = vec![];
    let mut done = 0;
    while done < lanes {
        let begin = (done * step).min((lanes - 1) * step + 1 - lanes);
        let here = |i: &usize| (done..lanes).contains(i) && i * step < begin + lanes;
        let count = (0..lanes).filter(here).count();
        let lane = |i: usize| if here(&i) { lanes + i * step - begin } else { i } as u64;
        vectors.push(StridedVector { begin, lanes: (0..lanes).map(lane).collect() });
        done += count;
    }
    vectors
}

/// The lane types for which a program permutes two vectors in a load with stride two.
fn orders(program: &KernelProgram) -> SmallVec<[Lane; 2]> {
    let read = |lane: Lane| {
        let reads = |i: &Inst| matches!(i, Inst::LoadEvery(_, e, 2) if e.lane() == lane);
        program.insts.iter().any(reads)
    };
    [Lane::Word, Lane::Wide].into_iter().filter(|&lane| read(lane)).collect()
}

pub(super) struct Avx512 {
    /// Whether whole vectors are stored by non-temporal stores.
    streams: bool,
    /// The mask of memory accesses: no mask, or the mask of the tail.
    mask: u8,
    /// The permutations for stride two; each has a register after those for values.
    orders: SmallVec<[Lane; 2]>,
    /// Permutation constants of loads with other strides, by lane type, stride and vector.
    steps: Vec<(Lane, u8, usize, Vec<u8>)>,
}

impl Encoder for Emitter<'_, Avx512> {
    /// Mask 0 means no mask, and mask 1 is the mask of the tail.
    const REGISTERS: Registers = Registers { vectors: 31, masks: 2..8, invariants: 12, carries: 0 };
    const POINTERS: &'static [Gpr] = &[
        Gpr(2),
        Gpr(1),
        Gpr(8),
        Gpr(9),
        Gpr(10),
        Gpr(11),
        Gpr(3),
        Gpr(12),
        Gpr(13),
        Gpr(14),
        Gpr(15),
    ];
    const CALLER_SAVED: usize = 6;
    const BITS: Bits = Bits::B512;
    const WHOLE_CONSTANTS: bool = false;
    const SPLAT_WIDE: VectorOp = VectorOp { wide: true, ..SPLAT_64 };

    fn vector(&mut self, op: VectorOp, dst: u8, a: u8, b: Source, imm: Option<u8>) {
        self.asm.evex(op, dst, a, b, Masking::default(), imm);
    }

    fn frame(&self, allocated: &Allocated) -> i32 {
        Self::VECTOR * allocated.slots as i32
    }

    fn rest(&mut self, body: &[Step], done: Label) {
        let parts = self.parts();
        self.asm.sub_reg(COUNT, INDEX);
        self.asm.jump_if(Condition::Equal, done);
        self.machine.mask = TAIL;
        for part in 0..parts {
            self.asm.low_bits(TAIL, COUNT, TABLE);
            self.mask_even();
            self.part(part, body);
            if part + 1 < parts {
                self.go_on();
                self.asm.sub(COUNT, self.lanes);
                self.asm.jump_if(Condition::BelowOrEqual, done);
            }
        }
        self.machine.mask = 0;
    }

    /// The positions of the elements: the second vector begins where the first ends.
    fn constants(&self) -> Vec<Vec<u8>> {
        let lanes = self.lanes as u64;
        let place = |i: u64| if 2 * i < lanes { 2 * i } else { 2 * i + 1 };
        let of = |lane: &Lane| -> Vec<u8> {
            let size = if *lane == Lane::Wide { 8 } else { 4 };
            (0..lanes).flat_map(|i| place(i).to_le_bytes()[..size].to_vec()).collect()
        };
        let orders = self.machine.orders.iter().map(of);
        orders.chain(self.machine.steps.iter().map(|s| s.3.clone())).collect()
    }

    fn start(&mut self) {
        for lane in self.machine.orders.clone() {
            let (reg, number) = self.order(lane);
            let from = Source::Mem(Mem::Single(self.constants.len() as u16 + number));
            self.plain(self.on_floats(lane, LOAD), reg, 0, from);
        }
    }

    fn finish(&mut self) {
        if self.machine.streams {
            self.asm.store_fence();
        }
    }

    fn own(&mut self, inst: Inst, out: u8, [a, b, c]: [Location; 3]) {
        match inst {
            Inst::Compare(compare, lane, ..) => {
                let (op, predicate) = self.comparison(compare, lane);
                self.vector(op, out, self.reg(a), self.source(b), Some(predicate));
            }
            Inst::Logic(op, ..) => {
                let opcode = match op {
                    Logic::And => MASK_AND,
                    Logic::Or => 0x45,
                    Logic::Xor => 0x47,
                };
                self.asm.mask_op(opcode, out, self.reg(a), self.reg(b));
            }
            Inst::Not(_) => self.asm.mask_not(out, self.reg(a)),
            Inst::Select { lane, .. } => {
                let masking = Masking { mask: self.reg(a), zero: false };
                let (then, other) = (self.source(b), self.reg(c));
                self.asm.evex(self.on(lane, BLEND), out, other, then, masking, None);
            }
            _ => unreachable!("{inst:?} is written for all instruction sets"),
        }
    }

    fn accumulate(&mut self, lane: Lane, from: u8) {
        let masking = Masking { mask: self.machine.mask, zero: false };
        let copy = self.on_floats(lane, LOAD);
        self.asm.evex(copy, self.accumulator, 0, Source::Reg(from), masking, None);
    }

    fn load(&mut self, at: At, element: Element, out: u8) {
        let masking = Masking { mask: self.machine.mask, zero: self.machine.mask != 0 };
        let (op, to) = match element {
            Element::Wide => (self.on_floats(Lane::Wide, LOAD), out),
            Element::Word => (self.on_words(LOAD), out),
            Element::Half => (self.on_words(FROM_HALF), out),
            Element::BFloat16 => (self.on_words(widen(2, false)), out),
            Element::Short { signed } => (self.on_words(widen(2, signed)), out),
            Element::Byte { signed } => (self.on_words(widen(1, signed)), out),
            Element::Bool => (self.on_words(widen(1, false)), Self::SCRATCH),
        };
        let from = self.element(at, element);
        self.asm.evex(op, to, 0, from, masking, None);
        match element {
            Element::BFloat16 => self.shift(Shift::Left, Lane::Word, out, out, 16),
            Element::Bool => self.mask_of_bytes(out),
            _ => {}
        }
    }

    fn load_every(&mut self, at: At, element: Element, step: u8, out: u8) {
        if step > 2 {
            return match self.machine.mask {
                0 => self.load_by_vectors(at, element, step, out),
                _ => self.load_one_by_one(at, element, step, out),
            };
        }
        let (order, _) = self.order(element.lane());
        let far = (self.lanes - 1) * element.size() as i32;
        let base = self.base(at.pointer);
        let at =
            |displacement| Source::Mem(Mem::Offset { base, displacement: at.bytes + displacement });
        let load = self.on_floats(element.lane(), LOAD);
        let permute = self.on_floats(element.lane(), PERMUTE_TWO);
        if self.machine.mask == 0 {
            self.plain(load, out, 0, at(0));
            return self.plain(permute, out, order, at(far));
        }
        let masking = |mask| Masking { mask, zero: true };
        self.asm.evex(load, out, 0, at(0), masking(NEAR), None);
        self.asm.evex(load, Self::SCRATCH, 0, at(far), masking(FAR), None);
        self.plain(permute, out, order, Source::Reg(Self::SCRATCH));
    }

    fn store(&mut self, pointer: u16, element: Element, value: u8) {
        let masking = Masking { mask: self.machine.mask, zero: false };
        let to = self.element(At { pointer, bytes: 0 }, element);
        let past = self.machine.streams && self.machine.mask == 0;
        let (op, from, imm) = match element {
            Element::Wide if past => (self.on_floats(Lane::Wide, STREAM), value, None),
            Element::Word if past => (self.on_words(STREAM), value, None),
            Element::Wide => (self.on_floats(Lane::Wide, STORE), value, None),
            Element::Word => (self.on_words(STORE), value, None),
            Element::Half => (self.on_words(TO_HALF), value, Some(0)),
            Element::Short { .. } => (self.on_words(NARROW_16), value, None),
            Element::Byte { .. } => (self.on_words(NARROW_8), value, None),
            Element::BFloat16 => {
                self.shift(Shift::Right, Lane::Word, Self::SCRATCH, value, 16);
                (self.on_words(NARROW_16), Self::SCRATCH, None)
            }
            Element::Bool => {
                self.plain(self.whole(MASK_TO_WORDS), Self::SCRATCH, 0, Source::Reg(value));
                self.shift(Shift::Right, Lane::Word, Self::SCRATCH, Self::SCRATCH, 31);
                (self.on_words(NARROW_8), Self::SCRATCH, None)
            }
        };
        self.asm.evex(op, from, 0, to, masking, imm);
    }

    fn mask_of_bytes(&mut self, out: u8) {
        self.plain(self.on_words(TEST), out, Self::SCRATCH, Source::Reg(Self::SCRATCH));
    }

    fn lower_words(&mut self, out: u8, a: u8) {
        self.plain(self.whole(NARROW_WIDE), a, 0, Source::Reg(out));
    }

    fn test_mask(&mut self, mask: u8) {
        self.asm.mask_test(mask);
    }

    fn tested(&mut self, to: Gpr, mask: u8) {
        self.asm.mask_to(to, mask);
    }

    fn keep_mask(&mut self, mask: u8, displacement: i32, save: bool) {
        match save {
            true => self.asm.mask_store(mask, RSP, displacement),
            false => self.asm.mask_load(mask, RSP, displacement),
        }
    }
}

impl Emitter<'_, Avx512> {
    /// The register of a permutation, and the number of the permutation.
    fn order(&self, lane: Lane) -> (u8, u16) {
        let number = self.machine.orders.iter().position(|&o| o == lane);
        let number = number.expect("programs have the orders of what they read");
        (self.accumulators().start - 1 - number as u8, number as u16)
    }

    /// Loads whole vectors and permutes the wanted elements of each into their lanes.
    fn load_by_vectors(&mut self, at: At, element: Element, step: u8, out: u8) {
        let (lane, base, size) = (element.lane(), self.base(at.pointer), element.size());
        let (load, permute) = (self.on_floats(lane, LOAD), self.on_floats(lane, PERMUTE_TWO));
        for (i, vector) in
            strided_vectors(step as usize, self.lanes as usize).into_iter().enumerate()
        {
            let displacement = at.bytes + (vector.begin * size) as i32;
            let from = Source::Mem(Mem::Offset { base, displacement });
            if i == 0 {
                // The first element is in its lane; permuting the vector with itself gives the
                // others.
                self.plain(load, out, 0, from);
            }
            let order = self.order_of_step(lane, step, i, &vector);
            self.plain(load, Self::SCRATCH, 0, Source::Mem(Mem::Single(order)));
            self.plain(permute, out, Self::SCRATCH, from);
        }
    }

    /// The constant of a vector's permutation.
    fn order_of_step(&mut self, lane: Lane, step: u8, i: usize, vector: &StridedVector) -> u16 {
        let steps = &mut self.machine.steps;
        let at = steps.iter().position(|s| (s.0, s.1, s.2) == (lane, step, i));
        let at = at.unwrap_or_else(|| {
            let size = if lane == Lane::Wide { 8 } else { 4 };
            let bytes = vector.lanes.iter().flat_map(|l| l.to_le_bytes()[..size].to_vec());
            steps.push((lane, step, i, bytes.collect()));
            steps.len() - 1
        });
        (self.constants.len() + self.machine.orders.len() + at) as u16
    }

    /// Loads the existing elements one by one: each element is broadcast to all lanes from its own
    /// lane on, and the next element overwrites the lanes after it.
    fn load_one_by_one(&mut self, at: At, element: Element, step: u8, out: u8) {
        let (lane, base) = (element.lane(), self.base(at.pointer));
        let wide = lane == Lane::Wide;
        let splat = self.on(lane, if wide { SPLAT_64 } else { SPLAT });
        for i in 0..self.lanes {
            let displacement = at.bytes + i * step as i32 * element.size() as i32;
            let from = Source::Mem(Mem::Offset { base, displacement });
            let masking = match i {
                0 => Masking { mask: TAIL, zero: true },
                _ => Masking { mask: ONWARD, zero: false },
            };
            if i > 0 {
                let before = if i == 1 { TAIL } else { ONWARD };
                self.asm.mask_left(ONWARD, before, 1);
                self.asm.mask_op(MASK_AND, ONWARD, ONWARD, TAIL);
            }
            self.asm.evex(splat, out, 0, from, masking, None);
        }
    }

    /// Sets the masks of a load with stride two for the elements that are left: for `n` elements,
    /// the first `2 n - 1`.
    fn mask_even(&mut self) {
        if self.machine.orders.is_empty() {
            return;
        }
        self.asm.push(COUNT);
        self.asm.lea_indexed(COUNT, COUNT, COUNT, 1, -1);
        self.asm.low_bits(NEAR, COUNT, TABLE);
        self.asm.mask_right(FAR, NEAR, self.lanes as u8 - 1);
        self.asm.pop(COUNT);
    }

    /// The instruction and its predicate. Comparisons of floats do not signal for quiet NaNs.
    fn comparison(&self, compare: Compare, lane: Lane) -> (VectorOp, u8) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the permutations of consecutive vectors for elements numbered from 0.
    fn read(step: usize, lanes: usize) -> Vec<usize> {
        let mut out: Vec<usize> = vec![];
        for vector in strided_vectors(step, lanes) {
            let second: Vec<usize> = (vector.begin..vector.begin + lanes).collect();
            let first = if out.is_empty() { second.clone() } else { out };
            let of = |&lane: &u64| {
                let lane = lane as usize;
                if lane < lanes { first[lane] } else { second[lane - lanes] }
            };
            out = vector.lanes.iter().map(of).collect();
        }
        out
    }

    #[test]
    fn strided_vectors_cover_all_elements_and_stay_in_bounds() {
        for lanes in [8, 16] {
            for step in 2..=64 {
                let wanted: Vec<usize> = (0..lanes).map(|i| i * step).collect();
                assert_eq!(read(step, lanes), wanted, "{lanes} {step}");
                let vectors = strided_vectors(step, lanes);
                assert!(vectors.iter().all(|v| v.begin + lanes <= (lanes - 1) * step + 1));
                assert!(vectors.len() <= lanes.min(step), "{lanes} {step} {vectors:?}");
            }
        }
    }
}
