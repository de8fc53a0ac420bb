//! Traced functions: a function is called once on placeholders, and its graph becomes a program. Axes
//! declared dynamic are symbolic while tracing, so that one program serves all sizes for which its
//! guards hold.

use crate::dynamic::{DynamicDim, symbolic_spec, tiles};
use crate::eval::placeholder;
use crate::{Context, DType, Device, Error, Program, Result, Tensor, TensorState, random};
use girih_ir::dim::{Guard, Guards, Symbol};
use girih_ir::{NodeId, TensorSpec};
use girih_record::cut::suspects;
use girih_record::eval::settle_or_interrupt;
use girih_record::location::{self, Location};
use girih_record::mesh::{self, MeshPlacement};
use girih_record::order::ancestors;
use girih_record::trace::{Draw, Tracing};
use girih_record::{Node, Place, evaluation_error, tape};
use girih_runtime::SymbolicGraph;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A traced function: a program of its arguments and of the tensors that it captures.
pub struct TracedProgram {
    program: Program,
    /// The specs of the arguments, with symbolic sizes for dynamic axes.
    parameters: Vec<TensorSpec>,
    /// The specs of the captured tensors, which each call supplies.
    captures: Vec<TensorSpec>,
    symbols: Vec<&'static Symbol>,
    /// The sizes of tiles along some of the symbols' axes.
    tiles: Vec<(&'static Symbol, usize)>,
    /// Conditions on the sizes that were decided while tracing, and the lines that decided them.
    guards: Vec<(Guard, Location)>,
    symbolic: SymbolicGraph,
    /// The only device whose tensors the program serves, if the function queried the device.
    device: Option<Device>,
    /// The shardings of the arguments when the function was traced; fewer if the others have none.
    shardings: Vec<Option<&'static MeshPlacement>>,
    /// The half dtype of autocast when the function was traced.
    autocast: Option<DType>,
    /// The random draws of the function in order, and the draw of each random leaf of the program.
    draws: Vec<Draw>,
    drawn: BTreeMap<NodeId, usize>,
    takes_gradients: bool,
    /// The lines that recorded the nodes.
    lines: BTreeMap<NodeId, Location>,
    /// The time of [`TracedProgram::compile_time`] in nanoseconds.
    compile_ns: AtomicU64,
}

impl TracedProgram {
    /// Traces a function: calls it with a placeholder per argument, each with the dynamic axes and the
    /// sharding of the same position in `dims` and `shardings`. `outside` are captured tensors that every call supplies. Other
    /// tensors that the outputs need become part of the program, with their current values.
    ///
    /// Returns the program and the positions of the tensors of `outside` that it needs.
    ///
    /// Errors: those of the function; a shape error for sizes out of range, and for axes of one
    /// name with different sizes; [`Error::OutsideValue`] if the function reads a captured tensor.
    pub fn trace<E: From<Error>>(
        arguments: &[TensorSpec],
        dims: &[Vec<DynamicDim>],
        shardings: &[Option<&'static MeshPlacement>],
        outside: &[Tensor],
        f: impl FnOnce(&[Tensor]) -> Result<Vec<Tensor>, E>,
    ) -> Result<(TracedProgram, Vec<usize>), E> {
        let mut named = Vec::new();
        let parameters = arguments
            .iter()
            .enumerate()
            .map(|(i, spec)| {
                symbolic_spec(spec, dims.get(i).map_or(&[], Vec::as_slice), &mut named)
            })
            .collect::<Result<Vec<TensorSpec>>>()?;
        let placeholders: Vec<Tensor> = parameters.iter().map(placeholder).collect();
        for (placeholder, placement) in placeholders.iter().zip(shardings) {
            if let Some(placement) = placement {
                placeholder.node().set_place(Place::sharded(placement));
            }
        }
        girih_ir::dim::set_place(|| location::entered().number());
        let guards = Guards::new();
        let entered = guards.enter();
        let tracing = Tracing::begin(outside);
        let before = tape::gradients_taken();
        let outputs = f(&placeholders)?;
        let takes_gradients = tape::gradients_taken() != before;
        let draws = tracing.draws();
        let device = tracing.asked_device().then(|| Context::current().device());
        let (mut program, lines, used) = close(&outputs, &placeholders, outside)?;
        let drawn = program.take_draws(|place| tracing.draw_at(place));
        drop((tracing, entered));
        let symbols: Vec<&'static Symbol> = named.iter().filter_map(|d| d.as_symbol()).collect();
        let tiles = tiles(dims, &symbols)?;
        // Drop guards of functions that other threads trace at the same time.
        let own = |guard: &Guard| {
            guard.symbols().iter().all(|s| symbols.iter().any(|own| std::ptr::eq(*own, *s)))
        };
        let guards = guards.placed().into_iter().filter(|(guard, _)| own(guard));
        let guards = guards.map(|(guard, place)| (guard, Location::from_number(place))).collect();
        let captures = used.iter().map(|&i| outside[i].spec()).collect();
        let symbolic = SymbolicGraph::new(program.graph().clone());
        Ok((
            TracedProgram {
                program,
                parameters,
                captures,
                symbols,
                tiles,
                guards,
                symbolic,
                device,
                shardings: shardings.to_vec(),
                autocast: Context::current().autocast(),
                draws,
                drawn,
                takes_gradients,
                lines,
                compile_ns: AtomicU64::new(0),
            },
            used,
        ))
    }

    /// The conditions on the arguments' sizes under which the program is valid, besides the sizes
    /// of static axes, each with the line that caused it if known.
    pub fn guards(&self) -> Vec<String> {
        let because = |(guard, line): &(Guard, Location)| match line.is_known() {
            true => format!("{guard} (because of {line})"),
            false => guard.to_string(),
        };
        self.guards.iter().map(because).collect()
    }

    /// The graph as traced.
    pub fn graph(&self) -> &girih_ir::Graph {
        self.program.graph()
    }

    /// The reason why the program does not serve arguments of these specs; `None` if it does.
    pub fn refuses(&self, arguments: &[TensorSpec]) -> Option<String> {
        match self.sizes(arguments) {
            Err(reason) => Some(reason),
            Ok(sizes) => self.guards.iter().find(|(guard, _)| !guard.holds(&sizes)).map(|broken| {
                let (guard, line) = broken;
                let line = line.is_known().then(|| format!(" (because of {line})"));
                let line = line.unwrap_or_default();
                let sizes = sizes.iter().map(|(s, size)| format!("{} = {size}", s.name()));
                format!("{guard}{line} does not hold for {}", sizes.collect::<Vec<_>>().join(", "))
            }),
        }
    }

    /// The reason why the program does not serve the devices of these tensors, or the calling
    /// thread's context; `None` if it does. The program serves tensors of any device unless the
    /// function queried the device, and it serves calls under the autocast that it was traced
    /// under.
    pub fn refuses_context(&self, arguments: &[Tensor]) -> Option<String> {
        let autocast = Context::current().autocast();
        if autocast != self.autocast {
            let named = |half: Option<DType>| half.map_or("no autocast", DType::name);
            let (was, is) = (named(self.autocast), named(autocast));
            return Some(format!("the function was traced under {was}, and is called under {is}"));
        }
        if let Some(reason) = self.refuses_shardings(arguments) {
            return Some(reason);
        }
        let own = self.device?;
        let other = |t: &&Tensor| {
            let place = t.node().place();
            !place.is_floating() && place.device() != own
        };
        let found = arguments.iter().find(other)?.node().place().device();
        Some(format!("the function asked for the device, which was {own} and is {found}"))
    }

    /// The reason why the program does not serve the shardings of these tensors, on which those inside
    /// of the function depend.
    fn refuses_shardings(&self, arguments: &[Tensor]) -> Option<String> {
        if !mesh::any() {
            return None;
        }
        let placements = arguments.iter().map(|tensor| tensor.node().place().sharding());
        let given = placements.take(self.parameters.len());
        for (at, given) in given.enumerate() {
            let own = self.shardings.get(at).copied().flatten();
            if own.map(std::ptr::from_ref) != given.map(std::ptr::from_ref) {
                let shown = |of: Option<&MeshPlacement>| {
                    of.map_or_else(|| "on no mesh".to_string(), MeshPlacement::to_string)
                };
                let (own, given) = (shown(own), shown(given));
                return Some(format!("argument {at} was {own} at tracing, and is {given}"));
            }
        }
        None
    }

    /// The sizes of the symbols; an error describes the spec that does not fit.
    pub(crate) fn sizes(
        &self,
        arguments: &[TensorSpec],
    ) -> Result<Vec<(&'static Symbol, usize)>, String> {
        let mut sizes: Vec<(&'static Symbol, usize)> = Vec::with_capacity(self.symbols.len());
        if arguments.len() != self.parameters.len() {
            return Err(format!("{} arguments, not {}", self.parameters.len(), arguments.len()));
        }
        for (i, (parameter, argument)) in self.parameters.iter().zip(arguments).enumerate() {
            let other = || format!("argument {i} was {parameter} and is {argument}");
            if parameter.dtype != argument.dtype || parameter.shape.rank() != argument.shape.rank()
            {
                return Err(other());
            }
            for (dim, &size) in parameter.shape.dims().zip(argument.shape.iter()) {
                let Some(symbol) = dim.as_symbol() else {
                    if dim.known() != Some(size) {
                        return Err(other());
                    }
                    continue;
                };
                match sizes.iter().find(|(s, _)| std::ptr::eq(*s, symbol)) {
                    Some(&(_, known)) if known != size => return Err(other()),
                    Some(_) => {}
                    None => {
                        if size < symbol.min() || symbol.max().is_some_and(|max| size > max) {
                            return Err(other());
                        }
                        sizes.push((symbol, size));
                    }
                }
            }
        }
        Ok(sizes)
    }

    /// The program in a self-contained form for writing to a file: it takes the arguments and holds
    /// the captured tensors, which are named and may be parameters.
    ///
    /// Errors: [`Error::InvalidArgument`] for a number of tensors other than the program's
    /// captures; as [`crate::eval`] of the captured tensors.
    pub fn export(&self, outside: &[(String, Tensor, bool)]) -> Result<Program> {
        let mut program = self.program.clone();
        program.graph_mut().set_guards(self.guards.iter().map(|(guard, _)| *guard).collect());
        let inputs = program.inputs();
        let held = inputs.len().saturating_sub(self.parameters.len());
        if held != outside.len() {
            return Err(Error::InvalidArgument(format!(
                "the program refers to {held} tensors outside, got {}",
                outside.len()
            )));
        }
        for (input, (name, tensor, parameter)) in
            inputs[self.parameters.len()..].iter().zip(outside)
        {
            program.hold(input.id, name, tensor, *parameter)?;
        }
        Ok(program)
    }

    /// Converts the error of a run, adding the lines of the function that may have caused it.
    pub(crate) fn failed(&self, error: girih_runtime::Error) -> Error {
        if let girih_runtime::Error::Graph(error) = error {
            return error.into();
        }
        let recorded = |id| (None, self.lines.get(&id).copied().unwrap_or_default());
        let graph = self.program.graph();
        let at = suspects(graph, graph.outputs(), recorded, &error);
        evaluation_error(error, at)
    }

    /// Whether the function takes gradients itself, so that its results require none.
    pub(crate) fn takes_gradients(&self) -> bool {
        self.takes_gradients
    }

    /// The traced graph with the values that it holds.
    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// The sizes of a tile for tensors of these sizes: smaller along at least one axis. `None` if
    /// the tensors are not larger than a tile.
    pub(crate) fn tile_of(
        &self,
        sizes: &[(&'static Symbol, usize)],
    ) -> Option<Vec<(&'static Symbol, usize)>> {
        let tile_size = |(symbol, size): &(&'static Symbol, usize)| {
            let tile = self.tiles.iter().find(|(tiled, _)| std::ptr::eq(*tiled, *symbol));
            (*symbol, tile.map_or(*size, |(_, tile)| *size.min(tile)))
        };
        let tile: Vec<(&'static Symbol, usize)> = sizes.iter().map(tile_size).collect();
        let smaller = tile.iter().zip(sizes).any(|((_, part), (_, whole))| part < whole);
        smaller.then_some(tile)
    }

    pub(crate) fn symbolic(&self) -> &SymbolicGraph {
        &self.symbolic
    }

    /// The time of compiling the program for the sizes that it was called with, or of finding it in
    /// the caches. The time of tracing and running is not included.
    pub fn compile_time(&self) -> Duration {
        Duration::from_nanos(self.compile_ns.load(Relaxed))
    }

    pub(crate) fn count_compile_time(&self, time: Duration) {
        self.compile_ns.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// The specs of the captured tensors, which each call supplies.
    pub fn captures(&self) -> &[TensorSpec] {
        &self.captures
    }

    /// Fails for arguments that the program does not serve.
    pub(crate) fn check(&self, arguments: &[TensorSpec]) -> Result<()> {
        match self.refuses(arguments) {
            None => Ok(()),
            Some(reason) => {
                let reason = format!("the program does not serve this: {reason}");
                Err(Error::InvalidArgument(reason))
            }
        }
    }

    /// Records the program on arguments that have no values, and returns its outputs.
    #[track_caller]
    pub(crate) fn record(
        &self,
        given: &[&Tensor],
        sizes: &[(&'static Symbol, usize)],
    ) -> Result<Vec<Tensor>> {
        let graph = self.program.graph().bind(sizes)?;
        let place = |draw: &Draw| {
            let shape = draw.shape.bind(draw.code.def().name, draw.dtype, sizes)?;
            Ok(random::next(draw.code, draw.dtype, &shape))
        };
        let places = self.draws.iter().map(place).collect::<Result<Vec<_>>>()?;
        let drawn = self.drawn.iter().map(|(&id, &number)| (id, places[number]));
        self.program.with_graph(graph).with_draws(drawn).call(given)
    }

    /// The offset of each random leaf among the draws of a run at these sizes, in blocks of the
    /// generator; and the number of blocks that a run consumes.
    pub(crate) fn draws(
        &self,
        sizes: &[(&'static Symbol, usize)],
    ) -> Result<(BTreeMap<NodeId, u64>, u64)> {
        let mut begins = Vec::with_capacity(self.draws.len());
        let mut total: u64 = 0;
        for draw in &self.draws {
            begins.push(total);
            let shape = draw.shape.bind(draw.code.def().name, draw.dtype, sizes)?;
            total = total.wrapping_add(random::blocks(draw.code, draw.dtype, shape.numel()));
        }
        Ok((self.drawn.iter().map(|(&id, &number)| (id, begins[number])).collect(), total))
    }
}

/// The program of `outputs` with the lines of its nodes, and the positions of the tensors in
/// `outside` that it needs.
fn close(
    outputs: &[Tensor],
    placeholders: &[Tensor],
    outside: &[Tensor],
) -> Result<(Program, BTreeMap<NodeId, Location>, Vec<usize>)> {
    let roots: Vec<&Tensor> = outputs.iter().collect();
    let stops = |node: &Arc<Node>| outside.iter().any(|t| Arc::ptr_eq(t.node(), node));
    let reached = ancestors(&roots, stops);
    let mut used: Vec<usize> = Vec::new();
    for (i, tensor) in outside.iter().enumerate() {
        let again = used.iter().any(|&j| outside[j].is_same(tensor));
        let is_placeholder = placeholders.iter().any(|p| p.is_same(tensor));
        if !again && !is_placeholder && reached.iter().any(|n| Arc::ptr_eq(n, tensor.node())) {
            used.push(i);
        }
    }
    let inputs: Vec<&Tensor> =
        placeholders.iter().chain(used.iter().map(|&i| &outside[i])).collect();
    // Wait for scheduled nodes, so that they become data rather than a part of the program.
    let scheduled = |node: &&Arc<Node>| node.value_state() == TensorState::Scheduled;
    for node in reached.iter().filter(scheduled) {
        settle_or_interrupt(node)?;
    }
    let (program, lines) = Program::capture_with_lines(&roots, &inputs, &[])?;
    let free = program.inputs();
    if let Some(foreign) = free.get(inputs.len()) {
        return Err(Error::TracedValue {
            what: "a compiled function",
            argument: None,
            shape: foreign.spec.shape.to_string(),
            at: None,
        });
    }
    Ok((program, lines, used))
}
