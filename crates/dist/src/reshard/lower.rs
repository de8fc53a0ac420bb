//! Lowering of a reshard: each phase becomes, for each processor, a program that assembles its next
//! part from pieces of the parts before it. A runtime copies the pieces and runs the programs as any
//! others; it needs to know no collective.
//!
//! Pieces are in the order of the elements, and those that are combined in the order of processors.
//! So processors with pieces of equal shapes have one program, and a sum has the same bits on all.

use super::{Phase, Reshard, Transfer};
use crate::ownership::rectangles;
use crate::rect::{Extent, Rect};
use girih_ir::{
    DType, DeviceMesh, Graph, GraphBuilder, Literal, NodeId, OpCode, Result, Shape, Sharding,
    TensorSpec,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

/// Elements of a processor's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position of the processor that has the elements.
    pub from: usize,
    /// The elements, in indices of its part.
    pub rect: Rect,
}

/// How a processor makes its part of a value from pieces of the parts before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembly {
    /// The pieces, in the order of the program's arguments.
    pub pieces: Vec<Piece>,
    /// The program, whose output is the part. Without one, the part is the only piece; without
    /// pieces, too, there is no part, which nobody reads. Equal programs of a phase are shared.
    pub program: Option<Arc<Graph>>,
}

/// What a processor has between phases: a rectangle, or several, which are then stored one behind the
/// other as a tensor of rank 1.
struct Part(Vec<Rect>);

impl Part {
    /// The place of elements in the part; of several rectangles, only whole ones are read.
    fn place(&self, rect: &Rect) -> Rect {
        if let [only] = &self.0[..] {
            return Rect { start: rect.offset_in(only), extent: rect.extent.clone() };
        }
        let at = self.0.iter().position(|own| own == rect);
        let at = at.expect("combined elements are sent on as they were combined");
        let start = self.0[..at].iter().map(Rect::len).sum();
        Rect { start: Extent::from_slice(&[start]), extent: Extent::from_slice(&[rect.len()]) }
    }

    fn is_flat(&self) -> bool {
        self.0.len() > 1
    }
}

/// Elements of a part, which come from one piece or are combined from several.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Tile {
    /// The elements, in indices of the part; from index 0 if the part has several rectangles.
    rect: Rect,
    /// For each piece, whether it has rank 1.
    flat: Vec<bool>,
}

/// What the program of an assembly depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Recipe {
    tiles: Vec<Tile>,
    /// The shape of the part; `None` if the part has several rectangles.
    shape: Option<Extent>,
}

/// The programs of a phase.
struct Programs {
    dtype: DType,
    combine: Option<OpCode>,
    fill: Option<OpCode>,
    known: HashMap<Recipe, Option<Arc<Graph>>>,
}

impl Reshard {
    /// For each phase, the assembly of each processor: of the new mesh in the last phase, and before
    /// it of the old mesh. The pieces of the first phase are of the old shards. `from`, `to` and the
    /// tensor are those of the reshard.
    ///
    /// Errors: those of the op that combines partial values, on the tensor's dtype.
    ///
    /// Cost: linear in the transfers, and quadratic in the pieces of each different program.
    pub fn lower(
        &self,
        from: &Sharding,
        to: &Sharding,
        tensor: &TensorSpec,
    ) -> Result<Vec<Vec<Assembly>>> {
        let shape = tensor.shape.hints();
        let (old, new) = (rectangles(from, shape)?, rectangles(to, shape)?);
        self.lowered((from.mesh(), old), (to.mesh(), new), tensor.dtype)
    }

