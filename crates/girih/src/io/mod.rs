//! Tensor files: `.npy`, `.npz` and `.safetensors`. Files are memory-mapped: a tensor whose data is
//! aligned and uncompressed in the file shares the mapping, which is read at the first use; other
//! tensors are copies. A mapped file must not be changed while its tensors exist.
//!
//! ```no_run
//! # let weight = girih::Tensor::zeros([2, 2], girih::DType::F32)?;
//! girih::io::save("model.safetensors", &[("weight", weight)])?;
//! for (name, tensor) in girih::io::load("model.safetensors")? {
//!     println!("{name}: {}", tensor.spec());
//! }
//! # Ok::<(), girih::Error>(())
//! ```

mod float8;
mod npy;
mod npz;
mod safetensors;

pub use float8::Float8;
pub use npy::{dtype_of_type_string, from_npy, to_npy, type_string};
pub use npz::{from_npz, to_npz, to_npz_compressed};
pub use safetensors::{
    from_safetensors, safetensors_metadata, to_safetensors, to_safetensors_float8,
    to_safetensors_with,
};

use crate::{Error, Result, Tensor, shares_host_memory};
use girih_ir::TensorSpec;
use girih_record::cpu::MappedFile;
use girih_runtime::{Buffer, DeviceId, Value};
use std::borrow::Borrow;
use std::path::Path;
use std::sync::Arc;

/// Converts an error of the operating system.
fn io_error(path: &Path, error: &std::io::Error) -> Error {
    let (path, reason) = (path.display().to_string(), error.to_string());
    Error::Io { path, kind: error.kind(), reason }
}

/// Named tensors, in the file's order.
pub type Tensors = Vec<(String, Tensor)>;

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One array, `.npy`.
    Npy,
    /// Named arrays in a zip archive, `.npz`.
    Npz,
    /// Named tensors, `.safetensors`.
    Safetensors,
}

impl Format {
    /// The format of a file name's suffix.
    ///
    /// Errors: [`Error::InvalidArgument`] for other suffixes, with the known suffixes.
    pub fn of(path: impl AsRef<Path>) -> Result<Format> {
        let path = path.as_ref();
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => Ok(Format::Npy),
            Some("npz") => Ok(Format::Npz),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => Err(Error::InvalidArgument(format!(
                "the suffix of '{}' is not one of a file of tensors; use .npy, .npz or \
                 .safetensors",
                path.display()
            ))),
        }
    }

    /// The format of the contents of a file: those that begin with no format's mark are safetensors.
    pub fn of_bytes(bytes: &[u8]) -> Format {
        match bytes {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Format::Npy,
            [b'P', b'K', ..] => Format::Npz,
            _ => Format::Safetensors,
        }
    }

    /// Tensors as the bytes of a file of this format. An `.npy` file takes exactly one tensor.
    ///
    /// Errors: [`Error::InvalidArgument`] for duplicate names, a number of tensors other than one
    /// for `.npy`, and dtypes that the format does not have.
    pub fn bytes(self, tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
        match (self, tensors) {
            (Format::Npy, [(_, tensor)]) => to_npy(tensor),
            (Format::Npy, _) => Err(Error::InvalidArgument(format!(
                "an .npy file holds exactly one tensor, got {}; use .npz or .safetensors",
                tensors.len()
            ))),
            (Format::Npz, _) => to_npz(tensors),
            (Format::Safetensors, _) => to_safetensors(tensors),
        }
    }

    /// Reads the tensors of the bytes of a file of this format. The tensor of an `.npy` file has an
    /// empty name.
    ///
    /// Errors: [`girih_ir::Error::Format`].
    pub fn tensors(self, bytes: &[u8]) -> Result<Tensors> {
        match self {
            Format::Npy => Ok(vec![(String::new(), from_npy(bytes)?)]),
            Format::Npz => from_npz(bytes),
            Format::Safetensors => from_safetensors(bytes),
        }
    }
}

/// Reads the tensors of a file. The tensor of an `.npy` file has an empty name.
///
/// Errors: [`Error::Io`]; [`girih_ir::Error::Format`] for a file that is not in the suffix's
/// format; [`Error::InvalidArgument`] for another suffix.
pub fn load(path: impl AsRef<Path>) -> Result<Tensors> {
    let path = path.as_ref();
    let format = Format::of(path)?;
    let file = MappedFile::open(path).map_err(|e| io_error(path, &e))?;
    let file = Source { bytes: file.bytes(), file: Some(&file) };
    match format {
        Format::Npy => Ok(vec![(String::new(), npy::read(file, 0..file.bytes.len())?)]),
        Format::Npz => npz::read(file),
        Format::Safetensors => safetensors::read(file),
    }
}

