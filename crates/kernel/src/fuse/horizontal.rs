//! Horizontal fusion: independent kernels become one kernel. It applies to the updates of an
//! optimiser, whose elements threads then share as if they were the elements of one kernel, and to
//! small kernels (of biases, losses, metrics), which take longer to launch than to run.
//!
//! The kernels become the parts of a kernel over a single row.

use super::build::Built;
use super::rows::{FusionPart, Group, Grouping, Named, elements, regroup};
use super::{Lowering, Refusal, Refused};
use crate::ir::{Core, KernelProgram};
use crate::place::copied;
use crate::target::HorizontalLimits;
use girih_ir::NodeId;

/// The number of kernels after a group's first kernel that are considered: a bound on compile time.
const HORIZON: usize = 128;

/// Fuses the updates and the small kernels of a program.
pub(super) fn group(lowering: Lowering<'_>, built: &mut Built) {
    regroup(lowering, built, &Horizontal { limits: &lowering.target.horizontal });
}

/// Horizontal fusion.
struct Horizontal<'a> {
    limits: &'a HorizontalLimits,
}

impl Grouping for Horizontal<'_> {
    fn grow(
        &self,
        program: &KernelProgram,
        following: &mut [Option<FusionPart>],
        start: FusionPart,
    ) -> Group {
        let limits = self.limits;
        let mut group = Group::of_one(program, start);
        if is_update(program, &group.parts[0]) {
            grow(limits, program, following, &mut group, |group, part| {
                is_update(program, part) && !group.named.prevents(part)
            });
        }
        if group.parts.len() == 1 && is_small(limits, &group.parts[0]) {
            grow(limits, program, following, &mut group, |group, part| {
                is_small(limits, part) && total(group, part) <= limits.max_small_total
            });
        }
        group
    }

    /// The candidates are kernels of the group's kind for which the group has no room. Only the
    /// first one is reported, because it starts the next group.
    fn declined(
        &self,
        program: &KernelProgram,
        _: &[Option<NodeId>],
        group: &Group,
        following: &[Option<FusionPart>],
    ) -> Vec<Refused> {
        let limits = self.limits;
        let full = group.parts.len() == limits.max_parts;
        let updates = group.parts.len() > 1 && group.parts.iter().all(|p| is_update(program, p));
        let small = !updates && group.parts.iter().all(|part| is_small(limits, part));
        let has_no_room = |part: &FusionPart| match updates {
            true => full && is_update(program, part) && !group.named.prevents(part),
            false => {
                let exceeds = full || total(group, part) > limits.max_small_total;
                small && is_small(limits, part) && exceeds
            }
        };
        let mut skipped = Named::none(program);
        let declined = following.iter().take(HORIZON).flatten().find(|part| {
            let independent = !skipped.prevents(part);
            skipped.add(part);
            independent && has_no_room(part)
        });
        let consumer = Some(group.parts[0].root());
        let refused =
            |part: &FusionPart| Refused { node: part.root(), reason: Refusal::GroupSize, consumer };
        declined.map(refused).into_iter().collect()
    }
}

/// The total number of elements of a group and of a kernel.
fn total(group: &Group, part: &FusionPart) -> usize {
    group.parts.iter().chain([part]).map(|part| elements(&part.kernel)).sum()
}

/// Adds to a group each of the following kernels for which `join` holds.
fn grow(
    limits: &HorizontalLimits,
    program: &KernelProgram,
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

/// Whether the kernel is a map that only computes outputs of the program.
fn is_update(program: &KernelProgram, part: &FusionPart) -> bool {
    matches!(part.kernel.core, Core::Map)
        && is_whole(part)
        && part.writes.iter().all(|id| program.outputs.contains(id))
}

/// Whether the kernel is a map or a reduction of few elements.
fn is_small(limits: &HorizontalLimits, part: &FusionPart) -> bool {
    matches!(part.kernel.core, Core::Map | Core::Reduce { .. })
        && is_whole(part)
        && elements(&part.kernel) <= limits.max_small
}

/// False for a kernel that writes a buffer together with other kernels: it writes a part of the
/// buffer, or the copy into which others store, which buffer donation may elide.
fn is_whole(part: &FusionPart) -> bool {
    part.partly_written.is_empty() && copied(&part.kernel).is_none()
}
