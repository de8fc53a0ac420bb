//! Balancing of a matrix before its eigenvalues are computed. Permutations move isolated
//! eigenvalues to the corners. The remaining rows and columns are scaled by powers of two to
//! similar norms, so that rounding errors are relative to elements of similar size.
//!
//! Source: Parlett and Reinsch 1969, Balancing a matrix for calculation of eigenvalues and
//! eigenvectors; James, Langou and Lowery 2014 for the norms.

use super::{Real, Scalar, norm, two_rows};

/// The permutation and scaling of a balanced matrix, for transforming its eigenvectors back.
pub struct Balance<R> {
    /// Exchanges of a row and column pair, in order.
    exchanges: Vec<(usize, usize)>,
    /// Scale factor of each row of the eigenvectors.
    factors: Vec<R>,
}

impl<R: Real> Balance<R> {
    /// Balances a matrix in place.
    pub fn new<T: Scalar<Real = R>>(a: &mut [T], n: usize) -> Balance<R> {
        let mut balance = Balance { exchanges: Vec::new(), factors: vec![R::ONE; n] };
        let (mut low, mut high) = (0, n);
        // A row with only zeros beside the diagonal moves to the bottom. A column with only zeros
        // beside the diagonal moves to the left.
        while let Some(i) = (low..high).rev().find(|&i| alone(a, n, i, low..high, false)) {
            high -= 1;
            balance.exchange(a, n, i, high);
        }
        while let Some(i) = (low..high).find(|&i| alone(a, n, i, low..high, true)) {
            balance.exchange(a, n, low, i);
            low += 1;
        }
        balance.scale(a, n, low..high);
        balance
    }

    fn exchange<T: Scalar<Real = R>>(&mut self, a: &mut [T], n: usize, i: usize, j: usize) {
        if i == j {
            return;
        }
        let (x, y) = two_rows(a, n, i, j);
        x.swap_with_slice(y);
        a.chunks_exact_mut(n).for_each(|row| row.swap(i, j));
        self.exchanges.push((i, j));
    }

    fn scale<T: Scalar<Real = R>>(&mut self, a: &mut [T], n: usize, rows: std::ops::Range<usize>) {
        let (two, half) = (R::ONE + R::ONE, R::of(0.5));
        loop {
            let mut done = true;
            for i in rows.clone() {
                let column: Vec<T> = rows.clone().map(|k| a[k * n + i]).collect();
                let (mut c, mut r) = (norm(&column), norm(&a[i * n..][rows.clone()]));
                if c == R::default() || r == R::default() {
                    continue;
                }
                let (before, mut factor) = (c.hypot(r), R::ONE);
                while c * two <= r {
                    (c, r, factor) = (c * two, r * half, factor * two);
                }
                while c >= r * two {
                    (c, r, factor) = (c * half, r * two, factor * half);
                }
                let total = self.factors[i] * factor;
                let kept = total.is_finite() && total > R::EPSILON * R::EPSILON * R::EPSILON;
                if kept && c.hypot(r) < before * R::of(0.95) {
                    done = false;
                    self.factors[i] = total;
                    a[i * n..(i + 1) * n].iter_mut().for_each(|x| *x = x.scale(R::ONE / factor));
                    (0..n).for_each(|k| a[k * n + i] = a[k * n + i].scale(factor));
                }
            }
            if done {
                return;
            }
        }
    }

    /// Transforms an eigenvector of the balanced matrix into one of the original matrix.
    pub fn undo<C: Scalar<Real = R>>(&self, x: &mut [C]) {
        x.iter_mut().zip(&self.factors).for_each(|(x, &factor)| *x = x.scale(factor));
        self.exchanges.iter().rev().for_each(|&(i, j)| x.swap(i, j));
    }
}

/// True if a row (or column) has only zeros beside the diagonal.
fn alone<T: Scalar>(
    a: &[T],
    n: usize,
    i: usize,
    within: std::ops::Range<usize>,
    column: bool,
) -> bool {
    let at = |k: usize| if column { a[k * n + i] } else { a[i * n + k] };
    within.into_iter().all(|k| k == i || at(k) == T::default())
}
