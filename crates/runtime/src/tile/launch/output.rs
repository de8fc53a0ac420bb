//! The results of a tile: where its program writes them, how partial results are combined, and the
//! copies to the launch's results.

use super::{Launch, Tile, Use};
use crate::executor::Reused;
use crate::stream::Batch;
use crate::tile::region::Region;
use crate::tile::{TileResult, TileShape, TiledProgram};
use crate::{Argument, CachedPlan, Operands, Operation, Result, RunControl, Runs, Value, Values};
use girih_ir::{OpCode, TensorSpec};
use std::sync::{Arc, PoisonError};

/// A tile's part of an output.
struct Output {
    region: Region,
    /// The shape of the block that the program writes.
    block: Vec<usize>,
    bytes: usize,
    /// The memory of the part, in which partial results are accumulated.
    value: Value,
    /// The memory that the program writes, if its result has to be combined with `value`.
    partial: Option<Value>,
    /// The op that combines partial results.
    combine: OpCode,
    /// Whether this is the last partial result.
    last: bool,
    /// Whether the part has to be copied from `value` to the result.
    copied: bool,
}

impl Output {
    fn target(&self) -> &Value {
        self.partial.as_ref().unwrap_or(&self.value)
    }
}

impl<'a> Launch<'a> {
    /// The operations that compute a tile, and those that copy its results out.
    pub(super) fn compute(
        &mut self,
        tile: &Tile<'_>,
        arguments: &[Argument],
    ) -> Result<(Batch<'a>, Batch<'a>)> {
        let (mut launches, mut copies) = (self.stream.batch(), self.stream.batch());
        let outputs: Vec<Output> =
            (0..self.results.len()).map(|o| self.output(tile, o)).collect::<Result<_>>()?;
        let targets: Vec<Option<Value>> =
            outputs.iter().map(|output| Some(output.target().clone())).collect();
        let values = self.launch(&tile.plan, arguments, targets, &mut launches)?;
        for (index, (output, value)) in outputs.iter().zip(values).enumerate() {
            // The program returns an argument, or one result twice, instead of writing the target.
            let target = output.target();
            if output.bytes > 0 && value.handle() != target.handle() {
                copy_whole(&value, target, output.bytes, &mut launches)?;
            }
            if let Some(partial) = &output.partial {
                let plan = self.combining(index, output)?;
                self.combine(&plan, (index, &output.value, partial, output.bytes), &mut launches)?;
            }
            if output.copied && output.last && output.bytes > 0 {
                self.store(tile, index, output, &mut copies)?;
            }
        }
        Ok((launches, copies))
    }

    /// Plans a tile's part of an output.
    fn output(&mut self, tile: &Tile<'_>, index: usize) -> Result<Output> {
        let axes = self.program.shape.factors.outputs()[index].clone();
        let spec = &self.tiling.results[index];
        let region = tile.region(spec, &axes);
        let block = tile.block(&axes);
        let item = spec.dtype.size();
        let bytes = block.iter().product::<usize>() * item;
        let direct = match &self.results[index] {
            TileResult::Device(value, _) if region.dense && !tile.is_padded(&axes) => {
                Some(value.skip(region.offset))
            }
            _ => None,
        };
        let whole = self.tile_bytes(&axes, item).max(bytes);
        let copied = direct.is_none();
        let value = match direct {
            Some(value) => value,
            None => {
                let buffer = self.block(Use::Output(index), tile.out_ring, whole)?;
                Value::at(buffer, 0)
            }
        };
        let combines = |&f: &usize| Some((f, self.program.shape.factors.combines(index, f)?));
        let reduced: Vec<(usize, OpCode)> = self.tiling.loops.iter().filter_map(combines).collect();
        let first = reduced.iter().all(|(f, _)| tile.at[f].0 == 0);
        let last = reduced.iter().all(|(f, _)| tile.at[f].0 + 1 == tile.at[f].1);
        let partial = match first {
            true => None,
            false => {
                let buffer = self.block(Use::Partial(index), 0, whole)?;
                Some(Value::at(buffer, 0))
            }
        };
        // All reduced factors of an output have the same op.
        let combine = reduced.first().map_or(OpCode::Add, |(_, code)| *code);
        Ok(Output { region, block, bytes, value, partial, combine, last, copied })
    }

