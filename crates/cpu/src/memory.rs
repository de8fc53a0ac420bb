//! The memory of a host device: a reserved range of addresses, whose pages the system provides when
//! they are first touched. A page fault takes longer than most kernels take to fill the page, so a
//! warm-up touches the first pages ahead of their use. If a parameter requests it, a thread does
//! the same. The allocator returns the lowest free addresses first, so these pages are used first.
//!
//! Touching does not change the contents of a page, so it needs no order with writers. The thread
//! runs only on processors on which no other thread wants to run. It holds no lock, and the child
//! of a fork depends on no thread of its parent: when the child writes to a page that the parent
//! has not touched, the system provides the page then.

use girih_runtime::Allocator;
use memmap2::{MmapMut, MmapOptions};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The size of a huge page in bytes, which the system provides at a time.
const STEP: usize = 1 << 21;
/// The size of a page in bytes, where the system has no huge page.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const SMALLEST_PAGE: usize = 4096;
/// The fraction of the free memory that may be touched ahead: one byte in this many bytes.
const SHARE: usize = 16;

/// A reserved range of addresses.
pub(crate) struct Memory {
    range: MmapMut,
    /// The number of bytes at the start of the range that are touched ahead.
    ahead: usize,
    /// The start of the first step that no thread has taken.
    next: AtomicUsize,
    /// Whether touching has begun.
    begun: AtomicBool,
}

impl Memory {
    /// Reserves `size` bytes, of which up to `ahead` bytes are touched ahead when
    /// [`Memory::touch_later`] or [`Memory::touch`] is called.
    ///
    /// Errors: those of the system.
    pub fn reserve(size: usize, ahead: usize) -> std::io::Result<Memory> {
        let range = MmapOptions::new().len(size).no_reserve_swap().map_anon()?;
        #[cfg(target_os = "linux")]
        {
            // Fewer page faults on first touch; the system may lack huge pages.
            let _ = range.advise(memmap2::Advice::HugePage);
        }
        let ahead = ahead.min(size) / STEP * STEP;
        Ok(Memory { range, ahead, next: AtomicUsize::new(0), begun: AtomicBool::new(false) })
    }

    /// Tells an allocator with this memory as its only region where the region is.
    pub fn place(&self, allocator: &Allocator) {
        allocator.place_regions(&[self.range.as_ptr() as u64]);
    }

    /// Starts a thread that touches the first pages, at most `bytes` bytes; a second call has no
    /// effect. The thread ends early when the memory is dropped.
    pub fn touch_later(self: &Arc<Memory>, bytes: usize) {
        let bytes = bytes.min(self.ahead);
        if bytes < STEP || self.begun.swap(true, Relaxed) {
            return;
        }
        let memory = Arc::downgrade(self);
        let touch = move || {
            run_when_idle();
            while memory.upgrade().is_some_and(|memory| memory.touch_next(bytes)) {}
        };
        // Without the thread, pages are touched when they are first used.
        let _ = std::thread::Builder::new().name("girih-memory".into()).spawn(touch);
    }

    /// Touches the first pages on this thread instead, and returns when the system has provided all
    /// of them.
    pub fn touch(&self) {
        self.begun.store(true, Relaxed);
        // The thread takes no further step. A step that it has already taken may be unfinished, and
        // stays unfinished after a fork; so request all pages. Where the pages already exist, this
        // takes microseconds.
        self.next.store(self.ahead, Relaxed);
        self.provide(0, self.ahead);
    }

    /// Touches the next step; false if the step does not begin before `end`, or if the system
    /// cannot provide the pages.
    fn touch_next(&self, end: usize) -> bool {
        let next = |at: usize| (at < end).then_some(at + STEP);
        let taken = self.next.fetch_update(Relaxed, Relaxed, next);
        taken.is_ok_and(|at| self.touch_pages(at, STEP))
    }

    /// Touches each page of a part of the range by a write that does not change the contents.
    /// Unlike a system call for the whole part, a page fault takes no lock of the process's address
    /// space, for which threads that make code executable would wait.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    fn touch_pages(&self, at: usize, len: usize) -> bool {
        debug_assert!(at + len <= self.range.len());
        for page in (at..at + len).step_by(SMALLEST_PAGE) {
            // SAFETY: the byte is in the range. The instruction writes the value that it reads, in
            // one step, so neither this nor another thread can tell that it ran.
            unsafe {
                let byte = self.range.as_ptr().add(page);
                std::arch::asm!("lock or byte ptr [{}], 0", in(reg) byte, options(nostack));
            }
        }
        true
    }

    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    fn touch_pages(&self, at: usize, len: usize) -> bool {
        self.provide(at, len)
    }

    /// Requests the pages of a part of the range from the system; false if the system cannot
    /// provide them.
    #[cfg(target_os = "linux")]
    fn provide(&self, at: usize, len: usize) -> bool {
        len > 0 && self.range.advise_range(memmap2::Advice::PopulateWrite, at, len).is_ok()
    }

    #[cfg(not(target_os = "linux"))]
    fn provide(&self, _: usize, _: usize) -> bool {
        false
    }
}

