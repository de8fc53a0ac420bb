//! Tests of executors, time limits, eager mode and shape verification. They use counters and modes
//! of a context, so each test has its own executor or thread.

use girih::runtime::Error as RunError;
use girih::{
    Context, DType, Error, Executor, ExecutorConfig, Graph, ReuseScope, Scope, Tensor, TensorState,
    async_eval, cache_stats, compile_only, eval, grad, keepdims,
};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

type Outcome = girih::Result<()>;

fn executor(config: ExecutorConfig) -> Executor {
    Executor::new(config).unwrap()
}

/// Runs `f` on a new thread, with the executor in its context.
fn within(executor: &Executor, f: impl FnOnce() -> Outcome + Send) {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            Context::current().set_executor(executor);
            f().unwrap();
        });
        run.join().unwrap();
    });
}

fn data(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

/// Long computations occupy the device, so their tests are serialised.
static LONG: Mutex<()> = Mutex::new(());

/// A computation that takes seconds, in kernels of milliseconds.
fn long() -> Tensor {
    let x = Tensor::from_slice(&vec![1.0f32 / 1024.0; 1 << 20], [1024, 1024]).unwrap();
    let mut y = x.clone();
    for _ in 0..600 {
        y = y.matmul(&x).unwrap();
    }
    y
}

/// One kernel that takes seconds.
fn long_kernel() -> Tensor {
    let mut y = Tensor::arange(0.0..(1 << 25) as f64, DType::F32).unwrap();
    for _ in 0..40 {
        y = y.sin().unwrap();
    }
    y
}

#[test]
fn cache_counters_are_exact() -> Outcome {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let counts = || {
            let s = run.cache_stats();
            (s.hits, s.misses, s.compiles, s.runs)
        };
        assert_eq!(counts(), (0, 0, 0, 0));
        let x = data(&[1.0, 2.0]);
        let f = |x: &Tensor| x.exp()?.add(x)?.sum_all();
        f(&x)?.eval()?;
        assert_eq!(counts(), (0, 1, 1, 1));
        f(&x)?.eval()?;
        assert_eq!(counts(), (1, 1, 1, 2));
        assert_eq!(run.cache_stats().cached_kernels, 1);
        assert!(run.cache_stats().cache_size_bytes > 0);
        run.clear_cache();
        assert_eq!((run.cache_stats().cached_kernels, run.cache_stats().cache_size_bytes), (0, 0));
        f(&x)?.eval()?;
        assert_eq!(counts(), (1, 2, 2, 3));
        Ok(())
    });
    Ok(())
}

#[test]
fn two_contexts_run_by_their_own_configurations() {
    let cached = executor(ExecutorConfig::default());
    let uncached = executor(ExecutorConfig { use_cache: false, ..ExecutorConfig::default() });
    for run in [&cached, &uncached] {
        within(run, || {
            for _ in 0..3 {
                assert_eq!(data(&[1.0, 2.0]).sin()?.mul(0.0)?.to_vec::<f32>()?, [0.0, 0.0]);
            }
            Ok(())
        });
    }
    assert_eq!((cached.cache_stats().compiles, cached.cache_stats().hits), (1, 2));
    assert_eq!((uncached.cache_stats().compiles, uncached.cache_stats().hits), (3, 0));
    assert_eq!(uncached.cache_stats().cached_kernels, 0);
}

#[test]
fn what_one_executor_computes_another_reads() -> Outcome {
    let (a, b) = (executor(ExecutorConfig::default()), executor(ExecutorConfig::default()));
    let x = data(&[1.0, 2.0]).mul(3.0)?;
    within(&a, || x.eval().map(|_| ()));
    within(&b, || {
        assert_eq!(x.add(1.0)?.to_vec::<f32>()?, [4.0, 7.0]);
        Ok(())
    });
    assert_eq!((a.cache_stats().runs, b.cache_stats().runs), (1, 1));
    Ok(())
}

