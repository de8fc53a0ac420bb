//! Fourier transforms as kernels against the sums that define them, for lengths of every algorithm.

use super::*;
use girih_ir::Element;
use girih_ir::ops::fft::half;
use num_complex::Complex64;

/// Numbers between -1 and 1.
fn spread(rows: usize, len: usize, dtype: DType) -> Array {
    let part = |i: usize, by: f64| 2.0 * (i as f64 * by).fract() - 1.0;
    let number = |i| match dtype.is_complex() {
        true => Element::from_complex(dtype, Complex64::new(part(i, 0.618), part(i, 0.271))),
        false => Literal::from_f64(dtype, part(i, 0.618)).into(),
    };
    Array::new(TensorSpec::new([rows, len], dtype), (0..rows * len).map(number))
}

/// Compares a kernel with the reference; the tolerance is for sums of `n` numbers of at most 2.
fn check(op: &Op, data: Array, n: usize, epsilon: f64) {
    let g = graph(|b| {
        let x = b.input(data.spec().clone());
        Ok(vec![b.emit(op.clone(), &[x])?])
    });
    let arguments = [data];
    let want = &evaluate(&g, &arguments).unwrap()[0];
    let got = run_arrays(&lowered(&g, FusionOptions::ALL), &arguments, want.spec());
    let most = if op.attrs.library().1 { 2.0 } else { 2.0 * n as f64 };
    let slack = 2.0 * epsilon * most * (1.0 + (n as f64).log2());
    for (i, (got, want)) in got.elements().zip(want.elements()).enumerate() {
        let (a, b) = (got.complex(), want.complex());
        assert!((a - b).norm() <= slack, "{op:?} of {n}: element {i} is {a}, not {b}");
    }
}

#[test]
fn transforms_of_any_length_agree_with_the_dft_sum() {
    for n in (1..30).chain([31, 64, 97, 100, 128]) {
        // Enough rows for several chunks, the last one shorter.
        let rows = if n == 5 { 2003 } else { 3 };
        for (real, complex, epsilon) in
            [(DType::F32, DType::C64, 6e-8), (DType::F64, DType::C128, 2.3e-16)]
        {
            for flag in [false, true] {
                let op = |code, size| Op::new(code, Attrs::Library { result: 0, flag, size });
                check(&op(OpCode::Fft, flag as u32), spread(rows, n, complex), n, epsilon);
                check(&op(OpCode::Rfft, 0), spread(rows, n, real), n, epsilon);
                let spectra = spread(rows, half(n), complex);
                check(&op(OpCode::Irfft, n as u32), spectra, n, epsilon);
            }
        }
    }
}

#[test]
fn transforms_of_unsupported_lengths_and_dtypes_are_refused() {
    let refused = |code, size, len, dtype| {
        let spec = TensorSpec::new([2, len], dtype);
        let op = Op::new(code, Attrs::Library { result: 0, flag: false, size });
        op.infer(&[&spec]).unwrap_err().to_string()
    };
    let empty = refused(OpCode::Fft, 0, 0, DType::C64);
    assert!(empty.contains("at least one element"), "{empty}");
    let size = refused(OpCode::Fft, 2, 3, DType::C64);
    assert!(size.contains("got 2"), "{size}");
    let real = refused(OpCode::Fft, 0, 3, DType::F32);
    assert!(real.contains("complex64 or complex128"), "{real}");
    let half = refused(OpCode::Rfft, 0, 3, DType::F16);
    assert!(half.contains("float32 or float64"), "{half}");
    let long = refused(OpCode::Irfft, 8, 4, DType::C64);
    assert!(long.contains("8 real numbers have a spectrum of 5"), "{long}");
    let none = refused(OpCode::Irfft, 0, 1, DType::C64);
    assert!(none.contains("at least one element"), "{none}");
}
