//! Printing of tensors like NumPy arrays: values are aligned in columns with the digits that
//! distinguish them (limited by the precision), lines are wrapped, and the middle of long axes is
//! omitted.

mod digits;

use crate::{Result, Tensor};
use digits::Format;
use girih_ir::{DType, Shape};
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// How tensors are printed; see [`set_print_options`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrintOptions {
    /// The maximum number of digits after the decimal point.
    pub precision: usize,
    /// The number of elements above which long axes are shortened.
    pub threshold: usize,
    /// The number of elements shown at each end of a shortened axis.
    pub edgeitems: usize,
    /// The maximum number of characters of a line.
    pub linewidth: usize,
    /// Whether small numbers are written without an exponent, so that they may be printed as 0.
    pub suppress: bool,
}

impl PrintOptions {
    const DEFAULT: PrintOptions = PrintOptions {
        precision: 8,
        threshold: 1000,
        edgeitems: 3,
        linewidth: 75,
        suppress: false,
    };
}

impl Default for PrintOptions {
    /// NumPy's defaults.
    fn default() -> PrintOptions {
        PrintOptions::DEFAULT
    }
}

static OPTIONS: Mutex<PrintOptions> = Mutex::new(PrintOptions::DEFAULT);

/// The print options of this process.
pub fn print_options() -> PrintOptions {
    *OPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the print options of the whole process.
pub fn set_print_options(options: PrintOptions) {
    *OPTIONS.lock().unwrap_or_else(PoisonError::into_inner) = options;
}

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

    /// The texts of the shown elements, all of one width.
    fn texts(&self, shown: &[usize], dtype: DType, options: &PrintOptions) -> Vec<String> {
        let part = |v: &[f64]| shown.iter().map(|&i| v[i]).collect::<Vec<_>>();
        match self {
            // Bools are spelled as in NumPy and Python.
            Elements::Bool(v) => {
                shown.iter().map(|&i| if v[i] { " True" } else { "False" }.to_string()).collect()
            }
            Elements::Int(v) => {
                let texts: Vec<String> = shown.iter().map(|&i| v[i].to_string()).collect();
                let width = texts.iter().map(String::len).max().unwrap_or(0);
                texts.iter().map(|t| format!("{t:>width$}")).collect()
            }
            Elements::Complex(re, im) => {
                let (re, im) = (part(re), part(im));
                let real = Format::of(&re, dtype.real(), false, options);
                let imag = Format::of(&im, dtype.real(), true, options);
                let number = |(&re, &im): (&f64, &f64)| {
                    let imag = imag.text(im);
                    let digits = imag.trim_end();
                    format!("{}{digits}j{}", real.text(re), &imag[digits.len()..])
                };
                re.iter().zip(&im).map(number).collect()
            }
            Elements::Float(v) => {
                let v = part(v);
                let format = Format::of(&v, dtype, false, options);
                v.iter().map(|&v| format.text(v)).collect()
            }
        }
    }

    /// The only element as Python writes a number, with all digits that its dtype distinguishes.
    fn single(&self, dtype: DType) -> String {
        match self {
            Elements::Bool(v) => if v[0] { "True" } else { "False" }.to_string(),
            Elements::Int(v) => v[0].to_string(),
            Elements::Float(v) => digits::number(v[0], dtype, false),
            Elements::Complex(re, im) => {
                let (real, imag) =
                    (digits::part(re[0], dtype.real()), digits::part(im[0], dtype.real()));
                let sign = if im[0].is_sign_negative() { "" } else { "+" };
                match re[0] == 0.0 && re[0].is_sign_positive() {
                    true => format!("{imag}j"),
                    false => format!("({real}{sign}{imag}j)"),
                }
            }
        }
    }
}

/// Reads elements without recording a cast, since printing must not change the graph.
fn literals(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = girih_ir::Literal> {
    bytes.chunks_exact(dtype.size()).map(move |bytes| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        girih_ir::Literal { dtype, bits: u64::from_le_bytes(word) }
    })
}

impl Tensor {
    /// The values as text in NumPy's format: nested in brackets by axis, separated by spaces.
    pub fn values_text(&self) -> Result<String> {
        if self.rank() == 0 {
            return Ok(Elements::read(self)?.single(self.dtype()));
        }
        self.nested_text(" ", 0, 0)
    }

