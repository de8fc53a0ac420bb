//! The description of a processor for which a graph is lowered. One value has all properties of the
//! processor that fusion and placement depend on. To lower for another processor, write another
//! [`Target`].
//!
//! A target is a constant of the back end. It is not read from the machine (CPUID, cache sizes).
//! Fusion decides by the target which kernels a graph has, and the kernels are part of cached
//! programs, explanations and bug reports, which must be the same on every machine. Decisions that
//! may depend on the machine, such as the number of threads and the division of work, are made
//! later and change no bit (`tuning` in `girih-exec`).
//!
//! No target chooses the order in which a scatter combines its updates: it is the row-major order of
//! the space, as [`crate::Core::Scatter`] says.

use crate::place::PlacementLimits;
use girih_ir::ops::Cost;
use girih_ir::{Class, DType, DecompositionTarget, Graph, NodeId, Op, OpCode};
use std::fmt;

/// The properties of a processor that lowering depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// How composites are replaced by primitives before fusion.
    pub decomposition: DecompositionTarget,
    /// The order in which a reduction combines its elements.
    pub reduction: ReductionOrder,
    /// The highest number of graph nodes that one kernel computes: a bound on the size of its code.
    pub max_nodes: u32,
    /// The costs of ops.
    pub costs: OpCosts,
    /// The conditions under which kernels recompute a value instead of loading it.
    pub recompute: RecomputeLimits,
    /// The conditions under which kernels that pass rows to each other become one kernel.
    pub rows: RowLimits,
    /// The conditions under which a GEMM computes its operands as it packs them.
    pub prologue: PrologueLimits,
    /// The conditions under which independent kernels become one kernel.
    pub horizontal: HorizontalLimits,
    /// How temporaries are placed.
    pub placement: PlacementLimits,
    /// The dtypes of values that kernels compute.
    pub dtypes: DTypes,
    /// The contractions and library routines that kernels compute.
    pub routines: Routines,
    /// Whether kernels or the host run branches and loops.
    pub control_flow: ControlFlow,
    /// The size in bytes from which on a padded result is filled around the operand only.
    pub min_border_bytes: usize,
}

/// The tree by which a reduction combines its elements. The elements, in row-major order of the
/// reduced dimensions, are divided into blocks. In a block, element `i` is combined into lane `i
/// mod lanes`; then the upper half of the lanes is combined into the lower half until one lane is
/// left. The blocks are combined pairwise, as a binary tree. So no bit depends on strides, threads
/// or fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReductionOrder {
    /// The number of elements of a block; a multiple of `lanes`.
    pub block: usize,
    /// The number of lanes of a block; a power of two.
    pub lanes: usize,
}

/// The cost of an op for one element, by the class of cost in the op's definition ([`Cost`]). An op
/// of class [`Cost::Free`] costs nothing, and all other costs are multiples of the cost of an f32
/// addition in a vector of the processor. Fusion compares sums of costs with [`RecomputeLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpCosts {
    /// A few instructions that compute.
    pub arithmetic: u32,
    /// A few instructions that convert or select bits.
    pub movement: u32,
    /// A bounds check of an index, or a load at an index.
    pub lookup: u32,
    /// A division or a square root.
    pub division: u32,
    /// The remainder of a division.
    pub remainder: u32,
    /// A transcendental function that a short polynomial approximates.
    pub exponential: u32,
    /// A transcendental function with a longer polynomial, or with a reduction of the argument.
    pub transcendental: u32,
    /// The root of a sum of squares.
    pub hypotenuse: u32,
    /// A random number of any distribution.
    pub random: u32,
    /// A special function.
    pub special: u32,
    /// A special function that sums a series.
    pub series: u32,
    /// A check that can fail.
    pub checked: u32,
}