/// Makes the system run this thread only where no other thread wants to run: workers of the pool
/// are bound to their processors, and would wait for the thread instead of moving away.
fn run_when_idle() {
    #[cfg(target_os = "linux")]
    // SAFETY: the parameter is plain data. The call reads it, and changes this thread alone; if it
    // fails, the thread runs like others.
    unsafe {
        let parameter: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter);
    }
}

/// The number of bytes of memory that a process may touch ahead if it requests `wanted` bytes.
pub(crate) fn affordable(wanted: usize) -> usize {
    wanted.min(free_memory() / SHARE)
}

/// The memory that is free on the machine, within the control group's limit; 0 if it is unknown.
fn free_memory() -> usize {
    let free = meminfo("MemAvailable:").unwrap_or(0);
    let left = |limit: usize| limit.saturating_sub(group("memory.current").unwrap_or(limit));
    group("memory.max").map_or(free, |limit| left(limit).min(free))
}

/// The size of a device's memory unless the user sets it: the memory of the machine, but at most half
/// of the addresses that the limits of the process leave (`ulimit -v`, `ulimit -d`), since threads
/// and the memory outside of the device need addresses, too.
pub(crate) fn default_size() -> usize {
    memory_of_machine().min(free_addresses() / 2)
}

/// The number of bytes that the process may still map.
#[cfg(unix)]
pub(crate) fn free_addresses() -> usize {
    use rustix::process::{Resource, getrlimit};
    let mapped = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mapped: Vec<usize> = mapped.split_whitespace().map_while(|n| n.parse().ok()).collect();
    // Columns of proc_pid_statm(5), in pages: all addresses, and data with stacks.
    let free = |resource, column: usize| match getrlimit(resource).current {
        Some(limit) => {
            let used = mapped.get(column).map_or(0, |pages| pages * rustix::param::page_size());
            usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(used)
        }
        None => usize::MAX,
    };
    free(Resource::As, 0).min(free(Resource::Data, 5))
}

#[cfg(not(unix))]
pub(crate) fn free_addresses() -> usize {
    usize::MAX
}

/// The smaller of the machine's memory and the control group's limit.
fn memory_of_machine() -> usize {
    let total = meminfo("MemTotal:").unwrap_or(16 << 30);
    group("memory.max").map_or(total, |limit| limit.min(total))
}

/// A number of the process's control group; `None` if there is no group or no limit.
fn group(name: &str) -> Option<usize> {
    std::fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse().ok()
}

/// An entry of the system's table of memory, in bytes.
fn meminfo(name: &str) -> Option<usize> {
    let table = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes = line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?;
    kilobytes.checked_mul(1 << 10)
}

/// The pages of the process's memory, as `/proc/self/smaps` has them; empty if the system has no huge
/// pages or does not report its pages.
pub(crate) struct PageTable(String);

impl PageTable {
    /// Reads the pages.
    pub fn read() -> PageTable {
        let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let huge = modes.is_ok_and(|modes| !modes.contains("[never]"));
        let table = huge.then(|| std::fs::read_to_string("/proc/self/smaps").ok()).flatten();
        PageTable(table.unwrap_or_default())
    }

    /// Whether most of the memory that the system has provided at these addresses is in pages of the
    /// smallest size.
    pub fn has_small_pages(&self, address: usize, bytes: usize) -> bool {
        let (resident, huge) = page_kilobytes(&self.0, address..address + bytes);
        resident > 2 * huge
    }
}

