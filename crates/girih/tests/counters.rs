//! Tests of laziness by the process's counters. The counters are global, so these tests have a
//! process of their own and run one at a time.

use girih::losses::{ClassOptions, Reduction, cross_entropy};
use girih::nn::{self, Gelu, Layer, Linear, Module, Sequential};
use girih::optim::{AdamW, Optimizer, Sgd};
use girih::{
    DType, Result, Scope, Stats, Tensor, async_eval, cache_stats, clear_cache, compile_graph, eval,
    random, value_and_grad,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Counts from its creation on.
struct Counting {
    before: Stats,
    _guard: MutexGuard<'static, ()>,
}

impl Counting {
    fn new() -> Counting {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        Counting { before: cache_stats().unwrap(), _guard: guard }
    }

    fn restart(&mut self) {
        self.before = cache_stats().unwrap();
    }

    /// The numbers of runs, launches, compilations and cache hits.
    fn counts(&self) -> (u64, u64, u64, u64) {
        let now = cache_stats().unwrap();
        let b = &self.before;
        (now.runs - b.runs, now.launches - b.launches, now.compiles - b.compiles, now.hits - b.hits)
    }

    fn runs(&self) -> u64 {
        self.counts().0
    }

    fn launches(&self) -> u64 {
        self.counts().1
    }

    fn compiles(&self) -> u64 {
        self.counts().2
    }
}

fn data(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[test]
fn recording_and_metadata_run_nothing() -> Result<()> {
    let counting = Counting::new();
    let x = data(&[1.0, 2.0]);
    let y = x.matmul(&x)?.exp()?;
    let _ = (y.shape(), y.dtype(), y.op_name(), y.is_lazy(), format!("{y:?}"));
    assert_eq!(counting.runs(), 0);
    Ok(())
}

#[test]
fn several_tensors_are_one_run_and_shared_work_is_done_once() -> Result<()> {
    let mut counting = Counting::new();
    let x = Tensor::from_slice(&vec![0.5f32; 64 * 64], [64, 64])?;
    let product = || x.matmul(&x);
    let (shared, other) = (product()?, product()?.exp()?);
    let (a, b) = (shared.add(1.0)?, shared.sum_all()?);
    drop(shared);
    eval([&a, &b, &other])?;
    assert_eq!(counting.runs(), 1);
    let together = counting.launches();
    counting.restart();
    eval([&a, &b, &a])?;
    assert_eq!(counting.runs(), 0, "what is there is not computed again");
    for t in [product()?.add(1.0)?, product()?.sum_all()?, product()?.exp()?] {
        t.eval()?;
    }
    assert!(together < counting.launches(), "{together} kernels together");
    Ok(())
}

#[test]
fn a_diamond_thirty_levels_deep_is_computed_level_by_level() -> Result<()> {
    let counting = Counting::new();
    let mut x = data(&[1.0]);
    for _ in 0..30 {
        x = x.add(&x)?;
    }
    assert_eq!(x.item::<f32>()?, (1u64 << 30) as f32);
    assert_eq!(counting.runs(), 1);
    Ok(())
}

#[test]
fn an_intermediate_the_user_holds_is_not_computed_again() -> Result<()> {
    let mut counting = Counting::new();
    let x = data(&[1.0, 2.0, 3.0]);
    let y = x.exp()?.sum_all()?;
    let z = y.mul(3.0)?;
    z.eval()?;
    assert!(!y.is_lazy());
    counting.restart();
    assert_eq!(y.item::<f32>()? * 3.0, z.item::<f32>()?);
    assert_eq!(counting.runs(), 0);
    Ok(())
}

#[test]
fn a_held_broadcast_keeps_its_operand_without_copies() -> Result<()> {
    let mut counting = Counting::new();
    let x = data(&[1.0, 2.0, 3.0]);
    let wide = x.sum_all()?.broadcast_to([1 << 20])?;
    let total = wide.mean_all()?;
    let before = cache_stats()?.memory_bytes;
    total.eval()?;
    assert!(cache_stats()?.memory_bytes - before < 1 << 20);
    assert!(wide.is_lazy());
    counting.restart();
    assert_eq!(wide.max_all()?.item::<f32>()?, 6.0);
    assert_eq!(counting.launches(), 1, "the sum is there");
    Ok(())
}

#[test]
fn a_held_random_intermediate_keeps_its_values() -> Result<()> {
    let _counting = Counting::new();
    for hold_leaf in [false, true] {
        let x = Tensor::rand([100], DType::F32)?;
        let y = x.add(1.0)?;
        let leaf = hold_leaf.then(|| x.clone());
        drop(x);
        let z = y.mul(2.0)?;
        let z = z.to_vec::<f32>()?;
        let y = y.to_vec::<f32>()?;
        assert!(y.iter().zip(&z).all(|(y, z)| y * 2.0 == *z));
        if let Some(x) = leaf {
            assert!(x.to_vec::<f32>()?.iter().zip(&y).all(|(x, y)| x + 1.0 == *y));
        }
    }
    Ok(())
}

#[test]
fn the_cache_distinguishes_aliased_and_shared_operands() -> Result<()> {
    let mut counting = Counting::new();
    clear_cache()?;
    for _ in 0..2 {
        let (x, y, z) = (data(&[1.0, 2.0]), data(&[10.0, 20.0]), data(&[100.0, 200.0]));
        assert_eq!(x.add(&x)?.to_vec::<f32>()?, [2.0, 4.0]);
        assert_eq!(x.add(&y)?.to_vec::<f32>()?, [11.0, 22.0]);
        let t = x.mul(&y)?;
        assert_eq!(t.add(&t)?.to_vec::<f32>()?, [20.0, 80.0]);
        assert_eq!(x.mul(&y)?.add(&x.mul(&z)?)?.to_vec::<f32>()?, [110.0, 440.0]);
    }
    // `t` has another reference in the third program, so its value is a second output.
    assert_eq!(counting.compiles(), 4);
    counting.restart();
    let (x, y) = (data(&[5.0, 6.0]), data(&[1.0, 2.0]));
    assert_eq!(y.add(&x)?.to_vec::<f32>()?, [6.0, 8.0]);
    assert_eq!(counting.compiles(), 0);
    Ok(())
}

#[test]
fn scalars_are_arguments_and_structure_is_not() -> Result<()> {
    let mut counting = Counting::new();
    let x = data(&[1.0, 2.0, 4.0, 8.0]);
    assert_eq!(x.mul(0.25)?.to_vec::<f32>()?, [0.25, 0.5, 1.0, 2.0]);
    counting.restart();
    assert_eq!(x.mul(0.75)?.to_vec::<f32>()?, [0.75, 1.5, 3.0, 6.0]);
    assert_eq!(x.mul(-3.0)?.to_vec::<f32>()?, [-3.0, -6.0, -12.0, -24.0]);
    assert_eq!(counting.compiles(), 0);
    assert_eq!(x.mul(0.0)?.to_vec::<f32>()?, [0.0; 4]);
    assert_eq!(x.reshape([2, 2])?.sum(0)?.to_vec::<f32>()?, [5.0, 10.0]);
    assert_eq!(x.reshape([2, 2])?.sum(1)?.to_vec::<f32>()?, [3.0, 12.0]);
    Ok(())
}

#[test]
fn a_loop_over_batches_of_rows_is_one_program() -> Result<()> {
    let mut counting = Counting::new();
    let x = Tensor::arange(0.0..60.0, DType::F32)?.reshape([20, 3])?;
    x.eval()?;
    let mut sums = Vec::new();
    for batch in 0..5 {
        let rows = x.narrow(0, 4 * batch, 4)?;
        sums.push(rows.sum_all()?.item::<f32>()?);
        if batch == 0 {
            counting.restart();
        }
        assert!(!rows.is_lazy(), "a slice of rows that are there is there");
    }
    assert_eq!(counting.compiles(), 0);
    assert_eq!(sums, [66.0, 210.0, 354.0, 498.0, 642.0]);
    Ok(())
}

#[test]
fn a_random_program_run_again_hits_the_cache_and_draws_new_numbers() -> Result<()> {
    let mut counting = Counting::new();
    let draw = || Tensor::randn([1000], DType::F32)?.mul(3.0)?.to_vec::<f32>();
    let first = draw()?;
    counting.restart();
    let second = draw()?;
    assert_ne!(first, second);
    assert_eq!((counting.compiles(), counting.counts().3), (0, 1));
    Ok(())
}

/// A hundred steps in which everything changes that may; the number of programs compiled after
/// `init`.
fn train(optimizer: impl Optimizer) -> Result<u64> {
    let mut counting = Counting::new();
    // Bind the optimiser after the lock, so that it is dropped before the lock is released.
    let mut optimizer = optimizer;
    random::manual_seed(1);
    let model = Sequential::new()
        .then(Linear::new(4, 16)?)
        .then(Gelu::default())
        .then(nn::Dropout::new(0.1)?)
        .then(Linear::new(16, 2)?);
    optimizer.init(&model.parameters())?;
    clear_cache()?;
    counting.restart();
    let mut losses = Vec::new();
    for step in 0..100 {
        let x: Vec<f32> = (0..32).map(|i| ((i * 7 + step * 13) % 11) as f32 / 11.0).collect();
        let labels: Vec<i64> = x.chunks_exact(4).map(|r| (r[0] > r[1]) as i64).collect();
        let (x, labels) = (Tensor::from_slice(&x, [8, 4])?, Tensor::from_slice(&labels, [8])?);
        let parameters = model.parameters();
        let (loss, gradients) = nn::value_and_grad(&model, |model| {
            let logits = model.forward(&x)?;
            cross_entropy(&logits, &labels, ClassOptions::default(), Reduction::Mean)
        })?;
        model.set_parameters(&optimizer.update(&parameters, &gradients)?)?;
        drop(parameters);
        eval([loss.clone()].iter().chain(&model.parameters()).chain(optimizer.state()))?;
        losses.push(loss.item::<f32>()?);
    }
    let mean = |l: &[f32]| l.iter().sum::<f32>() / l.len() as f32;
    assert!(mean(&losses[80..]) < 0.7 * mean(&losses[..20]), "{losses:?}");
    assert_eq!(counting.runs(), 100);
    Ok(counting.compiles())
}

/// An optimiser whose learning rate changes in each step.
struct Scheduled<O>(O, fn(&mut O, f64), usize);

impl<O: Optimizer> Optimizer for Scheduled<O> {
    fn init(&mut self, parameters: &[Tensor]) -> Result<()> {
        self.0.init(parameters)
    }

    fn update(&mut self, parameters: &[Tensor], gradients: &[Tensor]) -> Result<Vec<Tensor>> {
        // The rates include 1 and 0, which would be literals of the program if they were constants.
        let rate = [0.05, 0.04, 0.1][self.2 % 3] * if self.2 == 50 { 0.0 } else { 1.0 };
        (self.1)(&mut self.0, if self.2 == 1 { 1.0 } else { rate });
        self.2 += 1;
        self.0.update(parameters, gradients)
    }

    fn state(&self) -> &[Tensor] {
        self.0.state()
    }
}

#[test]
fn a_hundred_training_steps_are_one_compile_whatever_changes() -> Result<()> {
    let adam = Scheduled(AdamW::new(0.01), |o, r| o.learning_rate = r / 5.0, 0);
    assert_eq!(train(adam)?, 1);
    let sgd = Scheduled(Sgd::new(0.1).momentum(0.9), |o, r| o.learning_rate = r, 0);
    assert_eq!(train(sgd)?, 1);
    assert_eq!(train(Scheduled(Sgd::new(0.1), |o, r| o.learning_rate = 4.0 * r, 0))?, 1);
    Ok(())
}

#[test]
fn the_value_and_its_gradients_share_the_forward_pass() -> Result<()> {
    let counting = Counting::new();
    let w = Tensor::from_slice(&vec![0.1f32; 32 * 32], [32, 32])?;
    let f = value_and_grad(|p| p[0].matmul(&p[0])?.tanh()?.sum_all());
    let (value, gradients) = f(&[w])?;
    let info = compile_graph([&value, &gradients[0]])?;
    // One product forward, two backward.
    assert_eq!(info.optimized.to_string().matches("matmul(").count(), 3, "{}", info.optimized);
    eval([&value, &gradients[0]])?;
    assert_eq!((counting.runs(), counting.compiles()), (1, 1));
    Ok(())
}

#[test]
fn compiling_warms_the_cache_and_runs_nothing() -> Result<()> {
    let mut counting = Counting::new();
    clear_cache()?;
    let x = data(&[1.0, 2.0]);
    let y = x.sin()?.mul(&x)?;
    let info = compile_graph([&y])?;
    assert_eq!((counting.runs(), counting.compiles()), (0, 1));
    assert!(y.is_lazy() && info.num_kernels == 1 && info.num_nodes == 3);
    assert!(info.optimized_svg().starts_with("<svg"));
    counting.restart();
    y.eval()?;
    assert_eq!(counting.counts(), (1, 1, 0, 1));
    assert_eq!(compile_graph([&y])?.num_kernels, 0, "nothing is left to compute");
    Ok(())
}

#[test]
fn clearing_the_cache_costs_a_compile_and_nothing_else() -> Result<()> {
    let mut counting = Counting::new();
    let x = data(&[1.0, 2.0]);
    let f = || x.cos()?.add(&x)?.to_vec::<f32>();
    let before = f()?;
    clear_cache()?;
    assert_eq!(cache_stats()?.cached_kernels, 0);
    counting.restart();
    assert_eq!(f()?, before);
    assert_eq!(counting.compiles(), 1);
    Ok(())
}

#[test]
fn a_hundred_thousand_steps_run_in_constant_memory() -> Result<()> {
    let mut counting = Counting::new();
    let scope = Scope::new();
    let mut x = data(&[0.0; 8]);
    let mut in_use = 0;
    for step in 0..100_000 {
        x = x.mul(0.25)?.add(1.5)?;
        x.eval()?;
        if step == 1000 {
            in_use = cache_stats()?.memory_bytes;
            counting.restart();
        }
    }
    assert_eq!(cache_stats()?.memory_bytes, in_use);
    assert_eq!(scope.graph().live().len(), 1);
    assert_eq!(counting.compiles(), 0);
    assert_eq!(x.to_vec::<f32>()?, [2.0; 8]);
    Ok(())
}

#[test]
fn steps_started_and_never_read_keep_no_history() -> Result<()> {
    let _counting = Counting::new();
    let scope = Scope::new();
    let mut x = data(&[0.0; 8]);
    let in_use = cache_stats()?.memory_bytes;
    for step in 0..10_000 {
        x = x.add(1.0)?;
        async_eval([&x])?;
        if step % 100 == 99 {
            x.eval()?;
        }
    }
    assert_eq!(x.to_vec::<f32>()?, [10_000.0; 8]);
    assert_eq!(scope.graph().live().len(), 1);
    assert_eq!(cache_stats()?.memory_bytes, in_use);
    Ok(())
}

#[test]
fn starting_returns_before_the_work_is_done_and_reading_waits() -> Result<()> {
    let _counting = Counting::new();
    let x = Tensor::from_slice(&vec![1.0f32; 512 * 512], [512, 512])?;
    let mut y = x.clone();
    for _ in 0..40 {
        y = y.matmul(&x)?.mul(1.0 / 512.0)?;
    }
    compile_graph([&y])?;
    let start = std::time::Instant::now();
    async_eval([&y])?;
    let started = start.elapsed();
    assert!(y.is_scheduled() && y.is_lazy(), "{y:?}");
    assert_eq!(y.narrow(0, 0, 1)?.max_all()?.item::<f32>()?, 1.0);
    let done = start.elapsed();
    assert!(started < done / 2, "{started:?} of {done:?}");
    assert!(!y.is_lazy());
    Ok(())
}

#[test]
fn two_threads_evaluating_overlapping_graphs_compute_each_node_once() -> Result<()> {
    let mut counting = Counting::new();
    let x = Tensor::from_slice(&vec![0.01f32; 128 * 128], [128, 128])?;
    let record = || -> Result<[Tensor; 3]> {
        let shared = x.matmul(&x)?.matmul(&x)?;
        Ok([shared.clone(), shared.matmul(&x)?, shared.matmul(&x)?])
    };
    let [_shared, a, b] = record()?;
    a.eval()?;
    b.eval()?;
    let alone = counting.launches();
    for _ in 0..50 {
        let [shared, a, b] = record()?;
        counting.restart();
        std::thread::scope(|scope| {
            for t in [&a, &b, &shared] {
                scope.spawn(move || t.eval().unwrap());
            }
        });
        assert_eq!(counting.launches(), alone);
    }
    Ok(())
}

#[test]
fn memory_of_dropped_tensors_is_freed() -> Result<()> {
    let _counting = Counting::new();
    let before = cache_stats()?.memory_bytes;
    let x = Tensor::ones([1000, 100], DType::F32)?;
    let y = x.add(1.0)?.matmul(&x.t()?)?;
    y.eval()?;
    assert!(cache_stats()?.memory_bytes >= before + 4_000_000);
    drop((x, y));
    assert_eq!(cache_stats()?.memory_bytes, before);
    Ok(())
}

/// The number of chunks of one evaluation, and the number of chunks that workers ran.
fn chunks(counting: &mut Counting, record: impl Fn() -> Result<Tensor>) -> Result<(u64, u64)> {
    // Compile the program and evaluate the operands.
    record()?.eval()?;
    let y = record()?;
    counting.restart();
    y.eval()?;
    let counts = cache_stats()?.counts - counting.before.counts;
    Ok((counts.chunks, counts.chunks_of_workers))
}

#[test]
fn kernels_are_divided_into_chunks_within_a_budget_on_any_number_of_threads() -> Result<()> {
    let mut counting = Counting::new();
    let threads = girih::num_threads()?;
    let filled = |shape: &[usize]| Tensor::full(0.5f32, shape, DType::F32)?.eval().cloned();
    let small = filled(&[8, 8])?;
    let (x, y) = (filled(&[1 << 20])?, filled(&[1 << 20])?);
    let rows = filled(&[4096, 1024])?;
    let square = filled(&[1024, 1024])?;
    let mut earlier: Option<[u64; 4]> = None;
    for count in [1, 2, 4, threads] {
        girih::set_num_threads(count)?;
        let of = [
            chunks(&mut counting, || small.add(&small))?,
            chunks(&mut counting, || x.add(&y))?,
            chunks(&mut counting, || rows.softmax(-1))?,
            chunks(&mut counting, || square.matmul(&square))?,
        ];
        // A kernel that is not divided need not pass through the pool.
        assert!(of[0].0 <= 1 && of[0].1 == 0, "64 elements are one chunk: {of:?}");
        for (chunks, of_workers) in of {
            assert!(of_workers <= chunks && (count > 1 || of_workers == 0), "{of:?}");
        }
        let chunks = of.map(|(chunks, _)| chunks);
        // Chunks take 3 to 20 microseconds by estimate, whatever the number of threads.
        assert!((8..=256).contains(&chunks[1]), "x + y of 4 MB: {chunks:?}");
        assert!((16..=4096).contains(&chunks[2]), "at most one group per row: {chunks:?}");
        assert!((4..=4096).contains(&chunks[3]), "1024^3 multiplications: {chunks:?}");
        assert_eq!(*earlier.get_or_insert(chunks), chunks, "{count} threads");
    }
    girih::set_num_threads(threads)
}
