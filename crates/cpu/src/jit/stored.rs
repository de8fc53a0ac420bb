//! The data types of GEMM operands.

/// The data type of an operand in memory. In packed form, floats are f32 and integers have 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    F32,
    F16,
    BF16,
    I8,
    U8,
    I16,
    U16,
    /// Signed or unsigned: the sums have the same bits.
    I32,
    /// Two signed 16-bit integers that are consecutive along K. Only packed operands have this data
    /// type: one instruction multiplies and adds both integers.
    Pair,
}

impl Stored {
    pub fn size(self) -> usize {
        match self {
            Stored::F32 | Stored::I32 | Stored::Pair => 4,
            Stored::F16 | Stored::BF16 | Stored::I16 | Stored::U16 => 2,
            Stored::I8 | Stored::U8 => 1,
        }
    }

    /// Whether the values are integers, which are accumulated modulo 2^32.
    pub fn is_integer(self) -> bool {
        !matches!(self, Stored::F32 | Stored::F16 | Stored::BF16)
    }

    /// Whether the values are signed 16-bit integers, so that pairs of them can be packed.
    pub fn is_short(self) -> bool {
        matches!(self, Stored::I8 | Stored::U8 | Stored::I16)
    }

    /// The data type in packed form, unless pairs are packed.
    pub fn packed(self) -> Stored {
        if self.is_integer() { Stored::I32 } else { Stored::F32 }
    }
}
