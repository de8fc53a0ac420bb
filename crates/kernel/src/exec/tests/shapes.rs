//! Strides, tails, chunks, and every core over many shapes.

use super::*;

#[test]
fn nothing_here_yet() {}
