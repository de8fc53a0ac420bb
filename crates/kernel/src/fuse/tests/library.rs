//! Library routines: their results and operands in programs, and their values against the
//! reference.

use super::registry::run;
use super::*;
use girih_ir::reference::{Array, evaluate};
use proptest::prelude::*;

fn routine(b: &mut GraphBuilder, code: OpCode, result: u8, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(code, Attrs::routine(false)).with_result(result), &[x])
}

#[test]
fn one_kernel_computes_the_results_that_are_needed() {
    let both = graph(|b| {
        let x = input(b, [2, 4]);
        let indices = routine(b, OpCode::Sort, 1, x)?;
        let y = b.neg(x)?;
        Ok([y, routine(b, OpCode::Sort, 0, x)?, indices])
    });
    let program = lower(&both, FusionOptions::ALL, &Target::CPU).unwrap();
    insta::assert_snapshot!(program, @r"
    b0 = argument 0: f32[8]
    b1 = f32[8]
    b2 = i64[8]
    b3 = f32[8]
    sort over [2]
      b1[4], b2[4] = sort(result=0, size=0)(b0[4])
    neg over [8]
      v0 = load b0[i0]
      v1 = neg(v0): f32
      b3[i0] = v1
    outputs: [b3, b1, b2]
    ");
    let indices = graph(|b| {
        let x = input(b, [4]);
        routine(b, OpCode::Sort, 0, x)?;
        Ok([routine(b, OpCode::Sort, 1, x)?])
    });
    let program = lower(&indices, FusionOptions::ALL, &Target::CPU).unwrap().to_string();
    assert!(program.contains("_, b1[4] = sort(result=0, size=0)(b0[4])"), "{program}");
}

#[test]
fn other_settings_or_operands_are_other_calls() {
    let g = graph(|b| {
        let x = input(b, [4]);
        let down = b.emit(Op::new(OpCode::Sort, Attrs::routine(true)), &[x])?;
        let sorted = routine(b, OpCode::Sort, 0, x)?;
        Ok([down, sorted, routine(b, OpCode::Sort, 1, sorted)?])
    });
    assert_eq!(names(&g), ["sort", "sort", "sort"]);
}

#[test]
fn routines_take_and_give_dense_memory() {
    let g = graph(|b| {
        let x = input(b, [4, 4]);
        let (t, e) = (b.transpose(x)?, b.exp(x)?);
        let (sorted, running) =
            (routine(b, OpCode::Sort, 0, t)?, routine(b, OpCode::CumSum, 0, e)?);
        let flat = b.reshape(running, [16])?;
        Ok([b.neg(sorted)?, b.neg(flat)?])
    });
    let explained = lower_explained(&g, FusionOptions::ALL, &Target::CPU).unwrap();
    let named = explained.refusals.iter().map(|r| (g.node(r.node).op.name(), r.reason));
    let expected = [
        ("permute", Refusal::Memory),
        ("exp", Refusal::Memory),
        ("sort", Refusal::Library),
        ("cumsum", Refusal::Library),
    ];
    assert_eq!(named.collect::<Vec<_>>(), expected, "{}", explained.program);
}

fn element() -> impl Strategy<Value = f64> {
    let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    prop_oneof![6 => -3i8..4, 1 => 10i8..15].prop_map(move |v| match v {
        10.. => special[v as usize - 10],
        v => v as f64,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn rows_come_out_as_the_reference_says(
        data in prop::collection::vec(element(), 0..40),
        len in 1usize..9,
        flag: bool,
        integers: bool,
        after_the_first: bool,
    ) {
        let (dtype, shape) = (if integers { DType::I64 } else { DType::F64 }, [data.len() / len, len]);
        let data = Array::from_f64(shape, dtype, &data[..shape[0] * len]);
        let mut codes = vec![OpCode::Sort, OpCode::TopK, OpCode::SearchSorted, OpCode::CumMax, OpCode::CumMin,
            OpCode::CumSum, OpCode::CumProd];
        if !integers {
            codes.push(OpCode::LogCumSumExp);
        }
        for code in codes {
            let two = matches!(code, OpCode::Sort | OpCode::TopK | OpCode::CumMax | OpCode::CumMin);
            let result = (two && after_the_first) as u8;
            let size = if code == OpCode::TopK { len.div_ceil(2) as u32 } else { 0 };
            let op = Op::new(code, Attrs::Library { result, flag, size });
            let g = graph(|b| {
                let x = b.input(data.spec().clone());
                let sorted = routine(b, OpCode::Sort, 0, x)?;
                let operands = if code == OpCode::SearchSorted { vec![sorted, x] } else { vec![x] };
                Ok([b.emit(op.clone(), &operands)?])
            });
            let want = &evaluate(&g, std::slice::from_ref(&data)).unwrap()[0];
            let program = lower(&g, FusionOptions::ALL, &Target::CPU).unwrap();
            let got = run(&program, std::slice::from_ref(&data), want.spec());
            for (i, (got, want)) in got.elements().zip(want.elements()).enumerate() {
                let (a, b) = (got.as_f64(), want.as_f64());
                let same = got.bits == want.bits || (got.is_nan() && want.is_nan());
                let near = code == OpCode::LogCumSumExp && (a - b).abs() < 1e-12;
                prop_assert!(same || near, "{:?} of {:?}: element {} is {:?}, not {:?}", op, data, i, a, want);
            }
        }
    }
}
