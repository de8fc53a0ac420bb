"""Tensors in file objects, texts beside them, compressed archives, and floats of 8 bits."""

from __future__ import annotations

import io
import json
import struct
import zipfile

import girih as gr
import numpy as np
import pytest
import torch

TENSORS = {"w": gr.asarray([[1.0, 2.0]]), "b": gr.asarray([True]), "n": gr.zeros([0, 3])}


@pytest.mark.parametrize("format", ["npz", "safetensors"])
def test_file_objects_hold_what_files_hold(tmp_path, format):
    file = io.BytesIO()
    gr.save(file, TENSORS, format=format)
    gr.save(tmp_path / f"x.{format}", TENSORS)
    assert (tmp_path / f"x.{format}").read_bytes() == file.getvalue()
    file.seek(0)
    found = gr.load(file)
    assert {k: (v.tolist(), v.dtype) for k, v in found.items()} == {
        k: (v.tolist(), v.dtype) for k, v in TENSORS.items()
    }
    with open(tmp_path / f"x.{format}", "rb") as opened:
        assert gr.load(opened, like={"w": 0})["w"].tolist() == [[1.0, 2.0]]


def test_one_tensor_is_an_npy_file_and_several_are_an_archive():
    file = io.BytesIO()
    gr.save(file, gr.asarray([1.0, 2.0]))
    assert np.load(io.BytesIO(file.getvalue())).tolist() == [1.0, 2.0]
    file = io.BytesIO()
    gr.savez(file, gr.ones(2), y=gr.zeros(1))
    assert sorted(np.load(io.BytesIO(file.getvalue()))) == ["arr_0", "y"]
    assert gr.load(io.BytesIO(file.getvalue()))["y"].tolist() == [0.0]
    for text in (io.StringIO("x"), 3):
        with pytest.raises((gr.GirihError, TypeError)):
            gr.load(text)
    with pytest.raises(gr.FormatError):
        gr.load(io.BytesIO(b"\x93NUMPY"))
    with pytest.raises(gr.FormatError):
        gr.load(io.BytesIO(b""))
    with pytest.raises(gr.InvalidArgumentError, match="suffix"):
        gr.save(io.BytesIO(), TENSORS, format="pt")


def test_metadata_are_texts_beside_the_tensors(tmp_path):
    texts = {"format": "pt", "ü": "line\n"}
    path = tmp_path / "x.safetensors"
    gr.save(path, TENSORS, metadata=texts)
    found, metadata = gr.load(path, return_metadata=True)
    assert (sorted(found), metadata) == (["b", "n", "w"], texts)
    with open(path, "rb") as opened:
        assert gr.load(opened, return_metadata=True)[1] == texts
    gr.save(tmp_path / "x.npz", TENSORS)
    assert gr.load(tmp_path / "x.npz", return_metadata=True)[1] == {}
    assert gr.load(path, like=TENSORS, return_metadata=True)[1] == texts
    for wrong in ({"a": 1}, {1: "a"}):
        with pytest.raises(gr.InvalidArgumentError, match="texts"):
            gr.save(path, TENSORS, metadata=wrong)
    with pytest.raises(gr.InvalidArgumentError, match="safetensors"):
        gr.save(tmp_path / "x.npz", TENSORS, metadata=texts)
    assert gr.load(path, return_metadata=True)[1] == texts


def test_compressed_archives(tmp_path):
    x = gr.zeros([1000, 10])
    gr.savez_compressed(tmp_path / "x", x, y=gr.arange(5))
    assert (tmp_path / "x.npz").stat().st_size < 2000
    found = np.load(tmp_path / "x.npz")
    assert found["arr_0"].shape == (1000, 10)
    assert gr.load(tmp_path / "x.npz")["y"].tolist() == [0, 1, 2, 3, 4]
    kinds = {i.compress_type for i in zipfile.ZipFile(tmp_path / "x.npz").infolist()}
    assert kinds == {zipfile.ZIP_DEFLATED}
    gr.savez(tmp_path / "plain", x)
    assert gr.load(tmp_path / "plain.npz")["arr_0"].shape == (1000, 10)
    with pytest.raises(gr.InvalidArgumentError, match="npz"):
        gr.savez_compressed(tmp_path / "x.safetensors", x)
    with pytest.raises(gr.InvalidArgumentError, match="arr_0"):
        gr.savez_compressed(tmp_path / "x", x, arr_0=x)


