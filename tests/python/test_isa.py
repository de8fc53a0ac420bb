"""Levels of the instruction set: bitwise equal results, and invalid values of ``GIRIH_ISA``."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
from processes import has_avx512

HERE = pathlib.Path(__file__).parent
LEVELS = ["baseline", "avx2", "avx512"]
SUITES = ["test_elementwise.py", "test_reduce.py", "test_dtypes.py", "test_indexing.py"]

#: Prints a digest of every elementary function and cast, for difficult arguments in each dtype.
DIGEST = """
import hashlib
import numpy as np
import girih as gr

rng = np.random.default_rng(7)
special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1e-40, 1e6, 3e8, -2e20, 2.0**31]
values = np.concatenate([special, rng.standard_normal(3001) * 4, rng.uniform(-1, 1, 1000)])
one = ("exp exp2 expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh"
       " atanh erf sqrt rsqrt floor ceil round trunc sign abs").split()
two = "add subtract multiply divide pow atan2 hypot maximum minimum copysign".split()
whole = ("add subtract multiply floor_divide remainder bitwise_and bitwise_xor bitwise_left_shift"
         " bitwise_right_shift maximum").split()
reals = ["float16", "float32", "float64"]
integers = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
digest = hashlib.sha256()

def take(y):
    a = np.asarray(y)
    if a.dtype.kind == "f":
        a = np.where(np.isnan(a), np.nan, a).astype(a.dtype)
    digest.update(np.ascontiguousarray(a).tobytes())

with np.errstate(all="ignore"):
    for dtype in reals:
        x = gr.asarray(values.astype(dtype))
        y = gr.asarray(values[::-1].astype(dtype).copy())
        for name in one:
            take(getattr(gr, name)(x))
        for name in two:
            take(getattr(gr, name)(x, y))
        for to in reals + integers + ["bool"]:
            take(x.astype(getattr(gr, to + "_" * (to == "bool"))))
        take(gr.where(x > y, x * 2 + y, gr.exp(-x * x)).sum())
        for columns in 64, 1000, 1536:
            rows = gr.asarray(rng.standard_normal((9, columns)).astype(dtype))
            for name in "sum prod max min".split():
                take(getattr(gr, name)(rows * 1.1, axis=1))
    for dtype in integers:
        info = np.iinfo(dtype)
        a = rng.integers(info.min, info.max, 2003, dtype=dtype, endpoint=True)
        b = rng.integers(0, 9, 2003).astype(dtype)
        x, y = gr.asarray(a), gr.asarray(b)
        for name in whole:
            take(getattr(gr, name)(x, y))
        for to in reals + integers + ["bool"]:
            take(x.astype(getattr(gr, to + "_" * (to == "bool"))))
print(digest.hexdigest())
"""


def run(level: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "GIRIH_CACHE": "0", "GIRIH_ISA": level, **variables}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("level", LEVELS[:2])
def test_suites_pass_at_each_level(level):
    if level == "avx2" and not has_avx512():
        pytest.skip("it is the machine's highest level, at which all other tests run")
    suites = [str(HERE / suite) for suite in SUITES]
    done = run(level, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suites)
    assert done.returncode == 0, done.stdout[-3000:]


def test_all_levels_compute_the_same_bits():
    digests = {}
    for level in LEVELS:
        for jit in "10":
            done = run(level, "-c", DIGEST, GIRIH_JIT=jit)
            assert done.returncode == 0, done.stderr
            digests[level, jit] = done.stdout.strip()
    assert len(set(digests.values())) == 1, digests


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("GIRIH_ISA", "sse9", "baseline, avx2 or avx512"), ("GIRIH_JIT", "maybe", "on, yes")],
)
def test_invalid_environment_variables_are_errors(variable, value, expected):
    code = "import girih as gr; print((gr.ones(3) + 1).tolist())"
    done = run("", "-c", code, **{variable: value})
    assert done.returncode != 0
    assert f"{variable}={value}" in done.stderr
    assert expected in done.stderr
