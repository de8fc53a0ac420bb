//! Prints programs as C11 source. The source shows users the computation of a kernel, and the
//! printer is the second consumer of the kernel IR.
//!
//! A program is one source file: helper functions, one function for each kernel, and a function
//! that runs them. A buffer `b3` of the text form is the parameter `b3`, an index is `i0`, and a
//! value `v2`; `a4` is a run-time scalar or a random key, the argument with position 4. Results are
//! those of the portable executor, except that math functions are those of the C library, and that
//! sums and products take the elements in order.
//!
//! A library routine and the function of a custom op have no form in the IR: each is an `extern`
//! function.

mod control;
mod helpers;
mod kernel;
mod ops;
mod types;

use crate::control::{Feed, Splat};
use crate::ir::{BufferId, BufferKind, Core, Inst, Kernel, KernelProgram};
use girih_ir::DType;
use kernel::KernelPrinter;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
pub use types::memory as memory_type;

/// The first lines of a source file.
const HEAD: &str = "\
/*
 * Kernels of Girih as C11. Buffers hold their elements densely in row-major order and do not
 * overlap. Sums and products take the elements in order; the kernels themselves combine them in a
 * fixed tree. Compile without contraction (-ffp-contract=off), since each operation is rounded.
 * Conversions to signed integers wrap and right shifts are arithmetic, as in all common compilers.
 * Temporaries are static, so only one thread may run a program.
 */
";

const INCLUDES: [&str; 6] = ["math", "stdbool", "stdint", "stdio", "stdlib", "string"];

/// A program as a C11 source file, whose function `program` runs the kernels.
pub fn print(program: &KernelProgram) -> String {
    let mut file = SourceFile::default();
    file.add(program, "");
    file.finish()
}

/// A C11 source file of one or several programs.
#[derive(Default)]
pub struct SourceFile {
    code: Code,
}

/// The names of a program's functions.
#[derive(Clone, Copy)]
struct Role<'a> {
    /// The name of the function that runs the kernels.
    name: &'a str,
    /// The prefix of the names of the kernels' functions.
    prefix: &'a str,
    /// `static ` for a program of a branch or a loop.
    linkage: &'static str,
}

/// The function of a kernel. Its parameters are the buffers and then the scalars, in their order
/// here.
#[derive(Clone, Debug)]
pub struct Function {
    linkage: &'static str,
    /// The function's name.
    pub name: String,
    /// The buffers that the function takes, and whether the function writes them.
    pub buffers: BTreeMap<BufferId, bool>,
    /// The scalars that the function takes.
    pub scalars: Scalars,
    /// Whether the function calls a function that the file declares and does not define: a library
    /// routine, the function of a custom op, or an op without a form in C.
    pub is_external: bool,
}

/// The run-time scalars that a function takes, by position, with their dtypes; `None` for a random
/// key, which is a `random_key` in C.
pub type Scalars = BTreeMap<usize, Option<DType>>;

/// The function of a program. Its parameters are the operands, the results and the scalars, in this
/// order.
struct ProgramFunction {
    name: String,
    kernels: Vec<Function>,
    /// The number of the operand of each parameter.
    operands: Vec<usize>,
    /// The number of the result of each parameter.
    results: Vec<usize>,
    scalars: Scalars,
}

impl Function {
    /// The function of a program's kernel with this number.
    fn of(kernel: &Kernel, role: Role<'_>, number: usize) -> Function {
        let name = format!("{}{}_{number}", role.prefix, identifier(&kernel.name));
        let mut buffers: BTreeMap<BufferId, bool> = kernel.reads().map(|id| (id, false)).collect();
        buffers.extend(kernel.writes().map(|id| (id, true)));
        if let Core::Control(control) = &kernel.core {
            // The printed loop has its own memory.
            control.workspace.iter().for_each(|id| {
                buffers.remove(id);
            });
        }
        let mut scalars = Scalars::new();
        scalars_of(kernel, &mut scalars);
        Function { linkage: role.linkage, name, buffers, scalars, is_external: false }
    }

    fn parameters(&self, program: &KernelProgram) -> Vec<String> {
        let buffer = |(id, written): (&BufferId, &bool)| {
            parameter(program.buffers[id.0 as usize].dtype, *written, id)
        };
        self.buffers.iter().map(buffer).chain(scalar_parameters(&self.scalars)).collect()
    }

