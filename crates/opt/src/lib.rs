//! Optimisation of closed graphs: passes that give an equal program that is no worse, and the
//! manager that runs them to a fixed point.
//!
//! Passes know the op registry of `girih-ir` and nothing of devices, kernels or front ends. They
//! never change a graph they are given, so handles into it stay valid. Each pass states its laws in
//! its module: that it never makes a program worse, why it terminates, and how exact it is.
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