impl OpCosts {
    /// The cost of a class.
    pub fn of(&self, class: Cost) -> u32 {
        match class {
            Cost::Free => 0,
            Cost::Arithmetic => self.arithmetic,
            Cost::Move => self.movement,
            Cost::Lookup => self.lookup,
            Cost::Division => self.division,
            Cost::Remainder => self.remainder,
            Cost::Exponential => self.exponential,
            Cost::Transcendental => self.transcendental,
            Cost::Hypotenuse => self.hypotenuse,
            Cost::Random => self.random,
            Cost::Special => self.special,
            Cost::Series => self.series,
            Cost::Checked => self.checked,
        }
    }
}

/// Limits on recomputation, in the costs of [`OpCosts`] for one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecomputeLimits {
    /// The cost from which on an op is expensive: it is not recomputed for each element to which
    /// its value is broadcast, or for a second view of the value.
    pub expensive: u32,
    /// The highest cost of a value that each of several kernels computes.
    pub max_cost: u32,
    /// The highest cost of an operand that a reduction recomputes.
    pub max_cost_in_reduction: u32,
    /// The highest number of full-size operands of a value that two kernels compute.
    pub max_loads: u32,
    /// The same number for a value that more than two kernels compute.
    pub max_loads_of_many: u32,
    /// The longest chain of ops that each of several kernels computes.
    pub max_depth: u32,
    /// The size in bytes from which on a value has left the caches when a second kernel reads it.
    pub uncached_bytes: usize,
    /// The highest cost of an uncached value that two kernels compute.
    pub max_cost_of_uncached: u32,
    /// An operand with this many times fewer elements than the value is read from a cache.
    pub broadcast_ratio: usize,
}

/// A set of dtypes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DTypes(u32);

impl DTypes {
    /// All dtypes.
    pub const ALL: DTypes = DTypes::of(&DType::ALL);

    /// The set of some dtypes.
    pub const fn of(dtypes: &[DType]) -> DTypes {
        let (mut bits, mut i) = (0, 0);
        while i < dtypes.len() {
            bits |= 1 << dtypes[i] as u32;
            i += 1;
        }
        DTypes(bits)
    }

    /// Whether the dtype is in the set.
    pub const fn contains(self, dtype: DType) -> bool {
        self.0 >> dtype as u32 & 1 != 0
    }
}

/// Contractions (GEMM, convolution) and ops of class library (sort, FFT, factorisations, functions
/// of the host).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routines {
    /// All of them.
    All,
    /// These ops.
    Only(&'static [OpCode]),
}

impl Routines {
    /// Whether an op is not a routine of these classes, or one of the set.
    fn computes(self, op: &Op) -> bool {
        let routine = matches!(op.class(), Class::Contraction | Class::Library);
        match self {
            Routines::All => true,
            Routines::Only(codes) => !routine || codes.contains(&op.code),
        }
    }
}

/// The part of the system that runs branches and loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlFlow {
    /// Kernels of the processor.
    Kernels,
    /// The host, between launches: `HostControlFlow` of the runtime wraps the back end.
    Host,
}

/// A property that a graph needs and the target lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacking {
    /// Values of a dtype.
    DType(DType),
    /// A contraction or a library routine.
    Routine,
    /// Branches and loops in kernels.
    ControlFlow,
}

impl fmt::Display for Lacking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lacking::DType(dtype) => write!(f, "kernels with {dtype}; cast to another dtype"),
            Lacking::Routine => f.write_str("this routine; move its operands to another device"),
            Lacking::ControlFlow => {
                f.write_str("branches and loops in kernels; the host runs them")
            }
        }
    }
}

/// Limits of row-wise fusion. A part of a kernel over rows is a map, a reduction or a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLimits {
    /// The highest number of parts.
    pub max_parts: usize,
    /// The highest number of elements of a row. Intermediate rows stay in the cache of one core.
    pub max_row: usize,
    /// The size of the memory beside a core in bytes, for the intermediate rows of a kernel.
    pub local_memory_bytes: usize,
    /// The number of rows from which on all threads have work.
    pub min_rows: usize,
    /// The highest number of elements for which there may be fewer rows: one thread computes them
    /// all.
    pub max_elements_of_few_rows: usize,
    /// A GEMM is a part if its result has at least this many times the elements of its operands:
    /// reading B once for a few rows of A then costs less than storing the result.
    pub wide_ratio: usize,
    /// The highest number of elements of B of such a GEMM, which reads B once for a few rows of A.
    pub max_b: usize,
}

