"""User passes: the programs that they see, the programs that they return, and errors."""

import girih as gr
import numpy as np
import pytest


@gr.graph_pass
def tripled(program):
    """A pass that changes the result, so that tests see whether it has run."""

    def rule(node, *operands):
        return operands[0] * 3 if node.op == "tanh" else None

    return program.rewrite(rule)


def compiles():
    return gr.cache_stats()["compiles"]


class TestWhatRuns:
    def test_a_pass_takes_part_in_evaluation_within_its_scope_only(self):
        x = gr.asarray([1.0, 2.0])
        plain = gr.tanh(x).tolist()
        with gr.with_passes(tripled):
            assert gr.tanh(x).tolist() == [3.0, 6.0]
            with gr.without_passes(tripled):
                assert gr.tanh(x).tolist() == plain
        assert gr.tanh(x).tolist() == plain

    def test_an_executor_has_passes(self):
        executor = gr.Executor(gr.ExecutorConfig(passes=[tripled]))
        x = gr.asarray([1.0, 2.0])
        with gr.use_executor(executor):
            assert gr.tanh(x).tolist() == [3.0, 6.0]
            with gr.without_passes("cse"):
                assert gr.tanh(x).tolist() == [3.0, 6.0]
        assert [p.name for p in executor.config.passes] == ["tripled"]
        assert gr.tanh(x).tolist() == np.tanh(np.float32([1, 2])).tolist()

    def test_a_pass_is_part_of_the_key_and_runs_once_per_program(self):
        asked = []

        @gr.graph_pass
        def counting(program):
            asked.append(len(program.nodes))

        x = gr.asarray([1.0, 2.0, 3.0])
        with gr.with_passes(counting):
            before = compiles()
            gr.cosh(x).eval()
            gr.cosh(x + 0).eval()
            gr.cosh(x).eval()
            assert compiles() == before + 2
        assert asked == [2, 4] or len(asked) == 2

    def test_a_pass_receives_the_whole_program_in_one_call(self):
        seen = []

        @gr.graph_pass
        def looking(program):
            seen.append([node.op for node in program.nodes])

        a, b = gr.asarray([1.0, 2.0]), gr.asarray([[3.0], [4.0]])
        shared = gr.exp(a)
        with gr.with_passes(looking):
            gr.eval(gr.softmax(shared + b, axis=1), gr.sum(shared))
        assert len(seen) == 1
        assert sorted(seen[0]) == ["add", "exp", "input", "input", "reduce_sum", "softmax"]

    def test_compiled_functions_and_derivatives(self):
        with gr.with_passes(tripled):
            f = gr.compile(lambda x: gr.tanh(x) + 1)
            assert f(gr.asarray([1.0])).tolist() == [4.0]
            g = gr.compile(lambda x: gr.tanh(x), dynamic_dims={0: {0: "n"}})
            assert g(gr.asarray([1.0, 2.0])).tolist() == [3.0, 6.0]
            assert g(gr.asarray([1.0, 2.0, 3.0])).tolist() == [3.0, 6.0, 9.0]

    def test_passes_run_in_the_order_of_their_names(self):
        order = []
        first = gr.graph_pass(lambda program: order.append("first"), name="first")
        second = gr.graph_pass(name="second")(lambda program: order.append("second"))
        with gr.with_passes(first, second):
            gr.sinh(gr.asarray([0.5, 0.25, 0.125, 1.0])).eval()
        assert order == ["first", "second"]
        assert (first.name, second.name) == ("first", "second")

    def test_passes_keep_runtime_constants_and_random_leaves(self):
        with gr.with_passes(tripled):
            x = gr.asarray([1.0, 2.0])
            assert (gr.tanh(x) * 2.5 + 0.5).tolist() == [8.0, 15.5]
            gr.random.seed(3)
            drawn = (gr.tanh(x) + gr.random.uniform(shape=[2])).tolist()
        gr.random.seed(3)
        expected = np.float32([3, 6]) + np.asarray(gr.random.uniform(shape=[2]))
        assert drawn == expected.tolist()

    def test_control_flow_is_kept(self):
        x = gr.asarray([1.0, 2.0])
        with gr.with_passes(tripled):
            y = gr.fori_loop(0, 3, lambda i, v: v + 1, gr.tanh(x))
            assert y.tolist() == [6.0, 9.0]

    def test_eager_mode(self):
        with gr.with_passes(tripled), gr.eager_mode():
            assert gr.tanh(gr.asarray([1.0])).tolist() == [3.0]


