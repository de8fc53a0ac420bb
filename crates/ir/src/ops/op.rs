//! An op with its attributes ([`Op`]), the argument of the op's rules ([`OpCall`]), and the checks
//! that rules share.

use super::*;

/// An op with its attributes: what a node applies to its operands. The attributes take 16 bytes:
/// small attributes are inline, large attributes are shared.
#[derive(Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Op {
    /// The op.
    pub code: OpCode,
    /// The attributes of the op.
    pub attrs: Attrs,
}

impl Op {
    /// An op with attributes.
    pub fn new(code: OpCode, attrs: Attrs) -> Op {
        Op { code, attrs }
    }

    /// The op's definition.
    pub fn def(&self) -> &'static OpDef {
        self.code.def()
    }

    /// The op's name.
    pub fn name(&self) -> &'static str {
        self.def().name
    }

    /// Kind of index relation.
    pub fn class(&self) -> Class {
        self.def().class
    }

    /// True for ops whose values are arguments of the program: inputs, parameters, run-time scalars
    /// and the keys of random leaves.
    pub fn takes_argument(&self) -> bool {
        match self.code {
            OpCode::Constant => self.attrs == Attrs::None,
            OpCode::Input if self.as_outside().is_some() => false,
            code => code.def().class == Class::Leaf && code != OpCode::Iota,
        }
    }

    /// A leaf that stands for a tensor outside the graph, identified by a number of the front end.
    /// A rule's recording creates it, possibly inside regions. The front end turns it into an
    /// operand before any other code reads the graph.
    pub fn outside(key: u64) -> Op {
        Op::new(OpCode::Input, Attrs::Value(key))
    }

    /// The front end's number of a tensor outside the graph, if the op is such a leaf.
    pub fn as_outside(&self) -> Option<u64> {
        match (self.code, &self.attrs) {
            (OpCode::Input, &Attrs::Value(key)) => Some(key),
            _ => None,
        }
    }

    /// Index of the result that the node stands for; 0 for ops with one result.
    pub fn output_index(&self) -> usize {
        match self.attrs {
            Attrs::Library { result, .. } | Attrs::Host { result, .. } => result as usize,
            Attrs::Part { result, .. } => result as usize,
            Attrs::Control { result, .. } => result as usize,
            _ => 0,
        }
    }

    /// The same op with another result index.
    pub fn with_result(&self, result: u8) -> Op {
        if let Some((_, control)) = self.as_control() {
            return Op::control(self.code, control.clone(), result as usize);
        }
        if let Some((_, call)) = self.as_host() {
            return Op::host(call.clone(), result as usize);
        }
        if let Attrs::Part { axis, at, .. } = &self.attrs {
            return Op::split(*axis as usize, at.clone(), result as usize);
        }
        let (_, flag, size) = self.attrs.library();
        Op::new(self.code, Attrs::Library { result, flag, size })
    }

    /// True for the random leaves, which CSE never merges and constant folding never evaluates.
    pub fn is_random(&self) -> bool {
        matches!(self.code, OpCode::RandomUniform | OpCode::RandomNormal | OpCode::RandomBits)
    }

    /// Checks operands and attributes, and returns the result's spec.
    pub fn infer(&self, inputs: &[&TensorSpec]) -> Result<TensorSpec> {
        let def = self.def();
        if inputs.len() < def.arity.0 || inputs.len() > def.arity.1 {
            return Err(Error::InvalidArgument {
                op: def.name,
                reason: format!(
                    "takes {} to {} operands, got {}",
                    def.arity.0,
                    def.arity.1,
                    inputs.len()
                ),
            });
        }
        let spec = (def.infer)(OpCall { op: self, inputs })?;
        // Broadcasting, matrix products and casts can give a result of more bytes than the operands
        // have. After this check no element or byte count overflows.
        spec.shape.check(def.name, spec.dtype)?;
        Ok(spec)
    }
}

impl From<OpCode> for Op {
    fn from(code: OpCode) -> Op {
        Op { code, attrs: Attrs::None }
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.name(), self.attrs)
    }
}

/// An op and the specs of its operands: the argument of the op's rules.
#[derive(Clone, Copy)]
pub struct OpCall<'a> {
    /// The op with its attributes.
    pub op: &'a Op,
    /// Specs of the operands, in order.
    pub inputs: &'a [&'a TensorSpec],
}

impl OpCall<'_> {
    /// Name of the op, for error messages.
    pub fn name(&self) -> &'static str {
        self.op.name()
    }
}

/// Returns the operands' common dtype; an error if they differ.
pub(crate) fn same_dtype(call: OpCall<'_>) -> Result<DType> {
    let first = call.inputs[0].dtype;
    match call.inputs.iter().find(|s| s.dtype != first) {
        None => Ok(first),
        Some(s) => Err(Error::DTypeMismatch { op: call.name(), lhs: first, rhs: s.dtype }),
    }
}

/// Fails unless `ok`; the message says which dtypes the op takes.
pub(crate) fn require_dtype(
    call: OpCall<'_>,
    dtype: DType,
    ok: bool,
    expected: &'static str,
) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::DTypeUnsupported { op: call.name(), dtype, expected }) }
}
