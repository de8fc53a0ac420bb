"""Arrays of other libraries: ownership of their memory, and invalid or failing interfaces."""

from __future__ import annotations

import array
import itertools

import girih as gr
import numpy as np
import pytest
from conftest import close


def address(a):
    return a.__array_interface__["data"][0]


def float_array():
    return np.arange(6, dtype=np.float32)


COMING_IN = {
    "asarray": lambda a: gr.asarray(a) * 2,
    "asarray with a dtype": lambda a: gr.asarray(a, dtype=gr.float64) * 2,
    "asarray of a part": lambda a: gr.asarray(a[:]) * 2,
    "asarray of a list of arrays": lambda a: gr.asarray([a, a])[0] * 2,
    "tensor": lambda a: gr.tensor(a) * 2,
    "from_dlpack": lambda a: gr.from_dlpack(a) * 2,
    "an operand": lambda a: gr.ones(6) * a * 2,
    "an operand on the left": lambda a: a * gr.ones(6) * 2,
    "an argument": lambda a: gr.concat([a, gr.zeros(0)]) * 2,
    "compile's argument": lambda a: gr.compile(lambda x: x * 2)(a),
    "at.set": lambda a: gr.zeros(6).at[:].set(a) * 2,
    "a buffer": lambda a: gr.asarray(memoryview(a)) * 2,
}


@pytest.mark.parametrize("how", COMING_IN)
def test_later_writes_to_the_array_do_not_change_the_tensor(how):
    a = float_array()
    lazy = COMING_IN[how](a)
    a[:] = 99
    assert lazy.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_memory_is_shared_where_that_is_asked_for():
    for share in (gr.asarray, gr.from_dlpack):
        a = float_array()
        t = share(a, copy=False)
        assert address(t.numpy()) == address(a)
        assert address(share(a).numpy()) != address(a)
        assert address(share(a, copy=True).numpy()) != address(a)


def test_immutable_memory_is_shared_by_default():
    t = gr.arange(6).eval()
    constant = np.frombuffer(bytes(24), np.float32)
    for a in (t.numpy(), t.numpy().reshape(2, 3)[1:], constant):
        for share in (gr.asarray, gr.from_dlpack):
            assert address(share(a).numpy()) == address(a)
        assert address(gr.asarray(a, copy=True).numpy()) != address(a)
    # The owner can make the array writeable again.
    a = float_array()
    a.flags.writeable = False
    assert address(gr.asarray(a).numpy()) != address(a)
    assert address(gr.asarray(a, copy=False).numpy()) == address(a)
    writeable = np.frombuffer(bytearray(24), np.float32)
    writeable.flags.writeable = False
    assert address(gr.asarray(writeable).numpy()) != address(writeable)


MUST_COPY = {
    "a list": lambda: [1.0],
    "a number": lambda: 1.0,
    "a range": lambda: range(3),
    "a buffer": lambda: array.array("f", [1, 2]),
    "bytes": lambda: b"12",
    "columns": lambda: np.ones((2, 3)).T,
    "every second": lambda: np.ones(6)[::2],
    "backwards": lambda: np.ones(6)[::-1],
    "another byte order": lambda: np.ones(3, ">f4"),
    "not aligned": lambda: np.frombuffer(b"x" * 9, np.uint8)[1:].view(np.float32),
    "other bools": lambda: np.array([2], np.uint8).view(bool),
}


@pytest.mark.parametrize("what", MUST_COPY)
def test_no_copy_is_made_where_it_is_forbidden(what):
    x = MUST_COPY[what]()
    with pytest.raises(gr.CopyRequiredError, match="copy=False"):
        gr.asarray(x, copy=False)
    if hasattr(x, "__dlpack__"):
        with pytest.raises(BufferError):
            gr.from_dlpack(x, copy=False)
    gr.asarray(x)  # is copied


def test_another_dtype_is_a_copy():
    for x in (float_array(), gr.ones(3)):
        with pytest.raises(gr.CopyRequiredError, match="float32, not float64"):
            gr.asarray(x, dtype=gr.float64, copy=False)
        assert gr.asarray(x, dtype=gr.float32, copy=False).dtype == gr.float32


