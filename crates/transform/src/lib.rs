//! Transforms of closed graphs: programs in, programs out. Reverse-mode and
//! forward-mode derivatives, and batching.
//!
//! Transforms know the op registry of `girih-ir` and nothing else: no values, devices, passes or
//! front ends. What they write is as lazy as what they read, so they nest to any depth.
#![forbid(unsafe_code)]

mod batch;
mod call;
mod control;
mod error;
mod forward;
mod hosted;
mod linear;
mod outside;
mod pieces;
mod reverse;
mod rules;

pub use batch::{BatchAxis, vmap};
pub use error::{Error, Result};
pub use forward::{DEAD, Transformed, jvp, linearize};
pub use linear::{NotLinear, check_linear};
pub use outside::{Lifted, lift, lift_control};
pub use reverse::{gradients, vjp};
pub use rules::record_rules;
