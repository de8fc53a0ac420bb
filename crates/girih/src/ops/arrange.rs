//! Rearrangements of elements: rolling, repetition, diagonals, stacking. All are composed of views,
//! pads and gathers, so that they are lazy and have gradients of any order.

use super::Operand;
use super::index::{Index, integers};
use super::shape::{concat, split_at, stack};
use crate::{Error, Result, Side, Tensor};
use girih_ir::ops::SliceDim;
use girih_ir::shape::normalize_axis;
use girih_ir::{DType, Dim, Literal, Shape};

/// The approximate size in bytes of a handle with its node.
pub(super) const HANDLE_BYTES: usize = 256;

fn invalid(reason: String) -> Error {
    Error::InvalidArgument(reason)
}

fn bad_shape(op: &'static str, shape: Shape, reason: &str) -> Error {
    girih_ir::Error::InvalidShape { op, shape, reason: reason.into() }.into()
}

/// The values of a border, with the names of NumPy's `pad`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PadMode {
    /// Repeats the outermost element.
    Edge,
    /// Mirrors at the outermost element, which is not repeated.
    Reflect,
    /// Mirrors at the border, so that the outermost element is repeated.
    Symmetric,
    /// Continues from the opposite end.
    Wrap,
}

impl Tensor {
    /// Shifts elements cyclically along axes; without axes, in row-major order.
    ///
    /// Errors: [`Error::InvalidArgument`] unless there is one shift per axis, or one for all axes.
    #[track_caller]
    pub fn roll(&self, shifts: &[i64], axes: Option<&[i64]>) -> Result<Tensor> {
        let Some(axes) = axes else {
            let total = shifts.iter().fold(0i64, |sum, s| sum.wrapping_add(*s));
            return self.reshape(-1)?.roll(&[total], Some(&[0]))?.reshape(self.shape());
        };
        if shifts.len() != axes.len() && shifts.len() != 1 {
            let (given, wanted) = (shifts.len(), axes.len());
            return Err(invalid(format!("roll: {given} shifts do not fit {wanted} axes")));
        }
        let mut out = self.clone();
        for (i, &axis) in axes.iter().enumerate() {
            let at = normalize_axis("roll", axis, self.rank())?;
            let (size, shift) =
                (self.shape().dim(at), shifts[if shifts.len() == 1 { 0 } else { i }]);
            if size.known().is_none() && size.at_least(shift.unsigned_abs() as usize) {
                out = out.turned(at, shift)?;
                continue;
            }
            let size = size.get();
            let shift = shift.rem_euclid(size.max(1) as i64);
            if shift != 0 {
                let cut = size - shift as usize;
                let (head, tail) = (out.narrow(axis, 0, cut)?, out.narrow(axis, cut, size - cut)?);
                out = concat(&[&tail, &head], axis)?;
            }
        }
        Ok(out)
    }

    /// As [`Tensor::roll`] along one axis, by a shift that may be symbolic. If the shift or the axis is symbolic, the elements are gathered, so that one program
    /// serves all sizes.
    ///
    /// Errors: an axis error.
    #[track_caller]
    pub fn roll_by(&self, shift: impl Into<Dim>, axis: i64) -> Result<Tensor> {
        self.rolled(shift.into(), false, axis)
    }

    /// As [`Tensor::roll_by`]; with `back` towards the front.
    #[track_caller]
    pub(super) fn rolled(&self, shift: Dim, back: bool, axis: i64) -> Result<Tensor> {
        let at = normalize_axis("roll", axis, self.rank())?;
        let size = self.shape().dim(at);
        if let (Some(places), Some(_)) = (shift.known(), size.known()) {
            let places = if back { -(places as i64) } else { places as i64 };
            return self.roll(&[places], Some(&[axis]));
        }
        let places = Tensor::iota(Shape::of_dims([size]), 0, DType::I64)?;
        let from = match back {
            true => places.add(Operand::Size(shift))?,
            false => places.sub(Operand::Size(shift))?,
        };
        self.take(&from.remainder(Operand::Size(size))?, axis)
    }

    /// Moves the last `shift` elements along an axis in front of the others; for a negative shift,
    /// moves the first elements behind the others. The axis must have that many elements.
    #[track_caller]
    fn turned(&self, axis: usize, shift: i64) -> Result<Tensor> {
        if shift == 0 {
            return Ok(self.clone());
        }
        let part = |start, stop| {
            let mut entries = vec![Index::ALL; axis];
            entries.push(Index::Slice { start, stop, step: 1 });
            self.index(&entries)
        };
        concat(&[&part(Some(-shift), None)?, &part(None, Some(-shift))?], axis as i64)
    }

