//! The graphs of the dump: random programs, the samples of all ops, and programs with the sizes of
//! the benchmarks and with sizes that no block divides.

use girih_ir::ops::conv::{Conv, ConvDim};
use girih_ir::testing::random_graph;
use girih_ir::{
    Attrs, AxisSet, DType, Graph, GraphBuilder, NodeId, Op, OpCode, Result, Shape, TensorSpec,
};
use girih_transform::gradients;
use std::sync::Arc;

/// The number of random programs on matrices, and of random graphs over all ops.
const RANDOM: u64 = 300;

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// All graphs with their names.
pub(super) fn all() -> Vec<(String, Graph)> {
    let mut all = Graphs(vec![]);
    all.gemms();
    all.bytes();
    all.prologues();
    all.convolutions();
    all.rows();
    all.training();
    all.samples();
    for seed in 0..RANDOM {
        all.0.push((format!("random program {seed}"), girih_conformance::random_program(seed).0));
        all.0.push((format!("random graph {seed}"), random_graph(seed, 30)));
    }
    all.0
}

struct Graphs(Vec<(String, Graph)>);

/// A builder that makes inputs by shape.
struct Builder(GraphBuilder, DType);

impl Builder {
    fn input(&mut self, shape: impl Into<Shape>) -> NodeId {
        self.0.input(TensorSpec::new(shape, self.1))
    }

    fn input_of(&mut self, dtype: DType, shape: impl Into<Shape>) -> NodeId {
        self.0.input(TensorSpec::new(shape, dtype))
    }

    /// An input that is stored as its transpose.
    fn transposed(&mut self, shape: &[usize]) -> Result<NodeId> {
        let mut stored = shape.to_vec();
        let rank = stored.len();
        stored.swap(rank - 2, rank - 1);
        let x = self.input(stored);
        self.0.transpose(x)
    }

    fn op(&mut self, code: OpCode, inputs: &[NodeId]) -> Result<NodeId> {
        self.0.op(code, inputs)
    }

    fn conv(&mut self, x: NodeId, w: NodeId, dims: [ConvDim; 2], groups: usize) -> Result<NodeId> {
        let conv = Conv { dims: dims.to_vec(), groups };
        self.0.emit(Op::new(OpCode::Conv, Attrs::Conv(Arc::new(conv))), &[x, w])
    }

    fn layer_norm(&mut self, x: NodeId, width: usize) -> Result<NodeId> {
        let [weight, bias] = [0; 2].map(|_| self.input([width]));
        let norm = Attrs::Norm { ndims: 1, eps: 1e-5.into() };
        self.0.emit(Op::new(OpCode::LayerNorm, norm), &[x, weight, bias])
    }

    fn attention(&mut self, [q, k, v]: [NodeId; 3], causal: bool) -> Result<NodeId> {
        let attention = Attrs::Attention { causal, scale: 0.125.into() };
        self.0.emit(Op::new(OpCode::Attention, attention), &[q, k, v])
    }

    fn linear(&mut self, x: NodeId, [from, to]: [usize; 2]) -> Result<NodeId> {
        let (weight, bias) = (self.input([from, to]), self.input([to]));
        let y = self.0.matmul(x, weight)?;
        self.0.add(y, bias)
    }
}

impl Graphs {
    fn add(
        &mut self,
        name: impl Into<String>,
        dtype: DType,
        build: impl FnOnce(&mut Builder) -> Result<NodeId>,
    ) -> &Graph {
        let mut builder = Builder(GraphBuilder::default(), dtype);
        let name = name.into();
        let result = build(&mut builder).unwrap_or_else(|error| panic!("{name}: {error}"));
        self.0.push((name, builder.0.finish([result])));
        &self.0.last().expect("it was just added").1
    }

