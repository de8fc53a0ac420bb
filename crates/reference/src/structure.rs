//! Reference semantics of ops that move and combine elements. They are written independently of the
//! ops' index maps, so that tests can compare both.

use girih_ir::array::{flat, indices};
use girih_ir::ops::{Attrs, SliceDim};
use girih_ir::{Array, DType, Element, Error, Literal, Node, Op, OpCode, Result, Shape, scalar};

/// The combination of elements in order, in `wide`; `None` for no elements.
fn combined(code: OpCode, wide: DType, elements: &[Element]) -> Option<Element> {
    let op = Op::from(code);
    let elements = elements.iter().map(|e| e.cast(wide));
    elements.reduce(|a, b| scalar::apply(&op, wide, &[a, b]))
}

/// As [`combined`], of a half dtype in f32 and rounded once; `empty` for no elements. A sum starts
/// from 0, so that the sum of -0 is 0.
fn fold(code: OpCode, dtype: DType, elements: &[Element], empty: f64) -> Element {
    let wide = dtype.widened();
    let start = Element::from(Literal::from_f64(wide.real(), empty)).cast(wide);
    let total = combined(code, wide, elements).unwrap_or(start);
    let total = match code {
        OpCode::Add => scalar::apply(&code.into(), wide, &[start, total]),
        _ => total,
    };
    total.cast(dtype)
}

pub(super) fn reduce(node: &Node, x: &Array) -> Array {
    let Attrs::Axes { axes, .. } = node.op.attrs else { unreachable!("the verifier checks it") };
    let shape = &x.spec().shape;
    let result = shape.reduced(axes, true);
    let mut groups = vec![Vec::new(); result.numel()];
    for index in indices(shape) {
        let at: Vec<usize> =
            index.iter().enumerate().map(|(d, &i)| if axes.contains(d) { 0 } else { i }).collect();
        groups[flat(&result, &at)].push(x.at(&index));
    }
    let dtype = x.spec().dtype;
    let combined = groups.iter().map(|group| match node.op.code {
        OpCode::ReduceSum => fold(OpCode::Add, dtype, group, 0.0),
        OpCode::ReduceProd => fold(OpCode::Mul, dtype, group, 1.0),
        OpCode::ReduceMax => fold(OpCode::Maximum, dtype, group, 0.0),
        OpCode::ReduceMin => fold(OpCode::Minimum, dtype, group, 0.0),
        OpCode::ReduceAny => fold(OpCode::Or, dtype, group, 0.0),
        OpCode::ReduceAll => fold(OpCode::And, dtype, group, 1.0),
        OpCode::Argmax => first_extremum(group, OpCode::Gt),
        OpCode::Argmin => first_extremum(group, OpCode::Lt),
        code => unreachable!("{code:?} is no reduction"),
    });
    Array::new(node.spec.clone(), combined)
}

/// Position of the first element that beats all others; a NaN beats every number.
fn first_extremum(group: &[Element], beats: OpCode) -> Element {
    let nan = |e: &Element| e.is_nan();
    let op = Op::from(beats);
    let better = |a: Element, b: Element| scalar::apply(&op, DType::Bool, &[a, b]).bits != 0;
    let best = group.iter().position(nan).unwrap_or_else(|| {
        (0..group.len()).fold(0, |best, i| if better(group[i], group[best]) { i } else { best })
    });
    Literal::from_i64(DType::I64, best as i64).into()
}

pub(super) fn matmul(node: &Node, a: &Array, b: &Array) -> Array {
    let contracted = a.spec().shape[a.spec().shape.rank() - 1];
    let (dtype, wide) = (node.spec.dtype, node.spec.dtype.widened());
    let mul = Op::from(OpCode::Mul);
    Array::from_fn(node.spec.clone(), |index| {
        let (batch, &[row, column]) = index.split_at(index.len() - 2) else {
            unreachable!("a matmul has rows and columns")
        };
        let element = |x: &Array, last: [usize; 2]| {
            // Batch axes broadcast; the last two axes do not.
            x.broadcast_at(&[batch, &last].concat()).cast(wide)
        };
        let products: Vec<Element> = (0..contracted)
            .map(|k| scalar::apply(&mul, wide, &[element(a, [row, k]), element(b, [k, column])]))
            .collect();
        fold(OpCode::Add, wide, &products, 0.0).cast(dtype)
    })
}

