//! Scatters: results of the body set, or combined with the elements, at positions of a buffer given
//! by an index.
//!
//! The space is walked with its dependent dimensions outside and the independent ones inside, and
//! cut into chunks along the latter only: every element meets its updates in row-major order of the
//! space, whoever computes it. Halves are rounded after every step.

use super::cast::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::chain::Target;
use super::code::{Code, Frame, Reg};
use super::copy::wrap_index;
use super::lower::{Dim, Lower, Order};
use super::ops::slice;
use super::{BLOCK, Bindings, CHUNK_PS, ExecError, Scratch};
use crate::ir::{Core, Kernel};
use girih_ir::DType;
use girih_ir::complex::Part;
use girih_ir::ops::ScatterMode;
use num_complex::Complex;

/// Bytes zeroed per chunk of the first phase.
const ZERO_BYTES: usize = 1 << 18;

/// Writes `n` values: `(buffer, positions, indices, values, stride, size of the axis, n)`.
type PutFn = unsafe fn(
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
    put: PutFn,
    zeroed: bool,
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
    pub fn new(kernel: &Kernel, target: Target<'_>) -> Scatter {
        let Core::Scatter { mode, zeroed, index, stride, size, independent } = &kernel.core else {
            unreachable!("the caller matched the core")
        };
        let dims = || kernel.extents.iter().enumerate().map(Dim::whole);
        let (inside, outside): (Order, Order) = dims().partition(|d| independent.contains(&d.of));
        let count = |dims: &Order| dims.iter().map(|d| d.extent).product::<usize>();
        let (dependent, independent) = (count(&outside), count(&inside));
        let order: Order = outside.into_iter().chain(inside).collect();
        let store = &kernel.stores[0];
        let mut lower = Lower::new(kernel, &kernel.body, &order, target);
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
            put: put_fn(*mode, store.access.dtype),
            zeroed: *zeroed,
            buffer: store.access.buffer.0 as usize,
            bytes: (last + 1) as usize * store.access.dtype.size(),
            stride: *stride,
            size: *size,
            dependent,
            independent,
            chunk: independent.div_ceil(chunks),
        }
    }

    /// What runs at its points.
    pub fn code(&self) -> &Code {
        &self.code
    }

    pub fn chunks(&self) -> [usize; 2] {
        let pieces = self.independent.div_ceil(self.chunk);
        if self.zeroed { [self.bytes.div_ceil(ZERO_BYTES), pieces] } else { [pieces, 0] }
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
        if phase == 0 && self.zeroed {
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
                return self.put_range(&frame, base, 0, self.dependent * self.independent);
            }
            for row in 0..self.dependent {
                let row = row * self.independent;
                self.put_range(&frame, base, row + start, row + end)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The range lies in the space; no other thread uses the elements its points fall on.
    unsafe fn put_range(
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
                (self.put)(base, at, index, value, self.stride, self.size, n)?;
            }
        }
        Ok(())
    }
}

/// What becomes of an element in storage when a value of the compute type falls on it.
trait Meet<V>: Copy {
    fn meet<const MODE: u8>(self, value: V) -> Self;
}
#[derive(Clone, Copy)]
struct F16(u16);
#[derive(Clone, Copy)]
struct Bf16(u16);

const SET: u8 = ScatterMode::Set as u8;
const ADD: u8 = ScatterMode::Add as u8;
const MUL: u8 = ScatterMode::Mul as u8;
const MIN: u8 = ScatterMode::Min as u8;

macro_rules! meet_integers {
    ($($t:ident)*) => { $(impl Meet<$t> for $t {
        #[inline(always)]
        fn meet<const MODE: u8>(self, value: $t) -> $t {
            match MODE {
                SET => value,
                ADD => self.wrapping_add(value),
                MUL => self.wrapping_mul(value),
                MIN => self.min(value),
                _ => self.max(value),
            }
        }
    })* };
}
meet_integers!(u8 u16 u32 u64 i8 i16 i32 i64);
impl<T: Part> Meet<Complex<T>> for Complex<T> {
    #[inline(always)]
    fn meet<const MODE: u8>(self, value: Complex<T>) -> Complex<T> {
        match MODE {
            SET => value,
            ADD => T::add(self, value),
            MUL => T::mul(self, value),
            _ => unreachable!("complex numbers are in no order"),
        }
    }
}
macro_rules! meet_floats {
    ($($t:ident)*) => { $(impl Meet<$t> for $t {
        #[inline(always)]
        fn meet<const MODE: u8>(self, value: $t) -> $t {
            match MODE {
                SET => value,
                ADD => self + value,
                MUL => self * value,
                // A NaN on either side stays.
                MIN => if self < value || self.is_nan() { self } else { value },
                _ => if self > value || self.is_nan() { self } else { value },
            }
        }
    })* };
}
meet_floats!(f32 f64);
macro_rules! meet_halves {
    ($($t:ident $load:ident $store:ident)*) => { $(impl Meet<f32> for $t {
        #[inline(always)]
        fn meet<const MODE: u8>(self, value: f32) -> $t {
            $t($store($load(self.0).meet::<MODE>(value)))
        }
    })* };
}
meet_halves!(F16 f16_to_f32 f32_to_f16 Bf16 bf16_to_f32 f32_to_bf16);

/// # Safety
/// Positions and indices (i64) and values are valid for `n` elements; a position plus a checked
/// index times the stride lies inside the buffer at `base`.
unsafe fn put<S: Meet<V>, V: Copy, const MODE: u8>(
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
            *at = (*at).meet::<MODE>(v);
        }
    }
    Ok(())
}

fn put_fn(mode: ScatterMode, dtype: DType) -> PutFn {
    match mode {
        ScatterMode::Set => put_as::<{ ScatterMode::Set as u8 }>(dtype),
        ScatterMode::Add => put_as::<{ ScatterMode::Add as u8 }>(dtype),
        ScatterMode::Mul => put_as::<{ ScatterMode::Mul as u8 }>(dtype),
        ScatterMode::Min => put_as::<{ ScatterMode::Min as u8 }>(dtype),
        ScatterMode::Max => put_as::<{ ScatterMode::Max as u8 }>(dtype),
    }
}

fn put_as<const MODE: u8>(dtype: DType) -> PutFn {
    match dtype {
        DType::Bool | DType::U8 => put::<u8, u8, MODE>,
        DType::U16 => put::<u16, u16, MODE>,
        DType::U32 => put::<u32, u32, MODE>,
        DType::U64 => put::<u64, u64, MODE>,
        DType::I8 => put::<i8, i8, MODE>,
        DType::I16 => put::<i16, i16, MODE>,
        DType::I32 => put::<i32, i32, MODE>,
        DType::I64 => put::<i64, i64, MODE>,
        DType::F16 => put::<F16, f32, MODE>,
        DType::BF16 => put::<Bf16, f32, MODE>,
        DType::F32 => put::<f32, f32, MODE>,
        DType::F64 => put::<f64, f64, MODE>,
        DType::C64 => put::<Complex<f32>, Complex<f32>, MODE>,
        DType::C128 => put::<Complex<f64>, Complex<f64>, MODE>,
    }
}
