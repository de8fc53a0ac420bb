//! Programs of several ops on meshes.

use crate::simulator::check;
use girih_dist::Kind;
use girih_dist::partition::partition;
use girih_ir::ops::control::Control;
use girih_ir::ops::conv::{Conv, ConvDim};
use girih_ir::ops::{Attrs, AxisSet, PadDim, SliceDim};
use girih_ir::sharding::{AxisRef, DeviceMesh, P, Sharding};
use girih_ir::testing::{Rng, random_graph};
use girih_ir::{Array, Class, DType, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec};
use std::sync::Arc;

fn array(shape: &[usize], seed: usize) -> Array {
    let spec = TensorSpec::new(shape, DType::F32);
    let elements: Vec<f64> =
        (0..spec.numel()).map(|i| ((i * 7 + seed) % 11) as f64 / 4.0 - 1.0).collect();
    Array::from_f64(shape, DType::F32, &elements)
}

fn spec(text: &str) -> P {
    text.parse().unwrap()
}

/// The step of a layer with data parallelism: the derivatives of the weights are the only exchange, an
/// all-reduce of each.
#[test]
fn a_data_parallel_layer_has_an_all_reduce_for_each_weight() {
    let mesh = DeviceMesh::new(&[2], &["dp"]).unwrap();
    let mut b = GraphBuilder::default();
    let [x, w, y] =
        [[8, 3], [3, 4], [8, 4]].map(|shape| b.input(TensorSpec::new(shape, DType::F32)));
    let bias = b.input(TensorSpec::new([4], DType::F32));
    let h = b.matmul(x, w).unwrap();
    let h = b.add(h, bias).unwrap();
    let h = b.op(OpCode::Tanh, &[h]).unwrap();
    let error = b.sub(h, y).unwrap();
    let t = b.transpose(x).unwrap();
    let dw = b.matmul(t, error).unwrap();
    let db = b.sum(error, AxisSet::one(0), false).unwrap();
    let rate = b.scalar(DType::F32, 0.1);
    let step = b.mul(dw, rate).unwrap();
    let new = b.sub(w, step).unwrap();
    let graph = b.finish([new, db, h]);
    let arguments = [array(&[8, 3], 1), array(&[3, 4], 2), array(&[8, 4], 3), array(&[4], 4)];
    let specs = ["<dp, *>", "<*, *>", "<dp, *>", "<*>"].map(spec);
    let whole = || Some(P::default());
    let found = check(&graph, &mesh, &specs, &arguments, &[whole(), whole(), None]);
    assert_eq!(found.outputs[2].1.to_string(), "<dp, *>");
    let collectives: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
    // 2 (n - 1) N for an all-reduce of N bytes.
    let all_reduce = Kind::AllReduce(OpCode::Add);
    assert_eq!(collectives, [(all_reduce, 2 * 12 * 4), (all_reduce, 2 * 4 * 4)]);
}

#[test]
fn sums_of_partial_products_are_reduced_once() {
    let mesh = DeviceMesh::new(&[4], &["tp"]).unwrap();
    let mut b = GraphBuilder::default();
    let inputs = [[4, 8], [8, 4], [4, 8], [8, 4]].map(|s| b.input(TensorSpec::new(s, DType::F32)));
    let ab = b.matmul(inputs[0], inputs[1]).unwrap();
    let cd = b.matmul(inputs[2], inputs[3]).unwrap();
    let sum = b.add(ab, cd).unwrap();
    let one = b.scalar(DType::F32, 1.0);
    let sum = b.add(sum, one).unwrap();
    let graph = b.finish([sum]);
    let arguments = [array(&[4, 8], 1), array(&[8, 4], 2), array(&[4, 8], 3), array(&[8, 4], 4)];
    let specs = ["<*, tp>", "<tp, *>", "<*, tp>", "<tp, *>"].map(spec);
    let found = check(&graph, &mesh, &specs, &arguments, &[None]);
    let collectives: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
    assert_eq!(collectives, [(Kind::AllReduce(OpCode::Add), 2 * 3 * 16 * 4)]);
}

