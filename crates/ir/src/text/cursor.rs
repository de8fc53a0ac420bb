//! A position in parsed text, with the rules that the text forms of graphs and kernels share: white
//! space, comments, words, strings, calls with attributes, and errors that show the position.

use crate::ops::Attrs;
use crate::ops::fields::{Context, FieldMut, Given, Mismatch, takes};
use crate::{Error, OpCode, Result};

/// A lexeme of the text with its position.
#[derive(Clone, Copy, Debug)]
pub struct Lexeme<'a> {
    /// Start, in bytes.
    pub at: usize,
    /// The lexeme.
    pub text: &'a str,
}

/// A parsed call: the op's name and its arguments.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// The op's name.
    pub name: Lexeme<'a>,
    /// Positional arguments.
    pub plain: Vec<Lexeme<'a>>,
    /// Named arguments: name and value.
    pub named: Vec<(Lexeme<'a>, Lexeme<'a>)>,
    /// End of the arguments, in bytes.
    pub end: usize,
}

/// A text and a position in it.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    /// The whole text.
    pub text: &'a str,
    /// The position, in bytes.
    pub at: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start of a text.
    pub fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    /// A word or a string before an equals sign.
    pub fn key(&mut self, expected: &str) -> Result<String> {
        let at = self.at;
        let key = match self.rest().starts_with('"') {
            true => self.string()?,
            false => self.until(|c| !c.is_ascii_alphanumeric() && !"_.-".contains(c)).text.into(),
        };
        match key.is_empty() && self.at == at {
            true => Err(self.expected(expected)),
            false => Ok(key),
        }
    }

    /// The attributes of a call; `plain` holds the positional attributes.
    ///
    /// Errors: a value that its field does not accept, a missing attribute, or an unknown
    /// attribute.
    pub fn attributes(
        &self,
        code: OpCode,
        plain: &[Lexeme<'a>],
        call: &Call<'a>,
        cx: Context<'_>,
    ) -> Result<Attrs> {
        let given = plain.iter().map(|value| ("", value.text));
        let given = given.chain(call.named.iter().map(|(key, value)| (key.text, value.text)));
        let given: Vec<Given<'_>> = given.collect();
        let name = code.def().name;
        code.read_attrs(&given, cx).map_err(|mismatch| match mismatch {
            Mismatch::Value { at, expected, .. } => {
                let value = match at.checked_sub(plain.len()) {
                    None => plain[at],
                    Some(at) => call.named[at].1,
                };
                self.error(value, format!("expected {expected}"))
            }
            Mismatch::Missing { name: missing, .. } => {
                let missing = if missing.is_empty() { "a value" } else { missing };
                self.error_at(call.end, format!("{name} lacks {missing}"))
            }
            Mismatch::Unknown { at, takes: known } => {
                let takes = takes(name, &known);
                match at.checked_sub(plain.len()) {
                    None => {
                        let text = plain[at].text;
                        self.error(plain[at], format!("unexpected '{text}'; {takes}"))
                    }
                    Some(at) => {
                        let key = call.named[at].0;
                        let reason = format!("unexpected attribute '{}'; {takes}", key.text);
                        self.error(key, reason)
                    }
                }
            }
        })
    }

    /// Reads a field's value.
    ///
    /// Errors: a value that the field does not accept.
    pub fn field(
        &self,
        lexeme: Lexeme<'a>,
        field: &mut dyn FieldMut,
        cx: Context<'_>,
    ) -> Result<()> {
        field
            .parse(cx, lexeme.text)
            .map_err(|expected| self.error(lexeme, format!("expected {expected}")))
    }

    /// `name(argument, key=argument, …)`
    pub fn call(&mut self) -> Result<Call<'a>> {
        self.space();
        let name = self.word();
        if name.text.is_empty() {
            return Err(self.expected("the name of an op"));
        }
        self.symbol("(")?;
        let mut call = Call { name, plain: Vec::new(), named: Vec::new(), end: 0 };
        while !self.accept(")") {
            if !call.plain.is_empty() || !call.named.is_empty() {
                self.symbol(",")?;
            }
            self.space();
            let start = self.at;
            let key = self.word();
            if !key.text.is_empty() && self.accept("=") {
                self.space();
                let value = self.value()?;
                call.named.push((key, value));
                continue;
            }
            self.at = start;
            let value = self.value()?;
            call.plain.push(value);
        }
        call.end = self.at - 1;
        Ok(call)
    }

    /// A list in brackets, a text in parentheses, or the text up to the next comma, bracket or space.
    pub fn value(&mut self) -> Result<Lexeme<'a>> {
        if self.rest().starts_with('[') {
            return self.bracketed();
        }
        if self.rest().starts_with('(') {
            return self.parenthesised();
        }
        let stop = |c: char| c.is_whitespace() || ",()[]{}=\"#".contains(c);
        let lexeme = self.until(stop);
        if lexeme.text.is_empty() {
            return Err(self.expected("an operand (%0) or an attribute"));
        }
        Ok(lexeme)
    }

    /// A text in parentheses, which may contain others.
    fn parenthesised(&mut self) -> Result<Lexeme<'a>> {
        let (at, mut depth) = (self.at, 0);
        let closes = |(_, c): &(usize, char)| {
            depth += i32::from(*c == '(') - i32::from(*c == ')');
            depth == 0 || matches!(c, '\n' | '#')
        };
        let end = self.rest().char_indices().find(closes);
        match end.filter(|(_, c)| *c == ')') {
            Some((end, _)) => {
                self.at = at + end + 1;
                Ok(Lexeme { at, text: &self.text[at..self.at] })
            }
            None => Err(self.error_at(at, "this parenthesis is not closed on its line".into())),
        }
    }

    /// A list in brackets without nested lists.
    pub fn bracketed(&mut self) -> Result<Lexeme<'a>> {
        let at = self.at;
        if !self.rest().starts_with('[') {
            return Err(self.expected("a list in brackets"));
        }
        let end = self.rest()[1..].find(['[', ']', '\n', '#']).map(|end| at + 1 + end);
        match end.filter(|&end| self.text.as_bytes()[end] == b']') {
            Some(end) => {
                self.at = end + 1;
                Ok(Lexeme { at, text: &self.text[at..=end] })
            }
            None => Err(self.error_at(at, "this bracket is not closed on its line".into())),
        }
    }

    /// A string in double quotes; the inverse of [`quoted`](super::quoted).
    ///
    /// Errors: no opening quote, an unknown escape, or a string that does not end on its line.
    pub fn string(&mut self) -> Result<String> {
        let start = self.at;
        if !self.rest().starts_with('"') {
            return Err(self.expected("a string in double quotes"));
        }
        let mut out = String::new();
        let mut chars = self.rest()[1..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + 1 + i + 1;
                    return Ok(out);
                }
                '\n' => break,
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some(c @ ('"' | '\\')) => out.push(c),
                    Some('u') => {
                        let digits: String =
                            chars.by_ref().map(|(_, c)| c).take_while(|&c| c != '}').collect();
                        let code =
                            digits.strip_prefix('{').and_then(|d| u32::from_str_radix(d, 16).ok());
                        let Some(c) = code.and_then(char::from_u32) else {
                            return Err(self.error_at(
                                start + 1 + i,
                                "expected \\u{…} with the code of a character".into(),
                            ));
                        };
                        out.push(c);
                    }
                    _ => {
                        return Err(self
                            .error_at(start + 1 + i, "expected \\n, \\\", \\\\ or \\u{…}".into()));
                    }
                },
                c => out.push(c),
            }
        }
        Err(self.error_at(start, "this string is not closed on its line".into()))
    }

    /// The text from the position on.
    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Skips white space and comments.
    pub fn space(&mut self) {
        loop {
            let rest = self.rest().trim_start();
            self.at = self.text.len() - rest.len();
            match rest.strip_prefix('#') {
                Some(_) => self.at += rest.find('\n').unwrap_or(rest.len()),
                None => return,
            }
        }
    }

    /// The text up to the first character that `stop` accepts.
    pub fn until(&mut self, stop: impl Fn(char) -> bool) -> Lexeme<'a> {
        let rest = self.rest();
        let text = &rest[..rest.find(stop).unwrap_or(rest.len())];
        let lexeme = Lexeme { at: self.at, text };
        self.at += text.len();
        lexeme
    }

    /// Letters, digits and underscores; empty if there are none.
    pub fn word(&mut self) -> Lexeme<'a> {
        self.until(|c| !c.is_ascii_alphanumeric() && c != '_')
    }

    /// Skips white space and, if it follows, the symbol; returns whether the symbol follows.
    pub fn accept(&mut self, symbol: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(symbol);
        self.at += if found { symbol.len() } else { 0 };
        found
    }

    /// Skips white space and the symbol.
    ///
    /// Errors: the symbol does not follow.
    pub fn symbol(&mut self, symbol: &str) -> Result<()> {
        match self.accept(symbol) {
            true => Ok(()),
            false => Err(self.expected(&format!("'{symbol}'"))),
        }
    }

    /// The error that `what` was expected at the position.
    pub fn expected(&self, what: &str) -> Error {
        let rest = self.rest();
        let word: String = rest.chars().take_while(|c| !c.is_whitespace()).take(20).collect();
        let found =
            if rest.is_empty() { "the end of the text".into() } else { format!("'{word}'") };
        self.error_at(self.at, format!("expected {what}, found {found}"))
    }

    /// An error at a byte position.
    pub fn error_at(&self, at: usize, reason: String) -> Error {
        self.error(Lexeme { at, text: "" }, reason)
    }

    /// An error about a lexeme, with line, column, and the line with carets below the lexeme.
    pub fn error(&self, lexeme: Lexeme<'_>, reason: String) -> Error {
        let before = &self.text[..lexeme.at];
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let line_text = self.text[start..].lines().next().unwrap_or_default();
        let (line, column) =
            (before.matches('\n').count() + 1, before[start..].chars().count() + 1);
        let carets = "^".repeat(lexeme.text.chars().count().clamp(1, 80));
        let snippet =
            format!("{line:>4} | {}\n     | {}{carets}", line_text, " ".repeat(column - 1));
        Error::Parse { line, column, reason, snippet }
    }
}
