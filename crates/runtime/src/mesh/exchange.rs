//! Exchanges: every processor assembles its new part from pieces of the parts of others. A piece on
//! another device is copied to the processor first. Between devices in the memory of the host it is
//! read where it is.

use super::{Lane, MeshRun};
use crate::layout::Strides;
use crate::{Argument, Buffer, CachedPlan, CompileOptions, Device, PlanExecutor, Result, Value};
use girih_dist::{Assembly, Piece};
use girih_ir::{Graph, GraphBuilder, TensorSpec};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A lowered exchange, compiled for the lanes of the processors.
pub struct Exchanged {
    steps: Vec<Vec<Made>>,
    /// Shape and dtype of each processor's new part.
    specs: Vec<TensorSpec>,
}

/// How a processor makes its part.
struct Made {
    pieces: SmallVec<[Taken; 4]>,
    /// Without a plan, the part is the only piece.
    plan: Option<CachedPlan>,
}

/// A piece of a part.
struct Taken {
    from: usize,
    /// Shape and dtype of the piece.
    spec: TensorSpec,
    /// The bytes in front of the first element.
    offset: usize,
    /// The strides in the part, in elements; `None` if the elements are contiguous.
    strides: Option<Strides>,
}

impl Exchanged {
    /// Compiles the steps of an exchange of parts with specs `from`, from the processors of some lanes to
    /// those of others. Only the last step makes parts of the new processors.
    ///
    /// Errors: as [`PlanExecutor::plan`].
    pub fn compile(
        steps: &[Vec<Assembly>],
        from: &[TensorSpec],
        (sources, targets): (&[Lane], &[Lane]),
        options: CompileOptions,
    ) -> Result<Exchanged> {
        let mut specs = from.to_vec();
        let mut compiled = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let lanes = if at + 1 == steps.len() { targets } else { sources };
            let mut made: Vec<Made> = Vec::with_capacity(step.len());
            for (at, assembly) in step.iter().enumerate() {
                let pieces: SmallVec<[Taken; 4]> =
                    assembly.pieces.iter().map(|piece| Taken::new(piece, &specs)).collect();
                let like = |&other: &usize| {
                    let (one, two) = (&step[other].program, &assembly.program);
                    let strides = |pieces: &[Taken]| -> Vec<Option<Strides>> {
                        pieces.iter().map(|piece| piece.strides.clone()).collect()
                    };
                    matches!((one, two), (Some(one), Some(two)) if Arc::ptr_eq(one, two))
                        && strides(&made[other].pieces) == strides(&pieces)
                        && lanes[at].shares_plans(&lanes[other])
                };
                let plan = match (0..at).find(like) {
                    Some(other) => made[other].plan.clone(),
                    None => plan(assembly, &pieces, &lanes[at].executor, options)?,
                };
                made.push(Made { pieces, plan });
            }
            specs = step.iter().zip(&made).map(|(a, made)| spec_of(a, made, &specs)).collect();
            compiled.push(made);
        }
        Ok(Exchanged { steps: compiled, specs })
    }

    /// Shape and dtype of each processor's new part.
    pub fn specs(&self) -> &[TensorSpec] {
        &self.specs
    }

    /// Moves the parts of the processors of `from` to those of `to`, and waits until they are there.
    ///
    /// Errors: those of binding and running a plan, and of copies.
    pub fn run(
        &self,
        parts: &[Value],
        from: &[Lane],
        to: &[Lane],
        run: MeshRun,
    ) -> Result<Arc<[Value]>> {
        let mut parts: Vec<Value> = parts.to_vec();
        for (at, step) in self.steps.iter().enumerate() {
            let targets = if at + 1 == self.steps.len() { to } else { from };
            parts = run.each(step.len(), |i| step[i].run(&parts, from, &targets[i], run.limit))?;
        }
        Ok(parts.into())
    }
}

/// Shape and dtype of a processor's part after a step. A part that nobody reads has no elements.
fn spec_of(assembly: &Assembly, made: &Made, before: &[TensorSpec]) -> TensorSpec {
    match (&assembly.program, &made.pieces[..]) {
        (Some(program), _) => program.spec(program.outputs()[0]).clone(),
        (None, [piece, ..]) => piece.spec.clone(),
        (None, []) => TensorSpec::new([0], before[0].dtype),
    }
}

