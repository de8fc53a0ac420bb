"""Batches of arrays, sequences and iterables; threads that prefetch; progress bars."""

from __future__ import annotations

import io
import threading
import time

import girih as gr
import numpy as np
import pytest
from girih import data


def values(loader):
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", ["tensor", "numpy", "sequence", "iterable"])
def test_batches_of_every_kind_of_data(kind, prefetch):
    source = {"tensor": gr.arange(5), "numpy": np.arange(5), "sequence": list(range(5)),
              "iterable": dict.fromkeys(range(5)).keys()}[kind]  # fmt: skip
    loader = data.DataLoader(source, 2, prefetch=prefetch)
    assert values(loader) == values(loader) == [[0, 1], [2, 3], [4]]
    assert loader.epoch == 2
    dropped = data.DataLoader(source, 2, drop_last=True, prefetch=prefetch)
    assert values(dropped) == [[0, 1], [2, 3]]
    if kind != "iterable":
        assert (len(loader), len(dropped)) == (3, 2)


def test_trees_of_arrays_keep_their_rows_together():
    x, y = np.arange(20).reshape(10, 2), np.arange(10)
    loader = data.DataLoader({"x": x, "y": (y,)}, 3, shuffle=True, seed=4)
    first, second = ([(b["x"].numpy(), b["y"][0].numpy()) for b in loader] for _ in range(2))
    for epoch in (first, second):
        rows, labels = (np.concatenate(parts) for parts in zip(*epoch, strict=True))
        assert sorted(labels.tolist()) == list(range(10))
        np.testing.assert_array_equal(rows, x[labels])
    assert [b[1].tolist() for b in first] != [b[1].tolist() for b in second]
    again = data.DataLoader((x, y), 3, shuffle=True, seed=4)
    assert [b[1].tolist() for b in again] == [b[1].tolist() for b in first]
    assert again.order(1) == [i for b in second for i in b[1].tolist()]


@pytest.mark.parametrize("source", [gr.zeros([0, 3]), [], np.zeros((0,))])
def test_empty_data_give_no_batches(source):
    assert list(data.DataLoader(source, 2, shuffle=True)) == []
    assert len(data.DataLoader(source, 2)) == 0


@pytest.mark.parametrize("prefetch", [0, 3])
def test_an_epoch_goes_on_where_it_was_saved(prefetch, tmp_path):
    make = lambda: data.DataLoader(gr.arange(20), 3, shuffle=True, seed=1, prefetch=prefetch)
    whole = make()
    want = [values(whole), values(whole)]
    loader = make()
    list(loader)
    running = iter(loader)
    got = [next(running).tolist() for _ in range(3)]
    gr.save(tmp_path / "loader.safetensors", loader.state_dict())
    resumed = make()
    resumed.load_state_dict(gr.load(tmp_path / "loader.safetensors"))
    assert got + values(resumed) == want[1]
    assert (resumed.epoch, resumed.state_dict()) == (2, {"epoch": 2, "batch": 0})
    for bad in ({"epoch": 1}, {"epoch": -1, "batch": 0}):
        with pytest.raises(gr.InvalidArgumentError, match="load_state_dict"):
            resumed.load_state_dict(bad)


def test_invalid_loader_arguments_are_refused():
    for bad, message in (
        (lambda: data.DataLoader([1], 0), "batch_size must be at least 1, got 0"),
        (lambda: data.DataLoader([1], prefetch=-1), "prefetch must not be negative"),
        (lambda: data.DataLoader(iter([1]), shuffle=True), "girih.data.shuffled"),
        (lambda: data.DataLoader(3), "data are arrays, a sequence or an iterable, got int"),
        (lambda: data.DataLoader(gr.asarray(3)), "without axes"),
        (lambda: data.batched([1], 0), "batch_size"),
        (lambda: data.shuffled([1], 0), "buffer_size"),
        (lambda: data.prefetched([1], 0), "size must be at least 1"),
        (lambda: data.progress([1], interval=-1), "interval"),
        (lambda: data.collate([]), "no samples"),
        (lambda: data.collate([(1, 2), (1,)]), "sample 1"),
        (lambda: data.DataLoader(iter([1])).order(0), "no positions"),
    ):
        with pytest.raises(gr.InvalidArgumentError, match=message):
            bad()
    with pytest.raises(gr.ShapeError, match="3 and 2 samples"):
        data.DataLoader((gr.ones([3]), gr.ones([2])))
    with pytest.raises(gr.ShapeError, match=r"shape \[2\], sample 1 \[3\]"):
        data.collate([gr.ones([2]), gr.ones([3])])
    with pytest.raises(TypeError, match="iterable"):
        len(data.DataLoader(iter([1])))


