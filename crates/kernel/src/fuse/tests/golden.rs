//! The text of programs: one small graph per fact, with a file in `tests/golden/fuse`.

use super::*;

#[track_caller]
fn check(graph: &Graph, file: &str) {
    let program = lower(graph, FusionOptions::ALL, &Target::CPU).unwrap();
    golden!(format!("fuse/{file}.txt"), program);
}

#[test]
fn a_fused_map_loads_each_operand_once() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 3]), input(b, [3]));
        let s = b.mul(x, y)?;
        Ok([b.add(s, y)?])
    });
    check(&g, "a_fused_map_loads_each_operand_once");
}

#[test]
fn a_matmul_reads_a_transposed_operand_in_place_and_adds_its_bias() {
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [2, 4]), input(b, [3, 4]), input(b, [3]));
        let w = b.transpose(w)?;
        let y = b.matmul(x, w)?;
        let y = b.add(y, bias)?;
        Ok([relu(b, y)?])
    });
    check(&g, "a_matmul_reads_a_transposed_operand_in_place_and_adds_its_bias");
}

#[test]
fn a_gemm_extends_integers_as_it_reads_them() {
    let g = graph(|b| {
        let x = b.input(TensorSpec::new([2, 4], DType::I8));
        let w = b.input(TensorSpec::new([3, 4], DType::U8));
        let (x, w) = (b.cast(x, DType::I32)?, b.cast(w, DType::I32)?);
        let w = b.transpose(w)?;
        let y = b.matmul(x, w)?;
        Ok([b.cast(y, DType::F32)?])
    });
    check(&g, "a_gemm_extends_integers_as_it_reads_them");
}

#[test]
fn a_reduction_has_prologue_and_epilogue() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 5, 3]), input(b, [2, 5, 3]));
        let p = b.mul(x, y)?;
        let m = mean(b, p, AxisSet::one(1), true)?;
        Ok([b.reshape(m, [6])?])
    });
    check(&g, "a_reduction_has_prologue_and_epilogue");
}

#[test]
fn a_reshape_splits_a_dimension_and_merges_another() {
    let g = graph(|b| {
        let (x, y) = (input(b, [4, 6]), input(b, [6, 4]));
        let t = b.transpose(y)?;
        let s = b.add(x, t)?;
        let r = b.reshape(s, [8, 3])?;
        let z = input(b, [8, 1]);
        Ok([b.mul(r, z)?])
    });
    check(&g, "a_reshape_splits_a_dimension_and_merges_another");
}

#[test]
fn a_pad_fills_then_stores_with_strides() {
    let g = graph(|b| {
        let x = input(b, [2]);
        let dim = girih_ir::ops::PadDim { low: 1, high: 2, interior: 1 };
        Ok([b.pad(x, vec![dim], girih_ir::Literal::from_f64(DType::F32, 7.0))?])
    });
    check(&g, "a_pad_fills_then_stores_with_strides");
}

#[test]
fn a_large_pad_fills_its_border() {
    let g = graph(|b| {
        let x = input(b, [100, 400]);
        let dim = |low, high| girih_ir::ops::PadDim { low, high, interior: 0 };
        Ok([b.pad(x, vec![dim(2, 1), dim(1, 3)], girih_ir::Literal::from_f64(DType::F32, 7.0))?])
    });
    check(&g, "a_large_pad_fills_its_border");
}

#[test]
fn gather_and_scatter_name_stride_and_size_of_their_axis() {
    let g = graph(|b| {
        let (x, i) = (input(b, [9, 4]), b.input(TensorSpec::new([3], DType::I64)));
        let t = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[x, i])?;
        let attrs = Attrs::Scatter { axis: 0, size: 9 };
        Ok([b.emit(Op::new(OpCode::ScatterAdd, attrs), &[i, t])?])
    });
    check(&g, "gather_and_scatter_name_stride_and_size_of_their_axis");
}
