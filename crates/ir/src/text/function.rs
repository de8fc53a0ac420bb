//! Prints graphs as functions with a signature, for people to read.
//!
//! ```text
//! fn(%a1: f32[4,8], %a2: f32[8,3]) -> f32[4,3] {
//!   %p1: f32[3] = parameter("bias")
//!   %v1: f32[4,3] = matmul(%a1, %a2)
//!   %v2: f32[4,3] = add(%v1, %p1)
//!   return %v2
//! }
//! ```
//!
//! Arguments are numbered `%a`, parameters `%p`, tensors that the function holds `%c`, and all
//! other values `%v`. Constants are printed at their uses. Branches and loop bodies are printed as
//! functions after the node's operands. If values have shardings, the mesh is above the function, and
//! a value is `%v1: f32[4,3](<*, tp>)`. This text is not parsed, unlike the text form of
//! [`crate::text`].

use super::quoted;
use crate::ops::Attrs;
use crate::{Graph, Literal, NodeId, OpCode, TensorSpec};
use std::fmt::{self, Write};

/// A graph displayed as a function.
pub struct Function<'a> {
    graph: &'a Graph,
    /// True if the function holds the value of a leaf.
    holds: &'a dyn Fn(NodeId) -> bool,
}

impl Graph {
    /// The graph as the text of a function. The function's arguments are the inputs and run-time
    /// constants whose values it does not hold.
    pub fn as_function<'a>(&'a self, holds: &'a dyn Fn(NodeId) -> bool) -> Function<'a> {
        Function { graph: self, holds }
    }
}

impl fmt::Display for Function<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mesh) = self.graph.mesh() {
            writeln!(f, "{mesh}")?;
        }
        self.write(f, "")
    }
}

/// `f32[4,8]`, or `f32[4,8](<*, tp>)` for a value with a sharding.
fn sharded(graph: &Graph, id: NodeId) -> String {
    let sharding = graph.partition(id).map(|spec| format!("({spec})"));
    typed(graph.spec(id)) + &sharding.unwrap_or_default()
}

/// `f32[4,8]`
fn typed(spec: &TensorSpec) -> String {
    let sizes: Vec<String> = spec.shape.dims().map(|size| size.to_string()).collect();
    format!("{}[{}]", spec.dtype.short(), sizes.join(","))
}

fn listed(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// The name of each node, by kind; a constant is named by its value.
fn names(graph: &Graph, holds: &dyn Fn(NodeId) -> bool) -> Vec<String> {
    let (mut arguments, mut parameters, mut held, mut values) = (0, 0, 0, 0);
    let next = |count: &mut u32, letter: char| {
        *count += 1;
        format!("%{letter}{count}")
    };
    let name = |(id, node): (NodeId, &crate::Node)| match (node.op.code, &node.op.attrs) {
        (OpCode::Parameter, _) => next(&mut parameters, 'p'),
        (OpCode::Constant, &Attrs::Value(bits)) => {
            let value = Literal { dtype: node.spec.dtype, bits };
            match node.spec.shape.rank() {
                0 => value.to_string(),
                _ => format!("{value}: {}", typed(&node.spec)),
            }
        }
        (OpCode::Input | OpCode::Constant, _) if holds(id) => next(&mut held, 'c'),
        (OpCode::Input | OpCode::Constant, _) => next(&mut arguments, 'a'),
        _ => next(&mut values, 'v'),
    };
    graph.nodes().map(name).collect()
}

impl Function<'_> {
    fn write(&self, f: &mut fmt::Formatter<'_>, indent: &str) -> fmt::Result {
        let (graph, names) = (self.graph, names(self.graph, self.holds));
        let name = |id: NodeId| names[id.index()].clone();
        let arguments = graph.ids().filter(|&id| name(id).starts_with("%a"));
        let arguments = listed(arguments.map(|id| format!("{}: {}", name(id), sharded(graph, id))));
        let results = listed(graph.outputs().iter().map(|&id| sharded(graph, id)));
        match graph.outputs().len() {
            1 => writeln!(f, "fn({arguments}) -> {results} {{")?,
            _ => writeln!(f, "fn({arguments}) -> ({results}) {{")?,
        }
        for id in graph.ids() {
            let own = name(id);
            if own.starts_with('%') && !own.starts_with("%a") {
                write!(f, "{indent}  {own}: {} = ", sharded(graph, id))?;
                self.node(f, id, &name, indent)?;
                f.write_char('\n')?;
            }
        }
        let results = listed(graph.outputs().iter().map(|&id| name(id)));
        writeln!(f, "{}", format!("{indent}  return {results}").trim_end())?;
        write!(f, "{indent}}}")
    }

    /// Prints `op(operands, attributes)`, then the regions.
    fn node(
        &self,
        f: &mut fmt::Formatter<'_>,
        id: NodeId,
        name: &dyn Fn(NodeId) -> String,
        indent: &str,
    ) -> fmt::Result {
        let node = self.graph.node(id);
        match node.op.code {
            OpCode::Input | OpCode::Constant => return f.write_str("data()"),
            OpCode::Parameter => {
                let known = self.graph.hints(id).get("name");
                return write!(f, "parameter({})", known.map_or(String::new(), |n| quoted(n)));
            }
            _ => {}
        }
        let attributes = node.op.attrs.text(self.graph.context(id));
        let attributes = Some(attributes).filter(|text| !text.is_empty());
        let operands = node.inputs.iter().map(|&operand| name(operand)).chain(attributes);
        write!(f, "{}({})", node.op.name(), listed(operands))?;
        let Some((_, control)) = node.op.as_control() else { return Ok(()) };
        for region in control.regions.iter() {
            f.write_char(' ')?;
            region.as_function(&|_| false).write(f, &format!("{indent}  "))?;
        }
        Ok(())
    }
}
