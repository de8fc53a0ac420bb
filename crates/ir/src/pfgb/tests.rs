//! PFGB files to the byte, round trips over all ops, and refusals of everything else.

use super::{File, Layout, OPS, crc32, decode, dtype_code, dtype_of, op_code};
use crate::ops::control::Control;
use crate::testing::{Rng, mutate, mutations, pool, push_random, random_graph};
use crate::{DType, Error, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, TensorSpec};
use std::sync::Arc;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Hexadecimal with spaces and comments, as bytes; the checksum is appended.
fn bytes(text: &str) -> Vec<u8> {
    let digits: String =
        text.lines().flat_map(|l| l.split('#').next()).flat_map(str::chars).collect();
    let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    sealed(digits.chunks(2).map(byte).collect())
}

fn sealed(mut body: Vec<u8>) -> Vec<u8> {
    body.extend_from_slice(&crc32(&body).to_le_bytes());
    body
}

#[track_caller]
fn round_trip(file: &File) -> Vec<u8> {
    let bytes = file.encode().unwrap();
    let read = decode(&bytes).unwrap_or_else(|e| panic!("{e}\n{}", file.graph));
    assert_eq!(&read, file, "{}", file.graph);
    assert_eq!(read.encode().unwrap(), bytes);
    assert_eq!(read.graph.to_string(), file.graph.to_string());
    bytes
}

fn file(graph: Graph) -> File {
    File { graph, ..File::default() }
}

#[test]
fn the_checksum_is_zlibs() {
    assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    assert_eq!(crc32(b""), 0);
}

#[test]
fn a_graph_of_one_node_to_the_byte() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([2, 3], DType::F32));
    let mut graph = b.finish([x]);
    graph.set_name(x, "x");
    let expected = bytes(
        "50464742 01000000 00000000 01000000 # PFGB, version, flags, nodes
         0000000000000000 02                 # id, input
         0100 78                             # name
         02 0200000000000000 0300000000000000 00 # rank, dims, float32
         00 0000                             # layout, operands
         01000000 0000000000000000           # outputs",
    );
    assert_eq!(hex(&round_trip(&file(graph))), hex(&expected));
}

#[test]
fn a_constant_an_input_and_their_sum_to_the_byte() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([2], DType::F32));
    let c = b.constant(Literal::from_f64(DType::F32, 1.5), [2]);
    let y = b.add(x, c).unwrap();
    let expected = bytes(
        "50464742 01000000 00000000 03000000
         0000000000000000 02 0000 01 0200000000000000 00 00 0000 # input
         0100000000000000 00 0000 01 0200000000000000 00 00 0000 # constant
         0800000000000000 0000c03f 0000c03f                      # its data
         0200000000000000 04 22 0000 01 0200000000000000 00 00   # elementwise, add
         0200 0000000000000000 0100000000000000                  # operands
         01000000 0200000000000000",
    );
    assert_eq!(hex(&round_trip(&file(b.finish([y])))), hex(&expected));
}

#[test]
fn attributes_have_a_section_of_their_own_to_the_byte() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([2, 3], DType::BF16));
    let y = b.softmax(x, 1).unwrap();
    let mut graph = b.finish([y]);
    graph.set_hint(y, "fuse", "no");
    let expected = bytes(
        "50464742 01000000 01000000 02000000
         0000000000000000 02 0000 02 0200000000000000 0300000000000000 02 00 0000
         05000000 00 00000000                # attributes of 5 bytes: none, no hints
         0100000000000000 0d 54 0000 02 0200000000000000 0300000000000000 02 00
         0100 0000000000000000
         14000000 01 01                      # 20 bytes: present, dim=1
         01000000 04000000 66757365 02000000 6e6f # a hint, fuse=no
         01000000 0100000000000000",
    );
    assert_eq!(hex(&round_trip(&file(graph))), hex(&expected));
}

#[test]
fn codes_are_what_they_have_always_been() {
    let codes: Vec<String> =
        OPS.iter().enumerate().map(|(i, name)| format!("{i} {name}")).collect();
    let known = [
        "0 neg",
        "34 add",
        "36 mul",
        "54 reduce_sum",
        "62 matmul",
        "75 relu",
        "84 softmax",
        "91 random_bits",
    ];
    known.iter().for_each(|k| assert!(codes.iter().any(|c| c == k), "{k}"));
    assert_eq!(crc32(OPS[..92].join(",").as_bytes()), 0x6ad4_a5d0, "the op table has changed");
    assert!(OPS.len() <= 255 && (1..OPS.len()).all(|i| !OPS[..i].contains(&OPS[i])));
    for name in &OPS[..92] {
        assert!(OpCode::ALL.iter().any(|op| op.def().name == *name), "{name} is gone");
    }
    for dtype in DType::ALL {
        assert_eq!(dtype_of(dtype_code(dtype)), Some(dtype));
    }
    assert_eq!(dtype_of(dtype_code(DType::F32)), dtype_of(0));
}

