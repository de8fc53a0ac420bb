//! Inner loops of matrix products for AVX-512: a tile of the result stays in registers while the
//! shared dimension passes by.
//!
//! An element of the result is one chain of fused multiply-adds in the order of the shared
//! dimension, whatever the tile and wherever the chain is interrupted: tiles of all shapes give the
//! same bits. [`Dots`], for operands that both lie along the shared dimension, sum it in 16 chains.
//! Integers are summed modulo 2^32, which no order changes.

use super::arena::{self, Code};
use super::asm::{Assembler, Bits, Condition, Gpr, Map, Masking, Mem, Prefix, Source, VectorOp};
pub(crate) use super::stored::Stored;
use super::symbols::{self, Symbol};
use girih_kernel::Isa;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Rows of a packed right operand that are asked for ahead: it comes from the second cache.
const AHEAD: usize = 8;

/// Accumulators, a row's vectors of the right operand and an element of the left one must fit.
const REGISTERS: usize = 32;

/// The register in which the sums of [`Dots`] of integers get their products.
const SPARE: u8 = 31;

const MASK: u8 = 1;
const TABLE: Gpr = Gpr(7);
const COUNT: Gpr = Gpr(10);

const fn op(map: Map, prefix: Prefix, opcode: u8) -> VectorOp {
    VectorOp { map, prefix, opcode, wide: false, bits: Bits::B512 }
}
const LOAD: VectorOp = op(Map::M0F, Prefix::None, 0x10);
const STORE: VectorOp = op(Map::M0F, Prefix::None, 0x11);
const FROM_HALF: VectorOp = op(Map::M0F38, Prefix::P66, 0x13);
/// Words and bytes to 32 bits, with zeros or with the sign.
const WIDEN: VectorOp = op(Map::M0F38, Prefix::P66, 0x33);
const EXTEND: VectorOp = op(Map::M0F38, Prefix::P66, 0x23);
const WIDEN_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x31);
const EXTEND_BYTES: VectorOp = op(Map::M0F38, Prefix::P66, 0x21);
const SHIFT: VectorOp = op(Map::M0F, Prefix::P66, 0x72);
const XOR: VectorOp = op(Map::M0F, Prefix::P66, 0xef);
const SPLAT: VectorOp = op(Map::M0F38, Prefix::P66, 0x18);
/// `dst += a * b`, rounded once.
const MULTIPLY_ADD: VectorOp = op(Map::M0F38, Prefix::P66, 0xb8);
/// Of integers, the low half of the product.
const MULTIPLY: VectorOp = op(Map::M0F38, Prefix::P66, 0x40);
const ADD: VectorOp = op(Map::M0F, Prefix::P66, 0xfe);

/// A tile of the result: `rows` by `vectors` of 16 columns, the last of which is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tile {
    pub rows: usize,
    pub vectors: usize,
    pub stored: Stored,
    /// The right operand comes from afar, and its lines are asked for where the call says; else it
    /// is packed, and what is asked for there is a line per row of what comes next.
    pub prefetch: bool,
    /// The right operand's vectors are also written to memory, as it is packed, row after row.
    pub keep: bool,
}

/// What a tile's function is called with. `k` is at least 1.
#[repr(C)]
pub(crate) struct TileCall {
    /// Left operand, `[k][rows]`.
    pub a: *const f32,
    /// First row of the right operand, and bytes to the next one.
    pub b: *const u8,
    pub b_step: isize,
    /// Result, and bytes to its next row.
    pub c: *mut f32,
    pub c_step: isize,
    pub k: usize,
    /// Columns of the last vector, 1 to 16.
    pub lanes: usize,
    /// 1 to add to what the result holds, 0 to begin.
    pub add: usize,
    /// Where the right operand's vectors go.
    pub keep: *mut f32,
    /// Where the rows to ask for ahead begin, and bytes to the next one.
    pub ahead: *const u8,
    pub ahead_step: isize,
}

/// `rows` by `columns` elements of the result, of operands that lie along the shared dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Dots {
    pub rows: usize,
    pub columns: usize,
    pub stored: Stored,
}

/// What the function of [`Dots`] is called with. `k` is at least 1.
#[repr(C)]
pub(crate) struct DotsCall {
    /// Left operand, `[k / 16][rows][16]`, with zeros at the end.
    pub a: *const f32,
    /// First column of the right operand, and bytes to the next one.
    pub b: *const u8,
    pub b_step: isize,
    /// The 16 chains of each element, `[rows][columns][16]`.
    pub out: *mut f32,
    pub k: usize,
}

