//! Fields of several values: axes, shapes, bounds, and values for each axis.

use super::{Bytes, Context, Expected, Field, FieldMut, decode_dim, encode_dim};
use crate::ops::conv::ConvDim;
use crate::ops::pool::PoolDim;
use crate::ops::window::WindowDim;
use crate::ops::{AxisSet, PadDim, SliceDim};
use crate::{Dim, MAX_RANK, Shape};
use smallvec::SmallVec;
use std::fmt::Write;

impl Field for AxisSet {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self:?}");
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn is_default(&self, cx: Context<'_>) -> bool {
        cx.rank.is_some_and(|rank| *self == AxisSet::all(rank))
    }
}

impl FieldMut for AxisSet {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let mut axes = AxisSet::default();
        for item in list(text)? {
            let axis = item.parse().ok().filter(|&axis: &usize| axis < MAX_RANK);
            axes.insert(axis.ok_or("axes from 0 to 31")?);
        }
        *self = axes;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.0.decode(bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = AxisSet(below(1 << cx.rank.unwrap_or(3).min(4)) as u32);
    }

    fn set_default(&mut self, cx: Context<'_>) -> bool {
        match cx.rank {
            Some(rank) => *self = AxisSet::all(rank),
            None => return false,
        }
        true
    }
}

impl Field for Shape {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn encode(&self, out: &mut Vec<u8>) {
        (self.rank() as u32).encode(out);
        self.dims().for_each(|dim| encode_dim(dim, out));
    }

    fn encode_key(&self, out: &mut Vec<u8>) {
        (self.rank() as u32).encode(out);
        self.dims().for_each(|dim| dim.encode_key(out));
    }

    fn is_default(&self, cx: Context<'_>) -> bool {
        cx.result == Some(self)
    }
}

impl FieldMut for Shape {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        let size = |item: &str| {
            Dim::parse_over(item, cx.symbols).ok_or("a shape such as [2, 3]".to_string())
        };
        let sizes = list(text)?.into_iter().map(size).collect::<Result<Vec<Dim>, _>>()?;
        if sizes.len() > MAX_RANK {
            return Err(format!("at most {MAX_RANK} dimensions, found {}", sizes.len()));
        }
        *self = sizes.into_iter().collect();
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let rank = bytes.count(8)?;
        if rank > MAX_RANK {
            return Err(format!("at most {MAX_RANK} dimensions, found {rank}"));
        }
        *self = (0..rank).map(|_| decode_dim(bytes)).collect::<Result<_, Expected>>()?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = (0..below(4)).map(|_| [1, 2, 3, 4, 6, 0][below(6)]).collect();
    }

    fn set_default(&mut self, cx: Context<'_>) -> bool {
        match cx.result {
            Some(result) => *self = result.clone(),
            None => return false,
        }
        true
    }
}

impl Field for SliceDim {
    /// `start:end:step`; the end is the smallest one that includes `size` elements.
    fn print(&self, _: Context<'_>, out: &mut String) {
        let last = self.size.saturating_sub(1).saturating_mul(self.step);
        let span = if self.size == 0 { 0 } else { last.saturating_add(1) };
        let _ = write!(out, "{}:{}:{}", self.start, self.start.saturating_add(span), self.step);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        [self.start, self.size, self.step].iter().for_each(|v| v.encode(out));
    }
}

impl FieldMut for SliceDim {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let parts: Vec<Option<usize>> = text.split(':').map(|p| p.trim().parse().ok()).collect();
        let &[Some(start), Some(end), Some(step)] = parts.as_slice() else {
            return Err("bounds such as [0:4:1, 1:8:2] (start:end:step)".into());
        };
        if step == 0 || end < start {
            return Err("start:end:step with start <= end and a step of at least 1".into());
        }
        *self = SliceDim { start, size: (end - start).div_ceil(step), step };
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        [&mut self.start, &mut self.size, &mut self.step]
            .into_iter()
            .try_for_each(|v| v.decode(bytes))
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = SliceDim { start: below(2), size: below(3), step: 1 + below(2) };
    }
}

