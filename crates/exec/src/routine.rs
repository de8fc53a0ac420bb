//! Library kernels: a routine that is called for each item of a batch, several items per chunk.

use super::{Bindings, ExecError, chunk_ps};
use crate::library::{self, Args, Data, DataMut};
use girih_ir::ops::host::{HostCall, HostView, HostViewMut};
use girih_ir::{DType, TensorSpec};
use girih_kernel::{Item, Kernel, Routine};
use girih_linalg::Team;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

/// A prepared routine.
pub(super) struct PreparedRoutine {
    routine: Routine,
    batches: usize,
    per_chunk: usize,
    cost_ps: usize,
}

impl PreparedRoutine {
    pub fn new(kernel: &Kernel, routine: &Routine) -> PreparedRoutine {
        if routine.op.as_host().is_some() {
            // The time of a host op is unknown; assume that it is long enough for a thread of its
            // own.
            let cost_ps = chunk_ps();
            return PreparedRoutine { routine: routine.clone(), batches: 1, per_chunk: 1, cost_ps };
        }
        let dims: Vec<&[usize]> = routine.operands.iter().map(|i| &i.dims[..]).collect();
        let cost_ps = library::cost_ps(routine.op.code, &dims);
        let per_chunk = (chunk_ps() / cost_ps.max(1)).max(1);
        PreparedRoutine { routine: routine.clone(), batches: kernel.extents[0], per_chunk, cost_ps }
    }

    pub fn chunks(&self) -> usize {
        self.batches.div_ceil(self.per_chunk)
    }

    pub fn cost_ps(&self) -> usize {
        self.cost_ps.saturating_mul(self.batches)
    }

    /// # Safety
    /// As [`super::Prepared::run_chunk`].
    pub unsafe fn run_chunk(
        &self,
        chunk: usize,
        bindings: &Bindings<'_>,
        team: &dyn Team,
    ) -> Result<(), ExecError> {
        self.check_chunk(chunk, bindings)?;
        if let Some((_, call)) = self.routine.op.as_host() {
            // SAFETY: the caller's promise.
            return unsafe { run_host(&self.routine, call, bindings) };
        }
        let end = ((chunk + 1) * self.per_chunk).min(self.batches);
        let first = chunk * self.per_chunk;
        let many = if library::takes_many(self.routine.op.code) { self.per_chunk } else { 1 };
        for batch in (first..end).step_by(many) {
            let count = many.min(end - batch);
            let operand = |item: &Item| {
                // SAFETY: items of the batch lie in their buffer, which nothing writes meanwhile.
                (unsafe { data(item, bindings, batch, count) }, item.dims.as_slice().into())
            };
            let result = |item: &Option<Item>| {
                // SAFETY: items of the batch lie in their buffer, and no other chunk or result
                // has them.
                item.as_ref().map(|item| unsafe { data_mut(item, bindings, batch, count) })
            };
            let (_, flag, _) = self.routine.op.attrs.library();
            let mut args = Args {
                flag,
                batch: (self.batches > 1).then_some(batch),
                operands: self.routine.operands.iter().map(operand).collect(),
                results: self.routine.results.iter().map(result).collect(),
                team,
            };
            library::run(&self.routine.op, &mut args)?;
        }
        Ok(())
    }
}

impl PreparedRoutine {
    /// Checks the items of a chunk, in checked mode.
    fn check_chunk(&self, chunk: usize, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        if !bindings.is_checked() {
            return Ok(());
        }
        let end = ((chunk + 1) * self.per_chunk).min(self.batches);
        let results = self.routine.results.iter().flatten();
        for item in self.routine.operands.iter().chain(results) {
            let bytes = (item.len() * item.dtype.size()) as isize;
            let first = (chunk * self.per_chunk) as isize * bytes;
            bindings.check(item.buffer.0 as usize, first..end as isize * bytes)?;
        }
        Ok(())
    }
}

