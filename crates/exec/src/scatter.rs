//! Scatters: results of the body replace the elements at indexed positions of a buffer, or are
//! combined with them.
//!
//! The space is walked with its dependent dimensions outside and the independent ones inside, and
//! is divided into chunks only along the latter: every element receives its updates in row-major
//! order of the space, for any number of threads. Halves are rounded after every step; graphs
//! therefore accumulate them in f32 (`Node::accumulates_halves`). If
//! consecutive points write consecutive elements with the same index, as the rows of an embedding's
//! gradient do, they are written by rows: the index is read once per row.

use super::cast::{bf16_to_f32, compute, f16_to_f32, f32_to_bf16, f32_to_f16};
use super::code::{Code, Frame, Reg};
use super::copy::IndexedAxis;
use super::isa::{BlockFn, Isa, Loop, select};
use super::lower::{Dim, Lower, Order, walk};
use super::ops::{slice, slice_mut};
use super::stop::Pace;
use super::stream::gcd;
use super::walk::Walk;
use super::{BLOCK, Bindings, ExecError, PrepareOptions, Scratch, chunk_ps};
use girih_ir::DType;
use girih_ir::complex::ComplexPart;
use girih_ir::ops::ScatterMode;
use girih_kernel::{Access, Core, Kernel};
use num_complex::Complex;
use std::marker::PhantomData;

/// The minimum length of a row that is written as a row.
const SHORTEST: usize = 8;
/// The minimum number of elements of a row in a chunk.
const PART: usize = 64;

/// The number of bytes that a chunk of the first phase sets to zero.
const ZERO_BYTES: usize = 1 << 18;

/// Writes `n` values: `(buffer, positions, indices, values, stride, axis, n)`.
type PutFn = unsafe fn(
    *mut u8,
    *const u8,
    *const u8,
    *const u8,
    isize,
    IndexedAxis,
    usize,
) -> Result<(), ExecError>;

/// The way in which results are written.
enum Put {
    /// Element by element, with the registers of positions and indices.
    Elements {
        put: PutFn,
        positions: Reg,
        index: Reg,
    },
    Rows(Box<ScatteredRows>),
}

/// Rows: consecutive points that write consecutive elements with the same index.
struct ScatteredRows {
    /// The number of points of a row.
    row: usize,
    /// The positions of rows for the index 0.
    store: Walk,
    index: Walk,
    index_buffer: usize,
    index_dtype: DType,
    put: BlockFn,
    /// The size in bytes of an element in storage, and of a value.
    sizes: (usize, usize),
}

impl ScatteredRows {
    /// `None` if rows are too short.
    fn of(store: &Access, index: &Access, order: &Order, put: BlockFn) -> Option<ScatteredRows> {
        let walks = [store, index].map(|a| walk(order, a.offset, &a.strides));
        let [(along, 1), (same, 0)] = walks.each_ref().map(Walk::inner) else { return None };
        let row = if same == usize::MAX { along } else { gcd(along, same) };
        let [store_walk, index_walk] = walks;
        (row >= SHORTEST).then(|| ScatteredRows {
            row,
            store: store_walk,
            index: index_walk,
            index_buffer: index.buffer.0 as usize,
            index_dtype: index.dtype,
            put,
            sizes: (store.dtype.size(), compute(store.dtype).size()),
        })
    }

    /// The index of a point's row.
    ///
    /// # Safety
    /// The point lies in the space; the bindings fulfil their contract.
    unsafe fn index(&self, point: usize, bindings: &Bindings<'_>) -> i64 {
        let base = bindings.buffers[self.index_buffer];
        let element = self.index.at(point);
        macro_rules! read {
            ($($dtype:ident $t:ident)*) => {
                match self.index_dtype {
                    // SAFETY: accesses stay inside their buffers.
                    $(DType::$dtype => unsafe { *(base as *const $t).offset(element) as i64 },)*
                    other => unreachable!("{other} is no integer"),
                }
            };
        }
        read!(I8 i8 I16 i16 I32 i32 I64 i64 U8 u8 U16 u16 U32 u32 U64 u64)
    }
}

