//! Micro-kernels of GEMMs whose operands are both contiguous along K: each element is accumulated in
//! 16 chains of fused multiply-adds, one per index modulo 16.

use super::asm::{Condition, Gpr, Mem, Source};
use super::function::level;
use super::microkernel::{CALL, COUNT, Function, LANES, Stored, enabled};
use super::vector::{self, Emitter, LOAD, Lanes, at};
use girih_exec::Isa;

/// The shape of a micro-kernel: `rows` by `columns` elements of the result, with `tail` indices of K
/// after the last 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DotMicrokernel {
    pub rows: usize,
    pub columns: usize,
    pub tail: usize,
    pub stored: Stored,
}

/// The arguments of the micro-kernel of [`DotMicrokernel`]. `k` and `groups` are at least 1.
#[repr(C)]
pub(crate) struct DotCall {
    /// Packed A, `[k / 16][rows][16]`, padded with zeros.
    pub a: *const f32,
    /// The first column of B, and the number of bytes to the next column.
    pub b: *const u8,
    pub ldb: isize,
    /// The 16 partial sums of each element, `[groups][rows][columns][16]`.
    pub out: *mut f32,
    pub k: usize,
    /// The number of consecutive groups of columns that one call multiplies.
    pub groups: usize,
}

/// The number of columns of a micro-kernel with `rows` rows, on this machine.
pub(crate) fn columns(rows: usize) -> usize {
    match rows {
        1 | 2 if level() >= Isa::Avx512 => 8,
        _ if level() >= Isa::Avx512 => 4,
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
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

    /// The number of registers that hold the sums of an element.
    fn parts(&self) -> usize {
        LANES / vector::lanes(level())
    }

    /// The register of the sums of an element.
    fn accumulator(&self, row: usize, column: usize, part: usize) -> u8 {
        ((row * self.columns + column) * self.parts() + part) as u8
    }

    /// The first register after the accumulators.
    fn b_registers(&self) -> usize {
        self.rows * self.columns * self.parts()
    }

    /// Whether there are enough registers.
    fn fits(&self) -> bool {
        let integers = self.stored.is_integer() as usize;
        let needed = self.b_registers() + self.columns + 1 + integers;
        (1..=8).contains(&self.columns) && needed <= vector::registers(level())
    }

    pub(super) fn emit(&self) -> Vec<u8> {
        let (rows, columns) = (self.rows, self.columns);
        assert!(rows > 0 && self.fits(), "{self:?}");
        let mut e = Emitter::new(level());
        let (a, ldb, out, index, groups) = (Gpr(6), Gpr(1), Gpr(15), Gpr(14), Gpr(5));
        let saved = [Gpr(3), Gpr(12), Gpr(13), index, out, groups];
        saved.iter().for_each(|&reg| e.asm.push(reg));
        let partial = self.tail % vector::lanes(level());
        if partial > 0 {
            e.set_tail(partial, [a, ldb]);
        }
        e.asm.load(ldb, CALL, 16);
        e.asm.load(out, CALL, 24);
        e.asm.load(groups, CALL, 40);
        e.asm.load(Self::B_ADDRESSES[0], CALL, 8);
        for pair in Self::B_ADDRESSES[..columns].windows(2) {
            e.asm.copy(pair[1], pair[0]);
            e.asm.add_reg(pair[1], ldb);
        }
        let group = e.asm.label();
        e.asm.bind(group);
        e.asm.load(a, CALL, 0);
        e.asm.load(COUNT, CALL, 32);
        (0..self.b_registers()).for_each(|sum| e.clear(sum as u8));
        e.asm.zero(index);
        let (main, tail) = (e.asm.label(), e.asm.label());
        e.asm.sub(COUNT, LANES as i32);
        e.asm.jump_if(Condition::Below, tail);
        e.asm.align(32);
        e.asm.bind(main);
        self.block(&mut e, a, index, LANES);
        e.asm.add(a, (4 * LANES * rows) as i32);
        e.asm.add(index, LANES as i32);
        e.asm.sub(COUNT, LANES as i32);
        e.asm.jump_if(Condition::NotBelow, main);
        e.asm.bind(tail);
        self.block(&mut e, a, index, self.tail);
        for sum in 0..self.b_registers() {
            let to = at(out, e.bytes() * sum);
            e.store(sum as u8, to, Lanes::All, 0);
        }
        e.asm.add(out, (e.bytes() * self.b_registers()) as i32);
        for &base in &Self::B_ADDRESSES[..columns] {
            match columns.is_power_of_two() {
                true => e.asm.lea_indexed(base, base, ldb, columns as u8, 0),
                false => (0..columns).for_each(|_| e.asm.add_reg(base, ldb)),
            }
        }
        e.asm.sub(groups, 1);
        e.asm.jump_if(Condition::NotEqual, group);
        saved.iter().rev().for_each(|&reg| e.asm.pop(reg));
        e.asm.leave();
        e.finish()
    }

    /// Multiplies `count` indices of K, at most sixteen, of all rows and columns.
    fn block(&self, e: &mut Emitter, a: Gpr, index: Gpr, count: usize) {
        let (first, width) = (self.b_registers(), e.bytes() / 4);
        let last = vector::registers(level()) - 1;
        for part in 0..count.div_ceil(width) {
            let lanes = if count - part * width < width { Lanes::Tail } else { Lanes::All };
            for (j, &base) in Self::B_ADDRESSES[..self.columns].iter().enumerate() {
                let size = self.stored.size();
                let (scale, displacement) = (size as u8, (part * width * size) as i32);
                let from = Source::Mem(Mem::Indexed { base, index, scale, displacement });
                e.load(self.stored, (first + j) as u8, from, lanes);
            }
            for r in 0..self.rows {
                let mut row = at(a, 4 * (LANES * r + part * width));
                let spare = first + self.columns;
                if self.columns > 1 && spare < last {
                    e.plain(LOAD, spare as u8, 0, row);
                    row = Source::Reg(spare as u8);
                }
                for j in 0..self.columns {
                    let sum = self.accumulator(r, j, part);
                    e.multiply_add(self.stored, sum, (first + j) as u8, row, last as u8);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::microkernel::tests::{STORED, bytes, draw};
    use super::*;
    use crate::jit::tile_shapes::reads_in_place;

    #[test]
    fn dot_products_sum_sixteen_chains() {
        crate::jit::on_each_level(run_every_shape);
    }

    fn run_every_shape() {
        let shapes = [(1, 8), (2, 8), (3, 7), (4, 4), (5, 4), (6, 4), (1, 1), (2, 3)];
        for (rows, columns) in shapes.into_iter().chain([(1, 4), (2, 2), (3, 2), (5, 1), (6, 1)]) {
            for stored in STORED {
                for k in [1usize, 15, 16, 17, 24, 64, 75] {
                    let kernel = DotMicrokernel { rows, columns, tail: k % LANES, stored };
                    if !kernel.fits() || !reads_in_place(stored, k) {
                        continue;
                    }
                    let Some(function) = kernel.compile() else { return };
                    let (blocks, groups) = (k.div_ceil(LANES), 3);
                    let columns = groups * columns;
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
                    let (a, b) = (a.as_ptr(), b.as_ptr());
                    let call = DotCall { a, b, ldb, out: out.as_mut_ptr(), k, groups };
                    // SAFETY: the operands and the result have these sizes.
                    unsafe { function.call(&call) };
                    for r in 0..rows {
                        for j in 0..columns {
                            let (group, column) = (j / kernel.columns, j % kernel.columns);
                            let at = (group * rows + r) * kernel.columns + column;
                            let got: f32 = out[at * LANES..][..LANES].iter().sum();
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
