"""Learning rate schedules, for the ``learning_rate`` of an optimiser.

Each function returns a schedule: a function of the step count (0 at the first update) that computes
with tensors, so that one compiled program serves all steps. A schedule also accepts a number, and
then returns the rate as a float64 scalar tensor.
"""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, Any

from .. import _girih
from ..checks import explain_public, items
from ..errors import InvalidArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._girih import Tensor

    _Rate = Callable[[Any], Tensor]

__all__ = [
    "constant",
    "cosine_decay",
    "cosine_restarts",
    "exponential_decay",
    "inverse_sqrt",
    "join",
    "linear",
    "one_cycle",
    "piecewise_constant",
    "polynomial_decay",
    "step_decay",
    "warmup_cosine",
]


def _double(value: Any) -> Tensor:
    return _girih.asarray(value, dtype=_girih.float64)


def _steps(function: str, name: str, value: int) -> float:
    if not value > 0:
        raise InvalidArgumentError(f"{function}: {name} must be above 0, got {value}")
    return float(value)


def _share(count: Any, steps: float) -> Tensor:
    """The completed fraction of the steps, from 0 to 1."""
    return _girih.clip(_double(count) / steps, 0.0, 1.0)


def constant(value: float) -> _Rate:
    """A constant rate.

    Example:
        >>> import girih as gr
        >>> gr.optim.schedules.constant(0.1)(5).item()
        0.1
    """
    return lambda count: 0.0 * _double(count) + value


def linear(init_value: float, end_value: float, steps: int) -> _Rate:
    """Changes linearly from one rate to another, then stays constant.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.linear(0.0, 1.0, 4)
        >>> [rate(step).item() for step in (0, 1, 4, 9)]
        [0.0, 0.25, 1.0, 1.0]
    """
    return polynomial_decay(init_value, end_value, steps)


def polynomial_decay(init_value: float, end_value: float, steps: int, power: float = 1.0) -> _Rate:
    """Changes from one rate to another by a power of the remaining fraction of the steps.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.polynomial_decay(1.0, 0.0, 4, power=2.0)
        >>> [rate(step).item() for step in (0, 2, 4)]
        [1.0, 0.25, 0.0]
    """
    over = _steps("polynomial_decay", "steps", steps)
    return lambda count: end_value + (init_value - end_value) * (1.0 - _share(count, over)) ** power


def exponential_decay(
    init_value: float,
    decay_rate: float,
    steps: int = 1,
    staircase: bool = False,
    end_value: float = 0.0,
) -> _Rate:
    """Multiplies the rate by ``decay_rate`` every ``steps`` steps, continuously or in a staircase.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.exponential_decay(1.0, 0.5, steps=2)
        >>> [rate(step).item() for step in (0, 2, 4)]
        [1.0, 0.5, 0.25]
    """
    over = _steps("exponential_decay", "steps", steps)
    if not decay_rate > 0:
        raise InvalidArgumentError(
            f"exponential_decay: decay_rate must be above 0, got {decay_rate}"
        )

    def rate(count: Any) -> Tensor:
        passed = _double(count) / over
        passed = _girih.floor(passed) if staircase else passed
        return _girih.maximum(init_value * _double(decay_rate) ** passed, end_value)

    return rate


def step_decay(init_value: float, decay_rate: float, steps: int) -> _Rate:
    """Multiplies the rate by ``decay_rate`` after each ``steps`` steps.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.step_decay(1.0, 0.1, 30)
        >>> rate(29).item(), rate(30).item()
        (1.0, 0.1)
    """
    return exponential_decay(init_value, decay_rate, steps, staircase=True)


