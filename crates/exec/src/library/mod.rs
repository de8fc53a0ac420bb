//! Library routines: the ops of class library on one item of a batch. Safe code over slices; the
//! executor passes the items and runs batches in parallel.
//!
//! The order of every sum is fixed by the sizes, so that results do not depend on threads.

mod fourier;
mod matrix;
mod order;
mod radix;
mod scan;
mod search;
mod select;
mod sort;
#[cfg(test)]
mod tests;
mod totals;

use crate::ExecError;
use girih_ir::{Op, OpCode};
use girih_linalg::Team;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use smallvec::SmallVec;
use std::sync::{Mutex, PoisonError};

/// The number of elements that a loop processes between two looks at whether the run was stopped.
const PART: usize = 1 << 16;

macro_rules! elements {
    ($($variant:ident $ty:ty),*) => {
        /// The elements of an operand.
        #[derive(Clone, Copy)]
        pub(crate) enum Data<'a> {
            $(#[doc = concat!("Of `", stringify!($ty), "`.")] $variant(&'a [$ty])),*
        }

        /// The elements of a result.
        pub(crate) enum DataMut<'a> {
            $(#[doc = concat!("Of `", stringify!($ty), "`.")] $variant(&'a mut [$ty])),*
        }

        $(impl Element for $ty {
            fn of(data: Data<'_>) -> &[$ty] {
                match data {
                    Data::$variant(slice) => slice,
                    _ => unreachable!("the verifier checked the operands' dtypes"),
                }
            }

            fn of_mut<'a>(data: &'a mut DataMut<'_>) -> &'a mut [$ty] {
                match data {
                    DataMut::$variant(slice) => slice,
                    _ => unreachable!("the verifier checked the results' dtypes"),
                }
            }
        })*
    };
}

elements!(
    U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64, F16 f16, BF16 bf16, F32 f32,
    F64 f64, C64 Complex32, C128 Complex64
);

/// An element type.
pub(crate) trait Element: Copy + Default + Send + Sync + 'static {
    /// The operand's elements; the operand has this type.
    fn of(data: Data<'_>) -> &[Self];
    /// The result's elements; the result has this type.
    fn of_mut<'a>(data: &'a mut DataMut<'_>) -> &'a mut [Self];
}