    /// Repeats the tensor `repeats[i]` times along axis `i`. If the tensor or `repeats` has fewer
    /// axes, leading axes of size one are added.
    #[track_caller]
    pub fn tile<D: Into<Dim> + Copy>(&self, repeats: &[D]) -> Result<Tensor> {
        let rank = self.rank().max(repeats.len());
        let front = |len: usize| std::iter::repeat_n(Dim::from(1), rank - len);
        let own = self.shape();
        let sizes: Vec<Dim> = front(own.rank()).chain(own.dims()).collect();
        let given = repeats.iter().map(|&count| count.into());
        let counts: Vec<Dim> = front(repeats.len()).chain(given).collect();
        let pairs = || sizes.iter().zip(&counts);
        let result: Shape = pairs().map(|(&s, &c)| s * c).collect();
        result.check("tile", self.dtype())?;
        let unmerged =
            self.reshape(pairs().flat_map(|(&s, _)| [1.into(), s]).collect::<Shape>())?;
        let stretched: Shape = pairs().flat_map(|(&s, &c)| [c, s]).collect();
        unmerged.broadcast_to(stretched)?.reshape(result)
    }

    /// Repeats each element `count` times in adjacent places along an axis, or in row-major order
    /// without an axis.
    #[track_caller]
    pub fn repeat(&self, count: impl Into<Dim>, axis: Option<i64>) -> Result<Tensor> {
        let count = count.into();
        let Some(axis) = axis else { return self.reshape(-1)?.repeat(count, Some(0)) };
        let shape = self.shape();
        let axis = normalize_axis("repeat", axis, shape.rank())?;
        let result = shape.with_dim(axis, shape.dim(axis) * count);
        result.check("repeat", self.dtype())?;
        let (before, after) = (shape.dims().take(axis + 1), shape.dims().skip(axis + 1));
        let sizes: Shape = before.chain([count]).chain(after).collect();
        self.unsqueeze(axis as i64 + 1)?.broadcast_to(sizes)?.reshape(result)
    }

