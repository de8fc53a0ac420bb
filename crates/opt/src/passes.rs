//! The passes, one module each.

mod cse;
mod dead_code;
mod decompose;
mod fold;
mod log_softmax;
mod matmul_chain;
mod simplify;

pub use cse::Cse;
pub use dead_code::{DeadCode, drop_unused_arguments};
pub use decompose::Decompose;
pub use fold::Fold;
pub use log_softmax::LogSoftmax;
pub use matmul_chain::MatmulChain;
pub use simplify::{Rule, Simplify};
