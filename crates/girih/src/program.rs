//! Programs as independent objects: a graph with the values that it holds, cut out of a recording,
//! saved in files, and run on other inputs.

mod file;
mod jacobian;
mod linear;
mod nodes;
mod rewrite;
mod rules;
mod transform;

use crate::{Error, Result, Tensor, random};
use girih_ir::dim::Symbol;
use girih_ir::{Attrs, Graph, Literal, NodeId, OpCode, TensorSpec};
use girih_record::cut::note;
use girih_record::location::Location;
use girih_record::order::{ancestors, in_recording_order};
use girih_record::{Node, State, hints};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use nodes::NodeInfo;

/// A closed graph with the values of some of its arguments. Arguments without a value are the
/// program's inputs, in the graph's order. Sizes of inputs may be symbolic: the program then serves
/// all sizes for which its guards hold.
///
/// ```
/// use girih::{Program, Tensor};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
/// let y = x.mul(3.0)?;
/// let program = Program::capture(&[&y], &[&x])?;
/// let again = Program::from_bytes(&program.to_bytes()?)?;
/// let out = again.call(&[&Tensor::from_slice(&[5.0f32, 6.0], [2])?])?;
/// assert_eq!(out[0].to_vec::<f32>()?, [15.0, 18.0]);
/// # Ok::<(), girih::Error>(())
/// ```
#[derive(Clone)]
pub struct Program {
    graph: Graph,
    values: BTreeMap<NodeId, Held>,
}

/// The value of an argument.
#[derive(Clone)]
enum Held {
    Tensor(Tensor),
    /// The bits of a run-time constant.
    Scalar(u64),
    /// A random leaf's position in the generator's sequence.
    Random {
        key: u64,
        offset: u64,
    },
}

/// An input of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The input's node.
    pub id: NodeId,
    /// The input's name, or its node's number (`%0`) if it has no name.
    pub name: String,
    /// The shape and dtype; a scalar for a run-time constant.
    pub spec: TensorSpec,
}

impl Program {
    /// The program that computes `outputs` from `inputs`. The program holds every other node that
    /// it needs and that has a value (parameters, data, evaluated intermediates). It holds random
    /// leaves as their positions in the generator's sequence, so it draws the same numbers as the
    /// recording.
    ///
    /// Errors: [`Error::InvalidArgument`] for duplicate inputs; the error of a tensor that carries
    /// one.
    pub fn capture(outputs: &[&Tensor], inputs: &[&Tensor]) -> Result<Program> {
        Program::capture_with(outputs, inputs, &[])
    }

