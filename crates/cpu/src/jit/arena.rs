//! Memory for generated code that is never writable and executable at the same time: shared pages
//! that are mapped twice, once writable and once executable. Writing a kernel is then a copy without
//! a system call. The pages are anonymous, because `perf` takes names from `/tmp/perf-PID.map` for
//! anonymous memory only. An arena is unmapped when the last of its functions is dropped.

use girih_sync::Mutex;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

/// The size of an arena in bytes; each kernel takes a few hundred bytes.
const ARENA: usize = 1 << 20;
/// The alignment of functions in bytes.
const ALIGN: usize = 64;

/// A function in executable memory.
#[derive(Clone)]
pub(super) struct Code {
    arena: Arc<Mapping>,
    offset: usize,
    len: usize,
}

impl Code {
    /// The function's address, which is valid as long as this value lives.
    pub fn address(&self) -> *const u8 {
        self.arena.at(self.offset)
    }

    /// The machine code with its constants.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the function is within the mapping, and nothing writes its pages any more.
        unsafe { std::slice::from_raw_parts(self.address(), self.len) }
    }
}

/// One of the two mappings of an arena.
struct Mapping(NonNull<c_void>);

// SAFETY: a mapping may be used and unmapped by any thread; `install` writes under a lock.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The address at an offset.
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.as_ptr().cast::<u8>().wrapping_add(offset)
    }
}

/// The arena that is being filled.
struct Open {
    write: Mapping,
    run: Arc<Mapping>,
    used: usize,
    /// The process that mapped the arena. A child of a fork shares the pages, and must not write
    /// where its parent writes.
    process: u32,
}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

/// Makes code executable; `None` if the system does not permit it.
pub(super) fn install(code: &[u8]) -> Option<Code> {
    if code.len() > ARENA {
        return None;
    }
    // Each critical section leaves the arena consistent, even if it panics.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |o: &Open| o.process == std::process::id() && o.used + code.len() <= ARENA;
    if !open.as_ref().is_some_and(fits) {
        *open = Some(map()?);
    }
    let arena = open.as_mut()?;
    let offset = arena.used;
    // SAFETY: the code fits behind that of all functions, and this thread has the lock.
    unsafe { code.as_ptr().copy_to_nonoverlapping(arena.write.at(offset), code.len()) };
    arena.used = (offset + code.len()).next_multiple_of(ALIGN);
    Some(Code { arena: arena.run.clone(), offset, len: code.len() })
}

#[cfg(target_os = "linux")]
fn map() -> Option<Open> {
    let (write, run) = map_twice().or_else(map_file)?;
    Some(Open { write, run: Arc::new(run), used: 0, process: std::process::id() })
}

/// A writable and an executable mapping of the same anonymous pages.
#[cfg(target_os = "linux")]
fn map_twice() -> Option<(Mapping, Mapping)> {
    use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags};
    use rustix::mm::{mmap_anonymous, mprotect, mremap};
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the system chooses an address where nothing is mapped.
    let write = unsafe { mmap_anonymous(std::ptr::null_mut(), ARENA, writable, MapFlags::SHARED) };
    let write = Mapping(NonNull::new(write.ok()?)?);
    // An old size of zero maps the pages of a shared mapping a second time (mremap(2)).
    // SAFETY: the first mapping stays as it is.
    let run = unsafe { mremap(write.0.as_ptr(), 0, ARENA, MremapFlags::MAYMOVE) };
    let run = Mapping(NonNull::new(run.ok()?)?);
    let executable = MprotectFlags::READ | MprotectFlags::EXEC;
    // SAFETY: nothing refers to the second mapping yet.
    unsafe { mprotect(run.0.as_ptr(), ARENA, executable) }.ok()?;
    Some((write, run))
}

/// Creates the same mappings by mapping a file without a name: Valgrind does not map pages a second
/// time.
#[cfg(target_os = "linux")]
fn map_file() -> Option<(Mapping, Mapping)> {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let flags = MemfdFlags::CLOEXEC;
    // Linux since 6.3 requires a flag for files that are executable; older versions reject the
    // flag.
    let file = memfd_create("girih-code", flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create("girih-code", flags))
        .ok()?;
    ftruncate(&file, ARENA as u64).ok()?;
    let map = |protection| {
        // SAFETY: the system chooses an address where nothing is mapped.
        let at =
            unsafe { mmap(std::ptr::null_mut(), ARENA, protection, MapFlags::SHARED, &file, 0) };
        Some(Mapping(NonNull::new(at.ok()?)?))
    };
    Some((map(ProtFlags::READ | ProtFlags::WRITE)?, map(ProtFlags::READ | ProtFlags::EXEC)?))
}

#[cfg(target_os = "linux")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping has this size, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr(), ARENA) };
    }
}

#[cfg(not(target_os = "linux"))]
fn map() -> Option<Open> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The permissions and the file of the mapping at an address.
    fn mapping(address: *const u8) -> (String, String) {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
        let holds = |line: &&str| {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            (number(start)..number(end)).contains(&(address as usize))
        };
        let line = maps.lines().find(holds).unwrap();
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields[1].to_string(), fields[5].to_string())
    }

    #[test]
    fn code_is_in_anonymous_memory() {
        let code = install(&[0xc3; 100]).unwrap();
        assert_eq!(code.bytes(), [0xc3; 100]);
        // `perf` reads names from its map only for memory of that file.
        assert_eq!(mapping(code.address()), ("r-xs".to_string(), "/dev/zero".to_string()));
    }

    #[test]
    fn both_mappings_have_the_same_pages_and_neither_is_writable_and_executable() {
        for (write, run) in [map_twice().unwrap(), map_file().unwrap()] {
            assert_eq!(mapping(write.at(0)).0, "rw-s");
            assert_eq!(mapping(run.at(0)).0, "r-xs");
            // SAFETY: the byte is within both mappings, which no other thread knows.
            unsafe {
                write.at(7).write(42);
                assert_eq!(run.at(7).read(), 42);
            }
        }
    }

    #[test]
    fn an_arena_is_unmapped_with_its_last_function() {
        let is_unmapped = || {
            let (write, run) = map_twice().unwrap();
            drop(write);
            let code = Code { arena: Arc::new(run), offset: 64, len: 8 };
            assert_eq!(code.bytes(), [0; 8]);
            let line = format!("{:x}-", code.arena.at(0) as usize);
            drop(code);
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            !maps.lines().any(|l| l.starts_with(&line))
        };
        // Another thread may map something at the same address.
        assert!((0..20).any(|_| is_unmapped()));
    }
}
