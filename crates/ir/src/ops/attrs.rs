//! Attributes of ops. Small attributes are inline in 16 bytes; large attributes are shared.

use super::collective::NamedAxis;
use super::control::Control;
use super::conv::Conv;
use super::host::HostCall;
use super::pool::Pool;
use super::window::WindowDim;
use crate::dim::{Sizes, Symbol};
use crate::{DType, Dim, Graph, Literal, Result, Shape, Sharding, TensorSpec};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;

/// A set of axes as a bit mask.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct AxisSet(pub u32);

impl AxisSet {
    /// All axes of a tensor of rank `rank`.
    pub fn all(rank: usize) -> Self {
        AxisSet(((1u64 << rank) - 1) as u32)
    }

    /// A single axis.
    pub fn one(axis: usize) -> Self {
        AxisSet(1 << axis)
    }

    /// True if the set holds the axis.
    pub fn contains(self, axis: usize) -> bool {
        axis < 32 && self.0 >> axis & 1 == 1
    }

    /// Adds an axis.
    pub fn insert(&mut self, axis: usize) {
        self.0 |= 1 << axis;
    }

    /// Number of axes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// True if no axis is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes, ascending.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..32).filter(move |&i| self.contains(i))
    }

    /// One past the largest axis.
    pub fn bound(self) -> usize {
        32 - self.0.leading_zeros() as usize
    }
}

impl FromIterator<usize> for AxisSet {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Self {
        let mut set = AxisSet::default();
        iter.into_iter().for_each(|a| set.insert(a));
        set
    }
}

impl fmt::Debug for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A float attribute. Equality and hash use its bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Real(u64);

impl From<f64> for Real {
    fn from(v: f64) -> Real {
        Real(v.to_bits())
    }
}

impl Real {
    /// The value.
    pub fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.get())
    }
}

/// The elements that a slice takes along one axis: `size` elements from `start` with stride `step`
/// (`step >= 1`; a negative step is recorded as a flip of a slice).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct SliceDim {
    /// First index.
    pub start: usize,
    /// Number of elements.
    pub size: usize,
    /// Distance between elements, in elements.
    pub step: usize,
}

/// The padding that a pad adds along one axis: elements before, after, and between neighbours.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize,
)]
pub struct PadDim {
    /// Elements before the first.
    pub low: usize,
    /// Elements after the last.
    pub high: usize,
    /// Elements between two neighbours.
    pub interior: usize,
}

/// A number computed from a symbolic size: `max(size - correction, 0)`, or `numerator` divided by
/// this number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OfSize {
    /// The size.
    pub size: Dim,
    /// Subtracted from the size.
    pub correction: Real,
    /// Divided by the difference. For `None` the value is the difference.
    pub numerator: Option<Real>,
}

impl OfSize {
    /// The number for a concrete size.
    pub fn value(&self, size: usize) -> f64 {
        let difference = (size as f64 - self.correction.get()).max(0.0);
        self.numerator.map_or(difference, |numerator| numerator.get() / difference)
    }
}

/// How a scatter combines an update with the element at its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[repr(u8)]
pub enum ScatterMode {
    /// Replaces the element. Of several updates of one element, the last in row-major order wins.
    Set,
    /// Adds the update.
    Add,
    /// Multiplies by the update.
    Mul,
    /// Takes the minimum, NaN if either is NaN.
    Min,
    /// Takes the maximum, NaN if either is NaN.
    Max,
}

impl ScatterMode {
    /// Every mode.
    pub const ALL: [ScatterMode; 5] =
        [ScatterMode::Set, ScatterMode::Add, ScatterMode::Mul, ScatterMode::Min, ScatterMode::Max];

    /// Name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            ScatterMode::Set => "set",
            ScatterMode::Add => "add",
            ScatterMode::Mul => "mul",
            ScatterMode::Min => "min",
            ScatterMode::Max => "max",
        }
    }

    /// The op that combines the element and the update; `None` for `Set`.
    pub fn op(self) -> Option<super::OpCode> {
        match self {
            ScatterMode::Set => None,
            ScatterMode::Add => Some(super::OpCode::Add),
            ScatterMode::Mul => Some(super::OpCode::Mul),
            ScatterMode::Min => Some(super::OpCode::Minimum),
            ScatterMode::Max => Some(super::OpCode::Maximum),
        }
    }
}

