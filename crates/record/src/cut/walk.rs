//! The walk from the targets of an evaluation to its graph.
//!
//! A walk marks each lazy node that it visits, until the caller has taken over the computation of
//! the graph. Therefore no two concurrent walks have a lazy node in common, and walks over disjoint
//! graphs share nothing. A walk that meets the mark of another walk clears its own marks and starts
//! again, under a lock for such walks. Walks without the lock never wait, and only one walk holds
//! the lock, so there is no deadlock.

use super::{Cut, CutGraph, Transferred};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::hints;
use crate::mesh::Home;
use crate::node::{Held, Node, State, drop_state};
use crate::order::Visit;
use crate::place::Place;
use girih_ir::ops::ItemRank;
use girih_ir::{Attrs, Class, Graph, Literal, NodeId, Op, OpCode};
use girih_runtime::{Argument, Value};
use girih_sync::{Mutex, Section};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};

/// Initial capacity: most graphs are small, and each evaluation pays for the cut.
const TYPICAL_NODES: usize = 24;

/// Held by a walk that has met the mark of another walk.
static CONTENDED: Mutex<()> = Mutex::new(());

/// Cuts a graph, depth-first from the targets with operands first, so that equal computations give
/// equal graphs, whatever their recording order. The graph is for one device, with values `transferred`
/// from other devices, or for a mesh. With `keep`, intermediates with other references become outputs
/// too, since they would be recomputed otherwise. `take` is called with the graph while no other cut can
/// contain a lazy node of it.
///
/// Errors: [`Error::TracedValue`]; [`Error::Donated`].
pub(crate) fn cut<T>(
    home: Home,
    targets: &[&Arc<Node>],
    transferred: &Transferred,
    keep: bool,
    take: impl FnOnce(&CutGraph) -> T,
) -> Result<Cut<T>> {
    // Locking all nodes in one section is cheaper than entering a section per node.
    let _section = Section::enter();
    let mut take = Some(take);
    let mut attempt = || CutWalk::new(home, transferred).cut(targets, keep, &mut take);
    if let Some(outcome) = attempt()? {
        return Ok(outcome);
    }
    let _turn = CONTENDED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(outcome) = attempt()? {
            return Ok(outcome);
        }
        std::thread::yield_now();
    }
}

/// A graph being cut out. Its marks are cleared when it is dropped.
struct CutWalk<'a> {
    home: Home,
    transferred: &'a Transferred,
    elsewhere: Vec<Arc<Node>>,
    cut: CutGraph,
    ids: FxHashMap<*const Node, NodeId>,
    /// The number of references to each node within the graph, to detect references from outside.
    uses: Vec<u32>,
    /// The stack of the depth-first search. Nodes with a pending exit are marked.
    stack: Vec<Visit>,
    /// Positions of the other marked nodes.
    marked: Vec<u32>,
}

impl Drop for CutWalk<'_> {
    fn drop(&mut self) {
        self.marked.iter().for_each(|&at| self.cut.nodes[at as usize].unmark_cut());
        for visit in &self.stack {
            if let Visit::Exit(node) = visit {
                node.unmark_cut();
            }
        }
    }
}

/// The reason why a walk stops early.
enum Stop {
    /// Another evaluation computes this node.
    Blocked(Arc<Node>),
    /// Another cut contains a node of the graph.
    InAnotherCut,
}

