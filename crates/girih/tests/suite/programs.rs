//! Tests of transforms of programs: by themselves, and compared with the same transforms of
//! closures.

use girih::{DType, Dim, Error, Program, Result, Tensor, grad, jvp, vjp, vmap};
use proptest::prelude::*;
use std::rc::Rc;

type Function = Rc<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

fn vector(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

fn ids(program: &Program) -> Vec<girih::ir::NodeId> {
    program.inputs().iter().map(|input| input.id).collect()
}

/// Records a scalar and a vector, computed from two vectors.
fn recorded(steps: &[u8], x: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut y = x[0].clone();
    for step in steps {
        y = match step % 7 {
            0 => y.mul(&x[1])?,
            1 => y.sin()?,
            2 => y.add(&x[0])?,
            3 => y.tanh()?.mul(&y)?,
            4 => y.cumsum(0)?,
            5 => girih::where_(&y.gt(0.25)?, &y.square()?, &x[1])?,
            _ => girih::scan(
                |c, _| Ok((vec![c[0].cos()?], vec![])),
                std::slice::from_ref(&y),
                &[Tensor::zeros([3], DType::F64)?],
            )?
            .0
            .remove(0),
        };
    }
    Ok(vec![y.mul(&y)?.sum_all()?, y])
}

/// A transform of a program and the same transform of an equivalent closure.
fn transformed(kind: u8, program: &Program, f: &Function) -> Result<(Program, Function)> {
    let (f, wrt) = (f.clone(), ids(program));
    let count = wrt.len();
    let scalar = program.outputs()[0].1.shape.rank() == 0;
    Ok(match kind % 4 {
        0 if scalar => {
            let closure = move |x: &[Tensor]| grad(|x| Ok(f(x)?.remove(0)))(x);
            (program.grad(&wrt)?, Rc::new(closure))
        }
        0 | 1 => {
            let closure = move |x: &[Tensor]| {
                let (x, cts) = x.split_at(count);
                let (mut outputs, pullback) = vjp(|x| f(x), x)?;
                outputs.extend(pullback.call(&cts.iter().collect::<Vec<_>>())?);
                Ok(outputs)
            };
            (program.vjp(&wrt)?, Rc::new(closure))
        }
        2 => {
            let closure = move |x: &[Tensor]| {
                let (x, tangents) = x.split_at(count);
                let (mut outputs, derivatives) = jvp(|x| f(x), x, tangents)?;
                outputs.extend(derivatives);
                Ok(outputs)
            };
            (program.jvp(&wrt)?, Rc::new(closure))
        }
        _ => {
            // The batch axis is the last axis of the first input, and the first axis of the third
            // input, if any.
            let inputs = program.inputs();
            let mut axes = vec![None; count];
            axes[0] = Some(inputs[0].spec.shape.rank());
            axes.iter_mut().skip(2).for_each(|axis| *axis = Some(0));
            let outs = vec![0; program.outputs().len()];
            let batched = program.vmap(2, &axes, &outs)?;
            (batched, Rc::new(move |x: &[Tensor]| vmap(|x: &[Tensor]| f(x), &axes)(x)))
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn transforms_of_programs_and_of_closures_agree_to_depth_three(
        steps in prop::collection::vec(any::<u8>(), 1..6),
        kinds in prop::collection::vec(any::<u8>(), 1..4),
    ) {
        let like = [vector(&[0.5, -1.0, 0.75]), vector(&[1.5, 0.25, -0.5])];
        let outputs = recorded(&steps, &like).unwrap();
        let program = Program::capture(
            &outputs.iter().collect::<Vec<_>>(),
            &like.iter().collect::<Vec<_>>(),
        ).unwrap();
        let mut both: (Program, Function) = (program, Rc::new(move |x| recorded(&steps, x)));
        for &kind in &kinds {
            both = transformed(kind, &both.0, &both.1).unwrap();
        }
        let (program, closure) = both;
        let make = |(i, input): (usize, girih::Input)| {
            let count = input.spec.shape.iter().product::<usize>();
            let value = |j: usize| ((3 * i + j) as f64 * 0.7 + 0.3).sin();
            let values: Vec<f64> = (0..count).map(value).collect();
            Tensor::from_slice(&values, input.spec.shape.clone()).unwrap()
        };
        let inputs: Vec<Tensor> = program.inputs().into_iter().enumerate().map(make).collect();
        let found = program.call(&inputs.iter().collect::<Vec<_>>()).unwrap();
        let expected = closure(&inputs).unwrap();
        prop_assert_eq!(found.len(), expected.len());
        for ((found, expected), (_, spec)) in found.iter().zip(&expected).zip(program.outputs()) {
            prop_assert_eq!(found.spec(), expected.spec());
            prop_assert_eq!(found.spec(), spec);
            let pairs = found.to_vec::<f64>().unwrap().into_iter();
            for (a, b) in pairs.zip(expected.to_vec::<f64>().unwrap()) {
                prop_assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{} is not {}", a, b);
            }
        }
    }
}

#[test]
fn transforms_keep_and_differentiate_parameters_without_running() -> Result<()> {
    let w = vector(&[2.0, -1.0]);
    let x = vector(&[3.0, 5.0]);
    let y = x.mul(&w)?.square()?.sum_all()?;
    let mut program = Program::capture_with(&[&y], &[&x], &[("w".into(), w)])?;
    let input = program.inputs()[0].id;
    program.graph_mut().set_name(input, "x");
    let parameter = program.nodes().iter().find(|node| node.name == "w").unwrap().id;
    let parameter = girih::ir::NodeId(parameter as u32);
    let gradient = program.value_and_grad(&[parameter, input])?;
    let twice = gradient.jvp(&[input])?.vmap(2, &[Some(0), None], &[0, 0, 1, 0, 0, 1])?;
    assert!(y.is_lazy());
    for program in [&gradient, &twice] {
        assert_eq!(program.parameters()[0].0, "w");
        assert_eq!(program.inputs()[0].name, "x");
    }
    // d/dw (w x)^2 = 2 w x^2, d/dx = 2 w^2 x.
    let found = gradient.call(&[&x])?;
    assert_eq!(found[0].to_vec::<f64>()?, [61.0]);
    assert_eq!(found[1].to_vec::<f64>()?, [36.0, -50.0]);
    assert_eq!(found[2].to_vec::<f64>()?, [24.0, 10.0]);
    // Tangents of the gradients: 4 w x dx and 2 w^2 dx; the batch is axis 1 of the last.
    let batch = Tensor::from_slice(&[3.0, 5.0, 1.0, 2.0], [2, 2])?;
    let found = twice.call(&[&batch, &vector(&[1.0, 10.0])])?;
    assert_eq!(found[0].to_vec::<f64>()?, [61.0, 8.0]);
    assert_eq!(found[4].to_vec::<f64>()?, [24.0, -200.0, 8.0, -80.0]);
    assert_eq!(found[5].to_vec::<f64>()?, [8.0, 8.0, 20.0, 20.0]);
    let again = Program::from_bytes(&twice.to_bytes()?)?;
    assert_eq!(again.call(&[&batch, &vector(&[1.0, 10.0])])?[0].to_vec::<f64>()?, [61.0, 8.0]);
    Ok(())
}

#[test]
fn symbolic_programs_stay_symbolic() -> Result<()> {
    let x = vector(&[1.0, 2.0, 3.0]);
    let text = Program::capture(&[&x.square()?.sum_all()?], &[&x])?.to_text();
    let program = Program::from_text(&text.replace("[3]", "[n]"))?;
    assert!(program.graph().is_symbolic());
    let program = program.grad(&ids(&program))?;
    let program = program.vmap(Dim::symbol("batch", 2, 1, None), &[Some(0)], &[0])?;
    for shape in [[1, 3], [4, 2]] {
        let x = Tensor::ones(shape, DType::F64)?;
        assert_eq!(program.call(&[&x])?[0].to_vec::<f64>()?, vec![2.0; shape[0] * shape[1]]);
    }
    Ok(())
}

#[test]
fn programs_that_a_transform_does_not_take_are_errors() -> Result<()> {
    let (x, n) = (vector(&[1.0, 2.0]), Tensor::from_slice(&[1i64, 2], [2])?);
    let y = x.mul(&n.astype(DType::F64)?)?;
    let program = Program::capture(&[&y], &[&x, &n])?;
    let (x_id, n_id) = (ids(&program)[0], ids(&program)[1]);
    let refused = |result: Result<Program>| match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    };
    assert!(matches!(refused(program.grad(&[x_id])), Error::Transform(_)), "no scalar");
    for wrt in [n_id, girih::ir::NodeId(99)] {
        for result in [program.jvp(&[wrt]), program.vjp(&[wrt])] {
            assert!(matches!(refused(result), Error::Transform(_)));
        }
    }
    let error = refused(Program::capture(&[], &[&x])?.grad(&[]));
    assert!(error.to_string().contains("no output"), "{error}");
    for (ins, outs, expected) in [
        (&[Some(0)][..], &[0][..], "1 in_axes for 2 inputs"),
        (&[Some(0), None], &[], "0 out_axes for 1 outputs"),
        (&[None, None], &[0], "no input has a batch axis"),
        (&[Some(2), None], &[0], "its batch axis is one of 0 to 1, not 2"),
        (&[Some(0), None], &[2], "its batch axis is one of 0 to 1, not 2"),
    ] {
        let error = refused(program.vmap(3, ins, outs));
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    Ok(())
}

#[test]
fn batches_without_members_and_outputs_without_a_batch() -> Result<()> {
    let (x, w) = (vector(&[1.0, 2.0]), vector(&[3.0]));
    let program = Program::capture(&[&x.add(&w)?, &w.neg()?], &[&x, &w])?;
    for size in [0, 1, 3] {
        let batched = program.vmap(size, &[Some(0), None], &[1, 1])?;
        let out = batched.call(&[&Tensor::zeros([size, 2], DType::F64)?, &w])?;
        assert_eq!(out[0].to_vec::<f64>()?, vec![3.0; 2 * size]);
        assert_eq!(out[1].to_vec::<f64>()?, vec![-3.0; size]);
        assert_eq!(
            out[1].shape().to_string(),
            Tensor::zeros([1, size], DType::F64)?.shape().to_string()
        );
    }
    let drawn = Program::from_bytes(&Program::capture(&[&x.neg()?], &[&x])?.to_bytes()?)?;
    assert_eq!(drawn.vjp(&[])?.inputs().len(), 2);
    Ok(())
}

/// The results of linearize's two programs for a tangent of each input.
fn pushed(program: &Program, x: &[&Tensor], v: &[&Tensor]) -> Result<Vec<Vec<f64>>> {
    let (values, map) = program.linearize(&ids(program))?;
    let found = values.call(x)?;
    let (outputs, residuals) = found.split_at(program.outputs().len());
    let given: Vec<&Tensor> = residuals.iter().chain(v.iter().copied()).collect();
    outputs.iter().cloned().chain(map.call(&given)?).map(|t| t.to_vec()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn linearize_is_jvp_and_a_checkpoint_is_the_program(
        steps in prop::collection::vec(any::<u8>(), 0..6),
        contractions in any::<bool>(),
    ) {
        let (x, y) = (vector(&[0.3, -0.7]), vector(&[1.1, 0.4]));
        let (u, v) = (vector(&[1.0, 0.5]), vector(&[-2.0, 1.0]));
        let program = Program::capture(
            &recorded(&steps, &[x.clone(), y.clone()]).unwrap().iter().collect::<Vec<_>>(),
            &[&x, &y],
        ).unwrap();
        let wrt = ids(&program);
        let all = |program: &Program, given: &[&Tensor]| -> Vec<Vec<f64>> {
            program.call(given).unwrap().iter().map(|t| t.to_vec().unwrap()).collect()
        };
        let close = |a: &[Vec<f64>], b: &[Vec<f64>]| {
            a.len() == b.len() && a.concat().iter().zip(b.concat()).all(|(a, b)| (a - b).abs() < 1e-12)
        };
        let want = all(&program.jvp(&wrt).unwrap(), &[&x, &y, &u, &v]);
        prop_assert!(close(&pushed(&program, &[&x, &y], &[&u, &v]).unwrap(), &want));

        let policy = if contractions { girih::Saved::Contractions } else { girih::Saved::Nothing };
        let again = program.checkpoint(policy).unwrap();
        prop_assert!(close(&all(&again, &[&x, &y]), &all(&program, &[&x, &y])));
        let want = all(&program.value_and_grad(&wrt).unwrap(), &[&x, &y]);
        prop_assert!(close(&all(&again.value_and_grad(&wrt).unwrap(), &[&x, &y]), &want));
        let twice = again.checkpoint(policy).unwrap().vmap(2, &[Some(0), None], &[0, 0]).unwrap();
        let batch = girih::stack(&[&x, &y], 0).unwrap();
        let want = program.vmap(2, &[Some(0), None], &[0, 0]).unwrap();
        prop_assert!(close(&all(&twice, &[&batch, &y]), &all(&want, &[&batch, &y])));
    }
}

#[test]
fn a_checkpoint_keeps_no_values_between() -> Result<()> {
    let x = Tensor::ones([4, 4], DType::F64)?;
    let y = x.matmul(&x)?.sin()?.matmul(&x)?.tanh()?;
    let program = Program::capture(&[&y.sum_all()?], &[&x])?;
    let count = |program: &Program, op: &str| {
        let text = program.to_text();
        text.matches(&format!("= {op}(")).count()
    };
    let plain = program.grad(&ids(&program))?;
    for (policy, more) in [(girih::Saved::Nothing, true), (girih::Saved::Contractions, false)] {
        let again = program.checkpoint(policy)?.grad(&ids(&program))?;
        assert_eq!(count(&again, "matmul") > count(&plain, "matmul"), more, "{}", again.to_text());
    }
    Ok(())
}

#[test]
fn a_linear_program_is_transposed_and_another_is_refused() -> Result<()> {
    let (x, w) = (vector(&[1.0, 2.0]), vector(&[3.0, 5.0]));
    let held = vector(&[10.0, 20.0]);
    held.eval()?;
    let y = x.mul(&w)?.cumsum(0)?.mul(&held)?;
    let program = Program::capture(&[&y, &x.neg()?], &[&x, &w])?;
    let (x_id, w_id) = (ids(&program)[0], ids(&program)[1]);
    let transpose = program.linear_transpose(&[x_id])?;
    let specs: Vec<String> = transpose.inputs().iter().map(|i| i.spec.to_string()).collect();
    assert_eq!(specs.len(), 3, "{specs:?}");
    let (a, b) = (vector(&[1.0, 1.0]), vector(&[0.5, 0.25]));
    let found = transpose.call(&[&w, &a, &b])?[0].to_vec::<f64>()?;
    assert_eq!(found, [30.0 * 3.0 - 0.5, 20.0 * 5.0 - 0.25]);

    let error = program.linear_transpose(&[x_id, w_id]).err().expect("a product of both");
    assert!(error.to_string().contains("mul is not linear"), "{error}");
    let error = program.linear_transpose(&[program.graph().outputs()[0]]).err().expect("no input");
    assert!(error.to_string().contains("is no input"), "{error}");
    Ok(())
}

#[test]
fn linearize_handles_integers_and_programs_without_inputs() -> Result<()> {
    let (x, n) = (vector(&[1.0, 2.0]), Tensor::from_slice(&[1i64, 2], [2])?);
    let program = Program::capture(&[&n.mul(&n)?, &x, &vector(&[7.0])], &[&x, &n])?;
    let (values, map) = program.linearize(&[ids(&program)[0]])?;
    let found = values.call(&[&x, &n])?;
    assert_eq!(found[0].to_vec::<i64>()?, [1, 4]);
    let given: Vec<&Tensor> = found[3..].iter().chain([&x]).collect();
    let tangents = map.call(&given)?;
    assert_eq!(tangents[1].to_vec::<f64>()?, [1.0, 2.0]);
    assert_eq!(tangents[2].to_vec::<f64>()?, [0.0]);
    // A program without inputs, so that a checkpoint has nothing to recompute.
    let constant = Program::capture(&[&Tensor::ones([2], DType::F64)?.add(1.0)?], &[])?;
    assert_eq!(
        constant.checkpoint(girih::Saved::Nothing)?.call(&[])?[0].to_vec::<f64>()?,
        [2.0; 2]
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn jacobians_and_hessians_are_those_of_the_closure(
        steps in prop::collection::vec(any::<u8>(), 0..5),
    ) {
        let (x, y) = (vector(&[0.3, -0.7, 0.2]), vector(&[1.1, 0.4, -0.6]));
        let program = Program::capture(
            &recorded(&steps, &[x.clone(), y.clone()]).unwrap().iter().collect::<Vec<_>>(),
            &[&x, &y],
        ).unwrap();
        let wrt = ids(&program)[0];
        let of_x = |a: &[Tensor]| recorded(&steps, &[a[0].clone(), y.clone()]);
        let expected = girih::jacfwd(of_x)(&x).unwrap();
        for found in [program.jacfwd(wrt).unwrap(), program.jacrev(wrt).unwrap()] {
            let found = found.call(&[&x, &y]).unwrap();
            prop_assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                prop_assert_eq!(found.spec(), expected.spec());
                let pairs = found.to_vec::<f64>().unwrap().into_iter();
                for (a, b) in pairs.zip(expected.to_vec::<f64>().unwrap()) {
                    prop_assert!((a - b).abs() <= 1e-9 * b.abs().max(1.0), "{} is not {}", a, b);
                }
            }
        }
        let scalar = |a: &[Tensor]| Ok(of_x(a)?.swap_remove(0));
        let expected = girih::hessian(scalar)(&x).unwrap().to_vec::<f64>().unwrap();
        let found = program.hessian(wrt).unwrap().call(&[&x, &y]).unwrap();
        prop_assert_eq!(found.len(), 1);
        let found = found[0].to_vec::<f64>().unwrap();
        prop_assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-9 * b.abs().max(1.0)));
        let v = vector(&[1.0, -2.0, 0.5]);
        let product = program.hvp(wrt).unwrap().call(&[&x, &y, &v]).unwrap()[0].to_vec::<f64>().unwrap();
        for (row, found) in expected.chunks(3).zip(product) {
            let wanted = row[0] - 2.0 * row[1] + 0.5 * row[2];
            prop_assert!((wanted - found).abs() <= 1e-9 * wanted.abs().max(1.0));
        }
    }
}

#[test]
fn jacobians_of_matrices_parameters_integers_and_empty_tensors() -> Result<()> {
    let w = Tensor::from_slice(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3])?;
    let x = vector(&[1.0, -1.0, 2.0]);
    let (y, n) = (w.matmul(&x)?, Tensor::from_slice(&[3i64], [1])?);
    let program = Program::capture_with(&[&y, &n.mul(2)?], &[&x, &n], &[("w".into(), w.clone())])?;
    let parameter = program.graph().arguments().find(|id| program.graph().name(*id) == Some("w"));
    for jacobian in [program.jacfwd(parameter.unwrap())?, program.jacrev(parameter.unwrap())?] {
        assert_eq!(jacobian.parameters()[0].0, "w");
        let found = jacobian.call(&[&x, &n])?;
        assert_eq!(found[0].shape().iter().copied().collect::<Vec<_>>(), [2, 2, 3]);
        let expected = [1.0, -1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, -1.0, 2.0];
        assert_eq!(found[0].to_vec::<f64>()?, expected);
        // An integer does not vary.
        assert_eq!(found[1].shape().iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(found[1].to_f64_vec()?, [0.0; 6]);
    }
    let (empty, scalar) = (vector(&[]), Tensor::from_slice(&[2.0], [])?);
    let program = Program::capture(&[&empty.sin()?, &scalar.square()?], &[&empty, &scalar])?;
    for (wrt, shapes) in ids(&program).into_iter().zip([[vec![0, 0], vec![0]], [vec![0], vec![]]]) {
        for jacobian in [program.jacfwd(wrt)?, program.jacrev(wrt)?] {
            let found = jacobian.call(&[&empty, &scalar])?;
            for (found, shape) in found.iter().zip(&shapes) {
                assert_eq!(found.shape().iter().copied().collect::<Vec<_>>(), *shape);
            }
        }
    }
    assert_eq!(program.jacfwd(ids(&program)[1])?.call(&[&empty, &scalar])?[1].item::<f64>()?, 4.0);
    let error = program.jacfwd(girih::ir::NodeId(99)).err().expect("there is no such node");
    assert!(matches!(error, Error::Transform(_)), "{error}");
    Ok(())
}

#[test]
fn jacobians_of_symbolic_programs_serve_all_sizes() -> Result<()> {
    let x = vector(&[1.0, 2.0, 3.0]);
    let text = Program::capture(&[&x.cumsum(0)?.square()?], &[&x])?.to_text();
    let program = Program::from_text(&text.replace("[3]", "[n]"))?;
    for jacobian in [program.jacfwd(ids(&program)[0])?, program.jacrev(ids(&program)[0])?] {
        assert!(jacobian.graph().is_symbolic());
        assert_eq!(jacobian.call(&[&vector(&[3.0])])?[0].to_vec::<f64>()?, [6.0]);
        let found = jacobian.call(&[&vector(&[1.0, 2.0])])?[0].to_vec::<f64>()?;
        assert_eq!(found, [2.0, 0.0, 6.0, 6.0]);
    }
    Ok(())
}

#[test]
fn rules_of_programs_replace_their_derivatives() -> Result<()> {
    let (x, t) = (vector(&[0.5, 3.0]), vector(&[1.0, 1.0]));
    let n = Tensor::from_slice(&[1i64, 0], [2])?;
    // Values that the program and the rule hold are operands of the call besides the inputs.
    let scale = vector(&[10.0, 100.0]);
    scale.eval()?;
    let y = x.mul(&scale)?.add(&n.astype(DType::F64)?)?;
    let program = Program::capture(&[&y, &n.add(1)?], &[&n, &x])?;
    let held = vector(&[7.0, 8.0]);
    held.eval()?;
    let rule = Program::capture(&[&y, &n.add(1)?, &t.mul(&held)?], &[&n, &x, &t])?;
    let ruled = program.custom_jvp(&rule)?;
    let input = ruled.inputs()[1].id;
    let values = |program: &Program, given: &[&Tensor]| -> Result<Vec<Vec<f64>>> {
        let values = program.call(given)?;
        values.iter().map(|t| t.astype(DType::F64)?.to_vec()).collect()
    };
    assert_eq!(values(&ruled, &[&n, &x])?, values(&program, &[&n, &x])?);
    assert_eq!(values(&ruled.jvp(&[input])?, &[&n, &x, &t])?[2], [7.0, 8.0]);
    let pullback = ruled.vjp(&[input])?;
    assert_eq!(values(&pullback, &[&n, &x, &t, &n])?[2], [7.0, 8.0]);
    // A file contains the rule.
    let again = Program::from_bytes(&ruled.to_bytes()?)?;
    assert_eq!(values(&again.jvp(&[input])?, &[&n, &x, &t])?[2], [7.0, 8.0]);
    let batched = ruled.jvp(&[input])?.vmap(2, &[None, None, Some(0)], &[0, 0, 0, 0])?;
    let ts = Tensor::from_slice(&[1.0, 2.0, 0.0, 1.0], [2, 2])?;
    assert_eq!(values(&batched, &[&n, &x, &ts])?[2], [7.0, 16.0, 0.0, 8.0]);

    let forward = Program::capture(&[&y, &n.add(1)?, &x.mul(&held)?], &[&n, &x])?;
    let backward = Program::capture(&[&x.mul(&t)?.add(&scale)?], &[&x, &t])?;
    let ruled = program.custom_vjp(&forward, &backward)?;
    assert_eq!(values(&ruled, &[&n, &x])?, values(&program, &[&n, &x])?);
    let found = values(&ruled.vjp(&[ruled.inputs()[1].id])?, &[&n, &x, &t, &n])?;
    assert_eq!(found[2], [3.5 + 10.0, 24.0 + 100.0]);
    assert!(ruled.jvp(&[ruled.inputs()[1].id]).is_err(), "a reverse rule has no forward mode");
    Ok(())
}

#[test]
fn rules_that_do_not_fit_a_program_are_refused() -> Result<()> {
    let (x, t) = (vector(&[0.5, 3.0]), vector(&[1.0, 1.0]));
    let program = Program::capture(&[&x.sin()?], &[&x])?;
    let capture = |outputs: &[&Tensor], inputs: &[&Tensor]| Program::capture(outputs, inputs);
    let refused = |result: Result<Program>, expected: &str| {
        let error = result.err().expect("it does not fit");
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    };
    refused(
        program.custom_jvp(&capture(&[&x], &[&x])?),
        "takes (f64[2]); expected (f64[2], f64[2])",
    );
    refused(
        program.custom_jvp(&capture(&[&x], &[&x, &t])?),
        "gives (f64[2]); expected (f64[2], f64[2])",
    );
    let forward = capture(&[&x.sin()?, &x.sum_all()?], &[&x])?;
    let backward = capture(&[&x], &[&x, &t])?;
    refused(
        program.custom_vjp(&forward, &backward),
        "takes (f64[2], f64[2]); expected (f64[], f64[2])",
    );
    refused(
        program.custom_vjp(&capture(&[], &[&x])?, &backward),
        "gives first (); expected (f64[2])",
    );
    let s = x.sum_all()?;
    let none = capture(&[], &[&s, &t])?;
    refused(program.custom_vjp(&forward, &none), "gives (); expected (f64[2])");
    let w = vector(&[2.0, 2.0]);
    let held = Program::capture_with(&[&x.mul(&w)?], &[&x], &[("w".into(), w)])?;
    let rule = capture(&[&x, &t], &[&x, &t])?;
    let ruled = held.custom_jvp(&rule)?;
    let parameter = ruled.graph().arguments().find(|id| ruled.graph().name(*id) == Some("w"));
    assert!(ruled.vjp(&[parameter.unwrap()]).is_err(), "the rule does not know the parameter");
    Ok(())
}
