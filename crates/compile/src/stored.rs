//! Compiled programs as bytes, for the cache on disk. The bytes have the kernels before they are
//! prepared, so they contain no machine code and depend on no addresses.

use girih_ir::TensorSpec;
use girih_kernel::{Buffer, BufferId, BufferKind, KernelProgram};
use girih_runtime::{ArgumentSpec, Error, Result};
use serde::{Deserialize, Serialize};

/// The kernels from which a plan is made, with the interface of the plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoredProgram {
    /// The kernels.
    pub program: KernelProgram,
    /// The arguments of the plan.
    pub arguments: Vec<ArgumentSpec>,
    /// The results of the plan.
    pub outputs: Vec<TensorSpec>,
}

/// The version of the format, the first byte.
const VERSION: u8 = 1;

impl StoredProgram {
    /// Encodes the program as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The checksum detects incomplete files, and the version byte an empty artefact.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Decodes a program. The kernels are verified, since they are about to run.
    ///
    /// Errors: [`Error::Compile`] for bytes that are not a program, or a program that is not well
    /// formed.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredProgram> {
        let malformed = |reason: String| Error::Compile(format!("stored program: {reason}"));
        let Some((&VERSION, bytes)) = bytes.split_first() else {
            return Err(malformed("unknown form".into()));
        };
        let stored: StoredProgram =
            postcard::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
        girih_kernel::verify::verify(&stored.program).map_err(|e| malformed(e.to_string()))?;
        stored.check_interface().map_err(malformed)?;
        Ok(stored)
    }

    /// Checks what the verifier cannot know: that the buffers, scalars and keys that the kernels
    /// take are those of the plan's arguments, and that the results fill their buffers.
    fn check_interface(&self) -> std::result::Result<(), String> {
        let StoredProgram { program, arguments, outputs } = self;
        for (at, buffer) in program.buffers.iter().enumerate() {
            let BufferKind::Argument(argument) = buffer.kind else { continue };
            let spec = match arguments.get(argument) {
                Some(ArgumentSpec::Tensor(spec)) => Some(spec),
                _ => None,
            };
            if spec.is_none_or(|spec| !fills(spec, buffer)) {
                return Err(format!("b{at} is not argument {argument}"));
            }
        }
        let is_word = |&argument: &usize| arguments.get(argument).is_some_and(|a| !a.is_data());
        if let Some(argument) = program.scalars().into_iter().find(|a| !is_word(a)) {
            return Err(format!("argument {argument} is neither a scalar nor a random key"));
        }
        let filled = |(id, spec): (&BufferId, &TensorSpec)| {
            program.buffers.get(id.0 as usize).is_some_and(|buffer| fills(spec, buffer))
        };
        if program.outputs.len() != outputs.len()
            || !program.outputs.iter().zip(outputs).all(filled)
        {
            return Err("the results are not those of the kernels".into());
        }
        Ok(())
    }
}

/// Whether a tensor has exactly the elements of a buffer.
fn fills(spec: &TensorSpec, buffer: &Buffer) -> bool {
    spec.dtype == buffer.dtype && spec.shape.numel() == buffer.numel
}
