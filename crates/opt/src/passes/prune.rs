//! Removes unneeded parts of branches and loops: unused results, carries that only their own update
//! reads, and operands that no region reads. A carry that no iteration changes becomes a captured
//! value, and a captured literal becomes a constant in the regions.
//!
//! Laws. Never worse: regions only lose nodes and operands. Terminates: each change removes a
//! result, an operand or a carry. Exact: the remaining nodes compute the same values.

use crate::Pass;
use girih_ir::graph::Operands;
use girih_ir::ops::Attrs;
use girih_ir::ops::control::{CallMode, Control};
use girih_ir::{Graph, GraphBuilder, Literal, Node, NodeId, Op, OpCode, Result};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prune;

impl Pass for Prune {
    fn name(&self) -> &str {
        "prune"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        let mut calls: FxHashMap<(Op, Operands), BTreeSet<usize>> = FxHashMap::default();
        let live = graph.live();
        for (_, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
            let Some((result, _)) = node.op.as_control() else { continue };
            let key = (node.op.with_result(0), node.inputs.clone());
            calls.entry(key).or_default().insert(result);
        }
        if calls.is_empty() {
            return Ok(None);
        }
        let mut pruned: FxHashMap<(Op, Operands), Option<Pruned>> = FxHashMap::default();
        for (key, results) in calls {
            let found = prune(graph, &key.0, &key.1, &results);
            pruned.insert(key, found);
        }
        graph.rewrite_nodes(|b, id, moved| {
            let node = graph.node(id);
            let Some((result, _)) = node.op.as_control() else { return Ok(None) };
            let key = (node.op.with_result(0), node.inputs.clone());
            match &pruned[&key] {
                Some(pruned) => pruned.result(b, moved, result).map(Some),
                None => Ok(None),
            }
        })
    }
}

/// The replacement of a result.
#[derive(Clone, Copy)]
enum Became {
    /// Result of the new call, by index.
    Result(usize),
    /// Operand of the old call, by index.
    Operand(usize),
    /// The history of an unchanged carry: the operand, repeated.
    Repeated(usize),
}

/// A call without its unneeded parts.
struct Pruned {
    code: OpCode,
    control: Arc<Control>,
    /// Positions of its operands among the old operands.
    operands: Vec<usize>,
    results: FxHashMap<usize, Became>,
}

impl Pruned {
    /// The replacement of a result; `moved` is the old call in the new graph.
    fn result(&self, b: &mut GraphBuilder, moved: &Node, result: usize) -> Result<NodeId> {
        match self.results[&result] {
            Became::Operand(at) => Ok(moved.inputs[at]),
            Became::Repeated(at) => {
                let attrs = Attrs::shape(moved.spec.shape.clone());
                b.emit(Op::new(OpCode::BroadcastTo, attrs), &[moved.inputs[at]])
            }
            Became::Result(number) => {
                let operands: Vec<NodeId> =
                    self.operands.iter().map(|&i| moved.inputs[i]).collect();
                b.emit(Op::control(self.code, self.control.clone(), number), &operands)
            }
        }
    }
}

/// The inputs of a region that the given outputs depend on.
fn needed_inputs(region: &Graph, outputs: impl IntoIterator<Item = usize>) -> Vec<bool> {
    let outputs: Vec<NodeId> = outputs.into_iter().map(|o| region.outputs()[o]).collect();
    let live = region.ancestors(&outputs);
    region.arguments().map(|id| live[id.index()]).collect()
}

/// The call to prune.
struct Call<'a> {
    code: OpCode,
    control: &'a Control,
    carries: usize,
    /// Number of operands of the regions.
    count: usize,
    /// For each carry, true if no iteration changes it.
    fixed: Vec<bool>,
    /// For each operand, its literal, if the operand is a literal.
    literals: Vec<Option<Literal>>,
}

