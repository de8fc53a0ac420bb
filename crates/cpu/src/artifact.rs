//! Compiled programs as bytes, for the cache on disk. The bytes have the kernels before they are
//! prepared, so they contain no machine code and depend on no addresses.

use girih_ir::TensorSpec;
use girih_kernel::Program;
use girih_runtime::{ArgumentSpec, Error, Result};
use serde::{Deserialize, Serialize};

/// The contents from which a plan is rebuilt, after a byte with the version of the format.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored {
    pub program: Program,
    pub arguments: Vec<ArgumentSpec>,
    pub outputs: Vec<TensorSpec>,
}

/// The version of the format.
const VERSION: u8 = 1;

impl Stored {
    /// Encodes the program as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        // The checksum detects incomplete files, and the version byte an empty artefact.
        postcard::to_extend(self, vec![VERSION]).unwrap_or_default()
    }

    /// Decodes a program. The kernels are verified, since they are about to run.
    ///
    /// Errors: [`Error::Compile`] for bytes that are not a program, or a program that is not well
    /// formed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Stored> {
        let malformed = |reason: String| Error::Compile(format!("stored program: {reason}"));
        let Some((&VERSION, bytes)) = bytes.split_first() else {
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
