//! Control flow: conditionals, loops and calls. The code that such an op runs is a *region*: a
//! closed graph whose inputs are the op's operands in order, and which refers to nothing outside. A
//! node is one of the op's results. The nodes of the other results have the same operands and the
//! same [`Control`].

mod rules;

use super::*;
use crate::Dim;
use rustc_hash::FxBuildHasher;
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

pub use rules::{CallRules, Recorded, Rules, RulesLater, RulesLevel};

/// Maximum nesting depth of regions.
pub const MAX_DEPTH: usize = 16;

/// Regions, with facts about them that are computed once: nesting depth, effects, and a hash.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "Vec<Graph>")]
pub struct Regions {
    /// The hash of the graphs, which is computed once for all results of an op. Comparison compares
    /// the hash first.
    hash: u64,
    graphs: Vec<Graph>,
    depth: usize,
    has_effect: bool,
    can_fail: bool,
}

impl Regions {
    /// Regions from graphs.
    pub fn new(graphs: Vec<Graph>) -> Regions {
        let inner = |(_, node): (NodeId, &Node)| match &node.op.attrs {
            Attrs::Control { control, .. } => control.regions.depth,
            _ => 0,
        };
        let depth = graphs.iter().flat_map(|g| g.nodes().map(inner)).max();
        let any = |fact: fn(&Op) -> bool| {
            graphs.iter().any(|graph| graph.nodes().any(|(_, node)| fact(&node.op)))
        };
        Regions {
            hash: FxBuildHasher.hash_one(&graphs),
            depth: 1 + depth.unwrap_or(0),
            has_effect: any(Op::has_effect),
            can_fail: any(Op::can_fail),
            graphs,
        }
    }

    /// True if an op in the regions has a side effect.
    pub fn have_effect(&self) -> bool {
        self.has_effect
    }

    /// True if an op in the regions may fail at run time.
    pub fn can_fail(&self) -> bool {
        self.can_fail
    }

    /// Nesting depth: one more than the depth of the regions' own regions.
    pub fn depth(&self) -> usize {
        self.depth
    }
}

impl Default for Regions {
    fn default() -> Regions {
        Regions::new(Vec::new())
    }
}

impl From<Vec<Graph>> for Regions {
    fn from(graphs: Vec<Graph>) -> Regions {
        Regions::new(graphs)
    }
}

impl Hash for Regions {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// Serialises only the graphs, since the hash and the depth follow from them.
impl serde::Serialize for Regions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.graphs.serialize(serializer)
    }
}

impl Deref for Regions {
    type Target = [Graph];

    fn deref(&self) -> &[Graph] {
        &self.graphs
    }
}

/// The control ops as an enum. A match on it fails to compile when a control op is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlOp {
    /// [`COND`].
    Cond,
    /// [`WHILE_LOOP`].
    WhileLoop,
    /// [`SCAN`].
    Scan,
    /// [`CALL`].
    Call,
}

impl OpCode {
    /// The control op, if the op is one.
    pub fn control(self) -> Option<ControlOp> {
        match self {
            OpCode::Cond => Some(ControlOp::Cond),
            OpCode::WhileLoop => Some(ControlOp::WhileLoop),
            OpCode::Scan => Some(ControlOp::Scan),
            OpCode::Call => Some(ControlOp::Call),
            code => {
                debug_assert_ne!(code.def().class, Class::Control, "{}", code.def().name);
                None
            }
        }
    }
}

/// How a call is compiled and differentiated.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[repr(u8)]
pub enum CallMode {
    /// Optimisation replaces the call by its body.
    #[default]
    Inline,
    /// As `Inline`, but reverse mode recomputes the body in an isolated call instead of saving the
    /// body's values (rematerialisation, also called checkpointing).
    Checkpoint,
    /// The call is never inlined, so CSE merges nothing in its body with nodes outside.
    Isolated,
    /// As `Inline`. The body is the forward part of a VJP rule, and the region before it is the
    /// backward part. The last results ([`Control::saves`]) are the residuals. Reverse mode creates
    /// such calls while it walks a graph.
    Forward,
}

impl CallMode {
    /// Every mode.
    pub const ALL: [CallMode; 4] =
        [CallMode::Inline, CallMode::Checkpoint, CallMode::Isolated, CallMode::Forward];

    /// Name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            CallMode::Inline => "inline",
            CallMode::Checkpoint => "checkpoint",
            CallMode::Isolated => "isolated",
            CallMode::Forward => "forward",
        }
    }
}

