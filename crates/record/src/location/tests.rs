//! Tests of locations and scopes that come and go.

use super::*;

struct Numbered {
    line: u32,
    /// Counts the existing lines.
    _alive: Arc<()>,
}

impl SourceLine for Numbered {
    fn resolve(&self) -> Option<(String, u32)> {
        Some(("file".into(), self.line))
    }
}

fn line(key: u32, alive: &Arc<()>) -> Location {
    let line =
        || -> Arc<dyn SourceLine> { Arc::new(Numbered { line: key, _alive: alive.clone() }) };
    Location::external((usize::MAX, key), line)
}

#[test]
fn locations_interned_again_outlive_many_interned_once() {
    let alive = Arc::new(());
    let kept = line(0, &alive);
    for i in 1..=3 * MAX_YOUNG as u32 {
        let before = epoch();
        let new = line(i, &alive);
        assert_eq!(new.to_string(), format!("file:{i}"));
        if i % 100 == 0 || epoch() != before {
            assert_eq!(line(0, &alive), kept);
        }
    }
    assert_eq!(kept.to_string(), "file:0");
    assert!(Arc::strong_count(&alive) <= MAX_YOUNG + 3, "the others are gone");
    assert!(Location::default().to_string().contains("unknown"));
}

#[test]
fn a_scope_is_freed_with_its_last_handle_and_found_until_then() {
    let outer = Scope::default().child("freed outer");
    let first = outer.child("first");
    assert_eq!(first.path(), Some("freed outer.first"));
    assert_eq!(outer.child("first").number(), first.number());
    let number = first.number();
    drop(first);
    assert!(outer.inner().as_ref().unwrap().is_empty());
    let again = outer.child("first");
    assert_ne!(again.number(), number);
    let weak = Arc::downgrade(outer.0.as_ref().unwrap());
    drop(outer);
    assert!(weak.upgrade().is_some(), "a scope keeps those around it");
    drop(again);
    assert!(weak.upgrade().is_none());
}

#[test]
fn scopes_of_many_threads_come_and_go() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for i in 0..2000 {
                    named_scope("shared by threads", || {
                        named_scope(&format!("step {}", i % 3), || {
                            let path = Scope::current().path().map(str::to_string);
                            assert_eq!(path, Some(format!("shared by threads.step {}", i % 3)));
                        });
                    });
                }
            });
        }
    });
    assert_eq!(Scope::current_number(), 0);
}

#[test]
fn scopes_nest_up_to_a_depth() {
    let mut scope = Scope::default();
    for _ in 0..2 * MAX_DEPTH {
        scope = scope.child("x");
    }
    assert_eq!(scope.path().map(str::len), Some(2 * MAX_DEPTH - 1));
}
