//! Matrix chain ordering: multiplies a chain `a @ b @ c …` in the order with the fewest scalar
//! multiplications, found by dynamic programming over all orders.
//!
//! A chain is a matmul together with its operands that are matmuls without other uses, and so on
//! recursively. Batch axes broadcast as in each matmul. The cost is the number of scalar
//! multiplications, including batches.
//!
//! Laws. Never worse: the order changes only if the new one needs fewer multiplications.
//! Terminates: the number of multiplications decreases. Not exact for floats: another order rounds
//! differently, within the error bound of either order (`(k1 + k2) u |a| |b| |c|` for inner sizes
//! `k1`, `k2` and unit roundoff `u`), and an intermediate may overflow in only one of the orders. A
//! result would thus depend on whether the user also holds an intermediate matmul. Since evaluating
//! a value early must not change its bits, the pass is off by default. Exact for integers, whose
//! arithmetic wraps.

use crate::Pass;
use girih_ir::{Graph, GraphBuilder, NodeId, OpCode, Result, Shape};

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatmulChain;

/// Longest chain that is optimised, since the search is cubic.
const MAX_FACTORS: usize = 64;

impl Pass for MatmulChain {
    fn name(&self) -> &str {
        "matmul_chain"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        let inner = inner_matmuls(graph);
        graph.rewrite_nodes(|b, id, node| {
            if node.op.code != OpCode::Matmul || inner[id.index()] {
                return Ok(None);
            }
            let mut chain = MatmulFactors { graph, inner: &inner, factors: Vec::new() };
            let operands = [node.inputs[0], node.inputs[1]];
            let Some(recorded) = chain.collect(b, id, operands, 0) else { return Ok(None) };
            let factors = chain.factors;
            if factors.len() < 3 {
                return Ok(None);
            }
            let best = Order::best(b, &factors);
            match best.cost() < recorded {
                true => best.record(b, &factors, 0, factors.len() - 1).map(Some),
                false => Ok(None),
            }
        })
    }
}

/// Matmuls whose only use is as an operand of another matmul: inner nodes of its chain.
fn inner_matmuls(graph: &Graph) -> Vec<bool> {
    let live = graph.live();
    let mut uses = vec![(0u32, 0u32); graph.len()];
    graph.outputs().iter().for_each(|o| uses[o.index()].0 += 1);
    for (_, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        for input in &node.inputs {
            let (all, matmuls) = &mut uses[input.index()];
            *all += 1;
            *matmuls += (node.op.code == OpCode::Matmul) as u32;
        }
    }
    let matmul = |id: NodeId| graph.node(id).op.code == OpCode::Matmul;
    graph.ids().map(|id| matmul(id) && uses[id.index()] == (1, 1)).collect()
}

/// The factors of a chain in order, as nodes of the graph under construction.
struct MatmulFactors<'g> {
    graph: &'g Graph,
    inner: &'g [bool],
    factors: Vec<NodeId>,
}

impl MatmulFactors<'_> {
    /// Collects the factors below a matmul, and returns the number of multiplications in the
    /// recorded order; `None` if the chain is too long. `inputs` are the matmul's operands in the
    /// graph under construction, to which the inner matmuls have been copied unchanged.
    fn collect(
        &mut self,
        b: &GraphBuilder,
        id: NodeId,
        inputs: [NodeId; 2],
        depth: usize,
    ) -> Option<u128> {
        let mut cost = matmul_cost(b, inputs);
        for (&input, built) in self.graph.node(id).inputs.iter().zip(inputs) {
            if self.inner[input.index()] && depth < MAX_FACTORS {
                let below = &b.graph().node(built).inputs;
                let below = self.collect(b, input, [below[0], below[1]], depth + 1)?;
                cost = cost.saturating_add(below);
            } else if self.inner[input.index()] {
                return None;
            } else if self.factors.len() < MAX_FACTORS {
                self.factors.push(built);
            } else {
                return None;
            }
        }
        Some(cost)
    }
}

/// Batch axes, rows and columns of an operand.
fn split(shape: &Shape) -> (Shape, usize, usize) {
    match **shape {
        [ref batch @ .., rows, columns] => (Shape::from(batch), rows, columns),
        _ => unreachable!("operands of a matmul have two axes at least"),
    }
}

fn broadcast(a: &Shape, b: &Shape) -> Shape {
    a.broadcast(b, "matmul").expect("batch axes of one chain broadcast")
}

fn multiplications(batch: &Shape, m: usize, k: usize, n: usize) -> u128 {
    batch.iter().chain(&[m, k, n]).map(|&d| d as u128).fold(1, u128::saturating_mul)
}

fn matmul_cost(b: &GraphBuilder, [x, y]: [NodeId; 2]) -> u128 {
    let ((batch_x, m, k), (batch_y, _, n)) = (split(b.shape(x)), split(b.shape(y)));
    multiplications(&broadcast(&batch_x, &batch_y), m, k, n)
}

/// The cheapest order of every subchain.
struct Order {
    len: usize,
    /// For each first and last factor, the cost and the last factor of the left operand.
    parts: Vec<(u128, usize)>,
}

impl Order {
    /// Of equally cheap orders, prefers the leftmost split.
    fn best(b: &GraphBuilder, factors: &[NodeId]) -> Order {
        let len = factors.len();
        let shapes: Vec<_> = factors.iter().map(|&f| split(b.shape(f))).collect();
        let mut batch: Vec<Shape> = vec![Shape::scalar(); len * len];
        for first in 0..len {
            batch[first * len + first] = shapes[first].0.clone();
            for last in first + 1..len {
                batch[first * len + last] =
                    broadcast(&batch[first * len + last - 1], &shapes[last].0);
            }
        }
        let mut order = Order { len, parts: vec![(0, 0); len * len] };
        for width in 1..len {
            for first in 0..len - width {
                let last = first + width;
                let split_at = |at: usize| {
                    let (m, k, n) = (shapes[first].1, shapes[at].2, shapes[last].2);
                    let own = multiplications(&batch[first * len + last], m, k, n);
                    let below = order.part(first, at).0.saturating_add(order.part(at + 1, last).0);
                    (own.saturating_add(below), at)
                };
                let best = (first..last).map(split_at).min().expect("the range is not empty");
                order.parts[first * len + last] = best;
            }
        }
        order
    }

    fn part(&self, first: usize, last: usize) -> (u128, usize) {
        self.parts[first * self.len + last]
    }

    fn cost(&self) -> u128 {
        self.part(0, self.len - 1).0
    }

    fn record(
        &self,
        b: &mut GraphBuilder,
        factors: &[NodeId],
        first: usize,
        last: usize,
    ) -> Result<NodeId> {
        if first == last {
            return Ok(factors[first]);
        }
        let (_, at) = self.part(first, last);
        let left = self.record(b, factors, first, at)?;
        let right = self.record(b, factors, at + 1, last)?;
        b.matmul(left, right)
    }
}
