//! Draws closed graphs as SVG: nodes in layers from leaves to outputs, one box for each node with
//! op, shape and dtype, and edges routed between the boxes.

mod layout;

pub(crate) use layout::scopes_of;

use crate::ops::Class;
use crate::{Graph, NodeId, OpCode};
use layout::{Drawing, Item};
use std::fmt::Write;

/// Maximum number of nodes drawn. Of a larger graph only the first nodes are drawn, with a note,
/// since a larger drawing could be neither displayed nor read.
pub const MAX_NODES: usize = 4000;

const CHAR: f64 = 6.6;
const HEIGHT: f64 = 38.0;
const LAYER: f64 = 84.0;
const GAP: f64 = 18.0;
const MARGIN: f64 = 24.0;
/// Fill colours of groups, in rotation. They are distinguishable with colour blindness.
const GROUPS: [&str; 8] =
    ["#cfe8ff", "#ffe2c2", "#d6f5d0", "#ead7f7", "#fff3b8", "#f9d3dd", "#d0f1ee", "#e4e0d5"];

/// The graph as an SVG document.
pub fn to_svg(graph: &Graph) -> String {
    to_svg_grouped(graph, |_| None)
}

/// The graph as an SVG document whose nodes are coloured by group, for example by the kernel that
/// computes them. Nodes with the same hint `scope` are adjacent in their layer, on a background
/// with the scope's name.
pub fn to_svg_grouped(graph: &Graph, group: impl Fn(NodeId) -> Option<usize>) -> String {
    let mut drawing = Drawing::new(graph);
    drawing.order();
    let width = drawing.place();
    drawing.write(graph, width, group)
}

/// Escapes text for XML and drops characters that XML cannot contain.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c < ' ' || c == '\u{fffe}' || c == '\u{ffff}' => {}
            c => out.push(c),
        }
    }
    out
}

impl Drawing {
    fn write(&self, graph: &Graph, width: f64, group: impl Fn(NodeId) -> Option<usize>) -> String {
        let omitted = graph.len().saturating_sub(MAX_NODES);
        let note = match (graph.is_empty(), omitted) {
            (true, _) => "an empty graph".to_string(),
            (_, 0) => String::new(),
            (_, more) => format!("the first {MAX_NODES} nodes; {more} more are not drawn"),
        };
        let width = width.max(note.len() as f64 * CHAR) + 2.0 * MARGIN;
        let top = MARGIN + if note.is_empty() { 0.0 } else { 24.0 };
        let height = top + self.layers.len().max(1) as f64 * LAYER - (LAYER - HEIGHT) + MARGIN;
        let mut out = String::new();
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("writing to a string does not fail");
            out.push('\n');
        };
        line(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"11\">"
        ));
        line(format_args!(
            "<style>text{{text-anchor:middle;fill:#222}}.s{{fill:#666}}path{{fill:none;\
             stroke:#999}}rect{{stroke:#888}}.o{{stroke:#222;stroke-width:2.5}}</style>"
        ));
        line(format_args!(
            "<rect width=\"100%\" height=\"100%\" style=\"fill:#fff;stroke:none\"/>"
        ));
        if !note.is_empty() {
            line(format_args!("<text x=\"{:.0}\" y=\"{MARGIN}\">{note}</text>", width / 2.0));
        }
        let y = |item: &Item| top + item.layer as f64 * LAYER;
        self.write_scopes(&y, &mut line);
        for path in &self.edges {
            line(format_args!("<path d=\"{}\"/>", self.edge(path, &y)));
        }
        for item in &self.items {
            let Some(id) = item.node else { continue };
            let (first, second) = label(graph, id);
            let class = if graph.outputs().contains(&id) { " class=\"o\"" } else { "" };
            let (x, y) = (item.x + MARGIN, y(item));
            line(format_args!(
                "<g data-id=\"{}\"><title>{id} {}</title><rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{HEIGHT}\" rx=\"{}\" fill=\"{}\"{class}/><text x=\"{x:.1}\" \
                 y=\"{:.1}\">{}</text><text class=\"s\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
                id.0,
                escape(graph.node(id).op.def().doc),
                x - item.width / 2.0,
                item.width,
                if is_leaf(graph, id) { HEIGHT / 2.0 } else { 4.0 },
                fill(graph, id, group(id)),
                y + 16.0,
                escape(&first),
                y + 30.0,
                escape(&second),
            ));
        }
        out.push_str("</svg>\n");
        out
    }

    /// Draws the backgrounds of the scopes: one for each run of items in a layer, as high as the
    /// layer, so that the backgrounds of adjacent layers touch. The first background of each scope
    /// has its name.
    fn write_scopes(
        &self,
        y: &impl Fn(&Item) -> f64,
        line: &mut impl FnMut(std::fmt::Arguments<'_>),
    ) {
        let mut named = vec![false; self.scopes.len()];
        let items =
            |layer: &[u32]| layer.iter().map(|&i| &self.items[i as usize]).collect::<Vec<_>>();
        for layer in &self.layers {
            for run in items(layer).chunk_by(|a, b| a.scope == b.scope) {
                let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
                let Some(scope) = first.scope else { continue };
                let half = GAP / 2.0 - 1.0;
                let left = first.x - first.width / 2.0 - half + MARGIN;
                let right = last.x + last.width / 2.0 + half + MARGIN;
                let top = y(first) - (LAYER - HEIGHT) / 2.0;
                line(format_args!(
                    "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{LAYER}\" \
                     style=\"fill:{};stroke:none\"><title>{}</title></rect>",
                    right - left,
                    if scope % 2 == 0 { "#f3f3f6" } else { "#eceff1" },
                    escape(&self.scopes[scope]),
                ));
                if !std::mem::replace(&mut named[scope], true) {
                    line(format_args!(
                        "<text class=\"s\" style=\"text-anchor:start\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                        left + 4.0,
                        top + 12.0,
                        escape(&self.scopes[scope]),
                    ));
                }
            }
        }
    }

    /// A smooth line through the items of an edge.
    fn edge(&self, path: &[u32], y: &impl Fn(&Item) -> f64) -> String {
        let items: Vec<&Item> = path.iter().map(|&i| &self.items[i as usize]).collect();
        let (mut px, mut py) = (items[0].x + MARGIN, y(items[0]) + HEIGHT);
        let mut d = format!("M{px:.1} {py:.1}");
        for item in &items[1..] {
            let (x, y) = (item.x + MARGIN, y(item));
            let bend = (y - py) / 2.0;
            let _ = write!(d, "C{px:.1} {:.1} {x:.1} {:.1} {x:.1} {y:.1}", py + bend, y - bend);
            (px, py) = (x, y);
            if item.node.is_none() {
                py = y + HEIGHT;
                let _ = write!(d, "V{py:.1}");
            }
        }
        d
    }
}

