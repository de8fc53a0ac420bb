//! Explains cache misses: the fields of a program's key that differ from the key of the most
//! similar cached program.

use crate::CompileOptions;
use crate::plan::Source;
use girih_ir::text::attributes;
use girih_ir::{Graph, NodeId};

/// The maximum number of differences in a list.
const MAX_LISTED: usize = 8;

/// The result of a lookup in the program cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The program is cached.
    Hit,
    /// The program is not cached, and no cached program is similar.
    New,
    /// The program is not cached. The fields that differ from the most similar cached program,
    /// causes before their effects. Never empty.
    Differs(Vec<String>),
}

/// Compares `wanted` with the most similar program in `known`, which has the most recently used
/// first. A program is not similar if more than half of its nodes differ.
pub(crate) fn nearest(known: &[&Source], wanted: &Source) -> Lookup {
    let distance = |source: &&Source| distance(&source.graph, &wanted.graph);
    let best = known.iter().map(|source| (distance(source), source)).min_by_key(|(d, _)| *d);
    match best {
        Some((d, source)) if 2 * d <= wanted.graph.len() => {
            Lookup::Differs(differences(source, wanted))
        }
        _ => Lookup::New,
    }
}

/// The number of positions at which the graphs have different operations or operands, plus the
/// difference of their lengths. Specs are not compared, because they follow from the specs of the
/// arguments.
fn distance(a: &Graph, b: &Graph) -> usize {
    let same = |(x, y): ((NodeId, &girih_ir::Node), (NodeId, &girih_ir::Node))| {
        x.1.op.code == y.1.op.code && x.1.inputs == y.1.inputs
    };
    let differ = a.nodes().zip(b.nodes()).filter(|&(x, y)| !same((x, y))).count();
    differ + a.len().abs_diff(b.len())
}

/// The fields that differ, as `from -> to`.
fn differences(from: &Source, to: &Source) -> Vec<String> {
    let mut found = option_differences(from.options, to.options);
    let (a, b) = (&from.graph, &to.graph);
    if a.len() != b.len() {
        found.push(format!("number of nodes: {} -> {}", a.len(), b.len()));
    }
    let positions: Vec<NodeId> = b.arguments().collect();
    for ((id, x), (_, y)) in a.nodes().zip(b.nodes()) {
        let subject = match positions.iter().position(|p| *p == id) {
            Some(position) if y.op.takes_argument() => format!("argument {position}"),
            _ => id.to_string(),
        };
        if x.op.code != y.op.code {
            found.push(format!("op of {subject}: {} -> {}", x.op.name(), y.op.name()));
            continue;
        }
        if x.inputs != y.inputs {
            let list = |n: &girih_ir::Node| n.inputs.iter().map(NodeId::to_string).collect();
            let (x, y): (Vec<String>, Vec<String>) = (list(x), list(y));
            found.push(format!("operands of {subject}: {} -> {}", x.join(", "), y.join(", ")));
        }
        if x.op.attrs != y.op.attrs && x.spec == y.spec {
            let (x, y) = (attributes(a, id), attributes(b, id));
            let name = b.node(id).op.name();
            found.push(match x == y {
                // The text of attributes does not contain the regions of control ops.
                true => format!("regions of {subject} ({name})"),
                false => format!("attributes of {subject} ({name}): {x} -> {y}"),
            });
        }
        // The spec of a result follows from the operands, unless the attributes determine it.
        let caused = !y.inputs.is_empty() && x.op.attrs == y.op.attrs;
        if x.spec.shape != y.spec.shape && !caused {
            found.push(format!("shape of {subject}: {} -> {}", x.spec.shape, y.spec.shape));
        }
        if x.spec.dtype != y.spec.dtype && !caused {
            found.push(format!("dtype of {subject}: {} -> {}", x.spec.dtype, y.spec.dtype));
        }
    }
    if a.outputs() != b.outputs() {
        let list = |g: &Graph| g.outputs().iter().map(NodeId::to_string).collect::<Vec<_>>();
        let (x, y) = (list(a).join(", "), list(b).join(", "));
        found.push(format!("outputs: {x} -> {y}"));
    }
    if found.is_empty() {
        // The keys differ, so the target differs, or a field that is not listed here.
        found.push("the device it is compiled for".into());
    }
    if found.len() > MAX_LISTED {
        let rest = found.len() - MAX_LISTED;
        found.truncate(MAX_LISTED);
        found.push(format!("and {rest} more"));
    }
    found
}

