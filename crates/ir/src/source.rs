//! The source lines that recorded the nodes of a graph, for diagnostics. The nodes of a recording
//! carry their lines themselves; regions of control ops are closed graphs, whose lines are stored
//! here.

use crate::{Graph, GraphBuilder, NodeId};

/// The source lines of a graph's nodes; None if no node has a known line. Comparison, encoding and
/// files ignore source lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Option<Box<Lines>>);

#[derive(Clone, Debug, Default)]
struct Lines {
    /// The line of nodes appended from now on; 0 if unknown.
    current: u32,
    /// By node. Nodes beyond the end have no known line.
    of: Vec<u32>,
}

impl Sources {
    /// Records the line of the node appended at `index`.
    #[inline]
    pub fn append(&mut self, index: usize) {
        if let Some(lines) = &mut self.0
            && lines.current != 0
        {
            lines.of.resize(index, 0);
            lines.of.push(lines.current);
        }
    }
}

impl Graph {
    /// The source line that recorded a node, as the front end's number; 0 if unknown.
    pub fn source(&self, id: NodeId) -> u32 {
        let lines = self.sources.0.as_ref();
        lines.and_then(|lines| lines.of.get(id.index()).copied()).unwrap_or(0)
    }

    /// Sets the source line of nodes appended from now on; 0 if unknown.
    pub fn record_at(&mut self, source: u32) {
        match &mut self.sources.0 {
            Some(lines) => lines.current = source,
            None if source == 0 => {}
            none => *none = Some(Box::new(Lines { current: source, of: Vec::new() })),
        }
    }
}

impl GraphBuilder {
    /// As [`Graph::record_at`], with the line of a node of another graph. A node without a known
    /// line changes nothing.
    pub fn record_as(&mut self, graph: &Graph, id: NodeId) {
        match graph.source(id) {
            0 => {}
            source => self.graph_mut().record_at(source),
        }
    }

    /// As [`GraphBuilder::record_as`], for a node of this graph.
    pub fn record_for(&mut self, id: NodeId) {
        match self.graph().source(id) {
            0 => {}
            source => self.graph_mut().record_at(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, TensorSpec};

    #[test]
    fn nodes_keep_the_line_that_recorded_them_where_a_graph_is_inlined() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        b.graph_mut().record_at(7);
        let y = b.neg(x).unwrap();
        b.graph_mut().record_at(0);
        let z = b.exp(y).unwrap();
        b.graph_mut().record_at(9);
        let w = b.sin(z).unwrap();
        let lined = b.finish([w]);
        assert_eq!([x, y, z, w].map(|id| lined.source(id)), [0, 7, 0, 9]);

        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let results = b.inline(&lined, &[x]).unwrap();
        let inlined = b.finish(results);
        assert_eq!(inlined, lined, "a graph is the same with and without");
        // A node without a line of its own gets the line of the previous node.
        let found: Vec<u32> = inlined.ids().map(|id| inlined.source(id)).collect();
        assert_eq!(found, [0, 7, 7, 9]);
    }
}
