//! Tests of drawings: each rank, shards without elements, partial values, and long dimensions.

use super::*;
use girih_ir::DeviceMesh;

fn sharding(shape: &[usize], axes: &[&str], spec: &str) -> Sharding {
    Sharding::new(DeviceMesh::new(shape, axes).unwrap(), spec.parse().unwrap()).unwrap()
}

fn drawn(sharding: &Sharding, shape: &[usize]) -> String {
    drawing(sharding, shape, Drawing::Text).unwrap()
}

#[test]
fn a_matrix_is_a_table() {
    let expected = "\
\x20      0..4   4..8
     ┌──────┬──────┐
0..3 │  0   │  1   │
     ├──────┼──────┤
3..5 │  2   │  3   │
     └──────┴──────┘";
    let both = sharding(&[2, 2], &["a", "b"], "<a, b>");
    assert_eq!(drawn(&both, &[5, 8]), expected);
    let rows = sharding(&[2, 4], &["dp", "tp"], "<dp>");
    assert!(drawn(&rows, &[4, 3]).contains("2..4 │ 4-7  │"), "{}", drawn(&rows, &[4, 3]));
}

#[test]
fn ranks_other_than_two() {
    let row = sharding(&[2, 4], &["dp", "tp"], "<(dp, tp)>");
    let text = drawn(&row, &[10]);
    assert!(text.contains("│  0   │  1   │  2   │  3   │   4   │"), "{text}");
    assert!(text.ends_with("without elements: 5-7"), "{text}");
    assert_eq!(drawn(&sharding(&[2], &["a"], "<>"), &[]), "┌──────┐\n│ 0, 1 │\n└──────┘");
    let three = sharding(&[2, 2], &["a", "b"], "<a, *, b>");
    let text = drawn(&three, &[4, 2, 2]);
    let titles: Vec<&str> = text.lines().filter(|line| line.starts_with('[')).collect();
    assert_eq!(titles, ["[0..2, :, :]", "[2..4, :, :]"]);
    assert!(text.contains("0..2 │  2   │  3   │"), "{text}");
}

#[test]
fn partial_values_no_elements_and_long_dimensions_are_said() {
    let partial = sharding(&[2, 2], &["a", "b"], "<b; partial={a: add}>");
    let text = drawn(&partial, &[4]);
    assert!(text.contains("0, 2") && text.ends_with("partial (add) along a"), "{text}");
    assert!(drawn(&partial, &[0]).starts_with("no elements\nwithout elements: 0-3"));
    let long = sharding(&[64, 4], &["a", "b"], "<a, *, b>");
    let text = drawn(&long, &[64, 1, 4]);
    assert!(text.ends_with("the first 16 of 64 tables"), "{text}");
    let text = drawn(&sharding(&[64], &["a"], "<a>"), &[64]);
    assert!(text.ends_with("the first 16 of 64 parts of dimension 0"), "{text}");
    // Devices that do not follow each other.
    let text = drawn(&sharding(&[64, 2], &["a", "b"], "<b>"), &[2]);
    assert!(text.contains("0, 2, 4, 6, 8, 10, 12, 14, ... (64)"), "{text}");
}

#[test]
fn an_svg_document_has_a_box_for_each_part() {
    let both = sharding(&[2, 2], &["a", "b"], "<a, b; partial={}>");
    let svg = drawing(&both, &[5, 8], Drawing::Svg).unwrap();
    assert_eq!(svg.matches("stroke=\"#888\"").count(), 4);
    assert!(svg.contains(">3..5</text>") && svg.ends_with("</svg>\n"), "{svg}");
    assert!(drawing(&both, &[5], Drawing::Svg).unwrap_err().to_string().contains("2 entries"));
}
