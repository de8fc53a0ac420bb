//! Custom ops that run: at any size of their signature, and whatever their text is.

use super::*;
use girih_ir::DType;
use girih_ir::ops::host::{HostBatching, HostCall};

const ROW_SUMS: &str = "\
b0 = argument 0: {T}[{m*k}]
b1 = argument 1: {T}[{m}]
b2 = {T}[{m}]
b3 = {T}[{m}]
row_sums over [{m} | {k}]
  prologue:
    v0 = load b0[{k}*i0 + i1]
  reduce sum v0
  v0 = core: {T}
  b2[i0] = v0
scale over [{m}]
  v0 = load b2[i0]
  v1 = load b1[i0]
  v2 = mul(v0, v1): {T}
  b3[i0] = v2
outputs: [b3]";

fn spec<const N: usize>(shape: [usize; N]) -> TensorSpec {
    TensorSpec::new(shape, DType::F64)
}

fn row_sums(text: &str) -> KernelOp {
    let dtypes = vec![("T".to_string(), vec![DType::F32, DType::F64])];
    KernelOp::new("test.row_sums", 1, "T[m, k], T[m] -> T[m]", dtypes, text).unwrap()
}

/// The bytes of f64 values.
fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn ran(op: &KernelOp, operands: &[(TensorSpec, Vec<f64>)]) -> Vec<f64> {
    let specs: Vec<&TensorSpec> = operands.iter().map(|(spec, _)| spec).collect();
    let result = op.infer(&specs).unwrap().remove(0);
    let data: Vec<Vec<u8>> = operands.iter().map(|(_, values)| bytes(values)).collect();
    let views: Vec<HostView<'_>> = operands
        .iter()
        .zip(&data)
        .map(|((spec, _), bytes)| HostView { spec: spec.clone(), bytes })
        .collect();
    let mut out = vec![0; result.size_bytes()];
    op.run(&views, &mut [HostViewMut { spec: result, bytes: &mut out }]).unwrap();
    out.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn an_op_runs_at_any_size_its_signature_takes() {
    let x = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    let op = row_sums(ROW_SUMS);
    let wide = ran(&op, &[(spec([2, 3]), x.clone()), (spec([2]), vec![1.0, -1.0])]);
    assert_eq!(wide, [6.0, -15.0]);
    let tall = ran(&op, &[(spec([6, 1]), x), (spec([6]), vec![2.0; 6])]);
    assert_eq!(tall, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
}

#[test]
fn sizes_may_be_differences_and_strides_negative() {
    let text = "b0 = argument 0: f64[{n}]\nb1 = f64[{n-300}]\nlast over [{n-300}]\n  \
                v0 = load b0[{n-1} + {0-1}*i0]\n  b1[i0] = v0\noutputs: [b1]";
    let op = KernelOp::new("k", 1, "f64[n] -> f64[n-300]", Vec::new(), text).unwrap();
    let x: Vec<f64> = (0..303).map(f64::from).collect();
    assert_eq!(ran(&op, &[(spec([303]), x)]), [302.0, 301.0, 300.0]);
}

#[test]
fn the_source_is_part_of_the_key() {
    let key = |text: &str| {
        let op = Arc::new(row_sums(text));
        HostCall::new(op, vec![spec([2])], HostBatching::Sequential, false).key().to_string()
    };
    assert_eq!(key(ROW_SUMS), key(ROW_SUMS));
    assert_ne!(key(ROW_SUMS), key(&ROW_SUMS.replace("mul(v0, v1)", "add(v0, v1)")));
}

/// Programs that the verifier accepts run: no mutation of a text makes the executor panic.
#[test]
fn mutated_kernels_are_refused_or_run() {
    const TOKENS: [&[u8]; 16] = [
        b"i0",
        b"i1",
        b"v0",
        b"v1",
        b"b2",
        b"prod",
        b"argmax",
        b"f32",
        b"i64",
        b"bool",
        b"+ 1",
        b"2*",
        b"exp(v0)",
        b"cast(v0): i64",
        b" | ",
        b"iota i0: f64",
    ];
    let texts = [
        ROW_SUMS.replace("{T}", "f64").replace("{m*k}", "6").replace("{m}", "2").replace("{k}", "3"),
        "b0 = argument 0: f64[6]\nb1 = argument 1: f64[2]\nb2 = i64[2]\nb3 = f64[2]\nnumbers over [2]\n  \
         v0 = load b1[i0]\n  v1 = cast(v0): i64\n  b2[i0] = v1\nput over [2, 3]\n  \
         scatter_max + 1*b2[i0] of 2, independent []\n  v0 = load b0[3*i0 + i1]\n  b3[0] = v0\noutputs: [b3]"
            .to_string(),
    ];
    let (mut rng, mut ran) = (girih_ir::testing::Rng(11), 0);
    let rounds = girih_ir::testing::mutations(40_000);
    for round in 0..rounds {
        let mut bytes = texts[round % texts.len()].clone().into_bytes();
        girih_ir::testing::mutate(&mut bytes, &TOKENS, &mut rng);
        let text = String::from_utf8_lossy(&bytes);
        let op = KernelOp::new("k", 1, "f64[2, 3], f64[2] -> f64[2]", Vec::new(), &text);
        let (x, y) = (spec([2, 3]), spec([2]));
        if op.as_ref().is_ok_and(|op| op.template.program(&[&x, &y]).is_ok()) {
            let op = op.expect("it has a program");
            let (x, y) = (bytes_of(6), bytes_of(2));
            let views = [
                HostView { spec: spec([2, 3]), bytes: &x },
                HostView { spec: spec([2]), bytes: &y },
            ];
            let mut out = vec![0; 16];
            // An index out of bounds is an error, not a panic.
            let _ = op.run(&views, &mut [HostViewMut { spec: spec([2]), bytes: &mut out }]);
            ran += 1;
        }
    }
    assert!(ran > rounds / 1000, "{ran} of {rounds} mutated kernels ran");
}

fn bytes_of(count: usize) -> Vec<u8> {
    bytes(&(0..count).map(|i| i as f64).collect::<Vec<_>>())
}
