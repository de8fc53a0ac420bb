//! The text form: printing and parsing round-trip for every op of the registry, and the parser
//! rejects invalid text with its position.

use crate::golden;
use crate::testing::{Rng, pool, push_random, random_graph};
use crate::{Attrs, AxisSet, DType, Error, Graph, GraphBuilder, Literal, Op, OpCode, TensorSpec};

/// The seed's program, section 10.
const SEED: &str = "\
Graph:
  %0 = input([1024, 512], f32)
  %1 = input([512, 256], f32)
  %2 = constant([256], f32)
  %3 = matmul(%0, %1) -> [1024, 256]
  %4 = add(%3, %2) -> [1024, 256]
  %5 = relu(%4) -> [1024, 256]
  %6 = input([256, 10], f32)
  %7 = matmul(%5, %6) -> [1024, 10]
  %8 = softmax(%7, dim=1) -> [1024, 10]
  %9 = log(%8) -> [1024, 10]
  %10 = reduce_sum(%9) -> []
  %11 = neg(%10) -> []
  outputs: [%11]";

#[track_caller]
fn round_trip(graph: &Graph) {
    let text = graph.to_string();
    let parsed = Graph::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(&parsed, graph, "{text}");
    assert_eq!(parsed.to_string(), text);
}

#[test]
fn the_seeds_program_is_read_and_printed_again() {
    let graph = Graph::parse(SEED).unwrap();
    assert_eq!((graph.len(), graph.num_ops()), (12, 8));
    assert_eq!(graph.to_string(), SEED);
    assert_eq!(SEED.parse::<Graph>().unwrap(), graph);
}

#[test]
fn every_op_with_any_of_its_attributes_is_read_back() {
    let mut rng = Rng(1);
    for &code in OpCode::ALL {
        let name = code.def().name;
        for _ in 0..12 {
            let mut graph = pool();
            let last = push_random(&mut graph, code, &mut rng, 60_000);
            let last = last.unwrap_or_else(|| {
                panic!(
                    "{name}: no operands and attributes found that its rule takes; do its \
                     samples show which attributes it has?"
                )
            });
            graph.set_outputs([last]);
            round_trip(&graph);
        }
    }
}

#[test]
fn random_graphs_are_read_back() {
    for seed in 0..400 {
        let graph = random_graph(seed, 30);
        graph.verify().unwrap();
        round_trip(&graph);
    }
}

#[test]
fn constants_keep_their_values_to_the_bit() {
    let mut b = GraphBuilder::default();
    let mut out = Vec::new();
    for dtype in DType::ALL {
        for value in [0.0, 1.0, -0.0, 0.1, 1e-40, f64::MAX, f64::INFINITY, f64::NAN, -f64::NAN] {
            out.push(b.constant(Literal::from_f64(dtype, value), [2]));
        }
    }
    let odd =
        [(DType::F32, 0x7fc0_0001), (DType::BF16, 0xffff), (DType::F64, 0x7ff0_0000_0000_0001)];
    out.extend(odd.map(|(dtype, bits)| b.constant(Literal { dtype, bits }, [])));
    out.push(b.leaf(OpCode::Constant.into(), TensorSpec::new([3], DType::F16)));
    let graph = b.finish(out);
    assert!(graph.to_string().contains("constant([3], f16, runtime)"));
    assert!(graph.to_string().contains("constant([], f32, 0x7fc00001)"));
    round_trip(&graph);
}

#[test]
fn names_and_hints_round_trip_and_are_not_part_of_the_key() {
    let mut graph = Graph::parse(SEED).unwrap();
    let plain = graph.clone();
    let ids: Vec<_> = graph.ids().collect();
    graph.set_name(ids[1], "layer \"1\"\n");
    graph.set_hint(ids[3], "note", "no");
    graph.set_hint(ids[3], "a key = {}", "");
    let text = graph.to_string();
    assert!(text.contains("%1 = input([512, 256], f32) {name=\"layer \\\"1\\\"\\n\"}"), "{text}");
    assert!(text.contains("-> [1024, 256] {\"a key = {}\"=\"\", note=\"no\"}"), "{text}");
    round_trip(&graph);
    let parsed = Graph::parse(&text).unwrap();
    assert_eq!(parsed.name(ids[1]), Some("layer \"1\"\n"));
    assert_eq!(parsed.hints(ids[3])["note"], "no");
    assert_ne!(parsed, plain);
    let key = |g: &Graph| {
        let mut key = Vec::new();
        g.encode(&mut key);
        key
    };
    assert_eq!(key(&parsed), key(&plain));
}