impl<'a> CutWalk<'a> {
    fn new(home: Home, transferred: &'a Transferred) -> CutWalk<'a> {
        CutWalk {
            home,
            transferred,
            elsewhere: Vec::new(),
            cut: CutGraph {
                graph: Graph::with_capacity(TYPICAL_NODES),
                nodes: Vec::with_capacity(TYPICAL_NODES),
                arguments: Vec::with_capacity(TYPICAL_NODES),
                ..CutGraph::default()
            },
            ids: FxHashMap::with_capacity_and_hasher(TYPICAL_NODES, Default::default()),
            uses: Vec::with_capacity(TYPICAL_NODES),
            stack: Vec::with_capacity(TYPICAL_NODES),
            marked: Vec::with_capacity(TYPICAL_NODES),
        }
    }

    /// Cuts the graph. Returns `None` if another cut contains a node of the graph.
    fn cut<T, F: FnOnce(&CutGraph) -> T>(
        mut self,
        targets: &[&Arc<Node>],
        keep: bool,
        take: &mut Option<F>,
    ) -> Result<Option<Cut<T>>> {
        for target in targets {
            match self.reach(target)? {
                None => {}
                Some(Stop::Blocked(node)) => return Ok(Some(Cut::Blocked(node))),
                Some(Stop::InAnotherCut) => return Ok(None),
            }
        }
        if !self.elsewhere.is_empty() {
            return Ok(Some(Cut::Elsewhere(std::mem::take(&mut self.elsewhere))));
        }
        if keep && !self.add_siblings() {
            return Ok(None);
        }
        self.choose_outputs(targets, keep);
        if hints::any() {
            let CutGraph { graph, nodes, .. } = &mut self.cut;
            hints::note_all(graph, (0..).map(NodeId).zip(nodes.iter()));
        }
        let Some(take) = take.take() else { unreachable!("called once, by the last attempt") };
        let taken = take(&self.cut);
        self.marked.drain(..).for_each(|at| self.cut.nodes[at as usize].unmark_cut());
        Ok(Some(Cut::Ready(std::mem::take(&mut self.cut), taken)))
    }

    /// Adds the ancestors of a tensor to the graph; stops at a node of another evaluation or cut.
    fn reach(&mut self, target: &Arc<Node>) -> Result<Option<Stop>> {
        self.stack.push(Visit::Enter(target.clone()));
        while let Some(visit) = self.stack.pop() {
            match visit {
                Visit::Enter(node) if self.ids.contains_key(&Arc::as_ptr(&node)) => {}
                Visit::Enter(node) => match self.enter(&node) {
                    // The node is added at its exit.
                    Reached::Lazy => {}
                    Reached::Leaf(op) => {
                        let id = self.cut.graph.leaf(op, node.spec());
                        self.add(node, id);
                    }
                    Reached::Drawn(op) => {
                        let id = self.cut.graph.leaf(op, node.spec());
                        self.add_marked(node, id);
                    }
                    Reached::Elsewhere => {
                        // A stand-in for the value. The graph is cut again after the value has been
                        // copied to this device.
                        let id = self.cut.graph.leaf(OpCode::Input.into(), node.spec());
                        self.elsewhere.push(node.clone());
                        self.add(node, id);
                    }
                    Reached::Blocked => return Ok(Some(Stop::Blocked(node))),
                    Reached::InAnotherCut => return Ok(Some(Stop::InAnotherCut)),
                    Reached::Donated => {
                        return Err(Error::Donated { shape: node.shape().to_string() });
                    }
                    Reached::Placeholder => {
                        node.check()?;
                        // The line is resolved when the error is shown. Resolving it may need the
                        // interpreter, for which this thread must not wait while it holds marks.
                        return Err(Error::TracedValue {
                            what: "evaluation",
                            argument: crate::trace::name_of(&node),
                            shape: node.shape().to_string(),
                            at: Some(target.location()).filter(|l| l.is_known()),
                        });
                    }
                },
                Visit::Exit(node) => self.exit(node),
            }
        }
        Ok(self.mark_target(target).then_some(Stop::InAnotherCut))
    }

    /// Marks a target that is a constant, which needs no operands and which other evaluations may
    /// compute as well. Returns true if another cut contains it.
    fn mark_target(&mut self, target: &Arc<Node>) -> bool {
        let id = self.ids[&Arc::as_ptr(target)];
        let op = &self.cut.graph.node(id).op;
        let constant = op.class() == Class::Leaf && !op.is_random();
        if !constant || !is_computed(&self.cut.graph, id) || self.marked.contains(&id.0) {
            return false;
        }
        let met = !target.mark_cut();
        if !met {
            self.marked.push(id.0);
        }
        // Another evaluation took over the constant after the walk visited it, so the graph is cut
        // again.
        met || matches!(&*target.state(), State::Scheduled(_) | State::Available(_))
    }

    fn exit(&mut self, node: Arc<Node>) {
        // Add the node to the marked nodes first, so that its mark is cleared even on a panic.
        let at = self.cut.nodes.len();
        self.cut.nodes.push(node);
        self.marked.push(at as u32);
        let node = &self.cut.nodes[at];
        let mut inputs: SmallVec<[NodeId; 3]> = SmallVec::new();
        node.state().for_each_input(|i| inputs.push(self.ids[&Arc::as_ptr(i)]));
        inputs.iter().for_each(|i| self.uses[i.index()] += 1);
        let id = self.cut.graph.push_unchecked(node.op(), &inputs, node.spec());
        self.ids.insert(Arc::as_ptr(node), id);
        self.uses.push(0);
    }

    /// Pushes a lazy node and its operands on the stack.
    fn descend(&mut self, node: &Arc<Node>, state: &State) -> Reached {
        if !node.mark_cut() {
            return Reached::InAnotherCut;
        }
        self.stack.push(Visit::Exit(node.clone()));
        let first = self.stack.len();
        state.for_each_input(|input| {
            if !self.ids.contains_key(&Arc::as_ptr(input)) {
                self.stack.push(Visit::Enter(input.clone()));
            }
        });
        // The stack is last in, first out, so that the first operand is visited first.
        self.stack[first..].reverse();
        Reached::Lazy
    }

    fn add(&mut self, node: Arc<Node>, id: NodeId) {
        self.ids.insert(Arc::as_ptr(&node), id);
        self.cut.nodes.push(node);
        self.uses.push(0);
    }

    fn add_marked(&mut self, node: Arc<Node>, id: NodeId) {
        self.marked.push(id.0);
        self.add(node, id);
    }

    /// Adds the live sibling results of calls with several results: the same call computes the
    /// siblings, and they would need another call later. Siblings are found by their numbers, so
    /// that recording has no overhead for them. Returns false if another cut contains a sibling.
    fn add_siblings(&mut self) -> bool {
        let several = |id: &NodeId| {
            let op = &self.cut.graph.node(*id).op;
            let single = match op.as_host() {
                Some((_, call)) => call.results().len() == 1,
                None => matches!(op.def().item_rank, ItemRank::Matrix([_])),
            };
            match op.as_control() {
                Some((_, control)) => control.num_results(op.code) > 1,
                None => op.class() == Class::Library && !single,
            }
        };
        let mut calls: Vec<NodeId> = self.cut.graph.ids().filter(several).collect();
        if calls.is_empty() {
            return true;
        }
        let recording = Context::current().graph();
        let mut at = 0;
        while let Some(&id) = calls.get(at) {
            at += 1;
            let node = self.cut.nodes[id.index()].clone();
            for other in recording.around(node.id()) {
                if self.ids.contains_key(&Arc::as_ptr(&other)) || !is_sibling(&node, &other) {
                    continue;
                }
                if !other.mark_cut() {
                    return false;
                }
                let lazy = is_sibling(&node, &other);
                let inputs = self.cut.graph.node(id).inputs.clone();
                inputs.iter().for_each(|i| self.uses[i.index()] += 1);
                let sibling = self.cut.graph.push_unchecked(other.op(), &inputs, other.spec());
                self.add_marked(other, sibling);
                // The siblings of a call with many results are not all close to one of them.
                calls.push(sibling);
                if !lazy {
                    // Another evaluation took over the sibling after the search.
                    return false;
                }
            }
        }
        true
    }

    fn choose_outputs(&mut self, targets: &[&Arc<Node>], keep: bool) {
        let cut = &mut self.cut;
        let mut is_output = vec![false; cut.nodes.len()];
        let on_mesh = matches!(self.home, Home::Mesh(_));
        let held = |id: NodeId| {
            // The cut's own list holds one reference. On a mesh, what floats is computed again.
            keep && (!on_mesh || cut.nodes[id.index()].place().is_sharded())
                && Arc::strong_count(&cut.nodes[id.index()]) > self.uses[id.index()] as usize + 1
        };
        let targets = targets.iter().map(|target| self.ids[&Arc::as_ptr(target)]);
        let targets = targets.filter(|&id| is_computed(&cut.graph, id));
        let mut is_new = |id: &NodeId| !std::mem::replace(&mut is_output[id.index()], true);
        let mut outputs: Vec<NodeId> = targets.filter(&mut is_new).collect();
        let num_targets = outputs.len();
        let kept = cut.graph.ids().filter(|&id| held(id)).filter_map(|id| kept(&cut.graph, id));
        outputs.extend(kept.filter(is_new));
        (cut.outputs, cut.num_targets) = (outputs, num_targets);
        cut.graph.set_outputs(cut.outputs.iter().copied());
    }
}

/// Whether `other` is a lazy result of the same call as `node`.
fn is_sibling(node: &Node, other: &Node) -> bool {
    let same = match (node.attrs(), other.attrs()) {
        (Attrs::Control { control: a, .. }, Attrs::Control { control: b, .. }) => Arc::ptr_eq(a, b),
        (Attrs::Host { call: a, .. }, Attrs::Host { call: b, .. }) => Arc::ptr_eq(a, b),
        (_, &Attrs::Library { result, .. }) => node.op().with_result(result) == other.op(),
        _ => false,
    };
    if node.code() != other.code() || !same {
        return false;
    }
    let operands = |node: &Node| {
        let mut operands: SmallVec<[*const Node; 2]> = SmallVec::new();
        if let state @ (State::Unary(..) | State::Binary(..) | State::Nary(..)) = &*node.state() {
            state.for_each_input(|input| operands.push(Arc::as_ptr(input)));
        }
        operands
    };
    let found = operands(other);
    !found.is_empty() && found == operands(node)
}

/// Whether the graph computes the node; false for values that are available or scheduled already.
fn is_computed(graph: &Graph, id: NodeId) -> bool {
    !matches!(graph.node(id).op.code, OpCode::Input | OpCode::Parameter)
}

/// The node to compute for a node with other references: the base for a view that is larger than
/// its base (a broadcast), otherwise the node itself. `None` for nodes that cost nothing to
/// recompute (constants, views of available values).
fn kept(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let mut base = id;
    while let Class::View | Class::Reshape = graph.node(base).op.class() {
        base = graph.node(base).inputs[0];
    }
    let op = &graph.node(base).op;
    if op.class() == Class::Leaf && !op.is_random() {
        return None;
    }
    let larger = graph.spec(id).size_bytes() > graph.spec(base).size_bytes();
    Some(if larger { base } else { id })
}

/// How a walk treats a node.
enum Reached {
    /// The node is on the stack; its exit follows the exits of its operands.
    Lazy,
    Leaf(Op),
    /// A random draw, which is marked.
    Drawn(Op),
    /// A placeholder of a function being traced.
    Placeholder,
    /// A tensor that was donated to a compiled function.
    Donated,
    /// The value must be copied from another device.
    Elsewhere,
    Blocked,
    InAnotherCut,
}

impl CutWalk<'_> {
    /// Determines how a node enters the graph: as a leaf, with its argument, or after its operands.
    fn enter(&mut self, node: &Arc<Node>) -> Reached {
        let (mut state, home) = (node.state(), self.home);
        let is_here = |value: &Value| home.takes(value);
        let placement = node.place().sharding();
        if self.waits_elsewhere(node, &state) {
            return Reached::Elsewhere;
        }
        let value = match &*state {
            State::Available(value) if is_here(value) => value.clone(),
            State::Sharded(parts) if home.has(placement) => return self.parts(node, parts.clone()),
            State::Available(_) | State::Sharded(_) => {
                match self.transferred.get(&Arc::as_ptr(node)) {
                    Some(value) => value.clone(),
                    None => return Reached::Elsewhere,
                }
            }
            &State::Random { key, offset } => {
                if !node.mark_cut() {
                    return Reached::InAnotherCut;
                }
                self.cut.arguments.push(Argument::RandomKey { key, offset });
                return Reached::Drawn(node.op());
            }
            State::Scheduled(scheduled) => match (&scheduled.value, scheduled.completion.poll()) {
                (Some(Held::One(value)), _) if !is_here(value) => return Reached::Elsewhere,
                (Some(Held::Parts(_)), _) if !home.has(placement) => return Reached::Elsewhere,
                (Some(Held::Parts(parts)), Some(Ok(()))) => {
                    return self.parts(node, parts.clone());
                }
                (Some(Held::One(value)), Some(Ok(()))) => value.clone(),
                (Some(Held::One(value)), None)
                    if scheduled.queued && matches!(home, Home::Device(_)) =>
                {
                    self.cut.after.push(scheduled.completion.clone());
                    value.clone()
                }
                _ => return Reached::Blocked,
            },
            State::Leaf if node.code() == OpCode::Constant => {
                return Reached::Leaf(constant(node, &mut self.cut.arguments));
            }
            State::Leaf if node.code() == OpCode::Input => return Reached::Placeholder,
            State::Leaf | State::Literal => return Reached::Leaf(node.op()),
            State::Donated => return Reached::Donated,
            lazy @ State::Unary(_, input) if node.code() == OpCode::ToDevice => {
                // The operand of a move is computed on its own device, committed or not. A move to
                // this device moves nothing; only files and `apply` have such moves.
                let (from, to) = (input.place(), node.place());
                return match !from.is_sharded() && from.device() == to.device() {
                    true => self.descend(node, lazy),
                    false => Reached::Elsewhere,
                };
            }
            lazy @ State::Unary(_, input) => match view_of_data(node, input) {
                None => return self.descend(node, lazy),
                Some(value) => {
                    if !node.mark_cut() {
                        return Reached::InAnotherCut;
                    }
                    let lazy = std::mem::replace(&mut *state, State::Available(value.clone()));
                    node.unmark_cut();
                    drop(state);
                    drop_state(lazy);
                    value
                }
            },
            lazy @ (State::Binary(..) | State::Nary(..)) => return self.descend(node, lazy),
        };
        self.cut.arguments.push(Argument::Tensor(value, node.spec()));
        data(node)
    }

