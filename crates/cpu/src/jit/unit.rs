//! The inner loop of products of bfloat16 and of bytes in the processor's matrix unit (Intel AMX):
//! 32 by 32 elements of the result stay in four of its tiles while the shared dimension passes by.
//!
//! Of bfloat16, the unit takes subnormal numbers for zeros and rounds each pair's sum to nearest. Sums
//! of bytes are exact modulo 2^32.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Mem, Prefix, Source, VectorOp};
use super::tile::{Function, Stored, enabled};

/// Rows and columns of the result that a pass over the shared dimension computes.
pub(crate) const SIDE: usize = 32;
/// Rows of a tile of the unit.
pub(crate) const ROWS: usize = 16;
/// Bytes of shared indices that one instruction takes: a block.
pub(crate) const BLOCK: usize = 64;
/// Bytes of a packed panel per block.
pub(crate) const PANEL: usize = SIDE * BLOCK;

/// What the unit multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiply {
    /// Pairs of bfloat16, in f32.
    BF16,
    /// Quadruples of bytes, in 32 bits; whether those of the left and of the right operand have a
    /// sign.
    Bytes(bool, bool),
}

impl Multiply {
    /// For operands that are stored so; none if the unit does not multiply them.
    pub fn of(left: Stored, right: Stored) -> Option<Multiply> {
        let byte = |stored| matches!(stored, Stored::I8 | Stored::U8);
        match (left, right) {
            (Stored::BF16, Stored::BF16) => Some(Multiply::BF16),
            _ if byte(left) && byte(right) => {
                Some(Multiply::Bytes(left == Stored::I8, right == Stored::I8))
            }
            _ => None,
        }
    }

    /// Its instruction, of tiles as rows and columns say it.
    fn op(self) -> VectorOp {
        match self {
            Multiply::BF16 => op(Prefix::PF3, 0x5c),
            Multiply::Bytes(true, true) => op(Prefix::PF2, 0x5e),
            Multiply::Bytes(true, false) => op(Prefix::PF3, 0x5e),
            Multiply::Bytes(false, true) => op(Prefix::P66, 0x5e),
            Multiply::Bytes(false, false) => op(Prefix::None, 0x5e),
        }
    }

    /// True if the machine has the unit and the system lets this process use it.
    pub fn available(self) -> bool {
        static PERMITTED: girih_sync::OnceLock<bool> = girih_sync::OnceLock::new();
        enabled() && self.on_machine() && *PERMITTED.get_or_init(permitted)
    }

    /// Whether the processor has tiles and this multiply-add (Intel SDM volume 2, CPUID).
    fn on_machine(self) -> bool {
        const TILES: u32 = 1 << 24;
        let wanted = TILES
            | match self {
                Multiply::BF16 => 1 << 22,
                Multiply::Bytes(..) => 1 << 25,
            };
        // SAFETY: each x86-64 processor with AVX-512 has the instruction and this leaf.
        #[allow(unused_unsafe)]
        let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0) };
        features.edx & wanted == wanted
    }
}

