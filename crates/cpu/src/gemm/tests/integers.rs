//! GEMM of integers against the portable executor: the same bits, with any overflow.

use super::{Case, Layout, layout};
use crate::gemm::GeneratedGemm;
use crate::gemm::microkernels::{Multiply, as_if};
use crate::prepacked::testing::CountingStore;
use crate::{LoadedKernel, Pool};
use girih_exec::{Bindings, Bounds, Isa, Prepared, Scratch};
use girih_ir::{DType, Literal};
use girih_kernel::Kernel;
use proptest::prelude::*;

/// The words of a buffer, whose elements include both ends of the dtype's range.
fn draw(dtype: DType, n: usize, seed: usize) -> Vec<u64> {
    let size = dtype.size();
    let (low, high) = dtype.int_range().expect("an integer");
    let mut words = vec![0u64; (n * size).div_ceil(8)];
    for i in 0..n {
        let mixed = ((i + seed * 104_729) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value = match mixed >> 61 {
            0 => low,
            1 => high,
            _ => (mixed >> 20) as i128,
        };
        let bits = Literal::from_int(dtype, value).bits;
        words[i * size / 8] |= bits << (i * size % 8 * 8);
    }
    words
}

/// The implementation that computes a GEMM.
#[derive(Clone, Copy, Debug)]
enum Implementation {
    Portable,
    /// The fastest implementation on this machine, on this number of threads.
    Threads(usize),
    /// AVX-512 VNNI, even if the machine has AMX; B is prepacked if there are several threads.
    Vnni(usize),
}

/// The result of a kernel.
fn run(
    kernel: &Kernel,
    dtypes: [DType; 4],
    sizes: [usize; 4],
    implementation: Implementation,
) -> Vec<u64> {
    let mut buffers: Vec<Vec<u64>> =
        (0..4).map(|i| draw(dtypes[i], sizes[i], if i == 3 { 0 } else { i })).collect();
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
    let bounds: [Bounds; 4] = std::array::from_fn(|i| Bounds::of(sizes[i] * dtypes[i].size()));
    let workspace = std::ptr::null_mut();
    let bindings =
        Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
    // SAFETY: the accesses stay inside buffers of these sizes; GEMMs need no workspace.
    unsafe {
        match implementation {
            Implementation::Portable => Prepared::new(kernel).run(&bindings, &mut Scratch::new()),
            Implementation::Threads(threads) => {
                LoadedKernel::checked(kernel).run(&bindings, &Pool::new(threads))
            }
            Implementation::Vnni(threads) => {
                let gemm = as_if(Isa::Avx512, [true, false], || GeneratedGemm::new(kernel, &[]));
                let gemm = gemm.expect("the machine has VNNI");
                assert_eq!(gemm.variant(), "matrix engine");
                let store = CountingStore { packs: threads > 1, ..CountingStore::default() };
                let (prepared, pool) = (Prepared::new(kernel), Pool::new(threads));
                let result = gemm.run(&prepared, &bindings, &pool, Some(&store));
                assert_eq!(store.asked.get(), gemm.prepackable().is_some() as usize);
                result
            }
        }
    }
    .expect("no index is out of range");
    buffers.pop().expect("the result")
}

fn check(case: &Case) {
    let (kernel, sizes) = case.kernel();
    let [left, right] = case.operands;
    let dtypes = [left, right, case.dtype, case.dtype];
    let want = run(&kernel, dtypes, sizes, Implementation::Portable);
    for threads in 1..=3 {
        let got = run(&kernel, dtypes, sizes, Implementation::Threads(threads));
        assert!(got == want, "{threads} threads, {case:?}");
    }
    let [_, _, n, k] = case.sizes;
    let bytes = left.size() == 1 && right.size() == 1 && case.dtype.size() <= 4;
    let layout = case.layouts[0] == Layout::RowMajor && case.layouts[1] != Layout::Strided;
    let signed = case.operands.map(|dtype| dtype == DType::I8);
    let vnni = Multiply::Bytes(signed[0], signed[1]).available_without_amx();
    if bytes && layout && n >= 16 && k >= 64 && vnni {
        for threads in 1..=2 {
            let got = run(&kernel, dtypes, sizes, Implementation::Vnni(threads));
            assert!(got == want, "vectors, {threads} threads, {case:?}");
        }
    }
}

fn narrow() -> impl Strategy<Value = DType> {
    prop_oneof![Just(DType::I8), Just(DType::U8), Just(DType::I16), Just(DType::U16)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn gemms_of_integers_have_the_portable_bits(
        operands in (narrow(), narrow()),
        wide in prop_oneof![Just(DType::I32), Just(DType::U32), Just(DType::I64)],
        as_wide in 0..3usize,
        sizes in (1usize..4, 1usize..70, 1usize..150, 1usize..200),
        layouts in (layout(), layout()),
        same_a in any::<bool>(),
        body in any::<bool>(),
    ) {
        let (b, m, n, k) = sizes;
        let mut operands = [operands.0, operands.1];
        if let Some(operand) = operands.get_mut(as_wide) {
            *operand = wide;
        }
        let new = Case::new(wide, [b, m, n, k], [layouts.0, layouts.1]);
        check(&Case { operands, same_a, body, ..new });
    }

    #[test]
    fn gemms_of_bytes_have_the_portable_bits(
        signs in (any::<bool>(), any::<bool>()),
        dtype in prop_oneof![Just(DType::I32), Just(DType::I16), Just(DType::U32)],
        sizes in (1usize..3, 1usize..100, 1usize..150, 1usize..300),
        right in layout(),
        body in any::<bool>(),
    ) {
        let (b, m, n, k) = sizes;
        let of = |signed: bool| if signed { DType::I8 } else { DType::U8 };
        let new = Case::new(dtype, [b, m, n, k], [Layout::RowMajor, right]);
        check(&Case { operands: [of(signs.0), of(signs.1)], body, ..new });
    }
}

#[test]
fn gemms_of_narrow_integers_wrap() {
    for dtype in [DType::I8, DType::U8, DType::I16, DType::U16] {
        for sizes in [[1, 1, 64, 128], [2, 17, 33, 65], [1, 5, 7, 9], [1, 70, 130, 320]] {
            for layouts in [
                [Layout::RowMajor; 2],
                [Layout::RowMajor, Layout::ColumnMajor],
                [Layout::Strided, Layout::RowMajor],
            ] {
                for body in [false, true] {
                    check(&Case { body, ..Case::new(dtype, sizes, layouts) });
                }
            }
        }
    }
}

#[test]
fn blocking_changes_no_element_of_large_gemms_of_integers() {
    use DType::{I8, I16, I32, U8};
    for (operands, sizes, layouts) in [
        ([I8, I8], [1, 8, 1024, 1000], [Layout::RowMajor, Layout::RowMajor]),
        ([U8, I8], [1, 530, 70, 700], [Layout::RowMajor, Layout::ColumnMajor]),
        ([I8, U8], [3, 33, 300, 128], [Layout::RowMajor, Layout::RowMajor]),
        ([I16, I8], [1, 40, 700, 2100], [Layout::ColumnMajor, Layout::ColumnMajor]),
        ([I32, I32], [1, 3, 1030, 2500], [Layout::RowMajor, Layout::RowMajor]),
        ([I8, I32], [1, 1, 700, 2000], [Layout::Strided, Layout::RowMajor]),
        ([I32, U8], [1, 4, 300, 1000], [Layout::RowMajor, Layout::ColumnMajor]),
    ] {
        for body in [false, true] {
            check(&Case { operands, body, ..Case::new(I32, sizes, layouts) });
        }
    }
}
