//! Singular value decomposition: reduction to a real bidiagonal matrix by Householder reflections,
//! then the implicit QR algorithm. Source: Golub and Reinsch 1970, Singular value decomposition and
//! least squares solutions.

use super::{
    Failure, MAX_STEPS, Real, Reflector, Scalar, Team, adjoint, from, is_large, product, restore,
    rotate, scaled, transpose,
};

/// `A = U diag(s) V^H`.
pub struct Svd<T: Scalar> {
    /// Left singular vectors as columns: `m` by `k`, or `m` by `m` for the full decomposition.
    pub u: Vec<T>,
    /// The `k` singular values in descending order.
    pub s: Vec<T::Real>,
    /// Right singular vectors as rows, conjugated: `k` by `n`, or `n` by `n`.
    pub vh: Vec<T>,
}

/// Decomposes a matrix of `m` by `n`; without vectors, `u` and `vh` are empty.
///
/// Errors: [`Failure::NotConverged`].
pub fn svd<T: Scalar>(
    a: &[T],
    m: usize,
    n: usize,
    full: bool,
    with_vectors: bool,
    team: &dyn Team,
) -> Result<Svd<T>, Failure> {
    let (a, power) = scaled(a);
    let mut out = match is_large(&a, m.min(n), from::SVD) {
        true => T::svd(&a, m, n, full, with_vectors, team)?,
        false => oriented(&a, m, n, full, with_vectors)?,
    };
    restore(&mut out.s, power);
    Ok(out)
}

/// As [`svd`], for elements whose squares neither overflow nor underflow.
fn oriented<T: Scalar>(
    a: &[T],
    m: usize,
    n: usize,
    full: bool,
    with_vectors: bool,
) -> Result<Svd<T>, Failure> {
    if m >= n {
        return tall(a.to_vec(), m, n, full, with_vectors);
    }
    let Svd { u, s, vh } = tall(adjoint(a, m, n), n, m, full, with_vectors)?;
    if !with_vectors {
        return Ok(Svd { u, s, vh });
    }
    let k = if full { n } else { m };
    Ok(Svd { u: adjoint(&vh, m, m), s, vh: adjoint(&u, n, k) })
}

/// A bidiagonal matrix that is being diagonalised. `e[i]` is above `d[i]`, and `e[0]` is zero.
struct Bidiagonal<T: Scalar> {
    d: Vec<T::Real>,
    e: Vec<T::Real>,
    /// Left vectors as rows of `m` elements and right vectors as rows of `n`. Both are empty unless
    /// requested.
    u: Vec<T>,
    v: Vec<T>,
    m: usize,
    n: usize,
    /// Threshold below which an element counts as zero.
    small: T::Real,
}

fn tall<T: Scalar>(
    mut a: Vec<T>,
    m: usize,
    n: usize,
    full: bool,
    with_vectors: bool,
) -> Result<Svd<T>, Failure> {
    let (mut left, mut right) = (Vec::with_capacity(n), Vec::with_capacity(n));
    let (mut d, mut e) = (Vec::with_capacity(n), vec![T::Real::default()]);
    for k in 0..n {
        let column = (k..m).map(|i| a[i * n + k]).collect();
        let (reflector, beta) = Reflector::new(column);
        reflector.left(reflector.tau.conj(), &mut a, n, k, k);
        left.push(reflector);
        d.push(beta);
        if k + 1 < n {
            let row = (k + 1..n).map(|j| a[k * n + j].conj()).collect();
            let (reflector, beta) = Reflector::new(row);
            reflector.right(&mut a, n, k + 1, k);
            right.push(reflector);
            e.push(beta);
        }
    }
    let columns = if full { m } else { n };
    let (u, v) = match with_vectors {
        true => (
            transpose(&product(&left, m, columns, 0), m, columns),
            transpose(&product(&right, n, n, 1), n, n),
        ),
        false => (Vec::new(), Vec::new()),
    };
    let larger = |a: T::Real, b: T::Real| if b > a || b.is_nan() { b } else { a };
    let largest = d.iter().zip(&e).map(|(d, e)| d.modulus() + e.modulus());
    let small = T::Real::EPSILON * largest.fold(T::Real::default(), larger);
    let mut work = Bidiagonal { d, e, u, v, m, n, small };
    for k in (0..n).rev() {
        work.find(k)?;
    }
    Ok(work.finish(columns, with_vectors))
}

