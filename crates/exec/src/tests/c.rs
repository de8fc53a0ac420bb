//! The C of kernels, compiled by the system's compiler, gives the results of the portable executor.
//!
//! A corpus is one source file and one program that reads the memory of each kernel from its
//! input, calls the kernel, and writes the memory that the kernel wrote. Each kernel is run on the
//! executor's memory, so that differences do not accumulate. Integers, bools and the floats of
//! kernels whose ops are all exact must be equal, except for the bits of NaNs. Other floats may
//! differ by the last bits of the C library's functions and by the order of a sum.

mod corpus;

use crate::Scratch;
use crate::program::ProgramMemory;
use girih_ir::{Array, DType, Element, OpCode, TensorSpec};
use girih_kernel::c::{Function, SourceFile, memory_type};
use girih_kernel::{Block, Core, Inst, Kernel, KernelProgram, ReduceOp, Val};
use std::fmt::Write as _;
use std::fs::File;
use std::process::{Command, Stdio};

/// The results of a kernel in one buffer.
struct Expected {
    /// The kernel and the buffer, for messages.
    origin: String,
    spec: TensorSpec,
    bytes: Vec<u8>,
    exact: bool,
}

/// Kernels with their memory, and their functions.
#[derive(Default)]
struct Corpus {
    file: SourceFile,
    /// Bodies of the functions that run a kernel.
    cases: Vec<String>,
    input: Vec<u8>,
    expected: Vec<Expected>,
    programs: usize,
}

/// The bytes of a run-time scalar.
fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// True if arithmetic determines every bit of a kernel's results.
fn is_exact(kernel: &Kernel) -> bool {
    let exact = |block: &Block| {
        block.insts.iter().enumerate().all(|(i, inst)| {
            let complex = kernel.dtype(block, Val(i as u32)).is_complex();
            !complex
                && match inst {
                    Inst::Op { code, .. } => code.def().exact,
                    Inst::Random { code, .. } => *code != OpCode::RandomNormal,
                    _ => true,
                }
        })
    };
    let core = match &kernel.core {
        Core::Reduce { prologue, value, op, .. } => {
            let sums = matches!(op, ReduceOp::Sum | ReduceOp::Prod);
            exact(prologue) && !(sums && kernel.dtype(prologue, *value).is_inexact())
        }
        Core::Gemm { dtype, .. } => !dtype.is_inexact(),
        Core::Rows(rows) => rows.parts.iter().all(is_exact),
        Core::Control(control) => {
            control.programs.iter().flat_map(|program| &program.kernels).all(is_exact)
        }
        Core::Map | Core::Scatter { .. } | Core::Library(_) => true,
    };
    core && exact(&kernel.body)
}

impl Corpus {
    /// Adds the kernels of a program. `arrays` are the values of its buffers that are arguments, by
    /// argument number, and `scalars` those of its run-time scalars.
    fn add(&mut self, program: &KernelProgram, arrays: &[Vec<u8>], scalars: &[[u64; 2]]) {
        let functions = self.file.add(program, &format!("p{}_", self.programs));
        self.programs += 1;
        let mut memory = ProgramMemory::new(program, arrays);
        for (kernel, function) in program.kernels.iter().zip(&functions) {
            let before: Vec<Vec<u8>> =
                function.buffers.keys().map(|&id| memory.bytes(id).to_vec()).collect();
            // SAFETY: a kernel of the program, which was verified as it was lowered or parsed.
            unsafe { memory.run(kernel, scalars, &mut Scratch::new()) }
                .expect("all indices are in range");
            if !function.is_external {
                self.case(program, kernel, function, (&before, &memory), scalars);
            }
        }
    }

