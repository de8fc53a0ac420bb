//! Trains a classifier on 1,797 handwritten digits; `cargo run --release --example digits` runs it.
//!
//! Writes demo-out/loss.svg, step-graph.svg and step-graph.txt. `--epochs N` trains for longer or
//! shorter; `--out DIR` writes elsewhere.

use girih::losses::{ClassOptions, Reduction, cross_entropy};
use girih::nn::{self, Gelu, Layer, Linear, Module, Sequential};
use girih::optim::{AdamW, Optimizer};
use girih::{CompilationInfo, DType, Stats, Tensor, cache_stats, eval, plot, random};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/digits.csv");
const SEED: u64 = 0;
const BATCH: usize = 64;
const PEAK_RATE: f64 = 4e-3;
const NOISE: f64 = 0.15;

/// Set by Ctrl-C; training stops after the current step.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The data set: images as 64 floats in 0..1 each, and their labels.
struct Digits {
    pixels: Vec<f32>,
    labels: Vec<i64>,
}

impl Digits {
    fn load() -> Result<Digits, Box<dyn Error>> {
        let text = std::fs::read_to_string(DATA).map_err(|e| format!("{DATA}: {e}"))?;
        let mut digits = Digits { pixels: Vec::new(), labels: Vec::new() };
        for line in text.lines() {
            let numbers: Vec<i64> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
            let [pixels @ .., label] = &numbers[..] else { return Err("an empty line".into()) };
            digits.pixels.extend(pixels.iter().map(|&p| p as f32 / 16.0));
            digits.labels.push(*label);
        }
        Ok(digits)
    }

    fn image(&self, i: usize) -> &[f32] {
        &self.pixels[64 * i..64 * (i + 1)]
    }
}

/// A progress bar that is redrawn on a terminal; elsewhere a line per epoch.
struct Progress {
    epochs: usize,
    steps: usize,
    live: bool,
}

impl Progress {
    fn step(&self, epoch: usize, step: usize, loss: f32) {
        if !self.live {
            return;
        }
        let done = (epoch * self.steps + step + 1) as f64 / (self.epochs * self.steps) as f64;
        let bar = "█".repeat((done * 30.0) as usize);
        print!("\r{bar:░<30} {:3.0}%  epoch {:2}  loss {loss:.4}", done * 100.0, epoch + 1);
        let _ = std::io::stdout().flush();
    }

    fn epoch(&self, epoch: usize, loss: f32) {
        if !self.live {
            println!("epoch {:2}/{}  loss {loss:.4}", epoch + 1, self.epochs);
        }
    }

    fn close(&self) {
        if self.live {
            println!();
        }
    }
}

/// The state of training.
struct Training {
    x: Tensor,
    y: Tensor,
    model: Sequential,
    optimizer: AdamW,
}

impl Training {
    fn new(digits: &Digits) -> girih::Result<Training> {
        let model = Sequential::new()
            .then(Linear::new(64, 256)?)
            .then(Gelu::default())
            .then(Linear::new(256, 128)?)
            .then(Gelu::default())
            .then(Linear::new(128, 10)?);
        let mut optimizer = AdamW::new(PEAK_RATE);
        optimizer.init(&model.parameters())?;
        let count = digits.labels.len();
        Ok(Training {
            x: Tensor::from_slice(&digits.pixels, [count, 64])?,
            y: Tensor::from_slice(&digits.labels, [count])?,
            model,
            optimizer,
        })
    }

    /// Records one step: the loss before it, and the model after it.
    fn step(&mut self, batch: &[i64]) -> girih::Result<Tensor> {
        let batch = Tensor::from_slice(batch, [batch.len()])?;
        let labels = self.y.take(&batch, 0)?;
        let images = self.x.take(&batch, 0)?;
        // Noise on the pixels, new in each step, reduces overfitting on 1,438 images. Its size was
        // chosen on a fifth of these, not on the held-out images.
        let images = &images + Tensor::randn(images.shape(), DType::F32)? * NOISE;
        let (loss, gradients) = nn::value_and_grad(&self.model, |model| {
            let logits = model.forward(&images)?;
            cross_entropy(&logits, &labels, ClassOptions::default(), Reduction::Mean)
        })?;
        let updated = self.optimizer.update(&self.model.parameters(), &gradients)?;
        self.model.set_parameters(&updated)?;
        Ok(loss)
    }

