//! Compiled programs as bytes, for the cache on disk: the kernels before they are made ready, so
//! that nothing stored depends on addresses or is machine code.

use girih_ir::TensorSpec;
use girih_kernel::Program;
use girih_runtime::{ArgumentSpec, Error, Result};
use serde::{Deserialize, Serialize};

/// What a plan is made from, behind a byte that says which form this is.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored {
    pub program: Program,
    pub arguments: Vec<ArgumentSpec>,
    pub outputs: Vec<TensorSpec>,
}

/// The form of what follows; another number, another form.
const FORM: u8 = 1;

impl Stored {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // What is not written whole is found out by its checksum; an empty artefact by its form.
        postcard::to_extend(self, vec![FORM]).unwrap_or_default()
    }

    /// From bytes. The kernels are verified: they are about to be run.
    ///
    /// Errors: [`Error::Compile`] for bytes that are no program, or one that is not well formed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Stored> {
        let malformed = |reason: String| Error::Compile(format!("stored program: {reason}"));
        let Some((&FORM, bytes)) = bytes.split_first() else {
            return Err(malformed("unknown form".into()));
        };
        let stored: Stored =
            postcard::from_bytes(bytes).map_err(|error| malformed(error.to_string()))?;
        girih_kernel::verify::verify(&stored.program).map_err(|e| malformed(e.to_string()))?;
        if stored.program.outputs.len() != stored.outputs.len() {
            return Err(malformed("outputs without a buffer".into()));
        }
        Ok(stored)
    }
}
