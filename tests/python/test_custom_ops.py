"""User-defined ops made of tensor functions or of kernels, and user-defined ops in files."""

import subprocess
import sys
import textwrap
from typing import Any

import girih as gr
import numpy as np
import pytest

SDS = gr.ShapeDtypeStruct

ROW_SUMS = """
b0 = argument 0: {T}[{m*k}]
b1 = argument 1: {T}[{m}]
b2 = {T}[{m}]
row_sums over [{m} | {k}]
  prologue:
    v0 = load b0[{k}*i0 + i1]
  reduce sum v0
  v0 = core: {T}
  v1 = load b1[i0]
  v2 = mul(v0, v1): {T}
  b2[i0] = v2
outputs: [b2]
"""


def row_sums(name="test.row_sums", kernel=ROW_SUMS, version=1):
    return gr.custom_op(
        name=name,
        version=version,
        signature="T[m, k], T[m] -> T[m]",
        dtypes={"T": [gr.float32, gr.float64]},
        kernel=kernel,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 4), (17, 5), (2, 1000)])
def test_a_kernel_computes_what_numpy_does(dtype, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    scale = np.arange(shape[0]).astype(dtype)
    op = row_sums()
    expected = x.sum(-1) * scale
    got = op(gr.asarray(x), gr.asarray(scale))
    assert got.dtype.name == dtype
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)
    compiled = gr.compile(lambda x, s: op(x * 2, s) + 1)(gr.asarray(x), gr.asarray(scale))
    np.testing.assert_allclose(compiled.numpy(), expected * 2 + 1, rtol=1e-4, atol=1e-4)


def test_a_rule_takes_operands_cotangent_and_result():
    seen = {}

    @gr.custom_op(shape=lambda x, pair: x)
    def scaled(x, pair):
        return x * pair["by"] + pair["plus"]

    @scaled.def_vjp
    def rule(primals, cotangent, output):
        x, pair = primals
        values = {"x": x, "by": pair["by"], "ct": cotangent, "y": output}
        for name, value in values.items():
            gr.debug.callback(lambda v, name=name: seen.setdefault(name, v.tolist()), value)
        return cotangent * pair["by"], {"by": (cotangent * x).sum(), "plus": 0.0}

    x, by, plus = gr.asarray([1.0, 2.0]), gr.asarray(3.0), gr.asarray([10.0, 20.0])
    loss = lambda x, pair: (scaled(x, pair) * gr.asarray([1.0, 5.0])).sum()
    by_x, by_pair = gr.grad(loss, argnums=(0, 1))(x, {"by": by, "plus": plus})
    assert by_x.tolist() == [3.0, 15.0]
    assert (by_pair["by"].item(), by_pair["plus"].tolist()) == (11.0, [0.0, 0.0])
    assert seen == {"x": [1.0, 2.0], "by": 3.0, "ct": [1.0, 5.0], "y": [13.0, 26.0]}
    # Derivatives of higher orders differentiate the rule.
    cube = gr.custom_op(shape=lambda x: x, name="rules.cube")(lambda x: x**3)
    cube.def_vjp(lambda primals, ct, y: (3 * ct * primals[0] ** 2,))
    assert gr.grad(gr.grad(cube))(gr.asarray(2.0)).item() == 12.0


def test_a_kernel_takes_views_and_symbolic_sizes():
    op = row_sums()
    x = gr.reshape(gr.arange(12, dtype=gr.float32), (3, 4))
    np.testing.assert_array_equal(op(x.T, gr.ones([4])).numpy(), x.numpy().sum(0))
    f = gr.compile(lambda x, s: op(x, s), dynamic_dims={0: {0: "m"}, 1: {0: "m"}})
    for m in (1, 3, 5):
        np.testing.assert_array_equal(f(gr.ones([m, 4]), gr.ones([m])).numpy(), np.full(m, 4.0))


def test_a_batch_of_kernels_equals_a_loop():
    op = row_sums()
    x = gr.asarray(np.random.default_rng(1).standard_normal((2, 5, 3, 4)).astype(np.float32))
    s = gr.asarray([1.0, 2.0, 3.0])
    both = gr.vmap(gr.vmap(op, in_axes=(0, None)), in_axes=(0, None))(x, s).numpy()
    for i in range(2):
        for j in range(5):
            np.testing.assert_array_equal(both[i, j], op(x[i, j], s).numpy())


