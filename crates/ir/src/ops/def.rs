//! The definition of an op ([`OpDef`]) and the types of its facts. An op's own facts are in the
//! file of its family.

use super::*;

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
    /// One sentence that says what the op computes.
    pub doc: &'static str,
    /// Kind of index relation.
    pub class: Class,
    /// Minimum and maximum number of operands.
    pub arity: (usize, usize),
    /// The work for one element. Fusion uses it to decide which ops to recompute.
    pub cost: Cost,
    /// The work for one element on complex operands; `None` if its class is the same.
    pub complex_cost: Option<Cost>,
    /// True if exchanging the two operands changes no bit of the result.
    pub commutative: bool,
    /// True if IEEE 754 or integer arithmetic determines every bit of the result, so that constant
    /// folding gives the same bits as the device. False for library functions such as `exp`, whose
    /// last bit differs between implementations.
    pub exact: bool,
    /// True if the result on values of a half dtype is a value of that dtype, so that an op that is
    /// computed in f32 needs no rounding.
    pub exact_on_halves: bool,
    /// True if the op may fail at run time, depending on its operands: on an index out of bounds, or
    /// a singular matrix. Passes never run such an op where the program would not have run it.
    /// [`Op::can_fail`] covers regions.
    pub can_fail: bool,
    /// Shape and dtype rule, with all checks on operands and attributes.
    pub infer: fn(OpCall<'_>) -> Result<TensorSpec>,
    /// Iteration space and index maps; `None` where the relation is not affine.
    pub iteration: Option<fn(OpCall<'_>, &TensorSpec) -> Iteration>,
    /// For a library routine, how many last axes of operands and results are one item.
    pub item_rank: ItemRank,
    /// How the axes of operands and results correspond, by factors. By default the class decides.
    pub factors: Factoring,
    /// For an op that moves elements along an axis, its parts: see [`PartRule`].
    pub part: Option<PartRule>,
    /// For an op that reads the first operand at indices along an axis, its contribution on a part of
    /// the axis: see [`masked::MaskRule`].
    pub masked: Option<masked::MaskRule>,
    /// The operands in which the op is linear. By default the class decides.
    pub linear: Linearity,
    /// Reverse-mode rule; the forward-mode rule is its transpose.
    pub derivative: Derivative,
    /// How `vmap` batches the op. By default the class decides.
    pub batching: Option<Batching>,
    /// Whether the op with these attributes adds or multiplies any number of values into one
    /// element, as scatters do. Half floats are then accumulated in f32 and rounded once: see
    /// [`Node::accumulates_halves`](crate::Node::accumulates_halves). Reductions, contractions and
    /// cumulative ops need no such flag, since their executors accumulate in f32.
    pub accumulates: fn(&Attrs) -> bool,
    /// Definition of a composite in terms of other ops.
    pub decompose: Option<fn(&mut Decomposition<'_>) -> Result<NodeId>>,
    /// A definition by reductions whose partial results are combined, for an axis that is cut over
    /// processors.
    pub by_reductions: Option<fn(&mut Decomposition<'_>) -> Result<NodeId>>,
    /// True for a composite that gives its name to a kernel that computes its decomposition.
    pub names_kernels: bool,
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
pub(super) const fn full(def: OpDef) -> OpDef {
    OpDef { precision: Precision::Full, ..def }
}

/// How Python users call an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Python {
    /// By a function with the op's name, or with the name in the op's row of the elementwise table.
    Same,
    /// By `girih.NAME`, or `Tensor.NAME` if there is only a method.
    Named(&'static str),
    /// Python users cannot call the op, for this reason.
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
        cost: Cost::Free,
        complex_cost: None,
        commutative: false,
        exact: false,
        exact_on_halves: false,
        can_fail: false,
        infer: |call| {
            Err(Error::InvalidArgument { op: call.name(), reason: "has no shape rule".into() })
        },
        iteration: None,
        item_rank: ItemRank::Row,
        factors: Factoring::ByClass,
        part: None,
        masked: None,
        linear: Linearity::ByClass,
        derivative: Derivative::Zero("it is a leaf"),
        batching: None,
        accumulates: |_| false,
        decompose: None,
        by_reductions: None,
        names_kernels: false,
        domain: (-2.0, 2.1),
        samples: samples::elementwise,
        python: Python::Same,
        category: None,
        precision: Precision::Operands,
    };

    /// The work for one element on operands of a dtype.
    pub fn cost_on(&self, dtype: DType) -> Cost {
        self.complex_cost.filter(|_| dtype.is_complex()).unwrap_or(self.cost)
    }

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
