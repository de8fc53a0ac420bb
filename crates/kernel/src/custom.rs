//! Custom ops: ops of users whose implementation is kernels in the text form of [`crate::text`],
//! with a signature that is their rule for shapes and dtypes. A [`KernelTemplate`] is text and
//! signature.
//!
//! ```text
//! T[m, k], T[m] -> T[m]          with T in f32, f64
//!
//! b0 = argument 0: {T}[{m*k}]
//! b1 = argument 1: {T}[{m}]
//! b2 = {T}[{m}]
//! scaled_row_sums over [{m} | {k}]
//!   prologue:
//!     v0 = load b0[{k}*i0 + i1]
//!   reduce sum v0
//!   v0 = core: {T}
//!   v1 = load b1[i0]
//!   v2 = mul(v0, v1): {T}
//!   b2[i0] = v2
//! outputs: [b2]
//! ```
//!
//! Braces hold names of the signature, and expressions of sizes. When a template is created, its
//! text is parsed for every dtype. For each set of operands, the braces are replaced, and the
//! verifier checks the program against the operands before anything runs. Lowering inserts the
//! kernels into the program, so they are compiled, fused over rows and placed in memory like all
//! other kernels.

mod signature;
mod splice;
#[cfg(test)]
mod tests;

use crate::ir::{Access, AccessId, Block, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram};
use girih_ir::{DType, Error, Result, TensorSpec};
pub use signature::DTypes;
use signature::{Bound, Signature};
pub(crate) use splice::{kernels_of, operands_of, program_of, prune};

/// The maximum number of kernels of an op.
const MAX_KERNELS: usize = 64;

/// The maximum number of instructions of a block.
const MAX_INSTS: usize = 1024;

/// The kernels of a custom op for operands of any sizes and dtypes that its signature takes.
#[derive(Clone, Debug)]
pub struct KernelTemplate {
    name: String,
    signature: Signature,
    text: String,
    /// The hash of signature, dtypes and text, in hexadecimal.
    source: String,
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument { op: "custom", reason }
}

/// `f32[6]`
fn sized(dtype: DType, numel: usize) -> String {
    format!("{}[{numel}]", dtype.short())
}

fn spec_sized(spec: &TensorSpec) -> String {
    sized(spec.dtype, spec.numel())
}

impl KernelTemplate {
    /// The kernels of the op with that name. The signature, such as `T[m, k], T[k] -> T[m]`,
    /// describes operands and results; `dtypes` gives the dtypes of each of its variables.
    ///
    /// Errors: an invalid signature, a name in braces that the signature does not have, a kernel
    /// that does not parse ([`Error::Parse`] with line and column), or a kind of kernel that custom
    /// ops cannot have.
    pub fn new(name: &str, signature: &str, dtypes: DTypes, text: &str) -> Result<KernelTemplate> {
        let signature = Signature::parse(signature, dtypes)?;
        let mut hash = blake3::Hasher::new();
        for part in [signature.text(), &signature.dtypes_text(), text] {
            hash.update(part.as_bytes()).update(&[0]);
        }
        let source = hash.finalize().to_hex().to_string();
        let (name, text) = (name.to_string(), text.to_string());
        let template = KernelTemplate { name, signature, text, source };
        for sample in template.signature.samples() {
            let program = KernelProgram::read(&sample.fill(&template.name, &template.text)?)?;
            template.check_kinds(&program)?;
        }
        Ok(template)
    }

    /// The op's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text of the kernels, with the braces.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signature.
    pub fn signature(&self) -> &str {
        self.signature.text()
    }

    /// A hash of signature, dtypes and text, in hexadecimal.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The specs of the results for operands of these specs.
    ///
    /// Errors: operands that do not fit the signature; a result without a size.
    pub fn results(&self, operands: &[&TensorSpec]) -> Result<Vec<TensorSpec>> {
        let bound = self.signature.bind(&self.name, operands)?;
        self.signature.results(&self.name, &bound)
    }

    /// The program for operands of these specs, checked against them.
    ///
    /// Errors: operands that do not fit the signature, text that the verifier rejects at these
    /// sizes, a program whose arguments are not these operands or whose outputs are not the results
    /// of the signature.
    pub fn program(&self, operands: &[&TensorSpec]) -> Result<KernelProgram> {
        let bound = self.signature.bind(&self.name, operands)?;
        let results = self.signature.results(&self.name, &bound)?;
        let program = KernelProgram::parse(&bound.fill(&self.name, &self.text)?);
        let program = program.map_err(|error| self.at(&bound, &error.to_string()))?;
        self.check_kinds(&program)?;
        self.check_ends(&program, operands, &results).map_err(|reason| self.at(&bound, &reason))?;
        Ok(program)
    }

    fn at(&self, bound: &Bound, reason: &str) -> Error {
        invalid(format!("the kernel of '{}' with {}: {reason}", self.name, bound.text()))
    }

    /// Fails for kernels that custom ops cannot have.
    fn check_kinds(&self, program: &KernelProgram) -> Result<()> {
        let refuse = |what: String| {
            Err(invalid(format!(
                "the kernel of '{}' {what}; expected maps, reductions, matrix products and scatters \
                 of its operands",
                self.name
            )))
        };
        if program.kernels.len() > MAX_KERNELS {
            return refuse(format!(
                "has {} kernels, more than {MAX_KERNELS}",
                program.kernels.len()
            ));
        }
        for kernel in &program.kernels {
            let prologue = match &kernel.core {
                Core::Map | Core::Gemm { .. } | Core::Scatter { .. } => None,
                Core::Reduce { stores, .. } if !stores.is_empty() => {
                    return refuse("stores values of a prologue (store them in a map)".into());
                }
                Core::Reduce { prologue, .. } => Some(prologue),
                Core::Rows(_) => return refuse("is over rows".into()),
                Core::Library(_) => return refuse("calls a routine".into()),
                Core::Control(_) => return refuse("has a branch or loop".into()),
            };
            for block in prologue.into_iter().chain([&kernel.body]) {
                self.check_block(block).or_else(refuse)?;
            }
        }
        Ok(())
    }

