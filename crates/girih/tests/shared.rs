//! The facade's tests that may share a process, as one program. A test that uses process-wide state
//! has a `[[test]]` of its own in `Cargo.toml`.

mod apply;
mod collectives;
mod custom;
mod errors;
mod indexing;
mod io;
mod lifetime;
mod networks;
mod nodes;
mod operators;
mod programs;
mod properties;
mod rules;
mod transforms;
