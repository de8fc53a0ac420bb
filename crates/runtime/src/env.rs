//! Environment variables, read in one way.

use crate::{Error, Result};

/// The variable's value, if it is set to something.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A switch: the first of several spellings that is set to something.
///
/// Errors: [`Error::Configuration`] for a value that says neither on nor off.
pub fn flag(names: &[&'static str]) -> Result<Option<bool>> {
    let Some((name, value)) = names.iter().find_map(|name| Some((*name, variable(name)?))) else {
        return Ok(None);
    };
    match value.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "on" | "yes" => Ok(Some(true)),
        "0" | "false" | "off" | "no" => Ok(Some(false)),
        _ => Err(Error::Configuration {
            variable: name,
            value,
            expected: "1 (also true, on, yes) or 0 (also false, off, no)",
        }),
    }
}
