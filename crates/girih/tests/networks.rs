//! Convolutions, poolings, contractions, attention and losses as Rust users write them.

use girih::losses::{self, ClassOptions, Reduction};
use girih::{
    ConvOptions, DType, Interpolation, Optimize, Padding, PoolOptions, Result, Tensor, einsum,
    einsum_path,
};

fn range(shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let shape: Vec<i64> = shape.iter().map(|&s| s as i64).collect();
    Tensor::arange(0, n as i64, 1, DType::F32)?.reshape(&shape)
}

#[test]
fn a_convolution_slides_and_its_transpose_spreads() -> Result<()> {
    let x = range(&[1, 1, 5])?;
    let w = Tensor::from_slice(&[1.0f32, 10.0], [1, 1, 2])?;
    let options = ConvOptions { stride: vec![2], ..ConvOptions::default() };
    assert_eq!(x.conv(&w, None, &options)?.to_vec::<f32>()?, [10.0, 32.0]);
    let y = Tensor::from_slice(&[1.0f32, 2.0], [1, 1, 2])?;
    let spread = y.conv_transpose(&w, None, &options)?;
    assert_eq!(spread.to_vec::<f32>()?, [1.0, 10.0, 2.0, 20.0]);
    let same = ConvOptions { padding: Padding::Same, ..ConvOptions::default() };
    assert_eq!(x.conv(&w, None, &same)?.shape().to_vec(), [1, 1, 5]);
    let error = x.conv(&range(&[1, 2, 2])?, None, &options).unwrap_err();
    assert!(error.to_string().contains("1 / 1 channels"), "{error}");
    Ok(())
}

#[test]
fn poolings_and_windows_agree() -> Result<()> {
    let x = range(&[4, 4])?;
    let pooled = x.max_pool(&PoolOptions::new(vec![2, 2]))?;
    assert_eq!(pooled.to_vec::<f32>()?, [5.0, 7.0, 13.0, 15.0]);
    let windows = x.windows(&[2, 2], &[2], &[1])?;
    assert_eq!(windows.max(Some(&[2, 3]), false)?.to_vec::<f32>()?, pooled.to_vec::<f32>()?);
    let folded = windows.fold_windows(&[4], &[2, 2], &[2], &[1])?;
    assert_eq!(folded.to_vec::<f32>()?, x.to_vec::<f32>()?, "windows side by side");
    let grown = x.reshape(&[1, 1, 4, 4])?.interpolate(&[8], None, Interpolation::Nearest, false)?;
    assert_eq!(grown.shape().to_vec(), [1, 1, 8, 8]);
    Ok(())
}

#[test]
fn summations_take_the_cheapest_order() -> Result<()> {
    let (a, b, c) = (range(&[2, 3])?, range(&[3, 4])?, range(&[4])?);
    let product = einsum("ij,jk,k->i", &[&a, &b, &c], Optimize::Auto)?;
    assert_eq!(product.to_vec::<f32>()?, a.matmul(&b.matmul(&c)?)?.to_vec::<f32>()?);
    let shapes = [a.shape(), b.shape(), c.shape()];
    let path = einsum_path("ij,jk,k->i", &shapes, Optimize::Auto)?;
    assert_eq!(path.steps[0].operands, [1, 2]);
    assert!(path.flops < path.naive_flops);
    assert!(einsum("ij->ik", &[&a], Optimize::Auto).is_err());
    Ok(())
}

#[test]
fn a_causal_query_sees_what_came_before() -> Result<()> {
    let (q, v) = (Tensor::zeros([3, 2], DType::F32)?, range(&[3, 1])?);
    let seen = q.attention(&q, &v, None, true, None)?;
    assert_eq!(seen.to_vec::<f32>()?, [0.0, 0.5, 1.0], "means of what is seen");
    Ok(())
}

#[test]
fn labels_to_ignore_count_for_nothing() -> Result<()> {
    let logits = Tensor::zeros([3, 4], DType::F32)?;
    let labels = Tensor::from_slice(&[0i64, -1, 2], [3])?;
    let options = ClassOptions { ignore_index: Some(-1), ..ClassOptions::default() };
    let loss = losses::cross_entropy(&logits, &labels, options, Reduction::None)?;
    let ln4 = 4f32.ln();
    let values = loss.to_vec::<f32>()?;
    assert!(values.iter().zip([ln4, 0.0, ln4]).all(|(a, b)| (a - b).abs() < 1e-6), "{values:?}");
    let mean = losses::cross_entropy(&logits, &labels, options, Reduction::Mean)?;
    assert!((mean.item::<f32>()? - ln4).abs() < 1e-6);
    Ok(())
}
