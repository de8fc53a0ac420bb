//! Normalisation of `[batch, channels, …]` and of the last axes, and attention. Half floats are
//! computed in f32 and rounded once.

use crate::{Error, Result, Tensor, keepdims, precision, where_};
use girih_ir::{Attrs, AxisSet, DType, Op, OpCode, Real};

/// Converts an operand to the compute dtype; also returns the dtype of the result.
fn wide(x: &Tensor) -> Result<(Tensor, DType)> {
    let dtype = precision::computed_in(OpCode::Standardize, x.dtype().to_float());
    Ok((x.astype(dtype.widened())?, dtype))
}

/// Fails for a number added to variances that makes the root of one NaN.
pub(super) fn check_eps(op: &str, eps: f64) -> Result<()> {
    match eps >= 0.0 {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!("{op}: eps must not be negative, got {eps}"))),
    }
}

fn no_channels(op: &'static str, x: &Tensor) -> Error {
    let reason = "expected at least two axes, [batch, channels, …]".into();
    girih_ir::Error::InvalidShape { op, shape: x.shape(), reason }.into()
}

/// Options of [`Tensor::attention`]: `AttentionOptions::default().causal()`.
#[derive(Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Bool, true for visible keys, or numbers that are added to the scores.
    pub mask: Option<&'a Tensor>,
    /// Whether query `i` sees only the keys up to `i`.
    pub causal: bool,
    /// The factor of the products of queries and keys; `1 / sqrt(e)` if `None`.
    pub scale: Option<f64>,
}

impl<'a> AttentionOptions<'a> {
    /// With a mask: bool, true for visible keys, or numbers that are added to the scores.
    #[must_use]
    pub fn mask(self, mask: &'a Tensor) -> AttentionOptions<'a> {
        AttentionOptions { mask: Some(mask), ..self }
    }

    /// With query `i` seeing only the keys up to `i`.
    #[must_use]
    pub fn causal(self) -> AttentionOptions<'a> {
        AttentionOptions { causal: true, ..self }
    }

    /// With this factor of the products of queries and keys.
    #[must_use]
    pub fn scale(self, scale: f64) -> AttentionOptions<'a> {
        AttentionOptions { scale: Some(scale), ..self }
    }
}

impl Tensor {
    /// Reshapes one number per channel to broadcast with `[batch, channels, …]`.
    fn per_channel(&self, op: &'static str, x: &Tensor) -> Result<Tensor> {
        let channels = x.shape()[1];
        if self.rank() != 1 || !self.shape().dim(0).equals(channels) {
            let reason = format!("expected one element per channel, [{channels}]");
            return Err(girih_ir::Error::InvalidShape { op, shape: self.shape(), reason }.into());
        }
        let mut shape = vec![1i64; x.rank() - 1];
        shape[0] = channels as i64;
        self.astype(x.dtype())?.reshape(&shape)
    }

    fn scaled_and_shifted(
        self,
        op: &'static str,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let mut y = self;
        if let Some(weight) = weight {
            y = y.mul(&weight.per_channel(op, &y)?)?;
        }
        if let Some(bias) = bias {
            y = y.add(&bias.per_channel(op, &y)?)?;
        }
        Ok(y)
    }

    /// Standardises to mean 0 and variance 1 over some axes; negative axes count from the end.
    /// Integers become f32.
    ///
    /// Errors: [`Error::InvalidArgument`] for a negative `eps`, here and in the other norms.
    #[track_caller]
    pub fn standardize(&self, axes: &[i64], eps: f64) -> Result<Tensor> {
        check_eps("standardize", eps)?;
        let x = self.float_for(OpCode::Standardize)?;
        let axes: AxisSet =
            girih_ir::ops::reduce::axis_set("standardize", Some(axes), self.rank())?;
        let op = Op::new(OpCode::Standardize, Attrs::Standardize { axes, eps: Real::from(eps) });
        Tensor::record(op, &[&x])
    }