    /// Whether a lazy node that a mesh needs is first computed on a device of its own: it is committed
    /// to the device, or it is a reshard of a value from outside of the mesh.
    fn waits_elsewhere(&self, node: &Node, state: &State) -> bool {
        let Home::Mesh(_) = self.home else { return false };
        let is_lazy = matches!(state, State::Unary(..) | State::Binary(..) | State::Nary(..));
        let outside = |place: Place| match place.sharding() {
            Some(placement) => !self.home.has(Some(placement)),
            None => !place.is_floating(),
        };
        match state {
            State::Unary(_, input) if node.code() == OpCode::Reshard => outside(input.place()),
            _ => is_lazy && outside(node.place()),
        }
    }

    /// A value of which each processor of the mesh has a part.
    fn parts(&mut self, node: &Node, parts: Arc<[Value]>) -> Reached {
        self.cut.arguments.push(Argument::Checked(parts[0].clone()));
        self.cut.parts.push((self.cut.arguments.len() - 1, parts));
        data(node)
    }
}

/// A node with a value as a leaf of the graph.
fn data(node: &Node) -> Reached {
    Reached::Leaf(match node.code() {
        OpCode::Parameter => OpCode::Parameter.into(),
        _ => OpCode::Input.into(),
    })
}

/// A slice of whole leading rows of available data shares the data's buffer at an offset, so the
/// slice is available too. A loop over batches therefore runs one program for all positions of the
/// batch.
fn view_of_data(node: &Node, input: &Arc<Node>) -> Option<Value> {
    let shape = input.shape();
    let start = match node.attrs() {
        Attrs::Slice(dims) => {
            let (rows, inner) = dims.split_first()?;
            let whole =
                |(d, &size): (&girih_ir::ops::SliceDim, &usize)| d.start == 0 && d.size == size;
            if rows.step != 1 || !inner.iter().zip(&shape[1..]).all(whole) {
                return None;
            }
            rows.start
        }
        Attrs::Part { axis: 0, .. } => node.op().part_of(&shape)?.1,
        _ => return None,
    };
    let State::Available(value) = &*input.state() else { return None };
    let row_bytes = shape[1..].iter().product::<usize>() * node.dtype().size();
    Some(value.skip(start * row_bytes))
}