/// Writes tensors, which are evaluated if needed. An `.npy` file takes exactly one tensor. The file
/// is written atomically.
///
/// Errors: [`Error::Io`]; [`Error::InvalidArgument`] for duplicate names, a number of tensors other
/// than one for `.npy`, and dtypes that the format does not have.
pub fn save<N: AsRef<str>, T: Borrow<Tensor>>(
    path: impl AsRef<Path>,
    tensors: &[(N, T)],
) -> Result<()> {
    let path = path.as_ref();
    let named = |(name, tensor): &(N, T)| (name.as_ref().to_string(), tensor.borrow().clone());
    let tensors: Tensors = tensors.iter().map(named).collect();
    write(path, &Format::of(path)?.bytes(&tensors)?)
}

/// The texts by name beside the tensors of a file; none for formats other than safetensors.
///
/// Errors: as [`load`].
pub fn metadata(path: impl AsRef<Path>) -> Result<Vec<(String, String)>> {
    let path = path.as_ref();
    if Format::of(path)? != Format::Safetensors {
        return Ok(Vec::new());
    }
    let file = MappedFile::open(path).map_err(|e| io_error(path, &e))?;
    safetensors_metadata(file.bytes())
}

/// Writes a file atomically and durably: writes a temporary file beside the file, then renames the
/// temporary file. The new file gets the mode of an existing file. If the path is a symbolic link,
/// the link's target is replaced.
///
/// Errors: [`Error::Io`].
pub fn write(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
    let path = path.as_ref();
    use girih_runtime::file::{Access, replace};
    replace(path, bytes, Access::Usual, true).map_err(|error| io_error(path, &error))
}

/// Reads all bytes of a file.
///
/// Errors: [`Error::Io`].
pub fn read_file(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    std::fs::read(path).map_err(|error| io_error(path, &error))
}

/// The bytes to read, and the mapped file that contains them, if any.
#[derive(Clone, Copy)]
struct Source<'a> {
    bytes: &'a [u8],
    file: Option<&'a MappedFile>,
}

impl<'a> Source<'a> {
    fn of(bytes: &'a [u8]) -> Source<'a> {
        Source { bytes, file: None }
    }

    /// The tensor whose elements are at offset `at`. It shares the mapping if the file is mapped
    /// and the elements are aligned; else it is a copy.
    fn tensor(&self, spec: &TensorSpec, at: usize) -> Result<Tensor> {
        let size = spec.size_bytes();
        let bytes = &self.bytes[at..at + size];
        let address = bytes.as_ptr() as usize;
        match self.file {
            Some(file)
                if size > 0
                    && shares_host_memory()?
                    && address.is_multiple_of(spec.dtype.size())
                    && spec.dtype != girih_ir::DType::Bool =>
            {
                let start = address - file.as_ref().as_ptr() as usize;
                let owner = Arc::new(file.clone());
                let buffer = Buffer::shared(DeviceId::HOST, owner, start..start + size);
                Tensor::from_value(spec, Value::new(buffer))
            }
            _ if spec.dtype != girih_ir::DType::Bool => Tensor::from_bytes(spec, bytes),
            _ => owned(spec, bytes.to_vec()),
        }
    }
}

/// A tensor with a copy of the bytes of a file. For bool, any byte other than 0 is true.
fn owned(spec: &TensorSpec, mut bytes: Vec<u8>) -> Result<Tensor> {
    if spec.dtype == girih_ir::DType::Bool {
        bytes.iter_mut().for_each(|b| *b = (*b != 0) as u8);
    }
    Tensor::from_bytes(spec, bytes)
}

/// The error of a malformed file, with the offset.
fn malformed(format: &'static str, offset: usize, reason: impl Into<String>) -> Error {
    girih_ir::Error::Format { format, offset: offset as u64, reason: reason.into() }.into()
}

/// Fails for duplicate names.
fn check_names(tensors: &[(String, Tensor)]) -> Result<()> {
    let mut seen = rustc_hash::FxHashSet::default();
    match tensors.iter().find(|(name, _)| !seen.insert(name.as_str())) {
        None => Ok(()),
        Some((name, _)) => Err(Error::InvalidArgument(format!(
            "two tensors are called '{name}'; a file has each name once"
        ))),
    }
}

/// Rounds a position up to the alignment of tensors in memory.
fn aligned(position: usize) -> usize {
    position.next_multiple_of(64)
}
