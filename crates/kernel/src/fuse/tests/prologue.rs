//! GEMMs with fused operands.

use super::eval::{self, Data};
use super::*;
use crate::ir::Core;

fn names(graph: &Graph) -> Vec<String> {
    let program = lower(graph, FusionOptions::ALL, &Target::CPU).expect("the graph is primitive");
    program.kernels.into_iter().map(|k| k.name).collect()
}

/// `x` by a matrix of bytes with a scale per column.
fn scaled_weights(b: &mut GraphBuilder) -> Result<NodeId> {
    let (w, scale) = (b.input(TensorSpec::new([4, 6], DType::I8)), input(b, [6]));
    let wide = b.cast(w, DType::F32)?;
    b.mul(wide, scale)
}

#[test]
fn casts_scales_and_activations_of_operands_are_prologues_of_the_gemm() {
    let g = graph(|b| {
        let (x, w) = (input(b, [8, 4]), scaled_weights(b)?);
        let x = relu(b, x)?;
        let y = b.matmul(x, w)?;
        Ok([relu(b, y)?])
    });
    assert_eq!(names(&g), ["fused_relu_cast_mul_matmul_relu"]);
    let explained = lower_explained(&g, FusionOptions::ALL, &Target::CPU).unwrap();
    assert_eq!(explained.refusals, []);
    let (maps, gemm) = match &explained.program.kernels[0].core {
        Core::Rows(rows) => rows.prologues_and_gemm().expect("maps and their GEMM"),
        core => panic!("{core:?}"),
    };
    assert_eq!((maps.len(), gemm.name.as_str()), (2, "fused_matmul_relu"));
    assert_eq!(lower(&g, VERTICAL, &Target::CPU).unwrap().kernels.len(), 3);
}

#[test]
fn shared_operands_and_operands_that_are_no_maps_are_stored() {
    // The operand is also a result.
    let g = graph(|b| {
        let (x, w) = (input(b, [8, 4]), input(b, [4, 6]));
        let x = relu(b, x)?;
        Ok([b.matmul(x, w)?, x])
    });
    assert_eq!(names(&g), ["relu", "matmul"]);
    // Two GEMMs read the operand, one of them twice.
    let g = graph(|b| {
        let (x, w) = (input(b, [4, 4]), input(b, [4, 6]));
        let x = relu(b, x)?;
        Ok([b.matmul(x, w)?, b.matmul(x, x)?])
    });
    assert_eq!(names(&g), ["relu", "matmul", "matmul"]);
    // A gather may find an index out of range. A column-major A would be computed in runs as short
    // as a tile.
    let g = graph(|b| {
        let (table, w) = (input(b, [9, 4]), input(b, [4, 6]));
        let ids = b.input(TensorSpec::new([8], DType::I32));
        let rows = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[table, ids])?;
        let rows = relu(b, rows)?;
        let y = b.matmul(rows, w)?;
        let x = input(b, [8, 12]);
        let x = relu(b, x)?;
        let x = b.transpose(x)?;
        Ok([b.matmul(x, y)?])
    });
    assert_eq!(names(&g), ["fused_take_relu_relu", "matmul", "matmul"]);
}

#[test]
fn operands_are_computed_where_views_of_them_are_read() {
    let g = graph(|b| {
        let (x, w) = (input(b, [2, 3, 8]), input(b, [6, 8]));
        let (x, w) = (relu(b, x)?, relu(b, w)?);
        let (x, w) = (b.reshape(x, [6, 8])?, b.transpose(w)?);
        Ok([b.matmul(x, w)?])
    });
    assert_eq!(names(&g), ["fused_relu_relu_matmul"]);
    let numbers = |n: usize| (0..n).map(|i| (i * 7919 % 1000) as f64 / 500.0 - 1.0).collect();
    let data: Vec<Data> = vec![numbers(48), numbers(48)];
    let run = |options| eval::program(&lower(&g, options, &Target::CPU).unwrap(), &data);
    assert_eq!(run(FusionOptions::ALL), run(FusionOptions::NONE));
}
