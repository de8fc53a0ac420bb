//! `.safetensors`: a JSON header with names, dtypes, shapes and offsets, then the elements.

use super::{Source, Tensors, aligned, check_names, malformed};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, MAX_RANK, TensorSpec};
use serde_json::{Map, Value, json};

const FORMAT: &str = "safetensors";
/// The maximum header length of the format.
const MAX_HEADER: usize = 100_000_000;

/// The names of dtypes in the format and in Girih.
const DTYPES: [(&str, &str); 14] = [
    ("BOOL", "bool"),
    ("U8", "uint8"),
    ("I8", "int8"),
    ("U16", "uint16"),
    ("I16", "int16"),
    ("F16", "float16"),
    ("BF16", "bfloat16"),
    ("U32", "uint32"),
    ("I32", "int32"),
    ("F32", "float32"),
    ("U64", "uint64"),
    ("I64", "int64"),
    ("F64", "float64"),
    ("C64", "complex64"),
];

/// Reads the tensors from the bytes of a `.safetensors` file, in the order of their data.
///
/// Errors: [`girih_ir::Error::Format`].
pub fn from_safetensors(bytes: &[u8]) -> Result<Tensors> {
    read(Source::of(bytes))
}

/// The tensors as the bytes of a `.safetensors` file, in decreasing order of element size, so that
/// each tensor is aligned to its element size.
///
/// Errors: [`Error::InvalidArgument`] for a duplicate name, the name `__metadata__`, or a dtype
/// that the format does not have.
pub fn to_safetensors(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    check_names(tensors)?;
    let mut order: Vec<&(String, Tensor)> = tensors.iter().collect();
    order.sort_by_key(|(name, tensor)| (std::cmp::Reverse(tensor.dtype().size()), name.clone()));
    let mut header = Map::new();
    let mut at = 0;
    for (name, tensor) in &order {
        let spec = tensor.spec();
        let dtype = DTYPES.iter().find(|(_, known)| *known == spec.dtype.name());
        let (dtype, _) = dtype.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "'{name}' is {spec}, and .safetensors has no {}; save it as .npz",
                spec.dtype
            ))
        })?;
        if name == "__metadata__" {
            let reason = "a tensor cannot be called '__metadata__' in a .safetensors file";
            return Err(Error::InvalidArgument(reason.into()));
        }
        let end = at + spec.size_bytes();
        let entry =
            json!({"dtype": dtype, "shape": spec.shape.to_vec(), "data_offsets": [at, end]});
        header.insert(name.clone(), entry);
        at = end;
    }
    let mut text = Value::Object(header).to_string();
    text.push_str(&" ".repeat(aligned(8 + text.len()) - (8 + text.len())));
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.bytes());
    for (_, tensor) in order {
        out.extend(tensor.to_bytes()?);
    }
    Ok(out)
}

pub(super) fn read(source: Source<'_>) -> Result<Tensors> {
    let bytes = source.bytes;
    let bad = |at: usize, reason: String| malformed(FORMAT, at, reason);
    let Some(len) = bytes.first_chunk::<8>() else {
        return Err(bad(0, format!("expected the header's length, found {} bytes", bytes.len())));
    };
    let len = u64::from_le_bytes(*len);
    let start = usize::try_from(len).ok().filter(|&len| len <= MAX_HEADER);
    let start = start.map(|len| 8 + len).filter(|&start| start <= bytes.len());
    let start = start.ok_or_else(|| bad(0, format!("a header of {len} bytes does not fit")))?;
    let header: Map<String, Value> = serde_json::from_slice(&bytes[8..start]).map_err(|e| {
        bad(8 + e.column().saturating_sub(1), format!("the header is no JSON object: {e}"))
    })?;
    let mut entries = Vec::new();
    for (name, value) in &header {
        if name != "__metadata__" {
            let entry = parse(value)
                .map_err(|reason| bad(8, format!("tensor '{}': {reason}", name.escape_debug())))?;
            entries.push((entry.1, name, entry.0));
        }
    }
    entries.sort_by(|a, b| {
        (a.0, a.0 + a.2.size_bytes(), a.1).cmp(&(b.0, b.0 + b.2.size_bytes(), b.1))
    });
    // The tensors must be contiguous, without gaps.
    let mut at = 0;
    let mut tensors: Tensors = Vec::new();
    for (begin, name, spec) in entries {
        let end = start + begin + spec.size_bytes();
        if begin != at || end > bytes.len() {
            let reason = format!(
                "tensor '{}' lies at {begin}, where {at} is expected, of {} bytes of data",
                name.escape_debug(),
                bytes.len() - start
            );
            return Err(bad(start, reason));
        }
        at += spec.size_bytes();
        tensors.push((name.clone(), source.tensor(&spec, start + begin)?));
    }
    match start + at == bytes.len() {
        true => Ok(tensors),
        false => {
            Err(bad(start + at, format!("{} bytes belong to no tensor", bytes.len() - start - at)))
        }
    }
}

/// Parses a tensor's spec and its offset.
fn parse(value: &Value) -> std::result::Result<(TensorSpec, usize), String> {
    let dtype = value["dtype"].as_str().ok_or("it has no dtype")?;
    let known = DTYPES.iter().find(|(name, _)| *name == dtype);
    let dtype = known.and_then(|(_, name)| DType::parse(name).ok());
    let dtype = dtype.ok_or_else(|| format!("dtype {} has none here", value["dtype"]))?;
    let numbers = |key: &str| -> std::result::Result<Vec<usize>, String> {
        let list = value[key].as_array().ok_or_else(|| format!("it has no {key}"))?;
        let number = |v: &Value| v.as_u64().and_then(|v| usize::try_from(v).ok());
        list.iter().map(|v| number(v).ok_or_else(|| format!("{v} in {key}"))).collect()
    };
    let shape = numbers("shape")?;
    if shape.len() > MAX_RANK {
        return Err(format!("{} dimensions; at most {MAX_RANK} are possible", shape.len()));
    }
    let spec = TensorSpec::new(shape, dtype);
    spec.shape.check("safetensors", dtype).map_err(|e| e.to_string())?;
    let offsets = numbers("data_offsets")?;
    match offsets.as_slice() {
        &[begin, end]
            if end.checked_sub(begin) == Some(spec.size_bytes()) && end < isize::MAX as usize =>
        {
            Ok((spec, begin))
        }
        _ => Err(format!("data_offsets {offsets:?} do not hold {} bytes", spec.size_bytes())),
    }
}
