"""What graphs know of recorded ops: nodes, operands, users, order; and that nothing runs before a
value is asked for.
"""

from __future__ import annotations

import copy
import gc
import random
import threading

import girih as gr
import numpy as np
import pytest
from conftest import Counters, close, sample


def test_ops_wait_until_a_value_is_asked_for():
    a, b = gr.eval(gr.asarray(sample((4, 5), "float32"))), gr.eval(gr.ones([5, 3]))
    memory = gr.cache_stats()["memory_bytes"]
    with Counters() as c:
        y = gr.relu(a @ b).sum()
        assert (y.shape, y.dtype, y.is_lazy) == ((), gr.float32, True)
        assert gr.cache_stats()["memory_bytes"] == memory
    assert (c["runs"], c["kernels_launched"]) == (0, 0)
    with Counters() as c:
        y.eval()
        assert y.materialize() is y
    assert c["runs"] == 1
    close(y, np.maximum(a.numpy() @ np.ones((5, 3), "f4"), 0).sum(), rtol=1e-5)


def test_a_value_that_is_kept_stays_where_it_is():
    y = gr.ones([100]) * 2
    first = y.materialize().numpy()
    with Counters() as c:
        second = y.materialize().numpy()
    assert c["runs"] == 0
    assert first.__array_interface__["data"] == second.__array_interface__["data"]


def test_data_is_there_at_once_and_a_wrong_length_is_an_error():
    with Counters() as c:
        x = gr.asarray(np.arange(6.0))
        assert not x.is_lazy
        assert x.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert c["runs"] == 0
    for data in (b"\0" * 20, bytearray(20)):
        with pytest.raises(gr.ShapeError, match=r"6"):
            gr.asarray(np.frombuffer(data, "f4")).reshape([2, 3])


def test_a_graph_lists_what_has_no_value_yet():
    with gr.graph_scope() as graph:
        x = gr.asarray([1.0, 2.0])
        y = x + 3
        z = y * 2
        lazy = [t for t in graph.unrealized() if t.shape == (2,)]
        assert len(lazy) == 2
        assert gr._girih.is_same(lazy[0], y)
        assert gr._girih.is_same(lazy[1], z)
        del lazy
        z.eval()
        y.eval()
        assert [t for t in graph.unrealized() if t.shape == (2,)] == []
        w = x - 3
        assert len([t for t in graph.unrealized() if t.shape == (2,)]) == 1
        del w
        gc.collect()
        assert [t for t in graph.unrealized() if t.shape == (2,)] == []


def test_an_op_is_recorded_with_its_operands():
    program = gr.make_graph(lambda x: (x + 3) * 2)(gr.ones([2]))
    ops = [node for node in program.nodes if node.kind == "INTERMEDIATE"]
    assert [node.op for node in ops] == ["add", "mul"]
    assert [program.node(i).kind for i in ops[0].inputs] == ["INPUT", "CONSTANT"]
    assert ops[1].inputs[0] == ops[0].id
    assert ops[0].users == [ops[1].id]


def test_inputs_are_made_from_specs():
    spec = gr.ShapeDtypeStruct((2, 3), gr.int32)
    f = lambda x, state, scale: x.sum() * state["y"][0] * scale
    args = spec, {"y": [gr.ShapeDtypeStruct(()), 1]}, 2.0
    with Counters() as c:
        program = gr.make_graph(f)(*args)
    assert c["runs"] == 0
    assert program.inputs[:2] == [("x", [2, 3], "int32"), ("state.y.0", [], "float32")]
    exported = gr.export(f, *args)
    x, y = gr.ones([2, 3], dtype=gr.int32), gr.asarray(0.5)
    assert exported(x, {"y": [y, 1]}, 2.0).item() == 6.0
    assert gr.make_graph(gr.sin)(gr.ShapeDtypeStruct((0,))).inputs == [("x", [0], "float32")]
    with pytest.raises(gr.GirihError):
        gr.make_graph(f)(gr.ShapeDtypeStruct((-1,)), {"y": [1.0]}, 2.0)


