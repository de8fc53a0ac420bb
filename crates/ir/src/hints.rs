//! Hints on the nodes of a graph: notes of users and tools, such as a name. Each note has a key.
//! Hints never change the computed values. The compiler reads only [`FUSE`], which is therefore
//! part of the canonical encoding; it ignores all others.

use crate::{Graph, NodeId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The hints of a node by key; the hint `name` is the node's name.
pub type Hints = BTreeMap<String, String>;

/// The hint that controls a node's fusion. With the value [`NO`] the op is not fused with its
/// operands or users, but computed in kernels of its own. Other values have no effect.
pub const FUSE: &str = "fuse";

/// The only value of [`FUSE`] that the compiler reads.
pub const NO: &str = "no";

impl Graph {
    /// The hints of a node.
    pub fn hints(&self, id: NodeId) -> &Hints {
        static NONE: Hints = Hints::new();
        self.hints.as_ref().and_then(|hints| hints.get(&id)).unwrap_or(&NONE)
    }

    /// Sets a hint of a node; replaces the key's previous value.
    pub fn set_hint(&mut self, id: NodeId, key: impl Into<String>, value: impl Into<String>) {
        debug_assert!(id.index() < self.len());
        let hints = Arc::make_mut(self.hints.get_or_insert_default());
        hints.entry(id).or_default().insert(key.into(), value.into());
    }

    /// The node's name, if it has one.
    pub fn name(&self, id: NodeId) -> Option<&str> {
        self.hints(id).get("name").map(String::as_str)
    }

    /// Names a node.
    pub fn set_name(&mut self, id: NodeId, name: impl Into<String>) {
        self.set_hint(id, "name", name);
    }

    /// The nodes whose hint [`FUSE`] is [`NO`], ascending.
    pub fn isolated(&self) -> impl Iterator<Item = NodeId> + '_ {
        let hinted = self.hints.iter().flat_map(|hints| hints.iter());
        hinted.filter(|(_, hints)| hints.get(FUSE).is_some_and(|v| v == NO)).map(|(id, _)| *id)
    }

    /// Appends all hints, for cache keys of results that depend on hints.
    pub fn encode_hints(&self, out: &mut Vec<u8>) {
        for (id, hints) in self.hints.iter().flat_map(|hints| hints.iter()) {
            out.extend_from_slice(&id.0.to_le_bytes());
            out.extend_from_slice(&(hints.len() as u32).to_le_bytes());
            for text in hints.iter().flat_map(|(key, value)| [key, value]) {
                out.extend_from_slice(&(text.len() as u32).to_le_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, TensorSpec};

    #[test]
    fn only_the_fuse_hint_is_encoded() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let y = b.exp(x).unwrap();
        let graph = b.finish([y]);
        let encoded = |hint: Option<(NodeId, &str, &str)>| {
            let mut graph = graph.clone();
            hint.into_iter().for_each(|(id, key, value)| graph.set_hint(id, key, value));
            let (mut own, mut all) = (Vec::new(), Vec::new());
            graph.encode(&mut own);
            graph.canonical().graph.encode(&mut all);
            assert_eq!(own, all, "the canonical form keeps hints");
            graph.encode_hints(&mut all);
            (own, all)
        };
        let plain = encoded(None);
        for (key, value) in [("name", "y"), (FUSE, "yes"), ("color", NO)] {
            let hinted = encoded(Some((y, key, value)));
            assert_eq!(hinted.0, plain.0);
            assert_ne!(hinted.1, plain.1);
        }
        let isolated = encoded(Some((y, FUSE, NO)));
        assert_ne!(isolated.0, plain.0);
        assert_ne!(isolated.0, encoded(Some((x, FUSE, NO))).0);
    }
}
