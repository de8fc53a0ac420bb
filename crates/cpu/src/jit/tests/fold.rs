//! Reductions along rows in generated code, against the portable executor.

use super::*;
use girih_kernel::ReduceOp;

/// The values that are reduced.
#[derive(Clone, Copy, Debug)]
pub(super) enum Folded {
    /// Elements as in memory, with special values.
    Loaded,
    /// Every second element.
    Every2nd,
    /// Small integers divided by three, so that each order of addition gives different bits.
    Thirds,
    /// Zeros of both signs.
    Zeros,
}

/// A reduction of each of `rows` rows.
pub(super) fn reduction(
    dtype: DType,
    op: ReduceOp,
    folded: Folded,
    rows: usize,
    row: usize,
) -> Maker {
    let mut maker = Maker::new(rows, row);
    let literal = |v| Inst::Literal(Literal::from_f64(dtype, v));
    let value = match folded {
        Folded::Loaded => maker.load(dtype, Walk::Dense, 1),
        Folded::Every2nd => maker.load(dtype, Walk::Even, 0),
        Folded::Thirds | Folded::Zeros => {
            let x = maker.load(DType::I8, Walk::Dense, 0);
            let x = maker.op(OpCode::Cast, &[x], dtype);
            let zeros = matches!(folded, Folded::Zeros);
            let (code, by) = if zeros { (OpCode::Mul, 0.0) } else { (OpCode::Div, 3.0) };
            let by = maker.push(literal(by), dtype);
            maker.op(code, &[x, by], dtype)
        }
    };
    let access = maker.access(dtype, Walk::Column, 0);
    let access = Access { strides: SmallVec::from_slice(&[1]), ..access };
    let kernel = &mut maker.kernel;
    kernel.parallel = 1;
    let prologue = std::mem::take(&mut kernel.body);
    kernel.core = Core::Reduce { prologue, value, op, stores: vec![] };
    let value = kernel.body.push(Inst::Core { dtype });
    kernel.stores.push(Store { access, value });
    maker
}

#[test]
fn reductions_along_rows_have_the_bits_of_the_executor() {
    const OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];
    at_each_level(|| {
        for (i, row) in
            [32, 64, 100, 256, 257, 511, 512, 513, 784, 1024, 1536, 9216].into_iter().enumerate()
        {
            for dtype in FLOATS {
                for op in OPS {
                    for folded in [Folded::Loaded, Folded::Thirds, Folded::Zeros] {
                        // Enough short rows to be worth a function.
                        let rows = (1 + i % 5 * 9).max(5000 / row);
                        let maker = reduction(dtype, op, folded, rows, row);
                        check_bits(&maker, row as u64);
                    }
                }
            }
        }
    });
}

#[test]
fn accumulators_of_a_fold_stay_in_registers() {
    at_each_level(|| {
        let bytes = if LEVEL.get() == Some(Isa::Avx512) { 64 } else { 32 };
        for dtype in [DType::F32, DType::F64] {
            let maker = reduction(dtype, ReduceOp::Sum, Folded::Loaded, 4, 1024);
            let text = form::iteration(&code_of(&maker.kernel));
            // Each accumulator is added to in a register.
            let registers = 32 * dtype.size() / bytes;
            assert_eq!(text.matches("vaddp").count(), registers, "{text}");
            // The hardware prefetcher follows consecutive elements.
            assert!(!text.contains("prefetch"), "{text}");
        }
    });
}

#[test]
fn long_rows_are_reduced_by_a_tree_of_blocks() {
    at_each_level(|| {
        // Few rows, which are split into parts, and more rows of many blocks each.
        for (rows, blocks) in [(2, 3), (1, 512), (2, 513), (16, 600)] {
            let maker = reduction(DType::F32, ReduceOp::Sum, Folded::Thirds, rows, blocks * 512);
            assert!(check_bits(&maker, blocks as u64) > 0);
        }
    });
}
