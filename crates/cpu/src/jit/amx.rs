//! Micro-kernels for AMX (Intel Advanced Matrix Extensions): GEMM of bfloat16 and of bytes. 32 by
//! 32 elements of the result stay in four AMX tiles while the loop runs over K.
//!
//! For bfloat16, AMX treats subnormal numbers as zeros and rounds each pair's sum to nearest. Sums
//! of bytes are exact modulo 2^32.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Mem, Prefix, Source, VectorOp};
use super::microkernel::{Function, Stored, avx512_enabled};

/// The rows (mr) and columns (nr) of the result that one pass over K computes.
pub(crate) const MICROTILE: usize = 32;
/// The number of rows of an AMX tile.
pub(crate) const TILE_ROWS: usize = 16;
/// The number of bytes of K that one instruction multiplies: a block.
pub(crate) const K_BLOCK_BYTES: usize = 64;
/// The size in bytes of a packed panel per block.
pub(crate) const PANEL_BLOCK_BYTES: usize = MICROTILE * K_BLOCK_BYTES;

/// The data types that AMX multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Multiply {
    /// Pairs of bfloat16, accumulated in f32.
    BF16,
    /// Groups of four bytes, accumulated in 32 bits; whether A and B are signed.
    Bytes(bool, bool),
}

