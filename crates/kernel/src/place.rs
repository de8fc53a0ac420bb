//! Memory planning: places the temporaries of a program in one block. A temporary lives from the
//! kernel that first writes it to the last kernel that reads it. It takes the memory of a large
//! operand of its kernel that dies there, if the kernel may overwrite that operand; otherwise the
//! lowest interval that is free for its lifetime (first fit in order of birth). This module also
//! decides buffer donation: which results may take the memory of which arguments.

use crate::ir::{Access, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram};
use crate::verify::reads_by_row;
use std::collections::BTreeMap;

/// How temporaries are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacementLimits {
    /// The alignment of temporaries in bytes: a power of two, at most that of the block.
    pub alignment: usize,
    /// The size in bytes from which on a result is placed over a dead operand of its kernel. A
    /// kernel writes a result directly to its place only if the place is not an operand, so a
    /// smaller result gets memory of its own.
    pub min_overwriting_bytes: usize,
}

impl PlacementLimits {
    /// The limits inside a kernel: the workspaces of branches and loops and the locals of kernels
    /// over rows. They are part of the meaning of a kernel, whatever the target is.
    pub const INSIDE_KERNELS: PlacementLimits =
        PlacementLimits { alignment: 128, min_overwriting_bytes: 64 << 10 };
}

/// Whether a kernel may write a result to the memory of an operand that is dead after the kernel:
/// every point reads only the element that it overwrites.
pub fn may_overwrite(kernel: &Kernel, operand: BufferId, result: BufferId) -> bool {
    match &kernel.core {
        Core::Map => {}
        Core::Rows(rows) => {
            // The part that writes the result. Earlier parts read only their rows of the operand,
            // and later parts read none of it.
            let Some(writer) = rows.parts.iter().position(|p| p.writes().any(|b| b == result))
            else {
                return false;
            };
            let (before, rest) = rows.parts.split_at(writer);
            // The parts of a single row may run concurrently.
            let reads_before = |p: &Kernel| match kernel.points() {
                1 => p.reads().all(|b| b != operand),
                rows => reads_by_row(p, operand, rows),
            };
            return may_overwrite(&rows.parts[writer], operand, result)
                && before.iter().all(reads_before)
                && rest[1..].iter().all(|p| p.reads().all(|b| b != operand))
                && reads_by_row(&rows.parts[writer], operand, kernel.points());
        }
        // The body of a point runs after its sum is complete.
        Core::Gemm { lhs, rhs, .. } if lhs.buffer != operand && rhs.buffer != operand => {}
        _ => return false,
    }
    let mut stores = kernel.stores.iter().map(|s| &s.access).filter(|a| a.buffer == result);
    let (Some(store), None) = (stores.next(), stores.next()) else { return false };
    let same = |a: &Access| {
        a.dtype.size() == store.dtype.size()
            && a.offset == store.offset
            && a.strides == store.strides
    };
    let gathered = |at: usize| {
        let gathers = |inst: &Inst| match inst {
            Inst::Gather { access, .. } => access.0 as usize == at,
            _ => false,
        };
        kernel.body.insts.iter().any(gathers)
    };
    let fits = |(at, a): (usize, &Access)| a.buffer != operand || same(a) && !gathered(at);
    kernel.stores.iter().all(|s| s.access.buffer != operand)
        && kernel.accesses.iter().enumerate().all(fits)
}

/// The source and destination of a kernel that only copies elements to the same positions of
/// another buffer. The copy is elided if both have the same memory.
pub fn copied(kernel: &Kernel) -> Option<(BufferId, BufferId)> {
    let (Core::Map, [Inst::Load(id)], [store]) =
        (&kernel.core, kernel.body.insts.as_slice(), kernel.stores.as_slice())
    else {
        return None;
    };
    let (from, to) = (kernel.access(*id), &store.access);
    let same = from.dtype == to.dtype && from.offset == to.offset && from.strides == to.strides;
    same.then_some((from.buffer, to.buffer))
}

