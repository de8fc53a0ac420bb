"""GEMMs with prologues: casts, scales, activations and masks of the operands."""

import girih as gr
import numpy as np
import pytest

RNG = np.random.default_rng(7)


def floats(*shape, dtype="float32"):
    return gr.asarray(RNG.normal(size=shape).astype("float32")).astype(dtype)


def small_integers(*shape):
    return gr.asarray(RNG.integers(-127, 128, shape).astype("int8"))


def fused_and_apart(f, *operands):
    """The results of a function with one GEMM, with and without its prologues, as bytes."""
    fused = gr.compile_graph(f(*operands))
    assert fused.num_kernels == 1, fused
    with gr.without_passes("matmul_prologue"):
        assert gr.compile_graph(f(*operands)).num_kernels > 1
        apart = bytes(f(*operands).astype("float32").numpy())
    return bytes(f(*operands).astype("float32").numpy()), apart


CASES = {
    "scaled weights": lambda x, w: x @ (w.astype("float32") * 0.01),
    "scaled weights, transposed": lambda x, w: x @ (w.T.astype("float32") * 0.01).T,
    "activation": lambda x, w: gr.relu(x) @ w.astype("float32"),
    "epilogue too": lambda x, w: gr.tanh((x * x) @ w.astype("float32")),
    "mixed": lambda x, w: x.astype("bfloat16") @ w.astype("bfloat16").T,
    "half": lambda x, w: x.astype("float16") @ (w.astype("float16") / 7),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rows", [1, 2, 5, 17, 33, 130])
def test_no_bit_changes(case, rows):
    # Sizes that are and are not multiples of the tile's, square for transposed operands.
    for size in (64, 101, 320):
        operands = floats(rows, size), small_integers(size, size)
        fused, apart = fused_and_apart(CASES[case], *operands)
        assert fused == apart, (case, rows, size)


def test_batches_views_and_special_values():
    x, w = floats(3, 7, 40), floats(3, 40, 21)
    fused, apart = fused_and_apart(lambda x, w: (x + 1) @ (w * 2), x, w)
    assert fused == apart
    # A slice of a computed operand, and a scale for each row of a view.
    fused, apart = fused_and_apart(lambda x, w: (x[0, ::2] + 1) @ (w * 2)[1], x, w)
    assert fused == apart
    special = np.array([[np.nan, np.inf, -np.inf, -0.0, 1e-40]], "float32")
    y = gr.relu(gr.asarray(special)) @ gr.eye(5)
    with np.errstate(invalid="ignore"):
        want = np.maximum(special, 0) @ np.eye(5, dtype="float32")
    np.testing.assert_array_equal(y.numpy(), want)


def test_masks_are_drawn_in_the_product():
    x, w = floats(40, 64), floats(64, 32)
    info = gr.compile_graph(gr.dropout(x, 0.5) @ w)
    assert info.num_kernels == 1
    gr.manual_seed(5)
    fused = (gr.dropout(x, 0.5) @ w).numpy()
    gr.manual_seed(5)
    with gr.without_passes("matmul_prologue"):
        np.testing.assert_array_equal(fused, (gr.dropout(x, 0.5) @ w).numpy())


def test_operands_with_other_users_are_stored():
    x, w = floats(16, 64), floats(64, 32)
    y = gr.relu(x)
    assert gr.compile_graph([y @ w, y]).num_kernels == 2
    index = gr.asarray(np.array([1, 99], "int64"))
    with pytest.raises(IndexError):
        gr.eval(gr.relu(gr.take(x, index, 0)) @ w)


def test_small_integer_weights_are_not_expanded_to_floats():
    x, w, scale = floats(4, 2048), small_integers(2048, 2048), floats(2048)
    call = gr.compile(lambda x, w, scale: x @ (w.astype("float32") * scale))
    gr.eval(call(x, w, scale))
    before = gr.cache_stats()["memory_bytes"]
    gr._girih.reset_peak_memory()
    gr.eval(call(x, w, scale))
    assert gr.cache_stats()["peak_memory_bytes"] - before < 1 << 20


def test_threads_change_no_bit():
    x, w = floats(70, 640), small_integers(640, 500)
    results = set()
    for threads in (1, 3, 2):
        gr.set_num_threads(threads)
        y = (x * 2) @ (w.astype("float32") * 0.5)
        results.add(bytes(y.numpy()))
    assert len(results) == 1


def test_a_donated_source_is_not_overwritten_while_it_is_read():
    call = gr.compile(lambda x, w: gr.relu(x) @ gr.relu(w), donate=(0, 1))
    x, w = RNG.normal(size=(2, 300, 300)).astype("float32")
    want = (gr.relu(gr.asarray(x)) @ gr.relu(gr.asarray(w))).numpy()
    for _ in range(3):
        donated = gr.asarray(x) + 0, gr.asarray(w) + 0
        gr.eval(*donated)
        np.testing.assert_array_equal(call(*donated).numpy(), want)
