//! The parser of the text form of programs; the module above has the grammar.

mod control;
mod inst;

use crate::ir::{
    Access, AccessId, Block, Buffer, BufferId, BufferKind, Core, Item, Kernel, KernelProgram,
    Local, ReduceOp, Routine, RowwiseCore, Store, Val,
};
use crate::verify::verify;
use girih_ir::ops::ScatterMode;
use girih_ir::ops::fields::Context;
use girih_ir::text::cursor::{Cursor, Lexeme};
use girih_ir::{DType, Error, Op, OpCode, Result};
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::str::FromStr;

/// The maximum nesting depth of programs in control kernels.
const MAX_DEPTH: usize = 64;

impl KernelProgram {
    /// Parses a program: the inverse of printing. The verifier has checked the result.
    ///
    /// Errors: [`Error::Parse`] with line, column and the expected text; for a program that the
    /// verifier rejects, at the faulty kernel, with the violated rule.
    pub fn parse(text: &str) -> Result<KernelProgram> {
        KernelProgram::from_text(text, true)
    }

    /// As [`KernelProgram::parse`] without the verifier: the program must not be run.
    ///
    /// Errors: [`Error::Parse`].
    pub(crate) fn read(text: &str) -> Result<KernelProgram> {
        KernelProgram::from_text(text, false)
    }

    fn from_text(text: &str, checked: bool) -> Result<KernelProgram> {
        let cursor = Cursor::new(text);
        let mut parser = Parser { cursor, buffers: Vec::new(), depth: 0, checked };
        let program = parser.program()?;
        parser.space();
        if !parser.rest().is_empty() {
            return Err(parser.expected("the end of the text"));
        }
        Ok(program)
    }
}

impl FromStr for KernelProgram {
    type Err = Error;

    fn from_str(text: &str) -> Result<KernelProgram> {
        KernelProgram::parse(text)
    }
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    /// The buffers of the program that is being parsed.
    buffers: Vec<Buffer>,
    /// The number of enclosing control kernels.
    depth: usize,
    /// Whether the verifier checks the parsed program.
    checked: bool,
}

/// The state of a kernel while its lines are parsed.
struct Space {
    extents: SmallVec<[usize; 6]>,
    parallel: usize,
    /// The accesses in the order of first occurrence.
    accesses: Vec<Access>,
}

impl Space {
    fn access(&mut self, access: Access) -> AccessId {
        let known = self.accesses.iter().position(|a| *a == access);
        let at = known.unwrap_or_else(|| {
            self.accesses.push(access);
            self.accesses.len() - 1
        });
        AccessId(at as u32)
    }
}

impl<'a> Deref for Parser<'a> {
    type Target = Cursor<'a>;

    fn deref(&self) -> &Cursor<'a> {
        &self.cursor
    }
}

impl DerefMut for Parser<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.cursor
    }
}

impl<'a> Parser<'a> {
    fn program(&mut self) -> Result<KernelProgram> {
        while !self.at_header() && self.at_label('b') {
            self.buffer()?;
        }
        let (mut kernels, mut places) = (Vec::new(), Vec::new());
        while self.at_header() {
            places.push(self.at);
            kernels.push(self.kernel()?);
        }
        let end = self.at;
        if !self.accept("outputs:") {
            return Err(
                self.expected("a kernel (NAME over [SIZES]) or the outputs (outputs: [b0])")
            );
        }
        let outputs = self.list(Parser::declared_buffer)?;
        let program =
            KernelProgram { buffers: std::mem::take(&mut self.buffers), kernels, outputs };
        if !self.checked {
            return Ok(program);
        }
        match verify(&program) {
            Ok(()) => Ok(program),
            Err(broken) => {
                let at = broken.number.map_or(end, |number| places[number]);
                Err(self.error_at(at, broken.to_string()))
            }
        }
    }

    /// `b0 = argument 0: f32[6]`
    fn buffer(&mut self) -> Result<()> {
        let (label, number) = self.label('b')?;
        if number as usize != self.buffers.len() {
            let reason = format!("expected b{}: buffers are numbered in order", self.buffers.len());
            return Err(self.error(label, reason));
        }
        self.symbol("=")?;
        let kind = match self.accept_word("argument") {
            true => {
                let position = self.number("the position of an argument")?;
                self.symbol(":")?;
                BufferKind::Argument(position)
            }
            false => BufferKind::Computed,
        };
        let dtype = self.dtype()?;
        self.symbol("[")?;
        let numel = self.number("a number of elements")?;
        self.symbol("]")?;
        self.buffers.push(Buffer { dtype, numel, kind });
        Ok(())
    }

    /// Whether the parser is before `NAME over`.
    fn at_header(&mut self) -> bool {
        self.space();
        let start = self.at;
        let named = match self.rest().starts_with('"') {
            true => self.string().is_ok(),
            false => !self.word().text.is_empty(),
        };
        let header = named && self.accept_word("over");
        self.at = start;
        header
    }

