//! Tests of ownership: the documented examples, and shards that cover a tensor.

use super::*;
use girih_ir::P;
use proptest::prelude::*;

fn sharding(shape: &[usize], axes: &[&str], spec: &str) -> Sharding {
    Sharding::new(DeviceMesh::new(shape, axes).unwrap(), spec.parse().unwrap()).unwrap()
}

fn lengths(sharding: &Sharding, size: usize) -> Vec<usize> {
    rectangles(sharding, &[size]).unwrap().iter().map(|rect| rect.extent[0]).collect()
}

/// NB-86, NB-90, and the example.
#[test]
fn dimensions_are_cut_in_ceil_chunks() {
    let two = sharding(&[2], &["d"], "<d, *>");
    let shapes = |shape: &[usize]| [0, 1].map(|at| local_shape(&two, shape, at).unwrap());
    assert_eq!(shapes(&[8, 8]), [[4, 8], [4, 8]]);
    assert_eq!(shapes(&[5, 3]), [[3, 3], [2, 3]]);
    assert_eq!(lengths(&sharding(&[4], &["d"], "<d>"), 5), [2, 2, 1, 0]);
    let both = sharding(&[2, 4], &["dp", "tp"], "<(dp, tp)>");
    assert_eq!(lengths(&both, 10), [2, 2, 2, 2, 2, 0, 0, 0]);
    assert_eq!(lengths(&both, 0), [0; 8]);
    let minor = sharding(&[2, 2], &["dp", "tp"], "<(tp, dp)>");
    let starts: Vec<_> =
        rectangles(&minor, &[8]).unwrap().iter().map(|rect| rect.start[0]).collect();
    assert_eq!(starts, [0, 4, 2, 6], "tp is the major axis");
    let sub = sharding(&[4], &["x"], "<x:(2)2, x:(1)2>");
    let shards: Vec<_> =
        rectangles(&sub, &[4, 4]).unwrap().iter().map(|rect| rect.to_string()).collect();
    assert_eq!(shards, ["[0..2, 0..2]", "[2..4, 0..2]", "[0..2, 2..4]", "[2..4, 2..4]"]);
    assert_eq!(largest_shape(&both, &[10]).unwrap(), [2]);
    let error = rectangles(&two, &[8]).unwrap_err().to_string();
    assert!(error.contains("2 entries for a tensor of rank 1"), "{error}");
}

#[test]
fn shardings_are_equal_if_devices_own_the_same() {
    let of = |shape: &[usize], spec| sharding(shape, &["a", "b"], spec);
    let same = |x: &Sharding, y: &Sharding, shape: &[usize]| same_ownership(x, y, shape).unwrap();
    assert!(same(&of(&[4, 1], "<a>"), &of(&[4, 1], "<(a, b)>"), &[10]), "axes of size 1");
    assert!(same(&of(&[2, 2], "<(a, b)>"), &of(&[4, 1], "<a>"), &[10]), "other meshes");
    assert!(same(&of(&[2, 2], "<a>"), &of(&[2, 2], "<a?; replicated={b}>"), &[10]));
    assert!(!same(&of(&[2, 2], "<a>"), &of(&[2, 2], "<b>"), &[10]));
    assert!(same(&of(&[2, 2], "<a>"), &of(&[2, 2], "<b>"), &[0]), "no elements");
    assert!(!same(&of(&[2, 2], "<a>"), &of(&[2, 2], "<*, a>"), &[4, 4]));
    // Partial values.
    let add = of(&[2, 2], "<; partial={a: add}>");
    assert!(same(&add, &of(&[2, 2], "<; partial={a:(1)2: add}>"), &[4]));
    assert!(!same(&add, &of(&[2, 2], "<; partial={b: add}>"), &[4]));
    assert!(!same(&add, &of(&[2, 2], "<; partial={a: maximum}>"), &[4]));
    assert!(!same(&add, &of(&[2, 2], "<>"), &[4]));
    assert!(same(&of(&[1, 4], "<; partial={a: add}>"), &of(&[1, 4], "<>"), &[4]));
    // Devices in another order.
    let mesh = |devices: &[u32]| {
        DeviceMesh::new(&[2, 2], &["a", "b"]).unwrap().with_devices(devices).unwrap()
    };
    let on =
        |devices: &[u32], spec: &str| Sharding::new(mesh(devices), spec.parse().unwrap()).unwrap();
    assert!(same(&on(&[0, 1, 2, 3], "<a, b>"), &on(&[0, 2, 1, 3], "<b, a>"), &[4, 4]));
    let swapped = on(&[2, 3, 0, 1], "<; partial={a: add}>");
    assert!(same(&add, &swapped, &[4]), "the groups are the same");
    assert!(is_fully_replicated(&of(&[2, 2], "<>"), &[4]).unwrap());
    assert!(is_fully_replicated(&of(&[1, 2], "<a>"), &[4]).unwrap());
    assert!(!is_fully_replicated(&add, &[4]).unwrap());
    assert!(!is_fully_replicated(&of(&[2, 2], "<a>"), &[4]).unwrap());
    assert!(is_fully_replicated(&Sharding::replicated(mesh(&[0, 1, 2, 3])), &[]).unwrap());
}