def test_rules_of_kernels():
    op = row_sums("test.ruled")
    x, s = gr.ones([2, 3]), gr.asarray([1.0, 2.0])
    with pytest.raises(gr.InvalidArgumentError, match=r"'test.ruled' has no derivative"):
        gr.grad(lambda x: op(x, s).sum())(x)
    op.def_vjp(
        lambda x, s: (op(x, s), (x, s)),
        lambda r, ct: (gr.broadcast_to((ct * r[1])[:, None], r[0].shape), ct * r[0].sum(1)),
    )
    slopes = gr.grad(lambda x, s: op(x, s).sum(), argnums=(0, 1))(x, s)
    assert [g.tolist() for g in slopes] == [[[1.0] * 3, [2.0] * 3], [3.0, 3.0]]
    with pytest.raises(gr.InvalidArgumentError, match="one more dimension"):
        op.def_vmap(lambda *_: None)
    with pytest.raises(gr.InvalidArgumentError, match="signature is the shape rule"):
        op.def_shape(lambda *_: None)


def test_a_kernel_that_is_wrong_is_refused_with_its_place():
    with pytest.raises(gr.GirihError, match=r"line 8, column 10: expected one of sum"):
        row_sums(kernel=ROW_SUMS.replace("reduce sum", "reduce mean"))
    with pytest.raises(gr.InvalidArgumentError, match=r"has \{n\}; expected a dtype or a size"):
        row_sums(kernel=ROW_SUMS.replace("{m*k}", "{n}"))
    with pytest.raises(gr.InvalidArgumentError, match="a name and a signature"):
        gr.custom_op(kernel=ROW_SUMS)
    with pytest.raises(gr.InvalidArgumentError, match="in place of a function"):
        gr.custom_op(lambda x: x, name="f", signature="f32[n] -> f32[n]", kernel="")
    with pytest.raises(gr.InvalidArgumentError, match="for ops made of a kernel"):
        gr.custom_op(lambda x: x, signature="f32[n] -> f32[n]")
    far = row_sums("test.far", ROW_SUMS.replace("{k}*i0 + i1", "{k}*i0 + 2*i1"))
    with pytest.raises(gr.InvalidArgumentError, match=r"m = 2, k = 3.*reaches 0\.\.=7 of 6"):
        far(gr.ones([2, 3]), gr.ones([2]))
    op = row_sums()
    with pytest.raises(gr.InvalidArgumentError, match=r"operand 1 is .*, of another size"):
        op(gr.ones([2, 3]), gr.ones([3]))
    with pytest.raises(gr.InvalidArgumentError, match="of another dtype"):
        op(gr.ones([2, 3], dtype=gr.int32), gr.ones([2], dtype=gr.int32))
    assert op(gr.ones([0, 3]), gr.ones([0])).tolist() == []


@gr.custom_op(takes="tensors")
def swish(x):
    return x * gr.sigmoid(x)


def test_an_op_of_tensors_supports_the_transforms_of_its_function():
    x = gr.asarray(np.linspace(-2, 2, 5, dtype=np.float32))
    plain = swish.__wrapped__
    np.testing.assert_array_equal(swish(x).numpy(), plain(x).numpy())
    for transform in (
        gr.compile,
        gr.vmap,
        lambda f: gr.grad(lambda x: f(x).sum()),
        lambda f: gr.grad(lambda x: gr.grad(lambda x: f(x).sum())(x).sum()),
        lambda f: lambda x: gr.jvp(f, (x,), (gr.ones_like(x),))[1],
    ):
        np.testing.assert_allclose(
            transform(swish)(x).numpy(), transform(plain)(x).numpy(), rtol=1e-6, atol=1e-6
        )
    assert "call(" in gr.make_graph(swish)(x).text


def test_an_op_of_tensors_is_fused_with_its_neighbours():
    x = gr.ones([64])
    kernels = gr.explain(gr.exp(swish(x * 2))).kernels
    assert len(kernels) == 1