/// The regions of a control op, and its loop or call parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Control {
    /// For a `cond`, the branches. For a `while_loop`, condition and body. For a `scan`, the body.
    /// For a `call`, its derivative rules, if any, and its body.
    pub regions: Regions,
    /// For a loop, the number of leading operands that each iteration replaces by the body's
    /// leading results. For a call, the number of leading operands that its rules differentiate
    /// with respect to.
    pub carries: u32,
    /// The number of operands of a scan, after the carries, that are sliced: iteration `t` gets the
    /// elements at index `t` of the leading axis.
    pub slices: u32,
    /// Number of iterations of a scan, possibly symbolic.
    #[serde(with = "number")]
    pub length: Dim,
    /// True if a scan iterates from the last slice to the first.
    pub reverse: bool,
    /// How a call is compiled and differentiated.
    pub mode: CallMode,
    /// For a checkpoint, how many of the last results are residuals: values of the body that the
    /// derivative uses instead of recomputing them. They are the body's last outputs.
    pub saves: u32,
    /// Derivative rules of a call that are recorded when it is differentiated. They do not change
    /// the computed values, so cache keys leave them out. Code that writes a graph to a file must
    /// record them first.
    #[serde(skip)]
    pub later: Option<RulesLater>,
}

/// Serialises a length as a number, since serialised graphs have no symbolic sizes.
pub(super) mod number {
    use super::Dim;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(length: &Dim, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(length.hint() as u64)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Dim, D::Error> {
        usize::deserialize(deserializer).map(Dim::from)
    }
}

impl Control {
    /// Number of results of the op `code` with these regions.
    pub fn num_results(&self, code: OpCode) -> usize {
        let given = self.regions.last().map_or(0, |region| region.outputs().len());
        match code {
            OpCode::Scan => given + self.carries as usize,
            _ => given,
        }
    }

    /// The region whose outputs are the op's results.
    ///
    /// Panics if there are no regions.
    pub fn body(&self) -> &Graph {
        self.regions.last().expect("ops of control have regions")
    }

    /// The same parameters with other regions.
    pub fn with_regions(&self, graphs: Vec<Graph>) -> Control {
        Control { regions: Regions::new(graphs), ..self.clone() }
    }

    /// Index of the slice that iteration `t` of a scan reads and writes.
    pub fn position(&self, t: usize) -> usize {
        if self.reverse { self.length.hint() - 1 - t } else { t }
    }
}

impl Op {
    /// Result number `result` of a control op.
    pub fn control(code: OpCode, control: Arc<Control>, result: usize) -> Op {
        Op::new(code, Attrs::Control { result: result as u32, control })
    }

    /// The result index and regions, if the op is a control op.
    pub fn as_control(&self) -> Option<(usize, &Arc<Control>)> {
        match &self.attrs {
            Attrs::Control { result, control } => Some((*result as usize, control)),
            _ => None,
        }
    }
}

fn invalid<T>(call: OpCall<'_>, reason: String) -> Result<T> {
    Err(Error::InvalidArgument { op: call.name(), reason })
}

/// The result index and regions; fails if the number of regions differs from `regions`.
fn parts<'a>(call: OpCall<'a>, regions: Option<usize>) -> Result<(usize, &'a Control)> {
    let Some((result, control)) = call.op.as_control() else {
        return invalid(call, format!("needs regions to run, got {:?}", call.op.attrs));
    };
    let (count, depth) = (control.regions.len(), control.regions.depth());
    if count == 0 || regions.is_some_and(|wanted| wanted != count) {
        let wanted = regions.map_or("at least one".into(), |n| n.to_string());
        return invalid(call, format!("needs {wanted} regions to run, got {count}"));
    }
    if depth > MAX_DEPTH {
        return invalid(
            call,
            format!("regions nest {depth} deep; at most {MAX_DEPTH} are allowed"),
        );
    }
    let results = control.num_results(call.op.code);
    if result >= results {
        return invalid(call, format!("has {results} results; there is no result {result}"));
    }
    let operands = call.inputs.len();
    let named = control.carries as usize + control.slices as usize;
    if named > operands {
        return invalid(call, format!("has {operands} operands, of which {named} should vary"));
    }
    Ok((result, control))
}

