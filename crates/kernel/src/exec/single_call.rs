//! Small maps that are one call of one generated function. A frame places registers, reserves scratch
//! memory and runs a setup; for a few dozen elements, as in the body of a loop, that takes longer than
//! the function. Here the addresses of the function's streams are all that is computed per run.

use super::Bindings;
use super::code::{Code, Place, Reg, Source, Step};
use super::stream::{Fused, Pointers, Stream};

/// Where the address of a stream comes from.
enum Origin {
    /// That byte of a buffer.
    Buffer(u32, isize),
    /// That word of the code's constants.
    Const(u32),
    /// A run-time scalar.
    Argument(u32),
}

/// How to call the one function of a code for all of its points.
pub(super) struct SingleCall {
    origins: Vec<Origin>,
    /// Calls, one for each segment, and the points of each.
    calls: usize,
    len: usize,
}

impl SingleCall {
    /// `None` if running the code at `points` points is more than calls of one function on memory,
    /// constants and scalars.
    pub fn new(code: &Code, points: usize) -> Option<SingleCall> {
        let ([Step::Fused(fused)], [], []) = (&code.steps[..], &code.directs[..], &code.writes[..])
        else {
            return None;
        };
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

    /// Runs the code that this was made from.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract for the kernel the code was made from.
    #[inline]
    pub unsafe fn run(&self, code: &Code, bindings: &Bindings<'_>) {
        let [Step::Fused(fused)] = &code.steps[..] else { unreachable!("`new` has found one") };
        let mut pointers = Pointers::new();
        for origin in &self.origins {
            pointers.push(match *origin {
                Origin::Buffer(buffer, byte) => {
                    bindings.buffers[buffer as usize].wrapping_offset(byte)
                }
                Origin::Const(word) => code.consts[word as usize..].as_ptr() as *mut u8,
                Origin::Argument(a) => bindings.arguments[a as usize].as_ptr() as *mut u8,
            });
        }
        // SAFETY: the caller's promise: the streams are where a frame would have them.
        unsafe { self.call(fused, &mut pointers) };
    }

    /// # Safety
    /// As [`SingleCall::run`]; the pointers are those of the first segment.
    #[inline]
    unsafe fn call(&self, fused: &Fused, pointers: &mut Pointers) {
        // SAFETY: the caller's promise.
        unsafe { fused.function.run(pointers, self.len) };
        for _ in 1..self.calls {
            for (pointer, step) in pointers.iter_mut().zip(&fused.steps) {
                *pointer = pointer.wrapping_offset(*step);
            }
            // SAFETY: streams go on by these steps from a segment to the next.
            unsafe { fused.function.run(pointers, self.len) };
        }
    }
}

/// Where the one element is that a step of the setup puts into a register.
fn scalar(code: &Code, step: &Step) -> Option<Origin> {
    let Step::Splat { source, size, .. } = step else { return None };
    Some(match source {
        _ if !code.narrow => return None,
        Source::Argument(a) => Origin::Argument(*a),
        Source::Element(buffer, element) => Origin::Buffer(*buffer, element * *size as isize),
    })
}

/// Where a register's elements are that are the same for each run.
fn of_register(code: &Code, reg: Reg) -> Option<Origin> {
    if let Place::Const(word) = code.places[reg as usize] {
        return Some(Origin::Const(word));
    }
    let step = code.setup.iter().find(|step| step.out() == reg)?;
    scalar(code, step)
}
