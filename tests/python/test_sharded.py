"""Tensors on meshes of the host's devices: the same values as on one device, for every op of the sweep,
for random programs, gradients, modules, compiled and mapped functions, files.
"""

from __future__ import annotations

import pickle
import sys
import threading
from pathlib import Path

import girih as gr
import numpy as np
import pytest
import random_shardings
from girih import P
from random_maker import Maker
from random_steps import KINDS

sys.path.insert(0, str(Path(__file__).parents[2]))

from benches import peers
from benches.sweep import catalogue, checks

FAMILIES = sorted({row.family for row in catalogue.ROWS})


@pytest.fixture(autouse=True)
def host_devices():
    gr.set_host_devices(8)


def mesh_of(**axes: int) -> gr.DeviceMesh:
    return gr.DeviceMesh(tuple(axes.values()), tuple(axes))


def numbers(*shape: int, seed: int = 0) -> gr.Tensor:
    return gr.asarray(np.random.default_rng(seed).standard_normal(shape).astype("f4"))


def close(found, expected, tolerance=1e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), tolerance, tolerance)


def test_a_tensor_is_cut_in_ceil_chunks():
    mesh = mesh_of(dp=2, tp=4)
    x = gr.arange(10.0)
    cut = x.shard(mesh, P(("dp", "tp")))
    assert [part.shape[0] for part in cut.shards()] == [2, 2, 2, 2, 2, 0, 0, 0]
    assert [part.device for part in cut.shards()] == cut.devices == list(mesh.devices)
    assert cut.tolist() == cut.to("cpu").tolist() == x.tolist()
    assert cut.to("cpu").sharding is None
    assert cut.sharding == gr.Sharding(mesh, P(("dp", "tp")))
    assert not cut.is_fully_replicated
    assert x.shard(mesh).is_fully_replicated
    again = gr.from_shards((10,), cut.sharding, cut.shards())
    assert (again + cut).tolist() == (x + x).tolist()
    partial = gr.Sharding(mesh, P(partial={"tp": "add"}))
    parts = [gr.full([3], 1.0 + i) for i in range(8)]
    assert gr.from_shards((3,), partial, parts).tolist() == [10.0] * 3


def test_shards_are_known_before_anything_is_computed():
    mesh = mesh_of(d=2)
    before = gr.cache_stats(), gr.memory_stats("cpu:1").in_use
    y = gr.exp(gr.zeros([8, 8]).shard(mesh, P("d")) + 1)
    assert y.shape == (8, 8)
    assert [y.sharding.shard_shape(y.shape, position) for position in range(2)] == [(4, 8), (4, 8)]
    assert (y.dtype, y.devices) == (gr.float32, ["cpu", "cpu:1"])
    assert gr.is_lazy(y)
    after = gr.cache_stats(), gr.memory_stats("cpu:1").in_use
    for count in ("compiles", "runs"):
        assert after[0][count] == before[0][count]
    assert after[1] == before[1]
    values = y.eval().shards()
    assert [(part.shape, part.device) for part in values] == [((4, 8), "cpu"), ((4, 8), "cpu:1")]
    assert not gr.is_lazy(y)


def test_uneven_and_empty_shards_are_the_whole_tensor():
    x = numbers(5, 3)
    cut = x.shard(mesh_of(a=2), P("a"))
    assert [part.shape for part in cut.shards()] == [(3, 3), (2, 3)]
    assert (cut + 1).shape == (5, 3)
    sparse = x[:, 0].shard(mesh_of(a=4), P("a"))
    assert [part.shape for part in sparse.shards()] == [(2,), (2,), (1,), (0,)]
    for reduced in (gr.sum, gr.prod, gr.max, gr.min, gr.mean):
        close(reduced(cut, axis=0), reduced(x, axis=0))
        close(reduced(sparse), reduced(x[:, 0]))
    close(cut.shards()[0], np.asarray(x)[:3])


def collectives(*tensors):
    return [(c["op"], c["bytes"]) for c in gr.explain(*tensors).collectives]


def test_collectives_of_reshards():
    mesh = mesh_of(a=2)
    x = numbers(8, 4)
    whole, rows = gr.eval(x.shard(mesh), x.shard(mesh, P("a")))
    assert collectives(whole.shard(mesh, P("a"))) == []
    assert collectives(rows.shard(mesh)) == [("all_gather", 2 * 64)]
    assert collectives(rows.shard(mesh, P(None, "a"))) == [("all_to_all", 64)]
    for to in (P(), P("a"), P(None, "a")):
        close(rows.shard(mesh, to), x)