/// A dtype of B that a GEMM packs along K. Packing asks for few elements of many columns at a time, so
/// a prologue would compute a row-major B in short runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedAlongK {
    /// The dtype of B.
    pub dtype: DType,
    /// The lowest number of rows of C.
    pub min_rows: usize,
}

/// Limits of GEMM prologues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrologueLimits {
    /// The dtypes whose GEMMs pack their operands.
    pub packed: DTypes,
    /// The operands B that a GEMM packs along K only. Packing reads other operands B along K or along
    /// their rows, whichever is contiguous.
    pub packed_along_k: &'static [PackedAlongK],
    /// The highest number of elements of an operand that is certainly packed only once. A larger
    /// operand is computed as it is packed only if none of its ops is expensive.
    pub max_packed_once: usize,
    /// The highest number of rows of C. With more rows, B is packed several times, and the cost of
    /// storing B is small relative to the GEMM.
    pub max_rows: usize,
}

impl PrologueLimits {
    /// Whether a GEMM with that many rows packs a B of the dtype along K only.
    pub fn packs_along_k(&self, dtype: DType, rows: usize) -> bool {
        self.packed_along_k.iter().any(|of| of.dtype == dtype && rows >= of.min_rows)
    }
}

/// Limits of horizontal fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HorizontalLimits {
    /// The highest number of kernels that become one kernel.
    pub max_parts: usize,
    /// The highest number of elements of a small kernel: as many as one thread computes in the time
    /// that starting the other threads takes.
    pub max_small: usize,
    /// The highest total number of elements of all small kernels that become one kernel.
    pub max_small_total: usize,
}

impl Target {
    /// The cost of an op for one element.
    pub fn cost(&self, code: OpCode) -> u32 {
        self.costs.of(code.def().cost)
    }

    /// Whether the op is expensive: it is not recomputed for each element to which its value is
    /// broadcast.
    pub fn is_expensive(&self, code: OpCode) -> bool {
        self.cost(code) >= self.recompute.expensive
    }

    /// The first node of a graph for which the target lacks something, in regions too. The ops of
    /// the graph are primitives.
    pub(crate) fn lacking(&self, graph: &Graph) -> Option<(NodeId, Lacking)> {
        let universal = self.dtypes == DTypes::ALL
            && self.routines == Routines::All
            && self.control_flow == ControlFlow::Kernels;
        if universal {
            return None;
        }
        graph.nodes().find_map(|(id, node)| {
            let lacking = match node.op.class() {
                _ if !self.dtypes.contains(node.spec.dtype) => Lacking::DType(node.spec.dtype),
                Class::Control if self.control_flow == ControlFlow::Host => Lacking::ControlFlow,
                _ if !self.routines.computes(&node.op) => Lacking::Routine,
                _ => return None,
            };
            Some((id, lacking))
        })
    }

