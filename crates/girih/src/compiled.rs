//! Compiled functions: a function is traced on placeholders, then run as a program without calling
//! the function again. Axes declared dynamic are symbolic while tracing, so that one program serves
//! all sizes for which its guards hold.

use crate::bound::BoundProgram;
use crate::eval::placeholder;
use crate::tiled::CallPath;
use crate::{
    Context, DType, Device, DeviceScope, Error, Program, Result, Tensor, TensorState, random,
};
use girih_ir::dim::{Guard, Guards, Symbol, is_name};
use girih_ir::shape::normalize_axis;
use girih_ir::{Dim, NodeId, Shape, TensorSpec};
use girih_record::cut::suspects;
use girih_record::location::{self, Location};
use girih_record::order::ancestors;
use girih_record::trace::{Draw, Tracing};
use girih_record::{evaluation_error, tape};
use girih_runtime::SymbolicGraph;
use girih_sync::{Mutex, MutexGuard, Striped};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// An axis whose size may differ from call to call.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicDim {
    /// The axis; a negative axis counts from the end.
    pub axis: i64,
    /// The name of the size. Axes with the same name have the same size.
    pub name: String,
    /// The minimum size and the optional maximum size, if the user declared them. Without a range
    /// any size is allowed; an axis without elements gets a separate program.
    pub range: Option<(usize, Option<usize>)>,
    /// The size of a tile along the axis: calls with a larger size run tile by tile; see
    /// [`Compiled::tile`].
    pub tile: Option<usize>,
}

impl DynamicDim {
    /// An axis of any size.
    pub fn new(axis: i64, name: &str) -> DynamicDim {
        DynamicDim { axis, name: name.into(), range: None, tile: None }
    }
}

impl From<(i64, &str)> for DynamicDim {
    fn from((axis, name): (i64, &str)) -> DynamicDim {
        DynamicDim::new(axis, name)
    }
}

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

fn invalid(shape: &Shape, reason: String) -> Error {
    girih_ir::Error::InvalidShape { op: "compile", shape: shape.clone(), reason }.into()
}

/// The spec of an argument with symbolic sizes for its dynamic axes.
fn symbolic_spec(
    spec: &TensorSpec,
    dims: &[DynamicDim],
    named: &mut Vec<Dim>,
) -> Result<TensorSpec> {
    let mut shape = spec.shape.clone();
    for dynamic in dims {
        let DynamicDim { axis, name, range, tile: _ } = dynamic;
        if !is_name(name) {
            return Err(Error::InvalidArgument(format!(
                "compile: '{name}' is no name of a dimension; use letters, digits and underscores, \
                 as in 'batch'"
            )));
        }
        let axis = normalize_axis("compile", *axis, shape.rank())?;
        let size = spec.shape[axis];
        let (min, max) = range.unwrap_or((1, None));
        if size < min || max.is_some_and(|max| size > max) {
            if range.is_none() {
                continue;
            }
            let max = max.map_or("any number".to_string(), |max| max.to_string());
            return Err(invalid(
                &spec.shape,
                format!("axis {axis} ('{name}') has size {size}; expected {min} to {max}"),
            ));
        }
        let dim = Dim::symbol(name, size, min, max);
        let known = named.iter().find(|d| d.as_symbol().is_some_and(|s| s.name() == name));
        match known {
            Some(known) if *known != dim => {
                let reason = format!(
                    "axis {axis} ('{name}') has size {size} where another axis of that name has {}; \
                     axes of one name have one size and one range",
                    known.hint()
                );
                return Err(invalid(&spec.shape, reason));
            }
            Some(_) => {}
            None => named.push(dim),
        }
        shape = shape.with_dim(axis, dim);
    }
    Ok(TensorSpec { shape, dtype: spec.dtype })
}

