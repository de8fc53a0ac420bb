//! Symbols, and polynomials over them in canonical form.

use super::{Dim, Sizes};
use girih_sync::Mutex;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;
use std::fmt;
use std::sync::PoisonError;

/// A named size.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    name: Box<str>,
    hint: usize,
    min: usize,
    max: Option<usize>,
}

impl Symbol {
    /// The interned symbol with this name, hint and range.
    pub(super) fn intern(
        name: &str,
        hint: usize,
        min: usize,
        max: Option<usize>,
    ) -> &'static Symbol {
        static SYMBOLS: Mutex<Option<FxHashSet<&'static Symbol>>> = Mutex::new(None);
        intern(&SYMBOLS, Symbol { name: name.into(), hint, min, max })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value during tracing.
    pub fn hint(&self) -> usize {
        self.hint
    }

    /// The smallest size in the range.
    pub fn min(&self) -> usize {
        self.min
    }

    /// The largest size in the range, if it is bounded.
    pub fn max(&self) -> Option<usize> {
        self.max
    }
}

/// The interned value equal to `value`; it lives as long as the process.
fn intern<T: Eq + std::hash::Hash>(
    table: &Mutex<Option<FxHashSet<&'static T>>>,
    value: T,
) -> &'static T {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    let table = table.get_or_insert_default();
    if let Some(&found) = table.get(&value) {
        return found;
    }
    let kept: &'static T = Box::leak(Box::new(value));
    table.insert(kept);
    kept
}

/// The indeterminates of polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(&'static Symbol),
    /// A quotient rounded down: dividend and divisor.
    Floor(&'static Expr, &'static Expr),
}

/// A product of atoms in ascending order; the empty product is 1.
type Monomial = SmallVec<[Atom; 2]>;

/// A polynomial: monomials in ascending order, each with a nonzero coefficient.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Expr {
    terms: Vec<(Monomial, i64)>,
}

impl Expr {
    pub(super) fn constant(value: i64) -> Expr {
        Expr { terms: if value == 0 { vec![] } else { vec![(Monomial::new(), value)] } }
    }

    fn atom(atom: Atom) -> Expr {
        Expr { terms: vec![(SmallVec::from_slice(&[atom]), 1)] }
    }

    pub(super) fn of_symbol(symbol: &'static Symbol) -> &'static Expr {
        Expr::atom(Atom::Symbol(symbol)).intern()
    }

    pub(super) fn of(dim: Dim) -> Expr {
        match dim.expr {
            Some(expr) => expr.clone(),
            // Sizes fit `isize`; a larger tensor cannot exist.
            None => Expr::constant(i64::try_from(dim.hint).unwrap_or(i64::MAX)),
        }
    }

    pub(super) fn intern(self) -> &'static Expr {
        static EXPRS: Mutex<Option<FxHashSet<&'static Expr>>> = Mutex::new(None);
        intern(&EXPRS, self)
    }

    pub(super) fn as_constant(&self) -> Option<i64> {
        match &*self.terms {
            [] => Some(0),
            [(monomial, value)] if monomial.is_empty() => Some(*value),
            _ => None,
        }
    }

