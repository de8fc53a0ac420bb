//! The op registry. Every op of Girih is one [`OpDef`] in one of the files of this module, and one
//! row of the elementwise table ([`elementwise_table`](crate::elementwise_table)) or of the list
//! below. The definition holds the op's name, arity, shape and dtype rule, index maps, derivative
//! and decomposition. Passes ask the definition and keep no lists of ops.
//!
//! Backends implement the primitives. A composite (class [`Class::Composite`]) has a decomposition
//! into primitives and stays one node until the `Decompose` pass.

pub mod attention;
mod attrs;
pub mod collective;
pub mod combine;
pub mod composite;
pub mod contract;
pub mod control;
pub mod conv;
mod cost;
pub mod cumulative;
mod def;
pub mod elementwise;
pub mod factoring;
pub mod fft;
pub mod fields;
pub mod host;
pub mod index;
pub mod leaf;
pub mod linalg;
pub mod linearity;
pub mod masked;
pub mod norm;
mod op;
pub mod parts;
pub mod pool;
pub mod reduce;
pub mod rules;
pub mod samples;
pub mod slopes;
pub mod sort;
mod split;
mod table;
pub mod target;
pub mod view;
pub mod window;

pub use attrs::{Attrs, AxisSet, OfSize, PadDim, Real, ScatterMode, SliceDim};
pub use cost::Cost;
pub use def::{Batching, Category, Class, ItemRank, OpDef, Precision, Python};
pub use factoring::{FactorRule, Factoring};
pub use linearity::Linearity;
pub use op::{Op, OpCall};
pub use parts::{OpPart, PartRule};
pub use rules::{Cotangents, Decomposition, Derivative, Vjp};
pub use samples::Sample;

pub(crate) use op::{require_dtype, same_dtype};

use crate::{DType, Error, Graph, Iteration, Node, NodeId, Result, TensorSpec};
use def::full;
use std::fmt;

macro_rules! registry {
    ($($code:ident = $def:path,)*) => {
        /// Identity of an op, which is its index in the registry.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize,
            serde::Deserialize,
        )]
        #[repr(u8)]
        pub enum OpCode {
            $(#[doc = concat!("See [`", stringify!($def), "`].")] $code,)*
        }

        impl OpCode {
            /// Every op, in registry order.
            pub const ALL: &'static [OpCode] = &[$(OpCode::$code),*];

            /// The op's definition.
            #[inline]
            pub fn def(self) -> &'static OpDef {
                static DEFS: &[&OpDef] = &[$(&$def),*];
                DEFS[self as usize]
            }

            /// Sample operands: see [`OpDef::samples`].
            pub fn samples(self) -> Vec<Sample> {
                (self.def().samples)(self)
            }
        }
    };
}

