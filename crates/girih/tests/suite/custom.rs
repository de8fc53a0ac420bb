//! Tests of custom ops made of kernels: their results as part of programs, under transforms and in
//! files.

use girih::custom::{CustomOp, HostView, HostViewMut, KernelOp, custom, register_custom};
use girih::{DType, Program, Result, Tensor, grad, vmap};
use std::sync::Arc;

const SOFTSIGN: &str = "\
b0 = argument 0: {T}[{m*k}]
b1 = {T}[{m}]
b2 = {T}[{m*k}]
norms over [{m} | {k}]
  prologue:
    v0 = load b0[{k}*i0 + i1]
    v1 = abs(v0): {T}
  reduce max v1
  v0 = core: {T}
  v1 = 1.0:{T}
  v2 = add(v0, v1): {T}
  b1[i0] = v2
scaled over [{m}, {k}]
  v0 = load b0[{k}*i0 + i1]
  v1 = load b1[i0]
  v2 = div(v0, v1): {T}
  v3 = tanh(v2): {T}
  b2[{k}*i0 + i1] = v3
outputs: [b2]";

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

fn softsign(name: &str) -> KernelOp {
    let dtypes = vec![("T".to_string(), FLOATS.to_vec())];
    KernelOp::new(name, 1, "T[m, k] -> T[m, k]", dtypes, SOFTSIGN).unwrap()
}

fn values(count: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 37) % 29) as f64 / 8.0 - 1.5).collect()
}

fn tensor(count: usize, shape: &[usize], dtype: DType) -> Tensor {
    Tensor::from_slice(&values(count), shape.to_vec()).unwrap().astype(dtype).unwrap()
}

/// The result of the portable executor.
fn portable(op: &KernelOp, x: &Tensor) -> Vec<u8> {
    let (spec, data) = (x.spec(), x.to_bytes().unwrap());
    let mut out = vec![0; spec.size_bytes()];
    let view = HostView { spec: spec.clone(), bytes: &data };
    op.run(&[view], &mut [HostViewMut { spec, bytes: &mut out }]).unwrap();
    out
}

#[test]
fn generated_code_gives_the_bits_of_the_portable_executor() -> Result<()> {
    let own = softsign("test.bits");
    let op: Arc<dyn CustomOp> = Arc::new(own.clone());
    for dtype in FLOATS {
        for (m, k) in [(1, 1), (3, 7), (16, 33), (5, 1000), (300, 3)] {
            let x = tensor(m * k, &[m, k], dtype);
            let y = custom(&op, &[&x])?.remove(0);
            assert_eq!(y.to_bytes()?, portable(&own, &x), "{dtype} {m} {k}");
        }
    }
    Ok(())
}

#[test]
fn operands_are_views_and_neighbours_are_fused() -> Result<()> {
    let own = softsign("test.views");
    let op: Arc<dyn CustomOp> = Arc::new(own.clone());
    let x = tensor(12, &[4, 3], DType::F64);
    let turned = x.t()?;
    let y = custom(&op, &[&turned.neg()?])?.remove(0).add(1.0)?;
    let dense = Tensor::from_slice(&turned.neg()?.to_vec::<f64>()?, vec![3, 4])?;
    let expected: Vec<f64> = custom(&op, &[&dense])?.remove(0).to_vec()?;
    let expected: Vec<f64> = expected.into_iter().map(|v| v + 1.0).collect();
    assert_eq!(y.to_vec::<f64>()?, expected);
    Ok(())
}

#[test]
fn a_batch_equals_a_loop() -> Result<()> {
    let op: Arc<dyn CustomOp> = Arc::new(softsign("test.batch"));
    let x = tensor(4 * 6, &[4, 2, 3], DType::F64);
    let batched = vmap(|x| custom(&op, &[&x[0]]), &[Some(0)])(std::slice::from_ref(&x))?.remove(0);
    let all = batched.to_vec::<f64>()?;
    for (i, member) in x.to_vec::<f64>()?.chunks(6).enumerate() {
        let alone = custom(&op, &[&Tensor::from_slice(member, vec![2, 3])?])?.remove(0);
        assert_eq!(alone.to_vec::<f64>()?, all[6 * i..6 * i + 6]);
    }
    Ok(())
}

#[test]
fn a_missing_rule_is_an_error_where_a_derivative_is_taken() -> Result<()> {
    let none: Arc<dyn CustomOp> = Arc::new(softsign("test.none"));
    let x = tensor(6, &[2, 3], DType::F64);
    let sum = |op: &Arc<dyn CustomOp>, x: &Tensor| custom(op, &[x])?.remove(0).sum_all();
    let error = grad(|x| sum(&none, &x[0]))(std::slice::from_ref(&x)).unwrap_err().to_string();
    assert!(error.contains("'test.none' has no derivative"), "{error}");
    // Any rule serves to test that the op's own rule is used.
    let ruled = softsign("test.ruled").with_vjp(Arc::new(|v| {
        let ct = v.b.neg(v.ct)?;
        Ok([Some(ct)].into_iter().collect())
    }));
    let ruled: Arc<dyn CustomOp> = Arc::new(ruled);
    let slope = grad(|x| sum(&ruled, &x[0]))(&[x])?.remove(0);
    assert_eq!(slope.to_vec::<f64>()?, [-1.0; 6]);
    Ok(())
}

