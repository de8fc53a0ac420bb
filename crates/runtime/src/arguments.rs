//! The check of a run's arguments against the plan.

use crate::{Argument, ArgumentSpec, Error, ExecutionPlan, Result};

/// Fails unless the arguments fit the plan.
///
/// Errors: [`Error::ArgumentCount`]; [`Error::ArgumentMismatch`], [`Error::ArgumentMismatches`].
pub(crate) fn check_arguments(plan: &ExecutionPlan, arguments: &[Argument]) -> Result<()> {
    if plan.arguments.len() != arguments.len() {
        let (expected, found) = (plan.arguments.len(), arguments.len());
        return Err(Error::ArgumentCount { expected, found });
    }
    let fits = |(index, (expected, found)): (usize, (&ArgumentSpec, &Argument))| {
        argument_fits(plan, index, expected, found)
    };
    match plan.arguments.iter().zip(arguments).enumerate().all(fits) {
        true => Ok(()),
        false => Err(mismatches(plan, arguments)),
    }
}

#[inline]
fn argument_fits(
    plan: &ExecutionPlan,
    index: usize,
    expected: &ArgumentSpec,
    found: &Argument,
) -> bool {
    match (expected, found) {
        (ArgumentSpec::Tensor(spec), Argument::Tensor(value, found)) => {
            spec == found && value.size_bytes() >= spec.size_bytes()
        }
        (ArgumentSpec::Strided(spec, strides), Argument::Strided(value, found, given)) => {
            spec == found
                && strides == given
                && value.size_bytes() >= plan.facts.argument_bytes[index]
        }
        (
            ArgumentSpec::Tensor(_) | ArgumentSpec::Strided(..),
            Argument::Checked(value) | Argument::Donated(value),
        ) => value.size_bytes() >= plan.facts.argument_bytes[index],
        (ArgumentSpec::Scalar(_), Argument::Scalar(_))
        | (ArgumentSpec::RandomKey, Argument::RandomKey { .. }) => true,
        _ => false,
    }
}

/// The error for all arguments that do not fit the plan.
#[cold]
fn mismatches(plan: &ExecutionPlan, arguments: &[Argument]) -> Error {
    let mut found = Vec::new();
    for (index, (expected, given)) in plan.arguments.iter().zip(arguments).enumerate() {
        if argument_fits(plan, index, expected, given) {
            continue;
        }
        let (expected, given) = match (expected, given) {
            (ArgumentSpec::Tensor(spec), Argument::Tensor(_, found)) if spec != found => {
                (spec.to_string(), found.to_string())
            }
            (
                ArgumentSpec::Tensor(spec),
                Argument::Tensor(value, _) | Argument::Checked(value) | Argument::Donated(value),
            ) => (
                format!("{spec} of {} bytes", spec.size_bytes()),
                format!("memory of {} bytes", value.size_bytes()),
            ),
            (ArgumentSpec::Strided(spec, strides), Argument::Strided(_, found, given))
                if (spec, strides) != (found, given) =>
            {
                (expected.to_string(), format!("{found} strides {given:?}"))
            }
            (ArgumentSpec::Strided(..), given) => (
                format!("{expected} in {} bytes", expected.size_bytes()),
                match given.value() {
                    Some(value) => format!("memory of {} bytes", value.size_bytes()),
                    None => format!("{given:?}"),
                },
            ),
            (expected, given) => (format!("{expected:?}"), format!("{given:?}")),
        };
        found.push(Error::ArgumentMismatch { index, expected, found: given });
    }
    match found.len() {
        1 => found.remove(0),
        _ => Error::ArgumentMismatches(found),
    }
}
