//! Row-wise fusion: which kernels are fused and which are not.

use super::eval;
use super::*;
use crate::ir::{Core, Kernel, KernelProgram};

fn kernels(graph: &Graph) -> KernelProgram {
    lower(graph, FusionOptions::ALL, &Target::CPU).expect("the graph is primitive")
}

/// The parts and locals of the only kernel.
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
    // The exponentials are stored too.
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
fn intermediate_results_with_other_users_are_stored() {
    let g = graph(|b| {
        let x = input(b, [32, 40]);
        let max = b.max(x, AxisSet::one(1), true)?;
        let d = b.sub(x, max)?;
        Ok([d, max])
    });
    assert_eq!(one(&g), (2, 0));
}

#[test]
fn kernels_over_few_long_or_different_rows_are_not_fused() {
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
    assert_eq!(count([100, 100], 0), 2, "columns are no rows");
}

#[test]
fn padding_is_filled_row_by_row_unless_rows_are_few_and_large() {
    let padded = |sizes: [usize; 3]| {
        graph(|b| {
            let x = input(b, sizes);
            let dims = [(0, 0), (1, 1), (1, 2)];
            let dims = dims.map(|(low, high)| girih_ir::ops::PadDim { low, high, interior: 0 });
            let y = b.pad(x, dims.to_vec(), girih_ir::Literal::from_f64(DType::F32, 0.0))?;
            Ok([y])
        })
    };
    assert_eq!(one(&padded([64, 14, 14])), (2, 0));
    let few = kernels(&padded([3, 224, 224]));
    assert_eq!(few.kernels.len(), 2, "{few}");
}

#[test]
fn the_copy_of_a_partial_update_is_a_separate_kernel() {
    let g = graph(|b| {
        let (x, y) = (input(b, [64, 14]), input(b, [64, 2]));
        let dims = [(0, 64), (3, 2)];
        let dims = dims.map(|(start, size)| girih_ir::ops::SliceDim { start, size, step: 1 });
        let op = Op::new(OpCode::UpdateSlice, Attrs::Slice(dims.to_vec().into()));
        Ok([b.emit(op, &[x, y])?])
    });
    let program = kernels(&g);
    assert_eq!(program.kernels.len(), 2, "{program}");
}

#[test]
fn kernels_that_depend_on_an_intermediate_kernel_run_after_it() {
    let g = graph(|b| {
        let (x, w) = (input(b, [32, 8]), input(b, [8, 8]));
        let e = b.exp(x)?;
        let sum = b.sum(e, AxisSet::one(1), true)?;
        let matmul = b.matmul(e, w)?;
        let q = b.div(matmul, sum)?;
        let most = b.max(q, AxisSet::one(1), true)?;
        Ok([b.sub(q, most)?])
    });
    let program = kernels(&g);
    let matmul = program.kernels.iter().position(|k| matches!(k.core, Core::Gemm { .. }));
    assert_eq!(matmul, Some(1), "{program}");
    assert_eq!(program.kernels.len(), 3, "{program}");
}

#[test]
fn expensive_values_of_a_row_are_computed_once() {
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

/// An attention of one head without its scale.
fn attention(b: &mut GraphBuilder, [q, k, v]: [NodeId; 3]) -> Result<NodeId> {
    let k = b.transpose(k)?;
    let scores = b.matmul(q, k)?;
    let p = softmax(b, scores)?;
    b.matmul(p, v)
}

#[test]
fn attention_keeps_the_scores_of_a_few_queries_only() {
    let g = graph(|b| {
        let operands = [input(b, [2, 32, 4]), input(b, [2, 40, 4]), input(b, [2, 40, 4])];
        Ok([attention(b, operands)?])
    });
    // Scores, maxima, exponentials, sums and weights.
    assert_eq!(one(&g), (5, 5));
    let text = kernels(&g).to_string();
    assert!(text.contains("over [64]\n"), "{text}");
    assert!(text.contains("  matmul over [2, 32, 40 | 4]"), "{text}");
    assert!(text.contains("  matmul over [2, 32, 4 | 40]"), "{text}");
}

#[test]
fn operands_of_a_concatenation_belong_to_kernels_over_rows() {
    let g = graph(|b| {
        let operands = [input(b, [2, 32, 4]), input(b, [2, 40, 4]), input(b, [2, 40, 4])];
        let y = attention(b, operands)?;
        Ok([b.concat(&[operands[0], y], 0)?])
    });
    let program = kernels(&g);
    assert_eq!(program.kernels.len(), 1, "{program}");
    // An operand that is read by rows must be written by rows.
    let g = graph(|b| {
        let x = input(b, [16, 4]);
        let (y, z) = (b.exp(x)?, b.tanh(x)?);
        let both = b.concat(&[y, z], 0)?;
        let most = b.max(both, AxisSet::one(1), true)?;
        Ok([b.sub(both, most)?])
    });
    let program = kernels(&g);
    assert_eq!(program.kernels.len(), 2, "{program}");
}

#[test]
fn gemms_with_large_operands_are_not_fused() {
    let g = graph(|b| {
        let (x, w, v) = (input(b, [64, 64]), input(b, [64, 128]), input(b, [128, 64]));
        let hidden = b.matmul(x, w)?;
        let hidden = relu(b, hidden)?;
        Ok([b.matmul(hidden, v)?])
    });
    assert_eq!(kernels(&g).kernels.len(), 2, "weights would be read again and again");
    // All keys are computed before the first scores, unless an entry has few scores.
    let made = |length: usize| {
        let g = graph(|b| {
            let [q, k, v] = [(); 3].map(|()| input(b, [2, length, 4]));
            let k = b.tanh(k)?;
            Ok([attention(b, [q, k, v])?])
        });
        kernels(&g).kernels.len()
    };
    assert_eq!((made(40), made(400)), (1, 2));
}

#[test]
fn a_row_may_be_a_whole_gemm() {
    // Outer products of rows, divided by the maximum of each matrix.
    let g = graph(|b| {
        let spec = |shape: [usize; 3]| TensorSpec::new(shape, DType::F64);
        let (x, y) = (b.input(spec([50, 6, 1])), b.input(spec([50, 1, 6])));
        let matmul = b.matmul(x, y)?;
        let most = b.max(matmul, [1, 2].into_iter().collect::<AxisSet>(), true)?;
        let part = b.div(matmul, most)?;
        Ok([b.matmul(part, x)?])
    });
    let data = |i: usize| (i * 7919 % 1000) as f64 / 500.0 - 1.0;
    let arguments: [eval::Data; 2] = [(0..300).map(data).collect(), (1..301).map(data).collect()];
    let unfused = lower(&g, VERTICAL, &Target::CPU).expect("the graph is primitive");
    let fused = kernels(&g);
    assert!(fused.to_string().contains("over [50]\n"), "{fused}");
    assert!(fused.kernels.len() < unfused.kernels.len(), "{fused}");
    assert_eq!(eval::program(&fused, &arguments), eval::program(&unfused, &arguments));
}

#[test]
fn a_kernel_over_rows_reads_like_its_parts() {
    let g = graph(|b| {
        let x = input(b, [20, 3]);
        let max = b.max(x, AxisSet::one(1), true)?;
        Ok([b.sub(x, max)?])
    });
    golden!("fuse/a_kernel_over_rows_reads_like_its_parts.txt", kernels(&g));
}
