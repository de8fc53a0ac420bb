//! What can be asked of a tensor's node.

use girih::ir::ops::Category;
use girih::{DType, Literal, NodeKind, Scope, Tensor};
use std::sync::Arc;

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
fn users_are_counted_per_operand_and_while_somebody_holds_them() {
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
fn rows_of_data_are_that_data_further_on() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]).unwrap();
    let rows = x.narrow(0, 1, 2).unwrap();
    let (whole, part) = (x.value().unwrap(), rows.value().unwrap());
    assert!(Arc::ptr_eq(&whole.buffer, &part.buffer), "a view shares the memory");
    assert_eq!((whole.offset, part.offset), (0, 8));
    assert_eq!(rows.to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0, 6.0]);
    assert_eq!(rows.spec().size_bytes(), 16);
}
