//! The factors of ops: how an [`OpDef`] declares them ([`Factoring`]), and the rules that compute
//! them. No rule reads the value of a symbolic size. Rules compare sizes as expressions, and if the
//! comparison is undecided the axis is whole.

mod reshape;

use super::conv::Conv;
use super::*;
use crate::factors::{AxisFactors, Factor, Factors, Role};
use crate::{Dim, Shape};

/// A factor rule: computes the factors of a call that the shape rule has accepted, given the
/// result's spec.
pub type FactorRule = fn(OpCall<'_>, &TensorSpec) -> Factors;

/// How an op's definition declares its factors.
#[derive(Clone, Copy)]
pub enum Factoring {
    /// By the rule of the op's class.
    ByClass,
    /// By a rule.
    Rule(FactorRule),
    /// The op has no factors, for this reason.
    Opaque(&'static str),
}

impl OpDef {
    /// The op's factor rule.
    ///
    /// Errors: why the op has no factors.
    pub fn factor_rule(&self) -> std::result::Result<FactorRule, &'static str> {
        Ok(match (self.factors, self.class) {
            (Factoring::Rule(rule), _) => rule,
            (Factoring::Opaque(why), _) => return Err(why),
            (_, Class::Leaf) => leaf,
            (_, Class::Elementwise) => elementwise,
            (_, Class::Composite) if self.category == Some(Category::Elementwise) => elementwise,
            (_, Class::Contraction) => matmul,
            (_, Class::Reshape) => reshape::reshape,
            (_, Class::Library) => library,
            (_, Class::Control) => return Err("its regions say what it computes"),
            _ => return Err("its definition gives no rule"),
        })
    }
}

impl Op {
    /// The factors of a call with these operand specs and the result spec that [`Op::infer`]
    /// returns.
    ///
    /// Errors: why the op has no factors, such as that it runs regions.
    pub fn factors(
        &self,
        inputs: &[&TensorSpec],
        result: &TensorSpec,
    ) -> std::result::Result<Factors, &'static str> {
        Ok((self.def().factor_rule()?)(OpCall { op: self, inputs }, result))
    }
}

/// The axes of one tensor.
type Axes = Vec<AxisFactors>;

/// Factors under construction.
#[derive(Default)]
struct Draft(Vec<Factor>);

impl Draft {
    fn add(&mut self, role: Role) -> AxisFactors {
        self.sized(role, None)
    }

    fn sized(&mut self, role: Role, size: Option<usize>) -> AxisFactors {
        self.0.push(Factor { role, size });
        AxisFactors::from_slice(&[self.0.len() - 1])
    }

    /// `count` axes of one new factor each.
    fn axes(&mut self, count: usize, role: Role) -> Axes {
        (0..count).map(|_| self.add(role)).collect()
    }

    /// One new factor for each axis; the axes in `whole` have the role [`Role::Whole`].
    fn whole_in(&mut self, rank: usize, whole: AxisSet) -> Axes {
        let role = |axis| if whole.contains(axis) { Role::Whole } else { Role::Pointwise };
        (0..rank).map(|axis| self.add(role(axis))).collect()
    }

    fn finish(self, operands: Vec<Axes>, result: Axes) -> Factors {
        Factors::new(self.0, operands, result).expect("rules make each factor once and use it")
    }
}

/// The axes of an operand that broadcasts to a result with axes `axes`.
fn aligned(from: &Shape, to: &Shape, axes: &[AxisFactors]) -> Axes {
    let lead = to.rank() - from.rank();
    let axis = |(i, size): (usize, Dim)| {
        // If two sizes differ, one of them is 1; the shape rule has added the guard.
        let stretched = size != to.dim(lead + i) && size.hint() == 1;
        if stretched { AxisFactors::new() } else { axes[lead + i].clone() }
    };
    from.dims().enumerate().map(axis).collect()
}

/// A leaf: every axis is pointwise, since a part of the value does not depend on the rest.
fn leaf(_: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.axes(out.shape.rank(), Role::Pointwise);
    d.finish(vec![], axes)
}

