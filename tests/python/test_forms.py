"""Representations of programs and tensors: text, PFGB, DOT, files, and the command."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import girih as gr
import numpy as np
import pytest
from conftest import DTYPES
from test_lazy import SECTION_10


def section_10():
    x = gr.randn([1024, 512])
    w1 = gr.randn([512, 256])
    h = gr.relu(x @ w1 + gr.zeros([256]))
    w2 = gr.randn([256, 10])
    return -gr.softmax(h @ w2, dim=1).log().sum()


W = np.array([[0.5, 1.0], [-1.0, 2.0]], np.float32)


def model():
    x = gr.asarray([[1.0, 2.0], [3.0, -4.0]])
    w = gr.asarray(W)
    return x, gr.softmax(x @ w + 1.5, dim=-1)


def test_text_of_the_seeds_program_is_read_back():
    with gr.graph_scope():
        text = gr.graph_to_text(section_10())
    assert sorted(text.splitlines()) != []
    program = gr.text_to_graph(SECTION_10)
    assert gr.graph_to_text(program) + "\n" == SECTION_10
    assert (program.num_nodes, program.num_ops) == (12, 8)
    assert [shape for _, shape, _ in program.inputs] == [[1024, 512], [512, 256], [256, 10]]
    assert gr.text_to_graph(text).text == text


def test_text_errors_show_the_place():
    with pytest.raises(
        gr.FormatError, match=r"(?s)line 2, column 8.*did you mean input.*\^\^\^\^\^"
    ):
        gr.text_to_graph("Graph:\n  %0 = inptu([2], f32)\n  outputs: []")
    assert issubclass(gr.FormatError, ValueError)


def test_a_program_round_trips_with_its_values():
    x, y = model()
    data = gr.serialize(y, inputs=[x])
    assert data[:4] == b"PFGB"
    program = gr.deserialize(data)
    assert program.serialize() == data
    np.testing.assert_array_equal(program(x).numpy(), y.numpy())
    other = np.ones((2, 2), np.float32)
    e = np.exp(other @ W + 1.5)
    np.testing.assert_allclose(program(other).numpy(), e / e.sum(-1, keepdims=True), rtol=1e-6)


def test_without_inputs_everything_is_held_and_several_outputs_are_a_tuple():
    x, y = model()
    program = gr.deserialize(gr.serialize([y, y.sum()]))
    a, b = program()
    np.testing.assert_array_equal(a.numpy(), y.numpy())
    assert b.item() == y.sum().item()
    assert program.inputs == []
    assert gr.serialize(program) == program.serialize()
    assert x.shape == (2, 2)


def test_inputs_have_names():
    a, b = gr.asarray([6.0]), gr.asarray([2.0])
    program = gr.deserialize(gr.serialize(a / b, inputs={"num": a, "den": b}))
    assert [name for name, _, _ in program.inputs] == ["num", "den"]
    assert program(den=gr.asarray([3.0]), num=a).item() == 2.0
    assert program(a, den=gr.asarray([3.0])).item() == 2.0
    assert repr(program) == "Program(num: f32[1], den: f32[1]) -> (%2: f32[1])"
    with pytest.raises(gr.InvalidArgumentError, match="takes 2 inputs"):
        program(a)
    with pytest.raises(gr.InvalidArgumentError, match="no further input 'nom'"):
        program(a, nom=b)
    with pytest.raises(gr.InvalidArgumentError, match=r"f32\[1\], got f32\[2\]"):
        program(a, gr.asarray([1.0, 2.0]))
    # All inputs that do not fit are named.
    misfits = r"input num .* is f32\[1\], got i32\[1\]; input den .* is f32\[1\], got f32\[1, 2\]"
    with pytest.raises(gr.InvalidArgumentError, match=misfits):
        program(den=gr.ones([1, 2]), num=gr.ones([1], dtype="int32"))


def test_outputs_of_a_dict_have_its_keys():
    x, y = model()
    program = gr.deserialize(gr.serialize({"b": y, "a": {"sum": y.sum(), "x": x}, "again": y}, [x]))
    assert [name for name, _, _ in program.outputs] == ["a.sum", "a.x", "again", "b"]
    out = program(x * 2)
    assert list(out) == ["a.sum", "a.x", "again", "b"]
    np.testing.assert_array_equal(out["a.x"].numpy(), x.numpy() * 2)
    np.testing.assert_array_equal(out["again"].numpy(), out["b"].numpy())
    # A dictionary with one entry survives, also through text.
    one = gr.text_to_graph(gr.deserialize(gr.serialize({"a b": x + 1}, [x])).text)
    assert list(one(x)) == ["a b"]
    with pytest.raises(gr.FormatError, match="two of them are called 'a'"):
        gr.text_to_graph("Graph:\n  %0 = input([], f32)\n  outputs: [a=%0, a=%0]")


class Net(gr.nn.Module):
    def __init__(self):
        self.body = gr.nn.Sequential(gr.nn.Linear(3, 4), gr.nn.ReLU())
        self.head = gr.nn.Linear(4, 2, bias=False)

    def forward(self, x):
        return {"logits": self.head(self.body(x)), "hidden": self.body(x)}


def test_parameters_of_modules_are_parameters_of_the_file():
    net, x = Net(), gr.randn([5, 3])
    # The parameters are not computed yet: the file has their values, not the random ops.
    program = gr.deserialize(gr.serialize(net(x), inputs={"x": x}))
    expected = dict(net.named_parameters())
    assert program.parameters.keys() == expected.keys()
    for name, tensor in program.parameters.items():
        np.testing.assert_array_equal(tensor.numpy(), expected[name].numpy())
    assert program.text.count("parameter(") == 3
    assert "random" not in program.text
    np.testing.assert_allclose(program(x)["logits"].numpy(), net(x)["logits"].numpy())
    # A serialised module is its tensors by name.
    state = gr.deserialize(gr.serialize(net))()
    assert state.keys() == net.state_dict().keys()
    assert Net().load_state_dict(state).head.weight.tolist() == net.head.weight.tolist()


def test_compiled_functions_are_saved_with_their_dynamic_dimensions(tmp_path):
    net = Net()
    forward = gr.compile(lambda x: net(x), dynamic_dims={0: {0: gr.Dim("batch", max=64)}})
    with pytest.raises(gr.InvalidArgumentError, match="has 0 programs"):
        gr.save_graph(tmp_path / "net.pfgb", forward)
    gr.save_graph(tmp_path / "net.pfgb", forward, inputs=[gr.randn([7, 3])])
    assert forward.num_programs == 1
    program = gr.load_graph(tmp_path / "net.pfgb")
    assert program.inputs == [("x", ["batch", 3], "float32")]
    assert program.outputs[0] == ("hidden", ["batch", 4], "float32")
    assert program.parameters.keys() == dict(net.named_parameters()).keys()
    for batch in [1, 2, 7, 64]:
        x = gr.randn([batch, 3])
        np.testing.assert_allclose(program(x)["logits"].numpy(), net(x)["logits"].numpy(), 1e-6)
    with pytest.raises(
        gr.InvalidArgumentError, match=r"x of the program is f32\[batch, 3\] with batch in 1..=64"
    ):
        program(gr.randn([65, 3]))
    with pytest.raises(gr.InvalidArgumentError, match=r"got f32\[5, 4\] \(batch = 5\)"):
        program(gr.randn([5, 4]))
    # Every representation keeps symbolic sizes; text has no values.
    again = gr.deserialize(program.serialize())
    assert again.serialize() == program.serialize()
    assert gr.text_to_graph(program.text).text == program.text
    assert "svg" in program.to_svg()
    # A module that has been called can be serialised without inputs.
    forward.clear()
    forward(gr.randn([2, 3]))
    assert gr.deserialize(gr.serialize(forward)).inputs[0][1] == ["batch", 3]
    # A compiled caller fixes the size with a guard.
    outer = gr.compile(lambda x: program(x)["hidden"] * 2, dynamic_dims={0: {0: "n"}})
    assert outer(gr.ones([3, 3])).shape == (3, 4)
    assert outer(gr.ones([4, 3])).shape == (4, 4)


def test_guards_of_a_saved_function_hold_when_it_is_loaded():
    def f(x):
        return x.sum() if x.shape[0] > 4 else x.max()

    f = gr.compile(f, dynamic_dims={0: {0: "n"}})
    program = gr.deserialize(gr.serialize(f, inputs=[gr.ones([6])]))
    assert program(gr.ones([9])).item() == 9.0
    assert program.guards
    with pytest.raises(gr.InvalidArgumentError, match=r"does not serve n = 4: .* at which 4 < n"):
        program(gr.ones([4]))
    # Text has names of axes, too; two axes with one name have the same size.
    text = gr.text_to_graph(program.text)
    with pytest.raises(gr.InvalidArgumentError, match="n = 4"):
        text(gr.ones([4]))
    both = gr.compile(lambda a, b: a + b, dynamic_dims={0: {0: "n"}, "b": {0: "n"}})
    program = gr.deserialize(gr.serialize(both, inputs={"a": gr.ones([3]), "b": gr.ones([3])}))
    assert program(gr.ones([1]), gr.ones([1])).tolist() == [2.0]
    with pytest.raises(gr.InvalidArgumentError, match=r"input b .* got f32\[3\] \(n = 2\)"):
        program(gr.ones([2]), gr.ones([3]))


def test_functions_with_side_effects_or_other_results_are_not_saved():
    norm = gr.nn.BatchNorm1d(3)
    train = gr.compile(lambda x: norm(x))
    with pytest.raises(gr.InvalidArgumentError, match=r"running_mean.* when it is called"):
        gr.serialize(train, inputs=[gr.randn([4, 3])])
    with pytest.raises(gr.InvalidArgumentError, match="returns 3 beside tensors"):
        gr.serialize(gr.compile(lambda x: (x, 3)), inputs=[gr.ones([2])])


@pytest.mark.parametrize("node", [-1, 2**40, 3])
def test_hints_and_names_of_unknown_nodes_are_errors(node):
    program = gr.text_to_graph("Graph:\n  %0 = input([], f32)\n  outputs: [%0]")
    for call in [
        lambda: program.hints(node),
        lambda: program.set_name(node, "x"),
        lambda: program.set_hint(node, "a", "b"),
    ]:
        with pytest.raises(gr.IndexOutOfBoundsError, match=rf"no node {node} in a graph of 1 "):
            call()


def test_layouts_are_hints_that_are_checked():
    program = gr.text_to_graph("Graph:\n  %0 = input([4, 6], f32)\n  outputs: [%0]")
    program.set_hint(0, "layout", "Grid(2, 3)")
    assert gr.deserialize(program.serialize()).hints(0) == {"layout": "Grid(2, 3)"}
    assert gr.text_to_graph(program.text).hints(0) == {"layout": "Grid(2, 3)"}
    with pytest.raises(gr.InvalidArgumentError, match=r"at least 1, found RowPartition\(0\)"):
        program.set_hint(0, "layout", "RowPartition(0)")
    with pytest.raises(gr.InvalidArgumentError, match="got -2"):
        gr.set_num_threads(-2)


def test_programs_differentiate_and_learned_weights_are_kept():
    w = gr.asarray([1.0, 2.0])
    w = gr.eval(w - 0.5)
    x = gr.asarray([3.0, 4.0])
    program = gr.deserialize(gr.serialize((w * x).sum(), inputs=[x]))
    assert program(x).item() == 7.5
    assert gr.grad(lambda v: program(v))(x).tolist() == [0.5, 1.5]


def test_hints_survive_text_and_file():
    x, y = model()
    program = gr.deserialize(gr.serialize(y, inputs={"x": x}))
    program.set_hint(2, "fuse", "no")
    program.set_name(1, 'w "1"')
    for again in (gr.text_to_graph(program.text), gr.deserialize(program.serialize())):
        assert again.hints(2) == {"fuse": "no"}
        assert again.hints(1) == {"name": 'w "1"'}
        assert again.hints(0) == {"name": "x"}
    np.testing.assert_array_equal(program(x).numpy(), y.numpy())
    with pytest.raises(IndexError, match="no node 99"):
        program.hints(99)


class Pair(gr.nn.Module):
    def __init__(self):
        self.layers = [gr.nn.Linear(3, 3), gr.nn.Linear(3, 3)]
        self.head = gr.nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


def scopes(program):
    """The ops and scopes in a program's text."""
    return set(re.findall(r'= (\w+)\(.*scope="([^"]*)"', program.text))


