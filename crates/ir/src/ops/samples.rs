//! Sample operands of each op, away from points without a derivative. Tests that walk the registry
//! use them, and the documentation takes its example shapes from them.

pub(super) mod control;
pub(super) mod networks;

use super::*;
use crate::{Array, DeviceMesh, Element, P, Sharding};
use num_complex::Complex;
use std::sync::Arc;

/// An op with operands. Floating-point operands are f64 if the op accepts it.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The op with its attributes.
    pub op: Op,
    /// Its operands.
    pub inputs: Vec<Array>,
}

impl Sample {
    /// An op and its operands.
    pub fn new(op: impl Into<Op>, inputs: impl Into<Vec<Array>>) -> Sample {
        Sample { op: op.into(), inputs: inputs.into() }
    }

    /// The spec of the result.
    pub fn infer(&self) -> Result<TensorSpec> {
        self.op.infer(&self.inputs.iter().map(Array::spec).collect::<Vec<_>>())
    }

    /// The sample with its floating-point operands in another dtype, with integer values for
    /// integer dtypes.
    pub fn with_dtype(&self, dtype: DType) -> Sample {
        let convert = |x: &Array| match x.spec().dtype == DType::F64 {
            true => Array::from_f64(x.spec().shape.clone(), dtype, &x.to_f64()),
            false => x.clone(),
        };
        let inputs: Vec<Array> = self.inputs.iter().map(convert).collect();
        let op = match self.op.as_host() {
            // A call of a custom op contains its results' specs, so infer them again.
            Some((result, call)) => {
                let operands: Vec<_> = inputs.iter().map(|x| x.spec()).collect();
                let results = call.op().infer(&operands);
                let results = results.unwrap_or_else(|_| call.results().to_vec());
                let batching = call.op().batching();
                let call = super::host::HostCall::new(call.op().clone(), results, batching, false);
                Op::host(call.into(), result)
            }
            None => control::with_dtype(&self.op, dtype),
        };
        Sample { op, inputs }
    }
}

/// Distinct numbers within `low..high`, not evenly spaced.
pub fn spread(shape: &[usize], (low, high): (f64, f64)) -> Array {
    Array::from_f64(shape, DType::F64, &numbers(shape, low, high, 0.0))
}

fn numbers(shape: &[usize], low: f64, high: f64, phase: f64) -> Vec<f64> {
    let count: usize = shape.iter().product();
    let value =
        |i: usize| low + (high - low) * ((i as f64 + 0.5) * 0.618_033_988_75 + phase).fract();
    (0..count).map(value).collect()
}

fn complex(shape: &[usize], dtype: DType, re: &[f64], im: &[f64]) -> Array {
    let number = |(&re, &im)| Element::from_complex(dtype, Complex::new(re, im));
    Array::new(TensorSpec::new(shape, dtype), re.iter().zip(im).map(number))
}

fn integers(shape: &[usize], values: &[f64]) -> Array {
    Array::from_f64(shape, DType::I64, values)
}

fn axes(code: OpCode, axes: &[usize], keepdims: bool) -> Op {
    Op::new(code, Attrs::axes(axes.iter().copied().collect(), keepdims))
}

/// A rank-3 array with axes of two to four elements.
fn cube() -> Array {
    spread(&[2, 3, 4], (-1.5, 1.6))
}

/// No samples: for leaves, which have no operands.
pub(super) fn none(_: OpCode) -> Vec<Sample> {
    Vec::new()
}

/// Operands in the definition's domain, of shapes that broadcast. Their dtype is the first dtype of
/// f64, i64, bool, c128 and u64 that the op accepts.
pub(super) fn elementwise(code: OpCode) -> Vec<Sample> {
    let (low, high) = code.def().domain;
    let shapes: &[&[&[usize]]] = match code.def().arity.0 {
        1 => &[&[&[5]]],
        2 => &[&[&[2, 1, 3], &[2, 2, 3]], &[&[2, 1, 3], &[4, 1]], &[&[], &[2, 1, 3]]],
        _ => return vec![],
    };
    let of_dtype = |dtype: DType| {
        let row = |operands: &&[&[usize]]| {
            let operand = |(i, shape): (usize, &&[usize])| {
                let part = |phase: f64| numbers(shape, low, high, phase + 0.29 * i as f64);
                match dtype.is_complex() {
                    true => complex(shape, dtype, &part(0.0), &part(0.4)),
                    false => Array::from_f64(*shape, dtype, &part(0.0)),
                }
            };
            Sample::new(code, operands.iter().enumerate().map(operand).collect::<Vec<_>>())
        };
        shapes.iter().map(row).collect::<Vec<_>>()
    };
    let dtypes = [DType::F64, DType::I64, DType::Bool, DType::C128, DType::U64];
    let taken = |rows: &Vec<Sample>| rows[0].infer().is_ok();
    dtypes.into_iter().map(of_dtype).find(taken).unwrap_or_default()
}