    /// Repeats each slice along an axis by its count, an integer in a tensor of one axis. Evaluates
    /// the counts, since the result's shape depends on them.
    ///
    /// Errors: [`Error::InvalidArgument`] for negative counts; a shape error unless there is one
    /// count per slice; a dtype error for counts that are not integers.
    #[track_caller]
    pub fn repeat_each(&self, counts: &Tensor, axis: Option<i64>) -> Result<Tensor> {
        let Some(axis) = axis else { return self.reshape(-1)?.repeat_each(counts, Some(0)) };
        let shape = self.shape();
        let at = normalize_axis("repeat", axis, shape.rank())?;
        if !counts.dtype().is_int() {
            let (op, dtype, expected) = ("repeat", counts.dtype(), "integers to repeat by");
            return Err(girih_ir::Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        let values = integers("repeat", counts)?;
        if let Some(negative) = values.iter().find(|&&v| v < 0) {
            return Err(invalid(format!("repeat: counts must not be negative, got {negative}")));
        }
        if values.len() == 1 {
            return self.repeat(values[0] as usize, Some(axis));
        }
        if counts.rank() != 1 || values.len() != shape[at] {
            let (op, lhs, rhs) = ("repeat", shape, counts.shape());
            let reason = format!("one count for each slice of axis {at} is expected");
            return Err(girih_ir::Error::ShapeMismatch { op, lhs, rhs, reason }.into());
        }
        let total = values.iter().fold(0usize, |sum, &n| sum.saturating_add(n as usize));
        shape.with_dim(at, total).check("repeat", self.dtype())?;
        // The slice at each place of the result is the number of slices that end at or before the
        // place.
        let ends = counts.astype(DType::I64)?.cumsum(0)?;
        let places = Tensor::iota([total], 0, DType::I64)?;
        self.take(&super::sort::searchsorted(&ends, &places, Side::Right, None)?, axis)
    }

    #[track_caller]
    fn reshaped(&self, shape: &Shape) -> Result<Tensor> {
        let sizes: Vec<i64> = shape.iter().map(|&s| s as i64).collect();
        self.reshape(&sizes)
    }

    /// Moves axes `from` to the positions `to`; the others keep their order.
    ///
    /// Errors: [`Error::InvalidArgument`] unless both have the same length; an axis error for an
    /// axis out of range or duplicate axes.
    #[track_caller]
    pub fn moveaxis(&self, from: &[i64], to: &[i64]) -> Result<Tensor> {
        let rank = self.rank();
        if from.len() != to.len() {
            let (a, b) = (from.len(), to.len());
            return Err(invalid(format!("moveaxis: {a} axes do not fit {b} places")));
        }
        let axes = |list: &[i64]| -> Result<Vec<usize>> {
            girih_ir::ops::reduce::axis_set("moveaxis", Some(list), rank)?;
            Ok(list.iter().map(|&a| a.rem_euclid(rank.max(1) as i64) as usize).collect())
        };
        let (from, to) = (axes(from)?, axes(to)?);
        let mut others = (0..rank).filter(|axis| !from.contains(axis));
        let place = |i: usize| match to.iter().position(|&t| t == i) {
            Some(k) => from[k] as i64,
            None => others.next().expect("as many axes as places") as i64,
        };
        self.permute((0..rank).map(place).collect::<Vec<_>>())
    }

    /// Rotates by `turns` right angles in the plane of two axes, from the first towards the second.
    #[track_caller]
    pub fn rot90(&self, turns: i64, axes: (i64, i64)) -> Result<Tensor> {
        let (a, b) = axes;
        girih_ir::ops::reduce::axis_set("rot90", Some(&[a, b]), self.rank())?;
        match turns.rem_euclid(4) {
            0 => Ok(self.clone()),
            1 => self.flip(b)?.swapaxes(a, b),
            2 => self.flip([a, b]),
            _ => self.swapaxes(a, b)?.flip(b),
        }
    }

    #[track_caller]
    fn triangle(&self, op: &'static str, k: i64, lower: bool) -> Result<Tensor> {
        let shape = self.shape();
        if shape.rank() < 2 {
            return Err(bad_shape(op, shape, "a matrix, or a stack of them, is expected"));
        }
        let plane = shape.part(shape.rank() - 2..);
        let rows = Tensor::iota(plane.clone(), 0, DType::I64)?.add(k)?;
        let columns = Tensor::iota(plane, 1, DType::I64)?;
        let kept = if lower { columns.le(&rows)? } else { columns.ge(&rows)? };
        let zero = Tensor::constant(Literal::from_i64(self.dtype(), 0), Shape::scalar());
        super::where_(&kept, self, &zero)
    }

    /// The elements of matrices on and below the `k`-th diagonal, zero above it.
    #[track_caller]
    pub fn tril(&self, k: i64) -> Result<Tensor> {
        self.triangle("tril", k, true)
    }

    /// The elements of matrices on and above the `k`-th diagonal, zero below it.
    #[track_caller]
    pub fn triu(&self, k: i64) -> Result<Tensor> {
        self.triangle("triu", k, false)
    }

    /// Ones on and below the `k`-th diagonal of an `n` by `m` matrix, zeros above it.
    #[track_caller]
    pub fn tri(n: impl Into<Dim>, m: impl Into<Dim>, k: i64, dtype: DType) -> Result<Tensor> {
        Tensor::ones(Shape::of_dims([n.into(), m.into()]), dtype)?.tril(k)
    }

    /// The elements on the `offset`-th diagonal of two axes, as the last axis of a view.
    ///
    /// Errors: an axis error unless the axes are different.
    #[track_caller]
    pub fn diagonal(&self, offset: i64, axis1: i64, axis2: i64) -> Result<Tensor> {
        let x = self.moveaxis(&[axis1, axis2], &[-2, -1])?;
        let shape = x.shape();
        let (outer, plane) = shape.split_at(shape.rank() - 2);
        let (rows, columns) = (plane[0], plane[1]);
        let (row, column) = (offset.min(0).unsigned_abs() as usize, offset.max(0) as usize);
        let size = rows.saturating_sub(row).min(columns.saturating_sub(column));
        let whole = outer.iter().map(|&size| SliceDim { start: 0, size, step: 1 });
        let (start, step) = if size == 0 { (0, 1) } else { (row * columns + column, columns + 1) };
        let flat = x.reshaped(&outer.iter().copied().chain([rows * columns]).collect())?;
        flat.slice_dims(whole.chain([SliceDim { start, size, step }]).collect())
    }

    /// A matrix with the tensor (one axis) on its `k`-th diagonal; for a matrix, its `k`-th
    /// diagonal.
    ///
    /// Errors: a shape error for other ranks.
    #[track_caller]
    pub fn diag(&self, k: i64) -> Result<Tensor> {
        let shape = self.shape();
        match shape.rank() {
            1 => {}
            2 => return self.diagonal(k, 0, 1),
            _ => return Err(bad_shape("diag", shape, "one or two axes are expected")),
        }
        let (count, away) = (shape[0], k.unsigned_abs() as usize);
        let n = count.saturating_add(away);
        let square = Shape::from([n, n]);
        square.check("diag", self.dtype())?;
        let low = if k < 0 { away * n } else { away };
        let high = match count {
            0 => (n * n).saturating_sub(low),
            _ => n * n - low - (count - 1) * (n + 1) - 1,
        };
        let widths = girih_ir::ops::PadDim { low, high, interior: n };
        self.padded(vec![widths], Literal::from_i64(self.dtype(), 0))?.reshaped(&square)
    }

    /// The sum along a diagonal; integers are summed as i64.
    #[track_caller]
    pub fn trace(&self, offset: i64, axis1: i64, axis2: i64) -> Result<Tensor> {
        self.diagonal(offset, axis1, axis2)?.sum(-1)
    }

    /// Differences of neighbours along an axis, applied `n` times; for bool, whether neighbours
    /// differ. `prepend` and `append` are first concatenated to the axis.
    #[track_caller]
    pub fn diff(
        &self,
        n: usize,
        axis: i64,
        prepend: Option<&Tensor>,
        append: Option<&Tensor>,
    ) -> Result<Tensor> {
        let at = normalize_axis("diff", axis, self.rank())?;
        let mut parts = Vec::new();
        let one = self.shape().with_dim(at, 1);
        let border =
            |t: &Tensor| if t.rank() == 0 { t.broadcast_to(one.clone()) } else { Ok(t.clone()) };
        let (before, after) = (prepend.map(border).transpose()?, append.map(border).transpose()?);
        parts.extend(before.as_ref());
        parts.push(self);
        parts.extend(after.as_ref());
        let mut x = if parts.len() > 1 { concat(&parts, axis)? } else { self.clone() };
        // Without elements there are no differences, however often they are taken.
        let mut times = n;
        if !x.shape().dim(at).at_least(n + 1) {
            x = x.narrow(axis, 0, 0)?;
            times = n.min(1);
        }
        let part = |x: &Tensor, start, stop| {
            let mut entries = vec![Index::ALL; at];
            entries.push(Index::Slice { start, stop, step: 1 });
            x.index(&entries)
        };
        for _ in 0..times {
            let (low, high) = (part(&x, None, Some(-1))?, part(&x, Some(1), None)?);
            x = if x.dtype() == DType::Bool { high.ne(&low)? } else { high.sub(&low)? };
        }
        Ok(x)
    }

    /// Inserts axes of size one at these positions of the result.
    ///
    /// Errors: an axis error for a position out of range, or duplicate positions.
    #[track_caller]
    pub fn expand_dims(&self, axes: &[i64]) -> Result<Tensor> {
        let rank = self.rank() + axes.len();
        girih_ir::ops::reduce::axis_set("expand_dims", Some(axes), rank)?;
        let mut places: Vec<i64> = axes.iter().map(|&a| a.rem_euclid(rank as i64)).collect();
        places.sort_unstable();
        places.iter().try_fold(self.clone(), |x, &at| x.unsqueeze(at))
    }

    /// Adds axes up to rank `rank` (at most three), as NumPy's `atleast_1d` to `atleast_3d` do.
    #[track_caller]
    pub fn at_least(&self, rank: usize) -> Result<Tensor> {
        match (self.rank(), rank) {
            (0, 1) => self.reshape([1]),
            (0, 2) => self.reshape([1, 1]),
            (0, 3) => self.reshape([1, 1, 1]),
            (1, 2) => self.unsqueeze(0),
            (1, 3) => self.unsqueeze(0)?.unsqueeze(-1),
            (2, 3) => self.unsqueeze(-1),
            _ => Ok(self.clone()),
        }
    }

    /// Pads with a border computed from the inner elements: `widths[i]` before and after along axis
    /// `i`.
    ///
    /// Errors: a shape error unless there is one pair per axis, or if a padded axis is empty.
    #[track_caller]
    pub fn pad_with(&self, widths: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
        let shape = self.shape();
        if widths.len() != shape.rank() {
            let reason = format!("{} pairs of widths for {} axes", widths.len(), shape.rank());
            return Err(bad_shape("pad", shape, &reason));
        }
        let mut out = self.clone();
        for (axis, &(low, high)) in widths.iter().enumerate() {
            if (low, high) == (0, 0) {
                continue;
            }
            let size = shape[axis];
            if size == 0 {
                return Err(bad_shape("pad", shape, "an empty axis can only be padded by a value"));
            }
            let count = low.checked_add(size).and_then(|n| n.checked_add(high));
            let count = count.unwrap_or(usize::MAX);
            shape.with_dim(axis, count).check("pad", self.dtype())?;
            out = match out.borders(axis, size, (low, high), mode)? {
                Some([before, after]) => {
                    let parts = [(low, &before), (size, &out), (high, &after)];
                    let parts = parts.into_iter().filter(|part| part.0 > 0).map(|part| part.1);
                    concat(&parts.collect::<Vec<_>>(), axis as i64)?
                }
                None => {
                    let index = Tensor::iota([count], 0, DType::I64)?.sub(low as i64)?;
                    out.take(&inner_index(&index, size as i64, mode)?, axis as i64)?
                }
            };
        }
        Ok(out)
    }

    /// The borders before and after along an axis, as views of the inner elements; `None` for borders
    /// that repeat the inner elements more than once, whose elements are gathered.
    #[track_caller]
    fn borders(
        &self,
        axis: usize,
        size: usize,
        (low, high): (usize, usize),
        mode: PadMode,
    ) -> Result<Option<[Tensor; 2]>> {
        let at = axis as i64;
        // Mirrored borders leave out the outermost element, or not.
        let skipped = usize::from(mode == PadMode::Reflect);
        if mode != PadMode::Edge && low.max(high) > size - skipped {
            return Ok(None);
        }
        let wide = |x: Tensor, width| x.broadcast_to(x.shape().with_dim(axis, width));
        Ok(Some(match mode {
            PadMode::Edge => {
                [wide(self.narrow(at, 0, 1)?, low)?, wide(self.narrow(at, size - 1, 1)?, high)?]
            }
            PadMode::Wrap => [self.narrow(at, size - low, low)?, self.narrow(at, 0, high)?],
            PadMode::Symmetric | PadMode::Reflect => [
                self.narrow(at, skipped, low)?.flip(at)?,
                self.narrow(at, size - skipped - high, high)?.flip(at)?,
            ],
        }))
    }
}

/// Maps indices beyond the border to the inner index whose element they repeat.
#[track_caller]
fn inner_index(index: &Tensor, size: i64, mode: PadMode) -> Result<Tensor> {
    let mirrored = |period: i64, last: i64| {
        let at = index.remainder(period)?;
        super::where_(&at.lt(size)?, &at, &at.neg()?.add(last)?)
    };
    match mode {
        PadMode::Edge => index.maximum(0)?.minimum(size - 1),
        PadMode::Wrap => index.remainder(size),
        PadMode::Symmetric => mirrored(2 * size, 2 * size - 1),
        PadMode::Reflect if size == 1 => index.mul(0),
        PadMode::Reflect => mirrored(2 * (size - 1), 2 * (size - 1)),
    }
}

/// The order of the first two axes of coordinate grids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexing {
    /// That of the tensors.
    Ij,
    /// Exchanged, as in NumPy by default.
    Xy,
}

/// Coordinate grids: each tensor (one axis) is broadcast over the axes of all tensors.
///
/// Errors: a shape error for a tensor with more axes.
#[track_caller]
pub fn meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    let sparse = sparse_meshgrid(tensors, indexing)?;
    broadcast_arrays(&sparse.iter().collect::<Vec<_>>())
}

