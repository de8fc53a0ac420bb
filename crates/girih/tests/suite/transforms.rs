//! Tests of transforms of closures, nested and with captured tensors.

use girih::{DType, Error, Result, Tensor, Trace, grad, value_and_grad};

fn scalar(value: f64) -> Tensor {
    Tensor::from_slice(&[value], []).unwrap()
}

fn close(tensor: &Tensor, expected: f64) {
    let found = tensor.item::<f64>().unwrap();
    assert!(
        (found - expected).abs() <= 1e-9 * expected.abs().max(1.0),
        "{found} is not {expected}"
    );
}

#[test]
fn gradients_of_gradients_are_higher_derivatives() -> Result<()> {
    let cube = |x: &[Tensor]| x[0].mul(&x[0])?.mul(&x[0]);
    let first = |x: &[Tensor]| Ok(grad(cube)(x)?.remove(0));
    let second = |x: &[Tensor]| Ok(grad(first)(x)?.remove(0));
    let third = |x: &[Tensor]| Ok(grad(second)(x)?.remove(0));
    let x = [scalar(2.0)];
    close(&cube(&x)?, 8.0);
    close(&first(&x)?, 12.0);
    close(&second(&x)?, 12.0);
    close(&third(&x)?, 6.0);
    close(&grad(third)(&x)?[0], 0.0);
    Ok(())
}

#[test]
fn an_inner_function_may_use_the_outer_ones_argument() -> Result<()> {
    // d/dx [ x * d/dy (x y^2) ] at y = 3 is d/dx (6 x^2) = 12 x.
    let outer = grad(|x| {
        let x = &x[0];
        let inner = grad(|y| x.mul(&y[0])?.mul(&y[0]))(&[scalar(3.0)])?;
        x.mul(&inner[0])
    });
    close(&outer(&[scalar(5.0)])?[0], 60.0);
    // The inner argument may depend on the outer one: d/dx (d/dy y^3 at y = x^2) = d/dx 3x^4.
    let outer = grad(|x| {
        let square = x[0].mul(&x[0])?;
        Ok(grad(|y| y[0].mul(&y[0])?.mul(&y[0]))(&[square])?.remove(0))
    });
    close(&outer(&[scalar(2.0)])?[0], 96.0);
    Ok(())
}

#[test]
fn tensors_from_outside_are_constants_and_stay_lazy() -> Result<()> {
    let w = scalar(4.0).mul(2.5)?;
    let random = Tensor::rand([], DType::F64)?;
    let f = value_and_grad(|x| x[0].mul(&w)?.add(&random));
    let (value, gradients) = f(&[scalar(3.0)])?;
    assert!(w.is_lazy() && value.is_lazy());
    close(&gradients[0], 10.0);
    close(&value.sub(&random)?, 30.0);
    Ok(())
}

#[test]
fn an_output_that_does_not_depend_on_an_argument_has_zero_gradient() -> Result<()> {
    let f = value_and_grad(|x| x[0].mul(2.0));
    let (_, gradients) = f(&[scalar(1.0), Tensor::ones([2, 3], DType::F32)?])?;
    close(&gradients[0], 2.0);
    assert_eq!(gradients[1].to_vec::<f32>()?, [0.0; 6]);
    let outside = scalar(7.0).exp()?;
    let (value, gradients) = value_and_grad(|_| Ok(outside.clone()))(&[scalar(1.0)])?;
    close(&value, 7f64.exp());
    close(&gradients[0], 0.0);
    let constant = value_and_grad(|_| Tensor::full(3.5, [], DType::F64));
    close(&constant(&[scalar(1.0)])?.0, 3.5);
    Ok(())
}

#[test]
fn a_returned_argument_and_repeated_arguments_have_separate_gradients() -> Result<()> {
    let (value, gradients) = value_and_grad(|x| Ok(x[0].clone()))(&[scalar(5.0)])?;
    close(&value, 5.0);
    close(&gradients[0], 1.0);
    let x = scalar(3.0);
    let gradients = grad(|x| x[0].mul(&x[0])?.mul(&x[1]))(&[x.clone(), x])?;
    close(&gradients[0], 18.0);
    close(&gradients[1], 9.0);
    Ok(())
}

#[test]
fn a_traced_function_may_return_repeated_and_auxiliary_outputs() -> Result<()> {
    let mut trace = Trace::new();
    let x = trace.placeholder(&scalar(0.0));
    let square = x.mul(&x)?;
    let aux = square.add(1.0)?;
    let at = scalar(4.0);
    let (outputs, gradients) = trace.gradients(&[&square, &aux, &square, &x], &[&x, &x], &[&at])?;
    for (output, expected) in outputs.iter().zip([16.0, 17.0, 16.0, 4.0]) {
        close(output, expected);
    }
    close(&gradients[0], 8.0);
    close(&gradients[1], 8.0);
    // A trace may be used again, with other arguments.
    let (outputs, _) = trace.gradients(&[&square], &[&x], &[&outputs[1]])?;
    close(&outputs[0], 289.0);
    Ok(())
}

#[test]
fn arguments_that_differ_from_the_placeholders_are_errors() {
    let mut trace = Trace::new();
    let x = trace.placeholder(&scalar(0.0));
    let y = x.mul(&x).unwrap();
    let other = Tensor::ones([2], DType::F64).unwrap();
    for arguments in [&[][..], &[&other], &[&other, &other]] {
        let error = trace.gradients(&[&y], &[&x], arguments).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    assert!(matches!(trace.gradients(&[], &[&x], &[&other]), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_long_function_is_differentiated_without_recursion() -> Result<()> {
    let gradients = grad(|x| {
        let mut y = x[0].clone();
        for _ in 0..20_000 {
            y = y.mul(0.999)?;
        }
        Ok(y)
    })(&[scalar(1.0)])?;
    close(&gradients[0], 0.999f64.powi(20_000));
    Ok(())
}
