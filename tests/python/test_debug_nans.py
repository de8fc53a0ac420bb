"""NaNs as errors that name the op and the line: evaluation, compiled functions, eager mode."""

import inspect

import girih as gr
import pytest


def line():
    return inspect.currentframe().f_back.f_lineno


def fails(call, op, at):
    with gr.debug_nans(), pytest.raises(gr.EvaluationError) as error:
        call()
    text = str(error.value)
    assert f"{op} gives a NaN" in text, text
    assert f"test_debug_nans.py:{at}" in text, text


@pytest.mark.parametrize("dtype", [gr.float16, gr.bfloat16, gr.float32, gr.float64, gr.complex64])
def test_the_first_op_and_its_line_are_named(dtype):
    x = gr.asarray([1.0, 0.0], dtype=dtype)
    y = x - x
    z, at = y / (y + 0), line()
    fails(lambda: (z * 2 + 1).sum().eval(), "div", at)


def test_the_node_is_named():
    y = gr.log(gr.asarray([-1.0]))
    with gr.debug_nans(), pytest.raises(gr.EvaluationError, match=rf"log \(node {y.node_id}\)"):
        (y + 1).eval()


def test_a_compiled_function():
    at = []

    @gr.compile(dynamic_dims={0: {0: "n"}})
    def f(x):
        y = gr.exp(x)
        at.append(line() + 1)
        z = gr.sqrt(x)
        return (y * z).sum()

    assert f(gr.asarray([4.0])).shape == ()
    fails(lambda: f(gr.asarray([1.0, -1.0, 4.0])), "sqrt", at[0])
    with gr.debug_nans():
        assert f(gr.asarray([0.0, 0.0])).item() == 0.0


def test_eager_mode_fails_where_the_op_is_written():
    x = gr.asarray([float("inf")])
    with gr.debug_nans(), gr.eager_mode(), pytest.raises(gr.EvaluationError, match="sub gives"):
        x - x


def test_async_evaluation_is_waited_for():
    y = gr.log(gr.asarray([-2.0]))
    with gr.debug_nans(), pytest.raises(gr.EvaluationError, match="log gives"):
        gr.async_eval(y)


def test_what_has_no_nan_passes_and_values_stay():
    x = gr.asarray([-1.0, 0.0])
    y = gr.log(x)
    with gr.debug_nans():
        assert gr.exp(x).shape == (2,)
        assert gr.nan_to_num(gr.log(x)).tolist()[0] == 0.0
        assert gr.zeros([0]).log().tolist() == []
        assert (x > 0).tolist() == [False, False]
        with pytest.raises(gr.EvaluationError):
            y.eval()
        with gr.debug_nans(False):
            assert gr.isnan(gr.log(x) + 1).tolist() == [True, False]
    assert gr.isnan(y).tolist() == [True, False]


def test_the_switch():
    gr.set_debug_nans(True)
    try:
        with pytest.raises(gr.EvaluationError, match="debug_nans"):
            gr.log(gr.asarray([-3.0])).eval()
    finally:
        gr.set_debug_nans(False)
    assert gr.isnan(gr.log(gr.asarray([-3.0]))).item()
