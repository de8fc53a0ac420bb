//! Ops that move elements along a cut axis or combine neighbours, such as slices and convolutions: each processor gets the elements
//! that its part of the result needs, its *window* of each operand, instead of whole operands.

use super::decide::Decision;
use super::each::Each;
use super::exchange::{Change, kept};
use super::local::LocalOp;
use super::stages::ValueId;
use super::{Partitioner, Sharded};
use crate::propagate::Step;
use crate::rect::{Extent, Rect};
use crate::reshard::reshard_to_rects;
use girih_ir::ops::{OpCall, OpPart, PartRule};
use girih_ir::sharding::P;
use girih_ir::{Literal, Op, Result, Shape, TensorSpec};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// The elements of an operand that each processor needs.
pub(super) type Window = Arc<[Rect]>;

fn rect_of(ranges: &[Range<usize>]) -> Rect {
    Rect {
        start: ranges.iter().map(|range| range.start).collect(),
        extent: ranges.iter().map(|range| range.len()).collect(),
    }
}

/// No elements of a tensor.
fn nothing(tensor: &TensorSpec) -> Rect {
    Rect::whole(&vec![0; tensor.shape.rank()])
}

fn ranges_of(rect: &Rect) -> Vec<Range<usize>> {
    let all = rect.start.iter().zip(&rect.extent);
    all.map(|(&start, &len)| start..start + len).collect()
}

/// What the windows of an op depend on: the op, its operands, and the specs of operands and result.
pub(super) type Key = (Op, Vec<TensorSpec>, Vec<P>);

impl Partitioner<'_> {
    /// How an op is computed on windows of its operands, for specs in which the axes along which it
    /// moves elements are cut; `None` if a processor cannot compute its part.
    pub(super) fn windowed(
        &mut self,
        op: &Op,
        rule: PartRule,
        (operands, result): (&[&TensorSpec], &TensorSpec),
        step: Step,
    ) -> Result<Option<Decision>> {
        let specs = [&step.operands[..], std::slice::from_ref(&step.result)].concat();
        let key = (op.clone(), operands.iter().map(|&spec| spec.clone()).collect(), specs);
        if let Some(known) = self.windowed.get(&key) {
            return Ok(known.clone());
        }
        let decision = self.new_windows(op, rule, (operands, result), step)?;
        self.windowed.insert(key, decision.clone());
        Ok(decision)
    }

    fn new_windows(
        &mut self,
        op: &Op,
        rule: PartRule,
        (operands, result): (&[&TensorSpec], &TensorSpec),
        Step { operands: wanted, result: found, reduced }: Step,
    ) -> Result<Option<Decision>> {
        if !reduced.is_empty() {
            return Ok(None);
        }
        let rects = self.rectangles(&found, result)?;
        let call = OpCall { op, inputs: operands };
        let mut windows: Vec<Vec<Rect>> = vec![Vec::new(); operands.len()];
        let mut forms = Vec::with_capacity(rects.len());
        for rect in &rects {
            let (ops, own) = match rect.is_empty() {
                // Nothing is needed.
                true => (SmallVec::new(), operands.iter().map(|of| nothing(of)).collect()),
                false => {
                    let part = rule(call, result, &ranges_of(rect));
                    let Some(OpPart { operands, ops }) = part else { return Ok(None) };
                    (ops, operands.iter().map(|ranges| rect_of(ranges)).collect::<Vec<_>>())
                }
            };
            let extents: Vec<_> = own.iter().map(|rect| rect.extent.clone()).collect();
            forms.push((ops, extents, rect.extent.clone()));
            windows.iter_mut().zip(own).for_each(|(all, own)| all.push(own));
        }
        let ops = Each::collect(forms.into_iter()).map(|(ops, inputs, part)| {
            let spec =
                |(extent, of): (&Extent, &&TensorSpec)| TensorSpec::new(&extent[..], of.dtype);
            if ops.is_empty() {
                let nothing = Literal::from_i64(result.dtype, 0);
                return Some(LocalOp::Neutral(nothing, Shape::from(&part[..])));
            }
            let mut specs: Vec<TensorSpec> = inputs.iter().zip(operands).map(spec).collect();
            for op in ops {
                specs = vec![op.infer(&specs.iter().collect::<Vec<_>>()).ok()?];
            }
            (specs[0].shape.hints() == &part[..]).then(|| LocalOp::Ops(ops.clone()))
        });
        let windows = windows.into_iter().map(Window::from).collect();
        Ok(ops.map(|ops| Decision::on_windows(wanted, windows, found, ops)))
    }

    /// The windows of a value.
    pub(super) fn window(
        &mut self,
        value: &Sharded,
        to: &P,
        window: &Window,
        tensor: &TensorSpec,
    ) -> Result<ValueId> {
        let (to, mut value) = (self.plain(to, tensor.shape.rank()), value.clone());
        if value.spec.partial != to.partial {
            value = Sharded { value: self.resharded(&value, &to, tensor)?, spec: to.clone() };
        }
        let part = |rect: &Rect| TensorSpec::new(&rect.extent[..], tensor.dtype);
        let specs = Arc::new(Each::collect(window.iter().map(part)));
        if let Some(value) = self.stages.refilled(value.value, &specs) {
            return Ok(value);
        }
        // Known windows are kept, so that their addresses are theirs.
        let key = (value.spec.clone(), window.as_ptr() as usize);
        let change = match self.window_changes.get(&key) {
            Some(known) => known.clone(),
            None => {
                let change = Arc::new(self.change_to_window(&value.spec, &to, window, tensor)?);
                self.window_changes.insert(key, change.clone());
                change
            }
        };
        self.changed(value.value, &change, specs, tensor)
    }

    fn change_to_window(
        &self,
        from: &P,
        to: &P,
        window: &Window,
        tensor: &TensorSpec,
    ) -> Result<Change> {
        let old = self.rectangles(from, tensor)?;
        if old.iter().zip(&window[..]).all(|(old, new)| old.contains(new)) {
            let kept = old.iter().zip(&window[..]).map(|(old, new)| kept(old, new));
            return Ok(Change::Slice(Each::collect(kept), Vec::new(), None));
        }
        let shardings = [self.sharding(from)?, self.sharding(to)?];
        let plan = reshard_to_rects(&shardings[0], window, tensor.shape.hints())?;
        let (moved, plan) = (plan.bytes_moved(1), Arc::new(plan));
        Ok(Change::Exchange { shardings, window: Some(window.clone()), plan, moved })
    }
}
