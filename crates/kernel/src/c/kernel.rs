//! Kernels as C functions: loops over the points, the core, the instructions of the body, stores.

use super::ops::op;
use super::types::{self, cast, load, memory, rounded, store, value};
use super::{Code, Function, comment, summary};
use crate::ir::{
    Access, Block, Core, Inst, Item, Kernel, KernelProgram, Local, ReduceOp, Routine, RowwiseCore,
    Store, Val,
};
use crate::verify::{Split, split};
use girih_ir::ops::ScatterMode;
use girih_ir::{DType, OpCode};

/// The maximum size of an array on the stack in a kernel over rows.
const STACK_BYTES: usize = 4096;

/// The indices of a point, by dimension of the kernel; a dimension with one point has no name.
struct Point {
    names: Vec<String>,
    /// The indices relative to the first point of the row, for buffers that hold one row.
    in_row: Vec<String>,
}

/// Prints one kernel, or one part of a kernel over rows.
pub(super) struct KernelPrinter<'a> {
    program: &'a KernelProgram,
    kernel: &'a Kernel,
    code: &'a mut Code,
    point: Point,
    /// Buffers that hold one row.
    locals: &'a [Local],
}

/// `offset + sum(strides[d] * names[d])`, without zero terms.
fn affine(offset: isize, strides: &[isize], names: &[String]) -> String {
    let mut text = String::new();
    let mut term = |negative: bool, term: String| {
        text.push_str(match (text.is_empty(), negative) {
            (true, true) => "-",
            (true, false) => "",
            (false, true) => " - ",
            (false, false) => " + ",
        });
        text.push_str(&term);
    };
    if offset != 0 {
        term(offset < 0, offset.unsigned_abs().to_string());
    }
    for (&stride, name) in strides.iter().zip(names) {
        match stride.unsigned_abs() {
            _ if name.is_empty() => {}
            0 => {}
            1 => term(stride < 0, name.clone()),
            by => term(stride < 0, format!("{by}*{name}")),
        }
    }
    if text.is_empty() { "0".to_string() } else { text }
}

/// The sum of a position and the position that an index adds.
fn indexed(position: String, stride: isize, index: String) -> String {
    let moved = if stride == 1 { index } else { format!("{stride}*{index}") };
    if position == "0" { moved } else { format!("{position} + {moved}") }
}

impl<'a> KernelPrinter<'a> {
    pub fn new(program: &'a KernelProgram, kernel: &'a Kernel, code: &'a mut Code) -> Self {
        let point = Point { names: Vec::new(), in_row: Vec::new() };
        KernelPrinter { program, kernel, code, point, locals: &[] }
    }

    /// Prints the function.
    pub fn print(mut self, function: &Function) {
        if let Core::Library(routine) = &self.kernel.core {
            self.declaration(routine, function);
        }
        self.code.line(format!("/* {} */", summary(self.kernel)));
        self.code.function(function.linkage, &function.name, &function.parameters(self.program));
        match &self.kernel.core {
            Core::Rows(rows) => self.rows(rows),
            Core::Library(routine) => self.routine(routine, function),
            _ => self.part(1),
        }
        self.code.end_function();
    }

    /// Prints the parts of a kernel over rows, in a loop over the rows.
    fn rows(&mut self, rows: &'a RowwiseCore) {
        let count = self.kernel.points();
        for local in &rows.locals {
            let buffer = &self.program.buffers[local.buffer.0 as usize];
            let linkage = if local.row_bytes > STACK_BYTES { "static " } else { "" };
            let (t, id) = (memory(buffer.dtype), local.buffer);
            self.code.line(format!("{linkage}{t} {id}[{}];", (buffer.numel / count).max(1)));
        }
        if count > 1 {
            self.code.count("row", count);
        }
        for part in &rows.parts {
            self.code.line(format!("/* {} */", summary(part)));
            let mut printer = KernelPrinter::new(self.program, part, self.code);
            printer.locals = &rows.locals;
            printer.code.open("");
            printer.part(count);
            printer.code.close();
        }
        if count > 1 {
            self.code.close();
        }
    }