/// Words, and parameters as bits: small and large ones.
pub(super) fn draws(code: OpCode) -> Vec<Sample> {
    let bits = |shape: &[usize], values: &[u64]| {
        let element = |&bits: &u64| Element::from_bits(DType::U64, bits, 0);
        Array::new(TensorSpec::new(shape, DType::U64), values.iter().map(element))
    };
    let of = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let words: Vec<u64> = (0..6).map(|i| crate::random::word(7, i)).collect();
    let mut parameters = vec![bits(&[2, 3], &words), bits(&[2, 1], &of(&[0.5, 40.0]))];
    if code.def().arity.0 == 3 {
        parameters[1] = bits(&[2, 1], &of(&[12.0, 300.0]));
        parameters.push(bits(&[3], &of(&[0.1, 0.5, 0.9])));
    }
    vec![Sample::new(code, parameters)]
}

pub(super) fn cast(code: OpCode) -> Vec<Sample> {
    let x = spread(&[3], (-1.0, 1.0));
    let to = |dtype| Sample::new(Op::new(code, Attrs::DType(dtype)), [x.clone()]);
    vec![to(DType::F64)]
}

/// Casts of bits: float to integer, integer to float, float to float, integer to integer, and from
/// bool.
pub(super) fn bitcast(code: OpCode) -> Vec<Sample> {
    let numbers = [-1.5, 0.0, 3.0];
    let row = |(from, to)| {
        let x = Array::from_f64([3], from, &numbers);
        Sample::new(Op::new(code, Attrs::DType(to)), [x])
    };
    let f64s = [(DType::F64, DType::I64), (DType::F64, DType::U64), (DType::F64, DType::F64)];
    let words = [(DType::F32, DType::I32), (DType::U32, DType::F32), (DType::I64, DType::F64)];
    let halves = [(DType::F16, DType::U16), (DType::I16, DType::BF16), (DType::F16, DType::BF16)];
    let integers = [(DType::I16, DType::U16), (DType::I8, DType::U8), (DType::Bool, DType::U8)];
    [f64s, words, halves, integers].concat().into_iter().map(row).collect()
}

pub(super) fn select(code: OpCode) -> Vec<Sample> {
    let condition = Array::from_f64([3], DType::Bool, &[1.0, 0.0, 1.0]);
    let unit = (-1.0, 1.0);
    vec![Sample::new(code, [condition, spread(&[2, 1], unit), spread(&[2, 3], unit)])]
}

/// Reductions over one axis, several axes, all axes and no axis.
pub(super) fn reductions(code: OpCode) -> Vec<Sample> {
    vec![
        Sample::new(axes(code, &[1], false), [cube()]),
        Sample::new(axes(code, &[0, 2], true), [cube()]),
        Sample::new(axes(code, &[0, 1, 2], false), [cube()]),
        Sample::new(axes(code, &[], false), [spread(&[3], (-1.0, 1.0))]),
    ]
}

/// Reductions, also with one and two zeros, of even and odd length.
pub(super) fn products(code: OpCode) -> Vec<Sample> {
    let mut rows = reductions(code);
    for zeros in [&[0.0, 2.0, 3.0][..], &[0.0, 2.0, 0.0, 1.5], &[1.0, 0.0, 0.0, 0.0, 2.0]] {
        let x = Array::from_f64([zeros.len()], DType::F64, zeros);
        rows.push(Sample::new(axes(code, &[0], false), [x]));
    }
    rows
}

