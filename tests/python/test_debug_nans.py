"""NaNs as errors with the op and the line: evaluation, compiled functions, eager mode."""

import inspect

import girih as gr
import pytest


def line():
    return inspect.currentframe().f_back.f_lineno


def fails(call, op, at):
    """Asserts that the call raises for a NaN of that op at that line, or at the first line that the
    call appends to a list.
    """
    with gr.debug_nans(), pytest.raises(gr.EvaluationError) as error:
        call()
    text = str(error.value)
    at = at[0] if isinstance(at, list) else at
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


def test_finite_values_pass_and_failed_tensors_stay_usable():
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


def test_set_debug_nans_switches_the_check():
    gr.set_debug_nans(True)
    try:
        with pytest.raises(gr.EvaluationError, match="debug_nans"):
            gr.log(gr.asarray([-3.0])).eval()
    finally:
        gr.set_debug_nans(False)
    assert gr.isnan(gr.log(gr.asarray([-3.0]))).item()


def test_an_iteration_of_a_scan_is_named_with_the_line_in_its_body():
    at = []

    def body(c, x):
        at.append(line() + 1)
        y = gr.log(x)
        return c + y, c * 2

    def run(reverse):
        values = gr.asarray([1.0, 2.0, -1.0, 4.0, -2.0])
        return gr.scan(body, gr.asarray(0.0), values, reverse=reverse)[0].eval()

    fails(lambda: run(False), "log in iteration 2 of scan", at)
    fails(lambda: run(True), "log in iteration 0 of scan", at[0])


def test_an_iteration_of_a_while_loop_and_a_branch_inside():
    at = []

    def root(x):
        at.append(line() + 1)
        return gr.sqrt(x)

    def body(x):
        return gr.cond(x.sum() < 0.5, root, lambda x: x * 1, x) - 1.0

    def run():
        return gr.while_loop(lambda x: x.sum() > -10, body, gr.asarray([2.25])).eval()

    # 2.25, 1.25, 0.25, sqrt(0.25) - 1 = -0.5, whose square root is NaN.
    fails(run, "sqrt in the true branch of cond in iteration 3 of while_loop", at)


def test_derivatives_and_batches_of_control_flow_keep_the_lines():
    at = []

    def body(c, x):
        at.append(line() + 1)
        y = gr.sqrt(x * c)
        return y, None

    def f(x):
        return gr.scan(body, gr.asarray(1.0), x)[0]

    x = gr.asarray([1.0, 0.0])
    # The derivative of the square root at 0 is infinite; the derivative of the carry is 0 times
    # infinity.
    fails(lambda: gr.grad(f)(x).eval(), "mul in iteration 0 of scan", at)
    batch = gr.asarray([[1.0, 4.0], [1.0, -4.0]])
    fails(lambda: gr.vmap(f)(batch).eval(), "sqrt in iteration 1 of scan", at[0])
    fails(
        lambda: gr.jvp(f, (gr.asarray([1.0, -1.0]),), (gr.asarray([1.0, 1.0]),))[0].eval(),
        "sqrt in iteration 1 of scan",
        at[0],
    )


def test_the_op_inside_a_checkpoint_is_named():
    at = []

    def f(x):
        y = x * 2
        at.append(line() + 1)
        z = gr.log(y)
        return z.sum()

    fails(lambda: gr.checkpoint(f)(gr.asarray([-1.0])).eval(), "log in a call", at)


def test_control_flow_in_a_compiled_function():
    at = []

    def body(c, x):
        at.append(line() + 1)
        return c + gr.arcsin(x), None

    @gr.compile
    def f(x):
        return gr.scan(body, gr.zeros([]), x)[0]

    assert f(gr.asarray([0.0, 1.0])).shape == ()
    fails(lambda: f(gr.asarray([0.0, 1.0, 2.0])), "asin in iteration 2 of scan", at[0])
