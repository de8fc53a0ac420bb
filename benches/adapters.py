"""The adapters: each library's own calls for the operations of `peers.Library`."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from .peers import LAZY, Function, Library, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence


class NumpyOut(Library):
    """NumPy with results written to a given buffer."""

    name = "numpy out="

    def add(self, x: Any, y: Any, out: Any) -> Any:
        return self.xp.add(x, y, out=out)


class Torch(Library):
    """PyTorch in eager mode."""

    name = "torch"
    module = "torch"

    def __init__(self) -> None:
        super().__init__()
        self.functional: Any = import_module("torch.nn.functional")
        self.xp.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))

    def tensor(self, array: np.ndarray) -> Any:
        return self.xp.from_numpy(array.copy())

    def copied(self, array: np.ndarray) -> Any:
        return self.xp.tensor(array)

    def shared(self, array: np.ndarray) -> Any:
        return self.xp.from_numpy(array)

    def low(self, array: np.ndarray) -> Any:
        return self.tensor(array).to(self.xp.bfloat16)

    def numpy(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.numpy(v) for v in value]
        return value.detach().to(self.xp.promote_types(value.dtype, self.xp.float32)).numpy()

    def gradient(self, function: Function) -> Function:
        function = self.compiled(function)

        def grad(x: Any, *rest: Any) -> Any:
            x = x.detach().requires_grad_()
            return self.xp.autograd.grad(function(x, *rest), x)[0]

        return grad

    def trainer(self, loss: Function, parameters: list[np.ndarray], rate: float) -> Function:
        held = [self.tensor(p).requires_grad_() for p in parameters]
        optimizer = self.xp.optim.Adam(held, lr=rate, fused=True)
        function = self.compiled(lambda *batch: loss(held, *batch))

        def step(*batch: Any) -> Any:
            optimizer.zero_grad(set_to_none=True)
            value = function(*batch)
            value.backward()
            optimizer.step()
            return value.detach()

        return step

    def relu(self, x: Any) -> Any:
        return self.functional.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.functional.gelu(x, approximate="tanh")

    def softmax(self, x: Any) -> Any:
        return self.xp.softmax(x, -1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.layer_norm(x, (x.shape[-1],), weight, bias)

    def batch_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.functional.batch_norm(x, None, None, weight, bias, training=True)

    def topk(self, x: Any, count: int) -> Any:
        return list(self.xp.topk(x, count))

    def byte_product(self, x: Any, w: Any) -> Any:
        return self.xp._int_mm(x, w)

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return x.permute(*axes)

    def conv(self, x: Any, weight: Any, stride: int, padding: int, groups: int = 1) -> Any:
        return self.functional.conv2d(x, weight, None, stride, padding, groups=groups)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.functional.scaled_dot_product_attention(q, k, v)

    def causal_attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def take(self, table: Any, indices: Any) -> Any:
        return self.functional.embedding(indices, table)

    def concat(self, parts: Sequence[Any], axis: int) -> Any:
        return self.xp.cat(parts, axis)

    def bordered(self, x: Any) -> Any:
        return self.functional.pad(x, (1, 1, 1, 1))

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self.functional.max_pool2d(x, size, stride, padding)

    def lstm(self, x: Any, weights: Sequence[Any], layers: int) -> Any:
        zeros = x.new_zeros((layers, x.shape[1], weights[1].shape[1]))
        flags = (True, layers, 0.0, True, False, False)
        return self.xp.lstm(x, (zeros, zeros), list(weights), *flags)[0]

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return self.functional.cross_entropy(logits, labels)


class TorchOut(Torch):
    """PyTorch with results written to a given buffer."""

    name = "torch out="

    def add(self, x: Any, y: Any, out: Any) -> Any:
        return self.xp.add(x, y, out=out)


class TorchLast(Torch):
    """PyTorch with images in the channels-last layout, its fastest layout for convolutions."""

    name = "torch nhwc"

    def tensor(self, array: np.ndarray) -> Any:
        tensor = super().tensor(array)
        if tensor.ndim == 4:
            return tensor.contiguous(memory_format=self.xp.channels_last)
        return tensor


class TorchCompiled(Torch):
    """PyTorch with `torch.compile`; the optimiser's step is compiled separately."""

    name = "torch.compile"

    def __init__(self) -> None:
        super().__init__()
        # Trigger the compiler's imports, so that they do not count as compilation of the first
        # program.
        self.compiled(lambda x: x + 1)(self.xp.ones(2))

    def compiled(self, function: Function) -> Function:
        # The rows' functions share their code object, and PyTorch stops compiling a code object
        # that was compiled too often.
        self.forget()
        return self.xp.compile(function, dynamic=False)  # type: ignore[no-any-return]

    def forget(self) -> None:
        import_module("torch._dynamo").reset()


