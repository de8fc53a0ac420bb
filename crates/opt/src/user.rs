//! A registry of user passes. Options are copied and compared, so they hold the number of a pass
//! list in place of the list.

use crate::Pass;
use girih_sync::Mutex;
use std::sync::{Arc, PoisonError};

static LISTS: Mutex<Vec<Vec<Arc<dyn Pass>>>> = Mutex::new(Vec::new());

/// The number of a list of passes: 0 for the empty list. Lists of equal passes in the same order
/// have equal numbers. The passes live as long as the process, since a program may be recompiled at
/// any time.
pub fn register(passes: Vec<Arc<dyn Pass>>) -> u32 {
    if passes.is_empty() {
        return 0;
    }
    let same = |known: &Vec<Arc<dyn Pass>>| {
        let one = |(a, b): (&Arc<dyn Pass>, _)| std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b));
        known.len() == passes.len() && known.iter().zip(&passes).all(one)
    };
    let mut lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let found = lists.iter().position(same);
    let at = found.unwrap_or_else(|| {
        lists.push(passes);
        lists.len() - 1
    });
    at as u32 + 1
}

/// The passes of a number that [`register`] returned; empty for other numbers.
pub fn registered(number: u32) -> Vec<Arc<dyn Pass>> {
    let lists = LISTS.lock().unwrap_or_else(PoisonError::into_inner);
    let at = (number as usize).checked_sub(1);
    at.and_then(|at| lists.get(at)).cloned().unwrap_or_default()
}
