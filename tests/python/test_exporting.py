"""Lowering and compiling ahead of time; executables in files, called by other processes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import girih as gr
import numpy as np
import pytest
from girih import nn

if TYPE_CHECKING:
    from pathlib import Path


def step(params: dict[str, Any], batch: tuple[gr.Tensor, gr.Tensor], *, lr: float) -> Any:
    x, y = batch

    def loss(p: dict[str, Any]) -> gr.Tensor:
        return gr.mean((gr.tanh(x @ p["w"]) + p["b"][0] - y) ** 2)

    value, grads = gr.value_and_grad(loss)(params)
    new = {
        "w": params["w"] - lr * grads["w"],
        "b": [params["b"][0] - lr * grads["b"][0]],
    }
    return new, (value, None)


def arguments(n: int = 5) -> tuple[dict[str, Any], tuple[gr.Tensor, gr.Tensor]]:
    rng = np.random.default_rng(n)
    params = {
        "w": gr.asarray(rng.standard_normal((3, 2)).astype(np.float32)),
        "b": [gr.asarray(rng.standard_normal(2).astype(np.float32))],
    }
    x = gr.asarray(rng.standard_normal((n, 3)).astype(np.float32))
    y = gr.asarray(rng.standard_normal((n, 2)).astype(np.float32))
    return params, (x, y)


def same(a: Any, b: Any) -> None:
    left, right = gr.tree.leaves(a), gr.tree.leaves(b)
    assert gr.tree.structure(a) == gr.tree.structure(b)
    for x, y in zip(left, right, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-6)


def test_lowering_traces_and_neither_compiles_nor_runs() -> None:
    calls = []

    def f(x: gr.Tensor) -> gr.Tensor:
        calls.append(x.shape)
        return gr.tanh(x * 3.25) @ x

    before = gr.cache_stats()
    lowered = gr.compile(f).lower(gr.ones([7, 7]))
    after = gr.cache_stats()
    assert len(calls) == 1
    assert (before["compiles"], before["runs"]) == (after["compiles"], after["runs"])
    assert "tanh" in lowered.text()
    assert lowered.text() == gr.graph_to_text(lowered.program)
    assert repr(lowered) == "Lowered((*) -> *, 3 ops)"


def test_calling_an_executable_does_not_compile_again() -> None:
    executable = gr.compile(lambda x: gr.tanh(x * 3.75) @ x).lower(gr.ones([6, 6])).compile()
    compiled = gr.cache_stats()
    x = gr.asarray(np.eye(6, dtype=np.float32))
    np.testing.assert_allclose(np.asarray(executable(x)), np.tanh(np.eye(6) * 3.75), rtol=1e-6)
    later = gr.cache_stats()
    assert later["compiles"] == compiled["compiles"]
    assert later["runs"] == compiled["runs"] + 1


def test_arguments_and_results_keep_the_structure_of_the_function() -> None:
    params, batch = arguments()
    executable = gr.export(step, params, batch, lr=0.5)
    same(executable(params, batch, lr=0.5), step(params, batch, lr=0.5))
    # A Python float is an argument of the executable.
    same(executable(params, batch, lr=0.125), step(params, batch, lr=0.125))
    assert repr(executable).startswith(
        "Executable(({'b': [*], 'w': *}, (*, *), lr=*) -> ({'b': [*], 'w': *}, (*, None)), "
    )


def test_a_file_is_called_by_another_process(tmp_path: Path) -> None:
    params, batch = arguments()
    path = tmp_path / "step.pfgb"
    gr.export(step, params, batch, lr=0.5).save(path)
    gr.savez(tmp_path / "given.npz", w=params["w"], b=params["b"][0], x=batch[0], y=batch[1])
    code = f"""