def test_partial_sums_are_added_once_and_by_their_own_op():
    mesh = mesh_of(k=4)
    a, b, c, d = (numbers(6, 8, seed=s) for s in range(4))
    cut = [(x.shard(mesh, P(None, "k")), y.T.shard(mesh, P("k"))) for x, y in ((a, b), (c, d))]
    both = (cut[0][0] @ cut[0][1]) + (cut[1][0] @ cut[1][1])
    bias = numbers(6, seed=9)
    assert collectives(both) == [("all_reduce", 2 * 3 * 36 * 4)]
    close(both + bias, np.asarray(a @ b.T + c @ d.T + bias))
    close(both, np.asarray(a @ b.T + c @ d.T))
    for reduced in (gr.max, gr.min, gr.prod):
        found = reduced(cut[0][0], axis=1)
        assert [op for op, _ in collectives(found)] == ["all_reduce"]
        close(found, reduced(a, axis=1))
    flags = (a > 0).shard(mesh, P(None, "k"))
    assert gr.any(flags, axis=1).tolist() == gr.any(a > 0, axis=1).tolist()
    assert gr.all(flags, axis=1).tolist() == gr.all(a > 0, axis=1).tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_every_operation_on_shards_is_that_on_the_whole(family):
    [girih] = peers.installed(["girih"])[0]
    mesh = mesh_of(a=2, b=3)
    rows = [row.shrunk() for row in catalogue.ROWS if row.family == family]
    for row in rows:
        body, tensors = row.body(girih), row.tensors(girih)
        dense = checks.arrays(girih, body(*tensors))
        for last in (False, True):
            sharded = [
                x.shard(mesh, P(*[None] * (x.ndim - 1), "b") if last and x.ndim else None)
                if last or not x.ndim
                else x.shard(mesh, P(("a", "b")))
                for x in tensors
            ]
            found = checks.arrays(girih, body(*sharded))
            apart = checks.compare(row, found, dense)
            assert apart <= max(row.tolerance, 1e-3), (row.name, last, apart)


def test_random_programs_on_random_meshes_compute_what_the_model_does():
    for seed in range(700):
        program = Maker(seed, KINDS).program
        try:
            random_shardings.run(program, seed)
        except Exception as error:
            raise AssertionError(f"program {seed}") from error


@pytest.mark.parametrize("mode", ["concurrent", "chaos"])
def test_programs_have_the_same_bits_in_each_mode(mode):
    for seed in range(60):
        program = Maker(seed, KINDS).program
        gr.manual_seed(seed)
        sequential = [x.numpy().tobytes() for x in random_shardings.run(program, seed)]
        gr.manual_seed(seed)
        with gr.mesh_mode(mode, seed=seed):
            found = [x.numpy().tobytes() for x in random_shardings.run(program, seed)]
        assert found == sequential, f"program {seed}"
    with pytest.raises(gr.InvalidArgumentError, match="'chaos'"):
        gr.mesh_mode("random")


@pytest.mark.parametrize("mode", ["sequential", "concurrent", "chaos"])
def test_threads_share_a_mesh(mode):
    mesh = mesh_of(a=2, b=2)
    x = numbers(8, 8).shard(mesh, P("a", "b"))
    expected = np.asarray(x) @ np.asarray(x).T
    shared = x + 1
    errors = []

    def work(scale):
        try:
            with gr.mesh_mode(mode, seed=scale):
                for _ in range(10):
                    close((x * scale) @ x.T, expected * scale, 1e-4)
                    close(shared, np.asarray(x) + 1)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(scale,)) for scale in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert errors == []


@pytest.mark.parametrize("mode", ["sequential", "concurrent"])
def test_a_failure_on_one_device_is_one_error(mode):
    mesh = mesh_of(a=4)
    x = numbers(8, 3).shard(mesh, P("a"))
    index = gr.asarray([0, 0, 0, 9]).shard(mesh, P("a"))
    with gr.mesh_mode(mode):
        bad = gr.take(x, index, axis=0)
        with pytest.raises(gr.IndexOutOfBoundsError, match="index 9"):
            bad.eval()
        assert gr.is_lazy(bad)
        close(gr.take(x, gr.asarray([7, 1]), axis=0), np.asarray(x)[[7, 1]])


