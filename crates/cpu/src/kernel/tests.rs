//! Loops prepack the weights that they read in each iteration.

mod cycle;

use super::*;
use crate::prepacked::testing::CountingStore;
use girih_ir::ops::control::Control as Regions;
use girih_ir::testing::region;
use girih_ir::{DType, Graph, GraphBuilder, Op, OpCode, TensorSpec};
use girih_kernel::{BufferKind, FusionOptions, Target, lower};
use std::sync::Arc;

const ROWS: usize = 16;
const WIDTH: usize = 64;

/// `x = x @ w` so many times, or `w = w @ w` if the weights change; `nested` puts the loop in
/// another one, of two iterations.
fn products(length: usize, changes: bool, nested: bool) -> Graph {
    let (x, w) = (
        TensorSpec::new([if changes { WIDTH } else { ROWS }, WIDTH], DType::F32),
        TensorSpec::new([WIDTH, WIDTH], DType::F32),
    );
    let scan = |length: usize, body: Graph| {
        let carries = Regions { carries: 1, length: length.into(), ..Regions::default() };
        Op::control(OpCode::Scan, Arc::new(carries.with_regions(vec![body])), 0)
    };
    let product = region(&[x.clone(), w.clone()], |b, of| {
        let right = if changes { of[0] } else { of[1] };
        Ok(vec![b.matmul(of[0], right)?])
    });
    let mut op = scan(length, product);
    if nested {
        let inner = region(&[x.clone(), w.clone()], |b, of| Ok(vec![b.emit(op.clone(), of)?]));
        op = scan(2, inner);
    }
    let mut b = GraphBuilder::default();
    let inputs = [b.input(x), b.input(w)];
    let last = b.emit(op, &inputs).unwrap();
    b.finish([last])
}

/// The bits of the result, and whether B can be prepacked on this machine.
fn run(graph: &Graph, store: Option<&dyn PrepackedStore>) -> (Vec<u32>, bool) {
    let program = lower(graph, FusionOptions::ALL, &Target::CPU).unwrap();
    let mut buffers: Vec<Vec<f32>> = Vec::new();
    for (seed, buffer) in program.buffers.iter().enumerate() {
        let numel = buffer.size_bytes().div_ceil(4);
        let value = |i: usize| ((i * 7919 + seed * 31) % 17) as f32 / 64.0 - 0.1;
        buffers.push(match buffer.kind {
            BufferKind::Argument(_) => (0..numel).map(value).collect(),
            BufferKind::Computed => vec![0.0; numel],
        });
    }
    let bounds: Vec<Bounds> = buffers.iter().map(|b| Bounds::of(4 * b.len())).collect();
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
    let workspace = std::ptr::null_mut();
    let bindings =
        Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
    let (mut prepackable, pool) = (false, Pool::new(2));
    for kernel in &program.kernels {
        let loaded = LoadedKernel::new(kernel);
        prepackable |= !loaded.prepackable().is_empty();
        // SAFETY: the buffers have their sizes.
        unsafe { loaded.run_with_prepacked(&bindings, &pool, store) }.unwrap();
    }
    let result = &buffers[program.outputs[0].0 as usize];
    (result.iter().map(|x| x.to_bits()).collect(), prepackable)
}

/// Checks the result, and how often the store is asked for weights and for memory.
#[track_caller]
fn check(graph: &Graph, packs: bool, asked: usize, allocated: usize) {
    let store = CountingStore { packs, ..CountingStore::default() };
    let (want, prepackable) = run(graph, None);
    assert_eq!(run(graph, Some(&store)).0, want);
    if prepackable {
        assert_eq!([store.asked.get(), store.allocated.get()], [asked, allocated]);
    }
}

#[test]
fn a_loop_packs_weights_in_its_first_iteration() {
    check(&products(6, false, false), false, 1, 1);
    // Weights that the store has are not packed again.
    check(&products(6, false, false), true, 1, 0);
}

#[test]
fn few_iterations_do_not_pay_for_prepacking() {
    check(&products(2, false, false), false, 2, 0);
    check(&products(2, false, false), true, 1, 0);
}

#[test]
fn weights_that_change_are_packed_in_each_iteration() {
    check(&products(6, true, false), false, 0, 0);
}

#[test]
fn an_inner_loop_shares_the_weights_of_the_outer_one() {
    // The outer loop has too few iterations to allocate, so each run of the inner loop packs.
    check(&products(6, false, true), false, 2, 2);
    check(&products(6, false, true), true, 1, 0);
}