impl Call<'_> {
    fn body(&self) -> &Graph {
        &self.control.regions[self.control.regions.len() - 1]
    }

    /// The body's results and the operands that the given results need.
    fn needs(&self, results: &BTreeSet<usize>) -> (BTreeSet<usize>, Vec<bool>) {
        let given = self.body().outputs().len();
        let mut outputs: BTreeSet<usize> = BTreeSet::new();
        for &result in results {
            outputs.insert(if result < given { result } else { result - given });
        }
        let mut inputs = vec![false; self.count];
        loop {
            let mut next = vec![false; self.count];
            let mut mark = |region: &Graph, outputs: &mut dyn Iterator<Item = usize>| {
                for (mark, needed) in next.iter_mut().zip(needed_inputs(region, outputs)) {
                    *mark |= needed;
                }
            };
            match self.code {
                OpCode::Cond => {
                    for region in self.control.regions.iter() {
                        mark(region, &mut outputs.iter().copied());
                    }
                }
                OpCode::WhileLoop => {
                    mark(&self.control.regions[0], &mut (0..1));
                    mark(self.body(), &mut outputs.iter().copied());
                }
                _ => mark(self.body(), &mut outputs.iter().copied()),
            }
            // A needed carry needs its initial value, whatever the body does.
            (0..self.carries).filter(|c| outputs.contains(c)).for_each(|c| next[c] = true);
            outputs.extend((0..self.carries).filter(|&c| next[c]));
            if next == inputs {
                return (outputs, inputs);
            }
            inputs = next;
        }
    }

    /// A region with the given operands in order; operands that are literals become constants.
    fn region(&self, region: &Graph, operands: &[usize], outputs: &[usize]) -> Graph {
        let arguments: Vec<NodeId> = region.arguments().collect();
        let mut b = GraphBuilder::default();
        let mut map: Vec<Option<NodeId>> = vec![None; region.len()];
        for &i in operands {
            let input = b.input(region.spec(arguments[i]).clone());
            map[arguments[i].index()] = Some(input);
        }
        let outputs: Vec<NodeId> = outputs.iter().map(|&o| region.outputs()[o]).collect();
        let live = region.ancestors(&outputs);
        for (i, id) in arguments.iter().enumerate() {
            if let (Some(literal), true, None) =
                (self.literals[i], live[id.index()], map[id.index()])
            {
                map[id.index()] = Some(b.constant(literal, region.spec(*id).shape.clone()));
            }
        }
        let outputs = b.copy_nodes(region, map, &outputs);
        b.finish(outputs)
    }
}

/// The call without its unneeded parts; `None` if it needs all of them.
fn prune(graph: &Graph, op: &Op, inputs: &Operands, results: &BTreeSet<usize>) -> Option<Pruned> {
    let (_, control) = op.as_control().expect("ops of control have regions");
    if op.code == OpCode::Call && control.mode != CallMode::Isolated {
        // The call will be inlined.
        return None;
    }
    // A branch's region operands follow its index operand.
    let skip = (op.code == OpCode::Cond) as usize;
    let (carries, slices) = (control.carries as usize, control.slices as usize);
    let body = &control.regions[control.regions.len() - 1];
    let arguments: Vec<NodeId> = body.arguments().collect();
    let count = inputs.len() - skip;
    let fixed = (0..carries).map(|c| body.outputs()[c] == arguments[c]).collect();
    let literals = (0..count).map(|i| graph.literal(inputs[i + skip]).filter(|_| i >= carries));
    let literals = literals.collect();
    let call = Call { code: op.code, control, carries, count, fixed, literals };
    let (outputs, needed) = call.needs(results);
    let stays = |i: usize| needed[i] && call.literals[i].is_none();
    let kept_carries: Vec<usize> = (0..carries).filter(|&c| needed[c] && !call.fixed[c]).collect();
    let mut kept_slices: Vec<usize> = (carries..carries + slices).filter(|&i| stays(i)).collect();
    let moved = (0..carries).filter(|&c| needed[c] && call.fixed[c]);
    let kept_rest = moved.chain((carries + slices..count).filter(|&i| stays(i)));
    let mut operands: Vec<usize> =
        kept_carries.iter().chain(&kept_slices).copied().chain(kept_rest).collect();
    if operands.is_empty() && skip == 0 {
        // Every op needs at least one operand.
        operands.push(count - 1);
        kept_slices.extend((carries..carries + slices).contains(&(count - 1)).then_some(count - 1));
    }
    let is_output = |o: &usize| *o >= carries || kept_carries.contains(o);
    let kept_outputs: Vec<usize> = outputs.iter().copied().filter(is_output).collect();
    let given = body.outputs().len();
    let same = operands.len() == count
        && kept_outputs.len() == given
        && kept_carries.len() == carries
        && kept_slices.len() == slices;
    if same {
        return None;
    }
    let regions = control.regions.iter().enumerate().map(|(r, region)| {
        match op.code == OpCode::WhileLoop && r == 0 {
            true => call.region(region, &operands, &[0]),
            false => call.region(region, &operands, &kept_outputs),
        }
    });
    let new = Control {
        carries: kept_carries.len() as u32,
        slices: kept_slices.len() as u32,
        length: control.length,
        reverse: control.reverse,
        mode: control.mode,
        ..Control::default()
    };
    let new = new.with_regions(regions.collect());
    let position = |o: usize| kept_outputs.iter().position(|&k| k == o);
    let became = |&result: &usize| {
        let (output, history) =
            if result < given { (result, false) } else { (result - given, true) };
        let became = match (output < carries && call.fixed[output], history) {
            (true, true) => Became::Repeated(output),
            (true, false) => Became::Operand(output),
            (false, false) => Became::Result(position(output).expect("what is asked for is kept")),
            (false, true) => {
                let carry = kept_carries.iter().position(|&c| c == output);
                Became::Result(kept_outputs.len() + carry.expect("its carry is kept"))
            }
        };
        (result, became)
    };
    let operands = (0..skip).chain(operands.iter().map(|&i| i + skip)).collect();
    let results = results.iter().map(became).collect();
    Some(Pruned { code: op.code, control: Arc::new(new), operands, results })
}