    /// The gradient of the sum of a result with respect to all inputs that are floats.
    fn with_gradient(
        &mut self,
        name: impl Into<String>,
        build: impl FnOnce(&mut Builder) -> Result<NodeId>,
    ) {
        let name = name.into();
        let graph = self.add(name.clone(), DType::F32, build).clone();
        let output = graph.outputs()[0];
        let mut b = GraphBuilder::from_graph(graph);
        let rank = b.shape(output).rank();
        let sum = b.sum(output, AxisSet::all(rank), false).expect("floats have a sum");
        let inputs: Vec<NodeId> = b.graph().arguments().collect();
        let inputs: Vec<NodeId> =
            inputs.into_iter().filter(|&input| b.dtype(input).is_float()).collect();
        let graph = gradients(&b.finish([sum]), sum, &inputs, None).expect("a scalar of floats");
        self.0.push((format!("{name}, gradient"), graph));
    }

    /// Layouts, sizes and dtypes of plain GEMMs, with and without an epilogue.
    fn gemms(&mut self) {
        let sizes = [
            [1, 1024, 1024],
            [2, 300, 64],
            [4, 1024, 1024],
            [5, 17, 65],
            [6, 1000, 333],
            [7, 5, 3],
            [8, 1024, 1024],
            [16, 1024, 1024],
            [31, 77, 600],
            [32, 1024, 1024],
            [32, 4096, 4096],
            [33, 47, 129],
            [128, 1024, 1024],
            [128, 200, 2500],
            [1000, 10, 784],
            [1024, 1024, 1024],
            [5000, 48, 64],
            [3000, 3001, 70],
        ];
        let dtypes = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::C64];
        for [m, n, k] in sizes {
            for dtype in dtypes {
                for layout in ["nn", "nt", "tn", "tt"] {
                    let operands = |b: &mut Builder| {
                        let x = match layout.starts_with('t') {
                            true => b.transposed(&[m, k])?,
                            false => b.input([m, k]),
                        };
                        let w = match layout.ends_with('t') {
                            true => b.transposed(&[k, n])?,
                            false => b.input([k, n]),
                        };
                        b.0.matmul(x, w)
                    };
                    let name = format!("gemm {layout} {m}x{n}x{k} of {dtype}");
                    self.add(name.clone(), dtype, operands);
                    if dtype.is_float() && matches!(layout, "nn" | "nt") {
                        self.add(format!("{name}, bias and gelu"), dtype, |b| {
                            let (y, bias) = (operands(b)?, b.input([n]));
                            let y = b.0.add(y, bias)?;
                            b.op(OpCode::Gelu, &[y])
                        });
                    }
                }
            }
        }
        for [batch, m, n, k] in [[3, 5, 40, 70], [16, 64, 64, 64], [100, 3, 3, 3], [4, 257, 31, 90]]
        {
            for dtype in [DType::F32, DType::BF16, DType::F64] {
                let name = format!("{batch} gemms {m}x{n}x{k} of {dtype}");
                self.add(name.clone(), dtype, |b| {
                    let (x, w) = (b.input([batch, m, k]), b.input([batch, k, n]));
                    b.0.matmul(x, w)
                });
                self.add(format!("{name}, the same B"), dtype, |b| {
                    let (x, w) = (b.input([batch, m, k]), b.input([k, n]));
                    b.0.matmul(x, w)
                });
                self.add(format!("{name}, the same A"), dtype, |b| {
                    let (x, w) = (b.input([m, k]), b.input([batch, k, n]));
                    b.0.matmul(x, w)
                });
            }
        }
    }

    /// Bytes and words, accumulated in 32 bits or in their own width.
    fn bytes(&mut self) {
        let sizes = [[3, 40, 70], [8, 1024, 1024], [33, 65, 129], [128, 1024, 1024], [600, 50, 64]];
        let pairs = [
            (DType::I8, DType::I8),
            (DType::U8, DType::I8),
            (DType::I8, DType::U8),
            (DType::U8, DType::U8),
            (DType::I16, DType::I16),
            (DType::U16, DType::I8),
        ];
        for [m, n, k] in sizes {
            for (left, right) in pairs {
                for transposed in [false, true] {
                    let layout = if transposed { "nt" } else { "nn" };
                    let name = format!("gemm {layout} {m}x{n}x{k} of {left} by {right}");
                    self.add(name.clone() + " in i32", right, |b| {
                        let x = b.input_of(left, [m, k]);
                        let w = if transposed { b.transposed(&[k, n])? } else { b.input([k, n]) };
                        let (x, w) = (b.0.cast(x, DType::I32)?, b.0.cast(w, DType::I32)?);
                        b.0.matmul(x, w)
                    });
                    if left == right {
                        self.add(name, right, |b| {
                            let x = b.input([m, k]);
                            let w =
                                if transposed { b.transposed(&[k, n])? } else { b.input([k, n]) };
                            b.0.matmul(x, w)
                        });
                    }
                }
            }
        }
    }

    /// GEMMs with operands that maps compute.
    fn prologues(&mut self) {
        let sizes =
            [[1, 1024, 1024], [3, 70, 90], [32, 1024, 1024], [100, 300, 77], [1024, 200, 64]];
        for [m, n, k] in sizes {
            for stored in [DType::I8, DType::BF16, DType::F32] {
                for transposed in [false, true] {
                    let layout = if transposed { "nt" } else { "nn" };
                    let size = format!("{layout} {m}x{n}x{k}");
                    let weights = |b: &mut Builder| -> Result<NodeId> {
                        let stored_shape = if transposed { [n, k] } else { [k, n] };
                        let w = b.input_of(stored, stored_shape);
                        let w = b.0.cast(w, DType::F32)?;
                        let scale = b.input([if transposed { k } else { n }]);
                        let w = b.0.mul(w, scale)?;
                        if transposed { b.0.transpose(w) } else { Ok(w) }
                    };
                    self.add(format!("scaled weights {size} of {stored}"), DType::F32, |b| {
                        let (x, w) = (b.input([m, k]), weights(b)?);
                        b.0.matmul(x, w)
                    });
                    self.add(
                        format!("both operands computed {size} of {stored}"),
                        DType::F32,
                        |b| {
                            let x = b.input([m, k]);
                            let (x, w) = (b.op(OpCode::Relu, &[x])?, weights(b)?);
                            let y = b.0.matmul(x, w)?;
                            b.op(OpCode::Tanh, &[y])
                        },
                    );
                }
            }
            for dtype in FLOATS {
                self.add(format!("relu of A {m}x{n}x{k} of {dtype}"), dtype, |b| {
                    let (x, w) = (b.input([m, k]), b.input([k, n]));
                    let x = b.op(OpCode::Relu, &[x])?;
                    b.0.matmul(x, w)
                });
            }
        }
    }

    fn convolutions(&mut self) {
        // Batch, channels, side, kernels, side of a kernel, stride.
        let sizes = [
            [8, 64, 56, 64, 3, 1],
            [1, 3, 224, 64, 7, 2],
            [1, 64, 56, 64, 3, 1],
            [1, 64, 56, 128, 3, 2],
            [1, 64, 56, 128, 1, 2],
            [1, 128, 28, 128, 3, 1],
            [1, 256, 14, 512, 3, 2],
            [1, 512, 7, 512, 3, 1],
            [1, 256, 14, 256, 1, 1],
            [2, 3, 33, 5, 3, 1],
            [1, 1, 28, 8, 5, 1],
            [3, 4, 37, 6, 3, 1],
            [1, 2, 100, 3, 3, 1],
        ];
        for [batch, channels, side, out, kernel, stride] in sizes {
            let low = kernel / 2;
            let dim = ConvDim { stride, low, high: low, ..ConvDim::default() };
            let size = format!("{kernel}x{kernel} by {stride}, {batch}x{channels}x{side} to {out}");
            for padded in [true, false] {
                let dim = if padded { dim } else { ConvDim { low: 0, high: 0, ..dim } };
                let name = format!("convolution {size}{}", if padded { ", padded" } else { "" });
                let build = |b: &mut Builder| {
                    let x = b.input([batch, channels, side, side]);
                    let w = b.input([out, channels, kernel, kernel]);
                    b.conv(x, w, [dim; 2], 1)
                };
                match padded {
                    true => self.with_gradient(name, build),
                    false => drop(self.add(name, DType::F32, build).outputs()),
                }
            }
            for dtype in [DType::BF16, DType::F64] {
                self.add(format!("convolution {size} of {dtype}"), dtype, |b| {
                    let x = b.input([batch, channels, side, side]);
                    let w = b.input([out, channels, kernel, kernel]);
                    let y = b.conv(x, w, [dim; 2], 1)?;
                    b.op(OpCode::Relu, &[y])
                });
            }
        }
        for [channels, side, stride] in [[64, 56, 1], [256, 14, 1], [64, 56, 2], [7, 19, 1]] {
            let dim = ConvDim { stride, low: 1, high: 1, ..ConvDim::default() };
            self.with_gradient(
                format!("depthwise convolution {channels}x{side} by {stride}"),
                |b| {
                    let (x, w) = (b.input([1, channels, side, side]), b.input([channels, 1, 3, 3]));
                    b.conv(x, w, [dim; 2], channels)
                },
            );
        }
    }

    /// Programs that are fused row by row.
    fn rows(&mut self) {
        for [heads, length, width] in [[8, 4096, 64], [8, 512, 64], [2, 100, 30], [3, 17, 5]] {
            for causal in [false, true] {
                let name = format!("attention {heads}x{length}x{width}, causal: {causal}");
                self.with_gradient(name, |b| {
                    let operands = [0; 3].map(|_| b.input([1, heads, length, width]));
                    b.attention(operands, causal)
                });
            }
            let name = format!("attention of bf16 {heads}x{length}x{width}");
            self.add(name, DType::BF16, |b| {
                let operands = [0; 3].map(|_| b.input([1, heads, length, width]));
                b.attention(operands, false)
            });
        }
        for (rows, width) in [(1024, 1024), (64, 50_257), (33, 77), (1, 5), (4096, 16)] {
            let size = format!("{rows}x{width}");
            self.with_gradient(format!("softmax {size}"), |b| {
                let x = b.input([rows, width]);
                b.0.softmax(x, 1)
            });
            self.with_gradient(format!("layer norm {size}"), |b| {
                let x = b.input([rows, width]);
                b.layer_norm(x, width)
            });
            for dtype in FLOATS {
                self.add(format!("softmax and sums of {dtype} {size}"), dtype, |b| {
                    let x = b.input([rows, width]);
                    let y = b.0.softmax(x, 0)?;
                    let y = b.0.mul(y, x)?;
                    b.0.sum(y, AxisSet::one(1), false)
                });
            }
            self.add(format!("gelu of a sum {size}"), DType::F32, |b| {
                let (x, y) = (b.input([rows, width]), b.input([rows, width]));
                let sum = b.0.add(x, y)?;
                b.op(OpCode::Gelu, &[sum])
            });
        }
    }

    /// Networks, their gradients and a step of Adam.
    fn training(&mut self) {
        let mlp = |sizes: &'static [usize], batch: usize| {
            move |b: &mut Builder| {
                let mut x = b.input([batch, sizes[0]]);
                for (i, pair) in sizes.windows(2).enumerate() {
                    if i > 0 {
                        x = b.op(OpCode::Relu, &[x])?;
                    }
                    x = b.linear(x, [pair[0], pair[1]])?;
                }
                let labels = b.input_of(DType::I64, [batch]);
                let losses = b.op(OpCode::CrossEntropy, &[x, labels])?;
                b.0.mean(losses, AxisSet::one(0), false)
            }
        };
        let networks: [(&str, &'static [usize], usize); 5] = [
            ("the benchmark", &[784, 512, 512, 10], 128),
            ("the demo", &[64, 128, 64, 10], 64),
            ("few rows", &[128, 256, 10], 1),
            ("batch 32", &[128, 256, 10], 32),
            ("odd sizes", &[33, 71, 19, 3], 50),
        ];
        for (name, sizes, batch) in networks {
            let name = format!("perceptron, {name}");
            self.with_gradient(name.clone(), mlp(sizes, batch));
            let (_, step) = self.0.last().expect("it was just added").clone();
            self.0.push((format!("{name}, step"), adam(step).expect("floats of one shape")));
        }
        for [batch, length, width, heads] in [[4, 128, 256, 4], [2, 33, 48, 3]] {
            let name = format!("transformer block {batch}x{length}x{width}, {heads} heads");
            self.with_gradient(name, |b| {
                let x = b.input([batch, length, width]);
                let normal = b.layer_norm(x, width)?;
                let mut parts = [normal; 3];
                for part in &mut parts {
                    let y = b.linear(normal, [width, width])?;
                    let y = b.0.reshape(y, [batch, length, heads, width / heads])?;
                    *part = b.0.permute(y, &[0, 2, 1, 3])?;
                }
                let mixed = b.attention(parts, true)?;
                let mixed = b.0.permute(mixed, &[0, 2, 1, 3])?;
                let mixed = b.0.reshape(mixed, [batch, length, width])?;
                let mixed = b.linear(mixed, [width, width])?;
                let x = b.0.add(x, mixed)?;
                let hidden = b.layer_norm(x, width)?;
                let hidden = b.linear(hidden, [width, 4 * width])?;
                let hidden = b.op(OpCode::Gelu, &[hidden])?;
                let hidden = b.linear(hidden, [4 * width, width])?;
                b.0.add(x, hidden)
            });
        }
        self.with_gradient("residual block", |b| {
            let dim = ConvDim { low: 1, high: 1, ..ConvDim::default() };
            let x = b.input([8, 64, 28, 28]);
            let mut y = x;
            for _ in 0..2 {
                let w = b.input([64, 64, 3, 3]);
                y = b.conv(y, w, [dim; 2], 1)?;
                y = b.op(OpCode::Relu, &[y])?;
            }
            b.0.add(x, y)
        });
    }

    /// Each sample of each op, with its floating-point operands in each dtype that the op takes.
    fn samples(&mut self) {
        for &code in OpCode::ALL {
            for (i, sample) in code.samples().iter().enumerate() {
                let floats = sample.inputs.iter().any(|x| x.spec().dtype == DType::F64);
                let dtypes = if floats { &FLOATS[..] } else { &FLOATS[..1] };
                for &dtype in dtypes {
                    let sample = sample.with_dtype(dtype);
                    let mut b = GraphBuilder::default();
                    let inputs: Vec<NodeId> =
                        sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
                    let Ok(result) = b.emit(sample.op.clone(), &inputs) else { continue };
                    let name = format!("sample {i} of {} in {dtype}", code.def().name);
                    self.0.push((name, b.finish([result])));
                }
            }
        }
    }
}

