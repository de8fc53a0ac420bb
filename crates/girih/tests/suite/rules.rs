//! Tests of functions with custom derivative rules: when the rules are called, and recursion.

use girih::{
    Program, Result, ScanOptions, Tensor, call, custom_jvp, custom_vjp, grad, jvp, scan_with, vmap,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn scalar(value: f64) -> Tensor {
    Tensor::from_slice(&[value], []).unwrap()
}

fn close(found: &Tensor, expected: f64) {
    let found = found.item::<f64>().unwrap();
    assert!((found - expected).abs() < 1e-12 * expected.abs().max(1.0), "{found} {expected}");
}

/// `exp`, with a rule that calls the function itself.
fn exponential(x: &Tensor) -> Result<Tensor> {
    let rule = |x: &[Tensor], t: &[Tensor]| {
        let y = exponential(&x[0])?;
        let along = y.mul(&t[0])?;
        Ok((vec![y], vec![along]))
    };
    Ok(custom_jvp(|x| Ok(vec![x[0].exp()?]), rule, std::slice::from_ref(x))?.swap_remove(0))
}

#[test]
fn a_rule_that_calls_its_function_is_followed_to_any_order() {
    let f = |x: &[Tensor]| exponential(&x[0]);
    let x = scalar(0.5);
    let first = |x: &[Tensor]| Ok(grad(f)(x)?.swap_remove(0));
    let second = |x: &[Tensor]| Ok(grad(first)(x)?.swap_remove(0));
    let third = |x: &[Tensor]| Ok(grad(second)(x)?.swap_remove(0));
    let fourth = grad(third)(std::slice::from_ref(&x)).unwrap().swap_remove(0);
    let xs = std::slice::from_ref(&x);
    for found in [first(xs), second(xs), third(xs), Ok(fourth)] {
        close(&found.unwrap(), 0.5f64.exp());
    }
    let along = |x: &[Tensor]| Ok(jvp(|x| Ok(vec![third(x)?]), x, &[scalar(1.0)])?.1);
    let twice = jvp(along, std::slice::from_ref(&x), &[scalar(1.0)]).unwrap().1;
    close(&twice[0], 0.5f64.exp());
}

/// `x * x` with twice its derivative; counts the calls of the closures.
fn counted(x: &Tensor, counts: &Arc<[AtomicUsize; 3]>) -> Result<Tensor> {
    let count = |at: usize| {
        let counts = counts.clone();
        move || counts[at].fetch_add(1, Ordering::Relaxed)
    };
    let (of_f, of_forward, of_backward) = (count(0), count(1), count(2));
    let f = move |x: &[Tensor]| {
        of_f();
        Ok(vec![x[0].mul(&x[0])?])
    };
    let forward = move |x: &[Tensor]| {
        of_forward();
        Ok((vec![x[0].mul(&x[0])?], vec![x[0].clone()]))
    };
    let backward = move |kept: &[Tensor], ct: &[Tensor]| {
        of_backward();
        Ok(vec![kept[0].mul(&ct[0])?.mul(4.0)?])
    };
    Ok(custom_vjp(f, forward, backward, std::slice::from_ref(x))?.swap_remove(0))
}

#[test]
fn rules_are_called_when_a_derivative_is_taken() {
    let counts = Arc::new([0; 3].map(AtomicUsize::new));
    let called = || [0, 1, 2].map(|i| counts[i].swap(0, Ordering::Relaxed));
    let x = scalar(3.0);
    close(&counted(&x, &counts).unwrap(), 9.0);
    assert_eq!(called(), [1, 0, 0]);
    let slope = grad(|x| counted(&x[0], &counts))(std::slice::from_ref(&x)).unwrap();
    close(&slope[0], 12.0);
    assert_eq!(called(), [1, 1, 1]);
    // Inside a region, batched, and for a value that no derivative needs.
    let outer = |x: &[Tensor]| Ok(call(|x| Ok(vec![counted(&x[0], &counts)?]), x)?.swap_remove(0));
    close(&grad(outer)(std::slice::from_ref(&x)).unwrap()[0], 12.0);
    assert_eq!(called(), [1, 1, 1]);
    let batch = Tensor::from_slice(&[1.0, 2.0], [2]).unwrap();
    let each = vmap(|x: &[Tensor]| grad(|x| counted(&x[0], &counts))(x), &[Some(0)]);
    let slopes = each(std::slice::from_ref(&batch)).unwrap();
    assert_eq!(slopes[0].to_vec::<f64>().unwrap(), [4.0, 8.0]);
    let whole = |x: &[Tensor]| {
        let all = vmap(|x: &[Tensor]| Ok(vec![counted(&x[0], &counts)?]), &[Some(0)])(x)?;
        all[0].sum_all()
    };
    let slopes = grad(whole)(std::slice::from_ref(&batch)).unwrap();
    assert_eq!(slopes[0].to_vec::<f64>().unwrap(), [4.0, 8.0]);
    called();
    let unused = |x: &[Tensor]| {
        counted(&x[0], &counts)?;
        x[0].mul(2.0)
    };
    close(&grad(unused)(&[x]).unwrap()[0], 2.0);
    assert_eq!(called(), [1, 0, 0]);
}

#[test]
fn rules_refer_to_data_also_in_loops_and_programs() {
    let f = |x: &Tensor| {
        let rule = |x: &[Tensor], t: &[Tensor]| {
            let slopes = Tensor::from_slice(&[1.0, 10.0], [2])?;
            Ok((vec![x[0].clone()], vec![t[0].mul(&slopes)?]))
        };
        custom_jvp(|x| Ok(x.to_vec()), rule, std::slice::from_ref(x)).map(|mut y| y.swap_remove(0))
    };
    let looped = |x: &[Tensor]| {
        let step = |c: &[Tensor], _: &[Tensor]| Ok((vec![f(&c[0])?], Vec::new()));
        scan_with(step, x, &[], ScanOptions::length(2))?.0[0].sum_all()
    };
    let x = Tensor::from_slice(&[1.0, 1.0], [2]).unwrap();
    let slopes = grad(looped)(std::slice::from_ref(&x)).unwrap();
    assert_eq!(slopes[0].to_vec::<f64>().unwrap(), [1.0, 100.0]);
    let program = Program::capture(&[&looped(std::slice::from_ref(&x)).unwrap()], &[&x]).unwrap();
    let id = program.inputs()[0].id;
    let of_program = program.grad(&[id]).unwrap().call(&[&x]).unwrap();
    assert_eq!(of_program[0].to_vec::<f64>().unwrap(), [1.0, 100.0]);
    // A file contains the rules, with the tensors that they refer to.
    let again = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    let of_file = again.grad(&[again.inputs()[0].id]).unwrap().call(&[&x]).unwrap();
    assert_eq!(of_file[0].to_vec::<f64>().unwrap(), [1.0, 100.0]);
}
