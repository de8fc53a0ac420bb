//! Checks that the statements about a node's shape and dtype agree. A definition makes several
//! statements: the shape rule, the index maps, and for a composite the decomposition. The front end
//! relies on the shape rule when it records an op; compilation relies on the other statements.
//! [`check`] compares them, as a tool for authors of ops.

use crate::ops::OpCall;
use crate::{Class, Error, Graph, GraphBuilder, NodeId, OpDef, Result, Shape, TensorSpec};
use smallvec::SmallVec;

/// Checks every node's spec against all statements of its op's definition.
///
/// Errors: [`Error::Invalid`] naming the first op that disagrees, with the inferred and the built
/// spec.
pub fn check(graph: &Graph) -> Result<()> {
    graph.ids().try_for_each(|id| check_node(graph, id, graph.node(id).op.def()))
}

/// Checks one node against a definition of its op.
fn check_node(graph: &Graph, id: NodeId, def: &OpDef) -> Result<()> {
    let node = graph.node(id);
    if def.class == Class::Leaf {
        return Ok(());
    }
    let lie = |what: &str, built: &TensorSpec, inferred: &TensorSpec| Error::Invalid {
        at: format!("{id} = {}", def.name),
        reason: format!("its shape rule says {inferred}, but {what} builds {built}"),
    };
    let inputs: SmallVec<[&TensorSpec; 3]> = node.inputs.iter().map(|&i| graph.spec(i)).collect();
    let call = OpCall { op: &node.op, inputs: &inputs };
    let inferred = (def.infer)(call)?;
    if inferred != node.spec {
        return Err(lie("the graph", &node.spec, &inferred));
    }
    if let Some(shape) = loop_shape(def, call, &inferred)? {
        // Reduced axes that are kept have size 1 and no dimension in the loop nest.
        let squeezed = |shape: &Shape| -> Vec<usize> {
            shape.iter().copied().filter(|&size| size != 1).collect()
        };
        if squeezed(&shape) != squeezed(&inferred.shape) {
            return Err(lie("its loop nest", &TensorSpec { shape, ..inferred.clone() }, &inferred));
        }
    }
    if def.decompose.is_some() {
        let mut b = GraphBuilder::default();
        let operands: Vec<NodeId> = inputs.iter().map(|s| b.input((*s).clone())).collect();
        let result = b.decompose(&node.op, &operands)?;
        if *b.spec(result) != inferred {
            return Err(lie("its decomposition", b.spec(result), &inferred));
        }
    }
    Ok(())
}

/// The shape that the op's loop nest writes, if the op has one.
fn loop_shape(def: &OpDef, call: OpCall<'_>, inferred: &TensorSpec) -> Result<Option<Shape>> {
    if def.class == Class::Elementwise {
        // Elementwise loop nests are derived from the result's shape, so they would repeat a wrong
        // shape rule. Compare with the operands instead.
        let mut shape = Shape::scalar();
        for input in call.inputs {
            shape = shape.broadcast(&input.shape, def.name)?;
        }
        return Ok(Some(shape));
    }
    let Some(rule) = def.iteration.filter(|_| def.class != Class::View) else { return Ok(None) };
    let nest = rule(call, inferred);
    Ok(Some(nest.extents[..nest.parallel].into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{composite, elementwise};
    use crate::{DType, OpCode};

    fn spec() -> TensorSpec {
        TensorSpec::new([2, 3], DType::F32)
    }

    /// A wrong shape rule: the result has one row too many.
    fn lying(call: OpCall<'_>) -> Result<TensorSpec> {
        Ok(TensorSpec::new([call.inputs[0].shape[0] + 1, 3], DType::F32))
    }

    #[test]
    fn a_wrong_shape_rule_is_reported_with_both_shapes() {
        let toys = [
            // Composites are checked by their decomposition, elementwise ops by their operands.
            (OpCode::Exp, OpDef { infer: lying, ..elementwise::EXP }, "loop nest"),
            (OpCode::Silu, OpDef { infer: lying, ..composite::SILU }, "decomposition"),
        ];
        for (code, def, what) in toys {
            let mut b = GraphBuilder::default();
            let x = b.input(spec());
            let mut graph = b.finish([]);
            let said = TensorSpec::new([3, 3], DType::F32);
            let y = graph.push_unchecked(code.into(), &[x], said);
            let message = check_node(&graph, y, &def).unwrap_err().to_string();
            for word in [def.name, what, "f32[3, 3]", "f32[2, 3]"] {
                assert!(message.contains(word), "{word} is not in {message}");
            }
        }
    }

    #[test]
    fn a_node_recorded_with_another_spec_than_inferred_is_found() {
        let mut b = GraphBuilder::default();
        let x = b.input(spec());
        let y = b.relu(x).unwrap();
        let mut graph = b.finish([y]);
        check(&graph).unwrap();
        graph.push_unchecked(OpCode::Neg.into(), &[x], TensorSpec::new([3], DType::F32));
        let message = check(&graph).unwrap_err().to_string();
        assert!(message.contains("neg") && message.contains("f32[3]"), "{message}");
    }
}
