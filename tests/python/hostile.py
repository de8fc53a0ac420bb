"""Calls every public function, and methods of objects, with hostile values for each parameter.

A call must return, or raise a :class:`girih.GirihError`, in a limited time and with limited memory.
A call that computes with a very long tensor must end at a signal.
``test_hostile_arguments.py`` runs a part of the calls in a process of its own, and
``tests/long/test_all_hostile_arguments.py`` runs all of them. ``python hostile.py PART PARTS SHARE`` runs a part
and prints the calls that fail.
"""

from __future__ import annotations

import faulthandler
import inspect
import itertools
import re
import resource
import signal
import sys
import zlib
from types import FunctionType

import girih as gr
import hostile_methods
import numpy as np

#: The seconds that a call may take.
LIMIT = 30


#: Data of so many elements that a function which computes at once takes minutes. Such a call need
#: not end by itself, but a signal must end it.
DATA = ("long tensor", "long pairs")
#: The seconds after which the signal comes.
SIGNAL = 5

#: The messages of Python about the arguments of a call.
CALL = re.compile(
    r"missing \d+ required|unexpected keyword|positional-only|takes .* positional argument"
    r"|takes no (?:keyword )?arguments"
    r"|multiple values|^descriptor '"
)


class Liar(list):
    """A list that says it is longer than memory."""

    def __len__(self):
        return 2**62


class Late(BaseException):
    """A call has not ended in time."""


#: Functions from nothing to a value; the values are made anew for each call.
VALUES = {
    "endless ints": lambda: itertools.repeat(1),
    "endless tensors": lambda: itertools.repeat(gr.ones(2)),
    "lying list": lambda: Liar([0]),
    "long range": lambda: range(10**12),
    "long tensor": lambda: gr.zeros(2**40),
    "long pairs": lambda: gr.zeros((2**40, 2), dtype=gr.int64),
    "long array": lambda: np.broadcast_to(1, (2**40,)),
    "large int": lambda: 2**70,
    "negative int": lambda: -(2**70),
    "minus one": lambda: -1,
    "nan": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "text": lambda: "a",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"a",
    "object": object,
    "class": lambda: int,
    "none": lambda: None,
    "empty list": list,
    "empty dict": dict,
    "nested list": lambda: [[1], [2, 3]],
    "list of texts": lambda: ["a", "b"],
    "array": lambda: np.ones(2),
    "tensor": lambda: gr.ones((2, 3)),
    "ints": lambda: gr.asarray([1, 2]),
    "flag": lambda: True,
    "complex": lambda: 1j,
}

#: Values with which a function is called for its other parameters, by the parameter's name.
PLAIN = {
    "fun": lambda: lambda *args, **options: gr.ones(2),
    "f": lambda: lambda *args, **options: gr.ones(2),
    "fn": lambda: lambda *args, **options: gr.ones(2),
    "cond_fun": lambda: lambda value: gr.asarray(False),
    "body_fun": lambda: lambda *args: args[-1],
    "true_fun": lambda: lambda *args: gr.ones(2),
    "false_fun": lambda: lambda *args: gr.ones(2),
    "callback": lambda: lambda *args, **options: np.ones(2, np.float32),
    "perm": lambda: [(0, 1)],
    "shape": lambda: (2, 3),
    "sizes": lambda: (2, 3),
    "size": lambda: (2, 3),
    "stride": lambda: (1, 1),
    "axis": lambda: 0,
    "dim": lambda: 0,
    "axes": lambda: (0, 1),
    "dtype": lambda: gr.float32,
    "tensors": lambda: [gr.ones((2, 3)), gr.ones((2, 3))],
    "indices": lambda: gr.asarray([0, 1]),
    "n": lambda: 2,
    "num": lambda: 2,
    "k": lambda: 1,
    "bias": lambda: True,
    "device": lambda: "cpu",
    "kernel_size": lambda: 1,
    "normalized_shape": lambda: 3,
    "parameters": lambda: {"w": gr.ones((2, 3))},
    "grads": lambda: {"w": gr.ones((2, 3))},
    "values": lambda: {"w": gr.ones((2, 3))},
    "optimizer": lambda: gr.optim.SGD(0.1),
    "module": lambda: gr.nn.Linear(3, 2),
    "model": lambda: gr.nn.Linear(3, 2),
    "layer": lambda: gr.nn.Linear(3, 2),
    "axis_name": lambda: "i",
    "name": lambda: "weight",
    "mode": lambda: "constant",
    "p": lambda: 0.5,
    "learning_rate": lambda: 0.1,
    "eps": lambda: 1e-5,
    **dict.fromkeys(["rows", "cols", "num_pes", "block_rows", "block_cols"], lambda: 2),
    "layout": lambda: gr.layout.Layout.grid(2, 2),
    "layouts": lambda: "Grid(2, 2)",
    "graph": lambda: hostile_methods.program(),
    "mesh": lambda: gr.DeviceMesh((2, 3), ("a", "b"), devices="ghost"),
    "sharding": lambda: hostile_methods.sharding(),
}

