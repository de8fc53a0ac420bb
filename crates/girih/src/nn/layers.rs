//! Linear layers, embeddings, dropout, and sequences of modules.

use super::{Layer, Mode, Module, Variable, Visitor, init};
use crate::location::named_scope;
use crate::{DType, Error, Result, Tensor};

/// A linear layer: `x @ weight.T + bias`.
///
/// Shapes: x `[…, inputs]`, weight `[outputs, inputs]`, bias `[outputs]`, result `[…, outputs]`.
pub struct Linear {
    weight: Variable,
    bias: Option<Variable>,
}

impl Linear {
    /// A layer with a bias; weight and bias are uniform in ±1/sqrt(inputs), f32.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = bound(inputs);
        let bias = init::uniform([outputs], -bound, bound, DType::F32);
        Ok(Linear { bias: Some(Variable::new(bias?)), ..Linear::without_bias(inputs, outputs)? })
    }

    /// A layer without a bias; the weight is as for [`Linear::new`].
    ///
    /// Errors: as [`Linear::new`].
    pub fn without_bias(inputs: usize, outputs: usize) -> Result<Linear> {
        let bound = bound(inputs);
        Linear::of(init::uniform([outputs, inputs], -bound, bound, DType::F32)?, None)
    }

    /// A layer with this weight and bias.
    ///
    /// Errors: [`Error::InvalidArgument`] unless the weight has two axes and the bias one element
    /// per output.
    pub fn of(weight: Tensor, bias: Option<Tensor>) -> Result<Linear> {
        let shape = weight.shape();
        let fits = |bias: &Tensor| bias.rank() == 1 && bias.shape().dim(0) == shape.dim(0);
        if shape.rank() != 2 || !bias.as_ref().is_none_or(fits) {
            let bias = bias.map_or("none".into(), |bias| bias.shape().to_string());
            return Err(Error::InvalidArgument(format!(
                "Linear: expected a weight [outputs, inputs] and a bias [outputs], got {shape} and \
                 {bias}"
            )));
        }
        Ok(Linear { weight: Variable::new(weight), bias: bias.map(Variable::new) })
    }

    /// The weight, for sharing or replacing it.
    pub fn weight(&self) -> &Variable {
        &self.weight
    }

    /// The bias, if there is one.
    pub fn bias(&self) -> Option<&Variable> {
        self.bias.as_ref()
    }
}

/// The bound of uniformly initialised weights with this fan-in.
pub(super) fn bound(fan_in: usize) -> f64 {
    1.0 / (fan_in.max(1) as f64).sqrt()
}

impl Module for Linear {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
        self.bias.iter().for_each(|bias| visitor.parameter("bias", bias));
    }
}

impl Layer for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let out = x.matmul(&self.weight.get().t()?)?;
        match &self.bias {
            None => Ok(out),
            // Under autocast the product has a half dtype, and so has the result.
            Some(bias) => out.add(&bias.get().astype(out.dtype())?),
        }
    }
}

/// Looks up rows of a table by integer indices.
///
/// Shapes: weight `[num_embeddings, features]`, indices of any shape, result `[…, features]`.
pub struct Embedding {
    weight: Variable,
}

impl Embedding {
    /// A table with standard normal elements, f32.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(num_embeddings: usize, features: usize) -> Result<Embedding> {
        let weight = init::normal([num_embeddings, features], 0.0, 1.0, DType::F32)?;
        Ok(Embedding { weight: Variable::new(weight) })
    }

    /// The table, for sharing or replacing it.
    pub fn weight(&self) -> &Variable {
        &self.weight
    }
}

impl Module for Embedding {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
    }
}

impl Layer for Embedding {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Result<Tensor> {
        self.weight.get().take(indices, 0)
    }
}

/// In training, sets elements to 0 with probability `p` and scales the others by `1 / (1 - p)`. In
/// evaluation, dropout is the identity.
pub struct Dropout {
    p: f64,
    /// The number of last axes that form a channel, which is dropped as a whole.
    spatial: usize,
    mode: Mode,
}

impl Dropout {
    /// Dropout of single elements with probability `p`.
    ///
    /// Errors: [`Error::InvalidArgument`] unless `0 <= p <= 1`.
    pub fn new(p: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::InvalidArgument(format!("Dropout: p must be in [0, 1], got {p}")));
        }
        Ok(Dropout { p, spatial: 0, mode: Mode::default() })
    }

    /// Dropout of whole channels, where the last `spatial` axes form a channel: Tompson et al.
    /// 2015.
    ///
    /// Errors: as [`Dropout::new`].
    pub fn of_channels(p: f64, spatial: usize) -> Result<Dropout> {
        Ok(Dropout { spatial, ..Dropout::new(p)? })
    }
}

impl Module for Dropout {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.mode(&self.mode);
    }
}

impl Layer for Dropout {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match self.mode.is_training() && self.p != 0.0 {
            true => x.dropout(self.p, self.spatial),
            false => Ok(x.clone()),
        }
    }
}

/// Flattens the axes from `start` to `end` into one axis; negative axes count from the end.
pub struct Flatten {
    /// The first axis.
    pub start: i64,
    /// The last axis.
    pub end: i64,
}

impl Default for Flatten {
    /// Flattens all axes except the first one, the batch.
    fn default() -> Flatten {
        Flatten { start: 1, end: -1 }
    }
}

impl Module for Flatten {}

impl Layer for Flatten {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.flatten(self.start, self.end)
    }
}

/// Modules, or functions, applied in sequence.
///
/// ```
/// use girih::nn::{Flatten, Layer, Linear, Module, Relu, Sequential};
/// use girih::{DType, Tensor};
///
/// let model = Sequential::new()
///     .then(Flatten::default())
///     .then(Linear::new(6, 4)?)
///     .then(Relu)
///     .then(|x: &Tensor| x.mul(2.0))
///     .then_named("head", Linear::new(4, 2)?);
/// assert_eq!(model.forward(&Tensor::ones([5, 2, 3], DType::F32)?)?.shape().to_vec(), [5, 2]);
/// assert_eq!(model.named_parameters()[2].0, "head.weight");
/// # Ok::<(), girih::Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    layers: Vec<(String, Box<dyn Layer>)>,
}

impl Sequential {
    /// An empty sequence, which is the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends a module, which is named by its number.
    pub fn then(self, layer: impl Layer + 'static) -> Sequential {
        let name = self.layers.len().to_string();
        self.then_named(&name, layer)
    }

    /// Appends a module with a name.
    pub fn then_named(mut self, name: &str, layer: impl Layer + 'static) -> Sequential {
        self.layers.push((name.into(), Box::new(layer)));
        self
    }

    /// The number of modules.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there are no modules.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The modules with their names.
    pub fn layers(&self) -> impl Iterator<Item = (&str, &dyn Layer)> {
        self.layers.iter().map(|(name, layer)| (name.as_str(), &**layer))
    }
}

impl From<Vec<Box<dyn Layer>>> for Sequential {
    fn from(layers: Vec<Box<dyn Layer>>) -> Sequential {
        let numbered = layers.into_iter().enumerate();
        Sequential { layers: numbered.map(|(i, layer)| (i.to_string(), layer)).collect() }
    }
}

impl Module for Sequential {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.layers.iter().for_each(|(name, layer)| visitor.module(name, &**layer));
    }
}

impl Layer for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut layers = self.layers.iter();
        layers.try_fold(x.clone(), |x, (name, layer)| named_scope(name, || layer.forward(&x)))
    }
}