/// Each processor draws its part of the numbers, and counts from its first index.
#[test]
fn draws_and_indices_are_computed_in_parts() {
    let mesh = DeviceMesh::new(&[2], &["x"]).unwrap();
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([4, 6], DType::F32));
    let draw = b.leaf(OpCode::RandomUniform.into(), TensorSpec::new([4, 6], DType::F32));
    let index = b.iota([4, 6], DType::F32, 0);
    let noisy = b.add(x, draw).unwrap();
    let product = b.mul(noisy, index).unwrap();
    let graph = b.finish([product]);
    let key = graph.arguments().nth(1).map(|id| graph.node(id).op.clone()).unwrap();
    assert!(key.is_random());
    let found = partition(&graph, &mesh, &[spec("<x, *>"), P::default()], &[None]).unwrap();
    assert_eq!(found.exchanges().count(), 0);
    let expected = "\
Graph:
  %0 = random_uniform([4, 6], f32)
  %1 = slice(%0, bounds=[2:4:1, 0:6:1]) -> [2, 6]
  %2 = input([2, 6], f32)
  %3 = add(%2, %1) -> [2, 6]
  %4 = iota([4, 6], f32, dim=0)
  %5 = slice(%4, bounds=[2:4:1, 0:6:1]) -> [2, 6]
  %6 = mul(%3, %5) -> [2, 6]
  outputs: [%6]";
    assert_eq!(found.stages[0].programs[1].to_string(), expected);
}

/// Ops that move elements along a cut axis get what their parts of the result need, and no more.
#[test]
fn moves_along_a_cut_axis_send_only_what_parts_need() {
    let mesh = DeviceMesh::new(&[4], &["x"]).unwrap();
    let slices = |dims: [(usize, usize); 2]| {
        let dims = dims.map(|(start, size)| SliceDim { start, size, step: 1 });
        Attrs::Slice(Arc::new(dims.to_vec()))
    };
    let pads = [PadDim { low: 1, high: 1, interior: 0 }, PadDim::default()];
    let all = [
        // Rows 1..3, 3..5 and 5..7 are needed where rows 0..2, 2..4 and 4..6 are.
        (Op::new(OpCode::Slice, slices([(1, 6), (0, 2)])), vec![[8, 2]], 3),
        (Op::new(OpCode::Flip, Attrs::axes(AxisSet::one(0), false)), vec![[8, 2]], 8),
        // Three rows of the result each, of which the first one and the last one are borders.
        (Op::new(OpCode::Pad, Attrs::Pad(Arc::new((pads.to_vec(), 0)))), vec![[8, 2]], 3),
        (Op::new(OpCode::Concat, Attrs::Axis(0)), vec![[8, 2], [8, 2]], 12),
        (Op::new(OpCode::UpdateSlice, slices([(3, 2), (0, 2)])), vec![[8, 2], [2, 2]], 2),
    ];
    for (op, shapes, rows) in all {
        let mut b = GraphBuilder::default();
        let inputs = shapes.iter().map(|shape| b.input(TensorSpec::new(shape, DType::F32)));
        let inputs: Vec<_> = inputs.collect();
        let output = b.emit(op.clone(), &inputs).unwrap();
        let graph = b.finish([output]);
        let arguments = shapes.iter().enumerate().map(|(seed, shape)| array(shape, seed));
        let arguments: Vec<Array> = arguments.collect();
        let specs = vec![spec("<x, *>"); shapes.len()];
        let found = check(&graph, &mesh, &specs, &arguments, &[None]);
        assert_eq!(found.outputs[0].1.to_string(), "<x, *>", "{op:?}");
        let bytes: usize = found.exchanges().map(|exchange| exchange.bytes()).sum();
        assert_eq!(bytes, rows * 2 * 4, "{op:?}");
        assert!(found.exchanges().all(|exchange| exchange.plan.kind == Kind::Halo));
    }
}

