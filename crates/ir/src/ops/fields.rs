//! The fields of attributes: each kind of attributes names its fields once, in
//! [`Attrs::fields`]; text, binary form and generated samples all follow from that one list.

mod control;

use self::control::Count;
use super::control::Control;
use super::conv::{Conv, ConvDim};
use super::pool::{Pool, PoolDim};
use super::symbolic_fields::Bounds;
use super::window::WindowDim;
use super::{Attrs, AxisSet, OfSize, PadDim, Real, ScatterMode, SliceDim};
use crate::{DType, Dim, Literal, MAX_RANK, OpCode, Shape};
use smallvec::SmallVec;
use std::fmt::Write;
use std::sync::{Arc, LazyLock};

/// What is known of a node while its attributes are written or read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// Rank of the first operand. Reducing all of its axes is the default.
    pub rank: Option<usize>,
    /// Dtype of literals: a leaf's own, else the first operand's.
    pub dtype: Option<DType>,
    /// Shape of the result, which follows in the text. A target shape is that by default.
    pub result: Option<&'a Shape>,
}

/// Why a field could not be read: what was expected.
pub type Expected = String;

/// One attribute's value: how it is written and read, in text and in bytes.
///
/// A new kind of value implements this; a new kind of attributes only lists its fields.
pub trait Field {
    /// Appends the value as text: no comma outside brackets or quotes, no line breaks.
    fn print(&self, cx: Context<'_>, out: &mut String);

    /// Reads what `print` writes.
    ///
    /// Errors: what was expected, to follow the word "expected".
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected>;

    /// Appends the value as bytes, little-endian.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads what `encode` writes. Never reserves more memory than there are bytes.
    ///
    /// Errors: what was expected.
    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected>;

    /// Fills in a small random value. `below(n)` draws from `0..n`.
    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize);

    /// The value that the text leaves out, if there is one: sets it and returns true.
    fn set_default(&mut self, _cx: Context<'_>) -> bool {
        false
    }

    /// True if the value is the one that the text leaves out.
    fn is_default(&self, _cx: Context<'_>) -> bool {
        false
    }
}

impl OpCode {
    /// Attributes of the op's kind; what they hold counts for nothing. An op's samples show what
    /// kind it has.
    pub fn blank_attrs(self) -> Attrs {
        static KINDS: LazyLock<Vec<Attrs>> = LazyLock::new(|| {
            let kind = |&code: &OpCode| match code {
                OpCode::Constant => Attrs::Value(0),
                OpCode::Iota => Attrs::Axis(0),
                code => code.samples().first().map_or(Attrs::None, |s| s.op.attrs.clone()),
            };
            OpCode::ALL.iter().map(kind).collect()
        });
        KINDS[self as usize].clone()
    }
}