def test_rules_of_an_op_of_tensors_come_before_its_function():
    @gr.custom_op(takes="tensors", shape=lambda x: x)
    def clipped(x):
        return x * 1

    clipped.def_vjp(lambda x: (clipped(x), None), lambda _, ct: (gr.clip(ct, -1.0, 1.0),))
    assert gr.grad(lambda x: (clipped(x) * 5).sum())(gr.ones([2])).tolist() == [1.0, 1.0]
    with pytest.raises(gr.InvalidArgumentError, match="follows from its function"):
        clipped.def_vmap(lambda *_: None)


def test_a_shape_rule_that_disagrees_with_the_function_is_refused():
    wrong = gr.custom_op(lambda x: x.sum(), name="wrong", takes="tensors", shape=lambda x: x)
    with pytest.raises(gr.ShapeError, match=r"wrong gives float32\[\]; .* says float32\[2\]"):
        wrong(gr.ones([2]))
    pair = gr.custom_op(lambda x: (x, x), name="pair", takes="tensors", shape=lambda x: x)
    with pytest.raises(gr.InvalidArgumentError, match="its shape rule gives"):
        pair(gr.ones([2]))
    with pytest.raises(gr.InvalidArgumentError, match="takes must be"):
        gr.custom_op(lambda x: x, takes="lists")


DEFINITIONS = """
    import sys
    import girih as gr, numpy as np

    def define():
        @gr.custom_op(name="test.mix", version=3, shape=lambda pair, by, how: (pair["a"], pair["b"]))
        def mix(pair, by, how):
            assert how == {"way": "sum"}
            return pair["a"] + by * pair["b"], pair["b"] * 2

        return mix
"""


def run(code, *arguments):
    text = textwrap.dedent(DEFINITIONS) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], capture_output=True, text=True
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("suffix", ["pfgb", "txt"])
def test_an_op_of_python_is_found_by_another_process(tmp_path, suffix):
    path = tmp_path / f"program.{suffix}"
    wrote = """
        mix = define()
        f = lambda x, y: mix({"a": x, "b": y}, 3, {"way": "sum"})[0]
        gr.make_graph(f)(gr.ones([2]), gr.arange(2, dtype=gr.float32)).save(sys.argv[1])
    """
    assert run(wrote, path) == (0, "")
    loads = """
        define()
        out = gr.load_graph(sys.argv[1])(gr.ones([2]), gr.arange(2, dtype=gr.float32))
        print(gr.tree.leaves(out)[0].tolist())
    """
    assert run(loads, path) == (0, "[1.0, 4.0]\n")
    status, said = run("gr.load_graph(sys.argv[1])", path)
    assert status != 0
    assert "'test.mix' version 3" in said
    assert "import" in said


def test_an_executable_with_an_op_of_python_runs_in_another_process(tmp_path):
    path = tmp_path / "program.pfgb"
    wrote = """
        mix = define()
        f = lambda x, y: mix({"a": x, "b": y}, 3, {"way": "sum"})[0] + 1
        gr.export(f, gr.ones([2]), gr.ones([2])).save(sys.argv[1])
    """
    assert run(wrote, path) == (0, "")
    loads = """
        define()
        print(gr.load_executable(sys.argv[1])(gr.ones([2]), gr.ones([2])).tolist())
    """
    assert run(loads, path) == (0, "[5.0, 5.0]\n")
    status, said = run("gr.load_executable(sys.argv[1])", path)
    assert status != 0
    assert "'test.mix' version 3" in said


def test_saving_an_op_with_unsupported_arguments_is_an_error(tmp_path):
    wrote = """
        class Own: pass
        op = gr.custom_op(lambda x, own: x, name="test.own", shape=lambda x, own: x)
        gr.make_graph(lambda x: op(x, own))(gr.ones([2])).save(sys.argv[1])
        gr.load_graph(sys.argv[1])
    """.replace("op = ", "own = Own()\n        op = ")
    status, said = run(wrote, tmp_path / "program.pfgb")
    assert status != 0
    assert "on other objects, which a file does not hold" in said