proptest! {
    /// Each element is in the shard of as many processors as the axes that do not cut have.
    #[test]
    fn shards_cover_a_tensor(
        sizes in prop::array::uniform3(1..4usize),
        shape in prop::array::uniform2(0..9usize),
        places in prop::array::uniform3(0..3usize),
        turn in any::<bool>(),
    ) {
        let names = ["x", "y", "z"];
        let mesh = DeviceMesh::new(&sizes, &names).unwrap();
        let mut spec = P::new(["", ""].map(|_| None));
        let mut replicas = 1;
        for i in if turn { [2, 1, 0] } else { [0, 1, 2] } {
            match places[i] {
                2 => replicas *= sizes[i],
                dim => spec.dims[dim].axes.push(names[i].into()),
            }
        }
        let sharding = Sharding::new(mesh, spec).unwrap();
        let shards = rectangles(&sharding, &shape).unwrap();
        for (i, j) in (0..shape[0]).flat_map(|i| (0..shape[1]).map(move |j| (i, j))) {
            let at = Rect { start: smallvec![i, j], extent: smallvec![1, 1] };
            prop_assert_eq!(shards.iter().filter(|shard| shard.contains(&at)).count(), replicas);
        }
        for (position, shard) in shards.iter().enumerate() {
            let local = local_shape(&sharding, &shape, position).unwrap();
            prop_assert_eq!(&shard.extent.to_vec(), &local);
            prop_assert!((0..2).all(|a| shard.start[a] + shard.extent[a] <= shape[a]));
            let most = largest_shape(&sharding, &shape).unwrap();
            prop_assert!((0..2).all(|a| local[a] <= most[a]));
        }
    }
}

#[test]
fn equivalent_shardings_own_the_same_elements_of_every_tensor() {
    use std::hash::DefaultHasher;
    let hash = |sharding: &Sharding| {
        let mut hasher = DefaultHasher::new();
        hash_ownership(sharding, &mut hasher);
        hasher.finish()
    };
    let of = |shape: &[usize], spec| sharding(shape, &["a", "b"], spec);
    let two = |spec| of(&[2, 2], spec);
    for (a, b) in [
        (two("<a>"), two("<a? p1, *, ?; replicated={b}>")),
        (two("<(a, b)>"), of(&[4, 1], "<a>")),
        (of(&[4, 1], "<a, b>"), of(&[4, 1], "<a; partial={b: add}>")),
        (two("<; partial={a: add}>"), two("<; partial={a:(1)2: add}>")),
    ] {
        assert!(equivalent(&a, &b) && equivalent(&b, &a), "{a} and {b}");
        assert_eq!(hash(&a), hash(&b), "{a} and {b}");
    }
    let ghost =
        Sharding::new(DeviceMesh::new(&[2, 2], &["a", "b"]).unwrap().ghost(), P::new(["a"]));
    for (a, b) in [
        (two("<a>"), two("<b>")),
        (two("<a>"), two("<*, a>")),
        (two("<(a, b)>"), two("<(b, a)>")),
        (two("<a>"), of(&[2, 1], "<a>")),
        (two("<a>"), two("<a; partial={b: add}>")),
        (two("<; partial={a: add}>"), two("<; partial={a: maximum}>")),
        (two("<a>"), ghost.unwrap()),
    ] {
        assert!(!equivalent(&a, &b) && !equivalent(&b, &a), "{a} and {b}");
    }
}
