//! Code motion out of scans: what leaves the body, what stays, and that results do not change.
//! Values are integers where matmuls move, since integer sums do not depend on the order.

use girih_ir::ops::control::Control;
use girih_ir::ops::{Attrs, PadDim, SliceDim};
use girih_ir::{
    Array, DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Result, TensorSpec,
};
use girih_opt::passes::LoopMotion;
use girih_opt::{OptOptions, Pass, PassFlag, optimize};
use girih_reference::evaluate;
use proptest::prelude::*;
use std::sync::Arc;

const STEPS: usize = 5;

/// A scan of `STEPS` iterations over operands of these shapes; the body takes them in order.
struct Scan<'a> {
    carries: &'a [&'a [usize]],
    slices: &'a [&'a [usize]],
    captured: &'a [&'a [usize]],
    dtype: DType,
}

impl Scan<'_> {
    /// The control whose body `record` records.
    fn control(
        &self,
        reverse: bool,
        record: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> Result<Vec<NodeId>>,
    ) -> Arc<Control> {
        let mut b = GraphBuilder::default();
        let all = [self.carries, self.slices, self.captured].concat();
        let inputs: Vec<NodeId> = all.iter().map(|s| input(&mut b, s, self.dtype)).collect();
        let outputs = record(&mut b, &inputs).unwrap();
        let (carries, slices) = (self.carries.len() as u32, self.slices.len() as u32);
        let control =
            Control { carries, slices, length: STEPS.into(), reverse, ..Control::default() };
        Arc::new(control.with_regions(vec![b.finish(outputs)]))
    }

    /// Inputs of the outer graph for all operands of the scan.
    fn operands(&self, b: &mut GraphBuilder) -> Vec<NodeId> {
        let stacked: Vec<Vec<usize>> =
            self.slices.iter().map(|s| [&[STEPS], *s].concat()).collect();
        let shapes = self.carries.iter().copied();
        let shapes =
            shapes.chain(stacked.iter().map(Vec::as_slice)).chain(self.captured.iter().copied());
        shapes.map(|shape| input(b, shape, self.dtype)).collect()
    }
}

fn input(b: &mut GraphBuilder, shape: &[usize], dtype: DType) -> NodeId {
    b.input(TensorSpec::new(shape, dtype))
}

fn scan(
    b: &mut GraphBuilder,
    control: &Arc<Control>,
    result: usize,
    operands: &[NodeId],
) -> NodeId {
    b.emit(Op::control(OpCode::Scan, control.clone(), result), operands).unwrap()
}

/// Arguments of distinct small integers.
fn arguments(graph: &Graph) -> Vec<Array> {
    let fill = |(which, id): (usize, NodeId)| {
        let spec: &TensorSpec = graph.spec(id);
        let value = |i: usize| Literal::from_i64(spec.dtype, ((i * 7 + which * 3) % 11) as i64 - 5);
        Array::new(spec.clone(), (0..spec.numel()).map(value).collect::<Vec<Literal>>())
    };
    graph.arguments().enumerate().map(fill).collect()
}

/// Runs the pass; checks that the results keep their bits and that a second run changes nothing.
#[track_caller]
fn moved(graph: &Graph) -> Graph {
    let changed = LoopMotion.run(graph).unwrap().expect("the pass changes the graph");
    changed.verify().unwrap();
    assert_eq!(LoopMotion.run(&changed).unwrap(), None, "a second run changes\n{changed}");
    let arguments = arguments(graph);
    let (before, after) = (evaluate(graph, &arguments), evaluate(&changed, &arguments));
    assert_eq!(before.unwrap(), after.unwrap(), "from\n{graph}\nto\n{changed}");
    changed
}

/// Number of ops with this code in the graph, and in the bodies of its scans.
fn counts(graph: &Graph, code: OpCode) -> (usize, usize) {
    let of = |g: &Graph| g.nodes().filter(|(_, n)| n.op.code == code).count();
    let mut bodies: Vec<&Arc<Control>> =
        graph.nodes().filter_map(|(_, n)| n.op.as_control().map(|(_, c)| c)).collect();
    bodies.dedup_by(|a, b| Arc::ptr_eq(a, b));
    (of(graph), bodies.iter().map(|c| of(c.body())).sum())
}

