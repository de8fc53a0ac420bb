//! Scatter-add: results of the body added into a zeroed buffer at positions given by an index.
//!
//! The space is walked with its dependent dimensions outside and the independent ones inside, and
//! cut into chunks along the latter only: every element receives its addends in row-major order of
//! the space, whoever computes it. Halves are rounded after every addition.

use super::cast::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::code::{Code, Frame, Reg, wrap_index};
use super::isa::Isa;
use super::lower::{Lower, Order};
use super::ops::slice;
use super::{BLOCK, Bindings, CHUNK_PS, ExecError, Scratch};
use crate::ir::{Core, Kernel};
use girih_ir::DType;

/// Bytes zeroed per chunk of the first phase.
const ZERO_BYTES: usize = 1 << 18;

/// Adds `n` values: `(buffer, positions, indices, values, stride, size of the axis, n)`.
type AddFn = unsafe fn(
    *mut u8,
    *const u8,
    *const u8,
    *const u8,
    isize,
    usize,
    usize,
) -> Result<(), ExecError>;

/// A scatter made ready.
pub(super) struct Scatter {
    code: Code,
    positions: Reg,
    index: Reg,
    value: Reg,
    add: AddFn,
    buffer: usize,
    /// Bytes of the buffer.
    bytes: usize,
    stride: isize,
    size: usize,
    /// Points over the dependent and over the independent dimensions.
    dependent: usize,
    independent: usize,
    /// Independent points per chunk.
    chunk: usize,
}

impl Scatter {
    pub fn new(kernel: &Kernel, isa: Isa) -> Scatter {
        let Core::ScatterAdd { index, stride, size, independent } = &kernel.core else {
            unreachable!("the caller matched the core")
        };
        let dims = || kernel.extents.iter().copied().enumerate();
        let (inside, outside): (Order, Order) = dims().partition(|d| independent.contains(&d.0));
        let count = |dims: &Order| dims.iter().map(|d| d.1).product::<usize>();
        let (dependent, independent) = (count(&outside), count(&inside));
        let order: Order = outside.into_iter().chain(inside).collect();
        let store = &kernel.stores[0];
        let mut lower = Lower::new(kernel, &kernel.body, &order, isa);
        let raw = lower.load(index);
        let index = lower.as_i64(raw, index.dtype);
        let positions = lower.access_positions(&store.access);
        let value = lower.val(store.value);
        let code = lower.finish(&[], &[positions, index, value]);
        // The buffer is dense and its last element is reachable, so the reach gives its size.
        let reach = |(stride, extent): (isize, usize)| stride.max(0) * (extent as isize - 1);
        let last =
            kernel.extents.iter().enumerate().fold(store.access.offset, |sum, (d, &e)| {
                sum + reach((store.access.strides[d], e))
            }) + reach((*stride, *size));
        let pieces = (dependent * independent).saturating_mul(code.cost_ps + 1000) / CHUNK_PS;
        let chunks = pieces.clamp(1, (independent / 16).max(1));
        Scatter {
            code,
            positions,
            index,
            value,
            add: add_fn(store.access.dtype),
            buffer: store.access.buffer.0 as usize,
            bytes: (last + 1) as usize * store.access.dtype.size(),
            stride: *stride,
            size: *size,
            dependent,
            independent,
            chunk: independent.div_ceil(chunks),
        }
    }

    pub fn chunks(&self) -> [usize; 2] {
        [self.bytes.div_ceil(ZERO_BYTES), self.independent.div_ceil(self.chunk)]
    }

