//! The virtual clock: the start and end of each unit of work on the engines of the modelled
//! device, independent of the timing of the host's threads.
//!
//! Work starts when the earlier work of its queue is done and an engine is free for its whole
//! duration. Host threads may submit work in another order than the device would run it, so work
//! takes the earliest free gap of an engine.

use std::collections::BTreeMap;
use std::time::Duration;

/// The maximum number of busy intervals per engine. Older gaps are closed, so that neither memory
/// nor search time grows with the device's running time.
const MAX_INTERVALS: usize = 1024;

/// An engine of the device, which runs one unit of work at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Engine {
    /// Copies from the host.
    CopyIn,
    /// Copies to the host.
    CopyOut,
    /// Launches, and copies within the device; the number of these engines is the device's
    /// concurrency.
    Compute(usize),
}

/// A unit of work on the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The queue; `None` for work that a thread waited for.
    pub queue: Option<usize>,
    /// The engine.
    pub engine: Engine,
    /// The name of the program, or the kind of copy.
    pub name: String,
    /// The number of bytes copied.
    pub bytes: usize,
    /// The device addresses of a launch's buffers, in the plan's order; empty for copies.
    pub addresses: Vec<u64>,
    /// The start on the device's clock.
    pub start: Duration,
    /// The end on the device's clock.
    pub end: Duration,
}

/// The description of a unit of work in the log.
#[derive(Default)]
pub(crate) struct Work {
    pub name: String,
    pub bytes: usize,
    pub addresses: Vec<u64>,
}

impl Work {
    pub fn copy(name: &str, bytes: usize) -> Work {
        Work { name: name.into(), bytes, addresses: Vec::new() }
    }
}

/// The timelines of a device's queues and engines.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    /// The end of the last work of each queue.
    queues: BTreeMap<Option<usize>, Duration>,
    /// The busy intervals of each engine, start to end. Adjacent intervals are merged.
    engines: BTreeMap<Engine, BTreeMap<Duration, Duration>>,
    /// The log, if it is enabled.
    pub log: Option<Vec<Slot>>,
}

impl Timeline {
    /// Places work of that length on the engine where it can start first; returns start and end.
    pub fn place(
        &mut self,
        queue: Option<usize>,
        engines: &[Engine],
        length: Duration,
        describe: impl FnOnce() -> Work,
    ) -> (Duration, Duration) {
        let earliest = self.queues.get(&queue).copied().unwrap_or_default();
        let starts =
            engines.iter().map(|&engine| (self.first_gap(engine, earliest, length), engine));
        let (start, engine) = starts.min().expect("a device has an engine for everything");
        let end = start + length;
        self.occupy(engine, start, end);
        self.queues.insert(queue, end);
        if let Some(log) = &mut self.log {
            let Work { name, bytes, addresses } = describe();
            log.push(Slot { queue, engine, name, bytes, addresses, start, end });
        }
        (start, end)
    }

    /// The first time from `earliest` on at which the engine is free for `length`.
    fn first_gap(&self, engine: Engine, earliest: Duration, length: Duration) -> Duration {
        let busy = self.engines.get(&engine).filter(|_| !length.is_zero());
        let Some(busy) = busy else { return earliest };
        let before = busy.range(..=earliest).next_back().map(|(_, &end)| end);
        let mut start = before.map_or(earliest, |end| end.max(earliest));
        for (&next, &end) in busy.range(earliest..) {
            if start + length <= next {
                break;
            }
            start = start.max(end);
        }
        start
    }

    fn occupy(&mut self, engine: Engine, start: Duration, end: Duration) {
        if start == end {
            return;
        }
        let busy = self.engines.entry(engine).or_default();
        let (mut first, mut last) = (start, end);
        if let Some((&before, &before_end)) = busy.range(..=start).next_back()
            && before_end == start
        {
            first = before;
        }
        if let Some(after_end) = busy.remove(&end) {
            last = after_end;
        }
        busy.insert(first, last);
        if busy.len() > MAX_INTERVALS
            && let (Some((start, _)), Some((_, end))) = (busy.pop_first(), busy.pop_first())
        {
            busy.insert(start, end);
        }
    }

