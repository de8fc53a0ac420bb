//! The text form of programs: buffers, then kernels with their spaces, affine accesses and bodies.
//!
//! ```text
//! b0 = argument 0: f32[6]
//! b1 = f32[2]
//! fused_mul_reduce_sum over [2 | 3]
//!   prologue:
//!     v0 = load b0[3*i0 + i1]
//!     v1 = mul(v0, v0): f32
//!   reduce sum v1
//!   v0 = core: f32
//!   b1[i0] = v0
//! outputs: [b1]
//! ```
//!
//! [`KernelProgram::parse`] parses this text: `parse(print(p)) == p` for every program `p` that lowering
//! creates. In the grammar, `x*` is any number of `x`, `[x]?` at most one, `x,*` a list with
//! commas, and quoted words are literal:
//!
//! ```text
//! program   = buffer* kernel* 'outputs:' '[' B,* ']'
//! buffer    = B '=' ['argument' NUMBER ':']? DTYPE '[' NUMBER ']'
//! kernel    = name 'over' '[' NUMBER,* ['|' NUMBER,*]? ']' core inst* store*
//! core      = nothing                                                      (a map)
//!           | 'prologue:' inst* store* 'reduce' REDUCTION V                (a reduction)
//!           | 'matmul' access 'by' access ['in' DTYPE]?
//!             [',' 'dims' 'of' 'rows:' NUMBER ',' 'of' 'columns:' NUMBER]?
//!           | 'scatter_' MODE ['onto']? '+' INTEGER '*' access 'of' NUMBER ','
//!             'independent' '[' NUMBER,* ']'
//!           | local* kernel*                   (over rows; the parts are indented deeper)
//!           | result,* '=' OP '(' attributes ')' '(' item,* ')'            (a routine)
//!           | result,* '=' flow '(' feed,* ')' ['in' B]? ('{' program '}')*   (a branch or loop)
//! inst      = V '=' ( LITERAL ':' DTYPE
//!                   | 'argument' NUMBER ':' DTYPE                          (a run-time scalar)
//!                   | 'load' access
//!                   | 'gather' access '+' INTEGER '*' V 'of' NUMBER
//!                   | 'wrap' V 'of' NUMBER | 'check' 'label' V 'of' NUMBER
//!                   | 'iota' affine ':' DTYPE
//!                   | RANDOM '(' 'argument' NUMBER ',' affine ')' ':' DTYPE
//!                   | 'core' ':' DTYPE
//!                   | OP '(' V,* ')' ':' DTYPE )
//! store     = access '=' V
//! access    = B '[' affine ']'
//! affine    = term (('+' | '-') term)*         term = ['-']? (NUMBER | [NUMBER '*']? I)
//! item      = B '[' NUMBER,* ']'               result = item | B | '_'
//! local     = 'local' B ':' NUMBER 'bytes' 'a' 'row'
//! flow      = 'cond' 'on' B | 'call' | 'while' 'of' NUMBER 'carries'
//!           | 'scan' 'of' NUMBER 'parts' ['in' 'reverse']? 'with' NUMBER 'carries'
//!             ['and' NUMBER 'slices']?
//! feed      = B | NUMBER 'times' (LITERAL ':' DTYPE | 'argument' NUMBER ':' DTYPE) | '_'
//! ```
//!
//! Buffers `B` are `b0`, `b1`, … and values `V` of a block `v0`, `v1`, … in the order of their
//! definition; `I` is `i0`, `i1`, … for the dimensions of the space (in bodies, the parallel ones).
//! Sizes before the bar are parallel, those after it are reduced. A kernel's name is quoted if it
//! is not a word. White space only separates, except that parts are indented deeper than their
//! kernel over rows. A `#` begins a comment.

mod parse;
#[cfg(test)]
pub(crate) mod tests;

use crate::control::{Control, Feed, Flow, Splat};
use crate::ir::{
    Access, Block, Buffer, BufferId, BufferKind, Core, Inst, Item, Kernel, KernelProgram, Local,
    ReduceOp, Routine, RowwiseCore, Val,
};
use girih_ir::Literal;
use girih_ir::ops::fields::Context;
use girih_ir::text::quoted;
use std::fmt;

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for Val {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let BufferKind::Argument(position) = self.kind {
            write!(f, "argument {position}: ")?;
        }
        write!(f, "{}[{}]", self.dtype.short(), self.numel)
    }
}

/// `offset + sum(strides[d] * i[d])`, without zero terms.
struct Affine<'a>(isize, &'a [isize]);

