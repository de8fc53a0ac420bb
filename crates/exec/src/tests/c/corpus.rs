//! The programs whose C is compiled and run: the samples of every op, elementwise ops on special
//! values, random graphs, and a few graphs of several ops.

use super::Corpus;
use crate::tests::ops;
use girih_ir::testing::{Rng, graph_of_floats};
use girih_ir::{
    Array, Attrs, AxisSet, Class, DType, Element, Graph, GraphBuilder, Literal, NodeId, Op, OpCode,
    TensorSpec,
};
use girih_kernel::{Buffer, BufferKind, FusionOptions, KernelProgram, Target, lower};
use num_complex::Complex;

/// The program of a graph, in primitive ops.
fn lowered(graph: &Graph) -> KernelProgram {
    let primitive = graph.decomposed().expect("definitions are well-formed");
    lower(primitive.as_ref().unwrap_or(graph), FusionOptions::ALL, &Target::CPU)
        .expect("the graph lowers")
}

/// Adds a graph of one op.
fn add_op(corpus: &mut Corpus, op: Op, inputs: &[Array]) {
    let mut b = GraphBuilder::default();
    let operands: Vec<NodeId> = inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let result = b.emit(op, &operands).expect("the op takes the operands");
    let bytes: Vec<Vec<u8>> = inputs.iter().map(Array::to_bytes).collect();
    corpus.add(&lowered(&b.finish([result])), &bytes, &[]);
}

#[test]
fn samples_of_every_op_in_every_dtype() {
    let mut corpus = Corpus::default();
    for &code in OpCode::ALL {
        for sample in code.samples() {
            add_op(&mut corpus, sample.op.clone(), &sample.inputs);
            let floats = sample.inputs.iter().any(|x| x.spec().dtype == DType::F64);
            // Elementwise ops take more values in the test below.
            let others = floats && code.def().class != Class::Elementwise;
            for dtype in DType::ALL.into_iter().filter(|&d| others && d != DType::F64) {
                let sample = sample.with_dtype(dtype);
                if sample.infer().is_ok() {
                    add_op(&mut corpus, sample.op.clone(), &sample.inputs);
                }
            }
        }
    }
    let texts = ["_condition(", "_branch1(", "carry0[", "extern void girih_", "[at] = "];
    corpus.check("samples", &texts);
}

/// The values on which the executor is tested. Complex numbers are finite, since the C standard
/// leaves the signs of some of their infinities open.
fn specials(dtype: DType) -> Vec<Element> {
    if dtype.is_complex() {
        let parts = [0.0, 1.0, -1.5, 3.25, -0.1, 0.75];
        let number = |re, im| Element::from_complex(dtype, Complex::new(re, im));
        return parts.iter().flat_map(|&re| parts.map(|im| number(re, im))).collect();
    }
    ops::specials(dtype).into_iter().map(Element::from).collect()
}

fn row(dtype: DType, values: Vec<Element>) -> Array {
    Array::new(TensorSpec::new([values.len()], dtype), values)
}

/// The op on all special values of a dtype, or on all pairs of them, if the op takes the dtype.
fn add_specials(corpus: &mut Corpus, op: Op, dtype: DType) {
    let values = specials(dtype);
    let inputs = match op.code.def().arity.0 {
        1 => vec![row(dtype, values)],
        _ => {
            let pairs = values.iter().flat_map(|&x| values.iter().map(move |&y| (x, y)));
            let (x, y) = pairs.unzip();
            vec![row(dtype, x), row(dtype, y)]
        }
    };
    if op.infer(&inputs.iter().map(Array::spec).collect::<Vec<_>>()).is_ok() {
        add_op(corpus, op, &inputs);
    }
}

#[test]
fn elementwise_ops_on_special_values() {
    let mut corpus = Corpus::default();
    let elementwise = OpCode::ALL.iter().filter(|code| code.def().class == Class::Elementwise);
    for &code in elementwise.filter(|code| code.def().arity.0 < 3) {
        for dtype in DType::ALL {
            match code {
                OpCode::Cast | OpCode::Bitcast => DType::ALL.into_iter().for_each(|to| {
                    add_specials(&mut corpus, Op::new(code, Attrs::DType(to)), dtype);
                }),
                code => add_specials(&mut corpus, code.into(), dtype),
            }
        }
    }
    corpus.check("elementwise", &[]);
}

#[test]
fn random_graphs() {
    let mut corpus = Corpus::default();
    let mut rng = Rng(18);
    for _ in 0..150 {
        let choices: Vec<u16> = (0..100).map(|_| rng.bits() as u16).collect();
        let (graph, arguments) = graph_of_floats(&choices);
        let program = lowered(&graph);
        let specs = graph.arguments().map(|id| graph.spec(id).dtype);
        let bytes = |(dtype, values): (DType, &Vec<f64>)| -> Vec<u8> {
            let literal = |&x: &f64| Literal::from_f64(dtype, x).bits.to_le_bytes();
            values.iter().flat_map(literal).collect()
        };
        let arrays: Vec<Vec<u8>> = specs.zip(&arguments).map(bytes).collect();
        let scalar = |a: &Vec<f64>| [a.first().copied().unwrap_or(0.0).to_bits(), 0];
        let scalars: Vec<[u64; 2]> = arguments.iter().map(scalar).collect();
        corpus.add(&program, &arrays, &scalars);
    }
    corpus.check("random", &[]);
}

/// Small numbers that no dtype rounds much.
fn numbers(spec: &TensorSpec) -> Array {
    let value = |i: usize| ((i * 37 + 11) % 29) as f64 / 8.0 - 1.5;
    let values: Vec<f64> = (0..spec.numel()).map(value).collect();
    Array::from_f64(spec.shape.clone(), spec.dtype, &values)
}

