//! Code generation at run time: loops over vectors, compiled in microseconds.
//!
//! A kernel's body becomes a straight-line program of the vector IR ([`ir`]); elementary functions
//! write themselves into it ([`trace`]). A linear pass gives its values registers ([`allocate`]),
//! an encoder ([`avx512`]) writes the loop around it, and the code goes to memory that is never
//! writable and executable at once ([`arena`]).
//!
//! Generated code computes what the portable executor computes, to the bit (but for payloads of
//! NaNs): the same operations in the same order, nothing contracted. What the generator does not
//! know, and machines it does not know, are left to that executor. `GIRIH_JIT=0` leaves it all.

#[cfg(target_arch = "x86_64")]
mod allocate;
mod arena;
#[cfg(target_arch = "x86_64")]
mod asm;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod ir;
mod lower;
mod map;
#[cfg(test)]
mod tests;
mod trace;

pub(crate) use map::Map;

use girih_kernel::Isa;
use ir::Program;
use std::sync::OnceLock;

/// A compiled loop.
struct Function {
    code: arena::Code,
}

impl Function {
    /// Runs the loop over `n` points with these pointers, one per pointer of its program.
    ///
    /// # Safety
    /// Each pointer is valid for the `n` elements that the program loads from or stores to there
    /// (one for a splat); what is stored overlaps nothing that is loaded, but element for element.
    unsafe fn call(&self, pointers: *const *const u8, n: usize) {
        type Loop = unsafe extern "sysv64" fn(*const *const u8, usize);
        // SAFETY: the address is that of a function the encoder wrote for this machine with this
        // signature; it keeps the calling convention, and the code lives as long as `self`.
        unsafe {
            let run: Loop = std::mem::transmute(self.code.address());
            run(pointers, n);
        }
    }
}

/// True if kernels are to be compiled on this machine.
fn enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        // A value that says neither is as good as none: every way computes the same.
        let wanted = girih_runtime::env::flag(&["GIRIH_JIT"]).ok().flatten().unwrap_or(true);
        wanted && Isa::best() >= Isa::Avx512
    })
}

/// Compiles a loop; none if the machine or the program is one that the encoder does not know.
#[cfg(target_arch = "x86_64")]
fn compile(program: &Program) -> Option<Function> {
    if !enabled() {
        return None;
    }
    let allocated = allocate::allocate(program)?;
    let code = avx512::emit(program, &allocated)?;
    Some(Function { code: arena::install(&code)? })
}

#[cfg(not(target_arch = "x86_64"))]
fn compile(_: &Program) -> Option<Function> {
    let _ = enabled;
    None
}
