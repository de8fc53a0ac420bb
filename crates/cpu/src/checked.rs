//! Checked mode (`GIRIH_CHECK=1`): finds kernels that access memory which is not theirs.
//!
//! Before a kernel runs, its buffers are copied to memory with guard bytes around each; afterwards
//! the guard bytes and the operands must be unchanged, and the results are copied back. This finds
//! what generated code, GEMMs and routines write outside of their buffers. The executor compares the
//! accesses of loops and functions with the bounds of the bindings before they happen (see
//! [`Bounds`]). Memory for partial results, packing and locals has guard bytes too.

use crate::LoadedKernel;
use crate::kernel::Line;
use crate::pool::Pool;
use girih_exec::{Bindings, Bounds, ExecError};
use girih_kernel::{BufferId, Core, Kernel};
use girih_runtime::env::flag;
use girih_sync::{Mutex, OnceLock};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::PoisonError;

/// The environment variable.
pub(crate) const VARIABLE: &str = "GIRIH_CHECK";

/// The number of guard bytes before and after a buffer.
const GUARD: usize = 1024;
/// The value of a guard byte: numbers of such bytes are large and negative.
const GUARD_BYTE: u8 = 0xfb;

/// Whether the process runs kernels in checked mode. An invalid value of the variable is an error of
/// [`crate::check_environment`].
pub(crate) fn is_on() -> bool {
    static ON: OnceLock<bool> = OnceLock::new();
    *ON.get_or_init(|| matches!(flag(&[VARIABLE]), Ok(Some(true))))
}

/// A defect that was found where no error can be returned: the next kernel to end returns it.
static FOUND: Mutex<Option<ExecError>> = Mutex::new(None);

/// Reports a defect.
pub(crate) fn report(error: ExecError) {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
}

fn reported() -> Result<(), ExecError> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
}

/// Memory between guard bytes.
pub(crate) struct Guarded {
    lines: Vec<Line>,
    bytes: usize,
}

impl Guarded {
    /// Memory of that many bytes, aligned to 64.
    pub fn new(bytes: usize) -> Guarded {
        let lines = vec![Line::of(GUARD_BYTE); (2 * GUARD + bytes).div_ceil(64)];
        Guarded { lines, bytes }
    }

    /// The address of the memory.
    pub fn start(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast::<u8>().wrapping_add(GUARD)
    }

    fn contents(&self, bytes: Range<usize>) -> &[u8] {
        // SAFETY: the range lies in the lines, whose bytes are all initialised.
        unsafe {
            let start = self.lines.as_ptr().cast::<u8>();
            std::slice::from_raw_parts(start.add(bytes.start), bytes.len())
        }
    }

    /// The first guard byte that has changed, counted from the start of the memory.
    pub fn damage(&self) -> Option<isize> {
        let end = GUARD + self.bytes;
        [0..GUARD, end..self.lines.len() * 64].into_iter().find_map(|range| {
            let changed = self.contents(range.clone()).iter().position(|&b| b != GUARD_BYTE)?;
            Some((range.start + changed) as isize - GUARD as isize)
        })
    }
}

/// Calls `f` with memory between guard bytes, and reports the defect if `f` overwrites one.
pub(crate) fn with_guarded<R>(bytes: usize, f: impl FnOnce(*mut u8) -> R) -> R {
    let mut memory = Guarded::new(bytes);
    let result = f(memory.start());
    if let Some(byte) = memory.damage() {
        report(ExecError::Overwritten { memory: "temporary memory".into(), byte, bytes });
    }
    result
}

/// The copy of one buffer, or of several buffers at the same address.
struct Copied {
    address: *mut u8,
    /// The first buffer there.
    buffer: usize,
    bytes: usize,
    /// Whether the kernel may write it.
    written: bool,
    memory: Guarded,
}

