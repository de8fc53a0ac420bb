//! Tests of reshards: their programs run on arrays, their bytes, and the documented examples.

use super::*;
use crate::ownership::{partial_axes, rectangles, without};
use girih_ir::{Array, DType, DeviceMesh, Literal, P, TensorSpec};
use proptest::prelude::*;
use std::collections::HashMap;

fn on(shape: &[usize], devices: Option<&[u32]>, spec: &str) -> Sharding {
    let names = ["x", "y", "z"];
    let mut mesh = DeviceMesh::new(shape, &names[..shape.len()]).unwrap();
    if let Some(devices) = devices {
        mesh = mesh.with_devices(devices).unwrap();
    }
    Sharding::new(mesh, spec.parse().unwrap()).unwrap()
}

/// The elements of a rectangle, as indices in a row-major tensor.
fn elements(rect: &Rect, shape: &[usize]) -> Vec<usize> {
    let mut found = vec![0];
    for (axis, &size) in shape.iter().enumerate() {
        let range = rect.start[axis]..rect.start[axis] + rect.extent[axis];
        let longer = |&at: &usize| range.clone().map(move |i| at * size + i).collect::<Vec<_>>();
        found = found.iter().flat_map(longer).collect();
    }
    found
}

fn apply(op: OpCode, a: i64, b: i64) -> i64 {
    match op {
        OpCode::Add => a + b,
        OpCode::Maximum => a.max(b),
        _ => panic!("no test has {op:?}"),
    }
}

/// The elements that each device has, by index in the tensor.
type Shards = HashMap<u32, HashMap<usize, i64>>;

/// What the shards stand for: the partial values combined. Checks that copies agree.
fn value(sharding: &Sharding, shards: &Shards, shape: &[usize]) -> Vec<i64> {
    let (mesh, axes) = (sharding.mesh(), partial_axes(sharding));
    let op = sharding.spec().partial_op().unwrap_or(OpCode::Add);
    let mut groups: HashMap<usize, HashMap<usize, i64>> = HashMap::new();
    for position in 0..mesh.len() {
        let group = groups.entry(without(mesh, &axes, position)).or_default();
        for (&at, &x) in &shards[&mesh.device(position)] {
            let combined = group.get(&at).map_or(x, |&y| apply(op, x, y));
            group.insert(at, combined);
        }
    }
    let mut whole = vec![None; shape.iter().product()];
    for (at, x) in groups.into_values().flatten() {
        assert!(whole[at].is_none_or(|known| known == x), "copies differ at {at}");
        whole[at] = Some(x);
    }
    whole.into_iter().map(|x| x.expect("each element has an owner")).collect()
}

/// Shards with random values; replicas are equal.
fn shards(sharding: &Sharding, shape: &[usize], seed: i64) -> Shards {
    let (mesh, axes) = (sharding.mesh(), partial_axes(sharding));
    let rects = rectangles(sharding, shape).unwrap();
    let shard = |(position, rect): (usize, &Rect)| {
        // The place along the partial axes decides, and nothing else.
        let place = (position - without(mesh, &axes, position)) as i64;
        let x = |at: usize| (at as i64 * 7919 + place * 104_729 + seed) * 2_654_435_761 % 1009;
        let values = elements(rect, shape).into_iter().map(|at| (at, x(at))).collect();
        (mesh.device(position), values)
    };
    rects.iter().enumerate().map(shard).collect()
}