    /// As `lower`, with the elements that each processor of each mesh has.
    pub(crate) fn lowered(
        &self,
        (from, old): (&DeviceMesh, Vec<Rect>),
        (to, new): (&DeviceMesh, Vec<Rect>),
        dtype: DType,
    ) -> Result<Vec<Vec<Assembly>>> {
        let whole = |rects: Vec<Rect>| rects.into_iter().map(|rect| Part(vec![rect])).collect();
        let (mut parts, mut new): (Vec<Part>, Option<Vec<Part>>) = (whole(old), Some(whole(new)));
        // The first phase reads old shards, and the second one what the old processors combined.
        let positions = positions(from);
        let mut steps = Vec::with_capacity(self.phases.len());
        for (at, phase) in self.phases.iter().enumerate() {
            let is_last = at + 1 == self.phases.len();
            let arriving = by_target(phase, if is_last { to } else { from });
            let next = match new.take_if(|_| is_last) {
                Some(new) => new,
                None => arriving.iter().map(|transfers| Part(rects_of(transfers))).collect(),
            };
            let fill = self.fill.filter(|_| is_last);
            let known = HashMap::new();
            let mut programs = Programs { dtype, combine: phase.combine, fill, known };
            let step = arriving.iter().zip(&next).map(|(transfers, part)| {
                assembly(transfers, part, &parts, &positions, &mut programs)
            });
            steps.push(step.collect::<Result<_>>()?);
            parts = next;
        }
        Ok(steps)
    }
}

fn positions(mesh: &DeviceMesh) -> HashMap<u32, usize> {
    (0..mesh.len()).map(|position| (mesh.device(position), position)).collect()
}

/// The transfers to each processor, in the order of the elements.
fn by_target<'a>(phase: &'a Phase, mesh: &DeviceMesh) -> Vec<Vec<&'a Transfer>> {
    let positions = positions(mesh);
    let mut arriving = vec![Vec::new(); mesh.len()];
    for transfer in &phase.transfers {
        arriving[positions[&transfer.target]].push(transfer);
    }
    // Stable: those that are combined stay in the order of processors.
    arriving.iter_mut().for_each(|transfers| transfers.sort_by(|a, b| a.rect.cmp(&b.rect)));
    arriving
}

fn rects_of(transfers: &[&Transfer]) -> Vec<Rect> {
    let mut rects: Vec<Rect> = transfers.iter().map(|transfer| transfer.rect.clone()).collect();
    rects.dedup();
    rects
}

fn assembly(
    transfers: &[&Transfer],
    part: &Part,
    before: &[Part],
    positions: &HashMap<u32, usize>,
    programs: &mut Programs,
) -> Result<Assembly> {
    let mut recipe = Recipe { tiles: Vec::new(), shape: None };
    let origin = |rect: &Rect| match &part.0[..] {
        [only] => rect.offset_in(only),
        _ => Extent::from_elem(0, rect.start.len()),
    };
    if let [only] = &part.0[..] {
        recipe.shape = Some(only.extent.clone());
    }
    let mut pieces = Vec::with_capacity(transfers.len());
    for same in transfers.chunk_by(|a, b| a.rect == b.rect) {
        let rect = &same[0].rect;
        let mut flat = Vec::with_capacity(same.len());
        for transfer in same {
            let from = positions[&transfer.source];
            pieces.push(Piece { from, rect: before[from].place(rect) });
            flat.push(before[from].is_flat());
        }
        let rect = Rect { start: origin(rect), extent: rect.extent.clone() };
        recipe.tiles.push(Tile { rect, flat });
    }
    Ok(Assembly { pieces, program: programs.get(recipe)? })
}

