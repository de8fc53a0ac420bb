//! Read-only memory-mapped files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file's bytes, which are read from disk when they are first accessed. Clones share the mapping.
#[derive(Clone, Debug)]
pub struct MappedFile(Arc<Option<memmap2::Mmap>>);

impl MappedFile {
    /// Maps a file as it is now. The file must not be changed or truncated while the handle lives:
    /// bytes that were already read from it would change too.
    ///
    /// Errors: those of opening and mapping the file.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            let reason = "it is no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // An empty file cannot be mapped.
        if metadata.len() == 0 {
            return Ok(MappedFile(Arc::new(None)));
        }
        // SAFETY: the mapping is private and read-only, so this process cannot write through it.
        // The documentation asks the user not to change the file, as every reader of mapped files
        // does.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MappedFile(Arc::new(Some(map))))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl AsRef<[u8]> for MappedFile {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}
