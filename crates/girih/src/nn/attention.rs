//! Multi-head attention.

use super::{Layer, Linear, Module, Visitor};
use crate::{AttentionOptions, Error, Result, Shape, Tensor};

/// Multi-head attention: Vaswani et al. 2017, section 3.2.2. If there are fewer heads of keys
/// and values than query heads, each head of keys and values serves a group of query heads
/// (grouped-query attention): Ainslie et al. 2023.
///
/// Shapes: query `[…, n, features]`, keys and values `[…, m, features]`, result `[…, n, features]`.
///
/// ```
/// use girih::nn::{Layer, MultiheadAttention};
/// use girih::{AttentionOptions, DType, Tensor};
///
/// let attention = MultiheadAttention::new(8, 2)?;
/// let x = Tensor::randn([3, 5, 8], DType::F32)?;
/// assert_eq!(attention.forward(&x)?.shape(), x.shape());
/// let causal = AttentionOptions::default().causal(); // each place sees those before it
/// let y = attention.attend(&x, &x, &x, &causal)?;
/// assert_eq!(y.shape(), x.shape());
/// # Ok::<(), girih::Error>(())
/// ```
pub struct MultiheadAttention {
    heads: usize,
    kv_heads: usize,
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    out_proj: Linear,
}

impl MultiheadAttention {
    /// Multi-head attention with `features` features in `heads` heads, with biases.
    ///
    /// Errors: [`Error::InvalidArgument`] for heads that do not divide the features.
    pub fn new(features: usize, heads: usize) -> Result<MultiheadAttention> {
        MultiheadAttention::grouped(features, heads, heads)
    }

    /// Grouped-query attention with `kv_heads` heads of keys and values.
    ///
    /// Errors: [`Error::InvalidArgument`] if `heads` does not divide the features, or `kv_heads`
    /// does not divide `heads`.
    pub fn grouped(features: usize, heads: usize, kv_heads: usize) -> Result<MultiheadAttention> {
        if heads == 0 || !features.is_multiple_of(heads) {
            return Err(Error::InvalidArgument(format!(
                "MultiheadAttention: {heads} heads do not divide {features} features"
            )));
        }
        if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(Error::InvalidArgument(format!(
                "MultiheadAttention: {kv_heads} heads of keys do not divide {heads} heads"
            )));
        }
        let inner = features / heads * kv_heads;
        Ok(MultiheadAttention {
            heads,
            kv_heads,
            q_proj: Linear::new(features, features)?,
            k_proj: Linear::new(features, inner)?,
            v_proj: Linear::new(features, inner)?,
            out_proj: Linear::new(features, features)?,
        })
    }

    /// Attention with separate queries, keys and values. The mask broadcasts to `[…, heads, n, m]`;
    /// see [`Tensor::attention`].
    ///
    /// Errors: a shape error for features that do not fit.
    #[track_caller]
    pub fn attend(
        &self,
        query: &Tensor,
        key: &Tensor,
        value: &Tensor,
        options: &AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let q = split(&self.q_proj.forward(query)?, self.heads)?;
        let k = split(&self.k_proj.forward(key)?, self.kv_heads)?;
        let v = split(&self.v_proj.forward(value)?, self.kv_heads)?;
        let out = q.attention(&k, &v, options)?.swapaxes(-2, -3)?;
        let (shape, rank) = (out.shape(), out.rank());
        let joined = shape.dim(rank - 2) * shape.dim(rank - 1);
        let shape = Shape::of_dims(shape.dims().take(rank - 2).chain([joined]));
        self.out_proj.forward(&out.reshape(shape)?)
    }
}

/// Splits the features into heads: `[…, n, heads * e] -> […, heads, n, e]`.
#[track_caller]
fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (shape, rank) = (x.shape(), x.rank());
    let Some(last) = rank.checked_sub(1).filter(|_| rank > 1) else {
        let reason = "expected at least two axes, […, places, features]".into();
        let op = "MultiheadAttention";
        return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
    };
    let each = shape.dim(last).floor_div(heads);
    let dims = shape.dims().take(last).chain([heads.into(), each]);
    x.reshape(Shape::of_dims(dims))?.swapaxes(-2, -3)
}

impl Module for MultiheadAttention {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.module("q_proj", &self.q_proj);
        visitor.module("k_proj", &self.k_proj);
        visitor.module("v_proj", &self.v_proj);
        visitor.module("out_proj", &self.out_proj);
    }
}

impl Layer for MultiheadAttention {
    /// Self-attention.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, x, &AttentionOptions::default())
    }
}
