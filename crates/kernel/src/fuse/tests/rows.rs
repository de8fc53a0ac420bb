//! Kernels over rows: what becomes one, and what does not.

use super::*;
use crate::ir::{Core, Kernel, Program};

fn kernels(graph: &Graph) -> Program {
    lower(graph, FusionOptions::ALL).expect("the graph is primitive")
}

/// Parts and locals of the only kernel.
#[track_caller]
fn one(graph: &Graph) -> (usize, usize) {
    let program = kernels(graph);
    match &program.kernels[..] {
        [Kernel { core: Core::Rows(rows), .. }] => (rows.parts.len(), rows.locals.len()),
        _ => panic!("not one kernel over rows:\n{program}"),
    }
}

#[test]
fn a_softmax_a_norm_and_a_loss_are_one_kernel_each() {
    let g = graph(|b| {
        let x = input(b, [32, 40]);
        Ok([softmax(b, x)?])
    });
    // The exponentials are kept too.
    assert_eq!(one(&g), (3, 3));
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [32, 40]), input(b, [40]), input(b, [40]));
        Ok([layer_norm(b, x, w, bias)?])
    });
    assert_eq!(one(&g), (3, 2));
    // The middle axis: a row is a matrix, reduced along its columns.
    let g = graph(|b| {
        let x = input(b, [20, 5, 6]);
        let max = b.max(x, AxisSet::one(1), true)?;
        let d = b.sub(x, max)?;
        let (e, other) = (b.exp(d)?, b.tanh(x)?);
        let sum = b.sum(e, AxisSet::one(1), true)?;
        let quotient = b.div(other, sum)?;
        Ok([quotient])
    });
    assert_eq!(one(&g), (3, 2));
}

#[test]
fn what_others_need_has_memory() {
    let g = graph(|b| {
        let x = input(b, [32, 40]);
        let max = b.max(x, AxisSet::one(1), true)?;
        let d = b.sub(x, max)?;
        Ok([d, max])
    });
    assert_eq!(one(&g), (2, 0));
}

#[test]
fn few_long_rows_and_other_rows_stay_apart() {
    let count = |shape: [usize; 2], axis: u8| {
        let g = graph(|b| {
            let x = input(b, shape);
            let max = b.max(x, AxisSet::one(axis as usize), true)?;
            Ok([b.sub(x, max)?])
        });
        kernels(&g).kernels.len()
    };
    assert_eq!(count([4, 100_000], 1), 2, "two threads or more have nothing to share");
    assert_eq!(count([4, 100], 1), 1, "little work may have few rows");
    assert_eq!(count([100, 100_000], 1), 2, "a row is too long for the cache");
    assert_eq!(count([64, 64], 0), 2, "columns are no rows");
}

#[test]
fn what_depends_on_a_kernel_between_waits_for_it() {
    let g = graph(|b| {
        let (x, w) = (input(b, [32, 8]), input(b, [8, 8]));
        let e = b.exp(x)?;
        let sum = b.sum(e, AxisSet::one(1), true)?;
        let product = b.matmul(e, w)?;
        let q = b.div(product, sum)?;
        let most = b.max(q, AxisSet::one(1), true)?;
        Ok([b.sub(q, most)?])
    });
    let program = kernels(&g);
    let matmul = program.kernels.iter().position(|k| matches!(k.core, Core::Matmul { .. }));
    assert_eq!(matmul, Some(1), "{program}");
    assert_eq!(program.kernels.len(), 3, "{program}");
}

#[test]
fn what_is_expensive_is_computed_once() {
    let g = graph(|b| {
        let x = input(b, [20, 3]);
        let max = b.max(x, AxisSet::one(1), true)?;
        let d = b.sub(x, max)?;
        let e = b.exp(d)?;
        let sum = b.sum(e, AxisSet::one(1), true)?;
        Ok([b.div(e, sum)?])
    });
    let text = kernels(&g).to_string();
    assert_eq!(text.matches("exp(").count(), 1, "{text}");
    assert_eq!(text.matches("sub(").count(), 1, "{text}");
    assert!(text.contains("    b4[3*i0 + i1] = v3\n    reduce sum v3"), "{text}");
    assert!(text.contains("v0 = load b4[3*i0 + i1]"), "{text}");
}

#[test]
fn it_reads_like_its_parts() {
    let g = graph(|b| {
        let x = input(b, [20, 3]);
        let max = b.max(x, AxisSet::one(1), true)?;
        Ok([b.sub(x, max)?])
    });
    let text = kernels(&g).to_string();
    let expected = "
b0 = argument 0: f32[60]
b1 = f32[20]
b2 = f32[60]
fused_reduce_max_sub over [20]
  local b1: 4 bytes a row
  reduce_max over [20 | 3]
    prologue:
      v0 = load b0[3*i0 + i1]
    reduce max v0
    v0 = core: f32
    b1[i0] = v0
  sub over [20, 3]
    v0 = load b0[3*i0 + i1]
    v1 = load b1[i0]
    v2 = sub(v0, v1): f32
    b2[3*i0 + i1] = v2
outputs: [b2]";
    assert_eq!(text.trim(), expected.trim(), "\n{text}");
}