/// Adds the graph of one result on inputs of these shapes.
fn add_graph(
    corpus: &mut Corpus,
    dtype: DType,
    shapes: &[&[usize]],
    record: impl Fn(&mut GraphBuilder, &[NodeId]) -> girih_ir::Result<NodeId>,
) {
    let mut b = GraphBuilder::default();
    let specs: Vec<TensorSpec> = shapes.iter().map(|&s| TensorSpec::new(s, dtype)).collect();
    let inputs: Vec<NodeId> = specs.iter().map(|spec| b.input(spec.clone())).collect();
    let result = record(&mut b, &inputs).expect("the graph is well-formed");
    let bytes: Vec<Vec<u8>> = specs.iter().map(|spec| numbers(spec).to_bytes()).collect();
    corpus.add(&lowered(&b.finish([result])), &bytes, &[]);
}

#[test]
fn graphs_of_several_ops() {
    let mut corpus = Corpus::default();
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        // A softmax and a GEMM in one kernel over rows, as in attention.
        add_graph(&mut corpus, dtype, &[&[2, 32, 4], &[2, 40, 4], &[2, 40, 4]], |b, x| {
            let keys = b.permute(x[1], &[0, 2, 1])?;
            let scores = b.matmul(x[0], keys)?;
            let weights = b.softmax(scores, 2)?;
            b.matmul(weights, x[2])
        });
        add_graph(&mut corpus, dtype, &[&[24, 20], &[20, 12], &[12]], |b, x| {
            let y = b.matmul(x[0], x[1])?;
            let y = b.add(y, x[2])?;
            b.tanh(y)
        });
        add_graph(&mut corpus, dtype, &[&[7, 50], &[50]], |b, x| {
            let mean = b.mean(x[0], AxisSet::one(1), true)?;
            let centred = b.sub(x[0], mean)?;
            let squares = b.mul(centred, centred)?;
            let variance = b.mean(squares, AxisSet::one(1), true)?;
            let scale = b.rsqrt(variance)?;
            let y = b.mul(centred, scale)?;
            b.mul(y, x[1])
        });
    }
    for dtype in DType::ALL.into_iter().filter(|d| d.is_int()) {
        add_graph(&mut corpus, dtype, &[&[9, 8], &[8, 5]], |b, x| {
            let y = b.matmul(x[0], x[1])?;
            let y = b.mul(y, y)?;
            b.max(y, AxisSet::one(0), false)
        });
    }
    // Weights in small integers, and a random leaf of each kind.
    add_graph(&mut corpus, DType::F32, &[&[6, 8]], |b, x| {
        let weights = b.iota([8, 4], DType::I8, 1);
        let weights = b.cast(weights, DType::F32)?;
        b.matmul(x[0], weights)
    });
    for text in [SCATTER, SPLIT, RANDOM] {
        let program = KernelProgram::parse(text).unwrap();
        let array = |buffer: &Buffer| match buffer.dtype {
            DType::I64 => Array::from_f64([3], DType::I64, &[1.0, -1.0, 0.0]),
            dtype => numbers(&TensorSpec::new([buffer.numel], dtype)),
        };
        let arguments = program.buffers.iter().filter(|b| b.kind != BufferKind::Computed);
        let arrays: Vec<Vec<u8>> = arguments.map(|b| array(b).to_bytes()).collect();
        corpus.add(&program, &arrays, &[[0x1234_5678_9abc_def0, u64::MAX - 3]]);
    }
    corpus.check("graphs", &["/* matmul over [2, 32, 40 | 4] */\n        {", " % 2 * 3;"]);
}

/// A scatter, a routine, and repeated results.
const SCATTER: &str = "b0 = argument 0: i64[3]
b1 = argument 1: f32[6]
b2 = f32[8]
b3 = f32[8]
b4 = i64[8]
scatter over [3, 2]
  scatter_add + 2*b0[i0] of 4, independent [1]
  v0 = load b1[2*i0 + i1]
  b2[i1] = v0
sort over [2]
  b3[4], b4[4] = sort(result=0, size=0)(b2[4])
outputs: [b3, b3, b0]";

/// Rows that divide a dimension.
const SPLIT: &str = "b0 = argument 0: f32[12]
b1 = f32[12]
b2 = f32[4]
fused_exp_reduce_sum over [4]
  local b1: 12 bytes a row
  exp over [2, 6]
    v0 = load b0[6*i0 + i1]
    v1 = exp(v0): f32
    b1[6*i0 + i1] = v1
  reduce_sum over [4 | 3]
    prologue:
      v0 = load b1[3*i0 + i1]
    reduce sum v0
    v0 = core: f32
    b2[i0] = v0
outputs: [b2]";

const RANDOM: &str = "b0 = f32[9]
b1 = f64[9]
b2 = bf16[9]
b3 = i64[9]
b4 = f16[9]
b5 = f64[9]
b6 = f32[9]
draws over [9]
  v0 = random_uniform(argument 0, 2*i0 + 1): f32
  v1 = random_uniform(argument 0, i0): f64
  v2 = random_uniform(argument 0, i0): bf16
  v3 = random_bits(argument 0, i0 + 5): i64
  v4 = random_normal(argument 0, i0): f16
  v5 = random_normal(argument 0, 3*i0 + 1): f64
  v6 = random_normal(argument 0, 8 - i0): f32
  b0[i0] = v0
  b1[i0] = v1
  b2[i0] = v2
  b3[i0] = v3
  b4[i0] = v4
  b5[i0] = v5
  b6[i0] = v6
outputs: [b0, b1, b2, b3, b4, b5, b6]";
