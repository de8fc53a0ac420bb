//! Leaves: values that are arguments of the program, splat constants, random values and iota.

use super::{Class, Cost, Factoring, OpDef, Python, factoring, samples};

const LEAF: OpDef = OpDef { class: Class::Leaf, samples: samples::none, ..OpDef::BLANK };

/// Data that the caller supplies.
pub static INPUT: OpDef = OpDef {
    name: "input",
    doc: "A tensor fed from outside the graph.",
    python: Python::Named("asarray"),
    ..LEAF
};

/// Trainable data that the caller supplies.
pub static PARAMETER: OpDef = OpDef {
    name: "parameter",
    doc: "A trainable tensor fed from outside the graph.",
    python: Python::Nothing("values enter by asarray; nn.Parameter marks them"),
    ..LEAF
};

/// A tensor whose elements are all equal. With attribute `Value` the value is embedded in the
/// program; without it, the value is a run-time scalar among the program's arguments.
pub static CONSTANT: OpDef = OpDef {
    name: "constant",
    doc: "A tensor whose elements all have the same value.",
    python: Python::Named("full"),
    ..LEAF
};

/// Uniform random values in `[0, 1)`. The argument is the generator's key and offset.
pub static RANDOM_UNIFORM: OpDef = OpDef {
    cost: Cost::Random,
    factors: Factoring::Rule(factoring::random),
    name: "random_uniform",
    doc: "Uniform random numbers in [0, 1) from a counter-based generator.",
    python: Python::Named("rand"),
    ..LEAF
};

/// Standard normal random values. The argument is the generator's key and offset.
pub static RANDOM_NORMAL: OpDef = OpDef {
    cost: Cost::Random,
    factors: Factoring::Rule(factoring::random),
    name: "random_normal",
    doc: "Standard normal random numbers from a counter-based generator.",
    python: Python::Named("randn"),
    ..LEAF
};

/// 64 uniform random bits as an i64. The argument is the generator's key and offset.
pub static RANDOM_BITS: OpDef = OpDef {
    cost: Cost::Random,
    factors: Factoring::Rule(factoring::random),
    name: "random_bits",
    doc: "Integers with 64 uniform random bits from a counter-based generator.",
    python: Python::Named("randint"),
    ..LEAF
};

/// The index along one axis (attribute `Axis`).
pub static IOTA: OpDef = OpDef {
    factors: Factoring::Rule(factoring::iota),
    name: "iota",
    doc: "Each element's index along one axis.",
    python: Python::Named("arange"),
    ..LEAF
};
