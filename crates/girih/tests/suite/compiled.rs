//! Tests of compiled functions: one program for many sizes, correct at each.

use girih::{
    AttentionOptions, CallPath, Compiled, ConvOptions, DType, DynamicDim, Error, Executor,
    ExecutorConfig, PoolOptions, Program, Result, Tensor, TracedProgram, compile, concat, keepdims,
    value_and_grad,
};

/// Pseudorandom numbers.
fn data(shape: &[usize], seed: u64) -> Tensor {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040);
            ((state >> 40) as f32) / (1 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_slice(&values, shape).unwrap()
}

fn labels(count: usize, classes: i64) -> Tensor {
    let values: Vec<i64> = (0..count as i64).map(|i| (i * 7 + 3) % classes).collect();
    Tensor::from_slice(&values, [count]).unwrap()
}

/// Runs `f` with its own executor, so that its counters only count this test.
fn alone<T>(f: impl FnOnce(&Executor) -> T) -> T {
    let executor = Executor::new(ExecutorConfig::default()).unwrap();
    let context = girih::Context::current();
    let before = context.swap(context.frame().with_executor(executor.clone()));
    let out = f(&executor);
    context.swap(before);
    out
}

type Function = fn(&[Tensor]) -> Result<Vec<Tensor>>;

/// Compiles once, runs at each of the sizes, and compares bit for bit with the uncompiled function.
fn one_program(
    f: Function,
    batches: &[usize],
    dims: &[&[(i64, &str)]],
    of: fn(usize) -> Vec<Tensor>,
) {
    alone(|executor| {
        let dims = dims.iter().map(|d| d.iter().map(|(a, n)| DynamicDim::new(*a, n)).collect());
        let compiled = dynamic(f, dims.collect());
        for &batch in batches {
            let arguments = of(batch);
            let refs: Vec<&Tensor> = arguments.iter().collect();
            girih::eval(refs.iter().copied()).unwrap();
            let found = compiled.call(&refs).unwrap();
            let stats = executor.cache_stats();
            assert_eq!((stats.compiles, compiled.num_programs()), (1, 1), "at {batch}");
            let expected = {
                // Use another executor, since compilations of this one are counted.
                let context = girih::Context::current();
                let other = Executor::new(ExecutorConfig::default()).unwrap();
                let before = context.swap(context.frame().with_executor(other));
                let expected = f(&arguments).unwrap();
                girih::eval(expected.iter()).unwrap();
                context.swap(before);
                expected
            };
            assert_eq!(found.len(), expected.len());
            for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
                assert_eq!(a.spec(), b.spec(), "output {i} at {batch}");
                assert_eq!(a.to_bytes().unwrap(), b.to_bytes().unwrap(), "output {i} at {batch}");
            }
        }
        let bindings = executor.cache_stats().bindings;
        assert_eq!(bindings, batches.len() as u64);
    });
}

#[test]
fn a_multilayer_perceptron() {
    one_program(
        |x| {
            let hidden = x[0].matmul(&x[1])?.add(&x[2])?.relu()?;
            let out = hidden.matmul(&x[3])?;
            Ok(vec![out.softmax(-1)?, out.mean_all()?, out.mean(keepdims(0))?])
        },
        &[2, 5, 1, 1000],
        &[&[(0, "batch")]],
        |n| vec![data(&[n, 7], 1), data(&[7, 8], 2), data(&[8], 3), data(&[8, 3], 4)],
    );
}

#[test]
fn a_training_step_with_its_gradients() {
    one_program(
        |x| {
            let step = value_and_grad(|w| {
                let y = x[0].matmul(&w[0])?.add(&w[1])?.gelu()?;
                let y = y.layer_norm(1, Some(&w[2]), None, 1e-5)?;
                y.cross_entropy(&x[1])?.mean_all()
            });
            let (loss, gradients) = step(&x[2..])?;
            let updated = x[2..].iter().zip(&gradients).map(|(w, g)| w.sub(&g.mul(0.1)?));
            std::iter::once(Ok(loss)).chain(updated).collect::<Result<Vec<_>>>()
        },
        &[2, 5, 1, 64],
        &[&[(0, "batch")], &[(0, "batch")]],
        |n| vec![data(&[n, 6], 1), labels(n, 4), data(&[6, 4], 2), data(&[4], 3), data(&[4], 4)],
    );
}

