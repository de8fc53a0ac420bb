//! Branches and loops: their results are those of the reference, and iterations copy little.

use super::*;
use crate::{Bindings, Bounds, Driver, Hooks, Prepared, Scratch};
use girih_ir::ops::ScatterMode;
use girih_ir::ops::control::Control as Regions;
use girih_ir::testing::{region, scanned};
use girih_kernel::Core;
use girih_kernel::control::{Control, Feed};
use std::sync::Arc;

fn spec() -> TensorSpec {
    TensorSpec::new([2], DType::F64)
}

fn control_of(program: &KernelProgram) -> &Control {
    let found = program.kernels.iter().find_map(|k| match &k.core {
        Core::Control(control) => Some(&**control),
        _ => None,
    });
    found.expect("there is a control kernel")
}

#[test]
fn constants_are_no_operands_of_a_loop_and_may_initialise_a_carry() {
    let g = graph(|b| {
        let start = b.leaf(OpCode::Constant.into(), spec());
        let k = b.leaf(OpCode::Constant.into(), spec());
        let zero = b.constant(Literal::from_f64(DType::F64, 0.5), [4, 2]);
        let op = Op::control(OpCode::Scan, scanned(4, false), 0);
        let last = b.emit(op, &[start, zero, k])?;
        let op = Op::control(OpCode::Scan, scanned(4, false), 1);
        Ok(vec![last, b.emit(op, &[start, zero, k])?])
    });
    let program = lowered(&g, FusionOptions::ALL);
    assert_eq!(program.kernels.len(), 1, "{program}");
    let feeds = &control_of(&program).operands;
    assert!(matches!(feeds[..], [Feed::Splat { numel: 2, .. }, Feed::Nothing, Feed::Nothing]));
    // The scalars are the graph's arguments.
    let found = run_to_f64(&program, &[vec![3.0], vec![2.0]]);
    let stack = [3.5, 3.5, 6.5, 6.5, 12.5, 12.5, 24.5, 24.5];
    assert_eq!(found.concat(), [&[48.0, 48.0][..], &stack].concat());
}

/// A loop that sets elements of its carry to a value, at one index per iteration.
fn setting(keep: bool) -> Graph {
    let wide = || TensorSpec::new([40], DType::F64);
    let (at, value) = (TensorSpec::new([1], DType::I64), TensorSpec::new([1], DType::F64));
    let body = region(&[wide(), at, value.clone()], |b, x| {
        let set = Attrs::ScatterInto { axis: 0, mode: ScatterMode::Set };
        let next = b.emit(Op::new(OpCode::Scatter, set), x)?;
        Ok(if keep { vec![next, x[0]] } else { vec![next] })
    });
    let control = Regions { carries: 1, slices: 1, length: 3.into(), ..Regions::default() };
    let op = Op::control(OpCode::Scan, Arc::new(control.with_regions(vec![body])), 0);
    graph(|b| {
        let x = b.input(wide());
        let (at, value) = (b.input(TensorSpec::new([3, 1], DType::I64)), b.input(value));
        let last = b.emit(op, &[x, at, value])?;
        Ok(vec![last, b.neg(x)?])
    })
}

#[test]
fn a_partially_updated_carry_is_updated_in_place() {
    let x: Data = (0..40).map(f64::from).collect();
    for keep in [false, true] {
        let program = lowered(&setting(keep), FusionOptions::ALL);
        let control = control_of(&program);
        assert_eq!(control.is_updated(0), !keep, "{program}");
        assert_eq!(control.workspace.is_some(), keep, "a stored history needs a workspace");
        let found = run_to_f64(&program, &[x.clone(), vec![5.0, -1.0, 7.0], vec![0.5]]);
        let mut want = x.clone();
        [5, 39, 7].into_iter().for_each(|i| want[i] = 0.5);
        assert_eq!(found[0], want);
        assert_eq!(found[1], x.iter().map(|v| -v).collect::<Data>(), "the initial value stays");
    }
}

#[test]
fn a_carry_updated_in_place_is_not_copied_by_iterations() {
    let program = lowered(&setting(false), FusionOptions::ALL);
    let control = control_of(&program);
    let prepared: Vec<Prepared> = control.body().kernels.iter().map(Prepared::new).collect();
    let mut memory: Vec<Vec<u64>> = program.buffers.iter().map(|b| vec![0; b.numel]).collect();
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    let bounds: Vec<Bounds> = memory.iter().map(|m| Bounds::of(8 * m.len())).collect();
    let (workspace, bounds) = (std::ptr::null_mut(), Some(&bounds[..]));
    let bindings = Bindings { buffers: &buffers, arguments: &[], workspace, bounds };
    let (mut done, mut ran, mut scratch) = (0, 0, Scratch::new());
    let mut launch = |_: usize, kernel: usize, bindings: &Bindings<'_>| {
        match prepared[kernel].is_done(bindings) {
            true => done += 1,
            false => ran += 1,
        }
        // SAFETY: the driver's bindings are the kernel's.
        unsafe { prepared[kernel].run(bindings, &mut scratch) }
    };
    let hooks = Hooks { run: &mut launch, strided: &mut |_, _| None, proceed: &mut || Ok(()) };
    // SAFETY: the buffers have the program's sizes, and only this thread uses them.
    unsafe { Driver::new(control).run(&bindings, hooks) }.unwrap();
    assert_eq!((done, ran), (3, 3), "the copy is done, the element is set");
}