    /// Normalises each channel (axis 1) by the given mean and variance, or by those of the batch
    /// for `None`; then scales and shifts.
    ///
    /// Errors: a shape error unless statistics, weight and bias have one element per channel.
    #[track_caller]
    pub fn batch_norm(
        &self,
        statistics: Option<(&Tensor, &Tensor)>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let op = "batch_norm";
        check_eps(op, eps)?;
        if self.rank() < 2 {
            return Err(no_channels(op, self));
        }
        let (x, dtype) = wide(self)?;
        let y = match statistics {
            None => {
                let axes: Vec<i64> = (0..x.rank() as i64).filter(|&a| a != 1).collect();
                x.standardize(&axes, eps)?
            }
            Some((mean, var)) => {
                let scale = var.astype(x.dtype())?.add(eps)?.rsqrt()?;
                let centred = x.sub(&mean.per_channel(op, &x)?)?;
                centred.mul(&scale.per_channel(op, &x)?)?
            }
        };
        y.scaled_and_shifted(op, weight, bias)?.astype(dtype)
    }

    /// Mean and variance of each channel (axis 1) of a batch, the variance with `correction`.
    #[track_caller]
    pub fn batch_statistics(&self, correction: f64) -> Result<(Tensor, Tensor)> {
        if self.rank() < 2 {
            return Err(no_channels("batch_norm", self));
        }
        let axes: Vec<i64> = (0..self.rank() as i64).filter(|&a| a != 1).collect();
        Ok((self.mean(&axes)?, self.var_with(&axes, correction)?))
    }

