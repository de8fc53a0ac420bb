//! Graph text that parses prints to text that parses to the same graph.
#![no_main]

use girih::ir::Graph;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(graph) = Graph::parse(text) {
        graph.verify().expect("what is parsed verifies");
        assert_eq!(Graph::parse(&graph.to_string()).expect("what is printed parses"), graph);
    }
});
