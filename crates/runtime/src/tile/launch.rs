//! Enqueues the tiles of a launch: copies in, launches and copies out, on three streams.
//!
//! The copy-in of tile `n` waits for the computation of tile `n - depth`, whose blocks it reuses.
//! The computation of a tile waits for its copy-in and for the copy-out of the result block that it
//! overwrites. Without copies, everything runs on the caller's stream.

mod output;

use super::region::Region;
use super::{Remainder, TileArgument, TileOptions, TileResult, TileShape, TiledProgram, Tiling};
use crate::queue::host_bytes;
use crate::stream::Batch;
use crate::{
    Argument, Buffer, CachedPlan, Completion, Error, HostBytes, Operands, Operation, PlanExecutor,
    Result, Stream, Strides, Value,
};
use girih_ir::factors::AxisFactors;
use girih_ir::{Array, Graph, ProgramRole, TensorSpec};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

/// An enqueued tiled launch.
pub struct TiledRun {
    /// The results, valid once the completion has an outcome.
    pub results: Vec<TileResult>,
    /// The outcome of all tiles.
    pub completion: Arc<Completion>,
    /// The number of tiles.
    pub tiles: usize,
}

impl PlanExecutor {
    /// Launches a program of tiles on larger tensors, and returns when all tiles are enqueued.
    ///
    /// Errors: as [`TiledProgram::tiling`]; [`Error::OutOfMemory`] and [`Error::HostMemory`] for
    /// results and the blocks of tiles in flight; [`Error::Tiling`] for a last tile that can
    /// neither be compiled nor padded.
    pub fn launch_tiled(
        &self,
        stream: &Stream,
        program: &TiledProgram,
        arguments: &[TileArgument],
        options: TileOptions,
    ) -> Result<TiledRun> {
        let specs: Vec<&TensorSpec> = arguments.iter().map(TileArgument::spec).collect();
        let tiling = program.tiling(&specs, options.remainder)?;
        for (index, argument) in arguments.iter().enumerate() {
            if argument.bytes() < argument.spec().size_bytes() {
                return Err(Error::spec_mismatch(index, argument.spec(), argument.spec()));
            }
        }
        let new = |spec: &TensorSpec| self.new_result(spec, options.to_host);
        let results = tiling.results.iter().map(new).collect::<Result<Vec<TileResult>>>()?;
        let mut launch = Launch::new(self, stream, program, &tiling, arguments, &results, options);
        for (number, at) in tiling.tiles().enumerate() {
            launch.tile(number, &at)?;
        }
        let completion = launch.finish();
        Ok(TiledRun { tiles: tiling.counts.iter().product(), results, completion })
    }

    fn new_result(&self, spec: &TensorSpec, to_host: bool) -> Result<TileResult> {
        let size = spec.size_bytes();
        Ok(match to_host {
            true => TileResult::Host(host_bytes(size)?, spec.clone()),
            false => {
                let value = Value::new(self.device.allocator().allocate(size)?);
                TileResult::Device(value, spec.clone())
            }
        })
    }
}

/// The completion of work that other streams wait for.
type Done = Arc<Completion>;

/// The purpose of a block for tiles in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Use {
    Argument(usize),
    Output(usize),
    /// A partial result that has to be combined.
    Partial(usize),
    /// The combination of two partial results, if the program cannot donate its argument.
    Combined(usize),
}

struct Launch<'a> {
    executor: &'a PlanExecutor,
    stream: &'a Stream,
    program: &'a TiledProgram,
    tiling: &'a Tiling,
    arguments: &'a [TileArgument],
    results: &'a [TileResult],
    options: TileOptions,
    /// The streams of copies in and of copies out.
    helpers: [Option<Stream>; 2],
    blocks: FxHashMap<(Use, usize), Arc<Buffer>>,
    slots: FxHashMap<(Use, usize), HostBytes>,
    temporaries: FxHashMap<usize, Arc<Buffer>>,
    /// Programs that read tiles in place, by the sizes of the tile and the strides of the arguments.
    in_place: FxHashMap<(Vec<usize>, Vec<Option<Strides>>), CachedPlan>,
    /// The region of the argument in each argument block.
    loaded: FxHashMap<(usize, usize), Region>,
    /// The last work on each slot of the rings of argument blocks and of output blocks.
    computed: FxHashMap<usize, Done>,
    copied_out: FxHashMap<usize, Done>,
    /// The work of the stream before the launch.
    before: Option<Done>,
    last: Option<Done>,
}