fn is_leaf(graph: &Graph, id: NodeId) -> bool {
    graph.node(id).op.class() == Class::Leaf
}

/// True for scalar literals, which are printed in their users' boxes.
fn is_inline(graph: &Graph, id: NodeId) -> bool {
    graph.spec(id).shape.rank() == 0
        && graph.literal(id).is_some()
        && !graph.outputs().contains(&id)
}

/// The two lines of a node's box.
fn label(graph: &Graph, id: NodeId) -> (String, String) {
    let node = graph.node(id);
    let mut first = node.op.name().to_string();
    if node.inputs.iter().any(|&i| is_inline(graph, i)) {
        let operands = node.inputs.iter().map(|&i| match graph.literal(i) {
            Some(value) if is_inline(graph, i) => value.to_string(),
            _ => "·".to_string(),
        });
        let _ = write!(first, "({})", operands.collect::<Vec<_>>().join(", "));
    }
    // The target dtype of a cast is in the box's second line.
    if node.op.code != OpCode::Cast {
        let attrs = node.op.attrs.text(graph.context(id));
        if !attrs.is_empty() {
            let cut: String = attrs.chars().take(40).collect();
            let _ = write!(first, " {cut}{}", if cut.len() < attrs.len() { "…" } else { "" });
        }
    }
    (first, format!("{id} {} {}", node.spec.shape, node.spec.dtype.short()))
}

/// The fill of a group.
pub(crate) fn group_fill(group: usize) -> &'static str {
    GROUPS[group % GROUPS.len()]
}

fn fill(graph: &Graph, id: NodeId, group: Option<usize>) -> &'static str {
    match (graph.node(id).op.code, group) {
        (OpCode::Input, _) => "#dcebf7",
        (OpCode::Parameter, _) => "#dff0d8",
        (OpCode::RandomUniform | OpCode::RandomNormal | OpCode::RandomBits, _) => "#fbe8cf",
        (OpCode::Constant | OpCode::Iota, _) => "#ececec",
        (_, Some(group)) => group_fill(group),
        (_, None) => "#fff",
    }
}

#[cfg(test)]
mod tests {
    use super::layout::layers_of;
    use super::*;
    use crate::{AxisSet, DType, GraphBuilder, TensorSpec};

