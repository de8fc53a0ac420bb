//! Lowered graphs on the executor, against the reference and against other fusions.

mod control;
mod fourier;
mod fusing;
mod library;
mod mutated;
mod registry;

use crate::run_program;
use girih_ir::{
    Array, Attrs, AxisSet, DType, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Result,
    TensorSpec,
};
use girih_kernel::{BufferKind, FusionOptions, KernelProgram, Target, lower};
use girih_reference::evaluate;
use proptest::prelude::*;

/// The elements of a tensor.
type Data = Vec<f64>;

/// The graph of the outputs of `record`.
fn graph(record: impl FnOnce(&mut GraphBuilder) -> Result<Vec<NodeId>>) -> Graph {
    let mut b = GraphBuilder::default();
    let outputs = record(&mut b).expect("the test's graph is well-formed");
    b.finish(outputs)
}

/// The program of a graph of primitives. Fails unless its text is read back.
#[track_caller]
fn lowered(graph: &Graph, options: FusionOptions) -> KernelProgram {
    let program = lower(graph, options, &Target::CPU).expect("the graph is primitive");
    let text = program.to_string();
    let parsed = KernelProgram::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(parsed, program, "{text}");
    program
}

/// Runs a program with one output of that spec.
fn run_arrays(program: &KernelProgram, arguments: &[Array], spec: &TensorSpec) -> Array {
    let buffers: Vec<Vec<u8>> = arguments.iter().map(Array::to_bytes).collect();
    let outputs = run_program(program, &buffers, &[]).expect("all indices are in range");
    Array::from_bytes(spec.clone(), &outputs[0])
}

/// Runs a program with arguments that are real numbers; returns the bytes of its outputs.
fn run(program: &KernelProgram, arguments: &[Data]) -> Vec<Vec<u8>> {
    // An argument of no buffer is a run-time scalar, or a random key, for which any value will do.
    let dtype = |position: usize| {
        let buffer = program.buffers.iter().find(|b| b.kind == BufferKind::Argument(position));
        buffer.map_or(DType::F64, |b| b.dtype)
    };
    let bytes = |(position, values): (usize, &Data)| -> Vec<u8> {
        let dtype = dtype(position);
        let literal = |&v: &f64| Literal::from_f64(dtype, v).bits.to_le_bytes();
        values.iter().flat_map(|v| literal(v).into_iter().take(dtype.size())).collect()
    };
    let buffers: Vec<Vec<u8>> = arguments.iter().enumerate().map(bytes).collect();
    let scalar = |a: &Data| [a.first().copied().unwrap_or(0.0).to_bits(), 0];
    let scalars: Vec<[u64; 2]> = arguments.iter().map(scalar).collect();
    run_program(program, &buffers, &scalars).expect("all indices are in range")
}

/// Runs a program as [`run`]; returns its outputs, which are f64.
fn run_to_f64(program: &KernelProgram, arguments: &[Data]) -> Vec<Data> {
    let number = |word: &[u8]| f64::from_le_bytes(word.try_into().expect("eight bytes"));
    let numbers = |bytes: Vec<u8>| bytes.chunks(8).map(number).collect();
    run(program, arguments).into_iter().map(numbers).collect()
}
