//! Plans as text: arguments and results, the placement of buffers, and the steps of each operation,
//! one per line.

use super::{ArgumentSpec, ExecutionPlan, Placement};
use crate::{MovingPart, Step};
use std::fmt;

/// `plan(f32[2, 3], key) -> (%2: f32[3])`, then the memory, then the operations in order. Buffers
/// are `%n`, programs `@n`, slots `$n`.
impl fmt::Display for ExecutionPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arguments: Vec<String> = self.arguments.iter().map(ArgumentSpec::to_string).collect();
        let output = |output: &super::OutputSpec| format!("%{}: {}", output.buffer, output.spec);
        let outputs: Vec<String> = self.outputs.iter().map(output).collect();
        writeln!(f, "plan({}) -> ({}) {{", arguments.join(", "), outputs.join(", "))?;
        for packet in &self.init_packets {
            writeln!(f, "  init: {} bytes", packet.len())?;
        }
        for (at, buffer) in self.buffers.iter().enumerate() {
            let place = match buffer.placement {
                Placement::Argument(position) => format!("argument {position}"),
                Placement::Output => "output".to_string(),
                Placement::Temporary(offset) => format!("temporary at {offset}"),
                Placement::Unused => continue,
            };
            writeln!(f, "  %{at}: {} bytes, {place}", buffer.size_bytes)?;
        }
        for (at, bytes) in self.slots.iter().enumerate() {
            writeln!(f, "  ${at}: {bytes} bytes of the host")?;
        }
        for operation in &self.operations {
            let name = if operation.name.is_empty() { "nothing" } else { &*operation.name };
            writeln!(f, "  {name} {{")?;
            steps(f, &operation.steps, 2)?;
            if let Some(program) = operation.compute {
                writeln!(f, "    launch @{program}")?;
            }
            writeln!(f, "  }}")?;
        }
        for (number, callee) in self.callees.iter().enumerate() {
            let buffer = |at: &Option<usize>| at.map_or("_".into(), |at| format!("%{at}"));
            let given: Vec<String> = callee.buffers.iter().map(buffer).collect();
            writeln!(f, "  plan {number} on {}:", given.join(", "))?;
            callee.plan.to_string().lines().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        f.write_str("}\n")
    }
}

impl fmt::Display for ArgumentSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentSpec::Tensor(spec) => spec.fmt(f),
            ArgumentSpec::Strided(spec, strides) => write!(f, "{spec} strides {strides:?}"),
            ArgumentSpec::Scalar(dtype) => f.write_str(dtype.short()),
            ArgumentSpec::RandomKey => f.write_str("key"),
        }
    }
}

fn part(part: &MovingPart) -> String {
    let MovingPart { buffer, start, step } = part;
    let moves = if *step == 0 { String::new() } else { format!("{step:+}t") };
    format!("%{buffer}+{start}{moves}")
}