/// Constants whose values enable simplifications are part of the program. All others are run-time
/// scalars, so that a changed learning rate does not cause a recompilation.
fn constant(node: &Node, arguments: &mut Vec<Argument>) -> Op {
    let &Attrs::Value(bits) = node.attrs() else { return node.op() };
    let value = Literal { dtype: node.dtype(), bits }.as_f64();
    if value == 0.0 || value == 1.0 || !value.is_finite() {
        return node.op();
    }
    arguments.push(Argument::Scalar(bits));
    OpCode::Constant.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval;
    use crate::testing::{constant, data, elements, op};
    use std::sync::mpsc::{self, RecvTimeoutError::Timeout};
    use std::time::Duration;

    /// Runs `f` while another thread holds a cut of the node's graph with its marks set.
    fn while_cut(node: &Arc<Node>, f: impl FnOnce()) {
        let home = Home::Device(eval::executor().unwrap().device().id());
        std::thread::scope(|scope| {
            let (ready, is_ready) = mpsc::channel();
            let (end, ends) = mpsc::channel::<()>();
            scope.spawn(move || {
                let hold = |_: &CutGraph| {
                    ready.send(()).unwrap();
                    // `recv` returns an error if `f` panics, which ends this thread too.
                    let _ = ends.recv();
                };
                cut(home, &[node], &Transferred::default(), true, hold).unwrap();
            });
            is_ready.recv().unwrap();
            f();
            drop(end);
        });
    }

    #[test]
    fn graphs_without_a_common_lazy_node_are_cut_out_at_once() {
        let (x, two) = (data(&[1.0, 2.0]), constant(2.0, 2));
        let one = op(OpCode::Neg, &[&op(OpCode::Mul, &[&x, &two])]);
        let other = op(OpCode::Add, &[&op(OpCode::Mul, &[&x, &two]), &constant(1.0, 2)]);
        while_cut(&one, || {
            // A walk that met a mark would wait for this lock.
            let _turn = CONTENDED.lock().unwrap();
            let (sender, receiver) = mpsc::channel();
            std::thread::spawn(move || sender.send(elements(&other)));
            assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(vec![3.0, 5.0]));
        });
        assert_eq!(elements(&one), [-2.0, -4.0]);
    }

    #[test]
    fn a_lazy_node_is_in_one_graph_at_a_time() {
        let shared = op(OpCode::Neg, &[&data(&[1.0, 2.0])]);
        let one = op(OpCode::Add, &[&shared, &constant(1.0, 2)]);
        let other = op(OpCode::Mul, &[&shared, &constant(2.0, 2)]);
        let (sender, receiver) = mpsc::channel();
        let mut waiting = None;
        while_cut(&one, || {
            let evaluate = move || sender.send(elements(&other)).unwrap();
            waiting = Some(std::thread::spawn(evaluate));
            assert_eq!(receiver.recv_timeout(Duration::from_millis(50)), Err(Timeout));
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(vec![-2.0, -4.0]));
        waiting.unwrap().join().unwrap();
    }

    #[test]
    fn a_walk_that_stops_clears_its_marks() {
        let x = data(&[1.0, 2.0]);
        let deep = op(OpCode::Mul, &[&op(OpCode::Exp, &[&x]), &constant(3.0, 2)]);
        // The graph has a placeholder in the middle.
        let placeholder = eval::placeholder(&deep.spec());
        let mixed = op(OpCode::Neg, &[&op(OpCode::Add, &[&deep, &placeholder])]);
        for _ in 0..2 {
            let outcome = eval::eval_recorded(&[&mixed]);
            assert!(matches!(outcome, Err(Error::TracedValue { .. })));
        }
        assert!([&deep, &mixed].into_iter().all(|node| node.mark_cut()));
        [&deep, &mixed].into_iter().for_each(|node| node.unmark_cut());
        assert!(eval::eval_recorded(&[&deep]).is_ok());
    }

    #[test]
    fn a_constant_may_be_evaluated_by_several_threads() {
        for _ in 0..200 {
            let one = constant(1.5, 3);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        eval::eval_recorded(&[&one, &one]).unwrap();
                        assert_eq!(elements(&one), [1.5; 3]);
                    });
                }
            });
        }
    }
}