fn option_differences(from: CompileOptions, to: CompileOptions) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |name: &str, from: u32, to: u32| {
        if from != to {
            found.push(format!("option {name}: {from:#x} -> {to:#x}"));
        }
    };
    compare("passes", from.passes, to.passes);
    compare("fusion", from.fusion, to.fusion);
    compare("passes of the user", from.user, to.user);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::{AxisSet, DType, GraphBuilder, Op, OpCode, TensorSpec};

    /// The program of `activation(x @ w)`, summed over an axis.
    fn source(rows: usize, dtype: DType, activation: OpCode, axis: usize) -> Source {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([rows, 784], dtype));
        let w = b.input(TensorSpec::new([784, 784], dtype));
        let y = b.matmul(x, w).unwrap();
        let y = b.op(activation, &[y]).unwrap();
        let out = b.sum(y, AxisSet::one(axis), true).unwrap();
        Source { graph: b.finish([out]), options: CompileOptions::default() }
    }

    #[track_caller]
    fn check(wanted: &Source, expected: &[&str]) {
        let known = source(32, DType::F32, OpCode::Relu, 0);
        let Lookup::Differs(found) = nearest(&[&known], wanted) else { panic!("nothing similar") };
        assert_eq!(found, expected);
    }

    #[test]
    fn only_the_causes_of_a_difference_are_named() {
        check(
            &source(16, DType::F32, OpCode::Relu, 0),
            &["shape of argument 0: [32, 784] -> [16, 784]"],
        );
        check(
            &source(32, DType::F64, OpCode::Relu, 0),
            &["dtype of argument 0: float32 -> float64", "dtype of argument 1: float32 -> float64"],
        );
        check(&source(32, DType::F32, OpCode::Sigmoid, 0), &["op of %3: relu -> sigmoid"]);
        let mut other = source(32, DType::F32, OpCode::Relu, 0);
        other.options.passes = 1;
        check(&other, &["option passes: 0xffffffff -> 0x1"]);
        let mut other = source(32, DType::F32, OpCode::Relu, 0);
        other.graph.set_outputs([NodeId(3), NodeId(4)]);
        check(&other, &["outputs: %4 -> %3, %4"]);
    }

    #[test]
    fn attributes_and_wiring_differ_too() {
        let softmax = |axis: u8, same: bool| {
            let mut b = GraphBuilder::default();
            let (x, y) = (
                b.input(TensorSpec::new([4, 4], DType::F32)),
                b.input(TensorSpec::new([4, 4], DType::F32)),
            );
            let p = b.emit(Op::new(OpCode::Softmax, girih_ir::Attrs::Axis(axis)), &[x]).unwrap();
            let out = b.add(p, if same { x } else { y }).unwrap();
            Source { graph: b.finish([out]), options: CompileOptions::default() }
        };
        let differ = |a: &Source, b: &Source| match nearest(&[a], b) {
            Lookup::Differs(found) => found,
            other => panic!("{other:?}"),
        };
        let found = differ(&softmax(0, true), &softmax(1, true));
        assert_eq!(found, ["attributes of %2 (softmax): dim=0 -> dim=1"]);
        let found = differ(&softmax(0, true), &softmax(0, false));
        assert_eq!(found, ["operands of %3: %2, %0 -> %2, %1"]);
    }

    #[test]
    fn the_most_similar_program_is_compared_and_a_dissimilar_program_is_not() {
        let (near, far) =
            (source(8, DType::F32, OpCode::Relu, 0), source(8, DType::F32, OpCode::Relu, 0));
        let mut b = GraphBuilder::from_graph(far.graph);
        let extra = b.neg(NodeId(4)).unwrap();
        let far = Source { graph: b.finish([extra]), options: far.options };
        let wanted = source(9, DType::F32, OpCode::Relu, 0);
        let expected = vec!["shape of argument 0: [8, 784] -> [9, 784]".to_string()];
        assert_eq!(nearest(&[&far, &near], &wanted), Lookup::Differs(expected));
        let Lookup::Differs(found) = nearest(&[&far], &wanted) else { panic!("nothing similar") };
        assert_eq!(found[0], "number of nodes: 6 -> 5");
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let (y, n) = (b.exp(x).unwrap(), b.neg(x).unwrap());
        let z = b.mul(y, n).unwrap();
        let stranger = Source { graph: b.finish([z]), options: wanted.options };
        assert_eq!(nearest(&[&stranger], &wanted), Lookup::New);
        assert_eq!(nearest(&[], &wanted), Lookup::New);
    }
}
