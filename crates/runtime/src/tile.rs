//! Tiled launches: a program compiled for tensors of one size runs on larger tensors tile by tile,
//! without another compilation.
//!
//! The program's factors ([`ProgramFactors`]) say which axes of its arguments and outputs
//! correspond. A factor is tiled if it is larger in the tensors than in the program: tiles of a
//! pointwise factor give parts of the outputs, tiles of a reduced factor give partial outputs that
//! are combined in order. A tile that is not dense in its tensor is copied to a dense block and
//! back. Tensors may also be in host memory, so that a tensor larger than the device's memory
//! streams through the device. Copies of the next tiles overlap the launches of the current tile.

mod kernels;
mod launch;
mod region;

pub use kernels::{KernelPlan, KernelRun, LaunchPath, TileSource};
pub use launch::TiledRun;

use crate::{CachedPlan, CompileOptions, Error, HostBytes, PlanExecutor, Result, Value};
use girih_ir::factors::{AxisFactors, ProgramFactor, ProgramRole};
use girih_ir::{Graph, GraphBuilder, OpCode, ProgramFactors, TensorSpec};
use std::sync::Arc;

/// The treatment of a size that is not a multiple of the tile's size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remainder {
    /// The last tile is smaller and gets a program of its own; if that is not possible, it is
    /// padded.
    #[default]
    Exact,
    /// The last tile's arguments are padded, with the neutral element along reduced factors.
    /// Results of the padding are not written.
    Padded,
    /// Such a size is an error.
    Strict,
}

/// The options of a tiled launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TileOptions {
    /// The treatment of a size that is not a multiple of the tile's size.
    pub remainder: Remainder,
    /// The number of tiles in flight, each with its own blocks. At least 1.
    pub depth: usize,
    /// Whether results are written to host memory, tile by tile.
    pub to_host: bool,
    /// Whether tiles that are not dense in a device tensor are read in place, by a program compiled
    /// for the tensor's strides, instead of from a dense copy.
    pub in_place: bool,
}

impl Default for TileOptions {
    fn default() -> TileOptions {
        TileOptions { remainder: Remainder::default(), depth: 2, to_host: false, in_place: false }
    }
}

/// Host memory with the data of an argument.
pub type HostArray = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A dense, row-major argument of a tiled launch.
#[derive(Clone)]
pub enum TileArgument {
    /// In device memory.
    Device(Value, TensorSpec),
    /// In host memory.
    Host(HostArray, TensorSpec),
}

impl TileArgument {
    /// The shape and dtype.
    pub fn spec(&self) -> &TensorSpec {
        match self {
            TileArgument::Device(_, spec) | TileArgument::Host(_, spec) => spec,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            TileArgument::Device(value, _) => value.size_bytes(),
            TileArgument::Host(bytes, _) => (**bytes).as_ref().len(),
        }
    }
}

/// A result of a tiled launch.
#[derive(Clone, Debug)]
pub enum TileResult {
    /// In device memory.
    Device(Value, TensorSpec),
    /// In host memory.
    Host(HostBytes, TensorSpec),
}

/// The graph of one tile, and how its axes correspond.
pub struct TileShape {
    graph: Graph,
    factors: ProgramFactors,
    /// The size of each factor in a tile.
    tile: Vec<usize>,
}

/// A program compiled for one tile.
pub struct TiledProgram {
    shape: TileShape,
    options: CompileOptions,
    plan: CachedPlan,
}

/// The plan of a tiled launch, computed and checked before anything is enqueued.
#[derive(Clone, Debug, PartialEq)]
pub struct Tiling {
    /// The size of each factor in the tensors.
    pub sizes: Vec<usize>,
    /// The tiled factors in loop order, innermost last: pointwise factors, then reduced ones.
    pub loops: Vec<usize>,
    /// The number of tiles along each loop.
    pub counts: Vec<usize>,
    /// The specs of the results.
    pub results: Vec<TensorSpec>,
}

