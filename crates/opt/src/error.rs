//! Errors of optimisation. None is the user's program being wrong: that was found when it was
//! recorded.

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
        /// The pass.
        pass: String,
        /// What it recorded.
        source: Box<girih_ir::Error>,
    },
    /// A pass gave a graph that is not the same program seen from outside.
    #[error("pass {pass} broke the program's interface: {reason}")]
    InterfaceChanged {
        /// The pass.
        pass: String,
        /// What differs.
        reason: String,
    },
    /// No pass of that name.
    #[error("unknown pass '{name}'; expected one of {}", known_passes())]
    UnknownPass {
        /// The name as given.
        name: String,
    },
}

fn known_passes() -> String {
    PassFlag::ALL.map(PassFlag::name).join(", ")
}
