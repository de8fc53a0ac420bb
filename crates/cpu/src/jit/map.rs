//! Maps as generated code: a loop over the innermost dimension, called once per row.

use super::lower::{Lowered, Pointer, element, lower};
use super::{Function, compile};
use girih_kernel::{Access, AccessId, Bindings, BufferId, Core, Kernel};
use smallvec::SmallVec;

/// Rows shorter than this are not worth a call each.
const SHORTEST_ROW: usize = 16;
/// Time a chunk should take, in picoseconds.
const CHUNK_PS: usize = 4_000_000;
/// Rough time of one instruction on one element, in picoseconds.
const INST_PS: usize = 25;
/// Rough time of one byte read or written, in picoseconds.
const BYTE_PS: usize = 5;

/// How a pointer of the function moves through memory, in bytes.
struct Stream {
    from: Base,
    /// At the first point.
    offset: isize,
    /// Per outer dimension.
    strides: SmallVec<[isize; 4]>,
    /// Per point of a row: an element's size, or 0.
    step: isize,
}

enum Base {
    Buffer(BufferId),
    Argument(usize),
}

/// A map compiled to machine code.
pub(crate) struct Map {
    function: Function,
    streams: Vec<Stream>,
    /// Outer dimensions.
    outer: SmallVec<[usize; 4]>,
    /// Points of a row.
    row: usize,
    points: usize,
    chunk: usize,
    cost_ps: usize,
}

impl Map {
    /// Compiles a kernel, if it is one that the generator knows.
    pub fn new(kernel: &Kernel) -> Option<Map> {
        if !matches!(kernel.core, Core::Map) {
            return None;
        }
        let accesses = || kernel.accesses.iter().chain(kernel.stores.iter().map(|s| &s.access));
        let (extents, groups) = merge(&kernel.extents, accesses());
        let (&row, outer) = extents.split_last().unwrap_or((&1, &[]));
        if row < SHORTEST_ROW && !outer.is_empty() {
            return None;
        }
        let inner = |a: &Access| groups.last().map_or(0, |&d| a.strides[d]);
        let splat = |a: AccessId| inner(kernel.access(a)) == 0 && row != 1;
        let contiguous = kernel.accesses.iter().all(|a| matches!(inner(a), 0 | 1));
        let written = kernel.stores.iter().all(|s| row == 1 || inner(&s.access) == 1);
        if !contiguous || !written {
            return None;
        }
        let Lowered { program, pointers } = lower(kernel, &kernel.body, &kernel.stores, splat)?;
        let function = compile(&program)?;
        let stream = |pointer: &Pointer| {
            let access = match *pointer {
                Pointer::Argument(argument) => {
                    let (from, strides) =
                        (Base::Argument(argument), SmallVec::from_elem(0, outer.len()));
                    return Some(Stream { from, offset: 0, strides, step: 0 });
                }
                Pointer::Access(id) => kernel.access(id),
                Pointer::Store(i) => &kernel.stores[i].access,
            };
            let size = element(access.dtype)?.size() as isize;
            let outer = groups.iter().take(outer.len()).map(|&d| access.strides[d] * size);
            Some(Stream {
                from: Base::Buffer(access.buffer),
                offset: access.offset * size,
                strides: outer.collect(),
                step: if row == 1 { 0 } else { inner(access) * size },
            })
        };
        let streams = pointers.iter().map(stream).collect::<Option<Vec<_>>>()?;
        let bytes: usize = accesses().map(|a| a.dtype.size()).sum();
        let points = kernel.points();
        let cost_ps = INST_PS * program.insts.len() + BYTE_PS * bytes;
        let target = (CHUNK_PS / cost_ps).max(1);
        let chunk =
            if points <= target + target / 2 { points } else { target.next_multiple_of(512) };
        let outer = SmallVec::from_slice(outer);
        Some(Map { function, streams, outer, row, points, chunk, cost_ps })
    }

    /// Number of chunks; they may run on any threads in any order.
    pub fn chunks(&self) -> usize {
        self.points.div_ceil(self.chunk)
    }

    /// Rough time of the whole kernel on one core, in nanoseconds.
    pub fn cost_ns(&self) -> u64 {
        (self.points.saturating_mul(self.cost_ps) / 1000) as u64
    }

    /// The machine code with its constants.
    #[cfg(test)]
    pub fn code(&self) -> &[u8] {
        self.function.code.bytes()
    }

    /// # Safety
    /// As [`girih_kernel::Prepared::run_chunk`].
    pub unsafe fn run_chunk(&self, chunk: usize, bindings: &Bindings<'_>) {
        let (mut point, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.points));
        let mut table: SmallVec<[*const u8; 16]> =
            SmallVec::from_elem(std::ptr::null(), self.streams.len());
        while point < end {
            let (row, at) = (point / self.row, point % self.row);
            let len = (self.row - at).min(end - point);
            for (pointer, stream) in table.iter_mut().zip(&self.streams) {
                let base: *const u8 = match stream.from {
                    Base::Buffer(buffer) => bindings.buffers[buffer.0 as usize],
                    Base::Argument(argument) => (&raw const bindings.arguments[argument]).cast(),
                };
                let mut offset = stream.offset + at as isize * stream.step;
                let mut rest = row;
                for (&extent, &stride) in self.outer.iter().zip(&stream.strides).rev() {
                    offset += (rest % extent) as isize * stride;
                    rest /= extent;
                }
                *pointer = base.wrapping_offset(offset);
            }
            // SAFETY: the accesses stay inside their buffers, which the bindings promise to be
            // valid, for every point of the space; `len` points of one row are.
            unsafe { self.function.call(table.as_ptr(), len) };
            point += len;
        }
    }
}

/// The dimensions that are more than one point long, neighbours made one where every access walks
/// them as one; and for each the kernel's dimension that has its strides.
fn merge<'a>(
    extents: &[usize],
    accesses: impl Iterator<Item = &'a Access> + Clone,
) -> (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) {
    let (mut merged, mut dims): (SmallVec<[usize; 6]>, SmallVec<[usize; 6]>) = Default::default();
    for (d, &extent) in extents.iter().enumerate().filter(|e| *e.1 != 1) {
        let joins = |before: usize| {
            accesses.clone().all(|a| a.strides[before] == a.strides[d] * extent as isize)
        };
        match dims.last_mut() {
            Some(last) if joins(*last) => {
                *last = d;
                *merged.last_mut().expect("as long as dims") *= extent;
            }
            _ => {
                merged.push(extent);
                dims.push(d);
            }
        }
    }
    (merged, dims)
}
