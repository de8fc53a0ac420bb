//! Custom derivative rules of a call: regions before its body, or host functions that are recorded
//! when the call is differentiated.

use super::super::host::HostFailure;
use super::*;
use crate::Shape;
use girih_sync::Foreign;
use std::hash::{Hash, Hasher};

/// The custom derivative rules of a call.
#[derive(Clone, Copy, Debug)]
pub enum CallRules<'a> {
    /// No custom rules: the body is differentiated.
    Derived,
    /// Rules that are recorded when the call is differentiated.
    Later(&'a RulesLater),
    /// A JVP rule. It takes the operands, then a tangent for each inexact operand that is
    /// differentiated with respect to. It returns the results, then a tangent for each inexact
    /// result.
    Jvp(&'a Graph),
    /// A VJP rule. The forward part takes the operands and returns the results, then any residuals.
    /// The backward part takes the operands, the residuals and a cotangent for each inexact result.
    /// It returns a cotangent for each inexact operand that is differentiated with respect to.
    Vjp {
        /// Computes results and residuals.
        forward: &'a Graph,
        /// Computes cotangents.
        backward: &'a Graph,
    },
    /// The backward part of a VJP rule; the body is the forward part ([`CallMode::Forward`]).
    Backward(&'a Graph),
}

/// Recorded rules.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// See [`CallRules::Jvp`].
    Jvp(Graph),
    /// See [`CallRules::Vjp`].
    Vjp {
        /// Computes results and residuals.
        forward: Graph,
        /// Computes cotangents.
        backward: Graph,
    },
}

/// Derivative rules of a function that are recorded when the function is differentiated.
pub trait Rules: Send + Sync {
    /// Name of the function, for messages.
    fn name(&self) -> &str;

    /// True for a JVP rule, which serves forward and reverse mode.
    fn is_forward(&self) -> bool;

    /// Records the rules for operands of these specs. The rules refer to tensors outside by leaves
    /// of the front end ([`Op::outside`]).
    ///
    /// Errors: the failure of the user's function.
    fn record(&self, operands: &[TensorSpec]) -> Result<Recorded, HostFailure>;
}

/// One batch level of a call: its size, the name of its axis, and which operands are batched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RulesLevel {
    /// The batch size.
    pub size: Dim,
    /// The axis name that collectives use.
    pub name: Option<String>,
    /// For each operand, true if the batch is its leading axis.
    pub marks: Vec<bool>,
}

/// Rules to record later, and the batch levels of the call, outermost first.
#[derive(Clone)]
pub struct RulesLater {
    rules: Foreign<Arc<dyn Rules>>,
    levels: Vec<RulesLevel>,
}

impl RulesLater {
    /// Rules of an unbatched call.
    pub fn new(rules: Arc<dyn Rules>) -> RulesLater {
        RulesLater { rules: rules.into(), levels: Vec::new() }
    }

    /// The rules.
    pub fn rules(&self) -> &dyn Rules {
        &**self.rules
    }

    /// The batch levels, outermost first.
    pub fn levels(&self) -> &[RulesLevel] {
        &self.levels
    }

    /// The rules with another batch level outside of the others.
    pub fn batched(&self, level: RulesLevel) -> RulesLater {
        let mut levels = vec![level];
        levels.extend(self.levels.iter().cloned());
        RulesLater { rules: self.rules.clone(), levels }
    }

    /// Replaces symbols by sizes.
    ///
    /// Errors: as [`Shape::bind`].
    pub(in crate::ops) fn bind(&self, sizes: &crate::dim::Sizes) -> Result<RulesLater> {
        let mut later = self.clone();
        for level in &mut later.levels {
            let size = Shape::of_dims([level.size]);
            level.size = size.bind("call", DType::Bool, sizes)?.dim(0);
        }
        Ok(later)
    }
}

impl PartialEq for RulesLater {
    fn eq(&self, other: &RulesLater) -> bool {
        Arc::ptr_eq(&self.rules, &other.rules) && self.levels == other.levels
    }
}

impl Eq for RulesLater {}

impl Hash for RulesLater {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.rules).cast::<()>().hash(state);
        self.levels.hash(state);
    }
}

impl fmt::Debug for RulesLater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RulesLater({})", self.rules.name())
    }
}

impl Control {
    /// The call's custom derivative rules.
    pub fn call_rules(&self) -> CallRules<'_> {
        match (&self.later, &*self.regions) {
            (Some(later), _) => CallRules::Later(later),
            (None, [backward, _]) if self.mode == CallMode::Forward => {
                CallRules::Backward(backward)
            }
            (None, [jvp, _]) => CallRules::Jvp(jvp),
            (None, [forward, backward, _]) => CallRules::Vjp { forward, backward },
            _ => CallRules::Derived,
        }
    }

    /// True if both compute the same values, whatever their derivative rules.
    pub(crate) fn computes_as(&self, other: &Control) -> bool {
        let parts = |c: &Control| (c.carries, c.slices, c.length, c.reverse, c.mode, c.saves);
        parts(self) == parts(other) && self.regions == other.regions
    }
}

/// Fails unless the rules' arguments and results have the specs that the call requires.
pub(super) fn check(call: OpCall<'_>, control: &Control, given: &[&TensorSpec]) -> Result<()> {
    let inexact = |specs: &[&TensorSpec]| -> Vec<TensorSpec> {
        specs.iter().filter(|s| s.dtype.is_inexact()).map(|s| (*s).clone()).collect()
    };
    let by = inexact(&call.inputs[..control.carries as usize]);
    let of = inexact(given);
    let refs = |specs: &[TensorSpec], more: &[TensorSpec]| -> Vec<TensorSpec> {
        specs.iter().chain(more).cloned().collect()
    };
    let operands: Vec<TensorSpec> = call.inputs.iter().map(|s| (*s).clone()).collect();
    let results: Vec<TensorSpec> = given.iter().map(|s| (*s).clone()).collect();
    let count = control.regions.len();
    match control.call_rules() {
        CallRules::Derived | CallRules::Later(_) if count == 1 => Ok(()),
        CallRules::Derived | CallRules::Later(_) => {
            invalid(call, format!("has {count} regions; expected a body and one or two rules"))
        }
        CallRules::Jvp(rule) => {
            let wanted = refs(&operands, &by);
            takes(call, "the forward rule", rule, &wanted.iter().collect::<Vec<_>>())?;
            gives_as(call, "the forward rule", rule, &refs(&results, &of), false)
        }
        CallRules::Vjp { forward, backward } => {
            takes(call, "the forward part", forward, call.inputs)?;
            gives_as(call, "the forward part", forward, &results, true)?;
            let residuals: Vec<TensorSpec> = gives(forward).skip(results.len()).cloned().collect();
            let wanted = refs(&refs(&operands, &residuals), &of);
            takes(call, "the backward part", backward, &wanted.iter().collect::<Vec<_>>())?;
            gives_as(call, "the backward part", backward, &by, false)
        }
        CallRules::Backward(backward) => {
            let (own, residuals) = results.split_at(results.len() - control.saves as usize);
            let of = inexact(&own.iter().collect::<Vec<_>>());
            let wanted = refs(&refs(&operands, residuals), &of);
            takes(call, "the backward part", backward, &wanted.iter().collect::<Vec<_>>())?;
            gives_as(call, "the backward part", backward, &by, false)
        }
    }
}
