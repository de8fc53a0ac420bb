//! Normalisation layers. Public fields may be changed before the layer is used.

use super::{Layer, Mode, Module, Variable, Visitor};
use crate::{DType, Error, Result, Tensor};

/// The scale and shift of a normalisation layer.
struct Affine {
    weight: Variable,
    bias: Variable,
}

impl Affine {
    fn new(shape: &[usize]) -> Result<Affine> {
        Ok(Affine {
            weight: Variable::new(Tensor::ones(shape, DType::F32)?),
            bias: Variable::new(Tensor::zeros(shape, DType::F32)?),
        })
    }

    fn visit<'a>(affine: &'a Option<Affine>, visitor: &mut Visitor<'a>) {
        if let Some(Affine { weight, bias }) = affine {
            visitor.parameter("weight", weight);
            visitor.parameter("bias", bias);
        }
    }

    fn get(affine: &Option<Affine>) -> (Option<Tensor>, Option<Tensor>) {
        affine.as_ref().map(|affine| (affine.weight.get(), affine.bias.get())).unzip()
    }
}

/// Normalises over the last axes, then scales and shifts: Ba et al. 2016.
///
/// Shapes: x `[…, sizes]`, weight and bias of the sizes.
pub struct LayerNorm {
    /// The number that is added to the variance.
    pub eps: f64,
    axes: usize,
    affine: Option<Affine>,
}

impl LayerNorm {
    /// Normalises over the last axes, which have these sizes.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(sizes: &[usize]) -> Result<LayerNorm> {
        Ok(LayerNorm { eps: 1e-5, axes: sizes.len(), affine: Some(Affine::new(sizes)?) })
    }

    /// Normalises over the last `axes` axes, without scale and shift.
    pub fn plain(axes: usize) -> LayerNorm {
        LayerNorm { eps: 1e-5, axes, affine: None }
    }
}

impl Module for LayerNorm {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        Affine::visit(&self.affine, visitor);
    }
}

impl Layer for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = Affine::get(&self.affine);
        x.layer_norm(self.axes, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

/// Divides by the root mean square over the last axes, then scales: Zhang and Sennrich 2019.
///
/// Shapes: x `[…, sizes]`, weight of the sizes.
pub struct RmsNorm {
    /// The number that is added to the mean square.
    pub eps: f64,
    axes: usize,
    weight: Variable,
}

impl RmsNorm {
    /// Normalises over the last axes, which have these sizes.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(sizes: &[usize]) -> Result<RmsNorm> {
        let weight = Variable::new(Tensor::ones(sizes, DType::F32)?);
        Ok(RmsNorm { eps: 1e-6, axes: sizes.len(), weight })
    }
}

impl Module for RmsNorm {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
    }
}

impl Layer for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.rms_norm(self.axes, Some(&self.weight.get()), self.eps)
    }
}

/// Normalises groups of channels of each batch entry, then scales and shifts by channel: Wu and He
/// 2018.
///
/// Shapes: x `[batch, channels, …]`, weight and bias `[channels]`.
pub struct GroupNorm {
    /// The number that is added to the variance.
    pub eps: f64,
    groups: usize,
    affine: Option<Affine>,
}

impl GroupNorm {
    /// Normalises `groups` groups of `channels` channels.
    ///
    /// Errors: [`Error::InvalidArgument`] for groups that do not divide the channels.
    pub fn new(groups: usize, channels: usize) -> Result<GroupNorm> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::InvalidArgument(format!(
                "GroupNorm: {groups} groups do not divide {channels} channels"
            )));
        }
        Ok(GroupNorm { eps: 1e-5, groups, affine: Some(Affine::new(&[channels])?) })
    }
}

impl Module for GroupNorm {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        Affine::visit(&self.affine, visitor);
    }
}

