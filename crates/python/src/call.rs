//! Calls of compiled functions. The arguments are compared with those of earlier calls; if
//! structure and specs match, the earlier program runs without executing Python code. The Python
//! class that derives from the class in this file handles all other calls.

use crate::compiled::PyTraced;
use crate::contexts::sync;
use crate::data::as_tensor;
use crate::errors::IntoPy;
use crate::guards::{ContainerSlot, PyGuards, WrittenSlot};
use crate::identity::is_same;
use crate::interpreter::{detach, intern};
use crate::protocols::is_array;
use crate::sequences::Listed;
use crate::symbolic_float::{PySymbolicFloat, returned_number};
use crate::tensor::PyTensor;
use crate::tree::PyTreeDef;
use girih::{BoundProgram, RecentlyUsed, Tensor, TensorSpec};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFloat, PyString, PyTuple};
use smallvec::SmallVec;
use std::sync::Arc;

/// Plans that take fewer nanoseconds than this run without releasing the interpreter.
const DETACH_NS: u64 = 20_000;

/// A leaf of a pattern: of arguments to compare with, or of results to build.
enum Leaf {
    /// The tensor at this position; in arguments, also an array.
    Tensor(usize),
    /// The number at this position: a Python float in arguments, any number in results.
    Number(usize),
    /// The same object, or an equal one of the same builtin type.
    Same(Py<PyAny>),
}

/// A pytree in the form in which calls compare arguments and build results.
struct Pattern {
    structure: Py<PyTreeDef>,
    leaves: Vec<Leaf>,
}

/// A leaf in Python's form: the position of a tensor, or of a number if the flag is set; without a
/// position, the object itself.
type WrittenLeaf = (Option<usize>, Py<PyAny>, bool);

/// A pytree in Python's form.
type WrittenPattern = (Py<PyTreeDef>, Vec<WrittenLeaf>);

/// The arrays of a call as tensors, so that each array is converted once.
type Converted = SmallVec<[(Py<PyAny>, Tensor); 4]>;

type Tensors = SmallVec<[Tensor; 8]>;

/// Converts a Python float, or a number of a function being compiled, to the scalar that a program
/// takes.
fn number(object: &Bound<'_, PyAny>) -> Option<Tensor> {
    if let Ok(traced) = object.cast::<PySymbolicFloat>() {
        return Some(traced.get().as_tensor().clone());
    }
    let value = object.cast_exact::<PyFloat>().ok()?.value();
    Tensor::from_slice(&[value], []).ok()
}

/// The tensor itself, or an array converted to a tensor; `None` for other objects.
fn tensor(object: &Bound<'_, PyAny>, converted: &mut Converted) -> PyResult<Option<Tensor>> {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        return Ok(Some(tensor.borrow().0.clone()));
    }
    if let Some((_, tensor)) = converted.iter().find(|(array, _)| array.is(object)) {
        return Ok(Some(tensor.clone()));
    }
    if !is_array(object) {
        return Ok(None);
    }
    let tensor = as_tensor(object, None)?;
    converted.push((object.clone().unbind(), tensor.clone()));
    Ok(Some(tensor))
}

impl Pattern {
    fn new((structure, leaves): WrittenPattern) -> Pattern {
        let leaf = |(at, object, is_number)| match (at, is_number) {
            (Some(at), true) => Leaf::Number(at),
            (Some(at), false) => Leaf::Tensor(at),
            (None, _) => Leaf::Same(object),
        };
        Pattern { structure, leaves: leaves.into_iter().map(leaf).collect() }
    }