/// The sizes of tiles along the axes of symbols.
fn tiles(
    dims: &[Vec<DynamicDim>],
    symbols: &[&'static Symbol],
) -> Result<Vec<(&'static Symbol, usize)>> {
    let mut tiles: Vec<(&'static Symbol, usize)> = Vec::new();
    for DynamicDim { name, tile, .. } in dims.iter().flatten() {
        let Some(tile) = *tile else { continue };
        if tile == 0 {
            return Err(Error::InvalidArgument(format!(
                "compile: the tile along '{name}' has size 0, expected at least 1"
            )));
        }
        let Some(symbol) = symbols.iter().find(|symbol| symbol.name() == name) else { continue };
        match tiles.iter().find(|(known, _)| std::ptr::eq(*known, *symbol)) {
            Some((_, other)) if *other != tile => {
                return Err(Error::InvalidArgument(format!(
                    "compile: the tiles along '{name}' have sizes {other} and {tile}; axes of one \
                     name have one tile"
                )));
            }
            Some(_) => {}
            None => tiles.push((symbol, tile)),
        }
    }
    Ok(tiles)
}

impl TracedProgram {
    /// Traces a function: calls it with a placeholder per argument, each with the dynamic axes of
    /// the same position in `dims`. `outside` are captured tensors that every call supplies. Other
    /// tensors that the outputs need become part of the program, with their current values.
    ///
    /// Returns the program and the positions of the tensors of `outside` that it needs.
    ///
    /// Errors: those of the function; a shape error for sizes out of range, and for axes of one
    /// name with different sizes; [`Error::OutsideValue`] if the function reads a captured tensor.
    pub fn trace<E: From<Error>>(
        arguments: &[TensorSpec],
        dims: &[Vec<DynamicDim>],
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
        let own = self.device?;
        let other = |t: &&Tensor| {
            let place = t.node().place();
            !place.is_floating() && place.device() != own
        };
        let found = arguments.iter().find(other)?.node().place().device();
        Some(format!("the function asked for the device, which was {own} and is {found}"))
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

    /// The outputs for these arguments and these values of the captured tensors.
    ///
    /// Runs the program immediately and returns computed tensors. Only if an argument depends on a
    /// placeholder of a function that is being traced, or a tensor requires a gradient
    /// ([`Tensor::requires_grad`]), the program is recorded instead, and its outputs are lazy.
    /// Compiled functions can therefore be differentiated. The results of a function that takes
    /// gradients itself require none.
    ///
    /// Errors: [`Error::InvalidArgument`] for arguments that the program does not serve;
    /// [`Error::Evaluation`].
    #[track_caller]
    pub fn call(
        self: &Arc<Self>,
        arguments: &[&Tensor],
        captures: &[&Tensor],
    ) -> Result<Vec<Tensor>> {
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let bound = BoundProgram::new(self.clone(), &specs)?;
        let found: Vec<TensorSpec> = captures.iter().map(|t| t.spec()).collect();
        if found != self.captures {
            return Err(Error::InvalidArgument(format!(
                "the function refers to tensors {:?} where it was traced with {:?}",
                found, self.captures
            )));
        }
        let given: Vec<Tensor> = arguments.iter().chain(captures).map(|&t| t.clone()).collect();
        bound.call(&given)
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
    let stops =
        |node: &Arc<girih_record::node::Node>| outside.iter().any(|t| Arc::ptr_eq(t.node(), node));
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
    let scheduled = |node: &&Arc<girih_record::node::Node>| {
        Tensor::from_node((*node).clone()).state() == TensorState::Scheduled
    };
    for node in reached.iter().filter(scheduled) {
        girih_record::eval::settle_or_interrupt(node)?;
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

/// A function that is traced at its first call. It is traced again only for arguments that no
/// existing program serves: other dtypes, ranks or static sizes, or dynamic sizes that violate a
/// guard.
pub struct Compiled<F> {
    f: F,
    dims: Vec<Vec<DynamicDim>>,
    /// The program of the last call, per thread.
    recent: Striped<Mutex<Option<Arc<Recent>>>>,
    programs: Mutex<Programs>,
}

/// The program of a thread's last call, with a reference count of its own, so that threads share
/// neither a lock nor a count.
struct Recent(Arc<BoundProgram>);

/// The programs of a function, and the programs bound to arguments of earlier calls.
#[derive(Default)]
struct Programs {
    traced: Vec<Arc<TracedProgram>>,
    /// The bound programs in order of creation.
    bound: Vec<Arc<BoundProgram>>,
}

/// The maximum number of bound programs per function; beyond this number, the oldest program is
/// evicted.
const MAX_BOUND: usize = 16;

/// Compiles a function once per signature. A change of a size compiles again, except along the axes
/// that [`Compiled::dynamic`] names. The results are computed when a call returns; see
/// [`TracedProgram::call`]. Captured tensors keep the values that they have at tracing.
///
/// ```
/// use girih::{Tensor, compile};
///
/// let mean = compile(|x| Ok(vec![x[0].mean_all()?])).dynamic(0, (0, "batch"));
/// let of = |data: &[f32]| mean.call(&[&Tensor::from_slice(data, [data.len()])?])?[0].item::<f32>();
/// assert_eq!(of(&[1.0, 2.0])?, 1.5);
/// assert_eq!(of(&[1.0, 2.0, 6.0])?, 3.0);
/// assert_eq!(mean.num_programs(), 1);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn compile<F>(f: F) -> Compiled<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    Compiled { f, dims: Vec::new(), recent: Striped::default(), programs: Mutex::default() }
}

impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// Declares that an axis of an argument may have another size at each call: `(0, "batch")` is
    /// axis 0, whose size is called `batch`. See [`DynamicDim`] for a range of sizes.
    pub fn dynamic(mut self, argument: usize, dim: impl Into<DynamicDim>) -> Compiled<F> {
        if self.dims.len() <= argument {
            self.dims.resize_with(argument + 1, Vec::new);
        }
        self.dims[argument].push(dim.into());
        self
    }

    /// Declares that larger tensors run tile by tile along an axis of an argument: the program is
    /// compiled for `size` elements of the axis and is not compiled again for larger tensors. A
    /// last tile that is smaller has a program of its own. Corresponding axes of all arguments must
    /// be declared.
    ///
    /// Axes of elementwise ops, of products and of sums and other reductions that are results can
    /// be tiled; for a function that needs a whole axis (a mean, a sort), the whole program runs
    /// ([`crate::CallPath`] says which). Sums over a tiled axis add the sums of the tiles, so they
    /// are rounded in another order. A tensor on the host, called in the scope of another device,
    /// streams through that device, so that it may be larger than the device's memory; its results
    /// are on the host.
    ///
    /// ```
    /// use girih::{CallPath, DType, Tensor, compile};
    ///
    /// let double = compile(|x| Ok(vec![x[0].mul(2.0)?])).tile(0, 0, 1000);
    /// let y = double.call(&[&Tensor::ones([2500, 3], DType::F32)?])?;
    /// assert_eq!(y[0].sum_all()?.item::<f32>()?, 15000.0);
    /// assert_eq!(double.path(&[&Tensor::ones([9999, 3], DType::F32)?]), CallPath::Tiled(10));
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn tile(mut self, argument: usize, axis: i64, size: usize) -> Compiled<F> {
        if self.dims.len() <= argument {
            self.dims.resize_with(argument + 1, Vec::new);
        }
        let dims = &mut self.dims[argument];
        match dims.iter_mut().find(|dim| dim.axis == axis) {
            Some(dim) => dim.tile = Some(size),
            None => {
                let name = format!("tile_{argument}_{}", dims.len());
                dims.push(DynamicDim { tile: Some(size), ..DynamicDim::new(axis, &name) });
            }
        }
        self
    }

    /// How a call with these arguments runs.
    pub fn path(&self, arguments: &[&Tensor]) -> CallPath {
        let given: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
        if let Some(bound) = self.bound_for(&given) {
            return bound.path(&given);
        }
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let found = self.traced_for(&given, &specs);
        let bound = found.and_then(|program| BoundProgram::new(program, &specs).ok());
        bound.map_or(CallPath::Compiled, |bound| bound.path(&given))
    }

    /// Calls the function, running a compiled program if possible.
    ///
    /// Errors: those of the function; as [`TracedProgram::trace`] and [`TracedProgram::call`].
    #[track_caller]
    pub fn call(&self, arguments: &[&Tensor]) -> Result<Vec<Tensor>> {
        let within = Context::current().has_named_axes();
        if within || arguments.iter().any(|t| t.shape().is_symbolic()) {
            // The call is part of another function that is being compiled, or of one member of a
            // batch.
            let arguments: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
            return (self.f)(&arguments);
        }
        let given: SmallVec<[Tensor; 8]> = arguments.iter().map(|&t| t.clone()).collect();
        let recent = lock(self.recent.mine()).clone();
        if let Some(recent) = recent.filter(|recent| recent.0.serves(&given)) {
            return recent.0.call(&given);
        }
        let bound = self.bound_for(&given).map_or_else(|| self.bind(arguments), Ok)?;
        *lock(self.recent.mine()) = Some(Arc::new(Recent(bound.clone())));
        bound.call(&given)
    }

    /// The program that is bound to tensors like these.
    fn bound_for(&self, given: &[Tensor]) -> Option<Arc<BoundProgram>> {
        self.lock().bound.iter().rfind(|bound| bound.serves(given)).cloned()
    }

    /// The traced program that serves these tensors.
    fn traced_for(&self, given: &[Tensor], specs: &[TensorSpec]) -> Option<Arc<TracedProgram>> {
        let serves = |p: &&Arc<TracedProgram>| {
            p.refuses_context(given).is_none() && p.refuses(specs).is_none()
        };
        self.lock().traced.iter().find(serves).cloned()
    }

    /// Finds a program for these arguments, or traces one, and binds it.
    fn bind(&self, arguments: &[&Tensor]) -> Result<Arc<BoundProgram>> {
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let given: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
        let program = match self.traced_for(&given, &specs) {
            Some(program) => program,
            None => {
                let _scope = DeviceScope::new(Device::common("compile", arguments)?);
                let program = TracedProgram::trace(&specs, &self.dims, &[], |x| (self.f)(x))?.0;
                let program = Arc::new(program);
                self.lock().traced.push(program.clone());
                program
            }
        };
        let bound = Arc::new(BoundProgram::new(program, &specs)?);
        let mut programs = self.lock();
        if programs.bound.len() >= MAX_BOUND {
            programs.bound.remove(0);
        }
        programs.bound.push(bound.clone());
        Ok(bound)
    }

    /// How many times the function has been traced.
    pub fn num_programs(&self) -> usize {
        self.lock().traced.len()
    }

    /// The time of compiling the function's programs; see [`TracedProgram::compile_time`].
    pub fn compile_time(&self) -> Duration {
        self.lock().traced.iter().map(|program| program.compile_time()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Programs> {
        lock(&self.programs)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
