//! Discrete Fourier transforms of rows: complex to complex, and between real rows and the first
//! half of their spectrum, whose other half is the conjugate.
//!
//! `y_k = sum_j x_j exp(-2 pi i j k / n)`; the inverse has the positive exponent. The sum is
//! divided by `n` only if the op requests it: `fft` by size 1, the other ops by the flag.

use super::rules::only;
use super::sort::{row_len, settings};
use super::*;
use crate::{GraphBuilder, NodeId};

/// Number of values in half of the spectrum of `n` real numbers.
pub fn half(n: usize) -> usize {
    n / 2 + 1
}

fn bad_rows(call: OpCall<'_>, reason: String) -> Error {
    Error::InvalidShape { op: call.name(), shape: call.inputs[0].shape.clone(), reason }
}

/// Fails for rows without elements; returns their length.
fn filled(call: OpCall<'_>) -> Result<usize> {
    match row_len(call, call.inputs[0])?.get() {
        0 => Err(bad_rows(call, "rows of at least one element are needed".into())),
        n => Ok(n),
    }
}

fn complex(call: OpCall<'_>) -> Result<()> {
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, dtype.is_complex(), "complex64 or complex128")
}

/// The operand's spec with rows of length `len`.
fn with_rows(call: OpCall<'_>, len: usize, dtype: DType) -> TensorSpec {
    let shape = &call.inputs[0].shape;
    TensorSpec { shape: shape.with_dim(shape.rank() - 1, len), dtype }
}

fn fft(call: OpCall<'_>) -> Result<TensorSpec> {
    let (_, _, scaled) = settings(call, 1)?;
    complex(call)?;
    filled(call)?;
    if scaled > 1 {
        let reason = format!("the size is 1 for division by the length, else 0, got {scaled}");
        return Err(Error::InvalidArgument { op: call.name(), reason });
    }
    Ok(call.inputs[0].clone())
}

fn rfft(call: OpCall<'_>) -> Result<TensorSpec> {
    settings(call, 1)?;
    let dtype = call.inputs[0].dtype;
    require_dtype(call, dtype, matches!(dtype, DType::F32 | DType::F64), "float32 or float64")?;
    Ok(with_rows(call, half(filled(call)?), dtype.complex()))
}

fn irfft(call: OpCall<'_>) -> Result<TensorSpec> {
    let (_, _, size) = settings(call, 1)?;
    complex(call)?;
    let (len, size) = (filled(call)?, size as usize);
    if size == 0 || half(size) != len {
        let wanted = match size {
            0 => "the result needs at least one element".to_string(),
            n => format!("{n} real numbers have a spectrum of {}", half(n)),
        };
        return Err(bad_rows(call, wanted));
    }
    Ok(with_rows(call, size, call.inputs[0].dtype.real()))
}

/// Multiplies half a spectrum of `n` real numbers by a factor, except the values without a mirror
/// image: the first and, for even `n`, the last.
fn weighted(b: &mut GraphBuilder, x: NodeId, n: usize, factor: f64) -> Result<NodeId> {
    let index = b.iota([half(n)], DType::I64, 0);
    let first = b.scalar_like(index, 0.0);
    let mut alone = b.eq(index, first)?;
    if n.is_multiple_of(2) {
        let last = b.scalar_like(index, (n / 2) as f64);
        let is_last = b.eq(index, last)?;
        alone = b.bitwise_or(alone, is_last)?;
    }
    let factor = b.scalar_like(x, factor);
    let scaled = b.mul(x, factor)?;
    b.select(alone, x, scaled)
}

/// The transform's matrix is symmetric, so the transpose is the transform itself.
fn fft_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    only(v.b.emit(v.op.clone(), &[v.ct])?)
}

/// `x_j = real(sum_k ct_k exp(-2 pi i j k / n))` over the half spectrum. This is an inverse
/// transform of the conjugate, in which values with a mirror image count twice.
fn rfft_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (_, scaled, _) = v.op.attrs.library();
    let shape = v.b.shape(v.inputs[0]).clone();
    let n = shape.dim(shape.rank() - 1).get();
    let size = u32::try_from(n).map_err(|_| Error::InvalidShape {
        op: v.op.name(),
        shape,
        reason: format!("rows are too long to take a gradient; at most {}", u32::MAX),
    })?;
    let conj = v.b.conj(v.ct)?;
    let spectrum = weighted(v.b, conj, n, 0.5)?;
    let attrs = Attrs::Library { result: 0, flag: scaled, size };
    only(v.b.emit(Op::new(OpCode::Irfft, attrs), &[spectrum])?)
}

fn irfft_vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let (_, scaled, size) = v.op.attrs.library();
    let spectrum = v.b.emit(Op::new(OpCode::Rfft, Attrs::routine(scaled)), &[v.ct])?;
    let conj = v.b.conj(spectrum)?;
    only(weighted(v.b, conj, size as usize, 2.0)?)
}

const TRANSFORM: OpDef = OpDef {
    class: Class::Library,
    arity: (1, 1),
    infer: fft,
    derivative: Derivative::Rule(fft_vjp),
    samples: samples::spectra,
    ..OpDef::BLANK
};

/// The transform of complex rows: forward, or inverse with the flag. With size 1 it is divided by
/// the rows' length.
pub static FFT: OpDef = OpDef {
    linear: Linearity::All,
    name: "fft",
    doc: "The discrete Fourier transform of complex rows, forward or inverse.",
    python: Python::Named("fft.fft"),
    ..TRANSFORM
};
/// The first half of the forward transform of real rows; with the flag, divided by their length.
pub static RFFT: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::resized_rows),
    name: "rfft",
    doc: "The first half of the discrete Fourier transform of real rows.",
    infer: rfft,
    derivative: Derivative::Rule(rfft_vjp),
    python: Python::Named("fft.rfft"),
    ..TRANSFORM
};
/// The inverse transform of half a spectrum to real rows of length `size`; with the flag, divided
/// by `size`. Imaginary parts of values without a mirror image are treated as zero.
pub static IRFFT: OpDef = OpDef {
    linear: Linearity::All,
    factors: Factoring::Rule(factoring::resized_rows),
    name: "irfft",
    doc: "The real rows that half of a spectrum belongs to, by the inverse transform.",
    infer: irfft,
    derivative: Derivative::Rule(irfft_vjp),
    python: Python::Named("fft.irfft"),
    ..TRANSFORM
};