def test_samples_are_joined_by_kind():
    samples = [{"x": np.ones(2, "f4") * i, "y": i, "name": f"n{i}", "z": gr.asarray(i)} for i in range(3)]  # fmt: skip
    joined = data.collate(samples)
    assert joined["x"].shape == (3, 2)
    assert joined["x"].dtype == gr.float32
    assert joined["y"].tolist() == joined["z"].tolist() == [0, 1, 2]
    assert joined["name"] == ["n0", "n1", "n2"]
    padded = data.DataLoader([[1], [1, 2]], 2, collate=lambda s: gr.asarray([len(x) for x in s]))
    assert values(padded) == [[1, 2]]


def test_a_buffer_shuffles_an_iterable():
    found = list(data.shuffled(iter(range(100)), 20, seed=3))
    assert sorted(found) == list(range(100))
    assert found != list(range(100))
    assert found == list(data.shuffled(range(100), 20, seed=3))
    # An item is at most the size of the buffer ahead of its position.
    assert all(item <= at + 20 for at, item in enumerate(found))
    assert sorted(data.shuffled(range(3), 10)) == [0, 1, 2]


def alive():
    return [t for t in threading.enumerate() if t.name == "girih-prefetch"]


def test_a_prefetching_thread_works_ahead_and_ends():
    made = []

    def items():
        for i in range(50):
            made.append(i)
            yield gr.asarray([i]) * 2

    running = iter(data.prefetched(items(), 2))
    assert next(running).tolist() == [0]
    deadline = time.monotonic() + 5
    while len(made) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 3 <= len(made) <= 5
    second = next(running)
    assert second.state() == "available"
    running.close()
    assert not alive()
    assert [t.item() for t in data.prefetched(gr.asarray([i]) for i in range(3))] == [0, 1, 2]
    assert not alive()


def test_errors_of_the_thread_come_where_their_item_would():
    def items():
        yield 1
        raise KeyError("broken")

    running = iter(data.prefetched(items()))
    assert next(running) == 1
    with pytest.raises(KeyError, match="broken"):
        next(running)
    assert not alive()


def test_a_training_loop_over_batches_is_one_program():
    x, y = gr.randn([32, 3]), gr.randn([32, 1])
    model, optimizer = gr.eval(gr.nn.Linear(3, 1)), gr.optim.Adam(0.05)
    gradients = gr.nn.value_and_grad(model, lambda x, y: gr.nn.mse(model(x), y))

    @gr.compile
    def step(x, y):
        loss, grads = gradients(x, y)
        optimizer.update(model, grads)
        return loss

    loader = data.DataLoader((x, y), 8, shuffle=True, prefetch=2)
    for _ in range(5):
        for batch in loader:
            step(*batch)
    assert step.num_programs == 1
    assert optimizer.state["step"].item() == 20


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_bar_shows_share_speed_and_numbers():
    out = io.StringIO()
    bar = data.progress([1, 2, 3, 4], "epoch 1", file=out)
    for _ in bar:
        bar.set(loss=gr.asarray(0.123456), acc=1)
    line = out.getvalue()
    assert line.startswith("epoch 1  ████████████████████████ 100% 4/4  ")
    assert line.endswith("/s  loss 0.1235  acc 1\n")
    assert line.count("\n") == 1
    live = Terminal()
    bar = data.progress(iter(range(3)), total=3, file=live, interval=0)
    assert len(bar) == 3
    list(bar)
    pictures = live.getvalue().split("\r")[1:]
    assert len(pictures) == 4
    assert " 33% 1/3  0:00 left" in pictures[1]
    assert pictures[-1].endswith("\n")
    unknown = io.StringIO()
    for i in data.progress(iter(range(9)), file=unknown):
        if i == 4:
            break
    assert unknown.getvalue().startswith("4  ")
    with pytest.raises(TypeError, match="not known"):
        len(data.progress(iter([])))
    empty = io.StringIO()
    assert list(data.progress([], file=empty)) == []
    assert empty.getvalue().startswith("0  ")
