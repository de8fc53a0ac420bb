//! Tests of strided arguments against the reference evaluator on gathered ones.

use super::*;
use girih_ir::{Array, DType};
use girih_reference::evaluate;

/// The elements of a strided box that begins at element `offset`.
fn gathered(larger: &Array, offset: usize, spec: &TensorSpec, strides: &[usize]) -> Array {
    let mut places = vec![offset];
    for (&size, &stride) in spec.shape.iter().zip(strides) {
        places = places.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
    }
    Array::new(spec.clone(), places.into_iter().map(|at| larger.get(at)))
}

#[test]
fn a_strided_graph_reads_the_box() {
    let boxes: [(&[usize], &[usize]); 8] = [
        (&[2, 3], &[10, 1]),
        (&[2, 3], &[10, 2]),
        (&[3, 2, 4], &[30, 5, 1]),
        (&[1, 4], &[100, 3]),
        (&[4, 1, 2], &[20, 7, 1]),
        (&[5], &[6]),
        (&[3, 4], &[1, 10]),
        (&[], &[]),
    ];
    let count = 120;
    let numbers: Vec<f64> = (0..count).map(f64::from).collect();
    let larger = Array::from_f64([count as usize], DType::F32, &numbers);
    for (sizes, strides) in boxes {
        let spec = TensorSpec::new(sizes.to_vec(), DType::F32);
        let mut b = GraphBuilder::default();
        let x = b.input(spec.clone());
        let y = b.add(x, x).unwrap();
        let graph = b.finish([y]);
        let rewritten = strided(&graph, &[Some(strides.into())]).unwrap();
        rewritten.verify().unwrap();
        let extent = span(&spec, strides);
        let input = rewritten.arguments().next().unwrap();
        assert_eq!(*rewritten.spec(input), TensorSpec::new([extent], DType::F32), "{strides:?}");
        let given = gathered(&larger, 7, &TensorSpec::new([extent], DType::F32), &[1]);
        let found = evaluate(&rewritten, &[given]).unwrap();
        let expected = evaluate(&graph, &[gathered(&larger, 7, &spec, strides)]).unwrap();
        assert_eq!(found, expected, "{sizes:?} {strides:?}");
    }
}

#[test]
fn strides_that_do_not_fit_are_refused() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([2, 3], DType::F32));
    let key = b.leaf(OpCode::RandomUniform.into(), TensorSpec::new([2, 3], DType::F32));
    let y = b.add(x, key).unwrap();
    let graph = b.finish([y]);
    let refused = |strides: &[Option<Strides>]| strided(&graph, strides).unwrap_err().to_string();
    let error = refused(&[Some([4].into())]);
    assert!(error.contains("f32[2, 3]") && error.contains("[4]"), "{error}");
    assert!(refused(&[Some([4, 0].into())]).contains("at least 1"));
    let error = refused(&[None, Some([4, 1].into())]);
    assert!(error.contains("argument 1"), "{error}");
    assert!(strided(&graph, &[]).is_ok_and(|same| same == graph));
}

#[test]
fn boxes_without_elements_take_no_memory() {
    let spec = TensorSpec::new([2, 0, 3], DType::F32);
    assert_eq!(span_bytes(&spec, &[100, 10, 1]), 0);
    let mut b = GraphBuilder::default();
    let x = b.input(spec);
    let graph = b.finish([x]);
    let rewritten = strided(&graph, &[Some([0, 10, 1].into())]).unwrap();
    let given = Array::from_f64([0], DType::F32, &[]);
    let found = evaluate(&rewritten, &[given]).unwrap();
    assert_eq!(found[0].spec().shape, girih_ir::Shape::from(&[2, 0, 3][..]));
}
