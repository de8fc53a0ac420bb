//! Tests of random tensors: the same seed gives the same numbers, in recording order.

use crate::alone;
use girih::{DType, Error, Result, Tensor, eval, random};
use std::collections::HashSet;
use std::sync::MutexGuard;

/// Seeds the process's generator, and waits for the other tests to end.
fn seeded(seed: u64) -> MutexGuard<'static, ()> {
    let alone = alone();
    random::manual_seed(seed);
    alone
}

fn three() -> Result<[Tensor; 3]> {
    Ok([
        Tensor::rand([5], DType::F32)?,
        Tensor::randn([7], DType::F64)?,
        Tensor::randint(-3, 9, [6], DType::I16)?,
    ])
}

#[test]
fn one_seed_gives_one_sequence_whatever_is_evaluated_first() -> Result<()> {
    let _guard = seeded(7);
    let [a, b, c] = three()?;
    eval([&a, &b, &c])?;
    random::manual_seed(7);
    let [x, y, z] = three()?;
    assert_eq!(z.to_vec::<i16>()?, c.to_vec::<i16>()?);
    assert_eq!(y.mul(2.0)?.to_vec::<f64>()?, b.mul(2.0)?.to_vec::<f64>()?);
    assert_eq!(x.to_vec::<f32>()?, a.to_vec::<f32>()?);
    random::manual_seed(8);
    assert_ne!(Tensor::rand([5], DType::F32)?.to_vec::<f32>()?, a.to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_leaf_evaluated_twice_gives_the_same_numbers() -> Result<()> {
    let _guard = seeded(1);
    let x = Tensor::randn([100], DType::F32)?;
    let (plus, minus) = (x.add(1.0)?, x.sub(1.0)?);
    let (plus, minus) = (plus.to_vec::<f32>()?, minus.to_vec::<f32>()?);
    assert!(plus.iter().zip(&minus).all(|(p, m)| (p - m - 2.0).abs() < 1e-5));
    Ok(())
}

#[test]
fn no_two_leaves_share_a_number() -> Result<()> {
    let _guard = seeded(0);
    let mut seen = HashSet::new();
    for size in [1, 2, 3, 4, 5, 63, 64, 65, 1000] {
        // 53 random bits each: the probability of any collision is below 1e-9.
        for value in Tensor::rand([size], DType::F64)?.to_vec::<f64>()? {
            assert!(seen.insert(value.to_bits()), "{value} was drawn before");
        }
    }
    Ok(())
}

#[test]
fn draws_have_the_moments_they_should() -> Result<()> {
    let _guard = seeded(3);
    let n = 100_000;
    for dtype in [DType::F32, DType::F64] {
        let moments = |x: &Tensor| -> Result<(f64, f64)> {
            let (mean, var) = (x.mean_all()?, x.var(..)?);
            Ok((mean.to_f64_vec()?[0], var.to_f64_vec()?[0]))
        };
        let (mean, var) = moments(&Tensor::randn([n], dtype)?)?;
        assert!(mean.abs() < 0.02 && (var - 1.0).abs() < 0.03, "{mean} {var}");
        let uniform = Tensor::rand([n], dtype)?;
        let (mean, var) = moments(&uniform)?;
        assert!((mean - 0.5).abs() < 0.01 && (var - 1.0 / 12.0).abs() < 0.003, "{mean} {var}");
        let values = uniform.to_f64_vec()?;
        assert!(values.iter().all(|v| (0.0..1.0).contains(v)));
    }
    Ok(())
}

#[test]
fn integers_cover_their_range_and_no_more() -> Result<()> {
    let _guard = seeded(4);
    let values: Vec<i8> = Tensor::randint(-128, 128, [20_000], DType::I8)?.to_vec()?;
    assert_eq!(values.iter().collect::<HashSet<_>>().len(), 256);
    let wide: Vec<i64> = Tensor::randint(i64::MIN, -1, [100], DType::I64)?.to_vec()?;
    assert!(wide.iter().all(|v| *v < -1));
    let all = Tensor::randint(i64::MIN, 1i128 << 63, [100], DType::I64)?.to_vec::<i64>()?;
    assert!(all.iter().any(|v| *v < 0) && all.iter().any(|v| *v > 0));
    let all = Tensor::randint(0, 1i128 << 64, [100], DType::U64)?.to_vec::<u64>()?;
    assert!(all.iter().any(|v| *v > u64::MAX / 2));
    assert_eq!(Tensor::randint(255, 256, [2], DType::U8)?.to_vec::<u8>()?, [255, 255]);
    for (low, high, dtype) in [
        (0, 0, DType::I64),
        (1, 0, DType::I32),
        (0, 257, DType::U8),
        (-1, 3, DType::U8),
        (0, i64::MIN, DType::I64),
    ] {
        let error = Tensor::randint(low, high, [3], dtype).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
    }
    for dtype in [DType::F32, DType::Bool] {
        assert!(matches!(Tensor::randint(0, 1, [1], dtype), Err(Error::Record(_))));
    }
    assert!(matches!(Tensor::randn([1], DType::I32), Err(Error::Record(_))));
    Ok(())
}

#[test]
fn a_permutation_has_each_number_once() -> Result<()> {
    let _guard = seeded(5);
    let mut order: Vec<i64> = Tensor::randperm(1000)?.to_vec()?;
    assert!(order.iter().enumerate().any(|(i, v)| i as i64 != *v));
    order.sort_unstable();
    assert!(order.iter().enumerate().all(|(i, v)| i as i64 == *v));
    assert!(Tensor::randperm(0)?.to_vec::<i64>()?.is_empty());
    Ok(())
}

#[test]
fn a_key_gives_the_same_numbers_whatever_else_is_drawn() -> Result<()> {
    let _guard = seeded(0);
    let draws = |seed: i64| -> Result<random::Draws> {
        Ok(random::Draws::new().shape([1000]).key(&random::key(seed)?))
    };
    let first = random::normal(&draws(7)?, 2.0, 3.0)?.to_vec::<f32>()?;
    Tensor::rand([5], DType::F32)?;
    assert_eq!(random::normal(&draws(7)?, 2.0, 3.0)?.to_vec::<f32>()?, first);
    assert_ne!(random::normal(&draws(8)?, 2.0, 3.0)?.to_vec::<f32>()?, first);
    let mean = first.iter().sum::<f32>() / 1000.0;
    assert!((mean - 2.0).abs() < 0.5, "{mean}");
    let counts = random::poisson(&draws(7)?, 4.0)?.to_vec::<i64>()?;
    let mean = counts.iter().sum::<i64>() as f64 / 1000.0;
    assert!((mean - 4.0).abs() < 0.4, "{mean}");
    let keys = random::split(&random::key(7)?, 3)?.to_vec::<u64>()?;
    assert_eq!(keys.iter().collect::<HashSet<_>>().len(), 3);
    let wrong = random::gamma(&random::Draws::new().key(&Tensor::zeros([], DType::F32)?), 1.0, 1.0);
    assert!(wrong.unwrap_err().to_string().contains("key"));
    Ok(())
}