pub(super) fn view(node: &Node, x: &Array) -> Array {
    let shape = &x.spec().shape;
    match (node.op.code, &node.op.attrs) {
        (OpCode::Reshape, _) => Array::new(node.spec.clone(), x.elements()),
        (OpCode::BroadcastTo, _) => Array::from_fn(node.spec.clone(), |i| x.broadcast_at(i)),
        (OpCode::Permute, Attrs::Perm(perm)) => Array::from_fn(node.spec.clone(), |index| {
            let mut from = vec![0; index.len()];
            perm.iter().zip(index).for_each(|(&axis, &i)| from[axis as usize] = i);
            x.at(&from)
        }),
        (OpCode::Slice, Attrs::Slice(dims)) => Array::from_fn(node.spec.clone(), |index| {
            let from = |(&i, d): (&usize, &SliceDim)| d.start + i * d.step;
            x.at(&index.iter().zip(dims.iter()).map(from).collect::<Vec<_>>())
        }),
        (OpCode::Flip, Attrs::Axes { axes, .. }) => Array::from_fn(node.spec.clone(), |index| {
            let from = |(d, &i): (usize, &usize)| {
                if axes.contains(d) { shape[d] - 1 - i } else { i }
            };
            x.at(&index.iter().enumerate().map(from).collect::<Vec<_>>())
        }),
        (OpCode::Windows, Attrs::Windows(dims)) => Array::from_fn(node.spec.clone(), |index| {
            let (lead, rest) = index.split_at(shape.rank() - dims.len());
            let (windows, inside) = rest.split_at(dims.len());
            let at = dims.iter().zip(windows.iter().zip(inside));
            let at = at.map(|(d, (&i, &k))| i * d.step + k * d.dilation);
            x.at(&lead.iter().copied().chain(at).collect::<Vec<_>>())
        }),
        (code, attrs) => unreachable!("{code:?}{attrs:?} is no view"),
    }
}

pub(super) fn combine(node: &Node, operands: &[&Array]) -> Array {
    match &node.op.attrs {
        Attrs::Axis(axis) => Array::from_fn(node.spec.clone(), |index| {
            let mut index = index.to_vec();
            let along = &mut index[*axis as usize];
            for x in operands {
                let size = x.spec().shape[*axis as usize];
                if *along < size {
                    return x.at(&index);
                }
                *along -= size;
            }
            unreachable!("the sizes add up to the result's")
        }),
        Attrs::Pad(pad) => {
            let (widths, bits) = &**pad;
            let x = operands[0];
            let border = Literal { dtype: node.spec.dtype, bits: *bits };
            let mut result = Array::splat(node.spec.clone(), border);
            for index in indices(&x.spec().shape) {
                let to = index.iter().zip(widths).map(|(&i, w)| w.low + i * (w.interior + 1));
                let to: Vec<usize> = to.collect();
                result.set(flat(&node.spec.shape, &to), x.at(&index));
            }
            result
        }
        Attrs::Slice(dims) => {
            let (x, part) = (operands[0], operands[1]);
            let mut result = x.clone();
            for index in indices(&part.spec().shape) {
                let to = index.iter().zip(dims.iter()).map(|(&i, d)| d.start + i * d.step);
                let to: Vec<usize> = to.collect();
                result.set(flat(&node.spec.shape, &to), part.at(&index));
            }
            result
        }
        attrs => unreachable!("{attrs:?} combines nothing"),
    }
}

/// Normalises an index; a negative index counts from the end.
fn resolve(op: &'static str, index: Element, axis: usize, size: usize) -> Result<usize> {
    let index = index.as_int();
    let resolved = if index < 0 { index + size as i128 } else { index };
    match usize::try_from(resolved) {
        Ok(i) if i < size => Ok(i),
        _ => Err(Error::IndexOutOfBounds { op, index: index.into(), axis, size }),
    }
}

