//! GEMMs by plain loops, for every dtype and any strides. They are the oracle of the generated
//! GEMM, and the fallback for integers that it does not support.

use super::cast::{bf16_to_f32, compute, f16_to_f32};
use super::code::{Code, Frame};
use super::isa::{BlockFn, Isa, Loop, select};
use super::lower::{Lower, Order, walk};
use super::map::parallel_order;
use super::ops::{slice, slice_mut};
use super::stop::Pace;
use super::walk::Walk;
use super::{BLOCK, Bindings, ExecError, MAX_SIZE, PrepareOptions, Scratch, chunk_points};
use girih_ir::DType;
use girih_ir::complex::ComplexPart;
use girih_kernel::{Access, Kernel};
use num_complex::Complex;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::without_provenance;

/// An operand: its position at a point, and its walk along K.
struct Operand {
    buffer: usize,
    dtype: DType,
    size: isize,
    walk: Walk,
    along_k: Walk,
}

/// A part of a GEMM's result on which the kernel's body is to run: rows of adjacent points.
#[derive(Clone, Copy, Debug)]
pub struct BodyPart {
    /// The first point.
    pub point: usize,
    /// The number of points of a whole row of the result, which is the distance from a row of the
    /// part to the next.
    pub row: usize,
    /// The number of rows.
    pub rows: usize,
    /// The number of points of each row, at most `row`.
    pub columns: usize,
    /// The sums of the first row, contiguous, in the compute type (f32 for halves, which the body
    /// rounds).
    pub core: *const u8,
    /// The number of elements between the sums of consecutive rows.
    pub pitch: isize,
}

/// A prepared matmul.
pub(super) struct PreparedGemm {
    body: Code,
    lhs: Operand,
    rhs: Operand,
    /// The number of elements between columns of B, along the last dimension of columns.
    n_stride: isize,
    /// `acc[j] += a * b[j]` of `n` elements: `(acc, a, b, stride of b as an address, n)`.
    axpy: BlockFn,
    /// Whether an operand is narrower than the result's dtype; `a` then has 64 bits.
    extends: bool,
    /// The size of an accumulator in the compute type, in bytes.
    acc_size: usize,
    points: usize,
    /// The number of points along the last dimension of columns.
    columns: usize,
    k: usize,
    chunk: usize,
}

fn operand(kernel: &Kernel, order: &Order, access: &Access) -> Operand {
    let along_k =
        (kernel.parallel..kernel.extents.len()).map(|d| (kernel.extents[d], access.strides[d]));
    Operand {
        buffer: access.buffer.0 as usize,
        dtype: access.dtype,
        size: access.dtype.size() as isize,
        walk: walk(order, access.offset, &access.strides),
        along_k: Walk::new(0, along_k),
    }
}

impl Operand {
    /// Reads an integer, extended to 64 bits.
    ///
    /// # Safety
    /// `from` is an element of the operand, of integers.
    unsafe fn extended(&self, from: *const u8) -> u64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self.dtype {
                DType::I8 => *(from as *const i8) as u64,
                DType::I16 => *(from as *const i16) as u64,
                DType::I32 => *(from as *const i32) as u64,
                DType::U8 => *from as u64,
                DType::U16 => *(from as *const u16) as u64,
                DType::U32 => *(from as *const u32) as u64,
                _ => *(from as *const u64),
            }
        }
    }
}

impl PreparedGemm {
    pub fn new(
        kernel: &Kernel,
        (lhs, rhs): (&Access, &Access),
        dtype: DType,
        options: PrepareOptions<'_>,
    ) -> PreparedGemm {
        let order = parallel_order(kernel);
        let body = Lower::new(kernel, &kernel.body, &order, options).finish(&kernel.stores, &[]);
        let k = kernel.reduced();
        let columns = kernel.extents[kernel.parallel - 1];
        let points = kernel.points();
        let cost = body.cost_ps + k * 100;
        let extends = lhs.dtype != dtype || rhs.dtype != dtype;
        let axpy = match extends {
            true => extending_axpy(rhs.dtype, dtype, options.isa),
            false => axpy(dtype, options.isa),
        };
        PreparedGemm {
            lhs: operand(kernel, &order, lhs),
            rhs: operand(kernel, &order, rhs),
            n_stride: rhs.strides[kernel.parallel - 1],
            axpy,
            extends,
            acc_size: compute(dtype).size(),
            chunk: chunk_points(points, cost, columns),
            body,
            points,
            columns,
            k,
        }
    }