/// Runs the programs.
fn run(plan: &Reshard, from: &Sharding, to: &Sharding, shape: &[usize]) -> Shards {
    let tensor = TensorSpec::new(shape, DType::I64);
    let array = |elements: &[i64], shape: &[usize]| {
        let literals = elements.iter().map(|&x| Literal::from_i64(DType::I64, x));
        Array::new(TensorSpec::new(shape, DType::I64), literals)
    };
    let old = shards(from, shape, 42);
    let rects = rectangles(from, shape).unwrap().into_iter().enumerate();
    let mut now: Vec<Option<Array>> = Vec::new();
    for (position, rect) in rects {
        let own = &old[&from.mesh().device(position)];
        let values: Vec<i64> = elements(&rect, shape).iter().map(|at| own[at]).collect();
        now.push(Some(array(&values, &rect.extent)));
    }
    for step in plan.lower(from, to, &tensor).unwrap() {
        let take = |piece: &Piece| {
            let part = now[piece.from].as_ref().expect("only parts are read");
            let values: Vec<i64> = part.elements().map(|x| x.as_i64()).collect();
            let places = elements(&piece.rect, part.spec().shape.hints());
            let values: Vec<i64> = places.into_iter().map(|at| values[at]).collect();
            array(&values, &piece.rect.extent)
        };
        let assembled = |Assembly { pieces, program }: &Assembly| {
            let mut pieces: Vec<Array> = pieces.iter().map(take).collect();
            match program {
                Some(program) => girih_reference::evaluate(program, &pieces).unwrap().pop(),
                None => pieces.pop(),
            }
        };
        now = step.iter().map(assembled).collect();
    }
    let mut new = Shards::new();
    for (position, rect) in rectangles(to, shape).unwrap().iter().enumerate() {
        let part = now[position].as_ref().expect("each processor has a part");
        assert_eq!(part.spec().shape.hints(), &rect.extent[..]);
        let values = part.elements().map(|x| x.as_i64());
        new.insert(
            to.mesh().device(position),
            elements(rect, shape).into_iter().zip(values).collect(),
        );
    }
    new
}

fn check(from: &Sharding, to: &Sharding, shape: &[usize]) -> Reshard {
    let plan = reshard(from, to, shape).unwrap();
    let old = shards(from, shape, 42);
    let new = run(&plan, from, to, shape);
    assert_eq!(value(from, &old, shape), value(to, &new, shape), "{from} to {to}: {plan:?}");
    let same = crate::same_ownership(from, to, shape).unwrap();
    assert!(!same || plan.kind == Kind::Identity, "{from} to {to}: {:?}", plan.kind);
    if partial_axes(from).is_empty() && partial_axes(to).is_empty() {
        // Each byte that a device needs and does not have is sent to it once.
        let have = |sharding: &Sharding| -> HashMap<u32, Rect> {
            let rects = rectangles(sharding, shape).unwrap().into_iter().enumerate();
            rects.map(|(at, rect)| (sharding.mesh().device(at), rect)).collect()
        };
        let (old, new) = (have(from), have(to));
        let missing = new.iter().map(|(device, rect)| {
            let kept = old.get(device).and_then(|old| old.intersection(rect));
            rect.len() - kept.map_or(0, |kept| kept.len())
        });
        assert_eq!(plan.bytes_moved(1), missing.sum::<usize>(), "{from} to {to}");
    }
    plan
}

fn kind(mesh: &[usize], from: &str, to: &str, shape: &[usize]) -> (Kind, usize) {
    let plan = check(&on(mesh, None, from), &on(mesh, None, to), shape);
    (plan.kind, plan.bytes_moved(4))
}

