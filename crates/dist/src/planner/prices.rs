//! Meshes, and the cost of transforms, each computed once.

use super::ways::Way;
use crate::fabric::FabricCost;
use crate::layout::MeshLayout;
use crate::transform::{TransformKind, combine_cost, transform};
use crate::{LayoutError, Result, layout_mesh};
use girih_ir::{DeviceMesh, Graph, NodeId, P};
use std::cell::RefCell;
use std::collections::HashMap;

/// A tensor: its shape and the bytes of an element.
pub(crate) type Tensor = (Vec<usize>, usize);

/// Old and new layout of a tensor.
type OperandKey = (MeshLayout, MeshLayout, Tensor);

/// Mesh and spec of a way, and the new layout of a tensor.
type ResultKey = ((usize, usize), P, MeshLayout, Tensor);

#[derive(Default)]
pub(super) struct Prices {
    meshes: RefCell<HashMap<(usize, usize), DeviceMesh>>,
    operands: RefCell<HashMap<OperandKey, (TransformKind, FabricCost)>>,
    results: RefCell<HashMap<ResultKey, Option<FabricCost>>>,
}

/// The shape of a value and the bytes of an element.
pub(crate) fn tensor(graph: &Graph, id: NodeId) -> Result<Tensor> {
    let spec = graph.spec(id);
    if spec.shape.is_symbolic() {
        let reason = format!("{id} has the symbolic shape {}; bind the sizes first", spec.shape);
        return Err(LayoutError::Graph(reason));
    }
    Ok((spec.shape.hints().to_vec(), spec.dtype.size()))
}

impl Prices {
    /// A mesh of rows and columns, for propagation.
    pub(super) fn mesh(&self, (rows, cols): (usize, usize)) -> Result<DeviceMesh> {
        if let Some(mesh) = self.meshes.borrow().get(&(rows, cols)) {
            return Ok(mesh.clone());
        }
        let mesh = layout_mesh(rows, cols, cols)?;
        self.meshes.borrow_mut().insert((rows, cols), mesh.clone());
        Ok(mesh)
    }

    /// The transform of a value from one layout to another.
    pub(super) fn operand(
        &self,
        from: &MeshLayout,
        to: &MeshLayout,
        tensor: &Tensor,
    ) -> Result<(TransformKind, FabricCost)> {
        if from == to {
            return Ok((TransformKind::Identity, FabricCost::default()));
        }
        let key = (from.clone(), to.clone(), tensor.clone());
        if let Some(&found) = self.operands.borrow().get(&key) {
            return Ok(found);
        }
        let found = transform(from, to, &tensor.0, tensor.1)?;
        let found = (found.kind, found.cost);
        self.operands.borrow_mut().insert(key, found);
        Ok(found)
    }

    /// The cost of giving the result of a way its layout; `None` if that is not possible.
    pub(super) fn result(
        &self,
        way: &Way,
        to: &MeshLayout,
        tensor: &Tensor,
    ) -> Result<Option<FabricCost>> {
        let (rows, cols) = way.mesh;
        if let Some(computed) = MeshLayout::of_spec(rows, cols, &way.spec, tensor.0.len())? {
            return Ok(Some(self.operand(&computed, to, tensor)?.1));
        }
        let key = (way.mesh, way.spec.clone(), to.clone(), tensor.clone());
        if let Some(&found) = self.results.borrow().get(&key) {
            return Ok(found);
        }
        let found = combine_cost(way.mesh, &way.spec, to, &tensor.0, tensor.1)?;
        self.results.borrow_mut().insert(key, found);
        Ok(found)
    }
}