def mlp(p, x, y):
    return ((gr.relu(x @ p["w"] + p["b"]) @ p["v"] - y) ** 2).mean()


def test_a_data_parallel_step_is_that_of_one_device():
    mesh = mesh_of(dp=2)
    p = {"w": numbers(6, 5), "b": numbers(5, seed=1), "v": numbers(5, 3, seed=2)}
    x, y = numbers(9, 6, seed=3), numbers(9, 3, seed=4)

    def step(p, x, y):
        loss, grads = gr.value_and_grad(mlp)(p, x, y)
        return loss, gr.tree.map(lambda p, g: p - 0.1 * g, p, grads)

    loss, stepped = step(p, x, y)
    sharded = gr.shard(p, mesh), gr.shard(x, mesh, P("dp")), gr.shard(y, mesh, P("dp"))
    for run in (step, gr.compile(step)):
        found, updated = run(*sharded)
        close(found, loss)
        for name, value in updated.items():
            assert value.is_fully_replicated
            close(value, stepped[name])
    _, grads = gr.value_and_grad(mlp)(*sharded)
    reduced = gr.explain(grads).collectives
    assert {c["op"] for c in reduced} == {"all_reduce"}
    assert sum(c["bytes"] for c in reduced) == 2 * 4 * (30 + 5 + 15)
    assert all(c["axes"] == ["dp"] and "test_sharded.py" in c["line"] for c in reduced)


def test_gradients_have_the_shardings_of_their_arguments():
    mesh = mesh_of(dp=2, tp=2)
    x, w = numbers(8, 6), numbers(6, 4, seed=1)
    sx, sw = x.shard(mesh, P("dp")), w.shard(mesh, P(None, "tp"))
    gx, gw = gr.grad(lambda x, w: (gr.tanh(x @ w) ** 2).sum(), argnums=(0, 1))(sx, sw)
    assert (gx.sharding, gw.sharding) == (sx.sharding, sw.sharding)
    dense = gr.grad(lambda x, w: (gr.tanh(x @ w) ** 2).sum(), argnums=(0, 1))(x, w)
    close(gx, dense[0])
    close(gw, dense[1])
    sw.requires_grad_()
    (gr.tanh(sx @ sw) ** 2).sum().backward()
    assert sw.grad.sharding == sw.sharding
    close(sw.grad, dense[1])
    for like in (gr.zeros_like(sx), gr.ones_like(sx), gr.full_like(sx, 2.0)):
        assert like.sharding == sx.sharding


def test_gradients_under_many_specs():
    mesh = mesh_of(a=2, b=2)
    x, w = numbers(6, 5), numbers(5, 7, seed=1)
    entries = [None, "a", "b", ("a", "b"), ("b", "a")]
    specs = [P(r, c) for r in entries for c in entries if not set(r or ()) & set(c or ())]
    pairs = [(spec, specs[at - shift]) for shift in (0, 4) for at, spec in enumerate(specs)]
    assert len(set(pairs)) >= 20

    def f(x, w):
        return (gr.softmax(gr.tanh(x @ w), axis=-1) * w.sum(0)).sum()

    dense = gr.grad(f, argnums=(0, 1))(x, w)
    for first, second in pairs:
        sx, sw = x.shard(mesh, first), w.shard(mesh, second)
        for found, expected, like in zip(
            gr.grad(f, argnums=(0, 1))(sx, sw), dense, (sx, sw), strict=True
        ):
            assert found.sharding == like.sharding
            close(found, expected, 1e-4)


def test_draws_are_the_same_numbers_under_every_sharding():
    mesh = mesh_of(a=3)
    x = gr.zeros([7, 5]).shard(mesh, P("a"))
    gr.manual_seed(3)
    dense = gr.randn([7, 5]) + gr.rand([7, 5])
    gr.manual_seed(3)
    drawn = x + gr.randn([7, 5]) + gr.rand([7, 5])
    assert drawn.sharding == x.sharding
    close(drawn, dense)


