//! A first program: what a newcomer to the library writes, from other Rust libraries' habits.
//! `cargo run --release --example first` runs it.

use girih::linalg::{Factors, Triangle};
use girih::nn::{self, Layer, Linear, Module};
use girih::optim::{Adam, Optimizer};
use girih::{
    DType, Result, Tensor, Update, compile, concat, grad, io, keepdims, linalg, random, stack,
    value_and_grad, where_,
};
use std::path::Path;

#[derive(Module)]
struct Mlp {
    hidden: Linear,
    output: Linear,
}

impl Mlp {
    fn new(inputs: usize, width: usize, outputs: usize) -> Result<Mlp> {
        Ok(Mlp { hidden: Linear::new(inputs, width)?, output: Linear::new(width, outputs)? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.output.forward(&self.hidden.forward(x)?.relu()?)
    }
}

fn creation() -> Result<()> {
    let a = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    let b = Tensor::new(vec![1.0f32, 2.0, 3.0])?;
    let c = Tensor::new([1i64, 2, 3])?;
    let d = Tensor::new(3.0f32)?;
    let e = Tensor::from_vec(vec![0.0f32; 6], [2, 3])?;
    let f = Tensor::new(vec![vec![1.0f32, 2.0], vec![3.0, 4.0]])?;
    let zeros = Tensor::zeros((2, 3), DType::F32)?;
    let ones = Tensor::ones([2, 3], DType::F32)?;
    let full = Tensor::full(7.0, [2, 2], DType::F32)?;
    let eye = Tensor::eye(3, DType::F32)?;
    let range = Tensor::arange(0..10, DType::I64)?;
    let floats = Tensor::arange(0.0..1.0, DType::F32)?;
    let line = Tensor::linspace(0.0, 1.0, 11, DType::F32)?;
    let normal = Tensor::randn([2, 3], DType::F32)?;
    let uniform = Tensor::rand((2, 3), DType::F32)?;
    println!("{a} {b} {c} {d} {e} {f} {zeros} {ones} {full} {eye} {range} {floats} {line}");
    println!("{normal:?} {uniform:?} {:?} {:?} {}", a.shape(), a.dtype(), a.rank());
    assert_eq!(a.shape(), [2, 3]);
    assert_eq!(zeros.zeros_like()?.shape(), ones.ones_like()?.shape());
    Ok(())
}

fn arithmetic(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let lr = 0.5f32;
    let mut c = a + b * 2.0 - 1.0;
    c += a;
    c *= 0.5;
    let d = 1.0 / (1.0 + (-&c).exp()?);
    let e = (a - b).pow(2.0)? * lr + a.pow(2)? + a.sqrt()?;
    let f = a.maximum(0.0)?.minimum(b)?.clip(0.0, 1.0)?;
    let g = where_(&a.gt(0.0)?, a, 0.0)?;
    Ok(d + e + f + g + a.matmul(&b.t()?)?.sum_all()?)
}

fn slicing(x: &Tensor) -> Result<()> {
    let row = x.index(0)?;
    let column = x.index((.., 1))?;
    let block = x.index((0..2, 1..))?;
    let last = x.index((-1, ..))?;
    let most = x.index((.., ..-1))?;
    let tail = x.index(-2..)?;
    let some = x.index((1..=2, ..))?;
    let picked = x.index((&Tensor::new([0i64, 2])?, ..))?;
    let masked = x.index(&x.gt(0.0)?)?;
    let set = x.index_update((0, ..), Update::Set, 0.0)?;
    for t in [row, column, block, last, most, tail, some, picked, masked, set] {
        println!("{}", t.shape());
    }
    Ok(())
}

fn reductions(x: &Tensor) -> Result<()> {
    let total: f32 = x.sum_all()?.item()?;
    let columns = x.sum(0)?.to_vec::<f32>()?;
    let mean = x.mean_all()?.item::<f32>()?;
    let rows = x.mean(1)?;
    let both = x.sum([0, 1])?;
    let centred = x - x.mean(keepdims(1))?;
    let (largest, index) = (x.max(-1)?, x.argmax(-1)?);
    let spread = x.std(0)?;
    let sorted = x.sort(-1)?;
    let order = x.argsort_descending(-1)?;
    let (values, positions) = x.topk(2, -1)?;
    let running = x.cumsum(0)?;
    println!("{total} {columns:?} {mean} {rows} {both} {centred} {largest} {index} {spread}");
    println!("{sorted} {order} {values} {positions} {running}");
    Ok(())
}

fn shapes(x: &Tensor) -> Result<()> {
    let flat = x.reshape([-1])?;
    let n = x.numel();
    let again = flat.reshape((n / 2, 2))?.reshape([2, n / 2])?;
    let turned = again.permute([1, 0])?.t()?;
    let wide = turned.unsqueeze(0)?.squeeze(0)?.flatten(0, -1)?.broadcast_to([3, n])?;
    let joined = concat(&[&wide, &wide], 0)?;
    let parts = vec![x.clone(), x.clone()];
    let stacked = stack(&parts, 0)?;
    let (q, r) = linalg::qr(&Tensor::eye(3, DType::F64)?, Factors::Reduced)?;
    let l = linalg::cholesky(&Tensor::eye(3, DType::F64)?, Triangle::Lower)?;
    println!("{} {} {}", joined.shape(), stacked.shape(), (q.matmul(&r)? - l).abs()?.max_all()?);
    println!("{:?}", x.to_vec::<f32>()?);
    Ok(())
}

fn derivatives() -> Result<()> {
    let f = |x: &[Tensor]| x[0].square()?.sum_all();
    let x = [Tensor::new([1.0f32, 2.0, 3.0])?];
    let slope = grad(f)(&x)?;
    let (value, slopes) = value_and_grad(f)(&x)?;
    println!("{} {} {}", slope[0], value.item::<f32>()?, slopes[0]);
    let fast = compile(|x| Ok(vec![x[0].sin()? * 2.0]));
    println!("{}", fast.call(&[&x[0]])?[0]);
    Ok(())
}

fn training(path: &Path) -> Result<()> {
    random::manual_seed(0);
    let x = Tensor::randn([64, 2], DType::F32)?;
    let y = &x.index((.., 0..1))? * &x.index((.., 1..2))?;
    let model = Mlp::new(2, 16, 1)?;
    let mut optimizer = Adam::new(1e-2);
    for step in 0..100 {
        let (loss, grads) =
            nn::value_and_grad(&model, |model| (model.forward(&x)? - &y).square()?.mean_all())?;
        optimizer.step(&model, &loss, &grads)?;
        if step % 20 == 0 {
            println!("{step}: {}", loss.item::<f32>()?);
        }
    }
    model.save(path)?;
    model.load(path)?;
    io::save(path, &[("x", &x)])?;
    for (name, tensor) in io::load(path)? {
        println!("{name} {tensor}");
    }
    Ok(())
}

/// Runs each part.
pub fn main() -> Result<()> {
    creation()?;
    let x = Tensor::new([[1.0f32, -2.0, 3.0], [4.0, 5.0, -6.0], [0.5, 0.25, 0.125]])?;
    println!("{}", arithmetic(&x, &x)?);
    slicing(&x)?;
    reductions(&x)?;
    shapes(&x.index(..2)?)?;
    derivatives()?;
    let path = std::env::temp_dir().join(format!("first-{}.safetensors", std::process::id()));
    let trained = training(&path);
    let _ = std::fs::remove_file(&path);
    trained?;
    let wrong = x.matmul(&Tensor::ones([2, 2], DType::F32)?);
    println!("{}", wrong.unwrap_err());
    Ok(())
}
