//! Runs one scenario a number of times. `make bench-instructions` counts its instructions, by the
//! difference between two numbers of runs. `instructions SCENARIO TIMES` runs a scenario; without
//! arguments the program lists the scenarios.

mod kernels;
mod steps;

use girih::optim::{Adam, Optimizer};
use girih::{Result, Tensor, clear_cache, eval, value_and_grad};
use std::hint::black_box;

type Once = Box<dyn FnMut() -> Result<()>>;

/// Sets up a scenario, and returns its repeated part.
type Scenario = (&'static str, fn() -> Result<Once>);

const SCENARIOS: [Scenario; 15] = [
    ("record-100-ops", record),
    ("cached-three-kernels", cached),
    ("compile-three-kernels", compile),
    ("cached-training-step", cached_step),
    ("compile-training-step", compile_step),
    ("compile-perceptron", steps::perceptron),
    ("compile-transformer", steps::transformer),
    ("compile-residual-block", steps::residual_block),
    ("kernel-add", kernels::add),
    ("kernel-transposed", kernels::transposed),
    ("kernel-sum-of-rows", kernels::sum_of_rows),
    ("kernel-sum-of-columns", kernels::sum_of_columns),
    ("kernel-short-sum", kernels::short_sum),
    ("kernel-softmax", kernels::softmax),
    ("kernel-gemm", kernels::gemm),
];

fn matrix(rows: usize, columns: usize) -> Result<Tensor> {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 7) as f32 * 0.1 - 0.3).collect();
    Tensor::from_slice(&values, [rows, columns])
}

fn record() -> Result<Once> {
    let (x, y) = (matrix(8, 8)?, matrix(8, 8)?);
    Ok(Box::new(move || {
        let mut t = x.clone();
        for _ in 0..100 {
            t = t.add(&y)?;
        }
        black_box(t);
        Ok(())
    }))
}

/// A matrix product, a reduction over all of it, and an op on both.
fn three_kernels(x: &Tensor, y: &Tensor) -> Result<()> {
    let h = x.matmul(y)?;
    h.sub(&h.sum_all()?)?.eval()?;
    Ok(())
}

fn cached() -> Result<Once> {
    let (x, y) = (matrix(8, 8)?, matrix(8, 8)?);
    Ok(Box::new(move || three_kernels(&x, &y)))
}

fn compile() -> Result<Once> {
    let mut evaluate = cached()?;
    Ok(Box::new(move || {
        clear_cache()?;
        evaluate()
    }))
}

/// An Adam step of a perceptron with three layers.
fn cached_step() -> Result<Once> {
    let (x, target) = (matrix(8, 16)?, matrix(8, 4)?);
    let mut parameters = vec![matrix(16, 16)?, matrix(16, 16)?, matrix(16, 4)?];
    let mut optimizer = Adam::new(1e-3);
    optimizer.init(&parameters)?;
    let loss_and_grads = value_and_grad(move |p: &[Tensor]| {
        let hidden = x.matmul(&p[0])?.relu()?.matmul(&p[1])?.relu()?;
        let difference = hidden.matmul(&p[2])?.sub(&target)?;
        difference.mul(&difference)?.mean_all()
    });
    Ok(Box::new(move || {
        let (loss, grads) = loss_and_grads(&parameters)?;
        parameters = optimizer.update(&parameters, &grads)?;
        eval(parameters.iter().chain(optimizer.state()).chain([&loss]))?;
        Ok(())
    }))
}

fn compile_step() -> Result<Once> {
    let mut step = cached_step()?;
    Ok(Box::new(move || {
        clear_cache()?;
        step()
    }))
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chosen = match arguments.as_slice() {
        [name, times] => SCENARIOS.iter().find(|s| s.0 == name).zip(times.parse::<usize>().ok()),
        _ => None,
    };
    let Some((scenario, times)) = chosen else {
        SCENARIOS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let mut once = scenario.1()?;
    (0..times).try_for_each(|_| once())
}
