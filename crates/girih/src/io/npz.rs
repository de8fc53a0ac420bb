//! `.npz`, NumPy's format for several arrays: a zip archive of `.npy` files. The reader supports
//! stored and deflated members, and 64-bit sizes. The writer stores members uncompressed and
//! aligned, so that a mapped file can be used without a copy, or deflates them on request.

use super::{Source, Tensors, aligned, check_names, malformed, npy};
use crate::{Error, Result, Tensor};

const FORMAT: &str = "npz";
const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
/// The 32-bit value that means that the 64-bit record contains the field's value.
const FULL: usize = u32::MAX as usize;
/// The effort of compression, of 0 to 10; zlib's default.
const LEVEL: u8 = 6;
/// The maximum compression ratio of deflate.
const MAX_RATIO: usize = 1032;
/// The maximum length of the header of a deflated array; NumPy limits headers to 10000 bytes.
const LONGEST_HEADER: usize = 1 << 17;

/// Reads the arrays from the bytes of an `.npz` file, in the archive's order, with names without
/// `.npy`.
///
/// Errors: [`girih_ir::Error::Format`].
pub fn from_npz(bytes: &[u8]) -> Result<Tensors> {
    read(Source::of(bytes))
}

/// The tensors as the bytes of an `.npz` file.
///
/// Errors: [`Error::InvalidArgument`] for a name that is duplicate or longer than 60000 bytes.
pub fn to_npz(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    archived(tensors, false)
}

/// As [`to_npz`], deflated. A file of such members is smaller, and is read by copying it.
///
/// Errors: as [`to_npz`].
pub fn to_npz_compressed(tensors: &[(String, Tensor)]) -> Result<Vec<u8>> {
    archived(tensors, true)
}

fn archived(tensors: &[(String, Tensor)], compressed: bool) -> Result<Vec<u8>> {
    check_names(tensors)?;
    if let Some((name, _)) = tensors.iter().find(|(name, _)| name.len() > 60_000) {
        let reason = format!("a name of {} bytes; .npz has room for 60000", name.len());
        return Err(Error::InvalidArgument(reason));
    }
    let mut out = Vec::new();
    let mut members = Vec::new();
    for (name, tensor) in tensors {
        let mut data = npy::to_npy(tensor)?;
        let (crc, size) = (girih_ir::pfgb::crc32(&data), data.len());
        if compressed {
            data = miniz_oxide::deflate::compress_to_vec(&data, LEVEL);
        }
        let member = Member {
            name: format!("{name}.npy"),
            crc,
            size,
            packed: data.len(),
            compressed,
            offset: out.len(),
        };
        member.local(&mut out);
        out.extend(data);
        members.push(member);
    }
    let start = out.len();
    members.iter().for_each(|member| member.central(&mut out));
    end_records(members.len(), start, &mut out);
    Ok(out)
}

/// A member of an archive being written.
struct Member {
    name: String,
    crc: u32,
    /// The number of bytes of the array's file, and in the archive.
    size: usize,
    packed: usize,
    compressed: bool,
    offset: usize,
}

impl Member {
    /// Writes the local header, padded so that the member's bytes are aligned.
    fn local(&self, out: &mut Vec<u8>) {
        // The sizes in 64 bits, then a padding field of zeros.
        let fixed = 30 + self.name.len() + 20 + 4;
        let padding = aligned(self.offset + fixed) - (self.offset + fixed);
        [LOCAL].iter().for_each(|v| out.extend(v.to_le_bytes()));
        self.common(out);
        out.extend(((20 + 4 + padding) as u16).to_le_bytes());
        out.extend(self.name.bytes());
        for v in [1u16, 16] {
            out.extend(v.to_le_bytes());
        }
        out.extend([self.size as u64, self.packed as u64].iter().flat_map(|v| v.to_le_bytes()));
        for v in [0xd935u16, padding as u16] {
            out.extend(v.to_le_bytes());
        }
        out.resize(out.len() + padding, 0);
    }

    /// Writes the common fields of both headers, from the version to the length of the name.
    fn common(&self, out: &mut Vec<u8>) {
        // Version 4.5, names in UTF-8, stored or deflated, 1 January 1980.
        let method = if self.compressed { 8 } else { 0 };
        for v in [45u16, 1 << 11, method, 0, 0x21] {
            out.extend(v.to_le_bytes());
        }
        for v in [self.crc, u32::MAX, u32::MAX] {
            out.extend(v.to_le_bytes());
        }
        out.extend((self.name.len() as u16).to_le_bytes());
    }

