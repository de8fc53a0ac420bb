//! Structure of the graphs that reverse mode creates.

use girih_ir::{AxisSet, DType, Graph, GraphBuilder, NodeId, OpCode, TensorSpec, golden};
use girih_transform::{Error, gradients, vjp};

fn f32s(shape: &[usize]) -> TensorSpec {
    TensorSpec::new(shape, DType::F32)
}

fn count(graph: &Graph, code: OpCode) -> usize {
    graph.nodes().filter(|(_, n)| n.op.code == code).count()
}

#[test]
fn the_graph_is_extended_and_gradients_follow_its_outputs() {
    let mut b = GraphBuilder::default();
    let (x, y) = (b.input(f32s(&[3])), b.input(f32s(&[3])));
    let product = b.mul(x, y).unwrap();
    let sum = b.sum(product, AxisSet::all(1), false).unwrap();
    let graph = b.finish([sum]);
    let grads = gradients(&graph, sum, &[y, x], None).unwrap();
    grads.verify().unwrap();
    golden!("the_graph_is_extended_and_gradients_follow_its_outputs.txt", grads);
}

#[test]
fn rules_are_asked_from_the_output_to_the_inputs() {
    let mut b = GraphBuilder::default();
    let x = b.input(f32s(&[3]));
    let chain = [OpCode::Tanh, OpCode::Exp, OpCode::Sin, OpCode::Log1p, OpCode::Sqrt];
    let mut nodes = vec![x];
    for code in chain {
        nodes.push(b.op(code, &[nodes[nodes.len() - 1]]).unwrap());
    }
    let sum = b.sum(nodes[chain.len()], AxisSet::all(1), false).unwrap();
    let graph = b.finish([sum]);
    let grads = gradients(&graph, sum, &[x], None).unwrap();
    // A rule refers to its op's operand or result, and to no other node of the chain. The first
    // uses of these nodes thus give the order in which the rules ran.
    let added = || grads.nodes().skip(graph.len());
    let first_use = |at: usize| {
        let refers =
            |inputs: &[NodeId]| inputs.contains(&nodes[at]) || inputs.contains(&nodes[at + 1]);
        added().find(|(_, node)| refers(&node.inputs)).map(|(id, _)| id).unwrap()
    };
    // Every second op, since neighbouring ops share a node.
    let log: Vec<NodeId> = [4, 2, 0].map(first_use).into();
    assert!(log.is_sorted() && log[0] != log[2], "{log:?} in {grads}");
}

#[test]
fn rules_are_asked_only_between_the_inputs_and_the_output() {
    let mut b = GraphBuilder::default();
    let (x, w) = (b.input(f32s(&[5, 4])), b.input(f32s(&[4, 2])));
    let hidden = b.exp(x).unwrap();
    let product = b.matmul(hidden, w).unwrap();
    let unrelated = b.sin(product).unwrap();
    let sum = b.sum(product, AxisSet::all(2), false).unwrap();
    let graph = b.finish([sum, unrelated]);
    let grads = gradients(&graph, sum, &[w], None).unwrap();
    assert_eq!(count(&grads, OpCode::Matmul), 2, "no cotangent for x\n{grads}");
    assert_eq!(count(&grads, OpCode::Cos), 0, "sin is not on the way\n{grads}");
}

#[test]
fn several_outputs_pull_back_together_and_a_seed_replaces_the_one() {
    let mut b = GraphBuilder::default();
    let (x, ct) = (b.input(f32s(&[2])), b.input(f32s(&[2])));
    let (y, z) = (b.sin(x).unwrap(), b.exp(x).unwrap());
    let graph = b.finish([y]);
    let both = vjp(&graph, &[y, z], &[ct, ct], &[x]).unwrap();
    both.verify().unwrap();
    let [_, pulled] = both.outputs()[..] else { panic!("an output and a product") };
    assert_eq!(both.node(pulled).op.code, OpCode::Add, "{both}");

    let mut b = GraphBuilder::default();
    let (x, seed) = (b.input(f32s(&[])), b.input(f32s(&[])));
    let y = b.neg(x).unwrap();
    let graph = gradients(&b.finish([y]), y, &[x], Some(seed)).unwrap();
    assert_eq!(graph.node(graph.outputs()[1]).inputs[..], [seed]);
}

/// The gradient of the sum of functions of row ranges of `x`, one function for each range.
fn gradient_of_slices(ranges: &[(usize, usize)]) -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(f32s(&[6, 3]));
    let functions = [OpCode::Exp, OpCode::Sin, OpCode::Tanh];
    let sums: Vec<NodeId> = ranges
        .iter()
        .zip(functions)
        .map(|(&(start, end), function)| {
            let part = b.slice_axis(x, 0, start, end - start).unwrap();
            let y = b.op(function, &[part]).unwrap();
            b.sum(y, AxisSet::all(2), false).unwrap()
        })
        .collect();
    let sum = sums[1..].iter().fold(sums[0], |sum, &x| b.add(sum, x).unwrap());
    let graph = b.finish([sum]);
    let grads = gradients(&graph, sum, &[x], None).unwrap();
    grads.verify().unwrap();
    grads
}

