//! In which operands ops are linear, for transposes.

use super::{Attrs, Class, Op, OpDef};

/// In which operands an op is linear, over the real numbers, up to rounding and to constants that are
/// added.
#[derive(Clone, Copy, Debug)]
pub enum Linearity {
    /// As the class of the op says: views and reshapes in their operand, all others in none.
    ByClass,
    /// In all operands together: `f(a + b, c + d) = f(a, c) + f(b, d)`.
    All,
    /// In the operands at the positions of one of these sets together, while all others stay: a product is
    /// linear in the first, and in the second.
    In(&'static [&'static [usize]]),
    /// In the operands at the positions that this gives, together.
    ByAttrs(fn(&Attrs) -> &'static [usize]),
}

impl OpDef {
    /// Whether the op is linear in the operands marked together, while the others stay.
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
