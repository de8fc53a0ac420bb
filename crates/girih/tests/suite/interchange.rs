//! Tests of exchanging models with Python as files of their state.
//! `tests/python/test_rust_models.py` wrote `tests/data/python.safetensors`, and this test writes
//! `rust.safetensors` if `GIRIH_UPDATE` is set. Each file contains a model's state, an input, and
//! the model's output for it. Both tests read both files.

use girih::nn::{
    BatchNorm, Conv1d, Conv2d, ConvTranspose2d, Embedding, Flatten, Gelu, GroupNorm, Layer,
    LayerNorm, Linear, MaxPool, Module, MultiheadAttention, Prelu, Relu, RmsNorm, Sequential,
    Visitor,
};
use girih::{AttentionOptions, ConvOptions, DType, Padding, Result, Tensor, io, random};
use std::path::PathBuf;

/// Every kind of layer with parameters, with the names of Python's model.
struct Model {
    image: Sequential,
    words: Sequential,
    attention: MultiheadAttention,
    head: Linear,
}

impl Model {
    fn new() -> Result<Model> {
        let padded = ConvOptions { padding: Padding::from(1), ..ConvOptions::default() };
        let up = ConvOptions { stride: vec![2], ..ConvOptions::default() };
        let image = Sequential::new()
            .then(Conv2d::with(2, 4, [3, 3], padded)?)
            .then(BatchNorm::new(4)?)
            .then(Prelu::new(4)?)
            .then(MaxPool::new(&[2, 2]))
            .then(ConvTranspose2d::with(4, 2, [2, 2], up)?.without_bias())
            .then(GroupNorm::new(2, 2)?)
            .then(Flatten::default())
            .then(Linear::new(2 * 4 * 4, 8)?)
            .then(LayerNorm::new(&[8])?);
        let words = Sequential::new()
            .then(Embedding::new(5, 8)?)
            .then(RmsNorm::new(&[8])?)
            .then(Linear::without_bias(8, 8)?)
            .then(Gelu::default())
            .then(Conv1d::new(3, 3, [1])?)
            .then(Relu);
        let attention = MultiheadAttention::grouped(8, 4, 2)?;
        Ok(Model { image, words, attention, head: Linear::new(8, 3)? })
    }

    fn value(&self, image: &Tensor, words: &Tensor) -> Result<Tensor> {
        let image = self.image.forward(image)?.unsqueeze(1)?;
        let words = self.words.forward(words)?;
        let seen = self.attention.attend(&image, &words, &words, &AttentionOptions::default())?;
        self.head.forward(&seen.squeeze(1)?)
    }
}

impl Module for Model {
    fn visit<'a>(&'a self, visitor: &mut Visitor<'a>) {
        visitor.module("image", &self.image);
        visitor.module("words", &self.words);
        visitor.module("attention", &self.attention);
        visitor.module("head", &self.head);
    }
}

impl Layer for Model {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        self.image.forward(image)
    }
}

fn data(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "tests", "data", name].iter().collect()
}

/// The model of a file, its inputs, and its output.
fn read(name: &str) -> Result<(Model, [Tensor; 3])> {
    let mut tensors = io::load(data(name))?;
    let mut take = |name: &str| {
        let at = tensors.iter().position(|(other, _)| other == name).expect(name);
        tensors.swap_remove(at).1
    };
    let around = ["input.image", "input.words", "output"].map(&mut take);
    let state: Vec<(String, Tensor)> = tensors
        .into_iter()
        .map(|(name, tensor)| (name.strip_prefix("model.").expect("a state").to_string(), tensor))
        .collect();
    let model = Model::new()?;
    model.load_state_dict(&state)?;
    model.eval();
    Ok((model, around))
}

#[track_caller]
fn agrees(name: &str) -> Result<()> {
    let (model, [image, words, output]) = read(name)?;
    let (found, expected) =
        (model.value(&image, &words)?.to_vec::<f32>()?, output.to_vec::<f32>()?);
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{found:?} is not {expected:?}");
    }
    Ok(())
}

#[test]
fn a_model_that_python_saved_gives_the_same_here() -> Result<()> {
    agrees("python.safetensors")
}

#[test]
fn a_model_saved_here_gives_the_same_when_it_is_loaded() -> Result<()> {
    if std::env::var_os("GIRIH_UPDATE").is_some() {
        random::manual_seed(7);
        let model = Model::new()?;
        let image = Tensor::randn([3, 2, 4, 4], DType::F32)?;
        let words = Tensor::randint(0, 5, [3, 3], DType::I64)?;
        // Update the running statistics, so that they differ from their initial values.
        model.value(&image, &words)?;
        model.eval();
        let output = model.value(&image, &words)?;
        let mut tensors: Vec<(String, Tensor)> = model
            .state_dict()
            .into_iter()
            .map(|(name, tensor)| (format!("model.{name}"), tensor))
            .collect();
        let around = [("input.image", image), ("input.words", words), ("output", output)];
        tensors.extend(around.map(|(name, tensor)| (name.to_string(), tensor)));
        io::save(data("rust.safetensors"), &tensors)?;
    }
    agrees("rust.safetensors")
}

#[test]
fn mismatched_state_dicts_are_refused_and_change_nothing() -> Result<()> {
    let model = Linear::new(2, 3)?;
    let before = model.parameters();
    let (weight, bias) = (Tensor::ones([3, 2], DType::F32)?, Tensor::ones([3], DType::F32)?);
    let named = |pairs: &[(&str, &Tensor)]| -> Vec<(String, Tensor)> {
        pairs.iter().map(|(name, tensor)| (name.to_string(), (*tensor).clone())).collect()
    };
    for (state, part) in [
        (named(&[("weight", &weight)]), "missing [\"bias\"], unexpected []"),
        (named(&[("weight", &weight), ("bias", &bias), ("b", &bias)]), "unexpected [\"b\"]"),
        (
            named(&[("bias", &bias), ("weight", &bias)]),
            "weight: cannot replace a tensor of shape [3, 2] by one of shape [3]",
        ),
    ] {
        let error = model.load_state_dict(&state).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(model.parameters().iter().zip(&before).all(|(a, b)| a.is_same(b)));
    }
    model.load_state_dict(&named(&[("bias", &bias), ("weight", &weight)]))?;
    assert!(model.parameters()[0].is_same(&weight));
    Ok(())
}
