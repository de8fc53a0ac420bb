//! Custom ops: ops of users, computed by a function on the host instead of the registry's kernels.
//! A node holds the op and the call ([`HostCall`]): the specs of the results, how the call is
//! batched, and whether the call has a side effect. Named ops are registered ([`register`]). Files
//! and cached programs hold an op's name and version, and look the op up in this registry. A
//! callback without a name exists in this process only.

mod batching;
mod key;

pub use batching::{HostBatch, HostBatching};

use super::*;
use crate::Dim;
use crate::dim::Sizes;
use girih_sync::{Foreign, LazyLock, Mutex, MutexGuard, foreign};
use std::any::Any;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

/// Elements of an operand: row-major, in the machine's byte order.
#[derive(Clone, Debug)]
pub struct HostView<'a> {
    /// Shape and dtype.
    pub spec: TensorSpec,
    /// The elements' bytes.
    pub bytes: &'a [u8],
}

/// The buffer for the elements of a result.
#[derive(Debug)]
pub struct HostViewMut<'a> {
    /// Shape and dtype.
    pub spec: TensorSpec,
    /// The elements' bytes, written by the op.
    pub bytes: &'a mut [u8],
}

/// The failure of a custom op: a message, and, for a front end, the original exception.
#[derive(Clone)]
pub struct HostFailure {
    /// The op's name.
    pub op: String,
    /// The reason, as a sentence.
    pub reason: String,
    /// The front end's exception, which the front end raises again.
    pub payload: Option<Payload>,
}

/// The original exception of a failure: an object of the front end.
pub type Payload = Foreign<Arc<dyn Any + Send + Sync>>;

impl PartialEq for HostFailure {
    fn eq(&self, other: &HostFailure) -> bool {
        self.op == other.op && self.reason == other.reason
    }
}

impl Eq for HostFailure {}

impl fmt::Debug for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostFailure({self})")
    }
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.op, self.reason)
    }
}

impl HostFailure {
    /// A failure with a reason and no payload.
    pub fn new(reason: impl Into<String>) -> HostFailure {
        HostFailure { op: String::new(), reason: reason.into(), payload: None }
    }

    /// The failure with the front end's exception.
    pub fn with_payload(self, payload: impl Any + Send + Sync) -> HostFailure {
        let payload: Arc<dyn Any + Send + Sync> = Arc::new(payload);
        HostFailure { payload: Some(payload.into()), ..self }
    }
}

/// A custom op: its shape rule, its kernel, and optional rules for transforms.
pub trait CustomOp: Send + Sync {
    /// Name of the op, part of every cache key and file.
    fn name(&self) -> &str;

    /// Version of the op, part of every cache key and file. Change it when the op's results change.
    fn version(&self) -> u32 {
        1
    }

    /// Shapes and dtypes of the results.
    ///
    /// Errors: operands that the op does not take.
    fn infer(&self, operands: &[&TensorSpec]) -> Result<Vec<TensorSpec>>;

    /// Computes all results. Runs on any thread.
    ///
    /// Errors: why the op failed; the results are then unspecified.
    fn run(
        &self,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> Result<(), HostFailure>;

    /// Records the operands' cotangents, given the cotangent of one result. `None` for an op
    /// without a derivative; differentiating such an op is an error.
    fn vjp(&self, call: &mut Vjp<'_>) -> Option<Result<Cotangents>> {
        let _ = call;
        None
    }

    /// How `vmap` batches the op.
    fn batching(&self) -> HostBatching {
        HostBatching::Sequential
    }

    /// The op on a batch of size `size`, for [`HostBatching::Rule`]. The operands in `marks` have
    /// the batch as their leading axis. `None` for an op without a batching rule.
    ///
    /// Errors: the errors of the rule.
    fn batch(
        &self,
        size: Dim,
        operands: &[TensorSpec],
        marks: &[bool],
    ) -> Option<Result<HostBatch, HostFailure>> {
        let _ = (size, operands, marks);
        None
    }

    /// How axes of operands and results correspond, such as `m k, k n -> m n`. Partitioning an
    /// operand along an axis requires partitioning all axes with the same letter.
    fn sharding(&self) -> Option<&str> {
        None
    }

    /// Distinguishes ops of equal name and version; part of every cache key and file. Examples are
    /// the source of a kernel and arguments that are not tensors. Allowed: letters, digits, `_`,
    /// `-` and `.`.
    fn settings(&self) -> &str {
        ""
    }

    /// The op of this name and version with the settings that a file holds. `None` if `self` has
    /// those settings.
    ///
    /// Errors: what was expected, as a continuation of the word "expected".
    fn with_settings(&self, settings: &str) -> Result<Option<Arc<dyn CustomOp>>, String> {
        match settings == self.settings() {
            true => Ok(None),
            false => Err(format!(
                "'{}' version {} with the settings that it was written with ('{settings}'), found it \
                 registered with others; register another version",
                self.name(),
                self.version()
            )),
        }
    }

    /// For an op that consists of kernels: the kernels' text, in the kernel layer's text form, for
    /// operands with these specs. The kernels are compiled into the program as all other kernels
    /// are; only the reference evaluator calls [`CustomOp::run`].
    ///
    /// Errors: operands that the op does not take.
    fn kernels(&self, operands: &[&TensorSpec]) -> Option<Result<String>> {
        let _ = operands;
        None
    }

    /// A number that distinguishes the unnamed callbacks of a process; zero for registered ops.
    fn identity(&self) -> u64 {
        0
    }
}

/// A batch level that calls the op once for each member: the batch size, and which operands have
/// the batch as their leading axis.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Level {
    size: Dim,
    batched: Vec<bool>,
}

