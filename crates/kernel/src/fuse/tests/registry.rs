//! A walk over the op registry: every op, on its samples in every dtype it takes, lowers with and
//! without fusion, and the portable executor agrees with the reference evaluator.

use super::*;
use crate::exec::{Bindings, Prepared, Scratch};
use crate::ir::{BufferKind, Program};
use girih_ir::Class;
use girih_ir::ops::Sample;
use girih_ir::reference::{Array, Element, evaluate};

/// The bytes of a real part of an element, and the number of parts.
fn parts(dtype: DType) -> (usize, usize) {
    (dtype.real().size(), 1 + dtype.is_complex() as usize)
}

fn pack(array: &Array) -> Vec<u64> {
    let (size, parts) = parts(array.spec().dtype);
    let element = |e: Element| {
        let bits = [e.bits, e.imag_bits()];
        bits.into_iter().take(parts).flat_map(move |b| b.to_le_bytes().into_iter().take(size))
    };
    let bytes: Vec<u8> = array.elements().flat_map(element).collect();
    bytes.chunks(8).map(word).collect()
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0u8; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

fn unpack(words: &[u64], spec: &TensorSpec) -> Array {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let (size, parts) = parts(spec.dtype);
    let element = |c: &[u8]| {
        let imag = if parts == 2 { word(&c[size..]) } else { 0 };
        Element::from_bits(spec.dtype, word(&c[..size]), imag)
    };
    Array::new(spec.clone(), bytes.chunks(size * parts).take(spec.numel()).map(element))
}

/// Runs a program on the executor.
pub(super) fn run(program: &Program, arguments: &[Array], spec: &TensorSpec) -> Array {
    let words = |b: &crate::ir::Buffer| match b.kind {
        BufferKind::Argument(i) => pack(&arguments[i]),
        BufferKind::Computed => vec![u64::MAX; b.size_bytes().div_ceil(8)],
    };
    let mut memory: Vec<Vec<u64>> = program.buffers.iter().map(words).collect();
    let buffers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();
    let mut scratch = Scratch::new();
    for kernel in &program.kernels {
        let prepared = Prepared::new(kernel);
        let mut workspace = vec![0u64; (prepared.workspace_bytes().div_ceil(64) + 1) * 8];
        let start = workspace.as_mut_ptr().cast::<u8>();
        let workspace = start.wrapping_add(start.align_offset(64));
        let bindings = Bindings { buffers: &buffers, arguments: &[], workspace };
        // SAFETY: the buffers have the program's sizes, are 8-aligned and distinct, and only this
        // thread uses them; the workspace is long enough from its first aligned byte on.
        unsafe { prepared.run(&bindings, &mut scratch) }.expect("samples' indices are in range");
    }
    unpack(&memory[program.outputs[0].0 as usize], spec)
}

/// Relative and absolute tolerance: a few units in the last place, including sums.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 | DType::C64 => 2e-6,
        DType::F64 | DType::C128 => 1e-14,
        _ => 0.0,
    }
}

#[track_caller]
fn check(sample: &Sample) {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).expect("the op takes the sample");
    let spec = b.spec(y).clone();
    let graph = b.finish([y]);
    let expected = evaluate(&graph, &sample.inputs).expect("the op has a meaning").remove(0);
    let graph = graph.decomposed().expect("definitions are well-formed").unwrap_or(graph);
    for options in [FusionOptions::NONE, FusionOptions::ALL] {
        let program = lower(&graph, options, &Target::CPU).expect("the op lowers");
        let found = run(&program, &sample.inputs, &spec);
        let slack = sample.inputs.iter().map(|x| tolerance(x.spec().dtype)).fold(0.0, f64::max);
        for (f, e) in found.elements().zip(expected.elements()) {
            let same = f == e || (f.is_nan() && e.is_nan());
            let (f, e) = (f.complex(), e.complex());
            let close = same || f == e || (f - e).norm() <= slack * (1.0 + e.norm());
            assert!(close, "{:?} is {found:?}, expected {expected:?}\n{program}", sample.op);
        }
    }
}

#[test]
fn every_op_lowers_and_computes_what_the_reference_says_in_every_dtype() {
    for &code in OpCode::ALL {
        let mut taken = 0;
        for sample in code.samples() {
            check(&sample);
            let floats = sample.inputs.iter().any(|x| x.spec().dtype == DType::F64);
            for dtype in DType::ALL.into_iter().filter(|_| floats) {
                let sample = sample.with_dtype(dtype);
                if sample.infer().is_ok() {
                    check(&sample);
                }
            }
            taken += 1;
        }
        assert!(taken > 0 || code.def().class == Class::Leaf, "{code:?}");
    }
}
