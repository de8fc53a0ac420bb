//! Control flow: branches and loops that stay in the graph. The functions of a branch or loop are
//! traced once, on placeholders, into a region of one op. Evaluating the op therefore calls no
//! function, compiles nothing and needs no host synchronisation between iterations.

mod call;
mod functions;
mod rules;

use crate::eval::placeholder;
use crate::{Error, Result, Tensor, random};
use girih_ir::ops::control::{Control, stacked};
use girih_ir::{Attrs, DType, Dim, Graph, Literal, NodeId, Op, OpCode, TensorSpec};
use girih_record::context::{self, Context};
use girih_record::order::ancestors;
use girih_record::{Node, State, hints, tape};
use girih_transform::results_read;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;

pub use call::{Recording, Saved, call, checkpoint, optimization_barrier};
pub use functions::{
    Function, ScanOptions, bounded_while_loop, cond, fori_loop, scan, scan_length, scan_with,
    switch, while_loop,
};
pub use rules::{DerivativeRules, custom_jvp, custom_vjp};

/// A function of a branch or loop, traced on placeholders.
///
/// For front ends whose functions are not Rust closures: create placeholders, call the function on
/// them, set its outputs, and pass the body to [`Body::cond`], [`Body::while_loop`] or
/// [`Body::scan`].
#[derive(Default)]
pub struct Body {
    placeholders: Vec<Tensor>,
    start: Start,
    outputs: Vec<Tensor>,
}

/// The state at the start of tracing a function. It separates nodes and draws of the function from
/// earlier nodes and draws.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// The number of the first node recorded after the start.
    first: u32,
    /// The position of the random generator at the start.
    generator: (u64, u64),
}

impl Default for Start {
    fn default() -> Start {
        let first = context::current_graph().num_nodes() as u32;
        Start { first, generator: random::position() }
    }
}

impl Start {
    fn is_new(&self, node: &Node) -> bool {
        node.id().wrapping_sub(self.first) < u32::MAX / 2
    }

    /// Whether `node` is a random draw of the function itself.
    pub(crate) fn draws(&self, node: &Node) -> bool {
        match *node.state() {
            State::Random { key, offset } => {
                let (own, start) = self.generator;
                self.is_new(node) && (key != own || offset >= start)
            }
            _ => false,
        }
    }
}

/// Tensors from outside that regions use, without duplicates, in the order of discovery.
#[derive(Default)]
struct Captures {
    nodes: Vec<Arc<Node>>,
    known: FxHashMap<*const Node, usize>,
}

impl Captures {
    fn add(&mut self, node: &Arc<Node>) {
        self.known.entry(Arc::as_ptr(node)).or_insert_with(|| {
            self.nodes.push(node.clone());
            self.nodes.len() - 1
        });
    }
}

/// The role of a node in a region.
#[derive(Clone, Copy, PartialEq)]
enum RegionRole {
    /// The node is computed in the region.
    Inside,
    /// The node is a leaf that is duplicated in the region.
    Copied,
    /// The node is a random draw of the region itself.
    Draw,
    Outside,
}

/// The nodes that lead to a body's outputs in topological order, with their roles in the region.
struct RegionNodes {
    nodes: Vec<(Arc<Node>, RegionRole)>,
}

impl Body {
    /// A function that is about to be traced.
    pub fn new() -> Body {
        Body::default()
    }

    /// A new argument of the function. It has no value; ops on it are recorded.
    pub fn placeholder(&mut self, spec: &TensorSpec) -> Tensor {
        let tensor = placeholder(spec);
        self.placeholders.push(tensor.clone());
        tensor
    }

    /// Sets the function's results.
    pub fn set_outputs(&mut self, outputs: Vec<Tensor>) {
        self.outputs = outputs;
    }

    /// The function's results.
    pub fn outputs(&self) -> &[Tensor] {
        &self.outputs
    }