    fn central(&self, out: &mut Vec<u8>) {
        out.extend(CENTRAL.to_le_bytes());
        out.extend(45u16.to_le_bytes());
        self.common(out);
        for v in [28u16, 0, 0, 0] {
            out.extend(v.to_le_bytes());
        }
        for v in [0, u32::MAX] {
            out.extend(v.to_le_bytes());
        }
        out.extend(self.name.bytes());
        for v in [1u16, 24] {
            out.extend(v.to_le_bytes());
        }
        for v in [self.size, self.packed, self.offset] {
            out.extend((v as u64).to_le_bytes());
        }
    }
}

fn end_records(count: usize, start: usize, out: &mut Vec<u8>) {
    let (size, end) = (out.len() - start, out.len());
    out.extend(END_64.to_le_bytes());
    out.extend(44u64.to_le_bytes());
    out.extend([45u16, 45].iter().flat_map(|v| v.to_le_bytes()));
    out.extend([0u32, 0].iter().flat_map(|v| v.to_le_bytes()));
    for v in [count, count, size, start] {
        out.extend((v as u64).to_le_bytes());
    }
    out.extend([LOCATOR_64, 0].iter().flat_map(|v| v.to_le_bytes()));
    out.extend((end as u64).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(END.to_le_bytes());
    out.extend([0u16, 0, u16::MAX, u16::MAX].iter().flat_map(|v| v.to_le_bytes()));
    out.extend([u32::MAX, u32::MAX].iter().flat_map(|v| v.to_le_bytes()));
    out.extend(0u16.to_le_bytes());
}

/// Reads little-endian numbers at positions of an archive.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn slice(&self, at: usize, len: usize) -> Result<&'a [u8]> {
        let part = at.checked_add(len).and_then(|end| self.0.get(at..end));
        part.ok_or_else(|| bad(at, format!("{len} bytes reach beyond the end of the file")))
    }

    fn number(&self, at: usize, len: usize) -> Result<usize> {
        let bytes = self.slice(at, len)?;
        let value = bytes.iter().rev().fold(0u64, |value, &b| value << 8 | b as u64);
        usize::try_from(value).map_err(|_| bad(at, format!("{value} is no position")))
    }

    fn is(&self, at: usize, mark: u32) -> bool {
        self.slice(at, 4).is_ok_and(|bytes| bytes == mark.to_le_bytes())
    }
}

fn bad(at: usize, reason: impl Into<String>) -> Error {
    malformed(FORMAT, at, reason)
}

/// An entry of an archive's directory.
struct Entry<'a> {
    name: &'a str,
    method: usize,
    crc: usize,
    packed: usize,
    size: usize,
    local: usize,
    /// The length of the entry in bytes.
    len: usize,
}

pub(super) fn read(source: Source<'_>) -> Result<Tensors> {
    let archive = Reader(source.bytes);
    let (count, mut at) = directory(archive)?;
    let mut tensors: Tensors = Vec::new();
    let mut names = rustc_hash::FxHashSet::default();
    let mut total = 0usize;
    for _ in 0..count {
        let entry = entry(archive, at)?;
        // Entries may not share bytes, even if a file lists them repeatedly.
        total = total.saturating_add(entry.packed);
        if total > source.bytes.len() {
            return Err(bad(at, "the arrays take more bytes than the file has"));
        }
        let name = entry.name.strip_suffix(".npy").unwrap_or(entry.name);
        if !names.insert(name) {
            return Err(bad(at, format!("two arrays are called '{}'", name.escape_debug())));
        }
        tensors.push((name.to_string(), member(source, archive, &entry)?));
        at += entry.len;
    }
    Ok(tensors)
}

/// The number of entries of the central directory, and its position.
fn directory(archive: Reader<'_>) -> Result<(usize, usize)> {
    let len = archive.0.len();
    // The end record may be followed by a comment of up to 65535 bytes.
    let first = len.saturating_sub(22 + 65_535);
    let end = (first..=len.saturating_sub(22)).rev().find(|&at| {
        archive.is(at, END) && archive.number(at + 20, 2).is_ok_and(|n| at + 22 + n == len)
    });
    let end = end.ok_or_else(|| bad(len, "no zip directory at the end of the file"))?;
    let (count, start) = (archive.number(end + 10, 2)?, archive.number(end + 16, 4)?);
    if (count != u16::MAX as usize && start != FULL)
        || end < 20
        || !archive.is(end - 20, LOCATOR_64)
    {
        return Ok((count, start));
    }
    let end = archive.number(end - 20 + 8, 8)?;
    if !archive.is(end, END_64) {
        return Err(bad(end, "expected the 64-bit end of a zip directory"));
    }
    Ok((archive.number(end + 32, 8)?, archive.number(end + 48, 8)?))
}