#[test]
fn unknown_devices_list_the_choices_and_absent_devices_are_unavailable() {
    let with = |device: &str| {
        Executor::new(ExecutorConfig { device: device.into(), ..ExecutorConfig::default() })
    };
    let error = with("toaster").unwrap_err();
    assert!(matches!(error, Error::UnknownDevice { .. }));
    for word in ["toaster", "cpu", "mock"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    for absent in ["simulator", "cs2", "cs3"] {
        // A device that this build lacks is no choice, and the error for it says why.
        assert!(!with("toaster").unwrap_err().to_string().contains(absent));
        let error = with(absent).unwrap_err();
        assert!(matches!(error, Error::DeviceUnavailable { .. }));
        assert!(error.to_string().contains("unavailable"), "{error}");
    }
    for seconds in [0.0, -1.0, f64::NAN] {
        let config = ExecutorConfig { timeout_seconds: seconds, ..ExecutorConfig::default() };
        let error = Executor::new(config).unwrap_err().to_string();
        assert!(error.contains("timeout_seconds") && error.contains(&seconds.to_string()));
    }
}

#[test]
fn executing_gives_outputs_by_number_and_times() -> Outcome {
    let run = executor(ExecutorConfig::default());
    let graph = Graph::new();
    let _scope = ReuseScope::new(&graph);
    let x = data(&[1.0, 2.0, 3.0]);
    let shared = x.mul(2.0)?;
    let (a, b) = (shared.add(1.0)?, shared.sum_all()?);
    drop(shared);
    let start = Instant::now();
    let result = run.execute(&graph, &[a.id(), b.id()]);
    let wall = start.elapsed().as_secs_f64() * 1e3;
    assert!(result.success && result.error_message.is_empty(), "{result:?}");
    assert_eq!(result.outputs[&a.id()].to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    assert_eq!(result.outputs[&b.id()].to_vec::<f32>()?, [12.0]);
    assert_eq!(run.cache_stats().runs, 1, "several outputs are one run");
    let times = [result.compile_time_ms, result.transfer_time_ms, result.compute_time_ms];
    assert!(times.iter().all(|t| *t >= 0.0) && times.iter().sum::<f64>() <= wall, "{times:?}");
    assert!(result.compile_time_ms > 0.0);
    assert_eq!(run.execute_single::<f32>(&graph, b.id())?, [12.0]);
    let error = run.execute_single::<i64>(&graph, b.id()).unwrap_err();
    assert!(matches!(error, Error::ElementType { .. }), "{error}");
    Ok(())
}

#[test]
fn compile_time_is_counted_apart_from_runs() -> Outcome {
    let run = executor(ExecutorConfig { profile: true, ..ExecutorConfig::default() });
    within(&run, || {
        assert_eq!(run.cache_stats().compile_time, Duration::ZERO);
        let x = data(&[1.0, 2.0, 3.0]);
        let start = Instant::now();
        x.mul(2.5)?.cos()?.eval()?;
        let (wall, spent) = (start.elapsed(), run.cache_stats().compile_time);
        let profile = run.profile().unwrap();
        assert!(spent > Duration::ZERO && spent + profile.execution <= wall, "{spent:?} {wall:?}");
        assert!(spent <= profile.optimization + profile.codegen + profile.compile);
        x.mul(2.5)?.cos()?.eval()?;
        assert_eq!(run.cache_stats().compile_time, spent, "a program in the cache costs nothing");

        let double = girih::compile(|x| Ok(vec![x[0].mul(2.0)?.sin()?])).dynamic(0, (0, "n"));
        assert_eq!(double.compile_time(), Duration::ZERO);
        let (mut before, mut total) = (Duration::ZERO, spent);
        for size in [3, 4] {
            double.call(&[&data(&vec![1.0; size])])?;
            let (own, all) = (double.compile_time(), run.cache_stats().compile_time);
            assert!(own > before && all > total, "each size is bound: {own:?} {all:?}");
            assert!(own - before >= all - total, "the function's time includes the lookup");
            (before, total) = (own, all);
            double.call(&[&data(&vec![1.0; size])])?;
            assert_eq!((double.compile_time(), run.cache_stats().compile_time), (own, all));
        }
        assert_eq!(double.num_programs(), 1);
        Ok(())
    });
    Ok(())
}

#[test]
fn a_failed_execution_has_a_message_no_outputs_and_lazy_tensors() -> Outcome {
    let run = executor(ExecutorConfig::default());
    let graph = Graph::new();
    let _scope = ReuseScope::new(&graph);
    let index = Tensor::from_slice(&[0i64, 9], [2])?;
    let bad = data(&[1.0, 2.0]).take(&index, 0)?;
    for _ in 0..2 {
        let result = run.execute(&graph, &[bad.id()]);
        assert!(!result.success && result.outputs.is_empty());
        assert!(result.error_message.starts_with("Execution failed: "), "{result:?}");
        let line = format!("{}:", file!());
        for word in ["take", &format!("node {}", bad.id()), &line, "9", "2"] {
            assert!(result.error_message.contains(word), "{word}: {}", result.error_message);
        }
        assert_eq!(bad.state(), TensorState::Lazy);
    }
    let result = run.execute(&graph, &[9999]);
    assert!(!result.success && result.error_message.contains("9999"), "{result:?}");
    Ok(())
}

#[test]
fn compiling_only_warms_the_cache() -> Outcome {
    let run = executor(ExecutorConfig::default());
    let graph = Graph::new();
    let _scope = ReuseScope::new(&graph);
    let x = data(&[1.0, 2.0, 3.0]);
    let y = x.mul(2.0)?.cos()?;
    assert!(run.compile_only(&graph, &[])?);
    assert!(!run.compile_only(&graph, &[y.id()])?, "it is in the cache");
    assert_eq!((run.cache_stats().runs, run.cache_stats().compiles), (0, 1));
    let result = run.execute(&graph, &[y.id()]);
    assert!(result.success);
    assert_eq!((run.cache_stats().compiles, run.cache_stats().runs), (1, 1));
    Ok(())
}

#[test]
fn profiling_times_six_stages_and_every_kernel() {
    let run = executor(ExecutorConfig { profile: true, ..ExecutorConfig::default() });
    within(&run, || {
        let x = Tensor::from_slice(&vec![0.1f32; 256 * 256], [256, 256])?;
        x.matmul(&x)?.matmul(&x)?.sum_all()?.eval()?;
        let profile = run.profile().unwrap();
        let names: Vec<&str> = profile.stages().iter().map(|s| s.0).collect();
        let six = ["extraction", "optimization", "codegen", "compile", "execution", "store"];
        assert_eq!(names, six);
        assert!(profile.stages().iter().all(|(_, time)| *time > Duration::ZERO), "{profile:?}");
        assert_eq!(profile.kernels.len() as u64, run.cache_stats().launches);
        let kernels: Duration = profile.kernels.iter().map(|k| k.1).sum();
        assert!(kernels <= profile.execution, "{profile:?}");
        assert!(profile.kernels.iter().any(|(name, _)| name.contains("matmul")), "{profile:?}");
        Ok(())
    });
    let quiet = executor(ExecutorConfig::default());
    within(&quiet, || data(&[1.0]).neg()?.eval().map(|_| ()));
    assert_eq!(quiet.profile(), None);
}

#[test]
fn a_run_that_takes_too_long_fails_and_leaves_everything_usable() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let config = ExecutorConfig { timeout_seconds: 0.05, ..ExecutorConfig::default() };
    let run = executor(config);
    for make in [long as fn() -> Tensor, long_kernel] {
        within(&run, || {
            let y = make();
            let start = Instant::now();
            let error = eval([&y]).unwrap_err();
            assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
            let Error::Evaluation { source, .. } = &error else { panic!("{error}") };
            assert!(matches!(**source, RunError::Timeout { .. }), "{error}");
            assert!(error.to_string().contains("0.05 s"), "{error}");
            assert_eq!(y.state(), TensorState::Lazy, "it may be tried again");
            assert_eq!(data(&[1.0]).add(1.0)?.to_vec::<f32>()?, [2.0]);
            Ok(())
        });
    }
}

#[test]
fn cancelling_ends_running_and_queued_work_and_no_later_work() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let run = executor(ExecutorConfig::default());
    let queued = long();
    within(&run, || {
        let y = long();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Cancel repeatedly: on a busy machine the first call may come before the run has
            // started.
            let canceller = scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(100));
                    run.cancel_all();
                }
            });
            let start = Instant::now();
            let outcome = eval([&y]);
            ended.store(true, Ordering::Relaxed);
            let error = outcome.unwrap_err().to_string();
            assert!(error.contains("cancelled"), "{error}");
            assert!(start.elapsed() < Duration::from_secs(5));
            canceller.join().unwrap();
        });
        assert_eq!(y.state(), TensorState::Lazy);
        async_eval([&queued])?;
        while queued.state() != TensorState::Scheduled {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(50));
        run.cancel_all();
        let start = Instant::now();
        while queued.state() == TensorState::Scheduled {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(queued.state(), TensorState::Lazy);
        assert_eq!(data(&[1.0]).add(1.0)?.to_vec::<f32>()?, [2.0]);
        Ok(())
    });
}

