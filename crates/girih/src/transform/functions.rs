//! Transforms of closures. Each transform calls the closure once, on placeholders, and records the
//! transformed function. Everything stays lazy, and transforms nest to any depth.

use super::{Linear, Randomness, Trace};
use crate::{Error, Result, Tensor};
use girih_ir::{Dim, Shape};
use girih_transform::BatchAxis;

/// A function that returns the value and the gradients of `f`, a function of tensors that returns a
/// scalar, with one gradient per argument. The results are lazy.
///
/// ```
/// use girih::{Tensor, value_and_grad};
///
/// let f = value_and_grad(|x| x[0].mul(&x[0])?.sum_all());
/// let (value, gradients) = f(&[Tensor::from_slice(&[1.0f32, 2.0], [2])?])?;
/// assert_eq!(value.item::<f32>()?, 5.0);
/// assert_eq!(gradients[0].to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn value_and_grad<F>(f: F) -> impl Fn(&[Tensor]) -> Result<(Tensor, Vec<Tensor>)>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    move |arguments| {
        let mut trace = Trace::new();
        let placeholders: Vec<Tensor> = arguments.iter().map(|a| trace.placeholder(a)).collect();
        let output = f(&placeholders)?;
        let wrt: Vec<&Tensor> = placeholders.iter().collect();
        let arguments: Vec<&Tensor> = arguments.iter().collect();
        let (mut outputs, gradients) = trace.gradients(&[&output], &wrt, &arguments)?;
        Ok((outputs.swap_remove(0), gradients))
    }
}

/// A function that returns the gradients of `f`; see [`value_and_grad`].
pub fn grad<F>(f: F) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    let f = value_and_grad(f);
    move |arguments| Ok(f(arguments)?.1)
}

/// Traces a function on placeholders for `primals`.
fn traced<F>(f: F, primals: &[Tensor]) -> Result<(Trace, Vec<Tensor>, Vec<Tensor>)>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let mut trace = Trace::new();
    let placeholders: Vec<Tensor> = primals.iter().map(|p| trace.placeholder(p)).collect();
    let outputs = f(&placeholders)?;
    Ok((trace, placeholders, outputs))
}

fn refs(tensors: &[Tensor]) -> Vec<&Tensor> {
    tensors.iter().collect()
}

/// Forward mode: the results of `f` for `primals`, and their derivatives along `tangents`, one per
/// primal. The cost is about that of `f`, and intermediate values are not kept.
///
/// Errors: [`Error::InvalidArgument`] for tangents whose shapes or dtypes differ from those of the
/// primals; [`Error::Transform`] for primals that are not floats.
///
/// ```
/// use girih::{Tensor, jvp};
///
/// let (x, v) = (Tensor::from_slice(&[2.0f32], [])?, Tensor::from_slice(&[1.0f32], [])?);
/// let (y, dy) = jvp(|x| Ok(vec![x[0].mul(&x[0])?]), &[x], &[v])?;
/// assert_eq!((y[0].item::<f32>()?, dy[0].item::<f32>()?), (4.0, 4.0));
/// # Ok::<(), girih::Error>(())
/// ```
pub fn jvp<F>(f: F, primals: &[Tensor], tangents: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let (trace, wrt, outputs) = traced(f, primals)?;
    trace.jvp(&refs(&outputs), &refs(&wrt), &refs(primals), &refs(tangents))
}

/// Reverse mode: the results of `f` for `primals`, and the linear map of cotangents of the results
/// to cotangents of the primals.
///
/// Errors: [`Error::Transform`] for primals that are not floats, and ops without a derivative.
///
/// ```
/// use girih::{Tensor, vjp};
///
/// let x = Tensor::from_slice(&[2.0f32, 3.0], [2])?;
/// let (y, pullback) = vjp(|x| Ok(vec![x[0].mul(&x[0])?]), &[x])?;
/// let ct = Tensor::from_slice(&[1.0f32, 10.0], [2])?;
/// assert_eq!(pullback.call(&[&ct])?[0].to_vec::<f32>()?, [4.0, 60.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn vjp<F>(f: F, primals: &[Tensor]) -> Result<(Vec<Tensor>, Linear)>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let (trace, wrt, outputs) = traced(f, primals)?;
    trace.vjp(&refs(&outputs), &refs(&wrt), &refs(primals))
}

/// The results of `f` for `primals`, and the linear map of tangents of the primals to tangents of
/// the results: [`jvp`] for several tangents, without recording `f` again.
///
/// Errors: as [`vjp`].
pub fn linearize<F>(f: F, primals: &[Tensor]) -> Result<(Vec<Tensor>, Linear)>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let (trace, wrt, outputs) = traced(f, primals)?;
    trace.linearize(&refs(&outputs), &refs(&wrt), &refs(primals))
}

