//! Micro-kernels for AVX-512 VNNI: GEMM of bytes, with the same operands as AMX: rows of A along K,
//! and packed panels of B. `quads` are VNNI groups of four int8 values.
//!
//! VNNI multiplies unsigned by signed bytes, so it takes operands of different signedness as they
//! are. For operands of equal signedness, B must be packed with its highest bit flipped, and the
//! result must be initialised with the correction for that.

use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::tile::{Function, at, enabled};
use super::unit::{BLOCK, PANEL, ROWS as QUADS, UnitCall};

/// The most rows of a micro-kernel, so that the accumulators fit the registers.
pub(crate) const ROWS: usize = 8;

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b` of four bytes each; those of `a` are unsigned, those of `b` signed.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0x50);

/// The registers of a group of four elements of A, and of two vectors of B.
const LEFT: u8 = 31;
const RIGHT: [u8; 2] = [29, 30];

/// True if the machine has the instruction and generated code is not disabled.
pub(crate) fn available() -> bool {
    #[cfg(test)]
    if let Some([vnni, _]) = super::tests::EXTENSIONS.get() {
        return vnni;
    }
    enabled() && is_x86_feature_detected!("avx512vnni")
}

/// A micro-kernel of `rows` rows, at most [`ROWS`], by two vectors of columns. It adds to the
/// result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quads {
    pub rows: usize,
    /// True if A is signed; packed B is then unsigned.
    pub signed: bool,
}

impl Quads {
    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<UnitCall>> {
        Function::install(&self.emit(), &format!("bytes {} by 32", self.rows))
    }

    fn emit(&self) -> Vec<u8> {
        assert!((1..=ROWS).contains(&self.rows), "{self:?}");
        let mut asm = Assembler::default();
        let call = Gpr(7);
        let (a, a_step, b, c, c_step) = (Gpr(6), Gpr(1), Gpr(2), Gpr(8), Gpr(9));
        let (blocks, tiles) = (Gpr(0), Gpr(10));
        let saved = [Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14), Gpr(15)];
        let [second, panels, third, walk_b, quads, walk_c] = saved;
        let walks = [Gpr(11), second, third];
        saved.iter().for_each(|&reg| asm.push(reg));
        for (reg, at) in [(a, 0), (a_step, 8), (b, 16), (c, 24), (c_step, 32), (tiles, 48)] {
            asm.load(reg, call, at);
        }
        let (next, panel, main, inner) = (asm.label(), asm.label(), asm.label(), asm.label());
        asm.bind(next);
        asm.copy(walk_b, b);
        asm.copy(walk_c, c);
        asm.load(panels, call, 64);
        asm.bind(panel);
        asm.copy(walks[0], walk_c);
        self.sums(&mut asm, LOAD, walks[0], c_step);
        // The addresses of every third row.
        asm.copy(walks[0], a);
        for pair in walks.windows(2) {
            asm.copy(pair[1], pair[0]);
            (0..3).for_each(|_| asm.add_reg(pair[1], a_step));
        }
        asm.load(blocks, call, 40);
        asm.bind(main);
        asm.zero(quads);
        asm.add(quads, QUADS as i32);
        asm.align(32);
        asm.bind(inner);
        self.quad(&mut asm, walks, a_step, walk_b);
        asm.sub(quads, 1);
        asm.jump_if(Condition::NotEqual, inner);
        asm.add(walk_b, (PANEL / 2) as i32);
        asm.sub(blocks, 1);
        asm.jump_if(Condition::NotEqual, main);
        asm.copy(walks[0], walk_c);
        self.sums(&mut asm, STORE, walks[0], c_step);
        asm.add(walk_c, 2 * BLOCK as i32);
        asm.sub(panels, 1);
        asm.jump_if(Condition::NotEqual, panel);
        // Advance both A and C to the next rows.
        (0..self.rows).for_each(|_| asm.add_reg(a, a_step));
        (0..self.rows).for_each(|_| asm.add_reg(c, c_step));
        asm.sub(tiles, 1);
        asm.jump_if(Condition::NotEqual, next);
        saved.iter().rev().for_each(|&reg| asm.pop(reg));
        asm.leave();
        asm.finish(&[])
    }

    /// Loads or stores all accumulators; the address advances to the next rows.
    fn sums(&self, asm: &mut Assembler, op: VectorOp, c: Gpr, c_step: Gpr) {
        for row in 0..self.rows {
            for half in 0..2 {
                let place = at(c, BLOCK * half);
                asm.evex(op, (2 * row + half) as u8, 0, place, Masking::default(), None);
            }
            asm.add_reg(c, c_step);
        }
    }

    /// Multiplies four indices of K for all rows; `walks` are the addresses of every third row.
    fn quad(&self, asm: &mut Assembler, walks: [Gpr; 3], step: Gpr, b: Gpr) {
        let plain = |asm: &mut Assembler, op: VectorOp, dst: u8, a: u8, source: Source| {
            asm.evex(op, dst, a, source, Masking::default(), None);
        };
        for (half, right) in RIGHT.into_iter().enumerate() {
            plain(asm, LOAD, right, 0, at(b, half * PANEL / 2));
        }
        for row in 0..self.rows {
            let base = walks[row / 3];
            let element = match row % 3 {
                0 => at(base, 0),
                scale => Source::Mem(Mem::Indexed {
                    base,
                    index: step,
                    scale: scale as u8,
                    displacement: 0,
                }),
            };
            plain(asm, SPLAT, LEFT, 0, element);
            for (half, right) in RIGHT.into_iter().enumerate() {
                let sum = (2 * row + half) as u8;
                match self.signed {
                    true => plain(asm, MULTIPLY_ADD, sum, right, Source::Reg(LEFT)),
                    false => plain(asm, MULTIPLY_ADD, sum, LEFT, Source::Reg(right)),
                }
            }
        }
        walks.iter().for_each(|&walk| asm.add(walk, 4));
        asm.add(b, BLOCK as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic, Register};

    #[test]
    fn four_shared_indices_of_eight_rows_load_ten_times_for_sixteen_products() {
        for signed in [false, true] {
            let code = Quads { rows: 8, signed }.emit();
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
