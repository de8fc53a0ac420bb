//! Parses branches and loops, with their programs.

use super::{MAX_DEPTH, Parser};
use crate::control::{Control, Feed, Flow, Splat};
use crate::ir::{BufferId, Core, KernelProgram};
use girih_ir::{Literal, Result};

/// The control flow, the number of carries and the number of slices.
pub(super) type Flowing = (Flow, usize, usize);

impl Parser<'_> {
    /// The text before the operands; `None` if it is the name of a routine.
    pub(super) fn flow(&mut self) -> Result<Option<Flowing>> {
        if self.accept_word("cond") {
            self.word_or("on")?;
            let index = self.declared_buffer()?;
            let dtype = self.buffers[index.0 as usize].dtype;
            return Ok(Some((Flow::Cond { index, dtype }, 0, 0)));
        }
        if self.accept_word("call") {
            return Ok(Some((Flow::Call, 0, 0)));
        }
        if self.accept_word("while") {
            self.word_or("of")?;
            let carries = self.number("a number of carries")?;
            self.word_or("carries")?;
            return Ok(Some((Flow::While, carries, 0)));
        }
        if !self.accept_word("scan") {
            return Ok(None);
        }
        self.word_or("of")?;
        let length = self.number("a number of parts")?;
        self.word_or("parts")?;
        let reverse = self.accept_word("in");
        if reverse {
            self.word_or("reverse")?;
        }
        self.word_or("with")?;
        let carries = self.number("a number of carries")?;
        self.word_or("carries")?;
        let mut slices = 0;
        if self.accept_word("and") {
            slices = self.number("a number of slices")?;
            self.word_or("slices")?;
        }
        Ok(Some((Flow::Scan { length, reverse }, carries, slices)))
    }

    pub(super) fn control(
        &mut self,
        (flow, carries, slices): Flowing,
        results: Vec<Option<BufferId>>,
    ) -> Result<Core> {
        let mut operands = Vec::new();
        self.symbol("(")?;
        while !self.accept(")") {
            if !operands.is_empty() {
                self.symbol(",")?;
            }
            operands.push(self.feed()?);
        }
        let workspace = match self.accept_word("in") {
            true => Some(self.declared_buffer()?),
            false => None,
        };
        let mut programs = Vec::new();
        while self.at_symbol("{") {
            if self.depth >= MAX_DEPTH {
                return Err(self.too_deep());
            }
            self.symbol("{")?;
            programs.push(self.inner()?);
            self.symbol("}")?;
        }
        let control = Control { flow, carries, slices, operands, results, workspace, programs };
        Ok(Core::Control(Box::new(control)))
    }

    /// A program in braces, which has buffers of its own.
    fn inner(&mut self) -> Result<KernelProgram> {
        let outer = std::mem::take(&mut self.buffers);
        self.depth += 1;
        let program = self.program();
        self.depth -= 1;
        self.buffers = outer;
        program
    }

    /// `b3`, `4 times 1.5:f32`, `4 times argument 2: f32` or `_`
    fn feed(&mut self) -> Result<Feed> {
        if self.accept_word("_") {
            return Ok(Feed::Nothing);
        }
        if self.at_label('b') {
            return Ok(Feed::Buffer(self.declared_buffer()?));
        }
        let numel =
            self.number("an operand: a buffer such as b0, a value such as 4 times 1.5:f32, or _")?;
        self.word_or("times")?;
        let value = match self.accept_word("argument") {
            true => {
                let argument = self.number("the position of an argument")?;
                Splat::Scalar { argument, dtype: self.typed()? }
            }
            false => Splat::Literal(self.literal::<Literal>()?),
        };
        Ok(Feed::Splat { value, numel })
    }
}
