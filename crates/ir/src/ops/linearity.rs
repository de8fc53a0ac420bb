//! The operands in which ops are linear, for transposition.

use super::{Attrs, Class, Op, OpDef};

/// The operands in which an op is linear, over the real numbers, up to rounding and added
/// constants.
#[derive(Clone, Copy, Debug)]
pub enum Linearity {
    /// By the class of the op: views and reshapes are linear in their operand, other ops in none.
    ByClass,
    /// Jointly linear in all operands: `f(a + b, c + d) = f(a, c) + f(b, d)`.
    All,
    /// Jointly linear in the operands of one of these sets of positions, with the other operands
    /// fixed. A product is linear in the first operand, and in the second.
    In(&'static [&'static [usize]]),
    /// Jointly linear in the operands at the positions that this function returns.
    ByAttrs(fn(&Attrs) -> &'static [usize]),
}

impl OpDef {
    /// True if the op is jointly linear in the marked operands, with the other operands fixed.
    pub fn is_linear_in(&self, op: &Op, marked: &[bool]) -> bool {
        let within = |set: &[usize]| (0..marked.len()).all(|at| !marked[at] || set.contains(&at));
        match self.linear {
            Linearity::ByClass => matches!(self.class, Class::View | Class::Reshape),
            Linearity::All => true,
            Linearity::In(sets) => sets.iter().any(|set| within(set)),
            Linearity::ByAttrs(operands) => within(operands(&op.attrs)),
        }
    }
}