/// A graph that takes long to compile: many kernels that cannot be fused.
fn wide(n: usize) -> Tensor {
    let x = Tensor::from_slice(&[0.01f32; 16], [4, 4]).unwrap();
    let mut y = x.clone();
    for i in 0..n {
        y = y.matmul(&x).unwrap().add(i as f64 + 0.5).unwrap().exp().unwrap();
    }
    y
}

#[test]
fn starting_an_evaluation_does_not_wait_for_its_compilation() {
    let _alone = LONG.lock().unwrap_or_else(PoisonError::into_inner);
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let reference = wide(3000);
        let start = Instant::now();
        reference.eval()?;
        let waited = start.elapsed();
        run.clear_cache();
        let y = wide(3000);
        let start = Instant::now();
        async_eval([&y])?;
        let blocked = start.elapsed();
        assert!(blocked < waited / 2, "blocked {blocked:?}, evaluation takes {waited:?}");
        assert_eq!(y.state(), TensorState::Scheduled);
        assert_eq!(y.to_bytes()?, reference.to_bytes()?);
        Ok(())
    });
}

#[test]
fn compiling_in_the_background_warms_the_cache() {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let y = wide(100);
        let compilation = compile_only([&y])?;
        compilation.wait()?;
        assert!(compilation.done());
        assert_eq!((run.cache_stats().compiles, run.cache_stats().runs), (1, 0));
        y.eval()?;
        assert_eq!((run.cache_stats().compiles, run.cache_stats().runs), (1, 1));
        Ok(())
    });
}