#[test]
fn reshards_are_the_collectives_of_the_field() {
    use Kind::*;
    let add = OpCode::Add;
    let cube = &[8, 8][..];
    let bytes = 8 * 8 * 4;
    for (mesh, from, to, expected) in [
        (&[4][..], "<x>", "<x, *>", (Identity, 0)),
        (&[4], "<>", "<x>", (Slice, 0)),
        (&[4], "<x>", "<>", (AllGather, 3 * bytes)),
        (&[4], "<x>", "<*, x>", (AllToAll, bytes * 3 / 4)),
        (&[4], "<; partial={x: add}>", "<>", (AllReduce(add), 2 * 3 * bytes)),
        (&[4], "<; partial={x: add}>", "<x>", (ReduceScatter(add), 3 * bytes)),
        (&[4], "<; partial={x: add}>", "<*, x>", (ReduceScatter(add), 3 * bytes)),
        (&[4], "<>", "<; partial={x: add}>", (Partial(add), 0)),
        (&[4], "<x>", "<; partial={x: add}>", (Partial(add), 0)),
        (&[4], "<; partial={x: add}>", "<; partial={x: add}>", (Identity, 0)),
        (&[2, 2], "<x, *>", "<y, *>", (Permute, 2 * bytes / 2)),
        (&[2, 2], "<x, y>", "<y, x>", (Permute, 2 * bytes / 4)),
        (&[2, 2], "<x, y>", "<x, *>", (AllGather, bytes)),
        (&[2, 2], "<(x, y)>", "<x, y>", (AllToAll, bytes / 2)),
        (&[2, 2], "<x; partial={y: add}>", "<x>", (AllReduce(add), 2 * 2 * bytes / 2)),
        (&[2, 2], "<; partial={y: add}>", "<>", (AllReduce(add), 2 * 2 * bytes)),
        (&[2, 2], "<; partial={x: add, y: add}>", "<>", (AllReduce(add), 6 * bytes)),
        (
            &[2, 2],
            "<; partial={x: add, y: add}>",
            "<; partial={y: add}>",
            (AllReduce(add), { 2 * 2 * bytes }),
        ),
        (&[2, 2], "<x; partial={y: add}>", "<>", (General, bytes + 4 * bytes * 3 / 4)),
        (&[1, 4], "<*; partial={x: add}>", "<>", (Identity, 0)),
    ] {
        assert_eq!(kind(mesh, from, to, cube), expected, "{mesh:?} {from} to {to}");
    }
    // Scalars and tensors without elements.
    assert_eq!(kind(&[4], "<; partial={x: add}>", "<>", &[]), (AllReduce(add), 2 * 3 * 4));
    assert_eq!(kind(&[4], "<x>", "<>", &[0]), (Identity, 0));
    assert_eq!(kind(&[4], "<; partial={x: maximum}>", "<>", &[0, 2]).1, 0);
    // Uneven: five over four is 2, 2, 1, 0.
    assert_eq!(kind(&[4], "<x>", "<>", &[5]), (AllGather, 4 * (4 * 5 - 5)));
    assert_eq!(kind(&[4], "<x>", "<*, x>", &[5, 3]).0, AllToAll);
}

/// Collectives over equal processors have one program, in which sums of half floats are rounded once.
#[test]
fn collectives_over_equal_processors_have_one_program() {
    let lowered = |mesh: &[usize], from: &str, to: &str| -> Vec<Option<String>> {
        let tensor = TensorSpec::new([8, 8], DType::BF16);
        let [from, to] = [from, to].map(|spec| on(mesh, None, spec));
        let plan = reshard(&from, &to, &[8, 8]).unwrap();
        let steps = plan.lower(&from, &to, &tensor).unwrap();
        let only = |step: Vec<Assembly>| {
            let address = |a: &Assembly| a.program.as_ref().map(std::sync::Arc::as_ptr);
            assert!(step.iter().all(|other| address(other) == address(&step[0])));
            step[0].program.as_ref().map(|program| program.to_string())
        };
        steps.into_iter().map(only).collect()
    };
    let sum = "\
Graph:
  %0 = input([4, 8], bf16)
  %1 = input([4, 8], bf16)
  %2 = cast(%0, f32) -> [4, 8]
  %3 = cast(%1, f32) -> [4, 8]
  %4 = add(%2, %3) -> [4, 8]
  %5 = cast(%4, bf16) -> [4, 8]
  outputs: [%5]";
    let gather = "\
Graph:
  %0 = input([4, 8], bf16)
  %1 = input([4, 8], bf16)
  %2 = concat(%0, %1, dim=0) -> [8, 8]
  outputs: [%2]";
    let [sum, gather] = [sum, gather].map(|text| Some(text.to_string()));
    let all_reduce = lowered(&[2, 2], "<; partial={x: add}>", "<>");
    assert_eq!(all_reduce, [sum.clone(), gather.clone()]);
    assert_eq!(lowered(&[2], "<; partial={x: add}>", "<x>"), [sum, None]);
    assert_eq!(lowered(&[2], "<x>", "<>"), [gather]);
    assert_eq!(lowered(&[2, 2], "<x>", "<y>"), [None], "a permute only copies");
    assert_eq!(lowered(&[4], "<x>", "<*, x>").len(), 1);
}

