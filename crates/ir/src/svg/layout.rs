//! The layout of a drawn graph: the layer, order and position of each box, and the path of each
//! edge.
//!
//! The layers are by longest path, the order in a layer by barycentres (Sugiyama, Tagawa and Toda
//! 1981), and the positions by least squares under that order. Every step is iterative, and the
//! total time is O(n log n) for n nodes and edge segments.

use super::{CHAR, GAP, MAX_NODES, is_inline, is_leaf, label};
use crate::{Graph, NodeId};
use std::collections::BTreeMap;

/// Longest edge, in layers, that is routed around boxes; longer edges are straight.
const MAX_ROUTED: usize = 64;
/// Number of sweeps over the layers, down and up in turn.
const SWEEPS: usize = 8;

/// A box, or the point at which a long edge crosses a layer.
pub(super) struct Item {
    /// The node drawn here; `None` for a point of an edge.
    pub(super) node: Option<NodeId>,
    pub(super) layer: usize,
    pub(super) width: f64,
    /// Horizontal centre.
    pub(super) x: f64,
    /// Index of the item's scope, if it has one.
    pub(super) scope: Option<usize>,
    above: Vec<u32>,
    below: Vec<u32>,
}

#[derive(Default)]
pub(super) struct Drawing {
    pub(super) items: Vec<Item>,
    /// Items of each layer, in order from the left.
    pub(super) layers: Vec<Vec<u32>>,
    /// Each edge as the items on its path, producer first.
    pub(super) edges: Vec<Vec<u32>>,
    /// Paths of the scopes.
    pub(super) scopes: Vec<String>,
}

impl Drawing {
    pub(super) fn new(graph: &Graph) -> Drawing {
        let count = graph.len().min(MAX_NODES);
        let drawn: Vec<bool> = (0..count).map(|i| !is_inline(graph, NodeId(i as u32))).collect();
        let depth = layers_of(graph, &drawn);
        let mut drawing = Drawing::default();
        let mut scopes: BTreeMap<&str, usize> = BTreeMap::new();
        let scope_of = scopes_of(graph);
        let mut item_of = vec![u32::MAX; count];
        for i in (0..count).filter(|&i| drawn[i]) {
            let id = NodeId(i as u32);
            let (first, second) = label(graph, id);
            let chars = first.chars().count().max(second.chars().count());
            item_of[i] = drawing.add(Some(id), depth[i], chars as f64 * CHAR + 20.0);
            if let Some(path) = scope_of[i] {
                let next = scopes.len();
                let scope = *scopes.entry(path).or_insert(next);
                drawing.scopes.resize(scopes.len(), path.to_string());
                drawing.items[item_of[i] as usize].scope = Some(scope);
            }
        }
        for i in (0..count).filter(|&i| drawn[i]) {
            let mut operands = graph.node(NodeId(i as u32)).inputs.clone();
            // `x * x` has one edge.
            operands.sort_unstable();
            operands.dedup();
            for operand in operands.iter().filter(|o| drawn[o.index()]) {
                drawing.connect(item_of[operand.index()], item_of[i]);
            }
        }
        drawing
    }

    fn add(&mut self, node: Option<NodeId>, layer: usize, width: f64) -> u32 {
        let item = self.items.len() as u32;
        let (above, below) = (Vec::new(), Vec::new());
        self.items.push(Item { node, layer, width, x: 0.0, scope: None, above, below });
        if self.layers.len() <= layer {
            self.layers.resize(layer + 1, Vec::new());
        }
        self.layers[layer].push(item);
        item
    }

    fn connect(&mut self, from: u32, to: u32) {
        let (top, bottom) = (self.items[from as usize].layer, self.items[to as usize].layer);
        let mut path = vec![from];
        if bottom - top <= MAX_ROUTED {
            path.extend((top + 1..bottom).map(|layer| self.add(None, layer, 6.0)));
        }
        path.push(to);
        let ends = [from, to].map(|end| self.items[end as usize].scope);
        if ends[0] == ends[1] {
            // An edge within a scope keeps the scope's items together.
            path.iter().for_each(|&item| self.items[item as usize].scope = ends[0]);
        }
        if bottom - top <= MAX_ROUTED {
            for pair in path.windows(2) {
                self.items[pair[0] as usize].below.push(pair[1]);
                self.items[pair[1] as usize].above.push(pair[0]);
            }
        }
        self.edges.push(path);
    }