impl Programs {
    fn get(&mut self, recipe: Recipe) -> Result<Option<Arc<Graph>>> {
        if let Some(program) = self.known.get(&recipe) {
            return Ok(program.clone());
        }
        let program = match recipe.is_one_piece() {
            true => None,
            false => Some(Arc::new(self.program(&recipe)?)),
        };
        match self.known.entry(recipe) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(entry) => Ok(entry.insert(program).clone()),
        }
    }

    fn program(&self, recipe: &Recipe) -> Result<Graph> {
        let mut b = GraphBuilder::default();
        let input = |b: &mut GraphBuilder, tile: &Tile, flat: bool| {
            let shape = if flat { &[tile.rect.len()][..] } else { &tile.rect.extent[..] };
            b.input(TensorSpec::new(shape, self.dtype))
        };
        let mut inputs = Vec::with_capacity(recipe.tiles.len());
        for tile in &recipe.tiles {
            inputs.push(tile.flat.iter().map(|&flat| input(&mut b, tile, flat)).collect());
        }
        let mut tiles = Vec::with_capacity(recipe.tiles.len());
        for (tile, inputs) in recipe.tiles.iter().zip(inputs) {
            tiles.push((&tile.rect, self.combined(&mut b, &tile.rect, inputs)?));
        }
        let part = match &recipe.shape {
            Some(shape) => self.covered(&mut b, &Rect::whole(shape), &tiles)?,
            None => {
                let flat = tiles.iter().map(|&(rect, tile)| b.reshape(tile, [rect.len()]));
                let flat = flat.collect::<Result<Vec<_>>>()?;
                b.concat(&flat, 0)?
            }
        };
        Ok(b.finish([part]))
    }

    /// The elements of one tile: those of its pieces, combined in their order. Half floats are added
    /// in f32 and rounded once, as everywhere.
    fn combined(&self, b: &mut GraphBuilder, rect: &Rect, pieces: Vec<NodeId>) -> Result<NodeId> {
        let shape = Shape::from(&rect.extent[..]);
        let wide = match self.combine {
            Some(op) if pieces.len() > 1 && !op.is_idempotent() => self.dtype.widened(),
            _ => self.dtype,
        };
        let mut sum = None;
        for piece in pieces {
            let piece = b.reshape(piece, shape.clone())?;
            let piece = b.cast(piece, wide)?;
            sum = Some(match sum {
                None => piece,
                Some(sum) => {
                    let op = self.combine.expect("elements are written once, or combined");
                    b.op(op, &[sum, piece])?
                }
            });
        }
        b.cast(sum.expect("a tile has a piece"), self.dtype)
    }

    /// The elements of a region, of which the tiles have some; the others are the identity of the op
    /// that combines the new values.
    fn covered(
        &self,
        b: &mut GraphBuilder,
        region: &Rect,
        tiles: &[(&Rect, NodeId)],
    ) -> Result<NodeId> {
        match tiles {
            [] => {
                // Without an op to combine, the region has no elements.
                let value = self.fill.map(|op| op.neutral(self.dtype));
                let value = value.unwrap_or_else(|| Literal::from_i64(self.dtype, 0));
                return Ok(b.constant(value, &region.extent[..]));
            }
            [(rect, tile)] if *rect == region => return Ok(*tile),
            _ => {}
        }
        let found = (0..region.extent.len()).map(|axis| (axis, cuts(region, tiles, axis)));
        let mut found = found.filter(|(_, cuts)| cuts.len() > 2);
        let (axis, cuts) = found.next().expect("tiles are made by cuts across a whole region");
        let mut parts = Vec::with_capacity(cuts.len() - 1);
        for range in cuts.windows(2) {
            let mut region = region.clone();
            (region.start[axis], region.extent[axis]) = (range[0], range[1] - range[0]);
            let own = tiles.iter().filter(|(rect, _)| region.contains(rect));
            let own: Vec<_> = own.copied().collect();
            parts.push(self.covered(b, &region, &own)?);
        }
        b.concat(&parts, axis as u8)
    }
}

impl Recipe {
    /// True if a part is a piece as it is, or there is neither.
    fn is_one_piece(&self) -> bool {
        match (&self.tiles[..], &self.shape) {
            ([], None) => true,
            ([tile], Some(shape)) => tile.flat == [false] && tile.rect == Rect::whole(shape),
            _ => false,
        }
    }
}

/// The places along an axis where no tile is cut, ascending, with both ends of the region.
fn cuts(region: &Rect, tiles: &[(&Rect, NodeId)], axis: usize) -> Vec<usize> {
    let range = |rect: &Rect| (rect.start[axis], rect.start[axis] + rect.extent[axis]);
    let (first, last) = range(region);
    let mut ranges: Vec<(usize, usize)> = tiles.iter().map(|(rect, _)| range(rect)).collect();
    ranges.sort_unstable();
    let mut cuts = vec![first];
    let mut end = first;
    for (low, high) in ranges {
        // All tiles before end here at the latest, and the others begin here.
        if low >= end {
            cuts.extend([end, low]);
        }
        end = end.max(high);
    }
    cuts.extend([end, last]);
    cuts.dedup();
    cuts
}
