//! Numeric codes of dtypes, node types, ops and layouts in PFGB files. The codes are part of the
//! format: new entries are appended, and existing entries never move.

use crate::ops::Category;
use crate::ops::fields::{Bytes, Expected, Field};
use crate::{DType, Op, OpCode, Shape};
use std::fmt;

/// Dtypes by code, with NumPy's names.
const DTYPES: [&str; 15] = [
    "float32",
    "float16",
    "bfloat16",
    "int32",
    "int16",
    "int8",
    "bool",
    "float64",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
];

/// Ops by code. An op that is not in the table is written by name, with the code [`EXTENDED`].
pub const OPS: &[&str] = &[
    "neg",
    "abs",
    "sign",
    "floor",
    "ceil",
    "round",
    "trunc",
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "erf",
    "not",
    "isnan",
    "isinf",
    "isfinite",
    "cast",
    "add",
    "sub",
    "mul",
    "div",
    "floor_divide",
    "remainder",
    "pow",
    "maximum",
    "minimum",
    "atan2",
    "and",
    "or",
    "xor",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "where",
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reduce_min",
    "reduce_any",
    "reduce_all",
    "argmax",
    "argmin",
    "matmul",
    "reshape",
    "permute",
    "broadcast_to",
    "slice",
    "flip",
    "concat",
    "pad",
    "take",
    "take_along_axis",
    "scatter_add",
    "scatter_add_along_axis",
    "stop_gradient",
    "relu",
    "sigmoid",
    "log_sigmoid",
    "silu",
    "softplus",
    "gelu",
    "mean",
    "var",
    "logsumexp",
    "softmax",
    "log_softmax",
    "layer_norm",
    "cross_entropy",
    "iota",
    "random_uniform",
    "random_normal",
    "random_bits",
];

/// The op code after which the op's name follows.
pub const EXTENDED: u8 = 255;

/// The code of a dtype.
pub fn dtype_code(dtype: DType) -> u8 {
    let code = DTYPES.iter().position(|name| *name == dtype.name());
    code.expect("every dtype has a code; a test walks them") as u8
}

/// The dtype with this code.
pub fn dtype_of(code: u8) -> Option<DType> {
    DTYPES.get(code as usize).and_then(|name| DType::parse(name).ok())
}

/// The code of an op, if its name is in the table.
pub fn op_code(op: OpCode) -> Option<u8> {
    let name = op.def().name;
    OPS.iter().position(|known| *known == name).map(|code| code as u8)
}

/// The op with this name, except the ops that have node types of their own.
pub fn op_named(name: &str) -> Option<OpCode> {
    let op = OpCode::ALL.iter().copied().find(|op| op.def().name == name)?;
    (!matches!(op, OpCode::Input | OpCode::Parameter | OpCode::Constant)).then_some(op)
}

/// Immutable data.
pub const CONSTANT: u8 = 0;
/// Trainable data.
pub const PARAMETER: u8 = 1;
/// Data that the caller supplies.
pub const INPUT: u8 = 2;
/// The first node type that carries an op; the last is [`LAST_OP`].
pub const FIRST_OP: u8 = 4;
/// See [`FIRST_OP`].
pub const LAST_OP: u8 = 14;

/// The node type of an op, by its category: 4 elementwise, 5 reduction, 6 matmul, 7 reshape, 8
/// transpose, 9 slice, 10 concat, 11 broadcast. Types added after the first version of the format:
/// 12 index, library or control, 13 composite, 14 leaf. A composite that is elementwise or a
/// reduction, such as relu and mean, has the type of that category. Readers use the op and ignore
/// the type.
pub fn node_type(op: &Op) -> u8 {
    let category = op.code.def().category();
    match (op.code, category) {
        (OpCode::Constant, _) => CONSTANT,
        (OpCode::Parameter, _) => PARAMETER,
        (OpCode::Input, _) => INPUT,
        (_, Category::Elementwise) => FIRST_OP,
        (_, Category::Reduction) => 5,
        (_, Category::Matmul) => 6,
        (_, Category::Reshape) => 7,
        (_, Category::Transpose) => 8,
        (_, Category::Slice) => 9,
        (_, Category::Concat) => 10,
        (_, Category::Broadcast) => 11,
        (_, Category::Index | Category::Library | Category::Control) => 12,
        (_, Category::Composite) => 13,
        (_, Category::Leaf) => LAST_OP,
    }
}

