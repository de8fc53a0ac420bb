//! Library routines: their values are those of the reference.

use super::*;

fn routine(b: &mut GraphBuilder, code: OpCode, result: u8, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(code, Attrs::routine(false)).with_result(result), &[x])
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
    fn library_routines_agree_with_the_reference(
        data in prop::collection::vec(element(), 0..40),
        len in 1usize..9,
        flag: bool,
        integers: bool,
        after_the_first: bool,
    ) {
        let (dtype, shape) = (if integers { DType::I64 } else { DType::F64 }, [data.len() / len, len]);
        let data = Array::from_f64(shape, dtype, &data[..shape[0] * len]);
        let mut codes = vec![OpCode::Sort, OpCode::TopK, OpCode::SearchSorted, OpCode::OrderStatistics,
            OpCode::CumMax, OpCode::CumMin, OpCode::CumSum, OpCode::CumProd];
        if !integers {
            codes.push(OpCode::LogCumSumExp);
        }
        for code in codes {
            let two = matches!(code, OpCode::Sort | OpCode::TopK | OpCode::OrderStatistics | OpCode::CumMax | OpCode::CumMin);
            let result = (two && after_the_first) as u8;
            let size = if code == OpCode::TopK { len.div_ceil(2) as u32 } else { 0 };
            let op = Op::new(code, Attrs::Library { result, flag, size });
            let g = graph(|b| {
                let x = b.input(data.spec().clone());
                let sorted = routine(b, OpCode::Sort, 0, x)?;
                let operands = match code {
                    OpCode::SearchSorted => vec![sorted, x],
                    OpCode::OrderStatistics => vec![x, routine(b, OpCode::Sort, 1, x)?],
                    _ => vec![x],
                };
                Ok(vec![b.emit(op.clone(), &operands)?])
            });
            let want = &evaluate(&g, std::slice::from_ref(&data)).unwrap()[0];
            let program = lowered(&g, FusionOptions::ALL);
            let got = run_arrays(&program, std::slice::from_ref(&data), want.spec());
            for (i, (got, want)) in got.elements().zip(want.elements()).enumerate() {
                let (a, b) = (got.as_f64(), want.as_f64());
                let same = got.bits == want.bits || (got.is_nan() && want.is_nan());
                let near = code == OpCode::LogCumSumExp && (a - b).abs() < 1e-12;
                prop_assert!(same || near, "{:?} of {:?}: element {} is {:?}, not {:?}", op, data, i, a, want);
            }
        }
    }
}