impl<T: Scalar> Bidiagonal<T> {
    fn rotate_left(&mut self, i: usize, j: usize, c: T::Real, s: T::Real) {
        let columns = if self.u.is_empty() { 0 } else { self.m };
        rotate(&mut self.u, columns, i, j, c, s);
    }

    fn rotate_right(&mut self, i: usize, j: usize, c: T::Real, s: T::Real) {
        let columns = if self.v.is_empty() { 0 } else { self.n };
        rotate(&mut self.v, columns, i, j, c, s);
    }

    /// Iterates until the `k`-th value is isolated.
    fn find(&mut self, k: usize) -> Result<(), Failure> {
        for step in 0.. {
            let l = self.block(k);
            if l == k {
                if self.d[k] < T::Real::default() {
                    self.d[k] = -self.d[k];
                    // There are no rows if the vectors are not requested.
                    let row = self.v.chunks_exact_mut(self.n).nth(k);
                    row.into_iter().flatten().for_each(|v| *v = -*v);
                }
                return Ok(());
            }
            if step == MAX_STEPS {
                return Err(Failure::NotConverged);
            }
            self.step(l, k);
        }
        Ok(())
    }

    /// The first row of the unreduced block that ends with row `k`. A zero on the diagonal splits
    /// the block too, after rotations have zeroed its row.
    fn block(&mut self, k: usize) -> usize {
        let mut l = k;
        loop {
            if l == 0 || self.e[l].modulus() <= self.small {
                return l;
            }
            if self.d[l - 1].modulus() <= self.small {
                break;
            }
            l -= 1;
        }
        let (mut c, mut s) = (T::Real::default(), T::Real::ONE);
        for i in l..=k {
            let f = s * self.e[i];
            self.e[i] = c * self.e[i];
            if f.modulus() <= self.small {
                break;
            }
            let (g, h) = (self.d[i], f.hypot(self.d[i]));
            self.d[i] = h;
            (c, s) = (g / h, -f / h);
            self.rotate_left(l - 1, i, c, s);
        }
        l
    }

    /// One implicit QR step on the rows `l..=k`, shifted by an eigenvalue of the trailing 2x2
    /// block.
    fn step(&mut self, l: usize, k: usize) {
        let one = T::Real::ONE;
        let (mut x, mut y, z) = (self.d[l], self.d[k - 1], self.d[k]);
        let (mut g, mut h) = (self.e[k - 1], self.e[k]);
        let mut f = ((y - z) * (y + z) + (g - h) * (g + h)) / ((h + h) * y);
        g = f.hypot(one);
        f = ((x - z) * (x + z) + h * (y / (f + g.with_sign(f)) - h)) / x;
        let (mut c, mut s) = (one, one);
        for j in l..k {
            let i = j + 1;
            (g, y) = (self.e[i], self.d[i]);
            (h, g) = (s * g, c * g);
            let mut z = f.hypot(h);
            self.e[j] = z;
            (c, s) = (f / z, h / z);
            (f, g) = (x * c + g * s, g * c - x * s);
            (h, y) = (y * s, y * c);
            self.rotate_right(j, i, c, s);
            z = f.hypot(h);
            self.d[j] = z;
            // If `z` is zero, any rotation will do.
            if z != T::Real::default() {
                (c, s) = (f / z, h / z);
            }
            (f, x) = (c * g + s * y, c * y - s * g);
            self.rotate_left(j, i, c, s);
        }
        self.e[l] = T::Real::default();
        self.e[k] = f;
        self.d[k] = x;
    }

    /// Sorts the values in descending order, together with the vectors.
    fn finish(self, columns: usize, with_vectors: bool) -> Svd<T> {
        let Bidiagonal { d, u, v, m, n, .. } = self;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&i, &j| d[j].partial_cmp(&d[i]).unwrap_or(std::cmp::Ordering::Equal));
        let s = order.iter().map(|&i| d[i]).collect();
        if !with_vectors {
            return Svd { u: Vec::new(), s, vh: Vec::new() };
        }
        let left = |column: usize| if column < n { order[column] } else { column };
        let u = (0..m * columns).map(|at| u[left(at % columns) * m + at / columns]).collect();
        let vh = (0..n * n).map(|at| v[order[at / n] * n + at % n].conj()).collect();
        Svd { u, s, vh }
    }
}
