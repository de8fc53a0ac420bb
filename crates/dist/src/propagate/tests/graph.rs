//! Propagation over whole graphs.

use crate::propagate::graph;
use girih_ir::ops::AxisSet;
use girih_ir::{DType, DeviceMesh, Graph, GraphBuilder, NodeId, OpCode, P, Result, TensorSpec};

fn mesh() -> DeviceMesh {
    DeviceMesh::new(&[2, 4], &["dp", "tp"]).unwrap()
}

/// The spec of each node; `?` is an argument or an output without one.
fn specs(of: &Graph, arguments: &[&str], outputs: &[&str]) -> Vec<String> {
    let parse = |text: &&str| (*text != "?").then(|| text.parse::<P>().unwrap());
    let arguments: Vec<Option<P>> = arguments.iter().map(parse).collect();
    let outputs: Vec<Option<P>> = outputs.iter().map(parse).collect();
    graph(of, &mesh(), &arguments, &outputs).unwrap().iter().map(P::to_string).collect()
}

fn build(build: impl FnOnce(&mut GraphBuilder) -> Result<Vec<NodeId>>) -> Graph {
    let mut b = GraphBuilder::default();
    let outputs = build(&mut b).unwrap();
    b.finish(outputs)
}

fn input(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
    b.input(TensorSpec::new(shape, DType::F32))
}

/// `x @ (draw * 0.1)`.
fn drawn() -> Graph {
    build(|b| {
        let x = input(b, &[8, 16]);
        let draw = b.leaf(OpCode::RandomNormal.into(), TensorSpec::new([16, 32], DType::F32));
        let scale = b.scalar(DType::F32, 0.1);
        let w = b.mul(draw, scale)?;
        Ok(vec![b.matmul(x, w)?])
    })
}

#[test]
fn draws_and_what_is_computed_from_them_follow_demand() {
    let found = specs(&drawn(), &["<dp, *>", "<>"], &["<dp, tp>"]);
    assert_eq!(found, ["<dp, *>", "<*, tp>", "<>", "<*, tp>", "<dp, tp>"]);
    // From a cut operand, too.
    let found = specs(&drawn(), &["<dp, tp>", "<>"], &["?"]);
    assert_eq!(found, ["<dp, tp>", "<tp, *>", "<>", "<tp, *>", "<dp, *>"]);
    // Users that disagree get slices.
    let both = build(|b| {
        let draw = b.leaf(OpCode::RandomNormal.into(), TensorSpec::new([8, 8], DType::F32));
        Ok(vec![b.neg(draw)?, b.exp(draw)?])
    });
    let found = specs(&both, &["<>"], &["<dp, *>", "<*, tp>"]);
    assert_eq!(found, ["<*, *>", "<dp, *>", "<*, tp>"]);
}

#[test]
fn open_dimensions_take_what_users_agree_on() {
    let product = build(|b| {
        let (x, w) = (input(b, &[8, 16]), input(b, &[16, 32]));
        Ok(vec![b.matmul(x, w)?])
    });
    assert_eq!(specs(&product, &["<dp, tp>", "?"], &["?"]), ["<dp, tp>", "<tp, *>", "<dp, *>"]);
    assert_eq!(specs(&product, &["?", "<tp, *>"], &["?"]), ["<*, tp>", "<tp, *>", "<*, *>"]);
    assert_eq!(
        specs(&product, &["<dp, *>", "?"], &["<dp, tp>"]),
        ["<dp, *>", "<*, tp>", "<dp, tp>"]
    );
    // A closed dimension keeps what its user wrote.
    assert_eq!(specs(&product, &["<dp, tp>", "<*, ?>"], &["?"]), ["<dp, tp>", "<*, *>", "<dp, *>"]);
    assert_eq!(specs(&product, &["<dp, *>", "<tp?, *>"], &["?"])[1], "<tp, *>");
    assert_eq!(specs(&product, &["<dp, *>", "<*, tp>"], &["<dp, ?>"])[2], "<dp, tp>");
}

#[test]
fn partial_values_are_combined_once_and_early_where_their_total_is_needed() {
    let layer = build(|b| {
        let (x, w, bias) = (input(b, &[8, 16]), input(b, &[16, 32]), input(b, &[32]));
        let y = b.matmul(x, w)?;
        let y = b.add(y, bias)?;
        Ok(vec![b.exp(y)?, b.sum(y, AxisSet::one(0), false)?])
    });
    let found = specs(&layer, &["<*, tp>", "<tp, *>", "<*>"], &["?", "?"]);
    assert!(found[3..].iter().all(|spec| !spec.contains("partial")), "{found:?}");
    // Nobody needs the total: the sum is combined, which is smaller.
    let sum = build(|b| {
        let (x, w) = (input(b, &[8, 16]), input(b, &[16, 32]));
        let y = b.matmul(x, w)?;
        Ok(vec![b.sum(y, AxisSet::one(0), false)?])
    });
    let found = specs(&sum, &["<*, tp>", "<tp, *>"], &["?"]);
    assert_eq!(found[2..], ["<*, *; partial={tp: add}>", "<*>"]);
}
