//! Numbers of a function that is traced once and run with other sizes and numbers: arithmetic of
//! symbolic sizes, and real numbers that have no value during tracing.

use crate::{Operand, Result, Tensor, binary, number};
use girih_ir::{DType, Dim, OpCode};

/// The size that an operator gives; `None` if the result is no size, or no size that can be written
/// with the operands' symbols. A difference is a size if `a >= b`, which is then guarded; a division
/// by 0 gives 0, as [`Dim::floor_div`] does.
pub fn size_operator(code: OpCode, a: Dim, b: Dim) -> Option<Dim> {
    /// Larger powers are computed as numbers.
    const MOST: usize = 8;
    match code {
        OpCode::Add => Some(a + b),
        OpCode::Sub => a.at_least(b).then(|| a - b),
        OpCode::Mul => Some(a * b),
        OpCode::FloorDivide => Some(a.floor_div(b)),
        OpCode::Remainder => Some(a.remainder(b)),
        OpCode::Pow => {
            let exponent = b.known().filter(|&exponent| exponent <= MOST)?;
            Some(std::iter::repeat_n(a, exponent).product())
        }
        _ => None,
    }
}

/// Whether sizes compare as an operator says (`OpCode::Lt` and so on); the program is then valid for
/// sizes with the same answer. `None` for other operators.
pub fn compare_sizes(code: OpCode, a: Dim, b: Dim) -> Option<bool> {
    Some(match code {
        OpCode::Eq => a.equals(b),
        OpCode::Ne => !a.equals(b),
        OpCode::Ge => a.at_least(b),
        OpCode::Lt => !a.at_least(b),
        OpCode::Gt => !b.at_least(a),
        OpCode::Le => b.at_least(a),
        _ => return None,
    })
}

/// A real number of a program: an argument, or a value computed from arguments and sizes. It is a
/// scalar of the program, and takes the dtype of the tensor with which it is combined
/// ([`Operand::Weak`]). A number that depends on sizes alone also has its value at the traced sizes.
#[derive(Clone, Debug)]
pub struct SymbolicNumber {
    tensor: Tensor,
    of_sizes: Option<OfSizes>,
}

/// The value at the traced sizes, and the sizes on which it depends.
#[derive(Clone, Debug)]
struct OfSizes {
    value: f64,
    sizes: Vec<Dim>,
}

impl OfSizes {
    /// The value; the program is from now on valid for these sizes alone.
    fn fix(&self) -> f64 {
        self.sizes.iter().for_each(|size| {
            size.get();
        });
        self.value
    }
}

impl SymbolicNumber {
    /// An argument of the function: a float64 tensor without axes.
    pub fn argument(tensor: Tensor) -> SymbolicNumber {
        SymbolicNumber { tensor, of_sizes: None }
    }

    /// A known number, or a size.
    ///
    /// Errors: those of [`number`].
    #[track_caller]
    pub fn known(operand: Operand<'_>) -> Result<SymbolicNumber> {
        let (value, sizes) = match operand {
            Operand::Size(size) => (size.hint() as f64, vec![size]),
            Operand::Float(v) => (v, Vec::new()),
            Operand::Int(v) => (v as f64, Vec::new()),
            _ => (0.0, Vec::new()),
        };
        let tensor = number(operand, Some(DType::F64))?;
        Ok(SymbolicNumber { tensor, of_sizes: Some(OfSizes { value, sizes }) })
    }

    /// The number as a float64 tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// The value, after fixing the sizes on which it depends; `None` for a number that depends on
    /// arguments.
    pub fn fixed(&self) -> Option<f64> {
        self.of_sizes.as_ref().map(OfSizes::fix)
    }

    /// The values of two numbers, after fixing the sizes on which either depends; `None` if one
    /// depends on arguments. Nothing is fixed if `self` does.
    pub fn both_fixed(&self, other: &SymbolicNumber) -> Option<(f64, f64)> {
        let a = self.of_sizes.as_ref()?;
        let b = other.fixed();
        Some((a.fix(), b?))
    }

    /// The values of two numbers at the traced sizes; `None` if one depends on arguments.
    pub fn both_known(&self, other: &SymbolicNumber) -> Option<(f64, f64)> {
        Some((self.of_sizes.as_ref()?.value, other.of_sizes.as_ref()?.value))
    }

