//! Parts of ops with sliding windows: the elements that the windows of a part of the result lie on,
//! and the padding that a part has at the border.

use super::*;
use crate::ops::window::WindowDim;

/// The elements on which windows lie, and the padding before and after them.
struct Taken {
    elements: Range<usize>,
    low: usize,
    high: usize,
}

/// The elements for windows `range` of an axis of `size` elements with `low` of padding before.
fn taken(window: WindowDim, (size, low): (usize, usize), range: &Range<usize>) -> Taken {
    // Positions from the start of the padding.
    let start = range.start * window.step;
    let end = (range.end - 1) * window.step + window.reach();
    let within = |at: usize| at.saturating_sub(low).min(size);
    let elements = within(start)..within(end);
    match elements.is_empty() {
        true => Taken { low: end - start, high: 0, elements },
        false => {
            let (low, high) = (low + elements.start - start, end - low - elements.end);
            Taken { elements, low, high }
        }
    }
}

pub(in super::super) fn windows(
    call: OpCall<'_>,
    out: &TensorSpec,
    part: &[Range<usize>],
) -> Option<OpPart> {
    let Attrs::Windows(dims) = &call.op.attrs else { unreachable!("the shape rule checks it") };
    let lead = part.len() - 2 * dims.len();
    // Only whole windows are taken.
    let own = lead + dims.len()..part.len();
    if own.clone().any(|axis| part[axis] != (0..out.shape.hints()[axis])) {
        return None;
    }
    let (mut operand, mut local) = (part[..lead].to_vec(), Vec::with_capacity(dims.len()));
    for (dim, range) in dims.iter().zip(&part[lead..]) {
        let Taken { elements, .. } = taken(*dim, (dim.extent, 0), range);
        local.push(WindowDim { extent: elements.len(), ..*dim });
        operand.push(elements);
    }
    let attrs = Attrs::Windows(Arc::new(local));
    let ops = smallvec![Op::new(call.op.code, attrs)];
    Some(OpPart { operands: vec![operand], ops })
}

pub(in super::super) fn pool(
    call: OpCall<'_>,
    _: &TensorSpec,
    part: &[Range<usize>],
) -> Option<OpPart> {
    let Attrs::Pool(pool) = &call.op.attrs else { unreachable!("the shape rule checks it") };
    let lead = part.len() - pool.dims.len();
    let sizes = &call.inputs[0].shape.hints()[lead..];
    let (mut operand, mut local) = (part[..lead].to_vec(), (**pool).clone());
    for ((dim, &size), range) in local.dims.iter_mut().zip(sizes).zip(&part[lead..]) {
        let window =
            WindowDim { extent: 0, size: dim.size, step: dim.stride, dilation: dim.dilation };
        let Taken { elements, low, high } = taken(window, (size, dim.low), range);
        if elements.is_empty() {
            return None;
        }
        // Behind the padding are elements that never count.
        let padding = high.min(dim.high);
        (dim.low, dim.high, dim.extra) = (low, padding, high - padding);
        operand.push(elements);
    }
    let ops = smallvec![Op::new(call.op.code, Attrs::Pool(Arc::new(local)))];
    Some(OpPart { operands: vec![operand], ops })
}

pub(in super::super) fn conv(
    call: OpCall<'_>,
    out: &TensorSpec,
    part: &[Range<usize>],
) -> Option<OpPart> {
    let Attrs::Conv(conv) = &call.op.attrs else { unreachable!("the shape rule checks it") };
    let (x, w) = (call.inputs[0].shape.hints(), call.inputs[1].shape.hints());
    if conv.groups > 1 && part[1] != (0..out.shape.hints()[1]) {
        return None;
    }
    let mut local = (**conv).clone();
    let mut image = vec![part[0].clone(), 0..x[1]];
    for (axis, dim) in local.dims.iter_mut().enumerate() {
        let (size, kernel) = (x[2 + axis], w[2 + axis]);
        let window =
            WindowDim { extent: 0, size: kernel, step: dim.stride, dilation: dim.dilation };
        let Taken { elements, low, high } = taken(window, (size, dim.low), &part[2 + axis]);
        (dim.low, dim.high) = (low, high);
        image.push(elements);
    }
    let mut kernels: Vec<Range<usize>> = w.iter().map(|&size| 0..size).collect();
    kernels[0] = part[1].clone();
    let mut operands = vec![image, kernels];
    operands.extend(call.inputs.get(2).map(|_| vec![part[1].clone()]));
    let ops = smallvec![Op::new(call.op.code, Attrs::Conv(Arc::new(local)))];
    Some(OpPart { operands, ops })
}
