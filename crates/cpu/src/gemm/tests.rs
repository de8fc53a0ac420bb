//! GEMM against plain sums in f64, over sizes, layouts, dtypes and numbers of threads.

mod integers;
mod prologue;
mod windows;

use crate::prepacked::PrepackedStore;
use crate::prepacked::testing::CountingStore;
use crate::{LoadedKernel, Pool};
use girih_exec::{Bindings, Bounds};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{Access, AccessId, Block, BufferId, Core, Inst, Kernel, Store};
use proptest::prelude::*;
use smallvec::SmallVec;

/// The layout of an operand in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    /// Row-major, with a gap.
    RowMajor,
    /// Column-major, with a gap.
    ColumnMajor,
    /// With stride -2.
    Strided,
    /// Each column begins one element after the column before it, as the windows of a signal do.
    Overlapping,
}

#[derive(Clone, Debug)]
struct Case {
    /// The dtypes of the operands, and the dtype of the sums.
    operands: [DType; 2],
    dtype: DType,
    /// Batch, M, N, K.
    sizes: [usize; 4],
    layouts: [Layout; 2],
    /// All entries of the batch have the same A.
    same_a: bool,
    body: bool,
}

/// Offset and strides `(batch, row, column)` of a matrix, and the elements it spans.
fn place(layout: Layout, batch: usize, rows: usize, columns: usize) -> (usize, [isize; 3], usize) {
    let (r, c) = (rows as isize, columns as isize);
    let (offset, [row, column], size) = match layout {
        Layout::RowMajor => (0, [c + 3, 1], rows * (columns + 3)),
        Layout::ColumnMajor => (0, [1, r + 2], columns * (rows + 2)),
        Layout::Strided => (2 * (rows * columns - 1), [-2 * c, -2], 2 * rows * columns),
        Layout::Overlapping => (0, [1, 1], rows + columns - 1),
    };
    (offset, [size as isize, row, column], size * batch)
}

impl Case {
    /// A case of floats.
    fn new(dtype: DType, sizes: [usize; 4], layouts: [Layout; 2]) -> Case {
        Case { operands: [dtype; 2], dtype, sizes, layouts, same_a: false, body: false }
    }

    fn access(&self, buffer: u32, offset: usize, strides: &[isize]) -> Access {
        let dtype = self.operands.get(buffer as usize).copied().unwrap_or(self.dtype);
        Access {
            buffer: BufferId(buffer),
            dtype,
            offset: offset as isize,
            strides: SmallVec::from_slice(strides),
        }
    }

    fn kernel(&self) -> (Kernel, [usize; 4]) {
        let [b, m, n, k] = self.sizes;
        let (left, l, left_size) = place(self.layouts[0], b, m, k);
        let (right, r, right_size) = place(self.layouts[1], b, k, n);
        let batch = if self.same_a { 0 } else { l[0] };
        let dtype = self.dtype;
        let mut body = Block::default();
        let mut value = body.push(Inst::Core { dtype });
        if self.body {
            let bias = body.push(Inst::Load(AccessId(0)));
            let args = SmallVec::from_slice(&[value, bias]);
            value = body.push(Inst::Op { code: OpCode::Add, args, dtype });
        }
        let (mi, ni) = (m as isize, n as isize);
        let kernel = Kernel {
            name: "gemm".into(),
            extents: SmallVec::from_slice(&self.sizes),
            parallel: 3,
            accesses: vec![self.access(2, 0, &[0, 0, 1])],
            core: Core::Gemm {
                lhs: self.access(0, left, &[batch, l[1], 0, l[2]]),
                rhs: self.access(1, right, &[r[0], 0, r[2], r[1]]),
                dtype,
                rows: 1,
                columns: 1,
            },
            body,
            stores: vec![Store { access: self.access(3, 0, &[mi * ni, ni, 1]), value }],
        };
        (kernel, [left_size, right_size, n, b * m * n])
    }

    /// Runs the kernel on operands of few bits, so that sums are exact in any order.
    fn run(&self, threads: usize, store: Option<&dyn PrepackedStore>) -> (Vec<Vec<f64>>, Vec<f64>) {
        let (kernel, sizes) = self.kernel();
        let size = self.dtype.size();
        let mut values: Vec<Vec<f64>> = vec![];
        let mut buffers: Vec<Vec<u64>> = vec![];
        for (seed, n) in sizes.into_iter().enumerate() {
            let draw = |i: usize| ((i * 7919 + seed * 104_729) % 17) as f64 / 4.0 - 2.0;
            let of: Vec<f64> = (0..n).map(draw).collect();
            let mut words = vec![0u64; (n * size).div_ceil(8)];
            for (i, &x) in of.iter().enumerate() {
                let bits = Literal::from_f64(self.dtype, x).bits;
                words[i * size / 8] |= bits << (i * size % 8 * 8);
            }
            values.push(of);
            buffers.push(words);
        }
        let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let bounds = sizes.map(|n| Bounds::of(n * size));
        let workspace = std::ptr::null_mut();
        let bindings =
            Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
        let loaded = match store {
            None => LoadedKernel::checked(&kernel),
            Some(_) => LoadedKernel::new(&kernel),
        };
        // SAFETY: the accesses stay inside buffers of these sizes.
        unsafe { loaded.run_with_prepacked(&bindings, &Pool::new(threads), store) }.unwrap();
        let mask = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        let at = |i: usize| {
            let bits = buffers[3][i * size / 8] >> (i * size % 8 * 8) & mask;
            Literal { dtype: self.dtype, bits }.as_f64()
        };
        (values, (0..sizes[3]).map(at).collect())
    }

