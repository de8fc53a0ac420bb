//! `.safetensors`: a JSON header with names, dtypes, shapes and offsets, then the elements. Floats of
//! 8 bits have no dtype here ([`Float8`]).

use super::{Float8, Source, Tensors, aligned, check_names, malformed};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, MAX_RANK, TensorSpec};
use serde_json::{Map, Value, json};

const FORMAT: &str = "safetensors";
/// The header's key of texts that are no tensors.
const METADATA: &str = "__metadata__";
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
    to_safetensors_with(tensors, &[])
}

/// As [`to_safetensors`], with texts by name beside the tensors.
///
/// Errors: as [`to_safetensors`].
pub fn to_safetensors_with(
    tensors: &[(String, Tensor)],
    metadata: &[(String, String)],
) -> Result<Vec<u8>> {
    to_safetensors_float8(tensors, metadata, &[])
}

/// As [`to_safetensors_with`], with the tensors that `float8` names as floats of 8 bits. Their
/// elements are rounded to the nearest, ties to even.
///
/// Errors: as [`to_safetensors`]; [`Error::InvalidArgument`] for a name that no tensor has, a tensor
/// of another kind than floats, and an element beyond the largest float of 8 bits.
pub fn to_safetensors_float8(
    tensors: &[(String, Tensor)],
    metadata: &[(String, String)],
    float8: &[(String, Float8)],
) -> Result<Vec<u8>> {
    check_names(tensors)?;
    if let Some((name, _)) = float8.iter().find(|(name, _)| !tensors.iter().any(|t| t.0 == *name)) {
        let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
        return Err(Error::InvalidArgument(format!(
            "float8: no tensor is called '{name}'; there are {}",
            names.join(", ")
        )));
    }
    let short = |name: &str| float8.iter().find(|(n, _)| n == name).map(|(_, format)| *format);
    let size_of = |(name, tensor): &(String, Tensor)| match short(name) {
        Some(_) => 1,
        None => tensor.dtype().size(),
    };
    let mut order: Vec<&(String, Tensor)> = tensors.iter().collect();
    order.sort_by_key(|pair| (std::cmp::Reverse(size_of(pair)), pair.0.clone()));
    let mut header = Map::new();
    if !metadata.is_empty() {
        let texts = metadata.iter().map(|(name, text)| (name.clone(), text.clone().into()));
        header.insert(METADATA.into(), Value::Object(texts.collect()));
    }
    let mut at = 0;
    for &pair in &order {
        let (name, spec) = (&pair.0, pair.1.spec());
        let dtype = DTYPES.iter().find(|(_, known)| *known == spec.dtype.name());
        let dtype = short(name).map(Float8::name).or(dtype.map(|(dtype, _)| *dtype));
        let dtype = dtype.ok_or_else(|| {
            Error::InvalidArgument(format!(
                "'{name}' is {spec}, and .safetensors has no {}; save it as .npz",
                spec.dtype
            ))
        })?;
        if name == METADATA {
            let reason = "a tensor cannot be called '__metadata__' in a .safetensors file";
            return Err(Error::InvalidArgument(reason.into()));
        }
        let end = at + spec.numel() * size_of(pair);
        let entry =
            json!({"dtype": dtype, "shape": spec.shape.to_vec(), "data_offsets": [at, end]});
        header.insert(name.clone(), entry);
        at = end;
    }
    let mut text = Value::Object(header).to_string();
    text.push_str(&" ".repeat(aligned(8 + text.len()) - (8 + text.len())));
    let mut out = (text.len() as u64).to_le_bytes().to_vec();
    out.extend(text.bytes());
    for (name, tensor) in order {
        match short(name) {
            Some(format) => out.extend(format.bytes(name, tensor)?),
            None => out.extend(tensor.to_bytes()?),
        }
    }
    Ok(out)
}

