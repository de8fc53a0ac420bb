//! What derivative rules and decompositions are given and what they share. The rules themselves
//! stand beside the ops they belong to.

use crate::builder::GraphBuilder;
use crate::{Error, NodeId, Op, Result};
use smallvec::smallvec;

/// How an op is differentiated in reverse.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// A rule that records the cotangents of the operands. It records them out of differentiable
    /// ops only, so that derivatives of any order come from the same rules.
    Rule(fn(&mut Vjp<'_>) -> Result<Cotangents>),
    /// Through the op's decomposition.
    Decompose,
    /// By differentiating the regions that the op runs, which is reverse mode's own business.
    Regions,
    /// There is none, and asking for it is an error: this sentence.
    Refused(&'static str),
    /// No gradient flows: operands get zeros. The reason is for documentation.
    Zero(&'static str),
}

/// Cotangents of an op's operands, in order; `None` where no gradient flows to an operand.
pub type Cotangents = smallvec::SmallVec<[Option<NodeId>; 3]>;

/// What a derivative rule is given: the call as it stands in the graph being built.
pub struct Vjp<'a> {
    /// Where the rule records its ops.
    pub b: &'a mut GraphBuilder,
    /// The op with its attributes.
    pub op: Op,
    /// The operands.
    pub inputs: &'a [NodeId],
    /// Which operands' cotangents are used; a rule need not record the others.
    pub wanted: &'a [bool],
    /// The op's result.
    pub output: NodeId,
    /// The cotangent of the result, of the result's shape and dtype.
    pub ct: NodeId,
}

impl Vjp<'_> {
    /// The cotangent of operand `i`, if it is wanted: what `record` gives for the whole result,
    /// summed over the axes along which the operand was broadcast.
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

/// What a decomposition is given: the op and its operands in the graph being built.
pub struct Decomposition<'a> {
    /// Where the primitives are recorded.
    pub b: &'a mut GraphBuilder,
    /// The op with its attributes.
    pub op: &'a Op,
    /// The operands.
    pub inputs: &'a [NodeId],
}

impl GraphBuilder {
    /// Records a composite's definition instead of the composite and gives the node with its
    /// value. The definition may use other composites; they stay.
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
}