/// What the unit is told about its tiles (Intel SDM volume 1, 18.2): here all of rows of 64 bytes.
#[repr(C, align(64))]
pub(crate) struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    /// Tiles of the result and of the left operand have so many rows, at most 16.
    pub fn of(taken: usize) -> Shape {
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        for tile in 0..8 {
            let right = tile == RIGHT[0] || tile == RIGHT[1];
            (row_bytes[tile as usize], rows[tile as usize]) =
                (BLOCK as u16, if right { ROWS as u8 } else { taken as u8 });
        }
        Shape { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// Tiles of the left operand, rows below rows, and of the right one, columns beside columns; before
/// them come those of the result.
const LEFT: [u8; 2] = [4, 5];
const RIGHT: [u8; 2] = [6, 7];

/// What the function is called with. `blocks`, `tiles` and `panels` are at least 1.
#[repr(C)]
pub(crate) struct UnitCall {
    /// Left operand: rows along the shared dimension, and bytes to the next one.
    pub a: *const u8,
    pub a_step: isize,
    /// Packed panels, one after the other: per block two tiles of 16 columns, whose rows are of pairs or
    /// quadruples of shared indices.
    pub b: *const u8,
    /// Result, and bytes to its next row.
    pub c: *mut f32,
    pub c_step: isize,
    /// Blocks of shared indices.
    pub blocks: usize,
    /// Times [`SIDE`] rows; 1 if the function is not a tall one.
    pub tiles: usize,
    pub shape: *const Shape,
    /// Panels, whose columns of the result lie beside each other.
    pub panels: usize,
}

const fn op(prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map: Map::M0F38, prefix, opcode, wide: false, bits: Bits::B128 }
}
const CONFIGURE: VectorOp = op(Prefix::None, 0x49);
const CLEAR: VectorOp = op(Prefix::PF2, 0x49);
const LOAD: VectorOp = op(Prefix::PF2, 0x4b);
const STORE: VectorOp = op(Prefix::PF3, 0x4b);

/// Asks the system for the tiles' state, which it keeps only for processes that did.
#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const REQUEST: libc::c_int = 0x1023;
    const TILE_DATA: libc::c_ulong = 18;
    // SAFETY: the request changes nothing but what the process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// A function: of [`SIDE`] rows at a time if it is tall, else of as many as its shape says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub multiply: Multiply,
    pub tall: bool,
}

impl Unit {
    /// Its function; none where code cannot be generated.
    pub fn compile(&self) -> Option<Function<UnitCall>> {
        let rows = if self.tall { SIDE } else { ROWS };
        Function::install(&self.emit(), &format!("matrix unit {rows} by {SIDE}"))
    }

    /// Tiles of rows.
    fn down(&self) -> u8 {
        1 + self.tall as u8
    }

