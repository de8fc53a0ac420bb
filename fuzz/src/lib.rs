//! The bodies of the fuzz targets. Each takes any bytes, says whether the reader accepts them, and
//! panics if the reader does, or if what it accepts is not what it writes.
#![forbid(unsafe_code)]

use girih::io;
use girih::ir::Graph;
use girih::ir::pfgb::{crc32, decode};
use girih_kernel::KernelProgram;

/// Text of a graph: what parses is well formed, and prints to text that parses to the same graph.
pub fn text(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(graph) = Graph::parse(&text) else { return false };
    graph.verify().expect("what is parsed verifies");
    assert_eq!(Graph::parse(&graph.to_string()).expect("what is printed parses"), graph);
    true
}

/// Text of kernels: what parses is well formed, and prints to text that parses to the same program.
pub fn kernels(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Ok(program) = KernelProgram::parse(&text) else { return false };
    girih_kernel::verify::verify(&program).expect("what is parsed verifies");
    assert_eq!(
        KernelProgram::parse(&program.to_string()).expect("what is printed parses"),
        program
    );
    true
}

/// A PFGB file without its checksum, which is added so that the reader looks at the rest: what is
/// read is written back unchanged.
pub fn pfgb(bytes: &[u8]) -> bool {
    let sealed = [bytes, &crc32(bytes).to_le_bytes()].concat();
    let Ok(file) = decode(&sealed) else { return false };
    let again = file.encode().expect("what is read can be written");
    assert_eq!(decode(&again).expect("what is written can be read"), file);
    true
}

/// A `.npy` file.
pub fn npy(bytes: &[u8]) -> bool {
    io::from_npy(bytes).is_ok()
}

/// A `.npz` file.
pub fn npz(bytes: &[u8]) -> bool {
    io::from_npz(bytes).is_ok()
}

/// A `.safetensors` file.
pub fn safetensors(bytes: &[u8]) -> bool {
    io::from_safetensors(bytes).is_ok()
}
