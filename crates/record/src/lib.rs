//! The recording engine: what every front end records ops with and computes values by.
//!
//! An op is recorded as a [`Node`] in the graph of the calling thread's [`Context`]. An evaluation
//! cuts the needed part out of the recording, compiles it once per graph structure and runs it on a
//! device. The engine knows the ops of `girih-ir`, and none by a user's name: a front end has a
//! tensor type of its own, which holds a node, and names ops as its users expect. Functions that
//! take nodes from a front end take any type from which a node can be borrowed.
//!
//! The modules from the bottom up; a module uses only modules before it:
//!
//! `dlpack`, `foreign`, `device`, `host`, `statistics`, `location`, `error`, `cpu`, `nested`,
//! `memory`, `background`, `executor`, `devices`, `mesh`, `place`, `node`, `order`, `hints`,
//! `tape`, `axes`, `stream`, `graph`, `context`, `scopes`, `trace`, `placement`, `sharded`, `cut`,
//! `nans`, `eval`, `recorder`.
#![forbid(unsafe_code)]

pub mod axes;
pub mod background;
pub mod context;
pub mod cpu;
pub mod cut;
mod device;
pub mod devices;
pub mod dlpack;
mod error;
pub mod eval;
pub mod executor;
pub mod foreign;
pub mod graph;
pub mod hints;
pub mod host;
pub mod location;
mod memory;
pub mod mesh;
pub mod nans;
pub mod nested;
pub mod node;
pub mod order;
mod place;
pub mod placement;
pub mod recorder;
pub mod scopes;
mod sharded;
pub mod statistics;
pub mod stream;
pub mod tape;
#[cfg(test)]
mod testing;
pub mod trace;

pub use context::Context;
pub use device::Device;
pub use error::{Error, Result, evaluation_error};
pub use node::{Node, State};
pub use place::Place;
