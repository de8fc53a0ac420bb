//! Tests of propagation: the documented examples, one conflict for each rule of RESOLVE, and
//! partial values.

mod graph;
mod local;
mod ops;

use super::*;
use girih_ir::ops::Attrs;
use girih_ir::{DType, OpCode, Shape};
use proptest::prelude::*;

fn mesh() -> DeviceMesh {
    DeviceMesh::new(&[2, 2, 2], &["dp", "tp", "pp"]).unwrap()
}

/// A call in text: factors, then for each tensor its shape and, for operands, its spec.
struct Given {
    factors: Factors,
    tensors: Vec<TensorSpec>,
    specs: Vec<P>,
    mesh: DeviceMesh,
    op: Option<Op>,
}

impl Given {
    fn new(factors: &str, operands: &[(&[usize], &str)], result: &[usize]) -> Given {
        let shapes = operands.iter().map(|(shape, _)| *shape).chain([result]);
        Given {
            factors: Factors::parse(factors).unwrap(),
            tensors: shapes.map(|shape| TensorSpec::new(shape, DType::F32)).collect(),
            specs: operands.iter().map(|(_, spec)| spec.parse().unwrap()).collect(),
            mesh: mesh(),
            op: None,
        }
    }

    fn of(mut self, op: impl Into<Op>) -> Given {
        self.op = Some(op.into());
        self
    }

    fn run(&self, wanted: Option<&str>) -> Result<Step> {
        let (result, operands) = self.tensors.split_last().unwrap();
        let operands: Vec<Operand<'_>> = operands
            .iter()
            .zip(&self.specs)
            .map(|(tensor, spec)| Operand { tensor, spec })
            .collect();
        let (factors, mesh, op) = (&self.factors, &self.mesh, self.op.as_ref());
        let call = Call { factors, operands: &operands, result, mesh, op };
        match wanted {
            None => step(&call),
            Some(wanted) => backward(&call, &wanted.parse().unwrap()),
        }
    }

    /// `operands -> result`
    fn text(&self) -> String {
        text(&self.run(None).unwrap())
    }
}

fn text(step: &Step) -> String {
    let operands: Vec<String> = step.operands.iter().map(P::to_string).collect();
    format!("{} -> {}", operands.join(", "), step.result)
}

fn matmul(a: &str, b: &str) -> String {
    let four = &[4, 4][..];
    Given::new("m k, k n -> m n; k: add", &[(four, a), (four, b)], four).text()
}

/// NB-96: m:{dp}, k:{tp}, n:{}.
#[test]
fn the_documented_matrix_product() {
    let four = &[4, 4][..];
    let given =
        Given::new("m k, k n -> m n; k: add", &[(four, "<dp, tp>"), (four, "<tp, *>")], four);
    let step = given.run(None).unwrap();
    assert_eq!(text(&step), "<dp, tp>, <tp, *> -> <dp, *; partial={tp: add}>");
    assert_eq!(step.reduced, BTreeMap::from([("tp".into(), OpCode::Add)]));
    assert_eq!(matmul("<dp>", "<>"), "<dp, *>, <*, *> -> <dp, *>", "missing entries");
    assert_eq!(matmul("<>", "<*, tp>"), "<*, *>, <*, tp> -> <*, tp>");
    assert_eq!(matmul("<*, tp>", "<>"), "<*, tp>, <tp, *> -> <*, *; partial={tp: add}>");
    assert_eq!(matmul("<(dp, tp), *>", "<*, pp>"), "<(dp, tp), *>, <*, pp> -> <(dp, tp), pp>");
}

/// NB-98: a mesh axis cuts one dimension; the earlier one wins.
#[test]
fn an_axis_cuts_one_factor() {
    assert_eq!(matmul("<dp, *>", "<*, dp>"), "<dp, *>, <*, *> -> <dp, *>");
    // The operand with fewer bytes is gathered.
    let given = Given::new(
        "m k, k n -> m n; k: add",
        &[(&[2, 4], "<dp, *>"), (&[4, 8], "<*, dp>")],
        &[2, 8],
    );
    assert_eq!(given.text(), "<*, *>, <*, dp> -> <*, dp>");
    // Two factors of different operands, neither in the other tensor.
    assert_eq!(matmul("<*, dp>", "<*, dp>"), "<*, *>, <*, dp> -> <*, dp>", "no all-reduce");
}