impl Layer for GroupNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = Affine::get(&self.affine);
        x.group_norm(self.groups, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

/// Normalises each channel of each batch entry over its spatial axes: Ulyanov et al. 2016.
///
/// Shapes: x `[batch, channels, …]`, weight and bias `[channels]`, if present.
pub struct InstanceNorm {
    /// The number that is added to the variance.
    pub eps: f64,
    affine: Option<Affine>,
}

impl InstanceNorm {
    /// Normalisation without scale and shift.
    pub fn new() -> InstanceNorm {
        InstanceNorm { eps: 1e-5, affine: None }
    }

    /// Normalisation with scale and shift by channel.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn affine(channels: usize) -> Result<InstanceNorm> {
        Ok(InstanceNorm { eps: 1e-5, affine: Some(Affine::new(&[channels])?) })
    }
}

impl Default for InstanceNorm {
    fn default() -> InstanceNorm {
        InstanceNorm::new()
    }
}

impl Module for InstanceNorm {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        Affine::visit(&self.affine, visitor);
    }
}

impl Layer for InstanceNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = Affine::get(&self.affine);
        x.instance_norm(None, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

/// Normalises each channel over the batch and its spatial axes, then scales and shifts: Ioffe and
/// Szegedy 2015.
///
/// In training, the layer normalises by the batch's mean and variance, which also update running
/// averages (buffers). In evaluation, the layer normalises by the running averages.
///
/// Shapes: x `[batch, channels, …]`, weight, bias and running averages `[channels]`.
pub struct BatchNorm {
    /// The number that is added to the variance.
    pub eps: f64,
    /// The weight of each batch in the running averages; `None` for their cumulative mean.
    pub momentum: Option<f64>,
    affine: Option<Affine>,
    running_mean: Variable,
    running_var: Variable,
    num_batches_tracked: Variable,
    mode: Mode,
}

impl BatchNorm {
    /// Normalises `channels` channels.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(channels: usize) -> Result<BatchNorm> {
        Ok(BatchNorm {
            eps: 1e-5,
            momentum: Some(0.1),
            affine: Some(Affine::new(&[channels])?),
            running_mean: Variable::new(Tensor::zeros([channels], DType::F32)?),
            running_var: Variable::new(Tensor::ones([channels], DType::F32)?),
            num_batches_tracked: Variable::new(Tensor::zeros([], DType::I64)?),
            mode: Mode::default(),
        })
    }

    #[track_caller]
    fn track(&self, x: &Tensor) -> Result<()> {
        let (mean, var) = (self.running_mean.get(), self.running_var.get());
        let shape = x.shape();
        let elements = if shape.rank() < 2 || shape[1] == 0 { 0 } else { x.numel() / shape[1] };
        if elements < 2 && shape.rank() > 1 {
            return Err(Error::InvalidArgument(format!(
                "BatchNorm: a batch of shape {shape} has {elements} element per channel, too few for \
                 statistics; use a larger batch, or train(false)"
            )));
        }
        let (own_mean, own_var) = x.stop_gradient()?.astype(mean.dtype())?.batch_statistics(1.0)?;
        let count = self.num_batches_tracked.get().add(1)?;
        let moved = |old: &Tensor, new: &Tensor| {
            let step = new.sub(old)?;
            let step = match self.momentum {
                Some(share) => step.mul(share)?,
                None => step.div(&count.astype(old.dtype())?)?,
            };
            old.add(&step)
        };
        let (mean, var) = (moved(&mean, &own_mean)?, moved(&var, &own_var)?);
        self.running_mean.set(mean)?;
        self.running_var.set(var)?;
        self.num_batches_tracked.set(count)
    }
}

impl Module for BatchNorm {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        Affine::visit(&self.affine, visitor);
        visitor.buffer("running_mean", &self.running_mean);
        visitor.buffer("running_var", &self.running_var);
        visitor.buffer("num_batches_tracked", &self.num_batches_tracked);
        visitor.mode(&self.mode);
    }
}

impl Layer for BatchNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = Affine::get(&self.affine);
        if self.mode.is_training() {
            let y = x.batch_norm(None, weight.as_ref(), bias.as_ref(), self.eps)?;
            self.track(x)?;
            return Ok(y);
        }
        let (mean, var) = (self.running_mean.get(), self.running_var.get());
        x.batch_norm(Some((&mean, &var)), weight.as_ref(), bias.as_ref(), self.eps)
    }
}