    /// Normalises each group of channels (axis 1) of each batch entry, then scales and shifts by
    /// channel: Wu and He 2018.
    ///
    /// Errors: a shape error unless the groups divide the channels.
    #[track_caller]
    pub fn group_norm(
        &self,
        groups: usize,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        let (op, shape) = ("group_norm", self.shape());
        check_eps(op, eps)?;
        if shape.rank() < 2 {
            return Err(no_channels(op, self));
        }
        if groups == 0 || !shape[1].is_multiple_of(groups) {
            let reason = format!("{groups} groups do not divide {} channels", shape[1]);
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let (x, dtype) = wide(self)?;
        let inner = shape.part(2..).count() * (shape[1] / groups);
        let grouped = [shape.dim(0), groups.into(), inner];
        let grouped = x.reshape(girih_ir::Shape::of_dims(grouped))?;
        let y = grouped.standardize(&[-1], eps)?.reshape(shape)?;
        y.scaled_and_shifted(op, weight, bias)?.astype(dtype)
    }

    /// Normalises each channel (axis 1) of each batch entry over its spatial axes, or by the given
    /// mean and variance per channel; then scales and shifts: Ulyanov et al. 2016.
    ///
    /// Errors: a shape error without spatial axes, or unless statistics have one element per
    /// channel.
    #[track_caller]
    pub fn instance_norm(
        &self,
        statistics: Option<(&Tensor, &Tensor)>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<Tensor> {
        check_eps("instance_norm", eps)?;
        if self.rank() < 3 {
            let reason = "expected at least three axes, [batch, channels, spatial…]".into();
            let (op, shape) = ("instance_norm", self.shape());
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        if statistics.is_some() {
            return self.batch_norm(statistics, weight, bias, eps);
        }
        let (x, dtype) = wide(self)?;
        let spatial: Vec<i64> = (2..x.rank() as i64).collect();
        let y = x.standardize(&spatial, eps)?;
        y.scaled_and_shifted("instance_norm", weight, bias)?.astype(dtype)
    }

    /// Divides by the root mean square over the last `ndims` axes, then scales by `weight`, of the
    /// shape of these axes.
    #[track_caller]
    pub fn rms_norm(&self, ndims: usize, weight: Option<&Tensor>, eps: f64) -> Result<Tensor> {
        check_eps("rms_norm", eps)?;
        let x = self.float_for(OpCode::RmsNorm)?;
        let ndims = u8::try_from(ndims).unwrap_or(u8::MAX);
        let op = Op::new(OpCode::RmsNorm, Attrs::Norm { ndims, eps: Real::from(eps) });
        match weight {
            None => Tensor::record(op, &[&x]),
            Some(weight) => Tensor::record(op, &[&x, &weight.astype(x.dtype())?]),
        }
    }

    /// The weights of [`Tensor::attention`]: `softmax(self keys^T * scale + mask)`, of shape
    /// `[…, heads, n, m]`.
    ///
    /// Errors: as [`Tensor::attention`].
    #[track_caller]
    pub fn attention_weights(
        &self,
        keys: &Tensor,
        options: &AttentionOptions<'_>,
    ) -> Result<Tensor> {
        // Record the op to check the shapes and dtypes.
        self.attention(keys, keys, options)?;
        let AttentionOptions { mask, causal, scale } = *options;
        let dtype = self.dtype().promote(keys.dtype())?.to_float();
        let dtype = precision::computed_in(OpCode::Attention, dtype);
        let features = self.shape()[self.rank() - 1].max(1) as f64;
        let q = self.astype(dtype.widened())?.mul(scale.unwrap_or(1.0 / features.sqrt()))?;
        let keys = keys.heads_of(&q)?.astype(dtype.widened())?;
        let mut scores = q.product(&keys.swapaxes(-1, -2)?)?;
        let shape = scores.shape();
        let plane = girih_ir::Shape::from(&shape[shape.rank() - 2..]);
        if causal {
            let seen = Tensor::ones(plane, DType::Bool)?.tril(0)?;
            scores = where_(&seen, &scores, f64::NEG_INFINITY)?;
        }
        scores = match mask {
            None => scores,
            Some(mask) if mask.dtype() == DType::Bool => where_(mask, &scores, f64::NEG_INFINITY)?,
            Some(mask) => scores.add(&mask.astype(scores.dtype())?)?,
        };
        if shape[shape.rank() - 1] == 0 {
            return scores.astype(dtype);
        }
        let most = scores.stop_gradient()?.max(keepdims(-1))?;
        let blind = most.eq(f64::NEG_INFINITY)?;
        let weights = where_(&blind, 0.0, &scores)?.softmax(-1)?;
        where_(&blind, 0.0, &weights)?.astype(dtype)
    }

    /// Repeats the heads (the third axis from the end), each for a group of query heads.
    fn heads_of(&self, queries: &Tensor) -> Result<Tensor> {
        let heads = |t: &Tensor| t.rank().checked_sub(3).map(|at| t.shape()[at]);
        match (heads(queries), heads(self)) {
            (Some(q), Some(k)) if k > 1 && q > k => self.repeat(q / k, Some(-3)),
            _ => Ok(self.clone()),
        }
    }

    /// [`Tensor::attention`] with dropout of probability `dropout` on the weights, and these weights.
    ///
    /// Errors: as [`Tensor::attention`] and [`Tensor::dropout`].
    #[track_caller]
    pub fn attention_with_weights(
        &self,
        keys: &Tensor,
        values: &Tensor,
        options: &AttentionOptions<'_>,
        dropout: f64,
    ) -> Result<(Tensor, Tensor)> {
        let weights = self.attention_weights(keys, options)?;
        let weights = if dropout == 0.0 { weights } else { weights.dropout(dropout, 0)? };
        let dtype = weights.dtype().promote(values.dtype())?;
        let values = values.heads_of(self)?.astype(dtype)?;
        Ok((weights.astype(dtype)?.matmul(&values)?, weights))
    }

    /// Scaled dot-product attention with these queries:
    /// `softmax(self keys^T * scale + mask) values`.
    ///
    /// Shapes: queries `[…, heads, n, e]`, keys `[…, heads, m, e]`, values `[…, heads, m, f]`,
    /// result `[…, heads, n, f]`. Leading axes broadcast. Keys and values may have fewer heads,
    /// each for a group of query heads. The mask broadcasts to `[…, heads, n, m]`. The result is zero
    /// for a query that sees no key.
    ///
    /// Errors: a shape error for operands that do not fit.
    #[track_caller]
    pub fn attention(
        &self,
        keys: &Tensor,
        values: &Tensor,
        options: &AttentionOptions<'_>,
    ) -> Result<Tensor> {
        let AttentionOptions { mask, causal, scale } = *options;
        let dtype = self.dtype().promote(keys.dtype())?.promote(values.dtype())?.to_float();
        let dtype = precision::computed_in(OpCode::Attention, dtype);
        let (q, k, v) = (self.astype(dtype)?, keys.astype(dtype)?, values.astype(dtype)?);
        let shape = self.shape();
        let last = shape.rank().checked_sub(1).map(|axis| shape[axis]);
        let features = last.unwrap_or(1).max(1);
        let scale = Real::from(scale.unwrap_or(1.0 / (features as f64).sqrt()));
        let op = Op::new(OpCode::Attention, Attrs::Attention { causal, scale });
        match mask {
            None => Tensor::record(op, &[&q, &k, &v]),
            Some(mask) if mask.dtype() == DType::Bool => Tensor::record(op, &[&q, &k, &v, mask]),
            Some(mask) => Tensor::record(op, &[&q, &k, &v, &mask.astype(dtype)?]),
        }
    }

    /// [`Tensor::attention`] with a sink: the softmax of each query of a head also counts a score
    /// that belongs to no key, so that its weights sum to less than one (Xiao et al. 2024). `sinks`
    /// has one score per query head, which is neither scaled nor masked.
    ///
    /// Errors: as [`Tensor::attention`]; a shape error unless there is one sink per head.
    #[track_caller]
    pub fn attention_with_sinks(
        &self,
        keys: &Tensor,
        values: &Tensor,
        options: &AttentionOptions<'_>,
        sinks: &Tensor,
    ) -> Result<Tensor> {
        // Record the op to check the shapes and dtypes.
        self.attention(keys, values, options)?;
        let AttentionOptions { mask, causal, scale } = *options;
        let (op, shape, own) = ("scaled_dot_product_attention", self.shape(), sinks.shape());
        let heads = shape.rank().checked_sub(3).map_or(1.into(), |axis| shape.dim(axis));
        if own.rank() != 1 || !own.dim(0).equals(heads) {
            let reason = format!("one sink for each of {heads} heads is expected, [{heads}]");
            return Err(girih_ir::Error::InvalidShape { op, shape: own, reason }.into());
        }
        let dtype = self.dtype().promote(keys.dtype())?.promote(values.dtype())?.to_float();
        // A key and a value of zeros, whose score is what the mask adds: the sink.
        let (n, m) = (shape.dim(shape.rank() - 2), keys.shape().dim(keys.rank() - 2));
        let mut added = match mask {
            None => Tensor::zeros([], dtype)?,
            Some(mask) if mask.dtype() == DType::Bool => {
                where_(mask, &Tensor::zeros([], dtype)?, f64::NEG_INFINITY)?
            }
            Some(mask) => mask.astype(dtype)?,
        };
        let plane = girih_ir::Shape::of_dims([n, m]);
        if causal {
            let seen = Tensor::ones(plane.clone(), DType::Bool)?.tril(0)?;
            added = where_(&seen, &added, f64::NEG_INFINITY)?;
        }
        // Without an axis of heads there is one.
        let axes = shape.rank().min(3);
        let of_heads = [heads, n, m].into_iter().skip(3 - axes);
        let plane = girih_ir::Shape::of_dims(of_heads).broadcast(&added.shape(), op)?;
        let added = added.broadcast_to(plane.clone())?;
        let sinks = sinks.astype(dtype)?.unsqueeze(-1)?;
        let sinks = if axes == 3 { sinks.unsqueeze(-1)? } else { sinks };
        let sinks = sinks.broadcast_to(plane.with_dim(plane.rank() - 1, 1usize))?;
        let mask = crate::concat(&[&added, &sinks], -1)?;
        let longer = |x: &Tensor| {
            let shape = x.shape();
            let none = Tensor::zeros(shape.with_dim(shape.rank() - 2, 1usize), x.dtype())?;
            crate::concat(&[x, &none], -2)
        };
        let options = AttentionOptions { mask: Some(&mask), causal: false, scale };
        self.attention(&longer(keys)?, &longer(values)?, &options)
    }
}
