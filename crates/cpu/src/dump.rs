//! The dump, which checks refactorings: one text with everything that the host compiles for a fixed
//! list of graphs.
//!
//! `GIRIH_DUMP=FILE cargo test -p girih-cpu --lib dump` writes the text, and `make dump OUT=FILE`
//! runs this command. The text has the optimised graphs, the kernels, the plans, the blocking of
//! each GEMM, and the generated code for AVX2, AVX-512, VNNI and AMX. The code is not run, so any
//! machine with AVX2 can generate it. The text does not contain names of the sources, so a
//! refactoring does not change it. It depends on the number of processors and on the tuning
//! parameters, so compare texts from one machine.

mod graphs;

use crate::HostBackend;
use crate::codegen::HostProgram;
use crate::disassembly::disassemble;
use crate::jit::as_if;
use girih_exec::Isa;
use girih_ir::Graph;
use girih_runtime::{Backend, CompileOptions};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::fmt::{Display, Write};
use std::io;

/// The machines that code is generated for: the instruction-set level, and whether the machine has
/// VNNI and AMX.
const MACHINES: [(&str, Isa, [bool; 2]); 4] = [
    ("avx2", Isa::Avx2, [false, false]),
    ("avx512", Isa::Avx512, [false, false]),
    ("avx512 with vnni", Isa::Avx512, [true, false]),
    ("avx512 with vnni and amx", Isa::Avx512, [true, true]),
];

thread_local! {
    static GEMMS: RefCell<Vec<String>> = const { RefCell::new(vec![]) };
}

/// Records the description of a GEMM that was compiled in this thread.
pub(crate) fn record_gemm(description: String) {
    GEMMS.with_borrow_mut(|all| all.push(description));
}

/// The functions that the text has already shown, by their code, and the functions that they call,
/// by address.
#[derive(Default)]
struct Functions {
    shown: FxHashMap<Vec<u8>, usize>,
    called: FxHashMap<[u8; 8], u64>,
}

impl Functions {
    /// The number of a function, followed by its instructions if it is new.
    fn show(&mut self, code: &[u8], out: &mut String) {
        let code = self.without_addresses(code);
        let number = self.shown.len();
        if let Some(number) = self.shown.get(&code) {
            return indent(out, 2, format!("function {number}"));
        }
        let (bytes, hash) = (code.len(), fnv(&code));
        indent(out, 2, format!("function {number}, {bytes} bytes, {hash:016x}"));
        indent(out, 4, disassemble(&code));
        self.shown.insert(code, number);
    }

    /// The code with a number in place of each address that it calls, because addresses differ
    /// between processes.
    fn without_addresses(&mut self, code: &[u8]) -> Vec<u8> {
        let mut code = code.to_vec();
        for i in 0..code.len().saturating_sub(11) {
            // mov rax, address; call rax
            if code[i..].starts_with(&[0x48, 0xb8]) && code[i + 10..].starts_with(&[0xff, 0xd0]) {
                let address: &mut [u8; 8] = (&mut code[i + 2..i + 10]).try_into().expect("eight");
                let number = self.called.len() as u64;
                *address = self.called.entry(*address).or_insert(number).to_le_bytes();
            }
        }
        code
    }
}

/// The FNV-1a hash of the bytes, which include the constants after the instructions.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, &byte: &u8| (hash ^ byte as u64).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn indent(out: &mut String, by: usize, text: impl Display) {
    for line in text.to_string().lines() {
        writeln!(out, "{:by$}{line}", "").expect("strings can be written");
    }
}

/// Everything that is compiled for a graph.
fn describe(graph: &Graph, functions: &mut Functions) -> String {
    let out = &mut String::new();
    let mut before = String::new();
    for (name, isa, extensions) in MACHINES {
        GEMMS.take();
        let compiled = as_if(isa, extensions, || {
            HostBackend::default().compile_listed(graph, CompileOptions::default())
        });
        let (plan, listing) = match compiled {
            Ok(compiled) => compiled,
            Err(error) => {
                indent(out, 0, format!("error: {error}"));
                return std::mem::take(out);
            }
        };
        let mut shared = format!("{}{}{plan}", listing.optimized, listing.program.text());
        for (result, argument) in &plan.donations {
            shared += &format!("buffer {result} may overwrite argument {argument}\n");
        }
        shared += &format!("{} bytes of temporaries, {} ns\n", plan.temporary_bytes, plan.cost_ns);
        if shared != before {
            indent(out, 0, &shared);
            before = shared;
        }
        indent(out, 0, format!("[{name}]"));
        GEMMS.take().into_iter().for_each(|gemm| indent(out, 2, gemm));
        plan.weights.iter().for_each(|buffer| indent(out, 2, format!("prepacks buffer {buffer}")));
        for binary in &plan.binaries {
            let program = binary.downcast_ref::<HostProgram>().expect("the host's own binary");
            indent(out, 2, format!("kernel {}", program.name));
            program.kernel.code().iter().for_each(|code| functions.show(code, out));
        }
    }
    std::mem::take(out)
}

/// Writes the descriptions of the graphs whose number is a multiple of `step`. Returns the number
/// of these graphs.
fn write(step: usize, out: &mut impl io::Write) -> io::Result<usize> {
    let mut functions = Functions::default();
    let graphs = graphs::all();
    for (name, graph) in graphs.iter().step_by(step) {
        write!(out, "== {name}\n{}\n", describe(graph, &mut functions))?;
    }
    Ok(graphs.len().div_ceil(step))
}

#[test]
fn compilation_is_deterministic() {
    if Isa::machine() < Isa::Avx2 || !crate::jit::generates() {
        return;
    }
    if let Some(path) = std::env::var_os("GIRIH_DUMP") {
        let mut file = io::BufWriter::new(std::fs::File::create(&path).expect("a file to write"));
        let count = write(1, &mut file).and_then(|n| io::Write::flush(&mut file).map(|()| n));
        println!("{} graphs in {}", count.expect("the file can be written"), path.display());
        return;
    }
    let texts: [Vec<u8>; 2] = std::array::from_fn(|_| {
        crate::jit::forget();
        let mut text = vec![];
        write(40, &mut text).expect("vectors can be written");
        text
    });
    assert!(texts[0] == texts[1], "two compilations of the same graphs differ");
}