pub(super) fn truths(code: OpCode) -> Vec<Sample> {
    let bools = |s: Sample| Sample {
        inputs: s
            .inputs
            .iter()
            .map(|x| {
                let positive = |v: f64| if v > 0.0 { 1.0 } else { 0.0 };
                let values: Vec<f64> = x.to_f64().into_iter().map(positive).collect();
                Array::from_f64(x.spec().shape.clone(), DType::Bool, &values)
            })
            .collect(),
        op: s.op,
    };
    reductions(code).into_iter().map(bools).collect()
}

/// Reductions over exactly one axis.
pub(super) fn along_one(code: OpCode) -> Vec<Sample> {
    let along = |axis, keepdims| Sample::new(axes(code, &[axis], keepdims), [cube()]);
    vec![along(1, false), along(2, true)]
}

pub(super) fn moments(code: OpCode) -> Vec<Sample> {
    let row = |(correction, keepdims): (f64, bool)| {
        let axes: AxisSet = [0, 2].into_iter().collect();
        let attrs = Attrs::Moments { axes, keepdims, correction: correction.into() };
        Sample::new(Op::new(code, attrs), [cube()])
    };
    [(0.0, false), (1.0, true)].map(row).into()
}

pub(super) fn matmul(code: OpCode) -> Vec<Sample> {
    let x = |shape: &[usize]| spread(shape, (-1.0, 1.0));
    vec![
        Sample::new(code, [x(&[3, 2]), x(&[2, 4])]),
        Sample::new(code, [x(&[2, 1, 3, 2]), x(&[5, 2, 2])]),
        Sample::new(code, [x(&[1, 2]), x(&[3, 2, 1])]),
    ]
}

pub(super) fn views(code: OpCode) -> Vec<Sample> {
    let dim = |start, size, step| SliceDim { start, size, step };
    let slice = |dims| Op::new(code, Attrs::Slice(Arc::new(dims)));
    let one = |op| vec![Sample::new(op, [cube()])];
    match code {
        OpCode::Reshape => one(Op::new(code, Attrs::shape([4, 6]))),
        OpCode::Permute => one(Op::new(code, Attrs::perm([2, 0, 1]))),
        OpCode::BroadcastTo => {
            let op = Op::new(code, Attrs::shape([2, 4, 3]));
            vec![Sample::new(op, [spread(&[4, 1], (-1.0, 1.0))])]
        }
        OpCode::Slice => vec![
            Sample::new(slice(vec![dim(1, 1, 1), dim(0, 2, 2), dim(1, 0, 1)]), [cube()]),
            Sample::new(slice(vec![dim(0, 2, 1), dim(0, 2, 2), dim(1, 2, 2)]), [cube()]),
        ],
        OpCode::Flip => one(axes(code, &[0, 2], false)),
        _ => vec![],
    }
}

pub(super) fn split(_: OpCode) -> Vec<Sample> {
    let at = Arc::new(vec![1, 1, 2]);
    [2, 1, 3, 0].map(|result| Sample::new(Op::split(1, at.clone(), result), [cube()])).into()
}

pub(super) fn concat(code: OpCode) -> Vec<Sample> {
    let empty = spread(&[2, 0, 4], (0.0, 1.0));
    vec![Sample::new(Op::new(code, Attrs::Axis(1)), [cube(), empty, cube()])]
}

pub(super) fn pad(code: OpCode) -> Vec<Sample> {
    let width = |low, high, interior| PadDim { low, high, interior };
    let widths = vec![width(1, 0, 2), width(0, 2, 0), width(0, 0, 1)];
    vec![Sample::new(Op::new(code, Attrs::Pad(Arc::new((widths, 0)))), [cube()])]
}

pub(super) fn update_slice(code: OpCode) -> Vec<Sample> {
    let dim = |start, size, step| SliceDim { start, size, step };
    let dims = vec![dim(0, 2, 1), dim(0, 2, 2), dim(1, 2, 2)];
    let op = Op::new(code, Attrs::Slice(Arc::new(dims)));
    vec![Sample::new(op, [cube(), spread(&[2, 2, 2], (-1.0, 1.0))])]
}

