//! Small maps that are a single call of one generated function. A frame places registers, reserves
//! scratch memory and runs a setup. For a few dozen elements, as in the body of a loop, this work
//! takes longer than the function. A run of a single call computes only the addresses of the
//! function's streams.

use super::code::{Code, Reg, RegisterPlace, Source, Step};
use super::stream::{Fused, Pointers, Stream};
use super::{Bindings, ExecError, Ran, StridedIterations};
use smallvec::SmallVec;

/// The source of a stream's address.
enum Origin {
    /// A buffer, at that byte.
    Buffer(u32, isize),
    /// The code's constants, at that word.
    Const(u32),
    /// A run-time scalar.
    Argument(u32),
}

/// The call of a code's only function for all of its points.
pub(super) struct SingleCall {
    origins: Vec<Origin>,
    /// The number of calls, one per segment, and the number of points of each call.
    calls: usize,
    len: usize,
}

impl SingleCall {
    /// `None` if running the code at `points` points requires more than calls of one function on
    /// memory, constants and scalars.
    pub fn new(code: &Code, points: usize) -> Option<SingleCall> {
        let fused = code.only_function()?;
        if points == 0
            || points > code.block
            || !code.setup.iter().all(|s| scalar(code, s).is_some())
        {
            return None;
        }
        let (calls, len) = fused.run_from(0, points);
        if calls * len != points {
            return None;
        }
        let origins = fused.streams.iter().zip(fused.elements(0)).map(|(stream, element)| {
            Some(match stream {
                Stream::Memory { buffer, size, .. } => {
                    Origin::Buffer(*buffer, element * *size as isize)
                }
                Stream::Register { reg, .. } => of_register(code, *reg)?,
                Stream::Total { .. } => return None,
            })
        });
        Some(SingleCall { origins: origins.collect::<Option<_>>()?, calls, len })
    }

    /// Runs `code`, from which this call was made.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract for the kernel the code was made from.
    #[inline]
    pub unsafe fn run(&self, code: &Code, bindings: &Bindings<'_>) {
        let mut pointers = Pointers::new();
        self.fill(&mut pointers, code, bindings);
        // SAFETY: the caller's promise: the streams are where a frame would have them.
        unsafe { function_of(code).run_segments(&mut pointers, self.len, self.calls) };
    }

    /// Checks the call, in checked mode.
    pub fn check(&self, code: &Code, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        let mut pointers = Pointers::new();
        self.fill(&mut pointers, code, bindings);
        let fused = function_of(code);
        code.check_setup(bindings)?;
        fused.check_call(&pointers, (self.len, self.calls), &fused.steps, bindings)
    }

    /// Runs iterations of a loop with the code from which this call was made. Returns `None` and
    /// has no effect if an iteration takes more than one call. From iteration to iteration only the
    /// addresses of streams in buffers change.
    ///
    /// # Safety
    /// The bindings, with the buffers at the addresses of each iteration in turn, fulfil
    /// [`Bindings`]' contract for the kernel the code was made from.
    pub unsafe fn run_strided(
        &self,
        code: &Code,
        strided: &mut StridedIterations<'_>,
        bindings: &Bindings<'_>,
        proceed: &mut dyn FnMut() -> Result<(), ExecError>,
    ) -> Ran {
        if self.calls != 1 {
            return None;
        }
        let distance = |origin: &Origin| match *origin {
            Origin::Buffer(buffer, _) => strided.distances[buffer as usize],
            Origin::Const(_) | Origin::Argument(_) => 0,
        };
        let distances: SmallVec<[isize; 24]> = self.origins.iter().map(distance).collect();
        let (mut now, mut next) = (Pointers::new(), Pointers::new());
        let [first, second] = &strided.tables;
        for (pointers, table) in [(&mut now, &**first), (&mut next, &**second)] {
            let bindings = Bindings { buffers: table, ..*bindings };
            self.fill(pointers, code, &bindings);
            // The bounds are those of each iteration's buffers, and all iterations access the same
            // bytes of them.
            if bindings.is_checked()
                && let Err(error) = self.check(code, &bindings)
            {
                return Some(Err(error));
            }
        }
        let function = &function_of(code).function;
        let mut iterate = |pointers: &mut Pointers| {
            proceed()?;
            // SAFETY: the caller's promise.
            unsafe { function.run(pointers, self.len) };
            for (pointer, distance) in pointers.iter_mut().zip(&distances) {
                *pointer = pointer.wrapping_offset(*distance);
            }
            Ok(())
        };
        for iteration in 0..strided.count {
            let ran = iterate(if iteration % 2 == 0 { &mut now } else { &mut next });
            if ran.is_err() {
                return Some(ran);
            }
        }
        Some(Ok(()))
    }

    /// Appends the addresses of the function's streams.
    #[inline]
    fn fill(&self, pointers: &mut Pointers, code: &Code, bindings: &Bindings<'_>) {
        for origin in &self.origins {
            pointers.push(match *origin {
                Origin::Buffer(buffer, byte) => {
                    bindings.buffers[buffer as usize].wrapping_offset(byte)
                }
                Origin::Const(word) => code.consts[word as usize..].as_ptr() as *mut u8,
                Origin::Argument(a) => bindings.arguments[a as usize].as_ptr() as *mut u8,
            });
        }
    }
}

/// The only function of a code.
fn function_of(code: &Code) -> &Fused {
    code.only_function().expect("`new` has found one")
}

/// The address of the single element that a setup step broadcasts to a register.
fn scalar(code: &Code, step: &Step) -> Option<Origin> {
    let Step::Splat { source, size, .. } = step else { return None };
    Some(match source {
        _ if !code.narrow => return None,
        Source::Argument(a) => Origin::Argument(*a),
        Source::Element(buffer, element) => Origin::Buffer(*buffer, element * *size as isize),
    })
}

/// The address of a register's elements, if it is the same in each run.
fn of_register(code: &Code, reg: Reg) -> Option<Origin> {
    if let RegisterPlace::Const(word) = code.places[reg as usize] {
        return Some(Origin::Const(word));
    }
    let step = code.setup.iter().find(|step| step.out() == reg)?;
    scalar(code, step)
}