/// The registry: the rows of the elementwise table, then all other ops.
macro_rules! with_elementwise {
    (
        unary { $($how:ident $unary:ident $ucode:ident $udef:path, $up:ident $udoc:literal;)* }
        binary { $($how2:ident $binary:ident $bcode:ident $bdef:path, $bp:ident $bdoc:literal;)* }
    ) => {
impl OpCode {
    /// The Python name, `girih.NAME` or `Tensor.NAME`; the error says why there is no Python name.
    pub fn python(self) -> std::result::Result<&'static str, &'static str> {
        match (self.def().python, self) {
            (Python::Named(name), _) => Ok(name),
            (Python::Nothing(why), _) => Err(why),
            $((Python::Same, OpCode::$ucode) => Ok(stringify!($up)),)*
            $((Python::Same, OpCode::$bcode) => Ok(stringify!($bp)),)*
            (Python::Same, code) => Ok(code.def().name),
        }
    }
}

registry! {
    // Leaves.
    Input = leaf::INPUT,
    Parameter = leaf::PARAMETER,
    Constant = leaf::CONSTANT,
    RandomUniform = leaf::RANDOM_UNIFORM,
    RandomNormal = leaf::RANDOM_NORMAL,
    RandomBits = leaf::RANDOM_BITS,
    Iota = leaf::IOTA,
    // Elementwise: the table's ops and the ops outside the table.
    $($ucode = $udef,)*
    $($bcode = $bdef,)*
    Real = elementwise::REAL,
    Imag = elementwise::IMAG,
    Round = elementwise::ROUND,
    Cast = elementwise::CAST,
    Bitcast = elementwise::BITCAST,
    Where = elementwise::WHERE,
    Philox = elementwise::PHILOX,
    GammaDraw = elementwise::GAMMA_DRAW,
    LogGammaDraw = elementwise::LOG_GAMMA_DRAW,
    PoissonDraw = elementwise::POISSON_DRAW,
    BinomialDraw = elementwise::BINOMIAL_DRAW,
    // Reductions.
    ReduceSum = reduce::SUM,
    ReduceProd = reduce::PROD,
    ReduceMax = reduce::MAX,
    ReduceMin = reduce::MIN,
    ReduceAny = reduce::ANY,
    ReduceAll = reduce::ALL,
    Argmax = reduce::ARGMAX,
    Argmin = reduce::ARGMIN,
    // Contraction.
    Matmul = contract::MATMUL,
    // Views and placement.
    Reshape = view::RESHAPE,
    Permute = view::PERMUTE,
    BroadcastTo = view::BROADCAST_TO,
    Slice = view::SLICE,
    Flip = view::FLIP,
    Split = split::SPLIT,
    Windows = window::WINDOWS,
    Concat = combine::CONCAT,
    Pad = combine::PAD,
    UpdateSlice = combine::UPDATE_SLICE,
    // Indexing by values.
    Take = index::TAKE,
    TakeAlongAxis = index::TAKE_ALONG_AXIS,
    ScatterAdd = index::SCATTER_ADD,
    ScatterAddAlongAxis = index::SCATTER_ADD_ALONG_AXIS,
    Scatter = index::SCATTER,
    ScatterAlongAxis = index::SCATTER_ALONG_AXIS,
    WrapIndex = index::WRAP_INDEX,
    CheckLabel = index::CHECK_LABEL,
    // Library routines.
    Sort = sort::SORT,
    TopK = sort::TOPK,
    OrderStatistics = sort::ORDER_STATISTICS,
    SearchSorted = sort::SEARCHSORTED,
    CumSum = cumulative::CUMSUM,
    CumProd = cumulative::CUMPROD,
    CumMax = cumulative::CUMMAX,
    CumMin = cumulative::CUMMIN,
    LogCumSumExp = cumulative::LOGCUMSUMEXP,
    Recurrence = cumulative::RECURRENCE,
    Cholesky = linalg::CHOLESKY,
    Solve = linalg::SOLVE,
    SolveTriangular = linalg::SOLVE_TRIANGULAR,
    Inv = linalg::INV,
    Det = linalg::DET,
    Cofactors = linalg::COFACTORS,
    CofactorSlopes = linalg::COFACTOR_SLOPES,
    Slogdet = linalg::SLOGDET,
    Lu = linalg::LU,
    Qr = linalg::QR,
    Eigh = linalg::EIGH,
    Eig = linalg::EIG,
    Svd = linalg::SVD,
    Pinv = linalg::PINV,
    Fft = fft::FFT,
    Rfft = fft::RFFT,
    Irfft = fft::IRFFT,
    Custom = host::CUSTOM,
    // Control flow.
    Cond = control::COND,
    WhileLoop = control::WHILE_LOOP,
    Scan = control::SCAN,
    Call = control::CALL,
    // Collectives.
    AllReduce = collective::ALL_REDUCE,
    AllGather = collective::ALL_GATHER,
    // Composites.
    ToDevice = composite::TO_DEVICE,
    Reshard = composite::RESHARD,
    Gelu = composite::GELU,
    SigmoidSlope = slopes::SIGMOID_SLOPE,
    Direction = slopes::DIRECTION,
    Mean = composite::MEAN,
    Var = composite::VAR,
    LogSumExp = composite::LOGSUMEXP,
    Softmax = composite::SOFTMAX,
    LogSoftmax = composite::LOG_SOFTMAX,
    LayerNorm = composite::LAYER_NORM,
    CrossEntropy = composite::CROSS_ENTROPY,
    BinaryCrossEntropy = composite::BINARY_CROSS_ENTROPY,
    // Networks.
    FoldWindows = window::FOLD_WINDOWS,
    Conv = conv::CONV,
    ConvTranspose = conv::CONV_TRANSPOSE,
    MaxPool = pool::MAX_POOL,
    AvgPool = pool::AVG_POOL,
    Standardize = norm::STANDARDIZE,
    RmsNorm = norm::RMS_NORM,
    Attention = attention::ATTENTION,
} };
}

