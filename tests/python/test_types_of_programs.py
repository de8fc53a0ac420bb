"""What type checkers see of a user's program: updates at an index, modules, transforms."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import girih as gr
from typing_extensions import assert_type

x = gr.ones([3])
assert_type(x.at[0].set(1.0), gr.Tensor)
assert_type(x.at[1:].add(x[1:]).at[0].get(), gr.Tensor)

class Net(gr.nn.Module):
    def __init__(self) -> None:
        self.linear = gr.nn.Linear(3, 2)

    def forward(self, x: gr.Tensor, scale: float = 1.0) -> tuple[gr.Tensor, float]:
        return self.linear(x) * scale, scale

    @gr.compile
    def step(self, x: gr.Tensor) -> gr.Tensor:
        return self(x)[0]

net = Net()
assert_type(net.linear(x), gr.Tensor)
assert_type(net(x, scale=2.0), tuple[gr.Tensor, float])
assert_type(net.step(x), gr.Tensor)
assert_type(gr.compile(net)(x), tuple[gr.Tensor, float])

@gr.compile
def double(x: gr.Tensor, times: int) -> gr.Tensor:
    return x * times

@gr.compile(donate="x", dynamic_dims={0: {0: "n"}})
def half(x: gr.Tensor) -> dict[str, gr.Tensor]:
    return {"x": x / 2}

@gr.checkpoint(policy="dots")
def loss(x: gr.Tensor, weight: float = 1.0) -> gr.Tensor:
    return (x * weight).sum()

assert_type(double(x, 2), gr.Tensor)
assert_type(half(x), dict[str, gr.Tensor])
assert_type(loss(x), gr.Tensor)
assert_type(gr.value_and_grad(loss)(x, weight=2.0)[0], gr.Tensor)
assert_type(gr.vmap(loss)(x), gr.Tensor)
gradient = gr.grad(lambda x: (x * x).sum())(x)
"""
#: PyTorch's training loop.
LOOP = """
import girih as gr
from girih import nn
from typing_extensions import assert_type

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.register_buffer("mean", gr.zeros([3]))

    def forward(self, x: gr.Tensor) -> gr.Tensor:
        return self.fc(x)

m = Net()
opt = gr.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
adam = gr.optim.AdamW([{"params": m.fc.parameters(), "lr": 0.1}], 0.1, weight_decay=0.1)
other = gr.optim.Adam(0.1)
named = gr.optim.Adam(learning_rate=gr.optim.schedules.cosine_decay(0.1, 10))
sched = gr.optim.lr_scheduler.StepLR(opt, 3)
loss = m(gr.ones([2, 3])).sum()
loss.backward()
gr.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
opt.step()
opt.zero_grad()
sched.step()
m.fc.weight.requires_grad = False
m.fc.weight.grad = None
m.half().float().requires_grad_(False).train()
first = next(m.parameters())
assert_type(first, gr.Tensor)
m.apply(lambda module: None)
for p in m.parameters():
    p.requires_grad_()
for name, child in m.named_children():
    child.eval()
nn.init.kaiming_normal_(m.fc.weight)
"""
WRONG = """
import girih as gr

x = gr.ones([3])
gr.nn.Linear(3, 2)("text")
gr.compile(lambda x: x)(x)
def f(x: gr.Tensor, n: int) -> gr.Tensor:
    return x * n
gr.compile(f)(x, "two")
gr.value_and_grad(f)(x, 1, 2)
gr.vmap(f)()
"""


def checked(tool, program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(program)
    command = {
        "mypy": [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(path)],
        "pyright": ["pyright", "--level", "error", "--pythonpath", sys.executable, str(path)],
    }[tool]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    return result.returncode, result.stdout + result.stderr


@pytest.mark.parametrize("program", [PROGRAM, LOOP], ids=["functions", "loop"])
@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_a_program_keeps_its_types(tool, program, tmp_path):
    if tool == "pyright" and shutil.which(tool) is None:
        pytest.skip("pyright is not installed")
    status, output = checked(tool, program, tmp_path)
    assert status == 0, output


def test_wrong_arguments_are_found(tmp_path):
    status, output = checked("mypy", WRONG, tmp_path)
    assert status == 1, output
    lines = [int(line.split(":")[1]) for line in output.splitlines() if ": error:" in line]
    assert sorted(set(lines)) == [5, 9, 10, 11], output
