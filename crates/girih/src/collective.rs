//! Collectives over the named axes of batches: sums over the members, gathers of the values of all
//! members, and permutations of values between members.
//!
//! A function that [`crate::vmap_named`] batches sees one member, and accesses the other members by
//! the name of the axis. If there are several names, the first axis varies slowest: the members of
//! `["i", "j"]` are numbered `i * size_of_j + j`.

use crate::{DType, Device, DeviceScope, Error, Operand, Result, Tensor, Trace, where_};
use girih_ir::ops::collective::{AxisName, NamedAxis};
use girih_ir::ops::{Op, OpCode};
use girih_ir::shape::normalize_axis;
use girih_ir::{Dim, Shape};
use girih_record::axes::BoundAxis;

/// The place of the members' values, or of the parts for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Members {
    /// One after the other along an axis of their own, which has one element for each member.
    Stacked,
    /// In equal parts of an axis that the value of each member has.
    Tiled,
}

impl Trace {
    /// Names the batch axis that the traced function will be batched over; `size` is its size. The
    /// function must be called within [`crate::Frame::with_axis`] of the returned axis. The
    /// returned tensor, the index of each member, is the argument of one more batched placeholder.
    ///
    /// Errors: [`Error::InvalidArgument`] for a name with characters other than letters, digits and
    /// `_ . : - /`.
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
        Ok((BoundAxis::new(NamedAxis { name, size }, index.node().clone()), indices))
    }
}

/// The names of one axis, or of several axes with the slowest-varying axis first.
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
    /// Resolves the names to axes; a name means the innermost axis of that name.
    ///
    /// Errors: [`Error::InvalidArgument`] for unknown names, duplicate names, and no names at all.
    fn bound(&self, op: &str) -> Result<Vec<BoundAxis>> {
        let invalid = |reason: String| Err(Error::InvalidArgument(format!("{op}: {reason}")));
        if self.0.is_empty() {
            return invalid("got no names; give the name of at least one axis".into());
        }
        if let Some(name) = (1..self.0.len()).find(|&i| self.0[..i].contains(&self.0[i])) {
            return invalid(format!("axis '{}' is given twice", self.0[name]));
        }
        let known = girih_record::Context::current().axes();
        let mut axes = Vec::with_capacity(self.0.len());
        for name in &self.0 {
            let found = known.iter().rev().find(|known| known.axis().name.as_str() == *name);
            let Some(found) = found else {
                let list = |known: &[BoundAxis]| {
                    let one =
                        |a: &BoundAxis| format!("'{}' (size {})", a.axis().name, a.axis().size);
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
/// The member's index along an axis.
fn member(axis: &BoundAxis) -> Tensor {
    Tensor::from_node(axis.index().clone())
}

fn size_of(axes: &[BoundAxis]) -> Dim {
    axes.iter().map(|axis| axis.axis().size).product()
}

/// The member's index along all of the axes, as one number.
fn index_of(axes: &[BoundAxis]) -> Result<Tensor> {
    let mut index = member(&axes[0]);
    for axis in &axes[1..] {
        index = index.mul(Operand::Size(axis.axis().size))?.add(&member(axis))?;
    }
    Ok(index)
}

fn collective(code: OpCode, x: &Tensor, axis: &BoundAxis) -> Result<Tensor> {
    Tensor::record(Op::collective(code, axis.axis().clone()), &[x, &member(axis)])
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
            all.reshape(dims.chain(x.shape().dims()).collect::<Shape>())
        }
    }
}

/// Splits an axis into `parts` parts: `[…, parts, size / parts, …]`.
///
/// Errors: [`Error::InvalidArgument`] if `parts` does not divide the size of the axis.
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
    x.reshape(dims.collect::<Shape>())
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

/// The member's index along the axes, an i64 scalar.
///
/// Errors: [`Error::InvalidArgument`] for names that no batch has bound. This holds for all
/// functions of this module.
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

/// The sum of `x` over the members; every member gets the same result. Bool and integers are summed
/// in the dtypes of [`Tensor::sum`]. The gradient sums the cotangents of all members.
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

/// The mean of `x` over the members; every member gets the same result. Integers become f32.
///
/// Errors: as [`axis_index`].
#[track_caller]
pub fn pmean<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    let axes = axes.into().bound("pmean")?;
    let sum = reduced(&x.astype(x.dtype().to_float())?, &axes)?;
    sum.div(Operand::Size(size_of(&axes)))
}

/// The largest `x` over the members, or NaN if any `x` is NaN; every member gets the same result.
/// Members with equal values share the gradient equally.
///
/// Errors: as [`axis_index`]; a dtype error for complex numbers.
#[track_caller]
pub fn pmax<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    extreme(x, axes.into().bound("pmax")?, Tensor::max)
}

