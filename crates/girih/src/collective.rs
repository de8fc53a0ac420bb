//! Collectives over the named axes of batches: sums over the members, the values of all members,
//! values sent from one member to another.
//!
//! A function that [`crate::vmap_named`] batches sees one member; these functions refer to the others
//! by the axis' name. Where several names are given the first is the slowest: the members of
//! `["i", "j"]` are numbered `i * size_of_j + j`.

use crate::{Context, DType, Device, DeviceScope, Error, Operand, Result, Tensor, Trace, where_};
use girih_ir::ops::collective::{AxisName, NamedAxis};
use girih_ir::ops::{Op, OpCode};
use girih_ir::shape::normalize_axis;
use girih_ir::{Dim, Shape};

/// A batch axis with a name, while the function that is batched over it is called.
#[derive(Clone, Debug)]
pub struct BoundAxis {
    axis: NamedAxis,
    /// The member's own index.
    index: Tensor,
}

impl Trace {
    /// Names the batch axis that the traced function is going to be batched over, of that size. The
    /// function has to be called within [`crate::Frame::with_axis`] of the result, and the tensor is
    /// the argument of one more placeholder with a batch: the index of each member.
    ///
    /// Errors: [`Error::InvalidArgument`] for a name with other characters than letters, digits and any
    /// of `_ . : - /`.
    pub fn bind_axis(
        &mut self,
        name: &str,
        size: Dim,
        device: Device,
    ) -> Result<(BoundAxis, Tensor)> {
        let name = AxisName::new(name).map_err(|e| Error::InvalidArgument(format!("vmap: {e}")))?;
        let _scope = DeviceScope::new(device);
        let indices = Tensor::iota(Shape::of_dims([size]), 0, DType::I64)?;
        let index = self.member(&indices);
        Ok((BoundAxis { axis: NamedAxis { name, size }, index }, indices))
    }
}

impl BoundAxis {
    /// The member's own index along the axis.
    pub(crate) fn index(&self) -> &Tensor {
        &self.index
    }

    /// True if both are the same axis of the same batch.
    pub(crate) fn is(&self, other: &BoundAxis) -> bool {
        self.index.is_same(&other.index)
    }

    /// Calls a function where collectives may refer to the axis.
    pub fn within<R>(self, f: impl FnOnce() -> R) -> R {
        let context = Context::current();
        context.within(context.frame().with_axis(self), f)
    }
}

/// Names of axes: one, or several of which the first is the slowest.
#[derive(Clone, Debug)]
pub struct AxisNames<'a>(Vec<&'a str>);

impl<'a> From<&'a str> for AxisNames<'a> {
    fn from(name: &'a str) -> Self {
        AxisNames(vec![name])
    }
}

impl<'a> From<&[&'a str]> for AxisNames<'a> {
    fn from(names: &[&'a str]) -> Self {
        AxisNames(names.to_vec())
    }
}

impl<'a, const N: usize> From<[&'a str; N]> for AxisNames<'a> {
    fn from(names: [&'a str; N]) -> Self {
        AxisNames(names.to_vec())
    }
}

impl AxisNames<'_> {
    /// The axes of these names, the innermost of each name.
    ///
    /// Errors: [`Error::InvalidArgument`] for names that nothing has bound, names that come twice, and
    /// no names at all.
    fn bound(&self, op: &str) -> Result<Vec<BoundAxis>> {
        let invalid = |reason: String| Err(Error::InvalidArgument(format!("{op}: {reason}")));
        if self.0.is_empty() {
            return invalid("got no names; give the name of at least one axis".into());
        }
        if let Some(name) = (1..self.0.len()).find(|&i| self.0[..i].contains(&self.0[i])) {
            return invalid(format!("axis '{}' is given twice", self.0[name]));
        }
        let known = Context::current().axes();
        let mut axes = Vec::with_capacity(self.0.len());
        for name in &self.0 {
            let found = known.iter().rev().find(|known| known.axis.name.as_str() == *name);
            let Some(found) = found else {
                let list = |known: &[BoundAxis]| {
                    let one = |a: &BoundAxis| format!("'{}' (size {})", a.axis.name, a.axis.size);
                    known.iter().map(one).collect::<Vec<_>>().join(", ")
                };
                let here = match known.is_empty() {
                    true => "no axis has a name here".to_string(),
                    false => format!("the axes with names are {}", list(&known)),
                };
                return invalid(format!(
                    "there is no axis '{name}': {here}; call it in a function that vmap batches with \
                     axis_name='{name}'"
                ));
            };
            axes.push(found.clone());
        }
        Ok(axes)
    }
}

