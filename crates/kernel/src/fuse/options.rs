//! The fusions as one table: the name, the switch and a sentence for each fusion, and the function
//! of each fusion that is a pass of its own. To add a fusion over kernels, write a module and add a
//! line here. Lowering, the switches by name, the cache keys and the property tests all use the
//! table.

use super::build::Built;
use super::{Lowering, borders, horizontal, prologue, rows};

/// A pass over the kernels of a program.
pub(super) type KernelPass = fn(Lowering<'_>, &mut Built);

macro_rules! fusions {
    ($($(#[$doc:meta])* $name:ident = $bit:literal $(, $pass:path)?;)*) => {
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

            /// The passes over kernels in order, each with true if it is on. They fuse several ops,
            /// so there are none without `elementwise`.
            pub(super) fn passes(self) -> impl Iterator<Item = (bool, KernelPass)> {
                let table = [$($((self.$name, $pass as KernelPass),)?)*];
                table.into_iter().filter(move |_| self.elementwise)
            }
        }
    };
}

fusions! {
    /// Vertical: elementwise and gathering ops are computed by the kernels that consume them.
    elementwise = 0;
    /// Vertical: permutes, slices, flips and broadcasts become strides rather than copies.
    views = 1;
    /// Vertical: reductions compute their operand in their own loop.
    reduction_prologue = 2;
    /// Vertical: elementwise consumers of a reduction are computed by its kernel.
    reduction_epilogue = 3;
    /// Vertical: elementwise consumers of a GEMM are computed by its kernel.
    matmul_epilogue = 4;
    /// Row-wise: kernels that pass rows to each other run as one kernel, a few rows at a time. No
    /// effect without `elementwise`.
    rows = 5, rows::group;
    /// Operands of a GEMM are computed by its kernel as it packs them (a GEMM prologue). No effect
    /// without `elementwise`.
    matmul_prologue = 6, prologue::group;
    /// Horizontal: independent updates, and independent small kernels, run as one kernel. No effect
    /// without `elementwise`.
    horizontal = 7, horizontal::group;
    /// In a kernel of several parts, a reduction stores an expensive value that a later part would
    /// compute too. No effect without `rows` and `horizontal`.
    reuse = 8;
    /// Two kernels both compute a large value if that costs less than its memory traffic.
    rematerialisation = 9;
    /// A large pad fills the border around its operand only. No effect without `elementwise`.
    borders = 10, borders::split;
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
    fn each_pass_over_kernels_has_its_switch() {
        let count = |options: FusionOptions| options.passes().filter(|(on, _)| *on).count();
        assert_eq!(count(FusionOptions::ALL), 4);
        assert_eq!(count(FusionOptions { horizontal: false, ..FusionOptions::ALL }), 3);
        assert_eq!(count(FusionOptions { elementwise: false, ..FusionOptions::ALL }), 0);
    }
}