/// The same call with its operands in another order.
fn both_orders(
    rule: &str,
    swapped: &str,
    a: (&[usize], &str),
    b: (&[usize], &str),
    out: &[usize],
) -> String {
    let one = Given::new(rule, &[a, b], out).run(None).unwrap();
    let mut other = Given::new(swapped, &[b, a], out).run(None).unwrap();
    other.operands.reverse();
    assert_eq!(one, other, "{rule}");
    text(&one)
}

/// NB-97, one conflict for each rule.
#[test]
fn conflicts_are_resolved_in_order_of_strength() {
    let four = &[4, 4][..];
    let both = |a: &str, b: &str| {
        both_orders("i j, i j -> i j", "i j, i j -> i j", (four, a), (four, b), four)
    };
    // Axes listed as replicated come before priorities.
    assert_eq!(both("<dp, *>", "<*, *; replicated={dp}>"), "<*, *>, <*, *> -> <*, *>");
    assert_eq!(both("<(tp, dp), *>", "<*, *; replicated={dp}>"), "<tp, *>, <tp, *> -> <tp, *>");
    // Only for the factors of the operand that lists them.
    assert_eq!(matmul("<*, *; replicated={dp}>", "<*, dp>"), "<*, *>, <*, dp> -> <*, dp>");
    // A lower priority number before more parallelism.
    assert_eq!(both("<dp p1, *>", "<tp, *>"), "<tp, *>, <tp, *> -> <tp, *>");
    assert_eq!(both("<(dp, pp) p1, *>", "<tp, *>"), "<tp, *>, <tp, *> -> <tp, *>");
    assert_eq!(both("<dp p1, *>", "<*, dp>"), "<*, dp>, <*, dp> -> <*, dp>");
    assert_eq!(both("<(dp, tp) p1, *>", "<dp, *>"), {
        "<(dp, tp), *>, <(dp, tp), *> -> <(dp, tp) p1, *>"
    });
    // More parallelism before anything below.
    assert_eq!(both("<dp, *>", "<*, (dp, tp)>"), "<*, (dp, tp)>, <*, (dp, tp)> -> <*, (dp, tp)>");
    assert_eq!(both("<dp, *>", "<(tp, pp), *>"), "<(tp, pp), *>, <(tp, pp), *> -> <(tp, pp), *>");
    // The earlier dimension.
    assert_eq!(both("<*, dp>", "<dp, *>"), "<dp, *>, <dp, *> -> <dp, *>");
    // At last the order of the axes in the mesh.
    assert_eq!(both("<tp, *>", "<dp, *>"), "<dp, *>, <dp, *> -> <dp, *>");
    // Fewer bytes before the earlier dimension: the second operand is larger.
    let (rule, swapped) = ("j, i j -> i j", "i j, j -> i j");
    let text = both_orders(rule, swapped, (&[8], "<dp>"), (&[8, 8], "<dp, *>"), &[8, 8]);
    assert_eq!(text, "<*>, <dp, *> -> <dp, *>");
    let text = both_orders(rule, swapped, (&[8], "<tp>"), (&[8, 8], "<*, pp>"), &[8, 8]);
    assert_eq!(text, "<pp>, <*, pp> -> <*, pp>");
}

/// The longest prefix in common, which needs three operands.
#[test]
fn a_proposal_that_shares_a_prefix_is_stronger() {
    let eight = &[8][..];
    for order in [[0, 1, 2], [1, 2, 0], [2, 1, 0], [0, 2, 1]] {
        let specs = ["<(pp, dp)>", "<(tp, dp)>", "<(pp, tp)>"];
        let operands = order.map(|at| (eight, specs[at]));
        let step = Given::new("i, i, i -> i", &operands, eight).run(None).unwrap();
        // Two proposals share pp; of these, the order of axes decides.
        assert_eq!(step.result.to_string(), "<(pp, dp)>", "{order:?}");
    }
}

#[test]
fn whole_factors_take_no_axis() {
    let four = &[4, 4][..];
    let given = Given::new("i j -> i j; j: whole", &[(four, "<dp, tp>")], four);
    assert_eq!(given.text(), "<dp, *> -> <dp, *>");
    let given = Given::new("i j -> i 1; j: maximum", &[(four, "<dp, tp>")], &[4, 1]);
    assert_eq!(given.text(), "<dp, tp> -> <dp, *; partial={tp: maximum}>");
    let leaf = Given::new("-> i j", &[], four);
    assert_eq!(leaf.text(), " -> <*, *>");
    // A dimension that is broadcast is taken whole.
    let given = Given::new("1 j, i j -> i j", &[(&[1, 4], "<dp>"), (four, "<tp>")], four);
    assert_eq!(given.text(), "<*, *>, <tp, *> -> <tp, *>");
}

