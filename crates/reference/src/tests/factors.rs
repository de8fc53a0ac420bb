//! The declared factors of every op are correct: parts of the operands give parts of the result.

use super::*;
use girih_ir::factors::{AxisFactors, Factor, Role};
use girih_ir::ops::Sample;
use girih_ir::ops::conv::Conv;
use girih_ir::{Factors, Shape};
use std::ops::Range;
use std::sync::Arc;

fn run(op: &Op, inputs: &[Array]) -> Array {
    let mut b = GraphBuilder::default();
    let operands: Vec<_> = inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let y = b.emit(op.clone(), &operands).unwrap_or_else(|e| panic!("{op:?}: {e}"));
    evaluate(&b.finish([y]), inputs).expect("samples are evaluated").remove(0)
}

/// A part of one factor's range.
struct Part<'a> {
    sizes: &'a [usize],
    factor: usize,
    range: Range<usize>,
}

impl Part<'_> {
    fn size(&self, factor: usize) -> usize {
        if factor == self.factor { self.range.len() } else { self.sizes[factor] }
    }

    /// Size of an axis in the part.
    fn axis(&self, axis: &AxisFactors, size: usize) -> usize {
        match axis.contains(&self.factor) {
            true => axis.iter().map(|&f| self.size(f)).product(),
            false => size,
        }
    }

    fn shape(&self, axes: &[AxisFactors], shape: &Shape) -> Shape {
        axes.iter().zip(shape.iter()).map(|(axis, &size)| self.axis(axis, size)).collect()
    }

    /// Maps an index in the part to the index in the whole tensor.
    fn index(&self, axis: &AxisFactors, mut index: usize) -> usize {
        if !axis.contains(&self.factor) {
            return index;
        }
        let (mut whole, mut stride) = (0, 1);
        for &f in axis.iter().rev() {
            let own = index % self.size(f);
            index /= self.size(f);
            whole += stride * if f == self.factor { own + self.range.start } else { own };
            stride *= self.sizes[f];
        }
        whole
    }

    fn of(&self, x: &Array, axes: &[AxisFactors]) -> Array {
        let whole = &x.spec().shape;
        let shape = self.shape(axes, whole);
        Array::from_fn(TensorSpec::new(shape, x.spec().dtype), |index| {
            let own = index.iter().zip(axes).map(|(&i, axis)| self.index(axis, i));
            x.get(own.zip(whole.iter()).fold(0, |flat, (i, &size)| flat * size + i))
        })
    }

    /// The op on the part: adjusts the attributes that contain sizes of the result.
    fn op(&self, op: &Op, factors: &Factors, result: &Shape) -> Op {
        let result = self.shape(factors.result(), result);
        let attrs = match &op.attrs {
            Attrs::Shape(_) => Attrs::shape(result),
            Attrs::Slice(dims) => {
                let whole = |axis: &AxisFactors| axis.contains(&self.factor);
                let dim = |((axis, dim), &size): ((&AxisFactors, &SliceDim), &usize)| {
                    if whole(axis) { SliceDim { size, ..*dim } } else { *dim }
                };
                let dims = factors.result().iter().zip(dims.iter()).zip(result.iter()).map(dim);
                Attrs::Slice(Arc::new(dims.collect()))
            }
            Attrs::Conv(conv) if factors.factors()[self.factor].size.is_some() => {
                Attrs::Conv(Arc::new(Conv { dims: conv.dims.clone(), groups: self.range.len() }))
            }
            other => other.clone(),
        };
        Op::new(op.code, attrs)
    }

    fn run(&self, sample: &Sample, factors: &Factors, result: &Shape) -> Array {
        let inputs: Vec<Array> = sample
            .inputs
            .iter()
            .zip(factors.operands())
            .map(|(x, axes)| self.of(x, axes))
            .collect();
        run(&self.op(&sample.op, factors, result), &inputs)
    }
}

#[track_caller]
fn assert_close(found: &Array, expected: &Array, of: &str) {
    assert_eq!(found.spec(), expected.spec(), "{of}");
    for (a, b) in found.elements().zip(expected.elements()) {
        let (a, b) = match a.dtype.is_complex() {
            true => (a.complex(), b.complex()),
            false => (a.as_f64().into(), b.as_f64().into()),
        };
        let close =
            (a - b).norm() <= 1e-9 * (1.0 + b.norm()) || a == b || a.re.is_nan() && b.re.is_nan();
        assert!(close, "{of}: {found:?} is not {expected:?}");
    }
}

/// Checks every factor of every sample: pointwise factors part by part, reduced factors by
/// combining the partial results.
#[test]
fn every_factor_of_every_op_is_true() {
    let (mut pointwise, mut reduced) = (0, 0);
    for sample in OpCode::ALL.iter().flat_map(|code| code.samples()) {
        let specs: Vec<&TensorSpec> = sample.inputs.iter().map(Array::spec).collect();
        let out = sample.infer().expect("the op takes its sample");
        let Ok(factors) = sample.op.factors(&specs, &out) else { continue };
        let shapes: Vec<&Shape> = sample.inputs.iter().map(|x| &x.spec().shape).collect();
        let whole = run(&sample.op, &sample.inputs);
        let result = &whole.spec().shape;
        let of = format!("{:?} {shapes:?}: {factors}", sample.op);
        let sizes = factors.sizes(&shapes, result).unwrap_or_else(|e| panic!("{of}: {e}"));
        let sizes: Vec<usize> = sizes.iter().map(|size| size.get()).collect();
        for (factor, &Factor { role, .. }) in factors.factors().iter().enumerate() {
            if sizes[factor] < 2 || role == Role::Whole {
                continue;
            }
            let parts = [0..1, 1..sizes[factor]].map(|range| {
                let part = Part { sizes: &sizes, factor, range };
                let value = part.run(&sample, &factors, result);
                if role == Role::Pointwise {
                    assert_close(&value, &part.of(&whole, factors.result()), &of);
                    pointwise += 1;
                }
                value
            });
            if let Role::Reduced(code) = role {
                assert_close(&run(&code.into(), &parts), &whole, &of);
                reduced += 1;
            }
        }
    }
    assert!(pointwise > 400 && reduced > 30, "{pointwise} {reduced}");
}