    /// Whether an object has this structure; stores its tensors at their positions.
    fn matches(
        &self,
        object: &Bound<'_, PyAny>,
        tensors: &mut [Option<Tensor>],
        converted: &mut Converted,
    ) -> bool {
        let mut leaves = self.leaves.iter();
        let mut take = |object: &Bound<'_, PyAny>| {
            let (at, found) = match leaves.next() {
                Some(Leaf::Tensor(at)) => (at, tensor(object, converted)?),
                Some(Leaf::Number(at)) => (at, number(object)),
                Some(Leaf::Same(known)) => return Ok(is_same(known.bind(object.py()), object)),
                None => return Ok(false),
            };
            tensors[*at] = found;
            Ok(tensors[*at].is_some())
        };
        // On an error, report no match: the Python class then flattens the arguments and raises the
        // error.
        self.structure.get().0.matches(object, &mut take, true).unwrap_or(false)
    }

    /// Builds the object of this structure from the tensors.
    fn build<'py>(&self, py: Python<'py>, tensors: &[Tensor]) -> PyResult<Bound<'py, PyAny>> {
        let mut leaves = self.leaves.iter();
        let mut next = || match leaves.next().expect("a pattern has a leaf for each of its tree") {
            Leaf::Tensor(at) => Ok(Bound::new(py, PyTensor(tensors[*at].clone()))?.into_any()),
            Leaf::Number(at) => returned_number(py, &PyTensor(tensors[*at].clone())),
            Leaf::Same(object) => Ok(object.bind(py).clone()),
        };
        self.structure.get().0.build(py, &mut next)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.structure)?;
        self.leaves.iter().try_for_each(|leaf| match leaf {
            Leaf::Tensor(_) | Leaf::Number(_) => Ok(()),
            Leaf::Same(object) => visit.call(object),
        })
    }
}

/// The signature of a call (arguments by position and by name, and their structure), and the
/// program that serves calls with this signature.
struct CachedCall {
    positional: Vec<Pattern>,
    /// Arguments by name, in the order of that call.
    named: Vec<(Py<PyString>, Pattern)>,
    /// The number of tensors among the arguments.
    count: usize,
    outside: Vec<ContainerSlot>,
    /// Positions of the tensors among the arguments that are donated.
    donated: Vec<usize>,
    program: BoundProgram,
    result: Pattern,
    /// Outputs that each call also stores in containers, and the slots.
    changed: Vec<(usize, Vec<ContainerSlot>)>,
    /// The conditions under which the program is valid.
    guards: Py<PyGuards>,
    /// Objects, other than tensors, that each call stores in containers.
    effects: Vec<(ContainerSlot, Py<PyAny>)>,
}

impl CachedCall {
    /// The tensors of a call, if the call has this signature.
    fn tensors(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
        converted: &mut Converted,
    ) -> Option<Tensors> {
        let py = args.py();
        let mut found: SmallVec<[Option<Tensor>; 8]> = SmallVec::from_elem(None, self.count);
        let named = kwargs.map_or(0, |kwargs| kwargs.len());
        if args.len() != self.positional.len() || named != self.named.len() {
            return None;
        }
        for (pattern, object) in self.positional.iter().zip(args) {
            if !pattern.matches(&object, &mut found, converted) {
                return None;
            }
        }
        for (name, pattern) in &self.named {
            let object = kwargs?.get_item(name).ok().flatten()?;
            if !pattern.matches(&object, &mut found, converted) {
                return None;
            }
        }
        let mut tensors: Tensors = found.into_iter().collect::<Option<_>>()?;
        for place in &self.outside {
            tensors.push(place.tensor(py)?);
        }
        let serves = self.program.serves(&tensors) && self.guards.get().hold(py);
        serves.then_some(tensors)
    }

    fn call<'py>(&self, py: Python<'py>, tensors: &[Tensor]) -> PyResult<Bound<'py, PyAny>> {
        let short = self.program.cost_ns().is_some_and(|cost| cost < DETACH_NS);
        let computed = if short {
            // Releasing the interpreter would take longer; a wait for a queue releases it.
            self.program.call_computed(tensors, &self.donated).py()?
        } else {
            None
        };
        let outputs = match computed {
            Some(outputs) => outputs,
            None => {
                crate::location::enter(py);
                detach(py, || self.program.call_donating(tensors, &self.donated)).py()?
            }
        };
        let result = self.result.build(py, &outputs)?;
        for (output, places) in &self.changed {
            // Create one handle per output, so that references to one tensor remain references to
            // one tensor.
            let output = &outputs[*output];
            let tensor = Bound::new(py, PyTensor(output.clone()))?.into_any();
            // A transform that traces the call has recorded the program instead of running it.
            match output.is_lazy() {
                true => places.iter().try_for_each(|place| place.set_traced(tensor.clone()))?,
                false => places.iter().try_for_each(|place| place.store(tensor.clone()))?,
            }
        }
        for (place, object) in &self.effects {
            place.set(object.bind(py).clone())?;
        }
        Ok(result)
    }

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        let named = self.named.iter().map(|(_, pattern)| pattern);
        self.positional.iter().chain(named).try_for_each(|pattern| pattern.traverse(visit))?;
        self.result.traverse(visit)?;
        let changed = self.changed.iter().flat_map(|(_, places)| places);
        self.outside.iter().chain(changed).try_for_each(|place| place.traverse(visit))?;
        visit.call(&self.guards)?;
        self.effects.iter().try_for_each(|(place, object)| {
            place.traverse(visit)?;
            visit.call(object)
        })
    }
}