/// One call of a host op.
#[derive(Clone)]
pub struct HostCall {
    op: Foreign<Arc<dyn CustomOp>>,
    results: Vec<TensorSpec>,
    batching: HostBatching,
    effect: bool,
    /// Batch levels, outermost first.
    levels: Vec<Level>,
    /// Text that distinguishes this call from all other calls.
    key: String,
}

impl HostCall {
    /// A call with results of these specs. A call with a side effect is never merged with an equal
    /// call, and dead code elimination keeps it if the program's outputs depend on it.
    pub fn new(
        op: Arc<dyn CustomOp>,
        results: Vec<TensorSpec>,
        batching: HostBatching,
        effect: bool,
    ) -> HostCall {
        let (op, levels, key) = (op.into(), vec![], String::new());
        HostCall { op, results, batching, effect, levels, key }.keyed()
    }

    /// The op.
    pub fn op(&self) -> &Arc<dyn CustomOp> {
        &self.op
    }

    /// Specs of the results.
    pub fn results(&self) -> &[TensorSpec] {
        &self.results
    }

    /// How `vmap` batches the call.
    pub fn batching(&self) -> HostBatching {
        self.batching
    }

    /// True if the call has a side effect: it is neither merged with an equal call nor eliminated.
    pub fn has_effect(&self) -> bool {
        self.effect
    }

    /// True if the op exists in this process only.
    pub fn is_local(&self) -> bool {
        self.op.identity() != 0
    }

    /// Text that distinguishes this call from all other calls.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The batch levels at which the op is called once for each member, outermost first: the batch
    /// size, and which operands have the batch as their leading axis.
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = (Dim, &[bool])> {
        self.levels.iter().map(|level| (level.size, &level.batched[..]))
    }

    /// The call for one member of the batch.
    pub fn member(&self) -> HostCall {
        let mut call = self.clone();
        for spec in &mut call.results {
            spec.shape = spec.shape.dims().skip(self.levels.len()).collect();
        }
        call.levels.clear();
        call.keyed()
    }

    /// The call on a batch of size `size`; the operands in `batched` have the batch as their
    /// leading axis.
    pub fn batched(&self, size: Dim, batched: Vec<bool>) -> HostCall {
        let mut call = self.clone();
        for spec in &mut call.results {
            spec.shape = std::iter::once(size).chain(spec.shape.dims()).collect();
        }
        if self.batching == HostBatching::Sequential {
            call.levels.insert(0, Level { size, batched });
        }
        call.keyed()
    }

    /// Replaces symbols by sizes.
    ///
    /// Errors: as [`crate::Shape::bind`].
    pub fn bind(&self, sizes: &Sizes) -> Result<HostCall> {
        let mut call = self.clone();
        for spec in &mut call.results {
            spec.shape = spec.shape.bind("custom", spec.dtype, sizes)?;
        }
        for level in &mut call.levels {
            let size = crate::Shape::of_dims([level.size]);
            level.size = size.bind("custom", DType::Bool, sizes)?.dim(0);
        }
        Ok(call.keyed())
    }

