//! The text form of graphs and its parser:
//!
//! ```text
//! Graph:
//!   %0 = input([1024, 512], f32) {name="x"}
//!   %1 = constant([512], f32)
//!   %2 = add(%0, %1) -> [1024, 512]
//!   outputs: [%2]
//! ```
//!
//! The text is lossless: `parse(print(g)) == g`. A constant without a value is zero; a constant
//! whose value is an argument of the program is marked `runtime`. Reductions without `dim` reduce
//! all axes. The regions of a branch or loop are in braces, once for all of its results:
//!
//! ```text
//!   %2 = cond(%0, %1, result=0) {
//!     %0 = input([], f32)
//!     outputs: [%0, %0]
//!   } {
//!     %0 = input([], f32)
//!     %1 = neg(%0) -> []
//!     outputs: [%1, %0]
//!   } -> []
//!   %3 = cond(%0, %1, result=1) as %2 -> []
//! ```
//!
//! A value without an exact decimal form is written as its bits in hexadecimal. A node's hints are
//! in braces; the hint `layout` is a valid [`StoredLayout`](crate::pfgb::StoredLayout) of the value. A `#`
//! begins a comment.
//!
//! Sizes may be expressions over symbols. The symbols (traced value and range) and the guards
//! (conditions on the sizes) precede the nodes. Both are omitted if no symbol has a range other
//! than the default, from 1 on, and there are no guards. Outputs may have names:
//!
//! ```text
//! Graph:
//!   sizes: [batch=3 in 1..=64]
//!   guards: [batch >= 2]
//!   %0 = input([batch, 4], f32)
//!   %1 = neg(%0) -> [batch, 4]
//!   outputs: [result=%1]
//! ```
//!
//! If values have shardings, their mesh precedes the sizes, and a value's spec follows its node:
//!
//! ```text
//! Graph:
//!   mesh: @m(shape=(2,), devices=[0, 1], axes=(tp))
//!   %0 = input([4, 8], f32)(<*, tp>)
//!   %1 = neg(%0) -> [4, 8](<*, tp>)
//!   outputs: [%1]
//! ```

pub mod cursor;
pub mod function;
mod parse;
#[cfg(test)]
mod tests;

use crate::ops::control::Control;
use crate::ops::{Attrs, Class};
use crate::{Graph, Node, NodeId, OpCode};
use std::fmt::{self, Write};

/// Marks a constant whose value is an argument of the program.
const RUNTIME: &str = "runtime";

/// A node's attributes in the text form; empty for none.
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

fn op(
    f: &mut fmt::Formatter<'_>,
    node: &Node,
    attrs: String,
    regions: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    write!(f, "{}(", node.op.name())?;
    for (i, operand) in node.inputs.iter().enumerate() {
        write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
    }
    let separator = if attrs.is_empty() || node.inputs.is_empty() { "" } else { ", " };
    write!(f, "{separator}{attrs})")?;
    regions(f)?;
    write!(f, " -> {}", node.spec.shape)
}

/// The regions of a control op, or `as` and the earlier node that has the same regions.
fn regions<'a>(
    f: &mut fmt::Formatter<'_>,
    id: NodeId,
    node: &'a Node,
    indent: &str,
    known: &mut Vec<(NodeId, &'a Control)>,
) -> fmt::Result {
    let Some((_, control)) = node.op.as_control() else { return Ok(()) };
    let same = |c: &Control| std::ptr::eq(c, &**control) || c.regions == control.regions;
    if let Some((first, _)) = known.iter().find(|(_, c)| same(c)) {
        return write!(f, " as {first}");
    }
    known.push((id, control));
    let inner = format!("{indent}  ");
    for region in control.regions.iter() {
        f.write_str(" {\n")?;
        region.body(f, &inner)?;
        write!(f, "\n{indent}}}")?;
    }
    Ok(())
}

/// The text in double quotes, with quotes, backslashes and control characters escaped.
pub fn quoted(text: &str) -> String {
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

/// True for a hint's key that needs no quotes.
fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Graph:")?;
        if let Some(mesh) = self.mesh() {
            writeln!(f, "  mesh: {mesh}")?;
        }
        self.declarations(f)?;
        self.body(f, "  ")
    }
}

impl Graph {
    /// Prints symbols and guards, unless all ranges are the default and there are no guards.
    fn declarations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbols = self.symbols();
        if self.guards().is_empty() && symbols.iter().all(|symbol| symbol.has_default_range()) {
            return Ok(());
        }
        let sizes: Vec<String> = symbols.iter().map(|symbol| symbol.declaration()).collect();
        writeln!(f, "  sizes: [{}]", sizes.join(", "))?;
        if !self.guards().is_empty() {
            let guards: Vec<String> = self.guards().iter().map(|guard| guard.to_string()).collect();
            writeln!(f, "  guards: [{}]", guards.join(", "))?;
        }
        Ok(())
    }

    /// Prints nodes and outputs, each line after `indent`.
    fn body(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        let mut controls: Vec<(NodeId, &Control)> = Vec::new();
        for (id, node) in self.nodes() {
            write!(f, "{indent}{id} = ")?;
            let attrs = node.op.attrs.text(self.context(id));
            match node.op.class() {
                Class::Leaf => leaf(f, node, attrs)?,
                _ => op(f, node, attrs, |f| regions(f, id, node, indent, &mut controls))?,
            }
            if let Some(spec) = self.partition(id) {
                write!(f, "({spec})")?;
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
        write!(f, "{indent}outputs: [")?;
        for (i, output) in self.outputs().iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match self.output_names().get(i) {
                Some(name) if is_word(name) => write!(f, "{name}=")?,
                Some(name) => write!(f, "{}=", quoted(name))?,
                None => {}
            }
            write!(f, "{output}")?;
        }
        f.write_str("]")
    }
}
