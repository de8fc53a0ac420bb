//! Parses instructions of blocks.

use super::{Parser, Space};
use crate::ir::{Block, Inst};
use girih_ir::{Class, Literal, Op, OpCode, Result};
use smallvec::SmallVec;

impl Parser<'_> {
    /// Instructions over `dims` dimensions.
    pub(super) fn block(&mut self, space: &mut Space, dims: usize) -> Result<Block> {
        let mut block = Block::default();
        while !self.at_header() && self.at_label('v') {
            let (label, number) = self.label('v')?;
            if number as usize != block.insts.len() {
                let next = block.insts.len();
                let reason = format!("expected v{next}: values of a block are numbered in order");
                return Err(self.error(label, reason));
            }
            self.symbol("=")?;
            let inst = self.inst(space, dims, &block)?;
            block.push(inst);
        }
        Ok(block)
    }

    fn inst(&mut self, space: &mut Space, dims: usize, block: &Block) -> Result<Inst> {
        self.space();
        let start = self.at;
        match self.word().text {
            "load" => {
                let access = self.access(dims)?;
                return Ok(Inst::Load(space.access(access)));
            }
            "gather" => return self.gather(space, dims, block),
            "wrap" => return self.wrap(block, false),
            "check" => {
                self.word_or("label")?;
                return self.wrap(block, true);
            }
            "iota" => {
                let (offset, strides) = self.affine(dims)?;
                return Ok(Inst::Iota { offset, strides, dtype: self.typed()? });
            }
            "core" => return Ok(Inst::Core { dtype: self.typed()? }),
            "argument" => {
                let argument = self.number("the position of an argument")?;
                return Ok(Inst::Scalar { argument, dtype: self.typed()? });
            }
            name if self.at_symbol("(") => {
                let name = girih_ir::text::cursor::Lexeme { at: start, text: name };
                let code = OpCode::named(name.text);
                let code = code.map_err(|reason| self.error(name, reason))?;
                self.symbol("(")?;
                return match Op::from(code).is_random() {
                    true => self.random(code, dims),
                    false if code.def().class == Class::Elementwise => self.op(code, block),
                    false => {
                        let reason = format!("{} is no elementwise op", name.text);
                        Err(self.error(name, reason))
                    }
                };
            }
            _ => self.at = start,
        }
        self.literal()
    }

    /// `1.5:f32`
    pub(super) fn literal<T: From<Literal>>(&mut self) -> Result<T> {
        self.space();
        let value = self.until(|c| c.is_whitespace() || ":,()[]{}=#\"".contains(c));
        if value.text.is_empty() || !self.at_symbol(":") {
            self.at = value.at;
            return Err(self.expected(
                "an instruction: load b0[i0], an op such as add(v0, v1): f32, a value such as \
                 1.5:f32, gather, wrap, check label, iota, core or argument",
            ));
        }
        let dtype = self.typed()?;
        let literal = Literal::parse(dtype, value.text);
        let literal = literal.ok_or_else(|| {
            self.error(value, format!("expected a value of dtype {}", dtype.short()))
        });
        literal.map(T::from)
    }

    /// `: f32`
    pub(super) fn typed(&mut self) -> Result<girih_ir::DType> {
        self.symbol(":")?;
        self.dtype()
    }

    /// `gather b0[i0] + 4*v1 of 10`
    fn gather(&mut self, space: &mut Space, dims: usize, block: &Block) -> Result<Inst> {
        let access = self.access(dims)?;
        self.symbol("+")?;
        let stride = self.integer()?;
        self.symbol("*")?;
        let index = self.value_of(block)?;
        self.word_or("of")?;
        let size = self.number("the size of an axis")?;
        Ok(Inst::Gather { access: space.access(access), index, stride, size })
    }

    fn wrap(&mut self, block: &Block, label: bool) -> Result<Inst> {
        let index = self.value_of(block)?;
        self.word_or("of")?;
        let size = self.number("the size of an axis")?;
        Ok(Inst::Wrap { index, size, label })
    }

    fn random(&mut self, code: OpCode, dims: usize) -> Result<Inst> {
        self.word_or("argument")?;
        let argument = self.number("the position of an argument")?;
        self.symbol(",")?;
        let (offset, strides) = self.affine(dims)?;
        self.symbol(")")?;
        Ok(Inst::Random { code, argument, offset, strides, dtype: self.typed()? })
    }

    fn op(&mut self, code: OpCode, block: &Block) -> Result<Inst> {
        let mut args: SmallVec<[_; 3]> = SmallVec::new();
        while !self.accept(")") {
            if !args.is_empty() {
                self.symbol(",")?;
            }
            args.push(self.value_of(block)?);
        }
        Ok(Inst::Op { code, args, dtype: self.typed()? })
    }
}

impl From<Literal> for Inst {
    fn from(literal: Literal) -> Inst {
        Inst::Literal(literal)
    }
}