/// The plan of an assembly, if it needs one.
fn plan(
    assembly: &Assembly,
    pieces: &[Taken],
    executor: &PlanExecutor,
    options: CompileOptions,
) -> Result<Option<CachedPlan>> {
    let strides: Vec<Option<Strides>> = pieces.iter().map(|piece| piece.strides.clone()).collect();
    match (&assembly.program, pieces) {
        (Some(program), _) => executor.plan_strided(program, &strides, options).map(Some),
        (None, [piece]) if piece.strides.is_some() => {
            executor.plan_strided(&same(&piece.spec), &strides, options).map(Some)
        }
        (None, _) => Ok(None),
    }
}

/// The graph whose output is its input.
fn same(spec: &TensorSpec) -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(spec.clone());
    b.finish([x])
}

impl Taken {
    fn new(piece: &Piece, parts: &[TensorSpec]) -> Taken {
        let part = &parts[piece.from];
        let spec = TensorSpec::new(piece.rect.extent.as_slice(), part.dtype);
        let strides: Vec<usize> = part.shape.strides().iter().map(|&s| s as usize).collect();
        let first: usize = piece.rect.start.iter().zip(&strides).map(|(at, s)| at * s).sum();
        // Contiguous: below the first axis with several indices, all axes are whole.
        let mut axes = spec.shape.iter().zip(part.shape.iter());
        let begun = axes.by_ref().find(|(taken, _)| **taken != 1);
        let is_dense = begun.is_none() || axes.all(|(taken, whole)| taken == whole);
        let strides = (!is_dense && !spec.shape.has_no_elements()).then(|| strides.into());
        Taken { from: piece.from, offset: first * part.dtype.size(), spec, strides }
    }

    /// The bytes from the first to the last element in the part.
    fn span(&self) -> usize {
        match &self.strides {
            None => self.spec.size_bytes(),
            Some(strides) => crate::layout::span_bytes(&self.spec, strides),
        }
    }
}

impl Made {
    fn run(
        &self,
        parts: &[Value],
        sources: &[Lane],
        lane: &Lane,
        limit: Option<Duration>,
    ) -> Result<Value> {
        let Some(plan) = &self.plan else {
            let [piece] = &self.pieces[..] else {
                return Ok(Value::new(lane.executor.device().allocator().allocate(0)?));
            };
            let value = parts[piece.from].skip(piece.offset);
            return copied(&value, piece.spec.size_bytes(), sources, lane);
        };
        let mut arguments: SmallVec<[Argument; 8]> = SmallVec::new();
        for piece in &self.pieces {
            let value = parts[piece.from].skip(piece.offset);
            let value = fetched(&value, piece.span(), sources, lane)?;
            arguments.push(match &piece.strides {
                None => Argument::Checked(value),
                Some(strides) => Argument::Strided(value, piece.spec.clone(), strides.clone()),
            });
        }
        let made = lane.run(plan, &arguments, lane.control(limit))?;
        Ok(made.into_iter().next().expect("an assembly has one output"))
    }
}

/// Memory of a device of the host, which another device of the host reads.
struct Lent {
    device: Arc<dyn Device>,
    value: Value,
    size: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self.device.view(&self.value, self.size).unwrap_or(&[])
    }
}

/// The lane on whose device a value is.
fn lane_of<'a>(value: &Value, lanes: &'a [Lane]) -> Option<&'a Lane> {
    lanes.iter().find(|lane| lane.executor.device().id() == value.device())
}

/// The first `size` bytes of a value for a plan of a lane. The value is on the lane's device, or on that
/// of one of `sources`.
///
/// Errors: those of the copy.
pub(super) fn fetched(value: &Value, size: usize, sources: &[Lane], lane: &Lane) -> Result<Value> {
    let target = lane.executor.device();
    if value.device() == target.id() {
        return Ok(value.clone());
    }
    let source = lane_of(value, sources).map(|lane| lane.executor.device());
    if let Some(source) = source
        && source.properties().host_memory
        && target.properties().host_memory
        && source.view(value, size).is_some()
    {
        let lent = Arc::new(Lent { device: source.clone(), value: value.clone(), size });
        return Ok(Value::new(Buffer::shared(target.id(), lent, 0..size)));
    }
    copied(value, size, sources, lane)
}

/// The first `size` bytes of a value in the memory of a lane's device.
fn copied(value: &Value, size: usize, sources: &[Lane], lane: &Lane) -> Result<Value> {
    if value.device() == lane.executor.device().id() {
        return Ok(value.clone());
    }
    let Some(source) = lane_of(value, sources) else {
        return Err(crate::handle::invalid(&**lane.executor.device(), value.handle(), size));
    };
    if let Some(bytes) = source.executor.device().view(value, size) {
        return lane.executor.upload_on(&lane.stream, bytes);
    }
    let (value, done) = lane.executor.upload_from(&source.stream, value, size)?;
    done.wait_or_interrupt()?;
    Ok(value)
}