#: Functions that end the process, write files, wait, or change how later calls behave.
LEFT_OUT = {
    "girih.command", "girih.write_file", "girih.save", "girih.savez", "girih.save_graph",
    "girih.dump_graphviz", "girih.set_num_threads", "girih.warmup", "girih.profile",
    "girih.set_eager", "girih.set_debug_nans", "girih.set_source_lines", "girih.Tensor.__class__",
    "girih.data.DataLoader", "girih.tree.PyTree",
}  # fmt: skip


def functions():
    """Every public function, method and constructor, by its name."""
    import importlib

    found = {}
    modules = ["", ".linalg", ".fft", ".random", ".nn", ".nn.functional", ".nn.init", ".optim",
               ".tree", ".amp", ".debug", ".data", ".special", ".layout"]  # fmt: skip
    for suffix in modules:
        name = f"girih{suffix}"
        module = importlib.import_module(name)
        for public in getattr(module, "__all__", dir(module)):
            value = getattr(module, public)
            if public.startswith("_") or inspect.ismodule(value):
                continue
            if callable(value) and not (inspect.isclass(value) and issubclass(value, Exception)):
                found[f"{name}.{public}"] = value
    for public in dir(gr.Tensor):
        if not public.startswith("_") and callable(getattr(gr.Tensor, public)):
            found[f"girih.Tensor.{public}"] = getattr(gr.Tensor, public)
    return {name: value for name, value in sorted(found.items()) if name not in LEFT_OUT}


def parameters(function):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    return list(signature.parameters.values())


def arguments(every, replaced, value, plain=PLAIN):
    """Positional and keyword arguments in which one parameter has a hostile value."""
    args, kwargs = [], {}
    for p in every:
        if p is replaced:
            given = value
        elif p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            given = plain.get(p.name, lambda: gr.ones((2, 3)))()
        else:
            continue
        if p.kind is p.VAR_KEYWORD:
            kwargs["option"] = given
        elif p.kind is p.KEYWORD_ONLY:
            kwargs[p.name] = given
        elif p.kind is p.VAR_POSITIONAL or len(args) == every.index(p):
            args.append(given)
        else:
            kwargs[p.name] = given
    return args, kwargs


def calls():
    """The name of each call, with the function, the parameter and the value."""
    for name, function in functions().items():
        every = parameters(function)
        for parameter in every:
            for value in VALUES:
                yield f"{name}({parameter.name}={value})", function, every, parameter, value
        if inspect.isclass(function) and issubclass(function, gr.nn.Module):
            yield from module_calls(name, function, every)
    for name, (method, every) in hostile_methods.methods().items():
        for parameter in every:
            for value in VALUES:
                yield f"{name}({parameter.name}={value})", method, every, parameter, value


def module_calls(name, kind, every):
    """Calls of a module that the default arguments make."""
    try:
        args, kwargs = arguments(every, None, None)
        small = [3 if isinstance(a, gr.Tensor) else a for a in args]
        module = kind(*small, **kwargs)
    except Exception:
        return
    for parameter in parameters(module.forward):
        for value in VALUES:
            yield (
                f"{name}()({parameter.name}={value})",
                module,
                parameters(module.forward),
                parameter,
                value,
            )


def outcome(function, every, parameter, value):
    """None, or what is wrong with a call."""
    try:
        plain = PLAIN
        if isinstance(function, hostile_methods.Method):
            plain = PLAIN | hostile_methods.PLAIN
            if value == "class" and parameter.name in hostile_methods.FUNCTIONS:
                return None  # A class is a function, whose errors are its own.
        args, kwargs = arguments(every, parameter, VALUES[value](), plain)
        result = function(*args, **kwargs)
        if isinstance(result, FunctionType) and parameter.name in ("fun", "f"):
            return None
    except (gr.GirihError, OSError, NotImplementedError):
        return None
    except TypeError as error:
        # Python checks how many arguments there are, and the operand of a method.
        return None if CALL.search(str(error)) else f"TypeError: {str(error)[:150]}"
    except Late:
        return None if value in DATA else f"has not ended after {LIMIT} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    return None


def late(*_):
    raise Late


def main():
    part, parts, share = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    signal.signal(signal.SIGALRM, late)
    faulthandler.enable()
    chosen = 0
    for call, function, every, parameter, value in calls():
        number = zlib.crc32(call.encode())
        if number % parts != part or number // parts % 1000 >= 1000 * share:
            continue
        chosen += 1
        print("CALL", call, flush=True)
        signal.setitimer(signal.ITIMER_REAL, SIGNAL if value in DATA else LIMIT)
        # A call that does not look at signals is ended by the parent.
        faulthandler.dump_traceback_later(2 * LIMIT, exit=True)
        wrong = outcome(function, every, parameter, value)
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        if wrong:
            print("WRONG", call, wrong, flush=True)
    print("DONE", chosen, flush=True)


if __name__ == "__main__":
    main()
