//! The fields of attributes that hold symbolic sizes.

use super::{Bytes, Context, Expected, Field, FieldMut, decode_dim, encode_dim, encode_expression};
use crate::ops::{Real, SliceDim};
use crate::{Dim, Shape};
use std::ops::{Deref, DerefMut};

/// Bounds of a slice whose sizes may be symbolic, printed as other bounds are: `start:end:step`.
pub(super) struct Bounds<D, S> {
    pub dims: D,
    pub result: S,
}

impl<D: Deref<Target = Vec<SliceDim>>, S: Deref<Target = Shape>> Field for Bounds<D, S> {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let bound = |(d, taken): (&SliceDim, Dim)| {
            let end = match taken.known() {
                Some(0) => d.start.into(),
                _ => (taken - 1usize) * d.step + 1usize + d.start,
            };
            format!("{}:{end}:{}", d.start, d.step)
        };
        let bounds: Vec<String> = self.dims.iter().zip(self.result.dims()).map(bound).collect();
        out.push_str(&format!("[{}]", bounds.join(", ")));
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.dims.encode(out);
        self.result.encode(out);
    }

    fn encode_key(&self, out: &mut Vec<u8>) {
        self.dims.encode_key(out);
        self.result.encode_key(out);
    }
}

impl<D, S> FieldMut for Bounds<D, S>
where
    D: DerefMut<Target = Vec<SliceDim>>,
    S: DerefMut<Target = Shape>,
{
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        let expected = || "bounds such as [0:batch:1, 1:8:2] (start:end:step)".to_string();
        let bound = |(at, text): (usize, &str)| {
            let mut parts = text.split(':');
            let start: usize = parts.next()?.trim().parse().ok()?;
            let end = Dim::parse_over(parts.next()?.trim(), cx.symbols)?;
            let step = parts.next()?.trim().parse().ok().filter(|&step: &usize| step > 0)?;
            let size = end.hint().checked_sub(start)?.div_ceil(step);
            let taken = match cx.result {
                Some(result) => result.dims().nth(at)?,
                None => (end - start + (step - 1)).floor_div(step),
            };
            let agrees = parts.next().is_none() && size == taken.hint();
            agrees.then_some((SliceDim { start, size, step }, taken))
        };
        let bounds = super::lists::list(text)?;
        let count = bounds.len();
        let dims: Option<Vec<(SliceDim, Dim)>> =
            bounds.into_iter().enumerate().map(bound).collect();
        let complete = |_: &Vec<_>| cx.result.is_none_or(|result| count == result.rank());
        let dims = dims.filter(complete).ok_or_else(expected)?;
        *self.result = dims.iter().map(|&(_, taken)| taken).collect();
        *self.dims = dims.into_iter().map(|(dim, _)| dim).collect();
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.dims.decode(bytes)?;
        self.result.decode(bytes)?;
        let agrees = |(d, taken): (&SliceDim, Dim)| d.size == taken.hint() && d.step > 0;
        let all = self.dims.len() == self.result.rank();
        match all && self.dims.iter().zip(self.result.dims()).all(agrees) {
            true => Ok(()),
            false => Err("bounds that give the slice's shape".into()),
        }
    }

    fn arbitrary(&mut self, _: Context<'_>, _: &mut dyn FnMut(usize) -> usize) {}
}

/// One size; an expression is in brackets, as a shape is.
impl Field for Dim {
    fn print(&self, _: Context<'_>, out: &mut String) {
        match self.known() {
            Some(size) => out.push_str(&size.to_string()),
            None => out.push_str(&format!("[{self}]")),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_dim(*self, out);
    }

    /// An expression is written with the ranges of its symbols, since two symbols may have the same
    /// name.
    fn encode_key(&self, out: &mut Vec<u8>) {
        match self.expr() {
            None => encode_dim(*self, out),
            Some(expr) => encode_expression(&format!("{expr:?}"), out),
        }
    }
}

impl FieldMut for Dim {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        if let Ok(size) = text.parse::<usize>() {
            *self = size.into();
            return Ok(());
        }
        let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let dim = inside.and_then(|text| Dim::parse_over(text, cx.symbols));
        *self = dim.ok_or("a size such as 4 or [batch*4]")?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self = decode_dim(bytes)?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, _: &mut dyn FnMut(usize) -> usize) {}
}

/// The numerator of a number that is computed from a size; in text and files, zero stands for none.
pub(super) struct Numerator<R>(pub R);

impl<R: Deref<Target = Option<Real>>> Numerator<R> {
    fn or_zero(&self) -> Real {
        self.0.unwrap_or(Real::from(0.0))
    }
}

impl<R: DerefMut<Target = Option<Real>>> Numerator<R> {
    /// Changes the numerator as a field of its own.
    fn change<T>(&mut self, change: impl FnOnce(&mut Real) -> T) -> T {
        let mut numerator = self.or_zero();
        let changed = change(&mut numerator);
        *self.0 = Some(numerator).filter(|numerator| numerator.get() != 0.0);
        changed
    }
}

impl<R: Deref<Target = Option<Real>>> Field for Numerator<R> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        self.or_zero().print(cx, out);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.or_zero().encode(out);
    }

    fn encode_key(&self, out: &mut Vec<u8>) {
        self.0.is_some().encode_key(out);
        self.or_zero().encode_key(out);
    }
}

impl<R: DerefMut<Target = Option<Real>>> FieldMut for Numerator<R> {
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        self.change(|numerator| numerator.parse(cx, text))
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.change(|numerator| numerator.decode(bytes))
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        self.change(|numerator| numerator.arbitrary(cx, below));
    }
}
