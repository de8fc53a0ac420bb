//! Functions that run over several rows: the same bits as a call per row.

use super::*;
use girih_exec::{Chain, ChainFold, ChainOp, Def};

const F32: DType = DType::F32;

/// A chain under construction.
#[derive(Default)]
struct Defs(Vec<Def>);

impl Defs {
    fn push(&mut self, def: Def) -> u16 {
        self.0.push(def);
        self.0.len() as u16 - 1
    }

    fn op(&mut self, code: OpCode, args: &[u16]) -> u16 {
        let args = SmallVec::from_slice(args);
        self.push(Def::Op { op: ChainOp::Op(code, F32), args, dtype: F32 })
    }
}

/// `x * scale + sin(x)`, where `scale` is one element per row, its sum, and, with `many` values,
/// more values at a time than there are registers.
fn chain(many: usize, folded: bool) -> Chain {
    let mut defs = Defs::default();
    let x = defs.push(Def::Input { dtype: F32, step: 1, beside: None });
    let scale = defs.push(Def::Input { dtype: F32, step: 0, beside: None });
    let scaled = defs.op(OpCode::Mul, &[x, scale]);
    let sine = defs.op(OpCode::Sin, &[x]);
    let mut sum = defs.op(OpCode::Add, &[scaled, sine]);
    let parts: Vec<u16> = (0..many)
        .map(|i| {
            let bits = u64::from((i as f32 + 1.5).to_bits());
            let constant = defs.push(Def::Constant { dtype: F32, bits });
            defs.op(OpCode::Mul, &[sum, constant])
        })
        .collect();
    for part in parts.into_iter().rev() {
        sum = defs.op(OpCode::Add, &[sum, part]);
    }
    let fold = ChainFold { value: sum, op: OpCode::Add, identity: 0 };
    Chain { defs: defs.0, outputs: vec![sum], fold: folded.then_some(fold), streamed: false }
}

#[test]
fn rows_in_one_call_have_the_bits_of_a_call_per_row() {
    at_each_level(|| {
        for (many, folded) in [(0, false), (0, true), (40, false), (12, true)] {
            let chain = chain(many, folded);
            let function = crate::jit::compile(&chain, "rows").expect("a function");
            for n in [0, 1, 7, 16, 33, 512] {
                for (rows, x_step, scale_step) in [(0, 4, 0), (1, 8, 1), (2, 0, 1), (5, 520, -3)] {
                    check(&*function, folded, n, (rows, x_step, scale_step));
                }
            }
        }
    });
}

/// Compares the rows of one call with a call per row, for these steps in elements.
fn check(
    function: &dyn girih_exec::Compiled,
    folded: bool,
    n: usize,
    (rows, x_step, scale_step): (usize, isize, isize),
) {
    // An argument of the sine beyond the range of its vector code, which needs a call.
    let mut x: Vec<f32> = (0..4000).map(|i| i as f32 * 0.37 - 400.0).collect();
    x[5] = 1e9;
    let mut scale: Vec<f32> = (0..40).map(|i| 0.25 * i as f32 - 3.0).collect();
    let pitch = n + 3;
    let blank = || (vec![-1f32; 5 * pitch], vec![-1f32; 5]);
    let ((mut out, mut totals), (mut wanted, mut wanted_totals)) = (blank(), blank());
    let count = if folded { 4 } else { 3 };
    let size = size_of::<f32>() as isize;
    let steps = [x_step, scale_step, pitch as isize, 1].map(|step| step * size);
    let (x, scale) = (x.as_mut_ptr(), scale[20..].as_mut_ptr());
    for row in 0..rows as isize {
        // SAFETY: the rows are within the vectors, and aligned to their elements.
        unsafe {
            let out = wanted.as_mut_ptr().offset(row * pitch as isize);
            let total = wanted_totals.as_mut_ptr().offset(row);
            let (x, scale) = (x.offset(row * x_step), scale.offset(row * scale_step));
            function.run(&[x.cast(), scale.cast(), out.cast(), total.cast()][..count], n);
        }
    }
    let mut pointers =
        [x.cast(), scale.cast(), out.as_mut_ptr().cast(), totals.as_mut_ptr().cast()];
    // SAFETY: as above.
    unsafe { function.run_rows(&mut pointers[..count], n, (rows, &steps[..count])) };
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let context = format!("{rows} rows of {n}");
    assert_eq!(bits(&out), bits(&wanted), "{context}");
    assert_eq!(bits(&totals), bits(&wanted_totals), "{context}");
}
