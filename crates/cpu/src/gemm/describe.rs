//! The decisions about a GEMM as text, for the dump of `crate::dump`. The text uses the terms of
//! BLIS, not the names of fields.

use super::blocking::Blocking;
use super::plan::{BlockedGemm, ReadA, ReadB, Variant};
use super::problem::Problem;
use super::{GeneratedGemm, RowwiseGemm};

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

/// A condition as text.
fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

/// The sizes as text; `k` counts elements or pairs.
fn sizes_text(problem: &Problem, k: usize) -> String {
    let Problem { m, n, batch, .. } = problem;
    format!("gemm {m}x{n}x{k}, batch {:?}", batch.as_slice())
}

/// The operands, C and the cost as text.
fn ends_text(problem: &Problem, prepackable: Option<usize>, cost_ns: u64) -> String {
    format!(
        "prologues {} {}; result in place {}; {} bytes an element; prepacked {prepackable:?}; cost \
         {cost_ns} ns",
        yes(problem.a.prologue().is_some()),
        yes(problem.b.prologue().is_some()),
        yes(problem.c.is_some()),
        problem.core_bytes(),
    )
}

impl GeneratedGemm {
    /// The variant.
    pub fn variant(&self) -> &'static str {
        match &self.0 {
            Variant::Small(_) => "small matrices",
            Variant::AmxVnni(_) => "matrix engine",
            Variant::Transposed(_) => "transposed convolution",
            Variant::Dots(_) => "dot products",
            Variant::Blocked(gemm) => gemm.variant(),
        }
    }

    /// The decisions, as text.
    pub fn describe(&self) -> String {
        let (problem, cost_ns, engine) = match &self.0 {
            Variant::Small(gemm) => (&gemm.problem, gemm.cost_ns(), String::new()),
            Variant::AmxVnni(gemm) => (&gemm.problem, gemm.cost_ns(), gemm.describe()),
            Variant::Transposed(gemm) => (&gemm.problem, gemm.cost_ns(), gemm.describe()),
            Variant::Dots(gemm) => (&gemm.problem, gemm.cost_ns(), String::new()),
            Variant::Blocked(gemm) => return gemm.describe(),
        };
        let prepackable = self.prepackable();
        let (sizes, ends) =
            (sizes_text(problem, problem.k), ends_text(problem, prepackable, cost_ns));
        format!("{sizes}: {}{engine}; {ends}", self.variant())
    }
}

impl BlockedGemm {
    fn variant(&self) -> &'static str {
        match self.b {
            ReadB::PackedAhead(_) => "B packed ahead",
            ReadB::Pairs(_) => "pairs packed ahead",
            ReadB::PackedByFirstTile { .. } => "B packed by the first tile",
            ReadB::Indirect(_) => "indirect B",
        }
    }

    fn describe(&self) -> String {
        let lda = match self.a {
            ReadA::InPlace { lda } => Some(lda),
            ReadA::PackedWhole | ReadA::PackedByChunk => None,
        };
        format!(
            "{}: {}; A in place {lda:?}; A packed for all {}; {}; {}",
            sizes_text(&self.problem, self.k),
            self.variant(),
            yes(self.a == ReadA::PackedWhole),
            ends_text(&self.problem, self.prepackable(), self.cost_ns()),
            blocking_text(&self.blocking),
        )
    }
}

impl RowwiseGemm {
    /// The decisions for each number of rows, as text.
    pub fn describe(&self) -> String {
        let one = |(rows, gemm): &(usize, BlockedGemm)| format!("{rows} rows: {}", gemm.describe());
        self.plans.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}
