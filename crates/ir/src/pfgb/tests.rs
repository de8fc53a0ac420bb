//! PFGB files byte for byte, round trips over all ops, and rejection of invalid files.

use super::{File, LAYOUT, OPS, crc32, decode, dtype_code, dtype_of, op_code};
use crate::dim::Guard;
use crate::ops::SliceDim;
use crate::ops::control::Control;
use crate::testing::{Rng, pool, push_random, random_file};
use crate::{
    Attrs, AxisSet, DType, Dim, Error, Graph, GraphBuilder, Literal, NodeId, Op, OpCode, Shape,
    TensorSpec,
};
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
fn the_checksum_is_the_crc32_of_zlib() {
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
fn op_codes_do_not_change() {
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
fn every_op_is_read_back_by_code_and_by_name() {
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
    // An op without a code in the table is written by name.
    assert_eq!(op_code(OpCode::Input), None);
}

#[test]
fn random_graphs_their_data_and_layouts_are_read_back() {
    for seed in 0..400 {
        round_trip(&random_file(seed));
    }
}

#[test]
fn only_parameters_and_inputs_hold_data() {
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
fn a_constant_of_different_elements_is_written_as_it_was_read() {
    let original = bytes(
        "50464742 01000000 00000000 01000000
         0000000000000000 00 0000 01 0200000000000000 05 00 0000 0200000000000000 01 02
         01000000 0000000000000000",
    );
    let mut read = decode(&original).unwrap();
    let text = "Graph:\n  %0 = input([2], i8) {kind=\"constant\"}\n  outputs: [%0]";
    assert_eq!(read.graph.to_string(), text);
    assert_eq!(read.data[&NodeId(0)], [1, 2]);
    assert_eq!(hex(&round_trip(&read)), hex(&original));
    // The same with an attribute section.
    read.graph.set_hint(NodeId(0), "fuse", "no");
    let bytes = round_trip(&read);
    assert_eq!((bytes[8], bytes[24]), (1, 0), "attributes only, a constant");
    // An input with the hint but without data remains an input.
    read.data.clear();
    assert_eq!(round_trip(&read)[24], 2);
}

#[test]
fn elementwise_composites_and_reductions_are_of_the_first_descriptions_types() {
    let kind = |build: fn(&mut GraphBuilder, NodeId) -> crate::Result<NodeId>| {
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([2], DType::F32));
        let y = build(&mut b, x).unwrap();
        super::codes::node_type(&b.finish([y]).node(y).op)
    };
    assert_eq!(kind(|b, x| b.relu(x)), 4);
    assert_eq!(kind(|b, x| b.emit(Op::new(OpCode::Gelu, Attrs::Approximate(false)), &[x])), 4);
    assert_eq!(kind(|b, x| b.add(x, x)), 4);
    assert_eq!(kind(|b, x| b.mean(x, AxisSet::all(1), false)), 5);
    assert_eq!(kind(|b, x| b.sum(x, AxisSet::all(1), false)), 5);
    assert_eq!(kind(|b, x| b.softmax(x, 0)), 13);
    // Files of older versions are still read: they wrote relu with type 13.
    let file = |kind: &str| {
        decode(&bytes(&format!(
            "50464742 01000000 00000000 02000000
             0000000000000000 02 0000 01 0200000000000000 00 00 0000
             0100000000000000 {kind} 4b 0000 01 0200000000000000 00 00 0100 0000000000000000
             01000000 0100000000000000"
        )))
    };
    assert_eq!(file("0d").unwrap(), file("04").unwrap());
}

#[test]
fn layouts_are_part_of_the_text_and_impossible_ones_are_refused() {
    let graph = |layout: &str| {
        Graph::parse(&format!(
            "Graph:\n  %0 = input([4, 6], f32) {{layout=\"{layout}\"}}\n  outputs: [%0]"
        ))
    };
    for layout in [
        "RowPartition(4)",
        "ColPartition(8)",
        "Grid(4, 8)",
        "BlockCyclic(2, 3, 4, 5)",
        "Custom(4, 4, [1, -1])",
    ] {
        let graph = graph(layout).unwrap();
        assert_eq!(graph.layout(NodeId(0)).to_string(), layout);
        let read = decode(&round_trip(&file(graph.clone()))).unwrap();
        assert_eq!(read.graph.to_string(), graph.to_string());
    }
    assert_eq!(graph("SinglePE").unwrap().hints(NodeId(0)).len(), 0);
    for (layout, part) in [
        ("RowPartition(0)", "at least 1"),
        ("ColPartition(-1)", "at least 1"),
        ("Grid(65536, 65536)", "fewer than 2^31"),
        ("BlockCyclic(2, 2, 0, 1)", "at least 1"),
        ("Custom(2, 2, [0, 0])", "each once"),
        ("Custom(2, 2, [0])", "rank 2"),
        ("Custom(2, 2, [0, 2])", "0, 1, or -1"),
        ("Rows(2)", "a layout such as"),
        ("SinglePE(1)", "a layout such as"),
    ] {
        let error = graph(layout).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("line 2"), "{error}");
        let mut b = GraphBuilder::default();
        let x = b.input(TensorSpec::new([4, 6], DType::F32));
        let mut graph = b.finish([x]);
        graph.set_hint(x, LAYOUT, layout);
        let error = file(graph).encode().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let record = |layout: &str| {
        format!(
            "50464742 01000000 00000000 01000000
             0000000000000000 02 0000 01 0200000000000000 00 {layout} 0000
             01000000 0000000000000000"
        )
    };
    refused(&record("01 00000000"), "at least 1");
    refused(&record("02 ffffffff"), "at least 1");
    refused(&record("03 02000000 02000000"), "a tensor of rank 1");
    refused(&record("05 02000000 02000000 01000000 05000000"), "each once");
    refused(&record("05 02000000 02000000 ffffff7f"), "elements");
}

/// Symbolic sizes in shapes, targets, slices, constants and regions.
fn symbolic() -> Graph {
    let batch = Dim::symbol("batch", 6, 2, Some(64));
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new(Shape::of_dims([batch, 4.into()]), DType::F32));
    let c = b.constant(Literal::from_f64(DType::F32, 1.5), [1]);
    let c = b.broadcast_to(c, Shape::of_dims([batch * 4usize])).unwrap();
    let flat = b.reshape(x, Shape::of_dims([batch * 4usize])).unwrap();
    let y = b.add(flat, c).unwrap();
    let dims = vec![SliceDim { start: 0, size: 5, step: 1 }];
    let taken = Shape::of_dims([batch - 1usize]);
    let op = Op::new(OpCode::Slice, Attrs::slice(dims, &taken));
    let head = b.emit(op, &[y]).unwrap();
    let mean = b.mean(x, AxisSet::all(2), false).unwrap();
    let mut region = GraphBuilder::default();
    let inner = region.input(TensorSpec::new(Shape::of_dims([batch, 4.into()]), DType::F32));
    let inner = region.neg(inner).unwrap();
    let control = Control { carries: 1, length: 2.into(), ..Control::default() };
    let control = Arc::new(control.with_regions(vec![region.finish([inner])]));
    let looped = b.emit(Op::control(OpCode::Scan, control, 0), &[x]).unwrap();
    let mut graph = b.finish([head, mean, looped, head]);
    graph
        .set_output_names(vec!["head".into(), "a mean".into(), "z".into(), "again".into()])
        .unwrap();
    let length = Dim::of_symbol(graph.symbols()[0]);
    graph.set_guards(vec![Guard::parse("batch*4 >= 9", &graph.symbols()).unwrap()]);
    assert_eq!(length, batch);
    graph
}

#[test]
fn symbolic_sizes_guards_and_names_of_outputs_are_read_back() {
    let graph = symbolic();
    let text = graph.to_string();
    assert!(text.contains("sizes: [batch=6 in 2..=64]\n  guards: [batch*4 >= 9]"), "{text}");
    assert!(text.contains("outputs: [head=%") && text.contains("\"a mean\"=%"), "{text}");
    assert_eq!(Graph::parse(&text).unwrap(), graph);
    let read = decode(&round_trip(&file(graph.clone()))).unwrap();
    let at = |graph: &Graph| graph.bind(&[(graph.symbols()[0], 3)]).unwrap().to_string();
    assert_eq!(at(&read.graph), at(&graph));
    assert!(at(&graph).contains("-> [2]"), "{}", at(&graph));
}

#[test]
fn inconsistent_interfaces_are_refused() {
    let texts = |list: &[&str]| -> String {
        let texts = list
            .iter()
            .map(|t| format!("{}{}", hex(&(t.len() as u32).to_le_bytes()), hex(t.as_bytes())));
        format!("{}{}", hex(&(list.len() as u32).to_le_bytes()), texts.collect::<String>())
    };
    let with = |symbols: &[&str], guards: &[&str], names: &[&str], size: &str| {
        let section = [texts(symbols), texts(guards), texts(names)].concat();
        let len = hex(&((section.len() / 2) as u32).to_le_bytes());
        let size = format!(
            "{}{}",
            hex(&(size.len() as u64 | 1 << 63).to_le_bytes()),
            hex(size.as_bytes())
        );
        format!(
            "50464742 01000000 05000000 01000000 {len} {section}
             0000000000000000 02 0000 01 {size} 00 00 0000 05000000 00 00000000
             01000000 0000000000000000"
        )
    };
    assert!(decode(&bytes(&with(&["n=2 in 1.."], &["n >= 2"], &["y"], "n"))).is_ok());
    refused(&with(&["n=2 in 3.."], &[], &[], "n"), "symbols, each once");
    refused(&with(&["n=2 in 1..", "n=3 in 1.."], &[], &[], "n"), "symbols, each once");
    refused(&with(&["n=2 in 1.."], &["n > 2"], &[], "n"), "a guard");
    refused(&with(&["n=2 in 1.."], &[], &["a", "b"], "n"), "2 names for 1 outputs");
    refused(&with(&["n=2 in 1.."], &[], &[], "m*2"), "declared symbols, found 'm'");
    refused(&with(&["n=2 in 1.."], &[], &[], "n+"), "a size such as");
    refused(&with(&["n=2 in 1.."], &[], &[], "n-9*n"), "a size such as");
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
fn inconsistent_files_are_refused() {
    let node = "0000000000000000 02 0000 01 0200000000000000 00 00 0000";
    let head = |flags: u32, nodes: u32| {
        format!("50464742 01000000 {} {}", hex(&flags.to_le_bytes()), hex(&nodes.to_le_bytes()))
    };
    let footer = "01000000 0000000000000000";
    refused(&format!("50464743 01000000 00000000 00000000 {footer}"), "expected \"PFGB\"");
    refused(&format!("50464742 02000000 00000000 00000000 {footer}"), "version 2");
    refused(&format!("{} {footer}", head(16, 0)), "unknown flags 0x10");
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
fn regions_are_nested_files_of_bounded_depth() {
    let file = |depth: usize| {
        let mut graph = Graph::new();
        let x = graph.leaf(OpCode::Input.into(), TensorSpec::new([2], DType::F32));
        graph.set_outputs([x]);
        for _ in 0..depth {
            let mut outer = Graph::new();
            let x = outer.leaf(OpCode::Input.into(), TensorSpec::new([2], DType::F32));
            let control = Control { carries: 1, length: 2.into(), ..Control::default() };
            let control = Arc::new(control.with_regions(vec![graph]));
            let op = Op::control(OpCode::Scan, control, 0);
            // Without checks, since one of the graphs nests deeper than the limit.
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