    /// The names of the function's own parameters.
    pub fn arguments(&self) -> Vec<String> {
        let scalars = self.scalars.keys().map(|a| format!("a{a}"));
        self.buffers.keys().map(BufferId::to_string).chain(scalars).collect()
    }
}

/// The parameter for a buffer.
fn parameter(dtype: DType, written: bool, name: impl Display) -> String {
    let constant = if written { "" } else { "const " };
    format!("{constant}{} *restrict {name}", types::memory(dtype))
}

fn scalar_parameters(scalars: &Scalars) -> impl Iterator<Item = String> {
    scalars.iter().map(|(argument, dtype)| {
        let t = dtype.map_or("random_key", types::memory);
        format!("const {t} a{argument}")
    })
}

/// Adds the run-time scalars of a kernel, including those of nested programs.
fn scalars_of(kernel: &Kernel, scalars: &mut Scalars) {
    let prologue = match &kernel.core {
        Core::Reduce { prologue, .. } => Some(prologue),
        _ => None,
    };
    for inst in prologue.into_iter().chain([&kernel.body]).flat_map(|block| &block.insts) {
        match *inst {
            Inst::Scalar { argument, dtype } => scalars.insert(argument, Some(dtype)),
            Inst::Random { argument, .. } => scalars.insert(argument, None),
            _ => None,
        };
    }
    match &kernel.core {
        Core::Rows(rows) => rows.parts.iter().for_each(|part| scalars_of(part, scalars)),
        Core::Control(control) => {
            for feed in &control.operands {
                if let Feed::Splat { value: Splat::Scalar { argument, dtype }, .. } = *feed {
                    scalars.insert(argument, Some(dtype));
                }
            }
            let kernels = control.programs.iter().flat_map(|program| &program.kernels);
            kernels.for_each(|inner| scalars_of(inner, scalars));
        }
        _ => {}
    }
}

impl SourceFile {
    /// Adds a program. The names of its functions begin with `prefix`, and the name of the function
    /// that runs the kernels ends with `program`. Returns the functions of the kernels.
    pub fn add(&mut self, program: &KernelProgram, prefix: &str) -> Vec<Function> {
        let role = Role { name: &format!("{prefix}program"), prefix, linkage: "" };
        self.program(program, role, &|_| true).kernels
    }

    /// The text of the source file.
    pub fn finish(self) -> String {
        let helpers = helpers::used_in(&self.code.text);
        let complex = helpers.contains("double _Complex").then_some("complex");
        let include = |name| format!("#include <{name}.h>\n");
        let includes: String = complex.into_iter().chain(INCLUDES).map(include).collect();
        format!("{HEAD}{includes}\n{helpers}{}\n", self.code.text.trim_end())
    }

    /// Prints the functions of a program's kernels, then a function that runs them and returns the
    /// needed results.
    fn program(
        &mut self,
        program: &KernelProgram,
        role: Role<'_>,
        needed: &dyn Fn(usize) -> bool,
    ) -> ProgramFunction {
        let kernels = program.kernels.iter().enumerate();
        let functions: Vec<Function> =
            kernels.map(|(number, kernel)| self.kernel(program, kernel, role, number)).collect();
        let mut scalars = Scalars::new();
        functions.iter().for_each(|f| scalars.extend(&f.scalars));

        let (mut operands, mut results) = (Vec::new(), Vec::new());
        let (mut parameters, mut copies) = (Vec::new(), Vec::new());
        for (id, buffer) in program.buffers.iter().enumerate() {
            if let BufferKind::Argument(operand) = buffer.kind {
                operands.push(operand);
                parameters.push(parameter(buffer.dtype, false, format!("b{id}")));
            }
        }
        let mut owned = BTreeSet::new();
        for (number, &id) in program.outputs.iter().enumerate().filter(|(n, _)| needed(*n)) {
            let buffer = &program.buffers[id.0 as usize];
            let own = buffer.kind == BufferKind::Computed && owned.insert(id);
            let name = if own { id.to_string() } else { format!("r{number}") };
            if !own {
                copies.push(copy(&name, &id.to_string(), buffer.numel, buffer.dtype));
            }
            results.push(number);
            parameters.push(parameter(buffer.dtype, true, name));
        }
        parameters.extend(scalar_parameters(&scalars));

        self.code.function(role.linkage, role.name, &parameters);
        let used: BTreeSet<BufferId> =
            functions.iter().flat_map(|f| f.buffers.keys().copied()).collect();
        for id in used.into_iter().filter(|id| !owned.contains(id)) {
            let buffer = &program.buffers[id.0 as usize];
            if buffer.kind == BufferKind::Computed {
                let t = types::memory(buffer.dtype);
                self.code.line(format!("static {t} {id}[{}];", buffer.numel.max(1)));
            }
        }
        functions.iter().for_each(|f| self.code.call(&f.name, &f.arguments()));
        copies.into_iter().flatten().for_each(|line| self.code.line(line));
        self.code.end_function();
        let name = role.name.to_string();
        ProgramFunction { name, kernels: functions, operands, results, scalars }
    }

