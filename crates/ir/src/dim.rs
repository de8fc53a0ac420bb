//! Dimensions: sizes that are numbers, or expressions over named symbols. An expression also has
//! the value during tracing (the *hint*).
//!
//! Expressions are polynomials with integer coefficients over symbols and floor quotients, in
//! canonical form: two expressions are equal exactly if their forms are. Expressions are interned
//! for the life of the process. A program needs one for each distinct computation with its sizes.
//!
//! A decision that depends on a symbolic size holds for that size only, so every such decision
//! records a [`Guard`]. Reading the number specialises the expression to it, and a comparison
//! guards its outcome. A comparison that the symbols' ranges decide records no guard. A program
//! traced under guards is valid for all sizes that satisfy them.

mod expr;
mod guards;
mod parse;
#[cfg(test)]
mod tests;

pub use expr::{Expr, Symbol};
pub use guards::{Guard, Guards, Relation, set_place};
pub use parse::is_name;

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, Mul, Sub};

/// A size: a number, or an expression with its value during tracing.
///
/// `==` compares expressions, for all sizes. [`Dim::equals`] compares values at the traced sizes
/// and records a guard.
#[derive(Clone, Copy)]
pub struct Dim {
    hint: usize,
    expr: Option<&'static Expr>,
}

/// Symbols with their sizes.
pub type Sizes = [(&'static Symbol, usize)];

impl Dim {
    /// A symbol; the hint is its value during tracing.
    ///
    /// Symbols with equal name, hint and range are the same symbol.
    pub fn symbol(name: &str, hint: usize, min: usize, max: Option<usize>) -> Dim {
        Dim::of_symbol(Symbol::intern(name, hint, min, max))
    }

    /// A symbol as a size.
    pub fn of_symbol(symbol: &'static Symbol) -> Dim {
        Dim { hint: symbol.hint(), expr: Some(Expr::of_symbol(symbol)) }
    }

    /// Adds the symbols of the expression to `found`, each once.
    pub fn symbols(self, found: &mut Vec<&'static Symbol>) {
        if let Some(expr) = self.expr {
            expr.symbols(found);
        }
    }

    /// The number, if the size is not symbolic.
    pub fn known(self) -> Option<usize> {
        match self.expr {
            None => Some(self.hint),
            Some(_) => None,
        }
    }

    /// The expression, if the size is symbolic.
    pub fn expr(self) -> Option<&'static Expr> {
        self.expr
    }

    /// The symbol, if the expression is a single symbol.
    pub fn as_symbol(self) -> Option<&'static Symbol> {
        self.expr?.as_symbol()
    }

    /// The value during tracing, without a guard, for messages and estimates. No program may depend
    /// on it.
    pub fn hint(self) -> usize {
        self.hint
    }

    /// The value during tracing. Specialises an expression to it by a guard.
    pub fn get(self) -> usize {
        if self.expr.is_some() {
            guards::record(Guard::new(self, Relation::Equal, self.hint.into()));
        }
        self.hint
    }

    /// True if the value is `size` for all sizes in the symbols' ranges.
    pub fn is(self, size: usize) -> bool {
        match self.expr {
            None => self.hint == size,
            Some(expr) => {
                let size = size as i128;
                expr.lower() == Some(size) && expr.upper() == Some(size)
            }
        }
    }

    /// Compares the values at the traced sizes. Records a guard unless the outcome is the same for
    /// all sizes.
    pub fn equals(self, other: impl Into<Dim>) -> bool {
        let other = other.into();
        if self == other {
            return true;
        }
        if self.expr.is_none() && other.expr.is_none() {
            return false;
        }
        let (Some(difference), equal) = (self.minus(other), self.hint == other.hint) else {
            return self.get() == other.get();
        };
        if difference.lower().is_some_and(|v| v > 0) || difference.upper().is_some_and(|v| v < 0) {
            return false;
        }
        let relation = if equal { Relation::Equal } else { Relation::Unequal };
        guards::record(Guard::new(self, relation, other));
        equal
    }

    /// True if the value is at least `other`'s at the traced sizes; guarded like [`Dim::equals`].
    pub fn at_least(self, other: impl Into<Dim>) -> bool {
        let other = other.into();
        if self.expr.is_none() && other.expr.is_none() {
            return self.hint >= other.hint;
        }
        let (Some(difference), holds) = (self.minus(other), self.hint >= other.hint) else {
            return self.get() >= other.get();
        };
        if difference.lower().is_some_and(|v| v >= 0) {
            return true;
        }
        if difference.upper().is_some_and(|v| v < 0) {
            return false;
        }
        let relation = if holds { Relation::AtLeast } else { Relation::Less };
        guards::record(Guard::new(self, relation, other));
        holds
    }

    /// Orders the values at the traced sizes; guarded.
    pub fn compare(self, other: impl Into<Dim>) -> Ordering {
        let other = other.into();
        match (self.equals(other), self.at_least(other)) {
            (true, _) => Ordering::Equal,
            (_, true) => Ordering::Greater,
            _ => Ordering::Less,
        }
    }

    /// `self - other` as a polynomial; None if a coefficient overflows.
    fn minus(self, other: Dim) -> Option<Expr> {
        Expr::of(self).plus(&Expr::of(other).times(&Expr::constant(-1))?)
    }

    /// The quotient rounded down. Guards that the divisor is not 0; division by 0 gives 0.
    pub fn floor_div(self, divisor: impl Into<Dim>) -> Dim {
        let divisor = divisor.into();
        if divisor.equals(0) {
            return Dim::from(0);
        }
        let hint = self.hint / divisor.hint;
        match (self.known(), divisor.known()) {
            (Some(_), Some(_)) => Dim::from(hint),
            _ => Expr::of(self)
                .quotient(&Expr::of(divisor))
                .map(|expr| Dim::of_expr(expr, hint))
                .unwrap_or_else(|| (self.get() / divisor.get()).into()),
        }
    }

    /// The remainder of [`Dim::floor_div`], which is 0 if the polynomial division is exact.
    pub fn remainder(self, divisor: impl Into<Dim>) -> Dim {
        let divisor = divisor.into();
        self - self.floor_div(divisor) * divisor
    }

    fn of_expr(expr: Expr, hint: usize) -> Dim {
        match expr.as_constant() {
            Some(value) => Dim { hint: usize::try_from(value).unwrap_or(0), expr: None },
            None => Dim { hint, expr: Some(expr.intern()) },
        }
    }

    /// The value at other sizes; None if a symbol has no size or the value is out of range.
    pub fn evaluate(self, sizes: &Sizes) -> Option<usize> {
        match self.expr {
            None => Some(self.hint),
            Some(expr) => usize::try_from(expr.evaluate(sizes)?).ok(),
        }
    }
}