def test_nodes_carry_the_path_of_their_modules():
    model = Pair()
    gr.eval(model)
    program = gr.deserialize(gr.serialize(model(gr.zeros([2, 3]))))
    found = scopes(program)
    assert {
        ("matmul", "Pair.layers.0"),
        ("matmul", "Pair.layers.1"),
        ("relu", "Pair"),
        ("matmul", "Pair.head"),
    } <= found
    dot = gr.graph_to_dot(program)
    assert 'label="layers"' in dot
    assert dot.count("subgraph") == 5
    assert "Pair.layers.1" in program.to_svg()


def test_named_scopes_nest_decorate_and_are_left_by_exceptions():
    @gr.named_scope("inner")
    def work(x):
        return x.exp()

    x = gr.asarray([1.0])
    with gr.named_scope("outer"):
        with pytest.raises(ZeroDivisionError), gr.named_scope("lost"):
            raise ZeroDivisionError
        y = work(x)
    z = y.log()
    text = gr.graph_to_text(z)
    assert 'scope="outer.inner"' in text
    assert "lost" not in text
    bad = gr.asarray([1, 2])
    with gr.named_scope("lookup"):
        bad = bad[gr.asarray([5])]
    with pytest.raises(IndexError, match=r"test_forms\.py:\d+ in lookup"):
        bad.eval()


