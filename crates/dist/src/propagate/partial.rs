//! Partial operands: whether an op passes them on, or takes them resolved.

use super::Call;
use super::resolve::{Cut, overlap};
use girih_ir::factors::Role;
use girih_ir::{AxisRef, Class, OpCode, P, TensorSpec};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// Partial values that an op passes on to its result.
#[derive(Default)]
pub(super) struct Passed {
    /// The axes, which are the same for all operands that pass.
    pub(super) axes: BTreeMap<AxisRef, OpCode>,
    /// The operands that must be partial over these axes. One that is not yet becomes so without a
    /// transfer, so that it is added once.
    pub(super) operands: SmallVec<[bool; 4]>,
}

/// The partial values that pass, on axes that cut no factor. An op that makes more elements than its
/// partial operands have is computed after their reduction, which then moves fewer bytes.
pub(super) fn passed(
    call: &Call<'_>,
    specs: &[P],
    cuts: &[Cut],
    reduced: &BTreeMap<AxisRef, OpCode>,
) -> Passed {
    let marked: SmallVec<[bool; 4]> = specs.iter().map(|spec| !spec.partial.is_empty()).collect();
    let mut partial = specs.iter().map(|spec| &spec.partial).filter(|axes| !axes.is_empty());
    let (Some(axes), Some(op)) = (partial.next(), call.op) else { return Passed::default() };
    let mut axes = axes.clone();
    partial.for_each(|other| axes.retain(|axis, by| other.get(axis) == Some(by)));
    let cut = |axis: &AxisRef| cuts.iter().flat_map(|cut| &cut.axes).any(|a| overlap(a, axis));
    axes.retain(|axis, by| !cut(axis) && reduced.values().all(|op| op == by));
    let Some(&by) = axes.values().next() else { return Passed::default() };
    let inputs: SmallVec<[&TensorSpec; 4]> = call.operands.iter().map(|o| o.tensor).collect();
    let operands = match reduces_by(call, by) {
        true => Some(SmallVec::from_elem(true, marked.len())),
        false => op.def().passes_partial(op, &inputs, call.result, &marked, by),
    };
    let count = |tensor: &TensorSpec| {
        tensor.shape.hints().iter().fold(1usize, |all, &size| all.saturating_mul(size))
    };
    let held = inputs.iter().zip(&marked).filter(|(_, marked)| **marked);
    let held = held.fold(0usize, |sum, (tensor, _)| sum.saturating_add(count(tensor)));
    match operands {
        Some(operands) if count(call.result) <= held => Passed { axes, operands },
        _ => Passed::default(),
    }
}

/// True for a reduction whose op combines the partial values, too.
fn reduces_by(call: &Call<'_>, by: OpCode) -> bool {
    let mut roles = call.factors.factors().iter().map(|factor| factor.role);
    call.op.is_some_and(|op| op.class() == Class::Reduction)
        && call.factors.factors().iter().any(|f| f.role == Role::Reduced(by))
        && roles.all(|role| matches!(role, Role::Pointwise) || role == Role::Reduced(by))
}