impl Copied {
    /// Fails if the kernel wrote what it must not write; else copies what it wrote back.
    ///
    /// # Safety
    /// The address is valid for the bytes, and nobody else uses them if they are written.
    unsafe fn finish(mut self) -> Result<(), ExecError> {
        let Copied { buffer, bytes, .. } = self;
        if let Some(byte) = self.memory.damage() {
            return Err(ExecError::Overwritten {
                memory: format!("buffer b{buffer}"),
                byte,
                bytes,
            });
        }
        // SAFETY: the caller's promise, and memory of that many bytes.
        unsafe {
            if self.written {
                std::ptr::copy_nonoverlapping(self.memory.start(), self.address, bytes);
                return Ok(());
            }
            let operand = std::slice::from_raw_parts(self.address.cast_const(), bytes);
            let copy = self.memory.contents(GUARD..GUARD + bytes);
            match copy.iter().zip(operand).position(|(a, b)| a != b) {
                None => Ok(()),
                Some(byte) => {
                    let memory = format!("buffer b{buffer}, an operand,");
                    Err(ExecError::Overwritten { memory, byte: byte as isize, bytes })
                }
            }
        }
    }
}

/// Runs a kernel on copies of its buffers. `definition` is what `kernel` was prepared from.
///
/// # Safety
/// As [`LoadedKernel::run`]. The bindings have bounds.
pub(crate) unsafe fn run(
    kernel: &LoadedKernel,
    definition: &Kernel,
    bindings: &Bindings<'_>,
    pool: &Pool,
) -> Result<(), ExecError> {
    let mut table: SmallVec<[*mut u8; 32]> =
        SmallVec::from_elem(std::ptr::null_mut(), bindings.buffers.len());
    let mut bounds: SmallVec<[Bounds; 32]> = SmallVec::from_elem(Bounds::NOTHING, table.len());
    let mut copies: Vec<Copied> = Vec::new();
    let writes: SmallVec<[BufferId; 8]> = definition.writes().collect();
    for id in definition.reads().chain(writes.iter().copied()) {
        let at = id.0 as usize;
        bounds[at] = bindings.bounds.and_then(|all| all.get(at).copied()).unwrap_or_default();
        let bytes = bounds[at].end.max(0) as usize;
        if bytes == 0 {
            continue;
        }
        let (address, written) = (bindings.buffers[at], writes.contains(&id));
        let place = match copies.iter().position(|copy| copy.address == address) {
            Some(place) if copies[place].bytes >= bytes => place,
            _ => {
                let mut memory = Guarded::new(bytes);
                // SAFETY: the buffer is valid for its bytes, and so is the memory.
                unsafe { std::ptr::copy_nonoverlapping(address, memory.start(), bytes) };
                copies.push(Copied { address, buffer: at, bytes, written, memory });
                copies.len() - 1
            }
        };
        copies[place].written |= written;
        table[at] = copies[place].memory.start();
    }
    let inner = Bindings { buffers: &table, bounds: Some(&bounds), ..*bindings };
    check_ahead(kernel, definition, &inner)?;
    // Stores of prepacked weights know operands by their addresses, which copies have in turn.
    // SAFETY: the caller's promise, for the copies.
    unsafe { kernel.run_form(&inner, pool, None) }?;
    reported()?;
    // SAFETY: the caller's promise; the copies are those of the kernel's buffers.
    copies.into_iter().try_for_each(|copy| unsafe { copy.finish() })
}

/// Checks what is known before the kernel runs. In a kernel of one row that is a GEMM and the maps
/// of its operands, the operands have as much memory as they need.
fn check_ahead(
    kernel: &LoadedKernel,
    definition: &Kernel,
    bindings: &Bindings<'_>,
) -> Result<(), ExecError> {
    let (Core::Rows(rows), Some(bounds)) = (&definition.core, bindings.bounds) else {
        return kernel.check(bindings);
    };
    let mut bounds: SmallVec<[Bounds; 32]> = SmallVec::from_slice(bounds);
    for local in &rows.locals {
        bounds[local.buffer.0 as usize] = Bounds::of(local.row_bytes);
    }
    let gemm = definition.points() == 1 && rows.prologues_and_gemm().is_some();
    let bounds = if gemm { Some(&bounds[..]) } else { bindings.bounds };
    kernel.check(&Bindings { bounds, ..*bindings })
}

#[cfg(test)]
mod tests;
