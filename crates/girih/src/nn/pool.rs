//! Pooling layers. The number of pooled last axes is the number of sizes.

use super::{Layer, Module};
use crate::{PoolOptions, Result, Tensor};

/// The largest element of each window.
#[derive(Clone, Debug)]
pub struct MaxPool(pub PoolOptions);

/// The mean of each window.
#[derive(Clone, Debug)]
pub struct AvgPool(pub PoolOptions);

/// `sum(|x|^p)^(1/p)` of each window.
#[derive(Clone, Debug)]
pub struct LpPool(pub f64, pub PoolOptions);

/// The means of windows that are placed so that the result has these sizes.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool(pub Vec<usize>);

/// The largest elements of windows that are placed so that the result has these sizes.
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool(pub Vec<usize>);

impl MaxPool {
    /// A layer with adjacent windows of these sizes.
    pub fn new(size: &[usize]) -> MaxPool {
        MaxPool(PoolOptions::new(size))
    }
}

impl AvgPool {
    /// A layer with adjacent windows of these sizes.
    pub fn new(size: &[usize]) -> AvgPool {
        AvgPool(PoolOptions::new(size))
    }
}

impl Module for MaxPool {}

impl Layer for MaxPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.max_pool(&self.0)
    }
}

impl Module for AvgPool {}

impl Layer for AvgPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.avg_pool(&self.0)
    }
}

impl Module for LpPool {}

impl Layer for LpPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.lp_pool(self.0, &self.1)
    }
}

impl Module for AdaptiveAvgPool {}

impl Layer for AdaptiveAvgPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_avg_pool(&self.0)
    }
}

impl Module for AdaptiveMaxPool {}

impl Layer for AdaptiveMaxPool {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_max_pool(&self.0)
    }
}
