//! Reductions over a few elements as maps, against the reduction element by element.

use super::shapes::reduction;
use super::*;

/// The kernel as a reduction, for any length.
fn by_elements(kernel: &Kernel, isa: Isa) -> Prepared {
    let options = PrepareOptions { isa, compiler: None, streams: true, often: false };
    let reduce = reduce::PreparedReduce::new(kernel, options);
    let chunks = reduce.chunks();
    Prepared { core: PreparedCore::Reduce(Box::new(reduce)), chunks, copied: None }
}

/// Numbers of any dtype, with special values.
fn hard(dtype: DType, n: usize, seed: u64) -> Vec<Literal> {
    let special = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e30, -1e30];
    let mut values = numbers(dtype, n, seed);
    if dtype.is_float() {
        for (i, value) in values.iter_mut().enumerate() {
            let draw = (i as u64 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
            // Some rows have no special values, some only zeros.
            match (i / 40 % 4, special.get(draw as usize % 11)) {
                (0, Some(&x)) => *value = Literal::from_f64(dtype, x),
                (1, _) => *value = Literal::from_f64(dtype, special[(draw % 2) as usize]),
                (2, Some(&x)) if draw < 22 => *value = Literal::from_f64(dtype, x),
                _ => {}
            }
        }
    }
    values
}

fn check(m: &Memory, kernel: &Kernel, isa: Isa) {
    let short = Prepared::with_isa(kernel, isa);
    assert!(matches!(short.core, PreparedCore::Map(_)), "{} is no map", kernel.name);
    let expected = m.run_prepared(&by_elements(kernel, isa), false).unwrap();
    for backwards in [false, true] {
        let found = m.run_prepared(&short, backwards).unwrap();
        for store in &kernel.stores {
            let id = store.access.buffer;
            for (i, (f, e)) in found.values(id).into_iter().zip(expected.values(id)).enumerate() {
                assert!(same(f.into(), e.into()), "{} {isa:?} {i}: {f:?} {e:?}", kernel.name);
            }
        }
    }
}

#[test]
fn reductions_over_a_few_elements_have_the_bits_of_longer_ones() {
    use ReduceOp::*;
    for op in [Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin] {
        for dtype in reals() {
            if matches!(op, Any | All) != (dtype == DType::Bool) {
                continue;
            }
            for row in (1..=17).chain([31, 32]) {
                for (points, layout) in [(16, [0, 1]), (67, [0, 1]), (67, [1, 0]), (600, [0, 1])] {
                    let mut m = Memory::new();
                    let kernel = reduction(&mut m, op, dtype, &[points, row], 1, &layout);
                    for (i, value) in hard(dtype, points * row, row as u64).iter().enumerate() {
                        m.set(BufferId(0), i, *value);
                    }
                    check(&m, &kernel, Isa::best());
                }
            }
        }
    }
}

#[test]
fn several_dimensions_are_reduced_row_major() {
    for op in [ReduceOp::Sum, ReduceOp::ArgMax] {
        for layout in [[0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]] {
            let mut m = Memory::new();
            let kernel = reduction(&mut m, op, DType::F32, &[5, 9, 3, 4], 2, &layout);
            for (i, value) in hard(DType::F32, 540, 3).iter().enumerate() {
                m.set(BufferId(0), i, *value);
            }
            Isa::available().into_iter().for_each(|isa| check(&m, &kernel, isa));
        }
    }
}

#[test]
fn long_rows_and_few_results_stay_reductions() {
    for (points, row) in [(15, 3), (100, 33), (1, 8)] {
        let mut m = Memory::new();
        let kernel = reduction(&mut m, ReduceOp::Sum, DType::F32, &[points, row], 1, &[0, 1]);
        assert!(matches!(Prepared::new(&kernel).core, PreparedCore::Reduce(_)), "{points} {row}");
    }
}
