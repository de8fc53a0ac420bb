//! The inner loop of products of bfloat16 in the processor's matrix unit (Intel AMX): 32 by 32
//! elements of the result stay in four of its tiles while the shared dimension passes by.
//!
//! The unit takes subnormal numbers for zeros and rounds each pair's sum to nearest.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Mem, Prefix, Source, VectorOp};
use super::tile::{Function, enabled};

/// Rows and columns of the result that a pass over the shared dimension computes.
pub(crate) const SIDE: usize = 32;
/// Shared indices that one instruction takes.
pub(crate) const DEPTH: usize = 32;
/// Bytes of a packed panel per [`DEPTH`] shared indices.
pub(crate) const PANEL: usize = 2 * SIDE * DEPTH;

/// What the unit is told about its tiles (Intel SDM volume 1, 18.2): here all of 16 rows of 64
/// bytes.
#[repr(C, align(64))]
pub(crate) struct Shape {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shape {
    pub const FULL: Shape = {
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        let mut tile = 0;
        while tile < 8 {
            (row_bytes[tile], rows[tile]) = (64, 16);
            tile += 1;
        }
        Shape { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    };
}

/// What the function is called with. `blocks` and `tiles` are at least 1.
#[repr(C)]
pub(crate) struct UnitCall {
    /// Left operand: rows of bfloat16, and bytes to the next one.
    pub a: *const u8,
    pub a_step: isize,
    /// A packed panel: per block two tiles of 16 columns, of pairs of shared indices.
    pub b: *const u8,
    /// Result, and bytes to its next row.
    pub c: *mut f32,
    pub c_step: isize,
    /// Blocks of [`DEPTH`] shared indices.
    pub blocks: usize,
    /// Times [`SIDE`] rows.
    pub tiles: usize,
    pub shape: *const Shape,
}

const fn op(prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map: Map::M0F38, prefix, opcode, wide: false, bits: Bits::B128 }
}
const CONFIGURE: VectorOp = op(Prefix::None, 0x49);
const CLEAR: VectorOp = op(Prefix::PF2, 0x49);
const LOAD: VectorOp = op(Prefix::PF2, 0x4b);
const STORE: VectorOp = op(Prefix::PF3, 0x4b);
const MULTIPLY_ADD: VectorOp = op(Prefix::PF3, 0x5c);

/// True if the machine has the unit and the system lets this process use it.
pub(crate) fn available() -> bool {
    static AVAILABLE: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    enabled() && *AVAILABLE.get_or_init(|| on_machine() && permitted())
}

/// Whether the processor has tiles and their multiply-add of bfloat16 (Intel SDM volume 2, CPUID).
fn on_machine() -> bool {
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    // SAFETY: each x86-64 processor with AVX-512 has the instruction and this leaf.
    #[allow(unused_unsafe)]
    let features = unsafe { std::arch::x86_64::__cpuid_count(7, 0) };
    features.edx & BF16_AND_TILES == BF16_AND_TILES
}

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

/// The function; none where code cannot be generated.
pub(crate) fn compile() -> Option<Function<UnitCall>> {
    Function::install(&emit(), "matrix unit")
}

fn emit() -> Vec<u8> {
    let mut asm = Assembler::default();
    let call = Gpr(7);
    let (a, a_step, b, c, c_step) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
    let (blocks, tiles, low_a) = (Gpr(0), Gpr(10), Gpr(11));
    let saved = [Gpr(3), Gpr(12), Gpr(13), Gpr(14)];
    let [row, walk_a, walk_b, high_b] = saved;
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
    asm.add(row, 64);
    let next = asm.label();
    asm.bind(next);
    (0..4).for_each(|sum| asm.vex(CLEAR, sum, 0, Source::Reg(0), None));
    asm.load(blocks, call, 40);
    asm.copy(walk_a, a);
    asm.copy(walk_b, b);
    let main = asm.label();
    asm.align(32);
    asm.bind(main);
    block(&mut asm, [walk_a, low_a, a_step], [walk_b, high_b, row]);
    asm.sub(blocks, 1);
    asm.jump_if(Condition::NotEqual, main);
    for half in 0..2 {
        asm.lea(walk_b, c, 64);
        for (sum, base) in [(2 * half, c), (2 * half + 1, walk_b)] {
            asm.vex(STORE, sum, 0, strided(base, c_step), None);
        }
        // The next sixteen rows of both.
        (0..16).for_each(|_| asm.add_reg(c, c_step));
    }
    (0..2).for_each(|_| asm.add_reg(a, low_a));
    asm.sub(tiles, 1);
    asm.jump_if(Condition::NotEqual, next);
    // Tiles are released: the system need not keep them.
    asm.vex(CONFIGURE, 0, 0, Source::Reg(0), None);
    saved.iter().rev().for_each(|&reg| asm.pop(reg));
    asm.leave();
    asm.finish(&[])
}

/// A block of shared indices of two tiles of rows (address, distance to the second one, row step)
/// and of columns (address, scratch, row step); both addresses go on to the next block.
fn block(asm: &mut Assembler, [a, low, a_step]: [Gpr; 3], [b, high, row]: [Gpr; 3]) {
    asm.vex(LOAD, 4, 0, strided(a, a_step), None);
    asm.vex(LOAD, 6, 0, strided(b, row), None);
    asm.lea(high, b, (PANEL / 2) as i32);
    asm.vex(LOAD, 7, 0, strided(high, row), None);
    asm.lea_indexed(high, a, low, 1, 0);
    asm.vex(LOAD, 5, 0, strided(high, a_step), None);
    for (sum, (left, right)) in [(4, 6), (4, 7), (5, 6), (5, 7)].into_iter().enumerate() {
        asm.vex(MULTIPLY_ADD, sum as u8, right, Source::Reg(left), None);
    }
    asm.add(a, 2 * DEPTH as i32);
    asm.add(b, PANEL as i32);
}

/// Rows of a tile in memory.
fn strided(base: Gpr, index: Gpr) -> Source {
    Source::Mem(Mem::Indexed { base, index, scale: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    #[test]
    fn a_block_of_shared_indices_loads_four_tiles_for_four_products() {
        let code = emit();
        let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        let names: Vec<Mnemonic> = decoder.into_iter().map(|i| i.mnemonic()).collect();
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!(count(Mnemonic::INVALID), 0);
        assert_eq!(count(Mnemonic::Tileloadd), 4);
        assert_eq!(count(Mnemonic::Tdpbf16ps), 4);
        assert_eq!(count(Mnemonic::Tilestored), 4);
        assert_eq!((count(Mnemonic::Ldtilecfg), count(Mnemonic::Tilerelease)), (1, 1));
    }
}