    /// Everything that a step changes, to be evaluated in one run.
    fn outputs(&self, loss: &Tensor) -> Vec<Tensor> {
        let mut outputs = vec![loss.clone()];
        outputs.extend(self.model.parameters());
        outputs.extend(self.optimizer.state().iter().cloned());
        outputs
    }
}

/// The results of training.
struct Outcome {
    losses: Vec<f32>,
    seconds: f64,
    before: Stats,
    after: Stats,
    nodes: usize,
    compiled: Option<CompilationInfo>,
}

/// Trains the model; returns `None` if interrupted.
fn train(
    training: &mut Training,
    mut indices: Vec<i64>,
    epochs: usize,
) -> girih::Result<Option<Outcome>> {
    let steps = indices.len() / BATCH;
    let progress = Progress { epochs, steps, live: std::io::stdout().is_terminal() };
    let mut losses: Vec<f32> = Vec::with_capacity(epochs * steps);
    let mut compiled = None;
    let mut shuffle = SEED;
    let (before, nodes) = (cache_stats()?, girih::current_graph().num_nodes());
    let started = Instant::now();
    for epoch in 0..epochs {
        shuffled(&mut indices, &mut shuffle);
        for (step, batch) in indices.chunks_exact(BATCH).enumerate() {
            if INTERRUPTED.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let done = losses.len() as f64 / (epochs * steps) as f64;
            training.optimizer.learning_rate =
                PEAK_RATE * (1.0 + (std::f64::consts::PI * done).cos()) / 2.0;
            let loss = training.step(batch)?;
            let outputs = training.outputs(&loss);
            if compiled.is_none() {
                compiled = Some(girih::compile_graph(&outputs)?);
            }
            eval(&outputs)?;
            losses.push(loss.item()?);
            progress.step(epoch, step, losses[losses.len() - 1]);
        }
        progress.epoch(epoch, mean(&losses[losses.len() - steps..]));
    }
    let seconds = started.elapsed().as_secs_f64();
    progress.close();
    let nodes = girih::current_graph().num_nodes() - nodes;
    Ok(Some(Outcome { losses, seconds, before, after: cache_stats()?, nodes, compiled }))
}

/// The Fisher-Yates shuffle, with a linear congruential generator.
fn shuffled(indices: &mut [i64], state: &mut u64) {
    for i in (1..indices.len()).rev() {
        *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        indices.swap(i, (*state >> 33) as usize % (i + 1));
    }
}

fn mean(values: &[f32]) -> f32 {
    values.iter().sum::<f32>() / values.len() as f32
}

fn report(outcome: &Outcome, accuracy: f32) {
    let Outcome { losses, seconds, before, after, nodes, .. } = outcome;
    let steps = losses.len();
    println!(
        "\naccuracy        {:.2}% on the held-out fifth\n\
         speed           {:.0} steps/s ({steps} steps in {seconds:.2} s)\n\
         nodes recorded  {nodes} ({} per step)\n\
         kernels         {:.0} per step\n\
         compiles        {} while training\n\
         program cache   {} hits, {} misses\n\
         peak memory     {:.1} MiB\n",
        accuracy * 100.0,
        steps as f64 / seconds,
        nodes / steps,
        (after.launches - before.launches) as f64 / steps as f64,
        after.compiles - before.compiles,
        after.hits - before.hits,
        after.misses - before.misses,
        after.peak_memory_bytes as f64 / (1 << 20) as f64,
    );
}

