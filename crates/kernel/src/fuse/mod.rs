//! Fusion: lowers a closed graph of primitives to a program of kernels.
//!
//! A plan (in `plan`) decides, visiting consumers first, which values are in memory and which
//! kernels compute the others without storing them (vertical fusion). Kernels are then built (in
//! `build`), again consumers first: the builder starts from the root's value at a point and follows
//! operands through composed index maps. A value that cannot be expressed there is moved to memory
//! after all, so a plan may be optimistic but never wrong. Fusion changes no bit of any result, also
//! not of a sum: the order of a reduction depends on the number of its elements only
//! ([`crate::target::ReductionOrder`]).

mod borders;
mod buffers;
mod build;
mod control;
mod cost;
mod disabled;
mod horizontal;
mod kernel;
mod map;
mod memo;
mod name;
mod operand;
mod options;
mod plan;
mod prologue;
mod refusal;
mod reuse;
mod rows;
mod space;
#[cfg(test)]
mod tests;

use crate::Target;
use crate::ir::KernelProgram;
use crate::target::Lacking;
use girih_ir::{Graph, NodeId};

use options::Stage;

pub use options::FusionOptions;
pub use refusal::{Refusal, Refused};

/// The reason why a graph cannot be lowered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// A composite, which can only be computed by its decomposition.
    #[error("{node} = {op} is a composite; decompose the graph before lowering it")]
    Composite {
        /// The node.
        node: NodeId,
        /// Its op.
        op: &'static str,
    },
    /// An op that the target does not compute.
    #[error("{node} = {op}: the device lacks {lacking}")]
    Unsupported {
        /// The node.
        node: NodeId,
        /// Its op.
        op: &'static str,
        /// The property that the target lacks.
        lacking: Lacking,
    },
    /// A branch or loop whose regions do not fit its operands, or a custom op whose kernels do not
    /// fit its operands.
    #[error("{node}: {source}")]
    Region {
        /// The node.
        node: NodeId,
        /// The error.
        source: Box<girih_ir::Error>,
    },
}

/// A program, and the fusions that were refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The program.
    pub program: KernelProgram,
    /// The nodes that each kernel computes, in order of computation; for a kernel that only copies,
    /// the view that it copies.
    pub nodes: Vec<Vec<NodeId>>,
    /// The values that are computed by another kernel than an op that consumes them, with the
    /// reason, ordered by the passes that refuse the fusion, then by nodes.
    pub refusals: Vec<Refused>,
}

/// The refusals so far, if they are recorded.
type Refusals = Option<Vec<Refused>>;

/// A graph to be lowered, the fusions that are allowed, and the processor.
#[derive(Clone, Copy)]
struct Lowering<'a> {
    graph: &'a Graph,
    options: FusionOptions,
    target: &'a Target,
}

/// Lowers a closed graph of primitives to kernels for a target.
///
/// Errors: [`LowerError::Composite`].
pub fn lower(
    graph: &Graph,
    options: FusionOptions,
    target: &Target,
) -> Result<KernelProgram, LowerError> {
    Ok(run(Lowering { graph, options, target }, None)?.program)
}

/// Like [`lower`]; also returns the refused fusions with their reasons.
///
/// Errors: [`LowerError::Composite`].
pub fn lower_explained(
    graph: &Graph,
    options: FusionOptions,
    target: &Target,
) -> Result<Explained, LowerError> {
    let lowering = Lowering { graph, options, target };
    let build::Built { program, nodes, refusals, .. } = run(lowering, Some(Vec::new()))?;
    let refusals = refusal::complete(graph, refusals.unwrap_or_default());
    Ok(Explained { program, nodes, refusals })
}

fn run(lowering: Lowering<'_>, refusals: Refusals) -> Result<build::Built, LowerError> {
    let plan = plan::Plan::new(lowering, refusals)?;
    let mut built = build::program(lowering, plan);
    verify("the plan", lowering, &built);
    let mut disabled = Vec::new();
    for Stage { name, on, pass } in lowering.options.stages() {
        if on {
            pass(lowering, &mut built);
            verify(name, lowering, &built);
        } else if built.refusals.is_some() {
            disabled.extend(disabled::fusions(lowering, &built, pass));
        }
    }
    disabled::record(&mut built, disabled);
    #[cfg(test)]
    crate::text::tests::round_trip(&built.program);
    Ok(built)
}

/// Panics in debug builds if a pass made an ill-formed program.
fn verify(pass: &str, lowering: Lowering<'_>, built: &build::Built) {
    if cfg!(debug_assertions)
        && let Err(broken) = crate::verify::verify(&built.program)
    {
        let (program, graph) = (&built.program, lowering.graph);
        panic!("{pass} made an ill-formed program: {broken}\n{program}\nfrom {graph}");
    }
}