/// The largest or smallest value over the members. The derivative needs one weight per member,
/// instead of the values of all members for each member.
fn extreme(
    x: &Tensor,
    axes: Vec<BoundAxis>,
    of: fn(&Tensor, i64) -> Result<Tensor>,
) -> Result<Tensor> {
    if !x.dtype().is_float() {
        return of(&gathered(x, &axes)?, 0);
    }
    let y = of(&gathered(&x.stop_gradient()?, &axes)?, 0)?;
    // A zero with the tangent of the result. The rule is attached to it because `y` is the same for
    // all members.
    let own = axes.clone();
    let rule = move |x: &[Tensor], along: &[Tensor]| {
        let y = of(&gathered(&x[0], &own)?, 0)?;
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

/// The smallest `x` over the members, or NaN if any `x` is NaN; every member gets the same result.
/// Members with equal values share the gradient equally.
///
/// Errors: as [`pmax`].
#[track_caller]
pub fn pmin<'a>(x: &Tensor, axes: impl Into<AxisNames<'a>>) -> Result<Tensor> {
    extreme(x, axes.into().bound("pmin")?, Tensor::min)
}

/// The values of `x` of all members; every member gets the same result. The values are stacked
/// along a new axis at `axis`, or tiled: concatenated along the existing axis `axis`.
///
/// Errors: as [`axis_index`]; an axis that does not exist.
#[track_caller]
pub fn all_gather<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    axis: i64,
    members: Members,
) -> Result<Tensor> {
    let axes = axes.into().bound("all_gather")?;
    let rank = x.rank() + (members == Members::Stacked) as usize;
    let axis = normalize_axis("all_gather", axis, rank)?;
    let all = gathered(x, &axes)?.moveaxis(&[0], &[axis as i64])?;
    match members {
        Members::Tiled => all.flatten(axis as i64, axis as i64 + 1),
        Members::Stacked => Ok(all),
    }
}

/// The member's part of the sum over the members. Of stacked parts it is the element at the
/// member's index along `axis`, which must have as many elements as there are members. For tiled
/// parts the axis is split into as many equal parts as there are members, and the result is the
/// part at the member's index.
///
/// Errors: as [`axis_index`]; an axis that does not exist or whose size does not fit.
#[track_caller]
pub fn psum_scatter<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    axis: i64,
    members: Members,
) -> Result<Tensor> {
    const OP: &str = "psum_scatter";
    let axes = axes.into().bound(OP)?;
    let axis = normalize_axis(OP, axis, x.rank())?;
    let x = x.astype(x.dtype().accumulator())?;
    let x = match members {
        Members::Tiled => parted(OP, &x, axis, size_of(&axes))?,
        Members::Stacked => check_members(OP, &x, axis, size_of(&axes)).map(|()| x)?,
    };
    reduced(&x, &axes)?.take(&index_of(&axes)?, axis as i64)
}

/// Sends the element at index `k` along axis `split` to member `k`, and stacks the received
/// elements along a new axis at `concat`, in the order of the senders. Tiled, the axis is
/// split into as many equal parts as there are members, and the received parts are concatenated
/// along the existing axis `concat`.
///
/// Errors: as [`psum_scatter`].
#[track_caller]
pub fn all_to_all<'a>(
    x: &Tensor,
    axes: impl Into<AxisNames<'a>>,
    split: i64,
    concat: i64,
    members: Members,
) -> Result<Tensor> {
    const OP: &str = "all_to_all";
    let axes = axes.into().bound(OP)?;
    let (split, concat) =
        (normalize_axis(OP, split, x.rank())?, normalize_axis(OP, concat, x.rank())?);
    let size = size_of(&axes);
    let x = match members {
        Members::Tiled => parted(OP, x, split, size)?,
        Members::Stacked => check_members(OP, x, split, size).map(|()| x.clone())?,
    };
    let received = gathered(&x, &axes)?.take(&index_of(&axes)?, split as i64 + 1)?;
    let placed = received.moveaxis(&[0], &[concat as i64])?;
    match members {
        Members::Tiled => placed.flatten(concat as i64, concat as i64 + 1),
        Members::Stacked => Ok(placed),
    }
}

/// Sends `x` between members. Each pair contains a source and a destination; a member that is not a
/// destination gets zeros.
///
/// Errors: as [`axis_index`]; an index beyond the last member; a member that occurs twice as a
/// source or as a destination.
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

/// Sends to each member the `x` of member `order[index]`, where `index` is the receiver's index.
///
/// Errors: as [`ppermute`]; an order that is not a permutation of the members.
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