def random_graph(draw, steps):
    """A function of two tensors that records random ops of earlier values."""
    choices = [
        (draw.choice(["add", "mul", "neg", "sum", "where"]), [draw.randrange(99) for _ in range(3)])
        for _ in range(steps)
    ]

    def f(x, y):
        values = [x, y]
        for op, at in choices:
            a, b, c = (values[i % len(values)] for i in at)
            values.append(
                a + b if op == "add" else a * b if op == "mul" else -a if op == "neg"
                else a.sum() + b if op == "sum" else gr.where(a > b, b, c)
            )  # fmt: skip
        return values[-1], values[len(values) // 2]

    return f


def check_order(program):
    seen = set()
    for node in program.nodes:
        assert set(node.inputs) <= seen
        assert all(user > node.id for user in node.users)
        seen.add(node.id)
    assert seen == set(range(program.num_nodes))


def test_operands_of_random_graphs_come_before_users_in_the_same_order_each_time():
    draw = random.Random(4)
    args = gr.ones([2]), gr.zeros([2])
    for _ in range(1000):
        f = random_graph(draw, draw.randint(1, 30))
        program = gr.make_graph(f)(*args)
        check_order(program)
        assert gr.make_graph(f)(*args).text == program.text


def test_a_cycle_is_an_error():
    text = gr.make_graph(lambda x: gr.neg(gr.exp(x)))(gr.ones([2])).text
    lines = text.splitlines()
    exp = next(i for i, line in enumerate(lines) if "= exp(" in line)
    neg = next(i for i, line in enumerate(lines) if "= neg(" in line)
    lines[exp], lines[neg] = lines[neg], lines[exp]
    with pytest.raises(gr.GirihError):
        gr.text_to_graph("\n".join(lines))


def test_ids_of_graphs_that_two_threads_record_at_once_are_independent():
    barrier = threading.Barrier(2, timeout=60)
    counts, errors = [], []

    def record(width):
        try:
            with gr.graph_scope() as graph:
                x = gr.asarray(np.ones(width))
                for step in range(50):
                    barrier.wait()
                    assert graph.num_nodes == 1 + step
                    x = gr.exp(x)
                numbers = [int(line.split("%")[1].split(" ")[0].split(":")[0])
                           for line in graph.dump().splitlines()[1:]]  # fmt: skip
                counts.append(numbers)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=record, args=(n,)) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert counts == [list(range(51))] * 2


def test_a_copy_of_a_tensor_records_no_node():
    x = gr.ones([3]) * 2
    with Counters() as c:
        y = copy.copy(x)
    assert c["nodes_recorded"] == 0
    assert y.tolist() == x.tolist()


def test_a_tensor_in_several_places_of_a_tree_is_computed_once():
    y = gr.ones([3]) * 2
    with Counters() as c:
        gr.eval(y, [y, {"k": y}])
    assert c["runs"] == 1
    with Counters() as c:
        gr.eval(y, [y, {"k": y}])
    assert c["runs"] == 0


#: What asks for a value.
ASK = {
    "numpy": lambda y: y.numpy(), "array": np.asarray, "print": str, "repr": repr,
    "format": lambda y: f"{y}", "item": lambda y: y.item(), "float": float, "int": int,
    "bool": bool, "complex": complex, "tolist": lambda y: y.tolist(), "eval": gr.eval,
}  # fmt: skip


@pytest.mark.parametrize("ask", ASK)
def test_asking_for_a_value_computes_it_once(ask):
    y = gr.ones([]) * 3
    for runs in (1, 0):
        with Counters() as c:
            ASK[ask](y)
        assert c["runs"] == runs


@pytest.mark.parametrize("ask", ["item", "float", "int", "bool", "complex"])
@pytest.mark.parametrize("shape", [[2], [0], [2, 1]])
def test_a_number_is_a_tensor_of_one_element(ask, shape):
    with pytest.raises(gr.GirihError):
        ASK[ask](gr.ones(shape) * 3)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_other_libraries_get_the_memory_of_a_lazy_tensor(dtype):
    torch = pytest.importorskip("torch")
    data = sample((4, 6), dtype)
    for view in (lambda x: x, lambda x: x.T, lambda x: x[1:, ::2]):
        lazy = view(gr.asarray(data)[...])
        found = torch.from_dlpack(lazy)
        np.testing.assert_array_equal(found.numpy(), view(data))
        np.testing.assert_array_equal(np.from_dlpack(lazy), view(data))
    y = gr.eval(gr.asarray(data))
    assert torch.from_dlpack(y).data_ptr() == np.from_dlpack(y).__array_interface__["data"][0]


def test_the_graph_of_a_context_can_be_replaced():
    context, before, graph = gr.Context.current(), gr.current_graph(), gr.create_graph()
    try:
        context.set_graph(graph)
        assert context.graph() == graph == gr.current_graph() != before
        x = gr.ones([2]) + 1
        assert (graph.num_nodes, x.tolist()) == (3, [2.0, 2.0])
    finally:
        context.set_graph(before)
    assert gr.current_graph() == before


def test_there_is_a_user_for_each_edge():
    program = gr.make_graph(lambda x: (x * x, gr.where(x > x, x, x)))(gr.ones([2]))
    x = program.nodes[0]
    edges = [(node.id, i) for node in program.nodes for i in node.inputs]
    assert x.users == [user for user, i in edges if i == x.id]
    assert len(x.users) == 6
    for node in program.nodes:
        assert program.node(node.id).users == node.users == [u for u, i in edges if i == node.id]


def test_a_tensor_is_found_by_the_number_of_its_node():
    with gr.graph_scope() as graph:
        x = gr.asarray([1.0, 2.0])
        y = x * 2
        assert gr._girih.is_same(graph.tensor(y.node_id), y)
        assert graph.tensor(y.node_id).tolist() == [2.0, 4.0]
        number = y.node_id
        del y
        gc.collect()
        for missing in (number, 99, -1, 2**40):
            with pytest.raises(gr.InvalidArgumentError):
                graph.tensor(missing)