import json
import girih as gr
given = gr.load({str(tmp_path / "given.npz")!r})
executable = gr.load_executable({str(path)!r})
params = {{"w": given["w"], "b": [given["b"]]}}
new, (loss, nothing) = executable(params, (given["x"], given["y"]), lr=0.25)
assert nothing is None
print(json.dumps([new["w"].tolist(), new["b"][0].tolist(), loss.item()]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    w, b, loss = json.loads(done.stdout)
    new, (value, _) = step(params, batch, lr=0.25)
    np.testing.assert_allclose(w, np.asarray(new["w"]), rtol=1e-6)
    np.testing.assert_allclose(b, np.asarray(new["b"][0]), rtol=1e-6)
    assert loss == pytest.approx(value.item(), rel=1e-6)


def test_dynamic_axes_stay_dynamic_in_files(tmp_path: Path) -> None:
    params, batch = arguments()
    dynamic = gr.compile(step, dynamic_dims={1: {0: "batch"}})
    gr.export(dynamic, params, batch, lr=0.5).save(tmp_path / "step.pfgb")
    executable = gr.load_executable(tmp_path / "step.pfgb")
    for n in (1, 5, 9):
        params, batch = arguments(n)
        same(executable(params, batch, lr=0.5), step(params, batch, lr=0.5))


def test_executables_hold_modules_and_captured_tensors(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    model.eval()
    x = gr.ones([2, 3])
    executable = gr.export(model, x)
    executable.save(tmp_path / "model.pfgb")
    loaded = gr.load_executable(tmp_path / "model.pfgb")
    np.testing.assert_allclose(np.asarray(loaded(x)), np.asarray(model(x)), rtol=1e-6)
    assert len(loaded.program.parameters) == 4


def test_values_that_are_no_tensors_are_part_of_the_program() -> None:
    executable = gr.export(
        lambda x, n, mode=None: x * n if mode == "mul" else x + n, gr.ones([2]), 3
    )
    assert executable(gr.ones([2]), 3).tolist() == [4.0, 4.0]
    for given in (
        (gr.ones([2]), 4),
        (gr.ones([2]),),
        (gr.ones([2]), 3, "mul"),
        ([gr.ones([2])], 3),
    ):
        with pytest.raises(gr.InvalidArgumentError, match=r"takes \(\*, 3\), got"):
            executable(*given)


def test_other_shapes_are_refused() -> None:
    executable = gr.export(lambda x: x * 2, gr.ones([3]))
    with pytest.raises(gr.GirihError):
        executable(gr.ones([4])).tolist()


def test_an_executable_is_differentiated_as_any_function() -> None:
    executable = gr.export(lambda x: (x**3).sum(), gr.ones([3]))
    x = gr.asarray([1.0, 2.0, 3.0])
    assert gr.grad(executable)(x).tolist() == [3.0, 12.0, 27.0]


def test_scalars_empty_tensors_and_constants() -> None:
    assert gr.export(lambda x: x + 1, gr.asarray(2.0))(gr.asarray(2.0)).item() == 3
    assert gr.export(lambda x: x + 1, gr.zeros([0, 3]))(gr.zeros([0, 3])).shape == (0, 3)
    assert gr.export(lambda x: (x, [x]), gr.ones([2]))(gr.zeros([2]))[1][0].tolist() == [0, 0]


def test_errors(tmp_path: Path) -> None:
    with pytest.raises(gr.InvalidArgumentError, match="hold a set"):
        gr.export(lambda x, s: x, gr.ones([2]), {1})
    with pytest.raises(gr.InvalidArgumentError, match="beside tensors"):
        gr.export(lambda x: (x, 3), gr.ones([2]))
    executable = gr.export(lambda x: x * 2, gr.ones([2]))
    with pytest.raises(gr.InvalidArgumentError, match=r"\.pfgb"):
        executable.save(tmp_path / "x.txt")
    plain = tmp_path / "plain.pfgb"
    gr.save_graph(plain, gr.ones([2]) + 1)
    with pytest.raises(gr.FormatError, match="not exported"):
        gr.load_executable(plain)
    with pytest.raises(OSError, match="none"):
        gr.load_executable(tmp_path / "none.pfgb")


@pytest.mark.parametrize(
    "hint",
    [
        "",
        "[]",
        "3",
        "{}",
        '{"arguments": 0}',
        '{"arguments": {"tuple": [{"tuple": [7]}, {"dict": {}}]}, "value": 0}',
        '{"arguments": {"tuple": [{"tuple": [0]}, {"dict": {}}]}, "value": {"odd": []}}',
        '{"arguments": {"tuple": [{"tuple": [0]}, {"dict": {}}]}, "value": {"list": [-1]}}',
        '{"arguments": {"tuple": [{"tuple": [0]}]}, "value": 0}',
        '{"arguments": "x", "value": "y"}',
        "[" * 100_000,
    ],
)
def test_damaged_layouts_are_errors(tmp_path: Path, hint: str) -> None:
    program = gr.export(lambda x: x * 2, gr.ones([2])).program
    program.set_hint(0, "executable", hint)
    program.save(tmp_path / "x.pfgb")
    with pytest.raises(gr.FormatError, match=r"damaged|not exported"):
        gr.load_executable(tmp_path / "x.pfgb")


def test_an_evaluation_gives_its_program(tmp_path: Path) -> None:
    x, w = gr.asarray([1.0, 2.0, 3.0]), gr.asarray([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    values = {"y": gr.tanh(x @ w), "parts": [x.sum(), x * 2]}
    model = gr.eval(values, inputs=[x], return_model=True)
    assert not gr.is_lazy(values["y"])
    same(model(x), values)
    other = gr.asarray([0.5, -1.0, 2.0])
    expected = {"y": np.tanh(other.numpy() @ w.numpy()), "parts": [other.sum(), other * 2]}
    same(model(other), expected)
    with pytest.raises(gr.InvalidArgumentError, match=r"takes \(\*\)"):
        model(x, x)
    file = tmp_path / "model.pfgb"
    model.save(file)
    same(gr.load_executable(file)(other), expected)


def test_a_model_without_inputs_holds_what_it_needs() -> None:
    x = gr.ones([3])
    y = x * 3
    model = gr.eval(y, return_model=True)
    before = gr.cache_stats()["compiles"]
    assert model().tolist() == [3.0] * 3
    assert gr.cache_stats()["compiles"] == before, "it is the program that the evaluation ran"
    first, second = gr.eval(x + 1, x + 2, return_model=True)()
    assert (first.tolist(), second.tolist()) == ([2.0] * 3, [3.0] * 3)


def test_models_without_tensors_or_with_other_objects_are_refused() -> None:
    with pytest.raises(gr.InvalidArgumentError, match="no tensors"):
        gr.eval([1, "two"], return_model=True)
    with pytest.raises(gr.InvalidArgumentError, match="return_model=True"):
        gr.eval(gr.ones(2), inputs=[gr.ones(2)])  # type: ignore[call-overload]
    with pytest.raises(gr.InvalidArgumentError, match="object"):
        gr.eval([gr.ones(2), object()], return_model=True)


def test_an_export_uses_up_no_random_draws() -> None:
    def noisy(x: gr.Tensor) -> gr.Tensor:
        return gr.nn.dropout(x, 0.5) + gr.rand([4])

    gr.manual_seed(3)
    expected = [gr.randn([3]).tolist(), gr.randn([3]).tolist()]
    gr.manual_seed(3)
    first = gr.randn([3]).tolist()
    executable = gr.export(noisy, gr.ones([4]))
    gr.compile(noisy).lower(gr.ones([4])).compile()
    assert [first, gr.randn([3]).tolist()] == expected
    # Its calls draw as the function does.
    gr.manual_seed(4)
    values = [executable(gr.ones([4])).tolist(), executable(gr.ones([4])).tolist()]
    gr.manual_seed(4)
    assert [noisy(gr.ones([4])).tolist(), noisy(gr.ones([4])).tolist()] == values