def piecewise_constant(init_value: float, scales: Mapping[int, float]) -> _Rate:
    """Multiplies the rate by a factor at each of the given steps.

    Args:
        init_value: The rate before the first of the steps.
        scales: The factors by step.

    Returns:
        The schedule.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.piecewise_constant(1.0, {10: 0.5, 20: 0.5})
        >>> [rate(step).item() for step in (9, 10, 20)]
        [1.0, 0.5, 0.25]
    """
    known = sorted(scales.items())

    def rate(count: Any) -> Tensor:
        value, at = constant(init_value)(count), _double(count)
        for step, factor in known:
            value = value * _girih.where(at >= step, _double(factor), 1.0)
        return value

    return rate


def cosine_decay(init_value: float, steps: int, end_value: float = 0.0) -> _Rate:
    """Changes from one rate to another along half a cosine wave: Loshchilov and Hutter 2017.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.cosine_decay(1.0, 10)
        >>> [round(rate(step).item(), 6) for step in (0, 5, 10, 20)]
        [1.0, 0.5, 0.0, 0.0]
    """
    over = _steps("cosine_decay", "steps", steps)
    span = init_value - end_value
    return lambda count: end_value + 0.5 * span * (1.0 + _girih.cos(pi * _share(count, over)))


def cosine_restarts(
    init_value: float, steps: int, factor: float = 1.0, end_value: float = 0.0
) -> _Rate:
    """Cosine decay with restarts; each cycle is ``factor`` times as long as the previous one.

    Args:
        init_value: The rate at the start of each cycle.
        steps: The length of the first cycle.
        factor: The factor of cycle lengths, at least 1.
        end_value: The rate at the end of each cycle.

    Returns:
        The schedule.

    Raises:
        InvalidArgumentError: ``steps`` is not above 0, or ``factor`` below 1.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.cosine_restarts(1.0, 2, factor=2.0)
        >>> [round(rate(step).item(), 3) for step in range(7)]
        [1.0, 0.5, 1.0, 0.854, 0.5, 0.146, 1.0]
    """
    over = _steps("cosine_restarts", "steps", steps)
    if not factor >= 1:
        raise InvalidArgumentError(f"cosine_restarts: factor must be at least 1, got {factor}")

    def rate(count: Any) -> Tensor:
        passed = _double(count) / over
        if factor == 1:
            within = passed - _girih.floor(passed)
        else:
            # Cycle k begins at (factor^k - 1) / (factor - 1) lengths of the first cycle. The
            # logarithm of an exact beginning may be just below an integer.
            cycle = _girih.log1p(passed * (factor - 1.0)) / _girih.log(_double(factor))
            power = _double(factor) ** _girih.floor(cycle + 1e-9)
            within = (passed - (power - 1.0) / (factor - 1.0)) / power
        return end_value + 0.5 * (init_value - end_value) * (1.0 + _girih.cos(pi * within))

    return rate


def warmup_cosine(
    peak_value: float,
    warmup_steps: int,
    steps: int,
    init_value: float = 0.0,
    end_value: float = 0.0,
) -> _Rate:
    """Linear warm-up to the peak, then cosine decay.

    Args:
        peak_value: The largest rate.
        warmup_steps: The number of warm-up steps, which may be 0.
        steps: The total number of steps, including warm-up.
        init_value: The initial rate.
        end_value: The final rate.

    Returns:
        The schedule.

    Raises:
        InvalidArgumentError: ``steps`` is not above ``warmup_steps``, or ``warmup_steps`` is
            negative.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.warmup_cosine(1.0, 2, 6)
        >>> [round(rate(step).item(), 3) for step in range(7)]
        [0.0, 0.5, 1.0, 0.854, 0.5, 0.146, 0.0]
    """
    if not 0 <= warmup_steps < steps:
        raise InvalidArgumentError(
            f"warmup_cosine: needs 0 <= warmup_steps < steps, got {warmup_steps} and {steps}"
        )
    down = cosine_decay(peak_value, steps - warmup_steps, end_value)
    if warmup_steps == 0:
        return down
    return join([linear(init_value, peak_value, warmup_steps), down], [warmup_steps])