    pub fn cost_ps(&self) -> usize {
        (self.dependent * self.independent).saturating_mul(self.code.cost_ps + 1000)
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        phase: usize,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let base = bindings.buffers[self.buffer];
        if phase == 0 {
            let start = chunk * ZERO_BYTES;
            // SAFETY: within the buffer's bytes, and chunks do not overlap.
            unsafe { base.add(start).write_bytes(0, ZERO_BYTES.min(self.bytes - start)) };
            return Ok(());
        }
        let (start, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.independent));
        let (mem, regs) = scratch.reserve(self.code.slot_bytes, self.code.places.len());
        // SAFETY: scratch memory of the sizes asked for; the caller's promise for the bindings.
        unsafe {
            let frame = Frame::new(&self.code, mem, regs, bindings, BLOCK);
            if self.independent == end - start {
                return self.add_range(&frame, base, 0, self.dependent * self.independent);
            }
            for row in 0..self.dependent {
                let row = row * self.independent;
                self.add_range(&frame, base, row + start, row + end)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The range lies in the space; no other thread uses the elements its points add to.
    unsafe fn add_range(
        &self,
        frame: &Frame<'_>,
        base: *mut u8,
        start: usize,
        end: usize,
    ) -> Result<(), ExecError> {
        for p in (start..end).step_by(BLOCK) {
            let n = BLOCK.min(end - p);
            // SAFETY: registers hold `n` elements after `compute`.
            unsafe {
                frame.compute(p, n)?;
                let (at, index) = (frame.reg(self.positions), frame.reg(self.index));
                let value = frame.reg(self.value);
                (self.add)(base, at, index, value, self.stride, self.size, n)?;
            }
        }
        Ok(())
    }
}

/// Addition into storage of values of the compute type.
trait Accumulate<V> {
    fn add(self, value: V) -> Self;
}
#[derive(Clone, Copy)]
struct F16(u16);
#[derive(Clone, Copy)]
struct Bf16(u16);
macro_rules! accumulate {
    ($($t:ident)*) => { $(impl Accumulate<$t> for $t {
        fn add(self, value: $t) -> $t { self.wrapping_add(value) }
    })* };
}
accumulate!(u8 i8 i16 i32 i64);
impl Accumulate<f32> for f32 {
    fn add(self, value: f32) -> f32 {
        self + value
    }
}
impl Accumulate<f64> for f64 {
    fn add(self, value: f64) -> f64 {
        self + value
    }
}
impl Accumulate<f32> for F16 {
    fn add(self, value: f32) -> F16 {
        F16(f32_to_f16(f16_to_f32(self.0) + value))
    }
}
impl Accumulate<f32> for Bf16 {
    fn add(self, value: f32) -> Bf16 {
        Bf16(f32_to_bf16(bf16_to_f32(self.0) + value))
    }
}

/// # Safety
/// Positions and indices (i64) and values are valid for `n` elements; a position plus a checked
/// index times the stride lies inside the buffer at `base`.
unsafe fn add<S: Accumulate<V> + Copy, V: Copy>(
    base: *mut u8,
    positions: *const u8,
    index: *const u8,
    values: *const u8,
    stride: isize,
    size: usize,
    n: usize,
) -> Result<(), ExecError> {
    // SAFETY: the caller's promise.
    let (positions, index, values) =
        unsafe { (slice::<i64>(positions, n), slice::<i64>(index, n), slice::<V>(values, n)) };
    for ((&p, &i), &v) in positions.iter().zip(index).zip(values) {
        let element = p as isize + wrap_index(i, size)? * stride;
        // SAFETY: the index is inside its axis, so the element is inside the buffer.
        unsafe {
            let at = (base as *mut S).offset(element);
            *at = (*at).add(v);
        }
    }
    Ok(())
}

fn add_fn(dtype: DType) -> AddFn {
    match dtype {
        DType::Bool | DType::U8 => add::<u8, u8>,
        DType::I8 => add::<i8, i8>,
        DType::I16 => add::<i16, i16>,
        DType::I32 => add::<i32, i32>,
        DType::I64 => add::<i64, i64>,
        DType::F16 => add::<F16, f32>,
        DType::BF16 => add::<Bf16, f32>,
        DType::F32 => add::<f32, f32>,
        DType::F64 => add::<f64, f64>,
    }
}