def test_names_are_not_part_of_the_program():
    x = gr.asarray([1.0, 2.0])
    with gr.named_scope("one"):
        (x.exp() * 3).eval()
    before = gr.cache_stats()["compiles"]
    with gr.named_scope("two"):
        (x.exp() * 3).eval()
    assert gr.cache_stats()["compiles"] == before


@pytest.mark.parametrize("bad", [b"", b"PFGB", b"PFGB" + bytes(40), b"\x93NUMPY"])
def test_malformed_program_bytes_are_refused(bad):
    with pytest.raises(gr.FormatError, match="PFGB"):
        gr.deserialize(bad)


def test_a_flipped_bit_anywhere_in_a_file_is_detected():
    _, y = model()
    data = gr.serialize(y)
    for i in range(0, len(data), 7):
        with pytest.raises(gr.FormatError):
            gr.deserialize(data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :])


def test_graph_files_and_pictures(tmp_path):
    x, y = model()
    gr.save_graph(tmp_path / "m.pfgb", y, inputs=[x])
    np.testing.assert_array_equal(gr.load_graph(tmp_path / "m.pfgb")(x).numpy(), y.numpy())
    # After the evaluation, y is data; recorded again, y is a graph.
    x, y = model()
    gr.save_graph(tmp_path / "m.txt", y, inputs=[x])
    assert gr.load_graph(str(tmp_path / "m.txt")).num_ops == 3
    gr.dump_graphviz(y, tmp_path / "m.dot")
    dot = (tmp_path / "m.dot").read_text()
    assert dot == gr.graph_to_dot(y)
    assert dot.startswith("digraph")
    program = gr.load_graph(tmp_path / "m.pfgb")
    assert gr.graph_to_dot(program) == program.to_dot()
    assert dot.count("->") == program.to_dot().count("->") == 5
    assert program.to_svg().startswith("<svg")
    assert "<title>my model</title>" in program.to_html("my model")
    with pytest.raises(gr.InvalidArgumentError, match="gif"):
        gr.save_graph(tmp_path / "m.gif", y)
    with pytest.raises(FileNotFoundError):
        gr.load_graph(tmp_path / "none.pfgb")
    with pytest.raises(gr.InvalidArgumentError, match="inputs are tensors"):
        gr.serialize(y, inputs=[1])