/// The first extremum, or NaN, along a cut axis: two small reductions instead of a gather.
#[test]
fn an_argmax_along_a_cut_axis_combines_extrema() {
    let mesh = DeviceMesh::new(&[4], &["x"]).unwrap();
    let nan = f64::NAN;
    let rows =
        [[1., 5., 2., 5., 0., 5.], [0., nan, 9., nan, 1., 1.], [-1., -1., -1., -3., -2., -1.]];
    for code in [OpCode::Argmax, OpCode::Argmin] {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([3, 6], DType::F32));
        let y = b.reduce(code, x, AxisSet::one(1), false).unwrap();
        let graph = b.finish([y]);
        let arguments = [Array::from_f64([3, 6], DType::F32, &rows.concat())];
        let found = check(&graph, &mesh, &[spec("<*, x>")], &arguments, &[None]);
        assert_eq!(found.exchanges().map(|e| e.bytes()).sum::<usize>(), 2 * 3 * 3 * (4 + 8));
    }
}

/// A convolution along a cut axis needs the neighbours of each shard.
#[test]
fn convolutions_send_borders() {
    let mesh = DeviceMesh::new(&[4], &["x"]).unwrap();
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([2, 3, 8], DType::F32));
    let w = b.input(TensorSpec::new([5, 3, 3], DType::F32));
    let dims = vec![ConvDim { low: 1, high: 1, ..ConvDim::default() }];
    let conv = Op::new(OpCode::Conv, Attrs::Conv(Arc::new(Conv { dims, groups: 1 })));
    let y = b.emit(conv, &[x, w]).unwrap();
    let graph = b.finish([y]);
    let arguments = [array(&[2, 3, 8], 1), array(&[5, 3, 3], 2)];
    let found = check(&graph, &mesh, &[spec("<*, *, x>"), P::default()], &arguments, &[None]);
    assert_eq!(found.outputs[0].1.to_string(), "<*, *, x>");
    // Three borders between four shards, on both sides: a column of the images each.
    let bytes: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
    assert_eq!(bytes, [(Kind::Halo, 3 * 2 * (2 * 3) * 4)]);
}

/// A batch that does not divide is flattened and unflattened without a gather.
#[test]
fn uneven_reshapes_send_only_what_parts_need() {
    let mesh = DeviceMesh::new(&[4], &["dp"]).unwrap();
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([10, 5, 2], DType::F32));
    let flat = b.reshape(x, [50, 2]).unwrap();
    let y = b.op(OpCode::Exp, &[flat]).unwrap();
    let y = b.reshape(y, [10, 5, 2]).unwrap();
    let graph = b.finish([y]);
    let found = check(&graph, &mesh, &[spec("<dp>")], &[array(&[10, 5, 2], 1)], &[None]);
    assert_eq!(found.outputs[0].1.to_string(), "<dp, *, *>");
    // Of 50 rows, processors have 15, 15, 15 and 5 before and after, and 13, 13, 13 and 11 between.
    // On the way there, the five rows of an example are sent together.
    let bytes: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
    assert_eq!(bytes, [(Kind::Halo, 20 * 8), (Kind::Halo, 12 * 8)]);
}