/// The batched version of `f`: a call computes `f` for each member of the batch, in one program.
/// `in_axes` has the batch axis of each argument, `None` for an unbatched argument. Results have
/// the batch axis in front.
///
/// Errors: [`Error::InvalidArgument`] for axes out of range, batches of different sizes, and random
/// draws in `f` (see [`Trace::vmap`]).
///
/// ```
/// use girih::{Tensor, vmap};
///
/// let dot = |x: &[Tensor]| Ok(vec![x[0].mul(&x[1])?.sum_all()?]);
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
/// let y = Tensor::from_slice(&[10.0f32, 1.0], [2])?;
/// let all = vmap(dot, &[Some(0), None])(&[x, y])?;
/// assert_eq!(all[0].to_vec::<f32>()?, [12.0, 34.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn vmap<F>(f: F, in_axes: &[Option<usize>]) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    batched(None, f, in_axes)
}

/// As [`vmap`], for a function that uses the batch axis by its name in [`crate::psum`] and the
/// other collectives. The name hides an outer axis of the same name.
///
/// Errors: as [`vmap`]; as [`Trace::bind_axis`].
pub fn vmap_named<F>(
    name: &str,
    f: F,
    in_axes: &[Option<usize>],
) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + use<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    batched(Some(name.to_string()), f, in_axes)
}

fn batched<F>(
    name: Option<String>,
    f: F,
    in_axes: &[Option<usize>],
) -> impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + use<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let in_axes = in_axes.to_vec();
    move |arguments| {
        if in_axes.len() != arguments.len() {
            let (axes, count) = (in_axes.len(), arguments.len());
            let reason = format!("vmap: {axes} axes for {count} arguments; give one for each");
            return Err(Error::InvalidArgument(reason));
        }
        let mut size: Option<Dim> = None;
        let mut moved = Vec::with_capacity(arguments.len());
        for (i, (argument, axis)) in arguments.iter().zip(&in_axes).enumerate() {
            let Some(axis) = *axis else {
                moved.push(argument.clone());
                continue;
            };
            let shape = argument.shape();
            if axis >= shape.rank() {
                return Err(Error::InvalidArgument(format!(
                    "vmap: argument {i} has shape {shape}, which has no axis {axis}"
                )));
            }
            let own = shape.dim(axis);
            let first = *size.get_or_insert(own);
            if !first.equals(own) {
                return Err(Error::InvalidArgument(format!(
                    "vmap: axis {axis} of argument {i} has size {own}, other batch axes {first}"
                )));
            }
            moved.push(argument.moveaxis(&[axis as i64], &[0])?);
        }
        let Some(size) = size else {
            let reason = "vmap: no argument has a batch axis; name one in in_axes".into();
            return Err(Error::InvalidArgument(reason));
        };
        let marks: Vec<bool> = in_axes.iter().map(Option::is_some).collect();
        let axis = BatchAxis { size, name: name.as_deref() };
        on_batch(&f, &moved, &marks, axis)
    }
}

fn on_batch<F>(
    f: &F,
    arguments: &[Tensor],
    marks: &[bool],
    axis: BatchAxis<'_>,
) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let mut trace = Trace::new();
    let one = |(argument, &mark): (&Tensor, &bool)| match mark {
        true => trace.member(argument),
        false => trace.placeholder(argument),
    };
    let placeholders: Vec<Tensor> = arguments.iter().zip(marks).map(one).collect();
    let (mut arguments, mut marks) = (arguments.to_vec(), marks.to_vec());
    let outputs = match axis.name {
        Some(name) => {
            let device = arguments[0].device();
            let (bound, indices) = trace.bind_axis(name, axis.size, device)?;
            arguments.push(indices);
            marks.push(true);
            bound.within(|| f(&placeholders))?
        }
        None => f(&placeholders)?,
    };
    let (outputs, arguments) = (refs(&outputs), refs(&arguments));
    let results = trace.vmap(&outputs, &arguments, &marks, axis, Randomness::Error)?;
    let settle = |(y, batched): (Tensor, bool)| match batched {
        true => Ok(y),
        false => {
            let shape: Shape = std::iter::once(axis.size).chain(y.shape().dims()).collect();
            y.broadcast_to(shape)
        }
    };
    results.into_iter().map(settle).collect()
}

/// The unit vectors of a tensor's shape, stacked along a leading axis.
fn basis(like: &Tensor) -> Result<Tensor> {
    let shape = like.shape();
    let count = shape.count().get();
    let eye = Tensor::eye(count, like.dtype())?;
    eye.reshape(std::iter::once(Dim::from(count)).chain(shape.dims()).collect::<Shape>())
}