    /// The end of a queue's work so far; for `None`, of the work of all queues.
    pub fn clock(&self, queue: Option<usize>) -> Duration {
        match queue {
            Some(_) => self.queues.get(&queue).copied().unwrap_or_default(),
            None => self.queues.values().copied().max().unwrap_or_default(),
        }
    }

    /// Sets the earliest start of the queue's next work.
    pub fn wait_until(&mut self, queue: usize, at: Duration) {
        let clock = self.queues.entry(Some(queue)).or_default();
        *clock = at.max(*clock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn place(timeline: &mut Timeline, queue: usize, engine: Engine, length: u64) -> (u128, u128) {
        let placed = timeline.place(Some(queue), &[engine], us(length), Work::default);
        (placed.0.as_micros(), placed.1.as_micros())
    }

    #[test]
    fn work_of_a_queue_is_in_order_and_queues_overlap_on_different_engines() {
        let mut timeline = Timeline::default();
        let (copy, compute) = (Engine::CopyIn, Engine::Compute(0));
        assert_eq!(place(&mut timeline, 0, copy, 10), (0, 10));
        assert_eq!(place(&mut timeline, 0, compute, 30), (10, 40));
        assert_eq!(place(&mut timeline, 1, copy, 10), (10, 20), "the engine was busy before");
        assert_eq!(place(&mut timeline, 1, compute, 5), (40, 45));
        assert_eq!((timeline.clock(Some(0)), timeline.clock(None)), (us(40), us(45)));
        timeline.wait_until(0, us(45));
        assert_eq!(place(&mut timeline, 0, copy, 10), (45, 55));
        timeline.wait_until(0, us(1));
        assert_eq!(timeline.clock(Some(0)), us(55), "time does not go back");
    }

    #[test]
    fn late_work_fills_gaps_in_the_timeline() {
        let mut timeline = Timeline::default();
        let engine = Engine::Compute(0);
        timeline.wait_until(0, us(100));
        assert_eq!(place(&mut timeline, 0, engine, 10), (100, 110));
        assert_eq!(place(&mut timeline, 1, engine, 60), (0, 60));
        assert_eq!(place(&mut timeline, 1, engine, 41), (110, 151), "too long for the gap");
        assert_eq!(place(&mut timeline, 2, engine, 40), (60, 100));
        assert_eq!(timeline.engines[&engine], BTreeMap::from([(us(0), us(151))]));
        assert_eq!(place(&mut timeline, 3, engine, 0), (0, 0), "no time takes no engine");
    }

    #[test]
    fn the_oldest_gaps_are_closed() {
        let mut timeline = Timeline::default();
        let engine = Engine::Compute(0);
        for i in 0..2 * MAX_INTERVALS as u64 {
            timeline.wait_until(0, us(10 * i));
            assert_eq!(place(&mut timeline, 0, engine, 5).0, 10 * u128::from(i));
        }
        assert_eq!(timeline.engines[&engine].len(), MAX_INTERVALS);
        let (start, _) = place(&mut timeline, 1, engine, 5);
        assert_eq!(start, 10 * MAX_INTERVALS as u128 + 5, "the first gap that is left");
    }

    #[test]
    fn work_goes_to_the_engine_that_is_free_first() {
        let mut timeline = Timeline { log: Some(Vec::new()), ..Timeline::default() };
        let both = [Engine::Compute(0), Engine::Compute(1)];
        for (queue, length) in [(0, 10), (1, 30), (2, 10)] {
            timeline
                .place(Some(queue), &both, us(length), || Work::copy(&format!("work {queue}"), 0));
        }
        let log = timeline.log.unwrap();
        let found: Vec<_> = log.iter().map(|s| (s.engine, s.start, s.name.as_str())).collect();
        let expected =
            [(both[0], us(0), "work 0"), (both[1], us(0), "work 1"), (both[0], us(10), "work 2")];
        assert_eq!(found, expected);
    }
}
