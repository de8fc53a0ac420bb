//! Reads expressions as they are printed: `batch*4+1`, `floor(length/2)`.

use super::Dim;

/// The value at tracing of symbols that come from text.
const HINT: usize = 2;

impl Dim {
    /// The size that a text stands for: a number, or an expression. Its symbols are at least 1 and
    /// have the hint 2.
    pub fn parse(text: &str) -> Option<Dim> {
        if let Ok(size) = text.parse::<usize>() {
            return Some(size.into());
        }
        let mut parser = Parser { rest: text, depth: 0 };
        let dim = parser.sum()?;
        parser.rest.trim_start().is_empty().then_some(dim)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn accept(&mut self, symbol: char) -> bool {
        let found = self.rest.trim_start().strip_prefix(symbol);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn sum(&mut self) -> Option<Dim> {
        let (mut plus, mut minus) = (Dim::from(0), Dim::from(0));
        let mut negative = self.accept('-');
        loop {
            let term = self.product()?;
            match negative {
                true => minus = minus + term,
                false => plus = plus + term,
            }
            negative = self.accept('-');
            if !negative && !self.accept('+') {
                return (plus.hint() >= minus.hint()).then(|| plus - minus);
            }
        }
    }

    fn product(&mut self) -> Option<Dim> {
        let mut product = self.factor()?;
        while self.accept('*') {
            product = product * self.factor()?;
        }
        Some(product)
    }

    fn factor(&mut self) -> Option<Dim> {
        self.rest = self.rest.trim_start();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Ok(size) = word.parse::<usize>() {
            return Some(size.into());
        }
        if word == "floor" && self.accept('(') {
            self.depth += 1;
            if self.depth > 64 {
                return None;
            }
            let dividend = self.sum()?;
            let divisor = self.accept('/').then(|| self.sum())??;
            self.depth -= 1;
            return self.accept(')').then(|| dividend.floor_div(divisor));
        }
        is_name(word).then(|| Dim::symbol(word, HINT, 1, None))
    }
}

/// Whether a symbol may be called that: ASCII letters, digits and underscores, no digit first.
pub fn is_name(word: &str) -> bool {
    let first = word.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