def test_constraints_and_shardings_of_compiled_functions():
    mesh = mesh_of(dp=2, tp=2)
    x, w = numbers(8, 6), numbers(6, 4, seed=1)
    rows, columns = gr.Sharding(mesh, P("dp")), gr.Sharding(mesh, P(None, "tp"))
    f = gr.compile(
        lambda x, w: {"y": x @ w}, in_shardings=(rows, columns), out_shardings={"y": rows}
    )
    for _ in range(2):
        y = f(x, w)["y"]
        assert y.sharding == rows
        close(y, x @ w)
    assert f.num_programs == 1
    constrained = gr.with_sharding_constraint({"x": x.shard(mesh) + 1}, P(None, "tp"))
    assert constrained["x"].sharding == columns

    @gr.compile
    def inside(x):
        y = gr.with_sharding_constraint(gr.exp(x), P("tp"))
        assert y.sharding.spec == P("tp")
        return y * 2

    assert inside(x.shard(mesh, P("dp"))).sharding.spec == P("tp")
    with pytest.raises(gr.InvalidArgumentError, match=r"no mesh.*gr\.Sharding"):
        gr.with_sharding_constraint(x, P("tp"))
    with pytest.raises(gr.InvalidArgumentError, match="out_shardings"):
        gr.compile(lambda x: x, out_shardings={"a": rows})(x)


def test_trees_are_sharded_by_prefixes_and_functions():
    mesh = mesh_of(dp=2)
    values = {"a": [numbers(4), numbers(4, 2)], "b": numbers(2), "n": 3}
    found = gr.shard(values, mesh, {"a": P("dp"), "b": None, "n": None})
    assert [x.sharding.spec for x in found["a"]] == [P("dp"), P("dp")]
    assert found["b"].is_fully_replicated
    assert found["n"] == 3
    found = gr.shard(values, mesh, lambda path, leaf: P("dp") if path.endswith("b']") else None)
    assert found["b"].sharding.spec == P("dp") or found["b"].is_fully_replicated
    with pytest.raises(gr.InvalidArgumentError, match="shard: specs"):
        gr.shard(values, mesh, [P("dp")])


