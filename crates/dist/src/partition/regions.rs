//! Branches and loops whose regions need no exchange on the parts of their operands: each processor
//! runs them on its parts. The specs of a loop's carries are a fixed point of its body. If a region
//! would exchange values, the op is computed on whole operands.

use super::decide::Decision;
use super::each::Each;
use super::local::LocalOp;
use super::{Partition, Partitioner, Source, partition};
use crate::rect::Extent;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::sharding::{DimSpec, P};
use girih_ir::{Graph, GraphBuilder, NodeId, Op, Result, TensorSpec};
use smallvec::smallvec;
use std::sync::Arc;

/// The rounds in which the specs of a loop's carries must settle.
const ROUNDS: usize = 4;

/// The regions of a branch or loop on parts.
pub(super) struct Local {
    /// The specs of a region's arguments and of the last region's outputs.
    arguments: Vec<P>,
    outputs: Vec<P>,
    /// The regions of each processor.
    controls: Each<Arc<Control>>,
}

/// A branch or a loop, and its regions on parts if it has some. The address is another one's only when it
/// is dropped, so it is kept.
pub(super) struct Known {
    _control: Arc<Control>,
    local: Option<Arc<Local>>,
}

/// The spec of slices along a leading axis that is not cut, and of one slice.
fn stacked(spec: &P) -> P {
    let mut stacked = spec.clone();
    stacked.dims.insert(0, DimSpec::default());
    stacked
}

fn slice(spec: &P) -> P {
    let mut slice = spec.clone();
    if !slice.dims.is_empty() {
        slice.dims.remove(0);
    }
    slice
}