/// Structs of sizes: the fields in order, joined by underscores.
macro_rules! size_fields {
    ($($ty:ident { $($field:ident),* } $example:literal;)*) => {
        $(impl Field for $ty {
            fn print(&self, _: Context<'_>, out: &mut String) {
                let sizes = [$(self.$field.to_string()),*];
                out.push_str(&sizes.join("_"));
            }

            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)*
            }
        }

        impl FieldMut for $ty {
            fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
                let sizes: Option<Vec<usize>> =
                    text.split('_').map(|part| part.trim().parse().ok()).collect();
                let Some(&[$($field),*]) = sizes.as_deref() else {
                    let names = [$(stringify!($field)),*].join("_");
                    return Err(format!(concat!($example, " ({})"), names));
                };
                *self = $ty { $($field),* };
                Ok(())
            }

            fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
                $(self.$field.decode(bytes)?;)*
                Ok(())
            }

            fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
                $(self.$field = below(3);)*
            }
        })*
    };
}

size_fields! {
    PadDim { low, high, interior } "widths such as [1_1_0, 0_2_1]";
    WindowDim { extent, size, step, dilation } "windows such as [9_3_2_1]";
    ConvDim { stride, dilation, low, high, extra } "windows such as [1_1_0_0_0]";
    PoolDim { size, stride, dilation, low, high, extra } "windows such as [2_2_1_0_0_0]";
}

/// Lists of values, `[a, b]`.
impl<T: Field> Field for Vec<T> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        print_list(self, cx, out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(self, out);
    }
}

impl<T: FieldMut + Clone + Default> FieldMut for Vec<T> {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = parse_list(cx, text)?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        // Every element takes at least one byte.
        decode_list(self, 1, bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = vec![T::default(); arbitrary_len(cx, below)];
        self.iter_mut().for_each(|item| item.arbitrary(cx, below));
    }
}

/// A sequence of axes, such as a permutation.
impl Field for SmallVec<[u8; 8]> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        print_list(self, cx, out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(self, out);
    }
}

impl FieldMut for SmallVec<[u8; 8]> {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = SmallVec::from_vec(parse_list(cx, text)?);
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let mut axes: Vec<u8> = Vec::new();
        decode_list(&mut axes, 1, bytes)?;
        *self = SmallVec::from_vec(axes);
        Ok(())
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = (0..arbitrary_len(cx, below) as u8).collect();
        (1..self.len()).for_each(|i| self.swap(i, below(i + 1)));
    }
}

/// A random length, mostly the rank.
fn arbitrary_len(cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) -> usize {
    match (cx.rank, below(8)) {
        (Some(rank), 1..) => rank,
        _ => below(4),
    }
}

fn print_list(items: &[impl Field], cx: Context<'_>, out: &mut String) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        item.print(cx, out);
    }
    out.push(']');
}

fn parse_list<T: FieldMut + Default>(cx: Context<'_>, text: &str) -> Result<Vec<T>, Expected> {
    let item = |text| {
        let mut value = T::default();
        value.parse(cx, text)?;
        Ok(value)
    };
    list(text)?.into_iter().map(item).collect()
}

fn encode_list(items: &[impl Field], out: &mut Vec<u8>) {
    (items.len() as u32).encode(out);
    items.iter().for_each(|item| item.encode(out));
}

fn decode_list<T: FieldMut + Default>(
    items: &mut Vec<T>,
    size: usize,
    bytes: &mut Bytes<'_>,
) -> Result<(), Expected> {
    items.clear();
    for _ in 0..bytes.count(size)? {
        let mut value = T::default();
        value.decode(bytes)?;
        items.push(value);
    }
    Ok(())
}

/// The items of a bracketed list without nested lists.
pub(in crate::ops) fn list(text: &str) -> Result<Vec<&str>, Expected> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let inner = inner.ok_or("a list in brackets")?.trim();
    Ok(if inner.is_empty() { Vec::new() } else { inner.split(',').map(str::trim).collect() })
}