/// `index` with one coordinate in place of `inner` coordinates from `axis` on.
fn replaced(index: &[usize], axis: usize, inner: usize, with: usize) -> Vec<usize> {
    [&index[..axis], &[with], &index[axis + inner..]].concat()
}

pub(super) fn index(node: &Node, operands: &[&Array]) -> Result<Array> {
    let name = node.op.name();
    match node.op.attrs {
        Attrs::Axis(axis) => {
            let (x, by, axis) = (operands[0], operands[1], axis as usize);
            let size = x.spec().shape[axis];
            let sources = sources(node.op.code, by, axis, size, &node.spec.shape, name)?;
            Ok(Array::new(node.spec.clone(), sources.iter().map(|from| x.at(from))))
        }
        Attrs::Scatter { axis, size } => {
            let (by, updates) = (operands[0], operands[1]);
            let (axis, size) = (axis as usize, size as usize);
            let shape = &updates.spec().shape;
            let targets = sources(node.op.code, by, axis, size, shape, name)?;
            let mut groups = vec![Vec::new(); node.spec.numel()];
            for (to, update) in targets.iter().zip(updates.elements()) {
                groups[flat(&node.spec.shape, to)].push(update);
            }
            let sums = groups.iter().map(|g| fold(OpCode::Add, node.spec.dtype, g, 0.0));
            Ok(Array::new(node.spec.clone(), sums))
        }
        Attrs::ScatterInto { axis, mode } => {
            let (x, by, updates) = (operands[0], operands[1], operands[2]);
            let (axis, shape) = (axis as usize, &updates.spec().shape);
            let size = node.spec.shape[axis];
            let targets = sources(node.op.code, by, axis, size, shape, name)?;
            let Some(code) = mode.op() else {
                let mut result = x.clone();
                for (to, update) in targets.iter().zip(updates.elements()) {
                    result.set(flat(&node.spec.shape, to), update);
                }
                return Ok(result);
            };
            let mut groups: Vec<_> = x.elements().map(|element| vec![element]).collect();
            for (to, update) in targets.iter().zip(updates.elements()) {
                groups[flat(&node.spec.shape, to)].push(update);
            }
            let dtype = node.spec.dtype;
            let combined = groups.iter().map(|g| combined(code, dtype.widened(), g));
            let combined = combined.map(|c| c.expect("the element itself").cast(dtype));
            Ok(Array::new(node.spec.clone(), combined))
        }
        Attrs::Size(size) => {
            let spec = node.spec.clone();
            let wrapped = operands[0].elements().map(|index| {
                if node.op.code == OpCode::CheckLabel && index.as_int() < 0 {
                    let index = index.as_int();
                    return Err(Error::IndexOutOfBounds {
                        op: name,
                        index: index.into(),
                        axis: 0,
                        size,
                    });
                }
                resolve(name, index, 0, size).map(|i| Literal::from_i64(spec.dtype, i as i64))
            });
            Ok(Array::new(node.spec.clone(), wrapped.collect::<Result<Vec<_>>>()?))
        }
        ref attrs => unreachable!("{attrs:?} indexes nothing"),
    }
}

/// For each multi-index of the gathered shape, in order, the multi-index in the indexed tensor.
fn sources(
    code: OpCode,
    by: &Array,
    axis: usize,
    size: usize,
    gathered: &Shape,
    op: &'static str,
) -> Result<Vec<Vec<usize>>> {
    let along = matches!(
        code,
        OpCode::TakeAlongAxis | OpCode::ScatterAddAlongAxis | OpCode::ScatterAlongAxis
    );
    indices(gathered)
        .map(|index| {
            let inner = if along { 1 } else { by.spec().shape.rank() };
            let at = if along { &index[..] } else { &index[axis..axis + inner] };
            let with = resolve(op, by.at(at), axis, size)?;
            Ok(replaced(&index, axis, inner, with))
        })
        .collect()
}
