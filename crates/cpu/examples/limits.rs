//! Measures the limits of this machine: multiply-adds in registers, and memory bandwidth, on one
//! thread and on several. `cargo run --release -p girih-cpu --example limits -- [THREADS]` prints
//! JSON, with which the benchmarks compare kernels.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const SAMPLES: usize = 25;
/// Independent accumulators: more than latency times ports of any core.
const CHAINS: usize = 12;
const ROUNDS: usize = 20_000;
/// Bytes of all arrays in total, near the sizes of the benchmarks.
const SIZES: [(&str, usize); 4] =
    [("64 KB", 64 << 10), ("1 MB", 1 << 20), ("12 MB", 12 << 20), ("192 MB", 192 << 20)];

/// The portable loop, vectorised for the compilation target.
fn fma_portable(x: f32) -> f32 {
    let mut sums = [[x; 4]; CHAINS];
    for _ in 0..ROUNDS {
        for sum in &mut sums {
            for lane in sum {
                *lane = *lane * 0.999 + x;
            }
        }
    }
    sums.iter().flatten().sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CHAINS, ROUNDS};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2,fma")]
    pub fn fma_avx2(x: f32) -> f32 {
        let (step, factor) = (_mm256_set1_ps(x), _mm256_set1_ps(0.999));
        let mut sums = [step; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, step);
            }
        }
        _mm256_cvtss_f32(sums.into_iter().fold(step, |a, b| _mm256_add_ps(a, b)))
    }

    #[target_feature(enable = "avx512f")]
    pub fn fma_avx512(x: f32) -> f32 {
        let (step, factor) = (_mm512_set1_ps(x), _mm512_set1_ps(0.999));
        let mut sums = [step; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, step);
            }
        }
        _mm512_cvtss_f32(sums.into_iter().fold(step, |a, b| _mm512_add_ps(a, b)))
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub fn dot_bf16(x: f32) -> f32 {
        let step = _mm512_set1_ps(x);
        let factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5), step);
        let mut sums = [step; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, factor, factor);
            }
        }
        _mm512_cvtss_f32(sums.into_iter().fold(step, |a, b| _mm512_add_ps(a, b)))
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub fn dot_int8(x: f32) -> f32 {
        let step = _mm512_set1_epi32(x.to_bits() as i32);
        let mut sums = [step; CHAINS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, step, step);
            }
        }
        let all = sums.into_iter().fold(step, |a, b| _mm512_add_epi32(a, b));
        _mm512_cvtsi512_si32(all) as f32
    }
}

/// A loop of multiply-adds: its name, operations per call, and function.
type Loop = (&'static str, usize, fn(f32) -> f32);

/// The loops that this machine supports; the last of a kind is the widest.
fn loops() -> Vec<Loop> {
    let flops = |lanes: usize| 2 * lanes * CHAINS * ROUNDS;
    #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
    let mut out: Vec<Loop> = vec![("f32", flops(4), fma_portable)];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: this loop is chosen only if the machine has the features that it is compiled
            // for.
            out.push(("f32", flops(8), |x| unsafe { x86::fma_avx2(x) }));
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: as above.
            out.push(("f32", flops(16), |x| unsafe { x86::fma_avx512(x) }));
            if is_x86_feature_detected!("avx512bf16") {
                // SAFETY: as above.
                out.push(("bf16", flops(32), |x| unsafe { x86::dot_bf16(x) }));
            }
            if is_x86_feature_detected!("avx512vnni") {
                // SAFETY: as above.
                out.push(("int8", flops(64), |x| unsafe { x86::dot_int8(x) }));
            }
        }
    }
    out
}

