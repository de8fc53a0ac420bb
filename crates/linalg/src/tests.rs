//! The defining properties of each factorisation, for real and complex matrices of all shapes.

use super::*;
use num_complex::Complex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type C = Complex<f64>;

/// Distinct numbers that are not evenly spaced.
fn numbers(count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(|i| ((i as f64 + 0.7) * 0.618_033_988_75).fract() * 4.0 - 2.0)
}

fn real(rows: usize, columns: usize) -> Vec<f64> {
    numbers(rows * columns).collect()
}

fn complex(rows: usize, columns: usize) -> Vec<C> {
    let n = rows * columns;
    numbers(n).zip(numbers(2 * n).skip(n)).map(|(re, im)| C::new(re, im)).collect()
}

fn times<T: Scalar>(a: &[T], b: &[T], m: usize, k: usize, n: usize) -> Vec<T> {
    let sum =
        |i: usize, j: usize| (0..k).fold(T::default(), |sum, p| sum + a[i * k + p] * b[p * n + j]);
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

#[track_caller]
fn same<T: Scalar<Real = f64>>(a: &[T], b: &[T]) {
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(b).map(|(&a, &b)| (a - b).modulus()).fold(0.0, f64::max);
    let size = a.iter().map(|x| x.modulus()).fold(1.0, f64::max);
    assert!(apart < 1e-12 * size, "{apart} apart: {a:?} and {b:?}");
}

#[track_caller]
fn orthonormal<T: Scalar<Real = f64>>(q: &[T], rows: usize, columns: usize) {
    same(&times(&adjoint(q, rows, columns), q, columns, rows, columns), &eye(columns, columns));
}

fn diagonal<T: Scalar<Real = f64>>(s: &[f64], rows: usize, columns: usize) -> Vec<T> {
    let mut out = vec![T::default(); rows * columns];
    s.iter().enumerate().for_each(|(i, &s)| out[i * columns + i] = T::real(s));
    out
}

fn triangle<T>(a: &[T], n: usize, upper: bool) -> Triangle<'_, T> {
    Triangle { a, n, upper, unit: false }
}

/// Sizes on both sides of each threshold.
const SIZES: [(usize, usize); 16] = [
    (0, 0),
    (0, 3),
    (3, 0),
    (1, 1),
    (1, 4),
    (4, 1),
    (5, 5),
    (7, 3),
    (3, 7),
    (20, 20),
    (from::QR - 1, from::QR),
    (from::QR + 2, from::QR + 2),
    (from::SVD, from::SVD + 9),
    (from::SVD + 30, from::SVD + 1),
    (2 * from::SVD + 7, from::SVD),
    (from::SVD - 1, from::SVD - 1),
];

fn check_rectangles<T: Scalar<Real = f64>>(make: fn(usize, usize) -> Vec<T>) {
    for (m, n) in SIZES {
        let a = make(m, n);
        for whole in [false, true] {
            let k = if whole { m } else { m.min(n) };
            let Qr { q, r } = qr(&a, [m, n], whole, true, &Alone);
            orthonormal(&q, m, k);
            same(&times(&q, &r, m, k, n), &a);
            assert!((0..k * n).all(|at| at / n <= at % n || r[at] == T::default()));
            assert_eq!(qr(&a, [m, n], whole, false, &Alone).r, r);
            let (p, o) = if whole { (m, n) } else { (m.min(n), m.min(n)) };
            let Svd { u, s, vh } = svd(&a, m, n, whole, true, &Alone).unwrap();
            orthonormal(&u, m, p);
            orthonormal(&adjoint(&vh, o, n), n, o);
            let scaled = times(&u, &diagonal(&s, p, o), m, p, o);
            same(&times(&scaled, &vh, m, o, n), &a);
            assert!(s.windows(2).all(|w| w[0] >= w[1]) && s.iter().all(|&s| s >= 0.0), "{s:?}");
            let values = svd(&a, m, n, whole, false, &Alone).unwrap().s;
            same(&values, &s);
        }
    }
}

