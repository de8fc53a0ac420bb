//! Writes `docs/sharded-ops.md`: what each op needs if an axis of an operand is cut. The test fails if the
//! file differs from what the partitioner does; with `GIRIH_UPDATE` set (`make docs`) it writes the file.

use girih_dist::Kind;
use girih_dist::partition::partition;
use girih_ir::ops::{Class, Sample};
use girih_ir::sharding::{DeviceMesh, DimSpec, P};
use girih_ir::{GraphBuilder, OpCode};
use std::path::Path;

const HEAD: &str = "\
# Sharded ops

Written by `make docs` from what `partition()` does; do not edit.

What an op needs if one axis of one operand is cut over two processors, and everything else is whole. A cell has a
word for each axis of an operand:

* `local`: nothing moves.
* `partial`: each processor computes a part of a sum, or of another combination; an all-reduce combines them when the
  total is needed.
* `halo`: each processor is sent the elements that its part of the result needs and that it lacks.
* `permute`, `all_to_all`: parts change places.
* `gather`: each processor is sent the whole operand.

Operands of rank 0 have no axes. The sizes are those of the op's first sample, so many are cut unevenly.

| op | first operand | second | third | others |
| --- | --- | --- | --- | --- |
";

/// What an op needs if an axis of an operand is cut.
fn needs(sample: &Sample, operand: usize, axis: usize) -> Option<String> {
    let mesh = DeviceMesh::new(&[2], &["x"]).unwrap();
    let mut b = GraphBuilder::default();
    let inputs: Vec<_> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let output = b.emit(sample.op.clone(), &inputs).ok()?;
    let graph = b.finish([output]);
    let mut specs = vec![P::default(); inputs.len()];
    specs[operand].dims.resize(axis, DimSpec::default());
    specs[operand].dims.push(DimSpec::new(["x"]));
    let found = partition(&graph, &mesh, &specs, &[None]).unwrap();
    let words = found.exchanges().filter(|exchange| exchange.bytes() > 0);
    let mut words: Vec<String> = words
        .map(|exchange| match exchange.plan.kind {
            Kind::AllReduce(_) | Kind::ReduceScatter(_) => "partial".into(),
            Kind::Halo | Kind::Permute | Kind::AllToAll => exchange.plan.kind.to_string(),
            _ => "gather".into(),
        })
        .collect();
    words.sort();
    words.dedup();
    Some(if words.is_empty() { "local".into() } else { words.join("+") })
}

fn row(code: OpCode) -> Option<String> {
    let samples = code.samples();
    let sample = samples.iter().find(|sample| sample.op.class() != Class::Leaf)?;
    let cell = |operand: usize| -> Option<String> {
        let rank = sample.inputs[operand].spec().shape.rank();
        let words: Option<Vec<String>> =
            (0..rank).map(|axis| needs(sample, operand, axis)).collect();
        Some(words?.join(" "))
    };
    let cells = (0..sample.inputs.len()).map(cell).collect::<Option<Vec<String>>>()?;
    let at = |i: usize| cells.get(i).cloned().unwrap_or_default();
    let others = cells.iter().skip(3).cloned().collect::<Vec<_>>().join(", ");
    let name = code.def().name;
    let row = format!("| {name} | {} | {} | {} | {others} |", at(0), at(1), at(2));
    Some(row.replace("|  |", "| |").replace("|  |", "| |"))
}

#[test]
fn the_page_on_sharded_ops_is_what_the_partitioner_does() {
    let rows: Vec<String> = OpCode::ALL.iter().filter_map(|&code| row(code)).collect();
    assert!(rows.len() > 100, "{} ops", rows.len());
    let text = format!("{HEAD}{}\n", rows.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sharded-ops.md");
    if std::env::var_os("GIRIH_UPDATE").is_some() {
        std::fs::write(&path, &text).expect("docs/sharded-ops.md can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let line = text.lines().zip(found.lines()).position(|(a, b)| a != b);
    assert!(found == text, "docs/sharded-ops.md is stale (from line {line:?}); run `make docs`");
}
