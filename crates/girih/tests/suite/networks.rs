//! Tests of convolutions, poolings, contractions, attention and losses.

use girih::losses::{self, ClassOptions, Ctc, Reduction};
use girih::{
    AttentionOptions, BagMode, Bags, ConvOptions, Corners, DType, EmbeddingOptions, GridOptions,
    Interpolation, Optimize, Outside, PadMode, Padding, PoolOptions, Result, Sampling, Tensor,
    einsum, einsum_path, unpooled_sizes,
};

fn range(shape: &[usize]) -> Result<Tensor> {
    let n: usize = shape.iter().product();
    let shape: Vec<i64> = shape.iter().map(|&s| s as i64).collect();
    Tensor::arange(0..n as i64, DType::F32)?.reshape(&shape)
}

#[test]
fn convolutions_and_transposed_convolutions_have_known_values() -> Result<()> {
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
    assert_eq!(windows.max([2, 3])?.to_vec::<f32>()?, pooled.to_vec::<f32>()?);
    let folded = windows.fold_windows(&[4], &[2, 2], &[2], &[1])?;
    assert_eq!(folded.to_vec::<f32>()?, x.to_vec::<f32>()?, "windows side by side");
    let grown =
        x.reshape([1, 1, 4, 4])?.interpolate(&[8], None, Interpolation::Nearest, Corners::Edges)?;
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
    let seen = q.attention(&q, &v, &AttentionOptions::default().causal())?;
    assert_eq!(seen.to_vec::<f32>()?, [0.0, 0.5, 1.0], "means of what is seen");
    Ok(())
}

#[test]
fn ignored_labels_have_zero_loss() -> Result<()> {
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

#[test]
fn max_unpooling_restores_the_positions_of_the_maxima() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 3.0, 5.0, 2.0], [1, 4])?;
    let options = PoolOptions::new(vec![2]);
    let (largest, places) = x.max_pool_with_indices(&options)?;
    assert_eq!(places.to_vec::<i64>()?, [1, 2]);
    let back = largest.max_unpool(&places, &unpooled_sizes(&[2], &options)?)?;
    assert_eq!(back.to_vec::<f32>()?, [0.0, 3.0, 5.0, 0.0]);
    let (_, places) = x.adaptive_max_pool_with_indices(&[3])?;
    assert_eq!(places.to_vec::<i64>()?, [1, 2, 2]);
    let halved = PoolOptions { divisor: Some(4.0), ..options };
    assert_eq!(x.avg_pool(&halved)?.to_vec::<f32>()?, [1.0, 1.75]);
    Ok(())
}

#[test]
fn poolings_take_padding_larger_than_their_windows() -> Result<()> {
    let x = Tensor::from_slice(&[3.0f32, 1.0], [1, 2])?;
    let padding = Padding::Explicit(vec![(2, 3)]);
    let options = PoolOptions { stride: Some(vec![1]), padding, ..PoolOptions::new(vec![2]) };
    let (largest, places) = x.max_pool_with_indices(&options)?;
    let none = f32::NEG_INFINITY;
    assert_eq!(largest.to_vec::<f32>()?, [none, 3.0, 3.0, 1.0, none, none]);
    assert_eq!(places.to_vec::<i64>()?, [-1, 0, 0, 1, -1, -1]);
    assert_eq!(largest.max_unpool(&places, &[2])?.to_vec::<f32>()?, [3.0, 1.0]);
    assert_eq!(x.avg_pool(&options)?.to_vec::<f32>()?, [0.0, 1.5, 2.0, 0.5, 0.0, 0.0]);
    let elements = PoolOptions { count_include_pad: false, ..options };
    let means = x.avg_pool(&elements)?.to_vec::<f32>()?;
    assert_eq!(means[1..4], [3.0, 2.0, 1.0]);
    assert!([0, 4, 5].iter().all(|&i: &usize| means[i].is_nan()), "{means:?}");
    let wide = PoolOptions { padding: (1 << 60).into(), ..elements };
    assert!(x.max_pool(&wide).unwrap_err().to_string().contains("can be addressed"));
    Ok(())
}

#[test]
fn padding_of_a_convolution_may_come_from_the_other_end() -> Result<()> {
    let (x, w) = (range(&[1, 1, 4])?, Tensor::ones([1, 1, 3], DType::F32)?);
    let options = ConvOptions {
        padding: Padding::Same,
        padding_mode: Some(PadMode::Wrap),
        ..ConvOptions::default()
    };
    assert_eq!(x.conv(&w, None, &options)?.to_vec::<f32>()?, [4.0, 3.0, 6.0, 5.0]);
    let error = x.conv_transpose(&w, None, &ConvOptions { padding: 1.into(), ..options });
    assert!(error.unwrap_err().to_string().contains("no mode fits"));
    let still = ConvOptions { stride: vec![0], ..ConvOptions::default() };
    let error = x.conv(&w, None, &still).unwrap_err();
    assert!(error.to_string().contains("stride must be at least 1, got [0]"), "{error}");
    Ok(())
}

#[test]
fn embeddings_grid_samples_and_channel_shuffles_have_known_values() -> Result<()> {
    let table = range(&[3, 2])?;
    let indices = Tensor::from_slice(&[2i64, 0], [1, 2])?;
    let options = EmbeddingOptions { padding_idx: Some(0), ..EmbeddingOptions::default() };
    assert_eq!(table.embedding(&indices, &options)?.to_vec::<f32>()?, [4.0, 5.0, 0.0, 1.0]);
    let bag = table.embedding_bag(&indices, Bags::Rows, BagMode::Mean, None, &options)?;
    assert_eq!(bag.to_vec::<f32>()?, [4.0, 5.0], "padding does not count");
    let image = range(&[1, 1, 2, 2])?;
    let turned = Tensor::from_slice(&[-1.0f32, 0.0, 0.0, 0.0, 1.0, 0.0], [1, 2, 3])?;
    let grid =
        GridOptions { mode: Sampling::Linear, outside: Outside::Zeros, corners: Corners::Edges };
    let sampled = image.grid_sample(&turned.affine_grid(&[2, 2], Corners::Edges)?, grid)?;
    assert_eq!(sampled.to_vec::<f32>()?, [1.0, 0.0, 3.0, 2.0]);
    let dealt = range(&[1, 4])?.channel_shuffle(2)?;
    assert_eq!(dealt.to_vec::<f32>()?, [0.0, 2.0, 1.0, 3.0]);
    assert_eq!(range(&[4, 1, 1])?.pixel_shuffle(2)?.shape().to_vec(), [1, 2, 2]);
    Ok(())
}

#[test]
fn ctc_loss_sums_all_alignments() -> Result<()> {
    // Two steps, three equally likely classes: 11, 01 and 10 spell the label 1.
    let log_p = Tensor::zeros([2, 1, 3], DType::F64)?.log_softmax(-1)?;
    let labels = Tensor::from_slice(&[1i64], [1, 1])?;
    let (steps, lengths) = (Tensor::from_slice(&[2i64], [1])?, Tensor::from_slice(&[1i64], [1])?);
    let lengths = (&steps, &lengths);
    let loss = losses::ctc_loss(&log_p, &labels, lengths, Ctc::default(), Reduction::Sum)?;
    assert!((loss.item::<f64>()? - 3f64.ln()).abs() < 1e-12);
    Ok(())
}
