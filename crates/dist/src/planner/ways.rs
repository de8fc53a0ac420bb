//! The ways to run an op on a mesh of processing elements, by the propagation of shardings.

use super::prices::Prices;
use crate::layout::MeshLayout;
use crate::propagate::{Call, Operand, backward, step};
use crate::{LayoutError, Result};
use girih_ir::{Factors, Graph, NodeId, P, TensorSpec};

/// A way to compute an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The layout in which the op takes each operand.
    pub(super) operands: Vec<MeshLayout>,
    /// Rows and columns of the mesh.
    pub(super) mesh: (usize, usize),
    /// The spec of the result as the op computes it, over axes `row` and `col`; it may be partial.
    pub(super) spec: P,
}

fn invalid(error: girih_ir::Error) -> LayoutError {
    LayoutError::Spec(error.to_string())
}

fn mesh_of(layout: &MeshLayout) -> (usize, usize) {
    (layout.rows(), layout.cols())
}

/// The spec of a layout on a mesh: nothing is known of a layout on another mesh, or one that is no
/// sharding.
fn spec_on(mesh: (usize, usize), layout: Option<&MeshLayout>, rank: usize) -> Result<P> {
    let here = layout.filter(|layout| mesh_of(layout) == mesh);
    Ok(here.map(|layout| layout.spec(rank)).transpose()?.flatten().unwrap_or_default())
}

/// The ways to compute an op: on the mesh of each of its operands, forward from their layouts; and
/// given a wanted layout of the result, backward from it as well. An operand without a layout is a
/// literal. An op without factors runs on one processor.
pub(super) fn ways(
    graph: &Graph,
    id: NodeId,
    operands: &[Option<&MeshLayout>],
    wanted: Option<&MeshLayout>,
    prices: &Prices,
) -> Result<Vec<Way>> {
    let node = graph.node(id);
    let specs: Vec<&TensorSpec> = node.inputs.iter().map(|&input| graph.spec(input)).collect();
    let Ok(factors) = node.op.factors(&specs, &node.spec) else {
        let operands = vec![MeshLayout::single_pe(); specs.len()];
        return Ok(vec![Way { operands, mesh: (1, 1), spec: P::default() }]);
    };
    let mut meshes: Vec<(usize, usize)> = Vec::new();
    for layout in operands.iter().copied().flatten().chain(wanted) {
        if !meshes.contains(&mesh_of(layout)) {
            meshes.push(mesh_of(layout));
        }
    }
    if meshes.is_empty() {
        meshes.push((1, 1));
    }
    let mut found: Vec<Way> = Vec::new();
    for mesh in meshes {
        let ways = ways_on(graph, id, &factors, mesh, operands, wanted, prices)?;
        found.extend(ways.into_iter().flatten());
    }
    Ok(found)
}

fn ways_on(
    graph: &Graph,
    id: NodeId,
    factors: &Factors,
    mesh: (usize, usize),
    operands: &[Option<&MeshLayout>],
    wanted: Option<&MeshLayout>,
    prices: &Prices,
) -> Result<[Option<Way>; 2]> {
    let node = graph.node(id);
    let on = prices.mesh(mesh)?;
    let inputs = node.inputs.iter().map(|&input| graph.spec(input));
    let specs = inputs.clone().zip(operands);
    let specs = specs.map(|(tensor, layout)| spec_on(mesh, *layout, tensor.shape.rank()));
    let specs: Vec<P> = specs.collect::<Result<_>>()?;
    let given = inputs.clone().zip(&specs);
    let given: Vec<Operand<'_>> = given.map(|(tensor, spec)| Operand { tensor, spec }).collect();
    let call =
        Call { factors, operands: &given, result: &node.spec, mesh: &on, op: Some(&node.op) };
    let forward = step(&call).map_err(invalid)?;
    let here = wanted.filter(|layout| mesh_of(layout) == mesh);
    let back = match here {
        None => None,
        Some(_) => {
            let wanted = spec_on(mesh, here, node.spec.shape.rank())?;
            Some(backward(&call, &wanted).map_err(invalid)?)
        }
    };
    let way = |step: crate::propagate::Step| {
        let layouts = step.operands.iter().zip(inputs.clone());
        let layouts = layouts
            .map(|(spec, tensor)| MeshLayout::of_spec(mesh.0, mesh.1, spec, tensor.shape.rank()));
        let layouts = layouts.collect::<Result<Option<Vec<MeshLayout>>>>()?;
        Ok(layouts.map(|operands| Way { operands, mesh, spec: step.result }))
    };
    Ok([way(forward)?, back.map(way).transpose()?.flatten()])
}

impl Way {
    /// The layouts that the result has after the least communication: its own, with partial values
    /// combined on all processors that have some, or on the first of them.
    pub(super) fn landings(&self, rank: usize) -> Result<Vec<MeshLayout>> {
        let whole = P { partial: Default::default(), ..self.spec.clone() };
        let (rows, cols) = self.mesh;
        let partial_over = |name: &str| self.spec.partial.keys().any(|axis| axis.name() == name);
        let first = (
            if partial_over("row") { 1 } else { rows },
            if partial_over("col") { 1 } else { cols },
        );
        let mut found = Vec::new();
        for (rows, cols) in [first, (rows, cols)] {
            let layout = MeshLayout::of_spec(rows, cols, &whole, rank)?;
            found.extend(layout.filter(|layout| !found.contains(layout)));
        }
        Ok(found)
    }

    /// The layout with the tiles in which the op computes its result, before they are combined.
    pub(super) fn computed(&self, rank: usize) -> Result<Option<MeshLayout>> {
        let whole = P { partial: Default::default(), ..self.spec.clone() };
        MeshLayout::of_spec(self.mesh.0, self.mesh.1, &whole, rank)
    }
}
