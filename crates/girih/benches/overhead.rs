//! Measures the overhead of laziness: recording an op, evaluating a cached small graph, and
//! compiling one, on one thread and on several. Prints medians; nothing asserts a time.

use girih::{DType, Tensor, eval};
use std::hint::black_box;
use std::time::Instant;

const SAMPLES: usize = 31;

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// The median time of one call in nanoseconds, over batches of `n` calls.
fn median_ns(n: usize, mut f: impl FnMut()) -> f64 {
    let sample = || {
        let start = Instant::now();
        (0..n).for_each(|_| f());
        start.elapsed().as_nanos() as f64 / n as f64
    };
    median(std::iter::repeat_with(sample).take(SAMPLES + 1).skip(1).collect())
}

/// The median time of evaluating one recorded tensor in nanoseconds, without recording.
fn median_eval_ns(
    n: usize,
    mut record: impl FnMut() -> girih::Result<Tensor>,
) -> girih::Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..=SAMPLES {
        let tensors = (0..n).map(|_| record()).collect::<girih::Result<Vec<_>>>()?;
        let start = Instant::now();
        for tensor in &tensors {
            tensor.eval()?;
        }
        samples.push(start.elapsed().as_nanos() as f64 / n as f64);
    }
    // The first sample includes compilation.
    Ok(median(samples.split_off(1)))
}

/// Millions of calls per second of `threads` threads, each of which calls a function from
/// `prepare`.
fn rate<F: FnMut()>(threads: usize, prepare: impl Fn() -> F + Sync) -> f64 {
    const CALLS: usize = 20_000;
    let sample = || {
        let (barrier, prepare) = (std::sync::Barrier::new(threads + 1), &prepare);
        std::thread::scope(|scope| {
            let ready = &barrier;
            let run = move || {
                let mut call = prepare();
                call();
                ready.wait();
                (0..CALLS).for_each(|_| call());
            };
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            barrier.wait();
            let start = Instant::now();
            running.into_iter().for_each(|thread| thread.join().expect("calls do not fail"));
            (threads * CALLS) as f64 / start.elapsed().as_secs_f64() / 1e6
        })
    };
    median(std::iter::repeat_with(sample).take(7).collect())
}

/// Small calls of one thread and of several threads, each with its own data.
fn threads() -> girih::Result<()> {
    let data = || Tensor::from_slice(&[1.0f32; 4], [4]).expect("there is memory");
    let evaluations = || {
        let x = data();
        move || {
            let y = x.mul(2.0).and_then(|y| y.add(1.0)).expect("the operands fit");
            y.eval().map(drop).expect("the program runs");
        }
    };
    let function = |x: &[Tensor]| Ok(vec![x[0].mul(2.0)?.add(1.0)?]);
    let traced = girih::compile(function);
    let calls = || {
        let (x, traced) = (data(), &traced);
        move || drop(black_box(traced.call(&[&x]).expect("the program runs")))
    };
    for (what, one, many) in [
        ("calls of a compiled x * 2 + 1", rate(1, calls), [2, 8].map(|n| rate(n, calls))),
        ("recorded x * 2 + 1", rate(1, evaluations), [2, 8].map(|n| rate(n, evaluations))),
    ] {
        println!("{what:<44}{one:10.2} million/s on one thread");
        for (threads, rate) in [2, 8].into_iter().zip(many) {
            let label = format!("  {threads} threads");
            println!("{label:<44}{rate:10.2} million/s, {:.2} x one", rate / one);
        }
    }
    Ok(())
}

fn row(what: &str, value: f64, unit: &str) {
    println!("{what:<44}{value:10.0} {unit}");
}

fn main() -> girih::Result<()> {
    println!("girih {} on {}\n", env!("CARGO_PKG_VERSION"), processor());
    let x = Tensor::from_slice(&[1.0f32; 4], [4])?;
    let y = Tensor::from_slice(&[2.0f32; 4], [4])?;
    let record = |f: &dyn Fn() -> girih::Result<Tensor>| {
        median_ns(10_000, || {
            black_box(f().expect("the operands fit"));
        })
    };
    row("record and drop add(x, y)", record(&|| x.add(&y)), "ns");
    row("record and drop x * 2.5", record(&|| x.mul(2.5)), "ns");
    row("record and drop relu(x)", record(&|| x.relu()), "ns");

    let w1 = Tensor::from_slice(&[0.1f32; 64], [4, 16])?;
    let w2 = Tensor::from_slice(&[0.1f32; 64], [16, 4])?;
    let input = Tensor::from_slice(&[1.0f32; 4], [1, 4])?;
    let three = || input.matmul(&w1)?.relu()?.matmul(&w2)?.sum_all();
    row("eval cached x * 2 + 1", median_eval_ns(1_000, || x.mul(2.0)?.add(1.0))?, "ns");
    row("eval cached, 3 kernels of 4 to 64 elements", median_eval_ns(1_000, three)?, "ns");
    // This measures the cache key and the lookup, since the program is one kernel of four elements.
    const PAIRS: usize = 50;
    let hundred = || (0..PAIRS).try_fold(x.clone(), |sum, _| sum.mul(&y)?.add(&x));
    let each = median_eval_ns(100, hundred)? / (2 * PAIRS) as f64;
    row("eval cached, 100 ops, for each of them", each, "ns");
    let compile = || {
        girih::clear_cache().expect("the device is there");
        three().and_then(|z| z.eval().map(|_| ())).expect("the program runs");
    };
    row("record, compile and eval 3 kernels", median_ns(20, compile), "ns");

    let ms = |start: Instant| start.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let mut chain = Tensor::zeros([4], DType::F32)?;
    for _ in 0..1_000_000 {
        chain = chain.add(&x)?;
    }
    row("record a chain of a million adds", ms(start), "ms");
    let start = Instant::now();
    eval([&chain])?;
    row("compile and evaluate it", ms(start), "ms");
    let start = Instant::now();
    drop(chain);
    row("drop it", ms(start), "ms");
    threads()
}

/// The processor's name, if the system provides it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{} x {threads}", name.unwrap_or(std::env::consts::ARCH))
}
