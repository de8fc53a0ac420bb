//! The text form of graphs, as the lazy-evaluation seed prints it, and its parser:
//!
//! ```text
//! Graph:
//!   %0 = input([1024, 512], f32) {name="x"}
//!   %1 = constant([512], f32)
//!   %2 = add(%0, %1) -> [1024, 512]
//!   outputs: [%2]
//! ```
//!
//! Text says all that a graph says: `parse(print(g)) == g`. A constant without a value is zero; one
//! whose value comes with the program's arguments says `runtime`. Reductions without `dim` go over
//! all axes. Values that a decimal number cannot give are their bits in hexadecimal. Between braces
//! stand a node's hints. A `#` begins a comment.

mod parse;
#[cfg(test)]
mod tests;

use crate::ops::{Attrs, Class};
use crate::{Graph, Node, NodeId, OpCode};
use std::fmt::{self, Write};

/// Stands for the value of a constant that comes with the arguments.
const RUNTIME: &str = "runtime";

/// A node's attributes as the text form has them; empty for none.
pub fn attributes(graph: &Graph, id: NodeId) -> String {
    graph.node(id).op.attrs.text(graph.context(id))
}

fn leaf(f: &mut fmt::Formatter<'_>, node: &Node, attrs: String) -> fmt::Result {
    write!(f, "{}({}, {}", node.op.name(), node.spec.shape, node.spec.dtype.short())?;
    match (node.op.code, &node.op.attrs) {
        (OpCode::Constant, Attrs::None) => write!(f, ", {RUNTIME}")?,
        _ if attrs.is_empty() => {}
        _ => write!(f, ", {attrs}")?,
    }
    f.write_str(")")
}

fn op(f: &mut fmt::Formatter<'_>, node: &Node, attrs: String) -> fmt::Result {
    write!(f, "{}(", node.op.name())?;
    for (i, operand) in node.inputs.iter().enumerate() {
        write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
    }
    let separator = if attrs.is_empty() || node.inputs.is_empty() { "" } else { ", " };
    write!(f, "{separator}{attrs}) -> {}", node.spec.shape)
}

/// A string between quotes, its quotes, backslashes and control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => drop(write!(out, "\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// True for keys of hints that need no quotes.
fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Graph:")?;
        for (id, node) in self.nodes() {
            write!(f, "  {id} = ")?;
            let attrs = node.op.attrs.text(self.context(id));
            match node.op.class() {
                Class::Leaf => leaf(f, node, attrs)?,
                _ => op(f, node, attrs)?,
            }
            for (i, (key, value)) in self.hints(id).iter().enumerate() {
                f.write_str(if i == 0 { " {" } else { ", " })?;
                match is_word(key) {
                    true => f.write_str(key)?,
                    false => f.write_str(&quoted(key))?,
                }
                write!(f, "={}", quoted(value))?;
            }
            f.write_str(if self.hints(id).is_empty() { "\n" } else { "}\n" })?;
        }
        f.write_str("  outputs: [")?;
        for (i, output) in self.outputs().iter().enumerate() {
            write!(f, "{}{output}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
