//! Programs with other numbers than lowering gave them: sizes, offsets, strides, buffers, locals. The
//! verifier refuses them, or they run within their memory.

use super::*;
use crate::ExecError;
use girih_ir::testing::{Rng, graph_of_floats, mutations};
use girih_kernel::verify::verify;
use girih_kernel::{Core, Kernel};

/// The most elements of a program's buffers, and the most points of a kernel, so that it runs at once.
const MOST: usize = 1 << 14;

/// The text with one or two of its numbers replaced.
fn mutated(text: &str, rng: &mut Rng) -> String {
    let mut text = text.to_string();
    for _ in 0..1 + rng.below(2) {
        let digit = |at: &usize| {
            let bytes = text.as_bytes();
            bytes[*at].is_ascii_digit() && (*at == 0 || !bytes[at - 1].is_ascii_digit())
        };
        let starts: Vec<usize> = (0..text.len()).filter(digit).collect();
        let number = |start: usize| {
            let rest = &text[start..];
            &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())]
        };
        let (start, other) = (starts[rng.below(starts.len())], starts[rng.below(starts.len())]);
        let (old, other) = (number(start), number(other).to_string());
        let value: u128 = old.parse().unwrap_or(0);
        let new = match rng.below(6) {
            0 => "0".into(),
            1 => "1".into(),
            2 => (value + 1).to_string(),
            3 => value.saturating_sub(1).to_string(),
            4 => (value * 2).to_string(),
            _ => other,
        };
        let end = start + old.len();
        text.replace_range(start..end, &new);
    }
    text
}

/// Whether the program ends soon and takes arguments that can be made for it.
fn is_small(program: &KernelProgram) -> bool {
    let kernel = |kernel: &Kernel| {
        let nested = match &kernel.core {
            Core::Control(control) => {
                control.trips().is_some_and(|trips| trips < 100)
                    && control.programs.iter().all(is_small)
            }
            Core::Rows(rows) => rows.parts.iter().all(|p| p.points() * p.reduced() <= MOST),
            _ => true,
        };
        let points = kernel.extents.iter().fold(1_usize, |n, &e| n.saturating_mul(e));
        nested && points <= MOST
    };
    let numel = program.buffers.iter().fold(0_usize, |n, b| n.saturating_add(b.numel));
    numel <= MOST && program.kernels.iter().all(kernel)
}

/// The bytes of each argument, small numbers; `None` if two buffers of different sizes are the same
/// argument.
fn arguments(program: &KernelProgram) -> Option<Vec<Vec<u8>>> {
    let mut arguments: Vec<Option<Vec<u8>>> = vec![None; 64];
    for buffer in &program.buffers {
        let BufferKind::Argument(position) = buffer.kind else { continue };
        let value = |i: usize| Literal::from_f64(buffer.dtype, [1.0, 0.0, 2.0][i % 3]).bits;
        let bytes = |i: usize| value(i).to_le_bytes().into_iter().take(buffer.dtype.size());
        let bytes: Vec<u8> = (0..buffer.numel).flat_map(bytes).collect();
        let argument = arguments.get_mut(position)?;
        if buffer.dtype.is_complex() || argument.as_ref().is_some_and(|known| *known != bytes) {
            return None;
        }
        *argument = Some(bytes);
    }
    let arguments = arguments.into_iter().map(Option::unwrap_or_default).collect();
    program.scalars().iter().all(|&scalar| scalar < 64).then_some(arguments)
}

#[test]
fn a_program_that_the_verifier_takes_stays_within_its_memory() {
    let mut rng = Rng(11);
    let (mut taken, mut refused) = (0, 0);
    for round in 0..mutations(3_000) {
        let choices: Vec<u16> = (0..60).map(|_| rng.bits() as u16).collect();
        let (graph, _) = graph_of_floats(&choices);
        let options = if round % 4 == 0 { FusionOptions::NONE } else { FusionOptions::ALL };
        let program = lower(&graph, options, &Target::CPU).expect("the graph is primitive");
        let text = program.to_string();
        for _ in 0..4 {
            let Ok(program) = KernelProgram::parse(&mutated(&text, &mut rng)) else {
                refused += 1;
                continue;
            };
            verify(&program).expect("what is parsed is verified");
            let Some(arguments) = arguments(&program).filter(|_| is_small(&program)) else {
                continue;
            };
            taken += 1;
            match run_program(&program, &arguments, &[[1, 0]; 64]) {
                Ok(_)
                | Err(ExecError::IndexOutOfBounds { .. } | ExecError::LabelOutOfRange { .. }) => {}
                Err(error) => panic!("{error}\n{program}"),
            }
        }
    }
    assert!(taken > refused / 20 && refused > taken / 20, "{taken} taken, {refused} refused");
}
