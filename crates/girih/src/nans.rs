//! Finding the op that made a NaN: a program whose results have one is run again with every value as
//! a result.

use crate::Executor;
use girih_ir::{Class, DType, Graph, Literal, NodeId, TensorSpec};
use girih_runtime::{Argument, CompileOptions, Completion, Error, Result, Value};
use smallvec::SmallVec;

/// Fails if one of the results of a graph has a NaN, with the first op whose result has one.
///
/// Errors: [`Error::NotANumber`]; as running the graph.
pub(crate) fn check(
    executor: &Executor,
    graph: &Graph,
    arguments: &[Argument],
    results: &[(NodeId, Value)],
) -> Result<()> {
    for (id, value) in results {
        if has_nan(executor, graph.spec(*id), value)? {
            let first = first(executor, graph, arguments)?.unwrap_or(*id);
            let op = graph.node(first).op.name().to_string();
            return Err(Error::NotANumber { op, node: first.0 });
        }
    }
    Ok(())
}

/// The first node, in the graph's order, whose value has a NaN when it is computed as recorded.
fn first(executor: &Executor, graph: &Graph, arguments: &[Argument]) -> Result<Option<NodeId>> {
    let computed = |id: &NodeId| {
        let node = graph.node(*id);
        node.op.class() != Class::Leaf && may_be_nan(node.spec.dtype)
    };
    let nodes: Vec<NodeId> = graph.ids().filter(computed).collect();
    let mut every = graph.clone();
    every.set_outputs(nodes.iter().copied());
    let runtime = executor.runtime();
    let options = CompileOptions { passes: 0, fusion: 0, user: 0 };
    let plan = runtime.plan(&every, options)?;
    let control = runtime.control(executor.limit(), false);
    let (block, values) = runtime.bind(&plan, arguments, control)?;
    let (completion, after) = (Completion::pending(), SmallVec::new());
    runtime.start(&runtime.thread_stream(), &plan.plan, &block, after, completion, true)?;
    for (&id, value) in nodes.iter().zip(&values) {
        if has_nan(executor, graph.spec(id), value)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

fn may_be_nan(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_complex()
}

fn has_nan(executor: &Executor, spec: &TensorSpec, value: &Value) -> Result<bool> {
    let part = match spec.dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        dtype => dtype,
    };
    if !may_be_nan(part) {
        return Ok(false);
    }
    let bytes = executor.runtime().download(value, spec.size_bytes())?;
    let is_nan = |bytes: &[u8]| {
        let bits = bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | byte as u64);
        Literal { dtype: part, bits }.as_f64().is_nan()
    };
    Ok(bytes.chunks_exact(part.size()).any(is_nan))
}
