//! Tests of operators: formulas without question marks, and the propagation of their errors.

use girih::{Complex64, DType, Error, Program, Result, Tensor, compile, eval, grad, keepdims};

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[test]
fn formulas_chain_over_tensors_references_and_numbers() -> Result<()> {
    let (a, b) = (vector(&[1.0, 2.0]), vector(&[4.0, 8.0]));
    assert_eq!((&a + &b).to_vec::<f32>()?, [5.0, 10.0]);
    assert_eq!((&a + &b * 2.0 - 1.0).to_vec::<f32>()?, [8.0, 17.0]);
    assert_eq!((1.0 - &a / &b).to_vec::<f32>()?, [0.75, 0.75]);
    assert_eq!((2 * (a.clone() + b.clone()) % 7.0).to_vec::<f32>()?, [3.0, 6.0]);
    assert_eq!((-(&a) + 3.5f32).to_vec::<f32>()?, [2.5, 1.5]);
    assert_eq!((-(&a - &b)).to_vec::<f32>()?, [3.0, 6.0]);
    let i = Tensor::from_slice(&[6i64, 3], [2])?;
    assert_eq!(((&i << 1) | 1).to_vec::<i64>()?, [13, 7]);
    assert_eq!((1 ^ (&i & 5) >> 1).to_vec::<i64>()?, [3, 1]);
    assert_eq!((!&i).to_vec::<i64>()?, [-7, -4]);
    assert_eq!((!i.gt(4)?).to_vec::<bool>()?, [false, true]);
    let c = Complex64::new(0.0, 1.0) * &a;
    assert_eq!(c.dtype(), DType::C64);
    // Numbers take the tensor's dtype, as in methods.
    assert_eq!((2 + &a).dtype(), DType::F32);
    assert_eq!((&i / 2).dtype(), DType::F32);
    Ok(())
}