/// The number of members along all of the axes.
fn size_of(axes: &[BoundAxis]) -> Dim {
    axes.iter().map(|axis| axis.axis.size).product()
}

/// The member's own index along all of the axes.
fn index_of(axes: &[BoundAxis]) -> Result<Tensor> {
    let mut index = axes[0].index.clone();
    for axis in &axes[1..] {
        index = index.mul(Operand::Size(axis.axis.size))?.add(&axis.index)?;
    }
    Ok(index)
}

fn collective(code: OpCode, x: &Tensor, axis: &BoundAxis) -> Result<Tensor> {
    Tensor::record(Op::collective(code, axis.axis.clone()), &[x, &axis.index])
}

fn reduced(x: &Tensor, axes: &[BoundAxis]) -> Result<Tensor> {
    axes.iter().try_fold(x.clone(), |x, axis| collective(OpCode::AllReduce, &x, axis))
}

/// The values of all members, with one leading axis.
fn gathered(x: &Tensor, axes: &[BoundAxis]) -> Result<Tensor> {
    let one = |x: Tensor, axis: &BoundAxis| collective(OpCode::AllGather, &x, axis);
    let all = axes.iter().rev().try_fold(x.clone(), one)?;
    match axes.len() {
        1 => Ok(all),
        _ => {
            let dims = std::iter::once(size_of(axes));
            all.reshape_to(dims.chain(x.shape().dims()).collect::<Shape>())
        }
    }
}

/// Splits an axis into `parts` parts: `[…, parts, size / parts, …]`.
///
/// Errors: [`Error::InvalidArgument`] for sizes that are no multiples.
fn parted(op: &str, x: &Tensor, axis: usize, parts: Dim) -> Result<Tensor> {
    let shape = x.shape();
    let size = shape.dim(axis);
    let part = match parts.equals(0) {
        true => Dim::from(0),
        false => size.floor_div(parts),
    };
    if !(part * parts).equals(size) {
        return Err(Error::InvalidArgument(format!(
            "{op}: axis {axis} of shape {shape} does not divide into {parts} equal parts, one for \
             each member"
        )));
    }
    let dims = shape.dims().take(axis).chain([parts, part]).chain(shape.dims().skip(axis + 1));
    x.reshape_to(dims.collect::<Shape>())
}

/// Fails unless an axis has one element for each member.
fn check_members(op: &str, x: &Tensor, axis: usize, size: Dim) -> Result<()> {
    let shape = x.shape();
    if shape.dim(axis).equals(size) {
        return Ok(());
    }
    Err(Error::InvalidArgument(format!(
        "{op}: axis {axis} of shape {shape} must have {size} elements, one for each member; use \
         tiled for parts of several elements"
    )))
}

/// The member's own index along the axes, a scalar of i64.
///
/// Errors: [`Error::InvalidArgument`] for names that no batch has bound; so do all functions here.
#[track_caller]
pub fn axis_index<'a>(axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    index_of(&axes.into().bound("axis_index")?)
}

/// The number of members along the axes.
///
/// Errors: as [`axis_index`].
pub fn axis_size<'a>(axes: impl Into<AxisNames<'a>>) -> Result<Dim> {
    Ok(size_of(&axes.into().bound("axis_size")?))
}