impl Partitioner<'_> {
    /// How a branch or a loop is computed on parts; `None` if its regions would exchange values.
    pub(super) fn in_regions(
        &mut self,
        op: &Op,
        operands: &[(&P, &TensorSpec)],
        result: &TensorSpec,
    ) -> Result<Option<Decision>> {
        let (Some((number, control)), Some(kind)) = (op.as_control(), op.code.control()) else {
            return Ok(None);
        };
        let plain = operands.iter().map(|(spec, tensor)| P {
            partial: Default::default(),
            ..self.plain(spec, tensor.shape.rank())
        });
        let specs: Vec<P> = plain.collect();
        let cut = |spec: &P| spec.dims.iter().any(|dim| !dim.axes.is_empty());
        if kind == ControlOp::Call || !specs.iter().any(cut) {
            return Ok(None);
        }
        let key = (Arc::as_ptr(control) as usize, specs.clone());
        if !self.regions.contains_key(&key) {
            let local = self.local_control(kind, control, specs)?.map(Arc::new);
            self.regions.insert(key.clone(), Known { _control: control.clone(), local });
        }
        let Some(local) = self.regions[&key].local.clone() else { return Ok(None) };
        let carries = control.carries as usize;
        let slices = carries..carries + control.slices as usize;
        let given = local.outputs.len();
        let found = match kind {
            ControlOp::Scan if number >= given => stacked(&local.arguments[number - given]),
            ControlOp::Scan if number >= carries => stacked(&local.outputs[number]),
            _ => local.outputs[number].clone(),
        };
        let wanted = |(at, spec): (usize, &P)| match slices.contains(&at) {
            true => stacked(spec),
            false => spec.clone(),
        };
        let mut wanted: Vec<P> = local.arguments.iter().enumerate().map(wanted).collect();
        if kind == ControlOp::Cond {
            wanted.insert(0, P::default());
        }
        found.check(self.mesh, result.shape.rank())?;
        let ops = local.controls.map(|control| {
            Some(LocalOp::Ops(smallvec![Op::control(op.code, control.clone(), number)]))
        });
        Ok(ops.map(|ops| Decision::reducing(wanted, found, ops)))
    }

    /// The regions of a branch or loop on operands of these specs.
    fn local_control(
        &mut self,
        kind: ControlOp,
        control: &Control,
        operands: Vec<P>,
    ) -> Result<Option<Local>> {
        let carries = control.carries as usize;
        let mut arguments = operands;
        if kind == ControlOp::Cond {
            arguments.remove(0);
        }
        for spec in arguments.iter_mut().skip(carries).take(control.slices as usize) {
            *spec = slice(spec);
        }
        let body = control.body();
        let mut outputs = self.natural(body, &arguments)?;
        for _ in 0..ROUNDS {
            if arguments[..carries] == outputs[..carries] {
                break;
            }
            arguments[..carries].clone_from_slice(&outputs[..carries]);
            outputs = self.natural(body, &arguments)?;
        }
        if arguments[..carries] != outputs[..carries] {
            return Ok(None);
        }
        let mut regions: Vec<Each<Graph>> = Vec::with_capacity(control.regions.len());
        for (at, region) in control.regions.iter().enumerate() {
            let is_body = kind == ControlOp::Cond || at + 1 == control.regions.len();
            let wanted = match is_body {
                true => outputs.iter().cloned().map(Some).collect(),
                false => vec![Some(P::default()); region.outputs().len()],
            };
            let Some(local) = self.local_region(region, &arguments, &wanted)? else {
                return Ok(None);
            };
            regions.push(local);
        }
        let controls = Each::joined(&regions.iter().collect::<Vec<_>>());
        let controls = controls.map(|graphs| {
            let graphs = graphs.iter().map(|&graph| graph.clone()).collect();
            Some(Arc::new(control.with_regions(graphs)))
        });
        Ok(controls.map(|controls| Local { arguments, outputs, controls }))
    }

    /// The specs of a region's outputs, as they follow from those of its arguments.
    fn natural(&mut self, region: &Graph, arguments: &[P]) -> Result<Vec<P>> {
        let expanded = self.expanded(region, arguments)?;
        let outputs = expanded.graph.outputs().iter();
        let spec = |id: &NodeId| {
            let rank = expanded.graph.spec(*id).shape.rank();
            self.plain(&expanded.specs[id.index()], rank)
        };
        Ok(outputs.map(spec).collect())
    }

    /// The region of each processor; `None` if the region exchanges values.
    fn local_region(
        &mut self,
        region: &Graph,
        arguments: &[P],
        outputs: &[Option<P>],
    ) -> Result<Option<Each<Graph>>> {
        let found = partition(region, self.mesh, arguments, outputs)?;
        if found.stages.len() > 1 || found.exchanges().next().is_some() {
            return Ok(None);
        }
        let mut extents: Vec<Vec<Extent>> = vec![Vec::new(); self.mesh.len()];
        for (id, spec) in region.arguments().zip(arguments) {
            let rects = self.rectangles(spec, region.spec(id))?;
            extents.iter_mut().zip(rects).for_each(|(own, rect)| own.push(rect.extent));
        }
        let Some(stage) = found.stages.first() else { return Ok(None) };
        let programs = stage.programs.iter().map(|program| Arc::as_ptr(program) as usize);
        let forms = programs.zip(extents).zip(&stage.programs);
        // A form is a program and the shapes of its arguments.
        let forms = forms.map(|((address, extents), program)| (address, extents, program.clone()));
        let forms = Each::collect(forms);
        Ok(forms.map(|(_, extents, program)| with_arguments(region, extents, program, &found)))
    }
}

/// A program of a partition of a region, with all arguments and outputs of the region in order.
fn with_arguments(
    region: &Graph,
    extents: &[Extent],
    program: &Graph,
    found: &Partition,
) -> Option<Graph> {
    let (stage, mut b) = (&found.stages[0], GraphBuilder::default());
    let arguments = region.arguments().zip(extents);
    let arguments =
        arguments.map(|(id, extent)| b.input(TensorSpec::new(&extent[..], region.spec(id).dtype)));
    let arguments: Vec<NodeId> = arguments.collect();
    let given = stage.arguments.iter().map(|source| match source {
        Source::Argument(at) => Some(arguments[*at]),
        Source::Value(_) => None,
    });
    let results = b.inline(program, &given.collect::<Option<Vec<_>>>()?).ok()?;
    let result = |value| stage.results.iter().position(|own| *own == value).map(|at| results[at]);
    let outputs: Option<Vec<NodeId>> =
        found.outputs.iter().map(|(value, _)| result(*value)).collect();
    Some(b.finish(outputs?))
}
