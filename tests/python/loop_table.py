"""Loops of each kind that run a function of one value a number of times.

``LOOPS[kind](f, n)`` is a function of ``x`` that applies ``f`` to ``x`` n times, n at most 5.
"""

from __future__ import annotations

import girih as gr


def scan(body, length):
    return lambda x: gr.scan(lambda c, _: (body(c), None), x, None, length=length)[0]


LOOPS = {
    "scan": scan,
    "scan of slices": lambda f, n: lambda x: gr.scan(
        lambda c, i: (f(c), i), x, gr.arange(n)
    )[0],
    "fori_loop": lambda f, n: lambda x: gr.fori_loop(0, n, lambda i, c: f(c), x),
    "fori_loop of tensors": lambda f, n: lambda x: gr.fori_loop(
        0, gr.asarray(n), lambda i, c: f(c), x
    ),
    "while_loop": lambda f, n: lambda x: gr.while_loop(
        lambda p: p[0] < n, lambda p: (p[0] + 1, f(p[1])), (0, x)
    )[1],
    "bounded while_loop": lambda f, n: lambda x: gr.while_loop(
        lambda p: p[0] < n, lambda p: (p[0] + 1, f(p[1])), (0, x), max_iterations=5
    )[1],
    "scan in scan": lambda f, n: scan(scan(f, 1), n),
    "scan in while_loop": lambda f, n: LOOPS["while_loop"](scan(f, 1), n),
    "while_loop in scan": lambda f, n: scan(LOOPS["while_loop"](f, 1), n),
    "cond in scan": lambda f, n: scan(in_branch(f), n),
    "cond in while_loop": lambda f, n: LOOPS["while_loop"](in_branch(f), n),
    "call in scan": lambda f, n: scan(gr.checkpoint(f), n),
    "call in while_loop": lambda f, n: LOOPS["while_loop"](gr.checkpoint(f), n),
    "scan in call": lambda f, n: gr.checkpoint(scan(f, n)),
}  # fmt: skip


def in_branch(body):
    """The body in the branch that a condition takes."""
    return lambda c: gr.cond(gr.asarray(True), body, lambda v: v, c)
