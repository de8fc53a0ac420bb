//! Fuses prologues into GEMMs: operands that the GEMM computes as it packs them, such as a cast of
//! weights, a scale of quantised weights, an activation, a mask. The operand is then never in
//! memory as a whole.
//!
//! The map that computes the operand and the GEMM become one kernel over a single row, and the
//! operand a local of it. A map may run as late as its only reader, so kernels in between do not
//! matter.

use super::build::Built;
use super::rows::over_rows;
use super::{Lowering, cost};
use crate::Target;
use crate::ir::{Access, Block, BufferId, BufferKind, Core, Inst, Kernel, Local, Program};
use crate::target::{PrologueLimits, RecomputeLimits};
use girih_ir::NodeId;
use smallvec::SmallVec;
use std::ops::Range;

/// The kernels that compute operands of one GEMM, by position.
type Makers = SmallVec<[usize; 2]>;

/// Fuses maps into the GEMMs of a program that read their results.
pub(super) fn group(lowering: Lowering<'_>, built: &mut Built) {
    let Lowering { graph, target, .. } = lowering;
    let gemms = gemms(target, &built.program);
    if gemms.is_empty() {
        return;
    }
    let made: Vec<usize> = gemms.iter().flat_map(|(_, makers)| makers.iter().copied()).collect();
    if let Some(refusals) = &mut built.refusals {
        let roots: Vec<_> = made.iter().filter_map(|&at| built.nodes[at].last()).collect();
        refusals.retain(|(node, _)| !roots.contains(&node));
    }
    let kernels = std::mem::take(&mut built.program.kernels).into_iter();
    let mut left: Vec<_> = kernels.zip(built.nodes.drain(..)).map(Some).collect();
    for at in 0..left.len() {
        if made.contains(&at) {
            continue;
        }
        let makers = gemms.iter().find(|(gemm, _)| *gemm == at);
        let makers = makers.map_or(&[][..], |(_, makers)| makers.as_slice());
        let mut take = |&at: &usize| left[at].take().expect("each kernel is part of one");
        let mut parts: Vec<(Kernel, Vec<NodeId>)> = makers.iter().map(&mut take).collect();
        let (gemm, nodes) = take(&at);
        let (kernel, nodes) = match parts.is_empty() {
            true => (gemm, nodes),
            false => {
                let written = parts.iter().flat_map(|(map, _)| map.writes());
                let local = |buffer: BufferId| {
                    let row_bytes = built.program.buffers[buffer.0 as usize].size_bytes();
                    Local { buffer, row_bytes }
                };
                let locals = written.map(local).collect();
                parts.push((gemm, nodes));
                over_rows(graph, 1, parts.into_iter().unzip(), locals)
            }
        };
        built.program.kernels.push(kernel);
        built.nodes.push(nodes);
    }
}

/// The GEMMs that may compute operands, with the kernels that compute these operands now.
fn gemms(target: &Target, program: &Program) -> Vec<(usize, Makers)> {
    if !program.kernels.iter().any(|kernel| matches!(kernel.core, Core::Gemm { .. })) {
        return vec![];
    }
    let names = Names::of(program);
    let kernels = program.kernels.iter().enumerate();
    let gemms = kernels.filter_map(|(at, kernel)| {
        let Core::Gemm { lhs, rhs, dtype, .. } = &kernel.core else { return None };
        if !target.prologue.packed.contains(dtype) {
            return None;
        }
        let sides = [(lhs, true), (rhs, false)].into_iter();
        let packed =
            sides.filter(|(access, left)| in_strips(&target.prologue, kernel, access, *left));
        let makers: Makers =
            packed.filter_map(|(access, _)| names.maker(target, program, access.buffer)).collect();
        (!makers.is_empty()).then_some((at, makers))
    });
    gemms.collect()
}

/// True if an operand may be computed in strips: in contiguous runs of elements, and each element
/// only once.
fn in_strips(limits: &PrologueLimits, gemm: &Kernel, access: &Access, left: bool) -> bool {
    let Some(dims) = gemm.gemm_dims() else { return false };
    let outer = if left { &dims.rows } else { &dims.columns };
    let steps =
        [outer, &dims.contracted].map(|of| step(gemm, access, of).map(|s| (s, gemm.size(of))));
    let [Some((outer, lines)), Some((inner, k))] = steps else { return false };
    let along_k = inner == 1 && (lines == 1 || outer >= k as isize);
    let along_lines = outer == 1 && (k == 1 || inner >= lines as isize);
    let distinct = |d: usize| access.strides[d] != 0 || gemm.extents[d] == 1;
    // Packing puts the rows of A side by side, so a column-major A would be computed in short runs.
    // All of A is packed before the GEMM runs, if it is not too large.
    let fits = match left {
        true => along_k && lines * k <= limits.max_packed_once,
        false => {
            let rows = gemm.size(&dims.rows);
            let across = along_lines && !limits.is_grouped(access.dtype, rows);
            rows <= limits.max_rows && (along_k || across)
        }
    };
    fits && dims.batch.into_iter().all(distinct)
}

/// The stride of an access over some dimensions, if it is the same from each point to the next; 1
/// for a single point.
fn step(kernel: &Kernel, access: &Access, dims: &Range<usize>) -> Option<isize> {
    let mut along = dims.clone().rev().filter(|&d| kernel.extents[d] > 1);
    let Some(last) = along.next() else { return Some(1) };
    let mut next = access.strides[last] * kernel.extents[last] as isize;
    for d in along {
        (access.strides[d] == next).then_some(())?;
        next *= kernel.extents[d] as isize;
    }
    Some(access.strides[last])
}

/// The number of uses of each buffer by kernels, and the last kernel that writes it.
struct Names(Vec<(u32, Option<usize>)>);

impl Names {
    fn of(program: &Program) -> Names {
        let mut names = Names(vec![(0, None); program.buffers.len()]);
        for (at, kernel) in program.kernels.iter().enumerate() {
            kernel.reads().for_each(|id| names.0[id.0 as usize].0 += 1);
            for id in kernel.writes() {
                let (count, writer) = &mut names.0[id.0 as usize];
                (*count, *writer) = (*count + 1, Some(at));
            }
        }
        names
    }

    /// The kernel that computes a buffer only for the kernel that reads it, if it is a map whose
    /// points are the buffer's elements.
    fn maker(&self, target: &Target, program: &Program, buffer: BufferId) -> Option<usize> {
        let of = &program.buffers[buffer.0 as usize];
        let (count, writer) = self.0[buffer.0 as usize];
        let alone = count == 2 && of.kind == BufferKind::Computed;
        let maker = writer.filter(|_| alone && !program.outputs.contains(&buffer))?;
        makes(target, &program.kernels[maker], of.numel).then_some(maker)
    }
}

/// True for a map of so many points that can run at any of them in any order, and computes
/// something.
fn makes(target: &Target, kernel: &Kernel, numel: usize) -> bool {
    let computes = kernel.body.insts.iter().any(|inst| matches!(inst, Inst::Op { .. }));
    kernel.fills_in_order().is_some()
        && kernel.points() == numel
        && computes
        && (numel <= target.prologue.max_packed_once || is_cheap(&target.recompute, &kernel.body))
}

/// True if it may be recomputed for other parts of the GEMM.
fn is_cheap(limits: &RecomputeLimits, body: &Block) -> bool {
    body.insts.iter().all(|inst| match inst {
        Inst::Op { code, .. } => !limits.is_expensive(cost::of(*code)),
        Inst::Random { .. } => false,
        _ => true,
    })
}