    /// The values as text, nested in brackets by axis, with `separator` between elements. `indent`
    /// is the number of characters before the first line, and `behind` the number of characters
    /// after the last line.
    pub fn nested_text(&self, separator: &str, indent: usize, behind: usize) -> Result<String> {
        let (shape, options) = (self.shape(), print_options());
        if shape.numel() == 0 {
            return Ok("[]".into());
        }
        let elements = Elements::read(self)?;
        let shorten = shape.numel() > options.threshold;
        let layout = Layout { shape: &shape, shorten, edge: options.edgeitems, separator };
        let mut shown = Vec::new();
        layout.visit(0, 0, &mut |i| shown.push(i));
        let texts = elements.texts(&shown, self.dtype(), &options);
        if shape.rank() == 0 {
            return Ok(texts.into_iter().next().unwrap_or_default().trim().to_string());
        }
        let width = options.linewidth.saturating_sub(behind);
        Ok(layout.nested(0, indent + 1, width, &mut texts.into_iter()))
    }

    /// The text of `tensor(...)`: values, shape if it is not visible from the values, and dtype.
    pub fn debug_text(&self) -> Result<String> {
        const HEAD: &str = "tensor(";
        let (spec, values) = (self.spec(), self.nested_text(", ", HEAD.len(), 1)?);
        let mut about = format!("dtype={})", spec.dtype);
        // The shape, if the brackets do not show it.
        let hidden = match spec.shape.numel() {
            0 => spec.shape[..] != [0],
            numel => numel > print_options().threshold,
        };
        if hidden {
            about = format!("shape={}, {about}", spec.shape);
        }
        let last = values.lines().next_back().unwrap_or_default().len();
        let first = if values.contains('\n') { 0 } else { HEAD.len() };
        let gap = match first + last + 2 + about.len() > print_options().linewidth {
            true => format!(",\n{:1$}", "", HEAD.len()),
            false => ", ".into(),
        };
        Ok(format!("{HEAD}{values}{gap}{about}"))
    }
}

/// The layout of the printed elements.
struct Layout<'a> {
    shape: &'a Shape,
    shorten: bool,
    edge: usize,
    separator: &'a str,
}

impl Layout<'_> {
    /// Positions shown along an axis, `None` for the gap.
    fn positions(&self, axis: usize) -> impl Iterator<Item = Option<usize>> + use<> {
        let (size, edge) = (self.shape[axis], self.edge);
        let gap = self.shorten && size > 2 * edge;
        let head = if gap { edge } else { size };
        let tail = if gap { size - edge } else { size };
        (0..head).map(Some).chain(gap.then_some(None)).chain((tail..size).map(Some))
    }

    // This function and `nested` recurse over axes, at most `MAX_RANK` deep.
    fn visit(&self, axis: usize, base: usize, f: &mut impl FnMut(usize)) {
        if axis == self.shape.rank() {
            return f(base);
        }
        for i in self.positions(axis).flatten() {
            self.visit(axis + 1, base * self.shape[axis] + i, f);
        }
    }

    /// An axis in brackets. `indent` is the number of characters before its elements, and `width`
    /// the width of a line without the closing brackets of the outer axes.
    fn nested(
        &self,
        axis: usize,
        indent: usize,
        width: usize,
        next: &mut impl Iterator<Item = String>,
    ) -> String {
        let inner = self.shape.rank() - axis - 1;
        let count = self.positions(axis).count();
        let mut out = String::from("[");
        // The column in the current line.
        let mut column = indent;
        for (n, position) in self.positions(axis).enumerate() {
            let last = n + 1 == count;
            let item = match position {
                None => "...".to_string(),
                Some(_) if inner == 0 => next.next().unwrap_or_default(),
                Some(_) => self.nested(axis + 1, indent + 1, width.saturating_sub(1), next),
            };
            if inner > 0 {
                out.push_str(&item);
                if !last {
                    out.push_str(self.separator.trim_end());
                    out.push_str(&"\n".repeat(inner));
                    out.push_str(&" ".repeat(indent));
                }
                continue;
            }
            let close = if last { 1 } else { self.separator.trim_end().len().max(1) };
            let length = item.chars().count();
            if column + length > width.saturating_sub(close) && column > indent {
                out.truncate(out.trim_end_matches(' ').len());
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                column = indent;
            }
            out.push_str(&item);
            column += length;
            if !last {
                out.push_str(self.separator);
                column += self.separator.len();
            }
        }
        out.push(']');
        out
    }
}

impl fmt::Display for Tensor {
    /// The values; evaluates the tensor if needed. If the tensor cannot be computed, the error is
    /// shown instead.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.values_text() {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "<{}: {error}>", self.spec()),
        }
    }
}

impl fmt::Debug for Tensor {
    /// Formats the metadata only, because debuggers call this function, which must not compute.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match (self.is_lazy(), self.is_scheduled()) {
            (_, true) => "scheduled",
            (true, _) => "lazy",
            (false, _) => "available",
        };
        write!(f, "Tensor({} {}, {state})", self.op_name(), self.spec())
    }
}