    fn emit(&self) -> Vec<u8> {
        let mut asm = Assembler::default();
        let call = Gpr(7);
        let (a, a_step, b, c, c_step) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
        let (blocks, tiles, low_a) = (Gpr(0), Gpr(10), Gpr(11));
        let saved = [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
        let [row, panels, walk_a, walk_b, walk_c, scratch] = saved;
        saved.iter().for_each(|&reg| asm.push(reg));
        asm.load(row, call, 56);
        let shape = Source::Mem(Mem::Offset { base: row, displacement: 0 });
        asm.vex(CONFIGURE, 0, 0, shape, None);
        for (reg, at) in [(a, 0), (a_step, 8), (b, 16), (c, 24), (c_step, 32), (tiles, 48)] {
            asm.load(reg, call, at);
        }
        // Sixteen rows further down.
        asm.copy(low_a, a_step);
        (0..4).for_each(|_| asm.add_reg(low_a, low_a));
        asm.zero(row);
        asm.add(row, BLOCK as i32);
        let (next, panel, main) = (asm.label(), asm.label(), asm.label());
        asm.bind(next);
        asm.copy(walk_b, b);
        asm.copy(walk_c, c);
        asm.load(panels, call, 64);
        asm.bind(panel);
        (0..2 * self.down()).for_each(|sum| asm.vex(CLEAR, sum, 0, Source::Reg(0), None));
        asm.load(blocks, call, 40);
        asm.copy(walk_a, a);
        asm.align(32);
        asm.bind(main);
        self.block(&mut asm, [walk_a, low_a, a_step], [walk_b, scratch, row]);
        asm.sub(blocks, 1);
        asm.jump_if(Condition::NotEqual, main);
        asm.copy(scratch, walk_c);
        for half in 0..self.down() {
            asm.vex(STORE, 2 * half, 0, strided(scratch, c_step), None);
            asm.add(scratch, BLOCK as i32);
            asm.vex(STORE, 2 * half + 1, 0, strided(scratch, c_step), None);
            asm.add(scratch, -(BLOCK as i32));
            (0..ROWS).for_each(|_| asm.add_reg(scratch, c_step));
        }
        asm.add(walk_c, 2 * BLOCK as i32);
        asm.sub(panels, 1);
        asm.jump_if(Condition::NotEqual, panel);
        // The next rows of both.
        (0..self.down()).for_each(|_| asm.add_reg(a, low_a));
        (0..ROWS * self.down() as usize).for_each(|_| asm.add_reg(c, c_step));
        asm.sub(tiles, 1);
        asm.jump_if(Condition::NotEqual, next);
        // Tiles are released: the system need not keep them.
        asm.vex(CONFIGURE, 0, 0, Source::Reg(0), None);
        saved.iter().rev().for_each(|&reg| asm.pop(reg));
        asm.leave();
        asm.finish(&[])
    }

    /// A block of shared indices of tiles of rows (address, distance to the second one, row step)
    /// and of columns (address, scratch, row step); both addresses go on to the next block.
    fn block(&self, asm: &mut Assembler, [a, low, a_step]: [Gpr; 3], [b, high, row]: [Gpr; 3]) {
        asm.vex(LOAD, LEFT[0], 0, strided(a, a_step), None);
        asm.vex(LOAD, RIGHT[0], 0, strided(b, row), None);
        asm.lea(high, b, (PANEL / 2) as i32);
        asm.vex(LOAD, RIGHT[1], 0, strided(high, row), None);
        if self.tall {
            asm.lea_indexed(high, a, low, 1, 0);
            asm.vex(LOAD, LEFT[1], 0, strided(high, a_step), None);
        }
        for (half, left) in (0..self.down()).zip(LEFT) {
            for (sum, right) in (2 * half..).zip(RIGHT) {
                asm.vex(self.multiply.op(), sum, right, Source::Reg(left), None);
            }
        }
        asm.add(a, BLOCK as i32);
        asm.add(b, PANEL as i32);
    }
}

/// Rows of a tile in memory.
fn strided(base: Gpr, index: Gpr) -> Source {
    Source::Mem(Mem::Indexed { base, index, scale: 1, displacement: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    fn names(unit: Unit) -> Vec<Mnemonic> {
        let code = unit.emit();
        let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        decoder.into_iter().map(|i| i.mnemonic()).collect()
    }

    #[test]
    fn a_block_of_shared_indices_loads_four_tiles_for_four_products() {
        for (multiply, mnemonic) in [
            (Multiply::BF16, Mnemonic::Tdpbf16ps),
            (Multiply::Bytes(true, true), Mnemonic::Tdpbssd),
            (Multiply::Bytes(true, false), Mnemonic::Tdpbsud),
            (Multiply::Bytes(false, true), Mnemonic::Tdpbusd),
            (Multiply::Bytes(false, false), Mnemonic::Tdpbuud),
        ] {
            let names = names(Unit { multiply, tall: true });
            let count = |name| names.iter().filter(|m| **m == name).count();
            assert_eq!(count(Mnemonic::INVALID), 0);
            assert_eq!(count(Mnemonic::Tileloadd), 4);
            assert_eq!(count(mnemonic), 4);
            assert_eq!(count(Mnemonic::Tilestored), 4);
            assert_eq!((count(Mnemonic::Ldtilecfg), count(Mnemonic::Tilerelease)), (1, 1));
        }
    }

    #[test]
    fn few_rows_are_one_tile_for_two_products() {
        let names = names(Unit { multiply: Multiply::Bytes(true, true), tall: false });
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!((count(Mnemonic::INVALID), count(Mnemonic::Tilezero)), (0, 2));
        assert_eq!((count(Mnemonic::Tileloadd), count(Mnemonic::Tdpbssd)), (3, 2));
        assert_eq!(count(Mnemonic::Tilestored), 2);
    }
}