impl fmt::Display for Affine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut sign = |f: &mut fmt::Formatter<'_>, negative| {
            let text = match (std::mem::take(&mut first), negative) {
                (true, true) => "-",
                (true, false) => "",
                (false, true) => " - ",
                (false, false) => " + ",
            };
            f.write_str(text)
        };
        let terms = self.1.iter().enumerate().filter(|(_, s)| **s != 0);
        let constant = self.0 != 0 || terms.clone().next().is_none();
        if constant {
            sign(f, self.0 < 0)?;
            write!(f, "{}", self.0.unsigned_abs())?;
        }
        for (dim, stride) in terms {
            sign(f, *stride < 0)?;
            match stride.unsigned_abs() {
                1 => write!(f, "i{dim}")?,
                by => write!(f, "{by}*i{dim}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.buffer, Affine(self.offset, &self.strides))
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.buffer, self.dims)
    }
}

/// `b1[4], b2[4] = sort(result=0)(b0[4])`; a result that is not needed is `_`.
impl fmt::Display for Routine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, result) in self.results.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match result {
                Some(item) => write!(f, "{item}")?,
                None => f.write_str("_")?,
            }
        }
        let first = self.operands.first();
        let cx = Context { rank: first.map(|item| item.dims.len()), ..Context::default() };
        write!(f, " = {}({})(", self.op.name(), self.op.attrs.text(cx))?;
        for (i, operand) in self.operands.iter().enumerate() {
            write!(f, "{}{operand}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

/// `b3, _ = scan of 4 parts(b0, 1.5, b1) in b5`, then the programs; `_` is an operand that is a
/// constant in the programs, or a result that is not needed.
impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("  ")?;
        for (i, result) in self.results.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match result {
                Some(id) => write!(f, "{id}")?,
                None => f.write_str("_")?,
            }
        }
        match self.flow {
            Flow::Cond { index, .. } => write!(f, " = cond on {index}(")?,
            Flow::Call => f.write_str(" = call(")?,
            Flow::While => write!(f, " = while of {} carries(", self.carries)?,
            Flow::Scan { length, reverse } => {
                let order = if reverse { " in reverse" } else { "" };
                let (carries, slices) = (self.carries, self.slices);
                write!(f, " = scan of {length} parts{order} with {carries} carries")?;
                match slices {
                    0 => f.write_str("(")?,
                    _ => write!(f, " and {slices} slices(")?,
                }
            }
        }
        for (i, operand) in self.operands.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            match operand {
                Feed::Buffer(id) => write!(f, "{id}")?,
                Feed::Splat { value, numel } => write!(f, "{numel} times {value}")?,
                Feed::Nothing => f.write_str("_")?,
            }
        }
        f.write_str(")")?;
        if let Some(workspace) = self.workspace {
            write!(f, " in {workspace}")?;
        }
        for program in &self.programs {
            f.write_str(" {")?;
            for line in program.to_string().lines() {
                write!(f, "\n    {line}")?;
            }
            f.write_str("\n  }")?;
        }
        Ok(())
    }
}

/// `1.5:f32`, or `argument 2: f32`.
impl fmt::Display for Splat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Splat::Literal(literal) => literal_text(f, *literal),
            Splat::Scalar { argument, dtype } => {
                write!(f, "argument {argument}: {}", dtype.short())
            }
        }
    }
}

fn literal_text(f: &mut fmt::Formatter<'_>, literal: Literal) -> fmt::Result {
    write!(f, "{}:{}", literal.text(), literal.dtype.short())
}

impl ReduceOp {
    /// All reductions.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Any,
        ReduceOp::All,
        ReduceOp::ArgMax,
        ReduceOp::ArgMin,
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Any => "any",
            ReduceOp::All => "all",
            ReduceOp::ArgMax => "argmax",
            ReduceOp::ArgMin => "argmin",
        }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Instructions separated by newlines. Accesses are printed as numbers, since only the kernel knows
/// the accesses.
impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, id: crate::ir::AccessId| write!(f, "a{}", id.0);
        for i in 0..self.insts.len() {
            if i > 0 {
                writeln!(f)?;
            }
            inst_text(f, self, Val(i as u32), at)?;
        }
        Ok(())
    }
}

