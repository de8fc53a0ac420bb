//! The fuzz targets on mutations of valid inputs. `GIRIH_MUTATIONS` says how many each test tries.

use girih::ir::testing::{Rng, mutate, mutations, random_file, random_graph};
use girih::ir::{DType, TensorSpec};
use girih::{Tensor, io};
use girih_kernel::{FusionOptions, Target, lower};

/// Runs a target on mutations of each of the seeds in turn, which it accepts as they are. Only the
/// first `head` bytes, which hold the structure, are mutated. The target accepts some mutations.
fn fuzz(
    target: fn(&[u8]) -> bool,
    seeds: &[Vec<u8>],
    (tokens, head): (&[&[u8]], usize),
    usual: usize,
) {
    assert!(seeds.iter().all(|seed| target(seed)));
    let (mut rng, mut accepted) = (Rng(7), 0);
    for round in 0..mutations(usual) {
        let mut bytes = seeds[round % seeds.len()].clone();
        let mut rest = bytes.split_off(head.min(bytes.len()));
        mutate(&mut bytes, tokens, &mut rng);
        bytes.append(&mut rest);
        accepted += target(&bytes) as usize;
    }
    assert!(accepted > 0);
}

/// The head of an input whose bytes are all structure.
const ALL: usize = usize::MAX;

#[test]
fn mutated_texts_of_graphs_are_graphs_or_errors() {
    let tokens: &[&[u8]] = &[
        b"%0",
        b"[",
        b"]",
        b"{",
        b"\"",
        b"=",
        b"dim=",
        b"-> [2]",
        b"99999999999",
        b",",
        b"\\u{",
        b"-1",
        b"0x",
        b":",
    ];
    let seeds: Vec<Vec<u8>> = (0..30).map(|s| random_graph(s, 12).to_string().into()).collect();
    fuzz(girih_fuzz::text, &seeds, (tokens, ALL), 200_000);
}

#[test]
fn mutated_texts_of_kernels_are_programs_or_errors() {
    let tokens: &[&[u8]] = &[
        b"b0",
        b"v1",
        b"i0",
        b" over [",
        b"load ",
        b": f32",
        b"9223372036854775807",
        b"-",
        b"*",
        b"reduce sum v0",
        b"outputs: [b0]",
        b"{",
        b"| ",
        b"core",
    ];
    let lowered = |seed| {
        let graph = random_graph(seed, 8);
        let graph = graph.decomposed().expect("composites have definitions").unwrap_or(graph);
        lower(&graph, FusionOptions::ALL, &Target::CPU).expect("the graph is primitive")
    };
    let seeds: Vec<Vec<u8>> = (0..40).map(|seed| lowered(seed).to_string().into()).collect();
    fuzz(girih_fuzz::kernels, &seeds, (tokens, ALL), 4_000);
}

#[test]
fn mutated_pfgb_files_are_graphs_or_errors() {
    let unsealed = |seed| {
        let mut bytes = random_file(seed).encode().expect("random files can be written");
        bytes.truncate(bytes.len() - 4);
        bytes
    };
    let seeds: Vec<Vec<u8>> = (0..44).map(unsealed).collect();
    fuzz(girih_fuzz::pfgb, &seeds, (&[], ALL), 1_000_000);
}

/// Some tensors of any bytes.
fn tensors() -> Vec<(String, Tensor)> {
    let mut rng = Rng(2);
    let specs = [DType::F32, DType::I64, DType::U8, DType::BF16, DType::C64]
        .into_iter()
        .flat_map(|dtype| [&[2, 3][..], &[0]].map(|shape| TensorSpec::new(shape, dtype)));
    let tensor = |(i, spec): (usize, TensorSpec)| {
        let bytes: Vec<u8> = (0..spec.size_bytes()).map(|_| rng.bits() as u8).collect();
        (format!("t{i}"), Tensor::from_bytes(&spec, bytes).expect("the bytes fill the tensor"))
    };
    specs.enumerate().map(tensor).collect()
}

const TOKENS: &[&[u8]] =
    &[b"(", b"'", b"True", b",", b"{", b"\"", b"[1]", b"PK\x01\x02", b"99999999999"];

#[test]
fn mutated_npy_files_are_tensors_or_errors() {
    let seeds: Vec<_> = tensors().iter().map(|(_, t)| io::to_npy(t).unwrap()).collect();
    fuzz(girih_fuzz::npy, &seeds, (TOKENS, 90), 170_000);
}

#[test]
fn mutated_npz_files_are_tensors_or_errors() {
    fuzz(girih_fuzz::npz, &[io::to_npz(&tensors()).unwrap()], (TOKENS, ALL), 170_000);
}

#[test]
fn mutated_safetensors_files_are_tensors_or_errors() {
    let seeds = [io::to_safetensors(&tensors()).unwrap()];
    fuzz(girih_fuzz::safetensors, &seeds, (TOKENS, 900), 170_000);
}
