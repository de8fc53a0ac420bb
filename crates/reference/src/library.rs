//! Reference semantics of library routines, row by row with the simplest algorithms.

use crate::fourier;
use crate::matrix::{Matrix, MatrixResult, call};
use girih_ir::ops::host::{HostCall, HostFailure, HostView, HostViewMut};
use girih_ir::{Array, DType, Element, Error, Literal, Node, OpCode, Result, scalar};
use girih_linalg::{Alone, Scalar};
use num_complex::{Complex32, Complex64};
use std::cmp::Ordering;

pub(super) fn routine(node: &Node, operands: &[&Array]) -> Result<Array> {
    if let Some((_, call)) = node.op.as_host() {
        return hosted(node, call, operands);
    }
    let (result, flag, size) = node.op.attrs.library();
    let out: Vec<Vec<Element>> = match node.op.code {
        OpCode::Sort => rows(operands[0]).map(|row| sort(&row, result, flag)).collect(),
        OpCode::TopK => {
            let best = |row: Vec<Element>| sort(&row, result, flag)[..size as usize].to_vec();
            rows(operands[0]).map(best).collect()
        }
        OpCode::OrderStatistics => rows(operands[0])
            .zip(rows(operands[1]))
            .map(|(row, places)| at_places(&sort(&row, result, false), &places))
            .collect(),
        OpCode::SearchSorted => rows(operands[0])
            .zip(rows(operands[1]))
            .map(|(row, values)| values.iter().map(|&v| position(&row, v, flag)).collect())
            .collect(),
        OpCode::CumSum
        | OpCode::CumProd
        | OpCode::CumMax
        | OpCode::CumMin
        | OpCode::LogCumSumExp => {
            rows(operands[0]).map(|row| running(node, row, result, flag)).collect()
        }
        OpCode::Recurrence => rows(operands[0])
            .zip(rows(operands[1]))
            .map(|(factors, summands)| recurrence(&factors, &summands, result, flag))
            .collect(),
        OpCode::Fft | OpCode::Rfft | OpCode::Irfft => {
            rows(operands[0]).map(|row| fourier::transform(node, &row)).collect()
        }
        _ => {
            return match operands[0].spec().dtype {
                DType::F32 => matrices(node, operands, |e| e.complex().re as f32),
                DType::F64 => matrices(node, operands, |e| e.complex().re),
                DType::C64 => matrices(node, operands, |e| {
                    Complex32::new(e.complex().re as f32, e.complex().im as f32)
                }),
                _ => matrices(node, operands, Element::complex),
            };
        }
    };
    Ok(Array::new(node.spec.clone(), out.into_iter().flatten()))
}

/// Runs a custom op on bytes.
fn hosted(node: &Node, call: &HostCall, operands: &[&Array]) -> Result<Array> {
    let bytes: Vec<Vec<u8>> = operands.iter().map(|x| x.to_bytes()).collect();
    let views = operands.iter().zip(&bytes);
    let views: Vec<HostView<'_>> =
        views.map(|(x, bytes)| HostView { spec: x.spec().clone(), bytes }).collect();
    let mut room: Vec<Vec<u8>> = call.results().iter().map(|s| vec![0; s.size_bytes()]).collect();
    let results = call.results().iter().zip(&mut room);
    let mut results: Vec<HostViewMut<'_>> =
        results.map(|(spec, bytes)| HostViewMut { spec: spec.clone(), bytes }).collect();
    let failed = |e: HostFailure| Error::InvalidArgument { op: "custom", reason: e.to_string() };
    call.run(&views, &mut results).map_err(failed)?;
    let (number, _) = node.op.as_host().expect("the op is a host op");
    Ok(Array::from_bytes(node.spec.clone(), &room[number]))
}

/// The rows of the last axis in order. Rows without elements count too: a search may have values
/// for an empty row.
fn rows(x: &Array) -> impl Iterator<Item = Vec<Element>> + '_ {
    let (&len, batch) = x.spec().shape.split_last().expect("the op's rule asks for rows");
    let count = batch.iter().product();
    (0..count).map(move |r| (0..len).map(|i| x.get(r * len + i)).collect())
}

