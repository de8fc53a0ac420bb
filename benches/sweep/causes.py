"""What runs a row: facts that `girih.explain` has about its kernels, and the cause that follows."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from .. import peers
    from .rows import Row

#: An operation of a kernel's text: value, operation, operands.
OPERATION = re.compile(r"^ *(v\d+) = (\w+)\((.*)\): \w+$")
#: Any value's definition, and the forms of those that are positions.
VALUE = re.compile(r"^ *(v\d+) = (.*)$", re.M)
GATHER = re.compile(r"^ *v\d+ = gather .*\*(v\d+) of \d+$")
WRAP = re.compile(r"wrap (v\d+) of")
LOAD = re.compile(r"load (b\d+)\[")
COMPUTED = re.compile(r"iota |\w+\(")
STORE = re.compile(r"^ *(b\d+)\[.*\] = v\d+$", re.M)
#: The headings of causes, most specific first: the first that holds for a row is its cause.
ORDER = (
    "loop or branch", "element-wise index arithmetic", "portable executor",
    "single elements at computed positions", "short reduction", "one thread",
    "routine", "product", "draw", "copy", "cost of a call", "several kernels", "generated code",
)  # fmt: skip
#: Calls that take less than this are mostly overhead.
CALL_S = 4e-6
#: Of several kernels, those that move less take no time that matters.
FEW_BYTES = 1 << 14
BOTTLENECKS = {
    "scattered_read": "single elements at computed positions",
    "short_reduction": "short reduction",
    "one_thread": "one thread",
}


@dataclass
class Facts:
    """What the kernels of a row are.

    Attributes:
        kernels: The number of kernels.
        portable: Kernels without generated code that compute something, so that each operation
            runs in a loop of its own.
        indexed: Kernels that compute the position of each element that they read.
        copies: Kernels without generated code that only move elements.
        routines: The library routines that run, by op.
        kinds: Loops, products and draws among the kernels.
        bottlenecks: The codes of the bottlenecks that `explain` estimates.
        error: Why the row cannot be explained.
    """

    kernels: int = 0
    portable: int = 0
    indexed: int = 0
    copies: int = 0
    routines: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    bottlenecks: list[str] = field(default_factory=list)
    error: str = ""


@functools.cache
def categories() -> dict[str, str]:
    """The category of each op of the table."""
    from girih import _girih

    return {op["name"]: op["category"] for op in _girih._registry()}


def computes_positions(text: str, written: Container[str] = ()) -> bool:
    """Whether a kernel gathers at positions that the program computes, here or, into one of the
    buffers `written`, before.
    """
    defined = dict(m.groups() for m in VALUE.finditer(text))
    for line in text.splitlines():
        if not (found := GATHER.match(line)):
            continue
        index = defined.get(found[1], "")
        while wrapped := WRAP.match(index):
            index = defined.get(wrapped[1], "")
        loaded = LOAD.match(index)
        if loaded[1] in written if loaded else bool(COMPUTED.match(index)):
            return True
    return False


def of_kernels(kernels: Sequence[dict[str, Any]], bottlenecks: Sequence[str] = ()) -> Facts:
    """The facts of kernels as `girih.explain` returns them with `asm=True`."""
    facts = Facts(len(kernels), bottlenecks=list(dict.fromkeys(bottlenecks)))
    written: set[str] = set()
    for kernel in kernels:
        text, ops = kernel["text"], [op["op"] for op in kernel["ops"]]
        kinds = {categories().get(op) for op in ops}
        if computes_positions(text, written):
            facts.indexed += 1
        written.update(STORE.findall(text))
        if "OP_CONTROL" in kinds:
            facts.kinds.append("loop or branch")
        elif "OP_LIBRARY" in kinds:
            library = [op for op in ops if categories().get(op) == "OP_LIBRARY"]
            facts.routines.extend(op for op in library if op not in facts.routines)
        elif "matmul " in text:
            facts.kinds.append("product")
        elif "random_" in text:
            facts.kinds.append("draw")
        elif not kernel["assembly"]:
            computing = any(OPERATION.match(line) for line in text.splitlines())
            reducing = "\n  reduce " in text or "scatter_" in text or "gather " in text
            traffic = kernel["traffic"]
            few = traffic["bytes_read"] + traffic["bytes_written"] < FEW_BYTES
            if few and len(kernels) > 1:
                continue
            if computing or reducing:
                facts.portable += 1
            else:
                facts.copies += 1
    return facts


def facts(row: Row, girih: peers.Library) -> Facts:
    """The facts of a row's program, which is compiled again for it."""
    if not row.compiled:
        return Facts(error="evaluated op by op")
    try:
        value = row.body(girih)(*row.tensors(girih))
        found = girih.xp.explain(value, asm=True)
    except Exception as error:
        return Facts(error=f"{type(error).__name__}: {str(error).partition(chr(10))[0]}")
    return of_kernels(found.kernels, [b["code"] for b in found.bottlenecks])


def cause(facts: Facts, seconds: float) -> str:
    """The most specific cause of the time of a row."""
    if facts.error:
        return "evaluated op by op" if facts.error == "evaluated op by op" else "not explained"
    holds = {
        "portable executor": facts.portable,
        "element-wise index arithmetic": facts.indexed,
        "routine": facts.routines,
        "copy": facts.copies,
        "cost of a call": seconds < CALL_S,
        "several kernels": facts.kernels > 1,
        "generated code": True,
        **dict.fromkeys(facts.kinds, True),
        **{name: code in facts.bottlenecks for code, name in BOTTLENECKS.items()},
    }
    found = next(name for name in ORDER if holds.get(name))
    return f"routine: {', '.join(facts.routines)}" if found == "routine" else found
