//! Searches for nonzero and distinct elements. The shape of a result depends on the number of
//! elements found, so these functions evaluate their operand.

use crate::{DeviceScope, Error, Nans, Result, Tensor};
use girih_ir::shape::normalize_axis;
use girih_ir::{Attrs, DType, Literal, Op, OpCode, Shape};
use std::cmp::Ordering;

/// The distinct elements of a tensor in ascending order, and their origins.
pub struct Unique {
    /// The distinct elements, each by its first occurrence. NaNs are distinct from each other
    /// unless [`Nans::Equal`], and come last.
    pub values: Tensor,
    /// The position of each first occurrence in the flattened tensor (i64).
    pub indices: Tensor,
    /// The index of the value of each element, in the tensor's shape (i64).
    pub inverse: Tensor,
    /// The number of occurrences of each value (i64).
    pub counts: Tensor,
}

/// The elements as integers. Evaluates the tensor.
///
/// Errors: [`Error::InvalidArgument`] for an unsigned integer beyond 2^63.
pub(crate) fn integers(op: &'static str, x: &Tensor) -> Result<Vec<i64>> {
    let values: Vec<i64> = x.astype(DType::I64)?.to_vec()?;
    match values.iter().find(|&&v| v < 0 && x.dtype() == DType::U64) {
        Some(&wrapped) => {
            Err(Error::InvalidArgument(format!("{op}: {} is too large", wrapped as u64)))
        }
        None => Ok(values),
    }
}

