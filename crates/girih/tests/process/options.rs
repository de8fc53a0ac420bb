//! Tests that switching off any pass or fusion does not change results.

use crate::alone;
use girih::{
    CompileOptions, DType, Result, Tensor, eval, keepdims, random, set_options, value_and_grad,
};

/// One step of a small network that every pass applies to, with fixed data.
fn step() -> Result<Vec<Vec<f64>>> {
    random::manual_seed(11);
    let x = Tensor::randn([6, 8], DType::F32)?;
    let w = Tensor::randn([8, 5], DType::F32)?.mul(0.3)?;
    let bias = Tensor::arange(0.0..5.0, DType::F32)?.mul(0.1)?;
    let labels = Tensor::from_slice(&[0i64, 4, 2, 1, 3, 2], [6])?;
    let f = value_and_grad(|p| {
        let h = x.matmul(&p[0])?.add(&p[1])?.gelu()?;
        let h = h.mul(1.0)?.add(0.0)?.layer_norm(1, None, None, 1e-5)?;
        let same = x.matmul(&p[0])?.add(&p[1])?.gelu()?;
        let penalty = same.t()?.flip(0)?.narrow(0, 1, 3)?.square()?.mean_all()?;
        h.cross_entropy(&labels)?.mean_all()?.add(&penalty.mul(0.01)?)
    });
    let (loss, gradients) = f(&[w, bias])?;
    let probabilities = x.softmax(1)?.log()?.reshape([4, 12])?.max(keepdims(0))?;
    let counted = labels.eq(2)?.sum_all()?;
    let outputs = [&loss, &gradients[0], &gradients[1], &probabilities, &counted];
    eval(outputs)?;
    outputs.iter().map(|t| t.to_f64_vec()).collect()
}

#[test]
fn every_pass_and_fusion_switched_off_gives_the_same_results() -> Result<()> {
    let _alone = alone();
    let all = CompileOptions::default();
    let expected = step()?;
    let off = (0..8).map(|bit| CompileOptions { passes: !(1 << bit), ..all });
    let unfused = (0..10).map(|bit| CompileOptions { fusion: !(1 << bit), ..all });
    let none = [
        CompileOptions { passes: 0, ..all },
        CompileOptions { fusion: 0, ..all },
        CompileOptions { passes: 0, fusion: 0, ..all },
    ];
    for options in off.chain(unfused).chain(none) {
        set_options(options)?;
        let found = step()?;
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(expected) {
                let tolerance = 2e-6 * b.abs().max(1.0);
                assert!((a - b).abs() <= tolerance, "{a} is not {b} under {options:?}");
            }
        }
    }
    set_options(all)
}