    /// Determines the roles of the nodes, by what the function recorded that does not depend on its
    /// arguments or its random draws.
    fn walk(&self, invariant: Invariant) -> RegionNodes {
        let own: FxHashSet<*const Node> =
            self.placeholders.iter().map(|p| Arc::as_ptr(p.node())).collect();
        let roots: Vec<&Tensor> = self.outputs.iter().collect();
        let order = ancestors(&roots, |node| own.contains(&Arc::as_ptr(node)));
        let stays = self.staying(&order, invariant);
        let mut inside: FxHashSet<*const Node> = own.clone();
        let mut nodes = Vec::new();
        for node in order {
            let address = Arc::as_ptr(&node);
            if own.contains(&address) {
                continue;
            }
            let draws = self.start.draws(&node);
            let (mut operands, mut depends) = (0, draws);
            node.state().for_each_input(|i| {
                operands += 1;
                depends |= inside.contains(&Arc::as_ptr(i));
            });
            let lazy = operands > 0 && !matches!(*node.state(), State::Scheduled(_));
            let place = match () {
                _ if draws && invariant != Invariant::Inside => RegionRole::Draw,
                _ if lazy && (depends || (self.start.is_new(&node) && stays(&node))) => {
                    RegionRole::Inside
                }
                _ if is_copied(&node) => RegionRole::Copied,
                _ => RegionRole::Outside,
            };
            if matches!(place, RegionRole::Inside | RegionRole::Draw) {
                inside.insert(address);
            }
            nodes.push((node, place));
        }
        RegionNodes { nodes }
    }

    /// Which ops stay in the region although they depend on none of its arguments.
    fn staying(&self, order: &[Arc<Node>], invariant: Invariant) -> impl Fn(&Node) -> bool + use<> {
        let effect = |node: &Arc<Node>| self.start.is_new(node) && node.op().has_effect();
        // An op that fails before a loop would prevent the effects of the first iteration.
        let fails_outside = invariant == Invariant::Outside && !order.iter().any(effect);
        move |node| match invariant {
            Invariant::Inside => true,
            Invariant::Outside | Invariant::TotalOutside => {
                let op = node.op();
                op.has_effect() || (!fails_outside && op.can_fail())
            }
        }
    }
}

impl Body {
    /// The values of ops with an effect in the region, other than its outputs from position `from`
    /// on. Derivatives recompute the region, but not these ops.
    fn effects(&self, invariant: Invariant, from: usize) -> Result<Vec<Tensor>> {
        let mut found: Vec<Tensor> = Vec::new();
        // The results of branches and loops with an effect, by call.
        let mut calls: Vec<(Op, Vec<Tensor>, Vec<usize>)> = Vec::new();
        for (node, place) in self.walk(invariant).nodes {
            let op = node.op();
            if place != RegionRole::Inside || !op.has_effect() {
                continue;
            }
            if let Some((result, _)) = op.as_control() {
                let (op, mut operands) = (op.with_result(0), Vec::new());
                node.state().for_each_input(|i| operands.push(Tensor::from_node(i.clone())));
                let same = |a: &[Tensor]| a.iter().zip(&operands).all(|(a, b)| a.is_same(b));
                match calls.iter_mut().find(|(known, inputs, _)| *known == op && same(inputs)) {
                    Some((_, _, results)) => results.push(result),
                    None => calls.push((op, operands, vec![result])),
                }
            }
            found.push(Tensor::from_node(node));
        }
        // The other results, among them the values of ops within, and the carries of a loop.
        for (op, operands, known) in calls {
            let (_, control) = op.as_control().expect("it is one of control");
            let others = (0..control.num_results(op.code)).filter(|result| !known.contains(result));
            let ops = others.map(|result| Op::control(op.code, control.clone(), result));
            found.extend(Tensor::record_results(ops, &operands.iter().collect::<Vec<_>>())?);
        }
        found.retain(|t| !self.outputs[from..].iter().any(|output| output.is_same(t)));
        Ok(found)
    }

    /// The function with the values of its ops with an effect as further outputs.
    fn with_effects(&self, invariant: Invariant, from: usize) -> Result<Body> {
        let further = self.effects(invariant, from)?;
        Ok(self.with_outputs(further))
    }

    /// The function with further outputs.
    fn with_outputs(&self, further: impl IntoIterator<Item = Tensor>) -> Body {
        Body {
            placeholders: self.placeholders.clone(),
            start: self.start,
            outputs: self.outputs.iter().cloned().chain(further).collect(),
        }
    }
}

/// Branches that additionally return the values of the ops with an effect of each of them; zeros in
/// the other branches.
fn with_effects_of_all(branches: &[Body]) -> Result<Vec<Body>> {
    let own = branches.iter().map(|b| b.effects(Invariant::Inside, 0));
    let own: Vec<Vec<Tensor>> = own.collect::<Result<_>>()?;
    let zero = |t: &Tensor| Tensor::constant(Literal::from_i64(t.dtype(), 0), t.shape());
    let branch = |at: usize| {
        let further = own.iter().enumerate().flat_map(move |(of, values)| {
            values.iter().map(move |t| if of == at { t.clone() } else { zero(t) })
        });
        branches[at].with_outputs(further)
    };
    Ok((0..branches.len()).map(branch).collect())
}