#[test]
fn compound_dimensions_are_cut_by_their_major_factor() {
    let case = |rule: &str, from: &[usize], spec: &str, to: &[usize]| {
        Given::new(rule, &[(from, spec)], to).text()
    };
    assert_eq!(case("(i j) -> i j", &[8], "<dp>", &[4, 2]), "<dp> -> <dp, *>");
    assert_eq!(case("(i j) -> i j; i = 3", &[12], "<dp>", &[3, 4]), "<*> -> <*, *>", "3 is odd");
    assert_eq!(case("(i j) -> i j", &[8], "<(dp, tp)>", &[2, 4]), "<(dp, tp)> -> <dp, tp>");
    assert_eq!(case("(i j) -> i j", &[8], "<(dp, tp)>", &[4, 2]), "<(dp, tp)> -> <(dp, tp), *>");
    assert_eq!(case("(i j) -> i j", &[6], "<(dp, tp)>", &[2, 3]), "<dp> -> <dp, *>");
    assert_eq!(case("i j -> (i j)", &[4, 2], "<dp, *>", &[8]), "<dp, *> -> <dp>");
    assert_eq!(case("i j -> (i j)", &[4, 2], "<*, dp>", &[8]), "<*, *> -> <*>", "strided");
    assert_eq!(case("i j -> (i j)", &[2, 4], "<dp, tp>", &[8]), "<dp, tp> -> <(dp, tp)>");
    assert_eq!(case("i j -> (i j)", &[2, 4], "<dp, (tp, pp)>", &[8]), {
        "<dp, (tp, pp)> -> <(dp, tp, pp)>"
    });
    assert_eq!(case("i j -> (i j)", &[4, 4], "<dp, tp>", &[16]), "<dp, *> -> <dp>");
    assert_eq!(case("i j -> (i j)", &[3, 4], "<dp, *>", &[12]), "<*, *> -> <*>", "uneven rows");
    assert_eq!(case("i -> i", &[3], "<dp>", &[3]), "<dp> -> <dp>", "uneven alone");
}

#[test]
fn sub_axes_are_axes() {
    let m = DeviceMesh::new(&[8], &["x"]).unwrap();
    let run = |a: &str, b: &str| {
        let four = &[8, 8][..];
        let mut given = Given::new("i j, i j -> i j", &[(four, a), (four, b)], four);
        given.mesh = m.clone();
        given.text()
    };
    assert_eq!(run("<x:(1)2, *>", "<*, x:(2)4>"), {
        "<x:(1)2, x:(2)4>, <x:(1)2, x:(2)4> -> <x:(1)2, x:(2)4>"
    });
    assert_eq!(run("<x:(1)2, *>", "<*, x>"), "<*, x>, <*, x> -> <*, x>");
    assert_eq!(run("<(x:(1)2, x:(2)4), *>", "<>"), "<x, *>, <x, *> -> <x, *>");
}

