//! The tests of the host device from outside, as one program.

mod conformance;
mod kernels;
mod stored;
