//! Fourier transforms of rows, by `rustfft` and `realfft`. Plans and their scratch memory are
//! cached per thread, for the most recent sizes.

use super::{Args, Data, Element, cost_ps};
use girih_ir::{Op, OpCode};
use girih_linalg::apart;
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::num_traits::Zero;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::cell::RefCell;
use std::sync::Arc;
use std::thread::LocalKey;

/// The maximum number of cached plans of a thread, and the maximum number of elements of their rows
/// in total; at least one plan is cached.
const KEPT: (usize, usize) = (16, 1 << 20);

/// The number of elements of a row from which on its transform may run apart.
const LONG: usize = 1 << 20;

/// Real element types of transforms.
trait Real: FftNum + Element {
    /// This thread's plans.
    fn plans() -> &'static LocalKey<RefCell<Plans<Self>>>;
    /// `1 / n`.
    fn over(n: usize) -> Self;
}

macro_rules! real {
    ($($ty:ty)*) => {
        $(impl Real for $ty {
            fn plans() -> &'static LocalKey<RefCell<Plans<$ty>>> {
                thread_local! {
                    static PLANS: RefCell<Plans<$ty>> = const { RefCell::new(Plans(Vec::new())) };
                }
                &PLANS
            }

            fn over(n: usize) -> $ty {
                (1.0 / n as f64) as $ty
            }
        })*
    };
}

real!(f32 f64);

/// The kind of transform of a plan.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Forward,
    Inverse,
    OfReal,
    ToReal,
}

enum Routine<T> {
    Complex(Arc<dyn Fft<T>>),
    OfReal(Arc<dyn RealToComplex<T>>),
    ToReal(Arc<dyn ComplexToReal<T>>),
}

/// A transform of rows of one length, with scratch memory.
struct FftPlan<T> {
    kind: Kind,
    n: usize,
    routine: Routine<T>,
    scratch: Vec<Complex<T>>,
    /// A copy of the row, for routines that overwrite their input.
    reals: Vec<T>,
    spectrum: Vec<Complex<T>>,
}

impl<T: Real> FftPlan<T> {
    fn new(kind: Kind, n: usize) -> FftPlan<T> {
        let routine = match kind {
            Kind::Forward => Routine::Complex(FftPlanner::new().plan_fft(n, FftDirection::Forward)),
            Kind::Inverse => Routine::Complex(FftPlanner::new().plan_fft(n, FftDirection::Inverse)),
            Kind::OfReal => Routine::OfReal(RealFftPlanner::new().plan_fft_forward(n)),
            Kind::ToReal => Routine::ToReal(RealFftPlanner::new().plan_fft_inverse(n)),
        };
        let zero = Complex { re: T::zero(), im: T::zero() };
        let (scratch, reals, spectrum) = match &routine {
            Routine::Complex(f) => (f.get_immutable_scratch_len(), 0, 0),
            Routine::OfReal(f) => (f.get_scratch_len(), n, 0),
            Routine::ToReal(f) => (f.get_scratch_len(), 0, f.complex_len()),
        };
        FftPlan {
            kind,
            n,
            routine,
            scratch: vec![zero; scratch],
            reals: vec![T::zero(); reals],
            spectrum: vec![zero; spectrum],
        }
    }
}

/// A thread's plans, the most recent one last.
struct Plans<T>(Vec<FftPlan<T>>);

impl<T: Real> Plans<T> {
    fn get(&mut self, kind: Kind, n: usize) -> &mut FftPlan<T> {
        match self.0.iter().rposition(|p| p.kind == kind && p.n == n) {
            Some(at) => self.0[at..].rotate_left(1),
            None => self.put(FftPlan::new(kind, n)),
        }
        self.0.last_mut().expect("there is the one asked for")
    }

    /// Takes a plan out.
    fn take(&mut self, kind: Kind, n: usize) -> Option<FftPlan<T>> {
        let at = self.0.iter().rposition(|p| p.kind == kind && p.n == n)?;
        Some(self.0.remove(at))
    }

    /// Adds a plan as the most recent one, and drops the oldest ones.
    fn put(&mut self, plan: FftPlan<T>) {
        let mut total = plan.n;
        let keeps = |p: &&FftPlan<T>| {
            total = total.saturating_add(p.n);
            total <= KEPT.1
        };
        let kept = self.0.iter().rev().take(KEPT.0 - 1).take_while(keeps).count();
        self.0.drain(..self.0.len() - kept);
        self.0.push(plan);
    }
}

/// Transforms the rows of a chunk.
pub(super) fn run(op: &Op, args: &mut Args<'_>) {
    let (_, flag, size) = op.attrs.library();
    let (kind, n) = match op.code {
        OpCode::Fft => (if flag { Kind::Inverse } else { Kind::Forward }, args.operands[0].1[0]),
        OpCode::Rfft => (Kind::OfReal, args.operands[0].1[0]),
        _ => (Kind::ToReal, size as usize),
    };
    let divided = if op.code == OpCode::Fft { size == 1 } else { flag };
    match args.operands[0].0 {
        Data::F32(_) | Data::C64(_) => transform::<f32>(kind, n, divided, args),
        Data::F64(_) | Data::C128(_) => transform::<f64>(kind, n, divided, args),
        _ => unreachable!("the op's rule forbids the dtype"),
    }
}