/// Whether a result begins as a copy of an argument that is dead from then on, and parts of the
/// copy are then replaced. In the argument's memory, only these parts are written.
pub(crate) fn updates(program: &KernelProgram, argument: BufferId, result: BufferId) -> bool {
    let writes = |kernel: &Kernel| kernel.writes().any(|b| b == result);
    let Some(first) = program.kernels.iter().position(writes) else { return false };
    let (copy, rest) = (&program.kernels[first], &program.kernels[first + 1..]);
    copied(copy) == Some((argument, result))
        && rest.iter().all(|kernel| kernel.reads().all(|b| b != argument))
        && !program.outputs.contains(&argument)
}

/// Buffer donation: pairs of a result and an argument of equal size whose memory the result may
/// take, if the caller donates the argument. Nothing reads the argument later, except the element
/// that is overwritten while the result is first written. Each result and each argument is in at
/// most one pair.
pub fn donations(program: &KernelProgram) -> Vec<(BufferId, BufferId)> {
    let count = program.buffers.len();
    let (mut last_read, mut first_write) = (vec![None; count], vec![None; count]);
    for (at, kernel) in program.kernels.iter().enumerate() {
        kernel.reads().for_each(|b| last_read[b.0 as usize] = Some(at));
        kernel.writes().for_each(|b| {
            first_write[b.0 as usize].get_or_insert(at);
        });
    }
    let ids = || (0..count as u32).map(BufferId);
    let size = |b: BufferId| program.buffers[b.0 as usize].size_bytes();
    let is_output = |b: &BufferId| program.outputs.contains(b);
    let is_argument = |b: &BufferId| {
        matches!(program.buffers[b.0 as usize].kind, BufferKind::Argument(_)) && !is_output(b)
    };
    let mut arguments: Vec<BufferId> = ids().filter(is_argument).collect();
    let results = ids().filter(is_output);
    let mut pairs = Vec::new();
    for result in results {
        let Some(written) = first_write[result.0 as usize] else { continue };
        let overwrites = |a: BufferId| {
            last_read[a.0 as usize] == Some(written)
                && may_overwrite(&program.kernels[written], a, result)
        };
        let free = |a: BufferId| last_read[a.0 as usize].is_none_or(|last| last < written);
        let fits = |a: &&BufferId| size(**a) == size(result);
        // Prefer an argument that the kernel reads, since its memory is in the cache.
        let found = arguments
            .iter()
            .filter(fits)
            .find(|a| overwrites(**a))
            .or_else(|| arguments.iter().filter(fits).find(|a| free(**a)))
            .copied();
        if let Some(argument) = found {
            arguments.retain(|a| *a != argument);
            pairs.push((result, argument));
        }
    }
    pairs
}

/// The offsets of temporaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The offset of each buffer; `None` for arguments, for buffers with memory of their own, and
    /// for buffers that no kernel writes.
    pub offsets: Vec<Option<usize>>,
    /// The size of the block in bytes.
    pub bytes: usize,
}

