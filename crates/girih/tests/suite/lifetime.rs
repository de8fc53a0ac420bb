//! Tests of the lifetime of nodes, and of the graphs that record them.

use girih::{DType, Graph, Result, ReuseScope, Scope, Tensor, current_graph, eval};

#[test]
fn evaluated_nodes_drop_their_edges() -> Result<()> {
    let scope = Scope::new();
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let y = x.exp()?.add(1.0)?.log()?;
    assert_eq!(scope.graph().live().len(), 5);
    y.eval()?;
    assert_eq!(scope.graph().live().len(), 2);
    drop(x);
    assert_eq!(scope.graph().live().len(), 1);
    assert_eq!(y.to_vec::<f32>()?.len(), 2);
    Ok(())
}

#[test]
fn a_million_node_chain_records_evaluates_and_drops() -> Result<()> {
    let step = Tensor::from_slice(&[1i64], [1])?;
    let mut lazy = step.clone();
    for _ in 0..1_000_000 {
        lazy = lazy.add(&step)?;
    }
    drop(lazy);
    let mut sum = step.clone();
    for _ in 0..1_000_000 {
        sum = sum.add(&step)?;
    }
    assert_eq!(sum.item::<i64>()?, 1_000_001);
    Ok(())
}

#[test]
fn tensors_that_leave_a_scope_stay_valid_and_its_graph_does_not() -> Result<()> {
    let (escaped, graph) = {
        let scope = Scope::new();
        let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
        (x.mul(&x)?, scope.graph().clone())
    };
    assert_eq!(graph.live().len(), 2);
    let sum = escaped.add(&escaped)?;
    assert_eq!(sum.to_vec::<f32>()?, [2.0, 8.0]);
    drop((escaped, sum));
    assert!(graph.live().is_empty());
    Ok(())
}

#[test]
fn a_graph_can_be_entered_again() -> Result<()> {
    let (first, second) = (Graph::new(), Graph::new());
    let outer = current_graph();
    let record = |graph: &Graph, size: usize| {
        let _scope = ReuseScope::new(graph);
        Tensor::ones([size, size], DType::F32)
    };
    let _a = record(&first, 100)?;
    let _b = record(&second, 200)?;
    let _c = record(&first, 100)?;
    assert_eq!((first.num_nodes(), second.num_nodes()), (2, 1));
    assert_eq!(second.live()[0].shape().to_string(), "[200, 200]");
    assert_eq!(current_graph(), outer);
    Ok(())
}

#[test]
fn a_scope_ends_also_when_its_block_panics() {
    let outer = current_graph();
    let result = std::panic::catch_unwind(|| {
        let _scope = Scope::new();
        panic!("on purpose");
    });
    assert!(result.is_err());
    assert_eq!(current_graph(), outer);
}

#[test]
fn threads_record_to_graphs_of_their_own_and_share_tensors() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let lazy = x.mul(3.0)?;
    let here = current_graph();
    let there = std::thread::spawn(move || {
        assert_ne!(current_graph(), here);
        let y = lazy.add(&x).unwrap();
        assert!(y.is_lazy());
        (y, current_graph())
    });
    let (y, graph) = there.join().unwrap();
    assert_eq!(graph.num_nodes(), 1);
    assert_eq!(y.sub(1.0)?.to_vec::<f32>()?, [3.0, 7.0]);
    Ok(())
}

#[test]
fn a_view_of_data_is_available_without_a_copy() -> Result<()> {
    let x = Tensor::from_slice(&[1i32, 2, 3, 4, 5, 6], [3, 2])?;
    let rows = x.narrow(0, 1, 2)?;
    eval([&rows])?;
    assert!(!rows.is_lazy());
    assert_eq!(rows.address()?.0, x.address()?.0 + 8);
    drop(x);
    assert_eq!(rows.to_vec::<i32>()?, [3, 4, 5, 6]);
    assert_eq!(rows.narrow(0, 1, 1)?.to_vec::<i32>()?, [5, 6]);
    assert!(rows.narrow(0, 2, 0)?.to_vec::<i32>()?.is_empty());
    assert_eq!(rows.narrow(1, 1, 1)?.to_vec::<i32>()?, [4, 6]);
    Ok(())
}