impl Attrs {
    /// Visits the fields with their names, in the order of the text; the empty name is for a value
    /// that stands alone. This is the one place that says what a kind of attributes consists of.
    pub fn fields<E>(
        &mut self,
        each: &mut impl FnMut(&'static str, &mut dyn Field) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Attrs::None => Ok(()),
            Attrs::Axis(axis) => each("dim", axis),
            Attrs::Axes { axes, keepdims } => {
                each("dim", axes)?;
                each("keepdim", keepdims)
            }
            Attrs::Moments { axes, keepdims, correction } => {
                each("dim", axes)?;
                each("keepdim", keepdims)?;
                each("correction", correction)
            }
            Attrs::DType(dtype) => each("", dtype),
            Attrs::Value(bits) => each("", &mut Bits { bits, zero_is_default: true }),
            Attrs::Shape(shape) => each("shape", Arc::<Shape>::make_mut(shape)),
            Attrs::Perm(perm) => each("perm", Arc::<SmallVec<_>>::make_mut(perm)),
            Attrs::Slice(dims) => each("bounds", Arc::<Vec<_>>::make_mut(dims)),
            Attrs::SliceOf(of) => {
                let (dims, result) = Arc::make_mut(of);
                each("bounds", &mut Bounds { dims, result })
            }
            Attrs::OfSize(of) => {
                let OfSize { size, correction, numerator } = Arc::make_mut(of);
                let mut over = numerator.unwrap_or(Real::from(0.0));
                each("size", size)?;
                each("correction", correction)?;
                each("numerator", &mut over)?;
                *numerator = Some(over).filter(|over| over.get() != 0.0);
                Ok(())
            }
            Attrs::Pad(pad) => {
                let (widths, bits) = Arc::make_mut(pad);
                each("widths", widths)?;
                each("value", &mut Bits { bits, zero_is_default: false })
            }
            Attrs::Scatter { axis, size } => {
                each("dim", axis)?;
                each("size", size)
            }
            Attrs::ScatterInto { axis, mode } => {
                each("dim", axis)?;
                each("mode", mode)
            }
            Attrs::Size(size) => each("size", size),
            Attrs::Library { result, flag, size } => {
                each("result", result)?;
                each("flag", flag)?;
                each("size", size)
            }
            Attrs::Approximate(tanh) => {
                each("approximate", &mut Choice { value: tanh, names: ["none", "tanh"] })
            }
            Attrs::Norm { ndims, eps } => {
                each("ndims", ndims)?;
                each("eps", eps)
            }
            Attrs::Standardize { axes, eps } => {
                each("dim", axes)?;
                each("eps", eps)
            }
            Attrs::Windows(dims) => each("windows", Arc::<Vec<_>>::make_mut(dims)),
            Attrs::Conv(conv) => {
                let Conv { dims, groups } = Arc::make_mut(conv);
                each("windows", dims)?;
                each("groups", groups)
            }
            Attrs::Pool(pool) => {
                let Pool { dims, count_padding } = Arc::make_mut(pool);
                each("windows", dims)?;
                each("count_padding", count_padding)
            }
            Attrs::Attention { causal, scale } => {
                each("causal", causal)?;
                each("scale", scale)
            }
            Attrs::Control { result, control } => {
                let Control { regions, carries, slices, length, reverse } = Arc::make_mut(control);
                each("result", result)?;
                each("carries", &mut Count(carries))?;
                each("slices", &mut Count(slices))?;
                each("length", &mut Count(length))?;
                each("reverse", reverse)?;
                each(REGIONS, regions)
            }
        }
    }

    /// The attributes as text, `dim=1, keepdim=true`; empty for none.
    pub fn text(&self, cx: Context<'_>) -> String {
        let mut out = String::new();
        let _ = self.clone().fields(&mut |name, field| -> Result<(), ()> {
            if field.is_default(cx) {
                return Ok(());
            }
            out.push_str(if out.is_empty() { "" } else { ", " });
            out.push_str(name);
            out.push_str(if name.is_empty() { "" } else { "=" });
            field.print(cx, &mut out);
            Ok(())
        });
        out
    }
}

/// The field of the regions, which text has between braces behind the other attributes.
pub(crate) const REGIONS: &str = "regions";

/// Bytes being read, and how many graphs they are inside of.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub &'a [u8], pub usize);

impl<'a> Bytes<'a> {
    /// The next `n` bytes.
    ///
    /// Errors: what was expected, if there are fewer.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Expected> {
        match self.0.split_at_checked(n) {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(head)
            }
            None => Err(format!("{n} more bytes, found {}", self.0.len())),
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Expected> {
        Ok(self.take(N)?.try_into().expect("take gives that many"))
    }

    /// A count of things of at least `size` bytes each, refused if they cannot all follow.
    pub fn count(&mut self, size: usize) -> Result<usize, Expected> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        match count.checked_mul(size.max(1)) {
            Some(bytes) if bytes <= self.0.len() => Ok(count),
            _ => Err(format!("{count} elements of {size} bytes, found {} bytes", self.0.len())),
        }
    }
}

macro_rules! integer_fields {
    ($($ty:ty as $wide:ty, $max:expr;)*) => {
        $(impl Field for $ty {
            fn print(&self, _: Context<'_>, out: &mut String) {
                let _ = write!(out, "{self}");
            }

            fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
                let parsed = text.parse();
                *self = parsed.map_err(|_| {
                    format!("an integer from {} to {}", <$ty>::MIN, <$ty>::MAX)
                })?;
                Ok(())
            }

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&(*self as $wide).to_le_bytes());
            }

            fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
                let wide = <$wide>::from_le_bytes(bytes.array()?);
                *self = wide.try_into().map_err(|_| format!("at most {}", <$ty>::MAX))?;
                Ok(())
            }

            fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
                *self = below($max) as $ty;
            }
        })*
    };
}

integer_fields! {
    u8 as u8, 4;
    u32 as u32, 5;
    usize as u64, 5;
    i64 as i64, 5;
}

