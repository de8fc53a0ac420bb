//! What laziness costs: recording one op, evaluating a cached small graph, compiling one. Prints
//! medians; nothing here asserts a time.

use girih::{DType, Tensor, eval};
use std::hint::black_box;
use std::time::Instant;

/// Median time of one call in nanoseconds, over batches of `n` calls.
fn median_ns(n: usize, mut f: impl FnMut()) -> f64 {
    for _ in 0..n {
        f();
    }
    let mut samples: Vec<f64> = (0..31)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..n {
                f();
            }
            start.elapsed().as_nanos() as f64 / n as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() -> girih::Result<()> {
    let x = Tensor::from_slice(&[1.0f32; 4], [4])?;
    let y = Tensor::from_slice(&[2.0f32; 4], [4])?;
    println!(
        "record add(x, y)              {:8.0} ns",
        median_ns(10_000, || {
            black_box(x.add(&y).unwrap());
        })
    );
    println!(
        "record x * 2.0                {:8.0} ns",
        median_ns(10_000, || {
            black_box(x.mul(2.0).unwrap());
        })
    );
    println!(
        "record relu(x)                {:8.0} ns",
        median_ns(10_000, || {
            black_box(x.relu().unwrap());
        })
    );
    println!(
        "record and eval x * 2 + 1     {:8.0} ns",
        median_ns(2_000, || {
            let z = x.mul(2.0).unwrap().add(1.0).unwrap();
            z.eval().unwrap();
        })
    );
    let w1 = Tensor::from_slice(&[0.1f32; 64], [4, 16])?;
    let w2 = Tensor::from_slice(&[0.1f32; 64], [16, 4])?;
    let row = Tensor::from_slice(&[1.0f32; 4], [1, 4])?;
    println!(
        "record and eval 3 kernels     {:8.0} ns",
        median_ns(2_000, || {
            let h = row.matmul(&w1).unwrap().relu().unwrap();
            let z = h.matmul(&w2).unwrap().sum(None, false).unwrap();
            z.eval().unwrap();
        })
    );
    println!(
        "compile and eval 3 kernels    {:8.0} ns",
        median_ns(20, || {
            girih::clear_cache().unwrap();
            let h = row.matmul(&w1).unwrap().relu().unwrap();
            let z = h.matmul(&w2).unwrap().sum(None, false).unwrap();
            z.eval().unwrap();
        })
    );
    let big = Tensor::zeros([4], DType::F32)?;
    let start = Instant::now();
    let mut chain = big;
    for _ in 0..1_000_000 {
        chain = chain.add(&x)?;
    }
    println!("record a chain of a million   {:8.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    eval([&chain])?;
    println!("evaluate it                   {:8.0} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    drop(chain);
    println!("drop it                       {:8.3} ms", start.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
