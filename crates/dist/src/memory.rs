//! Memory of the processing elements (PEs): where each PE has its tiles of a graph's values, planned
//! before anything runs. A PE has no other memory, so that a plan that does not fit is an error.
//!
//! All PEs have a value at one offset, so that they run one program: a region is as large as the
//! largest tile. Values live from the op that computes them to the last one that reads them; the
//! arguments from the beginning, and the outputs to the end. An op that works on each element may
//! write over an operand that nobody reads later. A transform has old and new tiles at once.
//!
//! Source: linear scan over live ranges with a list of free blocks, as the design's document on memory
//! and layout describes it.

mod arena;
mod budget;

pub use budget::{DoubleBuffer, MemoryBudget};

use crate::fit::LayoutConstraints;
use crate::layout::{LayoutKind, MeshLayout, Pe};
use crate::planner::{GraphLayouts, OperandTransform, tensor};
use crate::{LayoutError, Result, layout_mesh, ownership};
use arena::Arena;
use girih_ir::factors::Role;
use girih_ir::ops::Class;
use girih_ir::{Graph, NodeId, Sharding};
use std::collections::BTreeMap;

/// A region of a PE's data memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// The offset of the first byte.
    pub offset: usize,
    /// The number of bytes.
    pub size: usize,
    /// The tensor or buffer that is in the region.
    pub name: String,
}

impl MemoryRegion {
    /// True if a byte is in both. A region without bytes overlaps none.
    pub fn overlaps(&self, other: &MemoryRegion) -> bool {
        let (start, end) = (self.offset.max(other.offset), self.end().min(other.end()));
        start < end
    }

    fn end(&self) -> usize {
        self.offset.saturating_add(self.size)
    }
}

/// The region in which the PEs have a value, or a copy of the value in another layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The value.
    pub value: NodeId,
    /// Its layout, or that of the copy. `None` for the partial values of an op before they are
    /// combined, which all PEs of its mesh have.
    pub layout: Option<MeshLayout>,
    /// The first and the last op during which it is live, as positions in the graph.
    pub live: (usize, usize),
    /// The region, as large as the largest tile.
    pub region: MemoryRegion,
    /// The operand whose region it takes over.
    pub reuses: Option<NodeId>,
    mesh: (usize, usize),
}

/// The memory of one PE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeMemory {
    /// The bytes up to the end of the last tile.
    pub used: usize,
    /// The bytes for data.
    pub available: usize,
    /// The regions of its tiles.
    pub regions: Vec<MemoryRegion>,
}

impl PeMemory {
    /// The bytes that are left, 0 if the plan does not fit.
    pub fn free_bytes(&self) -> usize {
        self.available.saturating_sub(self.used)
    }
}

/// A memory plan that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The bytes for data of each PE.
    pub available: usize,
    /// The values and copies, in the order in which they are placed.
    pub placements: Vec<Placement>,
    shapes: BTreeMap<NodeId, (Vec<usize>, usize)>,
}

impl MemoryPlan {
    /// The rows and columns of PEs that have tiles.
    pub fn mesh(&self) -> (usize, usize) {
        let larger = |(rows, cols): (usize, usize), placement: &Placement| {
            (rows.max(placement.mesh.0), cols.max(placement.mesh.1))
        };
        self.placements.iter().fold((0, 0), larger)
    }

    fn pes(&self) -> impl Iterator<Item = Pe> + use<> {
        let (rows, cols) = self.mesh();
        (0..rows).flat_map(move |row| (0..cols).map(move |col| Pe { row, col }))
    }

    /// The bytes of a placement's tile on a PE.
    fn tile_bytes(&self, placement: &Placement, pe: Pe) -> usize {
        if pe.row >= placement.mesh.0 || pe.col >= placement.mesh.1 {
            return 0;
        }
        let (shape, item) = &self.shapes[&placement.value];
        match &placement.layout {
            // The layout has had a tile of this shape before.
            Some(layout) => layout.tile_bytes(pe, shape, *item).unwrap_or(0),
            None => placement.region.size,
        }
    }

