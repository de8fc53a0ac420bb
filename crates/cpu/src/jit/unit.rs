//! Micro-kernels for the tile matrix unit (Intel AMX): GEMM of bfloat16 and of bytes. 32 by 32
//! elements of the result stay in four AMX tiles while the loop runs over K.
//!
//! For bfloat16, AMX treats subnormal numbers as zeros and rounds each pair's sum to nearest. Sums
//! of bytes are exact modulo 2^32.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Mem, Prefix, Source, VectorOp};
use super::tile::{Function, Stored, enabled};

/// Rows and columns of the result that one pass over K computes.
pub(crate) const SIDE: usize = 32;
/// Rows of an AMX tile.
pub(crate) const ROWS: usize = 16;
/// Bytes of K that one instruction multiplies: a block.
pub(crate) const BLOCK: usize = 64;
/// Bytes of a packed panel per block.
pub(crate) const PANEL: usize = SIDE * BLOCK;

/// The data types that AMX multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiply {
    /// Pairs of bfloat16, accumulated in f32.
    BF16,
    /// Groups of four bytes, accumulated in 32 bits; whether A and B are signed.
    Bytes(bool, bool),
}

impl Multiply {
    /// For operands of these data types; `None` if AMX does not multiply them.
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

    /// The instruction for this data type.
    fn op(self) -> VectorOp {
        match self {
            Multiply::BF16 => op(Prefix::PF3, 0x5c),
            Multiply::Bytes(true, true) => op(Prefix::PF2, 0x5e),
            Multiply::Bytes(true, false) => op(Prefix::PF3, 0x5e),
            Multiply::Bytes(false, true) => op(Prefix::P66, 0x5e),
            Multiply::Bytes(false, false) => op(Prefix::None, 0x5e),
        }
    }

    /// True if the machine has AMX and the operating system permits this process to use it.
    pub fn available(self) -> bool {
        #[cfg(test)]
        if let Some([_, amx]) = super::tests::EXTENSIONS.get() {
            return amx;
        }
        static PERMITTED: girih_sync::OnceLock<bool> = girih_sync::OnceLock::new();
        enabled() && self.on_machine() && *PERMITTED.get_or_init(permitted)
    }

    /// True if the processor has AMX tiles and this multiply-add (Intel SDM volume 2, CPUID).
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

/// The tile configuration (Intel SDM volume 1, 18.2): all tiles have rows of 64 bytes.
#[repr(C, align(64))]
pub(crate) struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    /// Tiles of the result and of A have `taken` rows, at most 16.
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

/// The tiles of A, one below the other, and of B, side by side; tiles 0 to 3 are those of the
/// result.
const LEFT: [u8; 2] = [4, 5];
const RIGHT: [u8; 2] = [6, 7];

/// The arguments of the micro-kernel. `blocks`, `tiles` and `panels` are at least 1.
#[repr(C)]
pub(crate) struct UnitCall {
    /// A: rows along K, and bytes between rows.
    pub a: *const u8,
    pub a_step: isize,
    /// Consecutive packed panels: per block two tiles of 16 columns, whose rows hold groups of two
    /// or four indices of K.
    pub b: *const u8,
    /// The result, and bytes between its rows.
    pub c: *mut f32,
    pub c_step: isize,
    /// Blocks of K.
    pub blocks: usize,
    /// The number of groups of [`SIDE`] rows; 1 if the function is not `tall`.
    pub tiles: usize,
    pub shape: *const Shape,
    /// The number of panels, whose columns of the result are side by side.
    pub panels: usize,
}

const fn op(prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map: Map::M0F38, prefix, opcode, wide: false, bits: Bits::B128 }
}
const CONFIGURE: VectorOp = op(Prefix::None, 0x49);
const CLEAR: VectorOp = op(Prefix::PF2, 0x49);
const LOAD: VectorOp = op(Prefix::PF2, 0x4b);
const STORE: VectorOp = op(Prefix::PF3, 0x4b);

/// Requests permission for the AMX tile state, which Linux saves only for processes that have it.
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

/// The parameters of a micro-kernel: `tall` ones compute [`SIDE`] rows at a time, others as many as
/// the tile configuration says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unit {
    pub multiply: Multiply,
    pub tall: bool,
}

impl Unit {
    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<UnitCall>> {
        let rows = if self.tall { SIDE } else { ROWS };
        Function::install(&self.emit(), &format!("matrix unit {rows} by {SIDE}"))
    }

    /// The number of tiles in the direction of rows.
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
        // The distance of sixteen rows of A.
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
        // Advance both A and C to the next rows.
        (0..self.down()).for_each(|_| asm.add_reg(a, low_a));
        (0..ROWS * self.down() as usize).for_each(|_| asm.add_reg(c, c_step));
        asm.sub(tiles, 1);
        asm.jump_if(Condition::NotEqual, next);
        // Release the tiles, so that the system need not save them.
        asm.vex(CONFIGURE, 0, 0, Source::Reg(0), None);
        saved.iter().rev().for_each(|&reg| asm.pop(reg));
        asm.leave();
        asm.finish(&[])
    }

    /// Multiplies a block of K, of tiles of A (address, distance to the second tile, row step) and
    /// of B (address, scratch register, row step); both addresses advance to the next block.
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

/// The rows of a tile in memory.
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