#[test]
fn rectangular_matrices_equal_the_product_of_their_factors() {
    check_rectangles(real);
    check_rectangles(complex);
}

fn check_squares<T: Scalar<Real = f64>>(make: fn(usize, usize) -> Vec<T>) {
    let sizes = [0, 1, 2, 3, 8, 21, from::CHOLESKY + 1, from::LU - 1, from::LU, from::EIGH + 2];
    for n in sizes {
        let (mut a, b) = (make(n, n), make(n, 2));
        (0..n).for_each(|i| a[i * n + i] = a[i * n + i] + T::real(9.0 + n as f64));
        let x = solve(&a, &b, n, 2, &Alone).unwrap();
        same(&times(&a, &x, n, n, 2), &b);
        same(&times(&inv(&a, n, false, &Alone).unwrap(), &a, n, n, n), &eye(n, n));
        let (sign, log) = slogdet(&a, n, &Alone);
        let d = det(&a, n, &Alone);
        assert!((sign.scale(log.exp()) - d).modulus() <= 1e-11 * (1.0 + d.modulus()));
        let mut positive = times(&a, &adjoint(&a, n, n), n, n, n);
        (0..n).for_each(|i| positive[i * n + i] = positive[i * n + i] + T::ONE);
        for upper in [false, true] {
            let l = cholesky(&positive, n, upper, &Alone).unwrap();
            let h = adjoint(&l, n, n);
            let (l, h) = if upper { (h, l) } else { (l, h) };
            same(&times(&l, &h, n, n, n), &positive);
            let y = solve_triangular(triangle(&l, n, false), &b, 2, &Alone).unwrap();
            same(&times(&l, &y, n, n, 2), &b);
            let y = solve_triangular(triangle(&h, n, true), &b, 2, &Alone).unwrap();
            same(&times(&h, &y, n, n, 2), &b);
            let (w, v) = eigh(&positive, n, upper, true, &Alone).unwrap();
            orthonormal(&v, n, n);
            let scaled = times(&v, &diagonal(&w, n, n), n, n, n);
            same(&times(&scaled, &adjoint(&v, n, n), n, n, n), &positive);
            assert!(w.windows(2).all(|w| w[0] <= w[1]));
            same(&eigh(&positive, n, upper, false, &Alone).unwrap().0, &w);
        }
    }
}

#[test]
fn squares_are_solved_and_factored() {
    check_squares(real);
    check_squares(complex);
}

