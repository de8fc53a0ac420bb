"""Recurrent layers: one loop over time per layer and direction, in the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _girih, control
from ..errors import InvalidArgumentError, ShapeError
from . import init
from .module import Module, Parameter

if TYPE_CHECKING:
    from .._girih import DType, Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


def _gates(x: Tensor, n: int) -> list[Tensor]:
    """Splits the last axis into n parts."""
    size = x.shape[-1] // n
    return [x[..., i * size : (i + 1) * size] for i in range(n)]


def _tanh(of_x: Tensor, of_h: Tensor, _: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (_girih.tanh(of_x + of_h),)


def _relu(of_x: Tensor, of_h: Tensor, _: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (_girih.relu(of_x + of_h),)


def _lstm(of_x: Tensor, of_h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    i, f, g, o = _gates(of_x + of_h, 4)
    cell = _girih.sigmoid(f) * state[1] + _girih.sigmoid(i) * _girih.tanh(g)
    return _girih.sigmoid(o) * _girih.tanh(cell), cell


def _gru(of_x: Tensor, of_h: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (rx, zx, nx), (rh, zh, nh) = _gates(of_x, 3), _gates(of_h, 3)
    z = _girih.sigmoid(zx + zh)
    new = _girih.tanh(nx + _girih.sigmoid(rx + rh) * nh)
    return ((1.0 - z) * new + z * state[0],)


class _Recurrent(Module):
    """The sizes and parameters common to layers and cells."""

    precision: ClassVar[str | None] = "half"

    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    nonlinearity: str = "tanh"

    def _check_sizes(self, input_size: int, hidden_size: int, nonlinearity: str) -> None:
        name = type(self).__name__
        if input_size < 1 or hidden_size < 1:
            raise InvalidArgumentError(
                f"{name}: sizes must be at least 1, got {input_size} and {hidden_size}"
            )
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidArgumentError(
                f"{name}: nonlinearity is 'tanh' or 'relu', got {nonlinearity!r}"
            )
        self.input_size, self.hidden_size = input_size, hidden_size

    def _parameters(self, suffix: str, size: int, bias: bool, dtype: DType | None) -> None:
        rows, bound = self.gates * self.hidden_size, self.hidden_size**-0.5
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, size)}
        shapes["weight_hh"] = (rows, self.hidden_size)
        if bias:
            shapes.update(bias_ih=(rows,), bias_hh=(rows,))
        for name, shape in shapes.items():
            setattr(self, name + suffix, Parameter(init.uniform(shape, -bound, bound, dtype)))

    def _step(self) -> Any:
        if self.gates == 4:
            return _lstm
        if self.gates == 3:
            return _gru
        return _relu if self.nonlinearity == "relu" else _tanh

    def _linear(self, kind: str, suffix: str, x: Tensor) -> Tensor:
        out: Tensor = x @ getattr(self, f"weight_{kind}{suffix}").T
        bias: Tensor | None = getattr(self, f"bias_{kind}{suffix}", None)
        return out if bias is None else out + bias


class _Layers(_Recurrent):
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self._check_sizes(input_size, hidden_size, self.nonlinearity)
        name = type(self).__name__
        if num_layers < 1:
            raise InvalidArgumentError(f"{name}: num_layers must be at least 1, got {num_layers}")
        if not 0 <= dropout <= 1:
            raise InvalidArgumentError(f"{name}: dropout must be in [0, 1], got {dropout}")
        self.num_layers, self.bias, self.batch_first = num_layers, bias, batch_first
        self.dropout, self.bidirectional = dropout, bidirectional
        directions = 2 if bidirectional else 1
        for layer in range(num_layers):
            size = input_size if layer == 0 else hidden_size * directions
            for direction in range(directions):
                self._parameters(self._suffix(layer, direction), size, bias, dtype)

    @staticmethod
    def _suffix(layer: int, direction: int) -> str:
        return f"_l{layer}" + ("_reverse" if direction else "")

    def _checked(self, x: Tensor) -> Tensor:
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            order = "[batch, time, " if self.batch_first else "[time, batch, "
            raise ShapeError(
                f"{type(self).__name__}: expected {order}{self.input_size}], or without the batch "
                f"axis; got shape {list(x.shape)}"
            )
        if x.ndim == 2:
            return x.unsqueeze(1)
        return x.swapaxes(0, 1) if self.batch_first else x

    def _start(self, x: Tensor, given: Any, single: bool) -> list[Tensor]:
        """The initial states of all layers and directions, ``[layers * directions, batch,
        hidden]``."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        shape = (count, x.shape[1], self.hidden_size)
        if given is None:
            return [_girih.zeros(shape, dtype=x.dtype)] * self.states
        states = list(given) if self.states > 1 else [given]
        states = [s.unsqueeze(1) if single else s for s in states]
        for state in states:
            if tuple(state.shape) != shape:
                raise ShapeError(
                    f"{type(self).__name__}: expected a state of shape {list(shape)}, got "
                    f"{list(state.shape)}"
                )
        return states

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Applies the layer to a sequence.

        Args:
            x: ``[time, batch, input_size]``, with ``batch_first`` ``[batch, time, input_size]``, or
                without the batch axis.
            state: The initial state (for an :class:`LSTM` a pair), ``[layers * directions, batch,
                hidden_size]``; zeros by default.

        Returns:
            The states of the last layer at all times, and the final states of all layers.

        Raises:
            ShapeError: The shapes of the operands do not match.
        """
        single = x.ndim == 2
        x = self._checked(x)
        start = self._start(x, state, single)
        last: list[list[Tensor]] = [[] for _ in range(self.states)]
        directions = 2 if self.bidirectional else 1
        for layer in range(self.num_layers):
            if layer and self.training and self.dropout:
                x = _girih.dropout(x, self.dropout)
            outs = []
            for direction in range(directions):
                index = layer * directions + direction
                first = tuple(s[index] for s in start)
                out, ends = self._run(x, first, self._suffix(layer, direction), direction == 1)
                outs.append(out)
                for kept, end in zip(last, ends, strict=True):
                    kept.append(end)
            x = outs[0] if directions == 1 else _girih.concat(outs, -1)
        final = [_girih.stack(kept) for kept in last]
        if single:
            x, final = x.squeeze(1), [f.squeeze(1) for f in final]
        elif self.batch_first:
            x = x.swapaxes(0, 1)
        return x, (tuple(final) if self.states > 1 else final[0])

    def _run(
        self, x: Tensor, first: tuple[Tensor, ...], suffix: str, reverse: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Runs one direction of one layer; returns its states at all times, and the final state."""
        step = self._step()
        of_x = self._linear("ih", suffix, x)
        first = tuple(s.astype(of_x.dtype) for s in first)

        def body(state: tuple[Tensor, ...], part: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            new = step(part, self._linear("hh", suffix, state[0]), state)
            return new, new[0]

        ends, out = control.scan(body, first, of_x, reverse=reverse)
        return out, ends


class RNN(_Layers):
    """``h = tanh(W_ih x + b_ih + W_hh h + b_hh)`` over time: Elman 1990.

    Args:
        input_size: The number of features of the input.
        hidden_size: The number of features of the state.
        num_layers: The number of stacked layers; each layer reads the states of the previous one.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: Whether to add biases, one for the input and one for the state.
        batch_first: Whether the batch axis is before time.
        dropout: The probability of dropping a state between layers in training mode.
        bidirectional: Whether a second direction runs backwards in time; its states are
            concatenated.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: A size is below 1, ``dropout`` is outside ``[0, 1]``, or the
            nonlinearity is unknown.

    Example:
        >>> import girih as gr
        >>> out, state = gr.nn.RNN(3, 5)(gr.ones([7, 2, 3]))
        >>> out.shape, state.shape
        ((7, 2, 5), (1, 2, 5))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: DType | None = None,
    ) -> None:
        self.nonlinearity = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, dtype
        )


class LSTM(_Layers):
    """Long short-term memory with input, forget and output gates: Hochreiter and Schmidhuber 1997.
    Parameters have PyTorch's names and order.

    The state is a pair of hidden state and cell. See :class:`RNN` for the arguments.

    Raises:
        InvalidArgumentError: A size is below 1, or ``dropout`` is outside ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> out, (h, c) = gr.nn.LSTM(3, 5, num_layers=2, batch_first=True)(gr.ones([2, 7, 3]))
        >>> out.shape, h.shape, c.shape
        ((2, 7, 5), (2, 2, 5), (2, 2, 5))
    """

    gates = 4
    states = 2


class GRU(_Layers):
    """Gated recurrent units with reset and update gates: Cho et al. 2014. See :class:`RNN` for the
    arguments.

    Raises:
        InvalidArgumentError: A size is below 1, or ``dropout`` is outside ``[0, 1]``.

    Example:
        >>> import girih as gr
        >>> out, state = gr.nn.GRU(3, 5, bidirectional=True)(gr.ones([7, 2, 3]))
        >>> out.shape, state.shape
        ((7, 2, 10), (2, 2, 5))
    """

    gates = 3


class _Cell(_Recurrent):
    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: DType | None = None
    ) -> None:
        self._check_sizes(input_size, hidden_size, self.nonlinearity)
        self.bias = bias
        self._parameters("", input_size, bias, dtype)

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """One step.

        Args:
            x: ``[batch, input_size]`` or ``[input_size]``.
            state: The state (for an :class:`LSTMCell` a pair), ``[batch, hidden_size]`` or
                ``[hidden_size]``; zeros by default.

        Returns:
            The next state.

        Raises:
            ShapeError: The shapes of the operands do not match.
        """
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: expected [batch, {self.input_size}] or "
                f"[{self.input_size}], got shape {list(x.shape)}"
            )
        if state is None:
            zeros = _girih.zeros((*x.shape[:-1], self.hidden_size), dtype=x.dtype)
            given = (zeros,) * self.states
        else:
            given = tuple(state) if self.states > 1 else (state,)
        step = self._step()
        new = step(self._linear("ih", "", x), self._linear("hh", "", given[0]), given)
        return new if self.states > 1 else new[0]


class RNNCell(_Cell):
    """One step of an :class:`RNN`.

    Args:
        input_size: The number of features of the input.
        hidden_size: The number of features of the state.
        bias: Whether to add biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        dtype: The dtype of the parameters.

    Raises:
        InvalidArgumentError: A size is below 1, or the nonlinearity is unknown.

    Example:
        >>> import girih as gr
        >>> gr.nn.RNNCell(3, 5)(gr.ones([2, 3])).shape
        (2, 5)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: DType | None = None,
    ) -> None:
        self.nonlinearity = nonlinearity
        super().__init__(input_size, hidden_size, bias, dtype)


class LSTMCell(_Cell):
    """One step of an :class:`LSTM`; see :class:`RNNCell`.

    Example:
        >>> import girih as gr
        >>> h, c = gr.nn.LSTMCell(3, 5)(gr.ones([2, 3]))
        >>> h.shape, c.shape
        ((2, 5), (2, 5))
    """

    gates = 4
    states = 2


class GRUCell(_Cell):
    """One step of a :class:`GRU`; see :class:`RNNCell`.

    Example:
        >>> import girih as gr
        >>> gr.nn.GRUCell(3, 5)(gr.ones([2, 3])).shape
        (2, 5)
    """

    gates = 3
