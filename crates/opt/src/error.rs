//! Errors of optimisation. Each one is a defect of a pass or an unknown pass name; errors in the
//! user's program are reported when it is recorded.

use crate::PassFlag;

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a graph could not be optimised.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pass recorded an ill-formed op.
    #[error("pass {pass}: {source}")]
    Pass {
        /// The name of the pass.
        pass: String,
        /// The error of recording the op.
        source: Box<girih_ir::Error>,
    },
    /// A pass changed the program's arguments or outputs.
    #[error("pass {pass} broke the program's interface: {reason}")]
    InterfaceChanged {
        /// The name of the pass.
        pass: String,
        /// The difference.
        reason: String,
    },
    /// No pass with this name.
    #[error("unknown pass '{name}'; expected one of {}", known_passes())]
    UnknownPass {
        /// The name as given.
        name: String,
    },
}

fn known_passes() -> String {
    PassFlag::ALL.map(PassFlag::name).join(", ")
}