/// Places the computed buffers of a program, except those that are `elsewhere`. Outputs among them
/// live to the end.
pub fn place(
    program: &KernelProgram,
    limits: PlacementLimits,
    elsewhere: impl Fn(BufferId) -> bool,
) -> Placed {
    let count = program.buffers.len();
    let mut last_use = vec![None; count];
    for (at, kernel) in program.kernels.iter().enumerate() {
        kernel.reads().chain(kernel.writes()).for_each(|b| last_use[b.0 as usize] = Some(at));
    }
    let is_output = |b: BufferId| program.outputs.contains(&b);
    let mut offsets = vec![None; count];
    let mut space = Space::default();
    let mut dying: Vec<Vec<(usize, usize)>> = vec![Vec::new(); program.kernels.len()];
    for (at, kernel) in program.kernels.iter().enumerate() {
        for id in kernel.writes() {
            let i = id.0 as usize;
            let computed = program.buffers[i].kind == BufferKind::Computed;
            let (true, Some(last)) = (computed && offsets[i].is_none(), last_use[i]) else {
                continue;
            };
            if elsewhere(id) {
                continue;
            }
            let size = program.buffers[i].size_bytes().next_multiple_of(limits.alignment);
            let bytes = |b: BufferId| program.buffers[b.0 as usize].size_bytes();
            // An operand that dies here and whose memory is not reused yet.
            let overwritten = kernel.reads().find(|&operand| {
                let place = offsets[operand.0 as usize].map(|offset| (offset, size));
                bytes(id) >= limits.min_overwriting_bytes
                    && bytes(operand) == bytes(id)
                    && place.is_some_and(|place| dying[at].contains(&place))
                    && may_overwrite(kernel, operand, id)
            });
            let offset = match overwritten.and_then(|operand| offsets[operand.0 as usize]) {
                Some(offset) => {
                    dying[at].retain(|place| *place != (offset, size));
                    offset
                }
                None => space.take(size),
            };
            offsets[i] = Some(offset);
            if !is_output(id) {
                dying[last].push((offset, size));
            }
        }
        for (offset, size) in std::mem::take(&mut dying[at]) {
            space.give(offset, size);
        }
    }
    Placed { offsets, bytes: space.end }
}

/// The free intervals of a growing block.
#[derive(Default)]
struct Space {
    free: BTreeMap<usize, usize>,
    end: usize,
}

impl Space {
    fn take(&mut self, size: usize) -> usize {
        if let Some((&offset, &len)) = self.free.iter().find(|(_, len)| **len >= size) {
            self.free.remove(&offset);
            if len > size {
                self.free.insert(offset + size, len - size);
            }
            return offset;
        }
        // Grow from the last free interval if it touches the end.
        let offset = match self.free.last_key_value() {
            Some((&offset, &len)) if offset + len == self.end => {
                self.free.remove(&offset);
                offset
            }
            _ => self.end,
        };
        self.end = offset + size;
        offset
    }

