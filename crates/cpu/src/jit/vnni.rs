//! Micro-kernels for AVX-512 VNNI and AVX-512 BF16: GEMM of bytes and of bfloat16, with the same
//! operands as AMX: rows of A along K, and packed panels of B. A group is the four bytes or two
//! bfloat16 of 32 bits that are consecutive along K; one instruction multiplies a group and adds the
//! products to a sum.
//!
//! VNNI multiplies unsigned by signed bytes, so it takes operands of different signedness
//! unchanged. For operands of equal signedness, B must be packed with its highest bit flipped, and
//! the result must be initialised with the correction for the flipped bit. BF16 treats subnormal
//! numbers as zeros, as AMX does.

use super::amx::{AmxCall, K_BLOCK_BYTES, Multiply, PANEL_BLOCK_BYTES, TILE_ROWS as GROUPS};
use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::microkernel::{Function, avx512_enabled};
use super::vector::{XOR, at};

/// The maximum number of rows of a micro-kernel: 24 accumulators hide the latency of the
/// instructions, and there are four registers for the addresses of every third row.
pub(crate) const MR: usize = 12;

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b` for four bytes each; the bytes of `a` are unsigned, the bytes of `b` signed.
const MULTIPLY_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x50);
/// `dst += a * b` for two bfloat16 each.
const MULTIPLY_BF16: VectorOp = op(Map::M0F38, Prefix::PF3, 0x52);

/// The registers of a group of A, and of two vectors of B.
const A_GROUP: u8 = 31;
const B_VECTORS: [u8; 2] = [29, 30];

impl Multiply {
    /// Whether the machine has the instruction of this file and generated code is not disabled.
    pub(crate) fn available_without_amx(self) -> bool {
        #[cfg(test)]
        if let Some([vnni, _]) = super::tests::EXTENSIONS.get() {
            return vnni;
        }
        avx512_enabled()
            && match self {
                Multiply::BF16 => is_x86_feature_detected!("avx512bf16"),
                Multiply::Bytes(..) => is_x86_feature_detected!("avx512vnni"),
            }
    }

    /// Whether the highest bit of each byte of B must be flipped, and the result be initialised with
    /// the correction.
    pub(crate) fn flips_b(self) -> bool {
        matches!(self, Multiply::Bytes(a, b) if a == b)
    }
}

/// A micro-kernel of `rows` rows, at most [`MR`], by two vectors of columns. It adds to the result
/// if B [is flipped](Multiply::flips_b), and otherwise overwrites it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VnniMicrokernel {
    pub rows: usize,
    pub multiply: Multiply,
}

impl VnniMicrokernel {
    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<AmxCall>> {
        let operands = if self.multiply == Multiply::BF16 { "bfloat16" } else { "bytes" };
        Function::install(&self.emit(), &format!("{operands} {} by 32", self.rows))
    }

    fn emit(&self) -> Vec<u8> {
        assert!((1..=MR).contains(&self.rows), "{self:?}");
        let mut asm = Assembler::default();
        let call = Gpr(7);
        let (a, lda, b, c, ldc) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
        let (k_blocks, row_groups) = (Gpr(0), Gpr(10));
        let saved = [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
        let [fourth_row, panels, seventh_row, b_block, tenth_row, c_panel] = saved;
        let row_addresses = [Gpr(11), fourth_row, seventh_row, tenth_row];
        let row_addresses = &row_addresses[..self.rows.div_ceil(3)];
        saved.iter().for_each(|&reg| asm.push(reg));
        for (reg, at) in [(a, 0), (lda, 8), (b, 16), (c, 24), (ldc, 32), (row_groups, 48)] {
            asm.load(reg, call, at);
        }
        let (next, panel, main) = (asm.label(), asm.label(), asm.label());
        asm.bind(next);
        asm.copy(b_block, b);
        asm.copy(c_panel, c);
        asm.load(panels, call, 64);
        asm.bind(panel);
        if self.multiply.flips_b() {
            asm.copy(row_addresses[0], c_panel);
            self.move_accumulators(&mut asm, LOAD, row_addresses[0], ldc);
        } else {
            (0..2 * self.rows as u8)
                .for_each(|sum| plain(&mut asm, XOR, sum, sum, Source::Reg(sum)));
        }
        // The addresses of every third row.
        asm.copy(row_addresses[0], a);
        for pair in row_addresses.windows(2) {
            asm.copy(pair[1], pair[0]);
            (0..3).for_each(|_| asm.add_reg(pair[1], lda));
        }
        asm.load(k_blocks, call, 40);
        asm.align(32);
        asm.bind(main);
        (0..GROUPS).for_each(|g| self.multiply_group(&mut asm, row_addresses, lda, b_block, g));
        row_addresses.iter().for_each(|&address| asm.add(address, K_BLOCK_BYTES as i32));
        asm.add(b_block, PANEL_BLOCK_BYTES as i32);
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
                plain(asm, op, (2 * row + half) as u8, 0, at(c, K_BLOCK_BYTES * half));
            }
            asm.add_reg(c, ldc);
        }
    }

    /// Multiplies group `group` of a block of K for all rows; `row_addresses` are the addresses of
    /// every third row at the block, and `b` that of the packed block.
    fn multiply_group(
        &self,
        asm: &mut Assembler,
        row_addresses: &[Gpr],
        lda: Gpr,
        b: Gpr,
        group: usize,
    ) {
        for (half, b_vector) in B_VECTORS.into_iter().enumerate() {
            let from = at(b, half * PANEL_BLOCK_BYTES / 2 + K_BLOCK_BYTES * group);
            plain(asm, LOAD, b_vector, 0, from);
        }
        let displacement = 4 * group as i32;
        for row in 0..self.rows {
            let base = row_addresses[row / 3];
            let element = match row % 3 {
                0 => Mem::Offset { base, displacement },
                scale => Mem::Indexed { base, index: lda, scale: scale as u8, displacement },
            };
            plain(asm, SPLAT, A_GROUP, 0, Source::Mem(element));
            for (half, b_vector) in B_VECTORS.into_iter().enumerate() {
                let sum = (2 * row + half) as u8;
                match self.multiply {
                    Multiply::BF16 => {
                        plain(asm, MULTIPLY_BF16, sum, A_GROUP, Source::Reg(b_vector));
                    }
                    Multiply::Bytes(true, _) => {
                        plain(asm, MULTIPLY_BYTES, sum, b_vector, Source::Reg(A_GROUP));
                    }
                    Multiply::Bytes(false, _) => {
                        plain(asm, MULTIPLY_BYTES, sum, A_GROUP, Source::Reg(b_vector));
                    }
                }
            }
        }
    }
}

/// Emits an instruction without a mask.
fn plain(asm: &mut Assembler, op: VectorOp, dst: u8, a: u8, source: Source) {
    asm.evex(op, dst, a, source, Masking::default(), None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

    #[test]
    fn a_group_of_twelve_rows_loads_fourteen_times_for_24_multiply_adds() {
        let bytes = [(true, true), (true, false), (false, true), (false, false)];
        let bytes = bytes.map(|(a, b)| Multiply::Bytes(a, b));
        for multiply in [Multiply::BF16].into_iter().chain(bytes) {
            let code = VnniMicrokernel { rows: 12, multiply }.emit();
            let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
            let all: Vec<_> = decoder.into_iter().collect();
            let count = |name| all.iter().filter(|i| i.mnemonic() == name).count();
            let (dot, signed) = match multiply {
                Multiply::BF16 => (Mnemonic::Vdpbf16ps, false),
                Multiply::Bytes(signed, _) => (Mnemonic::Vpdpbusd, signed),
            };
            assert_eq!(count(Mnemonic::INVALID), 0);
            assert_eq!((count(dot), count(Mnemonic::Vbroadcastss)), (GROUPS * 24, GROUPS * 12));
            // The panel's vectors, and the accumulators before and after.
            let moved = if multiply.flips_b() { 2 * 24 } else { 24 };
            assert_eq!(count(Mnemonic::Vmovups), GROUPS * 2 + moved);
            // The unsigned factor comes first.
            let dot = all.iter().find(|i| i.mnemonic() == dot).expect("counted");
            let first = if signed { Register::ZMM29 } else { Register::ZMM31 };
            assert_eq!(dot.op1_register(), first);
        }
    }
}
