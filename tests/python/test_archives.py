"""Files of arrays whose sizes lie: they are refused with the sizes, before memory is taken."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import girih as gr
import numpy as np
import pytest
from conftest import close
from processes import succeeds


def npy(array, *, header=b"", tail=b""):
    """The bytes of an .npy file, with other bytes at the end of the header or of the file."""
    out = io.BytesIO()
    np.save(out, array)
    whole = out.getvalue()
    length = struct.unpack("<H", whole[8:10])[0]
    text, data = whole[10 : 10 + length], whole[10 + length :]
    if header:
        text = text.rstrip() + header + b"\n"
    return whole[:8] + struct.pack("<H", len(text)) + text + data + tail


def archive(member: bytes, *, size=None, crc=None, name=b"x.npy"):
    """A zip archive with one deflated member, whose directory may declare another size."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = deflate.compress(member) + deflate.flush()
    size = len(member) if size is None else size
    crc = zlib.crc32(member) if crc is None else crc
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0x21, crc, len(packed), size, len(name), 0)
    local = struct.pack("<I", 0x04034B50) + common + name + packed
    central = struct.pack("<IH", 0x02014B50, 20) + common
    central += struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def loaded(tmp_path, data: bytes, suffix: str):
    path = tmp_path / f"file.{suffix}"
    path.write_bytes(data)
    return gr.load(path)


ARRAYS = {
    "short": np.arange(6, dtype=np.float32),
    "long": np.arange(300_000, dtype=np.int16),
    "columns first": np.asfortranarray(np.arange(80_000, dtype=np.float64).reshape(400, 200)),
    "other byte order": np.arange(70_000, dtype=">i4"),
    "bools": np.arange(400_000) % 3 == 0,
    "a scalar": np.array(2.5),
    "empty": np.zeros((0, 3), np.int8),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_deflated_arrays_of_all_sizes_are_read(tmp_path, name):
    array = ARRAYS[name]
    found = loaded(tmp_path, archive(npy(array)), "npz")["x"]
    close(found, array.astype(array.dtype.newbyteorder("=")))


LIES = {
    "more than declared": lambda a: archive(npy(a), size=len(npy(a)) - 100),
    "less than declared": lambda a: archive(npy(a), size=len(npy(a)) + 100),
    "an array that is smaller": lambda a: archive(npy(a[:16]) + bytes(a.nbytes)),
    "an array that is larger": lambda a: archive(npy(a)[: -a.nbytes // 2]),
    "another checksum": lambda a: archive(npy(a), crc=1),
    "no array": lambda a: archive(bytes(a.nbytes)),
    "half of the bytes": lambda a: archive(npy(a))[:60] + archive(npy(a))[-120:],
}


@pytest.mark.parametrize("count", [20, 300_000])
@pytest.mark.parametrize("name", LIES)
def test_an_archive_whose_sizes_lie_is_a_format_error(tmp_path, name, count):
    rng = np.random.default_rng(0)
    data = LIES[name](rng.integers(0, 100, count).astype(np.int16))
    with pytest.raises(gr.FormatError):
        loaded(tmp_path, data, "npz")


def test_an_array_that_memory_cannot_hold_is_refused_before_it_is_inflated(tmp_path):
    array = np.zeros(64 << 20, np.uint8)
    (tmp_path / "honest.npz").write_bytes(archive(npy(array)))
    (tmp_path / "small.npz").write_bytes(archive(npy(array[:16]) + array.tobytes()))
    with zipfile.ZipFile(tmp_path / "many.npz", "w", zipfile.ZIP_DEFLATED) as out:
        for i in range(4):
            out.writestr(f"x{i}.npy", npy(array[: 20 << 20]))
    program = """
import resource, sys
import girih as gr
gr.ones(3).eval()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, error in (("honest", gr.OutOfMemoryError), ("small", gr.FormatError), ("many", gr.OutOfMemoryError)):
    try:
        gr.load(f"{sys.argv[1]}/{name}.npz")
    except error as found:
        print(found)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert more < (8 << 10 if name != "many" else 90 << 10), (name, more)
"""
    lines = succeeds(program, str(tmp_path), GIRIH_MEMORY_LIMIT="48M").splitlines()
    assert len(lines) == 3, lines
    assert "67108864" in lines[0]
    assert "takes 16 bytes" in lines[1]


BAD = {
    "text behind the dictionary": npy(ARRAYS["short"], header=b" garbage"),
    "a second dictionary": npy(ARRAYS["short"], header=b", {}"),
    "bytes behind the array": npy(ARRAYS["short"], tail=b"more"),
    "bytes missing": npy(ARRAYS["short"])[:-1],
    "no elements": npy(ARRAYS["short"])[:-24],
}


@pytest.mark.parametrize("name", BAD)
def test_an_array_file_with_something_else_is_a_format_error_with_the_sizes(tmp_path, name):
    with pytest.raises(gr.FormatError) as error:
        loaded(tmp_path, BAD[name], "npy")
    expected = {"bytes behind the array": ["24 bytes", "28"], "bytes missing": ["24 bytes", "23"]}
    for part in expected.get(name, []):
        assert part in str(error.value)
    close(loaded(tmp_path, npy(ARRAYS["short"], header=b"   "), "npy"), ARRAYS["short"])


def test_a_save_removes_what_a_killed_save_left(tmp_path):
    left = tmp_path / ".girih-0123456789abcdef.tmp"
    left.write_bytes(b"half of a file")
    others = [tmp_path / name for name in (".girih-notes.tmp", "0123456789abcdef.tmp", ".girih-x")]
    for path in others:
        path.write_bytes(b"of the user")
    gr.save(tmp_path / "x.npy", gr.ones(3))
    assert not left.exists()
    assert all(path.exists() for path in others)