#[test]
fn attention_over_two_symbols_and_their_product() {
    one_program(
        |x| {
            let shape = x[0].shape();
            let heads = |t: &Tensor| -> Result<Tensor> {
                let split = [shape.dim(0), shape.dim(1), 2.into(), 4.into()];
                t.reshape(girih::Shape::of_dims(split))?.swapaxes(1, 2)
            };
            let all = x[0].matmul(&x[1])?;
            let part = |i: usize| heads(&all.narrow(-1, 8 * i, 8)?);
            let y =
                part(0)?.attention(&part(1)?, &part(2)?, &AttentionOptions::default().causal())?;
            let y = y.swapaxes(1, 2)?.reshape(shape.clone())?;
            let y = x[0].add(&y)?.layer_norm(1, None, None, 1e-5)?;
            let flat = y.reshape([-1, 8])?;
            Ok(vec![y.var_with([0, 1], 1.0)?, flat.sum(0)?, y])
        },
        &[2, 5, 3],
        &[&[(0, "batch"), (1, "length")]],
        |n| vec![data(&[n, n + 3, 8], 1), data(&[8, 24], 2)],
    );
}

#[test]
fn a_convolutional_network_with_gradients() {
    one_program(
        |x| {
            let step = value_and_grad(|w| {
                let y = x[0].conv(&w[0], Some(&w[1]), &ConvOptions::default())?.relu()?;
                let y = y.max_pool(&PoolOptions::new(vec![2, 2]))?.flatten(1, -1)?;
                y.matmul(&w[2])?.cross_entropy(&x[1])?.mean_all()
            });
            let (loss, gradients) = step(&x[2..])?;
            Ok(std::iter::once(loss).chain(gradients).collect())
        },
        &[2, 5, 1],
        &[&[(0, "batch")], &[(0, "batch")]],
        |n| {
            let (w, b) = (data(&[4, 3, 3, 3], 2), data(&[4], 3));
            vec![data(&[n, 3, 8, 8], 1), labels(n, 5), w, b, data(&[4 * 9, 5], 4)]
        },
    );
}

#[test]
fn slices_joins_and_lookups() {
    one_program(
        |x| {
            let all = [girih::Index::Ellipsis];
            let cut = |start, stop| girih::Index::Slice { start, stop, step: 1 };
            let shifted = x[0].index(&[cut(Some(1), None)])?;
            let before = x[0].index(&[cut(None, Some(-1))])?;
            let column = x[0].index(&[cut(None, None), girih::Index::At(1)])?;
            let joined = concat(&[&x[0], &x[0].neg()?], 0)?;
            let wide = concat(&[&x[0], &column.unsqueeze(1)?], 1)?;
            let found = x[2].take(&x[1], 0)?;
            Ok(vec![
                shifted.sub(&before)?.index(&all)?,
                column,
                joined.sum(1)?,
                wide.max(0)?,
                found.mean(0)?,
                Tensor::ones(x[0].shape(), DType::F32)?.cumsum(0)?,
                x[0].flip(0)?,
                x[0].std_with(0, 1.0)?,
            ])
        },
        &[3, 5, 2, 100],
        &[&[(0, "n")], &[(0, "n")]],
        |n| vec![data(&[n, 4], 1), labels(n, 6), data(&[6, 2], 2)],
    );
}

/// Compiles a function, with the dynamic axes of each argument.
fn dynamic<F>(f: F, dims: Vec<Vec<DynamicDim>>) -> Compiled<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let dims = dims.into_iter().enumerate().flat_map(|(i, d)| d.into_iter().map(move |d| (i, d)));
    dims.fold(compile(f), |compiled, (argument, dim)| compiled.dynamic(argument, dim))
}

