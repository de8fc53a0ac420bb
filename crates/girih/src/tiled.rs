//! Calls of compiled functions tile by tile: a program compiled for tiles runs on larger tensors,
//! which may be in the host's memory and larger than the memory of the device.

use crate::bound::{BoundProgram, Take};
use crate::{Device, Result};
use girih_ir::dim::Symbol;
use girih_ir::{Graph, TensorSpec};
use girih_record::context::Context;
use girih_record::devices;
use girih_record::executor::DeviceExecutor;
use girih_runtime::{
    Argument, HostArray, Remainder, TileArgument, TileOptions, TileResult, TileShape, TiledProgram,
    Value,
};
use girih_sync::{Mutex, OnceLock};
use std::sync::{Arc, PoisonError};

/// How a call of a compiled function runs, in the order in which the ways are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPath {
    /// By a program that was compiled for exactly these sizes before.
    Exact,
    /// By a symbolic program, which is lowered to kernels for these sizes without the passes.
    Symbolic,
    /// By a program for tiles, in that number of launches.
    Tiled(usize),
    /// By a new program: the function is traced or compiled.
    Compiled,
}

impl std::fmt::Display for CallPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CallPath::Exact => f.write_str("exact"),
            CallPath::Symbolic => f.write_str("symbolic"),
            CallPath::Tiled(tiles) => write!(f, "tiled: {tiles} tiles"),
            CallPath::Compiled => f.write_str("compile"),
        }
    }
}

/// The program for tiles of a bound program.
pub(crate) struct TiledCall {
    /// The sizes of a tile.
    sizes: Vec<(&'static Symbol, usize)>,
    /// Computed at the first call; `None` if the program cannot be tiled.
    tile: OnceLock<Option<Tile>>,
    /// The programs of the executors that have run it, with the options of compilation.
    programs: Mutex<Vec<(Key, Arc<TiledProgram>)>>,
}

/// A program that can be tiled.
struct Tile {
    /// The program for a tile.
    graph: Graph,
    /// The specs of the arguments of a call.
    arguments: Vec<TensorSpec>,
    /// The number of tiles of a call.
    count: usize,
}

/// The number of the executor's device, and the options of compilation.
type Key = (u8, girih_runtime::CompileOptions);

/// The most executors and options whose programs are kept.
const MAX_PROGRAMS: usize = 8;

/// Host memory of a value, which the value keeps alive.
struct HostValue {
    value: Value,
    executor: &'static DeviceExecutor,
    size: usize,
}

impl AsRef<[u8]> for HostValue {
    fn as_ref(&self) -> &[u8] {
        self.executor.runtime().device().view(&self.value, self.size).unwrap_or_default()
    }
}

impl TiledCall {
    pub fn new(sizes: Vec<(&'static Symbol, usize)>) -> TiledCall {
        TiledCall { sizes, tile: OnceLock::new(), programs: Mutex::default() }
    }
}

impl BoundProgram {
    /// The number of tiles of a call; `None` if the program cannot be tiled.
    pub(crate) fn count_tiles(&self, tiled: &TiledCall) -> Option<usize> {
        self.tile(tiled).map(|tile| tile.count)
    }

    fn tile<'a>(&self, tiled: &'a TiledCall) -> Option<&'a Tile> {
        tiled.tile.get_or_init(|| self.find_tile(&tiled.sizes)).as_ref()
    }

