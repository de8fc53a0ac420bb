//! The arguments of derivative rules and decompositions, and helpers that the rules share. The
//! rules are beside their ops.

use crate::builder::GraphBuilder;
use crate::{Class, Error, NodeId, Op, Result};
use smallvec::smallvec;

/// The reverse-mode derivative of an op.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// A VJP rule, which records the cotangents of the operands. It records only differentiable
    /// ops, so that derivatives of any order follow from the same rules.
    Rule(fn(&mut Vjp<'_>) -> Result<Cotangents>),
    /// Differentiates the op's decomposition.
    Decompose,
    /// Differentiates the op's regions; reverse mode implements this itself.
    Regions,
    /// The op has no derivative; differentiating it is an error with this sentence.
    Refused(&'static str),
    /// The gradient is zero. The reason is for documentation.
    Zero(&'static str),
}

/// Cotangents of an op's operands, in order; `None` for a zero cotangent.
pub type Cotangents = smallvec::SmallVec<[Option<NodeId>; 3]>;

/// The arguments of a VJP rule: the call in the graph under construction.
pub struct Vjp<'a> {
    /// Records the rule's ops.
    pub b: &'a mut GraphBuilder,
    /// The op with its attributes.
    pub op: Op,
    /// The operands.
    pub inputs: &'a [NodeId],
    /// Which operands need a cotangent; a rule may skip the others.
    pub wanted: &'a [bool],
    /// The op's result.
    pub output: NodeId,
    /// The cotangent of the result, with the result's shape and dtype.
    pub ct: NodeId,
}

impl Vjp<'_> {
    /// The cotangent of operand `i`, if it is wanted. `record` computes it with the result's shape;
    /// the sum over the operand's broadcast axes follows.
    pub fn operand(
        &mut self,
        i: usize,
        record: impl FnOnce(&mut Self) -> Result<NodeId>,
    ) -> Result<Option<NodeId>> {
        if !self.wanted[i] {
            return Ok(None);
        }
        let ct = record(self)?;
        let shape = self.b.shape(self.inputs[i]).clone();
        self.b.sum_to(ct, &shape).map(Some)
    }

    /// A scalar constant of the cotangent's dtype.
    pub fn scalar(&mut self, value: f64) -> NodeId {
        self.b.scalar_like(self.ct, value)
    }
}

/// The cotangents of an op with a single operand.
pub(crate) fn only(ct: NodeId) -> Result<Cotangents> {
    Ok(smallvec![Some(ct)])
}

/// The arguments of a decomposition: the op and its operands in the graph under construction.
pub struct Decomposition<'a> {
    /// Records the primitives.
    pub b: &'a mut GraphBuilder,
    /// The op with its attributes.
    pub op: &'a Op,
    /// The operands.
    pub inputs: &'a [NodeId],
}

impl GraphBuilder {
    /// Records a composite's decomposition in place of the composite, and returns the node of its
    /// value. Composites within the decomposition are not decomposed.
    ///
    /// Errors: [`Error::InvalidArgument`] for an op without a decomposition.
    pub fn decompose(&mut self, op: &Op, inputs: &[NodeId]) -> Result<NodeId> {
        let Some(decompose) = op.def().decompose else {
            return Err(Error::InvalidArgument {
                op: op.name(),
                reason: "is a primitive and has no decomposition".into(),
            });
        };
        decompose(&mut Decomposition { b: self, op, inputs })
    }

    /// Records what an op computes in a form that combines partial results along cut axes: a
    /// composite's decomposition, or the definition by reductions of another op; `None` if there is
    /// no such form.
    ///
    /// Errors: those of the ops recorded.
    pub fn in_parts(&mut self, op: &Op, inputs: &[NodeId]) -> Result<Option<NodeId>> {
        let def = op.def();
        let composite = def.decompose.filter(|_| def.class == Class::Composite);
        let Some(record) = composite.or(def.by_reductions) else { return Ok(None) };
        record(&mut Decomposition { b: self, op, inputs }).map(Some)
    }
}
