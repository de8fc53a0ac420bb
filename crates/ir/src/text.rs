//! The text form of graphs, as the lazy-evaluation seed prints it:
//!
//! ```text
//! Graph:
//!   %0 = input([1024, 512], f32)
//!   %1 = constant([512], f32)
//!   %2 = add(%0, %1) -> [1024, 512]
//!   outputs: [%2]
//! ```

use crate::ops::{Attrs, Class};
use crate::{DType, Graph, Literal, Node, OpCode};
use std::fmt;

/// Attributes as text, `dim=1, keepdim=true`; empty for none. `rank` is the operand's: reducing
/// all of its axes is the default and prints nothing.
pub(crate) struct Attributes<'a> {
    pub attrs: &'a Attrs,
    pub rank: Option<usize>,
    pub dtype: Option<DType>,
}

impl fmt::Display for Attributes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |bits| match self.dtype {
            Some(dtype) => Literal { dtype, bits }.to_string(),
            None => format!("{bits:#x}"),
        };
        match self.attrs {
            Attrs::None => Ok(()),
            Attrs::Axis(axis) => write!(f, "dim={axis}"),
            Attrs::Axes { axes, keepdims } => axes_text(f, *axes, *keepdims, self.rank),
            Attrs::Moments { axes, keepdims, correction } => {
                axes_text(f, *axes, *keepdims, None)?;
                write!(f, ", correction={correction:?}")
            }
            Attrs::DType(dtype) => write!(f, "{}", dtype.short()),
            Attrs::Value(bits) => f.write_str(&value(*bits)),
            Attrs::Shape(shape) => write!(f, "shape={shape}"),
            Attrs::Perm(perm) => write!(f, "perm={perm:?}"),
            Attrs::Slice(dims) => {
                f.write_str("bounds=[")?;
                for (i, d) in dims.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    // The end is the smallest that takes `size` elements.
                    let end =
                        if d.size == 0 { d.start } else { d.start + (d.size - 1) * d.step + 1 };
                    write!(f, "{comma}{}:{end}:{}", d.start, d.step)?;
                }
                f.write_str("]")
            }
            Attrs::Pad(pad) => {
                f.write_str("widths=[")?;
                for (i, d) in pad.0.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(f, "{comma}{}_{}_{}", d.low, d.high, d.interior)?;
                }
                write!(f, "], value={}", value(pad.1))
            }
            Attrs::Scatter { axis, size } => write!(f, "dim={axis}, size={size}"),
            Attrs::Approximate(tanh) => {
                write!(f, "approximate={}", if *tanh { "tanh" } else { "none" })
            }
            Attrs::Norm { ndims, eps } => write!(f, "ndims={ndims}, eps={eps:?}"),
        }
    }
}

fn axes_text(
    f: &mut fmt::Formatter<'_>,
    axes: crate::AxisSet,
    keepdims: bool,
    rank: Option<usize>,
) -> fmt::Result {
    let all = rank.is_some_and(|r| axes == crate::AxisSet::all(r));
    if !all {
        write!(f, "dim={axes:?}")?;
    }
    match (keepdims, all) {
        (true, true) => f.write_str("keepdim=true"),
        (true, false) => f.write_str(", keepdim=true"),
        (false, _) => Ok(()),
    }
}

fn leaf(f: &mut fmt::Formatter<'_>, node: &Node) -> fmt::Result {
    write!(f, "{}({}, {}", node.op.name(), node.spec.shape, node.spec.dtype.short())?;
    let dtype = Some(node.spec.dtype);
    match &node.op.attrs {
        // A constant of zeros prints no value, as the seed has it.
        Attrs::None | Attrs::Value(0) => {}
        attrs => write!(f, ", {}", Attributes { attrs, rank: None, dtype })?,
    }
    f.write_str(")")
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Graph:")?;
        for (id, node) in self.nodes() {
            write!(f, "  {id} = ")?;
            if node.op.class() == Class::Leaf {
                leaf(f, node)?;
                writeln!(f)?;
                continue;
            }
            write!(f, "{}(", node.op.name())?;
            for (i, operand) in node.inputs.iter().enumerate() {
                write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
            }
            let rank = node.inputs.first().map(|&i| self.spec(i).shape.rank());
            let attrs = Attributes { attrs: &node.op.attrs, rank, dtype: Some(node.spec.dtype) };
            // Reshapes and broadcasts print their target once, as the result.
            let attrs = match node.op.code {
                OpCode::Reshape | OpCode::BroadcastTo => String::new(),
                _ => attrs.to_string(),
            };
            let separator = if attrs.is_empty() || node.inputs.is_empty() { "" } else { ", " };
            writeln!(f, "{separator}{attrs}) -> {}", node.spec.shape)?;
        }
        f.write_str("  outputs: [")?;
        for (i, output) in self.outputs().iter().enumerate() {
            write!(f, "{}{output}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