ARRAYS = {name: np.arange(6).reshape(2, 3).astype(name) for name in DTYPES if name != "bool"} | {
    "bool": np.array([True, False]),
    "scalar": np.float32(2.5),
    "empty": np.zeros((0, 3)),
}


def same(tensor, array):
    got = tensor.numpy()
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_npz_of_numpy_is_read(tmp_path, write):
    fortran = np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    more = {"fortran": fortran, "big": np.arange(3, dtype=">f8")}
    write(tmp_path / "a.npz", **ARRAYS, **more)
    read = gr.load(tmp_path / "a.npz")
    assert list(read) == [*ARRAYS, *more]
    for name, array in (ARRAYS | more).items():
        same(read[name], array.astype(array.dtype.newbyteorder("=")))


def test_npz_is_read_by_numpy(tmp_path):
    gr.savez(tmp_path / "a.npz", **{k: gr.asarray(v) for k, v in ARRAYS.items()})
    with np.load(tmp_path / "a.npz") as read:
        assert set(read.files) == set(ARRAYS)
        for name, array in ARRAYS.items():
            assert read[name].dtype == array.dtype
            np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize("name", list(ARRAYS))
def test_npy_to_and_from_numpy(tmp_path, name):
    gr.save(tmp_path / "a.npy", gr.asarray(ARRAYS[name]))
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), ARRAYS[name])
    np.save(tmp_path / "b.npy", ARRAYS[name])
    same(gr.load(tmp_path / "b.npy"), ARRAYS[name])