    pub(super) fn as_symbol(&self) -> Option<&'static Symbol> {
        match &*self.terms {
            [(monomial, 1)] => match **monomial {
                [Atom::Symbol(symbol)] => Some(symbol),
                _ => None,
            },
            _ => None,
        }
    }

    /// The sum; None if a coefficient overflows.
    pub(super) fn plus(&self, other: &Expr) -> Option<Expr> {
        Expr::collect(self.terms.iter().chain(&other.terms).cloned())
    }

    /// The product; None if a coefficient overflows.
    pub(super) fn times(&self, other: &Expr) -> Option<Expr> {
        let mut terms = Vec::with_capacity(self.terms.len() * other.terms.len());
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut monomial: Monomial = a.iter().chain(b).copied().collect();
                monomial.sort_unstable();
                terms.push((monomial, x.checked_mul(*y)?));
            }
        }
        Expr::collect(terms)
    }

    fn collect(terms: impl IntoIterator<Item = (Monomial, i64)>) -> Option<Expr> {
        let mut terms: Vec<(Monomial, i64)> = terms.into_iter().collect();
        terms.sort_unstable();
        let mut out: Vec<(Monomial, i64)> = Vec::with_capacity(terms.len());
        for (monomial, value) in terms {
            match out.last_mut() {
                Some((last, sum)) if *last == monomial => *sum = sum.checked_add(value)?,
                _ => out.push((monomial, value)),
            }
        }
        out.retain(|(_, value)| *value != 0);
        Some(Expr { terms: out })
    }

    /// The quotient, rounded down, of a nonnegative dividend and a positive divisor. It is exact if
    /// the divisor is one term that divides every term. Otherwise the divisible terms are divided
    /// and the others remain in a floor quotient. None if a coefficient overflows.
    pub(super) fn quotient(&self, divisor: &Expr) -> Option<Expr> {
        if self == divisor {
            return Some(Expr::constant(1));
        }
        let (mut whole, mut rest) = (Vec::new(), Vec::new());
        for (monomial, value) in &self.terms {
            match divided(monomial, *value, divisor) {
                Some(term) => whole.push(term),
                None => rest.push((monomial.clone(), *value)),
            }
        }
        let (whole, rest) = (Expr::collect(whole)?, Expr { terms: rest });
        if rest.terms.is_empty() {
            return Some(whole);
        }
        // The remaining terms must be nonnegative, since division truncates.
        if rest.lower().is_some_and(|low| low >= 0) {
            let below = divisor.as_constant().zip(rest.upper());
            if below.is_some_and(|(d, high)| high < d as i128) {
                return Some(whole);
            }
            return whole.plus(&Expr::atom(Atom::Floor(rest.intern(), divisor.clone().intern())));
        }
        Some(Expr::atom(Atom::Floor(self.clone().intern(), divisor.clone().intern())))
    }

    /// The value at these sizes; None if a symbol has no size or the value overflows.
    pub(super) fn evaluate(&self, sizes: &Sizes) -> Option<i64> {
        let mut sum = 0i64;
        for (monomial, value) in &self.terms {
            let mut product = *value;
            for atom in monomial {
                let value = match atom {
                    Atom::Symbol(symbol) => {
                        let size = sizes.iter().find(|(s, _)| std::ptr::eq(*s, *symbol))?.1;
                        i64::try_from(size).ok()?
                    }
                    Atom::Floor(a, b) => {
                        a.evaluate(sizes)?.checked_div_euclid(b.evaluate(sizes)?)?
                    }
                };
                product = product.checked_mul(value)?;
            }
            sum = sum.checked_add(product)?;
        }
        Some(sum)
    }

    /// Adds the symbols to `found`, each once.
    pub(super) fn symbols(&self, found: &mut Vec<&'static Symbol>) {
        for atom in self.terms.iter().flat_map(|(monomial, _)| monomial) {
            match atom {
                Atom::Symbol(symbol) if found.contains(symbol) => {}
                Atom::Symbol(symbol) => found.push(symbol),
                Atom::Floor(a, b) => {
                    a.symbols(found);
                    b.symbols(found);
                }
            }
        }
    }

    /// A lower bound that holds for all sizes in range.
    pub(super) fn lower(&self) -> Option<i128> {
        self.shifted_bound().or_else(|| self.interval().0)
    }

    /// An upper bound that holds for all sizes in range.
    pub(super) fn upper(&self) -> Option<i128> {
        let negated = Expr {
            terms: self
                .terms
                .iter()
                .map(|(m, v)| Some((m.clone(), v.checked_neg()?)))
                .collect::<Option<_>>()?,
        };
        negated.lower()?.checked_neg()
    }

    /// The value with every atom at its minimum, if the polynomial is monotone: rewritten in the
    /// atoms' excess over their minimum, it has no negative coefficient. This proves for instance
    /// that `b * s - s` is nonnegative.
    fn shifted_bound(&self) -> Option<i128> {
        let mut shifted: Vec<(Monomial, i128)> = Vec::new();
        for (monomial, value) in &self.terms {
            // Expand the product of (minimum + excess) over the atoms.
            if monomial.len() > 6 {
                return None;
            }
            for chosen in 0..1u32 << monomial.len() {
                let (mut excess, mut factor) = (Monomial::new(), *value as i128);
                for (i, atom) in monomial.iter().enumerate() {
                    match chosen >> i & 1 {
                        1 => excess.push(*atom),
                        _ => factor = factor.checked_mul(atom.interval().0)?,
                    }
                }
                shifted.push((excess, factor));
            }
        }
        shifted.sort_unstable();
        let (mut bound, mut at) = (0i128, 0);
        while at < shifted.len() {
            let end = at + shifted[at..].iter().take_while(|(m, _)| *m == shifted[at].0).count();
            let sum = shifted[at..end].iter().try_fold(0i128, |sum, t| sum.checked_add(t.1))?;
            match shifted[at].0.is_empty() {
                true => bound = sum,
                false if sum < 0 => return None,
                false => {}
            }
            at = end;
        }
        Some(bound)
    }

    /// Bounds by interval arithmetic on each term.
    fn interval(&self) -> (Option<i128>, Option<i128>) {
        let (mut low, mut high) = (Some(0i128), Some(0i128));
        for (monomial, value) in &self.terms {
            let (mut least, mut most) = (Some(1i128), Some(1i128));
            for atom in monomial {
                let (l, m) = atom.interval();
                least = least.and_then(|v| v.checked_mul(l));
                most = most.zip(m).and_then(|(a, b)| a.checked_mul(b));
            }
            let value = *value as i128;
            let scale = |v: Option<i128>| v.and_then(|v| v.checked_mul(value));
            let (a, b) = if value > 0 { (least, most) } else { (most, least) };
            low = low.zip(scale(a)).and_then(|(x, y)| x.checked_add(y));
            high = high.zip(scale(b)).and_then(|(x, y)| x.checked_add(y));
        }
        (low, high)
    }
}

