//! Parameters of the executor that depend on the machine.
//!
//! [`Machine`] has the cache sizes, which are read; the latencies of waking a thread and of handing
//! work over, and the latency and bandwidth of memory, which are measured. Each parameter of
//! [`Tuning`] is a function of a [`Machine`]. The variable `GIRIH_TUNING` sets single parameters
//! (`chunk_ns=6000,wake_work_ns=20000`), to measure their effect (`make bench-sensitivity`).
//!
//! Parameters decide how work is divided and when threads wake. They must not change a bit of a
//! result. So the decisions of fusion, the split of a reduction and the panels of a GEMM are
//! constants instead.

mod machine;

pub use machine::{Machine, Memory};

use girih_sync::OnceLock;
use thiserror::Error;

/// The environment variable that sets parameters.
pub const VARIABLE: &str = "GIRIH_TUNING";

/// `GIRIH_TUNING` names an unknown parameter, or has an invalid value for a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{VARIABLE} has {text:?}; expected NAME=VALUE with a whole number from 1 (for {} from 0) to {MAX}, separated by commas, and the names {}",
    OPTIONAL.join(" and "), names()
)]
pub struct InvalidTuning {
    /// The invalid part.
    pub text: String,
}

/// The parameters that may be 0, which disables the feature whose size they set.
const OPTIONAL: [&str; 2] = ["touched_bytes", "early_bytes"];

/// The largest value of a parameter, so that the product of two parameters does not overflow.
const MAX: usize = 1 << 31;

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

            /// The parameter with that name.
            fn get_mut(&mut self, name: &str) -> Option<&mut usize> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

/// The time of claiming a chunk, of preparing its loops and of combining its result with that of
/// other chunks, in nanoseconds: measured on Zen 5 with a sum along rows in 30 to 820 chunks.
const CHUNK_START_NS: usize = 300;

parameters! { machine;
    /// The time of a chunk of a kernel, in nanoseconds: so long that starting the chunk and handing
    /// it over take 3 % of it.
    chunk_ns = (34 * (CHUNK_START_NS + machine.handover_ns)).clamp(5_000, 20_000);
    /// The number of elements of the rows that a kernel over rows processes at a time: an f32 array
    /// of that size takes a quarter of the L2 cache.
    row_elements = (machine.l2_bytes / 16).clamp(1 << 13, 1 << 17);
    /// The same number if a GEMM is among the parts, and intermediate results are in the L2 cache.
    row_gemm_elements = (machine.l2_bytes / 8).clamp(1 << 15, 1 << 18);
    /// The size in bytes from which on a result is written by non-temporal stores, because it would
    /// not fit in the caches beside its operands. The largest value, where non-temporal stores are
    /// clearly slower than other stores.
    streamed_bytes = match machine.memory.streams() {
        true => machine.l3_bytes.clamp(8 << 20, 32 << 20),
        false => MAX,
    };
    /// The number of rows of B by which a GEMM prefetches ahead, as it packs B or reads B in
    /// memory: the number of rows that it reads, at about 12 ns per row, during the latency of
    /// memory. More rows that are a page apart would map to few cache sets.
    prefetched_rows = (machine.memory.latency_ns / 12).clamp(6, 10);
    /// The minimum time of work that is divided among threads, measured on one thread, in
    /// nanoseconds.
    split_work_ns = (10 * machine.handover_ns).clamp(2_000, 20_000);
    /// The minimum time of work for which parked threads are woken, in nanoseconds.
    wake_work_ns = (2 * machine.wake_ns).clamp(5_000, 200_000);
    /// The time for which a thread without work spins before it parks, in nanoseconds. Waking a
    /// parked thread costs the waking and the woken thread about a tenth of that time each.
    spin_ns = (10 * machine.wake_ns).clamp(50_000, 500_000);
    /// The size in bytes of a packed block of B of a GEMM (`kc` rows of `nc` columns): half of the
    /// L2 cache.
    gemm_block_bytes = (machine.l2_bytes / 2).clamp(64 << 10, 1 << 20);
    /// The number of bytes of the device's memory that a warm-up touches before they are used, at
    /// most a sixteenth of the free memory; 0 for none.
    touched_bytes = (2 * machine.l3_bytes).clamp(32 << 20, 64 << 20);
    /// The number of bytes that a thread touches without a warm-up, when the device is created; 0
    /// for none. On two processors, touching pages early made the first programs slower, because
    /// the threads of kernels need both processors.
    early_bytes = 0;
}

impl Tuning {
    /// Sets the parameters in `text`: `NAME=VALUE` separated by commas; blanks are ignored.
    ///
    /// Errors: [`InvalidTuning`] with the invalid part.
    pub fn set(&mut self, text: &str) -> Result<(), InvalidTuning> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let invalid = || InvalidTuning { text: part.to_string() };
            let (name, value) = part.split_once('=').ok_or_else(invalid)?;
            let value: usize = value.trim().parse().map_err(|_| invalid())?;
            let parameter = self.get_mut(name.trim()).ok_or_else(invalid)?;
            let lowest = usize::from(!OPTIONAL.contains(&name.trim()));
            if !(lowest..=MAX).contains(&value) {
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

/// The machine and the parameters of this process, read once.
struct State {
    machine: Machine,
    tuning: Tuning,
    /// The error in `GIRIH_TUNING`, if there is an error; the variable then sets no parameter.
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

/// Computes the process's parameters from a machine and `GIRIH_TUNING`, unless they are already
/// computed.
///
/// Errors: [`InvalidTuning`]; the process then uses the parameters of the machine alone.
pub fn install(machine: impl FnOnce() -> Machine) -> Result<(), InvalidTuning> {
    state(machine).invalid.clone().map_or(Ok(()), Err)
}

/// The process's parameters. If [`install`] was not called, measurements are those of
/// [`Machine::default`].
#[inline]
pub fn tuning() -> &'static Tuning {
    &state(Machine::read).tuning
}

/// The machine that the process's parameters were computed from.
pub fn machine() -> &'static Machine {
    &state(Machine::read).machine
}

#[cfg(test)]
mod tests;