    /// Binds a program to arguments and result memory, and appends its operations.
    fn launch(
        &mut self,
        plan: &CachedPlan,
        arguments: &[Argument],
        targets: Vec<Option<Value>>,
        launches: &mut Batch<'_>,
    ) -> Result<Values> {
        let size = plan.plan.temporary_bytes;
        // Tiles on one stream run one after another, so they can share the block.
        let temporaries = match (size, self.temporaries.get(&size)) {
            (0, _) => None,
            (_, Some(block)) => Some(block.clone()),
            (_, None) => {
                let block = Arc::new(self.executor.device.allocator().allocate(size)?);
                self.temporaries.insert(size, block.clone());
                Some(block)
            }
        };
        let reused = Reused { targets, temporaries };
        let control: RunControl = self.executor.control(None, false);
        let (block, values) = self.executor.bind_reusing(plan, arguments, control, reused)?;
        launches.plan(&plan.plan, &block)?;
        self.executor.count_run(&plan.plan);
        Ok(values)
    }

    /// The program that combines two blocks of an output.
    fn combining(&self, index: usize, output: &Output) -> Result<CachedPlan> {
        let TiledProgram { shape: TileShape { graph, .. }, options, .. } = self.program;
        let dtype = graph.spec(graph.outputs()[index]).dtype;
        let block = TensorSpec::new(output.block.clone(), dtype);
        self.executor.combining(&block, output.combine, *options)
    }

    /// Combines a partial result with the accumulated result.
    fn combine(
        &mut self,
        plan: &CachedPlan,
        (index, acc, partial, bytes): (usize, &Value, &Value, usize),
        launches: &mut Batch<'_>,
    ) -> Result<()> {
        let result = plan.plan.outputs[0].buffer;
        let in_place = plan.plan.donations.contains(&(result, 0));
        let target = match in_place {
            true => acc.clone(),
            false => Value::at(self.block(Use::Combined(index), 0, bytes)?, 0),
        };
        let arguments = [acc, partial].map(|value| Argument::Checked(value.clone()));
        self.launch(plan, &arguments, vec![Some(target.clone())], launches)?;
        if !in_place {
            copy_whole(&target, acc, bytes, launches)?;
        }
        Ok(())
    }

    /// Appends the copies from a tile's block to the result.
    fn store(
        &mut self,
        tile: &Tile<'_>,
        index: usize,
        output: &Output,
        copies: &mut Batch<'_>,
    ) -> Result<()> {
        let (from, region) = (&output.value, &output.region);
        match &self.results[index] {
            TileResult::Device(value, _) => {
                let runs = region.runs(&output.block, false);
                let copy = Operation::copy_on_device(0, region.offset, runs);
                copies.add(copy, Operands::Tensors(&[from.clone(), value.clone()], &[]))
            }
            TileResult::Host(array, _) => {
                let slot = self.slot(
                    Use::Output(index),
                    tile.out_ring,
                    output.value.buffer().size_bytes(),
                )?;
                let operands = ([from.clone()], [slot.clone()]);
                copies.add(
                    Operation::copy_from_device(),
                    Operands::Tensors(&operands.0, &operands.1),
                )?;
                let copy = region.runs(&output.block, false);
                let (array, start) = (array.clone(), region.offset);
                copies.host("scatter a tile", move || {
                    let bytes = slot.lock().unwrap_or_else(PoisonError::into_inner);
                    let mut array = array.lock().unwrap_or_else(PoisonError::into_inner);
                    let array = &mut array[start..];
                    copy.for_each(|from, to| {
                        array[to..to + copy.run].copy_from_slice(&bytes[from..from + copy.run]);
                        Ok(())
                    })
                })
            }
        }
    }
}

fn copy_whole(from: &Value, to: &Value, bytes: usize, batch: &mut Batch<'_>) -> Result<()> {
    let copy = Operation::copy_on_device(0, 0, Runs::dense(bytes));
    batch.add(copy, Operands::Tensors(&[from.clone(), to.clone()], &[]))
}