    /// Prints loops over the points of one of `rows` rows, with the computation of the kernel at
    /// each point.
    fn part(&mut self, rows: usize) {
        let depth = self.code.depth;
        if let Core::Scatter { zeroed: true, .. } = self.kernel.core {
            let Access { buffer, dtype, .. } = self.kernel.stores[0].access;
            let numel = self.program.buffers[buffer.0 as usize].numel;
            self.code.line(format!("memset({buffer}, 0, {numel} * sizeof({}));", memory(dtype)));
        }
        let split = split(self.kernel, rows).expect("a verified part has whole rows");
        self.row_indices(&split, rows);
        for dim in split.at + (split.outer > 1) as usize..self.kernel.parallel {
            self.dimension(dim);
        }
        match &self.kernel.core {
            Core::Reduce { prologue, value, op, stores } => {
                self.reduce(prologue, *value, *op, stores);
            }
            Core::Gemm { lhs, rhs, dtype, .. } => self.gemm(lhs, rhs, *dtype),
            _ => {}
        }
        self.block(&self.kernel.body);
        match &self.kernel.core {
            Core::Scatter { mode, index, stride, size, .. } => {
                self.scatter(*mode, index, *stride, *size);
            }
            _ => self.stores(&self.kernel.body, &self.kernel.stores),
        }
        while self.code.depth > depth {
            self.code.close();
        }
    }

    /// Adds the name of the next dimension's index.
    fn name(&mut self, name: String, in_row: String) {
        self.point.names.push(name);
        self.point.in_row.push(in_row);
    }

    /// Opens a loop over a dimension.
    fn dimension(&mut self, dim: usize) {
        let (name, extent) = (format!("i{dim}"), self.kernel.extents[dim]);
        if extent == 1 {
            return self.name(String::new(), String::new());
        }
        self.code.count(&name, extent);
        self.name(name.clone(), name);
    }

    /// Prints the indices that follow from the row's number, and a loop over the dimension that
    /// rows divide, if there is one.
    fn row_indices(&mut self, split: &Split, rows: usize) {
        let mut rest = rows;
        for dim in 0..split.at {
            let extent = self.kernel.extents[dim];
            // The row's number without the dimensions before this one.
            let number = if rest < rows { format!("row % {rest}") } else { "row".to_string() };
            rest /= extent;
            let name = match (extent, rest) {
                (1, _) => String::new(),
                (_, 1) if number == "row" => number,
                _ => {
                    let over = if rest > 1 { format!(" / {rest}") } else { String::new() };
                    self.code.line(format!("const int64_t i{dim} = {number}{over};"));
                    format!("i{dim}")
                }
            };
            self.name(name, String::new());
        }
        if split.outer > 1 {
            let (dim, within) = (split.at, self.kernel.extents[split.at] / split.outer);
            let number = if rest < rows { format!("row % {rest}") } else { "row".to_string() };
            let name = format!("i{dim}");
            self.code.line(format!("const int64_t first = {number} * {within};"));
            let header = format!("{name} = first; {name} < first + {within}; {name}++");
            self.code.open(format!("for (int64_t {header})"));
            self.name(name.clone(), format!("({name} - first)"));
        }
    }

    /// Opens loops over the reduced dimensions, or a block if all of them have one point.
    fn reduced(&mut self) {
        let depth = self.code.depth;
        (self.kernel.parallel..self.kernel.extents.len()).for_each(|dim| self.dimension(dim));
        if self.code.depth == depth {
            self.code.open("");
        }
    }

    /// Closes the loops over the reduced dimensions.
    fn end_reduced(&mut self, depth: usize) {
        while self.code.depth > depth {
            self.code.close();
        }
        self.point.names.truncate(self.kernel.parallel);
        self.point.in_row.truncate(self.kernel.parallel);
    }