    /// Runs the op on all members of the batch.
    ///
    /// Errors: the op's failure; a panic of the op is reported as a failure too.
    pub fn run(
        &self,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> Result<(), HostFailure> {
        let named = |failure| HostFailure { op: self.op.name().to_string(), ..failure };
        run_levels(&**self.op, &self.levels, operands, results).map_err(named)
    }
}

/// Calls the op once for each member of the outermost batch level.
fn run_levels(
    op: &dyn CustomOp,
    levels: &[Level],
    operands: &[HostView<'_>],
    results: &mut [HostViewMut<'_>],
) -> Result<(), HostFailure> {
    let Some((level, inner)) = levels.split_first() else {
        foreign::assert_allowed();
        let run = std::panic::AssertUnwindSafe(|| within(|| op.run(operands, results)));
        return std::panic::catch_unwind(run)
            .unwrap_or_else(|_| Err(HostFailure::new("the op panicked")));
    };
    let part = |spec: &TensorSpec| TensorSpec {
        shape: spec.shape.dims().skip(1).collect(),
        dtype: spec.dtype,
    };
    for member in 0..level.size.get() {
        let operand = |(view, batched): (&HostView<'_>, &bool)| match batched {
            false => (view.spec.clone(), 0..view.bytes.len()),
            true => {
                let spec = part(&view.spec);
                let size = spec.size_bytes();
                (spec, member * size..(member + 1) * size)
            }
        };
        let views: Vec<HostView<'_>> = operands
            .iter()
            .zip(&level.batched)
            .map(|pair| {
                let (spec, range) = operand(pair);
                HostView { spec, bytes: &pair.0.bytes[range] }
            })
            .collect();
        let mut parts: Vec<HostViewMut<'_>> = results
            .iter_mut()
            .map(|result| {
                let spec = part(&result.spec);
                let size = spec.size_bytes();
                HostViewMut { spec, bytes: &mut result.bytes[member * size..(member + 1) * size] }
            })
            .collect();
        run_levels(op, inner, &views, &mut parts)?;
    }
    Ok(())
}

thread_local! {
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// True while the calling thread runs a host op. A host op must not evaluate tensors, since the
/// device waits for the op.
pub fn is_running() -> bool {
    RUNNING.get() > 0
}

fn within<T>(run: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            RUNNING.set(RUNNING.get() - 1);
        }
    }
    RUNNING.set(RUNNING.get() + 1);
    let _leave = Leave;
    run()
}

type Registry = HashMap<(String, u32), Arc<dyn CustomOp>>;

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
    let copy: Arc<dyn CustomOp> = Arc::new(Copy);
    Mutex::new(HashMap::from([(("girih.copy".to_string(), 1), copy)]))
});

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers an op by name and version; replaces an op with the same name and version.
///
/// Errors: an empty name, or a name with a character that separates the parts of a key.
pub fn register(op: Arc<dyn CustomOp>) -> Result<()> {
    let name = op.name().to_string();
    let allowed = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-' | '/');
    if name.is_empty() || !name.chars().all(allowed) {
        let reason = format!(
            "is no name for '{name}': use letters, digits and any of _ . : - /, at least one"
        );
        return Err(Error::InvalidArgument { op: "custom", reason });
    }
    let replaced = registry().insert((name, op.version()), op);
    // Drop the replaced op without the lock, because its destructor is code of users.
    drop(replaced);
    Ok(())
}

/// The op registered with this name and version.
pub fn registered(name: &str, version: u32) -> Option<Arc<dyn CustomOp>> {
    registry().get(&(name.to_string(), version)).cloned()
}

/// An op that is always registered. It copies its operands to its results.
struct Copy;

impl CustomOp for Copy {
    fn name(&self) -> &str {
        "girih.copy"
    }

    fn infer(&self, operands: &[&TensorSpec]) -> Result<Vec<TensorSpec>> {
        Ok(operands.iter().map(|s| (*s).clone()).collect())
    }

    fn run(
        &self,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> Result<(), HostFailure> {
        for (operand, result) in operands.iter().zip(results) {
            if operand.spec != result.spec {
                let reason = format!("{} cannot become {}", operand.spec, result.spec);
                return Err(HostFailure::new(reason));
            }
            result.bytes.copy_from_slice(operand.bytes);
        }
        Ok(())
    }

    fn vjp(&self, call: &mut Vjp<'_>) -> Option<Result<Cotangents>> {
        let (number, _) = call.op.as_host()?;
        let ct = |i: usize| (i == number).then_some(call.ct);
        Some(Ok((0..call.inputs.len()).map(ct).collect()))
    }
}

impl PartialEq for HostCall {
    fn eq(&self, other: &HostCall) -> bool {
        self.key == other.key
    }
}

impl Eq for HostCall {}

impl std::hash::Hash for HostCall {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

impl Op {
    /// Result number `result` of a call of a custom op.
    pub fn host(call: Arc<HostCall>, result: usize) -> Op {
        Op::new(OpCode::Custom, Attrs::Host { result: result as u8, call })
    }

