//! The order in which the operands of a summation are contracted. The cost of a contraction is its
//! number of multiplications and additions: the product of the sizes of all its labels, times two
//! if a label is summed.

use super::subscripts::{Label, Subscripts};

/// The maximum number of operands for which [`Optimize::Auto`](super::Optimize::Auto) searches for
/// the optimal order.
pub(super) const FEW: usize = 9;

/// The maximum number of operands for which the optimal order is searched at all.
const MANY: usize = 16;

/// The number of terms among which pairs are considered at a time, so that the search time is
/// linear in the number of operands.
const WINDOW: usize = 48;

/// The search algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The optimal order.
    Exact,
    /// Repeatedly chooses the contraction that reduces memory most.
    Greedy,
    /// From left to right.
    InOrder,
}

/// One contraction.
#[derive(Clone, Debug, PartialEq)]
pub struct PathStep {
    /// Positions of the operands among the remaining terms, ascending; the result is appended.
    pub operands: Vec<usize>,
    /// The number of multiplications and additions.
    pub flops: f64,
    /// The number of elements of the result.
    pub elements: f64,
}

/// An order of contractions, with its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct ContractionPath {
    /// The contractions, in order.
    pub steps: Vec<PathStep>,
    /// The total cost.
    pub flops: f64,
    /// The cost of contracting all operands at once.
    pub naive_flops: f64,
    /// The number of elements of the largest intermediate.
    pub largest: f64,
}

impl std::fmt::Display for ContractionPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "FLOPs at once: {:.4e}", self.naive_flops)?;
        writeln!(f, "FLOPs in this order: {:.4e}", self.flops)?;
        writeln!(f, "largest intermediate: {:.4e} elements", self.largest)?;
        for step in &self.steps {
            writeln!(f, "  {:?}: {:.4e} FLOPs", step.operands, step.flops)?;
        }
        Ok(())
    }
}

/// A set of labels, as a bit mask of their positions in the list of all labels.
type Set = u128;

struct Problem {
    sizes: Vec<f64>,
    terms: Vec<Set>,
    output: Set,
}

impl Problem {
    fn new(parsed: &Subscripts) -> Problem {
        let mut labels: Vec<Label> = parsed.inputs.iter().flatten().copied().collect();
        labels.sort_unstable();
        labels.dedup();
        // Further labels share the last bit, which makes only the cost estimate less exact.
        let bit = |l: &Label| labels.binary_search(l).unwrap_or(0).min(127);
        let set = |labels: &[Label]| labels.iter().fold(0, |set: Set, l| set | 1 << bit(l));
        let mut sizes = vec![1.0; labels.len().min(128)];
        labels.iter().for_each(|l| sizes[bit(l)] *= parsed.size(*l).hint() as f64);
        let terms = parsed.inputs.iter().map(|t| set(t)).collect();
        Problem { sizes, terms, output: set(&parsed.output) }
    }

    fn elements(&self, set: Set) -> f64 {
        let (mut left, mut product) = (set, 1.0);
        while left != 0 {
            product *= self.sizes[left.trailing_zeros() as usize];
            left &= left - 1;
        }
        product
    }

    fn flops(&self, all: Set, result: Set) -> f64 {
        self.elements(all) * if all == result { 1.0 } else { 2.0 }
    }

    /// The labels of the contraction of two terms: those in the other terms or in the output.
    fn result(&self, a: Set, b: Set, others: Set) -> Set {
        (a | b) & (others | self.output)
    }
}

/// Finds an order.
pub(super) fn find(parsed: &Subscripts, strategy: Strategy) -> ContractionPath {
    let problem = Problem::new(parsed);
    let n = problem.terms.len();
    let pairs = match strategy {
        _ if n < 2 => Vec::new(),
        Strategy::Exact if n <= MANY => exact(&problem),
        Strategy::InOrder => in_order(n),
        Strategy::Exact | Strategy::Greedy => greedy(&problem),
    };
    assemble(&problem, pairs)
}

