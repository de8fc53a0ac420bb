//! Girih's graph layer: values ([`TensorSpec`]), ops ([`Op`], each defined once in [`ops`]), and
//! closed [`Graph`]s of ops with their canonical encoding, verifier and text form.
//!
//! This crate depends on no other crate of Girih except `girih_sync`, for its locks. It is
//! independent of memory, devices, kernels and front ends, and a graph never holds data. [`scalar`]
//! defines the meaning of the elementwise ops on one element, with [`complex`], [`special`] and
//! [`random`], which the executors use as well; the reference evaluator (`girih-reference`) defines
//! the meaning of graphs.
#![forbid(unsafe_code)]

pub mod agreement;
pub mod array;
pub mod builder;
pub mod canonical;
pub mod complex;
pub mod dim;
pub mod dot;
pub mod dtype;
mod element;
pub mod error;
pub mod factors;
pub mod graph;
pub mod hints;
pub mod html;
pub mod index_map;
mod key;
pub mod ops;
pub mod pfgb;
pub mod random;
mod rewrite;
pub mod scalar;
pub mod shape;
pub mod sharding;
mod source;
pub mod special;
pub mod svg;
pub mod testing;
pub mod text;
mod traffic;

pub use array::Array;
pub use builder::GraphBuilder;
pub use canonical::Canonical;
pub use dim::Dim;
pub use dtype::{DType, Literal};
pub use element::Element;
pub use error::{Error, GivenIndex, Result};
pub use factors::{Factors, ProgramFactors, ProgramRole};
pub use graph::{Graph, Node, NodeId};
pub use index_map::{IndexMap, Iteration};
pub use ops::target::DecompositionTarget;
pub use ops::{Attrs, AxisSet, Class, Op, OpCode, OpDef, Real};
pub use shape::{MAX_RANK, Shape, TensorSpec};
pub use sharding::{AxisRef, DeviceMesh, DimSpec, P, Sharding};
pub use traffic::Traffic;
