//! Tests of modules and optimisers.

use crate::alone;
use girih::losses::{ClassOptions, Reduction, cross_entropy, mse_loss};
use girih::nn::{
    self, BatchNorm, Conv2d, Dropout, Embedding, GroupNorm, Layer, Linear, Module,
    MultiheadAttention, Relu, Sequential, Variable, Visitor, init,
};
use girih::optim::{Adam, AdamW, Optimizer, Sgd};
use girih::{DType, Device, Error, Result, Tensor, eval};
use std::slice::from_ref;

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

/// A few steps with the given gradients; the parameter after each step.
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
    let _alone = alone();
    close(&steps(&mut Sgd::new(0.1), 1.0, &[1.0, -2.0])?, &[0.9, 1.1]);
    // Velocities 1, then 0.9 + 2.
    close(&steps(&mut Sgd::new(0.1).momentum(0.9), 1.0, &[1.0, 2.0])?, &[0.9, 0.61]);
    let mut decayed = Sgd::new(0.1).weight_decay(0.5);
    close(&steps(&mut decayed, 2.0, &[1.0])?, &[2.0 - 0.1 * (1.0 + 0.5 * 2.0)]);
    Ok(())
}

/// Kingma and Ba's algorithm 1 as printed, with Loshchilov and Hutter's weight decay.
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
fn adam_takes_the_steps_of_its_paper() -> Result<()> {
    let _alone = alone();
    let gradients = [0.5, -1.5, 2.0, 0.0, 3.0];
    let expected = adam_by_hand(0.01, 0.0, 1.0, &gradients);
    close(&steps(&mut Adam::new(0.01), 1.0, &gradients)?, &expected);
    let expected = adam_by_hand(0.02, 0.01, 1.0, &gradients);
    close(&steps(&mut AdamW::new(0.02), 1.0, &gradients)?, &expected);
    Ok(())
}

#[test]
fn half_precision_parameters_stay_half_precision() -> Result<()> {
    let _alone = alone();
    let parameters = vec![Tensor::ones([3], DType::BF16)?, Tensor::ones([2], DType::F16)?];
    let gradients = parameters.clone();
    let optimizers: [Box<dyn Optimizer>; 2] =
        [Box::new(AdamW::new(0.1)), Box::new(Sgd::new(0.1).momentum(0.5))];
    for mut optimizer in optimizers {
        optimizer.init(&parameters)?;
        let updated = optimizer.update(&parameters, &gradients)?;
        for (new, old) in updated.iter().zip(&parameters) {
            assert_eq!(new.spec(), old.spec());
            assert!(new.to_f64_vec()?.iter().all(|v| (v - 0.9).abs() < 0.01));
        }
        // The state of the optimiser is in f32.
        assert!(optimizer.state()[1..].iter().all(|s| s.dtype() == DType::F32));
    }
    Ok(())
}

#[test]
fn optimisers_and_modules_refuse_what_does_not_fit() -> Result<()> {
    let _alone = alone();
    let (one, two) = (vector(&[1.0]), vector(&[1.0, 2.0]));
    let mut optimizers: [Box<dyn Optimizer>; 2] =
        [Box::new(Adam::new(0.1)), Box::new(Sgd::new(0.1))];
    for optimizer in &mut optimizers {
        // The first update creates the state.
        optimizer.update(from_ref(&one), from_ref(&one))?;
        for (p, g) in
            [(vec![one.clone()], vec![]), (vec![], vec![]), (vec![one.clone()], vec![two.clone()])]
        {
            assert!(matches!(optimizer.update(&p, &g), Err(Error::InvalidArgument(_))));
        }
    }
    let model = Sequential::new().then(Linear::new(2, 3)?).then(Relu).then(Linear::new(3, 1)?);
    let parameters = model.parameters();
    assert_eq!((parameters.len(), model.num_parameters()), (4, 13));
    for wrong in [&parameters[..3], &[], &[&parameters[..], &parameters[..1]].concat()] {
        assert!(matches!(model.set_parameters(wrong), Err(Error::InvalidArgument(_))));
        let called = nn::functional_call(&model, wrong, |_| Ok(()));
        assert!(matches!(called, Err(Error::InvalidArgument(_))));
    }
    let mut swapped = parameters.clone();
    swapped.swap(0, 2);
    let error = model.set_parameters(&swapped).unwrap_err();
    assert!(error.to_string().contains("0.weight: cannot replace"), "{error}");
    assert!(error.to_string().contains("[3, 2] by one of shape [1, 3]"), "{error}");
    assert!(model.parameters().iter().zip(&parameters).all(|(a, b)| a.is_same(b)));
    for p in [-0.1, 1.5, f64::NAN] {
        assert!(matches!(Dropout::new(p), Err(Error::InvalidArgument(_))));
    }
    assert!(matches!(MultiheadAttention::new(6, 4), Err(Error::InvalidArgument(_))));
    assert!(matches!(MultiheadAttention::grouped(8, 4, 3), Err(Error::InvalidArgument(_))));
    assert!(matches!(GroupNorm::new(2, 3), Err(Error::InvalidArgument(_))));
    assert!(matches!(Linear::of(vector(&[1.0]), None), Err(Error::InvalidArgument(_))));
    assert!(init::xavier_normal([3], 1.0, DType::F32).is_err());
    let attention = MultiheadAttention::new(4, 2)?;
    assert!(attention.forward(&Tensor::ones([4], DType::F32)?).is_err(), "one axis");
    Ok(())
}

