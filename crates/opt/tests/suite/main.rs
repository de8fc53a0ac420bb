//! The tests of the passes as one program.

mod common;
mod control;
mod golden;
mod loop_motion;
mod properties;
mod registry;