    fn reduce(&mut self, prologue: &Block, val: Val, reduction: ReduceOp, stores: &[Store]) {
        let (name, dtype) = (reduction.name(), self.kernel.dtype(prologue, val));
        match reduction {
            ReduceOp::ArgMax | ReduceOp::ArgMin => {
                self.code.line(format!("int64_t {name} = -1;"));
                self.code.line(format!("{} best = 0;", value(dtype)));
            }
            _ => {
                let start = identity(reduction, dtype);
                self.code.line(format!("{} {name} = {start};", value(dtype)));
            }
        }
        let depth = self.code.depth;
        self.reduced();
        self.block(prologue);
        self.stores(prologue, stores);
        match reduction {
            ReduceOp::ArgMax => self.arg(name, ">", &val.to_string(), dtype),
            ReduceOp::ArgMin => self.arg(name, "<", &val.to_string(), dtype),
            _ => self.accumulate(name, reduction, &val.to_string(), dtype),
        }
        self.end_reduced(depth);
    }

    /// Combines a value with the accumulator.
    fn accumulate(&mut self, name: &str, reduction: ReduceOp, x: &str, dtype: DType) {
        let float = dtype.is_float();
        let next = match reduction {
            ReduceOp::Sum if float => return self.code.line(format!("{name} += {x};")),
            ReduceOp::Prod if float => return self.code.line(format!("{name} *= {x};")),
            ReduceOp::Prod if dtype.is_complex() => format!("prod_{}({name}, {x})", dtype.short()),
            _ => {
                let code = match reduction {
                    ReduceOp::Sum => OpCode::Add,
                    ReduceOp::Prod => OpCode::Mul,
                    ReduceOp::Max => OpCode::Maximum,
                    ReduceOp::Min => OpCode::Minimum,
                    ReduceOp::Any => OpCode::Or,
                    _ => OpCode::And,
                };
                op(code, &[name, x], dtype.widened(), dtype.widened())
            }
        };
        self.code.line(format!("{name} = {next};"));
    }

    /// Replaces the best element by a better element: the first of equal elements is the best, and
    /// a NaN is better than any number.
    fn arg(&mut self, name: &str, better: &str, x: &str, dtype: DType) {
        let nan = match dtype.is_float() {
            true => format!(" || (isnan({x}) && !isnan(best))"),
            false => String::new(),
        };
        self.code.open(format!("if ({name} < 0 || {x} {better} best{nan})"));
        let extents = &self.kernel.extents[self.kernel.parallel..];
        let stride = |d: usize| extents[d + 1..].iter().product::<usize>() as isize;
        let strides: Vec<isize> = (0..extents.len()).map(stride).collect();
        let at = affine(0, &strides, &self.point.names[self.kernel.parallel..]);
        self.code.line(format!("{name} = {at};"));
        self.code.line(format!("best = {x};"));
        self.code.close();
    }

    fn gemm(&mut self, lhs: &Access, rhs: &Access, dtype: DType) {
        let t = value(dtype);
        self.code.line(format!("{t} sum = {};", identity(ReduceOp::Sum, dtype)));
        let depth = self.code.depth;
        self.reduced();
        for (name, access) in [("a", lhs), ("b", rhs)] {
            let element = load(access.dtype, self.element(access));
            let element = match access.dtype.widened() == dtype.widened() {
                true => element,
                // Integers of another width are converted as they initialise the value.
                false if dtype.is_int() => element,
                false => cast(&element, access.dtype, dtype),
            };
            self.code.line(format!("const {t} {name} = {element};"));
        }
        if dtype.is_float() {
            self.code.line("sum += a * b;");
        } else {
            let product = op(OpCode::Mul, &["a", "b"], dtype, dtype);
            self.code.line(format!("const {t} ab = {product};"));
            self.accumulate("sum", ReduceOp::Sum, "ab", dtype);
        }
        self.end_reduced(depth);
    }