    /// The memory of a PE.
    pub fn pe(&self, pe: Pe) -> PeMemory {
        let regions = self.placements.iter().filter_map(|placement| {
            let size = self.tile_bytes(placement, pe);
            (size > 0).then(|| MemoryRegion { size, ..placement.region.clone() })
        });
        PeMemory { used: self.used(pe), available: self.available, regions: regions.collect() }
    }

    /// The bytes of a PE up to the end of its last tile.
    fn used(&self, pe: Pe) -> usize {
        let end = |placement: &Placement| match self.tile_bytes(placement, pe) {
            0 => 0,
            size => placement.region.offset.saturating_add(size),
        };
        self.placements.iter().map(end).max().unwrap_or(0)
    }

    /// The first PE that exceeds its memory, and the number of PEs that do.
    fn over(&self) -> (Pe, usize) {
        let (rows, cols) = self.mesh();
        let exceeds = |row, col| self.used(Pe { row, col }) > self.available;
        let custom = |placement: &Placement| {
            placement.layout.as_ref().is_some_and(|layout| layout.kind() == LayoutKind::Custom)
        };
        if self.placements.iter().any(custom) {
            let mut over = self.pes().filter(|pe| exceeds(pe.row, pe.col));
            let first = over.next().unwrap_or_default();
            return (first, 1 + over.count());
        }
        // Later PEs of a row or a column never have larger tiles: in each row, the first ones exceed.
        let in_row = |row| {
            let (mut low, mut high) = (0, cols);
            while low < high {
                let middle = (low + high) / 2;
                (low, high) = if exceeds(row, middle) { (middle + 1, high) } else { (low, middle) };
            }
            low
        };
        (Pe::default(), (0..rows).map(in_row).take_while(|&number| number > 0).sum())
    }

    /// The bytes that all PEs use.
    pub fn total_memory_used(&self) -> usize {
        self.pes().fold(0usize, |all, pe| all.saturating_add(self.used(pe)))
    }

    /// The bytes that the fullest PE uses.
    pub fn max_pe_memory_used(&self) -> usize {
        self.placements.iter().map(|placement| placement.region.end()).max().unwrap_or(0)
    }

    /// The part of the PEs' data memory that is used, 0 without PEs.
    pub fn average_utilization(&self) -> f64 {
        let (rows, cols) = self.mesh();
        let all = (rows * cols).max(1) as f64 * self.available as f64;
        self.total_memory_used() as f64 / all
    }

    /// The bytes that the fullest PE would use if nothing were reused.
    pub fn without_reuse(&self) -> usize {
        let sizes = self.placements.iter().map(|placement| placement.region.size);
        sizes.fold(0, usize::saturating_add)
    }

    /// The first PE that exceeds its memory, and what to do.
    fn exceeded(&self, budget: &MemoryBudget) -> LayoutError {
        let (rows, cols) = self.mesh();
        let (first, over) = self.over();
        let memory = self.pe(first);
        let largest = memory.regions.iter().max_by_key(|region| region.size);
        let placement = largest.and_then(|largest| {
            self.placements.iter().find(|placement| placement.region.name == largest.name)
        });
        let mut advice = String::new();
        if let Some((placement, largest)) = placement.zip(largest) {
            let (shape, item) = &self.shapes[&placement.value];
            let limit = largest.size as u128 * self.available as u128 / memory.used.max(1) as u128;
            let limits =
                LayoutConstraints { max_memory_per_pe: limit as usize, ..Default::default() };
            let layout = placement.layout.as_ref().map(|layout| format!(" as {layout}"));
            advice = format!(
                "; the largest region is {} of {} with {} B{}; use {}",
                largest.name,
                placement.value,
                largest.size,
                layout.unwrap_or_default(),
                limits.cure(shape, *item)
            );
        }
        LayoutError::Fit(format!(
            "PE ({}, {}) exceeds memory: {} > {} ({budget}), as do {} of {} PEs{advice}",
            first.row,
            first.col,
            memory.used,
            self.available,
            over,
            rows * cols
        ))
    }
}

