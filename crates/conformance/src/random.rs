//! Random numbers and random programs from seeds.

use girih_ir::testing::Rng;
use girih_ir::{Array, AxisSet, DType, Graph, GraphBuilder, NodeId, OpCode, TensorSpec};

/// A generator of random numbers and random arrays.
pub struct Random(Rng);

impl Random {
    /// A generator with that seed.
    pub fn new(seed: u64) -> Random {
        Random(Rng(seed))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// An integer from 0 to `n - 1`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    /// A number from -1 to 1.
    pub fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// `count` random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.bits() as u8).collect()
    }

    /// An array of numbers from -1 to 1.
    pub fn array(&mut self, spec: &TensorSpec) -> Array {
        let numbers: Vec<f64> = (0..spec.numel()).map(|_| self.number()).collect();
        Array::from_f64(spec.shape.clone(), spec.dtype, &numbers)
    }
}

/// A random program on two matrices with odd sizes, and its arguments: elementwise ops, reductions,
/// broadcasts, transposes and matmuls, with one to three results.
pub fn program(seed: u64) -> (Graph, Vec<Array>) {
    let mut random = Random::new(seed);
    let (rows, columns) = (1 + random.below(13), 1 + random.below(37));
    let spec = TensorSpec::new([rows, columns], DType::F32);
    let mut b = GraphBuilder::default();
    // All values have the inputs' shape.
    let mut values: Vec<NodeId> = (0..2).map(|_| b.input(spec.clone())).collect();
    for _ in 0..1 + random.below(10) {
        let mut pick = || values[random.below(values.len())];
        let (x, y) = (pick(), pick());
        let next = step(&mut b, &mut random, x, y);
        values.push(next.expect("values of one shape go together"));
    }
    let outputs: Vec<NodeId> = values.iter().rev().take(1 + random.below(3)).copied().collect();
    let arguments = vec![random.array(&spec), random.array(&spec)];
    (b.finish(outputs), arguments)
}

fn step(
    b: &mut GraphBuilder,
    random: &mut Random,
    x: NodeId,
    y: NodeId,
) -> girih_ir::Result<NodeId> {
    let shape = b.shape(x).clone();
    match random.below(8) {
        0 => b.add(x, y),
        1 => b.mul(x, y),
        2 => b.maximum(x, y),
        3 => b.tanh(x),
        4 => b.softmax(x, random.below(2) as u8),
        5 => {
            let sum = b.sum(x, AxisSet::one(random.below(2)), true)?;
            let sum = b.broadcast_to(sum, shape)?;
            // `tanh` bounds the values, however many of these steps follow each other.
            let bounded = b.tanh(sum)?;
            b.sub(y, bounded)
        }
        6 => {
            // (x yᵀ) y, scaled down.
            let transposed = b.transpose(y)?;
            let square = b.matmul(x, transposed)?;
            let matmul = b.matmul(square, y)?;
            b.tanh(matmul)
        }
        _ => b.op(OpCode::Neg, &[x]),
    }
}
