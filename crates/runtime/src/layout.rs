//! Plans for strided arguments, which are boxes of larger tensors. The elements of such an argument
//! are not contiguous in memory; the plan is compiled for the strides, so that no copy to a dense
//! block is needed.
//!
//! The argument becomes a vector of the elements from the box's first to its last, from which the
//! program reads nested windows. Fusion composes windows with the loops that read them, as it does
//! with all views, so a kernel addresses the larger tensor directly.

use crate::cache::CachedPlan;
use crate::plan::ArgumentSpec;
use crate::{CompileOptions, Error, LoadedPlan, PlanExecutor, Result};
use girih_ir::ops::window::WindowDim;
use girih_ir::{Graph, GraphBuilder, NodeId, OpCode, TensorSpec};

/// The strides of a tensor, in elements, for each axis.
pub type Strides = Box<[usize]>;

/// The number of elements from the first to the last element of a box with these strides,
/// inclusive.
pub(crate) fn span(spec: &TensorSpec, strides: &[usize]) -> usize {
    if spec.shape.has_no_elements() {
        return 0;
    }
    let reach = |(size, stride): (&usize, &usize)| (size - 1).saturating_mul(*stride);
    spec.shape.iter().zip(strides).map(reach).fold(1, usize::saturating_add)
}

/// The size in bytes of the memory from the first to the last element of a box with these strides.
pub(crate) fn span_bytes(spec: &TensorSpec, strides: &[usize]) -> usize {
    span(spec, strides).saturating_mul(spec.dtype.size())
}

/// The view of a box as windows of the vector from its first to its last element.
fn view(b: &mut GraphBuilder, spec: &TensorSpec, strides: &[usize]) -> girih_ir::Result<NodeId> {
    let sizes: Vec<usize> = spec.shape.iter().copied().collect();
    let mut extent = span(spec, strides);
    let mut x = b.input(TensorSpec::new([extent], spec.dtype));
    if extent == 0 {
        return b.reshape(x, spec.shape.clone());
    }
    for (axis, (&size, &stride)) in sizes.iter().zip(strides).enumerate() {
        // The span of the remaining axes for one index of this axis.
        let inner = TensorSpec::new(sizes[axis + 1..].to_vec(), spec.dtype);
        let rest = span(&inner, &strides[axis + 1..]);
        let is_whole = axis + 1 == sizes.len() && stride == 1;
        if !is_whole {
            let step = if size == 1 { 1 } else { stride };
            x = b.windows(x, vec![WindowDim { extent, size: rest, step, dilation: 1 }])?;
        }
        extent = rest;
    }
    b.reshape(x, spec.shape.clone())
}

/// The graph, in which each argument that has `strides` is replaced by a strided argument.
///
/// Errors: [`Error::ArgumentMismatch`] for strides of an argument that is not a tensor, a number of
/// strides that is not the rank, and a stride of 0.
fn strided(graph: &Graph, strides: &[Option<Strides>]) -> Result<Graph> {
    let mut of_node: Vec<Option<&[usize]>> = vec![None; graph.len()];
    for (index, id) in graph.arguments().enumerate() {
        let Some(Some(strides)) = strides.get(index) else { continue };
        let node = graph.node(id);
        let mut axes = node.spec.shape.iter().zip(strides);
        let moves = node.spec.shape.has_no_elements()
            || axes.all(|(&size, &stride)| size <= 1 || stride > 0);
        let is_tensor = matches!(node.op.code, OpCode::Input | OpCode::Parameter);
        if !is_tensor || node.spec.shape.rank() != strides.len() || !moves {
            let expected = format!("{} with a stride of at least 1 for each axis", node.spec);
            return Err(Error::ArgumentMismatch {
                index,
                expected,
                found: format!("strides {strides:?} of {}", node.op.name()),
            });
        }
        of_node[id.index()] = Some(strides);
    }
    let rewritten = graph.rewrite_nodes(|b, id, node| {
        of_node[id.index()].map(|strides| view(b, &node.spec, strides)).transpose()
    })?;
    Ok(rewritten.unwrap_or_else(|| graph.clone()))
}

impl PlanExecutor {
    /// The plan of a graph whose arguments have these strides, in elements, in larger tensors;
    /// `None` for a dense argument. Strided arguments are passed as [`crate::Argument::Strided`].
    /// The strides are part of the cache key.
    ///
    /// Errors: as [`PlanExecutor::plan`]; [`Error::ArgumentMismatch`] for invalid strides.
    pub fn plan_strided(
        &self,
        graph: &Graph,
        strides: &[Option<Strides>],
        options: CompileOptions,
    ) -> Result<CachedPlan> {
        if strides.iter().all(Option::is_none) {
            return self.plan(graph, options);
        }
        let mut key = self.key(graph, options);
        for (index, strides) in strides.iter().enumerate() {
            let strides = strides.iter().flat_map(|strides| strides.iter());
            let words = std::iter::once(index).chain(strides.copied());
            words.for_each(|word| key.extend_from_slice(&(word as u64).to_le_bytes()));
        }
        if self.use_cache
            && let Some(plan) = self.cache.get(&key)
        {
            return Ok(plan);
        }
        self.cache.count_miss();
        let rewritten = strided(graph, strides)?;
        let mut plan = self.compile(&rewritten, |graph| self.backend.compile(graph, options))?;
        let arguments = plan.arguments.iter_mut().zip(graph.arguments()).zip(strides);
        for ((argument, id), strides) in arguments {
            if let Some(strides) = strides {
                *argument = ArgumentSpec::Strided(graph.spec(id).clone(), strides.clone());
            }
        }
        let plan = CachedPlan::from(LoadedPlan::of(plan));
        if self.use_cache {
            self.cache.insert(key.into_boxed_slice(), plan.clone());
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
