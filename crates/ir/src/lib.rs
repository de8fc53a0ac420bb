//! Girih's graph layer: what a value is ([`TensorSpec`]), what can be done to it ([`Op`], defined
//! once each in [`ops`]), and closed [`Graph`]s of such ops with their canonical encoding, verifier
//! and text form.
//!
//! This crate knows nothing of memory, devices, kernels or front ends: a graph never holds data.
//! Only the [`mod@reference`] evaluator computes, to say what the ops mean, with [`complex`],
//! [`special`], [`random`] and [`linalg`], which it shares with the executors.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod builder;
pub mod canonical;
pub mod complex;
pub mod dim;
pub mod dot;
pub mod dtype;
pub mod error;
pub mod factors;
pub mod graph;
pub mod hints;
pub mod html;
pub mod index_map;
pub mod linalg;
pub mod ops;
pub mod pfgb;
pub mod random;
pub mod reference;
mod rewrite;
pub mod shape;
mod source;
pub mod special;
pub mod svg;
pub mod testing;
pub mod text;

pub use builder::GraphBuilder;
pub use canonical::Canonical;
pub use dim::Dim;
pub use dtype::{DType, Literal};
pub use error::{Error, Result};
pub use factors::{Factors, ProgramFactors, ProgramRole};
pub use graph::{Graph, Node, NodeId};
pub use index_map::{IndexMap, Iteration};
pub use ops::{Attrs, AxisSet, Class, Op, OpCode, OpDef, Real};
pub use shape::{MAX_RANK, Shape, TensorSpec};