/// NaN is larger than every number; 0 and -0 are equal.
fn order(a: Element, b: Element) -> Ordering {
    match a.dtype.is_float() {
        true => {
            let (a, b) = (a.as_f64(), b.as_f64());
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        false => a.as_int().cmp(&b.as_int()),
    }
}

fn int(value: usize) -> Element {
    Literal::from_i64(DType::I64, value as i64).into()
}

fn sort(row: &[Element], result: u8, descending: bool) -> Vec<Element> {
    let mut indices: Vec<usize> = (0..row.len()).collect();
    indices.sort_by(|&i, &j| match descending {
        true => order(row[j], row[i]),
        false => order(row[i], row[j]),
    });
    indices.into_iter().map(|i| if result == 0 { row[i] } else { int(i) }).collect()
}

/// The elements of a sorted row at places; places beyond the row count as its ends.
fn at_places(sorted: &[Element], places: &[Element]) -> Vec<Element> {
    let last = sorted.len() as i128 - 1;
    places.iter().map(|place| sorted[place.as_int().clamp(0, last) as usize]).collect()
}

fn position(row: &[Element], value: Element, right: bool) -> Element {
    let before = |&&x: &&Element| match order(x, value) {
        Ordering::Less => true,
        Ordering::Equal => right,
        Ordering::Greater => false,
    };
    int(row.iter().filter(before).count())
}

fn running(node: &Node, row: Vec<Element>, result: u8, reverse: bool) -> Vec<Element> {
    let at = |i: usize| if reverse { row.len() - 1 - i } else { i };
    let mut out = row.clone();
    let mut best = if row.is_empty() { 0 } else { at(0) };
    for step in 0..row.len() {
        let (i, x) = (at(step), row[at(step)]);
        out[i] = match node.op.code {
            OpCode::CumMax | OpCode::CumMin => {
                let ahead = order(x, row[best]);
                let wins = match node.op.code {
                    OpCode::CumMax => ahead != Ordering::Less,
                    _ => ahead != Ordering::Greater,
                };
                let nan = |l: Element| l.dtype.is_float() && l.as_f64().is_nan();
                if nan(x) || (wins && !nan(row[best])) {
                    best = i;
                }
                if result == 0 { row[best] } else { int(best) }
            }
            _ if step == 0 => x,
            code => combine(code, out[at(step - 1)], x),
        };
    }
    out
}

fn recurrence(
    factors: &[Element],
    summands: &[Element],
    result: u8,
    reverse: bool,
) -> Vec<Element> {
    let n = factors.len();
    let at = |i: usize| if reverse { n - 1 - i } else { i };
    let apply =
        |code: OpCode, a: Element, b: Element| scalar::apply(&code.into(), a.dtype, &[a, b]);
    let mut all = summands.to_vec();
    for step in 1..n {
        let product = apply(OpCode::Mul, factors[at(step)], all[at(step - 1)]);
        all[at(step)] = apply(OpCode::Add, all[at(step)], product);
    }
    if result == 0 {
        return all;
    }
    let mut before = all.clone();
    for step in 0..n {
        let zero = || Literal::from_i64(all[0].dtype, 0).into();
        before[at(step)] = if step == 0 { zero() } else { all[at(step - 1)] };
    }
    before
}

fn combine(code: OpCode, sum: Element, x: Element) -> Element {
    let apply = |code: OpCode| scalar::apply(&code.into(), x.dtype, &[sum, x]);
    match code {
        OpCode::CumSum => apply(OpCode::Add),
        OpCode::CumProd => apply(OpCode::Mul),
        _ => {
            let (a, b) = (sum.as_f64(), x.as_f64());
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            let value =
                if low == high { high + 2f64.ln() } else { high + (low - high).exp().ln_1p() };
            Literal::from_f64(x.dtype, value).into()
        }
    }
}

/// One result of an op on matrices, for each matrix of the batch.
fn matrices<T: Scalar<Real: Into<f64>>>(
    node: &Node,
    operands: &[&Array],
    number: fn(Element) -> T,
) -> Result<Array> {
    let items = |x: &Array| {
        let shape = &x.spec().shape;
        let plane = [shape[shape.rank() - 2], shape[shape.rank() - 1]];
        (x.elements().map(number).collect::<Vec<T>>(), plane)
    };
    let operands: Vec<(Vec<T>, [usize; 2])> = operands.iter().map(|x| items(x)).collect();
    let result = node.op.attrs.library().0 as usize;
    let shape = &node.spec.shape;
    let rank = node.op.def().item_rank.result(result, node.spec.shape.rank());
    let batches: usize = shape[..shape.rank() - rank].iter().product();
    let mut out = Vec::with_capacity(node.spec.numel());
    for batch in 0..batches {
        let one = |(all, plane): &(Vec<T>, [usize; 2])| {
            let len = plane[0] * plane[1];
            (all[batch * len..(batch + 1) * len].to_vec(), *plane)
        };
        let owned: Vec<(Vec<T>, [usize; 2])> = operands.iter().map(one).collect();
        let slices: Vec<Matrix<'_, T>> = owned.iter().map(|(x, p)| (x.as_slice(), *p)).collect();
        let parts = call(&node.op, &slices, &[true; 3], &Alone).map_err(|failure| {
            Error::InvalidArgument { op: node.op.name(), reason: failure.to_string() }
        })?;
        let dtype = node.spec.dtype;
        let number = |re: f64, im: f64| match dtype.is_complex() {
            true => Element::from_complex(dtype, Complex64::new(re, im)),
            false => Literal::from_f64(dtype, re).into(),
        };
        match &parts[result] {
            MatrixResult::Same(values) => {
                out.extend(values.iter().map(|v| number(v.re().into(), v.im().into())))
            }
            MatrixResult::Complex(values) => {
                out.extend(values.iter().map(|v| number(v.re().into(), v.im().into())))
            }
            MatrixResult::Real(values) => out.extend(values.iter().map(|&v| number(v.into(), 0.0))),
        }
    }
    Ok(Array::new(node.spec.clone(), out))
}
