"""Which names a call reads: whether code that was run has loaded a global, a variable of an
enclosing function, or an attribute of some name.

``compile`` refuses objects that it cannot guard. A function may name such an object in a branch
that is not taken, so the decision needs the instructions that ran while it was traced.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import types
    from collections.abc import Set as AbstractSet

    from typing_extensions import Self

__all__ = ["Reads"]


class Reads:
    """A context in which the thread's code is watched, one instruction at a time.

    Args:
        names: The names to watch for.

    Attributes:
        found: Those of the names that were read. A name that is read as an attribute of another
            object, or that occurs as a string, counts too.
    """

    def __init__(self, names: AbstractSet[str]) -> None:
        self.found: set[str] = set()
        self._names = names
        self._codes: dict[types.CodeType, dict[int, set[str]]] = {}
        self._outer: Any = None

    def __enter__(self) -> Self:
        if self._names:
            self._outer = sys.gettrace()
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        if self._names:
            sys.settrace(self._outer)

    def _called(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """The trace function of the thread: called for each new frame."""
        # A debugger or a measurement of coverage goes on.
        outer = self._outer(frame, event, arg) if self._outer is not None else None
        offsets = self._codes.get(frame.f_code)
        if offsets is None:
            offsets = self._codes[frame.f_code] = self._offsets(frame.f_code)
        if not offsets:
            return outer
        frame.f_trace_opcodes = True

        def ran(frame: types.FrameType, event: str, arg: Any) -> Any:
            nonlocal outer
            if event == "opcode":
                self.found |= offsets.get(frame.f_lasti, set())
            if outer is not None:
                outer = outer(frame, event, arg)
            return ran

        return ran

    def _offsets(self, code: types.CodeType) -> dict[int, set[str]]:
        """The names that each instruction of some code reads, by its offset."""
        import dis  # Loading it would take a tenth of the import of this package.

        offsets: dict[int, set[str]] = {}
        prefixes: list[int] = []
        for instruction in dis.get_instructions(code):
            if instruction.opname == "EXTENDED_ARG":
                prefixes.append(instruction.offset)
                continue
            loads = instruction.opname.startswith("LOAD") and "FAST" not in instruction.opname
            value = instruction.argval
            named = {value} if isinstance(value, str) else set()
            if isinstance(value, tuple):
                named = {item for item in value if isinstance(item, str)}
            if loads and (read := named & self._names):
                # Depending on the version, the event of a long instruction names its prefix.
                offsets |= dict.fromkeys((*prefixes, instruction.offset), read)
            prefixes = []
        return offsets
