//! Tests of the factors of ops, and of their text form, which round-trips.

use super::*;
use crate::ops::{Attrs, Sample};
use crate::testing::{Rng, mutate, mutations};
use crate::{Array, Class, DType, Op, TensorSpec};

fn factors_of(sample: &Sample) -> std::result::Result<Factors, &'static str> {
    let specs: Vec<&TensorSpec> = sample.inputs.iter().map(Array::spec).collect();
    sample.op.factors(&specs, &sample.infer().expect("the op takes its sample"))
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
fn sizes_of_factors_follow_from_the_shapes() {
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
