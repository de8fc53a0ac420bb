//! Memory accesses of a kernel under construction: addresses through views and reshapes.

use super::Builder;
use crate::fuse::Refusal;
use crate::fuse::buffers::base;
use crate::fuse::kernel::Rebuild;
use crate::fuse::map::{AffineMap, Dims, NoMap};
use crate::fuse::memo::At;
use crate::fuse::operand;
use crate::ir::{Access, AccessId, Inst, Val};
use girih_ir::{Class, NodeId};

/// The nodes through which an address is composed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Through views.
    Views,
    /// Through views, with an additional dimension of so many points (a gather's index), which
    /// cannot be split for a reshape.
    Indexed(usize),
    /// Through views, and through casts that a GEMM applies to its operands.
    Operand,
}

impl Builder<'_, '_> {
    /// Loads a value that is in memory, or a reshape of one.
    pub(super) fn load(&mut self, node: NodeId, at: At) -> Val {
        let strides = self.graph.spec(node).shape.strides();
        let (offset, strides) =
            self.maps[at.map as usize].strides(&strides, self.dims(at.prologue));
        let access = self.make_access(base(self.graph, node), offset, strides);
        let id = self.add_access(access);
        let known = self.loads.iter().find(|l| (l.0, l.1) == (at.prologue, id)).map(|l| l.2);
        known.unwrap_or_else(|| {
            let val = self.block(at.prologue).push(Inst::Load(id));
            self.loads.push((at.prologue, id, val));
            val
        })
    }

    /// Follows views down to a value in memory, moving the last one there if necessary. Returns the
    /// node that has the memory, the offset and the strides.
    pub(super) fn address(
        &mut self,
        mut node: NodeId,
        mut map: AffineMap,
        reach: Reach,
    ) -> Result<(NodeId, isize, Dims<isize>), Rebuild> {
        let mut extents = self.nest.extents.clone();
        if let Reach::Indexed(size) = reach {
            extents.push(size);
        }
        let casts = reach == Reach::Operand && self.inputs.plan.options.elementwise;
        loop {
            let (n, bottom) = (self.graph.node(node), base(self.graph, node));
            let below = self.graph.node(bottom);
            let cast = casts && operand::extends(self.graph, below);
            if !self.in_memory(bottom) && below.op.class() != Class::View && !cast {
                self.keep(bottom, Refusal::Memory);
            }
            if self.in_memory(bottom) {
                let (offset, strides) = map.strides(&n.spec.shape.strides(), extents.len());
                return Ok((bottom, offset, strides));
            }
            if n.op.class() == Class::View {
                map = self.through_view(node, &map);
                node = n.inputs[0];
                continue;
            }
            if node == bottom {
                // A cast that the GEMM applies.
                if !self.ops.contains(&node) {
                    self.ops.push(node);
                }
                node = n.inputs[0];
                continue;
            }
            match map.reshape(&n.spec.shape, &self.graph.spec(bottom).shape, &extents) {
                Ok(inner) => (map, node) = (inner, bottom),
                Err(NoMap::Split { dim, inner }) if !matches!(reach, Reach::Indexed(_)) => {
                    return Err(Rebuild::Split { dim: dim as usize, inner });
                }
                // The next iteration finds the value in memory.
                Err(_) => {
                    self.keep(bottom, Refusal::Reshape);
                }
            }
        }
    }

    pub(super) fn make_access(
        &mut self,
        node: NodeId,
        offset: isize,
        strides: Dims<isize>,
    ) -> Access {
        let buffer = self.inputs.buffers.of(self.graph, node);
        Access { buffer, dtype: self.graph.spec(node).dtype, offset, strides }
    }

    pub(super) fn add_access(&mut self, access: Access) -> AccessId {
        let known = self.accesses.iter().position(|a| *a == access);
        let id = known.unwrap_or_else(|| {
            self.accesses.push(access);
            self.accesses.len() - 1
        });
        AccessId(id as u32)
    }
}
