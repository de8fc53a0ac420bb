//! Graphs as DOT, for Graphviz: one node per value, one edge per operand, groups as clusters.

use crate::ops::Class;
use crate::{Graph, NodeId, OpCode};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The graph in DOT.
pub fn to_dot(graph: &Graph) -> String {
    to_dot_grouped(graph, |_| None)
}

/// The graph in DOT, with nodes of a group, for instance of one kernel, in a cluster. Nodes that
/// carry the hint `scope` are clustered by it where there is no group.
pub fn to_dot_grouped(graph: &Graph, group: impl Fn(NodeId) -> Option<usize>) -> String {
    let mut clusters: BTreeMap<Option<String>, Vec<NodeId>> = BTreeMap::new();
    for id in graph.ids() {
        let scope = || graph.hints(id).get("scope").cloned();
        let cluster = group(id).map(|g| format!("kernel {g}")).or_else(scope);
        clusters.entry(cluster).or_default().push(id);
    }
    let mut out = String::from(
        "digraph girih {\n  node [fontname=\"monospace\", fontsize=10, shape=box, style=filled, \
         fillcolor=white];\n  edge [color=\"#888888\"];\n",
    );
    for (i, (cluster, ids)) in clusters.iter().enumerate() {
        let indent = if cluster.is_some() { "    " } else { "  " };
        if let Some(name) = cluster {
            let _ = writeln!(out, "  subgraph cluster_{i} {{\n    label={};", string(name));
            let _ = writeln!(out, "    style=filled; fillcolor=\"{}\";", crate::svg::group_fill(i));
        }
        ids.iter().for_each(|&id| node(graph, id, indent, &mut out));
        out.push_str(if cluster.is_some() { "  }\n" } else { "" });
    }
    for (id, node) in graph.nodes() {
        for operand in &node.inputs {
            let _ = writeln!(out, "  n{} -> n{};", operand.0, id.0);
        }
    }
    out.push_str("}\n");
    out
}

fn node(graph: &Graph, id: NodeId, indent: &str, out: &mut String) {
    let node = graph.node(id);
    let attrs = node.op.attrs.text(graph.context(id));
    let name = graph.name(id).map(|name| format!("{name}\n")).unwrap_or_default();
    let label = format!(
        "{name}{} {attrs}\n{id} {} {}",
        node.op.name(),
        node.spec.shape,
        node.spec.dtype.short()
    );
    let shape = match (node.op.code, node.op.class()) {
        (OpCode::Input | OpCode::Parameter, _) => ", shape=ellipse, fillcolor=\"#dcebf7\"",
        (_, Class::Leaf) => ", shape=ellipse, fillcolor=\"#ececec\"",
        _ => "",
    };
    let pen = if graph.outputs().contains(&id) { ", penwidth=2.5" } else { "" };
    let _ = writeln!(out, "{indent}n{} [label={}{shape}{pen}];", id.0, string(&label));
}

/// A quoted DOT string; line breaks are the centred ones of labels.
fn string(text: &str) -> String {
    let text =
        text.replace('\\', "\\\\").replace('"', "\\\"").replace(" \n", "\\n").replace('\n', "\\n");
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{text}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_graph;

    /// Statements, after checking that quotes close and braces nest.
    fn statements(dot: &str) -> Vec<String> {
        let (mut depth, mut quoted, mut escaped) = (0, false, false);
        let mut out = vec![String::new()];
        for c in dot.chars() {
            match c {
                '"' if !escaped => quoted = !quoted,
                '{' | '}' if !quoted => {
                    depth += if c == '{' { 1 } else { -1 };
                    out.push(String::new());
                    continue;
                }
                ';' if !quoted => {
                    out.push(String::new());
                    continue;
                }
                _ => {}
            }
            escaped = c == '\\' && !escaped;
            out.last_mut().unwrap().push(c);
        }
        assert_eq!((depth, quoted), (0, false), "{dot}");
        out.into_iter().map(|s| s.trim().to_string()).filter(|s| !s.is_empty()).collect()
    }

    #[test]
    fn there_is_one_node_per_value_and_one_edge_per_operand() {
        for seed in 0..60 {
            let graph = random_graph(seed, 25);
            let edges: usize = graph.nodes().map(|(_, n)| n.inputs.len()).sum();
            let grouped = to_dot_grouped(&graph, |id| (id.0 % 3 > 0).then_some(id.0 as usize % 2));
            for dot in [to_dot(&graph), grouped] {
                let all = statements(&dot);
                let nodes =
                    all.iter().filter(|s| s.starts_with('n') && s.contains("[label=")).count();
                assert_eq!(nodes, graph.len(), "{dot}");
                assert_eq!(all.iter().filter(|s| s.contains(" -> ")).count(), edges, "{dot}");
            }
        }
    }

    #[test]
    fn names_are_shown_and_scopes_are_clusters() {
        let mut graph =
            Graph::parse("Graph:\n %0 = input([2], f32)\n %1 = exp(%0) -> [2]\n outputs: [%1]")
                .unwrap();
        graph.set_name(NodeId(0), "the \"x\"");
        graph.set_hint(NodeId(1), "scope", "model.layer");
        let dot = to_dot(&graph);
        assert!(dot.contains("n0 [label=\"the \\\"x\\\"\\ninput\\n%0 [2] f32\""), "{dot}");
        assert!(dot.contains("subgraph cluster_1 {\n    label=\"model.layer\";"), "{dot}");
        assert!(dot.contains("penwidth"), "{dot}");
    }
}