#[test]
fn degenerate_matrices_are_decomposed() {
    let n = 6;
    let ones = vec![1.0; n * n];
    let Svd { s, .. } = svd(&ones, n, n, false, true, &Alone).unwrap();
    same(&s, &[6.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    let (w, _) = eigh(&ones, n, false, true, &Alone).unwrap();
    same(&w, &[0.0, 0.0, 0.0, 0.0, 0.0, 6.0]);
    same(&svd(&[0.0; 6], 2, 3, true, true, &Alone).unwrap().s, &[0.0, 0.0]);
    let mut shift = vec![0.0; 9];
    (shift[1], shift[5]) = (1.0, 1.0);
    same(&svd(&shift, 3, 3, true, true, &Alone).unwrap().s, &[1.0, 1.0, 0.0]);
    same(&eigh(&eye::<f64>(5, 5), 5, true, true, &Alone).unwrap().0, &[1.0; 5]);
    let huge: [f64; 4] = [1e300, 2e300, 3e300, 4e300];
    let tiny = huge.map(|x| x * 1e-290 * 1e-300);
    for (x, unit) in [(huge, 1e300), (tiny, 1e-290)] {
        let values = svd(&x, 2, 2, false, true, &Alone).unwrap().s;
        let expected = svd(&[1.0, 2.0, 3.0, 4.0], 2, 2, false, true, &Alone).unwrap().s;
        same(&values.iter().map(|s| s / unit).collect::<Vec<_>>(), &expected);
    }
}

#[test]
fn singular_indefinite_and_nan_matrices_fail() {
    assert_eq!(inv(&[1.0, 2.0, 2.0, 4.0], 2, false, &Alone), Err(Failure::Singular(1)));
    assert_eq!(det(&[1.0, 2.0, 2.0, 4.0], 2, &Alone), 0.0);
    assert_eq!(slogdet(&[0.0f32], 1, &Alone), (0.0, f32::NEG_INFINITY));
    assert_eq!(
        cholesky(&[1.0, 0.0, 2.0, 1.0], 2, false, &Alone),
        Err(Failure::NotPositiveDefinite(2))
    );
    assert_eq!(cholesky(&[f64::NAN], 1, true, &Alone), Err(Failure::NotPositiveDefinite(1)));
    let zero = solve_triangular(triangle(&[1.0, 0.0, 1.0, 0.0], 2, false), &[1.0, 1.0], 1, &Alone);
    assert_eq!(zero, Err(Failure::Singular(1)));
    let nan = [f64::NAN, 1.0, 1.0, 1.0];
    assert!(svd(&nan, 2, 2, false, true, &Alone).is_err());
    assert!(eigh(&nan, 2, false, true, &Alone).is_err());
}

/// Checks the defining property of eigenvectors, for a matrix with elements of about one.
#[track_caller]
fn check_eig<T: Scalar<Real = f64>>(a: &[T], n: usize) -> Vec<T::Complex> {
    let Eig { values, vectors } = eig(a, n, true, &Alone).unwrap();
    let wide: Vec<T::Complex> = a.iter().map(|x| x.complex()).collect();
    let product = times(&wide, &vectors, n, n, n);
    let scaled: Vec<T::Complex> =
        vectors.iter().enumerate().map(|(at, &v)| v * values[at % n]).collect();
    same(&product, &scaled);
    for j in 0..n {
        let column: Vec<T::Complex> = (0..n).map(|i| vectors[i * n + j]).collect();
        assert!((norm(&column) - 1.0).abs() < 1e-12);
    }
    assert_eq!(eig(a, n, false, &Alone).unwrap().values, values);
    values
}

fn check_eigs<T: Scalar<Real = f64>>(make: fn(usize, usize) -> Vec<T>) {
    for n in [0, 1, 2, 3, 4, 7, 20, 33] {
        let a = make(n, n);
        let values = check_eig(&a, n);
        let sum = values.iter().fold(T::Complex::default(), |sum, &v| sum + v);
        let trace = (0..n).fold(T::default(), |sum, i| sum + a[i * n + i]).complex();
        assert!((sum - trace).modulus() < 1e-11);
        // The eigenvalues of triangular matrices are exactly the diagonal.
        for lower in [false, true] {
            let kept = |at: usize| (at / n >= at % n) == lower || at / n == at % n;
            let triangle: Vec<T> =
                (0..n * n).map(|at| if kept(at) { a[at] } else { T::default() }).collect();
            let mut found = check_eig(&triangle, n);
            for i in 0..n {
                let diagonal = a[i * n + i].complex();
                let at = found.iter().position(|&v| v == diagonal).expect("of the diagonal");
                found.swap_remove(at);
            }
        }
    }
}

#[test]
fn eigenvectors_of_any_matrix_keep_their_direction() {
    check_eigs(real);
    check_eigs(complex);
}

#[test]
fn eigenvalues_of_defective_repeated_and_rotating_matrices_are_found() {
    let shift = |n: usize, below: bool, corner: f64| {
        let mut a = vec![0.0; n * n];
        (1..n).for_each(|i| a[if below { i * n + i - 1 } else { (i - 1) * n + i }] = 1.0);
        a[if below { n - 1 } else { n * n - n }] = corner;
        a
    };
    for n in [2, 3, 5, 8] {
        for below in [false, true] {
            assert_eq!(check_eig(&shift(n, below, 0.0), n), vec![C::new(0.0, 0.0); n]);
            // Roots of unity, on which unshifted steps never converge.
            let roots = check_eig(&shift(n, below, 1.0), n);
            assert!(roots.iter().all(|r| (r.powu(n as u32) - 1.0).norm() < 1e-12), "{roots:?}");
        }
    }
    // Conjugate pairs are exactly conjugate, with the positive imaginary part first, also when
    // repeated.
    let (n, mut turns) = (6, vec![0.0; 36]);
    for i in 0..3 {
        (turns[i * n + i + 3], turns[(i + 3) * n + i]) = (2.0, -2.0);
    }
    let pairs = check_eig(&turns, n);
    for pair in pairs.chunks(2) {
        assert_eq!(pair, [C::new(0.0, 2.0), C::new(0.0, -2.0)]);
    }
    assert_eq!(check_eig(&eye::<f64>(4, 4), 4), vec![C::new(1.0, 0.0); 4]);
    assert_eq!(check_eig(&[C::default(); 9], 3), vec![C::default(); 3]);
    let a = real(5, 5);
    for scale in [1e300, 1e-300] {
        let scaled: Vec<f64> = a.iter().map(|x| x * scale).collect();
        let values = eig(&scaled, 5, false, &Alone).unwrap().values;
        let expected = eig(&a, 5, false, &Alone).unwrap().values;
        same(&values.iter().map(|v| v / scale).collect::<Vec<_>>(), &expected);
    }
    assert_eq!(eig(&[f64::INFINITY, 1.0, 1.0, 1.0], 2, true, &Alone), Err(Failure::NotFinite));
    assert_eq!(eig(&[C::new(0.0, f64::NAN)], 1, false, &Alone), Err(Failure::NotFinite));
}

#[test]
fn cofactors_are_defined_for_matrices_of_any_rank() {
    let a = real(4, 4);
    let inverse = inv(&a, 4, false, &Alone).unwrap();
    let scaled: Vec<f64> =
        transpose(&inverse, 4, 4).iter().map(|x| x * det(&a, 4, &Alone)).collect();
    same(&cofactors(&a, 4, &Alone), &scaled);
    same(&cofactors(&[1.0, 2.0, 2.0, 4.0], 2, &Alone), &[4.0, -2.0, -2.0, 1.0]);
    same(
        &cofactors(&[C::I, C::ONE, C::ZERO, C::ZERO], 2, &Alone),
        &[C::ZERO, C::ZERO, -C::ONE, C::I],
    );
    same(&cofactors(&[0.0, 1.0, 0.0, 0.0], 2, &Alone), &[0.0, 0.0, -1.0, 0.0]);
    same(&cofactors(&[1.0; 9], 3, &Alone), &[0.0; 9]);
    assert_eq!(cofactors(&[0.0], 1, &Alone), [1.0]);
    assert!(cofactors(&[f64::NAN; 4], 2, &Alone).iter().all(|x| x.is_nan()));
    assert!(inv(&[1.0, 2.0, 2.0, 4.0], 2, true, &Alone).unwrap().iter().all(|x| !x.is_finite()));
}

/// A dense product of two factors, with rank `rank`.
fn deficient<T: Scalar>(make: fn(usize, usize) -> Vec<T>, n: usize, rank: usize) -> Vec<T> {
    times(&make(n, rank), &make(rank, n), n, rank, n)
}

fn check_deficient<T: Scalar<Real = f64>>(make: fn(usize, usize) -> Vec<T>) {
    // There are several panels, and the first contains the whole column space.
    let n = from::SVD.max(from::QR) + 103;
    let a = deficient(make, n, 5);
    let Qr { q, r } = qr(&a, [n, n], false, true, &Alone);
    orthonormal(&q, n, n);
    same(&times(&q, &r, n, n, n), &a);
    let Svd { u, s, vh } = svd(&a, n, n, false, true, &Alone).unwrap();
    orthonormal(&u, n, n);
    orthonormal(&vh, n, n);
    assert!(s[4] > 1.0 && s[5..].iter().all(|&s| s < 1e-11), "{s:?}");
    let (w, v) = eigh(&times(&a, &adjoint(&a, n, n), n, n, n), n, true, true, &Alone).unwrap();
    orthonormal(&v, n, n);
    assert!(w[n - 5] > 1.0 && w[n - 6].abs() < 1e-9 * w[n - 1], "{w:?}");
}

#[test]
fn large_matrices_of_any_rank_are_decomposed() {
    check_deficient(real);
    check_deficient(complex);
}

#[test]
fn diagonals_of_triangular_factors_are_real() {
    for n in [7, from::QR] {
        let r = qr(&complex(n, n), [n, n], false, true, &Alone).r;
        assert!((0..n).all(|i| r[i * n + i].im == 0.0));
        // Imaginary parts of the diagonal are not read.
        let dominant =
            (0..n * n).map(|at| if at % (n + 1) == 0 { C::new(3.0, 1.0) } else { C::ZERO });
        let l = cholesky(&dominant.collect::<Vec<_>>(), n, true, &Alone).unwrap();
        let diagonal = |i: usize| l[i * n + i];
        assert!(
            (0..n).all(|i| diagonal(i).im == 0.0 && (diagonal(i).re - 3f64.sqrt()).abs() < 1e-15)
        );
    }
}

#[test]
fn large_singular_indefinite_and_nan_matrices_fail_alike() {
    let n = from::LU.max(from::EIGH).max(from::SVD) + 3;
    let mut a = real(n, n);
    // Two parallel columns: the second has exactly zero pivot.
    (0..n).for_each(|i| a[i * n + 7] = if i == 0 { 2.0 } else { 0.0 });
    (0..n).for_each(|i| a[i * n + 9] = a[i * n + 7] * 2.0);
    let Err(Failure::Singular(pivot)) = inv(&a, n, false, &Alone) else { panic!("singular") };
    assert_eq!(pivot, 9);
    assert_eq!(solve(&a, &real(n, 1), n, 1, &Alone), Err(Failure::Singular(9)));
    assert_eq!(det(&a, n, &Alone), 0.0);
    assert_eq!(slogdet(&a, n, &Alone), (0.0, f64::NEG_INFINITY));
    assert!(inv(&a, n, true, &Alone).unwrap().iter().any(|x| !x.is_finite()));
    let mut diagonal = eye::<f64>(n, n);
    diagonal[40 * n + 40] = -1.0;
    assert_eq!(cholesky(&diagonal, n, false, &Alone), Err(Failure::NotPositiveDefinite(41)));
    diagonal[40 * n + 40] = f64::NAN;
    assert_eq!(cholesky(&diagonal, n, true, &Alone), Err(Failure::NotPositiveDefinite(41)));
    assert!(svd(&diagonal, n, n, false, true, &Alone).is_err());
    assert!(eigh(&diagonal, n, false, true, &Alone).is_err());
    assert!(qr(&diagonal, [n, n], false, true, &Alone).r[40 * n + 40].is_nan());
    assert!(det(&diagonal, n, &Alone).is_nan());
    diagonal[40 * n + 40] = 0.0;
    let zero = solve_triangular(triangle(&diagonal, n, true), &diagonal, n, &Alone);
    assert_eq!(zero, Err(Failure::Singular(40)));
}

#[test]
fn large_matrices_of_extreme_elements_are_decomposed() {
    let n = from::SVD + 1;
    let mut a = real(n, n);
    (0..n).for_each(|i| a[i * n + i] += n as f64);
    let expected = svd(&a, n, n, false, false, &Alone).unwrap().s;
    for scale in [1e290, 1e-290] {
        let scaled: Vec<f64> = a.iter().map(|x| x * scale).collect();
        let values = svd(&scaled, n, n, false, false, &Alone).unwrap().s;
        same(&values.iter().map(|s| s / scale).collect::<Vec<_>>(), &expected);
        let x = solve(&scaled, &scaled, n, n, &Alone).unwrap();
        same(&x, &eye(n, n));
    }
}

#[test]
fn factors_neither_overflow_nor_vanish_on_the_way() {
    let n = 5;
    for scale in [3e153, 1e300, 1e-160, 1e-300, 1e-312] {
        let relative = |values: &[f64]| values.iter().map(|v| v / scale).collect::<Vec<_>>();
        // Subnormal numbers have few digits.
        let near = |x: f64, y: f64| assert!((x - y).abs() < 1e-9, "{x} and {y} at {scale}");
        let a = vec![scale; n * n];
        let Svd { u, s, vh } = svd(&a, n, n, true, true, &Alone).unwrap();
        orthonormal(&u, n, n);
        orthonormal(&vh, n, n);
        near(relative(&s)[0], 5.0);
        assert!(relative(&s)[1..].iter().all(|&s| s < 1e-9), "{s:?}");
        let (w, v) = eigh(&a, n, false, true, &Alone).unwrap();
        orthonormal(&v, n, n);
        near(relative(&w)[4], 5.0);
        near(relative(&w)[0], 0.0);
        let values = eig(&a, n, true, &Alone).unwrap().values;
        near(values.iter().map(|z| z.re / scale).fold(0.0, f64::max), 5.0);
        let Qr { q, r } = qr(&a, [n, n], false, true, &Alone);
        orthonormal(&q, n, n);
        near(relative(&r)[0].abs(), 5f64.sqrt());
        let (sign, log) = slogdet(&[scale, 0.0, 0.0, -scale], 2, &Alone);
        assert_eq!(sign, -1.0);
        near(log, 2.0 * scale.ln());
        assert_eq!(det(&[scale, 0.0, 0.0, 0.25 / scale], 2, &Alone).is_finite(), scale > 1e-308);
    }
    // The order of large and small pivots must not matter.
    let pivots = [1e200, 1e200, 1e-200, 1e-200];
    let d = det(&diagonal::<f64>(&pivots, 4, 4), 4, &Alone);
    assert!((d - 1.0).abs() < 1e-14, "{d}");
    let single =
        diagonal::<f64>(&pivots, 4, 4).iter().map(|&x| x.powf(0.15) as f32).collect::<Vec<_>>();
    assert!((det(&single, 4, &Alone) - 1.0).abs() < 1e-2);
    assert_eq!(det(&[f64::INFINITY, 0.0, 0.0, 1.0], 2, &Alone), f64::INFINITY);
    assert_eq!(det(&[1e200, 0.0, 0.0, 1e200], 2, &Alone), f64::INFINITY);
    assert_eq!(det(&[1e-200, 0.0, 0.0, 1e-200], 2, &Alone), 0.0);
}

#[test]
fn cofactors_of_nearly_singular_matrices_keep_their_digits() {
    let a = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0 + 1e-15];
    let expected = [-3.0, 6.0, -3.0, 6.0, -12.0, 6.0, -3.0, 6.0, -3.0];
    same(&cofactors(&a, 3, &Alone), &expected);
    // Cofactors of 2x2 matrices are linear, so their slopes are the cofactors of the weights.
    let w = [0.5, -1.0, 2.0, 3.0];
    for a in [[1.0, 2.0, 2.0, 4.0], [0.0; 4], [1.0, 2.0, 3.0, 4.0]] {
        same(&cofactor_slopes(&a, &w, 2, &Alone), &cofactors(&w, 2, &Alone));
    }
}

/// A team whose other threads take parts from last to first, and the calling thread from first to
/// last.
struct Crowd(usize);

impl Team for Crowd {
    fn share(&self, parts: usize, _: u64, job: &(dyn Fn(usize) + Sync)) {
        let taken: Vec<_> = (0..parts).map(|_| AtomicBool::new(false)).collect();
        let take = |part: usize| (!taken[part].swap(true, Relaxed)).then(|| job(part));
        std::thread::scope(|scope| {
            for _ in 1..self.0 {
                scope.spawn(|| (0..parts).rev().for_each(|part| _ = take(part)));
            }
            (0..parts).for_each(|part| _ = take(part));
        });
    }
}

fn check_teams<T: Scalar<Real = f64>>(make: fn(usize, usize) -> Vec<T>, n: usize) {
    let (mut a, b) = (make(n, n), make(n, n + 70));
    // Well conditioned, with pivots far from the diagonal.
    (0..n).for_each(|i| a[i * n + (7 * i + 3) % n] = T::real(n as f64));
    let all = |team: &dyn Team| {
        let Qr { q, r } = qr(&b, [n, n + 70], true, true, team);
        let (w, v) = eigh(&a, n, true, true, team).unwrap();
        let solved = solve(&a, &b, n, n + 70, team).unwrap();
        (inv(&a, n, false, team).unwrap(), solved, slogdet(&a, n, team), q, r, w, v)
    };
    let alone = all(&Alone);
    same(&times(&alone.0, &a, n, n, n), &eye(n, n));
    same(&times(&a, &alone.1, n, n, n + 70), &b);
    same(&times(&alone.3, &alone.4, n, n, n + 70), &b);
    for threads in [2, 5] {
        assert!(all(&Crowd(threads)) == alone, "{threads} threads");
    }
}

/// Routines on several threads give the same bits as on one, and so do routines that several
/// threads run at the same time.
#[test]
fn bits_do_not_depend_on_threads() {
    check_teams(real, 201);
    check_teams(complex, 193);
    let n = from::SVD + 5;
    let a = complex(n, n);
    let both =
        || (inv(&a, n, false, &Alone).unwrap(), svd(&a, n, n, false, true, &Alone).unwrap().u);
    let alone = both();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(both)).collect();
        threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), alone));
    });
}