/// Where ops are computed that a region contains and that depend on none of its arguments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invariant {
    /// In the region.
    Inside,
    /// Once, outside, because the region runs at least once; but ops with an effect in the region.
    Outside,
    /// As `Outside`, for a region that may never run: ops that may fail are in the region, too.
    TotalOutside,
}

/// Whether a node is a leaf that needs no argument: a literal or an iota.
fn is_copied(node: &Node) -> bool {
    match &*node.state() {
        State::Literal => true,
        State::Leaf if node.code() == OpCode::Constant => {
            let &Attrs::Value(bits) = node.attrs() else { return false };
            let value = Literal { dtype: node.dtype(), bits }.as_f64();
            value == 0.0 || value == 1.0 || !value.is_finite()
        }
        State::Leaf => node.code() == OpCode::Iota,
        _ => false,
    }
}

/// The move for a node that commits a value to a device (see [`Tensor::to_device`]). The places of a
/// region's arguments are not known while it is recorded, so that this is a move if they are on
/// another device.
fn commitment(node: &Node) -> Option<Op> {
    let place = node.place();
    if node.code() != OpCode::Reshape || place.is_floating() {
        return None;
    }
    let mut floats = false;
    node.state().for_each_input(|operand| floats = operand.place().is_floating());
    let device = place.device().index();
    floats.then(|| Op::new(OpCode::ToDevice, Attrs::Devices { from: device, to: device }))
}

impl RegionNodes {
    /// Adds the outside nodes that the region uses or returns to `captures`.
    fn capture(&self, body: &Body, captures: &mut Captures) {
        let mut used: FxHashSet<*const Node> = FxHashSet::default();
        for (node, place) in &self.nodes {
            if *place == RegionRole::Inside {
                node.state().for_each_input(|i| {
                    used.insert(Arc::as_ptr(i));
                });
            }
        }
        used.extend(body.outputs.iter().map(|t| Arc::as_ptr(t.node())));
        for (node, place) in &self.nodes {
            if *place == RegionRole::Outside && used.contains(&Arc::as_ptr(node)) {
                captures.add(node);
            }
        }
    }

    fn draws(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.iter().filter(|(_, place)| *place == RegionRole::Draw).map(|(node, _)| node)
    }

    /// The region graph, whose inputs are the placeholders, the draws, and the captured values.
    fn region(&self, body: &Body, captures: &Captures) -> Graph {
        let placeholders = body.placeholders.iter().map(|p| p.node());
        let mut graph = Graph::new();
        let mut ids: FxHashMap<*const Node, NodeId> = FxHashMap::default();
        for node in placeholders.chain(self.draws()).chain(&captures.nodes) {
            let id = graph.leaf(OpCode::Input.into(), node.spec());
            ids.insert(Arc::as_ptr(node), id);
        }
        for (node, place) in &self.nodes {
            let id = match place {
                RegionRole::Inside => {
                    let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
                    node.state().for_each_input(|i| inputs.push(ids[&Arc::as_ptr(i)]));
                    graph.record_at(node.location().number());
                    let op = commitment(node).unwrap_or_else(|| node.op());
                    let id = graph.push_unchecked(op, &inputs, node.spec());
                    hints::note(&mut graph, id, node);
                    id
                }
                RegionRole::Copied => graph.leaf(node.op(), node.spec()),
                RegionRole::Draw | RegionRole::Outside => continue,
            };
            ids.insert(Arc::as_ptr(node), id);
        }
        graph.set_outputs(body.outputs.iter().map(|t| ids[&Arc::as_ptr(t.node())]));
        graph
    }
}

/// An error for the result at position `at`, which names the result if it has a name.
fn differ(what: &str, names: &[String], at: usize, found: &str, expected: &str) -> Error {
    let name = names.get(at).filter(|n| !n.is_empty());
    let leaf = name.map_or_else(|| format!("value {at}"), |name| format!("value {name}"));
    Error::InvalidArgument(format!("{what}: {leaf} is {expected}, but {found}"))
}

/// Fails unless a loop's body returns each carry with its shape and dtype.
fn check_carries(op: &str, init: &[Tensor], outputs: &[Tensor], names: &[String]) -> Result<()> {
    for (i, (before, after)) in init.iter().zip(outputs).enumerate() {
        let (before, after) = (before.spec(), after.spec());
        if before != after {
            let hint = match before.shape == after.shape {
                true => {
                    format!("cast what it starts from with astype to {}", after.dtype)
                }
                false => "a loop carries tensors of one shape".into(),
            };
            let found = format!(
                "after an iteration it is {after}; carries keep their shape and dtype ({hint})"
            );
            return Err(differ(op, names, i, &found, &format!("{before} before the loop")));
        }
    }
    if init.len() != outputs.len() {
        let (given, wanted) = (outputs.len(), init.len());
        let reason = format!("{op}: the body returns {given} values for {wanted} carries");
        return Err(Error::InvalidArgument(reason));
    }
    Ok(())
}