#[test]
fn one_device_scatters_and_gathers() {
    let one = on(&[1], None, "<>");
    let four = |spec| on(&[2, 2], None, spec);
    let of = |from: &Sharding, to: &Sharding, shape: &[usize]| {
        let plan = check(from, to, shape);
        (plan.kind, plan.bytes_moved(1))
    };
    assert_eq!(of(&one, &four("<x, y>"), &[4, 4]), (Kind::Scatter, 12));
    assert_eq!(of(&four("<x, y>"), &one, &[4, 4]), (Kind::Gather, 12));
    assert_eq!(of(&one, &four("<>"), &[4, 4]), (Kind::Broadcast, 48));
    // ML-77: tiles of 3, 3, 3 and 1 rows.
    let rows = on(&[4], None, "<x>");
    assert_eq!(of(&rows, &one, &[10, 3]), (Kind::Gather, 7 * 3));
    let far = on(&[1], Some(&[9]), "<>");
    assert_eq!(of(&one, &far, &[4]), (Kind::Permute, 4));
    assert_eq!(of(&four("<; partial={x: add}>"), &far, &[4]), (Kind::General, 8));
}

/// ML-79: quadrants to columns, and a large tensor; ML-73: gathering a grid.
#[test]
fn grids_of_processing_elements() {
    let grid = |rows: usize, cols: usize, width: u32| {
        let devices: Vec<u32> = (0..rows as u32)
            .flat_map(|row| (0..cols as u32).map(move |col| row * width + col))
            .collect();
        on(&[rows, cols], Some(&devices), "<x, y>")
    };
    let hops = |width: u32| {
        move |a: u32, b: u32| {
            ((a / width).abs_diff(b / width) + (a % width).abs_diff(b % width)) as usize
        }
    };
    let plan = check(&grid(2, 2, 4), &grid(1, 4, 4), &[4, 4]);
    assert_eq!(plan.phases[0].transfers.len(), 8);
    assert_eq!(plan.crossing().count(), 7);
    assert_eq!((plan.bytes_moved(4), plan.byte_hops(4, hops(4))), (56, 96));
    let plan = reshard(&grid(4, 4, 8), &grid(2, 8, 8), &[1024, 1024]).unwrap();
    assert_eq!((plan.phases[0].transfers.len(), plan.crossing().count()), (32, 31));
    assert_eq!((plan.bytes_moved(4), plan.byte_hops(4, hops(8))), (4_063_232, 12_582_912));
    let gather = reshard(&grid(4, 4, 4), &on(&[1], None, "<>"), &[1024, 1024]).unwrap();
    assert_eq!((gather.kind, gather.byte_hops(4, hops(4))), (Kind::Gather, 12_582_912));
}

#[test]
fn copies_share_the_sending() {
    // Four copies of one half each: the nearest sends, which is another one for each target.
    let plan = check(&on(&[4, 2], None, "<*, y>"), &on(&[4, 2], None, "<>"), &[8, 8]);
    let mut sources: Vec<u32> = plan.crossing().map(|transfer| transfer.source).collect();
    sources.sort();
    assert_eq!(sources, [0, 1, 2, 3, 4, 5, 6, 7]);
    // From one mesh to another, everybody is equally far.
    let [old, new] = [[0, 1, 2, 3], [4, 5, 6, 7]].map(|devices| on(&[4], Some(&devices), "<>"));
    let plan = check(&old, &new, &[8]);
    let sources: Vec<u32> = plan.crossing().map(|transfer| transfer.source).collect();
    assert_eq!(sources, [0, 1, 2, 3]);
}

#[test]
fn the_links_of_a_mesh_price_a_reshard() {
    let link = |latency, bandwidth| girih_ir::sharding::Link::new(latency, bandwidth).unwrap();
    let mesh = DeviceMesh::new(&[2, 4], &["x", "y"]).unwrap();
    let mesh = mesh.with_link("y", link(1e-6, 1e9)).unwrap();
    let sharding =
        |mesh: &DeviceMesh, spec: &str| Sharding::new(mesh.clone(), spec.parse().unwrap()).unwrap();
    let cost = |mesh: &DeviceMesh, from: &str, to: &str| {
        let plan = reshard(&sharding(mesh, from), &sharding(mesh, to), &[1000, 1000]).unwrap();
        plan.cost(mesh, 4)
    };
    // Each device gets three quarters of 4 MB along y.
    let gathered = cost(&mesh, "<y>", "<>").unwrap();
    assert!((gathered - (1e-6 + 3e-3)).abs() < 1e-9, "{gathered}");
    let reduced = cost(&mesh, "<; partial={y: add}>", "<>").unwrap();
    assert!((reduced - 2.0 * (1e-6 + 3e-3)).abs() < 1e-9, "{reduced}");
    assert_eq!(cost(&mesh, "<x>", "<>"), None, "the link of x is unknown");
    assert_eq!(cost(&mesh, "<>", "<x>"), Some(0.0));
    let slow = mesh.with_link("x", link(1e-3, 1e6)).unwrap();
    assert!(cost(&slow, "<x>", "<>").unwrap() > 1.0);
}