fn steps(f: &mut fmt::Formatter<'_>, all: &[Step], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for step in all {
        match step {
            Step::CopyToDevice { source, buffer } => {
                writeln!(f, "{indent}copy_to_device {} bytes -> %{buffer}", source.len())?;
            }
            Step::CopyFromSlot { slot, buffer } => {
                writeln!(f, "{indent}copy_to_device ${slot} -> %{buffer}")?;
            }
            Step::CopyFromDevice { buffer, slot } => {
                writeln!(f, "{indent}copy_from_device %{buffer} -> ${slot}")?;
            }
            Step::CopyArguments { buffers, target } => {
                let handles: Vec<String> = buffers.iter().map(|b| format!("%{b}")).collect();
                let bytes = buffers.len() * crate::HANDLE_BYTES;
                writeln!(
                    f,
                    "{indent}copy_to_device handles of {} ({bytes} bytes) -> %{target}",
                    handles.join(", ")
                )?;
            }
            Step::CopyOnDevice { source, target, run, repeats } => {
                let counts: String = repeats.iter().map(|r| format!("{} x ", r.count)).collect();
                writeln!(
                    f,
                    "{indent}copy_on_device {counts}{run} bytes %{}+{} -> %{}+{}",
                    source.0, source.1, target.0, target.1
                )?;
            }
            Step::CopyPart { source, target, bytes } => {
                let (from, to) = (part(source), part(target));
                writeln!(f, "{indent}copy_on_device {bytes} bytes {from} -> {to}")?;
            }
            Step::Launch(program) => writeln!(f, "{indent}launch @{program}")?,
            Step::Call(callee) => writeln!(f, "{indent}call plan {callee}")?,
            Step::Repeat { times, body } => {
                writeln!(f, "{indent}repeat {times} times, t from 0 {{")?;
                steps(f, body, depth + 1)?;
                writeln!(f, "{indent}}}")?;
            }
            Step::Host(step) => writeln!(f, "{indent}host {}", step.name())?,
            Step::Loop { condition, slot, body } => {
                writeln!(f, "{indent}loop ${slot} {{")?;
                steps(f, condition, depth + 1)?;
                writeln!(f, "{indent}}} while ${slot} {{")?;
                steps(f, body, depth + 1)?;
                writeln!(f, "{indent}}}")?;
            }
            Step::Branch { slot, branches } => {
                for (number, branch) in branches.iter().enumerate() {
                    writeln!(f, "{indent}branch ${slot} = {number} {{")?;
                    steps(f, branch, depth + 1)?;
                    writeln!(f, "{indent}}}")?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{OutputSpec, PlannedBuffer};
    use crate::{HostStep, Operation};
    use girih_ir::{DType, TensorSpec};

    #[test]
    fn plans_print_arguments_memory_and_steps() {
        let spec = TensorSpec::new([2, 3], DType::F32);
        let buffer = |placement, size_bytes| PlannedBuffer { placement, size_bytes };
        let loops = Step::Loop {
            condition: [Step::CopyFromDevice { buffer: 1, slot: 0 }].into(),
            slot: 0,
            body: [Step::Launch(1)].into(),
        };
        let branch = Step::Branch {
            slot: 0,
            branches: [
                [Step::Host(HostStep::new("count", |_| Ok(())))].into(),
                [Step::CopyFromSlot { slot: 0, buffer: 1 }].into(),
            ]
            .into(),
        };
        let copy = Step::CopyOnDevice {
            source: (0, 4),
            target: (1, 0),
            run: 8,
            repeats: [crate::Repeat { count: 2, source: 12, target: 8 }].into_iter().collect(),
        };
        let handles = Step::CopyArguments { buffers: [0, 1].into(), target: 2 };
        let plan = ExecutionPlan {
            operations: vec![
                Operation::compute_after("matmul", [handles, Step::Launch(0)], 1),
                Operation::steps("rest", [copy, loops, branch]),
                Operation::default(),
            ],
            buffers: vec![
                buffer(Placement::Argument(0), 24),
                buffer(Placement::Output, 24),
                buffer(Placement::Temporary(128), 32),
                buffer(Placement::Unused, 8),
            ],
            slots: vec![1],
            init_packets: vec![[0; 5].into()],
            arguments: vec![
                ArgumentSpec::Tensor(spec.clone()),
                ArgumentSpec::Scalar(DType::I32),
                ArgumentSpec::RandomKey,
            ],
            outputs: vec![OutputSpec { spec, buffer: 1 }],
            ..ExecutionPlan::default()
        };
        let expected = "\
plan(f32[2, 3], i32, key) -> (%1: f32[2, 3]) {
  init: 5 bytes
  %0: 24 bytes, argument 0
  %1: 24 bytes, output
  %2: 32 bytes, temporary at 128
  $0: 1 bytes of the host
  matmul {
    copy_to_device handles of %0, %1 (32 bytes) -> %2
    launch @0
    launch @1
  }
  rest {
    copy_on_device 2 x 8 bytes %0+4 -> %1+0
    loop $0 {
      copy_from_device %1 -> $0
    } while $0 {
      launch @1
    }
    branch $0 = 0 {
      host count
    }
    branch $0 = 1 {
      copy_to_device $0 -> %1
    }
  }
  nothing {
  }
}
";
        assert_eq!(plan.to_string(), expected);
    }
}