fn entry(archive: Reader<'_>, at: usize) -> Result<Entry<'_>> {
    if !archive.is(at, CENTRAL) {
        return Err(bad(at, "expected an entry of a zip directory"));
    }
    let flags = archive.number(at + 8, 2)?;
    if flags & 1 != 0 {
        return Err(bad(at, "the array is encrypted"));
    }
    let (name_len, extra_len) = (archive.number(at + 28, 2)?, archive.number(at + 30, 2)?);
    let name = std::str::from_utf8(archive.slice(at + 46, name_len)?);
    let mut entry = Entry {
        name: name.map_err(|_| bad(at + 46, "the name is not in UTF-8"))?,
        method: archive.number(at + 10, 2)?,
        crc: archive.number(at + 16, 4)?,
        packed: archive.number(at + 20, 4)?,
        size: archive.number(at + 24, 4)?,
        local: archive.number(at + 42, 4)?,
        len: 46 + name_len + extra_len + archive.number(at + 32, 2)?,
    };
    let extra = Reader(archive.slice(at + 46 + name_len, extra_len)?);
    let mut field = 0;
    while field + 4 <= extra_len {
        let (id, len) = (extra.number(field, 2)?, extra.number(field + 2, 2)?);
        let mut value = field + 4;
        for slot in [&mut entry.size, &mut entry.packed, &mut entry.local] {
            if id == 1 && *slot == FULL {
                *slot = extra.number(value, 8)?;
                value += 8;
            }
        }
        field += 4 + len;
    }
    Ok(entry)
}

/// The `size` bytes of a deflated array. A few bytes may stand for a thousand times as many, so the
/// array's own header, and the memory for the array, are checked before the rest is inflated.
fn inflated(packed: &[u8], size: usize, at: usize) -> Result<Vec<u8>> {
    let mut beginning = vec![0; size.min(LONGEST_HEADER)];
    inflate(packed, &mut beginning, size > LONGEST_HEADER, at)?;
    let spec = npy::declared(&beginning, size)?;
    if size <= LONGEST_HEADER {
        return Ok(beginning);
    }
    girih_record::eval::check_room_on_device(spec.size_bytes())?;
    let mut bytes = Vec::new();
    let no_memory = |_| girih_runtime::Error::HostMemory { requested: size };
    bytes.try_reserve_exact(size).map_err(no_memory)?;
    bytes.resize(size, 0);
    inflate(packed, &mut bytes, false, at)?;
    Ok(bytes)
}

/// Fills `out` with inflated bytes; with `more`, further bytes may follow.
fn inflate(packed: &[u8], out: &mut [u8], more: bool, at: usize) -> Result<()> {
    use miniz_oxide::inflate::{TINFLStatus, decompress_slice_iter_to_slice};
    let found = match decompress_slice_iter_to_slice(out, std::iter::once(packed), false, true) {
        Ok(found) => found,
        Err(TINFLStatus::HasMoreOutput) if more => return Ok(()),
        Err(TINFLStatus::HasMoreOutput) => {
            return Err(bad(at, format!("an array is longer than its {} bytes", out.len())));
        }
        Err(status) => return Err(bad(at, format!("cannot inflate: {status:?}"))),
    };
    match found == out.len() && !more {
        true => Ok(()),
        false => Err(bad(at, format!("an array of {found} bytes is shorter than declared"))),
    }
}

fn member(source: Source<'_>, archive: Reader<'_>, entry: &Entry<'_>) -> Result<Tensor> {
    let local = entry.local;
    if !archive.is(local, LOCAL) {
        return Err(bad(local, format!("expected '{}' here", entry.name.escape_debug())));
    }
    let start = local + 30 + archive.number(local + 26, 2)? + archive.number(local + 28, 2)?;
    let packed = archive.slice(start, entry.packed)?;
    let check = |bytes: &[u8]| match girih_ir::pfgb::crc32(bytes) as usize == entry.crc {
        true => Ok(()),
        false => Err(bad(
            start,
            format!("'{}' is damaged: its checksum differs", entry.name.escape_debug()),
        )),
    };
    match entry.method {
        0 => {
            // Do not verify the checksum of mapped data, since that would read all of the data,
            // even if it is never used.
            if source.file.is_none() {
                check(packed)?;
            }
            npy::read(source, start..start + entry.packed)
        }
        8 => {
            if entry.size / MAX_RATIO > entry.packed {
                let reason = format!("{} bytes cannot hold {}", entry.packed, entry.size);
                return Err(bad(start, reason));
            }
            let inflated = inflated(packed, entry.size, start)?;
            check(&inflated)?;
            npy::from_npy(&inflated)
        }
        other => {
            Err(bad(local, format!("compression method {other}; this reads 0 and 8 (deflate)")))
        }
    }
}