/// The texts by name beside the tensors of a `.safetensors` file.
///
/// Errors: [`girih_ir::Error::Format`].
pub fn safetensors_metadata(bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let (header, _) = header(bytes)?;
    let Some(found) = header.get(METADATA) else { return Ok(Vec::new()) };
    let bad = |reason: &str| malformed(FORMAT, 8, reason.to_string());
    let texts = found.as_object().ok_or_else(|| bad("the metadata is no JSON object"))?;
    let text = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) => Ok((name.clone(), text.to_string())),
        None => Err(bad("the metadata holds something other than text")),
    };
    texts.iter().map(text).collect()
}

/// The header, and the position of the elements.
fn header(bytes: &[u8]) -> Result<(Map<String, Value>, usize)> {
    let bad = |at: usize, reason: String| malformed(FORMAT, at, reason);
    let Some(len) = bytes.first_chunk::<8>() else {
        return Err(bad(0, format!("expected the header's length, found {} bytes", bytes.len())));
    };
    let len = u64::from_le_bytes(*len);
    let start = usize::try_from(len).ok().filter(|&len| len <= MAX_HEADER);
    let start = start.map(|len| 8 + len).filter(|&start| start <= bytes.len());
    let start = start.ok_or_else(|| bad(0, format!("a header of {len} bytes does not fit")))?;
    let header = serde_json::from_slice(&bytes[8..start]).map_err(|e| {
        bad(8 + e.column().saturating_sub(1), format!("the header is no JSON object: {e}"))
    })?;
    Ok((header, start))
}

pub(super) fn read(source: Source<'_>) -> Result<Tensors> {
    let bytes = source.bytes;
    let bad = |at: usize, reason: String| malformed(FORMAT, at, reason);
    let (header, start) = header(bytes)?;
    let mut entries = Vec::new();
    for (name, value) in &header {
        if name != METADATA {
            let entry = parse(value)
                .map_err(|reason| bad(8, format!("tensor '{}': {reason}", name.escape_debug())))?;
            entries.push((entry, name));
        }
    }
    entries.sort_by(|(a, a_name), (b, b_name)| {
        (a.begin, a.begin + a.size, a_name).cmp(&(b.begin, b.begin + b.size, b_name))
    });
    // The tensors must be contiguous, without gaps.
    let mut at = 0;
    let mut tensors: Tensors = Vec::new();
    for (Entry { spec, begin, size, float8 }, name) in entries {
        let end = start + begin + size;
        if begin != at || end > bytes.len() {
            let reason = format!(
                "tensor '{}' lies at {begin}, where {at} is expected, of {} bytes of data",
                name.escape_debug(),
                bytes.len() - start
            );
            return Err(bad(start, reason));
        }
        at += size;
        let tensor = match float8 {
            None => source.tensor(&spec, start + begin)?,
            Some(format) => {
                let halves = bytes[start + begin..end].iter().map(|&byte| format.to_f16(byte));
                Tensor::from_bytes(&spec, halves.flat_map(u16::to_le_bytes).collect::<Vec<_>>())?
            }
        };
        tensors.push((name.clone(), tensor));
    }
    match start + at == bytes.len() {
        true => Ok(tensors),
        false => {
            Err(bad(start + at, format!("{} bytes belong to no tensor", bytes.len() - start - at)))
        }
    }
}

/// A tensor in a file: what it is read as, and its bytes.
struct Entry {
    spec: TensorSpec,
    begin: usize,
    size: usize,
    /// The format of floats of 8 bits, which are read as float16.
    float8: Option<Float8>,
}

/// Parses a tensor's entry in the header.
fn parse(value: &Value) -> std::result::Result<Entry, String> {
    let dtype = value["dtype"].as_str().ok_or("it has no dtype")?;
    let float8 = Float8::named(dtype);
    let known = DTYPES.iter().find(|(name, _)| *name == dtype);
    let known = known.and_then(|(_, name)| DType::parse(name).ok());
    let dtype = float8.map(|_| DType::F16).or(known);
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
    let size = if float8.is_some() { spec.numel() } else { spec.size_bytes() };
    match offsets.as_slice() {
        &[begin, end] if end.checked_sub(begin) == Some(size) && end < isize::MAX as usize => {
            Ok(Entry { spec, begin, size, float8 })
        }
        _ => Err(format!("data_offsets {offsets:?} do not hold {size} bytes")),
    }
}
