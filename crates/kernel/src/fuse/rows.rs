//! Kernels that hand rows to each other become one kernel over rows: a softmax, a norm, a loss and
//! their gradients read their operand once and keep what is between in cache.
//!
//! Kernels are taken in order of execution. One starts a group; later ones join if they share what
//! is written or read, if nothing between keeps them from running earlier, and if there is a number
//! of rows for which every part stays within its row of what the others write. What only the group
//! uses then exists row by row.

use super::build::Built;
use super::name;
use super::share::share;
use crate::ir::{BufferId, Core, Kernel, Local, Program, Rows};
use crate::verify::{along_rows, confined};
use girih_ir::{Graph, NodeId};
use smallvec::{SmallVec, smallvec};

/// How many kernels after a group's first one may join it.
const HORIZON: usize = 32;
/// Most parts of a kernel.
const MAX_PARTS: usize = 16;
/// Elements of a row, at most: what is handed on should stay in the second-level cache.
const MAX_ROW: usize = 1 << 16;
/// With fewer rows than this there is nothing to share among threads...
const FEW_ROWS: usize = 16;
/// ... which matters if there are more elements than this.
const MUCH: usize = 1 << 15;

/// Puts the kernels of a program together.
pub(super) fn group(graph: &Graph, built: &mut Built) {
    let mut left: Vec<Option<(Kernel, Vec<NodeId>)>> =
        built.program.kernels.drain(..).zip(built.nodes.drain(..)).map(Some).collect();
    for first in 0..left.len() {
        let Some(start) = left[first].take() else { continue };
        let (parts, rows) = grow(&built.program, &mut left, first, start);
        let (kernel, nodes) = finish(graph, &mut built.program, &left, parts, rows);
        built.program.kernels.push(kernel);
        built.nodes.push(nodes);
    }
}

type Parts = Vec<(Kernel, Vec<NodeId>)>;

/// The kernels that join the first one, and over how many rows.
fn grow(
    program: &Program,
    left: &mut [Option<(Kernel, Vec<NodeId>)>],
    first: usize,
    start: (Kernel, Vec<NodeId>),
) -> (Parts, usize) {
    let mut rows = candidates(&start.0);
    let mut parts: Parts = vec![start];
    let mut skipped = Skipped::default();
    for next in left.iter_mut().skip(first + 1).take(HORIZON) {
        if rows.is_empty() || parts.len() == MAX_PARTS {
            break;
        }
        let Some((kernel, _)) = next else { continue };
        let fits = if joins(&parts, kernel, &skipped) {
            let mut kernels: Vec<Kernel> = parts.iter().map(|p| p.0.clone()).collect();
            kernels.push(kernel.clone());
            let of = |r: &usize| {
                pays(&kernels, *r)
                    && confined(program, &kernels, *r)
                    && kernels.iter().all(|k| along_rows(k, *r))
            };
            rows.iter().copied().chain(candidates(kernel)).filter(of).collect()
        } else {
            SmallVec::<[usize; 4]>::new()
        };
        if fits.is_empty() {
            skipped.reads.extend(kernel.reads());
            skipped.writes.extend(kernel.writes());
        } else {
            rows = fits;
            parts.extend(next.take());
        }
    }
    (parts, rows.iter().copied().max().unwrap_or(1))
}

/// Numbers of rows that a kernel may be cut into.
fn candidates(kernel: &Kernel) -> SmallVec<[usize; 4]> {
    let mut rows: SmallVec<[usize; 4]> = SmallVec::new();
    if !matches!(kernel.core, Core::Map | Core::Reduce { .. }) {
        return rows;
    }
    let mut product = 1;
    for &extent in &kernel.extents[..kernel.parallel] {
        product *= extent;
        if extent > 1 {
            rows.push(product);
        }
    }
    rows
}

/// What the kernels read and write that stay between a group and the next candidate.
#[derive(Default)]
struct Skipped {
    reads: SmallVec<[BufferId; 16]>,
    writes: SmallVec<[BufferId; 8]>,
}

/// True if a kernel has to do with the group and can run before what was skipped.
fn joins(parts: &Parts, kernel: &Kernel, skipped: &Skipped) -> bool {
    if !matches!(kernel.core, Core::Map | Core::Reduce { .. }) {
        return false;
    }
    let late = kernel.reads().any(|id| skipped.writes.contains(&id));
    let early =
        kernel.writes().any(|id| skipped.reads.contains(&id) || skipped.writes.contains(&id));
    !late && !early && kernel.reads().any(|id| parts.iter().any(|p| touches(&p.0, id)))
}

fn touches(kernel: &Kernel, id: BufferId) -> bool {
    kernel.reads().chain(kernel.writes()).any(|b| b == id)
}

/// True if rows are short enough for the cache and many enough for the threads.
fn pays(parts: &[Kernel], rows: usize) -> bool {
    let elements = |k: &Kernel| k.points().saturating_mul(k.reduced());
    let most = parts.iter().map(elements).max().unwrap_or(0);
    most / rows <= MAX_ROW && (rows >= FEW_ROWS || most <= MUCH)
}

/// The kernel of a group.
fn finish(
    graph: &Graph,
    program: &mut Program,
    left: &[Option<(Kernel, Vec<NodeId>)>],
    mut parts: Parts,
    rows: usize,
) -> (Kernel, Vec<NodeId>) {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let (mut parts, nodes): (Vec<Kernel>, Vec<Vec<NodeId>>) = parts.into_iter().unzip();
    share(program, &mut parts);
    let outside = |id: BufferId| {
        let others = left.iter().flatten().map(|l| &l.0).chain(&program.kernels);
        program.outputs.contains(&id) || others.into_iter().any(|k| touches(k, id))
    };
    let mut locals: Vec<Local> = Vec::new();
    for buffer in parts.iter().flat_map(Kernel::writes) {
        if !outside(buffer) && locals.iter().all(|l| l.buffer != buffer) {
            let row_bytes = program.buffers[buffer.0 as usize].size_bytes() / rows;
            locals.push(Local { buffer, row_bytes });
        }
    }
    let nodes: Vec<NodeId> = nodes.concat();
    let fallback = graph.node(nodes[0]).op.name();
    let kernel = Kernel {
        name: name::of(graph, &nodes, fallback),
        extents: smallvec![rows],
        parallel: 1,
        accesses: Vec::new(),
        core: Core::Rows(Box::new(Rows { parts, locals })),
        body: Default::default(),
        stores: Vec::new(),
    };
    (kernel, nodes)
}
