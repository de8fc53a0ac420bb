//! Functions on single lanes, which generated code calls for the few arguments that straight-line
//! code does not handle.

use super::ir::Lane;
use girih_exec::math::{self, wide};

/// A function that generated code can call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scalar {
    Sin,
    Cos,
    Tan,
}

/// `(results, arguments, lanes)`: each result whose bit is set in `lanes` becomes the function of
/// the argument at the same position. It follows the calling convention and never unwinds.
type Call = unsafe extern "sysv64" fn(*mut u8, *const u8, u32);

impl Scalar {
    /// The address of its [`Call`].
    pub fn address(self, lane: Lane) -> usize {
        let call: Call = match (self, lane) {
            (Scalar::Sin, Lane::Wide) => sin_f64,
            (Scalar::Cos, Lane::Wide) => cos_f64,
            (Scalar::Tan, Lane::Wide) => tan_f64,
            (Scalar::Sin, _) => sin_f32,
            (Scalar::Cos, _) => cos_f32,
            (Scalar::Tan, _) => tan_f32,
        };
        call as usize
    }
}

macro_rules! calls {
    ($($name:ident $type:ident $function:path;)*) => { $(
        /// # Safety
        /// Both pointers are aligned and valid for the lanes that are set.
        unsafe extern "sysv64" fn $name(results: *mut u8, arguments: *const u8, mut lanes: u32) {
            while lanes != 0 {
                let lane = lanes.trailing_zeros() as usize;
                lanes &= lanes - 1;
                // SAFETY: the caller's promise.
                unsafe {
                    let argument = *arguments.cast::<$type>().add(lane);
                    *results.cast::<$type>().add(lane) = $function(argument);
                }
            }
        }
    )* };
}
calls! {
    sin_f32 f32 math::sin;
    cos_f32 f32 math::cos;
    tan_f32 f32 math::tan;
    sin_f64 f64 wide::sin;
    cos_f64 f64 wide::cos;
    tan_f64 f64 wide::tan;
}
