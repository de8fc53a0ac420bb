//! Guards: what has to hold of symbols' sizes for what was decided about them to be right.

use super::{Dim, Sizes, Symbol};
use girih_sync::{Mutex, MutexGuard, OnceLock};
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError, Weak};

/// How two sizes compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// They were equal.
    Equal,
    /// They were not equal.
    Unequal,
    /// The first was not less.
    AtLeast,
    /// The first was less.
    Less,
}

impl Relation {
    /// All of them.
    pub const ALL: [Relation; 4] =
        [Relation::Equal, Relation::Unequal, Relation::AtLeast, Relation::Less];

    /// As it is written.
    pub fn sign(self) -> &'static str {
        match self {
            Relation::Equal => "==",
            Relation::Unequal => "!=",
            Relation::AtLeast => ">=",
            Relation::Less => "<",
        }
    }
}

/// A condition on symbols' sizes: how two expressions compare.
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

    /// Whether it holds at those sizes; not if one of its symbols has none.
    pub fn holds(&self, sizes: &Sizes) -> bool {
        let value = |dim: Dim| match dim.expr() {
            None => Some(dim.hint() as i64),
            // Negative values are values here.
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

    /// The symbols it is about.
    pub fn symbols(&self) -> Vec<&'static Symbol> {
        let mut found = Vec::new();
        self.gather(&mut found);
        found
    }

    /// The symbols it is about, into `found`, each once.
    pub fn gather(&self, found: &mut Vec<&'static Symbol>) {
        [self.lhs, self.rhs].iter().for_each(|dim| dim.symbols(found));
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.lhs, self.relation.sign(), self.rhs)
    }
}

/// What is collected: each guard with the place in the user's program that was the first to need it.
type Collected = Mutex<Vec<(Guard, u32)>>;

/// Collects the guards of what is decided while it is entered.
#[derive(Clone, Default)]
pub struct Guards(Arc<Collected>);

/// Says which place of the user's program works on this thread.
static PLACE: OnceLock<fn() -> u32> = OnceLock::new();

/// Has guards carry the place in the user's program that needed them, which `place` numbers. The first
/// call counts.
pub fn set_place(place: fn() -> u32) {
    let _ = PLACE.set(place);
}

thread_local! {
    /// Those entered by this thread.
    static ENTERED: RefCell<Vec<Guards>> = const { RefCell::new(Vec::new()) };
}

/// Those entered by any thread: a function may be traced on several.
static ALL: Mutex<Vec<Weak<Collected>>> = Mutex::new(Vec::new());

impl Guards {
    /// None yet.
    pub fn new() -> Guards {
        Guards::default()
    }

    /// Collects until what is returned is dropped.
    pub fn enter(&self) -> Entered {
        ENTERED.with_borrow_mut(|entered| entered.push(self.clone()));
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|guards| guards.strong_count() > 0);
        all.push(Arc::downgrade(&self.0));
        Entered { guards: self.clone(), _not_send: PhantomData }
    }

    /// What has been collected, each guard once.
    pub fn collected(&self) -> Vec<Guard> {
        self.lock().iter().map(|(guard, _)| *guard).collect()
    }

    /// What has been collected, with the place that needed each first: 0 if there is none.
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

/// While this lives, its thread's guards are collected.
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

/// Notes a guard with whoever collects on this thread; on a thread where nobody does, with all that
/// do elsewhere: one of them may be tracing what this thread works for. Those that it does not
/// concern have not its symbols.
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
