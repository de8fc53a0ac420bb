//! Tests of partitioned programs against the reference evaluator.

mod ops;
mod page;
mod programs;
mod simulator;
mod transformer;