fn inst_text(
    f: &mut fmt::Formatter<'_>,
    block: &Block,
    val: Val,
    access: impl Fn(&mut fmt::Formatter<'_>, crate::ir::AccessId) -> fmt::Result,
) -> fmt::Result {
    write!(f, "{val} = ")?;
    match block.inst(val) {
        Inst::Literal(literal) => literal_text(f, *literal),
        Inst::Scalar { argument, dtype } => write!(f, "argument {argument}: {}", dtype.short()),
        Inst::Load(id) => {
            f.write_str("load ")?;
            access(f, *id)
        }
        Inst::Gather { access: id, index, stride, size } => {
            f.write_str("gather ")?;
            access(f, *id)?;
            write!(f, " + {stride}*{index} of {size}")
        }
        Inst::Wrap { index, size, label: false } => write!(f, "wrap {index} of {size}"),
        Inst::Wrap { index, size, label: true } => write!(f, "check label {index} of {size}"),
        Inst::Iota { offset, strides, dtype } => {
            write!(f, "iota {}: {}", Affine(*offset, strides), dtype.short())
        }
        Inst::Random { code, argument, offset, strides, dtype } => {
            let (name, at) = (code.def().name, Affine(*offset, strides));
            write!(f, "{name}(argument {argument}, {at}): {}", dtype.short())
        }
        Inst::Core { dtype } => write!(f, "core: {}", dtype.short()),
        Inst::Op { code, args, dtype } => {
            write!(f, "{}(", code.def().name)?;
            for (i, arg) in args.iter().enumerate() {
                write!(f, "{}{arg}", if i == 0 { "" } else { ", " })?;
            }
            write!(f, "): {}", dtype.short())
        }
    }
}

impl Kernel {
    fn block_text(&self, f: &mut fmt::Formatter<'_>, block: &Block, indent: &str) -> fmt::Result {
        for i in 0..block.insts.len() {
            f.write_str(indent)?;
            inst_text(f, block, Val(i as u32), |f, id| write!(f, "{}", self.access(id)))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match is_plain(&self.name) {
            true => write!(f, "{} over [", self.name)?,
            false => write!(f, "{} over [", quoted(&self.name))?,
        }
        for (i, size) in self.extents.iter().enumerate() {
            f.write_str(match i {
                0 if self.parallel == 0 => "| ",
                0 => "",
                _ if i == self.parallel => " | ",
                _ => ", ",
            })?;
            write!(f, "{size}")?;
        }
        writeln!(f, "]")?;
        match &self.core {
            Core::Map | Core::Library(_) | Core::Control(_) => {}
            Core::Rows(rows) => return rows_text(f, rows),
            Core::Reduce { prologue, value, op, stores } => {
                writeln!(f, "  prologue:")?;
                self.block_text(f, prologue, "    ")?;
                for store in stores {
                    writeln!(f, "    {} = {}", store.access, store.value)?;
                }
                writeln!(f, "  reduce {op} {value}")?;
            }
            Core::Gemm { lhs, rhs, dtype, rows, columns } => {
                write!(f, "  matmul {lhs} by {rhs}")?;
                if lhs.dtype != *dtype || rhs.dtype != *dtype {
                    write!(f, " in {}", dtype.short())?;
                }
                match (rows, columns) {
                    (1, 1) => writeln!(f)?,
                    _ => writeln!(f, ", dims of rows: {rows}, of columns: {columns}")?,
                }
            }
            Core::Scatter { mode, zeroed, index, stride, size, independent } => {
                let (mode, onto) = (mode.name(), if *zeroed { "" } else { " onto" });
                writeln!(
                    f,
                    "  scatter_{mode}{onto} + {stride}*{index} of {size}, independent \
                     {independent:?}"
                )?;
            }
        }
        if let Core::Library(routine) = &self.core {
            writeln!(f, "  {routine}")?;
        }
        if let Core::Control(control) = &self.core {
            writeln!(f, "{control}")?;
        }
        self.block_text(f, &self.body, "  ")?;
        for store in &self.stores {
            writeln!(f, "  {} = {}", store.access, store.value)?;
        }
        Ok(())
    }
}

/// Whether the name needs no quotes.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The locals, then the parts.
fn rows_text(f: &mut fmt::Formatter<'_>, rows: &RowwiseCore) -> fmt::Result {
    for Local { buffer, row_bytes } in &rows.locals {
        writeln!(f, "  local {buffer}: {row_bytes} bytes a row")?;
    }
    for part in &rows.parts {
        part.to_string().lines().try_for_each(|line| writeln!(f, "  {line}"))?;
    }
    Ok(())
}

impl fmt::Display for KernelProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, buffer) in self.buffers.iter().enumerate() {
            writeln!(f, "b{i} = {buffer}")?;
        }
        for kernel in &self.kernels {
            write!(f, "{kernel}")?;
        }
        f.write_str("outputs: [")?;
        for (i, output) in self.outputs.iter().enumerate() {
            write!(f, "{}{output}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}