impl Field for bool {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = text.parse().map_err(|_| "true or false".to_string())?;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self = match bytes.array()? {
            [0] => false,
            [1] => true,
            [other] => return Err(format!("0 or 1, found {other}")),
        };
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = below(2) == 1;
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        *self = false;
        true
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        !*self
    }
}

impl Field for DType {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.short());
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let names = || DType::ALL.map(DType::short).join(", ");
        *self = DType::parse(text).map_err(|_| format!("a dtype: one of {}", names()))?;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(crate::pfgb::dtype_code(*self));
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let [code] = bytes.array()?;
        *self = crate::pfgb::dtype_of(code).ok_or(format!("a dtype's code, found {code}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = DType::ALL[below(DType::ALL.len())];
    }
}

impl Field for ScatterMode {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.name());
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let names = || ScatterMode::ALL.map(ScatterMode::name).join(", ");
        let found = ScatterMode::ALL.into_iter().find(|mode| mode.name() == text);
        *self = found.ok_or_else(|| format!("one of {}", names()))?;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let [code] = bytes.array()?;
        let mode = ScatterMode::ALL.get(code as usize);
        *self = *mode.ok_or_else(|| format!("a mode from 0 to 4, found {code}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = ScatterMode::ALL[below(ScatterMode::ALL.len())];
    }
}

impl Field for Real {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let literal = Literal { dtype: DType::F64, bits: self.get().to_bits() };
        out.push_str(&literal_text(literal));
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let bits = literal_bits(DType::F64, text).ok_or("a number")?;
        *self = f64::from_bits(bits).into();
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.get().to_bits().to_le_bytes());
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self = f64::from_bits(u64::from_le_bytes(bytes.array()?)).into();
        Ok(())
    }

    fn arbitrary(&mut self, _: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let values = [0.0, 1.0, 1e-5, 0.1, -0.0, f64::INFINITY, f64::NAN, -f64::NAN];
        *self = values[below(values.len())].into();
    }
}

impl Field for AxisSet {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self:?}");
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let mut axes = AxisSet::default();
        for item in list(text)? {
            let axis = item.parse().ok().filter(|&axis: &usize| axis < MAX_RANK);
            axes.insert(axis.ok_or("axes from 0 to 31")?);
        }
        *self = axes;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
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

    fn is_default(&self, cx: Context<'_>) -> bool {
        cx.rank.is_some_and(|rank| *self == AxisSet::all(rank))
    }
}

impl Field for Shape {
    fn print(&self, _: Context<'_>, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let size = |item: &str| Dim::parse(item).ok_or("a shape such as [2, 3]".to_string());
        let sizes = list(text)?.into_iter().map(size).collect::<Result<Vec<Dim>, _>>()?;
        if sizes.len() > MAX_RANK {
            return Err(format!("at most {MAX_RANK} dimensions, found {}", sizes.len()));
        }
        *self = sizes.into_iter().collect();
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(self, out);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let mut sizes: Vec<usize> = Vec::new();
        decode_list(&mut sizes, 8, bytes)?;
        if sizes.len() > MAX_RANK {
            return Err(format!("at most {MAX_RANK} dimensions, found {}", sizes.len()));
        }
        *self = sizes.into();
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

    fn is_default(&self, cx: Context<'_>) -> bool {
        cx.result == Some(self)
    }
}

impl Field for SliceDim {
    /// `start:end:step`; the end is the smallest that takes `size` elements.
    fn print(&self, _: Context<'_>, out: &mut String) {
        let last = self.size.saturating_sub(1).saturating_mul(self.step);
        let span = if self.size == 0 { 0 } else { last.saturating_add(1) };
        let _ = write!(out, "{}:{}:{}", self.start, self.start.saturating_add(span), self.step);
    }

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

