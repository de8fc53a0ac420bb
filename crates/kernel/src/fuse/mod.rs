//! Fusion: lowers a closed graph of primitives to a program of kernels.
//!
//! A plan (in `plan`) decides, visiting consumers first, which values are in memory and which
//! kernels compute the others without storing them (vertical fusion). Kernels are then built (in
//! `build`), again consumers first: the builder starts from the root's value at a point and follows
//! operands through composed index maps. A value that cannot be expressed there is moved to memory
//! after all, so a plan may be optimistic but never wrong. Fusion changes no bit of any result.

mod build;
mod control;
mod cost;
mod horizontal;
mod kernel;
mod map;
mod memo;
mod name;
mod operand;
mod plan;
mod prologue;
mod refusal;
mod reuse;
mod rows;
mod space;
#[cfg(test)]
mod tests;

use crate::Target;
use crate::ir::Program;
use girih_ir::{Graph, NodeId};

pub use refusal::{Refusal, Refused};

/// The fusions that are allowed. Each can be switched off separately; none changes a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FusionOptions {
    /// Elementwise and gathering ops are computed by the kernels that consume them.
    pub elementwise: bool,
    /// Permutes, slices, flips and broadcasts become strides rather than copies.
    pub views: bool,
    /// Reductions compute their operand on the way.
    pub reduction_prologue: bool,
    /// Elementwise consumers of a reduction are computed by its kernel.
    pub reduction_epilogue: bool,
    /// Elementwise consumers of a GEMM are computed by its kernel.
    pub matmul_epilogue: bool,
    /// Kernels that pass rows to each other run as one kernel, a few rows at a time. No effect
    /// without `elementwise`.
    pub rows: bool,
    /// Operands of a GEMM are computed by its kernel as it packs them (a GEMM prologue). No effect
    /// without `elementwise`.
    pub matmul_prologue: bool,
}

impl Default for FusionOptions {
    fn default() -> Self {
        FusionOptions::ALL
    }
}

impl FusionOptions {
    /// Every fusion.
    pub const ALL: FusionOptions = FusionOptions {
        elementwise: true,
        views: true,
        reduction_prologue: true,
        reduction_epilogue: true,
        matmul_epilogue: true,
        rows: true,
        matmul_prologue: true,
    };

    /// One kernel per op.
    pub const NONE: FusionOptions = FusionOptions {
        elementwise: false,
        views: false,
        reduction_prologue: false,
        reduction_epilogue: false,
        matmul_epilogue: false,
        rows: false,
        matmul_prologue: false,
    };

    /// The names of the options; the index of a name is its bit in [`FusionOptions::bits`].
    pub const NAMES: [&str; 7] = [
        "elementwise",
        "views",
        "reduction_prologue",
        "reduction_epilogue",
        "matmul_epilogue",
        "rows",
        "matmul_prologue",
    ];

    /// The options with that encoding; unknown bits are ignored.
    pub fn from_bits(bits: u32) -> FusionOptions {
        let on = |bit: u32| bits >> bit & 1 == 1;
        FusionOptions {
            elementwise: on(0),
            views: on(1),
            reduction_prologue: on(2),
            reduction_epilogue: on(3),
            matmul_epilogue: on(4),
            rows: on(5),
            matmul_prologue: on(6),
        }
    }

    /// The options as bits, for keys of compiled programs. Stable: the meaning of a bit never
    /// changes.
    pub fn bits(self) -> u32 {
        self.elementwise as u32
            | (self.views as u32) << 1
            | (self.reduction_prologue as u32) << 2
            | (self.reduction_epilogue as u32) << 3
            | (self.matmul_epilogue as u32) << 4
            | (self.rows as u32) << 5
            | (self.matmul_prologue as u32) << 6
    }
}

/// Why a graph cannot be lowered.
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
    /// A branch or loop whose regions do not fit its operands, or a custom op whose kernels do not.
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
    pub program: Program,
    /// The nodes that each kernel computes, in order of computation; for a kernel that only copies,
    /// the view that it copies.
    pub nodes: Vec<Vec<NodeId>>,
    /// Values that are stored in memory although an op consumes them, with the reason; in node
    /// order.
    pub refusals: Vec<Refused>,
}

/// The refusals so far, if they are recorded.
type Refusals = Option<Vec<(NodeId, Refusal)>>;

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
) -> Result<Program, LowerError> {
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
    let build::Built { program, nodes, refusals } = run(lowering, Some(Vec::new()))?;
    let refusals = refusal::complete(graph, refusals.unwrap_or_default());
    Ok(Explained { program, nodes, refusals })
}

fn run(lowering: Lowering<'_>, refusals: Refusals) -> Result<build::Built, LowerError> {
    let options = lowering.options;
    let plan = plan::Plan::new(lowering, refusals)?;
    let mut built = build::program(lowering, plan);
    if options.rows && options.elementwise {
        rows::group(lowering, &mut built);
    }
    if options.matmul_prologue && options.elementwise {
        prologue::group(lowering, &mut built);
    }
    if options.rows && options.elementwise {
        horizontal::group(lowering, &mut built);
    }
    #[cfg(debug_assertions)]
    if let Err(broken) = crate::verify::verify(&built.program) {
        let (program, graph) = (&built.program, lowering.graph);
        panic!("lowering made an ill-formed program: {broken}\n{program}\nfrom {graph}");
    }
    #[cfg(test)]
    crate::text::tests::round_trip(&built.program);
    Ok(built)
}