class Net(gr.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = gr.nn.Linear(6, 8)
        self.norm = gr.nn.LayerNorm(8)
        self.down = gr.nn.Linear(8, 3)

    def forward(self, x):
        return self.down(gr.relu(self.norm(self.up(x))))


def test_a_sharded_module_trains_as_a_whole_one():
    mesh = mesh_of(dp=2, tp=2)
    x, y = numbers(8, 6), numbers(8, 3, seed=1)

    def trained(model, x, y):
        optimizer = gr.optim.Adam(model.parameters(), lr=0.05)
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [np.asarray(p) for p in model.parameters()]

    gr.manual_seed(0)
    whole = trained(Net(), x, y)
    gr.manual_seed(0)
    specs = {"up.weight": P("tp"), "up.bias": P("tp"), "down.weight": P(None, "tp")}
    model = Net().shard(mesh, specs)
    found = trained(model, x.shard(mesh, P("dp")), y.shard(mesh, P("dp")))
    np.testing.assert_allclose(found[0], whole[0], 1e-5)
    for a, b in zip(found[1], whole[1], strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)
    assert model.up.weight.sharding.spec == P("tp")
    assert model.norm.weight.is_fully_replicated
    with pytest.raises(gr.InvalidArgumentError, match=r"\*\.qkv.*up\.weight"):
        Net().shard(mesh, {"*.qkv": P("tp")})


def test_control_flow_on_shards():
    mesh = mesh_of(a=2)
    x = numbers(6, 3)
    cut = x.shard(mesh, P("a"))
    close(gr.cond(gr.asarray(True), lambda v: v * 2, lambda v: v, cut), x * 2)
    carry, ys = gr.scan(lambda c, v: (c + v, c * v), gr.zeros(3), cut)
    dense = gr.scan(lambda c, v: (c + v, c * v), gr.zeros(3), x)
    close(carry, dense[0])
    close(ys, dense[1])
    grown = gr.while_loop(lambda v: gr.abs(v).sum() < 100, lambda v: v * 2, cut)
    close(grown, gr.while_loop(lambda v: gr.abs(v).sum() < 100, lambda v: v * 2, x))


def test_an_index_out_of_range_is_the_same_error():
    x = numbers(6, 3)
    indices = gr.asarray([0, 7])
    with pytest.raises(gr.IndexOutOfBoundsError) as dense:
        gr.take(x, indices, axis=0).eval()
    with pytest.raises(gr.IndexOutOfBoundsError) as sharded:
        gr.take(x.shard(mesh_of(a=2), P("a")), indices, axis=0).eval()
    for error in (dense, sharded):
        assert "index 7 is out of bounds for an axis of size 6" in str(error.value)


def test_a_failure_leaves_tensors_lazy():
    mesh = mesh_of(a=2)
    x = numbers(6, 3).shard(mesh, P("a"))
    bad = gr.take(x, gr.asarray([9]), axis=0)
    good = x + 1
    with pytest.raises(gr.IndexOutOfBoundsError):
        gr.eval(bad, good)
    assert gr.is_lazy(bad)
    assert good.sum().item() == pytest.approx(float(np.asarray(x).sum() + 18), rel=1e-5)


def test_operands_outside_of_the_mesh_are_refused():
    mesh, other = mesh_of(a=2), mesh_of(b=2)
    x = numbers(4, 4).shard(mesh, P("a"))
    with pytest.raises(gr.DeviceError, match=r"<a>.*cpu:5"):
        x + numbers(4).to("cpu:5")
    with pytest.raises(gr.DeviceError, match=r"<a>.*<b>"):
        x + numbers(4).shard(other, P("b"))
    close(x + gr.asarray(2.0).to("cpu:5"), np.asarray(x) + 2)
    moved = x.shard(other, P(None, "b"))
    assert moved.sharding.mesh == other
    close(moved, x)
    for spec, says in [(P("z"), "'z'|\"z\"|z"), (P("a", "a"), "a"), (P(None, None, "a"), "3")]:
        with pytest.raises(gr.InvalidArgumentError, match=says):
            x.shard(mesh, spec)
    with pytest.raises(gr.InvalidArgumentError, match=r"1 to 64"):
        gr.set_host_devices(65)


def test_nans_are_found_and_programs_compiled_ahead():
    mesh = mesh_of(a=2)
    x = numbers(4, 3).shard(mesh, P("a"))
    with gr.debug_nans():
        assert gr.isfinite((x + 1).eval()).all().item()
        with pytest.raises(gr.EvaluationError, match=r"div.*test_sharded\.py"):
            ((x - x) / 0.0).eval()
    y = gr.tanh(x @ x.T) * 1.25
    gr.compile_only(y).wait()
    before = gr.cache_stats()["compiles"]
    y.eval()
    assert gr.cache_stats()["compiles"] == before
    gr.async_eval(z := gr.tanh(x) * 2)
    close(z, np.tanh(np.asarray(x)) * 2)


def test_implicit_reshards_can_be_refused():
    mesh = mesh_of(dp=2, tp=2)
    x, w = numbers(8, 6).shard(mesh, P("dp", "tp")), numbers(6, 4).shard(mesh, P("tp"))
    with gr.implicit_reshards("error"):
        close(x @ w, np.asarray(x) @ np.asarray(w))
        close(gr.softmax(x, axis=-1), gr.softmax(gr.asarray(np.asarray(x)), axis=-1))
        with pytest.raises(gr.InvalidArgumentError, match=r"add: an operand f32\[.*resharded"):
            x[:6] + numbers(6, 6).shard(mesh, P("tp", "dp"))  # the slice takes a halo
        with gr.implicit_reshards("allow"):
            moved = x + numbers(8, 6).shard(mesh, P("tp", "dp"))
    assert moved.shape == (8, 6)
    with pytest.raises(gr.InvalidArgumentError, match="'allow' or 'error'"):
        gr.implicit_reshards("warn")


def test_a_dynamic_dimension_may_be_sharded():
    mesh = mesh_of(dp=2)
    w = numbers(6, 4).shard(mesh)
    f = gr.compile(lambda x: gr.relu(x @ w).sum(0) / x.shape[0], dynamic_dims={0: {0: "n"}})
    for n in (8, 5, 3, 1):
        x = numbers(n, 6, seed=n)
        close(f(x.shard(mesh, P("dp"))), np.maximum(np.asarray(x) @ np.asarray(w), 0).mean(0))
    assert f.num_programs == 1


def test_a_ghost_mesh_has_shapes_and_collectives():
    mesh = gr.DeviceMesh((32, 32), ("dp", "tp"), devices="ghost")
    x = gr.zeros([4096, 512]).shard(mesh, P("dp"))
    w = gr.zeros([512, 2048]).shard(mesh, P(None, "tp"))
    v = gr.zeros([2048, 512]).shard(mesh, P("tp"))
    y = gr.relu(x @ w) @ v
    assert y.shape == (4096, 512)
    assert y.sharding.spec == P("dp")
    [reduced] = gr.explain(y).collectives
    assert reduced["op"] == "all_reduce"
    assert reduced["bytes"] == 2 * 31 * 4096 * 512 * 4
    with pytest.raises(gr.DeviceError, match="no devices"):
        y.eval()


def test_mapped_functions():
    mesh = mesh_of(dp=2, tp=4)
    x, w = numbers(16, 12), numbers(12, 8, seed=1)
    f = gr.shard_map(lambda x, w: gr.psum(x @ w, "tp"), mesh, (P("dp", "tp"), P("tp")), P("dp"))
    y = f(x, w)
    assert y.sharding.spec == P("dp")
    close(y, x @ w)
    assert [c["op"] for c in gr.explain(f(x, w)).collectives] == ["all_reduce"]
    close(gr.grad(lambda w: f(x, w).sum())(w), gr.grad(lambda w: (x @ w).sum())(w))
    shifted = gr.shard_map(
        lambda x: gr.ppermute(x, "tp", [(i, (i + 1) % 4) for i in range(4)]),
        mesh, P(None, "tp"), P(None, "tp"),
    )  # fmt: skip
    close(shifted(x), np.roll(np.asarray(x), 3, axis=1))
    index = gr.shard_map(
        lambda x: x * 0 + gr.axis_index("dp") * 10 + gr.axis_index("tp"), mesh, P(("dp", "tp")),
        P(("dp", "tp")),
    )  # fmt: skip
    assert index(gr.zeros(8)).tolist() == [0, 1, 2, 3, 10, 11, 12, 13]
    gathered = gr.shard_map(
        lambda x: gr.all_gather(x, "tp", tiled=True), mesh, P("tp"), P(), check=False
    )
    close(gathered(x), x)
    trees = gr.shard_map(
        lambda p: {"sum": gr.psum(p["x"].sum(0), "dp"), "x": p["x"]}, mesh, ({"x": P("dp")},),
        {"sum": P(), "x": P("dp")},
    )({"x": x})  # fmt: skip
    close(trees["sum"], np.asarray(x).sum(0))
    close(trees["x"], x)


def test_mapped_functions_refuse_shards_that_do_not_fit():
    mesh = mesh_of(dp=2, tp=4)
    with pytest.raises(gr.ShapeError, match=r"dimension 0 .*10.*dp=2 x tp=4"):
        gr.shard_map(lambda x: x, mesh, P(("dp", "tp")), P(("dp", "tp")))(gr.zeros(10))
    varies = gr.shard_map(lambda x: x * 2, mesh, P("dp"), P())
    with pytest.raises(gr.InvalidArgumentError, match="varies"):
        varies(gr.zeros(4))
    first = gr.shard_map(lambda x: x * 2, mesh, P("dp"), P(), check=False)
    assert first(gr.arange(4.0)).tolist() == [0.0, 2.0]
    with pytest.raises(gr.InvalidArgumentError, match="in_specs"):
        gr.shard_map(lambda x: x, mesh, ({"a": P("dp")},), P())(gr.zeros(4))


def test_files_hold_whole_tensors(tmp_path):
    mesh = mesh_of(dp=2)
    x = numbers(5, 3)
    gr.save(tmp_path / "x.safetensors", {"x": x.shard(mesh, P("dp")), "y": x})
    found = gr.load(tmp_path / "x.safetensors", shardings=gr.Sharding(mesh, P(None, "dp")))
    assert {name: value.sharding.spec for name, value in found.items()} == {
        "x": P(None, "dp"), "y": P(None, "dp")
    }  # fmt: skip
    close(found["x"], x)
    close(pickle.loads(pickle.dumps(x.shard(mesh, P("dp")))), x)


def test_a_sharded_tensor_is_drawn():
    mesh = mesh_of(dp=2)
    x = numbers(4, 3).shard(mesh, P("dp"))
    assert gr.visualize_sharding(x) == gr.visualize_sharding(x.sharding, x.shape)