/// A plan in the making.
struct Scan<'a> {
    graph: &'a Graph,
    layouts: &'a GraphLayouts,
    arena: Arena,
    /// The last position at which each value is read.
    last: Vec<usize>,
    plan: MemoryPlan,
    /// The place of each value that lives.
    place: BTreeMap<NodeId, usize>,
    /// The regions that end after a position: index of the placement.
    ends: BTreeMap<usize, Vec<usize>>,
}

/// Places the values of a graph under layouts.
///
/// Errors: [`LayoutError::Fit`] if a PE exceeds its memory; [`LayoutError::Graph`] for a value without
/// a layout and for symbolic sizes; as [`MeshLayout::rectangles`].
pub fn plan_memory(
    graph: &Graph,
    layouts: &GraphLayouts,
    budget: &MemoryBudget,
) -> Result<MemoryPlan> {
    let plan =
        MemoryPlan { available: budget.data()?, placements: vec![], shapes: BTreeMap::new() };
    let live = graph.live();
    let needed = |id: NodeId| live[id.index()] && graph.literal(id).is_none();
    let (arena, place, ends) = (Arena::new(), BTreeMap::new(), BTreeMap::new());
    let last = last_uses(graph, layouts, &live);
    let mut scan = Scan { graph, layouts, arena, last, plan, place, ends };
    let leaf = |id: NodeId| graph.node(id).op.class() == Class::Leaf;
    for id in graph.ids().filter(|&id| needed(id) && leaf(id)) {
        scan.value(id, 0)?;
    }
    for id in graph.ids().filter(|&id| live[id.index()]) {
        if needed(id) && !leaf(id) {
            scan.op(id)?;
        }
        scan.release(id.index());
    }
    match scan.plan.max_pe_memory_used() > scan.plan.available {
        true => Err(scan.plan.exceeded(budget)),
        false => Ok(scan.plan),
    }
}

/// The last position at which each value is read; a transform reads it at its first user.
fn last_uses(graph: &Graph, layouts: &GraphLayouts, live: &[bool]) -> Vec<usize> {
    let mut last: Vec<usize> = (0..graph.len()).collect();
    for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        for (position, &input) in node.inputs.iter().enumerate() {
            let mut copies = layouts.operands.iter().filter(|t| t.value == input);
            let copy = copies.find(|t| t.users.contains(&(id, position)));
            let reader = copy.and_then(OperandTransform::first_user).unwrap_or(id);
            last[input.index()] = last[input.index()].max(reader.index());
        }
    }
    for output in graph.outputs() {
        last[output.index()] = graph.len();
    }
    last
}