#[test]
fn every_op_is_read_back_also_by_its_name_alone() {
    let mut rng = Rng(3);
    for &code in OpCode::ALL {
        for _ in 0..6 {
            let mut graph = pool();
            let Some(last) = push_random(&mut graph, code, &mut rng, 60_000) else {
                panic!("{}: no sample", code.def().name)
            };
            graph.set_outputs([last]);
            round_trip(&file(graph));
        }
    }
    // A code that is not in the table is written as a name.
    assert_eq!(op_code(OpCode::Input), None);
}

/// A file with data for some of its arguments and layouts for some of its nodes.
fn random_file(seed: u64) -> File {
    let mut rng = Rng(seed ^ 0xf11e);
    let mut file = file(random_graph(seed, 14));
    for (id, node) in file.graph.nodes() {
        if let Some(size) = super::data_size(node).filter(|_| rng.below(3) == 0) {
            let data: Vec<u8> = (0..size).map(|_| rng.bits() as u8).collect();
            file.data.insert(id, data);
        }
        let layout = match rng.below(12) {
            0 => Layout::RowPartition(3),
            1 => Layout::ColPartition(-1),
            2 => Layout::Grid([2, 3]),
            3 => Layout::BlockCyclic([2, 3, 4, 5]),
            4 => Layout::Custom([4, 4], vec![1, 0, -1]),
            5 => Layout::Custom([1, 1], vec![]),
            _ => continue,
        };
        file.layouts.insert(id, layout);
    }
    file
}

#[test]
fn random_graphs_their_data_and_layouts_are_read_back() {
    for seed in 0..400 {
        round_trip(&random_file(seed));
    }
}

