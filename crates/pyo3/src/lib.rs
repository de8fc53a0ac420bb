//! What front ends in Python share: they record ops with `girih-record`, and each has a tensor type
//! and names of ops of its own. This crate knows neither: a front end registers its class of tensors
//! (`tensors`), and converts imported memory to its type by a trait (`foreign`).
//!
//! The modules: `interpreter` acquires and releases the interpreter; `errors` raises the library's
//! errors; `location` finds the user's line, and `contexts` the scopes of the running task;
//! `sequences`, `scalars` and `protocols` read arguments; `identity` compares Python objects, and
//! `tree` flattens containers of them; `dlpack` and `foreign` share memory with other libraries.

pub mod contexts;
pub mod dlpack;
pub mod errors;
pub mod foreign;
pub mod identity;
pub mod interpreter;
pub mod location;
pub mod protocols;
pub mod scalars;
pub mod sequences;
pub mod tensors;
pub mod tree;
