"""Objects that a compiled function cannot guard are refused where the function reads them: a name in
a branch that is not taken refuses nothing.
"""

from __future__ import annotations

import sys

import girih as gr
import numpy as np
import pytest

TABLE = np.zeros(100_000)
GENERATOR = np.random.default_rng(0)


class _Settings:
    def __init__(self):
        self.table = TABLE
        self.rate = 2.0


SETTINGS = _Settings()


def of_global(x, use):
    return x + TABLE[0] if use else x * 2


def of_generator(x, use):
    return x + GENERATOR.normal() if use else x * 2


def of_attribute(x, use):
    return x + SETTINGS.table[0] if use else x * SETTINGS.rate


def of_inner(x, use):
    def inner():
        return TABLE

    return x + inner()[0] if use else x * 2


def of_cell():
    table = np.zeros(100_000)

    def fun(x, use):
        return x + table[0] if use else x * 2

    return fun


def of_many_names():
    # An index above 255 needs a prefix of the instruction.
    names = "\n".join(f"    x.a{i}" for i in range(300))
    code = (
        f"def fun(x, use):\n    if use:\n        return x + TABLE[0]\n    return x * 2\n{names}\n"
    )
    code = code.replace("x + TABLE[0]", "[" + ", ".join(f"b{i}" for i in range(300)) + ", TABLE]")
    space = {f"b{i}": 0 for i in range(300)} | {"TABLE": TABLE}
    exec(code, space)
    return space["fun"]


UNGUARDED = [of_global, of_generator, of_attribute, of_inner, of_cell(), of_many_names()]


@pytest.mark.parametrize("fun", UNGUARDED, ids=lambda fun: fun.__qualname__)
def test_what_cannot_be_guarded_is_refused_only_where_it_is_read(fun):
    x = gr.ones([2])
    compiled = gr.compile(fun)
    assert compiled(x, False).tolist() == [2.0, 2.0]
    with pytest.raises(gr.InvalidArgumentError, match=r"TABLE|GENERATOR|table"):
        compiled(x, True)
    assert compiled(x, False).tolist() == [2.0, 2.0]
    assert compiled.num_programs == 1


def test_a_name_that_is_read_by_its_text_is_refused():
    class Reader:
        def __init__(self):
            self.table = TABLE

    reader = Reader()
    compiled = gr.compile(lambda x, name: x + getattr(reader, name)[0])
    with pytest.raises(gr.InvalidArgumentError, match="table"):
        compiled(gr.ones([2]), "table")


def test_a_tracer_of_the_user_goes_on():
    seen = []

    def tracer(frame, event, arg):
        if frame.f_code is of_global.__code__:
            seen.append(event)
        return tracer

    sys.settrace(tracer)
    try:
        assert gr.compile(of_global)(gr.ones([2]), False).tolist() == [2.0, 2.0]
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(None)
    assert {"call", "line", "return"} <= set(seen)