/// The graph of a loss and its gradients, with a step of Adam of each input that has one.
fn adam(graph: Graph) -> Result<Graph> {
    let outputs: Vec<NodeId> = graph.outputs().to_vec();
    let mut b = GraphBuilder::from_graph(graph);
    let inputs: Vec<NodeId> = b.graph().arguments().filter(|&x| b.dtype(x).is_float()).collect();
    let mut results = vec![outputs[0]];
    for (&parameter, &gradient) in inputs.iter().zip(&outputs[1..]) {
        let spec = b.spec(parameter).clone();
        let moments = [(0.9, false), (0.999, true)].map(|(beta, square)| {
            let old = b.input(spec.clone());
            let (keep, take) = (b.scalar_like(old, beta), b.scalar_like(old, 1.0 - beta));
            let new = if square { b.mul(gradient, gradient)? } else { gradient };
            let (old, new) = (b.mul(old, keep)?, b.mul(new, take)?);
            b.add(old, new)
        });
        let [first, second] = moments;
        let (first, second) = (first?, second?);
        let (root, small) = (b.sqrt(second)?, b.scalar_like(second, 1e-8));
        let root = b.add(root, small)?;
        let step = b.div(first, root)?;
        let rate = b.scalar_like(step, 1e-3);
        let step = b.mul(step, rate)?;
        results.extend([b.sub(parameter, step)?, first, second]);
    }
    Ok(b.finish(results))
}
