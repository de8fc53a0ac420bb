//! Algebraic simplification: a table of named rewrites, each of which is one identity, grouped by
//! topic.
//!
//! Laws. Never worse: each rewrite replaces an op by its operand, a constant, a view or a cheaper
//! op. Terminates: each rewrite decreases the number of ops that are not views, or otherwise the
//! length of a chain of views or casts, and no rewrite increases what another decreases. Exact:
//! results keep every bit, except the payload and sign of a NaN. Rewrites marked as not exact are
//! an exception too: their results are correctly rounded, whereas the results of the original op
//! were only close. In particular, `x + 0` is not rewritten for floats (it turns -0 into 0), and
//! neither is `x * 0` (NaN and infinities). An operand that replaces its op is broadcast to the
//! op's shape.

mod arithmetic;
mod choice;
mod views;

use crate::Pass;
use girih_ir::{Graph, GraphBuilder, Literal, Node, NodeId, OpCode, Result};
use girih_sync::LazyLock;

/// One rewrite.
pub struct Rule {
    /// The identity.
    pub name: &'static str,
    /// The ops that the rewrite may replace; an empty list means any op.
    pub on: &'static [OpCode],
    /// True if the result has the same bits as the original.
    pub exact: bool,
    /// The replacement of a node whose operands are in the graph under construction.
    pub apply: fn(&mut GraphBuilder, &Node) -> Result<Option<NodeId>>,
}

/// The pass that this module describes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simplify;

impl Simplify {
    /// All rewrites, in the order in which they are tried.
    pub fn rules() -> impl Iterator<Item = &'static Rule> {
        arithmetic::RULES.iter().chain(choice::RULES).chain(views::RULES)
    }
}

impl Pass for Simplify {
    fn name(&self) -> &str {
        "simplify"
    }

    fn run(&self, graph: &Graph) -> Result<Option<Graph>> {
        graph.rewrite(simplify)
    }
}

/// Rewrites a node and its replacement repeatedly, until no rewrite applies.
fn simplify(b: &mut GraphBuilder, node: &Node) -> Result<Option<NodeId>> {
    let Some(mut found) = first_match(b, node)? else { return Ok(None) };
    loop {
        let node = b.graph().node(found).clone();
        match first_match(b, &node)? {
            Some(next) => found = next,
            None => return Ok(Some(found)),
        }
    }
}

fn first_match(b: &mut GraphBuilder, node: &Node) -> Result<Option<NodeId>> {
    for rule in &RULES_OF[node.op.code as usize] {
        if let Some(found) = (rule.apply)(b, node)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// For each op, the rewrites that may replace the op, in the order in which they are tried.
static RULES_OF: LazyLock<Vec<Vec<&Rule>>> = LazyLock::new(|| {
    let of = |code: &OpCode| {
        Simplify::rules().filter(|rule| rule.on.is_empty() || rule.on.contains(code)).collect()
    };
    OpCode::ALL.iter().map(of).collect()
});

/// `x` broadcast to a node's shape, as its replacement.
fn stand_in(b: &mut GraphBuilder, x: NodeId, node: &Node) -> Result<Option<NodeId>> {
    b.broadcast_to(x, node.spec.shape.clone()).map(Some)
}

/// A splat constant with a node's spec, as its replacement.
fn constant(b: &mut GraphBuilder, value: i64, node: &Node) -> Result<Option<NodeId>> {
    let value = Literal::from_i64(node.spec.dtype, value);
    Ok(Some(b.constant(value, node.spec.shape.clone())))
}

/// The operand of `x`, if `x` is an op `code`.
fn operand_of(b: &GraphBuilder, x: NodeId, code: OpCode) -> Option<NodeId> {
    let node = b.graph().node(x);
    (node.op.code == code).then(|| node.inputs[0])
}

/// The operands of a commutative op as `(x, literal)`, if one of them is a literal.
fn with_literal(b: &GraphBuilder, node: &Node) -> Option<(NodeId, Literal)> {
    let [x, y] = node.inputs[..] else { return None };
    let right = b.graph().literal(y).map(|l| (x, l));
    right.or_else(|| b.graph().literal(x).map(|l| (y, l)))
}