crate::elementwise_table! { with_elementwise }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_definition_is_complete() {
        let mut names = std::collections::HashSet::new();
        for &code in OpCode::ALL {
            let def = code.def();
            assert!(names.insert(def.name), "two ops are called {}", def.name);
            assert!(def.doc.ends_with('.'), "{}: doc is a sentence", def.name);
            assert!(def.arity.0 <= def.arity.1, "{}", def.name);
            match def.class {
                Class::Leaf => assert_eq!(def.arity, (0, 0), "{}", def.name),
                Class::Composite => assert!(def.decompose.is_some(), "{}", def.name),
                Class::Elementwise | Class::Reduction | Class::Contraction | Class::View => {
                    assert!(def.iteration.is_some(), "{}: no index maps", def.name)
                }
                Class::Reshape
                | Class::Combine
                | Class::Index
                | Class::Library
                | Class::Control => {}
            }
            if let Derivative::Zero(reason) | Derivative::Refused(reason) = def.derivative {
                assert!(!reason.is_empty(), "{}", def.name);
            }
            if let Err(reason) = code.python() {
                assert!(!reason.is_empty(), "{}: no Python function and no reason", def.name);
            }
        }
    }

    /// All other tests that walk the registry depend on the samples.
    #[test]
    fn every_op_has_samples_that_it_takes() {
        for &code in OpCode::ALL {
            let (def, samples) = (code.def(), code.samples());
            if def.class == Class::Leaf {
                continue;
            }
            assert!(!samples.is_empty(), "{} has no samples: give `samples`", def.name);
            for sample in samples {
                assert_eq!(sample.op.code, code, "{}", def.name);
                let spec = sample.infer().unwrap_or_else(|e| panic!("{}: {e}", def.name));
                let mut b = crate::GraphBuilder::default();
                let operand = |x: &crate::Array| b.input(x.spec().clone());
                let inputs: Vec<_> = sample.inputs.iter().map(operand).collect();
                let y = b.emit(sample.op.clone(), &inputs).unwrap();
                let graph = b.finish([y]);
                graph.verify().unwrap();
                assert_eq!(graph.spec(y), &spec, "{}", def.name);
                let text = graph.to_string();
                assert!(text.contains(&format!(" = {}(", def.name)), "{text}");
                let read = crate::Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(read, graph, "{text}");
            }
        }
    }

    #[test]
    fn a_composite_can_fail_if_its_decomposition_can() {
        for &code in OpCode::ALL.iter().filter(|code| code.def().decompose.is_some()) {
            for sample in code.samples() {
                let mut b = crate::GraphBuilder::default();
                let inputs: Vec<_> =
                    sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
                let y = b.decompose(&sample.op, &inputs).unwrap();
                let graph = b.finish([y]);
                let fails = graph.nodes().any(|(_, node)| node.op.can_fail());
                assert_eq!(code.def().can_fail, fails, "{}: {graph}", code.def().name);
            }
        }
    }

    #[test]
    fn an_op_that_is_exact_on_halves_gives_halves() {
        let bits = [0, 0x8000, 1, 0x3c00, 0xbc01, 0x3e00, 0xc580, 0x7bff, 0x7c00, 0x7e00u64];
        let halves = |dtype| bits.map(|bits| crate::Literal { dtype, bits });
        let condition = crate::Literal { dtype: DType::Bool, bits: 1 };
        for &code in OpCode::ALL.iter().filter(|code| code.def().exact_on_halves) {
            // The next value is defined by the dtype, so it is not computed in f32.
            let pairs =
                halves(DType::F16).into_iter().flat_map(|a| halves(DType::F16).map(|b| (a, b)));
            for (a, b) in pairs.filter(|_| code != OpCode::Nextafter) {
                let [a, b] = [a, b].map(|half| half.cast(DType::F32));
                let operands = [condition, a, b];
                let operands = &operands[(code != OpCode::Where) as usize..];
                let y = crate::scalar::apply(&code.into(), DType::F32, operands);
                let rounded = y.cast(DType::F16).cast(DType::F32);
                assert!(rounded == y || y.is_nan(), "{code:?} of {a:?}, {b:?}: {y:?}");
            }
        }
        let exact = |code: OpCode| code.def().exact_on_halves;
        assert!(exact(OpCode::Nextafter) && !exact(OpCode::Add) && !exact(OpCode::Cast));
    }

    #[test]
    fn an_op_is_small() {
        assert!(size_of::<Attrs>() <= 16);
        assert!(size_of::<Op>() <= 24);
    }
}