/// The elements as f64, if they can be computed now; `None` for elements that a traced function
/// computes.
pub(crate) fn known(x: &Tensor) -> Result<Option<Vec<f64>>> {
    match x.astype(DType::F64)?.to_vec() {
        Ok(values) => Ok(Some(values)),
        Err(Error::TracedValue { .. } | Error::OutsideValue { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Integers as a tensor of one axis, on the device of the tensor in which they were found.
fn of_integers(values: Vec<i64>, found_in: &Tensor) -> Result<Tensor> {
    let _scope = DeviceScope::new(found_in.node().place().device());
    let count = values.len();
    Tensor::from_vec(values, [count])
}

/// Flat positions of the nonzero elements.
fn nonzero_positions(x: &Tensor) -> Result<Vec<i64>> {
    /// The number of elements that are skipped at once if all of them are zero.
    const GROUP: usize = 16;
    let truth = x.astype(DType::Bool)?.to_bytes()?;
    let count = truth.iter().map(|&b| usize::from(b != 0)).sum::<usize>();
    // Each position is written, and stays if its element is not zero: without a branch per element.
    let (mut found, mut done) = (vec![0i64; count + 1], 0);
    for (number, group) in truth.chunks(GROUP).enumerate() {
        if group.iter().fold(0, |any, b| any | b) == 0 {
            continue;
        }
        for (i, &b) in group.iter().enumerate() {
            found[done] = (number * GROUP + i) as i64;
            done += usize::from(b != 0);
        }
    }
    found.truncate(count);
    Ok(found)
}

/// Flat positions (i64, one axis) of the nonzero elements.
pub(super) fn positions(x: &Tensor) -> Result<Tensor> {
    of_integers(nonzero_positions(x)?, x)
}

/// Ascending positions on an axis of this size and the axes before it: the positions on the axis,
/// and in their place those on the axes before it.
fn split_off(flat: &mut [i64], size: i64) -> Vec<i64> {
    let (mut row, mut start) = (0, 0);
    let along = |at: &mut i64| {
        if *at - start >= size {
            row = *at / size;
            start = row * size;
        }
        std::mem::replace(at, row) - start
    };
    flat.iter_mut().map(along).collect()
}

/// Maps a real number to an integer with the same order; `None` for NaN. Both zeros map to one
/// integer.
fn order_key(value: f64) -> Option<u64> {
    let bits = (value + 0.0).to_bits();
    match bits >> 63 {
        _ if value.is_nan() => None,
        0 => Some(bits | 1 << 63),
        _ => Some(!bits),
    }
}

/// Maps the elements to integers with the same order, complex numbers lexicographically; `None` for
/// NaN. Evaluates the tensor.
fn order_keys(x: &Tensor) -> Result<Vec<Option<u128>>> {
    let dtype = x.dtype();
    let literal = |dtype: DType, chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        Literal { dtype, bits: u64::from_le_bytes(word) }
    };
    let key = |chunk: &[u8]| match dtype {
        d if d.is_float() => order_key(literal(d, chunk).as_f64()).map(u128::from),
        d if d.is_int() && d.is_signed() => {
            Some((literal(d, chunk).as_i64() as u64 ^ 1 << 63) as u128)
        }
        d if d.is_int() || d == DType::Bool => Some(literal(d, chunk).bits as u128),
        _ => {
            let part = if chunk.len() == 8 { DType::F32 } else { DType::F64 };
            let (re, im) = chunk.split_at(chunk.len() / 2);
            let [re, im] = [re, im].map(|half| order_key(literal(part, half).as_f64()));
            Some((re? as u128) << 64 | im? as u128)
        }
    };
    Ok(x.to_bytes()?.chunks_exact(dtype.size()).map(key).collect())
}

/// The order of `count` slices of `width` elements by merging sorted runs. `poll` is called every
/// few dozen microseconds, and its error ends the sort.
fn sorted(
    count: usize,
    width: usize,
    compare: impl Fn(&usize, &usize) -> Ordering,
    mut poll: impl FnMut() -> Result<()>,
) -> Result<Vec<usize>> {
    /// The number of elements that are compared between two polls.
    const COMPARED: usize = 1 << 14;
    let step = (COMPARED / width.max(1)).clamp(1, 1 << 10);
    let mut order: Vec<usize> = (0..count).collect();
    for run in order.chunks_mut(step) {
        run.sort_by(&compare);
        poll()?;
    }
    let mut length = step;
    while length < count {
        let mut merged = Vec::with_capacity(count);
        for pair in order.chunks(2 * length) {
            let (mut left, mut right) = pair.split_at(length.min(pair.len()));
            while let ([a, ..], [b, ..]) = (left, right) {
                if merged.len() % step == 0 {
                    poll()?;
                }
                let from = if compare(a, b).is_le() { &mut left } else { &mut right };
                merged.push(from[0]);
                *from = &from[1..];
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        (order, length) = (merged, 2 * length);
    }
    Ok(order)
}

/// Equal elements or slices, in ascending order.
struct Groups {
    /// The position of each group's first member.
    firsts: Tensor,
    /// For each element or slice, the index of its group.
    inverse: Tensor,
    /// The number of members of each group.
    counts: Tensor,
}

/// Whether each of sorted elements (one axis, not empty) begins a group: unless it equals the one
/// before it.
#[track_caller]
fn begins(sorted: &Tensor, equal_nan: bool) -> Result<Tensor> {
    let rest = sorted.numel() - 1;
    let (before, after) = (sorted.narrow(0, 0, rest)?, sorted.narrow(0, 1, rest)?);
    let mut differs = before.ne(&after)?;
    if equal_nan && sorted.dtype().is_float() {
        let both = before.isnan()?.bitwise_and(&after.isnan()?)?;
        differs = differs.bitwise_and(&both.logical_not()?)?;
    }
    crate::concat(&[&Tensor::ones([1], DType::Bool)?, &differs], 0)
}

/// The starts of groups among sorted elements, and the numbers of their members.
#[track_caller]
fn starts_and_counts(begins: &Tensor) -> Result<(Tensor, Tensor)> {
    let starts = positions(begins)?;
    let end = Tensor::full(begins.numel() as i64, [1], DType::I64)?;
    let ends = crate::concat(&[&starts.narrow(0, 1, starts.numel() - 1)?, &end], 0)?;
    let counts = ends.sub(&starts)?;
    Ok((starts, counts))
}

impl Groups {
    /// Groups of equal elements of one axis.
    #[track_caller]
    fn of_numbers(x: &Tensor, equal_nan: bool) -> Result<Groups> {
        let count = x.numel();
        let x = if x.dtype() == DType::Bool { x.astype(DType::U8)? } else { x.clone() };
        let (sorted, order) = (x.sort(0)?, x.argsort(0)?);
        if count == 0 {
            let none = Tensor::zeros([0], DType::I64)?;
            return Ok(Groups { firsts: none.clone(), inverse: none.clone(), counts: none });
        }
        let begins = begins(&sorted, equal_nan)?;
        let group = begins.astype(DType::I64)?.cumsum(0)?.sub(1)?;
        // One evaluation: the groups' starts are then searched on the host.
        crate::eval([&begins, &group, &order])?;
        let (starts, counts) = starts_and_counts(&begins)?;
        let inverse = Tensor::zeros([count], DType::I64)?;
        Ok(Groups {
            firsts: order.take(&starts, 0)?,
            inverse: inverse.scatter(&order, &group, 0, super::Update::Set)?,
            counts,
        })
    }

    /// Groups of equal slices of `width` elements each.
    fn of_slices(x: &Tensor, count: usize, width: usize, equal_nan: bool) -> Result<Groups> {
        let keys = order_keys(x)?;
        let slice = |i: usize| &keys[i * width..(i + 1) * width];
        // NaN, which has no key, is last.
        let rank = |key: &Option<u128>| (key.is_none(), *key);
        let compare =
            |i: &usize, j: &usize| slice(*i).iter().map(rank).cmp(slice(*j).iter().map(rank));
        let executor = girih_record::eval::executor_of("unique", &[x])?;
        let control = executor.runtime().control(executor.limit(), false);
        let order = sorted(count, width, compare, || match control.check() {
            true => Err(control.error("unique").into()),
            false => Ok(()),
        })?;
        let equal = |i: usize, j: usize| {
            slice(i) == slice(j) && (equal_nan || slice(i).iter().all(Option::is_some))
        };
        let (mut firsts, mut counts): (Vec<i64>, Vec<i64>) = (Vec::new(), Vec::new());
        let mut inverse = vec![0; count];
        for &i in &order {
            match (firsts.last().is_some_and(|&f| equal(i, f as usize)), counts.last_mut()) {
                (true, Some(count)) => *count += 1,
                _ => {
                    firsts.push(i as i64);
                    counts.push(1);
                }
            }
            inverse[i] = firsts.len() as i64 - 1;
        }
        Ok(Groups {
            firsts: of_integers(firsts, x)?,
            inverse: of_integers(inverse, x)?,
            counts: of_integers(counts, x)?,
        })
    }
}

impl Tensor {
    /// The indices of the nonzero elements in row-major order: one tensor per axis (i64, one axis).
    /// Evaluates the tensor.
    ///
    /// Errors: a shape error for a scalar; those of evaluation.
    pub fn nonzero(&self) -> Result<Vec<Tensor>> {
        let shape = self.shape();
        if shape.rank() == 0 {
            let (op, reason) = ("nonzero", "a scalar has no axes; reshape it to [1]".into());
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let mut found = nonzero_positions(self)?;
        let inner: Vec<Vec<i64>> = shape[1..]
            .iter()
            .rev()
            .map(|&size| split_off(&mut found, size.max(1) as i64))
            .collect();
        let axes = std::iter::once(found).chain(inner.into_iter().rev());
        axes.map(|along| of_integers(along, self)).collect()
    }

    /// The indices of the nonzero elements, one row (i64) per element. Evaluates the tensor.
    #[track_caller]
    pub fn argwhere(&self) -> Result<Tensor> {
        if self.rank() == 0 {
            return Tensor::zeros([self.truth()? as usize, 0], DType::I64);
        }
        let columns = self.nonzero()?;
        crate::stack(&columns, 1)
    }

    /// The positions of the nonzero elements in row-major order (i64). Evaluates the tensor.
    pub fn flatnonzero(&self) -> Result<Tensor> {
        positions(self)
    }

    /// The slices along an axis, or without an axis the elements in row-major order, for which the
    /// condition (one axis; missing entries are false) is nonzero. Evaluates the condition.
    ///
    /// Errors: a shape error for a condition of another rank; an index error if it is too long.
    #[track_caller]
    pub fn compress(&self, condition: &Tensor, axis: Option<i64>) -> Result<Tensor> {
        let shape = condition.shape();
        if shape.rank() != 1 {
            let (op, reason) = ("compress", "the condition must have one axis".into());
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let chosen = positions(condition)?;
        match axis {
            Some(axis) => self.take(&chosen, axis),
            None => self.reshape(-1)?.take(&chosen, 0),
        }
    }

    /// The elements, in row-major order, for which the condition, with the same number of elements,
    /// is nonzero. Evaluates the condition.
    #[track_caller]
    pub fn extract(&self, condition: &Tensor) -> Result<Tensor> {
        self.compress(&condition.reshape(-1)?, None)
    }

    /// The distinct elements and their origins; NaNs are distinct from each other. Evaluates the
    /// tensor.
    #[track_caller]
    pub fn unique(&self) -> Result<Unique> {
        self.unique_along(None, Nans::Distinct)
    }

    /// The distinct elements in ascending order, and the number of occurrences of each. Faster than [`Tensor::unique_along`], which also finds where the
    /// elements are. Evaluates the tensor.
    #[track_caller]
    pub fn unique_counts(&self, nans: Nans) -> Result<(Tensor, Tensor)> {
        let (dtype, flat) = (self.dtype(), self.reshape(-1)?);
        if dtype.is_complex() || flat.numel() == 0 {
            let found = flat.unique_along(None, nans)?;
            return Ok((found.values, found.counts));
        }
        let plain = if dtype == DType::Bool { flat.astype(DType::U8)? } else { flat };
        let sorted = plain.sort(0)?;
        let begins = begins(&sorted, nans == Nans::Equal)?;
        crate::eval([&begins, &sorted])?;
        let (starts, counts) = starts_and_counts(&begins)?;
        Ok((sorted.take(&starts, 0)?.astype(dtype)?, counts))
    }

    /// The distinct slices along an axis in lexicographical order, or without an axis the distinct
    /// elements, and their origins. Evaluates the tensor.
    ///
    /// Errors: an axis error.
    #[track_caller]
    pub fn unique_along(&self, axis: Option<i64>, nans: Nans) -> Result<Unique> {
        let equal_nan = nans == Nans::Equal;
        let at = axis.map(|axis| normalize_axis("unique", axis, self.rank())).transpose()?;
        let moved = match at {
            None => self.reshape(-1)?,
            Some(at) => self.moveaxis(&[at as i64], &[0])?,
        };
        let shape = moved.shape();
        let found = match shape[1..].iter().product::<usize>() {
            1 if !self.dtype().is_complex() => Groups::of_numbers(&moved.reshape(-1)?, equal_nan)?,
            width => Groups::of_slices(&moved, shape[0], width, equal_nan)?,
        };
        let values = moved.take(&found.firsts, 0)?;
        let inverse = found.inverse;
        Ok(Unique {
            values: at.map_or(Ok(values.clone()), |at| values.moveaxis(&[0], &[at as i64]))?,
            indices: found.firsts,
            inverse: if at.is_none() { inverse.under(&self.shape())? } else { inverse },
            counts: found.counts,
        })
    }

    /// Whether each element equals any element of `test`; a NaN equals nothing.
    #[track_caller]
    pub fn isin(&self, test: &Tensor) -> Result<Tensor> {
        const SHORT: usize = 16;
        let dtype = self.dtype().promote(test.dtype())?;
        let (x, test) = (self.astype(dtype)?, test.astype(dtype)?.reshape(-1)?);
        if test.numel() <= SHORT {
            return x.unsqueeze(-1)?.eq(&test)?.any(-1);
        }
        // NaNs come last, and equal nothing.
        let sorted = test.sort(0)?;
        let at = x.counted_below(&sorted, false)?.minimum(test.numel() as i64 - 1)?;
        sorted.take(&at, 0)?.eq(&x)
    }

    /// The number of elements of `sorted` (one axis, ascending) that are less than each element, or not
    /// greater if `equal`. NaN is larger than every number.
    #[track_caller]
    pub(super) fn counted_below(&self, sorted: &Tensor, equal: bool) -> Result<Tensor> {
        let op = Op::new(OpCode::SearchSorted, Attrs::routine(equal));
        Tensor::record(op, &[sorted, &self.reshape(-1)?])?.under(&self.shape())
    }
}

/// The common broadcast shape of some shapes.
///
/// Errors: a shape error for shapes that do not broadcast together.
pub fn broadcast_shapes(shapes: &[Shape]) -> Result<Shape> {
    let broadcast = |a: Shape, b: &Shape| a.broadcast(b, "broadcast_shapes");
    Ok(shapes.iter().try_fold(Shape::scalar(), broadcast)?)
}
