//! Programs as those who come from other Rust libraries write them: arrays, indices, reductions,
//! shapes, modules.

#![allow(clippy::reversed_empty_ranges, reason = "negative bounds count from the end")]

use girih::nn::{Layer, Linear, Mode, Module, Relu, Sequential, Variable};
use girih::{
    Backward, ConvOptions, DType, Error, Index, Indexing, Padding, PoolOptions, Result, Shape,
    Side, Tensor, Update, compile, concat, digitize, io, keepdims, meshgrid, searchsorted, stack,
};

#[path = "../../examples/first.rs"]
mod example;

#[test]
fn the_first_program_of_a_newcomer_runs() -> Result<()> {
    example::main()
}

#[test]
fn arrays_have_the_shape_and_dtype_of_their_nesting() -> Result<()> {
    let matrix = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    assert_eq!((matrix.shape().to_vec(), matrix.dtype()), (vec![2, 3], DType::F32));
    assert_eq!(matrix.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for same in [
        Tensor::new(vec![vec![1.0f32, 2.0, 3.0], vec![4.0, 5.0, 6.0]])?,
        Tensor::new(vec![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?,
        Tensor::new(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]][..])?,
        Tensor::new([&[1.0f32, 2.0, 3.0], &[4.0, 5.0, 6.0]])?,
        Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3))?,
    ] {
        assert_eq!(same.spec(), matrix.spec());
        assert_eq!(same.to_bytes()?, matrix.to_bytes()?);
    }
    assert_eq!(
        Tensor::new(true)?.spec().to_string(),
        Tensor::new(true)?.astype(DType::Bool)?.spec().to_string()
    );
    assert_eq!(Tensor::new(7u8)?.item::<u8>()?, 7);
    assert_eq!(Tensor::new([true, false])?.to_vec::<bool>()?, [true, false]);
    // Empty at each depth: the inner sizes of arrays are known, those of vectors are not.
    assert_eq!(Tensor::new([[0.0f32; 3]; 0])?.shape(), [0, 3]);
    assert_eq!(Tensor::new([[0i64; 0]; 2])?.shape(), [2, 0]);
    assert_eq!(Tensor::new(Vec::<f64>::new())?.shape(), [0]);
    assert_eq!(Tensor::new(vec![Vec::<f64>::new(); 2])?.shape(), [2, 0]);
    let nested = [[[1i32], [2]], [[3], [4]]];
    assert_eq!(Tensor::new(nested)?.shape(), [2, 2, 1]);
    Ok(())
}

#[test]
fn arrays_of_no_one_shape_are_refused_with_both() {
    let rows = vec![vec![1.0f32, 2.0], vec![3.0]];
    let error = Tensor::new(&rows).unwrap_err().to_string();
    assert!(error.contains("got [2] and [1] in an array of shape [2, 2]"), "{error}");
    let deep = vec![vec![vec![1.0f32]], vec![vec![1.0], vec![2.0]]];
    let error = Tensor::new(&deep).unwrap_err().to_string();
    assert!(error.contains("got [1, 1] and [2, 1]"), "{error}");
    let error = Tensor::from_vec(vec![1.0f32; 5], [2, 3]).unwrap_err();
    assert!(matches!(error, Error::DataLength { expected: 6, found: 5, .. }), "{error}");
    assert!(Tensor::from_vec(vec![0u8; 4], [usize::MAX, 2]).is_err());
}

#[test]
fn a_long_vector_is_the_memory_of_its_tensor() -> Result<()> {
    let vector: Vec<f32> = (0..1 << 16).map(|i| i as f32).collect();
    let place = vector.as_ptr() as u64;
    let tensor = Tensor::from_vec(vector, (256, 256))?;
    assert_eq!(tensor.address()?.0, place);
    let sum = tensor.sum_all()?.item::<f32>()?;
    let doubled = (tensor * 2.0).to_vec::<f32>()?; // the memory is read, not reused
    assert_eq!((sum, doubled[3]), (2147450880.0, 6.0));
    Ok(())
}

