//! Tests of ops recorded by name: every op of the registry from its attributes, and invalid calls.

use girih::ir::ops::Class;
use girih::ir::{Array, Graph, OpCode};
use girih::{Attribute, DType, Error, Program, Tensor, apply};

fn tensor(array: &Array) -> Tensor {
    Tensor::from_bytes(array.spec(), array.to_bytes()).unwrap()
}

/// The graph of one op on inputs.
fn graph_of(sample: &girih::ir::ops::Sample) -> Graph {
    let mut graph = Graph::new();
    let inputs: Vec<_> =
        sample.inputs.iter().map(|x| graph.leaf(OpCode::Input.into(), x.spec().clone())).collect();
    let out = graph.push(sample.op.clone(), &inputs).unwrap();
    graph.set_outputs([out]);
    graph
}

#[test]
fn every_op_is_recorded_by_its_name_from_its_own_text() {
    let mut count = 0;
    for &code in OpCode::ALL {
        for sample in code.samples() {
            let program = Program::from_text(&graph_of(&sample).to_string()).unwrap();
            let node = program.node(sample.inputs.len()).unwrap();
            let operands: Vec<Tensor> = sample.inputs.iter().map(tensor).collect();
            let operands: Vec<&Tensor> = operands.iter().collect();
            let found = apply(node.op, &operands, &node.attributes)
                .unwrap_or_else(|error| panic!("{error}\n{}", program.to_text()));
            assert_eq!(found.op(), sample.op, "{}", program.to_text());
            assert_eq!(found.spec(), sample.infer().unwrap());
            let same = found.to_bytes().unwrap()
                == program.call(&operands).unwrap()[0].to_bytes().unwrap();
            assert!(same, "{}", program.to_text());
            count += 1;
        }
        assert!(code.def().class == Class::Leaf || !code.samples().is_empty(), "{code:?}");
    }
    assert!(count > OpCode::ALL.len());
}

#[test]
fn leaves_are_recorded_by_shape_and_dtype() {
    let sizes =
        |sizes: &[i128]| Attribute::List(sizes.iter().map(|&n| Attribute::Int(n)).collect());
    let (shape, dtype) = (("shape", sizes(&[2, 3])), ("dtype", Attribute::DType(DType::I32)));
    let iota = apply("iota", &[], &[shape.clone(), dtype.clone(), ("dim", Attribute::Int(-1))]);
    assert_eq!(iota.unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 0, 1, 2]);
    let full = apply("constant", &[], &[shape.clone(), dtype, ("value", Attribute::Int(7))]);
    assert_eq!(full.unwrap().to_vec::<i32>().unwrap(), [7; 6]);
    let float = ("dtype", Attribute::Text("f32".into()));
    let draws = apply("random_uniform", &[], &[shape.clone(), float]).unwrap();
    assert!(draws.to_vec::<f32>().unwrap().iter().all(|x| (0.0..1.0).contains(x)));
    let says = |name, given: &[(&str, Attribute)], parts: &[&str]| {
        let error = apply(name, &[], given).unwrap_err();
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    says("iota", &[], &["iota lacks attribute 'shape'", "a list in brackets"]);
    says("iota", std::slice::from_ref(&shape), &["'dtype'", "a dtype"]);
    says("input", &[shape], &["input", "use a tensor"]);
}

#[test]
fn errors_name_the_op_the_attribute_and_the_expected_value() {
    let x = Tensor::ones([2, 3], DType::F32).unwrap();
    let says = |name: &str, given: &[(&str, Attribute)], parts: &[&str]| {
        let error = apply(name, &[&x], given).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    let int = Attribute::Int;
    says("reduce_sun", &[], &["no op 'reduce_sun'", "did you mean reduce_sum?"]);
    says("zzzzzzzzzz", &[], &["no op 'zzzzzzzzzz'"]);
    says("", &[], &["no op ''"]);
    says("neg", &[("dim", int(1))], &["unexpected attribute 'dim'", "neg takes no attributes"]);
    says("reduce_sum", &[("axis", int(1))], &["'axis'", "reduce_sum takes dim, keepdim"]);
    says("reduce_sum", &[("dim", Attribute::Bool(true))], &["'dim' of reduce_sum", "got 'true'"]);
    says("softmax", &[], &["softmax lacks attribute 'dim'", "an integer"]);
    says("cast", &[], &["cast lacks attribute 'dtype'", "a dtype"]);
    says(
        "cast",
        &[("dtype", Attribute::Text("f31".into()))],
        &["'dtype' of cast", "f32", "got 'f31'"],
    );
    says("cast", &[("", int(1))], &["lacks its name"]);
    says("cond", &[("result", int(0))], &["cond takes regions"]);
    let axis = apply("softmax", &[&x], &[("dim", int(-3))]).unwrap_err();
    assert!(axis.to_string().contains("axis -3 is out of range"), "{axis}");
    let axis = apply("softmax", &[&x], &[("dim", int(2))]).unwrap_err();
    assert!(axis.to_string().contains("axis 2 is out of range"), "{axis}");
    let arity = apply("add", &[&x], &[]).unwrap_err();
    assert!(arity.to_string().contains("takes 2 to 2 operands, got 1"), "{arity}");
}

#[test]
fn dtypes_of_the_operands_of_an_arithmetic_op_meet() {
    let x = Tensor::from_slice(&[1.5f32, 2.5], [2]).unwrap();
    let i = Tensor::from_slice(&[2i64, 3], [2]).unwrap();
    for (found, wanted) in [
        (apply("add", &[&x, &i], &[]), x.add(&i)),
        (apply("mul", &[&i, &x], &[]), i.mul(&x)),
        (apply("lt", &[&x, &i], &[]), x.lt(&i)),
    ] {
        let (found, wanted) = (found.unwrap(), wanted.unwrap());
        assert_eq!(found.spec(), wanted.spec());
        assert_eq!(found.to_bytes().unwrap(), wanted.to_bytes().unwrap());
    }
}
