//! The fusions as one table: the name, the switch and a sentence for each fusion, and how it is made.
//! Lowering, the switches by name, the cache keys and the property tests all use the table.
//!
//! Fusions `by` a function are passes over the kernels of a program. To add one, write a module and
//! add a line here. Fusions `by planner` are flags of the planner and the builder, which decide value
//! by value whether a kernel computes, loads or stores it. They cannot be passes: a pass over kernels
//! finds values in memory that one kernel stores and another loads, and the kernels of these fusions
//! compute values that are never in memory, at points that only composed index maps describe. The
//! decisions also depend on each other: whether a reduction computes its operand depends on the
//! kernels that compute the operand anyway.

use super::build::Built;
use super::{Lowering, borders, horizontal, prologue, reuse, rows};

/// A pass over the kernels of a program.
pub(super) type KernelPass = fn(Lowering<'_>, &mut Built);

/// A pass, its name, and whether it is on.
pub(super) struct Stage {
    pub name: &'static str,
    pub on: bool,
    pub pass: KernelPass,
}

/// The pass of a line of the table, if it has one.
macro_rules! pass {
    (planner) => {
        None
    };
    ($pass:path) => {
        Some($pass as KernelPass)
    };
}

macro_rules! fusions {
    ($($(#[$doc:meta])* $name:ident = $bit:literal, by $($maker:ident)::+;)*) => {
        /// The fusions that are allowed. Each can be switched off separately; none changes a bit of
        /// a result.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct FusionOptions {
            $($(#[$doc])* pub $name: bool,)*
        }

        impl FusionOptions {
            /// Every fusion.
            pub const ALL: FusionOptions = FusionOptions { $($name: true,)* };

            /// One kernel per op.
            pub const NONE: FusionOptions = FusionOptions { $($name: false,)* };

            /// The names of the options; the index of a name is its bit in
            /// [`FusionOptions::bits`].
            pub const NAMES: [&str; [$($bit),*].len()] = [$(stringify!($name)),*];

            /// The options with that encoding; unknown bits are ignored.
            pub fn from_bits(bits: u32) -> FusionOptions {
                FusionOptions { $($name: bits >> $bit & 1 == 1,)* }
            }

            /// The options as bits, for keys of compiled programs. Stable: the meaning of a bit
            /// never changes.
            pub fn bits(self) -> u32 {
                $((self.$name as u32) << $bit)|*
            }

            /// The passes over kernels in order. They fuse several ops, so there are none without
            /// `elementwise`.
            pub(super) fn stages(self) -> impl Iterator<Item = Stage> {
                let table = [$((stringify!($name), self.$name, pass!($($maker)::+))),*];
                let stage = |(name, on, pass)| Some(Stage { name, on, pass: pass? });
                table.into_iter().filter_map(stage).filter(move |_| self.elementwise)
            }
        }
    };
}

fusions! {
    /// Vertical: elementwise and gathering ops are computed by the kernels that consume them.
    elementwise = 0, by planner;
    /// Vertical: permutes, slices, flips and broadcasts become strides rather than copies.
    views = 1, by planner;
    /// Vertical: reductions compute their operand in their own loop.
    reduction_prologue = 2, by planner;
    /// Vertical: elementwise consumers of a reduction are computed by its kernel.
    reduction_epilogue = 3, by planner;
    /// Vertical: elementwise consumers of a GEMM are computed by its kernel.
    matmul_epilogue = 4, by planner;
    /// Row-wise: kernels that pass rows to each other run as one kernel, a few rows at a time. No
    /// effect without `elementwise`.
    rows = 5, by rows::group;
    /// Operands of a GEMM are computed by its kernel as it packs them (a GEMM prologue). No effect
    /// without `elementwise`.
    matmul_prologue = 6, by prologue::group;
    /// Horizontal: independent updates, and independent small kernels, run as one kernel. No effect
    /// without `elementwise`.
    horizontal = 7, by horizontal::group;
    /// In a kernel of several parts, a reduction stores an expensive value that a later part would
    /// compute too. No effect without `rows` and `horizontal`.
    reuse = 8, by reuse::share;
    /// Two kernels both compute a large value if that costs less than its memory traffic.
    rematerialisation = 9, by planner;
    /// A large pad fills the border around its operand only. No effect without `elementwise`.
    borders = 10, by borders::split;
}

impl Default for FusionOptions {
    fn default() -> Self {
        FusionOptions::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_stable_and_a_name_is_at_the_index_of_its_bit() {
        let names = [
            "elementwise",
            "views",
            "reduction_prologue",
            "reduction_epilogue",
            "matmul_epilogue",
            "rows",
            "matmul_prologue",
            "horizontal",
            "reuse",
            "rematerialisation",
            "borders",
        ];
        assert_eq!(FusionOptions::NAMES, names);
        for (bit, name) in names.iter().enumerate() {
            let options = FusionOptions::from_bits(1 << bit);
            assert_eq!(options.bits(), 1 << bit);
            // The debug text lists the fields by name.
            let text = format!("{options:?}");
            assert!(text.contains(&format!("{name}: true")), "{text}");
        }
        assert_eq!(FusionOptions::from_bits(u32::MAX), FusionOptions::ALL);
        assert_eq!(FusionOptions::from_bits(0), FusionOptions::NONE);
        assert_eq!(FusionOptions::default(), FusionOptions::ALL);
    }

    #[test]
    fn each_fusion_is_a_pass_with_a_switch_or_a_flag_of_the_planner() {
        let on = |options: FusionOptions| {
            let on = options.stages().filter(|stage| stage.on);
            on.map(|stage| stage.name).collect::<Vec<_>>()
        };
        let passes = ["rows", "matmul_prologue", "horizontal", "reuse", "borders"];
        assert_eq!(on(FusionOptions::ALL), passes);
        for name in passes {
            let bit = FusionOptions::NAMES.iter().position(|of| *of == name).unwrap();
            let options = FusionOptions::from_bits(FusionOptions::ALL.bits() & !(1 << bit));
            assert!(!on(options).contains(&name) && on(options).len() == 4);
        }
        let none: [&str; 0] = [];
        assert_eq!(on(FusionOptions { elementwise: false, ..FusionOptions::ALL }), none);
    }
}
