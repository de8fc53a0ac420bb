//! Optimisers take the steps of Python's, to the last bit. `tests/python/optim_table.py` writes the
//! table, with which a test in Python compares too.

use girih::optim::{
    Adadelta, Adafactor, Adagrad, Adam, AdamW, Adamax, Asgd, Ema, Lbfgs, Lion, Muon, MuonRate,
    NAdam, Optimizer, RAdam, RmsProp, Rprop, Sgd, schedules,
};
use girih::{DType, Result, Tensor, eval};
use serde_json::Value;

const TABLE: &str = include_str!("optimizers.json");

/// Settings of a case by name.
struct Settings<'a>(&'a Value);

impl Settings<'_> {
    fn number(&self, name: &str, default: f64) -> f64 {
        self.0[name].as_f64().unwrap_or(default)
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }

    fn betas(&self, default: (f64, f64)) -> (f64, f64) {
        let at = |i: usize| self.0["betas"][i].as_f64();
        at(0).zip(at(1)).unwrap_or(default)
    }
}

/// The optimiser of a case, with Python's name.
fn optimizer(name: &str, rate: f64, s: &Settings) -> Box<dyn Optimizer> {
    let decay = |default| s.number("weight_decay", default);
    match name {
        "SGD" => Box::new(
            Sgd::new(rate)
                .momentum(s.number("momentum", 0.0))
                .nesterov(s.flag("nesterov"))
                .dampening(s.number("dampening", 0.0))
                .weight_decay(decay(0.0))
                .maximize(s.flag("maximize")),
        ),
        "ASGD" => Box::new(Asgd::new(rate).t0(s.number("t0", 1e6)).weight_decay(decay(0.0))),
        "Adam" => Box::new(
            Adam::new(rate)
                .betas(s.betas((0.9, 0.999)))
                .eps(s.number("eps", 1e-8))
                .weight_decay(decay(0.0))
                .amsgrad(s.flag("amsgrad")),
        ),
        "AdamW" => Box::new(
            AdamW::new(rate)
                .weight_decay(decay(0.01))
                .amsgrad(s.flag("amsgrad"))
                .maximize(s.flag("maximize")),
        ),
        "Adamax" => Box::new(Adamax::new(rate).eps(s.number("eps", 1e-8)).weight_decay(decay(0.0))),
        "NAdam" => Box::new(
            NAdam::new(rate)
                .weight_decay(decay(0.0))
                .momentum_decay(s.number("momentum_decay", 4e-3)),
        ),
        "RAdam" => Box::new(RAdam::new(rate).betas(s.betas((0.9, 0.999))).weight_decay(decay(0.0))),
        "RMSprop" => Box::new(
            RmsProp::new(rate)
                .alpha(s.number("alpha", 0.99))
                .momentum(s.number("momentum", 0.0))
                .centered(s.flag("centered"))
                .weight_decay(decay(0.0)),
        ),
        "Adagrad" => Box::new(
            Adagrad::new(rate)
                .lr_decay(s.number("lr_decay", 0.0))
                .initial_accumulator_value(s.number("initial_accumulator_value", 0.0))
                .eps(s.number("eps", 1e-10))
                .weight_decay(decay(0.0)),
        ),
        "Adadelta" => {
            Box::new(Adadelta::new(rate).rho(s.number("rho", 0.9)).weight_decay(decay(0.0)))
        }
        "Lion" => Box::new(Lion::new(rate).weight_decay(decay(0.0))),
        "Rprop" => Box::new(Rprop::new(rate)),
        "Muon" => Box::new(
            Muon::new(rate)
                .nesterov(s.0["nesterov"].as_bool().unwrap_or(true))
                .eps(s.number("eps", 1e-7))
                .adjust_lr(match s.0["adjust_lr_fn"].as_str() {
                    Some("match_rms_adamw") => MuonRate::MatchRmsAdamW,
                    _ => MuonRate::Original,
                }),
        ),
        "Adafactor" => Box::new(Adafactor::new(rate).weight_decay(decay(0.0))),
        "LBFGS" => {
            Box::new(Lbfgs::new(rate).history_size(s.number("history_size", 100.0) as usize))
        }
        other => panic!("no optimiser {other}"),
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

#[test]
fn optimisers_take_pythons_steps_to_the_bit() -> Result<()> {
    let table: Value = serde_json::from_str(TABLE).unwrap();
    let rate = table["rate"].as_f64().unwrap();
    for case in table["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let dtype = match case["dtype"].as_str().unwrap() {
            "float32" => DType::F32,
            "float64" => DType::F64,
            _ => DType::BF16,
        };
        let shape: Vec<i64> = match case["settings"]["shape"].as_array() {
            Some(shape) => shape.iter().map(|size| size.as_i64().unwrap()).collect(),
            None => vec![-1],
        };
        let tensor = |value: &Value| Tensor::new(numbers(value))?.astype(dtype)?.reshape(&shape);
        let mut optimizer = optimizer(name, rate, &Settings(&case["settings"]));
        let mut parameters = vec![tensor(&table["start"])?];
        let gradients = table["gradients"].as_array().unwrap();
        for (i, (gradient, expected)) in
            gradients.iter().zip(case["steps"].as_array().unwrap()).enumerate()
        {
            parameters = optimizer.update(&parameters, &[tensor(gradient)?])?;
            eval(parameters.iter().chain(optimizer.state()))?;
            let found: Vec<i64> =
                parameters[0].to_f64_vec()?.iter().map(|x| x.to_bits() as i64).collect();
            let expected: Vec<i64> =
                expected.as_array().unwrap().iter().map(|v| v.as_i64().unwrap()).collect();
            let settings = &case["settings"];
            assert_eq!(found, expected, "{name} {settings} {dtype}, step {i}");
        }
    }
    Ok(())
}

#[test]
fn settings_out_of_range_are_refused_by_name() -> Result<()> {
    let one = [Tensor::new([1.0f32])?];
    let error =
        |mut optimizer: Box<dyn Optimizer>| optimizer.update(&one, &one).unwrap_err().to_string();
    for (optimizer, part) in [
        (Box::new(Sgd::new(-0.1)) as Box<dyn Optimizer>, "Sgd: the learning rate"),
        (Box::new(Sgd::new(0.1).nesterov(true)), "Sgd: nesterov needs momentum"),
        (Box::new(Adam::new(f64::NAN)), "Adam: the learning rate"),
        (Box::new(AdamW::new(0.1).betas((0.9, 1.0))), "AdamW: betas must be in [0, 1), got (0.9"),
        (Box::new(RmsProp::new(0.1).alpha(f64::NAN)), "RmsProp: alpha"),
        (Box::new(Rprop::new(0.1).etas((1.0, 1.2))), "Rprop: etas"),
    ] {
        let found = error(optimizer);
        assert!(found.contains(part), "{found}");
    }
    let whole = [Tensor::new([1i64])?];
    let error = Adam::new(0.1).update(&whole, &whole).unwrap_err().to_string();
    assert!(error.contains("a float dtype"), "{error}");
    Ok(())
}

#[test]
fn a_setting_that_adds_a_slot_and_an_average_are_kept() -> Result<()> {
    let mut sgd = Sgd::new(0.5);
    let (x, g) = ([Tensor::new([1.0f32])?], [Tensor::new([1.0f32])?]);
    let y = sgd.update(&x, &g)?;
    sgd.momentum = 0.5;
    let z = sgd.update(&y, &g)?;
    assert_eq!((y[0].item::<f32>()?, z[0].item::<f32>()?), (0.5, 0.0));
    assert_eq!(sgd.state().len(), 2);
    let mut asgd = Asgd::new(0.5).lambd(0.0).t0(0.0);
    assert!(asgd.averages().is_empty());
    let y = asgd.update(&x, &g)?;
    let z = asgd.update(&y, &g)?;
    assert_eq!((z[0].item::<f32>()?, asgd.averages()[0].item::<f32>()?), (0.0, 0.0));
    Ok(())
}

#[test]
fn an_average_follows_the_parameters() -> Result<()> {
    let mut ema = Ema::new(0.75)?;
    for (value, average) in [(4.0f32, 4.0f32), (8.0, 5.0), (5.0, 5.0)] {
        ema.update(&[Tensor::new([value])?])?;
        assert_eq!(ema.averages()[0].item::<f32>()?, average);
    }
    // The decays are 0 (the first update), 2/11.
    let mut ema = Ema::new(0.75)?.warmup();
    for value in [0.0f64, 11.0] {
        ema.update(&[Tensor::new([value])?])?;
    }
    assert!((ema.averages()[0].item::<f64>()? - 9.0).abs() < 1e-12);
    let error = ema.update(&[]).unwrap_err().to_string();
    assert!(error.contains("Ema: the average is of parameters"), "{error}");
    assert!(Ema::new(1.5).is_err());
    Ok(())
}

#[test]
fn an_average_is_applied_to_a_model_and_taken_back() -> Result<()> {
    use girih::nn::{Linear, Module};
    let model = Linear::new(1, 1)?;
    let mut ema = Ema::new(0.5)?;
    assert!(ema.applied(&model, || Ok(())).is_err());
    for value in [0.0f32, 1.0] {
        model.set_parameters(&[Tensor::new([[value]])?, Tensor::new([value])?])?;
        ema.update(&model.parameters())?;
    }
    let inside = ema.applied(&model, || model.parameters()[1].item::<f32>())?;
    assert_eq!((inside, model.parameters()[1].item::<f32>()?), (0.5, 1.0));
    Ok(())
}

#[test]
fn a_quasi_newton_method_finds_a_minimum_with_a_line_search() -> Result<()> {
    let scale = Tensor::new([1.0f64, 20.0])?;
    let loss = |x: &[Tensor]| x[0].sub(1.0)?.square()?.mul(&scale)?.sum_all();
    let gradient = girih::value_and_grad(loss);
    let mut optimizer = Lbfgs::new(1.0).history_size(5);
    let mut x = vec![Tensor::new([3.0f64, -2.0])?];
    let mut before = f64::INFINITY;
    for _ in 0..12 {
        let (value, gradients) = gradient(&x)?;
        let value = value.item::<f64>()?;
        assert!(value <= before);
        before = value;
        x = optimizer.search(&x, &gradients, loss)?;
        eval(x.iter().chain(optimizer.state()))?;
    }
    assert!(x[0].to_vec::<f64>()?.iter().all(|x| (x - 1.0).abs() < 1e-6));
    let error = Lbfgs::new(1.0).history_size(0).update(&x, &x).unwrap_err().to_string();
    assert!(error.contains("Lbfgs: history_size must be at least 1"), "{error}");
    Ok(())
}

/// The values are those of the examples of Python's `girih.optim.schedules`.
#[test]
fn schedules_are_pythons() -> Result<()> {
    let close = |schedule: schedules::Schedule, values: &[(u64, f64)]| {
        for &(step, value) in values {
            let found = schedule.rate(step);
            assert!((found - value).abs() < 5e-4, "step {step}: {found}, not {value}");
        }
    };
    close(schedules::constant(0.1), &[(5, 0.1)]);
    close(schedules::linear(0.0, 1.0, 4)?, &[(0, 0.0), (1, 0.25), (4, 1.0), (9, 1.0)]);
    close(schedules::polynomial_decay(1.0, 0.0, 4, 2.0)?, &[(0, 1.0), (2, 0.25), (4, 0.0)]);
    close(schedules::exponential_decay(1.0, 0.5, 2, 0.0)?, &[(0, 1.0), (2, 0.5), (4, 0.25)]);
    close(schedules::step_decay(1.0, 0.1, 30)?, &[(29, 1.0), (30, 0.1)]);
    let piecewise = schedules::piecewise_constant(1.0, [(20, 0.5), (10, 0.5)]);
    close(piecewise, &[(9, 1.0), (10, 0.5), (20, 0.25)]);
    close(schedules::cosine_decay(1.0, 10, 0.0)?, &[(0, 1.0), (5, 0.5), (10, 0.0), (20, 0.0)]);
    let restarts = [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0].into_iter();
    let restarts: Vec<(u64, f64)> = (0..).zip(restarts).collect();
    close(schedules::cosine_restarts(1.0, 2, 2.0, 0.0)?, &restarts);
    let warmup: Vec<(u64, f64)> = (0..).zip([0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0]).collect();
    close(schedules::warmup_cosine(1.0, 2, 6, 0.0, 0.0)?, &warmup);
    close(schedules::one_cycle(1.0, 11, 0.5, 25.0, 1e4)?, &[(0, 0.04), (4, 0.971), (10, 0.0)]);
    close(schedules::inverse_sqrt(1.0, 4)?, &[(0, 0.25), (3, 1.0), (15, 0.5)]);
    for (made, part) in [
        (schedules::linear(0.0, 1.0, 0), "polynomial_decay: steps must be above 0"),
        (schedules::step_decay(1.0, 0.0, 3), "step_decay: decay_rate must be above 0"),
        (schedules::one_cycle(1.0, 2, 0.3, 25.0, 1e4), "one_cycle: of 2 steps"),
        (schedules::join([schedules::constant(1.0)], [3]), "join: 1 schedules have 0 boundaries"),
    ] {
        let error = made.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    Ok(())
}