/// The base class of compiled functions, which handles their calls.
#[pyclass(name = "CompiledCall", module = "girih._girih", subclass, frozen)]
struct PyCompiledCall {
    cached_calls: RecentlyUsed<CachedCall>,
}

impl PyCompiledCall {
    /// The cached call with the signature of this call, and the tensors of this call.
    fn find(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> Option<(Arc<CachedCall>, Tensors)> {
        let mut converted = Converted::new();
        self.cached_calls.find(|cached| cached.tensors(args, kwargs, &mut converted))
    }
}

fn slots_of(list: Vec<WrittenSlot>) -> Vec<ContainerSlot> {
    list.into_iter().map(ContainerSlot::new).collect()
}

#[pymethods]
impl PyCompiledCall {
    #[new]
    #[pyo3(signature = (*args, **kwargs))]
    fn new(args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyCompiledCall {
        // The derived class interprets the arguments.
        let _ = (args, kwargs);
        PyCompiledCall { cached_calls: RecentlyUsed::default() }
    }

    /// Runs the program of a cached call with the same signature; otherwise `_called(args,
    /// kwargs)`.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        sync(py);
        if let Some((cached, tensors)) = slf.get().find(args, kwargs) {
            return cached.call(py, &tensors);
        }
        let kwargs = kwargs.cloned().unwrap_or_else(|| PyDict::new(py));
        slf.call_method1(intern!(py, "_called"), (args, kwargs))
    }

    /// Runs the program of a cached call; `NotImplemented` for calls that are not cached.
    /// Returns: Any.
    fn direct<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        match self.find(args, Some(kwargs)) {
            Some((cached, tensors)) => cached.call(py, &tensors),
            None => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    /// Caches a call, so that a program serves later calls with the same signature. Takes the
    /// arguments by position and by name, their tensors and which of the tensors are donated, the
    /// places of outside tensors, the structure of the result, the outputs that are also stored in
    /// places and these places, the guards, and the other objects that each call stores.
    /// Returns: None.
    #[allow(clippy::too_many_arguments, reason = "they are all that a call needs")]
    fn remember(
        &self,
        py: Python<'_>,
        way: (Vec<WrittenPattern>, Vec<(Py<PyString>, WrittenPattern)>),
        args: Listed<Py<PyTensor>>,
        donated: Listed<usize>,
        places: Listed<WrittenSlot>,
        program: &PyTraced,
        result: WrittenPattern,
        changed: Listed<(usize, Vec<WrittenSlot>)>,
        guards: Py<PyGuards>,
        effects: Listed<(WrittenSlot, Py<PyAny>)>,
    ) -> PyResult<()> {
        let specs: Vec<TensorSpec> = args.iter().map(|t| t.borrow(py).0.spec()).collect();
        let (positional, named) = way;
        let cached = CachedCall {
            positional: positional.into_iter().map(Pattern::new).collect(),
            named: named.into_iter().map(|(name, w)| (name, Pattern::new(w))).collect(),
            count: args.len(),
            donated: donated.0,
            outside: slots_of(places.0),
            program: BoundProgram::new(program.0.clone(), &specs).py()?,
            result: Pattern::new(result),
            changed: changed.into_iter().map(|(output, at)| (output, slots_of(at))).collect(),
            guards,
            effects: effects
                .into_iter()
                .map(|(at, object)| (ContainerSlot::new(at), object))
                .collect(),
        };
        self.cached_calls.insert(Arc::new(cached));
        Ok(())
    }

    /// Drops the cached calls of the function. Returns: None.
    fn forget(&self) {
        self.cached_calls.clear();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The lock is only held while no garbage collection can run.
        self.cached_calls.try_visit(|cached| cached.traverse(&visit))
    }

    fn __clear__(&self) {
        self.forget();
    }
}

/// Adds this file's class.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyCompiledCall>()
}