/// As [`meshgrid`], with size one along the axes of the other tensors, so that the results
/// broadcast to the grids.
#[track_caller]
pub fn sparse_meshgrid(tensors: &[&Tensor], indexing: Indexing) -> Result<Vec<Tensor>> {
    let mut sizes = Vec::with_capacity(tensors.len());
    for t in tensors {
        if t.rank() > 1 {
            return Err(bad_shape("meshgrid", t.shape(), "tensors of one axis are expected"));
        }
        sizes.push(t.shape().count());
    }
    let swapped = indexing == Indexing::Xy && tensors.len() > 1;
    let place = |i: usize| if swapped && i < 2 { 1 - i } else { i };
    let placed = |(i, t): (usize, &&Tensor)| {
        let along = |axis: usize| if axis == place(i) { sizes[i] } else { 1.into() };
        t.reshape((0..sizes.len()).map(along).collect::<Shape>())
    };
    tensors.iter().enumerate().map(placed).collect()
}

/// Broadcasts tensors to their common shape.
#[track_caller]
pub fn broadcast_arrays(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    let shapes: Vec<Shape> = tensors.iter().map(|t| t.shape()).collect();
    let common = super::broadcast_shapes(&shapes)?;
    tensors.iter().map(|t| t.broadcast_to(common.clone())).collect()
}