#[test]
fn invariant_code_leaves_the_body_and_views_stay() {
    let shape = Scan { carries: &[&[3, 2]], slices: &[], captured: &[&[2, 3]], dtype: DType::F32 };
    let control = shape.control(false, |b, x| {
        let (exp, turned) = (b.op(OpCode::Exp, &[x[1]])?, b.transpose(x[1])?);
        let (exp, sum) = (b.transpose(exp)?, b.add(x[0], turned)?);
        Ok(vec![b.add(sum, exp)?])
    });
    let mut b = GraphBuilder::default();
    let operands = shape.operands(&mut b);
    let last = scan(&mut b, &control, 0, &operands);
    let changed = moved(&b.finish([last]));
    assert_eq!(counts(&changed, OpCode::Exp), (1, 0), "{changed}");
    assert_eq!(counts(&changed, OpCode::Permute), (1, 1), "{changed}");
}

/// The loop may run zero times, and a derivative or a batch may have put it there.
#[test]
fn invariant_code_that_can_fail_stays_in_the_body() {
    let shape = Scan { carries: &[&[3]], slices: &[], captured: &[&[3], &[3]], dtype: DType::I64 };
    let control = shape.control(false, |b, x| {
        let checked = b.emit(Op::new(OpCode::WrapIndex, Attrs::Size(11)), &[x[1]])?;
        let (read, sum) = (b.mul(checked, x[2])?, b.add(x[1], x[2])?);
        let moved = b.mul(sum, sum)?;
        let next = b.add(x[0], read)?;
        Ok(vec![b.add(next, moved)?])
    });
    let mut b = GraphBuilder::default();
    let operands = shape.operands(&mut b);
    let last = scan(&mut b, &control, 0, &operands);
    let changed = LoopMotion.run(&b.finish([last])).unwrap().expect("the sum moves");
    assert_eq!(counts(&changed, OpCode::WrapIndex), (0, 1), "{changed}");
    // The product of the sum moves, and that of the checked index stays.
    assert_eq!(counts(&changed, OpCode::Mul), (1, 1), "{changed}");
}

#[test]
fn an_invariant_value_that_is_larger_than_its_operands_stays() {
    let shape =
        Scan { carries: &[&[3, 4]], slices: &[], captured: &[&[3, 1], &[4]], dtype: DType::F32 };
    let control = shape.control(false, |b, x| {
        let outer = b.mul(x[1], x[2])?;
        Ok(vec![b.add(x[0], outer)?])
    });
    let mut b = GraphBuilder::default();
    let operands = shape.operands(&mut b);
    let last = scan(&mut b, &control, 0, &operands);
    assert_eq!(LoopMotion.run(&b.finish([last])).unwrap(), None);
}

/// A recurrent layer, and a backward loop that recomputes each step from the history.
fn layer_and_its_derivative(b: &mut GraphBuilder, history: usize) -> (NodeId, NodeId, NodeId) {
    let layer = Scan {
        carries: &[&[2, 16]],
        slices: &[],
        captured: &[&[16, 16], &[16]],
        dtype: DType::I32,
    };
    let step = |b: &mut GraphBuilder, h: NodeId, u: NodeId, bias: NodeId| {
        let matmul = b.matmul(h, u)?;
        b.add(matmul, bias)
    };
    let forward = layer.control(false, |b, x| {
        let z = step(b, x[0], x[1], x[2])?;
        Ok(vec![b.mul(z, z)?, b.neg(z)?])
    });
    let derivative = Scan {
        carries: &[&[2, 16], &[16, 16]],
        slices: &[&[2, 16]],
        captured: &[&[16, 16], &[16]],
        dtype: DType::I32,
    };
    let backward = derivative.control(true, |b, x| {
        let z = step(b, x[2], x[3], x[4])?;
        let ct = b.mul(x[0], z)?;
        let (rows, turned) = (b.transpose(x[2])?, b.transpose(x[3])?);
        let weight = b.matmul(rows, ct)?;
        Ok(vec![b.matmul(ct, turned)?, b.add(x[1], weight)?])
    });
    let operands = layer.operands(b);
    let last = scan(b, &forward, 0, &operands);
    let stacked = scan(b, &forward, history, &operands);
    let zeros = b.zeros_like(operands[1]);
    let all = [last, zeros, stacked, operands[1], operands[2]];
    (last, scan(b, &backward, 0, &all), scan(b, &backward, 1, &all))
}

