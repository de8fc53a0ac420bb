//! Records ops by name, with their attributes as the text form of graphs prints them.

use crate::{Device, Error, Operand, Result, Tensor, random};
use girih_ir::dim::Symbol;
use girih_ir::ops::control::Regions;
use girih_ir::ops::fields::{Context, FieldMut, Given, Mismatch, takes};
use girih_ir::{Attrs, Class, DType, Dim, Graph, Op, OpCode, Shape, TensorSpec};
use girih_record::node::State;
use std::sync::Arc;

/// The value of an op's attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// A boolean.
    Bool(bool),
    /// An integer: an axis, a count, or a value of an integer dtype.
    Int(i128),
    /// A real number.
    Float(f64),
    /// A word such as a mode, or a value as the text form prints it.
    Text(String),
    /// A dtype.
    DType(DType),
    /// A size, which may be symbolic.
    Size(Dim),
    /// The bounds of a slice along one axis: start, end and step.
    Range(Dim, Dim, Dim),
    /// Several values. A nested list holds the numbers of one axis.
    List(Vec<Attribute>),
    /// The graphs that a branch, loop or call runs.
    Graphs(Vec<Graph>),
}

impl Attribute {
    /// Formats the value as the text form prints it. `inside` marks an item of a list.
    fn text(&self, inside: bool) -> String {
        match self {
            Attribute::Bool(value) => value.to_string(),
            Attribute::Int(value) => value.to_string(),
            Attribute::Float(value) => format!("{value:?}"),
            Attribute::Text(text) => text.clone(),
            Attribute::DType(dtype) => dtype.short().to_string(),
            Attribute::Size(size) if inside || size.known().is_some() => size.to_string(),
            Attribute::Size(size) => format!("[{size}]"),
            Attribute::Range(start, end, step) => format!("{start}:{end}:{step}"),
            Attribute::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.text(true)).collect();
                match inside {
                    true => items.join("_"),
                    false => format!("[{}]", items.join(", ")),
                }
            }
            Attribute::Graphs(graphs) => format!("{} graphs", graphs.len()),
        }
    }

    /// Adds the symbols of the value's sizes to `found`.
    fn symbols(&self, found: &mut Vec<&'static Symbol>) {
        match self {
            Attribute::Size(size) => size.symbols(found),
            Attribute::Range(start, end, step) => {
                [start, end, step].into_iter().for_each(|size| size.symbols(found));
            }
            Attribute::List(items) => items.iter().for_each(|item| item.symbols(found)),
            _ => {}
        }
    }

    /// Parses the text of an attribute.
    fn of_text(text: &str) -> Attribute {
        if let Ok(value) = text.parse() {
            return Attribute::Bool(value);
        }
        if let Ok(value) = text.parse() {
            return Attribute::Int(value);
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
            let items = inner.split(',').map(str::trim).filter(|item| !item.is_empty());
            return Attribute::List(items.map(Attribute::of_item).collect());
        }
        text.parse().map_or_else(|_| Attribute::Text(text.to_string()), Attribute::Float)
    }

    /// Parses an item of a list.
    fn of_item(text: &str) -> Attribute {
        let sizes = |separator: char| -> Option<Vec<usize>> {
            text.split(separator).map(|part| part.parse().ok()).collect()
        };
        match (sizes(':').as_deref(), sizes('_')) {
            (Some(&[start, end, step]), _) => {
                Attribute::Range(start.into(), end.into(), step.into())
            }
            (_, Some(sizes)) if sizes.len() > 1 => Attribute::List(
                sizes.into_iter().map(|size| Attribute::Int(size as i128)).collect(),
            ),
            _ => Attribute::of_text(text),
        }
    }

    /// Converts axes that count from the end to axes that count from the front.
    fn counted_from_front(&self, op: &'static str, rank: usize) -> Result<Attribute> {
        match self {
            Attribute::Int(axis) if *axis < 0 => match *axis + rank as i128 {
                front @ 0.. => Ok(Attribute::Int(front)),
                _ => {
                    let axis = i64::try_from(*axis).unwrap_or(i64::MIN);
                    Err(girih_ir::Error::AxisOutOfRange { op, axis, rank }.into())
                }
            },
            Attribute::List(axes) => {
                let axes = axes.iter().map(|axis| axis.counted_from_front(op, rank));
                Ok(Attribute::List(axes.collect::<Result<_>>()?))
            }
            other => Ok(other.clone()),
        }
    }
}

/// The name of the attribute that the text form prints without a name.
fn plain_name(attrs: &Attrs) -> &'static str {
    match attrs {
        Attrs::DType(_) => "dtype",
        _ => "value",
    }
}