    /// Processors with caches and vector registers: x86-64 and AArch64. The numbers were measured
    /// on x86-64 with AVX-512 and 2 MB of L2 cache for each core.
    pub const CPU: Target = Target {
        decomposition: DecompositionTarget::CPU,
        // 32 lanes are two independent accumulators of 16 f32 each. A block is read from L1.
        reduction: ReductionOrder { block: 512, lanes: 32 },
        max_nodes: 128,
        costs: OpCosts {
            arithmetic: 1,
            movement: 1,
            lookup: 2,
            division: 2,
            remainder: 2,
            exponential: 16,
            transcendental: 16,
            hypotenuse: 16,
            // Above every limit, so checked ops are never recomputed. A check would run once per
            // class instead of once per label.
            random: 64,
            special: 64,
            series: 64,
            checked: 64,
        },
        recompute: RecomputeLimits {
            // A transcendental function.
            expensive: 16,
            max_cost: 4,
            // One exponential (softmax) costs less than storing and loading the operand.
            max_cost_in_reduction: 20,
            max_loads: 2,
            max_loads_of_many: 1,
            max_depth: 16,
            uncached_bytes: 1 << 20,
            // A logistic function takes half the time of storing and loading a cache line.
            max_cost_of_uncached: 24,
            broadcast_ratio: 16,
        },
        rows: RowLimits {
            max_parts: 16,
            max_row: 1 << 16,
            // Caches evict rows, they do not fail; `max_row` and `max_parts` keep the rows in L2.
            local_memory_bytes: usize::MAX,
            min_rows: 16,
            max_elements_of_few_rows: 1 << 15,
            wide_ratio: 2,
            max_b: 1 << 22,
        },
        prologue: PrologueLimits {
            packed: DTypes::of(&[
                DType::U8,
                DType::U16,
                DType::U32,
                DType::I8,
                DType::I16,
                DType::I32,
                DType::F16,
                DType::BF16,
                DType::F32,
            ]),
            // A test of the code generator compares these with its packing.
            packed_along_k: &[
                PackedAlongK { dtype: DType::U8, min_rows: 0 },
                PackedAlongK { dtype: DType::I8, min_rows: 0 },
                PackedAlongK { dtype: DType::BF16, min_rows: 16 },
            ],
            max_packed_once: 1 << 22,
            max_rows: 512,
        },
        horizontal: HorizontalLimits {
            max_parts: 64,
            max_small: 1 << 12,
            max_small_total: 1 << 15,
        },
        placement: PlacementLimits::INSIDE_KERNELS,
        dtypes: DTypes::ALL,
        routines: Routines::All,
        control_flow: ControlFlow::Kernels,
        min_border_bytes: 64 << 10,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FusionOptions, LowerError, lower};
    use girih_ir::{GraphBuilder, OpCode, TensorSpec};

