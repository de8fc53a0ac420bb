//! Decomposition: replaces every composite by its definition, down to primitives.
//!
//! Laws. Never worse: a composite has no cost of its own, and CSE merges the subexpressions that
//! its definition shares with the program. Terminates: definitions are not recursive. Exact: the
//! definition is the meaning of the composite.

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
