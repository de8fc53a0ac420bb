//! Reductions over few elements in generated code, and their strided loads.

use super::*;
use girih_exec::{Chain, ChainOp, Def};
use girih_kernel::ReduceOp;

/// The memory layout of the reduced rows.
#[derive(Clone, Copy, Debug)]
enum Layout {
    /// Row-major.
    RowMajor,
    /// Rows of a longer matrix, after its first column.
    Sliced,
    /// Column-major.
    ColumnMajor,
    /// Row-major, each row backwards.
    Flipped,
}

/// A reduction of `rows` rows, of squares or of the elements themselves, plus an operand.
fn reduction(dtype: DType, op: ReduceOp, layout: Layout, rows: usize, row: usize) -> Maker {
    let mut maker = Maker::new(rows, row);
    let (r, n) = (row as isize, rows as isize);
    let (offset, strides, numel) = match layout {
        Layout::RowMajor => (0, [r, 1], rows * row),
        Layout::Sliced => (1, [r + 2, 1], rows * (row + 2)),
        Layout::ColumnMajor => (0, [1, n], rows * row),
        Layout::Flipped => (r - 1, [r, -1], rows * row),
    };
    maker.buffers.push((dtype, numel));
    let strides = SmallVec::from_slice(&strides);
    let access = Access { buffer: BufferId(0), dtype, offset, strides };
    maker.kernel.accesses.push(access);
    let x = maker.push(Inst::Load(AccessId(0)), dtype);
    let squares = dtype.is_float() && row % 3 == 1;
    let value = if squares { maker.op(OpCode::Mul, &[x, x], dtype) } else { x };
    let arg = matches!(op, ReduceOp::ArgMax | ReduceOp::ArgMin);
    let out = if arg { DType::I64 } else { dtype };
    let vector = |maker: &mut Maker, dtype| {
        let access = maker.access(dtype, Walk::Column, 0);
        Access { strides: SmallVec::from_slice(&[1]), ..access }
    };
    let (bias, access) = (vector(&mut maker, out), vector(&mut maker, out));
    let kernel = &mut maker.kernel;
    kernel.parallel = 1;
    let prologue = std::mem::take(&mut kernel.body);
    kernel.core = Core::Reduce { prologue, value, op, stores: vec![] };
    kernel.accesses.push(bias);
    let total = kernel.body.push(Inst::Core { dtype: out });
    let bias = kernel.body.push(Inst::Load(AccessId(1)));
    let code = if out == DType::Bool { OpCode::Xor } else { OpCode::Add };
    let args = SmallVec::from_slice(&[total, bias]);
    let value = kernel.body.push(Inst::Op { code, args, dtype: out });
    kernel.stores.push(Store { access, value });
    maker
}

#[test]
fn short_reductions_of_every_dtype_have_the_bits_of_the_executor() {
    use ReduceOp::*;
    at_each_level(|| {
        for op in [Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin] {
            for dtype in FLOATS.into_iter().chain(INTEGERS).chain([DType::Bool]) {
                if matches!(op, Any | All) != (dtype == DType::Bool) {
                    continue;
                }
                for row in (1..=17).chain([32]) {
                    let rows = [16, 33, 61][row % 3];
                    for layout in
                        [Layout::RowMajor, Layout::Sliced, Layout::ColumnMajor, Layout::Flipped]
                    {
                        check(&reduction(dtype, op, layout, rows, row), row as u64);
                    }
                }
            }
        }
    });
}

#[test]
fn a_short_row_is_read_from_one_address() {
    at_each_level(|| {
        let maker = reduction(DType::F32, ReduceOp::Sum, Layout::RowMajor, 64, 9);
        let text = form::iteration(&code_of(&maker.kernel));
        // One addition for each of nine elements (the first is added to 0) and for the operand.
        assert_eq!(text.matches("vaddps").count(), 10, "{text}");
        assert_eq!(text.matches("add r").count(), 2, "{text}");
    });
}

/// Sums of each `step`-th element and its neighbour.
fn doubled(dtype: DType, step: u8) -> Chain {
    let op = ChainOp::Op(OpCode::Add, dtype);
    let defs = vec![
        Def::Input { dtype, step, beside: None },
        Def::Input { dtype, step, beside: Some((0, dtype.size() as i32)) },
        Def::Op { op, args: SmallVec::from_slice(&[0, 1]), dtype },
    ];
    Chain { defs, outputs: vec![2], fold: None, streamed: false }
}

#[cfg(target_os = "linux")]
#[test]
fn no_step_reads_beyond_the_last_element() {
    const PAGE: usize = 1 << 16;
    let mut memory = memmap2::MmapMut::map_anon(3 * PAGE).unwrap();
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 61) as u8);
    let end = memory.as_mut_ptr().wrapping_add(2 * PAGE);
    // SAFETY: the last pages of the mapping, of which nothing is used from here on.
    assert_eq!(unsafe { libc::mprotect(end.cast(), PAGE, libc::PROT_NONE) }, 0);
    at_each_level(|| {
        for (dtype, step) in [3, 4, 5, 16, 64]
            .into_iter()
            .flat_map(|s| [DType::I32, DType::I64].map(|dtype| (dtype, s)))
        {
            let function = crate::jit::compile(&doubled(dtype, step), "doubled").unwrap();
            for n in (1..20).chain([40, 64]) {
                let (size, step) = (dtype.size(), step as usize);
                let start = end.wrapping_sub(((n - 1) * step + 2) * size);
                let mut out = vec![0u64; n + 1];
                // SAFETY: the elements lie before the page, and `out` has room for `n`.
                unsafe { function.run(&[start, out.as_mut_ptr().cast()], n) };
                let out = out.as_ptr() as *const u8;
                for byte in 0..n * size {
                    let (element, at) = (byte / size, byte % size);
                    let from = start.wrapping_add(step * element * size + at);
                    // SAFETY: bytes of the results and of the elements before the page.
                    let (found, sum) = unsafe { (*out.add(byte), *from + *from.add(size)) };
                    // The sum of two bytes does not carry.
                    assert_eq!(found, sum, "{dtype} {step} {n} {byte}");
                }
            }
        }
    });
}

#[test]
fn short_rows_on_avx512_use_permutations_and_broadcasts() {
    if !super::super::function::enabled() {
        return;
    }
    // The code is inspected, not run, so machines with AVX2 can check it too.
    LEVEL.set(Some(Isa::Avx512));
    let function = crate::jit::compile(&doubled(DType::F32, 3), "doubled").unwrap();
    let text = form::disassembly(function.code());
    LEVEL.set(None);
    // Three vectors for each of two inputs: at most one vector per element of the stride.
    assert_eq!(text.matches("vpermt2ps").count(), 6, "{text}");
    assert_eq!(text.matches("kshiftlw k4,").count(), 30, "{text}");
    assert_eq!(text.matches("vbroadcastss").count(), 32, "{text}");
    assert_eq!(text.matches("add rdx,").count(), 1, "{text}");
}
