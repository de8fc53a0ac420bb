//! Tests of the shardings of a graph: text, key, files and canonical form with and without them.

use super::*;
use crate::ops::control::Control;
use crate::pfgb::{File, decode};
use crate::testing::{Rng, random_graph, region};
use crate::{DType, GraphBuilder, Op, OpCode, TensorSpec, golden};

fn mesh(name: &str) -> DeviceMesh {
    DeviceMesh::new(&[2, 2], &["dp", "tp"]).unwrap().named(name).unwrap()
}

fn on(mesh: &DeviceMesh, spec: &str) -> Sharding {
    Sharding::new(mesh.clone(), spec.parse().unwrap()).unwrap()
}

fn key(graph: &Graph) -> Vec<u8> {
    let mut key = Vec::new();
    graph.encode(&mut key);
    key
}

/// `maximum(x @ w + b, 0)`, sharded as a layer of a network.
fn layer() -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([4, 8], DType::F32));
    let w = b.input(TensorSpec::new([8, 3], DType::F32));
    let product = b.matmul(x, w).unwrap();
    let zero = b.scalar(DType::F32, 0.0);
    let out = b.maximum(product, zero).unwrap();
    let mut graph = b.finish([out]);
    let m = mesh("m");
    for (id, spec) in
        [(x, "<dp, tp>"), (w, "<tp, *>"), (product, "<dp, *; partial={tp: add}>"), (out, "<dp>")]
    {
        graph.set_sharding(id, on(&m, spec)).unwrap();
    }
    graph
}

fn round_trip(graph: &Graph) {
    let text = graph.to_string();
    assert_eq!(Graph::parse(&text).as_ref(), Ok(graph), "{text}");
    let file = File { graph: graph.clone(), ..File::default() };
    let bytes = file.encode().unwrap();
    assert_eq!(decode(&bytes), Ok(file), "{text}");
}

/// NB-110: the header of the mesh, and the spec of each value.
#[test]
fn shardings_are_in_every_text_form() {
    let graph = layer();
    graph.verify().unwrap();
    round_trip(&graph);
    golden!("text/a_sharded_graph.txt", graph);
    golden!("text/a_sharded_function.txt", graph.as_function(&|_| false));
}

#[test]
fn a_graph_without_shardings_is_as_before() {
    let mut graph = layer();
    let sharded = graph.clone();
    graph.clear_shardings();
    assert_eq!((graph.mesh(), graph.partitions().count()), (None, 0));
    let plain = Graph::parse(&graph.to_string()).unwrap();
    let file = |graph: &Graph| File { graph: graph.clone(), ..File::default() }.encode().unwrap();
    assert_eq!((key(&plain), file(&plain)), (key(&graph), file(&graph)));
    assert_ne!(sharded, graph);
    assert_ne!(key(&sharded), key(&graph));
    assert!(key(&sharded).starts_with(&key(&graph)), "the table is behind all else");
    assert!(sharded.to_string().replace("  mesh: ", "").len() > graph.to_string().len());
}

#[test]
fn what_is_owned_is_in_the_key_and_not_how_it_is_written() {
    let graph = layer();
    let with = |id: u32, sharding: Sharding| {
        let mut graph = graph.clone();
        graph.set_sharding(NodeId(id), sharding).unwrap();
        key(&graph)
    };
    let m = mesh("m");
    assert_eq!(with(0, on(&m, "<dp, tp>")), key(&graph));
    assert_eq!(with(0, on(&m, "<dp:(1)2, tp>")), key(&graph));
    assert_ne!(with(0, on(&m, "<tp, dp>")), key(&graph));
    assert_ne!(with(3, on(&m, "<>")), key(&graph), "an entry more");
    // The mesh's name does not count; its devices do.
    let on_mesh = |mesh: &DeviceMesh| {
        let mut graph = graph.clone();
        graph.clear_shardings();
        for (id, spec) in layer().partitions() {
            let sharding = Sharding::new(mesh.clone(), spec.clone()).unwrap();
            graph.set_sharding(id, sharding).unwrap();
        }
        key(&graph)
    };
    assert_eq!(on_mesh(&mesh("other")), key(&graph));
    assert_ne!(on_mesh(&m.clone().with_devices(&[3, 2, 1, 0]).unwrap()), key(&graph));
    assert_ne!(on_mesh(&m.ghost()), key(&graph));
}