    /// The number of characters before the position on its line.
    fn column(&self) -> usize {
        let before = &self.text[..self.at];
        before.chars().rev().take_while(|&c| c != '\n').count()
    }

    fn kernel(&mut self) -> Result<Kernel> {
        let indent = self.column();
        let name = match self.rest().starts_with('"') {
            true => self.string()?,
            false => self.word().text.to_string(),
        };
        self.accept_word("over");
        let (extents, parallel) = self.extents()?;
        let mut space = Space { extents, parallel, accesses: Vec::new() };
        let core = self.core(&mut space, indent)?;
        let bare = matches!(core, Core::Rows(_) | Core::Library(_) | Core::Control(_));
        let body = if bare { Block::default() } else { self.block(&mut space, parallel)? };
        let stores = if bare { Vec::new() } else { self.stores(parallel, &body)? };
        let Space { extents, parallel, accesses } = space;
        Ok(Kernel { name, extents, parallel, accesses, core, body, stores })
    }

    /// `[2, 3 | 4]`; without a bar, all extents are parallel.
    fn extents(&mut self) -> Result<(SmallVec<[usize; 6]>, usize)> {
        self.symbol("[")?;
        let (mut extents, mut parallel) = (SmallVec::new(), None);
        loop {
            if parallel.is_none() && self.accept("|") {
                parallel = Some(extents.len());
                extents.push(self.number("a size")?);
            } else if self.accept("]") {
                return Ok((parallel.unwrap_or(extents.len()), extents)).map(|(p, e)| (e, p));
            } else {
                if !extents.is_empty() {
                    self.symbol(",")?;
                }
                extents.push(self.number("a size")?);
            }
        }
    }

    /// The text between a kernel's first line and its body.
    fn core(&mut self, space: &mut Space, indent: usize) -> Result<Core> {
        if self.at_header() {
            return match self.column() > indent {
                true => self.rows(indent),
                false => Ok(Core::Map),
            };
        }
        if self.accept("prologue:") {
            return self.reduction(space);
        }
        if self.accept_word("matmul") {
            return self.matmul(space);
        }
        if self.accept("scatter_") {
            return self.scatter(space);
        }
        if self.at_word("local") {
            return self.rows(indent);
        }
        if self.at_label('b') || self.at_word("_") {
            return self.results();
        }
        Ok(Core::Map)
    }

    fn reduction(&mut self, space: &mut Space) -> Result<Core> {
        let dims = space.extents.len();
        let prologue = self.block(space, dims)?;
        let stores = self.stores(dims, &prologue)?;
        if !self.accept_word("reduce") {
            return Err(self.expected(
                "an instruction (v0 = …), a store (b0[i0] = v0) or the reduction (reduce sum v0)",
            ));
        }
        let op = self.choice(ReduceOp::ALL.map(|op| (op.name(), op)))?;
        let value = self.value_of(&prologue)?;
        Ok(Core::Reduce { prologue, value, op, stores })
    }

    fn matmul(&mut self, space: &mut Space) -> Result<Core> {
        let dims = space.extents.len();
        let lhs = self.access(dims)?;
        self.word_or("by")?;
        let rhs = self.access(dims)?;
        let dtype = if self.accept_word("in") { self.dtype()? } else { lhs.dtype };
        let (mut rows, mut columns) = (1, 1);
        if self.accept(",") {
            ["dims", "of", "rows"].into_iter().try_for_each(|word| self.word_or(word))?;
            self.symbol(":")?;
            rows = self.number("the number of dimensions that are rows")?;
            self.symbol(",")?;
            ["of", "columns"].into_iter().try_for_each(|word| self.word_or(word))?;
            self.symbol(":")?;
            columns = self.number("the number of dimensions that are columns")?;
        }
        Ok(Core::Gemm { lhs, rhs, dtype, rows, columns })
    }

    fn scatter(&mut self, space: &mut Space) -> Result<Core> {
        let mode = self.choice(ScatterMode::ALL.map(|mode| (mode.name(), mode)))?;
        let zeroed = !self.accept_word("onto");
        self.symbol("+")?;
        let stride = self.integer()?;
        self.symbol("*")?;
        let index = self.access(space.extents.len())?;
        self.word_or("of")?;
        let size = self.number("the size of an axis")?;
        self.symbol(",")?;
        self.word_or("independent")?;
        let independent = self.list(|p| p.number("a dimension"))?.into();
        Ok(Core::Scatter { mode, zeroed, index, stride, size, independent })
    }