def one_cycle(
    peak_value: float,
    steps: int,
    pct_start: float = 0.3,
    div_factor: float = 25.0,
    final_div_factor: float = 1e4,
) -> _Rate:
    """One cycle of cosine increase and decrease: Smith and Topin 2018, in PyTorch's form.

    Args:
        peak_value: The largest rate.
        steps: The total number of steps; step ``steps - 1`` has the final rate.
        pct_start: The fraction of the steps with an increasing rate.
        div_factor: The initial rate is the peak divided by this factor.
        final_div_factor: The final rate is the initial rate divided by this factor.

    Returns:
        The schedule.

    Raises:
        InvalidArgumentError: ``steps`` is not above 0, or ``pct_start`` leaves no step for the
            increase or the decrease.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.one_cycle(1.0, 11, pct_start=0.5)
        >>> [round(rate(step).item(), 3) for step in (0, 4, 10)]
        [0.04, 0.971, 0.0]
    """
    _steps("one_cycle", "steps", steps)
    top = pct_start * steps - 1.0
    if not 0 < top < steps - 1:
        raise InvalidArgumentError(
            f"one_cycle: of {steps} steps, pct_start={pct_start} leaves none on one side of the "
            "peak"
        )
    first = peak_value / div_factor
    last = first / final_div_factor

    def rate(count: Any) -> Tensor:
        at = _double(count)
        up, down = _share(at, top), _girih.clip((at - top) / (steps - 1 - top), 0.0, 1.0)
        rising = peak_value + 0.5 * (first - peak_value) * (1.0 + _girih.cos(pi * up))
        falling = last + 0.5 * (peak_value - last) * (1.0 + _girih.cos(pi * down))
        return _girih.where(at <= top, rising, falling)

    return rate


def inverse_sqrt(peak_value: float, warmup_steps: int) -> _Rate:
    """Linear warm-up, then decay by the inverse square root of the steps: Vaswani et al. 2017.

    Example:
        >>> import girih as gr
        >>> rate = gr.optim.schedules.inverse_sqrt(1.0, 4)
        >>> [rate(step).item() for step in (0, 3, 15)]
        [0.25, 1.0, 0.5]
    """
    over = _steps("inverse_sqrt", "warmup_steps", warmup_steps)

    def rate(count: Any) -> Tensor:
        steps = _double(count) + 1.0
        return peak_value * _girih.minimum(steps / over, (over / steps).sqrt())

    return rate


def join(schedules: Sequence[_Rate], boundaries: Sequence[int]) -> _Rate:
    """A sequence of schedules; each schedule counts steps from its own beginning.

    Args:
        schedules: The schedules.
        boundaries: The steps at which the second and the following schedules begin, ascending.

    Returns:
        The schedule.

    Raises:
        InvalidArgumentError: The number of boundaries is not one less than the number of schedules,
            or the boundaries are not ascending.

    Example:
        >>> import girih as gr
        >>> s = gr.optim.schedules
        >>> rate = s.join([s.linear(0.0, 1.0, 2), s.constant(0.5)], [2])
        >>> [rate(step).item() for step in range(4)]
        [0.0, 0.5, 0.5, 0.5]
    """
    if not schedules or len(boundaries) != len(schedules) - 1:
        raise InvalidArgumentError(
            f"join: {len(schedules)} schedules have {max(0, len(schedules) - 1)} boundaries, got "
            f"{len(boundaries)}"
        )
    parts, starts = items(schedules), items(boundaries)
    if starts != sorted(set(starts)):
        raise InvalidArgumentError(f"join: boundaries must ascend, got {starts}")

    def rate(count: Any) -> Tensor:
        at = _double(count)
        value = parts[0](at)
        for schedule, start in zip(parts[1:], starts, strict=True):
            # A schedule is called only with steps in its own range, even if it is not selected.
            later = schedule(_girih.maximum(at - start, 0.0))
            value = _girih.where(at >= start, later, value)
        return value  # type: ignore[no-any-return]

    return rate


explain_public(globals())
