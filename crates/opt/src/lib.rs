//! Optimisation of closed graphs: passes that return an equivalent program which is no worse, and
//! the pass manager that runs them to a fixed point.
//!
//! Passes depend on the op registry of `girih-ir` and not on devices, kernels or front ends. They
//! never modify their input graph, so ids into it stay valid. Each pass states its laws in its
//! module: it never makes a program worse, why it terminates, and how exact it is.
#![forbid(unsafe_code)]

mod error;
mod manager;
mod options;
pub mod passes;
mod user;

pub use error::{Error, Result};
pub use manager::{MAX_ITERATIONS, Optimized, Pass, PassManager, Stage, optimize};
pub use options::{Law, OptOptions, PassFlag};
pub use user::{register, registered};