fn batch() -> Vec<Vec<DynamicDim>> {
    vec![vec![DynamicDim::new(0, "batch")]]
}

#[test]
fn a_branch_on_a_size_is_traced_again_for_other_sizes() {
    let compiled = dynamic(
        |x| {
            let size = x[0].shape()[0];
            Ok(vec![if size > 3 { x[0].mul(2.0)? } else { x[0].neg()? }])
        },
        batch(),
    );
    for (size, programs) in [(2, 1), (5, 2), (2, 2), (5, 2), (4, 3)] {
        let x = Tensor::ones([size], DType::F32).unwrap();
        let y = compiled.call(&[&x]).unwrap()[0].to_vec::<f32>().unwrap();
        assert_eq!(y, vec![if size > 3 { 2.0 } else { -1.0 }; size]);
        assert_eq!(compiled.num_programs(), programs);
    }
    // A comparison of the size holds for all sizes on its side, so there are two programs.
    let compiled = dynamic(
        |x| {
            let large = x[0].shape().dim(0).at_least(4);
            Ok(vec![if large { x[0].mul(2.0)? } else { x[0].neg()? }])
        },
        batch(),
    );
    for (size, programs) in [(2, 1), (5, 2), (3, 2), (50, 2), (4, 2), (1, 2)] {
        let x = Tensor::ones([size], DType::F32).unwrap();
        let y = compiled.call(&[&x]).unwrap()[0].to_vec::<f32>().unwrap();
        assert_eq!(y, vec![if size >= 4 { 2.0 } else { -1.0 }; size]);
        assert_eq!(compiled.num_programs(), programs);
    }
}

