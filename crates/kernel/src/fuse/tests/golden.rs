//! How programs read: one small graph per fact.

use super::*;

#[track_caller]
fn check(graph: &Graph, expected: &str) {
    let text = lower(graph, FusionOptions::ALL).unwrap().to_string();
    let lines = |s: &str| s.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    assert_eq!(lines(text.trim()), lines(expected.trim()), "\n{text}");
}

#[test]
fn a_fused_map_loads_each_operand_once() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 3]), input(b, [3]));
        let s = b.mul(x, y)?;
        Ok([b.add(s, y)?])
    });
    check(&g, "");
}
