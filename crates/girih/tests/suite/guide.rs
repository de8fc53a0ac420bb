//! The first program of the README is the one of the guide, which is run as its test.

const README: &str = include_str!("../../../../README.md");
const START: &str = include_str!("../../src/guide/start.md");

#[test]
fn the_readmes_program_is_the_guides() {
    let program = START.split("```").nth(1).expect("the page has a program");
    assert!(program.contains("fn main()"), "{program}");
    let expected = format!("```rust{program}```");
    assert!(README.contains(&expected), "the README has another program than guide/start.md");
}
