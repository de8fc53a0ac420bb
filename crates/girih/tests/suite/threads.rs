//! Tests of several threads: nothing hangs, nothing is lost, and all threads read the same values.

use girih::{DType, Error, Result, Tensor, async_eval, eval};
use std::sync::Barrier;
use std::sync::mpsc;
use std::time::Duration;

/// Fails instead of hanging.
fn within_a_minute(f: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        f();
        let _ = sender.send(());
    });
    match receiver.recv_timeout(Duration::from_secs(60)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        _ => thread.join().unwrap(),
    }
}

/// A chain of nodes, each of which is an operand of the next.
fn ladder(x: &Tensor, rungs: usize) -> Vec<Tensor> {
    let mut nodes = vec![x.clone()];
    for i in 0..rungs {
        nodes.push(nodes[i].mul(0.75).unwrap().add(&nodes[i / 2]).unwrap());
    }
    nodes
}

#[test]
fn threads_that_wait_and_threads_that_do_not_never_wait_for_each_other_in_a_circle() {
    within_a_minute(|| {
        let x = Tensor::from_slice(&[1.0f64; 16], [16]).unwrap();
        let expected: Vec<Vec<f64>> = ladder(&x, 12).iter().map(|t| t.to_vec().unwrap()).collect();
        for round in 0..150 {
            let nodes = ladder(&x, 12);
            let barrier = Barrier::new(4);
            std::thread::scope(|scope| {
                for thread in 0..4usize {
                    let (nodes, expected, barrier) = (&nodes, &expected, &barrier);
                    scope.spawn(move || {
                        barrier.wait();
                        for i in 0..nodes.len() {
                            let i = (i * (2 * thread + 1) + round) % nodes.len();
                            if thread % 2 == 0 {
                                async_eval([&nodes[i]]).unwrap();
                            }
                            assert_eq!(nodes[i].to_vec::<f64>().unwrap(), expected[i]);
                        }
                    });
                }
            });
        }
    });
}

#[test]
fn failures_of_one_thread_do_not_reach_other_threads() {
    within_a_minute(|| {
        let x = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        let indices = Tensor::from_slice(&[5i64], [1]).unwrap();
        for _ in 0..100 {
            let shared = x.exp().unwrap();
            let bad = shared.take(&indices, 0).unwrap();
            let good = shared.add(1.0).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        let error = eval([&bad, &shared]).unwrap_err();
                        assert!(matches!(error, Error::Evaluation { .. }), "{error}");
                    });
                    scope.spawn(|| {
                        async_eval([&bad]).unwrap();
                        good.eval().unwrap();
                    });
                }
            });
            assert!(bad.is_lazy() && !good.is_lazy());
            assert_eq!(shared.to_vec::<f32>().unwrap().len(), 2);
        }
    });
}

#[test]
fn a_tensor_recorded_by_one_thread_is_evaluated_differentiated_and_dropped_by_others() -> Result<()>
{
    let x = Tensor::from_slice(&[3.0f32], [1])?;
    let y = std::thread::spawn(move || x.mul(&x).map(|y| (x, y))).join().unwrap()?;
    let (x, y) = y;
    let gradient = std::thread::spawn(move || {
        let f = girih::grad(|p| p[0].mul(&y)?.sum_all());
        f(&[x]).map(|mut g| g.remove(0))
    });
    assert_eq!(gradient.join().unwrap()?.to_vec::<f32>()?, [9.0]);
    let mut long = Tensor::ones([1], DType::F32)?;
    for _ in 0..100_000 {
        long = long.add(1.5)?;
    }
    std::thread::Builder::new()
        .stack_size(1 << 16)
        .spawn(move || drop(long))
        .unwrap()
        .join()
        .unwrap();
    Ok(())
}
