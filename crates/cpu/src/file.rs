//! Files mapped into memory, read only.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file's bytes, read from disk when they are first looked at. The copies of the handle share
/// them.
#[derive(Clone, Debug)]
pub struct MappedFile(Arc<Option<memmap2::Mmap>>);

impl MappedFile {
    /// Maps a file as it is now. It must not be changed or cut while the handle lives: what has been
    /// read from it would change as well.
    ///
    /// Errors: those of opening and mapping.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            let reason = "it is no regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        // Nothing cannot be mapped.
        if metadata.len() == 0 {
            return Ok(MappedFile(Arc::new(None)));
        }
        // SAFETY: the mapping is private and read only, so this process cannot write through it. The
        // documentation asks the user not to change the file, as every reader of mapped files does.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MappedFile(Arc::new(Some(map))))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}