    /// Adds a kernel with the buffers that it takes before, and the memory after.
    fn case(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        function: &Function,
        (before, after): (&[Vec<u8>], &ProgramMemory),
        scalars: &[[u64; 2]],
    ) {
        let mut case = String::new();
        for (argument, dtype) in &function.scalars {
            let t = dtype.map_or("random_key", memory_type);
            let size = dtype.map_or(16, DType::size);
            writeln!(case, "    {t} a{argument};\n    get(&a{argument}, {size});").unwrap();
            self.input.extend(&bytes_of(&scalars[*argument])[..size]);
        }
        for (id, bytes) in function.buffers.keys().zip(before) {
            let buffer = &program.buffers[id.0 as usize];
            let (t, numel, size) = (memory_type(buffer.dtype), buffer.numel.max(1), bytes.len());
            writeln!(case, "    static {t} {id}[{numel}];\n    get({id}, {size});").unwrap();
            self.input.extend(bytes);
        }
        let arguments = function.arguments().join(", ");
        writeln!(case, "    {}({arguments});", function.name).unwrap();
        for (&id, _) in function.buffers.iter().filter(|(_, written)| **written) {
            let buffer = &program.buffers[id.0 as usize];
            writeln!(case, "    put({id}, {});", buffer.size_bytes()).unwrap();
            self.expected.push(Expected {
                origin: format!("{} ({id})\n{program}", function.name),
                spec: TensorSpec::new([buffer.numel], buffer.dtype),
                bytes: after.bytes(id).to_vec(),
                exact: is_exact(kernel),
            });
        }
        self.cases.push(case);
    }

    /// The source file with a `main` function, and definitions of external functions, which no
    /// case calls.
    fn source(file: SourceFile, cases: &[String]) -> String {
        let mut code = file.finish();
        code.push_str(
            "
static void get(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) != bytes)
        abort();
}

static void put(const void *from, size_t bytes)
{
    fwrite(from, 1, bytes, stdout);
}
\n",
        );
        for (i, case) in cases.iter().enumerate() {
            writeln!(code, "static void case{i}(void)\n{{\n{case}}}\n").unwrap();
        }
        let calls: String = (0..cases.len()).map(|i| format!("    case{i}();\n")).collect();
        writeln!(code, "int main(void)\n{{\n{calls}    return 0;\n}}\n").unwrap();
        let stub = |text: &str| {
            let (declaration, _) = text.split_once(';').expect("a declaration ends");
            format!("{declaration} {{ abort(); }}\n")
        };
        let stubs: String = code.split("\nextern ").skip(1).map(stub).collect();
        code + &stubs
    }

    /// Compiles and runs the kernels, and compares their results. Fails unless the source file
    /// contains all of these texts.
    #[track_caller]
    fn check(self, name: &str, texts: &[&str]) {
        let folder = std::env::temp_dir().join(format!("girih-c-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let (source, binary) = (folder.join("kernels.c"), folder.join("kernels"));
        let code = Corpus::source(self.file, &self.cases);
        for text in texts {
            assert!(code.contains(text), "no kernel of the corpus has {text}");
        }
        std::fs::write(&source, code).unwrap();
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_string());
        let compiled = Command::new(&compiler)
            .args(["-std=c11", "-pedantic-errors", "-O0", "-ffp-contract=off", "-o"])
            .args([&binary, &source])
            .arg("-lm")
            .output()
            .unwrap_or_else(|e| panic!("these tests need the C compiler {compiler} ($CC): {e}"));
        let errors = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{}:\n{errors}", source.display());
        std::fs::write(folder.join("input"), &self.input).unwrap();
        let input = File::open(folder.join("input")).unwrap();
        let ran = Command::new(&binary).stdin(Stdio::from(input)).output().unwrap();
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
        let mut output = ran.stdout.as_slice();
        for expected in &self.expected {
            let (found, rest) = output.split_at(expected.bytes.len());
            expected.compare(found);
            output = rest;
        }
        assert!(output.is_empty() && !self.expected.is_empty(), "{name}: every case has a result");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// The relative tolerance: a few units in the last place, and sums in another order.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        DType::F32 | DType::C64 => 2e-6,
        DType::F64 | DType::C128 => 1e-14,
        _ => 0.0,
    }
}

impl Expected {
    #[track_caller]
    fn compare(&self, found: &[u8]) {
        let found = Array::from_bytes(self.spec.clone(), found);
        let wanted = Array::from_bytes(self.spec.clone(), &self.bytes);
        for (i, (f, w)) in found.elements().zip(wanted.elements()).enumerate() {
            let slack = if self.exact { 0.0 } else { tolerance(self.spec.dtype) };
            assert!(close(f, w, slack), "element {i}: {f:?}, not {w:?}, of {}", self.origin);
        }
    }
}

/// Equal bits or both NaN, or a small difference.
fn close(found: Element, wanted: Element, slack: f64) -> bool {
    if found == wanted || found.is_nan() && wanted.is_nan() {
        return true;
    }
    let (f, w) = (found.complex(), wanted.complex());
    slack > 0.0 && (f == w || (f - w).norm() <= slack * (1.0 + w.norm()))
}
