//! Micro-kernels for AVX-512 of GEMMs whose operands are both contiguous along K: each element is
//! accumulated in 16 chains of fused multiply-adds, one per lane.

use super::asm::{Condition, Gpr, Masking, Mem, Source};
use super::microkernel::{
    CALL, COUNT, Emitter, Function, LANES, LOAD, MASK, STORE, Stored, at, enabled,
};

/// The register for the products of integers.
const SPARE: u8 = 31;

/// The shape of a micro-kernel: `rows` by `columns` elements of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DotMicrokernel {
    pub rows: usize,
    pub columns: usize,
    pub stored: Stored,
}

/// The arguments of the micro-kernel of [`DotMicrokernel`]. `k` is at least 1.
#[repr(C)]
pub(crate) struct DotCall {
    /// Packed A, `[k / 16][rows][16]`, padded with zeros.
    pub a: *const f32,
    /// The first column of B, and bytes to the next one.
    pub b: *const u8,
    pub ldb: isize,
    /// The 16 partial sums of each element, `[rows][columns][16]`.
    pub out: *mut f32,
    pub k: usize,
}

impl DotMicrokernel {
    /// The registers for the columns' addresses.
    const B_ADDRESSES: [Gpr; 8] =
        [Gpr(2), Gpr(8), Gpr(9), Gpr(11), Gpr(0), Gpr(3), Gpr(12), Gpr(13)];

    /// Generates the micro-kernel; `None` if code cannot be generated.
    pub fn compile(&self) -> Option<Function<DotCall>> {
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
        let (a, ldb, out, index) = (Gpr(6), Gpr(1), Gpr(7), Gpr(14));
        let saved: Vec<Gpr> = [Gpr(3), Gpr(12), Gpr(13), index].to_vec();
        saved.iter().for_each(|&reg| e.asm.push(reg));
        e.asm.load(a, CALL, 0);
        e.asm.load(ldb, CALL, 16);
        e.asm.load(Self::B_ADDRESSES[0], CALL, 8);
        for pair in Self::B_ADDRESSES[..columns].windows(2) {
            e.asm.copy(pair[1], pair[0]);
            e.asm.add_reg(pair[1], ldb);
        }
        e.asm.load(COUNT, CALL, 32);
        e.asm.load(out, CALL, 24);
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
        e.asm.low_bits(MASK, COUNT, ldb);
        self.block(&mut e, a, index, Masking { mask: MASK, zero: true });
        e.asm.bind(done);
        for sum in 0..rows * columns {
            e.plain(STORE, sum as u8, 0, at(out, 64 * sum));
        }
        saved.iter().rev().for_each(|&reg| e.asm.pop(reg));
        e.asm.leave();
        e.asm.finish(&[])
    }

    /// Multiplies sixteen indices of K of all rows and columns.
    fn block(&self, e: &mut Emitter, a: Gpr, index: Gpr, masking: Masking) {
        let first = self.rows * self.columns;
        for (j, &base) in Self::B_ADDRESSES[..self.columns].iter().enumerate() {
            let scale = self.stored.size() as u8;
            let from = Source::Mem(Mem::Indexed { base, index, scale, displacement: 0 });
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

#[cfg(test)]
mod tests {
    use super::super::microkernel::tests::{STORED, bytes, draw};
    use super::*;

    #[test]
    fn dots_are_sixteen_chains_whose_sum_is_the_element() {
        for (rows, columns) in [(1, 8), (2, 8), (3, 7), (4, 4), (5, 4), (6, 4), (1, 1), (2, 3)] {
            for stored in STORED {
                let Some(function) = (DotMicrokernel { rows, columns, stored }).compile() else {
                    return;
                };
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
                    let ldb = ((k + 2) * stored.size()) as isize;
                    let call =
                        DotCall { a: a.as_ptr(), b: b.as_ptr(), ldb, out: out.as_mut_ptr(), k };
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
}