impl Multiply {
    /// The data type for operands of these data types; `None` if AMX does not multiply them.
    pub fn of(a: Stored, b: Stored) -> Option<Multiply> {
        let byte = |stored| matches!(stored, Stored::I8 | Stored::U8);
        match (a, b) {
            (Stored::BF16, Stored::BF16) => Some(Multiply::BF16),
            _ if byte(a) && byte(b) => Some(Multiply::Bytes(a == Stored::I8, b == Stored::I8)),
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

    /// Whether the machine has AMX and the operating system permits this process to use it.
    pub fn available(self) -> bool {
        #[cfg(test)]
        if let Some([_, amx]) = super::tests::EXTENSIONS.get() {
            return amx;
        }
        static PERMITTED: girih_sync::OnceLock<bool> = girih_sync::OnceLock::new();
        avx512_enabled() && self.on_machine() && *PERMITTED.get_or_init(permitted)
    }

    /// Whether the processor has AMX tiles and this multiply-add (Intel SDM volume 2, CPUID).
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
pub(crate) struct TileConfig {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl TileConfig {
    /// Tiles of the result and of A have `tile_rows` rows, at most 16.
    pub fn with_rows(tile_rows: usize) -> TileConfig {
        let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
        for tile in 0..8 {
            let is_b = tile == B_TILES[0] || tile == B_TILES[1];
            (row_bytes[tile as usize], rows[tile as usize]) =
                (K_BLOCK_BYTES as u16, if is_b { TILE_ROWS as u8 } else { tile_rows as u8 });
        }
        TileConfig { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
    }
}

/// The tiles of A are one below the other, and the tiles of B are side by side. Tiles 0 to 3 are
/// the tiles of the result.
const A_TILES: [u8; 2] = [4, 5];
const B_TILES: [u8; 2] = [6, 7];

/// The arguments of the micro-kernel. `k_blocks`, `row_groups` and `panels` are at least 1.
#[repr(C)]
pub(crate) struct AmxCall {
    /// A: rows along K, and the number of bytes between rows.
    pub a: *const u8,
    pub lda: isize,
    /// Consecutive packed panels: per block two tiles of 16 columns, whose rows hold groups of two
    /// or four indices of K.
    pub b: *const u8,
    /// The result, and the number of bytes between its rows.
    pub c: *mut f32,
    pub ldc: isize,
    /// The number of blocks of K.
    pub k_blocks: usize,
    /// The number of groups of [`MICROTILE`] rows; 1 if the function is not `tall`.
    pub row_groups: usize,
    pub config: *const TileConfig,
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

/// The parameters of a micro-kernel. A `tall` micro-kernel computes [`MICROTILE`] rows at a time;
/// another micro-kernel computes the number of rows in the tile configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AmxMicrokernel {
    pub multiply: Multiply,
    pub tall: bool,
}

impl AmxMicrokernel {
    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<AmxCall>> {
        let rows = if self.tall { MICROTILE } else { TILE_ROWS };
        Function::install(&self.emit(), &format!("matrix unit {rows} by {MICROTILE}"))
    }

    /// The number of tiles in the direction of rows.
    fn down(&self) -> u8 {
        1 + self.tall as u8
    }

    fn emit(&self) -> Vec<u8> {
        let mut asm = Assembler::default();
        let call = Gpr(7);
        let (a, lda, b, c, ldc) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
        let (k_blocks, row_groups, a_16_rows) = (Gpr(0), Gpr(10), Gpr(11));
        let saved = [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
        let [row, panels, a_block, b_block, c_panel, scratch] = saved;
        saved.iter().for_each(|&reg| asm.push(reg));
        asm.load(row, call, 56);
        let config = Source::Mem(Mem::Offset { base: row, displacement: 0 });
        asm.vex(CONFIGURE, 0, 0, config, None);
        for (reg, at) in [(a, 0), (lda, 8), (b, 16), (c, 24), (ldc, 32), (row_groups, 48)] {
            asm.load(reg, call, at);
        }
        // The distance of sixteen rows of A.
        asm.copy(a_16_rows, lda);
        (0..4).for_each(|_| asm.add_reg(a_16_rows, a_16_rows));
        asm.zero(row);
        asm.add(row, K_BLOCK_BYTES as i32);
        let (next, panel, main) = (asm.label(), asm.label(), asm.label());
        asm.bind(next);
        asm.copy(b_block, b);
        asm.copy(c_panel, c);
        asm.load(panels, call, 64);
        asm.bind(panel);
        (0..2 * self.down()).for_each(|sum| asm.vex(CLEAR, sum, 0, Source::Reg(0), None));
        asm.load(k_blocks, call, 40);
        asm.copy(a_block, a);
        asm.align(32);
        asm.bind(main);
        self.multiply_block(&mut asm, [a_block, a_16_rows, lda], [b_block, scratch, row]);
        asm.sub(k_blocks, 1);
        asm.jump_if(Condition::NotEqual, main);
        asm.copy(scratch, c_panel);
        for half in 0..self.down() {
            asm.vex(STORE, 2 * half, 0, strided(scratch, ldc), None);
            asm.add(scratch, K_BLOCK_BYTES as i32);
            asm.vex(STORE, 2 * half + 1, 0, strided(scratch, ldc), None);
            asm.add(scratch, -(K_BLOCK_BYTES as i32));
            (0..TILE_ROWS).for_each(|_| asm.add_reg(scratch, ldc));
        }
        asm.add(c_panel, 2 * K_BLOCK_BYTES as i32);
        asm.sub(panels, 1);
        asm.jump_if(Condition::NotEqual, panel);
        // Advance both A and C to the next rows.
        (0..self.down()).for_each(|_| asm.add_reg(a, a_16_rows));
        (0..TILE_ROWS * self.down() as usize).for_each(|_| asm.add_reg(c, ldc));
        asm.sub(row_groups, 1);
        asm.jump_if(Condition::NotEqual, next);
        // Release the tiles, so that the system need not save them.
        asm.vex(CONFIGURE, 0, 0, Source::Reg(0), None);
        saved.iter().rev().for_each(|&reg| asm.pop(reg));
        asm.leave();
        asm.finish(&[])
    }

    /// Multiplies a block of K, from tiles of A (address, distance to the second tile, row step)
    /// and of B (address, scratch register, row step); both addresses advance to the next block.
    fn multiply_block(
        &self,
        asm: &mut Assembler,
        [a, lda_16, lda]: [Gpr; 3],
        [b, high, row]: [Gpr; 3],
    ) {
        asm.vex(LOAD, A_TILES[0], 0, strided(a, lda), None);
        asm.vex(LOAD, B_TILES[0], 0, strided(b, row), None);
        asm.lea(high, b, (PANEL_BLOCK_BYTES / 2) as i32);
        asm.vex(LOAD, B_TILES[1], 0, strided(high, row), None);
        if self.tall {
            asm.lea_indexed(high, a, lda_16, 1, 0);
            asm.vex(LOAD, A_TILES[1], 0, strided(high, lda), None);
        }
        for (half, a_tile) in (0..self.down()).zip(A_TILES) {
            for (sum, b_tile) in (2 * half..).zip(B_TILES) {
                asm.vex(self.multiply.op(), sum, b_tile, Source::Reg(a_tile), None);
            }
        }
        asm.add(a, K_BLOCK_BYTES as i32);
        asm.add(b, PANEL_BLOCK_BYTES as i32);
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

    fn names(kernel: AmxMicrokernel) -> Vec<Mnemonic> {
        let code = kernel.emit();
        let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        decoder.into_iter().map(|i| i.mnemonic()).collect()
    }

    #[test]
    fn a_tall_amx_step_loads_four_tiles_for_four_multiply_adds() {
        for (multiply, mnemonic) in [
            (Multiply::BF16, Mnemonic::Tdpbf16ps),
            (Multiply::Bytes(true, true), Mnemonic::Tdpbssd),
            (Multiply::Bytes(true, false), Mnemonic::Tdpbsud),
            (Multiply::Bytes(false, true), Mnemonic::Tdpbusd),
            (Multiply::Bytes(false, false), Mnemonic::Tdpbuud),
        ] {
            let names = names(AmxMicrokernel { multiply, tall: true });
            let count = |name| names.iter().filter(|m| **m == name).count();
            assert_eq!(count(Mnemonic::INVALID), 0);
            assert_eq!(count(Mnemonic::Tileloadd), 4);
            assert_eq!(count(mnemonic), 4);
            assert_eq!(count(Mnemonic::Tilestored), 4);
            assert_eq!((count(Mnemonic::Ldtilecfg), count(Mnemonic::Tilerelease)), (1, 1));
        }
    }

    #[test]
    fn a_short_amx_step_loads_three_tiles_for_two_multiply_adds() {
        let names = names(AmxMicrokernel { multiply: Multiply::Bytes(true, true), tall: false });
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!((count(Mnemonic::INVALID), count(Mnemonic::Tilezero)), (0, 2));
        assert_eq!((count(Mnemonic::Tileloadd), count(Mnemonic::Tdpbssd)), (3, 2));
        assert_eq!(count(Mnemonic::Tilestored), 2);
    }
}