/// Partial values: NB-103, and the issue's `(a@b) + (c@d)`.
#[test]
fn partial_values_pass_and_are_added_once() {
    let four = &[4, 4][..];
    let partial = "<dp, *; partial={tp: add}>";
    let add = |a: &str, b: (&[usize], &str)| {
        let rule = if b.0.len() == 1 { "i j, j -> i j" } else { "i j, i j -> i j" };
        Given::new(rule, &[(four, a), b], four).of(OpCode::Add).text()
    };
    assert_eq!(add(partial, (four, partial)), format!("{partial}, {partial} -> {partial}"));
    // A bias becomes partial without a transfer.
    assert_eq!(add(partial, (&[4], "<>")), {
        format!("{partial}, <*; partial={{tp: add}}> -> {partial}")
    });
    // Partial over other axes: both are reduced first.
    assert_eq!(add(partial, (four, "<dp, *; partial={pp: add}>")), "<dp, *>, <dp, *> -> <dp, *>");
    assert_eq!(add("<; partial={tp: maximum}>", (four, "<>")), "<*, *>, <*, *> -> <*, *>");
    // An axis that cuts a factor of another operand is resolved: the reduction scatters.
    assert_eq!(add(partial, (four, "<*, tp>")), "<dp, tp>, <dp, tp> -> <dp, tp>");
    // A scalar that is broadcast grows: it is reduced before.
    assert_eq!(
        Given::new("(), i j -> i j", &[(&[], "<; partial={tp: add}>"), (four, "<dp>")], four)
            .of(OpCode::Mul)
            .text(),
        "<>, <dp, *> -> <dp, *>"
    );
    let unary = |op: Op, spec: &str, rule: &str, to: &[usize]| {
        Given::new(rule, &[(four, spec)], to).of(op).text()
    };
    assert_eq!(unary(OpCode::Exp.into(), partial, "i j -> i j", four), "<dp, *> -> <dp, *>");
    let permute = Op::new(OpCode::Permute, Attrs::perm([1, 0]));
    assert_eq!(unary(permute, partial, "i j -> j i", four), {
        format!("{partial} -> <*, dp; partial={{tp: add}}>")
    });
    // A reduction by the same op makes more of them.
    let sum = || Op::new(OpCode::ReduceSum, Attrs::None);
    assert_eq!(unary(sum(), partial, "i j -> j; i: add", &[4]), {
        format!("{partial} -> <*; partial={{dp: add, tp: add}}>")
    });
    let most = "<dp, *; partial={tp: maximum}>";
    let max = Op::new(OpCode::ReduceMax, Attrs::None);
    assert_eq!(unary(max, most, "i j -> j; i: maximum", &[4]), {
        format!("{most} -> <*; partial={{dp: maximum, tp: maximum}}>")
    });
    assert_eq!(unary(sum(), most, "i j -> j; i: add", &[4]), {
        "<dp, *> -> <*; partial={dp: add}>"
    });
    // Without a definition, nothing is known of the op.
    let given = Given::new("i j -> i j", &[(four, partial)], four);
    assert_eq!(given.text(), "<dp, *> -> <dp, *>");
}

#[test]
fn wanted_results_go_back_to_the_operands() {
    let four = &[4, 4][..];
    let back = |a: &str, b: &str, wanted: &str| {
        let given = Given::new("m k, k n -> m n; k: add", &[(four, a), (four, b)], four);
        text(&given.run(Some(wanted)).unwrap())
    };
    assert_eq!(back("<>", "<>", "<dp, tp>"), "<dp, *>, <*, tp> -> <dp, tp>");
    assert_eq!(back("<tp, *>", "<>", "<dp, *>"), "<dp, *>, <*, *> -> <dp, *>", "wanted wins");
    assert_eq!(back("<tp, *>", "<>", "<>"), "<*, *>, <*, *> -> <*, *>", "closed");
    assert_eq!(back("<tp, *>", "<>", "<?, ?>"), "<tp, *>, <*, *> -> <tp, *>", "open");
    assert_eq!(back("<*, tp>", "<tp, *>", "<dp, *>"), {
        "<dp, tp>, <tp, *> -> <dp, *; partial={tp: add}>"
    });
    assert_eq!(back("<dp, *>", "<>", "<?, ?; replicated={dp}>"), "<*, *>, <*, *> -> <*, *>");
    let given = Given::new("i j -> (i j)", &[(&[2, 4], "<>")], &[8]);
    assert_eq!(text(&given.run(Some("<(dp, tp)>")).unwrap()), "<dp, tp> -> <(dp, tp)>");
}

#[test]
fn specs_that_do_not_fit_are_refused() {
    let four = &[4, 4][..];
    let error = |spec: &str, wanted: Option<&str>| {
        let given = Given::new("i j -> i j", &[(four, spec)], four);
        given.run(wanted).unwrap_err().to_string()
    };
    assert!(error("<x>", None).contains("is no axis of mesh"));
    assert!(error("<*, *, dp>", None).contains("3 entries for a tensor of rank 2"));
    assert!(error("<>", Some("<*, *, dp>")).contains("3 entries for a tensor of rank 2"));
}

/// No size of a symbol is read.
#[test]
fn symbolic_dimensions_are_cut_without_a_guard() {
    let n = || girih_ir::Dim::symbol("n", 6, 1, None);
    let mut given = Given::new("i j -> (i j)", &[(&[6, 4], "<dp, *>")], &[24]);
    let shape = Shape::of_dims([n(), 4.into()]);
    given.tensors =
        [shape, Shape::of_dims([n() * 4usize])].map(|s| TensorSpec::new(s, DType::F32)).into();
    let guards = girih_ir::dim::Guards::new();
    let entered = guards.enter();
    let merged = given.text();
    given.factors = Factors::parse("i j -> i j").unwrap();
    given.tensors[1] = given.tensors[0].clone();
    let same = given.text();
    drop(entered);
    assert_eq!(merged, "<*, *> -> <*>", "n may be odd");
    assert_eq!(same, "<dp, *> -> <dp, *>");
    assert!(guards.collected().is_empty(), "{:?}", guards.collected());
}

