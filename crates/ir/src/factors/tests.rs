//! Tests that the declared factors are correct, and that their text form round-trips.

use super::*;
use crate::ops::conv::Conv;
use crate::ops::{Attrs, Sample, SliceDim};
use crate::reference::{Array, evaluate};
use crate::testing::{Rng, mutate, mutations};
use crate::{Class, DType, GraphBuilder, Op, TensorSpec};
use std::ops::Range;
use std::sync::Arc;

fn factors_of(sample: &Sample) -> std::result::Result<Factors, &'static str> {
    let specs: Vec<&TensorSpec> = sample.inputs.iter().map(Array::spec).collect();
    sample.op.factors(&specs, &sample.infer().expect("the op takes its sample"))
}

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
        let Ok(factors) = factors_of(&sample) else { continue };
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

#[test]
fn every_op_has_factors_or_says_why_not() {
    for &code in OpCode::ALL {
        match code.def().factor_rule() {
            Ok(_) => assert_ne!(code.def().class, Class::Control, "{}", code.def().name),
            Err(why) => assert_eq!(why, "its regions say what it computes", "{}", code.def().name),
        }
    }
}

/// The factors of ops on symbolic sizes. Computing them must not specialise any size.
#[test]
fn symbolic_sizes_stay_symbolic() {
    let n = || Dim::symbol("n", 6, 2, None);
    let spec = |dims: Vec<Dim>| TensorSpec::new(Shape::of_dims(dims), DType::F32);
    let reshaped = |from: Vec<Dim>, to: Vec<Dim>| {
        let op = Op::new(OpCode::Reshape, Attrs::shape(Shape::of_dims(to.clone())));
        op.factors(&[&spec(from)], &spec(to)).unwrap().to_string()
    };
    let guards = crate::dim::Guards::new();
    let entered = guards.enter();
    let result = [
        reshaped(vec![n(), 4.into()], vec![n() * 4usize]),
        reshaped(vec![n() * 4usize, 3.into()], vec![n(), 4.into(), 3.into()]),
        reshaped(vec![n(), 6.into()], vec![6.into(), n()]),
    ];
    drop(entered);
    assert_eq!(
        result,
        ["i j -> (i j)", "(i j) k -> i j k", "i j -> k l; i: whole, j: whole, k: whole, l: whole"]
    );
    assert!(guards.collected().is_empty(), "{:?}", guards.collected());
}

#[test]
fn reshapes_divide_axes() {
    let case = |from: &[usize], to: &[usize]| {
        let op = Op::new(OpCode::Reshape, Attrs::shape(to));
        let [from, to] = [from, to].map(|shape| TensorSpec::new(shape, DType::F32));
        op.factors(&[&from], &to).unwrap().to_string()
    };
    assert_eq!(case(&[2, 3, 4], &[6, 4]), "i j k -> (i j) k");
    assert_eq!(case(&[2, 1, 3], &[2, 3, 1]), "i 1 j -> i j 1");
    assert_eq!(case(&[2, 6], &[4, 3]), "i (j k) -> (i j) k; i = 2, j = 2, k = 3");
    let rest = "(i j) k -> (i l) m; i = 2, j: whole, k: whole, l: whole, m: whole";
    assert_eq!(case(&[4, 3], &[6, 2]), rest);
    assert_eq!(case(&[0, 3], &[5, 0]), "i j -> k l; i: whole, j: whole, k: whole, l: whole");
    assert_eq!(case(&[], &[1, 1]), "() -> 1 1");
}

