//! Tests of branches and loops recorded by closures.

use girih::{
    DType, Error, Program, Result, ScanOptions, Tensor, TensorSpec, bounded_while_loop, cond,
    fori_loop, grad, linalg, scan_with, switch, while_loop,
};

fn data(values: &[f64]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

fn number(value: f64) -> Tensor {
    Tensor::from_slice(&[value], []).unwrap()
}

#[test]
fn a_branch_uses_operands_and_captured_tensors() -> Result<()> {
    let (x, y) = (data(&[1.0, 2.0]), data(&[10.0, 20.0]));
    for (sign, expected) in [(1.0, [11.0, 22.0]), (-1.0, [-9.0, -18.0])] {
        let positive = number(sign).gt(0.0)?;
        let z = cond(
            &positive,
            |o| Ok(vec![o[0].add(&y)?, o[0].clone()]),
            |o| Ok(vec![o[0].sub(&y)?, y.clone()]),
            std::slice::from_ref(&x),
        )?;
        assert!(z[0].is_lazy() && positive.is_lazy());
        assert_eq!(z[0].to_vec::<f64>()?, expected);
        assert_eq!(z[1].to_vec::<f64>()?, if sign > 0.0 { [1.0, 2.0] } else { [10.0, 20.0] });
    }
    Ok(())
}

#[test]
fn a_switch_clamps_its_index() -> Result<()> {
    let x = data(&[2.0]);
    for (index, expected) in [(-4i64, 3.0), (0, 3.0), (1, 20.0), (7, 20.0)] {
        let index = Tensor::from_slice(&[index], [])?;
        let y = switch(
            &index,
            &[&|o| Ok(vec![o[0].add(1.0)?]), &|o| Ok(vec![o[0].mul(10.0)?])],
            std::slice::from_ref(&x),
        )?;
        assert_eq!(y[0].to_vec::<f64>()?, [expected]);
    }
    Ok(())
}

#[test]
fn loops_run_the_requested_number_of_iterations() -> Result<()> {
    let limit = number(50.0);
    let doubled = while_loop(|c| c[0].lt(&limit), |c| Ok(vec![c[0].add(&c[0])?]), &[number(1.5)])?;
    assert_eq!(doubled[0].item::<f64>()?, 96.0);
    let factorial =
        fori_loop(1, 6, |i, c| Ok(vec![c[0].mul(&i.astype(DType::F64)?)?]), &[number(1.0)])?;
    assert_eq!(factorial[0].item::<f64>()?, 120.0);
    let backwards = ScanOptions { reverse: true, ..ScanOptions::default() };
    let (last, sums) = scan_with(
        |c, x| {
            let next = c[0].add(&x[0])?;
            Ok((vec![next.clone()], vec![next]))
        },
        &[number(0.0)],
        &[data(&[1.0, 2.0, 3.0])],
        backwards,
    )?;
    assert_eq!(last[0].item::<f64>()?, 6.0);
    assert_eq!(sums[0].to_vec::<f64>()?, [6.0, 5.0, 3.0]);
    Ok(())
}

#[test]
fn loops_nest_and_are_differentiated() -> Result<()> {
    // x ** 8, by three squarings in a loop within a branch.
    let power = |x: &[Tensor]| {
        let square = |c: &[Tensor]| Ok(vec![c[0].mul(&c[0])?]);
        let positive = x[0].gt(0.0)?;
        let y = cond(
            &positive,
            |o| fori_loop(0, 3, |_, c| square(c), o),
            |o| Ok(vec![o[0].neg()?]),
            &[x[0].clone()],
        )?;
        Ok(y[0].clone())
    };
    assert_eq!(grad(power)(&[number(2.0)])?[0].item::<f64>()?, 8.0 * 128.0);
    assert_eq!(grad(power)(&[number(-2.0)])?[0].item::<f64>()?, -1.0);
    let second = grad(|x: &[Tensor]| Ok(grad(power)(x)?.swap_remove(0)));
    assert_eq!(second(&[number(2.0)])?[0].item::<f64>()?, 56.0 * 64.0);
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused() -> Result<()> {
    let message = |result: Result<Vec<Tensor>>| match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nothing was refused"),
    };
    let x = data(&[1.0, 2.0]);
    let yes = number(1.0).gt(0.0)?;
    let found = message(cond(
        &yes,
        |o| Ok(vec![o[0].clone()]),
        |o| Ok(vec![o[0].sum_all()?]),
        std::slice::from_ref(&x),
    ));
    assert!(found.contains("f64[2]") && found.contains("f64[]"), "{found}");
    let found = message(while_loop(|c| c[0].lt(3.0), |c| Ok(c.to_vec()), std::slice::from_ref(&x)));
    assert!(found.contains("one bool scalar"), "{found}");
    let found = message(fori_loop(
        0,
        2,
        |_, c| Ok(vec![c[0].astype(DType::F32)?]),
        std::slice::from_ref(&x),
    ));
    assert!(found.contains("f64[2]") && found.contains("f32[2]"), "{found}");
    let draws = |c: &[Tensor]| Ok(vec![c[0].add(&Tensor::rand([2], DType::F64)?)?]);
    let found = message(while_loop(|c| c[0].sum_all()?.lt(9.0), draws, std::slice::from_ref(&x)));
    assert!(found.contains("random_uniform") && found.contains("fori_loop"), "{found}");
    let differentiated = grad(|x: &[Tensor]| {
        Ok(while_loop(|c| c[0].lt(9.0), |c| Ok(vec![c[0].mul(&c[0])?]), x)?.swap_remove(0))
    });
    let found = match differentiated(&[number(2.0)]) {
        Err(Error::Transform(error)) => error.to_string(),
        other => panic!("{:?}", other.is_ok()),
    };
    assert!(found.contains("scan") && found.contains("fori_loop"), "{found}");
    Ok(())
}

#[test]
fn each_iteration_draws_numbers_of_its_own() -> Result<()> {
    let before = Tensor::rand([2], DType::F64)?;
    let draw = |_: &[Tensor], _: &[Tensor]| {
        Ok((vec![], vec![Tensor::rand([2], DType::F64)?, before.clone()]))
    };
    let (_, draws) = scan_with(draw, &[], &[], ScanOptions::length(3))?;
    let drawn = draws[0].to_vec::<f64>()?;
    assert_eq!(draws[0].spec(), TensorSpec::new([3, 2], DType::F64));
    let mut distinct = drawn.clone();
    distinct.sort_by(f64::total_cmp);
    distinct.dedup();
    assert_eq!(distinct.len(), 6, "{drawn:?}");
    assert_eq!(draws[1].to_vec::<f64>()?, before.to_vec::<f64>()?.repeat(3));
    Ok(())
}

/// Carries beyond the limit of reverse mode are recomputed block by block.
#[test]
fn a_bounded_loop_of_large_carries_has_the_gradient_of_small_ones() -> Result<()> {
    let slowed = |limit: usize| {
        move |x: &[Tensor]| -> Result<Tensor> {
            let below = |c: &[Tensor]| c[0].lt(90.0);
            let next = |c: &[Tensor]| Ok(vec![c[0].add(1.0)?, c[1].sin()?.mul(1.01)?]);
            let last = bounded_while_loop(below, next, &[number(0.0), x[0].clone()], limit)?;
            last[1].sum_all()
        }
    };
    let values: Vec<f64> = (0..1 << 15).map(|i| i as f64 * 1e-4).collect();
    let x = data(&values);
    // 90 steps of 256 KB: in blocks if the bound is 100, or 103, which is not divisible by the
    // block size.
    let few = data(&values[..64]);
    let expected = grad(slowed(100))(&[few])?[0].to_vec::<f64>()?;
    for limit in [100, 103] {
        let found = grad(slowed(limit))(std::slice::from_ref(&x))?[0].to_vec::<f64>()?;
        assert_eq!(found[..64], expected);
    }
    Ok(())
}

type Computation = Box<dyn Fn() -> Result<Tensor>>;

/// Ops that can fail and depend on no argument of the function that records them.
fn failing() -> Vec<(&'static str, Computation)> {
    let table = data(&[1.0, 2.0]);
    let beyond = Tensor::from_slice(&[7i64], [1]).unwrap();
    let singular = Tensor::from_slice(&[0.0f64; 4], [2, 2]).unwrap();
    let right = Tensor::from_slice(&[1.0f64, 1.0], [2, 1]).unwrap();
    let (a, b) = (table.clone(), beyond.clone());
    let (c, d) = (singular.clone(), right);
    let (e, always) = (table, number(1.0));
    vec![
        ("take", Box::new(move || a.take(&b, 0)?.sum_all())),
        ("solve", Box::new(move || linalg::solve(&c, &d)?.sum_all())),
        (
            "cholesky",
            Box::new(move || linalg::cholesky(&singular, linalg::Triangle::Lower)?.sum_all()),
        ),
        (
            "a branch that fails",
            Box::new(move || {
                let fails = |x: &[Tensor]| Ok(vec![x[0].add(&e.take(&beyond, 0)?.sum_all()?)?]);
                let positive = always.gt(0.0)?;
                Ok(cond(&positive, fails, |x| Ok(x.to_vec()), std::slice::from_ref(&always))?
                    .remove(0))
            }),
        ),
    ]
}

#[test]
fn a_loop_that_does_not_run_does_not_fail_and_one_that_runs_does() -> Result<()> {
    for (name, fails) in failing() {
        for count in [0usize, 1, 3] {
            let body = |x: &[Tensor]| Ok(vec![x[0].add(1.0)?.add(&fails()?)?]);
            let bound = count as f64;
            let start = [number(0.0)];
            let loops = [
                while_loop(|x| x[0].lt(bound), body, &start)?,
                fori_loop(0, count as i64, |_, x| body(x), &start)?,
                scan_with(|x, _| Ok((body(x)?, vec![])), &start, &[], ScanOptions::length(count))?
                    .0,
            ];
            for (which, last) in loops.iter().enumerate() {
                match last[0].item::<f64>() {
                    Ok(value) => assert_eq!((count, value), (0, 0.0), "{name} in loop {which}"),
                    Err(error) => assert_ne!(count, 0, "{name} in loop {which}: {error}"),
                }
            }
        }
    }
    Ok(())
}

#[test]
fn what_can_fail_leaves_a_scan_that_runs() -> Result<()> {
    let (table, index) = (data(&[1.0, 2.0]), Tensor::from_slice(&[1i64], [1])?);
    let captured = |length: usize| -> Result<String> {
        let step = |x: &[Tensor], _: &[Tensor]| {
            Ok((vec![x[0].add(&table.take(&index, 0)?.sum_all()?)?], vec![]))
        };
        let last = scan_with(step, &[number(0.0)], &[], ScanOptions::length(length))?.0.remove(0);
        let graph = Program::capture(&[&last], &[])?.to_text();
        last.item::<f64>()?;
        Ok(graph)
    };
    let inside = |text: &str| {
        let at = text.find("= scan").expect("there is a scan");
        text[at..].contains("take(")
    };
    assert!(!inside(&captured(3)?), "{}", captured(3)?);
    assert!(inside(&captured(0)?), "{}", captured(0)?);
    Ok(())
}
