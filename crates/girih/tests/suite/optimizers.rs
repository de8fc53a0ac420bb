//! Optimisers take the steps of Python's, to the last bit. `tests/python/optim_table.py` writes the
//! table, with which a test in Python compares too.

use girih::optim::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Asgd, Lion, NAdam, Optimizer, RAdam, RmsProp, Rprop,
    Sgd,
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
        let tensor = |value: &Value| Tensor::new(numbers(value))?.astype(dtype);
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
