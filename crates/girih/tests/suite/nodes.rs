//! Tests of the properties of a tensor's node.

use girih::ir::ops::Category;
use girih::{Complex64, DType, Device, Error, Literal, NodeKind, Scope, Tensor};

fn data(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[test]
fn a_node_tells_its_op_kind_operands_and_users() {
    let _scope = Scope::new();
    let (x, two) = (data(&[1.0, 2.0]), Tensor::full(2.0, [], DType::F32).unwrap());
    let sum = x.add(&two).unwrap();
    assert_eq!((x.kind(), x.category()), (NodeKind::Input, Category::Leaf));
    assert_eq!(two.kind(), NodeKind::Constant);
    assert_eq!(x.clone().into_parameter().unwrap().kind(), NodeKind::Parameter);
    assert_eq!(two.constant_value(), Some(Literal::from_f64(DType::F32, 2.0)));
    assert_eq!(x.constant_value(), None);
    assert_eq!((sum.kind(), sum.op_name()), (NodeKind::Intermediate, "add"));
    assert_eq!(sum.category().name(), "OP_ELEMENTWISE");
    assert!(sum.id() > x.id() && sum.is_lazy() && !x.is_lazy());
    let inputs = sum.inputs();
    assert!(inputs.len() == 2 && inputs[0].is_same(&x) && inputs[1].is_same(&two));
    assert!(x.users().len() == 1 && x.users()[0].is_same(&sum));
    sum.eval().unwrap();
    assert!(sum.inputs().is_empty() && x.users().is_empty() && !sum.is_lazy());
}

#[test]
fn users_are_counted_per_operand_while_they_are_alive() {
    let _scope = Scope::new();
    let x = data(&[1.0, 2.0]);
    let square = x.mul(&x).unwrap();
    assert_eq!(x.users().len(), 2);
    let kept = x.neg().unwrap();
    assert_eq!(x.users().len(), 3);
    drop(square);
    assert_eq!(x.users().len(), 1);
    drop(kept);
    assert_eq!(x.users().len(), 0);
}

#[test]
fn leading_slices_share_the_buffer_at_an_offset() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]).unwrap();
    let rows = x.narrow(0, 1, 2).unwrap();
    let (whole, part) = (x.value().unwrap(), rows.value().unwrap());
    assert_eq!(part.handle(), whole.skip(8).handle(), "a view shares the memory");
    assert_eq!(rows.to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0, 6.0]);
    assert_eq!(rows.spec().size_bytes(), 16);
}

#[test]
fn data_is_read_in_place_by_its_own_type_only() {
    let x = data(&[1.0, 2.0, 3.0]).mul(2.0).unwrap();
    let view = x.data::<f32>().unwrap();
    assert_eq!(*view, [2.0, 4.0, 6.0]);
    assert_eq!(view.as_ptr() as u64, x.address().unwrap().0, "without a copy");
    // The view keeps the memory alive.
    drop(x);
    let others: Vec<Tensor> = (0..8).map(|i| data(&[i as f32; 3]).neg().unwrap()).collect();
    girih::eval(&others).unwrap();
    assert_eq!(*view, [2.0, 4.0, 6.0]);
    let error = data(&[1.0]).data::<i32>().map(drop).unwrap_err();
    assert!(matches!(error, Error::ElementType { expected: DType::I32, found: DType::F32 }));
    assert!(data(&[]).data::<f32>().unwrap().is_empty());
    let positive = data(&[1.0, -1.0]).gt(0.0).unwrap();
    assert_eq!(*positive.data::<bool>().unwrap(), [true, false]);
    // Elements in another device's memory are copied.
    let there = data(&[5.0, 6.0]).to_device(Device::named("mock").unwrap()).unwrap();
    assert_eq!(*there.data::<f32>().unwrap(), [5.0, 6.0]);
}

#[test]
fn constant_data_is_read_in_the_dtype_of_the_constant() {
    let two = Tensor::full(2.5, [3, 4], DType::F32).unwrap();
    assert_eq!(two.constant_data::<f32>().unwrap(), 2.5);
    let error = two.constant_data::<f64>().unwrap_err();
    assert!(matches!(error, Error::ElementType { expected: DType::F64, found: DType::F32 }));
    assert!(Tensor::ones([], DType::Bool).unwrap().constant_data::<bool>().unwrap());
    let complex = Tensor::full(-3.0, [2], DType::C128).unwrap();
    assert_eq!(complex.constant_data::<Complex64>().unwrap(), Complex64::new(-3.0, 0.0));
    let error = two.neg().unwrap().constant_data::<f32>().unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}

#[test]
fn a_program_gives_the_values_that_it_holds() {
    let (x, w) = (data(&[1.0, 2.0]), data(&[3.0, 4.0]));
    let y = x.mul(&w).unwrap().add(2.0).unwrap();
    let program = girih::Program::capture(&[&y], &[&x]).unwrap();
    let values: Vec<(&str, Option<Vec<f32>>)> = program
        .nodes()
        .iter()
        .map(|node| (node.op, program.value(node.id).map(|t| t.to_vec::<f32>().unwrap())))
        .collect();
    for (op, value) in &values {
        match *op {
            "constant" => assert_eq!(value.as_deref(), Some(&[2.0][..])),
            "mul" | "add" => assert_eq!(*value, None),
            _ => assert!(value.is_none() || value.as_deref() == Some(&[3.0, 4.0][..])),
        }
    }
    assert!(values.iter().any(|(_, value)| value.as_deref() == Some(&[3.0, 4.0][..])));
    assert!(program.value(1000).is_none());
}