class TestRewrite:
    def test_a_program_is_rewritten_and_keeps_names_parameters_and_hints(self):
        layer = gr.nn.Linear(3, 2)
        program = gr.make_graph(lambda x: {"out": gr.relu(layer(x))})(gr.ones([4, 3]))
        last = program.nodes[-1].id
        program.set_hint(last, "note", "kept")
        seen = []

        def rule(node, *operands):
            seen.append(node.op)
            return operands[0] * 2 if node.op == "broadcast_to" else None

        again = program.rewrite(rule)
        assert again.parameters.keys() == program.parameters.keys()
        assert [n for n, *_ in again.inputs] == ["x"]
        assert again.nodes[-1].hints["note"] == "kept"
        assert set(again(gr.ones([4, 3]))) == {"out"}
        assert "input" not in seen
        assert "parameter" not in seen

    def test_every_node_applied_again_gives_the_same_program(self):
        def f(x):
            y = gr.softmax(x[1:, ::2], axis=-1).reshape(-1)
            z = gr.pad(y, [(1, 2)], value=0.5).astype(gr.float64)
            values, _ = gr.sort(z, descending=True), gr.argmax(z)
            w = gr.cond(z.sum() > 0, lambda v: v + 1, lambda v: v - 1, values)
            return gr.scan(lambda c, v: (c + v, c * v), gr.asarray(0.0, dtype=gr.float64), w)

        x = gr.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))
        program = gr.make_graph(f)(x)
        by_node = program.rewrite(lambda node, *operands: gr.apply(node, *operands))
        by_name = program.rewrite(
            lambda node, *operands: gr.apply(node.op, *operands, **node.attributes)
        )
        for again in (by_node, by_name):
            for a, b in zip(again(x), program(x), strict=True):
                assert a.tolist() == b.tolist()

    def test_a_rule_that_changes_shape_or_dtype_is_refused(self):
        program = gr.make_graph(gr.sin)(gr.ones([2]))
        with pytest.raises(gr.InvalidArgumentError, match=r"sin_1 is f32\[2\].*gives f32\[1\]"):
            program.rewrite(lambda node, x: x[:1])
        with pytest.raises(gr.InvalidArgumentError, match=r"f32\[2\].*i64\[2\]"):
            program.rewrite(lambda node, x: x.astype(gr.int64))
        with pytest.raises(ZeroDivisionError):
            program.rewrite(lambda node, x: 1 / 0)


class TestRefused:
    def fails(self, function, *says):
        with (
            gr.with_passes(gr.graph_pass(function, name="wrong")),
            pytest.raises(gr.EvaluationError) as error,
        ):
            gr.cos(gr.asarray([1.0, 2.0])).eval()
        for part in ("pass wrong", *says):
            assert part in str(error.value), str(error.value)

    def test_errors_name_the_pass(self):
        self.fails(lambda program: 1 / 0, "ZeroDivisionError", "division by zero")
        self.fails(lambda program: 3, "gives a int; expected a Program")
        self.fails(lambda program: program.rewrite(lambda n, x: x[0]), "cos_1", "f32[2]", "f32[]")

    def test_outputs_of_another_shape_or_dtype_are_refused_with_both(self):
        other = gr.make_graph(lambda x: x.sum())(gr.ones([2]))
        self.fails(lambda program: other, "(f32[2]) -> (f32[2])", "(f32[2]) -> (f32[])")
        integers = gr.make_graph(lambda x: x.astype(gr.int32))(gr.ones([2]))
        self.fails(lambda program: integers, "f32[2]", "i32[2]")
        more = gr.make_graph(lambda x, y: x + y)(gr.ones([2]), gr.ones([2]))
        self.fails(lambda program: more, "(f32[2], f32[2])")

    def test_data_and_draws_of_its_own_are_refused(self):
        data = gr.asarray(np.float32([1, 2]))
        self.fails(lambda program: program.rewrite(lambda n, x: x + data), "a tensor with data")

        def draws(program):
            return program.rewrite(lambda n, x: x + gr.random.uniform(shape=[2]))

        self.fails(draws, "random draw")

    def test_evaluation_inside_of_a_pass_is_refused(self):
        self.fails(
            lambda program: program.rewrite(lambda n, x: x * (gr.ones([1]) + 1).item()),
            "evaluation inside of a pass",
        )

    def test_the_tensor_stays_usable(self):
        y = gr.cos(gr.asarray([0.0, 0.0, 0.0]))
        with gr.with_passes(gr.graph_pass(lambda p: 1 / 0)), pytest.raises(gr.EvaluationError):
            y.eval()
        assert y.tolist() == [1.0, 1.0, 1.0]

    def test_values_that_are_no_pass_are_refused(self):
        with pytest.raises(gr.InvalidArgumentError, match="expected a function, got int"):
            gr.graph_pass(3)
        with pytest.raises(gr.InvalidArgumentError, match="with_passes: expected names"):
            gr.with_passes(3)
