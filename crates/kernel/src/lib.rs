//! Girih's kernel layer: lowers a closed graph of primitives to a [`KernelProgram`] of [`Kernel`]s, loop
//! nests over iteration spaces whose operands are accessed through affine index maps. The verifier,
//! the text form, the portable executor (`girih-exec`) and every code generator use this one
//! definition.
//!
//! This crate runs no kernel, and does not depend on devices, streams or allocation: buffers are
//! numbers here.

pub mod c;
pub mod control;
pub mod custom;
mod dead;
mod estimate;
pub mod fuse;
pub mod ir;
pub mod place;
pub mod target;
pub mod text;
pub mod verify;

pub use control::Control;
pub use custom::KernelTemplate;
pub use fuse::{Explained, FusionOptions, LowerError, Refusal, Refused, lower, lower_explained};
pub use ir::{
    Access, AccessId, Block, Buffer, BufferId, BufferKind, Core, GemmDims, Inst, Item, Kernel,
    KernelProgram, Local, ReduceOp, Routine, RowwiseCore, Store, Val,
};
pub use target::Target;