#[test]
fn dropout_scales_what_it_keeps_and_rests_in_evaluation() -> Result<()> {
    let _alone = alone();
    let dropout = Sequential::new().then(Dropout::new(0.25)?);
    let x = Tensor::ones([10_000], DType::F32)?;
    let dropped = dropout.forward(&x)?.to_vec::<f32>()?;
    let kept = dropped.iter().filter(|v| **v != 0.0).count();
    assert!(dropped.iter().all(|v| *v == 0.0 || (*v - 4.0 / 3.0).abs() < 1e-6));
    assert!((7_200..7_800).contains(&kept), "{kept} of 10000 kept");
    dropout.eval();
    assert!(dropout.forward(&x)?.is_same(&x));
    dropout.train();
    assert_ne!(dropout.forward(&x)?.to_vec::<f32>()?, dropped, "other elements each time");
    let channels =
        Dropout::of_channels(0.5, 2)?.forward(&Tensor::ones([8, 8, 3, 3], DType::F32)?)?;
    let sums = channels.sum([2, 3])?.to_vec::<f32>()?;
    assert!(sums.iter().all(|s| *s == 0.0 || *s == 18.0), "{sums:?}");
    assert!(Dropout::new(1.0)?.forward(&x)?.to_vec::<f32>()?.iter().all(|v| *v == 0.0));
    Ok(())
}

/// A user's module with a shared weight.
struct Tied {
    tokens: Embedding,
    scale: Variable,
    layers: Vec<Linear>,
}

impl Module for Tied {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.module("tokens", &self.tokens);
        visitor.parameter("head", self.tokens.weight());
        visitor.buffer("scale", &self.scale);
        visitor.modules("layers", &self.layers);
    }
}

impl Layer for Tied {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = self.tokens.forward(x)? * self.scale.get();
        for layer in &self.layers {
            h = layer.forward(&h)?;
        }
        h.matmul(&self.tokens.weight().get().t()?)
    }
}

#[test]
fn users_modules_have_names_and_share_weights() -> Result<()> {
    let _alone = alone();
    let model = Tied {
        tokens: Embedding::new(5, 4)?,
        scale: Variable::new(Tensor::ones([], DType::F32)?),
        layers: vec![Linear::new(4, 4)?, Linear::without_bias(4, 4)?],
    };
    let names = |pairs: Vec<(String, Tensor)>| -> Vec<String> {
        pairs.into_iter().map(|(name, _)| name).collect()
    };
    let parameters = ["tokens.weight", "layers.0.weight", "layers.0.bias", "layers.1.weight"];
    assert_eq!(names(model.named_parameters()), parameters);
    assert_eq!(names(model.state_dict())[4..], ["scale"]);
    // A shared weight has one gradient: the sum over its uses.
    let x = Tensor::from_slice(&[0i64, 3], [2])?;
    let loss = |model: &Tied| model.forward(&x)?.sum_all();
    let (value, gradients) = nn::value_and_grad(&model, loss)?;
    assert_eq!(gradients.len(), 4);
    let by_hand = girih::value_and_grad(|p| nn::functional_call(&model, p, loss));
    let (again, others) = by_hand(&model.parameters())?;
    // Programs with other results may round differently, if a product alone uses another routine
    // than a fused product (processors without AVX-512).
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
    assert!(near(value.item::<f32>()?, again.item::<f32>()?));
    for (a, b) in gradients.iter().zip(&others) {
        let (a, b) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?);
        assert!(a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| near(*a, *b)), "{a:?} {b:?}");
    }
    // A failing function leaves the model unchanged.
    let before = model.parameters();
    assert!(nn::value_and_grad(&model, |model| model.forward(&vector(&[0.5]))).is_err());
    assert!(model.parameters().iter().zip(&before).all(|(a, b)| a.is_same(b)));
    Ok(())
}