impl Default for Dim {
    fn default() -> Dim {
        Dim::from(0)
    }
}

impl From<usize> for Dim {
    #[inline]
    fn from(size: usize) -> Dim {
        Dim { hint: size, expr: None }
    }
}

impl From<&usize> for Dim {
    fn from(size: &usize) -> Dim {
        Dim { hint: *size, expr: None }
    }
}

impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        match (self.expr, other.expr) {
            (None, None) => self.hint == other.hint,
            // Expressions are interned, so equal expressions have equal addresses.
            (Some(a), Some(b)) => std::ptr::eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Dim {}

impl std::hash::Hash for Dim {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.hint.hash(state);
    }
}

impl<D: Into<Dim>> Add<D> for Dim {
    type Output = Dim;

    fn add(self, other: D) -> Dim {
        let other = other.into();
        let hint = self.hint.saturating_add(other.hint);
        match (self.expr, other.expr) {
            (None, None) => hint.into(),
            _ => Expr::of(self)
                .plus(&Expr::of(other))
                .map(|expr| Dim::of_expr(expr, hint))
                .unwrap_or_else(|| self.get().saturating_add(other.get()).into()),
        }
    }
}

/// The difference, or 0 if it would be negative; the sign is guarded.
impl<D: Into<Dim>> Sub<D> for Dim {
    type Output = Dim;

    fn sub(self, other: D) -> Dim {
        let other = other.into();
        if self == other || !self.at_least(other) {
            return 0.into();
        }
        let hint = self.hint - other.hint;
        match (self.expr, other.expr) {
            (None, None) => hint.into(),
            _ => self
                .minus(other)
                .map(|expr| Dim::of_expr(expr, hint))
                .unwrap_or_else(|| (self.get() - other.get()).into()),
        }
    }
}

impl<D: Into<Dim>> Mul<D> for Dim {
    type Output = Dim;

    fn mul(self, other: D) -> Dim {
        let other = other.into();
        let hint = self.hint.saturating_mul(other.hint);
        match (self.expr, other.expr) {
            (None, None) => hint.into(),
            _ => Expr::of(self)
                .times(&Expr::of(other))
                .map(|expr| Dim::of_expr(expr, hint))
                .unwrap_or_else(|| self.get().saturating_mul(other.get()).into()),
        }
    }
}

impl std::iter::Product for Dim {
    fn product<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::from(1), |product, dim| product * dim)
    }
}

impl std::iter::Sum for Dim {
    fn sum<I: Iterator<Item = Dim>>(iter: I) -> Dim {
        iter.fold(Dim::from(0), |sum, dim| sum + dim)
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expr {
            None => write!(f, "{}", self.hint),
            Some(expr) => write!(f, "{expr}"),
        }
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
