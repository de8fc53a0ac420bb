//! Rules V6 to V8, and V12 across kernels: which elements stores write, that every element is written
//! before it is read, and that no kernel touches a local of another one.

use super::{Check, require, span};
use crate::ir::{Access, BufferId, BufferKind, Core, Kernel, KernelProgram, Store};
use smallvec::SmallVec;

/// The strides and sizes of the dimensions that move, by ascending stride.
type Steps = SmallVec<[(usize, usize); 6]>;

fn steps(dims: impl Iterator<Item = (isize, usize)>) -> Steps {
    let moving = dims.filter(|&(stride, extent)| extent > 1 && stride != 0);
    let mut steps: Steps = moving.map(|(s, e)| (s.unsigned_abs(), e)).collect();
    steps.sort_unstable();
    steps
}

fn dims<'a>(access: &'a Access, extents: &'a [usize]) -> impl Iterator<Item = (isize, usize)> + 'a {
    access.strides.iter().copied().zip(extents.iter().copied())
}

/// Whether different points are different elements: by ascending stride, each dimension steps
/// beyond the reach of the dimensions with smaller strides.
pub(super) fn injective(access: &Access, extents: &[usize]) -> bool {
    let fixed = dims(access, extents).any(|(stride, extent)| extent > 1 && stride == 0);
    let mut covered = 0_usize;
    !fixed
        && steps(dims(access, extents)).into_iter().all(|(step, extent)| {
            let over = step > covered;
            covered += step * (extent - 1);
            over
        })
}

/// Whether points that differ along the independent dimensions of a scatter write different
/// elements, for any other coordinates and any indices.
///
/// By ascending stride, each independent dimension must step beyond the reach of all smaller ones.
/// The steps of the other dimensions between two independent ones may overlap each other: their sum
/// is a multiple of their greatest common divisor, which must exceed the reach of all smaller ones.
pub(super) fn disjoint(
    access: &Access,
    extents: &[usize],
    independent: &[usize],
    index: (isize, usize),
) -> bool {
    let moves = |d: usize| extents[d] > 1 && access.strides[d] != 0;
    if independent.iter().any(|&d| extents[d] > 1 && access.strides[d] == 0) {
        return false;
    }
    let axes = (0..extents.len()).filter(|&d| moves(d));
    let mut all: SmallVec<[(usize, usize, bool); 8]> = axes
        .map(|d| (access.strides[d].unsigned_abs(), extents[d], independent.contains(&d)))
        .collect();
    if index.0 != 0 && index.1 > 1 {
        all.push((index.0.unsigned_abs(), index.1, false));
    }
    all.sort_unstable();
    // The reach of smaller steps up to the last independent dimension, and in total; the divisor of
    // the steps after that dimension.
    let (mut below, mut covered, mut divisor) = (None, 0_usize, 0);
    for (step, extent, own) in all {
        if own {
            let decodes = below.is_none_or(|below| divisor == 0 || divisor > below);
            if step <= covered || !decodes {
                return false;
            }
            covered += step * (extent - 1);
            (below, divisor) = (Some(covered), 0);
        } else {
            covered += step * (extent - 1);
            divisor = gcd(divisor, step);
        }
    }
    below.is_none_or(|below| divisor == 0 || divisor > below)
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The state of a program's buffers while its kernels run.
pub(super) struct Flow<'a> {
    program: &'a KernelProgram,
    state: Vec<Contents<'a>>,
}

/// The state of a buffer.
#[derive(Clone, Default)]
struct Contents<'a> {
    /// Whether every element has been written.
    whole: bool,
    /// The stores that wrote some elements, with their extents. If these stores together are to
    /// complete the buffer, no store may write an element that another store writes.
    partial_stores: Vec<(&'a Access, &'a [usize])>,
    written: usize,
    read: bool,
    /// Whether the buffer is a local of a kernel over rows.
    local: bool,
}

