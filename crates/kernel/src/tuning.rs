//! Parameters of the executor that depend on the machine.
//!
//! [`Machine`] has the sizes of the caches, which are read, and how long threads take to wake and to
//! hand work over, which is measured. Each parameter of [`Tuning`] is a function of a [`Machine`].
//! The variable `GIRIH_TUNING` sets single parameters (`chunk_ns=6000,wake_work_ns=20000`), for those who
//! measure what they are worth (`make bench-sensitivity`).
//!
//! Parameters decide how work is cut and when threads wake. They change no bit of a result, so that
//! which kernels are fused, how a reduction is split and the panels of a GEMM are constants instead.

mod machine;

pub use machine::Machine;

use girih_sync::OnceLock;
use thiserror::Error;

/// The environment variable that sets parameters.
pub const VARIABLE: &str = "GIRIH_TUNING";

/// `GIRIH_TUNING` names no parameter, or gives one a value that it cannot have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{VARIABLE} has {text:?}; expected NAME=VALUE with a whole number from 1 to {MOST}, separated by commas, and the names {}",
    names()
)]
pub struct InvalidTuning {
    /// The part that cannot be read.
    pub text: String,
}

/// The largest value of a parameter: no product of two overflows.
const MOST: usize = 1 << 31;

/// Defines the struct, and the table of its fields.
macro_rules! parameters {
    ($machine:ident; $($(#[doc = $doc:literal])+ $name:ident = $value:expr;)+) => {
        /// The parameters; see the [module](self).
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Tuning {
            $($(#[doc = $doc])+ pub $name: usize,)+
        }

        impl Tuning {
            /// Computes the parameters from cache sizes and thread latencies.
            pub fn of($machine: &Machine) -> Tuning {
                Tuning { $($name: $value,)+ }
            }

            /// The parameters' names and values.
            pub fn entries(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), self.$name),)+]
            }

            /// The parameter of that name.
            fn get_mut(&mut self, name: &str) -> Option<&mut usize> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

parameters! { machine;
    /// Time that a chunk of a kernel takes, in nanoseconds: long beside the cost of handing it over.
    chunk_ns = (30 * machine.handover_ns).clamp(3_000, 20_000);
    /// Elements of the rows that a kernel over rows works on at a time: an array of single-precision
    /// numbers that takes a quarter of the L2.
    row_elements = (machine.l2_bytes / 16).clamp(1 << 13, 1 << 17);
    /// The same where a product is among the parts, and the intermediate results lie in the L2.
    row_product_elements = (machine.l2_bytes / 8).clamp(1 << 15, 1 << 18);
    /// Bytes from which on a result is written past the caches, into which it would not fit beside
    /// what it is computed from.
    streamed_bytes = machine.l3_bytes.clamp(8 << 20, 32 << 20);
    /// Work that threads share takes at least this long on one of them, in nanoseconds.
    split_work_ns = (10 * machine.handover_ns).clamp(2_000, 20_000);
    /// Work that parked threads are woken for takes at least this long, in nanoseconds.
    wake_work_ns = (2 * machine.wake_ns).clamp(5_000, 200_000);
    /// How long a thread without work spins before it parks, in nanoseconds: waking it costs both
    /// sides about a tenth of that.
    spin_ns = (10 * machine.wake_ns).clamp(50_000, 500_000);
    /// Bytes of a packed block of a GEMM's right operand (`kc` rows of `nc` columns): half of the L2.
    gemm_block_bytes = (machine.l2_bytes / 2).clamp(64 << 10, 1 << 20);
}

impl Tuning {
    /// Sets the parameters that `text` names: `NAME=VALUE` separated by commas, blanks aside.
    ///
    /// Errors: [`InvalidTuning`] with the part that cannot be read.
    pub fn set(&mut self, text: &str) -> Result<(), InvalidTuning> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let invalid = || InvalidTuning { text: part.to_string() };
            let (name, value) = part.split_once('=').ok_or_else(invalid)?;
            let value: usize = value.trim().parse().map_err(|_| invalid())?;
            let parameter = self.get_mut(name.trim()).ok_or_else(invalid)?;
            if !(1..=MOST).contains(&value) {
                return Err(invalid());
            }
            *parameter = value;
        }
        Ok(())
    }
}

/// The names of all parameters, for messages.
fn names() -> String {
    let names = Tuning::of(&Machine::default()).entries();
    names.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(", ")
}

/// The facts about the machine and the parameters of this process, read once.
struct State {
    machine: Machine,
    tuning: Tuning,
    /// The error in `GIRIH_TUNING`, if there is one: the variable then sets no parameter.
    invalid: Option<InvalidTuning>,
}

static STATE: OnceLock<State> = OnceLock::new();

fn state(machine: impl FnOnce() -> Machine) -> &'static State {
    STATE.get_or_init(|| {
        let machine = machine();
        let mut tuning = Tuning::of(&machine);
        let text = std::env::var_os(VARIABLE).unwrap_or_default();
        let invalid = tuning.set(&text.to_string_lossy()).err();
        if invalid.is_some() {
            tuning = Tuning::of(&machine);
        }
        State { machine, tuning, invalid }
    })
}

/// Computes the process's parameters from a machine and `GIRIH_TUNING`, unless they are computed
/// already.
///
/// Errors: [`InvalidTuning`]; the process then uses the parameters of the machine alone.
pub fn install(machine: impl FnOnce() -> Machine) -> Result<(), InvalidTuning> {
    state(machine).invalid.clone().map_or(Ok(()), Err)
}

/// The process's parameters. If [`install`] was not called, latencies are those of
/// [`Machine::default`].
#[inline]
pub fn tuning() -> &'static Tuning {
    &state(Machine::read).tuning
}

/// The cache sizes and latencies that the process's parameters were computed from.
pub fn machine() -> &'static Machine {
    &state(Machine::read).machine
}

#[cfg(test)]
mod tests;
