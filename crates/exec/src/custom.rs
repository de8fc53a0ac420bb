//! Custom ops whose implementation is kernels, as ops of a graph. Lowering inserts the kernels of a
//! [`KernelTemplate`] into the program; the reference evaluator runs them in the portable executor.

use super::run_program;
use girih_ir::ops::host::{CustomOp, HostFailure, HostView, HostViewMut};
use girih_ir::ops::{Cotangents, Vjp};
use girih_ir::{Result, TensorSpec};
use girih_kernel::custom::{DTypes, KernelTemplate};
use std::sync::Arc;

/// The reverse-mode rule of an op, as in [`CustomOp::vjp`].
pub type KernelVjp = Arc<dyn Fn(&mut Vjp<'_>) -> Result<Cotangents> + Send + Sync>;

/// An op whose implementation is the text of kernels.
#[derive(Clone)]
pub struct KernelOp {
    template: KernelTemplate,
    version: u32,
    vjp: Option<KernelVjp>,
}

impl std::fmt::Debug for KernelOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, signature) = (self.template.name(), self.template.signature());
        write!(f, "KernelOp({name} version {}: {signature})", self.version)
    }
}

impl KernelOp {
    /// An op with that name and version, and the kernels of [`KernelTemplate::new`].
    ///
    /// Errors: those of [`KernelTemplate::new`].
    pub fn new(
        name: &str,
        version: u32,
        signature: &str,
        dtypes: DTypes,
        text: &str,
    ) -> Result<KernelOp> {
        let template = KernelTemplate::new(name, signature, dtypes, text)?;
        Ok(KernelOp { template, version, vjp: None })
    }

    /// The op with a reverse-mode rule.
    pub fn with_vjp(self, vjp: KernelVjp) -> KernelOp {
        KernelOp { vjp: Some(vjp), ..self }
    }

    /// The text of the op's kernels, with the braces.
    pub fn text(&self) -> &str {
        self.template.text()
    }

    /// The signature.
    pub fn signature(&self) -> &str {
        self.template.signature()
    }
}

fn failure(error: impl ToString) -> HostFailure {
    HostFailure::new(error.to_string())
}

impl CustomOp for KernelOp {
    fn name(&self) -> &str {
        self.template.name()
    }

    fn version(&self) -> u32 {
        self.version
    }

    fn settings(&self) -> &str {
        self.template.source()
    }

    fn with_settings(&self, settings: &str) -> Result<Option<Arc<dyn CustomOp>>, String> {
        match settings == self.settings() {
            true => Ok(None),
            false => Err(format!(
                "the kernel of '{}' version {} that it was written with, found another one, which is \
                 registered; give a changed kernel another version",
                self.name(),
                self.version
            )),
        }
    }

    fn infer(&self, operands: &[&TensorSpec]) -> Result<Vec<TensorSpec>> {
        self.template.results(operands)
    }

    fn kernels(&self, operands: &[&TensorSpec]) -> Option<Result<String>> {
        Some(self.template.program(operands).map(|program| program.to_string()))
    }

    fn run(
        &self,
        operands: &[HostView<'_>],
        results: &mut [HostViewMut<'_>],
    ) -> Result<(), HostFailure> {
        let specs: Vec<&TensorSpec> = operands.iter().map(|view| &view.spec).collect();
        let program = self.template.program(&specs).map_err(failure)?;
        let arguments: Vec<&[u8]> = operands.iter().map(|view| view.bytes).collect();
        let outputs = run_program(&program, &arguments, &[]).map_err(failure)?;
        for (result, output) in results.iter_mut().zip(&outputs) {
            result.bytes.copy_from_slice(output);
        }
        Ok(())
    }

    fn vjp(&self, call: &mut Vjp<'_>) -> Option<Result<Cotangents>> {
        self.vjp.as_ref().map(|rule| rule(call))
    }
}

#[cfg(test)]
mod tests;