#[test]
fn indices_are_numbers_ranges_and_tensors_alone_or_in_tuples() -> Result<()> {
    let x = Tensor::arange(0..24, DType::I64)?.reshape((2, 3, 4))?;
    let part = |start, stop| Index::Slice { start, stop, step: 1 };
    let n = 3usize;
    for (found, entries) in [
        (x.index(1)?, vec![Index::At(1)]),
        (x.index(-1i64)?, vec![Index::At(-1)]),
        (x.index((.., 1))?, vec![Index::ALL, Index::At(1)]),
        (x.index((0, 1..n))?, vec![Index::At(0), part(Some(1), Some(3))]),
        (x.index((.., .., -2..))?, vec![Index::ALL, Index::ALL, part(Some(-2), None)]),
        (
            x.index((.., ..-1, 1..=2))?,
            vec![Index::ALL, part(None, Some(-1)), part(Some(1), Some(3))],
        ),
        (x.index((.., .., 1..=-1))?, vec![Index::ALL, Index::ALL, part(Some(1), None)]),
        (x.index((.., ..=-2))?, vec![Index::ALL, part(None, Some(-1))]),
        (x.index(..)?, vec![]),
        (x.index((Index::Ellipsis, 0))?, vec![Index::Ellipsis, Index::At(0)]),
        (x.index((Index::NewAxis, ..1))?, vec![Index::NewAxis, part(None, Some(1))]),
        (
            x.index((0, Index::step(2.., -2)))?,
            vec![Index::At(0), Index::Slice { start: Some(2), stop: None, step: -2 }],
        ),
        (x.index(5..2)?, vec![part(Some(5), Some(2))]),
        (x.index((0, 0..100usize))?, vec![Index::At(0), part(Some(0), Some(100))]),
    ] {
        let expected = x.index(entries)?;
        assert_eq!(found.spec(), expected.spec());
        assert_eq!(found.to_bytes()?, expected.to_bytes()?);
    }
    let rows = Tensor::new([1i64, 0])?;
    assert_eq!(x.index((&rows, 0, 0))?.to_vec::<i64>()?, [12, 0]);
    assert_eq!(x.index(&x.gt(21)?)?.to_vec::<i64>()?, [22, 23]);
    assert_eq!(x.index((0, &x.index((0, .., 0))?.ge(4)?, 0))?.to_vec::<i64>()?, [4, 8]);
    for outside in [x.index(2), x.index((.., 3)), x.index(usize::MAX), x.index((0, 0, 0, 0))] {
        assert!(matches!(outside, Err(Error::Record(_))));
    }
    assert!(matches!(x.index(Index::step(.., 0)), Err(Error::InvalidArgument(_))));
    let set = x.index_update((1.., .., 0), Update::Add, 100)?;
    assert_eq!(set.index((.., .., 0))?.to_vec::<i64>()?, [0, 4, 8, 112, 116, 120]);
    Ok(())
}