#[test]
fn the_rule_of_a_member_serves_a_batch() -> Result<()> {
    const PRODUCT: &str = "\
b0 = argument 0: {T}[{m}]
b1 = argument 1: {T}[{m}]
b2 = {T}[{m}]
product over [{m}]
  v0 = load b0[i0]
  v1 = load b1[i0]
  v2 = mul(v0, v1): {T}
  b2[i0] = v2
outputs: [b2]";
    let dtypes = vec![("T".to_string(), FLOATS.to_vec())];
    let product = KernelOp::new("test.product", 1, "T[m], T[m] -> T[m]", dtypes, PRODUCT)?;
    let product = product.with_vjp(Arc::new(|v| {
        let first = v.operand(0, |v| v.b.mul(v.ct, v.inputs[1]))?;
        let second = v.operand(1, |v| v.b.mul(v.ct, v.inputs[0]))?;
        Ok([first, second].into_iter().collect())
    }));
    let op: Arc<dyn CustomOp> = Arc::new(product);
    let (x, w) = (tensor(2 * 4 * 3, &[2, 4, 3], DType::F64), tensor(3, &[3], DType::F64));
    let plain = |x: &[Tensor]| Ok(vec![x[0].mul(&x[1])?.sin()?]);
    let own = |x: &[Tensor]| Ok(vec![custom(&op, &[&x[0], &x[1]])?.remove(0).sin()?]);
    // Two levels of batching; the second operand is unbatched, or batched in the inner level only.
    for w in [w.clone(), tensor(4 * 3, &[4, 3], DType::F64)] {
        let inner = [Some(0), (w.rank() > 1).then_some(0)];
        let gradients = |f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>| {
            let batched = vmap(vmap(f, &inner), &[Some(0), None]);
            let loss = |x: &[Tensor]| batched(x)?.remove(0).mul(&x[0])?.sum_all();
            grad(loss)(&[x.clone(), w.clone()])
        };
        for (found, expected) in gradients(&own)?.iter().zip(gradients(&plain)?) {
            assert_eq!(found.shape(), expected.shape());
            for (a, b) in found.to_vec::<f64>()?.iter().zip(expected.to_vec::<f64>()?) {
                assert!((a - b).abs() <= 1e-12, "{a} {b}");
            }
        }
    }
    Ok(())
}

#[test]
fn operands_that_do_not_fit_are_refused_where_the_op_is_recorded() {
    let op: Arc<dyn CustomOp> = Arc::new(softsign("test.refused"));
    let error = |x: Tensor| custom(&op, &[&x]).unwrap_err().to_string();
    let text = error(Tensor::from_slice(&[1_i32; 4], vec![2, 2]).unwrap());
    assert!(text.contains("operand 0 is i32[2, 2], of another dtype"), "{text}");
    let text = error(tensor(3, &[3], DType::F32));
    assert!(text.contains("of another rank"), "{text}");
    let empty = custom(&op, &[&tensor(0, &[0, 4], DType::F32)]).unwrap().remove(0);
    assert_eq!(empty.to_vec::<f32>().unwrap(), Vec::<f32>::new());
}

#[test]
fn files_name_the_op_and_its_source() -> Result<()> {
    let own = softsign("test.files");
    let op: Arc<dyn CustomOp> = Arc::new(own.clone());
    let x = tensor(6, &[2, 3], DType::F64);
    let y = custom(&op, &[&x])?.remove(0);
    let expected: Vec<f64> = y.to_vec()?;
    let y = custom(&op, &[&x])?.remove(0);
    let program = Program::capture(&[&y], &[&x])?;
    let (bytes, text) = (program.to_bytes()?, program.to_text());
    let missing = Program::from_bytes(&bytes).err().expect("the op differs").to_string();
    assert!(missing.contains("'test.files' version 1, which is not registered"), "{missing}");
    register_custom(Arc::new(own))?;
    for loaded in [Program::from_bytes(&bytes)?, Program::from_text(&text)?] {
        assert_eq!(loaded.call(&[&x])?[0].to_vec::<f64>()?, expected);
    }
    let dtypes = vec![("T".to_string(), FLOATS.to_vec())];
    let text = SOFTSIGN.replace("tanh", "sin");
    register_custom(Arc::new(KernelOp::new(
        "test.files",
        1,
        "T[m, k] -> T[m, k]",
        dtypes,
        &text,
    )?))?;
    let other = Program::from_bytes(&bytes).err().expect("the op differs").to_string();
    assert!(other.contains("give a changed kernel another version"), "{other}");
    Ok(())
}
