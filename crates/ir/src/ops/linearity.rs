//! The operands in which ops are linear, for transposition, and the operands whose partial values an
//! op passes on.

use super::{Attrs, Class, Op, OpCode, OpDef};
use crate::TensorSpec;
use smallvec::SmallVec;

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
    /// As `In`, with an added constant that is not zero.
    AffineIn(&'static [&'static [usize]]),
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
            Linearity::In(sets) | Linearity::AffineIn(sets) => sets.iter().any(|set| within(set)),
            Linearity::ByAttrs(operands) => within(operands(&op.attrs)),
        }
    }

    /// The operands that must hold partial values together so that the op passes them on: the
    /// results, combined by `by`, are the op's result for the combined operands. `None` if no such
    /// operands include the marked ones. The other operands are the same for all partial values.
    ///
    /// Sums pass what is linear, but not a cast that rounds. A combining op passes itself, and any op
    /// passes what only moves elements.
    ///
    /// Source: Nabla's rules for partial values, with DTensor's pointwise and linear strategies.
    pub fn passes_partial(
        &self,
        op: &Op,
        inputs: &[&TensorSpec],
        result: &TensorSpec,
        marked: &[bool],
        by: OpCode,
    ) -> Option<SmallVec<[bool; 4]>> {
        let all = || SmallVec::from_elem(true, marked.len());
        let moves = match (self.class, &op.attrs) {
            (Class::View | Class::Reshape, _) => true,
            // The border is combined with itself.
            (Class::Combine, Attrs::Pad(pad)) => {
                by.is_idempotent() || (by == OpCode::Add && pad.1 == 0)
            }
            (class, _) => class == Class::Combine,
        };
        if moves || op.code == by {
            return Some(all());
        }
        let rounds = |x: &TensorSpec| match op.code {
            OpCode::Cast => {
                let floats = x.dtype.is_float() && result.dtype.is_float();
                !floats || x.dtype.size() >= result.dtype.size()
            }
            _ => x.dtype != result.dtype && !(x.dtype.is_inexact() && result.dtype.is_inexact()),
        };
        if by != OpCode::Add
            || self.class == Class::Combine
            || inputs.iter().zip(marked).any(|(x, marked)| *marked && rounds(x))
        {
            return None;
        }
        let within = |set: &&[usize]| (0..marked.len()).all(|at| !marked[at] || set.contains(&at));
        let set = match self.linear {
            Linearity::All => return Some(all()),
            Linearity::In(sets) => sets.iter().copied().find(within)?,
            Linearity::ByAttrs(operands) => Some(operands(&op.attrs)).filter(within)?,
            Linearity::ByClass | Linearity::AffineIn(_) => return None,
        };
        Some((0..marked.len()).map(|at| set.contains(&at)).collect())
    }
}

impl OpCode {
    /// True for a combining op of which any number of equal values gives the value.
    pub fn is_idempotent(self) -> bool {
        matches!(self, OpCode::Maximum | OpCode::Minimum | OpCode::And | OpCode::Or)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::ops::PadDim;
    use std::sync::Arc;

    fn passes(op: &Op, inputs: &[DType], result: DType, marked: &str, by: OpCode) -> String {
        let specs: Vec<_> = inputs.iter().map(|&dtype| TensorSpec::new([4], dtype)).collect();
        let marked: Vec<bool> = marked.chars().map(|c| c == 'p').collect();
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let result = TensorSpec::new([4], result);
        match op.def().passes_partial(op, &specs, &result, &marked, by) {
            None => "no".into(),
            Some(set) => set.iter().map(|&in_set| if in_set { 'p' } else { '-' }).collect(),
        }
    }

    /// The table of NB-103, and what holds for ops other than addition.
    #[test]
    fn partial_values_pass_linear_ops() {
        use DType::{BF16, Bool, F32, F64, I32};
        use OpCode::*;
        let f = |code: OpCode, marked: &str| {
            passes(&code.into(), &vec![F32; marked.len()], F32, marked, Add)
        };
        for (code, marked, expected) in [
            (Add, "pp", "pp"),
            (Add, "p-", "pp"),
            (Sub, "-p", "pp"),
            (Mul, "p-", "p-"),
            (Mul, "-p", "-p"),
            (Mul, "pp", "no"),
            (Matmul, "-p", "-p"),
            (Matmul, "pp", "no"),
            (Div, "p-", "p-"),
            (Div, "-p", "no"),
            (Neg, "p", "p"),
            (Permute, "p", "p"),
            (Reshape, "p", "p"),
            (Flip, "p", "p"),
            (Concat, "p--", "ppp"),
            (Where, "-p-", "-pp"),
            (Where, "p--", "no"),
            (Take, "p-", "p-"),
            (Take, "-p", "no"),
            (Exp, "p", "no"),
            (Maximum, "pp", "no"),
            (BinaryCrossEntropy, "-p", "no"),
        ] {
            assert_eq!(f(code, marked), expected, "{} {marked}", code.def().name);
        }
        let by = |code: OpCode, marked, by| {
            passes(&code.into(), &vec![F32; str::len(marked)], F32, marked, by)
        };
        assert_eq!(by(Maximum, "p-", Maximum), "pp");
        assert_eq!(by(Mul, "pp", Mul), "pp");
        assert_eq!(by(Add, "pp", Maximum), "no");
        assert_eq!(by(Neg, "p", Maximum), "no");
        assert_eq!(by(Permute, "p", Maximum), "p");
        let cast = |from, to| passes(&Op::new(Cast, Attrs::DType(to)), &[from], to, "p", Add);
        assert_eq!((cast(BF16, F32), cast(F32, F64)), ("p".into(), "p".into()));
        assert_eq!((cast(F64, F32), cast(F32, I32)), ("no".into(), "no".into()));
        assert_eq!((cast(I32, F32), cast(F32, Bool)), ("no".into(), "no".into()));
        let pad = |value: u64, by| {
            let attrs = Attrs::Pad(Arc::new((vec![PadDim::default()], value)));
            passes(&Op::new(Pad, attrs), &[F32], F32, "p", by)
        };
        assert_eq!((pad(0, Add), pad(1, Add)), ("p".into(), "no".into()));
        assert_eq!((pad(1, Maximum), pad(1, Mul)), ("p".into(), "no".into()));
    }
}
