//! Fuses prologues into GEMMs: operands that the GEMM computes as it packs them, such as a cast of
//! weights, a scale of quantised weights, an activation, a mask. The operand is then never in
//! memory as a whole.
//!
//! The map that computes the operand and the GEMM become one kernel over a single row, and the
//! operand becomes a local of that kernel. A map may run as late as its only reader, so kernels in
//! between do not matter.

use super::build::Built;
use super::rows::over_rows;
use super::{Lowering, Refusal, Refused};
use crate::Target;
use crate::ir::{Access, Block, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram, Local};
use crate::target::PrologueLimits;
use girih_ir::{Class, Graph, NodeId};
use smallvec::SmallVec;
use std::ops::Range;

/// The kernels that compute operands of one GEMM, by position.
type Makers = SmallVec<[usize; 2]>;

/// The GEMMs that compute operands, and the operands that GEMMs could compute and do not compute.
#[derive(Default)]
struct Prologues {
    /// The position of each GEMM, with the kernels that currently compute its operands.
    gemms: Vec<(usize, Makers)>,
    /// The kernel that computes an operand, the GEMM, and the reason.
    declined: Vec<(usize, usize, Refusal)>,
}

/// Fuses maps into the GEMMs of a program that read their results.
pub(super) fn group(lowering: Lowering<'_>, built: &mut Built) {
    let graph = lowering.graph;
    let prologues = Prologues::find(lowering.target, &built.program);
    prologues.record(graph, built);
    let gemms = prologues.gemms;
    if gemms.is_empty() {
        return;
    }
    let made: Vec<usize> = gemms.iter().flat_map(|(_, makers)| makers.iter().copied()).collect();
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

impl Prologues {
    fn find(target: &Target, program: &KernelProgram) -> Prologues {
        let mut found = Prologues::default();
        if !program.kernels.iter().any(|kernel| matches!(kernel.core, Core::Gemm { .. })) {
            return found;
        }
        let names = Names::of(program);
        for (at, kernel) in program.kernels.iter().enumerate() {
            let Core::Gemm { lhs, rhs, dtype, .. } = &kernel.core else { continue };
            if !target.prologue.packed.contains(*dtype) {
                continue;
            }
            let mut makers = Makers::new();
            for (access, left) in [(lhs, true), (rhs, false)] {
                let Some(maker) = names.maker(program, access.buffer) else { continue };
                let fits = fits_in_packing(&target.prologue, kernel, access, left)
                    .and_then(|()| names.serves_one_reader(target, program, access.buffer, maker));
                match fits {
                    Ok(()) => makers.push(maker),
                    Err(reason) => found.declined.push((maker, at, reason)),
                }
            }
            if !makers.is_empty() {
                found.gemms.push((at, makers));
            }
        }
        found
    }

    /// Removes the refusals of operands that are fused after all, and records the other operands.
    /// The recorded reason is more specific than the reason that a GEMM reads its operands from
    /// memory.
    fn record(&self, graph: &Graph, built: &mut Built) {
        let Some(refusals) = &mut built.refusals else { return };
        let root = |at: usize| built.nodes[at].last().copied();
        for &maker in self.gemms.iter().flat_map(|(_, makers)| makers) {
            refusals.retain(|refused| Some(refused.node) != root(maker));
        }
        for &(maker, gemm, reason) in &self.declined {
            let Some(node) = root(maker) else { continue };
            refusals.retain(|r| (r.node, r.reason) != (node, Refusal::Memory));
            let contraction = |id: &&NodeId| graph.node(**id).op.class() == Class::Contraction;
            let consumer = built.nodes[gemm].iter().find(contraction).copied();
            refusals.push(Refused { node, reason, consumer });
        }
    }
}

/// Checks that an operand may be computed as it is packed: in contiguous runs of elements, and each
/// element only once.
fn fits_in_packing(
    limits: &PrologueLimits,
    gemm: &Kernel,
    access: &Access,
    left: bool,
) -> Result<(), Refusal> {
    let dims = gemm.gemm_dims().expect("the kernel is a GEMM");
    let outer = if left { &dims.rows } else { &dims.columns };
    let steps =
        [outer, &dims.contracted].map(|of| step(gemm, access, of).map(|s| (s, gemm.size(of))));
    let [Some((outer, lines)), Some((inner, k))] = steps else { return Err(Refusal::OperandOrder) };
    let along_k = inner == 1 && (lines == 1 || outer >= k as isize);
    let along_lines = outer == 1 && (k == 1 || inner >= lines as isize);
    let distinct = |d: usize| access.strides[d] != 0 || gemm.extents[d] == 1;
    let rows = gemm.size(&dims.rows);
    // Packing puts the rows of A side by side, so a column-major A would be computed in short runs.
    let in_runs = along_k || !left && along_lines && !limits.packs_along_k(access.dtype, rows);
    match () {
        // All of A is packed before the GEMM runs, if it is not too large.
        _ if left && lines * k > limits.max_packed_once => Err(Refusal::OperandSize),
        _ if !left && rows > limits.max_rows => Err(Refusal::OperandRows),
        _ if !in_runs => Err(Refusal::OperandOrder),
        _ if !dims.batch.into_iter().all(distinct) => Err(Refusal::OperandShared),
        _ => Ok(()),
    }
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
    fn of(program: &KernelProgram) -> Names {
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

    /// The kernel that computes a buffer, if it is a map that computes something and can run at any
    /// of its points in any order. The points are the buffer's elements.
    fn maker(&self, program: &KernelProgram, buffer: BufferId) -> Option<usize> {
        let maker = self.0[buffer.0 as usize].1?;
        let kernel = &program.kernels[maker];
        let computes = kernel.body.insts.iter().any(|inst| matches!(inst, Inst::Op { .. }));
        let whole = kernel.fills_in_order().is_some()
            && kernel.points() == program.buffers[buffer.0 as usize].numel;
        (computes && whole).then_some(maker)
    }

    /// Checks that only the kernel that reads a buffer needs it, and may compute its elements.
    fn serves_one_reader(
        &self,
        target: &Target,
        program: &KernelProgram,
        buffer: BufferId,
        maker: usize,
    ) -> Result<(), Refusal> {
        let of = &program.buffers[buffer.0 as usize];
        let alone = self.0[buffer.0 as usize].0 == 2 && of.kind == BufferKind::Computed;
        if !alone || program.outputs.contains(&buffer) {
            return Err(Refusal::OperandShared);
        }
        let once = of.numel <= target.prologue.max_packed_once;
        match once || is_cheap(target, &program.kernels[maker].body) {
            true => Ok(()),
            false => Err(Refusal::OperandSize),
        }
    }
}

/// Whether the map may be recomputed for other parts of the GEMM.
fn is_cheap(target: &Target, body: &Block) -> bool {
    body.insts.iter().all(|inst| match inst {
        Inst::Op { code, .. } => !target.is_expensive(*code),
        Inst::Random { .. } => false,
        _ => true,
    })
}
