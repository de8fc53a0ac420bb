//! The text of programs: one small graph per fact.

use super::*;

#[track_caller]
fn check(graph: &Graph, expected: &str) {
    let text = lower(graph, FusionOptions::ALL, &Target::CPU).unwrap().to_string();
    let lines = |s: &str| s.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(text.trim()), lines(expected.trim()), "\n{text}");
}

#[test]
fn a_fused_map_loads_each_operand_once() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 3]), input(b, [3]));
        let s = b.mul(x, y)?;
        Ok([b.add(s, y)?])
    });
    check(
        &g,
        "
b0 = argument 0: f32[6]
b1 = argument 1: f32[3]
b2 = f32[6]
fused_fma over [2, 3]
  v0 = load b0[3*i0 + i1]
  v1 = load b1[i1]
  v2 = mul(v0, v1): f32
  v3 = add(v2, v1): f32
  b2[3*i0 + i1] = v3
outputs: [b2]
",
    );
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
    check(
        &g,
        "
b0 = argument 0: f32[8]
b1 = argument 1: f32[12]
b2 = argument 2: f32[3]
b3 = f32[6]
fused_matmul_add_relu over [2, 3 | 4]
  matmul b0[4*i0 + i2] by b1[4*i1 + i2]
  v0 = core: f32
  v1 = load b2[i1]
  v2 = add(v0, v1): f32
  v3 = 0.0:f32
  v4 = maximum(v2, v3): f32
  b3[3*i0 + i1] = v4
outputs: [b3]
",
    );
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
    check(
        &g,
        "
b0 = argument 0: i8[8]
b1 = argument 1: u8[12]
b2 = f32[6]
fused_cast_cast_matmul_cast over [2, 3 | 4]
  matmul b0[4*i0 + i2] by b1[4*i1 + i2] in i32
  v0 = core: i32
  v1 = cast(v0): f32
  b2[3*i0 + i1] = v1
outputs: [b2]
",
    );
}

#[test]
fn a_reduction_has_prologue_and_epilogue() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 5, 3]), input(b, [2, 5, 3]));
        let p = b.mul(x, y)?;
        let m = mean(b, p, AxisSet::one(1), true)?;
        Ok([b.reshape(m, [6])?])
    });
    check(
        &g,
        "
b0 = argument 0: f32[30]
b1 = argument 1: f32[30]
b2 = f32[6]
fused_mul_reduce_sum_div over [2, 3 | 5]
  prologue:
    v0 = load b0[15*i0 + i1 + 3*i2]
    v1 = load b1[15*i0 + i1 + 3*i2]
    v2 = mul(v0, v1): f32
  reduce sum v2
  v0 = core: f32
  v1 = 5.0:f32
  v2 = div(v0, v1): f32
  b2[3*i0 + i1] = v2
outputs: [b2]
",
    );
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
    check(
        &g,
        "
b0 = argument 0: f32[24]
b1 = argument 1: f32[24]
b2 = argument 2: f32[8]
b3 = f32[24]
fused_add_mul over [4, 2, 3]
  v0 = load b0[6*i0 + 3*i1 + i2]
  v1 = load b1[i0 + 12*i1 + 4*i2]
  v2 = add(v0, v1): f32
  v3 = load b2[2*i0 + i1]
  v4 = mul(v2, v3): f32
  b3[6*i0 + 3*i1 + i2] = v4
outputs: [b3]
",
    );
}

#[test]
fn a_pad_fills_then_stores_with_strides() {
    let g = graph(|b| {
        let x = input(b, [2]);
        let dim = girih_ir::ops::PadDim { low: 1, high: 2, interior: 1 };
        Ok([b.pad(x, vec![dim], girih_ir::Literal::from_f64(DType::F32, 7.0))?])
    });
    check(
        &g,
        "
b0 = argument 0: f32[2]
b1 = f32[6]
pad_fill over [6]
  v0 = 7.0:f32
  b1[i0] = v0
pad over [2]
  v0 = load b0[i0]
  b1[1 + 2*i0] = v0
outputs: [b1]
",
    );
}

#[test]
fn a_large_pad_fills_its_border() {
    let g = graph(|b| {
        let x = input(b, [100, 400]);
        let dim = |low, high| girih_ir::ops::PadDim { low, high, interior: 0 };
        Ok([b.pad(x, vec![dim(2, 1), dim(1, 3)], girih_ir::Literal::from_f64(DType::F32, 7.0))?])
    });
    check(
        &g,
        "
b0 = argument 0: f32[40000]
b1 = f32[41612]
pad_border over [1]
  pad_fill over [809]
    v0 = 7.0:f32
    b1[i0] = v0
  pad_fill over [99, 4]
    v0 = 7.0:f32
    b1[1209 + 404*i0 + i1] = v0
  pad_fill over [407]
    v0 = 7.0:f32
    b1[41205 + i0] = v0
pad over [100, 400]
  v0 = load b0[400*i0 + i1]
  b1[809 + 404*i0 + i1] = v0
outputs: [b1]
",
    );
}

#[test]
fn gather_and_scatter_name_stride_and_size_of_their_axis() {
    let g = graph(|b| {
        let (x, i) = (input(b, [9, 4]), b.input(TensorSpec::new([3], DType::I64)));
        let t = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[x, i])?;
        let attrs = Attrs::Scatter { axis: 0, size: 9 };
        Ok([b.emit(Op::new(OpCode::ScatterAdd, attrs), &[i, t])?])
    });
    check(
        &g,
        "
b0 = argument 0: f32[36]
b1 = argument 1: i64[3]
b2 = f32[36]
fused_take_scatter_add over [3, 4]
  scatter_add + 4*b1[i0] of 9, independent [1]
  v0 = load b1[i0]
  v1 = gather b0[i1] + 4*v0 of 9
  b2[i1] = v1
outputs: [b2]
",
    );
}