/// Attributes of an op.
#[derive(Clone, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub enum Attrs {
    /// No attributes. A constant without attributes is a run-time scalar.
    #[default]
    None,
    /// One axis, counted from the front.
    Axis(u8),
    /// The axes of a reduction.
    Axes {
        /// The axes.
        axes: AxisSet,
        /// Whether the result keeps the axes with size 1.
        keepdims: bool,
    },
    /// The axes of a variance, and the correction of its divisor.
    Moments {
        /// The axes.
        axes: AxisSet,
        /// Whether the result keeps the axes with size 1.
        keepdims: bool,
        /// Subtracted from the element count in the divisor (1: Bessel's).
        correction: Real,
    },
    /// The dtype of a cast.
    DType(DType),
    /// A constant's value: bits of a [`crate::Literal`] of the node's dtype.
    Value(u64),
    /// Target shape.
    Shape(Arc<Shape>),
    /// `perm[i]` is the operand's axis that becomes result axis `i`.
    Perm(Arc<SmallVec<[u8; 8]>>),
    /// Per-axis slices.
    Slice(Arc<Vec<SliceDim>>),
    /// Per-axis slices whose result has symbolic sizes: the bounds at the traced sizes, and the
    /// result's shape. Binding the symbols gives a `Slice`.
    #[serde(skip)]
    SliceOf(Arc<(Vec<SliceDim>, Shape)>),
    /// A constant whose value depends on a symbolic size. Binding the symbols gives a `Value`.
    #[serde(skip)]
    OfSize(Arc<OfSize>),
    /// Per-axis padding and the bits of the padding value.
    Pad(Arc<(Vec<PadDim>, u64)>),
    /// A scatter's axis and that axis' size in the result.
    Scatter {
        /// Indexed axis.
        axis: u8,
        /// Size of the indexed axis in the result.
        size: u32,
    },
    /// A scatter into an operand: its axis, and how it combines updates with the operand's
    /// elements.
    ScatterInto {
        /// Indexed axis.
        axis: u8,
        /// How an update is combined with the element at its index.
        mode: ScatterMode,
    },
    /// A number of elements.
    Size(usize),
    /// A library routine: the index of the result that the node is, and the op's settings.
    Library {
        /// Index of the result that the node is.
        result: u8,
        /// The op's boolean setting: descending, right-sided, reverse, upper, ...
        flag: bool,
        /// The op's number, if it has one.
        size: u32,
    },
    /// The source and target device of a transfer, by the process's numbering.
    Devices {
        /// The device of the operand.
        from: u8,
        /// The device of the result.
        to: u8,
    },
    /// A sharding that a value gets.
    #[serde(skip)]
    Sharding(Arc<Sharding>),
    /// The batch axis of a collective.
    NamedAxis(Arc<NamedAxis>),
    /// Whether gelu uses the tanh approximation.
    Approximate(bool),
    /// A normalisation over the last `ndims` axes.
    Norm {
        /// Number of normalised axes.
        ndims: u8,
        /// Added to the variance.
        eps: Real,
    },
    /// A normalisation over some axes.
    Standardize {
        /// The axes.
        axes: AxisSet,
        /// Added to the variance.
        eps: Real,
    },
    /// Windows over the last axes.
    Windows(Arc<Vec<WindowDim>>),
    /// A convolution.
    Conv(Arc<Conv>),
    /// A pooling.
    Pool(Arc<Pool>),
    /// Dot-product attention.
    Attention {
        /// True if a query attends to no later key.
        causal: bool,
        /// Factor of the dot products of queries and keys.
        scale: Real,
    },
    /// A call of a custom op.
    Host {
        /// Index of the result that the node is.
        result: u8,
        /// The call.
        call: Arc<HostCall>,
    },
    /// One part of an axis that a split divides.
    Part {
        /// Index of the part that the node is.
        result: u32,
        /// The axis.
        axis: u8,
        /// Indices at which the axis is split, ascending.
        at: Arc<Vec<usize>>,
    },
    /// A branch or a loop.
    Control {
        /// Index of the result that the node is.
        result: u32,
        /// The regions and their operands.
        control: Arc<Control>,
    },
}

