//! Random graphs through the whole pipeline, with a program cache that stays warm between graphs,
//! compared with the reference evaluator on the recorded graph.

use girih::{DType, Element, Tensor, eval, graph_of, keepdims};
use girih_ir::{Array, Literal, OpCode};
use girih_reference::evaluate;
use proptest::prelude::*;

/// The construction of a node from earlier ones: an op, two operands and a number.
type Step = (u8, usize, usize, u8);

const SIDE: usize = 3;

fn record(step: Step, nodes: &[Tensor]) -> Tensor {
    let (op, a, b, number) = step;
    let (a, b) = (&nodes[a % nodes.len()], &nodes[b % nodes.len()]);
    let number = number as i64;
    let result = match op % 18 {
        0 => a.add(b),
        1 => a.sub(b),
        2 => a.mul(b),
        3 => a.add(number),
        4 => a.mul(number),
        5 => a.maximum(b),
        6 => a.minimum(number),
        7 => a.neg(),
        8 => a.abs().and_then(|x| x.remainder(7)),
        9 => a.t(),
        10 => a.sum(keepdims(number % 2)),
        11 => a.max(keepdims(number % 2)),
        12 => a.flip(number % 2),
        13 => a.broadcast_to([SIDE, SIDE]).and_then(|x| x.narrow(0, 1, 1)),
        14 => a.broadcast_to([SIDE, SIDE]).and_then(|x| x.matmul(&b.broadcast_to([SIDE, SIDE])?)),
        15 => a.gt(b).and_then(|c| girih::where_(&c, a, number)),
        16 => a.pad(&[(0, 0), (1, 0)], number).and_then(|x| x.narrow(1, 0, 1)),
        _ => a.remainder(5).and_then(|x| x.square()),
    };
    // Sizes are 1 or 3, so that any two shapes broadcast; values stay small, so that products are
    // exact.
    result.and_then(|x| x.remainder(1009)).unwrap()
}

fn array(tensor: &Tensor) -> Array {
    let elements = tensor.to_vec::<i64>().unwrap();
    let literals = elements.iter().map(|&e| Literal::from_i64(i64::DTYPE, e));
    Array::new(tensor.spec(), literals)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_graphs_agree_with_the_reference_with_a_warm_cache(
        steps in prop::collection::vec(any::<Step>(), 1..14),
        held in any::<u16>(),
        first in any::<usize>(),
        evaluated in prop::option::of(any::<usize>()),
    ) {
        let data: Vec<i64> = (0..9).collect();
        let leaves = vec![
            Tensor::from_slice(&data, [SIDE, SIDE]).unwrap(),
            Tensor::from_slice(&data[2..5], [1, SIDE]).unwrap(),
            Tensor::from_slice(&data[4..7], [SIDE, 1]).unwrap(),
        ];
        let mut nodes = leaves.clone();
        for &step in &steps {
            nodes.push(record(step, &nodes));
        }
        // The reference's result, before anything is evaluated.
        let graph = graph_of(&nodes).unwrap();
        let mut arguments = Vec::new();
        for id in graph.arguments() {
            prop_assert_eq!(graph.node(id).op.code, OpCode::Input);
            let leaf = leaves.iter().find(|l| l.id() - leaves[0].id() == id.0);
            arguments.push(array(leaf.unwrap()));
        }
        let expected = evaluate(&graph, &arguments).unwrap();
        // Keep some tensors while others are evaluated, in parts and in another order.
        let targets: Vec<(usize, Tensor)> = nodes
            .iter()
            .cloned()
            .enumerate()
            .filter(|(i, _)| held >> (i % 16) & 1 == 1 || i + 1 == nodes.len())
            .collect();
        if let Some(i) = evaluated {
            nodes[i % nodes.len()].eval().unwrap();
        }
        drop(nodes);
        let (_, one) = &targets[first % targets.len()];
        one.eval().unwrap();
        eval(targets.iter().rev().map(|(_, t)| t)).unwrap();
        for (i, target) in &targets {
            prop_assert_eq!(&array(target), &expected[*i], "node {} of\n{}", i, graph);
        }
    }
}

#[test]
fn the_leaves_of_a_recorded_graph_are_in_the_order_of_recording() {
    let a = Tensor::from_slice(&[1.0f32], [1]).unwrap();
    let b = Tensor::from_slice(&[2.0f32], [1]).unwrap();
    let graph = graph_of([&b.sub(&a).unwrap()]).unwrap();
    assert_eq!(graph.to_string().matches("input").count(), 2);
    assert!(b.id() > a.id() && a.dtype() == DType::F32);
}