/// Contracts the first two terms, then the result with the next.
fn in_order(n: usize) -> Vec<(usize, usize)> {
    (1..n).map(|i| if i == 1 { (0, 1) } else { (i, n + i - 2) }).collect()
}

/// The minimum cost of contracting a subset, and one of the two subsets contracted last.
#[derive(Clone, Copy)]
struct Best {
    cost: f64,
    left: usize,
}

/// Finds the optimal order by dynamic programming over the subsets of operands (Pfeifer et al.
/// 2014). The operands are numbered first, then the results in order.
fn exact(problem: &Problem) -> Vec<(usize, usize)> {
    let n = problem.terms.len();
    let whole = (1usize << n) - 1;
    let union = |subset: usize| -> Set {
        (0..n).filter(|i| subset >> i & 1 == 1).fold(0, |set, i| set | problem.terms[i])
    };
    let left_of: Vec<Set> = (0..=whole)
        .map(|s| match s.count_ones() {
            1 => union(s),
            _ => union(s) & (union(whole & !s) | problem.output),
        })
        .collect();
    let mut best = vec![Best { cost: f64::INFINITY, left: 0 }; whole + 1];
    (0..n).for_each(|i| best[1 << i].cost = 0.0);
    for subset in 1..=whole {
        if subset.count_ones() < 2 {
            continue;
        }
        let mut left = (subset - 1) & subset;
        while left > subset & !left {
            let right = subset & !left;
            let own = problem.flops(left_of[left] | left_of[right], left_of[subset]);
            let cost = best[left].cost + best[right].cost + own;
            if cost < best[subset].cost || best[subset].left == 0 {
                best[subset] = Best { cost, left };
            }
            left = (left - 1) & subset;
        }
    }
    let mut pairs = Vec::with_capacity(n - 1);
    number(&best, whole, n, &mut pairs);
    pairs
}

/// Numbers the contractions of a subset, children first, and returns the number of its result. The
/// recursion depth is at most the number of operands.
fn number(best: &[Best], subset: usize, n: usize, pairs: &mut Vec<(usize, usize)>) -> usize {
    if subset.count_ones() == 1 {
        return subset.trailing_zeros() as usize;
    }
    let left = best[subset].left;
    let a = number(best, left, n, pairs);
    let b = number(best, subset & !left, n, pairs);
    pairs.push((a.min(b), a.max(b)));
    n + pairs.len() - 1
}

/// Two of the remaining terms, and the labels of their contraction.
struct Candidate {
    /// Whether the terms share no label, the growth of memory, and the cost; the smallest key is
    /// best.
    key: (bool, f64, f64),
    pair: (usize, usize),
    result: Set,
}

/// Finds a greedy order: repeatedly contracts the pair, among the first [`WINDOW`] terms, whose
/// result is smallest relative to its operands. Pairs that share a label come before others; ties
/// go to the cheaper pair.
fn greedy(problem: &Problem) -> Vec<(usize, usize)> {
    let n = problem.terms.len();
    let mut live: Vec<(usize, Set)> = problem.terms.iter().copied().enumerate().collect();
    let mut pairs = Vec::with_capacity(n - 1);
    while live.len() > 1 {
        let mut found: Option<Candidate> = None;
        // The labels of at least two and of at least three terms, to determine which labels other
        // terms still need.
        let (mut two, mut three, mut one) = (0, 0, 0);
        for &(_, t) in &live {
            (three, two, one) = (three | two & t, two | one & t, one | t);
        }
        let seen = live.len().min(WINDOW);
        for i in 0..seen {
            for j in i + 1..seen {
                let (a, b) = (live[i].1, live[j].1);
                let others = three | two & !(a & b) | one & !(a | b);
                let result = problem.result(a, b, others);
                let [ea, eb, er] = [a, b, result].map(|s| problem.elements(s));
                let key = (a & b == 0, er - ea - eb, problem.flops(a | b, result));
                if found.as_ref().is_none_or(|f| key < f.key) {
                    found = Some(Candidate { key, pair: (i, j), result });
                }
            }
        }
        let Some(Candidate { pair: (i, j), result, .. }) = found else { break };
        pairs.push((live[i].0.min(live[j].0), live[i].0.max(live[j].0)));
        live.remove(j);
        live.remove(i);
        // Insert the result where the window includes it.
        let place = if live.len() < WINDOW { live.len() } else { i };
        live.insert(place, (n + pairs.len() - 1, result));
    }
    pairs
}