/// One tile.
struct Tile<'a> {
    /// The slots in the rings of argument blocks and of output blocks.
    ring: usize,
    out_ring: usize,
    /// The first index and the size of each factor.
    starts: Vec<usize>,
    sizes: Vec<usize>,
    /// The sizes that the program runs on, which are larger than the tile's if it is padded.
    run: Vec<usize>,
    graph: Cow<'a, Graph>,
    plan: CachedPlan,
    /// For each tiled factor, the tile's index and the number of tiles.
    at: FxHashMap<usize, (usize, usize)>,
}

impl Tile<'_> {
    fn region(&self, tensor: &TensorSpec, axes: &[AxisFactors]) -> Region {
        let (start, extents): (Vec<usize>, Vec<usize>) = axes
            .iter()
            .map(|axis| {
                let Some((&outer, inner)) = axis.split_first() else { return (0, 1) };
                let rest: usize = inner.iter().map(|&f| self.sizes[f]).product();
                (self.starts[outer] * rest, self.sizes[outer] * rest)
            })
            .unzip();
        Region::new(tensor, &start, &extents)
    }

    /// The shape of the block for the program's argument or result.
    fn block(&self, axes: &[AxisFactors]) -> Vec<usize> {
        axes.iter().map(|axis| axis.iter().map(|&f| self.run[f]).product()).collect()
    }

    fn is_padded(&self, axes: &[AxisFactors]) -> bool {
        axes.iter().flatten().any(|&f| self.run[f] != self.sizes[f])
    }
}