impl Scan<'_> {
    /// The shape of a value and the bytes of an element.
    fn shape(&mut self, id: NodeId) -> Result<(Vec<usize>, usize)> {
        let found = tensor(self.graph, id)?;
        self.plan.shapes.insert(id, found.clone());
        Ok(found)
    }

    /// Places a region that is live in a range.
    fn put(&mut self, mut placement: Placement, align: usize) {
        if placement.reuses.is_none() {
            placement.region.offset = self.arena.allocate(placement.region.size, align.max(4));
        }
        let at = self.plan.placements.len();
        self.ends.entry(placement.live.1).or_default().push(at);
        self.plan.placements.push(placement);
    }

    /// Places a value that is there from a position on.
    fn value(&mut self, id: NodeId, from: usize) -> Result<()> {
        let (shape, item) = self.shape(id)?;
        let layout = self.layouts.layout(id)?.clone();
        let size = layout.memory_per_pe(&shape, item)?;
        let reused = if from > 0 { self.dying_operand(id, &layout, size) } else { None };
        let offset = reused.map_or(0, |at| self.plan.placements[at].region.offset);
        let reuses = reused.map(|at| {
            let operand = &self.plan.placements[at];
            // The region lives on with the result.
            let ends = self.ends.get_mut(&operand.live.1).expect("it is live");
            ends.retain(|&end| end != at);
            operand.value
        });
        let region = MemoryRegion { offset, size, name: format!("tensor_{}", id.0) };
        let (live, mesh) = ((from, self.last[id.index()]), (layout.rows(), layout.cols()));
        self.place.insert(id, self.plan.placements.len());
        let layout = Some(layout);
        self.put(Placement { value: id, layout, live, region, reuses, mesh }, item);
        Ok(())
    }

    /// Places the copies that an op is the first one to read, the partial values that the op computes,
    /// and its result.
    fn op(&mut self, id: NodeId) -> Result<()> {
        let layouts = self.layouts;
        for transform in layouts.operands.iter().filter(|t| t.first_user() == Some(id)) {
            let (shape, item) = self.shape(transform.value)?;
            let size = transform.to.memory_per_pe(&shape, item)?;
            let operand = transform.users[0].1;
            let name = format!("transform_{}_{}_{operand}", transform.value.0, id.0);
            let region = MemoryRegion { offset: 0, size, name };
            let until = transform.users.last().map_or(id.index(), |(user, _)| user.index());
            let mesh = (transform.to.rows(), transform.to.cols());
            let (live, layout) = ((id.index(), until), Some(transform.to.clone()));
            let value = transform.value;
            self.put(Placement { value, layout, live, region, reuses: None, mesh }, item);
        }
        if let Some(result) = layouts.results.iter().find(|t| t.value == id) {
            let (shape, item) = self.shape(id)?;
            let invalid = |error: girih_ir::Error| LayoutError::Spec(error.to_string());
            let mesh = layout_mesh(result.mesh.0, result.mesh.1, result.mesh.1)?;
            let sharding = Sharding::new(mesh, result.spec.clone()).map_err(invalid)?;
            let tile = ownership::largest_shape(&sharding, &shape).map_err(invalid)?;
            let size = tile.into_iter().fold(item, usize::saturating_mul);
            let region = MemoryRegion { offset: 0, size, name: format!("partial_{}", id.0) };
            let live = (id.index(), id.index());
            let (layout, mesh) = (None, result.mesh);
            self.put(Placement { value: id, layout, live, region, reuses: None, mesh }, item);
        }
        self.value(id, id.index())
    }

    /// The place of an operand that an elementwise op reads last, and may write its result over.
    fn dying_operand(&self, id: NodeId, layout: &MeshLayout, size: usize) -> Option<usize> {
        let node = self.graph.node(id);
        if self.layouts.results.iter().any(|t| t.value == id) {
            return None;
        }
        let specs: Vec<_> = node.inputs.iter().map(|&input| self.graph.spec(input)).collect();
        let factors = node.op.factors(&specs, &node.spec).ok()?;
        if factors.factors().iter().any(|factor| factor.role != Role::Pointwise) {
            return None;
        }
        let rank = node.spec.shape.rank();
        let fits = |(position, (&input, axes)): (usize, (&NodeId, &Vec<_>))| {
            let at = *self.place.get(&input)?;
            let place = &self.plan.placements[at];
            let transformed =
                |t: &OperandTransform| t.value == input && t.users.contains(&(id, position));
            let same = axes == factors.result()
                && place
                    .layout
                    .as_ref()
                    .is_some_and(|own| own.simplest(rank) == layout.simplest(rank))
                && place.region.size == size
                && self.last[input.index()] == id.index()
                && !self.layouts.operands.iter().any(transformed);
            // Elements of other sizes would overwrite ones that are not read yet.
            let same_item = self.graph.spec(input).dtype.size() == node.spec.dtype.size();
            (same && same_item).then_some(at)
        };
        node.inputs.iter().zip(factors.operands()).enumerate().find_map(fits)
    }

    /// Frees what is not read after a position.
    fn release(&mut self, position: usize) {
        for at in self.ends.remove(&position).unwrap_or_default() {
            let region = &self.plan.placements[at].region;
            self.arena.release(region.offset, region.size);
        }
    }
}

#[cfg(test)]
mod tests;
