//! Factors: the index maps of an op without sizes. Each axis of each operand and of the result is a
//! product of factors, as in `i j, j k -> i k; j: add` for a matrix product. Batching and sharding
//! assign an axis to a factor, and the factor's role says what the assignment means.
//!
//! The notation is einsum's with the compound factors of Shardy: `(i j)` is an axis with index
//! `i * size of j + j`, `1` an axis of one element without a factor, and `()` a tensor without
//! axes. After `;` come the roles and sizes that do not follow from the axes.

mod parse;
mod program;
#[cfg(test)]
mod tests;

pub use program::{ProgramFactor, ProgramFactors, ProgramRole};

use crate::{DType, Dim, Error, Literal, OpCode, Result, Shape};
use smallvec::SmallVec;
use std::fmt;

/// The results that can be computed from a part of a factor's range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A part of the operands gives the same part of the result.
    Pointwise,
    /// A part of the operands gives a partial result. This binary op combines the partial results,
    /// in any order and grouping.
    Reduced(OpCode),
    /// Any part of the result needs the whole axis.
    Whole,
}

impl Role {
    /// The binary ops that may combine partial results: all are associative and commutative.
    pub const COMBINING: &'static [OpCode] = &[
        OpCode::Add,
        OpCode::Mul,
        OpCode::Maximum,
        OpCode::Minimum,
        OpCode::And,
        OpCode::Or,
        OpCode::Logaddexp,
    ];

    /// The [combining op](Role::COMBINING) with a name.
    pub fn combining(name: &str) -> Option<OpCode> {
        Role::COMBINING.iter().copied().find(|code| code.def().name == name)
    }

    fn name(self) -> &'static str {
        match self {
            Role::Pointwise => "pointwise",
            Role::Reduced(code) => code.def().name,
            Role::Whole => "whole",
        }
    }

    fn parse(name: &str) -> Option<Role> {
        match name {
            "pointwise" => Some(Role::Pointwise),
            "whole" => Some(Role::Whole),
            _ => Role::combining(name).map(Role::Reduced),
        }
    }
}

impl OpCode {
    /// The value that a [combining op](Role::COMBINING) leaves unchanged: its identity.
    pub fn neutral(self, dtype: DType) -> Literal {
        match (self, dtype.int_range()) {
            (OpCode::Mul, _) => Literal::from_i64(dtype, 1),
            (OpCode::And, Some(_)) if dtype != DType::Bool => Literal::from_i64(dtype, -1),
            (OpCode::Maximum, Some((least, _))) => Literal::from_int(dtype, least),
            (OpCode::Minimum | OpCode::And, Some((_, most))) => Literal::from_int(dtype, most),
            (OpCode::Maximum | OpCode::Logaddexp, _) => Literal::from_f64(dtype, f64::NEG_INFINITY),
            (OpCode::Minimum, _) => Literal::from_f64(dtype, f64::INFINITY),
            _ => Literal::from_i64(dtype, 0),
        }
    }
}

/// One factor of an op's iteration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    /// The results that can be computed from a part of the factor's range.
    pub role: Role,
    /// Size of the factor, if the op's attributes or a reshape's sizes determine it, so that no
    /// axis needs to determine it.
    pub size: Option<usize>,
}

/// The factors of one axis, outermost first; empty for an axis of one element that is broadcast or
/// was reduced.
pub type AxisFactors = SmallVec<[usize; 2]>;

/// How the axes of an op's operands and result correspond, by factors.
///
/// Factors are numbered by their first appearance, from the first operand to the result, so that
/// equal relations are equal values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Factors {
    factors: Vec<Factor>,
    operands: Vec<Vec<AxisFactors>>,
    result: Vec<AxisFactors>,
}