    /// Like [`Program::capture`], with named parameters: each of `parameters` that the outputs need
    /// becomes a parameter of the program, with the given name and its value, which is evaluated if
    /// needed.
    ///
    /// ```
    /// use girih::{DType, Program, Tensor};
    ///
    /// let (w, x) = (Tensor::rand([3], DType::F32)?, Tensor::zeros([4, 3], DType::F32)?);
    /// let y = x.mul(&w)?;
    /// let program = Program::capture_with(&[&y], &[&x], &[("scale".into(), w)])?;
    /// assert_eq!(program.parameters()[0].0, "scale");
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::capture`]; as [`crate::eval`] of the parameters.
    pub fn capture_with(
        outputs: &[&Tensor],
        inputs: &[&Tensor],
        parameters: &[(String, Tensor)],
    ) -> Result<Program> {
        Ok(Program::capture_with_lines(outputs, inputs, parameters)?.0)
    }

    /// As [`Program::capture_with`]; also returns the lines that recorded the nodes.
    pub(crate) fn capture_with_lines(
        outputs: &[&Tensor],
        inputs: &[&Tensor],
        parameters: &[(String, Tensor)],
    ) -> Result<(Program, BTreeMap<NodeId, Location>)> {
        let mut lines = BTreeMap::new();
        outputs.iter().chain(inputs).try_for_each(|t| t.node().check())?;
        let is_input = |t: &Tensor| inputs.iter().any(|input| input.is_same(t));
        let mut named: FxHashMap<*const Node, &str> = FxHashMap::default();
        if !parameters.is_empty() {
            let reached =
                ancestors(outputs, |node| inputs.iter().any(|t| Arc::ptr_eq(t.node(), node)));
            let reached: FxHashSet<*const Node> = reached.iter().map(Arc::as_ptr).collect();
            let used = |(_, t): &&(String, Tensor)| {
                reached.contains(&Arc::as_ptr(t.node())) && !is_input(t)
            };
            let used: Vec<&(String, Tensor)> = parameters.iter().filter(used).collect();
            crate::eval(used.iter().map(|(_, tensor)| tensor))?;
            // If a parameter has two names, the first name is used.
            for (name, tensor) in used.into_iter().rev() {
                named.insert(Arc::as_ptr(tensor.node()), name);
            }
        }
        let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
        let mut program = Program::of_graph(Graph::new());
        let own: FxHashSet<*const Node> = inputs.iter().map(|t| Arc::as_ptr(t.node())).collect();
        if own.len() != inputs.len() {
            return Err(Error::InvalidArgument(
                "a program's inputs must be different tensors; one is given twice".into(),
            ));
        }
        for input in inputs {
            // A parameter passed as an input is an ordinary input.
            let id = program.graph.leaf(OpCode::Input.into(), input.spec());
            ids.insert(Arc::as_ptr(input.node()), id);
        }
        let order = ancestors(outputs, |node| own.contains(&Arc::as_ptr(node)));
        for node in in_recording_order(order) {
            let address = Arc::as_ptr(&node);
            if !own.contains(&address) {
                let id = program.add(&node, &ids, named.get(&address).copied());
                lines.insert(id, node.location());
                ids.insert(address, id);
            }
        }
        program.graph.set_outputs(outputs.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
        Ok((program, lines))
    }

    /// Appends a recorded node with its value, if it has one; `parameter` is its name if it is a
    /// parameter.
    fn add(
        &mut self,
        node: &Arc<Node>,
        ids: &FxHashMap<*const Node, NodeId>,
        parameter: Option<&str>,
    ) -> NodeId {
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        let state = node.state();
        state.for_each_input(|i| inputs.push(ids[&Arc::as_ptr(i)]));
        let (op, held) = match &*state {
            state if state.is_available() => {
                let code = match node.code() {
                    OpCode::Parameter => OpCode::Parameter,
                    _ if parameter.is_some() => OpCode::Parameter,
                    _ => OpCode::Input,
                };
                (code.into(), Some(Held::Tensor(Tensor::from_node(node.clone()))))
            }
            State::Random { key, offset } => {
                (node.op(), Some(Held::Random { key: *key, offset: *offset }))
            }
            _ => (node.op(), None),
        };
        drop(state);
        let id = self.graph.push_unchecked(op, &inputs, node.spec());
        if let Some(held) = held {
            self.values.insert(id, held);
        }
        note(&mut self.graph, id, node);
        if let Some(name) = parameter {
            self.graph.set_name(id, name);
        }
        id
    }

    /// Binds the value of an input permanently, under a name; `parameter` makes the input a
    /// parameter.
    pub(crate) fn hold(
        &mut self,
        id: NodeId,
        name: &str,
        tensor: &Tensor,
        parameter: bool,
    ) -> Result<()> {
        tensor.eval()?;
        if parameter {
            self.graph.make_parameter(id);
        }
        if !name.is_empty() {
            self.graph.set_name(id, name);
        }
        self.values.insert(id, Held::Tensor(tensor.clone()));
        Ok(())
    }

    /// The tensor that the program holds for an argument.
    pub(crate) fn held(&self, id: NodeId) -> Option<&Tensor> {
        match self.values.get(&id) {
            Some(Held::Tensor(tensor)) => Some(tensor),
            _ => None,
        }
    }

    /// Removes the positions of the random leaves for which `which` returns a number, and returns
    /// these numbers.
    pub(crate) fn take_draws(
        &mut self,
        which: impl Fn((u64, u64)) -> Option<usize>,
    ) -> BTreeMap<NodeId, usize> {
        let mut taken = BTreeMap::new();
        self.values.retain(|&id, held| {
            let Held::Random { key, offset } = *held else { return true };
            let Some(number) = which((key, offset)) else { return true };
            taken.insert(id, number);
            false
        });
        taken
    }

    /// The program with positions in the generator's sequence for some random leaves.
    pub(crate) fn with_draws(mut self, places: impl Iterator<Item = (NodeId, (u64, u64))>) -> Self {
        let held = |(id, (key, offset))| (id, Held::Random { key, offset });
        self.values.extend(places.map(held));
        self
    }

    /// The key and offset of a random leaf whose position the program holds.
    pub(crate) fn drawn(&self, id: NodeId) -> Option<(u64, u64)> {
        match self.values.get(&id) {
            Some(&Held::Random { key, offset }) => Some((key, offset)),
            _ => None,
        }
    }

    /// The program with another graph of the same nodes.
    pub(crate) fn with_graph(&self, graph: Graph) -> Program {
        Program { graph, values: self.values.clone() }
    }

    /// A program that holds no values.
    pub fn of_graph(graph: Graph) -> Program {
        Program { graph, values: BTreeMap::new() }
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The graph, for setting names of nodes and outputs.
    pub fn graph_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }

    /// Sets a hint of a node, replacing the previous value of the key; see [`Tensor::set_hint`].
    /// Files and text contain hints, and calls of the program record them.
    ///
    /// Errors: those of [`Tensor::set_hint`].
    pub fn set_hint(&mut self, node: NodeId, key: &str, value: &str) -> Result<()> {
        hints::check(key, value, &self.graph.spec(node).shape)?;
        self.graph.set_hint(node, key, value);
        Ok(())
    }

    /// The inputs of the program, in order.
    pub fn inputs(&self) -> Vec<Input> {
        let free = |id: &NodeId| {
            let node = self.graph.node(*id);
            !self.values.contains_key(id) && !node.op.is_random()
        };
        let input = |id: NodeId| {
            let node = self.graph.node(id);
            let spec = match node.op.code {
                OpCode::Constant => TensorSpec::scalar(node.spec.dtype),
                _ => node.spec.clone(),
            };
            Input { id, name: self.name(id), spec }
        };
        self.graph.arguments().filter(free).map(input).collect()
    }

    /// The names and specs of the outputs. An output without a name is named by its node's name or
    /// number.
    pub fn outputs(&self) -> Vec<(String, TensorSpec)> {
        let names = self.graph.output_names();
        let output = |(i, &id): (usize, &NodeId)| {
            let name = names.get(i).cloned().unwrap_or_else(|| self.name(id));
            (name, self.graph.spec(id).clone())
        };
        self.graph.outputs().iter().enumerate().map(output).collect()
    }

    /// Binds the symbols of the graph to the sizes of these inputs; `None` if the graph has no
    /// symbols.
    fn bound(&self, wanted: &[Input], given: &[&Tensor]) -> Result<Option<Graph>> {
        if !self.graph.is_symbolic() {
            return Ok(None);
        }
        let specs: Vec<TensorSpec> = given.iter().map(|t| t.spec()).collect();
        let mut sizes: Vec<(&'static Symbol, usize)> = Vec::new();
        let mut misfits = Vec::new();
        for (input, found) in wanted.iter().zip(&specs) {
            let fits = input.spec.dtype == found.dtype
                && input.spec.shape.rank() == found.shape.rank()
                && input.spec.shape.dims().zip(found.shape.iter()).all(|(dim, &size)| {
                    let Some(symbol) = dim.as_symbol() else { return true };
                    match sizes.iter().find(|(known, _)| std::ptr::eq(*known, symbol)) {
                        Some(&(_, known)) => known == size,
                        None => {
                            sizes.push((symbol, size));
                            symbol.min() <= size && symbol.max().is_none_or(|max| size <= max)
                        }
                    }
                });
            if !fits {
                misfits.push(misfit(input, found, &sizes));
            }
        }
        listed_misfits(std::mem::take(&mut misfits))?;
        // Sizes that are expressions can be checked only after all symbols are bound.
        for (input, found) in wanted.iter().zip(&specs) {
            let values = input.spec.shape.dims().map(|dim| dim.evaluate(&sizes));
            if !values.zip(found.shape.iter()).all(|(value, &size)| value == Some(size)) {
                misfits.push(misfit(input, found, &sizes));
            }
        }
        listed_misfits(misfits)?;
        if let Some(guard) = self.graph.guards().iter().find(|guard| !guard.holds(&sizes)) {
            return Err(Error::InvalidArgument(format!(
                "the program does not serve {}: it was made for sizes at which {guard}",
                listed(&sizes)
            )));
        }
        Ok(Some(self.graph.bind(&sizes)?))
    }

    /// The names and values of the parameters that the program holds.
    pub fn parameters(&self) -> Vec<(String, Tensor)> {
        let parameter = |(&id, held): (&NodeId, &Held)| match held {
            Held::Tensor(t) if self.graph.node(id).op.code == OpCode::Parameter => {
                Some((self.name(id), t.clone()))
            }
            _ => None,
        };
        self.values.iter().filter_map(parameter).collect()
    }

    /// The total bytes of the values that the program holds.
    pub fn held_bytes(&self) -> usize {
        let size = |held: &Held| match held {
            Held::Tensor(t) => t.spec().size_bytes(),
            Held::Scalar(_) => 8,
            Held::Random { .. } => 16,
        };
        self.values.values().map(size).sum()
    }

    pub(crate) fn name(&self, id: NodeId) -> String {
        self.graph.name(id).map_or_else(|| id.to_string(), str::to_string)
    }

    /// Records the program on these inputs and returns its lazy outputs.
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of inputs, and with the names of all
    /// inputs whose shape or dtype does not fit.
    #[track_caller]
    pub fn call(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let wanted = self.inputs();
        if wanted.len() != inputs.len() {
            let list: Vec<String> =
                wanted.iter().map(|input| format!("{}: {}", input.name, input.spec)).collect();
            return Err(Error::InvalidArgument(format!(
                "the program takes {} inputs ({}), got {}",
                wanted.len(),
                list.join(", "),
                inputs.len()
            )));
        }
        let bound = self.bound(&wanted, inputs)?;
        let graph = bound.as_ref().unwrap_or(&self.graph);
        let mut given: FxHashMap<NodeId, &Tensor> = FxHashMap::default();
        let mut misfits = Vec::new();
        for (input, tensor) in wanted.iter().zip(inputs) {
            if bound.is_none() && input.spec != tensor.spec() {
                misfits.push(misfit(input, &tensor.spec(), &[]));
            }
            given.insert(input.id, tensor);
        }
        listed_misfits(misfits)?;
        let (live, exponents) = (graph.live(), Exponents::of(graph));
        let mut tensors: Vec<Option<Tensor>> = vec![None; graph.len()];
        for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
            let tensor = match node.inputs.is_empty() {
                true => exponents.recorded(id, self.leaf(id, node, given.get(&id).copied())?),
                false => {
                    let operand = |i: &NodeId| tensors[i.index()].as_ref();
                    let operands: Option<SmallVec<[&Tensor; 3]>> =
                        node.inputs.iter().map(operand).collect();
                    let operands =
                        operands.expect("operands of live nodes are live and come first");
                    let result = Tensor::record(node.op.clone(), &operands)?;
                    result.put_hints(graph.hints(id));
                    result
                }
            };
            tensors[id.index()] = Some(tensor);
        }
        let output = |id: &NodeId| tensors[id.index()].clone().expect("outputs are live");
        Ok(graph.outputs().iter().map(output).collect())
    }

    /// Compiles the program for inputs like these, which are evaluated first if they have no
    /// values; it does not run, and uses up no random draws. A call then finds it in the cache.
    ///
    /// Errors: those of [`Program::call`] and [`crate::compile_only`].
    pub fn compile(&self, inputs: &[&Tensor]) -> Result<()> {
        // A lazy constant would become a part of the program.
        crate::eval(inputs.iter().copied())?;
        let outputs = random::looking_ahead(|| self.call(inputs))?;
        crate::compile_only(&outputs)?.wait()
    }

    /// Whether the program holds the value of the node, or the position of its draws.
    fn is_held(&self, id: NodeId) -> bool {
        self.values.contains_key(&id)
    }

    fn leaf(&self, id: NodeId, node: &girih_ir::Node, given: Option<&Tensor>) -> Result<Tensor> {
        let spec = &node.spec;
        match (self.values.get(&id), given) {
            (Some(Held::Tensor(tensor)), _) => Ok(tensor.clone()),
            (Some(&Held::Scalar(bits)), _) => {
                Ok(Tensor::constant(Literal { dtype: spec.dtype, bits }, spec.shape.clone()))
            }
            (Some(&Held::Random { key, offset }), _) => {
                Ok(Tensor::with_state(node.op.clone(), spec, State::Random { key, offset }))
            }
            (None, Some(tensor)) if node.op.code == OpCode::Constant => {
                tensor.broadcast_to(spec.shape.clone())
            }
            (None, Some(tensor)) => Ok(tensor.clone()),
            // Draw new numbers at each call.
            (None, None) if node.op.is_random() => {
                random::leaf(node.op.name(), node.op.code, spec.shape.clone(), spec.dtype)
            }
            (None, None) => Ok(Tensor::with_state(node.op.clone(), spec, State::Leaf)),
        }
    }

    /// The graph with symbols replaced by their sizes at tracing.
    ///
    /// Errors: [`Error::Record`] for a graph that is invalid at these sizes.
    pub fn example(&self) -> Result<Graph> {
        let sizes: Vec<_> = self.graph.symbols().into_iter().map(|s| (s, s.hint())).collect();
        Ok(self.graph.bind(&sizes)?)
    }
}

/// The constants of a graph that are exponents. The value of one determines the computation, so it
/// is part of the program, as where the power was recorded.
struct Exponents(Vec<bool>);

impl Exponents {
    fn of(graph: &Graph) -> Exponents {
        let mut exponents = vec![false; graph.len()];
        for (_, node) in graph.nodes().filter(|(_, node)| node.op.code == OpCode::Pow) {
            let exponent = node.inputs[1];
            exponents[exponent.index()] = matches!(graph.node(exponent).op.attrs, Attrs::Value(_));
        }
        Exponents(exponents)
    }

    /// The leaf as it is recorded: a literal if it is an exponent.
    fn recorded(&self, id: NodeId, leaf: Tensor) -> Tensor {
        if self.0[id.index()] { leaf.into_literal() } else { leaf }
    }
}

/// Says what an input is, which spec does not fit it, and the sizes that other inputs have set.
fn misfit(input: &Input, found: &TensorSpec, sizes: &[(&'static Symbol, usize)]) -> String {
    let mut mentioned = Vec::new();
    input.spec.shape.dims().for_each(|dim| dim.symbols(&mut mentioned));
    let ranges: Vec<String> =
        mentioned.iter().map(|s| format!("{} {}", s.name(), s.range())).collect();
    let with = match ranges.is_empty() {
        true => String::new(),
        false => format!(" with {}", ranges.join(", ")),
    };
    let known: Vec<(&'static Symbol, usize)> =
        sizes.iter().copied().filter(|(s, _)| mentioned.contains(s)).collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", listed(&known)) };
    format!("input {} of the program is {}{with}, got {found}{known}", input.name, input.spec)
}

/// Fails with all inputs that do not fit, if any.
fn listed_misfits(misfits: Vec<String>) -> Result<()> {
    if misfits.is_empty() { Ok(()) } else { Err(Error::InvalidArgument(misfits.join("; "))) }
}

/// `batch = 3, length = 8`
fn listed(sizes: &[(&'static Symbol, usize)]) -> String {
    let sizes: Vec<String> = sizes.iter().map(|(s, n)| format!("{} = {n}", s.name())).collect();
    sizes.join(", ")
}
