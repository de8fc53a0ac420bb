//! Names of generated functions, for profilers and debuggers.
//!
//! `GIRIH_PERF_MAP=1` writes them to `/tmp/perf-PID.map`, which `perf report` reads (Linux,
//! tools/perf/Documentation/jit-interface.txt). `GIRIH_GDB=1` registers them with a debugger
//! through GDB's JIT interface (GDB manual, 30): a list of small ELF files in memory, each with one
//! symbol.

use super::arena::Code;
use girih_runtime::env::flag;
use girih_sync::{Mutex, OnceLock};
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::sync::PoisonError;

/// A symbol that a debugger knows until the symbol is dropped.
pub(super) struct Symbol(Option<usize>);

/// The two switches: perf map, debugger.
fn wanted() -> (bool, bool) {
    static WANTED: OnceLock<(bool, bool)> = OnceLock::new();
    // `check_environment` rejects other values earlier.
    let on = |name| flag(&[name]).ok().flatten().unwrap_or(false);
    *WANTED.get_or_init(|| (on("GIRIH_PERF_MAP"), on("GIRIH_GDB")))
}

/// Announces a function to the enabled profilers and debuggers.
pub(super) fn announce(code: &Code, name: &str) -> Symbol {
    let (map, debugger) = wanted();
    if !map && !debugger {
        return Symbol(None);
    }
    let name: String = name.chars().map(|c| if c.is_whitespace() { '_' } else { c }).collect();
    let name = format!("girih:{name}");
    if map {
        write_to_map(code, &name);
    }
    Symbol(debugger.then(|| register(elf(code, &name))))
}

/// Writes one line at once: `address size name`, in hexadecimal. A failure only leaves a gap in a
/// profile.
fn write_to_map(code: &Code, name: &str) {
    static MAP: Mutex<Option<(u32, File)>> = Mutex::new(None);
    let mut map = MAP.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if map.as_ref().is_none_or(|(of, _)| *of != process) {
        let path = format!("/tmp/perf-{process}.map");
        let file = File::options().append(true).create(true).open(path);
        *map = file.ok().map(|file| (process, file));
    }
    if let Some((_, file)) = &mut *map {
        let line = format!("{:x} {:x} {name}\n", code.address() as usize, code.bytes().len());
        let _ = file.write_all(line.as_bytes());
    }
}

/// An ELF file with a section at the address of the code, a symbol for it, and the names of both.
fn elf(code: &Code, name: &str) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SECTION: u64 = 64;
    const SYMBOL: u64 = 24;
    let mut strings = b"\0.text\0.strtab\0.symtab\0".to_vec();
    let name_at = strings.len() as u32;
    strings.extend_from_slice(name.as_bytes());
    strings.push(0);
    let strings_at = HEADER + 4 * SECTION;
    let symbols_at = (strings_at + strings.len() as u64).next_multiple_of(8);
    let (address, len) = (code.address() as u64, code.bytes().len() as u64);
    let mut out = Vec::with_capacity((symbols_at + 2 * SYMBOL) as usize);
    // 64 bits, little-endian, version 1, System V; relocatable, x86-64.
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    put(&mut out, &[(2, 1), (2, 62), (4, 1), (8, 0), (8, 0), (8, HEADER), (4, 0)]);
    put(&mut out, &[(2, HEADER), (2, 0), (2, 0), (2, SECTION), (2, 4), (2, 2)]);
    out.resize((HEADER + SECTION) as usize, 0);
    let mut section = |name: u64, kind: u64, flags: u64, at: [u64; 3], more: [u64; 4]| {
        let [address, offset, size] = at;
        let [link, info, align, entry] = more;
        put(&mut out, &[(4, name), (4, kind), (8, flags), (8, address), (8, offset), (8, size)]);
        put(&mut out, &[(4, link), (4, info), (8, align), (8, entry)]);
    };
    // Code at another address (8: no bits here), allocated and executable; names; symbols.
    section(1, 8, 6, [address, 0, len], [0, 0, 16, 0]);
    section(7, 3, 0, [0, strings_at, strings.len() as u64], [0, 0, 1, 0]);
    section(15, 2, 0, [0, symbols_at, 2 * SYMBOL], [2, 1, 8, SYMBOL]);
    out.extend_from_slice(&strings);
    out.resize((symbols_at + SYMBOL) as usize, 0);
    // A global function (0x12) at the start of section 1.
    put(&mut out, &[(4, name_at.into()), (1, 0x12), (1, 0), (2, 1), (8, 0), (8, len)]);
    out
}

/// Appends little-endian numbers of the given bytes.
fn put(out: &mut Vec<u8>, numbers: &[(usize, u64)]) {
    numbers.iter().for_each(|&(bytes, number)| out.extend(&number.to_le_bytes()[..bytes]));
}

/// An entry of the debugger's list.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    prev: *mut Entry,
    file: *const u8,
    len: u64,
}

