//! Prints graphs as DOT, for Graphviz: a node for each value, an edge for each operand, scopes as
//! clusters, groups as colours.

use crate::ops::Class;
use crate::{Graph, NodeId, OpCode};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The graph in DOT.
pub fn to_dot(graph: &Graph) -> String {
    to_dot_grouped(graph, |_| None)
}

/// The graph in DOT. Nodes with a hint `scope`, a dotted path, are in nested clusters of these
/// names. Nodes are coloured by group, for example by kernel.
pub fn to_dot_grouped(graph: &Graph, group: impl Fn(NodeId) -> Option<usize>) -> String {
    let (mut root, scopes) = (Cluster::default(), crate::svg::scopes_of(graph));
    for id in graph.ids() {
        let path = scopes[id.index()].unwrap_or_default();
        let names = path.split('.').filter(|name| !name.is_empty()).take(MAX_DEPTH);
        let cluster = names.fold(&mut root, |c, name| c.inner.entry(name).or_default());
        cluster.nodes.push(id);
    }
    let mut out = String::from(
        "digraph girih {\n  node [fontname=\"monospace\", fontsize=10, shape=box, style=filled, \
         fillcolor=white];\n  edge [color=\"#888888\"];\n",
    );
    root.write(graph, &group, 1, &mut 0, &mut out);
    for (id, node) in graph.nodes() {
        for operand in &node.inputs {
            let _ = writeln!(out, "  n{} -> n{};", operand.0, id.0);
        }
    }
    out.push_str("}\n");
    out
}

/// Maximum nesting of clusters, since hints may come from files.
const MAX_DEPTH: usize = 32;

/// The nodes of a scope, and the scopes within it.
#[derive(Default)]
struct Cluster<'a> {
    nodes: Vec<NodeId>,
    inner: BTreeMap<&'a str, Cluster<'a>>,
}

impl Cluster<'_> {
    fn write(
        &self,
        graph: &Graph,
        group: &impl Fn(NodeId) -> Option<usize>,
        depth: usize,
        count: &mut usize,
        out: &mut String,
    ) {
        let indent = "  ".repeat(depth);
        self.nodes.iter().for_each(|&id| node(graph, id, group(id), &indent, out));
        for (name, cluster) in &self.inner {
            *count += 1;
            let _ = writeln!(out, "{indent}subgraph cluster_{count} {{");
            let _ = writeln!(out, "{indent}  label={}; color=\"#aaaaaa\";", string(name));
            cluster.write(graph, group, depth + 1, count, out);
            let _ = writeln!(out, "{indent}}}");
        }
    }
}

fn node(graph: &Graph, id: NodeId, group: Option<usize>, indent: &str, out: &mut String) {
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
        (OpCode::Input | OpCode::Parameter, _) => ", shape=ellipse, fillcolor=\"#dcebf7\"".into(),
        (_, Class::Leaf) => ", shape=ellipse, fillcolor=\"#ececec\"".into(),
        _ => group.map_or(String::new(), |group| {
            format!(", fillcolor=\"{}\", tooltip=\"kernel {group}\"", crate::svg::group_fill(group))
        }),
    };
    let pen = if graph.outputs().contains(&id) { ", penwidth=2.5" } else { "" };
    let _ = writeln!(out, "{indent}n{} [label={}{shape}{pen}];", id.0, string(&label));
}

/// A quoted DOT string; line breaks become DOT's centred line breaks.
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

    /// Splits into statements, after a check that quotes close and braces nest.
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
        let clusters = "subgraph cluster_1 {\n    label=\"model\"; color=\"#aaaaaa\";\n    subgraph \
                        cluster_2 {\n      label=\"layer\"; color=\"#aaaaaa\";\n      n0 [";
        assert!(dot.contains(clusters), "{dot}");
        let coloured = to_dot_grouped(&graph, |id| (id.0 == 1).then_some(3));
        assert!(coloured.contains("tooltip=\"kernel 3\""), "{coloured}");
        assert!(dot.contains("penwidth"), "{dot}");
    }
}