@pytest.mark.parametrize("name", ["F8_E4M3", "F8_E5M2"])
def test_floats_of_8_bits_are_read_with_their_values(tmp_path, name):
    bits = np.arange(256, dtype=np.uint8)
    header = json.dumps(
        {
            "x": {"dtype": name, "shape": [16, 16], "data_offsets": [0, 256]},
            "y": {"dtype": "U8", "shape": [1], "data_offsets": [256, 257]},
        }
    ).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bits.tobytes() + b"\x07")
    kind = torch.float8_e4m3fn if name == "F8_E4M3" else torch.float8_e5m2
    expected = torch.from_numpy(bits).view(kind).to(torch.float32).numpy().reshape(16, 16)
    found = gr.load(path)
    assert (found["x"].dtype, found["y"].tolist()) == (gr.float16, [7])
    np.testing.assert_array_equal(found["x"].astype(gr.float32), expected)
    path.write_bytes(struct.pack("<Q", len(header)) + header + bits.tobytes())
    with pytest.raises(gr.FormatError):
        gr.load(path)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_floats_of_8_bits_are_written_rounded_to_the_nearest(tmp_path, name, dtype):
    kind = torch.float8_e4m3fn if name == "e4m3" else torch.float8_e5m2
    values = np.concatenate(
        [np.random.default_rng(0).normal(size=500) * 60, [0, -0.0, 2**-9, 1e-7]]
    )
    x = gr.asarray(values, dtype=dtype)
    rows = gr.ones([2, 3])
    path = tmp_path / "x.safetensors"
    gr.save(path, {"x": x, "rows": rows}, metadata={"a": "b"}, float8={"x": name})
    expected = torch.from_numpy(x.astype(gr.float32).numpy().copy()).to(kind)
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    entry = json.loads(data[8 : 8 + length])["x"]
    assert entry["dtype"] == f"F8_{name.upper()}"
    begin, end = (8 + length + at for at in entry["data_offsets"])
    assert [*data[begin:end]] == expected.view(torch.uint8).tolist()
    found = gr.load(path)
    assert found["x"].dtype == gr.float16
    np.testing.assert_array_equal(found["x"].astype(gr.float32), expected.to(torch.float32).numpy())
    assert found["rows"].tolist() == rows.tolist()
    # What was read is written back as it was.
    gr.save(tmp_path / "y.safetensors", found, metadata={"a": "b"}, float8={"x": name})
    assert (tmp_path / "y.safetensors").read_bytes() == path.read_bytes()


def test_floats_of_8_bits_that_do_not_fit_are_errors(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(gr.InvalidArgumentError, match=r"'x' has the element 500.*448; scale it"):
        gr.save(path, {"x": gr.asarray([1.0, 500.0])}, float8={"x": "e4m3"})
    with pytest.raises(gr.InvalidArgumentError, match="no tensor is called 'y'; there are x"):
        gr.save(path, {"x": gr.ones(2)}, float8={"y": "e4m3"})
    with pytest.raises(gr.InvalidArgumentError, match="'e4m3' and 'e5m2', got 'e3m4'"):
        gr.save(path, {"x": gr.ones(2)}, float8={"x": "e3m4"})
    with pytest.raises(gr.InvalidArgumentError, match=r"i64.* is for floats"):
        gr.save(path, {"x": gr.arange(2)}, float8={"x": "e5m2"})
    with pytest.raises(
        gr.InvalidArgumentError, match="only files of format safetensors hold float8"
    ):
        gr.save(tmp_path / "x.npz", {"x": gr.ones(2)}, float8={"x": "e5m2"})
    assert not path.exists()
