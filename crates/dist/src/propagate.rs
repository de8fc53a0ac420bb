//! Propagation of shardings through one op, from its operands to its result or back. A factor of the
//! op takes axes of the mesh, and every dimension that has the factor is cut by them.
//!
//! 1. COLLECT: each dimension proposes its axes for its factors.
//! 2. RESOLVE: proposals are taken in order of strength. A mesh axis cuts one factor, since every
//!    combination of parts of two factors is computed by somebody. The order: axes that an operand
//!    lists as replicated do not cut its factors; then the lower priority number, more parallelism,
//!    the longer prefix in common with other proposals, fewer bytes moved, the earlier dimension.
//!    The order of the operands never matters.
//! 3. UPDATE: the spec that each operand must have, and the result's. A reduced factor that is cut
//!    makes the result partial; partial operands pass as the op's definition says.
//!
//! Sources: Shardy's propagation over sharding rules, Nabla's three phases, DTensor's partial values.

mod partial;
mod resolve;
#[cfg(test)]
mod tests;

pub use crate::partition::{propagated as graph, result};

use girih_ir::factors::{AxisFactors, Role};
use girih_ir::{AxisRef, DeviceMesh, DimSpec, Factors, Op, OpCode, P, Result, TensorSpec};
use resolve::Resolution;
use std::collections::BTreeMap;

/// An operand of the op with its sharding.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a> {
    /// Shape and dtype.
    pub tensor: &'a TensorSpec,
    /// Its spec on the mesh of the call.
    pub spec: &'a P,
}

/// An op that is about to be recorded on operands of one mesh.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The correspondence of the axes of operands and result.
    pub factors: &'a Factors,
    /// The operands.
    pub operands: &'a [Operand<'a>],
    /// Shape and dtype of the result.
    pub result: &'a TensorSpec,
    /// The mesh.
    pub mesh: &'a DeviceMesh,
    /// The op, whose definition says whether partial operands pass; with `None` they do not.
    pub op: Option<&'a Op>,
}

/// The specs that propagation decides for one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The spec that each operand must have. If it owns other elements than the operand's, the
    /// operand is resharded.
    pub operands: Vec<P>,
    /// The result's spec.
    pub result: P,
    /// The axes that cut reduced factors, over which the op makes partial values, and the op that
    /// combines them; a part of the result's partial axes.
    pub reduced: BTreeMap<AxisRef, OpCode>,
}

/// The specs that follow from the operands'.
///
/// Errors: [`girih_ir::Error::InvalidArgument`] for a spec that is not valid for its operand on the
/// mesh, and for factors that do not fit the shapes.
///
/// Cost: quadratic in the dimensions of the call, which are few.
pub fn step(call: &Call<'_>) -> Result<Step> {
    update(call, None, Compound::Dividing)
}

/// The specs that follow from a wanted result's: its axes come first, its closed dimensions take no
/// others, and the operands' axes cut what is left, such as reduced factors.
///
/// Errors: as [`step`].
pub fn backward(call: &Call<'_>, wanted: &P) -> Result<Step> {
    update(call, Some(wanted), Compound::Dividing)
}

/// How a dimension of several factors may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compound {
    /// In parts of whole factors.
    Dividing,
    /// Also in parts that do not divide a factor, whose elements are other ones in each tensor: for ops
    /// that have parts.
    Any,
}

/// As [`step`] or [`backward`], for an op that is computed on the elements that its parts need.
pub(crate) fn step_in_parts(call: &Call<'_>, wanted: Option<&P>) -> Result<Step> {
    update(call, wanted, Compound::Any)
}

fn update(call: &Call<'_>, wanted: Option<&P>, compound: Compound) -> Result<Step> {
    let shapes: Vec<_> = call.operands.iter().map(|operand| &operand.tensor.shape).collect();
    let sizes = call.factors.sizes(&shapes, &call.result.shape)?;
    for operand in call.operands {
        operand.spec.check(call.mesh, operand.tensor.shape.rank())?;
    }
    let merged: Vec<P> = call.operands.iter().map(|o| o.spec.merged(call.mesh)).collect();
    let wanted = match wanted {
        None => None,
        Some(spec) => {
            spec.check(call.mesh, call.result.shape.rank())?;
            Some(spec.merged(call.mesh))
        }
    };
    let resolution = Resolution::new(call, &sizes, &merged, wanted.as_ref(), compound);
    let resolved = resolution.resolve();
    let mut reduced = BTreeMap::new();
    for (factor, cut) in call.factors.factors().iter().zip(&resolved) {
        if let Role::Reduced(op) = factor.role {
            reduced.extend(cut.axes.iter().map(|axis| (axis.clone(), op)));
        }
    }
    let passed = partial::passed(call, &merged, &resolved, &reduced);
    let spec = |dims: &[AxisFactors], partial: BTreeMap<AxisRef, OpCode>| {
        let dim = |factors: &AxisFactors| {
            let axes = factors.iter().flat_map(|&f| &resolved[f].axes);
            DimSpec::new(axes.cloned())
        };
        P { partial, ..P::new(dims.iter().map(dim)) }
    };
    let operands = call.factors.operands().iter().enumerate();
    let operands = operands.map(|(at, dims)| {
        let passes = passed.operands.get(at).is_some_and(|&passes| passes);
        spec(dims, if passes { passed.axes.clone() } else { BTreeMap::new() })
    });
    let operands = operands.collect();
    let partial = reduced.iter().chain(&passed.axes).map(|(axis, &op)| (axis.clone(), op));
    let mut result = spec(call.factors.result(), partial.collect());
    for (dim, factors) in result.dims.iter_mut().zip(call.factors.result()) {
        // A spec that follows from a weak one is as weak.
        dim.priority = factors.iter().map(|&f| resolved[f].priority).max().unwrap_or(0);
    }
    Ok(Step { operands, result, reduced })
}