#[test]
fn reductions_take_an_axis_several_or_all() -> Result<()> {
    let x = Tensor::arange(0..6, DType::F32)?.reshape([2, 3])?;
    let axes = vec![0i64, 1];
    assert_eq!(x.sum(0)?.to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    assert_eq!(x.sum(-1)?.to_vec::<f32>()?, [3.0, 12.0]);
    for all in [x.sum(..)?, x.sum([0, 1])?, x.sum(&axes)?, x.sum(&axes[..])?, x.sum_all()?] {
        assert_eq!((all.rank(), all.item::<f32>()?), (0, 15.0));
    }
    let axis = 1usize;
    assert_eq!(x.mean(keepdims(axis))?.shape(), [2, 1]);
    assert_eq!(x.max(keepdims(..))?.shape(), [1, 1]);
    assert_eq!((x.max_all()?.item::<f32>()?, x.min_all()?.item::<f32>()?), (5.0, 0.0));
    assert_eq!((x.mean_all()?.item::<f32>()?, x.prod_all()?.item::<f32>()?), (2.5, 0.0));
    assert_eq!((x.argmax(..)?.item::<i64>()?, x.argmin(0)?.to_vec::<i64>()?), (5, vec![0, 0, 0]));
    assert_eq!(x.argmax(keepdims(..))?.shape(), [1, 1]);
    assert_eq!(x.argmax(keepdims(-1))?.shape(), [2, 1]);
    assert_eq!(
        (x.var(0)?.to_vec::<f32>()?, x.var_with(0, 1.0)?.to_vec::<f32>()?),
        (vec![2.25; 3], vec![4.5; 3])
    );
    assert_eq!(x.std(keepdims(0))?.to_vec::<f32>()?, [1.5; 3]);
    assert_eq!(x.median(1)?.to_vec::<f32>()?, [1.0, 4.0]);
    assert_eq!(x.flip(..)?.to_vec::<f32>()?, [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]);
    assert_eq!(x.unsqueeze(0)?.squeeze(..)?.shape(), [2, 3]);
    // No axis is another thing than all axes.
    assert!(x.sum(&[] as &[i64])?.shape() == x.shape());
    for wrong in [x.sum(2), x.sum([0, 0]), x.sum(usize::MAX), x.max([0, -3]), x.squeeze(1)] {
        assert!(matches!(wrong, Err(Error::Record(_))));
    }
    let error = x.argmax([0, 1]).unwrap_err().to_string();
    assert!(error.contains("argmax") && error.contains("[0, 1]"), "{error}");
    Ok(())
}

#[test]
fn shapes_and_sizes_are_written_in_many_ways() -> Result<()> {
    for shape in [Tensor::zeros(6, DType::F32)?, Tensor::zeros((6,), DType::F32)?] {
        assert_eq!(shape.shape(), [6]);
    }
    assert_eq!(Tensor::ones((), DType::F32)?.shape(), []);
    let x = Tensor::randn((2, 3, 4), DType::F32)?;
    assert_eq!(x.zeros_like()?.spec(), x.spec());
    assert_eq!(x.ones_like()?.sum_all()?.item::<f32>()?, 24.0);
    let (n, sizes) = (x.numel(), vec![4i64, 6]);
    for y in [
        x.reshape([4, 6])?,
        x.reshape((4, n / 4))?,
        x.reshape([4, -1])?,
        x.reshape((n / 6, -1))?,
        x.reshape(&sizes)?,
        x.reshape(Shape::from([4, 6]))?,
        x.reshape(x.reshape(sizes)?.shape())?,
    ] {
        assert_eq!(y.shape(), [4, 6]);
    }
    assert_eq!(x.reshape(-1)?.shape(), [24]);
    assert_eq!(x.sum_all()?.reshape([1, 1])?.reshape(())?.shape(), []);
    assert_eq!(x.permute([2, 0, 1])?.shape(), [4, 2, 3]);
    let error = x.reshape([5, -1]).unwrap_err().to_string();
    assert!(error.contains("24 elements do not fill [5, -1]"), "{error}");
    assert!(x.reshape([-1, -1]).unwrap_err().to_string().contains("[-1, -1]"));
    assert!(x.reshape([4, -2]).is_err() && x.reshape([0, -1]).is_err() && x.reshape(25).is_err());
    let parts = vec![x.clone(), x.clone()];
    assert_eq!(concat(&parts, 0)?.shape(), concat(&[&x, &x], 0)?.shape());
    assert_eq!(stack(&parts, 1)?.shape(), [2, 2, 3, 4]);
    Ok(())
}

#[test]
fn ranges_and_identities() -> Result<()> {
    let n = 4usize;
    assert_eq!(Tensor::arange(0..n, DType::I32)?.to_vec::<i32>()?, [0, 1, 2, 3]);
    assert_eq!(Tensor::arange(-1.5..1.0, DType::F32)?.to_vec::<f32>()?, [-1.5, -0.5, 0.5]);
    assert!(Tensor::arange(3..0, DType::I64)?.to_vec::<i64>()?.is_empty());
    assert_eq!(Tensor::arange_step(5, 0, -2, DType::I64)?.to_vec::<i64>()?, [5, 3, 1]);
    assert_eq!(Tensor::eye(2, DType::F32)?.to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    assert_eq!(Tensor::eye_of(2, 3, 1, DType::I64)?.to_vec::<i64>()?, [0, 1, 0, 0, 0, 1]);
    assert_eq!(Tensor::eye(0, DType::F32)?.shape(), [0, 0]);
    let x = Tensor::new([3.0f32, 1.0, 2.0])?;
    assert_eq!(x.sort_descending(0)?.to_vec::<f32>()?, [3.0, 2.0, 1.0]);
    assert_eq!(x.argsort_descending(0)?.to_vec::<i64>()?, [0, 2, 1]);
    assert_eq!(x.topk_smallest(2, 0)?.0.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(x.clip(1.5, 2.5)?.to_vec::<f32>()?, [2.5, 1.5, 2.0]);
    let twice = compile(|x| Ok(vec![&x[0] * 2.0])).dynamic(0, (0, "n"));
    assert_eq!(twice.call(&[&x])?[0].to_vec::<f32>()?, [6.0, 2.0, 4.0]);
    Ok(())
}

#[test]
fn options_are_built() -> Result<()> {
    let x = Tensor::randn((2, 3, 8, 9), DType::F32)?;
    let weight = Tensor::randn((4, 3, 3, 3), DType::F32)?;
    let options = ConvOptions::default().stride(2).padding([1, 0]).dilation([1, 2]);
    assert_eq!(x.conv(&weight, None, &options)?.shape(), [2, 4, 4, 3]);
    let same = ConvOptions { padding: Padding::Explicit(vec![(1, 1); 2]), ..Default::default() };
    assert_eq!(ConvOptions::default().padding(1).padding([1, 1]), same);
    assert_eq!(x.max_pool(&PoolOptions::new([2, 2]))?.shape(), [2, 3, 4, 4]);
    let options = PoolOptions::new([3, 3]).stride(2).padding(1);
    assert_eq!(x.avg_pool(&options)?.shape(), [2, 3, 4, 5]);
    // The imperative style, once and twice.
    let w = Tensor::new([1.0f32, 2.0])?;
    w.set_requires_grad(true)?;
    let loss = w.square()?.sum_all()?;
    loss.backward_with(Backward { retain: true, ..Backward::default() })?;
    loss.backward()?;
    assert_eq!(w.grad().expect("it is a leaf").to_vec::<f32>()?, [4.0, 8.0]);
    assert!(loss.backward().is_err(), "the tape was released");
    let (sorted, values) = (Tensor::new([1.0f32, 2.0, 2.0])?, Tensor::new([2.0f32])?);
    assert_eq!(searchsorted(&sorted, &values, Side::Left, None)?.to_vec::<i64>()?, [1]);
    assert_eq!(searchsorted(&sorted, &values, Side::Right, None)?.to_vec::<i64>()?, [3]);
    assert_eq!(digitize(&values, &Tensor::new([1.0f32, 2.0])?, Side::Left)?.to_vec::<i64>()?, [2]);
    assert_eq!(digitize(&values, &Tensor::new([1.0f32, 2.0])?, Side::Right)?.to_vec::<i64>()?, [1]);
    assert_eq!(meshgrid(&[&sorted, &values], Indexing::Ij)?[0].shape(), [3, 1]);
    assert_eq!(meshgrid(&[&sorted, &values], Indexing::Xy)?[0].shape(), [1, 3]);
    Ok(())
}

/// Fields of every kind that a macro has to tell apart.
#[derive(Module)]
struct Kinds {
    single: Linear,
    maybe: Option<Linear>,
    none: Option<Variable>,
    list: Vec<Linear>,
    pair: [Variable; 2],
    boxed: Box<dyn Layer>,
    layers: Vec<Box<dyn Layer>>,
    scale: Variable,
    #[module(buffer)]
    seen: Variable,
    #[module(buffer)]
    counts: Vec<Variable>,
    #[module(parameter)]
    alias: Weight,
    #[module(skip)]
    _left_out: std::collections::HashMap<String, f64>,
    mode: Mode,
    _factor: f64,
    _names: Vec<String>,
    _activation: fn(&Tensor) -> Result<Tensor>,
    r#type: Variable,
}

type Weight = Variable;

#[derive(Module)]
struct Pair<M>(M, Variable);

#[derive(Module)]
struct Nothing;

fn variable() -> Result<Variable> {
    Ok(Variable::new(Tensor::zeros(1, DType::F32)?))
}

#[test]
fn derived_modules_list_their_state_by_field() -> Result<()> {
    let plain = || Linear::without_bias(2, 2);
    let kinds = Kinds {
        single: Linear::new(2, 2)?,
        maybe: Some(plain()?),
        none: None,
        list: vec![plain()?, plain()?],
        pair: [variable()?, variable()?],
        boxed: Box::new(plain()?),
        layers: vec![Box::new(Relu), Box::new(Sequential::new().then(plain()?))],
        scale: variable()?,
        seen: variable()?,
        counts: vec![variable()?],
        alias: variable()?,
        _left_out: Default::default(),
        mode: Mode::default(),
        _factor: 2.0,
        _names: Vec::new(),
        _activation: |x| x.relu(),
        r#type: variable()?,
    };
    let names: Vec<String> = kinds.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "single.weight",
            "single.bias",
            "maybe.weight",
            "list.0.weight",
            "list.1.weight",
            "pair.0",
            "pair.1",
            "boxed.weight",
            "layers.1.0.weight",
            "scale",
            "alias",
            "type",
        ]
    );
    let state: Vec<String> = kinds.state_dict().into_iter().map(|(name, _)| name).collect();
    assert_eq!(state[names.len()..], ["seen", "counts.0"]);
    kinds.eval();
    assert!(!kinds.mode.is_training());
    kinds.train();
    assert!(kinds.mode.is_training());
    let pair = Pair(plain()?, variable()?);
    let names: Vec<String> = pair.named_parameters().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["0.weight", "1"]);
    assert!(Nothing.parameters().is_empty());
    // The parameters that a derived module lists are saved, loaded and trained.
    let path = std::env::temp_dir().join(format!("girih-derived-{}.npz", std::process::id()));
    pair.set_parameters(&[Tensor::ones([2, 2], DType::F32)?, Tensor::ones(1, DType::F32)?])?;
    pair.save(&path)?;
    let other = Pair(plain()?, variable()?);
    other.load(&path)?;
    assert_eq!(other.0.weight().get().to_vec::<f32>()?, [1.0; 4]);
    io::save(&path, &[("x", &other.1.get())])?;
    assert_eq!(io::load(path.to_str().unwrap())?[0].0, "x");
    std::fs::remove_file(&path).unwrap();
    Ok(())
}
