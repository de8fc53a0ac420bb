//! Tests of collectives over named batch axes.

use girih::{
    DType, Dim, Error, Members, Result, Shape, Tensor, all_gather, all_to_all, axis_index,
    axis_size, grad, pmax, pmean, ppermute, pshuffle, psum, psum_scatter, vmap, vmap_named,
};

fn rows() -> Tensor {
    Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]).unwrap()
}

/// The results of a function of one row, batched over three rows.
fn named(f: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<f64>> {
    let all = vmap_named("i", |x: &[Tensor]| Ok(vec![f(&x[0])?]), &[Some(0)])(&[rows()])?;
    all[0].astype(DType::F64)?.to_vec::<f64>()
}

#[test]
fn each_collective_is_an_op_along_the_batch() -> Result<()> {
    assert_eq!(named(|x| psum(x, "i"))?, [9.0, 12.0].repeat(3));
    assert_eq!(named(|x| pmean(x, "i"))?, [3.0, 4.0].repeat(3));
    assert_eq!(named(|x| pmax(x, "i"))?, [5.0, 6.0].repeat(3));
    assert_eq!(named(|_| axis_index("i"))?, [0.0, 1.0, 2.0]);
    assert_eq!(
        named(|x| all_gather(x, "i", 0, Members::Tiled))?,
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].repeat(3)
    );
    let sent = named(|x| ppermute(x, "i", &[(0, 2), (2, 1)]))?;
    assert_eq!(sent, [0.0, 0.0, 5.0, 6.0, 1.0, 2.0]);
    assert_eq!(named(|x| pshuffle(x, "i", &[1, 2, 0]))?, [3.0, 4.0, 5.0, 6.0, 1.0, 2.0]);
    let scattered = named(|x| {
        psum_scatter(&all_gather(x, "i", 0, Members::Stacked)?, "i", 0, Members::Stacked)
    })?;
    assert_eq!(scattered, [3.0, 6.0, 9.0, 12.0, 15.0, 18.0]);
    let exchanged = named(|x| {
        all_to_all(&all_gather(x, "i", 0, Members::Stacked)?, "i", 0, 0, Members::Stacked)
    })?;
    assert_eq!(exchanged[..6], [1.0, 2.0].repeat(3));
    Ok(())
}

#[test]
fn an_unnamed_inner_batch_keeps_the_named_axis() -> Result<()> {
    let shares = |x: &[Tensor]| Ok(vec![x[0].div(&psum(&x[0], "i")?)?]);
    let found = named(|x| Ok(vmap(shares, &[Some(0)])(std::slice::from_ref(x))?.swap_remove(0)))?;
    assert_eq!(found[..2], [1.0 / 9.0, 2.0 / 12.0]);
    Ok(())
}

#[test]
fn gradients_count_all_members() -> Result<()> {
    let loss = |x: &[Tensor]| psum(&x[0].mul(&x[0])?, "i")?.sum_all();
    let inside = named(|x| Ok(grad(loss)(std::slice::from_ref(x))?.swap_remove(0)))?;
    assert_eq!(inside, [6.0, 12.0, 18.0, 24.0, 30.0, 36.0]);
    Ok(())
}

#[test]
fn sizes_may_be_symbolic_and_are_not_read() -> Result<()> {
    named(|_| {
        assert_eq!(axis_size("i")?, Dim::from(3));
        let two = vmap_named("j", |_| Ok(vec![axis_index(["i", "j"])?]), &[Some(0)]);
        let index = two(&[Tensor::ones([2], DType::F32)?])?;
        assert_eq!(index[0].shape(), Shape::from([2]));
        Ok(index.into_iter().next().unwrap())
    })
    .map(|found| assert_eq!(found, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
}

#[test]
fn unbound_axis_names_are_errors_that_list_the_bound_names() {
    let message = |e: Error| e.to_string();
    let outside = message(psum(&rows(), "i").unwrap_err());
    assert!(outside.contains("no axis 'i': no axis has a name here"), "{outside}");
    let other = message(named(|x| psum(x, "k")).unwrap_err());
    assert!(other.contains("'i' (size 3)"), "{other}");
    let unnamed = vmap_named("", |x: &[Tensor]| Ok(x.to_vec()), &[Some(0)])(&[rows()]);
    assert!(message(unnamed.unwrap_err()).contains("at least one"));
    // The name is unbound after the function, even if it fails.
    assert!(axis_size("i").is_err());
}
