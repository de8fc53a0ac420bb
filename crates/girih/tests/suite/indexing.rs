//! Tests of index expressions, slices and ranges, against NumPy's rules.

use girih::{DType, Index, Result, Tensor, Update};
use proptest::prelude::*;

fn range(n: usize) -> Tensor {
    Tensor::arange(0.0..n as f64, DType::I64).unwrap()
}

/// The value of Python's `range(n)[start:stop:step]`, by the definition in its reference.
fn expected(n: usize, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<i64> {
    let n = n as i128;
    let step = step as i128;
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let resolve = |i: Option<i64>, default: i128| match i {
        None => default,
        Some(i) if i < 0 => (i as i128 + n).max(low),
        Some(i) => (i as i128).min(high),
    };
    let (first, last) = if step > 0 { (low, high) } else { (high, low) };
    let (mut i, stop) = (resolve(start, first), resolve(stop, last));
    let mut out = Vec::new();
    while if step > 0 { i < stop } else { i > stop } {
        out.push(i as i64);
        i += step;
    }
    out
}

fn bound() -> impl Strategy<Value = Option<i64>> {
    prop_oneof![Just(None), (-9i64..9).prop_map(Some), Just(Some(i64::MIN)), Just(Some(i64::MAX))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn slices_select_the_elements_of_python_slices(
        n in 0usize..7,
        start in bound(),
        stop in bound(),
        step in prop_oneof![-8i64..0, 1i64..8, Just(i64::MIN), Just(i64::MAX)],
    ) {
        let part = range(n).index(&[Index::Slice { start, stop, step }]).unwrap();
        let expected = expected(n, start, stop, step);
        prop_assert_eq!(part.shape().to_vec(), vec![expected.len()]);
        prop_assert_eq!(part.to_vec::<i64>().unwrap(), expected);
    }
}

fn all() -> Index {
    Index::Slice { start: None, stop: None, step: 1 }
}

#[test]
fn index_entries_combine_as_in_numpy() -> Result<()> {
    let x = range(24).reshape([2, 3, 4])?;
    let check = |entries: &[Index], shape: &[usize], values: &[i64]| {
        let part = x.index(entries).unwrap();
        assert_eq!((&*part.shape(), &*part.to_vec::<i64>().unwrap()), (shape, values));
    };
    check(&[Index::At(-1), Index::At(0), Index::At(3)], &[], &[15]);
    check(&[Index::At(1), Index::Ellipsis, Index::At(1)], &[3], &[13, 17, 21]);
    check(&[Index::Ellipsis, Index::NewAxis, Index::At(0)], &[2, 3, 1], &[0, 4, 8, 12, 16, 20]);
    let backwards = Index::Slice { start: None, stop: None, step: -2 };
    check(&[Index::At(0), backwards, Index::At(1)], &[2], &[9, 1]);
    let indices = || Index::Take(Tensor::from_slice(&[2i64, -4], [2]).unwrap());
    check(&[Index::At(0), all(), indices()], &[2, 3], &[2, 6, 10, 0, 4, 8]);
    check(&[Index::At(0), Index::At(1), indices()], &[2], &[6, 4]);
    check(&[all(), Index::At(1), indices()], &[2, 2], &[6, 4, 18, 16]);
    check(&[indices_of(&[1]), Index::NewAxis, Index::At(0), Index::At(0)], &[1, 1], &[12]);
    assert!(x.index(&[])?.is_same(&x), "no index copies nothing");
    Ok(())
}

fn indices_of(values: &[i64]) -> Index {
    Index::Take(Tensor::from_slice(values, [values.len()]).unwrap())
}

#[test]
fn several_tensors_index_together() -> Result<()> {
    let x = range(60).reshape([3, 4, 5])?;
    let check = |entries: &[Index], shape: &[usize], values: &[i64]| {
        let part = x.index(entries).unwrap();
        assert_eq!((&*part.shape(), &*part.to_vec::<i64>().unwrap()), (shape, values));
    };
    check(&[indices_of(&[0, -1]), indices_of(&[1, 3])], &[2, 5], &{
        let rows = [5..10, 55..60];
        rows.into_iter().flatten().collect::<Vec<i64>>()
    });
    let backwards = Index::Slice { start: None, stop: None, step: -3 };
    check(&[indices_of(&[0, 2]), backwards, indices_of(&[1, 4])], &[2, 2], &[16, 1, 59, 44]);
    let mask = Tensor::from_slice(&[false, true, true], [3])?;
    check(&[Index::Mask(mask.clone()), Index::At(0), Index::At(-1)], &[2], &[24, 44]);
    check(&[Index::Mask(mask), indices_of(&[3]), Index::At(0)], &[2], &[35, 55]);
    let outside = x.index(&[indices_of(&[0]), indices_of(&[4])])?;
    assert!(outside.eval().is_err(), "4 is no index of the second axis, if one of the merged");
    Ok(())
}

#[test]
fn updates_change_the_indexed_elements_of_a_copy() -> Result<()> {
    let x = range(6).reshape([2, 3])?;
    let set = x.index_update(
        &[Index::At(1), Index::Slice { start: None, stop: None, step: -2 }],
        Update::Set,
        &range(2),
    )?;
    assert_eq!(set.to_vec::<i64>()?, [0, 1, 2, 1, 4, 0]);
    let add = x.index_update(&[Index::ALL, indices_of(&[0, 0, 2])], Update::Add, 10)?;
    assert_eq!(add.to_vec::<i64>()?, [20, 1, 12, 23, 4, 15]);
    let last = x.index_update(&[indices_of(&[1, 1])], Update::Set, &range(2).reshape([2, 1])?)?;
    assert_eq!(last.to_vec::<i64>()?, [0, 1, 2, 1, 1, 1]);
    let mask = x.gt(2)?;
    let none = x.index_update(&[Index::Mask(mask)], Update::Max, 4)?;
    assert!(none.is_lazy());
    assert_eq!(none.to_vec::<i64>()?, [0, 1, 2, 4, 4, 5]);
    assert_eq!(x.to_vec::<i64>()?, [0, 1, 2, 3, 4, 5]);
    Ok(())
}

#[test]
fn indices_of_an_axis_without_elements_are_an_error_at_once() -> Result<()> {
    let x = Tensor::zeros([0, 3], DType::F32)?;
    assert!(x.index(&[indices_of(&[0])]).is_err());
    assert!(x.index_update(&[indices_of(&[0])], Update::Add, 1.0).is_err());
    assert_eq!(*x.index(&[indices_of(&[])])?.shape(), [0, 3]);
    let updated = x.index_update(&[indices_of(&[])], Update::Add, 1.0)?;
    assert!(updated.to_vec::<f32>()?.is_empty());
    Ok(())
}

#[test]
fn gradients_of_slices_scatter_back() -> Result<()> {
    let x = Tensor::ones([7], DType::F32)?;
    for (start, step, expected) in [
        (None, -3, [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]),
        (Some(1), 2, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),
        (Some(9), 1, [0.0; 7]),
        (Some(5), 100, [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
    ] {
        let slice = Index::Slice { start, stop: None, step };
        let f = girih::grad(|p| p[0].index(std::slice::from_ref(&slice))?.sum_all());
        assert_eq!(f(std::slice::from_ref(&x))?[0].to_vec::<f32>()?, expected);
    }
    Ok(())
}

#[test]
fn ranges_end_as_in_numpy() -> Result<()> {
    let floats =
        |start, stop, step| Tensor::arange_step(start, stop, step, DType::F64)?.to_vec::<f64>();
    assert_eq!(floats(0.0, 1.0, 0.25)?, [0.0, 0.25, 0.5, 0.75]);
    assert_eq!(floats(1.0, 0.0, -0.5)?, [1.0, 0.5]);
    assert!(floats(3.0, 3.0, 1.0)?.is_empty());
    assert!(floats(3.0, 0.0, 1.0)?.is_empty());
    let ints = Tensor::arange_step(5.0, -2.0, -3.0, DType::I32)?;
    assert_eq!(ints.to_vec::<i32>()?, [5, 2, -1]);
    let spaced = |num, endpoint| match endpoint {
        true => Tensor::linspace(1.0, 2.0, num, DType::F64)?.to_vec::<f64>(),
        false => Tensor::linspace_exclusive(1.0, 2.0, num, DType::F64)?.to_vec::<f64>(),
    };
    assert!(spaced(0, true)?.is_empty());
    assert_eq!(spaced(1, true)?, [1.0]);
    assert_eq!(spaced(5, true)?, [1.0, 1.25, 1.5, 1.75, 2.0]);
    assert_eq!(spaced(4, false)?, [1.0, 1.25, 1.5, 1.75]);
    let whole = Tensor::linspace(-1.0, 1.0, 4, DType::I64)?;
    assert_eq!(whole.to_vec::<i64>()?, [-1, -1, 0, 1], "rounded down");
    Ok(())
}

#[test]
fn scalars_are_rounded_to_half_precision() -> Result<()> {
    use half::{bf16, f16};
    let x = Tensor::from_slice(&[f16::from_f32(1.5), f16::from_f32(-2.0)], [2])?;
    assert_eq!(x.mul(2)?.to_vec::<f16>()?, [3.0, -4.0].map(f16::from_f32));
    assert_eq!(x.add(0.1)?.dtype(), DType::F16);
    assert_eq!(x.mul(1e9)?.to_vec::<f16>()?, [f16::INFINITY, f16::NEG_INFINITY]);
    let y = Tensor::full(1.0 / 3.0, [1], DType::BF16)?;
    assert_eq!(y.item::<bf16>()?, bf16::from_f64(1.0 / 3.0));
    assert_eq!(y.mul(3.0)?.item::<bf16>()?, bf16::from_f64(1.0));
    Ok(())
}