#[test]
fn a_program_lists_its_guards_and_the_reason_of_a_refusal() {
    let spec = |sizes: &[usize]| girih::TensorSpec::new(sizes, DType::F32);
    let dims = [vec![DynamicDim::new(0, "batch")], vec![DynamicDim::new(0, "batch")]];
    let trace = |x: &[Tensor]| {
        assert!(!x[0].shape().dim(0).equals(7));
        Ok::<_, Error>(vec![x[0].add(&x[1])?])
    };
    let specs = [spec(&[2, 3]), spec(&[2, 1])];
    let (program, _) = TracedProgram::trace(&specs, &dims, &[], &[], trace).unwrap();
    assert_eq!(program.guards(), ["batch != 7"]);
    assert!(program.graph().to_string().contains("-> [batch, 3]"), "{}", program.graph());
    let read = girih::ir::Graph::parse(&program.graph().to_string()).unwrap();
    assert_eq!(&read, program.graph());
    let saved = Program::of_graph(read).to_bytes().unwrap();
    assert_eq!(Program::from_bytes(&saved).unwrap().to_bytes().unwrap(), saved);
    assert_eq!(program.refuses(&[spec(&[5, 3]), spec(&[5, 1])]), None);
    for (sizes, reason) in [
        ([[7, 3], [7, 1]], "batch != 7 does not hold for batch = 7"),
        ([[2, 3], [5, 1]], "argument 1 was f32[batch, 1] and is f32[5, 1]"),
        ([[2, 4], [2, 1]], "argument 0 was f32[batch, 3] and is f32[2, 4]"),
        ([[0, 3], [0, 1]], "argument 0"),
    ] {
        let found = program.refuses(&sizes.map(|s| spec(&s))).unwrap();
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn sizes_that_contradict_are_errors() {
    let f = |x: &[Tensor]| Ok(vec![x[0].sum_all()?]);
    let of = |sizes: &[usize]| Tensor::zeros(sizes, DType::F32).unwrap();
    let dims = |axis, name: &str, range| vec![DynamicDim { range, ..DynamicDim::new(axis, name) }];
    let error = |dims: Vec<Vec<DynamicDim>>, arguments: &[Tensor]| {
        let refs: Vec<&Tensor> = arguments.iter().collect();
        dynamic(f, dims).call(&refs).unwrap_err().to_string()
    };
    let both = vec![dims(0, "batch", None), dims(-1, "batch", None)];
    let found = error(both, &[of(&[2]), of(&[3, 5])]);
    assert!(found.contains("axis 1 ('batch') has size 5") && found.contains("has 2"), "{found}");
    let found = error(vec![dims(0, "b", Some((4, Some(8))))], &[of(&[9])]);
    assert!(found.contains("size 9; expected 4 to 8"), "{found}");
    let found = error(vec![dims(1, "b", None)], &[of(&[9])]);
    assert!(found.contains("axis 1 is out of range"), "{found}");
    let found = error(vec![dims(0, "1st", None)], &[of(&[9])]);
    assert!(found.contains("'1st' is no name"), "{found}");
    // Without a range an axis may be empty, which needs a program of its own.
    let compiled = dynamic(f, batch());
    for size in [3, 0, 4, 0] {
        let y = compiled.call(&[&Tensor::ones([size], DType::F32).unwrap()]).unwrap();
        assert_eq!(y[0].item::<f32>().unwrap(), size as f32);
    }
    assert_eq!(compiled.num_programs(), 2);
}

#[test]
fn a_size_that_overflows_is_an_error() {
    let f = |x: &[Tensor]| {
        let n = x[0].shape().dim(0);
        let grown = girih::Shape::of_dims([n * (1usize << 40) * n]);
        Ok(vec![Tensor::zeros(grown, DType::F32)?.sum_all()?])
    };
    let compiled = dynamic(f, batch());
    let x = Tensor::ones([1 << 12], DType::F32).unwrap();
    assert!(compiled.call(&[&x]).is_err());
    let y = dynamic(|x| Ok(vec![x[0].sum_all()?]), batch()).call(&[&x]).unwrap();
    assert_eq!(y[0].item::<f32>().unwrap(), 4096.0);
}

#[test]
fn compiled_functions_have_gradients_and_draw_new_random_numbers() {
    let compiled = dynamic(|x| Ok(vec![x[0].mul(&x[0])?.mean_all()?]), batch());
    for size in [2, 5] {
        let x = data(&[size], 3);
        let gradient =
            girih::grad(|x| Ok(compiled.call(&[&x[0]])?.remove(0)))(std::slice::from_ref(&x));
        let expected = girih::grad(|x| x[0].mul(&x[0])?.mean_all())(&[x]);
        let bytes = |g: Result<Vec<Tensor>>| g.unwrap()[0].to_bytes().unwrap();
        assert_eq!(bytes(gradient), bytes(expected));
    }
    assert_eq!(compiled.num_programs(), 1);
    let noisy = dynamic(|x| Ok(vec![x[0].add(&Tensor::rand(x[0].shape(), DType::F32)?)?]), batch());
    let draws: Vec<Vec<f32>> = [3, 3, 4]
        .map(|size| {
            let x = Tensor::zeros([size], DType::F32).unwrap();
            noisy.call(&[&x]).unwrap()[0].to_vec().unwrap()
        })
        .into();
    assert_ne!(draws[0], draws[1]);
    assert_eq!((draws[2].len(), noisy.num_programs()), (4, 1));
}

#[test]
fn clearing_the_cache_compiles_again_without_tracing() {
    alone(|executor| {
        let compiled = dynamic(|x| Ok(vec![x[0].exp()?.sum_all()?]), batch());
        let run = |size: usize| {
            compiled.call(&[&data(&[size], 1)]).unwrap()[0].item::<f32>().unwrap();
            let stats = executor.cache_stats();
            (stats.compiles, stats.bindings)
        };
        assert_eq!([run(2), run(3), run(2)], [(1, 1), (1, 2), (1, 2)]);
        girih::clear_cache().unwrap();
        assert_eq!(run(2), (2, 3));
        assert_eq!(compiled.num_programs(), 1);
    });
}

#[test]
fn donated_tensors_are_consumed_unless_shared() {
    let double = |x: &[Tensor]| Ok::<_, Error>(vec![x[0].mul(2.0)?]);
    let spec = data(&[5, 3], 1).spec();
    let program =
        TracedProgram::trace(std::slice::from_ref(&spec), &[], &[], &[], double).unwrap().0;
    let bound = girih::BoundProgram::new(std::sync::Arc::new(program), &[spec]).unwrap();
    let x = data(&[5, 3], 1);
    let expected: Vec<f32> = x.to_vec::<f32>().unwrap().iter().map(|v| v * 2.0).collect();
    let (other, given) = (x.clone(), [x.clone()]);
    let found = bound.call_donating(&given, &[0]).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), expected);
    assert!(x.to_vec::<f32>().is_ok(), "another handle was there");
    drop(other);
    let found = bound.call_donating(&given, &[0]).unwrap();
    assert_eq!(found[0].to_vec::<f32>().unwrap(), expected);
    let error = x.to_vec::<f32>().unwrap_err();
    assert!(matches!(&error, Error::Donated { shape } if shape == "[5, 3]"), "{error}");
    assert_eq!(bound.call(&given).unwrap_err(), error);
    assert_eq!(x.add(1.0).unwrap().eval().unwrap_err(), error);
    assert_eq!(found[0].to_vec::<f32>().unwrap(), expected);
}

