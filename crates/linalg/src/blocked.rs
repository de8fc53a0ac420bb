//! Blocked LU and QR factorisation. `faer` factors a panel of columns on one thread; a [`Team`]
//! updates the trailing columns in stripes.

use crate::large::Both;
use crate::team::{STRIPE, Team, stripes};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::householder::{
    apply_block_householder_on_the_left_in_place_with_conj as reflect,
    apply_block_householder_sequence_on_the_left_in_place_scratch as reflect_scratch,
    apply_block_householder_transpose_on_the_left_in_place_with_conj as reflect_back,
};
use faer::linalg::lu::partial_pivoting::factor as plu;
use faer::linalg::matmul::matmul;
use faer::linalg::qr::no_pivoting::factor;
use faer::linalg::triangular_solve::{
    solve_unit_lower_triangular_in_place as solve_lower,
    solve_upper_triangular_in_place as solve_upper,
};
use faer::prelude::{Reborrow, ReborrowMut};
use faer::{Accum, Conj, Mat, MatMut, MatRef, Par};
use std::sync::{Mutex, PoisonError};

/// Number of rows from which the trailing columns are distributed over threads.
const SHARED: usize = 192;

/// A row permutation as pairs: destination row and source row.
type Moves = Vec<(usize, usize)>;

/// LU factorisation with partial pivoting of a column-major square matrix, in place. Returns the
/// source row of each row, and whether the permutation is odd.
pub(crate) fn lu<T: Both>(a: &mut [T], n: usize, team: &dyn Team) -> (Vec<usize>, bool) {
    let width = if n < SHARED { n } else { STRIPE };
    let mut rows: Vec<usize> = (0..n).collect();
    let (mut exchanges, mut moves) = (0, Vec::new());
    let mut a = MatMut::from_column_major_slice_mut(a, n, n);
    let mut factored = (n > 0).then(|| panel_lu(a.rb_mut().get_mut(.., ..width)));
    for start in (0..n).step_by(width.max(1)) {
        let Some((moved, count)) = factored.take() else { break };
        if team.stopped() {
            break;
        }
        let before = rows.clone();
        moved.iter().for_each(|&(to, from)| rows[start + to] = before[start + from]);
        let below = a.rb_mut().get_mut(start.., start..);
        let (panel, right) = below.split_at_col_mut(width.min(n - start));
        let (corner, below) = panel.rb().split_at_row(panel.ncols());
        let next = Mutex::new(None);
        stripes(team, right, corner.ncols() * panel.nrows(), |first, mut stripe| {
            move_rows(stripe.rb_mut(), &moved);
            let (mut top, mut bottom) = stripe.split_at_row_mut(corner.ncols());
            solve_lower(corner, top.rb_mut(), Par::Seq);
            matmul(bottom.rb_mut(), Accum::Add, below, top.rb(), -T::ONE, Par::Seq);
            if first == 0 {
                // Factor the next panel while other threads update the other stripes (lookahead).
                *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(panel_lu(bottom));
            }
        });
        factored = next.into_inner().unwrap_or_else(PoisonError::into_inner);
        exchanges += count;
        moves.push((start, moved));
    }
    // Apply the later permutations to the earlier panels too.
    stripes(team, a, n, |first, mut stripe| {
        for (start, moved) in moves.iter().filter(|(start, _)| *start > first) {
            move_rows(stripe.rb_mut().get_mut(*start.., ..), moved);
        }
    });
    (rows, exchanges % 2 == 1)
}