impl Factors {
    /// A relation from axes. The factors may be in any order; they are renumbered.
    ///
    /// Errors: [`Error::InvalidArgument`] for a factor that does not exist, that no tensor has, or
    /// that one tensor has twice; for a reduced factor that the result has, or whose op is not in
    /// [`Role::COMBINING`]; for a pointwise factor that an operand has and the result does not.
    pub fn new(
        factors: Vec<Factor>,
        operands: Vec<Vec<AxisFactors>>,
        result: Vec<AxisFactors>,
    ) -> Result<Factors> {
        let mut numbers: Vec<Option<usize>> = vec![None; factors.len()];
        let mut order = Vec::with_capacity(factors.len());
        let mut renamed = |axes: &[AxisFactors]| -> Result<Vec<AxisFactors>> {
            let mut axis = |axis: &AxisFactors| {
                axis.iter()
                    .map(|&f| {
                        let Some(number) = numbers.get_mut(f) else {
                            return Err(invalid(format!(
                                "factor {f} of {} does not exist",
                                factors.len()
                            )));
                        };
                        Ok(*number.get_or_insert_with(|| {
                            order.push(factors[f]);
                            order.len() - 1
                        }))
                    })
                    .collect()
            };
            axes.iter().map(&mut axis).collect()
        };
        let operands = operands.iter().map(|axes| renamed(axes)).collect::<Result<Vec<_>>>()?;
        let result = renamed(&result)?;
        if let Some(f) = numbers.iter().position(Option::is_none) {
            return Err(invalid(format!("factor {f} is in no axis")));
        }
        let factors = Factors { factors: order, operands, result };
        factors.check()?;
        Ok(factors)
    }

    fn check(&self) -> Result<()> {
        for axes in self.operands.iter().chain([&self.result]) {
            let mut seen = vec![false; self.factors.len()];
            for &f in axes.iter().flatten() {
                if std::mem::replace(&mut seen[f], true) {
                    return Err(invalid(format!("factor {} is twice in one tensor", name(f))));
                }
            }
        }
        for (f, factor) in self.factors.iter().enumerate() {
            let kept = self.result.iter().flatten().any(|&g| g == f);
            let reason = match factor.role {
                Role::Reduced(code) if !Role::COMBINING.contains(&code) => {
                    format!("partial results are not combined by {}", code.def().name)
                }
                Role::Reduced(_) if kept => "is reduced and must not be in the result".into(),
                Role::Pointwise if !kept => "is pointwise and must be in the result".into(),
                _ => continue,
            };
            return Err(invalid(format!("factor {}: {reason}", name(f))));
        }
        Ok(())
    }

    /// The relation in which an axis that is whole in the result is one pointwise factor of the result
    /// and of the first `operands` in which it is whole, too. An op that [has parts](crate::ops::OpPart) can
    /// be cut along it, in the parts of each tensor's own size.
    pub fn joined(&self, operands: usize) -> Factors {
        let mut joined = self.clone();
        let whole = |axis: &AxisFactors| match axis[..] {
            [only] => Some(only).filter(|&f| self.factors[f].role == Role::Whole),
            _ => None,
        };
        for (at, axis) in self.result.iter().enumerate() {
            let Some(factor) = whole(axis) else { continue };
            for operand in joined.operands.iter_mut().take(operands) {
                if let Some(own) = operand.get_mut(at).filter(|own| whole(own).is_some()) {
                    own.clone_from(axis);
                }
            }
            joined.factors[factor].role = Role::Pointwise;
        }
        // Factors that no axis has any more are dropped.
        let mut numbers = vec![None; joined.factors.len()];
        let mut kept = Vec::new();
        for axis in joined.operands.iter_mut().chain([&mut joined.result]).flatten() {
            for factor in axis {
                let number = *numbers[*factor].get_or_insert_with(|| {
                    kept.push(joined.factors[*factor]);
                    kept.len() - 1
                });
                *factor = number;
            }
        }
        Factors { factors: kept, ..joined }
    }

    /// The relation in which a whole axis of the first operand that the result does not have is reduced
    /// by addition: for an op of which [each part of the axis](crate::ops::masked::MaskRule) gives a summand.
    pub fn summed(&self, axis: usize) -> Factors {
        let mut summed = self.clone();
        for &factor in &self.operands[0][axis] {
            if self.factors[factor].role == Role::Whole {
                summed.factors[factor].role = Role::Reduced(OpCode::Add);
            }
        }
        summed
    }

    /// All factors, by number.
    pub fn factors(&self) -> &[Factor] {
        &self.factors
    }