impl Tiling {
    /// The tiles in order, each as its index along each loop.
    pub fn tiles(&self) -> impl Iterator<Item = Vec<usize>> + '_ {
        let total: usize = self.counts.iter().product();
        (0..total).map(|mut tile| {
            let mut at = vec![0; self.counts.len()];
            for (index, count) in at.iter_mut().zip(&self.counts).rev() {
                *index = tile % count;
                tile /= count;
            }
            at
        })
    }
}

impl TiledProgram {
    /// The factors of the program.
    pub fn factors(&self) -> &ProgramFactors {
        &self.shape.factors
    }

    /// The size of each factor in a tile.
    pub fn tile(&self) -> &[usize] {
        &self.shape.tile
    }

    /// The specs of a tile's arguments.
    pub fn argument_specs(&self) -> impl Iterator<Item = &TensorSpec> {
        self.shape.graph.arguments().map(|id| self.shape.graph.spec(id))
    }

    /// The specs of a tile's results.
    pub fn result_specs(&self) -> impl Iterator<Item = &TensorSpec> {
        self.shape.graph.outputs().iter().map(|&id| self.shape.graph.spec(id))
    }

    /// The program for one tile.
    fn plan(&self) -> &CachedPlan {
        &self.plan
    }

    /// The tiling of tensors with these specs.
    ///
    /// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`] for another dtype or rank;
    /// [`Error::Tiling`] for sizes below the tile's, inconsistent sizes, a larger size of a factor
    /// that cannot be tiled, and, if `remainder` is strict, sizes that are not multiples of the
    /// tile's.
    pub fn tiling(&self, arguments: &[&TensorSpec], remainder: Remainder) -> Result<Tiling> {
        self.shape.tiling(arguments, remainder)
    }
}

impl TileShape {
    /// The factors of a graph whose arguments are tiles.
    ///
    /// Errors: [`Error::Tiling`] for symbolic sizes.
    pub fn of(graph: &Graph) -> Result<TileShape> {
        let factors = ProgramFactors::of(graph);
        let size = |f: &ProgramFactor| f.size.known();
        let tile: Option<Vec<usize>> = factors.factors().iter().map(size).collect();
        let Some(tile) = tile else {
            let reason = "the program has symbolic sizes; bind them to the sizes of a tile first";
            return Err(Error::Tiling(reason.into()));
        };
        Ok(TileShape { graph: graph.clone(), factors, tile })
    }

    /// See [`TiledProgram::tiling`].
    ///
    /// Errors: as [`TiledProgram::tiling`].
    pub fn tiling(&self, arguments: &[&TensorSpec], remainder: Remainder) -> Result<Tiling> {
        let sizes = self.sizes(arguments)?;
        let mut loops: Vec<usize> = (0..sizes.len()).filter(|&f| sizes[f] > self.tile[f]).collect();
        let is_reduced = |f: &usize| self.factors.factors()[*f].role == ProgramRole::Reduced;
        loops.sort_by_key(is_reduced);
        for &f in &loops {
            self.check_loop(f, &sizes, remainder)?;
        }
        let counts = loops.iter().map(|&f| sizes[f].div_ceil(self.tile[f])).collect();
        let result = |(axes, &id): (&Vec<AxisFactors>, _)| {
            let size = |axis: &AxisFactors| -> usize { axis.iter().map(|&f| sizes[f]).product() };
            let shape: Vec<usize> = axes.iter().map(size).collect();
            TensorSpec::new(shape, self.graph.spec(id).dtype)
        };
        let results = self.factors.outputs().iter().zip(self.graph.outputs()).map(result).collect();
        Ok(Tiling { sizes, loops, counts, results })
    }

    fn check_loop(&self, f: usize, sizes: &[usize], remainder: Remainder) -> Result<()> {
        let (size, tile) = (sizes[f], self.tile[f]);
        if let ProgramRole::Whole(why) = &self.factors.factors()[f].role {
            return Err(Error::Tiling(format!(
                "an axis of size {size} is compiled for {tile}, and only the whole axis gives the \
                 result: {why}; compile the program for {size}"
            )));
        }
        if tile == 0 || remainder == Remainder::Strict && !size.is_multiple_of(tile) {
            return Err(Error::Tiling(format!(
                "size {size} is not a multiple of the tile's {tile}, and strict tiling allows no \
                 remainder; pad the tensor, or allow an exact or padded last tile"
            )));
        }
        Ok(())
    }

