"""Every exception class is raised, is caught by its built-in base class, and has an explanatory
message.
"""

from __future__ import annotations

import girih as gr
import numpy as np
import pytest
from girih import errors

A, B = (2, 3), (4, 5)
# By case: the call, the class, its built-in bases, words of the message.
CASES = {
    "broadcast": (lambda: gr.ones(A) + gr.ones(B), gr.ShapeError, ValueError, ["add", "[2, 3]", "[4, 5]"]),
    "singular": (lambda: gr.linalg.inv(gr.zeros([2, 2])).eval(), gr.LinAlgError, ValueError, ["inv", "singular"]),
    "matmul": (lambda: gr.ones(A) @ gr.ones(B), gr.ShapeError, ValueError, ["matmul", "[2, 3]", "[4, 5]"]),
    "reshape": (lambda: gr.ones(A).reshape(4), gr.ShapeError, ValueError, ["reshape", "[2, 3]", "[4]"]),
    "two -1": (lambda: gr.ones(A).reshape(-1, -1), gr.ShapeError, ValueError, ["reshape", "-1"]),
    "concat": (lambda: gr.concat([gr.ones(A), gr.ones(B)]), gr.ShapeError, ValueError, ["concat", "[2, 3]", "[4, 5]"]),
    "broadcast_to": (lambda: gr.ones(A).broadcast_to(4, 5), gr.ShapeError, ValueError, ["broadcast_to", "[2, 3]", "[4, 5]"]),
    "squeeze": (lambda: gr.ones(A).squeeze(0), gr.ShapeError, ValueError, ["squeeze", "[2, 3]"]),
    "negative size": (lambda: gr.zeros([2, -3]), gr.ShapeError, ValueError, ["zeros", "-3"]),
    "overflowing size": (lambda: gr.zeros([2**40, 2**40]), gr.ShapeError, ValueError, ["zeros", str(2**40)]),
    "rank": (lambda: gr.zeros([1] * 40), gr.ShapeError, ValueError, ["40"]),
    "max of nothing": (lambda: gr.zeros([0]).max(), gr.ShapeError, ValueError, ["max", "[0]"]),
    "ragged list": (lambda: gr.asarray([[1, 2], [3]]), gr.ShapeError, ValueError, ["asarray"]),
    "cross_entropy": (lambda: gr.cross_entropy(gr.ones(A), gr.arange(3)), gr.ShapeError, ValueError, ["cross_entropy", "[2, 3]", "[3]"]),
    "layer_norm": (lambda: gr.layer_norm(gr.ones(A), [4]), gr.ShapeError, ValueError, ["layer_norm", "[2, 3]"]),
    "item": (lambda: gr.ones(A).item(), gr.ShapeError, ValueError, ["item", "[2, 3]"]),
    "bool of many": (lambda: bool(gr.ones(A)), gr.ShapeError, ValueError, ["[2, 3]"]),
    "axis": (lambda: gr.ones(A).sum(2), gr.AxisError, (ValueError, IndexError), ["sum", "2", "-2..=1"]),
    "negative axis": (lambda: gr.softmax(gr.ones(A), axis=-3), gr.AxisError, IndexError, ["softmax", "-3"]),
    "repeated axis": (lambda: gr.ones(A).sum((0, -2)), gr.AxisError, ValueError, ["sum", "0"]),
    "permute": (lambda: gr.ones(A).permute(0, 0), gr.AxisError, ValueError, ["permute"]),
    "unknown dtype": (lambda: gr.zeros([1], dtype="float8"), gr.DTypeError, TypeError, ["float8", "float32"]),
    "dtype of an op": (lambda: ~gr.ones(A), gr.DTypeError, TypeError, ["float32"]),
    "scalar": (lambda: gr.ones([1], dtype=gr.int8) + 300, gr.InvalidArgumentError, ValueError, ["300", "int8"]),
    "float index": (lambda: gr.take(gr.ones(A), gr.ones([1]), axis=0), gr.DTypeError, TypeError, ["take", "float32"]),
    "no number": (lambda: gr.asarray("x"), gr.DTypeError, TypeError, ["str"]),
    "dict": (lambda: gr.exp({"a": 1}), gr.DTypeError, TypeError, ["dict"]),
    "class": (lambda: gr.exp(np.float32), gr.DTypeError, TypeError, ["type"]),
    "no DLPack": (lambda: gr.from_dlpack("x"), gr.DTypeError, TypeError, ["str", "__dlpack__"]),
    "huge size": (lambda: gr.eye(2**70), gr.InvalidArgumentError, ValueError, [str(2**70)]),
    "huge count": (lambda: gr.linspace(0, 1, -(2**70)), gr.InvalidArgumentError, ValueError, [str(2**70)]),
    "huge axis": (lambda: gr.ones(A).swapaxes(2**70, 0), gr.InvalidArgumentError, ValueError, [str(2**70)]),
    "negative classes": (lambda: gr.one_hot(gr.arange(3), -1), gr.ShapeError, ValueError, ["one_hot", "-1"]),
    "range of a dtype": (lambda: gr.arange(300, dtype="int8"), gr.InvalidArgumentError, ValueError, ["299", "int8"]),
    "operand": (lambda: gr.add(gr.ones(A), object()), gr.DTypeError, TypeError, ["object"]),
    "index": (lambda: gr.ones(A)[2], gr.IndexOutOfBoundsError, IndexError, ["2", "size 2"]),
    "negative index": (lambda: gr.ones(A)[0, -4], gr.IndexOutOfBoundsError, IndexError, ["-4", "size 3"]),
    "index as a value": (lambda: gr.ones(A)[2], gr.IndexOutOfBoundsError, ValueError, ["2", "size 2"]),
    "float size": (lambda: gr.ones(A).reshape([2.0, 3]), gr.DTypeError, TypeError, ["2.0", "integers"]),
    "size of 71 bits": (lambda: gr.ones(A).reshape([2**70]), gr.InvalidArgumentError, ValueError, ["64 bits"]),
    "frozen name": (lambda: gr.nn.Linear(2, 2).freeze("w"), gr.MissingNameError, KeyError, ["w", "weight, bias"]),
    "too many indices": (lambda: gr.ones(A)[0, 0, 0], gr.GirihError, IndexError, ["3"]),
    "zero step": (lambda: gr.ones(A)[::0], gr.InvalidArgumentError, ValueError, ["step"]),
    "copy": (lambda: gr.asarray([1.0], copy=False), gr.CopyRequiredError, (ValueError, BufferError), ["copy=False", "list"]),
    "two axes": (lambda: gr.ones(A).sum(0, dim=1), gr.InvalidArgumentError, ValueError, ["axis", "dim"]),
    "reduction": (lambda: gr.cross_entropy(gr.ones(A), gr.arange(2), reduction="max"), gr.InvalidArgumentError, ValueError, ["max"]),
    "approximate": (lambda: gr.gelu(gr.ones(A), approximate="yes"), gr.InvalidArgumentError, ValueError, ["yes"]),
    "arange": (lambda: gr.arange(0, 1, 0), gr.InvalidArgumentError, ValueError, ["step"]),
    "nothing to stack": (lambda: gr.stack([]), gr.InvalidArgumentError, ValueError, ["stack"]),
    "no tensor": (lambda: gr.print_graph(3), gr.InvalidArgumentError, ValueError, ["print_graph", "3"]),
    "randint": (lambda: gr.randint(3, 3, [1]), gr.InvalidArgumentError, ValueError, ["randint"]),
    "out of memory": (lambda: gr.randn([2**21, 2**21]).eval(), gr.OutOfMemoryError, MemoryError, []),
    "index at run time": (lambda: gr.take(gr.ones(A), gr.asarray([0, 7]), axis=0).eval(), gr.GirihError, Exception, ["7"]),
    "traced": (lambda: gr.compile(lambda x: x if x > 0 else -x)(gr.asarray(1.0)), gr.TracedValueError, TypeError, ["where", "'x'", "static_argnames"]),
    "threads": (lambda: gr.set_num_threads(-1), gr.InvalidArgumentError, ValueError, ["set_num_threads", "-1"]),
    "seed": (lambda: gr.manual_seed("a"), gr.DTypeError, TypeError, ["integer", "'a'"]),
    "no integer": (lambda: gr.ones(A).swapaxes(0.5, 1), gr.DTypeError, TypeError, ["integer", "0.5"]),
    "complex to real": (lambda: gr.astype([1j], gr.float32), gr.DTypeError, TypeError, ["astype", "complex64", "real(x)"]),
    "transpose": (lambda: gr.transpose(gr.ones(A), 0, 0), gr.AxisError, ValueError, ["transpose", "0", "once"]),
    "transpose negative": (lambda: gr.ones(A).transpose(1, -1), gr.AxisError, ValueError, ["transpose", "1", "once"]),
    "edges": (lambda: gr.histogram([1.0, 2.0], [1.0, 3.0, 2.0]), gr.InvalidArgumentError, ValueError, ["histogram", "3 before 2", "index 1"]),
    "lazy edges": (lambda: gr.histogram([1.0, 2.0], gr.linspace(3, 1, 3)), gr.InvalidArgumentError, ValueError, ["histogram", "3 before 2"]),
    "edges of two": (lambda: gr.histogram2d([1.0], [2.0], bins=([0.0, 1.0], [3.0, 2.0])), gr.InvalidArgumentError, ValueError, ["histogram2d", "3 before 2"]),
    "edges alone": (lambda: gr.histogram_bin_edges([1.0], [3.0, 2.0]), gr.InvalidArgumentError, ValueError, ["3 before 2"]),
    "no name": (lambda: gr.nn.ModuleDict()["a"], gr.MissingNameError, KeyError, ["ModuleDict", "'a'"]),
    "no list": (lambda: gr.concat(3), gr.DTypeError, TypeError, ["list of tensors", "int"]),
    "list of letters": (lambda: gr.stack("ab"), gr.DTypeError, TypeError, ["str"]),
    "view": (lambda: gr.ones(A).view(bool), gr.DTypeError, TypeError, ["view", "bool", "x != 0"]),
    "view of an odd axis": (lambda: gr.ones(A).view(gr.complex64), gr.ShapeError, ValueError, ["view", "[2, 3]", "multiple of 2"]),
    "view of a scalar": (lambda: gr.asarray(1j).view(float), gr.ShapeError, ValueError, ["view", "[]", "last axis"]),
    "text": (lambda: gr.text_to_graph("Graph:"), gr.FormatError, ValueError, ["line 1", "expected a node"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_a_typed_error(case):
    call, cls, bases, words = CASES[case]
    with pytest.raises(cls) as e:
        call()
    assert isinstance(e.value, gr.GirihError)
    bases = bases if isinstance(bases, tuple) else (bases,)
    assert all(isinstance(e.value, base) for base in bases)
    for word in words:
        assert word in str(e.value), f"{word!r} is not in {str(e.value)!r}"


def test_every_class_is_exported_and_derives_from_a_builtin():
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert getattr(gr, name) is cls
        assert issubclass(cls, gr.GirihError)
        assert (
            name == "GirihError" or len([b for b in cls.__mro__ if b.__module__ == "builtins"]) > 3
        )


def test_every_class_is_produced():
    produced = {cls for _, cls, _, _ in CASES.values()}
    # A failing device, and an evaluation that fails without an error in the program, cannot be
    # provoked here; the runtime's tests do. test_executor.py tests limits and cancellations.
    assert {getattr(errors, n) for n in errors.__all__} - produced <= {
        gr.DeviceError,
        gr.EvaluationCancelledError,
        gr.EvaluationError,
        gr.EvaluationTimeoutError,
    }


def test_an_error_records_nothing():
    g = gr.create_graph()
    with gr.reuse_graph(g):
        a, b = gr.ones(A), gr.ones(B)
        before = g.num_nodes
        with pytest.raises(gr.ShapeError):
            a @ b
        assert g.num_nodes == before


def test_a_tensor_stays_usable_after_a_failed_evaluation():
    x = gr.ones([4]) * 2
    huge = gr.randn([2**21, 2**21]) + x[0]
    for _ in range(2):
        with pytest.raises(gr.OutOfMemoryError, match=r"^Execution failed: "):
            gr.eval(x, huge)
        with pytest.raises(gr.OutOfMemoryError, match=r"^Execution failed: "):
            huge.eval()
        assert gr.is_lazy(huge)
    assert x.tolist() == [2.0] * 4
    assert (x + 1).tolist() == [3.0] * 4


def test_a_failed_index_leaves_the_rest_usable():
    x = gr.ones([3]) * 2
    bad = x.take(gr.asarray([5]), axis=0)
    for _ in range(2):
        with pytest.raises(gr.GirihError):
            bad.eval()
    assert x.tolist() == [2.0] * 3


def line_of(text):
    """The line number of a marker in this file, in the format of errors."""
    with open(__file__) as file:
        return f"{__file__}:{next(i for i, line in enumerate(file, 1) if text in line)}"


def test_errors_of_evaluation_name_op_shape_and_the_users_line():
    embedding = gr.nn.Embedding(5, 3)
    bad = embedding(gr.asarray([0, 7]))  # looked up here
    with pytest.raises(gr.IndexOutOfBoundsError) as e:
        bad.eval()
    for word in ("take", "f32[2, 3]", line_of("  # looked up here"), "7", "5"):
        assert word in str(e.value)
    # The op and the line first, the name of the fused kernel last.
    start, _, rest = str(e.value).partition(": index 7 is out of bounds for an axis of size 5")
    assert start.startswith("Execution failed: take (node ")
    assert start.endswith(line_of("  # looked up here") + " in Embedding")
    assert not rest or rest.startswith(" (kernel ")
    fused = (gr.take(gr.randn([10, 3]), gr.asarray([20]), axis=0) * 2).sum()
    with pytest.raises(
        gr.IndexOutOfBoundsError, match=r"^Execution failed: take \(node .* \(kernel fused_\w+\)$"
    ):
        fused.eval()
    two = gr.take(gr.ones([3]), gr.asarray([9])) + gr.take(gr.ones([3]), gr.asarray([0]))
    with pytest.raises(
        gr.IndexOutOfBoundsError, match=r"^Execution failed: one of take \(node .*; take \(node "
    ):
        two.eval()
    with pytest.raises(
        gr.LinAlgError,
        match=r"^Execution failed: cholesky \(node \d+\) -> f32\[2, 2\], recorded at",
    ):
        gr.linalg.cholesky(-gr.eye(2)).eval()
    loss = gr.cross_entropy(gr.ones([2, 3]), gr.asarray([1, 5]))  # taken here
    with pytest.raises(gr.IndexOutOfBoundsError, match="cross_entropy") as e:
        loss.item()
    assert line_of("  # taken here") in str(e.value)
    with pytest.raises(gr.OutOfMemoryError, match=r"f32\[1000000, 1000000\]"):
        gr.zeros([10**6, 10**6]).eval()


def test_dtypes_compare_with_anything():
    assert gr.float32 == gr.float32
    assert gr.float32 != gr.float64
    for other in ("float32", np.float64, float, None, 1, object()):
        assert (gr.float32 == other) is False
        assert (gr.float32 != other) is True
    assert len({gr.float32, gr.float32, gr.int8}) == 2
    assert (gr.bfloat16.name, gr.bfloat16.itemsize) == ("bfloat16", 2)
    assert gr.bool is gr.bool_
