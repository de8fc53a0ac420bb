//! Reference semantics of Fourier transforms: their defining sums, in f64.

use girih_ir::ops::fft::half;
use girih_ir::{DType, Element, Literal, Node, OpCode};
use num_complex::Complex64;

/// The transform of one row.
pub(super) fn transform(node: &Node, row: &[Element]) -> Vec<Element> {
    let (_, flag, size) = node.op.attrs.library();
    let x: Vec<Complex64> = row.iter().map(|e| e.complex()).collect();
    let n = x.len();
    let (y, divided) = match node.op.code {
        OpCode::Fft => (sums(&x, if flag { 1.0 } else { -1.0 }), size == 1),
        OpCode::Rfft => (sums(&x, -1.0)[..half(n)].to_vec(), flag),
        _ => (sums(&whole(&x, size as usize), 1.0), flag),
    };
    let length = if node.op.code == OpCode::Irfft { size as f64 } else { n as f64 };
    let dtype: DType = node.spec.dtype;
    let value = |v: &Complex64| {
        let v = if divided { v / length } else { *v };
        match dtype.is_complex() {
            true => Element::from_complex(dtype, v),
            false => Literal::from_f64(dtype, v.re).into(),
        }
    };
    y.iter().map(value).collect()
}

/// `y_k = sum_j x_j exp(sign 2 pi i j k / n)`.
fn sums(x: &[Complex64], sign: f64) -> Vec<Complex64> {
    let n = x.len();
    let step = sign * std::f64::consts::TAU / n as f64;
    // Reduce angles modulo a full turn, so that they are small and accurate.
    let factor = |j: usize, k: usize| Complex64::from_polar(1.0, step * (j * k % n) as f64);
    (0..n).map(|k| x.iter().enumerate().map(|(j, x)| x * factor(j, k)).sum()).collect()
}

/// The spectrum of `n` real numbers from its first half.
fn whole(x: &[Complex64], n: usize) -> Vec<Complex64> {
    let value = |k: usize| match k {
        0 => x[0].re.into(),
        k if 2 * k == n => x[k].re.into(),
        k if k < x.len() => x[k],
        k => x[n - k].conj(),
    };
    (0..n).map(value).collect()
}
