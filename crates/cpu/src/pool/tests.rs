//! Tests of the pool: every chunk runs once, and errors, cancellation and counts are right.

use super::*;

#[test]
fn every_chunk_runs_once_whatever_the_threads() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads);
        for chunks in [0, 1, 2, 7, 1000] {
            let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..50 {
                let job = |c: usize, _: &mut Scratch| {
                    counts[c].fetch_add(1, Relaxed);
                    Ok(())
                };
                pool.run(chunks, u64::MAX, &job).expect("no chunk fails");
            }
            assert!(counts.iter().all(|c| c.load(Relaxed) == 50));
        }
    }
}

#[test]
fn a_deque_is_claimed_from_both_ends_once() {
    let deque = Deque::default();
    assert_eq!(deque.claim_first(), None);
    deque.offer(7, 3..7);
    assert_eq!((deque.claim_last(6), deque.claim_last(7)), (None, Some(6)));
    assert_eq!((deque.claim_first(), deque.claim_last(7)), (Some(3), Some(5)));
    assert_eq!((deque.claim_first(), deque.claim_first()), (Some(4), None));
    assert_eq!((deque.claim_last(7), deque.epoch()), (None, 7));
    deque.offer(8, 2..2);
    assert_eq!(deque.claim_last(8), None);
}

#[test]
fn each_thread_runs_the_same_chunks_in_every_round() {
    let pool = Pool::new(3);
    let started = AtomicUsize::new(0);
    let mut owners: Vec<Vec<std::thread::ThreadId>> = vec![];
    for round in 1..=20 {
        let threads = Mutex::new(vec![None; 3]);
        let job = |c: usize, _: &mut Scratch| {
            started.fetch_add(1, Relaxed);
            while started.load(Relaxed) < 3 * round {
                std::thread::yield_now();
            }
            lock(&threads)[c] = Some(std::thread::current().id());
            Ok(())
        };
        pool.run(3, u64::MAX, &job).expect("no chunk fails");
        owners.push(lock(&threads).iter().flatten().copied().collect());
    }
    assert!(owners[0].len() == 3 && owners[0][0] == std::thread::current().id());
    assert!(owners.iter().all(|o| *o == owners[0]), "{owners:?}");
}

#[test]
fn chunk_counts_include_the_chunks_of_workers() {
    let of = |threads: usize, chunks: usize, cost_ns: u64| {
        let pool = Pool::new(threads);
        let before = ChunkCounts::of_thread();
        let ids = Mutex::new(vec![]);
        let job = |_: usize, _: &mut Scratch| {
            lock(&ids).push(std::thread::current().id());
            Ok(())
        };
        pool.run(chunks, cost_ns, &job).expect("no chunk fails");
        let own = std::thread::current().id();
        let of_workers = lock(&ids).iter().filter(|id| **id != own).count() as u64;
        let expected = ChunkCounts { chunks: chunks as u64, chunks_of_workers: of_workers };
        assert_eq!(ChunkCounts::of_thread() - before, expected);
        of_workers
    };
    for chunks in [0, 1, 2, 1000] {
        assert_eq!(of(1, chunks, u64::MAX), 0);
        assert_eq!(of(3, chunks, 0), 0, "the work is too short to be divided");
        of(3, chunks, u64::MAX);
    }
}

#[test]
fn the_first_error_by_chunk_is_reported_and_panics_are_errors() {
    let pool = Pool::new(3);
    let fail = |c: usize, _: &mut Scratch| match c {
        3.. => Err(ExecError::IndexOutOfBounds { index: c as i128, size: 3 }),
        _ => Ok(()),
    };
    let error = pool.run(40, u64::MAX, &fail);
    assert_eq!(error, Err(ExecError::IndexOutOfBounds { index: 3, size: 3 }));
    let panics = |c: usize, _: &mut Scratch| if c == 5 { panic!("five") } else { Ok(()) };
    assert_eq!(pool.run(9, u64::MAX, &panics), Err(ExecError::Panicked("five".into())));
    assert_eq!(pool.run(9, u64::MAX, &|_, _| Ok(())), Ok(()));
}

#[test]
fn a_watched_job_ends_between_two_chunks() {
    for threads in [1, 3] {
        let (pool, ran) = (Pool::new(threads), AtomicUsize::new(0));
        let control = RunControl::default();
        let job = |c: usize, _: &mut Scratch| {
            ran.fetch_add(1, Relaxed);
            if c == 10 {
                control.cancel();
            }
            Ok(())
        };
        let outcome = watched(&control, || pool.run(1000, u64::MAX, &job));
        assert_eq!(outcome, Err(ExecError::Stopped));
        assert!(ran.load(Relaxed) < 900, "{} chunks ran", ran.load(Relaxed));
        ran.store(0, Relaxed);
        assert_eq!(pool.run(1000, u64::MAX, &job), Ok(()), "unwatched, it is not stopped");
        assert_eq!(ran.load(Relaxed), 1000);
    }
}

#[test]
fn nested_and_concurrent_callers_finish() {
    let pool = Pool::new(4);
    let total = AtomicUsize::new(0);
    let inner = |_: usize, _: &mut Scratch| {
        total.fetch_add(1, Relaxed);
        Ok(())
    };
    let outer = |_: usize, _: &mut Scratch| pool.run(10, u64::MAX, &inner);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| pool.run(20, u64::MAX, &outer).expect("no chunk fails"));
        }
    });
    assert_eq!(total.load(Relaxed), 600);
}

#[test]
fn the_number_of_threads_can_change_at_any_time() {
    let pool = Pool::new(2);
    let count = AtomicUsize::new(0);
    for threads in [1, 4, 0, 3] {
        pool.set_num_threads(threads);
        assert_eq!(pool.num_threads(), threads.max(1));
        let job = |_: usize, _: &mut Scratch| {
            count.fetch_add(1, Relaxed);
            Ok(())
        };
        pool.run(16, u64::MAX, &job).expect("no chunk fails");
    }
    assert_eq!(count.load(Relaxed), 64);
}

#[test]
fn a_pool_that_changes_its_threads_again_and_again_uses_its_teams_again() {
    let pool = Pool::new(1);
    for round in 0..1000 {
        pool.set_num_threads(1 + round % 3);
        assert_eq!(pool.num_threads(), 1 + round % 3);
    }
    assert_eq!(lock(&pool.dismissed).len(), 2, "three teams, of one to three threads");
    let job = |_: usize, _: &mut Scratch| Ok(());
    for round in 0..100 {
        pool.set_num_threads(1 + round % 3);
        pool.run(8, u64::MAX, &job).expect("no chunk fails");
        // Workers end when they are next scheduled.
        let workers = || lock(&pool.dismissed).iter().any(|t| t.running.load(Acquire) > 0);
        while workers() {
            std::thread::yield_now();
        }
    }
    assert_eq!(lock(&pool.dismissed).len(), 2);
}

#[test]
fn a_burst_of_short_jobs_wakes_the_workers() {
    let mut team = Team::new(2);
    team.spin = Duration::from_secs(3600);
    let third = wake_ns().div_ceil(3);
    assert!(!team.has_missed(u64::MAX), "no worker is parked");
    team.parked.store(1, Relaxed);
    assert!(team.all_parked());
    for _ in 0..2 {
        assert_eq!([0; 3].map(|_| team.has_missed(third)), [false, false, true]);
    }
    // Jobs that are far from each other are no burst.
    team.spin = Duration::ZERO;
    assert!((0..10).all(|_| !team.has_missed(third)));
}
