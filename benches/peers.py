"""The libraries: how each creates tensors, computes, compiles, differentiates and trains.

Workloads use a `Library` for everything that differs between libraries, and Python operators for
the rest. A missing feature raises `UnsupportedError`, and the row reports it. The subclass of each
library is in `adapters`.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Not imported here: NumPy reads the number of its threads on import, after `limit_threads`.
    import numpy as np

#: All libraries with an adapter.
ALL = ("girih", "numpy", "torch", "torch.compile", "jax", "mlx")
#: The variants that write to a given buffer.
HINTED = ("torch out=", "numpy out=")
#: Girih without `compile`.
LAZY = "girih lazy"
EVERY = (*ALL, "torch nhwc", LAZY, *HINTED)
#: Variants that are shown and do not count as peers.
SHOWN = (LAZY, *HINTED)
COMPILERS = ("girih", "torch.compile", "jax", "mlx")

Function = Callable[..., Any]


class UnsupportedError(Exception):
    """The library has no such operation."""


class Library:
    """One library. The defaults of the operations below are NumPy's."""

    name = "numpy"
    module = "numpy"

    def __init__(self) -> None:
        self.xp: Any = import_module(self.module)

    @property
    def version(self) -> str:
        """The library's version."""
        return str(self.xp.__version__)

    def tensor(self, array: np.ndarray) -> Any:
        """The array as the library's tensor."""
        return array

    def copied(self, array: np.ndarray) -> Any:
        """A copy of the array as a tensor, by the function that the library's users call."""
        return array.copy()

    def shared(self, array: np.ndarray) -> Any:
        """A tensor in the array's memory."""
        return array

    def low(self, array: np.ndarray) -> Any:
        """The array as a bfloat16 tensor."""
        raise UnsupportedError("no bfloat16")

    def numpy(self, value: Any) -> Any:
        """A result as one array, or a list for several."""
        if isinstance(value, (list, tuple)):
            return [self.numpy(v) for v in value]
        return self.xp.asarray(value)

    def compiled(self, function: Function) -> Function:
        """The function, compiled in the best way of the library."""
        return function

    def finish(self, value: Any) -> Any:
        """Waits for the value."""
        return value

    def started(self, function: Function) -> Function:
        """The function without waiting for its value."""
        return self.compiled(function)

    def forget(self) -> None:
        """Drops all compiled programs."""

    def gradient(self, function: Function) -> Function:
        """The gradient of a scalar function with respect to its first argument."""
        raise UnsupportedError("no gradients")

    def trainer(self, loss: Function, parameters: list[np.ndarray], rate: float) -> Function:
        """A step of Adam: a function from the batch's tensors to the loss, which waits for all
        updates.
        """
        raise UnsupportedError("no gradients")

    def exp(self, x: Any) -> Any:
        return self.xp.exp(x)

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0)

    def gelu(self, x: Any) -> Any:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return 0.5 * x * (1 + self.xp.tanh(inner))

    def softmax(self, x: Any) -> Any:
        e = self.xp.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        mean = x.mean(axis=-1, keepdims=True)
        centred = x - mean
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return centred / (variance + 1e-5) ** 0.5 * weight + bias

    def batch_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        """Batch norm with the batch's moments; channels are axis 1."""
        mean = x.mean(axis=(0, 2, 3), keepdims=True)
        centred = x - mean
        variance = (centred * centred).mean(axis=(0, 2, 3), keepdims=True)
        shape = (1, -1, 1, 1)
        scaled = centred / (variance + 1e-5) ** 0.5
        return scaled * weight.reshape(shape) + bias.reshape(shape)

    def sum(self, x: Any, axis: int) -> Any:
        return self.xp.sum(x, axis=axis)

    def topk(self, x: Any, count: int) -> Any:
        """The largest elements of each row in order, and their indices."""
        raise UnsupportedError("no selection in order")

    def byte_product(self, x: Any, w: Any) -> Any:
        """The product of int8 matrices, accumulated in int32."""
        raise UnsupportedError("no such product of bytes")

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return self.xp.transpose(x, axes)

    def conv(self, x: Any, weight: Any, stride: int, padding: int, groups: int = 1) -> Any:
        """Two-dimensional convolution, NCHW."""
        raise UnsupportedError("no convolutions")

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        """Softmax attention over `[batch, heads, tokens, width]`."""
        scores = q @ self.permute(k, (0, 1, 3, 2)) * (1 / math.sqrt(q.shape[-1]))
        return self.softmax(scores) @ v

    def causal_attention(self, q: Any, k: Any, v: Any) -> Any:
        """As `attention`, with a causal mask."""
        raise UnsupportedError("no attention of that kind")

    def take(self, table: Any, indices: Any) -> Any:
        """Selects rows of a table."""
        return table[indices]

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.concatenate(parts, axis=axis)

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        """Two-dimensional max pooling, NCHW."""
        raise UnsupportedError("no pooling")

    def bordered(self, x: Any) -> Any:
        """A matrix padded with a border of zeros."""
        return self.xp.pad(x, 1)

    def doubled(self, x: Any) -> Any:
        """Images upsampled to twice the height and width by nearest neighbours."""
        n, c, h, w = x.shape
        wide = self.xp.broadcast_to(x[:, :, :, None, :, None], (n, c, h, 2, w, 2))
        return wide.reshape((n, c, 2 * h, 2 * w))

    def loop(self, count: int, body: Function, value: Any) -> Any:
        """Applies the body `count` times, each time to its previous result."""
        for _ in range(count):
            value = body(value)
        return value

    def lstm(self, x: Any, weights: Sequence[Any], layers: int) -> Any:
        """The outputs of the last layer, `[steps, batch, width]`, with zero initial states. Each
        layer has input weights, recurrent weights and two biases; the gates are in the order
        `i, f, g, o`.
        """
        raise UnsupportedError("no scan")

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """The mean cross entropy of rows with one-hot labels."""
        peak = logits.max(axis=-1, keepdims=True)
        shifted = logits - peak
        logs = self.xp.log(self.xp.exp(shifted).sum(axis=-1, keepdims=True))
        return -((shifted - logs) * labels).sum() / logits.shape[0]


def installed(wanted: Sequence[str] | None = None) -> tuple[list[Library], dict[str, str]]:
    """The installed libraries, girih first, and the reasons why the others are missing."""
    from .adapters import ADAPTERS  # The adapters are subclasses of this module's class.

    libraries, missing = [], {}
    for adapter in ADAPTERS:
        if wanted is not None and adapter.name not in wanted:
            continue
        try:
            libraries.append(adapter())
        except ImportError as error:
            if adapter.name == "girih":
                raise
            missing[adapter.name] = re.sub(r"\s+", " ", str(error))
    return libraries, missing


def limit_threads(threads: int) -> None:
    """Limits the threads of every library; must be called before any is imported."""
    for name in ("OMP", "OPENBLAS", "MKL", "GIRIH"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    os.environ["GIRIH_CACHE"] = "0"
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    warnings.filterwarnings("ignore", message="dynamo_pgo force disabled")
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "sched_setaffinity"):
        # XLA uses one thread per CPU that the process may run on.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