/// The slices along an axis, without the axis.
#[track_caller]
pub fn unstack(x: &Tensor, axis: i64) -> Result<Vec<Tensor>> {
    let at = normalize_axis("unstack", axis, x.rank())?;
    let count = x.shape()[at];
    Tensor::check_room(count, HANDLE_BYTES)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    let parts = split_at(x, (1..count).collect(), axis)?;
    parts.iter().map(|part| part.squeeze(axis)).collect()
}

/// Splits an axis, whose size may be symbolic, into `count` equal parts.
///
/// Errors: [`Error::InvalidArgument`] for no parts, and for a size that is not a multiple of
/// `count`.
#[track_caller]
pub fn split_equal(x: &Tensor, count: usize, axis: i64) -> Result<Vec<Tensor>> {
    let shape = x.shape();
    let at = normalize_axis("split", axis, shape.rank())?;
    let size = shape.dim(at);
    if count == 0 || !size.remainder(count).equals(0) {
        return Err(invalid(format!("split: {size} elements make no {count} equal parts")));
    }
    if size.known().is_some() {
        return array_split(x, count, axis);
    }
    // Parts of a symbolic axis have symbolic starts, so split the axis into two and unstack the
    // first.
    let part = size.floor_div(count);
    let dims = shape.dims().take(at).chain([count.into(), part]).chain(shape.dims().skip(at + 1));
    let unmerged = x.reshape(dims.collect::<Shape>())?;
    unstack(&unmerged, at as i64)
}

