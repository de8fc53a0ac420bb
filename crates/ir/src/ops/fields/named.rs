//! Parses attributes given by name, for the text form and for ops recorded by name.

use super::{Context, Expected, REGIONS};
use crate::ops::Attrs;
use crate::{OpCode, Shape};

/// An attribute as given: its name, empty for a positional value, and the text of its value.
pub type Given<'a> = (&'a str, &'a str);

/// Why attributes do not match an op. Positions count the given attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// A value that its field does not accept.
    Value {
        /// Position of the attribute.
        at: usize,
        /// Name of the field; empty for a positional value.
        name: &'static str,
        /// The expected value, as a continuation of the word "expected".
        expected: Expected,
    },
    /// No value for a field that has no default.
    Missing {
        /// Name of the field; empty for a positional value.
        name: &'static str,
        /// The expected value, as a continuation of the word "expected".
        expected: Expected,
    },
    /// An attribute that the op does not have, or that is given twice.
    Unknown {
        /// Position of the attribute.
        at: usize,
        /// The attribute names of the op.
        takes: Vec<&'static str>,
    },
}

/// The attribute names of an op as a clause: `sum takes dim, keepdim`.
pub fn takes(op: &str, names: &[&str]) -> String {
    match names {
        [] => format!("{op} takes no attributes"),
        names => format!("{op} takes {}", names.join(", ")),
    }
}

impl OpCode {
    /// Parses an op's attributes from names and texts, as the text form prints them. Missing fields
    /// get their default. Regions are not parsed: they stay empty.
    ///
    /// Errors: the first [`Mismatch`].
    pub fn read_attrs(self, given: &[Given<'_>], cx: Context<'_>) -> Result<Attrs, Mismatch> {
        let mut attrs = self.kind_of(given, cx);
        let mut used = vec![false; given.len()];
        let mut known: Vec<&'static str> = Vec::new();
        attrs.fields_mut(&mut |name, field| {
            if name == REGIONS {
                field.set_default(cx);
                return Ok(());
            }
            if !name.is_empty() {
                known.push(name);
            }
            let found = (0..given.len()).find(|&at| !used[at] && given[at].0 == name);
            let Some(at) = found else {
                return match field.set_default(cx) {
                    true => Ok(()),
                    false => {
                        let expected = field.parse(cx, "").err().unwrap_or_default();
                        Err(Mismatch::Missing { name, expected })
                    }
                };
            };
            used[at] = true;
            let parsed = field.parse(cx, given[at].1);
            parsed.map_err(|expected| Mismatch::Value { at, name, expected })
        })?;
        match used.iter().position(|used| !used) {
            Some(at) => Err(Mismatch::Unknown { at, takes: known }),
            None => Ok(match &attrs {
                // If the symbols of the bounds cancel, the bounds are numbers.
                Attrs::SliceOf(of) => Attrs::slice(of.0.clone(), &of.1),
                _ => attrs,
            }),
        }
    }

    /// Attributes of the op's kind. A few ops have a second kind for symbolic sizes.
    fn kind_of(self, given: &[Given<'_>], cx: Context<'_>) -> Attrs {
        let symbolic = |text: &str| text.contains(|c: char| c.is_alphabetic());
        let named = |wanted| given.iter().find(|(name, _)| *name == wanted);
        match self.blank_attrs() {
            Attrs::Slice(_)
                if cx.result.is_some_and(Shape::is_symbolic)
                    || named("bounds").is_some_and(|(_, text)| symbolic(text)) =>
            {
                Attrs::SliceOf(Default::default())
            }
            Attrs::Value(_) if named("size").is_some() => Attrs::OfSize(Default::default()),
            blank => blank,
        }
    }

    /// The op with this name.
    ///
    /// Errors: a sentence that names the closest op, if one is close.
    pub fn named(name: &str) -> Result<OpCode, String> {
        let found = OpCode::ALL.iter().find(|code| code.def().name == name);
        found.copied().ok_or_else(|| {
            let names = OpCode::ALL.iter().map(|code| code.def().name);
            let near = names.map(|known| (distance(name, known), known)).min();
            match near {
                Some((d, known)) if d <= 2 => {
                    format!("there is no op '{name}'; did you mean {known}?")
                }
                _ => format!("there is no op '{name}'"),
            }
        })
    }
}

/// Levenshtein distance of two words; unlimited for words of more than 40 characters.
fn distance(a: &str, b: &str) -> usize {
    if a.len() > 40 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let here = (diagonal + (x != y) as usize).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], here);
        }
    }
    row[b.len()]
}