#[test]
fn node_numbers_attribute_order_and_spaces_are_free() {
    let text = "Graph: # a program\n%7=input( [2,3] ,float32){}\n\n  %2 = \
                reduce_sum(%7, keepdim = true, dim=[1])->[2,1] outputs:[%2,%7]\n # the end";
    let graph = Graph::parse(text).unwrap();
    assert_eq!(
        graph.to_string(),
        "Graph:\n  %0 = input([2, 3], f32)\n  %1 = reduce_sum(%0, dim=[1], keepdim=true) -> [2, 1]\n  \
         outputs: [%1, %0]"
    );
    round_trip(&graph);
    round_trip(&Graph::new());
}

/// Line, column and a part of the message.
#[track_caller]
fn refused(body: &str, line: usize, column: usize, part: &str) {
    match Graph::parse(body) {
        Err(Error::Parse { line: l, column: c, reason, snippet }) => {
            assert_eq!((l, c), (line, column), "{reason}\n{snippet}");
            assert!(reason.contains(part), "{reason}");
            let caret = snippet.lines().nth(1).and_then(|l| l.find('^'));
            assert_eq!(caret, Some(column - 1 + "     | ".len()), "{snippet}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn malformed_text_is_refused_with_its_position() {
    refused("", 1, 1, "expected 'Graph:'");
    refused("Graph:\n", 2, 1, "expected a node");
    refused("Graph:\n  outputs: [%0]", 2, 13, "%0 is not defined above");
    refused("Graph:\n  %0 = inptu([2], f32)", 2, 8, "did you mean input?");
    refused("Graph:\n  %0 = quux([2], f32)", 2, 8, "there is no op 'quux'");
    refused("Graph:\n  %0 = input([2], f33)", 2, 19, "a dtype: one of bool");
    refused("Graph:\n  %0 = input([2, -1], f32)", 2, 14, "a shape");
    refused("Graph:\n  %0 = input([2", 2, 14, "not closed");
    refused("Graph:\n  %0 = input([4294967296, 4294967296], f32)", 2, 14, "more bytes");
    refused("Graph:\n  %0 = input([2])", 2, 17, "expected a shape and a dtype");
    refused("Graph:\n  %0 = constant([2], i8, 300)", 2, 26, "a value of dtype i8");
    refused("Graph:\n  %0 = random_uniform([2], i8)", 2, 8, "do not fit");
    let with = |line: &str| format!("Graph:\n  %0 = input([2, 3], f32)\n  {line}\n  outputs: []");
    refused(&with("%0 = neg(%0) -> [2, 3]"), 3, 3, "defined twice");
    refused(&with("%1 = neg(%1) -> [2, 3]"), 3, 12, "not defined above");
    refused(&with("%1 = neg(%0) -> [2, 4]"), 3, 19, "the result has shape [2, 3]");
    refused(&with("%1 = neg(%0, dim=1) -> [2, 3]"), 3, 16, "neg takes no attributes");
    refused(&with("%1 = neg(%0, 1) -> [2, 3]"), 3, 16, "unexpected '1'");
    refused(&with("%1 = add(%0) -> [2, 3]"), 3, 8, "operands, got 1");
    refused(&with("%1 = softmax(%0) -> [2, 3]"), 3, 18, "lacks dim");
    refused(&with("%1 = softmax(%0, dim=2) -> [2, 3]"), 3, 8, "axis 2 is out of range");
    refused(&with("%1 = softmax(%0, dim=256) -> [2, 3]"), 3, 24, "an integer from 0 to 255");
    refused(&with("%1 = softmax(%0, dim=1, dim=1) -> [2, 3]"), 3, 27, "unexpected attribute 'dim'");
    refused(&with("%1 = reduce_sum(%0, dim=[40]) -> []"), 3, 27, "axes from 0 to 31");
    refused(&with("%1 = slice(%0, bounds=[0:1:0, 0:1:1]) -> [1, 1]"), 3, 25, "step of at least 1");
    refused(&with("%1 = gelu(%0, approximate=yes) -> [2, 3]"), 3, 29, "none or tanh");
    refused(&with("%1 = neg(%0) -> [2, 3] {a=b}"), 3, 29, "a string");
    refused(&with("%1 = neg(%0) -> [2, 3] {a=\"b}"), 3, 29, "not closed");
    refused("Graph:\n  outputs: [] ü", 2, 15, "the end of the text");
    refused("Graph:\n  %0 = input([é], f32)", 2, 14, "a shape");
}

#[test]
fn regions_are_written_once_and_read_back() {
    let text = "\
Graph:
  %0 = input([], bool)
  %1 = input([2], f32)
  %2 = cond(%0, %1, result=0) {
    %0 = input([2], f32)
    outputs: [%0, %0]
  } {
    %0 = input([2], f32)
    %1 = neg(%0) -> [2]
    outputs: [%1, %0]
  } -> [2] {name=\"y\"}
  %3 = cond(%0, %1, result=1) as %2 -> [2]
  outputs: [%2, %3]";
    let graph = Graph::parse(text).unwrap();
    assert_eq!(graph.to_string(), text);
    graph.verify().unwrap();
    let with = |part: &str, other: &str| text.replacen(part, other, 1);
    refused(&with("as %2", "as %1"), 12, 34, "%1 has no regions");
    refused(&with("as %2 ", ""), 12, 8, "needs at least one regions");
    refused(&with("neg(%0)", "neg(%1)"), 9, 14, "%1 is not defined above");
    refused(&with("outputs: [%1, %0]", "outputs: [%1]"), 4, 8, "branch 1 gives 1 values");
    refused(&with("} -> [2]", "-> [2]"), 11, 3, "expected '}'");
}

#[test]
fn regions_nest_as_deep_as_is_allowed_and_no_deeper() {
    let nested = |depth: usize| {
        let mut text = String::from("%0 = input([2], f32) outputs: [%0]");
        for _ in 0..depth {
            text = format!(
                "%0 = input([2], f32) %1 = scan(%0, result=0, carries=1, length=2) {{ {text} }} -> \
                 [2] outputs: [%1]"
            );
        }
        format!("Graph: {text}")
    };
    round_trip(&Graph::parse(&nested(16)).unwrap());
    for depth in [17, 5000] {
        let error = Graph::parse(&nested(depth)).unwrap_err().to_string();
        assert!(error.contains("deeper than 16"), "{error}");
    }
}

#[test]
fn the_message_shows_line_and_caret() {
    let text = "Graph:\n  %0 = input([2], f32)\n  %1 = softmx(%0) -> [2]\n  outputs: [%1]";
    assert_eq!(
        Graph::parse(text).unwrap_err().to_string(),
        "line 3, column 8: there is no op 'softmx'; did you mean softmax?\n   3 |   %1 = softmx(%0) -> [2]\n     \
         |        ^^^^^^"
    );
}

#[test]
fn reductions_over_no_axes_round_trip_for_any_rank() {
    let mut b = GraphBuilder::default();
    let (x, s) =
        (b.input(TensorSpec::new([2], DType::F32)), b.input(TensorSpec::scalar(DType::F32)));
    let none = Op::new(OpCode::ReduceSum, Attrs::axes(AxisSet::default(), true));
    let (a, c) = (b.emit(none.clone(), &[x]).unwrap(), b.emit(none, &[s]).unwrap());
    let graph = b.finish([a, c]);
    let text = graph.to_string();
    assert!(text.contains("reduce_sum(%0, dim=[], keepdim=true) -> [2]"), "{text}");
    assert!(text.contains("reduce_sum(%1, keepdim=true) -> []"), "{text}");
    round_trip(&graph);
}

#[test]
fn a_graph_reads_as_a_function() {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([4, 8], DType::F32));
    let w = b.input(TensorSpec::new([8, 3], DType::F32));
    let held = b.input(TensorSpec::new([3], DType::F32));
    let product = b.matmul(x, w).unwrap();
    let shifted = b.add(product, held).unwrap();
    let zero = b.scalar(DType::F32, 0.0);
    let out = b.maximum(shifted, zero).unwrap();
    let graph = b.finish([out, x]);
    let text = graph.as_function(&|id| id == held).to_string();
    golden!("text/a_graph_reads_as_a_function.txt", text);
    let nothing = GraphBuilder::default().finish([]);
    assert_eq!(nothing.as_function(&|_| false).to_string(), "fn() -> () {\n  return\n}");
    // Every graph has a function form, whatever its ops are.
    for seed in 0..200 {
        let graph = random_graph(seed, 12);
        let text = graph.as_function(&|_| false).to_string();
        assert_eq!(text.matches("fn(").count(), text.matches("return").count());
    }
}