#[test]
fn batch_norms_move_their_statistics_in_training_only() -> Result<()> {
    let _alone = alone();
    let norm = BatchNorm::new(2)?;
    let x = Tensor::from_slice(&[1.0f32, 10.0, 3.0, 30.0], [2, 2])?;
    let (_, gradients) = nn::value_and_grad(&norm, |norm| norm.forward(&x)?.square()?.sum_all())?;
    assert_eq!(gradients.len(), 2, "weight and bias");
    let state = || -> Result<Vec<Vec<f64>>> {
        norm.state_dict()[2..].iter().map(|(_, tensor)| tensor.to_f64_vec()).collect()
    };
    let moved = state()?;
    // A tenth of the means 2 and 20, and of the variances 2 and 200.
    for (found, expected) in moved.concat().iter().zip([0.2, 2.0, 1.1, 20.9, 1.0]) {
        assert!((found - expected).abs() < 1e-5, "{moved:?}");
    }
    norm.eval();
    norm.forward(&x)?.eval()?;
    assert_eq!(state()?, moved);
    norm.train();
    let error = norm.forward(&Tensor::ones([1, 2], DType::F32)?).unwrap_err().to_string();
    assert!(error.contains("1 element per channel"), "{error}");
    Ok(())
}

#[test]
fn optimisers_step_models_in_one_run() -> Result<()> {
    let _alone = alone();
    girih::random::manual_seed(1);
    let x = Tensor::randn([32, 1, 4, 4], DType::F32)?;
    let y = x.mean([1, 2, 3])?.unsqueeze(1)?;
    eval([&x, &y])?;
    let optimizers: [Box<dyn Optimizer>; 3] = [
        Box::new(Sgd::new(0.02).momentum(0.9)),
        Box::new(Adam::new(0.02)),
        Box::new(AdamW::new(0.02)),
    ];
    for mut optimizer in optimizers {
        let model = Sequential::new()
            .then(Conv2d::new(1, 4, [3, 3])?)
            .then(BatchNorm::new(4)?)
            .then(Relu)
            .then(nn::Flatten::default())
            .then(Linear::new(16, 1)?);
        optimizer.init(&model.parameters())?;
        let mut seen = Vec::new();
        for _ in 0..30 {
            let (loss, gradients) = nn::value_and_grad(&model, |model| {
                mse_loss(&model.forward(&x)?, &y, Reduction::Mean)
            })?;
            optimizer.step(&model, &loss, &gradients)?;
            assert!(model.state_dict().iter().all(|(_, tensor)| !tensor.is_lazy()));
            assert!(!loss.is_lazy(), "computed in the step's run");
            seen.push(loss.item::<f32>()?);
        }
        assert!(seen[29] < seen[0], "{seen:?}");
    }
    Ok(())
}

#[test]
fn initialisers_have_their_standard_deviation() -> Result<()> {
    let _alone = alone();
    girih::random::manual_seed(2);
    let spread = |tensor: Tensor| tensor.std_of();
    let shape = [200, 100];
    for (found, expected) in [
        (spread(init::kaiming_normal(shape, 2f64.sqrt(), DType::F32)?)?, (2f64 / 100.0).sqrt()),
        (spread(init::kaiming_uniform(shape, 1.0, DType::F32)?)?, 0.1),
        (spread(init::xavier_normal(shape, 1.0, DType::F32)?)?, (2f64 / 300.0).sqrt()),
        (spread(init::xavier_uniform(shape, 2.0, DType::F64)?)?, 2.0 * (2f64 / 300.0).sqrt()),
        (spread(init::normal(shape, 3.0, 0.5, DType::F32)?)?, 0.5),
        (spread(init::uniform(shape, -1.0, 1.0, DType::F32)?)?, 1.0 / 3f64.sqrt()),
        (spread(init::kaiming_normal([40, 10, 5, 5], 1.0, DType::F32)?)?, (1f64 / 250.0).sqrt()),
    ] {
        assert!((found / expected - 1.0).abs() < 0.03, "{found} is not {expected}");
    }
    Ok(())
}