#[test]
fn cotangents_of_slices_are_put_side_by_side() {
    // The last op of the gradient, and the ops of its operands.
    let of = |ranges: &[(usize, usize)]| {
        let grads = gradient_of_slices(ranges);
        let last = grads.node(grads.outputs()[1]);
        let inputs = last.inputs.iter().map(|&id| grads.node(id).op.code).collect::<Vec<_>>();
        (last.op.code, inputs)
    };
    let joined = |ranges, parts| {
        let (last, inputs) = of(ranges);
        assert_eq!((last, inputs.len()), (OpCode::Concat, parts), "{ranges:?}");
    };
    joined(&[(0, 2), (2, 4), (4, 6)], 3);
    joined(&[(4, 6), (0, 2), (2, 4)], 3);
    // Zeros between, before and after the slices.
    joined(&[(0, 2), (4, 6)], 3);
    joined(&[(1, 2), (4, 5)], 5);
    assert_eq!(of(&[(0, 2)]).0, OpCode::Pad, "a slice alone");
    // Overlapping slices are added.
    assert_eq!(of(&[(0, 3), (2, 6)]), (OpCode::Add, vec![OpCode::Pad; 2]));
    let (last, inputs) = of(&[(0, 3), (2, 4), (4, 6)]);
    assert_eq!(last, OpCode::Add);
    assert!(inputs.contains(&OpCode::Concat), "{inputs:?}");
    let (last, inputs) = of(&[(0, 3), (0, 6)]);
    assert_eq!(last, OpCode::Add, "a slice and the whole");
    assert!(inputs.contains(&OpCode::Pad), "{inputs:?}");
}

#[test]
fn weights_of_a_batch_get_one_matmul() {
    let mut b = GraphBuilder::default();
    let (x, w) = (b.input(f32s(&[4, 5, 3])), b.input(f32s(&[3, 2])));
    let y = b.matmul(x, w).unwrap();
    let sum = b.sum(y, AxisSet::all(3), false).unwrap();
    let graph = b.finish([sum]);
    let grads = gradients(&graph, sum, &[w], None).unwrap();
    assert_eq!(count(&grads, OpCode::ReduceSum), 1, "no batch is summed\n{grads}");
    let product = grads.node(grads.outputs()[1]);
    assert_eq!(product.op.code, OpCode::Matmul, "{grads}");
    assert_eq!(*grads.spec(product.inputs[1]), f32s(&[20, 2]), "{grads}");
}

#[test]
fn unused_and_unreachable_inputs_get_zeros() {
    let mut b = GraphBuilder::default();
    let (x, y) = (b.input(f32s(&[])), b.input(f32s(&[2])));
    let whole = b.op(OpCode::Floor, &[x]).unwrap();
    let held = b.op(OpCode::StopGradient, &[x]).unwrap();
    let out = b.mul(whole, held).unwrap();
    let graph = b.finish([out]);
    let grads = gradients(&graph, out, &[x, y], None).unwrap();
    for (id, wrt) in grads.outputs()[1..].iter().zip([x, y]) {
        assert!(grads.literal(*id).unwrap().is(0.0));
        assert_eq!(grads.spec(*id), graph.spec(wrt));
    }
}

#[test]
fn nothing_recurses_over_a_long_chain() {
    let mut b = GraphBuilder::default();
    let x = b.input(f32s(&[]));
    let out = (0..100_000).fold(x, |y, _| b.op(OpCode::Silu, &[y]).unwrap());
    let graph = b.finish([out]);
    let grads = gradients(&graph, out, &[x], None).unwrap();
    assert!(grads.len() > 200_000);
}

#[test]
fn an_interior_node_and_its_ancestor_both_get_gradients() {
    let mut b = GraphBuilder::default();
    let x = b.input(f32s(&[]));
    let y = b.exp(x).unwrap();
    let z = b.sin(y).unwrap();
    let graph = b.finish([z]);
    let grads = gradients(&graph, z, &[y, x, y], None).unwrap();
    let [_, of_y, of_x, again] = grads.outputs()[..] else { panic!("four outputs") };
    assert_eq!(of_y, again);
    assert!(grads.node(of_x).inputs.contains(&of_y), "{grads}");
}

#[test]
fn meaningless_requests_are_errors_that_say_what_to_do() {
    let mut b = GraphBuilder::default();
    let x = b.input(f32s(&[3]));
    let i = b.input(TensorSpec::new([], DType::I32));
    let sum = b.sum(x, AxisSet::all(1), false).unwrap();
    let graph = b.finish([sum]);
    let message = |e: Error| e.to_string();

    let error = gradients(&graph, x, &[x], None).unwrap_err();
    assert!(message(error).contains("shape [3]"));
    let error = gradients(&graph, i, &[x], None).unwrap_err();
    assert!(message(error).contains("int32"));
    let error = gradients(&graph, sum, &[x, i], None).unwrap_err();
    assert_eq!(error, Error::WrtNotFloat { index: 1, dtype: DType::I32 });
    let error = vjp(&graph, &[sum], &[x], &[x]).unwrap_err();
    assert!(matches!(&error, Error::CotangentMismatch { .. }), "{error}");
    assert!(message(error).contains("f32[3]"));
    let error = vjp(&graph, &[sum], &[], &[x]).unwrap_err();
    assert_eq!(error, Error::CotangentCount { outputs: 1, cotangents: 0 });
    let error = gradients(&graph, NodeId(99), &[x], None).unwrap_err();
    assert_eq!(error, Error::UnknownNode { node: NodeId(99), len: 3 });
}