/// The sum of `x` over the members, the same for all; bool and integers in the dtypes of
/// [`Tensor::sum`]. Its gradient sums the cotangents of all members.
///
/// Errors: as [`axis_index`].
///
/// ```
/// use girih::{Tensor, psum, vmap_named};
///
/// let shares = vmap_named("i", |x: &[Tensor]| Ok(vec![x[0].div(&psum(&x[0], "i")?)?]), &[Some(0)]);
/// let y = shares(&[Tensor::from_slice(&[1.0f32, 3.0], [2])?])?;
/// assert_eq!(y[0].to_vec::<f32>()?, [0.25, 0.75]);
/// # Ok::<(), girih::Error>(())
/// ```
#[track_caller]
pub fn psum<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    let axes = axes.into().bound("psum")?;
    reduced(&x.astype(x.dtype().accumulator())?, &axes)
}

/// The mean of `x` over the members, the same for all; integers become f32.
///
/// Errors: as [`axis_index`].
#[track_caller]
pub fn pmean<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    let axes = axes.into().bound("pmean")?;
    let sum = reduced(&x.astype(x.dtype().to_float())?, &axes)?;
    sum.div(Operand::Size(size_of(&axes)))
}

/// The largest of `x` over the members, NaN if any is; the same for all. Ties share the gradient.
///
/// Errors: as [`axis_index`]; a dtype error for complex numbers.
#[track_caller]
pub fn pmax<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    extreme(x, axes.into().bound("pmax")?, Tensor::max)
}

/// The largest or smallest over the members. Its derivative has a weight for each member instead of the
/// values of all members for each.
fn extreme(
    x: &Tensor,
    axes: Vec<BoundAxis>,
    of: fn(&Tensor, Option<&[i64]>, bool) -> Result<Tensor>,
) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return of(&gathered(x, &axes)?, Some(&[0]), false);
    }
    let y = of(&gathered(&x.stop_gradient()?, &axes)?, Some(&[0]), false)?;
    // Zero, with the slope of the result: the result itself is one for all members.
    let own = axes.clone();
    let rule = move |x: &[Tensor], along: &[Tensor]| {
        let y = of(&gathered(&x[0], &own)?, Some(&[0]), false)?;
        let is_it = x[0].eq(&y)?.logical_or(&x[0].ne(&x[0])?)?.astype(y.dtype())?;
        let weight = is_it.div(&reduced(&is_it, &own)?)?;
        Ok((vec![Tensor::zeros(x[0].shape(), x[0].dtype())?], vec![along[0].mul(&weight)?.neg()?]))
    };
    let zero = crate::custom_jvp(
        |x| Ok(vec![Tensor::zeros(x[0].shape(), x[0].dtype())?]),
        rule,
        std::slice::from_ref(x),
    )?;
    y.sub(&reduced(&zero[0], &axes)?)
}

/// The smallest of `x` over the members, NaN if any is; the same for all. Ties share the gradient.
///
/// Errors: as [`pmax`].
#[track_caller]
pub fn pmin<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    extreme(x, axes.into().bound("pmin")?, Tensor::min)
}

/// `x` of all members, the same for all: stacked along a new axis at `axis`, or with `tiled` one behind
/// the other along the axis that is there.
///
/// Errors: as [`axis_index`]; an axis that does not exist.
#[track_caller]
pub fn all_gather<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    axis: i64,
    tiled: bool,
) -> Result<Tensor> {
    let axes = axes.into().bound("all_gather")?;
    let rank = x.rank() + !tiled as usize;
    let axis = normalize_axis("all_gather", axis, rank)?;
    let all = gathered(x, &axes)?.moveaxis(&[0], &[axis as i64])?;
    if tiled { all.flatten(axis as i64, axis as i64 + 1) } else { Ok(all) }
}