/// The transpose, and the largest element with NaN and infinities, for whole and partial tiles.
#[test]
fn transpose_and_largest_visit_every_element() {
    for (rows, columns) in [(0, 3), (8, 8), (17, 9), (7, 24)] {
        let a = real(rows, columns);
        let t = transpose(&a, rows, columns);
        assert!((0..rows * columns).all(|at| t[at % columns * rows + at / columns] == a[at]));
        for at in 0..rows * columns {
            let mut a = complex(rows, columns);
            a[at].im = -9.0;
            assert_eq!(largest(&a), 9.0);
            a[at].re = f64::NEG_INFINITY;
            assert_eq!(largest(&a), f64::INFINITY);
            a[at].re = f64::NAN;
            assert!(largest(&a).is_nan());
        }
    }
}

#[test]
fn quotients_of_complex_numbers_do_not_overflow() {
    let (x, y) = (Complex::new(3e30f32, -4e30), Complex::new(1e30f32, 2e30));
    assert!((x.over(y) - Complex::new(-1.0, -2.0)).modulus() < 1e-6);
    assert!((y.over(x) - Complex::new(-0.2, 0.4)).modulus() < 1e-6);
    assert_eq!(C::new(1.0, -2.0).over(C::new(0.0, 0.0)), C::new(f64::INFINITY, f64::NEG_INFINITY));
}

