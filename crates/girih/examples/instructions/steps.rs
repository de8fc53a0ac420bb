//! The training steps of `benches/training.py` at their real sizes, recorded and compiled but not
//! run, so that only compilation is measured.

use crate::Once;
use girih::{
    AttentionOptions, ConvOptions, DType, Index, Result, Tensor, clear_cache, compile_only, eval,
    value_and_grad,
};

const RATE: f64 = 1e-3;

/// A loss of parameters and data.
type Loss = fn(&[Tensor], &[Tensor]) -> Result<Tensor>;

/// Evaluated tensors of these shapes.
fn tensors(shapes: &[Vec<usize>]) -> Result<Vec<Tensor>> {
    let tensors: Vec<Tensor> = shapes
        .iter()
        .map(|shape| Tensor::zeros(shape.clone(), DType::F32))
        .collect::<Result<_>>()?;
    eval(&tensors)?;
    Ok(tensors)
}

/// Compiles an Adam step.
fn step(loss: Loss, data: &[Vec<usize>], parameters: &[Vec<usize>]) -> Result<Once> {
    let (data, held) = (tensors(data)?, tensors(parameters)?);
    let (first, second) = (tensors(parameters)?, tensors(parameters)?);
    let count = tensors(&[vec![]])?.remove(0);
    let loss_and_grads = value_and_grad(move |p: &[Tensor]| loss(p, &data));
    let complement =
        |base: f64, count: &Tensor| Tensor::full(base, [], DType::F32)?.pow(count)?.neg()?.add(1.0);
    Ok(Box::new(move || {
        clear_cache()?;
        let (value, grads) = loss_and_grads(&held)?;
        let count = count.add(1.0)?;
        let rate = Tensor::full(RATE, [], DType::F32)?.div(&complement(0.9, &count)?)?;
        let root = complement(0.999, &count)?.sqrt()?;
        let mut outputs = vec![value, count];
        for (((p, m), v), g) in held.iter().zip(&first).zip(&second).zip(&grads) {
            let m = m.mul(0.9)?.add(&g.mul(0.1)?)?;
            let v = v.mul(0.999)?.add(&g.mul(g)?.mul(0.001)?)?;
            let scale = v.sqrt()?.div(&root)?.add(1e-8)?;
            outputs.extend([p.sub(&rate.mul(&m)?.div(&scale)?)?, m, v]);
        }
        compile_only(&outputs)?.wait()
    }))
}

fn mean_square(x: &Tensor, target: &Tensor) -> Result<Tensor> {
    let difference = x.sub(target)?;
    difference.mul(&difference)?.mean_all()
}

/// A perceptron 784-512-512-10 at batch 128.
pub fn perceptron() -> Result<Once> {
    let layer = |a: usize, b: usize| [vec![a, b], vec![b]];
    let parameters = [layer(784, 512), layer(512, 512), layer(512, 10)].concat();
    step(perceptron_loss, &[vec![128, 784], vec![128, 10]], &parameters)
}

fn perceptron_loss(p: &[Tensor], data: &[Tensor]) -> Result<Tensor> {
    let x = data[0].matmul(&p[0])?.add(&p[1])?.relu()?;
    let x = x.matmul(&p[2])?.add(&p[3])?.relu()?;
    let logits = x.matmul(&p[4])?.add(&p[5])?;
    logits.log_softmax(-1)?.mul(&data[1])?.sum_all()?.neg()?.div(128.0)
}

const BLOCKS: usize = 2;
const PER_BLOCK: usize = 12;
const WIDTH: usize = 256;

/// Transformer blocks of width 256 with four heads, at 4 x 128 tokens.
pub fn transformer() -> Result<Once> {
    let layer = |a: usize, b: usize| [vec![a, b], vec![b]];
    let norm = [vec![WIDTH], vec![WIDTH]];
    let attention = [layer(WIDTH, 3 * WIDTH), layer(WIDTH, WIDTH)].concat();
    let feed = [layer(WIDTH, 4 * WIDTH), layer(4 * WIDTH, WIDTH)].concat();
    let block = [&norm[..], &attention, &norm, &feed].concat();
    let blocks: Vec<_> = (0..BLOCKS).flat_map(|_| block.clone()).collect();
    let data = vec![4, 128, WIDTH];
    step(transformer_loss, &[data.clone(), data], &blocks)
}

fn attention(x: &Tensor, p: &[Tensor]) -> Result<Tensor> {
    let split = x.matmul(&p[0])?.add(&p[1])?.reshape([4, 128, 3, 4, WIDTH as i64 / 4])?;
    let split = split.permute([2, 0, 3, 1, 4])?;
    let part = |i| split.index(&[Index::At(i)]);
    let mixed = part(0)?.attention(&part(1)?, &part(2)?, &AttentionOptions::default())?;
    let mixed = mixed.permute([0, 2, 1, 3])?.reshape([4, 128, WIDTH as i64])?;
    mixed.matmul(&p[2])?.add(&p[3])
}

fn transformer_loss(p: &[Tensor], data: &[Tensor]) -> Result<Tensor> {
    let norm = |x: &Tensor, p: &[Tensor]| x.layer_norm(1, Some(&p[0]), Some(&p[1]), 1e-5);
    let mut x = data[0].clone();
    for q in p.chunks(PER_BLOCK) {
        x = x.add(&attention(&norm(&x, q)?, &q[2..])?)?;
        let hidden = norm(&x, &q[6..])?.matmul(&q[8])?.add(&q[9])?.gelu_tanh()?;
        x = x.add(&hidden.matmul(&q[10])?.add(&q[11])?)?;
    }
    mean_square(&x, &data[1])
}

/// A residual block of 64 channels: convolution, batch norm and ReLU, twice, and the shortcut.
pub fn residual_block() -> Result<Once> {
    let data = vec![8, 64, 28, 28];
    let layer = [vec![64, 64, 3, 3], vec![64], vec![64]];
    step(residual_loss, &[data.clone(), data], &[&layer[..], &layer].concat())
}

fn residual_loss(p: &[Tensor], data: &[Tensor]) -> Result<Tensor> {
    let options = ConvOptions { padding: 1.into(), ..ConvOptions::default() };
    let layer = |x: &Tensor, p: &[Tensor]| {
        let x = x.conv(&p[0], None, &options)?;
        x.batch_norm(None, Some(&p[1]), Some(&p[2]), 1e-5)
    };
    let hidden = layer(&layer(&data[0], p)?.relu()?, &p[3..])?;
    mean_square(&data[0].add(&hidden)?.relu()?, &data[1])
}
