//! Tests of invalid input: typed errors at the line that records, and tensors that stay usable.

use girih::{
    Context, DType, Error, Executor, ExecutorConfig, Index, Operand, Result, Tensor, TensorSpec,
    TracedProgram, TransformError, async_eval, compile_graph, concat, eval, grad, split, stack,
    value_and_grad, where_,
};
use girih_ir::Error as Record;
use girih_runtime::Error as Runtime;

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32).unwrap()
}

/// The recording error, which must contain all of these texts.
#[track_caller]
fn recorded<T: std::fmt::Debug>(result: Result<T>, says: &[&str]) -> Record {
    let error = result.unwrap_err();
    let text = error.to_string();
    for part in says {
        assert!(text.contains(part), "'{text}' does not say '{part}'");
    }
    match error {
        Error::Record(error) => *error,
        error => panic!("expected an error of recording, got {error:?}"),
    }
}

#[test]
fn shapes_that_do_not_fit_are_named_where_the_op_is_recorded() {
    let (a, b) = (zeros(&[2, 3]), zeros(&[4, 5]));
    let both = ["[2, 3]", "[4, 5]"];
    let mismatch = |error| assert!(matches!(error, Record::ShapeMismatch { .. }), "{error:?}");
    mismatch(recorded(a.add(&b), &both));
    mismatch(recorded(a.matmul(&b), &["matmul", "[2, 3]", "[4, 5]", "3 and 4"]));
    mismatch(recorded(a.matmul(&zeros(&[])), &["matmul", "scalar"]));
    mismatch(recorded(a.reshape([7]), &["reshape", "[2, 3]", "[7]"]));
    mismatch(recorded(a.broadcast_to([2, 4]), &["broadcast_to", "[2, 3]", "[2, 4]"]));
    mismatch(recorded(stack(&[&a, &b], 0), &both));
    mismatch(recorded(concat(&[&a, &b], 0), &["concat"]));
    let truth = a.gt(0.0).unwrap();
    mismatch(recorded(where_(&truth, &a, &b), &both));
    let labels = Tensor::zeros([3], DType::I64).unwrap();
    recorded(a.cross_entropy(&labels), &["cross_entropy", "[2, 3]", "[3]"]);
    let invalid = |error| assert!(matches!(error, Record::InvalidShape { .. }), "{error:?}");
    invalid(recorded(a.reshape([-1, -1]), &["-1"]));
    invalid(recorded(zeros(&[0, 3]).reshape([-1, 0]), &["0 elements"]));
    invalid(recorded(a.squeeze(0), &["squeeze", "axis 0", "size 2"]));
    invalid(recorded(a.permute([0]), &["permute", "[0]"]));
    invalid(recorded(split(&a, &[1, 1], 1), &["split", "[1, 1]", "has 3"]));
    invalid(recorded(zeros(&[0]).max_all(), &["max"]));
    let error = recorded(a.index(&[Index::At(0), Index::At(0), Index::At(0)]), &["3", "2"]);
    assert!(matches!(error, Record::TooManyIndices { given: 3, rank: 2, .. }), "{error:?}");
}

#[test]
fn axes_and_indices_out_of_range_are_named() {
    let a = zeros(&[2, 3]);
    for error in [
        recorded(a.sum(2), &["axis 2", "rank 2", "-2..=1"]),
        recorded(a.softmax(-3), &["softmax", "axis -3"]),
        recorded(a.swapaxes(0, 5), &["axis 5"]),
        recorded(a.unsqueeze(4), &["axis 4"]),
        recorded(zeros(&[]).sum(0), &["scalar"]),
        recorded(Tensor::iota([2], 1, DType::I64), &["axis 1"]),
        recorded(a.take(&Tensor::zeros([1], DType::I64).unwrap(), 2), &["take", "axis 2"]),
    ] {
        assert!(matches!(error, Record::AxisOutOfRange { .. }), "{error:?}");
    }
    let error = recorded(a.sum([0, -2]), &["more than once"]);
    assert!(matches!(error, Record::DuplicateAxis { .. }));
    recorded(a.permute([0, 0]), &["permute", "axis 0"]);
    for index in [3, -4, i64::MIN, i64::MAX] {
        let entries = [Index::At(0), Index::At(index)];
        let error = recorded(a.index(&entries), &[&index.to_string(), "size 3"]);
        assert!(matches!(error, Record::IndexOutOfBounds { axis: 1, .. }), "{error:?}");
    }
    let short = || Index::Mask(Tensor::zeros([1], DType::Bool).unwrap());
    for (entries, says) in [
        (vec![Index::Ellipsis, Index::Ellipsis], "ellipsis"),
        (vec![Index::ALL, short()], "axis 1 of size 3"),
        (vec![Index::Take(iota(2)), Index::Take(iota(3))], "broadcast"),
    ] {
        let error = recorded(a.index(&entries), &["index", says]);
        assert!(matches!(error, Record::InvalidIndex { .. }), "{error:?}");
    }
    let empty = zeros(&[2, 0]);
    let error = recorded(empty.index(&[Index::ALL, Index::Take(iota(2))]), &["axis 1", "size 0"]);
    assert!(matches!(error, Record::EmptyAxis { axis: 1, count: 2, .. }), "{error:?}");
    let error = recorded(a.narrow(1, 2, 2), &["slice", "size 3"]);
    assert!(matches!(error, Record::IndexOutOfBounds { .. }));
    recorded(a.narrow(0, usize::MAX, 0), &["slice"]);
    recorded(a.narrow(0, 1, usize::MAX), &["slice"]);
}