#[test]
fn a_background_failure_is_raised_by_the_next_read() {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let index = Tensor::from_slice(&[5i64], [1])?;
        let bad = data(&[1.0, 2.0]).take(&index, 0)?.exp()?;
        async_eval([&bad])?;
        let error = bad.to_vec::<f32>().unwrap_err().to_string();
        assert!(error.contains('5') && error.contains("take"), "{error}");
        Ok(())
    });
}

#[test]
fn the_order_of_targets_does_not_change_the_program() {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let pair = |k: f32| -> girih::Result<(Tensor, Tensor)> {
            let (x, y) = (data(&[1.0 * k, 2.0 * k]), data(&[10.0, 20.0]));
            let t = x.mul(&y)?;
            Ok((t.exp()?, y.sub(&t)?))
        };
        let (a, b) = pair(0.1)?;
        eval([&a, &b])?;
        for _ in 0..2 {
            let (a, b) = pair(0.2)?;
            eval([&b, &a])?;
            assert_eq!(b.to_vec::<f32>()?, [10.0 - 0.2f32 * 10.0, 20.0 - 0.4f32 * 20.0]);
            assert!((a.to_vec::<f32>()?[0] - 2f32.exp()).abs() < 1e-4);
        }
        assert_eq!((run.cache_stats().compiles, run.cache_stats().hits), (1, 2));
        assert_eq!(run.cache_stats().misses, 1);
        Ok(())
    });
}

#[test]
fn compiling_a_graph_runs_the_passes_once() {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let x = data(&[1.0, 2.0]);
        let info = girih::compile_graph([&x.sin()?.mul(&x)?])?;
        assert_eq!((info.num_kernels, info.num_nodes), (1, 3));
        assert!(info.kernels.contains("sin"), "{}", info.kernels);
        assert_eq!(run.cache_stats().compiles, 1);
        Ok(())
    });
}

#[test]
fn eager_mode_computes_as_it_records_with_the_same_numbers_and_gradients() {
    let step = || -> girih::Result<(Tensor, Vec<Tensor>)> {
        girih::random::manual_seed(3);
        let x = Tensor::randn([5, 4], DType::F32)?;
        let w = Tensor::randn([4, 3], DType::F32)?;
        let f = |w: &[Tensor]| -> girih::Result<Tensor> {
            let h = x.matmul(&w[0])?.mul(0.3)?.gelu()?;
            h.softmax(1)?.mul(&h)?.sum_all()
        };
        Ok((f(std::slice::from_ref(&w))?, grad(f)(&[w])?))
    };
    let (value, gradients) = step().unwrap();
    let expected = (value.to_bytes().unwrap(), gradients[0].to_bytes().unwrap());
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let context = Context::current();
        let scope = Scope::new();
        context.set_eager(true);
        let x = data(&[1.0, 2.0]);
        let before = run.cache_stats().runs;
        let y = x.add(1.0)?;
        assert_eq!(run.cache_stats().runs - before, 1);
        assert_eq!(y.state(), TensorState::Available);
        assert_eq!(y.op_name(), "add");
        assert!(scope.graph().dump().contains("= add -> f32[2] (available)"));
        let before = run.cache_stats().runs;
        y.to_vec::<f32>()?;
        assert_eq!(run.cache_stats().runs, before, "reading runs nothing");
        let recorded = scope.graph().num_nodes();
        let (value, gradients) = step()?;
        assert!(scope.graph().num_nodes() > recorded + 10);
        assert_eq!((value.to_bytes()?, gradients[0].to_bytes()?), expected);
        // A failing op returns its error where it is recorded.
        let index = Tensor::from_slice(&[7i64], [1])?;
        let error = x.take(&index, 0).unwrap_err().to_string();
        assert!(error.contains('7'), "{error}");
        context.set_eager(false);
        assert_eq!(x.add(2.0)?.state(), TensorState::Lazy);
        Ok(())
    });
}

