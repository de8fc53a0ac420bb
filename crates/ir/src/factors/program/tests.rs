//! Golden texts of programs' factors, and programs resized by factor.

use super::*;
use crate::{AxisSet, DType, GraphBuilder, Result};

fn graph(
    shapes: &[&[usize]],
    record: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> Result<Vec<NodeId>>,
) -> Graph {
    let mut b = GraphBuilder::default();
    let spec = |shape: &&[usize]| TensorSpec::new(shape.to_vec(), DType::F32);
    let inputs: Vec<NodeId> = shapes.iter().map(|shape| b.input(spec(shape))).collect();
    let outputs = record(&mut b, &inputs).unwrap();
    b.finish(outputs)
}

fn text(graph: &Graph) -> String {
    ProgramFactors::of(graph).to_string()
}

/// Why the factor is whole.
fn why(graph: &Graph, factor: usize) -> String {
    match &ProgramFactors::of(graph).factors()[factor].role {
        ProgramRole::Whole(why) => why.clone(),
        role => panic!("{role:?}"),
    }
}

#[test]
fn factors_of_ops_are_joined() {
    let layer = graph(&[&[2, 3], &[3, 4], &[4]], |b, x| {
        let y = b.matmul(x[0], x[1])?;
        let y = b.add(y, x[2])?;
        Ok(vec![b.tanh(y)?])
    });
    // The bias would be included in each partial result.
    assert_eq!(text(&layer), "i j, j k, k -> i k; j: whole");
    assert_eq!(why(&layer, 1), "matmul reduces it before the end");
    let product = graph(&[&[5, 2, 3], &[3, 4]], |b, x| {
        let y = b.op(OpCode::Neg, &[x[0]])?;
        Ok(vec![b.matmul(y, x[1])?])
    });
    assert_eq!(text(&product), "i j k, k l -> i j l; k: add");
    let rows = graph(&[&[8, 5]], |b, x| Ok(vec![b.softmax(x[0], 1)?]));
    assert_eq!(text(&rows), "i j -> i j; j: whole");
    let chain = graph(&[&[8, 5]], |b, x| {
        let y = b.softmax(x[0], 1)?;
        Ok(vec![b.sum(y, AxisSet::one(0), false)?, b.max(x[0], AxisSet::one(0), true)?])
    });
    assert_eq!(text(&chain), "i j -> j, 1 j; i: add or max, j: whole".replace("max", "maximum"));
    let factors = ProgramFactors::of(&chain);
    let combines = [0, 1].map(|output| factors.combines(output, 0));
    assert_eq!(combines, [Some(OpCode::Add), Some(OpCode::Maximum)]);
    assert_eq!(factors.combines(0, 1), None);
}

#[test]
fn axes_that_cannot_be_split_give_a_reason() {
    let square = graph(&[&[6, 4]], |b, x| {
        let t = b.transpose(x[0])?;
        Ok(vec![b.matmul(x[0], t)?])
    });
    assert_eq!(
        (text(&square).as_str(), why(&square, 0).as_str()),
        ("i j -> i i; i: whole, j: add", "it is twice in one tensor")
    );
    let early = graph(&[&[6]], |b, x| {
        let sum = b.sum(x[0], AxisSet::one(0), false)?;
        Ok(vec![b.tanh(sum)?])
    });
    assert_eq!(why(&early, 0), "reduce_sum reduces it before the end");
    let both = graph(&[&[6]], |b, x| {
        let sum = b.sum(x[0], AxisSet::one(0), false)?;
        Ok(vec![sum, b.mul(x[0], sum)?])
    });
    assert_eq!(why(&both, 0), "reduce_sum reduces it before the end");
    let split = graph(&[&[6, 4]], |b, x| Ok(vec![b.reshape(x[0], [2, 3, 4])?]));
    assert_eq!(text(&split), "i j -> k l j; i: whole, k: whole, l: whole");
    let merged = graph(&[&[2, 3], &[6]], |b, x| {
        let flat = b.reshape(x[0], [6])?;
        Ok(vec![b.add(flat, x[1])?])
    });
    assert!(text(&merged).contains("whole"), "{}", text(&merged));
    let position = graph(&[&[6, 4]], |b, x| {
        let at = b.iota([6, 4], DType::F32, 0);
        Ok(vec![b.add(x[0], at)?])
    });
    assert_eq!(why(&position, 0), "iota needs it whole");
    let stretched = graph(&[&[6, 1], &[6, 4]], |b, x| Ok(vec![b.add(x[0], x[1])?]));
    assert_eq!(text(&stretched), "i j, i k -> i k; j: whole");
}

#[test]
fn merged_axes_keep_their_factors() {
    let flat = graph(&[&[2, 3, 5]], |b, x| {
        let y = b.reshape(x[0], [6, 5])?;
        Ok(vec![b.tanh(y)?])
    });
    assert_eq!(text(&flat), "i j k -> (i j) k");
}

#[test]
fn programs_are_resized() {
    let layer = graph(&[&[2, 3], &[3, 4]], |b, x| {
        let y = b.matmul(x[0], x[1])?;
        let row = b.sum(x[1], AxisSet::one(0), true)?;
        let row = b.broadcast_to(row, [2, 4])?;
        Ok(vec![b.add(y, row)?])
    });
    let factors = ProgramFactors::of(&layer);
    assert_eq!(factors.to_string(), "i j, j k -> i k; j: whole");
    let new = factors.resized(&layer, &[7, 3, 9]).unwrap();
    new.verify().unwrap();
    let shapes: Vec<String> = new.ids().map(|id| new.spec(id).shape.to_string()).collect();
    assert_eq!(shapes, ["[7, 3]", "[3, 9]", "[7, 9]", "[1, 9]", "[7, 9]", "[7, 9]"]);
    assert_eq!(factors.resized(&layer, &[2, 3, 4]).unwrap().to_string(), layer.to_string());
}