/// Converts numbered pairs to positions among the remaining terms, with their costs.
fn assemble(problem: &Problem, pairs: Vec<(usize, usize)>) -> ContractionPath {
    let n = problem.terms.len();
    let all = problem.terms.iter().fold(0, |set, t| set | t);
    let naive_flops = {
        let once = problem.elements(all);
        let factors = n.saturating_sub(1).max(1) + (all != problem.output && n > 1) as usize;
        once * factors as f64
    };
    let mut live: Vec<(usize, Set)> = problem.terms.iter().copied().enumerate().collect();
    let mut steps = Vec::with_capacity(pairs.len().max(1));
    if n == 1 {
        let elements = problem.elements(problem.output);
        steps.push(PathStep { operands: vec![0], flops: naive_flops, elements });
    }
    for (number, (a, b)) in pairs.into_iter().enumerate() {
        let position = |id: usize| live.iter().position(|t| t.0 == id).unwrap_or(0);
        let mut operands = vec![position(a), position(b)];
        operands.sort_unstable();
        let second = live.remove(operands[1]).1;
        let first = live.remove(operands[0]).1;
        let others = live.iter().fold(0, |set, t| set | t.1);
        let result = problem.result(first, second, others);
        let flops = problem.flops(first | second, result);
        steps.push(PathStep { operands, flops, elements: problem.elements(result) });
        live.push((n + number, result));
    }
    let flops = steps.iter().map(|s| s.flops).sum();
    let largest = steps.iter().map(|s| s.elements).fold(0.0, f64::max);
    ContractionPath { steps, flops, naive_flops, largest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use girih_ir::Shape;

    fn path(text: &str, shapes: &[&[usize]], strategy: Strategy) -> ContractionPath {
        let shapes: Vec<Shape> = shapes.iter().map(|s| Shape::from(*s)).collect();
        find(&Subscripts::parse(text, &shapes).unwrap(), strategy)
    }

    #[test]
    fn a_chain_is_contracted_from_its_smallest_dimension() {
        let shapes: &[&[usize]] = &[&[50, 60], &[60, 70], &[70, 1]];
        for strategy in [Strategy::Exact, Strategy::Greedy] {
            let found = path("ab,bc,cd->ad", shapes, strategy);
            let order: Vec<_> = found.steps.iter().map(|s| s.operands.clone()).collect();
            assert_eq!(order, [[1, 2], [0, 1]], "{strategy:?}");
            assert_eq!(found.flops, 2.0 * (60.0 * 70.0 + 50.0 * 60.0));
        }
        let found = path("ab,bc,cd->ad", shapes, Strategy::InOrder);
        assert_eq!(found.flops, 2.0 * (50.0 * 60.0 * 70.0 + 50.0 * 70.0));
    }

    #[test]
    fn the_exact_order_is_never_dearer_than_another() {
        let shapes: &[&[usize]] = &[&[3, 7], &[7, 2, 5], &[5, 9], &[9, 2, 4], &[4, 3], &[6, 7]];
        let text = "ab,bcd,de,ecf,fa,gb->g";
        let cost = |strategy| path(text, shapes, strategy).flops;
        assert!(cost(Strategy::Exact) <= cost(Strategy::Greedy));
        assert!(cost(Strategy::Exact) <= cost(Strategy::InOrder));
        assert!(cost(Strategy::Greedy) < path(text, shapes, Strategy::Exact).naive_flops);
    }
}
