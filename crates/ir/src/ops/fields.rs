//! The fields of attributes. Each kind of attributes lists its fields once, in the macro `fields`.
//! The text form, the binary form, the key of a graph and generated samples follow from that list.

mod control;
mod host;
mod lists;
mod named;
mod scalars;
mod sharding;
mod symbolic;

use self::control::Count;
pub use self::named::{Given, Mismatch, takes};
use self::scalars::{Bits, Choice};
use self::symbolic::{Bounds, Numerator};
use super::collective::NamedAxis;
use super::control::Control;
use super::conv::Conv;
use super::pool::Pool;
use super::{Attrs, OfSize};
use crate::dim::Symbol;
use crate::{DType, Dim, OpCode, Shape};
use girih_sync::LazyLock;
use std::convert::Infallible;
use std::sync::Arc;

/// The facts about a node that printing or parsing its attributes depends on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// Rank of the first operand, since a reduction reduces all axes by default.
    pub rank: Option<usize>,
    /// Dtype of literals: a leaf's own dtype, otherwise the first operand's.
    pub dtype: Option<DType>,
    /// Shape of the result, which follows in the text; the default of a target shape.
    pub result: Option<&'a Shape>,
    /// The declared symbols.
    pub symbols: &'a [&'static Symbol],
}

/// Why a field could not be read: what was expected.
pub type Expected = String;

/// The value of one attribute, for reading: how the value is printed and encoded.
///
/// A new type of value implements this trait and [`FieldMut`]; a new kind of attributes only lists
/// its fields.
pub trait Field {
    /// Appends the value as text: no comma outside brackets or quotes, no line breaks.
    fn print(&self, cx: Context<'_>, out: &mut String);

    /// Appends the value as bytes, little-endian.
    fn encode(&self, out: &mut Vec<u8>);

    /// Appends the bytes that stand for the value in the key of a graph. Different values of one
    /// type have different bytes, and the bytes of one value are never a prefix of the bytes of
    /// another value.
    fn encode_key(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    /// True if the value is the default that the text form omits.
    fn is_default(&self, _cx: Context<'_>) -> bool {
        false
    }
}

/// The value of one attribute, for changing: how the value is parsed and decoded.
pub trait FieldMut: Field {
    /// Parses the text that `print` writes.
    ///
    /// Errors: what was expected, as a continuation of the word "expected".
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected>;

    /// Reads the bytes that `encode` writes. Never reserves more memory than there are bytes.
    ///
    /// Errors: what was expected.
    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected>;

    /// Fills in a small random value. `below(n)` draws from `0..n`.
    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize);

    /// If the text form omits a default value, sets it and returns true.
    fn set_default(&mut self, _cx: Context<'_>) -> bool {
        false
    }
}

impl OpCode {
    /// Attributes of the op's kind, with meaningless values. The op's first sample determines the
    /// kind.
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

/// The inside of a shared attribute, to be read or changed.
trait Inside {
    type Inside;
    fn inside(self) -> Self::Inside;
}

impl<'a, T> Inside for &'a Arc<T> {
    type Inside = &'a T;

    fn inside(self) -> &'a T {
        self
    }
}

/// Copies the attribute if it has other owners.
impl<'a, T: Clone> Inside for &'a mut Arc<T> {
    type Inside = &'a mut T;

    fn inside(self) -> &'a mut T {
        Arc::make_mut(self)
    }
}

