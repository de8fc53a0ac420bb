//! Policies: the order in which a scheduler serves the queues of a device.

use std::fmt;
use std::str::FromStr;

/// A queue that [`Policy::Priority`] has skipped this often is served next, to avoid starvation.
pub const MAX_SKIPS: u32 = 64;
/// The same limit for [`Policy::DrainOneFirst`]; it is larger, because draining a queue takes many
/// turns.
pub const MAX_DRAINED: u32 = 1024;

/// The choice between queues with ready work. Within a queue, the order is always first in, first
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// One submission per queue, cyclically, whatever the priorities.
    RoundRobin,
    /// The queue with the lowest priority number first, queues of equal priority cyclically: without
    /// priorities, as `RoundRobin`. A submission of another queue lets the urgent one go first after
    /// each primitive. A queue that was skipped [`MAX_SKIPS`] times is served next, to avoid
    /// starvation.
    #[default]
    Priority,
    /// The last served queue, while it has ready work; then the next queue cyclically. A queue that
    /// was skipped [`MAX_DRAINED`] times is served next, to avoid starvation.
    DrainOneFirst,
    /// A random queue, by a generator with that seed. The same seed gives the same order if work is
    /// enqueued under [`crate::Scheduler::hold`] and one submission runs at a time. For tests.
    Random(u64),
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::RoundRobin => f.write_str("round_robin"),
            Policy::Priority => f.write_str("priority"),
            Policy::DrainOneFirst => f.write_str("drain_one_first"),
            Policy::Random(seed) => write!(f, "random:{seed}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        match text {
            "round_robin" => Ok(Policy::RoundRobin),
            "priority" => Ok(Policy::Priority),
            "drain_one_first" => Ok(Policy::DrainOneFirst),
            _ => {
                let seed = text.strip_prefix("random:").and_then(|seed| seed.parse().ok());
                seed.map(Policy::Random).ok_or_else(|| {
                    format!(
                        "{text:?} is no scheduling policy: expected round_robin, priority, \
                         drain_one_first, or random:SEED"
                    )
                })
            }
        }
    }
}

/// A queue with ready work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub index: usize,
    pub priority: i32,
    /// The number of times that it was skipped since it was last served.
    pub skips: u32,
}

/// The state of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    policy: Policy,
    last: Option<usize>,
    random: u64,
}

impl Turn {
    pub fn new(policy: Policy) -> Turn {
        let random = if let Policy::Random(seed) = policy { seed } else { 0 };
        Turn { policy, last: None, random }
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// The next queue to serve; `ready` has the queues with ready work in ascending order of their
    /// numbers.
    pub fn next(&mut self, ready: &[Candidate]) -> Option<usize> {
        let chosen = match self.policy {
            _ if ready.is_empty() => return None,
            Policy::RoundRobin => self.in_turn(ready),
            Policy::DrainOneFirst => {
                let starving = ready.iter().filter(|c| c.skips >= MAX_DRAINED);
                let starving: Vec<_> = starving.copied().collect();
                match self.last {
                    _ if !starving.is_empty() => self.in_turn(&starving),
                    Some(last) if ready.iter().any(|c| c.index == last) => last,
                    _ => self.in_turn(ready),
                }
            }
            Policy::Priority => {
                let urgent = |c: &&Candidate| (c.skips < MAX_SKIPS, c.priority);
                let first = ready.iter().map(|c| urgent(&c)).min()?;
                let equals: Vec<_> = ready.iter().filter(|c| urgent(c) == first).copied().collect();
                self.in_turn(&equals)
            }
            Policy::Random(_) => ready[self.draw() as usize % ready.len()].index,
        };
        self.last = Some(chosen);
        Some(chosen)
    }

    /// The first queue after the last served one, cyclically. `ready` is not empty.
    fn in_turn(&self, ready: &[Candidate]) -> usize {
        let after = self.last.map_or(0, |last| last + 1);
        ready.iter().find(|c| c.index >= after).unwrap_or(&ready[0]).index
    }

    /// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_names_are_parsed_back() {
        let all = [Policy::RoundRobin, Policy::Priority, Policy::DrainOneFirst, Policy::Random(17)];
        for policy in all {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        for bad in ["", "fifo", "random", "random:", "random:-1"] {
            let error = bad.parse::<Policy>().unwrap_err();
            assert!(error.contains("drain_one_first"), "{error}");
        }
    }
}