/// An iota is whole along its axis, since each element is its index.
pub(super) fn iota(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.whole_in(out.shape.rank(), axes_of(call.op));
    d.finish(vec![], axes)
}

/// Random values depend on their index in the whole tensor, so every axis is whole.
pub(super) fn random(_: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.axes(out.shape.rank(), Role::Whole);
    d.finish(vec![], axes)
}

/// Operands broadcast to the result.
pub(super) fn elementwise(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.axes(out.shape.rank(), Role::Pointwise);
    let operands = call.inputs.iter().map(|s| aligned(&s.shape, &out.shape, &axes)).collect();
    d.finish(operands, axes)
}

fn matmul(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.axes(out.shape.rank(), Role::Pointwise);
    let (batch, last) = axes.split_at(out.shape.rank() - 2);
    let contracted = d.add(Role::Reduced(OpCode::Add));
    let operand = |s: &Shape, matrix: [&AxisFactors; 2]| {
        let mut axes = aligned(&s.part(..s.rank() - 2), &out.shape.part(..batch.len()), batch);
        axes.extend(matrix.into_iter().cloned());
        axes
    };
    let a = operand(&call.inputs[0].shape, [&last[0], &contracted]);
    let b = operand(&call.inputs[1].shape, [&contracted, &last[1]]);
    d.finish(vec![a, b], axes)
}

/// The axes in the attributes.
fn axes_of(op: &Op) -> AxisSet {
    match op.attrs {
        Attrs::Axis(axis) => AxisSet::one(axis as usize),
        Attrs::Axes { axes, .. } | Attrs::Moments { axes, .. } => axes,
        Attrs::Standardize { axes, .. } => axes,
        _ => AxisSet::default(),
    }
}

fn reduced(call: OpCall<'_>, out: &TensorSpec, role: Role) -> Factors {
    let (mut d, rank, axes) = (Draft::default(), call.inputs[0].shape.rank(), axes_of(call.op));
    let keepdims = out.shape.rank() == rank;
    let mut result = Axes::new();
    let mut operand = Axes::new();
    for axis in 0..rank {
        let factor = d.add(if axes.contains(axis) { role } else { Role::Pointwise });
        match axes.contains(axis) {
            false => result.push(factor.clone()),
            true if keepdims => result.push(AxisFactors::new()),
            true => {}
        }
        operand.push(factor);
    }
    d.finish(vec![operand], result)
}

