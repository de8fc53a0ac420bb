//! Routines on rows beside the simplest algorithms, with one thread and with several.

use super::order::Ordered;
use super::{Args, Data, DataMut, run};
use girih_ir::{Attrs, Op, OpCode};
use girih_linalg::{Alone, Team};
use half::{bf16, f16};
use smallvec::smallvec;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Two threads that share parts.
struct Two;

impl Team for Two {
    fn share(&self, parts: usize, _: u64, job: &(dyn Fn(usize) + Sync)) {
        let done: Vec<AtomicUsize> = (0..parts).map(|_| AtomicUsize::new(0)).collect();
        std::thread::scope(|scope| {
            let run = || {
                for (part, done) in done.iter().enumerate().rev() {
                    if done.fetch_add(1, Relaxed) == 0 {
                        job(part);
                    }
                }
            };
            scope.spawn(run);
            run();
        });
    }
}

/// Random words (Marsaglia, "Xorshift RNGs", 2003).
fn words() -> impl FnMut() -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }
}

/// Both results of a sort or of the best elements, and the positions that a stable sort gives.
fn check_order<T: Ordered>(
    row: &[T],
    data: for<'a> fn(&'a [T]) -> Data<'a>,
    data_mut: for<'a> fn(&'a mut [T]) -> DataMut<'a>,
) {
    let bits = |x: T| (x.rank(), x.is_told());
    for (falls, count) in [(false, row.len()), (true, row.len()), (true, row.len() / 3)] {
        let mut want: Vec<usize> = (0..row.len()).collect();
        want.sort_by(|&i, &j| if falls { row[j].order(row[i]) } else { row[i].order(row[j]) });
        want.truncate(count);
        let code = if count == row.len() { OpCode::Sort } else { OpCode::TopK };
        let op = Op::new(code, Attrs::Library { result: 0, flag: falls, size: count as u32 });
        for (team, needed) in [(&Alone as &dyn Team, [true, true]), (&Two, [true, false])] {
            let (mut elements, mut positions) = (vec![T::default(); count], vec![0; count]);
            let results = smallvec![
                Some(data_mut(&mut elements)),
                needed[1].then_some(DataMut::I64(&mut positions))
            ];
            let operands = smallvec![(data(row), smallvec![row.len()])];
            run(&op, &mut Args { flag: falls, batch: None, operands, results, team }).unwrap();
            let same = elements.iter().zip(&want).all(|(&x, &at)| bits(x) == bits(row[at]));
            assert!(same, "{code:?}, falls: {falls}, {} elements", row.len());
            let same = positions.iter().zip(&want).all(|(&x, &at)| x as usize == at);
            assert!(same || !needed[1], "{code:?}, falls: {falls}, {} positions", row.len());
        }
    }
}

/// Elements and positions of places of the sorted row, each in a call of its own and both in one.
fn check_places<T: Ordered>(
    row: &[T],
    data: for<'a> fn(&'a [T]) -> Data<'a>,
    data_mut: for<'a> fn(&'a mut [T]) -> DataMut<'a>,
) {
    let Some(last) = row.len().checked_sub(1) else { return };
    let bits = |x: T| (x.rank(), x.is_told());
    let mut want: Vec<usize> = (0..row.len()).collect();
    want.sort_by(|&i, &j| row[i].order(row[j]));
    let places: Vec<i64> =
        [last / 2, last, 0, last / 2, last.div_ceil(2), row.len() + 3].map(|at| at as i64).into();
    let op = Op::new(OpCode::OrderStatistics, Attrs::routine(false));
    for (team, needed) in
        [(&Alone as &dyn Team, [true, true]), (&Two, [true, false]), (&Two, [false, true])]
    {
        let (mut elements, mut positions) = ([T::default(); 6], [0; 6]);
        let results = smallvec![
            needed[0].then_some(data_mut(&mut elements)),
            needed[1].then_some(DataMut::I64(&mut positions))
        ];
        let operands =
            smallvec![(data(row), smallvec![row.len()]), (Data::I64(&places), smallvec![6])];
        run(&op, &mut Args { flag: false, batch: None, operands, results, team }).unwrap();
        for (i, &place) in places.iter().enumerate() {
            let at = want[(place as usize).min(last)];
            assert!(!needed[0] || bits(elements[i]) == bits(row[at]), "{place} of {}", row.len());
            assert!(!needed[1] || positions[i] as usize == at, "{place} of {}", row.len());
        }
    }
}

