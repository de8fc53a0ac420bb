//! The op registry: every op Girih has is one [`OpDef`] in one of the files beside this one, and
//! one row of the elementwise table ([`elementwise_table`](crate::elementwise_table)) or of the list
//! below. Names, arity, shape and dtype rules, index maps, derivatives and
//! decompositions all hang off the definition; passes ask it and keep no lists of ops.
//!
//! Primitives are what backends implement. Composites (class [`Class::Composite`]) carry a
//! decomposition into primitives and are nodes of their own until the `Decompose` pass.

pub mod attention;
mod attrs;
pub mod collective;
pub mod combine;
pub mod composite;
pub mod contract;
pub mod control;
pub mod conv;
pub mod cumulative;
pub mod elementwise;
pub mod factoring;
pub mod fft;
pub mod fields;
pub mod host;
pub mod index;
pub mod leaf;
pub mod linalg;
pub mod linearity;
pub mod norm;
pub mod pool;
pub mod reduce;
pub mod rules;
pub mod samples;
pub mod sort;
mod split;
mod table;
pub mod view;
pub mod window;

pub use attrs::{Attrs, AxisSet, OfSize, PadDim, Real, ScatterMode, SliceDim};
pub use factoring::{FactorRule, Factoring};
pub use linearity::Linearity;
pub use rules::{Cotangents, Decomposition, Derivative, Vjp};
pub use samples::Sample;

use crate::{DType, Error, Graph, Iteration, Node, NodeId, Result, TensorSpec};
use std::fmt;

/// What kind of relation an op is between its operands and its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A value that comes from outside the graph or from nothing.
    Leaf,
    /// One result element from one element of each operand, operands broadcast.
    Elementwise,
    /// Elements of some axes combined into one.
    Reduction,
    /// Products summed over a shared axis.
    Contraction,
    /// A rearrangement of one operand's elements by an affine index map.
    View,
    /// The same elements in the same order under another shape.
    Reshape,
    /// Operands placed side by side or into a border.
    Combine,
    /// Elements addressed by the values of an integer operand.
    Index,
    /// Computed by a routine on whole rows or matrices, which are an operand's last one or two axes;
    /// the axes before are a batch. Such an op may have several results: each is a node of its own,
    /// told apart by [`Attrs::Library`], and one kernel computes those that are needed.
    Library,
    /// Runs closed graphs of its own, chosen or repeated. Such an op may have several results: see
    /// [`control`].
    Control,
    /// Defined by a decomposition into the other classes.
    Composite,
}

/// An op's operands while its rules are asked: the op and its operands' specs.
#[derive(Clone, Copy)]
pub struct OpCall<'a> {
    /// The op with its attributes.
    pub op: &'a Op,
    /// Specs of the operands, in order.
    pub inputs: &'a [&'a TensorSpec],
}

impl OpCall<'_> {
    /// Name of the op, for errors.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }
}

/// What a library routine takes and gives per batch, in axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemRank {
    /// Rows, and rows as results.
    Row,
    /// Matrices; per result, its number of axes: 0 for a number, 1 for a row, 2 for a matrix.
    Matrix(&'static [u8]),
    /// All of each operand and of each result.
    Whole,
}

impl ItemRank {
    /// Axes of an item of an operand of that rank.
    pub fn operand(self, rank: usize) -> usize {
        match self {
            ItemRank::Row => 1,
            ItemRank::Matrix(_) => 2,
            ItemRank::Whole => rank,
        }
    }

    /// Axes of an item of that result, which has that rank.
    pub fn result(self, number: usize, rank: usize) -> usize {
        match self {
            ItemRank::Row => 1,
            ItemRank::Matrix(results) => results[number] as usize,
            ItemRank::Whole => rank,
        }
    }
}

/// How an op takes a batch of its operands, as `vmap` gives it: with one more axis in front of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Leading axes of operands broadcast, aligned at the right: an operand of lower rank than the
    /// result gets axes of size one behind the batch axis.
    Broadcast,
    /// All operands have the batch axis; axes that attributes name move by one.
    Leading,
    /// As [`Batching::Leading`] of the first operand; with a batch of another one the op is batched
    /// through its definition.
    First,
    /// `vmap` has a rule for the op.
    Rule,
}