/// A table that is cut along its rows is read where the rows are, and the results are added: an
/// embedding, and the picked scores of a loss, that are parallel in the vocabulary.
#[test]
fn reads_along_a_cut_axis_are_partial_sums() {
    let mesh = DeviceMesh::new(&[4], &["tp"]).unwrap();
    let indices = |shape: &[usize], numbers: &[f64]| Array::from_f64(shape, DType::I32, numbers);
    let take = (OpCode::Take, vec![10, 6], 0, indices(&[4], &[0., 9., -1., -10.]));
    let along = (OpCode::TakeAlongAxis, vec![3, 10], 1, indices(&[3, 1], &[7., -2., 0.]));
    for (code, shape, axis, indices) in [take, along] {
        let mut b = GraphBuilder::default();
        let table = b.input(TensorSpec::new(&shape[..], DType::F32));
        let at = b.input(indices.spec().clone());
        let output = b.emit(Op::new(code, Attrs::Axis(axis as u8)), &[table, at]).unwrap();
        let graph = b.finish([output]);
        let mut cut = P::new(vec![None::<&str>; axis]);
        cut.dims.push("tp".into());
        let arguments = [array(&shape, 1), indices];
        let found = check(&graph, &mesh, &[cut.clone(), P::default()], &arguments, &[None]);
        let collectives: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
        let bytes = graph.spec(output).size_bytes();
        // Ten rows over four processors are 3, 3, 3 and 1. A large result is not worth it.
        let expected = match 2 * bytes <= graph.spec(table).size_bytes() {
            true => (Kind::AllReduce(OpCode::Add), 2 * 3 * bytes),
            false => (Kind::AllGather, 3 * graph.spec(table).size_bytes()),
        };
        assert_eq!(collectives, [expected]);
        // An index out of bounds fails on all processors.
        let wrong = Array::splat(arguments[1].spec().clone(), Literal::from_i64(DType::I32, 10));
        let program = &found.stages[0].programs[3];
        let part =
            Array::splat(program.spec(NodeId(0)).clone(), Literal::from_f64(DType::F32, 0.0));
        let run = girih_reference::evaluate(program, &[part, wrong]);
        assert!(collectives[0].0 == Kind::AllGather || run.unwrap_err().to_string().contains("10"));
    }
}

/// A recurrent layer with data parallelism: the loop runs on each processor's part of the batch, forward
/// and backward, and the derivative of the weights is added at its end.
#[test]
fn a_loop_without_exchanges_runs_on_parts() {
    let mesh = DeviceMesh::new(&[2], &["dp"]).unwrap();
    let f32s = |shape: &[usize]| TensorSpec::new(shape, DType::F32);
    let mut b = GraphBuilder::default();
    let [h, x, w] = [[4, 3], [4, 3], [3, 3]].map(|shape| b.input(f32s(&shape)));
    let product = b.matmul(h, w).unwrap();
    let sum = b.add(product, x).unwrap();
    let next = b.op(OpCode::Tanh, &[sum]).unwrap();
    let body = b.finish([next, next]);
    let control = Control {
        regions: vec![body].into(),
        carries: 1,
        slices: 1,
        length: 5.into(),
        ..Control::default()
    };
    let mut b = GraphBuilder::default();
    let xs = b.input(f32s(&[5, 4, 3]));
    let w = b.input(f32s(&[3, 3]));
    let target = b.input(f32s(&[4, 3]));
    let zero = b.constant(Literal::from_f64(DType::F32, 0.0), [4, 3]);
    let last = b.emit(Op::control(OpCode::Scan, Arc::new(control), 0), &[zero, xs, w]).unwrap();
    let error = b.sub(last, target).unwrap();
    let graph = b.finish([last]);
    let graph = girih_transform::vjp(&graph, &[last], &[error], &[w]).unwrap();
    let specs = ["<*, dp>", "<>", "<dp>"].map(spec);
    let arguments = [array(&[5, 4, 3], 1), array(&[3, 3], 2), array(&[4, 3], 3)];
    let found = check(&graph, &mesh, &specs, &arguments, &[None, None]);
    assert_eq!(found.outputs[0].1.to_string(), "<dp, *>");
    let collectives: Vec<_> = found.exchanges().map(|e| (e.plan.kind, e.bytes())).collect();
    assert_eq!(collectives, [(Kind::AllReduce(OpCode::Add), 2 * 9 * 4)]);
}