fn random_factors(rng: &mut Rng) -> Result<Factors> {
    let count = rng.below(20);
    let role = |rng: &mut Rng| match rng.below(4) {
        0 => Role::Whole,
        1 => Role::Reduced(Role::COMBINING[rng.below(Role::COMBINING.len())]),
        _ => Role::Pointwise,
    };
    let mut factors = Vec::new();
    for _ in 0..count {
        let size = (rng.below(4) == 0).then(|| rng.below(100));
        factors.push(Factor { role: role(rng), size });
    }
    let tensor = |rng: &mut Rng, kept: &dyn Fn(usize) -> bool| {
        let mut axes = Vec::new();
        for f in (0..count).filter(|&f| kept(f)) {
            match rng.below(6) {
                0 => axes.push(AxisFactors::new()),
                1 if axes.last().is_some_and(|axis: &AxisFactors| !axis.is_empty()) => {
                    axes.last_mut().expect("there is one").push(f);
                    continue;
                }
                _ => {}
            }
            axes.push(AxisFactors::from_slice(&[f]));
        }
        axes
    };
    let operands = (0..rng.below(4)).map(|_| tensor(rng, &|_| true)).collect::<Vec<_>>();
    let result = tensor(rng, &|f| !matches!(factors[f].role, Role::Reduced(_)));
    Factors::new(factors, operands, result)
}

#[test]
fn factors_are_read_as_they_are_written_and_mutations_never_panic() {
    let mut texts: Vec<String> = OpCode::ALL
        .iter()
        .flat_map(|code| code.samples())
        .filter_map(|sample| factors_of(&sample).ok())
        .map(|factors| factors.to_string())
        .collect();
    let mut rng = Rng(7);
    texts.extend((0..500).filter_map(|_| random_factors(&mut rng).ok()).map(|f| f.to_string()));
    assert!(texts.len() > 500, "{}", texts.len());
    for text in &texts {
        let read = Factors::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(&read.to_string(), text);
    }
    let tokens: Vec<&[u8]> =
        vec![b"->", b"(", b")", b";", b":", b"=", b"whole", b"add", b"i17", b"1"];
    for _ in 0..mutations(5000) {
        let mut bytes = texts[rng.below(texts.len())].clone().into_bytes();
        mutate(&mut bytes, &tokens, &mut rng);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(factors) = Factors::parse(&text) {
            assert_eq!(Factors::parse(&factors.to_string()), Ok(factors), "{text}");
        }
    }
}

#[test]
fn bad_texts_say_what_was_expected() {
    let error = |text: &str| Factors::parse(text).unwrap_err().to_string();
    for (text, reason) in [
        ("", "expected the axes of a tensor, found the end"),
        ("i j", "expected \",\" or \"->\", found the end"),
        ("i -> (i)", "expected two or more factors in parentheses"),
        ("i -> i; j: whole", "expected a factor of an axis, found \"j\""),
        ("i -> i; i: sub", "an op that combines, found \"sub\""),
        ("i -> i; i = x", "expected a size, found \"x\""),
        ("i -> i\n\u{e9}", "line 2, column 1: expected the end"),
        ("i j -> i", "factor j: is pointwise and must be in the result"),
        ("i -> i; i: add", "factor i: is reduced and must not be in the result"),
        ("i i -> i", "factor i is twice in one tensor"),
    ] {
        assert!(error(text).contains(reason), "{text}: {}", error(text));
    }
}

#[test]
fn sizes_follow_from_shapes() {
    let factors = Factors::parse("(i j) k -> i (j k)").unwrap();
    let [a, b] = [[6, 4], [2, 12]].map(Shape::from);
    assert_eq!(factors.sizes(&[&a], &b).unwrap(), [2, 3, 4].map(Dim::from));
    let error = factors.sizes(&[], &b).unwrap_err().to_string();
    assert!(error.contains("0 operands are given, expected 1"), "{error}");
    let error = factors.sizes(&[&Shape::scalar()], &b).unwrap_err().to_string();
    assert!(error.contains("expected rank 2"), "{error}");
    let unclear = Factors::parse("(i j) -> (i j)").unwrap();
    let six = Shape::from([6]);
    let error = unclear.sizes(&[&six], &six).unwrap_err().to_string();
    assert!(error.contains("the size of factor i does not follow"), "{error}");
}