/// 32 x 32 devices.
#[test]
fn large_meshes_are_planned() {
    let plan = |from: &str, to: &str| {
        let plan = reshard(&on(&[32, 32], None, from), &on(&[32, 32], None, to), &[4096, 4096]);
        plan.unwrap().bytes_moved(4)
    };
    let all = 4096 * 4096 * 4;
    assert_eq!(plan("<x, *>", "<x, *>"), 0);
    assert_eq!(plan("<x, y>", "<x, *>"), 31 * all);
    assert_eq!(plan("<x; partial={y: add}>", "<x>"), 2 * 31 * all);
}

/// A spec: each axis on a dimension, partial, or absent.
fn any_spec() -> impl Strategy<Value = P> {
    let places = prop::array::uniform3(0..4usize);
    (places, any::<bool>(), any::<bool>()).prop_map(|(places, turn, add)| {
        let mut spec = P::new([None::<&str>, None]);
        for at in if turn { [2, 1, 0] } else { [0, 1, 2] } {
            let name = ["x", "y", "z"][at];
            match places[at] {
                dim @ (0 | 1) => spec.dims[dim].axes.push(name.into()),
                2 => {
                    let op = if add { OpCode::Add } else { OpCode::Maximum };
                    spec.partial.insert(name.into(), op);
                }
                _ => {}
            }
        }
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn transfers_give_the_new_shards(
        sizes in prop::array::uniform3(1..4usize),
        shape in prop::array::uniform2(0..8usize),
        from in any_spec(),
        to in any_spec(),
    ) {
        let mesh = DeviceMesh::new(&sizes, &["x", "y", "z"]).unwrap();
        let [from, to] = [from, to].map(|spec| Sharding::new(mesh.clone(), spec).unwrap());
        check(&from, &to, &shape);
        prop_assert_eq!(reshard(&from, &to, &shape), reshard(&from, &to, &shape));
    }

    #[test]
    fn meshes_may_differ(
        sizes in prop::array::uniform3(1..3usize),
        others in prop::array::uniform3(1..3usize),
        first in 0..10u32,
        shape in prop::array::uniform2(0..6usize),
        from in any_spec(),
        to in any_spec(),
    ) {
        let mesh = |sizes: &[usize; 3], first: u32| {
            let devices: Vec<u32> = (0..sizes.iter().product::<usize>() as u32).rev().collect();
            let devices: Vec<u32> = devices.iter().map(|device| device + first).collect();
            DeviceMesh::new(sizes, &["x", "y", "z"]).unwrap().with_devices(&devices).unwrap()
        };
        let from = Sharding::new(mesh(&sizes, 0), from).unwrap();
        let to = Sharding::new(mesh(&others, first), to).unwrap();
        check(&from, &to, &shape);
    }

    /// Sub-axes, several axes on a dimension, and both ways.
    #[test]
    fn sub_axes_are_resharded(
        shape in prop::array::uniform2(0..9usize),
        pair in prop::sample::subsequence(vec![
            "<x:(1)2, x:(2)4>", "<x:(2)4, x:(1)2>", "<(x:(4)2, x:(1)4)>", "<x>", "<*, x>", "<>",
            "<x:(2)2; partial={x:(1)2: add, x:(4)2: add}>", "<x:(1)4; partial={x:(4)2: add}>",
            "<; partial={x: add}>",
        ], 2),
    ) {
        let [a, b] = [0, 1].map(|at| on(&[8], None, pair[at]));
        check(&a, &b, &shape);
        check(&b, &a, &shape);
    }
}