/// Searches in the sorted row.
fn check_search<T: Ordered>(row: &[T], data: for<'a> fn(&'a [T]) -> Data<'a>) {
    let mut sorted = row.to_vec();
    sorted.sort_by(|a, b| a.order(*b));
    for (right, values) in [(false, row), (true, row), (true, &row[..row.len().min(3)])] {
        let op = Op::new(OpCode::SearchSorted, Attrs::routine(right));
        let mut found = vec![0; values.len()];
        let results = smallvec![Some(DataMut::I64(&mut found))];
        let operands = smallvec![
            (data(&sorted), smallvec![row.len()]),
            (data(values), smallvec![values.len()])
        ];
        run(&op, &mut Args { flag: right, batch: None, operands, results, team: &Two }).unwrap();
        for (&found, &value) in found.iter().zip(values) {
            let before = |x: &T| x.order(value).is_lt() || right && x.order(value).is_eq();
            assert_eq!(found as usize, sorted.partition_point(before), "{} elements", row.len());
        }
    }
}

#[test]
fn rows_of_every_dtype_length_and_distribution_are_sorted_searched_and_selected_from() {
    let mut word = words();
    let special = [0.0, -0.0, f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
    // Lengths on both sides of those at which the algorithm changes.
    for n in [0, 1, 2, 256, 257, 1001, 1024, (1 << 15) - 1, 1 << 15, (1 << 18) + 5] {
        macro_rules! check {
            ($variant:ident $ty:ty: $($element:expr),+) => {$({
                let row: Vec<$ty> = (0..n).map($element).collect();
                check_order(&row, |x| Data::$variant(x), |x| DataMut::$variant(x));
                check_search(&row, |x| Data::$variant(x));
                check_places(&row, |x| Data::$variant(x), |x| DataMut::$variant(x));
            })+};
        }
        check!(I32 i32: |_| word() as i32, |_| (word() % 1000) as i32 - 500, |_| -7, |i| i, |i| -i);
        let far = |word: u64| if word.is_multiple_of(2) { 0 } else { i64::MAX - 1000 };
        check!(I64 i64: |_| word() as i64, |_| far(word()) + (word() % 300) as i64,
            |i| if i == 5 { i64::MIN } else { (word() % 1_000_000) as i64 });
        check!(U64 u64: |_| word());
        check!(F32 f32: |_| f32::from_bits(word() as u32), |_| special[word() as usize % 8] as f32);
        check!(F64 f64: |_| f64::from_bits(word()), |_| special[word() as usize % 8],
            |_| (word() >> 11) as f64 * 2f64.powi(-53));
        if n < 1 << 16 {
            check!(U8 u8: |_| word() as u8);
            check!(I8 i8: |_| word() as i8);
            check!(U16 u16: |_| word() as u16);
            check!(I16 i16: |_| word() as i16);
            check!(U32 u32: |_| word() as u32);
            check!(F16 f16: |_| f16::from_bits(word() as u16));
            check!(BF16 bf16: |_| bf16::from_bits(word() as u16));
        }
    }
}

/// Running sums of rows of `len` elements.
fn sums(rows: &[f32], len: usize, reverse: bool, team: &dyn Team) -> Vec<f32> {
    let op = Op::new(OpCode::CumSum, Attrs::routine(reverse));
    let mut out = vec![0.0; rows.len()];
    let results = smallvec![Some(DataMut::F32(&mut out))];
    let operands = smallvec![(Data::F32(rows), smallvec![len])];
    run(&op, &mut Args { flag: reverse, batch: None, operands, results, team }).unwrap();
    out
}

#[test]
fn running_sums_of_short_rows_are_in_order_and_those_of_long_rows_the_same_for_any_team() {
    let mut word = words();
    let mut element = || (word() >> 40) as f32 / (1 << 24) as f32 - 0.25;
    for (rows, len) in [(1, 1), (3, 5), (4, 7), (9, 100), (2, 16384), (1, 16385), (1, 300_001)] {
        let x: Vec<f32> = (0..rows * len).map(|_| element()).collect();
        for reverse in [false, true] {
            let got = sums(&x, len, reverse, &Alone);
            assert_eq!(got, sums(&x, len, reverse, &Two));
            for (row, got) in x.chunks(len).zip(got.chunks(len)) {
                let (mut exact, mut plain) = (0.0, -0.0);
                for step in 0..len {
                    let i = if reverse { len - 1 - step } else { step };
                    (exact, plain) = (exact + f64::from(row[i]), plain + row[i]);
                    assert!(len > 16384 || got[i] == plain);
                    assert!((f64::from(got[i]) - exact).abs() <= 2e-6 * exact.abs() + 1e-2);
                }
            }
        }
    }
}

#[test]
fn running_sums_overflow_only_where_the_sum_does() {
    let mut x = vec![0.0f32; 40_000];
    x[..2].copy_from_slice(&[-3e38, 0.0]);
    x[20_000..20_002].copy_from_slice(&[3e38, 3e38]);
    let got = sums(&x, x.len(), false, &Two);
    assert_eq!(got[20_001..], vec![3e38; 19_999]);
    x[30_000] = f32::INFINITY;
    assert_eq!(sums(&x, x.len(), true, &Two)[0], f32::INFINITY);
}
