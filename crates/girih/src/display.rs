//! Printing of tensors: computes them and shows values the way NumPy does, shortened in the middle
//! of long axes.

use crate::{Result, Tensor};
use girih_ir::{DType, Shape};
use std::fmt;

/// Elements beyond which axes are shortened.
const THRESHOLD: usize = 1000;
/// Elements shown at each end of a shortened axis.
const EDGE: usize = 3;

enum Elements {
    Float(Vec<f64>),
    Int(Vec<i128>),
    Complex(Vec<f64>, Vec<f64>),
    Bool(Vec<bool>),
}

impl Elements {
    fn read(tensor: &Tensor) -> Result<Elements> {
        let bytes = tensor.to_bytes()?;
        Ok(match tensor.dtype() {
            DType::Bool => Elements::Bool(bytes.iter().map(|&b| b != 0).collect()),
            d if d.is_complex() => {
                let parts = literals(d.real(), &bytes).map(|l| l.as_f64()).collect::<Vec<_>>();
                let part = |i| parts.iter().skip(i).step_by(2).copied().collect();
                Elements::Complex(part(0), part(1))
            }
            d if d.is_float() => Elements::Float(literals(d, &bytes).map(|l| l.as_f64()).collect()),
            d => Elements::Int(literals(d, &bytes).map(|l| l.as_int()).collect()),
        })
    }

    fn texts(&self, shown: &[usize], single: bool) -> Vec<String> {
        match self {
            // NumPy's spelling, and Python's.
            Elements::Bool(v) => {
                let name = |i: &usize| if v[*i] { "True" } else { "False" };
                shown.iter().map(|i| name(i).to_string()).collect()
            }
            Elements::Int(v) => shown.iter().map(|&i| v[i].to_string()).collect(),
            Elements::Complex(re, im) => {
                let part = |v: &[f64]| shown.iter().map(|&i| v[i]).collect::<Vec<_>>();
                let imag = floats(&part(im).iter().map(|v| v.abs()).collect::<Vec<_>>(), single);
                let sign = |i: &usize| if im[*i].is_sign_negative() { '-' } else { '+' };
                let number = |((i, re), im)| format!("{re}{}{im}j", sign(i));
                shown.iter().zip(floats(&part(re), single)).zip(imag).map(number).collect()
            }
            Elements::Float(v) => floats(&shown.iter().map(|&i| v[i]).collect::<Vec<_>>(), single),
        }
    }
}

/// Read without recording a cast: printing must not change the graph.
fn literals(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = girih_ir::Literal> {
    bytes.chunks_exact(dtype.size()).map(move |bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        girih_ir::Literal { dtype, bits: u64::from_le_bytes(word) }
    })
}

/// All in one notation: fixed with as many digits as needed, at most four in a row of many;
/// scientific if the magnitudes lie far apart or far from one.
fn floats(values: &[f64], single: bool) -> Vec<String> {
    let finite = values.iter().filter(|v| v.is_finite() && **v != 0.0).map(|v| v.abs());
    let (low, high) = finite.fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let scientific = high >= 1e8 || (low < 1e-4 && high > 0.0) || (high / low > 1e5 && low < 1e-2);
    let digits = if single { 8 } else { 4 };
    let number = |v: f64| match v {
        v if v.is_nan() => "nan".to_string(),
        v if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.to_string(),
        v if scientific => format!("{v:.digits$e}"),
        v => {
            let text = format!("{v:.digits$}");
            let short = text.trim_end_matches('0');
            short.to_string()
        }
    };
    values.iter().map(|&v| number(v)).collect()
}

impl Tensor {
    /// The values as text, nested in brackets by axis.
    pub fn values_text(&self) -> Result<String> {
        let elements = Elements::read(self)?;
        let shape = self.shape();
        let shorten = shape.numel() > THRESHOLD;
        let mut shown = Vec::new();
        visit(&shape, shorten, 0, 0, &mut |i| shown.push(i));
        let single = self.dtype() != DType::F16 && shape.rank() == 0;
        let texts = elements.texts(&shown, single);
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        let mut out = String::new();
        let mut next = texts.iter().map(|t| format!("{t:>width$}"));
        nest(&shape, shorten, 0, &mut next, &mut out);
        Ok(out)
    }
}

/// Positions shown along an axis, `None` for the gap.
fn positions(size: usize, shorten: bool) -> Vec<Option<usize>> {
    if shorten && size > 2 * EDGE {
        (0..EDGE).map(Some).chain([None]).chain((size - EDGE..size).map(Some)).collect()
    } else {
        (0..size).map(Some).collect()
    }
}

// Recursion here and below is over axes, at most `MAX_RANK` deep.
fn visit(shape: &Shape, shorten: bool, axis: usize, base: usize, f: &mut impl FnMut(usize)) {
    if axis == shape.rank() {
        return f(base);
    }
    for i in positions(shape[axis], shorten).into_iter().flatten() {
        visit(shape, shorten, axis + 1, base * shape[axis] + i, f);
    }
}

fn nest(
    shape: &Shape,
    shorten: bool,
    axis: usize,
    next: &mut impl Iterator<Item = String>,
    out: &mut String,
) {
    if axis == shape.rank() {
        out.push_str(&next.next().unwrap_or_default());
        return;
    }
    out.push('[');
    let inner = shape.rank() - axis - 1;
    for (n, position) in positions(shape[axis], shorten).into_iter().enumerate() {
        if n > 0 {
            match inner {
                0 => out.push_str(", "),
                _ => {
                    out.push(',');
                    out.push_str(&"\n".repeat(inner));
                    out.push_str(&" ".repeat(axis + 1));
                }
            }
        }
        match position {
            None => out.push_str("..."),
            Some(_) => nest(shape, shorten, axis + 1, next, out),
        }
    }
    out.push(']');
}

impl fmt::Display for Tensor {
    /// The values; computes them if need be. A tensor that cannot be computed shows why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values_text() {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "<{}: {error}>", self.spec()),
        }
    }
}

impl fmt::Debug for Tensor {
    /// Metadata only: debuggers call this, and it must not compute.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_lazy(), self.is_scheduled()) {
            (_, true) => "scheduled",
            (true, _) => "lazy",
            (false, _) => "available",
        };
        write!(f, "Tensor({} {}, {state})", self.op_name(), self.spec())
    }
}