    /// Orders each layer by the mean position of its neighbours, sweeping down and up in turn.
    pub(super) fn order(&mut self) {
        let mut rank = vec![0.0; self.items.len()];
        let number = |layer: &[u32], rank: &mut Vec<f64>| {
            let count = layer.len() as f64;
            layer
                .iter()
                .enumerate()
                .for_each(|(i, &item)| rank[item as usize] = (i as f64 + 0.5) / count);
        };
        self.layers.iter().for_each(|layer| number(layer, &mut rank));
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            for step in 0..self.layers.len() {
                let at = if down { step } else { self.layers.len() - 1 - step };
                let mut keyed: Vec<(f64, u32)> = self.layers[at]
                    .iter()
                    .map(|&item| {
                        let i = &self.items[item as usize];
                        let to = if down { &i.above } else { &i.below };
                        (mean(to, &rank).unwrap_or(rank[item as usize]), item)
                    })
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.gather_scopes(&mut keyed);
                self.layers[at] = keyed.into_iter().map(|(_, item)| item).collect();
                number(&self.layers[at], &mut rank);
            }
        }
    }

    /// Puts the items of each scope side by side, scopes in the order of their items' mean keys.
    fn gather_scopes(&self, keyed: &mut [(f64, u32)]) {
        let scope_of = |item: u32| self.items[item as usize].scope;
        let mut sums: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
        for &(key, item) in keyed.iter() {
            let Some(scope) = scope_of(item) else { continue };
            let sum = sums.entry(scope).or_default();
            *sum = (sum.0 + key, sum.1 + 1.0);
        }
        if sums.is_empty() {
            return;
        }
        keyed.sort_by(|a, b| {
            let place = |&(key, item): &(f64, u32)| {
                let scope = scope_of(item);
                (scope.map_or(key, |scope| sums[&scope].0 / sums[&scope].1), scope)
            };
            let (a, b) = (place(a), place(b));
            a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
        });
    }

    /// Computes each item's position; returns the width of the drawing.
    pub(super) fn place(&mut self) -> f64 {
        let mut x = vec![0.0; self.items.len()];
        for layer in &self.layers {
            let wanted: Vec<f64> = vec![0.0; layer.len()];
            self.spread(layer, &wanted, &mut x);
        }
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            for step in 0..self.layers.len() {
                let at = if down { step } else { self.layers.len() - 1 - step };
                let layer = &self.layers[at];
                let wanted: Vec<f64> = layer
                    .iter()
                    .map(|&item| {
                        let i = &self.items[item as usize];
                        let to = if down { &i.above } else { &i.below };
                        mean(to, &x).unwrap_or(x[item as usize])
                    })
                    .collect();
                self.spread(layer, &wanted, &mut x);
            }
        }
        let edge = |sign: f64| {
            let ends = self.items.iter().zip(&x).map(move |(i, x)| sign * x + i.width / 2.0);
            ends.fold(f64::NEG_INFINITY, f64::max)
        };
        if self.items.is_empty() {
            return 0.0;
        }
        let (left, right) = (-edge(-1.0), edge(1.0));
        for (item, x) in self.items.iter_mut().zip(x) {
            item.x = x - left;
        }
        right - left
    }

    /// Places the items of a layer as near as possible to their wanted positions, in order and
    /// without overlap, by isotonic regression (pool adjacent violators).
    fn spread(&self, layer: &[u32], wanted: &[f64], x: &mut [f64]) {
        let mut offsets = Vec::with_capacity(layer.len());
        let mut end = 0.0;
        for &item in layer {
            let half = self.items[item as usize].width / 2.0;
            offsets.push(end + half);
            end += 2.0 * half + GAP;
        }
        // Blocks of adjacent items: mean of wanted position minus offset, and number of items.
        let mut blocks: Vec<(f64, usize)> = Vec::with_capacity(layer.len());
        for (want, offset) in wanted.iter().zip(&offsets) {
            let mut block = (want - offset, 1);
            while let Some(&(mean, count)) = blocks.last().filter(|last| last.0 > block.0) {
                let all = count + block.1;
                block = ((mean * count as f64 + block.0 * block.1 as f64) / all as f64, all);
                blocks.pop();
            }
            blocks.push(block);
        }
        let shifts = blocks.iter().flat_map(|&(shift, count)| std::iter::repeat_n(shift, count));
        for ((&item, offset), shift) in layer.iter().zip(offsets).zip(shifts) {
            x[item as usize] = shift + offset;
        }
    }
}

/// Layers by longest path from the leaves. A node that can move down without lengthening edges is
/// placed directly above its first user: a leaf, or a chain that starts at leaves without other
/// users.
pub(super) fn layers_of(graph: &Graph, drawn: &[bool]) -> Vec<usize> {
    let operands = |i: usize| {
        graph.node(NodeId(i as u32)).inputs.iter().map(|o| o.index()).filter(|&o| drawn[o])
    };
    let mut depth = vec![0usize; drawn.len()];
    for i in 0..drawn.len() {
        depth[i] = operands(i).map(|o| depth[o] + 1).max().unwrap_or(0);
    }
    let (mut first_user, mut users) = (vec![usize::MAX; drawn.len()], vec![0; drawn.len()]);
    for i in (0..drawn.len()).rev() {
        let inner = operands(i).filter(|&o| !is_leaf(graph, NodeId(o as u32))).count();
        if users[i] > 0 && inner <= users[i] {
            depth[i] = first_user[i] - 1;
        }
        for operand in operands(i) {
            first_user[operand] = depth[i].min(first_user[operand]);
            users[operand] += 1;
        }
    }
    depth
}

/// The scope of each node, from its hint `scope`. A leaf without a hint has the scope of its users
/// if they share one.
pub(crate) fn scopes_of(graph: &Graph) -> Vec<Option<&str>> {
    let hinted = |id: NodeId| graph.hints(id).get("scope").map(String::as_str);
    let mut scopes: Vec<Option<&str>> = graph.ids().map(hinted).collect();
    let mut of_users: Vec<Option<Option<&str>>> = vec![None; graph.len()];
    for (id, node) in graph.nodes() {
        for operand in &node.inputs {
            let scope = &mut of_users[operand.index()];
            let own = scopes[id.index()];
            *scope = Some(if scope.is_none_or(|known| known == own) { own } else { None });
        }
    }
    for id in graph.ids().filter(|&id| is_leaf(graph, id)) {
        let i = id.index();
        scopes[i] = scopes[i].or(of_users[i].flatten());
    }
    scopes
}

fn mean(items: &[u32], of: &[f64]) -> Option<f64> {
    let sum: f64 = items.iter().map(|&i| of[i as usize]).sum();
    (!items.is_empty()).then(|| sum / items.len() as f64)
}