    /// The locals, then kernels that are indented deeper.
    fn rows(&mut self, indent: usize) -> Result<Core> {
        let (mut locals, mut parts) = (Vec::new(), Vec::new());
        while !self.at_header() && self.accept_word("local") {
            let buffer = self.declared_buffer()?;
            self.symbol(":")?;
            let row_bytes = self.number("a number of bytes")?;
            ["bytes", "a", "row"].into_iter().try_for_each(|word| self.word_or(word))?;
            locals.push(Local { buffer, row_bytes });
        }
        while self.at_header() && self.column() > indent {
            if self.depth >= MAX_DEPTH {
                return Err(self.too_deep());
            }
            self.depth += 1;
            let part = self.kernel();
            self.depth -= 1;
            parts.push(part?);
        }
        Ok(Core::Rows(Box::new(RowwiseCore { parts, locals })))
    }

    fn too_deep(&self) -> Error {
        self.error_at(self.at, format!("kernels nest deeper than {MAX_DEPTH}"))
    }

    /// `b1[4], _ =`, then a routine, a branch or a loop.
    fn results(&mut self) -> Result<Core> {
        let start = self.at;
        let mut results = Vec::new();
        loop {
            results.push(match self.accept_word("_") {
                true => None,
                false => {
                    let buffer = self.declared_buffer()?;
                    let dims = if self.at_symbol("[") { Some(self.sizes()?) } else { None };
                    Some((buffer, dims))
                }
            });
            if !self.accept(",") {
                break;
            }
        }
        self.symbol("=")?;
        if let Some(flow) = self.flow()? {
            if results.iter().flatten().any(|(_, dims)| dims.is_some()) {
                return Err(self.error_at(start, "a branch or loop gives whole buffers".into()));
            }
            let results = results.into_iter().map(|r| r.map(|(buffer, _)| buffer)).collect();
            return self.control(flow, results);
        }
        let item = |result: Option<(BufferId, Option<SmallVec<[usize; 2]>>)>| match result {
            None => Ok(None),
            Some((buffer, Some(dims))) => Ok(Some(self.item(buffer, dims))),
            Some((buffer, None)) => {
                let reason = format!("a routine gives items; expected sizes, as in {buffer}[4]");
                Err(self.error_at(start, reason))
            }
        };
        let results = results.into_iter().map(item).collect::<Result<_>>()?;
        self.routine(results)
    }

    /// `sort(size=0)(b0[4])`
    fn routine(&mut self, results: SmallVec<[Option<Item>; 3]>) -> Result<Core> {
        let call = self.call()?;
        let code = OpCode::named(call.name.text);
        let code = code.map_err(|reason| self.error(call.name, reason))?;
        self.symbol("(")?;
        let mut operands: SmallVec<[Item; 2]> = SmallVec::new();
        while !self.accept(")") {
            if !operands.is_empty() {
                self.symbol(",")?;
            }
            let buffer = self.declared_buffer()?;
            let dims = self.sizes()?;
            operands.push(self.item(buffer, dims));
        }
        let rank = operands.first().map(|item| item.dims.len());
        let cx = Context { rank, ..Context::default() };
        let attrs = self.attributes(code, &call.plain, &call, cx)?;
        let op = Op::new(code, attrs);
        Ok(Core::Library(Box::new(Routine { op, operands, results })))
    }

    fn item(&self, buffer: BufferId, dims: SmallVec<[usize; 2]>) -> Item {
        Item { buffer, dtype: self.buffers[buffer.0 as usize].dtype, dims }
    }

    fn sizes(&mut self) -> Result<SmallVec<[usize; 2]>> {
        Ok(self.list(|p| p.number("a size"))?.into())
    }

    /// Stores of a block over that many dimensions.
    fn stores(&mut self, dims: usize, block: &Block) -> Result<Vec<Store>> {
        let mut stores = Vec::new();
        while !self.at_header() && self.at_label('b') {
            let access = self.access(dims)?;
            self.symbol("=")?;
            let value = self.value_of(block)?;
            stores.push(Store { access, value });
        }
        Ok(stores)
    }

    /// `b0[3*i0 + i1]`
    fn access(&mut self, dims: usize) -> Result<Access> {
        let buffer = self.declared_buffer()?;
        self.symbol("[")?;
        let (offset, strides) = self.affine(dims)?;
        self.symbol("]")?;
        Ok(Access { buffer, dtype: self.buffers[buffer.0 as usize].dtype, offset, strides })
    }