impl Attrs {
    /// Attributes of a reduction over `axes`.
    pub fn axes(axes: AxisSet, keepdims: bool) -> Attrs {
        Attrs::Axes { axes, keepdims }
    }

    /// Attributes of a library routine's first result.
    pub fn routine(flag: bool) -> Attrs {
        Attrs::Library { result: 0, flag, size: 0 }
    }

    /// Result index, flag and size of a library op; zeros for other attributes.
    pub fn library(&self) -> (u8, bool, u32) {
        match *self {
            Attrs::Library { result, flag, size } => (result, flag, size),
            Attrs::Host { result, .. } => (result, false, 0),
            _ => (0, false, 0),
        }
    }

    /// A permutation.
    pub fn perm(perm: impl IntoIterator<Item = usize>) -> Attrs {
        Attrs::Perm(Arc::new(perm.into_iter().map(|a| a as u8).collect()))
    }

    /// Slices; `SliceOf` if the result's shape is symbolic.
    pub fn slice(dims: Vec<SliceDim>, result: &Shape) -> Attrs {
        match result.is_symbolic() {
            false => Attrs::Slice(Arc::new(dims)),
            true => Attrs::SliceOf(Arc::new((dims, result.clone()))),
        }
    }

    /// Replaces symbols by sizes. `spec` is the node's spec, already bound.
    ///
    /// Errors: as [`Shape::bind`].
    pub fn bind(&self, op: &'static str, spec: &TensorSpec, sizes: &Sizes) -> Result<Attrs> {
        Ok(match self {
            Attrs::Shape(_) => Attrs::shape(spec.shape.clone()),
            Attrs::SliceOf(of) => {
                let result = of.1.bind(op, spec.dtype, sizes)?;
                let bound = of.0.iter().zip(result.iter());
                let dims = bound.map(|(d, &size)| SliceDim { size, ..*d }).collect();
                Attrs::Slice(Arc::new(dims))
            }
            Attrs::OfSize(of) => {
                let size = Shape::of_dims([of.size]).bind(op, spec.dtype, sizes)?[0];
                Attrs::Value(Literal::from_f64(spec.dtype, of.value(size)).bits)
            }
            Attrs::Control { result, control } if self.has_symbolic_regions() => {
                let regions = control.regions.iter().map(|region| region.bind(sizes));
                let length = Shape::of_dims([control.length]).bind(op, DType::Bool, sizes)?.dim(0);
                let control = control.with_regions(regions.collect::<Result<_>>()?);
                let later = control.later.as_ref().map(|later| later.bind(sizes)).transpose()?;
                let control = Control { length, later, ..control };
                Attrs::Control { result: *result, control: Arc::new(control) }
            }
            Attrs::NamedAxis(axis) => {
                let size = Shape::of_dims([axis.size]).bind(op, spec.dtype, sizes)?.dim(0);
                Attrs::NamedAxis(Arc::new(NamedAxis { size, name: axis.name.clone() }))
            }
            Attrs::Host { result, call } => {
                Attrs::Host { result: *result, call: Arc::new(call.bind(sizes)?) }
            }
            other => other.clone(),
        })
    }

    /// Adds the symbols in the attributes, regions included, to `found`, each once.
    pub(crate) fn symbols(&self, found: &mut Vec<&'static Symbol>) {
        match self {
            Attrs::Shape(shape) => shape.dims().for_each(|dim| dim.symbols(found)),
            Attrs::SliceOf(of) => of.1.dims().for_each(|dim| dim.symbols(found)),
            Attrs::OfSize(of) => of.size.symbols(found),
            Attrs::NamedAxis(axis) => axis.size.symbols(found),
            Attrs::Host { call, .. } => {
                let dims = call.results().iter().flat_map(|spec| spec.shape.dims());
                dims.for_each(|dim| dim.symbols(found));
            }
            Attrs::Control { control, .. } => {
                control.length.symbols(found);
                for symbol in control.regions.iter().flat_map(Graph::symbols) {
                    if !found.iter().any(|known| std::ptr::eq(*known, symbol)) {
                        found.push(symbol);
                    }
                }
            }
            _ => {}
        }
    }