def test_a_kernel_in_a_file_is_found_and_compared(tmp_path):
    path = tmp_path / "program.pfgb"
    op = row_sums("test.file")
    gr.make_graph(op)(gr.ones([2, 3]), gr.ones([2])).save(path)
    loaded = gr.load_graph(path)
    assert gr.tree.leaves(loaded(gr.ones([2, 3]), gr.ones([2])))[0].tolist() == [3.0, 3.0]
    row_sums("test.file", ROW_SUMS.replace("mul(v0", "add(v0"))
    with pytest.raises(gr.GirihError, match="give a changed kernel another version"):
        gr.load_graph(path)


def kernel(signature, text, **dtypes):
    return gr.custom_op(name="test.kernel", signature=signature, dtypes=dtypes, kernel=text)


def test_a_stencil_reads_many_neighbours():
    count = 300
    loads = [f"  v{i} = load b0[i0 + {i}]" for i in range(count)]
    sums = [f"  v{count} = add(v0, v1): f32"]
    sums += [f"  v{count + i} = add(v{count + i - 1}, v{i + 1}): f32" for i in range(1, count - 1)]
    op = kernel(
        f"f32[n] -> f32[n-{count}]",
        f"b0 = argument 0: f32[{{n}}]\nb1 = f32[{{n-{count}}}]\nstencil over [{{n-{count}}}]\n"
        + "\n".join(loads + sums)
        + f"\n  b1[i0] = v{2 * count - 2}\noutputs: [b1]",
    )
    x = np.random.default_rng(2).random(1000, np.float32)
    expected = sum(x[i : 700 + i].astype(np.float64) for i in range(count))
    np.testing.assert_allclose(op(gr.asarray(x)).numpy(), expected, rtol=1e-5)


def test_fourteen_dimensions_are_reversed():
    rank = 14
    forth = " + ".join(f"{2**d}*i{d}" for d in range(rank))
    back = " + ".join(f"{2 ** (rank - 1 - d)}*i{d}" for d in range(rank))
    op = kernel(
        "f32[n] -> f32[n]",
        f"b0 = argument 0: f32[{{n}}]\nb1 = f32[{{n}}]\nturn over [{', '.join(['2'] * rank)}]\n"
        f"  v0 = load b0[{forth}]\n  b1[{back}] = v0\noutputs: [b1]",
    )
    x = np.arange(2**rank, dtype=np.float32)
    expected = x.reshape([2] * rank).transpose().ravel()
    np.testing.assert_array_equal(op(gr.asarray(x)).numpy(), expected)
    with pytest.raises(gr.InvalidArgumentError, match="V4"):
        op(gr.ones([2**rank - 1]))


def test_an_operand_that_is_not_read_is_not_computed():
    op = kernel(
        "f32[n] -> i64[n]",
        "b0 = argument 0: f32[{n}]\nb1 = i64[{n}]\nsteps over [{n}]\n"
        "  v0 = iota 5 + 9000000000000*i0: i64\n  b1[i0] = v0\noutputs: [b1]",
    )
    expected = 5 + 9_000_000_000_000 * np.arange(5)
    np.testing.assert_array_equal(op(gr.ones([5])).numpy(), expected)
    y = op(gr.exp(gr.ones([5])))
    assert len(gr.explain(y).kernels) == 1
    np.testing.assert_array_equal(y.numpy(), expected)


def test_a_product_of_windows():
    op = kernel(
        "f32[n], f32[n] -> f32[3, 3]",
        "b0 = argument 0: f32[{n}]\nb1 = argument 1: f32[{n}]\nb2 = f32[9]\nmm over [3, 3 | 4]\n"
        "  matmul b0[10 - i0 - 2*i2] by b1[2*i1 + i2]\n  v0 = core: f32\n"
        "  b2[3*i1 + i0] = v0\noutputs: [b2]",
    )
    x, y = np.random.default_rng(3).random((2, 20), np.float32)
    i, j, k = np.ogrid[:3, :3, :4]
    expected = (x[10 - i - 2 * k] * y[2 * j + k]).sum(-1).T
    np.testing.assert_allclose(op(gr.asarray(x), gr.asarray(y)).numpy(), expected, rtol=1e-5)