/// The most work per nanosecond of `threads` concurrent threads: the best of several samples, since
/// a limit is measured without disturbance. Each thread creates its own work.
fn best<W: FnMut() -> usize>(threads: usize, make: impl Fn() -> W + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let rates = std::thread::scope(|scope| {
        let run = || {
            let mut work = make();
            work();
            let sample = || {
                barrier.wait();
                let start = Instant::now();
                let amount = work();
                // Wait for all threads: the slowest one counts.
                barrier.wait();
                amount as f64 / start.elapsed().as_nanos() as f64
            };
            std::iter::repeat_with(sample).take(SAMPLES).collect::<Vec<_>>()
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        handles.into_iter().map(|h| h.join().expect("no panic in a loop")).collect::<Vec<_>>()
    });
    (0..SAMPLES).map(|i| rates.iter().map(|r| r[i]).sum()).fold(0.0, f64::max)
}

/// Uses non-temporal stores, which do not read the line first, if they exist and `stream` is true.
fn add(out: &mut [f32], x: &[f32], y: &[f32], stream: bool) {
    #[cfg(target_arch = "x86_64")]
    if stream && (out.as_ptr() as usize).is_multiple_of(16) {
        use std::arch::x86_64::*;
        let whole = out.len() / 4 * 4;
        for i in (0..whole).step_by(4) {
            // SAFETY: i + 4 is at most the length of all three; SSE2 is part of x86-64, and the
            // stores are aligned since the first one is.
            unsafe {
                let sum = _mm_add_ps(_mm_loadu_ps(&x[i]), _mm_loadu_ps(&y[i]));
                _mm_stream_ps(&mut out[i], sum);
            }
        }
        // SAFETY: a fence has no requirements.
        unsafe { _mm_sfence() };
        return;
    }
    let _ = stream;
    for ((o, x), y) in out.iter_mut().zip(x).zip(y) {
        *o = x + y;
    }
}

/// Bytes per nanosecond of `x + y` into an existing array; `bytes` is the size of all three.
fn add_rate(threads: usize, bytes: usize, stream: bool) -> f64 {
    best(threads, || {
        let n = bytes / 12 / threads;
        let (x, y, mut out) = (vec![1.0f32; n], vec![2.0f32; n], vec![0.0f32; n]);
        let repeats = ((4 << 20) / bytes).max(1);
        move || {
            for _ in 0..repeats {
                add(black_box(&mut out), black_box(&x), black_box(&y), stream);
            }
            n * 12 * repeats
        }
    })
}

/// Bytes per nanosecond of reading.
fn read_rate(threads: usize, bytes: usize) -> f64 {
    best(threads, || {
        let n = bytes / 8 / threads;
        let x = vec![1u64; n];
        let repeats = ((4 << 20) / bytes).max(1);
        move || {
            for _ in 0..repeats {
                black_box(black_box(&x).iter().fold(0, |a, b| a ^ b));
            }
            n * 8 * repeats
        }
    })
}

fn peak(threads: usize, dtype: &str) -> f64 {
    let rate = |(_, flops, f): Loop| {
        best(threads, || {
            move || {
                black_box(f(black_box(0.5)));
                flops
            }
        })
    };
    loops().into_iter().filter(|l| l.0 == dtype).map(rate).fold(0.0, f64::max)
}

fn main() {
    let threads = match std::env::args().nth(1).map(|a| a.parse::<usize>()) {
        None => std::thread::available_parallelism().map_or(1, |n| n.get()),
        Some(Ok(n)) if (1..=1024).contains(&n) => n,
        Some(_) => {
            eprintln!("limits: expected a number of threads from 1 to 1024");
            std::process::exit(2);
        }
    };
    println!("{{\"threads\": {threads},");
    for dtype in ["f32", "bf16", "int8"] {
        let (one, all) = (peak(1, dtype), peak(threads, dtype));
        println!(" \"{dtype}\": {{\"gflops_one\": {one:.1}, \"gflops\": {all:.1}}},");
    }
    println!(" \"bandwidth\": {{");
    for (i, (name, bytes)) in SIZES.into_iter().enumerate() {
        let add = |t| add_rate(t, bytes, false).max(add_rate(t, bytes, true));
        let (one, all) = (add(1), add(threads));
        let read = read_rate(threads, bytes);
        let comma = if i + 1 < SIZES.len() { "," } else { "" };
        println!(
            "  \"{name}\": {{\"bytes\": {bytes}, \"add_one\": {one:.1}, \"add\": {all:.1}, \
             \"read\": {read:.1}}}{comma}"
        );
    }
    println!(" }}}}");
}