class _Functional(Library):
    """The common part of JAX, MLX and Girih: functions from arrays to arrays."""

    def shared(self, array: np.ndarray) -> Any:
        raise UnsupportedError("copies operands")

    def value_and_grad(self, function: Function) -> Function:
        """The function's value and its gradients with respect to the first argument."""
        raise NotImplementedError

    def trainer(self, loss: Function, parameters: list[np.ndarray], rate: float) -> Function:
        loss_and_grads = self.value_and_grad(loss)

        def update(state: Any, *batch: Any) -> Any:
            held, first, second, count = state
            value, grads = loss_and_grads(held, *batch)
            count = count + 1
            first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
            second = [0.999 * v + 0.001 * (g * g) for v, g in zip(second, grads, strict=True)]
            scale, root = 1 - 0.9**count, (1 - 0.999**count) ** 0.5
            held = [
                p - rate / scale * m / (v**0.5 / root + 1e-8)
                for p, m, v in zip(held, first, second, strict=True)
            ]
            return value, (held, first, second, count)

        compiled = self.stepping(update)
        zeros = lambda: [self.tensor(np.zeros_like(p)) for p in parameters]
        held = [self.tensor(p) for p in parameters]
        state = (held, zeros(), zeros(), self.tensor(np.zeros((), np.float32)))

        def step(*batch: Any) -> Any:
            nonlocal state
            value, state = self.finish(compiled(state, *batch))
            return value

        return step

    def stepping(self, function: Function) -> Function:
        """The function, compiled; its first argument may be donated."""
        return self.compiled(function)

    def scan(self, body: Function, carry: Any, parts: Any) -> Any:
        """The last carry, and the outputs of the body for each part."""
        raise UnsupportedError("no scan")

    def sigmoid(self, x: Any) -> Any:
        return 1 / (1 + self.exp(-x))

    def lstm(self, x: Any, weights: Sequence[Any], layers: int) -> Any:
        for at in range(0, 4 * layers, 4):
            of_inputs, of_outputs, first, second = weights[at : at + 4]
            width = of_outputs.shape[1]
            # One matrix product for the inputs of all steps.
            x = x @ self.permute(of_inputs, (1, 0)) + (first + second)
            back = self.permute(of_outputs, (1, 0))

            def step(carry: Any, part: Any, width: int = width, back: Any = back) -> Any:
                h, c = carry
                gates = part + h @ back
                i, f, g, o = (gates[:, k * width : (k + 1) * width] for k in range(4))
                c = self.sigmoid(f) * c + self.sigmoid(i) * self.xp.tanh(g)
                h = self.sigmoid(o) * self.xp.tanh(c)
                return (h, c), h

            zeros = self.xp.zeros((x.shape[1], width), dtype=self.xp.float32)
            _, x = self.scan(step, (zeros, zeros), x)
        return x

    def gradient(self, function: Function) -> Function:
        with_value = self.value_and_grad(function)
        return self.compiled(lambda *a: with_value(*a)[1])