fn any_spec(rank: usize) -> impl Strategy<Value = P> {
    // Each axis: a dimension, replicated, partial or absent.
    (prop::array::uniform3(0..rank + 4), any::<bool>()).prop_map(move |(places, turn)| {
        let mut spec = P::new(vec![None::<&str>; rank]);
        let names = ["dp", "tp", "pp"];
        for at in if turn { [2, 1, 0] } else { [0, 1, 2] } {
            match places[at] {
                dim if dim < rank => spec.dims[dim].axes.push(names[at].into()),
                place if place == rank => drop(spec.replicated.insert(names[at].into())),
                place if place == rank + 1 => {
                    spec.partial.insert(names[at].into(), OpCode::Add);
                }
                _ => {}
            }
        }
        spec
    })
}

proptest! {
    /// All specs of a step are valid, consistent by factor, and the same for operands in another order.
    #[test]
    fn steps_are_valid_and_independent_of_the_order_of_operands(
        specs in (any_spec(2), any_spec(2)),
        rule in 0..5usize,
        sizes in prop::array::uniform2(1..6usize),
    ) {
        let [m, n] = sizes;
        let rules: [(&str, &str, [Vec<usize>; 3]); 5] = [
            ("i j, i j -> i j", "i j, i j -> i j", [vec![m, n], vec![m, n], vec![m, n]]),
            ("i k, k j -> i j; k: add", "k j, i k -> i j; k: add", [vec![m, 4], vec![4, n], vec![m, n]]),
            ("i k, j k -> (i j); k: add", "j k, i k -> (i j); k: add", [vec![m, 4], vec![n, 4], vec![m * n]]),
            ("i k, j k -> j i; k: maximum", "j k, i k -> j i; k: maximum", [vec![m, 4], vec![n, 4], vec![n, m]]),
            ("i j, j k -> i k; j: whole, k: add", "j k, i j -> i k; j: whole, k: add", [vec![m, 4], vec![4, n], vec![m, n]]),
        ];
        let (rule, swapped, shapes) = &rules[rule];
        let Ok(factors) = Factors::parse(rule) else { return Ok(()) };
        let specs = [specs.0, specs.1].map(|spec| spec.to_string());
        let operands = [(&shapes[0][..], &specs[0][..]), (&shapes[1][..], &specs[1][..])];
        let given = Given::new(rule, &operands, &shapes[2]).of(OpCode::Add);
        let step = given.run(None).unwrap();
        for (spec, tensor) in step.operands.iter().chain([&step.result]).zip(&given.tensors) {
            prop_assert_eq!(spec.check(&given.mesh, tensor.shape.rank()), Ok(()));
        }
        // Each factor alone on a dimension has one list of axes everywhere.
        let mut known = std::collections::HashMap::new();
        let dims = factors.operands().iter().zip(&step.operands);
        for (dims, spec) in dims.chain([(&factors.result().to_vec(), &step.result)]) {
            for (factors, dim) in dims.iter().zip(&spec.dims) {
                if let [factor] = factors[..] {
                    let axes = known.entry(factor).or_insert_with(|| dim.axes.clone());
                    prop_assert_eq!(&*axes, &dim.axes, "{}", text(&step));
                }
            }
        }
        // The rule with its operands in another order may name factors otherwise only.
        let other = Given::new(swapped, &[operands[1], operands[0]], &shapes[2]).of(OpCode::Add);
        let mut other = other.run(None).unwrap();
        other.operands.reverse();
        prop_assert_eq!(text(&step), text(&other));
        // A step from the required specs requires them again, if nothing is partial.
        let again = step.operands.iter().map(|spec| P { partial: BTreeMap::new(), ..spec.clone() });
        let again: Vec<String> = again.map(|spec| spec.to_string()).collect();
        let operands = [(&shapes[0][..], &again[0][..]), (&shapes[1][..], &again[1][..])];
        let fixed = Given::new(rule, &operands, &shapes[2]).run(None).unwrap();
        prop_assert_eq!(fixed.operands.iter().map(P::to_string).collect::<Vec<_>>(), again);
    }
}
