//! Library routines: their results and operands in programs.

use super::*;

fn routine(b: &mut GraphBuilder, code: OpCode, result: u8, x: NodeId) -> Result<NodeId> {
    b.emit(Op::new(code, Attrs::routine(false)).with_result(result), &[x])
}

#[test]
fn one_library_call_computes_all_needed_results() {
    let both = graph(|b| {
        let x = input(b, [2, 4]);
        let indices = routine(b, OpCode::Sort, 1, x)?;
        let y = b.neg(x)?;
        Ok([y, routine(b, OpCode::Sort, 0, x)?, indices])
    });
    let program = lower(&both, FusionOptions::ALL, &Target::CPU).unwrap();
    golden!("fuse/one_library_call_computes_all_needed_results.txt", program);
    let indices = graph(|b| {
        let x = input(b, [4]);
        routine(b, OpCode::Sort, 0, x)?;
        Ok([routine(b, OpCode::Sort, 1, x)?])
    });
    let program = lower(&indices, FusionOptions::ALL, &Target::CPU).unwrap().to_string();
    assert!(program.contains("_, b1[4] = sort(result=0, size=0)(b0[4])"), "{program}");
}

#[test]
fn library_calls_with_other_settings_or_operands_are_separate() {
    let g = graph(|b| {
        let x = input(b, [4]);
        let down = b.emit(Op::new(OpCode::Sort, Attrs::routine(true)), &[x])?;
        let sorted = routine(b, OpCode::Sort, 0, x)?;
        Ok([down, sorted, routine(b, OpCode::Sort, 1, sorted)?])
    });
    assert_eq!(names(&g), ["sort", "sort", "sort"]);
}

#[test]
fn library_routines_read_and_write_dense_memory() {
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