    /// The program for a tile; `None` if the program has random draws or run-time scalars, or needs
    /// whole axes.
    fn find_tile(&self, sizes: &[(&'static Symbol, usize)]) -> Option<Tile> {
        let tensors = |take: &Take| matches!(take, Take::Given(_) | Take::Held(_));
        if !self.takes().iter().all(tensors) {
            return None;
        }
        let graph = self.program().graph().bind_part(self.sizes(), sizes).ok().flatten()?;
        let arguments = self.whole_specs()?;
        let specs: Vec<&TensorSpec> = arguments.iter().collect();
        let tiling = TileShape::of(&graph).ok()?.tiling(&specs, Remainder::Exact).ok()?;
        Some(Tile { graph, arguments, count: tiling.counts.iter().product() })
    }

    /// The specs of the program's arguments at the sizes of the call.
    fn whole_specs(&self) -> Option<Vec<TensorSpec>> {
        let graph = self.program().graph();
        let spec = |id| {
            let spec = graph.spec(id);
            let shape = spec.shape.bind("compile", spec.dtype, self.sizes()).ok()?;
            Some(TensorSpec { shape, dtype: spec.dtype })
        };
        graph.arguments().map(spec).collect()
    }

    /// Runs the program tile by tile and waits. `None` if it cannot be tiled.
    ///
    /// Errors: those of the launches.
    pub(crate) fn call_tiled(
        &self,
        tiled: &TiledCall,
        arguments: &[Argument],
    ) -> Result<Option<Vec<Value>>> {
        let Some(tile) = self.tile(tiled) else { return Ok(None) };
        let Some(executor) = executor_of(arguments)? else { return Ok(None) };
        let program = self.tiled_program(tiled, tile, &executor)?;
        let mut to_host = false;
        let mut taken = Vec::with_capacity(arguments.len());
        for (argument, spec) in arguments.iter().zip(&tile.arguments) {
            let Some(value) = argument.value() else { return Ok(None) };
            let device = Device::of(value);
            taken.push(if device == executor.device() {
                TileArgument::Device(value.clone(), spec.clone())
            } else {
                to_host = true;
                TileArgument::Host(host_memory(value, device, spec)?, spec.clone())
            });
        }
        let options = TileOptions { to_host, ..TileOptions::default() };
        let runtime = executor.runtime();
        let launched = Context::current().with_runtime_stream(runtime, |stream| {
            let run = runtime.launch_tiled(stream, &program, &taken, options)?;
            run.completion.wait_or_interrupt()?;
            Ok(run.results)
        });
        let results = launched.map_err(|error| self.program().failed(error))?;
        results.into_iter().map(value_of).collect::<Result<_>>().map(Some)
    }

    /// The program for a tile on an executor.
    fn tiled_program(
        &self,
        tiled: &TiledCall,
        tile: &Tile,
        executor: &DeviceExecutor,
    ) -> Result<Arc<TiledProgram>> {
        let options = Context::current().options(executor.runtime());
        let key = (executor.device().index(), options);
        let programs = || tiled.programs.lock().unwrap_or_else(PoisonError::into_inner);
        let found = programs().iter().find(|(known, _)| *known == key).map(|(_, p)| p.clone());
        if let Some(found) = found {
            return Ok(found);
        }
        let compiled = executor.runtime().tiled(&tile.graph, options);
        let program = Arc::new(compiled.map_err(|error| self.program().failed(error))?);
        let mut known = programs();
        if known.len() == MAX_PROGRAMS {
            known.remove(0);
        }
        known.push((key, program.clone()));
        Ok(program)
    }
}

/// The executor that runs the tiles: that of the arguments' device, or of the current device if
/// data stream to it from the host. `None` for arguments on several other devices.
fn executor_of(
    arguments: &[Argument],
) -> Result<Option<std::borrow::Cow<'static, DeviceExecutor>>> {
    let context = Context::current();
    let here = context.device();
    let devices = || arguments.iter().filter_map(Argument::value).map(Device::of);
    let streams = devices().all(|device| device == here || device == Device::CPU);
    let target = match devices().next() {
        Some(first) if devices().all(|device| device == first) && first != Device::CPU => first,
        _ if streams => here,
        _ => return Ok(None),
    };
    Ok(Some(context.executor_ref(target)?))
}

/// A value in the host's memory.
fn host_memory(value: &Value, device: Device, spec: &TensorSpec) -> Result<HostArray> {
    let (executor, size) = (devices::executor(device)?, spec.size_bytes());
    let bytes = executor.runtime().device().view(value, size);
    Ok(match bytes {
        Some(_) => Arc::new(HostValue { value: value.clone(), executor, size }),
        // Another owner may write the memory: a copy has one state for all tiles.
        None => {
            let stream = Context::current().runtime_stream(executor.runtime());
            Arc::new(stream.download(value, size)?)
        }
    })
}

/// A result as a value: results in host memory are on the host's device.
fn value_of(result: TileResult) -> Result<Value> {
    match result {
        TileResult::Device(value, _) => Ok(value),
        TileResult::Host(bytes, _) => {
            let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(devices::executor(Device::CPU)?.runtime().upload(&bytes)?)
        }
    }
}
