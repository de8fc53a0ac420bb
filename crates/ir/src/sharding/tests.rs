//! Tests of meshes and specs: texts, checks, and coordinates of sub-axes.

use super::*;
use crate::OpCode;
use crate::factors::Role;
use crate::testing::{Rng, mutate, mutations};
use proptest::prelude::*;

fn mesh() -> DeviceMesh {
    DeviceMesh::new(&[2, 8], &["dp", "tp"]).unwrap().named("m").unwrap()
}

fn spec(text: &str) -> P {
    text.parse().unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn meshes_print_the_header_of_a_text() {
    let m = DeviceMesh::new(&[2, 2], &["dp", "tp"]).unwrap().named("m").unwrap();
    assert_eq!(m.to_string(), "@m(shape=(2, 2), devices=[0, 1, 2, 3], axes=(dp, tp))");
    let one = DeviceMesh::new(&[2], &["tp"]).unwrap();
    assert_eq!(one.to_string(), "@(shape=(2,), devices=[0, 1], axes=(tp))");
    let link = Link::new(1e-6, 25e9).unwrap();
    let ghost = DeviceMesh::new(&[32, 32], &["dp", "tp"]).unwrap().ghost();
    let ghost = ghost.with_link("tp", link).unwrap();
    let text = "@(shape=(32, 32), devices=ghost, axes=(dp, tp), topology={tp: (1e-6, 2.5e10)})";
    assert_eq!(ghost.to_string(), text);
    let given = DeviceMesh::new(&[2], &["x"]).unwrap().with_devices(&[5, 3]).unwrap();
    let none = DeviceMesh::new(&[], &[""; 0]).unwrap();
    assert_eq!((none.len(), none.rank()), (1, 0));
    for mesh in [m, one, ghost, given, none] {
        assert_eq!(mesh.to_string().parse(), Ok(mesh));
    }
    let loose = " @m ( shape = ( 2 , ) , devices=[0,1,], axes=(tp,) ) ".parse::<DeviceMesh>();
    assert_eq!(loose.unwrap().name(), Some("m"));
}

#[test]
fn bad_meshes_are_refused() {
    let new = |shape: &[usize], axes: &[&str]| DeviceMesh::new(shape, axes);
    let two = || new(&[2], &["x"]).unwrap();
    for (mesh, reason) in [
        (new(&[2], &["dp", "tp"]), "a mesh of 1 sizes has 2 names of axes"),
        (new(&[1; 33], &["x"; 33]), "at most 32 axes"),
        (new(&[2, 2], &["x", "x"]), "axis \"x\" of a mesh of shape [2, 2]"),
        (new(&[2], &["x y"]), "is not a name"),
        (new(&[0], &["x"]), "has size 0"),
        (new(&[1 << 13, 1 << 12], &["x", "y"]), "too many processors"),
        (new(&[usize::MAX, 2], &["x", "y"]), "too many processors"),
        (two().named(""), "is not a name of a mesh"),
        (two().with_devices(&[0]), "1 devices are given for the 2 processors of mesh @(x=2)"),
        (two().with_devices(&[7, 7]), "device 7 is in mesh @(x=2) twice"),
        (two().with_link("y", Link::new(0.0, 1.0).unwrap()), "\"y\" is not an axis of mesh @(x=2)"),
        (Link::new(f64::NAN, 1.0).map(|_| two()), "latency of NaN s"),
        (Link::new(0.0, 0.0).map(|_| two()), "bandwidth of 0 B/s"),
    ] {
        let error = mesh.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// The forms of NB-102 and Shardy's.
#[test]
fn specs_print_and_parse() {
    for text in [
        "<>",
        "<*, tp>",
        "<dp, *>",
        "<(dp, tp)>",
        "<tp:(2)2, tp:(1)2>",
        "<dp?, ?, (dp, tp)? p1, * p7>",
        "<*; replicated={dp}>",
        "<; partial={tp: add}>",
        "<dp p1; replicated={x, y:(1)2}, partial={tp:(2)4: maximum, z: maximum}>",
    ] {
        assert_eq!(spec(text).to_string(), text);
    }
    assert_eq!(spec(" < dp ,tp:(1)2 ? p1;partial = {x:add}, > ").to_string(), {
        "<dp, tp:(1)2? p1; partial={x: add}>"
    });
    assert_eq!(spec("<dp, *>"), P::new([Some("dp"), None]));
    assert_eq!(spec("<(dp, tp)>"), P::new([["dp", "tp"]]));
    let dim = DimSpec::new([AxisRef::sub_axis("tp", 2, 2)]).open().with_priority(1);
    assert_eq!(spec("<tp:(2)2? p1>"), P::new([dim]));
    let partial = P::default().with_replicated("dp").with_partial("tp", OpCode::Add);
    assert_eq!(spec("<; replicated={dp}, partial={tp: add}>"), partial);
    assert_eq!("x:(2)4".parse(), Ok(AxisRef::sub_axis("x", 2, 4)));
}

#[test]
fn bad_texts_say_what_was_expected() {
    for (text, reason) in [
        ("", "expected '<', found the end"),
        ("<dp", "expected ',', found the end"),
        ("<dp tp>", "expected ',', found 'tp>'"),
        ("<,>", "expected an axis, several in parentheses, '*' or '?'"),
        ("<()>", "expected one or more axes in the parentheses before"),
        ("<tp:(x)2>", "expected a number, found 'x)2>'"),
        ("<dp p>", "expected a number"),
        ("<; whole={dp}>", "expected 'replicated' or 'partial'"),
        ("<; replicated={dp, dp}>", "axis dp is in replicated twice"),
        ("<; partial={dp: sub}>", "an op that combines partial values (add, mul, maximum"),
        ("<dp> <tp>", "expected the end of the text"),
    ] {
        let error = text.parse::<P>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn specs_are_checked_against_a_mesh_and_a_rank() {
    for text in ["<>", "<dp, tp>", "<(tp, dp)>", "<tp:(2)2, tp:(1)2>", "<tp:(1)8; replicated={dp}>"]
    {
        assert_eq!(spec(text).check(&mesh(), 2), Ok(()), "{text}");
    }
    for (text, reason) in [
        ("<xp>", "dimension 0 of <xp> names axis \"xp\", which is no axis of mesh @m(dp=2, tp=8)"),
        ("<*; replicated={xp}>", "the replicated axes of <*; replicated={xp}> names axis \"xp\""),
        ("<dp, dp>", "axis dp of mesh @m(dp=2, tp=8) is twice in <dp, dp>, in dimension 0 and in"),
        ("<dp; partial={dp: add}>", "in dimension 0 and in the partial axes"),
        ("<(tp, tp)>", "is twice in <(tp, tp)>, in dimension 0 and in dimension 0"),
        ("<tp:(1)4, tp:(2)2>", "axes tp:(1)4 in dimension 0 and tp:(2)2 in dimension 1 of"),
        ("<tp:(1)4, tp:(2)2>", "overlap on axis \"tp\" of mesh @m(dp=2, tp=8)"),
        ("<tp, tp:(2)2>", "overlap"),
        ("<tp:(3)2>", "3 x 2 does not divide the size of axis \"tp\""),
        ("<tp:(0)2>", "0 x 2 does not divide"),
        ("<tp:(8)1>", "choose divisors of 8, the second at least 2"),
        ("<tp:(9223372036854775807)4>", "does not divide"),
        ("<*, *, dp>", "has 3 entries for a tensor of rank 2"),
        ("<; partial={dp: add, tp: maximum}>", "partial values of add and of maximum"),
    ] {
        let error = spec(text).check(&mesh(), 2).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
    let twelve = DeviceMesh::new(&[12], &["x"]).unwrap();
    let error = spec("<x:(1)2, x:(3)4>").check(&twelve, 2).unwrap_err().to_string();
    assert!(error.contains("do not divide each other"), "{error}");
    let sub = P::default().with_partial("dp", OpCode::Sub);
    let error = sub.check(&mesh(), 0).unwrap_err().to_string();
    assert!(error.contains("partial values of sub, which does not combine parts"), "{error}");
    let sharding = Sharding::new(mesh(), spec("<dp>")).unwrap();
    assert!(sharding.to_string().starts_with("<dp> on @m(shape=(2, 8), devices=[0, 1, "));
    assert!(Sharding::new(mesh(), spec("<x>")).is_err());
}

/// NB-101: neighbours that merge.
#[test]
fn neighbouring_sub_axes_are_merged() {
    for (text, merged) in [
        ("<(tp:(1)2, tp:(2)4)>", "<tp>"),
        ("<(tp:(1)2, tp:(2)2)>", "<tp:(1)4>"),
        ("<(tp:(1)2, tp:(2)2, tp:(4)2)>", "<tp>"),
        ("<(tp:(2)4, tp:(1)2)>", "<(tp:(2)4, tp:(1)2)>"),
        ("<(tp:(1)2, dp, tp:(2)4)>", "<(tp:(1)2, dp, tp:(2)4)>"),
        ("<tp:(1)8?>", "<tp?>"),
        ("<tp:(1)2, tp:(2)4>", "<tp:(1)2, tp:(2)4>"),
        ("<; replicated={tp:(1)2, tp:(2)4}>", "<; replicated={tp}>"),
        ("<; partial={tp:(1)2: add, tp:(2)4: add}>", "<; partial={tp: add}>"),
    ] {
        assert_eq!(spec(text).merged(&mesh()).to_string(), merged);
    }
}

#[test]
fn sub_axes_number_the_processors_as_digits_do() {
    let m = DeviceMesh::new(&[2, 8, 3], &["dp", "tp", "x"]).unwrap();
    let subs = ["tp:(1)2", "tp:(2)2", "tp:(4)2"].map(|s| s.parse::<AxisRef>().unwrap());
    for position in 0..m.len() {
        let digits = subs.clone().map(|axis| m.index_of(&axis, position).unwrap());
        let tp = digits[0] * 4 + digits[1] * 2 + digits[2];
        let of = |name: &str| m.index_of(&name.into(), position).unwrap();
        assert_eq!(tp, of("tp"));
        assert_eq!((of("dp") * 8 + tp) * 3 + of("x"), position);
        assert_eq!(m.coordinates(position), [of("dp"), tp, of("x")]);
    }
    assert_eq!(subs.map(|axis| m.size_of(&axis)), [Some(2); 3]);
    assert_eq!((m.size_of(&"tp".into()), m.size_of(&"y".into())), (Some(8), None));
    assert_eq!(m.index_of(&AxisRef::sub_axis("tp", 16, 2), 0), None, "not on this mesh");
}

fn any_axis() -> impl Strategy<Value = AxisRef> {
    let sub = (1..9usize, 1..9usize);
    ("[a-z_][a-z0-9_]{0,3}", prop::option::of(sub)).prop_map(|(name, sub)| match sub {
        None => AxisRef::new(&name),
        Some((pre_size, size)) => AxisRef::sub_axis(&name, pre_size, size),
    })
}

fn any_spec() -> impl Strategy<Value = P> {
    let axes = || prop::collection::vec(any_axis(), 0..3);
    let dim = (axes(), any::<bool>(), 0..3u32).prop_map(|(axes, is_open, priority)| DimSpec {
        axes,
        is_open,
        priority,
    });
    let partial = prop::collection::btree_map(any_axis(), 0..Role::COMBINING.len(), 0..3);
    (prop::collection::vec(dim, 0..4), axes(), partial).prop_map(|(dims, replicated, partial)| P {
        dims,
        replicated: replicated.into_iter().collect(),
        partial: partial.into_iter().map(|(axis, op)| (axis, Role::COMBINING[op])).collect(),
    })
}

proptest! {
    #[test]
    fn every_spec_is_read_as_it_is_written(spec in any_spec()) {
        prop_assert_eq!(spec.to_string().parse(), Ok(spec.clone()));
        // No spec makes a check panic.
        let _ = spec.check(&mesh(), 2);
        let _ = spec.merged(&mesh());
        for (_, position) in (0..3).zip([0, 7, 15]) {
            for axis in spec.dims.iter().flat_map(|dim| &dim.axes) {
                let _ = mesh().index_of(axis, position);
            }
        }
    }

    #[test]
    fn no_text_makes_the_parsers_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let text = String::from_utf8_lossy(&bytes);
        let _ = text.parse::<P>();
        let _ = format!("<{text}").parse::<P>();
        let _ = format!("@{text}").parse::<DeviceMesh>();
        let _ = text.parse::<AxisRef>();
    }
}

#[test]
fn mutated_texts_are_read_or_refused() {
    let specs =
        ["<dp?, ?, (dp, tp:(2)4)? p1; replicated={x}, partial={tp: add, y: add}>", "<*, tp>"];
    let meshes = [
        "@m(shape=(2, 2), devices=[0, 1, 2, 3], axes=(dp, tp))",
        "@(shape=(32, 32), devices=ghost, axes=(dp, tp), topology={tp: (1e-6, 2.5e10)})",
    ];
    let tokens: Vec<&[u8]> = vec![b"<", b"*", b"?", b"(", b":(", b"p1", b"partial={", b"ghost"];
    let mut rng = Rng(42);
    for i in 0..mutations(5000) {
        let text = if i % 2 == 0 { specs[rng.below(2)] } else { meshes[rng.below(2)] };
        let mut bytes = text.to_owned().into_bytes();
        mutate(&mut bytes, &tokens, &mut rng);
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(spec) = text.parse::<P>() {
            assert_eq!(spec.to_string().parse(), Ok(spec), "{text}");
        }
        if let Ok(mesh) = text.parse::<DeviceMesh>() {
            assert_eq!(mesh.to_string().parse(), Ok(mesh), "{text}");
        }
    }
}