fn transform<T: Real>(kind: Kind, n: usize, divided: bool, args: &mut Args<'_>)
where
    Complex<T>: Element,
{
    let scale = divided.then(|| T::over(n));
    match kind {
        Kind::Forward | Kind::Inverse => {
            on_rows::<T, Complex<T>, Complex<T>>(kind, n, args, move |plan, rows, out| {
                complex(plan, scale, rows, out)
            });
        }
        Kind::OfReal => on_rows::<T, T, Complex<T>>(kind, n, args, move |plan, rows, out| {
            of_real(plan, scale, rows, out)
        }),
        Kind::ToReal => on_rows::<T, Complex<T>, T>(kind, n, args, move |plan, rows, out| {
            to_real(plan, scale, rows, out)
        }),
    }
}

/// Calls `run` with this thread's plan, the rows and the results. A long transform, which has no
/// place to stop at, runs apart on copies of the rows, and so does its planning.
fn on_rows<T: Real, I: Element + Send, O: Element + Send + Zero>(
    kind: Kind,
    n: usize,
    args: &mut Args<'_>,
    run: impl Fn(&mut FftPlan<T>, &[I], &mut [O]) + Send + 'static,
) {
    let (rows, team) = (args.operand::<I>(0), args.team);
    let Some(out) = args.result::<O>(0) else { return };
    if n < LONG {
        return T::plans().with_borrow_mut(|plans| run(plans.get(kind, n), rows, out));
    }
    let plan = T::plans().with_borrow_mut(|plans| plans.take(kind, n));
    let (rows, count) = (rows.to_vec(), out.len());
    let found = apart(team, cost_ps(OpCode::Fft, &[&[n]]) as u64 / 1000, move || {
        let mut plan = plan.unwrap_or_else(|| FftPlan::new(kind, n));
        let mut out = vec![O::zero(); count];
        run(&mut plan, &rows, &mut out);
        (plan, out)
    });
    if let Some((plan, values)) = found {
        T::plans().with_borrow_mut(|plans| plans.put(plan));
        out.copy_from_slice(&values);
    }
}

/// Transforms complex rows.
fn complex<T: Real>(
    plan: &mut FftPlan<T>,
    scale: Option<T>,
    rows: &[Complex<T>],
    out: &mut [Complex<T>],
) {
    let FftPlan { routine: Routine::Complex(fft), scratch, .. } = plan else {
        unreachable!("the plan is of this kind")
    };
    fft.process_immutable_with_scratch(rows, out, scratch);
    if let Some(scale) = scale {
        out.iter_mut().for_each(|v| *v = v.scale(scale));
    }
}

/// Transforms real rows to the first halves of their spectra.
fn of_real<T: Real>(plan: &mut FftPlan<T>, scale: Option<T>, rows: &[T], out: &mut [Complex<T>]) {
    let FftPlan { routine: Routine::OfReal(fft), scratch, reals: row, .. } = plan else {
        unreachable!("the plan is of this kind")
    };
    let rows = rows.chunks_exact(fft.len());
    for (from, to) in rows.zip(out.chunks_exact_mut(fft.complex_len())) {
        row.copy_from_slice(from);
        if let Some(scale) = scale {
            row.iter_mut().for_each(|v| *v = *v * scale);
        }
        fft.process_with_scratch(row, to, scratch).expect("the slices have the plan's lengths");
    }
}

/// Transforms first halves of spectra to real rows. Imaginary parts that the spectrum of a real row
/// cannot have count as zero.
fn to_real<T: Real>(plan: &mut FftPlan<T>, scale: Option<T>, rows: &[Complex<T>], out: &mut [T]) {
    let FftPlan { routine: Routine::ToReal(fft), scratch, spectrum: row, .. } = plan else {
        unreachable!("the plan is of this kind")
    };
    let n = fft.len();
    let rows = rows.chunks_exact(fft.complex_len());
    for (from, to) in rows.zip(out.chunks_exact_mut(n)) {
        row.copy_from_slice(from);
        if let Some(scale) = scale {
            row.iter_mut().for_each(|v| *v = v.scale(scale));
        }
        row[0].im = T::zero();
        if n.is_multiple_of(2) {
            row[n / 2].im = T::zero();
        }
        fft.process_with_scratch(row, to, scratch)
            .expect("the slices have the plan's lengths, and no impossible parts");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(plans: &Plans<f64>) -> Vec<usize> {
        plans.0.iter().map(|p| p.n).collect()
    }

    #[test]
    fn the_plans_used_last_are_kept() {
        let mut plans = Plans::<f64>(Vec::new());
        for n in 1..=KEPT.0 + 2 {
            plans.get(Kind::Forward, n);
        }
        assert_eq!(kept(&plans), (3..=KEPT.0 + 2).collect::<Vec<_>>());
        plans.get(Kind::Forward, 4);
        assert_eq!(kept(&plans).last(), Some(&4));
        plans.get(Kind::OfReal, 4);
        assert_eq!(kept(&plans)[..2], [5, 6]);
        assert_eq!(plans.0.len(), KEPT.0);
        plans.get(Kind::Inverse, KEPT.1 - 5);
        assert_eq!(kept(&plans), [4, KEPT.1 - 5]);
        plans.get(Kind::Inverse, KEPT.1 * 2);
        assert_eq!(kept(&plans), [KEPT.1 * 2]);
    }
}
