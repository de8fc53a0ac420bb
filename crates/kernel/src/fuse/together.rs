//! Kernels that become one because there are many of them: the updates of an optimiser, whose
//! elements are then shared among threads as those of one kernel, and small kernels (of biases,
//! losses, metrics), each of which costs more to launch than to run.
//!
//! They are the parts of a kernel over a single row.

use super::build::Built;
use super::rows::{Group, Named, Part, elements, regroup};
use crate::ir::{Core, Program};
use crate::place::copied;
use girih_ir::Graph;

/// How many kernels after a group's first one may join it.
const HORIZON: usize = 128;
/// Most parts of a kernel.
const MAX_PARTS: usize = 64;
/// Elements of a small kernel, at most: about what a thread computes while it would hand work over.
const SMALL: usize = 1 << 12;
/// Elements of small kernels that become one, at most.
const SMALL_TOGETHER: usize = 1 << 15;

/// Puts the updates and the small kernels of a program together.
pub(super) fn group(graph: &Graph, built: &mut Built) {
    regroup(graph, built, |program, following, start| {
        let mut group = Group::of_one(program, start);
        if is_update(program, &group.parts[0]) {
            grow(program, following, &mut group, |group, part| {
                is_update(program, part) && !group.named.hinder(part)
            });
        }
        if group.parts.len() == 1 && is_small(&group.parts[0]) {
            grow(program, following, &mut group, |group, part| {
                let parts = group.parts.iter().chain([part]);
                is_small(part)
                    && parts.map(|p| elements(&p.kernel)).sum::<usize>() <= SMALL_TOGETHER
            });
        }
        group
    });
}

/// Adds to a group those of the following that `join` it.
fn grow(
    program: &Program,
    following: &mut [Option<Part>],
    group: &mut Group,
    join: impl Fn(&Group, &Part) -> bool,
) {
    let mut skipped = Named::none(program);
    for next in following.iter_mut().take(HORIZON) {
        if group.parts.len() == MAX_PARTS {
            break;
        }
        let Some(part) = next else { continue };
        if !skipped.hinder(part) && join(group, part) {
            group.extend(next.take());
        } else {
            skipped.add(part);
        }
    }
}

/// True for a map that only computes results of the program.
fn is_update(program: &Program, part: &Part) -> bool {
    matches!(part.kernel.core, Core::Map)
        && is_whole(part)
        && part.writes.iter().all(|id| program.outputs.contains(id))
}

/// True for a map or a reduction of few elements.
fn is_small(part: &Part) -> bool {
    matches!(part.kernel.core, Core::Map | Core::Reduce { .. })
        && is_whole(part)
        && elements(&part.kernel) <= SMALL
}

/// False for what makes a buffer together with others: pieces of it, or the copy that they replace
/// parts of, for which there may be nothing to do.
fn is_whole(part: &Part) -> bool {
    part.pieces.is_empty() && copied(&part.kernel).is_none()
}
