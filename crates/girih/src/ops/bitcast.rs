//! Reinterpretation of the bits of tensors as another dtype. The op reinterprets real elements of
//! equal size. This module converts wider and narrower elements by shifts, and complex numbers by
//! their parts.

use super::stack;
use crate::{Operand, Result, Tensor};
use girih_ir::{Attrs, DType, Dim, Error, Op, OpCode, Shape};

impl Tensor {
    /// Reinterprets the elements' bits in memory, the lowest byte first, as another dtype. For an
    /// element of the same size the shape stays; otherwise the last axis keeps its number of bytes.
    /// If the tensor has the dtype already, the result is the tensor itself. Conversions of complex
    /// numbers to their parts, and of parts to complex numbers, have derivatives; other conversions
    /// have no derivative.
    ///
    /// Errors: a dtype error for bool unless the tensor is bool, since only the bytes 0 and 1
    /// represent a bool. For elements of another size, a shape error for a scalar and for a last
    /// axis whose bytes are not a whole number of elements.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Result<Tensor> {
        let (op, own, shape) = ("view", self.dtype(), self.shape());
        if dtype == own {
            return Ok(self.clone());
        }
        if dtype == DType::Bool {
            let expected =
                "another dtype: of the bits of a byte, only 0 and 1 are a bool; take x != 0";
            return Err(Error::DTypeUnsupported { op, dtype, expected }.into());
        }
        if shape.rank() == 0 && own.size() == dtype.size() {
            return self.reshape([1])?.bitcast(dtype)?.reshape(());
        }
        check_sizes(op, &shape, own, dtype)?;
        match (own.is_complex(), dtype.is_complex()) {
            (true, _) if dtype == own.real() => self.parts(),
            (true, _) => self.parts()?.bitcast(dtype),
            (_, true) => self.bitcast(dtype.real())?.joined(),
            _ if own.size() < dtype.size() => self.same_size(unsigned(own))?.widened(dtype),
            _ if own.size() > dtype.size() => self.same_size(unsigned(own))?.narrowed(dtype),
            _ => self.same_size(dtype),
        }
    }

    /// Reinterprets the bits as a real dtype of the same size.
    #[track_caller]
    fn same_size(&self, dtype: DType) -> Result<Tensor> {
        match self.dtype() == dtype {
            true => Ok(self.clone()),
            false => Tensor::record(Op::new(OpCode::Bitcast, Attrs::DType(dtype)), &[self]),
        }
    }

    /// Real and imaginary parts of complex numbers, adjacent in the last axis.
    #[track_caller]
    fn parts(&self) -> Result<Tensor> {
        stack(&[&self.real()?, &self.imag()?], -1)?.flatten(-2, -1)
    }

    /// Complex numbers from adjacent parts in the last axis.
    #[track_caller]
    fn joined(&self) -> Result<Tensor> {
        let pairs = self.grouped(2)?;
        let part = |at: usize| pairs.narrow(-1, at, 1)?.squeeze(-1);
        Tensor::record(OpCode::Complex.into(), &[&part(0)?, &part(1)?])
    }

    /// Splits the last axis into groups of `count` elements, which form a new last axis.
    #[track_caller]
    fn grouped(&self, count: usize) -> Result<Tensor> {
        let shape = self.shape();
        let last = shape.rank() - 1;
        let mut sizes = shape.with_dim(last, shape.dim(last).floor_div(count));
        sizes.push(count);
        self.reshape(sizes)
    }

    /// Combines groups of unsigned integers into wider elements by shifts.
    #[track_caller]
    fn widened(&self, dtype: DType) -> Result<Tensor> {
        let (size, wide) = (self.dtype().size(), unsigned(dtype));
        let groups = self.grouped(dtype.size() / size)?;
        let part = |at: usize| {
            let part = groups.narrow(-1, at, 1)?.squeeze(-1)?.astype(wide)?;
            let bits = Tensor::full(Operand::Int((8 * size * at) as i128), [], wide)?;
            part.shift_left(&bits)
        };
        let parts = (1..dtype.size() / size).map(part);
        let first = groups.narrow(-1, 0, 1)?.squeeze(-1)?.astype(wide);
        let all = parts.fold(first, |all, part| all?.bitwise_or(&part?));
        all?.same_size(dtype)
    }

    /// Splits unsigned integers into narrower elements, which form an axis that is merged with the
    /// last axis.
    #[track_caller]
    fn narrowed(&self, dtype: DType) -> Result<Tensor> {
        let (own, narrow) = (self.dtype(), unsigned(dtype));
        let part = |at: usize| {
            let bits = Tensor::full(Operand::Int((8 * dtype.size() * at) as i128), [], own)?;
            self.shift_right(&bits)?.astype(narrow)?.same_size(dtype)
        };
        let parts = (0..own.size() / dtype.size()).map(part).collect::<Result<Vec<_>>>()?;
        stack(&parts, -1)?.flatten(-2, -1)
    }
}

/// The unsigned integer dtype of a real dtype's size.
fn unsigned(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// Fails unless elements of both dtypes have one size, or the bytes of the last axis are a whole
/// number of elements of `dtype`.
fn check_sizes(op: &'static str, shape: &Shape, own: DType, dtype: DType) -> Result<()> {
    let (old, new) = (own.size(), dtype.size());
    if old == new {
        return Ok(());
    }
    let refuse = |reason: String| {
        let shape = shape.clone();
        Err(Error::InvalidShape { op, shape, reason }.into())
    };
    let sizes = format!("elements of {dtype} have {new} bytes, those of {own} {old}");
    let Some(last) = shape.rank().checked_sub(1) else {
        return refuse(format!("{sizes}: the last axis changes its size, and there is none"));
    };
    let whole = |last: Dim| last.remainder(new / old).is(0);
    match old > new || whole(shape.dim(last)) {
        true => Ok(()),
        false => refuse(format!(
            "{sizes}: the last axis, of {}, must be a multiple of {}",
            shape.dim(last),
            new / old
        )),
    }
}
