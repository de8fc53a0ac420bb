//! Environment variables, parsed in one way.

use crate::{Error, Result};

/// The variable's value; `None` if it is unset or empty.
///
/// Errors: [`Error::Configuration`] for a value that is not valid Unicode.
pub fn variable(name: &'static str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(value)) => Err(Error::Configuration {
            variable: name,
            value: value.to_string_lossy().into_owned(),
            expected: "text in UTF-8",
        }),
    }
}

/// The variable's value, parsed by `parse`; `None` if it is unset or empty. `expected` describes
/// the values that `parse` accepts.
///
/// Errors: [`Error::Configuration`] for a value for which `parse` returns `None`, or that is not
/// valid Unicode.
pub fn parsed<T>(
    name: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
    expected: &'static str,
) -> Result<Option<T>> {
    let Some(value) = variable(name)? else { return Ok(None) };
    match parse(&value) {
        None => Err(Error::Configuration { variable: name, value, expected }),
        parsed => Ok(parsed),
    }
}

/// A number of bytes: digits, or a number with K, M or G for 2^10, 2^20 or 2^30; `None` for other
/// texts, and for 0.
pub fn parse_bytes(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.char_indices().last()? {
        (i, 'K' | 'k') => (&text[..i], 10),
        (i, 'M' | 'm') => (&text[..i], 20),
        (i, 'G' | 'g') => (&text[..i], 30),
        _ => (text, 0),
    };
    digits.trim().parse::<usize>().ok()?.checked_mul(1 << shift).filter(|&n| n > 0)
}

/// The variable's value as a path, which need not be valid Unicode; `None` if it is unset or empty.
pub fn path(name: &str) -> Option<std::path::PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(Into::into)
}

/// A switch: the value of the first of several variables that is set and not empty.
///
/// Errors: [`Error::Configuration`] for a value that means neither on nor off, or is not valid
/// Unicode.
pub fn flag(names: &[&'static str]) -> Result<Option<bool>> {
    let mut found = None;
    for &name in names {
        if let Some(value) = variable(name)? {
            found = Some((name, value));
            break;
        }
    }
    let Some((name, value)) = found else { return Ok(None) };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_parse_with_suffixes() {
        assert_eq!(parse_bytes("1024"), Some(1024));
        assert_eq!(parse_bytes(" 8G "), Some(8 << 30));
        assert_eq!(parse_bytes("3 m"), Some(3 << 20));
        for bad in ["", "G", "-1", "1.5G", "0", "lots", "99999999999G"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
