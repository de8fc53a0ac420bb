//! GEMM micro-kernels for AVX-512: a tile of the result (mr rows by nr columns) stays in registers
//! while the loop runs over K.
//!
//! An element of the result is one chain of fused multiply-adds in the order of K, for any tile and
//! any division of K into calls: tiles of all shapes give the same bits. Integers are accumulated
//! modulo 2^32, where the order does not matter.

use super::arena::{self, Code};
use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
use super::indirect;
pub(crate) use super::stored::Stored;
use super::symbols::{self, Symbol};
use girih_kernel::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// The prefetch distance in rows of packed B, which comes from the L2 cache.
const AHEAD: usize = 8;

/// The registers must hold the accumulators, the vectors of a row of B and an element of A.
const REGISTERS: usize = 32;

pub(super) const MASK: u8 = 1;
pub(super) const TABLE: Gpr = Gpr(7);
pub(super) const COUNT: Gpr = Gpr(10);
/// The address of A, or, for an A that is read in memory, the addresses of every third row.
const LEFT: [Gpr; 6] = [Gpr(6), Gpr(3), Gpr(5), Gpr(12), Gpr(13), Gpr(14)];
/// Bytes between the rows of A in memory.
const LEFT_STEP: Gpr = Gpr(15);

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
pub(super) const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
pub(super) const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
/// Words and bytes to 32 bits, with zero extension or sign extension.
const WIDEN: VectorOp = op(Map::M0F38, Prefix::P66, 0x33);
const EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x23);
const WIDEN_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x31);
const EXTEND_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x21);
const SHIFT: VectorOp = op(Map::M0F, Prefix::P66, 0x72);
const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b`, rounded once.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
/// The low half of a product of integers.
const MULTIPLY: VectorOp = op(Map::M0F38, Prefix::P66, 0x40);
const ADD: VectorOp = op(Map::M0F, Prefix::P66, 0xfe);

/// The shape and operands of a micro-kernel: `rows` rows by `vectors` vectors of 16 columns. The
/// last vector is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub rows: usize,
    pub vectors: usize,
    pub stored: Stored,
    /// True if B is read in memory (not packed), and the call gives the address that is prefetched
    /// for each row. Otherwise B is packed, and one line per row is prefetched from what the call
    /// gives.
    pub prefetch: bool,
    /// The micro-kernel also writes the vectors of B to memory, in packed form.
    pub keep: bool,
    /// A is f32 and is read in memory, each row along K; otherwise A is packed.
    pub apart: bool,
    /// B is f32 and its vectors are read through an indirection. A set bit marks a vector whose
    /// lanes are at two addresses.
    pub indirect: Option<u8>,
}

/// The arguments of a micro-kernel. `k` is at least 1.
#[repr(C)]
pub(crate) struct TileCall {
    /// Packed A, `[k][rows]`, or the first row of A in memory.
    pub a: *const f32,
    /// The first row of B, and bytes between rows; or, for an indirection, the addresses of the
    /// vectors ([`Indirection`](super::indirect::Indirection)).
    pub b: *const u8,
    pub b_step: isize,
    /// The result, and bytes between its rows.
    pub c: *mut f32,
    pub c_step: isize,
    pub k: usize,
    /// Columns of the last vector, 1 to 16.
    pub lanes: usize,
    /// 1 to add to the result, 0 to overwrite it.
    pub add: usize,
    /// Where the vectors of B are written in packed form.
    pub keep: *mut f32,
    /// The first row to prefetch, and bytes between those rows.
    pub ahead: *const u8,
    pub ahead_step: isize,
    /// Bytes between the rows of A, if A is not packed.
    pub a_step: isize,
}

/// A generated function and its code.
pub(crate) struct Function<Call> {
    /// Declared before the code, so that a debugger forgets the name before the memory is freed.
    _symbol: Symbol,
    code: Code,
    call: std::marker::PhantomData<fn(&Call)>,
}

impl<Call> Function<Call> {
    /// Calls the function.
    ///
    /// # Safety
    /// The pointers of the call are valid for what the shape of this function reads and writes.
    #[inline]
    pub unsafe fn call(&self, call: &Call) {
        type Entry<Call> = unsafe extern "sysv64" fn(*const Call);
        // SAFETY: the address is that of a function generated for this machine with this signature,
        // which follows the calling convention; the code lives as long as `self`.
        unsafe {
            let run: Entry<Call> = std::mem::transmute(self.code.address());
            run(call);
        }
    }

    /// The machine code.
    pub fn bytes(&self) -> &[u8] {
        self.code.bytes()
    }

    pub(super) fn install(code: &[u8], name: &str) -> Option<Self> {
        let code = arena::install(code)?;
        let _symbol = symbols::announce(&code, name);
        Some(Function { _symbol, code, call: std::marker::PhantomData })
    }
}

/// True if the machine has the instructions of these micro-kernels and they are not disabled.
pub(super) fn enabled() -> bool {
    super::function::enabled() && super::function::level() >= Isa::Avx512
}

impl Tile {
    /// True if the registers suffice.
    fn fits(&self) -> bool {
        let apart = !self.apart || self.rows <= 3 * LEFT.len() && self.indirect.is_none();
        let indirect = self.indirect.is_none() || self.vectors <= indirect::MAX_VECTORS;
        self.rows * self.vectors + self.vectors < REGISTERS && apart && indirect
    }

    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<TileCall>> {
        if !enabled() {
            return None;
        }
        Function::install(&self.emit(), &format!("tile {} by {}", self.rows, LANES * self.vectors))
    }

    /// Rows of B per iteration: enough to hide the loop overhead.
    fn unrolled(&self) -> usize {
        if self.apart { 1 } else { (24 / (self.rows * self.vectors)).clamp(1, 4) }
    }

    /// The registers for the addresses of A.
    fn left(&self) -> &'static [Gpr] {
        if self.apart { &LEFT[..self.rows.div_ceil(3)] } else { &LEFT[..1] }
    }

    /// The callee-saved registers that the micro-kernel uses.
    fn saved(&self) -> impl DoubleEndedIterator<Item = Gpr> + use<> {
        let step = self.apart.then_some(LEFT_STEP);
        let places: &[Gpr] = if self.indirect.is_some() { &indirect::SAVED } else { &[] };
        self.left()[1..].iter().chain(places).copied().chain(step)
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        assert!(self.fits() && self.rows > 0 && self.vectors > 0, "{self:?}");
        let mut e = Emitter::default();
        let (a, b, step, keep) = (LEFT[0], Gpr(2), Gpr(1), Gpr(11));
        let (c, c_step, walk) = (Gpr(8), Gpr(9), Gpr(0));
        self.saved().for_each(|reg| e.asm.push(reg));
        e.asm.load(walk, TABLE, 48);
        e.asm.low_bits(MASK, walk, keep);
        for (i, reg) in [a, b, step, c, c_step, COUNT].into_iter().enumerate() {
            e.asm.load(reg, TABLE, 8 * i as i32);
        }
        self.load_addresses(&mut e, [walk, keep]);
        e.asm.load(keep, TABLE, 64);
        self.find_rows(&mut e);
        self.start(&mut e, c, c_step, walk);
        let (ahead, ahead_step) = (TABLE, walk);
        e.asm.load(ahead_step, TABLE, 80);
        e.asm.load(ahead, TABLE, 72);
        e.counted(self.unrolled(), |e, count| {
            for i in 0..count {
                self.row(e, b, i);
                if self.indirect.is_none() {
                    self.next_row(e, [b, step], [ahead, ahead_step], keep);
                }
            }
            if self.indirect.is_some() {
                self.advance_offsets(e, count);
            }
            let step = if self.apart { 4 } else { 4 * self.rows * count };
            self.left().iter().for_each(|&left| e.asm.add(left, step as i32));
        });
        for r in 0..self.rows {
            for v in 0..self.vectors {
                let to = at(c, 64 * v);
                e.asm.evex(STORE, self.sum(r, v), 0, to, self.masking(v, false), None);
            }
            e.asm.add_reg(c, c_step);
        }
        self.saved().rev().for_each(|reg| e.asm.pop(reg));
        e.asm.leave();
        e.asm.finish(&[])
    }

    /// Computes the addresses of every third row of A.
    fn find_rows(&self, e: &mut Emitter) {
        if !self.apart {
            return;
        }
        e.asm.load(LEFT_STEP, TABLE, 88);
        for pair in self.left().windows(2) {
            e.asm.lea_indexed(pair[1], pair[0], LEFT_STEP, 2, 0);
            e.asm.add_reg(pair[1], LEFT_STEP);
        }
    }

    /// The address of a row's element of A, at a step of the iteration.
    fn element(&self, row: usize, step: usize) -> Mem {
        if !self.apart {
            let displacement = (4 * (step * self.rows + row)) as i32;
            return Mem::Offset { base: LEFT[0], displacement };
        }
        let base = LEFT[row / 3];
        match row % 3 {
            0 => Mem::Offset { base, displacement: 0 },
            after => Mem::Indexed { base, index: LEFT_STEP, scale: after as u8, displacement: 0 },
        }
    }

    /// The register of an accumulator.
    fn sum(&self, row: usize, vector: usize) -> u8 {
        (row * self.vectors + vector) as u8
    }

    /// The register of a vector of the right operand.
    pub(super) fn vector(&self, vector: usize) -> u8 {
        (self.rows * self.vectors + vector) as u8
    }

    pub(super) fn masking(&self, vector: usize, zero: bool) -> Masking {
        match vector + 1 == self.vectors {
            true => Masking { mask: MASK, zero },
            false => Masking::default(),
        }
    }

    /// Loads the accumulators from the result, or clears them.
    fn start(&self, e: &mut Emitter, c: Gpr, c_step: Gpr, walk: Gpr) {
        let (begin, ready) = (e.asm.label(), e.asm.label());
        e.asm.load(walk, TABLE, 56);
        e.asm.sub(walk, 1);
        e.asm.jump_if(Condition::Below, begin);
        e.asm.copy(walk, c);
        for r in 0..self.rows {
            for v in 0..self.vectors {
                let from = at(walk, 64 * v);
                e.asm.evex(LOAD, self.sum(r, v), 0, from, self.masking(v, true), None);
            }
            e.asm.add_reg(walk, c_step);
        }
        e.asm.zero(walk);
        e.asm.jump_if(Condition::Equal, ready);
        e.asm.bind(begin);
        (0..self.rows * self.vectors).for_each(|sum| e.clear(sum as u8));
        e.asm.bind(ready);
    }

    /// Loads a row of B.
    fn load_row(&self, e: &mut Emitter, b: Gpr) {
        let size = self.stored.size();
        for v in 0..self.vectors {
            let from = at(b, LANES * size * v);
            e.widen(self.stored, self.vector(v), from, self.masking(v, true));
            if !self.prefetch {
                e.asm.prefetch(b, (LANES * size * (v + AHEAD * self.vectors)) as i32);
            } else if (v * size).is_multiple_of(4) {
                e.asm.prefetch(TABLE, (LANES * size * v) as i32);
            }
            if self.keep {
                e.plain(STORE, self.vector(v), 0, at(Gpr(11), 64 * v));
            }
        }
    }

    /// Advances to the next row of B.
    fn next_row(&self, e: &mut Emitter, [b, step]: [Gpr; 2], ahead: [Gpr; 2], keep: Gpr) {
        e.asm.add_reg(b, step);
        if !self.prefetch {
            e.asm.prefetch(ahead[0], 0);
        }
        e.asm.add_reg(ahead[0], ahead[1]);
        if self.keep {
            e.asm.add(keep, 64 * self.vectors as i32);
        }
    }

    /// Multiplies one row of B by the elements of A at the same index of K.
    fn row(&self, e: &mut Emitter, b: Gpr, step: usize) {
        match self.indirect {
            Some(_) => self.load_indirect(e, step),
            None => self.load_row(e, b),
        }
        let spare = self.vector(self.vectors);
        for r in 0..self.rows {
            let element = self.element(r, step);
            if let Mem::Offset { base, displacement } = element
                && (self.vectors == 1 || self.stored.is_integer())
            {
                let element = Source::Mem(Mem::Broadcast { base, displacement });
                for v in 0..self.vectors {
                    e.multiply_add(self.stored, self.sum(r, v), self.vector(v), element, spare);
                }
                continue;
            }
            e.plain(SPLAT, spare, 0, Source::Mem(element));
            for v in 0..self.vectors {
                e.plain(MULTIPLY_ADD, self.sum(r, v), spare, Source::Reg(self.vector(v)));
            }
        }
    }
}

/// The operand in memory at a distance in bytes.
pub(super) fn at(base: Gpr, bytes: usize) -> Source {
    Source::Mem(Mem::Offset { base, displacement: bytes as i32 })
}

#[derive(Default)]
pub(super) struct Emitter {
    pub asm: Assembler,
}

impl Emitter {
    pub(super) fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.asm.evex(op, dst, a, b, Masking::default(), None);
    }

    pub(super) fn clear(&mut self, reg: u8) {
        self.plain(XOR, reg, reg, Source::Reg(reg));
    }

    /// Loads elements in packed form: as f32 or 32-bit integers.
    pub(super) fn widen(&mut self, stored: Stored, out: u8, from: Source, masking: Masking) {
        let op = match stored {
            Stored::F32 | Stored::I32 => LOAD,
            Stored::F16 => FROM_HALF,
            Stored::BF16 | Stored::U16 => WIDEN,
            Stored::I16 => EXTEND,
            Stored::U8 => WIDEN_BYTES,
            Stored::I8 => EXTEND_BYTES,
        };
        self.asm.evex(op, out, 0, from, masking, None);
        if stored == Stored::BF16 {
            self.asm.evex(SHIFT, 6, out, Source::Reg(out), Masking::default(), Some(16));
        }
    }

    /// `sum += a * b`; for integers, `spare` is clobbered by the product.
    pub(super) fn multiply_add(&mut self, stored: Stored, sum: u8, a: u8, b: Source, spare: u8) {
        if !stored.is_integer() {
            return self.plain(MULTIPLY_ADD, sum, a, b);
        }
        self.plain(MULTIPLY, spare, a, b);
        self.plain(ADD, sum, sum, Source::Reg(spare));
    }

    /// Emits a loop of `COUNT` repetitions of the body, `unrolled` per iteration; at least one.
    fn counted(&mut self, unrolled: usize, body: impl Fn(&mut Emitter, usize)) {
        let (main, rest, one, done) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        let step = unrolled as i32;
        self.asm.sub(COUNT, step);
        self.asm.jump_if(Condition::Below, rest);
        self.asm.align(32);
        self.asm.bind(main);
        body(self, unrolled);
        self.asm.sub(COUNT, step);
        self.asm.jump_if(Condition::NotBelow, main);
        self.asm.bind(rest);
        if unrolled > 1 {
            self.asm.add(COUNT, step);
            self.asm.jump_if(Condition::Equal, done);
            self.asm.bind(one);
            body(self, 1);
            self.asm.sub(COUNT, 1);
            self.asm.jump_if(Condition::NotEqual, one);
        }
        self.asm.bind(done);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    pub(in crate::jit) const STORED: [Stored; 3] = [Stored::F32, Stored::F16, Stored::BF16];

    pub(in crate::jit) fn draw(n: usize, seed: usize) -> Vec<f32> {
        // Few bits, so that the values are exact in every format.
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 251) as f32 / 32.0 - 4.0).collect()
    }

    pub(in crate::jit) fn bytes(values: &[f32], stored: Stored) -> Vec<u8> {
        let of = |&x: &f32| match stored {
            Stored::F32 => x.to_le_bytes().to_vec(),
            Stored::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            Stored::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            _ => unreachable!("integers are tested with their products"),
        };
        values.iter().flat_map(of).collect()
    }

    /// Runs a tile over `k` rows of B, some of them in a second call.
    fn run(tile: Tile, k: usize, lanes: usize) {
        let Some(function) = tile.compile() else { return };
        let columns = (tile.vectors - 1) * LANES + lanes;
        let pitch = columns + 3;
        let a = draw(k * tile.rows, 1);
        // The same A with each row along K.
        let rows: Vec<f32> = (0..a.len()).map(|i| a[i % k * tile.rows + i / k]).collect();
        let b: Vec<f32> = draw(k * pitch, 2).iter().map(|x| x.round()).collect();
        let stored = bytes(&b, tile.stored);
        let mut c = vec![7.0f32; tile.rows * pitch];
        let mut keep = vec![0f32; k * tile.vectors * LANES];
        let first = k.div_ceil(3);
        for (start, end) in [(0, first), (first, k)] {
            if start == end {
                continue;
            }
            let step = pitch * tile.stored.size();
            let call = TileCall {
                a: if tile.apart { &rows[start..] } else { &a[start * tile.rows..] }.as_ptr(),
                b: stored[start * step..].as_ptr(),
                b_step: step as isize,
                c: c.as_mut_ptr(),
                c_step: 4 * pitch as isize,
                k: end - start,
                lanes,
                add: (start > 0) as usize,
                keep: keep[start * tile.vectors * LANES..].as_mut_ptr(),
                ahead: stored.as_ptr(),
                ahead_step: 64,
                a_step: 4 * k as isize,
            };
            // SAFETY: the operands and the result have these sizes.
            unsafe { function.call(&call) };
        }
        for r in 0..tile.rows {
            for j in 0..pitch {
                let dot =
                    (0..k).fold(0f32, |s, i| a[i * tile.rows + r].mul_add(b[i * pitch + j], s));
                let want = if j < columns { dot } else { 7.0 };
                assert_eq!(c[r * pitch + j], want, "{tile:?} k {k} lanes {lanes} at {r} {j}");
            }
        }
        if tile.keep {
            for (i, &kept) in keep.iter().enumerate() {
                let (row, column) = (i / (tile.vectors * LANES), i % (tile.vectors * LANES));
                let want = if column < columns { b[row * pitch + column] } else { 0.0 };
                assert_eq!(kept, want, "{tile:?} kept {row} {column}");
            }
        }
    }

    #[test]
    fn tiles_of_every_shape_are_chains_of_multiply_adds_within_their_columns() {
        for vectors in 1..=8 {
            for rows in 1..=24 {
                let i = rows + vectors;
                let (stored, keep) = (STORED[i % 3], i % 2 == 0);
                for apart in [false, true] {
                    let prefetch = i % 4 < 2;
                    let tile =
                        Tile { rows, vectors, stored, prefetch, keep, apart, indirect: None };
                    if tile.fits() {
                        for (k, lanes) in [(1, 16), (2, 1), (5, 7), (16, 15)] {
                            run(tile, k, lanes);
                        }
                    }
                }
            }
        }
    }

    fn names(tile: Tile) -> Vec<Mnemonic> {
        let code = tile.emit();
        let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
        decoder.into_iter().map(|i| i.mnemonic()).collect()
    }

    #[test]
    fn a_tile_of_eight_rows_and_three_vectors_loads_eleven_times_for_24_multiply_adds() {
        let tile = Tile {
            rows: 8,
            vectors: 3,
            stored: Stored::F32,
            prefetch: false,
            keep: false,
            apart: false,
            indirect: None,
        };
        let names = names(tile);
        assert!(!names.contains(&Mnemonic::INVALID));
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!(count(Mnemonic::Vfmadd231ps), 24);
        assert_eq!(count(Mnemonic::Vbroadcastss), 8);
        // Three rows' loads, and the result's before and after.
        assert_eq!(count(Mnemonic::Vmovups), 3 + 2 * 24);
    }

    #[test]
    fn a_tile_of_bytes_extends_them_as_it_loads_and_broadcasts_in_its_products() {
        let tile = Tile {
            rows: 8,
            vectors: 3,
            stored: Stored::I8,
            prefetch: false,
            keep: false,
            apart: false,
            indirect: None,
        };
        let names = names(tile);
        assert!(!names.contains(&Mnemonic::INVALID));
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!((count(Mnemonic::Vpmovsxbd), count(Mnemonic::Vbroadcastss)), (3, 0));
        assert_eq!((count(Mnemonic::Vpmulld), count(Mnemonic::Vpaddd)), (24, 24));
    }
}
