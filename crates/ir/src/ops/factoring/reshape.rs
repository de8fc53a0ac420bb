//! Factors of reshapes, which merge and split axes. The axes are grouped into the shortest runs of
//! equal element count on both sides. If one side of a run is a single axis, each axis of the other
//! side is a factor.

use super::*;

/// Lengths of the shortest leading runs with equal element counts.
fn runs(from: &[(usize, Dim)], to: &[(usize, Dim)]) -> Option<(usize, usize)> {
    let product = |axes: &[(usize, Dim)]| -> Dim { axes.iter().map(|&(_, size)| size).product() };
    (1..=from.len()).find_map(|i| {
        let count = product(&from[..i]);
        (1..=to.len()).find(|&j| product(&to[..j]) == count).map(|j| (i, j))
    })
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A run of several axes on both sides: takes common divisors as factors from the outermost axis
/// on, until the sizes have no common divisor; the remaining axes are whole.
fn divided(d: &mut Draft, from: &[(usize, Dim)], to: &[(usize, Dim)], axes: [&mut Axes; 2]) {
    let sides = [from, to];
    let known = |side: &[(usize, Dim)]| -> Option<Vec<usize>> {
        side.iter().map(|(_, size)| size.known()).collect()
    };
    let mut at = [0, 0];
    if let (Some(mut a), Some(mut b)) = (known(from), known(to)) {
        while at[0] < a.len() && at[1] < b.len() {
            let (left, right) = (&mut a[at[0]], &mut b[at[1]]);
            let common = gcd(*left, *right);
            if common == 1 {
                break;
            }
            let factor = d.sized(Role::Pointwise, Some(common));
            (*left, *right) = (*left / common, *right / common);
            axes[0][from[at[0]].0].extend_from_slice(&factor);
            axes[1][to[at[1]].0].extend_from_slice(&factor);
            at = [at[0] + (*left == 1) as usize, at[1] + (*right == 1) as usize];
        }
    }
    for ((side, axes), at) in sides.into_iter().zip(axes).zip(at) {
        for &(axis, _) in &side[at..] {
            let rest = d.add(Role::Whole);
            axes[axis].extend_from_slice(&rest);
        }
    }
}

pub(super) fn reshape(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let (from, to) = (&call.inputs[0].shape, &out.shape);
    let mut d = Draft::default();
    let (mut operand, mut result) =
        (vec![AxisFactors::new(); from.rank()], vec![AxisFactors::new(); to.rank()]);
    let long = |shape: &Shape| -> Vec<(usize, Dim)> {
        shape.dims().enumerate().filter(|(_, size)| !size.is(1)).collect()
    };
    let (froms, tos) = (long(from), long(to));
    let (mut froms, mut tos) = (&froms[..], &tos[..]);
    // Without elements all counts are zero, so equal counts say nothing about the axes.
    let empty = [froms, tos].iter().any(|side| side.iter().any(|(_, size)| size.is(0)));
    while let Some((i, j)) = runs(froms, tos).filter(|_| !empty) {
        let (a, b) = (&froms[..i], &tos[..j]);
        match (i, j) {
            (1, _) | (_, 1) => {
                let factors = d.axes(i.max(j), Role::Pointwise);
                for (n, factor) in factors.into_iter().enumerate() {
                    operand[a[n.min(i - 1)].0].extend_from_slice(&factor);
                    result[b[n.min(j - 1)].0].extend_from_slice(&factor);
                }
            }
            _ => divided(&mut d, a, b, [&mut operand, &mut result]),
        }
        (froms, tos) = (&froms[i..], &tos[j..]);
    }
    for (side, axes) in [(froms, &mut operand), (tos, &mut result)] {
        for &(axis, _) in side {
            axes[axis] = d.add(Role::Whole);
        }
    }
    d.finish(vec![operand], result)
}