/// Visits the fields of attributes with their names, in the order of the text form. The empty name
/// marks a positional value. This list alone defines the fields of each kind of attributes; it is
/// expanded for fields that are read, and with `mut` for fields that are changed.
macro_rules! fields {
    ($attrs:expr, $each:expr $(, $m:tt)?) => {
        match $attrs {
            Attrs::None => Ok(()),
            Attrs::Axis(axis) => $each("dim", axis),
            Attrs::Axes { axes, keepdims } => {
                $each("dim", axes)?;
                $each("keepdim", keepdims)
            }
            Attrs::Moments { axes, keepdims, correction } => {
                $each("dim", axes)?;
                $each("keepdim", keepdims)?;
                $each("correction", correction)
            }
            Attrs::DType(dtype) => $each("", dtype),
            Attrs::Value(bits) => $each("", &$($m)? Bits { bits, zero_is_default: true }),
            Attrs::Shape(shape) => $each("shape", shape.inside()),
            Attrs::Perm(perm) => $each("perm", perm.inside()),
            Attrs::Slice(dims) => $each("bounds", dims.inside()),
            Attrs::SliceOf(of) => {
                let (dims, result) = of.inside();
                $each("bounds", &$($m)? Bounds { dims, result })
            }
            Attrs::OfSize(of) => {
                let OfSize { size, correction, numerator } = of.inside();
                $each("size", size)?;
                $each("correction", correction)?;
                $each("numerator", &$($m)? Numerator(numerator))
            }
            Attrs::Pad(pad) => {
                let (widths, bits) = pad.inside();
                $each("widths", widths)?;
                $each("value", &$($m)? Bits { bits, zero_is_default: false })
            }
            Attrs::Scatter { axis, size } => {
                $each("dim", axis)?;
                $each("size", size)
            }
            Attrs::ScatterInto { axis, mode } => {
                $each("dim", axis)?;
                $each("mode", mode)
            }
            Attrs::Size(size) => $each("size", size),
            Attrs::Part { result, axis, at } => {
                $each("result", result)?;
                $each("dim", axis)?;
                $each("at", at.inside())
            }
            Attrs::Library { result, flag, size } => {
                $each("result", result)?;
                $each("flag", flag)?;
                $each("size", size)
            }
            Attrs::Devices { from, to } => {
                $each("from", from)?;
                $each("to", to)
            }
            Attrs::Sharding(sharding) => $each("to", sharding.inside()),
            Attrs::NamedAxis(axis) => {
                let NamedAxis { name, size } = axis.inside();
                $each("axis", name)?;
                $each("size", size)
            }
            Attrs::Approximate(tanh) => {
                $each("approximate", &$($m)? Choice { value: tanh, names: ["none", "tanh"] })
            }
            Attrs::Norm { ndims, eps } => {
                $each("ndims", ndims)?;
                $each("eps", eps)
            }
            Attrs::Standardize { axes, eps } => {
                $each("dim", axes)?;
                $each("eps", eps)
            }
            Attrs::Windows(dims) => $each("windows", dims.inside()),
            Attrs::Conv(conv) => {
                let Conv { dims, groups } = conv.inside();
                $each("windows", dims)?;
                $each("groups", groups)
            }
            Attrs::Pool(pool) => {
                let Pool { dims, count_padding } = pool.inside();
                $each("windows", dims)?;
                $each("count_padding", count_padding)
            }
            Attrs::Attention { causal, scale } => {
                $each("causal", causal)?;
                $each("scale", scale)
            }
            Attrs::Host { result, call } => {
                $each("result", result)?;
                $each("call", call.inside())
            }
            Attrs::Control { result, control } => {
                let Control { regions, carries, slices, length, reverse, mode, saves, later: _ } =
                    control.inside();
                $each("result", result)?;
                $each("carries", &$($m)? Count(carries))?;
                $each("slices", &$($m)? Count(slices))?;
                $each("length", &$($m)? Count(length))?;
                $each("reverse", reverse)?;
                $each("mode", mode)?;
                $each("saves", &$($m)? Count(saves))?;
                $each(REGIONS, regions)
            }
        }
    };
}