    /// The size of each factor in tensors with these specs.
    fn sizes(&self, arguments: &[&TensorSpec]) -> Result<Vec<usize>> {
        let expected = self.graph.arguments().count();
        if expected != arguments.len() {
            return Err(Error::ArgumentCount { expected, found: arguments.len() });
        }
        let mut sizes: Vec<Option<(usize, usize)>> = vec![None; self.tile.len()];
        for (index, (id, found)) in self.graph.arguments().zip(arguments).enumerate() {
            let expected = self.graph.spec(id);
            let same = expected.dtype == found.dtype
                && expected.shape.rank() == found.shape.rank()
                && self.graph.node(id).op.code == OpCode::Input;
            if !same {
                return Err(Error::spec_mismatch(index, expected, found));
            }
            for (axis, factors) in self.factors.arguments()[index].iter().enumerate() {
                let (total, own) = (found.shape[axis], expected.shape[axis]);
                if total < own {
                    return Err(Error::Tiling(format!(
                        "argument {index} has size {total} along axis {axis}, less than the tile's \
                         {own}; launch a program compiled for that size"
                    )));
                }
                self.note_axis(&mut sizes, index, (axis, factors), (total, own))?;
            }
        }
        let size = |(f, size): (usize, &Option<(usize, usize)>)| size.map_or(self.tile[f], |s| s.0);
        Ok(sizes.iter().enumerate().map(size).collect())
    }

    /// Records the sizes of the factors on an argument's axis. Only the outermost factor may be
    /// larger than in a tile.
    fn note_axis(
        &self,
        sizes: &mut [Option<(usize, usize)>],
        index: usize,
        (axis, factors): (usize, &[usize]),
        (total, own): (usize, usize),
    ) -> Result<()> {
        let Some((&outer, inner)) = factors.split_first() else {
            return match total == own {
                true => Ok(()),
                false => Err(Error::Tiling(format!(
                    "argument {index} has size {total} along axis {axis}, expected {own}"
                ))),
            };
        };
        let rest: usize = inner.iter().map(|&f| self.tile[f]).product();
        if rest == 0 || !total.is_multiple_of(rest) {
            return Err(Error::Tiling(format!(
                "argument {index} has size {total} along axis {axis}, which is not a multiple \
                     of {rest}"
            )));
        }
        let given = inner.iter().map(|&f| (f, self.tile[f])).chain([(outer, total / rest)]);
        for (f, size) in given {
            match sizes[f] {
                None => sizes[f] = Some((size, index)),
                Some((other, first)) if other != size => {
                    return Err(Error::Tiling(format!(
                        "argument {index} has size {size} along axis {axis}, and argument {first} has \
                         {other} along the axis that corresponds; give tensors whose sizes agree"
                    )));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl PlanExecutor {
    /// Compiles a graph for tiles of its arguments' sizes. Each launch may have larger tensors.
    ///
    /// Errors: as [`PlanExecutor::plan`]; [`Error::Tiling`] for symbolic sizes.
    pub fn tiled(&self, graph: &Graph, options: CompileOptions) -> Result<TiledProgram> {
        let shape = TileShape::of(graph)?;
        let plan = self.plan(graph, options)?;
        Ok(TiledProgram { shape, options, plan })
    }

    /// The program that combines two partial results.
    fn combining(
        &self,
        spec: &TensorSpec,
        code: OpCode,
        options: CompileOptions,
    ) -> Result<CachedPlan> {
        let mut b = GraphBuilder::default();
        let operands = [b.input(spec.clone()), b.input(spec.clone())];
        let combined = b.op(code, &operands)?;
        self.plan(&b.finish([combined]), options)
    }
}