pub(super) fn indexing(code: OpCode) -> Vec<Sample> {
    let scatter = Op::new(code, Attrs::Scatter { axis: 1, size: 3 });
    let along = |axis| Op::new(code, Attrs::Axis(axis));
    let matrix = || integers(&[2, 2], &[0.0, 2.0, -1.0, 0.0]);
    let column = || integers(&[2, 2, 1], &[0.0, 2.0, -1.0, 2.0]);
    let x = |shape: &[usize]| spread(shape, (-1.0, 1.0));
    let into = |operands: &dyn Fn() -> [Array; 3]| {
        let row =
            |mode| Sample::new(Op::new(code, Attrs::ScatterInto { axis: 1, mode }), operands());
        ScatterMode::ALL.into_iter().map(row).collect()
    };
    match code {
        OpCode::Take => vec![
            Sample::new(along(1), [cube(), matrix()]),
            Sample::new(along(0), [cube(), integers(&[], &[1.0])]),
        ],
        OpCode::TakeAlongAxis => vec![Sample::new(along(1), [x(&[2, 3, 1]), column()])],
        OpCode::ScatterAdd => vec![Sample::new(scatter, [matrix(), x(&[2, 2, 2, 3])])],
        OpCode::ScatterAddAlongAxis => vec![Sample::new(scatter, [column(), x(&[2, 2, 1])])],
        OpCode::WrapIndex => vec![Sample::new(Op::new(code, Attrs::Size(3)), [matrix()])],
        OpCode::CheckLabel => {
            let labels = integers(&[2, 2], &[0.0, 2.0, 1.0, 0.0]);
            vec![Sample::new(Op::new(code, Attrs::Size(3)), [labels])]
        }
        OpCode::Scatter => into(&|| [cube(), matrix(), spread(&[2, 2, 2, 4], (-1.2, 1.3))]),
        OpCode::ScatterAlongAxis => {
            into(&|| [x(&[2, 3, 1]), column(), spread(&[2, 2, 1], (-1.2, 1.3))])
        }
        _ => vec![],
    }
}

/// Positive definite matrices, which every op on matrices accepts, for each result. Complex
/// matrices too for results without a free phase.
pub(super) fn matrices(code: OpCode) -> Vec<Sample> {
    let ItemRank::Matrix(results) = code.def().item_rank else { return vec![] };
    let item = [4.0, 1.0, -0.5, 1.0, 3.0, 0.7, -0.5, 0.7, 2.0];
    let other = [2.5, -0.3, 0.4, -0.3, 1.7, 0.2, 0.4, 0.2, 5.0];
    let x = Array::from_f64([2, 3, 3], DType::F64, &[item, other].concat());
    let turned = [0.0, 0.4, -0.3, -0.4, 0.0, 0.6, 0.3, -0.6, 0.0];
    let hermitian = complex(&[3, 3], DType::C128, &item, &turned);
    let part = |phase| numbers(&[3, 2], -1.0, 1.0, phase);
    let operands = [
        [x, spread(&[2, 3, 2], (-1.0, 1.0))],
        [hermitian, complex(&[3, 2], DType::C128, &part(0.0), &part(0.4))],
    ];
    let vectors =
        |result| matches!((code, result), (OpCode::Eigh, 1) | (OpCode::Svd, 0) | (OpCode::Svd, 2));
    let row = |(result, flag): (usize, bool)| {
        let op = Op::new(code, Attrs::routine(flag)).with_result(result as u8);
        let kinds = &operands[..if vectors(result) { 1 } else { 2 }];
        kinds.iter().map(move |o| Sample::new(op.clone(), &o[..code.def().arity.0])).collect()
    };
    let settings = (0..results.len()).flat_map(|i| [(i, false), (i, true)]);
    settings.flat_map(|setting| -> Vec<Sample> { row(setting) }).collect()
}

/// 2x2 matrices whose eigenvalues keep their order, and whose real vectors keep their sign, under
/// small changes of an element.
pub(super) fn eigen(code: OpCode) -> Vec<Sample> {
    let items = [2.0, 0.7, 0.4, -1.0, 1.0, -0.5, 0.3, 3.0];
    let real = Array::from_f64([2, 2, 2], DType::F64, &items);
    let turned = complex(&[2, 2], DType::C128, &items[..4], &[1.0, 0.5, -0.3, -2.0]);
    let row =
        |result, x| Sample::new(Op::new(code, Attrs::routine(false)).with_result(result), [x]);
    vec![row(0, real.clone()), row(1, real), row(0, turned)]
}

