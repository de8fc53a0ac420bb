//! The micro-kernels that the code generator offers to this module. No other file of this module
//! names `jit`.
//!
//! | micro-kernel | file of `jit` | operands |
//! | --- | --- | --- |
//! | [`Microkernel`] | `microkernel.rs`, `indirect.rs` | panels, or f32 and B in memory; AVX2, AVX-512 |
//! | [`DotMicrokernel`] | `dots.rs` | rows of A and columns of B along K; AVX2, AVX-512 |
//! | [`AmxMicrokernel`] | `amx.rs` | bfloat16 and bytes in AMX tiles |
//! | [`VnniMicrokernel`] | `vnni.rs` | bytes, AVX-512 VNNI |

use super::blocking::Blocking;
pub(super) use crate::jit::amx::{
    AmxCall, AmxMicrokernel, K_BLOCK_BYTES, MICROTILE, Multiply, PANEL_BLOCK_BYTES, TILE_ROWS,
    TileConfig,
};
pub(super) use crate::jit::dots::{DotCall, DotMicrokernel, columns as dot_columns};
pub(super) use crate::jit::indirect::{
    Indirection, MAX_VECTORS as MAX_INDIRECT_VECTORS, PREFETCH_ROWS as INDIRECT_PREFETCH_ROWS,
    max_vectors as max_indirect_vectors,
};
pub(super) use crate::jit::microkernel::{
    Function, LANES, Microkernel, MicrokernelCall, Stored, avx512_enabled,
};
pub(super) use crate::jit::tile_shapes::{max_mr, max_nr_vectors, reads_in_place};
pub(super) use crate::jit::vnni::{MR as VNNI_MR, VnniMicrokernel, available as vnni_available};
#[cfg(test)]
pub(super) use crate::jit::generates;

/// Micro-kernels, indexed by `[last panel][tall tile]`.
pub(super) type Microkernels = [[Option<Function<MicrokernelCall>>; 2]; 2];

/// The micro-kernels of a blocking.
pub(super) fn microkernels(
    blocking: &Blocking,
    n: usize,
    stored: Stored,
    direct: bool,
    a_in_place: bool,
) -> Option<Microkernels> {
    let of_last = n - (blocking.n_panels - 1) * blocking.nr();
    let (last, tail) = (of_last.div_ceil(LANES), (of_last - 1) % LANES + 1);
    let packs_b = direct && blocking.max_chunk_tiles() > 1;
    let mut out: Microkernels = Default::default();
    for (i, vectors, tail) in [(0, blocking.nr_vectors, LANES), (1, last, tail)] {
        for (j, rows) in [(0, blocking.mr), (1, blocking.mr + 1)] {
            let needed = (i == 1 || blocking.n_panels > 1) && (j == 0 || blocking.taller > 0);
            if needed {
                let kernel = Microkernel {
                    mr: rows,
                    vectors,
                    tail,
                    stored,
                    b_in_place: direct,
                    packs_b,
                    a_in_place,
                    indirect: None,
                };
                out[i][j] = Some(kernel.compile()?);
            }
        }
    }
    Some(out)
}
