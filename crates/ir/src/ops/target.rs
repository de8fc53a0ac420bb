//! The facts about a processor that decompositions and derivative rules use: the composites that
//! remain, and the sizes by which a rule chooses among definitions that differ in rounding only.

use crate::OpCode;

/// The properties of a processor that decompositions use. They are constants and are not read from
/// the machine, because the bits of results depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecompositionTarget {
    /// Composites that the code generator computes as a whole. They are not decomposed.
    pub native: &'static [OpCode],
    /// The highest number of elements of a row that stays in the caches. The statistics of a longer
    /// row (softmax, norms, moments) are computed by blocks, in one pass over memory.
    pub max_cached_row: usize,
    /// The number of elements of such a block, which stays in the L1 cache.
    pub row_block: usize,
    /// The highest number of taps of a kernel with one channel per group that is applied tap by tap
    /// rather than as a GEMM.
    pub max_taps: usize,
    /// The number of scores of an attention head from which on the derivative recomputes the scores,
    /// because saving them takes as long.
    pub min_recomputed_scores: usize,
}

impl DecompositionTarget {
    /// Processors with caches and vector registers.
    pub const CPU: DecompositionTarget = DecompositionTarget {
        native: &[],
        max_cached_row: 1 << 16,
        row_block: 1 << 12,
        max_taps: 9,
        min_recomputed_scores: 1 << 20,
    };
}

/// The processor of rules that run before a target is known: derivatives and batching rules.
impl Default for DecompositionTarget {
    fn default() -> Self {
        DecompositionTarget::CPU
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, GraphBuilder, TensorSpec};

    #[test]
    fn rows_beyond_the_cache_are_split_into_blocks() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([4, 100], DType::F32));
        let y = b.softmax(x, 1).unwrap();
        let graph = b.finish([y]);
        let matmuls = |max_cached_row| {
            let target =
                DecompositionTarget { max_cached_row, row_block: 32, ..DecompositionTarget::CPU };
            let graph = graph.decomposed_for(&target).unwrap().unwrap();
            graph.nodes().filter(|(_, n)| n.op.code == OpCode::Matmul).count()
        };
        // The sums of blocks are combined by a matmul.
        assert_eq!((matmuls(100), matmuls(99)), (0, 1));
    }
}
