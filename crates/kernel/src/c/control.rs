//! Branches and loops: a function for each of their programs, and a function that calls these
//! functions. A carry has two arrays in turn, so that an iteration does not write the carry that it
//! reads.

use super::{Function, ProgramFunction, Role, SourceFile, copy, summary, types};
use crate::control::{Control, Feed, Flow, Splat};
use crate::ir::{BufferKind, Kernel, KernelProgram};
use girih_ir::DType;

/// A branch or loop that is being printed.
struct ControlPrinter<'a> {
    file: &'a mut SourceFile,
    control: &'a Control,
    programs: Vec<ProgramFunction>,
}

impl SourceFile {
    /// Prints the functions of a control kernel's programs, then the function of the control
    /// kernel.
    pub(super) fn control(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        control: &Control,
        function: &Function,
    ) {
        let count = control.programs.len();
        let inner = |(number, inner): (usize, &KernelProgram)| {
            let role = match control.flow {
                Flow::Cond { .. } => format!("branch{number}"),
                Flow::While if number == 0 => "condition".to_string(),
                _ => "body".to_string(),
            };
            let name = format!("{}_{role}", function.name);
            let prefix = format!("{name}_");
            let role = Role { name: &name, prefix: &prefix, linkage: "static " };
            let given = matches!(control.flow, Flow::Cond { .. }) || number + 1 == count;
            self.program(inner, role, &|output| !given || needed(control, output))
        };
        let programs = control.programs.iter().enumerate().map(inner).collect();
        self.code.line(format!("/* {} */", summary(kernel)));
        self.code.function(function.linkage, &function.name, &function.parameters(program));
        ControlPrinter { file: self, control, programs }.print();
        self.code.end_function();
    }
}

/// Whether a result of the programs is a carry or is needed outside.
fn needed(control: &Control, output: usize) -> bool {
    output < control.carries || control.results.get(output).is_some_and(Option::is_some)
}

impl ControlPrinter<'_> {
    fn print(&mut self) {
        match self.control.flow {
            Flow::Cond { index, .. } => {
                let last = self.programs.len() - 1;
                if last == 0 {
                    return self.call(0, "", "");
                }
                // The number is clamped to the numbers of the branches.
                self.file.code.open(format!("if ({index}[0] <= 0)"));
                for number in 0..last {
                    self.call(number, "", "");
                    self.file.code.reopen(match number + 1 {
                        next if next == last => "else".to_string(),
                        next => format!("else if ({index}[0] == {next})"),
                    });
                }
                self.call(last, "", "");
                self.file.code.close();
            }
            Flow::Call => self.call(0, "", ""),
            Flow::While => self.repeat(),
            Flow::Scan { length, reverse } => self.scan(length, reverse),
        }
    }

    /// The dtype and the number of elements of a result of the body.
    fn size(&self, output: usize) -> (DType, usize) {
        let body = self.control.body();
        let buffer = &body.buffers[body.outputs[output].0 as usize];
        (buffer.dtype, buffer.numel)
    }

    /// Copies the carries of an iteration to buffers.
    fn copy_carries(&mut self, from: &str, to: impl Fn(usize) -> Option<String>) {
        for carry in 0..self.control.carries {
            let ((dtype, numel), Some(to)) = (self.size(carry), to(carry)) else { continue };
            if let Some(line) = copy(&to, &format!("carry{carry}[{from}]"), numel, dtype) {
                self.file.code.line(line);
            }
        }
    }

    /// Declares the carries, and sets them to their first values.
    fn start(&mut self) {
        for carry in 0..self.control.carries {
            let ((dtype, numel), t) = (self.size(carry), types::memory(self.size(carry).0));
            self.file.code.line(format!("static {t} carry{carry}[2][{}];", numel.max(1)));
            let first = format!("carry{carry}[0]");
            match self.control.operands[carry] {
                Feed::Buffer(id) => {
                    let line = copy(&first, &id.to_string(), numel, dtype);
                    line.into_iter().for_each(|line| self.file.code.line(line));
                }
                Feed::Splat { value, .. } => {
                    let value = match value {
                        Splat::Literal(literal) => types::literal_in_memory(literal),
                        Splat::Scalar { argument, .. } => format!("a{argument}"),
                    };
                    self.file.code.count("i", numel);
                    self.file.code.line(format!("{first}[i] = {value};"));
                    self.file.code.close();
                }
                Feed::Nothing => unreachable!("the verifier checked that a carry has a value"),
            }
        }
    }

    /// Calls a program in iteration `t`, whose parts of slices and stacks have the number `part`.
    fn call(&mut self, number: usize, t: &str, part: &str) {
        let (control, program) = (self.control, &self.control.programs[number]);
        let function = &self.programs[number];
        let numel = |operand: usize| {
            let argument = BufferKind::Argument(operand);
            program.buffers.iter().find(|b| b.kind == argument).map_or(0, |b| b.numel)
        };
        let operand = |&operand: &usize| match control.operands[operand] {
            _ if operand < control.carries => format!("carry{operand}[{t} % 2]"),
            Feed::Buffer(id) if operand < control.carries + control.slices => {
                format!("{id} + {}*{part}", numel(operand))
            }
            Feed::Buffer(id) => id.to_string(),
            _ => unreachable!("the verifier checked that the operand is in memory"),
        };
        let condition = matches!(control.flow, Flow::While) && number == 0;
        let result = |&result: &usize| match control.results.get(result).copied().flatten() {
            _ if condition => "more".to_string(),
            _ if result < control.carries => format!("carry{result}[({t} + 1) % 2]"),
            Some(id) if matches!(control.flow, Flow::Scan { .. }) => {
                format!("{id} + {}*{part}", self.size(result).1)
            }
            Some(id) => id.to_string(),
            None => unreachable!("the function gives needed results only"),
        };
        let operands = function.operands.iter().map(operand);
        let scalars = function.scalars.keys().map(|a| format!("a{a}"));
        let arguments: Vec<String> =
            operands.chain(function.results.iter().map(result)).chain(scalars).collect();
        self.file.code.call(&function.name, &arguments);
    }

    /// The buffer of a final carry.
    fn last(control: &Control) -> impl Fn(usize) -> Option<String> {
        let results = control.results.clone();
        move |carry| results.get(carry).copied().flatten().map(|id| id.to_string())
    }

    fn repeat(&mut self) {
        self.file.code.line("bool more[1];");
        self.file.code.line("int64_t t = 0;");
        self.start();
        self.file.code.open("for (;; t++)");
        self.call(0, "t", "");
        self.file.code.open("if (!more[0])");
        self.file.code.line("break;");
        self.file.code.close();
        self.call(1, "t", "");
        self.file.code.close();
        self.copy_carries("t % 2", Self::last(self.control));
    }

    fn scan(&mut self, length: usize, reverse: bool) {
        self.start();
        self.file.code.count("t", length);
        let part = match reverse {
            true => {
                self.file.code.line(format!("const int64_t part = {} - t;", length - 1));
                "part"
            }
            false => "t",
        };
        let (given, control) = (self.control.body().outputs.len(), self.control);
        let sizes: Vec<usize> = (0..given).map(|output| self.size(output).1).collect();
        // The history has the carry before each iteration.
        let history = |carry: usize| {
            let id = control.results.get(given + carry).copied().flatten()?;
            Some(format!("{id} + {}*{part}", sizes[carry]))
        };
        self.copy_carries("t % 2", history);
        self.call(0, "t", part);
        self.file.code.close();
        self.copy_carries(&format!("{}", length % 2), Self::last(self.control));
    }
}
