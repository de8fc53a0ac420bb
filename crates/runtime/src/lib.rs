//! The runtime: devices, memory, queues, compiled plans and their execution. The lower half drives
//! a device: [`DeviceHandle`]s from an [`Allocator`], FIFO [`DeviceQueue`]s of primitive commands,
//! and a [`Scheduler`] that drains the queues. The upper half runs graphs: a [`Stream`] of
//! [`Operation`]s, the [`ExecutionPlan`] that lists the operations of a graph, and the
//! [`PlanExecutor`], which finds a plan in the [`ProgramCache`] or has a [`Backend`] compile one.
//!
//! This crate does not depend on the kernel IR: a compiled binary is opaque here, and only the
//! [`Device`] that it was compiled for interprets it.
#![deny(unsafe_code)]

pub mod allocator;
mod arguments;
pub mod backend;
pub mod buffer;
pub mod cache;
mod call;
pub mod capture;
pub mod chunks;
mod compile;
pub mod control;
pub mod control_flow;
mod defaults;
pub mod device;
pub mod difference;
pub mod disk;
pub mod env;
pub mod error;
pub mod executor;
mod family;
pub mod file;

mod gate;
pub mod handle;
pub mod host;
pub mod layout;
pub mod mesh;
pub mod plan;
pub mod policy;
mod prepacked;
pub mod primitive;
pub mod private;
mod progress;
pub mod queue;
pub mod report;
pub mod scheduler;
pub mod step;
pub mod stream;
pub mod strided;
pub mod symbolic;
#[cfg(test)]
mod testing;
pub mod tile;
pub mod trace;
pub mod transfer;
mod upload;
pub mod value;

pub use allocator::{
    Allocator, Collector, CollectorRegistration, DEFAULT_REGIONS, MemoryStats, PhysicalMemory,
    RegionStats, reserve_regions,
};
pub use backend::{Backend, CompileOptions};
pub use buffer::Buffer;
pub use cache::{CacheStats, CachedPlan, Mapped, ProgramCache};
pub use call::{Times, Values};
pub use capture::{Capture, Captured, Replay};
pub use chunks::ChunkCounts;
pub use control::{InterruptHook, RunControl, WaitHook, set_interrupt_hook, set_wait_hook};
pub use control_flow::HostControlFlow;
pub use device::{
    ArgumentBlock, Binary, DetachedLaunch, Device, Enqueued, Launch, LoadedProgram, Position,
    Primitive, Properties, with_bytes,
};
pub use difference::Lookup;
pub use disk::{DiskCache, DiskEntry, DiskLimits, DiskStats};
pub use error::{Error, NanInside, Result, panic_message};
pub use executor::{Argument, Counters, PlanExecutor};
pub use handle::{DeviceHandle, DeviceId, Place, PoolId};
pub use host::{HostAllocator, HostBlock, HostMemoryPool, HostUnique, PooledBlock};
pub use layout::Strides;
pub use plan::{
    ArgumentSpec, Callee, CompileTimes, ExecutionPlan, LoadedPlan, OutputSpec, Placement, Source,
};
pub use policy::Policy;
pub use prepacked::{PrepackKey, Prepacked};
pub use primitive::{Repeat, Runs};
pub use queue::{Completion, DeviceQueue, Event, EventRecord, HostBytes};
pub use report::{Bottleneck, CompileReport, Listing};
pub use scheduler::{Hold, Scheduler};
pub use step::{HANDLE_BYTES, HostStep, MovingPart, Operands, Operation, Step};
pub use stream::Stream;
pub use strided::Strided;
pub use symbolic::{OptimizedGraph, PlanState, SymbolicGraph};
pub use tile::{
    HostArray, KernelPlan, KernelRun, LaunchPath, Remainder, TileArgument, TileOptions, TileResult,
    TileShape, TileSource, TiledProgram, TiledRun, Tiling,
};
pub use value::Value;
// The layouts that transfers accept.
pub use girih_dist::MeshLayout;
pub use transfer::{TiledTensor, TransferHandle, TransferManager};
