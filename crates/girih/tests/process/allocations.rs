//! Tests of the allocations of a cached call: only its results are allocated, however many kernels
//! it runs.

use crate::alone;
use girih::{BoundProgram, Context, Executor, ExecutorConfig, Result, Tensor, TracedProgram};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(mut f: impl FnMut()) -> usize {
    let before = COUNT.get();
    f();
    COUNT.get() - before
}

fn ramp(rows: usize, columns: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i % 11) as f32 * 0.1 - 0.5).collect();
    Tensor::from_slice(&values, [rows, columns]).unwrap()
}

/// Calls a function of `x` until its allocations are steady: the allocations of one more call, and
/// the numbers of its results and kernels.
fn counted(f: fn(&Tensor) -> Result<Vec<Tensor>>) -> (usize, usize, usize) {
    let executor = Executor::new(ExecutorConfig::default()).unwrap();
    let context = Context::current();
    let before = context.swap(context.frame().with_executor(executor.clone()));
    // Large enough for several kernels.
    let x = ramp(128, 128);
    let traced = |given: &[Tensor]| f(&given[0]);
    let program = TracedProgram::trace(&[x.spec()], &[], &[], &[], traced).unwrap().0;
    let bound = BoundProgram::new(Arc::new(program), &[x.spec()]).unwrap();
    let given = [x];
    let results = bound.call(&given).unwrap().len();
    // Take the minimum: the registry of recorded nodes occasionally doubles, and a call that finds
    // the device busy with the previous call's cleanup is queued.
    let call = |_| {
        std::thread::sleep(Duration::from_millis(1));
        allocations(|| drop(bound.call(&given).unwrap()))
    };
    let count = (0..50).map(call).min().unwrap();
    let kernels = executor.cache_stats().cached_kernels;
    context.swap(before);
    (count, results, kernels)
}

#[test]
fn a_cached_call_allocates_its_results_only() {
    let _alone = alone();
    let map = counted(|x| Ok(vec![x.mul(2.0)?.add(1.0)?]));
    // The list of results, and a node and a block per result.
    assert_eq!(map, (3, 1, 1));
    let several = counted(|x| {
        // No matrix products, since other crates allocate for packing.
        let shifted = x.sub(&x.sum_all()?)?.softmax(-1)?;
        let sums = shifted.sum(0)?.sub(&x.max(1)?)?;
        Ok(vec![sums.sub(&sums.sum_all()?)?, x.mean_all()?])
    });
    let (count, results, kernels) = several;
    assert!(kernels >= 4, "{kernels} kernels");
    // One additional block for all temporaries.
    assert_eq!((count, results), (6, 2));
}

#[test]
fn calls_leave_no_device_memory_behind() {
    let _alone = alone();
    let executor = Executor::new(ExecutorConfig::default()).unwrap();
    let context = Context::current();
    let before = context.swap(context.frame().with_executor(executor.clone()));
    let x = ramp(40, 40);
    let f = girih::compile(|x| Ok(vec![x[0].matmul(&x[0])?.softmax(-1)?]));
    let first = f.call(&[&x]).unwrap();
    for _ in 0..100 {
        assert_eq!(f.call(&[&x]).unwrap()[0].to_bytes().unwrap(), first[0].to_bytes().unwrap());
    }
    // `x` and `first` remain. A result is available before its call's temporaries are freed, on the
    // queue's thread.
    let left = 2 * 40 * 40 * size_of::<f32>();
    let patience = Instant::now() + Duration::from_secs(20);
    while executor.cache_stats().memory_bytes != left && Instant::now() < patience {
        std::thread::yield_now();
    }
    assert_eq!(executor.cache_stats().memory_bytes, left);
    context.swap(before);
}