/// Records the op `name` on operands, with attributes. The names of ops are those of `docs/ops.md`,
/// and the names of attributes those of the text form of graphs. The attribute that the text form
/// prints without a name is `dtype` for a cast and `value` for other ops. Leaves have the
/// attributes `shape` and `dtype`, and ops that run graphs have `regions`. Attributes with a
/// default may be omitted, and axes may count from the end. Two operands of an elementwise op without
/// attributes are converted to their common dtype, as by the op's function; other operands are not
/// converted.
///
/// ```
/// use girih::{Attribute, Tensor, apply};
///
/// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
/// let sums = apply("reduce_sum", &[&x], &[("dim", Attribute::List(vec![Attribute::Int(-1)]))])?;
/// assert_eq!(sums.to_vec::<f32>()?, [3.0, 7.0]);
/// # Ok::<(), girih::Error>(())
/// ```
///
/// Errors: [`Error::InvalidArgument`] for an unknown op, and for an attribute that is unknown,
/// missing or invalid; [`Error::Record`] for operands that do not fit.
#[track_caller]
pub fn apply(name: &str, operands: &[&Tensor], given: &[(&str, Attribute)]) -> Result<Tensor> {
    let code = OpCode::named(name).map_err(|reason| invalid(format!("apply: {reason}")))?;
    match (code.def().class, operands) {
        (Class::Leaf, _) => leaf(code, operands, given),
        // The function of an arithmetic op promotes its operands to their common dtype.
        (Class::Elementwise, &[a, b]) if given.is_empty() && a.dtype() != b.dtype() => {
            crate::binary(code, Operand::Tensor(a), Operand::Tensor(b))
        }
        _ => {
            let op = op_of(code, operands, given)?;
            Tensor::record(op, operands)
        }
    }
}

fn invalid(reason: String) -> Error {
    Error::InvalidArgument(reason)
}

fn op_of(code: OpCode, operands: &[&Tensor], given: &[(&str, Attribute)]) -> Result<Op> {
    let mut symbols: Vec<&'static Symbol> = Vec::new();
    for tensor in operands {
        tensor.shape().dims().for_each(|dim| dim.symbols(&mut symbols));
    }
    given.iter().for_each(|(_, value)| value.symbols(&mut symbols));
    let first = operands.first().map(|tensor| tensor.spec());
    let cx = Context {
        rank: first.as_ref().map(|spec| spec.shape.rank()),
        dtype: first.as_ref().map(|spec| spec.dtype),
        result: None,
        symbols: &symbols,
    };
    let is_regions = |(name, _): &&(&str, Attribute)| *name == "regions";
    let control = code.def().class == Class::Control;
    let regions = given.iter().filter(|_| control).find(is_regions);
    let rest: Vec<&(&str, Attribute)> =
        given.iter().filter(|attribute| !control || !is_regions(attribute)).collect();
    let mut attrs = read(code, &rest, cx)?;
    if let Attrs::Devices { to, .. } = attrs
        && Device::numbered(to).is_none()
    {
        return Err(invalid(format!("apply: to_device: no device has the number {to}")));
    }
    if let Attrs::Control { control, .. } = &mut attrs {
        let Some((_, Attribute::Graphs(graphs))) = regions else {
            let found =
                regions.map_or("none".into(), |(_, value)| format!("'{}'", value.text(false)));
            return Err(invalid(format!(
                "apply: {} takes regions, the graphs that it runs; got {found}",
                code.def().name
            )));
        };
        Arc::make_mut(control).regions = Regions::new(graphs.clone());
    }
    Ok(Op::new(code, attrs))
}

/// The attributes of an op other than its regions.
fn read(code: OpCode, given: &[&(&str, Attribute)], cx: Context<'_>) -> Result<Attrs> {
    let op = code.def().name;
    let plain = plain_name(&code.blank_attrs());
    let has_plain = has_plain(code);
    let mut texts: Vec<(&str, String)> = Vec::new();
    for (name, value) in given {
        let axes = ["dim", "perm"].contains(name).then_some(cx.rank).flatten();
        let value = match axes {
            Some(rank) => value.counted_from_front(op, rank)?,
            None => value.clone(),
        };
        // The parser of attributes identifies the unnamed attribute by an empty name.
        let known = match *name {
            "" => return Err(invalid(format!("apply: an attribute of {op} lacks its name"))),
            name if has_plain && name == plain => "",
            name => name,
        };
        texts.push((known, value.text(false)));
    }
    let listed: Vec<Given<'_>> = texts.iter().map(|(n, text)| (*n, text.as_str())).collect();
    let shown = |name: &'static str| if name.is_empty() { plain } else { name };
    code.read_attrs(&listed, cx).map_err(|mismatch| {
        invalid(match mismatch {
            Mismatch::Value { at, name, expected } => format!(
                "apply: attribute '{}' of {op}: expected {expected}, got '{}'",
                shown(name),
                texts[at].1
            ),
            Mismatch::Missing { name, expected } => {
                format!("apply: {op} lacks attribute '{}': expected {expected}", shown(name))
            }
            Mismatch::Unknown { at, takes: mut known } => {
                if has_plain {
                    known.insert(0, plain);
                }
                if code.def().class == Class::Control {
                    known.push("regions");
                }
                if code.def().class == Class::Leaf {
                    known.splice(0..0, ["shape", "dtype"]);
                }
                format!("apply: unexpected attribute '{}'; {}", given[at].0, takes(op, &known))
            }
        })
    })
}