trait Spread {
    fn std_of(&self) -> Result<f64>;
}

impl Spread for Tensor {
    fn std_of(&self) -> Result<f64> {
        Ok(self.var(..)?.astype(DType::F64)?.item::<f64>()?.sqrt())
    }
}

#[test]
fn cross_entropy_of_equal_logits_is_the_logarithm_of_their_number() -> Result<()> {
    let _alone = alone();
    let logits = Tensor::zeros([5, 10], DType::F64)?;
    let labels = Tensor::zeros([5], DType::I64)?;
    let loss = cross_entropy(&logits, &labels, ClassOptions::default(), Reduction::Mean)?;
    let loss = loss.item::<f64>()?;
    assert!((loss - 10f64.ln()).abs() < 1e-12);
    Ok(())
}

#[test]
fn loading_keeps_dtypes_and_devices_and_takes_one_name_of_a_shared_weight() -> Result<()> {
    let _alone = alone();
    let named = |pairs: &[(&str, &Tensor)]| -> Vec<(String, Tensor)> {
        pairs.iter().map(|(name, tensor)| (name.to_string(), (*tensor).clone())).collect()
    };
    let model = Linear::new(2, 1)?;
    let (w, b) = (vector(&[1.0, 2.0]).reshape([1, 2])?, vector(&[0.5]));
    for dtype in [DType::F64, DType::F16, DType::I32] {
        let (weight, bias) = (w.astype(dtype)?, b.astype(DType::F64)?);
        model.load_state_dict(&named(&[("weight", &weight), ("bias", &bias)]))?;
        assert!(model.parameters().iter().all(|p| p.dtype() == DType::F32), "{dtype}");
        assert_eq!(model.parameters()[0].to_vec::<f32>()?, [1.0, 2.0]);
    }
    let imaginary = w.astype(DType::C64)?;
    let error = model.load_state_dict(&named(&[("weight", &imaginary), ("bias", &b)])).unwrap_err();
    assert!(
        error.to_string().contains("weight") && error.to_string().contains("complex64"),
        "{error}"
    );
    let there = w.to_device(Device::named("mock")?)?;
    model.load_state_dict(&named(&[("weight", &there), ("bias", &b)]))?;
    assert_eq!(model.parameters()[0].device(), Device::CPU);

    struct Twice(Variable);
    impl Module for Twice {
        fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
            visitor.parameter("first", &self.0);
            visitor.parameter("second", &self.0);
        }
    }

    impl Layer for Twice {
        fn forward(&self, x: &Tensor) -> Result<Tensor> {
            x.matmul(&self.0.get())
        }
    }
    let twice = Twice(Variable::new(vector(&[0.0])));
    let (one, two) = (vector(&[1.0]), vector(&[2.0]));
    for names in [&["first"][..], &["second"], &["first", "second"]] {
        let pairs: Vec<(&str, &Tensor)> = names.iter().map(|name| (*name, &one)).collect();
        twice.load_state_dict(&named(&pairs))?;
        assert_eq!(twice.0.get().to_vec::<f64>()?, [1.0]);
    }
    for (wrong, part) in [
        (named(&[("first", &one), ("second", &two)]), "second"),
        (named(&[]), "missing [\"first\"]"),
        (named(&[("first", &two), ("third", &two)]), "unexpected [\"third\"]"),
    ] {
        let error = twice.load_state_dict(&wrong).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(twice.0.get().to_vec::<f64>()?, [1.0]);
    }
    Ok(())
}

#[test]
fn adam_without_eps_does_not_move_without_a_gradient() -> Result<()> {
    let _alone = alone();
    let adam = |eps| Adam::new(0.1).eps(eps);
    assert_eq!(steps(&mut adam(0.0), 1.0, &[0.0, 0.0])?, [1.0, 1.0]);
    close(&steps(&mut adam(0.0), 1.0, &[0.0, 2.0])?[..1], &[1.0]);
    assert!(steps(&mut adam(0.0), 1.0, &[2.0, 0.0])?.iter().all(|x| x.is_finite()));
    for eps in [-1e-9, f64::NAN] {
        assert!(matches!(steps(&mut adam(eps), 1.0, &[1.0]), Err(Error::InvalidArgument(_))));
    }
    Ok(())
}
