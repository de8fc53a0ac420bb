//! The functions around the gamma function, and random draws, which are computed by them.

use super::*;

/// The polygamma function: the derivative of `digamma` of order `a` at `b`. `a` is rounded to an
/// integer, so it has no gradient.
pub static POLYGAMMA: OpDef = with_rule(
    vjp::polygamma,
    costs(
        Cost::Special,
        binary(
            "polygamma",
            "Derivatives of digamma: of which order, and where.",
            broadcast_floating,
        ),
    ),
);
/// The regularised lower incomplete gamma function `P(a, x)`.
pub static IGAMMA: OpDef = with_rule(
    vjp::igamma,
    costs(
        Cost::Series,
        binary("igamma", "The regularised lower incomplete gamma function.", broadcast_floating),
    ),
);
/// The regularised upper incomplete gamma function `Q(a, x) = 1 - P(a, x)`.
pub static IGAMMAC: OpDef = with_rule(
    vjp::igammac,
    costs(
        Cost::Series,
        binary("igammac", "The regularised upper incomplete gamma function.", broadcast_floating),
    ),
);
/// The derivative of [`IGAMMA`] with respect to its first operand.
pub static IGAMMA_GRAD_A: OpDef = with_rule(
    vjp::igamma_grad_a,
    costs(
        Cost::Series,
        binary(
            "igamma_grad_a",
            "The derivative of the lower incomplete gamma function by its first operand.",
            broadcast_floating,
        ),
    ),
);
/// The 64 random bits of a key at a counter: see [`crate::random`].
pub static PHILOX: OpDef = OpDef {
    python: Python::Named("random.bits"),
    ..exact(discrete(costs(
        Cost::Random,
        binary(
            "philox",
            "The 64 random bits that a key gives at a counter, by Philox 4x32-10.",
            broadcast_words,
        ),
    )))
};
/// A draw of [`crate::random::draws`], from an element's word and the bits of parameters in f64.
const fn drawn(name: &'static str, doc: &'static str, python: &'static str) -> OpDef {
    OpDef {
        python: Python::Named(python),
        samples: samples::draws,
        ..exact(discrete(costs(Cost::Random, binary(name, doc, broadcast_words))))
    }
}
/// The bits of a gamma draw.
pub static GAMMA_DRAW: OpDef =
    drawn("gamma_draw", "Gamma draws, from bits for each element and a shape.", "random.gamma");
/// The bits of the logarithm of a gamma draw.
pub static LOG_GAMMA_DRAW: OpDef = drawn(
    "log_gamma_draw",
    "Logarithms of gamma draws, from bits for each element and a shape.",
    "random.dirichlet",
);
/// The bits of a Poisson draw.
pub static POISSON_DRAW: OpDef = drawn(
    "poisson_draw",
    "Poisson draws, from bits for each element and a mean.",
    "random.poisson",
);
/// The bits of a binomial draw.
pub static BINOMIAL_DRAW: OpDef = OpDef {
    arity: (3, 3),
    ..drawn(
        "binomial_draw",
        "Binomial draws, from bits for each element, a number of trials and a probability.",
        "random.binomial",
    )
};
