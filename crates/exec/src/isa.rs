//! Instruction-set levels, and block loops, each compiled with and without AVX2 and chosen at run time.
//!
//! A loop is a type that implements [`Loop`]; its body is inlined into one wrapper per set of
//! instructions, where LLVM vectorises it. No set enables contraction of a product and a sum, so all
//! compute the same bits (except for the payload of NaNs). Generated code uses 512-bit vectors and
//! replaces nearly all loops on machines that have them; a third copy of each loop would be a tenth of
//! the library and serve the few that are left.

use girih_sync::OnceLock;

/// An instruction-set level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// The baseline of the target: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// 256-bit vectors of x86-64.
    Avx2,
    /// 512-bit vectors of x86-64: AVX-512 F, DQ, BW and VL.
    Avx512,
}

impl Isa {
    /// The levels that this machine can run, lowest first.
    pub fn available() -> Vec<Isa> {
        [Isa::Baseline, Isa::Avx2, Isa::Avx512].into_iter().filter(|isa| isa.detected()).collect()
    }

    /// The highest level that this machine can run.
    pub fn machine() -> Isa {
        static MACHINE: OnceLock<Isa> = OnceLock::new();
        *MACHINE.get_or_init(|| Isa::available().into_iter().max().unwrap_or(Isa::Baseline))
    }

    /// The level to use: the machine's, or the lower one that the environment variable
    /// [`Isa::VARIABLE`] names. An invalid value is ignored here; [`Isa::from_env`] reports it.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| match Isa::from_env() {
            Ok(Some(limit)) => limit.min(Isa::machine()),
            _ => Isa::machine(),
        })
    }

    /// The level's name in [`Isa::VARIABLE`].
    pub fn name(self) -> &'static str {
        match self {
            Isa::Baseline => "baseline",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// The environment variable that limits the level.
    pub const VARIABLE: &str = "GIRIH_ISA";

    /// The valid values of the variable.
    pub const EXPECTED: &str = "baseline, avx2 or avx512";

    /// The level that the environment names, if any.
    ///
    /// Errors: the variable's value, if it is invalid.
    pub fn from_env() -> Result<Option<Isa>, String> {
        let Some(value) = std::env::var_os(Isa::VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.to_string_lossy().trim().to_ascii_lowercase().as_str() {
            "baseline" => Ok(Some(Isa::Baseline)),
            "avx2" => Ok(Some(Isa::Avx2)),
            "avx512" => Ok(Some(Isa::Avx512)),
            _ => Err(value.to_string_lossy().into_owned()),
        }
    }

    /// Whether this machine can run the level, according to CPUID and the register state that the
    /// operating system saves.
    fn detected(self) -> bool {
        match self {
            Isa::Baseline => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => vector_base(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                vector_base()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }
}

/// A loop over a block: `(out, a, b, c, n)`. The [`Loop`] defines which operands it reads and
/// writes.
pub(crate) type BlockFn = unsafe fn(*mut u8, *const u8, *const u8, *const u8, usize);

/// A loop to be compiled with and without AVX2.
pub(crate) trait Loop {
    /// Runs the loop. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The operands the implementation uses must be valid for `n` elements of its types and
    /// aligned to them, and `out` must not overlap any of them.
    unsafe fn run(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize);
}

/// The loop for a level that [`Isa::available`] lists.
pub(crate) fn select<L: Loop>(isa: Isa) -> BlockFn {
    match isa {
        Isa::Baseline => L::run,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => avx2::<L>,
        #[cfg(not(target_arch = "x86_64"))]
        _ => L::run,
    }
}

/// # Safety
/// As [`Loop::run`], on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
unsafe fn avx2<L: Loop>(out: *mut u8, a: *const u8, b: *const u8, c: *const u8, n: usize) {
    // SAFETY: the caller keeps the loop's contract.
    unsafe { L::run(out, a, b, c, n) }
}

/// Whether the machine has the features that both vector levels of x86-64 are compiled with.
#[cfg(target_arch = "x86_64")]
fn vector_base() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("fma")
}
