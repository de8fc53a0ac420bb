//! No kernel stores a value that nothing reads: neither in memory nor as a local.

use super::*;
use crate::ir::{BufferId, Core, Inst, Kernel, KernelProgram};
use girih_ir::Literal;
use girih_ir::ops::{PadDim, ScatterMode, SliceDim};

/// The buffers that a map, a reduction or a GEMM stores for nothing. Kernels that check indices may
/// do so.
pub(super) fn unread(program: &KernelProgram) -> Vec<BufferId> {
    let parts = |kernel: &Kernel| match &kernel.core {
        Core::Rows(rows) => rows.parts.clone(),
        _ => vec![kernel.clone()],
    };
    let kernels: Vec<Kernel> = program.kernels.iter().flat_map(parts).collect();
    let reads: Vec<BufferId> = kernels.iter().flat_map(Kernel::reads).collect();
    let checks = |kernel: &&Kernel| {
        let looks_up = |inst: &Inst| matches!(inst, Inst::Gather { .. } | Inst::Wrap { .. });
        let prologue = match &kernel.core {
            Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        prologue.into_iter().chain([&kernel.body]).any(|b| b.insts.iter().any(looks_up))
    };
    let stores = kernels.iter().filter(|kernel| !checks(kernel)).flat_map(Kernel::all_stores);
    let written = stores.map(|store| store.access.buffer);
    written.filter(|id| !reads.contains(id) && !program.outputs.contains(id)).collect()
}

/// An update of a value by a part of itself.
type Update = fn(&mut GraphBuilder, NodeId) -> Result<NodeId>;

fn row(start: usize, size: usize) -> Vec<SliceDim> {
    vec![SliceDim { start, size, step: 1 }]
}

/// Replaces a part of `y` by another part of it.
fn moved(b: &mut GraphBuilder, y: NodeId, from: usize, to: usize, size: usize) -> Result<NodeId> {
    let part = b.slice(y, row(from, size))?;
    b.emit(Op::new(OpCode::UpdateSlice, Attrs::Slice(row(to, size).into())), &[y, part])
}

fn scattered(b: &mut GraphBuilder, y: NodeId, code: OpCode, mode: ScatterMode) -> Result<NodeId> {
    let part = b.slice(y, row(0, 1))?;
    let index = b.constant(Literal::from_i64(DType::I64, 2), [1]);
    let updates = b.op(OpCode::Neg, &[part])?;
    b.emit(Op::new(code, Attrs::ScatterInto { axis: 0, mode }), &[y, index, updates])
}

const UPDATES: [(&str, Update); 8] = [
    ("one element", |b, y| moved(b, y, 0, 2, 1)),
    ("shifted right", |b, y| moved(b, y, 0, 1, 8)),
    ("shifted left", |b, y| moved(b, y, 1, 0, 8)),
    ("set", |b, y| scattered(b, y, OpCode::Scatter, ScatterMode::Set)),
    ("added", |b, y| scattered(b, y, OpCode::Scatter, ScatterMode::Add)),
    ("along an axis", |b, y| scattered(b, y, OpCode::ScatterAlongAxis, ScatterMode::Mul)),
    ("twice", |b, y| {
        let once = moved(b, y, 0, 2, 1)?;
        moved(b, once, 1, 4, 3)
    }),
    ("between padding", |b, y| {
        let pad = PadDim { low: 1, high: 2, interior: 1 };
        let padded = b.pad(y, vec![pad], Literal::from_f64(DType::F32, 0.0))?;
        let front = b.slice(y, row(0, 5))?;
        b.emit(Op::new(OpCode::UpdateSlice, Attrs::Slice(row(2, 5).into())), &[padded, front])
    }),
];

#[test]
fn an_update_of_a_value_by_itself_stores_nothing_that_is_not_read() {
    let values: [fn(&mut GraphBuilder, NodeId) -> Result<NodeId>; 4] = [
        |b, x| b.exp(x),
        |b, x| b.tanh(x),
        |b, x| {
            let all = b.sum(x, AxisSet::one(0), true)?;
            let e = b.exp(x)?;
            b.div(e, all)
        },
        |b, x| {
            let wide = b.broadcast_to(x, [4, 9])?;
            let e = b.exp(wide)?;
            b.sum(e, AxisSet::one(0), false)
        },
    ];
    for (name, update) in UPDATES {
        for value in values {
            for unrelated in 0..3 {
                let mut b = GraphBuilder::default();
                let x = input(&mut b, [9]);
                let y = value(&mut b, x).unwrap();
                let mut outputs = vec![update(&mut b, y).unwrap()];
                for size in 0..unrelated {
                    let other = input(&mut b, [7 + size]);
                    outputs.push(b.abs(other).unwrap());
                }
                let graph = b.finish(outputs);
                for options in [FusionOptions::ALL, VERTICAL, FusionOptions::NONE] {
                    // Debug builds verify what lowering gives.
                    let program = lower(&graph, options, &Target::CPU).unwrap();
                    assert_eq!(unread(&program), [], "{name}\n{graph}\n{program}");
                }
            }
        }
    }
}

#[test]
fn independent_maps_of_one_row_have_no_locals() {
    let text = "b0 = argument 0: f32[4]\nb1 = f32[4]\nb2 = f32[4]\nmaps over [1]\n  \
                local b1: 16 bytes a row\n  one over [4]\n    v0 = load b0[i0]\n    b1[i0] = v0\n  \
                other over [4]\n    v0 = load b0[i0]\n    b2[i0] = v0\noutputs: [b2]";
    let program = KernelProgram::read(text).unwrap();
    let Core::Rows(rows) = &program.kernels[0].core else { panic!("{program}") };
    assert!(!rows.are_independent(), "a local has no memory in a plain map");
    assert!(KernelProgram::parse(text).is_err(), "no part reads the local");
    let without = KernelProgram::parse(&text.replace("  local b1: 16 bytes a row\n", "")).unwrap();
    let Core::Rows(rows) = &without.kernels[0].core else { panic!("{without}") };
    assert!(rows.are_independent());
}

#[test]
fn a_kernel_that_checks_an_index_is_kept() {
    let text = "b0 = argument 0: f32[4]\nb1 = argument 1: i64[4]\nb2 = f32[4]\nb3 = f32[4]\n\
                take over [4]\n  v0 = load b1[i0]\n  v1 = gather b0[0] + 1*v0 of 4\n  b2[i0] = v1\n\
                copy over [4]\n  v0 = load b0[i0]\n  b3[i0] = v0\noutputs: [b2, b3]";
    for (needed, kernels) in [([true, false], 1), ([false, true], 2), ([true, true], 2)] {
        let mut program = KernelProgram::parse(text).unwrap();
        let mut live = [false, false, needed[0], needed[1]];
        let kept = crate::dead::remove_dead_stores(&mut program.kernels, &mut live);
        assert_eq!(kept.iter().filter(|kept| **kept).count(), kernels, "{needed:?}");
    }
}