def test_bfloat16_survives(tmp_path):
    x = gr.asarray([1.0, -2.5, 3e38], dtype=gr.bfloat16)
    for name in ("a.npy", "a.npz", "a.safetensors"):
        gr.save(tmp_path / name, x if name == "a.npy" else {"x": x})
        read = gr.load(tmp_path / name)
        read = read if name == "a.npy" else read["x"]
        assert read.dtype == gr.bfloat16
        assert read.tolist() == x.tolist()


def test_safetensors_has_the_formats_layout(tmp_path):
    gr.save(tmp_path / "a.safetensors", {"b": gr.ones([2]), "a": gr.zeros([3], dtype=gr.int8)})
    data = (tmp_path / "a.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert (8 + size) % 64 == 0
    assert json.loads(data[8 : 8 + size]) == {
        "a": {"dtype": "I8", "shape": [3], "data_offsets": [8, 11]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
    }
    assert data[8 + size :] == np.ones(2, np.float32).tobytes() + bytes(3)


def test_trees_and_modules_are_named_by_path_and_come_back(tmp_path):
    tree = {"layers": [{"w": gr.ones([2]), "b": gr.zeros([1])}, {"w": gr.full([1], 3.0)}], "n": 4}
    gr.save(tmp_path / "t.npz", tree)
    read = gr.load(tmp_path / "t.npz")
    assert set(read) == {"layers.0.w", "layers.0.b", "layers.1.w", "n"}
    back = gr.load(tmp_path / "t.npz", like=tree)
    assert back["layers"][1]["w"].tolist() == [3.0]
    assert back["n"].item() == 4
    layer = gr.nn.Linear(3, 2)
    gr.save(tmp_path / "m.safetensors", layer.state_dict())
    other = gr.nn.Linear(3, 2)
    other.load_state_dict(gr.load(tmp_path / "m.safetensors"))
    x = gr.ones([1, 3])
    assert other(x).tolist() == layer(x).tolist()
    with pytest.raises(gr.InvalidArgumentError, match=r"has no layers\.2\.w"):
        gr.load(tmp_path / "t.npz", like={"layers": [{}, {}, {"w": gr.ones([1])}]})


def test_malformed_tensor_files_are_refused(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK\x05\x06")
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 20)
    np.save(tmp_path / "o.npy", np.array([None]), allow_pickle=True)
    for name in ("a.npz", "a.npy", "a.safetensors", "o.npy"):
        with pytest.raises(gr.FormatError):
            gr.load(tmp_path / name)
    with pytest.raises(gr.InvalidArgumentError, match="suffix"):
        gr.load(tmp_path / "a.txt")
    with pytest.raises(FileNotFoundError):
        gr.load(tmp_path / "none.npz")
    with pytest.raises(gr.InvalidArgumentError, match="exactly one"):
        gr.save(tmp_path / "x.npy", {"a": gr.ones([1]), "b": gr.ones([1])})


def command(*args):
    done = subprocess.run(
        [sys.executable, "-m", "girih", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_runs_a_saved_graph(tmp_path):
    x, y = model()
    gr.save_graph(tmp_path / "m.pfgb", y, inputs={"x": x})
    np.savez_compressed(tmp_path / "x.npz", x=x.numpy())
    code, out, err = command(
        "run", tmp_path / "m.pfgb", "--inputs", tmp_path / "x.npz", "--outputs", tmp_path / "y.npz"
    )
    assert (code, err) == (0, ""), err
    assert "output0: f32[2, 2]" in out
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["output0"], y.numpy())
    code, out, err = command("info", "--json")
    assert code == 0
    assert json.loads(out)["version"] == gr.__version__
    code, out, err = command("show", tmp_path / "none.pfgb")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert "none.pfgb" in err
    assert command("frobnicate")[0] == 2


def test_the_command_in_this_process(capsys, monkeypatch, tmp_path):
    from girih.__main__ import main

    _, y = model()
    gr.save_graph(tmp_path / "m.pfgb", y)
    monkeypatch.setattr(sys, "argv", ["girih", "show", "--stats", str(tmp_path / "m.pfgb")])
    assert main() == 0
    assert "ops        3" in capsys.readouterr().out


def test_the_package_installs_the_command():
    """There is a script if the package is installed, and not only on the path."""
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="girih")
    assert script.load()(["--version"]) == 0


def test_tensors_without_a_name_are_numbered(tmp_path):
    gr.savez(tmp_path / "a.npz", gr.arange(3), gr.ones([2]), c=gr.zeros([]))
    with np.load(tmp_path / "a.npz") as arrays:
        assert sorted(arrays) == ["arr_0", "arr_1", "c"]
        np.testing.assert_array_equal(arrays["arr_0"], [0, 1, 2])
    with pytest.raises(gr.InvalidArgumentError, match="arr_0"):
        gr.savez(tmp_path / "a.npz", gr.arange(3), arr_0=gr.ones([2]))


class TestGraphObjects:
    def test_nodes_and_parts_of_a_graph(self) -> None:
        layer = gr.nn.Linear(3, 2)
        graph = gr.make_graph(lambda x: gr.relu(layer(x)).sum())(gr.ones([4, 3]))
        names = [node.name for node in graph.nodes]
        assert len(names) == graph.num_nodes == len(set(names))
        (relu,) = [node for node in graph.nodes if node.op == "relu"]
        assert relu.name == f"relu_{relu.id}"
        assert (relu.category, relu.kind, relu.dtype) == (
            "OP_ELEMENTWISE",
            "INTERMEDIATE",
            "float32",
        )
        assert relu.shape == [4, 2]
        for node in graph.nodes:
            assert repr(node).startswith(f"<Node %{node.id} ")
            for operand in node.inputs:
                assert node.id in graph.node(operand).users
        kinds = {node.kind for node in graph.nodes}
        assert {"INPUT", "PARAMETER", "INTERMEDIATE"} <= kinds
        part = graph.subgraph([relu.id])
        assert part.num_nodes < graph.num_nodes
        x = gr.ones([4, 3])
        np.testing.assert_array_equal(part(x).numpy(), gr.relu(layer(x)).numpy())
        twice = graph.subgraph([relu.id, relu.inputs[0]])
        assert len(twice.outputs) == 2

    def test_results_of_one_call_are_told_by_their_index(self) -> None:
        def f(x: gr.Tensor) -> tuple[gr.Tensor, ...]:
            values, indices = gr.topk(x, 2)
            end, sums = gr.scan(lambda c, row: (c + row, c.sum()), gr.zeros([3]), x)
            return (*gr.linalg.svd(x), *gr.linalg.svd(x + 1), values, indices, end, sums)

        graph = gr.make_graph(f)(gr.ones([3, 3]))
        found = [
            (node.op, node.call, node.output_index)
            for node in graph.nodes
            if node.op in ("svd", "topk", "scan")
        ]
        calls: dict[tuple[str, int], list[int]] = {}
        for op, call, index in found:
            calls.setdefault((op, call), []).append(index)
        assert sorted((op, indices) for (op, _), indices in calls.items()) == [
            ("scan", [0, 1]),
            ("svd", [0, 1, 2]),
            ("svd", [0, 1, 2]),
            ("topk", [0, 1]),
        ]
        for node in graph.nodes:
            first = graph.node(node.call)
            assert (first.op, first.inputs, first.call) == (node.op, node.inputs, node.call)
            again = graph.node(node.id)
            assert (again.call, again.output_index) == (node.call, node.output_index)
            if node.op == "add":
                assert (node.call, node.output_index) == (node.id, 0)

    def test_parts_of_a_split_are_results_of_one_call(self) -> None:
        def f(x: gr.Tensor) -> tuple[gr.Tensor, ...]:
            return (*gr.split(x, 3), *gr.array_split(x, 4, axis=1), *gr.split(x, [1, 4], axis=1))

        graph = gr.make_graph(f)(gr.ones([6, 5]))
        calls: dict[int, list[int]] = {}
        for node in graph.nodes:
            if node.op == "split":
                calls.setdefault(node.call, []).append(node.output_index)
        assert list(calls.values()) == [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2]]
        again = gr.deserialize(gr.text_to_graph(graph.text).serialize())
        assert again.text == graph.text
        assert again.text.count("split(") == 10

    def test_a_trace_records_an_axis_as_it_was_given(self) -> None:
        member = lambda x: gr.sum(x, axis=0)
        x = gr.asarray(np.arange(12.0).reshape(2, 3, 2))
        graph = gr.make_graph(member)(x[0])
        (node,) = [node for node in graph.nodes if node.op == "reduce_sum"]
        assert list(node.attributes["dim"]) == [0]
        # Each member has that axis after the batch axis, also when the program runs again.
        batch = gr.text_to_graph(gr.make_graph(gr.vmap(member))(x).text)
        of_trace = gr.vmap(lambda x: gr.text_to_graph(graph.text)(x))
        for found in (batch(x), of_trace(x)):
            found = found[0] if isinstance(found, (list, tuple)) else found
            np.testing.assert_array_equal(found.numpy(), x.numpy().sum(1))

    def test_a_trace_lists_its_nodes_in_the_order_of_recording(self) -> None:
        def f(x: gr.Tensor, w: gr.Tensor) -> gr.Tensor:
            return gr.relu(x @ w + 1).sum()

        graph = gr.make_graph(f)(gr.ones([2, 3]), gr.ones([3, 4]))
        names = ["x", "w", "matmul_2", "constant_3", "add_4", "relu_5", "reduce_sum_6"]
        assert [node.name for node in graph.nodes] == names
        assert all(max(node.inputs, default=-1) < node.id for node in graph.nodes)
        assert (
            graph.text
            == """\
Graph:
  %0 = input([2, 3], f32) {name="x"}
  %1 = input([3, 4], f32) {name="w"}
  %2 = matmul(%0, %1) -> [2, 4]
  %3 = constant([], f32, 1.0)
  %4 = add(%2, %3) -> [2, 4]
  %5 = relu(%4) -> [2, 4]
  %6 = reduce_sum(%5) -> []
  outputs: [%6]"""
        )

    def test_a_trace_prints_as_a_function(self) -> None:
        layer = gr.nn.Linear(8, 3, bias=False)

        def f(x: gr.Tensor, scale: gr.Tensor) -> tuple[gr.Tensor, gr.Tensor]:
            y = layer(x) * scale + 1
            return gr.fori_loop(0, 3, lambda i, y: gr.tanh(y), y), y.sum()

        assert (
            str(gr.make_graph(f)(gr.ones([4, 8]), gr.ones([3])))
            == """\
fn(%a1: f32[4,8], %a2: f32[3]) -> (f32[4,3], f32[]) {
  %p1: f32[3,8] = parameter("weight")
  %c1: i64[] = data()
  %v1: f32[8,3] = permute(%p1, perm=[1, 0])
  %v2: f32[4,3] = matmul(%a1, %v1)
  %v3: f32[4,3] = mul(%v2, %a2)
  %v4: f32[4,3] = add(%v3, 1.0)
  %v5: f32[4,3] = scan(%c1, %v4, result=1, carries=2, length=3) fn(%a1: i64[], %a2: f32[4,3]) -> (i64[], f32[4,3]) {
    %v1: i64[] = add(%a1, 1)
    %v2: f32[4,3] = tanh(%a2)
    return %v1, %v2
  }
  %v6: f32[] = reduce_sum(%v4)
  return %v5, %v6
}"""
        )
        dynamic = gr.compile(lambda x: x * x, dynamic_dims={0: {0: "batch"}})
        dynamic(gr.ones([3, 2]))
        text = str(dynamic.to_program(gr.ones([3, 2])))
        assert text.startswith("fn(%a1: f32[batch,2]) -> f32[batch,2] {")

    def test_marking_an_output_twice_adds_one_output(self) -> None:
        graph = gr.make_graph(lambda x: gr.sin(x) * 2)(gr.ones([2]))
        (sine,) = [node.id for node in graph.nodes if node.op == "sin"]
        last = len(graph.nodes) - 1
        assert [graph.mark_output(node) for node in (last, sine, sine, last)] == [0, 1, 1, 0]
        assert len(graph.outputs) == 2
        x = gr.asarray([0.5, 1.0])
        doubled, sines = graph(x)
        np.testing.assert_array_equal(doubled.numpy(), (gr.sin(x) * 2).numpy())
        np.testing.assert_array_equal(sines.numpy(), gr.sin(x).numpy())
        with pytest.raises(gr.IndexOutOfBoundsError, match="no node"):
            graph.mark_output(9)

    def test_unknown_nodes_and_empty_subgraphs_are_errors(self) -> None:
        graph = gr.make_graph(gr.sin)(gr.ones([2]))
        for call in (lambda: graph.node(9), lambda: graph.node(-1), lambda: graph.subgraph([7])):
            with pytest.raises(gr.IndexOutOfBoundsError, match="no node"):
                call()
        with pytest.raises(gr.InvalidArgumentError, match="at least one"):
            graph.subgraph([])

    def test_a_part_holds_the_ancestors_and_leaves_the_graph_as_it_was(self) -> None:
        graph = gr.make_graph(lambda x, y: (gr.sin(x) * 2, gr.cos(y) + gr.exp(x)))(
            gr.ones([2]), gr.ones([2])
        )
        before = graph.text
        (cos,) = [node.id for node in graph.nodes if node.op == "cos"]
        (add,) = [node.id for node in graph.nodes if node.op == "add"]
        ancestors, stack = set(), [add]
        while stack:
            node = stack.pop()
            if node not in ancestors:
                ancestors.add(node)
                stack += graph.node(node).inputs
        part = graph.subgraph([add])
        ordered = sorted(ancestors)
        assert [n.op for n in part.nodes] == [graph.node(i).op for i in ordered]
        assert [n.inputs for n in part.nodes] == [
            [ordered.index(i) for i in graph.node(old).inputs] for old in ordered
        ]
        assert cos in ancestors
        assert "sin" not in [n.op for n in part.nodes]
        assert graph.text == before

    def test_nodes_are_named_by_their_op_and_the_nodes_before_them(self) -> None:
        a, b = gr.ones([2, 3]), gr.ones([3, 4])
        graph = gr.make_graph(lambda a, b, c: gr.relu(a @ b + c))(a, b, gr.ones([4]))
        names = [node.name for node in graph.nodes]
        assert names == ["a", "b", "c", "matmul_3", "add_4", "relu_5"]
        assert graph.node(4).shape == [2, 4]
        with pytest.raises(gr.ShapeError):
            gr.make_graph(lambda a, b: a @ b)(a, gr.ones([4, 5]))


def test_values_that_a_program_holds():
    w = gr.asarray([3.0, 4.0])
    program = gr.make_graph(lambda x: x * w + 2)(gr.ones([2]))
    values = {node.op: program.value(node.id) for node in program.nodes}
    assert values["mul"] is None
    assert values["add"] is None
    held = [program.value(node.id) for node in program.nodes if program.value(node.id) is not None]
    assert [3.0, 4.0] in [value.tolist() for value in held]
    assert 2.0 in [value.tolist() for value in held]
    with pytest.raises(gr.GirihError, match="99"):
        program.value(99)
