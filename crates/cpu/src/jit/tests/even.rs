//! Loads with stride two.

use super::*;
use girih_exec::{Chain, ChainOp, Def};
use girih_kernel::ReduceOp;

/// Sums of dense and strided loads in each dtype, and of dtypes of different sizes.
fn sums(rows: usize, row: usize) -> Vec<Maker> {
    let mut makers = vec![];
    for dtype in FLOATS.into_iter().chain(INTEGERS) {
        let mut maker = Maker::new(rows, row);
        let x = maker.load(dtype, Walk::Even, 1);
        let y = maker.load(dtype, Walk::Dense, 0);
        let sum = maker.op(OpCode::Add, &[x, y], dtype);
        maker.store(sum);
        makers.push(maker);
    }
    let mut maker = Maker::new(rows, row);
    let x = maker.load(DType::F32, Walk::Even, 0);
    let y = maker.load(DType::F64, Walk::Even, 1);
    let x = maker.op(OpCode::Cast, &[x], DType::F64);
    let product = maker.op(OpCode::Mul, &[x, y], DType::F64);
    maker.store(product);
    makers.push(maker);
    makers
}

#[test]
fn every_second_element_of_any_dtype_gives_the_portable_executors_bits() {
    at_each_level(|| {
        for row in (2..70).chain([512, 1000]) {
            for maker in sums(5, row) {
                check_bits(&maker, row as u64);
            }
        }
    });
}

#[test]
fn folds_of_every_second_element_have_the_bits_of_the_executor() {
    at_each_level(|| {
        for row in [64, 100, 512, 1000, 1024] {
            for dtype in [DType::F32, DType::F64] {
                let maker = fold::reduction(dtype, ReduceOp::Sum, fold::Folded::Every2nd, 5, row);
                check_bits(&maker, row as u64);
            }
        }
    });
}

/// Doubles every second element.
fn doubled(dtype: DType) -> Chain {
    let op = ChainOp::Op(OpCode::Add, dtype);
    let defs = vec![
        Def::Input { dtype, step: 2, beside: None },
        Def::Op { op, args: SmallVec::from_slice(&[0, 0]), dtype },
    ];
    Chain { defs, outputs: vec![1], fold: None, streamed: false }
}

#[cfg(target_os = "linux")]
#[test]
fn nothing_is_read_beyond_the_last_element() {
    const PAGE: usize = 1 << 12;
    let mut memory = memmap2::MmapMut::map_anon(3 * PAGE).unwrap();
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 61) as u8);
    let end = memory.as_mut_ptr().wrapping_add(2 * PAGE);
    // SAFETY: the last page of the mapping, of which nothing is used from here on.
    assert_eq!(unsafe { libc::mprotect(end.cast(), PAGE, libc::PROT_NONE) }, 0);
    at_each_level(|| {
        for dtype in [DType::I32, DType::I64] {
            let function = crate::jit::compile(&doubled(dtype), "doubled").unwrap();
            for n in 1..70 {
                let size = dtype.size();
                let start = end.wrapping_sub((2 * n - 1) * size);
                let mut out = vec![0u64; n + 1];
                // SAFETY: `2 n - 1` elements lie before the page, and `out` has room for `n`.
                unsafe { function.run(&[start, out.as_mut_ptr().cast()], n) };
                let out = out.as_ptr() as *const u8;
                for byte in 0..n * size {
                    let (element, at) = (byte / size, byte % size);
                    // SAFETY: bytes of the results and of the elements before the page.
                    let (found, low) =
                        unsafe { (*out.add(byte), *start.add(2 * element * size + at)) };
                    // Doubling a byte does not carry.
                    assert_eq!(found, 2 * low, "{dtype} {n} {byte}");
                }
            }
        }
    });
}

#[test]
fn even_elements_are_gathered_by_one_permutation() {
    at_each_level(|| {
        let maker = |dtype| {
            let mut maker = Maker::new(2, 100);
            let x = maker.load(dtype, Walk::Even, 0);
            let sum = maker.op(OpCode::Add, &[x, x], dtype);
            maker.store(sum);
            form::iteration(&code_of(&maker.kernel))
        };
        for (dtype, avx512, avx2) in [
            (DType::F32, "vpermt2ps zmm0,zmm30,[rdx+3Ch]", "+1Ch],0D8h"),
            (DType::F64, "vpermt2pd zmm0,zmm30,[rdx+38h]", "+18h],0Ah"),
        ] {
            let text = maker(dtype);
            let best = LEVEL.get() == Some(Isa::Avx512);
            assert!(text.contains(if best { avx512 } else { avx2 }), "{text}");
            assert_eq!(text.matches("vperm").count(), 1, "{text}");
        }
    });
}
