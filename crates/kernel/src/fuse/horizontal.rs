//! Horizontal fusion: independent kernels become one. It applies to the updates of an optimiser,
//! whose elements threads then share as if they were the elements of one kernel, and to small kernels
//! (of biases, losses, metrics), which cost more to launch than to run.
//!
//! The kernels become the parts of a kernel over a single row.

use super::Lowering;
use super::build::Built;
use super::rows::{FusionPart, Group, Named, elements, regroup};
use crate::ir::{Core, Program};
use crate::place::copied;
use crate::target::HorizontalLimits;

/// How many kernels after a group's first one are considered: a bound on compile time.
const HORIZON: usize = 128;

/// Fuses the updates and the small kernels of a program.
pub(super) fn group(lowering: Lowering<'_>, built: &mut Built) {
    let limits = &lowering.target.horizontal;
    regroup(lowering, built, |program, following, start| {
        let mut group = Group::of_one(program, start);
        if is_update(program, &group.parts[0]) {
            grow(limits, program, following, &mut group, |group, part| {
                is_update(program, part) && !group.named.prevents(part)
            });
        }
        if group.parts.len() == 1 && is_small(limits, &group.parts[0]) {
            grow(limits, program, following, &mut group, |group, part| {
                let parts = group.parts.iter().chain([part]);
                is_small(limits, part)
                    && parts.map(|p| elements(&p.kernel)).sum::<usize>() <= limits.max_small_total
            });
        }
        group
    });
}

/// Adds to a group those of the following kernels for which `join` holds.
fn grow(
    limits: &HorizontalLimits,
    program: &Program,
    following: &mut [Option<FusionPart>],
    group: &mut Group,
    join: impl Fn(&Group, &FusionPart) -> bool,
) {
    let mut skipped = Named::none(program);
    for next in following.iter_mut().take(HORIZON) {
        if group.parts.len() == limits.max_parts {
            break;
        }
        let Some(part) = next else { continue };
        if !skipped.prevents(part) && join(group, part) {
            group.extend(next.take());
        } else {
            skipped.add(part);
        }
    }
}

/// True for a map that only computes outputs of the program.
fn is_update(program: &Program, part: &FusionPart) -> bool {
    matches!(part.kernel.core, Core::Map)
        && is_whole(part)
        && part.writes.iter().all(|id| program.outputs.contains(id))
}

/// True for a map or a reduction of few elements.
fn is_small(limits: &HorizontalLimits, part: &FusionPart) -> bool {
    matches!(part.kernel.core, Core::Map | Core::Reduce { .. })
        && is_whole(part)
        && elements(&part.kernel) <= limits.max_small
}

/// False for a kernel that writes a buffer together with others: a part of the buffer, or the copy
/// into which others store, which buffer donation may elide.
fn is_whole(part: &FusionPart) -> bool {
    part.partly_written.is_empty() && copied(&part.kernel).is_none()
}
