//! The state of modules: variables, the training mode, and the visitor that collects both.

use super::{Module, visited};
use crate::{DType, Error, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A tensor in a module, which training and loading replace. Clones share the tensor, so that
/// layers can share a weight.
#[derive(Clone)]
pub struct Variable(Arc<Mutex<Tensor>>);

impl Variable {
    /// A variable with this tensor.
    pub fn new(tensor: Tensor) -> Variable {
        Variable(Arc::new(Mutex::new(tensor)))
    }

    /// The current tensor.
    pub fn get(&self) -> Tensor {
        self.lock().clone()
    }

    /// Replaces the tensor.
    ///
    /// Errors: [`Error::InvalidArgument`] for another shape.
    pub fn set(&self, tensor: Tensor) -> Result<()> {
        self.check("the variable", &tensor)?;
        self.put(tensor);
        Ok(())
    }

    pub(super) fn put(&self, tensor: Tensor) {
        *self.lock() = tensor;
    }

    pub(super) fn check(&self, name: &str, new: &Tensor) -> Result<()> {
        let (old, new) = (self.get().shape(), new.shape());
        match old == new {
            true => Ok(()),
            false => Err(Error::InvalidArgument(format!(
                "{name}: cannot replace a tensor of shape {old} by one of shape {new}"
            ))),
        }
    }

    /// A loaded tensor as it takes the place of this variable's tensor: cast to its dtype and moved
    /// to its device.
    ///
    /// Errors: [`Error::InvalidArgument`] for another shape, and for a cast that would drop
    /// imaginary parts or fractions.
    pub(super) fn fitted(&self, name: &str, new: &Tensor) -> Result<Tensor> {
        self.check(name, new)?;
        let old = self.get();
        let (dtype, found) = (old.dtype(), new.dtype());
        if kind(found) > kind(dtype) {
            return Err(Error::InvalidArgument(format!(
                "{name}: cannot replace a tensor of dtype {dtype} by one of dtype {found}, whose \
                 values it does not hold; cast them"
            )));
        }
        let new = if found == dtype { new.clone() } else { new.astype(dtype)? };
        if new.device() == old.device() { Ok(new) } else { new.to_device(old.device()) }
    }

    fn lock(&self) -> MutexGuard<'_, Tensor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The kind of a dtype, in the order in which each kind holds the values of the ones before it.
fn kind(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        _ if dtype.is_complex() => 3,
        _ if dtype.is_inexact() => 2,
        _ => 1,
    }
}

/// Whether a module is in training, initially true.
pub struct Mode(AtomicBool);

impl Mode {
    /// Whether the module is in training.
    pub fn is_training(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Switches between training and evaluation.
    pub fn set(&self, training: bool) {
        self.0.store(training, Relaxed);
    }
}

impl Default for Mode {
    fn default() -> Mode {
        Mode(AtomicBool::new(true))
    }
}

/// Collects the state of modules, by name.
#[derive(Default)]
pub struct Visitor<'a> {
    prefix: String,
    /// The name, the variable, and whether the variable is a parameter.
    variables: Vec<(String, &'a Variable, bool)>,
    /// The further names of shared variables, each with the position of its variable.
    others: Vec<(String, usize)>,
    modes: Vec<&'a Mode>,
}

impl<'a> Visitor<'a> {
    /// Adds a trainable tensor.
    pub fn parameter(&mut self, name: &str, variable: &'a Variable) {
        self.variable(name, variable, true);
    }

    /// Adds a tensor that is saved with the module and not trained.
    pub fn buffer(&mut self, name: &str, variable: &'a Variable) {
        self.variable(name, variable, false);
    }

    /// Adds the module's training mode.
    pub fn mode(&mut self, mode: &'a Mode) {
        self.modes.push(mode);
    }

    /// Adds a submodule, whose names are prefixed by `name` and a dot.
    pub fn module(&mut self, name: &str, module: &'a dyn Module) {
        let length = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        module.visit(self);
        self.prefix.truncate(length);
    }

    /// Adds submodules by number: `layers.0`, `layers.1` and so on.
    pub fn modules<M: Module + 'a>(
        &mut self,
        name: &str,
        modules: impl IntoIterator<Item = &'a M>,
    ) {
        for (i, module) in modules.into_iter().enumerate() {
            self.module(&format!("{name}.{i}"), module);
        }
    }

    fn variable(&mut self, name: &str, variable: &'a Variable, trainable: bool) {
        let known = |(_, other, _): &(String, &Variable, bool)| Arc::ptr_eq(&other.0, &variable.0);
        let name = format!("{}{name}", self.prefix);
        match self.variables.iter().position(known) {
            Some(at) => self.others.push((name, at)),
            None => self.variables.push((name, variable, trainable)),
        }
    }

    /// The position among all variables of the variable with this name, of which a shared variable
    /// has several.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        let first = self.variables.iter().position(|(own, ..)| own == name);
        first.or_else(|| self.others.iter().find(|(own, _)| own == name).map(|(_, at)| *at))
    }

    /// All variables with their first names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &'a Variable)> {
        self.variables.iter().map(|(name, variable, _)| (name.as_str(), *variable))
    }

    pub(crate) fn parameters(&self) -> impl Iterator<Item = (&str, &'a Variable)> {
        self.of_kind(true)
    }

    pub(crate) fn buffers(&self) -> impl Iterator<Item = (&str, &'a Variable)> {
        self.of_kind(false)
    }

    fn of_kind(&self, trainable: bool) -> impl Iterator<Item = (&str, &'a Variable)> {
        let own = self.variables.iter().filter(move |(.., kind)| *kind == trainable);
        own.map(|(name, variable, _)| (name.as_str(), *variable))
    }

    pub(crate) fn modes(&self) -> impl Iterator<Item = &'a Mode> {
        self.modes.iter().copied()
    }
}

/// Restores tensors when dropped, even on an error or a panic.
pub(super) struct Restore<'a>(pub Vec<(&'a Variable, Tensor)>);

impl<'a> Restore<'a> {
    /// Saves all variables of a module.
    pub fn of<M: Module + ?Sized>(module: &'a M) -> Restore<'a> {
        let all = visited(module).variables;
        Restore(all.into_iter().map(|(_, variable, _)| (variable, variable.get())).collect())
    }
}

impl Drop for Restore<'_> {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(variable, tensor)| variable.put(tensor));
    }
}
