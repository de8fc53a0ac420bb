//! Variables of the imperative style: tensors that take the place of others, and the roots of
//! `backward`.

use girih::{Result, Tensor, take_roots};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn variable(values: &[f32]) -> Result<Tensor> {
    let x = Tensor::from_slice(values, [values.len()])?;
    x.set_requires_grad(true)?;
    Ok(x)
}

fn loss(x: &Tensor) -> Result<Tensor> {
    x.mul(x)?.sum_all()
}

#[test]
fn a_tensor_takes_the_gradient_and_the_hooks_of_another() -> Result<()> {
    let x = variable(&[1.0, 2.0])?;
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let hook = x.register_hook(Arc::new(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }))?;
    loss(&x)?.backward()?;
    let y = Tensor::from_slice(&[3.0f32, 4.0], [2])?;
    y.take_place_of(&x)?;
    assert!(y.requires_grad() && y.is_leaf());
    assert_eq!(y.grad().expect("it was x's").to_vec::<f32>()?, [2.0, 4.0]);
    loss(&y)?.backward()?;
    assert_eq!(y.grad().expect("it has added up").to_vec::<f32>()?, [8.0, 12.0]);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    x.remove_hook(hook);
    loss(&y)?.backward()?;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    Ok(())
}

#[test]
fn backward_to_a_tensor_whose_place_another_has_taken_is_an_error() -> Result<()> {
    let x = variable(&[1.0])?;
    let early = loss(&x)?;
    Tensor::from_slice(&[3.0f32], [1])?.take_place_of(&x)?;
    let error = early.backward().expect_err("x has been replaced").to_string();
    assert!(error.contains("another value now"), "{error}");
    Ok(())
}

#[test]
fn roots_are_the_live_tensors_of_this_thread() -> Result<()> {
    take_roots();
    let x = variable(&[1.0])?;
    let first = loss(&x)?;
    first.backward()?;
    loss(&x)?.backward()?;
    std::thread::scope(|scope| scope.spawn(|| assert!(take_roots().is_empty())).join())
        .expect("the other thread has called nothing");
    let roots = take_roots();
    assert_eq!(roots.len(), 1);
    assert!(roots[0].is_same(&first) && take_roots().is_empty());
    Ok(())
}