/// Records all results of a control op on these operands.
#[track_caller]
fn record(code: OpCode, control: Control, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let moves = |graph: &Graph| graph.nodes().any(|(_, node)| node.op.code == OpCode::ToDevice);
    if control.regions.iter().any(moves) {
        return Err(Error::InvalidArgument(format!(
            "{}: a function that it runs moves a tensor to another device; it runs on one device, so \
             move tensors before or after",
            code.def().name
        )));
    }
    results(code, &Arc::new(control), operands)
}

/// Records the results, other than stacked histories, of the control op on these operands.
///
/// A call with an effect runs once: if it has derivatives, the results that they read are recorded
/// too, and belong to its steps on the tape.
#[track_caller]
fn results(code: OpCode, control: &Arc<Control>, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    let given = match code {
        OpCode::Scan => control.regions[0].outputs().len(),
        _ => control.num_results(code),
    };
    let derived = control.regions.have_effect()
        && operands.iter().any(Tensor::requires_grad)
        && Context::current().grad();
    let count = if derived { control.num_results(code) } else { given };
    let ops = (0..count).map(|result| Op::control(code, control.clone(), result));
    let mut results = Tensor::record_results(ops, &operands.iter().collect::<Vec<_>>())?;
    if derived {
        let read = results_read(code, control);
        for result in results[..given].iter().filter(|result| result.requires_grad()) {
            tape::keep(result.node(), read.iter().map(|&number| results[number].node().clone()));
        }
    }
    results.truncate(given);
    Ok(results)
}

fn with_captures(operands: impl Iterator<Item = Tensor>, captures: &Captures) -> Vec<Tensor> {
    operands.chain(captures.nodes.iter().cloned().map(Tensor::from_node)).collect()
}

/// Captures a constant if there are no operands, since an op needs at least one operand.
fn at_least_one(operands: &[Tensor], captures: &mut Captures) {
    if operands.is_empty() && captures.nodes.is_empty() {
        let zero = Tensor::constant(Literal::from_i64(DType::Bool, 0), Default::default());
        captures.add(zero.node());
    }
}

impl Body {
    /// The results of the branch that `index` selects. A true bool selects the second branch. An
    /// integer selects the branch of that number and is clamped to the existing branches. The
    /// bodies' placeholders stand for `operands`. `names` are the names of the results, for errors.
    ///
    /// Errors: [`Error::InvalidArgument`] for branches whose results differ in number, shape or
    /// dtype; [`Error::Record`] for an index that is not a scalar, or that is neither bool (with
    /// two branches) nor an integer.
    #[track_caller]
    pub fn cond(
        op: &'static str,
        index: &Tensor,
        branches: &[Body],
        operands: &[Tensor],
        names: &[String],
    ) -> Result<Vec<Tensor>> {
        let Some(first) = branches.first() else {
            return Err(Error::InvalidArgument(format!("{op}: needs at least one branch")));
        };
        for (number, branch) in branches.iter().enumerate() {
            let (given, expected) = (branch.outputs.len(), first.outputs.len());
            if given != expected {
                return Err(Error::InvalidArgument(format!(
                    "{op}: branch {number} returns {given} tensors, branch 0 {expected}"
                )));
            }
            for (i, (given, expected)) in branch.outputs.iter().zip(&first.outputs).enumerate() {
                let (given, expected) = (given.spec(), expected.spec());
                if given != expected {
                    let (found, expected) = match (op, number) {
                        ("cond", _) => (
                            format!("{given} of the true one; both must agree"),
                            format!("{expected} of the false branch"),
                        ),
                        _ => (
                            format!("{given} of branch {number}; all must agree"),
                            format!("{expected} of branch 0"),
                        ),
                    };
                    return Err(differ(op, names, i, &found, &expected));
                }
            }
        }
        let (branches, count) = (with_effects_of_all(branches)?, first.outputs.len());
        let walks: Vec<RegionNodes> = branches.iter().map(|b| b.walk(Invariant::Inside)).collect();
        let mut captures = Captures::default();
        for (walk, branch) in walks.iter().zip(&branches) {
            walk.capture(branch, &mut captures);
        }
        let regions = walks.iter().zip(&branches).map(|(w, b)| w.region(b, &captures)).collect();
        let control = Control::default().with_regions(regions);
        let all = std::iter::once(index).chain(operands).cloned();
        let mut results = record(OpCode::Cond, control, &with_captures(all, &captures))?;
        results.truncate(count);
        Ok(results)
    }