/// A prepared scatter.
pub(super) struct PreparedScatter {
    code: Code,
    value: Reg,
    put: Put,
    zeroed: bool,
    buffer: usize,
    /// The size of the buffer and of its elements in bytes.
    bytes: usize,
    stored: usize,
    stride: isize,
    axis: IndexedAxis,
    /// The numbers of points over the dependent and over the independent dimensions.
    dependent: usize,
    independent: usize,
    /// The number of independent points per chunk.
    chunk: usize,
    /// The approximate time of a point, in picoseconds.
    each_ps: usize,
}

impl PreparedScatter {
    pub fn new(kernel: &Kernel, options: PrepareOptions<'_>) -> PreparedScatter {
        let Core::Scatter { mode, zeroed, index, stride, size, independent } = &kernel.core else {
            unreachable!("the caller matched the core")
        };
        let dims = || kernel.extents.iter().enumerate().map(Dim::whole);
        let (inside, outside): (Order, Order) = dims().partition(|d| independent.contains(&d.of));
        let count = |dims: &Order| dims.iter().map(|d| d.extent).product::<usize>();
        let (dependent, independent) = (count(&outside), count(&inside));
        let order: Order = outside.into_iter().chain(inside).collect();
        let store = &kernel.stores[0];
        let mut lower = Lower::new(kernel, &kernel.body, &order, options);
        let value = lower.val(store.value);
        let (put, put_row) = put_fns(*mode, store.access.dtype, options.isa);
        let rows = ScatteredRows::of(&store.access, index, &order, put_row);
        let (code, put, each_ps, grain) = match rows {
            Some(rows) => (lower.finish(&[], &[value]), Put::Rows(Box::new(rows)), 150, PART),
            None => {
                let raw = lower.load(index);
                let index = lower.as_i64(raw, index.dtype);
                let positions = lower.access_positions(&store.access);
                let code = lower.finish(&[], &[positions, index, value]);
                (code, Put::Elements { put, positions, index }, 1000, 16)
            }
        };
        let each_ps = code.cost_ps + each_ps;
        // The buffer is dense and its last element is reachable, so the largest position gives its
        // size.
        let reach = |(stride, extent): (isize, usize)| stride.max(0) * (extent as isize - 1);
        let last =
            kernel.extents.iter().enumerate().fold(store.access.offset, |sum, (d, &e)| {
                sum + reach((store.access.strides[d], e))
            }) + reach((*stride, *size));
        let wanted = (dependent * independent).saturating_mul(each_ps) / chunk_ps();
        let chunks = wanted.clamp(1, (independent / grain).max(1));
        PreparedScatter {
            code,
            value,
            put,
            each_ps,
            zeroed: *zeroed,
            buffer: store.access.buffer.0 as usize,
            bytes: (last + 1) as usize * store.access.dtype.size(),
            stored: store.access.dtype.size(),
            stride: *stride,
            axis: IndexedAxis::new(*size, index.dtype),
            dependent,
            independent,
            chunk: independent.div_ceil(chunks),
        }
    }

    /// The code of the prologue and the body.
    pub fn code(&self) -> &Code {
        &self.code
    }

    pub fn chunks(&self) -> [usize; 2] {
        let chunks = self.independent.div_ceil(self.chunk);
        if self.zeroed { [self.bytes.div_ceil(ZERO_BYTES), chunks] } else { [chunks, 0] }
    }

