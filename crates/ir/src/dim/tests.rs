//! The canonical form of expressions, comparisons that ranges decide, and guards.

use super::*;

fn symbol(name: &str, hint: usize) -> Dim {
    Dim::symbol(name, hint, 1, None)
}

/// The result of `f`, and the guards that it recorded.
fn guarded<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
    let guards = Guards::new();
    let entered = guards.enter();
    let value = f();
    drop(entered);
    (value, guards.collected().iter().map(Guard::to_string).collect())
}

#[test]
fn expressions_have_a_canonical_form() {
    let (b, s) = (symbol("b", 2), symbol("s", 3));
    assert_eq!((b + 1usize) * s, s * b + s);
    assert_eq!((b * s * 4usize).floor_div(s * 2usize), b * 2usize);
    assert_eq!((b * 6usize + 4usize).floor_div(2usize), b * 3usize + 2usize);
    assert_eq!(b + s - s, b);
    assert_eq!((b * 4usize).remainder(2usize), Dim::from(0));
    assert_eq!((b * s * 4usize + 1usize).to_string(), "b*s*4+1");
    assert_eq!(b.floor_div(2usize).to_string(), "floor(b/2)");
    assert_eq!((b * 3usize).hint(), 6);
    assert_ne!(b, Dim::from(2));
    assert_eq!((b * 4usize + 3usize).floor_div(4usize), b, "what is left is less than the divisor");
}

#[test]
fn comparisons_decided_by_ranges_add_no_guard() {
    let (b, s) = (symbol("b", 2), symbol("s", 3));
    let (answers, guards) = guarded(|| {
        [
            b.equals(b),
            !b.equals(0),
            (b * s).at_least(s),
            !(b + 1usize).equals(b),
            !(b + s).equals(1),
            b.at_least(1),
            !Dim::symbol("m", 3, 1, Some(8)).equals(9),
            Dim::symbol("one", 5, 5, Some(5)).is(5),
        ]
    });
    assert_eq!(answers, [true; 8]);
    assert!(guards.is_empty(), "{guards:?}");
}

#[test]
fn comparisons_decided_by_hints_add_a_guard() {
    let (b, s) = (symbol("b", 2), symbol("s", 3));
    let collected = Guards::new();
    let entered = collected.enter();
    assert!(!b.equals(s) && b.equals(2) && s.at_least(b) && !b.at_least(7));
    assert_eq!((s * 2usize).get(), 6);
    assert!(b.equals(2), "asked again");
    drop(entered);
    let guards = collected.collected();
    let texts: Vec<_> = guards.iter().map(Guard::to_string).collect();
    assert_eq!(texts, ["b != s", "b == 2", "s >= b", "b < 7", "s*2 == 6"]);
    let at = |b_size, s_size| {
        let sizes = [(b.as_symbol().unwrap(), b_size), (s.as_symbol().unwrap(), s_size)];
        guards.iter().map(|guard| guard.holds(&sizes)).collect::<Vec<_>>()
    };
    assert_eq!(at(2, 3), [true; 5]);
    assert_eq!(at(4, 4), [false, false, true, true, false]);
    assert_eq!(at(8, 3), [true, false, false, false, true]);
    assert!(!guards[0].holds(&[]), "a symbol without a size");
    let ((), after) = guarded(|| ());
    assert!(after.is_empty());
}

#[test]
fn expressions_are_evaluated_at_given_sizes() {
    let (b, s) = (symbol("b", 2), symbol("s", 3));
    let dim = (b * s + b).floor_div(2usize) + 1usize;
    assert_eq!(dim.hint(), 5);
    for (x, y) in [(2usize, 3usize), (5, 7), (1, 1), (1000, 3)] {
        let sizes = [(b.as_symbol().unwrap(), x), (s.as_symbol().unwrap(), y)];
        assert_eq!(dim.evaluate(&sizes), Some((x * y + x) / 2 + 1));
    }
    let huge = [(b.as_symbol().unwrap(), usize::MAX >> 2), (s.as_symbol().unwrap(), 1 << 40)];
    assert_eq!(dim.evaluate(&huge), None);
    // A negative difference is 0, and the sign is guarded.
    let (rest, guards) = guarded(|| b - s);
    assert_eq!((rest, guards), (Dim::from(0), vec!["b < s".to_string()]));
}

#[test]
fn guards_of_other_threads_reach_the_collector() {
    let b = symbol("elsewhere", 4);
    let ((), guards) = guarded(|| {
        std::thread::spawn(move || assert_eq!(b.get(), 4)).join().unwrap();
    });
    assert!(guards.contains(&"elsewhere == 4".to_string()), "{guards:?}");
}

#[test]
fn printed_dimensions_are_parsed_back() {
    let b = Dim::parse("batch").unwrap();
    assert_eq!(b, symbol("batch", 2));
    let s = symbol("s_1", 2);
    for dim in [b * 4usize + 3usize, b * s * s, (b + s * 3usize).floor_div(2usize) * b, s - 1usize]
    {
        assert_eq!(Dim::parse(&dim.to_string()), Some(dim), "{dim}");
    }
    assert_eq!(Dim::parse("12"), Some(12.into()));
    for text in ["", "-1", "1x", "a b", "a+", "floor(a)", "floor(a/2", "a-b*9", "(a)", "*"] {
        assert_eq!(Dim::parse(text), None, "{text}");
    }
}
