//! Memory for generated code that is never writable and executable at the same time: an anonymous
//! file that is mapped twice, once writable and once executable. Writing a kernel is then a copy
//! without a system call. An arena is unmapped when the last of its functions is dropped.

use girih_sync::Mutex;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;
use std::sync::{Arc, PoisonError};

/// Bytes of an arena; kernels take a few hundred each.
const ARENA: usize = 1 << 20;
/// Functions start at multiples of this.
const ALIGN: usize = 64;

/// A function in executable memory.
#[derive(Clone)]
pub(super) struct Code {
    arena: Arc<Mmap>,
    offset: usize,
    len: usize,
}

impl Code {
    /// The function's address, valid as long as this lives.
    pub fn address(&self) -> *const u8 {
        self.bytes().as_ptr()
    }

    /// The machine code with its constants.
    pub fn bytes(&self) -> &[u8] {
        &self.arena[self.offset..self.offset + self.len]
    }
}

/// The arena that is being filled.
struct Open {
    write: MmapMut,
    run: Arc<Mmap>,
    used: usize,
    /// The process that mapped it: a child of a fork shares the file and must not write where its
    /// parent does.
    process: u32,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// Makes code executable; `None` if the system does not permit it.
pub(super) fn install(code: &[u8]) -> Option<Code> {
    if code.len() > ARENA {
        return None;
    }
    // Each critical section leaves the arena consistent, also when it unwinds.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |o: &Open| o.process == std::process::id() && o.used + code.len() <= ARENA;
    if !open.as_ref().is_some_and(fits) {
        *open = Some(map()?);
    }
    let arena = open.as_mut()?;
    let offset = arena.used;
    arena.write[offset..offset + code.len()].copy_from_slice(code);
    arena.used = (offset + code.len()).next_multiple_of(ALIGN);
    Some(Code { arena: arena.run.clone(), offset, len: code.len() })
}

fn map() -> Option<Open> {
    let file = anonymous_file()?;
    file.set_len(ARENA as u64).ok()?;
    // SAFETY: the file has no name, so no other process can change or shorten it.
    let (write, run) = unsafe {
        let write = MmapOptions::new().len(ARENA).map_mut(&file).ok()?;
        (write, MmapOptions::new().len(ARENA).map_exec(&file).ok()?)
    };
    Some(Open { write, run: Arc::new(run), used: 0, process: std::process::id() })
}

#[cfg(target_os = "linux")]
fn anonymous_file() -> Option<File> {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC;
    // Linux since 6.3 wants to be told that the file is executable; older versions reject the flag.
    let file = rustix::fs::memfd_create("girih-code", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("girih-code", flags));
    file.ok().map(File::from)
}

#[cfg(not(target_os = "linux"))]
fn anonymous_file() -> Option<File> {
    None
}
