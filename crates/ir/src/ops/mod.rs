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
pub mod target;
pub mod view;
pub mod window;

pub use attrs::{Attrs, AxisSet, OfSize, PadDim, Real, ScatterMode, SliceDim};
pub use factoring::{FactorRule, Factoring};
pub use linearity::Linearity;
pub use rules::{Cotangents, Decomposition, Derivative, Vjp};
pub use samples::Sample;

use crate::{DType, Error, Graph, Iteration, Node, NodeId, Result, TensorSpec};
use std::fmt;

/// How an op's result depends on its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A value from outside the graph, or a value without operands.
    Leaf,
    /// Each result element depends on one element of each operand; operands broadcast.
    Elementwise,
    /// The elements along some axes are combined into one.
    Reduction,
    /// Products of two operands, summed over the contracted axis.
    Contraction,
    /// A rearrangement of one operand's elements by an affine index map.
    View,
    /// The same elements in the same order under another shape.
    Reshape,
    /// Operands placed side by side or into a border.
    Combine,
    /// Elements addressed by the values of an integer operand.
    Index,
    /// Computed by a routine on whole rows or matrices: the operand's last one or two axes. The
    /// axes before them are batch axes. Such an op may have several results. Each result is a node
    /// of its own, whose [`Attrs::Library`] says which result it is; one kernel computes all
    /// results that are needed.
    Library,
    /// Runs regions (closed graphs in the op's attributes), selected or repeated. Such an op may
    /// have several results: see [`control`].
    Control,
    /// Defined by a decomposition into the other classes.
    Composite,
}

/// An op and the specs of its operands: the argument of the op's rules.
#[derive(Clone, Copy)]
pub struct OpCall<'a> {
    /// The op with its attributes.
    pub op: &'a Op,
    /// Specs of the operands, in order.
    pub inputs: &'a [&'a TensorSpec],
}

impl OpCall<'_> {
    /// Name of the op, for error messages.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }
}

/// The item of a library routine: how many last axes of operands and results one call works on. The
/// axes before them are batch axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemRank {
    /// The operands' and results' items are rows.
    Row,
    /// The operands' items are matrices. For each result, the rank of its item: 0 for a scalar, 1
    /// for a row, 2 for a matrix.
    Matrix(&'static [u8]),
    /// The item is the whole operand or result; there are no batch axes.
    Whole,
}

impl ItemRank {
    /// Number of item axes of an operand of rank `rank`.
    pub fn operand(self, rank: usize) -> usize {
        match self {
            ItemRank::Row => 1,
            ItemRank::Matrix(_) => 2,
            ItemRank::Whole => rank,
        }
    }

    /// Number of item axes of result `number`, which has rank `rank`.
    pub fn result(self, number: usize, rank: usize) -> usize {
        match self {
            ItemRank::Row => 1,
            ItemRank::Matrix(results) => results[number] as usize,
            ItemRank::Whole => rank,
        }
    }
}

/// How `vmap` batches an op whose operands have one more leading axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// Operands broadcast, aligned at the right. An operand of lower rank than the result gets axes
    /// of size one between its batch axis and its other axes.
    Broadcast,
    /// All operands have the batch axis. Axes in attributes move by one.
    Leading,
    /// As [`Batching::Leading`] if only the first operand is batched. If another operand is
    /// batched, `vmap` batches the op's decomposition.
    First,
    /// `vmap` has a rule for the op.
    Rule,
}

/// The dtype in which autocast computes an op whose operands are half floats or float32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// The dtype of the operands.
    Operands,
    /// The half dtype that autocast names. For matrix products, whose operands need little
    /// precision.
    Half,
    /// Float32. For ops with a steep slope, a large range, or a sum of many terms.
    Full,
}

