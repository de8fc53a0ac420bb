//! Inserts the kernels of a custom op into the program that is being lowered.

use crate::dead::remove_dead_stores;
use crate::ir::{Buffer, BufferId, BufferKind, Kernel, KernelProgram};
use girih_ir::ops::host::HostCall;
use girih_ir::{Error, Result, TensorSpec};

/// The program of a call of a custom op for operands of these specs; `None` for other ops. For a
/// call in a batch, the program computes all members.
///
/// Errors: a text that does not fit the operands.
pub(crate) fn program_of(
    call: &HostCall,
    operands: &[&TensorSpec],
) -> Option<Result<KernelProgram>> {
    let levels: Vec<(usize, &[bool])> = call.levels().map(|(size, m)| (size.get(), m)).collect();
    let member = |(i, spec): (usize, &&TensorSpec)| TensorSpec {
        shape: spec
            .shape
            .dims()
            .skip(levels.iter().filter(|(_, marks)| marks[i]).count())
            .collect(),
        dtype: spec.dtype,
    };
    let members: Vec<TensorSpec> = operands.iter().enumerate().map(member).collect();
    let text = call.op().kernels(&members.iter().collect::<Vec<_>>())?;
    Some(text.and_then(|text| KernelProgram::parse(&text)).and_then(|mut program| {
        for (size, marks) in levels.into_iter().rev() {
            program = program.batched(size, marks);
        }
        let checked = crate::verify::verify(&program);
        checked.map(|()| program).map_err(|broken| {
            let reason = format!("'{}' in a batch: {broken}", call.op().name());
            Error::InvalidArgument { op: "custom", reason }
        })
    }))
}

/// Removes stores of buffers that are neither needed results nor read, and kernels without stores.
pub(crate) fn prune(program: &mut KernelProgram, needed: impl Fn(usize) -> bool) {
    let mut live = vec![false; program.buffers.len()];
    for (number, output) in program.outputs.iter().enumerate() {
        live[output.0 as usize] |= needed(number);
    }
    let mut kept = remove_dead_stores(&mut program.kernels, &mut live).into_iter();
    program.kernels.retain(|_| kept.next().unwrap_or(true));
}

/// The positions of the operands that a program reads, repeats included.
pub(crate) fn operands_of(program: &KernelProgram) -> impl Iterator<Item = usize> + '_ {
    let read = program.kernels.iter().flat_map(Kernel::reads);
    read.filter_map(|id| match program.buffers[id.0 as usize].kind {
        BufferKind::Argument(position) => Some(position),
        BufferKind::Computed => None,
    })
}

/// The kernels of a program, with its arguments replaced by the buffers of `operand`, its outputs
/// by the buffers of `result`, and all other buffers by buffers that `spare` allocates.
pub(crate) fn kernels_of(
    program: KernelProgram,
    operand: impl Fn(usize) -> BufferId,
    result: impl Fn(usize) -> Option<BufferId>,
    mut spare: impl FnMut(Buffer) -> BufferId,
) -> Vec<Kernel> {
    let KernelProgram { buffers, mut kernels, outputs } = program;
    let ids: Vec<BufferId> = buffers
        .into_iter()
        .enumerate()
        .map(|(i, buffer)| {
            if let BufferKind::Argument(position) = buffer.kind {
                return operand(position);
            }
            let number = outputs.iter().position(|output| output.0 as usize == i);
            number.and_then(&result).unwrap_or_else(|| spare(buffer))
        })
        .collect();
    for kernel in &mut kernels {
        kernel.buffers_mut().for_each(|id| *id = ids[id.0 as usize]);
        // Accesses of two arguments may now be accesses of one buffer.
        kernel.merge_accesses();
    }
    kernels
}