/// Fails unless the region's arguments have exactly these specs.
fn takes(call: OpCall<'_>, what: &str, region: &Graph, specs: &[&TensorSpec]) -> Result<()> {
    let mut arguments = region.arguments();
    for (i, expected) in specs.iter().enumerate() {
        let Some(id) = arguments.next() else {
            let reason = format!("{what} takes {i} operands, but is given {}", specs.len());
            return invalid(call, reason);
        };
        let node = region.node(id);
        if node.op.code != OpCode::Input {
            let reason = format!("{what} contains {}; it may have inputs only", node.op.name());
            return invalid(call, reason);
        }
        if node.spec != **expected {
            let reason = format!("{what} takes {} as operand {i}, but it is {expected}", node.spec);
            return invalid(call, reason);
        }
    }
    match arguments.next() {
        None => Ok(()),
        Some(_) => {
            let count = region.arguments().count();
            invalid(call, format!("{what} takes {count} operands, but is given {}", specs.len()))
        }
    }
}

/// Specs of a region's results.
fn gives(region: &Graph) -> impl ExactSizeIterator<Item = &TensorSpec> {
    region.outputs().iter().map(|&o| region.spec(o))
}

/// Fails unless the body returns each carry with the spec that it takes.
fn carried(call: OpCall<'_>, control: &Control, body: &Graph) -> Result<()> {
    let carries = control.carries as usize;
    if body.outputs().len() < carries {
        let given = body.outputs().len();
        return invalid(call, format!("the body gives {given} values for {carries} carries"));
    }
    for (i, (taken, given)) in call.inputs.iter().zip(gives(body)).take(carries).enumerate() {
        if *taken != given {
            let reason = format!(
                "carry {i} is {taken} before an iteration and {given} after it; a carry keeps its \
                 shape and dtype"
            );
            return invalid(call, reason);
        }
    }
    Ok(())
}

fn call_op(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, control) = parts(call, None)?;
    if control.slices != 0 || control.length != Dim::from(0) || control.reverse {
        return invalid(call, "takes no slices and no number of iterations".into());
    }
    let body = control.body();
    takes(call, "the body", body, call.inputs)?;
    let given: Vec<&TensorSpec> = gives(body).collect();
    if control.saves as usize > given.len() {
        let reason = format!("saves {} of {} results", control.saves, given.len());
        return invalid(call, reason);
    }
    rules::check(call, control, &given)?;
    Ok(given[result].clone())
}

/// Fails unless the region's results have these specs; if `more`, further results may follow.
fn gives_as(
    call: OpCall<'_>,
    what: &str,
    region: &Graph,
    specs: &[TensorSpec],
    more: bool,
) -> Result<()> {
    let given: Vec<&TensorSpec> = gives(region).collect();
    let fits = if more { given.len() >= specs.len() } else { given.len() == specs.len() };
    if !fits {
        let (given, wanted) = (given.len(), specs.len());
        return invalid(call, format!("{what} gives {given} values; expected {wanted}"));
    }
    match given.iter().zip(specs).position(|(given, wanted)| **given != *wanted) {
        None => Ok(()),
        Some(i) => {
            let reason = format!("{what} gives {} as value {i}; expected {}", given[i], specs[i]);
            invalid(call, reason)
        }
    }
}

fn cond(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, control) = parts(call, None)?;
    if *control != (Control { regions: control.regions.clone(), ..Control::default() }) {
        return invalid(call, "a branch is taken once and carries nothing".into());
    }
    let [index, operands @ ..] = call.inputs else { unreachable!("arity is checked") };
    let branches = &control.regions;
    let chooses = index.dtype.is_int() || (index.dtype == DType::Bool && branches.len() == 2);
    if !chooses || index.shape.rank() != 0 {
        let expected = "a scalar, bool for two branches or an integer";
        return invalid(call, format!("the predicate is {index}; expected {expected}"));
    }
    for (i, branch) in branches.iter().enumerate() {
        takes(call, &format!("branch {i}"), branch, operands)?;
        let (given, first) = (branch.outputs().len(), branches[0].outputs().len());
        if given != first {
            return invalid(call, format!("branch {i} gives {given} values, branch 0 {first}"));
        }
        for (j, (given, first)) in gives(branch).zip(gives(&branches[0])).enumerate() {
            if given != first {
                let reason = format!("branch {i} gives {given} as result {j}, branch 0 {first}");
                return invalid(call, reason);
            }
        }
    }
    Ok(gives(&branches[0]).nth(result).expect("the result exists").clone())
}

