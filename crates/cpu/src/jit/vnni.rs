//! Micro-kernels for AVX-512 VNNI: GEMM of bytes, with the same operands as AMX: rows of A along K,
//! and packed panels of B. A group is four bytes that are consecutive along K.
//!
//! VNNI multiplies unsigned by signed bytes, so it takes operands of different signedness
//! unchanged. For operands of equal signedness, B must be packed with its highest bit flipped, and
//! the result must be initialised with the correction for the flipped bit.

use super::amx::{AmxCall, K_BLOCK_BYTES, PANEL_BLOCK_BYTES, TILE_ROWS as GROUPS};
use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::microkernel::{Function, avx512_enabled};
use super::vector::at;

/// The maximum number of rows of a micro-kernel, so that the accumulators fit the registers.
pub(crate) const MR: usize = 8;

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b` for four bytes each; the bytes of `a` are unsigned, the bytes of `b` signed.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0x50);

/// The registers of a group of four elements of A, and of two vectors of B.
const A_GROUP: u8 = 31;
const B_VECTORS: [u8; 2] = [29, 30];

/// Whether the machine has the instruction and generated code is not disabled.
pub(crate) fn available() -> bool {
    #[cfg(test)]
    if let Some([vnni, _]) = super::tests::EXTENSIONS.get() {
        return vnni;
    }
    avx512_enabled() && is_x86_feature_detected!("avx512vnni")
}

/// A micro-kernel of `rows` rows, at most [`MR`], by two vectors of columns. It adds to the
/// result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VnniMicrokernel {
    pub rows: usize,
    /// Whether A is signed; packed B is then unsigned.
    pub signed: bool,
}

impl VnniMicrokernel {
    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<AmxCall>> {
        Function::install(&self.emit(), &format!("bytes {} by 32", self.rows))
    }

    fn emit(&self) -> Vec<u8> {
        assert!((1..=MR).contains(&self.rows), "{self:?}");
        let mut asm = Assembler::default();
        let call = Gpr(7);
        let (a, lda, b, c, ldc) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
        let (k_blocks, row_groups) = (Gpr(0), Gpr(10));
        let saved = [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
        let [fourth_row, panels, seventh_row, b_group, groups, c_panel] = saved;
        let row_addresses = [Gpr(11), fourth_row, seventh_row];
        saved.iter().for_each(|&reg| asm.push(reg));
        for (reg, at) in [(a, 0), (lda, 8), (b, 16), (c, 24), (ldc, 32), (row_groups, 48)] {
            asm.load(reg, call, at);
        }
        let (next, panel, main, inner) = (asm.label(), asm.label(), asm.label(), asm.label());
        asm.bind(next);
        asm.copy(b_group, b);
        asm.copy(c_panel, c);
        asm.load(panels, call, 64);
        asm.bind(panel);
        asm.copy(row_addresses[0], c_panel);
        self.move_accumulators(&mut asm, LOAD, row_addresses[0], ldc);
        // The addresses of every third row.
        asm.copy(row_addresses[0], a);
        for pair in row_addresses.windows(2) {
            asm.copy(pair[1], pair[0]);
            (0..3).for_each(|_| asm.add_reg(pair[1], lda));
        }
        asm.load(k_blocks, call, 40);
        asm.bind(main);
        asm.zero(groups);
        asm.add(groups, GROUPS as i32);
        asm.align(32);
        asm.bind(inner);
        self.multiply_group(&mut asm, row_addresses, lda, b_group);
        asm.sub(groups, 1);
        asm.jump_if(Condition::NotEqual, inner);
        asm.add(b_group, (PANEL_BLOCK_BYTES / 2) as i32);
        asm.sub(k_blocks, 1);
        asm.jump_if(Condition::NotEqual, main);
        asm.copy(row_addresses[0], c_panel);
        self.move_accumulators(&mut asm, STORE, row_addresses[0], ldc);
        asm.add(c_panel, 2 * K_BLOCK_BYTES as i32);
        asm.sub(panels, 1);
        asm.jump_if(Condition::NotEqual, panel);
        // Advance both A and C to the next rows.
        (0..self.rows).for_each(|_| asm.add_reg(a, lda));
        (0..self.rows).for_each(|_| asm.add_reg(c, ldc));
        asm.sub(row_groups, 1);
        asm.jump_if(Condition::NotEqual, next);
        saved.iter().rev().for_each(|&reg| asm.pop(reg));
        asm.leave();
        asm.finish(&[])
    }

    /// Loads or stores all accumulators; the address advances to the next rows.
    fn move_accumulators(&self, asm: &mut Assembler, op: VectorOp, c: Gpr, ldc: Gpr) {
        for row in 0..self.rows {
            for half in 0..2 {
                let place = at(c, K_BLOCK_BYTES * half);
                asm.evex(op, (2 * row + half) as u8, 0, place, Masking::default(), None);
            }
            asm.add_reg(c, ldc);
        }
    }

    /// Multiplies four indices of K for all rows; `row_addresses` are the addresses of every third
    /// row.
    fn multiply_group(&self, asm: &mut Assembler, row_addresses: [Gpr; 3], lda: Gpr, b: Gpr) {
        let plain = |asm: &mut Assembler, op: VectorOp, dst: u8, a: u8, source: Source| {
            asm.evex(op, dst, a, source, Masking::default(), None);
        };
        for (half, b_vector) in B_VECTORS.into_iter().enumerate() {
            plain(asm, LOAD, b_vector, 0, at(b, half * PANEL_BLOCK_BYTES / 2));
        }
        for row in 0..self.rows {
            let base = row_addresses[row / 3];
            let element = match row % 3 {
                0 => at(base, 0),
                scale => Source::Mem(Mem::Indexed {
                    base,
                    index: lda,
                    scale: scale as u8,
                    displacement: 0,
                }),
            };
            plain(asm, SPLAT, A_GROUP, 0, element);
            for (half, b_vector) in B_VECTORS.into_iter().enumerate() {
                let sum = (2 * row + half) as u8;
                match self.signed {
                    true => plain(asm, MULTIPLY_ADD, sum, b_vector, Source::Reg(A_GROUP)),
                    false => plain(asm, MULTIPLY_ADD, sum, A_GROUP, Source::Reg(b_vector)),
                }
            }
        }
        row_addresses.iter().for_each(|&row_address| asm.add(row_address, 4));
        asm.add(b, K_BLOCK_BYTES as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

    #[test]
    fn four_indices_of_k_of_eight_rows_load_ten_times_for_sixteen_multiply_adds() {
        for signed in [false, true] {
            let code = VnniMicrokernel { rows: 8, signed }.emit();
            let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
            let all: Vec<_> = decoder.into_iter().collect();
            let count = |name| all.iter().filter(|i| i.mnemonic() == name).count();
            assert_eq!(count(Mnemonic::INVALID), 0);
            assert_eq!((count(Mnemonic::Vpdpbusd), count(Mnemonic::Vbroadcastss)), (16, 8));
            // The panel's vectors, and the accumulators before and after.
            assert_eq!(count(Mnemonic::Vmovups), 2 + 2 * 16);
            // The unsigned factor comes first.
            let dot = all.iter().find(|i| i.mnemonic() == Mnemonic::Vpdpbusd).expect("counted");
            let first = if signed { Register::ZMM29 } else { Register::ZMM31 };
            assert_eq!(dot.op1_register(), first);
        }
    }
}