/// In which dtype users' functions compute an op on half floats and float32 under autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// In that of the operands.
    Operands,
    /// In the half dtype that autocast names: products, whose factors need few digits.
    Half,
    /// In float32: what has a steep slope, a large range, or adds many numbers.
    Full,
}

/// Definition of one op: the single place that says what it is.
pub struct OpDef {
    /// Name in text forms and messages.
    pub name: &'static str,
    /// One sentence on what it computes.
    pub doc: &'static str,
    /// Kind of index relation.
    pub class: Class,
    /// Fewest and most operands.
    pub arity: (usize, usize),
    /// True if the two operands may be exchanged without changing a bit of the result.
    pub commutative: bool,
    /// True if the op has exactly one right result, by IEEE 754 or the arithmetic of integers, so
    /// that computing it at compile time gives the device's bits. Not so for library functions
    /// such as `exp`, whose last bit differs from one to the next.
    pub exact: bool,
    /// Shape and dtype rule, with all checks on operands and attributes.
    pub infer: fn(OpCall<'_>) -> Result<TensorSpec>,
    /// Iteration space and index maps; `None` where the relation is not affine.
    pub iteration: Option<fn(OpCall<'_>, &TensorSpec) -> Iteration>,
    /// Of a library routine: how many last axes of operands and results are one item.
    pub item_rank: ItemRank,
    /// How its axes correspond, by factors; by class where the definition says nothing.
    pub factors: Factoring,
    /// In which operands it is linear; by class where the definition says nothing.
    pub linear: Linearity,
    /// Reverse-mode rule; the forward-mode rule is its transpose.
    pub derivative: Derivative,
    /// How the op is batched; by class where the definition says nothing.
    pub batching: Option<Batching>,
    /// Definition of a composite in terms of other ops.
    pub decompose: Option<fn(&mut Decomposition<'_>) -> Result<NodeId>>,
    /// Where sample operands are taken from: inside the op's domain, away from kinks and poles.
    pub domain: (f64, f64),
    /// Operands that tests and documentation use; by class where the definition says nothing.
    pub samples: fn(OpCode) -> Vec<Sample>,
    /// What Python users call.
    pub python: Python,
    /// The kind of op that users are told; by class where the definition says nothing.
    pub category: Option<Category>,
    /// In which dtype it is computed under autocast.
    pub precision: Precision,
}

/// The same op, computed in float32 under autocast.
const fn full(def: OpDef) -> OpDef {
    OpDef { precision: Precision::Full, ..def }
}

/// What Python users call to get an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Python {
    /// The function of the op's own name, or the row's in the elementwise table.
    Same,
    /// `girih.NAME`; or `Tensor.NAME`, where there is a method only.
    Named(&'static str),
    /// Nothing, and why.
    Nothing(&'static str),
}

/// Kinds of ops, as users of graphs tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Values that come from outside, constants and random draws.
    Leaf,
    /// Element by element.
    Elementwise,
    /// Elements of some axes combined.
    Reduction,
    /// Matrix products.
    Matmul,
    /// The same elements in the same order under another shape.
    Reshape,
    /// Axes in another order or reversed.
    Transpose,
    /// Parts of axes.
    Slice,
    /// Operands placed side by side or into a border.
    Concat,
    /// Axes stretched.
    Broadcast,
    /// Elements addressed by the values of an operand.
    Index,
    /// Routines on whole rows or matrices.
    Library,
    /// Branches and loops.
    Control,
    /// Defined by other ops.
    Composite,
}

impl Category {
    /// The name that graphs are inspected by: `OP_ELEMENTWISE` and the like.
    pub fn name(self) -> &'static str {
        match self {
            Category::Leaf => "OP_LEAF",
            Category::Elementwise => "OP_ELEMENTWISE",
            Category::Reduction => "OP_REDUCTION",
            Category::Matmul => "OP_MATMUL",
            Category::Reshape => "OP_RESHAPE",
            Category::Transpose => "OP_TRANSPOSE",
            Category::Slice => "OP_SLICE",
            Category::Concat => "OP_CONCAT",
            Category::Broadcast => "OP_BROADCAST",
            Category::Index => "OP_INDEX",
            Category::Library => "OP_LIBRARY",
            Category::Control => "OP_CONTROL",
            Category::Composite => "OP_COMPOSITE",
        }
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl OpDef {
    /// Blank definition that the op files fill in with struct update syntax.
    pub const BLANK: OpDef = OpDef {
        name: "",
        doc: "",
        class: Class::Leaf,
        arity: (0, 0),
        commutative: false,
        exact: false,
        infer: |call| {
            Err(Error::InvalidArgument { op: call.name(), reason: "has no shape rule".into() })
        },
        iteration: None,
        item_rank: ItemRank::Row,
        factors: Factoring::ByClass,
        linear: Linearity::ByClass,
        derivative: Derivative::Zero("it is a leaf"),
        batching: None,
        decompose: None,
        domain: (-2.0, 2.1),
        samples: samples::elementwise,
        python: Python::Same,
        category: None,
        precision: Precision::Operands,
    };

    /// How the op takes a batch of its operands.
    pub fn batching(&self) -> Batching {
        self.batching.unwrap_or(match self.class {
            Class::Elementwise | Class::Contraction => Batching::Broadcast,
            Class::Composite if self.category == Some(Category::Elementwise) => Batching::Broadcast,
            Class::Leaf | Class::Control => Batching::Rule,
            _ => Batching::Leading,
        })
    }

    /// The kind of op that users are told.
    pub fn category(&self) -> Category {
        self.category.unwrap_or(match self.class {
            Class::Leaf => Category::Leaf,
            Class::Elementwise => Category::Elementwise,
            Class::Reduction => Category::Reduction,
            Class::Contraction => Category::Matmul,
            Class::View => Category::Slice,
            Class::Reshape => Category::Reshape,
            Class::Combine => Category::Concat,
            Class::Index => Category::Index,
            Class::Library => Category::Library,
            Class::Control => Category::Control,
            Class::Composite => Category::Composite,
        })
    }
}

macro_rules! registry {
    ($($code:ident = $def:path,)*) => {
        /// Identity of an op; indexes the registry.
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
    /// What Python users call, as `girih.NAME` or `Tensor.NAME`; else why there is nothing.
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
    // Elementwise: the table, and what is not in it.
    $($ucode = $udef,)*
    $($bcode = $bdef,)*
    Real = elementwise::REAL,
    Imag = elementwise::IMAG,
    Round = elementwise::ROUND,
    Cast = elementwise::CAST,
    Bitcast = elementwise::BITCAST,
    Where = elementwise::WHERE,
    Philox = elementwise::PHILOX,
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
    Gelu = composite::GELU,
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

/// An op with its attributes: what a node does to its operands. 16 bytes of attributes, inline
/// when small and shared when large.
#[derive(Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Op {
    /// Which op.
    pub code: OpCode,
    /// Its attributes.
    pub attrs: Attrs,
}

impl Op {
    /// An op with attributes.
    pub fn new(code: OpCode, attrs: Attrs) -> Op {
        Op { code, attrs }
    }

    /// The op's definition.
    pub fn def(&self) -> &'static OpDef {
        self.code.def()
    }

    /// The op's name.
    pub fn name(&self) -> &'static str {
        self.def().name
    }

    /// Kind of index relation.
    pub fn class(&self) -> Class {
        self.def().class
    }

    /// True for ops whose values come with the program's arguments: inputs, parameters, run-time
    /// scalars and the keys of random leaves.
    pub fn takes_argument(&self) -> bool {
        match self.code {
            OpCode::Constant => self.attrs == Attrs::None,
            OpCode::Input if self.as_outside().is_some() => false,
            code => code.def().class == Class::Leaf && code != OpCode::Iota,
        }
    }

    /// A leaf that stands for a tensor outside, by a number of the front end's, in a graph that a rule
    /// recorded: it may stand in regions, and the front end makes it an operand before anything else
    /// sees the graph.
    pub fn outside(key: u64) -> Op {
        Op::new(OpCode::Input, Attrs::Value(key))
    }

    /// The number of a tensor outside, if the op is a leaf for one.
    pub fn as_outside(&self) -> Option<u64> {
        match (self.code, &self.attrs) {
            (OpCode::Input, &Attrs::Value(key)) => Some(key),
            _ => None,
        }
    }

    /// Which of its results the op gives; 0 for ops of one result.
    pub fn output_index(&self) -> usize {
        match self.attrs {
            Attrs::Library { result, .. } | Attrs::Host { result, .. } => result as usize,
            Attrs::Part { result, .. } => result as usize,
            Attrs::Control { result, .. } => result as usize,
            _ => 0,
        }
    }

    /// The same op giving another of its results.
    pub fn with_result(&self, result: u8) -> Op {
        if let Some((_, control)) = self.as_control() {
            return Op::control(self.code, control.clone(), result as usize);
        }
        if let Some((_, call)) = self.as_host() {
            return Op::host(call.clone(), result as usize);
        }
        if let Attrs::Part { axis, at, .. } = &self.attrs {
            return Op::split(*axis as usize, at.clone(), result as usize);
        }
        let (_, flag, size) = self.attrs.library();
        Op::new(self.code, Attrs::Library { result, flag, size })
    }

    /// True for the random leaves: never merged, never folded.
    pub fn is_random(&self) -> bool {
        matches!(self.code, OpCode::RandomUniform | OpCode::RandomNormal | OpCode::RandomBits)
    }

    /// Checks operands and attributes and gives the result's spec.
    pub fn infer(&self, inputs: &[&TensorSpec]) -> Result<TensorSpec> {
        let def = self.def();
        if inputs.len() < def.arity.0 || inputs.len() > def.arity.1 {
            return Err(Error::InvalidArgument {
                op: def.name,
                reason: format!(
                    "takes {} to {} operands, got {}",
                    def.arity.0,
                    def.arity.1,
                    inputs.len()
                ),
            });
        }
        let spec = (def.infer)(OpCall { op: self, inputs })?;
        // Broadcasting, products and casts make more bytes of fewer; counts after this cannot
        // overflow.
        spec.shape.check(def.name, spec.dtype)?;
        Ok(spec)
    }
}

impl From<OpCode> for Op {
    fn from(code: OpCode) -> Op {
        Op { code, attrs: Attrs::None }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name(), self.attrs)
    }
}

/// Fails unless all operands share one dtype; gives it.
pub(crate) fn same_dtype(call: OpCall<'_>) -> Result<DType> {
    let first = call.inputs[0].dtype;
    match call.inputs.iter().find(|s| s.dtype != first) {
        None => Ok(first),
        Some(s) => Err(Error::DTypeMismatch { op: call.name(), lhs: first, rhs: s.dtype }),
    }
}

/// Fails unless `ok`; the message names what the op takes.
pub(crate) fn require_dtype(
    call: OpCall<'_>,
    dtype: DType,
    ok: bool,
    expected: &'static str,
) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::DTypeUnsupported { op: call.name(), dtype, expected }) }
}

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

    /// Samples are what every other walk over the registry goes by.
    #[test]
    fn every_op_has_samples_that_it_takes_and_means_something_on() {
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
                let operand = |x: &crate::reference::Array| b.input(x.spec().clone());
                let inputs: Vec<_> = sample.inputs.iter().map(operand).collect();
                let y = b.emit(sample.op.clone(), &inputs).unwrap();
                let graph = b.finish([y]);
                graph.verify().unwrap();
                let values = crate::reference::evaluate(&graph, &sample.inputs).unwrap();
                assert_eq!(values[0].spec(), &spec, "{}", def.name);
                let text = graph.to_string();
                assert!(text.contains(&format!(" = {}(", def.name)), "{text}");
                let read = crate::Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
                assert_eq!(read, graph, "{text}");
            }
        }
    }

    #[test]
    fn an_op_is_small() {
        assert!(size_of::<Attrs>() <= 16);
        assert!(size_of::<Op>() <= 24);
    }
}
