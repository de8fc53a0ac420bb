//! `.npy`, NumPy's format for one array, versions 1 to 3: a header with a Python dictionary, then
//! the elements.

use super::{Source, aligned, malformed, owned};
use crate::{Result, Tensor};
use girih_ir::{DType, MAX_RANK, TensorSpec};
use std::ops::Range;

const FORMAT: &str = "npy";
const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads an array from the bytes of an `.npy` file.
///
/// Errors: [`girih_ir::Error::Format`].
pub fn from_npy(bytes: &[u8]) -> Result<Tensor> {
    read(Source::of(bytes), 0..bytes.len())
}

/// The tensor as the bytes of an `.npy` file. bfloat16 is written like the `ml_dtypes` type in
/// NumPy: as opaque elements of two bytes.
pub fn to_npy(tensor: &Tensor) -> Result<Vec<u8>> {
    let spec = tensor.spec();
    let data = tensor.to_bytes()?;
    let mut out = header(&spec);
    out.extend(data);
    Ok(out)
}

/// The header, whose length is a multiple of 64.
pub(super) fn header(spec: &TensorSpec) -> Vec<u8> {
    let sizes: Vec<String> = spec.shape.iter().map(usize::to_string).collect();
    let comma = if sizes.len() == 1 { "," } else { "" };
    let mut text = format!(
        "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{comma}), }}",
        type_string(spec.dtype),
        sizes.join(", ")
    );
    let padding = aligned(10 + text.len() + 1) - (10 + text.len() + 1);
    text.push_str(&" ".repeat(padding));
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    // At most 32 sizes of 20 digits, so the length is below 2^16.
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.bytes());
    out
}

/// NumPy's type string of a dtype, as in `.npy` files and in the array interface; `V2` for bfloat16.
pub fn type_string(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::BF16 => "<V2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::C64 => "<c8",
        DType::C128 => "<c16",
    }
}

/// The dtype of NumPy's type string, and whether the bytes of a number must be swapped. `V2` is taken
/// for bfloat16.
pub fn dtype_of_type_string(text: &str) -> Option<(DType, bool)> {
    let order = text.chars().next().filter(|c| "<>|=".contains(*c))?;
    let found = DType::ALL.into_iter().find(|&d| type_string(d)[1..] == text[1..])?;
    let swapped = order == '>' && found.size() > 1;
    Some((found, swapped))
}

struct Header {
    spec: TensorSpec,
    fortran: bool,
    /// Whether the bytes of an element must be swapped.
    swapped: bool,
}

/// The spec of the array in a file of `size` bytes, from the beginning of the file.
///
/// Errors: [`girih_ir::Error::Format`], also if an array of this spec does not fill the file.
pub(super) fn declared(beginning: &[u8], size: usize) -> Result<TensorSpec> {
    let (header, _) = parsed(beginning, 0, size)?;
    Ok(header.spec)
}

/// The header of a file of `size` bytes, and the position of the elements; `bytes` is at least the
/// header, and is at position `origin` of what the user reads.
fn parsed(bytes: &[u8], origin: usize, size: usize) -> Result<(Header, usize)> {
    let bad = |at: usize, reason: String| malformed(FORMAT, origin + at, reason);
    if !bytes.starts_with(MAGIC) || bytes.len() < 10 {
        let found = &bytes[..bytes.len().min(6)];
        return Err(bad(0, format!("expected the mark \\x93NUMPY, found {found:?}")));
    }
    let (start, len): (usize, usize) = match bytes[6] {
        1 => (10, u16::from_le_bytes([bytes[8], bytes[9]]) as usize),
        2 | 3 if bytes.len() >= 12 => {
            (12, u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize)
        }
        version => return Err(bad(6, format!("version {version}; this reads 1 to 3"))),
    };
    let text = start.checked_add(len).and_then(|end| bytes.get(start..end));
    let text = text.ok_or_else(|| bad(start, format!("a header of {len} bytes does not fit")))?;
    let text = std::str::from_utf8(text).map_err(|_| bad(start, "the header is no text".into()))?;
    let header = parse(text).map_err(|reason| bad(start, reason))?;
    let (spec, at) = (&header.spec, start + len);
    let found = size.saturating_sub(at);
    if found != spec.size_bytes() {
        let reason = format!("{spec} takes {} bytes, found {found}", spec.size_bytes());
        return Err(bad(at, reason));
    }
    Ok((header, at))
}