/// The function of a tile.
pub(crate) struct Function<Call> {
    /// Before the code: a debugger forgets the name before the memory is gone.
    _symbol: Symbol,
    code: Code,
    call: std::marker::PhantomData<fn(&Call)>,
}

impl<Call> Function<Call> {
    /// Runs the loop.
    ///
    /// # Safety
    /// The pointers of the call are valid for what the shape this was made of reads and writes.
    #[inline]
    pub unsafe fn call(&self, call: &Call) {
        type Entry<Call> = unsafe extern "sysv64" fn(*const Call);
        // SAFETY: the address is that of a function written for this machine with this signature,
        // which keeps the calling convention; the code lives as long as `self`.
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

/// True if the machine has these loops' instructions, and they are wanted.
pub(super) fn enabled() -> bool {
    super::function::enabled() && Isa::best() >= Isa::Avx512
}

impl Tile {
    /// True if the registers suffice.
    fn fits(&self) -> bool {
        self.rows * self.vectors + self.vectors < REGISTERS
    }

    /// Its function; none where code cannot be generated.
    pub fn compile(&self) -> Option<Function<TileCall>> {
        if !enabled() {
            return None;
        }
        Function::install(&self.emit(), &format!("tile {} by {}", self.rows, LANES * self.vectors))
    }

    /// Rows of the right operand per iteration: enough to hide the loop itself.
    fn unrolled(&self) -> usize {
        (24 / (self.rows * self.vectors)).clamp(1, 4)
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        assert!(self.fits() && self.rows > 0 && self.vectors > 0, "{self:?}");
        let mut e = Emitter::default();
        let (a, b, step, keep) = (Gpr(6), Gpr(2), Gpr(1), Gpr(11));
        let (c, c_step, walk) = (Gpr(8), Gpr(9), Gpr(0));
        e.asm.load(walk, TABLE, 48);
        e.asm.low_bits(MASK, walk, keep);
        for (i, reg) in [a, b, step, c, c_step, COUNT].into_iter().enumerate() {
            e.asm.load(reg, TABLE, 8 * i as i32);
        }
        e.asm.load(keep, TABLE, 64);
        self.start(&mut e, c, c_step, walk);
        let (ahead, ahead_step) = (TABLE, walk);
        e.asm.load(ahead_step, TABLE, 80);
        e.asm.load(ahead, TABLE, 72);
        e.counted(self.unrolled(), |e, count| {
            for i in 0..count {
                self.row(e, a, b, i);
                e.asm.add_reg(b, step);
                if !self.prefetch {
                    e.asm.prefetch(ahead, 0);
                }
                e.asm.add_reg(ahead, ahead_step);
                if self.keep {
                    e.asm.add(keep, 64 * self.vectors as i32);
                }
            }
            e.asm.add(a, (4 * self.rows * count) as i32);
        });
        for r in 0..self.rows {
            for v in 0..self.vectors {
                let to = at(c, 64 * v);
                e.asm.evex(STORE, self.sum(r, v), 0, to, self.masking(v, false), None);
            }
            e.asm.add_reg(c, c_step);
        }
        e.asm.leave();
        e.asm.finish(&[])
    }

    /// The register of an accumulator.
    fn sum(&self, row: usize, vector: usize) -> u8 {
        (row * self.vectors + vector) as u8
    }

    fn masking(&self, vector: usize, zero: bool) -> Masking {
        match vector + 1 == self.vectors {
            true => Masking { mask: MASK, zero },
            false => Masking::default(),
        }
    }

    /// Accumulators from the result, or zero.
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

    /// One row of the right operand and the elements of the left one that meet it.
    fn row(&self, e: &mut Emitter, a: Gpr, b: Gpr, step: usize) {
        let (first, size) = (self.rows * self.vectors, self.stored.size());
        let vector = |v: usize| (first + v) as u8;
        for v in 0..self.vectors {
            let from = at(b, LANES * size * v);
            e.widen(self.stored, vector(v), from, self.masking(v, true));
            if !self.prefetch {
                e.asm.prefetch(b, (LANES * size * (v + AHEAD * self.vectors)) as i32);
            } else if (v * size).is_multiple_of(4) {
                e.asm.prefetch(TABLE, (LANES * size * v) as i32);
            }
            if self.keep {
                e.plain(STORE, vector(v), 0, at(Gpr(11), 64 * v));
            }
        }
        let spare = (first + self.vectors) as u8;
        for r in 0..self.rows {
            let element =
                Mem::Broadcast { base: a, displacement: (4 * (step * self.rows + r)) as i32 };
            if self.vectors == 1 || self.stored.is_integer() {
                for v in 0..self.vectors {
                    let (sum, element) = (self.sum(r, v), Source::Mem(element));
                    e.multiply_add(self.stored, sum, vector(v), element, spare);
                }
                continue;
            }
            let Mem::Broadcast { base, displacement } = element else { unreachable!() };
            e.plain(SPLAT, spare, 0, Source::Mem(Mem::Offset { base, displacement }));
            for v in 0..self.vectors {
                e.plain(MULTIPLY_ADD, self.sum(r, v), spare, Source::Reg(vector(v)));
            }
        }
    }
}

impl Dots {
    /// Columns that have a register for their address.
    const COLUMNS: [Gpr; 8] = [Gpr(2), Gpr(8), Gpr(9), Gpr(11), Gpr(0), Gpr(3), Gpr(12), Gpr(13)];

    /// Its function; none where code cannot be generated.
    pub fn compile(&self) -> Option<Function<DotsCall>> {
        if !enabled() {
            return None;
        }
        Function::install(&self.emit(), &format!("dots {} by {}", self.rows, self.columns))
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        let (rows, columns) = (self.rows, self.columns);
        assert!(
            rows > 0 && (1..=8).contains(&columns) && rows * columns + columns < SPARE as usize
        );
        let mut e = Emitter::default();
        let (a, step, out, index) = (Gpr(6), Gpr(1), Gpr(7), Gpr(14));
        let saved: Vec<Gpr> = [Gpr(3), Gpr(12), Gpr(13), index].to_vec();
        saved.iter().for_each(|&reg| e.asm.push(reg));
        e.asm.load(a, TABLE, 0);
        e.asm.load(step, TABLE, 16);
        e.asm.load(Self::COLUMNS[0], TABLE, 8);
        for pair in Self::COLUMNS[..columns].windows(2) {
            e.asm.copy(pair[1], pair[0]);
            e.asm.add_reg(pair[1], step);
        }
        e.asm.load(COUNT, TABLE, 32);
        e.asm.load(out, TABLE, 24);
        (0..rows * columns).for_each(|sum| e.clear(sum as u8));
        e.asm.zero(index);
        let (main, tail, done) = (e.asm.label(), e.asm.label(), e.asm.label());
        e.asm.sub(COUNT, LANES as i32);
        e.asm.jump_if(Condition::Below, tail);
        e.asm.align(32);
        e.asm.bind(main);
        self.block(&mut e, a, index, Masking::default());
        e.asm.add(a, (64 * rows) as i32);
        e.asm.add(index, LANES as i32);
        e.asm.sub(COUNT, LANES as i32);
        e.asm.jump_if(Condition::NotBelow, main);
        e.asm.bind(tail);
        e.asm.add(COUNT, LANES as i32);
        e.asm.jump_if(Condition::Equal, done);
        e.asm.low_bits(MASK, COUNT, step);
        self.block(&mut e, a, index, Masking { mask: MASK, zero: true });
        e.asm.bind(done);
        for sum in 0..rows * columns {
            e.plain(STORE, sum as u8, 0, at(out, 64 * sum));
        }
        saved.iter().rev().for_each(|&reg| e.asm.pop(reg));
        e.asm.leave();
        e.asm.finish(&[])
    }

    /// Sixteen elements of all rows and columns.
    fn block(&self, e: &mut Emitter, a: Gpr, index: Gpr, masking: Masking) {
        let first = self.rows * self.columns;
        for (j, &base) in Self::COLUMNS[..self.columns].iter().enumerate() {
            let scale = self.stored.size() as u8;
            let from = Source::Mem(Mem::Indexed { base, index, scale });
            e.widen(self.stored, (first + j) as u8, from, masking);
        }
        for r in 0..self.rows {
            let mut row = at(a, 64 * r);
            if self.columns > 1 && first + self.columns < SPARE as usize {
                let spare = (first + self.columns) as u8;
                e.plain(LOAD, spare, 0, row);
                row = Source::Reg(spare);
            }
            for j in 0..self.columns {
                let sum = (r * self.columns + j) as u8;
                e.multiply_add(self.stored, sum, (first + j) as u8, row, SPARE);
            }
        }
    }
}

/// Memory at a distance in bytes.
pub(super) fn at(base: Gpr, bytes: usize) -> Source {
    Source::Mem(Mem::Offset { base, displacement: bytes as i32 })
}

#[derive(Default)]
struct Emitter {
    asm: Assembler,
}

impl Emitter {
    fn plain(&mut self, op: VectorOp, dst: u8, a: u8, b: Source) {
        self.asm.evex(op, dst, a, b, Masking::default(), None);
    }

    fn clear(&mut self, reg: u8) {
        self.plain(XOR, reg, reg, Source::Reg(reg));
    }

    /// Elements as they are packed.
    fn widen(&mut self, stored: Stored, out: u8, from: Source, masking: Masking) {
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

    /// `sum += a * b`; of integers with the product in `spare`.
    fn multiply_add(&mut self, stored: Stored, sum: u8, a: u8, b: Source, spare: u8) {
        if !stored.is_integer() {
            return self.plain(MULTIPLY_ADD, sum, a, b);
        }
        self.plain(MULTIPLY, spare, a, b);
        self.plain(ADD, sum, sum, Source::Reg(spare));
    }

    /// `COUNT` times the body, several of them per iteration; at least once.
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
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    const STORED: [Stored; 3] = [Stored::F32, Stored::F16, Stored::BF16];

    fn draw(n: usize, seed: usize) -> Vec<f32> {
        // Few bits: the same in every format.
        (0..n).map(|i| ((i * 7919 + seed * 104_729) % 251) as f32 / 32.0 - 4.0).collect()
    }

    fn bytes(values: &[f32], stored: Stored) -> Vec<u8> {
        let of = |&x: &f32| match stored {
            Stored::F32 => x.to_le_bytes().to_vec(),
            Stored::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
            Stored::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
            _ => unreachable!("integers are tested with their products"),
        };
        values.iter().flat_map(of).collect()
    }

    /// Runs a tile over `k` rows of which a part is done in a second call.
    fn run(tile: Tile, k: usize, lanes: usize) {
        let Some(function) = tile.compile() else { return };
        let columns = (tile.vectors - 1) * LANES + lanes;
        let pitch = columns + 3;
        let a = draw(k * tile.rows, 1);
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
                a: a[start * tile.rows..].as_ptr(),
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
                let tile = Tile { rows, vectors, stored, prefetch: i % 4 < 2, keep };
                if tile.fits() {
                    for (k, lanes) in [(1, 16), (2, 1), (5, 7), (16, 15)] {
                        run(tile, k, lanes);
                    }
                }
            }
        }
    }

    #[test]
    fn dots_are_sixteen_chains_whose_sum_is_the_element() {
        for (rows, columns) in [(1, 8), (2, 8), (3, 7), (4, 4), (5, 4), (6, 4), (1, 1), (2, 3)] {
            for stored in STORED {
                let Some(function) = (Dots { rows, columns, stored }).compile() else { return };
                for k in [1usize, 15, 16, 17, 64, 75] {
                    let blocks = k.div_ceil(LANES);
                    let (left, right) = (draw(rows * k, 1), draw(columns * (k + 2), 2));
                    let right: Vec<f32> = right.iter().map(|x| x.round()).collect();
                    let mut a = vec![0f32; blocks * rows * LANES];
                    for (i, x) in left.iter().enumerate() {
                        let (r, k) = (i / k, i % k);
                        a[(k / LANES * rows + r) * LANES + k % LANES] = *x;
                    }
                    let b = bytes(&right, stored);
                    let mut out = vec![0f32; rows * columns * LANES];
                    let b_step = ((k + 2) * stored.size()) as isize;
                    let call =
                        DotsCall { a: a.as_ptr(), b: b.as_ptr(), b_step, out: out.as_mut_ptr(), k };
                    // SAFETY: the operands and the result have these sizes.
                    unsafe { function.call(&call) };
                    for r in 0..rows {
                        for j in 0..columns {
                            let got: f32 = out[(r * columns + j) * LANES..][..LANES].iter().sum();
                            let dot = |i: usize| left[r * k + i] * right[j * (k + 2) + i];
                            let want: f32 = (0..k).map(dot).sum();
                            assert_eq!(got, want, "{rows} {columns} {stored:?} {k} at {r} {j}");
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
        let tile = Tile { rows: 8, vectors: 3, stored: Stored::F32, prefetch: false, keep: false };
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
        let tile = Tile { rows: 8, vectors: 3, stored: Stored::I8, prefetch: false, keep: false };
        let names = names(tile);
        assert!(!names.contains(&Mnemonic::INVALID));
        let count = |name| names.iter().filter(|m| **m == name).count();
        assert_eq!((count(Mnemonic::Vpmovsxbd), count(Mnemonic::Vbroadcastss)), (3, 0));
        assert_eq!((count(Mnemonic::Vpmulld), count(Mnemonic::Vpaddd)), (24, 24));
    }
}