/// A term divided by a single-term divisor, if the division is exact.
fn divided(monomial: &Monomial, value: i64, divisor: &Expr) -> Option<(Monomial, i64)> {
    let [(by, coefficient)] = &*divisor.terms else { return None };
    if value.checked_rem(*coefficient)? != 0 {
        return None;
    }
    let mut left = monomial.clone();
    for atom in by {
        left.remove(left.iter().position(|a| a == atom)?);
    }
    Some((left, value / coefficient))
}

impl Atom {
    /// Bounds of the atom, which is never negative.
    fn interval(&self) -> (i128, Option<i128>) {
        match self {
            Atom::Symbol(symbol) => (symbol.min as i128, symbol.max.map(|max| max as i128)),
            Atom::Floor(a, b) => {
                let (low, high) = (a.lower().unwrap_or(0).max(0), a.upper());
                let least = b.upper().filter(|&b| b > 0).map_or(0, |b| low / b);
                (least, high.map(|high| high / b.lower().unwrap_or(1).max(1)))
            }
        }
    }
}

/// `batch*4+1`, the form that the text form of graphs prints and parses.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        // Constants last, as is usual.
        for (i, (monomial, value)) in self.terms.iter().rev().enumerate() {
            let sign = if *value < 0 {
                "-"
            } else if i > 0 {
                "+"
            } else {
                ""
            };
            f.write_str(sign)?;
            if monomial.is_empty() {
                write!(f, "{}", value.unsigned_abs())?;
                continue;
            }
            for (j, atom) in monomial.iter().enumerate() {
                write!(f, "{}{atom}", if j > 0 { "*" } else { "" })?;
            }
            if value.unsigned_abs() != 1 {
                write!(f, "*{}", value.unsigned_abs())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Atom::Symbol(symbol) => f.write_str(&symbol.name),
            Atom::Floor(a, b) => write!(f, "floor({a}/{b})"),
        }
    }
}
