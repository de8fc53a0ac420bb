//! Tests of partitioned programs against the reference evaluator.

mod ops;
mod programs;
mod simulator;
mod transformer;