    fn encode(&self, out: &mut Vec<u8>) {
        [self.start, self.size, self.step].iter().for_each(|v| v.encode(out));
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

/// Structures of sizes: their fields in order, joined by underscores.
macro_rules! size_fields {
    ($($ty:ident { $($field:ident),* } $example:literal;)*) => {
        $(impl Field for $ty {
            fn print(&self, _: Context<'_>, out: &mut String) {
                let sizes = [$(self.$field.to_string()),*];
                out.push_str(&sizes.join("_"));
            }

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

            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$field.encode(out);)*
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
impl<T: Field + Clone + Default> Field for Vec<T> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        print_list(self, cx, out);
    }

    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = parse_list(cx, text)?;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(self, out);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        // Every element takes a byte at least.
        decode_list(self, 1, bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        *self = vec![T::default(); arbitrary_len(cx, below)];
        self.iter_mut().for_each(|item| item.arbitrary(cx, below));
    }
}

/// Axes in an order, as of a permutation.
impl Field for SmallVec<[u8; 8]> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        print_list(self, cx, out);
    }

    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        *self = SmallVec::from_vec(parse_list(cx, text)?);
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        encode_list(self, out);
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

/// Mostly as many as there are axes.
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

fn parse_list<T: Field + Default>(cx: Context<'_>, text: &str) -> Result<Vec<T>, Expected> {
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

fn decode_list<T: Field + Default>(
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

/// The items of a bracketed list without lists inside.
pub(super) fn list(text: &str) -> Result<Vec<&str>, Expected> {
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let inner = inner.ok_or("a list in brackets")?.trim();
    Ok(if inner.is_empty() { Vec::new() } else { inner.split(',').map(str::trim).collect() })
}

/// A literal's bits, of the dtype that the context says.
struct Bits<'a> {
    bits: &'a mut u64,
    /// Zero prints nothing.
    zero_is_default: bool,
}

impl Field for Bits<'_> {
    fn print(&self, cx: Context<'_>, out: &mut String) {
        match cx.dtype {
            Some(dtype) => out.push_str(&literal_text(Literal { dtype, bits: *self.bits })),
            None => drop(write!(out, "{:#x}", self.bits)),
        }
    }

    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected> {
        let dtype = cx.dtype.ok_or("no value here")?;
        *self.bits = literal_bits(dtype, text)
            .ok_or_else(|| format!("a value of dtype {}", dtype.short()))?;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.bits.to_le_bytes());
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        *self.bits = u64::from_le_bytes(bytes.array()?);
        Ok(())
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let values = [0.0, 1.0, -1.0, 0.1, 1e30, -0.0, f64::INFINITY, f64::NAN];
        *self.bits = match (cx.dtype, below(values.len() + 1)) {
            (Some(dtype), n) if n < values.len() => Literal::from_f64(dtype, values[n]).bits,
            // Not a number, with something in it.
            (Some(DType::F32), _) => 0xffc0_1234,
            _ => 0,
        };
    }

    fn set_default(&mut self, _: Context<'_>) -> bool {
        if self.zero_is_default {
            *self.bits = 0;
        }
        self.zero_is_default
    }

    fn is_default(&self, _: Context<'_>) -> bool {
        self.zero_is_default && *self.bits == 0
    }
}

/// One of two names.
struct Choice<'a> {
    value: &'a mut bool,
    names: [&'static str; 2],
}

impl Field for Choice<'_> {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(self.names[*self.value as usize]);
    }

    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let found = self.names.iter().position(|name| *name == text);
        *self.value = found.ok_or_else(|| self.names.join(" or "))? == 1;
        Ok(())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.value.encode(out);
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        self.value.decode(bytes)
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        self.value.arbitrary(cx, below);
    }
}

/// A literal as text that gives back its bits: as it is shown if that does, else the bits.
pub(crate) fn literal_text(literal: Literal) -> String {
    let shown = literal.to_string();
    match literal_bits(literal.dtype, &shown) {
        Some(bits) if bits == literal.bits => shown,
        _ => format!("{:#x}", literal.bits),
    }
}

/// The bits of a value written as text: `true`, a number, or the bits themselves as `0x…`. `None`
/// if the dtype does not hold it.
pub(crate) fn literal_bits(dtype: DType, text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        let bits = u64::from_str_radix(hex, 16).ok()?;
        let fits = dtype.size() >= 8 || bits >> (8 * dtype.size()) == 0;
        return (fits && (dtype != DType::Bool || bits <= 1)).then_some(bits);
    }
    if dtype == DType::Bool {
        return text.parse::<bool>().ok().map(u64::from);
    }
    if let (Ok(value), true) = (text.parse::<i64>(), dtype.is_int()) {
        let literal = Literal::from_i64(dtype, value);
        return (literal.to_string() == value.to_string()).then_some(literal.bits);
    }
    if let (Ok(value), true) = (text.parse::<u64>(), dtype.is_int()) {
        let literal = Literal { dtype, bits: value };
        return (literal.to_string() == value.to_string()).then_some(value);
    }
    if dtype.is_int() {
        return None;
    }
    text.parse().ok().map(|value| Literal::from_f64(dtype, value).bits)
}
