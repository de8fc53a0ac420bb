//! The passes, one module for each.

mod branch;
mod cse;
mod dead_code;
mod decompose;
mod fold;
mod isolate;
mod log_softmax;
mod loop_motion;
mod matmul_chain;
mod prune;
mod simplify;

pub use branch::Branch;
pub use cse::Cse;
pub use dead_code::{DeadCode, drop_unused_arguments};
pub use decompose::Decompose;
pub use fold::Fold;
pub use isolate::Isolate;
pub use log_softmax::LogSoftmax;
pub use loop_motion::LoopMotion;
pub use matmul_chain::MatmulChain;
pub use prune::Prune;
pub use simplify::{Rule, Simplify};