/// The kilobytes that the system has provided for the mappings with these addresses, and how many
/// of these kilobytes are in huge pages, from the text of `/proc/self/smaps`.
fn page_kilobytes(table: &str, addresses: Range<usize>) -> (usize, usize) {
    let (mut inside, mut resident, mut huge) = (false, 0, 0);
    for line in table.lines() {
        let Some((name, rest)) = line.split_once(|c: char| c.is_ascii_whitespace()) else {
            continue;
        };
        let kilobytes = || {
            rest.trim().strip_suffix("kB").and_then(|n| n.trim().parse::<usize>().ok()).unwrap_or(0)
        };
        let hex = |text| usize::from_str_radix(text, 16).ok();
        if let Some((Some(start), Some(end))) = name.split_once('-').map(|(s, e)| (hex(s), hex(e)))
        {
            inside = start < addresses.end && addresses.start < end;
        } else if inside {
            match name {
                "Rss:" => resident += kilobytes(),
                "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:" => huge += kilobytes(),
                _ => {}
            }
        }
    }
    (resident, huge)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The number of bytes of a range that are resident in the process.
    fn resident(memory: &Memory) -> usize {
        let mut pages = vec![0u8; memory.range.len() / 4096];
        let start = memory.range.as_ptr() as *mut libc::c_void;
        // SAFETY: the range is mapped, and there is a byte for each of its pages of 4096 bytes or
        // more.
        let status = unsafe { libc::mincore(start, memory.range.len(), pages.as_mut_ptr()) };
        assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
        pages.iter().filter(|page| **page & 1 != 0).count() * 4096
    }

    #[test]
    fn huge_pages_are_counted_per_mapping() {
        let table = "1000-3000 rw-p 00000000 00:00 0\nRss:  8 kB\nAnonHugePages:  0 kB\n\
                     400000-c00000 rw-p 00000000 00:00 0  [heap]\nRss:  8192 kB\n\
                     AnonHugePages:  6144 kB\nVmFlags: rd wr\n";
        assert_eq!(page_kilobytes(table, 0x1000..0x2000), (8, 0));
        assert_eq!(page_kilobytes(table, 0x500000..0x600000), (8192, 6144));
        assert_eq!(page_kilobytes(table, 0x2000..0x500000), (8200, 6144));
        assert_eq!(page_kilobytes(table, 0x3000..0x400000), (0, 0));
        assert_eq!(page_kilobytes("a-b\n\nRss: x kB", 0..1 << 20), (0, 0));
    }

    #[test]
    fn memory_without_huge_pages_has_small_pages() {
        let mut range = MmapOptions::new().len(4 * STEP).map_anon().unwrap();
        range.advise(memmap2::Advice::NoHugePage).unwrap();
        range.fill(1);
        let modes = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let any = modes.is_ok_and(|modes| !modes.contains("[never]"));
        let table = PageTable::read();
        assert_eq!(table.has_small_pages(range.as_ptr() as usize, range.len()), any);
        // Nothing is mapped at these addresses.
        assert!(!table.has_small_pages(4096, 4096));
    }

    /// Whether this system provides pages on request.
    fn provides() -> bool {
        Memory::reserve(STEP, STEP).unwrap().provide(0, STEP)
    }

    #[test]
    fn the_first_pages_are_touched_and_no_others() {
        let memory = Memory::reserve(8 * STEP, 3 * STEP + 1).unwrap();
        assert_eq!(resident(&memory), 0);
        memory.touch();
        assert_eq!(resident(&memory), if provides() { 3 * STEP } else { 0 });
        let none = Memory::reserve(STEP, 0).unwrap();
        none.touch();
        assert_eq!(resident(&none), 0);
    }

    #[test]
    fn contents_stay_while_another_thread_touches_their_pages() {
        let memory = Arc::new(Memory::reserve(16 * STEP, 16 * STEP).unwrap());
        let start = memory.range.as_ptr() as usize;
        memory.touch_later(usize::MAX);
        for at in (0..16 * STEP).step_by(512) {
            // SAFETY: within the range, which only this thread writes.
            unsafe { *((start + at) as *mut u8) = at as u8 / 2 + 1 };
        }
        memory.touch();
        for at in (0..16 * STEP).step_by(512) {
            // SAFETY: as above.
            assert_eq!(unsafe { *((start + at) as *const u8) }, at as u8 / 2 + 1);
        }
        memory.touch_later(usize::MAX);
    }

    #[test]
    fn dropping_the_memory_ends_the_thread() {
        let memory = Arc::new(Memory::reserve(1 << 30, 1 << 30).unwrap());
        memory.touch_later(usize::MAX);
        let weak = Arc::downgrade(&memory);
        drop(memory);
        let patience = std::time::Instant::now();
        while weak.strong_count() > 0 && patience.elapsed().as_secs() < 60 {
            std::thread::yield_now();
        }
        assert_eq!(weak.strong_count(), 0, "the thread keeps the memory only during a step");
    }

    #[test]
    fn what_is_touched_ahead_is_a_part_of_the_free_memory() {
        assert_eq!(affordable(0), 0);
        assert!(affordable(usize::MAX) <= memory_of_machine() / SHARE);
    }
}