/// Rows, with and without the flag.
pub(super) fn rows(code: OpCode) -> Vec<Sample> {
    let row = |flag| {
        let mut inputs = vec![cube()];
        if code.def().arity.0 == 2 {
            let ascending: Vec<f64> = (0..6).flat_map(|i| [-0.2 * i as f64, 0.3]).collect();
            inputs.insert(0, Array::from_f64([2, 3, 2], DType::F64, &ascending));
        }
        Sample::new(Op::new(code, Attrs::routine(flag)), inputs)
    };
    [false, true].map(row).into()
}

/// Some, all and one element of each row; both results, in both orders.
pub(super) fn best(code: OpCode) -> Vec<Sample> {
    let row = |(result, flag, size)| {
        Sample::new(Op::new(code, Attrs::Library { result, flag, size }), [cube()])
    };
    [(0, false, 2), (1, false, 2), (0, true, 4), (1, true, 4), (0, true, 1)].map(row).into()
}

/// Two places of each row, for both results.
pub(super) fn places(code: OpCode) -> Vec<Sample> {
    let places: Vec<f64> = (0..6).flat_map(|i| [(i % 4) as f64, 3.0 - (i % 2) as f64]).collect();
    let row = |result| {
        let op = Op::new(code, Attrs::routine(false)).with_result(result);
        Sample::new(op, [cube(), integers(&[2, 3, 2], &places)])
    };
    [0, 1].map(row).into()
}

/// Factors, including a zero, and summands; both results, in both directions.
pub(super) fn recurrences(code: OpCode) -> Vec<Sample> {
    let factors = Array::from_f64([2, 4], DType::F64, &[0.3, 1.5, 0.0, -2.0, 0.7, -0.4, 1.2, 2.0]);
    let row = |(result, flag)| {
        let op = Op::new(code, Attrs::routine(flag)).with_result(result);
        Sample::new(op, [factors.clone(), spread(&[2, 4], (-1.0, 1.0))])
    };
    [(0, false), (1, false), (0, true), (1, true)].map(row).into()
}

/// Regular matrices, real and complex, and weights.
pub(super) fn slopes(code: OpCode) -> Vec<Sample> {
    let x = Array::from_f64([2, 2, 2], DType::F64, &[2.0, 0.7, 0.4, -1.0, 1.0, -0.5, 0.3, 3.0]);
    let z = complex(&[2, 2], DType::C128, &[2.0, 0.7, 0.4, -1.0], &[1.0, 0.5, -0.3, -2.0]);
    let part = |phase| numbers(&[2, 2], -1.0, 1.0, phase);
    let w = complex(&[2, 2], DType::C128, &part(0.0), &part(0.4));
    let op = || Op::new(code, Attrs::routine(false));
    vec![Sample::new(op(), [x, spread(&[2, 2, 2], (-1.0, 1.0))]), Sample::new(op(), [z, w])]
}

/// Tall and square real matrices, and a wide complex one.
pub(super) fn pseudo_inverses(code: OpCode) -> Vec<Sample> {
    let tolerance =
        |shape: &[usize]| Array::from_f64(shape, DType::F64, &vec![1e-9; shape.iter().product()]);
    let square = Array::from_f64([2, 2], DType::F64, &[2.0, 0.7, -0.4, 1.0]);
    let part = |phase| numbers(&[2, 3], -1.0, 1.0, phase);
    let wide = complex(&[2, 3], DType::C128, &part(0.0), &part(0.4));
    vec![
        Sample::new(code, [spread(&[2, 3, 2], (-1.0, 1.0)), tolerance(&[2])]),
        Sample::new(code, [square, tolerance(&[])]),
        Sample::new(code, [wide, tolerance(&[])]),
    ]
}

