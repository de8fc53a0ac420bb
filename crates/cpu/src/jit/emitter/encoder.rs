//! The interface between the emitter and the encoder of an instruction set.

use super::super::allocate::{Allocated, Location, Registers, Step};
use super::super::asm::{Bits, Gpr, Label, Source, VectorOp};
use super::super::ir::{At, Element, Inst, Lane};

/// An instruction set.
pub(in crate::jit) trait Encoder: Sized {
    /// The registers for values. The next vector register is the encoder's scratch register.
    const REGISTERS: Registers;
    /// The registers for pointers, callee-saved registers last.
    const POINTERS: &'static [Gpr];
    /// The number of these registers that are caller-saved.
    const CALLER_SAVED: usize;
    /// The full width of a register.
    const BITS: Bits;
    /// Whether constants in memory are whole vectors; otherwise they are single elements.
    const WHOLE_CONSTANTS: bool;
    /// Broadcasts a 64-bit element.
    const SPLAT_WIDE: VectorOp;

    /// Emits an instruction on all lanes.
    fn vector(&mut self, op: VectorOp, dst: u8, a: u8, b: Source, imm: Option<u8>);
    /// The size of the stack frame in bytes.
    fn frame(&self, allocated: &Allocated) -> i32;
    /// Emits the last, partial iteration, which ends at `done`.
    fn rest(&mut self, body: &[Step], done: Label);
    /// The constants of the encoder, which follow the program's constants.
    fn constants(&self) -> Vec<Vec<u8>> {
        vec![]
    }
    /// Emits the code before the loop.
    fn start(&mut self) {}
    /// Emits the code after the loop.
    fn finish(&mut self) {}
    /// Emits an instruction that is specific to the instruction set: an instruction on masks, or an
    /// instruction whose result is a mask.
    fn own(&mut self, inst: Inst, out: u8, operands: [Location; 3]);
    /// Sets the accumulator to a register, in the lanes that have elements.
    fn accumulate(&mut self, lane: Lane, from: u8);
    /// Loads elements at the loop's index.
    fn load(&mut self, at: At, element: Element, out: u8);
    /// Loads every `step`-th element, from the advanced pointer.
    fn load_every(&mut self, at: At, element: Element, step: u8, out: u8);
    /// Stores elements at the loop's index.
    fn store(&mut self, pointer: u16, element: Element, value: u8);
    /// The mask of the nonzero lanes of the scratch register, in which a single byte is broadcast
    /// or zero-extended to 32 bits.
    fn mask_of_bytes(&mut self, out: u8);
    /// The lower halves of 64-bit lanes, as 32-bit lanes.
    fn lower_words(&mut self, out: u8, a: u8);
    /// Sets the condition not-equal if the mask has any lane.
    fn test_mask(&mut self, mask: u8);
    /// `to = ` the lanes that the test found, as bits.
    fn tested(&mut self, to: Gpr, mask: u8);
    /// The maximum number of registers for carries of a cycle; 0 if the machine's code has no cycles.
    const CARRIES: u8 = 0;
    /// Prepares accesses to the elements of the last vector of a cycle, of which there are `COUNT`
    /// or as many as lanes.
    fn start_partial(&mut self) {
        unreachable!("the machine's code has no cycles");
    }
    /// From here on, accesses are those to whole vectors.
    fn end_partial(&mut self) {
        unreachable!("the machine's code has no cycles");
    }
    /// Saves or restores a mask register.
    fn keep_mask(&mut self, mask: u8, displacement: i32, save: bool);
}