#[test]
fn a_derivative_takes_the_matmuls_of_its_loop_and_sums_those_of_weights_afterwards() {
    let mut b = GraphBuilder::default();
    let (last, carry, weight) = layer_and_its_derivative(&mut b, 2);
    let changed = moved(&b.finish([last, carry, weight]));
    // In the bodies remain `h @ u` of the forward loop and `ct @ u.T` of the backward loop, and the
    // matmul of an unused carry, which another pass removes.
    assert_eq!(counts(&changed, OpCode::Matmul), (1, 3), "{changed}");
    let clean = PassFlag::Prune.pass().run(&changed).unwrap().unwrap();
    assert_eq!(counts(&clean, OpCode::Matmul), (1, 2), "{clean}");
}

#[test]
fn a_loop_over_other_results_computes_its_own_matmuls() {
    let mut b = GraphBuilder::default();
    // The stacked results have the shape of the history, but are not the history.
    let (last, carry, _) = layer_and_its_derivative(&mut b, 1);
    assert_eq!(LoopMotion.run(&b.finish([last, carry])).unwrap(), None);
}

#[test]
fn a_sum_that_is_read_on_the_way_stays_in_the_loop() {
    let shape = Scan {
        carries: &[&[16, 16]],
        slices: &[&[1, 16], &[1, 16]],
        captured: &[],
        dtype: DType::I32,
    };
    for read in [false, true] {
        let control = shape.control(false, |b, x| {
            let column = b.transpose(x[1])?;
            let matmul = b.matmul(column, x[2])?;
            let sum = b.add(matmul, x[0])?;
            let given = if read { b.neg(x[0])? } else { b.neg(x[1])? };
            Ok(vec![sum, given])
        });
        let mut b = GraphBuilder::default();
        let operands = shape.operands(&mut b);
        let results: Vec<NodeId> = (0..2).map(|r| scan(&mut b, &control, r, &operands)).collect();
        let graph = b.finish(results);
        match read {
            true => assert_eq!(LoopMotion.run(&graph).unwrap(), None),
            false => assert_eq!(counts(&moved(&graph), OpCode::Matmul).0, 1),
        }
    }
}

/// Pads both axes of a matrix by one element before the first and two after the last.
fn bordered(b: &mut GraphBuilder, x: NodeId) -> Result<NodeId> {
    let dims = vec![PadDim { low: 1, high: 2, interior: 0 }; 2];
    b.pad(x, dims, Literal::from_i64(b.dtype(x), 3))
}

/// The window of a matrix that begins at a row and a column and ends two elements before the end.
fn window(b: &mut GraphBuilder, x: NodeId, start: [usize; 2]) -> Result<NodeId> {
    let sizes: Vec<usize> = b.shape(x).hints().iter().map(|size| size - 3).collect();
    let dims = start.iter().zip(&sizes).map(|(&start, &size)| SliceDim { start, size, step: 1 });
    let attrs = Attrs::slice(dims.collect(), &sizes[..].into());
    b.emit(Op::new(OpCode::Slice, attrs), &[x])
}

#[test]
fn a_carry_that_each_iteration_pads_is_carried_padded() {
    let shape = Scan {
        carries: &[&[4, 5], &[4, 5]],
        slices: &[&[4, 5]],
        captured: &[&[]],
        dtype: DType::I32,
    };
    for reverse in [false, true] {
        let control = shape.control(reverse, |b, x| {
            let (left, right) = (bordered(b, x[0])?, bordered(b, x[0])?);
            let (left, right) = (window(b, left, [0, 1])?, window(b, right, [3, 2])?);
            let around = b.add(left, right)?;
            let next = b.mul(x[3], around)?;
            let (next, sum) = (b.add(next, x[0])?, b.add(x[1], next)?);
            Ok(vec![b.add(next, x[2])?, sum, next])
        });
        let mut b = GraphBuilder::default();
        let operands = shape.operands(&mut b);
        let results: Vec<NodeId> = (0..3).map(|r| scan(&mut b, &control, r, &operands)).collect();
        let changed = moved(&b.finish(results));
        // One pad of the initial value, and one of the result of each iteration.
        assert_eq!(counts(&changed, OpCode::Pad), (1, 1), "{changed}");
    }
}