fn iota(n: usize) -> Tensor {
    Tensor::iota([n], 0, DType::I64).unwrap()
}

#[test]
fn dtypes_that_do_not_fit_are_named() {
    let (float, int) = (zeros(&[2]), Tensor::zeros([2], DType::I8).unwrap());
    for error in [
        recorded(float.bitwise_and(&float), &["float32"]),
        recorded(float.take(&float, 0), &["take", "float32", "integer"]),
        recorded(float.one_hot(3, DType::F32), &["one_hot", "integer"]),
        recorded(where_(&int, &float, &float), &["where", "int8"]),
        recorded(Tensor::rand([2], DType::U8), &["rand", "uint8"]),
    ] {
        assert!(matches!(error, Record::DTypeUnsupported { .. }), "{error:?}");
    }
    for value in [128, -129, i64::MAX] {
        let error = recorded(int.add(value), &[&value.to_string(), "int8"]);
        assert!(matches!(error, Record::ScalarOutOfRange { .. }));
    }
    recorded(Tensor::full(-1, [2], DType::U8), &["-1", "uint8"]);
    recorded(int.pad(&[(1, 1)], 1000), &["1000"]);
    let error = recorded(DType::parse("quad").map_err(Error::from), &["quad", "float32"]);
    assert!(matches!(error, Record::UnknownDType { .. }));
}

#[test]
fn sizes_beyond_the_address_space_are_errors() {
    let (tall, wide) = (zeros(&[1 << 40, 1]), zeros(&[1, 1 << 40]));
    let bytes = Tensor::zeros([1 << 62], DType::U8).unwrap();
    for error in [
        recorded(tall.add(&wide), &["add", "1099511627776"]),
        recorded(tall.matmul(&wide), &["matmul"]),
        recorded(where_(&tall.gt(0.0).unwrap(), &wide, 0.0), &["where"]),
        recorded(bytes.astype(DType::F64), &["cast", "4611686018427387904"]),
        recorded(bytes.sum_all().and_then(|_| bytes.exp()), &["cast"]),
        recorded(concat(&[&bytes, &bytes], 0), &["concat"]),
        recorded(bytes.pad(&[(usize::MAX, 1)], 0), &["pad"]),
        recorded(zeros(&[1]).broadcast_to([1 << 33, 1 << 33]), &["broadcast_to"]),
        recorded(Tensor::ones([usize::MAX], DType::U8), &["ones"]),
        recorded(Tensor::rand([1 << 61], DType::F64), &["rand"]),
        recorded(Tensor::arange(0.0..1e30, DType::F32), &["arange"]),
        recorded(Tensor::eye(1 << 40, DType::F32), &["iota"]),
        recorded(Tensor::linspace(0.0, 1.0, usize::MAX, DType::F32), &["iota"]),
        recorded(Tensor::from_slice::<f32>(&[], [1 << 40, 1 << 40]), &["from_slice"]),
        recorded(Tensor::from_slice::<f32>(&[], [0, 1 << 40, 1 << 40]), &["from_slice"]),
    ] {
        assert!(
            matches!(
                error,
                Record::SizeOverflow { .. }
                    | Record::CountOverflow { .. }
                    | Record::InvalidShape { .. }
            ),
            "{error:?}"
        );
    }
    let error = recorded(zeros(&[1]).reshape([1, -2]), &["-2"]);
    assert!(matches!(error, Record::NegativeSize { size: -2, index: 1, .. }));
    let error = recorded(zeros(&[1]).reshape([1; 33]), &["33"]);
    assert!(matches!(error, Record::RankTooLarge { rank: 33, .. }));
}