#[test]
fn assigning_operators_replace_the_handle_only() -> Result<()> {
    let a = vector(&[1.0, 2.0]);
    let mut x = a.clone();
    x += &a;
    x *= 3.0;
    x -= a.clone();
    x /= 5;
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(a.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

/// Generic code with the usual bounds for numbers.
fn polynomial<T>(x: T) -> T
where
    T: Clone + std::ops::Add<Output = T> + std::ops::Mul<Output = T> + std::ops::Neg<Output = T>,
{
    x.clone() * x.clone() + -x
}

#[test]
fn generic_code_takes_tensors() -> Result<()> {
    assert_eq!(polynomial(3.0), 6.0);
    assert_eq!(polynomial(vector(&[3.0])).item::<f32>()?, 6.0);
    Ok(())
}

#[track_caller]
fn tells(error: Error, line: u32) {
    let Error::Operator { source, at } = &error else { panic!("{error:?}") };
    assert!(matches!(**source, Error::Record(_)), "{source:?}");
    assert!(at.contains(&format!("operators.rs:{line}:")), "line {line}: {at}");
    let text = error.to_string();
    assert!(text.contains("shapes [2] and [3] do not fit") && text.contains(at), "{text}");
}

#[test]
fn recording_errors_of_operators_are_raised_by_the_next_fallible_call() -> Result<()> {
    let (a, b) = (vector(&[1.0, 2.0]), vector(&[1.0, 2.0, 3.0]));
    let line = line!() + 1;
    let wrong = &a + &b;
    tells(wrong.check().unwrap_err(), line);
    let further = -(1.0 - &wrong * 2.0) / wrong.clone();
    let errors = [
        further.check().map(drop),
        further.to_vec::<f32>().map(drop),
        further.item::<f32>().map(drop),
        further.eval().map(drop),
        eval([&a, &further]),
        further.exp().map(drop),
        further.sum_all().map(drop),
        further.sum(keepdims(0)).map(drop),
        further.reshape([3, 1]).map(drop),
        a.add(&further).map(drop),
        further.matmul(&further).map(drop),
        girih::stack(&[&further, &further], 0).map(drop),
        girih::where_(&a.gt(0.0)?, &a, &further).map(drop),
        further.max_min_split(),
        Program::capture(&[&further], &[]).map(drop),
        Program::capture(&[&a], &[&further]).map(drop),
        girih::graph_of([&further]).map(drop),
        girih::explain([&further]).map(drop),
        girih::compile_graph([&further]).map(drop),
        girih::async_eval([&further]),
        girih::compile_only([&further]).map(drop),
        further.clone().into_parameter().map(drop),
        compile(|x| Ok(vec![x[0].clone()])).call(&[&further]).map(drop),
        compile(|_| Ok(vec![further.clone()])).call(&[&a]).map(drop),
        grad(|x| Ok(x[0].clone()))(std::slice::from_ref(&further)).map(drop),
        grad(|_| Ok(further.clone()))(std::slice::from_ref(&a)).map(drop),
        girih::cond(
            &a.gt(0.0)?.all(..)?,
            |_| Ok(vec![further.clone()]),
            |x| Ok(vec![x[0].clone()]),
            std::slice::from_ref(&a),
        )
        .map(drop),
        girih::io::to_npy(&further).map(drop),
    ];
    let other =
        |(_, outcome): &(usize, Result<()>)| !matches!(outcome, Err(Error::Operator { .. }));
    let others: Vec<(usize, Result<()>)> =
        errors.clone().into_iter().enumerate().filter(other).collect();
    assert!(others.is_empty(), "{others:?}");
    errors.into_iter().for_each(|error| tells(error.unwrap_err(), line));
    // The metadata is that of the probable intention.
    assert_eq!(further.shape().to_vec(), [3]);
    assert_eq!((further.dtype(), further.is_lazy()), (DType::F32, true));
    assert!(!format!("{further}").is_empty());
    // Tensors that do not depend on the error are available.
    assert_eq!((&a * 2.0).to_vec::<f32>()?, [2.0, 4.0]);
    Ok(())
}

trait MaxMin {
    fn max_min_split(&self) -> Result<()>;
}

impl MaxMin for Tensor {
    /// Functions with several results.
    fn max_min_split(&self) -> Result<()> {
        self.reshape([1, 3])?;
        girih::split(self, &[1, 2], 0).map(drop)
    }
}

#[test]
fn every_operator_carries_errors_and_dtypes_matter_too() -> Result<()> {
    let x = vector(&[1.0]);
    let wrong = [&x << 1, &x & 1, &x | &x, &x ^ true, !&x, !x.clone(), 1 >> &x];
    for (i, wrong) in wrong.iter().enumerate() {
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.contains("operators.rs") && error.contains("float32"), "{i}: {error}");
    }
    let mut y = x.clone();
    y <<= 1;
    y += 1.0;
    assert!(
        y.check().unwrap_err().to_string().contains("shift_left"),
        "{}",
        y.check().unwrap_err()
    );
    let half = Tensor::from_slice(&[1i64], [1])? * i64::MAX * 2;
    assert!(half.check().is_ok());
    assert!((Tensor::from_slice(&[1u8], [1])? + 300).check().is_err());
    Ok(())
}

#[test]
fn operator_errors_are_freed_with_their_tensors_and_cross_threads() {
    let (a, b) = (vector(&[1.0, 2.0]), vector(&[1.0, 2.0, 3.0]));
    for _ in 0..1000 {
        let wrong = &a - &b;
        drop(wrong.clone());
    }
    let wrong = &a * &b;
    let elsewhere = wrong.clone();
    let error = std::thread::spawn(move || elsewhere.to_vec::<f32>().unwrap_err()).join().unwrap();
    assert_eq!(error, wrong.check().unwrap_err());
}

#[test]
fn options_are_enums_or_functions_of_their_own() -> Result<()> {
    use girih::{Corners, Heights, Nans, Powers, Taper, array_equal, linalg, vander};
    let x = Tensor::from_slice(&[1.0f64, -2.0, 3.0, 4.0, 0.5, 6.0, -7.0, 8.0], [2, 2, 2])?;
    // The norm of matrices whose rows are along the last axis, and whose columns along the first.
    let norm = linalg::MatrixNorm::Order(1.0);
    let turned = linalg::matrix_norm(&x.permute([1, 2, 0])?, [-2, -1], norm)?;
    let found = linalg::matrix_norm(&x, keepdims([2, 0]), norm)?;
    assert_eq!(found.shape(), [1, 2, 1]);
    assert_eq!(found.to_vec::<f64>()?, turned.to_vec::<f64>()?);
    let error = linalg::matrix_norm(&x, .., norm).unwrap_err();
    assert!(error.to_string().contains("two axes"), "{error}");
    let (symmetric, periodic) =
        (Taper::Hann.window(5, DType::F64)?, Taper::Hann.periodic(4, DType::F64)?);
    assert_eq!(symmetric.narrow(0, 0, 4)?.to_vec::<f64>()?, periodic.to_vec::<f64>()?);
    let nan = Tensor::from_slice(&[f32::NAN], [1])?;
    assert!(!array_equal(&nan, &nan, Nans::Distinct)?.item::<bool>()?);
    assert!(array_equal(&nan, &nan, Nans::Equal)?.item::<bool>()?);
    let v = vector(&[2.0, 3.0]);
    assert_eq!(vander(&v, Some(3), Powers::Ascending)?.to_vec::<f32>()?, [1., 2., 4., 1., 3., 9.]);
    assert_eq!(vander(&v, Some(3), Powers::Descending)?.to_vec::<f32>()?, [4., 2., 1., 9., 3., 1.]);
    let (counts, _) =
        v.histogram(&girih::Bins::Equal { count: 2, range: None }, None, Heights::Density)?;
    assert_eq!(counts.to_vec::<f32>()?, [1.0, 1.0]);
    let negative = vector(&[-2.0, 4.0]);
    assert_eq!(negative.rrelu_mean(0.25, 0.75)?.to_vec::<f32>()?, [-1.0, 4.0]);
    let drawn = negative.rrelu(0.25, 0.75)?.to_vec::<f32>()?;
    assert!((-1.5..=-0.5).contains(&drawn[0]) && drawn[1] == 4.0);
    let sample = v.gumbel_one_hot(1.0, 0)?.to_vec::<f32>()?;
    assert_eq!(sample.iter().map(|s| s.round()).sum::<f32>(), 1.0);
    let grown = Tensor::from_slice(&[0.0f32, 3.0], [1, 1, 2])?;
    let linear = girih::Interpolation::Linear;
    let centres = grown.interpolate(&[4], None, linear, Corners::Centres)?;
    assert_eq!(centres.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
    let edges = grown.interpolate(&[4], None, linear, Corners::Edges)?;
    assert_eq!(edges.to_vec::<f32>()?, [0.0, 0.75, 2.25, 3.0]);
    Ok(())
}

#[test]
fn distances_and_units_of_large_vectors_do_not_overflow() -> Result<()> {
    let x = vector(&[3e20, 4e20]);
    assert_eq!(x.normalize(2.0, 0, 1e-12)?.to_vec::<f32>()?, [0.6, 0.8]);
    assert!((x.cosine_similarity(&x, 0, 1e-8)?.item::<f32>()? - 1.0).abs() < 1e-6);
    let distance = x.pairwise_distance(&vector(&[0.0, 0.0]), 2.0, 0.0)?;
    assert_eq!(distance.item::<f32>()?, 5e20);
    Ok(())
}
