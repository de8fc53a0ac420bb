//! Decomposition: every composite is replaced by its definition, down to primitives.
//!
//! Laws. Never worse: a composite has no cost of its own, and what definitions share with the rest
//! of the program merges afterwards. Terminates: definitions are not recursive. Exact: the
//! definition is what the composite means.

use crate::Pass;
use girih_ir::Graph;

/// See the module.
pub struct Decompose;

impl Pass for Decompose {
    fn name(&self) -> &str {
        "decompose"
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        graph.decomposed()
    }
}