#[test]
fn parameters_and_inputs_keep_data_results_of_ops_cannot_have_any() {
    let mut graph = Graph::new();
    let w = graph.leaf(OpCode::Parameter.into(), TensorSpec::new([2], DType::I16));
    let e = graph.leaf(OpCode::Input.into(), TensorSpec::new([0, 3], DType::F64));
    let y = graph.push(OpCode::Neg.into(), &[w]).unwrap();
    graph.set_outputs([y, e]);
    let mut file = file(graph);
    file.data.insert(w, vec![1, 2, 3, 4]);
    file.data.insert(e, vec![]);
    round_trip(&file);
    for (id, data, part) in [
        (y, vec![0; 4], "takes no argument"),
        (w, vec![0; 3], "3 bytes, where 4"),
        (NodeId(9), vec![], "3 nodes"),
    ] {
        let mut wrong = file.clone();
        wrong.data.insert(id, data);
        let error = wrong.encode().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_constant_of_different_elements_is_an_input_with_data() {
    let read = decode(&bytes(
        "50464742 01000000 00000000 01000000
         2a00000000000000 00 0000 01 0200000000000000 05 00 0000 0200000000000000 01 02
         01000000 2a00000000000000",
    ))
    .unwrap();
    assert_eq!(read.graph.to_string(), "Graph:\n  %0 = input([2], i8)\n  outputs: [%0]");
    assert_eq!(read.data[&NodeId(0)], [1, 2]);
}

#[test]
fn flipping_any_bit_and_cutting_anywhere_is_noticed() {
    let good = random_file(11).encode().unwrap();
    for i in 0..good.len() {
        let mut bad = good.clone();
        bad[i] ^= 1 << (i % 8);
        assert!(matches!(decode(&bad), Err(Error::Format { format: "PFGB", .. })), "byte {i}");
        assert!(decode(&good[..i]).is_err(), "cut at {i}");
    }
    assert!(decode(&[&good[..], &[0]].concat()).is_err());
}

#[track_caller]
fn refused(text: &str, part: &str) {
    match decode(&bytes(text)) {
        Err(Error::Format { reason, .. }) => assert!(reason.contains(part), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_that_lie_are_refused() {
    let node = "0000000000000000 02 0000 01 0200000000000000 00 00 0000";
    let head = |flags: u32, nodes: u32| {
        format!("50464742 01000000 {} {}", hex(&flags.to_le_bytes()), hex(&nodes.to_le_bytes()))
    };
    let footer = "01000000 0000000000000000";
    refused(&format!("50464743 01000000 00000000 00000000 {footer}"), "expected \"PFGB\"");
    refused(&format!("50464742 02000000 00000000 00000000 {footer}"), "version 2");
    refused(&format!("{} {footer}", head(4, 0)), "unknown flags 0x4");
    refused(&format!("{} {node} {footer}", head(0, u32::MAX)), "4294967295 nodes");
    refused(&format!("{} {node} ffffffff", head(0, 1)), "4294967295 elements");
    refused(&format!("{} {node} {node} {footer}", head(0, 2)), "found 0 twice");
    refused(&format!("{} {node} 01000000 0700000000000000", head(0, 1)), "unknown id 7");
    refused(&format!("{} {node} {footer} 00", head(0, 1)), "found 1 bytes before it");
    let with = |record: &str| format!("{} {node} {record} {footer}", head(0, 2));
    let id = "0100000000000000";
    refused(&with(&format!("{id} 03 0000 00 00 00 0000")), "a node type");
    refused(&with(&format!("{id} 04 f0 0000 00 00 00 0000")), "an op code below");
    refused(
        &with(&format!("{id} 04 ff 0100 78 0000 00 00 00 0000")),
        "the name of an op, found 'x'",
    );
    refused(&with(&format!("{id} 04 ff 0500 696e707574 0000 00 00 00 0000")), "found 'input'");
    refused(&with(&format!("{id} 02 0100 ff 00 00 00 0000")), "UTF-8");
    refused(&with(&format!("{id} 02 0000 01 ffffffffffffffff 00 00 0000")), "a size, found -1");
    refused(&with(&format!("{id} 02 0000 01 ffffffffffffff7f 00 00 0000")), "fits in memory");
    refused(&with(&format!("{id} 02 0000 00 63 00 0000")), "a dtype's code, found 99");
    refused(&with(&format!("{id} 02 0000 00 00 09 0000")), "a layout type");
    refused(&with(&format!("{id} 04 00 0000 01 0200000000000000 00 00 0100 {id}")), "unknown id 1");
    refused(
        &with(&format!("{id} 04 00 0000 01 0300000000000000 00 00 0100 0000000000000000")),
        "neg to give f32[2]",
    );
    refused(&with(&format!("{id} 04 00 0000 01 0200000000000000 00 00 0000")), "operands, got 0");
    refused(
        &with(&format!("{id} 0d 54 0000 01 0200000000000000 00 00 0100 0000000000000000")),
        "attributes of softmax",
    );
    refused(
        &with(&format!("{id} 00 0000 01 0200000000000000 05 00 0000 0300000000000000 000000")),
        "2 bytes of data",
    );
    refused(
        &with(&format!("{id} 00 0000 01 0200000000000000 05 00 0000 ffffffffffffff7f 00")),
        "more bytes",
    );
}

#[test]
fn regions_are_files_inside_of_files_and_nest_only_so_deep() {
    let file = |depth: usize| {
        let mut graph = Graph::new();
        let x = graph.leaf(OpCode::Input.into(), TensorSpec::new([2], DType::F32));
        graph.set_outputs([x]);
        for _ in 0..depth {
            let mut outer = Graph::new();
            let x = outer.leaf(OpCode::Input.into(), TensorSpec::new([2], DType::F32));
            let control = Control { carries: 1, length: 2, ..Control::default() };
            let control = Arc::new(control.with_regions(vec![graph]));
            let op = Op::control(OpCode::Scan, control, 0);
            // Unchecked: one of them is deeper than a graph may be.
            let y = outer.push_unchecked(op, &[x], TensorSpec::new([2], DType::F32));
            outer.set_outputs([y]);
            graph = outer;
        }
        File { graph, ..File::default() }
    };
    let nested = file(16);
    assert_eq!(decode(&nested.encode().unwrap()).unwrap(), nested);
    let error = file(17).encode().unwrap_err().to_string();
    assert!(error.contains("nest"), "{error}");
}

#[test]
fn mutated_files_never_panic() {
    let mut rng = Rng(5);
    let corpus: Vec<Vec<u8>> = (0..40).map(|s| random_file(s).encode().unwrap()).collect();
    let mut accepted = 0;
    for i in 0..mutations(300_000) {
        let mut bytes = corpus[i % corpus.len()].clone();
        // Behind the checksum, where most of the reader is.
        bytes.truncate(bytes.len() - 4);
        mutate(&mut bytes, &[], &mut rng);
        if let Ok(file) = decode(&sealed(bytes)) {
            let again = file.encode().unwrap();
            assert_eq!(decode(&again).unwrap(), file);
            accepted += 1;
        }
    }
    assert!(accepted > 0);
}