/// Rows of even and odd length, and of one element; with and without normalisation.
pub(super) fn spectra(code: OpCode) -> Vec<Sample> {
    let x = |shape: &[usize], phase| numbers(shape, -1.5, 1.6, phase);
    let row = |(n, flag): (usize, bool)| {
        let (real, half) = ([2, n], [2, super::fft::half(n)]);
        let complex = |shape| complex(shape, DType::C128, &x(shape, 0.0), &x(shape, 0.4));
        let (operand, size) = match code {
            OpCode::Fft => (complex(&real), !flag as u32),
            OpCode::Rfft => (Array::from_f64(real, DType::F64, &x(&real, 0.0)), 0),
            _ => (complex(&half), n as u32),
        };
        Sample::new(Op::new(code, Attrs::Library { result: 0, flag, size }), [operand])
    };
    [(4, false), (5, true), (1, false), (6, true)].map(row).into()
}

pub(super) fn to_device(code: OpCode) -> Vec<Sample> {
    let row = |(from, to)| {
        Sample::new(Op::new(code, Attrs::Devices { from, to }), [spread(&[5], code.def().domain)])
    };
    // Device 0 is the only device that every process has.
    [(0, 0), (1, 0)].map(row).into()
}

pub(super) fn reshard(code: OpCode) -> Vec<Sample> {
    let mesh = DeviceMesh::new(&[2], &["x"]).expect("the names are valid");
    let row = |(spec, shape): (P, &[usize])| {
        let sharding = Sharding::new(mesh.clone(), spec).expect("the mesh has the axis");
        let op = Op::new(code, Attrs::Sharding(Arc::new(sharding)));
        Sample::new(op, [spread(shape, code.def().domain)])
    };
    let along = |spec: &str| spec.parse().expect("it is a spec");
    [row((along("<x>"), &[5])), row((along("<*, x>"), &[2, 3])), row((P::default(), &[4]))].into()
}

/// Collectives over an unbound axis, which has one member.
pub(super) fn collectives(code: OpCode) -> Vec<Sample> {
    let name = super::collective::AxisName::new("i").expect("it is a name");
    let axis = super::collective::NamedAxis { name, size: 1.into() };
    let row = |shape: &[usize]| {
        let x = spread(shape, code.def().domain);
        Sample::new(Op::collective(code, axis.clone()), [x, integers(&[], &[0.0])])
    };
    vec![row(&[2, 3]), row(&[])]
}

pub(super) fn gelu(code: OpCode) -> Vec<Sample> {
    let row = |tanh| {
        Sample::new(Op::new(code, Attrs::Approximate(tanh)), [spread(&[5], code.def().domain)])
    };
    [false, true].map(row).into()
}

/// Along an axis.
pub(super) fn along_axis(code: OpCode) -> Vec<Sample> {
    [1, 2].map(|axis| Sample::new(Op::new(code, Attrs::Axis(axis)), [cube()])).into()
}

pub(super) fn layer_norm(code: OpCode) -> Vec<Sample> {
    let norm = |ndims| Op::new(code, Attrs::Norm { ndims, eps: 1e-3.into() });
    let (weight, bias) = ((0.5, 1.5), (-0.5, 0.6));
    vec![
        Sample::new(norm(1), [cube()]),
        Sample::new(norm(1), [cube(), spread(&[4], weight)]),
        Sample::new(norm(1), [cube(), spread(&[4], weight), spread(&[4], bias)]),
        Sample::new(norm(2), [cube(), spread(&[3, 4], weight), spread(&[3, 4], bias)]),
    ]
}

pub(super) fn cross_entropy(code: OpCode) -> Vec<Sample> {
    let labels = integers(&[2, 3], &[0.0, 3.0, 3.0, 1.0, 0.0, 2.0]);
    vec![Sample::new(code, [cube(), labels])]
}

/// `girih.copy` of one operand, and its second result for two operands.
pub(super) fn host(_: OpCode) -> Vec<Sample> {
    let Some(copy) = super::host::registered("girih.copy", 1) else { return vec![] };
    let sample = |operands: Vec<Array>| {
        let specs = operands.iter().map(|x| x.spec().clone()).collect();
        let call = super::host::HostCall::new(copy.clone(), specs, Default::default(), false);
        Sample::new(Op::host(call.into(), operands.len() - 1), operands)
    };
    vec![
        sample(vec![spread(&[2, 3], (-1.0, 1.0))]),
        sample(vec![integers(&[2], &[1.0, 2.0]), spread(&[4], (-1.0, 1.0))]),
    ]
}