/// Factors a panel; returns its row permutation and the number of exchanges.
fn panel_lu<T: Both>(panel: MatMut<'_, T>) -> (Moves, usize) {
    let (m, n) = (panel.nrows(), panel.ncols());
    let (mut rows, mut places) = (vec![0; m], vec![0; m]);
    let scratch = plu::lu_in_place_scratch::<usize, T>(m, n, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let (info, _) =
        plu::lu_in_place(panel, &mut rows, &mut places, Par::Seq, stack, Default::default());
    let moves = rows.into_iter().enumerate().filter(|(to, from)| to != from);
    (moves.collect(), info.transposition_count)
}

fn move_rows<T: Both>(a: MatMut<'_, T>, moves: &Moves) {
    let mut moved = Vec::with_capacity(moves.len());
    for column in a.col_iter_mut() {
        // A column of a column-major matrix.
        let Some(column) = column.try_as_col_major_mut() else { continue };
        let column = column.as_slice_mut();
        moved.extend(moves.iter().map(|&(_, from)| column[from]));
        moves.iter().zip(moved.drain(..)).for_each(|(&(to, _), x)| column[to] = x);
    }
}

/// The inverse of the matrix that [`lu`] has factored, column-major too.
pub(crate) fn inverse<T: Both>(factors: &[T], rows: &[usize], team: &dyn Team) -> Vec<T> {
    let n = rows.len();
    let factors = MatRef::from_column_major_slice(factors, n, n);
    let mut inverse = Mat::<T>::zeros(n, n);
    stripes(team, inverse.as_mut(), n * n, |first, mut stripe| {
        // A stripe of the identity. Rows above it are zero, so the forward substitution skips them.
        (0..stripe.ncols()).for_each(|j| stripe[(first + j, j)] = T::ONE);
        solve_lower(factors.get(first.., first..), stripe.rb_mut().get_mut(first.., ..), Par::Seq);
        solve_upper(factors, stripe, Par::Seq);
    });
    let mut out = vec![T::default(); n * n];
    for (j, &row) in rows.iter().enumerate() {
        let column = inverse.col(j).try_as_col_major().map(|column| column.as_slice());
        out[row * n..(row + 1) * n].copy_from_slice(column.unwrap_or_default());
    }
    out
}

/// The Householder reflections of one panel, in compact WY form.
struct Panel<T> {
    /// The first row that the reflections change.
    row: usize,
    /// The Householder vectors, below the diagonal.
    vectors: Mat<T>,
    /// The triangular factor that combines the reflections.
    scales: Mat<T>,
}

/// The Householder reflections of a QR factorisation, panel by panel; their adjoints make the
/// matrix triangular.
pub(crate) struct Reflections<T>(Vec<Panel<T>>);

/// QR factorisation of a column-major matrix of `m` by `n`, in place: leaves the upper triangular
/// factor.
pub(crate) fn qr<T: Both>(a: &mut [T], m: usize, n: usize, team: &dyn Team) -> Reflections<T> {
    let width = factor::recommended_block_size::<T>(m, n).clamp(16, STRIPE);
    let (mut panels, mut row, mut column) = (Vec::new(), 0, 0);
    let mut a = MatMut::from_column_major_slice_mut(a, m, n);
    let mut factored = (m > 0).then(|| panel_qr(a.rb_mut().get_mut(.., ..width.min(n))));
    while let Some((vectors, scales)) = factored.take() {
        if team.stopped() {
            break;
        }
        column = n.min(column + width);
        let (count, next) = (vectors.ncols(), Mutex::new(None));
        let right = a.rb_mut().get_mut(row.., column..);
        stripes(team, right, 2 * vectors.nrows() * count, |first, mut stripe| {
            let size = reflect_scratch::<T>(stripe.nrows(), count, stripe.ncols());
            let (mut memory, to) = (MemBuffer::new(size), stripe.rb_mut());
            let (stack, vectors) = (MemStack::new(&mut memory), vectors.as_ref());
            reflect_back(vectors, scales.as_ref(), Conj::Yes, to, Par::Seq, stack);
            if first == 0 && count < stripe.nrows() {
                // Factor the next panel while other threads update the other stripes (lookahead).
                let end = width.min(stripe.ncols());
                let panel = panel_qr(stripe.get_mut(count.., ..end));
                *next.lock().unwrap_or_else(PoisonError::into_inner) = Some(panel);
            }
        });
        factored = next.into_inner().unwrap_or_else(PoisonError::into_inner);
        panels.push(Panel { row, vectors, scales });
        row += count;
    }
    Reflections(panels)
}

/// Factors a panel: returns the reflections' vectors and scales, fewer than columns if the columns
/// are linearly dependent. The panel then holds its triangular factor.
fn panel_qr<T: Both>(mut panel: MatMut<'_, T>) -> (Mat<T>, Mat<T>) {
    let (m, least) = (panel.nrows(), panel.nrows().min(panel.ncols()));
    let mut scales = Mat::<T>::zeros(least, least);
    let scratch =
        factor::qr_in_place_scratch::<T>(m, panel.ncols(), least, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let info =
        factor::qr_in_place(panel.rb_mut(), scales.as_mut(), Par::Seq, stack, Default::default());
    let vectors = panel.rb().get(.., ..info.rank).to_owned();
    for j in 0..panel.ncols() {
        panel.rb_mut().col_mut(j).get_mut(m.min(j + 1)..).fill(T::default());
    }
    (vectors, scales.get(..info.rank, ..info.rank).to_owned())
}

impl<T: Both> Reflections<T> {
    /// The first `columns` columns of the product of the reflections, with `m` rows, column-major.
    pub(crate) fn product(&self, m: usize, columns: usize, team: &dyn Team) -> Vec<T> {
        let mut q = crate::eye(columns, m);
        let view = MatMut::from_column_major_slice_mut(&mut q, m, columns);
        stripes(team, view, m * m, |first, mut stripe| {
            // A panel does not change columns of the identity that lie before its rows.
            let (width, last) = (stripe.ncols(), first + stripe.ncols());
            for panel in self.0.iter().rev().filter(|panel| panel.row < last) {
                let size = reflect_scratch::<T>(m, panel.vectors.ncols(), width);
                let mut memory = MemBuffer::new(size);
                reflect(
                    panel.vectors.as_ref(),
                    panel.scales.as_ref(),
                    Conj::No,
                    stripe.rb_mut().get_mut(panel.row.., ..),
                    Par::Seq,
                    MemStack::new(&mut memory),
                );
            }
        });
        q
    }
}
