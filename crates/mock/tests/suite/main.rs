//! The tests of the mock devices as one program. The tests of tiled programs, which record the
//! process's trace, are another program.

mod accelerator;
mod conformance;
mod control_flow;
