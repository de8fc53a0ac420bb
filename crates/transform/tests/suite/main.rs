//! The tests of the transforms as one program.

mod batch;
mod finite_differences;
mod forward;
mod gradients;
mod linear;
mod support;
mod training_step;