    fn check(&self) {
        let [b, m, n, k] = self.sizes;
        let (values, got) = self.run(1, None);
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for threads in 2..=4 {
            let again = self.run(threads, None).1;
            assert_eq!(bits(&got), bits(&again), "{threads} threads, {self:?}");
            let store = CountingStore { packs: true, ..CountingStore::default() };
            let packed = self.run(threads, Some(&store)).1;
            assert_eq!(bits(&got), bits(&packed), "prepacked, {threads} threads, {self:?}");
        }
        let (left, l, _) = place(self.layouts[0], b, m, k);
        let (right, r, _) = place(self.layouts[1], b, k, n);
        let l0 = if self.same_a { 0 } else { l[0] };
        let at = |values: &[f64], offset: usize, i: isize| values[(offset as isize + i) as usize];
        for (i, &got) in got.iter().enumerate() {
            let [batch, row, column] = [i / (m * n), i / n % m, i % n].map(|x| x as isize);
            let term = |k: isize| {
                let x = at(&values[0], left, batch * l0 + row * l[1] + k * l[2]);
                x * at(&values[1], right, batch * r[0] + k * r[1] + column * r[2])
            };
            let sum: f64 = (0..k as isize).map(term).sum();
            let round = |x: f64| Literal::from_f64(self.dtype, x).as_f64();
            let mut want = round(sum);
            if self.body {
                want = round(want + values[2][column as usize]);
            }
            assert_eq!(got, want, "{self:?} at {batch} {row} {column}");
        }
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::RowMajor), Just(Layout::ColumnMajor), Just(Layout::Strided)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn gemms_are_exact_sums_for_all_sizes_and_threads(
        dtype in prop_oneof![Just(DType::F32), Just(DType::BF16), Just(DType::F16)],
        sizes in (1usize..4, 1usize..40, 1usize..150, 1usize..90),
        layouts in (layout(), layout()),
        same_a in any::<bool>(),
        body in any::<bool>(),
    ) {
        let (b, m, n, k) = sizes;
        let layouts = [layouts.0, layouts.1];
        Case { same_a, body, ..Case::new(dtype, [b, m, n, k], layouts) }.check();
    }
}

#[test]
fn gemms_of_many_rows_of_bfloat16_fill_tiles_with_zeros() {
    for sizes in [[1, 16, 32, 64], [1, 17, 33, 65], [2, 70, 100, 320], [1, 530, 70, 700]] {
        for (body, layout) in
            [(false, Layout::RowMajor), (true, Layout::RowMajor), (true, Layout::ColumnMajor)]
        {
            Case { body, ..Case::new(DType::BF16, sizes, [Layout::RowMajor, layout]) }.check();
        }
    }
}

#[test]
fn blocking_changes_no_element_of_large_gemms() {
    for (sizes, layouts) in [
        ([1, 600, 70, 700], [Layout::RowMajor, Layout::RowMajor]),
        ([1, 40, 700, 2100], [Layout::ColumnMajor, Layout::ColumnMajor]),
        ([1, 5, 1100, 2500], [Layout::RowMajor, Layout::RowMajor]),
        ([1, 1, 1500, 3000], [Layout::RowMajor, Layout::ColumnMajor]),
        ([3, 130, 140, 300], [Layout::RowMajor, Layout::Strided]),
        ([1, 1030, 17, 1100], [Layout::RowMajor, Layout::RowMajor]),
    ] {
        for body in [false, true] {
            Case { same_a: true, body, ..Case::new(DType::F32, sizes, layouts) }.check();
        }
    }
}

#[test]
fn the_first_tile_packs_b_for_the_others_block_by_block() {
    use DType::{BF16, F16, F32};
    for (dtype, sizes) in [
        (F32, [1, 40, 300, 600]),
        (F32, [2, 130, 70, 257]),
        (F32, [1, 200, 40, 900]),
        (F16, [3, 50, 100, 513]),
        (BF16, [1, 15, 100, 700]),
    ] {
        for body in [false, true] {
            let layouts = [Layout::ColumnMajor, Layout::RowMajor];
            Case { body, ..Case::new(dtype, sizes, layouts) }.check();
        }
    }
}

#[test]
fn rows_of_a_are_read_in_place_for_few_columns() {
    // The rows of the last case map to the same cache set.
    for sizes in [
        [1, 300, 60, 500],
        [1, 130, 200, 2100],
        [1, 512, 49, 900],
        [2, 90, 33, 300],
        [1, 300, 20, 1021],
    ] {
        for (body, layout) in
            [(false, Layout::ColumnMajor), (true, Layout::Strided), (true, Layout::RowMajor)]
        {
            Case { body, ..Case::new(DType::F32, sizes, [Layout::RowMajor, layout]) }.check();
        }
    }
}

#[test]
fn split_k_adds_the_parts_of_gemms_of_few_rows() {
    use DType::{BF16, F16, F32};
    for (dtype, sizes) in [
        (F32, [1, 1, 700, 1000]),
        (F32, [1, 3, 1030, 513]),
        (F32, [1, 16, 300, 2500]),
        (BF16, [1, 1, 600, 1027]),
        (F16, [1, 9, 530, 800]),
        (F32, [1, 1, 1, 300_000]),
        (F32, [1, 2, 40, 5001]),
    ] {
        for body in [false, true] {
            let layouts = [Layout::ColumnMajor, Layout::RowMajor];
            Case { body, ..Case::new(dtype, sizes, layouts) }.check();
        }
    }
}

#[test]
fn overlapping_columns_are_multiplied_by_dot_products_without_split_k() {
    // AVX2 does not read rows of 1001 halves in memory, but columns of 600.
    for body in [false, true] {
        let layouts = [Layout::RowMajor, Layout::Overlapping];
        Case { body, ..Case::new(DType::F16, [1, 2, 1001, 600], layouts) }.check();
    }
}