    /// Applies an operator. `value` is the result for [`SymbolicNumber::both_known`], by the
    /// arithmetic of the front end's language; `None` if it is no real number.
    ///
    /// Errors: those of [`binary`].
    #[track_caller]
    pub fn binary(
        code: OpCode,
        a: &SymbolicNumber,
        b: &SymbolicNumber,
        value: Option<f64>,
    ) -> Result<SymbolicNumber> {
        let of_sizes = match (&a.of_sizes, &b.of_sizes, value) {
            (Some(a), Some(b), Some(value)) => {
                Some(OfSizes { value, sizes: [a.sizes.as_slice(), &b.sizes].concat() })
            }
            _ => None,
        };
        Ok(SymbolicNumber { tensor: SymbolicNumber::recorded(code, a, b)?, of_sizes })
    }

    /// The result of a comparison as a bool tensor, whose value each call decides.
    ///
    /// Errors: those of [`binary`].
    #[track_caller]
    pub fn compare(code: OpCode, a: &SymbolicNumber, b: &SymbolicNumber) -> Result<Tensor> {
        SymbolicNumber::recorded(code, a, b)
    }

    #[track_caller]
    fn recorded(code: OpCode, a: &SymbolicNumber, b: &SymbolicNumber) -> Result<Tensor> {
        binary(code, Operand::Tensor(&a.tensor), Operand::Tensor(&b.tensor))
    }

    /// The absolute value.
    ///
    /// Errors: those of [`Tensor::abs`].
    #[track_caller]
    pub fn abs(&self) -> Result<SymbolicNumber> {
        let of_sizes = self.of_sizes.clone().map(|OfSizes { value, sizes }| {
            let value = value.abs();
            OfSizes { value, sizes }
        });
        Ok(SymbolicNumber { tensor: self.tensor.abs()?, of_sizes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_sizes_give_sizes_where_there_are_any() {
        let (a, b) = (Dim::from(7), Dim::from(3));
        let of = |code, a: Dim, b: Dim| size_operator(code, a, b).map(Dim::get);
        assert_eq!(of(OpCode::Add, a, b), Some(10));
        assert_eq!(of(OpCode::Sub, a, b), Some(4));
        assert_eq!(of(OpCode::Sub, b, a), None);
        assert_eq!(of(OpCode::Mul, a, b), Some(21));
        assert_eq!(of(OpCode::FloorDivide, a, b), Some(2));
        assert_eq!(of(OpCode::Remainder, a, b), Some(1));
        assert_eq!(of(OpCode::FloorDivide, a, 0.into()), Some(0));
        assert_eq!(of(OpCode::Pow, b, 2.into()), Some(9));
        assert_eq!(of(OpCode::Pow, b, 9.into()), None);
        assert_eq!(of(OpCode::Div, a, b), None);
        assert_eq!(compare_sizes(OpCode::Lt, b, a), Some(true));
        assert_eq!(compare_sizes(OpCode::Gt, b, a), Some(false));
        assert_eq!(compare_sizes(OpCode::Add, b, a), None);
    }

    #[test]
    fn numbers_of_sizes_have_values_and_numbers_of_arguments_have_none() {
        let two = SymbolicNumber::known(Operand::Float(-2.0)).unwrap();
        let size = SymbolicNumber::known(Operand::Size(Dim::from(5))).unwrap();
        assert_eq!(two.both_known(&size), Some((-2.0, 5.0)));
        let product = SymbolicNumber::binary(OpCode::Mul, &two, &size, Some(-10.0)).unwrap();
        assert_eq!(product.fixed(), Some(-10.0));
        assert_eq!(product.abs().unwrap().fixed(), Some(10.0));
        assert_eq!(product.tensor().item::<f64>().unwrap(), -10.0);
        let argument = SymbolicNumber::argument(Tensor::from_slice(&[1.5f64], []).unwrap());
        let sum = SymbolicNumber::binary(OpCode::Add, &argument, &size, None).unwrap();
        assert_eq!((sum.fixed(), sum.both_fixed(&size)), (None, None));
        assert_eq!(sum.tensor().item::<f64>().unwrap(), 6.5);
        let less = SymbolicNumber::compare(OpCode::Lt, &argument, &size).unwrap();
        assert!(less.item::<bool>().unwrap());
    }
}
