//! Which passes run: one bit each, so that the choice fits in a program's cache key.

use crate::{Error, Result};

/// A pass of the default pipeline that can be switched off. The number is the bit in
/// [`OptOptions::bits`]; it is part of cache keys and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PassFlag {
    /// [`crate::passes::DeadCode`].
    DeadCode = 0,
    /// [`crate::passes::Fold`].
    Fold = 1,
    /// [`crate::passes::Simplify`].
    Simplify = 2,
    /// [`crate::passes::LogSoftmax`], the one pass that changes numbers.
    LogSoftmax = 3,
    /// [`crate::passes::Decompose`].
    Decompose = 4,
    /// [`crate::passes::Cse`].
    Cse = 5,
}

impl PassFlag {
    /// All of them, in the order of the pipeline.
    pub const ALL: [PassFlag; 6] = [
        PassFlag::DeadCode,
        PassFlag::Fold,
        PassFlag::Simplify,
        PassFlag::LogSoftmax,
        PassFlag::Decompose,
        PassFlag::Cse,
    ];

    /// The pass's name.
    pub fn name(self) -> &'static str {
        match self {
            PassFlag::DeadCode => "dead_code",
            PassFlag::Fold => "fold",
            PassFlag::Simplify => "simplify",
            PassFlag::LogSoftmax => "log_softmax",
            PassFlag::Decompose => "decompose",
            PassFlag::Cse => "cse",
        }
    }

    /// The pass of that name.
    ///
    /// Errors: [`Error::UnknownPass`], listing the known ones.
    pub fn parse(name: &str) -> Result<PassFlag> {
        PassFlag::ALL
            .into_iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| Error::UnknownPass { name: name.into() })
    }
}

/// A set of passes to run; all of them by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptOptions(u32);

impl Default for OptOptions {
    fn default() -> Self {
        PassFlag::ALL.into_iter().fold(OptOptions::none(), OptOptions::with)
    }
}

impl OptOptions {
    /// No passes at all.
    pub fn none() -> Self {
        OptOptions(0)
    }

    /// The set with a pass added.
    pub fn with(self, pass: PassFlag) -> Self {
        OptOptions(self.0 | 1 << pass as u32)
    }

    /// The set without a pass.
    pub fn without(self, pass: PassFlag) -> Self {
        OptOptions(self.0 & !(1 << pass as u32))
    }

    /// True if the pass runs.
    pub fn contains(self, pass: PassFlag) -> bool {
        self.0 >> pass as u32 & 1 == 1
    }

    /// The set with that encoding; bits of no pass are ignored.
    pub fn from_bits(bits: u32) -> Self {
        OptOptions(bits & OptOptions::default().0)
    }

    /// The encoding for cache keys, stable across versions.
    pub fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_switched_by_name_and_the_encoding_is_stable() {
        assert_eq!(OptOptions::default().bits(), 0b111111);
        let off = OptOptions::default().without(PassFlag::parse("cse").unwrap());
        assert!(!off.contains(PassFlag::Cse) && off.contains(PassFlag::Fold));
        assert_eq!(off.bits(), 0b011111);
        assert_eq!(off.with(PassFlag::Cse), OptOptions::default());
        let error = PassFlag::parse("fuze").unwrap_err().to_string();
        assert!(error.contains("fuze") && error.contains("dead_code, fold"), "{error}");
    }
}
