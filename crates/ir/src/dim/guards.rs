//! Guards: conditions on the sizes of symbols under which the decisions made during tracing are
//! valid.

use super::{Dim, Sizes, Symbol};
use girih_sync::{Mutex, MutexGuard, OnceLock};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, Weak};

/// The outcome of a comparison of two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The sizes were equal.
    Equal,
    /// The sizes were not equal.
    Unequal,
    /// The first was not less than the second.
    AtLeast,
    /// The first was less than the second.
    Less,
}

impl Relation {
    /// All relations.
    pub const ALL: [Relation; 4] =
        [Relation::Equal, Relation::Unequal, Relation::AtLeast, Relation::Less];

    /// The operator in text forms.
    pub fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "==",
            Relation::Unequal => "!=",
            Relation::AtLeast => ">=",
            Relation::Less => "<",
        }
    }
}

/// A condition on symbols' sizes: a comparison of two expressions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    lhs: Dim,
    relation: Relation,
    rhs: Dim,
}

impl Guard {
    pub(super) fn new(lhs: Dim, relation: Relation, rhs: Dim) -> Guard {
        Guard { lhs, relation, rhs }
    }

    /// True if the guard holds at these sizes; false if one of its symbols has no size.
    pub fn holds(&self, sizes: &Sizes) -> bool {
        let value = |dim: Dim| match dim.expr() {
            None => Some(dim.hint() as i64),
            // Unlike sizes, the sides of a guard may be negative.
            Some(expr) => expr.evaluate(sizes),
        };
        let (Some(a), Some(b)) = (value(self.lhs), value(self.rhs)) else { return false };
        match self.relation {
            Relation::Equal => a == b,
            Relation::Unequal => a != b,
            Relation::AtLeast => a >= b,
            Relation::Less => a < b,
        }
    }

    /// The symbols of the guard.
    pub fn symbols(&self) -> Vec<&'static Symbol> {
        let mut found = Vec::new();
        self.gather(&mut found);
        found
    }

    /// Adds the symbols of the guard to `found`, each once.
    pub fn gather(&self, found: &mut Vec<&'static Symbol>) {
        [self.lhs, self.rhs].iter().for_each(|dim| dim.symbols(found));
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.lhs, self.relation.sign(), self.rhs)
    }
}

/// Each guard, with the place in the user's program that first needed it.
type Collected = Mutex<Vec<(Guard, u32)>>;

/// Collects the guards that are recorded while the collector is entered.
#[derive(Clone, Default)]
pub struct Guards(Arc<Collected>);

/// Returns the place in the user's program that this thread is tracing.
static PLACE: OnceLock<fn() -> u32> = OnceLock::new();

/// Sets the function that numbers places of the user's program; each guard stores the place that
/// needed it. Only the first call has an effect.
pub fn set_place(place: fn() -> u32) {
    let _ = PLACE.set(place);
}

thread_local! {
    /// Collectors that this thread has entered.
    static ENTERED: RefCell<Vec<Guards>> = const { RefCell::new(Vec::new()) };
}

/// Collectors that any thread has entered, since several threads may trace one function.
static ALL: Mutex<Vec<Weak<Collected>>> = Mutex::new(Vec::new());

impl Guards {
    /// An empty collector.
    pub fn new() -> Guards {
        Guards::default()
    }

    /// Collects guards until the returned value is dropped.
    pub fn enter(&self) -> Entered {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|guards| guards.strong_count() > 0);
        all.push(Arc::downgrade(&self.0));
        Entered { guards: self.clone(), _not_send: PhantomData }
    }

    /// The collected guards, each once.
    pub fn collected(&self) -> Vec<Guard> {
        self.lock().iter().map(|(guard, _)| *guard).collect()
    }

    /// The collected guards, each with the place that first needed it, or 0 if there is no place.
    pub fn placed(&self) -> Vec<(Guard, u32)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Guard, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, guard: Guard) {
        let mut guards = self.lock();
        if !guards.iter().any(|(known, _)| *known == guard) {
            guards.push((guard, PLACE.get().map_or(0, |place| place())));
        }
    }
}

/// The collector is entered on this thread until this value is dropped.
#[must_use = "collecting ends when it is dropped"]
pub struct Entered {
    guards: Guards,
    _not_send: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let same = |a: &Arc<_>| Arc::ptr_eq(a, &self.guards.0);
        ENTERED.with_borrow_mut(|entered| {
            if let Some(at) = entered.iter().rposition(|guards| same(&guards.0)) {
                entered.remove(at);
            }
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = all.iter().rposition(|weak| weak.ptr_eq(&Arc::downgrade(&self.guards.0)))
        {
            all.remove(at);
        }
    }
}

/// Records a guard with the collectors that this thread has entered. A thread without collectors
/// may be tracing for another thread, so it records the guard with all collectors. A collector of
/// an unrelated function is not affected, since its function does not have the guard's symbols.
pub(super) fn record(guard: Guard) {
    let known = ENTERED.with_borrow(|entered| {
        entered.iter().for_each(|guards| guards.add(guard));
        !entered.is_empty()
    });
    if !known {
        let all: Vec<_> = {
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().filter_map(Weak::upgrade).collect()
        };
        all.into_iter().for_each(|guards| Guards(guards).add(guard));
    }
}