    /// Prints the function of a kernel.
    fn kernel(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        role: Role<'_>,
        number: usize,
    ) -> Function {
        let mut function = Function::of(kernel, role, number);
        let start = self.code.text.len();
        match &kernel.core {
            Core::Control(control) => self.control(program, kernel, control, &function),
            _ => KernelPrinter::new(program, kernel, &mut self.code).print(&function),
        }
        function.is_external = self.code.text[start..].contains("girih_");
        function
    }
}

/// A statement that copies elements; `None` if there are no elements.
fn copy(to: &str, from: &str, numel: usize, dtype: DType) -> Option<String> {
    let t = types::memory(dtype);
    (numel > 0).then(|| format!("memcpy({to}, {from}, {numel} * sizeof({t}));"))
}

/// A name as a C identifier.
fn identifier(name: &str) -> String {
    let valid = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.chars().map(valid).collect();
    match name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        true => name,
        false => format!("kernel_{name}"),
    }
}

/// The first line of a kernel's text, for a comment.
fn summary(kernel: &Kernel) -> String {
    let text = kernel.to_string();
    comment(text.lines().next().unwrap_or_default())
}

/// The text in a form that is valid in a comment.
fn comment(text: &str) -> String {
    text.trim().replace("*/", "* /")
}

/// Lines of C, indented by their blocks.
#[derive(Default)]
struct Code {
    text: String,
    depth: usize,
}

impl Code {
    fn line(&mut self, line: impl Display) {
        let indent = 4 * self.depth;
        self.text.push_str(&format!("{:indent$}{line}\n", ""));
    }

    /// A line that begins a block: the header of a loop or branch, or nothing.
    fn open(&mut self, header: impl Display) {
        let header = header.to_string();
        self.line(if header.is_empty() { "{".into() } else { format!("{header} {{") });
        self.depth += 1;
    }

    fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    /// Ends a block and begins another one.
    fn reopen(&mut self, header: impl Display) {
        self.depth -= 1;
        self.open(format!("}} {header}"));
    }

    /// A loop over `0..count`.
    fn count(&mut self, index: &str, count: usize) {
        self.open(format!("for (int64_t {index} = 0; {index} < {count}; {index}++)"));
    }

    /// A list in parentheses, with one item per line if one line has no room for them.
    fn list(&mut self, before: &str, items: &[String], after: &str) {
        const WIDTH: usize = 100;
        let line = format!("{before}({}){after}", items.join(", "));
        if 4 * self.depth + line.len() <= WIDTH {
            return self.line(line);
        }
        let next = format!("\n{:indent$}", "", indent = 4 * (self.depth + 1));
        let items = items.join(&format!(",{next}"));
        self.line(format!("{before}({next}{items}){after}"));
    }

    fn function(&mut self, linkage: &str, name: &str, parameters: &[String]) {
        let none = ["void".to_string()];
        let parameters = if parameters.is_empty() { &none } else { parameters };
        self.list(&format!("{linkage}void {name}"), parameters, "");
        self.open("");
    }

    fn call(&mut self, name: &str, arguments: &[String]) {
        self.list(name, arguments, ";");
    }

    fn end_function(&mut self) {
        self.close();
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests;
