//! Activation functions as modules. Functions with settings are structs with public fields; the
//! defaults are those of the Python module.

use super::{Layer, Module, Variable, Visitor};
use crate::{DType, Result, Tensor};

macro_rules! functions {
    ($($doc:literal $name:ident $method:ident;)*) => {
        $(#[doc = $doc]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Module for $name {}

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method()
            }
        })*
    };
}

functions! {
    "`max(x, 0)`." Relu relu;
    "`x` limited to `0..6`." Relu6 relu6;
    "`1 / (1 + exp(-x))`." Sigmoid sigmoid;
    "`log(sigmoid(x))`, without overflow." LogSigmoid log_sigmoid;
    "`x * sigmoid(x)`." Silu silu;
    "The hyperbolic tangent." Tanh tanh;
    "The scaled exponential linear unit: Klambauer et al. 2017." Selu selu;
    "`x * tanh(softplus(x))`: Misra 2020." Mish mish;
    "`(x + 3) / 6` limited to `0..1`." Hardsigmoid hardsigmoid;
    "`x * hardsigmoid(x)`: Howard et al. 2019." Hardswish hardswish;
    "`log(1 + exp(x))`, without overflow." Softplus softplus;
    "`x / (1 + |x|)`." Softsign softsign;
    "`x - tanh(x)`." Tanhshrink tanhshrink;
}

macro_rules! settings {
    ($($doc:literal $name:ident {
        $($field_doc:literal $field:ident: $ty:ty = $default:expr),*
    } $method:ident;)*) => {
        $(#[doc = $doc]
        #[derive(Clone, Copy, Debug)]
        pub struct $name {
            $(#[doc = $field_doc]
            pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $default),* }
            }
        }

        impl Module for $name {}

        impl Layer for $name {
            #[track_caller]
            fn forward(&self, x: &Tensor) -> Result<Tensor> {
                x.$method($(self.$field),*)
            }
        })*
    };
}

settings! {
    "The Gaussian error linear unit, `x * Phi(x)`: Hendrycks and Gimpel 2016."
    Gelu { "Whether the tanh formula approximates it; else it is computed by erf." tanh: bool = false }
    gelu_by;
    "`x`, or `alpha * (exp(x) - 1)` where it is not positive: Clevert et al. 2016, eq. 15."
    Elu { "What it approaches on the left, negated." alpha: f64 = 1.0 } elu;
    "`x`, or `alpha * (exp(x / alpha) - 1)` where it is not positive: Barron 2017."
    Celu { "What it approaches on the left, negated." alpha: f64 = 1.0 } celu;
    "`x`, or `slope * x` where it is not positive."
    LeakyRelu { "The slope on the left." slope: f64 = 0.01 } leaky_relu;
    "`x` limited to `min..max`."
    Hardtanh { "The lower limit." min: f64 = -1.0, "The upper limit." max: f64 = 1.0 } hardtanh;
    "`x`, or 0 where `|x| <= lambda`."
    Hardshrink { "Half the width of what becomes 0." lambda: f64 = 0.5 } hardshrink;
    "`x` moved toward 0 by `lambda`, 0 where that passes it."
    Softshrink { "How far." lambda: f64 = 0.5 } softshrink;
    "Exponentials normalised to sum to one along an axis."
    Softmax { "The axis." axis: i64 = -1 } softmax;
    "The softmax of the negative."
    Softmin { "The axis." axis: i64 = -1 } softmin;
    "The logarithm of softmax, without underflow."
    LogSoftmax { "The axis." axis: i64 = -1 } log_softmax;
    "One half of an axis times the logistic function of the other: Dauphin et al. 2017."
    Glu { "The axis." axis: i64 = -1 } glu;
}

/// Computes `x` if it is positive, else `weight * x`, with a learnt weight: He et al. 2015.
///
/// Shapes: weight `[1]`, or `[channels]` for `[batch, channels, …]`.
pub struct Prelu {
    weight: Variable,
}

impl Prelu {
    /// Creates `parameters` weights, each 0.25, f32.
    ///
    /// Errors: a shape error for a number of weights that is too large.
    pub fn new(parameters: usize) -> Result<Prelu> {
        Ok(Prelu { weight: Variable::new(Tensor::full(0.25, [parameters], DType::F32)?) })
    }
}

impl Module for Prelu {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.parameter("weight", &self.weight);
    }
}

impl Layer for Prelu {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.prelu(&self.weight.get())
    }
}