/// A function that computes the Jacobian of `f`, a function of one tensor, in forward mode. The
/// shape of a Jacobian is the result's shape followed by the argument's. Forward mode is efficient
/// if the argument is smaller than the results.
///
/// Errors: as [`jvp`].
///
/// ```
/// use girih::{Tensor, jacfwd};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
/// let square = |x: &[Tensor]| Ok(vec![x[0].mul(&x[0])?]);
/// assert_eq!(jacfwd(square)(&x)?[0].to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn jacfwd<F>(f: F) -> impl Fn(&Tensor) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    move |x| {
        let (_, pushforward) = linearize(&f, std::slice::from_ref(x))?;
        let columns = vmap(|t: &[Tensor]| pushforward.call(&[&t[0]]), &[Some(0)])(&[basis(x)?])?;
        let shape = x.shape();
        let columns = columns.into_iter().map(|c| {
            let last = c.moveaxis(&[0], &[-1])?;
            let rank = last.shape().rank() - 1;
            let sizes = last.shape();
            last.reshape(sizes.dims().take(rank).chain(shape.dims()).collect::<Shape>())
        });
        columns.collect()
    }
}

/// As [`jacfwd`], in reverse mode, which is efficient if the results are smaller than the argument.
///
/// Errors: as [`vjp`].
pub fn jacrev<F>(f: F) -> impl Fn(&Tensor) -> Result<Vec<Tensor>>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    move |x| {
        let (values, pullback) = vjp(&f, std::slice::from_ref(x))?;
        let zeros: Result<Vec<Tensor>> =
            values.iter().map(|v| Tensor::zeros(v.shape(), v.dtype())).collect();
        let zeros = zeros?;
        let of = |(i, value): (usize, &Tensor)| {
            let row = |ct: &[Tensor]| {
                let mut all = refs(&zeros);
                all[i] = &ct[0];
                pullback.call(&all)
            };
            let rows = vmap(row, &[Some(0)])(&[basis(value)?])?.swap_remove(0);
            let (before, behind) = (value.shape(), x.shape());
            rows.reshape(before.dims().chain(behind.dims()).collect::<Shape>())
        };
        values.iter().enumerate().map(of).collect()
    }
}

/// A function that computes the Hessian of `f`, which must return a scalar, at a tensor `x`, with
/// the shape `x.shape + x.shape`. It uses forward-over-reverse mode.
///
/// Errors: as [`vjp`].
///
/// ```
/// use girih::{Tensor, hessian};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
/// let f = |x: &[Tensor]| x[0].mul(&x[0])?.mul(&x[0])?.sum_all();
/// assert_eq!(hessian(f)(&x)?.to_vec::<f32>()?, [6.0, 0.0, 0.0, 12.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn hessian<F>(f: F) -> impl Fn(&Tensor) -> Result<Tensor>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    let jacobian = jacfwd(grad(f));
    move |x| Ok(jacobian(x)?.swap_remove(0))
}

/// The product of the Hessian of `f`, which must return a scalar, at `x` with `v`, without forming
/// the Hessian, in forward-over-reverse mode.
///
/// Errors: as [`jvp`].
pub fn hvp<F>(f: F, x: &Tensor, v: &Tensor) -> Result<Tensor>
where
    F: Fn(&[Tensor]) -> Result<Tensor>,
{
    let (x, v) = (std::slice::from_ref(x), std::slice::from_ref(v));
    Ok(jvp(grad(f), x, v)?.1.swap_remove(0))
}

/// The transpose of `f`, which must be linear in its arguments: the linear map of cotangents of its
/// results to cotangents of its arguments. Only the shapes and dtypes of `like` matter.
///
/// Constants that are added to the results are ignored.
///
/// Errors: [`Error::InvalidArgument`] with the first op that is not linear; [`Error::Transform`]
/// for an op without a derivative.
///
/// ```
/// use girih::{Tensor, linear_transpose};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3])?;
/// let transpose = linear_transpose(|x| Ok(vec![x[0].cumsum(0)?]), &[x.clone()])?;
/// assert_eq!(transpose.call(&[&x])?[0].to_vec::<f32>()?, [6.0, 5.0, 3.0]);
/// assert!(linear_transpose(|x| Ok(vec![x[0].sin()?]), &[x]).is_err());
/// # Ok::<(), girih::Error>(())
/// ```
pub fn linear_transpose<F>(f: F, like: &[Tensor]) -> Result<Linear>
where
    F: FnOnce(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let zeros: Result<Vec<Tensor>> =
        like.iter().map(|t| Tensor::zeros(t.shape(), t.dtype())).collect();
    let zeros = zeros?;
    let (trace, wrt, outputs) = traced(f, &zeros)?;
    trace.linear_transpose(&refs(&outputs), &refs(&wrt), &refs(&zeros))
}
