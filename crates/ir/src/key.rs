//! The key of a closed graph: its canonical encoding. A node is encoded as its op, spec and
//! operands, followed by the fields of its attributes ([`Attrs::fields`]).

use crate::ops::control::Control;
use crate::ops::fields::Field;
use crate::{Attrs, Graph, Node, NodeId};
use std::ptr;

/// The byte that follows the last node, in place of an op; no op has this code.
const END: u8 = u8::MAX;
/// Replaces the kind of the attributes ([`Attrs::kind`]) if an earlier node has the same regions.
/// The position of these regions among the distinct regions follows.
const SAME_REGIONS: u8 = u8::MAX;
/// Precedes each section behind the outputs; no node has this id.
const SECTION: u32 = u32::MAX;

impl Graph {
    /// Appends the canonical encoding: everything that determines the computed values, and nothing
    /// else. Equal encodings mean equal programs.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_with(self.outputs(), out);
    }

    /// As [`Graph::encode`], with `outputs` in place of the graph's outputs.
    pub fn encode_with(&self, outputs: &[NodeId], out: &mut Vec<u8>) {
        let mut controls = Vec::new();
        self.nodes().for_each(|(_, node)| encode_node(node, &mut controls, out));
        out.push(END);
        outputs.iter().for_each(|output| output.0.encode_key(out));
        self.encode_sections(out);
    }

    /// Appends the sections of the canonical encoding that most graphs do not have: the isolated
    /// nodes, then the shardings.
    fn encode_sections(&self, out: &mut Vec<u8>) {
        let mut isolated = self.isolated().peekable();
        if isolated.peek().is_some() || self.shardings.is_some() {
            out.extend_from_slice(&SECTION.to_le_bytes());
            isolated.for_each(|id| out.extend_from_slice(&id.0.to_le_bytes()));
        }
        if self.shardings.is_some() {
            out.extend_from_slice(&SECTION.to_le_bytes());
            self.encode_shardings(out);
        }
    }
}

/// Appends a node. `controls` are the distinct branches, loops and calls before the node, whose
/// regions are encoded already.
fn encode_node<'a>(node: &'a Node, controls: &mut Vec<&'a Control>, out: &mut Vec<u8>) {
    let (shape, operands) = (&node.spec.shape, node.inputs.len());
    let (rank, few) = (shape.rank() as u8, operands.min(255) as u8);
    out.extend_from_slice(&[node.op.code as u8, node.spec.dtype as u8, rank, few]);
    if few == 255 {
        (operands as u32).encode_key(out);
    }
    shape.dims().for_each(|dim| dim.encode_key(out));
    node.inputs.iter().for_each(|input| input.0.encode_key(out));
    if let Attrs::Control { result, control } = &node.op.attrs {
        if let Some(position) = position(controls, control) {
            out.push(SAME_REGIONS);
            result.encode_key(out);
            return (position as u32).encode_key(out);
        }
        controls.push(control);
    }
    out.push(node.op.attrs.kind());
    node.op.attrs.fields(&mut |_, field| field.encode_key(out));
}

/// The position of a control that computes the same values. Searches by address first, since
/// comparing the contents of two controls takes longer.
fn position(controls: &[&Control], control: &Control) -> Option<usize> {
    let same = controls.iter().rposition(|known| ptr::eq(*known, control));
    same.or_else(|| controls.iter().position(|known| known.computes_as(control)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{Rng, random_graph};
    use crate::{AxisSet, DType, GraphBuilder, Op, OpCode, TensorSpec};
    use std::collections::HashMap;

    /// The key of a graph.
    pub fn key(graph: &Graph) -> Vec<u8> {
        let mut key = Vec::new();
        graph.encode(&mut key);
        key
    }

    #[test]
    fn the_encoding_distinguishes_sharing_aliasing_and_attributes() {
        let key = |build: fn(&mut GraphBuilder) -> NodeId| {
            let mut b = GraphBuilder::default();
            let out = build(&mut b);
            key(&b.finish([out]))
        };
        fn spec() -> TensorSpec {
            TensorSpec::new([3], DType::F32)
        }
        fn input(b: &mut GraphBuilder) -> NodeId {
            b.input(spec())
        }
        let keys = [
            key(|b| {
                let x = b.input(spec());
                b.add(x, x).unwrap()
            }),
            key(|b| {
                let (x, y) = (b.input(spec()), b.input(spec()));
                b.add(x, y).unwrap()
            }),
            key(|b| {
                let x = b.input(spec());
                b.sum(x, AxisSet::all(1), false).unwrap()
            }),
            key(|b| {
                let x = b.input(spec());
                b.sum(x, AxisSet::all(1), true).unwrap()
            }),
            key(input),
        ];
        for (i, a) in keys.iter().enumerate() {
            for b in &keys[i + 1..] {
                assert_ne!(a, b);
            }
        }
        assert_eq!(keys[4], key(input));
    }

    #[test]
    fn graphs_of_one_key_compute_the_same() {
        let mut known: HashMap<Vec<u8>, Graph> = HashMap::new();
        let mut repeated = 0;
        for seed in 0..4000 {
            let graph = random_graph(seed, 1 + seed as usize % 4);
            let Some(other) = known.insert(key(&graph), graph.clone()) else { continue };
            assert!(graph.nodes().eq(other.nodes()), "{graph}\n{other}");
            assert_eq!(graph.outputs(), other.outputs());
            repeated += 1;
        }
        assert!(repeated > 10, "{repeated}");
    }

    #[test]
    fn every_field_of_attributes_is_part_of_the_key() {
        let mut rng = Rng(18);
        for &code in OpCode::ALL {
            for sample in code.samples() {
                let key = |attrs: &Attrs| {
                    let mut graph = Graph::new();
                    let spec = TensorSpec::new([2, 3], DType::F32);
                    graph.push_unchecked(Op::new(code, attrs.clone()), &[], spec);
                    key(&graph)
                };
                let attrs = &sample.op.attrs;
                let mut count = 0;
                attrs.fields(&mut |_, _| count += 1);
                for changed in (0..10 * count).map(|i| i % count) {
                    let (mut other, mut at) = (attrs.clone(), 0);
                    let _ = other.fields_mut(&mut |_, field| -> Result<(), ()> {
                        if at == changed {
                            field.arbitrary(Default::default(), &mut |n| rng.below(n));
                        }
                        at += 1;
                        Ok(())
                    });
                    assert_eq!(key(attrs) == key(&other), *attrs == other, "{code:?} {other:?}");
                }
            }
        }
    }
}