    #[test]
    fn a_native_composite_is_not_decomposed_and_fusion_has_no_kernel_for_it() {
        let native = &[OpCode::Softmax];
        let decomposition = DecompositionTarget { native, ..DecompositionTarget::CPU };
        let target = Target { decomposition, ..Target::CPU };
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([4, 8], DType::F32));
        let (y, z) = (b.softmax(x, 1).unwrap(), b.op(OpCode::Silu, &[x]).unwrap());
        let graph = b.finish([y, z]);
        let of_target = graph.decomposed_for(&target.decomposition).unwrap().unwrap();
        let remaining = |code| of_target.nodes().filter(|(_, n)| n.op.code == code).count();
        assert_eq!([OpCode::Softmax, OpCode::Silu].map(remaining), [1, 0], "{of_target}");
        let refused = lower(&of_target, FusionOptions::ALL, &target).unwrap_err();
        assert!(matches!(refused, LowerError::Composite { op: "softmax", .. }), "{refused}");
        let of_cpu = graph.decomposed_for(&Target::CPU.decomposition).unwrap().unwrap();
        assert!(lower(&of_cpu, FusionOptions::ALL, &Target::CPU).is_ok());
    }

    #[test]
    fn the_definition_of_an_op_gives_its_cost() {
        use OpCode::*;
        let costs =
            |codes: &[OpCode]| codes.iter().map(|&c| Target::CPU.cost(c)).collect::<Vec<_>>();
        assert_eq!(costs(&[Input, Iota, Reshape, Matmul, ReduceSum, Softmax, Scatter]), [0; 7]);
        assert_eq!(costs(&[Add, Neg, Maximum, Eq, Cast, Bitcast, Where, Real]), [1; 8]);
        assert_eq!(costs(&[Div, Sqrt, Fmod, Take, TakeAlongAxis, WrapIndex]), [2; 6]);
        assert_eq!(costs(&[Exp, Tanh, Sin, Pow, Hypot]), [16; 5]);
        assert_eq!(costs(&[RandomNormal, Philox, Erfinv, Igamma, CheckLabel]), [64; 5]);
    }

    #[test]
    fn costs_decide_what_is_recomputed() {
        // Two reductions over different axes read the value.
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([100, 100], DType::F32));
        let y = b.exp(x).unwrap();
        let sums = [0, 1].map(|axis| b.sum(y, girih_ir::AxisSet::one(axis), false).unwrap());
        let graph = b.finish(sums);
        let options = FusionOptions { rows: false, horizontal: false, ..FusionOptions::ALL };
        let kernels = |exponential| {
            let costs = OpCosts { exponential, ..Target::CPU.costs };
            lower(&graph, options, &Target { costs, ..Target::CPU }).unwrap().kernels.len()
        };
        assert_eq!((kernels(1), kernels(16)), (2, 3));
    }

    #[test]
    fn row_limits_of_the_target_control_fusion() {
        // Sums of rows, subtracted from the rows.
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([100, 100], DType::F32));
        let sums = b.sum(x, girih_ir::AxisSet::one(1), true).unwrap();
        let y = b.sub(x, sums).unwrap();
        let graph = b.finish([y]);
        let kernels = |max_row| {
            let rows = RowLimits { max_row, ..Target::CPU.rows };
            let target = Target { rows, ..Target::CPU };
            lower(&graph, FusionOptions::ALL, &target).unwrap().kernels.len()
        };
        assert_eq!((kernels(100), kernels(99)), (1, 2));
    }

    #[test]
    fn rows_that_do_not_fit_the_local_memory_stay_kernels_of_their_own() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([100, 100], DType::F32));
        let sums = b.sum(x, girih_ir::AxisSet::one(1), true).unwrap();
        let y = b.sub(x, sums).unwrap();
        let graph = b.finish([y]);
        let lowered = |local_memory_bytes| {
            let rows = RowLimits { local_memory_bytes, ..Target::CPU.rows };
            let target = Target { rows, ..Target::CPU };
            lower(&graph, FusionOptions::ALL, &target).unwrap().kernels.len()
        };
        // A sum and a row of the result.
        assert_eq!((lowered(4 + 400), lowered(4 + 399)), (1, 2));
    }

    #[test]
    fn a_graph_that_needs_what_the_target_lacks_is_refused() {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([4, 4], DType::F64));
        let y = b.matmul(x, x).unwrap();
        let y = b.cast(y, DType::F32).unwrap();
        let graph = b.finish([y]);
        let refused = |target: &Target| lower(&graph, FusionOptions::ALL, target).unwrap_err();
        let dtypes = DTypes::of(&[DType::F16, DType::F32]);
        let error = refused(&Target { dtypes, ..Target::CPU });
        assert!(matches!(error, LowerError::Unsupported { op: "input", .. }), "{error}");
        assert!(error.to_string().contains("float64"), "{error}");
        let routines = Routines::Only(&[OpCode::Conv, OpCode::Sort]);
        let error = refused(&Target { routines, ..Target::CPU });
        assert!(matches!(error, LowerError::Unsupported { op: "matmul", .. }), "{error}");
        let routines = Routines::Only(&[OpCode::Matmul]);
        let narrow = Target { routines, ..Target::CPU };
        assert!(lower(&graph, FusionOptions::ALL, &narrow).is_ok());
        assert!(DType::ALL.iter().all(|&dtype| DTypes::ALL.contains(dtype)));
        assert!(!dtypes.contains(DType::F64) && dtypes.contains(DType::F16));
    }

    #[test]
    fn the_reduction_order_of_the_cpu_is_a_tree_over_lanes_and_blocks() {
        let ReductionOrder { block, lanes } = Target::CPU.reduction;
        assert!(lanes.is_power_of_two() && block.is_multiple_of(lanes));
        assert_eq!((block, lanes), (512, 32), "another order changes the bits of results");
    }
}
