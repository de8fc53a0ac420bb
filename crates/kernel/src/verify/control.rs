//! Rule V10: control kernels and their programs.

use super::{Check, require, verify};
use crate::control::{Control, Feed, Flow};
use crate::ir::{BufferId, BufferKind, Kernel, KernelProgram};
use girih_ir::DType;

/// A number of elements, and their dtype.
type Size = (usize, DType);

fn size(program: &KernelProgram, id: BufferId) -> Result<Size, String> {
    let buffer = program.buffers.get(id.0 as usize);
    buffer.map(|b| (b.numel, b.dtype)).ok_or_else(|| format!("V10: the program has no buffer {id}"))
}

/// The size as text.
fn elements((numel, dtype): Size) -> String {
    format!("{numel} elements of {}", dtype.short())
}

pub(super) fn check(program: &KernelProgram, kernel: &Kernel, control: &Control) -> Check {
    let bare = kernel.body.insts.is_empty() && kernel.stores.is_empty();
    let form = bare && kernel.accesses.is_empty() && kernel.points() == 1;
    require(form && kernel.reduced() == 1, || {
        "V10: a branch or loop must be one point without a body".into()
    })?;
    let count = control.programs.len();
    let expected = match control.flow {
        Flow::Cond { .. } => count > 0 && control.carries + control.slices == 0,
        Flow::Call => count == 1 && control.carries + control.slices == 0,
        Flow::While => count == 2 && control.slices == 0,
        Flow::Scan { .. } => count == 1,
    };
    let named = control.carries + control.slices <= control.operands.len();
    require(expected && named, || {
        format!("V10: {count} programs with these carries and slices do not fit the branch or loop")
    })?;
    for inner in &control.programs {
        verify(inner)
            .map_err(|e| format!("V10: a program of the branch or loop is invalid: {e}"))?;
        check_operands(program, control, inner)?;
    }
    check_outputs(control)?;
    check_carries(program, control)?;
    check_results(program, control)?;
    if let Flow::Cond { index, dtype } = control.flow {
        let scalar = size(program, index)? == (1, dtype);
        let chooses = dtype == DType::Bool || dtype.is_int();
        require(scalar && chooses, || {
            format!("V10: {index} must hold one bool or integer, the number of a branch")
        })?;
    }
    let sizes = control.programs.iter().flat_map(|p| &p.buffers).map(|b| b.size_bytes());
    let all = sizes.fold(0_usize, usize::saturating_add);
    // A layout has each buffer at most twice, aligned.
    require(all < isize::MAX as usize / 8, || {
        "V10: the programs need more memory than can be addressed".into()
    })?;
    let bytes = control.workspace_parts().bytes;
    let workspace = match control.workspace {
        Some(id) => size(program, id)?,
        None => (0, DType::U8),
    };
    require(workspace.0 >= bytes && workspace.1 == DType::U8, || {
        format!("V10: the workspace must have {bytes} bytes, but has {}", workspace.0)
    })?;
    let writes: Vec<BufferId> = control.writes().collect();
    for (i, id) in writes.iter().enumerate() {
        require(!writes[..i].contains(id), || format!("V6: {id} is stored twice"))?;
        require(control.reads().all(|r| r != *id), || {
            format!("V7: {id} is both read and written")
        })?;
    }
    Ok(())
}

/// The number of iterations that divide an operand: the length of a scan for slices, otherwise 1.
fn parts(control: &Control, operand: usize) -> usize {
    let slices = control.carries..control.carries + control.slices;
    match control.flow {
        Flow::Scan { length, .. } if slices.contains(&operand) => length,
        _ => 1,
    }
}

fn check_operands(program: &KernelProgram, control: &Control, inner: &KernelProgram) -> Check {
    for buffer in &inner.buffers {
        let BufferKind::Argument(i) = buffer.kind else { continue };
        let held = match control.operands.get(i) {
            Some(Feed::Buffer(id)) => size(program, *id)?,
            Some(Feed::Splat { value, numel }) if i < control.carries => (*numel, value.dtype()),
            _ => return Err(format!("V10: operand {i}, which a program reads, is not in memory")),
        };
        let taken = (buffer.numel.saturating_mul(parts(control, i)), buffer.dtype);
        require(held == taken, || {
            format!(
                "V10: operand {i} holds {}, but a program takes {}",
                elements(held),
                elements(taken)
            )
        })?;
    }
    Ok(())
}

/// Checks that the programs give the results that their flow requires.
fn check_outputs(control: &Control) -> Check {
    let body = control.body();
    let given = body.outputs.len();
    match control.flow {
        Flow::Cond { .. } => {
            for inner in &control.programs {
                require(inner.outputs.len() == given, || {
                    "V10: the branches give different numbers of results".into()
                })?;
                for (a, b) in inner.outputs.iter().zip(&body.outputs) {
                    let same = size(inner, *a)? == size(body, *b)?;
                    require(same, || "V10: the branches give results of different sizes".into())?;
                }
            }
        }
        Flow::Call => {}
        Flow::While => {
            let condition = &control.programs[0];
            let predicate = condition.outputs.iter().map(|&o| size(condition, o));
            let predicate: Vec<Size> = predicate.collect::<Result<_, _>>()?;
            let one = predicate == [(1, DType::Bool)] && given == control.carries;
            require(one, || {
                "V10: the condition must give one bool, and the body one result per carry".into()
            })?;
        }
        Flow::Scan { .. } => {
            require(given >= control.carries, || "V10: the body must give every carry".into())?;
        }
    }
    Ok(())
}

fn check_carries(program: &KernelProgram, control: &Control) -> Check {
    for carry in 0..control.carries {
        let held = match control.operands[carry] {
            Feed::Buffer(id) => size(program, id)?,
            Feed::Splat { value, numel } => (numel, value.dtype()),
            Feed::Nothing => return Err(format!("V10: carry {carry} has no initial value")),
        };
        let given = size(control.body(), control.body().outputs[carry])?;
        require(held == given, || {
            format!(
                "V10: carry {carry} holds {}, but the body gives {}",
                elements(held),
                elements(given)
            )
        })?;
    }
    Ok(())
}

fn check_results(program: &KernelProgram, control: &Control) -> Check {
    let body = control.body();
    let given = body.outputs.len();
    for (number, result) in control.results.iter().enumerate() {
        let Some(id) = result else { continue };
        let (output, times) = match control.flow {
            Flow::Scan { length, .. } => match number {
                n if n < control.carries => (n, 1),
                n if n < given => (n, length),
                n => (n - given, length),
            },
            _ => (number, 1),
        };
        let known = output < given && (number < given || output < control.carries);
        require(known, || format!("V10: the programs do not give result {number}"))?;
        let (numel, dtype) = size(body, body.outputs[output])?;
        let expected = (numel.saturating_mul(times), dtype);
        let found = size(program, *id)?;
        require(found == expected, || {
            format!(
                "V10: result {number} holds {}, but its buffer {}",
                elements(expected),
                elements(found)
            )
        })?;
    }
    Ok(())
}