    fn scatter(&mut self, mode: ScatterMode, index: &Access, stride: isize, size: usize) {
        let Store { access, value: val } = &self.kernel.stores[0];
        let (dtype, x) = (access.dtype, val.to_string());
        let place = self.place(access);
        let index = wrapped(index.dtype, &self.element(index), size);
        self.code.line(format!("const int64_t at = {};", indexed(place, stride, index)));
        let target = format!("{}[at]", access.buffer);
        if mode == ScatterMode::Set {
            return self.code.line(format!("{target} = {};", store(dtype, x)));
        }
        self.code.line(format!("const {} old = {};", value(dtype), load(dtype, target.clone())));
        let nan = if dtype.is_float() { " || isnan(old)" } else { "" };
        let combined = match mode {
            ScatterMode::Min => format!("old < {x}{nan} ? old : {x}"),
            ScatterMode::Max => format!("old > {x}{nan} ? old : {x}"),
            ScatterMode::Mul => op(OpCode::Mul, &["old", &x], dtype, dtype.widened()),
            _ => op(OpCode::Add, &["old", &x], dtype, dtype.widened()),
        };
        self.code.line(format!("{target} = {};", store(dtype, combined)));
    }

    /// The position of an access in its array.
    fn place(&self, access: &Access) -> String {
        let local = self.locals.iter().any(|local| local.buffer == access.buffer);
        let names = if local { &self.point.in_row } else { &self.point.names };
        affine(access.offset, &access.strides, names)
    }

    fn element(&self, access: &Access) -> String {
        format!("{}[{}]", access.buffer, self.place(access))
    }

    fn block(&mut self, block: &Block) {
        for i in 0..block.insts.len() {
            let val = Val(i as u32);
            let (t, x) = (value(self.kernel.dtype(block, val)), self.inst(block, val));
            self.code.line(format!("const {t} {val} = {x};"));
        }
    }

    fn inst(&self, block: &Block, val: Val) -> String {
        let position =
            |offset: isize, strides: &[isize]| affine(offset, strides, &self.point.names);
        match block.inst(val) {
            Inst::Literal(literal) => types::literal(*literal),
            Inst::Scalar { argument, dtype } => load(*dtype, format!("a{argument}")),
            Inst::Load(id) => {
                let access = self.kernel.access(*id);
                load(access.dtype, self.element(access))
            }
            Inst::Gather { access, index, stride, size } => {
                let access = self.kernel.access(*access);
                let dtype = self.kernel.dtype(block, *index);
                let index = wrapped(dtype, &index.to_string(), *size);
                let at = indexed(self.place(access), *stride, index);
                load(access.dtype, format!("{}[{at}]", access.buffer))
            }
            Inst::Wrap { index, size, label: false } => {
                wrapped(self.kernel.dtype(block, *index), &index.to_string(), *size)
            }
            Inst::Wrap { index, size, label: true } => format!("check_label({index}, {size})"),
            Inst::Iota { offset, strides, dtype } => match dtype {
                DType::I64 => position(*offset, strides),
                _ => cast(&format!("({})", position(*offset, strides)), DType::I64, *dtype),
            },
            Inst::Random { code, argument, offset, strides, dtype } => {
                draw(*code, *argument, &position(*offset, strides), *dtype)
            }
            Inst::Core { dtype } => rounded(*dtype, self.core_name().to_string()),
            Inst::Op { code, args, dtype } => {
                let names: Vec<String> = args.iter().map(Val::to_string).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                op(*code, &names, self.kernel.dtype(block, args[args.len() - 1]), *dtype)
            }
        }
    }

