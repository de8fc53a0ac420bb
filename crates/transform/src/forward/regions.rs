//! Forward mode of branches and loops: regions that compute values and tangents in one pass.

use super::{Varying, along};
use crate::Result;
use crate::control::{active_inputs, inputs};
use crate::reverse::depends;
use girih_ir::ops::control::{CallRules, Control};
use girih_ir::{Graph, GraphBuilder, NodeId, TensorSpec};
use std::sync::Arc;

fn active(tangents: &[Option<NodeId>]) -> Vec<bool> {
    tangents.iter().map(Option::is_some).collect()
}

/// Keeps the branches. The tangents of results that vary in any branch follow the values.
pub(super) fn branch(
    b: &GraphBuilder,
    control: &Control,
    operands: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Varying> {
    choices(b, control, operands, 1, tangents)
}

/// A call; the tangents of varying results follow the values. Uses the call's JVP rule if there is
/// one.
pub(super) fn called(
    b: &mut GraphBuilder,
    control: &Control,
    operands: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Varying> {
    if let CallRules::Derived = control.call_rules() {
        // The values that a checkpoint saves for its derivative become ordinary results.
        let control = Control { saves: 0, ..control.clone() };
        return choices(b, &control, operands, 0, tangents);
    }
    let body = control.body();
    let inexact: Vec<bool> =
        body.outputs().iter().map(|&o| body.spec(o).dtype.is_inexact()).collect();
    let results = numbered(0, inexact.len(), &inexact).collect();
    let (control, operands) = crate::call::forward_rule(b, control, operands, tangents)?;
    Ok(Varying { control: Arc::new(control), operands, results })
}

/// A control op whose regions take the operands from `first` on and run at most once each.
fn choices(
    b: &GraphBuilder,
    control: &Control,
    operands: &[NodeId],
    first: usize,
    tangents: &[Option<NodeId>],
) -> Result<Varying> {
    let (taken, along_them) = (&operands[first..], &tangents[first..]);
    let specs: Vec<TensorSpec> = taken.iter().map(|&i| b.spec(i).clone()).collect();
    let marks = active(along_them);
    let count = control.regions[0].outputs().len();
    let mut varies = vec![false; count];
    for region in control.regions.iter() {
        for (v, depends) in varies.iter_mut().zip(depends(region, &marks)) {
            *v |= depends;
        }
    }
    let mut regions = Vec::with_capacity(control.regions.len());
    for region in control.regions.iter() {
        let mut r = GraphBuilder::default();
        let values = inputs(&mut r, specs.iter().cloned());
        let moving = specs.iter().zip(&marks).map(|(spec, &m)| m.then(|| r.input(spec.clone())));
        let moving: Vec<Option<NodeId>> = moving.collect();
        let results = along(&mut r, region, &values, &moving)?;
        let mut outputs: Vec<NodeId> = results.iter().map(|(value, _)| *value).collect();
        outputs.extend(tangents_of(&mut r, &results, &varies));
        regions.push(r.finish(outputs));
    }
    let operands = operands.iter().chain(along_them.iter().flatten()).copied().collect();
    let results = numbered(0, count, &varies).collect();
    Ok(Varying { control: Arc::new(control.with_regions(regions)), operands, results })
}

/// The tangents of varying results; zeros if a graph has no tangent.
fn tangents_of(
    r: &mut GraphBuilder,
    results: &[(NodeId, Option<NodeId>)],
    varies: &[bool],
) -> Vec<NodeId> {
    let moving = results.iter().zip(varies).filter(|(_, varies)| **varies);
    moving.map(|(&(value, t), _)| t.unwrap_or_else(|| r.zeros_like(value))).collect()
}

/// Indices of `count` values from `start` on, and of the varying values' tangents, which follow.
fn numbered(
    start: usize,
    count: usize,
    varies: &[bool],
) -> impl Iterator<Item = (usize, Option<usize>)> {
    let mut next = start + count;
    varies.iter().enumerate().map(move |(i, &varies)| {
        let tangent = varies.then_some(next);
        next += varies as usize;
        (start + i, tangent)
    })
}

/// Keeps the loop. The tangents of carries are additional carries after the carries. The tangents
/// of slices, captured values and results follow their values in the same way.
pub(super) fn repeated(
    b: &mut GraphBuilder,
    control: &Control,
    operands: &[NodeId],
    tangents: &[Option<NodeId>],
) -> Result<Varying> {
    let (c, x) = (control.carries as usize, control.slices as usize);
    let marks = active_inputs(control, &active(tangents));
    let mut layout = Layout::default();
    for part in [0..c, c..c + x, c + x..operands.len()] {
        layout.places.extend(part.clone().map(|i| (i, false)));
        layout.places.extend(part.filter(|&i| marks[i]).map(|i| (i, true)));
    }
    for (i, &id) in operands.iter().enumerate() {
        let spec = b.spec(id);
        let shape = if (c..c + x).contains(&i) { spec.shape.part(1..) } else { spec.shape.clone() };
        layout.specs.push(TensorSpec { shape, dtype: spec.dtype });
    }
    let operand = |&(i, moves): &(usize, bool)| match moves {
        false => operands[i],
        true => tangents[i].unwrap_or_else(|| b.zeros_like(operands[i])),
    };
    let all: Vec<NodeId> = layout.places.iter().map(operand).collect();
    let (body, before) = control.regions.split_last().expect("a loop has a body");
    let varies = depends(body, &marks);
    let (moving_carries, moving_slices) = (count(&marks[..c]), count(&marks[c..c + x]));
    let mut regions = Vec::with_capacity(control.regions.len());
    for condition in before {
        let (mut r, values, _) = layout.inputs();
        let given = r.inline(condition, &values)?;
        regions.push(r.finish(given));
    }
    regions.push(layout.body(body, c, &marks, &varies)?);
    let given = body.outputs().len();
    let results =
        numbered(0, c, &marks[..c]).chain(numbered(c + moving_carries, given - c, &varies[c..]));
    let histories = numbered(given + moving_carries + count(&varies[c..]), c, &marks[..c]);
    let results = results.chain(histories).collect();
    let control = Control {
        carries: (c + moving_carries) as u32,
        slices: (x + moving_slices) as u32,
        ..control.with_regions(regions)
    };
    Ok(Varying { control: Arc::new(control), operands: all, results })
}

fn count(marks: &[bool]) -> usize {
    marks.iter().filter(|mark| **mark).count()
}

/// The operands of a loop with tangents.
#[derive(Default)]
struct Layout {
    /// For each new operand, in order, the index of the old operand, and whether the new operand is
    /// the tangent of the old operand.
    places: Vec<(usize, bool)>,
    /// For each old operand, the spec that the regions take.
    specs: Vec<TensorSpec>,
}

impl Layout {
    /// A region with its inputs: values, and the tangents of varying values.
    fn inputs(&self) -> (GraphBuilder, Vec<NodeId>, Vec<Option<NodeId>>) {
        let mut r = GraphBuilder::default();
        let mut values = vec![NodeId(0); self.specs.len()];
        let mut tangents = vec![None; self.specs.len()];
        for &(i, moves) in &self.places {
            let id = r.input(self.specs[i].clone());
            if moves { tangents[i] = Some(id) } else { values[i] = id }
        }
        (r, values, tangents)
    }

    fn body(&self, body: &Graph, c: usize, marks: &[bool], varies: &[bool]) -> Result<Graph> {
        let (mut r, values, tangents) = self.inputs();
        let results = along(&mut r, body, &values, &tangents)?;
        let (carries, rest) = results.split_at(c);
        let mut outputs: Vec<NodeId> = carries.iter().map(|(value, _)| *value).collect();
        outputs.extend(tangents_of(&mut r, carries, &marks[..c]));
        outputs.extend(rest.iter().map(|(value, _)| *value));
        outputs.extend(tangents_of(&mut r, rest, &varies[c..]));
        Ok(r.finish(outputs))
    }
}