    /// Applies `body` to the carries, starting from `init`, as long as `condition` returns true;
    /// the condition is evaluated before each iteration. Both bodies have placeholders for `init`.
    ///
    /// Errors: [`Error::InvalidArgument`] for a carry that changes its shape or dtype, a condition
    /// that is not one bool scalar, and random draws.
    #[track_caller]
    pub fn while_loop(
        condition: &Body,
        body: &Body,
        init: &[Tensor],
        names: &[String],
    ) -> Result<Vec<Tensor>> {
        check_carries("while_loop", init, &body.outputs, names)?;
        let specs: Vec<TensorSpec> = condition.outputs.iter().map(Tensor::spec).collect();
        if specs != [TensorSpec::scalar(DType::Bool)] {
            let found: Vec<String> = specs.iter().map(|s| s.to_string()).collect();
            return Err(Error::InvalidArgument(format!(
                "while_loop: the condition returns {}; expected one bool scalar, such as x < 3 or \
                 (x < 3).any()",
                found.join(", ")
            )));
        }
        // The condition is computed at least once.
        let walks = [
            (condition.walk(Invariant::Outside), condition),
            (body.walk(Invariant::TotalOutside), body),
        ];
        let mut captures = Captures::default();
        for (walk, body) in &walks {
            if let Some(draw) = walk.draws().next() {
                return Err(Error::InvalidArgument(format!(
                    "while_loop: {} draws by the global seed in a loop whose number of iterations is not \
                     known; pass key= (a key that the loop carries, or fold_in(key, i)), draw outside, or \
                     use fori_loop or scan",
                    draw.code().def().name
                )));
            }
            walk.capture(body, &mut captures);
        }
        let regions = walks.iter().map(|(walk, body)| walk.region(body, &captures)).collect();
        let carries = init.len() as u32;
        let control = Control { carries, ..Control::default() }.with_regions(regions);
        let operands = with_captures(init.iter().cloned(), &captures);
        match init.is_empty() {
            true => Ok(Vec::new()),
            false => record(OpCode::WhileLoop, control, &operands),
        }
    }

    /// Applies `body` to the carries and to each of the `length` slices of `xs` along their leading
    /// axis, in order or in reverse. Returns the last carries, then the other results of the body,
    /// stacked. The body has placeholders for `init`, then for slices of `xs`. Random draws of the
    /// body are drawn anew in each iteration.
    ///
    /// Errors: [`Error::InvalidArgument`] for a carry that changes its shape or dtype, or an operand
    /// whose leading axis has another length.
    #[track_caller]
    pub fn scan(
        op: &'static str,
        body: &Body,
        init: &[Tensor],
        xs: &[Tensor],
        length: Dim,
        reverse: bool,
        names: &[String],
    ) -> Result<Vec<Tensor>> {
        let count = init.len().min(body.outputs.len());
        check_carries(op, init, &body.outputs[..count], names)?;
        for (i, x) in xs.iter().enumerate() {
            if x.shape().dims().next().is_none_or(|dim| !dim.equals(length)) {
                let (found, x) = (format!("its leading axis must have length {length}"), x.spec());
                return Err(differ(
                    op,
                    &names[names.len().min(init.len())..],
                    i,
                    &found,
                    &x.to_string(),
                ));
            }
        }
        let runs = length.known().is_some_and(|length| length > 0);
        let invariant = if runs { Invariant::Outside } else { Invariant::TotalOutside };
        let count = body.outputs.len();
        let body = &body.with_effects(invariant, init.len())?;
        let walk = body.walk(invariant);
        let mut captures = Captures::default();
        walk.capture(body, &mut captures);
        let mut operands: Vec<Tensor> = init.iter().chain(xs).cloned().collect();
        for draw in walk.draws() {
            let spec = stacked(length, &draw.spec());
            operands.push(random::leaf(op, draw.code(), spec.shape, spec.dtype)?);
        }
        at_least_one(&operands, &mut captures);
        let control = Control {
            carries: init.len() as u32,
            slices: (operands.len() - init.len()) as u32,
            length,
            reverse,
            ..Control::default()
        };
        let control = control.with_regions(vec![walk.region(body, &captures)]);
        let all = with_captures(operands.into_iter(), &captures);
        let mut results = record(OpCode::Scan, control, &all)?;
        results.truncate(count);
        Ok(results)
    }
}