impl Attrs {
    /// Visits the fields with their names, in the order of the text form. The empty name marks a
    /// positional value.
    pub fn fields(&self, each: &mut impl FnMut(&'static str, &dyn Field)) {
        let Ok(()) = self.try_fields(&mut |name, field| -> Result<(), Infallible> {
            each(name, field);
            Ok(())
        });
    }

    fn try_fields<E>(
        &self,
        each: &mut impl FnMut(&'static str, &dyn Field) -> Result<(), E>,
    ) -> Result<(), E> {
        fields!(self, each)
    }

    /// Visits the fields as [`Attrs::fields`] does, to change them.
    ///
    /// Errors: the first error of `each`.
    pub fn fields_mut<E>(
        &mut self,
        each: &mut impl FnMut(&'static str, &mut dyn FieldMut) -> Result<(), E>,
    ) -> Result<(), E> {
        fields!(self, each, mut)
    }

    /// The kind of attributes among those of one op: 0 without attributes, 2 if they hold symbolic
    /// sizes, otherwise 1.
    pub(crate) fn kind(&self) -> u8 {
        match self {
            Attrs::None => 0,
            Attrs::SliceOf(_) | Attrs::OfSize(_) => 2,
            _ => 1,
        }
    }

    /// The attributes in the text form, `dim=1, keepdim=true`; empty for none.
    pub fn text(&self, cx: Context<'_>) -> String {
        let mut out = String::new();
        self.fields(&mut |name, field| {
            if field.is_default(cx) {
                return;
            }
            out.push_str(if out.is_empty() { "" } else { ", " });
            out.push_str(name);
            out.push_str(if name.is_empty() { "" } else { "=" });
            field.print(cx, &mut out);
        });
        out
    }
}

/// Name of the regions' field, which the text form prints in braces after the other attributes.
pub(crate) const REGIONS: &str = "regions";

/// Bytes to decode, and facts about the file that contains them.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    /// The remaining bytes.
    pub rest: &'a [u8],
    /// Nesting depth of the graph that contains the bytes.
    pub depth: usize,
    /// The file's symbols; None if its sizes are numbers.
    pub symbols: Option<&'a [&'static Symbol]>,
}

/// Longest expression accepted from a file, since parsing takes quadratic time in the number of
/// terms.
const MAX_EXPRESSION: usize = 4096;

/// Encodes a size: a number, or, with the highest bit set, the length of an expression's text,
/// which follows.
pub(crate) fn encode_dim(dim: Dim, out: &mut Vec<u8>) {
    match dim.expr() {
        None => out.extend_from_slice(&(dim.hint() as u64).to_le_bytes()),
        Some(expr) => encode_expression(&expr.to_string(), out),
    }
}

fn encode_expression(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u64 | 1 << 63).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Reads a size that [`encode_dim`] has written.
pub(crate) fn decode_dim(bytes: &mut Bytes<'_>) -> Result<Dim, Expected> {
    let word = u64::from_le_bytes(bytes.array()?);
    if word >> 63 == 0 {
        return Ok(Dim::from(usize::try_from(word).map_err(|_| format!("a size, found {word}"))?));
    }
    let Some(symbols) = bytes.symbols else {
        return Err(format!("a size, found {}", word as i64));
    };
    let len = (word & !(1 << 63)) as usize;
    if len > MAX_EXPRESSION {
        return Err(format!("an expression of at most {MAX_EXPRESSION} bytes, found {len}"));
    }
    let text = crate::pfgb::utf8(bytes.take(len)?)?;
    let dim = Dim::parse_over(&text, symbols);
    dim.ok_or_else(|| format!("a size such as batch*4, found '{text}'"))
}

impl<'a> Bytes<'a> {
    /// The next `n` bytes.
    ///
    /// Errors: what was expected, if fewer bytes remain.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Expected> {
        match self.rest.split_at_checked(n) {
            Some((head, tail)) => {
                self.rest = tail;
                Ok(head)
            }
            None => Err(format!("{n} more bytes, found {}", self.rest.len())),
        }
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Expected> {
        Ok(self.take(N)?.try_into().expect("take gives that many"))
    }

    /// Reads a count of items of at least `size` bytes each; an error if the remaining bytes cannot
    /// hold them.
    pub fn count(&mut self, size: usize) -> Result<usize, Expected> {
        let count = u32::from_le_bytes(self.array()?) as usize;
        match count.checked_mul(size.max(1)) {
            Some(bytes) if bytes <= self.rest.len() => Ok(count),
            _ => Err(format!("{count} elements of {size} bytes, found {} bytes", self.rest.len())),
        }
    }
}