/// Whether the op has an attribute that the text form prints without a name.
fn has_plain(code: OpCode) -> bool {
    let mut found = false;
    code.blank_attrs().fields(&mut |name, _| found |= name.is_empty());
    found
}

/// Records a leaf. Inputs and parameters are refused, since their data comes from outside.
fn leaf(code: OpCode, operands: &[&Tensor], given: &[(&str, Attribute)]) -> Result<Tensor> {
    let op = code.def().name;
    if !operands.is_empty() {
        let count = operands.len();
        return Err(invalid(format!("apply: {op} takes no operands, got {count}")));
    }
    if let OpCode::Input | OpCode::Parameter = code {
        return Err(invalid(format!(
            "apply: {op} is data from outside, which no name and attributes make; use a tensor"
        )));
    }
    let mut spec = TensorSpec::scalar(DType::F32);
    let field = |wanted: &str, field: &mut dyn FieldMut| {
        let found = given.iter().find(|(name, _)| *name == wanted);
        let text = found.map_or(String::new(), |(_, value)| value.text(false));
        let mut symbols = Vec::new();
        found.iter().for_each(|(_, value)| value.symbols(&mut symbols));
        let cx = Context { symbols: &symbols, ..Context::default() };
        field.parse(cx, &text).map_err(|expected| {
            invalid(match found {
                None => format!("apply: {op} lacks attribute '{wanted}': expected {expected}"),
                Some(_) => {
                    format!(
                        "apply: attribute '{wanted}' of {op}: expected {expected}, got '{text}'"
                    )
                }
            })
        })
    };
    field("shape", &mut spec.shape)?;
    field("dtype", &mut spec.dtype)?;
    spec.shape.check(op, spec.dtype)?;
    let rest: Vec<&(&str, Attribute)> =
        given.iter().filter(|(name, _)| !["shape", "dtype"].contains(name)).collect();
    let rank = Some(spec.shape.rank());
    let cx = Context { dtype: Some(spec.dtype), rank, ..Context::default() };
    let attrs = read(code, &rest, cx)?;
    let (shape, dtype) = (spec.shape.clone(), spec.dtype);
    let node = girih_ir::Node { op: Op::new(code, attrs), inputs: Default::default(), spec };
    girih_ir::graph::verify_leaf(&node)
        .map_err(|reason| girih_ir::Error::InvalidArgument { op, reason })?;
    match node.op.is_random() {
        true => random::leaf(op, code, shape, dtype),
        false => Ok(Tensor::with_state(node.op, &node.spec, State::Leaf)),
    }
}

/// The attributes of a node by name, as [`apply`] takes them. Attributes with their default value
/// are left out. An input or a parameter has no attributes.
pub(crate) fn attributes(
    op: &Op,
    spec: &TensorSpec,
    cx: Context<'_>,
) -> Vec<(&'static str, Attribute)> {
    let mut found = Vec::new();
    if op.class() == Class::Leaf {
        if let OpCode::Input | OpCode::Parameter = op.code {
            return found;
        }
        found.push(("shape", shape_attribute(&spec.shape)));
        found.push(("dtype", Attribute::DType(spec.dtype)));
    }
    // The result's spec is not used here, so a target shape is always printed.
    let cx = Context { result: None, ..cx };
    let plain = plain_name(&op.attrs);
    op.attrs.fields(&mut |name, field| {
        if name != "regions" && !field.is_default(cx) {
            let mut text = String::new();
            field.print(cx, &mut text);
            let name = if name.is_empty() { plain } else { name };
            found.push((name, value_of(name, &text)));
        }
    });
    if let Attrs::Control { control, .. } = &op.attrs {
        found.push(("regions", Attribute::Graphs(control.regions.iter().cloned().collect())));
    }
    found
}

fn value_of(name: &str, text: &str) -> Attribute {
    match (name, DType::parse(text)) {
        ("dtype", Ok(dtype)) => Attribute::DType(dtype),
        _ => Attribute::of_text(text),
    }
}

fn shape_attribute(shape: &Shape) -> Attribute {
    let size = |dim: Dim| match dim.known() {
        Some(size) => Attribute::Int(size as i128),
        None => Attribute::Size(dim),
    };
    Attribute::List(shape.dims().map(size).collect())
}
