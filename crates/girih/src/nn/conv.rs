//! Convolutions and transposed convolutions.

use super::layers::bound;
use super::{Layer, Module, Variable, Visitor, init};
use crate::{ConvOptions, DType, Error, Result, Tensor};

/// Cross-correlation along `N` axes with learnt kernels, and a bias per output channel.
///
/// Shapes: x `[batch, inputs, …]`, weight `[outputs, inputs / groups, …kernel]`, bias `[outputs]`.
///
/// ```
/// use girih::nn::{Conv2d, Layer};
/// use girih::{ConvOptions, DType, Padding, Tensor};
///
/// let options = ConvOptions::default().padding(Padding::Same);
/// let conv = Conv2d::with(3, 8, [3, 3], options)?;
/// let y = conv.forward(&Tensor::ones([2, 3, 5, 7], DType::F32)?)?;
/// assert_eq!(y.shape().to_vec(), [2, 8, 5, 7]);
/// # Ok::<(), girih::Error>(())
/// ```
pub struct Conv<const N: usize> {
    kernel: Kernel,
}

/// The transpose of [`Conv`] as a linear map of its operand: each element scales a kernel, and
/// overlapping kernels are added.
///
/// Shapes: x `[batch, inputs, …]`, weight `[inputs, outputs / groups, …kernel]`, bias `[outputs]`.
pub struct ConvTranspose<const N: usize> {
    kernel: Kernel,
}

/// [`Conv`] along one axis.
pub type Conv1d = Conv<1>;
/// [`Conv`] along two axes.
pub type Conv2d = Conv<2>;
/// [`Conv`] along three axes.
pub type Conv3d = Conv<3>;
/// [`ConvTranspose`] along one axis.
pub type ConvTranspose1d = ConvTranspose<1>;
/// [`ConvTranspose`] along two axes.
pub type ConvTranspose2d = ConvTranspose<2>;
/// [`ConvTranspose`] along three axes.
pub type ConvTranspose3d = ConvTranspose<3>;

/// The weight, bias and options of a layer.
struct Kernel {
    weight: Variable,
    bias: Option<Variable>,
    options: ConvOptions,
}

impl Kernel {
    fn new(
        channels: [usize; 2],
        outputs: usize,
        kernel: &[usize],
        options: ConvOptions,
    ) -> Result<Kernel> {
        let shape: Vec<usize> = channels.iter().chain(kernel).copied().collect();
        let bound = bound(shape[1..].iter().product());
        let weight = init::uniform(shape.as_slice(), -bound, bound, DType::F32)?;
        let bias = init::uniform([outputs], -bound, bound, DType::F32)?;
        Ok(Kernel { weight: Variable::new(weight), bias: Some(Variable::new(bias)), options })
    }

    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
        self.bias.iter().for_each(|bias| visitor.parameter("bias", bias));
    }
}

fn check(layer: &str, inputs: usize, outputs: usize, groups: usize) -> Result<()> {
    match groups > 0 && inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups) {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "{layer}: {groups} groups do not divide {inputs} and {outputs} channels"
        ))),
    }
}

impl<const N: usize> Conv<N> {
    /// A convolution with stride 1 and no padding. Weight and bias are uniform in ±1/sqrt(inputs ·
    /// kernel), f32.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(inputs: usize, outputs: usize, kernel: [usize; N]) -> Result<Conv<N>> {
        Conv::with(inputs, outputs, kernel, ConvOptions::default())
    }

    /// A convolution with stride, padding, dilation or groups.
    ///
    /// Errors: [`Error::InvalidArgument`] for groups that do not divide the channels.
    pub fn with(
        inputs: usize,
        outputs: usize,
        kernel: [usize; N],
        options: ConvOptions,
    ) -> Result<Conv<N>> {
        check("Conv", inputs, outputs, options.groups)?;
        let channels = [outputs, inputs / options.groups];
        Ok(Conv { kernel: Kernel::new(channels, outputs, &kernel, options)? })
    }

    /// The layer without a bias.
    pub fn without_bias(mut self) -> Conv<N> {
        self.kernel.bias = None;
        self
    }
}

impl<const N: usize> Module for Conv<N> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.kernel.visit(visitor);
    }
}

impl<const N: usize> Layer for Conv<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Kernel { weight, bias, options } = &self.kernel;
        let bias = bias.as_ref().map(Variable::get);
        x.conv(&weight.get(), bias.as_ref(), options)
    }
}

impl<const N: usize> ConvTranspose<N> {
    /// A transposed convolution with stride 1 and no padding. Weight and bias are uniform in
    /// ±1/sqrt(outputs / groups · kernel), f32.
    ///
    /// Errors: a shape error for sizes that are too large.
    pub fn new(inputs: usize, outputs: usize, kernel: [usize; N]) -> Result<ConvTranspose<N>> {
        ConvTranspose::with(inputs, outputs, kernel, ConvOptions::default())
    }

    /// A transposed convolution with stride, padding, output padding, dilation or groups.
    ///
    /// Errors: [`Error::InvalidArgument`] for groups that do not divide the channels.
    pub fn with(
        inputs: usize,
        outputs: usize,
        kernel: [usize; N],
        options: ConvOptions,
    ) -> Result<ConvTranspose<N>> {
        check("ConvTranspose", inputs, outputs, options.groups)?;
        let channels = [inputs, outputs / options.groups];
        Ok(ConvTranspose { kernel: Kernel::new(channels, outputs, &kernel, options)? })
    }

    /// The layer without a bias.
    pub fn without_bias(mut self) -> ConvTranspose<N> {
        self.kernel.bias = None;
        self
    }
}

impl<const N: usize> Module for ConvTranspose<N> {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        self.kernel.visit(visitor);
    }
}

impl<const N: usize> Layer for ConvTranspose<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Kernel { weight, bias, options } = &self.kernel;
        let bias = bias.as_ref().map(Variable::get);
        x.conv_transpose(&weight.get(), bias.as_ref(), options)
    }
}