    fn check_block(&self, block: &Block) -> Result<(), String> {
        if block.insts.len() > MAX_INSTS {
            return Err(format!("has {} instructions, more than {MAX_INSTS}", block.insts.len()));
        }
        let outside = block.insts.iter().find_map(|inst| match inst {
            Inst::Scalar { .. } => Some("takes a run-time scalar (load an operand of one element)"),
            Inst::Random { .. } => Some("draws random numbers (make them an operand)"),
            _ => None,
        });
        outside.map_or(Ok(()), |what| Err(what.into()))
    }

    /// Fails unless the program's arguments are these operands and its outputs these results.
    fn check_ends(
        &self,
        program: &KernelProgram,
        operands: &[&TensorSpec],
        results: &[TensorSpec],
    ) -> Result<(), String> {
        for (i, buffer) in program.buffers.iter().enumerate() {
            let BufferKind::Argument(position) = buffer.kind else { continue };
            let Some(spec) = operands.get(position) else {
                let most = self.signature.operands() - 1;
                return Err(format!("b{i} is argument {position}; expected 0 to {most}"));
            };
            if (buffer.numel, buffer.dtype) != (spec.numel(), spec.dtype) {
                let (found, expected) = (sized(buffer.dtype, buffer.numel), spec_sized(spec));
                return Err(format!("b{i} is {found}; operand {position} is {expected}"));
            }
        }
        if program.outputs.len() != results.len() {
            let (found, expected) = (program.outputs.len(), results.len());
            return Err(format!("{found} outputs; the signature gives {expected}"));
        }
        for (number, (output, spec)) in program.outputs.iter().zip(results).enumerate() {
            let buffer = &program.buffers[output.0 as usize];
            if (buffer.numel, buffer.dtype) != (spec.numel(), spec.dtype) {
                let (found, expected) = (sized(buffer.dtype, buffer.numel), spec_sized(spec));
                return Err(format!(
                    "output {number}, {output}, is {found}; result {number} is {expected}"
                ));
            }
            let again = program.outputs[..number].contains(output);
            if again || buffer.kind != BufferKind::Computed {
                return Err(format!(
                    "output {number} is {output}, an argument or another output; give each result a \
                     buffer that a kernel writes"
                ));
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// Merges equal accesses.
    fn merge_accesses(&mut self) {
        let (mut merged, mut numbers) = (Vec::new(), Vec::new());
        for access in std::mem::take(&mut self.accesses) {
            let known = merged.iter().position(|a| *a == access);
            numbers.push(AccessId(known.unwrap_or(merged.len()) as u32));
            if known.is_none() {
                merged.push(access);
            }
        }
        self.accesses = merged;
        let prologue = match &mut self.core {
            Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        for inst in prologue.into_iter().chain([&mut self.body]).flat_map(|b| &mut b.insts) {
            if let Inst::Load(id) | Inst::Gather { access: id, .. } = inst {
                *id = numbers[id.0 as usize];
            }
        }
    }

    /// Adds a leading dimension to a kernel, along which accesses of some buffers move.
    fn add_batch(&mut self, size: usize, step: &dyn Fn(BufferId) -> isize) {
        self.extents.insert(0, size);
        self.parallel += 1;
        let move_along = |access: &mut Access| {
            access.strides.insert(0, step(access.buffer));
        };
        self.accesses.iter_mut().for_each(move_along);
        self.stores.iter_mut().for_each(|s| move_along(&mut s.access));
        let mut blocks = vec![&mut self.body];
        match &mut self.core {
            Core::Reduce { prologue, stores, .. } => {
                blocks.push(prologue);
                stores.iter_mut().for_each(|s| move_along(&mut s.access));
            }
            Core::Gemm { lhs, rhs, .. } => [lhs, rhs].into_iter().for_each(move_along),
            Core::Scatter { index, independent, .. } => {
                move_along(index);
                independent.iter_mut().for_each(|d| *d += 1);
                independent.insert(0, 0);
            }
            Core::Map | Core::Rows(_) | Core::Library(_) | Core::Control(_) => {}
        }
        for inst in blocks.into_iter().flat_map(|b| &mut b.insts) {
            if let Inst::Iota { strides, .. } | Inst::Random { strides, .. } = inst {
                strides.insert(0, 0);
            }
        }
    }
}

impl KernelProgram {
    /// A custom program for all members of a batch: the marked arguments and all computed buffers
    /// have the batch as their leading dimension.
    fn batched(mut self, size: usize, marks: &[bool]) -> KernelProgram {
        let steps: Vec<isize> = self
            .buffers
            .iter_mut()
            .map(|buffer| {
                let member = buffer.numel;
                let own = match buffer.kind {
                    BufferKind::Argument(position) => marks[position],
                    BufferKind::Computed => true,
                };
                buffer.numel = buffer.numel.saturating_mul(if own { size } else { 1 });
                if own { member as isize } else { 0 }
            })
            .collect();
        for kernel in &mut self.kernels {
            kernel.add_batch(size, &|id| steps[id.0 as usize]);
        }
        self
    }
}
