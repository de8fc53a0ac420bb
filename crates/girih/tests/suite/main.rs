//! The facade's tests that may run at the same time, as one program: each further program links the
//! whole library again. Tests of state that belongs to the process are in other programs.

mod apply;
mod collectives;
mod compiled;
mod control;
mod custom;
mod errors;
mod explain;
mod first;
mod forms;
mod guide;
mod indexing;
mod interchange;
mod io;
mod lifetime;
mod networks;
mod nodes;
mod operators;
mod optimizers;
mod programs;
mod properties;
mod rules;
mod streams;
mod threads;
mod transforms;
mod variables;
