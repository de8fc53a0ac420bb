//! Renders a graph as one self-contained HTML page: a drawing with pan and zoom, the details of
//! each node, and a search field for nodes by name or op.

use crate::svg::{escape, to_svg_grouped};
use crate::{Graph, NodeId};
use std::fmt::Write;

/// The page. Nodes are coloured by group, for example by the kernel that computes them. `notes`
/// returns lines of text about a node, which its details include.
pub fn to_html(
    graph: &Graph,
    title: &str,
    group: impl Fn(NodeId) -> Option<usize>,
    notes: impl Fn(NodeId) -> Vec<String>,
) -> String {
    let mut details = String::new();
    for (id, node) in graph.nodes().take(crate::svg::MAX_NODES) {
        let mut lines = vec![
            format!("{id} = {}", node.op.name()),
            format!("{} {}", node.spec.shape, node.spec.dtype),
            format!("{} bytes", node.spec.size_bytes()),
        ];
        let attrs = node.op.attrs.text(graph.context(id));
        lines.extend((!attrs.is_empty()).then_some(attrs));
        lines.extend(
            node.inputs
                .iter()
                .map(|i| format!("from {i} {} {}", graph.node(*i).op.name(), graph.spec(*i))),
        );
        lines.extend(graph.hints(id).iter().map(|(key, value)| format!("{key}: {value}")));
        lines.extend(group(id).map(|g| format!("kernel {g}")));
        lines.push(node.op.def().doc.to_string());
        lines.extend(notes(id));
        let _ = write!(details, "<p data-id=\"{}\">{}</p>", id.0, escape(&lines.join("\n")));
    }
    let title = escape(title);
    let stats = format!(
        "{} nodes, {} ops, {} bytes of values",
        graph.len(),
        graph.num_ops(),
        graph.estimated_memory_bytes()
    );
    let svg = to_svg_grouped(graph, group);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>{STYLE}</style></head><body>\n<header><b>{title}</b> <span>{stats}</span> <input \
         id=\"find\" placeholder=\"find: op, name, %12\"></header>\n<main \
         id=\"view\">{svg}</main>\n<aside id=\"shown\" hidden></aside>\n<div id=\"details\" \
         hidden>{details}</div>\n<script>{SCRIPT}</script></body></html>\n"
    )
}

const STYLE: &str = "html,body{margin:0;height:100%;font:13px sans-serif;overflow:hidden}\
header{position:fixed;z-index:2;left:0;right:0;padding:6px 12px;background:#fffd;border-bottom:1px \
solid #ccc}header span{color:#666;margin:0 12px}main{height:100%;cursor:grab;touch-action:none}main \
svg{transform-origin:0 0;position:absolute;top:36px}g:hover rect{stroke:#c40;stroke-width:2}g.hit \
rect{stroke:#c40;stroke-width:4}aside{position:fixed;right:8px;bottom:8px;max-width:44ch;padding:8px \
12px;background:#fffe;border:1px solid #bbb;border-radius:4px;white-space:pre-wrap;font:12px \
monospace}";

const SCRIPT: &str = "\
const view=document.getElementById('view'),svg=view.querySelector('svg'),shown=document.getElementById('shown');
let x=0,y=0,k=1,from=null;
const place=()=>svg.style.transform=`translate(${x}px,${y}px) scale(${k})`;
const fit=()=>{k=Math.min(1,view.clientWidth/svg.clientWidth);x=(view.clientWidth-svg.clientWidth*k)/2;y=0;place()};
const zoom=(f,px,py)=>{const n=Math.min(8,Math.max(.02,k*f));x=px-(px-x)*n/k;y=py-(py-y)*n/k;k=n;place()};
view.addEventListener('wheel',e=>{e.preventDefault();zoom(Math.exp(-e.deltaY/400),e.clientX,e.clientY-36)},{passive:false});
view.addEventListener('pointerdown',e=>{from=[e.clientX-x,e.clientY-y];view.setPointerCapture(e.pointerId)});
view.addEventListener('pointermove',e=>{if(from){x=e.clientX-from[0];y=e.clientY-from[1];place()}});
view.addEventListener('pointerup',()=>from=null);
view.addEventListener('dblclick',fit);
const details={};for(const p of document.querySelectorAll('#details p'))details[p.dataset.id]=p.textContent;
const show=id=>{shown.hidden=!(id in details);shown.textContent=details[id]||''};
for(const g of svg.querySelectorAll('g[data-id]')){g.addEventListener('pointerenter',()=>show(g.dataset.id));const t=g.querySelector('title');if(t)t.remove()}
document.getElementById('find').addEventListener('input',e=>{const q=e.target.value.trim().toLowerCase();let first=null;
for(const g of svg.querySelectorAll('g[data-id]')){const hit=q&&details[g.dataset.id].toLowerCase().includes(q);g.classList.toggle('hit',!!hit);if(hit&&!first)first=g}
if(first){const r=first.getBoundingClientRect();x+=view.clientWidth/2-r.x-r.width/2;y+=view.clientHeight/2-r.y;place();show(first.dataset.id)}});
fit();";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::random_graph;

    #[test]
    fn a_page_holds_each_nodes_details_and_asks_for_nothing_outside() {
        let mut graph = random_graph(5, 40);
        graph.set_name(NodeId(0), "</p><script>alert(1)</script>");
        let page = to_html(&graph, "a <b>", |_| Some(1), |id| vec![format!("note {id}")]);
        assert_eq!(page.matches("<p data-id=").count(), graph.len());
        assert_eq!(page.matches("<script>").count(), 1);
        assert!(
            page.contains("a &lt;b&gt;") && page.contains("note %3") && page.contains("kernel 1")
        );
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        for word in ["http:", "https:", "src=", "@import", "url("] {
            assert!(!outside.contains(word), "{word}");
        }
        assert!(to_html(&Graph::new(), "", |_| None, |_| vec![]).contains("an empty graph"));
    }
}
