//! Parses expressions in their printed form: `batch*4+1`, `floor(length/2)`.

use super::{Dim, Guard, Relation, Symbol};

/// The hint of symbols that are parsed from text.
const HINT: usize = 2;

impl Dim {
    /// Parses a size: a number or an expression. Its symbols have the range from 1 on and the hint
    /// 2.
    pub fn parse(text: &str) -> Option<Dim> {
        Dim::parse_over(text, &[])
    }

    /// As [`Dim::parse`], with declared symbols.
    pub fn parse_over(text: &str, symbols: &[&'static Symbol]) -> Option<Dim> {
        if let Ok(size) = text.parse::<usize>() {
            return Some(size.into());
        }
        let mut parser = Parser { rest: text, depth: 0, symbols };
        let dim = parser.sum()?;
        parser.rest.trim_start().is_empty().then_some(dim)
    }
}

impl Guard {
    /// Parses a guard in its printed form: `batch*2 >= 9`.
    pub fn parse(text: &str, symbols: &[&'static Symbol]) -> Option<Guard> {
        let mut words = text.split(' ').filter(|word| !word.is_empty());
        let (lhs, sign, rhs) = (words.next()?, words.next()?, words.next()?);
        let relation = Relation::ALL.into_iter().find(|relation| relation.sign() == sign)?;
        let dim = |text| Dim::parse_over(text, symbols);
        let guard = Guard::new(dim(lhs)?, relation, dim(rhs)?);
        words.next().is_none().then_some(guard)
    }
}

impl Symbol {
    /// Parses a declaration as [`Symbol::declaration`] prints it.
    pub fn parse(text: &str) -> Option<&'static Symbol> {
        let (name, rest) = text.split_once('=')?;
        let (hint, range) = rest.split_once(" in ")?;
        let (min, max) = range.split_once("..")?;
        let number = |text: &str| text.trim().parse::<usize>().ok();
        let max = match max.trim() {
            "" => None,
            max => Some(number(max.strip_prefix('=')?)?),
        };
        let (name, hint, min) = (name.trim(), number(hint)?, number(min)?);
        let fits = is_name(name) && min <= hint && max.is_none_or(|max| hint <= max);
        fits.then(|| Symbol::intern(name, hint, min, max))
    }

    /// Name, value during tracing and range: `batch=2 in 1..=64`.
    pub fn declaration(&self) -> String {
        format!("{}={} {}", self.name(), self.hint(), self.range())
    }

    /// The range: `in 1..=64`.
    pub fn range(&self) -> String {
        let max = self.max().map_or_else(String::new, |max| format!("={max}"));
        format!("in {}..{max}", self.min())
    }

    /// True if the symbol has the default range, so that the text form need only declare its hint.
    pub fn has_default_range(&self) -> bool {
        (self.min(), self.max()) == (1, None)
    }
}

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
    symbols: &'a [&'static Symbol],
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
        match self.symbols.iter().find(|symbol| symbol.name() == word) {
            Some(symbol) => Some(Dim::of_symbol(symbol)),
            None => is_name(word).then(|| Dim::symbol(word, HINT, 1, None)),
        }
    }
}

/// True for a valid symbol name: ASCII letters, digits and underscores, not starting with a digit.
pub fn is_name(word: &str) -> bool {
    let first = word.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