#[test]
fn a_carry_stays_unpadded_if_its_history_is_needed_or_if_it_is_not_read_by_element() {
    let shape = Scan { carries: &[&[4, 4]], slices: &[], captured: &[], dtype: DType::I32 };
    for (history, product) in [(true, false), (false, true)] {
        let control = shape.control(false, |b, x| {
            let padded = bordered(b, x[0])?;
            let near = window(b, padded, [0, 0])?;
            let other = if product { b.matmul(x[0], x[0])? } else { x[0] };
            Ok(vec![b.add(near, other)?])
        });
        let mut b = GraphBuilder::default();
        let operands = shape.operands(&mut b);
        let last = scan(&mut b, &control, 0, &operands);
        let all = scan(&mut b, &control, 1, &operands);
        let outputs = if history { vec![last, all] } else { vec![last] };
        assert_eq!(LoopMotion.run(&b.finish(outputs)).unwrap(), None, "{history}");
    }
}

/// An op of a random body, with operands by position among the available values.
type Choice = (u8, prop::sample::Index, prop::sample::Index);

/// A body of square matrices: two carries, one slice and two captured operands.
fn random_body(b: &mut GraphBuilder, x: &[NodeId], choices: &[Choice]) -> Result<Vec<NodeId>> {
    let mut values = x.to_vec();
    for (op, left, right) in choices {
        let (left, right) = (*left.get(&values), *right.get(&values));
        values.push(match op % 6 {
            0 | 1 => b.matmul(left, right)?,
            2 | 3 => b.add(left, right)?,
            4 => b.transpose(left)?,
            _ => b.neg(left)?,
        });
    }
    let last = *values.last().expect("there are carries");
    let sum = b.add(x[1], values[values.len() / 2])?;
    Ok(vec![last, sum, values[values.len() - 1 - choices.len() / 3]])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_loops_keep_their_values(
        choices in prop::collection::vec(any::<Choice>(), 1..12),
        second in prop::collection::vec(any::<Choice>(), 0..4),
        reverse in any::<bool>(),
        size in prop::sample::select(vec![1usize, 2, 2, 16]),
        asked in prop::sample::subsequence((0..5).collect::<Vec<usize>>(), 1..=5),
    ) {
        let square: &[usize] = &[size, size];
        let shape = Scan {
            carries: &[square; 2],
            slices: &[square],
            captured: &[square; 2],
            dtype: DType::I32,
        };
        let control = shape.control(reverse, |b, x| random_body(b, x, &choices));
        let mut b = GraphBuilder::default();
        let operands = shape.operands(&mut b);
        let mut outputs: Vec<NodeId> =
            asked.iter().map(|&r| scan(&mut b, &control, r, &operands)).collect();
        // A second loop that slices the history of the first carry, and computes the same.
        let history = scan(&mut b, &control, 3, &operands);
        let mut others = operands.clone();
        others[2] = history;
        let again: Vec<Choice> = choices.iter().chain(&second).copied().collect();
        let other = shape.control(!reverse, |b, x| {
            let as_first = [x[2], x[1], x[2], x[3], x[4]];
            let mut outputs = random_body(b, &as_first, &again)?;
            outputs[0] = b.add(outputs[0], x[0])?;
            Ok(outputs)
        });
        outputs.extend((0..3).map(|r| scan(&mut b, &other, r, &others)));
        let graph = b.finish(outputs);
        let arguments = arguments(&graph);
        let expected = evaluate(&graph, &arguments).unwrap();
        if let Some(changed) = LoopMotion.run(&graph).unwrap() {
            changed.verify().unwrap();
            prop_assert_eq!(&evaluate(&changed, &arguments).unwrap(), &expected, "{}\n{}", graph, changed);
            prop_assert_eq!(LoopMotion.run(&changed).unwrap(), None, "{}", changed);
        }
        let optimized = optimize(&graph, OptOptions::default()).unwrap();
        let kept: Vec<Array> =
            optimized.live_arguments.iter().map(|&i| arguments[i].clone()).collect();
        prop_assert_eq!(&evaluate(&optimized.graph, &kept).unwrap(), &expected, "{}", graph);
    }
}