/// Runs a host op; results that are not needed are written to temporary memory.
///
/// # Safety
/// As [`super::Prepared::run_chunk`].
unsafe fn run_host(
    routine: &Routine,
    call: &HostCall,
    bindings: &Bindings<'_>,
) -> Result<(), ExecError> {
    let spec = |item: &Item| TensorSpec::new(&item.dims[..], item.dtype);
    let operand = |item: &Item| {
        let (spec, start) = (spec(item), bindings.buffers[item.buffer.0 as usize]);
        let bytes: &[u8] = match spec.size_bytes() {
            0 => &[],
            // SAFETY: the operand fills its buffer, which nothing writes meanwhile.
            size => unsafe { std::slice::from_raw_parts(start, size) },
        };
        HostView { spec, bytes }
    };
    let operands: Vec<HostView<'_>> = routine.operands.iter().map(operand).collect();
    let needed = |number: usize| routine.results.get(number).and_then(Option::as_ref);
    let spare = |(number, spec): (usize, &TensorSpec)| match needed(number) {
        Some(_) => Vec::new(),
        None => vec![0; spec.size_bytes()],
    };
    let mut spares: Vec<Vec<u8>> = call.results().iter().enumerate().map(spare).collect();
    let result = |(number, (spec, spare)): (usize, (&TensorSpec, &mut Vec<u8>))| {
        let bytes: *mut [u8] = match needed(number) {
            None => &mut spare[..],
            Some(item) => std::ptr::slice_from_raw_parts_mut(
                bindings.buffers[item.buffer.0 as usize],
                spec.size_bytes(),
            ),
        };
        // SAFETY: the result fills its buffer, which nothing else uses; or the temporary memory is
        // not changed until the op has run.
        HostViewMut { spec: spec.clone(), bytes: unsafe { &mut *bytes } }
    };
    let room = call.results().iter().zip(&mut spares).enumerate();
    let mut results: Vec<HostViewMut<'_>> = room.map(result).collect();
    call.run(&operands, &mut results).map_err(ExecError::Host)
}

macro_rules! typed {
    ($($variant:ident $ty:ty: $($dtype:path),+;)*) => {
        /// # Safety
        /// The item's buffer is bound, and nothing writes those items of the batch while the slice
        /// lives.
        unsafe fn data<'a>(item: &Item, bindings: &Bindings<'a>, batch: usize, count: usize) -> Data<'a> {
            let start = bindings.buffers[item.buffer.0 as usize];
            match item.dtype {
                $($($dtype)|+ if item.is_empty() => Data::$variant(&[]),
                $($dtype)|+ => Data::$variant(
                    // SAFETY: the caller's promise; buffers are aligned to their dtype.
                    unsafe {
                        let start = (start as *const $ty).add(batch * item.len());
                        std::slice::from_raw_parts(start, count * item.len())
                    },
                ),)*
            }
        }

        /// # Safety
        /// The item's buffer is bound, and nothing else uses those items of the batch while the
        /// slice lives.
        unsafe fn data_mut<'a>(item: &Item, bindings: &Bindings<'a>, batch: usize, count: usize) -> DataMut<'a> {
            let start = bindings.buffers[item.buffer.0 as usize];
            match item.dtype {
                $($($dtype)|+ if item.is_empty() => DataMut::$variant(&mut []),
                $($dtype)|+ => DataMut::$variant(
                    // SAFETY: the caller's promise; buffers are aligned to their dtype.
                    unsafe {
                        let start = (start as *mut $ty).add(batch * item.len());
                        std::slice::from_raw_parts_mut(start, count * item.len())
                    },
                ),)*
            }
        }
    };
}

typed! {
    U8 u8: DType::Bool, DType::U8;
    U16 u16: DType::U16;
    U32 u32: DType::U32;
    U64 u64: DType::U64;
    I8 i8: DType::I8;
    I16 i16: DType::I16;
    I32 i32: DType::I32;
    I64 i64: DType::I64;
    F16 f16: DType::F16;
    BF16 bf16: DType::BF16;
    F32 f32: DType::F32;
    F64 f64: DType::F64;
    C64 Complex32: DType::C64;
    C128 Complex64: DType::C128;
}
