//! Classes of cost. A target or an executor maps each class to a number of its own.

/// The work of an op for one element of its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cost {
    /// No instruction: a view, a value in memory, or an op that is the core of a kernel or a
    /// routine and is never recomputed.
    Free,
    /// A few instructions that compute.
    Arithmetic,
    /// A few instructions that convert or select bits, and compute nothing.
    Move,
    /// A bounds check of an index, or a load at an index.
    Lookup,
    /// A division or a square root.
    Division,
    /// The remainder of a division. Floats need a loop or a library function.
    Remainder,
    /// A transcendental function that a short polynomial approximates.
    Exponential,
    /// A transcendental function with a longer polynomial, or with a reduction of the argument. For
    /// integers, a loop of multiplications. For complex numbers, any elementary function.
    Transcendental,
    /// The root of a sum of squares, computed in a wider dtype. The widest dtype needs scaling.
    Hypotenuse,
    /// Ten rounds of integer multiplications, and the transcendental function of a distribution.
    Random,
    /// A special function: several polynomials, chosen by the range of the argument. For complex
    /// numbers, a power: a logarithm and an exponential.
    Special,
    /// A special function that sums a series.
    Series,
    /// A check that can fail, so no loop may run it speculatively: each element is checked once.
    Checked,
}
