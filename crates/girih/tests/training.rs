//! Modules and optimisers.

use girih::nn::{self, Dropout, Gelu, Linear, Module, Relu, Sequential};
use girih::optim::{Adam, Optimizer, Sgd};
use girih::{DType, Error, Result, Tensor, eval};
use std::slice::from_ref;

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

/// A few steps with the given gradients; the parameter after each.
fn steps(optimizer: &mut dyn Optimizer, start: f64, gradients: &[f64]) -> Result<Vec<f64>> {
    let mut parameters = vec![vector(&[start])];
    optimizer.init(&parameters)?;
    let step = |g: &f64| {
        parameters = optimizer.update(&parameters, &[vector(&[*g])])?;
        eval(parameters.iter().chain(optimizer.state()))?;
        Ok(parameters[0].to_vec::<f64>()?[0])
    };
    gradients.iter().map(step).collect()
}

#[track_caller]
fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-12, "{found:?} is not {expected:?}");
    }
}

#[test]
fn gradient_descent_keeps_velocity_and_decays_weights() -> Result<()> {
    close(&steps(&mut Sgd::new(0.1), 1.0, &[1.0, -2.0])?, &[0.9, 1.1]);
    // Velocities 1, then 0.9 + 2.
    close(&steps(&mut Sgd::with_momentum(0.1, 0.9), 1.0, &[1.0, 2.0])?, &[0.9, 0.61]);
    let mut decayed = Sgd::new(0.1);
    decayed.weight_decay = 0.5;
    close(&steps(&mut decayed, 2.0, &[1.0])?, &[2.0 - 0.1 * (1.0 + 0.5 * 2.0)]);
    Ok(())
}

/// Kingma and Ba's algorithm 1 as printed, with Loshchilov and Hutter's decay.
fn adam_by_hand(rate: f64, decay: f64, start: f64, gradients: &[f64]) -> Vec<f64> {
    let (mut x, mut m, mut v) = (start, 0.0, 0.0);
    let step = |(t, g): (usize, &f64)| {
        m = 0.9 * m + 0.1 * g;
        v = 0.999 * v + 0.001 * g * g;
        let t = t as i32 + 1;
        let (m, v) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
        x -= rate * (m / (v.sqrt() + 1e-8) + decay * x);
        x
    };
    gradients.iter().enumerate().map(step).collect()
}

#[test]
fn adam_is_its_papers_algorithm() -> Result<()> {
    let gradients = [0.5, -1.5, 2.0, 0.0, 3.0];
    let expected = adam_by_hand(0.01, 0.0, 1.0, &gradients);
    close(&steps(&mut Adam::new(0.01), 1.0, &gradients)?, &expected);
    let expected = adam_by_hand(0.02, 0.01, 1.0, &gradients);
    close(&steps(&mut Adam::with_decay(0.02), 1.0, &gradients)?, &expected);
    Ok(())
}

#[test]
fn half_precision_parameters_stay_half_precision() -> Result<()> {
    let parameters = vec![Tensor::ones([3], DType::BF16)?, Tensor::ones([2], DType::F16)?];
    let gradients = parameters.clone();
    let optimizers: [Box<dyn Optimizer>; 2] =
        [Box::new(Adam::with_decay(0.1)), Box::new(Sgd::with_momentum(0.1, 0.5))];
    for mut optimizer in optimizers {
        optimizer.init(&parameters)?;
        let updated = optimizer.update(&parameters, &gradients)?;
        for (new, old) in updated.iter().zip(&parameters) {
            assert_eq!(new.spec(), old.spec());
            assert!(new.to_f64_vec()?.iter().all(|v| (v - 0.9).abs() < 0.01));
        }
        assert!(optimizer.state().iter().all(|s| s.dtype() != DType::F32));
    }
    Ok(())
}

#[test]
fn optimisers_and_modules_refuse_what_does_not_fit() -> Result<()> {
    let (one, two) = (vector(&[1.0]), vector(&[1.0, 2.0]));
    let mut optimizers: [Box<dyn Optimizer>; 2] =
        [Box::new(Adam::new(0.1)), Box::new(Sgd::new(0.1))];
    for optimizer in &mut optimizers {
        let unprepared = optimizer.update(from_ref(&one), from_ref(&one)).unwrap_err();
        assert!(unprepared.to_string().contains("init"), "{unprepared}");
        optimizer.init(from_ref(&one))?;
        for (p, g) in
            [(vec![one.clone()], vec![]), (vec![], vec![]), (vec![one.clone()], vec![two.clone()])]
        {
            assert!(matches!(optimizer.update(&p, &g), Err(Error::InvalidArgument(_))));
        }
    }
    let mut model = Sequential(vec![
        Box::new(Linear::new(2, 3)?),
        Box::new(Relu),
        Box::new(Linear::new(3, 1)?),
    ]);
    let parameters = model.parameters();
    assert_eq!((parameters.len(), model.num_parameters()), (4, 13));
    let x = Tensor::ones([1, 2], DType::F32)?;
    for wrong in [&parameters[..3], &[], &[&parameters[..], &parameters[..1]].concat()] {
        assert!(matches!(model.apply(wrong, &x), Err(Error::InvalidArgument(_))));
        assert!(matches!(model.set_parameters(wrong), Err(Error::InvalidArgument(_))));
    }
    let mut swapped = parameters.clone();
    swapped.swap(0, 2);
    let error = model.set_parameters(&swapped).unwrap_err();
    assert!(error.to_string().contains("[2, 3]"), "{error}");
    for p in [-0.1, 1.0, f64::NAN] {
        assert!(matches!(Dropout::new(p), Err(Error::InvalidArgument(_))));
    }
    Ok(())
}

#[test]
fn dropout_scales_what_it_keeps_and_rests_in_evaluation() -> Result<()> {
    let mut dropout = Sequential(vec![Box::new(Dropout::new(0.25)?), Box::new(Gelu)]);
    dropout.0.pop();
    let x = Tensor::ones([10_000], DType::F32)?;
    let dropped = dropout.forward(&x)?.to_vec::<f32>()?;
    let kept = dropped.iter().filter(|v| **v != 0.0).count();
    assert!(dropped.iter().all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6));
    assert!((7_200..7_800).contains(&kept), "{kept} of 10000 kept");
    dropout.train(false);
    assert!(dropout.forward(&x)?.is_same(&x));
    dropout.train(true);
    assert_ne!(dropout.forward(&x)?.to_vec::<f32>()?, dropped, "other elements each time");
    Ok(())
}

#[test]
fn cross_entropy_of_equal_logits_is_the_logarithm_of_their_number() -> Result<()> {
    let logits = Tensor::zeros([5, 10], DType::F64)?;
    let labels = Tensor::zeros([5], DType::I64)?;
    let loss = nn::cross_entropy(&logits, &labels)?.item::<f64>()?;
    assert!((loss - 10f64.ln()).abs() < 1e-12);
    Ok(())
}