    /// The accumulator of the core.
    fn core_name(&self) -> &'static str {
        match &self.kernel.core {
            Core::Reduce { op, .. } => op.name(),
            _ => "sum",
        }
    }

    fn stores(&mut self, block: &Block, stores: &[Store]) {
        for Store { access, value: val } in stores {
            debug_assert_eq!(self.kernel.dtype(block, *val), access.dtype);
            let (element, x) = (self.element(access), store(access.dtype, val.to_string()));
            self.code.line(format!("{element} = {x};"));
        }
    }

    /// Declares the function of a routine.
    fn declaration(&mut self, routine: &Routine, function: &Function) {
        let list = |items: Vec<Option<&Item>>, name: &str, constant: &str| {
            let one = |(i, item): (usize, Option<&Item>)| match item {
                Some(item) => format!("{constant}{} *{name}{i}", memory(item.dtype)),
                None => format!("void *{name}{i}"),
            };
            items.into_iter().enumerate().map(one).collect::<Vec<_>>()
        };
        let mut parameters = list(routine.operands.iter().map(Some).collect(), "operand", "const ");
        parameters.extend(list(routine.results.iter().map(Option::as_ref).collect(), "result", ""));
        self.code
            .line(format!("/* {}: not in the IR; to be linked. */", comment(&routine.to_string())));
        self.code.list(&format!("extern void girih_{}", function.name), &parameters, ";");
        self.code.text.push('\n');
    }

    /// Calls the function of a routine for each item of the batch.
    fn routine(&mut self, routine: &Routine, function: &Function) {
        let batch = self.kernel.points();
        if batch > 1 {
            self.code.count("i0", batch);
        }
        let item = |item: &Item| match (batch, item.len()) {
            (1, _) => item.buffer.to_string(),
            (_, 1) => format!("{} + i0", item.buffer),
            (_, len) => format!("{} + {len}*i0", item.buffer),
        };
        let results = routine.results.iter();
        let results = results.map(|result| result.as_ref().map_or("NULL".to_string(), item));
        let arguments: Vec<String> = routine.operands.iter().map(item).chain(results).collect();
        self.code.call(&format!("girih_{}", function.name), &arguments);
        if batch > 1 {
            self.code.close();
        }
    }
}

/// The value that a reduction starts from.
fn identity(reduction: ReduceOp, dtype: DType) -> String {
    let t = value(dtype);
    let limit = || t.trim_end_matches("_t").to_uppercase();
    let real = match (reduction, dtype) {
        (ReduceOp::Any, _) | (ReduceOp::Max, DType::Bool) => return "false".to_string(),
        (ReduceOp::All, _) | (ReduceOp::Min, DType::Bool) => return "true".to_string(),
        (ReduceOp::Max, _) if dtype.is_float() => return "-INFINITY".to_string(),
        (ReduceOp::Min, _) if dtype.is_float() => return "INFINITY".to_string(),
        (ReduceOp::Max, _) if dtype.is_unsigned() => "0".to_string(),
        (ReduceOp::Max, _) => return format!("{}_MIN", limit()),
        (ReduceOp::Min, _) => return format!("{}_MAX", limit()),
        (ReduceOp::Prod, _) => "1".to_string(),
        _ => "0".to_string(),
    };
    if dtype.is_complex() { format!("{{{real}, 0}}") } else { real }
}

/// The position that an index of a dtype addresses on an axis.
fn wrapped(dtype: DType, index: &str, size: usize) -> String {
    let function = if dtype == DType::U64 { "wrap_unsigned" } else { "wrap_index" };
    format!("{function}({index}, {size})")
}

/// The draw of a random leaf's element.
fn draw(code: OpCode, argument: usize, position: &str, dtype: DType) -> String {
    let short = dtype.widened().short();
    let half = types::is_half(dtype);
    match code {
        OpCode::RandomBits => format!("random_bits(a{argument}, {position})"),
        // Round down, so that 1 does not occur.
        OpCode::RandomUniform if half => {
            format!("round_down_{}(random_uniform_f32(a{argument}, {position}))", dtype.short())
        }
        OpCode::RandomUniform => format!("random_uniform_{short}(a{argument}, {position})"),
        _ => rounded(dtype, format!("random_normal_{short}(a{argument}, {position})")),
    }
}