    /// A sum of terms over `dims` dimensions.
    fn affine(&mut self, dims: usize) -> Result<(isize, SmallVec<[isize; 6]>)> {
        let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, dims);
        let (mut offset, mut first) = (0_isize, true);
        loop {
            let negative = self.accept("-");
            if !negative && !self.accept("+") && !std::mem::take(&mut first) {
                return Ok((offset, strides));
            }
            first = false;
            let negative = negative != self.accept("-");
            self.space();
            let at = self.at;
            let factor = match self.at_label('i') {
                true => 1,
                false => self.integer_from("a number, or a dimension such as i0")?,
            };
            let signed = if negative { factor.checked_neg() } else { Some(factor) };
            let term = match self.at_label('i') || self.accept("*") {
                true => {
                    let (label, dim) = self.label('i')?;
                    let known = strides.get_mut(dim as usize);
                    known.ok_or_else(|| match dims {
                        0 => self.cursor.error(label, "there are no dimensions here".into()),
                        _ => self.cursor.error(label, format!("expected i0 to i{}", dims - 1)),
                    })?
                }
                false => &mut offset,
            };
            let sum = signed.and_then(|signed| term.checked_add(signed));
            *term = sum.ok_or_else(|| {
                self.cursor.error_at(at, "the number is out of the range of 64 bits".into())
            })?;
        }
    }

    /// A buffer that is declared above.
    fn declared_buffer(&mut self) -> Result<BufferId> {
        let (label, number) = self.label('b')?;
        if (number as usize) < self.buffers.len() {
            return Ok(BufferId(number));
        }
        let known = match self.buffers.len() {
            0 => "no buffer is declared".into(),
            n => format!("b0 to b{} are", n - 1),
        };
        Err(self.error(label, format!("{} is not declared above; {known}", label.text)))
    }

    /// A value of a block.
    fn value_of(&mut self, block: &Block) -> Result<Val> {
        let (label, number) = self.label('v')?;
        match (number as usize) < block.insts.len() {
            true => Ok(Val(number)),
            false => {
                let reason = format!("{} is not defined above in this block", label.text);
                Err(self.error(label, reason))
            }
        }
    }

    /// A letter and a number, such as `b12`.
    fn label(&mut self, letter: char) -> Result<(Lexeme<'a>, u32)> {
        self.space();
        let start = self.at;
        let lexeme = self.word();
        let digits = lexeme
            .text
            .strip_prefix(letter)
            .filter(|d| d.starts_with(|c: char| c.is_ascii_digit()));
        match digits.and_then(|digits| digits.parse().ok()) {
            Some(number) => Ok((lexeme, number)),
            None => {
                self.at = start;
                let what = match letter {
                    'b' => "a buffer, such as b0",
                    'v' => "a value, such as v0",
                    _ => "a dimension, such as i0",
                };
                Err(self.expected(what))
            }
        }
    }

    fn at_label(&mut self, letter: char) -> bool {
        self.space();
        let start = self.at;
        let found = self.label(letter).is_ok();
        self.at = start;
        found
    }

    fn at_symbol(&mut self, symbol: &str) -> bool {
        self.space();
        self.rest().starts_with(symbol)
    }

    fn at_word(&mut self, word: &str) -> bool {
        self.space();
        let start = self.at;
        let found = self.word().text == word;
        self.at = start;
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.at_word(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn word_or(&mut self, word: &str) -> Result<()> {
        match self.accept_word(word) {
            true => Ok(()),
            false => Err(self.expected(&format!("'{word}'"))),
        }
    }

    /// One word of a list of words.
    fn choice<T: Copy, const N: usize>(&mut self, choices: [(&str, T); N]) -> Result<T> {
        self.space();
        let start = self.at;
        let word = self.word().text;
        let found = choices.iter().find(|(name, _)| *name == word);
        found.map(|(_, value)| *value).ok_or_else(|| {
            self.at = start;
            self.expected(&format!("one of {}", choices.map(|(name, _)| name).join(", ")))
        })
    }

    fn dtype(&mut self) -> Result<DType> {
        self.choice(DType::ALL.map(|dtype| (dtype.short(), dtype)))
    }

    fn number(&mut self, what: &str) -> Result<usize> {
        self.space();
        let start = self.at;
        let digits = self.until(|c| !c.is_ascii_digit());
        digits.text.parse().map_err(|_| match digits.text.is_empty() {
            true => self.expected(what),
            false => {
                self.at = start;
                self.error(digits, "the number is out of the range of 64 bits".into())
            }
        })
    }

    /// A number with or without a sign.
    fn integer(&mut self) -> Result<isize> {
        let negative = self.accept("-");
        let value = self.integer_from("an integer")?;
        Ok(if negative { -value } else { value })
    }

    /// A number without a sign.
    fn integer_from(&mut self, what: &str) -> Result<isize> {
        self.space();
        let at = self.at;
        let value = self.number(what)?;
        isize::try_from(value)
            .map_err(|_| self.error_at(at, "the number is out of the range of 64 bits".into()))
    }

    /// `[…, …]`
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.symbol("[")?;
        let mut items = Vec::new();
        while !self.accept("]") {
            if !items.is_empty() {
                self.symbol(",")?;
            }
            items.push(one(self)?);
        }
        Ok(items)
    }
}