    fn give(&mut self, mut offset: usize, mut size: usize) {
        if size == 0 {
            return;
        }
        if let Some((&before, &len)) = self.free.range(..offset).next_back()
            && before + len == offset
        {
            self.free.remove(&before);
            (offset, size) = (before, size + len);
        }
        if let Some(len) = self.free.remove(&(offset + size)) {
            size += len;
        }
        self.free.insert(offset, size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FusionOptions, Target, lower};
    use girih_ir::ops::SliceDim;
    use girih_ir::{Attrs, DType, GraphBuilder, NodeId, Op, OpCode, Result, TensorSpec};

    #[test]
    fn space_is_reused_by_liveness_and_grows_at_the_end_only() {
        let mut space = Space::default();
        let (a, b) = (space.take(256), space.take(128));
        assert_eq!((a, b), (0, 256));
        space.give(a, 256);
        assert_eq!(space.take(128), 0);
        space.give(b, 128);
        assert_eq!(space.take(512), 128, "the free tail grows instead of a gap being left");
        assert_eq!(space.end, 640);
    }

    fn program(record: impl Fn(&mut GraphBuilder) -> Result<Vec<NodeId>>) -> KernelProgram {
        let mut b = GraphBuilder::default();
        let outputs = record(&mut b).unwrap();
        lower(&b.finish(outputs), FusionOptions::ALL, &Target::CPU).unwrap()
    }

    fn input(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
        b.input(TensorSpec::new(shape, DType::F32))
    }

    /// The number of the argument whose memory each result may take.
    fn taken(program: &KernelProgram) -> Vec<Option<usize>> {
        let pairs = donations(program);
        let of = |result: &BufferId| {
            let argument = pairs.iter().find(|pair| pair.0 == *result)?.1;
            match program.buffers[argument.0 as usize].kind {
                BufferKind::Argument(number) => Some(number),
                _ => None,
            }
        };
        program.outputs.iter().map(of).collect()
    }

    #[test]
    fn elementwise_results_reuse_the_memory_of_arguments() {
        let step = program(|b| {
            let (p, m, g) = (input(b, &[8, 8]), input(b, &[8, 8]), input(b, &[8, 8]));
            let m = b.mul(m, g)?;
            Ok(vec![b.sub(p, m)?, m])
        });
        assert_eq!(taken(&step), [Some(0), Some(1)]);
        let matmuls = program(|b| {
            let (x, w, y) = (input(b, &[8, 8]), input(b, &[8, 8]), input(b, &[8, 8]));
            let matmul = b.matmul(x, w)?;
            Ok(vec![b.add(matmul, y)?])
        });
        assert_eq!(taken(&matmuls), [Some(2)], "what is added, and no factor");
    }

    #[test]
    fn arguments_read_at_other_points_or_later_are_not_overwritten() {
        for shape in [[8usize, 8], [4, 16]] {
            let none = program(|b| {
                let x = input(b, &shape);
                let t = b.transpose(x)?;
                Ok(vec![b.neg(t)?])
            });
            assert_eq!(taken(&none), [None], "read transposed");
        }
        let shifted = program(|b| {
            let (x, i) = (input(b, &[8]), b.input(TensorSpec::new([8], DType::I64)));
            let y = b.take_along_axis(x, i, 0)?;
            Ok(vec![b.neg(y)?])
        });
        assert_eq!(taken(&shifted), [None], "gathered");
        let later = program(|b| {
            let (x, w) = (input(b, &[8, 8]), input(b, &[8, 8]));
            let y = b.neg(x)?;
            let matmul = b.matmul(y, w)?;
            Ok(vec![y, b.matmul(matmul, x)?])
        });
        let pairs = taken(&later);
        assert_eq!(pairs[0], None, "x is read later");
        let result = program(|b| {
            let x = input(b, &[8]);
            Ok(vec![b.neg(x)?, x])
        });
        assert_eq!(taken(&result)[0], None, "x is a result itself");
        let smaller = program(|b| {
            let x = input(b, &[8]);
            Ok(vec![b.cast(x, DType::F16)?])
        });
        assert_eq!(taken(&smaller), [None], "of another size");
    }

    #[test]
    fn a_partially_updated_argument_becomes_the_result() {
        let of = |update: fn(&mut GraphBuilder, NodeId, NodeId) -> Result<NodeId>| {
            program(|b| {
                let (x, y) = (input(b, &[8, 8]), input(b, &[1, 8]));
                let y = update(b, x, y)?;
                let row = SliceDim { start: 3, size: 1, step: 1 };
                let dims = vec![row, SliceDim { start: 0, size: 8, step: 1 }];
                let op = Op::new(OpCode::UpdateSlice, Attrs::Slice(dims.into()));
                Ok(vec![b.emit(op, &[x, y])?])
            })
        };
        let copy_only = of(|b, _, y| b.neg(y));
        assert_eq!(taken(&copy_only), [Some(0)]);
        assert_eq!(copied(&copy_only.kernels[0]), Some((BufferId(0), copy_only.outputs[0])));
        // The replacement of the row depends on rows that are already overwritten at that time.
        let within = of(|b, x, y| {
            let row = b.slice_axis(x, 0, 2, 1)?;
            b.add(row, y)
        });
        assert_eq!(taken(&within), [None]);
    }

    #[test]
    fn a_large_temporary_overwrites_its_operand() {
        // GEMMs prevent fusion of the maps.
        let chain = |n: usize| {
            let program = program(|b| {
                let x = input(b, &[n, n]);
                let mut t = b.matmul(x, x)?;
                for _ in 0..2 {
                    let sum = b.sum(t, girih_ir::AxisSet::one(1), true)?;
                    t = b.sub(t, sum)?;
                }
                Ok(vec![b.matmul(t, t)?])
            });
            let placed = place(&program, Target::CPU.placement, |b| program.outputs.contains(&b));
            placed.bytes / (4 * n * n)
        };
        assert_eq!(chain(256), 1, "one matrix, and its sums");
        assert_eq!(chain(32), 2, "small ones are not worth it");
    }
}