impl<'a> Flow<'a> {
    /// The state before the first kernel.
    pub fn new(program: &'a KernelProgram) -> Flow<'a> {
        Flow { program, state: vec![Contents::default(); program.buffers.len()] }
    }

    /// Fails unless a buffer is complete.
    pub fn readable(&mut self, id: BufferId) -> Check {
        let buffer = &self.program.buffers[id.0 as usize];
        let contents = &mut self.state[id.0 as usize];
        if buffer.kind != BufferKind::Computed || buffer.numel == 0 {
            return Ok(());
        }
        require(!contents.local, || format!("V12: {id} is a local of another kernel"))?;
        if !contents.whole {
            contents.whole = contents.written == buffer.numel
                && are_disjoint(&contents.partial_stores, buffer.numel);
            let (numel, written) = (buffer.numel, contents.written);
            require(contents.whole, || match written < numel {
                true => format!("V8: {id} holds {written} of {numel} elements"),
                false => format!("V8: it is not known that every element of {id} is written"),
            })?;
        }
        Ok(())
    }

    /// Checks the reads and writes of a kernel.
    pub fn kernel(&mut self, kernel: &'a Kernel) -> Check {
        if let Core::Rows(rows) = &kernel.core {
            for local in &rows.locals {
                let contents = &self.state[local.buffer.0 as usize];
                let untouched = contents.written == 0 && !contents.whole && !contents.local;
                require(untouched, || {
                    format!("V12: {} is a local, but used by another kernel", local.buffer)
                })?;
            }
            rows.parts.iter().try_for_each(|part| self.kernel(part))?;
            rows.locals.iter().for_each(|l| self.state[l.buffer.0 as usize].local = true);
            return Ok(());
        }
        for id in kernel.reads() {
            self.readable(id)?;
            self.state[id.0 as usize].read = true;
        }
        if matches!(kernel.core, Core::Scatter { zeroed: false, .. }) {
            // A scatter of this mode combines its values with existing elements.
            kernel.writes().try_for_each(|id| self.readable(id))?;
        }
        for id in kernel.writes() {
            let buffer = &self.program.buffers[id.0 as usize];
            require(buffer.kind == BufferKind::Computed, || {
                format!("V7: the kernel writes {id}, an argument")
            })?;
            let contents = &self.state[id.0 as usize];
            require(!contents.local, || format!("V12: {id} is a local of another kernel"))?;
            require(!contents.read, || {
                format!("V8: {id} is written after it was read, or by a kernel that reads it")
            })?;
        }
        self.writes(kernel);
        Ok(())
    }

    fn writes(&mut self, kernel: &'a Kernel) {
        match &kernel.core {
            // A scatter's buffer is zeroed or was complete before; a routine's items fill their
            // buffer (V9), as do the results of programs (V10); and a workspace is never read.
            Core::Scatter { .. } | Core::Library(_) | Core::Control(_) => {
                for id in kernel.writes() {
                    self.state[id.0 as usize].whole = true;
                }
            }
            core => {
                if let Core::Reduce { stores, .. } = core {
                    self.stores(stores, &kernel.extents);
                }
                self.stores(&kernel.stores, &kernel.extents[..kernel.parallel]);
            }
        }
    }

    fn stores(&mut self, stores: &'a [Store], extents: &'a [usize]) {
        for store in stores {
            let id = store.access.buffer.0 as usize;
            let contents = &mut self.state[id];
            // A store writes no element twice (V6).
            let points: usize = extents.iter().product();
            contents.written = contents.written.saturating_add(points);
            contents.whole |= points == self.program.buffers[id].numel;
            contents.partial_stores.push((&store.access, extents));
        }
    }
}

/// The highest number of stores of which each pair is compared.
const MAX_PAIRS_OF: usize = 64;

/// Whether the stores are certainly disjoint: all of them modulo one number, or else each pair.
fn are_disjoint(stores: &[(&Access, &[usize])], numel: usize) -> bool {
    are_intervals(stores, numel)
        || stores.len() <= MAX_PAIRS_OF
            && (1..stores.len())
                .all(|i| stores[..i].iter().all(|first| are_apart(first, &stores[i])))
}

/// Whether two stores are certainly disjoint. Modulo some number, and counted from the first element
/// of one of them, they are disjoint intervals: for example, modulo the length of a row, the inside
/// of a padded result and the gaps between its rows, each of which is the end of a row and the start
/// of the next one.
fn are_apart(one: &(&Access, &[usize]), other: &(&Access, &[usize])) -> bool {
    let strides = |(access, extents): &(&Access, &[usize])| {
        steps(dims(access, extents)).into_iter().map(|(step, _)| step).collect::<Vec<_>>()
    };
    let moduli = strides(one).into_iter().chain(strides(other)).filter(|&m| m > 1);
    moduli.map(Some).chain([None]).any(|modulus| {
        let interval = |(access, extents): &(&Access, &[usize])| {
            let moves = |&(s, _): &(isize, usize)| {
                modulus.is_none_or(|modulus| s.unsigned_abs() % modulus != 0)
            };
            span(access.offset, dims(access, extents).filter(moves))
        };
        let (Some((low, high)), Some((start, end))) = (interval(one), interval(other)) else {
            return false;
        };
        let Some(modulus) = modulus else { return high < start || end < low };
        let Ok(modulus) = isize::try_from(modulus) else { return false };
        let distance = start.wrapping_sub(low).rem_euclid(modulus);
        high - low < distance && distance + (end - start) < modulus
    })
}

/// Whether the stores are disjoint intervals modulo some number, as the stores of a concatenation
/// are modulo the row length.
fn are_intervals(stores: &[(&Access, &[usize])], numel: usize) -> bool {
    let Some((first, _)) = stores.first() else { return false };
    let mut moduli: SmallVec<[usize; 6]> = first.strides.iter().map(|s| s.unsigned_abs()).collect();
    moduli.push(numel);
    moduli.retain(|m| *m > 1);
    moduli.sort_unstable();
    moduli.dedup();
    moduli.into_iter().any(|modulus| {
        let interval = |(access, extents): &(&Access, &[usize])| {
            let inside = dims(access, extents).filter(|(s, _)| s.unsigned_abs() % modulus != 0);
            let (low, high) = span(access.offset, inside)?;
            let modulus = isize::try_from(modulus).ok()?;
            let same = low.div_euclid(modulus) == high.div_euclid(modulus);
            same.then(|| (low.rem_euclid(modulus), high.rem_euclid(modulus)))
        };
        let Some(mut spans) = stores.iter().map(interval).collect::<Option<Vec<_>>>() else {
            return false;
        };
        spans.sort_unstable();
        spans.windows(2).all(|two| two[0].1 < two[1].0)
    })
}