/// A spec in the graph's side table wins over what its operands and its users would choose.
#[test]
fn constraints_in_the_graph_are_kept() {
    let mesh = DeviceMesh::new(&[2, 2], &["x", "y"]).unwrap();
    let graph = |fixed: &str| {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([4, 8], DType::F32));
        let y = b.exp(x).unwrap();
        let z = b.neg(y).unwrap();
        let mut graph = b.finish([z, y]);
        graph.set_sharding(y, Sharding::new(mesh.clone(), spec(fixed)).unwrap()).unwrap();
        graph
    };
    for (fixed, kinds, outputs) in [
        ("<*, x>", vec![Kind::AllToAll], ["<*, x>", "<*, x>"]),
        ("<(x, y), *>", vec![], ["<(x, y), *>", "<(x, y), *>"]),
        ("<?, y>", vec![], ["<x, y>", "<x, y>"]),
        ("<>", vec![Kind::AllGather], ["<*, *>", "<*, *>"]),
    ] {
        let found =
            check(&graph(fixed), &mesh, &[spec("<x>")], &[array(&[4, 8], 1)], &[None, None]);
        let collectives: Vec<_> = found.exchanges().map(|e| e.plan.kind).collect();
        assert_eq!(collectives, kinds, "{fixed}");
        let specs: Vec<String> = found.outputs.iter().map(|(_, spec)| spec.to_string()).collect();
        assert_eq!(specs, outputs, "{fixed}");
    }
    let wanted = [Some(spec("<y>")), None];
    let found = check(&graph("<x>"), &mesh, &[spec("<x>")], &[array(&[4, 8], 1)], &wanted);
    assert_eq!(found.exchanges().next().unwrap().user, None, "only the output is resharded");
}

#[test]
fn random_programs_on_random_meshes_equal_the_reference() {
    let count = girih_ir::testing::mutations(400);
    for seed in 0..count as u64 {
        let mut rng = Rng(seed ^ 0x5eed);
        let graph = random_graph(seed, 8 + rng.below(20));
        let mut arguments = Vec::new();
        for id in graph.arguments() {
            let spec = graph.spec(id);
            // A run-time scalar has one value.
            let same = graph.node(id).op.code == OpCode::Constant;
            let first = rng.below(3) as f64;
            let mut element = |_| if same { first } else { rng.below(3) as f64 };
            let elements: Vec<f64> = (0..spec.numel()).map(&mut element).collect();
            arguments.push(Array::from_f64(spec.shape.clone(), spec.dtype, &elements));
        }
        if girih_reference::evaluate(&graph, &arguments).is_err() {
            continue;
        }
        let sub_axis = |pre| AxisRef::sub_axis("x", pre, 2);
        let (shape, axes): (&[usize], Vec<AxisRef>) = match rng.below(6) {
            0 => (&[2], vec!["x".into()]),
            1 => (&[3], vec!["x".into()]),
            2 => (&[2, 3], vec!["y".into(), "x".into()]),
            3 => (&[4], vec![sub_axis(1), sub_axis(2)]),
            4 => (&[2, 1, 2], vec!["x".into(), "y".into(), "z".into()]),
            _ => (&[2, 2], vec!["x".into(), "y".into()]),
        };
        let mesh = DeviceMesh::new(shape, &["x", "y", "z"][..shape.len()]).unwrap();
        let random = |rank: usize, rng: &mut Rng| {
            let mut spec = P::default();
            spec.dims.resize(rank, Default::default());
            for axis in &axes {
                if rank > 0 && rng.below(3) > 0 {
                    spec.dims[rng.below(rank)].axes.push(axis.clone());
                }
            }
            // Open dimensions may be cut further.
            spec.dims.iter_mut().for_each(|dim| dim.is_open = rng.below(4) == 0);
            spec
        };
        let specs: Vec<P> =
            graph.arguments().map(|id| random(graph.spec(id).shape.rank(), &mut rng)).collect();
        let outputs: Vec<Option<P>> = graph
            .outputs()
            .iter()
            .map(|id| (seed % 2 == 0).then(|| random(graph.spec(*id).shape.rank(), &mut rng)))
            .collect();
        let mut graph = graph;
        for id in graph.ids() {
            let node = graph.node(id);
            let (rank, is_leaf) = (node.spec.shape.rank(), node.op.class() == Class::Leaf);
            if !is_leaf && rng.below(8) == 0 {
                let fixed = Sharding::new(mesh.clone(), random(rank, &mut rng)).unwrap();
                graph.set_sharding(id, fixed).unwrap();
            }
        }
        check(&graph, &mesh, &specs, &arguments, &outputs);
    }
}
