//! Runs the programs of a partition on arrays, processor by processor, and compares the results with
//! those of the graph.

use girih_dist::partition::{Exchange, Partition, Source, ValueId, partition};
use girih_dist::{Assembly, Piece, Rect, rectangles};
use girih_ir::array::flat;
use girih_ir::sharding::{DeviceMesh, P, Sharding};
use girih_ir::{Array, DType, Element, Graph, OpCode, TensorSpec};
use girih_reference::evaluate;
use std::collections::HashMap;

/// The elements of an array in a rectangle.
pub fn part(array: &Array, rect: &Rect) -> Array {
    let spec = TensorSpec::new(rect.extent.as_slice(), array.spec().dtype);
    Array::from_fn(spec, |index| {
        let at: Vec<usize> = index.iter().zip(&rect.start).map(|(i, start)| i + start).collect();
        array.get(flat(&array.spec().shape, &at))
    })
}

type Parts = HashMap<ValueId, Vec<Array>>;

/// The parts after an exchange, by its programs.
fn exchanged(parts: &Parts, exchange: &Exchange) -> Vec<Array> {
    let mut now: Vec<Option<Array>> = parts[&exchange.from].iter().cloned().map(Some).collect();
    let mut bytes = 0;
    for step in exchange.lower().unwrap() {
        let run = |(at, Assembly { pieces, program }): (usize, &Assembly)| {
            let moved = pieces.iter().filter(|piece| piece.from != at);
            bytes +=
                moved.map(|piece| piece.rect.len() * exchange.tensor.dtype.size()).sum::<usize>();
            let take = |piece: &Piece| part(now[piece.from].as_ref().unwrap(), &piece.rect);
            let mut pieces: Vec<Array> = pieces.iter().map(take).collect();
            match program {
                Some(program) => evaluate(program, &pieces).unwrap().pop(),
                None => pieces.pop(),
            }
        };
        now = step.iter().enumerate().map(run).collect();
    }
    assert_eq!(bytes, exchange.bytes());
    now.into_iter().map(|part| part.expect("each processor has a part")).collect()
}

/// The parts of each output.
pub fn run(
    graph: &Graph,
    mesh: &DeviceMesh,
    arguments: &[Array],
    found: &Partition,
) -> Vec<Vec<Array>> {
    let nodes: Vec<_> = graph.arguments().map(|id| graph.node(id)).collect();
    let mut parts = Parts::new();
    for stage in &found.stages {
        let run = |at: usize| {
            let program = &stage.programs[at];
            let given = stage.arguments.iter().zip(program.arguments());
            let given: Vec<Array> = given
                .map(|(source, id)| match *source {
                    Source::Value(value) => parts[&value][at].clone(),
                    Source::Argument(index) => match nodes[index].op.code {
                        OpCode::Input | OpCode::Parameter => {
                            let sharding =
                                Sharding::new(mesh.clone(), found.arguments[index].clone());
                            let shape = arguments[index].spec().shape.hints();
                            part(
                                &arguments[index],
                                &rectangles(&sharding.unwrap(), shape).unwrap()[at],
                            )
                        }
                        OpCode::Constant if arguments[index].spec().numel() > 0 => {
                            Array::splat(program.spec(id).clone(), arguments[index].get(0))
                        }
                        _ => arguments[index].clone(),
                    },
                })
                .collect();
            evaluate(program, &given).unwrap_or_else(|e| panic!("{e}\n{graph}\n{program}"))
        };
        let results: Vec<Vec<Array>> = (0..mesh.len()).map(run).collect();
        for (number, value) in stage.results.iter().enumerate() {
            parts.insert(*value, results.iter().map(|of| of[number].clone()).collect());
        }
        for exchange in &stage.exchanges {
            let new = exchanged(&parts, exchange);
            parts.insert(exchange.to, new);
        }
    }
    found.outputs.iter().map(|(value, _)| parts[value].clone()).collect()
}

/// True if the elements are equal, up to the rounding of sums in another order, which may also decide
/// between an infinity and a NaN.
fn close(a: &Array, b: &Array) -> bool {
    let dtype = a.spec().dtype;
    let slack = match dtype.size() {
        _ if !dtype.is_inexact() => 0.0,
        2 => 0.05,
        4 => 1e-4,
        _ if dtype == DType::C64 => 1e-4,
        _ => 1e-9,
    };
    let near = |a: f64, b: f64| {
        let both = !(a.is_finite() || b.is_finite());
        a == b || both || (a - b).abs() <= slack * (1.0 + a.abs().max(b.abs()))
    };
    let same = |(a, b): (Element, Element)| match dtype.is_complex() {
        true => near(a.complex().re, b.complex().re) && near(a.complex().im, b.complex().im),
        false => near(a.as_f64(), b.as_f64()),
    };
    a.spec() == b.spec() && a.elements().zip(b.elements()).all(same)
}

/// Partitions a graph, runs it and compares each processor's outputs with the reference.
pub fn check(
    graph: &Graph,
    mesh: &DeviceMesh,
    specs: &[P],
    arguments: &[Array],
    wanted: &[Option<P>],
) -> Partition {
    let dense = evaluate(graph, arguments).expect("the program runs");
    let found = partition(graph, mesh, specs, wanted).unwrap();
    let outputs = run(graph, mesh, arguments, &found);
    for ((dense, parts), (_, spec)) in dense.iter().zip(&outputs).zip(&found.outputs) {
        let sharding = Sharding::new(mesh.clone(), spec.clone()).unwrap();
        let rects = rectangles(&sharding, dense.spec().shape.hints()).unwrap();
        for (at, (rect, found)) in rects.iter().zip(parts).enumerate() {
            let expected = part(dense, rect);
            assert!(
                close(&expected, found),
                "processor {at}, {spec} of {mesh}: {rect:?}\nfound {found:?}\nexpected {expected:?}\n{}\n{graph}",
                specs.iter().map(P::to_string).collect::<Vec<_>>().join(", "),
            );
        }
    }
    found
}