#[test]
fn shape_verification_accepts_correct_graphs() {
    let run = executor(ExecutorConfig::default());
    within(&run, || {
        let context = Context::current();
        context.set_verify_shapes(true);
        assert!(context.verify_shapes()?);
        let x = Tensor::arange(0.0..24.0, DType::F32)?.reshape([2, 3, 4])?;
        let y = x.mean(keepdims(1))?.layer_norm(1, None, None, 1e-5)?.softmax(2)?;
        let z = y.matmul(&x.t()?.reshape([2, 4, 3])?)?.argmax(1)?;
        eval([&y, &z])?;
        Ok(())
    });
}

#[test]
fn unrealized_tensors_are_listed_without_being_kept_alive() -> Outcome {
    let scope = Scope::new();
    let x = data(&[1.0, 2.0]);
    let y = x.add(1.5)?;
    let z = y.mul(&y)?;
    let names =
        || -> Vec<&str> { scope.graph().unrealized().iter().map(|t| t.op_name()).collect() };
    assert_eq!(names(), ["add", "mul"]);
    assert_eq!((y.state(), x.state()), (TensorState::Lazy, TensorState::Available));
    assert_eq!(TensorState::Lazy.to_string(), "lazy");
    y.eval()?;
    assert_eq!(names(), ["mul"]);
    drop(z);
    assert!(names().is_empty());
    Ok(())
}

#[test]
fn the_process_has_an_executor_of_its_own() -> Outcome {
    let run = Context::current().executor()?;
    assert_eq!(*run.config(), ExecutorConfig::default());
    data(&[1.0]).add(0.5)?.eval()?;
    assert!(cache_stats()?.runs > 0);
    Ok(())
}

#[test]
fn user_passes_run_in_evaluations_of_their_executor() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    // Multiply by two, so that the results show whether the pass ran.
    let doubled = girih::pass::graph_pass("doubled", |program| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        let rewritten = program.rewrite(|node, x| match node.op {
            "sqrt" => x[0].sqrt()?.mul(2.0).map(Some),
            _ => Ok::<_, Error>(None),
        });
        rewritten.map(Some)
    });
    let wrong = girih::pass::graph_pass("wrong", |program| {
        let x = program.inputs().remove(0).id;
        let mut program = program.clone();
        program.graph_mut().set_outputs([x]);
        Ok(Some(program))
    });
    let with = |pass: &Arc<dyn girih::pass::Pass>| {
        executor(ExecutorConfig { passes: vec![pass.clone()], ..ExecutorConfig::default() })
    };
    let x = data(&[1.0, 4.0]);
    within(&with(&doubled), || {
        for _ in 0..3 {
            assert_eq!(x.sqrt()?.to_vec::<f32>()?, [2.0, 4.0]);
        }
        // The recorded graph is differentiated, and the pass rewrites the square root in the
        // gradient.
        let by = grad(|x| x[0].sqrt()?.sum_all())(std::slice::from_ref(&x))?;
        assert_eq!(by[0].to_vec::<f32>()?, [0.25, 0.125]);
        Ok(())
    });
    assert_eq!(ASKED.load(Ordering::Relaxed), 2, "it is asked once for each program");
    within(&executor(ExecutorConfig::default()), || {
        assert_eq!(x.sqrt()?.to_vec::<f32>()?, [1.0, 2.0]);
        Ok(())
    });
    within(&with(&wrong), || {
        let y = x.sum_all()?;
        let error = y.eval().unwrap_err().to_string();
        assert!(error.contains("wrong") && error.contains("f32[2]"), "{error}");
        assert!(y.is_lazy());
        Ok(())
    });
}