/// The distribution of a value over a grid of processing elements (PEs), as the format defines it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoredLayout {
    /// The whole value on one PE.
    #[default]
    SinglePe,
    /// Rows distributed over this many PEs.
    RowPartition(i32),
    /// Columns distributed over this many PEs.
    ColPartition(i32),
    /// Tiles over the rows and columns of a grid.
    Grid([i32; 2]),
    /// Block-cyclic: rows and columns of the grid, then rows and columns of a block.
    BlockCyclic([i32; 4]),
    /// Rows and columns of the grid, and for each tensor axis the grid axis that it maps to.
    Custom([i32; 2], Vec<i32>),
}

impl StoredLayout {
    /// Parses a layout's printed form, for a tensor of shape `shape`.
    ///
    /// Errors: what was expected, as a continuation of the word "expected".
    pub fn parse(text: &str, shape: &Shape) -> Result<StoredLayout, Expected> {
        let expected = || {
            format!(
                "a layout such as SinglePE, RowPartition(4), ColPartition(4), Grid(2, 2), \
                 BlockCyclic(2, 2, 8, 8) or Custom(2, 2, [0, 1]), found '{text}'"
            )
        };
        let (name, rest) = text.split_once('(').unwrap_or((text, ")"));
        let inside = rest.strip_suffix(')').ok_or_else(expected)?;
        let (sizes, axes) = match inside.split_once('[') {
            Some((sizes, axes)) => (sizes, Some(axes.strip_suffix(']').ok_or_else(expected)?)),
            None => (inside, None),
        };
        let numbers = |text: &str| -> Option<Vec<i32>> {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            items.map(|item| item.parse().ok()).collect()
        };
        let sizes = numbers(sizes).ok_or_else(expected)?;
        let axes = axes.map(|axes| numbers(axes).ok_or_else(expected)).transpose()?;
        let layout = match (name.trim(), &*sizes, axes) {
            ("SinglePE", [], None) if text == "SinglePE" => StoredLayout::SinglePe,
            ("RowPartition", &[n], None) => StoredLayout::RowPartition(n),
            ("ColPartition", &[n], None) => StoredLayout::ColPartition(n),
            ("Grid", &[r, c], None) => StoredLayout::Grid([r, c]),
            ("BlockCyclic", &[r, c, br, bc], None) => StoredLayout::BlockCyclic([r, c, br, bc]),
            ("Custom", &[r, c], Some(axes)) => StoredLayout::Custom([r, c], axes),
            _ => return Err(expected()),
        };
        layout.check(shape)?;
        Ok(layout)
    }

