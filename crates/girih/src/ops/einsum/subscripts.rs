//! Subscripts of a summation: the labels of all axes, and the sizes of the labels.

use crate::{Error, Result};
use girih_ir::{Dim, Shape};

/// A label. A letter is its code point; axes under an ellipsis are numbered from the right.
pub(super) type Label = u32;

/// The first label of axes under an ellipsis, beyond all characters.
const ELLIPSIS: Label = 0x11_0000;

/// Parsed subscripts.
pub(super) struct Subscripts {
    /// One label per axis of each operand.
    pub inputs: Vec<Vec<Label>>,
    /// One label per axis of the result.
    pub output: Vec<Label>,
    /// The size of each label.
    sizes: Vec<(Label, Dim)>,
}

fn invalid(text: &str, reason: impl std::fmt::Display) -> Error {
    Error::InvalidArgument(format!("einsum: '{text}': {reason}"))
}

/// The letters before an ellipsis, whether there is an ellipsis, and the letters after it.
fn parse_term(text: &str, term: &str) -> Result<(Vec<Label>, bool, Vec<Label>)> {
    let letters = |part: &str| -> Result<Vec<Label>> {
        let letter = |c: char| match c.is_alphabetic() {
            true => Ok(c as Label),
            false => Err(invalid(text, format!("'{c}' is no label; labels are letters"))),
        };
        part.chars().filter(|c| !c.is_whitespace()).map(letter).collect()
    };
    match term.split_once("...") {
        None => Ok((letters(term)?, false, Vec::new())),
        Some((_, after)) if after.contains("...") => {
            Err(invalid(text, "a term has one ellipsis at most"))
        }
        Some((before, after)) => Ok((letters(before)?, true, letters(after)?)),
    }
}

impl Subscripts {
    /// Parses subscripts for operands of these shapes.
    ///
    /// Errors: [`Error::InvalidArgument`] for subscripts that do not parse or fit; a shape error
    /// for sizes that differ.
    pub fn parse(text: &str, shapes: &[Shape]) -> Result<Subscripts> {
        let (inputs, output) = match text.split_once("->") {
            Some((inputs, output)) => (inputs, Some(output)),
            None => (text, None),
        };
        let terms: Vec<&str> = inputs.split(',').collect();
        if terms.len() != shapes.len() || shapes.is_empty() {
            let (terms, operands) = (terms.len(), shapes.len());
            return Err(invalid(text, format!("{terms} terms for {operands} operands")));
        }
        let mut parsed = Subscripts { inputs: Vec::new(), output: Vec::new(), sizes: Vec::new() };
        let mut widest = 0;
        for (i, (term, shape)) in terms.iter().zip(shapes).enumerate() {
            let (mut labels, ellipsis, after) = parse_term(text, term)?;
            let named = labels.len() + after.len();
            let rank = shape.rank();
            if named > rank || (named < rank && !ellipsis) {
                return Err(invalid(
                    text,
                    format!(
                        "operand {i} has {rank} axes, its term '{}' names {named}",
                        term.trim()
                    ),
                ));
            }
            let hidden = rank - named;
            widest = widest.max(hidden);
            labels.extend((0..hidden).rev().map(|n| ELLIPSIS + n as Label));
            labels.extend(after);
            parsed.measure(text, &labels, shape)?;
            parsed.inputs.push(labels);
        }
        let ellipsis: Vec<Label> = (0..widest).rev().map(|n| ELLIPSIS + n as Label).collect();
        parsed.output = match output {
            Some(output) => parsed.explicit(text, output, &ellipsis)?,
            None => parsed.implicit(ellipsis),
        };
        Ok(parsed)
    }

    fn measure(&mut self, text: &str, labels: &[Label], shape: &Shape) -> Result<()> {
        for (&label, size) in labels.iter().zip(shape.dims()) {
            match self.sizes.iter_mut().find(|s| s.0 == label) {
                None => self.sizes.push((label, size)),
                Some(known) if known.1 == size || size.is(1) => {}
                Some(known) if known.1.is(1) => known.1 = size,
                Some(known) if known.1.equals(size) || size.equals(1) => {}
                Some(known) if known.1.equals(1) => known.1 = size,
                Some(known) => {
                    let name = match char::from_u32(label) {
                        Some(c) => format!("label '{c}'"),
                        None => "an axis under the ellipsis".into(),
                    };
                    let reason = format!("{name} stands for {} in '{text}' elsewhere", known.1);
                    let (op, shape) = ("einsum", shape.clone());
                    return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
                }
            }
        }
        Ok(())
    }

    fn explicit(&self, text: &str, output: &str, ellipsis: &[Label]) -> Result<Vec<Label>> {
        let (mut labels, shown, after) = parse_term(text, output)?;
        if shown {
            labels.extend(ellipsis);
        }
        labels.extend(after);
        for (i, &label) in labels.iter().enumerate() {
            let name = || char::from_u32(label).unwrap_or('.');
            if labels[..i].contains(&label) {
                return Err(invalid(text, format!("the output names '{}' twice", name())));
            }
            if !self.sizes.iter().any(|s| s.0 == label) {
                return Err(invalid(text, format!("no operand has the output's '{}'", name())));
            }
        }
        Ok(labels)
    }

    /// The ellipsis, then all labels that occur once, sorted.
    fn implicit(&self, ellipsis: Vec<Label>) -> Vec<Label> {
        let all = || self.inputs.iter().flatten().copied();
        let once = |l: &Label| *l < ELLIPSIS && all().filter(|m| m == l).count() == 1;
        let mut letters: Vec<Label> = all().filter(once).collect();
        letters.sort_unstable();
        ellipsis.into_iter().chain(letters).collect()
    }

    /// The size of a label.
    pub fn size(&self, label: Label) -> Dim {
        self.sizes.iter().find(|s| s.0 == label).map_or(1.into(), |s| s.1)
    }
}
