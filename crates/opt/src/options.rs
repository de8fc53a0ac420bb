//! The default pipeline as one table: each pass's switch, name, law and position. To add a pass,
//! write a module in [`crate::passes`] and add a line here. The manager, the switches by name, the
//! property tests and the front ends' documentation all use the table.

use crate::{Error, Pass, Result, passes};

/// How a pass may change numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// Preserves every bit of every result, except the payload and sign of a NaN.
    Exact,
    /// Changes results as the sentence says.
    Changes(&'static str),
}

macro_rules! pipeline {
    ($($(#[$doc:meta])* $flag:ident = $bit:literal, $name:literal, $default:literal, $law:expr;)*) => {
        /// A pass of the pipeline. The number is its bit in [`OptOptions::bits`]; it is part of
        /// cache keys and never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum PassFlag {
            $($(#[$doc])* #[doc = concat!(" See [`passes::", stringify!($flag), "`].")]
            $flag = $bit,)*
        }

        impl PassFlag {
            /// All passes in pipeline order.
            pub const ALL: [PassFlag; [$($bit),*].len()] = [$(PassFlag::$flag),*];

            /// The pass's name.
            pub fn name(self) -> &'static str {
                match self { $(PassFlag::$flag => $name,)* }
            }

            /// True if the pass runs by default; false if it must be switched on.
            pub fn by_default(self) -> bool {
                match self { $(PassFlag::$flag => $default,)* }
            }

            /// How the pass may change numbers.
            pub fn law(self) -> Law {
                match self { $(PassFlag::$flag => $law,)* }
            }

            /// The pass, with the defaults of its settings.
            pub fn pass(self) -> Box<dyn Pass> {
                match self { $(PassFlag::$flag => Box::<passes::$flag>::default(),)* }
            }
        }
    };
}

pipeline! {
    /// Runs before all other passes, since they do not preserve hints.
    Isolate = 9, "isolate", true, Law::Exact;
    /// Runs before the other passes, so that they do not process dead nodes.
    DeadCode = 0, "dead_code", true, Law::Exact;
    /// Runs before simplification, which matches literals.
    Fold = 1, "fold", true, Law::Exact;
    /// Algebraic simplification.
    Simplify = 2, "simplify", true, Law::Exact;
    /// Runs after simplification, which removes ops between the two ops of the pattern, and before
    /// decomposition, which hides the pattern.
    LogSoftmax = 3, "log_softmax", true,
        Law::Changes("log(softmax(x)) is more accurate, and finite where the softmax underflows");
    /// Runs before CSE, which merges the primitives that forward programs and gradients share.
    Decompose = 4, "decompose", true, Law::Exact;
    /// Runs after every pass that makes ops equal.
    Cse = 5, "cse", true, Law::Exact;
    /// Runs after folding, which creates literals.
    Branch = 7, "branch", true, Law::Exact;
    /// Runs after the passes that merge results or remove their uses.
    Prune = 8, "prune", true, Law::Exact;
    /// Runs after the pass that removes unused values from loops.
    LoopMotion = 10, "loop_motion", true,
        Law::Changes("products of floats over all iterations of a scan round in another order");
    /// Runs last, since a matmul with other users is not part of a chain, and merging determines
    /// the users.
    MatmulChain = 6, "matmul_chain", false,
        Law::Changes("products of floats round in another order; of integers no bit changes");
}

impl PassFlag {
    /// The pass with this name.
    ///
    /// Errors: [`Error::UnknownPass`], listing the known passes.
    pub fn parse(name: &str) -> Result<PassFlag> {
        PassFlag::ALL
            .into_iter()
            .find(|p| p.name() == name)
            .ok_or_else(|| Error::UnknownPass { name: name.into() })
    }
}

/// A set of passes to run; the default contains the passes that run by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OptOptions(u32);

/// The bit that marks an encoding as a mask over the default. Such an encoding cannot switch on
/// other passes.
const MASK: u32 = 1 << 31;

impl Default for OptOptions {
    fn default() -> Self {
        let flags = PassFlag::ALL.into_iter().filter(|p| p.by_default());
        flags.fold(OptOptions::none(), OptOptions::with)
    }
}

impl OptOptions {
    /// The empty set of passes.
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

    /// Decodes a set; bits without a pass are ignored. If the highest bit is set, the encoding is a
    /// mask over the default, and passes that are off by default stay off. All ones is thus the
    /// default.
    pub fn from_bits(bits: u32) -> Self {
        let known = |p: &PassFlag| p.by_default() || bits & MASK == 0;
        let on = PassFlag::ALL.into_iter().filter(known).filter(|&p| bits >> p as u32 & 1 == 1);
        on.fold(OptOptions::none(), OptOptions::with)
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
        assert_eq!(OptOptions::default().bits(), 0b11110111111);
        let off = OptOptions::default().without(PassFlag::parse("cse").unwrap());
        assert!(!off.contains(PassFlag::Cse) && off.contains(PassFlag::Fold));
        assert_eq!(off.bits(), 0b11110011111);
        assert_eq!(off.with(PassFlag::Cse), OptOptions::default());
        let error = PassFlag::parse("fuze").unwrap_err().to_string();
        assert!(error.contains("fuze") && error.contains("isolate, dead_code, fold"), "{error}");
    }

    #[test]
    fn a_mask_of_ones_enables_no_optional_pass() {
        assert_eq!(OptOptions::from_bits(u32::MAX), OptOptions::default());
        let chain = OptOptions::default().with(PassFlag::MatmulChain);
        assert_eq!(OptOptions::from_bits(chain.bits()), chain);
        let masked = OptOptions::from_bits(!(1 << PassFlag::Cse as u32));
        assert_eq!(masked, OptOptions::default().without(PassFlag::Cse));
        assert_eq!(OptOptions::from_bits(0), OptOptions::none());
    }

    #[test]
    fn the_default_pipeline_is_this_list() {
        let names =
            |flags: Vec<PassFlag>| flags.into_iter().map(PassFlag::name).collect::<Vec<_>>();
        let default = OptOptions::default();
        let on = PassFlag::ALL.into_iter().filter(|&p| default.contains(p)).collect();
        let first = ["isolate", "dead_code", "fold", "simplify", "log_softmax", "decompose"];
        let expected = [&first[..], &["cse", "branch", "prune", "loop_motion"]].concat();
        assert_eq!(names(on), expected);
        let asked = PassFlag::ALL.into_iter().filter(|&p| !default.contains(p)).collect();
        assert_eq!(names(asked), ["matmul_chain"]);
    }

    #[test]
    fn every_pass_bears_the_name_of_its_switch() {
        for flag in PassFlag::ALL {
            assert_eq!(flag.pass().name(), flag.name());
            assert_eq!(PassFlag::parse(flag.name()), Ok(flag));
        }
    }
}
