//! Transforms of closed graphs: reverse-mode and forward-mode derivatives, and batching. Each maps
//! a graph to a graph.
//!
//! Transforms depend on the op registry of `girih-ir` and not on values, devices, passes or front
//! ends. They do not evaluate anything, so they nest to any depth.
#![forbid(unsafe_code)]

mod batch;
mod call;
mod control;
mod effects;
mod error;
mod forward;
mod hosted;
mod linear;
mod outside;
mod padded_slices;
mod reverse;
mod rules;

pub use batch::{BatchAxis, vmap};
pub use effects::results_read;
pub use error::{Error, Result};
pub use forward::{DEAD, Transformed, jvp, linearize};
pub use linear::{NotLinear, check_linear};
pub use outside::{Lifted, lift, lift_control};
pub use reverse::{gradients, vjp};
pub use rules::record_rules;
