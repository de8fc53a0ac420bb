//! COLLECT and RESOLVE: which axes cut which factor.

use super::{Call, Compound};
use crate::ownership::{parts, size_of};
use girih_ir::factors::{AxisFactors, Role};
use girih_ir::{AxisRef, Dim, OpCode, P, TensorSpec};
use std::cmp::Reverse;

/// The axes that cut a factor.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    pub(super) axes: Vec<AxisRef>,
    /// The weakest priority of the dimensions that proposed them.
    pub(super) priority: u32,
}

/// Axes that a dimension proposes for a factor.
#[derive(Clone, Debug)]
struct Proposal {
    factor: usize,
    axes: Vec<AxisRef>,
    priority: u32,
    /// The operand; `None` for the wanted result.
    from: Option<usize>,
}

pub(super) struct Resolution<'a> {
    call: &'a Call<'a>,
    sizes: &'a [Dim],
    specs: &'a [P],
    wanted: Option<&'a P>,
    compound: Compound,
    cuts: Vec<Cut>,
}

/// True if a processor's places along the two cannot be chosen freely.
pub(super) fn overlap(a: &AxisRef, b: &AxisRef) -> bool {
    let range = |axis: &AxisRef| match axis.sub() {
        None => (1, usize::MAX),
        Some(sub) => (sub.pre_size, sub.pre_size.saturating_mul(sub.size)),
    };
    let ((low, high), (other_low, other_high)) = (range(a), range(b));
    a.name() == b.name() && low < other_high && other_low < high
}

fn overlaps(axis: &AxisRef, others: &[AxisRef]) -> bool {
    others.iter().any(|other| overlap(axis, other))
}

