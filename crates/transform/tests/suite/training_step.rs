//! Gradients and optimisation together: a training step computes its forward program once, and
//! optimisation preserves its numbers.

use girih_ir::{
    Array, AxisSet, DType, Graph, GraphBuilder, NodeId, Op, OpCode, TensorSpec, golden,
};
use girih_opt::{OptOptions, optimize};
use girih_reference::evaluate;
use girih_transform::gradients;

const BATCH: usize = 3;
const SIZES: [usize; 3] = [4, 5, 2];

/// Loss and updated weights of two dense layers with cross entropy; inputs, labels, learning rate,
/// weights and biases are the arguments.
fn step(activation: OpCode) -> Graph {
    let mut b = GraphBuilder::default();
    let f32s = |shape: &[usize]| TensorSpec::new(shape, DType::F32);
    let mut x = b.input(f32s(&[BATCH, SIZES[0]]));
    let labels = b.input(TensorSpec::new([BATCH], DType::I64));
    let rate = b.leaf(OpCode::Constant.into(), f32s(&[]));
    let mut weights = Vec::new();
    for layer in SIZES.windows(2) {
        let (w, bias) = (b.input(f32s(layer)), b.input(f32s(&layer[1..])));
        weights.extend([w, bias]);
    }
    for (i, pair) in weights.chunks(2).enumerate() {
        let product = b.matmul(x, pair[0]).unwrap();
        x = b.add(product, pair[1]).unwrap();
        if i == 0 {
            x = b.emit(Op::from(activation), &[x]).unwrap();
        }
    }
    let losses = b.op(OpCode::CrossEntropy, &[x, labels]).unwrap();
    let loss = b.mean(losses, AxisSet::all(1), false).unwrap();
    let grads = gradients(&b.finish([loss]), loss, &weights, None).unwrap();
    let outputs = grads.outputs().to_vec();
    let mut b = GraphBuilder::from_graph(grads);
    let update = |b: &mut GraphBuilder, (&w, &g): (&NodeId, &NodeId)| {
        let step = b.mul(g, rate).unwrap();
        b.sub(w, step).unwrap()
    };
    let updated: Vec<NodeId> =
        weights.iter().zip(&outputs[1..]).map(|pair| update(&mut b, pair)).collect();
    b.finish([loss].into_iter().chain(updated))
}

fn count(graph: &Graph, code: OpCode) -> usize {
    graph.nodes().filter(|(_, n)| n.op.code == code).count()
}

fn arguments(graph: &Graph) -> Vec<Array> {
    let fill = |id| {
        let spec: &TensorSpec = graph.spec(id);
        let values: Vec<f64> = match spec.dtype {
            DType::I64 => (0..spec.numel()).map(|i| (i % SIZES[2]) as f64).collect(),
            _ => (0..spec.numel()).map(|i| (i as f64 * 1.7 + 0.3).sin()).collect(),
        };
        Array::from_f64(spec.shape.clone(), spec.dtype, &values)
    };
    graph.arguments().map(fill).collect()
}

#[test]
fn an_optimised_training_step_computes_the_forward_program_once() {
    let graph = optimize(&step(OpCode::Relu), OptOptions::default()).unwrap().graph;
    assert_eq!(count(&graph, OpCode::Matmul), 5, "{graph}");
    assert_eq!(count(&graph, OpCode::ReduceMax), 1, "{graph}");
    assert_eq!(count(&graph, OpCode::Log), 1, "{graph}");
    // One for the softmax, and one for the probabilities from their logarithms.
    assert_eq!(count(&graph, OpCode::Exp), 2, "{graph}");
    assert_eq!(count(&graph, OpCode::BroadcastTo), 0, "elementwise ops broadcast\n{graph}");
    let graph = optimize(&step(OpCode::Gelu), OptOptions::default()).unwrap().graph;
    assert_eq!(count(&graph, OpCode::Erfc), 1, "{graph}");
}

#[test]
fn an_optimised_training_step_has_the_same_bits() {
    for activation in [OpCode::Relu, OpCode::Gelu, OpCode::Silu, OpCode::Tanh] {
        let graph = step(activation);
        let arguments = arguments(&graph);
        let optimized = optimize(&graph, OptOptions::default()).unwrap();
        assert_eq!(optimized.live_arguments, (0..7).collect::<Vec<_>>());
        let expected = evaluate(&graph, &arguments).unwrap();
        assert_eq!(evaluate(&optimized.graph, &arguments).unwrap(), expected, "{activation:?}");
    }
}

#[test]
fn the_gradient_of_a_power_of_two_is_optimised_to_a_product() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::scalar(DType::F32));
    let two = b.scalar(DType::F32, 2.0);
    let y = b.pow(x, two).unwrap();
    let grads = gradients(&b.finish([y]), y, &[x], None).unwrap();
    let optimized = optimize(&grads, OptOptions::default()).unwrap();
    golden!("the_gradient_of_a_power_of_two_is_optimised_to_a_product.txt", optimized.graph);
}
