//! The fields of attributes. Each kind of attributes lists its fields once, in [`Attrs::fields`];
//! the text form, the binary form and generated samples all follow from that list.

mod control;
mod host;
mod lists;
mod named;
mod scalars;
mod symbolic;

use self::control::Count;
pub use self::named::{Given, Mismatch, takes};
use self::scalars::{Bits, Choice};
use self::symbolic::Bounds;
use super::collective::NamedAxis;
use super::control::Control;
use super::conv::Conv;
use super::host::HostCall;
use super::pool::Pool;
use super::{Attrs, OfSize, Real};
use crate::dim::Symbol;
use crate::{DType, Dim, OpCode, Shape};
use girih_sync::LazyLock;
use smallvec::SmallVec;
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

/// One attribute's value: how it is printed and parsed, encoded and decoded.
///
/// A new type of value implements this trait; a new kind of attributes only lists its fields.
pub trait Field {
    /// Appends the value as text: no comma outside brackets or quotes, no line breaks.
    fn print(&self, cx: Context<'_>, out: &mut String);

    /// Parses the text that `print` writes.
    ///
    /// Errors: what was expected, as a continuation of the word "expected".
    fn parse(&mut self, cx: Context<'_>, text: &str) -> Result<(), Expected>;

    /// Appends the value as bytes, little-endian.
    fn encode(&self, out: &mut Vec<u8>);

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

    /// True if the value is the default that the text form omits.
    fn is_default(&self, _cx: Context<'_>) -> bool {
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

impl Attrs {
    /// Visits the fields with their names, in the order of the text form. The empty name marks a
    /// positional value. This function alone defines the fields of each kind of attributes.
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
            Attrs::Part { result, axis, at } => {
                each("result", result)?;
                each("dim", axis)?;
                each("at", Arc::<Vec<usize>>::make_mut(at))
            }
            Attrs::Library { result, flag, size } => {
                each("result", result)?;
                each("flag", flag)?;
                each("size", size)
            }
            Attrs::Devices { from, to } => {
                each("from", from)?;
                each("to", to)
            }
            Attrs::NamedAxis(axis) => {
                let NamedAxis { name, size } = Arc::make_mut(axis);
                each("axis", name)?;
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
            Attrs::Host { result, call } => {
                each("result", result)?;
                each("call", Arc::<HostCall>::make_mut(call))
            }
            Attrs::Control { result, control } => {
                let Control { regions, carries, slices, length, reverse, mode, saves, later: _ } =
                    Arc::make_mut(control);
                each("result", result)?;
                each("carries", &mut Count(carries))?;
                each("slices", &mut Count(slices))?;
                each("length", &mut Count(length))?;
                each("reverse", reverse)?;
                each("mode", mode)?;
                each("saves", &mut Count(saves))?;
                each(REGIONS, regions)
            }
        }
    }

    /// The attributes in the text form, `dim=1, keepdim=true`; empty for none.
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
        Some(expr) => {
            let text = expr.to_string();
            out.extend_from_slice(&(text.len() as u64 | 1 << 63).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
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