#[test]
fn gradients_leave_a_compiled_function() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    x.set_requires_grad(true)?;
    let cube = compile(|x: &[Tensor]| Ok(vec![x[0].mul(&x[0])?.mul(&x[0])?.sum_all()?]));
    for _ in 0..2 {
        x.set_grad(None)?;
        cube.call(&[&x])?[0].backward()?;
        assert_eq!(x.grad().expect("a gradient").to_vec::<f32>()?, [3.0, 12.0]);
    }
    assert!(!girih::no_grad(|| cube.call(&[&x]))?[0].requires_grad());
    // A function that takes gradients itself gives numbers.
    let slope = compile(|x: &[Tensor]| {
        let (_, slopes) = value_and_grad(|x| x[0].mul(&x[0])?.sum_all())(x)?;
        Ok(slopes)
    });
    assert!(!slope.call(&[&x])?[0].requires_grad());
    Ok(())
}

#[test]
fn larger_tensors_run_tile_by_tile_without_another_compilation() -> Result<()> {
    let layer = |x: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![x[0].matmul(&x[1])?.relu()?, x[0].sum(0)?])
    };
    let tiled = compile(layer).tile(0, 0, 32);
    let data = |rows: usize| -> Result<[Tensor; 2]> {
        let x = Tensor::arange(0..(rows * 12) as i64, DType::I64)?.remainder(7)?.sub(3)?;
        let w = Tensor::arange(0..60, DType::I64)?.remainder(5)?.sub(2)?;
        let x = x.astype(DType::F32)?.reshape([rows as i64, 12])?;
        Ok([x, w.astype(DType::F32)?.reshape([12, 5])?])
    };
    for rows in [32, 33, 64, 640] {
        let [x, w] = data(rows)?;
        let (found, expected) = (tiled.call(&[&x, &w])?, layer(&[x.clone(), w.clone()])?);
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.to_vec::<f32>()?, expected.to_vec::<f32>()?, "{rows} rows");
        }
        let expected = match rows {
            32 => CallPath::Exact,
            _ => CallPath::Tiled(rows.div_ceil(32)),
        };
        assert_eq!(tiled.path(&[&x, &w]), expected);
    }
    assert_eq!(tiled.num_programs(), 1);
    let [x, w] = data(96)?;
    let bad = compile(layer).tile(0, 0, 0);
    let error = bad.call(&[&x, &w]).expect_err("a tile has elements");
    assert!(error.to_string().contains("size 0, expected at least 1"), "{error}");
    Ok(())
}