/// Splits an axis into `count` parts whose sizes differ by at most one, the longer parts first.
#[track_caller]
pub fn array_split(x: &Tensor, count: usize, axis: i64) -> Result<Vec<Tensor>> {
    let size = x.shape()[normalize_axis("array_split", axis, x.rank())?];
    if count == 0 {
        return Err(invalid("array_split: at least one part is needed".into()));
    }
    Tensor::check_room(count, HANDLE_BYTES)?;
    let part = |i| size / count + usize::from(i < size % count);
    super::split(x, &(0..count).map(part).collect::<Vec<_>>(), axis)
}

/// Concatenates tensors along the second axis, or along the first if they have one axis.
#[track_caller]
pub fn hstack(tensors: &[&Tensor]) -> Result<Tensor> {
    let parts = raised(tensors, 1)?;
    let axis = i64::from(parts.first().is_some_and(|t| t.rank() > 1));
    concat(&parts, axis)
}

/// Concatenates tensors along the first axis; a tensor of one axis is a row.
#[track_caller]
pub fn vstack(tensors: &[&Tensor]) -> Result<Tensor> {
    concat(&raised(tensors, 2)?, 0)
}

/// Concatenates tensors along the third axis.
#[track_caller]
pub fn dstack(tensors: &[&Tensor]) -> Result<Tensor> {
    concat(&raised(tensors, 3)?, 2)
}

/// Concatenates tensors along the second axis; a tensor of one axis is a column.
#[track_caller]
pub fn column_stack(tensors: &[&Tensor]) -> Result<Tensor> {
    let column = |t: &&Tensor| if t.rank() < 2 { t.reshape([-1, 1]) } else { Ok((*t).clone()) };
    let columns = tensors.iter().map(column).collect::<Result<Vec<_>>>()?;
    concat(&columns, 1)
}

#[track_caller]
fn raised(tensors: &[&Tensor], rank: usize) -> Result<Vec<Tensor>> {
    tensors.iter().map(|t| t.at_least(rank)).collect()
}

/// The indices of a shape's elements: one row per axis (i64).
#[track_caller]
pub fn indices(shape: &Shape) -> Result<Tensor> {
    let axes = (0..shape.rank()).map(|axis| Tensor::iota(shape.clone(), axis, DType::I64));
    let axes = axes.collect::<Result<Vec<_>>>()?;
    match axes.is_empty() {
        true => Tensor::zeros([0], DType::I64),
        false => stack(&axes, 0),
    }
}