/// A team that is stopped, and whose separate jobs are abandoned.
struct StoppedTeam;

impl Team for StoppedTeam {
    fn share(&self, _: usize, _: u64, _: &(dyn Fn(usize) + Sync)) {}

    fn stopped(&self) -> bool {
        true
    }

    fn apart(&self, _: u64, _: Box<dyn FnOnce() + Send>) -> bool {
        false
    }
}

#[test]
fn routines_of_a_stopped_team_end_early_with_results_of_their_sizes() {
    let (n, team) = (200, &StoppedTeam);
    let a = real(n, n);
    assert_eq!(eig(&a, n, true, team).unwrap().vectors.len(), n * n);
    let (values, vectors) = eigh(&a, n, false, true, team).unwrap();
    assert_eq!((values.len(), vectors.len()), (n, n * n));
    let Svd { u, s, vh } = svd(&a, n, n, true, true, team).unwrap();
    assert_eq!((u.len(), s.len(), vh.len()), (n * n, n, n * n));
    assert_eq!(cholesky(&a, n, false, team).unwrap().len(), n * n);
    let Qr { q, r } = qr(&a, [n, n], false, true, team);
    assert_eq!((q.len(), r.len()), (n * n, n * n));
    assert_eq!(lu(&a, n, team).0.len(), n * n);
    // Solvers may find the unfinished factors singular.
    if let Ok(inverse) = inv(&a, n, false, team) {
        assert_eq!(inverse.len(), n * n);
    }
}