#[test]
fn invalid_arguments_are_named() {
    let a = zeros(&[4]);
    let invalid = |error: Error, says: &str| {
        assert!(matches!(error, Error::InvalidArgument(_)), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    };
    invalid(Tensor::arange_step(0.0, 1.0, 0.0, DType::F32).unwrap_err(), "step");
    invalid(Tensor::arange(0.0..f64::NAN, DType::F32).unwrap_err(), "finite");
    invalid(concat::<Tensor>(&[], 0).unwrap_err(), "at least one");
    invalid(stack::<Tensor>(&[], 0).unwrap_err(), "at least one");
    invalid(a.flatten(0, 0).and_then(|_| zeros(&[1, 2]).flatten(1, 0)).unwrap_err(), "flatten");
    recorded(a.pad(&[(1, 1)], Operand::Tensor(&a)), &["pad", "[4]", "one number"]);
    invalid(Tensor::full(Operand::Tensor(&a), [1], DType::F32).unwrap_err(), "scalar");
    let slice = Index::Slice { start: None, stop: None, step: 0 };
    invalid(a.index(&[slice]).unwrap_err(), "step");
    let error = Tensor::from_slice(&[1.0f32], [2]).unwrap_err();
    assert!(matches!(error, Error::DataLength { expected: 2, found: 1, .. }), "{error:?}");
    let error = a.to_vec::<i64>().unwrap_err();
    assert!(matches!(error, Error::ElementType { expected: DType::I64, found: DType::F32 }));
    for error in [a.item::<f32>().unwrap_err(), a.truth().unwrap_err()] {
        assert!(matches!(error, Error::NotScalar { .. }), "{error:?}");
        assert!(error.to_string().contains("[4]"), "{error}");
    }
}

#[test]
fn gradients_without_a_definition_are_errors() {
    let a = zeros(&[4]);
    let a = std::slice::from_ref(&a);
    let transform = |error: Error| match error {
        Error::Transform(error) => *error,
        error => panic!("{error:?}"),
    };
    let error = transform(grad(|x| x[0].exp())(a).unwrap_err());
    assert!(matches!(error, TransformError::OutputNotScalar { .. }), "{error}");
    assert!(error.to_string().contains("[4]"), "{error}");
    let error = transform(grad(|x| x[0].argmax(..))(a).unwrap_err());
    assert!(matches!(error, TransformError::OutputNotFloat { .. }), "{error}");
    let int = Tensor::zeros([4], DType::I32).unwrap();
    let error = transform(grad(|x| x[0].mean_all())(&[int]).unwrap_err());
    assert!(matches!(error, TransformError::WrtNotFloat { .. }), "{error}");
}

#[test]
fn reading_a_traced_value_is_an_error_that_names_the_line() {
    let line = std::cell::Cell::new(0);
    let f = |x: &[Tensor]| {
        line.set(line!() + 1);
        let total = x[0].mul(2.0)?.sum_all()?;
        match total.item::<f32>()? > 0.0 {
            true => Ok(vec![total]),
            false => Ok(vec![total.neg()?]),
        }
    };
    let spec = TensorSpec::new([3], DType::F32);
    let error = TracedProgram::trace(&[spec], &[], &[], &[], f).map(drop).unwrap_err();
    let Error::TracedValue { shape, at, .. } = &error else { panic!("{error:?}") };
    assert_eq!(shape, "[3]");
    let expected = format!("errors.rs:{}", line.get());
    let at = at.map(|line| line.to_string()).unwrap_or_default();
    assert!(at.ends_with(&expected), "{at} is not {expected}");
    assert!(error.to_string().contains("where"), "{error}");
    // Tracing still works afterwards.
    assert!(grad(|x| x[0].sum_all())(&[zeros(&[3])]).is_ok());
}

/// A take of rows 0 and 7 of two rows, the second of which is out of range; with the line that
/// records it.
fn out_of_range() -> (Tensor, Tensor, u32) {
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
    let indices = Tensor::from_slice(&[0i64, 7], [2]).unwrap();
    let (taken, line) = (x.take(&indices, 0).unwrap(), line!());
    (x, taken, line)
}

#[track_caller]
fn assert_index_error(error: &Error, line: u32) {
    let Error::Evaluation { source, at } = error else { panic!("{error:?}") };
    assert!(
        matches!(**source, Runtime::IndexOutOfBounds { index, size: 2, .. } if i128::from(index) == 7),
        "{error:?}"
    );
    assert_eq!(at.len(), 1, "{at:?}");
    assert!(at[0].ends_with(&format!("errors.rs:{line}")), "{at:?} is not line {line}");
    assert!(error.to_string().contains(&at[0]), "{error}");
}

#[test]
fn an_index_out_of_range_names_the_line_and_leaves_everything_usable() -> Result<()> {
    let (x, taken, line) = out_of_range();
    let (bad, good) = (taken.exp()?, x.exp()?);
    for _ in 0..2 {
        assert_index_error(&eval([&bad, &good]).unwrap_err(), line);
        assert!(bad.is_lazy() && good.is_lazy());
    }
    assert_eq!(good.to_vec::<f32>()?.len(), 2);
    assert!(taken.is_lazy());
    // The tensor is still an operand if its elements are not needed.
    assert_eq!(taken.shape(), bad.shape());
    assert_index_error(&bad.add(&good)?.to_vec::<f32>().unwrap_err(), line);
    Ok(())
}

#[test]
fn a_traced_function_keeps_the_lines_that_recorded_it() {
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
    let indices = Tensor::from_slice(&[0i64, 7], [2]).unwrap();
    let line = std::cell::Cell::new(0);
    let f = value_and_grad(|p| {
        line.set(line!() + 1);
        let taken = p[0].take(&indices, 0)?;
        taken.mul(&taken)?.sum_all()
    });
    let (value, gradients) = f(&[x]).unwrap();
    assert_index_error(&value.eval().unwrap_err(), line.get());
    let error = gradients[0].eval().unwrap_err();
    let Error::Evaluation { at, .. } = &error else { panic!("{error:?}") };
    assert!(at.iter().all(|l| l.contains("errors.rs")), "{at:?}");
}

#[test]
fn an_asynchronous_failure_is_raised_by_the_next_read() -> Result<()> {
    let (x, taken, line) = out_of_range();
    let (bad, good) = (taken.add(1.0)?, x.add(1.0)?);
    async_eval([&bad, &good])?;
    let after = bad.mul(2.0)?;
    async_eval([&after])?;
    // `good` shared a run with `bad`, and is computed alone when it is read.
    assert_eq!(good.to_vec::<f32>()?, [2.0, 3.0]);
    assert_index_error(&after.to_vec::<f32>().unwrap_err(), line);
    assert_index_error(&bad.to_vec::<f32>().unwrap_err(), line);
    assert_index_error(&bad.sub(1.0)?.to_vec::<f32>().unwrap_err(), line);
    Ok(())
}

#[test]
fn running_out_of_memory_is_an_error_and_the_tensor_stays_usable() -> Result<()> {
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let huge = x.unsqueeze(1)?.broadcast_to([2, 1 << 44])?;
    let line = line!() + 1;
    let sum = huge.add(1.0)?;
    let error = sum.eval().unwrap_err();
    let Error::Evaluation { source, at } = &error else { panic!("{error:?}") };
    let Runtime::OutOfMemory { requested, .. } = **source else { panic!("{error:?}") };
    assert_eq!(requested, 8 << 44);
    assert!(at.iter().any(|l| l.ends_with(&format!("errors.rs:{line}"))), "{at:?} {line}");
    assert!(sum.is_lazy());
    assert_eq!(sum.narrow(1, 5, 2)?.to_vec::<f32>()?, [2.0, 2.0, 3.0, 3.0]);
    assert!(matches!(Tensor::zeros([1 << 50], DType::U8)?.eval(), Err(Error::Evaluation { .. })));
    Ok(())
}

#[test]
fn a_program_that_does_not_fit_in_memory_is_refused_when_it_is_compiled() -> Result<()> {
    let own = Executor::new(ExecutorConfig::default())?;
    Context::current().set_executor(&own);
    let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    let sum = x.unsqueeze(1)?.broadcast_to([2, 1 << 44])?.add(1.0)?;
    let error = compile_graph([&sum]).unwrap_err();
    let Error::Evaluation { source, at } = &error else { panic!("{error:?}") };
    let Runtime::OutOfMemory { requested, capacity, .. } = **source else { panic!("{error:?}") };
    assert_eq!(requested, 8 << 44);
    assert!(capacity > 0 && capacity < requested);
    let text = error.to_string();
    for part in [requested.to_string(), capacity.to_string(), "cpu".into(), "add".into()] {
        assert!(text.contains(&part), "'{text}' does not say '{part}'");
    }
    assert!(at.iter().any(|line| line.contains("errors.rs")), "{at:?}");
    let stats = own.cache_stats();
    assert_eq!((stats.runs, stats.launches), (0, 0), "nothing ran");
    assert!(sum.is_lazy());
    // A part of the tensor that fits in memory can be compiled.
    assert!(compile_graph([&sum.narrow(1, 0, 2)?])?.num_kernels >= 1);
    Ok(())
}
