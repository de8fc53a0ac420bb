//! `.safetensors`: a JSON header with names, dtypes, shapes and offsets, then the elements. Floats of
//! 8 bits, which have no dtype here, are read as float16, which has all of their values.

use super::{Source, Tensors, aligned, check_names, malformed};
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
    check_names(tensors)?;
    let mut order: Vec<&(String, Tensor)> = tensors.iter().collect();
    order.sort_by_key(|(name, tensor)| (std::cmp::Reverse(tensor.dtype().size()), name.clone()));
    let mut header = Map::new();
    if !metadata.is_empty() {
        let texts = metadata.iter().map(|(name, text)| (name.clone(), text.clone().into()));
        header.insert(METADATA.into(), Value::Object(texts.collect()));
    }
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
        if name == METADATA {
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
            Some(to_half) => {
                let halves = bytes[start + begin..end].iter().map(|&byte| to_half(byte));
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
    /// For floats of 8 bits, the bits of the float16 with the value of a byte.
    float8: Option<fn(u8) -> u16>,
}

/// The float16 of an E5M2, which is its upper half.
fn from_e5m2(byte: u8) -> u16 {
    u16::from(byte) << 8
}

/// The float16 of an E4M3 without infinities ("fn").
fn from_e4m3(byte: u8) -> u16 {
    let (byte, sign) = (u16::from(byte & 0x7f), u16::from(byte & 0x80) << 8);
    let (exponent, digits) = (byte >> 3, byte & 7);
    sign | match (exponent, digits) {
        (15, 7) => 0x7e00,
        (0, 0) => 0,
        // Multiples of 2^-9, which are normal numbers of float16.
        (0, _) => {
            let top = 15 - digits.leading_zeros() as u16;
            (top + 6) << 10 | (digits << (10 - top)) & 0x3ff
        }
        _ => (exponent + 8) << 10 | digits << 7,
    }
}

/// Parses a tensor's entry in the header.
fn parse(value: &Value) -> std::result::Result<Entry, String> {
    let dtype = value["dtype"].as_str().ok_or("it has no dtype")?;
    let float8: Option<fn(u8) -> u16> = match dtype {
        "F8_E5M2" => Some(from_e5m2),
        "F8_E4M3" => Some(from_e4m3),
        _ => None,
    };
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

#[cfg(test)]
mod tests {
    use super::{from_e4m3, from_e5m2};

    /// The value of a float with `digits` bits behind the point and this bias of the exponent.
    fn value(byte: u8, digits: u32, bias: i32) -> f64 {
        let (exponent, rest) = ((byte & 0x7f) >> digits, byte & ((1 << digits) - 1));
        let part = f64::from(rest) / f64::from(1 << digits);
        let size = match exponent {
            0 => part * 2f64.powi(1 - bias),
            e => (1.0 + part) * 2f64.powi(i32::from(e) - bias),
        };
        if byte & 0x80 == 0 { size } else { -size }
    }

    #[test]
    fn floats_of_8_bits_are_read_exactly() {
        for byte in 0..=255u8 {
            let [e4m3, e5m2] = [from_e4m3(byte), from_e5m2(byte)].map(|bits| {
                girih_ir::Literal { dtype: girih_ir::DType::F16, bits: bits.into() }.as_f64()
            });
            match byte & 0x7f {
                0x7f => assert!(e4m3.is_nan()),
                _ => assert_eq!(e4m3, value(byte, 3, 7), "{byte:#x}"),
            }
            match byte & 0x7f {
                0x7c => assert!(e5m2.is_infinite()),
                0x7d.. => assert!(e5m2.is_nan()),
                _ => assert_eq!(e5m2, value(byte, 2, 15), "{byte:#x}"),
            }
        }
    }
}