    /// Fails if no tensor of this shape can have the layout: counts below one, too many processing
    /// elements to count, rows or columns of a tensor of lower rank, or tensor axes that do not
    /// each map to one grid axis.
    ///
    /// Errors: what was expected, as a continuation of the word "expected".
    pub fn check(&self, shape: &Shape) -> Result<(), Expected> {
        let (counts, least): (&[i32], usize) = match self {
            StoredLayout::SinglePe => (&[], 0),
            StoredLayout::RowPartition(n) | StoredLayout::ColPartition(n) => {
                (std::slice::from_ref(n), 1)
            }
            StoredLayout::Grid(sizes) => (sizes, 2),
            StoredLayout::BlockCyclic(sizes) => (sizes, 2),
            StoredLayout::Custom(sizes, _) => (sizes, 0),
        };
        if counts.iter().any(|&n| n < 1) {
            return Err(format!("a layout with counts of at least 1, found {self}"));
        }
        if counts.iter().take(2).try_fold(1i32, |all, &n| all.checked_mul(n)).is_none() {
            return Err(format!("a layout of fewer than 2^31 processing elements, found {self}"));
        }
        if shape.rank() < least {
            return Err(format!("a layout for a tensor of rank {}, found {self}", shape.rank()));
        }
        let StoredLayout::Custom(_, axes) = self else { return Ok(()) };
        let once = |axis: i32| axes.iter().filter(|&&a| a == axis).count() <= 1;
        let known = axes.iter().all(|axis| (-1..=1).contains(axis));
        match axes.len() == shape.rank() && known && once(0) && once(1) {
            true => Ok(()),
            false => Err(format!(
                "an axis of the grid (0, 1, or -1 for none) per axis of a tensor of rank {}, each \
                 once, found {self}",
                shape.rank()
            )),
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let (kind, numbers): (u8, Vec<i32>) = match self {
            StoredLayout::SinglePe => (0, vec![]),
            StoredLayout::RowPartition(n) => (1, vec![*n]),
            StoredLayout::ColPartition(n) => (2, vec![*n]),
            StoredLayout::Grid(sizes) => (3, sizes.to_vec()),
            StoredLayout::BlockCyclic(sizes) => (4, sizes.to_vec()),
            StoredLayout::Custom(sizes, axes) => {
                let count = axes.len() as i32;
                (5, sizes.iter().chain([&count]).chain(axes).copied().collect())
            }
        };
        out.push(kind);
        numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    }

    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Result<StoredLayout, Expected> {
        fn numbers<const N: usize>(bytes: &mut Bytes<'_>) -> Result<[i32; N], Expected> {
            let mut numbers = [0; N];
            for number in &mut numbers {
                *number = i32::from_le_bytes(bytes.array()?);
            }
            Ok(numbers)
        }
        let [kind] = bytes.array()?;
        Ok(match kind {
            0 => StoredLayout::SinglePe,
            1 => StoredLayout::RowPartition(numbers::<1>(bytes)?[0]),
            2 => StoredLayout::ColPartition(numbers::<1>(bytes)?[0]),
            3 => StoredLayout::Grid(numbers(bytes)?),
            4 => StoredLayout::BlockCyclic(numbers(bytes)?),
            5 => {
                let sizes = numbers(bytes)?;
                let count = bytes.count(4)?;
                let axes = (0..count).map(|_| Ok(numbers::<1>(bytes)?[0]));
                StoredLayout::Custom(sizes, axes.collect::<Result<_, Expected>>()?)
            }
            other => return Err(format!("a layout type from 0 to 5, found {other}")),
        })
    }
}

impl fmt::Display for StoredLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoredLayout::SinglePe => f.write_str("SinglePE"),
            StoredLayout::RowPartition(n) => write!(f, "RowPartition({n})"),
            StoredLayout::ColPartition(n) => write!(f, "ColPartition({n})"),
            StoredLayout::Grid([r, c]) => write!(f, "Grid({r}, {c})"),
            StoredLayout::BlockCyclic([r, c, br, bc]) => {
                write!(f, "BlockCyclic({r}, {c}, {br}, {bc})")
            }
            StoredLayout::Custom([r, c], axes) => write!(f, "Custom({r}, {c}, {axes:?})"),
        }
    }
}

/// Appends a length and the text's bytes.
pub(super) fn encode_text(text: &str, out: &mut Vec<u8>) {
    (text.len() as u32).encode(out);
    out.extend_from_slice(text.as_bytes());
}

/// Reads text that [`encode_text`] has written.
pub(super) fn decode_text(bytes: &mut Bytes<'_>) -> Result<String, Expected> {
    let len = bytes.count(1)?;
    utf8(bytes.take(len)?)
}

/// The bytes as UTF-8 text.
pub(crate) fn utf8(bytes: &[u8]) -> Result<String, Expected> {
    std::str::from_utf8(bytes).map(str::to_string).map_err(|_| "text in UTF-8".into())
}