    /// The result index and the call, if the op is a custom op.
    pub fn as_host(&self) -> Option<(usize, &Arc<HostCall>)> {
        match &self.attrs {
            Attrs::Host { result, call } => Some((*result as usize, call)),
            _ => None,
        }
    }

    /// True for an op with a side effect, in its regions too. It is neither merged with an equal op
    /// nor moved.
    pub fn has_effect(&self) -> bool {
        match &self.attrs {
            Attrs::Host { call, .. } => call.has_effect(),
            Attrs::Control { control, .. } => control.regions.have_effect(),
            _ => false,
        }
    }

    /// True for an op that may fail at run time, in its regions too.
    pub fn can_fail(&self) -> bool {
        match &self.attrs {
            Attrs::Control { control, .. } => control.regions.can_fail(),
            _ => self.def().can_fail,
        }
    }
}

fn infer(call: OpCall<'_>) -> Result<TensorSpec> {
    let Some((result, host)) = call.op.as_host() else {
        let reason = format!("needs a call of a host op, got {:?}", call.op.attrs);
        return Err(Error::InvalidArgument { op: call.name(), reason });
    };
    let operands = call.inputs.len();
    if let Some(level) = host.levels.iter().find(|l| l.batched.len() != operands) {
        let reason = format!("marks {} of {operands} operands as a batch", level.batched.len());
        return Err(Error::InvalidArgument { op: call.name(), reason });
    }
    for (i, spec) in call.inputs.iter().enumerate() {
        let mut dims = spec.shape.dims();
        for level in host.levels.iter().filter(|l| l.batched[i]) {
            if dims.next().is_none_or(|dim| !dim.equals(level.size)) {
                let reason = format!("operand {i} is {spec}; expected a batch of {}", level.size);
                return Err(Error::InvalidArgument { op: call.name(), reason });
            }
        }
    }
    let results = host.results.len();
    let short = |spec: &&TensorSpec| {
        let mut dims = spec.shape.dims();
        host.levels.iter().any(|level| dims.next().is_none_or(|dim| !dim.equals(level.size)))
    };
    if let Some(spec) = host.results.iter().find(short) {
        let reason = format!("{} gives {spec}, which lacks its batch", host.op.name());
        return Err(Error::InvalidArgument { op: call.name(), reason });
    }
    check_rule(call, host)?;
    host.results.get(result).cloned().ok_or_else(|| Error::InvalidArgument {
        op: call.name(),
        reason: format!("{} has {results} results; there is no {result}", host.op.name()),
    })
}

/// Fails if the op's shape rule gives other results for these operands than the call declares. This
/// happens when a file was written with another definition of the op.
fn check_rule(call: OpCall<'_>, host: &HostCall) -> Result<()> {
    let Ok(rule) = host.op.infer(call.inputs) else { return Ok(()) };
    let agrees = rule.len() == host.results.len()
        && rule.iter().zip(&host.results).all(|(rule, declared)| rule.equals(declared));
    if agrees || !host.levels.is_empty() {
        return Ok(());
    }
    let listed = |specs: &[TensorSpec]| -> String {
        specs.iter().map(TensorSpec::to_string).collect::<Vec<_>>().join(", ")
    };
    let (name, declared, rule) = (host.op.name(), listed(&host.results), listed(&rule));
    let reason = format!("'{name}' is declared to give {declared}, but its rule gives {rule}");
    Err(Error::InvalidArgument { op: call.name(), reason })
}

fn vjp(v: &mut Vjp<'_>) -> Result<Cotangents> {
    let Some((_, call)) = v.op.as_host() else {
        return Err(Error::InvalidArgument { op: v.op.name(), reason: "has no call".into() });
    };
    let call = call.clone();
    debug_assert!(call.levels.is_empty(), "reverse mode asks for the rule of one member");
    call.op.vjp(v).unwrap_or_else(|| {
        let reason = format!(
            "'{}' has no derivative; give it one (def_vjp of a custom op, vjp of the trait, \
             custom_vjp around a callback), or stop the gradient before it",
            call.op.name()
        );
        Err(Error::InvalidArgument { op: "custom", reason })
    })
}

/// `custom(operands…)`: one result of a call of a custom op.
pub static CUSTOM: OpDef = OpDef {
    name: "custom",
    can_fail: true,
    doc: "The results of an op of a user, or of a callback, that runs on the host.",
    class: Class::Library,
    arity: (1, usize::MAX),
    item_rank: ItemRank::Whole,
    infer,
    derivative: Derivative::Rule(vjp),
    batching: Some(Batching::Rule),
    samples: samples::host,
    python: Python::Named("pure_callback"),
    ..OpDef::BLANK
};
