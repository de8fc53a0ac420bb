//! The micro-kernels that the code generator offers to this module. No other file of this module
//! names `jit`.
//!
//! | micro-kernel | file of `jit` | operands |
//! | --- | --- | --- |
//! | [`Microkernel`] | `microkernel.rs`, `indirect.rs` | panels, or f32 and B in memory; AVX2, AVX-512 |
//! | [`DotMicrokernel`] | `dots.rs` | rows of A and columns of B along K; AVX2, AVX-512 |
//! | [`AmxMicrokernel`] | `amx.rs` | bfloat16 and bytes in AMX tiles |
//! | [`VnniMicrokernel`] | `vnni.rs` | bfloat16 and bytes, AVX-512 BF16 and VNNI |

use super::blocking::Blocking;
pub(super) use crate::jit::amx::{
    AmxCall, AmxMicrokernel, K_BLOCK_BYTES, MICROTILE, Multiply, PANEL_BLOCK_BYTES, TILE_ROWS,
    TileConfig,
};
pub(super) use crate::jit::dots::{DotCall, DotMicrokernel, columns as dot_columns};
pub(super) use crate::jit::indirect::{
    IndirectRows, IndirectTiles, Indirection, MAX_ROW_REGISTERS as MAX_INDIRECT_ROW_REGISTERS,
    MAX_ROWS as MAX_INDIRECT_ROWS, MAX_VECTORS as MAX_INDIRECT_VECTORS,
    PREFETCH_ROWS as INDIRECT_PREFETCH_ROWS, max_vectors as max_indirect_vectors,
    tiles as indirect_tiles,
};
pub(super) use crate::jit::microkernel::{
    Function, LANES, Microkernel, MicrokernelCall, SourceOfA, Stored, avx512_enabled, enabled,
};
pub(super) use crate::jit::tile_shapes::{max_mr, max_nr_vectors, reads_in_place};
pub(super) use crate::jit::vnni::{MR as VNNI_MR, VnniMicrokernel};
#[cfg(test)]
pub(super) use crate::jit::{as_if, generates, on_each_level};

/// The micro-kernels of a blocking, by panel and tile. Only the micro-kernels that the blocking
/// needs are generated.
pub(super) struct TileKernels([[Option<Function<MicrokernelCall>>; 2]; 2]);

/// How the micro-kernels of a blocking read A and B.
#[derive(Clone, Copy)]
pub(super) struct TileOperands {
    /// The data type of B, packed or in memory.
    pub stored: Stored,
    /// Whether B is read in memory.
    pub b_in_place: bool,
    pub a: SourceOfA,
}

impl TileKernels {
    /// The micro-kernels for `n` columns; `None` if code cannot be generated.
    pub fn new(blocking: &Blocking, n: usize, operands: TileOperands) -> Option<TileKernels> {
        let of_last = n - (blocking.n_panels - 1) * blocking.nr();
        let TileOperands { stored, b_in_place, a } = operands;
        let packs_b = b_in_place && blocking.max_chunk_tiles() > 1;
        let mut kernels: [[Option<_>; 2]; 2] = Default::default();
        for (i, columns) in [blocking.nr(), of_last].into_iter().enumerate() {
            for (j, mr) in [(0, blocking.mr), (1, blocking.mr + 1)] {
                let needed = (i == 1 || blocking.n_panels > 1) && (j == 0 || blocking.taller > 0);
                if needed {
                    let packed = Microkernel::packed(mr, columns);
                    let kernel = Microkernel { stored, b_in_place, packs_b, a, ..packed };
                    kernels[i][j] = Some(kernel.compile()?);
                }
            }
        }
        Some(TileKernels(kernels))
    }

    /// The micro-kernel of a tile of `mr + 1` rows (`tall`) or `mr` rows, for the last panel or
    /// another panel.
    pub fn get(&self, last_panel: bool, tall: bool) -> &Function<MicrokernelCall> {
        self.0[last_panel as usize][tall as usize].as_ref().expect("every size has its function")
    }

    /// All micro-kernels.
    pub fn functions(&self) -> impl Iterator<Item = &Function<MicrokernelCall>> {
        self.0.iter().flatten().flatten()
    }
}