/// Definition of one op, the single source of every fact about it.
pub struct OpDef {
    /// Name in text forms and messages.
    pub name: &'static str,
    /// One sentence on what it computes.
    pub doc: &'static str,
    /// Kind of index relation.
    pub class: Class,
    /// Minimum and maximum number of operands.
    pub arity: (usize, usize),
    /// True if exchanging the two operands changes no bit of the result.
    pub commutative: bool,
    /// True if IEEE 754 or integer arithmetic determines every bit of the result, so that constant
    /// folding gives the same bits as the device. False for library functions such as `exp`, whose
    /// last bit differs between implementations.
    pub exact: bool,
    /// Shape and dtype rule, with all checks on operands and attributes.
    pub infer: fn(OpCall<'_>) -> Result<TensorSpec>,
    /// Iteration space and index maps; `None` where the relation is not affine.
    pub iteration: Option<fn(OpCall<'_>, &TensorSpec) -> Iteration>,
    /// For a library routine, how many last axes of operands and results are one item.
    pub item_rank: ItemRank,
    /// How the axes of operands and results correspond, by factors. By default the class decides.
    pub factors: Factoring,
    /// The operands in which the op is linear. By default the class decides.
    pub linear: Linearity,
    /// Reverse-mode rule; the forward-mode rule is its transpose.
    pub derivative: Derivative,
    /// How `vmap` batches the op. By default the class decides.
    pub batching: Option<Batching>,
    /// Definition of a composite in terms of other ops.
    pub decompose: Option<fn(&mut Decomposition<'_>) -> Result<NodeId>>,
    /// The range of sample operands: inside the op's domain, away from kinks and poles.
    pub domain: (f64, f64),
    /// Sample operands for tests and documentation. By default the class decides.
    pub samples: fn(OpCode) -> Vec<Sample>,
    /// The Python function or method of the op.
    pub python: Python,
    /// The kind of op as graph inspection reports it. By default the class decides.
    pub category: Option<Category>,
    /// The dtype in which autocast computes the op.
    pub precision: Precision,
}

/// The same op, computed in float32 under autocast.
const fn full(def: OpDef) -> OpDef {
    OpDef { precision: Precision::Full, ..def }
}

/// How Python users call an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Python {
    /// By a function named as the op, or as its row of the elementwise table says.
    Same,
    /// By `girih.NAME`, or `Tensor.NAME` if there is only a method.
    Named(&'static str),
    /// Not at all, for this reason.
    Nothing(&'static str),
}

/// Kinds of ops that graph inspection reports to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Values from outside, constants and random values.
    Leaf,
    /// Element by element.
    Elementwise,
    /// The elements along some axes combined.
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
    /// Axes of size one repeated.
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
    /// Name in graph inspection, such as `OP_ELEMENTWISE`.
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

    /// How `vmap` batches the op.
    pub fn batching(&self) -> Batching {
        self.batching.unwrap_or(match self.class {
            Class::Elementwise | Class::Contraction => Batching::Broadcast,
            Class::Composite if self.category == Some(Category::Elementwise) => Batching::Broadcast,
            Class::Leaf | Class::Control => Batching::Rule,
            _ => Batching::Leading,
        })
    }

    /// The kind of op that graph inspection reports.
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
    /// The Python name, `girih.NAME` or `Tensor.NAME`; as error, why there is none.
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

/// An op with its attributes: what a node applies to its operands. The attributes take 16 bytes:
/// small ones are inline, large ones are shared.
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

    /// True for ops whose values are arguments of the program: inputs, parameters, run-time scalars
    /// and the keys of random leaves.
    pub fn takes_argument(&self) -> bool {
        match self.code {
            OpCode::Constant => self.attrs == Attrs::None,
            OpCode::Input if self.as_outside().is_some() => false,
            code => code.def().class == Class::Leaf && code != OpCode::Iota,
        }
    }

    /// A leaf that stands for a tensor outside the graph, identified by a number of the front end.
    /// A rule's recording creates it, possibly inside regions. The front end turns it into an
    /// operand before any other code reads the graph.
    pub fn outside(key: u64) -> Op {
        Op::new(OpCode::Input, Attrs::Value(key))
    }

    /// The front end's number of a tensor outside the graph, if the op is such a leaf.
    pub fn as_outside(&self) -> Option<u64> {
        match (self.code, &self.attrs) {
            (OpCode::Input, &Attrs::Value(key)) => Some(key),
            _ => None,
        }
    }

    /// Index of the result that the node stands for; 0 for ops with one result.
    pub fn output_index(&self) -> usize {
        match self.attrs {
            Attrs::Library { result, .. } | Attrs::Host { result, .. } => result as usize,
            Attrs::Part { result, .. } => result as usize,
            Attrs::Control { result, .. } => result as usize,
            _ => 0,
        }
    }

    /// The same op with another result index.
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

    /// True for the random leaves, which CSE never merges and constant folding never evaluates.
    pub fn is_random(&self) -> bool {
        matches!(self.code, OpCode::RandomUniform | OpCode::RandomNormal | OpCode::RandomBits)
    }

    /// Checks operands and attributes, and returns the result's spec.
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
        // Broadcasting, matrix products and casts can give a result of more bytes than the operands
        // have. After this check no element or byte count overflows.
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

/// Returns the operands' common dtype; an error if they differ.
pub(crate) fn same_dtype(call: OpCall<'_>) -> Result<DType> {
    let first = call.inputs[0].dtype;
    match call.inputs.iter().find(|s| s.dtype != first) {
        None => Ok(first),
        Some(s) => Err(Error::DTypeMismatch { op: call.name(), lhs: first, rhs: s.dtype }),
    }
}

/// Fails unless `ok`; the message says which dtypes the op takes.
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

    /// All other tests that walk the registry depend on the samples.
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