fn common_prefix(a: &[AxisRef], b: &[AxisRef]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The size at the traced sizes, which decides only what is cheaper.
fn bytes(tensor: &TensorSpec) -> usize {
    let sizes = tensor.shape.hints().iter();
    sizes.fold(tensor.dtype.size(), |all, &size| all.saturating_mul(size))
}

impl<'a> Resolution<'a> {
    pub(super) fn new(
        call: &'a Call<'a>,
        sizes: &'a [Dim],
        specs: &'a [P],
        wanted: Option<&'a P>,
        compound: Compound,
    ) -> Resolution<'a> {
        let cuts = vec![Cut::default(); sizes.len()];
        Resolution { call, sizes, specs, wanted, compound, cuts }
    }

    /// The axes of each factor.
    pub(super) fn resolve(mut self) -> Vec<Cut> {
        let proposals = self.ranked(self.collect());
        // A minor factor of a dimension can be cut once the major ones are cut into single elements,
        // so a proposal may be possible only after a weaker one: begin anew after each.
        while proposals.iter().any(|proposal| self.take(proposal)) {}
        self.cuts
    }

    /// COLLECT.
    fn collect(&self) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        let operands = self.specs.iter().zip(self.call.factors.operands()).enumerate();
        let operands = operands.map(|(at, (spec, dims))| (Some(at), spec, &dims[..]));
        let wanted = self.wanted.map(|spec| (None, spec, self.call.factors.result()));
        for (from, spec, dims) in operands.chain(wanted) {
            for (dim, factors) in dims.iter().enumerate() {
                let priority = spec.dims.get(dim).map_or(0, |dim| dim.priority);
                for (factor, axes) in self.assigned(factors, spec.axes_of(dim)) {
                    if from.is_none() || !self.is_closed(factor) {
                        proposals.push(Proposal { factor, axes, priority, from });
                    }
                }
            }
        }
        proposals
    }

    /// The axes of a dimension, given to its factors: the major factor takes axes while their number
    /// divides its size, and the next one the axes behind if the factor is then cut into single
    /// elements. A dimension of one factor may be uneven.
    fn assigned(&self, factors: &AxisFactors, axes: &[AxisRef]) -> Vec<(usize, Vec<AxisRef>)> {
        let mut assigned = Vec::new();
        let mut rest = axes;
        for &factor in factors {
            if self.call.factors.factors()[factor].role == Role::Whole {
                break;
            }
            let fits = |taken: &usize| {
                factors.len() == 1 || self.divides(parts(self.call.mesh, &rest[..*taken]), factor)
            };
            let taken = (0..=rest.len()).take_while(fits).last().unwrap_or(0);
            let (own, behind) = rest.split_at(taken);
            let allowed = own.iter().take_while(|axis| !self.is_replicated(factor, axis));
            let allowed: Vec<AxisRef> = allowed.cloned().collect();
            let all = allowed.len() == own.len();
            if !allowed.is_empty() {
                assigned.push((factor, allowed));
            }
            if !all || !self.sizes[factor].is(parts(self.call.mesh, own)) {
                break;
            }
            rest = behind;
        }
        assigned
    }

    fn divides(&self, parts: usize, factor: usize) -> bool {
        // Compares expressions, so that a symbolic size is not read.
        let size = self.sizes[factor];
        let divides = size.floor_div(parts) * parts == size;
        parts == 1 || divides || (self.compound == Compound::Any && parts <= size.hint())
    }

    /// True if a tensor with the factor lists the axis as replicated.
    fn is_replicated(&self, factor: usize, axis: &AxisRef) -> bool {
        let has = |dims: &[AxisFactors]| dims.iter().flatten().any(|&f| f == factor);
        let lists = |spec: &P| spec.replicated.iter().any(|listed| overlap(axis, listed));
        let factors = self.call.factors;
        let mut operands = self.specs.iter().zip(factors.operands());
        operands.any(|(spec, dims)| lists(spec) && has(dims))
            || self.wanted.is_some_and(|spec| lists(spec) && has(factors.result()))
    }

    /// True if the wanted result allows the factor no other axes than its own.
    fn is_closed(&self, factor: usize) -> bool {
        let Some(wanted) = self.wanted else { return false };
        let mut dims = self.call.factors.result().iter().enumerate();
        dims.any(|(dim, factors)| {
            factors.contains(&factor) && !wanted.dims.get(dim).is_some_and(|dim| dim.is_open)
        })
    }

    /// The proposals, the strongest first.
    fn ranked(&self, proposals: Vec<Proposal>) -> Vec<Proposal> {
        let agree = |a: &Proposal, b: &Proposal| match a.factor == b.factor {
            true => (&a.axes, a.priority) == (&b.axes, b.priority),
            false => !a.axes.iter().any(|axis| overlaps(axis, &b.axes)),
        };
        let mut pairs = proposals.iter().enumerate();
        if pairs.all(|(at, a)| proposals[..at].iter().all(|b| agree(a, b))) && !self.is_mixed() {
            // Without a conflict, the order does not matter.
            return proposals;
        }
        let key = |proposal: &Proposal| {
            let prefix = |other: &Proposal| common_prefix(&proposal.axes, &other.axes);
            let others = proposals.iter().filter(|o| o.factor == proposal.factor);
            let prefixes: usize = others.filter(|o| o.axes != proposal.axes).map(prefix).sum();
            let place = |axis: &AxisRef| (self.call.mesh.axis(axis.name()), axis.sub());
            let places: Vec<_> = proposal.axes.iter().map(place).collect();
            let size = self.sizes[proposal.factor].hint();
            (
                (proposal.from.is_some(), proposal.priority),
                Reverse(parts(self.call.mesh, &proposal.axes)),
                Reverse(prefixes),
                self.moved(proposal, &proposals),
                self.dimension(proposal.factor),
                places,
                (Reverse(size), proposal.factor),
            )
        };
        let mut keyed: Vec<_> = proposals.iter().map(|p| (key(p), p.clone())).collect();
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        keyed.into_iter().map(|(_, proposal)| proposal).collect()
    }

    /// True if factors are reduced by several ops, of which only one can be cut.
    fn is_mixed(&self) -> bool {
        let mut ops = self.call.factors.factors().iter().filter_map(|f| match f.role {
            Role::Reduced(op) => Some(op),
            _ => None,
        });
        let first = ops.next();
        ops.any(|op| Some(op) != first)
    }

    /// An estimate of the bytes that move if a proposal is taken: those of the operands with other
    /// proposals that it excludes, and of an all-reduce of the result if the factor is reduced.
    fn moved(&self, proposal: &Proposal, all: &[Proposal]) -> usize {
        let excludes = |other: &Proposal| match other.factor == proposal.factor {
            true => {
                let common = common_prefix(&proposal.axes, &other.axes);
                common < proposal.axes.len().min(other.axes.len())
            }
            false => other.axes.iter().any(|axis| overlaps(axis, &proposal.axes)),
        };
        let operands = self.call.operands.iter().enumerate();
        let moved =
            operands.filter(|(at, _)| all.iter().any(|o| o.from == Some(*at) && excludes(o)));
        let moved = moved.fold(0usize, |sum, (_, o)| sum.saturating_add(bytes(o.tensor)));
        match self.call.factors.factors()[proposal.factor].role {
            Role::Reduced(_) => moved.saturating_add(bytes(self.call.result).saturating_mul(2)),
            _ => moved,
        }
    }

    /// The first dimension that has the factor: of the result, then of an operand.
    fn dimension(&self, factor: usize) -> (bool, usize) {
        let of = |dims: &[AxisFactors]| dims.iter().position(|dim| dim.contains(&factor));
        match of(self.call.factors.result()) {
            Some(dim) => (false, dim),
            None => {
                let operands = self.call.factors.operands().iter();
                (true, operands.filter_map(|dims| of(dims)).min().unwrap_or(usize::MAX))
            }
        }
    }

    /// RESOLVE: cuts the proposal's factor by its axes, as many as are possible. True if that adds
    /// axes.
    fn take(&mut self, proposal: &Proposal) -> bool {
        let factor = proposal.factor;
        let before = self.cuts[factor].axes.len();
        if !proposal.axes.starts_with(&self.cuts[factor].axes) {
            return false;
        }
        for axis in &proposal.axes[before..] {
            if !self.is_free(axis) || !self.fits(factor, axis) {
                break;
            }
            self.cuts[factor].axes.push(axis.clone());
        }
        let cut = &mut self.cuts[factor];
        let more = cut.axes.len() > before;
        if more {
            cut.priority = cut.priority.max(proposal.priority);
        }
        more
    }

    fn is_free(&self, axis: &AxisRef) -> bool {
        self.cuts.iter().all(|cut| !overlaps(axis, &cut.axes))
    }

    /// Whether each tensor can express that a factor is cut by another axis, and the result's partial
    /// values are of one op.
    fn fits(&self, factor: usize, axis: &AxisRef) -> bool {
        let factors = self.call.factors;
        let op = |f: usize| match factors.factors()[f].role {
            Role::Reduced(op) => Some(op),
            _ => None,
        };
        let differs = |other: Option<OpCode>| other.is_some_and(|other| op(factor) != Some(other));
        if op(factor).is_some()
            && (0..self.cuts.len()).any(|f| !self.cuts[f].axes.is_empty() && differs(op(f)))
        {
            return false;
        }
        let now = |f: usize| parts(self.call.mesh, &self.cuts[f].axes);
        let then = now(factor).saturating_mul(size_of(self.call.mesh, axis));
        let tensors = factors.operands().iter().map(|dims| &dims[..]).chain([factors.result()]);
        let mut dims = tensors.flatten().filter(|dim| dim.len() > 1 && dim.contains(&factor));
        dims.all(|dim| {
            let mut majors = dim.iter().take_while(|&&f| f != factor);
            majors.all(|&f| self.sizes[f].is(now(f))) && self.divides(then, factor)
        })
    }
}