    /// The code of the body.
    pub fn code(&self) -> &Code {
        &self.body
    }

    pub fn chunks(&self) -> usize {
        self.points.div_ceil(self.chunk)
    }

    pub fn cost_ps(&self) -> usize {
        self.points.saturating_mul(self.body.cost_ps + self.k * 100)
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let points = chunk * self.chunk..((chunk + 1) * self.chunk).min(self.points);
        // SAFETY: the caller's promise.
        unsafe { self.run_points(points, bindings, scratch) }
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`], for these points.
    pub unsafe fn run_points(
        &self,
        points: Range<usize>,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let Range { start, end } = points;
        let core_bytes = BLOCK * MAX_SIZE;
        let bytes = core_bytes + self.body.slot_bytes;
        let (mem, regs) = scratch.reserve(bytes, self.body.places.len());
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the bindings.
        unsafe {
            let n = BLOCK.min(end - start);
            let frame = Frame::new(&self.body, mem.add(core_bytes), regs, bindings, n);
            frame.set_core(mem);
            let (mut p, pace) = (start, Pace::new());
            while p < end {
                let n = BLOCK.min(end - p);
                self.check_operands(p..p + n, bindings)?;
                self.accumulate(p, n, mem, bindings, &pace)?;
                frame.run(p, n)?;
                p += n;
            }
        }
        Ok(())
    }

    /// Checks the elements of A and B at some points, in checked mode.
    fn check_operands(
        &self,
        points: Range<usize>,
        bindings: &Bindings<'_>,
    ) -> Result<(), ExecError> {
        if !bindings.is_checked() {
            return Ok(());
        }
        for operand in [&self.lhs, &self.rhs] {
            let spans =
                (operand.walk.span(points.start, points.len()), operand.along_k.span(0, self.k));
            let (Some((low, high)), Some((first, last))) = spans else { continue };
            let span = (low + first, high + last);
            bindings.check_elements(operand.buffer, span, operand.size as usize)?;
        }
        Ok(())
    }

    /// Checks all that a GEMM accesses at some points, in checked mode, for a GEMM that other code
    /// computes.
    pub fn check(&self, points: Range<usize>, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        self.check_operands(points.clone(), bindings)?;
        match bindings.is_checked() {
            true => self.body.check(bindings, (points.start, points.len())),
            false => Ok(()),
        }
    }

    /// [`PreparedGemm::check`] of all points.
    pub fn check_all(&self, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        self.check(0..self.points, bindings)
    }

    /// Prefetches as [`super::Prepared::prefetch_rows`] does.
    pub fn prefetch_rows(&self, part: &BodyPart, bindings: &Bindings<'_>) {
        self.body.prefetch_rows(part.point, part.columns, (part.rows, part.row), bindings);
    }

    /// # Safety
    /// As [`super::Prepared::run_body`].
    pub unsafe fn run_body(
        &self,
        part: &BodyPart,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let size = self.acc_size as isize;
        let mut part = *part;
        if part.columns == part.row && part.pitch == part.row as isize {
            (part.rows, part.columns) = (1, part.rows * part.row);
        }
        let (mem, regs) = scratch.reserve(self.body.slot_bytes, self.body.places.len());
        // SAFETY: scratch memory of the requested sizes; the caller's promise for the rest.
        unsafe {
            let block = self.body.block.min(part.columns);
            let frame = Frame::new(&self.body, mem, regs, bindings, block);
            let (rows, mut done) = ((part.rows, part.row), 0);
            while done < part.columns {
                let (point, mut len) = (part.point + done, block.min(part.columns - done));
                let core = part.core.offset(done as isize * size);
                if part.rows > 1 {
                    len = len.min(frame.points_of_rows(point));
                    if frame.run_rows(point, len, rows, (core, part.pitch * size))? {
                        done += len;
                        continue;
                    }
                }
                for row in 0..part.rows {
                    frame.set_core(core.offset(row as isize * part.pitch * size));
                    frame.run(point + row * part.row, len)?;
                }
                done += len;
            }
        }
        Ok(())
    }

    /// The sums at the points `[p, p + n)`, one row segment at a time.
    ///
    /// # Safety
    /// `out` is valid for `n` elements of any dtype; the points lie in the space; bindings as
    /// for the kernel.
    unsafe fn accumulate(
        &self,
        p: usize,
        n: usize,
        out: *mut u8,
        bindings: &Bindings<'_>,
        pace: &Pace,
    ) -> Result<(), ExecError> {
        let (mut done, mut outcome) = (0, Ok(()));
        // SAFETY: accesses stay inside their buffers for all points and all `k`.
        unsafe {
            let lhs = bindings.buffers[self.lhs.buffer];
            let rhs = bindings.buffers[self.rhs.buffer];
            let (size_a, size_b, size) = (self.lhs.size, self.rhs.size, self.acc_size);
            while done < n {
                let point = p + done;
                let len = (self.columns - point % self.columns).min(n - done);
                let (a, b) = (self.lhs.walk.at(point), self.rhs.walk.at(point));
                let acc = out.add(done * size);
                acc.write_bytes(0, len * size);
                // Runs of K indices along which both operands have a constant stride.
                self.lhs.along_k.runs(0, self.k, |k, a_first, a_step, n| {
                    self.rhs.along_k.runs(k, n, |k, b_first, b_step, n| {
                        let mut a = a + a_first + k as isize * a_step;
                        let mut b = b + b_first;
                        for _ in 0..n {
                            if outcome.is_ok() {
                                outcome = pace.step(len);
                            }
                            if outcome.is_err() {
                                return;
                            }
                            let (from, by) = (lhs.offset(a * size_a), rhs.offset(b * size_b));
                            let wide = if self.extends { self.lhs.extended(from) } else { 0 };
                            let from = if self.extends { (&raw const wide).cast() } else { from };
                            (self.axpy)(
                                acc,
                                from,
                                by,
                                without_provenance(self.n_stride as usize),
                                len,
                            );
                            (a, b) = (a + a_step, b + b_step);
                        }
                    });
                });
                done += len;
            }
        }
        outcome
    }
}

/// The conversion of storage elements to the type in which they are multiplied.
trait Factor<S> {
    type Acc: Copy;
    type Left: Copy;
    fn mul_add(acc: Self::Acc, a: Self::Left, b: S) -> Self::Acc;
}
struct Plain;
/// Integers, extended to the accumulator's size.
struct Extend<A>(PhantomData<A>);
struct F16;
struct Bf16;
macro_rules! factor {
    ($($t:ident $a:ident $b:ident $acc:ident => $e:expr;)*) => { $(impl Factor<$t> for Plain {
        type Acc = $t;
        type Left = $t;
        #[inline(always)]
        fn mul_add($acc: $t, $a: $t, $b: $t) -> $t { $e }
    })* };
}
factor! {
    u8 a b c => c.wrapping_add(a.wrapping_mul(b));
    u16 a b c => c.wrapping_add(a.wrapping_mul(b));
    u32 a b c => c.wrapping_add(a.wrapping_mul(b));
    u64 a b c => c.wrapping_add(a.wrapping_mul(b));
    f32 a b c => c + a * b;
    f64 a b c => c + a * b;
}
impl<T: ComplexPart> Factor<Complex<T>> for Plain {
    type Acc = Complex<T>;
    type Left = Complex<T>;
    #[inline(always)]
    fn mul_add(acc: Complex<T>, a: Complex<T>, b: Complex<T>) -> Complex<T> {
        T::add(acc, T::mul(a, b))
    }
}
impl Factor<u16> for F16 {
    type Acc = f32;
    type Left = u16;
    #[inline(always)]
    fn mul_add(acc: f32, a: u16, b: u16) -> f32 {
        acc + f16_to_f32(a) * f16_to_f32(b)
    }
}
impl Factor<u16> for Bf16 {
    type Acc = f32;
    type Left = u16;
    #[inline(always)]
    fn mul_add(acc: f32, a: u16, b: u16) -> f32 {
        acc + bf16_to_f32(a) * bf16_to_f32(b)
    }
}

macro_rules! extend {
    ($($acc:ident: $($t:ident)*;)*) => { $($(impl Factor<$t> for Extend<$acc> {
        type Acc = $acc;
        type Left = u64;
        #[inline(always)]
        fn mul_add(acc: $acc, a: u64, b: $t) -> $acc {
            acc.wrapping_add((a as $acc).wrapping_mul(b as $acc))
        }
    })*)* };
}
extend! {
    u16: u8 i8 u16;
    u32: u8 i8 u16 i16 u32;
    u64: u8 i8 u16 i16 u32 i32 u64;
}

struct Axpy<F, S>(PhantomData<(F, S)>);
impl<S: Copy, F: Factor<S>> Loop for Axpy<F, S> {
    #[inline(always)]
    unsafe fn run(acc: *mut u8, a: *const u8, b: *const u8, stride: *const u8, n: usize) {
        let stride = stride.addr() as isize;
        // SAFETY: the caller passes one `a`, `n` accumulators, and `b` valid at `n` such strides.
        unsafe {
            let (acc, a, b) = (slice_mut::<F::Acc>(acc, n), *(a as *const F::Left), b as *const S);
            if stride == 1 {
                for (acc, &b) in acc.iter_mut().zip(slice::<S>(b as *const u8, n)) {
                    *acc = F::mul_add(*acc, a, b);
                }
            } else {
                for (j, acc) in acc.iter_mut().enumerate() {
                    *acc = F::mul_add(*acc, a, *b.offset(stride * j as isize));
                }
            }
        }
    }
}

fn axpy(dtype: DType, isa: Isa) -> BlockFn {
    debug_assert!(compute(dtype) != DType::Bool, "matmul takes numbers");
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => select::<Axpy<Plain, u8>>(isa),
        DType::U16 | DType::I16 => select::<Axpy<Plain, u16>>(isa),
        DType::U32 | DType::I32 => select::<Axpy<Plain, u32>>(isa),
        DType::U64 | DType::I64 => select::<Axpy<Plain, u64>>(isa),
        DType::F16 => select::<Axpy<F16, u16>>(isa),
        DType::BF16 => select::<Axpy<Bf16, u16>>(isa),
        DType::F32 => select::<Axpy<Plain, f32>>(isa),
        DType::F64 => select::<Axpy<Plain, f64>>(isa),
        DType::C64 => select::<Axpy<Plain, Complex<f32>>>(isa),
        DType::C128 => select::<Axpy<Plain, Complex<f64>>>(isa),
    }
}

/// The loop for integers, whose rhs is as wide as the result or narrower.
fn extending_axpy(rhs: DType, result: DType, isa: Isa) -> BlockFn {
    match result.size() {
        2 => match rhs {
            DType::U8 => select::<Axpy<Extend<u16>, u8>>(isa),
            DType::I8 => select::<Axpy<Extend<u16>, i8>>(isa),
            _ => select::<Axpy<Extend<u16>, u16>>(isa),
        },
        4 => match rhs {
            DType::U8 => select::<Axpy<Extend<u32>, u8>>(isa),
            DType::I8 => select::<Axpy<Extend<u32>, i8>>(isa),
            DType::U16 => select::<Axpy<Extend<u32>, u16>>(isa),
            DType::I16 => select::<Axpy<Extend<u32>, i16>>(isa),
            _ => select::<Axpy<Extend<u32>, u32>>(isa),
        },
        _ => match rhs {
            DType::U8 => select::<Axpy<Extend<u64>, u8>>(isa),
            DType::I8 => select::<Axpy<Extend<u64>, i8>>(isa),
            DType::U16 => select::<Axpy<Extend<u64>, u16>>(isa),
            DType::I16 => select::<Axpy<Extend<u64>, i16>>(isa),
            DType::U32 => select::<Axpy<Extend<u64>, u32>>(isa),
            DType::I32 => select::<Axpy<Extend<u64>, i32>>(isa),
            _ => select::<Axpy<Extend<u64>, u64>>(isa),
        },
    }
}
