//! Tests of random programs written to files and text: they are read back with the same text and
//! bitwise equal results.

use girih_conformance::random_program;
use girih_ir::pfgb::{self, File};
use girih_ir::{Array, Graph, NodeId};
use girih_reference::evaluate;

#[test]
fn random_programs_compute_the_same_after_a_round_trip() {
    for seed in 0..200 {
        let (graph, arguments) = random_program(seed);
        let ids: Vec<NodeId> = graph.arguments().collect();
        let data = ids.iter().copied().zip(arguments.iter().map(Array::to_bytes)).collect();
        let file = File { graph: graph.clone(), data };
        let read = pfgb::decode(&file.encode().unwrap()).unwrap();
        assert_eq!(read.graph.to_string(), graph.to_string(), "program {seed}");
        assert_eq!(read.graph.outputs(), graph.outputs());
        let given: Vec<Array> = read
            .graph
            .arguments()
            .map(|id| Array::from_bytes(read.graph.spec(id).clone(), &read.data[&id]))
            .collect();
        let parsed = Graph::parse(&graph.to_string()).unwrap();
        let expected = bits(&graph, &arguments);
        assert!(bits(&read.graph, &given) == expected, "program {seed}\n{graph}");
        assert!(bits(&parsed, &arguments) == expected, "program {seed}\n{graph}");
    }
}

fn bits(graph: &Graph, arguments: &[Array]) -> Vec<Vec<u8>> {
    evaluate(graph, arguments).unwrap().iter().map(Array::to_bytes).collect()
}