fn while_loop(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, control) = parts(call, Some(2))?;
    if control.slices != 0 || control.length != Dim::from(0) || control.reverse {
        return invalid(call, "takes no slices and no number of iterations".into());
    }
    let [condition, body] = &control.regions[..] else { unreachable!("there are two") };
    takes(call, "the condition", condition, call.inputs)?;
    takes(call, "the body", body, call.inputs)?;
    let predicate: Vec<&TensorSpec> = gives(condition).collect();
    if predicate != [&TensorSpec::scalar(DType::Bool)] {
        let found: Vec<String> = predicate.iter().map(|s| s.to_string()).collect();
        let reason = format!("the condition gives ({}); expected one bool", found.join(", "));
        return invalid(call, reason);
    }
    carried(call, control, body)?;
    if body.outputs().len() != control.carries as usize {
        let (given, carries) = (body.outputs().len(), control.carries);
        return invalid(call, format!("the body gives {given} values for {carries} carries"));
    }
    Ok(call.inputs[result].clone())
}

/// A spec with an additional leading axis of size `length`.
pub fn stacked(length: Dim, spec: &TensorSpec) -> TensorSpec {
    let shape = std::iter::once(length).chain(spec.shape.dims()).collect();
    TensorSpec { shape, dtype: spec.dtype }
}

fn scan(call: OpCall<'_>) -> Result<TensorSpec> {
    let (result, control) = parts(call, Some(1))?;
    let (carries, slices) = (control.carries as usize, control.slices as usize);
    let mut specs: Vec<TensorSpec> = call.inputs.iter().map(|s| (*s).clone()).collect();
    for (i, spec) in specs.iter_mut().enumerate().skip(carries).take(slices) {
        if spec.shape.dims().next().is_none_or(|dim| !dim.equals(control.length)) {
            let length = control.length;
            let reason = format!("operand {i} is {spec}; its leading axis should have {length}");
            return invalid(call, reason);
        }
        spec.shape = spec.shape.part(1..);
    }
    let body = &control.regions[0];
    takes(call, "the body", body, &specs.iter().collect::<Vec<_>>())?;
    carried(call, control, body)?;
    let given = body.outputs().len();
    let spec = match result {
        r if r < carries => call.inputs[r].clone(),
        r if r < given => stacked(control.length, body.spec(body.outputs()[r])),
        r => stacked(control.length, call.inputs[r - given]),
    };
    Ok(spec)
}

const CONTROL: OpDef = OpDef {
    class: Class::Control,
    arity: (1, usize::MAX),
    derivative: Derivative::Regions,
    samples: samples::control::samples,
    ..OpDef::BLANK
};

/// `cond(index, operands…)`: the results of the branch that the first operand selects. A bool
/// selects branch 0 if false and branch 1 if true. An integer selects the branch of its number,
/// clamped to the valid range.
pub static COND: OpDef = OpDef {
    name: "cond",
    doc: "The results of one of several branches, which a scalar chooses; only that one is run.",
    infer: cond,
    ..CONTROL
};

/// `while_loop(carries…, captured…)`: the final carries. The body runs while the condition,
/// evaluated before each iteration, is true.
pub static WHILE_LOOP: OpDef = OpDef {
    name: "while_loop",
    doc: "What a body makes of its carries, repeated while a condition on them holds.",
    infer: while_loop,
    ..CONTROL
};

/// `scan(carries…, slices…, captured…)`: first the carries after the last iteration, then the
/// body's other results stacked over iterations, then each carry before each iteration, stacked.
pub static SCAN: OpDef = OpDef {
    name: "scan",
    doc: "What a body makes of its carries and of each part of an axis in turn, and what it gives.",
    infer: scan,
    ..CONTROL
};

/// `call(operands…)`: the results of the body (attribute `Control`). The call may have derivative
/// rules of its own ([`CallRules`]).
pub static CALL: OpDef = OpDef {
    name: "call",
    doc: "The results of a graph of its own, run once.",
    python: Python::Named("checkpoint"),
    infer: call_op,
    ..CONTROL
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GraphBuilder;

    #[test]
    fn equal_regions_have_one_hash_and_other_regions_another() {
        let region = |code: OpCode| {
            let mut b = GraphBuilder::default();
            let x = b.input(TensorSpec::scalar(DType::F32));
            let y = b.emit(code.into(), &[x]).unwrap();
            Regions::new(vec![b.finish([y])])
        };
        let (one, same, other) = (region(OpCode::Neg), region(OpCode::Neg), region(OpCode::Exp));
        assert!(one == same && one != other);
        assert_eq!(one.hash, same.hash);
        assert_ne!(one.hash, other.hash);
    }
}
