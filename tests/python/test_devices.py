"""The device of the process: its names and memory, and programs on the mock accelerator."""

import os
import subprocess
import sys
import textwrap

import girih as gr
import numpy as np
import pytest

MOCKS = ["mock", "mock:physical", "mock:corrected,concurrent", "mock:physical,corrected"]

# What users do, in a process of its own; prints a hash of all results.
PROGRAM = """
    import hashlib, os, tempfile
    import numpy as np
    import girih as gr
    from girih import nn, optim

    found = hashlib.sha256()

    def note(*tensors):
        for x in tensors:
            found.update(np.ascontiguousarray(np.asarray(x)).tobytes())

    rng = np.random.default_rng(0)
    a = rng.standard_normal((33, 17)).astype(np.float32)
    x = gr.asarray(a)
    assert x.device == gr.devices()[0].name == EXPECTED, x.device
    note(x @ x.T, gr.softmax(x, axis=1), x[:, ::2], x.T, gr.sort(x, axis=0), gr.zeros((0, 3)))
    note(gr.from_dlpack(a) * 2, np.from_dlpack(gr.eval(x + 1)), gr.asarray(a[::3, 1::2]))
    note(gr.grad(lambda v: (gr.tanh(v) @ v.T).sum())(x))
    step = gr.compile(lambda v, w: gr.exp(-(v**2)) @ w)
    note(step(x, x.T), step(x * 2, x.T))
    note(gr.vmap(lambda row: row / row.sum())(gr.abs(x)))
    total, history = gr.scan(lambda c, v: (c + v, c * v), gr.zeros(17), x)
    note(total, history)
    note(gr.linalg.inv(x[:17, :17] + 10 * gr.eye(17)), gr.fft.fft(x[0]))
    gr.random.seed(3)
    note(gr.random.normal((5, 5)), gr.random.randint(0, 9, (20,)))

    gr.random.seed(0)
    model = nn.Sequential(nn.Linear(17, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = optim.Adam(1e-2)
    loss_and_grad = nn.value_and_grad(model, lambda v: (model(v) ** 2).mean())
    for _ in range(3):
        loss, grads = loss_and_grad(x)
        optimizer.update(model, grads)
    note(loss, *gr.tree.leaves(model.parameters()))

    with gr.stream(gr.Stream()):
        y = gr.async_eval(x * 3)
    note(y + 1)
    try:
        gr.eval(gr.take(x, gr.asarray([40]), axis=0))
        raise SystemExit("an index beyond the axis is an error")
    except gr.errors.IndexOutOfBoundsError:
        pass
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.safetensors")
        gr.save(path, {"x": x})
        note(gr.load(path)["x"])
    # A program's code may be in device memory, too.
    gr.eval(gr.ones((1000,)) * 2)
    before = gr.memory_stats().in_use
    kept = gr.eval(gr.ones((1000,)) * 2)
    assert gr.memory_stats().in_use - before == 4096, gr.memory_stats()
    del kept
    assert gr.memory_stats().in_use == before
    print(found.hexdigest())
"""


def run(device):
    program = textwrap.dedent(PROGRAM).replace("EXPECTED", repr(device.partition(":")[0]))
    env = os.environ | {"GIRIH_DEVICE": device}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def on_the_cpu():
    return run("cpu")


@pytest.mark.parametrize("device", MOCKS)
def test_programs_give_the_same_bits_on_the_mock_accelerator(device, on_the_cpu):
    assert run(device) == on_the_cpu


def test_unknown_devices_in_the_environment_are_errors():
    program = "import girih as gr; gr.eval(gr.ones(3) + 1)"
    for device in ["gpu", "mock:fast"]:
        env = os.environ | {"GIRIH_DEVICE": device}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert device in done.stderr
        assert "mock" in done.stderr


def test_devices_are_named_and_taken_by_name():
    (device,) = gr.devices()
    assert (str(device), device.concurrency) == ("cpu", None)
    assert device.target.startswith("cpu/")
    for given in [device, "cpu", None]:
        assert gr.zeros(3, device=given).device == "cpu"
    assert gr.ones(2).to_device(device).device == "cpu"
    assert gr.Executor(gr.ExecutorConfig(device="cpu")).config == gr.Executor().config
    for name in ["gpu", "cs2", "mock"]:
        with pytest.raises(gr.errors.DeviceError, match=name):
            gr.zeros(3, device=name)
        with pytest.raises(gr.errors.DeviceError, match=name):
            gr.memory_stats(name)


def test_memory_statistics_count_blocks_in_use():
    before = gr.memory_stats()
    x = gr.eval(gr.ones((1000,), dtype="float64") + 1)
    y = gr.eval(gr.ones((1,)) + 1)
    now = gr.memory_stats("cpu")
    assert now.requested - before.requested == 8004
    assert now.in_use - before.in_use == 8064 + 128
    assert (now.blocks - before.blocks, now.capacity) == (2, before.capacity)
    assert now.largest_free <= now.capacity - now.in_use
    assert 0 <= now.fragmentation < 1
    assert gr.devices()[0].memory_stats() == now
    gr.reset_peak_memory_stats()
    assert gr.memory_stats().peak == now.in_use
    del x, y
    after = gr.memory_stats()
    assert after.in_use == before.in_use
    assert after.peak == now.in_use
    np.testing.assert_equal(after.blocks, before.blocks)