/// Images side by side as text, each under its prediction and its label.
fn draw(images: &[(&[f32], i64, i64)]) -> String {
    let heading = |&(_, truth, guess): &(&[f32], i64, i64)| {
        let mark = if truth == guess { "" } else { " !" };
        format!("{:<16}", format!("{guess} (is {truth}){mark}"))
    };
    let mut lines = vec![images.iter().map(heading).collect::<Vec<_>>().join("  ")];
    let shades: Vec<char> = " ░▒▓█".chars().collect();
    for row in 0..8 {
        let cells = |(image, ..): &(&[f32], i64, i64)| -> String {
            let shade = |&p: &f32| [shades[(p * 4.0).round() as usize]; 2];
            image[8 * row..8 * row + 8].iter().flat_map(shade).collect()
        };
        lines.push(images.iter().map(cells).collect::<Vec<_>>().join("  "));
    }
    lines.iter().map(|l| l.trim_end()).collect::<Vec<_>>().join("\n")
}

fn write(outcome: &Outcome, epochs: usize, out: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(out)?;
    let losses = &outcome.losses;
    let steps = losses.len() / epochs;
    let curve = losses.iter().enumerate().map(|(i, &loss)| ((i + 1) as f64, loss as f64));
    let averages = losses.chunks_exact(steps).enumerate();
    let averages = averages.map(|(e, l)| (((e + 1) * steps) as f64, mean(l) as f64));
    let series = [("step".into(), curve.collect()), ("epoch".into(), averages.collect())];
    std::fs::write(
        out.join("loss.svg"),
        plot::line_plot("Training loss", "step", "loss", &series),
    )?;
    if let Some(compiled) = &outcome.compiled {
        let text = format!("{}\n\n{}\n", compiled.optimized, compiled.kernels);
        std::fs::write(out.join("step-graph.txt"), text)?;
        std::fs::write(out.join("step-graph.svg"), compiled.optimized_svg())?;
    }
    Ok(())
}

fn run(epochs: usize, out: &Path) -> Result<(), Box<dyn Error>> {
    let digits = Digits::load()?;
    // Hold out every fifth image. The file is in the order of writing, so both parts contain all
    // writers.
    let all = 0..digits.labels.len() as i64;
    let (held_out, training): (Vec<i64>, Vec<i64>) = all.partition(|i| i % 5 == 4);

    random::manual_seed(SEED);
    let mut run = Training::new(&digits)?;
    println!(
        "{} digits to train on, {} held out; {} parameters",
        training.len(),
        held_out.len(),
        run.model.num_parameters()
    );
    let Some(outcome) = train(&mut run, training, epochs)? else {
        println!("\nInterrupted; nothing was written.");
        std::process::exit(130);
    };

    run.model.eval();
    let test = Tensor::from_slice(&held_out, [held_out.len()])?;
    let predicted = run.model.forward(&run.x.take(&test, 0)?)?.argmax(1)?;
    let accuracy = predicted.eq(&run.y.take(&test, 0)?)?.mean_all()?;
    report(&outcome, accuracy.item()?);
    let guesses: Vec<i64> = predicted.to_vec()?;
    let examples: Vec<(&[f32], i64, i64)> = held_out
        .iter()
        .zip(guesses)
        .map(|(&i, guess)| (digits.image(i as usize), digits.labels[i as usize], guess))
        .collect();
    let wrong = examples.iter().find(|(_, truth, guess)| truth != guess);
    let shown = [0, 17, 101, 240].map(|i| examples[i]);
    println!("{}", draw(&shown.into_iter().chain(wrong.copied()).collect::<Vec<_>>()));

    write(&outcome, epochs, out)?;
    println!("\nWrote loss.svg, step-graph.svg and step-graph.txt to {}/", out.display());
    Ok(())
}

/// The number of epochs and the output folder.
fn arguments() -> Result<(usize, PathBuf), String> {
    let (mut epochs, mut out) = (40, PathBuf::from("demo-out"));
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--epochs" => {
                epochs = value.parse().ok().filter(|&n| n > 0).ok_or("--epochs N, N > 0")?
            }
            "--out" => out = value.into(),
            _ => {
                return Err(format!("unknown argument {name}; there are --epochs N and --out DIR"));
            }
        }
    }
    Ok((epochs, out))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (epochs, out) = arguments()?;
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))?;
    run(epochs, &out)
}