impl<'a> Launch<'a> {
    fn new(
        executor: &'a PlanExecutor,
        stream: &'a Stream,
        program: &'a TiledProgram,
        tiling: &'a Tiling,
        arguments: &'a [TileArgument],
        results: &'a [TileResult],
        options: TileOptions,
    ) -> Launch<'a> {
        let options = TileOptions { depth: options.depth.max(1), ..options };
        Launch {
            executor,
            stream,
            program,
            tiling,
            arguments,
            results,
            options,
            helpers: [None, None],
            blocks: FxHashMap::default(),
            slots: FxHashMap::default(),
            temporaries: FxHashMap::default(),
            in_place: FxHashMap::default(),
            loaded: FxHashMap::default(),
            computed: FxHashMap::default(),
            copied_out: FxHashMap::default(),
            before: None,
            last: None,
        }
    }

    fn tile(&mut self, number: usize, at: &[usize]) -> Result<()> {
        let mut tile = self.place(number, at)?;
        let (arguments, copies) = self.arguments_of(&mut tile)?;
        let mut after: SmallVec<[Done; 2]> = SmallVec::new();
        if !copies.is_empty() {
            let before = match self.computed.get(&tile.ring) {
                Some(done) => done.clone(),
                None => self.before(),
            };
            after.push(copies.submit(helper(&mut self.helpers[0], self.stream), [before]));
        }
        let (launches, copies_out) = self.compute(&tile, &arguments)?;
        after.extend(self.copied_out.get(&tile.out_ring).cloned());
        let computed = launches.submit(self.stream, after);
        self.computed.insert(tile.ring, computed.clone());
        self.last = Some(computed.clone());
        if !copies_out.is_empty() {
            let done = copies_out.submit(helper(&mut self.helpers[1], self.stream), [computed]);
            self.copied_out.insert(tile.out_ring, done.clone());
            self.last = Some(done);
        }
        Ok(())
    }

    /// The completion of earlier work of the stream, which may compute the launch's arguments.
    fn before(&mut self) -> Done {
        let stream = self.stream;
        self.before.get_or_insert_with(|| stream.batch().submit(stream, [])).clone()
    }

    /// The outcome of the whole launch. Later work of the stream waits for it, too.
    fn finish(self) -> Arc<Completion> {
        let after = self.last.into_iter().chain(self.copied_out.into_values());
        self.stream.batch().submit(self.stream, after)
    }

    fn place(&self, number: usize, at: &[usize]) -> Result<Tile<'a>> {
        let Tiling { sizes: totals, loops, counts, .. } = self.tiling;
        let tile = &self.program.shape.tile;
        let (mut starts, mut sizes) = (vec![0; tile.len()], totals.clone());
        let mut positions = FxHashMap::default();
        for ((&f, &index), &count) in loops.iter().zip(at).zip(counts) {
            starts[f] = index * tile[f];
            sizes[f] = tile[f].min(totals[f] - starts[f]);
            positions.insert(f, (index, count));
        }
        let is_reduced =
            |f: &usize| self.program.shape.factors.factors()[*f].role == ProgramRole::Reduced;
        let inner: usize =
            loops.iter().zip(counts).filter(|(f, _)| is_reduced(f)).map(|(_, n)| n).product();
        let (graph, run) = self.graph_for(&sizes);
        let plan = match &graph {
            Cow::Borrowed(_) => self.program.plan.clone(),
            Cow::Owned(graph) => self.executor.plan(graph, self.program.options)?,
        };
        Ok(Tile {
            ring: number % self.options.depth,
            out_ring: number / inner.max(1) % self.options.depth,
            starts,
            sizes,
            run,
            graph,
            plan,
            at: positions,
        })
    }

    /// The graph for a tile of these sizes, and the sizes that the graph runs on.
    fn graph_for(&self, sizes: &[usize]) -> (Cow<'a, Graph>, Vec<usize>) {
        let TileShape { graph, factors, tile } = &self.program.shape;
        if sizes != tile
            && self.options.remainder != Remainder::Padded
            && let Some(graph) = factors.resized(graph, sizes)
        {
            return (Cow::Owned(graph), sizes.into());
        }
        (Cow::Borrowed(graph), tile.clone())
    }

    /// The arguments of a tile's program, and the copies that load their blocks.
    fn arguments_of(&mut self, tile: &mut Tile<'_>) -> Result<(Vec<Argument>, Batch<'a>)> {
        let (mut arguments, mut copies) = (Vec::new(), self.stream.batch());
        let mut strides: Vec<Option<Strides>> = vec![None; self.arguments.len()];
        for (index, given) in self.arguments.iter().enumerate() {
            let axes = &self.program.shape.factors.arguments()[index];
            let region = tile.region(given.spec(), axes);
            let padded = tile.is_padded(axes);
            if let (TileArgument::Device(value, _), false) = (given, padded)
                && (region.dense || self.options.in_place && !region.is_empty())
            {
                arguments.push(Argument::Checked(value.skip(region.offset)));
                strides[index] = (!region.dense).then(|| region.strides());
                continue;
            }
            let block = tile.block(axes);
            let item = given.spec().dtype.size();
            let bytes = block.iter().product::<usize>() * item;
            let whole = self.tile_bytes(axes, item).max(bytes);
            let target = self.block(Use::Argument(index), tile.ring, whole)?;
            let value = Value::at(target.clone(), 0);
            arguments.push(Argument::Checked(value));
            if bytes == 0 || self.loaded.get(&(index, tile.ring)) == Some(&region) {
                continue;
            }
            let padding = match padded {
                true => Some(self.padding(tile, index, &block)?),
                false => None,
            };
            self.load(given, (index, tile.ring), &region, (&block, &target), padding, &mut copies)?;
            self.loaded.insert((index, tile.ring), region);
        }
        if strides.iter().any(Option::is_some) {
            let options = self.program.options;
            tile.plan = match self.in_place.entry((tile.run.clone(), strides)) {
                Entry::Occupied(found) => found.get().clone(),
                Entry::Vacant(place) => {
                    let plan = self.executor.plan_strided(&tile.graph, &place.key().1, options)?;
                    place.insert(plan).clone()
                }
            };
        }
        Ok((arguments, copies))
    }

    /// The size in bytes of the block of a full tile.
    fn tile_bytes(&self, axes: &[AxisFactors], item: usize) -> usize {
        axes.iter().flatten().map(|&f| self.program.shape.tile[f]).product::<usize>() * item
    }

    /// The bytes of a block filled with padding.
    fn padding(&self, tile: &Tile<'_>, argument: usize, block: &[usize]) -> Result<Box<[u8]>> {
        let TileShape { factors, graph, .. } = &self.program.shape;
        let short = |f: &&usize| tile.run[**f] != tile.sizes[**f];
        let mut value = 0.0;
        for &f in factors.arguments()[argument].iter().flatten().filter(short) {
            if factors.factors()[f].role != ProgramRole::Reduced {
                continue;
            }
            value = factors.padding(graph, argument, f).ok_or_else(|| {
                Error::Tiling(format!(
                    "the last tile has {} of {} elements along an axis that is reduced, and nothing \
                     can stand for the others; give sizes that are multiples of the tile's",
                    tile.sizes[f], tile.run[f]
                ))
            })?;
        }
        let spec = TensorSpec::new(block.to_vec(), self.arguments[argument].spec().dtype);
        let count = spec.numel();
        Ok(Array::from_f64(spec.shape, spec.dtype, &vec![value; count]).to_bytes().into())
    }

    /// Appends the copies of an argument's region to a block.
    fn load(
        &mut self,
        given: &TileArgument,
        (index, ring): (usize, usize),
        region: &Region,
        (block, target): (&[usize], &Arc<Buffer>),
        padding: Option<Box<[u8]>>,
        copies: &mut Batch<'_>,
    ) -> Result<()> {
        let block_value = Value::at(target.clone(), 0);
        match given {
            TileArgument::Device(value, _) => {
                let operands = [value.clone(), block_value];
                if let Some(source) = padding {
                    let operands = Operands::Tensors(&operands[1..], &[]);
                    copies.add(Operation::copy_to_device(source), operands)?;
                }
                let copy = Operation::copy_on_device(region.offset, 0, region.runs(block, true));
                copies.add(copy, Operands::Tensors(&operands, &[]))
            }
            TileArgument::Host(array, _) => {
                let slot = self.slot(Use::Argument(index), ring, target.size_bytes())?;
                let copy = region.runs(block, true);
                let (array, bytes, start) = (array.clone(), slot.clone(), region.offset);
                copies.host("gather a tile", move || {
                    let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(padding) = &padding {
                        bytes[..padding.len()].copy_from_slice(padding);
                    }
                    let array = &(*array).as_ref()[start..];
                    copy.for_each(|from, to| {
                        bytes[to..to + copy.run].copy_from_slice(&array[from..from + copy.run]);
                        Ok(())
                    })
                })?;
                let operands = ([block_value], [slot]);
                copies.add(Operation::copy_from_slot(), Operands::Tensors(&operands.0, &operands.1))
            }
        }
    }

    fn block(&mut self, of: Use, ring: usize, size: usize) -> Result<Arc<Buffer>> {
        if let Some(block) = self.blocks.get(&(of, ring))
            && block.size_bytes() >= size
        {
            return Ok(block.clone());
        }
        let block = Arc::new(self.executor.device.allocator().allocate(size)?);
        self.blocks.insert((of, ring), block.clone());
        Ok(block)
    }

    fn slot(&mut self, of: Use, ring: usize, size: usize) -> Result<HostBytes> {
        if let Some(slot) = self.slots.get(&(of, ring)) {
            return Ok(slot.clone());
        }
        let slot = host_bytes(size)?;
        self.slots.insert((of, ring), slot.clone());
        Ok(slot)
    }
}

/// A stream beside that of the launch, made when it is first needed.
fn helper<'s>(helper: &'s mut Option<Stream>, stream: &Stream) -> &'s Stream {
    helper.get_or_insert_with(|| stream.helper())
}
