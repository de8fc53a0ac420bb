//! Computes the back end's fingerprint: a hash of the sources that determine the compiled program.
//! Programs on disk that another version compiled are compiled again, also during development of
//! Girih.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates between a graph and its kernels.
const SOURCES: [&str; 9] =
    ["linalg", "ir", "reference", "opt", "kernel", "exec", "runtime", "compile", "cpu"];

fn main() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for name in SOURCES {
        let folder = crates.join(name).join("src");
        // A published crate lacks the other sources, so only its version counts.
        if folder.is_dir() {
            println!("cargo::rerun-if-changed={}", folder.display());
            collect(&folder, &mut files);
        }
    }
    files.sort();
    // FNV-1a: not cryptographic, it only distinguishes versions.
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for file in files {
        for byte in fs::read(&file).unwrap_or_default() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=GIRIH_SOURCES={hash:016x}");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