/// One call of a routine.
pub(crate) struct Args<'a> {
    /// The op's flag.
    pub flag: bool,
    /// The number of the item in the batch, if there are several: for errors.
    pub batch: Option<usize>,
    /// Elements and sizes of the operands' items; for routines that take [`many`](takes_many), the
    /// elements of several consecutive items.
    pub operands: SmallVec<[(Data<'a>, SmallVec<[usize; 2]>); 2]>,
    /// The results, by number; `None` for results that are not needed.
    pub results: SmallVec<[Option<DataMut<'a>>; 3]>,
    /// Runs the parallel work on a large matrix.
    pub team: &'a dyn Team,
}

impl<'a> Args<'a> {
    /// The elements of an operand.
    fn operand<T: Element>(&self, i: usize) -> &'a [T] {
        T::of(self.operands[i].0)
    }

    /// The elements of a result, if it is needed.
    fn result<T: Element>(&mut self, i: usize) -> Option<&mut [T]> {
        self.results.get_mut(i)?.as_mut().map(T::of_mut)
    }

    /// The elements of the first two results, where they are needed.
    fn two_results<A: Element, B: Element>(&mut self) -> (Option<&mut [A]>, Option<&mut [B]>) {
        let mut results = self.results.iter_mut().map(Option::as_mut);
        let first = results.next().flatten().map(A::of_mut);
        (first, results.next().flatten().map(B::of_mut))
    }
}

/// Runs the routine of an op on one item.
///
/// Errors: those of the routine; its results are then unspecified.
pub(crate) fn run(op: &Op, args: &mut Args<'_>) -> Result<(), ExecError> {
    macro_rules! real {
        ($module:ident::$function:ident) => {
            match args.operands[0].0 {
                Data::U8(_) => $module::$function::<u8>(args),
                Data::U16(_) => $module::$function::<u16>(args),
                Data::U32(_) => $module::$function::<u32>(args),
                Data::U64(_) => $module::$function::<u64>(args),
                Data::I8(_) => $module::$function::<i8>(args),
                Data::I16(_) => $module::$function::<i16>(args),
                Data::I32(_) => $module::$function::<i32>(args),
                Data::I64(_) => $module::$function::<i64>(args),
                Data::F16(_) => $module::$function::<f16>(args),
                Data::BF16(_) => $module::$function::<bf16>(args),
                Data::F32(_) => $module::$function::<f32>(args),
                Data::F64(_) => $module::$function::<f64>(args),
                Data::C64(_) | Data::C128(_) => unreachable!("complex numbers are in no order"),
            }
        };
    }
    macro_rules! totals {
        ($op:ident) => {
            match args.operands[0].0 {
                Data::I64(_) => totals::$op::<i64>(args),
                Data::U64(_) => totals::$op::<u64>(args),
                Data::F32(_) => totals::$op::<f32>(args),
                Data::F64(_) => totals::$op::<f64>(args),
                Data::C64(_) => totals::$op::<Complex32>(args),
                Data::C128(_) => totals::$op::<Complex64>(args),
                _ => unreachable!("the op's rule forbids the dtype"),
            }
        };
    }
    match op.code {
        OpCode::Sort => real!(sort::sort),
        OpCode::TopK => real!(sort::best),
        OpCode::OrderStatistics => real!(select::select),
        OpCode::SearchSorted => real!(search::search),
        OpCode::CumMax => real!(scan::running_max),
        OpCode::CumMin => real!(scan::running_min),
        OpCode::CumSum => totals!(sums),
        OpCode::CumProd => totals!(products),
        OpCode::Recurrence => match args.operands[0].0 {
            Data::F32(_) => scan::recurrence::<f32>(args),
            Data::F64(_) => scan::recurrence::<f64>(args),
            Data::C64(_) => scan::recurrence::<Complex32>(args),
            _ => scan::recurrence::<Complex64>(args),
        },
        OpCode::LogCumSumExp => match args.operands[0].0 {
            Data::F32(_) => scan::log_sum_exp::<f32>(args),
            _ => scan::log_sum_exp::<f64>(args),
        },
        OpCode::Fft | OpCode::Rfft | OpCode::Irfft => fourier::run(op, args),
        _ => match args.operands[0].0 {
            Data::F32(_) => matrix::run::<f32>(op, args)?,
            Data::F64(_) => matrix::run::<f64>(op, args)?,
            Data::C64(_) => matrix::run::<Complex32>(op, args)?,
            Data::C128(_) => matrix::run::<Complex64>(op, args)?,
            _ => unreachable!("the op's rule forbids the dtype"),
        },
    }
    Ok(())
}

/// Takes the data of a part for the thread that works on the part; `None` if they are taken already.
fn take<T>(part: &Mutex<Option<T>>) -> Option<T> {
    part.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Whether a call of the routine takes several items of the batch.
pub(crate) fn takes_many(code: OpCode) -> bool {
    matches!(code, OpCode::Fft | OpCode::Rfft | OpCode::Irfft | OpCode::CumSum | OpCode::CumProd)
}

/// The approximate time of one item in picoseconds, for operands of these sizes.
pub(crate) fn cost_ps(code: OpCode, dims: &[&[usize]]) -> usize {
    let numel = dims[0].iter().product::<usize>();
    let log = |n: usize| (usize::BITS - n.leading_zeros()) as usize;
    match code {
        OpCode::Sort => 50_000 + numel.saturating_mul(8000),
        // Few elements are better than the worst of the best elements found so far.
        OpCode::TopK => 50_000 + numel.saturating_mul(500),
        OpCode::OrderStatistics => 50_000 + numel.saturating_mul(3000),
        OpCode::SearchSorted => 20_000 + dims[1][0].saturating_mul(500 * log(numel)),
        OpCode::Fft | OpCode::Rfft | OpCode::Irfft => 5000 + numel.saturating_mul(400 * log(numel)),
        OpCode::LogCumSumExp => 20_000 + numel.saturating_mul(20_000),
        OpCode::CumSum | OpCode::CumProd => 20_000 + numel.saturating_mul(600),
        OpCode::CumMax | OpCode::CumMin | OpCode::Recurrence => 20_000 + numel.saturating_mul(1500),
        // Cubic, with a factor that grows from triangular factors to singular vectors.
        _ => {
            let side = dims[0].iter().copied().max().unwrap_or(0);
            let work = numel.saturating_mul(side);
            let each =
                if matches!(code, OpCode::Eigh | OpCode::Eig | OpCode::Svd) { 10_000 } else { 800 };
            200_000 + work.saturating_mul(each)
        }
    }
}