/// The data structure that the debugger reads.
#[repr(C)]
pub struct Descriptor {
    version: u32,
    action: u32,
    relevant: *mut Entry,
    first: *mut Entry,
}

/// The debugger finds this descriptor by its name.
#[unsafe(no_mangle)]
static mut __jit_debug_descriptor: Descriptor = Descriptor {
    version: 1,
    action: 0,
    relevant: std::ptr::null_mut(),
    first: std::ptr::null_mut(),
};

/// The debugger sets a breakpoint here and reads the descriptor.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn __jit_debug_register_code() {
    // The `asm!` is not optimised away, so that the function has code for the breakpoint.
    // SAFETY: no memory is touched.
    unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) }
}

/// Guards the list.
static LIST: Mutex<()> = Mutex::new(());

/// Adds a file to the list; returns its entry's address.
fn register(file: Vec<u8>) -> usize {
    let _guard = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let file = Box::leak(file.into_boxed_slice());
    let (start, len) = (file.as_ptr(), file.len() as u64);
    let entry = Entry { next: std::ptr::null_mut(), prev: std::ptr::null_mut(), file: start, len };
    let entry = Box::into_raw(Box::new(entry));
    let descriptor = &raw mut __jit_debug_descriptor;
    // SAFETY: the list is ours while its lock is held; entries live until they are taken out.
    unsafe {
        (*entry).next = (*descriptor).first;
        if !(*entry).next.is_null() {
            (*(*entry).next).prev = entry;
        }
        (*descriptor).first = entry;
        (*descriptor).relevant = entry;
        (*descriptor).action = 1;
    }
    std::hint::black_box(descriptor as *mut c_void);
    __jit_debug_register_code();
    entry as usize
}

impl Drop for Symbol {
    fn drop(&mut self) {
        let Some(entry) = self.0.take() else { return };
        let _guard = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        let (entry, descriptor) = (entry as *mut Entry, &raw mut __jit_debug_descriptor);
        // SAFETY: as in `register`; the entry and its file came from boxes, and only this function
        // reclaims them.
        unsafe {
            match (*entry).prev.is_null() {
                true => (*descriptor).first = (*entry).next,
                false => (*(*entry).prev).next = (*entry).next,
            }
            if !(*entry).next.is_null() {
                (*(*entry).next).prev = (*entry).prev;
            }
            (*descriptor).relevant = entry;
            (*descriptor).action = 2;
            __jit_debug_register_code();
            let entry = Box::from_raw(entry);
            let file =
                std::ptr::slice_from_raw_parts_mut(entry.file.cast_mut(), entry.len as usize);
            drop(Box::from_raw(file));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(file: &[u8], at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(file[at..at + 8].try_into().expect("eight bytes"))
    }

    fn text(file: &[u8], at: u64) -> &str {
        let end = file[at as usize..].iter().position(|&b| b == 0).expect("an end");
        std::str::from_utf8(&file[at as usize..at as usize + end]).expect("a name")
    }

    #[test]
    fn the_debugger_elf_file_names_the_code_at_its_address() {
        let Some(code) = super::super::arena::install(&[0xc3; 7]) else { return };
        let file = elf(&code, "girih:test");
        assert_eq!(&file[..4], b"\x7fELF");
        let sections = word(&file, 40);
        let section = |i: u64| sections + 64 * i;
        assert_eq!(word(&file, section(1) + 16), code.address() as u64);
        assert_eq!(word(&file, section(1) + 32), 7);
        let strings = word(&file, section(2) + 24);
        let names: Vec<&str> = (1..4)
            .map(|i| text(&file, strings + (word(&file, section(i)) & 0xffff_ffff)))
            .collect();
        assert_eq!(names, [".text", ".strtab", ".symtab"]);
        let symbol = word(&file, section(3) + 24) + 24;
        assert_eq!(text(&file, strings + (word(&file, symbol) & 0xffff_ffff)), "girih:test");
        assert_eq!(word(&file, symbol + 16), 7);
        assert_eq!(file.len() as u64, symbol + 24);
    }

    #[test]
    fn debugger_entries_are_registered_and_removed() {
        let entries = || {
            let _guard = LIST.lock().unwrap_or_else(PoisonError::into_inner);
            let mut found = vec![];
            // SAFETY: the list is read under its lock.
            unsafe {
                let mut entry = __jit_debug_descriptor.first;
                while !entry.is_null() {
                    found.push((*entry).len);
                    entry = (*entry).next;
                }
            }
            found
        };
        let [a, b, c] = [1, 2, 3].map(|n| Symbol(Some(register(vec![0; n]))));
        assert_eq!(entries(), [3, 2, 1]);
        drop(b);
        assert_eq!(entries(), [3, 1]);
        drop(c);
        assert_eq!(entries(), [1]);
        drop(a);
        assert_eq!(entries(), []);
    }
}
