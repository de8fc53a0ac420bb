//! The micro-kernels that the tiles and panels of a blocking need.

use super::blocking::Blocking;
use crate::jit::microkernel::{Function, LANES, Microkernel, MicrokernelCall, Stored};

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
