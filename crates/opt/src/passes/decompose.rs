//! Decomposition: replaces every composite by its definition, down to primitives, except the
//! composites that the target's code generator computes as a whole.
//!
//! Laws. Never worse: a composite has no cost of its own, and CSE merges the subexpressions that
//! its definition shares with the program. Terminates: definitions are not recursive. Exact: the
//! definition is the meaning of the composite.

use crate::Pass;
use girih_ir::{DecompositionTarget, Graph};

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decompose {
    /// The processor for which composites are replaced.
    pub target: DecompositionTarget,
}

impl Pass for Decompose {
    fn name(&self) -> &str {
        "decompose"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        graph.decomposed_for(&self.target)
    }
}