    /// Element names in order, after a check that the text is well-formed XML of the subset that
    /// the writer uses: tags nest, attributes are quoted, text is escaped.
    fn elements(svg: &str) -> Vec<String> {
        let (mut open, mut names, mut rest) = (Vec::new(), Vec::new(), svg.trim());
        while let Some(start) = rest.find('<') {
            let text = &rest[..start];
            assert!(!text.contains('>') && !bare_ampersand(text), "text {text:?}");
            assert!(text.trim().is_empty() || !open.is_empty(), "text outside the root");
            let end = start + rest[start..].find('>').expect("a tag ends");
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop().as_deref(), Some(name));
                continue;
            }
            let name: String = tag.chars().take_while(|c| c.is_alphanumeric()).collect();
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
            assert_eq!(tag.matches("=\"").count() * 2, tag.matches('"').count(), "{tag}");
            assert!(!tag.contains('<') && !tag.contains("NaN") && !tag.contains("inf"), "{tag}");
            assert!(!open.is_empty() || names.is_empty(), "one root");
            if !tag.ends_with('/') {
                open.push(name.clone());
            }
            names.push(name);
        }
        assert!(open.is_empty() && rest.is_empty(), "{open:?} {rest:?}");
        names
    }

    fn bare_ampersand(text: &str) -> bool {
        text.split('&')
            .skip(1)
            .any(|t| !["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|e| t.starts_with(e)))
    }

    fn count(svg: &str, element: &str) -> usize {
        elements(svg).iter().filter(|e| *e == element).count()
    }

    #[test]
    fn graphs_of_no_and_of_one_node_are_drawn() {
        let empty = to_svg(&Graph::new());
        assert_eq!(count(&empty, "g"), 0);
        assert!(empty.contains("an empty graph"));
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2, 3], DType::F32));
        let one = to_svg(&b.finish([x]));
        assert_eq!((count(&one, "g"), count(&one, "path")), (1, 0));
        assert!(one.contains("[2, 3] f32"));
    }

    #[test]
    fn scalar_literals_are_written_into_their_users() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([3], DType::F32));
        let half = b.scalar_like(x, 0.5);
        let y = b.mul(half, x).unwrap();
        let z = b.sum(y, AxisSet::all(1), false).unwrap();
        let svg = to_svg(&b.finish([z]));
        assert_eq!((count(&svg, "g"), count(&svg, "path")), (3, 2));
        assert!(svg.contains("mul(0.5, ·)"), "{svg}");
    }

    #[test]
    fn boxes_of_a_layer_do_not_overlap() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([100, 100], DType::F32));
        let wide: Vec<_> = (0..9).map(|_| b.exp(x).unwrap()).collect();
        let mut sum = wide[0];
        for w in &wide[1..] {
            sum = b.add(sum, *w).unwrap();
        }
        let graph = b.finish([sum]);
        let mut drawing = Drawing::new(&graph);
        drawing.order();
        drawing.place();
        for layer in &drawing.layers {
            for pair in layer.windows(2) {
                let [a, b] = [&drawing.items[pair[0] as usize], &drawing.items[pair[1] as usize]];
                assert!(a.x + a.width / 2.0 < b.x - b.width / 2.0);
            }
        }
        elements(&drawing.write(&graph, 0.0, |id| Some(id.index())));
    }

    #[test]
    fn nodes_of_a_scope_are_drawn_together_with_one_label() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([100], DType::F32));
        let wide: Vec<_> = (0..8).map(|_| b.exp(x).unwrap()).collect();
        let sums: Vec<_> = (0..4).map(|i| b.add(wide[i], wide[i + 4]).unwrap()).collect();
        let mut graph = b.finish(sums.clone());
        let scope = |i: usize| ["net.a<b", "net.other"][i % 2];
        wide.iter().enumerate().for_each(|(i, &id)| graph.set_hint(id, "scope", scope(i)));
        sums.iter().enumerate().for_each(|(i, &id)| graph.set_hint(id, "scope", scope(i)));
        let mut drawing = Drawing::new(&graph);
        drawing.order();
        drawing.place();
        // The input has users in both scopes, so it has none.
        assert_eq!(scopes_of(&graph)[0], None);
        for layer in &drawing.layers[1..] {
            let scopes: Vec<_> = layer.iter().map(|&i| drawing.items[i as usize].scope).collect();
            assert_eq!(scopes.chunk_by(|a, b| a == b).count(), 2, "{scopes:?}");
        }
        let svg = to_svg(&graph);
        elements(&svg);
        assert_eq!(svg.matches(">net.a&lt;b</text>").count(), 1, "{svg}");
        assert_eq!(svg.matches("<title>net.other</title>").count(), 2, "{svg}");
    }

    #[test]
    fn operands_stand_above_their_users_and_leaves_right_above() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([3], DType::F32));
        let y = b.input(TensorSpec::new([3], DType::F32));
        let mut chain = x;
        for _ in 0..5 {
            chain = b.exp(chain).unwrap();
        }
        let late = b.log(y).unwrap();
        let sum = b.add(chain, late).unwrap();
        let graph = b.finish([sum]);
        let depth = layers_of(&graph, &vec![true; graph.len()]);
        for (id, node) in graph.nodes() {
            assert!(node.inputs.iter().all(|o| depth[o.index()] < depth[id.index()]));
        }
        assert_eq!([x, y, late, sum].map(|n| depth[n.index()]), [0, 4, 5, 6]);
    }

    #[test]
    fn a_graph_too_large_to_read_is_cut_and_says_so() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([3], DType::F32));
        let mut y = x;
        for i in 0..100_000 {
            y = if i % 3 == 0 { b.add(y, x).unwrap() } else { b.exp(y).unwrap() };
        }
        let svg = to_svg(&b.finish([y]));
        assert_eq!(count(&svg, "g"), MAX_NODES);
        assert!(svg.contains("96001 more are not drawn"));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a<b & \"c\" > 'd'\u{1}"), "a&lt;b &amp; &quot;c&quot; &gt; &#39;d&#39;");
    }
}
