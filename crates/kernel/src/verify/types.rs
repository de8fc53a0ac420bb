//! Rule V3: the dtypes that each op takes. They follow from the definitions of the ops; this module
//! keeps no list.

use super::{Check, require};
use crate::ir::{Block, Inst, Kernel, ReduceOp, Val};
use girih_ir::ops::ScatterMode;
use girih_ir::{Attrs, AxisSet, DType, Node, Op, OpCode, TensorSpec};
use smallvec::SmallVec;

/// Checks that the op has the result dtype `dtype` for operands of these specs.
fn gives(op: &Op, operands: &[TensorSpec], dtype: DType) -> Check {
    let refs: SmallVec<[&TensorSpec; 3]> = operands.iter().collect();
    let result = op.infer(&refs).map_err(|e| format!("V3: {e}"))?;
    require(result.dtype == dtype, || {
        format!("V3: {} gives {}, not {}", op.name(), result.dtype.short(), dtype.short())
    })
}

/// Checks an elementwise op on values of a block.
pub(super) fn op(
    kernel: &Kernel,
    block: &Block,
    code: OpCode,
    args: &[Val],
    dtype: DType,
) -> Check {
    let spec = |v: &Val| TensorSpec::scalar(kernel.dtype(block, *v));
    let specs: SmallVec<[TensorSpec; 3]> = args.iter().map(spec).collect();
    let op = match code {
        OpCode::Cast | OpCode::Bitcast => Op::new(code, Attrs::DType(dtype)),
        code => Op::from(code),
    };
    gives(&op, &specs, dtype)
}

/// Checks a reduction of values of that dtype.
pub(super) fn reduction(op: ReduceOp, dtype: DType) -> Check {
    let (code, gives_index) = match op {
        ReduceOp::Sum => (OpCode::ReduceSum, false),
        ReduceOp::Prod => (OpCode::ReduceProd, false),
        ReduceOp::Max => (OpCode::ReduceMax, false),
        ReduceOp::Min => (OpCode::ReduceMin, false),
        ReduceOp::Any => (OpCode::ReduceAny, false),
        ReduceOp::All => (OpCode::ReduceAll, false),
        ReduceOp::ArgMax => (OpCode::Argmax, true),
        ReduceOp::ArgMin => (OpCode::Argmin, true),
    };
    let op = Op::new(code, Attrs::axes(AxisSet::one(0), false));
    gives(&op, &[TensorSpec::new([1], dtype)], if gives_index { DType::I64 } else { dtype })
}

/// Checks a GEMM in that dtype.
pub(super) fn gemm(dtype: DType) -> Check {
    let matrix = TensorSpec::new([1, 1], dtype);
    gives(&OpCode::Matmul.into(), &[matrix.clone(), matrix], dtype)
}

/// Checks a scatter onto elements of that dtype.
pub(super) fn scatter(mode: ScatterMode, dtype: DType) -> Check {
    let op = Op::new(OpCode::Scatter, Attrs::ScatterInto { axis: 0, mode });
    let (elements, index) = (TensorSpec::new([1], dtype), TensorSpec::new([1], DType::I64));
    gives(&op, &[elements.clone(), index, elements], dtype)
}

/// Checks an iota or a random leaf.
pub(super) fn leaf(inst: &Inst) -> Check {
    let (op, dtype) = match inst {
        Inst::Random { code, dtype, .. } => (Op::from(*code), *dtype),
        Inst::Iota { dtype, .. } => (Op::new(OpCode::Iota, Attrs::Axis(0)), *dtype),
        _ => return Ok(()),
    };
    let name = op.name();
    let node = Node { op, inputs: SmallVec::new(), spec: TensorSpec::new([1], dtype) };
    girih_ir::graph::verify_leaf(&node).map_err(|e| format!("V3: {name}: {e}"))
}
