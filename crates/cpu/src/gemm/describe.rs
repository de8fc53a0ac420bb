//! The decisions about a GEMM as text, for the dump of `crate::dump`. The text has the words of
//! BLIS, not the names of fields.

use super::{Blocking, Gemm, RowwiseGemm};

/// The blocking as text.
fn blocking_text(blocking: &Blocking) -> String {
    let Blocking {
        split_k,
        part_k,
        m_tiles,
        mr,
        taller,
        nr_vectors,
        n_panels,
        kc,
        slab_panels,
        m_chunks,
        n_chunks,
    } = blocking;
    format!(
        "{m_tiles} tiles of {mr} rows, {taller} of them with one more; {n_panels} panels of \
         {nr_vectors} vectors, {slab_panels} a slab; kc {kc}; {m_chunks} by {n_chunks} chunks; split-K {split_k} \
         of {part_k}"
    )
}

impl Gemm {
    /// The decisions, as text.
    pub fn describe(&self) -> String {
        self.describe_with(self.packs_whole_a())
    }

    /// The decisions, as text, if A is packed for all chunks or not.
    fn describe_with(&self, whole_a: bool) -> String {
        let strategy = match self {
            _ if self.amx_vnni.is_some() => "matrix engine",
            _ if self.dots.is_some() => "dot products",
            _ if self.pairs => "pairs packed ahead",
            _ if self.indirect.is_some() => "indirect B",
            _ if self.in_place_b_kernels.is_some() => "B packed by the first tile",
            _ => "B packed ahead",
        };
        let yes = |yes: bool| if yes { "yes" } else { "no" };
        let sizes = format!("{}x{}x{}, batch {:?}", self.m, self.n, self.k, self.batch.as_slice());
        let engine = self.amx_vnni.as_ref().map_or(String::new(), |matrix| matrix.describe());
        let ends = format!(
            "prologues {} {}; result in place {}; {} bytes an element; prepacked {:?}; cost {} ns",
            yes(self.prologues[0].is_some()),
            yes(self.prologues[1].is_some()),
            yes(self.c_in_place.is_some()),
            self.core_bytes,
            self.prepackable(),
            self.cost_ns(),
        );
        if self.amx_vnni.is_some() || self.dots.is_some() {
            return format!("gemm {sizes}: {strategy}{engine}; {ends}");
        }
        format!(
            "gemm {sizes}: {strategy}; A in place {:?}; A packed for all {}; {ends}; {}",
            self.a_in_place,
            yes(whole_a),
            blocking_text(&self.blocking),
        )
    }
}

impl RowwiseGemm {
    /// The decisions for each number of rows, as text.
    pub fn describe(&self) -> String {
        let one =
            |(rows, gemm): &(usize, Gemm)| format!("{rows} rows: {}", gemm.describe_with(false));
        self.gemms.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}