    pub fn cost_ps(&self) -> usize {
        (self.dependent * self.independent).saturating_mul(self.each_ps)
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
            let len = ZERO_BYTES.min(self.bytes - start);
            bindings.check(self.buffer, start as isize..(start + len) as isize)?;
            // SAFETY: within the buffer's bytes, and chunks do not overlap.
            unsafe { base.add(start).write_bytes(0, len) };
            return Ok(());
        }
        let (start, end) = (chunk * self.chunk, ((chunk + 1) * self.chunk).min(self.independent));
        let (mem, regs) = scratch.reserve(self.code.slot_bytes, self.code.places.len());
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the bindings.
        unsafe {
            let frame = Frame::new(&self.code, mem, regs, bindings, BLOCK);
            if self.independent == end - start {
                let all = self.dependent * self.independent;
                return self.put_range(&frame, bindings, 0, all);
            }
            for row in 0..self.dependent {
                let row = row * self.independent;
                self.put_range(&frame, bindings, row + start, row + end)?;
            }
        }
        Ok(())
    }

    /// # Safety
    /// The range lies in the space; no other thread uses the elements its points fall on.
    unsafe fn put_range(
        &self,
        frame: &Frame<'_>,
        bindings: &Bindings<'_>,
        start: usize,
        end: usize,
    ) -> Result<(), ExecError> {
        let (base, pace) = (bindings.buffers[self.buffer], Pace::new());
        for p in (start..end).step_by(BLOCK) {
            let n = BLOCK.min(end - p);
            pace.step(n)?;
            // SAFETY: registers hold `n` elements after `compute`.
            unsafe {
                frame.compute(p, n)?;
                let value = frame.reg(self.value);
                match &self.put {
                    Put::Elements { put, positions, index } => {
                        let (at, index) = (frame.reg(*positions), frame.reg(*index));
                        if bindings.is_checked() {
                            let at = (at.cast_const(), index.cast_const(), self.stride, self.axis);
                            check_indexed(bindings, self.buffer, at, self.stored, n)?;
                        }
                        put(base, at, index, value, self.stride, self.axis, n)?;
                    }
                    Put::Rows(rows) => self.put_rows(rows, value, bindings, (p, n))?,
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// As [`PreparedScatter::put_range`]; the values are those of these points.
    unsafe fn put_rows(
        &self,
        rows: &ScatteredRows,
        values: *const u8,
        bindings: &Bindings<'_>,
        (p, n): (usize, usize),
    ) -> Result<(), ExecError> {
        let (base, null) = (bindings.buffers[self.buffer], std::ptr::null());
        let (stored, computed) = rows.sizes;
        let mut done = 0;
        while done < n {
            let point = p + done;
            let len = (rows.row - point % rows.row).min(n - done);
            let index = rows.index.at(point);
            let size = rows.index_dtype.size();
            bindings.check_elements(rows.index_buffer, (index, index), size)?;
            // SAFETY: the caller's promise; an index inside its axis gives a row inside the buffer,
            // which is none of those that values are read from.
            unsafe {
                let index = self.axis.wrap(rows.index(point, bindings))?;
                let element = rows.store.at(point) + index * self.stride;
                let span = (element, element + len as isize - 1);
                bindings.check_elements(self.buffer, span, stored)?;
                let to = base.offset(element * stored as isize);
                (rows.put)(to, values.add(done * computed), null, null, len);
            }
            done += len;
        }
        Ok(())
    }
}

/// Combines an element in storage with a value of the compute type.
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
impl<T: ComplexPart> Meet<Complex<T>> for Complex<T> {
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
                // A NaN on either side is preserved.
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

/// `(positions, indices, stride, axis)` of a scatter.
type ScatterAt = (*const u8, *const u8, isize, IndexedAxis);

/// Checks each element that a scatter accesses, in checked mode. It stops at an index out of bounds,
/// which the access reports.
///
/// # Safety
/// The positions and indices (i64) are valid for `n` elements.
unsafe fn check_indexed(
    bindings: &Bindings<'_>,
    buffer: usize,
    (positions, index, stride, axis): ScatterAt,
    size: usize,
    n: usize,
) -> Result<(), ExecError> {
    // SAFETY: the caller's promise.
    let (positions, index) = unsafe { (slice::<i64>(positions, n), slice::<i64>(index, n)) };
    for (&p, &i) in positions.iter().zip(index) {
        let Ok(index) = axis.wrap(i) else { return Ok(()) };
        let element = p as isize + index * stride;
        bindings.check_elements(buffer, (element, element), size)?;
    }
    Ok(())
}

/// # Safety
/// Positions and indices (i64) and values are valid for `n` elements; a position plus a checked
/// index times the stride lies inside the buffer at `base`.
unsafe fn put<S: Meet<V>, V: Copy, const MODE: u8>(
    base: *mut u8,
    positions: *const u8,
    index: *const u8,
    values: *const u8,
    stride: isize,
    axis: IndexedAxis,
    n: usize,
) -> Result<(), ExecError> {
    // SAFETY: the caller's promise.
    let (positions, index, values) =
        unsafe { (slice::<i64>(positions, n), slice::<i64>(index, n), slice::<V>(values, n)) };
    for ((&p, &i), &v) in positions.iter().zip(index).zip(values) {
        let element = p as isize + axis.wrap(i)? * stride;
        // SAFETY: the index is inside its axis, so the element is inside the buffer.
        unsafe {
            let at = (base as *mut S).offset(element);
            *at = (*at).meet::<MODE>(v);
        }
    }
    Ok(())
}

/// Writes a row of values to consecutive elements: `(elements, values, _, _, n)`.
struct Row<S, V, const MODE: u8>(PhantomData<(S, V)>);
impl<S: Meet<V>, V: Copy, const MODE: u8> Loop for Row<S, V, MODE> {
    #[inline(always)]
    unsafe fn run(out: *mut u8, values: *const u8, _: *const u8, _: *const u8, n: usize) {
        // SAFETY: valid for `n` elements and not overlapping, by the contract of `run`.
        let (out, values) = unsafe { (slice_mut::<S>(out, n), slice::<V>(values, n)) };
        for (o, &v) in out.iter_mut().zip(values) {
            *o = o.meet::<MODE>(v);
        }
    }
}

/// The loops for elements and for rows.
fn put_fns(mode: ScatterMode, dtype: DType, isa: Isa) -> (PutFn, BlockFn) {
    match mode {
        ScatterMode::Set => put_as::<{ ScatterMode::Set as u8 }>(dtype, isa),
        ScatterMode::Add => put_as::<{ ScatterMode::Add as u8 }>(dtype, isa),
        ScatterMode::Mul => put_as::<{ ScatterMode::Mul as u8 }>(dtype, isa),
        ScatterMode::Min => put_as::<{ ScatterMode::Min as u8 }>(dtype, isa),
        ScatterMode::Max => put_as::<{ ScatterMode::Max as u8 }>(dtype, isa),
    }
}

fn put_as<const MODE: u8>(dtype: DType, isa: Isa) -> (PutFn, BlockFn) {
    macro_rules! of {
        ($s:ty, $v:ty) => {
            (put::<$s, $v, MODE>, select::<Row<$s, $v, MODE>>(isa))
        };
    }
    match dtype {
        DType::Bool | DType::U8 => of!(u8, u8),
        DType::U16 => of!(u16, u16),
        DType::U32 => of!(u32, u32),
        DType::U64 => of!(u64, u64),
        DType::I8 => of!(i8, i8),
        DType::I16 => of!(i16, i16),
        DType::I32 => of!(i32, i32),
        DType::I64 => of!(i64, i64),
        DType::F16 => of!(F16, f32),
        DType::BF16 => of!(Bf16, f32),
        DType::F32 => of!(f32, f32),
        DType::F64 => of!(f64, f64),
        DType::C64 => of!(Complex<f32>, Complex<f32>),
        DType::C128 => of!(Complex<f64>, Complex<f64>),
    }
}