/// The member's part of the sum over the members: the element at its index along `axis`, which has as
/// many elements as there are members, or with `tiled` one of as many equal parts of the axis.
///
/// Errors: as [`axis_index`]; an axis that does not exist or does not have such a size.
#[track_caller]
pub fn psum_scatter<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    axis: i64,
    tiled: bool,
) -> Result<Tensor> {
    const OP: &str = "psum_scatter";
    let axes = axes.into().bound(OP)?;
    let axis = normalize_axis(OP, axis, x.rank())?;
    let x = x.astype(x.dtype().accumulator())?;
    let x = match tiled {
        true => parted(OP, &x, axis, size_of(&axes))?,
        false => check_members(OP, &x, axis, size_of(&axes)).map(|()| x)?,
    };
    reduced(&x, &axes)?.take(&index_of(&axes)?, axis as i64)
}

/// Sends the element at index `k` along axis `split` to member `k`, and stacks those received along a
/// new axis at `concat`, in the order of the senders. With `tiled` the axis is split into as many
/// equal parts as there are members, and those received come one behind the other along the axis that
/// is there.
///
/// Errors: as [`psum_scatter`].
#[track_caller]
pub fn all_to_all<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    split: i64,
    concat: i64,
    tiled: bool,
) -> Result<Tensor> {
    const OP: &str = "all_to_all";
    let axes = axes.into().bound(OP)?;
    let (split, concat) =
        (normalize_axis(OP, split, x.rank())?, normalize_axis(OP, concat, x.rank())?);
    let size = size_of(&axes);
    let x = match tiled {
        true => parted(OP, x, split, size)?,
        false => check_members(OP, x, split, size).map(|()| x.clone())?,
    };
    let received = gathered(&x, &axes)?.take(&index_of(&axes)?, split as i64 + 1)?;
    let placed = received.moveaxis(&[0], &[concat as i64])?;
    if tiled { placed.flatten(concat as i64, concat as i64 + 1) } else { Ok(placed) }
}

/// Sends `x` from members to others, by pairs of a source and a destination; a member that is no
/// destination gets zeros.
///
/// Errors: as [`axis_index`]; indices of no member, and members that are a source or a destination
/// twice.
#[track_caller]
pub fn ppermute<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    pairs: &[(usize, usize)],
) -> Result<Tensor> {
    let axes = axes.into().bound("ppermute")?;
    let size = size_of(&axes).get();
    let invalid = |reason: String| Err(Error::InvalidArgument(format!("ppermute: {reason}")));
    let (mut source_of, mut sends) = (vec![None; size], vec![false; size]);
    for &(source, destination) in pairs {
        if source >= size || destination >= size {
            return invalid(format!(
                "the pair ({source}, {destination}) names a member beyond the last, {} of {size}",
                size as i64 - 1
            ));
        }
        if std::mem::replace(&mut sends[source], true) {
            return invalid(format!("member {source} is a source twice; expected once at most"));
        }
        if source_of[destination].replace(source).is_some() {
            return invalid(format!(
                "member {destination} is a destination twice; expected once at most"
            ));
        }
    }
    if size == 0 {
        return Ok(x.clone());
    }
    let index = index_of(&axes)?;
    let own = |table: Vec<i64>| Tensor::from_slice(&table, [size])?.take(&index, 0);
    let source = own(source_of.iter().map(|s| s.unwrap_or(0) as i64).collect())?;
    let sent = gathered(x, &axes)?.take(&source, 0)?;
    if source_of.iter().all(Option::is_some) {
        return Ok(sent);
    }
    let receives = own(source_of.iter().map(|s| s.is_some() as i64).collect())?.ne(0)?;
    where_(&receives, &sent, 0)?.astype(x.dtype())
}

/// Each member gets `x` of member `order[its index]`.
///
/// Errors: as [`ppermute`]; an order that is not one of all members.
#[track_caller]
pub fn pshuffle<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>, order: &[usize]) -> Result<Tensor> {
    let axes = axes.into();
    let size = size_of(&axes.bound("pshuffle")?).get();
    if order.len() != size {
        let found = order.len();
        return Err(Error::InvalidArgument(format!(
            "pshuffle: the order has {found} members; expected each of {size} once"
        )));
    }
    let pairs: Vec<(usize, usize)> = order.iter().copied().zip(0..size).collect();
    ppermute(x, axes, &pairs)
}