class Girih(_Functional):
    """Girih with `compile`."""

    name = "girih"
    module = "girih"

    def tensor(self, array: np.ndarray) -> Any:
        # Copy to memory of its own, as JAX does.
        return self.xp.asarray(array, copy=True).eval()

    def copied(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array)

    def shared(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array, copy=False)

    def low(self, array: np.ndarray) -> Any:
        return self.xp.asarray(array).astype(self.xp.bfloat16).eval()

    def numpy(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.numpy(v) for v in value]
        if value.dtype == self.xp.bfloat16:
            value = value.astype(self.xp.float32)
        return value.numpy()

    def compiled(self, function: Function) -> Function:
        return self.xp.compile(function)  # type: ignore[no-any-return]

    def trainer(self, loss: Function, parameters: list[np.ndarray], rate: float) -> Function:
        # The package's optimiser within the compiled step, as users write it.
        optimizer = self.xp.optim.Adam(rate)
        loss_and_grads = self.value_and_grad(loss)

        @self.xp.compile(donate=("held", "state"))
        def update(held: Any, state: Any, *batch: Any) -> Any:
            value, grads = loss_and_grads(held, *batch)
            return value, *optimizer.apply(grads, state, held)

        held = [self.tensor(p) for p in parameters]
        state = optimizer.init(held)

        def step(*batch: Any) -> Any:
            nonlocal held, state
            value, held, state = update(held, state, *batch)
            return value

        return step

    def started(self, function: Function) -> Function:
        return lambda *operands: self.xp.async_eval(function(*operands))

    def forget(self) -> None:
        self.xp.clear_cache()

    def value_and_grad(self, function: Function) -> Function:
        return self.xp.value_and_grad(function)  # type: ignore[no-any-return]

    def relu(self, x: Any) -> Any:
        return self.xp.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.xp.gelu(x, approximate="tanh")

    def softmax(self, x: Any) -> Any:
        return self.xp.softmax(x, axis=-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.xp.nn.functional.layer_norm(x, x.shape[-1], weight, bias)

    def batch_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.xp.nn.functional.batch_norm(x, None, None, weight, bias, training=True)

    def topk(self, x: Any, count: int) -> Any:
        return list(self.xp.topk(x, count))

    def byte_product(self, x: Any, w: Any) -> Any:
        return x.astype(self.xp.int32) @ w.astype(self.xp.int32)

    def permute(self, x: Any, axes: Sequence[int]) -> Any:
        return self.xp.permute_dims(x, tuple(axes))

    def conv(self, x: Any, weight: Any, stride: int, padding: int, groups: int = 1) -> Any:
        options = {"stride": stride, "padding": padding, "groups": groups}
        return self.xp.nn.functional.conv2d(x, weight, **options)

    def attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.xp.nn.functional.scaled_dot_product_attention(q, k, v)

    def causal_attention(self, q: Any, k: Any, v: Any) -> Any:
        return self.xp.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def take(self, table: Any, indices: Any) -> Any:
        return self.xp.nn.functional.embedding(indices, table)

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        return self.xp.nn.functional.max_pool2d(x, size, stride, padding)

    def loop(self, count: int, body: Function, value: Any) -> Any:
        return self.xp.fori_loop(0, count, lambda _, value: body(value), value)

    def scan(self, body: Function, carry: Any, parts: Any) -> Any:
        return self.xp.scan(body, carry, parts)

    def sigmoid(self, x: Any) -> Any:
        return self.xp.sigmoid(x)

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        return -(self.xp.nn.functional.log_softmax(logits, axis=-1) * labels).sum() / len(logits)


class GirihLazy(Girih):
    """Girih without `compile`: each call records its graph again, and the package's optimiser is
    used.
    """

    name = LAZY

    def compiled(self, function: Function) -> Function:
        return function

    def finish(self, value: Any) -> Any:
        self.xp.eval(value)
        return value

    def trainer(self, loss: Function, parameters: list[np.ndarray], rate: float) -> Function:
        held = [self.tensor(p) for p in parameters]
        optimizer = self.xp.optim.Adam(rate)
        optimizer.init(held)
        loss_and_grads = self.xp.value_and_grad(loss)

        def step(*batch: Any) -> Any:
            nonlocal held
            value, grads = loss_and_grads(held, *batch)
            held = optimizer.update(held, grads)
            self.xp.eval(value, held, optimizer.state)
            return value

        return step


class Jax(_Functional):
    """JAX with `jax.jit`."""

    name = "jax"
    module = "jax.numpy"

    def __init__(self) -> None:
        super().__init__()
        self.jax: Any = import_module("jax")

    @property
    def version(self) -> str:
        return str(self.jax.__version__)

    def tensor(self, array: np.ndarray) -> Any:
        return self.xp.array(array)

    def copied(self, array: np.ndarray) -> Any:
        return self.finish(self.xp.array(array))

    def low(self, array: np.ndarray) -> Any:
        return self.xp.array(array, dtype=self.xp.bfloat16)

    def numpy(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.numpy(v) for v in value]
        return np.asarray(value.astype("float32") if value.dtype == "bfloat16" else value)

    def compiled(self, function: Function) -> Function:
        return self.jax.jit(function)  # type: ignore[no-any-return]

    def stepping(self, function: Function) -> Function:
        return self.jax.jit(function, donate_argnums=0)  # type: ignore[no-any-return]

    def finish(self, value: Any) -> Any:
        return self.jax.block_until_ready(value)

    def forget(self) -> None:
        self.jax.clear_caches()

    def value_and_grad(self, function: Function) -> Function:
        return self.jax.value_and_grad(function)  # type: ignore[no-any-return]

    def relu(self, x: Any) -> Any:
        return self.jax.nn.relu(x)

    def gelu(self, x: Any) -> Any:
        return self.jax.nn.gelu(x, approximate=True)

    def softmax(self, x: Any) -> Any:
        return self.jax.nn.softmax(x, axis=-1)

    def topk(self, x: Any, count: int) -> Any:
        return list(self.jax.lax.top_k(x, count))

    def byte_product(self, x: Any, w: Any) -> Any:
        return self.jax.lax.dot(x, w, preferred_element_type=self.xp.int32)

    def causal_attention(self, q: Any, k: Any, v: Any) -> Any:
        of = lambda x: self.permute(x, (0, 2, 1, 3))
        return of(self.jax.nn.dot_product_attention(of(q), of(k), of(v), is_causal=True))

    def max_pool(self, x: Any, size: int, stride: int, padding: int) -> Any:
        pads = ((0, 0), (0, 0), (padding, padding), (padding, padding))
        return self.jax.lax.reduce_window(
            x, -self.xp.inf, self.jax.lax.max, (1, 1, size, size), (1, 1, stride, stride), pads
        )

    def loop(self, count: int, body: Function, value: Any) -> Any:
        return self.jax.lax.fori_loop(0, count, lambda _, value: body(value), value)

    def scan(self, body: Function, carry: Any, parts: Any) -> Any:
        return self.jax.lax.scan(body, carry, parts)

    def sigmoid(self, x: Any) -> Any:
        return self.jax.nn.sigmoid(x)

    def conv(self, x: Any, weight: Any, stride: int, padding: int, groups: int = 1) -> Any:
        pads = [(padding, padding)] * 2
        return self.jax.lax.conv_general_dilated(
            x, weight, (stride, stride), pads, feature_group_count=groups
        )


class Mlx(_Functional):
    """MLX with `mx.compile`, on its CPU device."""

    name = "mlx"
    module = "mlx.core"

    def __init__(self) -> None:
        super().__init__()
        self.xp.set_default_device(self.xp.cpu)

    def tensor(self, array: np.ndarray) -> Any:
        return self.xp.array(array)

    def copied(self, array: np.ndarray) -> Any:
        return self.finish(self.xp.array(array))

    def low(self, array: np.ndarray) -> Any:
        return self.xp.array(array).astype(self.xp.bfloat16)

    def numpy(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.numpy(v) for v in value]
        low = value.dtype == self.xp.bfloat16
        return np.array(value.astype(self.xp.float32) if low else value)

    def compiled(self, function: Function) -> Function:
        return self.xp.compile(function)  # type: ignore[no-any-return]

    def finish(self, value: Any) -> Any:
        self.xp.eval(value)
        return value

    def value_and_grad(self, function: Function) -> Function:
        return self.xp.value_and_grad(function)  # type: ignore[no-any-return]

    def softmax(self, x: Any) -> Any:
        return self.xp.softmax(x, axis=-1)

    def layer_norm(self, x: Any, weight: Any, bias: Any) -> Any:
        return self.xp.fast.layer_norm(x, weight, bias, 1e-5)


ADAPTERS = (
    Girih, Library, Torch, TorchCompiled, Jax, Mlx, TorchLast, GirihLazy, TorchOut, NumpyOut,
)  # fmt: skip