@pytest.mark.parametrize("dtype", ["?", "i1", "u2", "i4", "f2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("order", "<>")
def test_every_layout_is_read_in_order(dtype, order):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (5, 6, 7)).astype(np.dtype(dtype).newbyteorder(order))
    views = [x, x.T, x[::2, 1:, ::-3], x.transpose(1, 0, 2), x[:, :1], x[:0], x[2, 3, 4]]
    views += [np.broadcast_to(x[:, None], (5, 3, 6, 7)), np.asfortranarray(x), x[::-1]]
    for view in views:
        native = view.astype(view.dtype.newbyteorder("="))
        close(gr.asarray(view), native)


def test_large_arrays_of_any_layout():
    # The array is read in several pieces whose ends are inside rows, and by several threads.
    x = np.arange(3 * 701 * 503, dtype=np.float32).reshape(3, 701, 503)
    for view in (x, x.T, x[:, ::2], x[..., 1:], x[::-1, :, ::-1]):
        np.testing.assert_array_equal(gr.asarray(view).numpy(), view)
    bools = x % 3 == 0
    np.testing.assert_array_equal(gr.asarray(bools).numpy(), bools)
    np.testing.assert_array_equal(gr.asarray(x).numpy(), x)


def test_bools_are_0_or_1():
    odd = np.array([0, 1, 2, 255], np.uint8).view(bool)
    assert gr.asarray(odd).sum().item() == 3
    assert gr.asarray(odd).numpy().view(np.uint8).tolist() == [0, 1, 1, 1]


def test_more_axes_than_a_tensor_has():
    if np.lib.NumpyVersion(np.__version__) < "2.0.0":
        pytest.skip("NumPy 1 has 32 axes itself")
    x = np.ones((1,) * 32 + (2,) * 3)
    for how in (gr.asarray, gr.from_dlpack, lambda x: gr.asarray(x, copy=False), gr.tensor):
        with pytest.raises(gr.ShapeError, match="35"):
            how(x)


class Interface:
    """An object with an array interface of its own."""

    def __init__(self, base=None, **fields):
        self.base = np.arange(6, dtype=np.float32) if base is None else base
        interface = {"version": 3, "shape": (6,), "typestr": "<f4"}
        interface["data"] = (self.base.ctypes.data, False)
        interface |= fields
        self.__array_interface__ = interface

    def astype(self, _dtype):
        return self


def test_an_interface_may_hold_a_buffer():
    data = np.arange(6, dtype=np.float32)
    assert gr.asarray(Interface(data=data.tobytes())).tolist() == data.tolist()
    assert gr.asarray(Interface(data=bytearray(data.tobytes()))).tolist() == data.tolist()
    part = Interface(data=memoryview(data), offset=8, shape=(2,), strides=(8,))
    assert gr.asarray(part).tolist() == [2.0, 4.0]
    back = Interface(data=data.tobytes(), offset=20, strides=(-4,))
    assert gr.asarray(back).tolist() == data[::-1].tolist()
    big = Interface(data=data.astype(">f4").tobytes(), typestr=">f4")
    assert gr.asarray(big).tolist() == data.tolist()
    with pytest.raises(gr.CopyRequiredError):
        gr.asarray(Interface(data=data.tobytes()), copy=False)
    shared = gr.asarray(Interface(data), copy=False)
    assert address(shared.numpy()) == address(data)


BROKEN = {
    "no dict": ("dict", {"__array_interface__": 3}),
    "a short buffer": ("24 bytes", {"shape": (7,), "data": bytes(24)}),
    "an offset beyond": ("24 bytes", {"offset": 4, "data": bytes(24)}),
    "a negative offset": ("24 bytes", {"offset": -4, "shape": (1,), "data": bytes(24)}),
    "strides out of a buffer": ("24 bytes", {"strides": (8,), "data": bytes(24)}),
    "strides before a buffer": ("24 bytes", {"strides": (-4,), "data": bytes(24)}),
    "no buffer": ("tuple or a buffer", {"data": "text"}),
    "no address": ("address", {"data": ("here", False)}),
    "an empty pointer": ("address", {"data": ((),)}),
    "a negative address": ("address", {"data": (-8, False)}),
    "address zero": ("address 0x0", {"data": (0, False)}),
    "the last address": ("no array", {"data": (2**64 - 4, False)}),
    "too many strides": ("2 strides", {"strides": (4, 4)}),
    "too few strides": ("0 strides", {"strides": ()}),
    "strides of text": ("strides", {"strides": ("4",)}),
    "huge strides": ("strides", {"strides": (2**62,)}),
    "no tuple": ("shape", {"shape": [6]}),
    "a negative size": ("-1", {"shape": (-1,)}),
    "a huge shape": (str(2**63 - 1), {"shape": (2**63 - 1,)}),
    "a shape beyond": ("shape", {"shape": (2**70,)}),
    "a product beyond": (str(2**32), {"shape": (2**32, 2**32)}),
    "many axes": ("33", {"shape": (1,) * 33}),
    "an unknown order": ("?f4", {"typestr": "?f4"}),
    "an unknown type": ("<x4", {"typestr": "<x4"}),
    "an empty type": ("dtype", {"typestr": ""}),
    "a type of bytes": ("typestr", {"typestr": b"<f4"}),
    "a record": ("<V2", {"typestr": "<V2"}),
    "a mask": ("mask", {"mask": np.zeros(6, bool)}),
    "another version": ("version 2", {"version": 2}),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("copy", [None, True, False])
def test_a_malformed_array_interface_is_an_error(case, copy):
    words, fields = BROKEN[case]
    broken = Interface(**fields)
    if "__array_interface__" in fields:
        broken.__array_interface__ = fields["__array_interface__"]
    if copy is False and isinstance(fields.get("data"), bytes | str):
        words = "copy=False"
    with pytest.raises(gr.GirihError, match=words.replace("?", r"\?")):
        gr.asarray(broken, copy=copy)


def test_an_astype_method_of_the_object_is_not_called():
    data = np.arange(6, dtype=">f4")
    broken = Interface(data, typestr=">f4", data=(address(data), False))
    assert gr.asarray(broken).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_interfaces_without_elements():
    empty = Interface(shape=(0, 3), data=(0, False))
    assert gr.asarray(empty).shape == (0, 3)
    assert gr.asarray(Interface(shape=(0,), data=b"")).shape == (0,)


def test_an_object_with_the_array_method_is_an_array():
    class Wrapped:
        def __array__(self, dtype=None, copy=None):
            return np.arange(3.0)

    assert gr.asarray(Wrapped()).tolist() == [0.0, 1.0, 2.0]


def test_sparse_matrices_say_what_to_do():
    class csr_matrix:
        nnz = 3

        def toarray(self):
            return np.ones(3)

        def __len__(self):
            raise TypeError("sparse array length is ambiguous")

        def __getitem__(self, key):
            raise IndexError

    with pytest.raises(gr.DTypeError, match=r"csr_matrix.*sparse.*toarray"):
        gr.asarray(csr_matrix())


HUGE = 2**36


@pytest.mark.parametrize(
    "make",
    [
        lambda: gr.asarray(np.broadcast_to(np.float32(1), (HUGE,))),
        lambda: gr.asarray(np.broadcast_to(np.int8(1), (2**20, 2**20))),
        lambda: gr.ones(3) + np.broadcast_to(np.float64(1), (HUGE, 3)),
        lambda: gr.from_dlpack(np.broadcast_to(np.float32(1), (2**40,))),
    ],
)
def test_arrays_larger_than_the_machine(make):
    with pytest.raises(gr.OutOfMemoryError, match="out of memory"):
        make()


@pytest.mark.parametrize(
    "value",
    [
        lambda z: [[z, z], [z, z]],
        lambda z: [[[z], [2]], [[3.0], [np.float32(4)]]],
        lambda z: ((1.0, 2.0), (3.0, z)),
        lambda z: [[gr.asarray([1.0, 2.0])], [np.array([3.0, 4.0])]],
        lambda z: [[], [z][:0]],
        lambda z: [[z + 1, True]],
    ],
)
def test_tensors_at_any_depth_of_nested_lists(value):
    got = gr.asarray(value(gr.asarray(5.0)))
    want = np.array(value(np.float32(5.0)))
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.numpy(), want)


def test_nested_lists_of_tensors_stay_lazy_and_have_gradients():
    f = lambda x: (gr.asarray([[x, 2.0], [x * x, 1.0]]) * gr.arange(4.0).reshape(2, 2)).sum()
    assert gr.grad(f)(gr.asarray(3.0)).item() == 2 * 2 * 3
    assert gr.asarray([[gr.ones([]) * 2]]).is_lazy
    ring = []
    ring.append(ring)
    for endless in (ring, [gr.ones([]), ring]):
        with pytest.raises(gr.GirihError):
            gr.asarray(endless)
    with pytest.raises(gr.ShapeError):
        gr.asarray([[gr.ones([]), gr.ones([])], [gr.ones([])]])


def test_lists_of_tensors_with_a_wrong_length_are_safe():
    class Lying(list):
        def __len__(self):
            return 2**60

    parts = Lying([gr.ones([1]), gr.zeros([1])])
    for f in (gr.stack, gr.concat, gr.hstack, gr.vstack, gr.dstack, gr.column_stack):
        assert f(parts).size == 2
    assert gr.linalg.multi_dot(Lying([gr.ones([1, 1]), gr.zeros([1, 1])])).shape == (1, 1)


def test_sequences_whose_iteration_contradicts_their_length_are_refused():
    class Endless(list):
        def __iter__(self):
            return itertools.count()

    class Short(list):
        def __iter__(self):
            return iter([1])

    for lying, words in ((Endless([1, 2]), "at least 3"), (Short([1, 2]), "only 1")):
        for value in (lying, [lying, lying]):
            with pytest.raises(gr.InvalidArgumentError, match=words):
                gr.asarray(value)