#[test]
fn tables_follow_renumbered_nodes() {
    let graph = layer();
    let canonical = graph.canonical();
    canonical.graph.verify().unwrap();
    assert_eq!(canonical.graph.partitions().count(), 4);
    let out = canonical.graph.outputs()[0];
    assert_eq!(canonical.graph.sharding(out), graph.sharding(graph.outputs()[0]));
    assert_eq!(key(&canonical.graph.canonical().graph), key(&canonical.graph));
    let (part, places) = graph.part(&[NodeId(2)]);
    part.verify().unwrap();
    assert_eq!(part.partitions().count(), 3);
    let product = places[2].unwrap();
    assert_eq!(part.partition(product).unwrap().to_string(), "<dp, *; partial={tp: add}>");
}

#[test]
fn wrong_shardings_are_refused() {
    let mut graph = layer();
    let error = |graph: &mut Graph, id: u32, sharding: Sharding| {
        graph.set_sharding(NodeId(id), sharding).unwrap_err().to_string()
    };
    let found = error(&mut graph, 0, on(&mesh("m"), "<*, *, dp>"));
    assert!(found.contains("3 entries for a tensor of rank 2"), "{found}");
    let found = error(&mut graph, 0, on(&mesh("m").ghost(), "<dp>"));
    assert!(found.contains("a graph is for one mesh"), "{found}");
    for (text, reason) in [
        ("Graph:\n  %0 = input([2], f32)(<dp>)\n  outputs: [%0]", "no mesh is declared"),
        ("Graph:\n  mesh: @(shape=(2,), devices=[0, 1], axes=(x))\n  %0 = input([2], f32)(<y>)", {
            "is no axis of mesh"
        }),
        ("Graph:\n  mesh: @(shape=(2,), axes=(x))\n  outputs: []", "expected 'devices'"),
    ] {
        let found = Graph::parse(text).unwrap_err().to_string();
        assert!(found.contains(reason), "{found}");
    }
}

#[test]
fn random_shardings_are_read_back() {
    let m = mesh("m");
    let mut rng = Rng(7);
    let mut sharded = 0;
    for seed in 0..300 {
        let mut graph = random_graph(seed, 12);
        for id in graph.ids() {
            let rank = graph.spec(id).shape.rank();
            let spec = ["<>", "<dp>", "<dp, tp>", "<; partial={tp: maximum}>"][rng.below(4)];
            let spec: P = spec.parse().unwrap();
            if spec.dims.len() <= rank {
                graph.set_sharding(id, Sharding::new(m.clone(), spec).unwrap()).unwrap();
                sharded += 1;
            }
        }
        graph.verify().unwrap();
        round_trip(&graph);
        let canonical = graph.canonical().graph;
        assert_eq!(key(&canonical.canonical().graph), key(&canonical));
    }
    assert!(sharded > 1000, "{sharded}");
}

#[test]
fn regions_are_on_the_mesh_of_their_graph() {
    let scan = |body_mesh: &DeviceMesh, of_graph: bool| {
        let specs = [0; 3].map(|_| TensorSpec::new([2], DType::F64));
        let mut body = region(&specs, |b, x| Ok(vec![b.mul(x[0], x[2])?, b.add(x[0], x[1])?]));
        body.set_sharding(NodeId(3), on(body_mesh, "<tp>")).unwrap();
        let control = Control { carries: 1, slices: 1, length: 3.into(), ..Control::default() };
        let control = Arc::new(control.with_regions(vec![body]));
        let mut b = GraphBuilder::default();
        let inputs =
            [&[2][..], &[3, 2], &[2]].map(|shape| b.input(TensorSpec::new(shape, DType::F64)));
        let out = b.emit(Op::control(OpCode::Scan, control, 0), &inputs).unwrap();
        let mut graph = b.finish([out]);
        if of_graph {
            graph.set_sharding(out, on(&mesh("m"), "<dp>")).unwrap();
        }
        graph
    };
    for of_graph in [false, true] {
        let graph = scan(&mesh("m"), of_graph);
        graph.verify().unwrap();
        assert_eq!(graph.mesh(), Some(&mesh("m")));
        round_trip(&graph);
        assert!(graph.to_string().contains("-> [2](<tp>)"), "{graph}");
    }
    let plain = scan(&mesh("m"), false);
    assert_ne!(key(&plain), key(&scan(&mesh("m").ghost(), false)), "regions are in the key");
    let error = scan(&mesh("m").ghost(), true).verify().unwrap_err().to_string();
    assert!(error.contains("a region is sharded over mesh @m(dp=2, tp=2)"), "{error}");
}