    /// True if a size in a region, or the number of iterations, is symbolic.
    pub(crate) fn has_symbolic_regions(&self) -> bool {
        match self {
            Attrs::Control { control, .. } => {
                control.length.known().is_none() || control.regions.iter().any(Graph::is_symbolic)
            }
            _ => false,
        }
    }

    /// The attributes of the same op on operands with one more leading axis of size `size`. Axes
    /// move by one; shapes and bounds get the new axis.
    pub fn with_leading_axis(&self, size: Dim) -> Attrs {
        let moved = |axes: AxisSet| AxisSet(axes.0 << 1);
        let extended = |shape: &Shape| Shape::of_dims(std::iter::once(size).chain(shape.dims()));
        match self.clone() {
            Attrs::Axis(axis) => Attrs::Axis(axis + 1),
            Attrs::Axes { axes, keepdims } => Attrs::axes(moved(axes), keepdims),
            Attrs::Moments { axes, keepdims, correction } => {
                Attrs::Moments { axes: moved(axes), keepdims, correction }
            }
            Attrs::Standardize { axes, eps } => Attrs::Standardize { axes: moved(axes), eps },
            Attrs::Scatter { axis, size } => Attrs::Scatter { axis: axis + 1, size },
            Attrs::Part { result, axis, at } => Attrs::Part { result, axis: axis + 1, at },
            Attrs::ScatterInto { axis, mode } => Attrs::ScatterInto { axis: axis + 1, mode },
            Attrs::Shape(shape) => Attrs::shape(extended(&shape)),
            Attrs::Perm(perm) => {
                Attrs::perm(std::iter::once(0).chain(perm.iter().map(|&a| a as usize + 1)))
            }
            Attrs::Slice(dims) => {
                let taken: Shape = dims.iter().map(|d| d.size).collect();
                Attrs::slice(whole_then(size, &dims), &extended(&taken))
            }
            Attrs::SliceOf(of) => Attrs::slice(whole_then(size, &of.0), &extended(&of.1)),
            Attrs::Pad(pad) => {
                let dims = std::iter::once(PadDim::default()).chain(pad.0.iter().copied());
                Attrs::Pad(Arc::new((dims.collect(), pad.1)))
            }
            Attrs::Sharding(sharding) => {
                Attrs::Sharding(Arc::new(sharding.with_leading_dimension()))
            }
            // Rows, windows and features count axes from the end; the other attributes name no
            // axis.
            other @ (Attrs::None
            | Attrs::DType(_)
            | Attrs::Value(_)
            | Attrs::OfSize(_)
            | Attrs::Size(_)
            | Attrs::Library { .. }
            | Attrs::Devices { .. }
            | Attrs::NamedAxis(_)
            | Attrs::Approximate(_)
            | Attrs::Norm { .. }
            | Attrs::Windows(_)
            | Attrs::Conv(_)
            | Attrs::Pool(_)
            | Attrs::Attention { .. }
            | Attrs::Host { .. }
            | Attrs::Control { .. }) => other,
        }
    }

    /// A target shape.
    pub fn shape(shape: impl Into<Shape>) -> Attrs {
        Attrs::Shape(Arc::new(shape.into()))
    }
}

/// The whole new axis, followed by `dims`.
fn whole_then(size: Dim, dims: &[SliceDim]) -> Vec<SliceDim> {
    let whole = SliceDim { start: 0, size: size.hint(), step: 1 };
    std::iter::once(whole).chain(dims.iter().copied()).collect()
}

impl fmt::Debug for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({})", self.text(Default::default()))
    }
}