/// Reads an array from a range of a source.
pub(super) fn read(source: Source<'_>, range: Range<usize>) -> Result<Tensor> {
    let bytes = &source.bytes[range.clone()];
    let (header, at) = parsed(bytes, range.start, bytes.len())?;
    let spec = &header.spec;
    if !header.fortran && !header.swapped {
        return source.tensor(spec, range.start + at);
    }
    let mut data = bytes[at..].to_vec();
    if header.swapped {
        // The two parts of a complex number are swapped separately.
        let parts = if spec.dtype.name().starts_with("complex") { 2 } else { 1 };
        data.chunks_mut(spec.dtype.size() / parts).for_each(<[u8]>::reverse);
    }
    if header.fortran {
        data = row_major(&data, spec);
    }
    owned(spec, data)
}

/// Converts elements from column-major to row-major order.
fn row_major(data: &[u8], spec: &TensorSpec) -> Vec<u8> {
    let (shape, size) = (&spec.shape, spec.dtype.size());
    let mut strides = vec![size; shape.rank()];
    for axis in 1..shape.rank() {
        strides[axis] = strides[axis - 1] * shape[axis - 1];
    }
    let mut out = Vec::with_capacity(data.len());
    let mut index = vec![0; shape.rank()];
    let mut at = 0;
    while out.len() < data.len() {
        out.extend_from_slice(&data[at..at + size]);
        for axis in (0..shape.rank()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    out
}

/// Parses the header's dictionary. Only the form that NumPy writes is supported: three keys, each
/// once.
fn parse(text: &str) -> std::result::Result<Header, String> {
    let rest = text.trim().strip_prefix('{').ok_or("expected '{'")?;
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    let mut rest = rest.trim_start();
    while !rest.starts_with('}') {
        let (key, after) = quoted(rest)?;
        let after = after.trim_start().strip_prefix(':').ok_or("expected ':' after a key")?;
        let value = after.trim_start();
        let after = match key {
            "descr" if descr.is_none() => {
                let (value, after) = quoted(value).map_err(|_| {
                    "arrays of records have no dtype here; save their fields one by one".to_string()
                })?;
                descr = Some(value);
                after
            }
            "fortran_order" if fortran.is_none() => {
                let (value, after) = match (value.strip_prefix("True"), value.strip_prefix("False"))
                {
                    (Some(after), _) => (true, after),
                    (_, Some(after)) => (false, after),
                    _ => return Err("fortran_order is True or False".into()),
                };
                fortran = Some(value);
                after
            }
            "shape" if shape.is_none() => {
                let inner = value.strip_prefix('(').and_then(|v| v.split_once(')'));
                let (inner, after) = inner.ok_or("shape is a tuple")?;
                shape = Some(sizes(inner)?);
                after
            }
            key => return Err(format!("unexpected key '{}'", key.escape_debug())),
        };
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(after) => after.trim_start(),
            None if after.starts_with('}') => after,
            None => return Err("expected ',' or '}' after a value".into()),
        };
    }
    let rest = rest.strip_prefix('}').unwrap_or(rest).trim();
    if !rest.is_empty() {
        return Err(format!("the header goes on after its '}}', with '{}'", rest.escape_debug()));
    }
    let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
        return Err("the header lacks descr, fortran_order or shape".into());
    };
    let (dtype, swapped) = dtype_of_type_string(descr)
        .ok_or_else(|| format!("an array of dtype '{}' has no dtype here", descr.escape_debug()))?;
    let spec = TensorSpec::new(shape, dtype);
    spec.shape.check("npy", dtype).map_err(|e| e.to_string())?;
    Ok(Header { spec, fortran, swapped })
}

/// Parses a string in single or double quotes, without escapes; returns the string and the rest.
fn quoted(text: &str) -> std::result::Result<(&str, &str), String> {
    let quote = text.chars().next().filter(|c| "'\"".contains(*c));
    let quote = quote.ok_or("expected a string in quotes")?;
    text[1..].split_once(quote).ok_or("a string is not closed".to_string())
}

fn sizes(inner: &str) -> std::result::Result<Vec<usize>, String> {
    let parts = inner.split(',').map(str::trim).filter(|p| !p.is_empty());
    // Python 2 wrote long integers with an L.
    let size = |p: &str| p.trim_end_matches('L').parse().map_err(|_| format!("'{p}' is no size"));
    let sizes = parts.map(size).collect::<std::result::Result<Vec<usize>, _>>()?;
    match sizes.len() <= MAX_RANK {
        true => Ok(sizes),
        false => Err(format!("{} dimensions; at most {MAX_RANK} are possible", sizes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_strings_are_read_back_in_either_order_of_bytes() {
        for dtype in DType::ALL {
            let text = type_string(dtype);
            assert_eq!(dtype_of_type_string(text), Some((dtype, false)));
            let swapped = dtype.size() > 1;
            assert_eq!(dtype_of_type_string(&format!(">{}", &text[1..])), Some((dtype, swapped)));
        }
        assert_eq!(dtype_of_type_string("<f3"), None);
        assert_eq!(dtype_of_type_string("f4"), None);
        assert_eq!(dtype_of_type_string(""), None);
    }
}
