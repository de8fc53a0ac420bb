//! Parser of the text form of factors.

use super::{AxisFactors, Factor, Factors, Role};
use crate::{Error, Result};
use std::collections::HashMap;

/// A token and its byte position.
type Token<'a> = (usize, &'a str);

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let len = match first {
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            '-' if rest.starts_with("->") => 2,
            c => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(len);
        if !first.is_whitespace() {
            tokens.push((text.len() - rest.len(), token));
        }
        rest = behind;
    }
    tokens
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token<'a>>,
    at: usize,
    numbers: HashMap<&'a str, usize>,
    factors: Vec<Factor>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).map(|&(_, token)| token)
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += found as usize;
        found
    }

    fn expected(&self, what: &str) -> Error {
        let at = self.tokens.get(self.at).map_or(self.text.len(), |&(at, _)| at);
        let before = &self.text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[start..].chars().count() + 1;
        let line = self.text[start..].lines().next().unwrap_or_default();
        let found = self.peek().map_or("the end".into(), |token| format!("{token:?}"));
        Error::Parse {
            line: before.matches('\n').count() + 1,
            column,
            reason: format!("expected {what}, found {found}"),
            snippet: format!("{line}\n{}^", " ".repeat(column - 1)),
        }
    }

    /// The next token if it is a factor's name: a letter and an optional number.
    fn name(&self) -> Option<&'a str> {
        self.peek().filter(|token| {
            let mut bytes = token.bytes();
            bytes.next().is_some_and(|first| first.is_ascii_lowercase())
                && bytes.all(|c| c.is_ascii_digit())
        })
    }

    fn factor(&mut self) -> Option<usize> {
        let name = self.name()?;
        self.at += 1;
        let factors = &mut self.factors;
        Some(*self.numbers.entry(name).or_insert_with(|| {
            factors.push(Factor { role: Role::Pointwise, size: None });
            factors.len() - 1
        }))
    }

    /// The axes of one tensor: `i (j k) 1`, or `()`.
    fn tensor(&mut self) -> Result<Vec<AxisFactors>> {
        let mut axes = Vec::new();
        loop {
            if self.eat("1") {
                axes.push(AxisFactors::new());
            } else if let Some(factor) = self.factor() {
                axes.push(AxisFactors::from_slice(&[factor]));
            } else if self.eat("(") {
                let mut axis = AxisFactors::new();
                while let Some(factor) = self.factor() {
                    axis.push(factor);
                }
                let scalar = axis.is_empty() && axes.is_empty();
                if !self.eat(")") || (axis.len() < 2 && !scalar) {
                    return Err(self.expected("two or more factors in parentheses"));
                }
                if scalar {
                    return Ok(axes);
                }
                axes.push(axis);
            } else if axes.is_empty() {
                return Err(self.expected("the axes of a tensor"));
            } else {
                return Ok(axes);
            }
        }
    }

    /// `j: add = 3`, after the axes.
    fn note(&mut self) -> Result<()> {
        let number = self.name().and_then(|name| self.numbers.get(name).copied());
        let Some(number) = number else {
            return Err(self.expected("a factor of an axis"));
        };
        self.at += 1;
        if self.eat(":") {
            let Some(role) = self.peek().and_then(Role::parse) else {
                return Err(self.expected("\"pointwise\", \"whole\" or an op that combines"));
            };
            self.at += 1;
            self.factors[number].role = role;
        }
        if self.eat("=") {
            let Some(size) = self.peek().and_then(|token| token.parse().ok()) else {
                return Err(self.expected("a size"));
            };
            self.at += 1;
            self.factors[number].size = Some(size);
        }
        Ok(())
    }
}

pub(super) fn parse(text: &str) -> Result<Factors> {
    let (numbers, factors) = (HashMap::new(), Vec::new());
    let mut p = Parser { text, tokens: tokens(text), at: 0, numbers, factors };
    let mut operands = Vec::new();
    while !p.eat("->") {
        if !operands.is_empty() && !p.eat(",") {
            return Err(p.expected("\",\" or \"->\""));
        }
        operands.push(p.tensor()?);
    }
    let result = p.tensor()?;
    if p.eat(";") {
        p.note()?;
        while p.eat(",") {
            p.note()?;
        }
    }
    if p.peek().is_some() {
        return Err(p.expected("the end"));
    }
    Factors::new(p.factors, operands, result)
}