def test_a_scatter_with_its_batch_and_an_index_outside():
    op = kernel(
        "i64[n], f32[n, d] -> f32[5, d]",
        "b0 = argument 0: i64[{n}]\nb1 = argument 1: f32[{n*d}]\nb2 = f32[{5*d}]\n"
        "put over [{n}, {d}]\n  scatter_add + {d}*b0[i0] of 5, independent [1]\n"
        "  v0 = load b1[{d}*i0 + i1]\n  b2[i1] = v0\noutputs: [b2]",
    )
    rng = np.random.default_rng(4)
    index, values = rng.integers(0, 5, (3, 1000)), rng.random((3, 1000, 8), np.float32)
    expected = np.zeros((3, 5, 8))
    for i in range(3):
        np.add.at(expected[i], index[i], values[i])
    one = op(gr.asarray(index[0]), gr.asarray(values[0])).numpy()
    np.testing.assert_allclose(one, expected[0], rtol=1e-5)
    batch = gr.vmap(op)(gr.asarray(index), gr.asarray(values)).numpy()
    np.testing.assert_allclose(batch, expected, rtol=1e-5)
    with pytest.raises(gr.IndexOutOfBoundsError, match="index 5 is out of bounds"):
        op(gr.asarray(index[0] + 1), gr.asarray(values[0])).numpy()


def test_kernels_between_others_keep_their_operands():
    """A kernel that reads its operand backwards cannot write its result over the operand."""
    flip = kernel(
        "f32[n] -> f32[n]",
        "b0 = argument 0: f32[{n}]\nb1 = f32[{n}]\nflip over [{n}]\n"
        "  v0 = load b0[{n-1} - i0]\n  b1[i0] = v0\noutputs: [b1]",
    )
    x = np.random.default_rng(5).random(10_000, np.float32)
    got = gr.compile(lambda x: flip(gr.exp(flip(x * 2) + 1)))(gr.asarray(x))
    np.testing.assert_allclose(got.numpy(), np.exp(2 * x + 1), rtol=1e-5)


class TestWhenFunctionsOfTensorsAreCalled:
    @staticmethod
    def op() -> tuple[Any, list[tuple[int, ...]]]:
        calls: list[tuple[int, ...]] = []

        @gr.custom_op(name="test.counted", takes="tensors")
        def op(x: gr.Tensor, n: float = 2.0) -> gr.Tensor:
            calls.append(x.shape)
            return x * n + gr.asarray([1.0], dtype=x.dtype)

        return op, calls

    def test_functions_are_called_once_per_shape_dtype_and_argument(self) -> None:
        op, calls = self.op()
        for scale in (1.0, 2.0):
            assert op(gr.ones([2]) * scale).tolist() == [2 * scale + 1] * 2
        assert len(calls) == 1
        op(gr.ones([3]))
        op(gr.ones([2], dtype="float64"))
        op(gr.ones([2]), 3.0)
        assert len(calls) == 4
        assert op(gr.ones([2]), 3.0).tolist() == [4.0, 4.0]
        assert gr.grad(lambda x: op(x, 3.0).sum())(gr.ones([2])).tolist() == [3.0, 3.0]
        assert gr.vmap(op)(gr.ones([4, 2])).shape == (4, 2)
        assert len(calls) == 4

    def test_functions_with_captured_tensors_or_draws_are_called_each_time(self) -> None:
        calls: list[str] = []
        table = [gr.asarray([1.0, 2.0])]

        @gr.custom_op(name="test.outside", takes="tensors")
        def outside(x: gr.Tensor) -> gr.Tensor:
            calls.append("outside")
            return x * table[0]

        @gr.custom_op(name="test.drawn", takes="tensors")
        def drawn(x: gr.Tensor) -> gr.Tensor:
            calls.append("drawn")
            return x + gr.rand(2)

        x = gr.ones([2])
        assert outside(x).tolist() == [1.0, 2.0]
        table[0] = gr.asarray([3.0, 4.0])
        assert outside(x).tolist() == [3.0, 4.0]
        assert drawn(x).tolist() != drawn(x).tolist()
        assert calls == ["outside", "outside", "drawn", "drawn"]
        op, counted = self.op()
        f = gr.compile(lambda x: op(x), dynamic_dims={0: {0: "n"}})
        for n in (2, 3, 4):
            assert f(gr.ones([n])).tolist() == [3.0] * n
        assert len(counted) == 1