    /// The axes of each operand.
    pub fn operands(&self) -> &[Vec<AxisFactors>] {
        &self.operands
    }

    /// The axes of the result.
    pub fn result(&self) -> &[AxisFactors] {
        &self.result
    }

    /// The sizes of all factors for tensors of these shapes. A symbolic size is divided only if no
    /// axis consists of the factor alone. No symbolic size is specialised.
    ///
    /// Errors: [`Error::InvalidArgument`] for a wrong number of operands or axes, and for a factor
    /// whose size the shapes do not determine.
    pub fn sizes(&self, operands: &[&Shape], result: &Shape) -> Result<Vec<Dim>> {
        if operands.len() != self.operands.len() {
            let (given, expected) = (operands.len(), self.operands.len());
            return Err(invalid(format!("{given} operands are given, expected {expected}")));
        }
        let shapes = operands.iter().copied().chain([result]);
        let mut axes = Vec::new();
        for (of, shape) in self.operands.iter().chain([&self.result]).zip(shapes) {
            if of.len() != shape.rank() {
                let rank = of.len();
                return Err(invalid(format!("shape {shape} is given, expected rank {rank}")));
            }
            axes.extend(of.iter().zip(shape.dims()));
        }
        let mut sizes: Vec<Option<Dim>> =
            self.factors.iter().map(|factor| factor.size.map(Dim::from)).collect();
        // An axis with one unknown factor determines this factor. Then another axis may have only
        // one unknown factor.
        for _ in 0..=self.factors.len() {
            for (factors, size) in &axes {
                let mut unknown = factors.iter().filter(|&&f| sizes[f].is_none());
                let (Some(&f), None) = (unknown.next(), unknown.next()) else { continue };
                let others: Dim = factors.iter().filter_map(|&g| sizes[g]).product();
                sizes[f] = Some(if factors.len() == 1 { *size } else { size.floor_div(others) });
            }
        }
        let known = |(f, size): (usize, Option<Dim>)| {
            size.ok_or_else(|| invalid(format!("the size of factor {} does not follow", name(f))))
        };
        sizes.into_iter().enumerate().map(known).collect()
    }

    /// Parses the text that `Display` writes. A factor's name is any lower-case letter with an
    /// optional number.
    ///
    /// Errors: [`Error::Parse`] for invalid text, [`Error::InvalidArgument`] as [`Factors::new`].
    pub fn parse(text: &str) -> Result<Factors> {
        parse::parse(text)
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { op: "factors", reason }
}

/// The name of a factor in the text form.
fn name(factor: usize) -> String {
    const LETTERS: &[u8] = b"ijklmnpqrstuvwxyz";
    match LETTERS.get(factor) {
        Some(&letter) => (letter as char).to_string(),
        None => format!("i{factor}"),
    }
}

fn write_axes(f: &mut fmt::Formatter<'_>, axes: &[AxisFactors]) -> fmt::Result {
    if axes.is_empty() {
        return f.write_str("()");
    }
    for (i, axis) in axes.iter().enumerate() {
        if i > 0 {
            f.write_str(" ")?;
        }
        match axis[..] {
            [] => f.write_str("1")?,
            [only] => f.write_str(&name(only))?,
            ref several => {
                let names: Vec<String> = several.iter().map(|&factor| name(factor)).collect();
                write!(f, "({})", names.join(" "))?;
            }
        }
    }
    Ok(())
}

impl fmt::Display for Factors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, axes) in self.operands.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            write_axes(f, axes)?;
        }
        f.write_str(if self.operands.is_empty() { "-> " } else { " -> " })?;
        write_axes(f, &self.result)?;
        let mut separator = "; ";
        for (i, factor) in self.factors.iter().enumerate() {
            if factor.role == Role::Pointwise && factor.size.is_none() {
                continue;
            }
            write!(f, "{separator}{}", name(i))?;
            separator = ", ";
            if factor.role != Role::Pointwise {
                write!(f, ": {}", factor.role.name())?;
            }
            if let Some(size) = factor.size {
                write!(f, " = {size}")?;
            }
        }
        Ok(())
    }
}