/// A reduction whose partial results a binary op combines.
macro_rules! reduced_by {
    ($($(#[$doc:meta])* $name:ident $code:ident;)*) => {$(
        pub(super) fn $name(call: OpCall<'_>, out: &TensorSpec) -> Factors {
            reduced(call, out, Role::Reduced(OpCode::$code))
        }
    )*};
}

reduced_by! {
    sums Add;
    products Mul;
    maxima Maximum;
    minima Minimum;
    conjunctions And;
    disjunctions Or;
    log_sums Logaddexp;
}

/// A reduction without partial results, such as a mean: means of parts cannot be combined without
/// their element counts.
pub(super) fn at_once(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    reduced(call, out, Role::Whole)
}

/// One operand of the result's shape; the axes in the attributes are whole.
pub(super) fn along(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let axes = d.whole_in(out.shape.rank(), axes_of(call.op));
    d.finish(vec![axes.clone()], axes)
}

/// A normalisation over the last axes; scale and shift have the same axes.
pub(super) fn norm(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let Attrs::Norm { ndims, .. } = call.op.attrs else { unreachable!("norms count axes") };
    let (mut d, rank) = (Draft::default(), out.shape.rank());
    let lead = rank - ndims as usize;
    let axes = d.whole_in(rank, (lead..rank).collect());
    let affine = (1..call.inputs.len()).map(|_| axes[lead..].to_vec());
    let operands = std::iter::once(axes.clone()).chain(affine).collect();
    d.finish(operands, axes)
}

/// A label may select any class, so the last axis is whole.
pub(super) fn cross_entropy(_: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let rows = d.axes(out.shape.rank(), Role::Pointwise);
    let classes = d.add(Role::Whole);
    let logits = rows.iter().cloned().chain([classes]).collect();
    d.finish(vec![logits, rows.clone()], rows)
}

pub(super) fn permute(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let Attrs::Perm(perm) = &call.op.attrs else { unreachable!("permute carries a permutation") };
    let mut d = Draft::default();
    let operand = d.axes(out.shape.rank(), Role::Pointwise);
    let result = perm.iter().map(|&axis| operand[axis as usize].clone()).collect();
    d.finish(vec![operand], result)
}

/// Axes that the op leaves unchanged are pointwise. The other axes are whole in operand and result,
/// where their sizes may differ.
fn kept(call: OpCall<'_>, out: &TensorSpec, keeps: impl Fn(usize) -> bool) -> Factors {
    let (mut d, mut operand, mut result) = (Draft::default(), Axes::new(), Axes::new());
    for axis in 0..out.shape.rank() {
        let same = call.inputs[0].shape.dim(axis) == out.shape.dim(axis) && keeps(axis);
        let from = d.add(if same { Role::Pointwise } else { Role::Whole });
        result.push(if same { from.clone() } else { d.add(Role::Whole) });
        operand.push(from);
    }
    d.finish(vec![operand], result)
}

/// One part of a split axis: the axis is whole in operand and result, and the other axes are
/// pointwise.
pub(super) fn split(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    kept(call, out, |_| true)
}

fn bounds(op: &Op) -> &[SliceDim] {
    match &op.attrs {
        Attrs::Slice(dims) => dims,
        Attrs::SliceOf(of) => &of.0,
        _ => unreachable!("slices carry bounds"),
    }
}

pub(super) fn slice(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let dims = bounds(call.op);
    kept(call, out, |axis| dims[axis].start == 0 && dims[axis].step == 1)
}

pub(super) fn pad(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let Attrs::Pad(pad) = &call.op.attrs else { unreachable!("pad carries widths") };
    kept(call, out, |axis| pad.0[axis] == PadDim::default())
}

pub(super) fn update_slice(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let (dims, updates) = (bounds(call.op), &call.inputs[1].shape);
    let mut d = Draft::default();
    let whole = |axis: &usize| {
        let d = dims[*axis];
        d.start != 0 || d.step != 1 || updates.dim(*axis) != out.shape.dim(*axis)
    };
    let rank = out.shape.rank();
    let whole: AxisSet = (0..rank).filter(whole).collect();
    let axes = d.whole_in(rank, whole);
    let part = (0..rank).map(|axis| match whole.contains(axis) {
        true => d.add(Role::Whole),
        false => axes[axis].clone(),
    });
    let part = part.collect();
    d.finish(vec![axes.clone(), part], axes)
}

pub(super) fn concat(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let (along, mut d) = (axes_of(call.op), Draft::default());
    let axes = d.whole_in(out.shape.rank(), along);
    let mut operand = || {
        let own = |(axis, factor): (usize, &AxisFactors)| match along.contains(axis) {
            true => d.add(Role::Whole),
            false => factor.clone(),
        };
        axes.iter().enumerate().map(own).collect()
    };
    let operands = call.inputs.iter().map(|_| operand()).collect();
    d.finish(operands, axes)
}

/// The axes before the windows are pointwise. The windowed axes are whole, since windows overlap.
pub(super) fn windows(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let windowed = match &call.op.attrs {
        Attrs::Windows(dims) => dims.len(),
        Attrs::Pool(pool) => pool.dims.len(),
        _ => unreachable!("windows and poolings carry their axes"),
    };
    let rank = call.inputs[0].shape.rank();
    let folded = rank > out.shape.rank();
    let mut d = Draft::default();
    let lead = d.axes(rank - windowed * (1 + folded as usize), Role::Pointwise);
    let mut with_whole = |rank: usize| -> Axes {
        let rest = d.axes(rank - lead.len(), Role::Whole);
        lead.iter().cloned().chain(rest).collect()
    };
    let (operand, result) = (with_whole(rank), with_whole(out.shape.rank()));
    d.finish(vec![operand], result)
}

/// The axes of a gather or scatter: before the indexed axis, of the indices, and after it.
struct Indexed {
    before: Axes,
    indices: Axes,
    behind: Axes,
}

impl Indexed {
    fn with(&self, middle: &[AxisFactors]) -> Axes {
        [&self.before[..], middle, &self.behind[..]].concat()
    }

    /// The axes with the indices' axes in place of the indexed axis.
    fn lanes(&self) -> Axes {
        self.with(&self.indices)
    }
}

fn axis_of(op: &Op) -> usize {
    match op.attrs {
        Attrs::Axis(axis) | Attrs::Scatter { axis, .. } | Attrs::ScatterInto { axis, .. } => {
            axis as usize
        }
        _ => unreachable!("ops that index carry an axis"),
    }
}

/// Factors of an op that indexes one axis of a tensor of rank `rank`.
fn indexed(d: &mut Draft, op: &Op, rank: usize, indices: usize, role: Role) -> Indexed {
    let axis = axis_of(op);
    Indexed {
        before: d.axes(axis, Role::Pointwise),
        indices: d.axes(indices, role),
        behind: d.axes(rank - axis - 1, Role::Pointwise),
    }
}

/// Any index may read any element of the axis, so the indexed axis is whole.
pub(super) fn take(call: OpCall<'_>, _: &TensorSpec) -> Factors {
    let [x, indices] = [0, 1].map(|i| call.inputs[i].shape.rank());
    let mut d = Draft::default();
    let parts = indexed(&mut d, call.op, x, indices, Role::Pointwise);
    let axis = d.add(Role::Whole);
    let (operand, result) = (parts.with(&[axis]), parts.lanes());
    d.finish(vec![operand, parts.indices], result)
}

pub(super) fn take_along_axis(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let parts = indexed(&mut d, call.op, out.shape.rank(), 1, Role::Pointwise);
    let axis = d.add(Role::Whole);
    d.finish(vec![parts.with(&[axis]), parts.lanes()], parts.lanes())
}

/// A part of the updates is added to zeros, and the partial sums are added.
pub(super) fn scatter_add(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let (mut d, indices) = (Draft::default(), call.inputs[0].shape.rank());
    let add = Role::Reduced(OpCode::Add);
    let parts = indexed(&mut d, call.op, out.shape.rank(), indices, add);
    let axis = d.add(Role::Whole);
    let (updates, result) = (parts.lanes(), parts.with(&[axis]));
    d.finish(vec![parts.indices, updates], result)
}

pub(super) fn scatter_add_along_axis(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let add = Role::Reduced(OpCode::Add);
    let parts = indexed(&mut d, call.op, out.shape.rank(), 1, add);
    let axis = d.add(Role::Whole);
    d.finish(vec![parts.lanes(), parts.lanes()], parts.with(&[axis]))
}

/// The role of updates into a tensor. Every partial result includes the tensor's elements, so
/// combining partial results counts these elements twice. This is harmless only for minimum and
/// maximum.
fn update_role(op: &Op) -> Role {
    match op.attrs {
        Attrs::ScatterInto { mode: ScatterMode::Min, .. } => Role::Reduced(OpCode::Minimum),
        Attrs::ScatterInto { mode: ScatterMode::Max, .. } => Role::Reduced(OpCode::Maximum),
        _ => Role::Whole,
    }
}

pub(super) fn scatter(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let (mut d, indices) = (Draft::default(), call.inputs[1].shape.rank());
    let parts = indexed(&mut d, call.op, out.shape.rank(), indices, update_role(call.op));
    let axis = d.add(Role::Whole);
    let (x, updates) = (parts.with(&[axis]), parts.lanes());
    d.finish(vec![x.clone(), parts.indices, updates], x)
}

pub(super) fn scatter_along_axis(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let parts = indexed(&mut d, call.op, out.shape.rank(), 1, update_role(call.op));
    let axis = d.add(Role::Whole);
    let x = parts.with(&[axis]);
    d.finish(vec![x.clone(), parts.lanes(), parts.lanes()], x)
}

/// Leading axes are batch axes. Rows are whole: operand and result rows of equal length share one
/// factor. Each axis of a matrix is whole, with a factor of its own.
pub(super) fn library(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let item = call.op.def().item_rank;
    let mut d = Draft::default();
    let lead = d.axes(
        call.inputs[0].shape.rank() - item.operand(call.inputs[0].shape.rank()),
        Role::Pointwise,
    );
    if item == ItemRank::Row {
        let row = d.add(Role::Whole);
        let axes: Axes = lead.into_iter().chain([row]).collect();
        return d.finish(vec![axes.clone(); call.inputs.len()], axes);
    }
    let mut with_items = |rank: usize| -> Axes {
        let items = d.axes(rank - lead.len(), Role::Whole);
        lead.iter().cloned().chain(items).collect()
    };
    let operands = call.inputs.iter().map(|s| with_items(s.shape.rank())).collect();
    let result = with_items(out.shape.rank());
    d.finish(operands, result)
}

/// Rows of different lengths. All rows are whole except the result's row if `searched`: each
/// element of the last operand is searched for independently.
fn of_rows(call: OpCall<'_>, out: &TensorSpec, searched: bool) -> Factors {
    let mut d = Draft::default();
    let lead = d.axes(out.shape.rank() - 1, Role::Pointwise);
    let mut row = |role| -> Axes { lead.iter().cloned().chain([d.add(role)]).collect() };
    let first = row(Role::Whole);
    let result = row(if searched { Role::Pointwise } else { Role::Whole });
    let operands = match call.inputs.len() {
        1 => vec![first],
        _ => vec![first, result.clone()],
    };
    d.finish(operands, result)
}

pub(super) fn resized_rows(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    of_rows(call, out, false)
}

pub(super) fn searched_rows(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    of_rows(call, out, true)
}

/// Each column of the right-hand side is solved independently.
pub(super) fn solve(_: OpCall<'_>, out: &TensorSpec) -> Factors {
    let mut d = Draft::default();
    let lead = d.axes(out.shape.rank() - 2, Role::Pointwise);
    let columns = d.add(Role::Pointwise);
    let mut matrix = |last: Option<&AxisFactors>| -> Axes {
        let rows = d.add(Role::Whole);
        let last = last.cloned().unwrap_or_else(|| d.add(Role::Whole));
        lead.iter().cloned().chain([rows, last]).collect()
    };
    let (a, b, x) = (matrix(None), matrix(Some(&columns)), matrix(Some(&columns)));
    d.finish(vec![a, b], x)
}

/// The spatial axes of operand, kernel and result. All are whole, except where the kernel has size
/// one with stride one and no padding.
fn spatial(d: &mut Draft, conv: &Conv, kernel: &Shape) -> [Axes; 3] {
    let mut axes: [Axes; 3] = Default::default();
    for (i, dim) in conv.dims.iter().enumerate() {
        let padded = dim.low + dim.high + dim.extra > 0;
        let pointwise = kernel.dim(2 + i).is(1) && dim.stride == 1 && !padded;
        let [x, w, y] = match pointwise {
            true => {
                let axis = d.add(Role::Pointwise);
                [axis.clone(), AxisFactors::new(), axis]
            }
            false => [Role::Whole; 3].map(|role| d.add(role)),
        };
        axes[0].push(x);
        axes[1].push(w);
        axes[2].push(y);
    }
    axes
}

/// Images, groups and output channels are pointwise. Input channels are reduced by addition. With a
/// bias they are whole, since every partial result would include the bias.
fn convolution(call: OpCall<'_>, transposed: bool) -> Factors {
    let Attrs::Conv(conv) = &call.op.attrs else { unreachable!("the shape rule checks it") };
    let bias = call.inputs.len() > 2;
    let mut d = Draft::default();
    let images = d.add(Role::Pointwise);
    let groups = (conv.groups > 1).then(|| d.sized(Role::Pointwise, Some(conv.groups)));
    let channels = d.add(if bias { Role::Whole } else { Role::Reduced(OpCode::Add) });
    let out = d.add(Role::Pointwise);
    let [x, w, y] = spatial(&mut d, conv, &call.inputs[1].shape);
    let grouped = |axis: &AxisFactors| -> AxisFactors {
        groups.iter().flatten().chain(axis).copied().collect()
    };
    let kernel = match transposed {
        false => [grouped(&out), channels.clone()],
        true => [grouped(&channels), out.clone()],
    };
    let x = [images.clone(), grouped(&channels)].into_iter().chain(x).collect();
    let w = kernel.into_iter().chain(w).collect();
    let y = [images, grouped(&out)].into_iter().chain(y).collect();
    let bias = bias.then(|| vec![grouped(&out)]);
    d.finish([x, w].into_iter().chain(bias).collect(), y)
}

pub(super) fn conv(call: OpCall<'_>, _: &TensorSpec) -> Factors {
    convolution(call, false)
}

pub(super) fn conv_transpose(call: OpCall<'_>, _: &TensorSpec) -> Factors {
    convolution(call, true)
}

/// For grouped-query attention, the key heads are a factor of the query heads. Keys are whole
/// because of the softmax, and features because they are contracted before it. Queries are whole
/// under a causal mask, which depends on their positions.
pub(super) fn attention(call: OpCall<'_>, out: &TensorSpec) -> Factors {
    let Attrs::Attention { causal, .. } = call.op.attrs else { unreachable!("it is attention") };
    let shapes = |i: usize| &call.inputs[i].shape;
    let lead = out.shape.rank() - 2;
    let mut d = Draft::default();
    let mut batch = d.axes(lead, Role::Pointwise);
    let queries = d.add(if causal { Role::Whole } else { Role::Pointwise });
    let [keys, features] = [Role::Whole; 2].map(|role| d.add(role));
    let values = d.add(Role::Pointwise);
    // The result has the heads of the queries; consecutive query heads share one key head.
    let heads = |i: usize| shapes(i).rank().checked_sub(3).map(|axis| shapes(i).dim(axis));
    let of_keys = [heads(1), heads(2)].into_iter().flatten().find(|size| !size.is(1));
    let of_queries = heads(0).filter(|size| !size.is(1));
    let mut shared = None;
    if let (Some(q), Some(k)) = (of_queries, of_keys)
        && q != k
        && q.hint() != k.hint()
    {
        shared = Some(batch[lead - 1].clone());
        let run = d.add(Role::Pointwise);
        batch[lead - 1].extend_from_slice(&run);
    }
    let operand = |i: usize, last: [&AxisFactors; 2]| -> Axes {
        let shape = shapes(i);
        let own = shape.part(..shape.rank() - 2);
        let mut axes = aligned(&own, &out.shape.part(..lead), &batch);
        if let (Some(shared), 1 | 2, Some(head)) = (&shared, i, axes.last_mut())
            && !head.is_empty()
        {
            *head = shared.clone();
        }
        axes.extend(last.into_iter().cloned());
        axes
    };
    let mut operands = vec![
        operand(0, [&queries, &features]),
        operand(1, [&keys, &features]),
        operand(2, [&keys, &values]),
    ];
    if let Some(mask) = call.inputs.get(3) {
        let mut scores = out.shape.part(..lead + 1);
        scores.push(shapes(1).dim(shapes(1).rank() - 2));
        let axes: Axes = batch.iter().cloned().chain([queries.clone(), keys.clone()]).collect();
        operands.push(aligned(&mask.shape, &scores, &axes));
    }
    let result = batch.iter().cloned().chain([queries, values]).collect();
    d.finish(operands, result)
}