/// A body drawn from `choices`: each of three carries and two stacks is a value that is an input or
/// an op on earlier values.
fn random_body(choices: &[(u8, u8, u8)], outputs: &[u8]) -> Graph {
    region(&vec![spec(); 6], |b, inputs| {
        let mut values = inputs.to_vec();
        for &(op, x, y) in choices {
            let (x, y) = (values[x as usize % values.len()], values[y as usize % values.len()]);
            values.push(match op % 5 {
                0 => b.add(x, y)?,
                1 => b.sub(x, y)?,
                2 => b.maximum(x, y)?,
                3 => b.neg(x)?,
                _ => {
                    let sum = b.sum(x, AxisSet::all(1), true)?;
                    b.sub(y, sum)?
                }
            });
        }
        Ok(outputs.iter().map(|&o| values[o as usize % values.len()]).collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn loops_agree_with_the_reference(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 0..6),
        outputs in prop::collection::vec(any::<u8>(), 5),
        length in 0usize..9,
        reverse: bool,
        asked in prop::collection::vec(0usize..8, 1..6),
        constants in 0u8..8,
    ) {
        // Three carries, one slice, two captured values; some of them constants.
        let body = random_body(&choices, &outputs);
        let control = Regions { carries: 3, slices: 1, length: length.into(), reverse, ..Regions::default() };
        let control = Arc::new(control.with_regions(vec![body]));
        let g = graph(|b| {
            let mut operands = Vec::new();
            for i in 0..6 {
                let spec = if i == 3 { TensorSpec::new([length, 2], DType::F64) } else { spec() };
                let literal = Literal::from_f64(DType::F64, 0.5 * i as f64);
                operands.push(match constants >> (i / 2) & 1 == 1 && i % 2 == 0 {
                    true => b.constant(literal, spec.shape),
                    false => b.input(spec),
                });
            }
            let result = |&n: &usize| {
                b.emit(Op::control(OpCode::Scan, control.clone(), n), &operands)
            };
            asked.iter().map(result).collect::<Result<Vec<_>>>()
        });
        let value = |(i, id): (usize, NodeId)| {
            let spec = g.spec(id).clone();
            let count = spec.numel();
            Array::from_f64(spec.shape, DType::F64, &(0..count).map(|j| (i * 7 + j * 3) as f64 - 4.0).collect::<Vec<_>>())
        };
        let arguments: Vec<Array> = g.arguments().enumerate().map(value).collect();
        let want = evaluate(&g, &arguments).unwrap();
        let program = lowered(&g, FusionOptions::ALL);
        let data: Vec<Data> = arguments.iter().map(Array::to_f64).collect();
        for (got, want) in run_to_f64(&program, &data).iter().zip(&want) {
            prop_assert_eq!(got, &want.to_f64(), "{}\n{}", g, program);
        }
    }

    #[test]
    fn conditional_loops_agree_with_the_reference(
        choices in prop::collection::vec(any::<(u8, u8, u8)>(), 0..6),
        outputs in prop::collection::vec(any::<u8>(), 5),
        limit in 0i64..5,
        swap: bool,
    ) {
        // A counter, and five carries of the random body, which may be permuted.
        let inner = random_body(&choices, &outputs);
        let mut specs = vec![spec(); 6];
        specs.insert(0, TensorSpec::scalar(DType::I64));
        let condition = region(&specs, |b, x| {
            let limit = b.scalar(DType::I64, limit as f64);
            Ok(vec![b.lt(x[0], limit)?])
        });
        let body = region(&specs, |b, x| {
            let one = b.scalar(DType::I64, 1.0);
            let mut out = vec![b.add(x[0], one)?];
            out.extend(b.inline(&inner, &x[1..])?);
            if swap {
                out[1] = x[2];
                out[2] = x[1];
            }
            Ok(out)
        });
        let control = Regions { carries: 6, ..Regions::default() }.with_regions(vec![condition, body]);
        let control = Arc::new(control);
        let g = graph(|b| {
            let operands: Vec<NodeId> = specs.iter().map(|s| b.input(s.clone())).collect();
            let result = |n| b.emit(Op::control(OpCode::WhileLoop, control.clone(), n), &operands);
            [1, 2, 5].map(result).into_iter().collect::<Result<Vec<_>>>()
        });
        let value = |(i, id): (usize, NodeId)| match i {
            0 => Array::from_f64([], DType::I64, &[0.0]),
            _ => Array::from_f64(g.spec(id).shape.clone(), DType::F64, &[i as f64 - 3.0, 2.0 * i as f64]),
        };
        let arguments: Vec<Array> = g.arguments().enumerate().map(value).collect();
        let want = evaluate(&g, &arguments).unwrap();
        let program = lowered(&g, FusionOptions::ALL);
        let data: Vec<Data> = arguments.iter().map(Array::to_f64).collect();
        for (got, want) in run_to_f64(&program, &data).iter().zip(&want) {
            prop_assert_eq!(got, &want.to_f64(), "{}\n{}", g, program);
        }
    }
}
